"""Worlds of business: their rules, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs import business
from bettersafe.envs.business import (
    HEAVY_POINTS,
    MOODS,
    donors,
    exchange,
    help_desk,
    restaurant,
    sales_funnel,
    street_stall,
)
from bettersafe.envs.tabular import true_mdp
from world_checks import check_outcomes, constant, uniform_log


@pytest.mark.parametrize("make", [sales_funnel, donors, exchange, street_stall, restaurant, help_desk])
def test_outcomes_are_probabilities_before_they_are_normalised(make, monkeypatch):
    check_outcomes(business, make, monkeypatch)


def test_points_have_mean_0_and_moods_mean_about_1():
    value, p = np.array(HEAVY_POINTS).T
    assert (p.sum(), p @ value) == pytest.approx((1.0, 0.0))
    assert value[-1] > 20.0
    # E[T | T > q] of Student t with 2 degrees of freedom is 1/√(2 + q²) / P(T > q), q = (2u − 1)·√(2/(4u(1 − u))).
    q = (2 * 0.996 - 1) * np.sqrt(2.0 / (4 * 0.996 * 0.004))
    assert value[-1] == pytest.approx(1.0 / np.sqrt(2.0 + q * q) / 0.004, abs=1e-3)
    mood, share = np.array(MOODS).T
    assert share @ mood == pytest.approx(1.025)


def test_a_sale_is_the_last_step_of_a_lead():
    log = uniform_log(sales_funnel(0), 1000)
    sold = log.rewards[:, 0] > 0.0
    assert set(log.rewards[:, 0]) == {0.0, 1.0}
    assert np.all(log.terminated[sold | (log.rewards[:, 1] < 0.0)])
    assert np.all(log.states[sold] // 12 == 4)
    wait, mail, call, show, rebate = (constant(sales_funnel(0), a) for a in range(5))
    assert show[0] > call[0] > mail[0] > wait[0]
    assert show[2] < call[2] < mail[2] < wait[2] == 0.0
    assert rebate[0] > wait[0]


def test_only_visits_to_old_donors_with_close_ties_bring_legacies():
    world = donors(0)
    for x in range(world.n_states):
        age, tie = x // 12, x % 3
        for a in range(5):
            of_pair = slice(*world.outcome.indptr[x * 5 + a : x * 5 + a + 2])
            large = world.outcome_reward[0, of_pair] > 50.0
            assert large.any() == (a == 3 and age >= 2 and tie == 2)
            assert world.outcome.data[of_pair][large].sum() < 0.0145
    costs = [constant(world, a)[1] for a in range(5)]
    assert min(costs) == costs[3]
    assert costs[0] == 0.0


def test_who_holds_nothing_wins_and_loses_nothing():
    world = exchange(0)
    flat, long = constant(world, 2), constant(world, 4)
    assert flat == pytest.approx(0.0)
    assert long[1] < 0.0
    assert long[2] < 0.0
    fees = true_mdp(world).reward[1].reshape(5, 6, 5)
    assert np.all(fees[np.arange(5), :, np.arange(5)] == 0.0)
    assert np.all(fees[0, :, 4] < fees[0, :, 1])
    profit = uniform_log(world, 500).rewards[:, 0]
    assert min(profit.max(), -profit.min()) > 8.0 * np.abs(profit).mean()


def test_nothing_changes_the_rent_of_a_stall():
    world = street_stall(0)
    returns = np.array([constant(world, a) for a in range(4)])
    assert np.ptp(returns[:, 2]) < 1e-9
    assert np.ptp(returns[:, 1]) > 0.1
    assert list(world.discount) == [0.95, 0.99, 0.95]
    log = uniform_log(world, 200)
    assert log.rewards[:, 2].std() > 0.4
    going = log.next_states >= 0
    assert np.array_equal(log.next_states[going] % 3, (log.states[going] + 1) % 3)
    assert np.all(log.rewards[(log.states // 9 == 0) & (log.actions == 0), 0] == 0.0)


def test_takings_tips_and_ratings_go_together():
    for seed in range(3):
        log = uniform_log(restaurant(seed), 400)
        together = np.corrcoef(log.rewards.T)
        assert together[0, 1] > 0.9
        assert together[0, 2] > 0.7
        assert set(np.diff(log.episode_ptr)) == {8}
        assert np.array_equal(log.states % 2, np.repeat(log.states[log.episode_ptr[:-1]] % 2, 8))


def test_a_tired_desk_solves_less_and_a_break_solves_nothing():
    truth = true_mdp(help_desk(0))
    solved, reopened, waiting = truth.reward.reshape(3, 7, 3, 3, 5)
    assert np.all(solved[0] == 0.0)
    assert np.all(solved[..., 4] == 0.0)
    assert np.all(np.diff(solved[1:, :, :, :4], axis=1) < 0.0)
    assert np.all(reopened <= 0.0)
    assert waiting[:, 0, 0, 0] == pytest.approx(-np.arange(7) / 10.0)
    log = uniform_log(help_desk(0), 100)
    assert np.all(log.states // 9 <= 6)
