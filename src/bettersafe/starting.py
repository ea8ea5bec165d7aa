"""A first task file from the columns of a log: guesses, each with its reason, and what is left to decide.

Names come first: a column is taken for a role when its name, or a word of it, is one that people give to that role. Its
cells have a veto: a step must be a whole number that stands once in an episode, an end must be true or false, a
probability must be one. Where names say nothing, a column that alone could play a missing role is taken for it. Nothing is
guessed between equals without saying so, and what can't be guessed stays a commented line.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bettersafe.errors import DataError, RunError
from bettersafe.logs import cells
from bettersafe.logs.checks import ROW_ORDER
from bettersafe.logs.files import readable
from bettersafe.logs.tables import open_table
from bettersafe.saving import whole_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bettersafe.logs.files import PathsLike
    from bettersafe.logs.tables import Table

SAMPLE = 10_000
"""Rows that are looked at."""

MANY = 10
"""With more columns of numbers than this, only those whose names say so are objectives: the others are likely features."""

REQUIRED = ("episode", "step", "state", "action")
NAMES: dict[str, tuple[str, ...]] = {
    "next_state": (
        "next_state", "nextstate", "state_next", "next_obs", "next_observation", "new_state", "to_state", "successor",
        "s_next", "next_s", "x_next", "next_x", "s2",
    ),
    "terminated": (
        "terminated", "terminal", "is_terminal", "done", "ended", "is_end", "end", "finished", "final", "is_final",
        "is_last", "last",
    ),
    "truncated": ("truncated", "is_truncated", "timeout", "timed_out", "cut_off", "censored"),
    "baseline_prob": (
        "baseline_prob", "baseline_probability", "behavior_prob", "behaviour_prob", "behavior_probability",
        "behaviour_probability", "logging_prob", "propensity", "propensity_score", "action_prob", "action_probability",
        "prob", "probability", "pi_b", "pib",
    ),
    "episode": (
        "episode", "episode_id", "episodeid", "ep", "trajectory", "trajectory_id", "traj", "traj_id", "stay", "stay_id",
        "icustayid", "icustay_id", "hadm_id", "admission", "admission_id", "encounter", "encounter_id", "patient",
        "patient_id", "subject", "subject_id", "session", "session_id", "case", "case_id", "trip", "trip_id", "job",
        "job_id", "order_id", "user", "user_id", "customer", "customer_id", "run", "run_id", "visit_id", "id",
    ),
    "step": (
        "step", "timestep", "time_step", "step_id", "t", "block", "bloc", "turn", "round", "stage", "period", "tick",
        "seq", "sequence", "visit", "day", "hour", "time", "index",
    ),
    "state": (
        "state", "state_id", "obs", "observation", "cluster", "condition", "status", "context", "situation", "location",
        "position", "cell", "from_state", "s", "x",
    ),
    "action": (
        "action", "action_id", "act", "decision", "treatment", "intervention", "choice", "arm", "dose", "move", "a",
    ),
}  # fmt: skip
NAMES["next_state"] += tuple(f"next_{name}" for name in NAMES["state"])
"""What people call the column of each role, the plainest first; looked for in this order, so that next_state is no state."""

ALONE = frozenset({"end", "last", "final", "time", "run", "cell", "move", "status"})
"""Names that mean something else as a part of another: end_date, run_time."""

GAINS = frozenset((
    "reward", "rewards", "r", "return", "gain", "gains", "benefit", "utility", "score", "profit", "revenue",
    "sales", "margin", "survival", "survived", "recovery", "recovered", "outcome", "success", "satisfaction",
    "rating", "quality", "health", "click", "clicks", "conversion", "value",
))  # fmt: skip
COSTS = frozenset((
    "cost", "costs", "price", "prices", "fee", "fees", "fine", "expense", "expenses", "spending", "pain", "harm",
    "harms", "damage", "injury", "injuries", "toxicity", "adverse", "time", "duration", "delay", "delays", "wait",
    "waiting", "latency", "lateness", "late", "overdue", "seconds", "minutes", "hours", "days", "penalty",
    "penalties", "loss", "losses", "risk", "error", "errors", "failure", "failures", "death", "deaths", "died",
    "dead", "mortality", "readmission", "complaint", "complaints", "churn", "violation", "violations", "crash",
    "crashes", "collision", "collisions", "waste", "emission", "emissions", "distress",
))  # fmt: skip
"""Words in a name that say: of this, less is better."""


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """What the sample tells of a column: how many cells are filled, whole numbers, finite numbers, true or false, …"""

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

    @property
    def is_label(self) -> bool:
        """Every row has one, and it is text or a whole number."""
        return self.filled == self.rows and (self.integers == self.rows or self.numbers < self.rows)

    @property
    def is_number(self) -> bool:
        """Every filled cell is a finite number, and there is one."""
        return 0 < self.filled == self.numbers

    @property
    def is_text(self) -> bool:
        """Labels that are no numbers, and that come again."""
        return self.is_label and self.numbers < self.rows and self.distinct <= max(1, self.rows // 2)


@dataclass(frozen=True, kw_only=True)
class RoleGuess:
    """Which column plays a role, and why that is thought; ``others`` could as well."""

    role: str
    column: str
    reason: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ObjectiveGuess:
    """A column of numbers that may be an objective.

    Attributes:
        column: Its name.
        used: Whether the task file has it as an objective, or as a commented line.
        lower_is_better: Suggested.
        reason: For the direction, or for leaving it out.
    """

    column: str
    used: bool
    lower_is_better: bool = False
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a task file can be begun with.

    Attributes:
        rows: Rows that were looked at.
        whole: They are all the rows there are.
        roles: The guesses, at most one per role.
        objectives: Columns of numbers that are left.
        open: Required role -> why none was guessed.
        unused: Columns without any use, and why.
    """

    rows: int
    whole: bool
    roles: tuple[RoleGuess, ...]
    objectives: tuple[ObjectiveGuess, ...]
    open: Mapping[str, str]
    unused: Mapping[str, str]

    @property
    def complete(self) -> bool:
        """Nothing is missing that `read_task` and `improve` need."""
        return not self.open and any(objective.used for objective in self.objectives)


