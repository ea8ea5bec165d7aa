"""Marginalised estimators of J(π): one weight per state and action, instead of a product of weights along the trajectory.

In a finite MDP, whatever v̂ and q̂ are, as long as v̂ = Σ_a π q̂,

    J(π) = E v̂(x_0) + Σ_{x,a} ν_π(x) π(a|x) E[ r + γ v̂(x') − q̂(x,a) | x, a ],      ν_π(x) = Σ_t γ^t P(x_t = x | π)

A row of the log shows what follows its state and action, whatever came before it. With n(x) rows in x per episode, the term of
trajectory i is

    v̂(x_0) + Σ_{rows of i} w(x,a) ( r + γ v̂(x') − q̂(x,a) ),      w(x,a) = ν̂_π(x) π(a|x) / ( n(x) π_b(a|x) )

    drl   double reinforcement learning (Kallus & Uehara 2020): v̂, q̂ and ν̂_π are of a model of other data. An error of the estimate
          is a product of an error of ν̂_π and one of q̂
    mis   marginalised importance sampling, tabular: the model is that of the log itself. Then the residuals of every pair sum to 0,
          the mean of the terms is the model's return, and the terms are its linearisation

The rows may be of any length of episode: weights are the policy's visits, without a limit on steps, over the visits in the log. So
episodes that are cut off are no special case, and nothing rests on a model's value where logging stopped. With a horizon H the sum
over t ends at H, with values for the steps to go:

    Σ_{rows of i} π(a|x) / ( n(x) π_b(a|x) ) Σ_{t<H} γ^t P̂(x_t = x | π) ( r + γ v̂_{t+1}(x') − q̂_t(x,a) )

Weights along a trajectory need no Markov property; these do: the logged state must be all that matters for what comes next.
A model fits its own rows too well: for mis, residuals of a pair with n rows are multiplied by n/(n−1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.mdp.ends import ending, undiscounted
from bettersafe.mdp.horizon import lasting
from bettersafe.mdp.mdp import pair_weights, policy_matrix
from bettersafe.mdp.values import policy_values, solve_occupancy
from bettersafe.model import steps_to_go

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.logs.dataset import Dataset
    from bettersafe.model import Model
    from bettersafe.typing import Floats, Ints, Log


@dataclass(frozen=True, kw_only=True)
class Following:
    """What a policy visits and is worth in a model, for the residuals of rows.

    Attributes:
        start: v̂ at the first step, shape [X, d].
        visits: ν̂_π, shape [X, d]; discounted visits up to the horizon, if there is one.
        expected: Σ_t γ^t P̂(x_t = x) q̂_t of the model's pairs, shape [P, d].
        otherwise: The same of pairs that the model does not have, by state, shape [X, d].
        reward: r̂ of the model's pairs, shape [P, d].
        pair: Index of the pair (x, a), shape [X, A]; -1 if the model does not have it.
        by_step: P̂(x_t = x), shape [H, X], and γ^{t+1} v̂_{t+1}, shape [H, X, d]; None without a horizon.
        following: γ v̂, shape [X, d], without a horizon.
    """

    start: Floats
    visits: Floats
    expected: Floats
    otherwise: Floats
    reward: Floats
    pair: Ints
    by_step: tuple[Floats, Floats] | None
    following: Floats

    def residuals(self, block: Dataset, rows: Ints) -> Floats:
        """Σ_t γ^t P̂(x_t = x) (r + γ v̂_{t+1}(x') − q̂_t(x,a)) of the rows [m] of a block, shape [m, d].

        If the next state is not known, its value is as the model expects.
        """
        x, a, following = block.states[rows], block.actions[rows], block.next_states[rows]
        pair = self.pair[x, a]
        known = pair >= 0
        visits = self.visits[x]
        found = visits * block.rewards[rows]
        found -= np.where(known[:, None], self.expected[pair], self.otherwise[x])
        goes_on = following >= 0
        found[goes_on] += self._values_after(x[goes_on], following[goes_on], visits[goes_on])
        lost = ~goes_on & ~block.terminated[rows]
        if np.any(lost):  # expected − visits · r̂ is the value that the model expects next
            paid = np.where(known[:, None], self.reward[pair], 0.0)
            found[lost] += (np.where(known[:, None], self.expected[pair], self.otherwise[x]) - visits * paid)[lost]
        return found

    def _values_after(self, x: Ints, following: Ints, visits: Floats) -> Floats:
        """Σ_t γ^{t+1} P̂(x_t = x) v̂_{t+1}(x') of steps from x [m] to x' [m], shape [m, d]."""
        if self.by_step is None:
            return visits * self.following[following]
        there, after = self.by_step
        steps, own = np.unique(x * self.start.shape[0] + following, return_inverse=True)
        before, then = np.divmod(steps, self.start.shape[0])
        total = np.zeros((steps.size, self.start.shape[1]))
        for share, value in zip(there, after, strict=True):
            total += share[before, None] * value[then]
        return np.asarray(total[own])


def following(model: Model, policy: Floats, baseline: Floats) -> Following:
    """Visits and values of ``policy`` [X, A] in ``model``; ``baseline`` [X, A] values pairs without data."""
    mdp = model.mdp
    pair = np.full((mdp.n_states, mdp.n_actions), -1, dtype=np.int64)
    pair[mdp.pair_state, mdp.pair_action] = np.arange(mdp.n_pairs)
    if model.horizon is not None:
        return _up_to_horizon(model, policy, baseline, pair)
    follow = ending(mdp, policy, baseline) if undiscounted(mdp) else policy
    v, q = policy_values(mdp, follow)
    weight, _ = pair_weights(mdp, follow)
    by_discount = {
        gamma: np.maximum(solve_occupancy(mdp.state_ptr, weight, mdp.transition, gamma, mdp.initial), 0.0)
        for gamma in set(mdp.discount.tolist())
    }
    visits = np.stack([by_discount[gamma] for gamma in mdp.discount.tolist()], axis=1)
    return Following(
        start=v.T,
        visits=visits,
        expected=visits[mdp.pair_state] * q.T,
        otherwise=visits * mdp.unseen_value.T,
        reward=mdp.reward.T,
        pair=pair,
        by_step=None,
        following=(mdp.discount[:, None] * v).T,
    )


def _up_to_horizon(model: Model, policy: Floats, baseline: Floats, pair: Ints) -> Following:
    """`following` for returns of the first H steps."""
    mdp, horizon, gamma = model.mdp, model.horizon, model.discount
    assert horizon is not None
    d, n_states = mdp.n_objectives, mdp.n_states
    weight, _ = pair_weights(mdp, policy)
    backward = policy_matrix(mdp.state_ptr, weight, mdp.transition).T.tocsr()
    there, after = np.empty((horizon, n_states)), np.zeros((horizon, n_states, d))
    there[0] = mdp.initial
    for t in range(1, horizon):
        there[t] = backward @ there[t - 1]
    visits, otherwise = np.zeros((n_states, d)), np.zeros((n_states, d))
    expected, v = np.zeros((mdp.n_pairs, d)), np.zeros((n_states, d))
    for t, (values, worth) in zip(
        range(horizon - 1, -1, -1), lasting(steps_to_go(model, policy, baseline)), strict=False
    ):
        power = gamma**t
        after[t] = power * gamma * v
        share = there[t][:, None] * power
        visits += share
        otherwise += share * worth.T
        expected += there[t][mdp.pair_state, None] * (power * mdp.reward.T + mdp.transition @ after[t])
        v = values.T
    return Following(
        start=v,
        visits=visits,
        expected=expected,
        otherwise=otherwise,
        reward=mdp.reward.T,
        pair=pair,
        by_step=(there, after),
        following=np.zeros((0, d)),
    )


@dataclass(frozen=True, kw_only=True)
class MarginalTerms:
    """Terms of a marginalised estimator.

    Attributes:
        terms: Terms whose mean is the estimate, shape [n, d].
        weights: Weight of every trajectory, Σ_rows w(x,a) / Σ_x ν̂_π(x), whose mean is about 1, for the discount whose weights
            differ most, shape [n].
        missing: Share of the policy's visits to decisions that it takes more often than the baseline and that the log can't
            show: it has no row of them; for mis, at most one.
    """

    terms: Floats
    weights: Floats
    missing: float


def marginal_terms(
    data: Log, policy: Floats, baseline: Floats, models: Sequence[Following], fold: Ints, *, own_model: bool
) -> MarginalTerms:
    """Terms of drl or, with the log's ``own_model``, mis.

    Args:
        data: Log, with all rows of its episodes.
        policy: π, shape [X, A].
        baseline: π_b, shape [X, A].
        models: Visits and values in the models.
        fold: Index of every episode's model, shape [n].
        own_model: Whether the model is that of the log itself.
    """
    seen = np.zeros(policy.shape, dtype=np.int64)
    for block in data.blocks():
        pairs = block.states * data.n_actions + block.actions
        seen += np.bincount(pairs, minlength=policy.size).reshape(policy.shape)
    ratio = np.divide(policy, baseline, out=np.zeros_like(policy), where=baseline > 0.0)
    per_visit = data.n_episodes * ratio / np.maximum(seen.sum(axis=1), 1)[:, None]
    inflation = seen / np.maximum(seen - 1, 1) if own_model else np.ones(policy.shape)
    terms = np.empty((data.n_episodes, data.n_objectives))
    weights = np.zeros((data.n_episodes, data.n_objectives))
    steps = [model.visits.sum(axis=0) for model in models]
    first = 0
    for block in data.blocks():
        lengths = np.diff(block.episode_ptr)
        own = fold[first : first + block.n_episodes]
        of_row = np.repeat(own, lengths)
        per_row, weight = (np.empty((block.n_rows, data.n_objectives)) for _ in range(2))
        starts = np.empty((block.n_episodes, data.n_objectives))
        for number, model in enumerate(models):
            rows, mine = np.flatnonzero(of_row == number), np.flatnonzero(own == number)
            x, a = block.states[rows], block.actions[rows]
            scale = per_visit[x, a][:, None]
            per_row[rows] = scale * inflation[x, a][:, None] * model.residuals(block, rows)
            weight[rows] = scale * model.visits[x] / steps[number]
            starts[mine] = model.start[block.states[block.episode_ptr[mine]]]
        place = slice(first, first + block.n_episodes)
        terms[place] = starts + np.add.reduceat(per_row, block.episode_ptr[:-1], axis=0)
        weights[place] = np.add.reduceat(weight, block.episode_ptr[:-1], axis=0)
        first = place.stop
    squares, total = (weights**2).sum(axis=0), weights.sum(axis=0)
    widest = int(np.argmax(np.divide(squares, total**2, out=np.full(total.size, np.inf), where=total > 0.0)))
    thin = seen < (2 if own_model else 1)
    raised = np.where(thin, np.maximum(policy - baseline, 0.0), 0.0).sum(axis=1)
    missing = np.mean([(model.visits.T @ raised / sums).max() for model, sums in zip(models, steps, strict=True)])
    return MarginalTerms(terms=terms, weights=weights[:, widest], missing=float(missing))
