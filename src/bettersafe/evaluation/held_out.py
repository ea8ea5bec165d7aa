"""The safety test: is a policy, on data that it was not made from, no worse than the baseline on any objective?

    passes when, for every objective k, a lower bound at level δ_k on J_k(π) − J_k(π_b) is at least −ζ_k

``comparison`` says what the bound is on:

    "paired"      the difference per trajectory, estimate(τ; π) − estimate(τ; π_b): its mean is what is asked about.
    "published"   the estimate of π against a fixed number, the baseline's return in the trained model, as if that were
                  known.

``levels``: "split" gives each objective δ/d, so that all bounds hold together; "full" gives each δ, which is enough for
the verdict when the policy was fixed without this data (an unsafe policy must pass the test of the very objective that it
violates).

What the data can't tell does not pass: a policy that plays what the baseline never plays; and with an approximate bound, which
believes the spread of the terms, also one that raises what was never seen tried, one whose weights rest on a few episodes, and
one for which all terms are the same (it changes nothing where the data goes).
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
    check_probability,
    check_type,
    check_vector,
    listed,
)
from bettersafe.evaluation.bounds import choose_cap, lower_bound
from bettersafe.evaluation.choices import COMPARISONS, LEVELS, Comparison, Levels
from bettersafe.evaluation.evaluate import evaluate_policy
from bettersafe.evaluation.facts import BOUNDED, BOUNDS, ESTIMATORS, TESTABLE
from bettersafe.evaluation.support import UNSEEN_TOL, UNSUPPORTED_TOL
from bettersafe.logs.episodes import row_visits, with_blocks
from bettersafe.mdp.policy import policy_table
from bettersafe.mdp.values import expected_return
from bettersafe.typing import generator

if TYPE_CHECKING:
    from bettersafe.logs.dataset import Dataset
    from bettersafe.model import Model
    from bettersafe.typing import Floats, Log, Rng


Range = tuple[npt.ArrayLike, npt.ArrayLike]


@dataclass(frozen=True, kw_only=True)
class SafetyRule:
    """How a policy is tested.

    Attributes:
        delta: δ, the allowed probability of passing a policy that is worse on some objective.
        zeta: ζ, accepted loss per objective, shape [d].
        estimator: Any of `bettersafe.evaluation.TESTABLE`.
        bound: Any of `bettersafe.evaluation.BOUNDS`; finite-sample ones need independent terms (is, pdis) and a known range.
        comparison: "paired" or "published".
        levels: "split" or "full".
        reward_range: For pdis with a finite-sample bound: rewards lie in [low, high], each [d].
        return_range: For is with a finite-sample bound: discounted returns lie in [low, high], each [d].
        strict: Whether what the data can't tell is refused; False tests the bounds alone, as the paper does.

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

    def __post_init__(self) -> None:
        check_choice("estimator", self.estimator, TESTABLE)
        check_choice("bound", self.bound, BOUNDS)
        check_choice("comparison", self.comparison, COMPARISONS)
        check_choice("levels", self.levels, LEVELS)
        check_probability("delta", self.delta)
        zeta = as_numbers("zeta", self.zeta)
        object.__setattr__(self, "zeta", check_vector("zeta", zeta, zeta.size, "objective"))
        if np.any(self.zeta < 0.0):
            raise ParameterError(f"zeta is a loss that is accepted, 0 or more; got {self.zeta.tolist()}.")
        if BOUNDS[self.bound].finite_sample:
            self._check_finite_sample()

    def _check_finite_sample(self) -> None:
        facts = ESTIMATORS[self.estimator]
        instead = f"use 't' or 'bca' (approximate), or the estimators {listed(map(repr, BOUNDED), last='or')}."
        if not facts.independent:
            raise ParameterError(
                f"the bound {self.bound!r} holds for independent terms, which those of {self.estimator!r} are not; {instead}"
            )
        if facts.known_range is None:
            raise ParameterError(
                f"the terms of {self.estimator!r} have no useful least value, which the bound {self.bound!r} needs; {instead}"
            )
        if self.comparison == "published":
            raise ParameterError(f"the bound {self.bound!r} goes with comparison 'paired'.")
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
class SafetyTest:
    """One policy's test.

    Attributes:
        estimate: Estimated J_k(π) − J_k(π_b), shape [d].
        bound: Its lower bound, shape [d].
        level: δ_k of each bound.
        zeta: Accepted loss, shape [d].
        unsupported: Share of the policy's decisions, over the states of the data, that the baseline never takes.
        unseen: Share of them that the policy takes more often than the baseline and that no data has; 0 where the bound does
            not mind.
        few_effective_episodes: Whether the weights rest on too few episodes; False where the bound does not mind.
        mix: The baseline's share of the policy, where it is a candidate of H-OPT.
    """

    estimate: Floats
    bound: Floats
    level: float
    zeta: Floats
    unsupported: float
    unseen: float = 0.0
    few_effective_episodes: bool = False
    mix: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every bound is at least −ζ_k; NaN does not pass, nor does what the data can't tell."""
        return bool(np.all(self.bound >= -self.zeta)) and not self.refusal

    @property
    def refusal(self) -> str:
        """Why the data can't tell, in words; empty if it can."""
        if not self.unsupported <= UNSUPPORTED_TOL:
            return f"{100 * self.unsupported:.3g} % of its decisions are ones that the baseline never takes"
        if not self.unseen <= UNSEEN_TOL:
            return f"{100 * self.unseen:.3g} % of its decisions are ones that no data has"
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
    """Test ``policy`` [X, A] against ``baseline`` [X, A] on ``safety``, which neither was made from.

    Args:
        policy: π.
        baseline: π_b, which made the data.
        safety: Episodes to test on, in memory or on disk.
        rule: How.
        tuning: Other episodes, for finite-sample bounds: where to cut the terms is chosen on them.
        model: For dr and wdr, of other data.
        folds: Instead of a model: cross-fitting on ``safety``.
        rng: Seed or generator that draws the folds.
        baseline_terms: The baseline's own terms on ``safety`` (`evaluate_policy`), shape [n, d], where many policies are
            tested on the same data.
        training_baseline: What the baseline was taken to be when the policy was made, shape [X, A], if that was estimated anew since: what
            the policy does not do more often than either is not raised.

    Examples:
        >>> from bettersafe.evaluation import safety_test
        >>> policy = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy
        >>> test = safety_test(policy, baseline, later, bettersafe.SafetyRule(delta=0.1, zeta=[0.0, 0.0]), model=model)
        >>> test.bound.shape
        (2,)
    """
    check_log("safety", safety)
    check_type("rule", rule, SafetyRule)
    policy = policy_table(policy, safety.n_states, safety.n_actions)
    baseline = policy_table(baseline, safety.n_states, safety.n_actions, name="baseline")
    check_vector("zeta", rule.zeta, safety.n_objectives, "objective")
    terms = paired_terms(
        policy, baseline, safety, rule, model=model, folds=folds, rng=rng, baseline_terms=baseline_terms
    )
    if BOUNDS[rule.bound].finite_sample:
        if tuning is None:
            raise ParameterError(
                f"the bound {rule.bound!r} needs other episodes (tuning=), to choose on them where to cut the terms."
            )
        low = _least(safety, rule)
        before = paired_terms(policy, baseline, tuning, rule, model=model)
        cap = choose_cap(before, rule.level, method=rule.bound, low=low, high=np.inf, n_later=terms.shape[0])
        test = terms_test(terms, rule, low=low, cap=cap)
    else:
        test = terms_test(terms, rule)
        if rule.strict:
            alike = np.ptp(terms, axis=0) <= 1e-12 * (1.0 + np.max(np.abs(terms), axis=0))
            known = baseline if training_baseline is None else np.maximum(baseline, training_baseline)
            test = replace(
                test,
                bound=np.where(alike, -np.inf, test.bound),
                unseen=unseen_share(policy, known, safety, model),
                few_effective_episodes=evaluate_policy(safety, policy, baseline, estimator="is").few_carry_it,
            )
    return replace(test, unsupported=unsupported_share(policy, baseline, safety)) if rule.strict else test


