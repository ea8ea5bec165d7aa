"""What a check says, and when it speaks against the model."""

from __future__ import annotations

import math

import pytest

from bettersafe.evaluation.state_evidence import LEVEL, Gap, StateCheck


def gap(**changes):
    fields = {"objective": "energy", "model": 57.7, "log": 68.8, "error": 1.2, "statistic": 9.0, "p_value": 1e-9}
    return Gap(**{**fields, "scale": 20.0, **changes})


def test_significant_and_not_negligible():
    assert StateCheck(kind="return", gaps=(gap(),)).against
    assert not StateCheck(kind="return", gaps=(gap(p_value=LEVEL),)).against
    assert not StateCheck(kind="return", gaps=(gap(log=57.8),)).against  # 0.1 of a spread of 20
    assert not StateCheck(kind="return", gaps=(gap(log=57.7, scale=0.0),)).against
    assert not StateCheck(kind="return", gaps=(gap(log=57.7 * (1 + 1e-12), scale=0.0),)).against


def test_the_next_state_alone_speaks_if_it_matters_for_returns():
    weak = gap(model=0.0, log=3.0, p_value=0.2)
    assert StateCheck(kind="step-before", gaps=(weak,), p_next_state=1e-5).against
    assert not StateCheck(kind="step-before", gaps=(gap(model=0.0, log=0.01, p_value=0.2),), p_next_state=1e-5).against


def test_nothing_checked_speaks_not():
    check = StateCheck(kind="small-step", reason="counts do not have the order of the rows")
    assert not check.against
    assert math.isnan(check.p_value)
    assert check.sentence == (
        "a small step towards the policy was not checked: counts do not have the order of the rows"
    )


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        (
            "return",
            {},
            "the model's return of the baseline contradicts the logged one (energy 57.7 in the model, 68.8 in the log, ± 1.2 on the"
            " difference; p < 1e-6)",
        ),
        (
            "return",
            {"p_value": 0.43, "label": "Energy used"},
            "the model's return of the baseline agrees with the logged one (Energy used 57.7 in the model, 68.8 in the log, ± 1.2 on the"
            " difference; p = 0.43)",
        ),
        (
            "small-step",
            {"model": 1.25, "log": -0.5, "error": 0.21},
            "the logged episodes contradict the model on a step of 10% towards the policy (energy +1.25 by the model, −0.5 by the episodes,"
            " ± 0.21 on the difference; p < 1e-6)",
        ),
        ("step-before", {"p_value": 0.2}, "earlier steps do not help to predict what follows a decision (p = 0.2)"),
    ],
)
def test_sentences(kind, changes, sentence):
    assert StateCheck(kind=kind, gaps=(gap(**changes),)).sentence == sentence


def test_of_many_objectives_the_strongest_are_named():
    gaps = tuple(gap(objective=f"o{k}", p_value=10.0 ** (-3 - k)) for k in range(6))
    check = StateCheck(kind="return", gaps=gaps)
    assert [each.objective for each in check.shown] == ["o5", "o4", "o3", "o2", "o1", "o0"]
    assert "o5" in check.sentence
    assert "o2" not in check.sentence
