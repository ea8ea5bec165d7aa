"""Sweeps: independent experiments, each a dictionary of settings, whose results are flat rows.

    folder/study.json           the study, its experiments, and the software versions used
    folder/parts/KEY.parquet    rows of one experiment; KEY is the hash of its settings
    folder/rows.parquet         rows of all experiments, in order; written when all are done

Files are written under a temporary name and then renamed, so they are always complete. An interrupted sweep resumes:
experiments whose part exists are skipped. The rows of an experiment depend only on its settings (seeds are settings), so
`rows.parquet` does not depend on interruptions or on the machine that ran an experiment. The time an experiment took is
in the metadata of its part (``bettersafe.seconds``), not in the rows.

Heavy imports are lazy, because every worker process imports this module.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import json
import math
import re
import time
import traceback
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bettersafe._system.files import remove_leftovers, versions, whole_file
from bettersafe._system.workers import PLACES, Lost, Place, here, in_pool, last_line, on_ray
from bettersafe.errors import (
    ParameterError,
    RunError,
    check_choice,
    check_integer,
    check_options,
    check_path,
    check_type,
    check_types,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from bettersafe.typing import Json, Progress, Row

Settings = dict[str, Any]

SCHEMA = "study/1"
KEY_COLUMN = "job"

SHOWN = 3
"""Maximal number of failures listed in an error message."""

HOPELESS = 3
"""A sweep stops if its first experiments, as many as this, are all lost to dead workers."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study: a set of independent experiments.

    Attributes:
        id: Name, such as ``gridworld/fixed``.
        version: Increased whenever the results change, so that old parts are not reused.
        jobs: Settings of the experiments: flat dictionaries of strings, numbers, booleans, None, and lists of these.
        work: ``module:function`` that takes the settings of an experiment and returns its rows, a list of flat
            dictionaries. Its result must depend only on the settings.

    Examples:
        >>> from bettersafe.studies import Study
        >>> jobs = tuple({"seed": seed, "scale": 0.5} for seed in range(10))
        >>> len(set(Study(id="my/study", version=1, jobs=jobs, work="my_module:my_function").keys))
        10
    """

    id: str
    version: int
    jobs: tuple[Settings, ...]
    work: str

    def __post_init__(self) -> None:
        check_type("id", self.id, str)
        check_type("work", self.work, str)
        check_integer("version", self.version, least=0)
        check_types("jobs", self.jobs, Mapping)
        if not self.id:
            raise ParameterError("id must not be empty; give a name such as 'gridworld/fixed'.")
        if not re.fullmatch(r"[\w.]+:\w+", self.work):
            raise ParameterError(f"the work of study {self.id!r} must be 'module:function'; got {self.work!r}.")
        if not self.jobs:
            raise ParameterError(f"study {self.id!r} has no experiments; it needs at least one.")
        object.__setattr__(self, "jobs", tuple(_plain_settings(job) for job in self.jobs))
        first: dict[str, int] = {}
        for n, key in enumerate(self.keys):
            if key in first:
                raise ParameterError(
                    f"experiments {first[key]} and {n} of study {self.id!r} have the same settings "
                    f"{_show(self.jobs[n])}; experiments must differ. Give repetitions different seeds."
                )
            first[key] = n

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The hash of every experiment, in order."""
        return tuple(job_key(job, study=self.id, version=self.version) for job in self.jobs)


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """Result of a sweep: the file of rows, the number of experiments run and skipped, and the time taken."""

    rows: Path
    done: int
    skipped: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class _Experiment:
    """An experiment as sent to a worker."""

    key: str
    study: str
    version: int
    work: str
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class _Failure:
    reason: str
    trace: str


