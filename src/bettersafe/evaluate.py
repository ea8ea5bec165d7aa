"""What a policy is worth, from data that another one made: off-policy estimators, for d objectives at once.

For trajectory i with ρ_t = π(a_t|x_t)/π_b(a_t|x_t), ρ_{0:t} the running product and H_i its length:

    is       ρ_{0:H−1} Σ_t γ^t r_t
    pdis     Σ_t γ^t ρ_{0:t} r_t
    dr       V_0,  V_t = v̂(x_t) + ρ_t (r_t + γ V_{t+1} − q̂(x_t,a_t)),  V_H = v̂(x_H) if cut off, 0 if terminated
    wis      Σ_i ρ^i G_i / Σ_i ρ^i
    cwpdis   Σ_t γ^t Σ_i ρ^i_{0:t} r^i_t / Σ_i ρ^i_{0:t}
    wdr      Σ_t γ^t [ Σ_i w^i_t (r_t − q̂_t) + w^i_{t−1} v̂_t ],  w^i_t = ρ^i_{0:t} / Σ_j ρ^j_{0:t},  w_{−1} = 1/n
    model    v̂(μ): no trajectories, the estimated model alone

is, pdis and dr are means of independent terms, one per trajectory. The weighted ones are not: their terms here are
linearised (the estimate plus the influence of the trajectory), good for approximate bounds alone. Episodes that ended
keep their last weight in every normaliser. Weights are products: they are handled in logs.

v̂ and q̂ come from a model of data that the estimate does not use: a model that is given (fitted on another part of a
split), or, with ``folds``, k models, each fitted without the fold that it is used on (cross-fitting).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from bettersafe import _native
from bettersafe.bounds import Bound, is_finite_sample, lower_bound
from bettersafe.data import take_episodes, user_sign
from bettersafe.errors import ParameterError, PolicyError, check_choice
from bettersafe.mdp import check_policy, dense_q, frozen, policy_values
from bettersafe.model import estimate_model

if TYPE_CHECKING:
    from bettersafe.data import Dataset, Objective
    from bettersafe.model import Model

Floats = npt.NDArray[np.float64]
Estimator = Literal["is", "pdis", "wis", "cwpdis", "dr", "wdr", "model"]
ESTIMATORS: tuple[Estimator, ...] = ("is", "pdis", "wis", "cwpdis", "dr", "wdr", "model")
INDEPENDENT: tuple[Estimator, ...] = ("is", "pdis", "dr")
NEEDS_MODEL: tuple[Estimator, ...] = ("dr", "wdr", "model")
KERNEL_ORDER: tuple[Estimator, ...] = ("is", "pdis", "wis", "cwpdis", "dr", "wdr")

PADDED_CELLS = 2_000_000
"""Cells (episodes × longest) that the NumPy engine pads at a time; bounds its memory."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """An estimate of J(π) with what doubts it.

    Attributes:
        estimator: Which one.
        value: The estimate, shape [d].
        standard_error: Of the estimate, from the spread of the terms, shape [d]; NaN for "model".
        per_trajectory: Terms whose mean is the estimate, shape [n, d]; linearised where not independent.
        weights: Final weight ρ_{0:H−1} of every trajectory, shape [n].
        independent: Whether the terms are independent.
        ess: Effective sample size of the final weights, (Σρ)²/Σρ²; n when nothing is reweighted.
        mean_weight: Mean final weight; its expectation is 1 if the baseline's probabilities are right and nothing that the
            target does is missing from them.
        max_weight: Largest final weight ρ_{0:H−1}.
        max_weight_share: Its share of all final weights.
        unsupported_mass: Share of the target's probability, over the logged states, on actions the baseline never plays
            or, where there is a model, that the model never saw.
        unsupported_episodes: Episodes with a logged pair that the model never saw.
        truncated_episodes: Episodes that were cut off; importance sampling misses what came after.
        n_episodes: n.
        biased: Why the estimate is biased on purpose (clipping, dropping), or empty.
    """

    estimator: Estimator
    value: Floats
    standard_error: Floats
    per_trajectory: Floats
    weights: Floats
    independent: bool
    ess: float
    mean_weight: float
    max_weight: float
    max_weight_share: float
    unsupported_mass: float
    unsupported_episodes: int
    truncated_episodes: int
    n_episodes: int
    biased: str = ""

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons not to rely on the estimate, in plain words; empty if there are none."""
        if self.estimator == "model":
            return ("it is the model's own opinion, optimistic for a policy that was chosen with it",)
        doubts = []
        if self.biased:
            doubts.append(f"it is biased on purpose ({self.biased})")
        if self.few_carry_it:
            doubts.append(f"only about {self.ess:.3g} of {self.n_episodes} episodes carry it")
        if self.max_weight_share > max(0.1, 2.0 / self.n_episodes):
            doubts.append(f"one episode has {100 * self.max_weight_share:.0f} % of all weight")
        if self.estimator in ("is", "pdis", "wis", "cwpdis") and self._weights_are_off:
            doubts.append(
                f"weights average {self.mean_weight:.3g} where they should average 1, so the baseline's probabilities don't fit the"
                " data, or the policy does what was never seen"
            )
        if self.unsupported_mass > 0.01:
            doubts.append(f"{100 * self.unsupported_mass:.3g} % of what the policy does was never seen")
        if self.truncated_episodes and self.estimator in ("is", "pdis", "wis", "cwpdis"):
            doubts.append(f"{self.truncated_episodes} episodes were cut off and what came after is missing")
        return tuple(doubts)

    @property
    def trust(self) -> str:
        """Whether to trust the estimate, in plain words."""
        if self.doubts:
            return "Do not rely on it: " + "; ".join(self.doubts) + "."
        unseen = f"{100 * self.unsupported_mass:.2g} % of" if self.unsupported_mass > 0.0 else "nothing of"
        return (
            f"Can be used: about {self.ess:,.0f} of {self.n_episodes:,} episodes carry it, and {unseen} what the policy does was"
            " never seen."
        )

    @property
    def few_carry_it(self) -> bool:
        """Whether the weights rest on too few episodes for the spread of the terms to be believed."""
        return self.ess < max(0.02 * self.n_episodes, min(20.0, 0.5 * self.n_episodes))

    @property
    def _weights_are_off(self) -> bool:
        """Whether the mean weight is away from 1 by more than chance explains."""
        if self.n_episodes < 2 or not np.isfinite(self.mean_weight):
            return True
        chance = float(self.weights.std(ddof=1)) / np.sqrt(self.n_episodes)
        return bool(abs(self.mean_weight - 1.0) > max(4.0 * chance, 0.02))

    def interval(self, delta: float, *, method: Bound = "t") -> tuple[Floats, Floats]:
        """Two-sided interval at level 1 − δ, each [d]: t or the bootstrap, both approximate; NaN for "model"."""
        if is_finite_sample(method):
            raise ParameterError(
                f"intervals are approximate (t, bootstrap, bca); got {method!r}. For a finite-sample bound use `lower_bound`."
            )
        if self.estimator == "model":
            return np.full(self.value.shape, np.nan), np.full(self.value.shape, np.nan)
        low = lower_bound(self.per_trajectory, delta / 2.0, method=method)
        return low, -lower_bound(-self.per_trajectory, delta / 2.0, method=method)


