"""Off-policy estimators of J(π) for d objectives.

The estimators and their formulas are in `bettersafe.evaluation.estimators`. Those that use a model take v̂ and q̂ from
a model of other data: a given model (fitted on another part of a split) or, with ``folds``, k models, each fitted without
the fold on which it is used (cross-fitting).

A log that does not fit into memory (`bettersafe.logs.episodes`) is read several times in blocks of whole episodes; only numbers
per episode are kept. The results are bit for bit those of the same log in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np
import numpy.typing as npt

from bettersafe._system.memory import check_memory, evaluation_bytes
from bettersafe.errors import (
    ParameterError,
    check_choice,
    check_integer,
    check_log,
    check_options,
    check_range,
    check_risk,
    check_type,
    check_types,
)
from bettersafe.evaluation.bounds import by_unit, lower_bound
from bettersafe.evaluation.estimators import Trajectories, terms_of_blocks
from bettersafe.evaluation.facts import APPROXIMATE, BOUNDS, ESTIMATORS
from bettersafe.evaluation.marginal import Following, MarginalTerms, following, marginal_terms
from bettersafe.evaluation.value_models import ValueModel, check_support, crossfit, row_values, value_model_of
from bettersafe.logs.dataset import user_sign
from bettersafe.logs.episodes import first_steps, longest_episode, n_units
from bettersafe.mdp.horizon import check_horizon
from bettersafe.mdp.policy import check_policy
from bettersafe.model import Model, check_all_ended, estimate_model
from bettersafe.typing import Floats, Ints, Log, frozen, generator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bettersafe.logs.dataset import Dataset, Objective
    from bettersafe.typing import Bools, Rng


MANY_EPISODES = 50_000
"""Episodes from which available memory is checked; for a small log the check takes longer than the evaluation."""


FOLDS = 5
"""Folds of drl where none are asked for."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Off-policy estimate of J(π), with its diagnostics.

    Attributes:
        estimator: Name of the estimator, a key of `bettersafe.evaluation.ESTIMATORS`.
        value: Estimate, shape [d].
        standard_error: Standard error of the estimate, from the spread of the terms, shape [d]; NaN for "model".
        per_trajectory: Terms whose mean is the estimate, shape [n, d]; linearised if not independent.
        weights: Final weight ρ_{0:H−1} of every trajectory, shape [n].
        independent: Whether the terms are independent.
        ess: Effective sample size of the final weights, (Σρ)²/Σρ²; n if all weights are equal.
        mean_weight: Mean final weight; its expectation is 1 if the baseline's probabilities are correct and positive for every
            action of the target.
        max_weight: Largest final weight ρ_{0:H−1}.
        max_weight_share: Share of the largest weight in the sum of all final weights.
        unsupported_mass: Share of the target's probability, over the logged states, on actions that the baseline never takes
            or, if there is a model, that are not in its data.
        unsupported_episodes: Number of episodes with a logged pair that is not in the model's data.
        truncated_episodes: Number of episodes that are truncated before the horizon; importance sampling misses their later
            rewards.
        n_episodes: Number of episodes, n.
        longest: Rows of the longest episode, up to the horizon.
        horizon: Number of steps H of the returns; None for no limit.
        biased: Reason for an intentional bias (clipping, dropping), or empty.
        endless: With discount 1, number of states from which the policy never ends in the model; there v̂ is the baseline's.
        units: Sampling unit of every episode, shape [n], by which errors and intervals are; None if every episode is one.
    """

    estimator: str
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
    longest: int
    horizon: int | None = None
    biased: str = ""
    endless: int = 0
    units: Ints | None = None

    @property
    def complete(self) -> bool:
        """Whether the estimate is of all steps up to the horizon; if not, it is of the logged steps."""
        return not self.truncated_episodes or ESTIMATORS[self.estimator].fills_in

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons not to rely on the estimate, in plain words; empty if there are none."""
        if not ESTIMATORS[self.estimator].on_trajectories:
            return ("it is the model's own estimate, which is optimistic for a policy chosen with that model",)
        doubts = []
        if self.biased:
            doubts.append(f"it is biased on purpose ({self.biased})")
        if self.few_effective_episodes:
            doubts.append(f"the effective sample size is only about {self.ess:.3g} of {self.n_episodes} episodes")
        if self.max_weight_share > max(0.1, 2.0 / self.n_episodes):
            doubts.append(f"one episode has {100 * self.max_weight_share:.0f} % of all weight")
        weights_alone = not ESTIMATORS[self.estimator].fills_in
        if weights_alone and self._weights_are_off:
            doubts.append(
                f"the mean weight is {self.mean_weight:.3g} instead of 1, so the baseline's probabilities don't fit the data, or the"
                " policy takes decisions that were never seen"
            )
        if self.unsupported_mass > 0.01:
            doubts.append(f"{100 * self.unsupported_mass:.3g} % of the policy's decisions were never seen")
        if not self.complete:
            before = "" if self.horizon is None else f" before step {self.horizon:,}"
            doubts.append(
                f"{self.truncated_episodes} episodes are truncated{before} and their later rewards are missing"
            )
        if self.endless and not weights_alone:
            doubts.append(
                f"from {self.endless} states the policy never reaches an end in the model's data, and the baseline's values are used"
            )
        return tuple(doubts)

    @property
    def trust(self) -> str:
        """Whether to trust the estimate, in plain words."""
        if self.doubts:
            return "Do not rely on it: " + "; ".join(self.doubts) + "."
        unseen = f"{100 * self.unsupported_mass:.2g} %" if self.unsupported_mass > 0.0 else ""
        seen = (
            f"{unseen} of the policy's decisions were never seen" if unseen else "the policy's decisions were all seen"
        )
        return f"Can be used: the effective sample size is about {self.ess:,.0f} of {self.n_episodes:,} episodes, and {seen}."

    @property
    def few_effective_episodes(self) -> bool:
        """Whether the effective sample size is too small for the spread of the terms to be reliable."""
        return self.ess < max(0.02 * self.n_episodes, min(20.0, 0.5 * self.n_episodes))

    @property
    def _weights_are_off(self) -> bool:
        """Whether the mean weight differs from 1 by more than chance."""
        if self.n_episodes < 2 or not np.isfinite(self.mean_weight):
            return True
        chance = float(self.weights.std(ddof=1)) / np.sqrt(self.n_episodes)
        return bool(abs(self.mean_weight - 1.0) > max(4.0 * chance, 0.02))

    def interval(self, delta: float, *, method: str = "t") -> tuple[Floats, Floats]:
        """Two-sided interval at level 1 − δ, each edge of shape [d]: t or bootstrap, both approximate; NaN for "model"."""
        check_choice("interval", method, BOUNDS)
        check_risk(delta)
        if BOUNDS[method].finite_sample:
            raise ParameterError(
                f"the interval must be an approximate one ({', '.join(APPROXIMATE)}); got {method!r}. For a finite-sample bound use"
                " `lower_bound`."
            )
        if not ESTIMATORS[self.estimator].on_trajectories:
            return np.full(self.value.shape, np.nan), np.full(self.value.shape, np.nan)
        terms = by_unit(self.per_trajectory, self.units)
        low = lower_bound(terms, delta / 2.0, method=method)
        return low, -lower_bound(-terms, delta / 2.0, method=method)


