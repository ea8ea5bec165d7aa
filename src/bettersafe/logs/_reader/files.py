"""Log files on disk: paths, formats, columns, and positions of rows.

Every format becomes a DuckDB table expression that is read from disk each time it is used, so a log may be
larger than memory. CSV cells are read as text and JSON cells as JSON, and cast by ``cells.py``, so
that the message about a bad cell names its line.
"""

from __future__ import annotations

import csv
import glob
import gzip
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import duckdb

from bettersafe.errors import BettersafeError, DataError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


PathsLike = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Format = Literal["Parquet", "CSV", "JSON lines", "Arrow"]

FORMATS: dict[str, Format] = {
    ".parquet": "Parquet",
    ".csv": "CSV",
    ".tsv": "CSV",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".json": "JSON lines",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".ipc": "Arrow",
}

GZIPPED: tuple[Format, ...] = ("CSV", "JSON lines")
PART = 1 << 40  # more than the rows of one scan
SCHEMA = "dataset/1"  # value of SCHEMA_KEY in the metadata of write_dataset's files
COUNTS_SCHEMA = "counts/1"  # value of SCHEMA_KEY in counts files
SCHEMA_KEY = "bettersafe.schema"
DISCRETIZED_KEY = "bettersafe.discretized"  # in the metadata of logs that `discretize_log` wrote: number of states
DISCRETIZER = "discretizer.parquet"
DISCRETIZED_NOTE = "states were made from continuous features, so they may not hold all that matters"


@dataclass(frozen=True, kw_only=True)
class File:
    """One log file and its layout.

    Attributes:
        path: Path of the file.
        name: Name in messages: the last part of the path if unambiguous.
        format: Format of the file.
        columns: Column name -> (SQL that refers to the column in ``scan``, DuckDB type).
        delimiter: Delimiter between cells (CSV only).
        width: Number of cells in a line (CSV only).
        number: Index among all files.
    """

    path: Path
    name: str
    format: Format
    columns: dict[str, tuple[str, str]]
    delimiter: str = ","
    width: int = 0
    number: int = 0

    @property
    def unit(self) -> str:
        """Unit of a row's number: "line" for text formats, else "row"."""
        return "line" if self.format in GZIPPED else "row"


def identifier(name: str) -> str:
    """``name`` as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: object) -> str:
    """``value`` (an integer or a text) as an SQL literal."""
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def expand(paths: PathsLike) -> tuple[Path, ...]:
    """Files of a path, a glob, or a list of them; the files of a glob are sorted, and repeated files are dropped."""
    wanted = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not wanted:
        raise DataError("no file given. Name a file, or a glob such as 'logs/*.parquet'.")
    found: list[str] = []
    for item in [os.fspath(name) for name in wanted]:
        if os.path.isdir(item):
            raise DataError(f"{item} is a directory. Name its files, e.g. {os.path.join(item, '*.parquet')}.")
        if os.path.exists(item):
            found.append(item)
        elif glob.has_magic(item):
            matches = sorted(match for match in glob.glob(item, recursive=True) if os.path.isfile(match))
            if not matches:
                raise DataError(f"no file matches {item}. Check the pattern and the directory.")
            found += matches
        else:
            raise DataError(f"there is no file {item}. Check the name and the directory.")
    return tuple(Path(name) for name in dict.fromkeys(found))


def rows_about(paths: PathsLike) -> float:
    """Approximate rows of log files: exact for Parquet, else estimated from the size (40 bytes a row, 8 if compressed)."""
    from pyarrow import parquet

    total = 0.0
    for path in expand(paths):
        if path.suffix.lower() == ".parquet":
            with suppress(OSError, ValueError):  # errors are reported when the file is read
                total += parquet.read_metadata(path).num_rows
        else:
            total += path.stat().st_size / (8.0 if path.suffix.lower() == ".gz" else 40.0)
    return total


def is_discretized(paths: PathsLike) -> bool:
    """Whether a log file was written by `discretize_log`, by its metadata, or lies beside a saved map."""
    from pyarrow import parquet

    for path in expand(paths):
        if path.suffix.lower() != ".parquet":
            continue
        if (path.parent / DISCRETIZER).is_file():
            return True
        with suppress(OSError, ValueError):  # errors are reported when the file is read
            if DISCRETIZED_KEY.encode() in (parquet.read_schema(path).metadata or {}):
                return True
    return False


def data_digest(paths: PathsLike) -> str:
    """SHA-256, in hex, of the contents of the files in sorted order; for one file, equal to ``sha256sum``."""
    digest = hashlib.sha256()
    for path in sorted(expand(paths)):
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def rows_in(paths: Sequence[Path]) -> int | None:
    """Rows of Parquet files, from their footers; None if a file has another format or can't be read."""
    from pyarrow import ArrowException, parquet

    total = 0
    for path in paths:
        if path.suffix.lower() != ".parquet":
            return None
        try:
            total += parquet.read_metadata(path).num_rows
        except (ArrowException, OSError):
            return None
    return total