def evaluate_policy(
    dataset: Dataset,
    target: npt.ArrayLike,
    baseline: npt.ArrayLike,
    *,
    estimator: Estimator,
    model: Model | None = None,
    folds: int | None = None,
    rng: np.random.Generator | None = None,
    clip: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    drop_unsupported: bool = False,
) -> Evaluation:
    """Estimate J(π) from data that the baseline made.

    Args:
        dataset: Episodes that the model, if any, was not fitted on.
        target: π, shape [X, A].
        baseline: π_b, shape [X, A].
        estimator: "is", "pdis", "wis", "cwpdis", "dr", "wdr" or "model".
        model: v̂ and q̂ for "dr", "wdr" and "model"; fitted on other data, with the same vocabulary.
        folds: Instead of a model: fit this many on the data itself, each without the fold that it is used on.
        rng: Draws the folds; a generator seeded with 0 if left out, so that the answer repeats.
        clip: Cut every trajectory's term to [low, high], each [d]: biased, only to reproduce published numbers.
        drop_unsupported: Leave out episodes with a pair that the model never saw: biased, for the same purpose.
    """
    return evaluate_many(
        dataset,
        target,
        baseline,
        estimators=(estimator,),
        model=model,
        folds=folds,
        rng=rng,
        clip=clip,
        drop_unsupported=drop_unsupported,
    )[estimator]


