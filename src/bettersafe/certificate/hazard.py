"""Hazard margins: how often a harm that the log has not shown would have to occur to overturn a verdict.

What a log has never shown can't be learnt from it. If every decision that the policy makes more often than the baseline caused a harm
of size L with probability h, objective k would lose

    h L U,    U = Σ_{x,a} ( ν^π(x) π(a|x) − ν^b(x) π_b(a|x) )₊        extra discounted decisions, in the estimated model

and its lower bound l_k would reach −ζ_k at the rate h* = (l_k + ζ_k) / (L U), the *hazard margin*. The log has n of these decisions.
A harm of rate h stays unseen in all of them with probability (1 − h)^n, so rates up to 1 − δ^{1/n} can't be excluded.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.mdp.values import occupancy

if TYPE_CHECKING:
    from bettersafe.certificate.certificate import Certificate
    from bettersafe.model import Model
    from bettersafe.typing import Floats, Json

RAISED = 1e-9
"""Smallest increase of discounted visits that counts."""


MOST_PAIRS = 5
"""Number of pairs that are named."""


@dataclass(frozen=True, kw_only=True)
class RaisedPair:
    """A decision that the policy makes more often than the baseline.

    Attributes:
        state: Label of the state.
        action: Label of the action.
        extra: Additional discounted decisions per episode, in the estimated model.
        visits: Logged visits.
    """

    state: str
    action: str
    extra: float
    visits: int


@dataclass(frozen=True, kw_only=True)
class HazardMargin:
    """Hazard margin of one objective.

    Attributes:
        size: L, from the best value of a state to the smallest reward and the worst value after it, in units of return.
        rate: h*, per decision that the policy makes more often; infinite if there is none.
        excluded: Rates above this would have been seen in the log with probability 1 − δ.
        visits: Logged visits n of these decisions.
        pairs: Number of (state, action) pairs of these decisions.
        extra: U, additional discounted decisions per episode.
        most: The `MOST_PAIRS` pairs with the most additional decisions.
    """

    size: float
    rate: float
    excluded: float
    visits: int
    pairs: int
    extra: float = 0.0
    most: tuple[RaisedPair, ...] = ()

    @property
    def covered(self) -> bool:
        """Whether the log excludes every harm of this size that would overturn the verdict."""
        return self.rate >= self.excluded

    def sentence(self, title: str) -> str:
        """What an unseen harm would change on the objective ``title``, in one sentence."""
        if not self.pairs:
            return f"The policy makes no decision more often than the baseline, so no unseen harm can reach {title}."
        if self.rate > 1.0:
            return (
                f"Even if every decision that the policy makes more often caused a loss of {self.size:.3g} on {title}, {title} would not"
                " get worse."
            )
        if self.rate <= 0.0:
            return f"A loss on {title} is possible as it is; a harm that the log has not shown would add to it."
        seen = (
            "the log would have shown it"
            if self.covered
            else f"in the {self.visits:,} logged decisions of this kind, {one_in(self.excluded)} could have stayed unseen"
        )
        return (
            f"If {one_in(self.rate)} of the decisions that the policy makes more often caused a loss of {self.size:.3g} on {title}, which the log"
            f" has not shown, {title} could get worse; {seen}."
        )

    def to_json(self) -> Json:
        """The margin for JSON, which has no infinity: a rate of None if no rate overturns the verdict."""
        return {**asdict(self), "rate": None if math.isinf(self.rate) else self.rate}


def one_in(rate: float) -> str:
    """A rate of at most 1 in words, with three significant digits: "one in 40"."""
    return f"one in {float(f'{1.0 / rate:.3g}'):,.0f}"


def hazards_of(certificate: Certificate) -> dict[str, HazardMargin]:
    """Hazard margins in a certificate's diagnostics, by objective; empty if it has none."""
    return {
        name: HazardMargin(
            **{
                **row,
                "rate": math.inf if row["rate"] is None else row["rate"],
                "most": tuple(RaisedPair(**pair) for pair in row.get("most", ())),
            }
        )
        for name, row in certificate.diagnostics.get("hazard", {}).items()
    }


def hazard_margins(
    model: Model,
    policy: Floats,
    baseline: Floats,
    *,
    baseline_v: Floats,
    worst_reward: Floats,
    least: Floats,
    zeta: Floats,
    delta: float,
) -> list[HazardMargin]:
    """Hazard margin of every objective.

    Args:
        model: Estimated model.
        policy: π, shape [X, A].
        baseline: π_b, shape [X, A].
        baseline_v: v^{π_b} in the model, shape [d, X].
        worst_reward: Smallest reward of the declared ranges, else of the log, shape [d].
        least: Lower bounds on the gains, shape [d].
        zeta: ζ, shape [d].
        delta: δ.
    """
    mdp = model.mdp
    visited = np.unique(mdp.pair_state)
    found = []
    for k, gamma in enumerate(mdp.discount.tolist()):
        alike = replace(mdp, discount=np.full_like(mdp.discount, gamma))
        played, before = (
            occupancy(alike, table)[mdp.pair_state] * table.take(mdp.pair_index) for table in (policy, baseline)
        )
        more = played - before
        raised = more > RAISED * max(float(before.sum()), 1.0)
        v = baseline_v[k][visited]
        size = float(v.max() - (float(worst_reward[k]) + gamma * min(float(v.min()), 0.0)))
        extra, visits = float(more[raised].sum()), int(model.counts[raised].sum())
        room = max(float(least[k] + zeta[k]), 0.0)
        found.append(
            HazardMargin(
                size=size,
                rate=room / (size * extra) if size > 0.0 and extra > 0.0 else float("inf"),
                excluded=1.0 - delta ** (1.0 / visits) if visits else 1.0,
                visits=visits,
                pairs=int(np.count_nonzero(raised)),
                extra=extra,
                most=_named(model, np.where(raised, more, 0.0)),
            )
        )
    return found


def _named(model: Model, more: Floats) -> tuple[RaisedPair, ...]:
    """The pairs with the most additional decisions ``more`` [pairs], 0 for those that are not raised."""
    mdp = model.mdp
    order = [pair for pair in np.argsort(-more, kind="stable")[:MOST_PAIRS].tolist() if more[pair] > 0.0]
    return tuple(
        RaisedPair(
            state=str(model.state_labels[mdp.pair_state[pair]]),
            action=str(model.action_labels[mdp.pair_action[pair]]),
            extra=float(more[pair]),
            visits=int(model.counts[pair]),
        )
        for pair in order
    )
