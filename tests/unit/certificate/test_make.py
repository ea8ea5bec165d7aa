"""Certificates made from tests and proofs: the numbers are theirs, and what was assumed is said."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bettersafe.certificate.make import certify, certify_h_opt, certify_theory, prove
from bettersafe.errors import ParameterError
from bettersafe.evaluation.bounds import lower_bound
from bettersafe.evaluation.held_out import paired_terms, safety_test
from bettersafe.logs.counts import count
from bettersafe.mdp.values import expected_return
from bettersafe.methods.h_opt import h_opt
from bettersafe.model import estimate_model
from evaluation_cases import held_out_case, safety_rule


def test_the_numbers_are_those_of_the_test():
    _, baseline, policy, _, held_out, model = held_out_case()
    made = certify(policy, baseline, held_out, safety_rule(), baseline_known=True, model=model)
    terms = paired_terms(policy, baseline, held_out, safety_rule(), model=model)
    assert [f.estimate for f in made.findings] == pytest.approx(terms.mean(axis=0))
    assert [f.lower_bound for f in made.findings] == pytest.approx(lower_bound(terms, 0.05, method="t"))
    assert {f.level for f in made.findings} == {0.05}
    full = certify(policy, baseline, held_out, safety_rule(levels="full"), baseline_known=True, model=model)
    assert {f.level for f in full.findings} == {0.1}
    assert all(f.lower_bound > g.lower_bound for f, g in zip(full.findings, made.findings, strict=True))
    assert made.grade == "approximate"


def test_thresholds_by_hand():
    """c ≤ L(J_b) + L(gain), each at δ/2: one threshold, so δ/2 for the baseline and δ/4 for each of two gains; with two
    thresholds δ/4 for each of the baseline's bounds."""
    _, baseline, policy, _, held_out, _ = held_out_case()
    pdis = safety_rule(estimator="pdis")
    time = np.concatenate([np.arange(n) for n in np.diff(held_out.episode_ptr)])
    returns = np.add.reduceat(0.8 ** time[:, None] * held_out.rewards, held_out.episode_ptr[:-1], axis=0)
    gain = lower_bound(paired_terms(policy, baseline, held_out, pdis), 0.025, method="t")
    expected = lower_bound(returns, 0.05, method="t")[0] + gain[0]
    two = certify(policy, baseline, held_out, pdis, baseline_known=True, thresholds=[0.0, 0.0])
    assert [f.baseline_bound for f in two.floors] == pytest.approx(lower_bound(returns, 0.025, method="t"))
    for threshold, kept in ((expected - 1e-6, True), (expected + 1e-6, False)):
        made = certify(policy, baseline, held_out, pdis, baseline_known=True, thresholds=[threshold, np.nan])
        (floor,) = made.floors
        assert floor.guaranteed == pytest.approx(expected)
        assert floor.passed is kept
        assert made.delta == 0.1
        assert {f.level for f in made.findings} == {0.025}
    with pytest.raises(ParameterError, match="thresholds must be 2"):
        certify(policy, baseline, held_out, pdis, baseline_known=True, thresholds=[1.0])
    # episodes that were cut off earn more than was logged: pdis can't say what, dr asks its model
    _, baseline, policy, _, held_out, model = held_out_case(horizon=2)
    cut = certify(policy, baseline, held_out, pdis, baseline_known=True, thresholds=[-1e9, np.nan])
    assert not cut.floors[0].passed
    assert (
        certify(policy, baseline, held_out, safety_rule(), baseline_known=True, model=model, thresholds=[-1e9, np.nan])
        .floors[0]
        .passed
    )


def test_grades_and_assumptions():
    _, baseline, policy, train, held_out, _model = held_out_case(horizon=2)
    ended = held_out_case()[4]
    ranges = {"reward_range": ([0.0, 0.0], [1.0, 1.0]), "return_range": ([0.0, 0.0], [5.0, 5.0])}
    for known, bound, estimator in itertools.product((True, False), ("t", "betting"), ("pdis", "is")):
        made = certify(
            policy,
            baseline,
            held_out,
            safety_rule(bound=bound, estimator=estimator, **ranges),
            baseline_known=known,
            tuning=train,
            thresholds=[0.1, 0.1],
        )
        assert made.grade == "approximate"  # episodes were cut off
        whole = certify(
            policy,
            baseline,
            ended,
            safety_rule(bound=bound, estimator=estimator, **ranges),
            baseline_known=known,
            tuning=train,
        )
        assert whole.grade == ("finite-sample" if known and bound == "betting" else "approximate")
        text = " ".join(made.assumptions)
        assert ("was estimated" in text) is not known
        assert "are truncated" in text
        assert ("declared ranges" in text) is (bound == "betting")
    assert "linearised" in " ".join(
        certify(policy, baseline, held_out, safety_rule(estimator="wis"), baseline_known=True).assumptions
    )
    with pytest.raises(ParameterError, match="needs separate episodes"):
        certify(policy, baseline, held_out, safety_rule(bound="betting", estimator="is", **ranges), baseline_known=True)
    with pytest.raises(ParameterError, match="0 or more"):
        safety_rule(zeta=np.array([-1.0, 0.0]))


