"""Worlds of works: their rules, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.envs.works import crop_rotation, greenhouse, kiln, long_building, pipeline
from bettersafe.mdp.values import expected_return


def constant(world, a):
    """Returns of always playing an action."""
    return expected_return(true_mdp(world), np.eye(world.n_actions)[np.full(world.n_states, a)])


def uniform_log(world, n):
    return sample_episodes(world, np.full((world.n_states, world.n_actions), 1.0 / world.n_actions), n, 0)


def moments(world, pair, k):
    """Mean and standard deviation of what a pair pays on an objective."""
    of_pair = slice(*world.outcome.indptr[pair : pair + 2])
    paid, p = world.outcome_reward[k, of_pair], world.outcome.data[of_pair]
    mean = p @ paid
    return mean, np.sqrt(p @ (paid - mean) ** 2)


def test_trials_cost_and_few_products_succeed():
    world = pipeline(0)
    drop, small, large, sell = (constant(world, a) for a in range(4))
    assert drop == pytest.approx(0.0)
    assert large[1] < small[1] < sell[1] == 0.0
    assert min(large[0], small[0]) > sell[0] > 0.0
    mean, spread = moments(world, (4 * 4 + 3) * 4 + 2, 0)  # the last stage, most promise, a large trial
    assert spread > 2.0 * mean > 0.0


def test_yields_have_noise_of_their_own():
    world = crop_rotation(0)
    mean, spread = np.array([moments(world, pair, 0) for pair in range(300)]).T
    assert spread.max() > 5.0 * spread.min() > 0.0
    assert abs(np.corrcoef(mean, spread)[0, 1]) < 0.6
    truth = true_mdp(world).reward[0].reshape(4, 5, 3, 5)
    for crop in range(5):
        other = (crop + 1) % 5
        assert np.all(truth[:, crop, :, crop] < truth[:, other, :, crop])  # worse after itself


def test_soil_never_changes():
    log = uniform_log(crop_rotation(1), 100)
    going = log.next_states >= 0
    assert np.array_equal(log.states[going] // 15, log.next_states[going] // 15)
    assert np.array_equal(log.next_states[going] // 3 % 5, log.actions[going])


def test_sprays_leave_residue_and_hunters_cost():
    none, spray, release, trim = (constant(greenhouse(0), a) for a in range(4))
    assert spray[1] < 0.0 == none[1] == release[1] == trim[1]
    assert release[2] < spray[2] < none[2] == 0.0
    assert spray[0] > none[0]
    assert release[0] > none[0]
    harvest = true_mdp(greenhouse(0)).reward[0].reshape(7, 4, 2, 4)
    assert np.all(np.diff(harvest, axis=0) < 0.0)
    assert np.all(harvest[:, :, 1] < harvest[:, :, 0])


def test_faults_lower_the_quality_and_only_hot_kilns_crack():
    truth = true_mdp(kiln(0))
    quality, fuel, cracks = truth.reward.reshape(3, 5, 8, 3, 3)
    assert np.all(quality[:4] == 0.0)
    assert np.all(np.diff(quality[4], axis=1)[:, :1] < 0.0)
    assert np.all(cracks[:, :4] == 0.0)
    assert np.all(cracks[:, 4:, :, 2] < 0.0)
    assert np.all(cracks[..., :2] == 0.0)
    assert np.all(np.diff(fuel, axis=1) < 0.0)
    assert np.all(uniform_log(kiln(0), 200).rewards[:, 0] <= 12.0)


def test_who_hurries_builds_fast_and_fails_at_the_end():
    world = long_building(0)
    hurries, works, checks = (constant(world, a) for a in range(3))
    assert hurries[0] > works[0] > checks[0]
    assert hurries[1] < works[1] < checks[1] < 0.0
    failed = true_mdp(world).reward[1].reshape(30, 5, 3)
    assert np.all(failed[:29] == 0.0)
    log = uniform_log(world, 200)
    assert np.diff(log.episode_ptr).min() >= 30
    assert np.all(world.discount == 0.999)


def test_flaws_delay_only_the_last_third():
    transition = true_mdp(long_building(1)).transition.toarray().reshape(30, 5, 3, 30, 5).sum(axis=4)
    for section in range(30):
        back = transition[section, :, :, :section].sum(axis=2)
        if section < 20:
            assert np.all(back == 0.0)
        else:
            assert np.all(back[0] == 0.0)
            assert np.all(np.diff(back, axis=0) > 0.0)
