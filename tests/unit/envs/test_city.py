"""Worlds of a city: their rules, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs.city import car_park, debts, ferry, market_cart, tram_line, triage_desk
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.mdp.values import expected_return


def constant(world, a):
    """Returns of always playing an action."""
    return expected_return(true_mdp(world), np.eye(world.n_actions)[np.full(world.n_states, a)])


def uniform_log(world, n):
    return sample_episodes(world, np.full((world.n_states, world.n_actions), 1.0 / world.n_actions), n, 0)


def test_a_ferry_that_waits_carries_nobody():
    waits, crosses, fast = (constant(ferry(0), a) for a in range(3))
    assert waits[0] == waits[2] == 0.0
    assert crosses[0] > fast[0] > 0.0  # more come in a longer time
    assert fast[2] < crosses[2] < 0.0
    assert waits[1] < crosses[1] < fast[1]


def test_a_ferry_takes_people_from_this_bank_only():
    truth = true_mdp(ferry(1))
    carried = truth.reward[0].reshape(6, 6, 2, 3)
    assert np.allclose(carried[:, :, :, 1:], np.minimum(np.arange(6), 4)[:, None, None, None])


def test_a_tram_that_waits_meets_connections_and_is_late():
    runs, waits, skips, hurries = (constant(tram_line(0), a) for a in range(4))
    assert waits[1] > runs[1] * 0.5 > skips[1] == 0.0
    assert skips[0] < runs[0]
    assert waits[2] < runs[2] < skips[2]
    assert hurries[4] < runs[4] == waits[4] == skips[4] == 0.0


def test_a_tram_is_never_too_full():
    log = uniform_log(tram_line(2), 300)
    load = log.states // 3 % 5
    assert np.all(log.rewards[:, 0] <= 4.0)
    going = log.next_states >= 0
    crowded = (log.next_states[going] // 3 % 5) == 4
    assert np.array_equal(log.rewards[going, 3] < 0.0, crowded)
    assert load.max() == 4


def test_a_cart_goes_where_it_is_sent():
    world = market_cart(0)
    transition = true_mdp(world).transition
    assert set(np.diff(transition.indptr)) == {0, 1}  # none after the last hour
    assert transition.data == pytest.approx(1.0)
    log = uniform_log(world, 100)
    assert set(np.diff(log.episode_ptr)) == {12}
    assert np.all(log.rewards[log.actions == 0, 1] == 0.0)
    assert np.all(log.rewards[log.actions > 0, 1] < 0.0)
    same = (log.states == log.states[0]) & (log.actions == log.actions[0])
    assert np.unique(log.rewards[same, 0].round(9)).size > 1


def test_fewer_park_where_it_is_dear():
    takings, visits, away = np.array([constant(car_park(0), a) for a in range(4)]).T
    assert np.all(np.diff(visits) < 0.0)
    assert np.all(np.diff(away) > 0.0)
    assert np.all(takings > 0.0)
    log = uniform_log(car_park(0), 200)
    assert set(np.diff(log.episode_ptr)) == {10}
    assert np.all(log.states % 11 <= 10)


def test_any_case_can_follow():
    world = triage_desk(0)
    ways = np.diff(true_mdp(world).transition.indptr)
    assert np.all(ways == 60)
    helped, returns, wages = np.array([constant(world, a) for a in range(4)]).T
    assert np.all(np.diff(wages) < 0.0)
    assert helped[2] > helped[0]
    assert returns[0] < returns[2] < 0.0


def test_loaded_seniors_help_less():
    helped = true_mdp(triage_desk(1)).reward[0].reshape(60, 3, 4)
    assert np.all(np.diff(helped[:, :, 3], axis=1) < 0.0)
    assert helped[:, 0, :3] == pytest.approx(helped[:, 2, :3])


def test_visits_bring_complaints():
    truth = true_mdp(debts(0))
    complaints = -truth.reward[1].reshape(6, 4, 5)[0]
    assert np.all(complaints[:, 3] > complaints[:, 2])
    assert np.all(complaints[:, 2] > complaints[:, 1])
    assert complaints.max() < 0.15
    log = uniform_log(debts(0), 2000)
    assert np.all(log.terminated[log.rewards[:, 1] < 0.0])
    assert np.diff(log.episode_ptr).max() == 6
    assert constant(debts(0), 3)[0] > constant(debts(0), 0)[0]
