"""Options, made from the table of settings: help, completion and errors that name them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

import pytest
import typer
from typer.testing import CliRunner

from bettersafe.cli.main import app
from bettersafe.cli.options import cluster_from
from bettersafe.cli.runs import FOLDS, POSTERIOR_OPTIONS, TEST_OPTIONS
from bettersafe.errors import ParameterError
from commands import BETTERSAFE
from other_settings import OPTIONS, log_of_every_column


# Help
def help_of(*words):
    done = CliRunner().invoke(app, [*words], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert done.exit_code == 0
    return done.output


def test_the_help_of_improve_fits_on_a_screen():
    lines = help_of("improve", "--help").splitlines()
    assert len(lines) <= 42
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    first = (
        "--output",
        "--objective",
        "--lower-is-better",
        "--discount",
        "--baseline",
        "--method",
        "--epsilon",
        "--delta",
    )
    for flag in (
        *first,
        "--hold-out",
        "--zeta",
        "--threshold",
        "--task",
        "--episode",
        "--json",
        "--force",
        "--help-all",
    ):
        assert flag in text
    assert "--pessimism" not in text


@pytest.mark.parametrize("command", ["describe", "count", "explore", "evaluate", "certify"])
def test_the_help_of_other_commands_is_short_too(command):
    assert len(help_of(command, "--help").splitlines()) <= 45


@pytest.mark.parametrize("command", ["improve", "explore"])
def test_all_help_has_every_option(command):
    text = help_of(command, "--help-all")
    for row in OPTIONS:
        assert f"{row.flag} " in text, row.flag
    for group in {row.group for row in OPTIONS}:
        assert group in text


def test_hidden_options_are_still_completed():
    known = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "_BETTERSAFE_COMPLETE": "complete_bash"}
    for words, expected in (("--pess", ["--pessimism"]), ("--prior ", ["hierarchical", "support"])):
        asked = {"COMP_WORDS": f"bettersafe improve {words}", "COMP_CWORD": str(len(words.split(" ")) + 1)}
        done = subprocess.run(
            [BETTERSAFE],
            capture_output=True, text=True, check=True, env={**os.environ, **known, **asked},
        )  # fmt: skip
        assert done.stdout.split() == expected


def test_help_mentions_no_option_that_the_command_lacks():
    def check(command, path=()):
        for name, inner in getattr(command, "commands", {}).items():
            check(inner, (*path, name))
        known = {flag for parameter in command.params for flag in parameter.opts} | {"--help"}
        texts = [command.help or "", *(getattr(parameter, "help", "") or "" for parameter in command.params)]
        own = re.sub(r"\[bold\].*?\[/bold\]", "", " ".join(texts), flags=re.DOTALL)  # examples may be of other commands
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", own)) <= known, path

    check(typer.main.get_command(app))


def test_errors_name_no_option_that_the_command_lacks(tmp_path, monkeypatch):
    """`improve` has --horizon, `certify` does not."""

    def fails(*_, **__):
        raise ParameterError("the run's returns are of 5 steps.", setting="horizon")

    monkeypatch.setattr("bettersafe.runs.run.load_run", fails)
    for words, setting in ((("certify", "RUN", "log.csv"), None), (("evaluate", str(tmp_path), "log.csv"), "horizon")):
        error = CliRunner().invoke(app, words).exception
        assert isinstance(error, ParameterError)
        assert error.setting == setting


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--epsilon -1", "epsilon must be 0 or more (inf for no limit); got -1.0. (--epsilon)"),
        ("--hold-out 2", "hold_out must be a share of the episodes in [0, 1); got 2.0. (--hold-out)"),
        ("--method b-opt --threshold pain=1", "(--threshold)"),
        ("--discount 1.5", "(--discount)"),
        ("--rare-below 0", "(--rare-below)"),
        ("--lower-is-better pian", "Did you mean 'pain'?"),
    ],
)
def test_errors_name_the_option_of_their_setting(words, said, tmp_path):
    log = log_of_every_column(tmp_path)
    done = subprocess.run(
        [BETTERSAFE, "improve", str(log), "--objective", "relief", "--objective", "pain",
         "-o", str(tmp_path / "run"), *shlex.split(words)],
        capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1", "COLUMNS": "300"},
    )  # fmt: skip
    assert done.returncode == 1
    assert " ".join(done.stderr.split()).endswith(said)


@pytest.mark.parametrize("mode", [(), ("--posterior",)])
def test_certify_refuses_options_that_it_would_not_use(mode, tmp_path):
    """Every option is used by one kind of evidence or by both; none is silently ignored."""
    given = {"zeta": "a=1", "threshold": "a=1", "folds": "3", "draws": "40", "engine": "ray"}
    rows = {
        row.flag: given.get(row.name, "required" if row.name == "coverage" else "0.5" if row.kind == "number" else "3")
        for row in (*TEST_OPTIONS, FOLDS, *POSTERIOR_OPTIONS)
    }
    refused = set()
    for flag, value in {**rows, "--address": "here:1"}.items():
        done = CliRunner().invoke(app, ["certify", str(tmp_path / "RUN"), "log.csv", flag, value, *mode])
        if done.exit_code == 2:
            assert "is only for" in done.output
            assert flag in done.output
            refused.add(flag)
    held_out = {"--threshold", "--estimator", "--bound", "--levels", "--coverage", "--truncation", "--folds"}
    posterior = {"--draws", "--form", "--prior", "--pessimism", "--event", "--engine", "--address"}
    assert refused == (held_out if mode else posterior)


def test_a_wrong_engine_is_told_with_the_choices():
    with pytest.raises(typer.BadParameter, match="must be ray; got rey"):
        cluster_from("rey", None)
    with pytest.raises(typer.BadParameter, match="must be native or ray; got rey"):
        cluster_from("rey", None, others=("native",))
    assert cluster_from("native", None, others=("native",)) is None
