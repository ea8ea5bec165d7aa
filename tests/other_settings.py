"""For every setting a value that is not its default, and tasks that have it."""

from __future__ import annotations

import dataclasses

from bettersafe.logs.dataset import Columns, Objective
from bettersafe.posterior.events import DeclaredEvent
from bettersafe.tasks.settings import EVERY, SETTINGS, TABLES
from bettersafe.tasks.task import Rare, Task

TABLE_OF = {id(row): name for name, table in (("task", SETTINGS), *TABLES.items()) for row in table}

NEEDS = {"support": {"error_kind": "l1"}}  # settings that go with another one alone

OPTIONS = [row for row in EVERY if row.flag.startswith("--")]

IDS = {"ids": lambda row: row.parameter}


def other_value(row):
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
        "list of events": (
            DeclaredEvent(
                name='an "odd" = one',
                cost={"pain": -2.5, "relief": -1e-7},
                rate=1e-05,
                actions=["1"],
                states=["a", "b"],
            ),
            DeclaredEvent(name="end", rate=0.25, ends=True),
        ),
        "table of whole numbers": {"fluid": 5, "vasopressor": 4},
    }
    value = samples[row.kind]
    return {"pain": value} if row in SETTINGS and row.by_objective else value


def plain_task(data="log.csv"):
    return Task(data=str(data), objectives=(Objective(name="relief"), Objective(name="pain")))


def task_with(row, value, base):
    """The task with one setting other_value."""
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


def log_of_every_column(folder, **names):
    """A log with every column that there can be; ``names`` rename columns."""
    columns = ("episode", "step", "state", "action", "relief", "pain", "next_state", "terminated", "truncated", "baseline_prob", "sampling_unit")  # fmt: skip
    lines = [",".join(names.get(name, name) for name in columns)]
    for episode in range(40):
        for step in range(2):
            action = (episode + step) % 2
            end = ("", "false", "true") if episode % 5 == 0 else ("", "true", "false")
            after = end if step else ("b", "false", "false")
            lines.append(
                f"{episode},{step},{'ab'[step]},{action},{episode % 3},{episode % 4},{','.join(after)},0.5,{episode // 2}"
            )
    path = folder / "log.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
