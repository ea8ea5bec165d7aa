"""Improve on a baseline in the estimated model: S-OPT (MO-SPIBB), and its relatives without some of the rows.

Policy iteration over one program per state (`bettersafe.lp`). With Q_λ = Σ_k λ_k q_k^π,

    π(·|x) ← argmax Σ_a π(a|x) Q_λ(x,a)
             s.t.  Σ_a e(x,a)|π(a|x) − π_b(a|x)| ≤ ε           the budget
                   Σ_a π(a|x) Adv_k^{π_b}(x,a) ≥ 0 for all k    no objective loses, in any state

    s_opt            both rows
    adv_linearized   ε = ∞: the second alone
    linearized       neither: plain policy iteration on the weighted reward

The feasible set stays the same from round to round and is a product over states, so with equal discounts this is
exact policy iteration: J_λ never falls, and it ends at the optimum over the set. With different discounts that
argument fails; then the best policy met is kept, and the search stops when J_λ no longer rises.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from bettersafe import linear, lp
from bettersafe.errors import ParameterError, check_epsilon, check_vector
from bettersafe.mdp import MDP, by_state, check_policy, dense_q, frozen, policy_values, scalarize

if TYPE_CHECKING:
    from bettersafe.model import Model

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Method = Literal["s-opt", "adv-linearized", "linearized"]
METHODS: tuple[Method, ...] = ("s-opt", "adv-linearized", "linearized")

FIRST_TOL = 1e-8
"""Backward error of the first evaluations; it is tightened to linear.RESIDUAL_TOL as the policy settles."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """What one round of policy iteration did; handed to ``progress``."""

    number: int
    gain: float  # largest gain of a state, in units of Q_λ
    scalar_return: float  # J_λ of the policy that the round started from


Progress = Callable[[Round], None]


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """A policy, what it was improved from, and how it was found.

    All returns are in the estimated model: they are what the data suggests, not yet a promise about the world.

    Attributes:
        method: "s-opt", "adv-linearized" or "linearized".
        policy: π, shape [X, A].
        baseline: π_b, shape [X, A].
        preference: λ, shape [d].
        epsilon: ε; ``inf`` where the method has no budget.
        baseline_return: J_k(π_b), shape [d].
        policy_return: J_k(π), shape [d].
        rounds: Rounds of policy iteration.
        converged: False when the cap on rounds came first.
        gap: Largest proven optimality gap of a state's program in the last round, in units of Q_λ.
        kept: States whose program could not be solved to tolerance; they keep the baseline, shape [n].
        distance: Σ_a |π − π_b| of every state, shape [X].
        budget_used: Σ_a e |π − π_b| of every state, shape [X].
        engine: What solved the programs.
    """

    method: Method
    policy: Floats
    baseline: Floats
    preference: Floats
    epsilon: float
    baseline_return: Floats
    policy_return: Floats
    rounds: int
    converged: bool
    gap: float
    kept: Ints
    distance: Floats
    budget_used: Floats
    engine: str

    @property
    def changed(self) -> Ints:
        """States whose row differs from the baseline's, shape [n]."""
        return np.flatnonzero(self.distance > 0.0)

    @property
    def status(self) -> str:
        """The outcome in one sentence."""
        n_states = self.distance.size
        if not np.any(self.preference):
            return (
                "The preference is zero on every objective, so there is nothing to improve: the baseline is returned."
            )
        if self.changed.size == 0:
            reason = (
                "epsilon is 0"
                if self.epsilon == 0.0
                else "no change within the constraints gains anything in the estimated model"
            )
            return f"The baseline is returned: {reason}."
        gain = float(self.preference @ (self.policy_return - self.baseline_return))
        end = "" if self.converged else f" It stopped after {self.rounds} rounds, before it had settled."
        hard = f" {self.kept.size} states could not be solved and keep the baseline." if self.kept.size else ""
        return (
            f"The policy changes {self.changed.size} of {n_states} states and raises the preferred return by {gain:.4g}"
            f" in the estimated model.{end}{hard}"
        )