def evaluate_policy(
    data: Log,
    target: npt.ArrayLike,
    baseline: npt.ArrayLike,
    *,
    estimator: str,
    model: Model | None = None,
    folds: int | None = None,
    rng: Rng = 0,
    clip: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    drop_unsupported: bool = False,
    horizon: int | None = None,
) -> Evaluation:
    """Estimate J(π) from data collected by the baseline.

    Args:
        data: Episodes, in memory or on disk, that were not used to fit the model.
        target: π, shape [X, A].
        baseline: π_b, shape [X, A].
        estimator: Name of the estimator, a key of `bettersafe.evaluation.ESTIMATORS`.
        model: Model for v̂ and q̂, if the estimator needs one; fitted on other data with the same vocabulary and horizon.
        folds: Number of models to cross-fit on the data, instead of a given model.
        rng: Seed or generator for the split into folds.
        clip: Range [low, high] to which every trajectory's term is clipped, each of shape [d]; biased, only to reproduce
            published numbers.
        drop_unsupported: Whether to drop episodes with a pair that is not in the model's data; biased, for the same purpose.
        horizon: Number of steps H of the returns; None for no limit.

    Examples:
        >>> policy = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy
        >>> found = bettersafe.evaluate_policy(later, policy, baseline, estimator="dr", model=model)
        >>> found.value.shape
        (2,)
        >>> print(found.trust)
        Can be used: the effective sample size is about ... of 1,000 episodes, and the policy's decisions were all seen.
    """
    return evaluate_many(
        data,
        target,
        baseline,
        estimators=(estimator,),
        model=model,
        folds=folds,
        rng=rng,
        clip=clip,
        drop_unsupported=drop_unsupported,
        horizon=horizon,
    )[estimator]


