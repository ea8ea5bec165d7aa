"""Means and covariances of gains to first order around the posterior mean, without draws."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.errors import check_options
from bettersafe.mdp.values import solve_values
from bettersafe.posterior.events import rate_effects
from bettersafe.posterior.priors import (
    VALUE_TOL,
    Block,
    Posterior,
    asked_objectives,
    asked_tables,
    by_state,
    nonzero,
    only_played,
)
from bettersafe.typing import Event, Floats, Ints, Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from scipy import sparse

    from bettersafe.posterior.events import Rate
    from bettersafe.posterior.linearised_counts import CountedOutcomes
    from bettersafe.posterior.outcomes import Outcomes


def mean_mix(posterior: Posterior, weight: Floats) -> Floats:
    """Probability of every outcome of a state under a policy (π of pairs, [P]) at the posterior mean, shape [K]."""
    o = posterior.outcomes
    weight = weight * posterior.onward
    state, pair = o.outcome_state, o.count_pair
    mixed = np.zeros(state.size)
    ended = o.count * o.ends[o.count_outcome]
    sides = [(block, weight / block.total, ended) for block in posterior.end_blocks]
    onward = weight * posterior.mean_going
    sides += [(block, onward / nonzero(block.total), o.count - ended) for block in posterior.on_blocks]
    for block, share, count in sides:
        part = block.probability * share
        mixed += block.share * np.bincount(o.pair_state, weights=part * block.scale, minlength=o.n_states)[state]
        mixed += block.extra * np.bincount(o.pair_state, weights=part, minlength=o.n_states)[state]
        mixed += np.bincount(o.count_outcome, weights=(part * block.own)[pair] * count, minlength=state.size)
    return mixed


def _mean_matrix(o: Outcomes, mixed: Floats) -> sparse.csr_array:
    """P_π [X, X] from the probabilities of outcomes."""
    from scipy import sparse

    stays = o.outcome_next >= 0
    ptr = np.append(0, np.cumsum(stays))[o.outcome_ptr]
    return sparse.csr_array((mixed[stays], o.outcome_next[stays], ptr), shape=(o.n_states, o.n_states))


def mean_values(posterior: Posterior, mixed: Floats, weight: Floats, objectives: Ints) -> Floats:
    """Values of a policy at the posterior mean, for objectives of one discount, shape [len(objectives), X]."""
    o = posterior.outcomes
    weight = weight * posterior.onward
    rhs = np.array(
        [
            np.bincount(o.pair_state, weights=weight * posterior.reward[k], minlength=o.n_states)
            + np.bincount(o.outcome_state, weights=mixed * o.outcome_reward[k], minlength=o.n_states)
            for k in objectives
        ]
    )
    return _solved(o, _mean_matrix(o, mixed), float(o.discount[objectives[0]]), rhs)


def mean_visits(o: Outcomes, mixed: Floats, gamma: float) -> Floats:
    """Discounted visits ν of a policy at the posterior mean, shape [X]."""
    from scipy import sparse

    return np.asarray(_solved(o, sparse.csr_array(_mean_matrix(o, mixed).T), gamma, o.initial[None])[0])


def step_moments(posterior: Posterior, value: Floats) -> tuple[Floats, Floats]:
    """Posterior mean and variance of Σ_o p(o) y(o) of every pair, each of shape [P], for values y of outcomes, shape [K]."""
    o = posterior.outcomes
    ends = o.ends[o.count_outcome]
    seen = value[o.count_outcome]

    def moments(block: Block, count: Floats) -> tuple[Floats, Floats]:
        first, second = (
            block.scale * by_state(o, block.share * row)[o.pair_state]
            + by_state(o, block.extra * row)[o.pair_state]
            + block.own * np.bincount(o.count_pair, count * each, o.pair_state.size)
            for row, each in ((value, seen), (value**2, seen**2))
        )
        total = nonzero(block.total)
        return first / total, second / total

    on_mean, on_square, on_variance = np.zeros((3, o.pair_state.size))
    for block in posterior.on_blocks:
        first, second = moments(block, o.count * ~ends)
        on_mean += block.probability * first
        on_square += block.probability * first**2
        on_variance += block.probability * (second - first**2) / (block.total + 1.0)
    on_variance += on_square - on_mean**2
    found, mean, square = np.zeros((3, o.pair_state.size))
    for block in posterior.end_blocks:
        first, second = moments(block, o.count * ends)
        going = block.going / nonzero(block.total)
        first, second = first + going * on_mean, second + going * on_mean**2
        mean += block.probability * first
        square += block.probability * first**2
        found += block.probability * ((second - first**2) / (block.total + 1.0) + going**2 * on_variance)
    return mean, np.asarray(np.maximum(found + square - mean**2, 0.0))


def _solved(o: Outcomes, matrix: sparse.csr_array, gamma: float, rhs: Floats) -> Floats:
    """(I − γM)⁻¹ rhs."""
    states = np.arange(o.n_states + 1)
    return solve_values(states, np.ones(o.n_states), matrix, gamma, rhs, tol=VALUE_TOL)[0]


def linearised_gains(
    posterior: Posterior,
    policies: npt.ArrayLike,
    baseline: npt.ArrayLike,
    *,
    objectives: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> tuple[Floats, Floats]:
    """Means [C, d] and covariances [C, d, d] of J(π) − J(π_b), to first order around the posterior mean.

        J_k(π) − J_k(π_b) ≈ Σ_{pairs, o} p(o) D_k(o),   D_k(o) = ν^π π (ρ_k(o) + γ V_k^π(o)) − ν^b π_b (ρ_k(o) + γ V_k^b(o))

    The covariance of Dirichlet rows is (Σ p D_k D_l − Σ p D_k Σ p D_l) / (α + 1): for the next state, times E[(continuation)²]; for
    ends, with the mean over next states as the outcome "continues"; both averaged over concentrations. As p = (α_0 + n)/α, sums
    over outcomes split into a sum over the counts of a pair and one that all pairs of a state share. The cost is therefore
    proportional to the log's distinct transitions, not to pairs × outcomes.

    Args:
        posterior: Posterior of the process.
        policies: Policies, shape [C, X, A].
        baseline: π_b, shape [X, A].
        objectives: Indices of the objectives; default: all.
        progress: Callback after every policy.

    Examples:
        >>> from bettersafe.posterior import linearised_gains, posterior
        >>> policy = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy
        >>> mean, covariance = linearised_gains(posterior(counts), [policy], baseline)
        >>> mean.shape, covariance.shape
        ((1, 2), (1, 2, 2))
    """
    check_options(progress=progress)
    policies, baseline = asked_tables(posterior, policies, baseline)
    asked = asked_objectives(objectives, posterior.outcomes.n_objectives)
    posterior = only_played(posterior, np.any(policies > 0.0, axis=0) | (baseline > 0.0))
    o = posterior.outcomes
    flat = policies.reshape(policies.shape[0], baseline.size)
    value_b, after_b, played_b = _mean_sides(posterior, baseline.reshape(-1)[o.pair_index], asked)
    alike = [np.flatnonzero(o.discount[asked] == gamma) for gamma in np.unique(o.discount[asked])]
    mean = np.empty((policies.shape[0], asked.size))
    covariance = np.zeros((policies.shape[0], asked.size, asked.size))
    for c in range(policies.shape[0]):
        value, after, played = _mean_sides(posterior, flat[c][o.pair_index], asked)
        mean[c] = (value - value_b) @ o.initial
        # D = ν^π π (f^π − f^b) + (ν^π π − ν^b π_b) f^b, in this form exactly 0 for the baseline
        parts = ((played, after - after_b), (played - played_b, after_b))
        covariance[c] = _rows_covariance(posterior, parts, alike)
        start = value - value_b  # the distribution of first states is uncertain too: a Dirichlet
        centred = start - mean[c][:, None]
        covariance[c] += (centred * o.initial) @ centred.T / (o.starts.sum() + 1.0)
        moved = played - played_b
        covariance[c] += np.diag([reward_variance(o, k, row) for k, row in zip(asked.tolist(), moved, strict=True)])
        if progress is not None:
            progress(Event(done=c + 1, total=policies.shape[0], unit="candidates"))
    shift, change = event_gains(posterior, policies, baseline, asked, mean)
    return mean + shift, covariance + np.einsum("ecn,ecm->cnm", change, change)


def mean_returns(posterior: Posterior, policy: Floats, objectives: Ints | None = None) -> Floats:
    """J_k of a policy [X, A] at the posterior mean, for all objectives or some, shape [n]."""
    o = posterior.outcomes
    asked = np.arange(o.n_objectives) if objectives is None else objectives
    weight = policy.reshape(-1)[o.pair_index]
    mixed = mean_mix(posterior, weight)
    found = np.empty(asked.size)
    for gamma in np.unique(o.discount[asked]):
        same = o.discount[asked] == gamma
        found[same] = mean_values(posterior, mixed, weight, asked[same]) @ o.initial
    return found


def event_gains(
    posterior: Posterior, policies: Floats, baseline: Floats, objectives: Ints, mean: Floats | None = None
) -> tuple[Floats, Floats]:
    """`rate_effects` of declared events on the gains of policies [C, X, A]: shapes [C, n] and [E, C, n].

    Args:
        posterior: Posterior of the process.
        policies: Policies, shape [C, X, A].
        baseline: π_b, shape [X, A].
        objectives: Indices of the objectives, length n.
        mean: Mean gains [C, n], if they are known.
    """

    def gains_at(rates: tuple[Rate, ...]) -> Floats:
        given = replace(posterior, rates=rates)
        before = mean_returns(given, baseline, objectives)
        return np.array([mean_returns(given, policy, objectives) - before for policy in policies]).reshape(
            len(policies), objectives.size
        )

    if not posterior.rates:
        return np.zeros((len(policies), objectives.size)), np.zeros((0, len(policies), objectives.size))
    return rate_effects(posterior.rates, gains_at, gains_at(posterior.rates) if mean is None else mean)


def reward_variance(
    outcomes: Outcomes | CountedOutcomes, k: int, moved: Floats, *, untried: Floats | None = None
) -> float:
    """Variance of Σ Δ r_k over pairs, from noisy rewards.

    Args:
        outcomes: Outcomes of the log.
        k: Objective.
        moved: Δ, the change of the discounted visits of pairs, shape [P].
        untried: Δ of pairs that are not among those of ``outcomes``, shape [X, A]; only their shared effects are counted here.
    """
    o = outcomes
    shared = [effects.loading(k, o.pair_state, o.pair_action, moved) for effects in o.effects]
    if untried is not None:
        shared = [
            each
            + np.concatenate([effects.state_sd[k] * untried.sum(axis=1), effects.action_sd[k] * untried.sum(axis=0)])
            if effects.group is None
            else each
            for each, effects in zip(shared, o.effects, strict=True)
        ]
    return float(np.sum((o.pair_noise[k] * moved) ** 2) + sum(np.sum(each**2) for each in shared))


def _mean_sides(posterior: Posterior, weight: Floats, objectives: Ints) -> tuple[Floats, Floats, Floats]:
    """For a policy at the posterior mean: v [d, X], ρ + γ v(next) − v [d, K], and discounted visits of pairs [d, P]."""
    o = posterior.outcomes
    mixed = mean_mix(posterior, weight)
    value = np.empty((objectives.size, o.n_states))
    played = np.empty((objectives.size, o.pair_state.size))
    for gamma in np.unique(o.discount[objectives]):
        same = o.discount[objectives] == gamma
        value[same] = mean_values(posterior, mixed, weight, objectives[same])
        played[same] = mean_visits(o, mixed, float(gamma))[o.pair_state] * weight * posterior.onward
    after = np.where(o.outcome_next >= 0, value[:, np.maximum(o.outcome_next, 0)], 0.0)
    # v(x) is equal for all outcomes of a pair: subtracting it does not change the covariance and keeps the sums small
    after = o.outcome_reward[objectives] + o.discount[objectives, None] * after - value[:, o.outcome_state]
    return value, after, played


Parts = tuple[tuple[Floats, Floats], ...]


def _rows_covariance(posterior: Posterior, parts: Parts, alike: list[Ints]) -> Floats:
    """Covariance [d, d] of Σ p D over the independent rows p of pairs, D = Σ_parts [d, P] · [d, K].

    Objectives that are ``alike`` (with equal discounts) have the same visits, the [d, P] of a part.
    """
    o = posterior.outcomes
    pair, ended = o.count_pair, o.ends[o.count_outcome]
    seen = np.zeros((parts[0][0].shape[0], pair.size))  # D of the observed outcomes
    for u, f in parts:
        seen += u[:, pair] * f[:, o.count_outcome]
    found = np.zeros((seen.shape[0], seen.shape[0]))
    going_squared = np.sum(
        [b.probability * b.going * (b.going + 1.0) / (b.total * (b.total + 1.0)) for b in posterior.end_blocks], axis=0
    )
    onward = np.zeros_like(parts[0][0])  # mean of D given that the episode continues
    for block in posterior.on_blocks:
        total = nonzero(block.total)
        first = _first(o, parts, block, seen, o.count * ~ended)
        onward += block.probability * first / total
        second = block.probability * going_squared / (total * (total + 1.0))
        found += _second(o, parts, block, seen, o.count * ~ended, second, alike)
        found -= (first * (second / total)) @ first.T
    for block in posterior.end_blocks:
        first = _first(o, parts, block, seen, o.count * ended) + block.going * onward
        second = block.probability / (block.total * (block.total + 1.0))
        found += _second(o, parts, block, seen, o.count * ended, second, alike)
        found += (onward * (block.going * second)) @ onward.T - (first * (second / block.total)) @ first.T
    return found


def _first(o: Outcomes, parts: Parts, block: Block, seen: Floats, count: Floats) -> Floats:
    """Σ_o (α + n) D of every pair, shape [d, P]."""
    own = count * block.own[o.count_pair]
    found = np.array(
        [np.bincount(o.count_pair, weights=row * own, minlength=o.pair_state.size) for row in seen],
        dtype=np.float64,  # of nothing, bincount makes integers
    )
    for u, f in parts:
        shared = np.array([by_state(o, block.share * row) for row in f])[:, o.pair_state]
        more = np.array([by_state(o, block.extra * row) for row in f])[:, o.pair_state]
        found += u * (block.scale * shared + more)
    return found


def _second(
    o: Outcomes, parts: Parts, block: Block, seen: Floats, count: Floats, factor: Floats, alike: list[Ints]
) -> Floats:
    """Σ_pairs factor Σ_o (α + n) D_k D_l, shape [d, d]."""
    found = (seen * (count * (block.own * factor)[o.count_pair])) @ seen.T
    for (u, f), (w, g), rows, columns in product(parts, parts, alike, alike):
        both = u[rows[0]] * w[columns[0]] * factor
        shared = np.bincount(o.pair_state, weights=both * block.scale, minlength=o.n_states)[o.outcome_state]
        more = np.bincount(o.pair_state, weights=both, minlength=o.n_states)[o.outcome_state]
        found[np.ix_(rows, columns)] += (f[rows] * (block.share * shared + block.extra * more)) @ g[columns].T
    return np.asarray(found)
