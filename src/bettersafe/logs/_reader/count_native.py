"""Counting in one pass, in the kernel, for Parquet or CSV files that are sorted by episode and step and need no special handling.

The native kernel (`counting.hpp`) checks every row. At the first row that it can't handle, `count_sorted` returns None, and the
log is counted by SQL (`relation.py`, `count_sql.py`), which handles all cases and reports errors. Both ways give the same
counts to the last bit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import duckdb
import numpy as np

from bettersafe import _kernel
from bettersafe._system.memory import available_bytes, check_memory, size_in_bytes, tally_bytes
from bettersafe.errors import DataError, check_type
from bettersafe.logs._reader import progress as reading
from bettersafe.logs._reader.checks import LARGEST
from bettersafe.logs._reader.count_sql import MARK, origin_of
from bettersafe.logs._reader.exact import sum_parts, sum_runs
from bettersafe.logs._reader.files import SCHEMA, SCHEMA_KEY, csv_layout, expand, rows_in, short_names, title_of
from bettersafe.logs._reader.plain_csv import plain_batches
from bettersafe.logs._reader.relation import LEAST_MEMORY, SHARE, names_of_roles, notes_on
from bettersafe.logs.counts import Counts, Rests, layered
from bettersafe.logs.dataset import label_array
from bettersafe.logs.roles import FLAGS, OPTIONAL
from bettersafe.logs.tally import Pairs, agreed_prob
from bettersafe.typing import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt
    import pyarrow as pa

    from bettersafe.logs._reader.cells import Kind
    from bettersafe.logs._reader.files import PathsLike
    from bettersafe.logs.dataset import Columns, Objective
    from bettersafe.typing import Bools, Bytes, Floats, Ints, Labels, Progress


Bits: TypeAlias = "tuple[Bytes, int]"

BATCH_ROWS = 1 << 15
"""Rows decoded at a time."""

BUFFER = 1 << 18
"""Bytes of a column read at a time: a file may be a single row group, and larger than memory."""

PARQUET, CSV = {".parquet"}, {".csv", ".tsv"}
LARGEST_FLOAT_LABEL = 9.2e18  # as in cells.py
NO_INTS: Ints = np.zeros(0, dtype=np.int64)
NO_BITS: Bits = (np.zeros(0, dtype=np.uint8), 0)


class _UnusualError(Exception):
    """The log needs counting by SQL, to be handled or to get an error message."""


def count_sorted(
    path: PathsLike,
    *,
    objectives: Sequence[Objective],
    columns: Columns,
    memory_limit: str | None,
    digests: Mapping[str, str] | None,
    progress: Progress | None,
) -> Counts | None:
    """Counts of a log, as of `count_files`; None if it must be counted by SQL.

    Args:
        path: File, glob, or list of them.
        objectives: Reward columns.
        columns: Names of the other columns.
        memory_limit: Memory limit of the growing counts; a share of the free memory if None.
        digests: Path -> SHA-256 of all files for mergeable counts, else None.
        progress: Called while the log is read.
    """
    if memory_limit is not None:
        check_type("memory_limit", memory_limit, str)
    places = expand(path)
    limit = max(SHARE * available_bytes(), LEAST_MEMORY) if memory_limit is None else size_in_bytes(memory_limit)
    names = [objective.name for objective in objectives]
    if (
        _kernel.compiled is None
        or limit is None
        or not names
        or len(set(names)) < len(names)
        or not any({place.suffix.lower() for place in places} <= suffixes for suffixes in (PARQUET, CSV))
    ):
        return None
    try:
        report = _reporter(places, progress)
        log = _Log(objectives=tuple(objectives), columns=columns, with_marks=digests is not None)
        for place in places:
            for done in log.read(place):
                report(done)
                if log.chains.bytes > limit:
                    raise _UnusualError
        if log.chains is None or not log.chains.close():
            raise _UnusualError
    except _UnusualError:
        return None
    return _counts(log, places, digests)


def _reporter(places: Sequence[Path], progress: Progress | None) -> Callable[[int], None]:
    """Function that takes the rows (Parquet) or bytes (CSV) read so far, and calls ``progress`` at intervals."""
    if progress is None:
        return lambda done: None
    unit: Literal["rows", "bytes"] = "bytes" if places[0].suffix.lower() in CSV else "rows"
    total = rows_in(places) if unit == "rows" else sum(place.stat().st_size for place in places)
    if total is None:
        raise _UnusualError
    progress(Event(done=0, total=total, unit=unit))
    last = time.monotonic()

    def report(done: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= reading.EVERY:
            last = time.monotonic()
            progress(Event(done=done, total=total, unit=unit))

    return report


@dataclass(kw_only=True)
class _Log:
    """State of counting a log, file by file; ``chains`` is the kernel's counter."""

    objectives: tuple[Objective, ...]
    columns: Columns
    with_marks: bool
    chains: Any = None
    names: dict[str, str] = field(default_factory=dict)  # role -> column
    types: dict[str, pa.DataType] = field(default_factory=dict)  # role -> type, equal in all files
    vocabularies: dict[str, _Vocabulary] = field(default_factory=dict)  # role -> vocabulary, if text
    episodes: list[str] = field(default_factory=list)  # text labels of the latest episodes
    n_episodes: int = 0  # number of episodes before these
    n_bytes: int = 0  # total size of the CSV files read
    kinds: dict[str, Kind] = field(default_factory=dict)  # vocabulary -> kind of its labels, for CSV
    open_ends: list[tuple[list[str] | Ints, Ints]] = field(default_factory=list)  # labels and steps
    late_starts: list[tuple[list[str] | Ints, Ints]] = field(default_factory=list)

    def read(self, place: Path) -> Iterator[int]:
        """Count a file; yields the rows (CSV: bytes) read so far of all files."""
        from pyarrow import ArrowException

        try:
            yield from self._read_csv(place) if place.suffix.lower() in CSV else self._read_parquet(place)
        # pyarrow raises all of these but the last
        except (ArrowException, OSError, ValueError, LookupError, DataError) as error:
            raise _UnusualError from error

    def _read_parquet(self, place: Path) -> Iterator[int]:
        from pyarrow import parquet

        footer = parquet.read_metadata(place)
        self._look_at(footer)
        wanted, coded = list(self.names.values()), [self.names[role] for role in self.vocabularies]
        with parquet.ParquetFile(place, metadata=footer, read_dictionary=coded, buffer_size=BUFFER) as opened:
            for batch in opened.iter_batches(batch_size=BATCH_ROWS, columns=wanted, use_threads=False):
                self._add({role: batch.column(name) for role, name in self.names.items()})
                yield self.chains.n_rows

    def _read_csv(self, place: Path) -> Iterator[int]:
        file = csv_layout(place, place.name)
        names = self._names_of(list(file.columns))
        for cells, done in plain_batches(file, names, self.kinds):
            self._settle(names, {role: column.type for role, column in cells.items()})
            self._add(cells)
            yield self.n_bytes + done
        self.n_bytes += place.stat().st_size

    def _look_at(self, footer: Any) -> None:
        """Set the columns from the footer of a Parquet file."""
        schema, metadata = footer.schema.to_arrow_schema(), footer.metadata or {}
        if metadata.get(SCHEMA_KEY.encode(), SCHEMA.encode()) != SCHEMA.encode():
            raise _UnusualError
        names = self._names_of(schema.names)
        types = {role: schema.field(name).type for role, name in names.items()}
        leaves = [footer.schema.column(i) for i in range(len(footer.schema))]
        kinds = {leaf.path: leaf.logical_type.type for leaf in leaves}
        if any(_form(types[role]) == "text" and kinds[name] != "STRING" for role, name in names.items()):
            raise _UnusualError  # JSON, perhaps
        self._settle(names, types)

    def _names_of(self, there: Sequence[str]) -> dict[str, str]:
        """Role -> column, for a file with the columns ``there``."""
        names = names_of_roles(self.columns, there)
        names |= {f"r{k}": objective.name for k, objective in enumerate(self.objectives)}
        if (
            len(set(names.values())) < len(names)
            or not set(names.values()) <= set(there)
            or len({name.lower() for name in there}) < len(there)  # DuckDB would rename one of them
        ):
            raise _UnusualError
        return names

    def _settle(self, names: dict[str, str], types: dict[str, pa.DataType]) -> None:
        """Set the columns from the first file; all other files must have the same."""
        if self.chains is not None:
            if names != self.names or types != self.types:
                raise _UnusualError
            return
        self.names, self.types = names, types
        forms = {role: _form(kind) for role, kind in types.items()}
        if "next_state" in names and (forms["state"] == "text") != (forms["next_state"] == "text"):
            raise _UnusualError
        states, actions = _Vocabulary(), _Vocabulary()
        for role, vocabulary in (("state", states), ("next_state", states), ("action", actions)):
            if forms.get(role) == "text":
                self.vocabularies[role] = vocabulary
        self.chains = _kernel.compiled.EpisodeCounter(  # type: ignore[union-attr]
            np.array([objective.discount for objective in self.objectives]),
            np.array([objective.lower_is_better for objective in self.objectives], dtype=np.uint8),
            *(role in names for role in ("step", *OPTIONAL)),
            largest=LARGEST,
            with_marks=self.with_marks,
        )

    def _add(self, cells: Mapping[str, pa.Array]) -> None:
        """Count the rows of a batch, given by role."""
        if not len(cells["state"]):
            return
        for role, column in cells.items():
            if column.null_count and role != "next_state":
                raise _UnusualError
        episode = self._episodes(cells["episode"])
        step = _integers(cells["step"])[0] if "step" in cells else NO_INTS
        state, action = (self._labels(role, cells[role])[0] for role in ("state", "action"))
        following, has_next = (
            self._labels("next_state", cells["next_state"]) if "next_state" in cells else (NO_INTS, NO_BITS)
        )
        terminated, truncated = (_flags(cells[role]) if role in cells else NO_BITS for role in FLAGS)
        prob = _numbers(cells["baseline_prob"]) if "baseline_prob" in cells else np.zeros(0)
        if not self.chains.add(
            episode=episode,
            step=step,
            state=state,
            action=action,
            next=following,
            has_next=has_next[0],
            terminated=terminated[0],
            truncated=truncated[0],
            prob=prob,
            reward=[_numbers(cells[f"r{k}"]) for k in range(len(self.objectives))],
            offset=np.array([has_next[1], terminated[1], truncated[1]], dtype=np.int64),
        ):
            raise _UnusualError
        self.take_marks()

    def _labels(self, role: str, column: pa.Array) -> tuple[Ints, Bits]:
        """Labels as integers, with their validity bits; only next_state may have missing labels."""
        if role in self.vocabularies:
            return self.vocabularies[role].codes(column)
        labels, there = _integers(column)
        if role != "next_state" and there[0].size:
            raise _UnusualError
        return labels, there

    def _episodes(self, column: pa.Array) -> Ints:
        """Numbers of the episodes, in order; text labels must rise."""
        if _form(column.type) != "text":
            return self._labels("episode", column)[0]
        import pyarrow as pa
        from pyarrow import compute

        column = column.cast(pa.string())
        new = np.ones(len(column), dtype=np.bool_)
        new[1:] = compute.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(zero_copy_only=False)
        labels = column.take(pa.array(np.flatnonzero(new))).to_pylist()
        before = self.episodes[-1:]
        new[0] = labels[:1] != before
        kept = [*before, *labels[0 if new[0] else 1 :]]
        if any(one >= other for one, other in pairwise(kept)):
            raise _UnusualError
        self.n_episodes += max(len(self.episodes) - 1, 0)
        self.episodes = kept
        return np.cumsum(new) + self.n_episodes - (0 if before else 1)

    def take_marks(self) -> None:
        """Keep the marks of the kernel with the labels of their episodes."""
        for kept, found in ((self.open_ends, self.chains.open_ends()), (self.late_starts, self.chains.late_starts())):
            if len(found):
                numbers, steps = found[:, 0], found[:, 1]
                text = (
                    [self.episodes[number - self.n_episodes] for number in numbers.tolist()] if self.episodes else None
                )
                kept.append((numbers if text is None else text, steps))


