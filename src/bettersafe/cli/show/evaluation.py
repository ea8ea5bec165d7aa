"""Off-policy estimates on the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from bettersafe.cli.show.tables import MOST_ROWS, new_console, new_table, objective_name, print_notes
from bettersafe.logs.dataset import user_sign
from bettersafe.text.numbers import number, percent, risk, with_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

    from bettersafe.logs.dataset import Objective

Rows = list[dict[str, Any]]

MOST_COLUMNS = 4
"""Largest number of objectives shown side by side; more are shown one per row."""


def print_evaluation(
    rows: Sequence[dict[str, Any]], objectives: tuple[Objective, ...], notes: Sequence[str], *, every: bool = False
) -> None:
    """Print all estimates in the user's own sign, their diagnostics, and whether each estimator is usable.

    With more than `MOST_COLUMNS` objectives the table has one row per objective and only usable estimators. With more than
    `MOST_ROWS` it has the objectives with the worst estimate relative to the log, or ``every`` objective.
    """
    console = new_console()
    console.print()
    by_name: dict[str, Rows] = {}
    for row in rows:
        by_name.setdefault(row["estimator"], []).append(row)
    title = f"Expected return, with {risk(rows[0]['level'])} intervals ({rows[0]['interval']})"
    heads = [objective_name(o) + (", lower is better" if o.lower_is_better else "") for o in objectives]
    if len(objectives) <= MOST_COLUMNS:
        table = new_table(title)
        table.add_column("estimator", no_wrap=True)
        for head in heads:
            table.add_column(head, justify="right")
        for name, own in by_name.items():
            table.add_row("as logged" if name == "logged" else name, *(_estimate(row) for row in own))
        console.print(table)
    else:
        _print_by_objective(console, title, by_name, heads, objectives, every=every)
    console.print(_diagnostics(by_name))
    by_text: dict[str, list[str]] = {}
    for row in rows:
        if row["estimator"] != "logged" and row["estimator"] not in by_text.setdefault(row["trust"], []):
            by_text[row["trust"]].append(row["estimator"])
    for text, whose in by_text.items():
        console.print(f"  • {', '.join(whose)}: {escape(text)}", highlight=False)
    print_notes(console, notes)


def _print_by_objective(
    console: Console,
    title: str,
    by_name: Mapping[str, Rows],
    heads: Sequence[str],
    objectives: tuple[Objective, ...],
    *,
    every: bool,
) -> None:
    """Print one row per objective, with the usable estimators."""
    usable = [name for name, own in by_name.items() if name != "logged" and own[0]["usable"]]
    shown = usable or [name for name in by_name if name == "dr"]
    table = new_table(title)
    table.add_column("objective")
    for name in ("as logged", *shown):
        table.add_column(name, justify="right")
    places = list(range(len(objectives)))
    if not every and shown and len(places) > MOST_ROWS:
        places = sorted(sorted(places, key=lambda k: _relative_gain(objectives[k], by_name, shown[0], k))[:MOST_ROWS])
    for k in places:
        table.add_row(heads[k], *(_estimate(by_name[name][k]) for name in ("logged", *shown)))
    console.print(table)
    left = ""
    if len(places) < len(objectives):
        left = (
            f"Shown are the {len(places)} of {len(objectives)} objectives with the worst estimates relative to the log; --all shows"
            " every one. "
        )
    console.print(f"{left}All estimators: --json, or -o FILE.", style="dim", highlight=False)


def _diagnostics(by_name: Mapping[str, Rows]) -> Table:
    """Diagnostics of every estimator."""
    table = new_table("Diagnostics")
    table.add_column("estimator", no_wrap=True)
    for column in (
        "effective episodes",
        "mean weight",
        "largest weight",
        "never seen",
        "episodes with unseen",
        "usable",
    ):
        table.add_column(column, justify="right")
    for name, own in by_name.items():
        if name == "logged":
            continue
        first, weighted = own[0], name != "model"
        table.add_row(
            name,
            f"{first['effective_sample_size']:,.0f} of {first['episodes']:,}" if weighted else "",
            number(first["mean_weight"]) if weighted else "",
            number(first["largest_weight"]) if weighted else "",
            percent(first["unsupported_share"]),
            f"{first['unsupported_episodes']:,}",
            "[green]yes[/]" if first["usable"] else "[yellow]no[/]",
        )
    return table


def _estimate(row: Mapping[str, Any]) -> str:
    return escape(with_interval(row["value"], row["low"], row["high"]))


def _relative_gain(objective: Objective, by_name: Mapping[str, Rows], estimator: str, k: int) -> float:
    """Relative gain of an objective over the logged return, by one estimator."""
    own, logged = (by_name[name][k]["value"] for name in (estimator, "logged"))
    return float(user_sign(objective, own - logged) / max(abs(logged), 1e-12))


def json_rows(rows: Sequence[dict[str, Any]]) -> Rows:
    """Rows for JSON; NaN and infinity become null."""
    return [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
        for row in rows
    ]