def schema_of(path: Path) -> str | None:
    """Value of `SCHEMA_KEY` in the metadata of a Parquet file; None if it has none, or is not Parquet."""
    from pyarrow import ArrowException, parquet

    if path.suffix.lower() != ".parquet":
        return None
    try:
        metadata = parquet.read_schema(path).metadata or {}
    except (ArrowException, OSError):
        return None
    found = metadata.get(SCHEMA_KEY.encode())
    return None if found is None else found.decode()


def open_files(connection: DuckDBPyConnection, paths: PathsLike) -> tuple[File, ...]:
    """Files with their layouts. Raises DataError unless all are of one format."""
    places = expand(paths)
    formats = [_format(path) for path in places]
    for path, form in zip(places, formats, strict=True):
        if form != formats[0]:
            raise DataError(
                f"all files must be of one format; {places[0]} is {formats[0]} and {path} is {form}."
                " Convert them to one format."
            )
    if formats[0] == "Parquet":
        _check_schemas(connection, places)
    files = []
    for number, (path, name) in enumerate(zip(places, short_names(places), strict=True)):
        with readable(name, formats[0]):
            files.append(_layout(connection, path, name, formats[0], number))
    return tuple(files)


def short_names(places: Sequence[Path]) -> list[str]:
    """Names of files in messages: the last part of the path if unambiguous."""
    names = Counter(path.name for path in places)
    return [path.name if names[path.name] == 1 else str(path) for path in places]


def title_of(names: Sequence[str]) -> str:
    """Name of several files together in messages."""
    more = len(names) - 1
    return names[0] + (f" (and {more} more)" if more else "")


def scan(
    connection: DuckDBPyConnection, files: Sequence[File], columns: Sequence[str], *, numbered: bool = False
) -> str:
    """SELECT of the named columns of the files as "0", "1", ...; if ``numbered``, also "row", rising in file order."""
    # Consecutive files with equal layouts share a scan, so a thousand shards are one table function.
    parts = []
    alike = groupby(files, key=lambda file: (tuple(file.columns.items()), file.delimiter, file.width))
    for part, (_, group) in enumerate(alike):
        members = list(group)
        chosen = [f'{members[0].columns[name][0]} AS "{i}"' for i, name in enumerate(columns)]
        table = _table(connection, members, columns)
        if numbered:
            # Number at the scan itself: over a projection of a large CSV file, DuckDB 2.0 numbered
            # some rows out of order.
            table = f"(SELECT *, {part * PART} + row_number() OVER () AS row FROM {table})"
            chosen.append("row")
        parts.append(f"SELECT {', '.join(chosen)} FROM {table}")
    return " UNION ALL ".join(parts)


def number_of_row(file: File, row: int) -> int:
    """Line (text formats) or row (others) of the file's ``row``-th record, both from 1."""
    if file.format == "CSV":
        with _text(file.path) as stream:
            reader = csv.reader(stream, delimiter=file.delimiter)
            records = -1  # the header
            line = 0
            for cells in reader:
                start, line = line + 1, reader.line_num
                records += bool(cells)  # skips blank lines
                if records == row:
                    return start
    elif file.format == "JSON lines":
        with _text(file.path) as stream:
            records = 0
            for line, content in enumerate(stream, start=1):
                records += not content.isspace()
                if records == row:
                    return line
    return row


@contextmanager
def readable(name: str, form: Format) -> Iterator[None]:
    """Convert errors of reading files into a DataError that names the file."""
    try:
        yield
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException, BettersafeError):
        raise  # a bug of this package, not of the file; or said already
    except duckdb.OutOfMemoryException as error:
        raise DataError(f"{name} needs more memory than is allowed. Raise the memory limit.") from error
    except (duckdb.Error, OSError, EOFError, ValueError, csv.Error) as error:
        # pyarrow's errors are ValueErrors or OSErrors.
        raise DataError(_reason(name, form, str(error))) from error


def _reason(name: str, form: Format, message: str) -> str:
    ragged = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message)
    line = re.search(r"CSV Error on Line: (\d+)", message)
    if ragged and line:
        return (
            f"{name}, line {line[1]} has {ragged[2]} cells where the header has {ragged[1]}."
            " Complete the line or remove it."
        )
    if line and "unterminated quote" in message:
        return f"{name}, line {line[1]} opens a quote and never closes it. Close it."
    if "utf-8" in message.lower():
        where = f"{name}, line {line[1]}" if line else name
        return f"{where} is not UTF-8 text. Save the file as UTF-8."
    first = message.strip().splitlines()[0] if message.strip() else "unknown reason"
    first = re.sub(r"^\w[\w ]* Error: ", "", first).rstrip(". ")
    return f"{name} can't be read as {form}: {first}. Write it again, or give it the extension of its format."


def _format(path: Path) -> Format:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    zipped = suffixes[-1:] == [".gz"]
    form = FORMATS.get("".join(suffixes[-2:-1]) if zipped else "".join(suffixes[-1:]))
    if form is None or (zipped and form not in GZIPPED):
        raise DataError(
            f"can't tell the format of {path} from its extension; known are {', '.join(FORMATS)}"
            " (and .csv.gz, .tsv.gz, .jsonl.gz). Rename or convert it."
        )
    return form


