"""Judging candidates by the posterior: it follows the rule, and other priors are asked as anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from bettersafe.errors import ParameterError
from bettersafe.mdp.values import expected_return, policy_values
from bettersafe.model import estimate_model
from bettersafe.posterior.draws import drawn_gains
from bettersafe.posterior.habits import informed
from bettersafe.posterior.judge import (
    SENSITIVITY,
    Doubt,
    Question,
    baseline_covariance,
    form_for,
    judge,
    other_priors,
    sensitivity,
)
from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.priors import PriorSet, posterior
from posterior_cases import noisy_log, random_case, s_opt_policies, same_candidate

FAST = Question(draws=60)


def test_priors_and_questions_are_checked_when_they_are_made():
    with pytest.raises(ParameterError, match="prior must be"):
        PriorSet(neutral="flat")
    for wrong in ({"pessimism": -1.0}, {"pessimism": np.nan}, {"concentration_scale": 0.0}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            PriorSet(**wrong)
    for wrong, what in (({"delta": 0.0}, "delta"), ({"form": "quick"}, "form must be")):
        with pytest.raises(ParameterError, match=what):
            Question(**wrong)
    with pytest.raises(ParameterError, match="zeta"):
        Question(zeta=[0.0, 0.0]).losses(3)
    assert PriorSet().names(["a", "b"]) == (
        "hierarchical", "hierarchical, pessimistic for a", "hierarchical, pessimistic for b",
    )  # fmt: skip
    assert PriorSet(neutral="support", pessimism=0.0).names(["a", "b"]) == ("support",)


def test_sensitivity_starts_from_the_priors_that_were_asked():
    asked = PriorSet(pessimism=3.0, concentration_scale=0.5)
    assert [(priors.pessimism, priors.concentration_scale) for _, priors in other_priors(asked)] == [
        (0.0, 0.5), (1.0, 0.5), (2.0, 0.5), (3.0, 0.25), (3.0, 1.0),
    ]  # fmt: skip
    assert [name for name, _ in other_priors(PriorSet(neutral="support"))] == [
        "without pessimism", "two bad visits of every pair",
    ]  # fmt: skip


def test_judging_follows_the_rule():
    """What is said of a policy, counted again from the draws themselves."""
    o, model, baseline = random_case(1)
    policies = [*s_opt_policies(model, baseline, (0.3, 3.0)), np.roll(baseline, 1, axis=1)]
    result = judge(policies, o, baseline, Question(draws=99, seed=4), model=model)
    neutral = informed(o, PriorSet(), baseline)
    gains = drawn_gains(neutral, np.array(policies), baseline, draws=99, seed=4)
    assert len(result.priors) == 3
    for i, candidate in enumerate(result.candidates):
        failures = int(np.sum(np.any(gains[:, i] < 0.0, axis=1)))
        assert candidate.p_safe == pytest.approx(1 - failures / 99)
        assert candidate.p_objective == pytest.approx(np.mean(gains[:, i] >= 0.0, axis=0))
        assert candidate.gain == pytest.approx(gains[:, i].mean(axis=0))
        assert candidate.least == pytest.approx(np.sort(gains[:, i], axis=0)[9])
        assert candidate.draws == 99
        pessimistic = 99 * np.sum(1.0 - candidate.p_pessimistic)
        assert candidate.passed == (failures + 1 <= 10 and round(pessimistic) + 1 <= 10)
    assert {candidate.passed for candidate in result.candidates} == {True, False}


@pytest.mark.parametrize(
    ("p_safe", "pessimistic", "draws", "left"),
    [
        (1.0, [np.nan, np.nan], 199, True),
        (1.0, [0.95, np.nan], 199, True),
        (1.0, [0.8, np.nan], 199, False),  # it failed before the rest was asked
        (0.8, [np.nan, np.nan], 199, False),
        (1.0, [np.nan, np.nan], 50, False),  # it could not pass any more
        (1.0, [1.0, 1.0], 199, False),  # judged to the end
    ],
)
def test_what_was_left_for_a_better_candidate_is_known_by_its_draws(p_safe, pessimistic, draws, left):
    o, model, baseline = random_case(3)
    answer = judge([baseline], o, baseline, Question(draws=199), model=model)
    candidate = replace(answer.candidates[0], p_safe=p_safe, p_pessimistic=np.array(pessimistic), draws=draws)
    assert answer.left_open(candidate) is left


def test_zeta_is_the_loss_that_is_accepted():
    o, model, baseline = random_case(2)
    worst = posterior(o).pair_reward[1].reshape(-1, 3).argmin(axis=1)
    worse = np.eye(3)[worst]

    def asked(zeta=None):
        return judge([worse], o, baseline, Question(draws=50, zeta=zeta), model=model).candidates[0]

    strict = asked()
    loss = -float(
        drawn_gains(informed(o, PriorSet(), baseline), worse[None], baseline, draws=50, seed=0)[:, 0, 1].min()
    )
    assert loss > 0.0
    assert strict.p_objective[1] < 1.0
    lenient = asked([0.0, loss + 1e-9])
    assert lenient.p_objective[1] == 1.0
    assert lenient.p_objective[0] == strict.p_objective[0]
    almost = asked([0.0, loss - 1e-6])
    assert almost.p_objective[1] == 1.0 - 1 / 50
    everything = asked([1e9, 1e9])
    assert everything.passed


def test_sensitivity_names_other_priors():
    o, model, baseline = random_case(12)
    (policy,) = s_opt_policies(model, baseline, (0.3,))
    found = sensitivity(policy, o, baseline, Question(draws=40), model=model)
    names = ["without pessimism", "two bad visits of every pair", "half the concentration", "twice the concentration"]
    assert [result.priors[0] for result in found] == names  # one bad visit is what was used
    assert [result.question.priors.pessimism for result in found] == [0.0, 2.0, 1.0, 1.0]
    plain = sensitivity(policy, o, baseline, Question(draws=40, priors=PriorSet(pessimism=0.0)), model=model)
    assert [result.question.priors.pessimism for result in plain] == [1.0, 2.0, 0.0, 0.0]
    assert len(found[0].priors) == 1
    assert found[0].candidates[0].p_pessimistic.tolist() == [1.0, 1.0]
    less, more = found[2].concentration, found[3].concentration
    assert more == pytest.approx(4.0 * less)


@pytest.mark.parametrize("form", ["draws", "linearised"])
@pytest.mark.parametrize("pessimism", [0.0, 1.0, 3.0])
def test_sensitivity_is_what_judging_anew_says(form, pessimism):
    """What is known of the neutral prior is not asked again, and the numbers are the same to the bit."""
    o, model, baseline = random_case(12)
    (policy,) = s_opt_policies(model, baseline, (0.3,))
    question = Question(draws=40, seed=3, form=form, priors=PriorSet(pessimism=pessimism))
    used = judge([policy], o, baseline, question, model=model)
    heard = []
    for known in (None, used.candidates[0]):
        heard.append([])
        found = sensitivity(
            policy,
            o,
            baseline,
            question,
            model=model,
            known=known,
            baseline_v=None if known is None else policy_values(model.mdp, baseline)[0],
            progress=heard[-1].append,
        )
        for result in found:
            more, factor = next((more, factor) for name, more, factor in SENSITIVITY if name == result.priors[0])
            more = pessimism if more is None else more
            other = PriorSet(pessimism=more, concentration_scale=factor)
            anew = judge([policy], o, baseline, replace(question, priors=other), model=model)
            assert same_candidate(result.candidates[0], anew.candidates[0])
            assert result.concentration == anew.concentration
            assert result.question.priors == other
    for told in heard:
        assert [step.done for step in told] == sorted(step.done for step in told)
        assert {step.total for step in told} == {told[-1].done}  # it ends when all is done
    one_prior = 40 if form == "draws" else 1
    assert heard[0][-1].total - heard[1][-1].total == one_prior


def test_an_objective_that_no_action_changes_is_not_lost_on():
    """Its gains are rounding, of either sign; they must not decide."""
    o, model, baseline = random_case(3, tied=False)
    (policy,) = s_opt_policies(model, baseline, (0.3,))
    flat = replace(o, pair_reward=np.vstack([o.pair_reward[0], np.full(o.pair_reward.shape[1], 0.1)]))
    flat = replace(
        flat, pair_noise=np.vstack([o.pair_noise[0], np.zeros(o.pair_noise.shape[1])]), noisy=o.noisy & [True, False]
    )
    moments = tuple(
        replace(
            each,
            mean=np.vstack([each.mean[0], np.full(each.mean.shape[1], 0.0 if place else 0.1)]),
            spread=np.vstack([each.spread[0], np.zeros(each.spread.shape[1])]),
        )
        for place, each in enumerate(o.moments)
    )
    same = replace(
        flat, outcome_reward=np.zeros_like(o.outcome_reward), count=1e9 * o.count, effects=(), moments=moments
    )
    found = judge([policy], same, baseline, FAST, model=model).candidates[0]
    assert abs(found.gain[1]) < 0.1
    nothing = judge([baseline * (1.0 - 1e-12) + policy * 1e-12], same, baseline, FAST, model=model)
    assert nothing.candidates[0].p_safe == 1.0


def test_the_form_follows_from_the_size():
    assert form_for("auto", 1_000_000, 2, draws=200) == "draws"
    assert form_for("auto", 10_000_000, 2, draws=200) == "linearised"
    assert form_for("auto", 1_000_000, 40, draws=200) == "linearised"
    assert form_for("draws", 10**9, 2, draws=200) == "draws"
    assert form_for("linearised", 10, 2, draws=200) == "linearised"
    with pytest.raises(ParameterError, match="form must be"):
        form_for("quick", 10, 2, draws=200)


def test_both_forms_agree_where_the_log_says_enough():
    """The same policies pass but for those at the edge, and probabilities are near."""
    differ = []
    for seed in range(6):
        data, baseline = noisy_log(seed, episodes=150, noise=0.1)
        outcomes, model = gather_outcomes(data), estimate_model(data)
        rng = np.random.default_rng(seed)
        greedy = np.eye(4)[rng.integers(4, size=12)]
        policies = [(1.0 - mix) * baseline + mix * greedy for mix in (0.1, 0.5)]
        policies += s_opt_policies(model, baseline, (0.03, 0.1, 0.3, 1.0, 3.0))
        drawn = judge(policies, outcomes, baseline, Question(draws=400), model=model)
        quick = judge(policies, outcomes, baseline, Question(form="linearised"), model=model)
        assert quick.linearised
        assert not drawn.linearised
        for one, other in zip(quick.candidates, drawn.candidates, strict=True):
            differ.append(abs(one.p_safe - other.p_safe))
            edge = min(abs(p - 0.9) for p in (other.p_safe, 1.0 - np.sum(1.0 - other.p_pessimistic)))
            assert one.passed == other.passed or edge < 0.05
    assert np.mean(differ) < 0.03
    assert max(differ) < 0.15


DOUBT = Doubt(
    optimism=np.array([[0.05, 0.02]]), error=np.array([[0.03, 0.0]]), widening=1.4, baseline=0.001 * np.eye(2)
)


def test_linearised_probabilities_follow_the_formula():
    o, model, baseline = random_case(1, tied=False)
    (policy,) = s_opt_policies(model, baseline, (0.3,))
    mean, covariance = linearised_gains(informed(o, PriorSet(), baseline), policy[None], baseline)
    found = judge([policy], o, baseline, Question(form="linearised"), model=model, doubt=DOUBT).candidates[0]
    sd = np.sqrt(1.4**2 * np.diagonal(covariance[0]) + 0.001)
    gain = mean[0] - DOUBT.optimism[0]
    assert found.gain == pytest.approx(gain)
    assert found.p_objective == pytest.approx(norm.cdf(gain / sd), abs=1e-6)
    assert found.least == pytest.approx(gain - norm.ppf(0.9) * sd)
    assert found.interval == pytest.approx(np.array([gain - norm.ppf(0.95) * sd, gain + norm.ppf(0.95) * sd]))
    assert found.optimism == pytest.approx(DOUBT.optimism[0])
    plain = judge([policy], o, baseline, Question(form="linearised"), model=model).candidates[0]
    assert np.all(found.p_pessimistic < plain.p_pessimistic)
    assert plain.optimism is None


def test_draws_follow_the_formula():
    """Draws with doubt have the moments of draws without it, shifted and widened."""
    o, model, baseline = random_case(1, tied=False)
    (policy,) = s_opt_policies(model, baseline, (0.3,))
    question = Question(form="draws", draws=3000)
    plain, found = (
        judge([policy], o, baseline, question, model=model, doubt=doubt).candidates[0] for doubt in (Doubt(), DOUBT)
    )
    sd = np.ptp(plain.interval, axis=0) / (2.0 * norm.ppf(0.95))
    expected = np.sqrt(1.4**2 * sd**2 + 0.001)
    assert found.gain == pytest.approx(plain.gain - DOUBT.optimism[0], abs=0.1 * expected.max())
    assert np.ptp(found.interval, axis=0) / (2.0 * norm.ppf(0.95)) == pytest.approx(expected, rel=0.08)
    quick = judge([policy], o, baseline, Question(form="linearised"), model=model, doubt=DOUBT).candidates[0]
    assert found.p_objective == pytest.approx(quick.p_objective, abs=0.06)


@pytest.mark.parametrize("form", ["draws", "linearised"])
def test_an_objective_that_never_changes_is_safe(form):
    o, model, baseline = random_case(3, n_objectives=1)
    policy = 0.5 * baseline + 0.5 * np.roll(baseline, 1, axis=1)
    flat = {
        "outcome_reward": np.zeros_like(o.outcome_reward),
        "pair_reward": np.zeros_like(o.pair_reward),
        "rare_reward": np.zeros_like(o.rare_reward),
        "effects": (),
        "moments": (),
        "least_reward": np.zeros(1),
    }
    model = replace(model, mdp=replace(model.mdp, reward=np.zeros_like(model.mdp.reward)))
    still = replace(o, **flat, pair_noise=np.zeros_like(o.pair_noise), noisy=np.zeros(1, dtype=bool))
    found = judge([policy], still, baseline, Question(form=form, draws=60), model=model, doubt=Doubt(widening=1.15))
    assert found.candidates[0].p_safe == 1.0
    assert found.candidates[0].p_pessimistic.tolist() == [1.0]
    assert found.candidates[0].passed


def test_the_covariance_of_an_estimated_baseline_is_that_of_estimating_it_again():
    """Against returns of baselines estimated from simulated decisions, as many in each state as the log has."""
    _, model, baseline = random_case(6, episodes=400)
    visits = np.zeros_like(baseline)
    visits.reshape(-1)[model.mdp.pair_index] = model.counts
    n = visits.sum(axis=1).astype(int)
    rng = np.random.default_rng(0)
    returns = []
    for _ in range(2000):
        again = np.array([rng.multinomial(size, row) / size for size, row in zip(n, baseline, strict=True)])
        returns.append(expected_return(model.mdp, again))
    real = np.cov(np.transpose(returns))
    found = baseline_covariance(model, baseline, visits)
    assert found == pytest.approx(real, abs=0.12 * np.max(np.abs(real)))
