"""Sufficient statistics of a log: visits, outcomes and rewards of every (state, action) pair.

    n(x,a),  n(x,a,x'),  Σ r_k(x,a),  Σ r_k(x,a)²,  n_0(x),  and moments of G_k = Σ_t γ_k^t r_k,t by episode

They are additive, so shards can be counted separately and merged. If the sums are kept exactly (``mergeable=True``), the
result is bit for bit that of one count of all files. ``count`` takes a log, ``Tally`` its blocks one by one;
``count_files`` reads files of any size with DuckDB and never holds more than the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe._system.memory import Sizes
from bettersafe.errors import (
    DataError,
    ParameterError,
    check_indices,
    check_integer,
    check_log,
    check_number,
    check_pointer,
    check_type,
    check_types,
)
from bettersafe.logs.dataset import Columns, Dataset, Objective, check_objectives, label_array, take_episodes
from bettersafe.logs.tally import Groups, by_pair, sum_by
from bettersafe.typing import Floats, Ints, Labels, Log, frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


WAITING = 1 << 18
"""Minimum number of rows that a `Tally` buffers before it adds them."""


@dataclass(frozen=True, kw_only=True)
class Rests:
    """Rounding errors of the sums in Counts, as layers of doubles that add up to them exactly (see `bettersafe.logs._reader.exact`).

    Shapes are [m, d, P] for rewards and [m, d] for returns; m may be 0 and differs between fields.
    """

    reward_sum: Floats
    reward_square_sum: Floats
    return_sum: Floats
    return_square_sum: Floats


@dataclass(frozen=True, kw_only=True)
class Input:
    """A file that was counted: its name, size and digest."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Origin of counts, kept to detect data that would be counted twice.

    Attributes:
        columns: Names of the columns.
        inputs: Counted files.
        open_ends: 64-bit digests of (episode, next step) of the episodes that may continue in another shard, sorted.
        late_starts: 64-bit digests of (episode, first step) of the episodes that may have begun in another shard, sorted.
    """

    columns: Columns
    inputs: tuple[Input, ...]
    open_ends: npt.NDArray[np.uint64]
    late_starts: npt.NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Statistics of a log over its P visited pairs, sorted by state and then action.

    Attributes:
        state_labels: User's names of the states, shape [X].
        action_labels: User's names of the actions, shape [A].
        objectives: Reward signals, in the order of the axis d.
        pair_state: State of every pair, shape [P].
        pair_action: Action of every pair, shape [P].
        pair_count: n(x,a), shape [P].
        outcome_ptr: Outcomes of pair p are outcome_ptr[p]:outcome_ptr[p+1], shape [P+1].
        outcome_state: x', sorted within each pair, shape [M].
        outcome_count: n(x,a,x'), shape [M].
        terminated_count: Terminations of the pair, shape [P]; with the outcomes they add up to n(x,a).
        reward_sum: Σ r_k, shape [d, P].
        reward_square_sum: Σ r_k², shape [d, P].
        reward_min: Smallest r_k of any row, shape [d].
        reward_max: Largest r_k of any row, shape [d].
        unseen_reward: Reward of a pair that was never tried, shape [d]; zero except for derived objectives.
        initial_count: Episodes that began in x, shape [X].
        baseline_prob: Logged π_b(a|x), shape [P], or None.
        n_rows: Number N of rows.
        n_episodes: Number n of episodes.
        n_truncated: Episodes that did not terminate.
        n_dropped: Last rows of truncated episodes whose next state is unknown; they count in the returns, but in no pair.
        length_min: Rows of the shortest episode.
        length_max: Rows of the longest episode.
        return_sum: Σ G_k over episodes, shape [d]; NaN for derived objectives, here and below.
        return_square_sum: Σ G_k², shape [d].
        return_min: Smallest G_k, shape [d].
        return_max: Largest G_k, shape [d].
        notes: Remarks of the reader, for people.
        rests: Rounding errors of the sums, or None.
        origin: Files and columns that were counted, or None.

    Examples:
        >>> counts.n_episodes, counts.n_states, counts.n_pairs
        (1000, 6, 18)
        >>> bool(counts.pair_count.sum() == counts.n_rows)
        True
    """

    state_labels: Labels
    action_labels: Labels
    objectives: tuple[Objective, ...]
    pair_state: Ints
    pair_action: Ints
    pair_count: Ints
    outcome_ptr: Ints
    outcome_state: Ints
    outcome_count: Ints
    terminated_count: Ints
    reward_sum: Floats
    reward_square_sum: Floats
    reward_min: Floats
    reward_max: Floats
    unseen_reward: Floats
    initial_count: Ints
    baseline_prob: Floats | None = None
    n_rows: int
    n_episodes: int
    n_truncated: int
    n_dropped: int
    length_min: int
    length_max: int
    return_sum: Floats
    return_square_sum: Floats
    return_min: Floats
    return_max: Floats
    notes: tuple[str, ...] = ()
    rests: Rests | None = None
    origin: Origin | None = None

    def __post_init__(self) -> None:
        check_objectives(self.objectives)
        for name in ("n_rows", "n_episodes", "n_truncated", "n_dropped", "length_min", "length_max"):
            check_integer(name, getattr(self, name), least=0)
        check_types("notes", self.notes, str)
        for name in ("state_labels", "action_labels"):
            object.__setattr__(self, name, label_array(getattr(self, name), name=name))
        for name in ("pair_state", "outcome_state"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int64, name=name))
        n_pairs, d = self.pair_state.size, len(self.objectives)
        n_outcomes, n_states = self.outcome_state.size, self.state_labels.size
        shapes: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
            **dict.fromkeys(("pair_state", "pair_action", "pair_count"), (np.int64, (n_pairs,))),
            "terminated_count": (np.int64, (n_pairs,)),
            "outcome_ptr": (np.int64, (n_pairs + 1,)),
            **dict.fromkeys(("outcome_state", "outcome_count"), (np.int64, (n_outcomes,))),
            "initial_count": (np.int64, (n_states,)),
            **dict.fromkeys(("reward_sum", "reward_square_sum"), (np.float64, (d, n_pairs))),
            **dict.fromkeys(("reward_min", "reward_max", "unseen_reward"), (np.float64, (d,))),
            **dict.fromkeys(("return_sum", "return_square_sum"), (np.float64, (d,))),
            **dict.fromkeys(("return_min", "return_max"), (np.float64, (d,))),
            "baseline_prob": (np.float64, (n_pairs,)),
        }
        for name, (dtype, shape) in shapes.items():
            value = getattr(self, name)
            if value is None and name == "baseline_prob":
                continue
            array = frozen(value, dtype, name=name)
            if array.shape != shape:
                raise ParameterError(f"{name} must have shape {shape}; got {array.shape}.")
            object.__setattr__(self, name, array)
        check_indices("pair_state", self.pair_state, n_states)
        check_indices("pair_action", self.pair_action, self.n_actions)
        check_indices("outcome_state", self.outcome_state, n_states)
        check_pointer("outcome_ptr", self.outcome_ptr, n_outcomes)
        if np.any(np.diff(self.pair_state * self.n_actions + self.pair_action) <= 0):
            raise ParameterError("pairs must be sorted by state, then action, each once.")
        has_outcomes = np.diff(self.outcome_ptr) > 0
        total = self.terminated_count.copy()
        if self.outcome_count.size:
            total[has_outcomes] += np.add.reduceat(self.outcome_count, self.outcome_ptr[:-1][has_outcomes])
        if np.any(total != self.pair_count):
            raise ParameterError("outcomes and terminations must add up to the count of their pair.")

    @property
    def n_states(self) -> int:
        """|X|."""
        return int(self.state_labels.size)

    @property
    def n_actions(self) -> int:
        """|A|."""
        return int(self.action_labels.size)

    @property
    def n_pairs(self) -> int:
        """The number P of visited pairs."""
        return int(self.pair_state.size)

    @property
    def n_objectives(self) -> int:
        """The number d of objectives."""
        return len(self.objectives)

    @property
    def sizes(self) -> Sizes:
        """Sizes that determine the memory of a model."""
        return Sizes(
            n_states=self.n_states,
            n_actions=self.n_actions,
            n_pairs=self.n_pairs,
            n_outcomes=int(self.outcome_state.size),
            n_objectives=self.n_objectives,
        )


