"""Logs on the terminal: descriptions, counts, guesses, discretised logs."""

from __future__ import annotations

import dataclasses
import math
import shlex
from typing import TYPE_CHECKING

from rich.markup import escape

from bettersafe.cli.show.tables import new_console, new_table, print_checks, print_json
from bettersafe.text.numbers import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from bettersafe.evaluation.state_evidence import StateCheck
    from bettersafe.logs.counts import Counts
    from bettersafe.logs.describe import Description
    from bettersafe.logs.discretize import Discretization
    from bettersafe.tasks.draft import Start
    from bettersafe.typing import Json


def print_counted(counts: Counts, path: Path, *, as_json: bool) -> None:
    """Print a summary of a counts file that was written."""
    files = 0 if counts.origin is None else len(counts.origin.inputs)
    if as_json:
        sizes = {"files": files, "rows": counts.n_rows, "episodes": counts.n_episodes, "states": counts.n_states}
        sizes |= {"actions": counts.n_actions, "pairs": counts.n_pairs}
        print_json({"counts": str(path), "bytes": path.stat().st_size, **sizes, "notes": list(counts.notes)})
        return
    console = new_console()
    for note in counts.notes:
        console.print(f"Note: {escape(note)}.", highlight=False)
    console.print(
        f"{counted(counts.n_rows, 'row')} in {counted(counts.n_episodes, 'episode')} of {counted(files, 'file')}:"
        f" {counted(counts.n_pairs, 'pair')} of {counted(counts.n_states, 'state')} and"
        f" {counted(counts.n_actions, 'action')}. Written to {escape(str(path))}.",
        highlight=False,
    )


def print_start(start: Start, output: Path) -> None:
    """Print the guesses about a log's columns, the open questions, and the next command."""
    console = new_console()
    table = new_table(f"Guessed from {'all' if start.whole else 'the first'} {counted(start.rows, 'row')}")
    for column in ("column", "taken as", "because of"):
        table.add_column(column)
    for guess in start.roles:
        others = f"; or {', '.join(guess.others)}?" if guess.others else ""
        table.add_row(escape(guess.column), guess.role, escape(guess.reason + others))
    for objective in start.objectives:
        use = "objective" if objective.used else "[dim]nothing[/]"
        direction = ", lower is better" if objective.lower_is_better else ""
        table.add_row(escape(objective.column), use + direction, escape(objective.reason or "a column of numbers"))
    for name, why in start.unused.items():
        table.add_row(escape(name), "[dim]nothing[/]", escape(why))
    console.print(table)
    for role, why in start.open.items():
        console.print(f"[yellow]To decide:[/] {role}: {escape(why)}.", highlight=False)
    if not any(objective.used for objective in start.objectives):
        console.print("[yellow]To decide:[/] objectives: no column of numbers is left for one.", highlight=False)
    file = shlex.quote(str(output))
    console.print(
        f"Written to {escape(str(output))}. Read it, {'correct what is wrong' if start.complete else 'fill in what is missing'},"
        f" then run: bettersafe describe --task {escape(file)}",
        highlight=False,
        soft_wrap=True,
    )


