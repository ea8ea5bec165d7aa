"""H-OPT (MO-HCPI): make a proposal from one part of the data, and accept it only if it passes a safety test on another.

    π_t = Adv-Linearized (or Linearized) on the training part;   candidates π_α = (1−α) π_t + α π_b,   α ∈ {0, 0.1, …, 0.9}
    passes if, for every objective k, a lower bound at level δ_k on J_k(π_α) − J_k(π_b) is at least −ζ_k

``selection`` decides which passing candidate is returned, and the meaning of δ:

    "sequential"  candidates are tested in a fixed order, nearest to the baseline first, up to the first failure. The passing
                  candidate with the best estimate is returned. The probability that *any* accepted candidate is unsafe is at
                  most δ, without splitting δ over candidates: the first unsafe one in the order would have to pass.
    "best"        all candidates are tested, and the passing one with the best estimate on the test episodes is returned. There is
                  no correction for multiple tests, so it fails more often than δ.
    "paper"       as written in the paper: argmax of IS_λ(D_tr, π, π_b), the estimate on the *training* episodes, over the candidates
                  that pass on D_s. No correction either: each candidate passes wrongly with probability δ.
    "published"   as in the published code: the passing candidate with the best λ-weighted *lower bound*.

The paper's H-OPT is "paper" with ``comparison="empirical"``, ``strict=False`` and levels "split", for any estimator and bound; its
published code is "published" with ``comparison="published"`` and ``strict=False``. π_t may be Linearized too (`Proposal`).

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
from bettersafe.evaluation.held_out import Covered, SafetyRule, SafetyTest, safety_test, terms_test, with_skew
from bettersafe.logs.counts import count
from bettersafe.mdp.ends import ending, undiscounted
from bettersafe.mdp.mdp import by_state
from bettersafe.mdp.policy import check_policy
from bettersafe.methods.choices import PROPOSALS, SELECTIONS, ProposedBy, Selection
from bettersafe.methods.result import Improvement, check_preference, three_digits
from bettersafe.methods.s_opt import adv_linearized, linearized
from bettersafe.model import Model, estimate_model, model_return
from bettersafe.typing import Bools, Floats, Log, Progress, frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bettersafe.evaluation.choices import Comparison
    from bettersafe.evaluation.evaluate import Evaluation


MIXES = tuple(round(0.1 * i, 1) for i in range(10))
"""Default α of the candidates."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """How H-OPT makes its candidates.

    Attributes:
        method: Method of π_t: "adv-linearized" or "linearized".
        mixes: α of the candidates (1−α) π_t + α π_b, each in [0, 1).

    Examples:
        >>> from bettersafe.methods import Proposal
        >>> Proposal(method="linearized", mixes=[0.0, 0.5]).mixes
        (0.0, 0.5)
    """

    method: ProposedBy = "adv-linearized"
    mixes: Sequence[float] = MIXES

    def __post_init__(self) -> None:
        check_choice("proposal", self.method, PROPOSALS)
        shares = as_numbers("mixes", self.mixes)
        if shares.ndim != 1 or not shares.size or not np.all((shares >= 0.0) & (shares < 1.0)):
            raise ParameterError(f"mixes must be shares of the baseline in [0, 1); got {shares.tolist()}.")
        object.__setattr__(self, "mixes", tuple(shares.tolist()))


AS_IN_THE_PAPER = Proposal()


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
    proposal: Proposal = AS_IN_THE_PAPER,
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
        selection: "sequential", "best", "paper" or "published".
        proposal: Method of π_t, and α of the candidates.
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
    check_type("proposal", proposal, Proposal)
    d = train.n_objectives
    weights = check_preference(preference, d)
    rule = SafetyRule(delta=0.1, zeta=np.zeros(d)) if rule is None else rule
    check_vector("zeta", rule.zeta, d, "objective")
    base = check_policy(baseline, train.n_states, train.n_actions, name="baseline", state_labels=train.state_labels)
    fitted = estimate_model(count(train), baseline=base, horizon=rule.horizon) if model is None else model
    propose = linearized if proposal.method == "linearized" else adv_linearized
    target = propose(fitted, base, preference=weights, progress=progress)
    if rule.strict:
        target = with_support(target, fitted)

    tests: list[SafetyTest] = []
    if target.changed.size:
        values = control or fitted
        known = None
        if not BOUNDS[rule.bound].finite_sample and rule.comparison == "paired":  # finite-sample bounds shift the terms
            needed = values if ESTIMATORS[rule.estimator].needs_model else None
            known = evaluate_policy(
                safety, base, base, estimator=rule.estimator, model=needed, rng=fold_seed(0), horizon=rule.horizon
            ).per_trajectory
        for mix, candidate in mixtures(target.policy, base, proposal.mixes):
            test = safety_test(candidate, base, safety, rule, tuning=train, model=values, baseline_terms=known)
            found = _train_estimate(train, candidate, base, rule, values) if selection == "paper" else None
            tests.append(replace(test, mix=mix, train_estimate=found))
            if selection == "sequential" and not test.passed:
                break
    chosen = choose_candidate(tests, selection, weights)
    mix = 1.0 if chosen is None else chosen.mix
    policy = frozen(base if chosen is None else mixed(target.policy, base, mix), np.float64)
    return HOpt(
        improvement=replace(
            target,
            method="h-opt",
            policy=policy,
            policy_return=model_return(fitted, policy, base),
            distance=np.abs(policy - base).sum(axis=1),
            budget_used=(1.0 - mix) * target.budget_used if mix < 1.0 else np.zeros_like(target.budget_used),
        ),
        mix=mix,
        tests=tuple(tests),
        rule=rule,
        selection=selection,
        objectives=tuple(objective.name for objective in train.objectives),
    )


def _train_estimate(train: Log, policy: Floats, baseline: Floats, rule: SafetyRule, model: Model) -> Floats:
    """IS_k(D_tr, π, π_b), shape [d]; for dr and wdr with the model of the same episodes, as in the paper."""
    needed = model if ESTIMATORS[rule.estimator].needs_model else None
    return evaluate_policy(train, policy, baseline, estimator=rule.estimator, model=needed, horizon=rule.horizon).value


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

    It does the work of `h_opt` with an approximate bound, with one pass over the log for all settings.

    Attributes:
        proposal: π_t, shape [X, A].
        baseline: π_b, shape [X, A].
        terms: α and terms [n, d] of every candidate, nearest to the baseline first, by comparison and estimator.
        trained: Estimate of every candidate on the training episodes [d], in the same order, by estimator; empty if not computed.
        least: Smallest paired term of every candidate on the training episodes [d], in the same order, by estimator; empty if not computed.
        covered: How much of every candidate the data covers, in the same order; empty for rules without the coverage rule.
    """

    proposal: Floats
    baseline: Floats
    terms: Mapping[tuple[Comparison, str], Sequence[tuple[float, Floats]]]
    trained: Mapping[str, Sequence[Floats]]
    least: Mapping[str, Sequence[Floats]]
    covered: Sequence[Covered]

    def choose(self, rule: SafetyRule, selection: Selection, preference: Floats) -> Floats:
        """Policy that ``selection`` returns; the baseline if no candidate passes."""
        tests = []
        for i, (mix, terms) in enumerate(self.terms[rule.comparison, rule.estimator]):
            test = terms_test(terms, rule, mix=mix, covered=self.covered[i] if rule.strict else None)
            if rule.strict:
                least = self.least.get(rule.estimator)
                test = with_skew(test, terms, rule, None if least is None else least[i])
            known = self.trained.get(rule.estimator)
            tests.append(test if known is None else replace(test, train_estimate=known[i]))
        chosen = choose_candidate(tests, selection, preference)
        return self.baseline if chosen is None else mixed(self.proposal, self.baseline, chosen.mix)


