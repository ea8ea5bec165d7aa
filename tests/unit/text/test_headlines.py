"""One wording: the terminal, the report, JSON and the explorer say the same of every kind of run."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import re
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from bettersafe.certificate.certificate import Belief, Floor, Proof, Theory
from bettersafe.cli.main import app
from bettersafe.explore import keeping
from bettersafe.report.page import report_html
from bettersafe.runs.run import Decision, save_run
from bettersafe.tasks.task import Task
from bettersafe.text import headlines, names
from bettersafe.text.headlines import summarise
from toy_runs import OBJECTIVES, toy_candidate, toy_certificate, toy_check, toy_findings, toy_run

THEORY = Theory(
    proofs=tuple(
        Proof(objective=o.name, proposition_loss=math.inf, proven_loss=9.0, return_range=5.0, share_safe=0.1)
        for o in OBJECTIVES
    ),
    delta=0.1,
    baseline_known=False,
    range_known=False,
)


def floor(guaranteed):
    return Floor(
        objective="harm", threshold=-1.0, baseline_bound=-1.0, guaranteed=guaranteed, level=0.05, label="Harm done"
    )


def believed(p_safe, *, each=None, pessimistic=(), draws=200):
    belief = Belief(
        priors="hierarchical; hierarchical, pessimistic for harm", p_safe=p_safe, p_objective=each or (1.0, p_safe),
        p_pessimistic=pessimistic, draws=draws,
    )  # fmt: skip
    return {"evidence": "posterior", "grade": "posterior", "beliefs": (belief,)}


UNPROVEN = {"evidence": "theory", "findings": toy_findings(-9.0, -9.0), "theory": THEORY}

CHOSEN = (toy_candidate(chosen=True), toy_candidate(name="another", passed=False))

PASSED, FAILED, BLIND, UNTESTED = "passed", "not passed", "can't tell", "not tested"

RUNS = {
    "nothing found": ({"changed": False}, None, None),
    "no certificate": ({}, None, None),
    "unproven": ({}, UNPROVEN, [UNTESTED, UNTESTED]),
    "proven": ({}, {"evidence": "theory", "theory": THEORY}, [PASSED, PASSED]),
    "threshold unproven": ({}, {**UNPROVEN, "floors": (floor(-2.0),)}, [UNTESTED, UNTESTED]),
    "tested": ({}, {}, [PASSED, PASSED]),
    "tested, with a loss": ({}, {"findings": toy_findings(0.2, -0.1, zeta=0.2)}, [PASSED, PASSED]),
    "refused": ({}, {"findings": toy_findings(0.2, -0.1)}, [PASSED, FAILED]),
    "no data": ({}, {"refusal": "its weights rest on too few episodes"}, [BLIND, BLIND]),
    "beyond the baseline": ({}, {"unsupported": 0.1}, [BLIND, BLIND]),
    "threshold kept": ({}, {"floors": (floor(0.0),)}, [PASSED, PASSED]),
    "threshold missed": ({}, {"floors": (floor(-2.0),)}, [PASSED, PASSED]),
    "h-opt": ({"method": "h-opt"}, {"evidence": "safety-test"}, [PASSED, PASSED]),
    "h-opt found nothing": (
        {"method": "h-opt", "changed": False},
        {"evidence": "safety-test", "findings": toy_findings(0.2, -0.1)},
        [PASSED, FAILED],
    ),
    "believed": ({"method": "b-opt", "candidates": CHOSEN}, believed(1.0), [PASSED, PASSED]),
    "believed, against the log": (
        {"method": "b-opt"},
        {**believed(1.0), "checks": (toy_check(),)},
        [UNTESTED, UNTESTED],
    ),
    "unproven, against the log": ({}, {**UNPROVEN, "checks": (toy_check(),)}, [UNTESTED, UNTESTED]),
    "proven, against the log": ({}, {"evidence": "theory", "checks": (toy_check(),)}, [UNTESTED, UNTESTED]),
    "tested, against the log": ({}, {"checks": (toy_check(),)}, [PASSED, PASSED]),
    "believed by linearisation": ({"method": "b-opt"}, believed(0.99, draws=0), [PASSED, PASSED]),
    "doubted": ({"method": "b-opt", "changed": False}, believed(0.5), [PASSED, FAILED]),
    "doubted, if pessimistic": ({}, believed(1.0, pessimistic=(1.0, 0.7)), [PASSED, FAILED]),
    "doubted together": ({}, believed(0.88, each=(0.94, 0.92)), [PASSED, FAILED]),
    "believed, then refused": (
        {"method": "b-opt", "candidates": CHOSEN},
        {"findings": toy_findings(-0.1, 0.2)},
        [FAILED, PASSED],
    ),
    "many digits": ({}, {"findings": toy_findings(-0.123456, 0.2)}, [FAILED, PASSED]),
}

OTHERS = {
    Decision.USE_POLICY: (
        "Keep the baseline",
        "keep the baseline",
        "Not tested",
        "not tested",
        "No solution",
        "refused",
    ),
    Decision.NOT_TESTED: ("Keep the baseline", "Use the policy", "Accepted", "passed", "refused", "No solution"),
    Decision.KEEP_BASELINE: ("Use the policy", "Accepted", "Not tested"),
}
"""What no screen may say beside a decision."""


def made(name):
    """A run, and what must be said of each objective."""
    info, certificate, outcomes = RUNS[name]
    built = None if certificate is None else toy_certificate(**certificate)
    if built is not None:
        tested_on = {"path": "later.csv", "rows": 90, "episodes": 9}
        built = dataclasses.replace(built, data={"tested_on": tested_on}, settings={"estimator": "dr", "bound": "t"})
    return toy_run(certificate=built, **info), outcomes


def plain(text):
    return " ".join(text.split())


def page_text(run):
    """What a reader of the report reads, without the style and the script."""
    page = re.sub(r"<(style|script)[^>]*>.*?</\1>", " ", report_html(run), flags=re.DOTALL)
    return plain(html.unescape(re.sub(r"<[^>]+>", " ", page)))


def command(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def kept(run, folder, monkeypatch):
    """What the explorer answers when such a run is kept."""
    task = Task(data="log.csv", objectives=OBJECTIVES)
    monkeypatch.setattr(keeping, "explored_task", lambda *_: task)
    monkeypatch.setattr(keeping, "run_task", lambda *_, **__: run)
    session = SimpleNamespace(digest=run.info.data.sha256, base=None, task_file=None)
    return keeping.keep(session, None, "kept", folder)


@pytest.mark.parametrize("name", RUNS)
def test_every_screen_says_the_same(name, tmp_path, monkeypatch):
    run, outcomes = made(name)
    told = summarise(run)
    assert told.headline.startswith(f"{run.decision.short}: ")
    assert told.headline.endswith(".")
    folder = save_run(run, tmp_path / "RUN")
    codes = {"show": 0, "verify": 3 if run.decision is Decision.KEEP_BASELINE else 0}  # show only prints
    screens = {"report": page_text(run)}
    for screen in ("show", "verify") if run.certificate is not None else ("show",):
        exit_code, text = command(screen, folder)
        assert exit_code == codes[screen], screen
        screens[screen] = plain(text)
    answer = kept(run, tmp_path / "runs", monkeypatch)
    screens["explorer"] = plain(f"{answer['headline']} {answer['detail']}")
    exit_code, text = command("show", folder, "--json")
    assert exit_code == 0
    document = json.loads(text)
    assert command("report", folder)[0] == 0
    for screen, text in screens.items():
        assert plain(told.headline) in text, screen
        # candidates are other policies, and said to be so
        said = text.replace("candidate that did not pass", "").replace("a better one had passed", "")
        for wrong in OTHERS[run.decision]:
            assert wrong not in said, (screen, wrong)
    assert document["headline"] == told.headline
    assert document["decision"] == answer["decision"] == run.decision.to_json()
    written = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert written["decision"] == run.decision.to_json()
    if outcomes is not None:
        _check_objectives(run, outcomes, document, screens)


def _check_objectives(run, outcomes, document, screens):
    """Every screen has the same outcome of every objective."""
    certificate = run.certificate
    assert [certificate.outcome(k) for k in range(2)] == outcomes
    rows = document["certificate"]["objectives"]
    assert [row["outcome"] for row in rows] == outcomes
    assert [row["passed"] for row in rows] == [outcome == PASSED for outcome in outcomes]
    for k, title in enumerate(("gain", "Harm done (points)")):
        shown = outcomes[k].replace("'", "’")
        card = re.search(
            rf"{re.escape(title)} (?:✓ |✕ )?(passed|not passed|can’t tell|not tested|unchanged)", screens["report"]
        )
        assert card[1] == shown, title
        if certificate.evidence != "theory":
            row = re.search(
                rf" {re.escape(title)} [+−\d][^a-zG]*(?:over |to |[\d.,%+− ])*({'|'.join((PASSED, FAILED, BLIND, UNTESTED))})",
                screens["show"],
            )
            assert row[1] == outcomes[k], title
    if certificate.accepted:
        assert set(outcomes) == {PASSED}
    assert plain(certificate.verdict) in screens["report"] or run.decision is Decision.NOT_TESTED
    assert "harm" not in certificate.verdict  # people gave it a label
    assert not re.search(r"\d\.\d{4,}", " ".join((certificate.verdict, *screens.values())))  # two or three digits


def test_json_of_a_certificate_has_the_decision(tmp_path):
    run, _ = made("refused")
    folder = save_run(run, tmp_path / "RUN")
    code, text = command("verify", folder, "--json")
    document = json.loads(text)
    assert code == 3
    assert document["decision"]["word"] == "keep-baseline"
    assert document["headline"] == summarise(run).headline
    assert document["accepted"] is False


def test_a_refused_proposal_is_no_policy():
    refused, _ = made("refused")
    assert names.proposed(refused) == "proposal"
    assert names.proposed(made("tested")[0]) == names.proposed(made("nothing found")[0]) == "policy"
    page = page_text(refused)
    assert "it should not be used" in page
    assert "Where the proposal differs" in page


def headline(**more):
    return headlines.summarise(toy_run(certificate=toy_certificate(**more))).headline


def test_the_headline_claims_what_was_tested_and_no_more():
    assert headline() == "Use the policy: it is better than the baseline on gain and Harm done."
    assert headline(findings=toy_findings(0.2, 0.0)) == (
        "Use the policy: it is better than the baseline on gain and no worse on Harm done."
    )
    # bounds that each have all of δ don't hold together
    assert headline(findings=toy_findings(0.2, 0.2, level=0.1)) == (
        "Use the policy: it is no worse than the baseline on gain and Harm done."
    )
    assert "at most 0.3 worse on Harm done" in headline(findings=toy_findings(0.2, -0.1, zeta=0.3))
    assert headline(findings=toy_findings(0.2, -0.1)) == "Keep the baseline: a loss on Harm done can’t be ruled out."
    assert "can’t tell" in headline(unsupported=0.2)
    floor = Floor(objective="harm", threshold=-1.0, baseline_bound=-3.0, guaranteed=-2.0, level=0.05)
    assert headline(floors=(floor,)) == "Keep the baseline: the threshold on Harm done may be missed."
    belief = Belief(priors="flat", p_safe=1.0, p_objective=(1.0, 1.0), p_pessimistic=(), draws=200)
    sure = headline(evidence="posterior", grade="posterior", beliefs=(belief,))
    assert sure.endswith("with a probability of over 99.5 %.")  # 200 of 200 draws are not certainty
    doubt = dataclasses.replace(belief, p_safe=0.5, p_objective=(0.9, 0.5))
    assert "a loss on Harm done is too likely" in headline(evidence="posterior", grade="posterior", beliefs=(doubt,))


def test_the_grade_is_said_in_words():
    assert "any amount of data" in headlines.evidence_words(toy_certificate(grade="finite-sample"))
    assert "approximate" in headlines.evidence_words(toy_certificate())
    assert "priors" in headlines.evidence_words(
        toy_certificate(
            evidence="posterior",
            grade="posterior",
            beliefs=(Belief(priors="flat", p_safe=1.0, p_objective=(1.0, 1.0), p_pessimistic=(), draws=9),),
        )
    )
    assert "Nothing was held out" in headlines.evidence_words(toy_certificate(evidence="theory"))
    assert "optimistic" in headlines.evidence_words(None)
