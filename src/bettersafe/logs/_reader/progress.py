"""Progress of reading a log, reported while DuckDB runs."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeAlias

import duckdb

from bettersafe.logs._reader.files import rows_in
from bettersafe.typing import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from bettersafe.logs._reader.files import File
    from bettersafe.typing import Progress


Stage: TypeAlias = "Callable[[str], AbstractContextManager[None]]"
EVERY = 0.1  # seconds between two reports

TYPED = {"probe": 3.0, "log": 0.5, "episodes": 3.0, "groups": 4.0, "returns": 3.0}
"""Measured relative CPU times of the passes over Parquet or Arrow files."""

TEXT = {"probe": 10.0, "log": 10.0, "episodes": 2.0, "groups": 3.0, "returns": 2.0}
"""Measured relative CPU times of the passes over text files, which are parsed twice and then kept on disk."""


def stages(connection: DuckDBPyConnection, files: Sequence[File], progress: Progress | None) -> Stage:
    """Context manager for each pass over a log, in which ``progress`` is called with the share of all passes that is done.

    The share is in rows if Parquet footers give their number, else in bytes of the files; 50 % take about half the time.
    """
    if progress is None:
        connection.execute("SET enable_progress_bar = false").fetchall()  # DuckDB would draw its own
        return lambda name: nullcontext()
    n_rows = rows_in([file.path for file in files])
    total = n_rows if n_rows is not None else sum(file.path.stat().st_size for file in files)
    shares = TEXT if files[0].unit == "line" else TYPED
    connection.execute("SET enable_progress_bar = true").fetchall()
    connection.execute("SET enable_progress_bar_print = false").fetchall()
    connection.execute("SET progress_bar_time = 0").fetchall()

    def report(share: float) -> None:
        progress(Event(done=round(total * min(share, 1.0)), total=total, unit="bytes" if n_rows is None else "rows"))

    def stage(name: str) -> AbstractContextManager[None]:
        return _watched(connection, report, *_span(shares, name))

    return stage


def _span(shares: Mapping[str, float], name: str) -> tuple[float, float]:
    """Start and length of a pass, as shares of all passes."""
    names, whole = list(shares), sum(shares.values())
    before = sum(shares[other] for other in names[: names.index(name)])
    return before / whole, shares[name] / whole


@contextmanager
def _watched(
    connection: DuckDBPyConnection, report: Callable[[float], None], start: float, share: float
) -> Iterator[None]:
    stop = threading.Event()

    def watch() -> None:
        furthest = 0.0  # every query of a pass begins at 0, but the reported share must not fall
        while not stop.wait(EVERY):
            try:
                furthest = max(furthest, connection.query_progress() / 100.0)
            except duckdb.Error:  # no query is running
                continue
            report(start + share * min(furthest, 1.0))

    watcher = threading.Thread(target=watch, daemon=True)
    report(start)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
    report(start + share)