def evaluate_many(
    dataset: Dataset,
    target: npt.ArrayLike,
    baseline: npt.ArrayLike,
    *,
    estimators: tuple[Estimator, ...] = ESTIMATORS,
    model: Model | None = None,
    folds: int | None = None,
    rng: np.random.Generator | None = None,
    clip: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    drop_unsupported: bool = False,
) -> dict[Estimator, Evaluation]:
    """Several estimators in one pass over the data; the arguments are those of `evaluate_policy`."""
    for estimator in estimators:
        check_choice("estimator", estimator, ESTIMATORS)
        if model is None and folds is None and estimator in NEEDS_MODEL:
            raise ParameterError(
                f"the estimator {estimator!r} needs a model, fitted on data that the estimate does not use: give model=, or"
                " folds= to fit one for each fold on the others."
            )
    if model is not None and folds is not None:
        raise ParameterError("give a model or a number of folds, not both.")
    if not dataset.n_episodes:
        raise ParameterError("there are no episodes to evaluate on.")
    labels = dataset.state_labels
    policy = check_policy(target, dataset.n_states, dataset.n_actions, name="target", state_labels=labels)
    behaviour = check_policy(baseline, dataset.n_states, dataset.n_actions, name="baseline", state_labels=labels)
    last = dataset.episode_ptr[1:] - 1
    truncated = ~dataset.terminated[last]

    known = behaviour > 0.0
    opinion = _no_opinion(dataset, policy, known)
    if model is not None:
        _check_vocabulary(dataset, model)
        opinion = _model_opinion(dataset, model, policy, known)
    elif folds is not None:
        opinion = _crossfit(dataset, policy, behaviour, folds, np.random.default_rng(0) if rng is None else rng)

    unsupported = np.add.reduceat(~opinion.seen, dataset.episode_ptr[:-1]) > 0
    keep = ~unsupported if drop_unsupported else np.ones(dataset.n_episodes, dtype=bool)
    if not np.any(keep):
        raise ParameterError("every episode has a pair that the model never saw; there is nothing left to evaluate on.")
    log_ratio = _log_ratios(dataset, policy, behaviour)
    terms, log_weight = trajectory_terms(
        dataset.episode_ptr,
        log_ratio,
        dataset.rewards,
        np.array([o.discount for o in dataset.objectives]),
        opinion.v,
        opinion.q,
        opinion.tail,
        keep,
    )

    n = log_weight.size
    top = float(np.max(log_weight))
    relative = np.exp(log_weight - top) if np.isfinite(top) else np.zeros(n)
    total = float(relative.sum())
    with np.errstate(over="ignore"):  # a weight beyond 1e308 is infinite, and is shown so
        weights = frozen(np.exp(log_weight), np.float64)
    reasons = []
    if drop_unsupported:
        reasons.append(f"{int(unsupported.sum())} episodes were dropped")
    if clip is not None:
        reasons.append("terms were clipped")
    d = dataset.n_objectives
    results: dict[Estimator, Evaluation] = {}
    for estimator in estimators:
        if estimator == "model":
            value = opinion.value
            per = np.repeat(value[None, :], n, axis=0)
            error = np.full(d, np.nan)
        else:
            per = terms[KERNEL_ORDER.index(estimator)]
            if clip is not None:
                per = np.clip(per, np.asarray(clip[0], float), np.asarray(clip[1], float))
            value = per.mean(axis=0)
            error = per.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(d, np.nan)
        results[estimator] = Evaluation(
            estimator=estimator,
            value=value,
            standard_error=error,
            per_trajectory=frozen(per, np.float64),
            weights=weights,
            independent=estimator in INDEPENDENT,
            ess=total**2 / float(relative @ relative) if total > 0.0 else 0.0,
            mean_weight=float(weights.mean()),
            max_weight=float(weights.max()),
            max_weight_share=1.0 / total if total > 0.0 else 0.0,
            unsupported_mass=float(opinion.missing.mean()),
            unsupported_episodes=int(unsupported.sum()),
            truncated_episodes=int(truncated.sum()),
            n_episodes=n,
            biased=" and ".join(reasons),
        )
    return results


