"""How often is a log without drift blamed, and how often is drift found?

Over R logs a right program exceeds the allowed number of blamed logs with probability below 1e-6. In 220 logs none was blamed; drift of
demand by a quarter was found in 20 of 20 logs of 100 episodes, another baseline too.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats

from bettersafe.evaluation import association, drift
from bettersafe.evaluation.drift import check_drift
from bettersafe.evaluation.state_evidence import FAMILY_LEVEL
from state_worlds import ENOUGH, inventory_log


def allowed(logs):
    return int(stats.binom.ppf(1.0 - 1e-6, logs, FAMILY_LEVEL))


def blamed(logs):
    found = tested = 0
    for kind, make in ENOUGH.items():
        for i in range(logs):
            result = check_drift(make(np.random.default_rng([i, 7, len(kind)]))[0])
            if result is not None:
                found += min(result.p_outcomes, result.p_decisions) < FAMILY_LEVEL
                tested += 1
    return found, tested


def test_a_log_without_drift_is_rarely_blamed():
    found, tested = blamed(5)
    assert tested >= 40
    assert found <= allowed(tested)


@pytest.mark.long
def test_a_log_without_drift_is_rarely_blamed_among_many():
    found, tested = blamed(100)
    assert found <= allowed(tested)


def joined(first, last):
    fields = {
        name: np.concatenate([getattr(first, name), getattr(last, name)])
        for name in ("states", "actions", "rewards", "next_states", "terminated")
    }
    ptr = np.concatenate([first.episode_ptr, first.n_rows + last.episode_ptr[1:]])
    return dataclasses.replace(first, **fields, episode_ptr=ptr, episode_labels=np.arange(ptr.size - 1))


def halves(i, *, demand=4.0, same_policy=True):
    first, _ = inventory_log(np.random.default_rng([i, 1]), 50, behaviour=np.random.default_rng([i, 3]))
    other = np.random.default_rng([i, 3 if same_policy else 4])
    last, _ = inventory_log(np.random.default_rng([i, 2]), 50, demand=demand, behaviour=other)
    return check_drift(joined(first, last))


def test_drift_of_outcomes_and_of_decisions_is_found_and_told_apart():
    outcomes = [halves(i, demand=5.0) for i in range(10)]
    decisions = [halves(i, same_policy=False) for i in range(10)]
    neither = [halves(i) for i in range(10)]
    assert sum(found.outcomes_changed for found in outcomes) >= 8
    assert sum(found.decisions_changed for found in decisions) >= 8
    assert not any(found.decisions_changed for found in outcomes)
    assert not any(found.outcomes_changed for found in decisions)
    assert not any(found.sentences for found in neither)


def test_people_who_differ_are_not_drift():
    """Every episode has its own habits, in no order."""
    rng = np.random.default_rng(5)
    log, _ = inventory_log(rng, 60, horizon=100)
    habits = rng.dirichlet(np.full(log.n_actions, 0.3), size=log.n_episodes)
    actions = [rng.choice(log.n_actions, size=n, p=p) for n, p in zip(np.diff(log.episode_ptr), habits, strict=True)]
    assert not check_drift(dataclasses.replace(log, actions=np.concatenate(actions))).decisions_changed


def test_an_error_that_is_too_small_is_caught(monkeypatch):
    """Planted fault: errors of a third of the right ones."""
    right = association.associate

    def wrong(terms, episode, *, least=0.0):
        found = right(terms, episode, least=least)
        return dataclasses.replace(found, error=found.error / 3.0)

    monkeypatch.setattr(association, "associate", wrong)
    monkeypatch.setattr(drift, "associate", wrong)
    found, tested = blamed(5)
    assert found > allowed(tested)