def s_opt(
    model: Model,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    epsilon: float,
    engine: lp.Engine = "auto",
    max_rounds: int = 100,
    progress: Progress | None = None,
) -> Improvement:
    """S-OPT (MO-SPIBB): the best policy for λ that stays within the budget and loses on no objective in any state.

    Args:
        model: The estimated model.
        baseline: π_b, shape [X, A].
        preference: λ ≥ 0, shape [d].
        epsilon: Deviation budget ε; 0 returns the baseline, inf is `adv_linearized`.
        engine: "auto", "native" or "highs".
        max_rounds: Cap on rounds of policy iteration (the published study used 10).
        progress: Called after every round.
    """
    check_epsilon(epsilon)
    return _improve("s-opt", model, baseline, preference, epsilon, True, engine, max_rounds, progress)


def adv_linearized(
    model: Model,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    engine: lp.Engine = "auto",
    max_rounds: int = 100,
    progress: Progress | None = None,
) -> Improvement:
    """The best policy for λ that loses on no objective in any state of the estimated model; no budget."""
    return _improve("adv-linearized", model, baseline, preference, math.inf, True, engine, max_rounds, progress)


def linearized(
    model: Model,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    engine: lp.Engine = "auto",
    max_rounds: int = 100,
    progress: Progress | None = None,
) -> Improvement:
    """The best policy for λ in the estimated model, with no care for the single objectives."""
    return _improve("linearized", model, baseline, preference, math.inf, False, engine, max_rounds, progress)


def _improve(
    method: Method,
    model: Model,
    baseline: npt.ArrayLike,
    preference: npt.ArrayLike,
    epsilon: float,
    constrained: bool,
    engine: lp.Engine,
    max_rounds: int,
    progress: Progress | None,
) -> Improvement:
    mdp = model.mdp
    base = check_policy(baseline, mdp.n_states, mdp.n_actions, name="baseline", state_labels=model.state_labels)
    weights = check_preference(preference, mdp.n_objectives)
    if max_rounds < 1:
        raise ParameterError(f"max_rounds must be at least 1; got {max_rounds}.")
    search = iterate(
        mdp,
        base,
        model.error,
        weights,
        epsilon,
        constrained=constrained,
        engine=engine,
        max_rounds=max_rounds,
        progress=progress,
    )
    deviation = np.abs(search.policy - base)
    pair_deviation = deviation[mdp.pair_state, mdp.pair_action]
    spent = np.where(pair_deviation > 0.0, pair_deviation, 0.0) * np.where(pair_deviation > 0.0, model.error, 0.0)
    policy_v, _ = policy_values(mdp, search.policy)
    return Improvement(
        method=method,
        policy=search.policy,
        baseline=base,
        preference=weights,
        epsilon=epsilon,
        baseline_return=search.baseline_v @ mdp.initial,
        policy_return=policy_v @ mdp.initial,
        rounds=search.rounds,
        converged=search.converged,
        gap=search.gap,
        kept=search.kept,
        distance=deviation.sum(axis=1),
        budget_used=by_state(mdp, spent),
        engine=search.engine,
    )


def check_preference(preference: npt.ArrayLike, n_objectives: int) -> Floats:
    """λ as a vector of d finite numbers ≥ 0."""
    weights = check_vector("preference", preference, n_objectives, "objective")
    if np.any(weights < 0.0):
        raise ParameterError(
            f"preference must not be negative (mark the objective as lower-is-better instead); got {weights.tolist()}."
        )
    return weights


@dataclass(frozen=True, kw_only=True)
class Search:
    """Where policy iteration ended."""

    policy: Floats
    baseline_v: Floats
    rounds: int
    converged: bool
    gap: float
    kept: Ints
    engine: str


