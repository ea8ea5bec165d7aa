"""Practices made from what is true of a world."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import true_mdp
from bettersafe.mdp.values import expected_return, policy_values
from bettersafe.studies.gauntlet.practices import best, graded, nearly_deterministic, of_quality, plain, runner_up, wary

WEIGHTS = (1.0, 0.5)


@pytest.fixture
def world():
    return garnet(1, n_states=8, n_actions=3)


def test_better_practices_are_worth_more(world):
    truth = true_mdp(world)
    worth = [
        np.array(WEIGHTS) @ expected_return(truth, policy)
        for policy in (
            of_quality(np.random.default_rng(0), world, WEIGHTS, 0.0),
            of_quality(np.random.default_rng(0), world, WEIGHTS, 0.8),
            nearly_deterministic(np.random.default_rng(0), best(world, WEIGHTS), 0.05),
            best(world, WEIGHTS),
        )
    ]
    assert worth == sorted(worth)


def test_the_runner_up_is_second_in_every_state(world):
    policy = runner_up(np.random.default_rng(0), world, WEIGHTS, 1.0)
    _, q = policy_values(true_mdp(world), best(world, WEIGHTS))
    order = np.argsort((np.array(WEIGHTS) @ q).reshape(8, 3), axis=1)
    assert np.array_equal(np.argmax(policy, axis=1), order[:, 1])


def test_who_is_wary_avoids_harm():
    policy = wary(np.array([[0.5, 0.5], [0.2, 0.8]]), np.array([[True, False], [False, False]]), 0.25)
    assert policy == pytest.approx(np.array([[0.2, 0.8], [0.2, 0.8]]))


def test_graded_practices_make_small_losses_more_often(world):
    _, q = policy_values(true_mdp(world), best(world, WEIGHTS))
    value = (np.array(WEIGHTS) @ q).reshape(8, 3)
    policy = graded(world, WEIGHTS, 0.3)
    assert policy.sum(axis=1) == pytest.approx(1.0)
    assert np.array_equal(np.argsort(policy, axis=1), np.argsort(value, axis=1))
    truth = true_mdp(world)
    worth = [np.array(WEIGHTS) @ expected_return(truth, graded(world, WEIGHTS, spread)) for spread in (2.0, 0.3, 0.05)]
    assert worth == sorted(worth)


def test_a_plain_instance_draws_the_world_and_then_its_practice():
    made = plain(garnet, WEIGHTS, 0.4, horizon=9)(np.random.default_rng(3))
    rng = np.random.default_rng(3)
    world = garnet(rng)
    assert np.array_equal(made.baseline, of_quality(rng, world, WEIGHTS, 0.4))
    assert made.preference.tolist() == [1.0, 0.0]
    assert made.horizon == 9
    assert plain(garnet, WEIGHTS, 0.4, preference=(0.0, 1.0))(rng).preference.tolist() == [0.0, 1.0]
