"""Linearised posterior of a log of any size from its counts, with the results of `linearised` in less memory.

`Outcomes` lists the outcomes and all pairs of every state; with a million states it is many times as large as the log. Here the
transitions of the estimated model are used, with one additional byte each, and the C++ kernel computes sums by state or pair
during each pass. Rewards are per pair. If rewards are noisy and no event is rare, all results are equal to those of `outcomes_of`, up to rounding:

    P_π(o|x) = Σ_a c(x,a) n(x,a,o) + A(x) α_0(x,o) + B(x) [o is the worst]       c, A, B follow from π and the prior

A product with P_π, or with its transpose, is one pass over the log's distinct transitions, and so is the covariance. All pairs
without data have the prior's row, so only the sum of their π per state is stored.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe import _kernel
from bettersafe._system import workers
from bettersafe.errors import ParameterError, as_array, check_indices, check_integer, check_type
from bettersafe.logs.counts import Counts
from bettersafe.model import Model
from bettersafe.posterior.events import Rate, event_effects, event_pairs, rate_effects, rates_of, worst_rates
from bettersafe.posterior.linearised import reward_variance
from bettersafe.posterior.outcomes import reward_limits, spread_in_pairs
from bettersafe.posterior.priors import (
    CONCENTRATIONS,
    DEFAULT_PRIORS,
    END_CONCENTRATIONS,
    VALUE_TOL,
    PriorSet,
    capped,
    check_pessimistic,
    likely,
    log_evidence,
    nonzero,
    on_mass,
    pessimistic_step,
    pooled_ends,
    share_of_going,
    visits_of_others,
    worth,
)
from bettersafe.posterior.rewards import Effects, Moments, pair_rewards
from bettersafe.typing import Event, check_arrays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.posterior.events import DeclaredEvent, EventPairs
    from bettersafe.typing import Bools, Bytes, Floats, Ints, Progress


MAX_PRODUCTS = 20_000
"""Largest number of products per system; plain iteration would need fewer at a discount of 0.998."""

ACCEPT = 1e-7
"""Largest accepted backward error of a solution."""


@dataclass(frozen=True, kw_only=True)
class CountedOutcomes:
    """Outcomes of all pairs with data, stored with the transitions of the log's model.

    Attributes:
        state_ptr: Pairs of state x are state_ptr[x]:state_ptr[x+1], shape [X+1].
        pair_state: State of every pair, shape [P].
        pair_index: Flat index of every pair in a table [X, A], shape [P].
        rows: Transitions of the model for the kernel: indptr, indices, data of CSR [P, X].
        visits: n(x,a), shape [P].
        flag: Bits per transition: whether it is used, and whether it is the first with its outcome in its state, shape [nnz].
        on: Visits of a pair that led to a state with decisions, shape [P].
        ended: Visits of a pair that ended the episode, shape [P].
        distinct: Number of distinct next states of a state, shape [X].
        pair_reward: Known rewards, and posterior means of noisy ones, shape [d, P].
        pair_noise: Posterior standard deviation of a noisy mean, shape [d, P].
        effects: Uncertain effects of states and actions in noisy means.
        untried_reward: Mean reward of a state's pairs without data, without the effect of the action, shape [d, X].
        untried_action: Effect of the action on the mean reward of a pair without data, shape [d, A].
        untried_state_var: Variance of the own part of the mean reward of a pair without data, but for that of its action, shape [d, X].
        untried_action_var: Variance of that part that is due to the action, shape [d, A].
        least_reward: Smallest reward of the declared range, else of the data, shape [d].
        bad_share: Mean position of rewards between the largest (0) and the smallest (1) one of the data, shape [d].
        noisy: Whether an objective is noisy, shape [d].
        discount: γ, shape [d].
        starts: Number of episodes that start in a state, shape [X].
        n_actions: |A|.
        events: Declared events (`events`).
    """

    state_ptr: Ints
    pair_state: Ints
    pair_index: Ints
    rows: tuple[Any, Any, Floats]
    visits: Floats
    flag: Bytes
    on: Floats
    ended: Floats
    distinct: Floats
    pair_reward: Floats
    pair_noise: Floats
    effects: tuple[Effects, ...]
    untried_reward: Floats
    untried_action: Floats
    untried_state_var: Floats
    untried_action_var: Floats
    least_reward: Floats
    bad_share: Floats
    noisy: Bools
    discount: Floats
    starts: Floats
    n_actions: int
    events: tuple[EventPairs, ...] = ()

    def __post_init__(self) -> None:
        check_arrays(self)
        check_integer("n_actions", self.n_actions, least=1)

    @property
    def n_states(self) -> int:
        """|X|."""
        return int(self.starts.size)

    @cached_property
    def pair_action(self) -> Ints:
        """Action of every pair, shape [P]."""
        return np.asarray(self.pair_index % self.n_actions)

    @property
    def n_objectives(self) -> int:
        """The number d of objectives."""
        return int(self.discount.size)

    @property
    def hidden(self) -> tuple[int, ...]:
        """Objectives whose rewards by next state, and whose rare events, are left open."""
        return tuple(np.flatnonzero(self.noisy).tolist())

    @property
    def n_transitions(self) -> int:
        """Number of distinct transitions, without ends."""
        return int(self.flag.size)

    @property
    def has_ends(self) -> bool:
        """Whether any episode terminated."""
        return bool(np.any(self.ended))

    @cached_property
    def initial(self) -> Floats:
        """Posterior mean of the distribution of first states, shape [X]."""
        return np.asarray(self.starts / self.starts.sum())

    @cached_property
    def goes(self) -> Floats:
        """Visits of a state after which the episode continued, shape [X]."""
        return self.by_state(self.on)

    @cached_property
    def ends_in(self) -> Floats:
        """Visits of a state that ended the episode, shape [X]."""
        return self.by_state(self.ended)

    @cached_property
    def live(self) -> Bools:
        """Whether a state has any outcome, shape [X]."""
        return np.asarray(self.goes + self.ends_in > 0.0)

    @cached_property
    def strength(self) -> Strength:
        """Strength of the hierarchical prior, estimated from the log."""
        return _learn(self)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """First arguments of every kernel function."""
        return self.state_ptr, *self.rows, self.visits, self.flag

    def by_state(self, value: Floats) -> Floats:
        """Sums over the pairs [P] of every state, shape [X]."""
        return np.bincount(self.pair_state, weights=value, minlength=self.n_states).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Strength:
    """Strength of the hierarchical prior: probabilities of the concentrations, and `pooled_ends`."""

    weight: Floats
    end_weight: Floats
    more_ends: float
    more_on: float


@dataclass(frozen=True, kw_only=True)
class CountedPosterior:
    """Posterior under one prior, like `Posterior`, from `CountedOutcomes`.

    Attributes:
        outcomes: Outcomes of the log.
        priors: Set of priors that contains this prior.
        counted: Factor on counts in the prior's shares: 1, or 0 for "support".
        even: Share of every outcome in addition to its counts, shape [X].
        share_on: Share of all next states in the prior, shape [X].
        share_end: Share of the end in the prior, shape [X].
        going: Share of "on" in the prior, shape [X].
        others: Visits of the state's other pairs after which the episode continued, shape [P].
        end_others: All visits of the state's other pairs, shape [P].
        concentration: Concentrations for the next state with enough probability.
        weight: Probabilities of ``concentration``.
        end_concentration: Concentrations for ends with enough probability.
        end_weight: Probabilities of ``end_concentration``.
        pair_reward: Means of rewards, shape [d, P].
        untried_reward: Mean rewards of a state's pairs without data, without the effect of the action, shape [d, X].
        untried_action: Effects of actions on the mean rewards of pairs without data, shape [d, A].
        pessimism: Pseudo-transitions of every pair to the worst outcome; 0 under the neutral prior.
        worst: Worst outcome: a state, −1 for the end, −2 for none, shape [X].
        rates: Rates of the declared events.
    """

    outcomes: CountedOutcomes
    priors: PriorSet
    counted: float
    even: Floats
    share_on: Floats
    share_end: Floats
    going: Floats
    others: Floats
    end_others: Floats
    concentration: Floats
    weight: Floats
    end_concentration: Floats
    end_weight: Floats
    pair_reward: Floats
    untried_reward: Floats
    untried_action: Floats
    pessimism: float
    worst: Ints
    rates: tuple[Rate, ...] = ()

    def event_effects(self, pair_index: Ints) -> tuple[Floats, Floats]:
        """`events.event_effects` at the mean rates, for pairs with these flat indices."""
        rates = [rate.mean for rate in self.rates]
        return event_effects(self.outcomes.events, rates, pair_index, self.outcomes.n_objectives)


@dataclass(frozen=True, kw_only=True)
class Side:
    """Values and visits of a policy at the posterior mean.

    Attributes:
        value: v, shape [n, X].
        visits: Discounted visits ν, with the discounts of the objectives, shape [n, X].
        table: π, shape [X, A].
        policy: π of pairs with data, times the probability that no declared event ends the episode, shape [P].
        untried: The same of all other pairs, shape [X, A]; None if it is 0.
        objectives: Indices of the objectives, length n.
    """

    value: Floats
    visits: Floats
    table: Floats
    policy: Floats
    untried: Floats | None
    objectives: tuple[int, ...]


def available() -> bool:
    """Whether the compiled kernel is available; without it `linearised_gains` gives the same results with more memory."""
    return _kernel.compiled is not None


def gather_counted(
    counts: Counts, model: Model, *, known: Collection[int] = (), events: Sequence[DeclaredEvent] = ()
) -> CountedOutcomes:
    """Outcomes of a counted log, for the linearised form.

    Args:
        counts: Counts of the log.
        model: Model of the same counts; its transitions are shared, not copied.
        known: Indices of objectives with known rewards per pair, such as derived ones.
        events: Declared events, which the log has never shown.

    Examples:
        >>> from bettersafe.posterior import gather_counted
        >>> gather_counted(counts, model).n_objectives
        2
    """
    check_type("counts", counts, Counts)
    check_type("model", model, Model)
    known = as_array("known", list(known) if isinstance(known, Collection) else known, np.int64).reshape(-1)
    check_indices("known", known, counts.n_objectives)
    kernel, mdp = _kernel.compiled, model.mdp
    if kernel is None:
        raise ParameterError(
            "gather_counted needs the native kernel, which is not installed; pass outcomes_of(counts)."
        )
    if mdp.n_pairs != counts.n_pairs:
        raise ParameterError(
            f"the model has {mdp.n_pairs} pairs and the counts have {counts.n_pairs}: estimate it from these counts."
        )
    d, n_states = counts.n_objectives, counts.n_states
    visits = counts.pair_count.astype(np.float64)
    rows = (mdp.transition.indptr, mdp.transition.indices, mdp.transition.data)
    acted = np.zeros(n_states, dtype=np.uint8)
    acted[mdp.pair_state] = 1
    flag, distinct, on = np.zeros(rows[1].size, dtype=np.uint8), np.zeros(n_states), np.zeros(visits.size)
    kernel.mark_outcomes(mdp.state_ptr, *rows, visits, acted, flag, distinct, on, workers.cores())
    noisy = np.array([k not in known for k in range(d)])
    mean = counts.reward_sum / visits
    live = np.bincount(mdp.pair_state, weights=on + counts.terminated_count, minlength=n_states) > 0.0
    rewards = pair_rewards(
        mdp.pair_state,
        mdp.pair_index % counts.n_actions,
        np.where(live[mdp.pair_state], visits, 0.0),
        Moments(mean=mean, spread=spread_in_pairs(counts), asked=noisy),
        n_states=n_states,
        n_actions=counts.n_actions,
    )
    paid = ~noisy[:, None]
    return CountedOutcomes(
        state_ptr=mdp.state_ptr,
        pair_state=mdp.pair_state,
        pair_index=mdp.pair_index,
        rows=rows,
        visits=visits,
        flag=flag,
        on=on,
        ended=counts.terminated_count.astype(np.float64),
        distinct=distinct,
        pair_reward=np.where(paid, mean, rewards.mean),
        pair_noise=rewards.noise,
        effects=(rewards.effects, rewards.common),
        untried_reward=np.where(paid, counts.unseen_reward[:, None], rewards.untried),
        untried_action=rewards.untried_action,
        untried_state_var=rewards.untried_state_var,
        untried_action_var=rewards.untried_action_var,
        **reward_limits(
            counts.objectives, counts.reward_min, counts.reward_sum.sum(axis=1) / visits.sum(), counts.reward_max
        ),
        noisy=noisy,
        discount=mdp.discount,
        starts=counts.initial_count.astype(np.float64),
        n_actions=counts.n_actions,
        events=event_pairs(events, counts.objectives, counts.state_labels, counts.action_labels),
    )


def _rising(alpha: Floats, count: Floats) -> float:
    """Σ log Γ(α + n)/Γ(α)."""
    assert _kernel.compiled is not None
    found: float = _kernel.compiled.log_rising(
        np.ascontiguousarray(alpha), np.ascontiguousarray(count), workers.cores()
    )
    return found


def _shares(
    o: CountedOutcomes, more_ends: float, more_on: float
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
    """Arrays of the hierarchical prior: even, share_on, share_end, going [X], others, end_others [P]."""
    known = o.distinct > 0.0
    even = np.where(known, 1.0 / np.maximum(o.distinct, 1.0), 0.0)
    share_on = o.goes + known
    share_end = np.where(o.live & o.has_ends, o.ends_in + more_ends, 0.0)
    going = share_of_going(o.goes, more_on)
    others, end_others = visits_of_others(o.pair_state, share_on, share_end, going, o.on, o.on + o.ended)
    return even, share_on, share_end, going, others, end_others


def _learn(o: CountedOutcomes) -> Strength:
    """Strength of the hierarchical prior from the likelihoods of states' ends, pairs' ends and pairs' next states."""
    assert _kernel.compiled is not None
    went, ended = o.goes, o.ends_in
    share = np.array([ended.sum(), went.sum()]) / max(float((went + ended).sum()), 1.0)
    kind = np.repeat([0, 1], [np.count_nonzero(ended), np.count_nonzero(went)])
    count = np.concatenate([ended[ended > 0.0], went[went > 0.0]])
    more_ends, more_on = pooled_ends(share, kind, count, (went + ended)[o.live], _rising).tolist()
    even, _, share_end, going, others, end_others = _shares(o, more_ends, more_on)
    grid, end_grid = np.array(CONCENTRATIONS), np.array(END_CONCENTRATIONS)
    where = np.zeros(grid.size)
    _kernel.compiled.successor_likelihood(*o.arrays, even, others, grid, where, workers.cores())
    to = dict(zip(CONCENTRATIONS, where.tolist(), strict=True))
    x, went_on, stopped = o.pair_state, o.on > 0.0, o.ended > 0.0
    whether = [
        (stopped, (share_end[x] - o.ended)[stopped], o.ended[stopped]),
        (went_on, (going[x] - o.on)[went_on], o.on[went_on]),
    ]
    visits = o.on + o.ended
    return Strength(
        weight=likely(lambda c: to[c] + log_evidence(c, others, o.on, (), _rising), grid),
        end_weight=likely(lambda c: log_evidence(c, end_others, visits, whether, _rising), end_grid),
        more_ends=more_ends,
        more_on=more_on,
    )


