"""Certificates: they fail closed, say what they rest on, and survive the way to a file and back."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from bettersafe.certificate.certificate import Certificate, Finding, Floor, Proof, Theory
from bettersafe.certificate.files import certificate_from_json, certificate_json
from bettersafe.certificate.make import certify, certify_h_opt, certify_theory, prove, return_range
from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.errors import ParameterError, RunError
from bettersafe.evaluation.bounds import lower_bound
from bettersafe.evaluation.held_out import SafetyRule, paired_terms, safety_test
from bettersafe.logs.counts import count
from bettersafe.logs.dataset import split
from bettersafe.mdp.values import expected_return
from bettersafe.methods.h_opt import h_opt
from bettersafe.methods.s_opt import s_opt
from bettersafe.model import estimate_model


def finding(bound=0.1, zeta=0.0, name="a"):
    return Finding(objective=name, estimate=0.2, lower_bound=bound, level=0.05, zeta=zeta)


def certificate(*findings, **more):
    settings = {"evidence": "held-out", "grade": "approximate", "assumptions": ("x",), "delta": 0.1, **more}
    return Certificate(findings=findings, **settings)


def test_it_fails_closed():
    assert certificate(finding()).accepted
    assert certificate(finding(0.0), finding(-0.1, zeta=0.1)).accepted
    for bound in (-1e-12, -math.inf, math.nan):
        refused = certificate(finding(), finding(bound, name="b"))
        assert not refused.accepted
        assert "on b" in refused.verdict
        assert "on a" not in refused.verdict
    assert not certificate(finding(math.nan, zeta=math.inf)).accepted
    assert not certificate(finding(zeta=math.nan)).accepted
    assert not certificate(finding(), unsupported=0.01).accepted
    assert not certificate(finding(), unsupported=math.nan).accepted
    with pytest.raises(ParameterError, match="at least one objective"):
        certificate()
    with pytest.raises(ParameterError, match="what it rests on"):
        certificate(finding(), assumptions=())


def test_thresholds_are_kept_or_no_solution_is_found():
    def floor(guaranteed):
        return Floor(objective="a", threshold=1.0, baseline_bound=0.9, guaranteed=guaranteed, level=0.05)

    assert certificate(finding(), floors=(floor(1.0),)).accepted
    assert floor(1.5).shortfall == 0.0
    short = certificate(finding(), floors=(floor(0.75),))
    assert not short.accepted
    assert short.verdict.startswith("No solution found")
    assert "a by 0.25" in short.verdict
    assert not certificate(finding(), floors=(floor(math.nan),)).accepted
    assert math.isnan(floor(math.nan).shortfall)


def test_verdicts_say_what_they_mean():
    assert "(approximately)" in certificate(finding()).verdict
    assert "approximately" not in certificate(finding(), grade="finite-sample").verdict
    assert "90 %" in certificate(finding()).verdict
    assert "at most a 0.1" in certificate(finding(-0.05, zeta=0.1)).verdict
    assert "never takes" in " ".join(certificate(finding(), unsupported=0.02).verdict.split())
    assert "Not certified" in certificate(finding(-5.0), evidence="theory").verdict


@pytest.mark.parametrize("bound", [0.25, -math.inf, math.nan])
def test_there_and_back(bound):
    theory = Theory(
        proofs=(Proof(objective="a", proposition_loss=math.inf, proven_loss=3.0, return_range=10.0, share_safe=0.5),),
        delta=0.1,
        baseline_known=False,
        range_known=True,
    )
    floor = Floor(objective="a", threshold=1.0, baseline_bound=2.0, guaranteed=bound, level=0.1)
    made = certificate(
        finding(bound), theory=theory, floors=(floor,), diagnostics={"ess": math.inf}, settings={"folds": None}, seed=7
    )
    document = json.loads(json.dumps(certificate_json(made), allow_nan=False))
    again = certificate_from_json(document, "c.json")
    assert certificate_json(again) == document
    assert repr(again.findings) == repr(made.findings)
    assert again.theory == theory
    assert document["theory"]["objectives"][0]["proposition"] == "uninformative"
    assert document["theory"]["objectives"][0]["proof"] == "informative"
    for key in ("objectives", "assumptions", "grade"):
        with pytest.raises(RunError, match="not complete"):
            certificate_from_json({k: v for k, v in document.items() if k != key}, "c.json")
    with pytest.raises(RunError, match="does not follow"):
        certificate_from_json({**document, "accepted": not document["accepted"]}, "c.json")
    with pytest.raises(RunError, match="schema 'certificate/9'"):
        certificate_from_json({**document, "schema": "certificate/9"}, "c.json")
    with pytest.raises(RunError, match="schema None"):
        certificate_from_json([], "c.json")


def a_case(seed=0, episodes=600, *, horizon=None):
    rng = np.random.default_rng(seed)
    world = garnet(rng, n_states=5, n_actions=3, end=0.4, discount=0.8)
    baseline = rng.dirichlet(np.full(3, 4.0), size=5)
    data = sample_episodes(world, baseline, episodes, rng, horizon=horizon)
    train, held_out = split(data, (0.5, 0.5), rng)
    model = estimate_model(train)
    policy = s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy
    return true_mdp(world), baseline, policy, train, held_out, model


def rule(**more):
    return SafetyRule(**{"delta": 0.1, "zeta": np.zeros(2), **more})


def test_the_numbers_are_those_of_the_test():
    _, baseline, policy, _, held_out, model = a_case()
    made = certify(policy, baseline, held_out, rule(), baseline_known=True, model=model)
    terms = paired_terms(policy, baseline, held_out, rule(), model=model)
    assert [f.estimate for f in made.findings] == pytest.approx(terms.mean(axis=0))
    assert [f.lower_bound for f in made.findings] == pytest.approx(lower_bound(terms, 0.05, method="t"))
    assert {f.level for f in made.findings} == {0.05}
    full = certify(policy, baseline, held_out, rule(levels="full"), baseline_known=True, model=model)
    assert {f.level for f in full.findings} == {0.1}
    assert all(f.lower_bound > g.lower_bound for f, g in zip(full.findings, made.findings, strict=True))
    assert made.grade == "approximate"


def test_thresholds_by_hand():
    """c ≤ L(J_b) + L(gain), each at δ/2: one threshold, so δ/2 for the baseline and δ/4 for each of two gains; with two
    thresholds δ/4 for each of the baseline's bounds."""
    _, baseline, policy, _, held_out, _ = a_case()
    pdis = rule(estimator="pdis")
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
    with pytest.raises(ParameterError, match="thresholds need 2"):
        certify(policy, baseline, held_out, pdis, baseline_known=True, thresholds=[1.0])
    # episodes that were cut off earn more than was logged: pdis can't say what, dr asks its model
    _, baseline, policy, _, held_out, model = a_case(horizon=2)
    cut = certify(policy, baseline, held_out, pdis, baseline_known=True, thresholds=[-1e9, np.nan])
    assert not cut.floors[0].passed
    assert (
        certify(policy, baseline, held_out, rule(), baseline_known=True, model=model, thresholds=[-1e9, np.nan])
        .floors[0]
        .passed
    )


