"""Rare events: what an action did elsewhere is expected here, light tails are left alone, and means of pairs stay what they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.rare import rare_excess
from posterior_cases import one_step_log


def pit_log(rng, n_states=10, visits=60, event=-50.0):
    """Action 1 loses 50 in one of 30 steps in every state but state 0, where it was tried 6 times and never did."""
    rows = []
    for x in range(n_states):
        for a in (0, 1):
            for _ in range(6 if (x, a) == (0, 1) else visits):
                fell = a == 1 and x > 0 and rng.random() < 1 / 30
                rows.append((x, a, -1, rng.normal() + event * fell))
    return one_step_log(rows, n_states, 2, ("a",))


@pytest.mark.parametrize("event", [-50.0, 50.0])
def test_what_an_action_did_elsewhere_is_expected_where_it_was_not_seen(event):
    o = gather_outcomes(pit_log(np.random.default_rng(0), event=event))
    assert o.moments[1].asked.all()
    rare, safe = (int(np.flatnonzero((o.pair_state == 0) & (o.pair_action == a))[0]) for a in (1, 0))
    assert o.pair_reward[0, rare] * np.sign(event) > 0.5  # it is 1.7 elsewhere
    assert abs(o.pair_reward[0, safe]) < 0.5


def test_light_tails_have_no_excess():
    rng = np.random.default_rng(1)
    for value in (rng.normal(size=800), rng.random(800), np.ones(800)):
        data = one_step_log([(i % 4, i % 2, -1, each) for i, each in enumerate(value)], 4, 2, ("a",))
        excess, arrival = rare_excess(data, np.arange(800))
        assert np.count_nonzero(excess) <= 2
        assert np.all(np.abs(arrival) <= np.abs(excess))


@pytest.mark.parametrize("event", [-50.0, 50.0])
def test_the_split_changes_no_mean_of_a_pair(event):
    data = pit_log(np.random.default_rng(2), event=event)
    o = gather_outcomes(data)
    excess, _ = rare_excess(data, np.arange(data.n_rows))
    assert np.any(excess * event > 0.0)
    pair = data.states * 2 + data.actions
    expected = np.bincount(pair, data.rewards[:, 0]) / np.bincount(pair)
    paid = np.bincount(o.count_pair, o.count * o.outcome_reward[0, o.count_outcome], o.visits.size) / o.visits
    assert paid + sum(each.mean[0] for each in o.moments) == pytest.approx(expected)


def test_rare_events_are_of_objectives_that_have_them():
    data = pit_log(np.random.default_rng(3))
    both = replace(
        data,
        rewards=np.column_stack([data.rewards[:, 0], np.random.default_rng(0).normal(size=data.n_rows)]),
        objectives=(*data.objectives, replace(data.objectives[0], name="b")),
    )
    excess, _ = rare_excess(both, np.arange(both.n_rows))
    assert np.count_nonzero(excess[:, 0]) > 5
    assert np.count_nonzero(excess[:, 1]) <= 2


def test_an_event_does_not_turn_the_other_visits_into_events():
    """In a state with two visits one is struck; the other is not a gain, though their mean lies far below it."""
    rows = [(x, 0, -1, 0.0) for x in range(20) for _ in range(5)] + [
        (20, 0, -1, -50.0),
        (20, 1, -1, 0.0),
        (21, 0, -1, 40.0),
    ]
    excess, _ = rare_excess(data := one_step_log(rows, 22, 2, ("a",)), np.arange(len(rows)))
    expected = np.where(data.rewards[:, 0] < 0.0, -50.0, 0.0) + np.where(data.rewards[:, 0] > 0.0, 40.0, 0.0)
    assert excess[:, 0] == pytest.approx(expected, abs=0.5)  # a state with one visit is compared with the mean of all
