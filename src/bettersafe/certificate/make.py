"""Certificates made from a test, from H-OPT, or from the counts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe.certificate.certificate import Certificate, Evidence, Finding, Floor, Proof, Theory
from bettersafe.errors import ParameterError, check_vector
from bettersafe.evaluation.bounds import lower_bound
from bettersafe.evaluation.evaluate import evaluate_policy
from bettersafe.evaluation.facts import BOUNDS, ESTIMATORS
from bettersafe.evaluation.held_out import SafetyRule, SafetyTest, safety_test
from bettersafe.evaluation.theory import proposition_loss, proven_loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.logs.counts import Counts
    from bettersafe.logs.dataset import Objective
    from bettersafe.methods.h_opt import HOpt
    from bettersafe.model import Model
    from bettersafe.typing import Floats, Log


@dataclass(frozen=True, kw_only=True)
class CrossFit:
    """Models for dr and wdr that are fitted on the other folds of the log that is tested on.

    Attributes:
        folds: How many; None for no model at all.
        seed: Draws the folds.
    """

    folds: int | None
    seed: int = 0

    def rng(self) -> np.random.Generator:
        """The same draws each time."""
        return np.random.default_rng(self.seed)


def certify(
    policy: Floats,
    baseline: Floats,
    held_out: Log,
    rule: SafetyRule,
    *,
    baseline_known: bool,
    thresholds: npt.ArrayLike | None = None,
    tuning: Log | None = None,
    model: Model | CrossFit | None = None,
    training_baseline: Floats | None = None,
) -> Certificate:
    """Test ``policy`` [X, A] on episodes that it was not made from.

    Args:
        policy: π.
        baseline: π_b, which made the data.
        held_out: Episodes, in memory or on disk, that neither the policy nor the model or ``tuning`` used.
        rule: How to test.
        baseline_known: False where the baseline was estimated: then no bound is more than approximate.
        thresholds: c_k in the sign that more is better, shape [d]; NaN for none.
        tuning: Other episodes, which finite-sample bounds need.
        model: For dr and wdr: a model of other data, or cross-fitting on ``held_out``.
        training_baseline: What the baseline was taken to be when the policy was made, shape [X, A], if that was estimated anew
            since.
    """
    floors_wanted = _thresholds(thresholds, held_out.n_objectives)
    full_delta = rule.delta
    if floors_wanted.any():
        rule = replace(rule, delta=rule.delta / 2.0)
    fit = model if isinstance(model, CrossFit) else CrossFit(folds=None)
    known = None if isinstance(model, CrossFit) else model
    test = safety_test(
        policy,
        baseline,
        held_out,
        rule,
        tuning=tuning,
        model=known,
        folds=fit.folds,
        rng=fit.rng(),
        training_baseline=training_baseline,
    )
    floors: tuple[Floor, ...] = ()
    if floors_wanted.any():
        level = rule.delta / int(floors_wanted.sum())
        assert thresholds is not None
        own = _baseline_bound(baseline, held_out, rule, level, model=known, fit=fit)
        floors = _floors(held_out.objectives, np.asarray(thresholds, float), own, test.bound, level)
    return _from_test(
        test, held_out, rule, full_delta, "held-out", baseline_known, floors=floors, folds=fit.folds, seed=fit.seed
    )


def certify_h_opt(result: HOpt, safety: Log, *, baseline_known: bool, seed: int | None = None) -> Certificate:
    """The certificate of what H-OPT returned: the test that decided. Without any test there is nothing to certify."""
    test = result.deciding
    if test is None:
        raise ParameterError("H-OPT proposed nothing, so nothing was tested; there is nothing to certify.")
    certificate = _from_test(test, safety, result.rule, result.rule.delta, "safety-test", baseline_known, seed=seed)
    if result.selection == "sequential":
        more = "Candidates were tested in an order fixed beforehand, up to the first failure: δ holds for all of them together."
    else:
        more = (
            f"The best of {len(result.tests)} candidates that passed was chosen (rule {result.selection!r}) with no correction for"
            " having looked so often: the true risk may exceed δ."
        )
    return replace(
        certificate,
        grade=certificate.grade if result.selection == "sequential" else "approximate",
        assumptions=(*certificate.assumptions, more),
        settings={**certificate.settings, "selection": result.selection, "mix": result.mix},
    )


def certify_theory(
    theory: Theory, gain: Floats, *, zeta: npt.ArrayLike, thresholds: npt.ArrayLike | None = None, counts: Counts
) -> Certificate:
    """The certificate of a policy about which there is nothing but what the counts prove.

    Args:
        theory: See `prove`; with thresholds it is to have half of δ, the other half goes to the baseline's returns.
        gain: J_k(π) − J_k(π_b) in the estimated model, shape [d].
        zeta: Accepted loss, shape [d].
        thresholds: c_k in the sign that more is better, shape [d]; NaN for none.
        counts: What the policy was made from.
    """
    d = len(theory.proofs)
    loss = check_vector("zeta", zeta, d, "objective")
    bound = np.array([-proof.proven_loss for proof in theory.proofs])
    wanted = _thresholds(thresholds, d)
    floors: tuple[Floor, ...] = ()
    if wanted.any():
        # Hoeffding on the mean logged return; the proof and this bound share δ. Of episodes that were cut off the logged
        # return says too little, and of derived objectives nothing
        level = theory.delta / int(wanted.sum())
        width = np.array([proof.return_range for proof in theory.proofs])
        error = width * math.sqrt(math.log(1.0 / level) / (2.0 * counts.n_episodes))
        mean = counts.return_sum / counts.n_episodes if counts.n_truncated == 0 else np.full(d, np.nan)
        floors = _floors(counts.objectives, np.asarray(thresholds, float), mean - error, bound, level)
    return Certificate(
        findings=tuple(
            _finding(objective, g, b, theory.delta, z)
            for objective, g, b, z in zip(counts.objectives, gain, bound, loss, strict=True)
        ),
        evidence="theory",
        grade="finite-sample" if theory.rigorous else "approximate",
        assumptions=theory.assumptions,
        delta=theory.delta * (2.0 if floors else 1.0),
        floors=floors,
        theory=theory,
        settings={"bound": "counts"},
    )


def prove(
    model: Model,
    policy: Floats,
    baseline: Floats,
    counts: Counts,
    *,
    epsilon: float,
    delta: float,
    baseline_known: bool,
    reward_range: tuple[Floats, Floats] | None = None,
    rewards_fixed: bool = True,
    baseline_v: Floats | None = None,
) -> Theory:
    """What the counts alone prove of ``policy`` [X, A]: Proposition 3.1 and the bound after the fact.

    Args:
        model: The model of ``counts``.
        policy: π.
        baseline: π_b.
        counts: For the rows and the observed range of rewards.
        epsilon: ε that the policy was made with; inf where there was no budget.
        delta: δ.
        baseline_known: Whether the baseline is known, not estimated from the same data.
        reward_range: Rewards lie in [low, high], each [d]; the observed range if left out.
        rewards_fixed: False where an objective was derived from the same counts.
        baseline_v: v^{π_b} in the model, shape [d, X], where that is known already.
    """
    low, high = (counts.reward_min, counts.reward_max) if reward_range is None else reward_range
    loss = proven_loss(
        model,
        policy,
        baseline,
        delta=delta,
        reward_low=low,
        reward_high=high,
        n_rows=counts.n_rows,
        baseline_v=baseline_v,
    )
    proposition = proposition_loss(model, epsilon, np.maximum(np.abs(low), np.abs(high)))
    return Theory(
        proofs=tuple(
            Proof(
                objective=name,
                proposition_loss=float(proposition[k]),
                proven_loss=float(loss.loss_at_most[k]),
                return_range=float(loss.span[k]),
                share_safe=float(loss.share_safe[k]),
            )
            for k, name in enumerate(model.objectives)
        ),
        delta=delta,
        baseline_known=baseline_known,
        range_known=reward_range is not None,
        rewards_fixed=rewards_fixed,
    )


def _from_test(
    test: SafetyTest,
    data: Log,
    rule: SafetyRule,
    delta: float,
    evidence: Evidence,
    baseline_known: bool,
    *,
    floors: tuple[Floor, ...] = (),
    folds: int | None = None,
    seed: int | None = None,
) -> Certificate:
    finite = BOUNDS[rule.bound].finite_sample and baseline_known and not data.n_truncated
    return Certificate(
        findings=tuple(
            _finding(objective, e, b, test.level, z)
            for objective, e, b, z in zip(data.objectives, test.estimate, test.bound, test.zeta, strict=True)
        ),
        evidence=evidence,
        grade="finite-sample" if finite else "approximate",
        assumptions=_assumptions(data, rule, baseline_known),
        delta=delta,
        unsupported=test.unsupported,
        refusal=test.refusal,
        floors=floors,
        settings={
            "estimator": rule.estimator,
            "bound": rule.bound,
            "comparison": rule.comparison,
            "levels": rule.levels,
            "folds": folds if ESTIMATORS[rule.estimator].needs_model else None,
        },
        seed=seed,
    )


def _assumptions(data: Log, rule: SafetyRule, baseline_known: bool) -> tuple[str, ...]:
    texts = [
        "The episodes tested on were not used to make the policy, are independent of each other, and come from the process in"
        " which the policy will act.",
        "The baseline's probabilities are those with which the logged actions were taken."
        if baseline_known
        else "The baseline was estimated from the data; errors of that estimate are not accounted for, and the logged state must"
        " hold all that the decisions depended on.",
        BOUNDS[rule.bound].assumption,
    ]
    if not ESTIMATORS[rule.estimator].independent:
        texts.append(f"The terms of {rule.estimator!r} are linearised: good for much data.")
    if BOUNDS[rule.bound].finite_sample:
        texts.append("Rewards never leave the declared ranges.")
    if rule.comparison == "published":
        texts.append("The baseline's return is taken from the trained model as if it were known; it is not.")
    cut = data.n_truncated
    if cut:
        after = "is filled in by the model" if ESTIMATORS[rule.estimator].needs_model else "is left out"
        texts.append(f"{cut} of {data.n_episodes} episodes were cut off; what would have come after {after}.")
    return tuple(texts)


def _finding(objective: Objective, estimate: float, bound: float, level: float, zeta: float) -> Finding:
    return Finding(
        objective=objective.name,
        estimate=float(estimate),
        lower_bound=float(bound),
        level=level,
        zeta=float(zeta),
        label=objective.label or "",
    )


def _thresholds(thresholds: npt.ArrayLike | None, d: int) -> npt.NDArray[np.bool_]:
    """Which objectives have a threshold, shape [d]."""
    if thresholds is None:
        return np.zeros(d, dtype=bool)
    values = np.asarray(thresholds, dtype=np.float64)
    if values.shape != (d,) or np.any(np.isinf(values)):
        raise ParameterError(
            f"thresholds need {d} finite numbers, one per objective (NaN for none); got {values.tolist()}."
        )
    return ~np.isnan(values)


def _floors(
    objectives: Sequence[Objective], thresholds: Floats, baseline_bound: Floats, gain_bound: Floats, level: float
) -> tuple[Floor, ...]:
    return tuple(
        Floor(
            objective=objectives[k].name,
            threshold=float(thresholds[k]),
            baseline_bound=float(baseline_bound[k]),
            guaranteed=float(baseline_bound[k] + gain_bound[k]),
            level=level,
            label=objectives[k].label or "",
        )
        for k in np.flatnonzero(~np.isnan(thresholds)).tolist()
    )


def _baseline_bound(
    baseline: Floats,
    data: Log,
    rule: SafetyRule,
    level: float,
    *,
    model: Model | None,
    fit: CrossFit,
) -> Floats:
    """A lower bound on J_k(π_b) from the log, shape [d]; NaN where episodes were cut off and no model fills in the rest."""
    discount = np.array([objective.discount for objective in data.objectives])
    needs = ESTIMATORS[rule.estimator].needs_model
    if not needs and data.n_truncated:
        return np.full(discount.size, np.nan)
    returns = evaluate_policy(
        data,
        baseline,
        baseline,
        estimator=rule.estimator,
        model=model if needs else None,
        folds=fit.folds if needs else None,
        rng=fit.rng(),
    ).per_trajectory
    if not BOUNDS[rule.bound].finite_sample:
        return lower_bound(returns, level, method=rule.bound)
    if rule.return_range is not None:
        low, high = (np.asarray(edge, dtype=np.float64) for edge in rule.return_range)
    else:
        assert rule.reward_range is not None
        edges = [np.asarray(edge, dtype=np.float64) for edge in rule.reward_range]
        low, high = return_range(edges[0], edges[1], discount)
    return lower_bound(returns, level, method=rule.bound, low=low, cap=high)


def return_range(reward_low: Floats, reward_high: Floats, discount: Floats) -> tuple[Floats, Floats]:
    """Lowest and highest discounted return of an episode of any length ≥ 1 whose rewards lie in [low, high], each [d]."""
    low = np.where(reward_low < 0.0, reward_low / (1.0 - discount), reward_low)
    high = np.where(reward_high > 0.0, reward_high / (1.0 - discount), reward_high)
    return np.asarray(low), np.asarray(high)