def evaluation_rows(
    results: dict[Estimator, Evaluation], objectives: tuple[Objective, ...], *, delta: float, interval: Bound = "t"
) -> list[dict[str, Any]]:
    """Several evaluations as flat rows, one per estimator and objective, in the user's own sign.

    Args:
        results: From `evaluate_many`.
        objectives: Length d.
        delta: Intervals are at level 1 − δ.
        interval: "t", "bootstrap" or "bca".
    """
    rows = []
    for estimator, result in results.items():
        low, high = result.interval(delta, method=interval)
        for k, objective in enumerate(objectives):
            edges = (user_sign(objective, low[k]), user_sign(objective, high[k]))
            rows.append(
                {
                    "estimator": estimator,
                    "objective": objective.name,
                    "value": user_sign(objective, result.value[k]),
                    "standard_error": float(result.standard_error[k]),
                    "low": min(edges),
                    "high": max(edges),
                    "level": 1.0 - delta,
                    "interval": interval,
                    "episodes": result.n_episodes,
                    "effective_sample_size": result.ess,
                    "mean_weight": result.mean_weight,
                    "largest_weight": result.max_weight,
                    "largest_weight_share": result.max_weight_share,
                    "unsupported_share": result.unsupported_mass,
                    "unsupported_episodes": result.unsupported_episodes,
                    "truncated_episodes": result.truncated_episodes,
                    "usable": not result.doubts,
                    "trust": result.trust,
                }
            )
    return rows


def logged_rows(dataset: Dataset, baseline: Floats, *, delta: float, interval: Bound = "t") -> list[dict[str, Any]]:
    """What the baseline [X, A] earned in its own log, as rows like those of `evaluation_rows`, estimator "logged"."""
    own = evaluate_many(dataset, baseline, baseline, estimators=("is",))
    plain = {"estimator": "logged", "usable": True, "trust": "What the baseline earned in the log."}
    return [{**row, **plain} for row in evaluation_rows(own, dataset.objectives, delta=delta, interval=interval)]


@dataclass(frozen=True, kw_only=True)
class _Opinion:
    """What a model says of the rows: v̂(x_t) and q̂(x_t,a_t) [N, d], its value where episodes were left [n, d], v̂(μ) [d],
    whether it saw the pair [N], and the target's probability on what is not supported in the row's state [N].
    """

    v: Floats
    q: Floats
    tail: Floats
    value: Floats
    seen: npt.NDArray[np.bool_]
    missing: Floats


def _no_opinion(dataset: Dataset, policy: Floats, known: npt.NDArray[np.bool_]) -> _Opinion:
    nothing = np.empty((0, dataset.n_objectives))
    missing = np.where(known, 0.0, policy).sum(axis=1)[dataset.states]
    everything = np.ones(dataset.n_rows, dtype=bool)
    return _Opinion(v=nothing, q=nothing, tail=nothing, value=nothing.sum(axis=0), seen=everything, missing=missing)


def _model_opinion(dataset: Dataset, model: Model, policy: Floats, known: npt.NDArray[np.bool_]) -> _Opinion:
    tried = np.zeros(known.shape, dtype=bool)
    tried[model.mdp.pair_state[model.counts > 0], model.mdp.pair_action[model.counts > 0]] = True
    state_v, pair_q = policy_values(model.mdp, policy)
    table = dense_q(model.mdp, pair_q)
    return _Opinion(
        v=np.ascontiguousarray(state_v[:, dataset.states].T),
        q=np.ascontiguousarray(table[:, dataset.states, dataset.actions].T),
        tail=_tail(dataset, model, state_v, table),
        value=state_v @ model.mdp.initial,
        seen=tried[dataset.states, dataset.actions],
        missing=np.where(known & tried, 0.0, policy).sum(axis=1)[dataset.states],
    )


def _crossfit(dataset: Dataset, policy: Floats, behaviour: Floats, folds: int, rng: np.random.Generator) -> _Opinion:
    """Opinions of k models put together, each on the fold that it was not fitted on; their v̂(μ) averaged."""
    n = dataset.n_episodes
    if not 2 <= folds <= n:
        raise ParameterError(f"folds must be at least 2 and at most the number of episodes, {n}; got {folds}.")
    d = dataset.n_objectives
    v, q, tail = np.empty((dataset.n_rows, d)), np.empty((dataset.n_rows, d)), np.empty((n, d))
    seen, missing = np.empty(dataset.n_rows, dtype=bool), np.empty(dataset.n_rows)
    values = []
    order = rng.permutation(n)
    row_episode = np.repeat(np.arange(n), np.diff(dataset.episode_ptr))
    for part in np.array_split(order, folds):
        fold = np.sort(part)
        inside = np.zeros(n, dtype=bool)
        inside[fold] = True
        # what a pair never tried is worth is anybody's guess; the baseline's value is the most neutral one
        others = take_episodes(dataset, np.flatnonzero(~inside))
        model = estimate_model(others, unseen="baseline", baseline=behaviour)
        one = _model_opinion(take_episodes(dataset, fold), model, policy, behaviour > 0.0)
        rows = inside[row_episode]
        v[rows], q[rows], tail[fold], seen[rows], missing[rows] = one.v, one.q, one.tail, one.seen, one.missing
        values.append(one.value)
    return _Opinion(v=v, q=q, tail=tail, value=np.mean(values, axis=0), seen=seen, missing=missing)


