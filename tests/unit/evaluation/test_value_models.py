"""Values that estimators use, by step of a horizon."""

from __future__ import annotations

import dataclasses

import numpy as np

from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes
from bettersafe.evaluation.value_models import _by_step
from bettersafe.model import estimate_model


def test_a_horizon_beyond_what_matters_changes_nothing_and_takes_no_longer():
    rng = np.random.default_rng(0)
    world = garnet(rng, n_states=5, n_actions=3, end=0.2, discount=0.9)
    baseline = np.full((5, 3), 1.0 / 3.0)
    log = sample_episodes(world, baseline, 40, rng)
    policy = np.eye(3)[rng.integers(3, size=5)]
    for unseen in ("baseline", "worst", "end"):
        model = estimate_model(log, unseen=unseen, baseline=baseline, horizon=3000)
        near, start = _by_step(model, policy, baseline, 4)
        endless, beyond = _by_step(dataclasses.replace(model, horizon=10**9), policy, baseline, 4)
        np.testing.assert_allclose(beyond, start, rtol=1e-12)
        np.testing.assert_allclose(endless.v, near.v, rtol=1e-12)
        np.testing.assert_allclose(endless.otherwise, near.otherwise, rtol=1e-12)
        assert np.all(endless.v[0] != 0.0)
