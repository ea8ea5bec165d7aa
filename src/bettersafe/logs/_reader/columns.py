"""Raw columns of log files by role, and the position of a row in its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bettersafe.logs._reader import cells
from bettersafe.logs._reader.files import File, number_of_row, readable, scan, title_of
from bettersafe.logs.roles import FLAGS, VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from bettersafe.logs._reader.cells import Family, Kind, Shape


@dataclass(frozen=True, kw_only=True)
class Place:
    """Position of a row (a file and the number of its line or row), with the content of one cell."""

    file: File
    number: int
    cell: str | None

    def __str__(self) -> str:
        return f"{self.file.name}, {self.file.unit} {self.number}"

    @property
    def content(self) -> str:
        """The cell as quoted in messages."""
        if self.cell is None:
            return "an empty cell" if self.file.format == "CSV" else "null"
        return repr(self.cell)


@dataclass(frozen=True, kw_only=True)
class Raw:
    """Used columns of the files, unconverted.

    Attributes:
        connection: DuckDB connection that reads the files.
        files: Files, in order.
        names: Role ("state", "r0", ...) -> user's column name.
        types: Role -> DuckDB type, common to all files.
        shapes: Role -> shape of its cells.
    """

    connection: DuckDBPyConnection
    files: tuple[File, ...]
    names: Mapping[str, str]
    types: Mapping[str, str]
    shapes: Mapping[str, Shape]

    @property
    def title(self) -> str:
        """Name of all files together in messages."""
        return title_of([file.name for file in self.files])

    def relation(self, files: Sequence[File], *, numbered: bool = False) -> str:
        """SELECT of the raw cells of the files, one column per role; if ``numbered``, also "row", which rises in file order."""
        chosen = ", ".join(
            f'CAST("{i}" AS {self.types[role]}) AS {role}' if len(self.files) > 1 else f'"{i}" AS {role}'
            for i, role in enumerate(self.names)
        )
        row = ", row" if numbered else ""
        return (
            f"SELECT {chosen}{row} FROM ({scan(self.connection, files, list(self.names.values()), numbered=numbered)})"
        )

    def find(self, where: str, role: str, nth: int = 1) -> Place:
        """Position of the nth row, in file order, for which ``where`` holds, with the cell of ``role``."""
        cell = cells.shown(role, self.shapes[role])
        for file in self.files:
            with readable(file.name, file.format):
                rows = self.connection.execute(
                    f"SELECT row, {cell} FROM ({self.relation([file], numbered=True)})"
                    f" WHERE {where} ORDER BY row LIMIT {nth}"
                ).fetchall()
                if len(rows) >= nth:
                    row, content = rows[nth - 1]
                    return Place(file=file, number=number_of_row(file, row), cell=content)
            nth -= len(rows)
        raise AssertionError(f"no row of {self.title} has {where}")

    def family(self, role: str) -> str:
        """SQL: family of the label in a cell of ``role``, as ``cells.family``."""
        return self._if_state(role, cells.family(role, self.shapes[role]))

    def missing(self, role: str) -> str:
        """SQL: whether a cell of ``role`` has no label."""
        return cells.missing(role, self.shapes[role])

    def counts_of_families(self, role: str) -> dict[Family, str]:
        """SQL aggregates: number of cells of ``role`` by possible family, over the columns of `family_cells`."""
        possible = cells.families(self.shapes[role])
        if len(possible) > 1:
            return {name: f"count(*) FILTER (WHERE {role}_family = '{name}')" for name in possible}
        return dict.fromkeys(possible, f"count({role}_there)")

    def family_cells(self, role: str) -> dict[str, str]:
        """SQL of the columns that `counts_of_families` counts, by name."""
        if len(cells.families(self.shapes[role])) > 1:
            return {f"{role}_family": self.family(role)}
        return {f"{role}_there": self._if_state(role, role)}

    def read(self, role: str, kind: Kind = "integer") -> str:
        """SQL: the canonical value in a cell of ``role``; ``kind`` is the kind of its labels, if any."""
        shape = self.shapes[role]
        if role in VOCABULARY:
            return self._if_state(role, cells.label(role, shape, kind))
        if role == "step":
            return cells.integer(role, shape)
        return (cells.flag if role in FLAGS else cells.number)(role, shape)

    def _if_state(self, role: str, expression: str) -> str:
        """NULL for the next_state of a terminated row, which is not a state of the process."""
        if role != "next_state" or "terminated" not in self.names:
            return expression
        return f"CASE WHEN NOT ({self.read('terminated')}) THEN {expression} END"


def raw_columns(connection: DuckDBPyConnection, files: tuple[File, ...], names: Mapping[str, str]) -> Raw:
    """Columns ``names`` (role -> name), which every file has, with their common types."""
    first = files[0]
    with readable(first.name, first.format):
        described = connection.execute(f"DESCRIBE {scan(connection, files, list(names.values()))}").fetchall()
    types = {role: str(row[1]) for role, row in zip(names, described, strict=True)}
    shapes = {role: cells.shape("CSV" if first.format == "CSV" else kind) for role, kind in types.items()}
    return Raw(connection=connection, files=files, names=names, types=types, shapes=shapes)