def counted_posterior(
    outcomes: CountedOutcomes,
    priors: PriorSet = DEFAULT_PRIORS,
    *,
    pessimistic_for: int | None = None,
    baseline_v: Floats | None = None,
) -> CountedPosterior:
    """Posterior under one prior of a set; for the arguments see `posterior`."""
    o = outcomes
    concentration, weight, end_concentration, end_weight = _concentrations(o, priors)
    if priors.neutral == "support":
        even = 1.0 / np.maximum(o.distinct + (o.ends_in > 0.0), 1.0)
        share_on = going = o.distinct * even
        share_end = np.where(o.ends_in > 0.0, even, 0.0)
        others = end_others = np.zeros(o.visits.size)
    else:
        learnt = o.strength
        even, share_on, share_end, going, others, end_others = _shares(o, learnt.more_ends, learnt.more_on)
    neutral = CountedPosterior(
        outcomes=o,
        priors=priors,
        counted=float(priors.neutral != "support"),
        even=even,
        share_on=share_on,
        share_end=share_end,
        going=going,
        others=others,
        end_others=end_others,
        concentration=concentration,
        weight=weight,
        end_concentration=end_concentration,
        end_weight=end_weight,
        pair_reward=o.pair_reward,
        untried_reward=o.untried_reward,
        untried_action=o.untried_action,
        pessimism=0.0,
        worst=np.full(o.n_states, -2, dtype=np.int64),
        rates=rates_of(o.events, o.pair_index, o.visits),
    )
    return neutral if pessimistic_for is None else counted_pessimistic(neutral, pessimistic_for, baseline_v)


