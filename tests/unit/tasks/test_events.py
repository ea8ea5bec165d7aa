"""Declared events in tasks: what they change, where they are said, and what does not use them."""

from __future__ import annotations

import json
import re

import pytest

from bettersafe.errors import ParameterError
from bettersafe.explore.answers import believe
from bettersafe.explore.session import first_settings, open_session, solve, spread
from bettersafe.logs.counts_file import save_counts
from bettersafe.logs.source import count_files
from bettersafe.posterior.events import DeclaredEvent
from bettersafe.runs.run import load_run, save_certificate, save_run
from bettersafe.tasks.retest import certify_run
from bettersafe.tasks.retest_posterior import PosteriorTest, certify_run_posterior
from bettersafe.tasks.run import run_task
from bettersafe.tasks.settings import EVENT_EXAMPLE, event_text
from bettersafe.tasks.task import Task
from bettersafe.tasks.toml import read_event, read_task
from bettersafe.tasks.verify import verify_run
from toy_runs import RANGED

GAIN, HARM = (objective.name for objective in RANGED)
RARE = DeclaredEvent(name="fire", cost={HARM: 0.5}, rate=1e-4, actions=["1"])
OFTEN = DeclaredEvent(name="flood", cost={HARM: 10_000.0, GAIN: -1000.0}, rate=0.3, ends=True, states=["0", "1", "2"])


def a_task(files, *events, data="log.parquet", **settings):
    return Task(data=str(files / data), objectives=RANGED, form="linearised", events=events, **settings)


def test_an_event_is_in_the_decision_the_certificate_and_run_json(files, tmp_path):
    without, rare, often = (run_task(a_task(files, *events)) for events in ((), (RARE,), (OFTEN,)))
    assert without.has_proposal
    assert rare.has_proposal
    said = next(text for text in rare.certificate.assumptions if "fire" in text)
    assert re.match(r"Declared event fire \(\+0.5 on \w+; action 1\): at most one in 10,000 of these decisions", said)
    assert "under the pessimistic priors" in said
    facts = often.certificate.diagnostics["events"]["flood"]
    assert facts["mean"] < facts["worst"] < facts["most"] == 0.3  # the log excludes a rate of 0.3
    assert "the log leaves no more of the declared one in 3 than" in " ".join(often.certificate.assumptions)
    save_run(rare, tmp_path / "R")
    stored = json.loads((tmp_path / "R" / "run.json").read_text(encoding="utf-8"))["settings"]["events"]
    assert [DeclaredEvent(**each) for each in stored] == [RARE]
    assert verify_run(tmp_path / "R", data=str(files / "log.parquet")).diagnostics["events"]


def test_counts_and_later_tests_know_the_event(files, tmp_path):
    save_counts(count_files(files / "log.parquet", objectives=RANGED), tmp_path / "counts.parquet")
    run = run_task(a_task(tmp_path, RARE, data="counts.parquet"))
    assert "fire" in run.certificate.diagnostics["events"]
    save_run(run, tmp_path / "R")
    saved = load_run(tmp_path / "R")
    later = certify_run_posterior(saved, files / "later.parquet", PosteriorTest(form="linearised"))
    assert "fire" in later.diagnostics["events"]
    other = certify_run_posterior(saved, files / "later.parquet", PosteriorTest(form="linearised", events=(OFTEN,)))
    assert set(other.diagnostics["events"]) == {"flood"}
    tested, rows = certify_run(saved, files / "later.parquet")
    assert any("Declared events (fire) are not in the test" in text for text in tested.assumptions)
    save_certificate(tmp_path / "R", tested, rows)
    verify_run(tmp_path / "R", data=str(files / "later.parquet"))


def test_other_methods_and_tests_say_that_they_do_not_use_it(files):
    run = run_task(a_task(files, RARE, epsilon=0.5))
    said = "Declared events (fire) are not used by s-opt"
    assert any(note.startswith(said) for note in run.info.notes)
    assert any(text.startswith(said) for text in run.certificate.assumptions)
    held_out = run_task(a_task(files, RARE, method="b-opt", hold_out=0.3))
    assert held_out.certificate.evidence == "held-out"
    assert any("Declared events (fire) are not in the test" in text for text in held_out.certificate.assumptions)


@pytest.mark.parametrize("settings", [{}, {"epsilon": 0.5}, {"epsilon": 0.5, "hold_out": 0.3}])
def test_an_event_that_does_not_fit_the_log_is_refused_by_every_method(files, settings):
    event = DeclaredEvent(name="fire", cost={HARM: 1.0}, rate=0.01, actions=["stop"])
    with pytest.raises(ParameterError, match="which the log does not have") as caught:
        run_task(a_task(files, event, **settings))
    assert caught.value.setting == "events"


def test_names_of_events_differ(files):
    with pytest.raises(ParameterError, match="declared twice"):
        a_task(files, RARE, RARE)


def test_the_explorer_uses_the_event_and_says_so(files):
    gains = []
    for events in ((), (OFTEN,)):
        session = open_session(a_task(files, *events, method="s-opt", epsilon=1.0))
        settings = first_settings(session)
        found = solve(session, settings)
        linearised = spread(session, found.policy)
        gains.append(linearised.pessimistic_gain[0])
        said = believe(session, settings, found, linearised)["evidence"]
        assert ("Declared events are in it (flood)" in said) == bool(events)
    assert gains[1].min() < gains[0].min()


# ---- as text


@pytest.mark.parametrize(
    "event", [RARE, OFTEN, DeclaredEvent(name='a "b", c', cost={"x y": -1e-7}, rate=1e-5, states=["é|,"])]
)
def test_the_text_of_an_event_is_read_back(event):
    assert read_event(event_text(event)) == event
    assert read_event(f"{{{event_text(event)}}}") == event


def test_the_example_in_help_is_an_event():
    assert read_event(EVENT_EXAMPLE.strip("'")).ends


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fire: pain=3", "must be written like"),
        ("name = 'fire'\nx = 1", "must be written like"),
        ("name='fire', rate=0.1, ends=true, cots={}", "no setting 'cots'.*Did you mean 'cost'"),
        ("name='fire', ends=true", "must have a rate"),
        ("rate=0.1, ends=true", "must have a name"),
        ("name='fire', rate='often'", "rate of the event in .* must be a number"),
        ("name='fire', rate=0.1, cost={pain='much'}", "pain in cost of the event in .* must be a number; got 'much'"),
        ("name='fire', rate=0.1, ends=true, actions='high'", "actions of the event in .* must be a list of labels"),
    ],
)
def test_other_texts_are_refused(text, message):
    with pytest.raises(ParameterError, match=message):
        read_event(text)


def test_a_task_file_has_tables_of_events(tmp_path):
    (tmp_path / "task.toml").write_text('data = "log.csv"\nevent = "fire"\n[objectives.pain]\n', encoding="utf-8")
    with pytest.raises(ParameterError, match=r"event in task.toml must be tables, each \[\[event\]\]"):
        read_task(tmp_path / "task.toml")
