"""Posterior of the mean rewards of pairs: a hierarchical normal model with effects of states, actions and pairs.

For one objective, with n visits of a pair and r̄ their mean reward,

    r̄(x,a) | ρ ~ N( ρ(x,a), s²(x,a) / n(x,a) )        ρ(x,a) = m + σ_x + α_a + ε_xa
    σ_x ~ N(0, τ_σ²)     α_a ~ N(0, τ_α²)     ε_xa ~ N(0, τ²)     m flat

The standard deviations (τ_σ, τ_α, τ) have a posterior on a grid (`Strengths`), and results are averaged over it: a plug-in estimate
of τ would be too certain where few pairs have data. Which of them holds changes all pairs together, so this doubt is one more effect that
they share (``common``). Differences between the actions *of one state* determine τ; the level of a state
is σ_x. Given the three, the posterior of ρ is normal. Its covariance has one part of each pair alone and parts that the pairs of a
state, or of an action, share:

    ρ(x,a) = b (m + σ_x + α_a) + (1 − b) r̄ + v^½ z        v = 1 / (n/s² + 1/τ²)     b = v/τ²

The variance s² of rewards around the mean of their pair is shrunk from that of the pair to that of its state or its action, whichever is
larger, and from there to that of the log. It is at least that of the state and of the action: a pair that has not shown a rare reward
yet is not more certain than they are.

Means, squares and visits suffice, so counts give the same posterior as the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scipy import sparse

    from bettersafe.typing import Bools, Floats, Ints


PAIR_RATIOS = (0.003, 0.01, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0)
EFFECT_RATIOS = (0.01, 0.1, 0.3, 1.0)
"""Grids of τ, and of τ_σ and τ_α, in units of the standard deviation of all rewards."""

CONCENTRATED = 0.5
FINER = (0.6, 0.8, 1.0, 1.25, 1.6)
"""If one point of the grid has at least this probability, a finer grid of these factors around it is used."""

MOST_LEARNT = 20_000
"""Largest number of cells of (states × actions) from which the standard deviations are learnt; of more, evenly spaced states are used."""

OWN_VISITS = 20.0
"""Visits after which a pair's own variance weighs as much as that of its state or action, and theirs as much as that of the log."""

MOST_AT_ONCE = 2_000_000
"""Numbers per array if several points of the grid are solved at once."""

MOST_DISTRIBUTED = 10**9
"""Visits of a pair from which on its events are divided as if drawn with replacement; more can't be drawn without."""

LEAST_WEIGHT = 1e-3
"""Points of the grid with a smaller probability are ignored."""


@dataclass(frozen=True, kw_only=True)
class Strengths:
    """Posterior of (τ_σ, τ_α, τ): points, shape [G, 3], and their probabilities, shape [G]."""

    points: Floats
    weight: Floats


@dataclass(frozen=True, kw_only=True)
class RewardPosterior:
    """Posterior of the mean rewards of pairs, for one objective.

    Attributes:
        mean: Posterior mean of every pair, shape [P].
        sd: Standard deviation of a pair's own part, shape [P].
        common: Change of every pair's mean if the log is believed by one standard deviation more, shape [P]: the strengths are uncertain,
            and with them all pairs together.
        share: b, the weight of the effects in a pair's mean, shape [P]; 1 without data.
        state_sd: Standard deviation of σ_x, shape [X].
        action_sd: Standard deviation of α_a, shape [A].
        state_level: Mean reward of an untried pair of a state without the effect of its action, shape [X].
        action_level: Effect of the action on the mean reward of an untried pair, shape [A].
        untried_state_var: Variance of the own part of an untried pair, but for that of its action, shape [X].
        untried_action_var: Variance of the own part of an untried pair that is due to its action, shape [A].
        strengths: Posterior of the standard deviations.
    """

    mean: Floats
    sd: Floats
    common: Floats
    share: Floats
    state_sd: Floats
    action_sd: Floats
    state_level: Floats
    action_level: Floats
    untried_state_var: Floats
    untried_action_var: Floats
    strengths: Strengths


