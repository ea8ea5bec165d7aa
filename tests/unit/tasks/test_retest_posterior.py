"""A saved run and the posterior of another log, or of its own."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bettersafe.errors import ParameterError
from bettersafe.runs.policy_file import write_policy
from bettersafe.runs.run import load_run, save_run
from bettersafe.tasks.retest import certify_run
from bettersafe.tasks.retest_posterior import PosteriorTest, certify_run_posterior
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Task
from bettersafe.tasks.verify import verify_run
from toy_runs import RANGED


def test_the_posterior_may_be_asked_about_the_log_that_made_the_policy(saved, files):
    run = load_run(saved)
    certificate = certify_run_posterior(run, str(files / "log.parquet"), PosteriorTest(draws=60))
    assert certificate.grade == "posterior"
    assert len(certificate.beliefs) == 5
    assert certificate.accepted
    worse = dataclasses.replace(run, proposal=np.roll(run.proposal, 1, axis=1))
    assert not certify_run_posterior(worse, str(files / "log.parquet"), PosteriorTest(draws=60)).accepted


def test_what_was_asked_before_stays_on_record(saved, files, tmp_path):
    log, later = str(files / "log.parquet"), str(files / "later.parquet")
    run = load_run(saved)
    worse = dataclasses.replace(run, proposal=np.roll(run.proposal, 1, axis=1), certificate=None)
    tested, _ = certify_run(worse, later)
    assert not tested.accepted
    question = PosteriorTest(draws=60, pessimism=0.0)
    asked = certify_run_posterior(dataclasses.replace(worse, certificate=tested), log, question, force=True)
    assert [each["evidence"] for each in asked.settings["earlier"]] == ["held-out"]
    assert asked.settings["tested_before"] == 1
    assert any("tested 1 time before, and did not pass" in text for text in asked.assumptions)
    assert any(text.startswith("No pessimistic prior was used") for text in asked.assumptions)
    again, _ = certify_run(dataclasses.replace(worse, certificate=asked), later, force=True)
    assert [each["evidence"] for each in again.settings["earlier"]] == ["held-out", "posterior"]
    assert again.settings["earlier"][1]["pessimism"] == 0.0
    assert any("tested 1 time before" in text for text in again.assumptions)


def test_the_posterior_does_not_test_thresholds(files):
    run = run_task(Task(data=str(files / "log.parquet"), objectives=RANGED, epsilon=0.5, threshold={"harm": 50.0}))
    assert run.has_proposal
    with pytest.raises(ParameterError, match=r"thresholds \(of harm\).*Test the run on held-out episodes"):
        certify_run_posterior(run, str(files / "log.parquet"), PosteriorTest(draws=40))


def test_priors_and_policies_of_your_own(files, tmp_path):
    """A policy that is handed in is a candidate, the priors asked for are named, and both are as before when verified."""
    log = str(files / "log.parquet")
    task = Task(data=log, objectives=RANGED, prior="support", pessimism=2.0, draws=60)
    made = run_task(task)
    assert made.has_proposal
    write_policy(tmp_path / "ours.csv", made.proposal, made.state_labels, made.action_labels)
    run = run_task(dataclasses.replace(task, candidates=(str(tmp_path / "ours.csv"),)))
    # B-OPT makes the policy itself, so it is the same candidate, under the name that it was made with first
    assert [row.name for row in run.info.candidates] == [row.name for row in made.info.candidates]
    mixed = 0.9 * made.proposal + 0.1 * made.baseline
    write_policy(tmp_path / "mixed.csv", mixed, made.state_labels, made.action_labels)
    run = run_task(dataclasses.replace(task, candidates=(str(tmp_path / "mixed.csv"),)))
    assert run.info.candidates[-1].name == str(tmp_path / "mixed.csv")
    assert run.certificate.beliefs[0].priors.startswith("support; support, pessimistic for gain")
    assert len(run.certificate.beliefs) == 3  # no concentration to halve or double
    assert "as much as one visit" in " ".join(run.certificate.assumptions)
    save_run(run, tmp_path / "RUN")
    assert verify_run(tmp_path / "RUN", data=log).settings["pessimism"] == 2.0
    question = PosteriorTest(prior="hierarchical", pessimism=0.0, draws=60)
    again = certify_run_posterior(load_run(tmp_path / "RUN"), log, question)
    assert again.beliefs[0].priors == "hierarchical"
    with pytest.raises(ParameterError, match="candidates is a setting of b-opt"):
        dataclasses.replace(task, candidates=("x.csv",), method="s-opt")
    with pytest.raises(ParameterError, match="b-opt has none and tries many"):
        dataclasses.replace(task, method="b-opt", epsilon=0.1)
    with pytest.raises(ParameterError, match="prior"):
        dataclasses.replace(task, prior="flat")
    with pytest.raises(ParameterError, match="pessimism"):
        dataclasses.replace(task, pessimism=-1.0)
