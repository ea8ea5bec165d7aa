"""Counts divided at random into two parts, as if the transitions of the log had been dealt out to two logs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.errors import check_type
from bettersafe.logs.counts import Counts, owner_of
from bettersafe.typing import frozen, generator

if TYPE_CHECKING:
    from bettersafe.typing import Floats, Ints, Rng


def thin(counts: Counts, rng: Rng) -> tuple[Counts, Counts]:
    """Two halves of the counts: every transition, and every start of an episode, goes to one of them with probability 1/2.

    In a Markov process transitions are independent given their pairs, so the halves are as independent as two logs. Counts have only
    sums and squares of rewards: those of a half are drawn with the mean and variance of a random half of the rewards, and the rest
    goes to the other. Dependence within episodes is lost. Returns and lengths of episodes are those of the whole.

    Args:
        counts: Statistics of a log.
        rng: Seed or generator.

    Examples:
        >>> from bettersafe.logs import thin
        >>> one, other = thin(counts, 0)
        >>> one.n_rows + other.n_rows == counts.n_rows
        True
    """
    check_type("counts", counts, Counts)
    draw = generator(rng)
    outcome = draw.binomial(counts.outcome_count, 0.5)
    ended = draw.binomial(counts.terminated_count, 0.5)
    starts = _starts(counts.initial_count, draw)
    n = counts.pair_count.astype(np.float64)
    mine = np.bincount(owner_of(counts.outcome_ptr), weights=outcome, minlength=n.size) + ended
    total, square = counts.reward_sum, counts.reward_square_sum
    mean = total / n
    inside = square - total * mean
    spread = np.where(inside > 1e-12 * square, inside, 0.0) / np.maximum(n - 1.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        sd = np.where((mine > 0.0) & (mine < n), np.sqrt(spread * np.maximum(1.0 / mine - 1.0 / n, 0.0)), 0.0)
    one = mine * (mean + sd * draw.standard_normal(mean.shape))
    rest = total - one
    parts = []
    for part, ends, begun, size, sums in (
        (outcome, ended, starts, mine, one),
        (counts.outcome_count - outcome, counts.terminated_count - ended, counts.initial_count - starts, n - mine, rest),
    ):
        squares = sums**2 / np.maximum(size, 1.0) + spread * np.maximum(size - 1.0, 0.0)
        parts.append(_part(counts, part, ends, begun, size, sums, squares))
    return parts[0], parts[1]


def _starts(initial: Ints, draw: np.random.Generator) -> Ints:
    """Half of the starts, at least one in either part if there are two."""
    half = draw.binomial(initial, 0.5)
    top = int(np.argmax(initial))
    if half.sum() == 0:
        half[top] = 1
    elif half.sum() == initial.sum() and initial.sum() > 1:
        half[top] -= 1
    return np.asarray(half, dtype=np.int64)


def _part(counts: Counts, outcome: Ints, ended: Ints, starts: Ints, size: Floats, sums: Floats, squares: Floats) -> Counts:
    """Counts of one part, without pairs and outcomes that it does not have."""
    kept = size > 0.0
    there = outcome > 0
    width = np.bincount(owner_of(counts.outcome_ptr), weights=there, minlength=size.size).astype(np.int64)
    return replace(
        counts,
        pair_state=frozen(counts.pair_state[kept], np.int64),
        pair_action=frozen(counts.pair_action[kept], np.int64),
        pair_count=frozen(size[kept], np.int64),
        outcome_ptr=frozen(np.concatenate([[0], np.cumsum(width[kept])]), np.int64),
        outcome_state=frozen(counts.outcome_state[there], np.int64),
        outcome_count=frozen(outcome[there], np.int64),
        terminated_count=frozen(ended[kept], np.int64),
        reward_sum=sums[:, kept],
        reward_square_sum=squares[:, kept],
        initial_count=frozen(starts, np.int64),
        baseline_prob=None if counts.baseline_prob is None else counts.baseline_prob[kept],
        n_rows=int(size.sum()),
        n_episodes=int(starts.sum()),
        n_truncated=0,
        n_dropped=0,
        notes=(),
        rests=None,
        origin=None,
    )