def count(log: Log) -> Counts:
    """Counts of a log, with its whole vocabulary; the bits do not depend on the blocks of the log.

    Args:
        log: A Dataset, or Episodes on disk.

    Examples:
        >>> bettersafe.count(log).n_rows == log.n_rows
        True
    """
    check_log("log", log)
    tally = Tally()
    for block in log.blocks():
        tally.add(block)
    return tally.counts()


class Tally:
    """Accumulator of counts for a log that comes in blocks of whole episodes with one vocabulary.

    Rows are added in order, so the bits do not depend on the blocks. Episodes may be assigned to parts, to get the counts of
    all parts but one (cross-fitting).
    """

    def __init__(self, n_parts: int = 1) -> None:
        self._n_parts = n_parts
        self._like: Dataset | None = None  # the first block without its rows: vocabulary and objectives
        self._notes: tuple[str, ...] = ()
        self._waiting: list[tuple[Ints, Floats, Floats]] = []  # key, rewards [d, n] and logged probability of rows
        self._n_waiting = 0
        self._keys = np.zeros(0, dtype=np.int64)  # (part, x, a, outcome) as one number, sorted, shape [G]
        self._count = np.zeros(0, dtype=np.int64)
        self._sums = np.zeros((0, 0))  # Σ r_k, then Σ r_k², shape [2d, G]
        self._prob = np.zeros((2, 0))  # least and largest logged probability, shape [2, G]
        self._numbers = np.zeros((3, n_parts), dtype=np.int64)  # rows, truncated episodes, dropped rows
        self._initial = np.zeros((n_parts, 0), dtype=np.int64)
        self._low = np.zeros((n_parts, 0))
        self._high = np.zeros((n_parts, 0))
        self._episodes: list[tuple[Ints, Ints, Floats]] = []  # part, length [n] and return [d, n], by block

    def add(self, block: Dataset, part: Ints | None = None) -> None:
        """Count a block; ``part`` [n] is the part of every episode, the first part if None."""
        if not block.n_rows:
            return
        d, n_states = block.n_objectives, block.n_states
        if self._like is None:
            self._like, self._notes = take_episodes(block, []), block.notes
            self._sums = np.zeros((2 * d, 0))
            self._initial = np.zeros((self._n_parts, n_states), dtype=np.int64)
            self._low, self._high = np.full((self._n_parts, d), np.inf), np.full((self._n_parts, d), -np.inf)
        starts, lengths = block.episode_ptr[:-1], np.diff(block.episode_ptr)
        own = np.zeros(block.n_episodes, dtype=np.int64) if part is None else part
        rows = np.repeat(own, lengths)
        unknown = ~block.terminated & (block.next_states < 0)
        outcome = np.where(unknown, -2, block.next_states)
        pair = (rows * n_states + block.states) * block.n_actions + block.actions
        rewards = np.ascontiguousarray(block.rewards.T)
        prob = np.zeros(0) if block.baseline_prob is None else block.baseline_prob
        self._waiting.append((pair * (n_states + 2) + outcome + 2, rewards, prob))
        self._n_waiting += block.n_rows
        if self._n_waiting >= max(self._keys.size, WAITING):
            self._settle()
        for p in range(self._n_parts):
            mine = rewards[:, rows == p] if self._n_parts > 1 else rewards
            self._low[p] = np.minimum(self._low[p], mine.min(axis=1, initial=np.inf))
            self._high[p] = np.maximum(self._high[p], mine.max(axis=1, initial=-np.inf))
        cut = own[~block.terminated[block.episode_ptr[1:] - 1]]
        self._numbers += [np.bincount(each, minlength=self._n_parts) for each in (rows, cut, rows[unknown])]
        first = np.bincount(own * n_states + block.states[starts], minlength=self._initial.size)
        self._initial += first.reshape(self._initial.shape)
        time = np.arange(block.n_rows) - np.repeat(starts, lengths)
        discount = np.array([objective.discount for objective in block.objectives])
        returns = np.add.reduceat(discount[:, None] ** time * rewards, starts, axis=1)
        self._episodes.append((own, lengths, returns))

    @property
    def n_groups(self) -> int:
        """Number of different (part, transition) groups."""
        self._settle()
        return int(self._keys.size)

    def _settle(self) -> None:
        """Add the buffered rows. The buffer grows with the number of keys, so that these are not sorted too often."""
        if not self._waiting:
            return
        key, reward, logged = (np.concatenate(each, axis=-1) for each in zip(*self._waiting, strict=True))
        self._waiting, self._n_waiting = [], 0
        found, group = np.unique(key, return_inverse=True)
        self._make_room(found)
        place = np.asarray(np.searchsorted(self._keys, found))[group]
        self._count += np.bincount(place, minlength=self._keys.size)
        d = reward.shape[0]
        for k in range(d):
            np.add.at(self._sums[k], place, reward[k])
            np.add.at(self._sums[d + k], place, reward[k] ** 2)
        if logged.size:
            np.minimum.at(self._prob[0], place, logged)
            np.maximum.at(self._prob[1], place, logged)

    def _make_room(self, found: Ints) -> None:
        """Add the keys ``found`` to the table of keys."""
        keys = np.sort(np.concatenate([self._keys, found]), kind="stable")  # quick, as both are sorted
        keys = keys[np.append(True, keys[1:] != keys[:-1])]
        if keys.size == self._keys.size:
            return
        old = np.searchsorted(keys, self._keys)
        count, sums = np.zeros(keys.size, dtype=np.int64), np.zeros((self._sums.shape[0], keys.size))
        prob = np.repeat([[np.inf], [-np.inf]], keys.size, axis=1)
        count[old], sums[:, old], prob[:, old] = self._count, self._sums, self._prob
        self._keys, self._count, self._sums, self._prob = keys, count, sums, prob

    def counts(self, *, without: int | None = None) -> Counts:
        """Counts of all blocks, or of all parts but ``without``, whose sums are the sums of the other parts."""
        self._settle()
        parts = np.arange(self._n_parts) != without
        n_rows, n_truncated, n_dropped = self._numbers[:, parts].sum(axis=1).tolist()
        if self._like is None or not n_rows:
            raise DataError("there is nothing to count: the log has no rows.")
        like, d = self._like, self._like.n_objectives
        pair_key, outcome = np.divmod(self._keys, like.n_states + 2)
        part, pair_key = np.divmod(pair_key, like.n_states * like.n_actions)
        chosen = np.flatnonzero(parts[part])
        prob = self._prob[:, chosen] if like.baseline_prob is not None else (None, None)
        pairs, order, pair = by_pair(
            Groups(
                state=pair_key[chosen] // like.n_actions,
                action=pair_key[chosen] % like.n_actions,
                outcome=outcome[chosen] - 2,
                count=self._count[chosen],
                prob_min=prob[0],
                prob_max=prob[1],
            ),
            like.state_labels,
            like.action_labels,
        )
        sums = sum_by(pair, self._sums[:, chosen[order]], pairs.pair_state.size)
        inside = parts[np.concatenate([own for own, _, _ in self._episodes])]
        lengths = np.concatenate([each for _, each, _ in self._episodes])[inside]
        returns = np.concatenate([each for _, _, each in self._episodes], axis=1)[:, inside]
        return Counts(
            **vars(pairs),
            state_labels=like.state_labels,
            action_labels=like.action_labels,
            objectives=like.objectives,
            reward_sum=sums[:d],
            reward_square_sum=sums[d:],
            reward_min=self._low[parts].min(axis=0),
            reward_max=self._high[parts].max(axis=0),
            unseen_reward=np.zeros(d),
            initial_count=self._initial[parts].sum(axis=0),
            n_rows=n_rows,
            n_episodes=lengths.size,
            n_truncated=n_truncated,
            n_dropped=n_dropped,
            length_min=int(lengths.min()),
            length_max=int(lengths.max()),
            return_sum=returns.sum(axis=1),
            return_square_sum=(returns**2).sum(axis=1),
            return_min=returns.min(axis=1),
            return_max=returns.max(axis=1),
            notes=self._notes if without is None else (),
        )


