"""Log files of any size as one checked DuckDB relation with canonical columns.

``open_source`` opens a connection with two relations:

    log        episode, step BIGINT, state, action, next_state (NULL: terminated or unknown), terminated
               BOOLEAN, r0 .. r{d-1} DOUBLE (higher is better), and baseline_prob DOUBLE and truncated BOOLEAN
               if the files have them
    episodes   episode, first_step, first_state, n_rows, terminated, dropped (its last next_state is unknown)

If Parquet or Arrow files have all columns, ``log`` is a view over them and nothing is copied. If the files are
text, or a value must be taken from the next row, ``log`` is a table in a scratch file on disk.

A valid log is checked by one fingerprint per episode. With h a 64-bit hash of (step, state),

    XOR over rows of h(step, state)  ⊕  XOR over rows of h(step+1, next_state)

is the hash of the first state (and, for a truncated episode, of the last next_state) if the rows form one chain,
and a chain of n rows whose steps span n has no missing or repeated step. An invalid episode passes
with probability about 2^-64; no sort is needed.
"""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from bettersafe._system.files import scratch_folder
from bettersafe._system.memory import available_bytes, check_memory, log_bytes
from bettersafe._system.workers import cores
from bettersafe.errors import DataError, ParameterError, check_type, did_you_mean
from bettersafe.logs._reader import cells as cells_sql
from bettersafe.logs._reader.cells import FAMILIES, Kind
from bettersafe.logs._reader.checks import ROW_ORDER, bad_cells, check_one_type, complain_of_episode, label_kind
from bettersafe.logs._reader.columns import Raw, raw_columns
from bettersafe.logs._reader.exact_sql import COARSE_BITS
from bettersafe.logs._reader.files import File, Format, PathsLike, open_files, readable, scan
from bettersafe.logs._reader.progress import stages
from bettersafe.logs.counts import dropped_note
from bettersafe.logs.dataset import DEFAULT_COLUMNS, Columns, Dataset, Objective, check_objectives, label_array
from bettersafe.logs.roles import OPTIONAL, REQUIRED, ROLES, UNIT, VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from bettersafe.logs._reader.progress import Stage
    from bettersafe.typing import Floats, Ints, Labels, Progress, Row


SHARE = 0.6  # share of the free memory for DuckDB before it spills to disk; the rest is for the result
LEAST_MEMORY = 256e6  # bytes; DuckDB can't start with less
SAMPLE = 1000  # rows used to guess which columns could be objectives

