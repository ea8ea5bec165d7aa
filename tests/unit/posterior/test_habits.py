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
    assert -0.08 < with_habits < 0.02  # a little low: what is limited is limited on one side


def test_strengths_of_a_larger_log_are_used_again():
    data, _, baseline = world(np.random.default_rng(0), 0.5)
    o = gather_outcomes(data)
    whole = informed(o, PriorSet(), baseline)
    again = informed(o, PriorSet(), baseline, whole.habits)
    assert again.pair_reward == pytest.approx(whole.pair_reward)
    assert all(again.habits[key] is value for key, value in whole.habits.items())


def test_no_pair_is_far_better_than_its_own_visits():
    """A pair whose own visits say 0 is not believed to pay what its state and action pay elsewhere."""
    rng = np.random.default_rng(3)
    rows = []
    for x in range(30):
        for a in range(3):
            true = 0.0 if (x, a) == (0, 0) else 5.0
            rows += [(x, a, -1, true + rng.normal(0.0, 2.0)) for _ in range(12)]
    baseline = np.full((30, 3), 1.0 / 3.0)
    o = gather_outcomes(one_step_log(rows, 30, 3, ("a",)))
    own = o.moments[0].mean[0]  # rare events apart
    given = informed(o, PriorSet(), baseline)
    mean = mean_process(given).reward[0] - o.rare_reward[0]
    assert posterior(o).pair_reward[0][0] - own[0] > 1.0  # shrinkage alone believes the others
    assert np.all(mean - own <= 2.6 / np.sqrt(12.0))


def test_a_pair_that_always_ends_gets_no_correction_of_next_states():
    rng = np.random.default_rng(0)
    rows = []
    for x in range(20):
        for _ in range(60):
            a = int(rng.choice(3, p=[0.7, 0.2, 0.1]))
            rows.append((x, a, -1 if a == 0 else (x + 1) % 20, 20.0 if a == 0 else -float(a)))
    baseline = np.tile([0.7, 0.2, 0.1], (20, 1))
    o = gather_outcomes(one_step_log(rows, 20, 3, ("fare",)))
    mean = mean_process(informed(o, PriorSet(), baseline)).reward[0]
    assert mean[o.pair_action == 0] == pytest.approx(20.0, abs=0.5)


def test_untried_pairs_are_as_uncertain_as_pairs_differ():
    """Untried actions may lead where no other action of the state goes: their value varies at least as much as pairs do."""
    rng = np.random.default_rng(1)
    rows = []
    values = rng.normal(0.0, 10.0, size=40)
    for x in range(40):
        for a in rng.choice(4, size=25):
            if (x, a) != (0, 3):
                rows.append((x, int(a), (7 * x + 11 * int(a)) % 40, float(values[x])))
    baseline = np.full((40, 4), 0.25)
    o = gather_outcomes(one_step_log(rows, 40, 4, ("a",)))
    given = informed(o, PriorSet(), baseline)
    untried = (o.pair_state == 0) & (o.pair_action == 3)
    assert o.visits[untried][0] == 0.0
    assert given.outcomes.pair_noise[0][untried][0] > 2.0