def dropped_note(n_dropped: int) -> str:
    """Note on truncated episodes whose last row is in no pair."""
    many = f"{n_dropped} episodes are" if n_dropped > 1 else "1 episode is"
    theirs = "their last row is" if n_dropped > 1 else "its last row is"
    return f"{many} cut off with no next_state: {theirs} left out of the model"


def with_rare(
    counts: Counts,
    *,
    name: str = "rare",
    below: int = 10,
    reward: float = -10.0,
    discount: float = 0.99,
    weight: float = 1.0,
) -> Counts:
    """Add an objective with ``reward`` on every pair tried fewer than ``below`` times, and 0 elsewhere.

    Pairs never tried have this reward too (``unseen_reward``). Counts do not determine its returns: its ``return_*``
    entries are NaN.

    Args:
        counts: Statistics of all the data.
        name: Name of the new objective.
        below: Visits below which a pair is rare.
        reward: Reward of a rare pair.
        discount: γ of the new objective.
        weight: λ of the new objective.

    Examples:
        >>> from bettersafe.logs import with_rare
        >>> [objective.name for objective in with_rare(counts, below=100).objectives]
        ['r0', 'r1', 'rare']
    """
    check_type("counts", counts, Counts)
    for what, value in (("below", below), ("reward", reward)):
        check_number(what, value)
    if not math.isfinite(reward):
        raise ParameterError(f"the reward of rare pairs must be finite; got {reward!r}.")
    objective = Objective(
        name=name, discount=discount, weight=weight, reward_range=(min(reward, 0.0), max(reward, 0.0))
    )
    paid = np.where(counts.pair_count < below, reward, 0.0)
    unknown = np.append(counts.return_sum, np.nan)
    return replace(
        counts,
        objectives=(*counts.objectives, objective),
        reward_sum=np.vstack([counts.reward_sum, paid * counts.pair_count]),
        reward_square_sum=np.vstack([counts.reward_square_sum, paid**2 * counts.pair_count]),
        reward_min=np.append(counts.reward_min, min(reward, 0.0)),
        reward_max=np.append(counts.reward_max, max(reward, 0.0)),
        unseen_reward=np.append(counts.unseen_reward, reward),
        return_sum=unknown,
        return_square_sum=np.append(counts.return_square_sum, np.nan),
        return_min=np.append(counts.return_min, np.nan),
        return_max=np.append(counts.return_max, np.nan),
        rests=None,
    )


