"""Task files: TOML to `Task`, with the tables of `settings`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bettersafe.errors import ParameterError, WrongTypeError, as_kind, check_path, did_you_mean
from bettersafe.logs.dataset import Columns, Objective
from bettersafe.posterior.events import DeclaredEvent
from bettersafe.tasks.settings import COLUMNS, EVENT, EVENT_EXAMPLE, OBJECTIVE, RARE, SETTINGS, TABLES
from bettersafe.tasks.task import Rare, Task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bettersafe.tasks.settings import Setting

BY_OBJECTIVE = tuple(row for row in SETTINGS if row.by_objective)
"""Settings of the task that a task file gives with each objective."""

BY_NAME = tuple(row for row in SETTINGS if row.kind == "table of whole numbers")
"""Settings of the task that are a table of their own in a task file."""

EVENTS = next(row for row in SETTINGS if row.kind == "list of events")

Table = dict[str, Any]
"""TOML table, as parsed."""

PLAIN = tuple(row for row in SETTINGS if row not in BY_OBJECTIVE and row not in BY_NAME and row is not EVENTS)


def read_task(path: str | Path, *, data: str | None = None) -> Task:
    """Read a task file; its paths are relative to the file.

    Args:
        path: TOML file.
        data: Log, in place of the one in the file.

    Raises:
        ParameterError: If a key is unknown or a value has the wrong type.

    Examples:
        >>> with open("task.toml", "w") as file:
        ...     for line in ('data = "log.parquet"', "epsilon = 0.3", "[objectives.r0]"):
        ...         print(line, file=file)
        >>> bettersafe.read_task("task.toml").epsilon
        0.3
    """
    check_path("path", path)
    if data is not None:
        check_path("data", data)
    file = Path(path)
    if not file.is_file():
        raise ParameterError(f"there is no task file {file}.")
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (
        ValueError,
        RecursionError,
    ) as error:  # ValueError: also text that is not UTF-8, and integers of thousands of digits
        raise ParameterError(f"{file.name} is not valid TOML: {error}.") from None
    name = file.name
    own = (*TABLES, *(row.toml_key for row in BY_NAME))
    tables = {key: _table(document.pop(key, {}), key, name) for key in own}
    events = document.pop(EVENTS.toml_key, [])
    settings = _checked(document, PLAIN, name, "the task", more=(*own, EVENTS.toml_key))
    settings[EVENTS.name] = _events(events, name)
    for row in PLAIN:
        if row.path and row.name in settings:
            settings[row.name] = _beside(file, settings[row.name], row)
    if data is not None:
        settings["data"] = data
    elif "data" not in settings:
        raise ParameterError(f'{name} must name the data: data = "log.parquet".', setting="data")
    settings.update(_checked({row.toml_key: tables[row.toml_key] for row in BY_NAME}, BY_NAME, name, "the task"))
    settings.update({row.name: {} for row in BY_OBJECTIVE})

    def fields(kind: str, key: str, rows: tuple[Setting, ...]) -> Table:
        """Fields of one objective; settings of the task go to ``settings``."""
        where = f"{kind}.{key}"
        found = _checked(_table(tables[kind][key], where, name), (*rows, *BY_OBJECTIVE), name, f"[{where}]")
        for row in BY_OBJECTIVE:
            if row.name in found:
                settings[row.name][key] = found.pop(row.name)
        return found

    return Task(
        columns=Columns(**_checked(tables["columns"], COLUMNS, name, "[columns]")),
        objectives=tuple(Objective(name=key, **fields("objectives", key, OBJECTIVE)) for key in tables["objectives"]),
        derived=tuple(Rare(name=key, **fields("derived", key, RARE)) for key in tables["derived"]),
        **settings,
    )


def _events(tables: Any, file: str) -> tuple[DeclaredEvent, ...]:
    """Declared events of a task file."""
    key = EVENTS.toml_key
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ParameterError(f"{key} in {file} must be tables, each [[{key}]]; got {tables!r}.", setting=EVENTS.name)
    return tuple(_event(table, f"[[{key}]]", file) for table in tables)


def _event(table: Table, where: str, file: str) -> DeclaredEvent:
    fields = _checked(table, EVENT, file, where)
    for needed in ("name", "rate"):
        if needed not in fields:
            raise ParameterError(f"{where} in {file} must have a {needed}; got {table!r}.", setting=EVENTS.name)
    return DeclaredEvent(**fields)


def read_event(text: str) -> DeclaredEvent:
    """Declared event from the text of an option: the inside of a TOML inline table, with or without braces.

    Raises:
        ParameterError: If the text is no such table, a key is unknown or a value has the wrong type.
    """
    inside = text.strip()
    try:
        table = tomllib.loads(f"event = {inside if inside.startswith('{') else f'{{{inside}}}'}")["event"]
    except (tomllib.TOMLDecodeError, AttributeError):
        raise ParameterError(
            f"an event must be written like {EVENT_EXAMPLE}; got {text!r}.", setting=EVENTS.name
        ) from None
    return _event(table, "the event", "`events`")


def _beside(file: Path, value: str | tuple[str, ...], row: Setting) -> str | tuple[str, ...]:
    """Paths relative to the task file; one of the setting's choices is returned unchanged."""
    if isinstance(value, tuple):
        return tuple(str(file.parent / each) for each in value)
    return value if not value or value in row.choices else str(file.parent / value)


def _table(value: Any, key: str, file: str) -> Table:
    if not isinstance(value, dict):
        raise ParameterError(f"{key} in {file} must be a table, [{key}]; got {value!r}.")
    return value


def _checked(table: Table, rows: Iterable[Setting], file: str, where: str, more: tuple[str, ...] = ()) -> Table:
    """Values by name of the field, after a check of keys and kinds; numbers become floats."""
    known = {row.toml_key: row for row in rows}
    result = {}
    for key, value in table.items():
        if key not in known:
            keys = sorted((*known, *more))
            raise ParameterError(
                f"{where} in {file} has no setting {key!r}; it may have {', '.join(keys)}.{did_you_mean(key, keys)}"
            )
        row = known[key]
        try:
            result[row.name] = as_kind(f"{key} of {where} in {file}", value, row.kind, setting=row.name)
        except WrongTypeError as error:
            raise ParameterError(str(error), setting=row.name) from None
    return result
