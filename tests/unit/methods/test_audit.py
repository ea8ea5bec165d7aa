"""The audit of optimism, against simulated truth."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.methods.audit import audit, mean_returns
from bettersafe.posterior.habits import informed
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.priors import PriorSet
from posterior_cases import one_step_log

N_ACTIONS = 8
BASELINE = np.full((1, N_ACTIONS), 1.0 / N_ACTIONS)


def bandit(rng, visits=20):
    """All actions pay the same on average; the rest is noise."""
    rows = [(0, a, -1, rng.normal()) for a in range(N_ACTIONS) for _ in range(visits)]
    return informed(gather_outcomes(one_step_log(rows, 1, N_ACTIONS, ("a",))), PriorSet(), BASELINE)


def luckiest(given, baseline):
    """All probability on the action that paid most."""
    return np.eye(N_ACTIONS)[[np.argmax(given.pair_reward[0])]]


def fixed(given, baseline):
    return np.eye(N_ACTIONS)[[3]]


def audited(given, make, seed=0):
    policies = [make(given, BASELINE)]
    return audit(
        given,
        lambda part: BASELINE,
        lambda part, base: [make(part, base)],
        sd=np.full((1, 1), 0.1),
        seed=seed,
        splits=4,
    ), policies[0]


def test_a_recipe_that_fits_noise_is_found_out():
    """Its gain is 0 in truth; over worlds the gain that it claims is about the optimism that the audit takes off."""
    claimed, taken = [], []
    for seed in range(12):
        given = bandit(np.random.default_rng(seed))
        found, policy = audited(given, luckiest, seed)
        claimed.append((mean_returns(given, policy) - mean_returns(given, BASELINE))[0])
        taken.append(found.optimism[0, 0])
    assert np.mean(claimed) > 0.05
    assert 0.6 < np.mean(taken) / np.mean(claimed) < 1.8


def test_a_policy_that_no_log_made_has_no_optimism():
    """On average over worlds; in one, what is below 0 counts as 0, and the rest is within the error."""
    taken, error = [], []
    for seed in range(12):
        found, _ = audited(bandit(np.random.default_rng(seed)), fixed, seed)
        taken.append(found.optimism[0, 0])
        error.append(found.error[0, 0])
    fitted = [audited(bandit(np.random.default_rng(seed)), luckiest, seed)[0].optimism[0, 0] for seed in range(6)]
    assert np.median(taken) < 0.3 * np.mean(fitted)
    assert np.all(np.array(taken) <= 5.0 * np.array(error) + 1e-12)


def test_the_same_seed_gives_the_same_audit():
    given = bandit(np.random.default_rng(1))
    one, again = (audited(given, luckiest, 5)[0] for _ in range(2))
    assert np.array_equal(one.optimism, again.optimism)
    assert 0.5 <= one.ratio <= 1.0
    assert one.splits == 4


def test_a_recipe_that_makes_nothing_of_a_part_has_the_optimism_of_the_others():
    given = bandit(np.random.default_rng(2))
    sd = np.array([[0.1], [0.2]])
    found = audit(
        given, lambda part: BASELINE, lambda part, base: [luckiest(part, base), BASELINE], sd=sd, splits=4, seed=1
    )
    assert found.optimism[1, 0] == pytest.approx(2.0 * found.optimism[0, 0])