def reward_posterior(
    state: Ints,
    action: Ints,
    visits: Floats,
    mean: Floats,
    spread: Floats,
    *,
    n_states: int,
    n_actions: int,
    strengths: Strengths | None = None,
    variance: Floats | None = None,
) -> RewardPosterior:
    """Posterior of the mean rewards of pairs.

    Args:
        state: State of every pair, shape [P].
        action: Action of every pair, shape [P].
        visits: n(x,a), 0 for pairs without data, shape [P].
        mean: Mean reward of every pair, any number for pairs without data, shape [P].
        spread: Σ (r − mean of its pair)² of every pair, shape [P].
        n_states: |X|.
        n_actions: |A|.
        strengths: Posterior of the standard deviations, if it was learnt before, for example from a larger log.
        variance: Variance of ``mean`` around its expectation, if known, shape [P]; ``spread`` is then used for the unit alone.
    """
    tried = np.flatnonzero(visits > 0.0)
    n = visits[tried]
    total = float(n.sum())
    level = float(n @ mean[tried]) / max(total, 1.0)
    y = mean[tried] - level
    size = float(np.sqrt((n @ y**2 + spread[tried].sum()) / max(total, 1.0)))
    if size <= 1e-12 * max(abs(level), 1e-300) or tried.size == 0:  # a constant reward
        return _constant(visits.size, n_states, n_actions, level, strengths)
    # states and actions without data take no part, so that declaring more of them changes nothing, not even rounding
    rows, x = np.unique(state[tried], return_inverse=True)
    columns, a = np.unique(action[tried], return_inverse=True)
    noise = _noise(x, a, n, spread[tried]) / n if variance is None else variance[tried]
    if strengths is None:
        strengths = _learn(x, a, y / size, noise / size**2, rows.size, columns.size)
    given = _given(x, a, y, noise, np.maximum(strengths.points, 1e-9) * size, rows.size, columns.size)
    found = [
        (weight, part.among(rows, columns, n_states, n_actions))
        for part, weight in zip(given, strengths.weight, strict=True)
    ]

    effect, state_var, action_var = (np.zeros(k) for k in (visits.size, n_states, n_actions))
    average, square, share, own_var = (np.zeros(visits.size) for _ in range(4))
    state_level, state_square, action_level, action_square = (
        np.zeros(k) for k in (n_states, n_states, n_actions, n_actions)
    )
    untried_var = 0.0
    belief, belief_square, with_belief = 0.0, 0.0, np.zeros(visits.size)
    for weight, part in found:
        effect = part.centre + part.state[state] + part.action[action]
        b = np.ones(visits.size)
        b[tried] = noise / (noise + part.tau**2)
        guess = b * effect
        guess[tried] += (1.0 - b[tried]) * y
        average += weight * guess
        square += weight * guess**2
        believed = float((n * y) @ guess[tried])  # how much of what was seen is believed
        belief += weight * believed
        belief_square += weight * believed**2
        with_belief += weight * believed * guess
        share += weight * b
        own_var += weight * b * part.tau**2
        state_var += weight * part.state_var
        action_var += weight * part.action_var
        state_level += weight * (part.centre + part.state)
        state_square += weight * (part.centre + part.state) ** 2
        action_level += weight * part.action
        action_square += weight * part.action**2
        untried_var += weight * part.tau**2
    varies = belief_square - belief**2
    common = np.zeros(visits.size)
    if varies > 1e-9 * belief_square:  # the strengths are uncertain too, for all pairs at once
        common[tried] = ((with_belief - belief * average) / np.sqrt(varies))[tried]
    own_var += np.maximum(square - average**2 - common**2, 0.0)
    untried_state_var = untried_var + np.maximum(state_square - state_level**2, 0.0)
    untried_action_var = np.maximum(action_square - action_level**2, 0.0)
    own_var = np.where(visits > 0.0, own_var, untried_state_var[state] + untried_action_var[action])
    return RewardPosterior(
        mean=average + level,
        sd=np.sqrt(own_var),
        common=common,
        share=share,
        state_sd=np.sqrt(state_var),
        action_sd=np.sqrt(action_var),
        state_level=state_level + level,
        action_level=action_level,
        untried_state_var=untried_state_var,
        untried_action_var=untried_action_var,
        strengths=strengths,
    )


