"""Priors and their posteriors, by hand and against closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bettersafe.errors import ParameterError
from bettersafe.logs.counts import count
from bettersafe.mdp.values import expected_return, policy_values
from bettersafe.model import estimate_model
from bettersafe.posterior.draws import drawn_gains, mean_process, returns_in
from bettersafe.posterior.judge import other_priors
from bettersafe.posterior.linearised_counts import available, counted_pessimistic, counted_posterior, gather_counted
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.priors import LEAST_WEIGHT, PriorSet, posterior
from posterior_cases import LOG, SUPPORT, hazard_log, noisy_log, one_step_log, sampled_world


def test_known_and_noisy_rewards():
    table = np.array([[1.0, 2.0], [3.0, 4.0]])
    o = gather_outcomes(LOG, known_rewards={1: table})
    assert mean_process(posterior(o, SUPPORT)).reward[1].tolist() == [1.0, 2.0, 3.0, 4.0]
    rng = np.random.default_rng(0)
    values = rng.normal(size=60)
    noisy = one_step_log([(0, i % 2, -1, v) for i, v in enumerate(values)], objectives=("a",))
    o = gather_outcomes(noisy)
    assert o.noisy.tolist() == [True]
    assert o.outcome_next.tolist() == [-1]  # ends that pay the same are one outcome, here and elsewhere
    assert o.kind.tolist() == [0]
    assert not o.assumed.any()
    even, odd = values[::2], values[1::2]
    low, high = sorted((even.mean(), odd.mean()))
    assert low < o.pair_reward[0].min() < o.pair_reward[0].max() < high  # drawn to each other
    dark = posterior(o, SUPPORT, pessimistic_for=0, baseline_v=np.zeros((1, 2)))
    bad = (values.max() - values.mean()) / (
        values.max() - values.min()
    )  # of a visit that is as bad as possible, beside 30 and 5
    expected = (35 * o.pair_reward[0] + bad * values.min()) / (35 + bad)
    assert mean_process(dark).reward[0] == pytest.approx(expected)
    fixed = gather_outcomes(one_step_log([(0, i % 2, -1, 100.0 * (i % 2) + i // 40) for i in range(60)], 1, 3, ("a",)))
    assert not fixed.noisy.any()


def test_pessimism_goes_to_the_worst_outcome():
    o = gather_outcomes(LOG)
    v = np.array([[0.0, -100.0], [0.0, 0.0]])
    dark = posterior(o, SUPPORT, pessimistic_for=0, baseline_v=v)  # leading to state 1 is worst for a
    light = posterior(o, SUPPORT)
    assert mean_process(dark).transition.toarray()[1, 1] == pytest.approx((1 / 3 + 1) / 4)
    assert mean_process(light).transition.toarray()[1, 1] == pytest.approx((1 / 3) / 3)
    other = posterior(o, SUPPORT, pessimistic_for=0, baseline_v=np.array([[0.0, 100.0], [0.0, 0.0]]))
    # now the end that pays 3 is worst; the log's worst place is the end, and its rewards of 0, 7 and 3 lie 5/7 of the way to the worst
    led = 1 / (2 + 5 + 1) * (0.0 - 0.5 * 100.0 * 2 / 4)
    paid = (5 / 7) / (2 + 5 + 5 / 7) * (0.0 - 2.0)
    assert mean_process(other).reward[0, 1] == pytest.approx((4 / 3 * 7 + 7 / 3 * 3) / 4 + led + paid)
    for wrong in ({"pessimistic_for": 0}, {"pessimistic_for": 5, "baseline_v": v}):
        with pytest.raises(ParameterError):
            posterior(o, SUPPORT, **wrong)


def test_pessimism_reaches_the_worst_place_of_the_log():
    """From state 0 nothing bad was seen; the pit, state 2, was reached from state 1."""
    log = one_step_log([(0, 0, 1, 0), (0, 0, 1, 0), (1, 0, 2, 0), (2, 0, 1, -1), (1, 1, 1, 0)], 3, objectives=("a",))
    o, v = gather_outcomes(log), np.array([[-1.0, -2.0, -10.0]])
    neutral, dark = posterior(o), posterior(o, pessimistic_for=0, baseline_v=v)
    paid = o.bad_share[0] * (o.least_reward[0] - o.outcome_reward[0] @ o.seen / 5)
    for pair, visits in enumerate(o.visits[:2]):  # 2 and 0 visits in state 0
        led = 0.5 * (-10.0 - -2.0)
        expected = led / (visits + 5 + 1) + paid / (visits + 5 + o.bad_share[0])
        assert dark.pair_reward[0, pair] - neutral.pair_reward[0, pair] == pytest.approx(expected)


@pytest.mark.parametrize("noisy", [False, True])
def test_a_declared_range_reaches_the_pessimistic_prior(noisy):
    """Rewards that go with the outcome, or not, get bad visits at the declared worst, as many as the log's own rate of bad steps."""
    rng = np.random.default_rng(0)
    rows = [(0, i % 2, -1, -1.0 if i % 10 == 0 else 0.0) for i in range(60)]
    if noisy:
        rows = [(0, i % 2, -1, min(-1.0 * (i % 10 == 0) + 0.01 * rng.normal(), 0.0)) for i in range(60)]
    values = np.array([row[3] for row in rows])
    log = one_step_log(rows, objectives=("a",))
    means = []
    for edge in (None, values.min(), -50.0):
        (objective,) = log.objectives
        ranged = replace(objective, reward_range=None if edge is None else (edge, 0.0))
        o = gather_outcomes(replace(log, objectives=(ranged,)))
        assert o.noisy.tolist() == [noisy]
        dark = posterior(o, SUPPORT, pessimistic_for=0, baseline_v=np.zeros((1, 2)))
        means.append(mean_process(dark).reward[0])
    bad = (values.max() - values.mean()) / (values.max() - values.min())
    assert np.array_equal(means[0], means[1])
    expected = bad / (30 + 5 + bad) * (-50.0 - values.min())
    assert means[2] - means[1] == pytest.approx(np.full(2, expected), rel=1e-3)