def try_candidates(
    proposal: Floats,
    baseline: Floats,
    evaluate: Callable[[Floats], Mapping[str, Evaluation]],
    *,
    estimators: Sequence[str],
    fixed: Mapping[Comparison, Floats],
    train: Callable[[Floats], Mapping[str, Evaluation]] | None = None,
    covered: Callable[[Floats], Covered] | None = None,
) -> Trial:
    """Evaluate all candidates of a proposal with several estimators.

    Args:
        proposal: π_t, shape [X, A].
        baseline: π_b, shape [X, A].
        evaluate: Function from a policy to its evaluations on the safety part, by estimator.
        estimators: Names of the estimators to keep.
        fixed: Number that each comparison but "paired" compares with, shape [d]: J(π_b) in the trained model for "published", the
            mean return for "empirical".
        train: Function from a policy to its evaluations on the training part, for selection "paper" and for rare losses.
        covered: Function from a policy to how much of it the safety part covers, for rules with the coverage rule.
    """
    own = evaluate(baseline)
    own_train = {} if train is None else train(baseline)
    terms: dict[tuple[Comparison, str], list[tuple[float, Floats]]] = {}
    trained: dict[str, list[Floats]] = {}
    least: dict[str, list[Floats]] = {}
    known: list[Covered] = []
    for mix, candidate in mixtures(proposal, baseline):
        found = evaluate(candidate)
        on_train = {} if train is None else train(candidate)
        if covered is not None:
            known.append(covered(candidate))
        for estimator in estimators:
            against: dict[Comparison, Floats] = {"paired": own[estimator].per_trajectory, **fixed}
            for comparison, subtract in against.items():
                terms.setdefault((comparison, estimator), []).append((mix, found[estimator].per_trajectory - subtract))
            if estimator in on_train:
                trained.setdefault(estimator, []).append(on_train[estimator].value)
                paired = on_train[estimator].per_trajectory - own_train[estimator].per_trajectory
                least.setdefault(estimator, []).append(paired.min(axis=0))
    return Trial(proposal=proposal, baseline=baseline, terms=terms, trained=trained, least=least, covered=known)


def choose_candidate(tests: Sequence[SafetyTest], selection: Selection, preference: Floats) -> SafetyTest | None:
    """Test of the candidate that ``selection`` returns, or None; ``tests`` are ordered nearest to the baseline first."""
    check_choice("selection", selection, SELECTIONS)
    if selection == "sequential":
        tests = list(itertools.takewhile(lambda test: test.passed, tests))
    passing = [test for test in tests if test.passed]
    score = [float(preference @ _merit(test, selection)) for test in passing]
    return passing[int(np.argmax(score))] if passing else None


def _merit(test: SafetyTest, selection: Selection) -> Floats:
    """What ``selection`` maximises, before it is weighted by λ, shape [d]."""
    if selection == "published":
        return test.bound
    if selection == "paper":
        assert test.train_estimate is not None
        return test.train_estimate
    return test.estimate


def with_support(proposal: Improvement, model: Model) -> Improvement:
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
