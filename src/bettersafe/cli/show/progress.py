"""Spinners and bars on stderr, for terminals only."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.progress_bar import ProgressBar
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Task as BarTask

    from bettersafe.typing import Event, Progress

LEAST_GAIN = 1e-9
"""Gains below this are rounding errors and are not shown."""


class _BarOfKnownSize(BarColumn):
    """Bar for work of known size; empty for other work."""

    def render(self, task: BarTask) -> ProgressBar:
        bar = super().render(task)
        return bar if task.total is not None else ProgressBar(total=1, completed=0, width=0)


class _Clock(TimeElapsedColumn):
    """Time since the start; it keeps running when a bar is full, because another may follow."""

    def render(self, task: BarTask) -> Text:
        return Text(str(timedelta(seconds=int(task.elapsed or 0.0))), style="progress.elapsed")


def _amount(event: Event) -> str:
    """``1,200,000 of 8,000,000 rows``, ``120 of 800 MB``."""
    total = event.total or 0
    if event.unit != "bytes":
        return f"{event.done:,} of {total:,} {event.unit}"
    return f"{event.done / 1e6:,.0f} of {total / 1e6:,.0f} MB"


@contextmanager
def working(text: str) -> Iterator[Progress]:
    """Spinner on stderr with the current step, a bar if its size is known, and the time; on terminals only.

    ``text`` is the description of events without one (reading a log).
    """
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), _BarOfKnownSize(), _Clock())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task(text, total=None)
        last, passes = 0, 1

        def progress(event: Event) -> None:
            nonlocal last, passes
            what = event.what
            if event.unit == "rounds":
                gain = f", largest gain {event.gain:.3g}" if (event.gain or 0.0) > LEAST_GAIN else ""
                what = f"{what or 'Improving'}: round {event.done}{gain}"
            elif event.total is not None:
                if not what:
                    passes += event.done < last  # a new pass over the log
                    last = event.done
                    what = f"{text}, pass {passes}" if passes > 1 else text
                what = f"{what}: {_amount(event)}"
            known = event.unit != "rounds" and event.total is not None
            bar.tasks[line].total = event.total if known else None  # `update` ignores None
            bar.update(line, description=what, completed=event.done if known else 0)

        yield progress


def time_left(seconds: float) -> str:
    """``12 s left``, ``about 3 min left``."""
    return f"about {seconds / 60:.0f} min left" if seconds > 90 else f"{seconds:.0f} s left"


@contextmanager
def counting(text: str) -> Iterator[Progress]:
    """Bar on stderr with the remaining time, for work of known size; on terminals only."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task(text, total=None, left="")

        began: tuple[int, float] | None = None

        def progress(event: Event) -> None:
            nonlocal began
            began = began or (event.done, time.perf_counter())
            first, start = began
            left = ""
            if event.done > first:
                each = (time.perf_counter() - start) / (event.done - first)
                left = time_left(each * ((event.total or 0) - event.done))
            bar.update(line, completed=event.done, total=event.total, left=left)

        yield progress
