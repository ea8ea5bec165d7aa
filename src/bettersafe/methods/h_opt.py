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

Candidates raise only what the training part has seen tried: in a state where the proposal would do otherwise, nothing in the
data could tell what comes of it, and the baseline's row is kept (``strict=False`` leaves that out, and tests the bounds alone, as published).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe.errors import ParameterError, check_choice, check_vector
from bettersafe.evaluation.evaluate import evaluate_policy
from bettersafe.evaluation.facts import BOUNDS, ESTIMATORS
from bettersafe.evaluation.held_out import SafetyRule, SafetyTest, safety_test, terms_test
from bettersafe.logs.counts import count
from bettersafe.mdp.mdp import by_state
from bettersafe.mdp.policy import check_policy
from bettersafe.mdp.values import expected_return
from bettersafe.methods.choices import SELECTIONS, Selection
from bettersafe.methods.result import Improvement, check_preference
from bettersafe.methods.s_opt import adv_linearized
from bettersafe.model import estimate_model
from bettersafe.typing import Bools, Floats, Log, Progress, frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bettersafe.evaluation.choices import Comparison
    from bettersafe.evaluation.evaluate import Evaluation
    from bettersafe.model import Model


MIXES = tuple(round(0.1 * i, 1) for i in range(10))


@dataclass(frozen=True, kw_only=True)
class HOpt:
    """The policy that H-OPT returns, and the tests that it made.

    Attributes:
        improvement: The policy returned, as from any other method; the baseline if nothing passed.
        mix: α of the candidate returned; 1 for the baseline.
        tests: Every test made, in order.
        rule: How candidates were tested.
        selection: Which of those that pass is returned.
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
        """The test of the policy returned, or, where nothing passed, of the candidate nearest the baseline."""
        if not self.tests:
            return None
        return next((test for test in self.tests if test.mix == self.mix), self.tests[0])

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
        if nearest.refusal:
            return (
                f"No solution found: of the candidate nearest the baseline the data can't tell, for {nearest.refusal}."
            )
        short = nearest.bound + nearest.zeta
        k = int(np.argmin(np.where(np.isnan(short), -np.inf, short)))
        return (
            f"No solution found: even the candidate nearest the baseline did not pass; on {self.objectives[k]} its gain is"
            f" estimated as {nearest.estimate[k]:.4g}, but only {nearest.bound[k]:.4g} is certain at level {nearest.level:.3g}."
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
    """Improve by proposal and test.

    Args:
        train: Episodes to propose from; the model of dr and wdr is fitted on them.
        safety: Episodes to test on; `split` makes both from one dataset. Either may be on disk (`open_episodes`).
        baseline: π_b, shape [X, A].
        preference: λ, shape [d].
        rule: How candidates are tested; δ = 0.1 and no accepted loss if left out. With ``rule.strict`` candidates may raise only
            what the training part has, and what the data can't tell is refused.
        selection: "sequential", "paper" or "published".
        mixes: The α of the candidates, each in [0, 1).
        model: The model of the training part, if it is there already.
        control: Model for dr and wdr, if another one; of the training part too.
        progress: Called after every round of the proposal's policy iteration.
    """
    check_choice("selection", selection, SELECTIONS)
    if not mixes or not all(0.0 <= mix < 1.0 for mix in mixes):
        raise ParameterError(f"mixes must be shares of the baseline in [0, 1); got {tuple(mixes)}.")
    d = train.n_objectives
    weights = check_preference(preference, d)
    rule = SafetyRule(delta=0.1, zeta=np.zeros(d)) if rule is None else rule
    check_vector("zeta", rule.zeta, d, "objective")
    base = check_policy(baseline, train.n_states, train.n_actions, name="baseline", state_labels=train.state_labels)
    fitted = estimate_model(count(train)) if model is None else model
    proposal = adv_linearized(fitted, base, preference=weights, progress=progress)
    if rule.strict:
        proposal = _where_seen(proposal, fitted)

    tests: list[SafetyTest] = []
    if proposal.changed.size:
        values = control or fitted
        known = None
        if not BOUNDS[rule.bound].finite_sample and rule.comparison == "paired":  # finite-sample bounds shift the terms
            needed = values if ESTIMATORS[rule.estimator].needs_model else None
            known = evaluate_policy(safety, base, base, estimator=rule.estimator, model=needed).per_trajectory
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
            policy_return=expected_return(fitted.mdp, policy),
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
    """The candidate π_α, shape [X, A]: (1−α) of the proposal and α = ``mix`` of the baseline."""
    return (1.0 - mix) * proposal + mix * baseline


def mixtures(proposal: Floats, baseline: Floats, mixes: Sequence[float] = MIXES) -> Iterator[tuple[float, Floats]]:
    """The candidates (α, π_α) in the order of their tests: nearest the baseline first."""
    for mix in sorted(mixes, reverse=True):
        yield mix, mixed(proposal, baseline, mix)


def inside(policy: Floats, baseline: Floats, allowed: Bools) -> Floats:
    """``policy`` with the baseline's row in states where it raises an action that is not ``allowed``; all [X, A]."""
    outside = np.any((policy > baseline) & ~allowed, axis=1, keepdims=True)
    return np.where(outside, baseline, policy)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The candidates of one proposal on one log, for many questions: estimators, comparisons, levels and selections.

    What `h_opt` does with ``strict=False`` and an approximate bound, in one pass over the log for all of them.

    Attributes:
        proposal: π_t, shape [X, A].
        baseline: π_b, shape [X, A].
        terms: By comparison and estimator, α and the terms [n, d] of every candidate, nearest the baseline first.
    """

    proposal: Floats
    baseline: Floats
    terms: Mapping[tuple[Comparison, str], Sequence[tuple[float, Floats]]]

    def choose(self, rule: SafetyRule, selection: Selection, preference: Floats) -> Floats:
        """The policy that ``selection`` returns of the candidates that pass; the baseline if there is none."""
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
    """Evaluate all candidates of a proposal by several estimators.

    Args:
        proposal: π_t, shape [X, A].
        baseline: π_b, shape [X, A].
        evaluate: From a policy to its evaluations on the safety part, by estimator.
        estimators: Which of them to keep.
        baseline_return: J(π_b) in the trained model, shape [d]; what comparison "published" takes for known.
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
    """The test of the candidate that ``selection`` returns, of tests in order, nearest the baseline first; or None."""
    check_choice("selection", selection, SELECTIONS)
    if selection == "sequential":
        tests = list(itertools.takewhile(lambda test: test.passed, tests))
    passing = [test for test in tests if test.passed]
    by_bound = selection == "published"
    score = [float(preference @ (test.bound if by_bound else test.estimate)) for test in passing]
    return passing[int(np.argmax(score))] if passing else None


def _where_seen(proposal: Improvement, model: Model) -> Improvement:
    """The proposal with the baseline's row in states where it would raise what was never tried or the baseline never plays."""
    seen = np.zeros(proposal.policy.shape, dtype=bool)
    tried = model.counts > 0
    seen[model.mdp.pair_state[tried], model.mdp.pair_action[tried]] = True
    seen &= proposal.baseline > 0.0
    policy = inside(proposal.policy, proposal.baseline, seen)
    if np.array_equal(policy, proposal.policy):
        return proposal
    deviation = np.abs(policy - proposal.baseline)
    at_pair = deviation[model.mdp.pair_state, model.mdp.pair_action]
    spent = np.where(at_pair > 0.0, model.error, 0.0) * at_pair
    return replace(
        proposal,
        policy=policy,
        policy_return=expected_return(model.mdp, policy),
        distance=deviation.sum(axis=1),
        budget_used=by_state(model.mdp, spent),
    )
