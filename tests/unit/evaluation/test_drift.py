"""What is said about drift."""

from __future__ import annotations

import dataclasses

import numpy as np

from bettersafe.evaluation.drift import Drift, check_drift
from state_worlds import garnet_log, inventory_log

NONE = Drift(p_outcomes=0.5, p_decisions=0.5, outcomes=(("gain", 3.0), ("harm", 0.1)), scale=(10.0, 1.0), decisions=0.3)


def test_few_episodes_are_not_compared():
    assert check_drift(garnet_log(np.random.default_rng(0), 19)[0]) is None


def test_no_drift_no_sentence():
    assert NONE.sentences == ()
    assert check_drift(garnet_log(np.random.default_rng(0), 60)[0]).sentences == ()


def test_sentences_name_the_largest_change_first():
    drift = dataclasses.replace(NONE, p_outcomes=1e-4, p_decisions=1e-12)
    outcomes, decisions = drift.sentences
    assert "gain by about 3; harm by about 0.1 (p = 0.0001)" in outcomes
    assert "differs by about 0.3 (p < 1e-6)" in decisions


def test_little_is_not_drift():
    small = dataclasses.replace(
        NONE, p_outcomes=0.0, p_decisions=0.0, outcomes=(("gain", 0.09), ("harm", 0.005)), decisions=0.01
    )
    assert small.sentences == ()


def test_the_change_of_probabilities_is_measured():
    """From 3 : 1 to 1 : 3 of two actions in every state: a change of one half."""
    rng = np.random.default_rng(1)
    log, _ = inventory_log(rng, 200)
    last = np.repeat(np.arange(200) >= 100, np.diff(log.episode_ptr))
    actions = (rng.random(log.n_rows) < np.where(last, 0.75, 0.25)).astype(np.int64)
    found = check_drift(dataclasses.replace(log, actions=actions))
    assert found.decisions_changed
    assert abs(found.decisions - 0.5) < 0.05


def test_episodes_are_ordered_as_people_count():
    """Labels that sort as text (visit 10 before visit 2) mix the halves; the change is seen all the same."""
    rng = np.random.default_rng(2)
    log, _ = inventory_log(rng, 200)
    names = np.sort(np.array([f"visit {i}" for i in range(200)]))
    late = np.array([int(name.split()[1]) >= 100 for name in names])
    last = np.repeat(late, np.diff(log.episode_ptr))
    actions = (rng.random(log.n_rows) < np.where(last, 0.75, 0.25)).astype(np.int64)
    found = check_drift(dataclasses.replace(log, actions=actions, episode_labels=names))
    assert abs(found.decisions - 0.5) < 0.05
