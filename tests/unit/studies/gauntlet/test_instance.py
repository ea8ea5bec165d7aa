"""Worlds with their practice: logs, true gains, and what is best and safe."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.errors import ParameterError
from bettersafe.mdp.values import expected_return
from bettersafe.studies.gauntlet.instance import (
    Instance,
    best_safe,
    best_safe_gain,
    lifted,
    mixture_policy,
    sample_log,
    true_gain,
)

UNIFORM = np.full((6, 3), 1.0 / 3.0)


@pytest.fixture
def world():
    return garnet(3, n_states=6, n_actions=3, end=0.2)


def test_gains_are_those_of_the_true_world(world):
    instance = Instance(world=world, baseline=UNIFORM, preference=np.array([1.0, 0.0]))
    assert true_gain(instance, UNIFORM) == pytest.approx(0.0, abs=1e-12)
    greedy = np.eye(3)[[0, 1, 2, 0, 1, 2]]
    expected = expected_return(instance.truth, greedy) - expected_return(instance.truth, UNIFORM)
    assert true_gain(instance, greedy) == pytest.approx(expected)


def test_the_best_safe_gain_beats_every_safe_policy(world):
    instance = Instance(world=world, baseline=UNIFORM, preference=np.array([1.0, 0.0]))
    most = best_safe_gain(instance)
    reached = true_gain(instance, best_safe(instance).policy)
    assert reached[0] == pytest.approx(most, abs=1e-6)
    assert reached[1] >= -1e-6
    actions = np.array(np.meshgrid(*[range(3)] * 6)).reshape(6, -1).T
    gains = np.array([true_gain(instance, np.eye(3)[choice]) for choice in actions])  # all 729 deterministic policies
    safe = gains[np.all(gains >= 0.0, axis=1), 0]
    assert 0.0 < safe.max() <= most + 1e-9
    assert gains[:, 0].max() > most  # the protected objective does limit it


def test_nothing_is_said_of_the_best_where_the_program_does_not_apply(world):
    other = replace(
        world, objectives=tuple(replace(o, discount=g) for o, g in zip(world.objectives, (0.9, 0.5), strict=True))
    )
    instance = Instance(world=other, baseline=UNIFORM, preference=np.array([1.0, 0.0]))
    assert best_safe_gain(instance) is None
    pooled = Instance(world=world, baseline=UNIFORM[:2], preference=np.ones(2), aggregate=np.array([0, 0, 0, 1, 1, 1]))
    assert best_safe(pooled) is None


def test_aggregated_states_are_logged_by_group_and_policies_lifted(world):
    groups = np.array([0, 1, 0, 1, 2, 2])
    baseline = np.random.default_rng(0).dirichlet(np.ones(3), size=3)
    instance = Instance(world=world, baseline=baseline, preference=np.ones(2), aggregate=groups)
    log = sample_log(instance, 200, np.random.default_rng(1))
    assert log.n_states == 3
    assert np.array_equal(log.baseline_prob, baseline[log.states, log.actions])
    true = sample_log(replace(instance, aggregate=None, baseline=baseline[groups]), 200, np.random.default_rng(1))
    assert np.array_equal(groups[true.states], log.states)
    assert np.array_equal(lifted(instance, baseline), baseline[groups])
    assert true_gain(instance, baseline) == pytest.approx(0.0, abs=1e-12)


def test_the_baseline_of_a_mixture_has_its_returns(world):
    rng = np.random.default_rng(2)
    doctors = tuple(mixed_policy(rng, np.eye(3)[np.full(6, a)], 0.7) for a in range(3))
    baseline = mixture_policy(world, doctors)
    instance = Instance(world=world, baseline=baseline, preference=np.ones(2), baseline_known=False, behaviours=doctors)
    mean = np.mean([expected_return(instance.truth, policy) for policy in doctors], axis=0)
    assert instance.before == pytest.approx(mean)
    assert true_gain(instance, baseline) == pytest.approx(0.0, abs=1e-9)
    log = sample_log(instance, 300, np.random.default_rng(0))
    assert log.n_episodes == 300
    assert log.baseline_prob is None
    # an episode is made by one of them: of two of its steps, the actions agree more often than if drawn on their own
    first, second = (log.actions[log.episode_ptr[:-1][np.diff(log.episode_ptr) > 1] + t] for t in (0, 1))
    assert np.mean(first == second) > 0.45


def test_a_horizon_cuts_episodes_off(world):
    instance = Instance(world=world, baseline=UNIFORM, preference=np.ones(2), horizon=2)
    log = sample_log(instance, 50, np.random.default_rng(0))
    assert np.diff(log.episode_ptr).max() == 2
    assert log.n_truncated > 0


def test_wrong_groups_are_refused(world):
    with pytest.raises(ParameterError, match="each of 6 states a group"):
        Instance(world=world, baseline=UNIFORM, preference=np.ones(2), aggregate=np.array([0, 0, 0, 2, 2, 2]))
