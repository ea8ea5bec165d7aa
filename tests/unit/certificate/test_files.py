"""Certificates on the way to a file and back."""

from __future__ import annotations

import json
import math

import pytest

from bettersafe.certificate.certificate import Certificate, Finding, Floor, Proof, Theory
from bettersafe.certificate.files import certificate_from_json, certificate_json
from bettersafe.errors import RunError
from bettersafe.evaluation.state_evidence import StateCheck
from toy_runs import toy_certificate, toy_check


def finding(bound=0.1, zeta=0.0, name="a"):
    return Finding(objective=name, estimate=0.2, lower_bound=bound, level=0.05, zeta=zeta)


def certificate(*findings, **more):
    settings = {"evidence": "held-out", "grade": "approximate", "assumptions": ("x",), "delta": 0.1, **more}
    return Certificate(findings=findings, **settings)


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
        certificate_from_json({**document, "standing": "proposed"}, "c.json")
    with pytest.raises(RunError, match="schema 'certificate/9'"):
        certificate_from_json({**document, "schema": "certificate/9"}, "c.json")
    with pytest.raises(RunError, match="schema None"):
        certificate_from_json([], "c.json")


def test_checks_there_and_back():
    checks = (
        toy_check(),
        StateCheck(kind="small-step", reason="counts do not have the order of the rows", required=True),
    )
    document = json.loads(json.dumps(certificate_json(toy_certificate(checks=checks)), allow_nan=False))
    again = certificate_from_json(document, "c.json")
    assert repr(again.checks) == repr(checks)
    assert [row["against"] for row in document["checks"]] == [True, True]
    assert document["checks"][0]["sentence"] == checks[0].sentence
    old = {key: value for key, value in document.items() if key != "checks"}
    assert certificate_from_json(old, "c.json").checks == ()  # of an earlier version
    wrong = [{**document["checks"][0], "kind": "a feeling"}]
    with pytest.raises(RunError, match=r"checks\[0\].kind"):
        certificate_from_json({**document, "checks": wrong}, "c.json")


@pytest.mark.parametrize(
    "change",
    [{"evidence": "a hunch"}, {"grade": "excellent"}, {"delta": "small"}, {"objectives": [{}]}, {"assumptions": [1]}, {"seed": "x"}],
)  # fmt: skip
def test_a_wrong_field_of_a_certificate_is_named(change):
    from bettersafe.certificate.files import certificate_from_json, certificate_json

    with pytest.raises(RunError, match=next(iter(change))):
        certificate_from_json({**certificate_json(toy_certificate()), **change}, "certificate.json")
