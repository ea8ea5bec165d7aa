"""Passing rule of B-OPT (`posterior.judge`), for shares of draws or probabilities; few imports, because certificates use it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.typing import Floats


def draw_error(share: float, draws: int) -> float:
    """Monte-Carlo standard error of a share of draws, with Laplace smoothing: it is positive even if no draw failed."""
    smoothed = (share * draws + 1.0) / (draws + 2.0)
    return float(np.sqrt(smoothed * (1.0 - smoothed) / (draws + 2.0)))


def allowed_risk(draws: int, delta: float) -> float:
    """Largest share of draws with a loss with which a policy passes: (δ (M + 1) − 1) / M; δ without draws."""
    return (delta * (draws + 1) - 1.0) / draws if draws else delta


def posterior_passes(p_safe: float, p_pessimistic: Sequence[float] | Floats, draws: int, delta: float) -> bool:
    """Whether a policy passes the rule.

    Args:
        p_safe: P(no objective loses more than ζ | D) under the neutral prior; a share of draws if ``draws`` is positive.
        p_pessimistic: P(objective k does not lose more than ζ_k | D) under the prior that is pessimistic for k; NaN does not pass.
        draws: Number of draws M; 0 for probabilities by linearisation.
        delta: δ.
    """
    times = draws or 1
    failures = times * (1.0 - p_safe)
    pessimistic = times * sum(1.0 - float(p) for p in p_pessimistic)
    allowed = times * allowed_risk(draws, delta) + 1e-9
    return bool(failures <= allowed and pessimistic <= allowed)


def probability(p: float, draws: int = 0) -> str:
    """Probability with two digits, rounded down and never certainty: 0.93, 0.995; "over 0.995" if it held in all of 200 draws."""
    if math.isnan(p):
        return "–"
    most = 0.999 if draws == 0 else math.floor(1000.0 * draws / (draws + 1)) / 1000.0
    if p > most or p >= 1.0:
        return f"over {most:g}"
    decimals = 1000.0 if p > 0.99 else 100.0
    return f"{math.floor(p * decimals + 1e-9) / decimals:g}"
