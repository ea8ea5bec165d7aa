"""Console, tables, errors and JSON of the command line.

Tables go to stdout, as plain text in a pipe; progress and errors go to stderr.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bettersafe.text.names import in_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.evaluation.state_evidence import StateCheck
    from bettersafe.logs.dataset import Objective

MOST_ROWS = 12
"""Largest number of objectives that a table shows in full; with more it shows those that decide, and --all shows the rest."""


def new_console() -> Console:
    """Console of stdout; 200 characters wide in a pipe, so that columns are not cut."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    return console


def print_error(message: str) -> None:
    """Print an error on stderr."""
    Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {escape(message)}", highlight=False)


def print_json(document: Any) -> None:
    """Print a JSON document on stdout."""
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def new_table(title: str | None = None) -> Table:
    """Table without a frame."""
    return Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)


def objective_name(objective: Objective) -> str:
    """Title of an objective, with its unit."""
    return escape(objective.title) + (f" ({escape(objective.unit)})" if objective.unit else "")


def print_notes(console: Console, notes: Sequence[str]) -> None:
    """Print notes, one line each."""
    for note in notes:
        console.print(f"Note: {escape(note)}", style="dim", highlight=False)


def print_checks(console: Console, checks: Sequence[StateCheck]) -> None:
    """Print the checks whether the state is enough, one line each."""
    if checks:
        console.print("[bold]Is the state enough?[/]")
    for check in checks:
        mark = "[yellow]Against the model:[/] " if check.against else ""
        console.print(f"  • {mark}{escape(in_words(check))}", highlight=False)