def _concentrations(
    o: CountedOutcomes, priors: PriorSet, most: float = np.inf
) -> tuple[Floats, Floats, Floats, Floats]:
    """Concentrations of at most ``most`` with enough probability, and their probabilities: for next states, then for ends."""
    if priors.neutral == "support":
        grids = [(np.ones(1), np.ones(1))] * 2
    else:
        grids = [
            (np.array(CONCENTRATIONS) * priors.concentration_scale, o.strength.weight),
            (np.array(END_CONCENTRATIONS) * priors.concentration_scale, o.strength.end_weight),
        ]
    if np.isfinite(most):
        grids = [capped(grid, weight, most) for grid, weight in grids]
    kept = [worth(weight) for _, weight in grids]
    values = [grid[[i for i, _ in places]] for (grid, _), places in zip(grids, kept, strict=True)]
    weights = [np.array([probability for _, probability in places]) for places in kept]
    return values[0], weights[0], values[1], weights[1]


def counted_pessimistic(neutral: CountedPosterior, k: int, baseline_v: Floats | None) -> CountedPosterior:
    """Posterior under the prior of the same set that is pessimistic for objective k; ``baseline_v`` has shape [d, X]."""
    assert _kernel.compiled is not None
    o, priors = neutral.outcomes, neutral.priors
    v = check_pessimistic(k, o.n_objectives, baseline_v)
    worst = np.full_like(neutral.worst, -2)
    can_end = (o.ends_in > 0.0).astype(np.uint8)
    _kernel.compiled.worst_outcomes(*o.arrays, can_end, o.discount[k] * v[k], worst, workers.cores())
    most = priors.most_pessimistic
    concentration, weight, end_concentration, end_weight = _concentrations(o, priors, most)
    pair_reward, untried, by_action = (
        each.copy() for each in (neutral.pair_reward, neutral.untried_reward, neutral.untried_action)
    )
    if o.noisy[k]:
        bad = priors.pessimism * o.bad_share[k]
        pair_reward[k] += pessimistic_step(bad, o.visits, o.least_reward[k] - pair_reward[k], most)
        untried[k] += pessimistic_step(bad, 0.0, o.least_reward[k] - untried[k], most)
        by_action[k] += pessimistic_step(bad, 0.0, -by_action[k], most)
    worse = _worst_place(o, o.discount[k] * v[k])
    pair_reward[k] += pessimistic_step(priors.pessimism, o.visits, worse[o.pair_state], most)
    untried[k] += pessimistic_step(priors.pessimism, 0.0, worse, most)
    return replace(
        neutral,
        concentration=concentration,
        weight=weight,
        end_concentration=end_concentration,
        end_weight=end_weight,
        pair_reward=pair_reward,
        untried_reward=untried,
        untried_action=by_action,
        pessimism=priors.pessimism,
        worst=worst,
        rates=worst_rates(neutral.rates),
    )


