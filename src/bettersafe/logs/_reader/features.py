"""Reading tables of continuous features with logged decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.errors import DataError, ParameterError
from bettersafe.logs._reader import cells
from bettersafe.logs._reader.checks import ROW_ORDER
from bettersafe.logs.roles import FLAGS, ROLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from bettersafe.logs._reader.tables import ColumnKind, Table
    from bettersafe.logs.dataset import Columns
    from bettersafe.typing import Floats, Ints


@dataclass(frozen=True, kw_only=True)
class FeatureLog:
    """Table of features, with rows in the order of the files.

    Attributes:
        log: Columns of the log, under their final names: episode, step, action (if any), and all other columns but features.
        features: Names of the features, length f.
        values: Features, shape [N, f].
        episode: Index of every row's episode, in the order of the labels, shape [N].
        order: Indices of the rows sorted by episode and step, shape [N].
    """

    log: pa.Table
    features: tuple[str, ...]
    values: Floats
    episode: Ints
    order: Ints


def read_features(
    table: Table,
    *,
    columns: Columns,
    objectives: Sequence[str],
    features: Sequence[str] | None,
    action_optional: bool = False,
) -> FeatureLog:
    """Read a table of features.

    Args:
        table: Open table.
        columns: Names of the columns of episode, step, action; terminated, truncated and baseline_prob are optional.
        objectives: Reward columns.
        features: Feature columns; None for every numeric column without another role.
        action_optional: Whether the table may lack a column "action", e.g. for new patients who await a decision.
    """
    kinds = table.kinds()
    roles = _roles(table, columns, objectives, action_optional=action_optional)
    used = [*roles.values(), *objectives]
    names = _features(table, kinds, used, features, named_rewards=bool(objectives))
    others = [name for name in table.names if name not in {*used, *names} and kinds[name] != "empty"]
    for name in ROLES:
        if name in others or name in objectives:
            raise DataError(f"column {name!r} of {table.raw.title} clashes with the log's own. Rename or remove it.")
    log = _read_log(table, kinds, roles, objectives, others)
    values = table.numbers(names)
    episode, order = _order(table, roles, log)
    if "step" not in roles:
        step = np.empty(order.size, dtype=np.int64)
        step[order] = np.arange(order.size) - np.searchsorted(episode[order], episode[order], side="left")
        log = log.add_column(1, "step", [step])
    return FeatureLog(log=log, features=tuple(names), values=values, episode=episode, order=order)


def _roles(table: Table, columns: Columns, objectives: Sequence[str], *, action_optional: bool) -> dict[str, str]:
    """Role -> column, for the roles of this table."""
    roles = {"episode": columns.episode, "step": columns.step, "action": columns.action}
    if action_optional and columns.action == "action" and "action" not in table.names:  # a named column must exist
        del roles["action"]
    if columns.step == ROW_ORDER:
        del roles["step"]
    for role in (*FLAGS, "baseline_prob"):
        name = getattr(columns, role)
        if name is not None or role in table.names:
            roles[role] = role if name is None else name
    for role, name in roles.items():
        rows = f"; or, if the rows are in chronological order, set `step` to {ROW_ORDER}" if role == "step" else ""
        table.role(name, f"Name it with `{role}`{rows}.")
    for name in objectives:
        table.role(name, "Name the reward columns with `objectives`.")
    used = [*roles.values(), *objectives]
    for name in used:
        if used.count(name) > 1:
            raise ParameterError(f"column {name!r} is named for two roles. Name another column for one of them.")
    return roles


def _features(
    table: Table,
    kinds: dict[str, ColumnKind],
    used: Sequence[str],
    features: Sequence[str] | None,
    *,
    named_rewards: bool,
) -> list[str]:
    if features is None:
        if not named_rewards:
            raise ParameterError(
                "name the reward columns with `objectives` (or the features with `features`), or else rewards would become"
                " part of the state."
            )
        numeric = {"integer", "number", "flag"}
        features = [name for name, kind in kinds.items() if kind in numeric and name not in used]
    if not features:
        raise DataError(f"{table.raw.title} has no column of numbers left to be a feature; name them with `features`.")
    for name in features:
        table.role(name, "Features are named with `features`, or by the fitted map.")
        if name in used:
            raise ParameterError(
                f"column {name!r} can't be a feature and have another role. Name another column for one of them."
            )
        if list(features).count(name) > 1:
            raise ParameterError(f"feature {name!r} is given twice. Give it once.")
    return list(features)


def _read_log(
    table: Table,
    kinds: dict[str, ColumnKind],
    roles: dict[str, str],
    objectives: Sequence[str],
    others: Sequence[str],
) -> pa.Table:
    """All columns but the features. Raises DataError at an invalid cell."""
    shapes = table.raw.shapes

    def as_it_stands(name: str) -> str:
        """SQL of a cell: an untyped column of integers is read as integers, else as text (007 stays 007)."""
        role = table.role(name)
        form = shapes[role]
        if form not in {"cell", "json"}:
            return role
        return cells.label(role, form, "integer" if kinds[name] == "integer" else "text")

    def number(name: str) -> str:
        return cells.number(table.role(name), shapes[table.role(name)])

    reading = {"episode": as_it_stands(roles["episode"])}
    expected = {"episode": "every row needs an episode"}
    if "step" in roles:
        at = table.role(roles["step"])
        reading["step"] = cells.integer(at, shapes[at])
        expected["step"] = "steps must be integers"
    if "action" in roles:
        reading["action"] = as_it_stands(roles["action"])
        expected["action"] = "every row needs an action"
    for role in FLAGS:
        if role in roles:
            at = table.role(roles[role])
            reading[role] = cells.flag(at, shapes[at])
            expected[role] = f"{role} must be true or false"
    if "baseline_prob" in roles:
        value = number(roles["baseline_prob"])
        reading["baseline_prob"] = f"CASE WHEN {value} > 0 AND {value} <= 1 THEN {value} END"
        expected["baseline_prob"] = "baseline_prob must be a probability in (0, 1]"
    for name in objectives:
        reading[name] = f"CASE WHEN isfinite({number(name)}) THEN {number(name)} END"
        expected[name] = "rewards must be finite numbers"
    for name in others:
        reading[name] = number(name) if kinds[name] == "number" else as_it_stands(name)
    log = table.select(reading)
    if not log.num_rows:
        raise DataError(f"{table.raw.title} has no rows. Name a file with logged decisions.")
    for name, sentence in expected.items():
        if log.column(name).null_count:
            column = roles.get(name, name)
            table.refuse(column, f"({reading[name]}) IS NULL", sentence, "Correct it or leave out its episode.")
    return log


def _order(table: Table, roles: dict[str, str], log: pa.Table) -> tuple[Ints, Ints]:
    """Index of every row's episode, and the rows sorted by episode and step. Raises DataError unless steps are consecutive."""
    labels = log.column("episode").to_numpy()
    episode = np.unique(labels.astype(np.str_) if labels.dtype == object else labels, return_inverse=True)[1]
    if "step" not in roles:
        return episode, np.argsort(episode, kind="stable")
    step = log.column("step").to_numpy()
    order = np.lexsort((step, episode))
    jump = np.flatnonzero((np.diff(episode[order]) == 0) & (np.diff(step[order]) != 1))
    if jump.size:
        before, after = order[jump[0]], order[jump[0] + 1]
        raise DataError(
            f"steps must be consecutive within an episode; episode {labels[after]!s} goes from {step[before]} to {step[after]}"
            f" in column {roles['step']!r} of {table.place(int(after))}. Add the missing rows, remove repeated rows,"
            f" or, if the rows are in chronological order, set `step` to {ROW_ORDER}."
        )
    return episode, order
