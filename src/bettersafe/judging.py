"""What models say of the rows of a log: v̂, q̂, the value of where an episode was left, and what they never saw.

One model judges all episodes, or, cross-fitted, each of k models those of its fold, which it was not fitted on. Only
what goes by state or by pair is held of a model, and rows are judged block by block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe.data import Dataset, take_episodes
from bettersafe.episodes import blocks_of, count_blocks
from bettersafe.errors import ParameterError
from bettersafe.mdp import Floats, Ints, policy_values
from bettersafe.model import estimate_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bettersafe.episodes import Episodes
    from bettersafe.model import Model

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Judge:
    """A model's opinion of a policy.

    Attributes:
        v: v̂, shape [d, X].
        q: q̂ of the model's pairs, shape [d, P].
        reward: r̂ of them, shape [d, P].
        discount: γ, shape [d].
        otherwise: q̂ of a pair that the model does not have, by state, shape [d, X].
        pair: Which pair (x, a) is, shape [X, A]; -1 where the model does not have it.
        tried: Whether the model's data has the pair, shape [P].
        value: v̂(μ), shape [d].
        missing: The policy's probability, by state, on what the baseline never plays or the model never saw, shape [X].
    """

    v: Floats
    q: Floats
    reward: Floats
    discount: Floats
    otherwise: Floats
    pair: npt.NDArray[np.int32]
    tried: Bools
    value: Floats
    missing: Floats


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What is odd in a log.

    Attributes:
        unsupported: Whether an episode has a pair that its judge never saw, shape [n].
        truncated: Episodes that were cut off.
        missing: Share of the policy's probability, over the logged states, on what is not supported.
    """

    unsupported: Bools
    truncated: int
    missing: float


def judge_of(model: Model, policy: Floats, baseline: Floats) -> Judge:
    """The model's opinion of ``policy`` [X, A] where the data is the ``baseline``'s [X, A]."""
    mdp = model.mdp
    v, q = policy_values(mdp, policy)
    pair = np.full((mdp.n_states, mdp.n_actions), -1, dtype=np.int32)
    pair[mdp.pair_state, mdp.pair_action] = np.arange(mdp.n_pairs)
    tried = model.counts > 0
    known = np.zeros(pair.shape, dtype=bool)
    known[mdp.pair_state[tried], mdp.pair_action[tried]] = True
    known &= baseline > 0.0
    return Judge(
        v=v,
        q=q,
        reward=mdp.reward,
        discount=mdp.discount,
        otherwise=mdp.unseen_value,
        pair=pair,
        tried=tried,
        value=v @ mdp.initial,
        missing=np.where(known, 0.0, policy).sum(axis=1),
    )


def crossfit(
    data: Dataset | Episodes, policy: Floats, baseline: Floats, folds: int, rng: np.random.Generator
) -> tuple[tuple[Judge, ...], Ints]:
    """A judge for each of ``folds`` parts of the episodes, fitted on the others; and the part of every episode, shape [n]."""
    n = data.n_episodes
    if not 2 <= folds <= n:
        raise ParameterError(f"folds must be at least 2 and at most the number of episodes, {n}; got {folds}.")
    fold = np.empty(n, dtype=np.int64)
    for number, part in enumerate(np.array_split(rng.permutation(n), folds)):
        fold[part] = number
    judges = []
    for number in range(folds):
        # what a pair never tried is worth is anybody's guess; the baseline's value is the most neutral one
        others = estimate_model(count_blocks(_without(data, fold, number)), unseen="baseline", baseline=baseline)
        judges.append(judge_of(others, policy, baseline))
    return tuple(judges), fold


