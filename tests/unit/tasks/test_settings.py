"""The table of settings: fields, task files, options, the repeated command, the explorer and the page in the docs follow from it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from typer.testing import CliRunner

import bettersafe.tasks.task as task_module
from bettersafe.cli.main import app
from bettersafe.errors import ParameterError
from bettersafe.evaluation import choices as evaluation_choices
from bettersafe.explore.session import open_session
from bettersafe.logs.dataset import Columns, Objective
from bettersafe.mdp import choices as mdp_choices
from bettersafe.methods import choices as methods_choices
from bettersafe.posterior import choices as posterior_choices
from bettersafe.tasks.settings import BY_NAME, COLUMNS, EVERY, OBJECTIVE, RARE, SETTINGS, TABLES, with_flags
from bettersafe.tasks.task import Rare, Task, command_words, settings_document
from bettersafe.tasks.toml import read_task
from places import ROOT

TABLE_OF = {id(row): name for name, table in (("task", SETTINGS), *TABLES.items()) for row in table}
NEEDS = {"support": {"error_kind": "l1"}}  # settings that go with another one alone
OPTIONS = [row for row in EVERY if row.flag.startswith("--")]
IDS = {"ids": lambda row: row.parameter}


def changed(row):
    """A value that is not the default."""
    if row.choices and not row.others:
        return next(name for name in reversed(row.choices) if name != row.default)
    samples = {
        "text": f"{row.name} of ours.csv",
        "number": 0.25,
        "whole number": 3,
        "true or false": True,
        "pair of numbers": (-5.5, 10.0),
        "list of texts": ("ours.csv", "theirs.csv"),
        "table of whole numbers": {"fluid": 5, "vasopressor": 4},
    }
    value = samples[row.kind]
    return {"pain": value} if row in SETTINGS and row.by_objective else value


def plain_task(data="log.csv"):
    return Task(data=str(data), objectives=(Objective(name="relief"), Objective(name="pain")))


def task_with(row, value, base):
    """The task with one setting changed."""
    table = TABLE_OF[id(row)]
    if table == "task":
        return dataclasses.replace(base, **{row.name: value, **NEEDS.get(row.name, {})})
    if table == "columns":
        return dataclasses.replace(base, columns=Columns(**{row.name: value}))
    if table == "derived":
        return dataclasses.replace(base, derived=(Rare(**{row.name: value}),))
    relief, pain = base.objectives
    return dataclasses.replace(base, objectives=(relief, dataclasses.replace(pain, **{row.name: value})))


def value_in(row, task):
    """The value that a task has of a setting."""
    table = TABLE_OF[id(row)]
    holder = {"task": lambda: task, "columns": lambda: task.columns, "derived": lambda: task.derived[0]}
    return getattr(holder.get(table, lambda: task.objectives[1])(), row.name)


def write_log(folder, **names):
    """A log with every column that there can be; ``names`` rename columns."""
    columns = ("episode", "step", "state", "action", "relief", "pain", "next_state", "terminated", "truncated", "baseline_prob")  # fmt: skip
    lines = [",".join(names.get(name, name) for name in columns)]
    for episode in range(40):
        for step in range(2):
            action = (episode + step) % 2
            end = ("", "false", "true") if episode % 5 == 0 else ("", "true", "false")
            after = end if step else ("b", "false", "false")
            lines.append(f"{episode},{step},{'ab'[step]},{action},{episode % 3},{episode % 4},{','.join(after)},0.5")
    path = folder / "log.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


# One table


@pytest.mark.parametrize(
    ("kind", "table", "others"),
    [(Task, SETTINGS, {*TABLES}), (Objective, OBJECTIVE, {"name"}), (Columns, COLUMNS, set()), (Rare, RARE, {"name"})],
    ids=["Task", "Objective", "Columns", "Rare"],
)
def test_fields_and_defaults_are_those_of_the_table(kind, table, others):
    fields = {field.name: field for field in dataclasses.fields(kind)}
    assert set(fields) == {row.name for row in table} | others
    for row in table:
        field = fields[row.name]
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        assert row.name == "data" or (default == row.default and type(default) is type(row.default)), row.name


def test_the_task_is_documented_as_the_table_says():
    text = inspect.cleandoc(Task.__doc__).split("Attributes:\n", 1)[1]
    documented = {
        name: " ".join(words.split())
        for name, words in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE)
    }
    assert set(documented) == {field.name for field in dataclasses.fields(Task)}
    for row in SETTINGS:
        assert documented[row.name] == f"{row.help}.", row.name


def test_choices_are_those_of_the_types():
    homes = (evaluation_choices, mdp_choices, methods_choices, posterior_choices)
    names = {name: value for module in homes for name, value in vars(module).items()}
    hints = typing.get_type_hints(Task, localns=names)
    typed = {row.name for row in SETTINGS if typing.get_origin(hints[row.name]) is typing.Literal}
    assert {"form", "prior", "unseen", "error_kind", "engine", "levels", "comparison", "selection"} == typed
    for name in typed:
        assert set(typing.get_args(hints[name])) == set(BY_NAME[name].choices)


def test_names_and_options_are_unique_and_texts_name_settings_that_there_are():
    assert len({row.parameter for row in EVERY}) == len(EVERY)
    for row in EVERY:
        assert with_flags(row.long_help).strip()
        assert row.help[0].isupper()
        assert not row.help.endswith(".")
        assert row.default is None or row.kind != "text" or not row.choices or row.others or row.default in row.choices


def test_the_command_line_starts_without_numpy():
    code = "import sys, bettersafe.cli.main; print([m for m in ('numpy', 'pyarrow', 'scipy', 'duckdb') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# Every setting goes everywhere


class Reached(Exception):
    """Stops a command where its task is there."""


@pytest.fixture
def reached(monkeypatch, tmp_path):
    """The task that the words of a command come to."""

    def stop(task, **_):
        raise Reached(task)

    monkeypatch.setattr("bettersafe.tasks.run.run_task", stop)
    monkeypatch.setattr("bettersafe.explore.session.open_session", stop)

    def run(*words):
        caught = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "run")]).exception
        assert isinstance(caught, Reached), (words, caught)
        return caught.args[0]

    return run


@pytest.mark.parametrize("row", OPTIONS, **IDS)
@pytest.mark.parametrize("command", ["improve", "explore"])
def test_every_setting_is_an_option_and_in_the_repeated_command(row, command, reached, tmp_path):
    task = task_with(row, changed(row), plain_task(write_log(tmp_path)))
    words = command_words(task)
    assert row.flag in words
    found = reached(command, *words)
    assert found == task
    assert value_in(row, found) == changed(row)
    assert row.name == "weight" or row.flag not in command_words(plain_task())


@pytest.mark.parametrize("row", EVERY, **IDS)
def test_every_setting_is_a_key_of_task_files(row, tmp_path):
    value = changed(row)
    tables = {"task": {}, "columns": {}, "derived.rare": {}, "objectives.relief": {}, "objectives.pain": {}}
    tables["task"]["data"] = "log.csv"
    table = TABLE_OF[id(row)]
    if table == "task" and row.by_objective:
        tables["objectives.pain"][row.toml_key] = value["pain"]
    else:
        where = {"objectives": "objectives.pain", "derived": "derived.rare"}.get(table, table)
        tables[where][row.toml_key] = value
    tables["task"].update(NEEDS.get(row.name, {}))
    if table != "derived":
        del tables["derived.rare"]
    lines = []
    for name, keys in tables.items():
        lines += [] if name == "task" else [f"[{name}]"]
        lines += [f"{key} = {json.dumps(entry).replace(':', ' =')}" for key, entry in keys.items()]
    (tmp_path / "task.toml").write_text("\n".join(lines), encoding="utf-8")
    if row.path:
        value = tuple(str(tmp_path / each) for each in value) if isinstance(value, tuple) else str(tmp_path / value)
    found = read_task(tmp_path / "task.toml")
    assert found == task_with(row, value, plain_task(tmp_path / "log.csv"))
    assert value_in(row, found) == value


@pytest.mark.parametrize("row", SETTINGS, **IDS)
def test_every_setting_is_in_the_settings_of_a_run(row):
    task = task_with(row, changed(row), plain_task())
    document = json.loads(json.dumps(settings_document(task)))
    assert document[row.name] == json.loads(json.dumps(changed(row)))


REFUSED = {"hold_out", "candidates", "method"}  # method: the sample is no method to explore


@pytest.mark.filterwarnings("ignore:bettersafe was installed without")
@pytest.mark.parametrize("row", EVERY, **IDS)
def test_the_explorer_honours_every_setting_or_refuses_it_by_name(row, tmp_path):
    value = changed(row)
    table = TABLE_OF[id(row)]
    log = write_log(tmp_path, **({row.name: value} if table == "columns" else {}))
    if row.path:
        value = tuple(str(tmp_path / each) for each in value) if isinstance(value, tuple) else str(tmp_path / value)
    if row.name == "data":
        log.rename(value)
    if row.name == "baseline":
        Path(value).write_text("state,action,probability\n" + "".join(f"{x},{a},0.5\n" for x in "ab" for a in (0, 1)))
    task = task_with(row, value, plain_task(log))
    if row.name in REFUSED:
        with pytest.raises(ParameterError, match=re.escape(row.name)) as caught:
            open_session(task)
        assert caught.value.setting == row.name
    else:
        assert value_in(row, open_session(task).task) == value


def test_a_task_file_is_repeated_with_what_differs_from_it(reached, tmp_path):
    write_log(tmp_path)
    file = tmp_path / "task.toml"
    file.write_text(
        'data = "log.csv"\nunseen = "worst"\n[objectives.relief]\n[objectives.pain]\nzeta = 0.5\nlabel = "Pain"\n'
    )
    base = read_task(file)
    task = dataclasses.replace(base, prior="support", zeta={"pain": 0.5, "relief": 1.0}, delta=0.2)
    words = command_words(task, base=base, task_file=str(file))
    assert reached("improve", *words) == task
    assert "--unseen" not in words
    assert "--label" not in words
    assert "pain=0.5" not in words


def test_a_command_says_no_more_than_one_derived_objective():
    for derived in ((Rare(), Rare(name="rarer", below=3)), (Rare(name="seldom"),)):
        assert command_words(dataclasses.replace(plain_task(), derived=derived)) is None


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
            [str(Path(sys.executable).parent / "bettersafe")],
            capture_output=True, text=True, check=True, env={**os.environ, **known, **asked},
        )  # fmt: skip
        assert done.stdout.split() == expected


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
    log = write_log(tmp_path)
    done = subprocess.run(
        [str(Path(sys.executable).parent / "bettersafe"), "improve", str(log), "--objective", "relief", "--objective", "pain",
         "-o", str(tmp_path / "run"), *shlex.split(words)],
        capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1", "COLUMNS": "300"},
    )  # fmt: skip
    assert done.returncode == 1
    assert " ".join(done.stderr.split()).endswith(said)


def test_commands_are_short():
    for path in sorted((ROOT / "src" / "bettersafe" / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                arguments = node.args
                given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                assert len(given) <= 11 - (given[:1] == [] or given[0].arg != "given"), f"{path.name}: {node.name}"
                assert node.end_lineno - node.lineno < 100, f"{path.name}: {node.name}"


def test_the_page_of_settings_is_current():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "make_settings_page.py")], capture_output=True, text=True, check=True
    )
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == done.stdout, "run: scripts/make_settings_page.py > docs/settings.md"


def test_the_module_docstring_of_tasks_is_a_task_file(tmp_path):
    _, _, text = task_module.__doc__.partition("\n\n")
    (tmp_path / "task.toml").write_text(text, encoding="utf-8")
    assert read_task(tmp_path / "task.toml").objectives[1].label == "Pain score"
