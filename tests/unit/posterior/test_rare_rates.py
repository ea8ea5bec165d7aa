"""Rates of rare events: closed forms with one effect at a time, parts of a log, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from bettersafe.posterior.rare_rates import rare_rewards, rate_posterior
from bettersafe.posterior.rewards import Moments, Strengths

ALIKE = 1e8
"""A shape at which factors are 1."""


def pairs(n_states, n_actions):
    return np.repeat(np.arange(n_states), n_actions), np.tile(np.arange(n_actions), n_states)


def rates(visits, events, *, size=10.0, point=None):
    """Posterior of events of one size, harmful ones, in a table [X, A]."""
    visits, events = np.asarray(visits, dtype=np.float64), np.asarray(events, dtype=np.float64)
    state, action = pairs(*visits.shape)
    n, k = visits.ravel(), events.ravel()
    mean = -size * k / np.maximum(n, 1.0)
    return rate_posterior(
        state,
        action,
        n,
        mean,
        size**2 * k - n * mean**2,
        n_states=visits.shape[0],
        n_actions=visits.shape[1],
        strengths=None if point is None else Strengths(points=np.array([point]), weight=np.ones(1)),
    )


def test_pairs_alone_have_the_posterior_of_a_beta():
    """With s = a = 1, by numerical integration; visits count as (κ + 1)/(κ + n) for the level."""
    visits, events, kappa = np.array([[30.0, 20.0, 5.0]]), np.array([[2.0, 0.0, 1.0]]), 4.0
    found = rates(visits, events, point=(ALIKE, ALIKE, kappa))
    weight = (kappa + 1.0) / (kappa + visits[0])
    level = float(weight @ events[0] / (weight @ visits[0]))
    for i, (n, k) in enumerate(zip(visits[0], events[0], strict=True)):

        def density(theta, n=n, k=k):
            return stats.beta.pdf(theta, kappa * level, kappa * (1.0 - level)) * stats.binom.pmf(k, n, theta)

        total, first, second = (
            integrate.quad(lambda t, p=p: density(t) * t**p, 0.0, 1.0, limit=400)[0] for p in range(3)
        )
        mean = first / total
        assert found.mean[i] == pytest.approx(-10.0 * mean, rel=1e-3)
        assert found.sd[i] == pytest.approx(10.0 * np.sqrt(second / total - mean**2), rel=5e-3)


def test_alike_pairs_have_the_rate_of_all():
    found = rates([[10.0, 30.0], [20.0, 40.0]], [[1, 0], [0, 3]], point=(ALIKE, ALIKE, ALIKE))
    assert found.mean == pytest.approx(-10.0 * 4 / 100)
    assert found.sd == pytest.approx(0.0, abs=1e-3)
    assert found.level_sd == pytest.approx(1.0 / np.sqrt(4.0), rel=1e-3)


@pytest.mark.parametrize("by", ["state", "action"])
def test_one_effect_alone_has_the_posterior_of_a_gamma(by):
    visits, events = np.full((2, 2), 25.0), np.array([[3.0, 4.0], [0.0, 1.0]])
    if by == "action":
        events = events.T
    point = (2.0, ALIKE, ALIKE) if by == "state" else (ALIKE, 2.0, ALIKE)
    found = rates(visits, events, point=point)
    table = found.mean.reshape(2, 2)
    table = table if by == "state" else table.T
    assert table[:, 0] == pytest.approx(table[:, 1], rel=1e-5)
    mu = -table.mean() / 10.0  # both have as many visits
    level = np.array([7.0, 1.0])
    factor = (2.0 + level) / (2.0 + 50.0 * mu)
    assert table[:, 0] / table[1, 0] == pytest.approx(factor / factor[1], rel=0.02)
    sd = found.state_sd if by == "state" else found.action_sd
    assert sd[0] < sd[1] < 1.0 / np.sqrt(2.0)  # where more was expected and seen, more is known


def test_one_strike_in_a_dangerous_region_says_little():
    """In ten states every action is struck now and then. Where one of two decisions was struck twice and the other once, they are expected to be alike."""
    visits, events = np.full((40, 2), 40.0), np.zeros((40, 2))
    events[:10, 0] = 1 + np.arange(10) % 2
    events[:10, 1] = 2 - np.arange(10) % 2
    found = rates(visits, events)
    table = found.mean.reshape(40, 2)
    assert np.abs(table[0, 0] - table[0, 1]) < 0.4 * np.abs(table[:10].mean())  # in frequencies 0.67
    assert np.abs(table[:10]).min() > 2.0 * np.abs(table[10:]).max()


def test_an_event_that_always_happens_in_some_pairs_is_believed_there():
    """Where a decision was struck in each of its few visits, and others never, a strike is no accident."""
    visits, events = np.full((30, 4), 3.0), np.zeros((30, 4))
    events[::3, 1] = 3.0
    table = rates(visits, events).mean.reshape(30, 4)
    assert np.all(table[::3, 1] < -9.0)
    assert np.all(table[1::3] > -0.5)


def test_what_one_action_does_everywhere_is_expected_where_it_was_not_tried():
    visits, events = np.full((20, 2), 30.0), np.zeros((20, 2))
    events[:, 1] = 1.0
    visits[0, 1], events[0, 1] = 0.0, 0.0
    table = rates(visits, events).mean.reshape(20, 2)
    assert table[0, 1] == pytest.approx(-10.0 / 30.0, rel=0.3)
    assert abs(table[0, 0]) < 0.1


def test_gains_are_harm_with_the_other_sign():
    rng = np.random.default_rng(0)
    visits = rng.integers(0, 40, size=(6, 3)).astype(float)
    events = rng.binomial(visits.astype(int), 0.05)
    harm, gain = (rates(visits, events, size=size) for size in (10.0, -10.0))
    assert np.array_equal(harm.mean, -gain.mean)
    assert np.array_equal(harm.sd, gain.sd)


def test_declared_states_and_actions_change_nothing():
    visits, events = np.full((5, 3), 12.0), np.zeros((5, 3))
    events[0, 1] = events[3, 1] = 1.0
    few = rates(visits, events)
    more = rates(np.pad(visits, ((0, 2), (0, 1))), np.pad(events, ((0, 2), (0, 1))))
    assert more.mean.reshape(7, 4)[:5, :3].ravel() == pytest.approx(few.mean, rel=1e-9)


def moments_of(visits, events, size=10.0):
    mean = -size * events / np.maximum(visits, 1.0)
    return Moments(mean=mean, spread=size**2 * events - visits * mean**2, asked=np.any(events > 0.0, axis=1), rare=True)


def test_a_log_without_events_has_none():
    state, action = pairs(3, 2)
    visits = np.full(6, 5.0)
    found = rare_rewards(state, action, visits, moments_of(visits, np.zeros((2, 6))), n_states=3, n_actions=2)
    assert not np.any(found.mean)
    assert not np.any(found.noise)


def test_parts_share_the_events_of_the_log():
    rng = np.random.default_rng(1)
    visits = rng.integers(0, 30, size=12).astype(float)
    events = rng.binomial(visits.astype(int), 0.2, size=(2, 12)).astype(float)
    whole = moments_of(visits, events)
    mine = rng.binomial(visits.astype(int), 0.5).astype(float)
    one, other = whole.thinned(visits, mine, np.random.default_rng(2))
    total = mine * one.mean + (visits - mine) * other.mean
    assert total == pytest.approx(visits * whole.mean)
    assert np.all(one.mean * -mine / 10.0 == pytest.approx(np.rint(one.mean * -mine / 10.0)))
    assert np.all((one.mean <= 0.0) & (other.mean <= 0.0))
    drawn = [whole.thinned(visits, mine, np.random.default_rng(i))[0].mean @ mine for i in range(300)]
    assert np.mean(drawn, axis=0) == pytest.approx(whole.mean @ mine, rel=0.1)
