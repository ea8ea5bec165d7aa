"""Logs on disk, too large for memory, read in blocks of whole episodes.

Functions that pass over the rows of a log (counting, off-policy evaluation) take any `Log`. The result for Episodes is bit for
bit that for a Dataset: episodes are in the same order, and states and actions have the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.logs.dataset import Dataset, random_parts, take_episodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from bettersafe.logs.dataset import Objective
    from bettersafe.typing import Ints, Labels, Log, Rng


@dataclass(frozen=True, kw_only=True)
class Episodes:
    """A log of n episodes on disk.

    Attributes:
        blocks: Function that returns the log from its first episode, as Datasets that share one vocabulary; episodes
            are labelled by their index in the log.
        n_rows: Number N of rows.
        n_episodes: Number n of episodes.
        n_truncated: Number of episodes that did not terminate.
        state_labels: User's names of the states, shape [X].
        action_labels: User's names of the actions, shape [A].
        objectives: Reward signals, in the order of the columns of ``rewards``.
        notes: Remarks of the reader, for people.
        units: As in a Dataset.

    Examples:
        >>> with bettersafe.open_episodes("log.parquet", objectives=log.objectives) as episodes:
        ...     sum(block.n_rows for block in episodes.blocks()) == episodes.n_rows
        True
    """

    blocks: Callable[[], Iterable[Dataset]]
    n_rows: int
    n_episodes: int
    n_truncated: int
    state_labels: Labels
    action_labels: Labels
    objectives: tuple[Objective, ...]
    notes: tuple[str, ...] = ()
    units: Ints | None = None

    @property
    def n_states(self) -> int:
        """|X|."""
        return int(self.state_labels.size)

    @property
    def n_actions(self) -> int:
        """|A|."""
        return int(self.action_labels.size)

    @property
    def n_objectives(self) -> int:
        """The number d of objectives."""
        return len(self.objectives)


def with_blocks(data: Log, change: Callable[[Dataset], Dataset]) -> Log:
    """Apply ``change``, of rewards, objectives or vocabulary, to every block of a log."""
    if isinstance(data, Dataset):  # changed once, not at every reading
        return change(data)
    like = change(empty_block(data))
    return Episodes(
        blocks=lambda: map(change, data.blocks()),
        n_rows=data.n_rows,
        n_episodes=data.n_episodes,
        n_truncated=data.n_truncated,
        state_labels=like.state_labels,
        action_labels=like.action_labels,
        objectives=like.objectives,
        notes=data.notes,
        units=data.units,
    )


def first_steps(data: Log, horizon: int | None) -> Log:
    """The first H rows of every episode; an episode that goes on counts as ended, because a return of H steps needs no more.

    Episodes that are cut off before step H stay truncated. None returns the log itself.
    """
    if horizon is None:
        return data
    if isinstance(data, Dataset):
        return _first_rows(data, horizon)
    n_rows = n_truncated = 0
    for block in data.blocks():
        part = _first_rows(block, horizon)
        n_rows, n_truncated = n_rows + part.n_rows, n_truncated + part.n_truncated
    return Episodes(
        blocks=lambda: (_first_rows(block, horizon) for block in data.blocks()),
        n_rows=n_rows,
        n_episodes=data.n_episodes,
        n_truncated=n_truncated,
        state_labels=data.state_labels,
        action_labels=data.action_labels,
        objectives=data.objectives,
        notes=data.notes,
        units=data.units,
    )


def _first_rows(block: Dataset, horizon: int) -> Dataset:
    lengths = np.diff(block.episode_ptr)
    kept = np.minimum(lengths, horizon)
    if not np.any(lengths >= horizon):
        return block
    ptr = np.append(0, np.cumsum(kept))
    rows = np.arange(ptr[-1]) + np.repeat(block.episode_ptr[:-1] - ptr[:-1], kept)
    terminated, next_states = block.terminated[rows], block.next_states[rows]
    last = ptr[1:][lengths >= horizon] - 1
    terminated[last], next_states[last] = True, -1
    return replace(
        block,
        states=block.states[rows],
        actions=block.actions[rows],
        rewards=block.rewards[rows],
        next_states=next_states,
        terminated=terminated,
        episode_ptr=ptr,
        baseline_prob=None if block.baseline_prob is None else block.baseline_prob[rows],
    )


def longest_episode(data: Log) -> int:
    """Rows of the longest episode."""
    return max((int(np.max(np.diff(block.episode_ptr), initial=0)) for block in data.blocks()), default=0)


def split_log(data: Log, fractions: Sequence[float], rng: Rng) -> tuple[Log, ...]:
    """Split a log by episode or unit, at random, as `split` does; the parts are in memory if the log is one block, else on disk."""
    parts = random_parts(data.n_episodes, fractions, rng, units=data.units)
    n_rows, n_truncated = np.zeros((2, len(parts)), dtype=np.int64)
    at = 0
    for block in data.blocks():
        if block.n_episodes == data.n_episodes:  # in memory: so are its parts
            return tuple(take_episodes(block, part) for part in parts)
        lengths, open_end = np.diff(block.episode_ptr), ~block.terminated[block.episode_ptr[1:] - 1]
        for i, part in enumerate(parts):
            here = _within(part, at, block.n_episodes)
            n_rows[i] += int(lengths[here].sum())
            n_truncated[i] += np.count_nonzero(open_end[here])
        at += block.n_episodes
    return tuple(
        Episodes(
            blocks=partial(_blocks_of_part, data, part),
            n_rows=int(n_rows[i]),
            n_episodes=part.size,
            n_truncated=int(n_truncated[i]),
            state_labels=data.state_labels,
            action_labels=data.action_labels,
            objectives=data.objectives,
            units=None if data.units is None else data.units[part],
        )
        for i, part in enumerate(parts)
    )


def _blocks_of_part(data: Log, part: Ints) -> Iterator[Dataset]:
    """Blocks of a log with only the episodes whose indices are in ``part``; empty blocks are skipped."""
    at = 0
    for block in data.blocks():
        here = _within(part, at, block.n_episodes)
        if here.size:
            yield take_episodes(block, here)
        at += block.n_episodes


def _within(part: Ints, at: int, n: int) -> Ints:
    """Those of the sorted indices ``part`` in [at, at + n), counted from ``at``."""
    first, last = np.searchsorted(part, [at, at + n])
    return part[first:last] - at


def n_units(data: Log) -> int:
    """Number of sampling units; of episodes, if every episode is one."""
    return data.n_episodes if data.units is None else int(np.unique(data.units).size)


def row_visits(data: Log) -> Ints:
    """Number of rows in every state, shape [X]."""
    visits = np.zeros(data.n_states, dtype=np.int64)
    for block in data.blocks():
        visits += np.bincount(block.states, minlength=data.n_states)
    return visits


def empty_block(data: Log) -> Dataset:
    """A Dataset with the log's vocabulary and no rows."""
    nothing = np.zeros(0, dtype=np.int64)
    return Dataset(
        states=nothing,
        actions=nothing,
        rewards=np.zeros((0, data.n_objectives)),
        next_states=nothing,
        terminated=np.zeros(0, dtype=np.bool_),
        episode_ptr=np.zeros(1, dtype=np.int64),
        state_labels=data.state_labels,
        action_labels=data.action_labels,
        episode_labels=nothing,
        objectives=data.objectives,
    )