def see_through(
    data: Dataset | Episodes, policy: Floats, baseline: Floats, judges: tuple[Judge, ...], fold: Ints
) -> Survey:
    """Look for what is odd; ``fold`` [n] says whose judge is whose, without judges only the baseline's support counts."""
    missing = [judge.missing for judge in judges] or [np.where(baseline > 0.0, 0.0, policy).sum(axis=1)]
    visits = np.zeros((len(missing), data.n_states), dtype=np.int64)
    unsupported, truncated = [], 0
    for block, own in _with_folds(data, fold):
        rows = np.repeat(own, np.diff(block.episode_ptr))
        visits += np.bincount(rows * data.n_states + block.states, minlength=visits.size).reshape(visits.shape)
        unseen = np.zeros(block.n_rows, dtype=bool)
        for number, judge in enumerate(judges):
            mine = rows == number
            pair = judge.pair[block.states[mine], block.actions[mine]]
            unseen[mine] = (pair < 0) | ~judge.tried[pair]
        unsupported.append(np.add.reduceat(unseen, block.episode_ptr[:-1]) > 0)
        truncated += int(np.sum(~block.terminated[block.episode_ptr[1:] - 1]))
    share = sum(float(count @ mass) for count, mass in zip(visits, missing, strict=True)) / data.n_rows
    return Survey(unsupported=np.concatenate(unsupported), truncated=truncated, missing=share)


def opinions(block: Dataset, judges: tuple[Judge, ...], fold: Ints) -> tuple[Floats, Floats, Floats]:
    """v̂(x_t) and q̂(x_t,a_t), each [N, d], and the value of where episodes were left, [n, d]; empty without judges."""
    d = block.n_objectives
    if not judges:
        return np.empty((0, d)), np.empty((0, d)), np.empty((0, d))
    if len(judges) == 1:
        return _opinion(block, judges[0])
    v, q, tail = np.empty((block.n_rows, d)), np.empty((block.n_rows, d)), np.empty((block.n_episodes, d))
    rows = np.repeat(fold, np.diff(block.episode_ptr))
    for number, judge in enumerate(judges):
        episodes = np.flatnonzero(fold == number)
        if episodes.size:
            mine = rows == number
            v[mine], q[mine], tail[episodes] = _opinion(take_episodes(block, episodes), judge)
    return v, q, tail


def _opinion(block: Dataset, judge: Judge) -> tuple[Floats, Floats, Floats]:
    x, a = block.states, block.actions
    return (
        np.ascontiguousarray(judge.v[:, x].T),
        np.ascontiguousarray(_pair_values(judge, judge.q, judge.otherwise, x, a).T),
        _tail(block, judge),
    )


def _pair_values(judge: Judge, values: Floats, otherwise: Floats, x: Ints, a: Ints) -> Floats:
    """Values [d, P] of the pairs (x, a), those of the state [d, X] where there is no such pair; shape [d, N]."""
    pair = judge.pair[x, a]
    return np.where(pair >= 0, values[:, pair], otherwise[:, x])


def _tail(block: Dataset, judge: Judge) -> Floats:
    """The value of where each episode was left, shape [n, d]: 0 where it terminated.

    Where the next state is not known, what the model expects of it: (q̂ − r̂)/γ.
    """
    last = block.episode_ptr[1:] - 1
    following, truncated = block.next_states[last], ~block.terminated[last]
    value = judge.v[:, np.maximum(following, 0)]
    x, a = block.states[last], block.actions[last]
    gained = _pair_values(judge, judge.q, judge.otherwise, x, a)
    gained -= _pair_values(judge, judge.reward, np.zeros_like(judge.otherwise), x, a)
    gamma = judge.discount[:, None]
    expected = np.divide(gained, gamma, out=np.zeros_like(value), where=gamma > 0.0)
    return np.ascontiguousarray(np.where(truncated, np.where(following >= 0, value, expected), 0.0).T)


def _with_folds(data: Dataset | Episodes, fold: Ints) -> Iterator[tuple[Dataset, Ints]]:
    """Every block, and the folds of its episodes."""
    first = 0
    for block in blocks_of(data):
        yield block, fold[first : first + block.n_episodes]
        first += block.n_episodes


def _without(data: Dataset | Episodes, fold: Ints, number: int) -> Iterator[Dataset]:
    """The episodes of the other folds."""
    for block, own in _with_folds(data, fold):
        yield take_episodes(block, np.flatnonzero(own != number))
