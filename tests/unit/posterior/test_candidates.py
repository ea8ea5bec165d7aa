"""Which candidates are looked at closely: probabilities of several normal gains at once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bettersafe.posterior.candidates import normal_p_safe


def test_normal_probabilities():
    """Against SciPy's integral, and where the answer is known: independent, all the same, one objective, no spread."""
    rng = np.random.default_rng(0)
    for d in (2, 3, 5):
        for _ in range(10):
            factor = rng.normal(size=(d, d))
            covariance, gain, zeta = factor @ factor.T + 0.01 * np.eye(d), rng.normal(1.0, 2.0, size=d), rng.random(d)
            expected = stats.multivariate_normal(-gain, covariance).cdf(zeta)
            assert normal_p_safe(gain, covariance, zeta) == pytest.approx(expected, abs=3e-3)
    root = rng.normal(size=(20, 7))  # of less than full rank, against counting in plain draws
    gain = rng.normal(2.0, 1.0, 20)
    drawn = gain + rng.normal(size=(200_000, 7)) @ root.T
    expected = np.mean(np.all(drawn >= -0.5, axis=1))
    assert normal_p_safe(gain, root @ root.T, np.full(20, 0.5)) == pytest.approx(expected, abs=6e-3)
    noise = rng.normal(size=(20, 20))
    shaken = root @ root.T + 1e-6 * (noise + noise.T)  # not quite a covariance, by rounding
    assert np.linalg.eigvalsh(shaken)[0] < -1e-7
    assert normal_p_safe(gain, shaken, np.full(20, 0.5)) == pytest.approx(expected, abs=6e-3)
    z = stats.norm.ppf(0.999)
    many = np.full(65, z)
    assert normal_p_safe(many, np.eye(65), np.zeros(65)) == pytest.approx(0.999**65, abs=3e-3)
    assert normal_p_safe(many, np.ones((65, 65)), np.zeros(65)) == pytest.approx(0.999, abs=1e-3)
    assert normal_p_safe(many[:1], np.eye(1), np.zeros(1)) == pytest.approx(0.999)
    assert normal_p_safe(np.array([1.0, 0.0]), np.zeros((2, 2)), np.full(2, 1e-9)) == pytest.approx(1.0)
    assert normal_p_safe(np.array([1.0, -1.0]), np.zeros((2, 2)), np.zeros(2)) == pytest.approx(0.0)
