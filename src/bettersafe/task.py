"""A task: where the data is, what is wanted, and how careful to be. A TOML file or command-line options say the same.

data = "visits.parquet"            # file or glob, relative to the task file
method = "s-opt"                   # s-opt | soft-spibb | adv-linearized | linearized
epsilon = 0.1
delta = 0.1
baseline = "estimate"              # or a policy file; left out: the logged column if there is one, else estimate

[columns]                          # only those whose names differ
episode = "stay"

[objectives.survival]
weight = 1.0
discount = 0.99

[objectives.pain]
lower_is_better = true
label = "Pain score"
unit = "points"

[derived]
rare = { below = 10, reward = -10 }
"""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bettersafe import improve, lp
from bettersafe.counts import Counts, count_files, declare_actions, with_rare
from bettersafe.data import Columns, Objective
from bettersafe.errors import ParameterError, check_choice, check_epsilon, check_probability, did_you_mean
from bettersafe.logs.files import data_digest
from bettersafe.model import (
    ERROR_KINDS,
    UNSEEN_RULES,
    ErrorKind,
    Unseen,
    check_logged_baseline,
    estimate_baseline,
    estimate_model,
    logged_baseline,
)
from bettersafe.policies import policy_actions, read_policy
from bettersafe.runs import Run, make_run

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Rare:
    """A derived objective: ``reward`` for every decision that the data has fewer than ``below`` times."""

    name: str = "rare"
    below: int = 10
    reward: float = -10.0
    weight: float = 1.0
    discount: float = 0.99

    def __post_init__(self) -> None:
        if self.below < 1:
            raise ParameterError(
                f"rare decisions are those seen fewer than a number of times, at least 1; got {self.below}."
            )


@dataclass(frozen=True, kw_only=True)
class Task:
    """Everything `run_task` needs.

    Attributes:
        data: File or glob of files.
        objectives: The reward columns, at least one.
        columns: Which column is which.
        derived: Objectives made from the counts.
        baseline: "logged" (the probability column), "estimate", a policy file, or "" for logged if there, else estimate.
        method: "s-opt", "soft-spibb", "adv-linearized" or "linearized".
        epsilon: Budget of S-OPT and Soft-SPIBB.
        delta: Risk in the error function.
        error_kind: "q" or "l1".
        support: For "l1": the most successors a pair can have, if known.
        unseen: What a pair never tried is worth.
        engine: "auto", "native" or "highs".
    """

    data: str
    objectives: tuple[Objective, ...]
    columns: Columns = dataclasses.field(default_factory=Columns)
    derived: tuple[Rare, ...] = ()
    baseline: str = ""
    method: improve.Method = "s-opt"
    epsilon: float = 0.1
    delta: float = 0.1
    error_kind: ErrorKind = "q"
    support: int | None = None
    unseen: Unseen = "end"
    engine: lp.Engine = "auto"

    def __post_init__(self) -> None:
        check_choice("method", self.method, improve.METHODS)
        check_epsilon(self.epsilon)
        check_probability("delta", self.delta)
        check_choice("error_kind", self.error_kind, ERROR_KINDS)
        check_choice("unseen", self.unseen, UNSEEN_RULES)
        check_choice("engine", self.engine, lp.ENGINES)
        if self.support is not None and self.error_kind != "l1":
            raise ParameterError('support is a setting of the error function "l1" alone.')


# What a task file may say, and of which type: text, a number, a whole number, true or false.
TASK_KEYS = {
    "data": "text", "baseline": "text", "method": "text", "epsilon": "number", "delta": "number", "error_kind": "text",
    "support": "whole number", "unseen": "text", "engine": "text",
}  # fmt: skip
COLUMN_KEYS = {field.name: "text" for field in dataclasses.fields(Columns)}
OBJECTIVE_KEYS = {
    "discount": "number",
    "weight": "number",
    "lower_is_better": "true or false",
    "label": "text",
    "unit": "text",
}
ARTICLE = {"text": "", "number": "a ", "whole number": "a ", "true or false": ""}
RARE_KEYS = {"below": "whole number", "reward": "number", "weight": "number", "discount": "number"}


