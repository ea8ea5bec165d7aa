"""Rewards of single steps, recovered from counts where sums and squares leave only one possibility.

Counts have, by pair, the visits of every next state, the number of ends, and of every objective Σ r and Σ r². Often that is enough:

    a constant pair           Σ r² = (Σ r)²/n: every step of the pair paid the mean, whatever it led to
    one unknown next state    the others are known from other pairs of the state: the rest of Σ r is its reward
    unknown next states       they pay what they pay from other states, or what all other steps pay, if that is always the same; or
                              the solution of all sums, if the reward depends on the next state alone
    several kinds of ends     what is left of (n, Σ r, Σ r²) for the ends of a pair, divided among the end rewards seen elsewhere

All sums and squares of the log must then agree, so a noisy reward is not taken for one that depends on the next state: the same rule
as for rows (`gather_outcomes`). If the reward of a pair has two values, one of them the log's smallest (a yes/no cost, a catastrophe),
n(x,a) Var/(Var + (mean − smallest)²) is the number of steps with the smallest, a whole number (`lows`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.posterior.rare import excess_of, values_after

if TYPE_CHECKING:
    from collections.abc import Collection

    from bettersafe.logs.counts import Counts
    from bettersafe.typing import Bools, Floats, Ints

TOL = 1e-8
"""Rounding errors of sums and squares, as a share of their size."""

MOST_SOLVED = 500
"""Largest number of next states whose rewards are found from a system of equations."""

REPEATED = 10
"""Ends that must have been seen in a pair with another end, before rewards that never differ in a pair are taken to depend on it."""

MOST_MIXED = 20_000
"""Largest number of pairs with several kinds of ends; beyond it, kinds are not told apart."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Distinct steps of a counted log.

    Attributes:
        pair: Pair of every step, shape [S].
        following: Next state, −1 for the end, shape [S].
        kind: Kind of end, −1 if the episode continues, shape [S].
        times: Number of such steps, shape [S].
        tied: Whether the reward of an objective is a function of the next state or kind of end, shape [d].
        reward: Rewards of objectives that are tied, 0 for others, shape [d, S].
    """

    pair: Ints
    following: Ints
    kind: Ints
    times: Floats
    tied: Bools
    reward: Floats

    def only(self, keep: Bools) -> Steps:
        """The steps of ``keep`` [S]."""
        return replace(
            self,
            pair=self.pair[keep],
            following=self.following[keep],
            kind=self.kind[keep],
            times=self.times[keep],
            reward=self.reward[:, keep],
        )


def recover_steps(counts: Counts, *, most_ends: int, known: Collection[int] = ()) -> Steps:
    """Steps of a counted log, with the rewards that follow from the counts.

    Args:
        counts: Counts of the log.
        most_ends: Largest number of kinds of ends.
        known: Objectives whose rewards are known otherwise.
    """
    d = counts.n_objectives
    pair = np.repeat(np.arange(counts.n_pairs), np.diff(counts.outcome_ptr))
    ended = np.flatnonzero(counts.terminated_count)
    paid, sums, squares = np.full((d, pair.size), np.nan), np.zeros((d, ended.size)), np.zeros((d, ended.size))
    tied = np.zeros(d, dtype=np.bool_)
    for k in range(d):
        if k not in known:
            found = _rewards_on(counts, k, pair)
            if found is not None:
                tied[k] = True
                paid[k], sums[k], squares[k] = found
    ends = _ends(counts, ended, sums, squares, tied, most_ends)
    return Steps(
        pair=np.concatenate([pair, ends.pair]),
        following=np.concatenate([counts.outcome_state, np.full(ends.pair.size, -1)]),
        kind=np.concatenate([np.full(pair.size, -1), ends.kind]),
        times=np.concatenate([counts.outcome_count, ends.times]).astype(np.float64),
        tied=ends.tied,
        reward=np.where(ends.tied[:, None], np.concatenate([paid, ends.reward], axis=1), 0.0),
    )


def lows(counts: Counts, k: int, spread: Floats) -> Floats | None:
    """Number of steps of every pair with the log's smallest reward, shape [P], if pairs have that and one other; else None.

    Args:
        counts: Counts of the log.
        k: Objective.
        spread: Σ (r_k − mean of its pair)² of every pair, shape [P].
    """
    n = counts.pair_count.astype(np.float64)
    mean, least = counts.reward_sum[k] / n, float(counts.reward_min[k])
    varies = spread > 0.0
    above = mean - least
    if np.any(varies & (above <= 0.0)):
        return None
    found = np.where(varies, n * spread / np.maximum(spread + n * above**2, 1e-300), 0.0)
    whole = np.rint(found)
    if np.any(np.abs(found - whole) > 1e-6 * n) or np.any(varies & (whole < 1.0)):
        return None
    return np.where(varies, whole, np.where(above <= TOL * max(abs(least), 1e-300), n, 0.0))


def _rewards_on(counts: Counts, k: int, pair: Ints) -> tuple[Floats, Floats, Floats] | None:
    """Reward of every step that continues [M], and Σ r, Σ r² of the ends of every pair with ends; None if they don't follow."""
    n, ends = counts.pair_count.astype(np.float64), counts.terminated_count
    total, square = counts.reward_sum[k], counts.reward_square_sum[k]
    times = counts.outcome_count.astype(np.float64)
    names, key = np.unique(counts.pair_state[pair] * counts.n_states + counts.outcome_state, return_inverse=True)
    value = np.full(names.size, np.nan)
    constant = square - total**2 / n <= TOL * square
    sure = constant[pair]
    value[key[sure]] = (total / n)[pair[sure]]
    while np.any(np.isnan(value)):
        known = ~np.isnan(value[key])
        missing = np.bincount(pair[~known], minlength=n.size)
        one = (missing == 1) & (ends == 0)
        rest = total - np.bincount(pair[known], (times * value[key])[known], n.size)
        place = ~known & one[pair]
        if np.any(place):
            value[key[place]] = rest[pair[place]] / times[place]
        elif not _filled_by_next(value, names % counts.n_states, counts.n_states) and not _solved_by_next(
            value, key, names % counts.n_states, pair, times, np.where(ends == 0, rest, np.nan)
        ):
            return None
    paid = value[key]
    left = total - np.bincount(pair, times * paid, n.size)
    left_square = square - np.bincount(pair, times * paid**2, n.size)
    size = np.abs(total) + np.bincount(pair, times * np.abs(paid), n.size)
    size_square = square + np.bincount(pair, times * paid**2, n.size)
    off = np.abs(left) > TOL * size
    off_square = np.abs(left_square) > TOL * size_square
    if np.any((off | off_square) & (ends == 0)):
        return None
    ended = np.flatnonzero(ends)
    left, left_square = np.where(off, left, 0.0)[ended], np.where(off_square, left_square, 0.0)[ended]
    if np.any(left_square < left**2 / ends[ended] - TOL * size_square[ended]):
        return None
    return paid, left, left_square


