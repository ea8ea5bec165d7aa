"""H-OPT (MO-HCPI): make a proposal from one part of the data, and accept it only if it passes a safety test on another.

    π_t = Adv-Linearized on the training part;   candidates π_α = (1−α) π_t + α π_b,   α ∈ {0, 0.1, …, 0.9}
    passes if, for every objective k, a lower bound at level δ_k on J_k(π_α) − J_k(π_b) is at least −ζ_k

``selection`` decides which passing candidate is returned, and the meaning of δ:

    "sequential"  candidates are tested in a fixed order, nearest to the baseline first, up to the first failure. The passing
                  candidate with the best estimate is returned. The probability that *any* accepted candidate is unsafe is at
                  most δ, without splitting δ over candidates: the first unsafe one in the order would have to pass.
    "paper"       all candidates are tested, and the passing one with the best estimate is returned. There is no correction
                  for multiple tests, so it fails more often than δ.
    "published"   as in the published code: the passing candidate with the best λ-weighted *lower bound*.

Candidates raise only actions with training data. In a state where the proposal raises another action, the data can't show its
effect, and the baseline's row is kept. ``strict=False`` omits this and tests the bounds alone, as published.
"""

from __future__ import annotations

import itertools
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
    check_type,
    check_vector,
)
from bettersafe.evaluation.evaluate import evaluate_policy, fold_seed
from bettersafe.evaluation.facts import BOUNDS, ESTIMATORS
from bettersafe.evaluation.held_out import SafetyRule, SafetyTest, safety_test, terms_test
from bettersafe.logs.counts import count
from bettersafe.mdp.ends import ending, undiscounted
from bettersafe.mdp.mdp import by_state
from bettersafe.mdp.policy import check_policy
from bettersafe.methods.choices import SELECTIONS, Selection
from bettersafe.methods.result import Improvement, check_preference, three_digits
from bettersafe.methods.s_opt import adv_linearized
from bettersafe.model import Model, estimate_model, model_return
from bettersafe.typing import Bools, Floats, Log, Progress, frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bettersafe.evaluation.choices import Comparison
    from bettersafe.evaluation.evaluate import Evaluation


MIXES = tuple(round(0.1 * i, 1) for i in range(10))
"""Default α of the candidates."""


@dataclass(frozen=True, kw_only=True)
class HOpt:
    """The policy that H-OPT returns, and the tests that it made.

    Attributes:
        improvement: Returned policy, as from other methods; the baseline if no candidate passed.
        mix: α of the returned candidate; 1 for the baseline.
        tests: All tests, in order.
        rule: Settings of the tests.
        selection: Selection rule.
        objectives: Names of the objectives, length d.
    """

    improvement: Improvement
    mix: float
    tests: tuple[SafetyTest, ...]
    rule: SafetyRule
    selection: Selection
    objectives: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        """Whether a candidate passed."""
        return self.mix < 1.0

    @property
    def deciding(self) -> SafetyTest | None:
        """Test of the returned policy or, if no candidate passed, of the candidate nearest to the baseline."""
        if not self.tests:
            return None
        return next((test for test in self.tests if test.mix == self.mix), self.tests[0])

    @property
    def reason(self) -> str:
        """Result in one sentence."""
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
        if nearest.refusal:
            return (
                "No solution found: the data can't show the effect of the candidate nearest to the baseline:"
                f" {nearest.refusal}."
            )
        short = nearest.bound + nearest.zeta
        k = int(np.argmin(np.where(np.isnan(short), -np.inf, short)))
        return (
            f"No solution found: even the candidate nearest to the baseline did not pass the test; on {self.objectives[k]} its gain is"
            f" estimated as {three_digits(nearest.estimate[k])}, with a lower bound of {three_digits(nearest.bound[k])} at level {nearest.level:.3g}."
        )