def evaluate_many(
    data: Log,
    target: npt.ArrayLike,
    baseline: npt.ArrayLike,
    *,
    estimators: Sequence[str] = tuple(ESTIMATORS),
    model: Model | None = None,
    folds: int | None = None,
    rng: Rng = 0,
    clip: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    drop_unsupported: bool = False,
    horizon: int | None = None,
) -> dict[str, Evaluation]:
    """Several estimators at once; for the arguments see `evaluate_policy`.

    Examples:
        >>> found = bettersafe.evaluate_many(later, baseline, baseline, folds=5)
        >>> sorted(found)
        ['cwpdis', 'dr', 'drl', 'is', 'mis', 'model', 'pdis', 'wdr', 'wis']
    """
    check_log("data", data)
    check_options(drop_unsupported=drop_unsupported)
    check_horizon(horizon)
    rng = generator(rng)
    _check_asked(data, estimators, model, folds)
    if horizon is None:
        check_all_ended(data.objectives, data.n_truncated, data.n_episodes)
    policy = check_policy(target, data.n_states, data.n_actions, name="target", state_labels=data.state_labels)
    behaviour = check_policy(baseline, data.n_states, data.n_actions, name="baseline", state_labels=data.state_labels)
    fitted_on, data = data, first_steps(data, horizon)  # models may use later rows too
    steps = 0 if horizon is None else longest_episode(data)
    value_models: tuple[ValueModel, ...] = ()
    fold = np.zeros(data.n_episodes, dtype=np.int64)
    followed: tuple[Following, ...] | None = None
    if model is not None:
        _check_model(data, model, horizon)
        value_models = (value_model_of(model, policy, behaviour, steps=steps),)
    elif folds is not None:

        def make(fit: Model) -> tuple[ValueModel, Following | None]:
            used = following(fit, policy, behaviour) if "drl" in estimators else None
            return value_model_of(fit, policy, behaviour, steps=steps), used

        both, fold = crossfit(fitted_on, behaviour, folds, rng, make, horizon=horizon, steps=steps)
        value_models = tuple(values for values, _ in both)
        followed = tuple(used for _, used in both if used is not None)
    survey = check_support(data, policy, behaviour, value_models, fold)
    keep = ~survey.unsupported if drop_unsupported else np.ones(data.n_episodes, dtype=bool)
    if not np.any(keep):
        raise ParameterError(
            "every episode has a pair that is not in the model's data; no episode is left to evaluate on."
        )
    reasons = []
    if drop_unsupported:
        reasons.append(f"{int(survey.unsupported.sum())} episodes were dropped")
    if clip is not None:
        reasons.append("terms were clipped")
    shared: _Shared = {
        "unsupported_episodes": int(survey.unsupported.sum()),
        "truncated_episodes": data.n_truncated,
        "n_episodes": int(keep.sum()),
        "longest": survey.longest,
        "horizon": horizon,
        "endless": max((values.endless for values in value_models), default=0),
        "biased": " and ".join(reasons),
        "units": None if data.units is None else data.units[keep],
    }
    limits = None if clip is None else check_range("clip", clip, data.n_objectives)
    along = [name for name in estimators if not ESTIMATORS[name].marginal]
    results = {}
    if along:
        with np.errstate(divide="ignore", invalid="ignore"):  # ln 0 = −inf is intended; no row has π_b = 0
            log_ratio = np.log(policy) - np.log(behaviour)
        results = _along_trajectories(
            data, along, log_ratio, value_models, fold, keep, limits=limits, missing=survey.missing, shared=shared
        )
    for name in estimators:
        if ESTIMATORS[name].marginal:
            found = _marginal(fitted_on, policy, behaviour, name, followed, fold, rng, horizon=horizon)
            results[name] = _of_marginal(name, found, keep, limits, shared)
    return {name: results[name] for name in estimators}


