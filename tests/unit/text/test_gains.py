"""Gains in people's speech."""

from __future__ import annotations

import dataclasses

import numpy as np

from bettersafe.logs.dataset import Objective
from bettersafe.text import gains
from toy_runs import many_run, toy_certificate, toy_check, toy_findings, toy_run


def test_two_digits():
    assert [gains.short(each) for each in (1234.0, 11.4, 0.0567, 0.999, 0.0)] == ["1,200", "11", "0.057", "1", "0"]
    assert gains.short(-7.25, signed=True) == "−7.2"


def test_percent_needs_a_baseline_that_is_clearly_above_zero():
    def said(before, gain, **more):
        run = toy_run(certificate=toy_certificate(findings=toy_findings(0.0, 0.0, estimate=gain), **more))
        run = dataclasses.replace(run, baseline_return=np.array([before, -before]))
        return [gains.figure(run, k, gain) for k in range(2)]

    assert said(10.0, 1.1) == ["gain +11 %", "Harm done −11 %"]
    assert said(10.0, -7.4) == ["gain −74 %", "Harm done +74 %"]
    assert said(10.0, 0.0123) == ["gain +0.12 %", "Harm done −0.12 %"]
    assert said(10.0, 0.001) == ["gain unchanged", "Harm done unchanged"]
    assert said(-10.0, 1.1) == ["gain +1.1", "Harm done −1.1 points"]
    assert said(0.0, 1234.0) == ["gain +1,200", "Harm done −1,200 points"]
    assert said(1.0, 30.0) == ["gain +30", "Harm done −30 points"]  # 30 times a baseline near 0
    assert said(10.0, 11.0) == ["gain +110 %", "Harm done −11 points"]  # a cost can't fall by more than 100 %
    noisy = toy_check(objective="gain", error=4.0, p_value=0.5)
    assert said(10.0, 1.1, checks=(noisy,))[0] == "gain +1.1"  # 10 ± 4 is not clearly above 0
    mixed = toy_run(objectives=[Objective(name="survival", reward_range=(-100.0, 100.0))])
    assert gains.figure(mixed, 0, 0.4) == "survival +0.4"
    share = Objective(name="share", unit="%")
    run = dataclasses.replace(toy_run(objectives=[share]), baseline_return=np.array([-3.0]))
    assert gains.figure(run, 0, 3.14) == "share +3.1 percentage points"


def test_a_test_is_measured_against_its_own_baseline():
    row = {"estimator": "dr", "objective": "gain", "baseline_value": 4.0, "baseline_low": 3.0}
    tested = toy_certificate(settings={"estimator": "dr"})
    run = dataclasses.replace(toy_run(certificate=tested), evaluation=(row,))
    assert gains.figure(run, 0, 0.4) == "gain +10 %"
    near = dataclasses.replace(run, evaluation=({**row, "baseline_low": -1.0},))
    assert gains.figure(near, 0, 0.4) == "gain +0.4"
    cut = dataclasses.replace(tested, diagnostics={"complete": False})  # the model's baseline is of other steps
    assert gains.figure(dataclasses.replace(run, certificate=cut, evaluation=()), 0, 0.4) == "gain +0.4"


def test_many_objectives_are_counted():
    run = many_run(17)
    assert gains.certified_gains(run, run.certificate.findings) == (
        "o0 +100 %, o1 +190 %, o2 +270 %, o3 +340 %, 13 more better"
    )
    assert gains.certified_gains(run, run.certificate.findings, together=False) == "o0 +100 %, 16 objectives no worse"
    assert gains.model_gains(run) == "o0 +50 %, o1 +47 %, o2 +44 %, o3 +42 %, 13 more changed"