def read_task(path: str | Path, *, data: str | None = None) -> Task:
    """Read a task file; paths in it are relative to it.

    Args:
        path: The TOML file. An unknown key or a value of the wrong type is an error that says so.
        data: The log, if not the one that the file names.
    """
    file = Path(path)
    if not file.is_file():
        raise ParameterError(f"there is no task file {file}.")
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{file.name} is not valid TOML: {error}") from None
    name = file.name
    tables = {key: _table(document.pop(key, {}), key, name) for key in ("columns", "objectives", "derived")}
    settings = _checked(document, TASK_KEYS, name, "the task", more=tuple(tables))
    if data is not None:
        settings["data"] = data
    elif "data" in settings:
        settings["data"] = str(file.parent / settings["data"])
    else:
        raise ParameterError(f'{name} must say where the data is: data = "log.parquet".')
    if settings.get("baseline", "") not in ("", "logged", "estimate"):
        settings["baseline"] = str(file.parent / settings["baseline"])
    objectives = [
        Objective(
            name=key, **_checked(_table(table, f"objectives.{key}", name), OBJECTIVE_KEYS, name, f"[objectives.{key}]")
        )
        for key, table in tables["objectives"].items()
    ]
    derived = [
        Rare(name=key, **_checked(_table(table, f"derived.{key}", name), RARE_KEYS, name, f"[derived.{key}]"))
        for key, table in tables["derived"].items()
    ]
    columns = Columns(**_checked(tables["columns"], COLUMN_KEYS, name, "[columns]"))
    return Task(columns=columns, objectives=tuple(objectives), derived=tuple(derived), **settings)


def _table(value: Any, key: str, file: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ParameterError(f"{key} in {file} must be a table, [{key}]; got {value!r}.")
    return value


def _checked(
    table: dict[str, Any], keys: dict[str, str], file: str, where: str, more: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The table with every key known and every value of its type; numbers become floats."""
    result = {}
    for key, value in table.items():
        if key not in keys:
            known = sorted((*keys, *more))
            raise ParameterError(
                f"{where} in {file} has no setting {key!r}; it may have {', '.join(known)}.{did_you_mean(key, known)}"
            )
        kind = keys[key]
        right = {
            "text": isinstance(value, str),
            "number": isinstance(value, int | float) and not isinstance(value, bool),
            "whole number": isinstance(value, int) and not isinstance(value, bool),
            "true or false": isinstance(value, bool),
        }[kind]
        if not right:
            raise ParameterError(f"{key} of {where} in {file} must be {ARTICLE[kind]}{kind}; got {value!r}.")
        result[key] = float(value) if kind == "number" else value
    return result


def task_counts(task: Task) -> Counts:
    """Sufficient statistics of the task's data, with its derived objectives and the actions its baseline file names."""
    columns = task.columns
    if task.baseline == "estimate":  # then what was logged of the baseline is not read at all
        columns = dataclasses.replace(columns, baseline_prob="")
    counts = count_files(task.data, objectives=task.objectives, columns=columns)
    for rare in task.derived:
        counts = with_rare(
            counts,
            name=rare.name,
            below=rare.below,
            reward=rare.reward,
            discount=rare.discount,
            weight=rare.weight,
        )
    if task.baseline not in ("", "logged", "estimate"):
        named = policy_actions(task.baseline, counts.action_labels)
        new = np.setdiff1d(named.astype(str), counts.action_labels.astype(str))
        counts = declare_actions(counts, named)
        if new.size:
            note = f"{Path(task.baseline).name} has actions that were never logged: {', '.join(new[:5])}"
            counts = dataclasses.replace(counts, notes=(*counts.notes, note))
    return counts


def task_baseline(task: Task, counts: Counts) -> tuple[Floats, str]:
    """The baseline [X, A] that the task asks for, and where it came from, in words."""
    if task.baseline == "estimate":
        return estimate_baseline(counts), "estimated from the data"
    if task.baseline in ("", "logged"):
        if counts.baseline_prob is None and not task.baseline:
            return estimate_baseline(counts), "estimated from the data"
        return logged_baseline(counts), "logged with the data"
    baseline = read_policy(task.baseline, counts.state_labels, counts.action_labels)
    check_logged_baseline(counts, baseline)
    return baseline, f"given in {Path(task.baseline).name}"


def run_task(task: Task, *, progress: improve.Progress | None = None) -> Run:
    """From files to an improved policy: counts, baseline, model, improvement."""
    counts = task_counts(task)
    baseline, source = task_baseline(task, counts)
    model = estimate_model(
        counts,
        delta=task.delta,
        error_kind=task.error_kind,
        support=task.support,
        unseen=task.unseen,
        baseline=baseline,
    )
    preference = np.array([objective.weight for objective in counts.objectives])
    if task.method in ("s-opt", "soft-spibb"):
        within_budget = improve.s_opt if task.method == "s-opt" else improve.soft_spibb
        result = within_budget(
            model,
            baseline,
            preference=preference,
            epsilon=task.epsilon,
            engine=task.engine,
            progress=progress,
        )
    else:
        verb = improve.adv_linearized if task.method == "adv-linearized" else improve.linearized
        result = verb(model, baseline, preference=preference, engine=task.engine, progress=progress)
    settings = dataclasses.asdict(task)
    return make_run(
        result,
        model,
        counts.objectives,
        baseline_source=source,
        data={
            "path": task.data,
            "sha256": data_digest(task.data),
            "rows": counts.n_rows,
            "episodes": counts.n_episodes,
        },
        notes=list(counts.notes),
        settings=settings if np.isfinite(task.epsilon) else {**settings, "epsilon": "inf"},
    )
