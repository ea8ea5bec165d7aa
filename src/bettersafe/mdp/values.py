"""Values of a policy: solve (I − γ P_π) v = r_π, where P_π mixes the stored rows of p with the policy's weights.

Two ways, the same answer: BiCGSTAB in the C++ kernel, on the rows of p as they are where P_π would be large, or SciPy
(dense LU when small, sparse LU otherwise), which is also the fallback when the iteration stalls. Either way the
true residual is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bettersafe import _kernel
from bettersafe._system.workers import cores
from bettersafe.errors import ParameterError, check_type
from bettersafe.mdp.mdp import MDP, by_state
from bettersafe.mdp.policy import policy_table

if TYPE_CHECKING:
    from bettersafe.typing import Floats, Ints

AIM = 1e-14
"""Backward error that every solve aims at: ‖r − (I − γP)v‖∞ ≤ AIM · (‖r‖∞ + 2‖v‖∞)."""

ACCEPT = 1e-12
"""Backward error above which the direct solver takes over."""

RESIDUAL_ROUNDING = 2e-15
"""Backward error that a residual of 0 may hide: it is itself computed with rounding."""

DENSE_STATES = 2000
"""Up to here a dense LU is quicker than a sparse one."""

MAX_PRODUCTS = 2000
"""Matrix products after which the iteration gives up and the direct solver takes over."""

THREADED_NONZEROS = 20_000
"""Times right-hand sides: below this one core is quicker than two."""

THREADED_PASS = 400_000
"""The same of a single pass, which is over before a second thread has started."""


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
    return np.asarray((residual + RESIDUAL_ROUNDING) * scale / (1.0 - discount))


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


def policy_values(mdp: MDP, policy: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Exact values of ``policy``: v [d, X] and q [d, P].

        v_k = (I − γ_k P_π)^{-1} r_{π,k}        q_k = r_k + γ_k p v_k

    Args:
        mdp: The MDP.
        policy: π(a|x), shape [X, A].

    Examples:
        >>> v, q = bettersafe.policy_values(model.mdp, baseline)
        >>> v.shape, q.shape
        ((2, 6), (2, 18))
    """
    values = solve_policy(mdp, _checked(mdp, policy))
    return values.v, values.q


def _checked(mdp: MDP, policy: npt.ArrayLike) -> Floats:
    """``policy`` as an array, if both are what they should be; its rows are not summed."""
    check_type("mdp", mdp, MDP)
    return policy_table(policy, mdp.n_states, mdp.n_actions)


@dataclass(frozen=True, kw_only=True)
class Values:
    """Values of m rewards under a policy, and how far they may be off because equations are solved with rounding.

    Attributes:
        v: Shape [m, X].
        q: Shape [m, P].
        unseen_value: What pairs that are not stored are worth, shape [m, X].
        error: Bound on the error of v and of q, shape [m].
    """

    v: Floats
    q: Floats
    unseen_value: Floats
    error: Floats


def solve_policy(
    mdp: MDP,
    policy: Floats,
    *,
    preference: Floats | None = None,
    guess: Floats | None = None,
    tol: float = AIM,
) -> Values:
    """Values of all d rewards, or of the one reward r_λ = Σ_k λ_k r_k (then m = 1; all discounts must be equal).

    Args:
        mdp: The MDP.
        policy: π(a|x), shape [X, A].
        preference: λ, shape [d]; left out: all rewards.
        guess: A v to start from, shape [m, X]; saves time, never changes the answer beyond its error.
        tol: Backward error to aim at.
    """
    weight, unseen_mass = _weights(mdp, policy)
    return solve_weights(mdp, weight, unseen_mass, preference=preference, guess=guess, tol=tol)


