"""Counting a log of many files in shards, on the cores of this machine or on a Ray cluster.

Counts are exactly additive: the sum over shards is bit for bit one count of all files. The counts of each shard are saved in a
folder as they finish. If a worker dies, only its shard is counted again; if a run dies, repeating it counts only the missing
shards.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from bettersafe._system.files import scratch_folder, whole_file
from bettersafe._system.memory import available_bytes
from bettersafe._system.workers import PLACES, Lost, Place, cores, here, in_pool, on_ray
from bettersafe.errors import (
    BettersafeError,
    DataError,
    ParameterError,
    RunError,
    check_choice,
    check_integer,
    check_options,
    check_path,
    check_paths,
    check_type,
    check_types,
)
from bettersafe.logs._reader.files import COUNTS_SCHEMA, expand
from bettersafe.logs._reader.relation import LEAST_MEMORY
from bettersafe.logs.counts_file import load_counts, save_counts
from bettersafe.logs.dataset import DEFAULT_COLUMNS, Columns, Objective
from bettersafe.logs.merge import merge_counts
from bettersafe.logs.source import count_files
from bettersafe.typing import Event

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from bettersafe.logs._reader.files import PathsLike
    from bettersafe.logs.counts import Counts
    from bettersafe.typing import Progress


SHARD_BYTES = 1 << 25
"""Maximum size of a shard of several files, in bytes; a larger file is a shard of its own."""

AT_ONCE = 8
"""Counts that are merged at a time: bounds the memory, and does not change the exact sum."""

SHARE = 0.5  # share of a machine's free memory for all its workers together


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Files to count together; ``key`` is a digest of the files, as they are now, and of the settings that read them."""

    paths: tuple[str, ...]
    objectives: tuple[Objective, ...]
    columns: Columns
    bytes: int
    key: str


@dataclass(frozen=True, kw_only=True)
class _Refused:
    """Reason in the log why a shard can't be counted."""

    reason: str


def count_shards(
    path: PathsLike,
    *,
    parts: str | os.PathLike[str],
    objectives: Sequence[Objective],
    columns: Columns = DEFAULT_COLUMNS,
    add: Sequence[str | os.PathLike[str]] = (),
    force: bool = False,
    engine: Place = "ray",
    workers: int | None = None,
    address: str | None = None,
    progress: Progress | None = None,
) -> Counts:
    """Counts of log files, shard by shard: bit for bit those of `add_files`.

    Every worker must find the files under the same names. Raises DataError if an episode seems to continue from one shard to
    another.

    Args:
        path: File, glob, or list of them.
        parts: Folder for the counts of shards. It is for this count alone: remove it when the sum has been saved.
        objectives: Reward columns.
        columns: Names of the other columns.
        add: Counts files of other episodes.
        force: As in `add_files`.
        engine: "local" for processes of this machine, "ray" for a Ray cluster.
        workers: Shards at a time; all cores if None.
        address: Address of the Ray cluster; if None, the one that ``ray start`` made on this machine, else a new one.
        progress: Called with the bytes of the files that have been counted.

    Examples:
        >>> from bettersafe.logs import count_shards
        >>> count_shards("log.parquet", parts="shards", objectives=log.objectives, engine="local", workers=1).n_episodes
        1000
    """
    check_paths("path", path)
    check_path("parts", parts)
    check_types("objectives", objectives, Objective)
    check_type("columns", columns, Columns)
    check_types("add", add, str, os.PathLike)
    check_choice("engine", engine, PLACES)
    check_options(force=force, progress=progress)
    check_type("address", address, str, optional=True)
    if address is not None and engine != "ray":
        raise ParameterError(f"an address is for the engine 'ray'; got {address!r} with {engine!r}.")
    check_integer("workers", workers, least=1, optional=True)
    before = [load_counts(file) for file in add]
    shards = make_shards(path, objectives=objectives, columns=columns)
    folder = Path(parts)
    folder.mkdir(parents=True, exist_ok=True)
    todo = [shard for shard in shards if not _part(folder, shard).exists()]
    total = sum(shard.bytes for shard in shards)
    done = total - sum(shard.bytes for shard in todo)
    problems = []
    workers = cores() if workers is None and engine == "local" else workers
    with closing(_results(todo, engine, workers, address)) as results:
        if progress is not None:
            progress(Event(done=done, total=total, unit="bytes"))
        for index, result in results:
            if isinstance(result, _Refused):
                raise DataError(result.reason)
            if isinstance(result, Lost):
                problems.append(f"{_title(todo[index])}: {result.reason}")
                continue
            with whole_file(_part(folder, todo[index])) as partial:
                partial.write_bytes(result)
            done += todo[index].bytes
            if progress is not None:
                progress(Event(done=done, total=total, unit="bytes"))
    if problems:
        raise RunError(
            f"{len(problems)} of {len(shards)} shards could not be counted ({'; '.join(problems[:3])}). The others are kept in"
            f" {folder}: repeat the same command."
        )
    counted = _merged(chain(before, _loaded(folder, shards)), force=force)
    return _with_names(counted, expand(path))


