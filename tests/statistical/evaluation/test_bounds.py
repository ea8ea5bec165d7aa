"""Do the bounds fail as seldom as they say? Simulated failure rates on nasty distributions, each with a planted fault.

A right bound at level δ fails at most δ of the time. Over R repetitions the observed rate of a right program exceeds
δ + tolerance(R) with probability below 1e-6 (binomial tail); that is what is allowed.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bettersafe.evaluation import bounds
from bettersafe.evaluation.bounds import lower_bound
from bettersafe.evaluation.facts import BOUNDS, FINITE_SAMPLE

DELTA = 0.1


def allowed(repetitions, delta=DELTA):
    """Largest number of failures that a right program exceeds once in a million runs."""
    return int(stats.binom.ppf(1.0 - 1e-6, repetitions, delta))


def heavy_weights(rng, shape):
    """Importance-weighted returns: lognormal products with mean 1, times a return in [0, 1]; cut at 20."""
    return rng.lognormal(-0.5, 1.0, shape) * rng.beta(2.0, 2.0, shape)


WORLDS = {
    "bounded": (lambda rng, shape: rng.random(shape), 0.5, 1.0),
    "skewed": (lambda rng, shape: rng.beta(0.3, 6.0, shape), 0.3 / 6.3, 1.0),
    "rare": (lambda rng, shape: (rng.random(shape) < 0.03) * 1.0, 0.03, 1.0),
    "weights": (heavy_weights, 0.5, 20.0),
    "two-point": (lambda rng, shape: np.where(rng.random(shape) < 0.9, 0.55, 0.05), 0.5, 1.0),
}


def failures(method, world, n, repetitions, seed=0, delta=DELTA):
    draw, mean, cap = WORLDS[world]
    values = draw(np.random.default_rng(seed), (n, repetitions))
    return int(
        np.sum(
            lower_bound(values, delta, method=method, low=np.zeros(repetitions), cap=np.full(repetitions, cap)) > mean
        )
    )


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("n", [8, 60, 400])
@pytest.mark.parametrize("method", FINITE_SAMPLE)
def test_finite_sample_bounds_hold(method, world, n):
    repetitions = 1500
    assert failures(method, world, n, repetitions) <= allowed(repetitions)


@pytest.mark.parametrize("method", ["t", "bootstrap", "bca"])
def test_approximate_bounds_are_close_on_tame_terms_and_said_to_be_approximate(method):
    """On bounded terms with n = 200 the rate is near δ; nothing is promised elsewhere."""
    repetitions = 4000 if method == "t" else 250  # resampling is slow
    rate = failures(method, "bounded", 200, repetitions) / repetitions
    # 0.02 for the approximation, and the binomial tolerance of one in a million
    assert abs(rate - DELTA) <= 0.02 + 4.9 * np.sqrt(DELTA * (1.0 - DELTA) / repetitions)
    assert not BOUNDS[method].finite_sample


def test_student_t_fails_on_rare_events_where_betting_does_not():
    """Why the grade matters: rewards that are rarely lost (mean 0.97 from 1s and few 0s) fool the t interval."""
    rng = np.random.default_rng(3)
    repetitions, n = 3000, 20
    values = (rng.random((n, repetitions)) < 0.97) * 1.0
    t = int(np.sum(lower_bound(values, DELTA, method="t") > 0.97))
    safe = int(
        np.sum(lower_bound(values, DELTA, method="betting", low=np.zeros(repetitions), cap=np.ones(repetitions)) > 0.97)
    )
    assert t > allowed(repetitions)
    assert safe <= allowed(repetitions)


# Planted faults: the same test must catch a program that is wrong.


def test_catches_a_delta_that_was_not_divided():
    """d = 8 bounds that must hold together at δ: with δ/8 each they do; with δ each they fail far more often."""
    rng = np.random.default_rng(4)
    d, repetitions, n = 8, 1500, 200
    joint = {DELTA: 0, DELTA / d: 0}
    values = rng.random((n, d * repetitions))
    for delta in joint:
        fails = (lower_bound(values, delta, method="t") > 0.5).reshape(repetitions, d)
        joint[delta] = int(np.sum(fails.any(axis=1)))
    assert joint[DELTA / d] <= allowed(repetitions)
    assert joint[DELTA] > allowed(repetitions)


def test_catches_a_missing_square_root(monkeypatch):
    """1/n for 1/√n in Hoeffding's width."""

    def faulty(y, delta, method):
        return float(y.mean()) - np.log(1.0 / delta) / (2.0 * y.size)

    monkeypatch.setattr(bounds, "_unit_bound", faulty)
    assert failures("hoeffding", "bounded", 60, 1500) > allowed(1500)