def _constant(
    n_pairs: int, n_states: int, n_actions: int, level: float, strengths: Strengths | None
) -> RewardPosterior:
    """Posterior of a reward that never varied."""
    return RewardPosterior(
        mean=np.full(n_pairs, level),
        sd=np.zeros(n_pairs),
        common=np.zeros(n_pairs),
        share=np.zeros(n_pairs),
        state_sd=np.zeros(n_states),
        action_sd=np.zeros(n_actions),
        state_level=np.full(n_states, level),
        action_level=np.zeros(n_actions),
        untried_state_var=np.zeros(n_states),
        untried_action_var=np.zeros(n_actions),
        strengths=strengths or Strengths(points=np.zeros((1, 3)), weight=np.ones(1)),
    )


def _noise(x: Ints, a: Ints, n: Floats, spread: Floats) -> Floats:
    """s² of every pair with data, shape [T]."""
    free = np.maximum(n - 1.0, 0.0)
    pooled = spread.sum() / max(free.sum(), 1.0)
    shared = np.zeros(n.size)
    for group in (x, a):
        group_spread, group_free = (np.bincount(group, weights=w) for w in (spread, free))
        shared = np.maximum(shared, ((OWN_VISITS * pooled + group_spread) / (OWN_VISITS + group_free))[group])
    return np.asarray(np.maximum(shared, (OWN_VISITS * shared + spread) / (OWN_VISITS + free)))


@dataclass(frozen=True, kw_only=True)
class _Effects:
    """Posterior of the effects given (τ_σ, τ_α, τ); ``level_var`` is the variance of the mean of all α."""

    tau_state: float
    tau_action: float
    tau: float
    centre: float
    state: Floats
    action: Floats
    state_var: Floats
    action_var: Floats
    level_var: float
    log_likelihood: float

    def among(self, rows: Ints, columns: Ints, n_states: int, n_actions: int) -> _Effects:
        """The effects of all states and actions; those without data, in no row or column, have their priors."""
        state, action = np.zeros(n_states), np.zeros(n_actions)
        state_var = np.full(n_states, self.tau_state**2)
        action_var = np.full(n_actions, self.tau_action**2 + self.level_var)
        state[rows], state_var[rows] = self.state, self.state_var
        action[columns], action_var[columns] = self.action, self.action_var
        return replace(self, state=state, state_var=state_var, action=action, action_var=action_var)