def _filled_by_next(value: Floats, following: Ints, n_states: int) -> bool:
    """Fill unknown rewards with what the same next state paid from other states, or else any step, if that was always the same."""
    known = ~np.isnan(value)
    if not np.any(known):
        return False
    low, high = np.full(n_states, np.inf), np.full(n_states, -np.inf)
    np.minimum.at(low, following[known], value[known])
    np.maximum.at(high, following[known], value[known])
    seen = np.isfinite(low)
    same = np.zeros(n_states, dtype=np.bool_)
    same[seen] = (high - low)[seen] <= TOL * np.maximum(np.abs(high), np.abs(low))[seen]
    place = ~known & same[following]
    value[place] = low[following[place]]
    if np.any(place):
        return True
    least, most = float(value[known].min()), float(value[known].max())
    if most - least > TOL * max(abs(least), abs(most)):
        return False
    value[~known] = least
    return True


def _solved_by_next(value: Floats, key: Ints, following: Ints, pair: Ints, times: Floats, rest: Floats) -> bool:
    """Solve for unknown rewards that depend on the next state alone; ``rest`` [P] is what they pay, NaN where ends pay too."""
    usable = np.isnan(value[key]) & ~np.isnan(rest[pair])
    columns, column = np.unique(following[key[usable]], return_inverse=True)
    rows, row = np.unique(pair[usable], return_inverse=True)
    unknown = np.isnan(value)
    if columns.size == 0 or columns.size > MOST_SOLVED or not np.all(np.isin(following[unknown], columns)):
        return False
    chosen = np.unique(np.linspace(0, rows.size - 1, min(rows.size, 4 * MOST_SOLVED)).astype(np.int64))
    matrix = np.zeros((rows.size, columns.size))
    np.add.at(matrix, (row, column), times[usable])
    found, _, rank, _ = np.linalg.lstsq(matrix[chosen], rest[rows[chosen]], rcond=1e-9)
    if rank < columns.size:
        return False
    value[unknown] = found[np.searchsorted(columns, following[unknown])]
    return True


