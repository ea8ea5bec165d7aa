"""Worlds of services: their rules, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs.services import grants, shop_floor, tandem_queues
from bettersafe.envs.tabular import true_mdp
from bettersafe.mdp.values import expected_return


def constant(world, a):
    """Returns of always playing an action."""
    return expected_return(true_mdp(world), np.eye(world.n_actions)[np.full(world.n_states, a)])


def test_the_spare_worker_serves_and_costs():
    world = tandem_queues(0)
    alone, half = constant(world, 0), constant(world, 3)
    assert half[0] > alone[0] > 0.0
    assert half[1] > alone[1]  # fewer give up
    assert half[2] < alone[2] == 0.0
    assert np.all(world.outcome_reward[3] == 0.0)
    assert np.all(world.discount == 0.995)


def test_short_queues_keep_everybody():
    truth = true_mdp(tandem_queues(1))
    given_up = truth.reward[1].reshape(8, 8, 4)
    assert np.all(given_up[:3, :3] == 0.0)
    assert np.all(given_up[3:, :] < 0.0)


def test_a_fast_machine_does_more_jobs_for_more_energy():
    world = shop_floor(0)
    assert world.n_objectives == 8
    slow, fast = constant(world, 1), constant(world, 4)
    assert fast[0] > slow[0] > 0.0
    assert fast[1] < slow[1] == 0.0
    assert fast[3] > slow[3]  # its class waits less
    assert fast[[2, 4]] == pytest.approx(slow[[2, 4]])  # the others as before
    assert np.all(slow[5:] < 0.0)


def test_each_group_has_an_objective():
    world = grants(0)
    assert (world.n_objectives, world.n_states, world.n_actions) == (30, 20, 5)
    reward = true_mdp(world).reward
    concerned = reward[1:].reshape(29, 20, 5).max(axis=2) > 0.0
    assert 0.3 < concerned.mean() < 0.7
    where = np.repeat(concerned, 5, axis=1)
    assert np.corrcoef(np.broadcast_to(reward[0], where.shape)[where], reward[1:][where])[0, 1] > 0.8