def _given(
    x: Ints, a: Ints, y: Floats, noise: Floats, points: Floats, n_states: int, n_actions: int
) -> Iterator[_Effects]:
    """Posterior of m, σ and α given (τ_σ, τ_α, τ), for every row of ``points`` [G, 3], and the marginal likelihood of the data.

    σ is eliminated state by state; what is left is a system of A + 1 equations for (α, m). Several points are solved at once.
    """
    from scipy import sparse

    cells = sparse.csr_array(
        (np.ones(x.size), x * n_actions + a, np.arange(x.size + 1)), shape=(x.size, n_states * n_actions)
    )
    at_once = max(MOST_AT_ONCE // max(x.size, n_states * (n_actions + 1)), 1)
    for first in range(0, len(points), at_once):
        yield from _solved(cells, y, noise, points[first : first + at_once], n_states, n_actions)


def _solved(
    cells: sparse.csr_array, y: Floats, noise: Floats, points: Floats, n_states: int, n_actions: int
) -> Iterator[_Effects]:
    """`_given` of some points; ``cells`` [T, X · A] has a 1 in the cell of every pair."""
    size = len(points)
    tau_state, tau_action, tau = points.T
    spread = noise + tau[:, None] ** 2  # [G, T]
    w = 1.0 / spread
    by_cell = np.asarray(w @ cells).reshape(size, n_states, n_actions)
    paid = np.asarray((w * y) @ cells).reshape(size, n_states, n_actions)
    in_state, right = by_cell.sum(axis=2), paid.sum(axis=2)  # [G, X]
    table = np.concatenate([by_cell, in_state[:, :, None]], axis=2)
    kept = 1.0 / (in_state + 1.0 / tau_state[:, None] ** 2)  # posterior variance of σ_x given α and m
    matrix = -np.einsum("gxi,gx,gxj->gij", table, kept, table, optimize=True)
    own = np.arange(n_actions + 1)
    total = table.sum(axis=1)
    matrix[:, own, own] += total
    matrix[:, :-1, -1] += total[:, :-1]
    matrix[:, -1, :-1] += total[:, :-1]
    matrix[:, own[:-1], own[:-1]] += 1.0 / tau_action[:, None] ** 2
    matrix[:, -1, -1] += 1e-12 * np.maximum(matrix[:, -1, -1], 1e-300) + 1e-300
    target = np.concatenate([paid.sum(axis=1), right.sum(axis=1)[:, None]], axis=1)
    target -= np.einsum("gx,gxi->gi", kept * right, table)
    inverse = np.linalg.inv(matrix)
    beta = np.einsum("gij,gj->gi", inverse, target)
    state = kept * (right - np.einsum("gxi,gi->gx", table, beta))
    log_likelihood = -0.5 * (
        np.log(spread).sum(axis=1)
        + np.log1p(tau_state[:, None] ** 2 * in_state).sum(axis=1)
        + np.linalg.slogdet(matrix)[1]
        + 2.0 * n_actions * np.log(tau_action)
        + w @ y**2
        - np.sum(kept * right**2, axis=1)
        - np.sum(beta * target, axis=1)
    )
    for g in range(size):
        covariance = inverse[g, :-1, :-1]
        yield _Effects(
            tau_state=float(tau_state[g]),
            tau_action=float(tau_action[g]),
            tau=float(tau[g]),
            centre=float(beta[g, -1]),
            state=state[g],
            action=beta[g, :-1],
            state_var=kept[g],
            action_var=_centred_variance(covariance),
            level_var=float(covariance.mean()),
            log_likelihood=float(log_likelihood[g]),
        )


def _centred_variance(covariance: Floats) -> Floats:
    """Variances of α_a − mean of α, shape [A].

    The mean of all α is confounded with m: with few actions its variance is large. Policies move decisions from one action to
    another, so what they gain depends on differences alone.
    """
    rows = covariance.mean(axis=1)
    return np.asarray(np.maximum(np.diagonal(covariance) - 2.0 * rows + rows.mean(), 0.0))


def _learn(x: Ints, a: Ints, y: Floats, noise: Floats, n_states: int, n_actions: int) -> Strengths:
    """Posterior of the standard deviations on the grid, in units of the rewards' standard deviation, with a flat prior on it."""
    most = max(MOST_LEARNT // n_actions, 1)
    if n_states > most:
        chosen = np.unique(x)
        chosen = chosen[np.linspace(0, chosen.size - 1, min(most, chosen.size)).astype(np.int64)]
        inside = np.isin(x, chosen)
        x, a, y, noise = np.searchsorted(chosen, x[inside]), a[inside], y[inside], noise[inside]
        n_states = chosen.size

    def on_grid(points: Floats) -> Strengths:
        logs = np.array([part.log_likelihood for part in _given(x, a, y, noise, points, n_states, n_actions)])
        weight = np.exp(logs - logs.max())
        kept = weight >= LEAST_WEIGHT * weight.sum()
        return Strengths(points=points[kept], weight=weight[kept] / weight[kept].sum())

    found = on_grid(np.array(list(product(EFFECT_RATIOS, EFFECT_RATIOS, PAIR_RATIOS))))
    if found.weight.max() < CONCENTRATED:
        return found
    best = found.points[np.argmax(found.weight)]  # much data: the posterior is narrower than the grid
    return on_grid(best * np.array(list(product(FINER, FINER, FINER))))


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Uncertain effects of states and actions that pairs share, for d objectives.

    Attributes:
        share: b, the weight of the effects in a pair's mean, shape [d, P].
        state_sd: Standard deviation of σ_x, shape [d, X]; of the effect of a group if pairs are grouped otherwise.
        action_sd: Standard deviation of α_a, shape [d, A].
        group: Group of every pair in the place of its state, shape [P]; None for the state.
    """

    share: Floats
    state_sd: Floats
    action_sd: Floats
    group: Ints | None = None

    def loading(self, k: int, state: Ints, action: Ints, moved: Floats) -> Floats:
        """Standard deviations of Σ Δ b σ_x of every state, and of Σ Δ b α_a of every action, shape [X + A].

        Args:
            k: Objective.
            state: State of every pair, shape [P].
            action: Action of every pair, shape [P].
            moved: Δ, the change of the pairs' discounted visits, shape [P].
        """
        weight = self.share[k] * moved
        by_state, by_action = self.state_sd[k], self.action_sd[k]
        return np.concatenate(
            [
                by_state
                * np.bincount(state if self.group is None else self.group, weights=weight, minlength=by_state.size),
                by_action * np.bincount(action, weights=weight, minlength=by_action.size),
            ]
        )

    def only(self, keep: Bools | Ints) -> Effects:
        """Of the pairs ``keep`` alone: a mask [P], or indices."""
        return replace(self, share=self.share[:, keep], group=None if self.group is None else self.group[keep])


def shared_by_all(share: Floats, sd: Floats, n_actions: int) -> Effects:
    """One effect that all pairs share: change of their means [d, P] with it, and its standard deviation [d]."""
    return Effects(
        share=share,
        state_sd=sd[:, None],
        action_sd=np.zeros((sd.size, n_actions)),
        group=np.zeros(share.shape[1], dtype=np.int64),
    )


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Observed moments of a noisy reward, for d objectives.

    Attributes:
        mean: Mean of every pair, 0 without data, shape [d, P].
        spread: Σ (r − mean of its pair)² of every pair, shape [d, P].
        asked: Whether an objective has this reward, shape [d].
        rare: Whether it is the excess of rare events, all of one sign (`rare_rates`).
        strengths: Posteriors of the standard deviations by objective, if they were learnt before.
    """

    mean: Floats
    spread: Floats
    asked: Bools
    rare: bool = False
    strengths: Mapping[int, Strengths] = field(default_factory=dict)

    def thinned(self, visits: Floats, mine: Floats, rng: np.random.Generator) -> tuple[Moments, Moments]:
        """Moments of a random part with ``mine`` of the ``visits`` of every pair [P], and of the rest.

        The mean of the part is drawn with the mean and variance of the mean of a random part; of rare events, the part gets a random
        number. Pairs without visits need no random numbers.
        """
        rest = visits - mine
        if self.rare:
            return self._struck(visits, mine, rng)
        drawn = np.zeros(self.mean.shape)
        drawn[:, visits > 0.0] = rng.standard_normal((self.asked.size, np.count_nonzero(visits)))
        variance = self.spread / np.maximum(visits - 1.0, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.where((mine > 0.0) & (rest > 0.0), 1.0 / mine - 1.0 / visits, 0.0)
            one = self.mean + np.sqrt(variance * inside) * drawn
            other = np.where(rest > 0.0, (visits * self.mean - mine * one) / rest, 0.0)
        return (
            replace(self, mean=np.where(mine > 0.0, one, 0.0), spread=variance * np.maximum(mine - 1.0, 0.0)),
            replace(self, mean=other, spread=variance * np.maximum(rest - 1.0, 0.0)),
        )

    def _struck(self, visits: Floats, mine: Floats, rng: np.random.Generator) -> tuple[Moments, Moments]:
        """`thinned` for rare events: those of a pair, as many as if they were of one size, are distributed over its visits."""
        rest = visits - mine
        total, square = visits * self.mean, self.spread + visits * self.mean**2
        k, pair = np.nonzero(total)
        number = np.clip(np.rint(total[k, pair] ** 2 / square[k, pair]), 1.0, visits[pair]).astype(np.int64)
        n, part_of = visits[pair].astype(np.int64), mine[pair].astype(np.int64)
        if np.all(n < MOST_DISTRIBUTED):
            drawn = rng.hypergeometric(number, n - number, part_of)
        else:
            drawn = np.clip(rng.binomial(number, part_of / n), number - (n - part_of), part_of)
        share = np.zeros(total.shape)
        share[k, pair] = drawn / number
        parts = []
        for part, size in ((share, mine), (1.0 - share, rest)):
            mean = np.where(size > 0.0, part * total / np.maximum(size, 1.0), 0.0)
            parts.append(replace(self, mean=mean, spread=np.maximum(part * square - size * mean**2, 0.0)))
        return parts[0], parts[1]


@dataclass(frozen=True, kw_only=True)
class PairRewards:
    """Posterior of the rewards of pairs, for d objectives.

    Attributes:
        mean: Posterior means, shape [d, P].
        noise: Standard deviations of the pairs' own parts, shape [d, P].
        effects: Effects that pairs share.
        common: Effect of how much of the log is believed, which all pairs share.
        untried: Mean rewards of a state's pairs without data, without the effect of the action, shape [d, X].
        untried_action: Effects of actions on the mean rewards of pairs without data, shape [d, A].
        untried_state_var: Variances of the own part of pairs without data, but for those of actions, shape [d, X].
        untried_action_var: Variances of the own part of pairs without data that are due to actions, shape [d, A].
        moments: Moments, with the strengths that were learnt.
    """

    mean: Floats
    noise: Floats
    effects: Effects
    common: Effects
    untried: Floats
    untried_action: Floats
    untried_state_var: Floats
    untried_action_var: Floats
    moments: Moments


def pair_rewards(
    state: Ints, action: Ints, visits: Floats, moments: Moments, *, n_states: int, n_actions: int
) -> PairRewards:
    """`reward_posterior` of all objectives that have the reward."""
    d = moments.asked.size
    mean, noise, common, share = (np.zeros((d, visits.size)) for _ in range(4))
    state_sd, untried, state_var = (np.zeros((d, n_states)) for _ in range(3))
    action_sd, untried_action, action_var = (np.zeros((d, n_actions)) for _ in range(3))
    learnt = dict(moments.strengths)
    for k in np.flatnonzero(moments.asked).tolist():
        found = reward_posterior(
            state,
            action,
            visits,
            moments.mean[k],
            moments.spread[k],
            n_states=n_states,
            n_actions=n_actions,
            strengths=learnt.get(k),
        )
        mean[k], noise[k], common[k], share[k] = found.mean, found.sd, found.common, found.share
        state_sd[k], action_sd[k] = found.state_sd, found.action_sd
        untried[k], untried_action[k] = found.state_level, found.action_level
        state_var[k], action_var[k] = found.untried_state_var, found.untried_action_var
        learnt[k] = found.strengths
    return PairRewards(
        mean=mean,
        noise=noise,
        effects=Effects(share=share, state_sd=state_sd, action_sd=action_sd),
        common=shared_by_all(common, np.ones(d), n_actions),
        untried=untried,
        untried_action=untried_action,
        untried_state_var=state_var,
        untried_action_var=action_var,
        moments=replace(moments, strengths=learnt),
    )
