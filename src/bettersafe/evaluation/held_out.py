"""Safety test: is a policy no worse than the baseline on any objective, on held-out data?

    passes if, for every objective k, a lower bound at level δ_k on J_k(π) − J_k(π_b) is at least −ζ_k

``comparison`` is the quantity that is bounded:

    "paired"      the difference per trajectory, estimate(τ; π) − estimate(τ; π_b), whose mean is J_k(π) − J_k(π_b).
    "empirical"   the estimate of π minus μ_k, the mean logged return of the same trajectories, as if that were exact (as written
                  in the paper: estimate − CI ≥ μ_k).
    "published"   the estimate of π minus the baseline's return in the trained model, as if that were exact (the published code).

The last two ignore the error of the number that they compare with, so every grade is approximate.

``levels``: "split" gives each objective δ/d, so that all bounds hold together; "full" gives each δ, which is enough for
the verdict if the policy was fixed without this data (an unsafe policy would have to pass the test of the objective on which
it loses).

A policy that the data does not cover is refused: one that takes actions to which the baseline gives probability 0. Approximate
bounds rely on the spread of the terms, and with them three more kinds are refused: a policy that raises actions without data,
one whose weights rest on too few episodes, and one with equal terms in all episodes (it changes nothing in the logged states).
Where few large losses carry the variance, t is too high, and the bound "skew" takes its place.
This is the *coverage rule*; ``strict=False`` leaves it out, as the paper does.

Finite-sample bounds truncate the terms from above. The truncation c_k is chosen on other episodes, or given (``truncation``) as a
share of the range of returns above the smallest possible term: with comparison "empirical", returns are scaled to [0, 1] and terms
above c_k count as c_k (the paper: 0.5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe.errors import (
    ParameterError,
    as_numbers,
    check_choice,
    check_log,
    check_options,
    check_probability,
    check_range,
    check_table,
    check_type,
    check_vector,
    listed,
)
from bettersafe.evaluation.bounds import MANY_LOSSES, by_unit, choose_cap, large_losses, lower_bound
from bettersafe.evaluation.choices import COMPARISONS, LEVELS, Comparison, Levels
from bettersafe.evaluation.evaluate import evaluate_policy, fold_seed
from bettersafe.evaluation.facts import BOUNDED, BOUNDS, ESTIMATORS, FINITE_SAMPLE, TESTABLE
from bettersafe.evaluation.support import UNSEEN_TOL, UNSUPPORTED_TOL
from bettersafe.logs.episodes import first_steps, row_visits, with_blocks
from bettersafe.mdp.horizon import check_horizon, discounted_steps
from bettersafe.mdp.policy import policy_table
from bettersafe.model import Model, model_return

if TYPE_CHECKING:
    from bettersafe.evaluation.evaluate import Evaluation
    from bettersafe.logs.dataset import Dataset
    from bettersafe.typing import Bools, Floats, Log, Rng


Range = tuple[npt.ArrayLike, npt.ArrayLike]


@dataclass(frozen=True, kw_only=True)
class SafetyRule:
    """Settings of a safety test.

    Attributes:
        delta: δ, the accepted probability that a policy passes which is worse on some objective.
        zeta: ζ, accepted loss per objective, shape [d].
        estimator: Estimator, one of `bettersafe.evaluation.TESTABLE`.
        bound: Bound, one of `bettersafe.evaluation.BOUNDS`; finite-sample bounds need independent terms (is, pdis) and a known
            range.
        comparison: "paired", "empirical" or "published".
        levels: "split" or "full".
        reward_range: Range [low, high] of rewards, each of shape [d]; for pdis with a finite-sample bound.
        return_range: Range [low, high] of discounted returns, each of shape [d]; for is with a finite-sample bound.
        horizon: Number of steps H of the returns; None for no limit.
        strict: Whether to refuse policies that the data does not cover (the coverage rule); False tests the bounds alone, as the
            paper does.
        truncation: Truncation c_k of finite-sample bounds, as a share of the range of returns, shape [d]; NaN, or None for all, to
            choose it on other episodes.

    Examples:
        >>> rule = bettersafe.SafetyRule(delta=0.1, zeta=[0.0, 0.5])  # a loss of 0.5 on r1 is accepted
        >>> rule.level  # of each of the two bounds
        0.05
    """

    delta: float
    zeta: Floats
    estimator: str = "dr"
    bound: str = "t"
    comparison: Comparison = "paired"
    levels: Levels = "split"
    reward_range: Range | None = None
    return_range: Range | None = None
    strict: bool = True
    horizon: int | None = None
    truncation: npt.ArrayLike | None = None

    def __post_init__(self) -> None:
        check_choice("estimator", self.estimator, TESTABLE)
        check_choice("bound", self.bound, BOUNDS)
        check_choice("comparison", self.comparison, COMPARISONS)
        check_choice("levels", self.levels, LEVELS)
        check_probability("delta", self.delta)
        check_horizon(self.horizon)
        check_options(strict=self.strict)
        zeta = as_numbers("zeta", self.zeta)
        object.__setattr__(self, "zeta", check_vector("zeta", zeta, zeta.size, "objective"))
        if np.any(self.zeta < 0.0):
            raise ParameterError(f"zeta must be an accepted loss, 0 or more; got {self.zeta.tolist()}.")
        for name in ("reward_range", "return_range"):
            if getattr(self, name) is not None:
                check_range(name, getattr(self, name), self.zeta.size)
        if self.truncation is not None:
            given = as_numbers("truncation", self.truncation)
            if given.shape != (self.zeta.size,) or np.any(given <= 0.0) or np.any(np.isinf(given)):
                raise ParameterError(
                    f"truncation must be {self.zeta.size} shares of the range of returns above 0, one per objective (NaN to choose it on"
                    f" other episodes); got {given.tolist()}.",
                    setting="truncation",
                )
            if not BOUNDS[self.bound].finite_sample:
                raise ParameterError(
                    f"truncation belongs to the bounds {listed(FINITE_SAMPLE, last='and')}; {self.bound!r} truncates nothing.",
                    setting="truncation",
                )
        if BOUNDS[self.bound].finite_sample:
            self._check_finite_sample()

    def _check_finite_sample(self) -> None:
        if self.comparison != "paired":  # as in the paper, for any estimator: approximate in any case
            if self.return_range is None or (self.estimator == "pdis" and self.reward_range is None):
                raise ParameterError(
                    f"the bound {self.bound!r} with comparison {self.comparison!r} needs to know beforehand the range of rewards:"
                    " `reward_range` of every objective, which is return_range=(low, high) of a SafetyRule, and for 'pdis' also"
                    " reward_range=(low, high)."
                )
            return
        facts = ESTIMATORS[self.estimator]
        instead = f"use 't' or 'bca' (approximate), or the estimators {listed(map(repr, BOUNDED), last='or')}."
        if not facts.independent:
            raise ParameterError(
                f"the bound {self.bound!r} needs independent terms, and those of {self.estimator!r} are dependent; {instead}"
            )
        if facts.known_range is None:
            raise ParameterError(
                f"the bound {self.bound!r} needs a smallest value of the terms, and those of {self.estimator!r} have no useful one;"
                f" {instead}"
            )
        if getattr(self, facts.known_range) is None:
            raise ParameterError(
                f"the bound {self.bound!r} with {self.estimator!r} needs to know beforehand the range of rewards:"
                f" `reward_range` of every objective, which is {facts.known_range}=(low, high) of a SafetyRule."
            )

    @property
    def level(self) -> float:
        """δ_k of every objective's bound."""
        return self.delta / self.zeta.size if self.levels == "split" else self.delta


