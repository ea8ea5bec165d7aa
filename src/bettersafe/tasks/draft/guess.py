"""Guesses the roles of a log's columns, from their names and their cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bettersafe.errors import DataError
from bettersafe.logs._reader import cells
from bettersafe.logs._reader.files import readable
from bettersafe.logs._reader.tables import open_table
from bettersafe.logs.roles import REQUIRED, ROLES
from bettersafe.tasks.draft.words import ALONE, COSTS, GAINS, NAMES, quoted, says, words_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bettersafe.logs._reader.files import PathsLike
    from bettersafe.logs._reader.tables import Table


SAMPLE = 10_000
"""Rows in the sample."""

MANY = 10
"""If there are more columns of numbers than this, only those with a matching name are objectives; others may be features."""

NEARLY = 0.8
"""Share of numbers from which a column counts as one of numbers with bad cells."""

MOST_PAIRS = 400
"""Largest number of pairs of columns tried as episode and step."""


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """Statistics of a column in the sample: numbers of cells that are filled, whole numbers, finite numbers, booleans, …

    ``odd_row`` is the first row (from 1, without the header) with a bad cell in a column of numbers: text, or else empty.
    ``odd_text`` is the text of that cell.
    """

    name: str
    rows: int
    filled: int
    integers: int
    numbers: int
    flags: int
    probabilities: int
    distinct: int
    low: float | None
    high: float | None
    times: int
    odd_row: int = 0
    odd_text: str | None = None

    @property
    def is_nearly_number(self) -> bool:
        """Whether most filled cells, but not all, are numbers."""
        return NEARLY * self.filled <= self.numbers < self.filled

    @property
    def is_label(self) -> bool:
        """Whether every cell is filled, with text or whole numbers."""
        return self.filled == self.rows and (self.integers == self.rows or self.numbers < self.rows)

    @property
    def is_number(self) -> bool:
        """Whether every filled cell is a finite number, and at least one cell is filled."""
        return 0 < self.filled == self.numbers

    @property
    def is_time(self) -> bool:
        """Whether every filled cell is a date or time."""
        return 0 < self.filled == self.times

    @property
    def is_text(self) -> bool:
        """Whether the column has text labels that repeat."""
        return (
            self.is_label and not self.is_time and self.numbers < self.rows and self.distinct <= max(1, self.rows // 2)
        )


@dataclass(frozen=True, kw_only=True)
class RoleGuess:
    """Column guessed for a role, with the reason; ``others`` are equally good alternatives."""

    role: str
    column: str
    reason: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ObjectiveGuess:
    """Column of numbers that may be an objective.

    Attributes:
        column: Name of the column.
        used: True for an objective of the task file, False for a commented line.
        lower_is_better: Suggested direction.
        reason: Reason for the direction, or for not using the column.
    """

    column: str
    used: bool
    lower_is_better: bool = False
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Start:
    """Guesses for a task file.

    Attributes:
        rows: Rows in the sample.
        whole: Whether the sample is the whole log.
        roles: Guessed columns, at most one per role.
        objectives: Columns of numbers without a role.
        open: Reasons why a required role has no guess, by role.
        unused: Reasons why a column is not used, by column.
    """

    rows: int
    whole: bool
    roles: tuple[RoleGuess, ...]
    objectives: tuple[ObjectiveGuess, ...]
    open: Mapping[str, str]
    unused: Mapping[str, str]

    @property
    def complete(self) -> bool:
        """Whether the task file would have all columns and objectives that `improve` needs."""
        return not self.open and any(objective.used for objective in self.objectives)


def guess_task(paths: PathsLike) -> Start:
    """Guess the roles of a log's columns from the first `SAMPLE` rows of its first file."""
    with open_table(paths) as table:
        whole = _take_sample(table)
        columns = {column.name: column for column in _look(table)}
        if not next(iter(columns.values())).rows:
            raise DataError(f"{table.raw.title} has no rows. Give a file with logged decisions.")
        guesses, problems = _by_name(table, columns, whole)
        _by_content(table, columns, guesses, whole)
    free = [column for name, column in columns.items() if name not in {guess.column for guess in guesses.values()}]
    objectives = _objectives(free)
    open_roles = {role: problems.get(role, _nothing(role, free)) for role in REQUIRED if role not in guesses}
    named = {objective.column for objective in objectives}
    return Start(
        rows=free[0].rows if free else next(iter(columns.values())).rows,
        whole=whole,
        roles=tuple(guesses[role] for role in ROLES if role in guesses),
        objectives=objectives,
        open=open_roles,
        unused={column.name: _useless(column) for column in free if column.name not in named},
    )


