"""Logs of any size, sorted by DuckDB into a scratch file and read in blocks of whole episodes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from bettersafe._system.files import scratch_folder
from bettersafe.logs._reader.files import literal
from bettersafe.logs._reader.relation import code_labels, coded_rows, episode_units, open_source, repeated_units
from bettersafe.logs.dataset import Dataset
from bettersafe.logs.episodes import Episodes
from bettersafe.typing import Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bettersafe.logs._reader.files import PathsLike
    from bettersafe.logs._reader.relation import Source
    from bettersafe.logs.dataset import Columns, Objective
    from bettersafe.typing import Ints, Labels, Progress


BLOCK_ROWS = 1 << 18
"""Maximum rows of a block, unless one episode has more; a block takes about 100 MB of working memory."""

BATCH_ROWS = 1 << 16
"""Rows decoded at a time."""


@contextmanager
def sorted_episodes(
    path: PathsLike,
    *,
    objectives: Sequence[Objective],
    columns: Columns,
    memory_limit: str | None,
    progress: Progress | None,
) -> Iterator[Episodes]:
    """See `open_episodes`."""
    with scratch_folder() as scratch:
        rows = scratch / "rows.parquet"
        with open_source(
            path, objectives=objectives, columns=columns, memory_limit=memory_limit, progress=progress
        ) as source:
            states, actions = _write_rows(source, rows)
            lengths = source.table("SELECT n_rows FROM episodes ORDER BY episode")["n_rows"].to_numpy()
            [(truncated,)] = source.ask("SELECT count(*) FILTER (WHERE NOT terminated) FROM episodes")
            with_prob, notes = source.has_baseline_prob, (*source.notes, *repeated_units(source, columns))
            units = episode_units(source)
        ptr = np.concatenate([[0], np.cumsum(lengths)])

        def blocks() -> Iterator[Dataset]:
            for first, last, values in _blocks(rows, ptr):
                if progress is not None:
                    progress(Event(done=int(ptr[first]), total=int(ptr[-1]), unit="rows"))
                yield Dataset(
                    states=values["state"],
                    actions=values["action"],
                    rewards=np.stack([values[f"r{k}"] for k in range(len(objectives))], axis=1),
                    next_states=values["next_state"],
                    terminated=values["terminated"],
                    baseline_prob=values["baseline_prob"] if with_prob else None,
                    episode_ptr=ptr[first : last + 1] - ptr[first],
                    state_labels=states,
                    action_labels=actions,
                    episode_labels=np.arange(first, last),
                    objectives=tuple(objectives),
                    notes=notes,
                    units=None if units is None else units[first:last],
                )

        small = list(blocks()) if ptr[-1] <= BLOCK_ROWS else None  # a single block stays in memory
        yield Episodes(
            blocks=blocks if small is None else lambda: small,
            n_rows=int(ptr[-1]),
            n_episodes=int(lengths.size),
            n_truncated=truncated,
            state_labels=states,
            action_labels=actions,
            objectives=tuple(objectives),
            notes=notes,
            units=units,
        )


def _write_rows(source: Source, file: Path) -> tuple[Labels, Labels]:
    """Write the sorted rows; returns the labels of states and actions."""
    with source.stage("groups"):
        labels = code_labels(source)
    with source.stage("returns"):
        source.ask(f"COPY ({coded_rows(source, with_prob=True)}) TO {literal(str(file))} (FORMAT parquet)")
    return labels


def _blocks(file: Path, ptr: Ints) -> Iterator[tuple[int, int, dict[str, np.ndarray]]]:
    """First episode, end of the episodes (exclusive), and columns of every block."""
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(file) as opened:
        batches = opened.iter_batches(batch_size=BATCH_ROWS)
        left, there, first = [], 0, 0
        while first < ptr.size - 1:
            last = max(int(np.searchsorted(ptr, ptr[first] + BLOCK_ROWS, side="right")) - 1, first + 1)
            needed = int(ptr[last] - ptr[first])
            while there < needed:
                left.append(next(batches))
                there += left[-1].num_rows
            table = pa.Table.from_batches(left)
            block = table.slice(0, needed)
            yield first, last, {name: block[name].to_numpy() for name in block.column_names}
            left, there, first = table.slice(needed).to_batches(), there - needed, last
