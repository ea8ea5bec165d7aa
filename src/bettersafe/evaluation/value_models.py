"""Values of the rows of a log in estimated models: v̂, q̂, the value after an episode was cut off, and unseen pairs.

One model serves all episodes, or, cross-fitted, each of k models those of its fold, which it was not fitted on. Of a model
only tables by state or by pair are held, and rows are evaluated block by block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe._system.memory import check_memory, crossfit_bytes
from bettersafe.errors import ParameterError, PolicyError
from bettersafe.logs.counts import Tally
from bettersafe.mdp.values import policy_values
from bettersafe.model import estimate_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bettersafe.logs.dataset import Dataset
    from bettersafe.model import Model
    from bettersafe.typing import Bools, Floats, Ints, Log


@dataclass(frozen=True, kw_only=True)
class ValueModel:
    """Values of a policy in an estimated model, and where the model has data.

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
    """How much of a policy a log covers.

    Attributes:
        unsupported: Whether an episode has a pair that its model never saw, shape [n].
        missing: Share of the policy's probability, over the logged states, on what is not supported.
    """

    unsupported: Bools
    missing: float


def value_model_of(model: Model, policy: Floats, baseline: Floats) -> ValueModel:
    """Values of ``policy`` [X, A] in ``model``; the data is the ``baseline``'s [X, A]."""
    mdp = model.mdp
    v, q = policy_values(mdp, policy)
    pair = np.full((mdp.n_states, mdp.n_actions), -1, dtype=np.int32)
    pair[mdp.pair_state, mdp.pair_action] = np.arange(mdp.n_pairs)
    tried = model.counts > 0
    known = np.zeros(pair.shape, dtype=bool)
    known[mdp.pair_state[tried], mdp.pair_action[tried]] = True
    known &= baseline > 0.0
    return ValueModel(
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
    data: Log, policy: Floats, baseline: Floats, folds: int, rng: np.random.Generator
) -> tuple[tuple[ValueModel, ...], Ints]:
    """A value model for each of ``folds`` parts of the episodes, fitted on the others; and the part of every episode, shape [n]."""
    n = data.n_episodes
    if not 2 <= folds <= n:
        raise ParameterError(f"folds must be at least 2 and at most the number of episodes, {n}; got {folds}.")
    fold = np.empty(n, dtype=np.int64)
    for number, part in enumerate(np.array_split(rng.permutation(n), folds)):
        fold[part] = number
    tally = Tally(folds)
    for block, own in _with_folds(data, fold):
        tally.add(block, own)
    needed = crossfit_bytes(tally.n_groups, data.n_states, data.n_actions, data.n_objectives, folds)
    check_memory(needed, f"fitting {folds} models to {tally.n_groups:,} different transitions")
    models = []
    for number in range(folds):
        # what a pair never tried is worth is anybody's guess; the baseline's value is the most neutral one
        others = estimate_model(tally.counts(without=number), unseen="baseline", baseline=baseline)
        models.append(value_model_of(others, policy, baseline))
    return tuple(models), fold


def check_support(data: Log, policy: Floats, baseline: Floats, models: tuple[ValueModel, ...], fold: Ints) -> Survey:
    """Measure how much of ``policy`` the data covers; ``fold`` [n] numbers the model of every episode.

    Raises:
        PolicyError: The log has an action to which the baseline gives probability 0.
    """
    missing = [model.missing for model in models] or [np.where(baseline > 0.0, 0.0, policy).sum(axis=1)]
    visits = np.zeros((len(missing), data.n_states), dtype=np.int64)
    unsupported = []
    for block, own in _with_folds(data, fold):
        _check_possible(block, baseline)
        rows = np.repeat(own, np.diff(block.episode_ptr))
        visits += np.bincount(rows * data.n_states + block.states, minlength=visits.size).reshape(visits.shape)
        unseen = np.zeros(block.n_rows, dtype=bool)
        for number, model in enumerate(models):
            mine = rows == number
            pair = model.pair[block.states[mine], block.actions[mine]]
            unseen[mine] = (pair < 0) | ~model.tried[pair]
        unsupported.append(np.add.reduceat(unseen, block.episode_ptr[:-1]) > 0)
    share = sum(float(count @ mass) for count, mass in zip(visits, missing, strict=True)) / data.n_rows
    return Survey(unsupported=np.concatenate(unsupported), missing=share)


def _check_possible(block: Dataset, baseline: Floats) -> None:
    impossible = np.flatnonzero(baseline[block.states, block.actions] <= 0.0)
    if impossible.size:
        row = int(impossible[0])
        state, action = block.state_labels[block.states[row]], block.action_labels[block.actions[row]]
        raise PolicyError(
            f"the data has action {str(action)!r} in state {str(state)!r}, which the baseline never plays: its weight would be"
            " infinite. Correct the baseline, or estimate it from the data."
        )


def row_values(block: Dataset, models: tuple[ValueModel, ...], fold: Ints) -> tuple[Floats, Floats, Floats]:
    """v̂(x_t) and q̂(x_t,a_t), each [N, d], and the value of where episodes were left, [n, d]; empty without models."""
    d = block.n_objectives
    if not models:
        return np.empty((0, d)), np.empty((0, d)), np.empty((0, d))
    v, q, tail = np.empty((block.n_rows, d)), np.empty((block.n_rows, d)), np.empty((block.n_episodes, d))
    rows = np.repeat(fold, np.diff(block.episode_ptr))
    last = block.episode_ptr[1:] - 1
    for number, model in enumerate(models):
        mine = np.flatnonzero(rows == number)
        x, a = block.states[mine], block.actions[mine]
        pair = model.pair[x, a]
        ends = np.flatnonzero(fold == number)
        value = _tail(block, last[ends], model)
        for k in range(d):
            v[mine, k] = model.v[k, x]
            q[mine, k] = np.where(pair >= 0, model.q[k, pair], model.otherwise[k, x])
            tail[ends, k] = value[k]
    return v, q, tail


def _tail(block: Dataset, last: Ints, model: ValueModel) -> Floats:
    """The value of where episodes were left after the rows ``last`` [m], shape [d, m]: 0 where they terminated.

    Where the next state is not known, what the model expects of it: (q̂ − r̂)/γ.
    """
    following, truncated = block.next_states[last], ~block.terminated[last]
    value = model.v[:, np.maximum(following, 0)]
    x = block.states[last]
    pair = model.pair[x, block.actions[last]]
    gained = np.where(pair >= 0, model.q[:, pair], model.otherwise[:, x])
    gained -= np.where(pair >= 0, model.reward[:, pair], 0.0)
    gamma = model.discount[:, None]
    expected = np.divide(gained, gamma, out=np.zeros_like(value), where=gamma > 0.0)
    return np.where(truncated, np.where(following >= 0, value, expected), 0.0)


def _with_folds(data: Log, fold: Ints) -> Iterator[tuple[Dataset, Ints]]:
    """Every block, and the folds of its episodes."""
    first = 0
    for block in data.blocks():
        yield block, fold[first : first + block.n_episodes]
        first += block.n_episodes
