"""Groups of equal rows (state, action, outcome), and their aggregation into arrays by pair."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe.errors import DataError
from bettersafe.mdp.policy import ROUNDED, ROUNDING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from bettersafe.typing import Floats, Ints, Labels


BASELINE_TOL = ROUNDED + ROUNDING
"""Largest difference between logged probabilities of one pair: their values are often rounded."""

BLOCK = 1 << 20
"""Approximate number of groups in a block; work on a group takes about 250 bytes, little beside the result."""

_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Groups of rows with equal state, action and outcome, in any order.

    ``outcome`` is the index of x', -1 for termination, -2 for unknown; all shapes are [G].
    """

    state: Ints
    action: Ints
    outcome: Ints
    count: Ints
    prob_min: Floats | None
    prob_max: Floats | None


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Fields of Counts by pair, except the rewards."""

    pair_state: Ints
    pair_action: Ints
    pair_count: Ints
    outcome_ptr: Ints
    outcome_state: Ints
    outcome_count: Ints
    terminated_count: Ints
    baseline_prob: Floats | None


def by_pair(groups: Groups, state_labels: Labels, action_labels: Labels) -> tuple[Pairs, Ints, Ints]:
    """Aggregate groups, in any order and possibly repeated, into arrays by pair, without unknown outcomes.

    Returns:
        The pairs; the indices of their groups, sorted by pair, shape [H]; and the pair of each of these groups, shape [H].
    """
    n_actions, n_outcomes = action_labels.size, state_labels.size + 1  # each state, and termination
    known = np.flatnonzero(groups.outcome != -2)
    key = (groups.state[known] * n_actions + groups.action[known]) * n_outcomes + groups.outcome[known] + 1
    sort = np.argsort(key, kind="stable")  # stable sorting is fast on input that DuckDB has sorted
    order, key = known[sort], key[sort]
    counted = groups.count[order]
    edges, edge_starts, _ = _runs(key)
    pairs, starts, pair = _runs(key // n_outcomes)
    outcome = edges % n_outcomes - 1
    edge_count = np.add.reduceat(counted, edge_starts) if edges.size else counted
    owner, led = pair[edge_starts], outcome >= 0
    terminated = np.zeros(pairs.size, dtype=np.int64)
    terminated[owner[~led]] = edge_count[~led]
    found = Pairs(
        pair_state=pairs // n_actions,
        pair_action=pairs % n_actions,
        pair_count=np.add.reduceat(counted, starts) if pairs.size else counted,
        outcome_ptr=np.append(0, np.cumsum(np.bincount(owner[led], minlength=pairs.size))),
        outcome_state=outcome[led],
        outcome_count=edge_count[led],
        terminated_count=terminated,
        baseline_prob=_baseline_prob(groups, order, starts, pairs, state_labels, action_labels),
    )
    return found, order, pair


def by_pair_in_blocks(blocks: Iterable[Groups], most: int, state_labels: Labels, action_labels: Labels) -> Pairs:
    """`by_pair` for blocks of groups with increasing pairs, holding only the result and one block in memory.

    Args:
        blocks: Blocks of groups, at least one.
        most: Upper bound on the number of groups in all blocks.
        state_labels: Labels of the states, shape [X].
        action_labels: Labels of the actions, shape [A].
    """
    state, count = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)  # pages are allocated as they fill
    sizes: list[Ints] = []
    by_block: list[Pairs] = []
    end = 0
    for groups in blocks:
        found, _, _ = by_pair(groups, state_labels, action_labels)
        begin, end = end, end + found.outcome_state.size
        state[begin:end], count[begin:end] = found.outcome_state, found.outcome_count
        sizes.append(np.diff(found.outcome_ptr))
        by_block.append(replace(found, outcome_state=_NONE, outcome_count=_NONE, outcome_ptr=_NONE))

    def together(name: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(found, name) for found in by_block])

    return Pairs(
        **{name: together(name) for name in ("pair_state", "pair_action", "pair_count", "terminated_count")},
        outcome_ptr=np.append(0, np.cumsum(np.concatenate(sizes))),
        outcome_state=state[:end],
        outcome_count=count[:end],
        baseline_prob=None if by_block[0].baseline_prob is None else together("baseline_prob"),
    )


def _baseline_prob(
    groups: Groups, order: Ints, starts: Ints, pairs: Ints, state_labels: Labels, action_labels: Labels
) -> Floats | None:
    if groups.prob_min is None or groups.prob_max is None:
        return None
    if not pairs.size:
        return np.zeros(0)
    low = np.minimum.reduceat(groups.prob_min[order], starts)
    high = np.maximum.reduceat(groups.prob_max[order], starts)
    return agreed_prob(low, high, pairs, state_labels, action_labels)


def agreed_prob(low: Floats, high: Floats, pairs: Ints, state_labels: Labels, action_labels: Labels) -> Floats:
    """Logged probability of every pair (x·A + a) from the least and largest of its rows, [P]. Raises DataError if they differ."""
    wide = np.flatnonzero(high - low > BASELINE_TOL)
    if wide.size:
        p = int(wide[0])
        x, a = divmod(int(pairs[p]), action_labels.size)
        raise DataError(
            "baseline_prob must be the same in all rows of a state and action; state"
            f" {state_labels[x]!s}, action {action_labels[a]!s} has {low[p]:.9g} and {high[p]:.9g}. Correct it, or set"
            " `baseline` to estimate."
        )
    return low  # not the mean: the least does not depend on how shards are merged


def concatenate(parts: Sequence[Groups]) -> Groups:
    """Concatenate groups."""

    def together(name: str) -> npt.NDArray[np.generic] | None:
        return None if getattr(parts[0], name) is None else np.concatenate([getattr(part, name) for part in parts])

    return Groups(**{name: together(name) for name in vars(parts[0])})  # type: ignore[arg-type]


def sum_by(group: Ints, values: Floats, size: int) -> Floats:
    """Sums of values [d, N] by group, shape [d, size], added in the order of N."""
    return np.stack([np.bincount(group, weights=row, minlength=size) for row in values])


def _runs(values: Ints) -> tuple[Ints, Ints, Ints]:
    """Runs of equal sorted values: the distinct values, the start of every run, and the run of every entry."""
    new = np.append(True, values[1:] != values[:-1]) if values.size else np.zeros(0, dtype=np.bool_)
    starts = np.flatnonzero(new)
    return values[starts], starts, np.cumsum(new) - 1