@dataclass(frozen=True, kw_only=True)
class Covered:
    """How much of a policy the data covers, for the coverage rule; the defaults are those of a policy that it covers.

    Attributes:
        unsupported: Share of the policy's decisions, over the logged states, that the baseline never takes.
        unseen: Share of the policy's decisions, over the logged states, that it takes more often than the baseline and that
            have no data.
        few_effective_episodes: Whether the weights rest on too few episodes.
    """

    unsupported: float = 0.0
    unseen: float = 0.0
    few_effective_episodes: bool = False


@dataclass(frozen=True, kw_only=True)
class SafetyTest:
    """Result of a safety test.

    Attributes:
        estimate: Estimated J_k(π) − J_k(π_b), shape [d].
        bound: Lower bound on J_k(π) − J_k(π_b), shape [d].
        level: δ_k of each bound.
        zeta: Accepted loss, shape [d].
        unsupported: Share of the policy's decisions, over the logged states, that the baseline never takes.
        unseen: Share of the policy's decisions, over the logged states, that it takes more often than the baseline and that
            have no data; 0 with a finite-sample bound.
        few_effective_episodes: Whether the weights rest on too few episodes; False with a finite-sample bound.
        skewed: Objectives of which few large losses carry the variance, so that the bound is "skew" instead of "t"; mask of
            shape [d], None for none.
        mix: Share of the baseline in the policy, for a candidate of H-OPT.
        train_estimate: Estimated J_k(π) on the training episodes, shape [d], for H-OPT's selection "paper"; None if not computed.
    """

    estimate: Floats
    bound: Floats
    level: float
    zeta: Floats
    unsupported: float
    skewed: Bools | None = None
    unseen: float = 0.0
    few_effective_episodes: bool = False
    mix: float = 0.0
    train_estimate: Floats | None = None

    @property
    def passed(self) -> bool:
        """Whether every bound is at least −ζ_k and the data covers the policy; NaN does not pass."""
        return bool(np.all(self.bound >= -self.zeta)) and not self.refusal

    @property
    def refusal(self) -> str:
        """Reason why the data does not cover the policy; empty if it does."""
        if not self.unsupported <= UNSUPPORTED_TOL:
            return f"the baseline never takes {100 * self.unsupported:.3g} % of its decisions"
        if not self.unseen <= UNSEEN_TOL:
            return f"{100 * self.unseen:.3g} % of its decisions have no data"
        return "its weights rest on too few episodes" if self.few_effective_episodes else ""


