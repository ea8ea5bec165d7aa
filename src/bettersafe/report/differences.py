"""Where the proposal differs: states, actions, and actions that are two choices at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.runs.changes import largest_changes
from bettersafe.text.names import proposed, shorten
from bettersafe.text.numbers import number, percent

if TYPE_CHECKING:
    from bettersafe.runs.run import Run
    from bettersafe.typing import Floats, Labels, Row


MOST_STATES = 500
"""Number of states listed."""

MOST_GRIDS = 200
"""Number of states whose two choices can be shown one by one."""

MOST_ACTIONS = 12
"""Actions in the chart of how often each is taken."""

MOST_MOVES = 3
"""Actions named per direction and state."""


def changes(run: Run) -> list[Row]:
    """The states with the largest visits × change, as rows of text and numbers to sort by."""
    return [
        {
            "state": shorten(one.state),
            "visits": one.visits,
            "moved": one.moved,
            "moved_text": percent(one.moved),
            "weight": one.visits * one.moved,
            "weight_text": number(one.visits * one.moved, decimals=1),
            "less": _moves(one.less),
            "more": _moves(one.more),
        }
        for one in largest_changes(run, MOST_STATES)
    ]


def _moves(moves: tuple[tuple[str, float, float], ...], smallest: float = 5e-4) -> Row:
    """Largest moves in one direction; moves too small to print are only counted."""
    seen = [move for move in moves if abs(move[2] - move[1]) >= smallest][:MOST_MOVES] or list(moves[:1])
    return {
        "named": [(shorten(action, 60), percent(before), percent(after)) for action, before, after in seen],
        "more": len(moves) - len(seen),
    }


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Actions as two choices at once.

    Attributes:
        names: Names of the two choices.
        rows: Values of the first choice.
        columns: Values of the second choice.
        place: Row and column of each action.
    """

    names: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    place: tuple[tuple[int, int], ...]


MOST_CELLS = 400
"""Largest grid of actions that can be read."""

_TWO_NUMBERS = re.compile(r"[\s(\[]*([^\W\d_]*)[\s=_]*(\d{1,4})[\s/_,;:|×+&-]+([^\W\d_]*)[\s=_]*(\d{1,4})[\s)\]]*")


def action_grid(labels: Labels, shape: dict[str, int] | None) -> Grid | None:
    """The two choices that actions stand for: by the task's shape (0, 1, 2, …) or by labels such as iv2/vaso3; else None."""
    if isinstance(shape, dict) and len(shape) == 2 and labels.dtype.kind == "i":
        (one, rows), (other, columns) = shape.items()
        if int(labels.min()) >= 0 and int(labels.max()) < rows * columns <= MOST_CELLS:
            place = tuple((int(a) // columns, int(a) % columns) for a in labels)
            return Grid(
                names=(shorten(one, 24), shorten(other, 24)),
                rows=tuple(str(i) for i in range(rows)),
                columns=tuple(str(j) for j in range(columns)),
                place=place,
            )
    found = [_TWO_NUMBERS.fullmatch(str(label)) for label in labels]
    parts = [match.groups() for match in found if match is not None]
    if len(parts) < labels.size or len({(one, other) for one, _, other, _ in parts}) != 1:
        return None
    rows_found = sorted({int(one) for _, one, _, _ in parts})
    columns_found = sorted({int(other) for _, _, _, other in parts})
    cells = len(rows_found) * len(columns_found)
    # With fewer than half of the cells it is not a grid (e.g. the ranges 0-10, 10-20, 20-30).
    if min(len(rows_found), len(columns_found)) < 2 or labels.size < 0.5 * cells or cells > MOST_CELLS:
        return None
    return Grid(
        names=(parts[0][0] or "first", parts[0][2] or "second"),
        rows=tuple(str(i) for i in rows_found),
        columns=tuple(str(j) for j in columns_found),
        place=tuple((rows_found.index(int(one)), columns_found.index(int(other))) for _, one, _, other in parts),
    )


def action_use(run: Run) -> tuple[Floats, Floats]:
    """Share of decisions per action, states weighted by visits: baseline and proposal, each [A]."""
    visits = run.counts.sum(axis=1)
    weight = visits / max(int(visits.sum()), 1)
    return np.asarray(weight @ run.baseline), np.asarray(weight @ run.proposal)


def grid_tables(grid: Grid, baseline: Floats, policy: Floats, *, name: str = "policy") -> list[Row]:
    """Baseline, policy (called ``name``) and their difference over the grid; ``level``: depth of a cell's colour, −20 … 20."""
    largest = max(float(baseline.max()), float(policy.max())) or 1.0
    difference = policy - baseline
    widest = float(np.abs(difference).max()) or 1.0
    tables = []
    for key, title, values, scale in (
        ("b", "Baseline, % of decisions", baseline, largest),
        ("p", f"{name.capitalize()}, % of decisions", policy, largest),
        ("d", "Difference, percentage points", difference, widest),
    ):
        cells: list[list[Row | None]] = [[None] * len(grid.columns) for _ in grid.rows]
        for a, (i, j) in enumerate(grid.place):
            share = 100.0 * float(values[a])
            text = number(share, signed=True, decimals=2 if widest < 0.01 else 1) if key == "d" else f"{share:.1f}"
            cells[i][j] = {"action": a, "text": text, "level": round(20.0 * float(values[a]) / scale)}
        tables.append({"key": key, "title": title, "cells": cells})
    return tables


def grid_states(run: Run, shown: int = MOST_GRIDS) -> list[Row]:
    """Rows of the states that change most, shown one by one; probabilities are rounded."""
    moved = np.abs(run.proposal - run.baseline).sum(axis=1) / 2.0
    visits = run.counts.sum(axis=1)
    order = [x for x in np.argsort(-moved * visits, kind="stable")[:shown] if moved[x] > 0.0]
    return [
        {
            "state": shorten(run.state_labels[x], 60),
            "visits": int(visits[x]),
            "b": np.round(run.baseline[x], 4).tolist(),
            "p": np.round(run.proposal[x], 4).tolist(),
        }
        for x in order
    ]


def action_bars(run: Run) -> list[tuple[str, float, float]]:
    """The actions whose use changes most, as (label, baseline, proposal), in the order of their labels."""
    baseline, policy = action_use(run)
    order = np.sort(np.argsort(-np.abs(policy - baseline), kind="stable")[:MOST_ACTIONS])
    return [(shorten(run.action_labels[a], 60), float(baseline[a]), float(policy[a])) for a in order]


def facts(run: Run) -> list[tuple[str, str]]:
    """Numbers beside the headline, as (number, description)."""
    moved = np.abs(run.proposal - run.baseline).sum(axis=1) / 2.0
    visits = run.counts.sum(axis=1)
    share = float(moved @ visits / max(int(visits.sum()), 1))
    word = proposed(run)
    found = [
        (percent(share), "of decisions would be different"),
        (f"{run.info.states_changed:,} of {run.info.n_states:,}", "states with a change"),
        (f"{int(visits.sum()):,}", f"decisions that the {word} was made from"),
    ]
    tested = {} if run.certificate is None else run.certificate.data.get("tested_on", {})
    if "episodes" in tested and run.certificate is not None:
        posterior = run.certificate.evidence == "posterior"
        found.append((f"{int(tested['episodes']):,}", "episodes used" if posterior else "episodes tested on"))
    else:
        found.append((f"{run.info.data.episodes:,}", "episodes"))
    return found
