"""Passing rule of B-OPT (`posterior.judge`), for shares of draws or probabilities; few imports, because certificates use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.typing import Floats


def draw_error(share: float, draws: int) -> float:
    """Monte-Carlo standard error of a share of draws, with Laplace smoothing: it is positive even if no draw failed."""
    smoothed = (share * draws + 1.0) / (draws + 2.0)
    return float(np.sqrt(smoothed * (1.0 - smoothed) / (draws + 2.0)))


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
    allowed = (delta * (draws + 1) - 1.0 if draws else delta) + 1e-9
    return bool(failures <= allowed and pessimistic <= allowed)