UNITS = frozenset(
    [
        "patient",
        "subject",
        "person",
        "user",
        "customer",
        "client",
        "household",
        "family",
        "ward",
        "hospital",
        "clinic",
        "site",
        "shop",
        "store",
        "machine",
        "device",
        "driver",
        "student",
        "pupil",
        "class",
        "school",
        "team",
    ]
)
"""Names of columns, without a final id, that are likely to name what several episodes belong to."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Open, checked log.

    Attributes:
        connection: DuckDB connection with the relations ``log`` and ``episodes``.
        stage: Context manager that reports the progress of a pass over the log: "groups", "returns".
        files: Files of the log.
        title: Name of the files in messages.
        format: Format of the files.
        objectives: Objectives of r0, r1, ...
        kinds: "episode", "state", "action" -> kind of their labels.
        has_baseline_prob: Whether ``log`` has this column.
        has_unit: Whether ``log`` has the column of sampling units.
        has_step: Whether the files have steps.
        has_terminated: Whether the files have a column for termination.
        n_rows: Rows in ``log``.
        reward_min: Smallest r_k, shape [d].
        reward_max: Largest r_k, shape [d].
        reward_least: Smallest |r_k| except zeros, length d; 0 if there are only zeros.
        reward_coarse: Whether all r_k are multiples of 2^-10, length d.
        notes: Remarks of the reader, for people.
    """

    connection: DuckDBPyConnection
    stage: Stage
    files: tuple[File, ...]
    title: str
    format: Format
    objectives: tuple[Objective, ...]
    kinds: Mapping[str, Kind]
    has_baseline_prob: bool
    has_unit: bool
    has_step: bool
    has_terminated: bool
    n_rows: int
    reward_min: Floats
    reward_max: Floats
    reward_least: tuple[float, ...]
    reward_coarse: tuple[bool, ...]
    notes: tuple[str, ...]

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a small query result."""
        with readable(self.title, self.format):
            return self.connection.execute(sql).fetchall()

    def table(self, sql: str) -> pa.Table:
        """Query result as an Arrow table."""
        with readable(self.title, self.format):
            return self.connection.sql(sql).to_arrow_table()

    def batches(self, sql: str, n_rows: int) -> Iterator[pa.RecordBatch]:
        """Query result as Arrow batches; may be larger than memory."""
        with readable(self.title, self.format):
            yield from self.connection.sql(sql).to_arrow_reader(n_rows)


@contextmanager
def open_source(
    paths: PathsLike,
    *,
    objectives: Sequence[Objective],
    columns: Columns = DEFAULT_COLUMNS,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> Iterator[Source]:
    """Open and check a log; its scratch directory is removed at the end of the context.

    Args:
        paths: File, glob, or list of them, all of one format.
        objectives: Reward columns.
        columns: Names of the other columns.
        memory_limit: Memory that DuckDB may use before it spills to disk, e.g. "2GB"; a share of the free memory if None.
        progress: Called while the log is read.
    """
    if memory_limit is not None:
        check_type("memory_limit", memory_limit, str)
    with scratch_folder() as scratch:
        connection = duckdb.connect(
            str(scratch / "log.duckdb"),
            config={"temp_directory": str(scratch), "autoinstall_known_extensions": "false", "threads": cores()},
        )
        try:
            limit = memory_limit or _own_limit()
            if limit is not None:
                _limit_memory(connection, limit)
            files = open_files(connection, paths)
            raw = _used_columns(connection, files, tuple(objectives), columns)
            yield _prepare(raw, tuple(objectives), stages(connection, files, progress))
        finally:
            connection.close()


def load(source: Source) -> Dataset:
    """The whole log in memory, sorted by episode and step."""
    check_reading(source.n_rows, len(source.objectives), source.title)
    with source.stage("groups"):
        return _loaded(source)


def _loaded(source: Source) -> Dataset:
    states, actions = code_labels(source)
    rewards = [f"r{k}" for k in range(len(source.objectives))]
    rows = source.table(coded_rows(source, with_prob=True))
    values = {name: rows[name].to_numpy() for name in rows.column_names}
    episodes = source.table("SELECT episode, n_rows FROM episodes ORDER BY episode")
    return Dataset(
        states=values["state"],
        actions=values["action"],
        rewards=np.stack([values[name] for name in rewards], axis=1),
        next_states=values["next_state"],
        terminated=values["terminated"],
        baseline_prob=values.get("baseline_prob"),
        episode_ptr=np.concatenate([[0], np.cumsum(episodes["n_rows"].to_numpy())]),
        state_labels=states,
        action_labels=actions,
        episode_labels=np.array(episodes["episode"].to_pylist()),
        objectives=source.objectives,
        notes=source.notes,
        units=episode_units(source),
    )


def episode_units(source: Source) -> Ints | None:
    """Sampling unit of every episode, in the order of their labels, shape [n]; None if no column is named.

    Raises DataError if an episode has no unit, or two.
    """
    if not source.has_unit:
        return None
    bad = source.ask(
        f"SELECT episode, count(DISTINCT {UNIT}) AS n FROM log GROUP BY episode"
        f" HAVING n <> 1 OR count({UNIT}) < count(*) ORDER BY episode LIMIT 1"
    )
    if bad:
        raise DataError(
            f"every row must have the sampling unit of its episode; episode {bad[0][0]!s} of {source.title} has"
            f" {'rows without one' if bad[0][1] <= 1 else f'{bad[0][1]} units'}. Correct the column, or leave out `sampling_unit`."
        )
    found = source.table(
        f"SELECT dense_rank() OVER (ORDER BY unit) - 1 AS i FROM (SELECT episode, min({UNIT}) AS unit FROM log GROUP BY episode)"
        " ORDER BY episode"
    )
    return np.asarray(found["i"].to_numpy(), dtype=np.int64)


def repeated_units(source: Source, columns: Columns) -> tuple[str, ...]:
    """A note on a column whose name is that of a unit (patient, ward, shop), with several episodes each, if none is named."""
    named = {getattr(columns, role) for role in ROLES} | {objective.name for objective in source.objectives}
    first = source.files[0]
    likely = [name for name in first.columns if name not in named and re.sub(r"[_ ]?id$", "", name.lower()) in UNITS]
    if source.has_unit or not likely or not all(set(likely) <= set(file.columns) for file in source.files):
        return ()
    for name in likely:
        rows = scan(source.connection, source.files, [columns.episode, name])
        [(episodes, units, both)] = source.ask(
            f'SELECT count(DISTINCT "0"), count(DISTINCT "1"), count(DISTINCT ("0", "1")) FROM ({rows})'
        )
        if both == episodes and 1 < units < episodes:
            return (
                f"column {name!r} has {units:,} values in {episodes:,} episodes: if episodes of one are alike, tests are too sure of"
                f" themselves. Set `sampling_unit` to {name}",
            )
    return ()


def code_labels(source: Source) -> tuple[Labels, Labels]:
    """Number states and actions in the order of their labels, in relations for `coded_rows`; returns the labels."""
    found = []
    for name, column in (("states", "state"), ("actions", "action")):
        more = " UNION SELECT next_state FROM log WHERE next_state IS NOT NULL" if column == "state" else ""
        source.ask(
            f"CREATE TABLE {name} AS SELECT label, row_number() OVER (ORDER BY label) - 1 AS i"
            f" FROM (SELECT {column} AS label FROM log{more or ' GROUP BY ALL'})"
        )
        found.append(label_array(source.table(f"SELECT label FROM {name} ORDER BY i")["label"].to_pylist()))
    return found[0], found[1]


def coded_rows(source: Source, *, with_prob: bool) -> str:
    """SELECT of the rows, sorted by episode and step, with states and actions as indices."""
    columns = [f"r{k}" for k in range(len(source.objectives))]
    if with_prob and source.has_baseline_prob:
        columns.append("baseline_prob")
    return (
        "SELECT x.i AS state, a.i AS action, coalesce(y.i, -1) AS next_state, terminated,"
        f" {', '.join(columns)} FROM log JOIN states x ON log.state = x.label"
        " JOIN actions a ON log.action = a.label LEFT JOIN states y ON log.next_state = y.label"
        " ORDER BY episode, step"
    )


def check_reading(n_rows: int, n_objectives: int, title: str) -> None:
    """Raise MemoryLimitError if the log is too large to be read into memory."""
    check_memory(
        log_bytes(n_rows, n_objectives),
        f"reading the {n_rows:,} rows of {title} into memory, as b-opt, h-opt and tests on episodes do,",
    )


def _own_limit() -> str | None:
    """Default memory limit of DuckDB: a share of the free memory; None (DuckDB's own default) if that is not known."""
    free = available_bytes()
    return None if math.isinf(free) else f"{max(SHARE * free, LEAST_MEMORY) / 1e6:.0f}MB"


def _limit_memory(connection: DuckDBPyConnection, limit: str) -> None:
    try:
        connection.execute(f"SET memory_limit = '{limit}'").fetchall()
    except duckdb.Error:
        raise ParameterError(f"memory_limit must be a size such as '2GB'; got {limit!r}.") from None


def _used_columns(
    connection: DuckDBPyConnection,
    files: tuple[File, ...],
    objectives: tuple[Objective, ...],
    columns: Columns,
) -> Raw:
    """Columns of the files by role. Raises DataError if a column is missing or has two roles."""
    first = files[0]
    if not first.columns:
        raise DataError(f"{first.name} has no rows. Name a file with logged decisions.")
    names = names_of_roles(columns, {name for file in files for name in file.columns})
    if not objectives:
        raise DataError(_no_objective(connection, first, set(names.values())))
    check_objectives(objectives)
    if columns.sampling_unit:
        names[UNIT] = columns.sampling_unit
    names |= {f"r{k}": objective.name for k, objective in enumerate(objectives)}
    roles: dict[str, str] = {}
    for role, name in names.items():
        if name in roles:
            other, this = (_setting(r) for r in (roles[name], role))
            raise DataError(
                f"column {name!r} of {first.name} can't be both {other} and {this}. Name another for one of them."
            )
        roles[name] = role
    for file in files:
        for role, name in names.items():
            if name not in file.columns:
                raise DataError(_missing(file, role, name))
    check_one_type(files, names, [role for role in VOCABULARY if role in names])
    return raw_columns(connection, files, names)


def names_of_roles(columns: Columns, there: Container[str]) -> dict[str, str]:
    """Role -> name of the column, except for objectives; ``there`` holds the names of all columns."""
    names = {role: getattr(columns, role) for role in REQUIRED}
    if columns.step == ROW_ORDER:
        del names["step"]
    for role in OPTIONAL:
        given = getattr(columns, role)
        if given or (given is None and role in there):
            names[role] = role if given is None else given
    return names


def _prepare(raw: Raw, objectives: tuple[Objective, ...], stage: Stage) -> Source:
    """Check the rows and create ``log`` and ``episodes``."""
    with stage("probe"):
        probe = _probe(raw, len(objectives))
    if not probe["n_rows"]:
        raise DataError(f"{raw.title} has no rows. Name a file with logged decisions.")
    notes = []
    kinds: dict[str, Kind] = {}
    for vocabulary in dict.fromkeys(VOCABULARY.values()):
        present = [role for role in raw.names if VOCABULARY.get(role) == vocabulary]
        counted = {role: {name: probe.get(f"{role}_{name}", 0) for name in FAMILIES} for role in present}
        kinds[vocabulary], note = label_kind(raw, present, counted)
        notes += [note] if note else []
    for i, bad in enumerate(bad_cells(raw, len(objectives))):
        if probe[f"bad_{i}"]:
            bad.complain(raw)
    with stage("log"):
        _create_log(raw, objectives, kinds, derived=bool(probe["no_next"]))
    with stage("episodes"):
        _create_episodes(raw, kinds)
    [(n_dropped,)] = raw.connection.execute("SELECT count(*) FILTER (WHERE dropped) FROM episodes").fetchall()
    low, high = ([probe[f"{end}_{k}"] for k in range(len(objectives))] for end in ("min", "max"))
    cost = np.array([objective.lower_is_better for objective in objectives])
    return Source(
        connection=raw.connection,
        stage=stage,
        files=raw.files,
        title=raw.title,
        format=raw.files[0].format,
        objectives=objectives,
        kinds=kinds,
        has_baseline_prob="baseline_prob" in raw.names,
        has_unit=UNIT in raw.names,
        has_step="step" in raw.names,
        has_terminated="terminated" in raw.names,
        n_rows=probe["n_rows"],
        # + 0.0 turns -0 into 0: which of them DuckDB takes as the minimum depends on its threads.
        reward_min=np.where(cost, 0.0 - np.array(high), low) + 0.0,
        reward_max=np.where(cost, 0.0 - np.array(low), high) + 0.0,
        reward_least=tuple(probe[f"least_{k}"] or 0.0 for k in range(len(objectives))),
        reward_coarse=tuple(not probe[f"fine_{k}"] for k in range(len(objectives))),
        notes=(*notes, *notes_on(raw.names, n_dropped)),
    )


def _probe(raw: Raw, n_objectives: int) -> Row:
    """Statistics of one pass over the raw cells."""
    cells: dict[str, str] = {}
    asked = {"n_rows": "count(*)", "no_next": "1"}
    for role in VOCABULARY:
        if role in raw.names:
            cells |= raw.family_cells(role)
            asked |= {f"{role}_{name}": sql for name, sql in raw.counts_of_families(role).items()}
    for i, bad in enumerate(bad_cells(raw, n_objectives)):
        cells[f"is_bad_{i}"] = bad.where
        asked[f"bad_{i}"] = f"count(*) FILTER (WHERE is_bad_{i})"
    for k in range(n_objectives):
        cells[f"value_{k}"] = raw.read(f"r{k}")
        asked |= {f"{end}_{k}": f"{end}(value_{k})" for end in ("min", "max")}
        scaled = f"value_{k} * {2**COARSE_BITS}"
        asked[f"least_{k}"] = f"min(abs(value_{k})) FILTER (WHERE value_{k} <> 0)"
        asked[f"fine_{k}"] = f"count(*) FILTER (WHERE {scaled} <> trunc({scaled}))"
    if {"step", "next_state", "terminated"} <= set(raw.names):
        cells["no_next"] = f"{raw.missing('next_state')} AND NOT ({raw.read('terminated')})"
        asked["no_next"] = "count(*) FILTER (WHERE no_next)"
    columns = ", ".join(f"{cell} AS {name}" for name, cell in cells.items())
    with readable(raw.title, raw.files[0].format):
        [row] = raw.connection.execute(
            f"SELECT {', '.join(asked.values())} FROM (SELECT {columns} FROM ({raw.relation(raw.files)}))"
        ).fetchall()
    return dict(zip(asked, row, strict=True))


def _create_log(raw: Raw, objectives: tuple[Objective, ...], kinds: Mapping[str, Kind], *, derived: bool) -> None:
    """Create ``log``; ``derived`` if values must be taken from neighbouring rows."""
    read = {}
    for role in ROLES:
        if role in raw.names:
            value = raw.read(role, kinds[VOCABULARY[role]]) if role in VOCABULARY else raw.read(role)
            value = f"least({value}, 1.0)" if role == "baseline_prob" else value  # a sum of float32 may be just above 1
            read[role] = f"{value} AS {role}"
    for k, objective in enumerate(objectives):
        # 0 - r, not -r: a cost of 0 is a reward of 0, not of -0.
        sign = "0.0 - " if objective.lower_is_better else ""
        read[f"r{k}"] = f"{sign}{raw.read(f'r{k}')} AS r{k}"
    if UNIT in raw.names:
        read[UNIT] = f"{cells_sql.label(UNIT, raw.shapes[UNIT], 'text')} AS {UNIT}"
    chosen, order = {role: role for role in read}, "step"
    if "step" not in raw.names:
        read["row"], order = "row", "row"
        chosen["step"] = "row_number() OVER w - 1 AS step"
    cells = f"SELECT {', '.join(read.values())} FROM ({raw.relation(raw.files, numbered=order == 'row')})"
    with readable(raw.title, raw.files[0].format):
        if not derived:
            # Keeping parsed text on disk is faster than parsing it again.
            kept = "TABLE" if raw.files[0].unit == "line" else "VIEW"
            raw.connection.execute(f"CREATE {kept} log AS {cells}").fetchall()
            return
        after = "lead(state) OVER w"
        cut = "truncated" if "truncated" in raw.names else "false"
        ended = "terminated" if "terminated" in raw.names else f"({after} IS NULL AND NOT {cut})"
        given = f"coalesce(next_state, {after})" if "next_state" in raw.names else after
        chosen["next_state"] = f"CASE WHEN NOT {ended} THEN {given} END AS next_state"
        chosen["terminated"] = f"{ended} AS terminated"
        raw.connection.execute(
            f"CREATE TABLE log AS SELECT {', '.join(chosen.values())} FROM ({cells})"
            f" WINDOW w AS (PARTITION BY episode ORDER BY {order})"
        ).fetchall()


def _create_episodes(raw: Raw, kinds: Mapping[str, Kind]) -> None:
    """Create ``episodes``. Raises DataError if the rows of an episode do not form a chain."""
    # DuckDB's hash of two columns is linear in XOR; hashing it again is not.
    node, edge = "hash(hash(step, state))", "hash(hash(step + 1, next_state))"
    truncated = "truncated" if "truncated" in raw.names else "false"
    with readable(raw.title, raw.files[0].format):
        raw.connection.execute(
            "CREATE TABLE episodes AS SELECT episode, first_step, first_state, n_rows, terminated, dropped,"
            " n_rows <> last_step - first_step + 1 OR last_step <> coalesce(end_step, last_step)"
            " OR xor(nodes, edges) <> xor(hash(hash(first_step, first_state)),"
            " CASE WHEN terminated OR dropped THEN 0 ELSE hash(hash(last_step + 1, last_next)) END) AS broken"
            " FROM (SELECT episode, min(step) AS first_step, max(step) AS last_step,"
            " arg_min(state, step) AS first_state, arg_max(next_state, step) AS last_next,"
            " count(*) AS n_rows, bool_or(terminated) AS terminated,"
            " bool_or(NOT terminated AND next_state IS NULL) AS dropped,"
            f" min(CASE WHEN terminated OR {truncated} THEN step END) AS end_step, bit_xor({node}) AS nodes,"
            f" bit_xor(CASE WHEN next_state IS NULL THEN 0 ELSE {edge} END) AS edges"
            " FROM log GROUP BY episode)"
        ).fetchall()
        broken = raw.connection.execute("SELECT episode FROM episodes WHERE broken ORDER BY episode LIMIT 1").fetchall()
    if broken:
        complain_of_episode(raw, broken[0][0], kinds)


def notes_on(names: Mapping[str, str], n_dropped: int) -> list[str]:
    """Remarks on a log, for people; ``names`` are the columns by role."""
    notes = []
    if "terminated" not in names:
        unless = f" unless column {names['truncated']!r} says otherwise" if "truncated" in names else ""
        notes.append(f"no 'terminated' column: the last row of every episode is taken as its end{unless}")
    if n_dropped:
        notes.append(dropped_note(n_dropped))
    if "baseline_prob" in names:
        notes.append(f"column {names['baseline_prob']!r} gives the baseline's probability of each logged action")
    return notes


def _setting(role: str) -> str:
    """Setting that names the column of a role."""
    return f"`{role}`" if role in (*ROLES, UNIT) else "`objectives`"


def _missing(file: File, role: str, name: str) -> str:
    remedy = f"Name it with {_setting(role)} or in the task file" + (
        f"; or, if the rows are in chronological order, set `step` to {ROW_ORDER}" if role == "step" else ""
    )
    there = ", ".join(file.columns)
    return f"{file.name} has no column {name!r}; it has {there}.{did_you_mean(name, file.columns)} {remedy}."


def _no_objective(connection: DuckDBPyConnection, file: File, used: set[str]) -> str:
    """Message for a log without objectives, with the columns that could be one."""
    free = [name for name in file.columns if name not in used]
    numeric = []
    if free:
        with readable(file.name, file.format):
            asked = ", ".join(
                f'count("{i}") > 0 AND count("{i}") = count(TRY_CAST(CAST("{i}" AS VARCHAR) AS DOUBLE))'
                for i in range(len(free))
            )
            [answers] = connection.execute(
                f"SELECT {asked} FROM (SELECT * FROM ({scan(connection, [file], free)}) LIMIT {SAMPLE})"
            ).fetchall()
        numeric = [name for name, answer in zip(free, answers, strict=True) if answer]
    could = (
        f"numeric columns of {file.name} that could be one: {', '.join(numeric)}"
        if numeric
        else (f"{file.name} has no numeric column that could be one")
    )
    return f"at least one objective is needed; got none. Name it with `objectives`; {could}."
