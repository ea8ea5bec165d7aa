"""What all screens of the command line are made of: a console, tables, errors, JSON.

Tables go to stdout and degrade to plain text in a pipe; progress and errors go to stderr.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.logs.dataset import Objective

MOST_ROWS = 12
"""Objectives that a table has one by one; of more, those that decide, and --all shows the rest."""


def new_console() -> Console:
    """The console of stdout; a pipe has no width, and no column is cut to fit one."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    return console


def print_error(message: str) -> None:
    """One sentence on stderr."""
    Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {escape(message)}", highlight=False)


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def new_table(title: str | None = None) -> Table:
    """A table without a frame."""
    return Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)


def objective_name(objective: Objective) -> str:
    """What people call an objective, with its unit."""
    return escape(objective.title) + (f" ({escape(objective.unit)})" if objective.unit else "")


def print_notes(console: Console, notes: Sequence[str]) -> None:
    """What is worth knowing, one line each."""
    for note in notes:
        console.print(f"Note: {escape(note)}", style="dim", highlight=False)
