"""Lagrangian method for comparison: a game between a policy and the multipliers of the constraints (Le, Voloshin, Yue 2019).

    minimise −J_λ(π)   s.t.   g_k(π) = J_k(π_b) − J_k(π) ≤ 0 for every k,   all in the estimated model
    L(π, ν) = −J_λ(π) + Σ_k ν_k g_k(π),   ν ≥ 0,  Σ_{i ≤ d+1} ν_i = B      (the last multiplier is slack: g_{d+1} = 0)

This is their Algorithm 2, with exact best responses in place of fitted Q-iteration. Round t = 1, 2, …, from ν_1 = B/(d+1):

    π_t    ∈ argmin_π L(π, ν_t)                   policy iteration on the reward Σ_k (λ_k + ν_{t,k}) r_k
    π̂_t, ν̂_t  the means of π_1..π_t and of ν_1..ν_t;  J(π̂_t) is the mean of the J(π_s)
    gap_t  = max_ν L(π̂_t, ν) − min_π L(π, ν̂_t)
           = −J_λ(π̂_t) + B max(0, max_k g_k(π̂_t)) + max_π Σ_k (λ_k + ν̂_{t,k}) J_k(π) − Σ_k ν̂_{t,k} J_k(π_b)
    stop when gap_t ≤ ω, else  ν_{t+1,i} ∝ ν_{t,i} exp(η g_i(π_t))

The gap has the unit of J_λ, so ω is absolute; η has the inverse unit. If returns are about 1000, ω = 0.01 requires five
digits, and η = 0.1 makes the multipliers jump from one corner to another.

The gap bounds the suboptimality: with J* the best J_λ that satisfies every constraint in the model,
J* − J_λ(π̂) + B max(0, max_k g_k(π̂)) ≤ gap. If B is larger than the sum of the optimal multipliers |ν*|, it also bounds the
violation: max_k g_k(π̂) ≤ gap / (B − |ν*|).

The result is a **mixture**: one of the policies is drawn before an episode and kept until its end. All of this holds in
the estimated model; nothing protects against errors of the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bettersafe.errors import ParameterError, PolicyError, check_integer, check_number, check_options, check_type
from bettersafe.mdp.ends import check_discounted
from bettersafe.mdp.mdp import MDP, dense_q
from bettersafe.mdp.policy import check_policy
from bettersafe.mdp.values import RESIDUAL_ROUNDING, solve_policy, state_values
from bettersafe.methods.result import check_preference, three_digits
from bettersafe.model import Model
from bettersafe.typing import Bools, Event, Floats, Progress, frozen


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Mixture of policies: one is drawn before each episode.

    All returns are in the estimated model. They are estimates, not guarantees.

    Attributes:
        policies: Distinct best responses, shape [m, X, A], in the order of their first round. Each plays only best actions;
            ties are split in the proportions of the baseline (evenly if it plays none of them).
        weights: Probability of each policy, shape [m]: the share of rounds in which it was the best response.
        baseline: π_b, shape [X, A].
        preference: λ, shape [d].
        baseline_return: J_k(π_b), shape [d].
        policy_return: J_k of the mixture, the mean of the policies' J_k, shape [d].
        multipliers: ν̂, the mean multipliers of the d constraints (slack left out), shape [d].
        rounds: Number of rounds.
        gap: Duality gap of the last round, in units of J_λ.
        converged: Whether the gap reached ω within the limit on rounds.
    """

    policies: Floats
    weights: Floats
    baseline: Floats
    preference: Floats
    baseline_return: Floats
    policy_return: Floats
    multipliers: Floats
    rounds: int
    gap: float
    converged: bool

    def __post_init__(self) -> None:
        names = ("policies", "weights", "baseline", "preference", "baseline_return", "policy_return", "multipliers")
        for name in names:
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64, name=name))

    @property
    def status(self) -> str:
        """Result in one sentence."""
        change = self.policy_return - self.baseline_return
        lost = np.flatnonzero(change < 0.0)
        losses = ", ".join(f"objective {k} by {three_digits(-change[k])}" for k in lost)
        return (
            f"A mixture of {self.weights.size} {'policy' if self.weights.size == 1 else 'policies'} changes the preferred"
            f" return by {three_digits(float(self.preference @ change))} in the estimated model and loses on"
            f" {losses or 'no objective'} there; the duality gap is {three_digits(self.gap)} after {self.rounds}"
            f" {'round' if self.rounds == 1 else 'rounds'}{'' if self.converged else ', larger than requested'}."
        )


