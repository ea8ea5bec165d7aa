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
from bettersafe.evaluation import BOUNDS, ESTIMATORS
from bettersafe.evaluation.evaluate import evaluate_policy
from bettersafe.evaluation.held_out import Range, SafetyRule, SafetyTest, safety_test
from bettersafe.logs.counts import count
from bettersafe.mdp.mdp import by_state
from bettersafe.mdp.policy import check_policy
from bettersafe.mdp.values import expected_return
from bettersafe.methods.choices import SELECTIONS, Selection
from bettersafe.methods.result import Improvement, check_preference
from bettersafe.methods.s_opt import adv_linearized
from bettersafe.model import estimate_model
from bettersafe.typing import Floats, Log, Progress, frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.evaluation.choices import Comparison, Levels
    from bettersafe.model import Model


MIXES = tuple(round(0.1 * i, 1) for i in range(10))


@dataclass(frozen=True, kw_only=True)
class HOpt:
    """What H-OPT found.

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
        if nearest.blind:
            return f"No solution found: of the candidate nearest the baseline the data can't tell, for {nearest.blind}."
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
    delta: float = 0.1,
    zeta: npt.ArrayLike | None = None,
    estimator: str = "dr",
    bound: str = "t",
    selection: Selection = "sequential",
    comparison: Comparison = "paired",
    levels: Levels = "split",
    mixes: tuple[float, ...] = MIXES,
    reward_range: Range | None = None,
    return_range: Range | None = None,
    model: Model | None = None,
    control: Model | None = None,
    strict: bool = True,
    progress: Progress | None = None,
) -> HOpt:
    """Improve by proposal and test.

    Args:
        train: Episodes to propose from; the model of dr and wdr is fitted on them.
        safety: Episodes to test on; `split` makes both from one dataset. Either may be on disk (`open_episodes`).
        baseline: π_b, shape [X, A].
        preference: λ, shape [d].
        delta: Allowed probability of returning a policy that is worse on some objective.
        zeta: Accepted loss per objective, shape [d]; 0 if left out.
        estimator: Any of `bettersafe.evaluation.TESTABLE`.
        bound: Any of `bettersafe.evaluation.BOUNDS`; finite-sample ones need independent terms (is, pdis) and a known range.
        selection: "sequential", "paper" or "published".
        comparison: "paired" or "published".
        levels: "split" or "full".
        mixes: The α of the candidates, each in [0, 1).
        reward_range: For pdis with a finite-sample bound: rewards lie in [low, high], each [d].
        return_range: For is with a finite-sample bound: discounted returns lie in [low, high], each [d].
        model: The model of the training part, if it is there already.
        control: Model for dr and wdr, if another one; of the training part too.
        strict: Whether candidates may raise only what the training part has, and what the data can't tell is refused.
        progress: Called after every round of the proposal's policy iteration.
    """
    check_choice("selection", selection, SELECTIONS)
    if not mixes or not all(0.0 <= mix < 1.0 for mix in mixes):
        raise ParameterError(f"mixes must be shares of the baseline in [0, 1); got {mixes}.")
    d = train.n_objectives
    weights = check_preference(preference, d)
    loss = np.zeros(d) if zeta is None else check_vector("zeta", zeta, d, "objective")
    base = check_policy(baseline, train.n_states, train.n_actions, name="baseline", state_labels=train.state_labels)
    fitted = estimate_model(count(train)) if model is None else model
    rule = SafetyRule(
        delta=delta,
        zeta=loss,
        estimator=estimator,
        bound=bound,
        comparison=comparison,
        levels=levels,
        reward_range=reward_range,
        return_range=return_range,
        strict=strict,
    )
    proposal = adv_linearized(fitted, base, preference=weights, progress=progress)
    if strict:
        proposal = _where_seen(proposal, fitted)

    tests: list[SafetyTest] = []
    if proposal.changed.size:
        judge = control or fitted
        known = None
        if not BOUNDS[bound].finite_sample and comparison == "paired":  # finite-sample bounds shift the terms
            needed = judge if ESTIMATORS[estimator].needs_model else None
            known = evaluate_policy(safety, base, base, estimator=estimator, model=needed).per_trajectory
        for mix in sorted(mixes, reverse=True):  # nearest the baseline first
            candidate = (1.0 - mix) * proposal.policy + mix * base
            test = safety_test(candidate, base, safety, rule, tuning=train, model=judge, baseline_terms=known)
            tests.append(replace(test, mix=mix))
            if selection == "sequential" and not test.passed:
                break
    chosen = choose_candidate(tests, selection, weights)
    mix = 1.0 if chosen is None else chosen.mix
    policy = frozen(base if chosen is None else (1.0 - mix) * proposal.policy + mix * base, np.float64)
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
    outside = np.any((proposal.policy > proposal.baseline) & ~seen, axis=1)
    if not np.any(outside):
        return proposal
    policy = np.where(outside[:, None], proposal.baseline, proposal.policy)
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