def terms_test(
    terms: Floats, rule: SafetyRule, *, low: Floats | None = None, cap: Floats | None = None, mix: float = 0.0
) -> SafetyTest:
    """The test of paired terms [n, d] alone: what the data can't tell is not asked.

    Args:
        terms: Terms whose mean is J(π) − J(π_b).
        rule: How.
        low: For finite-sample bounds, as in `lower_bound`.
        cap: The same.
        mix: The baseline's share of the policy, where it is a candidate of H-OPT.
    """
    return SafetyTest(
        estimate=terms.mean(axis=0),
        bound=lower_bound(terms, rule.level, method=rule.bound, low=low, cap=cap),
        level=rule.level,
        zeta=rule.zeta,
        unsupported=0.0,
        mix=mix,
    )


def unseen_share(policy: Floats, baseline: Floats, data: Log, model: Model | None) -> float:
    """Share of decisions, over the states of the data, that the policy takes more often than the baseline does, and that
    neither the data nor the model's has.
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
    """Share of the policy's decisions, over the states of the data, that the baseline never takes."""
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
    if BOUNDS[rule.bound].finite_sample:
        data = with_blocks(data, lambda block: _shifted(block, rule))
    seed = int(generator(rng).integers(2**63))  # both policies with the same folds

    def terms(target: Floats) -> Floats:
        needs = ESTIMATORS[rule.estimator].needs_model
        return evaluate_policy(
            data,
            target,
            baseline,
            estimator=rule.estimator,
            model=model if needs else None,
            folds=folds if needs else None,
            rng=seed,
        ).per_trajectory

    if rule.comparison == "published":
        if model is None:
            raise ParameterError("comparison 'published' needs the model of the training part.")
        return terms(policy) - expected_return(model.mdp, baseline)
    return terms(policy) - (terms(baseline) if baseline_terms is None else baseline_terms)


