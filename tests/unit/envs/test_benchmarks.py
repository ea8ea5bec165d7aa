"""Public benchmarks as worlds: their rules, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs import benchmarks
from bettersafe.envs.benchmarks import (
    blackjack,
    car_rental,
    cliff_walking,
    deep_sea_treasure,
    frozen_lake,
    mountain_car,
    resource_gathering,
    river_swim,
    small_taxi,
    wet_chicken,
    windy_gridworld,
)
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.mdp.values import expected_return

DOWN, LEFT, RIGHT, UP = range(4)


def outcomes(world, x, a):
    """Probabilities of next states (X: the end) of a pair."""
    row = world.outcome[[x * world.n_actions + a]].toarray()[0]
    return {int(y): float(row[y]) for y in np.flatnonzero(row)}


def test_the_lake_is_slippery():
    for seed in range(5):
        world = frozen_lake(seed, size=4)
        moves = outcomes(world, 0, DOWN)  # down, or to either side; left is the wall
        assert sum(moves.values()) == pytest.approx(1.0)
        goal, hole = world.outcome_reward.max(axis=1)[0], world.outcome_reward.min(axis=1)[1]
        assert (goal, hole) == (1.0, -1.0)
        best = optimal_policy(true_mdp(world), [1.0, 0.0])
        assert 0.0 < expected_return(true_mdp(world), best)[0] < 1.0  # the goal can be reached
    free = frozen_lake(0, size=4, hole_prob=0.0, slip=1.0 / 3.0)
    assert outcomes(free, 5, RIGHT) == pytest.approx({6: 0.33, 1: 0.33, 9: 0.33, 16: 0.01})


def test_the_cliff_leads_back_to_the_start():
    world = cliff_walking(0, rows=4, columns=8)
    start = 24
    assert world.initial[start] == 1.0
    back = outcomes(world, start, RIGHT)
    assert back == pytest.approx({start: 1.0})
    reward = world.outcome_reward[
        1, world.outcome.indptr[start * 4 + RIGHT] : world.outcome.indptr[start * 4 + RIGHT + 1]
    ]
    assert np.all(reward == -1.0)
    assert 32 in outcomes(world, 23, DOWN)  # the goal is below the last column


def test_the_taxi_pays_for_the_right_drop_off():
    world = small_taxi(2)
    best = expected_return(true_mdp(world), optimal_policy(true_mdp(world), [1.0, 0.0]))
    assert 5.0 < best[0] < 20.0
    assert best[1] == pytest.approx(0.0)
    never = np.eye(6)[np.full(world.n_states, 5)]
    assert expected_return(true_mdp(world), never)[1] < -5.0


def test_deeper_treasures_are_worth_more_and_take_longer():
    for seed in range(4):
        truth = true_mdp(deep_sea_treasure(seed))
        down = expected_return(truth, np.eye(4)[np.full(truth.n_states, DOWN)])
        best = expected_return(truth, optimal_policy(truth, [1.0, 0.0]))
        assert best[0] > down[0]
        assert best[1] < down[1] <= -1.0 + 1e-9


def test_all_ways_to_a_resource_are_guarded():
    for seed in range(4):
        hazard = resource_gathering(seed)
        truth = true_mdp(hazard.world)
        best = expected_return(truth, optimal_policy(truth, [0.0, 1.0, 1.0]))
        assert best[0] < -0.01
        assert best[1] + best[2] > 0.5
        assert np.array_equal(truth.reward[0].reshape(-1, 4) < 0.0, hazard.harmful)
        timid = np.eye(4)[np.where(hazard.harmful.all(axis=1), 0, np.argmin(hazard.harmful, axis=1))]
        assert expected_return(truth, timid) == pytest.approx(0.0)  # who never enters a guarded cell gains nothing


def test_the_waterfall_is_near_where_it_pays():
    world = wet_chicken(0)
    truth = true_mdp(world)
    drift, back = (expected_return(truth, np.eye(5)[np.full(25, a)]) for a in (0, 2))
    assert drift[1] < back[1]
    best = expected_return(truth, optimal_policy(truth, [1.0, 0.0]))
    assert best[0] > max(drift[0], back[0])


def test_swimming_pays_more_than_drifting():
    truth = true_mdp(river_swim(0))
    swim, drift = (expected_return(truth, np.eye(3)[np.full(8, a)]) for a in (1, 0))
    assert swim[0] > drift[0] > 0.0
    assert swim[1] < drift[1] == 0.0


def test_blackjack_is_lost_slowly_by_those_who_play_it_well():
    truth = true_mdp(blackjack(0))
    stick, hit = (expected_return(truth, np.eye(3)[np.full(130, a)]) for a in (0, 1))
    best = expected_return(truth, optimal_policy(truth, [1.0, 0.0]))
    assert -0.3 < best[0] < 0.3
    assert best[0] > max(stick[0], hit[0])
    assert stick[1] == 0.0
    assert hit[1] < -0.7


def test_the_dealer_draws_up_to_17():
    even = np.full(10, 0.1)
    final = benchmarks._dealer(even)
    assert final.sum(axis=1) == pytest.approx(1.0)
    assert np.all(final[:, :17] == 0.0)
    rng = np.random.default_rng(0)
    hands = []
    for _ in range(20000):
        hand = 6
        while hand < 17:
            hand += int(rng.integers(1, 11))
        hands.append(hand)
    assert np.bincount(hands, minlength=27) / 20000 == pytest.approx(final[5], abs=0.02)


def test_walls_keep_one_in_place():
    assert benchmarks._moved((0, 0), (-1, 0), (3, 3)) == (0, 0)
    assert benchmarks._moved((0, 0), (1, 0), (3, 3)) == (1, 0)


def test_the_mountain_car_must_swing():
    """The engine alone is too weak; who pushes the way that the car moves gets out."""
    for seed in range(3):
        world = mountain_car(seed)
        truth = true_mdp(world)
        velocity = np.arange(world.n_states) % 11 - 5
        swing = np.eye(3)[np.where(velocity >= 0, 2, 0)]
        right, out = (expected_return(truth, policy) for policy in (np.eye(3)[np.full(world.n_states, 2)], swing))
        assert out[0] > right[0]
        assert out == pytest.approx(out[0])  # every step is a push
        assert expected_return(truth, np.eye(3)[np.full(world.n_states, 1)])[1] == 0.0
        log = sample_episodes(world, swing, 100, 0)
        assert np.mean(np.diff(log.episode_ptr)) < 40.0


def test_windy_moves_fail_on_slippery_cells_alone():
    for seed in range(3):
        world = windy_gridworld(seed)
        truth = true_mdp(world)
        falls = truth.reward[1].reshape(70, 4)
        slippery = falls[:, 0] < 0.0
        assert slippery.sum() == 11
        assert np.all(falls == np.where(slippery, -0.5, 0.0)[:, None])
        assert np.all(np.diff(truth.transition.indptr).reshape(70, 4)[~slippery] <= 1)
        here = np.flatnonzero(~slippery & (np.arange(70) % 10 < 3))  # there is no wind in the first columns
        for x in here[here >= 10]:
            assert set(outcomes(world, int(x), UP)) == {int(x) - 10, 70}
        assert truth.reward[0].max() == pytest.approx(9.8)
        assert np.ptp(truth.transition.toarray().reshape(70, 4, 70)[slippery], axis=1).max() < 1e-12


def test_cars_that_are_rented_are_there_and_moving_them_costs():
    world = car_rental(0)  # at most 5 customers come to a place
    rented, moved, refused = true_mdp(world).reward.reshape(3, 7, 7, 5)
    assert np.all(rented[0, 0] == 0.0)
    assert np.all(np.diff(rented[:6, 0, 2]) > 0.0)
    assert np.all(moved[0, 0] == 0.0)  # there is nothing to move
    assert np.allclose(moved[3, 3], [-2.0, -1.0, 0.0, -1.0, -2.0])
    assert np.all(np.diff(refused[:6, 0, 2]) > 0.0)
    assert rented[3, 1, 1] == pytest.approx(rented[4, 0, 2])  # moved by one car
    log = sample_episodes(world, np.full((49, 5), 0.2), 200, 0)
    assert set(log.rewards[:, 0]) <= set(range(11))
    assert set(log.rewards[:, 2]) == {0.0, -1.0, -2.0}
