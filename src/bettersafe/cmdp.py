"""The best policy of a known MDP under thresholds: the dual linear program over discounted occupancies.

    max  Σ ρ r_0    s.t.  Σ_a ρ(x,a) − γ Σ_{x̃,ã} p(x|x̃,ã) ρ(x̃,ã) = μ(x),   Σ ρ r_i ≥ c_i,   ρ ≥ 0
    π*(a|x) = ρ(x,a) / Σ_a ρ(x,a)

(the paper's print lacks γ and turns the sign of the thresholds). Where π* never goes, ρ(x) = 0 says nothing; there
the policy is greedy for the Lagrangian r_0 + Σ_i ν_i r_i at the optimal multipliers ν.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bettersafe.errors import NoSolutionError, ParameterError, check_vector
from bettersafe.improve import iterate
from bettersafe.mdp import MDP, frozen, policy_values

Floats = npt.NDArray[np.float64]

NEVER_VISITED = 1e-12
"""Discounted visits below which a state counts as never visited (a vertex solution has exact zeros there)."""


@dataclass(frozen=True, kw_only=True)
class CMDPOptimum:
    """The optimum of a constrained MDP.

    Attributes:
        policy: π*, shape [X, A].
        returns: J_k(π*), shape [d].
        multipliers: ν_i ≥ 0 of the thresholds, shape [d−1].
        occupancy: ρ of every pair, shape [P].
        completed: Number of states that π* never visits, completed by the greedy policy of the Lagrangian.
    """

    policy: Floats
    returns: Floats
    multipliers: Floats
    occupancy: Floats
    completed: int


def cmdp_optimum(mdp: MDP, thresholds: npt.ArrayLike) -> CMDPOptimum:
    """Maximise J_0 subject to J_i ≥ thresholds_i for every other objective.

    Args:
        mdp: A known MDP with equal discounts. Pairs that are not stored are not available; a state without pairs
            ends the process at its unseen value.
        thresholds: c_i, shape [d−1].

    Raises:
        NoSolutionError: No policy keeps the thresholds.
    """
    from scipy.optimize import linprog

    floors = check_vector("thresholds", thresholds, mdp.n_objectives - 1, "objective after the first")
    gamma = float(mdp.discount[0])
    if np.any(mdp.discount != gamma):
        raise ParameterError("the constrained optimum needs equal discounts: its program has one occupancy for all objectives.")
    acting = np.diff(mdp.state_ptr) > 0
    reward = mdp.reward + gamma * (mdp.transition[:, ~acting] @ mdp.unseen_value[:, ~acting].T).T
    leaving = sparse.csr_array((np.ones(mdp.n_pairs), (mdp.pair_state, np.arange(mdp.n_pairs))), shape=(mdp.n_states, mdp.n_pairs))
    flow = sparse.csc_array((leaving - gamma * mdp.transition.T)[acting])
    answer = linprog(
        -reward[0],
        A_ub=-reward[1:] if floors.size else None,
        b_ub=-floors if floors.size else None,
        A_eq=flow,
        b_eq=mdp.initial[acting],
        method="highs-ipm",
        options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
    )
    if answer.status == 2:
        raise NoSolutionError(f"no policy keeps the thresholds {floors.tolist()}.")
    if answer.status != 0:
        raise NoSolutionError(f"the program of the constrained optimum was not solved: {answer.message}")
    occupancy = np.maximum(answer.x, 0.0)
    multipliers = np.maximum(-answer.ineqlin.marginals, 0.0) if floors.size else np.empty(0)

    table = np.zeros((mdp.n_states, mdp.n_actions))
    table[mdp.pair_state, mdp.pair_action] = occupancy
    visits = table.sum(axis=1)
    visited = visits > NEVER_VISITED
    greedy = _greedy(mdp, np.concatenate([[1.0], multipliers]))
    policy = np.where(visited[:, None], table / np.where(visited, visits, 1.0)[:, None], greedy)
    v, _ = policy_values(mdp, policy)
    return CMDPOptimum(
        policy=frozen(policy, np.float64),  # type: ignore[arg-type]
        returns=v @ mdp.initial,
        multipliers=multipliers,
        occupancy=occupancy,
        completed=int(np.count_nonzero(~visited)),
    )


def _greedy(mdp: MDP, preference: Floats) -> Floats:
    """An optimal policy for the weighted reward, among stored pairs; uniform where a state has none."""
    uniform = np.zeros((mdp.n_states, mdp.n_actions))
    uniform[mdp.pair_state, mdp.pair_action] = 1.0
    total = uniform.sum(axis=1, keepdims=True)
    uniform = np.where(total > 0.0, uniform / np.maximum(total, 1.0), 1.0 / mdp.n_actions)
    # A budget that never binds: unlike ε = ∞ it leaves pairs that are not stored alone.
    no_budget = np.zeros(mdp.n_pairs)
    return iterate(mdp, uniform, no_budget, preference, 1.0, constrained=False, max_rounds=10_000).policy