def safety_test(
    policy: npt.ArrayLike,
    baseline: npt.ArrayLike,
    safety: Log,
    rule: SafetyRule,
    *,
    tuning: Log | None = None,
    model: Model | None = None,
    folds: int | None = None,
    rng: Rng = 0,
    baseline_terms: Floats | None = None,
    training_baseline: Floats | None = None,
) -> SafetyTest:
    """Test ``policy`` [X, A] against ``baseline`` [X, A] on the held-out episodes ``safety``.

    Args:
        policy: π.
        baseline: π_b, the policy that collected the data.
        safety: Test episodes, in memory or on disk.
        rule: Settings of the test.
        tuning: Separate episodes on which finite-sample bounds choose their truncation level, and t looks for rare losses.
        model: Model for dr and wdr, fitted on other data.
        folds: Number of folds for cross-fitting on ``safety``, instead of a model; drl has folds with a model too, because the
            policy was made from the model's data.
        rng: Seed or generator for the split into folds.
        baseline_terms: Terms of the baseline on ``safety`` (`evaluate_policy`), shape [n, d]; saves time if many policies are
            tested on the same data.
        training_baseline: Baseline with which the policy was made, shape [X, A], if ``baseline`` is a new estimate. An action
            counts as raised only if its probability exceeds both.

    Examples:
        >>> from bettersafe.evaluation import safety_test
        >>> policy = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy
        >>> test = safety_test(policy, baseline, later, bettersafe.SafetyRule(delta=0.1, zeta=[0.0, 0.0]), model=model)
        >>> test.bound.shape
        (2,)
    """
    check_log("safety", safety)
    check_type("rule", rule, SafetyRule)
    if tuning is not None:
        check_log("tuning", tuning)
    check_type("model", model, Model, optional=True)
    if baseline_terms is not None:
        baseline_terms = check_table(
            "baseline_terms", baseline_terms, (safety.n_episodes, safety.n_objectives), "[n, d]"
        )
    if training_baseline is not None:
        training_baseline = policy_table(training_baseline, safety.n_states, safety.n_actions, name="training_baseline")
    tested = first_steps(safety, rule.horizon)
    policy, baseline = as_numbers("the policy", policy), as_numbers("the baseline", baseline)
    check_vector("zeta", rule.zeta, safety.n_objectives, "objective")
    if BOUNDS[rule.bound].finite_sample and safety.units is not None:
        raise ParameterError(
            f"the bound {rule.bound!r} needs independent episodes, and those of a sampling unit are not: use 't', 'skew' or 'bca'"
            " (approximate), or leave out `sampling_unit`.",
            setting="bound",
        )
    if BOUNDS[rule.bound].finite_sample and not np.all(np.isfinite(_steps(safety, rule))):
        raise ParameterError(
            f"the bound {rule.bound!r} needs a range of returns, which has no limit at discount 1: set `horizon`, or use 't' or"
            " 'bca' (approximate).",
            setting="bound",
        )
    terms, found = _paired(
        policy, baseline, safety, rule, model=model, folds=folds, rng=rng, baseline_terms=baseline_terms
    )
    terms = by_unit(terms, safety.units)
    covered: Covered | None = None
    if rule.strict:
        known = baseline if training_baseline is None else np.maximum(baseline, training_baseline)
        covered = coverage(policy, baseline, tested, rule, model=model, known=known, found=found)
    if not BOUNDS[rule.bound].finite_sample:
        test = terms_test(terms, rule, covered=covered)
        if not rule.strict or rule.bound != "t":
            return test
        before = (
            None if tuning is None else by_unit(paired_terms(policy, baseline, tuning, rule, model=model), tuning.units)
        )
        return with_skew(test, terms, rule, None if before is None else before.min(axis=0))
    low = _least(safety, rule, terms, _against(baseline, safety, rule, model))
    cap = _given_cap(safety, rule, low)
    if np.any(np.isnan(cap)):
        if tuning is None:
            raise ParameterError(
                f"the bound {rule.bound!r} needs separate episodes (tuning=) to choose the truncation level of its terms, or `truncation`."
            )
        before = paired_terms(policy, baseline, tuning, rule, model=model)
        below = _least(tuning, rule, before, _against(baseline, tuning, rule, model))
        chosen = choose_cap(before, rule.level, method=rule.bound, low=below, high=np.inf, n_later=terms.shape[0])
        cap = np.where(np.isnan(cap), low + (chosen - below), cap)
    return terms_test(terms, rule, low=low, cap=cap, covered=covered)


