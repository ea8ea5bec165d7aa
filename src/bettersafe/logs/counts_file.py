"""Counts files: saving, reading, adding and merging counts on disk.

A counts file (`counts/1`) is a Parquet file. Every column is one array of `Counts`, cut into rows of at most `ROW` entries; all
other fields are JSON in its metadata. Equal counts give equal bytes.
"""

from __future__ import annotations

import dataclasses
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe._system.files import whole_file
from bettersafe._system.memory import Sizes, check_memory, counts_bytes
from bettersafe._system.workers import cores
from bettersafe.errors import DataError, ParameterError, RunError, check_options, check_path, check_type, check_types
from bettersafe.logs._reader.files import COUNTS_SCHEMA, SCHEMA_KEY, schema_of
from bettersafe.logs.counts import Counts, Input, Origin, Rests
from bettersafe.logs.dataset import DEFAULT_COLUMNS, Columns, Objective
from bettersafe.logs.merge import merge_counts
from bettersafe.logs.source import count_files
from bettersafe.typing import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from bettersafe.logs._reader.files import PathsLike
    from bettersafe.logs.source import Source
    from bettersafe.typing import Floats, Json, Progress


PathLike = str | os.PathLike[str]
HEADER_KEY = "bettersafe.logs.counts"

ROW = 1 << 20
"""Entries of an array in one row of the file; bounds the memory of writing and reading."""

HELD = 1 << 22
"""Different transitions that loaded files may hold before they are merged."""

ARRAYS = (
    "state_labels", "action_labels", "pair_state", "pair_action", "pair_count", "terminated_count", "outcome_ptr",
    "outcome_state", "outcome_count", "initial_count",
)  # fmt: skip

NUMBERS = ("n_rows", "n_episodes", "n_truncated", "n_dropped", "length_min", "length_max")
BY_OBJECTIVE = ("reward_min", "reward_max", "unseen_reward", "return_min", "return_max")
REWARDS = ("reward_sum", "reward_square_sum")
RETURNS = ("return_sum", "return_square_sum")


def save_counts(counts: Counts, path: PathLike) -> None:
    """Write counts to a .parquet file. The file appears under its name only when it is complete.

    Args:
        counts: Counts without derived objectives, which must be derived from the merged counts.
        path: File to write.

    Examples:
        >>> bettersafe.save_counts(counts, "counts.parquet")
        >>> bettersafe.load_counts("counts.parquet").n_rows == counts.n_rows
        True
    """
    import pyarrow as pa
    from pyarrow import parquet

    check_type("counts", counts, Counts)
    check_path("path", path)
    target = Path(path)
    _check_name(target)
    if np.any(np.isnan(counts.return_sum)):
        raise ParameterError("counts with a derived objective can't be saved. Save first, then derive.")
    arrays = _arrays(counts)
    schema = pa.schema({name: pa.list_(_values(array[:1]).type) for name, array in arrays.items()}).with_metadata(
        {SCHEMA_KEY: COUNTS_SCHEMA, HEADER_KEY: json.dumps(_header(counts), allow_nan=False)}
    )
    longest = max(array.size for array in arrays.values())
    columns = {name: f"{name}.list.element" for name in arrays}
    encoding = {  # sorted integers have small differences; trying a dictionary for numbers is slow and finds nothing
        "column_encoding": {columns[name]: "DELTA_BINARY_PACKED" for name in arrays if arrays[name].dtype.kind == "i"},
        "use_dictionary": [columns[name] for name in arrays if arrays[name].dtype.kind == "U"],
    }
    with (
        whole_file(target) as partial,
        parquet.ParquetWriter(partial, schema, write_page_checksum=True, **encoding) as writer,
    ):
        for start in range(0, max(longest, 1), ROW):
            row = []
            for array in arrays.values():
                values = _values(array[start : start + ROW])
                row.append(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values))
            writer.write_table(pa.table(row, schema=schema))