def lagrangian(
    model: Model,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    eta: float = 0.1,
    norm: float = 10.0,
    tol: float = 0.01,
    max_rounds: int = 250,
    progress: Progress | None = None,
) -> Mixture:
    """Approximately the best mixture for λ that loses on no objective in the estimated model, by the game above.

    Every action may be played, with data or not, as in `linearized`; the model's rule for unseen pairs sets their value.
    Defaults are those of the published study.

    Args:
        model: Estimated model; all discounts must be equal.
        baseline: π_b, shape [X, A].
        preference: λ ≥ 0, shape [d].
        eta: Learning rate η > 0, in inverse units of return.
        norm: B > 0, the sum of the multipliers and their slack.
        tol: ω ≥ 0, the duality gap at which to stop, absolute, in units of J_λ.
        max_rounds: Limit on rounds.
        progress: Callback after every round.

    Examples:
        >>> found = bettersafe.lagrangian(model, baseline, preference=[1.0, 0.0], max_rounds=50)
        >>> bool(found.weights.sum().round(9) == 1.0), found.policies.shape[1:]
        (True, (6, 3))
    """
    check_type("model", model, Model)
    check_options(progress=progress)
    mdp = model.mdp
    base = check_policy(baseline, mdp.n_states, mdp.n_actions, name="baseline", state_labels=model.state_labels)
    preferred = check_preference(preference, mdp.n_objectives)
    for name, value in (("eta", eta), ("norm", norm), ("tol", tol)):
        check_number(name, value)
    for name, value in (("eta", eta), ("norm", norm)):
        if not 0.0 < value < math.inf:
            raise ParameterError(f"{name} must be a finite number above 0; got {value!r}.")
    if not tol >= 0.0:
        raise ParameterError(f"tol must be 0 or more; got {tol!r}.")
    check_integer("max_rounds", max_rounds, least=1)
    if np.any(mdp.discount != mdp.discount[0]):
        raise ParameterError(
            "the Lagrangian method needs equal discounts, because its best responses maximise one weighted reward;"
            f" got {mdp.discount.tolist()}."
        )
    check_discounted(mdp, "the Lagrangian method")

    first = _evaluate(mdp, base, base > 0.0)
    floor = first.returns
    met = {first.key: first}
    exponent = np.zeros(floor.size + 1)  # ln ν up to a constant; the last one is the slack, whose gradient is 0
    times: dict[bytes, int] = {}
    sum_multipliers, sum_returns = np.zeros(floor.size), np.zeros(floor.size)
    for rounds in range(1, max_rounds + 1):
        # shifted so that the largest exponent is 0: nothing overflows, and an exponent that underflows can recover
        share = np.exp(exponent - np.max(exponent))
        multipliers = norm * share[:-1] / np.sum(share)
        answer = _best_response(mdp, base, preferred + multipliers, met)
        times[answer.key] = times.get(answer.key, 0) + 1
        sum_multipliers += multipliers
        sum_returns += answer.returns

        mean_multipliers, mean_returns = sum_multipliers / rounds, sum_returns / rounds
        upper = float(-preferred @ mean_returns + norm * max(0.0, float(np.max(floor - mean_returns))))
        weights, offset = preferred + mean_multipliers, float(mean_multipliers @ floor)
        # Any policy bounds min_π L from above and the gap from below, so the exact gap is needed only near the end.
        gap = upper + float(weights @ _best_met(met, weights).returns) - offset
        if gap <= tol or rounds == max_rounds:
            gap = max(0.0, upper + float(weights @ _best_response(mdp, base, weights, met).returns) - offset)
        if progress is not None:
            progress(Event(done=rounds, total=max_rounds, unit="rounds", gap=gap))
        if gap <= tol:
            break
        exponent[:-1] += eta * (floor - answer.returns)
    return Mixture(
        policies=np.array([_rows(base, met[key].support) for key in times]),
        weights=np.array(list(times.values())) / rounds,
        baseline=base,
        preference=preferred,
        baseline_return=floor,
        policy_return=mean_returns,
        multipliers=mean_multipliers,
        rounds=rounds,
        gap=gap,
        converged=gap <= tol,
    )


