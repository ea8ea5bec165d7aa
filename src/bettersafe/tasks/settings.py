"""Settings of a task: one table. Task files, options, help, completion, the repeated command and docs/settings.md follow from it.

A row of `SETTINGS` is a field of `Task`; rows of `OBJECTIVE`, `COLUMNS`, `RARE` and `EVENT` are fields of `Objective`, `Columns`,
`Rare` and `DeclaredEvent`.
To add a setting, add a row here, a field there, and the code that uses it. Help texts name other settings in backticks; the
command line replaces them by options. This module does not import NumPy, because the command line reads it for every --help.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bettersafe.errors import WrongTypeError, as_kind, listed, shown
from bettersafe.evaluation.choices import COMPARISONS, COVERAGES, LEVELS
from bettersafe.evaluation.facts import BOUNDED, BOUNDS, ESTIMATORS, TESTABLE
from bettersafe.mdp.choices import ENGINES, ERROR_KINDS, UNSEEN_RULES
from bettersafe.methods.choices import PROPOSALS, SELECTIONS
from bettersafe.methods.facts import METHODS
from bettersafe.posterior.choices import FORMS, NEUTRAL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bettersafe.errors import Kind
    from bettersafe.posterior.events import DeclaredEvent

Group = Literal["What is wanted", "How it is tested", "Details", "Which column is which"]

BUDGET = 0.1
"""Default of ε."""

TEST_SHARE = 0.3
"""Default share of held-out episodes for H-OPT, as published, and for logs whose states were made by `discretize_log`."""

EVENT_EXAMPLE = '\'name="overdose", cost={survival=-100}, rate=0.001, actions=["high"], ends=true\''
"""A declared event on the command line."""

LOG = "The log: a file or quoted glob (Parquet, CSV, JSON lines, Arrow)"

BASELINES = {
    "estimate": "how often each action was taken",
    "logged": "the column of its probabilities",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """Setting of a task; rows are compared by identity.

    Attributes:
        name: Name of the field, and of the key in a task file unless ``key`` is given.
        kind: Kind of value.
        default: Default value of the field.
        help: Sentence without a full stop; the choices are appended.
        more: Further sentences, for the long help.
        metavar: Placeholder of the value in help.
        group: Heading in help; None for the general one.
        choices: Allowed values with their meanings; empty if any value of the kind is allowed.
        by_objective: Whether every objective has a value: NAME=VALUE on the command line, a key of the objective in a task file.
        others: Whether values other than ``choices`` are allowed.
        otherwise: Description of the default, if ``default`` does not show it.
        methods: Methods that use the setting; empty for all.
        brief: Help on the first screen, with {choices} and {default} as placeholders; empty to leave the setting out.
        path: Whether the value is a path, relative to the task file.
        option: Option on the command line, if not the name with hyphens.
        key: Key in a task file, if not the name.
        least: Smallest value that the command line accepts.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    more: str = ""
    metavar: str
    group: Group | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    by_objective: bool = False
    others: bool = False
    otherwise: str = ""
    methods: tuple[str, ...] = ()
    brief: str = ""
    path: bool = False
    option: str = ""
    key: str = ""
    least: int | None = None

    @property
    def flag(self) -> str:
        """Option on the command line, such as --hold-out."""
        return self.option or f"--{self.name.replace('_', '-')}"

    @property
    def parameter(self) -> str:
        """Option as a Python name, such as hold_out."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def repeats(self) -> bool:
        """Whether the option may be repeated."""
        return self.by_objective or self.kind in ("list of texts", "list of events", "table of whole numbers")

    @property
    def toml_key(self) -> str:
        """Key in a task file."""
        return self.key or self.name

    @property
    def default_text(self) -> str:
        """Default in words; empty if there is none."""
        if self.otherwise or self.default is None or self.default is False or self.default in ("", (), {}):
            return self.otherwise
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)

    @property
    def short_help(self) -> str:
        """Help on the first screen; empty if the setting is not shown there."""
        return self.brief.format(
            choices=listed(self.choices or [""], last="or"), default=f"(default: {self.default_text})"
        )

    @functools.cached_property
    def long_help(self) -> str:
        """Complete help: methods, choices with their meanings, further sentences and the default."""
        meanings = [
            f"{', '.join(names)} ({meaning})" if meaning else ", ".join(names)
            for meaning, names in itertools.groupby(self.choices, self.choices.__getitem__)
        ]
        text = f"{self.help}: {listed(meanings, last='or')}." if meanings else f"{self.help}."
        if 0 < len(self.methods) <= FEW:
            text = f"For {listed(self.methods)}: {text[0].lower()}{text[1:]}"
        default = f"(default: {self.default_text})" if self.default_text else ""
        return " ".join(part for part in (text, self.more, default) if part)


FEW = 3
"""Largest number of methods that the help of a setting names."""

GOAL: Group = "What is wanted"
TEST: Group = "How it is tested"
DETAILS: Group = "Details"
ROLES: Group = "Which column is which"
GROUPS: tuple[Group | None, ...] = (None, GOAL, TEST, DETAILS, ROLES)
"""Headings in the order of help; None is the general one."""

WITH_BUDGET = tuple(name for name, facts in METHODS.items() if facts.budget)
WITH_POSTERIOR = tuple(name for name, facts in METHODS.items() if facts.posterior)
WITH_EPISODES = tuple(name for name, facts in METHODS.items() if facts.episodes)
OF_ONE_MODEL = tuple(name for name, facts in METHODS.items() if facts.one_model)

SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="data", kind="text", default=None, metavar="DATA", group=GOAL, path=True, option="DATA",
        help=f"{LOG}; or a counts file (not for h-opt, `hold_out`)",
    ),
    Setting(
        name="baseline", kind="text", default="", metavar="FILE|RULE", group=GOAL, path=True,
        brief="Policy file, {choices}.", help="Policy that collected the data: a policy file or a rule", choices=BASELINES, others=True,
        otherwise="logged if the column is there, else estimate",
    ),
    Setting(
        name="method", kind="text", default="auto", metavar="METHOD", group=GOAL, brief="{choices}. {default}", help="Method of improvement",
        choices={
            "auto": "b-opt, or s-opt if `epsilon`, `threshold`, `hold_out` or `horizon` is given",
            **{name: facts.sentence for name, facts in METHODS.items()},
        },
    ),
    Setting(
        name="epsilon", kind="number", default=None, metavar="E", group=GOAL, otherwise=f"{BUDGET:g}",
        methods=WITH_BUDGET,
        brief="Budget; inf: no limit. {default}", help="Deviation budget: how far the policy may leave the baseline where there is little data; 0 for not at all, inf for no limit",
    ),
    Setting(
        name="delta", kind="number", default=0.1, metavar="D", group=GOAL,
        brief="Allowed risk. {default}", help="Risk of accepting a worse policy; also in the error function",
    ),
    Setting(
        name="horizon", kind="whole number", default=None, metavar="H", group=GOAL, otherwise="no limit", least=1,
        methods=(*OF_ONE_MODEL, *WITH_EPISODES), brief="Limit on the steps of a return.",
        help="Number of steps whose rewards make up a return, in all tables and tests, for episodes that are cut off",
        more="Policies are still optimised for a discounted return, of the same mean number of steps. Not for b-opt.",
    ),
    Setting(
        name="candidates", kind="list of texts", default=(), metavar="FILE", group=GOAL, path=True, option="--candidate",
        methods=WITH_POSTERIOR, help="Policy file to add to the candidates",
    ),
    Setting(
        name="hold_out", kind="number", default=None, metavar="SHARE", group=TEST,
        otherwise=f"{TEST_SHARE:g} for h-opt and for states made by discretize, else 0", brief="Share of the episodes to test on.", help="Share of episodes held out for the test",
    ),
    Setting(
        name="zeta", kind="number", by_objective=True, default={}, metavar="NAME=LOSS", group=TEST, otherwise="0",
        brief="Accepted loss of return. {default}", help="Accepted loss of return on an objective",
    ),
    Setting(
        name="threshold", kind="number", by_objective=True, default={}, metavar="NAME=VALUE", group=TEST, methods=OF_ONE_MODEL,
        brief="Return to reach (a cost: at most).", help="Return that an objective must reach (a cost: at most)", more="If it is missed, the answer is 'no solution found'.",
    ),
    Setting(
        name="estimator", kind="text", default="dr", metavar="NAME", group=TEST,
        help="Off-policy estimator of the test", choices={name: ESTIMATORS[name].sentence for name in TESTABLE},
    ),
    Setting(
        name="bound", kind="text", default="t", metavar="NAME", group=TEST, help="Lower bound of the test",
        choices={
            name: f"finite-sample, with {listed(BOUNDED, last='or')}" if facts.finite_sample else "approximate"
            for name, facts in BOUNDS.items()
        },
    ),
    Setting(
        name="levels", kind="text", default="split", metavar="NAME", group=TEST,
        help="Split of delta over the objectives", choices=LEVELS,
    ),
    Setting(
        name="coverage", kind="text", default="required", metavar="RULE", group=TEST,
        help="What happens to a policy that the test episodes hardly cover, or whose weights rest on too few of them", choices=COVERAGES,
    ),
    Setting(
        name="truncation", kind="number", by_objective=True, default={}, metavar="NAME=C", group=TEST,
        otherwise="chosen on other episodes",
        help="Where a finite-sample bound truncates an objective's terms, as a share of the range of returns above their smallest value; the paper: 0.5",
    ),
    Setting(
        name="proposal", kind="text", default="adv-linearized", metavar="NAME", group=TEST, methods=WITH_EPISODES,
        help="Method that proposes the policy whose mixtures with the baseline are tested", choices=PROPOSALS,
    ),
    Setting(
        name="selection", kind="text", default="sequential", metavar="RULE", group=TEST, methods=WITH_EPISODES,
        help="Rule that selects among tested candidates", choices=SELECTIONS,
    ),
    Setting(
        name="comparison", kind="text", default="paired", metavar="NAME", group=TEST, methods=WITH_EPISODES,
        help="Quantity with which the test compares the policy", choices=COMPARISONS,
    ),
    Setting(
        name="draws", kind="whole number", default=200, metavar="M", group=TEST, methods=WITH_POSTERIOR,
        help="Processes drawn under every prior",
    ),
    Setting(
        name="form", kind="text", default="auto", metavar="FORM", group=TEST, methods=WITH_POSTERIOR,
        help="Computation of the posterior", choices=FORMS,
    ),
    Setting(
        name="prior", kind="text", default="hierarchical", metavar="NAME", group=TEST, methods=WITH_POSTERIOR,
        help="Neutral prior", choices=NEUTRAL,
    ),
    Setting(
        name="pessimism", kind="number", default=1.0, metavar="N", group=TEST, methods=WITH_POSTERIOR,
        help="Bad visits that the pessimistic priors add to every decision; 0 to use no pessimistic priors",
    ),
    Setting(
        name="events", kind="list of events", default=(), metavar="EVENT", group=TEST, methods=WITH_POSTERIOR, option="--event", key="event",
        brief="Harm that the log has never shown.",
        help="Harm that the log has never shown: its name, its cost by objective in the sign and unit of the column, and its rate, the most often it happens per decision; if not for all, its actions and states; and whether it ends the episode",
        more=f"Written as in a task file: {EVENT_EXAMPLE}. Repeat for each.",
    ),
    Setting(
        name="seed", kind="whole number", default=0, metavar="S", group=TEST,
        help="Seed of the hold-out split and of b-opt's draws",
    ),
    Setting(
        name="error_kind", kind="text", default="q", metavar="KIND", group=DETAILS, help="Error function", choices=ERROR_KINDS,
    ),
    Setting(
        name="support", kind="whole number", default=None, metavar="N", group=DETAILS,
        help="Largest number of successors of a decision, if known; for the error function l1",
    ),
    Setting(
        name="unseen", kind="text", default="baseline", metavar="RULE", group=DETAILS, choices=UNSEEN_RULES,
        help="Value of a decision without data", more="S-OPT never takes one that the baseline does not take.",
    ),
    Setting(
        name="engine", kind="text", default="auto", metavar="ENGINE", group=DETAILS, choices=ENGINES, methods=OF_ONE_MODEL,
        help="Engine of the programs", more="G-OPT: native solves by multipliers, highs as one program. Not for b-opt and h-opt.",
    ),
    Setting(
        name="action_shape", kind="table of whole numbers", default={}, metavar="NAME=N", group=DETAILS,
        help="For reports, if actions 0, 1, 2, … are two choices at once: name and number of each; the second runs fastest",
    ),
)  # fmt: skip
"""Fields of `Task` that are not tables."""

OF_POSTERIOR = tuple(row.name for row in SETTINGS if row.methods == WITH_POSTERIOR and row.group == TEST)
"""Settings of the posterior alone: those that `improve`, `certify_run_posterior` and `verify_run` all need, besides δ, ζ and the seed."""

OF_EACH_TEST = ("draws", "form", "seed")
"""Settings that `certify_run_posterior` does not take from the run."""

OBJECTIVE: tuple[Setting, ...] = (
    Setting(
        name="weight", kind="number", by_objective=True, default=1.0, metavar="COL[=WEIGHT]", group=GOAL, option="--objective",
        brief="Reward column and weight. Repeat it.", help="A reward column and its weight in the preference; 0 protects it without pursuing it. Repeat for each",
    ),
    Setting(
        name="lower_is_better", kind="true or false", by_objective=True, default=False, metavar="COL", group=GOAL,
        brief="An objective that is a cost.", help="An objective that is a cost. Repeat for each", otherwise="more is better",
    ),
    Setting(
        name="discount", kind="number", by_objective=True, default=0.99, metavar="[COL=]G", group=GOAL,
        brief="Discount factor. {default}", help="Discount in [0, 1], of all objectives or of one; 1 if every episode ends, or with `horizon`",
    ),
    Setting(
        name="reward_range", kind="pair of numbers", by_objective=True, default=None, metavar="COL=LOW..HIGH", group=GOAL, key="range",
        help="Lowest and highest value that a reward column can have, if known; finite-sample bounds need it of every objective, and the pessimistic priors of b-opt expect its worst",
    ),
    Setting(
        name="label", kind="text", by_objective=True, default=None, metavar="COL=TEXT", group=DETAILS, otherwise="the column's name",
        help="Label of an objective for people",
    ),
    Setting(
        name="unit", kind="text", by_objective=True, default="", metavar="COL=TEXT", group=DETAILS, help="Unit of an objective, for people",
    ),
)  # fmt: skip
"""Fields of `Objective` except its name: keys of [objectives.NAME]; on the command line COL=VALUE, repeated."""

COLUMNS: tuple[Setting, ...] = (
    Setting(
        name="episode", kind="text", default="episode", metavar="COL", group=ROLES, help="Column with the episode",
    ),
    Setting(
        name="step", kind="text", default="step", metavar="COL", group=ROLES, help="Column with the step number, or 'row-order'",
    ),
    Setting(name="state", kind="text", default="state", metavar="COL", group=ROLES, help="Column with the state"),
    Setting(
        name="action", kind="text", default="action", metavar="COL", group=ROLES, help="Column with the action taken",
    ),
    Setting(
        name="next_state", kind="text", default=None, metavar="COL", group=ROLES, help="Column with the next state",
        otherwise="next_state if there, else the next row's state",
    ),
    Setting(
        name="terminated", kind="text", default=None, metavar="COL", group=ROLES,
        help="Column that is true where the process ended", otherwise="terminated if there, else the last row ends",
    ),
    Setting(
        name="truncated", kind="text", default=None, metavar="COL", group=ROLES,
        help="Column that is true where only the logging stopped", otherwise="truncated if there",
    ),
    Setting(
        name="baseline_prob", kind="text", default=None, metavar="COL", group=ROLES,
        help="Column with the baseline's probability of the action taken", otherwise="baseline_prob if there",
    ),
    Setting(
        name="sampling_unit", kind="text", default=None, metavar="COL", group=ROLES, otherwise="every episode is one",
        help="Column with what several episodes belong to (a patient, a ward, a shop); tests, folds and splits are by it",
    ),
)  # fmt: skip
"""Fields of `Columns`: keys of [columns]."""

RARE: tuple[Setting, ...] = (
    Setting(
        name="below", kind="whole number", default=10, metavar="N", group=GOAL, option="--rare-below", otherwise="no such objective",
        help="Add the objective 'rare': decisions that the data has fewer than N times are penalised",
    ),
    Setting(
        name="reward", kind="number", default=-10.0, metavar="R", group=GOAL, option="--rare-reward", help="Reward of a rare decision",
    ),
    Setting(
        name="weight", kind="number", default=1.0, metavar="W", group=GOAL, option="--rare-weight",
        help="Weight of 'rare' in the preference",
    ),
    Setting(
        name="discount", kind="number", default=0.99, metavar="G", group=GOAL, option="--rare-discount", help="Discount of 'rare'",
        otherwise="that of the first objective",
    ),
)  # fmt: skip
"""Fields of `Rare` except its name: keys of [derived.NAME]; on the command line, those of the objective 'rare'."""

EVENT: tuple[Setting, ...] = (
    Setting(name="name", kind="text", default=None, metavar="TEXT", help="Name for people"),
    Setting(
        name="cost", kind="table of numbers", default={}, metavar="{COL=COST}", otherwise="nothing",
        help="What it costs, by objective, in the sign and unit of the column: below 0 for a reward, above 0 for a cost",
    ),
    Setting(
        name="rate", kind="number", default=None, metavar="H",
        help="The most often that it happens: a probability per decision that it applies to, above 0 and below 1",
    ),
    Setting(
        name="actions", kind="list of labels", default=(), metavar="[LABEL]", otherwise="all", help="Actions that it applies to",
    ),
    Setting(name="states", kind="list of labels", default=(), metavar="[LABEL]", otherwise="all", help="States that it applies to"),
    Setting(
        name="ends", kind="true or false", default=False, metavar="true|false", otherwise="false",
        help="Whether it ends the episode, in place of the step's usual rewards and next state",
    ),
)  # fmt: skip
"""Fields of `DeclaredEvent`: keys of [[event]], and of --event."""

TABLES: Mapping[str, tuple[Setting, ...]] = {"objectives": OBJECTIVE, "columns": COLUMNS, "derived": RARE}
"""Fields of `Task` that are tables, also in a task file."""

EVERY: tuple[Setting, ...] = (*SETTINGS, *OBJECTIVE, *COLUMNS, *RARE)
"""Rows of all tables except `EVENT`, whose rows are keys of the setting `events`."""

BY_NAME: Mapping[str, Setting] = {row.name: row for row in (*SETTINGS, *OBJECTIVE, *COLUMNS)} | {
    row.parameter: row for row in EVERY
}
"""Rows by name of the field (those of `Rare` as rare_below) and by the option's Python name."""


