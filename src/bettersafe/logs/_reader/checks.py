"""Checks of the rows of a log; an error message names the file, line and column, and what to do.

A valid log costs one pass that counts bad cells, and one fingerprint per episode. Only if a check fails,
targeted queries look for the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from bettersafe.errors import DataError
from bettersafe.logs._reader.cells import FAMILIES, Family, Kind, shape
from bettersafe.logs._reader.files import File, literal, readable
from bettersafe.logs.roles import FLAGS, VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bettersafe.logs._reader.columns import Place, Raw


LARGEST = 1e100  # squares and sums must stay finite; a larger reward is a mistake
STEP_LIMIT = 4 * 10**18  # differences of steps must fit in 64 bits
ROW_ORDER = "row-order"


@dataclass(frozen=True, kw_only=True)
class BadCell:
    """Check of a column: ``where`` selects the invalid cells; ``expected`` and ``remedy`` are parts of the message."""

    role: str
    where: str
    expected: str
    remedy: str

    def complain(self, raw: Raw) -> NoReturn:
        """Raise DataError for the first invalid cell."""
        place = raw.find(self.where, self.role)
        raise DataError(
            f"{self.expected}; got {place.content} in column {raw.names[self.role]!r} of {place}. {self.remedy}"
        )


def bad_cells(raw: Raw, n_objectives: int) -> list[BadCell]:
    """Checks of single rows, in the order in which they are reported."""
    found = [
        BadCell(
            role=role,
            where=raw.missing(role),
            expected=f"every row needs {'an' if role[0] in 'ae' else 'a'} {role}",
            remedy=f"Fill it in or drop {'the row' if role == 'episode' else 'its episode'}.",
        )
        for role in dict.fromkeys(VOCABULARY.values())
    ]
    if "step" in raw.names:
        step = raw.read("step")
        found.append(
            BadCell(
                role="step",
                where=f"coalesce({step} NOT BETWEEN {-STEP_LIMIT} AND {STEP_LIMIT}, true)",
                expected="steps must be integers",
                remedy="Number the rows of each episode 0, 1, 2, ... (times: by their order); or, if the rows are in"
                f" chronological order, set `step` to {ROW_ORDER}.",
            )
        )
    flags = [role for role in FLAGS if role in raw.names]
    for role in flags:
        found.append(
            BadCell(
                role=role,
                where=f"({raw.read(role)}) IS NULL",
                expected=f"{role} must be true or false",
                remedy="Write true or false, yes or no, 1 or 0 in every row.",
            )
        )
    if len(flags) == 2:
        found.append(
            BadCell(
                role="truncated",
                where=" AND ".join(f"({raw.read(role)})" for role in flags),
                expected=f"a row can't be both terminated (column {raw.names['terminated']!r}) and truncated",
                remedy="Set truncated to false where the process itself ended.",
            )
        )
    for k in range(n_objectives):
        value = raw.read(f"r{k}")
        found.append(
            BadCell(
                role=f"r{k}",
                # isfinite is needed: for abs alone DuckDB uses a Parquet file's statistics, which leave out NaN
                where=f"coalesce(NOT isfinite({value}) OR abs({value}) > {LARGEST}, true)",
                expected="rewards must be finite numbers",
                remedy="Correct the cell or drop its episode.",
            )
        )
    if "baseline_prob" in raw.names:
        value = raw.read("baseline_prob")
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


def label_kind(raw: Raw, roles: Sequence[str], families: Mapping[str, Mapping[Family, int]]) -> tuple[Kind, str]:
    """Kind of the labels in the columns of ``roles``, and a note for people (may be empty).

    Args:
        raw: Raw columns.
        roles: Roles that share one vocabulary.
        families: Role -> family -> number of cells.
    """
    seen = {name: sum(families[role][name] for role in roles) for name in FAMILIES}
    text, numbers = seen["text"], seen["integer"] + seen["fraction"] + seen["huge"]
    what = roles[0]
    if seen["nested"]:
        _complain_of_label(raw, roles, "nested", f"{what} labels must be single values", "Write one text for each.")
    if raw.files[0].format == "CSV":
        if text and seen["integer"] and what != "episode":
            (_, whole), (_, name) = (_first(raw, roles, family) for family in ("integer", "text"))
            return (
                "text",
                f"{what} labels mix numbers and text, {whole.content} in {whole} and {name.content} in {name}: all are read"
                " as text. If one of them is a mistake, correct it",
            )
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
        _complain_of_label(raw, roles, "huge", f"integer {what} labels must fit in 64 bits", "Write them as text.")
    return ("integer" if numbers or not (text or seen["boolean"]) else "text"), ""


def check_one_type(files: Sequence[File], names: Mapping[str, str], roles: Sequence[str]) -> None:
    """Raise DataError if a label column holds numbers in one file and text in another."""
    words = {"int": "numbers", "huge": "numbers", "float": "numbers", "bool": "booleans", "text": "text"}
    for role in roles:
        first: tuple[str, str] | None = None
        for file in files:
            word = words.get(shape(file.columns[names[role]][1]))
            if word and first and word != first[0]:
                raise DataError(
                    f"mixed types: column {names[role]!r} holds {first[0]} in {first[1]} but {word} in"
                    f" {file.name}. Write it with one type."
                )
            first = first or ((word, file.name) if word else None)


def complain_of_episode(raw: Raw, episode: object, kinds: Mapping[str, Kind]) -> NoReturn:
    """Raise DataError for the first row of ``episode`` that does not continue the row before."""
    by_step = "step" in raw.names
    belongs = f"({raw.read('episode', kinds['episode'])}) = {literal(episode)}"

    def read(role: str, otherwise: str) -> str:
        return f"({raw.read(role, kinds['state'])}) AS {role}" if role in raw.names else f"{otherwise} AS {role}"

    rows = (
        f"SELECT {read('step', 'row')}, {read('state', '')}, {read('next_state', 'NULL')},"
        f" {read('terminated', 'false')}, {read('truncated', 'false')}"
        f" FROM ({raw.relation(raw.files, numbered=True)}) WHERE {belongs}"
    )
    gap = " OR after <> step + 1" if by_step else ""
    with readable(raw.title, raw.files[0].format):
        found = raw.connection.execute(
            "SELECT * FROM (SELECT *, row_number() OVER w AS nth, lead(step) OVER w AS after,"
            f" lead(state) OVER w AS after_state FROM ({rows}) WINDOW w AS (ORDER BY step))"
            f" WHERE after IS NOT NULL AND (after = step OR terminated OR truncated{gap}"
            " OR next_state <> after_state) ORDER BY step LIMIT 1"
        ).fetchall()
    if not found:
        raise AssertionError(f"episode {episode!r} of {raw.title} is broken, but no row of it is")
    step, _, next_state, terminated, truncated, nth, after, after_state = found[0]
    column = {role: repr(name) for role, name in raw.names.items()}

    def at(step: int) -> str:
        return f"{belongs} AND ({raw.read('step')}) = {step}"

    def place(role: str, at_step: int, which: int) -> Place:
        return raw.find(at(at_step), role) if by_step else raw.find(belongs, role, which)

    if after == step:
        raise DataError(
            f"steps must be unique within an episode; step {step} of episode {episode!r} is in"
            f" {raw.find(at(step), 'step')} and again in column {column['step']} of"
            f" {raw.find(at(step), 'step', 2)}. Remove one of the rows, or give different episodes different"
            f" labels in column {column['episode']}."
        )
    if terminated or truncated:
        role = "terminated" if terminated else "truncated"
        raise DataError(
            f"a {role} row must be the last of its episode; column {column[role]} of"
            f" {place(role, step, nth)} ends episode {episode!r}, but {place(role, after, nth + 1)} goes on"
            " with it."
            " Correct the flag, or give the later rows another episode label."
        )
    if by_step and after != step + 1:
        raise DataError(
            f"steps must be consecutive within an episode; episode {episode!r} goes from {step} to {after} in"
            f" column {column['step']} of {place('step', after, nth + 1)}. Add the missing rows, renumber the"
            f" steps, or, if the rows are in chronological order, set `step` to {ROW_ORDER}."
        )
    raise DataError(
        f"next_state must be the state of the next row; got {next_state!r} in column"
        f" {column['next_state']} of {place('next_state', step, nth)}, but episode {episode!r} goes on in"
        f" state {after_state!r} in {place('state', after, nth + 1)}. Correct one of them."
    )


def _complain_of_mix(raw: Raw, roles: Sequence[str], families: Mapping[str, Mapping[Family, int]]) -> NoReturn:
    """Raise DataError for numbers, text and booleans in one vocabulary of a typed format."""
    words: dict[Family, str] = {"integer": "a number", "fraction": "a number", "huge": "a number"}
    words |= {"text": "text", "boolean": "a boolean"}
    first = next(name for name in FAMILIES if families[roles[0]][name])
    for role in roles:
        others = [n for n in FAMILIES if families[role][n] and words.get(n) != words[first]]
        if others:
            chosen = ", ".join(literal(name) for name in others)
            place = raw.find(f"({raw.family(role)}) IN ({chosen})", role)
            other = next(words[name] for name in others)
            raise DataError(
                f"mixed types: {roles[0]} labels must be all numbers or all text; got {place.content},"
                f" {other}, in column {raw.names[role]!r} of {place} and {words[first]} elsewhere"
                f" (column {raw.names[roles[0]]!r}). Write them with one type."
            )
    raise AssertionError("no mix to complain of")


def _complain_of_label(raw: Raw, roles: Sequence[str], family: str, expected: str, remedy: str) -> NoReturn:
    role, place = _first(raw, roles, family)
    raise DataError(f"{expected}; got {place.content} in column {raw.names[role]!r} of {place}. {remedy}")


def _first(raw: Raw, roles: Sequence[str], family: str) -> tuple[str, Place]:
    """First cell of the family, searching the columns in turn."""
    for role in roles:
        where = f"({raw.family(role)}) = {literal(family)}"
        if raw.connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM ({raw.relation(raw.files)}) WHERE {where} LIMIT 1)"
        ).fetchall() != [(0,)]:
            return role, raw.find(where, role)
    raise AssertionError(f"no {family} label in {roles}")
