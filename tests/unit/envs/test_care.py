"""Worlds of care: their rules, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs import care
from bettersafe.envs.care import epidemic, late_toxicity, transfers, tutor
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.mdp.values import expected_return


def constant(world, a):
    """Returns of always playing an action."""
    return expected_return(true_mdp(world), np.eye(world.n_actions)[np.full(world.n_states, a)])


def test_a_dose_is_felt_a_step_later():
    world = late_toxicity(0, discount=(0.95, 0.95, 0.95))
    none, low, high = (constant(world, a) for a in range(3))
    assert none[0] < low[0] < high[0]
    assert none[1] > low[1] > high[1]
    assert none[2] > low[2] > high[2]
    table = world.outcome.toarray()[:, :72].reshape(6, 4, 3, 3, 6, 4, 3)
    rises = table[3, 1, :, :, :, 2].sum(axis=(2, 3))  # by the dose before and the dose now
    assert rises == pytest.approx(np.repeat(rises[:, :1], 3, axis=1))
    assert rises[0, 0] == 0.0 < rises[1, 0] < rises[2, 0]


def test_toxicity_has_discounts_of_its_own():
    assert late_toxicity(0).discount == pytest.approx([0.9, 0.97, 0.99])


def test_a_discharge_is_cheap_and_deadly_if_it_comes_too_early():
    for seed in range(4):
        world = transfers(seed)
        truth = true_mdp(world)
        assert constant(world, 3)[0] == 0.0
        severity, place = np.divmod(np.arange(63) // 3, 3)
        patient = np.where(severity == 0, 3, np.where((severity >= 4) & (place < 2), 1, 0))
        kept = expected_return(truth, np.eye(4)[patient])
        assert np.all(constant(world, 3)[1:] < kept[1:])
        assert kept[0] < -1.0


def test_nobody_moves_up_without_a_bed():
    table = transfers(0).outcome.toarray()[:, :63].reshape(7, 3, 3, 4, 7, 3, 3)
    up = table[3, 0, :, 1].sum(axis=(1, 3))  # by beds; to places
    assert up[2, 1] == 0.0 < up[2, 0]
    assert up[0, 0] == 0.0 < up[0, 1]


def test_strict_measures_stop_the_epidemic_and_cost():
    world = epidemic(0)
    health, economy = np.array([constant(world, a) for a in range(4)]).T
    assert np.all(np.diff(health) > 0.0)
    assert economy[0] == 0.0
    log = sample_episodes(world, np.full((66, 4), 0.25), 300, 0)
    states = [(s, i) for i in range(1, 12) for s in range(12 - i)]
    susceptible = np.array([s for s, _ in states])
    inner = ~log.terminated
    assert np.all(susceptible[log.next_states[inner]] <= susceptible[log.states[inner]])


def test_students_do_not_change_their_kind():
    world = tutor(0)
    table = world.outcome.toarray()[:, :72].reshape(3, 24, 4, 3, 24)
    for kind in range(3):
        assert np.all(np.delete(table[kind], kind, axis=2) == 0.0)
    assert constant(world, 0)[0] == 0.0
    assert constant(world, 3)[1] < constant(world, 0)[1]


def test_binomial_probabilities():
    assert care._binomial(2, 0.25) == pytest.approx([0.5625, 0.375, 0.0625])
    assert care._binomial(0, 0.3) == pytest.approx([1.0])