def test_what_the_baseline_never_does_is_not_certified():
    """The estimate would be blind to the action that nobody took, so the verdict may not lean on it."""
    _, baseline, _, _, held_out, _model = held_out_case()
    narrow = baseline.copy()
    narrow[:, 2] = 0.0
    narrow /= narrow.sum(axis=1, keepdims=True)
    rows = held_out.actions != 2
    assert not rows.all()
    keep = [i for i in range(held_out.n_episodes) if rows[slice(*held_out.episode_ptr[i : i + 2])].all()]
    from bettersafe.logs.dataset import take_episodes

    few = take_episodes(held_out, keep)
    policy = np.tile([0.0, 0.0, 1.0], (5, 1))
    test = safety_test(policy, narrow, few, safety_rule(estimator="is", zeta=np.full(2, 1e9)))
    assert test.unsupported == pytest.approx(1.0)
    assert not test.passed
    made = certify(policy, narrow, few, safety_rule(estimator="is", zeta=np.full(2, 1e9)), baseline_known=True)
    assert not made.accepted
    # h_opt proposes nothing there
    result = h_opt(few, few, narrow, preference=[1.0, 0.0])
    assert np.all(result.improvement.policy[:, 2] == 0.0)


def test_of_h_opt():
    _, baseline, _, train, held_out, _ = held_out_case(episodes=4000)
    found = h_opt(train, held_out, baseline, preference=[1.0, 1.0])
    made = certify_h_opt(found, held_out, baseline_known=True, seed=3)
    assert made.accepted is found.accepted is True
    assert made.evidence == "safety-test"
    assert [f.lower_bound for f in made.findings] == pytest.approx(found.deciding.bound)
    assert made.settings["mix"] == found.mix
    loose = certify_h_opt(
        h_opt(train, held_out, baseline, preference=[1.0, 1.0], selection="paper"), held_out, baseline_known=True
    )
    assert "may exceed" in " ".join(loose.assumptions)
    nothing = h_opt(train, held_out, baseline, preference=[0.0, 0.0])
    with pytest.raises(ParameterError, match="nothing to certify"):
        certify_h_opt(nothing, held_out, baseline_known=True)


def test_a_policy_that_is_truly_worse_is_refused():
    """The worst of many policies is certified in none of 40 worlds; if any loss were accepted it would be in nearly all of
    them, but for a few where the weights rest on too few episodes."""
    refused = hoped = 0
    for seed in range(40):
        truth, baseline, _, _, held_out, model = held_out_case(seed, episodes=400)
        rng = np.random.default_rng(seed)
        policies = [0.5 * baseline + 0.5 * rng.dirichlet(np.full(3, 0.3), size=5) for _ in range(30)]
        gains = [expected_return(truth, p) - expected_return(truth, baseline) for p in policies]
        worst = int(np.argmin([g.min() for g in gains]))
        assert gains[worst].min() < 0.0
        made = certify(policies[worst], baseline, held_out, safety_rule(), baseline_known=True, model=model)
        refused += not made.accepted
        hoped += certify(
            policies[worst], baseline, held_out, safety_rule(zeta=np.full(2, 1e9)), baseline_known=True, model=model
        ).accepted
    assert refused == 40
    assert hoped >= 30