def guess_task(paths: PathsLike) -> Start:
    """Look at the first `SAMPLE` rows of a log (of the first file, if there are several) and guess what its columns are."""
    with open_table(paths) as table:
        whole = _take_sample(table)
        columns = {column.name: column for column in _look(table)}
        if not next(iter(columns.values())).rows:
            raise DataError(f"{table.raw.title} has no rows. Name a file with logged decisions.")
        guesses, problems = _by_name(table, columns, whole)
        _by_content(table, columns, guesses, whole)
    free = [column for name, column in columns.items() if name not in {guess.column for guess in guesses.values()}]
    objectives = _objectives(free)
    open_roles = {role: problems.get(role, _nothing(role, free)) for role in REQUIRED if role not in guesses}
    named = {objective.column for objective in objectives}
    return Start(
        rows=free[0].rows if free else next(iter(columns.values())).rows,
        whole=whole,
        roles=tuple(guesses[role] for role in _ORDER if role in guesses),
        objectives=objectives,
        open=open_roles,
        unused={column.name: _useless(column) for column in free if column.name not in named},
    )


def write_start(paths: str, output: str | os.PathLike[str], *, force: bool = False) -> Start:
    """Write a task file for a log; returns what was guessed.

    Args:
        paths: The log: a file or a glob. The task file names it relative to itself.
        output: The task file.
        force: Replace the file that is there.
    """
    target = Path(output)
    if target.exists() and not force:
        raise RunError(f"{target} exists; choose another name with -o, or replace it with --force.")
    start = guess_task(paths)
    text = task_text(start, os.path.relpath(paths, target.parent))
    with whole_file(target) as partial:
        partial.write_text(text, encoding="utf-8")
    return start


def start_json(start: Start, data: str, output: str | os.PathLike[str]) -> dict[str, Any]:
    """The guesses for programs."""
    return {
        "task": str(output),
        "data": data,
        "rows_read": start.rows,
        "complete": start.complete,
        "columns": {guess.role: {"column": guess.column, "reason": guess.reason} for guess in start.roles},
        "undecided": dict(start.open),
        "objectives": [
            {"column": o.column, "used": o.used, "lower_is_better": o.lower_is_better, "reason": o.reason}
            for o in start.objectives
        ],
        "unused": dict(start.unused),
    }


# The sample


def _take_sample(table: Table) -> bool:
    """Put the first rows of the first file into a table "sample"; True when that is all there is."""
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
        ]
    [(rows, *found)] = table.raw.connection.execute(f"SELECT {', '.join(asked)} FROM sample").fetchall()
    keys = ("filled", "integers", "numbers", "flags", "probabilities", "distinct", "low", "high")
    return [
        Sampled(name=name, rows=rows, **dict(zip(keys, found[8 * i : 8 * i + 8], strict=True)))
        for i, name in enumerate(table.names)
    ]


def _double_steps(table: Table, episode: str, step: str) -> int:
    """How many rows of the sample have a step that stands in their episode already."""
    e, s = (cells.shown(table.role(name), table.raw.shapes[table.role(name)]) for name in (episode, step))
    [(double,)] = table.raw.connection.execute(f"SELECT count(*) - count(DISTINCT ({e}, {s})) FROM sample").fetchall()
    return int(double)


