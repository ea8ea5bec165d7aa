"""Rare events: what an action did elsewhere is expected here, light tails are left alone, and means of pairs stay what they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.rare import After, excess_of, rare_excess, values_after
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
    assert o.moments[1 if event < 0.0 else 2].asked.all()
    rare, safe = (int(np.flatnonzero((o.pair_state == 0) & (o.pair_action == a))[0]) for a in (1, 0))
    assert o.pair_reward[0, rare] * np.sign(event) > 0.5  # it is 1.7 elsewhere
    assert abs(o.pair_reward[0, safe]) < 0.5


def test_light_tails_have_no_excess():
    rng = np.random.default_rng(1)
    for value in (rng.normal(size=800), rng.random(800), np.ones(800)):
        data = one_step_log([(i % 4, i % 2, -1, each) for i, each in enumerate(value)], 4, 2, ("a",))
        excess, arrival = rare_excess(data, np.arange(800), [False], [True])
        assert np.count_nonzero(excess) <= 2
        assert np.all(np.abs(arrival) <= np.abs(excess))


@pytest.mark.parametrize("event", [-50.0, 50.0])
def test_the_split_changes_no_mean_of_a_pair(event):
    data = pit_log(np.random.default_rng(2), event=event)
    o = gather_outcomes(data)
    excess, _ = rare_excess(data, np.arange(data.n_rows), [False], [True])
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
    excess, _ = rare_excess(both, np.arange(both.n_rows), [False, False], [True, True])
    assert np.count_nonzero(excess[:, 0]) > 5
    assert np.count_nonzero(excess[:, 1]) <= 2


def test_an_event_does_not_turn_the_other_visits_into_events():
    """In a state with two visits one is struck; the other is not a gain, though their mean lies far below it."""
    rows = [(x, 0, -1, 0.0) for x in range(20) for _ in range(5)] + [
        (20, 0, -1, -50.0),
        (20, 1, -1, 0.0),
        (21, 0, -1, 40.0),
    ]
    excess, _ = rare_excess(data := one_step_log(rows, 22, 2, ("a",)), np.arange(len(rows)), [False], [True])
    expected = np.where(data.rewards[:, 0] < 0.0, -50.0, 0.0) + np.where(data.rewards[:, 0] > 0.0, 40.0, 0.0)
    assert excess[:, 0] == pytest.approx(expected, abs=0.5)  # a state with one visit is compared with the mean of all


def chain_log(rng, visits=4000):
    """State 0 leads to 1 (in 9 of 10 steps) or 2; both pay 1 with noise and stay with 1/2, else the episode ends; 2 costs 30 first."""
    x = rng.integers(3, size=visits)
    goes = rng.random(visits)
    following = np.where(x == 0, np.where(goes < 0.9, 1, 2), np.where(goes < 0.5, 1, -1))
    return x, following, np.where(x == 0, 0.0, np.where(x == 1, 1.0, -30.0)) + rng.normal(size=visits)


def test_values_after_steps_are_those_of_the_logged_actions():
    """v(1) = 1 + γ v(1)/2, v(2) = −30 + γ v(1)/2, and the variance of a return by its recursion, solved exactly."""
    gamma = 0.8
    x, following, reward = chain_log(np.random.default_rng(0))
    found = values_after(x, following, reward, gamma, n_states=4, longest=60)
    one = 1.0 / (1.0 - gamma / 2.0)
    assert found.value[1:3] == pytest.approx(gamma * np.array([one, -30.0 + gamma * one / 2.0]), rel=0.06)
    assert found.value[3] == 0.0  # no decisions
    of_one = (1.0 + gamma**2 * one**2 / 4.0) / (1.0 - gamma**2 / 2.0)
    of_first = 1.0 + gamma**2 * (0.9 * of_one + 0.1 * of_one) + gamma**2 * 0.09 * 30.0**2
    n = np.bincount(x, minlength=4)
    assert found.error[0] == pytest.approx(gamma * np.sqrt(of_first / n[0]), rel=0.1)
    assert found.error[1] > gamma * np.sqrt(of_one / n[1])  # at least that of the log
    short = values_after(x, following, reward, gamma, n_states=4, longest=1)
    assert short.value[1] == pytest.approx(gamma, rel=0.1)


def test_a_state_in_which_something_happened_once_is_no_place_of_rare_events():
    """300 states, each left with a loss in 1 of 1,000 steps, and 10 visits: a state that was struck is no pit, but state 300 is one."""
    rng = np.random.default_rng(5)
    states, lost = np.repeat(np.arange(300), 10), np.arange(3000) % 1000 == 7
    following = np.where(lost, -1, rng.integers(300, size=3000))
    following[np.arange(10) * 300] = 300  # the pit
    states, following = np.append(states, np.full(10, 300)), np.append(following, np.full(10, -1))
    reward = np.append(np.where(lost, -20.0, 0.0), np.full(10, -20.0))
    after = values_after(states, following, reward, 0.5, n_states=301, longest=30)
    _, arrival = excess_of(states, following, reward, after)
    struck = np.isin(following, states[:3000][lost])
    assert np.all(arrival[following == 300] < -5.0)
    assert not np.any(arrival[following != 300])
    certain = After(value=after.value, error=np.zeros(301))
    assert np.any(excess_of(states, following, reward, certain)[1][struck] < 0.0)  # as if all were known


def test_what_is_rare_in_a_state_does_not_depend_on_the_size_of_the_log():
    """A struck visit of a state with two visits stays the rare one, however often other states were seen."""
    for often in (10.0, 1e8, 1e12):
        x, reward = np.array([0, 1, 1]), np.array([0.0, -100.0, 0.0])
        after = After(value=np.zeros(2), error=np.zeros(2))
        excess, _ = excess_of(x, np.full(3, -1), reward, after, np.array([often, 1.0, 1.0]))
        assert np.array_equal(excess, [0.0, -100.0, 0.0])