def coverage(
    policy: Floats,
    baseline: Floats,
    data: Log,
    rule: SafetyRule,
    *,
    model: Model | None,
    known: Floats | None = None,
    found: Evaluation | None = None,
) -> Covered:
    """How much of ``policy`` [X, A] the episodes ``data`` cover. Finite-sample bounds ask only for `Covered.unsupported`.

    Args:
        policy: π.
        baseline: π_b.
        data: Test episodes, up to the horizon.
        rule: Settings of the test.
        model: Model of other data, whose pairs count as seen.
        known: Largest probability of each action under the baselines, shape [X, A], above which it counts as raised.
        found: Estimate of the policy's return from the same data. A marginalised estimator has its own weights, and its own model
            of what is visited.
    """
    unsupported = unsupported_share(policy, baseline, data)
    if BOUNDS[rule.bound].finite_sample:
        return Covered(unsupported=unsupported)
    unseen = unseen_share(policy, baseline if known is None else known, data, model)
    if found is not None and ESTIMATORS[rule.estimator].marginal:
        unseen, weights = max(unseen, found.unsupported_mass), found
    else:
        weights = evaluate_policy(data, policy, baseline, estimator="is")
    return Covered(unsupported=unsupported, unseen=unseen, few_effective_episodes=weights.few_effective_episodes)


def with_skew(test: SafetyTest, terms: Floats, rule: SafetyRule, least: Floats | None = None) -> SafetyTest:
    """The test with the bound "skew" instead of "t" on objectives of which few large losses carry the variance.

    Args:
        test: Test of the terms by the rule.
        terms: Paired terms, shape [n, d].
        rule: Settings of the test.
        least: Smallest terms on the training episodes, shape [d]: the rarer losses are, the more often the test's episodes show none.
    """
    if rule.bound != "t":
        return test
    low = terms.min(axis=0)
    if least is not None:
        low = np.minimum(low, least)
    skewed = (large_losses(terms, low) < MANY_LOSSES) & ~np.isneginf(test.bound)
    bound = np.where(skewed, lower_bound(terms, rule.level, method="skew", low=low), test.bound)
    return replace(test, bound=bound, skewed=skewed if skewed.any() else None)


def terms_test(
    terms: Floats,
    rule: SafetyRule,
    *,
    low: Floats | None = None,
    cap: Floats | None = None,
    mix: float = 0.0,
    covered: Covered | None = None,
) -> SafetyTest:
    """Test of paired terms [n, d].

    Args:
        terms: Terms whose mean is J(π) − J(π_b).
        rule: Settings of the test.
        low: Smallest value of the terms, for finite-sample bounds (`lower_bound`).
        cap: Truncation level, for finite-sample bounds (`lower_bound`).
        mix: Share of the baseline in the policy, for a candidate of H-OPT.
        covered: How much of the policy the data covers; None to leave the coverage rule out.
    """
    bound = lower_bound(terms, rule.level, method=rule.bound, low=low, cap=cap)
    if covered is not None and not BOUNDS[rule.bound].finite_sample:
        alike = np.ptp(terms, axis=0) <= 1e-12 * (1.0 + np.max(np.abs(terms), axis=0))
        bound = np.where(alike, -np.inf, bound)
    found = Covered() if covered is None else covered
    return SafetyTest(
        estimate=terms.mean(axis=0),
        bound=bound,
        level=rule.level,
        zeta=rule.zeta,
        unsupported=found.unsupported,
        unseen=found.unseen,
        few_effective_episodes=found.few_effective_episodes,
        mix=mix,
    )