class _Vocabulary:
    """Text labels, numbered in order of appearance."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._last: tuple[pa.Array, Ints] | None = None  # batches of one row group share a dictionary

    def codes(self, column: pa.DictionaryArray) -> tuple[Ints, Bits]:
        """Numbers of the texts in a column, with their validity bits."""
        dictionary = column.dictionary
        if self._last is None or not _is_same(self._last[0], dictionary):
            texts = dictionary.to_pylist()
            if any(text is None or "\0" in text for text in texts):  # NumPy drops trailing NULs
                raise _UnusualError
            known = [self.numbers.setdefault(text, len(self.numbers)) for text in texts]
            self._last = dictionary, np.array([*known, 0], dtype=np.int64)
        numbers = self._last[1]
        indices, there = _integers(column.indices)
        if there[0].size:
            indices = np.where(_unpacked(there, len(column)), indices, len(numbers) - 1)
        return numbers[indices], there

    def labels(self, codes: Ints) -> Labels:
        """Texts of ``codes``."""
        texts = list(self.numbers)
        return np.array([texts[code] for code in codes.tolist()], dtype=np.str_)


def _is_same(one: pa.Array, other: pa.Array) -> bool:
    """Whether two arrays of text share their memory."""
    return len(one) == len(other) and all(
        (a is None and b is None) or (a is not None and b is not None and a.address == b.address)
        for a, b in zip(one.buffers(), other.buffers(), strict=True)
    )


def _form(kind: pa.DataType) -> str:
    """Form of a column of an Arrow type: "int", "float", "bool" or "text"."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
        if not types.is_string(kind):
            raise _UnusualError
    if types.is_integer(kind) and not types.is_uint64(kind):
        return "int"
    if types.is_float32(kind) or types.is_float64(kind):
        return "float"
    if types.is_boolean(kind):
        return "bool"
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    raise _UnusualError


