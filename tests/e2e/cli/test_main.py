"""What all commands have in common: help with an example, JSON, colours, progress, completion, and suggestions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import synthetic_mimic
from bettersafe.cli.main import app
from bettersafe.evaluation.facts import BOUNDS, TESTABLE
from bettersafe.methods.facts import METHODS
from commands import BETTERSAFE, COLUMNS, GOALS, visits, write_log
from patience import TIMEOUT


def commands(command=None, path=()):
    """(path, command) of every command, those of groups too."""
    command = command or typer.main.get_command(app)
    inner = getattr(command, "commands", None)
    if not inner:
        yield path, command
        return
    for name, child in inner.items():
        yield from commands(child, (*path, name))


@pytest.mark.parametrize(
    ("path", "command"), list(commands()), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_has_an_example_and_json(path, command):
    assert f"bettersafe {' '.join(path)}" in command.help.replace("[bold]", "").split("Example:", 1)[1]
    assert "--json" in [name for parameter in command.params for name in parameter.opts]
    shown = CliRunner().invoke(app, [*path, "--help"])
    assert shown.exit_code == 0
    assert "Example:" in shown.output


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a log, a later one, a table of features, and a run."""
    folder = tmp_path_factory.mktemp("place")
    write_log(folder / "log.csv", visits(150))
    write_log(folder / "later.csv", visits(150, seed=1))
    write_log(
        folder / "vitals.csv",
        [
            {"episode": i // 3, "step": i % 3, "action": "ab"[i % 2], "rate": 60 + i % 7, "gain": i % 2}
            for i in range(60)
        ],
    )
    synthetic_mimic.write(folder, *synthetic_mimic.cohort(40))
    code = CliRunner().invoke(app, ["improve", str(folder / "log.csv"), *COLUMNS, *GOALS, "--epsilon", "0.5", "-o", str(folder / "RUN")]).exit_code  # fmt: skip
    assert code == 0
    return folder


JSON = {
    "init": ("init", "log.csv", "-o", "first.toml"),
    "describe": ("describe", "log.csv", *COLUMNS, *GOALS),
    "improve": ("improve", "log.csv", *COLUMNS, *GOALS, "--epsilon", "0.2", "--no-report", "-o", "OTHER"),
    "count": ("count", "log.csv", *COLUMNS, *GOALS, "-o", "counts.parquet"),
    "merge": ("merge", "counts.parquet", "-o", "merged.parquet"),
    "show": ("show", "RUN"),
    "evaluate": ("evaluate", "RUN", "later.csv"),
    "certify": ("certify", "RUN", "later.csv", "--zeta", "pain=9", "--zeta", "recovery=9"),
    "verify": ("verify", "RUN"),
    "report": ("report", "RUN"),
    "demo": ("demo", "--patients", "100"),
    "discretize": ("discretize", "vitals.csv", "--k", "3", "--quick", "--objective", "gain", "-o", "STATES"),
    "study list": ("study", "list"),
    "sepsis prepare": (
        "sepsis",
        "prepare",
        "sepsis_mimiciii.csv",
        "MIMICtable.csv",
        "--k",
        "4",
        "--quick",
        "-o",
        "MIMIC",
    ),
}

ELSEWHERE = {"study run", "study figures", "explore"}  # their JSON is read in the tests of the studies and the explorer


@pytest.mark.filterwarnings("default")
def test_json_is_one_document(place, monkeypatch):
    assert {" ".join(path) for path, _ in commands()} == {*JSON, *ELSEWHERE}
    monkeypatch.chdir(place)
    for name, arguments in JSON.items():
        done = CliRunner().invoke(app, [*arguments, "--json"])
        assert done.exit_code in (0, 3), (name, done.output)
        assert json.loads(done.stdout), name


def run_with(environment, *arguments):
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    done = subprocess.run(
        [BETTERSAFE, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=TIMEOUT,
        env={**clean, "TERM": "xterm-256color", **environment},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_colours_are_for_terminals_and_progress_is_for_stderr(place):
    plain = run_with({}, "show", place / "RUN")
    assert plain[0] in (0, 3)  # as the run's decision is
    assert "\x1b" not in plain[1]
    assert max(map(len, plain[1].splitlines())) <= 200
    assert "objective" in plain[1]
    bare = run_with({"FORCE_COLOR": "1", "NO_COLOR": "1"}, "describe", place / "log.csv", *COLUMNS, *GOALS, "--json")
    assert json.loads(bare[1])["episodes"] == 150
    assert "Reading and counting" in bare[2]  # a terminal, it was told; and yet nothing of it is in the JSON
    assert not [part for part in bare[2].split("\x1b[")[1:] if part[: part.find("m")].startswith(("3", "9", "1;3"))]
    assert "\x1b[1;31m" in run_with({"FORCE_COLOR": "1"}, "show", place / "nothing")[2]


def test_completion():
    known = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    code, script, _ = run_with(known, "--show-completion", "bash")
    assert code == 0
    assert "_BETTERSAFE_COMPLETE=complete_bash" in script
    words = {"_BETTERSAFE_COMPLETE": "complete_bash", "COMP_WORDS": "bettersafe ver", "COMP_CWORD": "1"}
    assert run_with(words)[1].split() == ["verify"]
    options = {**words, "COMP_WORDS": "bettersafe improve --hold", "COMP_CWORD": "2"}
    assert run_with(options)[1].split() == ["--hold-out"]
    values = {**words, "COMP_WORDS": "bettersafe improve --method s", "COMP_CWORD": "3"}
    assert run_with(values)[1].split() == ["s-opt", "soft-spibb"]


def test_what_the_tab_key_offers_is_what_is_taken():
    known = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    for option, names in (("method", ("auto", *METHODS)), ("estimator", TESTABLE), ("bound", BOUNDS)):
        words = {"COMP_WORDS": f"bettersafe improve --{option} ", "COMP_CWORD": "3"}
        _, out, _ = run_with({**known, "_BETTERSAFE_COMPLETE": "complete_bash", **words})
        assert out.split() == list(names)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_completion_in_bash(tmp_path):
    """As a shell does it: the script is read, and its function asked with the words of the line."""
    known = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    (tmp_path / "completion.sh").write_text(run_with(known, "--show-completion", "bash")[1])
    asked = (
        "source completion.sh; COMP_WORDS=(bettersafe cert); COMP_CWORD=1; _bettersafe_completion bettersafe;"
        " echo ${COMPREPLY[*]}; COMP_WORDS=(bettersafe certify RUN --bou); COMP_CWORD=3; _bettersafe_completion bettersafe;"
        " echo ${COMPREPLY[*]}"
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", asked], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=TIMEOUT,
        env={**os.environ, "PATH": f"{Path(BETTERSAFE).parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.stdout.split() == ["certify", "--bound"]


@pytest.mark.parametrize(
    ("arguments", "suggested", "code"),
    [
        (("describe", "log.csv", "--objectiv", "pain"), "--objective", 2),
        (("--versoin",), "--version", 2),
        (("study", "run", "gridworld/fixed", "--cmdp", "1"), "--cmdps", 2),
        (("descrbe", "log.csv"), "describe", 2),
        (("study", "figure", "x"), "figures", 2),
        (("describe", "log.csv", *COLUMNS[:-4], "--state", "Zustnad", *COLUMNS[-2:], *GOALS), "zustand", 1),
        (("describe", "log.csv", *COLUMNS[:-1], "was done", *GOALS), "what was done", 1),
        (("describe", "log.csv", *COLUMNS, "--objective", "recov"), "recovery", 1),
        (("describe", "log.csv", *COLUMNS, *GOALS, "--discount", "pian=0.9"), "pain", 1),
        (("improve", "log.csv", *COLUMNS, *GOALS, "--method", "sopt", "-o", "X"), "s-opt", 1),
        (("improve", "log.csv", *COLUMNS, *GOALS, "--zeta", "pian=1", "-o", "X"), "pain", 1),
        (("improve", "log.csv", *COLUMNS, *GOALS, "--bound", "bentsein", "-o", "X"), "bernstein", 1),
        (("certify", "RUN", "later.csv", "--threshold", "pian=1", "--force"), "pain", 1),
        (("evaluate", "RUN", "later.csv", "--interval", "bootstarp"), "bootstrap", 1),
        (("discretize", "vitals.csv", "--objective", "gian", "-o", "X"), "gain", 1),
        (("discretize", "vitals.csv", "--objective", "gain", "--feature", "rat", "-o", "X"), "rate", 1),
        (("study", "run", "gridwolrd/fixed"), "gridworld/fixed", 1),
        (("study", "run", "sepsis/icu", "--cohort", "fresch", "-o", "X"), "fresh", 1),
    ],
)  # fmt: skip
def test_typos_get_the_nearest_word(arguments, suggested, code, place, monkeypatch):
    monkeypatch.chdir(place)
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    said = done.output if code == 2 else str(done.exception)
    assert done.exit_code == code
    assert f"Did you mean '{suggested}'?" in " ".join(said.replace("│", " ").split())
    assert not Path("X").exists()