@dataclass(frozen=True, kw_only=True)
class _Ends:
    """Ends by pair and kind, like `Steps`."""

    pair: Ints
    kind: Ints
    times: Floats
    tied: Bools
    reward: Floats


def _ends(counts: Counts, ended: Ints, sums: Floats, squares: Floats, tied: Bools, most: int) -> _Ends:
    """Divide the ends of every pair by kind; objectives whose end rewards don't follow from the counts are not tied."""
    n, state = counts.terminated_count[ended].astype(np.float64), counts.pair_state[ended]
    mean = sums / np.maximum(n, 1.0)
    flat = squares - sums * mean <= TOL * np.maximum(squares, 1e-300)  # [d, E]
    size = np.maximum(np.abs(mean).max(axis=1, initial=0.0), 1e-300)
    label = np.round(mean / size[:, None], 9)  # equal up to rounding errors
    distinct = np.array([np.unique(row[ok]).size for row, ok in zip(label, flat, strict=True)])
    # with many end rewards, an objective is tied if they follow from the state
    by_state = np.array([is_function(row, state) for row in label]) & np.all(flat, axis=1)
    of_action = [bool(np.all(ok)) and by_action(row, ended, state, n) for row, ok in zip(label, flat, strict=True)]
    tied = tied & ((distinct <= most) | by_state) & ~np.array(of_action, dtype=np.bool_)
    # if pairs can't be divided, only objectives that tell no ends of a pair apart are tied
    for allowed in (tied, tied & np.all(flat, axis=1), tied & np.all(flat, axis=1) & (distinct <= 1)):
        asked = np.flatnonzero(allowed & (distinct <= most))
        found = _split(n, sums[asked], squares[asked], label[asked], flat[asked], state, most)
        if found is not None:
            break
    assert found is not None  # ends that all pay the same are one kind
    place, kind, times, some = found
    reward = mean[:, place]
    if some.size:
        reward[asked] = mean[asked][:, some][:, kind]
    return _Ends(pair=ended[place], kind=kind, times=times, tied=allowed, reward=reward)


def is_function(value: Floats, group: Ints) -> bool:
    """Whether the value is constant within every group."""
    order = np.argsort(group, kind="stable")
    same = np.diff(group[order]) == 0
    return bool(np.all(np.diff(value[order])[same] == 0.0))


def by_action(value: Floats, pair: Ints, state: Ints, times: Floats | None = None) -> bool:
    """Whether the rewards of ends differ in a state but never in a pair, as the price of an action does, and the log has shown that.

    Args:
        value: Reward of an end, shape [N].
        pair: Its pair, shape [N].
        state: Its state, shape [N].
        times: How often it was seen, shape [N]; once if None.
    """
    again = (float(value.size) if times is None else float(times.sum())) - np.unique(pair).size
    return again >= REPEATED and is_function(value, pair) and not is_function(value, state)


