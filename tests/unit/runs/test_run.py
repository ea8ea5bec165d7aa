"""Runs: what to do about them, what is on disk, and that reading one needs no solver."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from bettersafe.certificate.certificate import Belief, Floor, Proof, Theory
from bettersafe.errors import ParameterError, RunError, WrongTypeError
from bettersafe.report.page import write_report
from bettersafe.runs import run as runs
from bettersafe.runs.policy_file import read_policy
from bettersafe.runs.run import Decision, certificates_before, load_run, run_json, save_certificate, save_run
from patience import TIMEOUT
from toy_runs import toy_certificate, toy_check, toy_findings, toy_run

THEORY = Theory(
    proofs=tuple(
        Proof(objective=name, proposition_loss=math.inf, proven_loss=9.0, return_range=5.0, share_safe=0.1)
        for name in ("gain", "harm")
    ),
    delta=0.1,
    baseline_known=False,
    range_known=False,
)

REFUSED = toy_certificate(findings=toy_findings(0.2, -0.1))

UNPROVEN = toy_certificate(evidence="theory", findings=toy_findings(-9.0, -9.0), theory=THEORY)


def floor(guaranteed):
    return Floor(objective="harm", threshold=-1.0, baseline_bound=-1.0, guaranteed=guaranteed, level=0.05)


def believed(p_safe, evidence="posterior"):
    belief = Belief(priors="flat", p_safe=p_safe, p_objective=(1.0, p_safe), p_pessimistic=(), draws=200)
    return toy_certificate(evidence=evidence, grade="posterior", beliefs=(belief,))


@pytest.mark.parametrize(
    ("certificate", "changed", "decision"),
    [
        (None, False, Decision.KEEP_BASELINE),
        (None, True, Decision.NOT_TESTED),
        (UNPROVEN, True, Decision.NOT_TESTED),
        (dataclasses.replace(UNPROVEN, floors=(floor(0.0),)), True, Decision.NOT_TESTED),
        (dataclasses.replace(UNPROVEN, floors=(floor(-2.0),)), True, Decision.KEEP_BASELINE),
        (toy_certificate(evidence="theory"), True, Decision.USE_POLICY),
        (toy_certificate(), True, Decision.USE_POLICY),
        (toy_certificate(), False, Decision.KEEP_BASELINE),
        (REFUSED, True, Decision.KEEP_BASELINE),
        (toy_certificate(refusal="its weights rest on too few episodes"), True, Decision.KEEP_BASELINE),
        (toy_certificate(unsupported=0.1), True, Decision.KEEP_BASELINE),
        (toy_certificate(floors=(floor(-2.0),)), True, Decision.KEEP_BASELINE),
        (toy_certificate(floors=(floor(math.nan),)), True, Decision.KEEP_BASELINE),
        (toy_certificate(evidence="safety-test"), True, Decision.USE_POLICY),
        (dataclasses.replace(REFUSED, evidence="safety-test"), False, Decision.KEEP_BASELINE),
        (believed(1.0), True, Decision.PROPOSED),
        (believed(0.5), True, Decision.KEEP_BASELINE),
        (believed(0.5), False, Decision.KEEP_BASELINE),
        (dataclasses.replace(believed(1.0), checks=(toy_check(p_value=0.5),)), True, Decision.PROPOSED),
        (dataclasses.replace(believed(1.0), checks=(toy_check(),)), True, Decision.NOT_TESTED),
        (dataclasses.replace(believed(1.0), checks=(toy_check(),)), False, Decision.KEEP_BASELINE),
        (dataclasses.replace(believed(0.5), checks=(toy_check(),)), True, Decision.KEEP_BASELINE),
        (toy_certificate(evidence="theory", checks=(toy_check(),)), True, Decision.NOT_TESTED),
        (toy_certificate(checks=(toy_check(),)), True, Decision.USE_POLICY),  # tested on other episodes
    ],
)
def test_the_decision_follows_from_the_certificate_and_the_proposal(certificate, changed, decision, tmp_path):
    run = toy_run(certificate=certificate, changed=changed)
    assert run.decision is decision
    kept = decision is Decision.KEEP_BASELINE
    np.testing.assert_array_equal(run.policy, run.baseline if kept else run.proposal)
    np.testing.assert_array_equal(run.policy_return, run.baseline_return if kept else run.proposal_return)
    assert run.has_proposal is changed
    # and the same on disk
    save_run(run, tmp_path / "RUN")
    document = json.loads((tmp_path / "RUN" / "run.json").read_text(encoding="utf-8"))
    assert document["decision"] == {"word": decision.word, "sentence": decision.sentence}
    table = pq.read_table(tmp_path / "RUN" / "policy.parquet")
    assert ("proposal" in table.column_names) is (kept and changed)
    again = load_run(tmp_path / "RUN")
    assert again.decision is decision
    for name in ("proposal", "policy", "baseline", "proposal_return", "policy_return"):
        np.testing.assert_array_equal(getattr(again, name), getattr(run, name))
    usable = read_policy(tmp_path / "RUN" / "policy.parquet", run.state_labels, run.action_labels)
    np.testing.assert_array_equal(usable, run.policy)


def test_words_of_decisions():
    assert [decision.word for decision in Decision] == ["use-policy", "proposed", "not-tested", "keep-baseline"]
    assert [decision.short for decision in Decision] == [
        "Use the policy",
        "Proposed",
        "Not tested",
        "Keep the baseline",
    ]
    for untested in (Decision.NOT_TESTED, Decision.PROPOSED):
        assert "bettersafe certify RUN HELD_OUT" in untested.sentence


@pytest.fixture
def folder(tmp_path):
    """An untested run with its report, and files that are no part of it."""
    folder = save_run(toy_run(certificate=UNPROVEN), tmp_path / "RUN")
    write_report(folder)
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    (folder / "slides").mkdir()
    (folder / "slides" / "one.md").write_text("also mine", encoding="utf-8")
    (folder / "link").symlink_to("notes.txt")
    return folder


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_certificate_changes_the_decision_and_the_policy(folder):
    before = load_run(folder)
    assert before.decision is Decision.NOT_TESTED
    refused = save_certificate(folder, REFUSED, ({"estimator": "dr", "objective": "gain", "value": 1.0},))
    assert refused.decision is load_run(folder).decision is Decision.KEEP_BASELINE
    np.testing.assert_array_equal(load_run(folder).policy, before.baseline)
    np.testing.assert_array_equal(load_run(folder).proposal, before.proposal)
    assert load_run(folder).info == before.info  # when and how it was made
    assert load_run(folder).evaluation[0]["value"] == 1.0
    save_certificate(folder, toy_certificate(), force=True)
    assert load_run(folder).decision is Decision.USE_POLICY
    assert load_run(folder).evaluation == ()
    np.testing.assert_array_equal(load_run(folder).policy, before.proposal)


def test_a_saved_test_is_not_replaced_by_one_that_does_not_mention_it(folder):
    """A run in memory forgets what was saved meanwhile; the directory does not."""
    before = files(folder)
    save_certificate(folder, REFUSED)
    with pytest.raises(ParameterError, match=r"tested on held-out episodes already.*`force`"):
        save_certificate(folder, toy_certificate())
    assert load_run(folder).decision is Decision.KEEP_BASELINE
    mentions = toy_certificate(settings={"earlier": certificates_before(load_run(folder))})
    assert save_certificate(folder, mentions).decision is Decision.USE_POLICY
    with pytest.raises(ParameterError, match="already"):  # now there are two tests
        save_certificate(folder, mentions)
    assert files(folder) != before


def test_a_certificate_belongs_to_its_run(folder):
    before = files(folder)
    other = toy_certificate(findings=toy_findings(0.2, 0.2)[:1])
    with pytest.raises(ParameterError, match="the certificate is of gain, but the run's objectives are gain and harm"):
        save_certificate(folder, other)
    with pytest.raises(ParameterError, match="the certificate is of gain"):
        save_run(toy_run(certificate=other), folder.parent / "other")
    for evaluation in (3, "x", [3], None):
        with pytest.raises(WrongTypeError, match="evaluation"):
            save_certificate(folder, toy_certificate(), evaluation)
    for rows in ([{"value": object()}], [{"value": 1.0}, {"value": "x"}]):
        with pytest.raises(RunError, match="the estimates can't be written as a table"):
            save_certificate(folder, toy_certificate(), rows)
    assert files(folder) == before
    swapped = dataclasses.replace(load_run(folder), certificate=other)
    runs._write(swapped, folder)
    with pytest.raises(RunError, match=r"certificate.json does not belong to .*run.json"):
        load_run(folder)


def test_a_certificate_takes_the_old_report_and_nothing_else(folder):
    save_certificate(folder, REFUSED)
    assert sorted(path.name for path in folder.iterdir()) == [
        "certificate.json", "link", "notes.txt", "policy.parquet", "run.json", "slides",
    ]  # fmt: skip
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert (folder / "slides" / "one.md").read_text(encoding="utf-8") == "also mine"
    assert (folder / "link").is_symlink()
    assert [path.name for path in folder.parent.iterdir()] == ["RUN"]


@pytest.mark.parametrize("step", ["write_policy", "certificate_json", "_carry", "rename"])
def test_a_certificate_is_there_whole_or_not_at_all(folder, monkeypatch, step):
    def fails(*_, **__):
        raise OSError("no space left on device")

    before = files(folder)
    if step == "rename":  # the second one, when the old folder was put aside already
        real, calls = type(folder).rename, []

        def second_fails(path, target):
            calls.append(path)
            if len(calls) == 2:
                fails()
            return real(path, target)

        monkeypatch.setattr(type(folder), "rename", second_fails)
    else:
        monkeypatch.setattr(
            "bettersafe._system.files._carry" if step == "_carry" else f"bettersafe.runs.run.{step}", fails
        )
    with pytest.raises(OSError, match="no space"):
        save_certificate(folder, REFUSED)
    monkeypatch.undo()
    assert files(folder) == before
    assert [path.name for path in folder.parent.iterdir()] == ["RUN"]
    assert load_run(folder).decision is Decision.NOT_TESTED


@pytest.mark.skipif(os.name != "posix", reason="elsewhere one can't ask whether a process lives")
def test_a_run_that_was_put_aside_by_a_killed_process_comes_back(folder):
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    folder.rename(folder.with_name(f".RUN.{int(done.stdout)}@{os.uname().nodename}.old.partial"))
    assert load_run(folder).decision is Decision.NOT_TESTED


def test_a_run_may_be_a_link_or_the_working_directory(folder, monkeypatch):
    link = folder.parent / "latest"
    link.symlink_to("RUN")
    save_certificate(link, REFUSED)
    assert link.is_symlink()
    assert load_run(folder).decision is Decision.KEEP_BASELINE
    monkeypatch.chdir(folder)
    save_certificate(".", toy_certificate(), force=True)
    assert load_run(".").decision is Decision.USE_POLICY


def test_what_does_not_follow_from_the_files_is_refused(folder):
    save_certificate(folder, REFUSED)
    (folder / "certificate.json").unlink()  # and with it what was refused
    with pytest.raises(RunError, match="has the decision keep-baseline, but not-tested follows from"):
        load_run(folder)


def test_a_policy_beside_another_decision_is_refused(tmp_path):
    folder = save_run(toy_run(), tmp_path / "RUN")
    file = folder / "run.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**document, "decision": Decision.USE_POLICY.to_json()}), encoding="utf-8")
    with pytest.raises(RunError, match="has the decision use-policy"):
        load_run(folder)


LIGHT = """
import sys
import bettersafe.runs
from bettersafe.runs.run import load_run
print(load_run(sys.argv[1]).decision.word)
print(*sorted(sys.modules))
"""


def test_reading_a_run_loads_no_solver_and_no_method(folder):
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, str(folder)], capture_output=True, text=True, check=True, timeout=TIMEOUT
    )
    word, modules = done.stdout.splitlines()
    assert word == "not-tested"
    loaded = set(modules.split())
    ours = {name for name in loaded if name.startswith("bettersafe.")}
    heavy = (
        "bettersafe.methods",
        "bettersafe.mdp.programs",
        "bettersafe.mdp.values",
        "bettersafe._kernel",
        "bettersafe.model",
    )
    assert not [name for name in ours if name.startswith(heavy)]
    assert {name for name in ours if name.startswith("bettersafe.posterior.")} <= {"bettersafe.posterior.rule"}
    assert not loaded & {"scipy", "highspy", "duckdb", "sklearn", "rich", "typer"}


def test_the_document_has_both_returns_in_the_users_sign():
    rows = run_json(toy_run(certificate=REFUSED))["objectives"]
    assert [row["baseline_return"] for row in rows] == [row["policy_return"] for row in rows] == [1.0, -2.0]
    assert [row["proposal_return"] for row in rows] == [1.5, -2.5]
    assert runs.SCHEMA == "run/1"
