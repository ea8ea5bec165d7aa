"""Candidates: policies with their posterior probabilities, from draws of the process or by linearisation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.rule import draw_error, posterior_passes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.posterior.priors import Posterior
    from bettersafe.typing import Floats


CERTAIN = 1e-140
"""Standard deviations up to this are 0 but for rounding."""

NORMAL_POINTS = 2048
"""Points of the integration rule for P(safe) of several objectives in the linearised form."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A policy with its posterior probabilities.

    Attributes:
        name: Description of the policy.
        policy: π, shape [X, A].
        gain: Posterior mean of J_k(π) − J_k(π_b) under the neutral prior, shape [d].
        least: δ quantile of the gain, shape [d]: the gain is at least this with probability 1 − δ.
        interval: Central interval of the gain at level 1 − δ, shape [2, d].
        p_safe: P(no objective loses more than ζ | D) under the neutral prior.
        p_objective: P(objective k does not lose more than ζ_k | D) under the neutral prior, shape [d].
        p_pessimistic: P(objective k does not lose more than ζ_k | D) under the prior that is pessimistic for k, shape [d]; NaN if
            not computed, because the candidate had failed before or a better one had passed.
        error: Monte-Carlo standard error of ``p_safe``.
        draws: Number of draws: M, fewer if the candidate could no longer pass (the probabilities are then slightly too low), or 0
            if the probabilities are from the linearised form, which may have ruled the candidate out.
        passed: Whether the candidate passes the rule.
        optimism: What was taken off the gains, because the log that evaluates the policy also made it, shape [d]; None if nothing.
        optimism_error: Standard error of ``optimism``, shape [d].
    """

    name: str
    policy: Floats
    gain: Floats
    least: Floats
    interval: Floats
    p_safe: float
    p_objective: Floats
    p_pessimistic: Floats
    error: float
    draws: int
    passed: bool
    optimism: Floats | None = None
    optimism_error: Floats | None = None


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Linearised gains of C policies; arrays have shape [C, d] except for the covariance.

    Attributes:
        gain: Mean of J_k(π) − J_k(π_b) under the neutral prior.
        covariance: Covariance of the gains under the neutral prior, shape [C, d, d].
        pessimistic_gain: Mean under the prior that is pessimistic for k; +inf if there is none.
        pessimistic_sd: Standard deviation under that prior.
    """

    gain: Floats
    covariance: Floats
    pessimistic_gain: Floats
    pessimistic_sd: Floats

    def corrected(self, shift: Floats, covariance: Floats, widening: Floats) -> Spread:
        """Without the optimism ``shift`` [C, d], wider by factors [d], and with the covariance [C, d, d] of what the posterior does not know."""
        more = np.diagonal(covariance, axis1=1, axis2=2)
        return Spread(
            gain=self.gain - shift,
            covariance=np.outer(widening, widening) * self.covariance + covariance,
            pessimistic_gain=self.pessimistic_gain - shift,
            pessimistic_sd=np.sqrt((widening * self.pessimistic_sd) ** 2 + more),
        )

    @property
    def sd(self) -> Floats:
        """Standard deviation of gains under the neutral prior, shape [C, d]."""
        return np.asarray(np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=1, axis2=2), 1e-300)))


def linearised_spread(
    policies: Floats, baseline: Floats, neutral: Posterior, pessimistic: Sequence[Posterior]
) -> Spread:
    """Means and covariances of gains to first order; ``policies`` has shape [C, X, A], posteriors are those of `informed_priors`."""
    mean, covariance = linearised_gains(neutral, policies, baseline)
    pessimistic_mean, pessimistic_sd = np.full(mean.shape, np.inf), np.ones(mean.shape)
    for k, posterior in enumerate(pessimistic):
        one_mean, one_covariance = linearised_gains(posterior, policies, baseline, objectives=[k])
        pessimistic_mean[:, k] = one_mean[:, 0]
        pessimistic_sd[:, k] = np.sqrt(np.maximum(one_covariance[:, 0, 0], 1e-300))
    return Spread(gain=mean, covariance=covariance, pessimistic_gain=pessimistic_mean, pessimistic_sd=pessimistic_sd)


