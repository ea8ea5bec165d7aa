"""H-OPT (MO-HCPI): propose on one part of the data, and keep the proposal only if it passes a safety test on another.

    π_t = Adv-Linearized on the training part;   candidates π_α = (1−α) π_t + α π_b,   α ∈ {0, 0.1, …, 0.9}
    passes when, for every objective k, a lower bound at level δ_k on J_k(π_α) − J_k(π_b) is at least −ζ_k

Which of those that pass is returned, and what δ then means, depends on ``selection``:

    "sequential"  candidates are tested in an order fixed beforehand, the one nearest the baseline first, and testing
                  stops at the first failure; returned is the best estimate of those that passed. The chance that *any* accepted candidate
                  is unsafe is at most δ, with no division among candidates: the first unsafe one in the order must pass.
    "paper"       all are tested, the one with the best estimate among those that pass is returned. No correction for
                  having looked ten times: fails more often than δ says.
    "published"   as the published code: the best λ-weighted *lower bound* among those that pass.

and on ``comparison``:

    "paired"      the difference per trajectory, estimate(τ; π) − estimate(τ; π_b): its mean is what is asked about.
    "published"   the estimate of π against a fixed number, the baseline's return in the trained model, as if that were
                  known.

``levels``: "split" gives each objective δ/d; "full" gives each δ, which is enough when the order of candidates was fixed
without the safety data (an unsafe candidate must pass the test of the very objective that it violates).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from bettersafe.bounds import BOUNDS, Bound, choose_cap, is_finite_sample, lower_bound
from bettersafe.errors import ParameterError, check_choice, check_probability, check_vector
from bettersafe.evaluate import ESTIMATORS, INDEPENDENT, NEEDS_MODEL, Estimator, evaluate_policy
from bettersafe.improve import Improvement, adv_linearized, check_preference
from bettersafe.mdp import check_policy, expected_return, frozen
from bettersafe.model import estimate_model

if TYPE_CHECKING:
    from bettersafe.data import Dataset
    from bettersafe.model import Model

Floats = npt.NDArray[np.float64]
Selection = Literal["sequential", "paper", "published"]
SELECTIONS: tuple[Selection, ...] = ("sequential", "paper", "published")
Comparison = Literal["paired", "published"]
COMPARISONS: tuple[Comparison, ...] = ("paired", "published")
Levels = Literal["split", "full"]
LEVELS: tuple[Levels, ...] = ("split", "full")
MIXES = tuple(round(0.1 * i, 1) for i in range(10))


@dataclass(frozen=True, kw_only=True)
class SafetyTest:
    """One candidate's test on the safety data.

    Attributes:
        mix: α, the baseline's share of the candidate.
        estimate: Estimated J_k(π) − J_k(π_b), shape [d].
        bound: Its lower bound, shape [d].
        level: δ_k of each bound.
        passed: Whether every bound is at least −ζ_k; NaN does not pass.
    """

    mix: float
    estimate: Floats
    bound: Floats
    level: float
    passed: bool


@dataclass(frozen=True, kw_only=True)
class HOpt:
    """What H-OPT found.

    Attributes:
        improvement: The policy returned, as from any other method; the baseline if nothing passed.
        mix: α of the candidate returned; 1 for the baseline.
        tests: Every test made, in order.
        estimator: Off-policy estimator.
        bound: Lower bound.
        selection: Rule of choice.
        comparison: What was compared.
        levels: How δ was given to the objectives.
        delta: δ.
        zeta: ζ, shape [d].
    """

    improvement: Improvement
    mix: float
    tests: tuple[SafetyTest, ...]
    estimator: Estimator
    bound: Bound
    selection: Selection
    comparison: Comparison
    levels: Levels
    delta: float
    zeta: Floats

    @property
    def accepted(self) -> bool:
        """Whether a candidate passed."""
        return self.mix < 1.0

    @property
    def reason(self) -> str:
        """The outcome in one sentence."""
        if self.accepted:
            return (
                f"The candidate with {100 * (1.0 - self.mix):.0f} % of the proposal and {100 * self.mix:.0f} % of the baseline"
                f" passed the safety test on {self.improvement.preference.size} objectives."
            )
        if not self.tests:
            return (
                "No solution found: training proposed nothing better than the baseline, so there was nothing to test."
            )
        nearest = self.tests[0]
        k = int(np.argmin(nearest.bound + self.zeta))
        return (
            f"No solution found: even the candidate nearest the baseline did not pass; on objective {k} its gain is estimated"
            f" as {nearest.estimate[k]:.4g}, but only {nearest.bound[k]:.4g} is certain at level {nearest.level:.3g}."
        )


def h_opt(
    train: Dataset,
    safety: Dataset,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    delta: float = 0.1,
    zeta: npt.ArrayLike | None = None,
    estimator: Estimator = "dr",
    bound: Bound = "t",
    selection: Selection = "sequential",
    comparison: Comparison = "paired",
    levels: Levels = "split",
    mixes: tuple[float, ...] = MIXES,
    reward_range: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    return_range: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    model: Model | None = None,
) -> HOpt:
    """Improve by proposal and test.

    Args:
        train: Episodes to propose from; the model of dr and wdr is fitted on them.
        safety: Episodes to test on; `split` makes both from one dataset.
        baseline: π_b, shape [X, A].
        preference: λ, shape [d].
        delta: Allowed probability of returning a policy that is worse on some objective.
        zeta: Accepted loss per objective, shape [d]; 0 if left out.
        estimator: Any of `evaluate.ESTIMATORS` but "model".
        bound: Any of `bounds.BOUNDS`; finite-sample ones need independent terms (is, pdis) and a known range.
        selection: "sequential", "paper" or "published".
        comparison: "paired" or "published".
        levels: "split" or "full".
        mixes: The α of the candidates, each in [0, 1).
        reward_range: For pdis with a finite-sample bound: rewards lie in [low, high], each [d].
        return_range: For is with a finite-sample bound: discounted returns lie in [low, high], each [d].
        model: The model of the training part, if it is there already.
    """
    check_choice("estimator", estimator, [e for e in ESTIMATORS if e != "model"])
    check_choice("bound", bound, BOUNDS)
    check_choice("selection", selection, SELECTIONS)
    check_choice("comparison", comparison, COMPARISONS)
    check_choice("levels", levels, LEVELS)
    check_probability("delta", delta)
    if not mixes or not all(0.0 <= mix < 1.0 for mix in mixes):
        raise ParameterError(f"mixes must be shares of the baseline in [0, 1); got {mixes}.")
    d = train.n_objectives
    weights = check_preference(preference, d)
    loss = np.zeros(d) if zeta is None else check_vector("zeta", zeta, d, "objective")
    base = check_policy(baseline, train.n_states, train.n_actions, name="baseline", state_labels=train.state_labels)
    fitted = estimate_model(train) if model is None else model
    proposal = adv_linearized(fitted, base, preference=weights)
    level = delta / d if levels == "split" else delta
    test = _Tester(
        train=train, safety=safety, baseline=base, model=fitted, estimator=estimator, bound=bound, comparison=comparison,
        level=level, zeta=loss, reward_range=reward_range, return_range=return_range,
    )  # fmt: skip

    tests: list[SafetyTest] = []
    chosen: SafetyTest | None = None
    if proposal.changed.size:
        for mix in sorted(mixes, reverse=True):  # nearest the baseline first
            result = test(mix, (1.0 - mix) * proposal.policy + mix * base)
            tests.append(result)
            if selection == "sequential" and not result.passed:
                break
        passing = [result for result in tests if result.passed]
        if passing:
            by_bound = selection == "published"
            chosen = max(passing, key=lambda r: float(weights @ (r.bound if by_bound else r.estimate)))
    mix = 1.0 if chosen is None else chosen.mix
    policy = frozen(base if chosen is None else (1.0 - mix) * proposal.policy + mix * base, np.float64)
    return HOpt(
        improvement=replace(
            proposal,
            method="h-opt",
            policy=policy,
            policy_return=expected_return(fitted.mdp, policy),
            distance=np.abs(policy - base).sum(axis=1),
            budget_used=(1.0 - mix) * proposal.budget_used,
        ),
        mix=mix,
        tests=tuple(tests),
        estimator=estimator,
        bound=bound,
        selection=selection,
        comparison=comparison,
        levels=levels,
        delta=delta,
        zeta=loss,
    )


@dataclass(frozen=True, kw_only=True)
class _Tester:
    """The safety test with everything but the candidate filled in."""

    train: Dataset
    safety: Dataset
    baseline: Floats
    model: Model
    estimator: Estimator
    bound: Bound
    comparison: Comparison
    level: float
    zeta: Floats
    reward_range: tuple[npt.ArrayLike, npt.ArrayLike] | None
    return_range: tuple[npt.ArrayLike, npt.ArrayLike] | None

    def __post_init__(self) -> None:
        if not is_finite_sample(self.bound):
            return
        if self.estimator not in INDEPENDENT:
            raise ParameterError(
                f"the bound {self.bound!r} holds for independent terms, which those of {self.estimator!r} are not; use 't' or"
                " 'bca' (approximate), or the estimators 'is' or 'pdis'."
            )
        if self.estimator == "dr":
            raise ParameterError(
                f"the terms of 'dr' have no useful least value, which the bound {self.bound!r} needs; use 't' or 'bca'"
                " (approximate), or the estimators 'is' or 'pdis'."
            )
        if self.comparison == "published":
            raise ParameterError(f"the bound {self.bound!r} goes with comparison 'paired'.")
        if (self.return_range if self.estimator == "is" else self.reward_range) is None:
            what = "return_range" if self.estimator == "is" else "reward_range"
            raise ParameterError(
                f"the bound {self.bound!r} with {self.estimator!r} needs {what}=(low, high), known beforehand."
            )

    def __call__(self, mix: float, candidate: Floats) -> SafetyTest:
        """Test one candidate on the safety data."""
        terms = self._terms(self.safety, candidate)
        if is_finite_sample(self.bound):
            low = self._least()
            cap = choose_cap(
                self._terms(self.train, candidate),
                self.level,
                method=self.bound,
                low=low,
                high=np.inf,
                n_later=terms.shape[0],
            )
            bound = lower_bound(terms, self.level, method=self.bound, low=low, cap=cap)
        else:
            bound = lower_bound(terms, self.level, method=self.bound)
        return SafetyTest(
            mix=mix,
            estimate=terms.mean(axis=0),
            bound=bound,
            level=self.level,
            passed=bool(np.all(bound >= -self.zeta)),
        )

    def _terms(self, data: Dataset, candidate: Floats) -> Floats:
        """Terms whose mean is J(candidate) − J(π_b), shape [n, d]."""
        if is_finite_sample(self.bound) and self.estimator == "pdis":
            data = self._shifted(data)
        model = self.model if self.estimator in NEEDS_MODEL else None
        target = evaluate_policy(data, candidate, self.baseline, estimator=self.estimator, model=model)
        if self.comparison == "published":
            return target.per_trajectory - expected_return(self.model.mdp, self.baseline)
        return (
            target.per_trajectory
            - evaluate_policy(data, self.baseline, self.baseline, estimator=self.estimator, model=model).per_trajectory
        )

    def _shifted(self, data: Dataset) -> Dataset:
        """The same log with the least reward taken off every step, those after the end included (in one sum, at the end).

        Then no per-decision term is negative. The expected weight of a step is 1, so the difference keeps its mean.
        """
        assert self.reward_range is not None
        discount = np.array([objective.discount for objective in data.objectives])
        low = np.asarray(self.reward_range[0], dtype=np.float64)
        rewards = data.rewards - low
        rewards[data.episode_ptr[1:] - 1] -= low * discount / (1.0 - discount)
        return replace(data, rewards=rewards)

    def _least(self) -> Floats:
        """What the paired terms are never below: candidate weights 0, the baseline's return at its highest, shape [d]."""
        discount = np.array([objective.discount for objective in self.safety.objectives])
        if self.estimator == "is":
            assert self.return_range is not None
            low, high = (np.asarray(edge, dtype=np.float64) for edge in self.return_range)
            return np.asarray(low - high)
        assert self.reward_range is not None
        low, high = (np.asarray(edge, dtype=np.float64) for edge in self.reward_range)
        return np.asarray((low - high) / (1.0 - discount))
