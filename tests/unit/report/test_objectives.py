"""Objectives one by one, in the user's sign."""

from __future__ import annotations

import dataclasses

from bettersafe.report import objectives
from toy_runs import toy_certificate, toy_run


def test_a_gain_on_a_cost_is_shown_as_a_fall():
    run = dataclasses.replace(toy_run(), certificate=toy_certificate())
    harm = objectives.objectives(run)[1]
    assert harm.lines[0].baseline == "−2.00"  # a reward of 2 is a cost of −2
    assert harm.lines[0].change == "−0.40 better"
    assert harm.lines[0].bound == "at least 0.20 better (risk 5 %)"
    # the estimate of the model that made the policy is a sentence below the evidence, and said to be optimistic
    assert len(harm.lines) == 1
    assert harm.aside == ("Estimated model (from its own data: optimistic): −2.00 → −2.50, −0.50 better.",)
    untested = objectives.objectives(toy_run())[1]
    assert (untested.lines[0].worth, untested.aside) == ("from its own data: optimistic", ())
    loss = toy_certificate(
        findings=tuple(dataclasses.replace(f, estimate=-0.4, lower_bound=-0.5) for f in toy_certificate().findings)
    )
    harm = objectives.objectives(dataclasses.replace(run, certificate=loss))[1]
    assert harm.lines[0].change == "+0.40 worse"
    assert harm.lines[0].bound.startswith("at most 0.50 worse")
    assert harm.outcome == "not passed"
