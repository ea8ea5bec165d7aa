"""What can be wrong in the rows of a log, each said in one sentence with its file, line, column and remedy.

A good log pays for one pass that counts bad cells and one fingerprint per episode. Only when something is wrong do
later, targeted queries look for the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from bettersafe import cells
from bettersafe.cells import FAMILIES, Kind, Shape
from bettersafe.errors import DataError
from bettersafe.files import File, identifier, literal, number_of_row, readable, scan

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LARGEST = 1e150  # a reward whose square would not be a finite number is a slip of the pen
STEP_LIMIT = 4 * 10**18  # differences of steps must fit in 64 bits
ROW_ORDER = "row-order"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a row stands: a file and the number of its line or row; and what the asked cell holds."""

    file: File
    number: int
    cell: str | None

    def __str__(self) -> str:
        return f"{self.file.name}, {self.file.unit} {self.number}"

    @property
    def content(self) -> str:
        """The cell as a message quotes it."""
        if self.cell is None:
            return "an empty cell" if self.file.format == "CSV" else "null"
        return repr(self.cell)


@dataclass(frozen=True, kw_only=True)
class Raw:
    """The columns that are used, as they stand in the files.

    Attributes:
        connection: Where the files are read.
        files: The files, in order.
        names: Role ("state", "r0", ...) -> the user's column name.
        types: Role -> DuckDB type, common to all files.
        shapes: Role -> how its cells are read.
    """

    connection: DuckDBPyConnection
    files: tuple[File, ...]
    names: Mapping[str, str]
    types: Mapping[str, str]
    shapes: Mapping[str, Shape]

    @property
    def title(self) -> str:
        """How a message calls all the files together."""
        more = len(self.files) - 1
        return self.files[0].name + (f" (and {more} more)" if more else "")

    def relation(self, files: Sequence[File]) -> str:
        """SELECT of the raw cells of the files, one column per role."""
        chosen = ", ".join(
            f'CAST("{i}" AS {self.types[role]}) AS {role}' if len(self.files) > 1 else f'"{i}" AS {role}'
            for i, role in enumerate(self.names)
        )
        return f"SELECT {chosen} FROM ({scan(files, list(self.names.values()))})"

    def find(self, where: str, role: str, nth: int = 1) -> Place:
        """Place of the nth row, in file order, for which ``where`` holds; with the cell of ``role``."""
        cell = cells.shown(role, self.shapes[role])
        for file in self.files:
            with readable(file.name, file.format):
                rows = self.connection.execute(
                    f"SELECT row, {cell} FROM (SELECT *, row_number() OVER () AS row FROM"
                    f" ({self.relation([file])})) WHERE {where} ORDER BY row LIMIT {nth}"
                ).fetchall()
                if len(rows) >= nth:
                    row, content = rows[nth - 1]
                    return Place(file=file, number=number_of_row(file, row), cell=content)
            nth -= len(rows)
        raise AssertionError(f"no row of {self.title} has {where}")


@dataclass(frozen=True, kw_only=True)
class BadCell:
    """Cells that may not be: ``where`` picks them; the sentence is "expected; got CELL in column ... . remedy"."""

    role: str
    where: str
    expected: str
    remedy: str

    def complain(self, raw: Raw) -> NoReturn:
        """Raise, naming the first such cell."""
        place = raw.find(self.where, self.role)
        raise DataError(
            f"{self.expected}; got {place.content} in column {raw.names[self.role]!r} of {place}. {self.remedy}"
        )


def bad_cells(raw: Raw, n_objectives: int) -> list[BadCell]:
    """Every check of a single row, in the order in which they are reported."""
    shapes = raw.shapes
    found = [
        BadCell(
            role=role,
            where=f"({cells.family(role, shapes[role])}) IS NULL",
            expected=f"every row needs {'an' if role[0] in 'ae' else 'a'} {role}",
            remedy=f"Fill it in or drop {'the row' if role == 'episode' else 'its episode'}.",
        )
        for role in ("episode", "state", "action")
    ]
    if "step" in raw.names:
        step = cells.integer("step", shapes["step"])
        found.append(
            BadCell(
                role="step",
                where=f"coalesce({step} NOT BETWEEN {-STEP_LIMIT} AND {STEP_LIMIT}, true)",
                expected="steps must be integers",
                remedy="Number the rows of each episode 0, 1, 2, ... or take them as they come"
                f" with --step {ROW_ORDER}.",
            )
        )
    flags = [role for role in ("terminated", "truncated") if role in raw.names]
    for role in flags:
        found.append(
            BadCell(
                role=role,
                where=f"({cells.flag(role, shapes[role])}) IS NULL",
                expected=f"{role} must be true or false",
                remedy="Write true, false, 1 or 0 in every row.",
            )
        )
    if len(flags) == 2:
        found.append(
            BadCell(
                role="truncated",
                where=" AND ".join(f"({cells.flag(role, shapes[role])})" for role in flags),
                expected=f"a row can't be both terminated (column {raw.names['terminated']!r}) and truncated",
                remedy="Set truncated to false where the process itself ended.",
            )
        )
    for k in range(n_objectives):
        value = cells.number(f"r{k}", shapes[f"r{k}"])
        found.append(
            BadCell(
                role=f"r{k}",
                where=f"coalesce(NOT isfinite({value}) OR abs({value}) > {LARGEST}, true)",
                expected="rewards must be finite numbers",
                remedy="Correct the cell or drop its episode.",
            )
        )
    if "baseline_prob" in raw.names:
        value = cells.number("baseline_prob", shapes["baseline_prob"])
        found += [
            BadCell(
                role="baseline_prob",
                where=f"coalesce({value} = 0, false)",
                expected="a logged action can't have had probability 0",
                remedy="Log the probability with which the baseline took the action.",
            ),
            BadCell(
                role="baseline_prob",
                where=f"coalesce(NOT ({value} >= 0 AND {value} <= 1), true)",
                expected="baseline_prob must be a probability in (0, 1]",
                remedy="Correct the cell or drop its episode.",
            ),
        ]
    return found


