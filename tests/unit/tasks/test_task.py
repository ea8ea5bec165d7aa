"""Tasks: documented as the table of settings says, and repeated as a command."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re

import pytest

from bettersafe.logs.counts_file import save_counts
from bettersafe.logs.dataset import Columns, Objective
from bettersafe.logs.source import count_files
from bettersafe.tasks.settings import SETTINGS
from bettersafe.tasks.task import Rare, Task, command_words, settings_document, task_without_options
from bettersafe.tasks.toml import read_task
from other_settings import IDS, log_of_every_column, other_value, plain_task, task_with


def test_the_task_is_documented_as_the_table_says():
    text = inspect.cleandoc(Task.__doc__).split("Attributes:\n", 1)[1]
    documented = {
        name: " ".join(words.split())
        for name, words in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE)
    }
    assert set(documented) == {field.name for field in dataclasses.fields(Task)}
    for row in SETTINGS:
        assert documented[row.name] == f"{row.help}.", row.name


@pytest.mark.parametrize("row", SETTINGS, **IDS)
def test_every_setting_is_in_the_settings_of_a_run(row):
    task = task_with(row, other_value(row), plain_task())
    document = json.loads(json.dumps(settings_document(task)))
    assert document[row.name] == json.loads(json.dumps(other_value(row), default=dataclasses.asdict))


def test_a_task_file_is_repeated_with_what_differs_from_it(reached, tmp_path):
    log_of_every_column(tmp_path)
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


def test_values_that_are_zero_or_empty_are_repeated_too(reached, tmp_path):
    log = log_of_every_column(tmp_path)
    base = Task(
        data=str(log), objectives=(Objective(name="relief"), Objective(name="pain", unit="points", label="Pain"))
    )
    pain = Objective(name="pain", discount=0.0, weight=0.0, label="", unit="", reward_range=(0.0, 0.0))
    task = dataclasses.replace(
        base, objectives=(base.objectives[0], pain), hold_out=0.0, pessimism=0.0, zeta={"pain": 0.0}
    )
    file = tmp_path / "task.toml"
    file.write_text('data = "log.csv"\n[objectives.relief]\n[objectives.pain]\nunit = "points"\nlabel = "Pain"\n')
    for words in (command_words(task, base=base, task_file=str(file)), command_words(task)):
        assert reached("improve", *words) == task


def test_a_counts_file_is_repeated_with_what_differs_from_it(reached, tmp_path):
    """Its objectives have settings of their own; those of a command come on top."""
    log = log_of_every_column(tmp_path, episode="stay")
    counted = (Objective(name="relief", discount=0.5, unit="points"), Objective(name="pain", lower_is_better=True))
    path = tmp_path / "counts.parquet"
    save_counts(count_files(str(log), objectives=counted, columns=Columns(episode="stay")), path)
    own = task_without_options(str(path))
    assert own.objectives == counted
    assert command_words(own)[1:] == ["--objective", "relief=1", "--objective", "pain=1"]
    relief, pain = counted
    task = dataclasses.replace(own, objectives=(dataclasses.replace(relief, discount=0.99, unit=""), pain))
    assert reached("improve", *command_words(task)) == task


def test_a_path_that_begins_with_a_hyphen_comes_after_the_options(reached, tmp_path, monkeypatch):
    monkeypatch.chdir(log_of_every_column(tmp_path).rename(tmp_path / "-log.csv").parent)
    task = plain_task("-log.csv")
    words = command_words(task, output="other")
    assert words[-4:] == ["-o", "other", "--", "-log.csv"]
    assert reached("improve", *words) == task


def test_the_order_of_an_action_shape_is_repeated(tmp_path):
    base = dataclasses.replace(plain_task(), action_shape={"fluid": 5, "vasopressor": 4})
    other = dataclasses.replace(base, action_shape={"vasopressor": 4, "fluid": 5})
    words = command_words(other, base=base, task_file="task.toml")
    assert words[-4:] == ["--action-shape", "vasopressor=4", "--action-shape", "fluid=5"]
    assert "--action-shape" not in command_words(base, base=base, task_file="task.toml")


def test_a_command_says_no_other_derived_objective_than_rare(reached, tmp_path):
    for derived in ((Rare(), Rare(name="rarer", below=3)), (Rare(name="seldom"),)):
        assert command_words(dataclasses.replace(plain_task(), derived=derived)) is None
    log_of_every_column(tmp_path)
    file = tmp_path / "task.toml"
    rows = "[derived]\nseldom = { below = 5 }\nrare = { below = 3, discount = 0.5 }\n"
    file.write_text(f'data = "log.csv"\n[objectives.relief]\n[objectives.pain]\n{rows}')
    base = read_task(file)
    task = dataclasses.replace(base, derived=(base.derived[0], Rare(below=7, discount=0.5)))
    assert reached("improve", "--task", str(file), "--rare-below", "7") == task
    assert reached("improve", *command_words(task, base=base, task_file=str(file))) == task
    changed = dataclasses.replace(base, derived=(Rare(name="seldom", below=6), base.derived[1]))
    assert command_words(changed, base=base, task_file=str(file)) is None
