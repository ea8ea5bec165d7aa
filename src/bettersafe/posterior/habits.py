"""What the baseline's habits say: how actions that it rarely plays differ from its usual ones, learnt from the log.

A good baseline rarely plays what is bad. The prior of a pair, the outcomes of the other actions of its state (`priors`), ignores that: it
expects a rare action to be as good as the usual one. Whether it is can be seen in the log, in all states together. With y the value of
an outcome, ρ_k(o) + γ_k v_k^{π_b}(o), the residual of a pair,

    e(x,a) = mean of y after (x,a) − mean of y after the other actions of x,

is modelled like a reward (`rewards`): a level, an effect of the group of π_b(a|x) (`EDGES`), an effect of the action, and one of the pair.
The sum of the first three is added to the mean of a pair in proportion to the weight of the prior in it, so it matters for pairs with
few visits. Ends and next states are treated apart, because they have different priors.

The effect of the pair has a standard deviation τ, learnt with the others: how much a pair differs from the other pairs of its state
beyond what groups and actions explain. The Dirichlet prior of a pair may be more certain than that, above all if an untried action
leads to states that the log has not seen from here. So the standard deviation of a pair's value is at least τ times the weight of the
prior in its mean.

No prior is right for every pair. A pair that the other pairs make look better than its own visits did is one that a policy made from the
log would choose. So the mean of a pair is at most one standard error above that of its own visits (the limited translation of Efron and
Morris, on the side that does harm). Rare events (`rare`) are left out on both sides: a pair that was struck once in three visits is not
so bad, and a policy that leaves it would seem to gain what it does not.

Rare harmful ends have a model of their own (`end_rates`), because normal effects miss them. The more pessimistic of the two counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.posterior.end_rates import excess_ends, harm_of_ends
from bettersafe.posterior.linearised import mean_mix, mean_values, step_moments
from bettersafe.posterior.priors import pessimistic, posterior
from bettersafe.posterior.rewards import OWN_VISITS, Effects, reward_posterior

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.posterior.priors import Posterior, PriorSet
    from bettersafe.posterior.rewards import Strengths
    from bettersafe.typing import Floats, Ints

EDGES = (0.01, 0.03, 0.1, 0.3, 0.6)
N_GROUPS = len(EDGES) + 1
"""Limits of the groups of π_b(a|x), and the number of groups."""

MOST_ABOVE = 1.0
"""Standard errors by which the posterior mean of a pair's value may exceed the mean of its own visits."""


def informed(
    outcomes: Outcomes,
    priors: PriorSet,
    baseline: Floats,
    habits: Mapping[tuple[bool, int], Strengths] | None = None,
) -> Posterior:
    """Posterior under the neutral prior, with what the log says about rarely played actions (`with_habits`)."""
    return with_habits(posterior(outcomes, priors), baseline, habits)


def informed_priors(
    outcomes: Outcomes, priors: PriorSet, baseline: Floats, baseline_v: Floats
) -> tuple[Posterior, list[Posterior]]:
    """Posterior under the neutral prior (`informed`), and under the pessimistic prior of each objective (empty if pessimism is 0).

    Args:
        outcomes: Outcomes of the log.
        priors: Set of priors.
        baseline: π_b, shape [X, A].
        baseline_v: v̂^{π_b}, shape [d, X].
    """
    neutral = informed(outcomes, priors, baseline)
    objectives = range(outcomes.n_objectives if priors.pessimism > 0.0 else 0)
    return neutral, [pessimistic(neutral, k, baseline_v) for k in objectives]


