"""One wording: the terminal, the report, JSON and the explorer say the same of every kind of run.

Belief, test and proof are different words; the headline stands once, with at most three digits; one verdict is not red and green.
"""

from __future__ import annotations

import dataclasses
import html
import io
import json
import math
import re
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from bettersafe.certificate.certificate import Belief, Floor, Proof, Theory
from bettersafe.cli.main import app
from bettersafe.cli.show import runs as terminal
from bettersafe.explore import keeping
from bettersafe.methods.facts import METHODS
from bettersafe.report.page import report_html
from bettersafe.runs.run import Decision, save_run
from bettersafe.tasks.task import Task
from bettersafe.text import headlines, names, tones
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

PASSED, FAILED, BELIEVED, DOUBTED, PROVEN, BLIND, UNTESTED = OUTCOMES = (
    "passed", "not passed", "believed", "in doubt", "proven", "can't tell", "not tested",
)  # fmt: skip

RUNS = {
    "nothing found": ({"changed": False}, None, None),
    "no certificate": ({}, None, None),
    "unproven": ({}, UNPROVEN, [UNTESTED, UNTESTED]),
    "proven": ({}, {"evidence": "theory", "theory": THEORY}, [PROVEN, PROVEN]),
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
    "believed": ({"method": "b-opt", "candidates": CHOSEN}, believed(1.0), [BELIEVED, BELIEVED]),
    "believed, against the log": (
        {"method": "b-opt"},
        {**believed(1.0), "checks": (toy_check(),)},
        [UNTESTED, UNTESTED],
    ),
    "unproven, against the log": ({}, {**UNPROVEN, "checks": (toy_check(),)}, [UNTESTED, UNTESTED]),
    "proven, against the log": ({}, {"evidence": "theory", "checks": (toy_check(),)}, [UNTESTED, UNTESTED]),
    "tested, against the log": ({}, {"checks": (toy_check(),)}, [PASSED, PASSED]),
    "believed by linearisation": ({"method": "b-opt"}, believed(0.99, draws=0), [BELIEVED, BELIEVED]),
    "doubted": ({"method": "b-opt", "changed": False}, believed(0.5), [BELIEVED, DOUBTED]),
    "doubted, if pessimistic": ({}, believed(1.0, pessimistic=(1.0, 0.7)), [BELIEVED, DOUBTED]),
    "doubted together": ({}, believed(0.88, each=(0.94, 0.92)), [BELIEVED, DOUBTED]),
    "believed, then refused": (
        {"method": "b-opt", "candidates": CHOSEN},
        {"findings": toy_findings(-0.1, 0.2)},
        [FAILED, PASSED],
    ),
    "believed, with a loss": (
        {"method": "b-opt"},
        {**believed(0.93), "findings": toy_findings(0.2, -0.1, zeta=0.2)},
        [BELIEVED, BELIEVED],
    ),
    "doubted for ever": (
        {"method": "b-opt", "changed": False},
        {**believed(0.1), "findings": toy_findings(0.2, -0.7, estimate=-0.3)},
        [BELIEVED, DOUBTED],
    ),
    "many digits": ({}, {"findings": toy_findings(-0.123456, 0.2)}, [FAILED, PASSED]),
}

BELIEF = ("accepted", "Accepted", "passed", "Passed", "refused", "Tested", "roven")
"""What no screen may say where only the posterior speaks."""

OTHERS = {
    Decision.USE_POLICY: ("eep the baseline", "Not tested", "not tested", "No solution", "refused", "Proposed:"),
    Decision.PROPOSED: ("eep the baseline", "Use the policy", "No solution", "Not tested:", *BELIEF),
    Decision.NOT_TESTED: (
        "eep the baseline",
        "Use the policy",
        "ccepted",
        "passed",
        "refused",
        "No solution",
        "Proposed:",
    ),
    Decision.KEEP_BASELINE: ("Use the policy", "Accepted", "Not tested", "Proposed:"),
}
"""What no screen may say beside a decision."""

WORDS = {
    "no certificate": "Not tested", "unproven": "Not tested", "proven": "Proven under assumptions", "tested": "Tested, passed",
    "refused": "Keep the baseline", "h-opt": "Tested, passed", "believed": "Proposed", "believed by linearisation": "Proposed",
    "believed, against the log": "Not tested", "doubted": "Keep the baseline", "nothing found": "Keep the baseline",
}  # fmt: skip

TONES = {
    "no certificate": "open", "proven": "passed", "tested": "passed", "refused": "refused", "no data": "keep", "believed": "proposed",
    "believed, against the log": "open", "doubted": "keep", "nothing found": "keep", "believed, then refused": "refused",
}  # fmt: skip


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


