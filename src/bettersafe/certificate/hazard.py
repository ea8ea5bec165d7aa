"""Hazard margins: how often a harm that the log has not shown would have to occur to overturn a verdict.

What a log has never shown can't be learnt from it. If every decision that the policy makes more often than the baseline caused a harm
of size L with probability h, objective k would lose

    h L U,    U = Σ_{x,a} ( ν^π(x) π(a|x) − ν^b(x) π_b(a|x) )₊        extra discounted decisions, in the estimated model

and its lower bound l_k would reach −ζ_k at the rate h* = (l_k + ζ_k) / (L U), the *hazard margin*. The log has n of these decisions.
A harm of rate h stays unseen in all of them with probability (1 − h)^n, so rates up to 1 − δ^{1/n} can't be excluded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.mdp.values import occupancy

if TYPE_CHECKING:
    from bettersafe.model import Model
    from bettersafe.typing import Floats

RAISED = 1e-9
"""Smallest increase of discounted visits that counts."""


@dataclass(frozen=True, kw_only=True)
class HazardMargin:
    """Hazard margin of one objective.

    Attributes:
        size: L, from the best value of a state to the smallest reward and the worst value after it, in units of return.
        rate: h*, per decision that the policy makes more often; infinite if there is none.
        excluded: Rates above this would have been seen in the log with probability 1 − δ.
        visits: Logged visits n of these decisions.
        pairs: Number of (state, action) pairs of these decisions.
    """

    size: float
    rate: float
    excluded: float
    visits: int
    pairs: int

    @property
    def covered(self) -> bool:
        """Whether the log excludes every harm of this size that would overturn the verdict."""
        return self.rate >= self.excluded


def hazard_margins(
    model: Model,
    policy: Floats,
    baseline: Floats,
    *,
    baseline_v: Floats,
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
        size = float(v.max() - (mdp.reward[k].min() + gamma * min(float(v.min()), 0.0)))
        extra, visits = float(more[raised].sum()), int(model.counts[raised].sum())
        room = max(float(least[k] + zeta[k]), 0.0)
        found.append(
            HazardMargin(
                size=size,
                rate=room / (size * extra) if size > 0.0 and extra > 0.0 else float("inf"),
                excluded=1.0 - delta ** (1.0 / visits) if visits else 1.0,
                visits=visits,
                pairs=int(np.count_nonzero(raised)),
            )
        )
    return found
