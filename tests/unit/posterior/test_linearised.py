"""Gains by linearisation, against a slow twin."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.priors import PriorSet, posterior
from posterior_cases import random_case


# ------------------------------------------------------------------------------------------------ against slow twins
def slow_linearised(o, prior, policy, baseline):
    """Mean and covariance with one array per pair and outcome, row by row of the two Dirichlets."""
    n, d = o.n_states, o.n_objectives
    actions = policy.shape[1]
    counts = np.zeros((n, actions, o.outcome_next.size))
    for p in range(o.pair_state.size):
        for s in range(o.count_ptr[p], o.count_ptr[p + 1]):
            counts[o.pair_state[p], o.pair_action[p], o.count_outcome[s]] = o.count[s]
    own = [np.arange(o.outcome_ptr[x], o.outcome_ptr[x + 1]) for x in range(n)]

    def strength(c, others):
        """Mass of a prior of concentration c that is itself known from so many visits."""
        return 1.0 / (1.0 / (c + 1.0) + c / (c + 1.0) / (others + 1.0)) - 1.0

    def ends_and_on(i, x, a):
        """α of the ends of a state, 0 for its other outcomes, and last of going on."""
        ends = o.outcome_next[own[x]] < 0
        mine = counts[x, a][own[x]]
        theirs = np.append(np.where(ends, prior.share[own[x]] - mine, 0.0), prior.going[x] - mine[~ends].sum())
        shape = strength(prior.end_concentration[i], theirs.sum()) * theirs / theirs.sum()
        more = prior.extra[own[x]] + mine
        return shape + np.append(np.where(ends, more, 0.0), more[~ends].sum())

    def where_to(i, x, a):
        on = o.outcome_next[own[x]] >= 0
        mine = counts[x, a][own[x]]
        theirs = on * (prior.share[own[x]] - mine)
        shape = strength(prior.concentration[i], theirs.sum()) * theirs / max(theirs.sum(), 1e-300)
        return shape + on * (prior.extra[own[x]] + mine)

    def mean_of(shape, weights, x, a):
        return sum(w * shape(i, x, a) / max(shape(i, x, a).sum(), 1e-300) for i, w in enumerate(weights))

    def moments(shape):
        """E[p pᵀ] of a Dirichlet."""
        total = max(shape.sum(), 1e-300)
        return (np.outer(shape, shape) + np.diag(shape)) / (total * (total + 1.0))

    onward = {(x, a): mean_of(where_to, prior.weight, x, a) for x in range(n) for a in range(actions)}
    p = {}
    for (x, a), q in onward.items():
        first = mean_of(ends_and_on, prior.end_weight, x, a)
        p[x, a] = first[:-1] + first[-1] * q
    index = {(x, a): j for j, (x, a) in enumerate(zip(o.pair_state.tolist(), o.pair_action.tolist(), strict=True))}
    sides = []
    for table in (policy, baseline):
        matrix, reward = np.zeros((n, n)), np.zeros((d, n))
        for (x, a), row in p.items():
            for probability, outcome in zip(row, own[x], strict=True):
                if o.outcome_next[outcome] >= 0:
                    matrix[x, o.outcome_next[outcome]] += table[x, a] * probability
                reward[:, x] += table[x, a] * probability * o.outcome_reward[:, outcome]
            reward[:, x] += table[x, a] * prior.pair_reward[:, index[x, a]]
        v = np.array([np.linalg.solve(np.eye(n) - g * matrix, r) for g, r in zip(o.discount, reward, strict=True)])
        visits = np.array([np.linalg.solve(np.eye(n) - g * matrix.T, o.initial) for g in o.discount])
        sides.append((table, v, visits))
    covariance = np.zeros((d, d))
    for x, a in p:
        following = np.append(np.arange(n), n)[o.outcome_next[own[x]]]
        rows = []
        for table, v, visits in sides:
            after = np.hstack([v, np.zeros((d, 1))])[:, following]
            rows.append(visits[:, [x]] * table[x, a] * (o.outcome_reward[:, own[x]] + o.discount[:, None] * after))
        gap = rows[0] - rows[1]
        q = onward[x, a]
        going_squared = 0.0
        for i, w in enumerate(prior.end_weight):
            shape = ends_and_on(i, x, a)
            second = moments(shape)
            going_squared += w * second[-1, -1]
            spread = second - np.outer(shape, shape) / shape.sum() ** 2
            first = np.column_stack([gap, gap @ q])
            covariance += w * first @ spread @ first.T
        for i, w in enumerate(prior.weight):
            shape = where_to(i, x, a)
            mean = shape / max(shape.sum(), 1e-300)
            covariance += w * going_squared * gap @ (moments(shape) - np.outer(mean, mean)) @ gap.T
        noise = o.pair_noise[:, index[x, a]] * (sides[0][2][:, x] * policy[x, a] - sides[1][2][:, x] * baseline[x, a])
        covariance += np.diag(noise**2)
    for effects in o.effects:  # what the pairs of a state, of an action, or of a group share
        group = o.pair_state if effects.group is None else effects.group
        for k in range(d):
            moved = np.array([sides[0][2][k, x] * policy[x, a] - sides[1][2][k, x] * baseline[x, a] for x, a in index])
            moved = moved * effects.share[k]
            shared = [(group, effects.state_sd[k]), (o.pair_action, effects.action_sd[k])]
            covariance[k, k] += sum((sd[i] * moved[of == i].sum()) ** 2 for of, sd in shared for i in np.unique(of))
    gain = sides[0][1] - sides[1][1]
    start = np.diag(o.initial) - np.outer(o.initial, o.initial)
    return gain @ o.initial, covariance + gain @ start @ gain.T / (o.starts.sum() + 1.0)


@pytest.mark.parametrize("kind", ["tied", "noisy", "unequal"])
@pytest.mark.parametrize("k", [None, 1])
def test_linearised_against_its_slow_twin(kind, k):
    case = random_case(13, tied=kind != "noisy", discounts=(0.9, 0.6) if kind == "unequal" else None, episodes=20)
    o, _, baseline = case
    rng = np.random.default_rng(1)
    policies = rng.dirichlet(np.ones(3), size=(2, 6))
    policies[1, 2:] = baseline[2:]
    prior = posterior(o, PriorSet(pessimism=1.5), pessimistic_for=k, baseline_v=rng.normal(size=(2, 6)))
    means, covariances = linearised_gains(prior, policies, baseline)
    for policy, mean, covariance in zip(policies, means, covariances, strict=True):
        slow_mean, slow_covariance = slow_linearised(o, prior, policy, baseline)
        assert mean == pytest.approx(slow_mean, rel=1e-5, abs=1e-8)  # unlikely concentrations are left out
        assert covariance == pytest.approx(slow_covariance, rel=1e-4, abs=1e-10)
    alone, variance = linearised_gains(prior, policies, baseline, objectives=[1])
    assert alone[:, 0] == pytest.approx(means[:, 1])
    assert variance[:, 0, 0] == pytest.approx(covariances[:, 1, 1])
