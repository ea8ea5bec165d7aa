"""Outcomes of a log, by hand; from rows and from counts."""

from __future__ import annotations

import sys
from dataclasses import fields, replace

import numpy as np
import pytest

from bettersafe.logs.counts import count, with_rare, with_rare_rows
from bettersafe.posterior import recovered
from bettersafe.posterior.draws import mean_process
from bettersafe.posterior.outcomes import gather_outcomes, outcomes_of, thin_outcomes
from bettersafe.posterior.priors import posterior
from bettersafe.posterior.rewards import Moments
from posterior_cases import LOG, SUPPORT, noisy_log, one_step_log, random_case


@pytest.mark.parametrize("episodes", [3, 40])
def test_counts_tell_the_posterior_what_a_log_with_noisy_rewards_does(episodes, monkeypatch):
    """But for rare events, which counts of noisy rewards do not show."""
    monkeypatch.setattr(
        sys.modules["bettersafe.posterior.outcomes"],
        "rare_excess",
        lambda data, rows, tied, random: np.zeros((2, rows.size, 2)),
    )
    monkeypatch.setattr(recovered, "excess_of", lambda x, *steps, tied, random: np.zeros((2, x.size)))
    data, _ = noisy_log(episodes=episodes)
    from_rows, from_counts = gather_outcomes(data), outcomes_of(count(data))
    assert np.all(from_rows.noisy)
    assert not np.any(from_rows.moments[1].asked)

    def alike(one, other, names):
        for name in names:
            rows, counted = getattr(one, name), getattr(other, name)
            assert np.shape(rows) == np.shape(counted), name
            assert np.allclose(rows, counted, rtol=1e-7, atol=1e-9), name

    assert from_rows.hidden == ()
    assert from_counts.hidden == (0, 1)
    names = [field.name for field in fields(from_rows) if field.name not in ("effects", "moments", "hidden")]
    alike(from_rows, from_counts, names)
    alike(from_rows.effects[0], from_counts.effects[0], ("share", "state_sd", "action_sd"))
    alike(from_rows.moments[0], from_counts.moments[0], ("mean", "spread", "asked"))
    for k in range(2):
        alike(from_rows.moments[0].strengths[k], from_counts.moments[0].strengths[k], ("points", "weight"))


def test_known_rewards_and_rewards_that_never_vary():
    data, _ = noisy_log(noise=0.0, episodes=10)
    by_pair = np.random.default_rng(0).normal(size=(12, 4))
    data = replace(data, rewards=np.column_stack([by_pair[data.states, data.actions], data.rewards[:, 1]]))
    counts = count(data)
    found = outcomes_of(counts)
    tried = found.visits > 0
    assert np.allclose(found.pair_reward[0, tried], by_pair[found.pair_state, found.pair_action][tried])
    assert np.all(found.pair_noise[0, tried] < 1e-6)
    assert np.all(found.pair_noise[0, ~tried] > 0.1)
    rare = with_rare(counts, below=3, reward=-10.0)
    visits = np.zeros((12, 4), dtype=np.int64)
    visits[counts.pair_state, counts.pair_action] = counts.pair_count
    table = {2: np.where(visits < 3, -10.0, 0.0)}
    rows = with_rare_rows(data, visits, rare.objectives[2], below=3, reward=-10.0)
    assert np.allclose(
        outcomes_of(rare, known_rewards=table).pair_reward[2], gather_outcomes(rows, known_rewards=table).pair_reward[2]
    )
    assert not outcomes_of(rare, known_rewards=table).noisy[2]


def test_outcomes_by_hand():
    """From state 0: to state 1 (0, 5), to the end (3, 5) and (7, 5); from state 1: to the end (0, 1); from both every end."""
    o = gather_outcomes(LOG)
    assert o.outcome_ptr.tolist() == [0, 4, 7]
    ends = [(-1, 0.0, 1.0), (-1, 3.0, 5.0), (-1, 7.0, 5.0)]
    outcomes = list(zip(o.outcome_next.tolist(), *o.outcome_reward.tolist(), strict=True))
    assert sorted(outcomes[:4]) == [*ends, (1, 0.0, 5.0)]
    assert sorted(outcomes[4:]) == ends
    assert [sorted(np.array(outcomes)[o.kind == i].tolist()) for i in range(3)] == [[list(e)] * 2 for e in ends]
    assert sorted(np.array(outcomes)[o.assumed][:, 1].tolist()) == [0.0, 3.0, 7.0]
    assert o.pair_state.tolist() == [0, 0, 1, 1]  # the untried pair (1, 1) is there
    assert o.entry_ptr.tolist() == [0, 4, 8, 11, 14]
    assert np.add.reduceat(o.entry_count, o.entry_ptr[:-1]).tolist() == [2, 2, 1, 0]
    assert o.initial.tolist() == [0.8, 0.2]
    assert not o.noisy.any()
    # mean of the "support" posterior: α_0 = 1/3 each, so after 2 of 2 to state 1: (2 + 1/3)/3
    mean = mean_process(posterior(o, SUPPORT))
    assert mean.transition.toarray()[0, 1] == pytest.approx((2 + 1 / 3) / 3)
    assert mean.reward[0, 1] == pytest.approx(((1 + 1 / 3) * 7 + (1 + 1 / 3) * 3) / 3)
    assert mean.reward[1].tolist() == pytest.approx([5.0, 5.0, 1.0, 1.0])


