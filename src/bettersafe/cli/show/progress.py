"""Spinners and bars on stderr, for terminals only."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.progress_bar import ProgressBar
from rich.text import Text

from bettersafe.logs.dataset import Reading
from bettersafe.methods.b_opt import Judging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Task as BarTask

    from bettersafe.methods.result import Round

LEAST_GAIN = 1e-9
"""Gains below this are rounding, and not worth a word."""


class _BarOfKnownSize(BarColumn):
    """A bar for work of known size, nothing for other work."""

    def render(self, task: BarTask) -> ProgressBar:
        bar = super().render(task)
        return bar if task.total is not None else ProgressBar(total=1, completed=0, width=0)


class _Clock(TimeElapsedColumn):
    """The time since the start, also when a bar is full: there may be another."""

    def render(self, task: BarTask) -> Text:
        return Text(str(timedelta(seconds=int(task.elapsed or 0.0))), style="progress.elapsed")


def _amount(reading: Reading) -> str:
    """``1,200,000 of 8,000,000 rows``, ``120 of 800 MB``."""
    if reading.unit != "bytes":
        return f"{reading.done:,} of {reading.total:,} {reading.unit}"
    return f"{reading.done / 1e6:,.0f} of {reading.total / 1e6:,.0f} MB"


@contextmanager
def working(text: str) -> Iterator[Callable[[Round | Reading | Judging | str], None]]:
    """A spinner with the time on stderr, shown on terminals only; yields a callback that says what or which round it is.

    While a log is read, and while the posterior is asked, a bar says how much is done.
    """
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), _BarOfKnownSize(), _Clock())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task(text, total=None)
        last, passes = 0, 1

        def progress(done: Round | Reading | Judging | str) -> None:
            nonlocal last, passes
            total, completed = None, 0
            if isinstance(done, Reading):
                total, completed = done.total, done.done
                passes += completed < last  # it is read again
                last = completed
                done = f"{text}{f', pass {passes}' if passes > 1 else ''}: {_amount(done)}"
            elif isinstance(done, Judging):
                total, completed = done.total, done.done
                done = f"{done.what}: {done.done:,} of {done.total:,} {done.unit}"
            elif not isinstance(done, str):
                gain = f", largest gain {done.gain:.3g}" if done.gain > LEAST_GAIN else ""
                done = f"{done.what or 'Improving'}: round {done.number}{gain}"
            bar.tasks[line].total = total  # `update` takes None for: as it was
            bar.update(line, description=done, completed=completed)

        yield progress


@contextmanager
def counting(text: str) -> Iterator[Callable[[int, int, float | None], None]]:
    """A bar on stderr for work of known size, shown on terminals only; yields the callback (done, total, seconds left)."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task(text, total=None, left="")

        def progress(done: int, total: int, seconds: float | None) -> None:
            left = (
                ""
                if seconds is None
                else f"about {seconds / 60:.0f} min left"
                if seconds > 90
                else f"{seconds:.0f} s left"
            )
            bar.update(line, completed=done, total=total, left=left)

        yield progress
