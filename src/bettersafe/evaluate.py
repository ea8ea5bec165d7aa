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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from bettersafe import _native
from bettersafe.errors import ParameterError, PolicyError, check_choice
from bettersafe.mdp import check_policy, dense_q, frozen, policy_values

if TYPE_CHECKING:
    from bettersafe.data import Dataset
    from bettersafe.model import Model

Floats = npt.NDArray[np.float64]
Estimator = Literal["is", "pdis", "wis", "cwpdis", "dr", "wdr", "model"]
ESTIMATORS: tuple[Estimator, ...] = ("is", "pdis", "wis", "cwpdis", "dr", "wdr", "model")
INDEPENDENT: tuple[Estimator, ...] = ("is", "pdis", "dr")
NEEDS_MODEL: tuple[Estimator, ...] = ("dr", "wdr", "model")
KERNEL_ORDER: tuple[Estimator, ...] = ("is", "pdis", "wis", "cwpdis", "dr", "wdr")


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
    max_weight: float
    max_weight_share: float
    unsupported_mass: float
    unsupported_episodes: int
    truncated_episodes: int
    n_episodes: int
    biased: str = ""

    @property
    def trust(self) -> str:
        """Whether to trust the estimate, in plain words."""
        if self.estimator == "model":
            return "This is the model's own opinion: optimistic for a policy that was chosen with it."
        doubts = []
        if self.biased:
            doubts.append(f"it is biased on purpose ({self.biased})")
        if self.ess < 0.02 * self.n_episodes or self.ess < 20.0:
            doubts.append(f"only about {self.ess:.3g} of {self.n_episodes} episodes carry it")
        if self.max_weight_share > 0.1:
            doubts.append(f"one episode has {100 * self.max_weight_share:.0f} % of all weight")
        if self.unsupported_mass > 0.01:
            doubts.append(f"{100 * self.unsupported_mass:.2g} % of what the policy does was never seen")
        if self.truncated_episodes and self.estimator in ("is", "pdis", "wis", "cwpdis"):
            doubts.append(f"{self.truncated_episodes} episodes were cut off and what came after is missing")
        if not doubts:
            return (
                f"Can be used: about {self.ess:.4g} of {self.n_episodes} episodes carry it, and all it does was seen."
            )
        return "Do not rely on it: " + "; ".join(doubts) + "."


