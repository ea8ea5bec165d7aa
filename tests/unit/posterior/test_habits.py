"""Habits: rarely played actions that are worse than the usual ones are expected to be."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.posterior.draws import mean_process
from bettersafe.posterior.habits import informed
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.priors import PriorSet, posterior
from posterior_cases import one_step_log

N_STATES = 40


def world(rng, worse):
    """Each state ends well (1) or badly (0); the usual action with 0.8, rare ones with ``worse`` less. True rewards and baseline."""
    usual = rng.integers(3, size=N_STATES)
    baseline = np.full((N_STATES, 3), 0.05)
    baseline[np.arange(N_STATES), usual] = 0.9
    true = np.where(baseline > 0.5, 0.8, 0.8 - worse) + rng.uniform(-0.1, 0.1, size=(N_STATES, 3))
    rows = []
    for x in range(N_STATES):
        for a in rng.choice(3, size=40, p=baseline[x]):
            rows.append((x, int(a), -1, float(rng.random() < true[x, a])))
    return one_step_log(rows, N_STATES, 3, ("a",)), true, baseline


def errors(worse, seeds=6):
    """Mean error of the expected reward of rarely played actions, without and with habits."""
    found = []
    for seed in range(seeds):
        data, true, baseline = world(np.random.default_rng(seed), worse)
        o = gather_outcomes(data)
        rare = baseline.reshape(-1)[o.pair_index] < 0.5
        for given in (posterior(o), informed(o, PriorSet(), baseline)):
            found.append(np.mean((mean_process(given).reward[0] - true.reshape(-1)[o.pair_index])[rare]))
    return np.reshape(found, (seeds, 2)).mean(axis=0)


def test_rare_actions_that_are_worse_are_expected_to_be():
    without, with_habits = errors(0.5)
    assert without > 0.1
    assert abs(with_habits) < 0.06


def test_rare_actions_that_are_not_worse_are_left_alone():
    without, with_habits = errors(0.0)
    assert abs(without) < 0.05
    assert abs(with_habits) < 0.05


def test_strengths_of_a_larger_log_are_used_again():
    data, _, baseline = world(np.random.default_rng(0), 0.5)
    o = gather_outcomes(data)
    whole = informed(o, PriorSet(), baseline)
    again = informed(o, PriorSet(), baseline, whole.habits)
    assert again.pair_reward == pytest.approx(whole.pair_reward)
    assert all(again.habits[key] is value for key, value in whole.habits.items())