def test_catches_a_wrong_square_in_bernstein(monkeypatch):
    """The variance for the standard deviation, and no linear term."""

    def faulty(y, delta, method):
        return float(y.mean()) - 2.0 * float(y.var(ddof=1)) * np.log(2.0 / delta) / y.size

    monkeypatch.setattr(bounds, "_unit_bound", faulty)
    assert failures("bernstein", "bounded", 60, 1500) > allowed(1500)


def test_catches_bets_that_see_the_future(monkeypatch):
    """A bettor who knows the mean of all terms beforehand breaks Ville's inequality."""

    def faulty(y, delta, method):
        grid = np.linspace(0.0, 1.0, 400)
        for m in grid[::-1]:
            stake = 0.75 / max(m, 1e-9) if y.mean() > m else 0.0
            if np.max(np.cumsum(np.log1p(stake * np.sort(y - m)[::-1]))) >= np.log(1.0 / delta):
                return float(m)
        return 0.0

    monkeypatch.setattr(bounds, "_unit_bound", faulty)
    assert failures("betting", "bounded", 20, 300) > allowed(300)


# Rare losses: the approximate bound for them, and when it takes the place of t.


def rare_losses(n, repetitions, seed=6):
    """Terms with an outcome of −10 in 0.5 % and noise of 0.3, [n, repetitions], and their mean."""
    rng = np.random.default_rng(seed)
    return -10.0 * (rng.random((n, repetitions)) < 0.005) + 0.3 * rng.normal(size=(n, repetitions)), -0.05


def test_skew_holds_where_a_rare_loss_decides_and_student_t_does_not():
    repetitions = 3000
    values, mean = rare_losses(1000, repetitions)
    assert np.sum(lower_bound(values, DELTA, method="skew") > mean) <= allowed(repetitions)
    assert np.sum(lower_bound(values, DELTA, method="t") > mean) > allowed(repetitions)
    few, _ = rare_losses(200, repetitions)  # most samples show at most one; other data have shown the loss
    assert np.sum(lower_bound(few, DELTA, method="skew") > mean) > allowed(repetitions)
    seen = lower_bound(few, DELTA, method="skew", low=np.full(repetitions, -10.0))
    assert np.sum(seen > mean) <= allowed(repetitions)


def test_skew_of_equal_losses_is_the_exact_bound_on_a_rate():
    for k in (1, 2, 5):
        n = 100_000
        values = np.zeros((n, 1))
        values[:k] = -7.0
        exact = -7.0 * stats.gamma.ppf(1.0 - DELTA, k + 1) / n
        assert np.allclose(lower_bound(values, DELTA, method="skew"), exact, rtol=1e-3)
        assert bounds.large_losses(values)[0] == pytest.approx(k + 1, rel=1e-3)


def test_skew_is_student_t_without_skewness_to_losses():
    rng = np.random.default_rng(7)
    values = np.stack([rng.normal(size=1000), rng.exponential(size=1000), np.full(1000, 2.0)], axis=1)
    t, skew = (lower_bound(values, DELTA, method=method) for method in ("t", "skew"))
    assert np.all(skew <= t)
    assert np.allclose(skew, t, atol=0.003)
    assert np.all(bounds.large_losses(values) > bounds.MANY_LOSSES)


def test_catches_a_bound_that_counts_no_loss_more(monkeypatch):
    """Without one more of the largest loss, the bound on few losses is too high."""

    def faulty(values, low):
        n, loss = values.shape[0], values.mean(axis=0) - values
        q = (loss**2).sum(axis=0) / n**2
        return (loss**3).sum(axis=0) / n**3 / q / 3.0, q

    monkeypatch.setattr(bounds, "_loss_scale", faulty)
    values, mean = rare_losses(1000, 3000)
    assert np.sum(lower_bound(values, DELTA, method="skew") > mean) > allowed(3000)