def _take_sample(table: Table) -> bool:
    """Create the table "sample" from the first rows of the first file; True if that is the whole log."""
    raw = table.raw
    with readable(raw.title, raw.files[0].format):
        raw.connection.execute(
            f"CREATE TABLE sample AS SELECT * FROM ({raw.relation(raw.files[:1])}) LIMIT {SAMPLE + 1}"
        ).fetchall()
    [(rows,)] = raw.connection.execute("SELECT count(*) FROM sample").fetchall()
    if rows > SAMPLE:
        raw.connection.execute(f"DELETE FROM sample WHERE rowid >= {SAMPLE}").fetchall()
    return bool(rows <= SAMPLE and len(raw.files) == 1)


def _look(table: Table) -> list[Sampled]:
    asked = ["count(*)"]
    for role, form in table.raw.shapes.items():
        number, text = cells.number(role, form), cells.shown(role, form)
        family = cells.family(role, form)
        finite = f"CASE WHEN isfinite({number}) THEN {number} END"
        asked += [
            f"count({family})",
            f"count(*) FILTER (WHERE {family} = 'integer')",
            f"count({finite})",
            f"count({cells.flag(role, form)})",
            f"count(*) FILTER (WHERE {number} > 0 AND {number} <= 1)",
            f"count(DISTINCT {text})",
            f"min({finite})",
            f"max({finite})",
            f"count(*) FILTER (WHERE {number} IS NULL AND TRY_CAST({text} AS TIMESTAMP) IS NOT NULL)",
        ]
    [(rows, *found)] = table.raw.connection.execute(f"SELECT {', '.join(asked)} FROM sample").fetchall()
    keys = ("filled", "integers", "numbers", "flags", "probabilities", "distinct", "low", "high", "times")
    columns = [
        Sampled(name=name, rows=rows, **dict(zip(keys, found[9 * i : 9 * i + 9], strict=True)))
        for i, name in enumerate(table.names)
    ]
    return [_with_odd(table, column) if NEARLY * rows <= column.numbers < rows else column for column in columns]


def _with_odd(table: Table, column: Sampled) -> Sampled:
    """The column with its first cell that is not a number; text is preferred to an empty cell."""
    role = table.role(column.name)
    form = table.raw.shapes[role]
    number, text = cells.number(role, form), cells.shown(role, form)
    [(row, shown)] = table.raw.connection.execute(
        f"SELECT rowid + 1, {text} FROM sample WHERE NOT coalesce(isfinite({number}), false)"
        f" ORDER BY {cells.family(role, form)} IS NULL, rowid LIMIT 1"
    ).fetchall()
    return replace(column, odd_row=int(row), odd_text=None if shown is None else str(shown))


def _double_steps(table: Table, episode: str, step: str) -> int:
    """Number of rows in the sample with a repeated step in their episode."""
    e, s = (cells.shown(table.role(name), table.raw.shapes[table.role(name)]) for name in (episode, step))
    [(double,)] = table.raw.connection.execute(f"SELECT count(*) - count(DISTINCT ({e}, {s})) FROM sample").fetchall()
    return int(double)


def _gaps(table: Table, episode: str, step: str) -> int:
    """Number of episodes in the sample with steps that are not consecutive."""
    e = cells.shown(table.role(episode), table.raw.shapes[table.role(episode)])
    s = cells.integer(table.role(step), table.raw.shapes[table.role(step)])
    [(gaps,)] = table.raw.connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM sample GROUP BY {e} HAVING max({s}) - min({s}) + 1 <> count(*))"
    ).fetchall()
    return int(gaps)


def _strangers(table: Table, column: str, state: str) -> int:
    """Number of cells of a column that are not a state."""
    c, x = (cells.shown(table.role(name), table.raw.shapes[table.role(name)]) for name in (column, state))
    [(strange,)] = table.raw.connection.execute(
        f"SELECT count({c}) FROM sample WHERE {c} NOT IN (SELECT {x} FROM sample WHERE {x} IS NOT NULL)"
    ).fetchall()
    return int(strange)