def evaluate_policy(
    dataset: Dataset,
    target: npt.ArrayLike,
    baseline: npt.ArrayLike,
    *,
    estimator: Estimator,
    model: Model | None = None,
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
        clip: Cut every trajectory's term to [low, high], each [d]: biased, only to reproduce published numbers.
        drop_unsupported: Leave out episodes with a pair that the model never saw: biased, for the same purpose.
    """
    return evaluate_many(
        dataset, target, baseline, estimators=(estimator,), model=model, clip=clip, drop_unsupported=drop_unsupported
    )[estimator]


def evaluate_many(
    dataset: Dataset,
    target: npt.ArrayLike,
    baseline: npt.ArrayLike,
    *,
    estimators: tuple[Estimator, ...] = ESTIMATORS,
    model: Model | None = None,
    clip: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    drop_unsupported: bool = False,
) -> dict[Estimator, Evaluation]:
    """Several estimators in one pass over the data; the arguments are those of `evaluate_policy`."""
    for estimator in estimators:
        check_choice("estimator", estimator, ESTIMATORS)
        if model is None and estimator in NEEDS_MODEL:
            raise ParameterError(
                f"the estimator {estimator!r} needs a model, fitted on data that the estimate does not use."
            )
    if not dataset.n_episodes:
        raise ParameterError("there are no episodes to evaluate on.")
    labels = dataset.state_labels
    policy = check_policy(target, dataset.n_states, dataset.n_actions, name="target", state_labels=labels)
    behaviour = check_policy(baseline, dataset.n_states, dataset.n_actions, name="baseline", state_labels=labels)
    last = dataset.episode_ptr[1:] - 1
    truncated = ~dataset.terminated[last]

    seen = np.ones(dataset.n_rows, dtype=bool)
    known = behaviour > 0.0
    d = dataset.n_objectives
    v = q = np.empty((0, d))
    tail = np.empty((0, d))
    opinion: Floats | None = None
    if model is not None:
        _check_vocabulary(dataset, model)
        tried = np.zeros(known.shape, dtype=bool)
        tried[model.mdp.pair_state[model.counts > 0], model.mdp.pair_action[model.counts > 0]] = True
        known = known & tried
        seen = tried[dataset.states, dataset.actions]
        state_v, pair_q = policy_values(model.mdp, policy)
        table = dense_q(model.mdp, pair_q)
        opinion = state_v @ model.mdp.initial
        v = np.ascontiguousarray(state_v[:, dataset.states].T)
        q = np.ascontiguousarray(table[:, dataset.states, dataset.actions].T)
        tail = _tail(dataset, model, state_v, table, last, truncated)

    unsupported = np.add.reduceat(~seen, dataset.episode_ptr[:-1]) > 0
    keep = ~unsupported if drop_unsupported else np.ones(dataset.n_episodes, dtype=bool)
    if not np.any(keep):
        raise ParameterError("every episode has a pair that the model never saw; there is nothing left to evaluate on.")
    log_ratio = _log_ratios(dataset, policy, behaviour)
    terms, log_weight = trajectory_terms(
        dataset.episode_ptr,
        log_ratio,
        dataset.rewards,
        np.array([o.discount for o in dataset.objectives]),
        v,
        q,
        tail,
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
    missing = np.where(known, 0.0, policy).sum(axis=1)
    results: dict[Estimator, Evaluation] = {}
    for estimator in estimators:
        if estimator == "model":
            assert opinion is not None
            per, value = np.repeat(opinion[None, :], n, axis=0), opinion
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
            max_weight=float(weights.max()),
            max_weight_share=1.0 / total if total > 0.0 else 0.0,
            unsupported_mass=float(missing[dataset.states].mean()),
            unsupported_episodes=int(unsupported.sum()),
            truncated_episodes=int(truncated.sum()),
            n_episodes=n,
            biased=" and ".join(reasons),
        )
    return results


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


def _tail(
    dataset: Dataset,
    model: Model,
    state_v: Floats,
    table: Floats,
    last: npt.NDArray[np.int64],
    truncated: npt.NDArray[np.bool_],
) -> Floats:
    """The model's value of where each episode was left, shape [n, d]: 0 where it terminated.

    Where the next state is not known, what the model expects of it: (q̂ − r̂)/γ.
    """
    following = dataset.next_states[last]
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
    """The same in NumPy, on trajectories padded to the longest: the weight stays, everything else is 0."""
    n, d = ptr.size - 1, discount.size
    lengths = np.diff(ptr)
    longest = int(lengths.max())
    alive = np.arange(longest) < lengths[:, None]

    def padded(values: Floats) -> Floats:
        table = np.zeros((n, longest, *values.shape[1:]))
        table[alive] = values
        return table

    log_weight = np.cumsum(padded(log_ratio), axis=1)
    weight = np.exp(log_weight)  # [n, T]
    top = log_weight.max(axis=0)
    share = np.exp(log_weight - np.where(np.isfinite(top), top, 0.0))
    total = share.sum(axis=0)
    share = np.divide(share, total, out=np.zeros_like(share), where=total > 0.0)  # w_t, sums to 1
    first = np.full((n, 1), 1.0 / n)
    power = discount[:, None] ** np.arange(longest)  # [d, T]
    r = padded(rewards)
    terms = np.zeros((6, n, d))
    final = share[:, -1]
    for k in range(d):
        gains = power[k] * r[:, :, k]
        plain = gains.sum(axis=1)
        terms[0, :, k] = weight[:, -1] * plain
        terms[1, :, k] = (weight * gains).sum(axis=1)
        value = float(final @ plain)
        terms[2, :, k] = value + n * final * (plain - value)
        means = (share * r[:, :, k]).sum(axis=0)
        terms[3, :, k] = power[k] @ means + n * (share * power[k] * (r[:, :, k] - means)).sum(axis=1)
        if v.size:
            residual = padded(rewards[:, k] - q[:, k])
            values = padded(v[:, k])
            ends = np.zeros((n, longest + 1))
            ends[np.arange(n), lengths] = tail[:, k]
            values = (
                np.hstack([values, np.zeros((n, 1))]) + ends
            )  # v̂ at times 0..T, the tail where an episode was cut off
            powers = discount[k] ** np.arange(longest + 1)
            all_weight = np.hstack([np.ones((n, 1)), weight])
            all_share = np.hstack([first, share])
            terms[4, :, k] = (power[k] * weight * residual).sum(axis=1) + (powers * all_weight * values).sum(axis=1)
            residual_means = (share * residual).sum(axis=0)
            value_means = (all_share * values).sum(axis=0)
            terms[5, :, k] = (
                power[k] @ residual_means
                + powers @ value_means
                + n * (share * power[k] * (residual - residual_means)).sum(axis=1)
                + n * (all_share * powers * (values - value_means)).sum(axis=1)
            )
    return terms, log_weight[:, -1]