def test_grades_and_assumptions():
    _, baseline, policy, train, held_out, _model = a_case(horizon=2)
    ended = a_case()[4]
    ranges = {"reward_range": ([0.0, 0.0], [1.0, 1.0]), "return_range": ([0.0, 0.0], [5.0, 5.0])}
    for known, bound, estimator in itertools.product((True, False), ("t", "betting"), ("pdis", "is")):
        made = certify(
            policy,
            baseline,
            held_out,
            rule(bound=bound, estimator=estimator, **ranges),
            baseline_known=known,
            tuning=train,
            thresholds=[0.1, 0.1],
        )
        assert made.grade == "approximate"  # episodes were cut off
        whole = certify(
            policy,
            baseline,
            ended,
            rule(bound=bound, estimator=estimator, **ranges),
            baseline_known=known,
            tuning=train,
        )
        assert whole.grade == ("finite-sample" if known and bound == "betting" else "approximate")
        text = " ".join(made.assumptions)
        assert ("was estimated" in text) is not known
        assert "were cut off" in text
        assert ("declared ranges" in text) is (bound == "betting")
    assert "linearised" in " ".join(
        certify(policy, baseline, held_out, rule(estimator="wis"), baseline_known=True).assumptions
    )
    with pytest.raises(ParameterError, match="needs other episodes"):
        certify(policy, baseline, held_out, rule(bound="betting", estimator="is", **ranges), baseline_known=True)
    with pytest.raises(ParameterError, match="0 or more"):
        rule(zeta=np.array([-1.0, 0.0]))


