"""Rare events: the part of a step's value that they carry, so that it can be pooled over states and actions.

A state that has never shown a catastrophe can't reach it in a model of its own outcomes, and a policy made from the log goes where
nothing was seen. It also leaves what pays rarely and much, where it has not paid yet. What an action did in *other* states is the better
guide. So the value of a logged step for objective k,

    y = r_k + γ_k v_k(x')        surprise u = y − median of y in state x        v_k: value under the logged actions

is split. A share of `EXTREME` of the steps has surprises below some size; those below `BEYOND` times that size are rare *and* harmful, as
in no light-tailed distribution, and lose their excess over it. Above, for gains, it is the same. The rest follows its model as before
(`priors`, `rewards`). The mean excess of a pair has a model of its own, of rates with factors of the state, the action and the pair, and
how much these differ is learnt from the log (`rare_rates`). What an action does everywhere is then expected everywhere, and what it does
in single states is uncertain where few visits could not have shown it.

A noisy reward that is the same in most steps (`SPARSE`), such as a yes/no cost but not the price of an action, has nothing but events, however small: the rates of its
events differ by factors, and where they are low its noise is small, so effects that add up do not describe it.

The value of an end does not count, because ends have a model of their own (`priors`). The split changes no mean of a pair, whatever v
is; it changes what is pooled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.logs.dataset import Dataset
    from bettersafe.typing import Floats, Ints

EXTREME = 0.025
BEYOND = 2.0
"""Surprises are cut off at `BEYOND` times the size below which a share of `EXTREME` of the rows lies."""

SURE = 2.0
"""Standard errors by which the value of where a step leads counts as less extreme than it is: else every state in which a rare event
happened once would look like a place of rare events."""

MOST_STEPS = 1000
"""Largest number of steps to which values look ahead; they only tell rare events from others."""

TOL = 1e-6
"""Relative change at which values are taken as settled."""

SPARSE = 0.2
"""A reward that differs from the median of its state in at most this share of steps, such as a yes/no cost, has events and nothing else."""

NORMAL = 1.96
"""That size for a normal distribution, in standard deviations."""


def rare_excess(dataset: Dataset, rows: Ints, tied: Sequence[bool], random: Sequence[bool]) -> tuple[Floats, Floats]:
    """Excess of the chosen rows for every objective, and the part of it that is due to where they lead, each of shape [N, d].

    Args:
        dataset: Log.
        rows: Rows, shape [N].
        tied: Whether the rewards of an objective are a function of the outcome, d of them.
        random: Whether they are no function of the pair, d of them.
    """
    x, following = dataset.states[rows], dataset.next_states[rows]
    longest = int(np.max(np.diff(dataset.episode_ptr)))
    whole, arrival = (np.zeros((rows.size, dataset.n_objectives)) for _ in range(2))
    for k, objective in enumerate(dataset.objectives):
        reward = dataset.rewards[rows, k]
        after = values_after(x, following, reward, objective.discount, n_states=dataset.n_states, longest=longest)
        whole[:, k], arrival[:, k] = excess_of(x, following, reward, after, tied=tied[k], random=random[k])
    return whole, arrival


def excess_of(
    x: Ints,
    following: Ints,
    reward: Floats,
    after: After,
    times: Floats | None = None,
    noise: float = 0.0,
    *,
    tied: bool = False,
    random: bool = True,
) -> tuple[Floats, Floats]:
    """Excess of steps for one objective, and the part of it that is due to where they lead, each of shape [N].

    Args:
        x: State of every step, shape [N].
        following: Next state, −1 for the end, shape [N].
        reward: Reward, shape [N].
        after: γ_k v_k of every state, and its standard error.
        times: How often a step was seen, shape [N]; once if None.
        noise: Standard deviation of what ``reward`` leaves out, taken as normal.
        tied: Whether rewards are a function of the outcome. How often they are paid then follows from how often outcomes happen
            (`priors`), and only harm is pooled, because an outcome that a state has not shown can't happen there in that model.
        random: Whether rewards are no function of the pair, such as the price of an action; that is no event.
    """
    if not x.size:
        return np.zeros(0), np.zeros(0)
    often = np.ones(x.size) if times is None else times
    goes = following >= 0
    place = np.maximum(following, 0)
    led, paid = np.zeros(x.size), _apart(x, reward, often)
    led[goes] = _apart(x[goes], after.value[place][goes], often[goes])
    doubt = SURE * after.error[place]
    seldom_paid = float(often @ (np.abs(paid) > 1e-9 * float(np.max(np.abs(reward))))) <= SPARSE * float(often.sum())
    sparse = paid if seldom_paid and random and not tied and noise == 0.0 else np.zeros(x.size)
    paid = paid - sparse
    excess, arrival = sparse.copy(), np.zeros(x.size)
    # harm, then gains; what only some outcomes pay, such as a goal, is learnt with how often they happen
    for sign in (1.0,) if tied else (1.0, -1.0):
        towards = sign * led
        towards = np.where(towards < 0.0, np.minimum(towards + doubt, 0.0), towards)
        beyond = _beyond(towards + sign * paid, times, noise)
        low, cost = np.minimum(towards, 0.0), np.minimum(sign * paid, 0.0)
        excess += sign * beyond
        arrival += sign * beyond * low / np.minimum(low + cost, -1e-300)
    return excess, arrival


def _beyond(surprise: Floats, times: Floats | None, noise: float) -> Floats:
    """What lies below `BEYOND` times the size of surprises below which a share of `EXTREME` lies, shape [N]; at most 0."""
    extreme = float(np.quantile(surprise, EXTREME)) if times is None else _quantile(surprise, times)
    extreme = -float(np.hypot(min(extreme, 0.0), NORMAL * noise))
    excess = np.minimum(surprise - BEYOND * extreme, 0.0)
    if float(np.min(excess)) >= -1e-9 * float(np.max(np.abs(surprise))):
        return np.zeros(surprise.size)
    return np.asarray(excess)


def _quantile(value: Floats, times: Floats) -> float:
    """The `EXTREME` quantile of values that were seen several times each, interpolated like that of single rows."""
    order = np.argsort(value, kind="stable")
    upto = np.cumsum(times[order])
    place = EXTREME * max(float(upto[-1]) - 1.0, 0.0)
    below, above = (
        float(value[order][min(int(np.searchsorted(upto, at, side="right")), order.size - 1)])
        for at in (np.floor(place), np.ceil(place))
    )
    return below + (above - below) * float(place - np.floor(place))


def _apart(x: Ints, value: Floats, times: Floats) -> Floats:
    """Distance of every value from the median of its state, shape [N].

    Of two middle values the one closer to the mean of all counts, and of a single value that mean: an event in a state with few
    visits must not make the other visits look like events of the opposite sign.
    """
    if not x.size:
        return np.zeros(0)
    order = np.lexsort((value, x))
    ordered, often = value[order], times[order]
    first = np.flatnonzero(np.diff(x[order], prepend=-1))
    size = np.diff(np.append(first, x.size))
    total = np.add.reduceat(often, first)
    upto = np.concatenate(
        [np.cumsum(part) for part in np.split(often, first[1:])]
    )  # within a state: the log may be far larger
    half = 0.5 * total
    low, high = (
        ordered[first + np.minimum(np.add.reduceat(upto < np.repeat(limit, size), first, dtype=np.int64), size - 1)]
        for limit in (half * (1.0 - 1e-9), half * (1.0 + 1e-9))
    )
    overall = float(times @ value) / float(times.sum())
    middle = np.where(np.abs(low - overall) <= np.abs(high - overall), low, high)
    middle = np.where(2.0 * half < 1.5, overall, middle)
    apart = np.empty(x.size)
    apart[order] = ordered - np.repeat(middle, size)
    return apart


@dataclass(frozen=True, kw_only=True)
class After:
    """γ v of every state under the logged actions, 0 for states without decisions, and its standard error; each of shape [X]."""

    value: Floats
    error: Floats


def values_after(
    x: Ints,
    following: Ints,
    reward: Floats,
    discount: float,
    *,
    n_states: int,
    longest: int,
    times: Floats | None = None,
    noise: float = 0.0,
) -> After:
    """Values of the states that steps lead to, in the model of the logged actions, up to ``longest`` steps.

        v(x) = E[y | x]     y = r + γ v(x')         V(x) = Var(y | x) + γ² E[V(x') | x]          error = γ √( max(V(x), mean V) / n(x) )

    Args:
        x: State of every step, shape [N].
        following: Next state, −1 for the end, shape [N].
        reward: Reward, shape [N].
        discount: γ.
        n_states: |X|.
        longest: Steps of the longest episode.
        times: How often a step was seen, shape [N]; once if None.
        noise: Standard deviation of what ``reward`` leaves out.
    """
    from scipy import sparse

    often = np.ones(x.size) if times is None else times
    total = np.bincount(x, often, n_states)
    visits = np.maximum(total, 1.0)
    goes = following >= 0
    moves = sparse.csr_array(
        (discount * (often / visits[x])[goes], (x[goes], following[goes])), shape=(n_states, n_states)
    )

    def settled(paid: Floats, matrix: sparse.csr_array) -> Floats:
        value = paid
        for _ in range(min(longest, MOST_STEPS) - 1):
            before, value = value, paid + matrix @ value
            if np.max(np.abs(value - before)) <= TOL * np.max(np.abs(value)):
                break
        return np.asarray(value)

    v = settled(np.bincount(x, often * reward, n_states) / visits, moves)
    y = reward + np.where(goes, discount * v[np.maximum(following, 0)], 0.0)
    centre = np.bincount(x, often * y, n_states) / visits
    inside = np.bincount(x, often * (y - centre[x]) ** 2, n_states) / visits + np.where(total > 0.0, noise**2, 0.0)
    variance = settled(inside, discount * moves)
    pooled = float(total @ variance) / max(float(total.sum()), 1.0)
    return After(value=discount * v, error=discount * np.sqrt(np.maximum(variance, pooled) / visits))