def _shifted(data: Dataset, rule: SafetyRule) -> Dataset:
    """The same log with returns or rewards moved up so that no weighted term is negative.

    is: the least return is taken off once, at the first step: ρ(G − low). pdis: the least reward is taken off every step,
    those after the end included (where the reward is 0; in one sum, at the end). The expected weight of a step is 1, so the
    difference of policy and baseline keeps its mean.
    """
    discount = np.array([objective.discount for objective in data.objectives])
    rewards = data.rewards.copy()
    if ESTIMATORS[rule.estimator].known_range == "return_range":
        assert rule.return_range is not None
        rewards[data.episode_ptr[:-1]] -= np.asarray(rule.return_range[0], dtype=np.float64)
    else:
        low, _ = _step_range(rule)
        rewards -= low
        rewards[data.episode_ptr[1:] - 1] -= low * discount / (1.0 - discount)
    return replace(data, rewards=rewards)


def _step_range(rule: SafetyRule) -> tuple[Floats, Floats]:
    """Lowest and highest reward of any step, those after the end (0) included, each [d]."""
    assert rule.reward_range is not None
    low, high = (np.asarray(edge, dtype=np.float64) for edge in rule.reward_range)
    return np.minimum(low, 0.0), np.maximum(high, 0.0)


def _least(data: Log, rule: SafetyRule) -> Floats:
    """What the paired terms are never below: the policy's weights 0, the baseline's return at its highest, shape [d]."""
    if ESTIMATORS[rule.estimator].known_range == "return_range":
        assert rule.return_range is not None
        low, high = (np.asarray(edge, dtype=np.float64) for edge in rule.return_range)
        return np.asarray(low - high)
    low, high = _step_range(rule)
    discount = np.array([objective.discount for objective in data.objectives])
    return np.asarray((low - high) / (1.0 - discount))