def print_description(
    description: Description, data: str, baseline_source: str, checks: Sequence[StateCheck] = ()
) -> None:
    """Print the description of a log."""
    console = new_console()
    d = description
    console.print()
    console.print(f"[bold]{escape(data)}[/]", highlight=False)
    table = new_table()
    table.show_header = False
    table.add_column(style="dim")
    table.add_column()
    cut = f", {d.truncated:,} cut off before the process ended" if d.truncated else ""
    table.add_row(
        "rows",
        f"{d.rows:,} in {d.episodes:,} episodes of {d.length_min:,} to {d.length_max:,} steps (mean {d.length_mean:.1f}){cut}",
    )
    never = f", {d.states_never_left:,} of them never acted in" if d.states_never_left else ""
    table.add_row("states", f"{d.states:,}{never}")
    table.add_row("actions", f"{d.actions:,}")
    table.add_row("pairs tried", f"{d.pairs:,} of {d.pairs_possible:,} ({100 * d.pairs / d.pairs_possible:.3g} %)")
    names = {0: "least", 50: "median", 100: "most"}
    times = ", ".join(f"{names.get(percent, f'{percent} %')} {value:,.4g}" for percent, value in d.count_quantiles)
    table.add_row("times tried", times)
    table.add_row(
        "tried fewer than 10 times",
        f"{d.few:,} pairs ({100 * d.few_share_of_pairs:.3g} % of those tried, {100 * d.few_share_of_rows:.3g} % of the rows)",
    )
    coverage = "" if d.baseline_coverage is None else f"; {100 * d.baseline_coverage:.4g} % of what it plays was tried"
    table.add_row("baseline", f"{baseline_source}{coverage}")
    console.print(table)
    stop = f", up to where logging stopped in {d.truncated:,} of {d.episodes:,}" if d.truncated else ""
    table = new_table(f"Objectives, as discounted returns of the logged episodes{stop}")
    for column in ("objective", "discount", "reward", "mean return", "sd", "lowest", "highest"):
        table.add_column(column, justify="left" if column == "objective" else "right")
    for o in d.objectives:
        name = (
            escape(o.title)
            + (f" ({escape(o.unit)})" if o.unit else "")
            + (" [dim]lower is better[/]" if o.lower_is_better else "")
        )
        returns = (o.return_mean, o.return_sd, o.return_min, o.return_max)
        table.add_row(
            name,
            f"{o.discount:g}",
            f"{o.reward_min:.4g} … {o.reward_max:.4g}",
            *("–" if math.isnan(x) else f"{x:.4g}" for x in returns),
        )
    console.print(table)
    print_checks(console, checks)
    if d.problems:
        console.print("[bold]Notes[/]")
        for problem in d.problems:
            console.print(f"  • {escape(problem)}", highlight=False)
    elif not any(check.against for check in checks):
        console.print("Nothing unusual was found.", style="dim")


def discretization_json(result: Discretization, output: Path) -> Json:
    """JSON of a discretised log."""
    return {
        "output": str(output),
        "k": result.discretizer.n_states,
        "features": [dataclasses.asdict(rule) for rule in result.discretizer.features],
        "passed_on": list(result.passed_on),
        "parts": {
            name: {
                "rows": part.rows,
                "episodes": part.episodes,
                "states": part.states,
                "explained": part.explained if math.isfinite(part.explained) else None,
            }
            for name, part in result.parts.items()
        },
    }


def print_discretization(result: Discretization, output: Path) -> None:
    """Print the features, the files and the variance that the states keep."""
    console = new_console()
    console.print()
    rules = result.discretizer.features
    by_rule: dict[str, list[str]] = {}
    for rule in rules:
        by_rule.setdefault(rule.transform, []).append(rule.name)
    console.print(
        f"[bold]{result.discretizer.n_states:,} states from {counted(len(rules), 'feature')}[/]", highlight=False
    )
    for transform, names in by_rule.items():
        console.print(f"  {transform}: {escape(', '.join(names))}", highlight=False)
    if result.passed_on:
        console.print(f"  copied: {escape(', '.join(result.passed_on))}", highlight=False)
    rows = [(name, part.rows, part.episodes, part.states, part.explained) for name, part in result.parts.items()]
    print_parts(console, rows, "episodes", output)


def share_kept(explained: float | None) -> str:
    """Share of the features' variance that the states keep."""
    return "–" if explained is None or math.isnan(explained) else f"{100 * explained:.3g} %"


def print_parts(
    console: Console, rows: Sequence[tuple[str, int, int, int, float | None]], episodes: str, output: Path
) -> None:
    """Print one line per written log."""
    table = new_table()
    table.add_column("log")
    for column in ("rows", episodes, "states", "variance kept"):
        table.add_column(column, justify="right")
    for name, n_rows, n_episodes, states, explained in rows:
        table.add_row(name, f"{n_rows:,}", f"{n_episodes:,}", f"{states:,}", share_kept(explained))
    console.print(table)
    console.print(
        f"Saved to {escape(str(output))}, with the map in discretizer.parquet. A cluster is not a Markov state, so improve tests the"
        " policy on held-out episodes; --hold-out 0 switches it off.",
        style="dim",
        highlight=False,
    )
