"""Result of a method: policy, baseline and details of the search."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from bettersafe.errors import ParameterError, check_vector
from bettersafe.mdp.mdp import MDP, by_state
from bettersafe.mdp.values import state_values
from bettersafe.model import Model, model_return
from bettersafe.typing import Floats, Ints, frozen

MIN_SHARE = 0.01
"""Smallest share of v_λ for which a value may be computed as a difference: at most two of sixteen digits are lost."""


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """Policy of a method, with its baseline and details of the search.

    All returns are in the estimated model, up to its horizon if it has one. They are estimates, not guarantees. With a horizon,
    policies are optimised for the discounted return of `mdp.horizon.geometric_discount`, and so are the constraints on objectives.

    Attributes:
        method: Name of the method, a key of `bettersafe.methods.METHODS`.
        policy: π, shape [X, A].
        baseline: π_b, shape [X, A].
        preference: λ, shape [d].
        epsilon: ε; ``inf`` if the method has no budget.
        baseline_return: J_k(π_b), shape [d].
        policy_return: J_k(π), shape [d].
        baseline_v: v_k^{π_b} with the discounts of the model's MDP, shape [d, X].
        rounds: Rounds of policy iteration (G-OPT: number of policies computed).
        converged: False if the limit on rounds was reached first.
        gap: Largest proven optimality gap of the states' programs in the last round, in units of Q_λ (G-OPT: gap of its
            program, in units of J_λ).
        kept: States whose program could not be solved to tolerance in the last round, shape [n]; they keep their previous
            row, initially the baseline's.
        endless: With discount 1: states that keep their previous row because the policy would never end, shape [n].
        horizon: Number of steps of the returns; None for no limit.
        distance: Σ_a |π − π_b| of every state, shape [X].
        budget_used: Σ_a e |π − π_b| of every state, shape [X].
        engine: Solver of the programs: "native" or "highs"; for G-OPT the form of its program, "multipliers" or "lp".
        reason: Reason why the baseline is returned, if it is not simply that no policy gains.

    Examples:
        >>> found = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0)
        >>> found.policy.shape, found.changed.size
        ((6, 3), 6)
        >>> print(found.status)
        The policy changes 6 of 6 states and raises the preferred return by ... in the estimated model.
    """

    method: str
    policy: Floats
    baseline: Floats
    preference: Floats
    epsilon: float
    baseline_return: Floats
    policy_return: Floats
    baseline_v: Floats
    rounds: int
    converged: bool
    gap: float
    kept: Ints
    distance: Floats
    budget_used: Floats
    engine: str
    reason: str = ""
    endless: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    horizon: int | None = None

    def __post_init__(self) -> None:
        floats = (
            "policy",
            "baseline",
            "preference",
            "baseline_return",
            "policy_return",
            "baseline_v",
            "distance",
            "budget_used",
        )
        for name in floats:
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64, name=name))
        for name in ("kept", "endless"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int64, name=name))

    @property
    def changed(self) -> Ints:
        """States whose row differs from the baseline's, shape [n]."""
        return np.flatnonzero(self.distance > 0.0)

    @property
    def status(self) -> str:
        """Result in one sentence."""
        n_states = self.distance.size
        if self.changed.size == 0:
            if self.reason:
                return f"The baseline is returned: {self.reason}."
            if not np.any(self.preference):
                return "The baseline is returned: the preference is zero on every objective, so there is nothing to improve."
            reason = (
                "epsilon is 0"
                if self.epsilon == 0.0
                else "no policy within the constraints improves the preferred return in the estimated model"
            )
            return f"The baseline is returned: {reason}."
        gain = float(self.preference @ (self.policy_return - self.baseline_return))
        end = "" if self.converged else " The search stopped before it converged."
        hard = f" {self.kept.size} states could not be solved and keep their previous row." if self.kept.size else ""
        first = "" if self.horizon is None else f" of the first {self.horizon:,} steps"
        loop = f" {self.endless.size} states keep their previous row, because the policy would never end there."
        hard += loop if self.endless.size else ""
        return (
            f"The policy changes {self.changed.size} of {n_states} states and raises the preferred return{first} by {three_digits(gain)}"
            f" in the estimated model.{end}{hard}"
        )