def _check_vocabulary(dataset: Dataset, model: Model) -> None:
    if not (
        np.array_equal(dataset.state_labels, model.state_labels)
        and np.array_equal(dataset.action_labels, model.action_labels)
    ):
        raise ParameterError(
            "the model and the data must have the same states and actions; split one dataset to get both."
        )
    names = tuple(objective.name for objective in dataset.objectives)
    if names != model.objectives:
        raise ParameterError(
            f"the model has the objectives {', '.join(model.objectives)}, the data {', '.join(names)}."
        )


def _tail(dataset: Dataset, model: Model, state_v: Floats, table: Floats) -> Floats:
    """The model's value of where each episode was left, shape [n, d]: 0 where it terminated.

    Where the next state is not known, what the model expects of it: (q̂ − r̂)/γ.
    """
    last = dataset.episode_ptr[1:] - 1
    following, truncated = dataset.next_states[last], ~dataset.terminated[last]
    value = state_v[:, np.maximum(following, 0)]
    mdp = model.mdp
    reward = np.zeros((mdp.n_objectives, mdp.n_states, mdp.n_actions))
    reward[:, mdp.pair_state, mdp.pair_action] = mdp.reward
    x, a = dataset.states[last], dataset.actions[last]
    gamma = mdp.discount[:, None]
    expected = np.divide(table[:, x, a] - reward[:, x, a], gamma, out=np.zeros_like(value), where=gamma > 0.0)
    return np.ascontiguousarray(np.where(truncated, np.where(following >= 0, value, expected), 0.0).T)


def _log_ratios(dataset: Dataset, target: Floats, baseline: Floats) -> Floats:
    """Ln π(a|x)/π_b(a|x) of every row; −inf where the target would not have done it."""
    denominator = baseline[dataset.states, dataset.actions]
    impossible = np.flatnonzero(denominator <= 0.0)
    if impossible.size:
        row = int(impossible[0])
        state, action = dataset.state_labels[dataset.states[row]], dataset.action_labels[dataset.actions[row]]
        raise PolicyError(
            f"the data has action {str(action)!r} in state {str(state)!r}, which the baseline never plays: its weight would be"
            " infinite. Correct the baseline, or estimate it from the data."
        )
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(target[dataset.states, dataset.actions]) - np.log(denominator))


def trajectory_terms(
    ptr: npt.NDArray[np.int64],
    log_ratio: Floats,
    rewards: Floats,
    discount: Floats,
    v: Floats,
    q: Floats,
    tail: Floats,
    keep: npt.NDArray[np.bool_] | None = None,
) -> tuple[Floats, Floats]:
    """Terms of all six estimators, [6, n, d] in KERNEL_ORDER, and log ρ_{0:H−1}, [n].

    Args:
        ptr: Rows of trajectory i are ptr[i]:ptr[i+1], shape [n+1].
        log_ratio: ln ρ of every row, shape [N].
        rewards: Shape [N, d].
        discount: Shape [d].
        v: v̂(x_t), shape [N, d]; empty without a model (then dr and wdr are 0).
        q: q̂(x_t, a_t), shape [N, d].
        tail: Value at the end, shape [n, d].
        keep: Trajectories to use; all if left out.
    """
    if keep is not None and not np.all(keep):
        rows = np.repeat(keep, np.diff(ptr))
        ptr = np.concatenate([[0], np.cumsum(np.diff(ptr)[keep])])
        log_ratio, rewards = log_ratio[rows], rewards[rows]
        v, q, tail = (v[rows], q[rows], tail[keep]) if v.size else (v, q, tail)
    n, d = ptr.size - 1, discount.size
    has_model = v.size > 0
    if _native.kernel is not None:
        terms, log_weight = np.empty((6, n, d)), np.empty(n)
        arrays = [np.ascontiguousarray(a, dtype=np.float64) for a in (log_ratio, rewards, discount)]
        _native.kernel.estimate(
            np.ascontiguousarray(ptr, dtype=np.int64), *arrays, has_model, v, q, tail, terms, log_weight
        )
        return terms, log_weight
    return _numpy_terms(ptr, log_ratio, rewards, discount, v, q, tail)