def load_counts(path: PathLike) -> Counts:
    """Read a counts file. Raises DataError if the file is damaged.

    Args:
        path: Counts file.

    Examples:
        >>> bettersafe.save_counts(counts, "counts.parquet")
        >>> bettersafe.load_counts("counts.parquet").n_episodes
        1000
    """
    import pyarrow as pa
    from pyarrow import parquet

    check_path("path", path)
    file = _check_counts(Path(path))
    sizes = counted_sizes(file)
    check_memory(counts_bytes(sizes), f"reading {file.name} ({sizes})")
    try:
        schema = parquet.read_schema(file)
        with ThreadPoolExecutor(cores()) as pool:  # decoding releases the GIL
            found = pool.map(lambda name: _read_array(file, name), schema.names)
            arrays = dict(zip(schema.names, found, strict=True))
        counts = _counts(json.loads(schema.metadata[HEADER_KEY.encode()]), arrays)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, ParameterError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"{file.name} can't be read as counts: {reason.rstrip('.')}. Count the log again.") from None
    return counts


def _read_array(file: Path, name: str) -> npt.NDArray[Any]:
    """One array of a counts file, copied row by row: reading the whole column would hold it twice."""
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(file, page_checksum_verification=True) as opened:
        kind = opened.schema_arrow.field(name).type.value_type
        groups = range(opened.num_row_groups)
        pieces = (
            opened.read_row_group(group, [name], use_threads=False).column(0).combine_chunks().flatten()
            for group in groups
        )
        if pa.types.is_string(kind):
            return _numpy(pa.concat_arrays([pa.array([], kind), *pieces]))
        place = opened.schema_arrow.names.index(name)
        at_most = sum(
            opened.metadata.row_group(group).column(place).num_values for group in groups
        )  # counts an empty row as 1
        array, end = np.empty(at_most, dtype=kind.to_pandas_dtype()), 0
        for piece in map(_numpy, pieces):
            array[end : end + piece.size] = piece
            end += piece.size
        return array[:end]


def counted_objectives(path: PathLike) -> tuple[Objective, ...]:
    """Objectives of a counts file, from its header."""
    return _objectives(_read_header(_check_counts(Path(path))))


def counted_columns(path: PathLike) -> Columns:
    """Column names of the logs behind a counts file, from its header."""
    columns = _read_header(_check_counts(Path(path)))["columns"]
    return DEFAULT_COLUMNS if columns is None else Columns(**columns)


def counted_sizes(path: PathLike) -> Sizes:
    """Sizes of the arrays of a counts file, from its header."""
    from pyarrow import parquet

    file = _check_counts(Path(path))
    entries: dict[str, int] = {}
    metadata = parquet.read_metadata(file)
    for i in range(metadata.num_row_groups):
        for j in range(metadata.num_columns):
            column = metadata.row_group(i).column(j)
            name = column.path_in_schema.removesuffix(".list.element")
            there = column.statistics  # num_values of the column itself counts an empty row as 1
            entries[name] = entries.get(name, 0) + (column.num_values if there is None else there.num_values)
    return Sizes(
        n_states=entries["state_labels"],
        n_actions=entries["action_labels"],
        n_pairs=entries["pair_state"],
        n_outcomes=entries["outcome_state"],
        n_objectives=len(counted_objectives(file)),
    )


