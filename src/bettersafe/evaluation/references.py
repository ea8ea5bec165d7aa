"""Simple policies to compare with: is a policy better than what anybody could do without a method?

    uniform                every action that the baseline takes in a state, equally often
    most frequent action   the action that the baseline takes most often in a state (of equals, the first)

The logged practice is the third: its return is in every table of estimates. Both returns are estimated by `drl` on the log at hand, so
they are as good as the log covers these policies: "most frequent action" stays near the baseline, "uniform" may be far from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import numpy as np

from bettersafe.evaluation.evaluate import evaluate_policy
from bettersafe.logs.dataset import user_sign
from bettersafe.logs.episodes import n_units

if TYPE_CHECKING:
    from bettersafe.typing import Floats, Log, Rng


class ReferenceRow(TypedDict):
    """Return of a simple policy on one objective, in the sign of the log."""

    policy: str
    objective: str
    value: float
    low: float
    high: float
    level: float
    usable: bool
    trust: str


def reference_policies(baseline: Floats) -> dict[str, Floats]:
    """The simple policies by name, each of shape [X, A]; ``baseline`` is π_b, shape [X, A]."""
    taken = baseline > 0.0
    return {
        "uniform": taken / taken.sum(axis=1, keepdims=True),
        "most frequent action": np.eye(baseline.shape[1])[baseline.argmax(axis=1)],
    }


def reference_rows(
    data: Log, baseline: Floats, *, delta: float, interval: str = "t", rng: Rng = 0, horizon: int | None = None
) -> list[ReferenceRow]:
    """Returns of the simple policies, one row per policy and objective; none if there are too few episodes for two folds.

    Args:
        data: Log of the baseline.
        baseline: π_b, shape [X, A].
        delta: δ; the level of the intervals is 1 − δ.
        interval: "t", "bootstrap" or "bca".
        rng: Seed or generator of the folds.
        horizon: Number of steps H of the returns; None for no limit.
    """
    rows: list[ReferenceRow] = []
    if n_units(data) < 2:
        return rows
    for name, policy in reference_policies(baseline).items():
        found = evaluate_policy(data, policy, baseline, estimator="drl", rng=rng, horizon=horizon)
        low, high = found.interval(delta, method=interval)
        for k, objective in enumerate(data.objectives):
            edges = [user_sign(objective, float(edge[k])) for edge in (low, high)]
            rows.append(
                {
                    "policy": name,
                    "objective": objective.name,
                    "value": user_sign(objective, float(found.value[k])),
                    "low": min(edges),
                    "high": max(edges),
                    "level": 1.0 - delta,
                    "usable": not found.doubts,
                    "trust": found.trust,
                }
            )
    return rows
