"""Drift: do decisions and their outcomes differ between the first and the last half of the episodes of a log?

Within the same state and action the next state and r + γ v̂(x') are compared between the halves, and within the same state the
actions. Groups are compared across episodes only, so episodes that differ from each other at random are not drift.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.errors import check_log
from bettersafe.evaluation.association import (
    Cells,
    associate,
    group_effect,
    group_effect_of_kinds,
    linear_terms,
    p_value,
    shuffle_variance,
)
from bettersafe.evaluation.state_checks import prepare_steps
from bettersafe.evaluation.state_evidence import FAMILY_LEVEL, NAMED, NEGLIGIBLE

if TYPE_CHECKING:
    from bettersafe.typing import Log


FEWEST = 20
"""Episodes below which drift is not tested."""

SMALL_CHANGE = 0.02
"""Change of probabilities (root mean square over states) below which decisions count as unchanged."""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Differences between the first and the last half of a log.

    Attributes:
        p_outcomes: p-value for what follows a decision, corrected for the number of tests.
        p_decisions: p-value for the decisions, corrected in the same way.
        outcomes: By objective: title, and change of the expected return after a decision (root mean square).
        scale: Standard deviation of an episode's return, by objective.
        decisions: Change of the probabilities of actions in a state (root mean square).

    Examples:
        >>> from bettersafe.evaluation import check_drift
        >>> check_drift(log).sentences
        ()
    """

    p_outcomes: float
    p_decisions: float
    outcomes: tuple[tuple[str, float], ...]
    scale: tuple[float, ...]
    decisions: float

    @property
    def outcomes_changed(self) -> bool:
        """Whether what follows a decision has changed, by more than chance and by more than a little."""
        large = (size > NEGLIGIBLE * sd for (_, size), sd in zip(self.outcomes, self.scale, strict=True))
        return self.p_outcomes < FAMILY_LEVEL and any(large)

    @property
    def decisions_changed(self) -> bool:
        """Whether the decisions have changed, by more than chance and by more than a little."""
        return self.p_decisions < FAMILY_LEVEL and self.decisions > SMALL_CHANGE

    @property
    def sentences(self) -> tuple[str, ...]:
        """What has changed, in sentences without a full stop; empty if nothing has."""
        found = []
        if self.outcomes_changed:
            ranked = sorted(
                zip(self.outcomes, self.scale, strict=True), key=lambda row: -row[0][1] / max(row[1], 1e-300)
            )
            moved = "; ".join(f"{title} by about {size:.3g}" for (title, size), _ in ranked[:NAMED])
            found.append(
                "what follows a decision differs between the first and the last half of the episodes: in the same state and action"
                f" the expected return differs, {moved} ({_chance(self.p_outcomes)}). Results assume a process that does not change"
            )
        if self.decisions_changed:
            found.append(
                "decisions differ between the first and the last half of the episodes: in the same state the probability of an action"
                f" differs by about {self.decisions:.2g} ({_chance(self.p_decisions)}). An estimated baseline is the average of both"
            )
        return tuple(found)


def check_drift(log: Log) -> Drift | None:
    """Compare the first and the last half of the episodes, in the order of their labels; None if there are fewer than 20.

    Labels are ordered as people count: visit 2 comes before visit 10.

    Args:
        log: A Dataset, or Episodes on disk.

    Examples:
        >>> from bettersafe.evaluation import check_drift
        >>> check_drift(log).decisions_changed
        False
    """
    check_log("log", log)
    steps = None if log.n_episodes < FEWEST else prepare_steps(log)
    if steps is None or steps.n_episodes < FEWEST:
        return None
    last = (steps.order[steps.episode] >= steps.n_episodes // 2).astype(np.int64)
    half = last.astype(np.float64)
    pairs, states = (
        Cells(2 * steps.pair + last, steps.pairs, across=True),
        Cells(2 * steps.state + last, steps.states, across=True),
    )
    d = len(steps.objectives)
    tests = 2 * d + 2
    strongest = group_effect_of_kinds(steps.next_state + 1, pairs).association.z
    outcomes, scale = [], []
    for k, objective in enumerate(steps.objectives):
        target = steps.target(k)
        linear = associate(
            linear_terms(half, target, steps.pairs), steps.episode, least=shuffle_variance(half, target, steps.pairs)
        )
        grouped = group_effect(target, pairs)
        strongest = max(strongest, abs(linear.z), grouped.association.z)
        varying = float(np.sum(steps.pairs.centred(half) ** 2))
        shift = abs(linear.total) / varying if varying > 0.0 else 0.0
        # halves that differ by 2g lie g from their mean
        outcomes.append((objective.title, max(shift, 2.0 * grouped.size)))
        returns = steps.returns(k)
        scale.append(float(returns.std(ddof=1)))
    decisions = group_effect_of_kinds(steps.mdp.pair_action[steps.pair], states)
    return Drift(
        p_outcomes=p_value(strongest, tests),
        p_decisions=p_value(decisions.association.z, tests) if decisions.association.z > 0.0 else 1.0,
        outcomes=tuple(outcomes),
        scale=tuple(scale),
        decisions=2.0 * decisions.size / math.sqrt(2.0),  # a move of probability p changes two indicators by p
    )


def _chance(p: float) -> str:
    return "p < 1e-6" if p < 1e-6 else f"p = {p:.2g}"