def _fit(role: str, column: Sampled) -> str:
    """Reason why the cells of a column are not valid for a role; empty if they are."""
    rows = column.rows
    if role == "step":
        return "" if column.integers == rows else "its cells are not all whole numbers"
    if role in ("terminated", "truncated"):
        return "" if column.flags == rows else "its cells are not all true or false"
    if role == "baseline_prob":
        return "" if column.probabilities == rows else "its cells are not all probabilities in (0, 1]"
    if role == "next_state":
        return (
            ""
            if column.filled and (column.integers == column.filled or column.numbers < column.filled)
            else "it has numbers with fractions"
        )
    if column.filled < rows:
        return "some of its cells are empty"
    return (
        "" if column.is_label else "it has numbers with fractions, not labels: make states with `bettersafe discretize`"
    )


def _by_name(table: Table, columns: Mapping[str, Sampled], whole: bool) -> tuple[dict[str, RoleGuess], dict[str, str]]:
    """Guesses by name with valid cells; and for columns with invalid cells, the problem by role."""
    guesses: dict[str, RoleGuess] = {}
    problems: dict[str, str] = {}
    taken: set[str] = set()
    for role, names in NAMES.items():
        exact = sorted(
            (name for name in columns if name not in taken and words_of(name) in names),
            key=lambda name: names.index(words_of(name)),
        )
        parts = [name for name in names if len(name) > 2 and name not in ALONE]
        within = [
            name
            for name in columns
            if name not in taken
            and name not in exact
            and any(f"_{word}_" in f"_{words_of(name)}_" for word in parts)
            and not (role in ("episode", "step", "state", "action") and says(name, COSTS | GAINS))
        ]
        fitting = []
        for name in [*exact, *within]:
            problem = _fit(role, columns[name])
            if not problem and role == "step" and "episode" in guesses:
                problem = _order_problem(table, guesses["episode"].column, name, whole)
            if problem:
                problems.setdefault(role, f"column {quoted(name)} has a matching name, but {problem}")
            else:
                fitting.append(name)
        if fitting:
            plain = fitting[0] in exact
            reason = "its name" if plain else "a word in its name"
            others = tuple(name for name in fitting[1:] if (name in exact) == plain)
            guesses[role] = RoleGuess(role=role, column=fitting[0], reason=reason, others=others)
            taken.add(fitting[0])
    return guesses, problems


def _order_problem(table: Table, episode: str, step: str, whole: bool) -> str:
    if _double_steps(table, episode, step):
        return f"it repeats a number within an episode (column {quoted(episode)})"
    if whole and _gaps(table, episode, step):
        return "it has gaps: steps must be consecutive within an episode"
    return ""


def _by_content(table: Table, columns: Mapping[str, Sampled], guesses: dict[str, RoleGuess], whole: bool) -> None:
    """Add guesses for roles with exactly one valid column."""

    def alone(role: str, could: Sequence[str], reason: str) -> None:
        if role not in guesses and len(could) == 1:
            guesses[role] = RoleGuess(role=role, column=could[0], reason=reason)

    def free() -> list[Sampled]:
        taken = {guess.column for guess in guesses.values()}
        return [column for name, column in columns.items() if name not in taken]

    if "step" not in guesses and "episode" not in guesses:
        pairs = _counted(table, free())
        if len(pairs) == 1:
            episode, step = pairs[0]
            reason = f"{quoted(step)} counts its rows"
            guesses["episode"] = RoleGuess(role="episode", column=episode, reason=reason)
            reason = f"it counts the rows of each {quoted(episode)}"
            guesses["step"] = RoleGuess(role="step", column=step, reason=reason)
    if "step" in guesses:
        step = guesses["step"].column
        ids = [
            c.name for c in free() if c.is_label and 1 < c.distinct < c.rows and not _double_steps(table, c.name, step)
        ]
        alone("episode", ids, "the only column within which no step is repeated")
    if "episode" in guesses:
        episode = guesses["episode"].column
        numbers = [
            c.name
            for c in free()
            if c.integers == c.rows and c.distinct < c.rows and not _order_problem(table, episode, c.name, whole)
        ]
        alone("step", numbers, "the only whole number that is not repeated within an episode")
    texts = [c.name for c in free() if c.is_text and not says(c.name, COSTS | GAINS)]
    if ("state" in guesses) != ("action" in guesses):  # one is known, so a single remaining label column is the other
        alone("state" if "action" in guesses else "action", texts, "the only other column of labels")
    if "state" in guesses:
        state = guesses["state"].column
        states = [c.name for c in free() if c.filled and not c.numbers and not _strangers(table, c.name, state)]
        alone("next_state", states, "all its labels are states")


