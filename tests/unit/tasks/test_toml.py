"""Task files."""

from __future__ import annotations

import dataclasses
import json

import pytest

import bettersafe.tasks.task as task_module
from bettersafe.errors import BettersafeError
from bettersafe.tasks.settings import EVERY
from bettersafe.tasks.toml import read_task
from other_settings import IDS, NEEDS, TABLE_OF, other_value, plain_task, task_with, value_in


@pytest.mark.parametrize("row", EVERY, **IDS)
def test_every_setting_is_a_key_of_task_files(row, tmp_path):
    value = other_value(row)
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
        lines += [
            f"{key} = {json.dumps(entry, default=dataclasses.asdict).replace(':', ' =')}" for key, entry in keys.items()
        ]
    (tmp_path / "task.toml").write_text("\n".join(lines), encoding="utf-8")
    if row.path:
        value = tuple(str(tmp_path / each) for each in value) if isinstance(value, tuple) else str(tmp_path / value)
    found = read_task(tmp_path / "task.toml")
    assert found == task_with(row, value, plain_task(tmp_path / "log.csv"))
    assert value_in(row, found) == value


def test_the_module_docstring_of_tasks_is_a_task_file(tmp_path):
    _, _, text = task_module.__doc__.partition("\n\n")
    (tmp_path / "task.toml").write_text(text, encoding="utf-8")
    assert read_task(tmp_path / "task.toml").objectives[1].label == "Pain score"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"epsilon = 1{'0' * 400}", "epsilon of the task in task.toml is too large"),
        (f"seed = 1{'0' * 400}", "seed of the task in task.toml must be less than"),
        (f"seed = 1{'0' * 5000}", "task.toml is not valid TOML"),
        (f"zeta = {'[' * 5000}", "task.toml is not valid TOML"),
        ("epsilon = true", "epsilon of the task in task.toml must be a number; got True"),
        (
            "action_shape = { a = 0.5, b = 2 }",
            "a in action_shape of the task in task.toml must be a whole number; got 0.5",
        ),
    ],
)
def test_values_that_are_no_such_setting(line, message, tmp_path):
    (tmp_path / "task.toml").write_text(f'data = "log.csv"\n{line}\n', encoding="utf-8")
    with pytest.raises(BettersafeError, match=message):
        read_task(tmp_path / "task.toml")