def add_files(
    path: PathsLike,
    *,
    objectives: Sequence[Objective],
    columns: Columns = DEFAULT_COLUMNS,
    add: Sequence[PathLike] = (),
    memory_limit: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Counts:
    """Counts of log files, added to earlier counts: bit for bit those of one count of all files.

    Args:
        path: File, glob, or list of them, as for `count_files`.
        objectives: Reward columns.
        columns: Names of the other columns.
        add: Counts files of other episodes.
        memory_limit: Memory that DuckDB may use before it spills to disk.
        force: Also count files that were counted before, and episodes that seem to continue from one part to another.
        progress: Called while the logs are read.

    Examples:
        >>> from bettersafe.logs import add_files
        >>> bettersafe.save_counts(add_files("log.parquet", objectives=log.objectives), "counts.parquet")
        >>> add_files("later.parquet", objectives=log.objectives, add=["counts.parquet"], force=True).n_episodes
        2000
    """
    check_types("add", add, str, os.PathLike)
    check_options(force=force, progress=progress)
    before = [load_counts(file) for file in add]
    known = [file for counts in before if counts.origin is not None for file in counts.origin.inputs]
    new = count_files(
        path,
        objectives=objectives,
        columns=columns,
        memory_limit=memory_limit,
        mergeable=True,
        known=() if force else known,
        progress=progress,
    )
    return merge_counts([*before, new], force=force)


def merge_files(paths: Sequence[PathLike], *, force: bool = False, progress: Progress | None = None) -> Counts:
    """Merge counts files (`merge_counts`), with only some of them in memory at a time.

    Args:
        paths: Counts files, at least one.
        force: As for `merge_counts`.
        progress: Called as files are read.
    """
    parts: list[Counts] = []  # the first is the result of earlier merges, if any
    for done, path in enumerate(paths):
        if progress is not None:
            progress(Event(done=done, total=len(paths), unit="files"))
        parts.append(load_counts(path))
        # a round merges at least as much as the result so far, so no file is merged more than a few times
        if len(parts) > 2 and sum(_size(part) for part in parts[1:]) > max(_size(parts[0]), HELD):
            parts = [merge_counts(parts, force=force)]
    merged = merge_counts(parts, force=force)
    if progress is not None:
        progress(Event(done=len(paths), total=len(paths), unit="files"))
    return merged


def _size(counts: Counts) -> int:
    return counts.n_pairs + int(counts.outcome_state.size)


def check_output(path: PathLike, *, inputs: Sequence[PathLike]) -> None:
    """Raise RunError, before a long count, if ``path`` can't be written. Only a counts file among ``inputs`` may be replaced."""
    target = Path(path)
    _check_name(target)
    if not target.parent.is_dir():
        raise RunError(
            f"{target} can't be written: there is no directory {target.parent}. Create it, or choose another directory."
        )
    if target.exists() and not any(os.path.samefile(target, file) for file in inputs if os.path.exists(file)):
        raise RunError(f"{target} exists. Choose another name, remove it, or add to it: name it with `add`.")


def _check_name(target: Path) -> None:
    if target.suffix.lower() != ".parquet":
        raise ParameterError(f"counts are written as Parquet: the name must end in .parquet; got {target.name}.")


def read_counts(
    source: Source, *, objectives: Sequence[Objective], columns: Columns, progress: Progress | None = None
) -> Counts:
    """Counts of a log, or from a counts file; its objectives must be those that were counted."""
    if source.is_counts:
        return with_objectives(load_counts(source.path), objectives, title=Path(source.path).name)
    return count_files(source.path, objectives=objectives, columns=columns, progress=progress)


def with_objectives(counts: Counts, objectives: Sequence[Objective], *, title: str) -> Counts:
    """Counts with the weights, labels, units and ranges of ``objectives``.

    Raises DataError if the names, a discount or a direction differ from those that were counted.

    Args:
        counts: Counts from a file.
        objectives: All counted objectives, in any order; empty to keep those of the file.
        title: Name of the file in messages.
    """
    wanted = {objective.name: objective for objective in objectives or counts.objectives}
    names = [objective.name for objective in counts.objectives]
    if sorted(wanted) != sorted(names):
        raise DataError(
            f"{title} has counts of the objectives ({', '.join(names)}); got ({', '.join(wanted)}). Name all of them, with"
            " weight 0 for those not to improve, or count the log again."
        )
    for old in counts.objectives:
        for field in ("discount", "lower_is_better"):
            if getattr(wanted[old.name], field) != getattr(old, field):
                raise DataError(
                    f"{title} was counted with {field} {getattr(old, field)} of {old.name}; got"
                    f" {getattr(wanted[old.name], field)}. Leave it, or count the log again."
                )
    return dataclasses.replace(counts, objectives=tuple(wanted[name] for name in names))


def _arrays(counts: Counts) -> dict[str, npt.NDArray[Any]]:
    """Arrays by the name of their column."""
    arrays: dict[str, npt.NDArray[Any]] = {name: getattr(counts, name) for name in ARRAYS}
    if counts.baseline_prob is not None:
        arrays["baseline_prob"] = counts.baseline_prob
    for name in REWARDS:
        layers = _layers(counts, name)
        for m, layer in enumerate(layers):
            for k in range(counts.n_objectives):
                arrays[f"{name}.{k}.{m}"] = layer[k]
    if counts.origin is not None:
        arrays |= {"open_ends": counts.origin.open_ends, "late_starts": counts.origin.late_starts}
    return arrays


def _layers(counts: Counts, name: str) -> list[Floats]:
    rest = [] if counts.rests is None else list(getattr(counts.rests, name))
    return [getattr(counts, name), *rest]


def _header(counts: Counts) -> Json:
    return {
        "objectives": [dataclasses.asdict(objective) for objective in counts.objectives],
        "columns": None if counts.origin is None else dataclasses.asdict(counts.origin.columns),
        "inputs": None if counts.origin is None else [dataclasses.asdict(file) for file in counts.origin.inputs],
        "exact": counts.rests is not None,
        "layers": {name: len(_layers(counts, name)) for name in REWARDS},
        **{name: getattr(counts, name) for name in NUMBERS},
        **{name: getattr(counts, name).tolist() for name in BY_OBJECTIVE},
        **{name: [layer.tolist() for layer in _layers(counts, name)] for name in RETURNS},
        "notes": list(counts.notes),
    }


def _counts(header: Json, arrays: dict[str, npt.NDArray[Any]]) -> Counts:
    objectives = _objectives(header)
    sums: dict[str, Floats] = {}
    rests: dict[str, Floats] = {}
    d, n_pairs = len(objectives), arrays["pair_state"].size
    for name in REWARDS:
        layers = [
            np.stack([arrays.pop(f"{name}.{k}.{m}") for k in range(d)]) for m in range(int(header["layers"][name]))
        ]
        sums[name], rests[name] = layers[0], np.array(layers[1:]).reshape(len(layers) - 1, d, n_pairs)
    for name in RETURNS:
        found = np.array(header[name], dtype=np.float64).reshape(-1, d)
        sums[name], rests[name] = found[0], found[1:]
    origin = None
    if header["inputs"] is not None:
        origin = Origin(
            columns=Columns(**header["columns"]),
            inputs=tuple(Input(**file) for file in header["inputs"]),
            open_ends=arrays.pop("open_ends"),
            late_starts=arrays.pop("late_starts"),
        )
    _check_indices(arrays)
    fields: dict[str, Any] = {**arrays, **sums, **{name: header[name] for name in (*NUMBERS, *BY_OBJECTIVE)}}
    return Counts(
        **fields,
        objectives=objectives,
        notes=tuple(header["notes"]),
        rests=Rests(**rests) if header["exact"] else None,
        origin=origin,
    )


def _check_indices(arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Raise ValueError unless every index points into its array: native code does not check them."""
    n_states, n_actions = arrays["state_labels"].size, arrays["action_labels"].size
    for name, size in (("pair_state", n_states), ("pair_action", n_actions), ("outcome_state", n_states)):
        array = arrays[name]
        if array.size and (array.min() < 0 or array.max() >= size):
            raise ValueError(f"{name} points outside its labels")
    ptr = arrays["outcome_ptr"]
    if not ptr.size or ptr[0] != 0 or ptr[-1] != arrays["outcome_state"].size or np.any(np.diff(ptr) < 0):
        raise ValueError("outcome_ptr does not fit the outcomes")


def _objectives(header: Json) -> tuple[Objective, ...]:
    found = []
    for fields in header["objectives"]:
        edges = fields["reward_range"]
        found.append(Objective(**{**fields, "reward_range": None if edges is None else tuple(edges)}))
    return tuple(found)


def _read_header(file: Path) -> Json:
    from pyarrow import parquet

    header: Json = json.loads(parquet.read_schema(file).metadata[HEADER_KEY.encode()])
    return header


def _check_counts(file: Path) -> Path:
    if not file.is_file():
        raise DataError(f"there is no file {file}. Check the name and the directory.")
    schema = schema_of(file)
    if schema is None and file.suffix.lower() == ".parquet" and not _has_footer(file):
        raise DataError(f"{file.name} is damaged: its end is missing. Count the log again.")
    if schema is None or not schema.startswith("counts/"):
        raise DataError(f"{file.name} is not a counts file. Make one with `save_counts`.")
    if schema != COUNTS_SCHEMA:
        raise DataError(
            f"{file.name} was written as {schema!r}; this version reads {COUNTS_SCHEMA!r}. Update bettersafe."
        )
    return file


def _has_footer(file: Path) -> bool:
    with file.open("rb") as stream:
        stream.seek(max(file.stat().st_size - 4, 0))
        return stream.read() == b"PAR1"


def _values(array: npt.NDArray[Any]) -> pa.Array:
    import pyarrow as pa

    return pa.array(array.tolist(), pa.string()) if array.dtype.kind == "U" else pa.array(array)


def _numpy(values: pa.Array) -> npt.NDArray[Any]:
    import pyarrow as pa

    if pa.types.is_string(values.type):
        return np.array(values.to_pylist(), dtype=np.str_)
    found: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found
