"""Worlds of operations: their rules, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs import operations
from bettersafe.envs.operations import (
    admission_queue,
    battery,
    clinic,
    cold_store,
    field,
    inventory,
    machine,
    patrol,
    two_lines,
    warehouse,
    web_shop,
)
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.mdp.values import expected_return


def constant(world, a):
    """Returns of always playing an action."""
    return expected_return(true_mdp(world), np.eye(world.n_actions)[np.full(world.n_states, a)])


def test_poisson_probabilities():
    p = operations._poisson(2.0, 40)
    assert p[:3] == pytest.approx(np.exp(-2.0) * np.array([1.0, 2.0, 2.0]))
    assert p.sum() == pytest.approx(1.0)


def test_a_full_stock_loses_no_demand():
    world = inventory(0)
    assert (world.n_states, world.n_actions) == (20, 20)
    assert constant(world, 19)[1] > constant(world, 5)[1]
    assert constant(world, 0)[0] < constant(world, 12)[0]


def test_the_warehouse_is_noisy_and_wastes_what_is_too_much():
    world = warehouse(0)
    assert constant(world, 4)[1] < constant(world, 1)[1] <= 0.0
    log = sample_episodes(world, np.full((30, 5), 0.2), 300, 0)
    pair = log.states * 5 + log.actions
    assert all(np.unique(log.rewards[pair == p, 0]).size >= 5 for p in np.flatnonzero(np.bincount(pair) > 60))


def test_the_queue_earns_by_admitting_and_waits_for_it():
    world = admission_queue(0)
    refuse, admit, fast = (constant(world, a) for a in (0, 1, 3))
    assert admit[0] > refuse[0]
    assert admit[1] < refuse[1]
    assert fast[1] > admit[1]
    assert fast[2] < admit[2] == 0.0


def test_a_machine_that_is_only_run_breaks_down():
    world = machine(0)
    run, service = constant(world, 0), constant(world, 1)
    assert run[1] < service[1]
    assert constant(world, 2)[1] == 0.0


def test_the_battery_never_ends():
    world = battery(0)
    assert np.all(world.outcome.toarray()[:, world.n_states] == 0.0)
    assert constant(world, 1) == pytest.approx(0.0)
    assert constant(world, 0)[0] > 0.0  # sells what there is


def test_a_complaint_is_rare():
    rates = []
    for seed in range(20):
        log = sample_episodes(web_shop(seed), np.full((18, 6), 1.0 / 6.0), 2000, seed)
        rates.append(-log.rewards[:, 1].mean())
    assert 0.003 < np.mean(rates) < 0.007


def test_patients_recover_or_die():
    world = clinic(0)
    low, high = constant(world, 0), constant(world, 3)
    assert 0.0 < low[0] < 1.0
    assert 0.0 < high[0] < 1.0


def test_water_makes_a_harvest_and_costs():
    world = field(0)
    dry, damp, wet = (constant(world, a) for a in range(3))
    assert dry[1] == 0.0
    assert wet[1] < damp[1] < -5.0
    best = expected_return(true_mdp(world), optimal_policy(true_mdp(world), [1.0, 0.0]))
    assert best[0] > max(dry[0], damp[0], wet[0])
    assert best[1] < 0.0


def test_cooling_costs_energy_and_keeps_quality():
    world = cold_store(0)
    off, low = constant(world, 0), constant(world, 1)
    assert off[0] == 0.0
    assert low[0] < 0.0
    assert low[1] > off[1]


def test_lines_grow_and_are_served():
    world = two_lines(0)
    first, second, none = (constant(world, a) for a in range(3))
    assert none == pytest.approx(0.0)
    assert second[1] < first[1] < 0.0  # the second counter is slower
    assert min(first[0], second[0]) > 0.0


def test_every_area_is_an_objective():
    world = patrol(0)
    assert world.n_objectives == 17
    work = constant(world, 4)
    assert np.all(work[1:] > 0.0)
    assert constant(world, 0)[1:] == pytest.approx(0.0)
