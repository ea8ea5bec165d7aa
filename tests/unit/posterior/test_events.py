"""Declared events: posterior of their rates, and their effect on gains, against slow twins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad

from bettersafe import _kernel
from bettersafe.errors import ParameterError
from bettersafe.logs.counts import count
from bettersafe.logs.dataset import Objective
from bettersafe.mdp.values import expected_return, policy_values
from bettersafe.methods.b_opt import b_opt
from bettersafe.model import estimate_model
from bettersafe.posterior.draws import drawn_gains, mean_process, returns_in
from bettersafe.posterior.events import EXCLUDED, DeclaredEvent, Rate, event_pairs
from bettersafe.posterior.judge import Question, judge
from bettersafe.posterior.linearised import linearised_gains, mean_returns
from bettersafe.posterior.linearised_counts import counted_gains, counted_posterior, gather_counted, side_of
from bettersafe.posterior.models import mean_model, one_step_sd, with_events
from bettersafe.posterior.outcomes import gather_outcomes, outcomes_of, thin_outcomes
from bettersafe.posterior.priors import PriorSet, posterior
from posterior_cases import needs_kernel, noisy_log, some_policies

ONE = DeclaredEvent(name="spill", cost={"r0": -5.0, "r1": -2.0}, rate=0.1, actions=["1"])
END = DeclaredEvent(name="fire", cost={"r1": -40.0}, rate=0.03, actions=[1, 2], states=[0, 1, 2, 3], ends=True)


# ---- the rate


@pytest.mark.parametrize(("most", "visits"), [(0.001, 0.0), (0.2, 7.0), (1e-4, 3e6), (1e-7, 12.0), (0.9, 40.0)])
def test_moments_and_quantiles_of_a_rate_are_those_of_its_density(most, visits):
    rate = Rate(most=most, visits=visits)
    top = min(most, 60.0 / (visits + 1.0))  # nothing is left beyond

    def integral(power):
        return quad(lambda q: q**power * (1.0 - q) ** visits, 0.0, top, epsabs=0.0, epsrel=1e-11, limit=400)[0]

    mean = integral(1) / integral(0)
    assert rate.mean == pytest.approx(mean, rel=1e-8)
    assert rate.sd == pytest.approx(np.sqrt(integral(2) / integral(0) - mean**2), rel=1e-6)
    drawn = np.array([rate.drawn(u) for u in (np.arange(20_000) + 0.5) / 20_000])
    assert drawn.mean() == pytest.approx(mean, rel=1e-3)
    assert drawn.max() <= most
    assert rate.drawn(0.0) == 0.0


def test_the_worst_rate_is_the_declared_one_until_the_log_excludes_it():
    assert Rate(most=0.01, visits=0.0).worst == 0.01
    assert Rate(most=0.01, visits=100.0).worst == 0.01
    assert Rate(most=0.01, visits=1000.0).worst == pytest.approx(1.0 - EXCLUDED**0.001)
    assert Rate(most=0.01, visits=1000.0).worst < 0.01


# ---- the declaration


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rate": 0.0}, "above 0 and below 1"),
        ({"rate": 1.0}, "above 0 and below 1"),
        ({"cost": {}}, "costs nothing"),
        ({"cost": {"r0": np.inf}}, "finite"),
        ({"actions": "high"}, "list of labels"),
    ],
)
def test_an_event_that_makes_no_sense_is_refused(changed, message):
    fields = {"name": "spill", "cost": {"r0": -5.0}, "rate": 0.1, **changed}
    with pytest.raises(ParameterError, match=message):
        DeclaredEvent(**fields)


def resolved(event, *, lower_is_better=False):
    objectives = [Objective(name="pain", lower_is_better=lower_is_better)]
    return event_pairs([event], objectives, np.array(["ill", "well"]), np.array(["high", "low"]))


def test_events_use_the_sign_and_the_labels_of_the_log():
    (event,) = resolved(DeclaredEvent(name="e", cost={"pain": 3.0}, rate=0.1, actions=["low"]), lower_is_better=True)
    assert event.reward.tolist() == [-3.0]
    assert event.applies.tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cost": {"pain": 3.0}}, "would improve pain: higher is better, so its cost must be below 0; got 3"),
        ({"cost": {"pian": -3.0}}, "there is no such objective.*Did you mean 'pain'"),
        ({"cost": {"pain": -3.0}, "actions": ["lo"]}, "action 'lo', which the log does not have.*Did you mean 'low'"),
        ({"cost": {"pain": -3.0}, "states": ["3"]}, "state '3', which the log does not have"),
    ],
)
def test_events_that_do_not_fit_the_log_are_refused(fields, message):
    with pytest.raises(ParameterError, match=message):
        resolved(DeclaredEvent(name="e", rate=0.1, **fields))


# ---- means


def slow_returns(process, o, policy, rates):
    """J [d] of a process [P] in which events happen at these rates, with one matrix."""
    d, n = o.n_objectives, o.n_states
    keep, paid = np.ones(o.pair_state.size), np.zeros((d, o.pair_state.size))
    for each, rate in zip(o.events, rates, strict=True):
        for p, index in enumerate(o.pair_index):
            if each.applies[index]:
                paid[:, p] += rate * each.reward
                keep[p] *= 1.0 - rate if each.event.ends else 1.0
    weight = policy.reshape(-1)[o.pair_index]
    reward = process.reward * keep + paid
    found = []
    for k in range(d):
        matrix, pays = np.zeros((n, n)), np.zeros(n)
        for p, x in enumerate(o.pair_state):
            matrix[x] += weight[p] * keep[p] * process.transition[[p]].toarray()[0]
            pays[x] += weight[p] * reward[k, p]
        found.append(process.initial @ np.linalg.solve(np.eye(n) - o.discount[k] * matrix, pays))
    return np.array(found)


def a_case(events=(ONE, END), *, seed=0, discounts=None):
    data, baseline = noisy_log(seed, discounts=discounts, episodes=60)
    return data, baseline, gather_outcomes(data, events=events), some_policies(np.random.default_rng(seed))


@pytest.mark.parametrize("discounts", [None, (0.9, 0.95)])
def test_events_change_mean_gains_as_a_process_with_them(discounts):
    _, baseline, o, policies = a_case(discounts=discounts)
    given, without = posterior(o), replace(posterior(o), rates=())
    bare = mean_process(replace(without, outcomes=replace(o, events=())))
    rates = [rate.mean for rate in given.rates]
    expected = [slow_returns(bare, o, policy, rates) - slow_returns(bare, o, baseline, rates) for policy in policies]
    mean, _ = linearised_gains(given, np.array(policies), baseline)
    assert np.allclose(mean, expected, rtol=1e-7)
    in_process, _ = returns_in(mean_process(given), o, np.array([baseline, *policies]))
    assert np.allclose(in_process[1:] - in_process[0], expected, rtol=1e-7)


def test_variance_of_gains_has_that_of_the_rates():
    _, baseline, o, policies = a_case()
    given = posterior(o)
    fixed = replace(given, rates=tuple(rate.at(rate.mean) for rate in given.rates))
    _, wide = linearised_gains(given, np.array(policies), baseline)
    _, narrow = linearised_gains(fixed, np.array(policies), baseline)
    more = np.zeros_like(wide)
    for e, rate in enumerate(given.rates):
        step = 1e-6
        moved = replace(fixed, rates=tuple(r.at(r.fixed + step * (i == e)) for i, r in enumerate(fixed.rates)))
        for c, policy in enumerate(policies):
            slope = mean_returns(moved, policy) - mean_returns(moved, baseline)
            slope = (slope - mean_returns(fixed, policy) + mean_returns(fixed, baseline)) / step
            more[c] += rate.sd**2 * np.outer(slope, slope)
    assert np.allclose(wide - narrow, more, rtol=0.05, atol=1e-3 * np.max(more))
    assert np.all(np.diagonal(wide - narrow, axis1=1, axis2=2) > 0.0)


@needs_kernel
@pytest.mark.parametrize("neutral", ["hierarchical", "support"])
@pytest.mark.parametrize("discounts", [None, (0.9, 0.95)])
def test_counts_say_what_lists_of_outcomes_say(neutral, discounts):
    data, baseline, _, policies = a_case(discounts=discounts)
    counts = count(data)
    model = estimate_model(counts)
    v, _ = policy_values(model.mdp, baseline)
    listed = outcomes_of(counts, events=(ONE, END))
    counted = gather_counted(counts, model, events=(ONE, END))
    for k in (None, 0, 1):
        slow = posterior(listed, PriorSet(neutral=neutral), pessimistic_for=k, baseline_v=v)
        fast = counted_posterior(counted, PriorSet(neutral=neutral), pessimistic_for=k, baseline_v=v)
        asked = [0, 1] if k is None else [k]
        means, covariances = linearised_gains(slow, np.array(policies), baseline, objectives=asked)
        again = counted_gains(fast, policies, side_of(fast, baseline, asked))
        assert np.allclose(again[0], means, rtol=0.0, atol=1e-6 * np.max(np.abs(means)))
        assert np.allclose(again[1], covariances, rtol=0.0, atol=1e-6 * np.max(np.abs(covariances)))


# ---- draws


def test_draws_agree_with_the_linearised_form_and_with_the_slow_twin(monkeypatch):
    _, baseline, o, policies = a_case((replace(ONE, rate=0.02), replace(END, rate=0.005)))
    for given in (posterior(o), replace(posterior(o), rates=tuple(r.at(r.worst) for r in posterior(o).rates))):
        mean, covariance = linearised_gains(given, np.array(policies), baseline)
        sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        drawn = drawn_gains(given, np.array(policies), baseline, draws=400, seed=1)
        assert np.all(np.abs(drawn.mean(axis=0) - mean) < 0.35 * sd)
        assert np.allclose(drawn.std(axis=0), sd, rtol=0.3)
        monkeypatch.setattr(_kernel, "compiled", None)
        slow = drawn_gains(given, np.array(policies), baseline, draws=400, seed=2)
        monkeypatch.undo()
        assert np.all(np.abs(drawn.mean(axis=0) - slow.mean(axis=0)) < 0.35 * sd)
        assert np.allclose(drawn.std(axis=0), slow.std(axis=0), rtol=0.3)


def test_draws_do_not_depend_on_other_policies_or_batches():
    _, baseline, o, policies = a_case()
    given = posterior(o)
    whole = drawn_gains(given, np.array(policies), baseline, draws=6, seed=3)
    assert np.array_equal(whole[:, 1:2], drawn_gains(given, np.array(policies[1:2]), baseline, draws=6, seed=3))
    assert np.array_equal(whole[4:], drawn_gains(given, np.array(policies), baseline, draws=2, seed=3, first=4))


# ---- the pessimistic priors


@pytest.mark.parametrize("event", [ONE, replace(END, states=())])
def test_pessimistic_priors_take_the_worse_of_no_event_and_the_highest_rate(event):
    data, baseline, o, _ = a_case((event,))
    v = policy_values(estimate_model(data).mdp, baseline)[0]
    more, less = np.zeros_like(baseline), baseline.copy()
    more[:, 1] = 1.0
    less[:, 1] = 0.0
    less /= less.sum(axis=1, keepdims=True)
    given = posterior(o, pessimistic_for=1, baseline_v=v)
    none = replace(given, rates=(given.rates[0].at(0.0),))
    for policy in (more, less):
        found, _ = linearised_gains(given, policy[None], baseline, objectives=[1])
        either = [
            (mean_returns(each, policy) - mean_returns(each, baseline))[1]
            for each in (replace(none, rates=given.rates), none)
        ]
        assert found[0, 0] == pytest.approx(min(either), rel=1e-7)
        drawn = drawn_gains(given, policy[None], baseline, draws=200, seed=0, objectives=[1])
        assert abs(drawn.mean() - found[0, 0]) < 0.35 * drawn.std()
    assert given.rates[0].fixed == given.rates[0].worst


# ---- candidates, audit, answer


def test_models_for_candidates_have_the_events():
    data, baseline, o, _ = a_case()
    model, given = estimate_model(data, baseline=baseline), posterior(o)
    lower = with_events(model, given)
    rates = [rate.mean for rate in given.rates]
    there = np.isin(model.mdp.pair_action, [1, 2]) & (model.mdp.pair_state < 4)
    assert np.allclose(
        lower.mdp.transition.sum(axis=1)[there], (1.0 - rates[1]) * model.mdp.transition.sum(axis=1)[there]
    )
    assert np.all(lower.mdp.reward[0][model.mdp.pair_action == 1] < model.mdp.reward[0][model.mdp.pair_action == 1])
    mean = mean_model(given, lower)
    tried = np.zeros_like(baseline)
    tried.reshape(-1)[model.mdp.pair_index] = 1.0
    policy = baseline * tried / (baseline * tried).sum(axis=1, keepdims=True)
    assert np.allclose(expected_return(mean.mdp, policy), mean_returns(given, policy), rtol=1e-6)
    v = policy_values(mean.mdp, baseline)[0]
    wide = one_step_sd(o, model.mdp, v)
    narrow = one_step_sd(replace(o, events=()), model.mdp, v)
    applies = there | (model.mdp.pair_action == 1)
    assert np.array_equal(wide > narrow, np.array([applies, applies]))


def test_parts_of_a_log_keep_the_events_with_their_own_visits():
    _, _, o, _ = a_case()
    halves = thin_outcomes(o, 0)
    visits = [[rate.visits for rate in posterior(part).rates] for part in (*halves, o)]
    assert np.allclose(np.add(visits[0], visits[1]), visits[2])


@pytest.mark.parametrize("form", ["draws", "linearised"])
def test_a_declared_event_changes_the_verdict_and_is_in_the_answer(form):
    """Action 1 pays more. With an event that outweighs this, it is not safe any more."""
    data, baseline = noisy_log(noise=0.1, episodes=200)
    rewards = data.rewards.copy()
    rewards[:, 1] = np.where(data.actions == 1, 1.0, 0.0) + 0.01 * np.random.default_rng(0).normal(size=data.n_rows)
    data = replace(data, rewards=rewards)
    model = estimate_model(data, baseline=baseline)
    more = 0.5 * baseline + 0.5 * np.eye(4)[1]
    for rate, safe in ((1e-5, True), (0.02, False)):
        event = DeclaredEvent(name="fire", cost={"r1": -1000.0}, rate=rate, actions=[1])
        answer = judge(
            [more],
            gather_outcomes(data, events=[event]),
            baseline,
            Question(form=form, draws=60),
            model=model,
        )
        assert (answer.candidates[0].p_pessimistic[1] > 0.9) == safe
        assert answer.events[0].event is event
        assert answer.events[0].visits == np.count_nonzero(data.actions == 1)
        assert 0.0 < answer.events[0].mean < answer.events[0].worst <= rate


def test_candidates_avoid_a_declared_event():
    data, baseline = noisy_log(noise=0.1, episodes=200)
    rewards = data.rewards.copy()
    rewards[:, 0] += 3.0 * (data.actions == 1)
    data = replace(data, rewards=rewards)
    model = estimate_model(data, baseline=baseline)
    event = DeclaredEvent(name="fire", cost={"r0": -20_000.0}, rate=0.005, actions=[1])
    uses = []
    for events in ((), (event,)):
        found = b_opt(
            gather_outcomes(data, events=events),
            model,
            baseline,
            preference=[1.0, 0.0],
            question=Question(form="linearised"),
        )
        uses.append(np.mean([candidate.policy[:, 1].mean() for candidate in found.candidates]))
    assert uses[1] < 0.5 * uses[0]
