"""Worlds of the country: their rules, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs import country
from bettersafe.envs.country import SHOALS, apiary, brewery, pasture, sea_lanes, water_mill
from bettersafe.envs.tabular import true_mdp
from world_checks import check_outcomes, constant, uniform_log


@pytest.mark.parametrize("make", [sea_lanes, apiary, brewery, water_mill, pasture])
def test_outcomes_are_probabilities_before_they_are_normalised(make, monkeypatch):
    check_outcomes(country, make, monkeypatch)


def test_ships_are_lost_on_the_shoals_alone():
    losses = true_mdp(sea_lanes(0)).reward[1].reshape(6, 9, 2, 4)
    shoals = np.zeros((6, 9), dtype=bool)
    shoals[SHOALS] = True
    assert np.all(losses[~shoals] == 0.0)
    assert np.all(losses[shoals][:, 1] == pytest.approx(2.0 * losses[shoals][:, 0]))
    assert np.ptp(losses[shoals][:, 0]) < 1e-12  # whatever the action is
    log = uniform_log(sea_lanes(0), 1000)
    lost = log.rewards[:, 1] < 0.0
    assert 0 < lost.sum() < 60
    assert np.all(log.terminated[lost])
    assert np.all(log.rewards[lost, 1] <= -20.0)


def test_months_of_an_apiary_follow_each_other():
    world = apiary(0)
    log = uniform_log(world, 20)
    going = log.next_states >= 0
    assert np.array_equal(log.next_states[going] // 10, (log.states[going] // 10 + 1) % 12)
    assert 100 < log.n_rows / 20 < 350
    honey, deaths, _ = true_mdp(world).reward.reshape(3, 12, 5, 2, 4)
    assert np.all(honey[..., :3] == 0.0)
    assert np.all(honey[6, 1:, :, 3] > 0.0)
    assert np.all(honey[0, :, :, 3] == 0.0)
    assert np.all(deaths[:, :, 1] < deaths[:, :, 0])
    leave, feed, treat, _ = (constant(world, a) for a in range(4))
    assert treat[1] > leave[1]
    assert feed[1] > leave[1]
    assert leave[2] == 0.0


def test_neighbouring_temperatures_do_nearly_the_same():
    truth = true_mdp(brewery(0))
    reward = truth.reward.reshape(3, 32, 18)
    width = np.ptp(reward, axis=2)
    assert np.all(np.abs(np.diff(reward, axis=2)).max(axis=2) <= 0.25 * width + 1e-9)
    moves = truth.transition.toarray().reshape(32, 18, 32)
    assert np.abs(np.diff(moves, axis=1)).sum(axis=2).max() < 0.25
    assert np.all(reward[2, :, 0] == 0.0)
    assert np.all(np.diff(reward[2], axis=1) < 0.0)  # the hotter, the more is spoiled
    assert np.all(np.diff(uniform_log(brewery(0), 100).episode_ptr) >= 1)


def test_a_mill_needs_water_and_grain():
    world = water_mill(0)
    flour, floods, wear = true_mdp(world).reward.reshape(3, 7, 4, 4, 4)
    assert np.allclose(flour[0], 0.0)
    assert np.allclose(flour[:, 0], 0.0)
    assert np.allclose(flour[..., [0, 3]], 0.0)
    assert np.all(flour[2:, 1:, :, 2] > flour[2:, 1:, :, 1])
    assert np.all(floods[:5] == 0.0)
    assert np.all(floods[6, ..., 0] < floods[6, ..., 1])
    assert np.all(floods[6, ..., 3] == 0.0)
    assert np.all(wear < 0.0)
    log = uniform_log(world, 100)
    going = log.next_states >= 0
    assert set((log.next_states[going] - log.states[going]) % 4) == {0, 1}


def test_actions_matter_little_on_a_pasture():
    world = pasture(0)
    moves = true_mdp(world).transition.toarray().reshape(45, 4, 45)
    apart = np.abs(moves[:, :1] - moves).sum(axis=2)
    assert 0.0 < apart.max() < 2.0 * (1.0 - 0.9**2)
    log = uniform_log(world, 300)
    milk = true_mdp(world).reward[0].reshape(45, 4)
    assert log.rewards[:, 0].std() > 4.0 * milk.std(axis=1).mean()
    erosion = true_mdp(world).reward[2].reshape(5, 9, 4)
    assert np.all(np.diff(erosion, axis=0) > 0.0)