def mixture_return(mdp: MDP, mixture: Mixture) -> Floats:
    """J_k of a mixture in any MDP over the same states and actions, shape [d].

        J_k = Σ_i w_i J_k(π_i)

    This differs from the return of the policy with the mean rows.

    Args:
        mdp: MDP.
        mixture: Mixture of policies.

    Examples:
        >>> from bettersafe.envs import true_mdp
        >>> from bettersafe.methods import mixture_return
        >>> found = bettersafe.lagrangian(model, baseline, preference=[1.0, 0.0], max_rounds=50)
        >>> mixture_return(true_mdp(world), found).shape
        (2,)
    """
    check_type("mdp", mdp, MDP)
    check_type("mixture", mixture, Mixture)
    n_states, n_actions = mixture.baseline.shape
    if (mdp.n_states, mdp.n_actions) != (n_states, n_actions):
        raise PolicyError(
            f"the mixture is over {n_states} states × {n_actions} actions, the MDP has {mdp.n_states} × {mdp.n_actions}."
        )
    total = np.zeros(mdp.n_objectives)
    v: Floats | None = None
    for weight, policy in zip(mixture.weights, mixture.policies, strict=True):
        v = state_values(mdp, policy, guess=v)
        total += weight * (v @ mdp.initial)
    return total


@dataclass(frozen=True, kw_only=True)
class _Policy:
    """Evaluated policy; its values for all rewards allow a comparison for other multipliers without a new solve."""

    key: bytes  # packed support
    support: Bools  # actions with positive probability, shape [X, A]
    v: Floats  # [d, X]
    error: Floats  # error of v, shape [d]
    returns: Floats  # J_k, shape [d]


def _rows(baseline: Floats, support: Bools) -> Floats:
    """Policy with this support, shape [X, A]: in the baseline's proportions, or evenly if the baseline plays none of it."""
    rows = np.where(support, baseline, 0.0)
    total = rows.sum(axis=1, keepdims=True)
    even = support / support.sum(axis=1, keepdims=True)
    rows = np.where(total > 0.0, rows / np.where(total > 0.0, total, 1.0), even)
    whole = np.all(support >= (baseline > 0.0), axis=1)  # the full support gives the baseline's row, bit for bit
    return np.where(whole[:, None], baseline, rows)


def _evaluate(mdp: MDP, baseline: Floats, support: Bools, guess: Floats | None = None) -> _Policy:
    values = solve_policy(mdp, _rows(baseline, support), guess=guess)
    return _Policy(
        key=np.packbits(support).tobytes(),
        support=support,
        v=values.v,
        error=values.error,
        returns=values.v @ mdp.initial,
    )


def _best_met(met: dict[bytes, _Policy], weights: Floats) -> _Policy:
    """Evaluated policy with the largest Σ_k w_k J_k."""
    policies = list(met.values())
    return policies[int(np.argmax(np.array([policy.returns for policy in policies]) @ weights))]


def _best_response(mdp: MDP, baseline: Floats, weights: Floats, met: dict[bytes, _Policy]) -> _Policy:
    """Policy that is optimal in every state for Σ_k w_k r_k, by Howard's policy iteration from the best policy in ``met``.

    The values of all d rewards are stored, so that testing a known policy with new weights takes one product with p.
    Ties are split in the baseline's proportions: the result does not depend on the start of the search, and a state in which
    all actions are equal keeps its baseline row. Evaluated policies are added to ``met``.
    """
    peak = float(np.max(weights))
    w = weights / peak if peak > 0.0 else weights  # multipliers can have any size, also close to underflow
    reward, unseen = w @ mdp.reward, w @ mdp.unseen_value
    gamma = float(mdp.discount[0])
    # the weighted sum of d values has a rounding error of up to d·ε/2 of their size; their own error is at least 2·ROUNDING
    slack = 1.0 + w.size * float(np.finfo(np.float64).eps) / (4.0 * RESIDUAL_ROUNDING)
    policy = _best_met(met, w)
    while True:
        v = w @ policy.v
        q = dense_q(mdp, (reward + gamma * (mdp.transition @ v))[None, :], unseen_value=unseen[None, :])[0]
        top = np.max(q, axis=1)
        tie = 2.0 * slack * float(w @ policy.error)  # smaller differences are within the error
        best = q >= (top - tie)[:, None]
        favoured = best & (baseline > 0.0)
        best = np.where(np.any(favoured, axis=1, keepdims=True), favoured, best)
        better = top > v + 2.0 * tie  # every best action is then an improvement, despite the error
        settled = not np.any(better)
        # before convergence only rows that gain are changed: the value rises in every step, so the search ends
        support = best if settled else np.where(better[:, None], best, policy.support)
        key = np.packbits(support).tobytes()
        if key not in met:
            met[key] = _evaluate(mdp, baseline, support, guess=policy.v)
        policy = met[key]
        if settled:
            return policy
