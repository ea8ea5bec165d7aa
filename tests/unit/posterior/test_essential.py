"""Declared states and actions without data change nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bettersafe.logs.counts import count
from bettersafe.logs.dataset import in_vocabulary
from bettersafe.methods.b_opt import b_opt
from bettersafe.methods.recipes import CandidateGrid
from bettersafe.model import estimate_model
from bettersafe.posterior.essential import essential
from bettersafe.posterior.events import DeclaredEvent
from bettersafe.posterior.judge import Question, judge
from bettersafe.posterior.outcomes import gather_outcomes, outcomes_of, thin_outcomes
from posterior_cases import noisy_log, same_candidate, sampled_world


def declared(data, baseline, *, states=True, actions=True):
    """The log with more states and actions between its own, its baseline, and where its own are."""
    data = replace(data, state_labels=10 * data.state_labels, action_labels=10 * data.action_labels)
    every = np.union1d(data.state_labels, 10 * np.arange(0, data.n_states, 2) + 5 if states else [])
    played = np.union1d(data.action_labels, [-3, 4] if actions else [])
    places = np.searchsorted(every, data.state_labels), np.searchsorted(played, data.action_labels)
    table = np.full((every.size, played.size), 1.0 / played.size)
    table[places[0]] = 0.0
    table[np.ix_(*places)] = baseline
    return in_vocabulary(data, every.astype(np.int64), played.astype(np.int64)), table, np.ix_(*places)


GRID = CandidateGrid(cautions=(0.0,), margins=(1.0,), local_cautions=(0.0,), epsilons=(0.1, 1.0))


@pytest.mark.parametrize(
    ("kind", "states", "actions"),
    [
        ("noisy", True, False),
        ("noisy", False, True),
        ("counts", True, True),
        ("tied", True, True),
        ("event", True, True),
    ],
)
def test_b_opt_gives_the_same_policy_to_the_bit(kind, states, actions):
    if kind == "tied":
        _, baseline, _, data = sampled_world(3, episodes=60)
    else:
        data, baseline = noisy_log(3, episodes=60)

    def found(log, table):
        first = log.objectives[0]
        harm = DeclaredEvent(
            name="harm", cost={first.name: 9.0 if first.lower_is_better else -9.0}, rate=0.01, ends=True
        )
        events = (harm,) if kind == "event" else ()
        outcomes = outcomes_of(count(log)) if kind == "counts" else gather_outcomes(log, events=events)
        model = estimate_model(log, baseline=table)
        question = Question(delta=0.3, draws=60, seed=2)
        return outcomes, model, b_opt(outcomes, model, table, preference=[1.0, 0.0], question=question, grid=GRID)

    own_outcomes, own_model, one = found(data, baseline)
    larger, table, places = declared(data, baseline, states=states, actions=actions)
    outcomes, model, other = found(larger, table)
    assert one.candidates
    assert np.array_equal(one.improvement.policy, other.improvement.policy[places])
    for mine, theirs in zip(one.candidates, other.candidates, strict=True):
        assert same_candidate(replace(mine, policy=table), replace(theirs, policy=table))
        assert np.array_equal(mine.policy, theirs.policy[places])
        outside = np.ones(table.shape, dtype=bool)
        outside[places] = False
        assert np.array_equal(theirs.policy[outside], table[outside])
    # the same from `judge`, which other commands use
    answers = [
        judge([policy], given, base, Question(draws=60), model=of).candidates[0]
        for policy, given, base, of in (
            (one.candidates[0].policy, own_outcomes, baseline, own_model),
            (other.candidates[0].policy, outcomes, table, model),
        )
    ]
    assert same_candidate(*(replace(answer, policy=table) for answer in answers))


def test_halves_do_not_depend_on_declared_actions():
    data, baseline = noisy_log(3, episodes=60)
    larger, _, _ = declared(data, baseline)
    one, other = (thin_outcomes(gather_outcomes(log), 4)[0] for log in (data, larger))
    assert np.array_equal(one.count, other.count)
    seen = one.visits > 0.0
    assert np.array_equal(one.moments[0].mean[:, seen], other.moments[0].mean[:, other.visits > 0.0])


def test_what_a_policy_plays_is_kept():
    data, baseline = noisy_log(3, episodes=60)
    larger, table, _ = declared(data, baseline)
    outcomes, model = gather_outcomes(larger), estimate_model(larger, baseline=table)
    assert essential(outcomes, model, [table]).outcomes.n_actions == data.n_actions
    bold = table.copy()
    bold[0] = np.eye(bold.shape[1])[0]  # a declared action
    part = essential(outcomes, model, [table, bold])
    assert part.outcomes.n_actions == data.n_actions + 1
    assert np.array_equal(part.whole(part.policy(bold), table), bold)


def test_nothing_is_copied_if_nothing_is_left_out():
    _, baseline, _, data = sampled_world(3, episodes=200)
    outcomes, model = gather_outcomes(data), estimate_model(data)
    part = essential(outcomes, model, [baseline])
    assert part.outcomes is outcomes
    assert part.model is model