def _numpy_terms(
    ptr: npt.NDArray[np.int64], log_ratio: Floats, rewards: Floats, discount: Floats, v: Floats, q: Floats, tail: Floats
) -> tuple[Floats, Floats]:
    """The same in NumPy, on trajectories padded to the longest: the weight stays, everything else is 0.

    Two passes over blocks of episodes: the first sums the weights of every step and what they weigh, the second makes
    the terms.
    """
    n, d = ptr.size - 1, discount.size
    lengths = np.diff(ptr)
    longest = int(lengths.max())
    has_model = v.size > 0
    starts = range(0, n, max(1, PADDED_CELLS // (longest + 1)))
    blocks = [slice(start, min(start + starts.step, n)) for start in starts]
    power = discount[:, None] ** np.arange(longest + 1)  # [d, T+1]

    def padded(block: slice, values: Floats) -> Floats:
        """Rows of the block as [n, T+1], 0 after the end."""
        alive = np.arange(longest + 1) < lengths[block, None]
        table = np.zeros(alive.shape)
        table[alive] = values[ptr[block.start] : ptr[block.stop]]
        return table

    def log_weights(block: slice) -> Floats:
        """Ln ρ_{0:t}, [n, T+1]; the last weight is kept."""
        return np.asarray(np.cumsum(padded(block, log_ratio), axis=1))

    def parts(block: slice, k: int) -> tuple[Floats, Floats, Floats]:
        """Rewards, residuals r − q̂ and values v̂ (with the tail where an episode was cut off), each [n, T+1]."""
        r = padded(block, rewards[:, k])
        if not has_model:
            return r, np.zeros_like(r), np.zeros_like(r)
        values = padded(block, v[:, k])
        values[np.arange(values.shape[0]), lengths[block]] += tail[block, k]
        return r, padded(block, rewards[:, k] - q[:, k]), values

    top = np.full(longest + 1, -np.inf)
    for block in blocks:
        top = np.maximum(top, log_weights(block).max(axis=0))
    shift = np.where(np.isfinite(top), top, 0.0)
    total = np.zeros(longest + 1)
    plain_sum, reward_sum, residual_sum, value_sum = np.zeros(d), *(np.zeros((d, longest + 1)) for _ in range(3))
    for block in blocks:
        relative = np.exp(log_weights(block) - shift)
        total += relative.sum(axis=0)
        before = np.hstack([np.zeros((relative.shape[0], 1)), relative[:, :-1]])  # w_{t−1}; w_{−1} = 1/n is set below
        for k in range(d):
            r, residual, values = parts(block, k)
            plain_sum[k] += relative[:, -1] @ (r @ power[k])
            reward_sum[k] += (relative * r).sum(axis=0)
            residual_sum[k] += (relative * residual).sum(axis=0)
            value_sum[k] += (before * values).sum(axis=0)
            value_sum[k, 0] += values[:, 0].sum()
    inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0.0)
    inverse_before = np.append(1.0 / n, inverse[:-1])
    plain_mean, reward_mean, residual_mean = plain_sum * inverse[-1], reward_sum * inverse, residual_sum * inverse
    value_mean = value_sum * inverse_before

    terms, final = np.zeros((6, n, d)), np.empty(n)
    for block in blocks:
        logs = log_weights(block)
        final[block] = logs[:, -1]
        weight = np.exp(logs)
        share = np.exp(logs - shift) * inverse  # w_t, sums to 1 over episodes
        first = np.ones((weight.shape[0], 1))
        weight_before = np.hstack([first, weight[:, :-1]])
        share_before = np.hstack([first / n, share[:, :-1]])
        for k in range(d):
            r, residual, values = parts(block, k)
            plain = r @ power[k]
            terms[0, block, k] = weight[:, -1] * plain
            terms[1, block, k] = (weight * r) @ power[k]
            terms[2, block, k] = plain_mean[k] + n * share[:, -1] * (plain - plain_mean[k])
            terms[3, block, k] = power[k] @ reward_mean[k] + n * (share * (r - reward_mean[k])) @ power[k]
            if has_model:
                terms[4, block, k] = (weight * residual + weight_before * values) @ power[k]
                influence = share * (residual - residual_mean[k]) + share_before * (values - value_mean[k])
                terms[5, block, k] = power[k] @ (residual_mean[k] + value_mean[k]) + n * influence @ power[k]
    return terms, final
