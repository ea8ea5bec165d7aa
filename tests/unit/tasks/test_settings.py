"""The table of settings: fields, options, the explorer and the page in the docs follow from it."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import pytest

from bettersafe.errors import BettersafeError, ParameterError, WrongTypeError
from bettersafe.evaluation import choices as evaluation_choices
from bettersafe.explore.answers import believe
from bettersafe.explore.session import first_settings, open_session, solve, spread
from bettersafe.logs.dataset import OBJECTIVE_KINDS, Columns, Objective
from bettersafe.mdp import choices as mdp_choices
from bettersafe.methods import choices as methods_choices
from bettersafe.posterior import choices as posterior_choices
from bettersafe.posterior.events import DeclaredEvent
from bettersafe.posterior.priors import PriorSet
from bettersafe.tasks.retest import HeldOutTest
from bettersafe.tasks.retest_posterior import PosteriorTest
from bettersafe.tasks.settings import (
    BY_NAME,
    COLUMNS,
    EVENT,
    EVERY,
    OBJECTIVE,
    OF_EACH_TEST,
    OF_POSTERIOR,
    RARE,
    SETTINGS,
    TABLES,
    with_flags,
)
from bettersafe.tasks.task import Rare, Task, command_words
from other_settings import IDS, OPTIONS, TABLE_OF, log_of_every_column, other_value, plain_task, task_with, value_in
from places import ROOT


# One table
@pytest.mark.parametrize(
    ("kind", "table", "others"),
    [
        (Task, SETTINGS, {*TABLES}),
        (Objective, OBJECTIVE, {"name"}),
        (Columns, COLUMNS, set()),
        (Rare, RARE, {"name"}),
        (DeclaredEvent, EVENT, set()),
    ],
    ids=["Task", "Objective", "Columns", "Rare", "DeclaredEvent"],
)
def test_fields_and_defaults_are_those_of_the_table(kind, table, others):
    fields = {field.name: field for field in dataclasses.fields(kind)}
    assert set(fields) == {row.name for row in table} | others
    for row in table:
        field = fields[row.name]
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        required = default is dataclasses.MISSING and row.default is None
        assert required or (default == row.default and type(default) is type(row.default)), row.name


def test_choices_are_those_of_the_types():
    homes = (evaluation_choices, mdp_choices, methods_choices, posterior_choices)
    names = {name: value for module in homes for name, value in vars(module).items()}
    hints = typing.get_type_hints(Task, localns=names)
    typed = {row.name for row in SETTINGS if typing.get_origin(hints[row.name]) is typing.Literal}
    assert {
        "form",
        "prior",
        "unseen",
        "error_kind",
        "engine",
        "levels",
        "comparison",
        "selection",
        "coverage",
        "proposal",
    } == typed
    for name in typed:
        assert set(typing.get_args(hints[name])) == set(BY_NAME[name].choices)


WRONG = {
    "text": (1, None, ["a"]),
    "number": ("x", None, [1.0], True),
    "whole number": ("x", 0.5, np.nan),
    "true or false": ("x", None, 1),
    "pair of numbers": (1.5, "x", (1, 2, 3)),
    "list of texts": (None, "x", (1,)),
    "list of events": (None, "x", (1,)),
    "table of whole numbers": (None, 3, {"a": 0.5}),
}


@pytest.mark.parametrize("row", EVERY, **IDS)
def test_every_setting_is_of_its_kind_in_python_too(row):
    """A value of another kind is refused by name, before anything is computed; NumPy's scalars become plain ones."""
    wrong = [value for value in WRONG[row.kind] if value is not None or row.default is not None]
    if TABLE_OF[id(row)] == "task" and row.by_objective:
        wrong = [None, 3, "x", *({"pain": value} for value in WRONG[row.kind]), {1: 0.5}]
    for value in wrong:
        with pytest.raises(WrongTypeError, match=rf"{row.name}.* must be .*; got "):
            task_with(row, value, plain_task())
    scalars = {"number": np.float64, "whole number": np.int64, "text": np.str_, "true or false": np.bool_}
    if row.kind in scalars:
        value = other_value(row)
        kind = scalars[row.kind]
        given = {name: kind(each) for name, each in value.items()} if isinstance(value, dict) else kind(value)
        found = value_in(row, task_with(row, given, plain_task()))
        assert repr(found) == repr(value)