def _integers(column: pa.Array) -> tuple[Ints, Bits]:
    """Integers, also those stored as floats, with their validity bits: NaN is missing."""
    import pyarrow as pa

    form = _form(column.type)
    if form == "int":
        column = column if column.type == pa.int64() else column.cast(pa.int64())
        there, values = column.buffers()
        bits = (np.frombuffer(there, dtype=np.uint8), column.offset) if column.null_count else NO_BITS
        return np.frombuffer(values, dtype=np.int64)[column.offset : column.offset + len(column)], bits
    if form != "float":
        raise _UnusualError
    values = column.to_numpy(zero_copy_only=False).astype(np.float64)  # null becomes NaN
    gaps = np.isnan(values)
    values = np.where(gaps, 0.0, values)
    if np.any(values != np.floor(values)) or np.any(np.abs(values) >= LARGEST_FLOAT_LABEL):
        raise _UnusualError
    return values.astype(np.int64), (np.packbits(~gaps, bitorder="little"), 0) if np.any(gaps) else NO_BITS


def _numbers(column: pa.Array) -> Floats:
    if _form(column.type) == "text":
        raise _UnusualError
    return column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)  # type: ignore[no-any-return]


def _flags(column: pa.Array) -> Bits:
    """Truth values, also those stored as 0 and 1."""
    form = _form(column.type)
    if form == "bool":
        return np.frombuffer(column.buffers()[1], dtype=np.uint8), column.offset
    values = _integers(column)[0] if form == "int" else None
    if values is None or np.any((values != 0) & (values != 1)):
        raise _UnusualError
    return np.packbits(values.astype(np.bool_), bitorder="little"), 0


