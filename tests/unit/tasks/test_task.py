"""Tasks: documented as the table of settings says, and repeated as a command."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re

import pytest

from bettersafe.tasks.settings import SETTINGS
from bettersafe.tasks.task import Rare, Task, command_words, settings_document
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
    assert document[row.name] == json.loads(json.dumps(other_value(row)))


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


def test_a_command_says_no_more_than_one_derived_objective():
    for derived in ((Rare(), Rare(name="rarer", below=3)), (Rare(name="seldom"),)):
        assert command_words(dataclasses.replace(plain_task(), derived=derived)) is None
