"""Tests of saved runs on later logs: whose sign is whose, and one test for each run."""

from __future__ import annotations

import dataclasses

import pytest

from bettersafe.errors import ParameterError
from bettersafe.runs.run import load_run, save_certificate
from bettersafe.tasks.retest import HeldOutTest, certify_run
from bettersafe.tasks.retest_posterior import PosteriorTest, certify_run_posterior
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Task
from toy_runs import RANGED


def test_signs(files, saved):
    """A cost is a cost in every number that people see, and a gain is a gain in the certificate."""
    certificate, rows = certify_run(
        load_run(saved), str(files / "later.parquet"), HeldOutTest(threshold={"harm": 5.0, "gain": 0.0})
    )
    by_name = {(row["estimator"], row["objective"]): row for row in rows}
    logged, dr = by_name["logged", "harm"], by_name["dr", "harm"]
    assert 0.0 < dr["value"] < 5.0
    assert dr["low"] < dr["value"] < dr["high"]
    harm = certificate.findings[1]
    assert harm.estimate == pytest.approx(logged["value"] - dr["value"], abs=0.05)  # less harm is a gain
    floor = next(f for f in certificate.floors if f.objective == "harm")
    assert floor.threshold == -5.0  # at most 5
    assert floor.passed
    strict, _ = certify_run(
        load_run(saved), str(files / "later.parquet"), HeldOutTest(threshold={"harm": 0.01}, zeta={"harm": 0.1})
    )
    assert "may miss a threshold: harm by" in strict.verdict
    assert strict.floors[0].shortfall > 0.0


def test_finite_sample_with_a_known_baseline_and_its_tuning_part(saved, files):
    certificate, _ = certify_run(
        load_run(saved), str(files / "later.parquet"), HeldOutTest(bound="betting", estimator="pdis")
    )
    assert certificate.grade == "finite-sample"
    assert certificate.data["tested_on"]["episodes"] == 2400  # a fifth went into choosing the cap


def test_a_run_is_tested_once(tested, files):
    """In Python as on the command line: no second test, and no posterior in the place of one, unless forced."""
    log, later = str(files / "log.parquet"), str(files / "later.parquet")
    run = load_run(tested)
    with pytest.raises(ParameterError, match=r"tested already.*`force`"):
        certify_run(run, later)
    with pytest.raises(ParameterError, match=r"tested on held-out episodes and passed.*`force`"):
        certify_run_posterior(run, log, PosteriorTest(draws=40))
    asked = certify_run_posterior(run, log, PosteriorTest(draws=40), force=True)
    assert asked.settings["tested_before"] == 1
    with pytest.raises(ParameterError, match="tested already"):  # the test stays on record
        certify_run(save_certificate(tested, asked), later)
    again, _ = certify_run(load_run(tested), later, force=True)
    assert again.settings["tested_before"] == 1
    # what is held out within `improve` is such a test; what H-OPT chooses by, and what the counts prove, is none
    held = run_task(Task(data=log, objectives=RANGED, epsilon=0.5, hold_out=0.3))
    with pytest.raises(ParameterError, match="tested already"):
        certify_run(held, later)
    chosen = run_task(Task(data=log, objectives=RANGED, method="h-opt", zeta={"harm": 0.2, "gain": 0.2}))
    assert chosen.has_proposal
    certify_run(chosen, later)
    with pytest.raises(ParameterError, match="tested already"):  # also if it was never saved
        certify_run(chosen, later)
    with pytest.raises(ParameterError, match="tested on held-out episodes"):
        certify_run_posterior(chosen, log, PosteriorTest(draws=40))
    again, _ = certify_run(chosen, later, force=True)
    assert again.settings["tested_before"] == 2
    assert [each["evidence"] for each in again.settings["earlier"]] == ["safety-test", "held-out"]
    assert len(chosen.tests) == 2
    assert not dataclasses.replace(chosen).tests