def with_rare_rows(dataset: Dataset, visits: Ints, objective: Objective, *, below: int, reward: float) -> Dataset:
    """Row-wise `with_rare`: the log with one more objective, ``reward`` where visits(x,a) < below and 0 elsewhere.

    Args:
        dataset: Log.
        visits: n(x,a) of the data that defines rare pairs, shape [X, A]; not necessarily this log.
        objective: New objective.
        below: Visits below which a pair is rare.
        reward: Reward of a rare pair.
    """
    paid = np.where(visits[dataset.states, dataset.actions] < below, reward, 0.0)
    return replace(
        dataset,
        rewards=np.column_stack([dataset.rewards, paid]),
        objectives=(*dataset.objectives, objective),
    )


def without_pairs(counts: Counts) -> Counts:
    """Counts without their pairs: totals and returns of the log, in little memory."""
    nothing, d = np.zeros(0, dtype=np.int64), counts.n_objectives
    return replace(
        counts,
        pair_state=nothing,
        pair_action=nothing,
        pair_count=nothing,
        terminated_count=nothing,
        outcome_ptr=np.zeros(1, dtype=np.int64),
        outcome_state=nothing,
        outcome_count=nothing,
        reward_sum=np.zeros((d, 0)),
        reward_square_sum=np.zeros((d, 0)),
        baseline_prob=None,
        rests=None,
    )