def job_key(settings: Settings, *, study: str, version: int) -> str:
    """Key of an experiment: the first 16 hex digits of the SHA-256 of its canonical JSON.

    Keys are sorted and floats have the shortest exact representation, so equal settings have the same key. 1, 1.0, True and
    "1" are different settings.
    """
    document = {"study": study, "version": version, "settings": _plain_settings(settings)}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run_sweep(
    study: Study,
    folder: str | Path,
    *,
    engine: Place = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: Progress | None = None,
) -> SweepResult:
    """Run the experiments of ``study`` that are not yet in ``folder``, and write the rows of all of them.

    The folder may be new or contain an earlier sweep of the same study, with the same, fewer or more experiments. Parts are
    never removed; `study.json` and `rows.parquet` describe the latest sweep.

    Args:
        study: The study.
        folder: Folder of the sweep.
        engine: ``local`` for the cores of this machine, ``ray`` for a Ray cluster.
        workers: Number of parallel experiments; default all cores. With 1, ``local`` runs in this process.
        address: Address of the Ray cluster; default one running on this machine, or a new one.
        progress: Called with the number of finished experiments, at the start and after each experiment.

    Raises:
        RunError: If the folder contains something else, or experiments failed. The other experiments are done and kept.

    Examples:
        >>> from dataclasses import replace
        >>> from bettersafe.studies import make_study, run_sweep
        >>> study = make_study("garnet/bopt", worlds=1)
        >>> small = replace(study, jobs=study.jobs[:1])
        >>> run_sweep(small, "sweep", workers=1).done
        1
        >>> run_sweep(small, "sweep", workers=1).skipped  # finished experiments are skipped
        1
    """
    check_type("study", study, Study)
    check_path("folder", folder)
    check_options(progress=progress)
    started = time.perf_counter()
    check_choice("engine", engine, PLACES)
    check_integer("workers", workers, least=1, optional=True)
    check_type("address", address, str, optional=True)
    if address is not None and engine != "ray":
        raise ParameterError(f"an address is for the engine 'ray'; got {address!r} with the engine {engine!r}.")
    _find_work(study.work)  # a misspelt name fails here, not once per experiment
    place = Path(folder)
    _check_folder(study, place)
    try:
        (place / "parts").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{place} can't be written: {error.strerror}. Choose another place.") from None
    for own in (place, place / "parts"):
        remove_leftovers(own)
    todo = [
        _Experiment(key=key, study=study.id, version=study.version, work=study.work, settings=job)
        for key, job in zip(study.keys, study.jobs, strict=True)
        if _read_part(place, study.id, key) is None
    ]
    _describe(study, place, working=bool(todo))
    skipped = len(study.jobs) - len(todo)
    failures = _do_all(todo, place, skipped, engine, workers, address, progress)
    if failures:
        raise _failed(study, place, failures)
    _describe(study, place)  # another process may have replaced study.json in the meantime
    _write_rows(study, place)
    return SweepResult(
        rows=place / "rows.parquet", done=len(todo), skipped=skipped, seconds=time.perf_counter() - started
    )