def _layout(connection: DuckDBPyConnection, path: Path, name: str, form: Format, number: int) -> File:
    if form == "CSV":
        return csv_layout(path, name)
    if form == "JSON lines":
        return File(path=path, name=name, format=form, columns=_json_columns(connection, path, name))
    table = _arrow(connection, [path], "layout") if form == "Arrow" else _parquet([path])
    described = connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()
    columns = {row[0]: (identifier(row[0]), str(row[1])) for row in described}
    return File(path=path, name=name, format=form, columns=columns, number=number)


def csv_layout(path: Path, name: str) -> File:
    """Layout of a CSV file, from its first line."""
    with _text(path) as stream:
        first = stream.readline()
        while first and first.isspace():
            first = stream.readline()
    if not first:
        raise DataError(f"{name} is empty. The first line must name the columns.")
    if path.name.lower().removesuffix(".gz").endswith(".tsv"):
        delimiter = "\t"
    else:
        delimiter = ";" if ";" in first and "," not in first else ","
    with _text(path) as stream:  # read again: a quoted name may contain a line break
        header = next(cells for cells in csv.reader(stream, delimiter=delimiter) if cells)
    twice = [column for column, times in Counter(header).items() if times > 1 and column]
    if twice:
        raise DataError(f"{name} has two columns {twice[0]!r}. Rename one.")
    # Names by position keep odd, empty or case-differing names out of the SQL.
    columns = {column: (f"c{i}", "CSV") for i, column in enumerate(header) if column}
    return File(path=path, name=name, format="CSV", columns=columns, delimiter=delimiter, width=len(header))


def _json_columns(connection: DuckDBPyConnection, path: Path, name: str) -> dict[str, tuple[str, str]]:
    with _text(path) as stream:
        if stream.read(1) == "[":
            raise DataError(f"{name} holds one JSON array, not JSON lines. Write one object per line.")
    try:
        keys = connection.execute(
            f"SELECT DISTINCT unnest(json_keys(json)) AS key FROM read_ndjson_objects({_names([path])}) ORDER BY key"
        ).fetchall()
    except duckdb.InvalidInputException:
        line = _bad_json_line(path)
        if line is None:
            raise
        raise DataError(f"{name}, line {line} is not a JSON object. Correct the line or remove it.") from None
    return {key: (identifier(key), "JSON") for (key,) in keys}


def _bad_json_line(path: Path) -> int | None:
    with _text(path) as stream:
        for line, content in enumerate(stream, start=1):
            if content.isspace():
                continue
            try:
                json.loads(content)
            except ValueError:
                return line
    return None


def _check_schemas(connection: DuckDBPyConnection, paths: Sequence[Path]) -> None:
    """Raise DataError if the metadata of a Parquet file say that it is not a log."""
    try:
        rows = connection.execute(
            f"SELECT file_name, value FROM parquet_kv_metadata({_names(paths)}) WHERE key = {literal(SCHEMA_KEY)}::BLOB"
        ).fetchall()
    except duckdb.Error:
        return  # one can't be read; opening them one by one names it
    for place, value in rows:
        name, found = Path(place).name, value.decode()
        if found.startswith("counts/"):
            raise DataError(
                f"{name} is a counts file, which has no episodes; a log is needed here. Name the log that was counted."
            )
        if found != SCHEMA:
            raise DataError(f"{name} was written as {found!r}; this version reads {SCHEMA!r}. Update bettersafe.")


def _table(connection: DuckDBPyConnection, files: Sequence[File], columns: Sequence[str]) -> str:
    """Table function over files of one layout."""
    paths = [file.path for file in files]
    first = files[0]
    if first.format == "Arrow":
        return _arrow(connection, paths, f"arrow_{first.number}_{files[-1].number}")
    if first.format == "Parquet":
        return _parquet(paths)
    if first.format == "JSON lines":
        wanted = ", ".join(f"{literal(name)}: 'JSON'" for name in dict.fromkeys(columns))
        return f"read_json({_names(paths)}, format = 'newline_delimited', columns = {{{wanted}}})"
    cells = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(first.width))
    return (
        f"read_csv({_names(paths)}, header = true, auto_detect = false, delim = {literal(first.delimiter)},"
        f" quote = '\"', escape = '\"', columns = {{{cells}}})"
    )


def _arrow(connection: DuckDBPyConnection, paths: Sequence[Path], view: str) -> str:
    """Name of a view over Arrow files of one layout: one scan, which opens the files in turn."""
    from pyarrow import dataset

    connection.register(view, dataset.dataset([str(path) for path in paths], format="ipc"))
    return view


def _parquet(paths: Sequence[Path]) -> str:
    return f"read_parquet({_names(paths)}, hive_partitioning = false)"


def _names(paths: Sequence[Path]) -> str:
    # The names are of files, but DuckDB would expand a bracket as a pattern.
    return "[" + ", ".join(literal(glob.escape(str(path))) for path in paths) + "]"


def _text(path: Path) -> IO[str]:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
    return path.open(encoding="utf-8-sig", errors="replace", newline="")
