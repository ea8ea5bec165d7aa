"""Certificates: they fail closed, and say what they mean."""

from __future__ import annotations

import math

import pytest

from bettersafe.certificate.certificate import Belief, Certificate, Finding, Floor
from bettersafe.errors import ParameterError
from toy_runs import toy_certificate, toy_check


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
    with pytest.raises(ParameterError, match="at least one assumption"):
        certificate(finding(), assumptions=())


def test_thresholds_are_kept_or_no_solution_is_found():
    def floor(guaranteed):
        return Floor(objective="a", threshold=1.0, baseline_bound=0.9, guaranteed=guaranteed, level=0.05)

    assert certificate(finding(), floors=(floor(1.0),)).accepted
    assert floor(1.5).shortfall == 0.0
    short = certificate(finding(), floors=(floor(0.75),))
    assert not short.accepted
    assert short.verdict.startswith(
        "Tested, refused: the policy is not worse than the baseline, but may miss a threshold"
    )
    assert "a by 0.25" in short.verdict
    assert not certificate(finding(), floors=(floor(math.nan),)).accepted
    assert math.isnan(floor(math.nan).shortfall)


def test_verdicts_say_what_they_mean():
    assert "(approximately)" in certificate(finding()).verdict
    assert "approximately" not in certificate(finding(), grade="finite-sample").verdict
    assert "90 %" in certificate(finding()).verdict
    assert "at most a 0.1" in certificate(finding(-0.05, zeta=0.1)).verdict
    assert "never takes" in " ".join(certificate(finding(), unsupported=0.02).verdict.split())
    assert certificate(finding(-5.0), evidence="theory").verdict.startswith("Not tested, not proven: ")
    assert certificate(finding()).verdict.startswith("Tested, passed: with probability")
    assert certificate(finding(), evidence="safety-test").verdict.startswith("Tested, passed: ")
    assert certificate(finding(-5.0)).verdict.startswith("Tested, refused: a loss can't be ruled out")
    assert certificate(finding(), evidence="theory", grade="finite-sample").verdict.startswith("Proven: ")
    assert certificate(finding(), evidence="theory").verdict.startswith("Proven under assumptions: ")


def test_a_belief_is_proposed_or_in_doubt():
    def believed(p, **more):
        belief = Belief(priors="flat", p_safe=p, p_objective=(p,), p_pessimistic=(p,), draws=200)
        return certificate(finding(), evidence="posterior", grade="posterior", beliefs=(belief,), **more)

    sure, unsure = believed(0.93), believed(0.5)
    assert (sure.standing, sure.outcome(0)) == ("proposed", "believed")
    assert sure.verdict == (
        "Proposed, not tested: given the log and the priors, the policy is not worse than the baseline on any of: a, with probability"
        " 0.93; 0.9 is needed."
    )
    assert (unsure.standing, unsure.outcome(0)) == ("in doubt", "in doubt")
    assert unsure.verdict == (
        "In doubt: given the log, the policy is not worse on any objective with probability 0.5; the most doubtful objective is a"
        " (probability of a loss 0.5). Keep the baseline."
    )
    assert unsure.loss_risk == 0.5
    assert believed(0.93, checks=(toy_check(),)).standing == "not tested"
    for each in (sure, unsure):
        assert "ccepted" not in each.verdict
        assert "passed" not in each.verdict


def test_a_check_against_the_model_needs_a_test():
    belief = Belief(priors="flat", p_safe=1.0, p_objective=(1.0, 1.0), p_pessimistic=(), draws=200)
    posterior = {"evidence": "posterior", "grade": "posterior", "beliefs": (belief,)}
    fine = toy_certificate(**posterior, checks=(toy_check(p_value=0.3),))
    doubted = toy_certificate(**posterior, checks=(toy_check(p_value=0.3), toy_check()))
    assert fine.accepted
    assert fine.doubted == ()
    assert doubted.passes
    assert not doubted.accepted
    assert doubted.doubted == doubted.checks[1:]
    assert doubted.verdict == (
        "Not without a test on other episodes: the model's return of the baseline contradicts the logged one (Harm done 2 in the model,"
        " 3.5 in the log, ± 0.2 on the difference; p < 1e-6). Test it with: bettersafe certify RUN HELD_OUT."
    )
    tested = toy_certificate(checks=(toy_check(),))
    assert tested.accepted  # on other episodes, which do not rest on the model


def test_what_many_missed_is_not_spelled_out():
    found = tuple(
        Finding(objective=f"o{k}", estimate=0.1, lower_bound=-float(k + 1), level=0.1, zeta=0.0) for k in range(20)
    )
    said = toy_certificate(findings=found).verdict
    assert "on o19 the gain" in said
    assert said.endswith("; and on 17 more objectives. Keep the baseline.")