def solve_weights(
    mdp: MDP,
    weight: Floats,
    unseen_mass: Floats,
    *,
    preference: Floats | None = None,
    guess: Floats | None = None,
    tol: float = AIM,
) -> Values:
    """`solve_policy` of a policy without its table.

    Args:
        mdp: The MDP.
        weight: π(a|x) of every stored pair, shape [P].
        unseen_mass: What π plays of pairs that are not stored, shape [X].
        preference: As in `solve_policy`, like all that follow.
        guess: Shape [m, X].
        tol: Backward error to aim at.
    """
    if preference is None:
        reward, unseen_value, discount = mdp.reward, mdp.unseen_value, mdp.discount
    else:
        if np.any(mdp.discount != mdp.discount[0]):
            raise ParameterError("objectives with different discounts have no common scalar reward.")
        reward, unseen_value = (preference @ mdp.reward)[None, :], (preference @ mdp.unseen_value)[None, :]
        discount = mdp.discount[:1]
    rhs = np.array([by_state(mdp, weight * r) for r in reward]) + unseen_mass * unseen_value
    v, error = _solve_states(mdp, weight, discount, rhs, guess, tol)
    q = pair_values(mdp.transition, discount, reward, v)
    return Values(v=v, q=q, unseen_value=unseen_value, error=error)


def _weights(mdp: MDP, policy: Floats) -> tuple[Floats, Floats]:
    """π(a|x) of every stored pair, shape [P], and what π plays of others, shape [X]."""
    weight = policy.take(mdp.pair_index)
    return weight, np.clip(policy.sum(axis=1) - by_state(mdp, weight), 0.0, 1.0)


def _solve_states(
    mdp: MDP, weight: Floats, discount: Floats, rhs: Floats, guess: Floats | None, tol: float
) -> tuple[Floats, Floats]:
    """Values [m, X] of right-hand sides with their own discounts, and bounds on their errors [m]."""
    v = np.empty(rhs.shape)
    error = np.empty(discount.size)
    for gamma in set(discount.tolist()):
        same = discount == gamma
        v[same], error[same] = solve_values(
            mdp.state_ptr,
            weight,
            mdp.transition,
            gamma,
            rhs[same],
            guess=None if guess is None else guess[same],
            tol=tol,
        )
    return v, error


def state_values(
    mdp: MDP, policy: Floats, *, guess: Floats | None = None, objectives: Ints | slice = slice(None)
) -> Floats:
    """v_k of ``policy``, shape [d, X]: `policy_values` where q is not asked for, which is one more pass over the model.

    ``objectives`` chooses some of the rows; ``guess``, where to start, has as many.
    """
    weight, unseen_mass = _weights(mdp, policy)
    rhs = (
        np.array([by_state(mdp, weight * r) for r in mdp.reward[objectives]])
        + unseen_mass * mdp.unseen_value[objectives]
    )
    return _solve_states(mdp, weight, mdp.discount[objectives], rhs, guess, AIM)[0]


def expected_return(mdp: MDP, policy: npt.ArrayLike) -> Floats:
    """J_k(π) = Σ_x μ(x) v_k(x), shape [d].

    Args:
        mdp: The MDP.
        policy: π(a|x), shape [X, A].

    Examples:
        >>> from bettersafe.envs import true_mdp
        >>> bettersafe.expected_return(true_mdp(world), baseline).round(2)  # what the baseline is truly worth
        array([1.54, 1.46])
    """
    return state_values(mdp, _checked(mdp, policy)) @ mdp.initial


def occupancy(mdp: MDP, policy: npt.ArrayLike, k: int = 0) -> Floats:
    """Expected discounted visits ν(x) = Σ_t γ_k^t P(x_t = x | π), shape [X].

    Args:
        mdp: The MDP.
        policy: π(a|x), shape [X, A].
        k: Objective whose discount is taken.

    Examples:
        >>> from bettersafe.mdp import occupancy
        >>> float(occupancy(model.mdp, baseline).sum().round(2))  # steps of an episode, discounted
        2.93
    """
    weight = _checked(mdp, policy).take(mdp.pair_index)
    return solve_occupancy(mdp.state_ptr, weight, mdp.transition, float(mdp.discount[k]), mdp.initial)