def test_a_strong_prior_does_not_drown_pessimism():
    """Where all actions are alike the neutral prior is strong; one bad visit still counts for a sixth of the pessimistic one."""
    rows = [(0, a, following, 0.0, 0.0) for a in (0, 1) for following in (0, 1) for _ in range(300)]
    o = gather_outcomes(one_step_log([*rows, (1, 0, 1, -9.0, 0.0), (1, 1, 1, -9.0, 0.0)], 2, 3))
    middle = posterior(o)
    assert middle.weight @ middle.concentration > 50.0
    v = np.array([[0.0, -9.0], [0.0, 0.0]])
    dark = posterior(o, pessimistic_for=0, baseline_v=v)
    untried = int(np.flatnonzero((o.pair_state == 0) & (o.pair_action == 2))[0])
    assert mean_process(middle).transition.toarray()[untried] == pytest.approx([0.5, 0.5], abs=1e-3)
    expected = (0.5 * 5.0 + 1.0) / 6.0  # 5 but for what 1,200 visits leave open of the others
    assert mean_process(dark).transition.toarray()[untried, 1] == pytest.approx(expected, abs=0.01)
    assert dark.weight.sum() == pytest.approx(1.0)


def test_half_and_twice_the_concentration_ask_different_pessimistic_priors():
    """Where the neutral prior is strong both lie above the limit of a pessimistic prior, so the limit is scaled too."""
    rows = [(0, a, following, 0.0, 0.0) for a in (0, 1) for following in (0, 1) for _ in range(300)]
    log = one_step_log([*rows, (1, 0, 1, -9.0, 0.0), (1, 1, 1, -9.0, 0.0)], 2, 3)
    o, v = gather_outcomes(log), np.array([[0.0, -9.0], [0.0, 0.0]])
    untried = int(np.flatnonzero((o.pair_state == 0) & (o.pair_action == 2))[0])
    for _, priors in other_priors(PriorSet())[2:]:
        weight = 5.0 * priors.concentration_scale
        expected = (0.5 * weight + 1.0) / (weight + 1.0)
        dark = posterior(o, priors, pessimistic_for=0, baseline_v=v)
        assert mean_process(dark).transition.toarray()[untried, 1] == pytest.approx(expected, abs=0.01)
        if available():
            counts = count(log)
            counted = counted_posterior(gather_counted(counts, estimate_model(counts)), priors)
            same = counted_pessimistic(counted, 0, v).concentration
            assert same == pytest.approx(dark.concentration[dark.weight >= LEAST_WEIGHT])


