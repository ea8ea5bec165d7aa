"""Model values for the rows of a log (v̂, q̂, and v̂ after truncated episodes), and the share of a policy without support.

One model is used for all episodes or, with cross-fitting, each of k models for the episodes of the fold on which it was not
fitted. A `ValueModel` stores tables by state or pair only, and rows are processed in blocks.
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
    """Values of a policy in an estimated model, and the pairs with data.

    Attributes:
        v: v̂, shape [d, X].
        q: q̂ of the model's pairs, shape [d, P].
        reward: r̂ of the model's pairs, shape [d, P].
        discount: γ, shape [d].
        otherwise: q̂ of pairs that the model does not have, by state, shape [d, X].
        pair: Index of the pair (x, a), shape [X, A]; -1 if the model does not have it.
        tried: Whether the model's data has the pair, shape [P].
        value: v̂(μ), shape [d].
        missing: Probability of the policy, by state, on actions that the baseline never takes or that are not in the model's
            data, shape [X].
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
    """Support of a policy in a log.

    Attributes:
        unsupported: Whether an episode has a pair that is not in the data of its model, shape [n].
        missing: Share of the policy's probability, over the logged states, without support.
    """

    unsupported: Bools
    missing: float


def value_model_of(model: Model, policy: Floats, baseline: Floats) -> ValueModel:
    """Values of ``policy`` [X, A] in ``model``; ``baseline`` [X, A] is the policy that collected the data."""
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
    """Value models for ``folds`` parts of the episodes, each fitted on the other parts; and the part of every episode, shape [n]."""
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
        # the value of a pair without data is unknown; the baseline's value is a neutral choice
        others = estimate_model(tally.counts(without=number), unseen="baseline", baseline=baseline)
        models.append(value_model_of(others, policy, baseline))
    return tuple(models), fold


def check_support(data: Log, policy: Floats, baseline: Floats, models: tuple[ValueModel, ...], fold: Ints) -> Survey:
    """Measure how much of ``policy`` the data covers; ``fold`` [n] is the index of every episode's model.

    Raises:
        PolicyError: If the log has an action to which the baseline gives probability 0.
    """
    missing = [model.missing for model in models] or [np.where(baseline > 0.0, 0.0, policy).sum(axis=1)]
    visits = np.zeros((len(missing), data.n_states), dtype=np.int64)
    unsupported = []
    for block, own in _with_folds(data, fold):
        check_possible(block, baseline)
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


def check_possible(block: Dataset, baseline: Floats) -> None:
    """Raise PolicyError if a row has an action to which the baseline [X, A] gives probability 0."""
    impossible = np.flatnonzero(baseline[block.states, block.actions] <= 0.0)
    if impossible.size:
        row = int(impossible[0])
        state, action = block.state_labels[block.states[row]], block.action_labels[block.actions[row]]
        raise PolicyError(
            f"the data has action {str(action)!r} in state {str(state)!r}, which the baseline never plays: its weight would be"
            " infinite. Correct the baseline, or estimate it from the data."
        )


def row_values(block: Dataset, models: tuple[ValueModel, ...], fold: Ints) -> tuple[Floats, Floats, Floats]:
    """v̂(x_t) and q̂(x_t,a_t), each of shape [N, d], and v̂ after the last row, shape [n, d]; empty without models."""
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
    """v̂ after the rows ``last`` [m], shape [d, m]; 0 if the episode terminated.

    If the next state is not known, its value is estimated by the model as (q̂ − r̂)/γ.
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
    """Blocks of a log, with the folds of their episodes."""
    first = 0
    for block in data.blocks():
        yield block, fold[first : first + block.n_episodes]
        first += block.n_episodes
