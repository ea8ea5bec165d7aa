"""Model values for the rows of a log (v̂, q̂, and v̂ after truncated episodes), and the share of a policy without support.

One model is used for all episodes or, with cross-fitting, each of k models for the episodes of the fold on which it was not
fitted. A `ValueModel` stores tables by state or pair only (with a horizon by step and state), and rows are processed in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from bettersafe._system.memory import check_memory, crossfit_bytes, step_values_bytes
from bettersafe.errors import ParameterError, PolicyError
from bettersafe.logs.counts import Tally
from bettersafe.mdp.ends import ending, endless_states, undiscounted
from bettersafe.mdp.mdp import by_state, pair_weights
from bettersafe.mdp.values import policy_values
from bettersafe.model import estimate_model, steps_to_go

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scipy import sparse

    from bettersafe.logs.dataset import Dataset
    from bettersafe.mdp.mdp import MDP
    from bettersafe.model import Model
    from bettersafe.typing import Bools, Floats, Ints, Log


Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class Stationary:
    """Values without a horizon, which are the same in every step; a row has all objectives, so that one copy gets them.

    Attributes:
        v: v̂, shape [X, d].
        q: q̂ of the model's pairs, shape [P, d].
        otherwise: q̂ of pairs that the model does not have, by state, shape [X, d].
    """

    v: Floats
    q: Floats
    otherwise: Floats

    def of_states(self, x: Ints, step: Ints) -> Floats:  # of every step
        """v̂ of states [n], shape [n, d]."""
        return self.v.take(x, axis=0)  # faster than v[x]

    def of_pairs(self, pair: npt.NDArray[np.int32], x: Ints, step: Ints) -> Floats:
        """q̂ of pairs [n] in states [n], shape [n, d]; a pair of −1 is not in the model."""
        found = self.q.take(pair, axis=0)
        absent = np.flatnonzero(pair < 0)
        found[absent] = self.otherwise[x[absent]]
        return found


@dataclass(frozen=True, kw_only=True)
class ByStep:
    """Values of the steps up to a horizon H, for the rows of a log whose longest episode has T ≤ H rows.

    Attributes:
        v: v̂ at step t, with H − t steps to go, shape [T+1, d, X].
        otherwise: q̂ at step t of pairs that the model does not have, by state, T tables of shape [d, X].
        reward: r̂ of the model's pairs, shape [d, P].
        discount: γ, shape [d].
        transition: p̂, CSR [P, X].
    """

    v: Floats
    otherwise: tuple[Floats, ...]
    reward: Floats
    discount: Floats
    transition: sparse.csr_array

    def of_states(self, x: Ints, step: Ints) -> Floats:
        """v̂ of states [n] at steps [n], shape [n, d]."""
        return self.v[step, :, x]

    def of_pairs(self, pair: npt.NDArray[np.int32], x: Ints, step: Ints) -> Floats:
        """q̂ of pairs [n] in states [n] at steps [n], shape [n, d]; a pair of −1 is not in the model."""
        found = np.empty((pair.size, self.discount.size))
        for t in np.unique(step):
            rows = np.flatnonzero(step == t)
            at, own = np.unique(pair[rows], return_inverse=True)
            q = self.reward[:, at] + self.discount[:, None] * (self.transition[at] @ self.v[t + 1].T).T
            found[rows] = np.where(pair[rows] >= 0, q[:, own], self.otherwise[t][:, x[rows]]).T
        return found


@dataclass(frozen=True, kw_only=True)
class ValueModel:
    """Values of a policy in an estimated model, and the pairs with data.

    Attributes:
        values: v̂ and q̂.
        reward: r̂ of the model's pairs, shape [d, P].
        discount: γ, shape [d].
        pair: Index of the pair (x, a), shape [X, A]; -1 if the model does not have it.
        tried: Whether the model's data has the pair, shape [P].
        value: v̂(μ), shape [d].
        missing: Probability of the policy, by state, on actions that the baseline never takes or that are not in the model's
            data, shape [X].
        endless: With discount 1, number of states from which the policy never reaches an end in the model.
    """

    values: Stationary | ByStep
    reward: Floats
    discount: Floats
    pair: npt.NDArray[np.int32]
    tried: Bools
    value: Floats
    missing: Floats
    endless: int = 0


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Support of a policy in a log.

    Attributes:
        unsupported: Whether an episode has a pair that is not in the data of its model, shape [n].
        missing: Share of the policy's probability, over the logged states, without support.
        longest: Rows of the longest episode.
    """

    unsupported: Bools
    missing: float
    longest: int


