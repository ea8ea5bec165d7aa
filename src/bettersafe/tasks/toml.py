"""Task files: TOML to `Task`."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from bettersafe.errors import ParameterError, did_you_mean
from bettersafe.logs.dataset import Columns, Objective
from bettersafe.tasks.task import Rare, Task

# What a task file may say, and of which type: text, a number, a whole number, true or false.
TASK_KEYS = {
    "data": "text", "baseline": "text", "method": "text", "epsilon": "number", "delta": "number", "error_kind": "text",
    "support": "whole number", "unseen": "text", "engine": "text", "hold_out": "number", "estimator": "text",
    "bound": "text", "selection": "text", "levels": "text", "comparison": "text", "draws": "whole number", "seed": "whole number",
    "form": "text", "prior": "text", "pessimism": "number", "candidates": "list of texts",
}  # fmt: skip

COLUMN_KEYS = {field.name: "text" for field in dataclasses.fields(Columns)}

OBJECTIVE_KEYS = {
    "discount": "number",
    "weight": "number",
    "lower_is_better": "true or false",
    "label": "text",
    "unit": "text",
    "range": "pair of numbers",
}

PROMISE_KEYS = {"zeta": "number", "threshold": "number"}
"""What may be said of every objective, and belongs to the task."""

ARTICLE = {
    "text": "",
    "number": "a ",
    "whole number": "a ",
    "true or false": "",
    "pair of numbers": "a ",
    "list of texts": "a ",
}

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
    tables = {
        key: _table(document.pop(key, {}), key, name) for key in ("columns", "objectives", "derived", "action_shape")
    }
    settings = _checked(document, TASK_KEYS, name, "the task", more=tuple(tables))
    if data is not None:
        settings["data"] = data
    elif "data" in settings:
        settings["data"] = str(file.parent / settings["data"])
    else:
        raise ParameterError(f'{name} must say where the data is: data = "log.parquet".')
    if settings.get("baseline", "") not in ("", "logged", "estimate"):
        settings["baseline"] = str(file.parent / settings["baseline"])
    settings["candidates"] = tuple(str(file.parent / name) for name in settings.get("candidates", ()))
    promises: dict[str, Any] = {key: {} for key in PROMISE_KEYS}

    def fields(kind: str, key: str, table: Any, known: dict[str, str]) -> dict[str, Any]:
        """The settings of one objective; what is promised of it goes to ``promises``."""
        where = f"{kind}.{key}"
        found = _checked(_table(table, where, name), {**known, **PROMISE_KEYS}, name, f"[{where}]")
        for promise in PROMISE_KEYS:
            if promise in found:
                promises[promise][key] = found.pop(promise)
        if "range" in found:
            found["reward_range"] = found.pop("range")
        return found

    objectives = [
        Objective(name=key, **fields("objectives", key, table, OBJECTIVE_KEYS))
        for key, table in tables["objectives"].items()
    ]
    derived = [Rare(name=key, **fields("derived", key, table, RARE_KEYS)) for key, table in tables["derived"].items()]
    columns = Columns(**_checked(tables["columns"], COLUMN_KEYS, name, "[columns]"))
    return Task(
        columns=columns,
        objectives=tuple(objectives),
        derived=tuple(derived),
        action_shape=tables["action_shape"],
        **settings,
        **promises,
    )


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
            "number": _is_number(value),
            "whole number": isinstance(value, int) and not isinstance(value, bool),
            "true or false": isinstance(value, bool),
            "list of texts": isinstance(value, list) and all(isinstance(v, str) for v in value),
            "pair of numbers": isinstance(value, list) and len(value) == 2 and all(_is_number(v) for v in value),
        }[kind]
        if not right:
            raise ParameterError(f"{key} of {where} in {file} must be {ARTICLE[kind]}{kind}; got {value!r}.")
        result[key] = float(value) if kind == "number" else value
    return result


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
