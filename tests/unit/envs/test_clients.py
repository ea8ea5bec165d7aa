"""Worlds of clients: their rules, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs import clients
from bettersafe.envs.clients import COUNTS, binomial, chats, exercises, headaches, mail_order, portal, rides
from bettersafe.envs.tabular import true_mdp
from world_checks import check_outcomes, constant, uniform_log


@pytest.mark.parametrize("make", [chats, exercises, mail_order, headaches, portal, rides])
def test_outcomes_are_probabilities_before_they_are_normalised(make, monkeypatch):
    check_outcomes(clients, make, monkeypatch)


def test_counts_are_distributions():
    assert sum(p for _, p in COUNTS) == pytest.approx(1.0)
    count, p = np.array(binomial(4, 0.3)).T
    assert (p.sum(), p @ count) == pytest.approx((1.0, 1.2))


def test_chats_are_rated_and_billed_at_their_end():
    log = uniform_log(chats(0), 1000)
    assert set(log.rewards[log.terminated, 0]) == {1.0, 2.0, 3.0, 4.0, 5.0}
    assert np.all(log.rewards[log.terminated, 1] < 0.0)
    assert np.all(log.rewards[~log.terminated, :2] == 0.0)
    bills = [np.unique(log.rewards[log.terminated & (log.actions == a), 1]) for a in range(5)]
    assert all(bill.size == 1 for bill in bills)  # by the last action alone
    ends = 1.0 - np.asarray(true_mdp(chats(0)).transition.sum(axis=1)).reshape(4, 4, 2, 5)
    assert np.all(ends[..., 1, 1:3] > ends[..., 0, 1:3])  # who knows the cause solves the issue
    stars = true_mdp(chats(0)).reward[0].reshape(4, 4, 2, 5) / ends
    assert np.all(np.diff(stars[..., 4], axis=1) < 0.0)  # the more impatient, the worse the rating


def test_exercises_last_exactly_12_weeks_and_scores_have_a_ceiling():
    world = exercises(0)
    log = uniform_log(world, 500)
    assert np.all(np.diff(log.episode_ptr) == 12)
    assert np.all(log.terminated[log.episode_ptr[1:] - 1])
    score, falls, pain = log.rewards.T
    assert score.max() == 10.0
    assert set(falls) == {0.0, -1.0}
    assert np.mean(falls) > -0.03
    assert (pain.min(), pain.max()) == (-5.0, 0.0)
    mean = true_mdp(world).reward.reshape(3, 12, 6, 2, 4)
    assert np.all(np.diff(mean[1], axis=1) > 0.0)
    assert np.all(np.diff(mean[2], axis=3) < 0.0)
    level, sore = log.next_states // 2 % 6, log.next_states % 2
    at_best = (log.actions == 0) & ~log.terminated & (level >= 4) & (sore == 0)
    assert np.all(score[at_best] == 10.0)
    assert np.unique(score[(log.actions == 0) & ~log.terminated & (level == 0) & (sore == 0)]).size == 1


def test_most_months_have_no_order():
    world = mail_order(0)
    parcels, returned, postage = uniform_log(world, 1000).rewards.T
    assert 0.6 < np.mean(parcels == 0.0) < 0.95
    assert set(parcels) == {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}
    assert np.all((returned == 0.0) | (returned == -parcels))
    assert np.all(postage <= 0.0)
    assert list(world.discount) == [0.9, 0.99, 0.99]
    mean = true_mdp(world).reward.reshape(3, 6, 4, 4, 4)
    assert np.all(np.diff(mean[0], axis=0) < 0.0)  # the longer ago, the fewer
    assert np.all(mean[0, ..., 3] > mean[0, ..., 0])
    log = uniform_log(world, 100)
    going = log.next_states >= 0
    assert np.all(log.next_states[going & (log.rewards[:, 0] > 0.0)] // 16 == 0)


def test_headaches_are_rated_in_every_step_and_rarely_lead_to_hospital():
    world = headaches(0)
    comfort, costs, worked = uniform_log(world, 1000).rewards.T
    assert set(comfort) == {1.0, 2.0, 3.0, 4.0, 5.0}
    assert set(worked) == {0.0, 1.0}
    assert 0.0 < np.mean(costs < -15.0) < 0.03
    assert np.all(costs[costs > -15.0] > -1.0)
    mean = true_mdp(world).reward.reshape(3, 4, 3, 3, 5)
    assert np.all(np.diff(mean[0], axis=0) < 0.0)
    assert np.all(np.diff(mean[1], axis=1) < 0.0)
    assert constant(world, 4)[1] < constant(world, 0)[1]


def test_three_pages_of_the_portal_have_most_visits():
    for seed in range(3):
        log = uniform_log(portal(seed), 500)
        assert np.mean(log.states < 3) > 0.75
        assert np.bincount(log.states, minlength=93)[3:].max() < 0.02 * log.n_rows
        reports = true_mdp(portal(seed)).reward[1].reshape(93, 5)
        assert np.sum(reports < -0.04) == 30
        assert np.all(reports[:3] == pytest.approx(-0.002))


def test_a_car_is_picked_before_the_fare_is_paid():
    world = rides(0)
    log = uniform_log(world, 1000)
    picking = log.states < 15
    assert np.all(log.rewards[picking, :2] == 0.0)
    assert np.all(log.rewards[~picking, 2] == 0.0)
    assert np.array_equal(log.next_states[picking], 15 + 4 * log.states[picking] + log.actions[picking])
    assert np.all(log.next_states[~picking] < 15)
    drivers, riders, _ = log.rewards[~picking & (log.rewards[:, 0] != 0.0)].T
    assert np.corrcoef(drivers, riders)[0, 1] < -0.7
    waiting = true_mdp(world).reward[2].reshape(75, 4)
    assert np.all(waiting[:15] < 0.0)