def unseen_share(policy: Floats, baseline: Floats, data: Log, model: Model | None) -> float:
    """Share of the policy's decisions, over the logged states, that it takes more often than the baseline and that occur neither
    in the data nor in the model's data.
    """
    seen = np.zeros(policy.shape, dtype=bool)
    for block in data.blocks():
        seen[block.states, block.actions] = True
    if model is not None:
        tried = model.counts > 0
        seen[model.mdp.pair_state[tried], model.mdp.pair_action[tried]] = True
    raised = np.where(seen, 0.0, np.maximum(policy - baseline, 0.0)).sum(axis=1)
    return float(row_visits(data) @ raised) / data.n_rows


def unsupported_share(policy: Floats, baseline: Floats, data: Log) -> float:
    """Share of the policy's decisions, over the logged states, that the baseline never takes."""
    beyond = np.where(baseline > 0.0, 0.0, policy).sum(axis=1)
    return float(row_visits(data) @ beyond) / data.n_rows


def paired_terms(
    policy: Floats,
    baseline: Floats,
    data: Log,
    rule: SafetyRule,
    *,
    model: Model | None = None,
    folds: int | None = None,
    rng: Rng = 0,
    baseline_terms: Floats | None = None,
) -> Floats:
    """Terms whose mean is J(π) − J(π_b), shape [n, d]."""
    return _paired(policy, baseline, data, rule, model=model, folds=folds, rng=rng, baseline_terms=baseline_terms)[0]


def _paired(
    policy: Floats,
    baseline: Floats,
    data: Log,
    rule: SafetyRule,
    *,
    model: Model | None,
    folds: int | None,
    rng: Rng,
    baseline_terms: Floats | None,
) -> tuple[Floats, Evaluation]:
    """Terms of `paired_terms`, and the evaluation of the policy."""
    logged = data
    if _is_shifted(rule):
        data = with_blocks(first_steps(data, rule.horizon), lambda block: _shifted(block, rule))
    seed = fold_seed(rng)  # the same folds for both policies

    def evaluated(target: Floats) -> Evaluation:
        facts = ESTIMATORS[rule.estimator]
        return evaluate_policy(
            data,
            target,
            baseline,
            estimator=rule.estimator,
            model=model if facts.needs_model else None,
            folds=folds if facts.has_folds else None,
            rng=seed,
            horizon=rule.horizon,
        )

    found = evaluated(policy)
    if rule.comparison != "paired":
        return found.per_trajectory - _against(baseline, logged, rule, model), found
    own = evaluated(baseline).per_trajectory if baseline_terms is None else baseline_terms
    return found.per_trajectory - own, found


def _shifted(data: Dataset, rule: SafetyRule) -> Dataset:
    """The log with returns or rewards shifted so that no weighted term is negative.

    is: the smallest return is subtracted once, at the first step: ρ(G − low). pdis: the smallest reward is subtracted in every
    step up to the horizon, also after the end, where the reward is 0 (as one sum in the last step). The expected weight of a step
    is 1, so the mean difference of policy and baseline does not change.
    """
    rewards = data.rewards.copy()
    if ESTIMATORS[rule.estimator].known_range == "return_range":
        assert rule.return_range is not None
        rewards[data.episode_ptr[:-1]] -= np.asarray(rule.return_range[0], dtype=np.float64)
    else:
        low, _ = _step_range(rule)
        rewards -= low
        rewards[data.episode_ptr[1:] - 1] -= low * _steps_after(data, rule)
    return replace(data, rewards=rewards)


def _step_range(rule: SafetyRule) -> tuple[Floats, Floats]:
    """Smallest and largest reward of any step, including steps after the end (0), each of shape [d]."""
    assert rule.reward_range is not None
    low, high = (np.asarray(edge, dtype=np.float64) for edge in rule.reward_range)
    return np.minimum(low, 0.0), np.maximum(high, 0.0)


def _is_shifted(rule: SafetyRule) -> bool:
    """Whether the terms are those of the shifted log (`_shifted`)."""
    return BOUNDS[rule.bound].finite_sample and ESTIMATORS[rule.estimator].known_range is not None


