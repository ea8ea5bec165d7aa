"""Tables with any columns, read as numbers or unchanged, with the position of every row in its file."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import duckdb
import numpy as np

from bettersafe.errors import DataError, did_you_mean
from bettersafe.logs._reader import cells
from bettersafe.logs._reader.columns import Place, Raw, raw_columns
from bettersafe.logs._reader.files import PathsLike, number_of_row, open_files, readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from bettersafe.typing import Floats


ColumnKind = Literal["integer", "number", "flag", "text", "empty"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Open table; the role of its i-th column is "c{i}", which is also its name in SQL."""

    raw: Raw

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in the order of the file."""
        return tuple(self.raw.names.values())

    def role(self, name: str, remedy: str = "") -> str:
        """Role of the column ``name``. Raises DataError if there is no such column."""
        if name not in self.names:
            raise DataError(
                f"{self.raw.title} has no column {name!r}; it has {', '.join(self.names)}."
                f"{did_you_mean(name, self.names)}{' ' + remedy if remedy else ''}"
            )
        return f"c{self.names.index(name)}"

    def kinds(self) -> dict[str, ColumnKind]:
        """Kind of every column; "empty" if all cells are missing, "text" also for types without a kind."""
        asked = []
        for role, form in self.raw.shapes.items():
            asked += [
                f"count({cells.shown(role, form)})",
                f"count(*) FILTER (WHERE {cells.family(role, form)} = 'integer')",
                f"count({cells.number(role, form)})" if form in {"cell", "json"} else "0",
            ]
        with readable(self.raw.title, self.raw.files[0].format):
            [row] = self.raw.connection.execute(
                f"SELECT {', '.join(asked)} FROM ({self.raw.relation(self.raw.files)})"
            ).fetchall()
        found: dict[str, ColumnKind] = {}
        for i, (role, form) in enumerate(self.raw.shapes.items()):
            filled, integers, numbers = row[3 * i : 3 * i + 3]
            fixed: dict[str, ColumnKind] = {"int": "integer", "huge": "number", "float": "number", "bool": "flag"}
            kind: ColumnKind = fixed.get(form, "text")
            if form in {"cell", "json"}:
                kind = "integer" if integers == filled else "number" if numbers == filled else "text"
            found[self.raw.names[role]] = kind if filled else "empty"
        return found

    def select(self, expressions: Mapping[str, str]) -> pa.Table:
        """Columns of SQL expressions over the roles, with rows in the order of the files."""
        chosen = ", ".join(f'{sql} AS "{i}"' for i, sql in enumerate(expressions.values()))
        source = self.raw.relation(self.raw.files, numbered=True)
        with readable(self.raw.title, self.raw.files[0].format):
            table = self.raw.connection.sql(f"SELECT {chosen}, row FROM ({source})").to_arrow_table()
        row = table.column("row").to_numpy()
        if np.any(np.diff(row) < 0):  # a parallel scan guarantees no order
            table = table.take(np.argsort(row))
        return table.drop_columns(["row"]).rename_columns(list(expressions))

    def numbers(self, names: Sequence[str]) -> Floats:
        """The named columns as finite numbers, shape [N, f]. Raises DataError for the first cell that is not a finite number."""
        reading = {}
        for i, name in enumerate(names):
            role = self.role(name)
            reading[f"{i}"] = cells.number(role, self.raw.shapes[role])
        table = self.select(reading)
        values = np.empty((table.num_rows, len(names)))
        for i in range(len(names)):
            values[:, i] = table.column(i).to_numpy()
        bad = np.flatnonzero(~np.all(np.isfinite(values), axis=1))
        if bad.size:
            i = int(np.flatnonzero(~np.isfinite(values[bad[0]]))[0])
            self.refuse(
                names[i],
                f"coalesce(NOT isfinite({reading[str(i)]}), true)",
                f"{names[i]} must be a finite number",
                "Fill in the cell or leave out its episode.",
            )
        return values

    def refuse(self, name: str, where: str, expected: str, remedy: str) -> None:
        """Raise DataError for the first cell of a column for which ``where`` holds."""
        place = self.raw.find(where, self.role(name))
        raise DataError(f"{expected}; got {place.content} in column {name!r} of {place}. {remedy}")

    def place(self, row: int) -> str:
        """Position of the row-th row (from 0) of all files."""
        for file in self.raw.files:
            with readable(file.name, file.format):
                [(rows,)] = self.raw.connection.execute(
                    f"SELECT count(*) FROM ({self.raw.relation([file])})"
                ).fetchall()
            if row < rows:
                return str(Place(file=file, number=number_of_row(file, row + 1), cell=None))
            row -= rows
        raise AssertionError(f"{self.raw.title} has no row {row}")


@contextmanager
def open_table(paths: PathsLike) -> Iterator[Table]:
    """Open a file, a glob, or a list of them with equal columns."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    try:
        files = open_files(connection, paths)
        first = files[0]
        if not first.columns:
            raise DataError(f"{first.name} has no columns. The first line must name them.")
        for file in files[1:]:
            for one, other in ((first, file), (file, first)):
                missing = [name for name in one.columns if name not in other.columns]
                if missing:
                    raise DataError(
                        f"all files must have the same columns; {one.name} has {missing[0]!r} and {other.name} does not."
                    )
        names = {f"c{i}": name for i, name in enumerate(first.columns)}
        yield Table(raw=raw_columns(connection, files, names))
    finally:
        connection.close()
