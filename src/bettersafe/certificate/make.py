"""Certificates from a held-out test, from H-OPT, or from the counts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe.certificate.certificate import MARKOV, Certificate, Evidence, Finding, Floor, Proof, Theory
from bettersafe.errors import (
    ParameterError,
    as_numbers,
    check_epsilon,
    check_integer,
    check_log,
    check_options,
    check_range,
    check_table,
    check_type,
    check_vector,
    listed,
)
from bettersafe.evaluation.bounds import by_unit, lower_bound
from bettersafe.evaluation.evaluate import evaluate_policy
from bettersafe.evaluation.facts import BOUNDS, ESTIMATORS
from bettersafe.evaluation.held_out import SafetyRule, SafetyTest, return_range, safety_test
from bettersafe.evaluation.theory import proposition_loss, proven_loss
from bettersafe.logs.counts import Counts
from bettersafe.logs.episodes import first_steps, n_units
from bettersafe.mdp.policy import distributions
from bettersafe.model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.logs.dataset import Objective
    from bettersafe.methods.h_opt import HOpt
    from bettersafe.typing import Bools, Floats, Log


@dataclass(frozen=True, kw_only=True)
class CrossFit:
    """Cross-fitting of the models for dr and wdr: each fold is tested with a model fitted on the other folds.

    Attributes:
        folds: Number of folds; None for no model.
        seed: Seed of the split into folds; the certificate records it.
    """

    folds: int | None
    seed: int = 0

    def __post_init__(self) -> None:
        check_integer("folds", self.folds, least=1, optional=True)
        check_integer("seed", self.seed, least=0)

    def rng(self) -> np.random.Generator:
        """New generator with this seed, so that every call splits the same way."""
        return np.random.default_rng(self.seed)


def certify(
    policy: npt.ArrayLike,
    baseline: npt.ArrayLike,
    held_out: Log,
    rule: SafetyRule,
    *,
    baseline_known: bool,
    thresholds: npt.ArrayLike | None = None,
    tuning: Log | None = None,
    model: Model | CrossFit | None = None,
    training_baseline: Floats | None = None,
) -> Certificate:
    """Test ``policy`` [X, A] on held-out episodes.

    Args:
        policy: π.
        baseline: π_b, the policy that collected the data.
        held_out: Episodes, in memory or on disk, that were not used for the policy, the model or ``tuning``.
        rule: Settings of the test.
        baseline_known: False if the baseline was estimated; every bound is then approximate at best.
        thresholds: c_k, signed so that more is better, shape [d]; NaN for none.
        tuning: Separate episodes, required by finite-sample bounds.
        model: Model for dr and wdr: fitted on other data, or by cross-fitting on ``held_out``.
        training_baseline: Baseline with which the policy was made, shape [X, A], if ``baseline`` is a new estimate.

    Examples:
        >>> policy = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy
        >>> rule = bettersafe.SafetyRule(delta=0.1, zeta=[0.0, 0.0])
        >>> certificate = bettersafe.certify(policy, baseline, later, rule, baseline_known=True, model=model)
        >>> print(certificate.verdict)
        Tested, passed: with probability 90 % (approximately) the policy is not worse than the baseline on any of: r0, r1.
    """
    check_log("held_out", held_out)
    check_type("rule", rule, SafetyRule)
    check_options(baseline_known=baseline_known)
    if model is not None:
        check_type("model", model, Model, CrossFit)
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
    """Certificate of H-OPT's result, from the test that decided.

    Args:
        result: Result of H-OPT.
        safety: Test episodes.
        baseline_known: False if the baseline was estimated.
        seed: Seed of the split, for the certificate.

    Raises:
        ParameterError: If H-OPT tested no candidate.

    Examples:
        >>> from bettersafe.certificate import certify_h_opt
        >>> train, safety = bettersafe.split(log, [0.7, 0.3], rng=0)
        >>> found = bettersafe.h_opt(train, safety, baseline, preference=[1.0, 1.0])
        >>> certify_h_opt(found, safety, baseline_known=True).accepted
        True
    """
    from bettersafe.methods.h_opt import HOpt

    check_type("result", result, HOpt)
    check_log("safety", safety)
    check_integer("seed", seed, least=0, optional=True)
    check_options(baseline_known=baseline_known)
    test = result.deciding
    if test is None:
        raise ParameterError("H-OPT proposed no policy and ran no test; there is nothing to certify.")
    certificate = _from_test(test, safety, result.rule, result.rule.delta, "safety-test", baseline_known, seed=seed)
    if result.selection == "sequential":
        more = "Candidates were tested in a fixed order up to the first failure, so δ holds for all tests together."
    else:
        more = (
            f"The best passing one of {len(result.tests)} tested candidates was chosen (rule {result.selection!r}) without a"
            " correction for multiple tests: the true risk may exceed δ."
        )
    return replace(
        certificate,
        grade=certificate.grade if result.selection == "sequential" else "approximate",
        assumptions=(*certificate.assumptions, more),
        settings={**certificate.settings, "selection": result.selection, "mix": result.mix},
    )


def certify_theory(
    theory: Theory, gain: npt.ArrayLike, *, zeta: npt.ArrayLike, thresholds: npt.ArrayLike | None = None, counts: Counts
) -> Certificate:
    """Certificate of a policy from the counts alone.

    Args:
        theory: Bounds from `prove`; with thresholds, computed with δ/2. The baseline's returns get the other half.
        gain: J_k(π) − J_k(π_b) in the estimated model, shape [d].
        zeta: Accepted loss ζ, shape [d].
        thresholds: c_k, signed so that more is better, shape [d]; NaN for none.
        counts: Counts from which the policy was made.

    Examples:
        >>> from bettersafe.certificate import certify_theory, prove
        >>> found = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0)
        >>> theory = prove(model, found.policy, baseline, counts, epsilon=1.0, delta=0.1, baseline_known=True)
        >>> gain = found.policy_return - found.baseline_return
        >>> certify_theory(theory, gain, zeta=[0.0, 0.0], counts=counts).evidence
        'theory'
    """
    check_type("theory", theory, Theory)
    check_type("counts", counts, Counts)
    d = len(theory.proofs)
    loss = check_vector("zeta", zeta, d, "objective")
    gain = check_vector("gain", gain, d, "objective")
    bound = np.array([proof.gain_at_least for proof in theory.proofs])
    wanted = _thresholds(thresholds, d)
    floors: tuple[Floor, ...] = ()
    if wanted.any():
        # Hoeffding on the mean logged return; the proof and this bound share δ. It says nothing if episodes are truncated, because
        # their logged return is incomplete, nor for derived objectives, which are not logged. The proof has a bound of its own
        level = theory.delta / int(wanted.sum())
        width = np.array([proof.return_range for proof in theory.proofs])
        error = width * math.sqrt(math.log(1.0 / level) / (2.0 * counts.n_episodes))
        mean = counts.return_sum / counts.n_episodes if counts.n_truncated == 0 else np.full(d, np.nan)
        own = np.fmax(mean - error, np.array([proof.baseline_at_least for proof in theory.proofs], dtype=np.float64))
        floors = _floors(counts.objectives, np.asarray(thresholds, float), own, bound, level)
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
    policy: npt.ArrayLike,
    baseline: npt.ArrayLike,
    counts: Counts,
    *,
    epsilon: float,
    delta: float,
    baseline_known: bool,
    reward_range: tuple[Floats, Floats] | None = None,
    rewards_fixed: bool = True,
    baseline_v: Floats | None = None,
) -> Theory:
    """Bounds on the loss of ``policy`` [X, A] from the counts alone: Proposition 3.1 and the a-posteriori bound.

    Args:
        model: Model estimated from ``counts``.
        policy: π.
        baseline: π_b.
        counts: Counts, for the number of rows and the observed range of rewards.
        epsilon: ε with which the policy was made; inf without a budget.
        delta: δ.
        baseline_known: Whether the baseline is known, not estimated from the same data.
        reward_range: Rewards lie in [low, high], each of shape [d]; default: the observed range.
        rewards_fixed: False if an objective was derived from the same counts.
        baseline_v: v^{π_b} in the model, shape [d, X], if already computed.

    Examples:
        >>> from bettersafe.certificate import prove
        >>> policy = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy
        >>> theory = prove(model, policy, baseline, counts, epsilon=1.0, delta=0.1, baseline_known=True)
        >>> [proof.objective for proof in theory.proofs]
        ['r0', 'r1']
    """
    check_type("model", model, Model)
    check_type("counts", counts, Counts)
    check_epsilon(epsilon)
    check_options(baseline_known=baseline_known, rewards_fixed=rewards_fixed)
    policy = distributions(policy, model.mdp.n_states, model.mdp.n_actions)
    baseline = distributions(baseline, model.mdp.n_states, model.mdp.n_actions, name="baseline")
    size = (model.mdp.n_objectives, model.mdp.n_states)
    low, high = counts.reward_min, counts.reward_max
    if reward_range is not None:
        low, high = check_range("reward_range", reward_range, size[0])
    if baseline_v is not None:
        baseline_v = check_table("baseline_v", baseline_v, size, "[d, X]")
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
                proven_gain=float(loss.gain_at_least[k]),
                baseline_at_least=float(loss.baseline_at_least[k]),
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
    cut = first_steps(data, rule.horizon).n_truncated
    finite = BOUNDS[rule.bound].finite_sample and baseline_known and not cut and rule.comparison == "paired"
    return Certificate(
        findings=tuple(
            _finding(objective, e, b, test.level, z)
            for objective, e, b, z in zip(data.objectives, test.estimate, test.bound, test.zeta, strict=True)
        ),
        evidence=evidence,
        grade="finite-sample" if finite else "approximate",
        assumptions=(*_assumptions(data, rule, baseline_known, cut), *_skewed(test, data.objectives)),
        delta=delta,
        unsupported=test.unsupported,
        refusal=test.refusal,
        floors=floors,
        diagnostics={"complete": not cut or ESTIMATORS[rule.estimator].fills_in},
        settings={
            "estimator": rule.estimator,
            "bound": rule.bound,
            "comparison": rule.comparison,
            "levels": rule.levels,
            "coverage": "required" if rule.strict else "ignored",
            "truncation": _by_objective(data, rule.truncation),
            "horizon": rule.horizon,
            "folds": folds if ESTIMATORS[rule.estimator].has_folds else None,
        },
        seed=seed,
    )


def _assumptions(data: Log, rule: SafetyRule, baseline_known: bool, cut: int) -> tuple[str, ...]:
    texts = [
        f"{_tested(data)}, and come from the process in which the policy will act.",
        "The logged actions were taken with the baseline's probabilities."
        if baseline_known
        else "The baseline was estimated from the data; errors of that estimate are not accounted for, and the logged state must"
        " contain everything that the logged decisions depended on.",
        BOUNDS[rule.bound].assumption,
    ]
    if ESTIMATORS[rule.estimator].marginal:
        texts.append(MARKOV)
    if not ESTIMATORS[rule.estimator].independent:
        texts.append(f"The terms of {rule.estimator!r} are linearised, which is valid for large samples.")
    if BOUNDS[rule.bound].finite_sample:
        texts.append("Rewards always lie in the declared ranges.")
    if rule.comparison == "published":
        texts.append("The baseline's return in the trained model is taken as exact, although it is an estimate.")
    if rule.comparison == "empirical":
        texts.append(
            "The mean return of the test episodes is taken as the baseline's exact return, although it is an estimate."
        )
    if (
        rule.comparison != "paired"
        and BOUNDS[rule.bound].finite_sample
        and ESTIMATORS[rule.estimator].known_range is None
    ):
        texts.append(
            f"The terms of {rule.estimator!r} have no known smallest value; the smallest one of these episodes is used."
        )
    if not rule.strict:
        texts.append("The bounds alone decide: a policy that the test episodes hardly cover was not refused for that.")
    if cut:
        after = "left out"
        if ESTIMATORS[rule.estimator].fills_in:
            after = "estimated" if ESTIMATORS[rule.estimator].marginal else "filled in by the model"
        before = "" if rule.horizon is None else f" before step {rule.horizon:,}"
        texts.append(f"{cut} of {data.n_episodes} episodes are truncated{before}; their later rewards are {after}.")
    return tuple(texts)


def _tested(data: Log) -> str:
    """What was tested on, as the beginning of an assumption."""
    if data.units is None:
        return "The test episodes were not used to make the policy, are independent of each other"
    return (
        "The test episodes were not used to make the policy; they belong to"
        f" {n_units(data):,} sampling units, which are independent of each other"
    )


def _skewed(test: SafetyTest, objectives: Sequence[Objective]) -> tuple[str, ...]:
    """Additional assumption where rare losses decide."""
    if test.skewed is None:
        return ()
    names = listed([objective.title for objective, rare in zip(objectives, test.skewed, strict=True) if rare])
    return (
        f"A few large losses carry the variance of {names}, so the bound there is 'skew' instead of 't': it counts one more of the largest"
        " loss seen. Losses that no episode has shown are not in it.",
    )


def _by_objective(data: Log, values: npt.ArrayLike | None) -> dict[str, float]:
    """Values [d] by objective, without those that are NaN."""
    given = [] if values is None else np.asarray(values, dtype=np.float64).tolist()
    return {each.name: value for each, value in zip(data.objectives, given, strict=False) if not math.isnan(value)}


def _finding(objective: Objective, estimate: float, bound: float, level: float, zeta: float) -> Finding:
    return Finding(
        objective=objective.name,
        estimate=float(estimate),
        lower_bound=float(bound),
        level=level,
        zeta=float(zeta),
        label=objective.label or "",
    )


def _thresholds(thresholds: npt.ArrayLike | None, d: int) -> Bools:
    """Mask of the objectives with a threshold, shape [d]."""
    if thresholds is None:
        return np.zeros(d, dtype=bool)
    values = as_numbers("thresholds", thresholds)
    if values.shape != (d,) or np.any(np.isinf(values)):
        raise ParameterError(
            f"thresholds must be {d} finite numbers, one per objective (NaN for none); got {values.tolist()}."
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
    baseline: npt.ArrayLike,
    data: Log,
    rule: SafetyRule,
    level: float,
    *,
    model: Model | None,
    fit: CrossFit,
) -> Floats:
    """Lower bound on J_k(π_b) from the log, shape [d]; NaN if episodes are truncated and there is no model."""
    discount = np.array([objective.discount for objective in data.objectives])
    facts = ESTIMATORS[rule.estimator]
    if not facts.fills_in and first_steps(data, rule.horizon).n_truncated:
        return np.full(discount.size, np.nan)
    returns = evaluate_policy(
        data,
        baseline,
        baseline,
        estimator=rule.estimator,
        model=model if facts.needs_model else None,
        folds=fit.folds if facts.has_folds else None,
        rng=fit.rng(),
        horizon=rule.horizon,
    ).per_trajectory
    if not BOUNDS[rule.bound].finite_sample:
        return lower_bound(by_unit(returns, data.units), level, method=rule.bound)
    if rule.return_range is not None:
        low, high = (np.asarray(edge, dtype=np.float64) for edge in rule.return_range)
    else:
        assert rule.reward_range is not None
        edges = [np.asarray(edge, dtype=np.float64) for edge in rule.reward_range]
        low, high = return_range(edges[0], edges[1], discount, rule.horizon)
    return lower_bound(returns, level, method=rule.bound, low=low, cap=high)
