"""Outcomes of a log: counts and rewards by pair and outcome, for the posterior."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe.errors import check_indices, check_pointer, check_type
from bettersafe.logs.counts import Counts
from bettersafe.logs.dataset import Dataset, Objective, lowest_rewards
from bettersafe.posterior.events import EventPairs, event_pairs
from bettersafe.posterior.rare import harm_excess
from bettersafe.posterior.rewards import OWN_VISITS, Effects, Moments, pair_rewards
from bettersafe.typing import Bools, Floats, Ints, frozen, generator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bettersafe.posterior.events import DeclaredEvent
    from bettersafe.typing import Rng


MOST_ENDS = 20
"""Largest number of kinds of ends. Ends with different rewards are different outcomes up to this number; beyond it, their reward is
noisy."""


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Outcomes of a log, by pair.

    Attributes:
        pair_state: State of every pair, sorted by state and then action, shape [P]; all pairs of states with decisions.
        pair_action: Action of every pair, shape [P].
        state_ptr: Pairs of state x are state_ptr[x]:state_ptr[x+1], shape [X+1].
        outcome_ptr: Outcomes of state x are outcome_ptr[x]:outcome_ptr[x+1], shape [X+1].
        outcome_next: Next state of an outcome, −1 for the end, shape [K].
        outcome_reward: Reward of an outcome, shape [d, K]; 0 for rewards that are known or noisy.
        kind: Kind of end of an outcome, −1 if the episode continues, shape [K]. Every state with decisions has every kind of end
            in the log.
        assumed: Whether an outcome is an end that was not observed in its state but elsewhere in the log, shape [K].
        count_ptr: Counts of pair p are count_ptr[p]:count_ptr[p+1], shape [P+1].
        count_outcome: Observed outcomes of a pair, in order, shape [S].
        count: Number of observations, n(x,a,o) > 0, shape [S].
        pair_reward: Known rewards, and posterior means of noisy ones, shape [d, P].
        pair_noise: Posterior standard deviation of the own part of a noisy mean (`rewards`), shape [d, P]; 0 otherwise.
        effects: Uncertain effects of states and actions in noisy means.
        moments: Observed moments of noisy rewards, and of the excess of rare events (`rare`), which is another noisy reward.
        known_reward: Known rewards, 0 for other objectives, shape [d, P].
        least_reward: Smallest reward of the declared range, else of the data, shape [d].
        bad_share: Mean position of rewards between the largest (0) and the smallest (1) one of the data, shape [d].
        noisy: Whether an objective is noisy, shape [d].
        discount: γ, shape [d].
        starts: Number of episodes that start in a state, shape [X].
        n_actions: |A|.
        events: Declared events (`events`).
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
    effects: tuple[Effects, ...]
    moments: tuple[Moments, ...]
    known_reward: Floats
    least_reward: Floats
    bad_share: Floats
    noisy: Bools
    discount: Floats
    starts: Floats
    n_actions: int
    events: tuple[EventPairs, ...] = ()

    def __post_init__(self) -> None:
        check_indices("pair_state", self.pair_state, self.n_states)
        check_indices("outcome_next", self.outcome_next, self.n_states, least=-1)
        check_indices("count_outcome", self.count_outcome, self.outcome_next.size)
        check_pointer("state_ptr", self.state_ptr, self.pair_state.size)
        check_pointer("outcome_ptr", self.outcome_ptr, self.outcome_next.size)
        check_pointer("count_ptr", self.count_ptr, self.count_outcome.size)

    @property
    def n_states(self) -> int:
        """|X|."""
        return int(self.starts.size)

    @cached_property
    def initial(self) -> Floats:
        """Posterior mean of the distribution of first states, shape [X]."""
        return np.asarray(self.starts / self.starts.sum())

    @property
    def n_objectives(self) -> int:
        """The number d of objectives."""
        return int(self.discount.size)

    @property
    def n_transitions(self) -> int:
        """Number of distinct transitions, including ends."""
        return int(self.count.size)

    @property
    def has_ends(self) -> bool:
        """Whether any outcome is an end."""
        return bool(np.any(self.ends))

    @cached_property
    def pair_index(self) -> Ints:
        """Flat index of every pair in a table [X, A], shape [P]."""
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
        """Observations of an outcome under any action, shape [K]."""
        return np.bincount(self.count_outcome, self.count, self.outcome_next.size).astype(np.float64)

    @cached_property
    def visits_on(self) -> Floats:
        """Visits of a pair after which the episode continued, shape [P]."""
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
        """Entries (pair, outcome of its state) of pair p are entry_ptr[p]:entry_ptr[p+1], shape [P+1]."""
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
    """Whether the value is constant within every group."""
    order = np.argsort(group, kind="stable")
    same = np.diff(group[order]) == 0
    return bool(np.all(np.diff(value[order])[same] == 0.0))


def _kinds_of_ends(reward: Floats, end: Bools, asked: list[int]) -> Ints:
    """Kind of end of every row, −1 if the episode continues, shape [N]; ends with different rewards are different kinds.

    Args:
        reward: Rewards of the rows, shape [N, d].
        end: Whether a row ends its episode, shape [N].
        asked: Objectives whose rewards tell ends apart, if they have few values.
    """
    few = [k for k in asked if np.unique(reward[end, k]).size <= MOST_ENDS]
    kind = np.where(end, 0, -1)
    if few and np.any(end):
        kinds = np.unique(reward[end][:, few], axis=0, return_inverse=True)[1].reshape(-1)
        if kinds.max() < MOST_ENDS:
            kind[end] = kinds
    return kind


def _missing_ends(state: Ints, kind: Ints, n_kinds: int) -> tuple[Ints, Ints]:
    """States and kinds of the ends that are not among the outcomes, for every state with outcomes."""
    every = np.unique(state)[:, None] * n_kinds + np.arange(n_kinds)
    ended = kind >= 0
    missing = np.setdiff1d(every, state[ended] * n_kinds + kind[ended])
    return missing // n_kinds, missing % n_kinds


def gather_outcomes(
    dataset: Dataset, *, known_rewards: Mapping[int, Floats] | None = None, events: Sequence[DeclaredEvent] = ()
) -> Outcomes:
    """Outcomes of a log in memory.

    Args:
        dataset: Log. Last rows of truncated episodes with an unknown next state are left out.
        known_rewards: Tables [X, A] of known rewards, by objective, for rewards that depend on the pair alone.
        events: Declared events, which the log has never shown.

    Examples:
        >>> outcomes = bettersafe.gather_outcomes(log)
        >>> outcomes.n_states, outcomes.n_objectives
        (6, 2)
    """
    check_type("dataset", dataset, Dataset)
    known = dict(known_rewards or {})
    d, n_states, n_actions = dataset.n_objectives, dataset.n_states, dataset.n_actions
    # a last row that leads to a state without decisions is left out, because that state has no value
    acted_in = np.zeros(n_states + 1, dtype=np.bool_)
    acted_in[dataset.states] = True
    rows = np.flatnonzero(dataset.terminated | acted_in[dataset.next_states])
    x, a, following = dataset.states[rows], dataset.actions[rows], dataset.next_states[rows]
    reward = dataset.rewards[rows]
    end = following < 0
    key = x * (n_states + 1) + following + 1
    kind = _kinds_of_ends(reward, end, [k for k in range(d) if k not in known])
    where = np.unique(key * MOST_ENDS + kind, return_inverse=True)[1]
    tied = [k not in known and _is_function(reward[:, k], where) for k in range(d)]
    excess, arrival = harm_excess(dataset, rows)
    excess[:, list(known)] = arrival[:, list(known)] = 0.0
    noisy = np.array([not tied[k] and k not in known for k in range(d)])

    # an outcome is the next state or the kind of end; a reward that is not a function of the outcome is noisy
    if not any(tied):
        kind = np.minimum(kind, 0)
    _, some_row, outcome_of_row = np.unique(key * MOST_ENDS + kind, return_index=True, return_inverse=True)
    outcome_state, outcome_next, outcome_kind = x[some_row], following[some_row], kind[some_row]
    # rare harm is paid by the pair instead (`rare`): what is due to the outcome is taken from its reward, the rest from noisy rewards
    arrival = np.where(tied, excess, arrival)
    times = np.bincount(outcome_of_row)
    harm = np.array([np.bincount(outcome_of_row, weights=part) / times for part in arrival.T])
    outcome_reward = np.where(np.array(tied)[:, None], reward[some_row].T, 0.0) - harm
    reward = np.where(noisy, reward - (excess - harm[:, outcome_of_row].T), reward)
    assumed = np.zeros(outcome_next.size, dtype=np.bool_)
    if np.any(end):  # every kind of end in the log is possible in every state, with the reward that it has elsewhere
        n_kinds = int(kind.max()) + 1
        paid = np.array(
            [np.where(tied, (reward - excess)[kind == i].mean(axis=0), 0.0) for i in range(n_kinds)]
        ).T  # [d, kinds]
        state, of_kind = _missing_ends(outcome_state, outcome_kind, n_kinds)
        order = np.argsort(np.concatenate([outcome_state, state]), kind="stable")
        assumed = order >= outcome_next.size
        outcome_next = np.concatenate([outcome_next, np.full(state.size, -1)])[order]
        outcome_reward = np.concatenate([outcome_reward, paid[:, of_kind]], axis=1)[:, order]
        outcome_state = np.concatenate([outcome_state, state])[order]
        outcome_kind = np.concatenate([outcome_kind, of_kind])[order]
        outcome_of_row = np.argsort(order)[outcome_of_row]
    outcome_ptr = np.searchsorted(outcome_state, np.arange(n_states + 1))

    # every action of a state with decisions is a pair, with data or not
    acted = np.flatnonzero(np.diff(outcome_ptr) > 0)
    pair_state = np.repeat(acted, n_actions)
    pair_action = np.tile(np.arange(n_actions), acted.size)
    place = np.full(n_states, -1)
    place[acted] = np.arange(acted.size)
    pair_of_row = place[x] * n_actions + a
    n_pairs, n_outcomes = pair_state.size, outcome_next.size
    seen, count = np.unique(pair_of_row * n_outcomes + outcome_of_row, return_counts=True)

    visits = np.bincount(pair_of_row, minlength=n_pairs).astype(np.float64)
    moments = (
        pair_moments(reward, pair_of_row, visits, noisy),
        pair_moments(excess, pair_of_row, visits, np.any(excess != 0.0, axis=0), own_visits=np.inf),
    )
    logged = dataset.rewards[rows]
    given = known_of_pairs(known, pair_state, pair_action, d)
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
        **_pooled(pair_state, pair_action, visits, moments, given, n_states, n_actions),
        **reward_limits(dataset.objectives, logged.min(axis=0), logged.mean(axis=0), logged.max(axis=0)),
        noisy=noisy,
        discount=np.array([objective.discount for objective in dataset.objectives]),
        starts=np.bincount(starts, minlength=n_states).astype(np.float64),
        n_actions=n_actions,
        events=event_pairs(events, dataset.objectives, dataset.state_labels, dataset.action_labels),
    )


def pair_moments(value: Floats, pair: Ints, visits: Floats, asked: Bools, *, own_visits: float = OWN_VISITS) -> Moments:
    """Moments of every pair, from the values [N, d] and pairs [N] of rows."""
    mean, spread = (np.zeros((asked.size, visits.size)) for _ in range(2))
    for k in np.flatnonzero(asked).tolist():
        mean[k] = np.bincount(pair, weights=value[:, k], minlength=visits.size) / np.maximum(visits, 1.0)
        spread[k] = np.bincount(pair, weights=(value[:, k] - mean[k][pair]) ** 2, minlength=visits.size)
    return Moments(mean=mean, spread=spread, asked=asked, own_visits=own_visits)


def known_of_pairs(known: Mapping[int, Floats], state: Ints, action: Ints, d: int) -> Floats:
    """Known rewards of pairs, shape [d, P]; 0 for other objectives."""
    found = np.zeros((d, state.size))
    for k, table in known.items():
        found[k] = np.asarray(table, dtype=np.float64)[state, action]
    return found


def _pooled(
    state: Ints,
    action: Ints,
    visits: Floats,
    moments: tuple[Moments, ...],
    known: Floats,
    n_states: int,
    n_actions: int,
) -> dict[str, Any]:
    """Fields of `Outcomes` that depend on noisy and known rewards."""
    parts = [pair_rewards(state, action, visits, each, n_states=n_states, n_actions=n_actions) for each in moments]
    return {
        "pair_reward": known + sum(part.mean for part in parts),
        "pair_noise": np.sqrt(sum(part.noise**2 for part in parts)),
        "effects": tuple(part.effects for part in parts),
        "moments": tuple(part.moments for part in parts),
        "known_reward": known,
    }


def thin_outcomes(outcomes: Outcomes, rng: Rng) -> tuple[Outcomes, Outcomes]:
    """Two halves of a log: every transition, and every start of an episode, goes to one of them with probability 1/2.

    In a Markov process transitions are independent given their pairs, so the halves are as independent as two logs. Noisy rewards are
    divided by their moments (`Moments.thinned`). The halves have the states, outcomes and learnt strengths of the whole.

    Args:
        outcomes: Outcomes of the log.
        rng: Seed or generator.
    """
    draw, o = generator(rng), outcomes
    one = draw.binomial(o.count.astype(np.int64), 0.5).astype(np.float64)
    starts = draw.binomial(o.starts.astype(np.int64), 0.5).astype(np.float64)
    top = int(np.argmax(o.starts))  # no half is without a start
    if starts.sum() == 0.0:
        starts[top] = min(1.0, o.starts[top] / 2.0)
    elif starts.sum() == o.starts.sum():
        starts[top] = max(starts[top] - 1.0, 0.5)
    mine = np.bincount(o.count_pair, one, o.pair_state.size).astype(np.float64)
    parts = [each.thinned(o.visits, mine, draw) for each in o.moments]
    halves = []
    for i, (count, begun, visits) in enumerate(
        ((one, starts, mine), (o.count - one, o.starts - starts, o.visits - mine))
    ):
        there = count > 0.0
        width = np.bincount(o.count_pair, there, o.pair_state.size)
        pooled = _pooled(
            o.pair_state,
            o.pair_action,
            visits,
            tuple(part[i] for part in parts),
            o.known_reward,
            o.n_states,
            o.n_actions,
        )
        halves.append(
            replace(
                o,
                count_ptr=np.concatenate([[0], np.cumsum(width)]).astype(np.int64),
                count_outcome=o.count_outcome[there],
                count=count[there],
                starts=begun,
                **pooled,
            )
        )
    return halves[0], halves[1]


def reward_limits(objectives: Sequence[Objective], low: Floats, mean: Floats, high: Floats) -> dict[str, Any]:
    """Fields of `Outcomes` about the smallest rewards, from the smallest, mean and largest reward of the data, each of shape [d].

    ``bad_share`` of a cost of 1 that occurs in 7 of 100 steps is 0.07. A declared range is not part of it: with a range ten times as
    wide, bad visits would be ten times as rare, and the declaration would change nothing.
    """
    share = np.clip((high - mean) / np.maximum(high - low, 1e-300), 0.0, 1.0)
    return {"least_reward": lowest_rewards(objectives, low), "bad_share": share}


def spread_in_pairs(counts: Counts) -> Floats:
    """Σ (r_k − mean of its pair)² of every pair from sums and squares, shape [d, P]; 0 for a constant reward, despite rounding."""
    total, square = counts.reward_sum, counts.reward_square_sum
    inside = square - total**2 / counts.pair_count
    return np.where(inside > 1e-12 * square, inside, 0.0)


def outcomes_of(
    counts: Counts, *, known_rewards: Mapping[int, Floats] | None = None, events: Sequence[DeclaredEvent] = ()
) -> Outcomes:
    """Outcomes of a counted log.

    Counts have sums and squares of rewards per pair. All rewards are therefore noisy or known, and there is one kind of end. A
    reward that depends on the next state is treated as independent noise, which makes its objective slightly less certain.

    Args:
        counts: Counts of the log. Steps into states without decisions are left out, as in `gather_outcomes`, but their rewards
            are used.
        known_rewards: Tables [X, A] of known rewards, by objective, for rewards that depend on the pair alone.
        events: Declared events, which the log has never shown.

    Examples:
        >>> from bettersafe.posterior import outcomes_of
        >>> outcomes_of(counts).n_transitions == bettersafe.gather_outcomes(log).n_transitions
        True
    """
    check_type("counts", counts, Counts)
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
    # if any episode ends, every state can end; an end that was not observed comes last in its state
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
    inside = np.flatnonzero(place[counts.pair_state] >= 0)  # pairs with data
    tried = place[counts.pair_state[inside]] * n_actions + counts.pair_action[inside]
    visits = np.zeros(n_pairs)
    visits[tried] = counts.pair_count[inside]
    noisy = np.array([k not in known for k in range(d)])
    mean, spread = np.zeros((d, n_pairs)), np.zeros((d, n_pairs))
    mean[:, tried] = counts.reward_sum[:, inside] / counts.pair_count[inside]
    spread[:, tried] = spread_in_pairs(counts)[:, inside]
    moments = (Moments(mean=mean, spread=spread, asked=noisy),)
    given = known_of_pairs(known, pair_state, pair_action, d)
    usual = counts.reward_sum.sum(axis=1) / counts.pair_count.sum()
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
        **_pooled(pair_state, pair_action, visits, moments, given, n_states, n_actions),
        **reward_limits(counts.objectives, counts.reward_min, usual, counts.reward_max),
        noisy=noisy,
        discount=np.array([objective.discount for objective in counts.objectives]),
        starts=counts.initial_count.astype(np.float64),
        n_actions=n_actions,
        events=event_pairs(events, counts.objectives, counts.state_labels, counts.action_labels),
    )
