"""Colours by meaning."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from bettersafe.certificate.certificate import Belief, Floor, Outcome
from bettersafe.runs.run import Decision
from bettersafe.text import tones
from toy_runs import toy_certificate, toy_findings, toy_run


def test_every_decision_and_outcome_has_a_tone():
    assert set(tones.DECISIONS) == set(Decision)
    assert set(tones.OUTCOMES) == set(get_args(Outcome))
    assert set(tones.DECISIONS.values()) | set(tones.OUTCOMES.values()) == set(get_args(tones.Tone))


def test_what_passed_is_plain_where_the_test_refused():
    passed, refused = toy_certificate(), toy_certificate(findings=toy_findings(0.2, -0.1))
    assert [tones.outcome_tone(passed, k) for k in range(2)] == ["passed", "passed"]
    assert [tones.outcome_tone(refused, k) for k in range(2)] == ["plain", "refused"]
    kept = Floor(objective="harm", threshold=-1.0, baseline_bound=0.0, guaranteed=0.0, level=0.05)
    missed = dataclasses.replace(kept, guaranteed=-2.0)
    assert [tones.floor_tone(each, kept) for each in (passed, refused)] == ["passed", "plain"]
    assert tones.floor_tone(refused, missed) == "refused"
    assert tones.floor_tone(dataclasses.replace(refused, evidence="theory"), missed) == "open"


@pytest.mark.parametrize(("p", "tone", "decides"), [(0.99, "proposed", "proposed"), (0.5, "open", "keep")])
def test_a_belief_is_neither_green_nor_red(p, tone, decides):
    belief = Belief(priors="flat", p_safe=p, p_objective=(p, p), p_pessimistic=(), draws=0)
    run = toy_run(certificate=toy_certificate(evidence="posterior", grade="posterior", beliefs=(belief,)))
    assert tones.belief_tone(belief, 0.1) == tone
    assert tones.run_tone(run) == decides
