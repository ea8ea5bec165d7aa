"""One-sided lower bounds on a mean from independent terms, at level δ: P(bound ≤ mean) ≥ 1 − δ.

There are two grades. *Approximate*: Student t, skew and the bootstrap. They need many terms, t and the bootstrap without strong
skewness, and may fail more often than δ. *Finite-sample*: Hoeffding, empirical Bernstein, Anderson (with the DKW band) and betting. They hold for
every n if the terms are independent and never below a known ``low``. Importance-weighted terms have a long upper tail, which
may be truncated at a ``cap`` chosen without these terms, because truncation from above can only lower the mean. With
Y = (min(X, cap) − low) / (cap − low) in [0, 1]:

    hoeffding   Ȳ − √( ln(1/δ) / 2n )
    bernstein   Ȳ − √( 2 s² ln(2/δ) / n ) − 7 ln(2/δ) / (3(n−1))       (Maurer & Pontil; Thomas et al. 2015, Theorem 1)
    anderson    ∫ max(0, 1 − F̂(y) − ε) dy,  ε = √( ln(1/δ) / 2n )       (one-sided DKW, Massart; δ ≤ 1/2)
    betting     sup{ m : max_t Π_{i≤t} (1 + λ_i (Y_i − m)) ≥ 1/δ }       (Waudby-Smith & Ramdas; Ville's inequality)

    t           X̄ − t_{1−δ, n−1} s / √n                                 (the published code divides by √(n−1))
    skew        X̄ − θ ( G_a^{-1}(1−δ) − a + 1 ),  G_a the gamma distribution of shape a, θ = κ/q, a = q/θ²
                q = s²/n + (M/n)²,  κ = Σ (X̄ − X_i)³/n³ + (M/n)³,  M = X̄ − (smallest term)
    bootstrap   the δ quantile of resampled means;   bca: its bias-corrected, accelerated form

skew is for terms of which a few large losses carry the variance: it counts one more of the largest, as the exact bound on a rate does.
Of k losses of equal size it is that bound (Poisson; with several sizes much like Fay & Feuer 1997), and for large a it is t, with a
correction for skewness. a is about the number of large losses. What has never been seen it can't know, unless ``low`` says so.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe.errors import ParameterError, as_numbers, check_choice, check_integer, check_risk, per_objective
from bettersafe.evaluation.facts import BOUNDS
from bettersafe.typing import generator

if TYPE_CHECKING:
    from bettersafe.typing import Floats, Ints, Rng

RESAMPLES = 4_000
"""Resamples of the bootstrap; the Monte-Carlo error of the level is about 0.3 % at δ = 0.05."""

MANY_LOSSES = 50.0
"""Effective number of large losses from which t is good enough; below it, t at 0.1 fails in 0.12 or more."""

LARGEST_BET = 0.75
"""Largest share of the capital in one bet (λ ≤ LARGEST_BET / m)."""


def lower_bound(
    terms: npt.ArrayLike,
    delta: float,
    *,
    method: str,
    low: npt.ArrayLike | None = None,
    cap: npt.ArrayLike | None = None,
    rng: Rng = 0,
) -> Floats:
    """Lower bounds on the means of d columns of terms, each at level δ, shape [d].

    Args:
        terms: Independent terms, shape [n, d].
        delta: δ of each bound; divide it by d if all bounds must hold together.
        method: Name of the bound, a key of `bettersafe.evaluation.BOUNDS`.
        low: Smallest possible value of the terms, shape [d]; for finite-sample bounds. For skew, a value that other terms have had,
            if one is known.
        cap: Upper truncation level of the terms, shape [d], chosen without these terms (`choose_cap`), or their largest possible
            value; for finite-sample bounds.
        rng: Seed or generator for the bootstrap; with a seed, all columns are resampled alike.

    Returns:
        The bounds; ``-inf`` if n is too small.

    Examples:
        >>> terms = np.random.default_rng(0).normal(1.0, 2.0, size=(500, 1))
        >>> bettersafe.lower_bound(terms, 0.05, method="t").round(2)
        array([0.8])
    """
    check_choice("bound", method, BOUNDS)
    check_risk(delta)
    values = as_numbers("terms", terms)
    if values.ndim != 2:
        raise ParameterError(f"terms must have shape [n, d]; got {values.shape}.")
    if not np.all(np.isfinite(values)):
        raise ParameterError("terms must be finite.")
    n, d = values.shape
    generator(rng)
    for name, edge in (("low", low), ("cap", cap)):
        if edge is not None:
            per_objective(name, edge, d)
    if n < 2:
        return np.full(d, -np.inf)
    if method == "t":
        return _student(values, delta)
    if method == "skew":
        return _skew(values, delta, low)
    if not BOUNDS[method].finite_sample:
        return np.array([_bootstrap(column, delta, method, rng) for column in values.T])
    if low is None or cap is None:
        raise ParameterError(
            f"the bound {method!r} needs the smallest value of the terms (low) and their truncation level (cap);"
            " without them use 't' or 'bca', which are approximate."
        )
    least, most = per_objective("low", low, d), per_objective("cap", cap, d)
    if np.any(values < least - 1e-9 * np.maximum(np.abs(least), 1.0)):
        i, k = np.argwhere(values < least)[0]
        raise ParameterError(
            f"term {i} of objective {k} is {values[i, k]:.6g}, below the stated smallest value {least[k]:.6g}."
        )
    result = np.full(d, -np.inf)
    for k in np.flatnonzero(np.isfinite(least)):
        width = most[k] - least[k]
        if not np.isfinite(width):
            continue
        if width <= 0.0:
            result[k] = least[k]
            continue
        unit = np.clip((values[:, k] - least[k]) / width, 0.0, 1.0)
        result[k] = least[k] + width * max(_unit_bound(unit, delta, method), 0.0)
    return result


def by_unit(terms: Floats, units: Ints | None) -> Floats:
    """Independent terms with the same mean from terms [n, d] of episodes, one for each of U sampling units, shape [U, d].

        Y_u = X̄ + (U/n) Σ_{i in u} (X_i − X̄)

    Their standard error is that of the mean over units of different sizes (a ratio), linearised. Without units, the terms.
    """
    if units is None:
        return terms
    of_episode = np.unique(units, return_inverse=True)[1]
    mean = terms.mean(axis=0)
    size = int(of_episode.max()) + 1
    summed = np.stack([np.bincount(of_episode, weights=column, minlength=size) for column in (terms - mean).T], axis=1)
    return np.asarray(mean + size / terms.shape[0] * summed)


def large_losses(terms: Floats, low: npt.ArrayLike | None = None) -> Floats:
    """Effective number of large losses among terms [n, d], shape [d]: a of the bound "skew"; infinite without skewness to losses."""
    scale, q = _loss_scale(terms, low)
    return np.asarray(np.divide(q, scale**2, out=np.full(q.shape, np.inf), where=scale > 0.0))


def _loss_scale(values: Floats, low: npt.ArrayLike | None) -> tuple[Floats, Floats]:
    """θ and q of the bound "skew", each of shape [d]."""
    n = values.shape[0]
    loss = values.mean(axis=0) - values
    most = loss.max(axis=0)
    if low is not None:
        most = np.maximum(most, values.mean(axis=0) - np.asarray(low, dtype=np.float64))
    unit = np.where(most > 0.0, most, 1.0)  # so that cubes of small terms don't vanish
    loss, one = loss / unit, np.where(most > 0.0, 1.0, 0.0)
    q = (loss**2).sum(axis=0) / (n - 1) / n + (one / n) ** 2
    third = (loss**3).sum(axis=0) / n**3 + (one / n) ** 3
    scale = np.divide(third, q, out=np.zeros_like(q), where=q > 0.0)
    return np.maximum(scale, 0.0) * unit, q * unit**2


def _student(values: Floats, delta: float) -> Floats:
    from scipy import stats

    n = values.shape[0]
    spread = values.std(axis=0, ddof=1)
    return np.asarray(values.mean(axis=0) - float(stats.t.ppf(1.0 - delta, n - 1)) * spread / math.sqrt(n))


def _skew(values: Floats, delta: float, low: npt.ArrayLike | None) -> Floats:
    """The bound "skew", and never more than t."""
    from scipy import stats

    scale, q = _loss_scale(values, low)
    shape = np.divide(q, scale**2, out=np.full(q.shape, np.inf), where=scale > 0.0)
    student = _student(values, delta)
    some = shape < 1e8  # beyond, the gamma distribution is normal to eight digits
    a = np.where(some, shape, 1.0)
    width = scale * (stats.gamma.ppf(1.0 - delta, a) - a + 1.0)
    degrees = float(stats.t.ppf(1.0 - delta, values.shape[0] - 1) / stats.norm.ppf(1.0 - delta)) if delta < 0.5 else 1.0
    return np.where(some, np.minimum(values.mean(axis=0) - max(degrees, 1.0) * width, student), student)


def choose_cap(
    terms: npt.ArrayLike,
    delta: float,
    *,
    method: str,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    n_later: int,
) -> Floats:
    """Truncation level chosen on *other* terms: the cap with the largest expected bound at the later sample's size.

    Args:
        terms: Terms that the bound will not use, shape [m, d].
        delta: δ of the bound.
        method: Name of the bound.
        low: Smallest possible value of the terms, shape [d].
        high: Largest possible value of the terms, shape [d]; may be inf.
        n_later: Number of terms that the bound will have.

    Examples:
        >>> from bettersafe.evaluation import choose_cap
        >>> returns = np.random.default_rng(0).exponential(1.0, size=(1000, 1))
        >>> earlier, terms = returns[:500], returns[500:]
        >>> cap = choose_cap(earlier, 0.05, method="bernstein", low=0.0, high=np.inf, n_later=500)
        >>> bool(bettersafe.lower_bound(terms, 0.05, method="bernstein", low=0.0, cap=cap)[0] > 0.6)
        True
    """
    check_choice("bound", method, BOUNDS)
    check_risk(delta)
    values = as_numbers("terms", terms)
    if values.ndim != 2:
        raise ParameterError(f"terms must have shape [n, d]; got {values.shape}.")
    d = values.shape[1]
    if not np.all(np.isfinite(values)):
        raise ParameterError("terms must be finite.")
    check_integer("n_later", n_later, least=1)
    least, most = per_objective("low", low, d), per_objective("high", high, d)
    caps = np.empty(d)
    for k in range(d):
        column = values[:, k]
        if not np.isfinite(least[k]):  # there is no bound
            caps[k] = most[k]
            continue
        choices = np.unique(np.quantile(column, (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 1.0)))
        choices = np.unique(np.minimum(np.concatenate([choices, choices * 2.0 - least[k]]), most[k]))
        choices = choices[choices > least[k]]
        if choices.size == 0:
            caps[k] = least[k] + 1.0
            continue
        scores = [
            _expected_bound(np.minimum(column, cap) - least[k], cap - least[k], delta, method, n_later)
            for cap in choices
        ]
        caps[k] = choices[int(np.argmax(scores))]
    return caps


def _expected_bound(above: Floats, width: float, delta: float, method: str, n: int) -> float:
    """Approximate bound on n terms distributed like these (≥ 0, truncated at ``width``)."""
    mean, variance = float(above.mean()), float(above.var(ddof=1)) if above.size > 1 else width**2 / 4.0
    if method == "hoeffding":
        return mean - width * math.sqrt(math.log(1.0 / delta) / (2.0 * n))
    if method == "anderson":
        return _anderson(above, _band(delta, n))
    linear = 7.0 / 3.0 if method == "bernstein" else 1.0
    return (
        mean
        - math.sqrt(2.0 * variance * math.log(2.0 / delta) / n)
        - linear * width * math.log(2.0 / delta) / max(n - 1, 1)
    )


def _bootstrap(column: Floats, delta: float, method: str, rng: Rng) -> float:
    from scipy import stats

    mean = float(column.mean())
    if float(column.std()) <= 1e-15 * max(abs(mean), 1e-300):
        return mean  # equal terms: resampling gives the mean (and SciPy's BCa gives NaN)
    answer = stats.bootstrap(
        (column,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=1.0 - delta,
        alternative="greater",
        method="BCa" if method == "bca" else "percentile",
        vectorized=True,
        batch=max(1, 4_000_000 // column.size),
        rng=generator(rng),
    )
    return float(answer.confidence_interval.low)


def _unit_bound(y: Floats, delta: float, method: str) -> float:
    """Finite-sample lower bound on the mean of independent terms in [0, 1], shape [n]."""
    n = y.size
    if method == "hoeffding":
        return float(y.mean()) - math.sqrt(math.log(1.0 / delta) / (2.0 * n))
    if method == "bernstein":
        log_term = math.log(2.0 / delta)
        return float(y.mean()) - math.sqrt(2.0 * float(y.var(ddof=1)) * log_term / n) - 7.0 * log_term / (3.0 * (n - 1))
    if method == "anderson":
        return _anderson(y, _band(delta, n))
    return _betting(y, delta)


def _band(delta: float, n: int) -> float:
    """Half-width of the one-sided DKW band; Massart's constant holds up to δ = 1/2."""
    return math.sqrt(math.log(1.0 / min(delta, 0.5)) / (2.0 * n))


