"""A task: where the data is, what is wanted, and how careful to be. A TOML file or command-line options say the same.

data = "visits.parquet"            # file or glob, relative to the task file
method = "auto"
delta = 0.1
baseline = "estimate"              # or a policy file; left out: the logged column if there is one, else estimate

[columns]                          # only those whose names differ
episode = "stay"

[objectives.survival]
weight = 1.0
discount = 0.99

[objectives.pain]
lower_is_better = true
zeta = 0.1                         # a loss that is accepted
label = "Pain score"
unit = "points"

[derived]
rare = { below = 10, reward = -10 }
"""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bettersafe.errors import (
    ParameterError,
    check_choice,
    check_epsilon,
    check_path,
    check_probability,
    check_type,
    check_types,
    listed,
)
from bettersafe.logs.dataset import Columns, Objective
from bettersafe.methods.facts import METHODS
from bettersafe.tasks.settings import (
    BUDGET,
    COLUMNS,
    H_OPT_SHARE,
    OBJECTIVE,
    RARE,
    SETTINGS,
    WITH_BUDGET,
    option_words,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bettersafe.evaluation.choices import Comparison, Levels
    from bettersafe.mdp.choices import Engine, ErrorKind, Unseen
    from bettersafe.methods.choices import Selection
    from bettersafe.posterior.choices import Form, Neutral


@dataclass(frozen=True, kw_only=True)
class Rare:
    """A derived objective: ``reward`` for every decision that the data has fewer than ``below`` times."""

    name: str = "rare"
    below: int = 10
    reward: float = -10.0
    weight: float = 1.0
    discount: float = 0.99

    def __post_init__(self) -> None:
        if self.below < 1:
            raise ParameterError(
                f"rare decisions are those seen fewer than a number of times, at least 1; got {self.below}.",
                setting="rare_below",
            )


@dataclass(frozen=True, kw_only=True)
class Task:
    """Everything `run_task` needs; a row of `settings.SETTINGS` says more of each field.

    Attributes:
        data: The log: a file or quoted glob (Parquet, CSV, JSON lines, Arrow); or a counts file (not for h-opt, `hold_out`).
        objectives: The reward columns, at least one.
        columns: Which column is which.
        derived: Objectives made from the counts.
        baseline: The policy that made the data, a policy file or a rule.
        method: How to improve.
        epsilon: How far the policy may leave the baseline where data is thin; 0 not at all, inf no limit.
        delta: Risk of accepting a worse policy; also in the error function.
        error_kind: Error function.
        support: The most successors that a decision can have, if known; for the error function l1.
        unseen: What a decision that was never tried is worth.
        engine: Engine of the programs.
        zeta: Loss of return that is accepted on an objective.
        threshold: Return that an objective must reach (a cost: at most).
        hold_out: Share of episodes to test on, and not learn from.
        estimator: Off-policy estimator of the test.
        bound: Lower bound of the test.
        selection: Rule that selects among tested candidates.
        levels: How the test gives delta to the objectives.
        comparison: What the test compares the policy with.
        draws: Processes drawn under every prior.
        form: How the posterior is asked.
        prior: Neutral prior.
        pessimism: Bad visits that the pessimistic priors add to every decision; 0 leaves these priors out.
        candidates: A policy file to have among the candidates.
        seed: Seed of what is held out and of b-opt's draws.
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
    unseen: Unseen = "end"
    engine: Engine = "auto"
    zeta: dict[str, float] = dataclasses.field(default_factory=dict)
    threshold: dict[str, float] = dataclasses.field(default_factory=dict)
    hold_out: float | None = None
    estimator: str = "dr"
    bound: str = "t"
    selection: Selection = "sequential"
    levels: Levels = "split"
    comparison: Comparison = "paired"
    draws: int = 200
    form: Form = "auto"
    prior: Neutral = "hierarchical"
    pessimism: float = 1.0
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
                f"candidates are a setting of b-opt alone, and the method is {self.resolved_method}; test a policy of your own"
                " with `evaluate_saved`.",
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
                f"{facts.name} tests its candidates on episodes held out: hold_out must be more than 0.",
                setting="hold_out",
            )
        if self.threshold and not facts.one_model:
            raise ParameterError(
                f"thresholds are not a part of {facts.name}'s test; test its policy against them with `certify_run`.",
                setting="threshold",
            )
        if self.hold_out and facts.posterior:
            raise ParameterError(
                f"{facts.name} uses all the data: hold nothing out, or test its policy later with `certify_run`.",
                setting="hold_out",
            )
        if self.epsilon is not None and not facts.one_model:
            raise ParameterError(
                f"epsilon is the budget of {listed(WITH_BUDGET)}; {facts.name} has none"
                f"{' and tries many' if facts.posterior else ''}. Leave one of them out.",
                setting="epsilon",
            )
        check_epsilon(self.budget)
        check_probability("delta", self.delta)
        sizes = self.action_shape.values()
        if sizes and (len(sizes) != 2 or not all(type(size) is int and size >= 2 for size in sizes)):
            raise ParameterError(
                "action_shape names two choices and how many there are of each, such as { fluid = 5, vasopressor = 5 };"
                f" got {self.action_shape}.",
                setting="action_shape",
            )
        if self.support is not None and self.error_kind != "l1":
            raise ParameterError('support is a setting of the error function "l1" alone.', setting="support")

    @property
    def resolved_method(self) -> str:
        """The method, "auto" resolved."""
        if self.method != "auto":
            return self.method
        return "s-opt" if self.epsilon is not None or self.threshold or self.hold_out else "b-opt"

    @property
    def budget(self) -> float:
        """ε, or what it is if not said."""
        return BUDGET if self.epsilon is None else self.epsilon

    @property
    def share(self) -> float:
        """The share of episodes held out."""
        if self.hold_out is None:
            return H_OPT_SHARE if METHODS[self.resolved_method].episodes else 0.0
        return self.hold_out


def settings_document(task: Task) -> dict[str, Any]:
    """The task's settings as run.json has them: the method resolved, and its budget if it has one."""
    document = {**dataclasses.asdict(task), "method": task.resolved_method}
    if METHODS[task.resolved_method].posterior:
        del document["epsilon"]  # it has none
    else:
        document["epsilon"] = task.budget if math.isfinite(task.budget) else "inf"
    return document


def command_words(task: Task, *, base: Task | None = None, task_file: str | None = None) -> list[str] | None:
    """The data and the options of `bettersafe improve` that say this task; None where only a task file can (several derived objectives).

    Args:
        task: The task.
        base: What ``task_file`` says; options are named that differ from it.
        task_file: The task file, if there is one.
    """
    before = base or Task(data=task.data, objectives=())
    if task.derived != before.derived and (len(task.derived) != 1 or task.derived[0].name != Rare().name):
        return None
    words = [task.data]
    if task_file is not None:
        words += ["--task", task_file]
    for row in COLUMNS:
        words += option_words(row, getattr(task.columns, row.name), getattr(before.columns, row.name))
    words += _objective_words(task.objectives, before.objectives)
    if task.derived != before.derived:
        words += [word for row in RARE for word in option_words(row, getattr(task.derived[0], row.name))]
    for row in SETTINGS:
        if row.flag.startswith("--"):
            words += option_words(row, getattr(task, row.name), getattr(before, row.name))
    return words


def _objective_words(objectives: tuple[Objective, ...], before: tuple[Objective, ...]) -> Iterator[str]:
    """Every objective with its weight, and what else of it differs from what it was before."""
    known = {objective.name: objective for objective in before}
    for row in OBJECTIVE:
        for objective in objectives:
            value = getattr(objective, row.name)
            if row.name == "weight":
                yield from (row.flag, f"{objective.name}={value_text(value)}")
            elif value and value != getattr(known.get(objective.name, Objective(name=objective.name)), row.name):
                said = objective.name if row.kind == "true or false" else f"{objective.name}={value_text(value)}"
                yield from (row.flag, said)
