"""How many more episodes would decide, if the estimates stay as they are.

The standard deviation of an estimated gain falls as 1/√n. With t times as many episodes and the same estimates, the distance of a gain
g_k from −ζ_k grows from z_k = (g_k + ζ_k) / sd_k to z_k √t standard deviations. The shift between a neutral and a pessimistic prior is
that of a fixed number of visits, so it falls as 1/n. A posterior then passes at the smallest t with

    Σ_k Φ( −( z_k √t − b_k / √t ) ) ≤ δ        b_k = z_k − Φ^{-1}( P(k does not lose | pessimistic prior) ), at least 0; 0 without it

and a test, whose lower bound is w_k below its estimate, at t = max_k ( w_k / (g_k + ζ_k) )². For one objective both are the usual
t = ( z_{1−δ} sd / (g + ζ) )². Where an estimate is at or below −ζ_k, no t is enough.

It is no promise: the estimates will move. If they are unbiased, with t times as many episodes about one half of such policies passes if
one objective is close to its boundary, and about a third if two are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from bettersafe.posterior.rule import allowed_risk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.certificate.certificate import Certificate

MOST_TIMES = 20.0
"""Largest factor that is given as a number of episodes; beyond it an extrapolation is worth nothing."""

LEAST_TIMES = 1.05
"""Smallest factor: the log at hand was not enough."""

_NORMAL = NormalDist()


@dataclass(frozen=True, kw_only=True)
class MoreData:
    """About how many more episodes would decide.

    Attributes:
        factor: t, episodes needed per episode at hand; infinite if more episodes are not expected to change the verdict.
        episodes: Additional episodes, two significant digits; None if t is above `MOST_TIMES` or the number at hand is unknown.
        objective: Title of the objective that decides.
        held_out: Whether the episodes are those of a test, not of the log that the policy is made from.
    """

    factor: float
    episodes: int | None
    objective: str
    held_out: bool

    @property
    def sentence(self) -> str:
        """About how many more episodes would decide, in words."""
        kind = "held-out episodes" if self.held_out else "episodes"
        if math.isinf(self.factor):
            return f"More {kind} of the same kind are not expected to change this: by the estimate, the policy loses on {self.objective}."
        if self.factor > MOST_TIMES:
            return f"If the estimates stay as they are, more than {MOST_TIMES:g} times as many {kind} are needed to decide."
        if self.episodes is None:
            return f"If the estimates stay as they are, about {self.factor:.2g} times as many {kind} would decide."
        return f"If the estimates stay as they are, about {self.episodes:,} more {kind} would decide."


def more_data(certificate: Certificate) -> MoreData | None:
    """About how many more episodes would decide; None if the policy passes, or the reason is not a lack of episodes.

    The reason is another one if the data does not cover the policy, if only a threshold may be missed, or if the bounds are those of
    the counts alone. The numbers follow from the certificate's own: standard deviations from estimates and lower bounds at their
    levels, probabilities under pessimistic priors from its first belief.

    Args:
        certificate: Certificate of a policy that does not pass.
    """
    found = certificate.findings
    believed = all(belief.passes(certificate.delta) for belief in certificate.beliefs[:1])
    if certificate.evidence == "theory" or not certificate.tells:
        return None
    if believed and all(finding.passed for finding in found):
        return None
    room = [finding.estimate + finding.zeta for finding in found]
    width = [finding.estimate - finding.lower_bound for finding in found]
    if not all(math.isfinite(each) for each in (*room, *width)):
        return None
    if certificate.beliefs:
        k, factor = _posterior_factor(certificate, room, width)
    else:
        k = max(range(len(found)), key=lambda k: _times(room[k], width[k]))
        factor = _times(room[k], width[k])
    if math.isnan(factor):
        return None
    factor = max(factor, LEAST_TIMES)
    there = int((certificate.data.get("tested_on") or certificate.data.get("made_from") or {}).get("episodes", 0))
    return MoreData(
        factor=factor,
        episodes=_two_digits((factor - 1.0) * there) if there and factor <= MOST_TIMES else None,
        objective=found[k].title,
        held_out=certificate.by_test,
    )


def _times(room: float, width: float) -> float:
    """Factor t of one objective of a test: (w / room)²; 0 if the bound is at the estimate, infinite without room."""
    if width <= 0.0 and room >= 0.0:
        return 0.0
    return (width / room) ** 2 if room > 0.0 else math.inf


def _posterior_factor(certificate: Certificate, room: Sequence[float], width: Sequence[float]) -> tuple[int, float]:
    """Index of the objective that decides and t; t is NaN if δ is too large for a standard deviation from the bound."""
    belief = certificate.beliefs[0]
    normal = _NORMAL.inv_cdf(1.0 - certificate.findings[0].level)
    if normal <= 0.0:
        return 0, math.nan
    z = [_in_sds(one, wide / normal) for one, wide in zip(room, width, strict=True)]
    k = min(range(len(z)), key=lambda k: z[k])
    if z[k] <= 0.0:
        return k, math.inf
    shift = [0.0] * len(z)
    if belief.p_pessimistic:
        k = min(range(len(z)), key=lambda k: belief.p_pessimistic[k])
        seen = (max(one - _quantile(p, belief.draws), 0.0) for one, p in zip(z, belief.p_pessimistic, strict=True))
        shift = [0.0 if math.isinf(each) else each for each in seen]
    most = allowed_risk(belief.draws, certificate.delta)
    if most <= 0.0:
        return k, math.nan
    low, high = 1.0, 2.0 * MOST_TIMES
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _risk_with(z, shift, middle) > most else (low, middle)
    return k, high


def _risk_with(z: Sequence[float], shift: Sequence[float], times: float) -> float:
    """Σ_k Φ(−(z_k √t − b_k/√t))."""
    root = math.sqrt(times)
    return sum(_NORMAL.cdf(-(one * root - b / root)) for one, b in zip(z, shift, strict=True))


def _in_sds(room: float, sd: float) -> float:
    """Room in standard deviations; an objective that no policy changes has neither, and is safe."""
    if sd <= 0.0:
        return math.inf if room >= 0.0 else -math.inf
    return room / sd


def _quantile(p: float, draws: int) -> float:
    """Φ^{-1}(p), for a share of draws with Laplace smoothing; NaN counts as even chances."""
    if math.isnan(p):
        return 0.0
    smoothed = (p * draws + 1.0) / (draws + 2.0) if draws else min(max(p, 1e-9), 1.0 - 1e-9)
    return _NORMAL.inv_cdf(smoothed)


def _two_digits(value: float) -> int:
    """Rounded up to two significant digits, at least 1."""
    if value <= 1.0:
        return 1
    step = 10.0 ** max(math.floor(math.log10(value)) - 1, 0)
    return int(math.ceil(value / step - 1e-9) * step)