def test_rewards_go_with_an_outcome_only_where_they_are_a_function_of_it():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 12, size=(300, 2)).astype(float)
    bandit = one_step_log([(0, i % 2, -1, *pair) for i, pair in enumerate(values)], 1, 2)
    o = gather_outcomes(bandit)
    assert o.noisy.all()  # 144 kinds of ends would make an outcome of nearly every row
    assert o.outcome_next.tolist() == [-1]
    few = gather_outcomes(one_step_log([(0, i % 2, -1, float(i % 3), 0.0) for i in range(30)], 1, 2))
    assert not few.noisy.any()
    assert few.seen.size - few.assumed.sum() == 3


def test_a_step_cut_off_where_nobody_acted_says_nothing():
    rows = [(0, 0, 1, 1.0)] * 5 + [(0, 1, -1, 1.0)] * 5  # state 1 was never acted in, and nothing ended there
    o = gather_outcomes(one_step_log(rows, 2, 2, ("a",)))
    assert o.visits.tolist() == [0.0, 5.0]
    assert o.ends.all()


@pytest.mark.parametrize("tied", [True, False])
def test_halves_add_up(tied):
    o, _, _ = random_case(1, tied=tied)
    one, other = thin_outcomes(o, 3)
    for name in ("visits", "visits_on", "seen", "starts", "entry_count"):
        assert getattr(one, name) + getattr(other, name) == pytest.approx(getattr(o, name))
    for k in np.flatnonzero(o.noisy):
        total = one.visits * one.moments[0].mean[k] + other.visits * other.moments[0].mean[k]
        assert total == pytest.approx(o.visits * o.moments[0].mean[k])
        assert one.moments[0].strengths[k] is o.moments[0].strengths[k]
    assert np.all(one.starts.sum() > 0)


def test_a_seed_gives_the_same_halves():
    o, _, _ = random_case(1, tied=False)
    one, again, different = (thin_outcomes(o, seed)[0] for seed in (3, 3, 4))
    assert np.array_equal(one.count, again.count)
    assert np.array_equal(one.moments[0].mean, again.moments[0].mean)
    assert not np.array_equal(one.visits, different.visits)


@pytest.mark.parametrize("noisy", [False, True])
def test_halves_are_as_independent_as_two_logs(noisy):
    """Over many states of many logs, mean rewards of the halves are uncorrelated, and have the variance of half a log."""
    states = 10 if noisy else 1  # noisy rewards take longer to gather; a log of 10 states has 10 independent means
    means = []
    for seed in range(400 // states):
        rng = np.random.default_rng([seed, noisy])
        value = rng.normal(size=(states, 40)) if noisy else rng.integers(0, 2, (states, 40)).astype(float)
        rows = [(x, 0, -1, each) for x in range(states) for each in value[x]]
        o = gather_outcomes(one_step_log(rows, states, 2, ("a",)))
        halves = thin_outcomes(o, rng)
        if noisy:
            tried = o.pair_action == 0
            means += zip(
                *(half.moments[0].mean[0, tried] + half.moments[1].mean[0, tried] for half in halves), strict=True
            )
        else:
            means.append([half.count @ half.outcome_reward[0, half.count_outcome] / half.visits[0] for half in halves])
    assert abs(np.corrcoef(np.transpose(means))[0, 1]) < 0.15
    assert np.std(means) == pytest.approx((1.0 if noisy else 0.5) / np.sqrt(20.0), rel=0.1)


def test_one_episode_starts_in_both_halves():
    o, _, _ = random_case(1, episodes=1)
    for seed in range(8):
        assert all(half.starts.sum() > 0.0 for half in thin_outcomes(o, seed))


def test_no_half_is_without_an_end():
    """With discount 1 it would have no values; with a single end, both halves have half of it."""
    for ends in (1, 2, 3):
        rows = [(0, 0, 0 if i >= ends else -1, float(i == 7)) for i in range(12)]
        o = gather_outcomes(one_step_log(rows, 1, 1, ("a",)))
        for seed in range(20):
            halves = thin_outcomes(o, seed)
            quarters = [quarter for half in halves for quarter in thin_outcomes(half, seed)]
            for part in (*halves, *quarters):
                assert part.count @ part.ends[part.count_outcome] > 0.0
            assert sum(part.count.sum() for part in halves) == 12.0


def test_pairs_with_more_visits_than_can_be_distributed_are_divided_too():
    visits, mean = np.full(4, 4e9), np.array([[-1e-6, 0.0, -2e-6, -1.0]])
    events = Moments(mean=mean, spread=visits * (-mean - mean**2), asked=np.array([True]), rare=True)
    one, other = events.thinned(visits, np.full(4, 2e9), np.random.default_rng(0))
    assert (one.mean + other.mean) / 2.0 == pytest.approx(mean)
    assert np.all(one.mean <= 0.0)