def _counted(table: Table, free: Sequence[Sampled]) -> list[tuple[str, str]]:
    """Pairs of columns in which the second numbers the rows of each label of the first, from 0 or 1, without gaps."""
    numbers = [c for c in free if c.integers == c.rows and 1 < c.distinct < c.rows and c.low in (0.0, 1.0)]
    labels = [c for c in free if c.is_label and 1 < c.distinct < c.rows]
    pairs = [(label, number) for number in numbers for label in labels if label.name != number.name]
    found = []
    for label, number in pairs[:MOST_PAIRS]:
        e = cells.shown(table.role(label.name), table.raw.shapes[table.role(label.name)])
        s = cells.integer(table.role(number.name), table.raw.shapes[table.role(number.name)])
        [(wrong,)] = table.raw.connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM sample GROUP BY {e} HAVING count(DISTINCT {s}) <> count(*)"
            f" OR min({s}) <> {number.low:.0f} OR max({s}) - min({s}) + 1 <> count(*))"
        ).fetchall()
        if not wrong:
            found.append((label.name, number.name))
    return found


def _objectives(free: Sequence[Sampled]) -> tuple[ObjectiveGuess, ...]:
    numeric = [column for column in free if column.is_number or column.is_nearly_number]
    found = []
    for column in numeric:
        cost, left_out = says(column.name, COSTS), _no_objective(column, len(numeric))
        negative = column.low is not None and column.low < 0.0
        reason = left_out or (f'its name says "{cost}"' if cost else "")
        if cost and negative and not left_out:
            reason += ", but it has negative values: is it a reward already?"
        lower = bool(cost) and not negative and not left_out
        found.append(ObjectiveGuess(column=column.name, used=not left_out, lower_is_better=lower, reason=reason))
    return tuple(found)


def _no_objective(column: Sampled, n_numeric: int) -> str:
    """Reason why a column of numbers is not an objective; empty if it is."""
    if column.is_nearly_number:
        few = column.filled - column.numbers
        what = f"{few} cells are not numbers" if few > 1 else "a cell is not a number"
        return f"{what}: {quoted(str(column.odd_text)[:40])} in row {column.odd_row} below the header; a number is needed in every row"
    if column.numbers < column.rows:
        where = f", the first in row {column.odd_row} below the header" if column.odd_row else ""
        return f"{column.rows - column.numbers} of {column.rows} sampled cells are empty{where}; a reward is needed in every row"
    if column.low == column.high and column.rows > 1:
        return f"always {column.low:g} in the sampled rows"
    if says(column.name, (COSTS - {"time"}) | GAINS):
        return ""
    role = next((role for role, names in NAMES.items() if words_of(column.name) in names), None)
    if role is not None:
        return f"its name suggests the {role}, but another column was chosen or its cells are not valid"
    if column.integers == column.rows == column.distinct and column.rows > 2:
        return "a different whole number in every row: is it a row number?"
    if n_numeric > MANY and not says(column.name, COSTS):
        return f"one of {n_numeric} columns of numbers: an objective, or a feature of the state?"
    return ""


def _nothing(role: str, free: Sequence[Sampled]) -> str:
    """Reason for an open role: no matching name, with the columns that could have the role, a few empty cells allowed."""
    if role == "step":
        could = [quoted(column.name) for column in free if not _fit(role, column)]
    else:
        could = [
            quoted(column.name)
            + (f" (empty cells: {column.rows - column.filled})" if column.filled < column.rows else "")
            for column in free
            if NEARLY * column.rows <= column.filled
            and not column.is_time
            and column.flags < column.filled
            and 1 < column.distinct <= max(1, column.rows // 2)
            and (column.integers == column.filled or column.numbers < (1.0 - NEARLY) * column.filled)
        ]
    named = f"; possible columns: {', '.join(could)}" if could else ""
    return f"no column has a matching name{named}"


def _useless(column: Sampled) -> str:
    if not column.filled:
        return "empty"
    if column.flags == column.filled:
        return "yes or no: does it mark where the process ended, or where only the logging stopped?"
    if column.numbers and column.numbers < column.filled:  # if nearly all are numbers, it is listed with the objectives
        return f"{column.numbers} of {column.filled} cells are numbers, the others are text"
    if column.is_time:
        return "times: to use them as steps, number the rows of each episode 0, 1, 2, … in a separate column"
    if column.distinct == 2:
        return "two words: if they mark where the process ended, write yes and no, or true and false"
    return "text"