def with_habits(
    given: Posterior, baseline: Floats, habits: Mapping[tuple[bool, int], Strengths] | None = None
) -> Posterior:
    """The posterior with what the log says about rarely played actions.

    Args:
        given: Posterior under the neutral prior.
        baseline: π_b, shape [X, A].
        habits: Strengths that were learnt before, from a larger log.
    """
    learnt = dict(habits or {})
    o = given.outcomes
    weight = baseline.reshape(-1)[o.pair_index]
    mixed = mean_mix(given, weight)
    group = np.searchsorted(EDGES, weight, side="right").astype(np.int64)
    own_end = sum(b.probability * b.own * o.visits / np.maximum(b.total, 1e-300) for b in given.end_blocks)
    own_on = sum(b.probability * b.own * o.visits_on / np.maximum(b.total, 1e-300) for b in given.on_blocks)
    pair_reward, effects = given.pair_reward.copy(), list(o.effects)
    on = ~o.ends[o.count_outcome]
    shares = {
        True: given.mean_going
        * np.clip(1.0 - np.asarray(own_on), 0.0, 1.0),  # a pair that always ends has no next state
        False: np.clip(1.0 - np.asarray(own_end), 0.0, 1.0),
    }
    found = {which: _Groups(o.n_objectives, o.pair_state.size, o.n_actions) for which in shares}
    pair_noise = o.pair_noise.copy()
    rates = [excess_ends(o, group, kind) for kind in range(int(np.max(o.kind, initial=-1)) + 1)]
    for k in range(o.n_objectives):
        v = mean_values(given, mixed, weight, np.array([k]))[0]
        after = np.where(o.outcome_next >= 0, v[np.maximum(o.outcome_next, 0)], 0.0)
        of_outcome = o.outcome_reward[k] + o.discount[k] * after
        value = of_outcome[o.count_outcome]
        times = o.count * on
        total = np.bincount(o.pair_state[o.count_pair], times, o.n_states)
        level = np.bincount(o.pair_state[o.count_pair], times * value, o.n_states) / np.maximum(total, 1.0)
        centred = value - level[o.pair_state[o.count_pair]]  # relative to going on from the state
        for which, share in shares.items():
            part = np.where(on == which, centred, 0.0)
            learnt[which, k] = found[which].fit(k, part, o, group, learnt.get((which, k)))
            pair_reward[k] += share * found[which].mean[k]
        harm, harm_variance = harm_of_ends(o, rates, of_outcome - level[o.outcome_state])
        pair_reward[k] += np.minimum(harm - shares[False] * found[False].mean[k], 0.0)
        least = sum((share * found[which].pair_sd[k]) ** 2 for which, share in shares.items())
        least = np.maximum(least, harm_variance)
        mean, variance = step_moments(given, of_outcome)
        seen, error = _own_mean(o, k, value)
        above = np.maximum(mean + pair_reward[k] - o.rare_reward[k] - seen - MOST_ABOVE * error, 0.0)
        pair_reward[k] -= above
        least = np.where(above > 0.0, np.maximum(least, error**2), least)
        pair_noise[k] = np.sqrt(pair_noise[k] ** 2 + np.maximum(least - variance - pair_noise[k] ** 2, 0.0))
    effects += [
        Effects(
            share=np.tile(shares[which], (o.n_objectives, 1)),
            state_sd=each.group_sd,
            action_sd=each.action_sd,
            group=group,
        )
        for which, each in found.items()
    ]
    changed = replace(o, effects=tuple(effects), pair_noise=pair_noise)
    return replace(given, pair_reward=pair_reward, outcomes=changed, habits=learnt)


def _own_mean(o: Outcomes, k: int, value: Floats) -> tuple[Floats, Floats]:
    """Mean of the value of a step over the visits of every pair, and its standard error, each of shape [P]; infinite without data.

    Rare events are left out. The variance of a visit is that of the pair, shrunk to that of the log.
    """
    size = np.maximum(o.visits, 1.0)
    mean = np.bincount(o.count_pair, o.count * value, size.size).astype(np.float64) / size
    spread = np.bincount(o.count_pair, o.count * (value - mean[o.count_pair]) ** 2, size.size).astype(np.float64)
    noisy = [each for each in o.moments[:1] if each.asked[k]]  # the others are of rare events
    spread += sum(each.spread[k] for each in noisy)
    mean += o.known_reward[k] + sum(each.mean[k] for each in noisy)
    free = np.maximum(o.visits - 1.0, 0.0)
    pooled = spread.sum() / max(float(free.sum()), 1.0)
    variance = (OWN_VISITS * pooled + spread) / (OWN_VISITS + free)
    return mean, np.where(o.visits > 0.0, np.sqrt(variance / size), np.inf)


class _Groups:
    """Effects of groups and actions on one part of the value, for d objectives."""

    def __init__(self, d: int, n_pairs: int, n_actions: int) -> None:
        self.mean, self.pair_sd = np.zeros((d, n_pairs)), np.zeros((d, n_pairs))
        self.group_sd, self.action_sd = np.zeros((d, N_GROUPS)), np.zeros((d, n_actions))

    def fit(self, k: int, part: Floats, o: Outcomes, group: Ints, strengths: Strengths | None) -> Strengths:
        """Fit objective k: ``part`` [S] is that part of the value of every observed transition."""
        pair, count, state, action, visits = o.count_pair, o.count, o.pair_state, o.pair_action, o.visits
        n_pairs, n_states = visits.size, o.n_states
        first = np.bincount(pair, count * part, n_pairs)
        in_state = np.bincount(state, visits, n_states)[state]
        others = in_state - visits
        rest = np.bincount(state, first, n_states)[state] - first
        usable = (visits > 0.0) & (others > 0.0)
        mean = first / np.maximum(visits, 1.0)
        residual = np.where(usable, mean - rest / np.maximum(others, 1.0), 0.0)
        spread = np.bincount(pair, count * (part - mean[pair]) ** 2, n_pairs)
        inside = float(spread.sum()) / max(float(visits.sum() - np.count_nonzero(visits)), 1.0)
        variance = inside * (1.0 / np.maximum(visits, 1.0) + 1.0 / np.maximum(others, 1.0))
        nothing = np.zeros(n_pairs)
        both = reward_posterior(
            np.concatenate([group, group]),
            np.concatenate([action, action]),
            np.concatenate([usable * visits, nothing]),
            np.concatenate([residual, nothing]),
            np.concatenate([usable * visits * inside, nothing]),
            n_states=N_GROUPS,
            n_actions=self.action_sd.shape[1],
            variance=np.concatenate([variance, nothing]),
            strengths=strengths,
        )
        self.mean[k] = both.mean[n_pairs:]  # of a pair without data: the effects alone
        self.pair_sd[k] = both.sd[n_pairs:]
        self.group_sd[k], self.action_sd[k] = both.state_sd, both.action_sd
        return both.strengths