def _against(baseline: Floats, data: Log, rule: SafetyRule, model: Model | None) -> Floats:
    """Number with which the terms are compared, lowered like the terms, shape [d]; 0 for "paired", which compares term by term."""
    if rule.comparison == "paired":
        return np.zeros(rule.zeta.size)
    if rule.comparison == "published":
        if model is None:
            raise ParameterError("comparison 'published' needs the model of the training part.")
        known = model_return(model, baseline, baseline)
    else:
        known = logged_return(first_steps(data, rule.horizon))
    return known - _offset(data, rule) if _is_shifted(rule) else known


def _offset(data: Log, rule: SafetyRule) -> Floats:
    """Sum by which `_shifted` lowers the mean of the terms, shape [d]."""
    if ESTIMATORS[rule.estimator].known_range == "return_range":
        assert rule.return_range is not None
        return np.asarray(rule.return_range[0], dtype=np.float64)
    return _step_range(rule)[0] * _steps(data, rule)


def logged_return(data: Log) -> Floats:
    """μ: mean discounted return of the logged episodes, shape [d], without rewards after a truncation."""
    discount = np.array([objective.discount for objective in data.objectives])
    total = np.zeros(discount.size)
    for block in data.blocks():
        lengths = np.diff(block.episode_ptr)
        time = np.arange(block.n_rows) - np.repeat(block.episode_ptr[:-1], lengths)
        total += np.sum(discount ** time[:, None] * block.rewards, axis=0)
    return total / data.n_episodes


def _given_cap(data: Log, rule: SafetyRule, low: Floats) -> Floats:
    """Truncation level of `SafetyRule.truncation`, shape [d]; NaN where it is to be chosen."""
    if rule.truncation is None:
        return np.full(low.size, np.nan)
    return np.asarray(low + np.asarray(rule.truncation, dtype=np.float64) * _span(data, rule))


def _span(data: Log, rule: SafetyRule) -> Floats:
    """Width of the range of returns, shape [d]."""
    if rule.return_range is not None:
        low, high = (np.asarray(edge, dtype=np.float64) for edge in rule.return_range)
        return np.asarray(high - low)
    low, high = _step_range(rule)
    return np.asarray((high - low) * _steps(data, rule))


def _least(data: Log, rule: SafetyRule, terms: Floats, against: Floats) -> Floats:
    """Smallest possible term, shape [d]: policy weight 0 and the largest return of the baseline.

    With another comparison than "paired", the smallest return minus the number ``against`` [d] that is compared with, which every term
    shares; terms of dr or wdr can be lower, and then the smallest of ``terms`` [n, d] is taken.
    """
    if rule.comparison != "paired":
        assert rule.return_range is not None
        at_zero = (
            np.zeros(rule.zeta.size) if ESTIMATORS[rule.estimator].known_range else np.asarray(rule.return_range[0])
        )
        return np.asarray(np.minimum(at_zero - against, terms.min(axis=0)))
    if ESTIMATORS[rule.estimator].known_range == "return_range":
        assert rule.return_range is not None
        low, high = (np.asarray(edge, dtype=np.float64) for edge in rule.return_range)
        return np.asarray(low - high)
    low, high = _step_range(rule)
    return np.asarray((low - high) * _steps(data, rule))


def _steps(data: Log, rule: SafetyRule) -> Floats:
    """Discounted steps of a return, shape [d]."""
    return discounted_steps(np.array([objective.discount for objective in data.objectives]), rule.horizon)


def _steps_after(data: Dataset, rule: SafetyRule) -> Floats:
    """Discounted steps from the end of every episode to the horizon, at its last row, shape [n, d]: Σ_{0<s≤H−L} γ^s."""
    discount = np.array([objective.discount for objective in data.objectives])
    lengths = np.diff(data.episode_ptr)
    if rule.horizon is None:
        return np.repeat((discount * discounted_steps(discount))[None, :], lengths.size, axis=0)
    found = np.zeros((lengths.size, discount.size))
    for length in np.unique(lengths[lengths < rule.horizon]):
        found[lengths == length] = discount * discounted_steps(discount, rule.horizon - int(length))
    return found


def return_range(
    reward_low: Floats, reward_high: Floats, discount: Floats, horizon: int | None = None
) -> tuple[Floats, Floats]:
    """Lowest and highest return of an episode of any length ≥ 1, up to the horizon, whose rewards lie in [low, high], each [d]."""
    steps = discounted_steps(discount, horizon)
    low, high = (
        np.multiply(edge, steps, out=np.array(edge, dtype=np.float64), where=sign * edge > 0.0)
        for edge, sign in ((reward_low, -1.0), (reward_high, 1.0))
    )
    return low, high