def test_noisy_rewards_are_pessimistic_by_the_scaled_prior_too():
    data, _ = noisy_log(2)
    o = gather_outcomes(data)
    v = np.zeros((2, o.n_states))
    dark = [posterior(o, PriorSet(concentration_scale=scale), pessimistic_for=0, baseline_v=v) for scale in (0.5, 1, 2)]
    means = [float(each.pair_reward[0].mean()) for each in dark]
    assert means[0] < means[1] < means[2]


def test_ends_are_learned_apart_from_where_to():
    """Where to tells actions apart, ends don't: so a pair that never ended is not taken for one that never does."""
    log = hazard_log(np.random.default_rng(3))
    o = gather_outcomes(log)
    found = posterior(o)
    assert found.weight @ found.concentration < 1.0
    assert found.end_weight @ found.end_concentration > 100.0
    ends = 1.0 - np.asarray(mean_process(found).transition.sum(axis=1))
    never = (o.visits > 5) & (o.visits == o.visits_on)
    assert never.any()
    assert np.all(np.abs(ends - 0.1) < 0.05)
    # by one Dirichlet for both ("support"), they hardly ever do
    assert np.all(1.0 - np.asarray(mean_process(posterior(o, SUPPORT)).transition.sum(axis=1))[never] < 0.05)


def test_states_that_never_ended_can_end():
    log = hazard_log(np.random.default_rng(4), episodes=4)
    o = gather_outcomes(log)
    unended = np.setdiff1d(o.outcome_state, o.outcome_state[~o.assumed & o.ends])
    assert unended.size
    assert np.all(np.bincount(o.outcome_state[o.ends], minlength=8)[np.unique(o.outcome_state)] == 1)
    assert np.all(posterior(o).mean_going < 1.0)
    lasting = replace(log, terminated=np.zeros_like(log.terminated))  # cut off, not ended: nothing is said of ends
    assert not gather_outcomes(lasting).ends.any()
    assert posterior(gather_outcomes(lasting)).mean_going == pytest.approx(1.0)


def test_how_others_ended_can_happen_here():
    """Where one state saw only good ends and the log has bad ones, a bad one is possible, and the less the more was seen."""

    def bad(good):
        rows = [(0, a, -1, 1.0) for a in (0, 1) for _ in range(good)]
        rows += [(x, a, -1, r) for x in range(1, 12) for a in (0, 1) for r in (-1.0, 1.0, 1.0)]
        o = gather_outcomes(one_step_log(rows, 12, 2, ("a",)))
        return (1.0 - mean_process(posterior(o)).reward[0, 0]) / 2.0

    assert 0.05 < bad(2) < 1.0 / 3.0
    assert 0.0 < bad(50) < bad(10) < bad(2)


def test_model_and_posterior_mean_agree_in_the_limit():
    truth, baseline, _, data = sampled_world(1, 3000)
    v, _ = policy_values(estimate_model(data).mdp, baseline)
    j, values = returns_in(mean_process(posterior(gather_outcomes(data))), gather_outcomes(data), baseline[None])
    assert values[0] == pytest.approx(v, rel=0.02)
    assert j[0] == pytest.approx(expected_return(truth, baseline), rel=0.1)


def test_no_prior_is_stronger_than_what_it_was_learned_from():
    o = gather_outcomes(hazard_log(np.random.default_rng(3)))
    found = posterior(o)
    for c in (0.3, 30.0, 1e6):
        block = found.end_block(c)
        assert np.all(block.scale * found.end_others <= np.minimum(c, found.end_others) + 1e-9)
    never = one_step_log([(0, 0, -1, 1.0)] * 5 + [(0, 1, -1, 3.0)] * 5, 1, 3, ("a",))  # action 2 was never tried
    policy = np.array([[[0.0, 0.0, 1.0]]])
    gains = drawn_gains(posterior(gather_outcomes(never)), policy, np.array([[0.5, 0.5, 0.0]]), draws=400, seed=0)
    assert gains.std() > 0.3  # between 1 and 3 anything may be