def check_fields(holder: object, rows: Iterable[Setting], *, of: str = "", optional: bool = False) -> None:
    """Check the fields of a dataclass by the kinds of their rows, and store plain Python values.

    Args:
        holder: Frozen dataclass with a field for every row.
        rows: Rows of the tables.
        of: Words after the names of settings in messages, such as " of rare".
        optional: Whether every field may be None; by default, only those whose default is None.
    """
    for row in rows:
        value = getattr(holder, row.name)
        if value is not None or not (optional or row.default is None):
            object.__setattr__(holder, row.name, _field_value(row, value, f"{row.name}{of}"))


def _field_value(row: Setting, value: Any, name: str) -> Any:
    if row.path:
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
        if isinstance(value, list | tuple):
            value = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in value]
    if not (row.by_objective and row in SETTINGS):
        return as_kind(name, value, row.kind, setting=row.name)
    if not isinstance(value, Mapping):
        raise WrongTypeError(
            f"{name} must be a dict, {{name of an objective: {row.kind}}}; got {shown(value)}.", setting=row.name
        )
    return {
        as_kind(f"an objective in {name}", key, "text", setting=row.name): as_kind(
            f"{name} of {key}", each, row.kind, setting=row.name
        )
        for key, each in value.items()
    }


def with_flags(text: str) -> str:
    """Text of the table with options in place of names: `epsilon` becomes --epsilon."""
    return re.sub(r"`(\w+)`", lambda found: BY_NAME[found[1]].flag, text)