def read_rows(folder: str | Path, *, partial: bool = False) -> pa.Table:
    """Read the rows of a finished sweep; with ``partial``, the rows of the finished experiments.

    Columns are ``job`` (the experiment's key), the settings, and the results.

    Args:
        folder: Folder of the sweep.
        partial: Accept an unfinished sweep.

    Examples:
        >>> from dataclasses import replace
        >>> from bettersafe.studies import make_study, read_rows, run_sweep
        >>> study = make_study("garnet/bopt", worlds=1)
        >>> small = replace(study, jobs=study.jobs[:1])
        >>> _ = run_sweep(small, "sweep", workers=1)
        >>> {"method", "improvement", "failure"} <= set(read_rows("sweep").column_names)
        True
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_options(partial=partial)
    document = read_description(folder)
    place = Path(folder)
    keys = [job["job"] for job in document["jobs"]]
    names = [name for job in document["jobs"] for name in job["settings"]]
    if partial:
        parts = [_read_part(place, document["id"], key) for key in keys]
        return _together([part for part in parts if part is not None], names, place)
    metadata: dict[bytes, bytes] = {}
    try:
        table = pq.read_table(place / "rows.parquet", use_threads=False)
    except FileNotFoundError:
        pass
    except (pa.ArrowException, OSError) as error:
        raise RunError(f"{place / 'rows.parquet'} can't be read ({error}). Run the sweep again.") from None
    else:
        metadata = table.schema.metadata or {}
        schema = metadata.get(b"bettersafe.schema", b"none").decode()
        if schema != SCHEMA:
            raise RunError(
                f"{place / 'rows.parquet'} has schema {schema!r}; this version of bettersafe reads {SCHEMA!r}."
            )
    if metadata.get(b"bettersafe.jobs", b"").decode() != _digest(keys):
        raise RunError(
            f"the sweep in {place} is not finished; run it again to continue, or read the finished part with partial=True."
        )
    return table.replace_schema_metadata()


def read_description(folder: str | Path) -> Json:
    """Read `study.json`: ``id``, ``version``, ``jobs`` (each with ``job``, its key, and ``settings``), and more.

    Args:
        folder: Folder of the sweep.

    Examples:
        >>> from dataclasses import replace
        >>> from bettersafe.studies import make_study, read_description, run_sweep
        >>> study = make_study("garnet/bopt", worlds=1)
        >>> small = replace(study, jobs=study.jobs[:1])
        >>> _ = run_sweep(small, "sweep", workers=1)
        >>> read_description("sweep")["id"]
        'garnet/bopt'
    """
    check_path("folder", folder)
    if Path(folder).is_file():
        raise RunError(f"{folder} is a file, not the folder of a study.")
    document = _read_description(Path(folder))
    if document is None:
        raise RunError(f"{folder} is not the folder of a study: it has no study.json.")
    return document


def _do_all(
    todo: Sequence[_Experiment],
    place: Path,
    skipped: int,
    engine: Place,
    workers: int | None,
    address: str | None,
    progress: Progress | None,
) -> list[tuple[_Experiment, _Failure | Lost]]:
    """Run the experiments and write their parts; return the failures in the order of the experiments."""
    from bettersafe.typing import Event, ignore

    if engine == "local" and workers is None:
        from bettersafe._system.workers import cores

        workers = cores()
    if not todo or (engine == "local" and workers == 1):
        results = here(_perform, todo)
    elif engine == "local":
        results = in_pool(_perform, todo, workers=workers or 1)
    else:
        results = on_ray(_perform, todo, workers=workers, address=address)
    say, total = progress or ignore, skipped + len(todo)
    say(Event(done=skipped, total=total, unit="experiments"))
    failures: dict[int, _Failure | Lost] = {}
    with closing(results):
        for n, (index, result) in enumerate(results, start=1):
            if isinstance(result, bytes):
                _write(place / "parts" / f"{todo[index].key}.parquet", result)
            else:
                failures[index] = result
            if n == len(failures) == HOPELESS and all(isinstance(failure, Lost) for failure in failures.values()):
                break
            say(Event(done=skipped + n, total=total, unit="experiments"))
    return [(todo[index], failures[index]) for index in sorted(failures)]


def _perform(experiment: _Experiment) -> bytes | _Failure:
    """Run one experiment in a worker; return the bytes of its part, or the failure.

    Exceptions are turned into text here, because some can't be sent between processes.
    """
    start = time.perf_counter()
    try:
        rows = _find_work(experiment.work)(copy.deepcopy(experiment.settings))
        return _part(experiment, rows, time.perf_counter() - start)
    except (Exception, SystemExit) as error:
        return _Failure(reason=last_line(error), trace=traceback.format_exc())


def _find_work(work: str) -> Callable[[Settings], list[Row]]:
    module, _, name = work.partition(":")
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        raise ParameterError(f"the work {work!r} can't be found: {error}.") from error
    if not callable(function):
        raise ParameterError(f"the work {work!r} can't be found: module {module} has no function {name!r}.")
    return function  # type: ignore[no-any-return]


def _part(experiment: _Experiment, rows: list[Row], seconds: float) -> bytes:
    """Parquet file of a part, with key, settings and results as columns."""
    import pyarrow as pa

    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise TypeError(f"{experiment.work} must return a list of dictionaries, one per row; got {type(rows).__name__}")
    same = pa.array([0] * len(rows), pa.int64())
    columns = {KEY_COLUMN: pa.array([experiment.key]).take(same)}
    columns |= {name: pa.array([value]).take(same) for name, value in experiment.settings.items()}
    for name in dict.fromkeys(name for row in rows for name in row):
        if name in columns:
            raise ValueError(
                f"a row has a column {name!r}, which is also a setting; settings are added to every row, so leave it out"
            )
        values = [_plain(row.get(name), f"column {name!r}") for row in rows]
        try:
            columns[name] = pa.array(values)
        except pa.ArrowException as error:
            raise TypeError(f"column {name!r} has values of different types: {error}") from error
    metadata = {
        "bettersafe.schema": SCHEMA,
        "bettersafe.study": experiment.study,
        "bettersafe.version": str(experiment.version),
        "bettersafe.job": experiment.key,
        "bettersafe.seconds": f"{seconds:.6f}",
    }
    return _parquet(pa.table(columns).replace_schema_metadata(metadata))


def _parquet(table: pa.Table) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_checksum=True)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _read_part(place: Path, study: str, key: str) -> pa.Table | None:
    """Rows of an experiment; None if the part is missing or damaged, so that the experiment is run again."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(place / "parts" / f"{key}.parquet", page_checksum_verification=True) as file:
            table = file.read(use_threads=False)
    except (pa.ArrowException, OSError):
        return None
    metadata = table.schema.metadata or {}
    expected = {b"bettersafe.schema": SCHEMA, b"bettersafe.study": study, b"bettersafe.job": key}
    if any(metadata.get(name, b"").decode() != value for name, value in expected.items()):
        return None
    return table.replace_schema_metadata()