def _unpacked(bits: Bits, size: int) -> Bools:
    found = np.unpackbits(bits[0], bitorder="little", count=bits[1] + size)
    return found[bits[1] :].astype(np.bool_)


def _counts(log: _Log, places: Sequence[Path], digests: Mapping[str, str] | None) -> Counts:
    chains, d, names = log.chains, len(log.objectives), short_names(places)
    log.take_marks()
    check_memory(
        tally_bytes(chains.n_groups, chains.n_pairs, d),
        f"counting {chains.n_groups:,} different transitions of {title_of(names)}",
    )
    labels, initial = np.empty((2, chains.n_states), dtype=np.int64)
    action_labels = np.empty(chains.n_actions, dtype=np.int64)
    pair = np.empty((2, chains.n_pairs), dtype=np.int64)
    with_prob = "baseline_prob" in log.names
    prob = np.empty((2, chains.n_pairs if with_prob else 0))
    reward_range, return_range = np.empty((2, d)), np.empty((2, d))
    return_parts = np.empty((2 * d, chains.n_return_parts))
    chains.write(labels, initial, action_labels, pair, prob, reward_range, return_parts, return_range)
    states, state_rank = _in_order(labels, log.vocabularies.get("state"))
    actions, action_rank = _in_order(action_labels, log.vocabularies.get("action"))
    successors, ended = np.empty((2, chains.n_pairs), dtype=np.int64)
    chains.count_outcomes(successors, ended)
    key = state_rank[pair[0]] * actions.size + action_rank[pair[1]]
    order = np.argsort(key)
    order = order[(successors[order] > 0) | (ended[order] > 0)]  # drop pairs without a known outcome
    pairs = _pairs(chains, order, key[order], successors, ended, state_rank, actions.size)
    if with_prob:
        pairs = replace(pairs, baseline_prob=agreed_prob(prob[0][order], prob[1][order], key[order], states, actions))
    parts = np.empty((order.size, chains.n_parts))
    rewards = []
    for stream in range(2 * d):
        chains.write_sums(stream, order, parts)
        rewards.append(sum_runs(parts.reshape(-1), np.arange(order.size) * chains.n_parts))
    returns = [sum_parts(each[:, None]) for each in return_parts]
    exact = {
        "reward_sum": layered(rewards[0::2], pairs=True),
        "reward_square_sum": layered(rewards[1::2], pairs=True),
        "return_sum": layered(returns[0::2], pairs=False),
        "return_square_sum": layered(returns[1::2], pairs=False),
    }
    first = np.zeros(states.size, dtype=np.int64)
    first[state_rank] = initial
    return Counts(
        **vars(pairs),
        **{name: total for name, (total, _) in exact.items()},  # type: ignore[arg-type]
        state_labels=states,
        action_labels=actions,
        objectives=log.objectives,
        reward_min=reward_range[0] + 0.0,  # -0 becomes 0, as in relation.py
        reward_max=reward_range[1] + 0.0,
        unseen_reward=np.zeros(d),
        initial_count=first,
        n_rows=chains.n_rows,
        n_episodes=chains.n_episodes,
        n_truncated=chains.n_truncated,
        n_dropped=chains.n_dropped,
        length_min=chains.shortest,
        length_max=chains.longest,
        return_min=return_range[0],
        return_max=return_range[1],
        notes=tuple(notes_on(log.names, chains.n_dropped)),
        rests=None if digests is None else Rests(**{name: rest for name, (_, rest) in exact.items()}),
        origin=None
        if digests is None
        else origin_of(
            log.columns,
            list(zip(names, places, strict=True)),
            digests,
            open_ends=_digested(log.open_ends),
            late_starts=_digested(log.late_starts),
        ),
    )