def test_what_the_baseline_never_does_is_not_certified():
    """The estimate would be blind to the action that nobody took, so the verdict may not lean on it."""
    _, baseline, _, _, held_out, _model = a_case()
    narrow = baseline.copy()
    narrow[:, 2] = 0.0
    narrow /= narrow.sum(axis=1, keepdims=True)
    rows = held_out.actions != 2
    assert not rows.all()
    keep = [i for i in range(held_out.n_episodes) if rows[slice(*held_out.episode_ptr[i : i + 2])].all()]
    from bettersafe.logs.dataset import take_episodes

    few = take_episodes(held_out, keep)
    policy = np.tile([0.0, 0.0, 1.0], (5, 1))
    test = safety_test(policy, narrow, few, rule(estimator="is", zeta=np.full(2, 1e9)))
    assert test.unsupported == pytest.approx(1.0)
    assert not test.passed
    made = certify(policy, narrow, few, rule(estimator="is", zeta=np.full(2, 1e9)), baseline_known=True)
    assert not made.accepted
    # h_opt proposes nothing there
    result = h_opt(few, few, narrow, preference=[1.0, 0.0])
    assert np.all(result.improvement.policy[:, 2] == 0.0)


def test_of_h_opt():
    _, baseline, _, train, held_out, _ = a_case(episodes=4000)
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
        truth, baseline, _, _, held_out, model = a_case(seed, episodes=400)
        rng = np.random.default_rng(seed)
        policies = [0.5 * baseline + 0.5 * rng.dirichlet(np.full(3, 0.3), size=5) for _ in range(30)]
        gains = [expected_return(truth, p) - expected_return(truth, baseline) for p in policies]
        worst = int(np.argmin([g.min() for g in gains]))
        assert gains[worst].min() < 0.0
        made = certify(policies[worst], baseline, held_out, rule(), baseline_known=True, model=model)
        refused += not made.accepted
        hoped += certify(
            policies[worst], baseline, held_out, rule(zeta=np.full(2, 1e9)), baseline_known=True, model=model
        ).accepted
    assert refused == 40
    assert hoped >= 30


def test_theory():
    _, baseline, policy, train, _, model = a_case()
    counts = count(train)
    edges = (np.zeros(2), np.ones(2))
    theory = prove(model, policy, baseline, counts, epsilon=1.0, delta=0.1, baseline_known=True, reward_range=edges)
    assert [p.return_range for p in theory.proofs] == pytest.approx([5.0, 5.0])
    assert [p.proposition_loss for p in theory.proofs] == pytest.approx([25.0, 25.0])
    assert not theory.proofs[0].proposition_informative
    made = certify_theory(theory, np.array([1.0, 2.0]), zeta=[0.0, 0.0], counts=counts)
    assert made.grade == "finite-sample"
    assert not made.accepted
    assert [f.lower_bound for f in made.findings] == [-p.proven_loss for p in theory.proofs]
    still = prove(model, baseline, baseline, counts, epsilon=0.0, delta=0.05, baseline_known=False)
    assert certify_theory(still, np.zeros(2), zeta=[0.0, 0.0], counts=counts).accepted
    floors = certify_theory(still, np.zeros(2), zeta=[0.0, 0.0], thresholds=[0.2, np.nan], counts=counts)
    width = float(still.proofs[0].return_range)
    hoeffding = counts.return_sum[0] / counts.n_episodes - width * np.sqrt(np.log(1 / 0.05) / (2 * counts.n_episodes))
    assert floors.floors[0].guaranteed == pytest.approx(hoeffding)
    assert floors.delta == pytest.approx(0.1)
    assert floors.grade == "approximate"