def _together(parts: Sequence[pa.Table], settings: Sequence[str], place: Path) -> pa.Table:
    """Concatenate the parts; a column that is integer in some parts and float in others becomes float64."""
    import pyarrow as pa

    if not parts:
        return pa.table({KEY_COLUMN: pa.array([], pa.string())})
    try:
        table = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    except pa.ArrowException as error:
        raise RunError(f"the parts in {place} can't be combined: {error} Give each column one type.") from None
    first = [name for name in dict.fromkeys([KEY_COLUMN, *settings]) if name in table.column_names]
    return table.select([*first, *(name for name in table.column_names if name not in set(first))])


def _write_rows(study: Study, place: Path) -> None:
    parts = [_read_part(place, study.id, key) for key in study.keys]
    whole = [part for part in parts if part is not None]
    if len(whole) < len(parts):
        raise RunError(f"{len(parts) - len(whole)} parts in {place} were removed during the sweep; run it again.")
    table = _together(whole, [name for job in study.jobs for name in job], place)
    metadata = {
        "bettersafe.schema": SCHEMA,
        "bettersafe.study": study.id,
        "bettersafe.version": str(study.version),
        "bettersafe.jobs": _digest(study.keys),
    }
    _write(place / "rows.parquet", _parquet(table.replace_schema_metadata(metadata)))


def _digest(keys: Sequence[str]) -> str:
    """Hash of the experiments of a table and their order."""
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


def _check_folder(study: Study, place: Path) -> None:
    """Raise unless ``place`` is new, empty, or contains this study with the same, fewer or more experiments."""
    if place.exists() and not place.is_dir():
        raise RunError(f"{place} is a file; a sweep needs a folder. Choose another name.")
    document = _read_description(place)
    if document is None:
        ours = {"parts", "rows.parquet"}  # left by an early interruption or a removed study.json
        foreign = sorted(entry.name for entry in place.iterdir() if entry.name not in ours) if place.is_dir() else []
        if any(not name.endswith(".partial") for name in foreign):
            raise RunError(f"{place} is not empty and not the folder of a study; choose another name.")
        return
    if document["id"] != study.id:
        raise RunError(
            f"{place} contains the study {document['id']!r}, not {study.id!r}. Choose another folder, or remove this one."
        )
    if document["version"] != study.version:
        raise RunError(
            f"{place} contains version {document['version']} of the study {study.id!r}; this is version {study.version}, "
            "whose results differ. Choose another folder, or remove this one."
        )
    there = {job["job"]: job["settings"] for job in document["jobs"]}
    asked = dict(zip(study.keys, study.jobs, strict=True))
    gone = [settings for key, settings in there.items() if key not in asked]
    new = [settings for key, settings in asked.items() if key not in there]
    if gone and new:
        raise RunError(
            f"{place} contains the study {study.id!r} with other settings: {len(gone)} of its {len(there)} experiments are "
            f"not in this study, such as {_show(gone[0])}, and {len(new)} are new, such as {_show(new[0])}. "
            "Choose another folder, or run a study with all of them."
        )


