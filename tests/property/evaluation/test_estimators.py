"""Terms of the estimators: the kernel and its NumPy twin against loops written from the formulas."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from bettersafe import _kernel
from bettersafe.evaluation import ESTIMATORS, estimators
from bettersafe.evaluation.estimators import trajectory_terms


def slow_values(ptr, log_ratio, reward, discount, v, q, tail):
    """The six estimates [6, d], by loops."""
    n, d = len(ptr) - 1, len(discount)
    rho = [np.exp(np.cumsum(log_ratio[a:b])) for a, b in pairwise(ptr)]

    def weight(i, t):
        return 1.0 if t < 0 else rho[i][min(t, len(rho[i]) - 1)]

    def share(i, t):
        total = sum(weight(j, t) for j in range(n))
        return weight(i, t) / total if total > 0.0 else 0.0

    out = np.zeros((6, d))
    for k in range(d):
        g = discount[k]
        for i in range(n):
            a, length = ptr[i], ptr[i + 1] - ptr[i]
            plain = sum(g**t * reward[a + t, k] for t in range(length))
            out[0, k] += weight(i, length - 1) * plain / n
            out[1, k] += sum(g**t * weight(i, t) * reward[a + t, k] for t in range(length)) / n
            total = sum(r[-1] for r in rho)
            out[2, k] += rho[i][-1] / total * plain if total > 0.0 else 0.0
            value = tail[i, k]
            for t in reversed(range(length)):
                value = v[a + t, k] + np.exp(log_ratio[a + t]) * (reward[a + t, k] + g * value - q[a + t, k])
            out[4, k] += value / n
            out[5, k] += g**length * share(i, length - 1) * tail[i, k]
            for t in range(length):
                out[3, k] += g**t * share(i, t) * reward[a + t, k]
                out[5, k] += g**t * (share(i, t) * (reward[a + t, k] - q[a + t, k]) + share(i, t - 1) * v[a + t, k])
    return out


def random_trajectories(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    lengths = rng.integers(1, 10, n)
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    rows = ptr[-1]
    log_ratio = rng.normal(size=rows) * rng.choice([0.0, 0.5, 3.0])
    log_ratio[rng.random(rows) < rng.choice([0.0, 0.1, 0.5])] = -np.inf
    reward, v, q = (rng.normal(size=(rows, d)) * 10.0 ** rng.uniform(-3, 3) for _ in range(3))
    tail = rng.normal(size=(n, d)) * (rng.random((n, 1)) < 0.5)
    return ptr, log_ratio, reward, rng.uniform(0.0, 0.99, d), v, q, tail


@pytest.mark.parametrize("block", range(10))
def test_against_loops(block, monkeypatch):
    for seed in range(20 * block, 20 * (block + 1)):
        arguments = random_trajectories(seed)
        expected = slow_values(*arguments)
        scale = 1.0 + sum(float(np.abs(a).max()) for a in arguments[2:]) * np.exp(
            max(0.0, np.max(np.where(np.isfinite(arguments[1]), arguments[1], 0.0)) * 10)
        )
        monkeypatch.undo()
        native, log_weight = trajectory_terms(*arguments)
        assert np.allclose(native.mean(axis=1), expected, rtol=1e-9, atol=1e-12 * scale)
        monkeypatch.setattr(_kernel, "compiled", None)
        for cells in (estimators.PADDED_CELLS, 1, 25):  # all at once, one episode at a time, a few
            monkeypatch.setattr(estimators, "PADDED_CELLS", cells)
            plain, log_weight_2 = trajectory_terms(*arguments)
            assert np.allclose(native, plain, rtol=1e-9, atol=1e-11 * scale)
            assert np.allclose(log_weight, log_weight_2, rtol=1e-12)


def test_linearised_terms_have_the_derivative_of_the_estimate():
    """Giving trajectory i a little more weight moves the weighted estimates by its influence (term − value)/n."""
    ptr, log_ratio, reward, discount, v, q, tail = random_trajectories(3)
    log_ratio = np.where(np.isfinite(log_ratio), log_ratio, 0.3)
    found, _ = trajectory_terms(ptr, log_ratio, reward, discount, v, q, tail)
    n, copies = len(ptr) - 1, 200

    def repeated(extra):
        """Every trajectory ``copies`` times, one of them once more."""
        order = [i for i in range(n) for _ in range(copies + (i == extra))]
        rows = np.concatenate([np.arange(ptr[i], ptr[i + 1]) for i in order])
        pointer = np.concatenate([[0], np.cumsum([ptr[i + 1] - ptr[i] for i in order])])
        values, _ = trajectory_terms(pointer, log_ratio[rows], reward[rows], discount, v[rows], q[rows], tail[order])
        return values.mean(axis=1)

    base = repeated(-1)
    for i in range(n):
        influence = (repeated(i) - base) * (n * copies + 1)
        assert np.allclose(influence, found[:, i] - found.mean(axis=1), rtol=0.05, atol=0.02 * np.abs(found).max())


def test_extreme_weights_do_not_break_the_weighted_estimators():
    rng = np.random.default_rng(0)
    ptr = np.arange(0, 3001, 300)
    log_ratio = rng.normal(size=3000) * 3.0 + np.repeat(rng.normal(size=10), 300) * 5.0  # products far beyond e^±709
    reward = rng.random((3000, 1))
    with np.errstate(over="ignore"):
        found, log_weight = trajectory_terms(
            ptr, log_ratio, reward, np.array([0.99]), reward, reward, np.zeros((10, 1))
        )
    assert np.max(np.abs(log_weight)) > 709.0
    for name in ("wis", "cwpdis", "wdr"):
        values = found[ESTIMATORS[name].kernel_row]
        assert np.all(np.isfinite(values)), name
        assert -1.0 <= values.mean() <= 101.0