def option_words(row: Setting, value: Any, before: Any = None) -> list[str]:
    """Command-line words that change a setting from ``before`` to ``value``; none if they are equal."""
    if value is None or (value == before and (row.kind != "table of whole numbers" or [*value] == [*before])):
        return []
    if row.kind in ("list of texts", "list of events"):
        return [word for each in value for word in (row.flag, each if isinstance(each, str) else event_text(each))]
    if row.by_objective:
        return [
            word
            for name, number in value.items()
            if name not in before or number != before[name]
            for word in (row.flag, f"{name}={value_text(number)}")
        ]
    if row.kind == "table of whole numbers":
        return [word for name, number in value.items() for word in (row.flag, f"{name}={number}")]
    return [row.flag, value_text(value)]


def with_places(places: list[str], options: list[str]) -> list[str]:
    """Arguments and options of a command; arguments that begin with a hyphen come last, after --."""
    if any(place.startswith("-") for place in places):
        return [*options, "--", *places]
    return [*places, *options]


def event_text(event: DeclaredEvent) -> str:
    """Text of a declared event, which the command line reads back exactly: the inside of a TOML inline table."""
    parts = []
    for row in EVENT:
        value = getattr(event, row.name)
        if value != row.default:
            parts.append(f"{row.name}={_toml(value)}")
    return ", ".join(parts)


def _toml(value: Any) -> str:
    """Value as TOML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        keys = (key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key) for key in value)
        return f"{{{', '.join(f'{key}={_toml(each)}' for key, each in zip(keys, value.values(), strict=True))}}}"
    return value_text(value)


def value_text(value: float | str | tuple[float, float]) -> str:
    """Text of a value, which the command line reads back exactly."""
    if isinstance(value, tuple):
        return "..".join(value_text(edge) for edge in value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
