"""Values of a policy: solve (I − γ P_π) v = r_π, where P_π mixes the stored rows of p with the policy's weights.

Two ways, the same answer: BiCGSTAB in the C++ kernel, on the rows of p as they are where P_π would be large, or SciPy
(dense LU when small, sparse LU otherwise), which is also the fallback when the iteration stalls. Either way the
true residual is checked.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bettersafe import _kernel

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

AIM = 1e-14
"""Backward error that every solve aims at: ‖r − (I − γP)v‖∞ ≤ AIM · (‖r‖∞ + 2‖v‖∞)."""

ACCEPT = 1e-12
"""Backward error above which the direct solver takes over."""

ROUNDING = 2e-15
"""Backward error that a residual of 0 may hide: it is itself computed with rounding."""

DENSE_STATES = 2000
"""Up to here a dense LU is quicker than a sparse one."""

MAX_PRODUCTS = 2000
"""Matrix products after which the iteration gives up and the direct solver takes over."""

THREADED_NONZEROS = 20_000
"""Times right-hand sides: below this one core is quicker than two."""

THREADED_PASS = 400_000
"""The same of a single pass, which is over before a second thread has started."""


def cores() -> int:
    """Cores this process may use; ``OMP_NUM_THREADS`` lowers it, as it does for other numerical libraries."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(there, int(limit))) if limit.isdecimal() else there


def policy_matrix(ptr: Ints, weight: Floats, transition: sparse.csr_array) -> sparse.csr_array:
    """P_π [X, X]: row x is Σ over the pairs of x of weight · p(·|pair)."""
    n_pairs = weight.size
    mix = sparse.csr_array((weight, np.arange(n_pairs), ptr), shape=(ptr.size - 1, n_pairs))
    return sparse.csr_array(mix @ transition)


def solve_values(
    ptr: Ints,
    weight: Floats,
    transition: sparse.csr_array,
    discount: float,
    rhs: Floats,
    *,
    guess: Floats | None = None,
    tol: float = AIM,
    threads: int | None = None,
) -> tuple[Floats, Floats]:
    """Solve (I − γ P_π) v = rhs for one or more right-hand sides.

    Args:
        ptr: Pairs of state x are ptr[x]:ptr[x+1], shape [X+1].
        weight: π(a|x) of every pair, shape [P].
        transition: p(x'|x,a), CSR [P, X]; rows sum to at most 1.
        discount: γ in [0, 1).
        rhs: r_π of every right-hand side, shape [m, X].
        guess: Where to start, shape [m, X]; zero if left out.
        tol: Backward error to aim at.
        threads: Cores to use; all of them on large problems if left out. The bits do not depend on it.

    Returns:
        v, shape [m, X], and a bound on its error in every state, from the residual that was reached, shape [m]:
        ‖v − v*‖∞ ≤ ‖r − (I − γP)v‖∞ / (1 − γ).
    """
    kernel = _kernel.compiled
    if kernel is not None:
        weight, rhs = (np.ascontiguousarray(array, dtype=np.float64) for array in (weight, rhs))
        v = np.zeros(rhs.shape) if guess is None else np.array(guess, dtype=np.float64, order="C")
        n_threads = _threads(threads, transition.nnz * rhs.shape[0])
        residual, _ = kernel.solve_values(
            ptr, weight, transition.indptr, transition.indices, transition.data,
            discount, rhs, v, tol, MAX_PRODUCTS, n_threads,
        )  # fmt: skip
        if residual <= max(tol, ACCEPT):
            return v, _error(v, rhs, discount, residual)
    matrix = policy_matrix(ptr, weight, transition)
    v = _solve_direct(matrix, discount, rhs)
    residuals = np.max(np.abs(rhs - v + discount * (matrix @ v.T).T), axis=1)
    scale = np.max(np.abs(rhs), axis=1) + 2.0 * np.max(np.abs(v), axis=1)
    return v, _error(v, rhs, discount, float(np.max(residuals / np.where(scale > 0.0, scale, 1.0))))


def pair_values(
    transition: sparse.csr_array, discount: Floats, reward: Floats, v: Floats, *, threads: int | None = None
) -> Floats:
    """q_k = r_k + γ_k p v_k, in as few passes over p as are quick.

    Args:
        transition: p(x'|x,a), CSR [P, X].
        discount: γ of every signal, shape [m].
        reward: Shape [m, P].
        v: Shape [m, X].
        threads: As in `solve_values`.

    Returns:
        q, shape [m, P]; the same bits with and without the kernel.
    """
    q = np.empty(reward.shape)
    kernel = _kernel.compiled
    if kernel is None:
        for k, gamma in enumerate(discount):
            q[k] = reward[k] + gamma * (transition @ v[k])
        return q
    kernel.pair_values(
        transition.indptr, transition.indices, transition.data,
        *(np.ascontiguousarray(array) for array in (discount, reward, v)), q, _threads(threads, transition.nnz * v.shape[0], least=THREADED_PASS),
    )  # fmt: skip
    return q


def _threads(asked: int | None, work: int, *, least: int = THREADED_NONZEROS) -> int:
    if asked is not None:
        return asked
    return cores() if work > least else 1


def _error(v: Floats, rhs: Floats, discount: float, residual: float) -> Floats:
    scale = np.max(np.abs(rhs), axis=1, initial=0.0) + 2.0 * np.max(np.abs(v), axis=1, initial=0.0)
    return np.asarray((residual + ROUNDING) * scale / (1.0 - discount))


def solve_occupancy(
    ptr: Ints, weight: Floats, transition: sparse.csr_array, discount: float, initial: Floats
) -> Floats:
    """Solve ν = μ + γ P_πᵀ ν: expected discounted visits of every state, shape [X]."""
    backward = sparse.csr_array(policy_matrix(ptr, weight, transition).T)
    n_states = initial.size
    visits, _ = solve_values(np.arange(n_states + 1), np.ones(n_states), backward, discount, initial[None, :])
    return np.asarray(visits[0])


def _solve_direct(matrix: Any, discount: float, rhs: Floats) -> Floats:
    """LU of I − γM for right-hand sides [m, X], with one step of refinement."""
    from scipy.sparse.linalg import splu

    n = rhs.shape[1]
    columns = rhs.T
    if n <= DENSE_STATES:
        system = np.eye(n) - discount * matrix.toarray()
        solution = np.linalg.solve(system, columns)
        return np.ascontiguousarray((solution + np.linalg.solve(system, columns - system @ solution)).T)
    sparse_system = sparse.csc_array(sparse.eye_array(n) - discount * matrix)
    lu = splu(sparse_system)
    solution = lu.solve(columns)
    return np.ascontiguousarray((solution + lu.solve(columns - sparse_system @ solution)).T)