def h_opt(
    train: Log,
    safety: Log,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    rule: SafetyRule | None = None,
    selection: Selection = "sequential",
    mixes: Sequence[float] = MIXES,
    model: Model | None = None,
    control: Model | None = None,
    progress: Progress | None = None,
) -> HOpt:
    """H-OPT: the best candidate that passes a safety test on held-out episodes.

    Args:
        train: Training episodes, for the proposal and for the model of dr and wdr.
        safety: Test episodes; `split` makes both from one dataset. Either may be on disk (`open_episodes`).
        baseline: π_b, shape [X, A].
        preference: λ, shape [d].
        rule: Settings of the tests; default: δ = 0.1 and ζ = 0. With ``rule.strict``, candidates raise only actions with training
            data, and policies that the data does not cover are refused.
        selection: "sequential", "paper" or "published".
        mixes: α of the candidates, each in [0, 1).
        model: Model of the training part, if already estimated.
        control: Model for dr and wdr, also of the training part; default: ``model``.
        progress: Callback after every round of the proposal's policy iteration.

    Examples:
        >>> train, safety = bettersafe.split(log, [0.7, 0.3], rng=0)
        >>> found = bettersafe.h_opt(train, safety, baseline, preference=[1.0, 1.0])
        >>> found.accepted
        True
        >>> print(found.reason)
        The candidate with ... % of the proposal and ... % of the baseline passed the safety test on 2 objectives.
    """
    check_options(progress=progress)
    for name, part in (("train", train), ("safety", safety)):
        check_log(name, part)
    if rule is not None:
        check_type("rule", rule, SafetyRule)
    for name, fit in (("model", model), ("control", control)):
        if fit is not None:
            check_type(name, fit, Model)
    check_choice("selection", selection, SELECTIONS)
    shares = as_numbers("mixes", mixes)
    if shares.ndim != 1 or not shares.size or not np.all((shares >= 0.0) & (shares < 1.0)):
        raise ParameterError(f"mixes must be shares of the baseline in [0, 1); got {shares.tolist()}.")
    d = train.n_objectives
    weights = check_preference(preference, d)
    rule = SafetyRule(delta=0.1, zeta=np.zeros(d)) if rule is None else rule
    check_vector("zeta", rule.zeta, d, "objective")
    base = check_policy(baseline, train.n_states, train.n_actions, name="baseline", state_labels=train.state_labels)
    fitted = estimate_model(count(train), baseline=base, horizon=rule.horizon) if model is None else model
    proposal = adv_linearized(fitted, base, preference=weights, progress=progress)
    if rule.strict:
        proposal = _with_support(proposal, fitted)

    tests: list[SafetyTest] = []
    if proposal.changed.size:
        values = control or fitted
        known = None
        if not BOUNDS[rule.bound].finite_sample and rule.comparison == "paired":  # finite-sample bounds shift the terms
            needed = values if ESTIMATORS[rule.estimator].needs_model else None
            known = evaluate_policy(
                safety, base, base, estimator=rule.estimator, model=needed, rng=fold_seed(0), horizon=rule.horizon
            ).per_trajectory
        for mix, candidate in mixtures(proposal.policy, base, mixes):
            test = safety_test(candidate, base, safety, rule, tuning=train, model=values, baseline_terms=known)
            tests.append(replace(test, mix=mix))
            if selection == "sequential" and not test.passed:
                break
    chosen = choose_candidate(tests, selection, weights)
    mix = 1.0 if chosen is None else chosen.mix
    policy = frozen(base if chosen is None else mixed(proposal.policy, base, mix), np.float64)
    return HOpt(
        improvement=replace(
            proposal,
            method="h-opt",
            policy=policy,
            policy_return=model_return(fitted, policy, base),
            distance=np.abs(policy - base).sum(axis=1),
            budget_used=(1.0 - mix) * proposal.budget_used if mix < 1.0 else np.zeros_like(proposal.budget_used),
        ),
        mix=mix,
        tests=tuple(tests),
        rule=rule,
        selection=selection,
        objectives=tuple(objective.name for objective in train.objectives),
    )


def mixed(proposal: Floats, baseline: Floats, mix: float) -> Floats:
    """Candidate π_α, shape [X, A]: (1−α) of the proposal and α = ``mix`` of the baseline."""
    return (1.0 - mix) * proposal + mix * baseline


def mixtures(proposal: Floats, baseline: Floats, mixes: Sequence[float] = MIXES) -> Iterator[tuple[float, Floats]]:
    """Candidates (α, π_α) in order of their tests: nearest to the baseline first."""
    for mix in sorted(mixes, reverse=True):
        yield mix, mixed(proposal, baseline, mix)


