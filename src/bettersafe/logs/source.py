"""Data on disk: what it is, and reading a log into memory, in blocks of episodes, or as counts."""

from __future__ import annotations

import math
import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bettersafe.errors import check_options, check_paths, check_type, check_types
from bettersafe.logs.dataset import DEFAULT_COLUMNS, Columns, Dataset, Objective

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bettersafe.logs._reader.files import PathsLike
    from bettersafe.logs.counts import Counts, Input
    from bettersafe.logs.episodes import Episodes
    from bettersafe.typing import Event, Progress


@dataclass(frozen=True)
class Source:
    """Data on disk, as far as its name, size and metadata tell, before it is read.

    Attributes:
        path: File or glob.
        is_counts: Whether it is a counts file, not a log.
    """

    path: str
    is_counts: bool

    @property
    def rows(self) -> float:
        """Approximate rows of the log; infinite for counts, whose rows can't be read."""
        from bettersafe.logs._reader.files import rows_about

        return math.inf if self.is_counts else rows_about(self.path)

    @property
    def is_discretized(self) -> bool:
        """Whether it is a log whose states were made from features."""
        from bettersafe.logs._reader.files import is_discretized

        return not self.is_counts and is_discretized(self.path)


def find_source(path: str | os.PathLike[str]) -> Source:
    """What the data at ``path`` is; a log if there is no such file."""
    from bettersafe.logs._reader.files import schema_of

    counted = os.path.isfile(path) and (schema_of(Path(path)) or "").startswith("counts/")
    return Source(os.fspath(path), counted)


def read_dataset(
    path: PathsLike,
    *,
    objectives: Sequence[Objective],
    columns: Columns = DEFAULT_COLUMNS,
    progress: Progress | None = None,
) -> Dataset:
    """Read a whole log into memory; ``count_files`` is for logs that don't fit.

    Args:
        path: File, glob, or list of them: Parquet, CSV (also .gz), JSON lines or Arrow.
        objectives: Reward columns.
        columns: Names of the other columns.
        progress: Called while the log is read.

    Returns:
        The log, with its episodes sorted by label, and states and actions numbered in the order of their labels.

    Examples:
        >>> r0 = bettersafe.Objective(name="r0", label="Comfort")
        >>> bettersafe.read_dataset("log.parquet", objectives=[r0]).n_episodes
        1000
    """
    from bettersafe.logs._reader.files import expand, rows_in
    from bettersafe.logs._reader.relation import check_reading, load, open_source

    _check_asked(path, objectives, columns)
    check_options(progress=progress)
    n_rows = rows_in(expand(path))
    if n_rows is not None:  # check before reading; the rows of text files are not known before
        check_reading(n_rows, len(objectives), os.fspath(path) if isinstance(path, str | os.PathLike) else "the log")
    with open_source(path, objectives=objectives, columns=columns, progress=progress) as source:
        dataset = load(source)
    return replace(dataset, notes=(*dataset.notes, *_origin_notes(path)))


@contextmanager
def open_episodes(
    path: PathsLike,
    *,
    objectives: Sequence[Objective],
    columns: Columns = DEFAULT_COLUMNS,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> Iterator[Episodes]:
    """Check a log of any size, sort it by episode and step into a scratch file, and read it from there in blocks.

    The rows may be in any order, as for `read_dataset`. The scratch file is in the temporary directory (``TMPDIR``) and
    is removed at the end of the context.

    Args:
        path: File, glob, or list of them, in a format that `read_dataset` reads.
        objectives: Reward columns.
        columns: Names of the other columns.
        memory_limit: Memory that DuckDB may use before it spills to disk, e.g. "2GB".
        progress: Called while the log is sorted, and at every block.

    Examples:
        >>> with bettersafe.open_episodes("log.parquet", objectives=log.objectives) as episodes:
        ...     counted = bettersafe.count(episodes)
        >>> counted.n_rows == log.n_rows
        True
    """
    from bettersafe.logs._reader.blocks import sorted_episodes

    _check_asked(path, objectives, columns)
    check_options(progress=progress)
    with sorted_episodes(
        path, objectives=objectives, columns=columns, memory_limit=memory_limit, progress=progress
    ) as episodes:
        yield replace(episodes, notes=(*episodes.notes, *_origin_notes(path)))


def count_files(
    path: PathsLike,
    *,
    objectives: Sequence[Objective],
    columns: Columns = DEFAULT_COLUMNS,
    memory_limit: str | None = None,
    mergeable: bool = False,
    known: Sequence[Input] = (),
    progress: Progress | None = None,
) -> Counts:
    """Counts of a log on disk, of any size; equal to ``count(read_dataset(...))`` up to rounding.

    Args:
        path: File, glob, or list of them, in a format that `read_dataset` reads.
        objectives: Reward columns.
        columns: Names of the other columns.
        memory_limit: Memory that DuckDB may use before it spills to disk, e.g. "2GB".
        mergeable: Whether to keep what exact merging needs: rests of the sums, digests of files, ends of episodes.
        known: With ``mergeable``, files that were counted before; raises DataError if one of them is in ``path``.
        progress: Called while the log is read, perhaps from another thread.

    Examples:
        >>> counted = bettersafe.count_files("log.parquet", objectives=log.objectives)
        >>> counted.n_episodes, counted.n_pairs
        (1000, 18)
    """
    from bettersafe.logs._reader.count_native import count_sorted
    from bettersafe.logs._reader.count_sql import count_source, input_digests, source_origin
    from bettersafe.logs._reader.relation import open_source
    from bettersafe.logs.counts import Input  # with NumPy: not at the top

    _check_asked(path, objectives, columns)
    check_types("known", known, Input)
    check_options(mergeable=mergeable, progress=progress)
    digests = input_digests(path, known) if mergeable else {}
    reported = 0  # by the fast path, which may give up

    def report(event: Event) -> None:
        nonlocal reported
        reported = event.done
        progress(event)  # type: ignore[misc]

    def report_rest(event: Event) -> None:
        left = 1.0 - reported / max(event.total or 0, 1)
        progress(replace(event, done=reported + round(left * event.done)))  # type: ignore[misc]

    counts = count_sorted(
        path,
        objectives=objectives,
        columns=columns,
        memory_limit=memory_limit,
        digests=digests if mergeable else None,
        progress=progress and report,
    )
    if counts is not None:
        return replace(counts, notes=(*counts.notes, *_origin_notes(path)))
    with open_source(
        path, objectives=objectives, columns=columns, memory_limit=memory_limit, progress=progress and report_rest
    ) as source:
        counts = count_source(source, mergeable=mergeable)
        counts = replace(counts, notes=(*counts.notes, *_origin_notes(path)))
        return replace(counts, origin=source_origin(source, columns, digests)) if mergeable else counts


def _origin_notes(path: PathsLike) -> tuple[str, ...]:
    """A note on states that were made from features."""
    from bettersafe.logs._reader.files import DISCRETIZED_NOTE, is_discretized

    return (DISCRETIZED_NOTE,) if is_discretized(path) else ()


def _check_asked(path: object, objectives: object, columns: object) -> None:
    """Raise unless these are paths, Objectives and Columns."""
    check_paths("path", path)
    check_types("objectives", objectives, Objective)
    check_type("columns", columns, Columns)
