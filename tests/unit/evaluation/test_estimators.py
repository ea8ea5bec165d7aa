"""Terms of the estimators, from blocks of trajectories."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bettersafe.evaluation.estimators import Trajectories, terms_of_blocks, trajectory_terms


def test_terms_do_not_depend_on_the_blocks():
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 12, 60)
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    n_rows = int(ptr[-1])
    log_ratio = rng.normal(size=n_rows) * 2.0
    log_ratio[rng.random(n_rows) < 0.1] = -np.inf
    rewards, v, q = (rng.normal(size=(n_rows, 2)) for _ in range(3))
    tail = rng.normal(size=(60, 2))
    discount = np.array([0.9, 0.99])
    whole = trajectory_terms(ptr, log_ratio, rewards, discount, v, q, tail)
    for cuts in ([0, 60], [0, 1, 59, 60], list(range(61))):
        blocks = []
        for a, b in pairwise(cuts):
            rows = slice(ptr[a], ptr[b])
            blocks.append(
                Trajectories(
                    ptr=ptr[a : b + 1] - ptr[a], log_ratio=log_ratio[rows], rewards=rewards[rows], v=v[rows], q=q[rows],
                    tail=tail[a:b],
                )
            )  # fmt: skip
        found = terms_of_blocks(lambda blocks=blocks: blocks, discount, has_model=True)
        assert np.array_equal(found[0], whole[0])
        assert np.array_equal(found[1], whole[1])
        plain, _ = terms_of_blocks(lambda blocks=blocks: blocks, discount, has_model=True, weighted=False)
        assert np.array_equal(plain[[0, 1, 4]], whole[0][[0, 1, 4]])