def test_return_range_holds_for_every_length():
    low, high, discount = np.array([-1.0, 0.5, -2.0]), np.array([2.0, 1.0, -1.0]), np.array([0.9, 0.5, 0.8])
    least, most = return_range(low, high, discount)
    rng = np.random.default_rng(0)
    for length in (1, 2, 5, 50):
        for rewards in (low, high, *rng.uniform(low, high, (20, 3))):
            total = sum(discount**t * rewards for t in range(length))
            assert np.all((least - 1e-12 <= total) & (total <= most + 1e-12))


def test_what_was_never_seen_and_what_changes_nothing_does_not_pass():
    """An action that the baseline may take but nobody ever took; a policy that differs only where no episode goes."""
    _, baseline, _, train, held_out, _ = a_case()
    from bettersafe.logs.dataset import take_episodes

    def without(data):
        rows = data.actions != 2
        keep = [i for i in range(data.n_episodes) if rows[slice(*data.episode_ptr[i : i + 2])].all()]
        return take_episodes(data, keep)

    train, held_out = without(train), without(held_out)
    model = estimate_model(train)
    generous = rule(zeta=np.full(2, 1e9))
    odd = np.tile([0.0, 0.0, 1.0], (5, 1))
    test = safety_test(odd, baseline, held_out, generous, model=model)
    assert test.unseen > 0.5
    assert "no data has" in test.refusal
    assert not certify(odd, baseline, held_out, generous, baseline_known=True, model=model).accepted
    result = h_opt(train, held_out, baseline, preference=[1.0, 0.0])
    assert np.all(result.improvement.policy[:, 2] <= baseline[:, 2])

    same = safety_test(baseline, baseline, held_out, rule(), model=model)
    assert np.all(np.isneginf(same.bound))
    assert not same.passed


def test_weights_on_a_few_episodes_do_not_pass():
    _, baseline, _, _, held_out, model = a_case(episodes=200)
    sharp = np.eye(3)[np.argmin(baseline, axis=1)]
    test = safety_test(0.02 * baseline + 0.98 * sharp, baseline, held_out, rule(zeta=np.full(2, 1e9)), model=model)
    assert test.few_effective_episodes
    assert not test.passed
    assert "too few episodes" in test.refusal


@pytest.mark.parametrize("bound", ["hoeffding", "bernstein", "anderson", "betting"])
@pytest.mark.parametrize(("low", "high"), [(-4.0, -1.0), (1.0, 2.0), (-1.0, 1.0), (-3.0, 0.0)])
def test_finite_sample_bounds_hold_whatever_the_sign_of_the_rewards(bound, low, high):
    """is and pdis, costs and rewards that exclude 0: a policy whose true loss is beyond ζ passes in at most the number of 100
    worlds that δ = 0.1 allows (once in a million more), and no term is below the stated least value."""
    from dataclasses import replace

    from scipy import stats

    wrong = dict.fromkeys(("is", "pdis"), 0)
    for seed in range(100):
        truth, baseline, _, train, held_out, _ = a_case(seed, episodes=60)
        scaled = {"reward_range": ([low] * 2, [high] * 2)}
        discount = np.full(2, 0.8)
        scaled["return_range"] = return_range(np.full(2, low), np.full(2, high), discount)
        parts = [replace(part, rewards=low + (high - low) * part.rewards) for part in (train, held_out)]
        world = replace(truth, reward=low + (high - low) * truth.reward)
        rng = np.random.default_rng(seed)
        policy = 0.3 * baseline + 0.7 * rng.dirichlet(np.full(3, 0.5), size=5)
        gain = expected_return(world, policy) - expected_return(world, baseline)
        zeta = np.maximum(-gain - 1e-3, 0.0)
        if gain[0] > -1e-3:
            continue  # it does not lose
        zeta[1] = 1e9
        for estimator in wrong:
            wrong[estimator] += safety_test(
                policy,
                baseline,
                parts[1],
                rule(estimator=estimator, bound=bound, levels="full", zeta=zeta, **scaled),
                tuning=parts[0],
            ).passed
    allowed = int(stats.binom.ppf(1.0 - 1e-6, 100, 0.1))
    assert max(wrong.values()) <= allowed
