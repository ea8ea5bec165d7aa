"""Worlds of firms: their rules, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs import firms
from bettersafe.envs.firms import baking_line, crews, faults, insurer, pumps
from bettersafe.envs.tabular import true_mdp
from world_checks import check_outcomes, constant, uniform_log


@pytest.mark.parametrize("make", [insurer, pumps, baking_line, crews, faults])
def test_outcomes_are_probabilities_before_they_are_normalised(make, monkeypatch):
    check_outcomes(firms, make, monkeypatch)


def test_storms_depend_on_the_state_alone():
    world = insurer(0)
    premiums, storms, _ = true_mdp(world).reward.reshape(3, 7, 4, 2, 5)
    assert np.all(storms[:4] == 0.0)
    assert np.all(storms[:, :2] == 0.0)
    assert np.all(storms[4:, 2:] < 0.0)
    assert np.ptp(storms[4:, 2:]) < 1e-12  # whatever the action is
    assert np.all(premiums[1:, :, 1] > premiums[1:, :, 0])
    assert list(world.discount) == [0.95, 0.99, 0.95]
    log = uniform_log(world, 300)
    going = log.next_states >= 0
    assert np.array_equal(log.next_states[going] // 2 % 4, (log.states[going] // 2 + 1) % 4)
    assert 0 < np.sum(log.rewards[:, 1] < 0.0) < 0.02 * log.n_rows


def test_pumps_keep_a_basin_from_running_over():
    world = pumps(0)
    energy, overflows, starts = true_mdp(world).reward.reshape(3, 6, 3, 4, 2, 4)
    assert np.all(np.diff(energy, axis=-1) < 0.0)
    assert np.allclose(starts[..., 0, 1:], -1.0)
    assert np.allclose(starts[..., 1, :], 0.0)
    assert np.allclose(starts[..., 0], 0.0)
    assert np.all(overflows[:4] == 0.0)
    assert np.all(np.diff(overflows[5, ..., :3], axis=-1) >= 0.0)
    assert constant(world, 3)[1] > constant(world, 0)[1]
    log = uniform_log(world, 20)
    going = log.next_states >= 0
    assert np.array_equal(log.next_states[going] % 2, log.actions[going] > 0)


def test_what_is_good_for_one_objective_of_the_bakery_is_good_for_all():
    log = uniform_log(baking_line(0), 100)
    returns = np.add.reduceat(log.rewards, log.episode_ptr[:-1], axis=0) / np.diff(log.episode_ptr)[:, None]
    assert np.corrcoef(returns.T).min() > 0.7
    world = baking_line(0)
    reward = true_mdp(world).reward.reshape(4, 6, 4, 3, 4)
    assert np.all(np.diff(reward[..., 0], axis=3) < 0.0)  # wear
    assert np.all(reward[:, ..., 3] <= reward[:, ..., 1] + 1e-12)  # cleaning takes time


def test_what_one_crew_is_spared_another_has_to_do():
    world = crews(0)
    done, first, second, third, travel, late = true_mdp(world).reward.reshape(6, 4, 3, 3, 3, 4)
    assert np.all(done[..., 3] == 0.0)
    assert np.allclose(late, [0.0, 0.0, 0.0, -1.0])
    assert np.all(travel[..., :3] < 0.0)
    for crew, (overtime, axis) in enumerate(((first, 3), (second, 2), (third, 1))):
        assert np.all(np.delete(overtime, crew, axis=4) == 0.0)
        assert np.allclose(np.diff(overtime[..., crew], axis=axis), -1.0)
        assert np.all(np.diff(done[..., crew], axis=axis) < 0.0)
    returns = np.array([constant(world, a) for a in range(4)])
    assert np.array_equal(np.argmin(returns[:, 1:4], axis=0), [0, 1, 2])


def test_nothing_changes_the_output_and_some_faults_are_rare():
    world = faults(0)
    returns = np.array([constant(world, a) for a in range(5)])
    assert np.ptp(returns[:, 2]) < 1e-9
    assert np.all(np.ptp(returns[:, :2], axis=0) > 0.1)
    often = world.initial.reshape(18, 6).sum(axis=1)
    assert often.max() / often.min() == pytest.approx(18**1.5)
    log = uniform_log(world, 100)
    going = log.next_states >= 0
    fixed = log.rewards[:, 0] > 0.0
    assert np.all(log.next_states[going & fixed] // 3 % 2 == 0)
    assert np.array_equal(log.next_states[going & ~fixed] // 6, log.states[going & ~fixed] // 6)