def _anderson(y: Floats, band: float) -> float:
    """∫ max(0, 1 − F̂ − ε): between the sorted terms y_(i) and y_(i+1), F̂ = i/n."""
    edges = np.concatenate([[0.0], np.sort(y)])
    height = np.maximum(1.0 - np.arange(y.size) / y.size - band, 0.0)
    return float(height @ np.diff(edges))


def _betting(y: Floats, delta: float) -> float:
    """Largest m for which betting refutes "the mean is at most m": the capital reaches 1/δ at some time.

    Bets are λ_i = √( 2 ln(1/δ) / (n σ̂²_{i−1}) ), from the terms before i only, and at most LARGEST_BET/m. For such bets the
    capital decreases in m, so bisection finds the largest m.
    """
    n = y.size
    before = np.arange(n)
    # running mean and variance with a prior of 1/2 and 1/4, with the weight of one term
    running_mean = (0.5 + np.cumsum(y)) / (before + 2.0)
    squares = np.concatenate([[0.0], np.cumsum((y - running_mean) ** 2)[:-1]])
    bets = np.sqrt(2.0 * math.log(1.0 / delta) * (before + 1.0) / (n * (0.25 + squares)))

    def refuted(m: float) -> bool:
        stakes = np.minimum(bets, LARGEST_BET / m)
        capital = np.cumsum(np.log1p(stakes * (y - m)))
        return bool(np.max(capital) >= math.log(1.0 / delta))

    low, high = 0.0, 1.0
    for _ in range(40):  # to 1e-12
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
