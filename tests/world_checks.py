"""What tests of worlds ask of all of them."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs.tabular import END, sample_episodes, true_mdp
from bettersafe.mdp.values import expected_return


def constant(world, a):
    """Returns of always playing an action."""
    return expected_return(true_mdp(world), np.eye(world.n_actions)[np.full(world.n_states, a)])


def uniform_log(world, n):
    return sample_episodes(world, np.full((world.n_states, world.n_actions), 1.0 / world.n_actions), n, 0)


def check_outcomes(module, make, monkeypatch):
    """What a world of ``module`` lists are probabilities before `world_of` normalises them."""
    seen = {}
    monkeypatch.setattr(module, "world_of", lambda step, **facts: seen.update(facts, step=step))
    make(0)
    assert np.sum(seen["initial"]) == pytest.approx(1.0)
    for x in range(0, seen["n_states"], 3):
        for a in range(seen["n_actions"]):
            p, there, paid = zip(*seen["step"](x, a), strict=True)
            assert min(p) >= 0.0
            assert sum(p) == pytest.approx(1.0)
            assert END <= min(there) <= max(there) < seen["n_states"]
            assert {len(rewards) for rewards in paid} == {len(seen["objectives"])}