def _split(
    n: Floats, sums: Floats, squares: Floats, label: Floats, flat: Bools, state: Ints, most: int
) -> tuple[Ints, Ints, Floats, Ints] | None:
    """Ends by pair and kind: place among the pairs with ends, kind, number, and for every kind a pair that has no other; or None."""
    if label.shape[0] == 0 or n.size == 0:
        return np.arange(n.size), np.zeros(n.size, dtype=np.int64), n, np.zeros(0, dtype=np.int64)
    simple = np.flatnonzero(np.all(flat, axis=0))
    mixed = np.setdiff1d(np.arange(n.size), simple)
    if simple.size == 0 or mixed.size > MOST_MIXED:
        return None
    _, first, of_simple = np.unique(label[:, simple], axis=1, return_index=True, return_inverse=True)
    some, of_simple = simple[first], of_simple.reshape(-1)
    if some.size > most:
        return None
    values = sums[:, some] / n[some]
    near: dict[int, set[int]] = {}  # kinds of ends that a state is known to have
    for x, i in zip(state[simple].tolist(), of_simple.tolist(), strict=True):
        near.setdefault(x, set()).add(i)
    parts = [(simple, of_simple, n[simple])]
    for i in mixed.tolist():
        target = np.concatenate([[n[i]], sums[:, i], squares[:, i]])
        for kinds in (np.array(sorted(near.get(int(state[i]), ())), dtype=np.int64), np.arange(some.size)):
            found = _divided(target, values[:, kinds]) if kinds.size > 1 else None
            if found is not None:
                break
        else:
            return None
        there = np.flatnonzero(found)
        parts.append((np.full(there.size, i), kinds[there], found[there]))
    place, kind, times = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.lexsort((kind, place))
    return place[order], kind[order], times[order], some


