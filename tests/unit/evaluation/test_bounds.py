"""Lower bounds on a mean, on cases that can be worked out by hand, and against the general form of Bernstein's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bettersafe.errors import ParameterError
from bettersafe.evaluation.bounds import choose_cap, lower_bound
from bettersafe.evaluation.facts import BOUNDS, FINITE_SAMPLE


def bound(values, method, delta=0.1, low=0.0, cap=1.0):
    return float(lower_bound(np.asarray(values, float)[:, None], delta, method=method, low=[low], cap=[cap])[0])


def test_student_t_by_hand():
    """n = 4, mean 2.5, s = 1.29099, t_{0.9, 3} = 1.63774: 2.5 − 1.63774 · 1.29099 / 2."""
    assert bound([1, 2, 3, 4], "t") == pytest.approx(2.5 - 1.637744 * 1.290994 / 2.0, abs=1e-5)


def test_hoeffding_by_hand():
    values = [0.0, 1.0] * 50
    assert bound(values, "hoeffding") == pytest.approx(0.5 - math.sqrt(math.log(10.0) / 200.0))
    # the same in other units: shifted to [−3, 5]
    assert bound(np.array(values) * 8 - 3, "hoeffding", low=-3, cap=5) == pytest.approx(
        8 * (0.5 - math.sqrt(math.log(10.0) / 200.0)) - 3
    )


def test_bernstein_against_the_general_form():
    """Thomas et al. 2015, Theorem 1, with the sum over all pairs (i, j) and thresholds c_i = c."""
    rng = np.random.default_rng(0)
    values, cap, delta = rng.exponential(size=60), 1.5, 0.05
    y = np.minimum(values, cap) / cap
    n = y.size
    pairs = sum((a - b) ** 2 for a in y for b in y)
    by_hand = (
        (y.sum() - 7 * n * math.log(2 / delta) / (3 * (n - 1)) - math.sqrt(math.log(2 / delta) / (n - 1) * pairs))
        * cap
        / n
    )
    assert bound(values, "bernstein", delta=delta, cap=cap) == pytest.approx(max(by_hand, 0.0))
    many = np.tile(values, 40)
    y = np.minimum(many, cap)
    n = y.size
    expected = (
        y.mean()
        - math.sqrt(2 * y.var(ddof=1) * math.log(2 / delta) / n)
        - 7 * cap * math.log(2 / delta) / (3 * (n - 1))
    )
    assert expected > 0.0
    assert bound(many, "bernstein", delta=delta, cap=cap) == pytest.approx(expected)


def test_anderson_by_hand():
    """Two terms 0.4 and 0.8, a band of ε: the area under max(0, 1 − F̂ − ε) is 0.4(1 − ε) + 0.4(½ − ε)."""
    delta = 0.5
    band = math.sqrt(math.log(1 / delta) / 4.0)
    assert band == pytest.approx(0.41628, abs=1e-5)
    assert bound([0.4, 0.8], "anderson", delta=delta) == pytest.approx(0.4 * (1 - band) + 0.4 * (0.5 - band))


def test_betting_by_hand():
    """All terms 1, bets at their cap: capital grows by (1 + λ(1 − m)); the edge solves n ln(1 + λ(1 − m)) = ln(1/δ)."""
    n, delta = 5, 0.1
    edge = bound(np.ones(n), "betting", delta=delta)
    assert 0.0 < edge < 1.0

    def capital(m):
        variance_sum, mean_sum, total = 0.25, 0.5, 0.0
        for i in range(n):
            bet = min(math.sqrt(2 * math.log(1 / delta) * (i + 1) / (n * variance_sum)), 0.75 / m)
            total += math.log1p(bet * (1.0 - m))
            mean_sum += 1.0
            variance_sum += (1.0 - mean_sum / (i + 2)) ** 2
        return total

    assert capital(edge - 1e-6) >= math.log(1 / delta) > capital(edge + 1e-6)


@pytest.mark.parametrize("method", BOUNDS)
def test_shared_behaviour(method):
    rng = np.random.default_rng(1)
    values = rng.beta(2, 5, size=(200, 3))
    bounds = lower_bound(values, 0.05, method=method, low=np.zeros(3), cap=np.ones(3))
    assert bounds.shape == (3,)
    assert np.all(bounds < values.mean(axis=0))
    assert np.all(bounds >= 0.0)
    assert np.all(lower_bound(values, 0.01, method=method, low=np.zeros(3), cap=np.ones(3)) <= bounds + 1e-12)
    again = lower_bound(values, 0.05, method=method, low=np.zeros(3), cap=np.ones(3))
    assert np.array_equal(bounds, again)  # the bootstrap too
    assert np.isneginf(lower_bound(values[:1], 0.05, method=method, low=np.zeros(3), cap=np.ones(3))).all()
    constant = lower_bound(np.full((50, 1), 0.3), 0.05, method=method, low=[0.0], cap=[1.0])
    assert constant[0] <= 0.3 + 1e-12


@pytest.mark.parametrize("method", FINITE_SAMPLE)
def test_cutting_from_above_and_vacuous_bounds(method):
    values = np.array([[0.5], [0.6], [1e9]] * 40)
    high = lower_bound(values, 0.1, method=method, low=[0.0], cap=[1.0])
    assert 0.0 < high[0] < 1.0
    assert lower_bound(values, 0.1, method=method, low=[0.0], cap=[np.inf])[0] == -np.inf
    assert lower_bound(values, 0.1, method=method, low=[-np.inf], cap=[1.0])[0] == -np.inf
    assert lower_bound(values * 0, 0.1, method=method, low=[0.0], cap=[0.0])[0] == 0.0


def test_chosen_cap_beats_no_cap():
    rng = np.random.default_rng(2)
    heavy = rng.lognormal(0.0, 1.5, size=(2000, 1))
    for method in FINITE_SAMPLE:
        cap = choose_cap(heavy[:500], 0.1, method=method, low=[0.0], high=[np.inf], n_later=1500)
        chosen = lower_bound(heavy[500:], 0.1, method=method, low=[0.0], cap=cap)
        plain = lower_bound(heavy[500:], 0.1, method=method, low=[0.0], cap=[heavy.max()])
        assert chosen[0] >= 0.98 * plain[0]  # judged on few other terms, it is nearly never worse and often far better
        if method in ("hoeffding", "bernstein"):
            assert chosen[0] > plain[0] + 0.1


def test_a_cap_for_terms_that_never_rise_above_their_least():
    assert choose_cap(np.zeros((20, 1)), 0.1, method="betting", low=[0.0], high=[np.inf], n_later=50)[0] > 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "beting"}, "Did you mean 'betting'"),
        ({"method": "betting", "low": None}, "approximate"),
        ({"method": "betting", "low": [0.5]}, "below the stated smallest value"),
        ({"method": "t", "delta": 0.0}, "delta"),
        ({"method": "t", "terms": np.zeros(3)}, "shape"),
        ({"method": "t", "terms": np.array([[np.nan], [0.0]])}, "finite"),
    ],
)
def test_refusals(arguments, message):
    settings = {"terms": np.array([[0.1], [0.2]]), "delta": 0.1, "low": [0.0], "cap": [1.0], **arguments}
    with pytest.raises(ParameterError, match=message):
        lower_bound(settings.pop("terms"), settings.pop("delta"), **settings)