def _read_description(place: Path) -> Json | None:
    """Read and check study.json; None if there is none."""
    file = place / "study.json"
    remedy = "Remove this file and run the sweep again; finished parts are kept."
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        raise RunError(f"{file} can't be read: {error}. {remedy}") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise RunError(f"{file} has schema {schema!r}; this version of bettersafe reads {SCHEMA!r}.")
    try:
        complete = all(isinstance(job["job"], str) and isinstance(job["settings"], dict) for job in document["jobs"])
        complete &= {"id", "version", "created", "versions"} <= document.keys()
    except (KeyError, TypeError):
        complete = False
    if not complete:
        raise RunError(f"{file} is not complete. {remedy}")
    return document  # type: ignore[no-any-return]


def _describe(study: Study, place: Path, *, working: bool = False) -> None:
    """Write study.json, unless it is unchanged."""
    before = _read_description(place) or {"created": datetime.now(UTC).isoformat(timespec="seconds"), "versions": []}
    mine = versions()
    used = [*before["versions"], mine] if working and mine not in before["versions"] else before["versions"]
    document = {
        "schema": SCHEMA,
        "id": study.id,
        "version": study.version,
        "work": study.work,
        "created": before["created"],
        "versions": used,
        "jobs": [
            {"job": key, "settings": {name: _json(value) for name, value in job.items()}}
            for key, job in zip(study.keys, study.jobs, strict=True)
        ],
    }
    if document != before:
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        _write(place / "study.json", text.encode())


def _write(target: Path, content: bytes) -> None:
    try:
        with whole_file(target, tidy=False) as partial:
            partial.write_bytes(content)
    except RunError as error:
        raise RunError(
            f"{str(error).removesuffix(' Choose another place.')} Finished experiments are kept; run the sweep again."
        ) from None


def _failed(study: Study, place: Path, failures: Sequence[tuple[_Experiment, _Failure | Lost]]) -> RunError:
    shown = "; ".join(f"{_show(experiment.settings)}: {failure.reason}" for experiment, failure in failures[:SHOWN])
    more = f"; and {len(failures) - SHOWN} more" if len(failures) > SHOWN else ""
    error = RunError(
        f"{len(failures)} of {len(study.jobs)} experiments of the study {study.id!r} failed: {shown}{more}. "
        f"Finished experiments are kept in {place}; fix the cause and run the sweep again to continue."
    )
    for _, failure in failures[:SHOWN]:
        if isinstance(failure, _Failure):
            error.add_note(failure.trace)
    return error


def _plain_settings(settings: Settings) -> Settings:
    """Copy of the settings in plain Python types, so that every engine passes the same values; raise for other types."""
    if not isinstance(settings, dict) or not all(isinstance(name, str) and name for name in settings):
        raise ParameterError(
            f"the settings of an experiment must be a dictionary with names as keys; got {settings!r}."
        )
    if KEY_COLUMN in settings:
        raise ParameterError(f"a setting can't be named {KEY_COLUMN!r}, the name of the key column. Rename it.")
    plain = {}
    for name, value in settings.items():
        try:
            plain[name] = _plain(value, f"setting {name!r}")
        except (TypeError, ValueError) as error:
            raise ParameterError(f"{error}.") from None
        entries = plain[name] if isinstance(plain[name], list) else [plain[name]]
        if any(isinstance(entry, float) and math.isnan(entry) for entry in entries):
            raise ParameterError(f"setting {name!r} is NaN, which does not equal itself; use None for a missing value.")
    return plain


def _plain(value: Any, what: str) -> Any:
    """Convert a string, number, boolean, None, or a flat list of these to plain Python types."""
    if isinstance(value, list | tuple):
        if any(isinstance(entry, list | tuple) for entry in value):
            raise TypeError(f"{what} must be a flat list; got a nested list")
        return [_plain(entry, what) for entry in value]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a NumPy scalar
        value = value.item()
    if value is None or isinstance(value, bool | str | float):
        return float(value) if isinstance(value, float) else value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{what} must fit into 64 bits; got {value}. Give it as a string")
        return int(value)
    raise TypeError(f"{what} must be a string, number, boolean, None, or a list of these; got {type(value).__name__}")


def _json(value: Any) -> Any:
    """Convert to JSON; infinity, which JSON lacks, becomes a string."""
    if isinstance(value, list):
        return [_json(entry) for entry in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _show(settings: Settings) -> str:
    return json.dumps({name: _json(value) for name, value in settings.items()}, ensure_ascii=False)