def _divided(target: Floats, values: Floats) -> Floats | None:
    """Numbers of ends with every reward vector [K, kinds] that give ``target`` = (n, Σ r, Σ r²), if there is one such division."""
    size = np.abs(values).max(axis=1)
    size = np.where(size > 0.0, size, 1.0)
    scale = np.concatenate([[1.0], size, size**2])
    matrix = np.vstack([np.ones(values.shape[1]), values, values**2]) / scale[:, None]
    wanted = target / scale
    if np.linalg.matrix_rank(matrix) < values.shape[1]:
        return None
    found = np.rint(np.linalg.lstsq(matrix, wanted, rcond=None)[0])
    if np.any(found < 0.0) or np.any(np.abs(matrix @ found - wanted) > 1e-6 * target[0]):
        return None
    return np.asarray(found)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Rewards of one objective, without rare events, and the excess of these (`rare`).

    Attributes:
        reward: Reward of every outcome if it is tied to it, less the excess that is due to it, shape [K].
        by_kind: Mean reward of every kind of end, less the excess, shape [kinds]; 0 if rewards are not tied.
        mean: Mean reward of every pair, shape [P].
        spread: Σ (r − mean)² of every pair, shape [P].
        rare: Mean excess of every pair by harm and by gains, shape [2, P].
        rare_spread: Σ (excess − mean)² of every pair, shape [2, P].
        hidden: Whether the counts leave the rewards of single steps open.
    """

    reward: Floats
    by_kind: Floats
    mean: Floats
    spread: Floats
    rare: Floats
    rare_spread: Floats
    hidden: bool


def reward_parts(counts: Counts, steps: Steps, outcome: Ints, k: int, spread: Floats) -> Parts:
    """Divide the rewards of objective k into rare events and the rest, as for rows.

    Args:
        counts: Counts of the log.
        steps: Steps that are used.
        outcome: Outcome of every step, shape [S].
        k: Objective.
        spread: Σ (r_k − mean of its pair)² of every pair, shape [P].
    """
    n = counts.pair_count.astype(np.float64)
    mean = counts.reward_sum[k] / n
    pair, times, reward = steps.pair, steps.times, steps.reward[k]
    low = None if steps.tied[k] else lows(counts, k, spread)
    if low is not None:
        least = float(counts.reward_min[k])
        share = _share_low(counts, steps, low)
        other = np.where(low < n, (counts.reward_sum[k] - low * least) / np.maximum(n - low, 1.0), least)
        pair, outcome = np.tile(pair, 2), np.tile(outcome, 2)
        times, reward = np.concatenate([times * share, times * (1.0 - share)]), np.repeat([least, 0.0], share.size)
        reward[share.size :] = other[steps.pair]
    elif not steps.tied[k]:
        reward = mean[pair]
    following = steps.following if low is None else np.tile(steps.following, 2)
    kind = steps.kind if low is None else np.tile(steps.kind, 2)
    tied = bool(steps.tied[k])
    hidden = not tied and low is None and bool(np.any(spread > 0.0))
    gamma = counts.objectives[k].discount
    noise = float(np.sqrt(spread.sum() / n.sum())) if hidden else 0.0
    x = counts.pair_state[pair]
    led_to = values_after(
        x, following, reward, gamma, n_states=counts.n_states, longest=counts.length_max, times=times, noise=noise
    )
    excess, arrival = excess_of(
        x, following, reward, led_to, times, noise, tied=tied, random=bool(np.any(spread > 0.0))
    )

    def averaged(value: Floats, group: Ints, size: int) -> Floats:
        total = np.bincount(group, times, size)
        return np.asarray(np.bincount(group, times * value, size) / np.where(total > 0.0, total, 1.0))

    if tied:
        arrival = excess
    due = averaged(arrival, outcome, int(outcome.max()) + 1)
    rest = reward - (excess - due[outcome])
    harm, gain = np.minimum(excess, 0.0), np.maximum(excess, 0.0)
    struck, paid_out, own, left = (averaged(value, pair, n.size) for value in (harm, gain, reward, rest))
    inside, after, struck_spread, paid_spread = (
        np.bincount(pair, times * (value - centre[pair]) ** 2, n.size).astype(np.float64)
        for value, centre in ((reward, own), (rest, left), (harm, struck), (gain, paid_out))
    )
    ends = np.flatnonzero(kind >= 0)
    n_kinds = int(np.max(kind, initial=-1)) + 1
    ended = np.bincount(kind[ends], times[ends], n_kinds)
    paid = np.bincount(kind[ends], (times * (reward - excess))[ends], n_kinds) / np.where(ended > 0.0, ended, 1.0)
    return Parts(
        reward=(averaged(reward, outcome, due.size) if tied else 0.0) - due,
        by_kind=paid if tied else np.zeros(n_kinds),
        mean=mean + (left - own),
        spread=np.maximum(spread - inside, 0.0) + after,
        rare=np.array([struck, paid_out]),
        rare_spread=np.array([struck_spread, paid_spread]),
        hidden=hidden,
    )


def _share_low(counts: Counts, steps: Steps, low: Floats) -> Floats:
    """Share of every step with the smallest reward, shape [S].

    Of which steps they are is open. Next states that are never seen more often than ``low`` [P] come first, for example a pit; what
    they leave is spread evenly over the other steps of the pair.
    """
    n_states = counts.n_states
    struck = np.bincount(counts.pair_state, low, n_states) > 0.0
    asked = struck[counts.pair_state[steps.pair]]
    too_many = asked & (steps.times > low[steps.pair])
    spared = np.ones(n_states + 1, dtype=np.bool_)  # the last is the end
    spared[steps.following[asked]] = False
    spared[steps.following[too_many]] = True
    first = asked & ~spared[steps.following]
    n = counts.pair_count.astype(np.float64)
    explained = np.bincount(steps.pair, first * steps.times, low.size)
    inside = np.where(explained > low, low / np.maximum(explained, 1.0), 1.0)
    outside = np.maximum(low - explained, 0.0) / np.maximum(n - explained, 1.0)
    return np.where(first, inside[steps.pair], outside[steps.pair])