def _worst_place(o: CountedOutcomes, value: Floats) -> Floats:
    """Smallest value [X] of all places that the log leads to, minus the mean value after a step from every state, shape [X]."""
    from scipy import sparse

    indptr, following, probability = o.rows
    used = (o.flag & 1).astype(np.bool_)
    if not np.all(used):
        probability = probability * used
    led = sparse.csr_array((probability, following, indptr), shape=(o.visits.size, o.n_states)) @ value
    reached = np.zeros(o.n_states, dtype=np.bool_)
    reached[following if np.all(used) else following[used]] = True
    lowest = float(np.min(value[reached], initial=0.0 if o.has_ends else np.inf))
    return np.asarray(lowest - o.by_state(o.visits * led) / nonzero(o.goes + o.ends_in))


def side_of(
    posterior: CountedPosterior, policy: Floats, objectives: Sequence[int], *, guess: Side | None = None
) -> Side:
    """Values and visits of a policy at the posterior mean.

    Args:
        posterior: Posterior of the process.
        policy: π, shape [X, A].
        objectives: Indices of the objectives.
        guess: Values and visits of another policy, as initial values of the solver.
    """
    o = posterior.outcomes
    asked = list(objectives)
    tried = policy.reshape(-1)[o.pair_index]
    rest = np.where(o.live, 1.0 - o.by_state(tried), 0.0)
    untried = None
    if np.max(rest) > 1e-12:
        untried = np.where(o.live[:, None], policy, 0.0)
        untried.reshape(-1)[o.pair_index] = 0.0
        rest = untried.sum(axis=1)
    else:
        rest = np.zeros(o.n_states)
    paid = np.zeros((len(asked), o.n_states))
    if posterior.rates:
        onward, cost = posterior.event_effects(o.pair_index)
        paid += [o.by_state(tried * cost[k]) for k in asked]
        tried = tried * onward
        if untried is not None:
            there = np.flatnonzero(untried)
            onward, cost = posterior.event_effects(there)
            mass, state = untried.take(there), there // o.n_actions
            paid += [np.bincount(state, weights=mass * cost[k], minlength=o.n_states) for k in asked]
            untried.reshape(-1)[there] = mass * onward
            rest = untried.sum(axis=1)
    weight, even, extra = _mixed(posterior, tried, rest)
    rhs = paid + np.array(
        [o.by_state(tried * posterior.pair_reward[k]) + rest * posterior.untried_reward[k] for k in asked]
    ).reshape(len(asked), -1)
    if untried is not None:
        rhs += (untried @ posterior.untried_action[asked].T).T
    value = np.zeros_like(rhs) if guess is None else guess.value.copy()
    visits = np.zeros_like(rhs) if guess is None else guess.visits.copy()
    for gamma in np.unique(o.discount[asked]):
        same = np.flatnonzero(o.discount[asked] == gamma)
        system = (posterior, weight, even, extra, float(gamma))
        value[same] = _solved(*system, rhs[same], value[same], transposed=False)
        visits[same] = _solved(*system, o.initial[None], visits[same[:1]], transposed=True)
    return Side(value=value, visits=visits, table=policy, policy=tried, untried=untried, objectives=tuple(asked))