def _gaps(table: Table, episode: str, step: str) -> int:
    """How many episodes of the sample have steps that are not consecutive."""
    e = cells.shown(table.role(episode), table.raw.shapes[table.role(episode)])
    s = cells.integer(table.role(step), table.raw.shapes[table.role(step)])
    [(gaps,)] = table.raw.connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM sample GROUP BY {e} HAVING max({s}) - min({s}) + 1 <> count(*))"
    ).fetchall()
    return int(gaps)


# Guessing

_ORDER = ("episode", "step", "state", "action", "next_state", "terminated", "truncated", "baseline_prob")


def _words(name: str) -> str:
    """A name as lower-case words joined by underscores: "NextState", "next-state" and "next state" are next_state."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"\W+|_+", "_", parted).strip("_").lower()


def _fit(role: str, column: Sampled) -> str:
    """Why the cells of a column can't play a role; empty where they can."""
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
        ""
        if column.is_label
        else "it has numbers with fractions, and labels are needed: make states with `bettersafe discretize`"
    )


def _by_name(table: Table, columns: Mapping[str, Sampled], whole: bool) -> tuple[dict[str, RoleGuess], dict[str, str]]:
    """Guesses by name that the cells don't contradict; and for the others, what they contradict."""
    guesses: dict[str, RoleGuess] = {}
    problems: dict[str, str] = {}
    taken: set[str] = set()
    for role, names in NAMES.items():
        exact = sorted(
            (name for name in columns if name not in taken and _words(name) in names),
            key=lambda name: names.index(_words(name)),
        )
        parts = [name for name in names if len(name) > 2 and name not in ALONE]
        within = [
            name
            for name in columns
            if name not in taken
            and name not in exact
            and any(f"_{word}_" in f"_{_words(name)}_" for word in parts)
            and not (role in ("episode", "step", "state", "action") and _says(name, COSTS | GAINS))
        ]
        fitting = []
        for name in [*exact, *within]:
            problem = _fit(role, columns[name])
            if not problem and role == "step" and "episode" in guesses:
                problem = _order_problem(table, guesses["episode"].column, name, whole)
            if problem:
                problems.setdefault(role, f"column {_quoted(name)} is called like one, but {problem}")
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
        return f"in an episode (column {_quoted(episode)}) a number stands more than once"
    if whole and _gaps(table, episode, step):
        return "it jumps: steps must be consecutive within an episode"
    return ""


def _by_content(table: Table, columns: Mapping[str, Sampled], guesses: dict[str, RoleGuess], whole: bool) -> None:
    """Add roles that one column alone could play."""

    def alone(role: str, could: Sequence[str], reason: str) -> None:
        if role not in guesses and len(could) == 1:
            guesses[role] = RoleGuess(role=role, column=could[0], reason=reason)

    def free() -> list[Sampled]:
        taken = {guess.column for guess in guesses.values()}
        return [column for name, column in columns.items() if name not in taken]

    if "step" in guesses:
        step = guesses["step"].column
        ids = [
            c.name for c in free() if c.is_label and 1 < c.distinct < c.rows and not _double_steps(table, c.name, step)
        ]
        alone("episode", ids, "the only column in which every step stands once")
    if "episode" in guesses:
        episode = guesses["episode"].column
        numbers = [
            c.name
            for c in free()
            if c.integers == c.rows and c.distinct < c.rows and not _order_problem(table, episode, c.name, whole)
        ]
        alone("step", numbers, "the only whole number that stands once in every episode")
    texts = [c.name for c in free() if c.is_text and not _says(c.name, COSTS | GAINS)]
    if ("state" in guesses) != ("action" in guesses):  # one is known, so what is left is the other
        alone("state" if "action" in guesses else "action", texts, "the only column of labels that is left")


def _objectives(free: Sequence[Sampled]) -> tuple[ObjectiveGuess, ...]:
    numeric = [column for column in free if column.is_number]
    found = []
    for column in numeric:
        cost, left_out = _says(column.name, COSTS), _no_objective(column, len(numeric))
        negative = column.low is not None and column.low < 0.0
        reason = left_out or (f'its name says "{cost}"' if cost else "")
        if cost and negative and not left_out:
            reason += ", but it has negative values: is it a reward already?"
        lower = bool(cost) and not negative and not left_out
        found.append(ObjectiveGuess(column=column.name, used=not left_out, lower_is_better=lower, reason=reason))
    return tuple(found)


def _no_objective(column: Sampled, n_numeric: int) -> str:
    """Why a column of numbers is not proposed as an objective; empty where it is."""
    if column.numbers < column.rows:
        return f"{column.rows - column.numbers} of {column.rows} cells looked at are empty; a reward is needed in every row"
    if column.low == column.high and column.rows > 1:
        return f"always {column.low:g} in the rows looked at"
    if _says(column.name, (COSTS - {"time"}) | GAINS):
        return ""
    role = next((role for role, names in NAMES.items() if _words(column.name) in names), None)
    if role is not None:
        return f"it is called like the {role}, and is not it"
    if column.integers == column.rows == column.distinct and column.rows > 2:
        return "every row has another whole number: a row's own number?"
    if n_numeric > MANY and not _says(column.name, COSTS):
        return f"one of {n_numeric} columns of numbers: an objective, or a feature of the state?"
    return ""


