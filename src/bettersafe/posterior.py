"""The posterior of the true process given a log, and the probability that a policy is no worse than the baseline in it.

Every pair (x,a) has its own unknown distribution over the outcomes of its state. An outcome is where the step led (a state,
or the end) together with what it paid; so rewards that go with the outcome need no model of their own. Outcomes of a state are
those seen from it under any action, and every kind of end that the log has. A step ends or goes on; if on, it
goes somewhere. With prior α_0 and counts n,

    (on, ends)(x,a) | D      ~ Dirichlet( α_0(x,·) + n(x,a,·) )       the counts of "on" are those of all that goes on
    where to, if on (x,a) | D ~ Dirichlet( α_0(x,·) + n(x,a,·) )       independent of it, and both over pairs

Two neutral priors, and a pessimistic one for every objective k:

    "support"        total mass 1, spread evenly over what was seen of the state; both Dirichlets then are one
    "hierarchical"   for a pair, what the *other* actions of its state saw, at two concentrations, of ends c' and of where to c,
                     integrated over by the likelihood of every pair given the others. No prior counts for more visits than it
                     was learned from. How often a state ends is drawn to how often all do (`_end_mass`)
    pessimistic(k)   the neutral one, its concentrations at most `PESSIMISTIC_CONCENTRATION`, plus pseudo-transitions (one, if not
                     said otherwise) of every pair to the outcome seen of its state that is worst for k, by r_k + γ_k v̂_k^{π_b}

Ends have a concentration of their own because actions that lead to different places may well be equally likely to end. With one
for both, a pair that has not ended yet in ten visits is taken for one that hardly ever does; policies made from the log prefer
such pairs, and everything that is paid per step then looks better than it is, by four standard deviations in some worlds.

A good baseline is itself evidence that what it seldom does is bad; an exchangeable prior ignores that, which is why a policy
has to convince under the pessimistic priors too (`bopt`).

Rewards come in three kinds. *Known*: a table [X, A] that the caller has (a rule on pairs). *Outcome*: a function of where a step led,
and of ends of their kind. *Noisy*: anything else. Means of pairs are spread around the mean m of all pairs with variance τ²,
rewards of a pair around its mean with variance s², both pooled over the log (s² = 0 where a pair always pays the same):

    r_k(x,a) | D ~ N( v (n r̄/s² + m/τ²),  v ),   1/v = n/s² + 1/τ²

and the prior that is pessimistic for k has the least reward there can be (as declared, else as seen) in the place of m; with
another pessimism than one the step from m down to it is as many times as long.

A prior is the same for all pairs of a state, so it is kept per outcome and only what was seen is kept per pair: means and the
linearised form take one pass over the log's distinct steps, and draws (in the C++ kernel) keep no pair's distribution at all,
only what policies make of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bettersafe import _kernel, linear
from bettersafe.counts import Counts
from bettersafe.data import lowest_rewards
from bettersafe.errors import ParameterError, check_choice
from bettersafe.mdp import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bettersafe.data import Dataset

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Neutral = Literal["support", "hierarchical"]
NEUTRAL: tuple[Neutral, ...] = ("support", "hierarchical")

MOST_ENDS = 20
"""Ends are told apart by what they pay if there are at most this many kinds; with more, a reward that ends differ in is noisy."""

CONCENTRATIONS = tuple(float(c) for c in np.geomspace(0.1, 300.0, 15))
"""Grid over which the hierarchical prior's concentration of where to is integrated. It stops where what a state's other actions
did counts for 300 visits: more would say of an action tried often that it is like the others, whatever was seen of it."""

END_CONCENTRATIONS = tuple(float(c) for c in np.geomspace(0.1, 3000.0, 19))
"""The same of ends, which may be as likely everywhere."""

PESSIMISTIC_CONCENTRATION = 5.0
"""Visits that what the other actions did counts for at most in a pessimistic prior. Beside a neutral prior that counts for hundreds
one bad visit would say nothing, and what the log tells wrongly of the others it would tell both."""

HEARD = 8
"""Draws of every core after which it is said how far they are: enough that cores seldom wait for each other."""

VALUE_TOL = 1e-9
"""Backward error of values in a draw and at the mean: far below the spread of draws."""

LEAST_WEIGHT = 1e-6
"""Concentrations less likely than this are left out of the mean and of the linearised form."""


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """What a log says about every pair, in the form that the posterior needs.

    Attributes:
        pair_state: State of every pair, sorted by state and then action, shape [P]; all pairs of states that were acted in.
        pair_action: Shape [P].
        state_ptr: Pairs of state x are state_ptr[x]:state_ptr[x+1], shape [X+1].
        outcome_ptr: Outcomes of state x are outcome_ptr[x]:outcome_ptr[x+1], shape [X+1].
        outcome_next: Where an outcome leads, −1 for the end, shape [K].
        outcome_reward: What it pays, shape [d, K]; 0 for rewards that are known or noisy.
        kind: Which kind of end an outcome is, −1 where it goes on, shape [K]. Every state acted in has every kind that the log has.
        assumed: Whether it is there for that alone, not seen from its state, shape [K].
        count_ptr: What was seen of pair p is count_ptr[p]:count_ptr[p+1], shape [P+1].
        count_outcome: Outcomes that were seen of a pair, in order, shape [S].
        count: How often, n(x,a,o) > 0, shape [S].
        pair_reward: Known rewards, and posterior means of noisy ones, shape [d, P].
        pair_noise: Standard deviation of the posterior of a noisy mean, shape [d, P]; 0 otherwise.
        prior_share: What the prior's mean m counts for in a noisy mean, v/τ², shape [d, P].
        prior_mean: m, shape [d].
        least_reward: Least reward that was declared possible, else the least seen, shape [d].
        noisy: Which objectives are noisy, shape [d].
        discount: γ, shape [d].
        starts: Episodes that start in a state, shape [X].
        n_actions: |A|.
    """

    pair_state: Ints
    pair_action: Ints
    state_ptr: Ints
    outcome_ptr: Ints
    outcome_next: Ints
    outcome_reward: Floats
    kind: Ints
    assumed: Bools
    count_ptr: Ints
    count_outcome: Ints
    count: Floats
    pair_reward: Floats
    pair_noise: Floats
    prior_share: Floats
    prior_mean: Floats
    least_reward: Floats
    noisy: Bools
    discount: Floats
    starts: Floats
    n_actions: int

    @property
    def n_states(self) -> int:
        """|X|."""
        return int(self.starts.size)

    @cached_property
    def initial(self) -> Floats:
        """Mean of where episodes start, shape [X]."""
        return np.asarray(self.starts / self.starts.sum())

    @property
    def n_objectives(self) -> int:
        """The number d of objectives."""
        return int(self.discount.size)

    @cached_property
    def pair_index(self) -> Ints:
        """Place of every pair in a table [X, A] laid out flat, shape [P]."""
        return self.pair_state * self.n_actions + self.pair_action

    @cached_property
    def outcome_state(self) -> Ints:
        """State of every outcome, shape [K]."""
        return np.repeat(np.arange(self.n_states), np.diff(self.outcome_ptr))

    @cached_property
    def ends(self) -> Bools:
        """Whether an outcome is an end, shape [K]."""
        return np.asarray(self.outcome_next < 0)

    @cached_property
    def seen(self) -> Floats:
        """How often an outcome was seen under any action, shape [K]."""
        return np.bincount(self.count_outcome, self.count, self.outcome_next.size).astype(np.float64)

    @cached_property
    def visits_on(self) -> Floats:
        """How often a pair went on, shape [P]."""
        on = self.count * ~self.ends[self.count_outcome]
        return np.bincount(self.count_pair, on, self.pair_state.size).astype(np.float64)

    @cached_property
    def count_pair(self) -> Ints:
        """Pair of every count, shape [S]."""
        return np.repeat(np.arange(self.pair_state.size), np.diff(self.count_ptr))

    @cached_property
    def visits(self) -> Floats:
        """n(x,a), shape [P]."""
        return np.bincount(self.count_pair, self.count, self.pair_state.size).astype(np.float64)

    @cached_property
    def entry_ptr(self) -> Ints:
        """With one entry per pair and outcome of its state, those of pair p are entry_ptr[p]:entry_ptr[p+1], shape [P+1]."""
        return np.concatenate([[0], np.cumsum(np.diff(self.outcome_ptr)[self.pair_state])])

    @cached_property
    def entry_outcome(self) -> Ints:
        """Outcome of every entry, shape [E]."""
        ptr = self.entry_ptr
        return np.arange(ptr[-1]) - np.repeat(ptr[:-1] - self.outcome_ptr[self.pair_state], np.diff(ptr))

    @cached_property
    def entry_count(self) -> Floats:
        """n(x,a,o) of every entry, shape [E]."""
        ptr, pair = self.entry_ptr, self.count_pair
        table = np.zeros(ptr[-1])
        table[ptr[pair] + self.count_outcome - self.outcome_ptr[self.pair_state[pair]]] = self.count
        return table


def _is_function(value: Floats, group: Ints) -> bool:
    """Whether a value is the same in all rows of a group."""
    order = np.argsort(group, kind="stable")
    same = np.diff(group[order]) == 0
    return bool(np.all(np.diff(value[order])[same] == 0.0))


def gather_outcomes(dataset: Dataset, *, known_rewards: Mapping[int, Floats] | None = None) -> Outcomes:
    """Outcomes of a log.

    Args:
        dataset: The log. Last rows of episodes that were cut off with an unknown next state are left out.
        known_rewards: By objective, its reward as a table [X, A], where it is a known rule on pairs.
    """
    known = dict(known_rewards or {})
    d, n_states, n_actions = dataset.n_objectives, dataset.n_states, dataset.n_actions
    # a last row that leads where nobody acted has no value to lead to, so what came of it is not known
    acted_in = np.zeros(n_states + 1, dtype=np.bool_)
    acted_in[dataset.states] = True
    rows = np.flatnonzero(dataset.terminated | acted_in[dataset.next_states])
    x, a, following = dataset.states[rows], dataset.actions[rows], dataset.next_states[rows]
    reward = dataset.rewards[rows]
    end = following < 0
    key = x * (n_states + 1) + following + 1
    few = [k for k in range(d) if k not in known and np.unique(reward[end, k]).size <= MOST_ENDS]
    kind = np.where(end, 0, -1)  # of rows
    if few and np.any(end):  # ends that pay differently are different ends
        kinds = np.unique(reward[end][:, few], axis=0, return_inverse=True)[1].reshape(-1)
        if kinds.max() < MOST_ENDS:
            kind[end] = kinds
    where = np.unique(key * MOST_ENDS + kind, return_inverse=True)[1]
    tied = [k not in known and _is_function(reward[:, k], where) for k in range(d)]
    noisy = np.array([not tied[k] and k not in known for k in range(d)])

    # outcomes of a state: where it led, and of ends what they paid; a reward that does not go with that is noisy
    if not any(tied):
        kind = np.minimum(kind, 0)
    _, some_row, outcome_of_row = np.unique(key * MOST_ENDS + kind, return_index=True, return_inverse=True)
    outcome_state, outcome_next, outcome_kind = x[some_row], following[some_row], kind[some_row]
    outcome_reward = np.where(np.array(tied)[:, None], reward[some_row].T, 0.0)
    assumed = np.zeros(outcome_next.size, dtype=np.bool_)
    if np.any(end):  # what ends elsewhere in the log can end here, and pays what it does there
        n_kinds = int(kind.max()) + 1
        paid = np.array([np.where(tied, reward[kind == i].mean(axis=0), 0.0) for i in range(n_kinds)]).T  # [d, kinds]
        every = np.unique(x)[:, None] * n_kinds + np.arange(n_kinds)
        ended = outcome_kind >= 0
        missing = np.setdiff1d(every, outcome_state[ended] * n_kinds + outcome_kind[ended])
        order = np.argsort(np.concatenate([outcome_state, missing // n_kinds]), kind="stable")
        assumed = order >= outcome_next.size
        outcome_next = np.concatenate([outcome_next, np.full(missing.size, -1)])[order]
        outcome_reward = np.concatenate([outcome_reward, paid[:, missing % n_kinds]], axis=1)[:, order]
        outcome_state = np.concatenate([outcome_state, missing // n_kinds])[order]
        outcome_kind = np.concatenate([outcome_kind, missing % n_kinds])[order]
        outcome_of_row = np.argsort(order)[outcome_of_row]
    outcome_ptr = np.searchsorted(outcome_state, np.arange(n_states + 1))

    # every action of a state that was acted in is a pair, tried or not
    acted = np.flatnonzero(np.diff(outcome_ptr) > 0)
    pair_state = np.repeat(acted, n_actions)
    pair_action = np.tile(np.arange(n_actions), acted.size)
    place = np.full(n_states, -1)
    place[acted] = np.arange(acted.size)
    pair_of_row = place[x] * n_actions + a
    n_pairs, n_outcomes = pair_state.size, outcome_next.size
    seen, count = np.unique(pair_of_row * n_outcomes + outcome_of_row, return_counts=True)

    visits = np.bincount(pair_of_row, minlength=n_pairs).astype(np.float64)
    pair_reward, pair_noise, prior_share = (np.zeros((d, n_pairs)) for _ in range(3))
    prior_mean = np.zeros(d)
    for k, table in known.items():
        pair_reward[k] = np.asarray(table, dtype=np.float64)[pair_state, pair_action]
    for k in np.flatnonzero(noisy).tolist():
        mean = np.bincount(pair_of_row, weights=reward[:, k], minlength=n_pairs) / np.maximum(visits, 1.0)
        spread = float(np.sum((reward[:, k] - mean[pair_of_row]) ** 2))
        prior_mean[k], prior_share[k], pair_reward[k], pair_noise[k], _ = pooled_rewards(mean, visits, spread)
    starts = dataset.states[dataset.episode_ptr[:-1]]
    return Outcomes(
        pair_state=frozen(pair_state, np.int64),
        pair_action=frozen(pair_action, np.int64),
        state_ptr=np.searchsorted(pair_state, np.arange(n_states + 1)).astype(np.int64),
        outcome_ptr=outcome_ptr.astype(np.int64),
        outcome_next=outcome_next.astype(np.int64),
        outcome_reward=outcome_reward,
        kind=outcome_kind.astype(np.int64),
        assumed=assumed,
        count_ptr=np.searchsorted(seen, np.arange(n_pairs + 1) * n_outcomes).astype(np.int64),
        count_outcome=(seen % n_outcomes).astype(np.int64),
        count=count.astype(np.float64),
        pair_reward=pair_reward,
        pair_noise=pair_noise,
        prior_share=prior_share,
        prior_mean=prior_mean,
        least_reward=lowest_rewards(dataset.objectives, reward.min(axis=0)),
        noisy=noisy,
        discount=np.array([objective.discount for objective in dataset.objectives]),
        starts=np.bincount(starts, minlength=n_states).astype(np.float64),
        n_actions=n_actions,
    )


def pooled_rewards(mean: Floats, visits: Floats, spread: float) -> tuple[float, Floats, Floats, Floats, float]:
    """What is believed of the mean rewards of pairs: m, v/τ² [P], posterior means [P], their standard deviations [P], and τ.

    Args:
        mean: Mean reward of every pair, 0 where it was never tried, shape [P].
        visits: n(x,a), shape [P].
        spread: Σ (r − mean of its pair)² over all rows.
    """
    tried = visits > 0
    n_tried = int(np.count_nonzero(tried))
    within = spread / max(int(visits.sum()) - n_tried, 1)
    between = max(float(mean[tried].var(ddof=1)) if n_tried > 1 else 0.0, 1e-12)
    prior_mean = float(mean[tried].mean())
    share = within / np.maximum(within + visits * between, 1e-300)  # v/τ²
    share[~tried] = 1.0  # the prior alone
    return (
        prior_mean,
        share,
        (1.0 - share) * mean + share * prior_mean,
        np.sqrt(share * between),
        float(np.sqrt(between)),
    )


def spread_in_pairs(counts: Counts, k: int) -> float:
    """Σ (r_k − mean of its pair)² from sums and squares; what is left by rounding where a pair always pays the same is 0."""
    total, square = counts.reward_sum[k], counts.reward_square_sum[k]
    inside = square - total**2 / counts.pair_count
    return float(np.sum(inside[inside > 1e-12 * square]))


def outcomes_of(counts: Counts, *, known_rewards: Mapping[int, Floats] | None = None) -> Outcomes:
    """Outcomes of a log that was counted, of which rewards are known by the sums and squares of pairs.

    So they are all noisy or known: that a reward goes with where a step led can't be told from counts, and ends are of one kind. A
    reward that does go with it is then believed to vary by itself as well, which makes its objective a little less sure.

    Args:
        counts: The log. Steps into states where nobody acted are left out, as in `gather_outcomes`; what they paid is not.
        known_rewards: By objective, its reward as a table [X, A], where it is a known rule on pairs.
    """
    known = dict(known_rewards or {})
    d, n_states, n_actions = counts.n_objectives, counts.n_states, counts.n_actions
    acted_in = np.zeros(n_states, dtype=np.bool_)
    acted_in[counts.pair_state] = True
    on = np.flatnonzero(acted_in[counts.outcome_state])
    ended = np.flatnonzero(counts.terminated_count)
    owner = np.repeat(np.arange(counts.n_pairs), np.diff(counts.outcome_ptr))
    step_pair = np.concatenate([owner[on], ended])
    following = np.concatenate([counts.outcome_state[on], np.full(ended.size, -1)])
    times = np.concatenate([counts.outcome_count[on], counts.terminated_count[ended]]).astype(np.float64)
    x = counts.pair_state[step_pair]
    stated = np.unique(x)
    key = x * (n_states + 1) + following + 1
    seen = np.unique(key)
    step_outcome = np.searchsorted(seen, key)
    outcome_state, outcome_next = seen // (n_states + 1), seen % (n_states + 1) - 1
    # every state can end, if any does: those from which it was not seen come last in their state
    missing = np.setdiff1d(stated, outcome_state[outcome_next < 0]) if ended.size else stated[:0]
    order = np.argsort(np.concatenate([outcome_state, missing]), kind="stable")
    assumed = order >= seen.size
    outcome_next = np.concatenate([outcome_next, np.full(missing.size, -1)])[order]
    outcome_state = np.concatenate([outcome_state, missing])[order]
    step_outcome = np.argsort(order)[step_outcome]
    place = np.full(n_states, -1)
    place[stated] = np.arange(stated.size)
    pair_state = np.repeat(stated, n_actions)
    pair_action = np.tile(np.arange(n_actions), stated.size)
    n_pairs = pair_state.size
    pair = place[x] * n_actions + counts.pair_action[step_pair]
    order = np.lexsort((step_outcome, pair))
    inside = np.flatnonzero(place[counts.pair_state] >= 0)  # of pairs that were tried
    tried = place[counts.pair_state[inside]] * n_actions + counts.pair_action[inside]
    visits = np.zeros(n_pairs)
    visits[tried] = counts.pair_count[inside]
    pair_reward, pair_noise, prior_share = (np.zeros((d, n_pairs)) for _ in range(3))
    prior_mean = np.zeros(d)
    for k in range(d):
        if k in known:
            pair_reward[k] = np.asarray(known[k], dtype=np.float64)[pair_state, pair_action]
            continue
        mean = np.zeros(n_pairs)
        mean[tried] = counts.reward_sum[k, inside] / counts.pair_count[inside]
        prior_mean[k], prior_share[k], pair_reward[k], pair_noise[k], _ = pooled_rewards(
            mean, visits, spread_in_pairs(counts, k)
        )
    return Outcomes(
        pair_state=frozen(pair_state, np.int64),
        pair_action=frozen(pair_action, np.int64),
        state_ptr=np.searchsorted(pair_state, np.arange(n_states + 1)).astype(np.int64),
        outcome_ptr=np.searchsorted(outcome_state, np.arange(n_states + 1)).astype(np.int64),
        outcome_next=outcome_next,
        outcome_reward=np.zeros((d, outcome_next.size)),
        kind=np.where(outcome_next < 0, 0, -1),
        assumed=assumed,
        count_ptr=np.searchsorted(pair[order], np.arange(n_pairs + 1)).astype(np.int64),
        count_outcome=step_outcome[order].astype(np.int64),
        count=times[order],
        pair_reward=pair_reward,
        pair_noise=pair_noise,
        prior_share=prior_share,
        prior_mean=prior_mean,
        least_reward=lowest_rewards(counts.objectives, counts.reward_min),
        noisy=np.array([k not in known for k in range(d)]),
        discount=np.array([objective.discount for objective in counts.objectives]),
        starts=counts.initial_count.astype(np.float64),
        n_actions=n_actions,
    )


@dataclass(frozen=True, kw_only=True)
class Block:
    """One of the two Dirichlets of pairs at one concentration: α + n = scale · share + own · n + extra.

    Attributes:
        probability: Of this concentration.
        share: By outcome, 0 for outcomes of the other one, shape [K].
        extra: The same of pseudo-transitions, shape [K].
        scale: w, shape [P].
        own: 1 − w: what a pair's own counts count for beside their part in the share; 1 for "support", shape [P].
        going: α + n of going on, shape [P]; 0 in the one of where to.
        total: The sum of α + n over all of a pair, shape [P].
    """

    probability: float
    share: Floats
    extra: Floats
    scale: Floats
    own: Floats
    going: Floats
    total: Floats


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """A posterior over the processes that could have made a log.

    Attributes:
        outcomes: The log.
        neutral: Its neutral prior.
        share: What the prior is taken from, by outcome, shape [K]: for "hierarchical" what all pairs of the state saw, and a little more.
        going: The same of going on, shape [X].
        others: What of it the other pairs of the state saw, of where to, shape [P]; 0 for "support".
        end_others: The same of ends and going on, shape [P].
        extra: Pseudo-transitions of every pair to an outcome, shape [K].
        concentration: The concentrations c of where to, shape [C]; 1 for "support".
        weight: Posterior probability of each, shape [C].
        end_concentration: The concentrations c' of ends, shape [C']; 1 for "support".
        end_weight: Posterior probability of each, shape [C'].
        pair_reward: Means of the rewards that don't go with outcomes, shape [d, P].
        pessimistic_for: Objective that a pseudo-transition is bad for, or None.
        pessimism: Pseudo-transitions.
    """

    outcomes: Outcomes
    neutral: Neutral
    share: Floats
    going: Floats
    others: Floats
    end_others: Floats
    extra: Floats
    concentration: Floats
    weight: Floats
    end_concentration: Floats
    end_weight: Floats
    pair_reward: Floats
    pessimistic_for: int | None = None
    pessimism: float = 0.0

    def __repr__(self) -> str:
        """The prior and how strong it was found to be: what one wants to see of it."""
        c, ends = self.weight @ self.concentration, self.end_weight @ self.end_concentration
        dark = (
            ""
            if self.pessimistic_for is None
            else f", pessimistic_for={self.pessimistic_for}, pessimism={self.pessimism:g}"
        )
        return (
            f"Posterior({self.neutral!r}{dark}, concentration={c:.3g}, end_concentration={ends:.3g},"
            f" {self.outcomes.pair_state.size} pairs, {self.outcomes.outcome_next.size} outcomes)"
        )

    def on_block(self, c: float, probability: float = 1.0) -> Block:
        """Where to, at one concentration."""
        o = self.outcomes
        share, extra = np.where(o.ends, 0.0, self.share), np.where(o.ends, 0.0, self.extra)
        scale, own = strengths(c, self.others)
        total = scale * _by_state(o, share)[o.pair_state] + own * o.visits_on + _by_state(o, extra)[o.pair_state]
        return Block(
            probability=probability,
            share=share,
            extra=extra,
            scale=scale,
            own=own,
            going=np.zeros_like(total),
            total=total,
        )

    def end_block(self, c: float, probability: float = 1.0) -> Block:
        """Whether and how it ends, at one concentration."""
        o = self.outcomes
        share, extra = np.where(o.ends, self.share, 0.0), np.where(o.ends, self.extra, 0.0)
        scale, own = strengths(c, self.end_others)
        extra_on = _by_state(o, self.extra - extra)
        going = scale * self.going[o.pair_state] + own * o.visits_on + extra_on[o.pair_state]
        ended = own * (o.visits - o.visits_on)
        total = scale * _by_state(o, share)[o.pair_state] + ended + going + _by_state(o, extra)[o.pair_state]
        return Block(probability=probability, share=share, extra=extra, scale=scale, own=own, going=going, total=total)

    @cached_property
    def end_blocks(self) -> list[Block]:
        """Whether and how it ends, at every concentration worth looking at."""
        return [
            self.end_block(float(self.end_concentration[i]), probability) for i, probability in worth(self.end_weight)
        ]

    @cached_property
    def on_blocks(self) -> list[Block]:
        """Where to, at every concentration worth looking at."""
        return [self.on_block(float(self.concentration[i]), probability) for i, probability in worth(self.weight)]

    @cached_property
    def mean_going(self) -> Floats:
        """Posterior mean of the probability that a pair goes on, shape [P]."""
        return np.asarray(np.sum([b.probability * b.going / b.total for b in self.end_blocks], axis=0))


def strengths(c: float, others: Floats) -> tuple[Floats, Floats]:
    """The weight w, and what a pair's own counts count for beside it, shape [P]; (c, 1) where nothing is taken from others.

    The others' distribution m is itself known from ``others`` visits alone. With p ~ Dirichlet(c m) and m ~ Dirichlet of that mass, p has
    the variance of a Dirichlet of mass c̃, 1/(c̃+1) = 1/(c+1) + c/(c+1) · 1/(others+1), which is under both; w = c̃/others.
    """
    alone = others <= 0.0
    strength = 1.0 / (1.0 / (c + 1.0) + c / ((c + 1.0) * (others + 1.0))) - 1.0
    scale = np.where(alone, c, strength / np.where(alone, 1.0, others))
    return scale, np.where(alone, 1.0, 1.0 - scale)


def worth(weight: Floats) -> list[tuple[int, float]]:
    """Places and probabilities of the concentrations that are likely enough to look at."""
    kept = np.flatnonzero(weight >= LEAST_WEIGHT)
    return [(i, float(weight[i] / weight[kept].sum())) for i in kept.tolist()]


def posterior(
    outcomes: Outcomes | Counts,
    neutral: Neutral = "hierarchical",
    *,
    pessimistic_for: int | None = None,
    pessimism: float = 1.0,
    baseline_v: Floats | None = None,
    scale_concentration: float = 1.0,
) -> Posterior:
    """The posterior under a prior.

    Args:
        outcomes: The log (`gather_outcomes`), or counts of it (`outcomes_of`).
        neutral: "support" or "hierarchical".
        pessimistic_for: Objective k to be pessimistic about, or None.
        pessimism: Pseudo-transitions to the outcome that is worst for k.
        baseline_v: v̂^{π_b} [d, X], which says what is worst; needed with ``pessimistic_for``.
        scale_concentration: Multiplies the hierarchical prior's concentrations, to see how much hangs on them.
    """
    check_choice("prior", neutral, NEUTRAL)
    o = outcomes_of(outcomes) if isinstance(outcomes, Counts) else outcomes
    if not isinstance(o, Outcomes):
        raise ParameterError(
            f"the posterior is made from what was seen: outcomes (gather_outcomes of a dataset) or counts; got {type(o).__name__}."
        )
    nobody = np.zeros(o.pair_state.size)
    if neutral == "support":
        share = ~o.assumed / _by_state(o, np.where(o.assumed, 0.0, 1.0))[o.outcome_state]
        going = _by_state(o, share * ~o.ends)
        others = end_others = nobody
        concentration = weight = end_concentration = end_weight = np.ones(1)
    else:
        concentration, end_concentration = np.array(CONCENTRATIONS), np.array(END_CONCENTRATIONS)
        on = np.where(o.ends, 0.0, 1.0)
        more_ends, more_on = _end_mass(o)
        base = np.where(o.ends, np.append(more_ends, 0.0)[o.kind], on / _nonzero(_by_state(o, on))[o.outcome_state])
        share = o.seen + base  # one visit more of where to, spread evenly
        goes = _by_state(o, o.seen * on)
        going = np.where(goes > 0.0, goes + more_on, 0.0)
        others = _by_state(o, share * on)[o.pair_state] - o.visits_on
        end_others = (_by_state(o, share * o.ends) + going)[o.pair_state] - o.visits
        weight = likely(lambda c: _where_to_likelihood(o, share, others, c), concentration)
        end_weight = likely(lambda c: _end_likelihood(o, share, going, end_others, c), end_concentration)
        concentration = concentration * scale_concentration
        end_concentration = end_concentration * scale_concentration
    found = Posterior(
        outcomes=o,
        neutral=neutral,
        share=share,
        going=going,
        others=others,
        end_others=end_others,
        extra=np.zeros_like(share),
        concentration=concentration,
        weight=weight,
        end_concentration=end_concentration,
        end_weight=end_weight,
        pair_reward=o.pair_reward,
    )
    if pessimistic_for is None:
        return found
    k = pessimistic_for
    if not 0 <= k < o.n_objectives:
        raise ParameterError(f"there is no objective {k} to be pessimistic about; there are {o.n_objectives}.")
    if baseline_v is None:
        raise ParameterError("a pessimistic prior needs the baseline's values, to know which outcome is worst.")
    pair_reward = o.pair_reward.copy()
    if o.noisy[k] and pessimism > 0.0:
        pair_reward[k] += pessimism * o.prior_share[k] * (o.least_reward[k] - o.prior_mean[k])
    extra = np.zeros_like(share)
    extra[_worst_outcomes(o, k, baseline_v)] = pessimism
    concentration, weight = capped(concentration, weight, PESSIMISTIC_CONCENTRATION)
    end_concentration, end_weight = capped(end_concentration, end_weight, PESSIMISTIC_CONCENTRATION)
    return replace(
        found,
        extra=extra,
        concentration=concentration,
        weight=weight,
        end_concentration=end_concentration,
        end_weight=end_weight,
        pair_reward=pair_reward,
        pessimistic_for=k,
        pessimism=pessimism,
    )


def capped(concentration: Floats, weight: Floats, most: float) -> tuple[Floats, Floats]:
    """Concentrations over ``most`` taken for that, and the probabilities of what is left."""
    kept, place = np.unique(np.minimum(concentration, most), return_inverse=True)
    return np.asarray(kept), np.bincount(place, weights=weight).astype(np.float64)


def _end_mass(o: Outcomes) -> tuple[Floats, float]:
    """Ends of every kind, and steps that go on, that every state has beside its own: C ḡ of kinds, C (1 − Σ ḡ).

    ḡ is the share of a kind of end in the whole log, and C how alike the states are in that: its posterior mean on a logarithmic
    scale, by the likelihood of all states' ends. A state that has not ended in some way in the log can all the same, as seldom as
    the other states make likely.
    """
    total = _by_state(o, o.seen)
    table = np.zeros(
        (o.n_states, int(np.max(o.kind, initial=-1)) + 2)
    )  # ends of every kind, and in the last what went on
    np.add.at(table, (o.outcome_state, o.kind), o.seen)
    share = table.sum(axis=0) / max(float(total.sum()), 1.0)
    if np.max(share) == 1.0:
        return share[:-1], float(share[-1])
    state, column = np.nonzero(table)
    grid = np.array(END_CONCENTRATIONS)
    acted = total[total > 0.0]
    spread = likely(
        lambda c: _dirichlet_multinomial(c * share[column], table[state, column], np.full(acted.size, c), acted), grid
    )
    mass = float(np.exp(spread @ np.log(grid)))
    return mass * share[:-1], mass * float(share[-1])


def _by_state(o: Outcomes, value: Floats) -> Floats:
    """Sums over the outcomes [K] of every state, shape [X]."""
    return np.bincount(o.outcome_state, weights=value, minlength=o.n_states).astype(np.float64)


def likely(log_likelihood: Callable[[float], float], grid: Floats) -> Floats:
    """Posterior on a grid, shape [C], from a prior ∝ 1/√(1 + c) on its logarithmic scale: little data must not look like much."""
    logs = np.array([log_likelihood(float(c)) for c in grid]) - 0.5 * np.log1p(grid)
    weight = np.exp(logs - logs.max())
    return np.asarray(weight / weight.sum())


def _where_to_likelihood(o: Outcomes, share: Floats, others: Floats, c: float) -> float:
    """Σ_p log P(n_p | what the others saw) over what goes on, Dirichlet–multinomial of mass w · others."""
    on = ~o.ends[o.count_outcome]
    pair, count = o.count_pair[on], o.count[on]
    scale, _ = strengths(c, others)
    alpha = scale[pair] * (share[o.count_outcome][on] - count)
    tried = o.visits_on > 0
    return _dirichlet_multinomial(alpha, count, (scale * others)[tried], o.visits_on[tried])


def _end_likelihood(o: Outcomes, share: Floats, going: Floats, others: Floats, c: float) -> float:
    """The same of ends, going on being one more outcome."""
    ended = o.ends[o.count_outcome]
    pair, count = o.count_pair[ended], o.count[ended]
    scale, _ = strengths(c, others)
    alpha = scale[pair] * (share[o.count_outcome][ended] - count)
    went = o.visits_on > 0
    alpha_on = (scale * (going[o.pair_state] - o.visits_on))[went]
    tried = o.visits > 0
    return _dirichlet_multinomial(
        np.concatenate([alpha, alpha_on]),
        np.concatenate([count, o.visits_on[went]]),
        (scale * others)[tried],
        o.visits[tried],
    )


def _dirichlet_multinomial(alpha: Floats, count: Floats, mass: Floats, visits: Floats) -> float:
    """Σ_p log [ Γ(A)/Γ(A+n_p) Π_o Γ(α_o + n_po)/Γ(α_o) ]; α that are 0 but for rounding are taken for tiny."""
    from scipy.special import gammaln

    alpha = np.maximum(alpha, 1e-9)
    return float(np.sum(gammaln(mass) - gammaln(mass + visits)) + np.sum(gammaln(alpha + count) - gammaln(alpha)))


def _worst_outcomes(o: Outcomes, k: int, baseline_v: Floats) -> Ints:
    """Of every state that was acted in, the outcome seen from it with the least r_k + γ_k v̂_k."""
    after = np.where(o.outcome_next >= 0, baseline_v[k][np.maximum(o.outcome_next, 0)], 0.0)
    order = np.lexsort((o.outcome_reward[k] + o.discount[k] * after, o.assumed, o.outcome_state))
    return np.asarray(order[np.unique(o.outcome_state, return_index=True)[1]])


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One process: transitions CSR [P, X] and rewards [d, P] of every pair, and where episodes start [X]."""

    transition: sparse.csr_array
    reward: Floats
    initial: Floats


def draw_process(posterior: Posterior, rng: np.random.Generator) -> Draw:
    """Draw a process from the posterior."""
    o = posterior.outcomes
    c = float(rng.choice(posterior.concentration, p=posterior.weight))
    c_end = float(rng.choice(posterior.end_concentration, p=posterior.end_weight))
    ends = o.ends[o.entry_outcome]
    end_block = posterior.end_block(c_end)
    shape = np.where(ends, _entries(o, end_block), _entries(o, posterior.on_block(c)))
    mass = rng.standard_gamma(shape)
    where = _normalised(o, mass * ~ends, shape * ~ends, 0.0, 0.0)
    on = rng.standard_gamma(end_block.going)
    how = _normalised(o, mass * ends, shape * ends, on, end_block.going)
    onward = 1.0 - np.add.reduceat(how, o.entry_ptr[:-1])
    reward = posterior.pair_reward
    if np.any(o.noisy):
        reward = reward + o.pair_noise * rng.standard_normal(reward.shape)
    start = rng.standard_gamma(o.starts)
    return _process(o, how + where * np.repeat(onward, np.diff(o.entry_ptr)), reward, start / start.sum())


def _entries(o: Outcomes, block: Block) -> Floats:
    """α + n of every entry, shape [E]; 0 for those of the other block but for their own counts."""
    width = np.diff(o.entry_ptr)
    shared = block.share[o.entry_outcome] * np.repeat(block.scale, width) + block.extra[o.entry_outcome]
    return np.maximum(shared + o.entry_count * np.repeat(block.own, width), 0.0)


def _normalised(o: Outcomes, mass: Floats, shape: Floats, more: Floats | float, more_shape: Floats | float) -> Floats:
    """Gammas of entries and of one thing more per pair, as shares of the sum; shapes stand in where all of them underflow."""
    ptr = o.entry_ptr
    total = np.add.reduceat(mass, ptr[:-1]) + more
    none = total <= 0.0
    total = np.where(none, np.add.reduceat(shape, ptr[:-1]) + more_shape, total)
    mass = np.where(np.repeat(none, np.diff(ptr)), shape, mass)
    return np.asarray(mass / np.repeat(np.where(total > 0.0, total, 1.0), np.diff(ptr)))


def mean_process(posterior: Posterior) -> Draw:
    """The mean of the posterior (averaged over concentrations)."""
    o = posterior.outcomes
    width = np.diff(o.entry_ptr)
    ends = o.ends[o.entry_outcome]
    probability = np.zeros(ends.size)
    for block in posterior.end_blocks:
        probability += ends * block.probability * _entries(o, block) / np.repeat(block.total, width)
    for block in posterior.on_blocks:
        going = np.repeat(posterior.mean_going / _nonzero(block.total), width)
        probability += ~ends * block.probability * _entries(o, block) * going
    return _process(o, probability, posterior.pair_reward, o.initial)


def _nonzero(total: Floats) -> Floats:
    """Totals to divide by: 1 for those of nothing (pairs of states from which everything ends)."""
    return np.where(total > 0.0, total, 1.0)


def _process(o: Outcomes, probability: Floats, pair_reward: Floats, initial: Floats) -> Draw:
    ptr, outcome = o.entry_ptr, o.entry_outcome
    following = o.outcome_next[outcome]
    stays = following >= 0
    transition = sparse.csr_array(
        (probability[stays], following[stays], np.append(0, np.cumsum(stays))[ptr]),
        shape=(o.pair_state.size, o.n_states),
    )
    paid = probability * o.outcome_reward[:, outcome]
    return Draw(transition=transition, reward=pair_reward + np.add.reduceat(paid, ptr[:-1], axis=1), initial=initial)


def returns_in(
    draw: Draw, outcomes: Outcomes, policies: Floats, *, guess: Floats | None = None
) -> tuple[Floats, Floats]:
    """J_k of every policy in a drawn process, shape [C, d], and the values [C, d, X] that they come from.

    Args:
        draw: The process.
        outcomes: What it is over.
        policies: Shape [C, X, A].
        guess: Values to start from, shape [C, d, X]; saves time.
    """
    o = outcomes
    weights = policies.reshape(policies.shape[0], -1)[:, o.pair_index]  # [C, P]
    values = np.zeros((policies.shape[0], o.n_objectives, o.n_states))
    for c, weight in enumerate(weights):
        rhs = np.array([np.bincount(o.pair_state, weights=weight * r, minlength=o.n_states) for r in draw.reward])
        for gamma in np.unique(o.discount):
            same = o.discount == gamma
            start = None if guess is None else guess[c, same]
            values[c, same], _ = linear.solve_values(
                o.state_ptr, weight, draw.transition, float(gamma), rhs[same], guess=start, tol=VALUE_TOL
            )
    return values @ draw.initial, values


def drawn_gains(
    posterior: Posterior,
    policies: Floats,
    baseline: Floats,
    *,
    draws: int,
    seed: int,
    stream: int = 0,
    first: int = 0,
    objectives: Sequence[int] | None = None,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Floats:
    """J_k(π) − J_k(π_b) of every policy in every drawn process, shape [draws, C, d].

    Every pair of every draw m has a generator of its own, seeded with (seed, stream, m) and the pair: a draw is the same on
    any number of cores, whichever other draws and policies are asked for.

    Args:
        posterior: What to draw from.
        policies: Shape [C, X, A].
        baseline: π_b, shape [X, A].
        draws: M.
        seed: Seed.
        stream: Tells priors apart.
        first: Number of the first draw.
        objectives: Which objectives to look at; all if left out.
        threads: Cores to use; all of them if left out.
        progress: Hears how many draws are made.
    """
    asked = list(range(posterior.outcomes.n_objectives)) if objectives is None else list(objectives)
    everyone = np.concatenate([baseline[None], policies])
    gains = np.empty((draws, policies.shape[0], len(asked)))
    kernel = _kernel.compiled
    if kernel is None:
        for m in range(draws):
            draw = draw_process(posterior, np.random.default_rng([seed, stream, first + m]))
            returns, _ = returns_in(draw, posterior.outcomes, everyone)
            gains[m] = (returns[1:] - returns[0])[:, asked]
            if progress is not None:
                progress(m + 1)
        return gains
    posterior = only_played(posterior, np.any(everyone > 0.0, axis=0))
    o = posterior.outcomes
    weight = np.ascontiguousarray(everyone.reshape(everyone.shape[0], -1)[:, o.pair_index])
    mixed = [_mean_mix(posterior, row) for row in weight]
    start = int(np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0])
    n_threads = linear.cores() if threads is None else threads
    at_once = draws if progress is None else HEARD * n_threads
    gammas = np.unique(o.discount[asked])
    for nth, gamma in enumerate(gammas):
        places = [i for i, k in enumerate(asked) if o.discount[k] == gamma]
        same = np.array([asked[i] for i in places], dtype=np.int64)
        found = np.empty((draws, policies.shape[0], same.size))
        process = (
            o.state_ptr, o.pair_index, same, o.outcome_ptr, o.outcome_next,
            np.ascontiguousarray(o.outcome_reward[same]), o.count_ptr, o.count_outcome, o.count,
            posterior.share, posterior.going, posterior.others, posterior.end_others, posterior.extra, posterior.concentration, _cumulative(posterior.weight),
            posterior.end_concentration, _cumulative(posterior.end_weight),
            np.ascontiguousarray(posterior.pair_reward[same]), np.ascontiguousarray(o.pair_noise[same]),
            weight, o.starts, _mean_values(posterior, mixed[0], weight[0], same),
            np.array([_mean_visits(o, mix, float(gamma)) for mix in mixed]), float(gamma), VALUE_TOL, start,
        )  # fmt: skip
        for done in range(0, draws, at_once):
            kernel.drawn_gains(*process, first + done, n_threads, found[done : done + at_once])
            if progress is not None:
                progress((nth * draws + min(done + at_once, draws)) // gammas.size)
        gains[:, :, places] = found
    return gains


def _cumulative(weight: Floats) -> Floats:
    total = np.cumsum(weight)
    total[-1] = 1.0
    return total


def only_played(posterior: Posterior, played: Bools) -> Posterior:
    """The posterior of the pairs that some policy plays ([X, A]): others matter to no value, and need not be drawn."""
    o = posterior.outcomes
    keep = played.reshape(-1)[o.pair_index]
    if np.all(keep):
        return posterior
    seen = keep[o.count_pair]
    pair_state = o.pair_state[keep]
    return replace(
        posterior,
        pair_reward=posterior.pair_reward[:, keep],
        others=posterior.others[keep],
        end_others=posterior.end_others[keep],
        outcomes=replace(
            o,
            pair_state=pair_state,
            pair_action=o.pair_action[keep],
            state_ptr=np.searchsorted(pair_state, np.arange(o.n_states + 1)).astype(np.int64),
            count_ptr=np.concatenate([[0], np.cumsum(np.diff(o.count_ptr)[keep])]),
            count_outcome=o.count_outcome[seen],
            count=o.count[seen],
            pair_reward=o.pair_reward[:, keep],
            pair_noise=o.pair_noise[:, keep],
            prior_share=o.prior_share[:, keep],
        ),
    )


def _mean_mix(posterior: Posterior, weight: Floats) -> Floats:
    """Probability of every outcome of a state under a policy (π of pairs, [P]) at the posterior mean, shape [K]."""
    o = posterior.outcomes
    state, pair = o.outcome_state, o.count_pair
    mixed = np.zeros(state.size)
    ended = o.count * o.ends[o.count_outcome]
    sides = [(block, weight / block.total, ended) for block in posterior.end_blocks]
    onward = weight * posterior.mean_going
    sides += [(block, onward / _nonzero(block.total), o.count - ended) for block in posterior.on_blocks]
    for block, share, count in sides:
        part = block.probability * share
        mixed += block.share * np.bincount(o.pair_state, weights=part * block.scale, minlength=o.n_states)[state]
        mixed += block.extra * np.bincount(o.pair_state, weights=part, minlength=o.n_states)[state]
        mixed += np.bincount(o.count_outcome, weights=(part * block.own)[pair] * count, minlength=state.size)
    return mixed


def _mean_matrix(o: Outcomes, mixed: Floats) -> sparse.csr_array:
    """P_π [X, X] from the probabilities of outcomes."""
    stays = o.outcome_next >= 0
    ptr = np.append(0, np.cumsum(stays))[o.outcome_ptr]
    return sparse.csr_array((mixed[stays], o.outcome_next[stays], ptr), shape=(o.n_states, o.n_states))


def _mean_values(posterior: Posterior, mixed: Floats, weight: Floats, objectives: Ints) -> Floats:
    """Values of a policy at the posterior mean, for objectives of one discount, shape [len(objectives), X]."""
    o = posterior.outcomes
    rhs = np.array(
        [
            np.bincount(o.pair_state, weights=weight * posterior.pair_reward[k], minlength=o.n_states)
            + np.bincount(o.outcome_state, weights=mixed * o.outcome_reward[k], minlength=o.n_states)
            for k in objectives
        ]
    )
    return _solved(o, _mean_matrix(o, mixed), float(o.discount[objectives[0]]), rhs)


def _mean_visits(o: Outcomes, mixed: Floats, gamma: float) -> Floats:
    """ν of a policy at the posterior mean, shape [X]."""
    return np.asarray(_solved(o, sparse.csr_array(_mean_matrix(o, mixed).T), gamma, o.initial[None])[0])


def _solved(o: Outcomes, matrix: sparse.csr_array, gamma: float, rhs: Floats) -> Floats:
    """(I − γM)⁻¹ rhs."""
    states = np.arange(o.n_states + 1)
    return linear.solve_values(states, np.ones(o.n_states), matrix, gamma, rhs, tol=VALUE_TOL)[0]


def linearised_gains(
    posterior: Posterior,
    policies: Floats,
    baseline: Floats,
    *,
    objectives: Sequence[int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Floats, Floats]:
    """Means [C, d] and covariances [C, d, d] of J(π) − J(π_b), to first order around the posterior mean: no draws.

        J_k(π) − J_k(π_b) ≈ Σ_{pairs, o} p(o) D_k(o),   D_k(o) = ν^π π (ρ_k(o) + γ V_k^π(o)) − ν^b π_b (ρ_k(o) + γ V_k^b(o))

    and the covariance of Dirichlet rows, (Σ p D_k D_l − Σ p D_k Σ p D_l) / (α + 1), that of where to times E[(going on)²], that of
    ends with the mean of where to for going on, both with concentrations averaged over. As p = (α_0 + n)/α, sums over outcomes split
    into one over what was seen of a pair and one that all pairs of a state share: the cost is that of the log's distinct steps,
    not of pairs times outcomes.

    Args:
        posterior: Around whose mean.
        policies: Shape [C, X, A].
        baseline: π_b, shape [X, A].
        objectives: Which objectives to look at; all if left out.
        progress: Hears how many policies are done.
    """
    asked = np.arange(posterior.outcomes.n_objectives) if objectives is None else np.array(objectives, dtype=np.int64)
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
        # D = ν^π π (f^π − f^b) + (ν^π π − ν^b π_b) f^b: nothing is left of it where a policy is the baseline
        parts = ((played, after - after_b), (played - played_b, after_b))
        covariance[c] = _rows_covariance(posterior, parts, alike)
        start = value - value_b  # and of where episodes start, a Dirichlet of their number
        centred = start - mean[c][:, None]
        covariance[c] += (centred * o.initial) @ centred.T / (o.starts.sum() + 1.0)
        noise = o.pair_noise[asked] * (played - played_b)
        covariance[c] += np.diag(np.sum(noise**2, axis=1))
        if progress is not None:
            progress(c + 1)
    return mean, covariance


def _mean_sides(posterior: Posterior, weight: Floats, objectives: Ints) -> tuple[Floats, Floats, Floats]:
    """Of a policy at the posterior mean: v [d, X], ρ + γ v(next) − v [d, K], and discounted visits of pairs [d, P]."""
    o = posterior.outcomes
    mixed = _mean_mix(posterior, weight)
    value = np.empty((objectives.size, o.n_states))
    played = np.empty((objectives.size, o.pair_state.size))
    for gamma in np.unique(o.discount[objectives]):
        same = o.discount[objectives] == gamma
        value[same] = _mean_values(posterior, mixed, weight, objectives[same])
        played[same] = _mean_visits(o, mixed, float(gamma))[o.pair_state] * weight
    after = np.where(o.outcome_next >= 0, value[:, np.maximum(o.outcome_next, 0)], 0.0)
    # less v(x), the same for all outcomes of a pair: it leaves the covariance as it is, and the sums small
    after = o.outcome_reward[objectives] + o.discount[objectives, None] * after - value[:, o.outcome_state]
    return value, after, played


Parts = tuple[tuple[Floats, Floats], ...]


def _rows_covariance(posterior: Posterior, parts: Parts, alike: list[Ints]) -> Floats:
    """Covariance [d, d] of Σ p D over the independent rows p of pairs, D = Σ_parts [d, P] · [d, K].

    Objectives that are ``alike`` (of one discount) have the same visits, the [d, P] of a part.
    """
    o = posterior.outcomes
    pair, ended = o.count_pair, o.ends[o.count_outcome]
    seen = np.zeros((parts[0][0].shape[0], pair.size))  # D where something was seen
    for u, f in parts:
        seen += u[:, pair] * f[:, o.count_outcome]
    found = np.zeros((seen.shape[0], seen.shape[0]))
    going_squared = np.sum(
        [b.probability * b.going * (b.going + 1.0) / (b.total * (b.total + 1.0)) for b in posterior.end_blocks], axis=0
    )
    onward = np.zeros_like(parts[0][0])  # mean of D where it goes on
    for block in posterior.on_blocks:
        total = _nonzero(block.total)
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
    found = np.array([np.bincount(o.count_pair, weights=row * own, minlength=o.pair_state.size) for row in seen])
    for u, f in parts:
        shared = np.array([_by_state(o, block.share * row) for row in f])[:, o.pair_state]
        more = np.array([_by_state(o, block.extra * row) for row in f])[:, o.pair_state]
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