def inside(policy: Floats, baseline: Floats, allowed: Bools) -> Floats:
    """``policy``, with the baseline's row in states where it raises an action that is not ``allowed``; all of shape [X, A]."""
    outside = np.any((policy > baseline) & ~allowed, axis=1, keepdims=True)
    return np.where(outside, baseline, policy)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Candidates of one proposal on one log, for several estimators, comparisons, levels and selections.

    It does the work of `h_opt` with ``strict=False`` and an approximate bound, with one pass over the log for all settings.

    Attributes:
        proposal: π_t, shape [X, A].
        baseline: π_b, shape [X, A].
        terms: α and terms [n, d] of every candidate, nearest to the baseline first, by comparison and estimator.
    """

    proposal: Floats
    baseline: Floats
    terms: Mapping[tuple[Comparison, str], Sequence[tuple[float, Floats]]]

    def choose(self, rule: SafetyRule, selection: Selection, preference: Floats) -> Floats:
        """Policy that ``selection`` returns; the baseline if no candidate passes."""
        tests = [terms_test(terms, rule, mix=mix) for mix, terms in self.terms[rule.comparison, rule.estimator]]
        chosen = choose_candidate(tests, selection, preference)
        return self.baseline if chosen is None else mixed(self.proposal, self.baseline, chosen.mix)


def try_candidates(
    proposal: Floats,
    baseline: Floats,
    evaluate: Callable[[Floats], Mapping[str, Evaluation]],
    *,
    estimators: Sequence[str],
    baseline_return: Floats,
) -> Trial:
    """Evaluate all candidates of a proposal with several estimators.

    Args:
        proposal: π_t, shape [X, A].
        baseline: π_b, shape [X, A].
        evaluate: Function from a policy to its evaluations on the safety part, by estimator.
        estimators: Names of the estimators to keep.
        baseline_return: J(π_b) in the trained model, shape [d], for comparison "published".
    """
    own = evaluate(baseline)
    terms: dict[tuple[Comparison, str], list[tuple[float, Floats]]] = {}
    for mix, candidate in mixtures(proposal, baseline):
        found = evaluate(candidate)
        for estimator in estimators:
            against: dict[Comparison, Floats] = {"paired": own[estimator].per_trajectory, "published": baseline_return}
            for comparison, subtract in against.items():
                terms.setdefault((comparison, estimator), []).append((mix, found[estimator].per_trajectory - subtract))
    return Trial(proposal=proposal, baseline=baseline, terms=terms)


def choose_candidate(tests: Sequence[SafetyTest], selection: Selection, preference: Floats) -> SafetyTest | None:
    """Test of the candidate that ``selection`` returns, or None; ``tests`` are ordered nearest to the baseline first."""
    check_choice("selection", selection, SELECTIONS)
    if selection == "sequential":
        tests = list(itertools.takewhile(lambda test: test.passed, tests))
    passing = [test for test in tests if test.passed]
    by_bound = selection == "published"
    score = [float(preference @ (test.bound if by_bound else test.estimate)) for test in passing]
    return passing[int(np.argmax(score))] if passing else None


def _with_support(proposal: Improvement, model: Model) -> Improvement:
    """The proposal, with the baseline's row in states where it raises an action without data or with baseline probability 0."""
    seen = np.zeros(proposal.policy.shape, dtype=bool)
    tried = model.counts > 0
    seen[model.mdp.pair_state[tried], model.mdp.pair_action[tried]] = True
    seen &= proposal.baseline > 0.0
    policy = inside(proposal.policy, proposal.baseline, seen)
    if undiscounted(model.mdp):
        policy = ending(model.mdp, policy, proposal.baseline)
    if np.array_equal(policy, proposal.policy):
        return proposal
    deviation = np.abs(policy - proposal.baseline)
    at_pair = deviation[model.mdp.pair_state, model.mdp.pair_action]
    spent = np.where(at_pair > 0.0, model.error, 0.0) * at_pair
    return replace(
        proposal,
        policy=policy,
        policy_return=model_return(model, policy, proposal.baseline),
        distance=deviation.sum(axis=1),
        budget_used=by_state(model.mdp, spent),
    )