class _Shared(TypedDict):
    """Fields of `Evaluation` that all estimators share."""

    unsupported_episodes: int
    truncated_episodes: int
    n_episodes: int
    longest: int
    horizon: int | None
    endless: int
    biased: str
    units: Ints | None


def _along_trajectories(
    data: Log,
    estimators: Sequence[str],
    log_ratio: Floats,
    value_models: tuple[ValueModel, ...],
    fold: Ints,
    keep: Bools,
    *,
    limits: tuple[Floats, Floats] | None,
    missing: float,
    shared: _Shared,
) -> dict[str, Evaluation]:
    """Estimators with weights along trajectories, and the model's own estimate; ``log_ratio`` is ln π/π_b, shape [X, A]."""

    def trajectories() -> Iterator[Trajectories]:
        first = 0
        for block in data.blocks():
            place = slice(first, first + block.n_episodes)
            first = place.stop
            yield from _trajectories(block, log_ratio, value_models, fold[place], keep[place])

    terms, log_weight = terms_of_blocks(
        trajectories,
        np.array([o.discount for o in data.objectives]),
        has_model=bool(value_models),
        weighted=any(ESTIMATORS[estimator].normalised for estimator in estimators),
    )
    with np.errstate(over="ignore"):  # a weight beyond 1e308 becomes infinite
        of_weights = _of_weights(log_weight, np.exp(log_weight))
    results: dict[str, Evaluation] = {}
    for estimator in estimators:
        row = ESTIMATORS[estimator].kernel_row
        value = error = None
        if row is None:
            value = np.mean([values.value for values in value_models], axis=0)
            per, error = np.repeat(value[None, :], log_weight.size, axis=0), np.full(value.size, np.nan)
        else:
            per = terms[row] if limits is None else np.clip(terms[row], *limits)
        results[estimator] = _evaluation(estimator, per, of_weights, missing, shared, value=value, error=error)
    return results


def _marginal(
    data: Log,
    policy: Floats,
    baseline: Floats,
    estimator: str,
    followed: tuple[Following, ...] | None,
    fold: Ints,
    rng: np.random.Generator,
    *,
    horizon: int | None,
) -> MarginalTerms:
    """Terms of mis or drl; drl is cross-fitted here unless visits and values in the models without each fold are ``followed``."""

    def make(fit: Model) -> Following:
        return following(fit, policy, baseline)

    if estimator == "mis":
        own = estimate_model(data, unseen="baseline", baseline=baseline, horizon=horizon)
        return marginal_terms(data, policy, baseline, (make(own),), np.zeros_like(fold), own_model=True)
    if followed is None:
        followed, fold = crossfit(data, baseline, min(FOLDS, n_units(data)), rng, make, horizon=horizon)
    return marginal_terms(data, policy, baseline, followed, fold, own_model=False)


def _of_marginal(
    estimator: str, found: MarginalTerms, keep: Bools, limits: tuple[Floats, Floats] | None, shared: _Shared
) -> Evaluation:
    """Evaluation by a marginalised estimator."""
    per, weights = found.terms[keep], found.weights[keep]
    with np.errstate(divide="ignore"):  # ln 0 = −inf is intended
        of_weights = _of_weights(np.log(weights), weights)
    return _evaluation(estimator, per if limits is None else np.clip(per, *limits), of_weights, found.missing, shared)


def _evaluation(
    estimator: str,
    per: Floats,
    of_weights: _OfWeights,
    missing: float,
    shared: _Shared,
    *,
    value: Floats | None = None,
    error: Floats | None = None,
) -> Evaluation:
    """Evaluation from terms [n, d]; by default with their mean and its standard error."""
    if error is None:
        terms = by_unit(per, shared["units"])
        n = terms.shape[0]
        error = terms.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(per.shape[1], np.nan)
    return Evaluation(
        estimator=estimator,
        value=per.mean(axis=0) if value is None else value,
        standard_error=error,
        per_trajectory=frozen(per, np.float64),
        independent=ESTIMATORS[estimator].independent,
        unsupported_mass=missing,
        **of_weights,
        **shared,
    )


