"""The report: what it says of every kind of run, and that nothing of a user's can become markup."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from bettersafe._system.files import file_digest
from bettersafe.certificate.certificate import Finding, Proof, Theory
from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes
from bettersafe.errors import ParameterError, RunError
from bettersafe.logs.dataset import Objective, write_dataset
from bettersafe.report import limits, objectives, report_html, write_report
from bettersafe.runs.info import DataInfo
from bettersafe.runs.run import Decision, load_run, save_certificate, save_run
from bettersafe.tasks.retest import HeldOutTest, certify_run
from bettersafe.tasks.retest_posterior import PosteriorTest, certify_run_posterior
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Task
from bettersafe.tasks.toml import read_task
from bettersafe.tasks.verify import verify_run
from bettersafe.text import headlines, numbers
from bettersafe.text.names import shorten
from toy_runs import OBJECTIVES, many_run, toy_candidate, toy_certificate, toy_findings, toy_run

NASTY = (
    "</script><b>bold</b>",
    "<img src=x onerror=alert(1)>",
    "\"' onload='alert(1)",
    "{{ 7 * 7 }}",
    "]]><svg/onload=alert(1)>",
    "größter Not 患者 🙂",
    "\u202edesrever\u0000\u2028",
    "x" * 5000,
)


class Page(HTMLParser):
    """What a browser makes of a page: its elements, and its text by element."""

    VOID = frozenset({"meta", "br", "img", "input", "link", "hr"})

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.text, self.open, self.ids = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


def check(html):
    """What must hold of every report; returns the parsed page."""
    page = Page(html)
    assert len(html.encode()) < 3_000_000
    kinds = {tag for tag, _ in page.elements}
    assert not kinds & {"img", "b", "iframe", "object", "embed", "link", "base", "form", "foreignobject"}
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "src", "srcset")], tag
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"https?://|url\(|@import", html)
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    assert [a for a in scripts if not a] == [{}]
    assert all(a["type"] == "application/json" for a in scripts if a)
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert len(set(page.ids)) == len(page.ids)
    assert {"main", "nav", "header", "footer"} <= kinds
    assert sum(tag == "h1" for tag, _ in page.elements) == 1
    for tag, attributes in page.elements:
        if tag == "svg":
            assert attributes["role"] == "img"
            assert attributes["aria-label"]
    assert "nan" not in re.findall(r"\b[a-z]+\b", page.words.lower())
    assert "None" not in page.words
    return page


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A log and a later one of a small world, whose second reward is a cost."""
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(4)
    world = garnet(rng, n_states=5, n_actions=3, end=0.4, discount=0.8)
    baseline = rng.dirichlet(np.full(3, 4.0), size=5)
    for name, n in (("log", 1500), ("later", 3000)):
        data = sample_episodes(world, baseline, n, rng)
        rewards = np.column_stack([data.rewards[:, 0], -data.rewards[:, 1]])
        write_dataset(dataclasses.replace(data, rewards=rewards, objectives=OBJECTIVES), folder / f"{name}.parquet")
    return folder