def linearised_candidates(
    names: Sequence[str], policies: Sequence[Floats], spread: Spread, zeta: Floats, delta: float
) -> list[Candidate]:
    """Candidates from linearised gains, taken as jointly normal (`normal_p_safe`)."""
    from scipy.special import ndtri

    each = normal_chance(spread.gain + zeta, spread.sd)
    pessimistic = normal_chance(spread.pessimistic_gain + zeta, spread.pessimistic_sd)
    half = ndtri(1.0 - delta / 2.0) * spread.sd
    p_safe = [normal_p_safe(*each, zeta) for each in zip(spread.gain, spread.covariance, strict=True)]
    return [
        Candidate(
            name=name,
            policy=policies[i],
            gain=spread.gain[i],
            least=spread.gain[i] - ndtri(1.0 - delta) * spread.sd[i],
            interval=np.array([spread.gain[i] - half[i], spread.gain[i] + half[i]]),
            p_safe=p_safe[i],
            p_objective=each[i],
            p_pessimistic=pessimistic[i],
            error=0.0,
            draws=0,
            passed=posterior_passes(p_safe[i], pessimistic[i], 0, delta),
        )
        for i, name in enumerate(names)
    ]


def drawn_candidate(name: str, policy: Floats, gains: Floats, zeta: Floats, delta: float) -> Candidate:
    """Candidate from its drawn gains [m, d] under the neutral prior."""
    ok = gains >= -zeta
    p_safe = float(np.mean(np.all(ok, axis=1)))
    return Candidate(
        name=name,
        policy=policy,
        gain=gains.mean(axis=0),
        least=np.quantile(gains, delta, axis=0, method="lower"),
        interval=np.quantile(gains, [delta / 2.0, 1.0 - delta / 2.0], axis=0),
        p_safe=p_safe,
        p_objective=np.mean(ok, axis=0),
        p_pessimistic=np.full(zeta.size, np.nan),
        error=draw_error(p_safe, ok.shape[0]),
        draws=ok.shape[0],
        passed=False,
    )


def with_pessimistic(candidate: Candidate, p_pessimistic: Floats, draws: int, delta: float) -> Candidate:
    """The candidate with its probabilities under the pessimistic priors [d]; it can pass only with all draws."""
    return replace(
        candidate,
        p_pessimistic=p_pessimistic,
        passed=candidate.draws == draws and posterior_passes(candidate.p_safe, p_pessimistic, draws, delta),
    )


def normal_chance(above: Floats | float, sd: Floats | float) -> Any:
    """P(g ≥ 0) for g ~ N(above, sd²); without a standard deviation, whether ``above`` is at least 0.

    The gain of an objective that no policy changes is 0 with a standard deviation of 0: it is safe, not undecided.
    """
    from scipy.special import ndtr

    above, sd = np.asarray(above, dtype=np.float64), np.asarray(sd, dtype=np.float64)
    certain = sd <= CERTAIN
    return np.where(certain, above >= 0.0, ndtr(above / np.where(certain, 1.0, sd)))


def normal_p_safe(gain: Floats, covariance: Floats, zeta: Floats) -> float:
    """P(g ≥ −ζ in every objective) for g ~ N(gain [d], covariance [d, d]), accurate to about 0.001.

    Sequential conditioning (Genz 1992), least probable objective first, on the folded Richtmyer sequence {i √p_k} with p_k the
    k-th prime: deterministic points, and no slow import.
    """
    from scipy.special import ndtr, ndtri

    all_sd = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    uncertain = np.flatnonzero(all_sd > CERTAIN)
    if np.any(np.delete(gain + zeta, uncertain) < 0.0):
        return 0.0
    if uncertain.size == 0:
        return 1.0
    sd, covariance = all_sd[uncertain], covariance[np.ix_(uncertain, uncertain)]
    height = (gain + zeta)[uncertain] / sd
    order = np.argsort(height, kind="stable")
    height = height[order]
    correlation = np.clip(covariance / np.outer(sd, sd), -1.0, 1.0)[np.ix_(order, order)]
    np.fill_diagonal(correlation, 1.0)
    # with perfectly correlated objectives the matrix is singular or, by rounding, indefinite; a small diagonal term fixes that
    short = 1e-9 - min(float(np.linalg.eigvalsh(correlation)[0]), 0.0)
    root = np.linalg.cholesky((correlation + short * np.eye(order.size)) / (1.0 + short))
    steps = np.sqrt(np.array(_primes(order.size), dtype=np.float64))
    uniform = np.abs(2.0 * (np.arange(1.0, NORMAL_POINTS + 1.0)[:, None] * steps % 1.0) - 1.0)
    chance, drawn = np.ones(NORMAL_POINTS), np.zeros((NORMAL_POINTS, order.size))
    for k in range(order.size):
        kept = ndtr((height[k] + drawn[:, :k] @ root[k, :k]) / root[k, k])
        chance *= kept
        drawn[:, k] = -ndtri(np.clip(uniform[:, k] * kept, 1e-300, 1.0 - 1e-16))
    return float(np.clip(chance.mean(), 0.0, 1.0))


def _primes(n: int) -> list[int]:
    """The first n primes."""
    found: list[int] = []
    number = 2
    while len(found) < n:
        if all(number % prime for prime in found):
            found.append(number)
        number += 1
    return found