def test_theory():
    _, baseline, policy, train, _, model = held_out_case()
    counts = count(train)
    edges = (np.zeros(2), np.ones(2))
    theory = prove(model, policy, baseline, counts, epsilon=1.0, delta=0.1, baseline_known=True, reward_range=edges)
    assert [p.return_range for p in theory.proofs] == pytest.approx([5.0, 5.0])
    assert [p.proposition_loss for p in theory.proofs] == pytest.approx([25.0, 25.0])
    assert not theory.proofs[0].proposition_informative
    made = certify_theory(theory, np.array([1.0, 2.0]), zeta=[0.0, 0.0], counts=counts)
    assert made.grade == "finite-sample"
    assert not made.accepted
    assert [f.lower_bound for f in made.findings] == [p.gain_at_least for p in theory.proofs]
    still = prove(model, baseline, baseline, counts, epsilon=0.0, delta=0.05, baseline_known=False)
    assert certify_theory(still, np.zeros(2), zeta=[0.0, 0.0], counts=counts).accepted
    floors = certify_theory(still, np.zeros(2), zeta=[0.0, 0.0], thresholds=[0.2, np.nan], counts=counts)
    width = float(still.proofs[0].return_range)
    hoeffding = counts.return_sum[0] / counts.n_episodes - width * np.sqrt(np.log(1 / 0.05) / (2 * counts.n_episodes))
    assert floors.floors[0].guaranteed == pytest.approx(hoeffding)
    assert floors.delta == pytest.approx(0.1)
    assert floors.grade == "approximate"


def test_a_certificate_says_of_which_steps_it_is():
    """Episodes of at most 4 steps: up to step 3 nothing is missing; up to 6, or without a limit, pdis has the logged steps only."""
    edges = {"reward_range": (np.zeros(2), np.ones(2))}
    _, baseline, policy, train, held_out, _ = held_out_case(horizon=4)

    def made(horizon, estimator="pdis"):
        model = estimate_model(train, horizon=horizon) if estimator == "dr" else None
        rule = safety_rule(estimator=estimator, bound="t" if model else "betting", horizon=horizon, **edges)
        return certify(policy, baseline, held_out, rule, baseline_known=True, tuning=train, model=model)

    first = made(3)
    assert (first.horizon, first.complete, first.grade) == (3, True, "finite-sample")
    assert not any("truncated" in text for text in first.assumptions)
    assert "in the first 3 steps" in first.verdict
    later = made(6)
    assert (later.complete, later.grade) == (False, "approximate")
    assert any("are truncated before step 6; their later rewards are left out" in text for text in later.assumptions)
    assert "in the logged steps only" in later.verdict
    assert not made(None).complete
    assert made(None, "dr").complete
    assert made(6, "dr").complete
    assert " steps" not in made(None, "dr").verdict


def test_bounds_from_the_counts_say_nothing_at_discount_1():
    from dataclasses import replace

    _, baseline, policy, train, _, _ = held_out_case()
    counts = count(replace(train, objectives=(replace(train.objectives[0], discount=1.0), train.objectives[1])))
    model = estimate_model(counts)
    theory = prove(model, policy, baseline, counts, epsilon=1.0, delta=0.1, baseline_known=True)
    whole, other = theory.proofs
    assert (whole.proposition_loss, whole.proven_loss, whole.return_range) == (np.inf, np.inf, np.inf)
    assert not whole.informative
    assert not whole.proposition_informative
    assert np.isfinite(other.proven_loss)
    made = certify_theory(theory, np.zeros(2), zeta=[0.0, 0.0], thresholds=[-1e9, np.nan], counts=counts)
    assert made.findings[0].lower_bound == -np.inf
    assert not made.floors[0].passed


def test_what_was_never_seen_and_what_changes_nothing_does_not_pass():
    """An action that the baseline may take but nobody ever took; a policy that differs only where no episode goes."""
    _, baseline, _, train, held_out, _ = held_out_case()
    from bettersafe.logs.dataset import take_episodes

    def without(data):
        rows = data.actions != 2
        keep = [i for i in range(data.n_episodes) if rows[slice(*data.episode_ptr[i : i + 2])].all()]
        return take_episodes(data, keep)

    train, held_out = without(train), without(held_out)
    model = estimate_model(train)
    generous = safety_rule(zeta=np.full(2, 1e9))
    odd = np.tile([0.0, 0.0, 1.0], (5, 1))
    test = safety_test(odd, baseline, held_out, generous, model=model)
    assert test.unseen > 0.5
    assert "have no data" in test.refusal
    assert not certify(odd, baseline, held_out, generous, baseline_known=True, model=model).accepted
    result = h_opt(train, held_out, baseline, preference=[1.0, 0.0])
    assert np.all(result.improvement.policy[:, 2] <= baseline[:, 2])

    same = safety_test(baseline, baseline, held_out, safety_rule(), model=model)
    assert np.all(np.isneginf(same.bound))
    assert not same.passed