VARIANTS = {
    "s-opt": {"epsilon": 0.5},
    "held out": {"epsilon": 0.5, "hold_out": 0.3, "zeta": {"harm": 0.2}},
    "h-opt": {"method": "h-opt", "zeta": {"harm": 0.2, "gain": 0.2}},
    "b-opt": {"method": "b-opt", "draws": 50},
    "thresholds": {"epsilon": 0.5, "hold_out": 0.3, "threshold": {"harm": 0.01}},
    "baseline": {"epsilon": 0.0},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_a_run_has_a_report(files, tmp_path, variant):
    run = run_task(Task(data=str(files / "log.parquet"), objectives=OBJECTIVES, **VARIANTS[variant]))
    save_run(run, tmp_path / "RUN")
    path = write_report(tmp_path / "RUN")
    assert path == tmp_path / "RUN" / "report.html"
    saved = load_run(tmp_path / "RUN")
    page = check(path.read_text(encoding="utf-8"))
    assert headlines.summarise(saved).headline in page.words
    expected = Decision.NOT_TESTED if saved.has_proposal else Decision.KEEP_BASELINE
    if saved.certificate is not None and saved.certificate.evidence != "theory":
        yes = Decision.PROPOSED if variant == "b-opt" else Decision.USE_POLICY
        expected = yes if saved.certificate.accepted else Decision.KEEP_BASELINE
        assert headlines.summarise(saved).detail in page.words
    assert saved.decision is expected
    for text in limits.assumptions(saved):
        assert text in page.words
    assert file_digest(tmp_path / "RUN" / "policy.parquet") in page.words
    assert "Harm done" in page.words
    assert "lower is better" in page.words
    if variant in ("h-opt", "b-opt"):
        assert saved.info.candidates
        for row in saved.info.candidates:
            assert row.chosen or row.name in page.words
        assert sum(row.chosen for row in saved.info.candidates) == saved.has_proposal
        (tmp_path / "RUN" / "run.json").write_text(
            (tmp_path / "RUN" / "run.json").read_text(encoding="utf-8").replace('"candidates"', '"candidate"'),
            encoding="utf-8",
        )
        with pytest.raises(RunError, match=r"run\.json is not the file"):
            verify_run(tmp_path / "RUN")
    if variant == "held out":
        assert {row["estimator"] for row in saved.evaluation} >= {"logged", "dr"}
        logged = next(row for row in saved.evaluation if row["estimator"] == "logged" and row["objective"] == "harm")
        assert numbers.number(logged["value"]) in page.words
    if variant == "thresholds":
        assert "may be missed" in page.words
        assert "at most 0.01" in page.words


def test_certify_replaces_what_the_report_said(files, tmp_path):
    run = run_task(Task(data=str(files / "log.parquet"), objectives=OBJECTIVES, epsilon=0.5))
    folder = save_run(run, tmp_path / "RUN")
    assert (
        "Not tested: by the model that made it, which is optimistic, gain +"
        in Page(write_report(folder).read_text(encoding="utf-8")).words
    )
    save_certificate(
        folder, *certify_run(load_run(folder), str(files / "later.parquet"), HeldOutTest(zeta={"harm": 0.1}))
    )
    assert not (folder / "report.html").exists()  # it told of another certificate
    page = check(write_report(folder).read_text(encoding="utf-8"))
    assert headlines.summarise(load_run(folder)).detail in page.words
    assert "3,000 episodes tested on" in page.words or "episodes tested on 3,000" in page.words
    question = PosteriorTest(draws=50)
    save_certificate(folder, certify_run_posterior(load_run(folder), str(files / "log.parquet"), question, force=True))
    page = check(write_report(folder).read_text(encoding="utf-8"))
    assert "As used:" in page.words
    assert "pessimistic for Harm done" in page.words
    assert "This run has no estimates" in page.words


@pytest.mark.parametrize("changed", [True, False])
def test_nothing_of_a_user_becomes_markup(changed):
    objectives = [Objective(name=f"o{k}", label=text, unit=text) for k, text in enumerate(NASTY[:4])]
    candidate = toy_candidate(
        name=NASTY[0], evidence=NASTY[1], gain=(1.0,) * 4, least=(0.5, -math.inf, math.nan, 0.0), believed=False
    )
    run = toy_run(
        states=NASTY, actions=NASTY, objectives=objectives, changed=changed,
        status=NASTY[0], baseline_source=NASTY[1], notes=NASTY, states_kept=(NASTY[0],),
        data=DataInfo(path=NASTY[0], sha256=NASTY[1], rows=3, episodes=2), created=NASTY[2], versions={NASTY[0]: NASTY[1]},
        method=NASTY[3], error_kind=NASTY[0], unseen=NASTY[0], engine=NASTY[0], candidates=(candidate,),
    )  # fmt: skip
    findings = tuple(Finding(objective=o.name, estimate=0.1, lower_bound=-0.1, level=0.1, zeta=0.0) for o in objectives)
    given = toy_certificate(
        findings=findings, assumptions=NASTY[:7], refusal=NASTY[0], diagnostics={"trust": NASTY[1]},
        data={"tested_on": {"path": NASTY[0], "episodes": 3, "sha256": NASTY[0]}}, settings={"estimator": NASTY[0], "notes": list(NASTY)},
    )  # fmt: skip
    row = {
        "estimator": NASTY[0], "objective": "o0", "value": 1.0, "low": 0.5, "high": math.nan, "level": 0.9, "episodes": 3,
        "effective_sample_size": 2.0, "mean_weight": 1.0, "unsupported_share": 0.0, "usable": False, "trust": NASTY[0],
        "baseline_value": 1.0, "baseline_low": 0.5, "baseline_high": math.nan, "horizon": None, "complete": True,
        "longest_episode": 4, "truncated_episodes": 0,
    }  # fmt: skip
    run = dataclasses.replace(run, certificate=given, evaluation=(row,))
    html = report_html(run, name=NASTY[0], digests={NASTY[0]: NASTY[1]})
    page = check(html)
    for text in NASTY[:6]:
        assert text in page.words
    assert "\u202e" not in html
    assert "x" * 500 not in html
    assert "49" not in re.findall(r"\b\d+\b", re.sub(r"<style>.*?</style>", "", " ".join(page.text)))


def test_labels_in_the_grid_data_can_not_end_the_script():
    actions = [f"iv{i}/vaso{j}" for i in range(2) for j in range(2)]
    html = report_html(toy_run(states=NASTY, actions=actions))
    check(html)
    block = re.search(r'<script type="application/json" id="grid-data">(.*?)</script>', html, re.DOTALL)[1]
    assert "<" not in block
    assert {row["state"] for row in json.loads(block)} == {shorten(text, 60) for text in NASTY}


def test_the_shape_of_actions_comes_from_the_task_file(tmp_path):
    def read(line):
        (tmp_path / "task.toml").write_text(f'data = "log.csv"\n{line}\n[objectives.gain]\n', encoding="utf-8")
        return read_task(tmp_path / "task.toml").action_shape

    assert read("action_shape = { fluid = 5, vasopressor = 4 }") == {"fluid": 5, "vasopressor": 4}
    assert read("") == {}
    for bad in ("{ fluid = 5 }", "{ fluid = 5, vasopressor = 1 }", "{ fluid = 5, vasopressor = 2.5 }"):
        with pytest.raises(ParameterError, match=r"two choices|must be a whole number"):
            read(f"action_shape = {bad}")
    with pytest.raises(ParameterError, match="must be a table"):
        read("action_shape = 25")
    run = toy_run(actions=[0, 1, 2, 3], settings={"action_shape": {"fluid": 2, "vasopressor": 2}})
    assert "fluid ↓ vasopressor →" in check(report_html(run)).words


def test_a_proof_is_shown_if_it_says_anything():
    def proven(loss):
        proofs = tuple(
            Proof(objective=o.name, proposition_loss=math.inf, proven_loss=loss, return_range=5.0, share_safe=0.1)
            for o in OBJECTIVES
        )
        theory = Theory(proofs=proofs, delta=0.1, baseline_known=False, range_known=False)
        given = toy_certificate(evidence="theory", findings=toy_findings(-loss, -loss), theory=theory)
        return check(report_html(dataclasses.replace(toy_run(), certificate=given))).words

    assert "at most 1.00 worse" in proven(1.0)
    assert "wider than the range of returns" in proven(9.0)


def test_many_objectives_and_one():
    run = many_run()
    page = check(report_html(run))
    assert sum(tag == "figure" and "data-x" in a for tag, a in page.elements) == 28
    assert sum(tag == "article" for tag, _ in page.elements) == objectives.MOST_CARDS
    assert "All 17 objectives in one table" in page.words
    assert all(page.words.count(f" o{k} ") >= 3 for k in range(17))  # a row in each of the tables
    assert "o3 +340 %, 13 more better; no objective loses with probability 0.91." in page.words
    assert "0.910 o5" in page.words
    assert "any of 17 objectives" in run.certificate.verdict
    few = check(report_html(many_run(3)))
    assert "in one table" not in few.words
    assert "Proposed: o0 +100 %, o1 +130 %, o2 +150 %; no objective loses" in few.words
    one = [Objective(name="o")]
    assert "There is only one objective" in check(report_html(toy_run(objectives=one))).words


def test_what_the_posterior_said_stays_when_a_test_has_the_last_word():
    run = toy_run(certificate=toy_certificate())
    assert "before the test" not in check(report_html(run)).words
    page = check(report_html(toy_run(certificate=toy_certificate(), candidates=(toy_candidate(chosen=True),))))
    assert "Posterior given data and priors, before the test" in page.words
    assert "at least 0.60 better" in page.words
    assert "the policy by the posterior, before the test" in page.words
    assert "other candidate that passed" not in page.words


def test_many_states_stay_small_and_say_so():
    n = 700
    states = [f"state {x} " + "y" * 3000 for x in range(n)]
    actions = [f"iv{i}/vaso{j}" for i in range(20) for j in range(20)]
    html = report_html(toy_run(states=states, actions=actions))
    check(html)
    assert f"Shown are the 500 states with the largest number, of {n:,}" in html


def test_a_candidate_that_was_left_for_a_better_one_has_not_failed():
    left = toy_candidate(passed=False, open=True)
    page = check(report_html(toy_run(candidates=(left,))))
    assert "evaluation not completed: a better one was found" in page.words
    assert "candidate in doubt" not in page.words
    assert "candidate in doubt" in check(report_html(toy_run(candidates=(left, toy_candidate(passed=False))))).words
    tested = check(report_html(toy_run(candidates=(toy_candidate(passed=False, believed=False),)))).words
    assert "candidate that did not pass" in tested
