"""Posterior of the mean excess of rare events: rates with factors of states and actions, and pairs that differ from them.

Rare events (`rare`) are few and large, so their noise is not alike everywhere: where they happen, one decision is struck and its neighbour
is not, by chance. A normal model with one variance takes that for a difference between the two. Here the variance goes with the rate, as
for counts. With Y the total excess of a pair in n visits, all of one sign, and φ = Σ y² / Σ |y| the size of an event, K = |Y|/φ,

    K ~ Binomial(n, θ)       θ ~ Beta(κ λ, κ (1 − λ))       λ(x,a) = μ s_x a_a       s_x ~ Γ(κ_s, κ_s)       a_a ~ Γ(κ_a, κ_a)

so the effects are factors with mean 1: states differ by 1/√κ_s and actions by 1/√κ_a, and what they say of a pair weighs as much as κ of
its own visits. A small κ means that pairs differ: in some the event happens nearly always, in others never. The three have a
posterior on a grid (`Strengths`), and results are averaged over it. Given them, s, a and μ are fitted by quasi-likelihood, with

    n' = n (κ + 1)/(κ + n)     K' = K (κ + 1)/(κ + n)     I = n' λ          (visits of a pair are alike, so they count less)
    s_x = (κ_s + Σ K') / (κ_s + Σ n' μ a_a), a_a alike     E[θ] = (κ λ + K)/(κ + n)     b = κ λ/(κ + n) = ∂E[θ]/∂ log λ

The covariance has one part of each pair alone, E[θ](1 − E[θ])/(κ + n + 1), and parts that the pairs of a state, or of an action, or all
pairs share: the relative variances 1/(κ_s + Σ I), 1/(κ_a + Σ I) and 1/Σ I times b². Which point of the grid holds changes all pairs
together; its largest principal component, among the pairs with data, is one more effect that they share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.posterior.rewards import LEAST_WEIGHT, MOST_LEARNT, Effects, Strengths, shared_by_all

if TYPE_CHECKING:
    from bettersafe.posterior.rewards import Moments
    from bettersafe.typing import Floats, Ints

EFFECT_SHAPES = (0.1, 0.5, 2.5, 30.0)
CONCENTRATIONS = (0.2, 1.0, 5.0, 25.0, 125.0, 1000.0)
"""Grids of κ_s and κ_a, and of κ."""

PAIR_WEIGHTS = (0.5, 0.5, 1.0, 2.0, 6.0, 24.0)
"""Prior of κ, but for a factor. With few events all κ fit alike, and a policy is made of the pairs that look best: so that pairs differ
beyond their states and actions must be shown by the log."""

HIGHEST = 0.95
"""Largest λ."""

LEAST_NOISE = 0.1
"""Least 1 − E[θ] in the variance of a pair."""

ROUNDS = 20
"""Alternating updates of s, a and μ."""


@dataclass(frozen=True, kw_only=True)
class RareRewards:
    """Posterior of the mean excess of pairs, for d objectives.

    Attributes:
        mean: Posterior means, shape [d, P].
        noise: Standard deviations of the pairs' own parts, shape [d, P].
        effects: What pairs share: effects of states and actions, the level, and the doubt about the strengths.
        moments: Moments, with the strengths that were learnt.
    """

    mean: Floats
    noise: Floats
    effects: tuple[Effects, ...]
    moments: Moments


def rare_rewards(
    state: Ints, action: Ints, visits: Floats, moments: Moments, *, n_states: int, n_actions: int
) -> RareRewards:
    """Posterior of the mean excess of one sign, for all objectives that have it.

    Args:
        state: State of every pair, shape [P].
        action: Action of every pair, shape [P].
        visits: n(x,a), shape [P].
        moments: Moments of the excess, all of one sign.
        n_states: |X|.
        n_actions: |A|.
    """
    d = moments.asked.size
    mean, noise, share, common = (np.zeros((d, visits.size)) for _ in range(4))
    state_sd, action_sd, level_sd = np.zeros((d, n_states)), np.zeros((d, n_actions)), np.zeros(d)
    learnt = dict(moments.strengths)
    for k in np.flatnonzero(moments.asked).tolist():
        found = rate_posterior(
            state,
            action,
            visits,
            moments.mean[k],
            moments.spread[k],
            n_states=n_states,
            n_actions=n_actions,
            strengths=learnt.get(k),
        )
        if found is None:  # a part of a log may have no event
            continue
        mean[k], noise[k], share[k], common[k] = found.mean, found.sd, found.share, found.common
        state_sd[k], action_sd[k], level_sd[k] = found.state_sd, found.action_sd, found.level_sd
        learnt[k] = found.strengths
    return RareRewards(
        mean=mean,
        noise=noise,
        effects=(
            Effects(share=share, state_sd=state_sd, action_sd=action_sd),
            shared_by_all(share, level_sd, n_actions),
            shared_by_all(common, np.ones(d), n_actions),
        ),
        moments=replace(moments, strengths=learnt),
    )


@dataclass(frozen=True, kw_only=True)
class RatePosterior:
    """Posterior of the mean excess of pairs, for one objective.

    Attributes:
        mean: Posterior mean of every pair, shape [P].
        sd: Standard deviation of a pair's own part, shape [P].
        share: Change of a pair's mean with the logarithm of its effects, shape [P].
        common: Change of every pair's mean along the first principal component of the doubt about the strengths, shape [P].
        state_sd: Standard deviation of log s_x, shape [X].
        action_sd: Standard deviation of log a_a, shape [A].
        level_sd: Standard deviation of log μ.
        strengths: Posterior of (κ_s, κ_a, κ).
    """

    mean: Floats
    sd: Floats
    share: Floats
    common: Floats
    state_sd: Floats
    action_sd: Floats
    level_sd: float
    strengths: Strengths


def rate_posterior(
    state: Ints,
    action: Ints,
    visits: Floats,
    mean: Floats,
    spread: Floats,
    *,
    n_states: int,
    n_actions: int,
    strengths: Strengths | None = None,
) -> RatePosterior | None:
    """Posterior of the mean excess of pairs; None if there is no event.

    Args:
        state: State of every pair, shape [P].
        action: Action of every pair, shape [P].
        visits: n(x,a), 0 for pairs without data, shape [P].
        mean: Mean excess of every pair, all of one sign, shape [P].
        spread: Σ (excess − mean of its pair)² of every pair, shape [P].
        n_states: |X|.
        n_actions: |A|.
        strengths: Posterior of (κ_s, κ_a, κ), if it was learnt before, for example from a larger log.
    """
    tried = np.flatnonzero(visits > 0.0)
    total = visits * mean
    if not np.any(total[tried] != 0.0):
        return None
    size = float((spread + visits * mean**2)[tried].sum() / np.abs(total[tried]).sum())
    sign = float(np.sign(total.sum()))
    # states and actions without data take no part in the fit
    rows, x = np.unique(state[tried], return_inverse=True)
    columns, a = np.unique(action[tried], return_inverse=True)
    events = _Events(x=x, a=a, visits=visits[tried], count=np.abs(total[tried]) / size)
    if strengths is None:
        strengths = _learn(events)
    fit = _fit(events, strengths.points)
    w = strengths.weight
    kappa_s, kappa_a, kappa = strengths.points.T
    s, of_action = np.ones((w.size, n_states)), np.ones((w.size, n_actions))
    s[:, rows], of_action[:, columns] = fit.s, fit.a
    rate = np.minimum(fit.mu[:, None] * s[:, state] * of_action[:, action], HIGHEST)  # λ [G, P]
    count = np.zeros(visits.size)
    count[tried] = events.count
    each = (kappa[:, None] * rate + count) / (kappa[:, None] + visits)
    average = _average(w, each)
    # of events larger than φ there may be more than visits
    own = _average(w, each * np.maximum(1.0 - each, LEAST_NOISE) / (kappa[:, None] + visits + 1.0))
    apart = np.sqrt(w)[:, None] * (each - average)
    common = _first_component(apart, tried)
    own += np.maximum((apart**2).sum(axis=0) - common**2, 0.0)
    info_s, info_a = np.zeros((w.size, n_states)), np.zeros((w.size, n_actions))
    info_s[:, rows], info_a[:, columns] = fit.info_s, fit.info_a
    return RatePosterior(
        mean=sign * size * average,
        sd=size * np.sqrt(own),
        share=size * _average(w, kappa[:, None] * rate / (kappa[:, None] + visits)),
        common=size * common,
        state_sd=np.sqrt(_average(w, 1.0 / (kappa_s[:, None] + info_s))),
        action_sd=np.sqrt(_average(w, 1.0 / (kappa_a[:, None] + info_a))),
        level_sd=float(np.sqrt(w @ (1.0 / np.maximum(fit.info_s.sum(axis=1), 1e-300)))),
        strengths=strengths,
    )


@dataclass(frozen=True, kw_only=True)
class _Events:
    """Events of the pairs with data: place of their state and action among those with data, visits and |Y|/φ, each of shape [T]."""

    x: Ints
    a: Ints
    visits: Floats
    count: Floats


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """s [G, X], a [G, A] and μ [G] for every point of the grid, the information on them, and the log-evidence [G]."""

    s: Floats
    a: Floats
    mu: Floats
    info_s: Floats
    info_a: Floats
    log_evidence: Floats


def _fit(events: _Events, points: Floats) -> _Fit:
    """Fit s, a and μ for every row of ``points`` [G, 3].

    The evidence is the likelihood at λ, less what s and a were fitted: with the Gamma of the fitted mean and of the shape κ_s + Σ I
    for s, its divergence from the prior and ½ Σ I / (κ_s + Σ I); for a alike.
    """
    from scipy import sparse
    from scipy.special import betaln

    x, a, n, count = events.x, events.a, events.visits, events.count
    by_state = sparse.csr_array((np.ones(x.size), (np.arange(x.size), x)))
    by_action = sparse.csr_array((np.ones(a.size), (np.arange(a.size), a)))
    kappa_s, kappa_a, kappa = (column[:, None] for column in points.T)
    weight = (kappa + 1.0) / (kappa + n)
    told, struck = weight * n, weight * count
    in_state, of_action = (np.asarray(struck @ sums) for sums in (by_state, by_action))
    s, act = np.ones(in_state.shape), np.ones(of_action.shape)
    mu = struck.sum(axis=1, keepdims=True) / told.sum(axis=1, keepdims=True)
    for _ in range(ROUNDS):
        s = (kappa_s + in_state) / (kappa_s + mu * np.asarray((told * act[:, a]) @ by_state))
        act = (kappa_a + of_action) / (kappa_a + mu * np.asarray((told * s[:, x]) @ by_action))
        mu = struck.sum(axis=1, keepdims=True) / (told * s[:, x] * act[:, a]).sum(axis=1, keepdims=True)
    rate = np.minimum(mu * s[:, x] * act[:, a], HIGHEST)
    info = told * rate
    info_s, info_a = np.asarray(info @ by_state), np.asarray(info @ by_action)
    alpha, beta, whole = kappa * rate, kappa * (1.0 - rate), np.minimum(count, n)
    likelihood = (betaln(alpha + whole, beta + n - whole) - betaln(alpha, beta)).sum(axis=1)
    for shape, fitted, found in ((kappa_s, s, info_s), (kappa_a, act, info_a)):
        likelihood -= (_divergence(shape + found, fitted, shape) + 0.5 * found / (shape + found)).sum(axis=1)
    return _Fit(s=s, a=act, mu=mu[:, 0], info_s=info_s, info_a=info_a, log_evidence=likelihood)


def _divergence(shape: Floats, mean: Floats, prior: Floats) -> Floats:
    """Kullback–Leibler divergence of Γ(shape, shape/mean) from Γ(κ, κ)."""
    from scipy.special import digamma, gammaln

    rate = shape / mean
    return np.asarray(
        (shape - prior) * digamma(shape)
        - gammaln(shape)
        + gammaln(prior)
        + prior * (np.log(rate) - np.log(prior))
        + shape * (prior - rate) / rate
    )


def _learn(events: _Events) -> Strengths:
    """Posterior of (κ_s, κ_a, κ) on the grid, with a flat prior of κ_s and κ_a."""
    n_actions = int(events.a.max()) + 1
    most = max(MOST_LEARNT // n_actions, 1)
    if int(events.x.max()) + 1 > most:
        chosen = np.linspace(0, int(events.x.max()), most).astype(np.int64)
        inside = np.isin(events.x, chosen)
        if np.any(events.count[inside] > 0.0):
            events = _Events(
                x=np.searchsorted(chosen, events.x[inside]),
                a=np.unique(events.a[inside], return_inverse=True)[1],
                visits=events.visits[inside],
                count=events.count[inside],
            )
    points = np.array(list(product(EFFECT_SHAPES, EFFECT_SHAPES, CONCENTRATIONS)))
    prior = np.array([weight for *_, weight in product(EFFECT_SHAPES, EFFECT_SHAPES, PAIR_WEIGHTS)])
    logs = _fit(events, points).log_evidence + np.log(prior)
    weight = np.exp(logs - logs.max())
    kept = weight >= LEAST_WEIGHT * weight.sum()
    return Strengths(points=points[kept], weight=weight[kept] / weight[kept].sum())


def _average(weight: Floats, values: Floats) -> Floats:
    """Weighted sum of rows [G, P], shape [P]; every column is summed alike, whichever others there are."""
    total = np.zeros(values.shape[1])
    for w, row in zip(weight, values, strict=True):
        total += w * row
    return total


def _first_component(apart: Floats, tried: Ints) -> Floats:
    """First principal component of the rows [G, P] over the pairs with data, scaled so that its square is the variance that it explains; [P]."""
    size, vectors = np.linalg.eigh(apart[:, tried] @ apart[:, tried].T)
    return _average(vectors[:, -1], apart) if size[-1] > 0.0 else np.zeros(apart.shape[1])
