"""Task: data, objectives and settings of an improvement. As a task file:

data = "visits.parquet"            # file or glob, relative to the task file
method = "auto"
delta = 0.1
baseline = "estimate"              # or a policy file; default: the logged column if there is one, else estimate

[columns]                          # only names that differ from the default
episode = "stay"

[objectives.survival]
weight = 1.0
discount = 0.99

[objectives.pain]
lower_is_better = true
zeta = 0.1                         # accepted loss
label = "Pain score"
unit = "points"

[derived]
rare = { below = 10, reward = -10 }

[[event]]                          # harm that the log has never shown
name = "overdose"
cost = { survival = -100 }
rate = 0.001                       # at most, per decision
actions = ["high"]
"""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bettersafe.errors import (
    ParameterError,
    as_kind,
    check_choice,
    check_discount,
    check_epsilon,
    check_path,
    check_probability,
    check_type,
    check_types,
    listed,
)
from bettersafe.logs.dataset import Columns, Objective
from bettersafe.logs.source import find_source
from bettersafe.mdp.horizon import check_horizon
from bettersafe.methods.facts import METHODS
from bettersafe.posterior.events import DeclaredEvent
from bettersafe.tasks.settings import (
    BUDGET,
    COLUMNS,
    OBJECTIVE,
    OF_ONE_MODEL,
    RARE,
    SETTINGS,
    TEST_SHARE,
    WITH_BUDGET,
    WITH_EPISODES,
    check_fields,
    option_words,
    value_text,
    with_places,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bettersafe.evaluation.choices import Comparison, Coverage, Levels
    from bettersafe.logs.source import Source
    from bettersafe.mdp.choices import Engine, ErrorKind, Unseen
    from bettersafe.methods.choices import ProposedBy, Selection
    from bettersafe.posterior.choices import Form, Neutral
    from bettersafe.typing import Json


@dataclass(frozen=True, kw_only=True)
class Rare:
    """Derived objective: ``reward`` for every decision with fewer than ``below`` occurrences in the data."""

    name: str = "rare"
    below: int = 10
    reward: float = -10.0
    weight: float = 1.0
    discount: float = 0.99

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", as_kind("the name of a derived objective", self.name, "text"))
        check_fields(self, RARE, of=f" of {self.name}")
        check_discount(self.name, self.discount)
        if not math.isfinite(self.reward):
            raise ParameterError(f"reward of {self.name} must be finite; got {self.reward}.", setting="rare_reward")
        if self.below < 1:
            raise ParameterError(
                f"rare_below must be a number of occurrences, at least 1; got {self.below}.",
                setting="rare_below",
            )


def check_losses(zeta: Mapping[str, float]) -> None:
    """Raise ParameterError unless every accepted loss is 0 or more and finite."""
    for name, loss in zeta.items():
        if not 0.0 <= loss < math.inf:
            raise ParameterError(
                f"zeta of {name} must be an accepted loss, 0 or more and finite; got {loss}.", setting="zeta"
            )


@dataclass(frozen=True, kw_only=True)
class Task:
    """Data, objectives and settings for `run_task`; `settings.SETTINGS` describes each field in detail.

    Attributes:
        data: The log: a file or quoted glob (Parquet, CSV, JSON lines, Arrow); or a counts file (not for h-opt, `hold_out`).
        objectives: Reward columns, at least one.
        columns: Names of the columns.
        derived: Objectives derived from the counts.
        baseline: Policy that collected the data: a policy file or a rule.
        method: Method of improvement.
        epsilon: Deviation budget: how far the policy may leave the baseline where there is little data; 0 for not at all, inf for no limit.
        delta: Risk of accepting a worse policy; also in the error function.
        error_kind: Error function.
        support: Largest number of successors of a decision, if known; for the error function l1.
        unseen: Value of a decision without data.
        engine: Engine of the programs.
        horizon: Number of steps whose rewards make up a return, in all tables and tests, for episodes that are cut off.
        zeta: Accepted loss of return on an objective.
        threshold: Return that an objective must reach (a cost: at most).
        hold_out: Share of episodes held out for the test.
        estimator: Off-policy estimator of the test.
        bound: Lower bound of the test.
        coverage: What happens to a policy that the test episodes hardly cover, or whose weights rest on too few of them.
        truncation: Where a finite-sample bound truncates an objective's terms, as a share of the range of returns above their smallest
            value; the paper: 0.5.
        proposal: Method that proposes the policy whose mixtures with the baseline are tested.
        selection: Rule that selects among tested candidates.
        levels: Split of delta over the objectives.
        comparison: Quantity with which the test compares the policy.
        draws: Processes drawn under every prior.
        form: Computation of the posterior.
        prior: Neutral prior.
        pessimism: Bad visits that the pessimistic priors add to every decision; 0 to use no pessimistic priors.
        events: Harm that the log has never shown: its name, its cost by objective in the sign and unit of the column, and its rate, the most
            often it happens per decision; if not for all, its actions and states; and whether it ends the episode.
        candidates: Policy file to add to the candidates.
        seed: Seed of the hold-out split and of b-opt's draws.
        action_shape: For reports, if actions 0, 1, 2, … are two choices at once: name and number of each; the second runs
            fastest.

    Examples:
        >>> task = bettersafe.Task(data="log.parquet", objectives=log.objectives, epsilon=0.3, hold_out=0.2)
        >>> task.resolved_method
        's-opt'
    """

    data: str
    objectives: tuple[Objective, ...]
    columns: Columns = dataclasses.field(default_factory=Columns)
    derived: tuple[Rare, ...] = ()
    baseline: str = ""
    method: str = "auto"
    epsilon: float | None = None
    delta: float = 0.1
    error_kind: ErrorKind = "q"
    support: int | None = None
    unseen: Unseen = "baseline"
    engine: Engine = "auto"
    horizon: int | None = None
    zeta: dict[str, float] = dataclasses.field(default_factory=dict)
    threshold: dict[str, float] = dataclasses.field(default_factory=dict)
    hold_out: float | None = None
    estimator: str = "dr"
    bound: str = "t"
    coverage: Coverage = "required"
    truncation: dict[str, float] = dataclasses.field(default_factory=dict)
    proposal: ProposedBy = "adv-linearized"
    selection: Selection = "sequential"
    levels: Levels = "split"
    comparison: Comparison = "paired"
    draws: int = 200
    form: Form = "auto"
    prior: Neutral = "hierarchical"
    pessimism: float = 1.0
    events: tuple[DeclaredEvent, ...] = ()
    candidates: tuple[str, ...] = ()
    seed: int = 0
    action_shape: dict[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_path("data", self.data)
        object.__setattr__(self, "data", os.fspath(self.data))
        check_types("objectives", self.objectives, Objective)
        object.__setattr__(self, "objectives", tuple(self.objectives))
        check_type("columns", self.columns, Columns)
        check_types("derived", self.derived, Rare)
        object.__setattr__(self, "derived", tuple(self.derived))
        check_fields(self, [row for row in SETTINGS if row.kind != "list of events"])
        check_losses(self.zeta)
        check_types("events", self.events, DeclaredEvent)
        object.__setattr__(self, "events", tuple(self.events))
        names = [event.name for event in self.events]
        for name in names:
            if names.count(name) > 1:
                raise ParameterError(f"event {name!r} is declared twice. Give each its own name.", setting="events")
        for row in SETTINGS:
            if row.choices and not row.others:
                check_choice(row.name, getattr(self, row.name), row.choices)
        if not 0.0 <= self.pessimism < math.inf:
            raise ParameterError(
                f"pessimism must be a number of visits, 0 or more; got {self.pessimism}.", setting="pessimism"
            )
        facts = METHODS[self.resolved_method]
        if self.candidates and not facts.posterior:
            raise ParameterError(
                f"candidates is a setting of b-opt, but the method is {self.resolved_method}; evaluate your own policy with"
                " `evaluate_saved`.",
                setting="candidates",
            )
        if self.seed < 0:
            raise ParameterError(f"seed must be 0 or more; got {self.seed}.", setting="seed")
        if self.hold_out is not None and not 0.0 <= self.hold_out < 1.0:
            raise ParameterError(
                f"hold_out must be a share of the episodes in [0, 1); got {self.hold_out}.", setting="hold_out"
            )
        if facts.episodes and self.hold_out == 0.0:
            raise ParameterError(
                f"{facts.name} tests its candidates on held-out episodes: hold_out must be more than 0.",
                setting="hold_out",
            )
        if self.threshold and not facts.one_model:
            raise ParameterError(
                f"{facts.name} does not support thresholds; test its policy against them with `certify_run`.",
                setting="threshold",
            )
        if self.epsilon is not None and not facts.one_model:
            raise ParameterError(
                f"epsilon is the budget of {listed(WITH_BUDGET)}; {facts.name} has none"
                f"{' and tries many' if facts.posterior else ''}. Remove epsilon, or choose another method.",
                setting="epsilon",
            )
        check_horizon(self.horizon)
        if self.horizon is not None and facts.posterior:
            raise ParameterError(
                f"horizon can't be used with {facts.name}: its posterior is of returns without a limit on steps. Use"
                f" {listed((*OF_ONE_MODEL[:1], *WITH_EPISODES), last='or')}, with a test on held-out episodes.",
                setting="horizon",
            )
        if self.horizon is not None and self.threshold and not self.share:
            raise ParameterError(
                "a threshold with a horizon needs held-out episodes: set `hold_out`. The bounds from the counts are of returns"
                " without a limit on steps.",
                setting="threshold",
            )
        check_epsilon(self.budget)
        check_probability("delta", self.delta)
        sizes = self.action_shape.values()
        if sizes and (len(sizes) != 2 or min(sizes) < 2):
            raise ParameterError(
                "action_shape must name two choices and the number of options of each, such as { fluid = 5, vasopressor = 5 };"
                f" got {self.action_shape}.",
                setting="action_shape",
            )
        if self.support is not None and self.error_kind != "l1":
            raise ParameterError('support is a setting of the error function "l1" only.', setting="support")

    @property
    def source(self) -> Source:
        """What the data is, from the disk."""
        return find_source(self.data)

    @property
    def resolved_method(self) -> str:
        """Name of the method, with "auto" resolved."""
        if self.method != "auto":
            return self.method
        limited = self.epsilon is not None or self.horizon is not None
        return "s-opt" if limited or self.threshold or self.hold_out else "b-opt"

    @property
    def budget(self) -> float:
        """ε, or its default."""
        return BUDGET if self.epsilon is None else self.epsilon

    @property
    def share(self) -> float:
        """Share of held-out episodes."""
        if self.hold_out is None:
            return TEST_SHARE if METHODS[self.resolved_method].episodes else 0.0
        return self.hold_out


def settings_document(task: Task) -> Json:
    """Settings of the task for run.json, with the method resolved and its budget, if it has one."""
    document = {**dataclasses.asdict(task), "method": task.resolved_method}
    if METHODS[task.resolved_method].posterior:
        del document["epsilon"]  # B-OPT has no budget of its own
    else:
        document["epsilon"] = task.budget if math.isfinite(task.budget) else "inf"
    return document


def task_without_options(data: str) -> Task:
    """Task of a command that names only the data: a counts file has its own objectives and columns, a log has none."""
    from bettersafe.logs.counts_file import counted_columns, counted_objectives

    task = Task(data=data, objectives=())
    if not task.source.is_counts:
        return task
    return dataclasses.replace(task, objectives=counted_objectives(data), columns=counted_columns(data))


def with_rare(derived: tuple[Rare, ...], rare: Rare) -> tuple[Rare, ...]:
    """Derived objectives with ``rare`` in the place of the one with its name, or at the end."""
    if rare.name not in [each.name for each in derived]:
        return (*derived, rare)
    return tuple(rare if each.name == rare.name else each for each in derived)


def command_words(
    task: Task, *, base: Task | None = None, task_file: str | None = None, output: str | None = None
) -> list[str] | None:
    """Arguments of `bettersafe improve` for this task; None if no options say its derived objectives.

    Args:
        task: Task to express.
        base: Task of ``task_file``; only options that differ from it are given.
        task_file: Task file, if there is one.
        output: Run directory, if it is to be named.
    """
    before = base or task_without_options(task.data)
    rare = next((each for each in task.derived if each.name == Rare().name), None)
    if task.derived != before.derived and (rare is None or with_rare(before.derived, rare) != task.derived):
        return None
    words = [] if task_file is None else ["--task", task_file]
    for row in COLUMNS:
        words += option_words(row, getattr(task.columns, row.name), getattr(before.columns, row.name))
    words += _objective_words(task.objectives, before.objectives)
    if task.derived != before.derived:
        words += [word for row in RARE for word in option_words(row, getattr(rare, row.name))]
    for row in SETTINGS:
        if row.flag.startswith("--"):
            words += option_words(row, getattr(task, row.name), getattr(before, row.name))
    if output is not None:
        words += ["-o", output]
    return with_places([task.data], words)


def _objective_words(objectives: tuple[Objective, ...], before: tuple[Objective, ...]) -> Iterator[str]:
    """Options of every objective: its weight, and the fields that differ from ``before``."""
    known = {objective.name: objective for objective in before}
    for row in OBJECTIVE:
        for objective in objectives:
            value = getattr(objective, row.name)
            if row.name == "weight":
                yield from (row.flag, f"{objective.name}={value_text(value)}")
            elif (
                value is not None
                and value is not False
                and value != getattr(known.get(objective.name, Objective(name=objective.name)), row.name)
            ):
                said = objective.name if row.kind == "true or false" else f"{objective.name}={value_text(value)}"
                yield from (row.flag, said)
