"""Worlds of trade: their rules, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs import trade
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.envs.trade import ad_slots, bus_engine, fishery, heating, lotteries, reservoir, seat_prices
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.mdp.values import expected_return


def constant(world, a):
    """Returns of always playing an action."""
    return expected_return(true_mdp(world), np.eye(world.n_actions)[np.full(world.n_states, a)])


def uniform_log(world, n, **options):
    return sample_episodes(world, np.full((world.n_states, world.n_actions), 1.0 / world.n_actions), n, 0, **options)


def test_dearer_seats_are_sold_less():
    world = seat_prices(0)
    revenue, sold = np.array([constant(world, a) for a in range(20)]).T
    assert np.all(np.diff(sold) < 0.0)
    assert 0 < np.argmax(revenue) < 19
    best = np.sort(revenue)[-3:]
    assert best[0] > 0.9 * best[2]  # neighbours are nearly as good
    log = uniform_log(world, 200)
    assert np.diff(log.episode_ptr).max() == 8
    assert np.add.reduceat(log.rewards[:, 1], log.episode_ptr[:-1]).max() <= 8.0


def test_clicks_orders_and_blocks_are_rare():
    log = uniform_log(ad_slots(0), 4000)
    clicked, ordered, blocked = (log.rewards != 0.0).mean(axis=0)
    assert 0.01 < clicked < 0.1
    assert 0.03 < ordered / clicked < 0.2
    assert 0.002 < blocked < 0.015
    assert np.all(log.terminated[log.rewards[:, 2] < 0.0])


def test_lotteries_are_worth_about_as_much_as_the_wage():
    truth = true_mdp(lotteries(0))
    mean = truth.reward[0].reshape(10, 4)
    assert np.all((mean > 0.5 - 1e-9) & (mean < 1.3 + 1e-9))
    log = uniform_log(lotteries(0), 3000)
    for a, (prize, once) in enumerate(((8.0, 10), (40.0, 50), (150.0, 200)), start=1):
        won = log.rewards[log.actions == a, 0]
        assert set(np.unique(won)) == {0.0, prize}
        assert 0.4 / once < np.mean(won > 0.0) < 2.0 / once
    assert np.unique(log.rewards[log.actions == 0, 0]).size == 10


def test_large_releases_are_noisy():
    world = reservoir(0)
    log = uniform_log(world, 3000)
    full = log.states // 4 == 9
    spread = [np.std(log.rewards[full & (log.states % 4 == 0) & (log.actions == a), 0]) for a in range(6)]
    assert spread[0] == pytest.approx(0.0, abs=1e-12)
    assert spread[5] > 3.0 * spread[1] > 0.0
    assert constant(world, 0)[1] < constant(world, 3)[1]
    assert constant(world, 0)[2] < constant(world, 5)[2] <= 0.0


def test_heating_costs_and_warms():
    world = heating(0)
    off, high = constant(world, 0), constant(world, 2)
    assert off[0] == 0.0 > high[0]
    assert min(off[1], high[1]) < -1.0
    best = expected_return(true_mdp(world), optimal_policy(true_mdp(world), [0.0, 1.0]))
    assert best[1] > max(off[1], high[1])


def test_old_engines_break_down_at_a_skewed_cost():
    world = bus_engine(0)
    run, new = constant(world, 0), constant(world, 3)
    assert run[1] < new[1] < 0.0
    assert new[0] < run[0]  # a new engine at every step is the dearest
    of_pair = slice(*world.outcome.indptr[10 * 4 : 10 * 4 + 2])  # mileage 5, run
    (money, stranded), p = world.outcome_reward[:, of_pair], world.outcome.data[of_pair]
    cost, p = -money[stranded < 0.0], p[stranded < 0.0] / p[stranded < 0.0].sum()
    assert p @ cost - (-money[stranded == 0.0].max()) == pytest.approx(6.0, abs=1e-3)
    assert p @ (cost - p @ cost) ** 3 > 100.0


def test_who_fishes_hardest_depletes_the_stock():
    world = fishery(0)
    assert np.all(world.outcome.toarray()[:, world.n_states] == 0.0)
    profit, depleted = np.array([constant(world, a) for a in range(5)]).T
    assert np.all(np.diff(depleted) < 0.0)
    assert profit[0] == 0.0
    log = uniform_log(world, 20, horizon=25)
    assert set(np.diff(log.episode_ptr)) == {25}


def test_catches_are_binomial():
    assert [p for _, p in trade._catches(2, 0.25)] == pytest.approx([0.5625, 0.375, 0.0625])
