"""Do the bounds from marginalised terms fail as seldom as they say, also where episodes are cut off? With planted faults.

The terms are linearised, so nothing is exact: `ALLOWED` is added to δ, and a program that keeps to it fails once in a million runs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.evaluation import evaluate, marginal
from bettersafe.evaluation.bounds import lower_bound
from bettersafe.evaluation.evaluate import evaluate_policy
from bettersafe.mdp.values import expected_return

DELTA = 0.1
ALLOWED = 0.04
LOGS = 100


def failures(estimator, *, cut, horizon=None, logs=LOGS):
    """How often a bound at δ on J(π) − J(π_b) is too high, over logs and objectives of 10 worlds."""
    wrong = 0
    for seed in range(logs):
        rng = np.random.default_rng([3, seed % 10])
        world = garnet(rng, n_states=8, n_actions=3, end=0.05, discount=0.9)
        policy, baseline = (rng.dirichlet(np.full(3, 3.0), size=8) for _ in range(2))
        truth = true_mdp(world)
        gain = expected_return(truth, policy, horizon=horizon) - expected_return(truth, baseline, horizon=horizon)
        data = sample_episodes(world, baseline, 200, np.random.default_rng([4, seed]), horizon=cut)
        mine, theirs = (
            evaluate_policy(data, each, baseline, estimator=estimator, rng=1, horizon=horizon).per_trajectory
            for each in (policy, baseline)
        )
        wrong += int(np.sum(lower_bound(mine - theirs, DELTA, method="t") > gain))
    return wrong


def allowed(logs):
    return int(stats.binom.ppf(1.0 - 1e-6, 2 * logs, DELTA + ALLOWED))


@pytest.mark.parametrize("logs", [LOGS, pytest.param(10 * LOGS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("estimator", ["mis", "drl"])
@pytest.mark.parametrize(("cut", "horizon"), [(None, None), (6, None), (6, 12)])
def test_bounds_hold_for_whole_and_for_cut_off_episodes(estimator, cut, horizon, logs):
    assert failures(estimator, cut=cut, horizon=horizon, logs=logs) <= allowed(logs)


def test_catches_wrong_visits_with_wrong_values(monkeypatch):
    """One of the two may be wrong (double robustness). With equal visits to all states and without values, nothing is left."""
    right = marginal.following

    def without_values(model, policy, baseline):
        found = right(model, policy, baseline)
        nothing = {
            name: np.zeros_like(getattr(found, name)) for name in ("start", "expected", "otherwise", "following")
        }
        return replace(found, **nothing)

    def with_equal_visits(model, policy, baseline):
        found = right(model, policy, baseline)
        visits = np.full_like(found.visits, found.visits.mean())
        scale = visits / found.visits
        expected = found.expected * scale[model.mdp.pair_state]
        return replace(found, visits=visits, expected=expected, otherwise=found.otherwise * scale)

    def with_neither(model, policy, baseline):
        return replace(
            without_values(model, policy, baseline), visits=with_equal_visits(model, policy, baseline).visits
        )

    for faulty in (with_equal_visits, without_values):
        monkeypatch.setattr(evaluate, "following", faulty)
        assert failures("drl", cut=None) <= allowed(LOGS)
    monkeypatch.setattr(evaluate, "following", with_neither)
    assert failures("drl", cut=None) > allowed(LOGS)
