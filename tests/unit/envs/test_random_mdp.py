"""Random worlds and baselines of a given quality."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs.random_mdp import garnet, mixed_policy


def test_pairs_lead_to_so_many_states_or_end():
    world = garnet(7, n_states=9, n_actions=3, branching=4, n_objectives=3, end=0.2)
    table = world.outcome.toarray()
    assert table.shape == (27, 10)
    assert np.all((table[:, :9] > 0.0).sum(axis=1) == 4)
    assert table[:, 9] == pytest.approx(0.2)
    assert table.sum(axis=1) == pytest.approx(1.0)
    rewards = world.outcome_reward.reshape(3, 27, 5)
    assert np.ptp(rewards, axis=2).max() == 0.0  # the same for all outcomes of a pair
    assert 0.0 <= rewards.min() < rewards.max() <= 1.0


def test_every_pair_may_have_an_end_of_its_own():
    ends = np.linspace(0.0, 1.0, 6)
    assert garnet(0, n_states=3, n_actions=2, branching=2, end=ends).outcome.toarray()[:, 3] == pytest.approx(ends)


def test_the_seed_decides():
    one, same, other = garnet(1), garnet(np.random.default_rng(1)), garnet(2)
    assert np.array_equal(one.outcome_reward, same.outcome_reward)
    assert not np.array_equal(one.outcome_reward, other.outcome_reward)


def test_a_mixed_policy_has_its_share_of_the_best():
    best = np.eye(4)[[0, 3, 1]]
    assert np.array_equal(mixed_policy(0, best, 1.0), best)
    mixed = mixed_policy(0, best, 0.75)
    assert mixed.sum(axis=1) == pytest.approx(1.0)
    assert np.all(mixed[best == 1.0] >= 0.75)
    assert np.all(mixed > 0.0)