def colours(run):
    """Colours of verdicts: of the headline and the tags of the report, and of the terminal."""
    page = {each for _, each in re.findall(r'class="(hero|tag) ([a-z]+)"', report_html(run))}
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            terminal,
            "new_console",
            lambda: Console(file=out, force_terminal=True, color_system="standard", width=200),
        )
        terminal.print_run(run, 3, every=True)
    codes = {"1": "refused", "2": "passed"}
    return page, {codes[code] for code in re.findall(r"\x1b\[(?:\d+;)*3([12])(?:;\d+)*m", out.getvalue())}


def significant(number):
    """Significant digits of a number as written."""
    digits = number.replace(",", "").replace(".", "").lstrip("0")
    return len(digits) if "." in number else len(digits.rstrip("0"))


def check_words(run, screens):
    """What must hold of the words and colours of every screen."""
    told = summarise(run)
    assert told.headline.startswith(f"{told.word}: ")
    assert told.headline.endswith(".")
    assert all(significant(each) <= 3 for each in re.findall(r"\d[\d.,]*\d|\d", told.headline)), told.headline
    for screen, text in screens.items():
        assert text.count(plain(told.headline)) == 1, screen
        assert plain(told.more) in text, screen
        # candidates are other policies, and said to be so; ζ is called the accepted loss
        said = text.replace("candidate that did not pass", "").replace("accepted loss", "")
        for wrong in OTHERS[run.decision]:
            assert wrong not in said, (screen, wrong)
        if run.certificate is not None and run.certificate.evidence == "posterior":
            for wrong in BELIEF:
                assert wrong not in said, (screen, wrong)
    for used in colours(run):
        assert not {"passed", "refused"} <= used
        assert run.certificate is None or run.certificate.evidence != "posterior" or not {"passed", "refused"} & used


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
    assert told.word == WORDS.get(name, told.word)
    assert told.tone == TONES.get(name, told.tone)
    folder = save_run(run, tmp_path / "RUN")
    codes = {"show": 0, "verify": 3 if run.decision is Decision.KEEP_BASELINE else 0}  # show only prints
    screens = {"report": page_text(run)}
    for screen in ("show", "verify") if run.certificate is not None else ("show",):
        exit_code, text = command(screen, folder)
        assert exit_code == codes[screen], screen
        screens[screen] = plain(text)
    answer = kept(run, tmp_path / "runs", monkeypatch)
    screens["explorer"] = plain(f"{answer['headline']} {answer['detail']} {answer['more']}")
    assert answer["tone"] == told.tone
    exit_code, text = command("show", folder, "--json")
    assert exit_code == 0
    document = json.loads(text)
    assert command("report", folder)[0] == 0
    check_words(run, screens)
    budget = METHODS[run.info.method].budget
    assert ("error function" in screens["show"]) == ("Error function" in screens["report"]) == budget
    assert budget or "budget" not in told.step
    assert document["headline"] == told.headline
    assert document["more"] == told.more
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
    assert document["certificate"]["standing"] == certificate.standing
    for k, title in enumerate(("gain", "Harm done (points)")):
        shown = outcomes[k].replace("'", "’")
        card = re.search(
            rf"{re.escape(title)} (?:[✓✕→?] )?({'|'.join(OUTCOMES).replace(chr(39), '’')}|unchanged)", screens["report"]
        )
        assert card[1] == shown, title
        if certificate.evidence != "theory":
            row = re.search(
                rf" {re.escape(title)} [+−\d][^a-zG]*(?:over |to |[\d.,%+− ])*({'|'.join(OUTCOMES)})",
                screens["show"],
            )
            assert row[1] == outcomes[k], title
    if certificate.accepted:
        assert set(outcomes) == {{"posterior": BELIEVED, "theory": PROVEN}.get(certificate.evidence, PASSED)}
    if certificate.by_test:
        assert plain(certificate.verdict.split(": ", 1)[1].removesuffix(" Keep the baseline.")[1:]) in screens["report"]
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
    assert document["standing"] == "refused"
    assert "accepted" not in document


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        (tones, "OUTCOMES", {**tones.OUTCOMES, "believed": "passed"}),
        (tones, "DECISIONS", {**tones.DECISIONS, Decision.PROPOSED: "passed"}),
        (headlines, "probability", lambda p, _: f"{p:.4f}"),
        (headlines, "certified_gains", lambda *_, **__: "accepted"),
    ],
)
def test_a_planted_fault_is_seen(monkeypatch, place, name, value):
    """The rules for words and colours would see a belief in green, too many digits, and a belief that is "accepted"."""
    run, _ = made("believed")
    told = summarise(run).headline
    check_words(run, {"one": told})
    monkeypatch.setattr(place, name, value)
    wrong = summarise(run).headline
    with pytest.raises(AssertionError):
        check_words(run, {"one": wrong})
    monkeypatch.undo()
    for screens in ({"twice": f"{told} {told}"}, {"missing": "The policy is better."}):
        with pytest.raises(AssertionError):
            check_words(run, screens)