def visit_table(counts: Counts) -> Ints:
    """n(x,a), shape [X, A]."""
    table = np.zeros((counts.n_states, counts.n_actions), dtype=np.int64)
    table[counts.pair_state, counts.pair_action] = counts.pair_count
    return table


def declare_actions(counts: Counts, labels: Labels) -> Counts:
    """Counts with ``labels`` added to the actions: a baseline may play actions that were never logged."""
    actions = unite([counts.action_labels, labels], "action")
    return replace(
        counts,
        action_labels=actions,
        pair_action=np.searchsorted(actions, counts.action_labels)[counts.pair_action],
    )


def layered(by_objective: Sequence[Floats], *, pairs: bool) -> tuple[Floats, Floats]:
    """Sums [d, P] and rests [max m_k - 1, d, P] from the layers [m_k, P] of every objective; without the axis P for returns."""
    depth = max(len(layers) for layers in by_objective)
    whole = np.stack([np.pad(layers, ((0, depth - len(layers)), (0, 0))) for layers in by_objective], axis=1)
    whole = whole if pairs else whole[:, :, 0]
    return whole[0], whole[1:]


def unite(labels: Sequence[Labels], what: str) -> Labels:
    """Sorted union of labels."""
    if len({one.dtype.kind for one in labels}) > 1:
        raise DataError(f"{what} labels must be of one type; got integers and text.")
    return label_array(np.unique(np.concatenate(labels)))


def owner_of(ptr: Ints) -> Ints:
    """Index of the segment of every entry, given the pointers of the segments."""
    return np.repeat(np.arange(ptr.size - 1), np.diff(ptr))
