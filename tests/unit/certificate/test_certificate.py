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
        " 3.5 ± 0.2 in the log; p < 1e-6). Test it with: bettersafe certify RUN HELD_OUT."
    )
    tested = toy_certificate(checks=(toy_check(),))
    assert tested.accepted  # on other episodes, which do not rest on the model


def test_what_many_missed_is_not_spelled_out():
    found = tuple(
        Finding(objective=f"o{k}", estimate=0.1, lower_bound=-float(k + 1), level=0.1, zeta=0.0) for k in range(20)
    )
    said = toy_certificate(findings=found).verdict
    assert "on o19 the gain" in said
    assert said.endswith("; and on 17 more objectives.")