def label_kind(raw: Raw, roles: Sequence[str], families: Mapping[str, Mapping[str, int]]) -> tuple[Kind, str]:
    """What the labels in the columns of ``roles`` are, and a note ("" if there is nothing to say).

    Args:
        raw: The raw columns.
        roles: Those that share one vocabulary.
        families: Role -> family -> number of cells.
    """
    seen = {name: sum(families[role][name] for role in roles) for name in FAMILIES}
    text, numbers = seen["text"], seen["integer"] + seen["fraction"] + seen["huge"]
    what = roles[0]
    if seen["nested"]:
        _complain_of_label(raw, roles, "nested", f"{what} labels must be single values", "Write one text for each.")
    if raw.files[0].format == "CSV":
        if text and seen["integer"] and what != "episode":
            whole, name = (_example(raw, roles, family) for family in ("integer", "text"))
            return "text", f"{what} labels mix numbers and text, e.g. {whole} and {name}: all are read as text"
        if text:
            return "text", ""
    elif sum(1 for count in (text, numbers, seen["boolean"]) if count) > 1:
        _complain_of_mix(raw, roles, families)
    if seen["fraction"]:
        _complain_of_label(
            raw,
            roles,
            "fraction",
            f"{what} labels must be integers or text",
            "Discretise the column into bins and write the bin's number or name.",
        )
    if seen["huge"]:
        _complain_of_label(
            raw, roles, "huge", f"integer {what} labels must fit in 64 bits", "Write them as text."
        )
    return ("integer" if numbers or not (text or seen["boolean"]) else "text"), ""


def check_one_type(files: Sequence[File], names: Mapping[str, str], roles: Sequence[str]) -> None:
    """Raise where a label column holds numbers in one file and text in another."""
    words = {"int": "numbers", "huge": "numbers", "float": "numbers", "bool": "booleans", "text": "text"}
    for role in roles:
        first: tuple[str, str] | None = None
        for file in files:
            word = words.get(cells.shape(file.columns[names[role]][1]))
            if word and first and word != first[0]:
                raise DataError(
                    f"mixed types: column {names[role]!r} holds {first[0]} in {first[1]} but {word} in {file.name}."
                    " Write it with one type."
                )
            first = first or ((word, file.name) if word else None)