def make_shards(path: PathsLike, *, objectives: Sequence[Objective], columns: Columns) -> list[Shard]:
    """Group the files, in order, into shards; the shards change only if the files do."""
    shards: list[Shard] = []
    members: list[Path] = []
    size = 0

    def close() -> None:
        about = {
            "schema": COUNTS_SCHEMA,
            "files": [(os.path.abspath(file), file.stat().st_size, file.stat().st_mtime_ns) for file in members],
            "objectives": [dataclasses.asdict(objective) for objective in objectives],
            "columns": dataclasses.asdict(columns),
        }
        shards.append(
            Shard(
                paths=tuple(os.path.abspath(file) for file in members),
                objectives=tuple(objectives),
                columns=columns,
                bytes=size,
                key=hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32],
            )
        )

    for file in expand(path):
        more = file.stat().st_size
        if members and size + more > SHARD_BYTES:
            close()
            members, size = [], 0
        members.append(file)
        size += more
    close()
    return shards


def parts_of(output: str | os.PathLike[str]) -> Path:
    """Folder in which the command keeps the shards of the counts file ``output``."""
    return Path(os.fspath(output) + ".parts")


def remove_parts(parts: str | os.PathLike[str]) -> None:
    """Remove the folder of shards of `count_shards`."""
    shutil.rmtree(parts, ignore_errors=True)


def _results(
    todo: Sequence[Shard], engine: Place, workers: int | None, address: str | None
) -> Generator[tuple[int, bytes | _Refused | Lost], None, None]:
    if not todo or (engine == "local" and workers == 1):
        return here(count_shard, todo)
    if engine == "local":
        return in_pool(count_shard, todo, workers=workers or 1)
    return on_ray(count_shard, todo, workers=workers, address=address)


def count_shard(shard: Shard) -> bytes | _Refused:
    """Count one shard, on any machine: the bytes of its counts file, or what is wrong with the log."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    limit = max(SHARE * available_bytes() / there, LEAST_MEMORY)  # there may be a worker on every core
    try:
        counts = count_files(
            list(shard.paths),
            objectives=shard.objectives,
            columns=shard.columns,
            memory_limit=f"{min(limit, 1e15) / 1e6:.0f}MB",
            mergeable=True,
        )
        with scratch_folder() as scratch:
            file = scratch / "counts.parquet"
            save_counts(counts, file)
            return file.read_bytes()
    except BettersafeError as error:
        return _Refused(reason=str(error))


def _part(folder: Path, shard: Shard) -> Path:
    return folder / f"{shard.key}.parquet"


def _loaded(folder: Path, shards: Sequence[Shard]) -> Iterator[Counts]:
    """Counts of the shards, in order; a damaged file is removed, so that the next run counts its shard again."""
    for shard in shards:
        file = _part(folder, shard)
        try:
            yield load_counts(file)
        except DataError as error:
            file.unlink(missing_ok=True)
            raise DataError(f"the counts of {_title(shard)} were damaged: {error} Repeat the same command.") from None


def _merged(parts: Iterable[Counts], *, force: bool) -> Counts:
    """Merge counts, a few at a time."""
    held: list[Counts] = []
    for part in parts:
        held.append(part)
        if len(held) == AT_ONCE:
            held = [merge_counts(held, force=force)]
    return merge_counts(held, force=force)


def _with_names(counts: Counts, paths: Sequence[Path]) -> Counts:
    """Counts with their files named as among all ``paths``, as if all had been read at once."""
    if counts.origin is None:
        return counts
    times = Counter(path.name for path in paths)
    names = [path.name if times[path.name] == 1 else str(path) for path in paths]
    inputs = list(counts.origin.inputs)
    first = len(inputs) - len(names)  # added counts come first
    inputs[first:] = [dataclasses.replace(file, name=name) for file, name in zip(inputs[first:], names, strict=True)]
    return dataclasses.replace(counts, origin=dataclasses.replace(counts.origin, inputs=tuple(inputs)))


def _title(shard: Shard) -> str:
    more = len(shard.paths) - 1
    return Path(shard.paths[0]).name + (f" (and {more} more)" if more else "")
