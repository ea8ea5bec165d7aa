"""Policy evaluation: solve (I − γ P_π) v = r_π, where P_π is the mixture of the stored rows of p under the policy.

There are two solvers with equal answers: BiCGSTAB in the C++ kernel, which works on p itself if P_π would be large, and SciPy
(dense LU for small problems, sparse LU otherwise), which is also the fallback if the iteration stalls. Both check the
true residual.

With γ = 1 the system has a solution if every state reaches an end. The expected number of steps τ to the end is solved along
with the values, (I − P_π) τ = 1: as P_π ≥ 0, a positive τ exists if and only if the spectral radius of P_π is below 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bettersafe import _kernel
from bettersafe._system.workers import cores
from bettersafe.errors import NoSolutionError, ParameterError, PolicyError, check_integer, check_type
from bettersafe.mdp.ends import endless_states
from bettersafe.mdp.horizon import check_horizon, horizon_values
from bettersafe.mdp.mdp import MDP, by_state, pair_weights, policy_matrix
from bettersafe.mdp.policy import distributions

if TYPE_CHECKING:
    from scipy import sparse

    from bettersafe.typing import Bools, Floats, Ints

AIM = 1e-14
"""Target backward error of every solve: ‖r − (I − γP)v‖∞ ≤ AIM · (‖r‖∞ + 2‖v‖∞)."""

ACCEPT = 1e-12
"""Backward error above which the direct solver is used."""

RESIDUAL_ROUNDING = 2e-15
"""Backward error from rounding in the computed residual itself."""

DENSE_STATES = 2000
"""Largest number of states for a dense LU; above, a sparse LU is faster."""

MAX_PRODUCTS = 2000
"""Matrix products after which the iteration stops and the direct solver is used."""

THREADED_NONZEROS = 20_000
"""Nonzeros times right-hand sides below which one core is faster than two."""

THREADED_PASS = 400_000
"""Nonzeros times right-hand sides below which one core is faster than two for a single pass over p."""


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
        discount: γ in [0, 1]; if 1, every state must reach an end.
        rhs: r_π of every right-hand side, shape [m, X].
        guess: Initial v, shape [m, X]; zero if None.
        tol: Target backward error.
        threads: Number of threads; if None, all cores for large problems. The bits do not depend on it.

    Returns:
        v, shape [m, X], and a bound on its error in any state, from the final residual, shape [m]:
        ‖v − v*‖∞ ≤ ‖r − (I − γP)v‖∞ · max τ, with τ = (I − γP)^{-1} 1, which is at most 1/(1 − γ).

    Raises:
        NoSolutionError: γ = 1, and some state does not reach an end.
    """
    if discount < 1.0:
        v, residual = _solve(ptr, weight, transition, discount, rhs, guess=guess, tol=tol, threads=threads)
        return v, _error(v, rhs, residual) / (1.0 - discount)
    steps = np.ones((1, rhs.shape[1]))
    v, residual = _solve(
        ptr,
        weight,
        transition,
        discount,
        np.concatenate([rhs, steps]),
        guess=None if guess is None else np.concatenate([guess, steps]),
        tol=tol,
        threads=threads,
    )
    v, steps = v[:-1], v[-1:]
    if not (np.all(steps > 0.0) and float(_error(steps, np.ones_like(steps), residual)[0]) < 0.5):
        raise NoSolutionError("with discount 1 the values are not finite: some state does not reach an end.")
    return v, _error(v, rhs, residual) * float(np.max(steps, initial=1.0))


def _solve(
    ptr: Ints,
    weight: Floats,
    transition: sparse.csr_array,
    discount: float,
    rhs: Floats,
    *,
    guess: Floats | None,
    tol: float,
    threads: int | None,
) -> tuple[Floats, float]:
    """V of every right-hand side, shape [m, X], and the largest backward error; NaN if the matrix is singular."""
    kernel = _kernel.compiled
    if kernel is not None:
        weight, rhs = np.ascontiguousarray(weight, dtype=np.float64), np.ascontiguousarray(rhs, dtype=np.float64)
        v = np.zeros(rhs.shape) if guess is None else np.array(guess, dtype=np.float64, order="C")
        n_threads = _threads(threads, transition.nnz * rhs.shape[0])
        residual, _ = kernel.solve_values(
            ptr, weight, transition.indptr, transition.indices, transition.data,
            discount, rhs, v, tol, MAX_PRODUCTS, n_threads,
        )  # fmt: skip
        if residual <= max(tol, ACCEPT):
            return v, residual
    matrix = policy_matrix(ptr, weight, transition)
    try:
        v = _solve_direct(matrix, discount, rhs)
    except (np.linalg.LinAlgError, RuntimeError):  # SciPy's error for a singular sparse matrix is a RuntimeError
        return np.full(rhs.shape, np.nan), np.nan
    residuals = np.max(np.abs(rhs - v + discount * (matrix @ v.T).T), axis=1)
    scale = np.max(np.abs(rhs), axis=1) + 2.0 * np.max(np.abs(v), axis=1)
    return v, float(np.max(residuals / np.where(scale > 0.0, scale, 1.0)))


