"""Objectives one by one, in the user's sign."""

from __future__ import annotations

import dataclasses

from bettersafe.report import objectives
from toy_runs import toy_certificate, toy_run


def test_a_gain_on_a_cost_is_shown_as_a_fall():
    run = dataclasses.replace(toy_run(), certificate=toy_certificate())
    harm = objectives.objectives(run)[1]
    assert harm.lines[0].baseline == "−2.00"  # a reward of 2 is a cost of −2
    assert harm.lines[1].change == "−0.40 better"
    assert harm.lines[1].certain == "at least 0.20 better (risk 5 %)"
    loss = toy_certificate(
        findings=tuple(dataclasses.replace(f, estimate=-0.4, lower_bound=-0.5) for f in toy_certificate().findings)
    )
    harm = objectives.objectives(dataclasses.replace(run, certificate=loss))[1]
    assert harm.lines[1].change == "+0.40 worse"
    assert harm.lines[1].certain.startswith("at most 0.50 worse")
    assert harm.outcome == "not passed"