def iterate(
    mdp: MDP,
    baseline: Floats,
    error: Floats,
    preference: Floats,
    epsilon: float,
    *,
    constrained: bool,
    engine: lp.Engine = "auto",
    max_rounds: int = 100,
    progress: Progress | None = None,
) -> Search:
    """Policy iteration with one program per state; the shared engine of this module's verbs.

    Args:
        mdp: The (estimated) MDP.
        baseline: π_b, shape [X, A].
        error: e of every pair, shape [P].
        preference: λ, shape [d].
        epsilon: ε; inf frees every action, tried or not.
        constrained: Whether to keep the advantage rows.
        engine: Engine of the programs.
        max_rounds: Cap on rounds.
        progress: Called after every round.
    """
    engine_name = lp.resolve_engine(engine)
    every_action = math.isinf(epsilon) and mdp.n_pairs < mdp.n_states * mdp.n_actions
    if every_action:
        entry_state = np.repeat(np.arange(mdp.n_states), mdp.n_actions)
        entry_action = np.tile(np.arange(mdp.n_actions), mdp.n_states)
        ptr = np.arange(mdp.n_states + 1) * mdp.n_actions
        entry_error = np.zeros(entry_state.size)
    else:
        entry_state, entry_action, ptr, entry_error = mdp.pair_state, mdp.pair_action, mdp.state_ptr, error

    def entries(mdp_of_q: MDP, v: Floats, q: Floats) -> Floats:
        """Advantages q − v at the entries, shape [·, F]."""
        table = dense_q(mdp_of_q, q).reshape(q.shape[0], -1) if every_action else q
        return table - v[:, entry_state]

    base_v, base_q = policy_values(mdp, baseline)
    advantage = entries(mdp, base_v, base_q)
    for k in range(mdp.n_objectives):
        _quantise(advantage[k], noise(mdp, base_v[k], k))
    programs = lp.Programs(
        ptr=ptr,
        baseline=baseline[entry_state, entry_action],
        error=entry_error,
        rows=advantage if constrained else np.empty((0, entry_state.size)),
        epsilon=epsilon,
    )

    equal_discounts = bool(np.all(mdp.discount == mdp.discount[0]))
    scalar = scalarize(mdp, preference) if equal_discounts else mdp
    weights = np.ones(1) if equal_discounts else preference
    policy = baseline
    v, q = (preference @ base_v)[None, :] if equal_discounts else base_v, base_q
    if equal_discounts:
        q = (preference @ base_q)[None, :]
    tol = linear.RESIDUAL_TOL
    best_policy, best_return = baseline, float(weights @ v @ mdp.initial)
    warm: lp.WarmStart | None = None
    solution: lp.Solution | None = None
    converged = False
    rounds = 0
    for rounds in range(1, max_rounds + 1):
        if rounds > 1:
            v, q = policy_values(scalar, policy, guess=v, tol=tol)
        objective = weights @ entries(scalar, v, q)
        grid = _quantise(objective, sum(w * noise(scalar, v[k], k, tol) for k, w in enumerate(weights)))
        solution = lp.solve(programs, objective, engine=engine_name, warm=warm)
        warm = solution.warm
        current = policy[entry_state, entry_action]
        gain = float(
            np.max(
                np.bincount(entry_state, weights=(solution.policy - current) * objective, minlength=1),
                initial=0.0,
            )
        )
        scalar_return = float(weights @ v @ mdp.initial)
        if progress is not None:
            progress(Round(number=rounds, gain=gain, scalar_return=scalar_return))
        settled = gain <= grid
        if not equal_discounts:  # no monotone improvement to rely on: remember the best
            if rounds > 1 and scalar_return <= best_return + grid:
                converged = True
                break
            best_policy, best_return = policy, scalar_return
        if settled and tol > linear.RESIDUAL_TOL:
            tol = linear.RESIDUAL_TOL
            continue
        policy = baseline.copy()
        policy[entry_state, entry_action] = solution.policy
        if settled:
            converged = True
            best_policy = policy
            break
        tol = FIRST_TOL if rounds == 1 else max(linear.RESIDUAL_TOL, tol * 1e-2)
        if equal_discounts:
            best_policy = policy
    assert solution is not None
    return Search(
        policy=frozen(best_policy, np.float64),
        baseline_v=base_v,
        rounds=rounds,
        converged=converged,
        gap=float(np.max(solution.gap, initial=0.0)),
        kept=np.flatnonzero(~solution.solved),
        engine=engine_name,
    )


def noise(mdp: MDP, v: Floats, k: int, tol: float = linear.RESIDUAL_TOL) -> float:
    """How far q_k and v_k may be off because equations are solved to ``tol``, not exactly."""
    size = max(
        float(np.max(np.abs(mdp.reward[k]), initial=0.0)),
        float(np.max(np.abs(mdp.unseen_value[k]), initial=0.0)),
    )
    return linear.value_error_bound(v, np.array([size]), float(mdp.discount[k]), tol)


def _quantise(values: Floats, size: float) -> float:
    """Round ``values`` in place to a grid a little coarser than their error ``size``; returns the grid.

    Differences below the error of evaluation mean nothing, but a program would take them for constraints and
    reasons. On the grid equal values are equal. A power of two keeps every multiple exact.
    """
    if size <= 0.0:
        return 0.0
    grid = 2.0 ** math.ceil(math.log2(2.0 * size))
    np.round(values / grid, out=values)
    values *= grid
    return grid
