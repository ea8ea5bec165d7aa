"""Sweeps: independent experiments, each a dictionary of settings, whose results are flat rows.

    folder/study.json           which experiments, of which study, by which versions
    folder/parts/KEY.parquet    the rows of one experiment, under the hash of its settings
    folder/rows.parquet         the rows of all, in the order of the experiments, once all are done

Everything is written under a temporary name and renamed, so what has its name is whole. A sweep that was killed goes on
where it was: experiments whose part is there are not done again. An experiment's rows are a function of its settings
alone (seeds are settings), so `rows.parquet` is the same however often a sweep was killed and whoever did the work. How
long an experiment took is in the metadata of its part (``bettersafe.seconds``), not among the rows.

Heavy imports wait until they are needed: every worker process begins by importing this module.
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
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bettersafe._system.files import remove_leftovers, versions, whole_file
from bettersafe._system.workers import PLACES, Lost, Place, here, in_pool, last_line, on_ray
from bettersafe.errors import ParameterError, RunError, check_choice, check_path, check_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from bettersafe.typing import Progress

Settings = dict[str, Any]

SCHEMA = "study/1"
KEY_COLUMN = "job"

SHOWN = 3
"""Failures that an error spells out."""

HOPELESS = 3
"""Experiments lost to dead workers, with none finished, after which a sweep gives up: it is not the experiments."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is to be done.

    Attributes:
        id: Its name, such as ``gridworld/fixed``.
        version: Raised when the work changes its results, so that old parts are not taken for new ones.
        jobs: The experiments' settings: flat dictionaries of text, numbers, truth values, None, and lists of these.
        work: ``module:function``, which takes an experiment's settings and returns its rows, a list of flat
            dictionaries. Its result depends on the settings alone.

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
        if not self.id:
            raise ParameterError("a study needs an id, such as 'gridworld/fixed'; got ''.")
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
                    f"{_show(self.jobs[n])}; each may be there once. Tell repetitions apart by a seed."
                )
            first[key] = n

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The hash of every experiment, in order."""
        return tuple(job_key(job, study=self.id, version=self.version) for job in self.jobs)


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What a sweep did: where the rows are, experiments done now and found done, and how long it took."""

    rows: Path
    done: int
    skipped: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class _Experiment:
    """All that a worker needs."""

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
    """Name of an experiment: the first 16 hex digits of the sha256 of its canonical JSON.

    Keys are sorted and floats have the fewest digits that give them back, so equal settings have one name; 1, 1.0, True
    and "1" are four different settings.
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
    """Do the experiments of ``study`` that ``folder`` doesn't have yet, and put the rows of all together.

    The folder may be new, or one where the same study was run before, with the same experiments, fewer or more. Parts are
    never removed; `study.json` and `rows.parquet` are of the study that was asked for last.

    Args:
        study: What is to be done.
        folder: Where it is kept.
        engine: ``local`` for the cores of this machine, ``ray`` for a Ray cluster.
        workers: Experiments at a time; all cores if left out. With one, ``local`` works in this process.
        address: Of the Ray cluster; if left out, the one that was started on this machine, or a new one.
        progress: Called with the experiments that are done, at the start and after each.

    Raises:
        RunError: When the folder belongs to something else, or experiments failed. All others were done and are kept.

    Examples:
        >>> from dataclasses import replace
        >>> from bettersafe.studies import make_study, run_sweep
        >>> study = make_study("garnet/bopt", worlds=1)
        >>> small = replace(study, jobs=study.jobs[:1])
        >>> run_sweep(small, "sweep", workers=1).done
        1
        >>> run_sweep(small, "sweep", workers=1).skipped  # what is done is not done again
        1
    """
    check_type("study", study, Study)
    check_path("folder", folder)
    started = time.perf_counter()
    check_choice("engine", engine, PLACES)
    if workers is not None and workers < 1:
        raise ParameterError(f"workers must be 1 or more; got {workers}.")
    if address is not None and engine != "ray":
        raise ParameterError(f"an address is for the engine 'ray'; got {address!r} with the engine {engine!r}.")
    _find_work(study.work)  # a misspelt name should fail here, not once per experiment
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
    _describe(study, place)  # another run may have described its own experiments in the meantime
    _write_rows(study, place)
    return SweepResult(
        rows=place / "rows.parquet", done=len(todo), skipped=skipped, seconds=time.perf_counter() - started
    )


def read_rows(folder: str | Path, *, partial: bool = False) -> pa.Table:
    """The rows of a finished sweep; with ``partial``, those of the experiments that are finished.

    Columns are ``job`` (the experiment's key), the settings, and what the work returned.

    Args:
        folder: Where the sweep is.
        partial: Whether it may be unfinished.

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
        raise RunError(f"{place / 'rows.parquet'} can't be read ({error}); run the sweep again to mend it.") from None
    else:
        metadata = table.schema.metadata or {}
        schema = metadata.get(b"bettersafe.schema", b"none").decode()
        if schema != SCHEMA:
            raise RunError(
                f"{place / 'rows.parquet'} has schema {schema!r}; this version of bettersafe reads {SCHEMA!r}."
            )
    if metadata.get(b"bettersafe.jobs", b"").decode() != _digest(keys):
        raise RunError(
            f"the sweep in {place} is not finished; run it again to continue, or read what there is with partial=True."
        )
    return table.replace_schema_metadata()


def read_description(folder: str | Path) -> dict[str, Any]:
    """What `study.json` says: ``id``, ``version``, ``jobs`` (each with ``job``, its key, and ``settings``), and more.

    Args:
        folder: Where the sweep is.

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
    """Have the experiments done and write their parts as they come; what failed, in the order of the experiments."""
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
    """Do one experiment, wherever it is: the bytes of its part, or why there are none.

    An exception is turned into text here, because not every exception survives the journey home.
    """
    start = time.perf_counter()
    try:
        rows = _find_work(experiment.work)(copy.deepcopy(experiment.settings))
        return _part(experiment, rows, time.perf_counter() - start)
    except (Exception, SystemExit) as error:
        return _Failure(reason=last_line(error), trace=traceback.format_exc())


def _find_work(work: str) -> Callable[[Settings], list[dict[str, Any]]]:
    module, _, name = work.partition(":")
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        raise ParameterError(f"the work {work!r} can't be found: {error}.") from error
    if not callable(function):
        raise ParameterError(f"the work {work!r} can't be found: module {module} has no function {name!r}.")
    return function  # type: ignore[no-any-return]


def _part(experiment: _Experiment, rows: list[dict[str, Any]], seconds: float) -> bytes:
    """A part's Parquet file: key, settings and results as columns."""
    import pyarrow as pa

    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise TypeError(f"{experiment.work} must return a list of dictionaries, one per row; got {type(rows).__name__}")
    same = pa.array([0] * len(rows), pa.int64())
    columns = {KEY_COLUMN: pa.array([experiment.key]).take(same)}
    columns |= {name: pa.array([value]).take(same) for name, value in experiment.settings.items()}
    for name in dict.fromkeys(name for row in rows for name in row):
        if name in columns:
            raise ValueError(
                f"a row has a column {name!r}, as the settings do; they are added to every row, so leave it out"
            )
        values = [_plain(row.get(name), f"column {name!r}") for row in rows]
        try:
            columns[name] = pa.array(values)
        except pa.ArrowException as error:
            raise TypeError(f"column {name!r} mixes kinds of values: {error}") from error
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
    """The rows of an experiment; None where there are none, or none that can be trusted: it is then done again."""
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
    """One table in the order of the parts; a column that is whole numbers here and fractions there becomes float64."""
    import pyarrow as pa

    if not parts:
        return pa.table({KEY_COLUMN: pa.array([], pa.string())})
    try:
        table = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    except pa.ArrowException as error:
        raise RunError(f"the parts in {place} don't fit together: {error} Give a column one kind of value.") from None
    first = [name for name in dict.fromkeys([KEY_COLUMN, *settings]) if name in table.column_names]
    return table.select([*first, *(name for name in table.column_names if name not in set(first))])


def _write_rows(study: Study, place: Path) -> None:
    parts = [_read_part(place, study.id, key) for key in study.keys]
    whole = [part for part in parts if part is not None]
    if len(whole) < len(parts):
        raise RunError(f"{len(parts) - len(whole)} parts in {place} were removed while the sweep ran; run it again.")
    table = _together(whole, [name for job in study.jobs for name in job], place)
    metadata = {
        "bettersafe.schema": SCHEMA,
        "bettersafe.study": study.id,
        "bettersafe.version": str(study.version),
        "bettersafe.jobs": _digest(study.keys),
    }
    _write(place / "rows.parquet", _parquet(table.replace_schema_metadata(metadata)))


def _digest(keys: Sequence[str]) -> str:
    """Of which experiments, in which order, a table is."""
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


def _check_folder(study: Study, place: Path) -> None:
    """Raise unless ``place`` is new, empty, or holds this study with the same experiments, fewer or more."""
    if place.exists() and not place.is_dir():
        raise RunError(f"{place} is a file; a sweep needs a folder. Choose another name.")
    document = _read_description(place)
    if document is None:
        ours = {"parts", "rows.parquet"}  # what a run that was killed early, or a removed study.json, leaves
        foreign = sorted(entry.name for entry in place.iterdir() if entry.name not in ours) if place.is_dir() else []
        if any(not name.endswith(".partial") for name in foreign):
            raise RunError(f"{place} is not empty and not the folder of a study; choose another name.")
        return
    if document["id"] != study.id:
        raise RunError(
            f"{place} holds the study {document['id']!r}, not {study.id!r}. Choose another folder, or remove this one."
        )
    if document["version"] != study.version:
        raise RunError(
            f"{place} holds version {document['version']} of the study {study.id!r}; this is version {study.version}, "
            "whose results differ. Choose another folder, or remove this one."
        )
    there = {job["job"]: job["settings"] for job in document["jobs"]}
    asked = dict(zip(study.keys, study.jobs, strict=True))
    gone = [settings for key, settings in there.items() if key not in asked]
    new = [settings for key, settings in asked.items() if key not in there]
    if gone and new:
        raise RunError(
            f"{place} holds the study {study.id!r} with other settings: {len(gone)} of its {len(there)} experiments are "
            f"not asked for, such as {_show(gone[0])}, and {len(new)} are new, such as {_show(new[0])}. "
            "Choose another folder, or ask for all of them together."
        )


def _read_description(place: Path) -> dict[str, Any] | None:
    """study.json, checked; None where there is none."""
    file = place / "study.json"
    remedy = "Remove this file to begin again; finished parts will be used."
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
    """Write study.json, unless it says the same already."""
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
            f"{str(error).removesuffix(' Choose another place.')} What is finished is kept; run the sweep again."
        ) from None