def three_digits(value: float) -> str:
    """Number with three significant digits for a sentence; whole numbers from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"


@dataclass(frozen=True, kw_only=True)
class Search:
    """Result of a search for a policy; fields up to ``reason`` are as in `Improvement`.

    Attributes:
        policy: π, shape [X, A].
        baseline_v: v_k^{π_b}, shape [d, X].
        rounds: Rounds of the search.
        converged: Whether the search converged.
        gap: Largest proven optimality gap.
        kept: States that could not be solved, shape [n].
        endless: States in which the policy would never end, shape [n].
        engine: Solver of the programs.
        reason: Reason why the baseline is returned, if known.
        scalar_v: Initial guess for v_λ of the policy, shape [X]; None if discounts differ or there is none.
        scalar_known: Whether ``scalar_v`` is exactly v_λ of the policy.
    """

    policy: Floats
    baseline_v: Floats
    rounds: int
    converged: bool
    gap: float
    kept: Ints
    engine: str
    reason: str = ""
    endless: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    scalar_v: Floats | None = None
    scalar_known: bool = False


def improvement(
    method: str, model: Model, baseline: Floats, search: Search, *, preference: Floats, epsilon: float
) -> Improvement:
    """Improvement from the result of a search, with returns in the model and the budget used.

    With a horizon, a policy that does not raise the preferred return of the first steps is replaced by the baseline.
    """
    returns: tuple[Floats, Floats] | None = None
    if model.horizon is not None:
        before, after = (model_return(model, each, baseline) for each in (baseline, search.policy))
        if not preference @ (after - before) > 0.0 and np.any(search.policy != baseline):
            reason = f"the policy that was found gains nothing in the first {model.horizon:,} steps"
            search, after = replace(search, policy=baseline, reason=reason), before
        returns = before, after
    mdp, policy, baseline_v = model.mdp, search.policy, search.baseline_v
    deviation = policy - baseline
    np.abs(deviation, out=deviation)
    distance = deviation.sum(axis=1)
    pair_deviation = deviation.take(mdp.pair_index)
    del deviation  # a table [X, A] takes as much memory as the whole solve
    spent = np.zeros(mdp.n_pairs)
    np.multiply(pair_deviation, model.error, out=spent, where=pair_deviation > 0.0)  # avoids 0 · ∞
    if returns is None:
        baseline_return = policy_return = baseline_v @ mdp.initial
        if np.any(distance):
            policy_return = _returns(mdp, policy, preference, baseline_v, search.scalar_v, known=search.scalar_known)
        returns = baseline_return, policy_return
    return Improvement(
        method=method,
        policy=policy,
        baseline=baseline,
        preference=preference,
        epsilon=epsilon,
        baseline_return=returns[0],
        policy_return=returns[1],
        baseline_v=baseline_v,
        rounds=search.rounds,
        converged=search.converged,
        gap=search.gap,
        kept=search.kept,
        distance=distance,
        budget_used=by_state(mdp, spent),
        engine=search.engine,
        reason=search.reason,
        endless=search.endless,
        horizon=model.horizon,
    )


def _returns(
    mdp: MDP, policy: Floats, preference: Floats, guess: Floats, scalar_v: Floats | None, *, known: bool
) -> Floats:
    """J_k(π), shape [d], from values solved with the initial ``guess`` [d, X]; ``scalar_v`` [X] is v_λ if ``known``, else a guess.

    A known v_λ saves one solve: v_k = (v_λ − Σ_{j≠k} λ_j v_j) / λ_k, for the k with the largest weighted guess. If the other
    values turn out to be so large that the difference would be mostly rounding error, v_k is solved too.
    """
    most = int(np.argmax(preference * np.max(np.abs(guess), axis=1, initial=0.0)))
    if scalar_v is None or not preference[most] > 0.0:
        return state_values(mdp, policy, guess=guess) @ mdp.initial
    if not known:
        if np.count_nonzero(preference) == 1:  # v_λ is a multiple of this value
            guess = guess.copy()
            guess[most] = scalar_v / preference[most]
        return state_values(mdp, policy, guess=guess) @ mdp.initial
    v = np.zeros_like(guess)
    others = np.delete(np.arange(mdp.n_objectives), most)
    if others.size:
        v[others] = state_values(mdp, policy, guess=guess[others], objectives=others)
    v[most] = (scalar_v - preference @ v) / preference[most]
    sizes = preference * np.max(np.abs(v), axis=1, initial=0.0)
    if sizes[most] < MIN_SHARE * np.sum(sizes):
        v[most] = state_values(mdp, policy, guess=v[[most]], objectives=np.array([most]))[0]
    return v @ mdp.initial


def check_preference(preference: npt.ArrayLike, n_objectives: int) -> Floats:
    """λ as a vector of d finite numbers ≥ 0."""
    weights = check_vector("preference", preference, n_objectives, "objective")
    if np.any(weights < 0.0):
        raise ParameterError(
            f"preference must not be negative (mark the objective as lower-is-better instead); got {weights.tolist()}."
        )
    return weights
