"""Worlds of land: their rules, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs import land
from bettersafe.envs.land import fields, fruit_tree, lake, wells
from bettersafe.envs.tabular import true_mdp
from world_checks import check_outcomes, constant, uniform_log


@pytest.mark.parametrize("make", [wells, fields, lake, fruit_tree])
def test_outcomes_are_probabilities_before_they_are_normalised(make, monkeypatch):
    check_outcomes(land, make, monkeypatch)


def test_wells_rarely_strike_and_rarely_blow_out():
    world = wells(0)
    log = uniform_log(world, 3000)
    oil = log.rewards[:, 0]
    assert np.all(log.terminated[oil != 0.0])
    assert np.unique(oil).size == 3
    assert 0.02 < np.sum(oil > 0.0) / 3000 < 0.5
    assert 0.005 < np.sum(oil < 0.0) / 3000 < 0.2
    mean = true_mdp(world).reward[0].reshape(6, 4, 3, 5)
    assert np.all(mean[..., [0, 3, 4]] < 0.0)  # who does not drill strikes nothing
    assert np.all(np.diff(mean, axis=1) < 0.0)  # pressure
    going = log.next_states >= 0
    deeper = log.next_states[going] // 12 - log.states[going] // 12
    assert set(deeper) == {0, 1}
    same = log.next_states[going][deeper == 0] % 3 == log.states[going][deeper == 0] % 3
    assert np.all(same)


def test_nitrate_depends_on_what_was_given_two_steps_ago_alone():
    world = fields(0)
    harvest, nitrate, spent = true_mdp(world).reward.reshape(3, 4, 4, 3, 3, 3)
    assert np.ptp(nitrate, axis=(0, 2, 4)) == pytest.approx(0.0, abs=1e-12)
    assert np.all(nitrate[..., 0, :] == 0.0)
    assert np.all(np.diff(nitrate, axis=3) < 0.0)
    assert np.all(np.diff(harvest, axis=0) > 0.0)
    assert np.all(np.diff(spent, axis=4) < 0.0)
    log = uniform_log(world, 50)
    going = np.flatnonzero(log.next_states >= 0)
    assert np.array_equal(log.next_states[going] // 3 % 3, log.actions[going])
    assert np.array_equal(log.next_states[going] % 3, log.states[going] // 3 % 3)
    assert np.array_equal(log.next_states[going] // 9 % 4, (log.states[going] // 9 + 1) % 4)
    assert constant(world, 2)[1] < constant(world, 0)[1]


def test_no_way_leads_back_from_a_turbid_lake():
    world = lake(0)
    log = uniform_log(world, 100)
    going = log.next_states >= 0
    assert np.all(log.next_states[going] % 2 >= log.states[going] % 2)
    assert np.array_equal(log.rewards[:, 1], -(log.states % 2.0))
    turned = np.mean(log.next_states[going & (log.states % 2 == 0)] % 2)
    assert 0.0 < turned < 0.03
    assert np.mean(log.next_states[going] == log.states[going]) > 0.4
    crops, _, fish = true_mdp(world).reward.reshape(3, 8, 3, 2, 4)
    assert np.all(np.diff(crops, axis=3) > 0.0)
    assert np.all(fish[:, :, 1] < fish[:, :, 0])
    assert constant(world, 3)[0] > constant(world, 0)[0]
    assert constant(world, 3)[1] < constant(world, 0)[1]


def test_fruits_are_picked_after_exactly_six_steps():
    world = fruit_tree(0)
    log = uniform_log(world, 500)
    assert np.all(np.diff(log.episode_ptr) == 6)
    assert np.all(log.rewards[~log.terminated] == 0.0)
    assert np.linalg.norm(log.rewards[log.terminated], axis=1) == pytest.approx(10.0)
    assert np.all(log.rewards >= 0.0)
    going = log.next_states >= 0
    as_chosen = log.next_states[going] == 2 * log.states[going] + 1 + log.actions[going]
    assert np.mean(as_chosen) == pytest.approx(0.9, abs=0.03)
