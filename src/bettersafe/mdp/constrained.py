"""Optimal policy of a known MDP under thresholds: a linear program over discounted occupancies.

    max  Σ ρ r_0    s.t.  Σ_a ρ(x,a) − γ Σ_{x̃,ã} p(x|x̃,ã) ρ(x̃,ã) = μ(x),   Σ ρ r_i ≥ c_i,   ρ ≥ 0
    π*(a|x) = ρ(x,a) / Σ_a ρ(x,a)

(the printed paper omits γ and has the opposite sign of the thresholds). In states that π* never visits, ρ(x) = 0 does
not determine π*; there the policy is greedy for the Lagrangian r_0 + Σ_i ν_i r_i at the optimal multipliers ν.

Two engines find the same optimum. "lp" gives the program to HiGHS. "columns" uses column generation: every occupancy is
a mixture of occupancies of deterministic policies, a small program finds the best mixture, and its multipliers ν define
the next policy, by policy iteration on r_0 + Σ ν_i r_i. If no policy improves on the mixture, it is optimal. This takes
about ten policy iterations, and is a hundred times faster on large models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bettersafe.errors import (
    NoSolutionError,
    ParameterError,
    UnsolvedError,
    check_choice,
    check_table,
    check_type,
    check_vector,
)
from bettersafe.mdp.ends import check_discounted
from bettersafe.mdp.mdp import MDP
from bettersafe.mdp.programs import INFEASIBLE, highs
from bettersafe.mdp.values import occupancy, policy_values, solve_policy
from bettersafe.typing import Floats, Ints, frozen

Solver = Literal["auto", "lp", "columns"]
SOLVERS: tuple[Solver, ...] = ("auto", "lp", "columns")

LP_PAIRS = 2_000
"""Largest number of pairs for which "auto" uses HiGHS."""

NEVER_VISITED = 1e-12
"""Discounted visits below which a state counts as never visited (a vertex solution has exact zeros)."""

OPTIMAL_TOL = 1e-9
"""Relative improvement of the Lagrangian below which column generation ends."""

MAX_COLUMNS = 500


@dataclass(frozen=True, kw_only=True)
class CMDPOptimum:
    """The optimum of a constrained MDP.

    Attributes:
        policy: π*, shape [X, A].
        returns: J_k(π*), shape [d].
        multipliers: ν_i ≥ 0 of the thresholds, shape [d−1].
        occupancy: ρ of every pair, shape [P].
        completed: Number of states that π* never visits, where the policy is greedy for the Lagrangian.
    """

    policy: Floats
    returns: Floats
    multipliers: Floats
    occupancy: Floats
    completed: int


def cmdp_optimum(mdp: MDP, thresholds: npt.ArrayLike, *, engine: Solver = "auto") -> CMDPOptimum:
    """Maximise J_0 subject to J_i ≥ thresholds_i for every other objective.

    Args:
        mdp: Known MDP with equal discounts. Only stored pairs are available; a state without pairs
            ends the process at its unseen value.
        thresholds: c_i, shape [d−1].
        engine: "lp", "columns", or "auto" (by size).

    Raises:
        NoSolutionError: No policy satisfies the thresholds.
        UnsolvedError: The solver did not reach its tolerance; there may be such a policy.

    Examples:
        >>> from bettersafe.mdp import cmdp_optimum
        >>> best = cmdp_optimum(model.mdp, thresholds=[1.8])  # r0 as large as can be, with a return of at least 1.8 on r1
        >>> bool(best.returns[1] >= 1.8 - 1e-9)
        True
    """
    check_type("mdp", mdp, MDP)
    check_choice("engine", engine, SOLVERS)
    floors = check_vector("thresholds", thresholds, mdp.n_objectives - 1, "objective after the first")
    if np.any(mdp.discount != mdp.discount[0]):
        raise ParameterError(
            "the constrained optimum needs equal discounts: its program has one occupancy for all objectives."
        )
    check_discounted(mdp, "the constrained optimum")
    use_lp = engine == "lp" or (engine == "auto" and mdp.n_pairs <= LP_PAIRS)
    visits_of_pair, multipliers = _by_lp(mdp, floors) if use_lp else _by_columns(mdp, floors)

    table = np.zeros((mdp.n_states, mdp.n_actions))
    table[mdp.pair_state, mdp.pair_action] = visits_of_pair
    visits = table.sum(axis=1)
    visited = visits > NEVER_VISITED
    greedy = optimal_policy(mdp, np.concatenate([[1.0], multipliers]))
    policy = np.where(visited[:, None], table / np.where(visited, visits, 1.0)[:, None], greedy)
    v, _ = policy_values(mdp, policy)
    return CMDPOptimum(
        policy=frozen(policy, np.float64),
        returns=v @ mdp.initial,
        multipliers=multipliers,
        occupancy=visits_of_pair,
        completed=int(np.count_nonzero(~visited)),
    )


def optimal_policy(mdp: MDP, preference: npt.ArrayLike, *, start: Floats | None = None) -> Floats:
    """Deterministic policy [X, A] that is optimal for Σ_k λ_k r_k, by Howard's policy iteration over stored pairs.

    A state without pairs gets a uniform row. Ties keep the current action, so that the iteration ends.

    Args:
        mdp: The MDP; discounts must be equal.
        preference: λ, shape [d].
        start: Policy to begin with, shape [X, A].

    Examples:
        >>> from bettersafe.mdp import optimal_policy
        >>> best = optimal_policy(model.mdp, preference=[1.0, 0.0])  # for r0 alone
        >>> bool(bettersafe.expected_return(model.mdp, best)[0] > bettersafe.expected_return(model.mdp, baseline)[0])
        True
    """
    check_type("mdp", mdp, MDP)
    check_discounted(mdp, "policy iteration over single actions")
    weights = check_vector("preference", preference, mdp.n_objectives, "objective")
    acting = np.flatnonzero(np.diff(mdp.state_ptr) > 0)
    first = mdp.state_ptr[acting]
    played = first.copy()
    if start is not None:
        begin = check_table("start", start, (mdp.n_states, mdp.n_actions), "[X, A]")
        played = _argmax(begin[mdp.pair_state, mdp.pair_action], mdp, acting)
    v: Floats | None = None
    while True:
        policy = np.full((mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions)
        policy[acting] = 0.0
        policy[acting, mdp.pair_action[played]] = 1.0
        values = solve_policy(mdp, policy, preference=weights, guess=v)
        v, q = values.v, values.q
        best = _argmax(q[0], mdp, acting)
        better = q[0, best] > q[0, played] + 2.0 * values.error[0]  # smaller gains may be evaluation error
        if not np.any(better):
            return policy
        played = np.where(better, best, played)


def _argmax(values: Floats, mdp: MDP, acting: Ints) -> Ints:
    """Index of the first maximal pair of every state in ``acting``."""
    first = mdp.state_ptr[acting]
    largest = np.maximum.reduceat(values, first)
    hits = np.flatnonzero(values == np.repeat(largest, np.diff(mdp.state_ptr)[acting]))
    return np.asarray(hits[np.searchsorted(hits, first)])


def _by_lp(mdp: MDP, floors: Floats) -> tuple[Floats, Floats]:
    """ρ [P] and ν [d−1] by HiGHS: interior point with crossover to a vertex."""
    gamma = float(mdp.discount[0])
    acting = np.diff(mdp.state_ptr) > 0
    reward = mdp.reward + gamma * (mdp.transition[:, ~acting] @ mdp.unseen_value[:, ~acting].T).T
    leaving = sparse.csr_array(
        (np.ones(mdp.n_pairs), (mdp.pair_state, np.arange(mdp.n_pairs))), shape=(mdp.n_states, mdp.n_pairs)
    )
    offset = mdp.unseen_value[:, ~acting] @ mdp.initial[~acting]
    answer = highs(
        -reward[0],
        rows=-reward[1:] if floors.size else None,
        limits=offset[1:] - floors if floors.size else None,
        balance=sparse.csc_array((leaving - gamma * mdp.transition.T)[acting]),
        target=mdp.initial[acting],
        method="highs-ipm",
        tol=1e-9,
    )
    if answer.status == INFEASIBLE:
        raise NoSolutionError(f"no policy keeps the thresholds {floors.tolist()}.")
    if answer.status != 0:
        raise UnsolvedError(f"the program of the constrained optimum was not solved: {answer.message}")
    return np.maximum(answer.x, 0.0), np.maximum(-answer.ineqlin.marginals, 0.0) if floors.size else np.empty(0)


def _by_columns(mdp: MDP, floors: Floats) -> tuple[Floats, Floats]:
    """ρ [P] and ν [d−1] by column generation over deterministic policies.

    Every signal is divided by its own size, so that the tolerances are relative.
    """
    size = np.max(np.abs(mdp.reward), axis=1, initial=0.0)
    size = np.maximum(size, np.max(np.abs(mdp.unseen_value), axis=1, initial=0.0))
    size[size == 0.0] = 1.0
    targets = floors / size[1:]
    policies: list[Floats] = []
    returns: list[Floats] = []

    def add(preference: Floats) -> float:
        """Add the optimal policy for ``preference`` over the scaled signals; returns its weighted return."""
        policy = optimal_policy(mdp, preference / size, start=policies[-1] if policies else None)
        policies.append(policy)
        returns.append(policy_values(mdp, policy)[0] @ mdp.initial / size)
        return float(preference @ returns[-1])

    add(np.eye(mdp.n_objectives)[0])
    # Minimise the shortfall Σ s first (0 if feasible), then maximise J_0.
    for goal in ("shortfall", "return"):
        while True:
            weights, multipliers, level, short = _mixture(np.array(returns), targets, goal)
            scale = np.maximum(np.max(np.abs(returns), axis=0), np.append(0.0, np.abs(targets)))
            if goal == "shortfall" and np.all(short <= OPTIMAL_TOL * scale[1:]):
                targets = targets - short  # subtract the rounding error, which could make the next program infeasible
                break
            preference = np.append(0.0 if goal == "shortfall" else 1.0, multipliers)
            if add(preference) <= level + OPTIMAL_TOL * float(preference @ scale):
                policies.pop()
                returns.pop()
                if goal == "shortfall":
                    missed = ", ".join(f"{gap:.4g}" for gap in short * size[1:])
                    raise NoSolutionError(
                        f"no policy keeps the thresholds {floors.tolist()}: they are missed by {missed}."
                    )
                break
            if len(policies) > MAX_COLUMNS:
                raise UnsolvedError(f"the constrained optimum was not found with {MAX_COLUMNS} policies.")
    mixed = np.zeros(mdp.n_pairs)
    for weight, policy in zip(weights, policies, strict=True):
        if weight > 0.0:
            visits = occupancy(mdp, policy)
            mixed += weight * visits[mdp.pair_state] * policy[mdp.pair_state, mdp.pair_action]
    return mixed, multipliers * size[0] / size[1:]


def _mixture(returns: Floats, floors: Floats, goal: str) -> tuple[Floats, Floats, float, Floats]:
    """Best mixture of policies with ``returns`` [n, d]: weights [n], ν [d−1], value that a new policy must exceed, shortfalls [d−1]."""
    n, m = returns.shape[0], floors.size
    shortfall = goal == "shortfall"
    scale = max(float(np.max(np.abs(returns[:, 0]))), 1e-300)  # scales the cost to the solver's tolerances
    cost = np.append(np.zeros(n), np.ones(m)) if shortfall else np.append(-returns[:, 0] / scale, np.zeros(m))
    size = np.maximum(np.max(np.abs(returns[:, 1:]), axis=0, initial=0.0), np.abs(floors))
    size[size == 0.0] = 1.0
    answer = highs(
        cost,
        rows=-np.hstack([returns[:, 1:].T / size[:, None], np.diag(1.0 / size)]) if m else None,
        limits=-floors / size if m else None,
        balance=np.append(np.ones(n), np.zeros(m))[None, :],
        target=np.ones(1),
        upper=np.append(np.ones(n), np.full(m, np.inf if shortfall else 0.0)),
        retry=True,
    )
    if answer.status != 0:
        raise UnsolvedError(f"the mixture of policies was not solved: {answer.message}")
    unit = 1.0 if shortfall else scale
    multipliers = np.maximum(-answer.ineqlin.marginals, 0.0) * unit / size if m else np.empty(0)
    return answer.x[:n], multipliers, -float(answer.eqlin.marginals[0]) * unit, answer.x[n:]
