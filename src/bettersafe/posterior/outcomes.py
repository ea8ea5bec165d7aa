"""Outcomes of a log: counts and rewards by pair and outcome, for the posterior."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from bettersafe.errors import DataError, as_array, check_indices, check_integer, check_pointer, check_table, check_type
from bettersafe.logs.counts import Counts
from bettersafe.logs.dataset import Dataset, Objective, lowest_rewards
from bettersafe.posterior.events import EventPairs, event_pairs
from bettersafe.posterior.rare import rare_excess
from bettersafe.posterior.rare_rates import rare_rewards
from bettersafe.posterior.recovered import by_action, is_function, recover_steps, reward_parts
from bettersafe.posterior.rewards import Effects, Moments, pair_rewards
from bettersafe.typing import Bools, Floats, Ints, check_arrays, frozen, generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.posterior.events import DeclaredEvent
    from bettersafe.typing import Rng


NOTHING_FOLLOWS = (
    "every step leads to a state without logged decisions, and none ends the process: nothing is known about what follows. Log what"
    " follows, or mark the last step of an episode as terminated."
)

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
        rare_reward: The part of ``pair_reward`` that is due to rare events (`rare`), shape [d, P].
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
        hidden: Objectives whose rewards by next state, and whose rare events, counts leave open.
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
    rare_reward: Floats
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
    hidden: tuple[int, ...] = ()
    events: tuple[EventPairs, ...] = ()

    def __post_init__(self) -> None:
        check_arrays(self)
        check_integer("n_actions", self.n_actions, least=1)
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

    def within(self, states: Ints, actions: Ints) -> Outcomes:
        """The outcomes with some of the states and actions, by index, sorted; those left out must have no data."""
        keep = np.flatnonzero(np.isin(self.pair_action, actions))
        pair_state = np.searchsorted(states, self.pair_state[keep])
        places = np.arange(states.size + 1)
        outcome_state = np.searchsorted(states, self.outcome_state)
        return replace(
            self,
            pair_state=frozen(pair_state, np.int64),
            pair_action=frozen(np.searchsorted(actions, self.pair_action[keep]), np.int64),
            state_ptr=np.searchsorted(pair_state, places).astype(np.int64),
            outcome_ptr=np.searchsorted(outcome_state, places).astype(np.int64),
            outcome_next=np.where(self.ends, -1, np.searchsorted(states, self.outcome_next)).astype(np.int64),
            count_ptr=np.concatenate([[0], np.cumsum(np.diff(self.count_ptr)[keep])]).astype(np.int64),
            pair_reward=self.pair_reward[:, keep],
            rare_reward=self.rare_reward[:, keep],
            pair_noise=self.pair_noise[:, keep],
            effects=tuple(
                replace(
                    effects.only(keep),
                    state_sd=effects.state_sd[:, states] if effects.group is None else effects.state_sd,
                    action_sd=effects.action_sd[:, actions],
                )
                for effects in self.effects
            ),
            moments=tuple(replace(each, mean=each.mean[:, keep], spread=each.spread[:, keep]) for each in self.moments),
            known_reward=self.known_reward[:, keep],
            starts=self.starts[states],
            n_actions=int(actions.size),
            events=tuple(each.within(states, actions, self.n_actions) for each in self.events),
        )


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


def _tied(reward: Floats, key: Ints, pair: Ints, x: Ints, end: Bools, known: set[int]) -> tuple[list[bool], Ints]:
    """Whether the rewards of objectives are a function of the outcome, and the kind of end of every row.

    Rewards that depend on the action, such as its price, make no kinds of ends: every action would have kinds of its own, and how often a
    step ends the episode could not be learnt from the other actions.

    Args:
        reward: Rewards of the rows, shape [N, d].
        key: Number of every row's state and next state, shape [N].
        pair: Pair of every row, shape [N].
        x: State of every row, shape [N].
        end: Whether a row ends its episode, shape [N].
        known: Objectives with known rewards.
    """

    def follows(k: int, kind: Ints) -> bool:
        return k not in known and is_function(reward[:, k], np.unique(key * MOST_ENDS + kind, return_inverse=True)[1])

    d = reward.shape[1]
    tied = [
        follows(k, _kinds_of_ends(reward, end, [k])) and not by_action(reward[end, k], pair[end], x[end])
        for k in range(d)
    ]
    kind = _kinds_of_ends(reward, end, [k for k in range(d) if tied[k]])
    return [tied[k] and follows(k, kind) for k in range(d)], kind


@dataclass(frozen=True, kw_only=True)
class _Listed:
    """Outcomes of all states, sorted by state: those that were observed, and in every state every kind of end in the log.

    Attributes:
        state: State of every outcome, shape [K].
        following: Next state, −1 for the end, shape [K].
        kind: Kind of end, −1 if the episode continues, shape [K].
        reward: Rewards, shape [d, K].
        assumed: Whether an outcome was not observed in its state, shape [K].
        place: Place of every observed outcome.
    """

    state: Ints
    following: Ints
    kind: Ints
    reward: Floats
    assumed: Bools
    place: Ints

    @classmethod
    def of(cls, state: Ints, following: Ints, kind: Ints, reward: Floats, paid: Floats) -> _Listed:
        """From the observed outcomes, sorted by state; ``paid`` [d, kinds] has the rewards of kinds of ends that are added."""
        n_kinds = paid.shape[1]
        every = np.unique(state)[:, None] * n_kinds + np.arange(n_kinds)
        ended = kind >= 0
        missing = np.setdiff1d(every, state[ended] * n_kinds + kind[ended])
        there, of_kind = missing // max(n_kinds, 1), missing % max(n_kinds, 1)
        order = np.argsort(np.concatenate([state, there]), kind="stable")
        return cls(
            state=np.concatenate([state, there])[order],
            following=np.concatenate([following, np.full(there.size, -1)])[order],
            kind=np.concatenate([kind, of_kind])[order],
            reward=np.concatenate([reward, paid[:, of_kind]], axis=1)[:, order],
            assumed=order >= state.size,
            place=np.argsort(order),
        )


def _all_pairs(acted: Ints, n_states: int, n_actions: int) -> tuple[Ints, Ints, Ints]:
    """States and actions of all pairs of the states ``acted``, and the place of a state among them, −1 for others."""
    place = np.full(n_states, -1)
    place[acted] = np.arange(acted.size)
    return np.repeat(acted, n_actions), np.tile(np.arange(n_actions), acted.size), place


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
    d, n_states, n_actions = dataset.n_objectives, dataset.n_states, dataset.n_actions
    known = _known_tables(known_rewards, d, n_states, n_actions)
    # a last row that leads to a state without decisions is left out, because that state has no value
    acted_in = np.zeros(n_states + 1, dtype=np.bool_)
    acted_in[dataset.states] = True
    rows = np.flatnonzero(dataset.terminated | acted_in[dataset.next_states])
    if not rows.size:
        raise DataError(NOTHING_FOLLOWS)
    x, a, following = dataset.states[rows], dataset.actions[rows], dataset.next_states[rows]
    reward = dataset.rewards[rows]
    end = following < 0
    key = x * (n_states + 1) + following + 1
    tied, kind = _tied(reward, key, x * n_actions + a, x, end, set(known))
    random = [not is_function(row, x * n_actions + a) for row in reward.T]
    excess, arrival = rare_excess(dataset, rows, tied, random)
    excess[:, list(known)] = arrival[:, list(known)] = 0.0
    noisy = np.array([not tied[k] and k not in known for k in range(d)])

    # an outcome is the next state or the kind of end; a reward that is not a function of the outcome is noisy
    if not any(tied):
        kind = np.minimum(kind, 0)
    _, some_row, outcome_of_row = np.unique(key * MOST_ENDS + kind, return_index=True, return_inverse=True)
    outcome_state, outcome_next, outcome_kind = x[some_row], following[some_row], kind[some_row]
    # a rare event is paid by the pair instead (`rare`): what is due to the outcome is taken from its reward, the rest from noisy rewards
    arrival = np.where(tied, excess, arrival)
    times = np.bincount(outcome_of_row)
    rare = np.array([np.bincount(outcome_of_row, weights=part) / times for part in arrival.T])
    outcome_reward = np.where(np.array(tied)[:, None], reward[some_row].T, 0.0) - rare
    reward = np.where(noisy, reward - (excess - rare[:, outcome_of_row].T), reward)
    n_kinds = int(kind.max()) + 1
    paid = np.array([np.where(tied, (reward - excess)[kind == i].mean(axis=0), 0.0) for i in range(n_kinds)])
    listed = _Listed.of(outcome_state, outcome_next, outcome_kind, outcome_reward, paid.reshape(n_kinds, d).T)
    outcome_of_row = listed.place[outcome_of_row]

    # every action of a state with decisions is a pair, with data or not
    pair_state, pair_action, place = _all_pairs(np.unique(outcome_state), n_states, n_actions)
    pair_of_row = place[x] * n_actions + a
    n_pairs, n_outcomes = pair_state.size, listed.following.size
    seen, count = np.unique(pair_of_row * n_outcomes + outcome_of_row, return_counts=True)

    visits = np.bincount(pair_of_row, minlength=n_pairs).astype(np.float64)
    moments = (
        pair_moments(reward, pair_of_row, visits, noisy),
        *(
            replace(pair_moments(one, pair_of_row, visits, np.any(one != 0.0, axis=0)), rare=True)
            for one in (np.minimum(excess, 0.0), np.maximum(excess, 0.0))
        ),
    )
    logged = dataset.rewards[rows]
    given = known_of_pairs(known, pair_state, pair_action, d)
    starts = dataset.states[dataset.episode_ptr[:-1]]
    return Outcomes(
        pair_state=frozen(pair_state, np.int64),
        pair_action=frozen(pair_action, np.int64),
        state_ptr=np.searchsorted(pair_state, np.arange(n_states + 1)).astype(np.int64),
        outcome_ptr=np.searchsorted(listed.state, np.arange(n_states + 1)).astype(np.int64),
        outcome_next=listed.following.astype(np.int64),
        outcome_reward=listed.reward,
        kind=listed.kind.astype(np.int64),
        assumed=listed.assumed,
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


def pair_moments(value: Floats, pair: Ints, visits: Floats, asked: Bools) -> Moments:
    """Moments of every pair, from the values [N, d] and pairs [N] of rows."""
    mean, spread = (np.zeros((asked.size, visits.size)) for _ in range(2))
    for k in np.flatnonzero(asked).tolist():
        mean[k] = np.bincount(pair, weights=value[:, k], minlength=visits.size) / np.maximum(visits, 1.0)
        spread[k] = np.bincount(pair, weights=(value[:, k] - mean[k][pair]) ** 2, minlength=visits.size)
    return Moments(mean=mean, spread=spread, asked=asked)


def _known_tables(
    known_rewards: Mapping[int, Floats] | None, d: int, n_states: int, n_actions: int
) -> dict[int, Floats]:
    """Known rewards by objective, each [X, A]. Raises an error if it is not a dict of such tables by index of an objective."""
    known = {} if known_rewards is None else known_rewards
    check_type("known_rewards", known, Mapping)
    check_indices(
        "the objectives of known_rewards", as_array("the objectives of known_rewards", list(known), np.int64), d
    )
    return {k: check_table(f"known_rewards[{k}]", table, (n_states, n_actions), "[X, A]") for k, table in known.items()}


def known_of_pairs(known: Mapping[int, Floats], state: Ints, action: Ints, d: int) -> Floats:
    """Known rewards of pairs, shape [d, P]; 0 for other objectives."""
    found = np.zeros((d, state.size))
    for k, table in known.items():
        found[k] = np.asarray(table, dtype=np.float64)[state, action]
    return found


class _Pooled(TypedDict):
    """Fields of `Outcomes` that depend on noisy and known rewards."""

    pair_reward: Floats
    rare_reward: Floats
    pair_noise: Floats
    effects: tuple[Effects, ...]
    moments: tuple[Moments, ...]
    known_reward: Floats


def _pooled(
    state: Ints,
    action: Ints,
    visits: Floats,
    moments: tuple[Moments, ...],
    known: Floats,
    n_states: int,
    n_actions: int,
) -> _Pooled:
    """Rewards of pairs from the moments of noisy rewards and from known rewards [d, P]."""
    usual = pair_rewards(state, action, visits, moments[0], n_states=n_states, n_actions=n_actions)
    rare = [rare_rewards(state, action, visits, each, n_states=n_states, n_actions=n_actions) for each in moments[1:]]
    excess = sum((part.mean for part in rare), np.zeros_like(known))
    return {
        "pair_reward": known + usual.mean + excess,
        "rare_reward": excess,
        "pair_noise": np.sqrt(usual.noise**2 + sum(part.noise**2 for part in rare)),
        "effects": (usual.effects, usual.common, *(each for part in rare for each in part.effects)),
        "moments": (usual.moments, *(part.moments for part in rare)),
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
    ended = np.flatnonzero(o.ends[o.count_outcome])
    if ended.size:  # no half is without an end: with discount 1 it would have no values
        often = ended[np.argmax(o.count[ended])]
        if one[ended].sum() == 0.0:
            one[often] = min(1.0, o.count[often] / 2.0)
        elif one[ended].sum() == o.count[ended].sum():
            one[often] -= min(1.0, o.count[often] / 2.0)
    starts = np.zeros(o.n_states)
    started = np.flatnonzero(o.starts)  # states without starts need no random numbers
    starts[started] = draw.binomial(o.starts[started].astype(np.int64), 0.5)
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


class RewardLimits(TypedDict):
    """Fields of `Outcomes` about the smallest rewards, each of shape [d]."""

    least_reward: Floats
    bad_share: Floats


def reward_limits(objectives: Sequence[Objective], low: Floats, mean: Floats, high: Floats) -> RewardLimits:
    """Limits of the rewards, from the smallest, mean and largest reward of the data, each of shape [d].

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

    Counts have sums and squares of rewards per pair. If the rewards of single steps follow from them (`recovered`), the outcomes are those
    of the log. Other rewards are noisy: one that depends on the next state too is treated as independent noise, which makes its
    objective less certain, and its rare events are not pooled over states (``hidden``).

    Args:
        counts: Counts of the log. Steps into states without decisions are left out, as in `gather_outcomes`, but their rewards
            are used in noisy means.
        known_rewards: Tables [X, A] of known rewards, by objective, for rewards that depend on the pair alone.
        events: Declared events, which the log has never shown.

    Examples:
        >>> from bettersafe.posterior import outcomes_of
        >>> outcomes_of(counts).n_transitions == bettersafe.gather_outcomes(log).n_transitions
        True
    """
    check_type("counts", counts, Counts)
    d, n_states, n_actions = counts.n_objectives, counts.n_states, counts.n_actions
    known = _known_tables(known_rewards, d, n_states, n_actions)
    acted_in = np.zeros(n_states + 1, dtype=np.bool_)
    acted_in[counts.pair_state] = True
    acted_in[-1] = True  # the end
    steps = recover_steps(counts, most_ends=MOST_ENDS, known=known)
    steps = steps.only(acted_in[steps.following])
    if not steps.pair.size:
        raise DataError(NOTHING_FOLLOWS)
    x = counts.pair_state[steps.pair]
    key = (x * (n_states + 1) + steps.following + 1) * MOST_ENDS + steps.kind
    _, some_step, outcome = np.unique(key, return_index=True, return_inverse=True)
    spread = spread_in_pairs(counts)
    parts = {k: reward_parts(counts, steps, outcome, k, spread[k]) for k in range(d) if k not in known}
    n_kinds = int(np.max(steps.kind, initial=-1)) + 1
    reward, paid = np.zeros((d, some_step.size)), np.zeros((d, n_kinds))
    for k, part in parts.items():
        reward[k], paid[k] = part.reward, part.by_kind
    listed = _Listed.of(x[some_step], steps.following[some_step], steps.kind[some_step], reward, paid)

    pair_state, pair_action, place = _all_pairs(np.unique(x), n_states, n_actions)
    n_pairs = pair_state.size
    pair, step_outcome = place[x] * n_actions + counts.pair_action[steps.pair], listed.place[outcome]
    order = np.lexsort((step_outcome, pair))
    inside = np.flatnonzero(place[counts.pair_state] >= 0)  # pairs with data
    tried = place[counts.pair_state[inside]] * n_actions + counts.pair_action[inside]
    visits = np.zeros(n_pairs)
    visits[tried] = counts.pair_count[inside]
    noisy = np.array([k not in known and not steps.tied[k] for k in range(d)])
    mean, within = (np.zeros((d, n_pairs)) for _ in range(2))
    rare, rare_spread = (np.zeros((2, d, n_pairs)) for _ in range(2))  # harm, then gains
    for k, part in parts.items():
        rare[:, k, tried], rare_spread[:, k, tried] = part.rare[:, inside], part.rare_spread[:, inside]
        if noisy[k]:
            mean[k, tried], within[k, tried] = part.mean[inside], part.spread[inside]
    moments = (
        Moments(mean=mean, spread=within, asked=noisy),
        *(
            Moments(mean=one, spread=each, asked=np.any(one != 0.0, axis=1), rare=True)
            for one, each in zip(rare, rare_spread, strict=True)
        ),
    )
    given = known_of_pairs(known, pair_state, pair_action, d)
    usual = counts.reward_sum.sum(axis=1) / counts.pair_count.sum()
    return Outcomes(
        pair_state=frozen(pair_state, np.int64),
        pair_action=frozen(pair_action, np.int64),
        state_ptr=np.searchsorted(pair_state, np.arange(n_states + 1)).astype(np.int64),
        outcome_ptr=np.searchsorted(listed.state, np.arange(n_states + 1)).astype(np.int64),
        outcome_next=listed.following.astype(np.int64),
        outcome_reward=listed.reward,
        kind=listed.kind.astype(np.int64),
        assumed=listed.assumed,
        count_ptr=np.searchsorted(pair[order], np.arange(n_pairs + 1)).astype(np.int64),
        count_outcome=step_outcome[order].astype(np.int64),
        count=steps.times[order],
        **_pooled(pair_state, pair_action, visits, moments, given, n_states, n_actions),
        **reward_limits(counts.objectives, counts.reward_min, usual, counts.reward_max),
        noisy=noisy,
        discount=np.array([objective.discount for objective in counts.objectives]),
        starts=counts.initial_count.astype(np.float64),
        n_actions=n_actions,
        hidden=tuple(k for k, part in parts.items() if part.hidden),
        events=event_pairs(events, counts.objectives, counts.state_labels, counts.action_labels),
    )
