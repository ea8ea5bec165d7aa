"""How often B-OPT returns a policy that is worse than the baseline, in worlds that its priors did not make.

Garnets with a weak and with a near-optimal baseline, δ = 0.1. The promise is Bayesian, so a rate under δ is no theorem here; it
is what the set of priors is for. A right program fails one of these tests once in a million at a true rate of δ.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bettersafe.bopt import b_opt
from bettersafe.cmdp import optimal_policy
from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.improve import adv_linearized
from bettersafe.mdp import expected_return
from bettersafe.model import estimate_model
from bettersafe.posterior import gather_outcomes

DELTA = 0.1
PREFERENCE = np.array([1.0, 0.0])


def gains_in(seed, quality, episodes):
    """True gains [d] of B-OPT and of its twin that tests nothing, as shares of the baseline's returns."""
    rng = np.random.default_rng([seed, round(10 * quality), episodes])
    world = garnet(rng)
    truth = true_mdp(world)
    baseline = mixed_policy(rng, optimal_policy(truth, np.ones(2)), quality)
    data = sample_episodes(world, baseline, episodes, rng)
    model = estimate_model(data)
    before = expected_return(truth, baseline)
    chosen = b_opt(gather_outcomes(data), model, baseline, preference=PREFERENCE, delta=DELTA, draws=100)
    untested = adv_linearized(model, baseline, preference=PREFERENCE)
    return [
        (expected_return(truth, policy) - before) / before for policy in (chosen.improvement.policy, untested.policy)
    ]


def rates(quality, cases):
    """Failures of B-OPT and of its twin, and their mean gains on what was asked for."""
    gains = np.array([gains_in(seed, quality, episodes) for seed, episodes in cases])  # [cases, 2, d]
    return np.sum(np.any(gains < -1e-9, axis=2), axis=0), gains[:, :, 0].mean(axis=0)


def most(n):
    """Failures of n that a rate of δ exceeds once in a million."""
    return stats.binom.isf(1e-6, n, DELTA)


@pytest.mark.parametrize(("quality", "improves"), [(0.0, 0.08), (0.9, 0.002)])
def test_failures_stay_under_delta(quality, improves):
    cases = [(seed, (20, 100)[seed % 2]) for seed in range(20)]
    failures, gain = rates(quality, cases)
    assert failures[0] <= most(len(cases))
    assert gain[0] > improves
    if quality == 0.9:  # where the baseline is good, to test nothing is to fail
        assert failures[1] > most(len(cases))


@pytest.mark.long
@pytest.mark.parametrize("episodes", [20, 100])
@pytest.mark.parametrize(("quality", "improves"), [(0.0, 0.12), (0.9, 0.003)])
def test_failures_stay_under_delta_in_many_worlds(quality, improves, episodes):
    cases = [(seed, episodes) for seed in range(1000, 1200)]
    failures, gain = rates(quality, cases)
    assert failures[0] <= most(len(cases))
    assert gain[0] > improves
    assert failures[1] > failures[0]
    if quality == 0.9:
        assert failures[1] > most(len(cases))
