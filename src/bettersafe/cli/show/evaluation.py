"""Off-policy estimates on the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.markup import escape

from bettersafe.certificate.certificate import steps_words
from bettersafe.cli.show.tables import MOST_ROWS, new_console, new_table, objective_name, print_notes
from bettersafe.logs.dataset import user_sign
from bettersafe.text.gains import baseline_text, return_text
from bettersafe.text.names import ALL_STEPS, logged_steps
from bettersafe.text.numbers import number, percent, risk, with_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

    from bettersafe.evaluation.evaluate import EstimateRow
    from bettersafe.evaluation.references import ReferenceRow
    from bettersafe.logs.dataset import Objective
    from bettersafe.typing import Json

MOST_COLUMNS = 4
"""Largest number of objectives shown side by side; more are shown one per row."""


def print_evaluation(
    rows: Sequence[EstimateRow], objectives: tuple[Objective, ...], notes: Sequence[str], *, every: bool = False
) -> None:
    """Print all estimates in the user's own sign, their diagnostics, and whether each estimator is usable.

    All returns of a table are of the same steps. Where episodes are cut off, estimators without a model are of the logged steps
    only, and have a table of their own. With more than `MOST_COLUMNS` objectives the table has one row per objective and only
    usable estimators. With more than `MOST_ROWS` it has the objectives with the worst estimate relative to the baseline, or
    ``every`` objective.
    """
    console = new_console()
    console.print()
    by_name: dict[str, list[EstimateRow]] = {}
    for row in rows:
        by_name.setdefault(row["estimator"], []).append(row)
    heads = [objective_name(o) + (", lower is better" if o.lower_is_better else "") for o in objectives]
    groups = _groups(by_name)
    if len(objectives) <= MOST_COLUMNS:
        for title, lines in groups:
            table = new_table(title)
            table.add_column("estimator", no_wrap=True)
            for head in heads:
                table.add_column(head, justify="right")
            for name, cells in lines:
                table.add_row(name, *cells)
            console.print(table)
    else:
        _print_by_objective(console, by_name, heads, objectives, every=every)
    console.print(_diagnostics(by_name))
    by_text: dict[str, list[str]] = {}
    for row in rows:
        if row["estimator"] != "logged" and row["estimator"] not in by_text.setdefault(row["trust"], []):
            by_text[row["trust"]].append(row["estimator"])
    for text, whose in by_text.items():
        console.print(f"  • {', '.join(whose)}: {escape(text)}", highlight=False)
    print_notes(console, notes)


def print_references(rows: Sequence[ReferenceRow], objectives: tuple[Objective, ...]) -> None:
    """Print the returns of simple policies, to compare with; at most those of `MOST_COLUMNS` objectives."""
    console = new_console()
    if not rows:
        return
    console.print("To compare with, by drl on this log:")
    shown = {objective.name: objective for objective in objectives[:MOST_COLUMNS]}
    for policy in dict.fromkeys(row["policy"] for row in rows):
        own = [row for row in rows if row["policy"] == policy and row["objective"] in shown]
        cells = [
            f"{objective_name(shown[row['objective']])} {with_interval(row['value'], row['low'], row['high'])}"
            for row in own
        ]
        doubt = "" if own[0]["usable"] else f" ({own[0]['trust']})"
        console.print(f"  • {policy}: {', '.join(cells)}{escape(doubt)}", highlight=False)


def _groups(by_name: Mapping[str, list[EstimateRow]]) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    """Titles and lines of the tables: estimates of all steps up to the horizon, and of the logged steps only."""
    first = by_name["logged"][0]
    complete, cut = (
        [name for name, own in by_name.items() if own[0]["complete"] is whole and name != "logged"]
        for whole in (True, False)
    )
    as_logged = ("as logged", [_estimate(row) for row in by_name["logged"]])
    found = []
    for names, steps in ((complete, _steps(first)), (cut, f"logged steps only, {logged_steps(first)}")):
        if not names:
            continue
        lines = [(name, [_estimate(row) for row in by_name[name]]) for name in names]
        alike = first["complete"] is by_name[names[0]][0]["complete"]
        baseline = as_logged if alike else (f"baseline, by {names[0]}", [_baseline(row) for row in by_name[names[0]]])
        found.append((_title(first, steps), [baseline, *lines]))
    return found or [(_title(first, logged_steps(first)), [as_logged])]


def _title(first: EstimateRow, steps: str) -> str:
    level = f"{risk(first['level'])} intervals ({first['interval']})"
    return f"Expected return, {steps}, with {level}" if steps else f"Expected return, with {level}"


def _steps(first: EstimateRow) -> str:
    """Steps of estimates with a model, given a row of logged returns; empty for whole episodes."""
    return steps_words(first["horizon"]) or ("" if first["complete"] else ALL_STEPS)


def _print_by_objective(
    console: Console,
    by_name: Mapping[str, list[EstimateRow]],
    heads: Sequence[str],
    objectives: tuple[Objective, ...],
    *,
    every: bool,
) -> None:
    """Print one row per objective, with the usable estimators and the baseline by the first of them."""
    first = by_name["logged"][0]
    usable = [name for name, own in by_name.items() if name != "logged" and own[0]["usable"]]
    shown = usable or [name for name in by_name if name == "dr"] or ["logged"]
    steps = _steps(first) if by_name[shown[0]][0]["complete"] else f"logged steps only, {logged_steps(first)}"
    table = new_table(_title(first, steps))
    table.add_column("objective")
    alike = first["complete"] is by_name[shown[0]][0]["complete"]
    columns = [name for name in shown if name != "logged"]
    for name in ("as logged" if alike else f"baseline, by {shown[0]}", *columns):
        table.add_column(name, justify="right")
    places = list(range(len(objectives)))
    if not every and len(places) > MOST_ROWS:
        places = sorted(sorted(places, key=lambda k: _relative_gain(objectives[k], by_name[shown[0]][k]))[:MOST_ROWS])
    for k in places:
        own = _estimate(by_name["logged"][k]) if alike else _baseline(by_name[shown[0]][k])
        table.add_row(heads[k], own, *(_estimate(by_name[name][k]) for name in columns))
    console.print(table)
    left = ""
    if len(places) < len(objectives):
        left = (
            f"Shown are the {len(places)} of {len(objectives)} objectives with the worst estimates relative to the baseline; --all"
            " shows every one. "
        )
    console.print(f"{left}All estimators: --json, or -o FILE.", style="dim", highlight=False)


def _diagnostics(by_name: Mapping[str, list[EstimateRow]]) -> Table:
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
            "yes" if first["usable"] else "[yellow]no[/]",
        )
    return table


def _estimate(row: EstimateRow) -> str:
    return escape(return_text(row))


def _baseline(row: EstimateRow) -> str:
    return escape(baseline_text(row))


def _relative_gain(objective: Objective, row: EstimateRow) -> float:
    """Relative gain over the baseline, by one estimator."""
    own, before = row["value"], row["baseline_value"]
    return float(user_sign(objective, own - before) / max(abs(before), 1e-12))


def json_rows(rows: Sequence[EstimateRow]) -> list[Json]:
    """Rows for JSON; NaN and infinity become null."""
    return [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
        for row in rows
    ]