def value_model_of(model: Model, policy: Floats, baseline: Floats, *, steps: int = 0) -> ValueModel:
    """Values of ``policy`` [X, A] in ``model``; ``baseline`` [X, A] is the policy that collected the data.

    With a horizon, values are kept for the first ``steps`` steps.
    """
    mdp = model.mdp
    values: Stationary | ByStep
    if model.horizon is None:
        values, value, endless = _stationary(mdp, policy, baseline)
    else:
        values, value, endless = *_by_step(model, policy, baseline, steps), 0
    pair = np.full((mdp.n_states, mdp.n_actions), -1, dtype=np.int32)
    pair[mdp.pair_state, mdp.pair_action] = np.arange(mdp.n_pairs)
    tried = model.counts > 0
    known = np.zeros(pair.shape, dtype=bool)
    known[mdp.pair_state[tried], mdp.pair_action[tried]] = True
    known &= baseline > 0.0
    return ValueModel(
        values=values,
        reward=mdp.reward,
        discount=model.discount,
        pair=pair,
        tried=tried,
        value=value,
        missing=np.where(known, 0.0, policy).sum(axis=1),
        endless=endless,
    )


def _stationary(mdp: MDP, policy: Floats, baseline: Floats) -> tuple[Stationary, Floats, int]:
    """Values without a horizon, v̂(μ) [d], and the number of states from which the policy never ends.

    With discount 1, the baseline is followed after a first step of the policy in states from which the policy never ends.
    v̂ = Σ_a π q̂ in any case, as doubly robust estimates require.
    """
    follow = ending(mdp, policy, baseline) if undiscounted(mdp) else policy
    v, q = policy_values(mdp, follow)
    endless = 0
    if follow is not policy:
        endless = endless_states(mdp, policy.take(mdp.pair_index)).size
        weight, unseen_mass = pair_weights(mdp, policy)
        v = np.array([by_state(mdp, weight * row) for row in q]) + unseen_mass * mdp.unseen_value
    by_row = [np.ascontiguousarray(table.T) for table in (v, q, mdp.unseen_value)]
    return Stationary(v=by_row[0], q=by_row[1], otherwise=by_row[2]), v @ mdp.initial, endless


def _by_step(model: Model, policy: Floats, baseline: Floats, steps: int) -> tuple[ByStep, Floats]:
    """Values of the first ``steps`` steps of the model's horizon, and v̂(μ), shape [d]."""
    mdp, horizon = model.mdp, model.horizon
    assert horizon is not None
    longest = min(steps, horizon)
    v = np.zeros((longest + 1, mdp.n_objectives, mdp.n_states))
    otherwise: list[Floats] = [mdp.unseen_value] * longest
    for h, (values, worth) in enumerate(steps_to_go(model, policy, baseline), start=1):
        if horizon - h <= longest:
            v[horizon - h] = values
        if horizon - h < longest:
            otherwise[horizon - h] = worth
    v[: horizon - h] = values  # settled: more steps to go change nothing
    otherwise[: horizon - h] = [worth] * min(horizon - h, longest)
    by_step = ByStep(
        v=v,
        otherwise=tuple(otherwise),
        reward=mdp.reward,
        discount=model.discount,
        transition=mdp.transition,
    )
    return by_step, values @ mdp.initial


def crossfit(
    data: Log,
    baseline: Floats,
    folds: int,
    rng: np.random.Generator,
    make: Callable[[Model], Made],
    *,
    horizon: int | None = None,
    steps: int = 0,
) -> tuple[tuple[Made, ...], Ints]:
    """What ``make`` makes of the models for ``folds`` parts of the episodes, and the part of every episode, shape [n].

    The model of a part is fitted on the other parts. With a horizon, values are kept for the first ``steps`` steps.
    """
    n = data.n_episodes
    if not 2 <= folds <= n:
        raise ParameterError(f"folds must be at least 2 and at most the number of episodes, {n}; got {folds}.")
    units = np.arange(n) if data.units is None else np.unique(data.units, return_inverse=True)[1]
    n_units = int(units.max()) + 1
    if n_units < folds:
        raise ParameterError(
            f"folds must be at most the number of sampling units, {n_units}; got {folds}.", setting="folds"
        )
    of_unit = np.empty(n_units, dtype=np.int64)
    for number, part in enumerate(np.array_split(rng.permutation(n_units), folds)):
        of_unit[part] = number
    fold = of_unit[units]
    tally = Tally(folds)
    for block, own in _with_folds(data, fold):
        tally.add(block, own)
    needed = crossfit_bytes(tally.n_groups, data.n_states, data.n_actions, data.n_objectives, folds)
    if horizon is not None:
        needed += folds * step_values_bytes(min(steps, horizon), data.n_states, data.n_objectives)
    check_memory(needed, f"fitting {folds} models to {tally.n_groups:,} different transitions")
    models: list[Made] = []
    for number in range(folds):
        # the value of a pair without data is unknown; the baseline's value is a neutral choice
        counts = tally.counts(without=number)
        others = estimate_model(counts, unseen="baseline", baseline=baseline, horizon=horizon)
        models.append(make(others))
    return tuple(models), fold