def _says(name: str, vocabulary: frozenset[str]) -> str:
    """The first word of a name that is in the vocabulary, or an empty string."""
    return next((word for word in _words(name).split("_") if word.rstrip("0123456789") in vocabulary), "")


def _nothing(role: str, free: Sequence[Sampled]) -> str:
    could = [column.name for column in free if not _fit(role, column)]
    named = f"; these could be it: {', '.join(_quoted(name) for name in could)}" if could else ""
    return f"no column is called like one{named}"


def _useless(column: Sampled) -> str:
    if not column.filled:
        return "empty"
    if column.numbers and column.numbers < column.filled:
        return f"{column.numbers} of {column.filled} cells are numbers, the others are text"
    return "text"


# Writing

_DECIDE = {
    "episode": "name the column that tells episodes apart",
    "step": f'name a column of whole numbers, or, if the rows stand in the order in which they happened: step = "{ROW_ORDER}"',
    "state": "name the column with the state, or make states of measurements with `bettersafe discretize`",
    "action": "name the column with the action that was taken",
}
_WITHOUT = {
    "next_state": "no column was found: the state of the next row is taken",
    "terminated": "no column was found: the last row of every episode is taken as its end",
    "truncated": "no column was found; needed where the log stopped before the process ended",
    "baseline_prob": "no column was found: the baseline is estimated from how often each action was taken",
}


def _quoted(name: str) -> str:
    """A name as a TOML string on one line."""
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f").replace("\x85", "\\u0085")


def task_text(start: Start, data: str) -> str:
    """The task file: TOML with a comment on every guess.

    Args:
        start: The guesses.
        data: The log, relative to the file.
    """
    looked = f"all {start.rows:,} rows" if start.whole else f"the first {start.rows:,} rows"
    lines = [
        f"# What bettersafe is to do, begun from {looked} of the log. Everything here is a guess until you have read it.",
        "# All settings are explained in docs/task-file.md.",
        "",
        f"data = {_quoted(data)}",
        'method = "auto"               # the best policy that loses on no objective with probability 1 - delta, given the log',
        "delta = 0.1                   # the risk that you accept",
        "",
        "[columns]                     # which column is which",
    ]
    guesses = {guess.role: guess for guess in start.roles}
    for role in _ORDER:
        if role in guesses:
            guess = guesses[role]
            others = f"; or {', '.join(_quoted(name) for name in guess.others)}?" if guess.others else ""
            lines.append(f"{role} = {_quoted(guess.column)}".ljust(29) + f" # by {guess.reason}{others}")
        elif role in REQUIRED:
            lines += [
                f"# DECIDE {role}: {start.open[role]}.",
                f"#   {_DECIDE[role][0].upper()}{_DECIDE[role][1:]}.",
                f'# {role} = "..."',
            ]
        else:
            lines.append(f'# {role} = "..."'.ljust(29) + f" # {_WITHOUT[role]}")
    if "terminated" in guesses and "truncated" not in guesses and _words(guesses["terminated"].column) == "done":
        lines.append('# Does "done" also mark where only the logging stopped? Then the two need a column each.')
    lines += ["", "# One table per objective. No objective may lose; the weights say what is to gain."]
    used = [objective for objective in start.objectives if objective.used]
    if not used:
        lines += [
            "# DECIDE objectives: no column of numbers is left that could be one. At least one is needed.",
            '# [objectives."..."]',
        ]
    for objective in used:
        lines += [
            "",
            f"[objectives.{_quoted(objective.column)}]",
            "weight = 1.0                  # 0: not pursued, only protected",
        ]
        if objective.lower_is_better:
            lines.append(
                f"lower_is_better = true        # suggested, since {objective.reason}; remove it if more is better"
            )
        elif objective.reason:
            lines.append(f"# lower_is_better = true      # {objective.reason}")
        lines.append("# discount = 0.99             # what the next step counts against this one")
    left = [objective for objective in start.objectives if not objective.used]
    if left:
        lines += ["", "# Left out; remove the # to protect or pursue it:"]
        lines += [
            f"# [objectives.{_quoted(objective.column)}]".ljust(29) + f" # {objective.reason}" for objective in left
        ]
    if start.unused:
        lines += ["", "# Without a use: " + ", ".join(f"{_quoted(name)} ({why})" for name, why in start.unused.items())]
    return "\n".join(lines) + "\n"