def _pairs(
    chains: Any, order: Ints, key: Ints, successors: Ints, ended: Ints, state_rank: Ints, n_actions: int
) -> Pairs:
    """Kernel's counts by pair, in the order ``order``; ``key`` is x·A + a of these pairs."""
    ptr = np.append(0, np.cumsum(successors[order]))
    place = np.full(chains.n_pairs, -1, dtype=np.int64)
    place[order] = np.arange(order.size)
    state, count = np.empty(ptr[-1], dtype=np.int64), np.empty(ptr[-1], dtype=np.int64)
    chains.write_outcomes(place, state_rank, ptr, state, count)
    visits = ended[order]
    some = successors[order] > 0
    if np.any(some):
        visits[some] += np.add.reduceat(count, ptr[:-1][some])
    return Pairs(
        pair_state=key // n_actions,
        pair_action=key % n_actions,
        pair_count=visits,
        outcome_ptr=ptr,
        outcome_state=state,
        outcome_count=count,
        terminated_count=ended[order],
        baseline_prob=None,
    )


def _in_order(codes: Ints, vocabulary: _Vocabulary | None) -> tuple[Labels, Ints]:
    """Sorted labels, and the rank of each label."""
    labels = codes if vocabulary is None else vocabulary.labels(codes)
    order = np.argsort(labels)
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    return label_array(labels[order]), rank


def _digested(marks: Sequence[tuple[list[str] | Ints, Ints]]) -> npt.NDArray[np.uint64]:
    """Digests of (episode, step), sorted."""
    import pyarrow as pa

    if not marks:
        return np.zeros(0, dtype=np.uint64)
    episodes = pa.chunked_array([pa.array(labels) for labels, _ in marks])
    table = pa.table({"episode": episodes, "step": np.concatenate([steps for _, steps in marks])})
    with duckdb.connect() as connection:
        connection.register("marks", table)
        found = connection.sql(f"SELECT {MARK} AS mark FROM marks").to_arrow_table()
    return np.sort(found["mark"].to_numpy())
