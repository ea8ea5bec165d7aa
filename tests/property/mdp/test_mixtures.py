"""Mixtures of policies: the kernel and the HiGHS engine against the program written out, on difficult gains."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from bettersafe import _kernel
from bettersafe.errors import NoSolutionError
from bettersafe.mdp.mixtures import best_mixture, no_basis
from oracles import TOLERANCES

needs_kernel = pytest.mark.skipif(_kernel.compiled is None, reason="the kernel is not built")

KINDS = (
    "plain", "repeated", "zeros", "scales", "small_numbers", "low_rank", "nearly_repeated", "sphere", "tiny_policies", "opposites",
)  # fmt: skip
SIZES = ((1, 1), (2, 2), (5, 20), (20, 3), (60, 10), (150, 64), (300, 20), (300, 64))


def random_gains(rng, kind, n, d):
    """Gains [n, d] of n policies, the first of them the baseline."""
    gains = rng.normal(size=(n, d))
    if kind == "repeated":
        gains = gains[rng.integers(0, max(n // 3, 1), n)]
    elif kind == "zeros":
        gains[:, rng.random(d) < 0.3] = 0.0
        gains[rng.random(n) < 0.3] = 0.0
    elif kind == "scales":
        gains *= 10.0 ** rng.uniform(-100, 100, d)
    elif kind == "small_numbers":  # very degenerate
        gains = rng.integers(-2, 3, (n, d)).astype(float)
    elif kind == "low_rank":
        rank = max(d // 3, 1)
        gains = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d))
    elif kind == "nearly_repeated":
        gains = gains[rng.integers(0, max(n // 4, 1), n)] * (1.0 + 1e-10 * rng.normal(size=(n, 1)))
    elif kind == "sphere":
        gains /= np.linalg.norm(gains, axis=1, keepdims=True)
    elif kind == "tiny_policies":
        gains *= 10.0 ** rng.uniform(-6, 0, (n, 1))
    elif kind == "opposites":
        gains[:, d // 2 :] = -gains[:, : d - d // 2]
    if rng.random() < 0.7:
        gains = gains + rng.choice([0.1, 0.5]) * np.max(np.abs(gains), axis=0)
    gains[0] = 0.0
    return gains


def random_case(rng, kind, n, d):
    """Gains [n, d], value [n] and floors [d]: none, negative, positive, or both."""
    gains = random_gains(rng, kind, n, d)
    size = np.max(np.abs(gains), axis=0)
    weights = rng.choice([0.0, 0.5, 1.0], d) / np.where(size > 0.0, size, 1.0)
    value = gains @ weights if rng.random() < 0.8 else rng.normal(size=n) * 10.0 ** rng.integers(-6, 6)
    floors = size * rng.choice([0.0, -0.1, -0.5, 0.01, 0.1, 0.3], d) * (rng.random() < 0.7)
    return gains, value, -np.abs(floors) if rng.random() < 0.4 else floors


def slow_mixture(gains, value, floors, reach):
    """The largest objective, with rows and objective in units of their size; None if there is no mixture."""
    n = value.size
    unit = 1.0 if reach else max(float(np.max(np.abs(value))), 1e-300)
    needed = np.any(gains < floors, axis=0)  # the others hold anyway
    size = np.maximum(np.max(np.abs(gains), axis=0), np.abs(floors))[needed]
    rows, goal = gains[:, needed].T / size[:, None], floors[needed] / size
    answer = linprog(
        -np.append(np.zeros(n), 1.0) if reach else -np.append(value / unit, 0.0),
        A_ub=np.column_stack([-rows, goal]) if reach else np.column_stack([-rows, 0.0 * goal]),
        b_ub=0.0 * goal if reach else -goal,
        A_eq=np.append(np.ones(n), 0.0)[None, :],
        b_eq=[1.0],
        bounds=(0.0, 1.0),
        method="highs-ds",
        options=TOLERANCES,
    )
    assert answer.status in (0, 2), answer.message
    return -float(answer.fun) * unit if answer.status == 0 else None


def check_mixture(found, gains, value, floors, reach):
    """The mixture is one, keeps its floors, and its multipliers prove that none is better, all relative to sizes."""
    size = np.maximum(np.max(np.abs(gains), axis=0), np.abs(floors))
    size[size == 0.0] = 1.0
    unit = 1.0 if reach else max(float(np.max(np.abs(value))), 1e-300)
    assert np.all(found.weights >= 0.0)
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert 0.0 <= found.share <= 1.0
    assert np.all((found.weights @ gains - found.share * floors) / size >= -1e-9)
    assert np.all(found.multipliers >= 0.0)
    if reach and found.share == 1.0:
        return
    prices = found.multipliers @ size / unit  # in units of the scaled program
    reduced = gains @ found.multipliers + (0.0 if reach else value)
    assert np.max(reduced) <= found.level + 1e-9 * unit * (1.0 + prices)
    if reach:
        assert found.multipliers @ floors == pytest.approx(1.0, abs=1e-6)
        assert found.level <= found.share * (found.multipliers @ floors) + 1e-9 * (1.0 + prices)
    else:
        assert found.objective == pytest.approx(float(found.weights @ value), abs=1e-12 * unit)
        assert found.level - found.multipliers @ floors - found.objective <= 1e-9 * unit * (1.0 + prices)


def compare(rng, kind, n, d):
    """Both engines on one case, and how many answers of the kernel there were."""
    gains, value, floors = random_case(rng, kind, n, d)
    native = 0
    for reach in (True, False):
        if reach and not np.any(floors > 0.0):
            continue
        best = slow_mixture(gains, value, floors, reach)
        for engine in ("native", "highs"):
            if best is None:
                with pytest.raises(NoSolutionError):
                    best_mixture(gains, value, floors, reach=reach, engine=engine)
                continue
            found = best_mixture(gains, value, floors, reach=reach, engine=engine)
            check_mixture(found, gains, value, floors, reach)
            native += found.engine == "native"
            unit = 1.0 if reach else max(float(np.max(np.abs(value))), 1e-300)
            size = np.maximum(np.max(np.abs(gains), axis=0), np.abs(floors))
            prices = found.multipliers @ size / unit
            reached = found.share if reach else found.objective
            assert abs(reached - best) <= 1e-9 * unit * (1.0 + prices), (kind, n, d, reach, engine)
        if best is not None:
            native -= 1
    return native


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
def test_against_the_program_written_out(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for n, d in SIZES:
        for _ in range(4):
            assert compare(rng, kind, n, d) == 0  # the kernel solves all that have a solution


@needs_kernel
@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_against_the_program_written_out_long(kind):
    rng = np.random.default_rng([KINDS.index(kind), 1])
    missed = sum(compare(rng, kind, int(rng.choice(300)) + 1, int(rng.choice(64)) + 1) < 0 for _ in range(150))
    assert missed <= 1


@needs_kernel
@pytest.mark.parametrize("reach", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_last_basis_changes_the_work_and_not_the_optimum(kind, reach):
    """Policies come one by one, as in column generation; floors change; random bases are good or ignored."""
    rng = np.random.default_rng([KINDS.index(kind), 2])
    for d in (1, 4, 17):
        gains, value, floors = random_case(rng, kind, 40, d)
        unit = 1.0 if reach else max(float(np.max(np.abs(value))), 1e-300)
        basis = no_basis(d)
        for n in range(1, 41):
            lower = floors if reach else np.minimum(floors, 0.0)
            if n % 7 == 0:
                lower = 0.5 * lower
            if n % 11 == 0:
                basis = rng.integers(-d - 2, n + 2, d + 1)
            warm = best_mixture(gains[:n], value[:n], lower, reach=reach, basis=basis)
            cold = best_mixture(gains[:n], value[:n], lower, reach=reach)
            check_mixture(warm, gains[:n], value[:n], lower, reach)
            size = np.maximum(np.max(np.abs(gains[:n]), axis=0), np.abs(lower))
            prices = (warm.multipliers + cold.multipliers) @ size / unit
            assert abs(warm.share - cold.share) <= 1e-9 * (1.0 + prices)
            if not reach:
                assert abs(warm.objective - cold.objective) <= 1e-9 * unit * (1.0 + prices)


def test_by_hand():
    """Policy 1 gains (4, −2), policy 2 (0, 1): of the first a third, of the second two thirds."""
    gains = np.array([[0.0, 0.0], [4.0, -2.0], [0.0, 1.0]])
    for engine in ("auto", "highs"):
        found = best_mixture(gains, gains[:, 0], np.zeros(2), reach=False, engine=engine)
        assert found.weights == pytest.approx([0.0, 1 / 3, 2 / 3])
        assert found.objective == pytest.approx(4 / 3)
        assert found.multipliers == pytest.approx([0.0, 4 / 3])  # 4 − 2ν = ν: both policies are worth the same
        assert found.level == pytest.approx(4 / 3)
        lower = best_mixture(gains, gains[:, 0], np.array([0.0, -0.5]), reach=False, engine=engine)
        assert lower.weights == pytest.approx([0.0, 0.5, 0.5])
        half = best_mixture(gains, gains[:, 0], np.array([4.0, 1.0]), reach=True, engine=engine)
        # t ≤ w_1 and t ≤ w_2 − 2 w_1 = 1 − 3 w_1
        assert (half.share, half.weights[1]) == pytest.approx((0.25, 0.25))
        assert best_mixture(gains, gains[:, 0], np.array([1.0, 0.25]), reach=True, engine=engine).share == 1.0
        with pytest.raises(NoSolutionError, match="no mixture of the policies reaches"):
            best_mixture(gains, gains[:, 0], np.array([4.0, 1.0]), reach=False, engine=engine)


def test_without_floors_that_bind_the_best_policy_is_taken():
    gains = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 0.5]])
    for engine in ("auto", "highs"):
        found = best_mixture(gains, gains @ [1.0, 1.0], np.array([0.0, -1.0]), reach=False, engine=engine)
        assert found.weights.tolist() == [0.0, 0.0, 1.0]
        assert found.multipliers.tolist() == [0.0, 0.0]


@needs_kernel
def test_highs_takes_over(monkeypatch):
    """If the kernel finds no optimum, and without it."""
    gains = np.array([[0.0, 0.0], [4.0, -2.0], [0.0, 1.0]])

    class Failing:
        def solve_mixture(self, *_):
            return False, 0.0, 0.0

    for kernel in (Failing(), None):
        monkeypatch.setattr("bettersafe._kernel.compiled", kernel)
        found = best_mixture(gains, gains[:, 0], np.zeros(2), reach=False)
        assert (found.engine, found.objective) == ("highs", pytest.approx(4 / 3))