def test_a_test_that_refuses_is_red_and_has_nothing_in_green():
    page, codes = colours(made("refused")[0])
    assert "refused" in page
    assert codes == {"refused"}
    page, codes = colours(made("tested")[0])
    assert "passed" in page
    assert codes == {"passed"}
    assert colours(made("believed")[0])[0] >= {"proposed"}


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
    risk = "no objective loses, at a risk of about 10 %."
    # the baseline's gain is 1; its harm is −2, which has no percent
    assert headline() == f"Tested, passed: gain +40 %, Harm done −0.4 points; {risk}"
    assert headline(findings=toy_findings(0.2, 0.0)) == f"Tested, passed: gain +40 %, Harm done no worse; {risk}"
    # bounds that each have all of δ don't hold together; gain is pursued, so it has its estimate
    assert (
        headline(findings=toy_findings(0.2, 0.2, level=0.1))
        == f"Tested, passed: gain +40 %, Harm done no worse; {risk}"
    )
    assert headline(grade="finite-sample").endswith("at a risk of 10 %.")
    assert "Harm done at most 0.3 worse; no objective loses more than its accepted loss" in headline(
        findings=toy_findings(0.2, -0.1, zeta=0.3)
    )
    assert headline(findings=toy_findings(0.2, -0.1)) == (
        "Keep the baseline: refused by the test, a loss on Harm done can’t be ruled out."
    )
    assert "can’t tell" in headline(unsupported=0.2)
    assert headline(floors=(floor(-2.0),)) == (
        "Keep the baseline: refused by the test, the threshold on Harm done may be missed."
    )
    assert "threshold on Harm done kept" in headline(floors=(floor(0.0),))
    assert headline(**believed(1.0)) == (
        "Proposed: gain +40 %, Harm done −0.4 points; no objective loses with probability over 0.995."
    )  # 200 of 200 draws are not certainty
    assert headline(**{**believed(0.93), "findings": toy_findings(0.2, 0.0)}) == (
        "Proposed: gain +40 %, Harm done no worse; no objective loses with probability 0.93."
    )
    assert headline(**believed(0.5)) == (
        "Keep the baseline: given the log, a loss is too likely (probability 0.5), most of all on Harm done."
    )
    proof = {"evidence": "theory", "findings": toy_findings(0.123, 0.0)}
    assert headline(**proof, grade="finite-sample") == (
        "Proven: gain at least 0.12 better, Harm done no worse, at a risk of 10 %."
    )
    assert headline(**proof).startswith("Proven under assumptions: ")


def test_estimates_of_the_model_are_not_evidence():
    assert headlines.summarise(toy_run()).headline == (
        "Not tested: by the model that made it, which is optimistic, gain +50 %, Harm done −0.5 points."
    )
    run = toy_run(certificate=toy_certificate(**believed(1.0)))
    assert "+50 %" not in headlines.summarise(run).headline
    page = page_text(run)
    assert page.index("+0.40 better") < page.index("Estimated model (from its own data: optimistic): 1.00 → 1.50")


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


def test_more_episodes_are_named_where_the_baseline_is_kept():
    def told(findings, **more):
        return headlines.summarise(made_of(findings, **more)).more

    def made_of(findings, **more):
        data = {"tested_on": {"episodes": 100}}
        return toy_run(certificate=toy_certificate(findings=findings, data=data, **more))

    # the bound is 0.5 below an estimate of 0.4: (0.5 / 0.4)² = 1.5625 times as many
    assert told(toy_findings(0.2, -0.1)) == (
        "If the estimates stay as they are, about 57 more held-out episodes would decide."
    )
    assert "more than 20 times as many" in told(toy_findings(0.2, -9.0))
    assert told(toy_findings(0.2, -0.9, estimate=-0.1)) == (
        "More held-out episodes of the same kind are not expected to change this: by the estimate, the policy loses on gain."
    )
    assert told(toy_findings(0.2, 0.2)) == ""
    assert "more episodes would decide" in told(toy_findings(0.2, -0.1), **believed(0.8))
