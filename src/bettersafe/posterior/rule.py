"""When a policy passes: the rule of B-OPT, from shares of draws or from probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.typing import Floats


def draw_error(share: float, draws: int) -> float:
    """Monte-Carlo standard error of a share of draws, by Laplace's rule: that none of M failed does not mean that none would."""
    smoothed = (share * draws + 1.0) / (draws + 2.0)
    return float(np.sqrt(smoothed * (1.0 - smoothed) / (draws + 2.0)))


def posterior_passes(p_safe: float, p_pessimistic: Sequence[float] | Floats, draws: int, delta: float) -> bool:
    """The rule at the top of this module, from shares of draws, or by linearisation (0 draws); NaN does not pass."""
    times = draws or 1
    failures = times * (1.0 - p_safe)
    dark = times * sum(1.0 - float(p) for p in p_pessimistic)
    allowed = (delta * (draws + 1) - 1.0 if draws else delta) + 1e-9
    return bool(failures <= allowed and dark <= allowed)