class _OfWeights(TypedDict):
    """Fields of `Evaluation` about the weights of trajectories."""

    weights: Floats
    ess: float
    mean_weight: float
    max_weight: float
    max_weight_share: float


def _of_weights(log_weight: Floats, weights: Floats) -> _OfWeights:
    """Statistics of the weights of trajectories [n], which may be infinite, from them and their logarithms."""
    top = float(np.max(log_weight))
    relative = np.exp(log_weight - top) if np.isfinite(top) else np.zeros(log_weight.size)
    total = float(relative.sum())
    return {
        "weights": frozen(weights, np.float64),
        "ess": total**2 / float(relative @ relative) if total > 0.0 else 0.0,
        "mean_weight": float(weights.mean()),
        "max_weight": float(weights.max()),
        "max_weight_share": 1.0 / total if total > 0.0 else 0.0,
    }


def _check_asked(data: Log, estimators: Sequence[str], model: Model | None, folds: int | None) -> None:
    """Raises an error if an estimator lacks a model, there are no episodes, or the terms don't fit into memory."""
    check_types("estimators", estimators, str)
    check_type("model", model, Model, optional=True)
    for estimator in estimators:
        check_choice("estimator", estimator, ESTIMATORS)
        if model is None and folds is None and ESTIMATORS[estimator].needs_model:
            raise ParameterError(
                f"the estimator {estimator!r} needs a model fitted on other data: give model=, or folds= for cross-fitting."
            )
    check_integer("folds", folds, least=1, optional=True)
    if model is not None and folds is not None:
        raise ParameterError("give a model or a number of folds, not both.")
    if not data.n_episodes:
        raise ParameterError("there are no episodes to evaluate on.")
    if data.n_episodes >= MANY_EPISODES:
        needed = evaluation_bytes(data.n_episodes, data.n_objectives)
        check_memory(needed, f"off-policy evaluation of {data.n_episodes:,} episodes")


def fold_seed(rng: Rng) -> int:
    """Seed of a split into folds that is the same for policy and baseline."""
    return int(generator(rng).integers(2**63))


class EstimateRow(TypedDict):
    """Off-policy estimate of one objective by one estimator, with diagnostics, in the sign of the log: a row of evaluation.parquet."""

    estimator: str
    objective: str
    value: float
    standard_error: float
    low: float
    high: float
    baseline_value: float
    baseline_low: float
    baseline_high: float
    level: float
    interval: str
    horizon: int | None
    complete: bool
    longest_episode: int
    episodes: int
    effective_sample_size: float
    mean_weight: float
    largest_weight: float
    largest_weight_share: float
    unsupported_share: float
    unsupported_episodes: int
    truncated_episodes: int
    usable: bool
    trust: str


def comparison_rows(
    data: Log,
    policy: Floats,
    baseline: Floats,
    *,
    estimators: Sequence[str] = tuple(ESTIMATORS),
    model: Model | None = None,
    folds: int | None = None,
    rng: Rng = 0,
    delta: float,
    interval: str = "t",
    horizon: int | None = None,
) -> list[EstimateRow]:
    """Estimates of policy and baseline as flat rows, one per estimator and objective, in the sign of the log.

    Both returns of a row are of the same steps: up to the horizon if it is "complete", else the logged ones. The first rows,
    with estimator "logged", are the baseline's return in the log.

    Args:
        data: Episodes, as for `evaluate_many`.
        policy: π, shape [X, A].
        baseline: π_b, shape [X, A].
        estimators: Names of the estimators.
        model: As for `evaluate_many`.
        folds: As for `evaluate_many`.
        rng: Seed or generator for the split into folds, which is the same for both policies and as in a test with this seed.
        delta: δ; the level of the intervals is 1 − δ.
        interval: "t", "bootstrap" or "bca".
        horizon: Number of steps H of the returns; None for no limit.
    """
    seed = fold_seed(rng)
    # without a model, all estimates of the baseline are its logged return
    modelled = tuple(name for name in estimators if ESTIMATORS[name].fills_in)
    needs_model = any(ESTIMATORS[name].needs_model for name in modelled)
    own = evaluate_many(
        data,
        baseline,
        baseline,
        estimators=("is", *modelled),
        model=model if needs_model else None,
        folds=folds if any(ESTIMATORS[name].has_folds for name in modelled) else None,
        rng=seed,
        horizon=horizon,
    )
    estimates = {name: (result.value, *result.interval(delta, method=interval)) for name, result in own.items()}
    logged = evaluation_rows({"is": own["is"]}, data.objectives, baseline=estimates, delta=delta, interval=interval)
    del own  # its terms take as much memory as those of the policy
    found = evaluate_many(
        data, policy, baseline, estimators=estimators, model=model, folds=folds, rng=seed, horizon=horizon
    )
    rows = evaluation_rows(found, data.objectives, baseline=estimates, delta=delta, interval=interval)
    as_logged: list[EstimateRow] = [
        {**row, "estimator": "logged", "usable": True, "trust": "Return of the baseline in the log."} for row in logged
    ]
    return [*as_logged, *rows]