def complain_of_episode(raw: Raw, episode: object, *, labels: Mapping[str, str], key: str) -> NoReturn:
    """Raise for the first row of ``episode`` that does not follow from the one before.

    Args:
        raw: The raw columns.
        episode: Label of an episode that is known to be broken.
        labels: Role -> SQL that reads it from the raw cells ("episode", "step", ...).
        key: What orders the rows: "step", or "row" for the order in the files.
    """

    def known(role: str, otherwise: str) -> str:
        return f"({labels[role]})" if role in labels else otherwise

    chosen = f"SELECT *, row_number() OVER () AS row FROM ({raw.relation(raw.files)})"
    rows = (
        f"SELECT {known('step', 'row')} AS step, ({labels['state']}) AS state,"
        f" {known('next_state', 'NULL')} AS next_state, {known('terminated', 'false')} AS terminated,"
        f" {known('truncated', 'false')} AS truncated FROM ({chosen})"
        f" WHERE ({labels['episode']}) = {literal(episode)}"
    )
    with readable(raw.title, raw.files[0].format):
        found = raw.connection.execute(
            f"SELECT * FROM (SELECT *, row_number() OVER w AS nth, lead(step) OVER w AS after,"
            f" lead(state) OVER w AS after_state FROM ({rows}) WINDOW w AS (ORDER BY step))"
            " WHERE after IS NOT NULL AND (after = step OR terminated OR truncated"
            + (" OR after <> step + 1" if key == "step" else "")
            + " OR next_state <> after_state) ORDER BY step LIMIT 1"
        ).fetchall()
    step, _, next_state, terminated, truncated, nth, after, after_state = found[0]
    column = {role: repr(name) for role, name in raw.names.items()}

    def place(role: str, at: int, which: int) -> Place:
        where = f"({labels['episode']}) = {literal(episode)}"
        return (
            raw.find(f"{where} AND ({labels['step']}) = {at}", role)
            if key == "step"
            else raw.find(where, role, which)
        )

    if after == step:
        where = f"({labels['episode']}) = {literal(episode)} AND ({labels['step']}) = {step}"
        first, second = raw.find(where, "step", 1), raw.find(where, "step", 2)
        raise DataError(
            f"steps must be unique within an episode; step {step} of episode {episode!r} is in {first} and again in"
            f" column {column['step']} of {second}. Remove one of the rows, or give different episodes different"
            f" labels in column {column['episode']}."
        )
    if terminated or truncated:
        role = "terminated" if terminated else "truncated"
        raise DataError(
            f"a {role} row must be the last of its episode; column {column[role]} of {place(role, step, nth)} ends"
            f" episode {episode!r}, but {place(role, after, nth + 1)} goes on with it."
            " Correct the flag, or give the later rows another episode label."
        )
    if key == "step" and after != step + 1:
        raise DataError(
            f"steps must be consecutive within an episode; episode {episode!r} goes from {step} to {after} in column"
            f" {column['step']} of {place('step', after, nth + 1)}. Add the missing rows or number the steps anew"
            f" (--step {ROW_ORDER} takes the rows as they come)."
        )
    raise DataError(
        f"next_state must be the state of the next row; got {next_state!r} in column {column['next_state']} of"
        f" {place('next_state', step, nth)}, but episode {episode!r} goes on in state {after_state!r} in"
        f" {place('state', after, nth + 1)}. Correct one of them."
    )


def _complain_of_mix(raw: Raw, roles: Sequence[str], families: Mapping[str, Mapping[str, int]]) -> NoReturn:
    """Numbers, text and booleans in one vocabulary of a format that knows types."""
    words = {"integer": "a number", "fraction": "a number", "huge": "a number"}
    words |= {"text": "text", "boolean": "a boolean"}
    first = next(name for name in FAMILIES if families[roles[0]][name])
    for role in roles:
        others = [n for n in FAMILIES if families[role][n] and words.get(n) != words[first]]
        if others:
            chosen = ", ".join(literal(name) for name in others)
            place = raw.find(f"({cells.family(role, raw.shapes[role])}) IN ({chosen})", role)
            other = next(words[name] for name in others)
            raise DataError(
                f"mixed types: {roles[0]} labels must be all numbers or all text; got {place.content}, {other}, in"
                f" column {raw.names[role]!r} of {place} and {words[first]} elsewhere"
                f" (column {raw.names[roles[0]]!r}). Write them with one type."
            )
    raise AssertionError("no mix to complain of")


def _complain_of_label(raw: Raw, roles: Sequence[str], family: str, expected: str, remedy: str) -> NoReturn:
    role, place = _first(raw, roles, family)
    raise DataError(f"{expected}; got {place.content} in column {raw.names[role]!r} of {place}. {remedy}")


def _example(raw: Raw, roles: Sequence[str], family: str) -> str:
    return _first(raw, roles, family)[1].content


def _first(raw: Raw, roles: Sequence[str], family: str) -> tuple[str, Place]:
    """The first cell of the family, looking through the columns in turn."""
    for role in roles:
        where = f"({cells.family(role, raw.shapes[role])}) = {literal(family)}"
        if raw.connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM ({raw.relation(raw.files)}) WHERE {where} LIMIT 1)"
        ).fetchall() != [(0,)]:
            return role, raw.find(where, role)
    raise AssertionError(f"no {family} label in {roles}")


def labels_of(raw: Raw, kinds: Mapping[str, Kind]) -> dict[str, str]:
    """Role -> SQL that reads the raw cell as the canonical column; not for rewards."""
    read = {role: cells.label(role, raw.shapes[role], kinds[role]) for role in ("episode", "state", "action")}
    if "step" in raw.names:
        read["step"] = cells.integer("step", raw.shapes["step"])
    for role in ("terminated", "truncated"):
        if role in raw.names:
            read[role] = cells.flag(role, raw.shapes[role])
    if "next_state" in raw.names:
        read["next_state"] = masked_next(raw, cells.label("next_state", raw.shapes["next_state"], kinds["state"]))
    if "baseline_prob" in raw.names:
        read["baseline_prob"] = cells.number("baseline_prob", raw.shapes["baseline_prob"])
    return read


def masked_next(raw: Raw, expression: str) -> str:
    """``expression`` about next_state, NULL on rows known to be terminated: what stands there is no state."""
    if "terminated" not in raw.names:
        return expression
    return f"CASE WHEN NOT {cells.flag('terminated', raw.shapes['terminated'])} THEN {expression} END"


def column_list(file: File) -> str:
    """The file's columns, for a message."""
    return ", ".join(file.columns) or "none"