def _mixed(posterior: CountedPosterior, tried: Floats, rest: Floats) -> tuple[Floats, Floats, Floats]:
    """P_π at the mean: weights of pairs' rows [P], weight of every outcome of a state [X], and of its worst outcome in addition [X].

    ``tried`` is π of pairs with data [P], ``rest`` the sum of π over pairs without data [X].
    """
    o, x = posterior.outcomes, posterior.outcomes.pair_state
    extra_on = np.where(posterior.worst >= 0, posterior.pessimism, 0.0)
    extra_end = np.where(posterior.worst == -1, posterior.pessimism, 0.0)

    def parts(
        pi: Floats, place: Ints | slice, on: Floats | float, ended: Floats | float, others: Floats, end_others: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Factors on the pairs' own counts, on the shares and on the worst outcome, for pairs with these visits."""
        goes = np.zeros_like(pi)
        for c, probability in zip(posterior.end_concentration.tolist(), posterior.end_weight, strict=True):
            scale, own, going = on_mass(c, end_others, posterior.going[place], on, extra_on[place])
            total = scale * posterior.share_end[place] + own * ended + extra_end[place] + going
            goes += probability * going / nonzero(total)
        onward = pi * goes
        mine, shared, more = np.zeros_like(pi), np.zeros_like(pi), np.zeros_like(pi)
        for c, probability in zip(posterior.concentration.tolist(), posterior.weight, strict=True):
            scale, own, total = on_mass(c, others, posterior.share_on[place], on, extra_on[place])
            part = probability * onward / nonzero(total)
            mine += part * own
            shared += part * scale
            more += part
        return mine, shared, more

    mine, shared, more = parts(tried, x, o.on, o.ended, posterior.others, posterior.end_others)
    of_state, of_worst = o.by_state(shared), o.by_state(more)
    if np.any(rest):
        # a pair without data has all visits of the state as others; "support" does not use others
        others, end_others = (
            posterior.counted * share for share in (posterior.share_on, posterior.share_end + posterior.going)
        )
        _, shared, more = parts(rest, slice(None), 0.0, 0.0, others, end_others)
        of_state, of_worst = of_state + shared, of_worst + more
    weight = (mine + posterior.counted * of_state[x]) * o.visits
    return weight, of_state * posterior.even, of_worst * extra_on


def _solved(
    posterior: CountedPosterior,
    weight: Floats,
    even: Floats,
    extra: Floats,
    gamma: float,
    rhs: Floats,
    guess: Floats,
    *,
    transposed: bool,
) -> Floats:
    """(I − γP)⁻¹ rhs, or with Pᵀ, shape [n, X]."""
    assert _kernel.compiled is not None
    found = np.ascontiguousarray(guess)
    error = _kernel.compiled.solve_mean(
        *posterior.outcomes.arrays, weight, even, extra, posterior.worst, gamma, transposed, np.ascontiguousarray(rhs), found,
        VALUE_TOL, MAX_PRODUCTS, workers.cores(),
    )  # fmt: skip
    if not error <= ACCEPT:
        raise ArithmeticError(
            f"the values of a policy at the posterior mean could not be solved: backward error {error:.2g}."
        )
    return found


def counted_gains(
    posterior: CountedPosterior,
    policies: Sequence[Floats],
    base: Side,
    *,
    progress: Progress | None = None,
) -> tuple[Floats, Floats]:
    """Means [C, n] and covariances [C, n, n] of J(π) − J(π_b) to first order around the posterior mean.

    Args:
        posterior: Posterior of the process.
        policies: C policies, each of shape [X, A].
        base: Baseline at the posterior mean (`side_of`), with the objectives to evaluate.
        progress: Callback after every policy.
    """
    n, o = len(base.objectives), posterior.outcomes
    mean, covariance = np.zeros((len(policies), n)), np.zeros((len(policies), n, n))
    for c, policy in enumerate(policies):
        side = side_of(posterior, policy, base.objectives, guess=base)
        mean[c], covariance[c] = _gain(posterior, side, base)
        if progress is not None:
            progress(Event(done=c + 1, total=len(policies), unit="candidates"))

    def gains_at(rates: tuple[Rate, ...]) -> Floats:
        given = replace(posterior, rates=rates)
        before = side_of(given, base.table, base.objectives, guess=base)
        after = [side_of(given, policy, base.objectives, guess=base).value @ o.initial for policy in policies]
        return np.array(after).reshape(-1, n) - before.value @ o.initial

    shift, change = rate_effects(posterior.rates, gains_at, mean)
    return mean + shift, covariance + np.einsum("ecn,ecm->cnm", change, change)


def _gain(posterior: CountedPosterior, side: Side, base: Side) -> tuple[Floats, Floats]:
    """Mean [n] and covariance [n, n] of one policy's gains."""
    kernel, o = _kernel.compiled, posterior.outcomes
    assert kernel is not None
    asked = list(side.objectives)
    gained = side.value - base.value
    mean = gained @ o.initial
    moved = side.policy - base.policy
    untried = np.zeros((o.n_states, 3))
    nothing = np.zeros((1, 1))
    pi = nothing if side.untried is None else side.untried
    tau = pi - (nothing if base.untried is None else base.untried)
    for i, each in enumerate((pi * pi, pi * tau, tau * tau)):
        untried[:, i] = each.sum(axis=1)
    found = np.empty((len(asked), len(asked)))
    both, visits = (
        np.ascontiguousarray(np.stack([mine.T, theirs.T], axis=2))  # [X, n, 2]
        for mine, theirs in ((side.value, base.value), (side.visits, base.visits))
    )
    kernel.gains_covariance(
        *o.arrays, o.discount[asked], both, visits, side.policy, moved, untried, o.on, o.ended,
        posterior.share_on, posterior.even, posterior.counted, posterior.share_end, posterior.going, posterior.others, posterior.end_others,
        posterior.priors.neutral != "support", posterior.pessimism, posterior.worst, posterior.concentration, posterior.weight,
        posterior.end_concentration, posterior.end_weight, found, workers.cores(),
    )  # fmt: skip
    centred = gained - mean[:, None]  # the distribution of first states is uncertain too: a Dirichlet
    found += (centred * o.initial) @ centred.T / (o.starts.sum() + 1.0)
    for i, k in enumerate(asked):
        if not o.noisy[k]:
            continue
        more = side.visits[i] - base.visits[i]  # ν π − ν_b π_b = (ν − ν_b) π + ν_b (π − π_b)
        played = more[o.pair_state] * side.policy + base.visits[i][o.pair_state] * moved
        rest = more[:, None] * pi + base.visits[i][:, None] * tau  # the same for pairs without data, [X, A] or [X, 1]
        found[i, i] += reward_variance(o, k, played, untried=rest)
        found[i, i] += np.sum(rest**2 * (o.untried_state_var[k][:, None] + o.untried_action_var[k]))
    return mean, found