def check_support(data: Log, policy: Floats, baseline: Floats, models: tuple[ValueModel, ...], fold: Ints) -> Survey:
    """Measure how much of ``policy`` the data covers; ``fold`` [n] is the index of every episode's model.

    Raises:
        PolicyError: If the log has an action to which the baseline gives probability 0.
    """
    missing = [model.missing for model in models] or [np.where(baseline > 0.0, 0.0, policy).sum(axis=1)]
    visits = np.zeros((len(missing), data.n_states), dtype=np.int64)
    unsupported, longest = [], 0
    for block, own in _with_folds(data, fold):
        check_possible(block, baseline)
        longest = max(longest, int(np.max(np.diff(block.episode_ptr))))
        rows = np.repeat(own, np.diff(block.episode_ptr))
        visits += np.bincount(rows * data.n_states + block.states, minlength=visits.size).reshape(visits.shape)
        unseen = np.zeros(block.n_rows, dtype=bool)
        for number, model in enumerate(models):
            mine = rows == number
            pair = model.pair[block.states[mine], block.actions[mine]]
            unseen[mine] = (pair < 0) | ~model.tried[pair]
        unsupported.append(np.add.reduceat(unseen, block.episode_ptr[:-1]) > 0)
    share = sum(float(count @ mass) for count, mass in zip(visits, missing, strict=True)) / data.n_rows
    return Survey(unsupported=np.concatenate(unsupported), missing=share, longest=longest)


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
    lengths = np.diff(block.episode_ptr)
    rows = np.repeat(fold, lengths)
    step = np.zeros(block.n_rows, dtype=np.int64)  # not used without a horizon
    if isinstance(models[0].values, ByStep):
        step = np.arange(block.n_rows) - np.repeat(block.episode_ptr[:-1], lengths)
    last = block.episode_ptr[1:] - 1
    for number, model in enumerate(models):
        mine: Ints | slice = slice(None)  # all rows, if there is one model
        ends: Ints | slice = slice(None)
        if len(models) > 1:
            mine, ends = np.flatnonzero(rows == number), np.flatnonzero(fold == number)
        x, a, t = block.states[mine], block.actions[mine], step[mine]
        v[mine], q[mine] = model.values.of_states(x, t), model.values.of_pairs(model.pair[x, a], x, t)
        tail[ends] = _tail(block, last[ends], step[last[ends]], model)
    return v, q, tail


def _tail(block: Dataset, last: Ints, step: Ints, model: ValueModel) -> Floats:
    """v̂ after the rows ``last`` [m], at steps ``step`` [m], shape [m, d]; 0 if the episode terminated.

    If the next state is not known, its value is estimated by the model as (q̂ − r̂)/γ.
    """
    following, truncated = block.next_states[last], ~block.terminated[last]
    value = model.values.of_states(np.maximum(following, 0), step + 1)
    x = block.states[last]
    pair = model.pair[x, block.actions[last]]
    gained = model.values.of_pairs(pair, x, step)
    gained -= np.where(pair[:, None] >= 0, model.reward.T[pair], 0.0)
    expected = np.divide(gained, model.discount, out=np.zeros_like(value), where=model.discount > 0.0)
    return np.where(truncated[:, None], np.where(following[:, None] >= 0, value, expected), 0.0)


def _with_folds(data: Log, fold: Ints) -> Iterator[tuple[Dataset, Ints]]:
    """Blocks of a log, with the folds of their episodes."""
    first = 0
    for block in data.blocks():
        yield block, fold[first : first + block.n_episodes]
        first += block.n_episodes