def _failed(study: Study, place: Path, failures: Sequence[tuple[_Experiment, _Failure | Lost]]) -> RunError:
    shown = "; ".join(f"{_show(experiment.settings)}: {failure.reason}" for experiment, failure in failures[:SHOWN])
    more = f"; and {len(failures) - SHOWN} more" if len(failures) > SHOWN else ""
    error = RunError(
        f"{len(failures)} of {len(study.jobs)} experiments of the study {study.id!r} failed: {shown}{more}. "
        f"What is finished is kept in {place}; mend the cause and run the sweep again to continue."
    )
    for _, failure in failures[:SHOWN]:
        if isinstance(failure, _Failure):
            error.add_note(failure.trace)
    return error


def _plain_settings(settings: Settings) -> Settings:
    """A copy in plain types, so that every engine hands the work the same; raise where that can't be."""
    if not isinstance(settings, dict) or not all(isinstance(name, str) and name for name in settings):
        raise ParameterError(f"an experiment is a dictionary of named settings; got {settings!r}.")
    if KEY_COLUMN in settings:
        raise ParameterError(f"a setting can't be called {KEY_COLUMN!r}, as the column of keys is. Rename it.")
    plain = {}
    for name, value in settings.items():
        try:
            plain[name] = _plain(value, f"setting {name!r}")
        except (TypeError, ValueError) as error:
            raise ParameterError(f"{error}.") from None
        entries = plain[name] if isinstance(plain[name], list) else [plain[name]]
        if any(isinstance(entry, float) and math.isnan(entry) for entry in entries):
            raise ParameterError(f"setting {name!r} is not a number, which equals nothing; use None for no value.")
    return plain


def _plain(value: Any, what: str) -> Any:
    """Text, number, truth value, None, or a flat list of these, in Python's own types."""
    if isinstance(value, list | tuple):
        if any(isinstance(entry, list | tuple) for entry in value):
            raise TypeError(f"{what} must be flat; got a list in a list")
        return [_plain(entry, what) for entry in value]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a NumPy scalar
        value = value.item()
    if value is None or isinstance(value, bool | str | float):
        return float(value) if isinstance(value, float) else value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{what} must fit 64 bits; got {value}. Write it as text")
        return int(value)
    raise TypeError(
        f"{what} must be text, a number, true or false, None, or a list of these; got {type(value).__name__}"
    )


def _json(value: Any) -> Any:
    """JSON has no infinity: it is written as the word."""
    if isinstance(value, list):
        return [_json(entry) for entry in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _show(settings: Settings) -> str:
    return json.dumps({name: _json(value) for name, value in settings.items()}, ensure_ascii=False)
