"""Rewards of single steps, recovered from counts."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from bettersafe.envs.hazards import catastrophe, deadly_actions
from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes
from bettersafe.logs.counts import count
from bettersafe.posterior import recovered
from bettersafe.posterior.outcomes import MOST_ENDS, gather_outcomes, outcomes_of, spread_in_pairs
from bettersafe.posterior.rare import excess_of, values_after
from bettersafe.posterior.recovered import lows, recover_steps
from posterior_cases import noisy_log, one_step_log


def uniform_log(world, episodes, seed=1):
    return sample_episodes(world, np.full((world.n_states, world.n_actions), 1.0 / world.n_actions), episodes, seed)


def by_next(data, *, states=1.0, ends=(100.0, -100.0)):
    """The log with a first reward by next state (times ``states``) and one of two rewards at the end; the second is noisy."""
    rng = np.random.default_rng(5)
    value = states * rng.integers(-3, 4, data.n_states)
    reward = np.where(data.terminated, rng.choice(ends, data.n_rows), value[np.maximum(data.next_states, 0)])
    return replace(data, rewards=np.column_stack([reward, rng.normal(size=data.n_rows)]))


@pytest.mark.parametrize("states", [1.0, 0.0])
def test_rewards_by_next_state_and_kind_of_end_are_those_of_the_rows(states):
    data = by_next(uniform_log(garnet(3, n_states=60, n_actions=4), 100), states=states)
    steps = recover_steps(count(data), most_ends=MOST_ENDS)
    assert steps.tied.tolist() == [True, False]
    assert np.unique(steps.kind).tolist() == [-1, 0, 1]
    pair = data.states * data.n_actions + data.actions
    counts = count(data)
    for reward, kind in ((-100.0, 0), (100.0, 1)):
        there = data.terminated & (data.rewards[:, 0] == reward)
        of_kind = steps.kind == kind
        flat = counts.pair_state * data.n_actions + counts.pair_action
        told = np.bincount(flat[steps.pair[of_kind]], steps.times[of_kind], data.n_states * data.n_actions)
        assert told.tolist() == np.bincount(pair[there], minlength=told.size).tolist()
    on = steps.kind < 0
    said = {(int(y), float(r)) for y, r in zip(steps.following[on], steps.reward[0, on], strict=True)}
    rows = ~data.terminated
    assert said == {(int(y), float(r)) for y, r in zip(data.next_states[rows], data.rewards[rows, 0], strict=True)}


def test_outcomes_of_recovered_rewards_are_those_of_the_log():
    data = by_next(uniform_log(garnet(3, n_states=60, n_actions=4), 100))
    data = replace(data, rewards=data.rewards[:, :1], objectives=data.objectives[:1])
    rows, counted = gather_outcomes(data), outcomes_of(count(data))
    assert not rows.noisy.any()
    assert counted.hidden == ()
    for field in fields(rows):
        if field.name not in ("effects", "moments"):
            one, other = getattr(rows, field.name), getattr(counted, field.name)
            assert np.shape(one) == np.shape(other), field.name
            assert np.allclose(one, other, rtol=1e-7, atol=1e-9), field.name


def test_a_noisy_reward_is_not_taken_for_one_of_the_next_state():
    data, _ = noisy_log(4, episodes=60)
    steps = recover_steps(count(data), most_ends=MOST_ENDS)
    assert not steps.tied.any()
    assert np.unique(steps.kind).tolist() == [-1, 0]
    assert steps.times.sum() == count(data).pair_count.sum()


def test_sums_that_allow_two_divisions_are_left_open():
    """Ends that pay 0, 1, 2 or 3: one of 0 and one of 3 have the sum of 1 and 2, but not the squares; three ends may agree in both."""
    single = [(0, 0, -1, r) for r in (0.0, 1.0, 2.0, 3.0)]
    mixed = [(1, 1, -1, r) for r in (0.0, 0.0, 3.0)]
    log = one_step_log([*[(i, 0, -1, r) for i, (_, _, _, r) in enumerate(single)], *mixed], 4, 2, ("a",))
    assert recover_steps(count(log), most_ends=MOST_ENDS).tied.tolist() == [False]
    two = one_step_log([(0, 0, -1, 5.0), (1, 0, -1, 7.0), *[(1, 1, -1, r) for r in (5.0, 5.0, 7.0)]], 2, 2, ("a",))
    found = recover_steps(count(two), most_ends=MOST_ENDS)
    assert found.tied.tolist() == [True]
    assert found.times[found.pair == 2].tolist() == [2.0, 1.0]
    assert found.reward[0, found.pair == 2].tolist() == [5.0, 7.0]


def test_rewards_with_two_values_are_counted():
    hazard = catastrophe(3, ends=True, chance=(0.02, 0.02))
    data = uniform_log(hazard.world, 300)
    counts = count(data)
    found = lows(counts, 1, spread_in_pairs(counts)[1])
    struck = data.rewards[:, 1] == -10.0
    flat = data.states * data.n_actions + data.actions
    rows = np.bincount(flat[struck], minlength=data.n_states * data.n_actions)
    assert struck.sum() > 5
    assert found.tolist() == rows[counts.pair_state * data.n_actions + counts.pair_action].tolist()
    noisy = replace(data, rewards=data.rewards + np.random.default_rng(1).normal(size=data.rewards.shape))
    assert lows(count(noisy), 1, spread_in_pairs(count(noisy))[1]) is None


def test_rare_harm_of_counts_is_that_of_the_log():
    """Not in the pit itself, where surprises are about as large as the limit."""
    for hazard in (catastrophe(3, ends=True), catastrophe(3, ends=False), deadly_actions(4)):
        data = uniform_log(hazard.world, 200)
        rows, counted = gather_outcomes(data), outcomes_of(count(data))
        assert counted.hidden == ()
        harm, same = (o.moments[1].mean[1, o.pair_state < 20] for o in (rows, counted))
        assert rows.moments[1].asked[1] == counted.moments[1].asked[1]
        assert same == pytest.approx(harm, rel=0.1, abs=0.02 * np.abs(harm).max() + 1e-12)
        noise, same = (
            np.sqrt(o.pair_noise[1] ** 2 + sum(e.share[1] ** 2 for e in o.effects if e.group is not None))[
                o.pair_state < 20
            ]
            for o in (rows, counted)
        )
        assert same == pytest.approx(noise, rel=0.15)


def test_a_mean_is_divided_and_not_changed():
    hazard = catastrophe(3, ends=False, chance=(0.02, 0.02))
    data = uniform_log(hazard.world, 200)
    o, counts = outcomes_of(count(data)), count(data)
    due = np.bincount(o.count_pair, o.count * o.outcome_reward[1, o.count_outcome], o.pair_state.size)
    tried = o.visits > 0.0
    total = due[tried] / o.visits[tried] + sum(each.mean[1, tried] for each in o.moments)
    assert total == pytest.approx(counts.reward_sum[1] / counts.pair_count)


def test_steps_that_were_seen_several_times_are_like_rows():
    rng = np.random.default_rng(3)
    x, following = rng.integers(3, size=40), rng.integers(-1, 3, size=40)
    reward, times = np.append(rng.normal(size=39), -50.0), np.append(rng.integers(1, 9, 39), 2).astype(float)
    often = values_after(x, following, reward, 0.9, n_states=3, longest=50, times=times)
    each = [np.repeat(column, times.astype(int)) for column in (x, following, reward)]
    rows = values_after(*each, 0.9, n_states=3, longest=50)
    assert often.value == pytest.approx(rows.value)
    assert often.error == pytest.approx(rows.error)
    several = excess_of(x, following, reward, often, times)
    single = excess_of(*each, rows)
    for one, other in zip(several, single, strict=True):
        assert np.repeat(one, times.astype(int)) == pytest.approx(other)
    assert np.any(single[0] < 0.0)
    assert not np.any(excess_of(x, following, reward, often, times, noise=50.0)[0])


def test_too_many_mixed_ends_are_one_kind(monkeypatch):
    data = by_next(uniform_log(garnet(3, n_states=60, n_actions=4), 100), states=0.0)
    monkeypatch.setattr(recovered, "MOST_MIXED", 0)
    steps = recover_steps(count(data), most_ends=MOST_ENDS)
    assert not steps.tied.any()
    assert np.unique(steps.kind).tolist() == [-1, 0]