def test_objectives_are_of_the_kinds_of_the_table():
    assert {"name": "text"} | {row.name: row.kind for row in OBJECTIVE} == OBJECTIVE_KINDS


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Objective(name=1), "the name of an objective must be text; got 1"),
        (lambda: Objective(name="a", label=5), "the label of a must be text; got 5"),
        (lambda: Rare(name=1), "the name of a derived objective must be text; got 1"),
        (lambda: Rare(below=np.nan), "below of rare must be a whole number; got nan"),
        (lambda: Rare(reward=np.inf), "reward of rare must be finite"),
        (lambda: Rare(discount=2.0), "the discount of rare must be in"),
        (lambda: PriorSet(pessimism="x"), "pessimism must be a number; got 'x'"),
        (lambda: PriorSet(concentration_scale=None), "concentration_scale must be a number; got None"),
        (lambda: HeldOutTest(zeta=3), "zeta must be a dict"),
        (
            lambda: HeldOutTest(zeta={"pain": -1.0}),
            "zeta of pain must be an accepted loss, 0 or more and finite; got -1.0",
        ),
        (lambda: HeldOutTest(folds="x"), "folds must be an integer"),
        (lambda: PosteriorTest(draws="x"), "draws must be a whole number"),
        (lambda: PosteriorTest(zeta={"pain": np.nan}), "zeta of pain must be an accepted loss"),
        (lambda: dataclasses.replace(plain_task(), zeta={"pain": -1.0}), "zeta of pain must be an accepted loss"),
    ],
)
def test_kinds_and_ranges_of_other_settings(make, message):
    with pytest.raises(BettersafeError, match=message):
        make()


def test_names_and_options_are_unique_and_texts_name_settings_that_there_are():
    assert len({row.parameter for row in EVERY}) == len(EVERY)
    for row in EVERY:
        assert with_flags(row.long_help).strip()
        assert row.help[0].isupper()
        assert not row.help.endswith(".")
        assert row.default is None or row.kind != "text" or not row.choices or row.others or row.default in row.choices


@pytest.mark.parametrize("row", OPTIONS, **IDS)
@pytest.mark.parametrize("command", ["improve", "explore"])
def test_every_setting_is_an_option_and_in_the_repeated_command(row, command, reached, tmp_path):
    task = task_with(row, other_value(row), plain_task(log_of_every_column(tmp_path)))
    words = command_words(task)
    assert row.flag in words
    found = reached(command, *words)
    assert found == task
    assert value_in(row, found) == other_value(row)
    assert row.name == "weight" or row.flag not in command_words(plain_task())


REFUSED = {"hold_out", "horizon", "candidates", "method"}  # method: the sample is no method to explore


@pytest.mark.filterwarnings("ignore:bettersafe was installed without")
@pytest.mark.parametrize("row", EVERY, **IDS)
def test_the_explorer_honours_every_setting_or_refuses_it_by_name(row, tmp_path):
    value = other_value(row)
    table = TABLE_OF[id(row)]
    log = log_of_every_column(tmp_path, **({row.name: value} if table == "columns" else {}))
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
        session = open_session(task)
        assert value_in(row, session.task) == value
        if row.name in OF_POSTERIOR and row.name not in OF_EACH_TEST:  # the explorer's posterior has no draws
            assert explored(session) != explored(open_session(plain_task(log)))


def explored(session):
    """What the explorer believes of the policy that always takes the first action."""
    settings = first_settings(session)
    policy = np.zeros_like(session.baseline)
    policy[:, 0] = 1.0
    found = dataclasses.replace(solve(session, settings), policy=policy)
    rows = believe(session, settings, found, spread(session, found.policy))["objectives"]
    return [(row["p_no_worse"], row["p_no_worse_pessimistic"]) for row in rows]


def test_the_page_of_settings_is_current():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "make_settings_page.py")], capture_output=True, text=True, check=True
    )
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == done.stdout, "run: scripts/make_settings_page.py > docs/settings.md"
