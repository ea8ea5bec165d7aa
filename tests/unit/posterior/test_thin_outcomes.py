"""Halves of a log: they add up, are independent, and follow from the seed."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.posterior.outcomes import gather_outcomes, thin_outcomes
from posterior_cases import one_step_log, random_case


@pytest.mark.parametrize("tied", [True, False])
def test_halves_add_up(tied):
    o, _, _ = random_case(1, tied=tied)
    one, other = thin_outcomes(o, 3)
    for name in ("visits", "visits_on", "seen", "starts", "entry_count"):
        assert getattr(one, name) + getattr(other, name) == pytest.approx(getattr(o, name))
    for k in np.flatnonzero(o.noisy):
        total = one.visits * one.moments[0].mean[k] + other.visits * other.moments[0].mean[k]
        assert total == pytest.approx(o.visits * o.moments[0].mean[k])
        assert one.moments[0].strengths[k] is o.moments[0].strengths[k]
    assert np.all(one.starts.sum() > 0)


def test_a_seed_gives_the_same_halves():
    o, _, _ = random_case(1, tied=False)
    one, again, different = (thin_outcomes(o, seed)[0] for seed in (3, 3, 4))
    assert np.array_equal(one.count, again.count)
    assert np.array_equal(one.moments[0].mean, again.moments[0].mean)
    assert not np.array_equal(one.visits, different.visits)


@pytest.mark.parametrize("noisy", [False, True])
def test_halves_are_as_independent_as_two_logs(noisy):
    """Over many logs of one state, mean rewards of the halves are uncorrelated, and have the variance of half a log."""
    means = []
    for seed in range(400):
        rng = np.random.default_rng([seed, noisy])
        value = rng.normal(size=40) if noisy else rng.integers(0, 2, 40).astype(float)
        o = gather_outcomes(one_step_log([(0, 0, -1, each) for each in value], 1, 2, ("a",)))
        halves = thin_outcomes(o, rng)
        if noisy:
            means.append([half.moments[0].mean[0, 0] + half.moments[1].mean[0, 0] for half in halves])
        else:
            means.append([half.count @ half.outcome_reward[0, half.count_outcome] / half.visits[0] for half in halves])
    assert abs(np.corrcoef(np.transpose(means))[0, 1]) < 0.15
    assert np.std(means) == pytest.approx((1.0 if noisy else 0.5) / np.sqrt(20.0), rel=0.1)


def test_one_episode_starts_in_both_halves():
    o, _, _ = random_case(1, episodes=1)
    for seed in range(8):
        assert all(half.starts.sum() > 0.0 for half in thin_outcomes(o, seed))
