"""Bounds on the loss of a policy from the counts alone: Proposition 3.1, and an a-posteriori bound for any policy.

Proposition 3.1 (for a policy of S-OPT), with probability 1 − δ, for all k and x:

    v_k^π(x) − v_k^{π_b}(x) ≥ −ε v_max / (1 − γ_k)

This is usually wider than the range of returns, and then uninformative. The a-posteriori bound starts from π_b. Its value V in
the true process is a fixed function, so Hoeffding's inequality applies to r + γ V(x') over the n(x,a) visits of a pair, and the
error of q^{π_b} propagates through the known p̂:

    u_k(x,a) = min( s_k, c_k(x,a) + γ_k Σ_x' p̂(x'|x,a) Σ_a' π_b(a'|x') u_k(x',a') )        (iterated down from s_k)
    c_k(x,a) = (w_k + γ_k s_k) √( ln(2|X||A|d N/δ) / 2n(x,a) ),     w_k width of rewards, s_k span of returns

(N is the number of rows, for a union bound over the values of the random n). Then, with probability 1 − δ, for all policies,

    J_k(π) − J_k(π_b) ≥ Σ_x d^π(x) g_k(x),    g_k(x) = Σ_a π(a|x) Adv_k(x,a) − Σ_a u_k(x,a) |π(a|x) − π_b(a|x)|

so g_k ≥ 0 in every state proves that there is no loss on k. A policy visits the states with d^π(x) ≥ μ(x) and
Σ_x d^π(x) ≤ 1/(1 − γ_k), so the smallest gain that is left is

    J_k(π) − J_k(π_b) ≥ Σ_x μ(x) g_k(x) + γ_k/(1 − γ_k) · min(0, min_x g_k(x)),

which is Σ_x μ(x) g_k(x), and may be above 0, where no g_k(x) is below 0. This takes the place of v̂_t − v̂_b − ξ in the paper's remark
on constrained RL. The same event bounds the baseline's own return: J_k(π_b) ≥ Σ_x μ(x) ( v̂_k(x) − Σ_a π_b(a|x) u_k(x,a) ).

The baseline must be known: if it were estimated from the same data, V would be random too.

With discount 1 the range of returns is not limited, and both bounds are infinite. They are about returns without a horizon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.errors import check_probability
from bettersafe.mdp.horizon import discounted_steps
from bettersafe.mdp.mdp import MDP, by_state
from bettersafe.mdp.values import pair_values, policy_values

if TYPE_CHECKING:
    from bettersafe.model import Model
    from bettersafe.typing import Bools, Floats


SPREAD_TOL = 1e-6
"""Change of u, in spans, at which its iteration stops. The iteration decreases from the span, so every iterate is a valid bound."""

SPREAD_SWEEPS = 1_000
"""Largest number of sweeps of that iteration."""


@dataclass(frozen=True, kw_only=True)
class ProvenLoss:
    """A-posteriori bound on the loss.

    Attributes:
        guard: g_k(x), shape [d, X].
        share_safe: Share of states with g_k(x) ≥ 0, shape [d].
        gain_at_least: Lower bound on J_k(π) − J_k(π_b), shape [d]; above 0 if a gain is proven, −infinite at discount 1.
        baseline_at_least: Lower bound on J_k(π_b) of the same event, shape [d]; −infinite at discount 1.
        span: s_k, the range of returns, shape [d]; infinite at discount 1; the bound is informative only if it is smaller.
    """

    guard: Floats
    share_safe: Floats
    gain_at_least: Floats
    baseline_at_least: Floats
    span: Floats

    @property
    def loss_at_most(self) -> Floats:
        """Upper bound on the loss of J_k, shape [d]; 0 if a loss is ruled out, infinite at discount 1."""
        return np.maximum(0.0 - self.gain_at_least, 0.0)

    @property
    def informative(self) -> Bools:
        """Whether the proven loss is smaller than the range of returns, shape [d]."""
        return np.asarray(self.loss_at_most < self.span)


def proposition_loss(model: Model, epsilon: float, reward_size: Floats) -> Floats:
    """ε v_max / (1 − γ_k) of Proposition 3.1 with v_max = r_max/(1 − γ_k), shape [d].

    Args:
        model: Model, for its discounts.
        epsilon: ε with which the policy was made.
        reward_size: Largest |r_k|, shape [d].
    """
    steps = discounted_steps(model.mdp.discount)
    with np.errstate(invalid="ignore"):  # 0 · ∞: without a range of returns there is no bound
        loss = epsilon * reward_size * steps**2
    return np.asarray(np.where(np.isfinite(steps), loss, np.inf))


def proven_loss(
    model: Model,
    policy: Floats,
    baseline: Floats,
    *,
    delta: float,
    reward_low: Floats,
    reward_high: Floats,
    n_rows: int,
    baseline_v: Floats | None = None,
) -> ProvenLoss:
    """A-posteriori bound on the loss of ``policy`` [X, A].

    Args:
        model: Estimated model.
        policy: π.
        baseline: π_b, known (not estimated from the same data).
        delta: δ.
        reward_low: Smallest possible reward, shape [d].
        reward_high: Largest possible reward, shape [d].
        n_rows: Number of rows from which the model was estimated.
        baseline_v: v^{π_b} in the model, shape [d, X], if already computed.
    """
    check_probability("delta", delta)
    mdp = model.mdp
    width = np.asarray(reward_high - reward_low, dtype=np.float64)
    steps = discounted_steps(mdp.discount)
    limited = np.isfinite(steps)
    factor = np.where(limited, steps, 1.0)
    low, high = (
        np.where(edge * sign > 0.0, edge * factor, edge) for edge, sign in ((reward_low, -1.0), (reward_high, 1.0))
    )
    span = np.asarray(np.maximum(high, 0.0) - np.minimum(low, 0.0), dtype=np.float64)
    if baseline_v is None:
        v, q = policy_values(mdp, baseline)
    else:
        v, q = baseline_v, pair_values(mdp.transition, mdp.discount, mdp.reward, baseline_v)
    log_term = np.log(2.0 * mdp.n_states * mdp.n_actions * mdp.n_objectives * max(n_rows, 1) / delta)
    with np.errstate(divide="ignore"):
        per_visit = np.sqrt(log_term / (2.0 * model.counts))
    weight = baseline.take(mdp.pair_index)
    unseen_mass = np.clip(1.0 - by_state(mdp, weight), 0.0, 1.0)
    deviation = policy - baseline
    np.abs(deviation, out=deviation)
    same = ~np.any(deviation > 0.0, axis=1)
    moved, moved_elsewhere = deviation.take(mdp.pair_index), _elsewhere(mdp, deviation)
    played, played_elsewhere = policy.take(mdp.pair_index), _elsewhere(mdp, policy)
    del deviation
    guard = np.empty((mdp.n_objectives, mdp.n_states))
    own_return = np.empty(mdp.n_objectives)
    for k in range(mdp.n_objectives):
        gamma = float(mdp.discount[k])
        own = np.minimum((width[k] + gamma * span[k]) * per_visit, span[k])
        u = np.full(own.size, span[k])
        for _ in range(SPREAD_SWEEPS):
            at_state = by_state(mdp, weight * u) + unseen_mass * span[k]
            spread = pair_values(mdp.transition, mdp.discount[k : k + 1], own[None, :], at_state[None, :])[0]
            np.minimum(spread, u, out=spread)
            change = float(np.max(u - spread, initial=0.0))
            u = spread
            if change <= SPREAD_TOL * span[k]:
                break
        guard[k] = by_state(mdp, played * (q[k] - v[k].take(mdp.pair_state)) - u * moved)
        guard[k] += played_elsewhere * (mdp.unseen_value[k] - v[k]) - span[k] * moved_elsewhere
        own_return[k] = (v[k] - by_state(mdp, weight * u) - unseen_mass * span[k]) @ mdp.initial
    guard[~limited] = -np.inf
    guard[:, same] = 0.0  # an unchanged row has no loss; other values are rounding errors
    return ProvenLoss(
        guard=guard,
        share_safe=np.mean(guard >= 0.0, axis=1),
        gain_at_least=_least_gain(guard, mdp, factor),
        baseline_at_least=np.where(limited, own_return, -np.inf),
        span=np.where(limited, span, np.inf),
    )


def _least_gain(guard: Floats, mdp: MDP, steps: Floats) -> Floats:
    """Σ_x μ(x) g_k(x) + (steps − 1) min(0, min_x g_k(x)), shape [d]; −infinite where a guard is."""
    worst = np.minimum(guard.min(axis=1, initial=0.0), 0.0)
    limited = np.isfinite(worst)
    first = np.where(limited[:, None], guard, 0.0) @ mdp.initial
    return np.asarray(
        np.where(limited, first + (steps - 1.0) * np.where(limited, worst, 0.0), -np.inf) + 0.0
    )  # never −0


def _elsewhere(mdp: MDP, table: Floats) -> Floats:
    """Sum of a table [X, A] over the pairs that are not stored, shape [X]."""
    rest = table.copy()
    rest.put(mdp.pair_index, 0.0)
    return np.asarray(rest.sum(axis=1))