Estimate = tuple[Floats, Floats, Floats]
"""Estimated return and the edges of its interval, each of shape [d]."""


def evaluation_rows(
    results: Mapping[str, Evaluation],
    objectives: tuple[Objective, ...],
    *,
    baseline: Mapping[str, Estimate],
    delta: float,
    interval: str = "t",
) -> list[EstimateRow]:
    """Evaluations as flat rows, one per estimator and objective, in the sign of the log.

    Args:
        results: Evaluations from `evaluate_many`.
        objectives: Objectives, length d.
        baseline: Estimates of the baseline's return, by estimator; for other estimators that of "is" is taken.
        delta: δ; the level of the intervals is 1 − δ.
        interval: "t", "bootstrap" or "bca".
    """
    rows: list[EstimateRow] = []
    for estimator, result in results.items():
        estimates = (result.value, *result.interval(delta, method=interval)), baseline.get(estimator, baseline["is"])
        for k, objective in enumerate(objectives):
            (value, *edges), (own, *own_edges) = (
                [user_sign(objective, each[k]) for each in three] for three in estimates
            )
            rows.append(
                {
                    "estimator": estimator,
                    "objective": objective.name,
                    "value": value,
                    "standard_error": float(result.standard_error[k]),
                    "low": min(edges),
                    "high": max(edges),
                    "baseline_value": own,
                    "baseline_low": min(own_edges),
                    "baseline_high": max(own_edges),
                    "level": 1.0 - delta,
                    "interval": interval,
                    "horizon": result.horizon,
                    "complete": result.complete,
                    "longest_episode": result.longest,
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


def _trajectories(
    block: Dataset,
    log_ratio: Floats,
    value_models: tuple[ValueModel, ...],
    fold: Ints,
    keep: Bools,
) -> Iterator[Trajectories]:
    """Rows of a block for the estimators, with ln π/π_b [X, A]; yields nothing if no episode is kept."""
    rewards, ptr = block.rewards, block.episode_ptr
    ratios = log_ratio[block.states, block.actions]
    v, q, tail = row_values(block, value_models, fold)
    if not np.all(keep):
        rows = np.repeat(keep, np.diff(ptr))
        ptr = np.concatenate([[0], np.cumsum(np.diff(ptr)[keep])])
        ratios, rewards = ratios[rows], rewards[rows]
        v, q, tail = (v[rows], q[rows], tail[keep]) if value_models else (v, q, tail)
    if ptr.size > 1:
        yield Trajectories(ptr=ptr, log_ratio=ratios, rewards=rewards, v=v, q=q, tail=tail)


def _check_model(data: Log, model: Model, horizon: int | None) -> None:
    """Raises ParameterError if the model has another vocabulary, other objectives or another horizon."""
    if not (
        np.array_equal(data.state_labels, model.state_labels)
        and np.array_equal(data.action_labels, model.action_labels)
    ):
        raise ParameterError(
            "the model and the data must have the same states and actions; split one dataset to get both."
        )
    names = tuple(objective.name for objective in data.objectives)
    if names != model.objectives:
        raise ParameterError(
            f"the model has the objectives {', '.join(model.objectives)}, the data {', '.join(names)}."
        )
    if model.horizon != horizon:
        asked, own = ("no limit" if steps is None else f"{steps:,} steps" for steps in (horizon, model.horizon))
        raise ParameterError(
            f"the returns have a horizon of {asked}, but the model of {own}: estimate the model with the same horizon.",
            setting="horizon",
        )
