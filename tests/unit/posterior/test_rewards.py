"""The posterior of mean rewards, against dense normal algebra and simulated truth."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.posterior import rewards
from bettersafe.posterior.rewards import Moments, Strengths, pair_rewards, reward_posterior

N_STATES, N_ACTIONS = 7, 4


def grid_pairs(n_states=N_STATES, n_actions=N_ACTIONS):
    return np.repeat(np.arange(n_states), n_actions), np.tile(np.arange(n_actions), n_states)


def dense(state, action, visits, mean, noise, taus, n_states, n_actions):
    """Mean and covariance of ρ of all pairs given the standard deviations, by the normal distribution of all pairs at once."""
    tau_state, tau_action, tau = taus
    flat = 1e3  # prior standard deviation of the level
    prior = flat**2 + tau_state**2 * (state[:, None] == state) + tau_action**2 * (action[:, None] == action)
    prior = prior + tau**2 * np.eye(state.size)
    seen = visits > 0
    gain = prior[:, seen] @ np.linalg.inv(prior[np.ix_(seen, seen)] + np.diag(noise[seen]))
    return gain @ mean[seen], prior - gain @ prior[seen]


def simulated(rng, taus=(0.5, 0.3, 0.2), noise=1.0, most=30):
    state, action = grid_pairs(40)
    true = 2.0 + taus[0] * rng.normal(size=40)[state] + taus[1] * rng.normal(size=4)[action]
    true = true + taus[2] * rng.normal(size=state.size)
    visits = rng.integers(0, most, state.size).astype(float)
    mean = true + noise * rng.normal(size=state.size) / np.sqrt(np.maximum(visits, 1.0))
    spread = noise**2 * rng.chisquare(np.maximum(visits - 1.0, 1e-9)) * (visits > 1)
    return state, action, visits, np.where(visits > 0, mean, 0.0), spread, true


def test_one_state_in_closed_form():
    """One state and one action with known strengths: a level without a prior is the mean itself."""
    alone = reward_posterior(
        np.zeros(1, dtype=int), np.zeros(1, dtype=int), np.array([9.0]), np.array([3.0]), np.array([8.0]),
        n_states=1, n_actions=1, strengths=Strengths(points=np.array([[1e-6, 1e-6, 1.0]]), weight=np.ones(1)),
    )  # fmt: skip
    assert alone.mean == pytest.approx([3.0])
    # s² = 1 of 8 free visits, noise 1/9; in units of the rewards' standard deviation, √(8/9), τ is 1
    noise, tau = 1.0 / 9.0, np.sqrt(8.0 / 9.0)
    assert alone.share == pytest.approx([noise / (noise + tau**2)])
    assert alone.sd**2 == pytest.approx([1.0 / (1.0 / noise + 1.0 / tau**2)])


@pytest.mark.parametrize("taus", [(0.5, 0.3, 0.2), (0.01, 1.0, 0.1)])
def test_means_given_the_strengths_are_those_of_dense_algebra(taus):
    rng = np.random.default_rng(1)
    state, action = grid_pairs()
    visits = rng.integers(0, 6, state.size).astype(float)
    mean, spread = np.where(visits > 0, rng.normal(size=state.size), 0.0), rng.random(state.size) * visits
    given = rng.random(state.size) + 0.1  # variances of the means
    found = reward_posterior(
        state, action, visits, mean, spread, n_states=N_STATES, n_actions=N_ACTIONS,
        strengths=Strengths(points=np.array([taus]), weight=np.ones(1)), variance=given,
    )  # fmt: skip
    level = visits @ mean / visits.sum()
    size = np.sqrt((visits @ (mean - level) ** 2 * 1.0 + spread.sum()) / visits.sum())
    expected, covariance = dense(state, action, visits, mean, given, size * np.array(taus), N_STATES, N_ACTIONS)
    assert found.mean == pytest.approx(expected, abs=1e-5)
    assert np.all(found.sd**2 <= np.diagonal(covariance) + 1e-6)  # the own part is a part
    untried = visits == 0
    assert np.all(found.share[untried] == 1.0)
    assert found.mean[untried] == pytest.approx((found.state_level[state] + found.action_level[action])[untried])


def test_truth_lies_where_the_posterior_says():
    """Over simulated logs, (truth − mean)/sd is standard normal but for what pairs share; with learnt strengths too."""
    scores, covered = [], []
    for seed in range(60):
        state, action, visits, mean, spread, true = simulated(np.random.default_rng(seed))
        found = reward_posterior(state, action, visits, mean, spread, n_states=40, n_actions=4)
        shared = found.share**2 * (found.state_sd[state] ** 2 + found.action_sd[action] ** 2)
        z = (true - found.mean) / np.sqrt(found.sd**2 + shared)
        scores.append(z.mean())
        covered.append(np.mean(np.abs(z) < 1.645))
    assert abs(np.mean(scores)) < 0.1
    assert 0.86 < np.mean(covered) < 0.96


def test_a_constant_reward_is_certain():
    state, action = grid_pairs()
    visits = np.arange(state.size) % 3.0
    found = reward_posterior(
        state, action, visits, np.full(state.size, 0.1), np.zeros(state.size), n_states=N_STATES, n_actions=N_ACTIONS
    )
    assert found.mean == pytest.approx(np.full(state.size, 0.1))
    assert not np.any(found.sd)
    assert not np.any(found.state_sd)
    assert not np.any(found.untried_state_var)


def test_strengths_are_probabilities_and_are_used_again():
    state, action, visits, mean, spread, _ = simulated(np.random.default_rng(3))
    size = {"n_states": 40, "n_actions": 4}
    found = reward_posterior(state, action, visits, mean, spread, **size)
    assert found.strengths.weight.sum() == pytest.approx(1.0)
    assert found.strengths.points.shape == (found.strengths.weight.size, 3)
    again = reward_posterior(state, action, visits, mean, spread, strengths=found.strengths, **size)
    assert np.array_equal(found.mean, again.mean)
    assert again.strengths is found.strengths
    strong = Strengths(points=np.array([[1e-3, 1e-3, 1e-3]]), weight=np.ones(1))
    flat = reward_posterior(state, action, visits, mean, spread, strengths=strong, **size)
    assert np.ptp(flat.mean) < 0.05 * np.ptp(found.mean)
    # more differences between pairs, larger τ
    wild = simulated(np.random.default_rng(3), taus=(0.5, 0.3, 1.5))
    more = reward_posterior(*wild[:5], **size).strengths
    assert more.weight @ more.points[:, 2] > 2.0 * (found.strengths.weight @ found.strengths.points[:, 2])


def test_moments_of_parts_are_those_of_random_parts():
    """Drawn means of halves have the variance of the means of real random halves, and add up to the whole."""
    rng = np.random.default_rng(0)
    values = rng.normal(3.0, 2.0, size=40)
    whole = Moments(
        mean=np.array([[values.mean(), 0.0]]),
        spread=np.array([[np.sum((values - values.mean()) ** 2), 0.0]]),
        asked=np.ones(1, bool),
    )
    visits, mine = np.array([40.0, 0.0]), np.array([15.0, 0.0])
    drawn = []
    for _ in range(4000):
        one, other = whole.thinned(visits, mine, rng)
        assert (15 * one.mean[0, 0] + 25 * other.mean[0, 0]) / 40 == pytest.approx(values.mean())
        drawn.append(one.mean[0, 0])
    real = [rng.choice(values, 15, replace=False).mean() for _ in range(4000)]
    assert np.mean(drawn) == pytest.approx(np.mean(real), abs=0.05)
    assert np.std(drawn) == pytest.approx(np.std(real), rel=0.06)
    assert not one.mean[0, 1]


def test_units_do_not_matter():
    """The posterior of rewards of 1e-12 is that of rewards of 1, in the other unit."""
    rng = np.random.default_rng(0)
    state, action = np.repeat(np.arange(10), 3), np.tile(np.arange(3), 10)
    visits, mean, spread = rng.integers(1, 9, 30).astype(float), rng.normal(size=30), rng.exponential(size=30)
    one, small = (
        reward_posterior(state, action, visits, unit * mean, unit**2 * spread, n_states=10, n_actions=3)
        for unit in (1.0, 1e-12)
    )
    assert small.mean == pytest.approx(1e-12 * one.mean, rel=1e-6, abs=1e-18)
    assert small.sd == pytest.approx(1e-12 * one.sd, rel=1e-6)


def test_noise_of_an_action_is_not_shrunk_to_that_of_its_state():
    """An action whose rewards vary a hundred times as much as others: a pair of it with two equal rewards is as uncertain as the action."""
    state, action = np.repeat(np.arange(20), 2), np.tile(np.arange(2), 20)
    visits = np.full(40, 10.0)
    spread = np.where(action == 1, 9.0 * 100.0, 9.0 * 1.0)
    spread[1] = 0.0
    noise = rewards._noise(state, action, visits, spread)
    assert noise[1] > 50.0
    assert np.all(noise[action == 0] < 70.0)


def test_how_much_of_the_log_is_believed_is_uncertain_for_all_pairs_together():
    """Three of 40 pairs stand out: they are believed together or not at all, so their means move together."""
    state, action = np.divmod(np.arange(40), 2)
    visits, spread = np.full(40, 4.0), np.full(40, 4.0)
    mean = np.where(np.isin(np.arange(40), (3, 14, 25)), 1.5, 0.0)
    found = reward_posterior(state, action, visits, mean, spread, n_states=20, n_actions=2)
    struck = found.common[[3, 14, 25]]
    assert np.all(struck > 0.05)
    assert np.all(struck > 3.0 * np.abs(np.delete(found.common, [2, 3, 14, 15, 24, 25])).max())
    effects = pair_rewards(
        state, action, visits, Moments(mean=mean[None], spread=spread[None], asked=np.ones(1, dtype=bool)),
        n_states=20, n_actions=2,
    )  # fmt: skip
    moved = np.zeros(40)
    moved[[3, 14, 25]] = 1.0
    shared = effects.common.loading(0, state, action, moved)
    assert np.sqrt(np.sum(shared**2)) == pytest.approx(struck.sum())