def pair_values(
    transition: sparse.csr_array, discount: Floats, reward: Floats, v: Floats, *, threads: int | None = None
) -> Floats:
    """q_k = r_k + γ_k p v_k for all signals, with few passes over p.

    Args:
        transition: p(x'|x,a), CSR [P, X].
        discount: γ of every signal, shape [m].
        reward: r of every signal, shape [m, P].
        v: State values, shape [m, X].
        threads: As in `solve_values`.

    Returns:
        q, shape [m, P]; equal bits with and without the kernel.
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


def _error(v: Floats, rhs: Floats, residual: float) -> Floats:
    """Bound on ‖r − (I − γP)v‖∞ of every right-hand side from the backward error, shape [m]."""
    scale = np.abs(rhs).max(axis=1, initial=0.0) + 2.0 * np.abs(v).max(axis=1, initial=0.0)
    return np.asarray((residual + RESIDUAL_ROUNDING) * scale)


def solve_occupancy(
    ptr: Ints, weight: Floats, transition: sparse.csr_array, discount: float, initial: Floats
) -> Floats:
    """Solve ν = μ + γ P_πᵀ ν: expected discounted visits of every state, shape [X]."""
    from scipy import sparse

    backward = sparse.csr_array(policy_matrix(ptr, weight, transition).T)
    n_states = initial.size
    visits, _ = solve_values(np.arange(n_states + 1), np.ones(n_states), backward, discount, initial[None, :])
    return np.asarray(visits[0])


def _solve_direct(matrix: Any, discount: float, rhs: Floats) -> Floats:
    """LU of I − γM for right-hand sides [m, X], with one step of refinement."""
    from scipy import sparse
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
    """``policy`` as an array, if both are what they should be."""
    check_type("mdp", mdp, MDP)
    return distributions(policy, mdp.n_states, mdp.n_actions)


@dataclass(frozen=True, kw_only=True)
class Values:
    """Values of m rewards under a policy, with bounds on their numerical error.

    Attributes:
        v: State values, shape [m, X].
        q: Values of stored pairs, shape [m, P].
        unseen_value: Value of pairs that are not stored, shape [m, X].
        error: Bound on the numerical error of v and q, shape [m].
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
        preference: λ, shape [d]; None for all d rewards.
        guess: Initial v, shape [m, X]; saves time, and changes the answer by no more than its error.
        tol: Target backward error.
    """
    weight, unseen_mass = pair_weights(mdp, policy)
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
    """`solve_policy` for a policy given by pair.

    Args:
        mdp: The MDP.
        weight: π(a|x) of every stored pair, shape [P].
        unseen_mass: Probability of π on pairs that are not stored, shape [X].
        preference: As in `solve_policy`.
        guess: As in `solve_policy`.
        tol: As in `solve_policy`.
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


def _solve_states(
    mdp: MDP, weight: Floats, discount: Floats, rhs: Floats, guess: Floats | None, tol: float
) -> tuple[Floats, Floats]:
    """Values [m, X] for right-hand sides with different discounts, and bounds on their errors [m]."""
    v = np.empty(rhs.shape)
    error = np.empty(discount.size)
    gammas = set(discount.tolist())
    for gamma in gammas:
        same: Bools | slice = discount == gamma if len(gammas) > 1 else slice(None)
        try:
            v[same], error[same] = solve_values(
                mdp.state_ptr,
                weight,
                mdp.transition,
                gamma,
                rhs[same],
                guess=None if guess is None else guess[same],
                tol=tol,
            )
        except NoSolutionError as error_of_solve:
            raise _never_ends(mdp, weight) from error_of_solve
    return v, error


def _never_ends(mdp: MDP, weight: Floats) -> PolicyError:
    """Error for a policy (π of pairs, [P]) without finite values at discount 1; it names a state."""
    states = endless_states(mdp, weight)
    where = f"never reaches an end from state {states[0]}" if states.size else "takes too many steps to an end"
    return PolicyError(
        f"with discount 1 the policy must end: it {where}. Change the policy, or use a discount below 1."
    )


def state_values(
    mdp: MDP, policy: Floats, *, guess: Floats | None = None, objectives: Ints | slice = slice(None)
) -> Floats:
    """v_k of ``policy``, shape [d, X]: `policy_values` without q, which costs one more pass over p.

    ``objectives`` selects rows of v; ``guess``, the initial v, has the selected rows.
    """
    return weighted_values(mdp, *pair_weights(mdp, policy), guess=guess, objectives=objectives)


def weighted_values(
    mdp: MDP,
    weight: Floats,
    unseen_mass: Floats,
    *,
    guess: Floats | None = None,
    objectives: Ints | slice = slice(None),
) -> Floats:
    """`state_values` for a policy given by pair, as for `solve_weights`."""
    rhs = (
        np.array([by_state(mdp, weight * r) for r in mdp.reward[objectives]])
        + unseen_mass * mdp.unseen_value[objectives]
    )
    return _solve_states(mdp, weight, mdp.discount[objectives], rhs, guess, AIM)[0]


def expected_return(mdp: MDP, policy: npt.ArrayLike, *, horizon: int | None = None) -> Floats:
    """J_k(π) = Σ_x μ(x) v_k(x), shape [d]; with a horizon, only rewards of the first H steps.

    Args:
        mdp: The MDP.
        policy: π(a|x), shape [X, A].
        horizon: H; None for no limit.

    Examples:
        >>> from bettersafe.envs import true_mdp
        >>> bettersafe.expected_return(true_mdp(world), baseline).round(2)  # what the baseline is truly worth
        array([1.54, 1.46])
        >>> bettersafe.expected_return(true_mdp(world), baseline, horizon=1).round(2)  # of it in the first step
        array([0.52, 0.4 ])
    """
    check_horizon(horizon)
    table = _checked(mdp, policy)
    return (state_values(mdp, table) if horizon is None else horizon_values(mdp, table, horizon)) @ mdp.initial


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
    check_integer("k", k, least=0)
    if k >= mdp.n_objectives:
        raise ParameterError(f"k must be an objective, from 0 to {mdp.n_objectives - 1}; got {k}.")
    try:
        return solve_occupancy(mdp.state_ptr, weight, mdp.transition, float(mdp.discount[k]), mdp.initial)
    except NoSolutionError as error:
        raise _never_ends(mdp, weight) from error
