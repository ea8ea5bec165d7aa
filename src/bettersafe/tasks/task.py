"""A task: where the data is, what is wanted, and how careful to be. A TOML file or command-line options say the same.

data = "visits.parquet"            # file or glob, relative to the task file
method = "auto"                    # auto | b-opt | s-opt | g-opt | h-opt | soft-spibb | adv-linearized | linearized
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
from dataclasses import dataclass

from bettersafe.errors import ParameterError, check_choice, check_epsilon, check_probability, listed
from bettersafe.evaluation import BOUNDS, TESTABLE
from bettersafe.evaluation.held_out import COMPARISONS, LEVELS, Comparison, Levels
from bettersafe.logs.dataset import Columns, Objective
from bettersafe.mdp import programs
from bettersafe.methods import METHODS
from bettersafe.methods.h_opt import SELECTIONS, Selection
from bettersafe.model import ERROR_KINDS, UNSEEN_RULES, ErrorKind, Unseen
from bettersafe.posterior.judge import FORMS, Form
from bettersafe.posterior.priors import NEUTRAL, Neutral

BUDGET = 0.1
"""ε, if not said otherwise."""

H_OPT_SHARE = 0.3
"""Share of episodes that H-OPT tests on, if not said otherwise: the published one."""


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
                f"rare decisions are those seen fewer than a number of times, at least 1; got {self.below}."
            )


@dataclass(frozen=True, kw_only=True)
class Task:
    """Everything `pipeline.run_task` needs.

    Attributes:
        data: File or glob of files.
        objectives: The reward columns, at least one.
        columns: Which column is which.
        derived: Objectives made from the counts.
        baseline: "logged" (the probability column), "estimate", a policy file, or "" for logged if there, else estimate.
        method: A key of `bettersafe.methods.METHODS`, or "auto": B-OPT, unless a budget,
            thresholds or a part to hold out are given, which are S-OPT's.
        epsilon: Budget of S-OPT, G-OPT and Soft-SPIBB; None is `BUDGET`.
        delta: Risk: in the error function, and of accepting a policy that is worse on some objective.
        error_kind: "q" or "l1".
        support: For "l1": the most successors a pair can have, if known.
        unseen: What a pair never tried is worth.
        engine: "auto", "native" or "highs".
        zeta: Accepted loss by objective; 0 where left out.
        threshold: What an objective's return must be worth, in its own sign (a cost: at most), by objective.
        hold_out: Share of episodes kept apart to test the policy on; None is 0.3 for H-OPT and none for the others.
        estimator: Off-policy estimator of the test.
        bound: Lower bound of the test.
        selection: Rule of H-OPT.
        draws: Processes that B-OPT draws under every prior.
        form: How B-OPT asks the posterior: "draws", "linearised" (without draws), or "auto" by the size of the log.
        prior: Neutral prior of B-OPT: "hierarchical" or "support".
        pessimism: Bad visits that B-OPT's pessimistic priors add to every pair; 0 leaves those priors out.
        candidates: Policy files that B-OPT has among its candidates.
        levels: How the test gives δ to the objectives.
        comparison: What H-OPT's test compares with.
        seed: Draws what is held out.
        action_shape: For reports, where actions are 0, 1, 2, … and stand for two choices at once: their names and how many there
            are of each; the second runs fastest.
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
    engine: programs.Engine = "auto"
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
        check_choice("method", self.method, ("auto", *METHODS))
        check_choice("estimator", self.estimator, TESTABLE)
        check_choice("bound", self.bound, BOUNDS)
        check_choice("selection", self.selection, SELECTIONS)
        check_choice("levels", self.levels, LEVELS)
        check_choice("comparison", self.comparison, COMPARISONS)
        check_choice("prior", self.prior, NEUTRAL)
        check_choice("form", self.form, FORMS)
        if not 0.0 <= self.pessimism < math.inf:
            raise ParameterError(f"pessimism must be a number of visits, 0 or more; got {self.pessimism}.")
        facts = METHODS[self.resolved_method]
        if self.candidates and not facts.posterior:
            raise ParameterError(
                f"candidates are a setting of b-opt alone, and the method is {self.resolved_method}; test a policy of your own"
                " with: bettersafe evaluate."
            )
        if self.seed < 0:
            raise ParameterError(f"seed must be 0 or more; got {self.seed}.")
        if self.hold_out is not None and not 0.0 <= self.hold_out < 1.0:
            raise ParameterError(f"hold_out must be a share of the episodes in [0, 1); got {self.hold_out}.")
        if facts.episodes and self.hold_out == 0.0:
            raise ParameterError(
                f"{facts.name} tests its candidates on episodes held out: hold_out must be more than 0."
            )
        if self.threshold and not facts.one_model:
            raise ParameterError(
                f"thresholds are not a part of {self.method}'s test; test its policy against them with: bettersafe certify RUN"
                " HELD_OUT."
            )
        if facts.posterior and self.hold_out:
            raise ParameterError(
                f"{facts.name} uses all the data: hold nothing out, or test its policy later with `certify`."
            )
        if self.epsilon is not None and not facts.one_model:
            raise ParameterError(
                f"epsilon is the budget of {listed(other.name for other in METHODS.values() if other.budget)}; {facts.name} has none"
                f"{' and tries many' if facts.posterior else ''}. Leave one of them out."
            )
        check_epsilon(self.budget)
        check_probability("delta", self.delta)
        check_choice("error_kind", self.error_kind, ERROR_KINDS)
        check_choice("unseen", self.unseen, UNSEEN_RULES)
        check_choice("engine", self.engine, programs.ENGINES)
        sizes = self.action_shape.values()
        if sizes and (len(sizes) != 2 or not all(type(size) is int and size >= 2 for size in sizes)):
            raise ParameterError(
                "action_shape names two choices and how many there are of each, such as { fluid = 5, vasopressor = 5 };"
                f" got {self.action_shape}."
            )
        if self.support is not None and self.error_kind != "l1":
            raise ParameterError('support is a setting of the error function "l1" alone.')

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
