"""B-OPT: the best of many candidates that, under the posterior, is no worse than the baseline with probability 1 − δ.

The paper requires P(for all k: J_k(π) − J_k(π_b) ≥ −ζ_k | D) ≥ 1 − δ, a *posterior* probability, and approximates it with a budget
(S-OPT) or a held-out test (H-OPT). B-OPT computes it (`posterior.judge`). It returns the passing candidate with the largest
posterior mean of J_λ, or the baseline if none passes. The data is not split and nothing is tuned. The posterior does not depend
on λ, so λ may be changed after seeing the result.

Candidates are S-OPT for several ε, mixtures of Adv-Linearized with the baseline, G-OPT for several ε and margins, and policies
given by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe.errors import check_type
from bettersafe.mdp.policy import check_policy
from bettersafe.mdp.programs import resolve_engine
from bettersafe.mdp.values import expected_return, solve_policy
from bettersafe.methods.g_opt import EPSILONS, MARGINS, g_opt_path
from bettersafe.methods.result import Search, check_preference, improvement
from bettersafe.methods.s_opt import Problem, adv_linearized, iterate, s_opt
from bettersafe.model import Model
from bettersafe.posterior.judge import DEFAULT_QUESTION, Question, judge, resolve_form
from bettersafe.posterior.linearised_counts import CountedOutcomes
from bettersafe.posterior.outcomes import Outcomes
from bettersafe.typing import Floats, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bettersafe.mdp.values import Values
    from bettersafe.methods.result import Improvement
    from bettersafe.posterior.candidates import Candidate
    from bettersafe.posterior.judge import Answer
    from bettersafe.typing import Progress


MOST_G_OPT = 2e5
"""Distinct transitions beyond which the linearised form has no G-OPT candidates, which would take many minutes."""

NO_G_OPT = "G-OPT's policies are not among the candidates: the log has too many transitions"


@dataclass(frozen=True, kw_only=True)
class CandidateGrid:
    """Candidates to make.

    Attributes:
        epsilons: Budgets ε of the S-OPT candidates.
        mixes: Shares of the baseline in mixtures with Adv-Linearized.
        with_g_opt: Whether to include G-OPT's policies; ignored if discounts differ, which G-OPT does not support.
    """

    epsilons: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    mixes: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75)
    with_g_opt: bool = True


DEFAULT_GRID = CandidateGrid()


@dataclass(frozen=True, kw_only=True)
class BOpt:
    """Result of B-OPT.

    Attributes:
        improvement: Returned policy, as from other methods; the baseline if no candidate passed.
        answer: Candidates in order of creation, with their posterior probabilities.
        chosen: Index of the returned candidate, or None.
        notes: Notes on the candidates, for people.
    """

    improvement: Improvement
    answer: Answer
    chosen: int | None
    notes: tuple[str, ...] = ()

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All candidates, in order of creation."""
        return self.answer.candidates

    @property
    def accepted(self) -> bool:
        """Whether a candidate passed."""
        return self.chosen is not None

    @property
    def deciding(self) -> Candidate:
        """Returned candidate or, if none passed, the one that is nearest to passing."""
        return self.candidates[self.answer.nearest if self.chosen is None else self.chosen]

    @property
    def reason(self) -> str:
        """Result in one sentence."""
        answer = self.answer
        if self.chosen is not None:
            best = self.candidates[self.chosen]
            how = ", by linearisation, without draws" if answer.linearised else ""
            return (
                f"{best.name} is the best of {len(self.candidates)} candidates that is no worse than the baseline on any objective"
                f" with probability {100 * (1.0 - answer.question.delta):.4g} % given the data; here {100 * best.p_safe:.4g} %{how}."
            )
        if not self.candidates:
            return "No solution found: no candidate differs from the baseline."
        if any(candidate.passed for candidate in self.candidates):
            return "No solution found: no candidate that is safe enough improves the preferred return."
        nearest = self.deciding
        doubts = np.fmin(nearest.p_objective, nearest.p_pessimistic)
        k = int(np.argmin(doubts))
        return (
            f"No solution found: none of {len(self.candidates)} candidates is safe enough; the safest, {nearest.name}, loses on"
            f" {answer.objectives[k]} with probability {100 * (1.0 - float(doubts[k])):.3g} %."
        )


def b_opt(
    outcomes: Outcomes | CountedOutcomes,
    model: Model,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    question: Question = DEFAULT_QUESTION,
    policies: Mapping[str, npt.ArrayLike] | None = None,
    grid: CandidateGrid = DEFAULT_GRID,
    screen: bool = True,
    progress: Progress | None = None,
) -> BOpt:
    """The best of many candidates that is no worse than the baseline with probability 1 − δ given the log.

    Args:
        outcomes: Outcomes of the log: from `gather_outcomes`; for counts from `outcomes_of` or, for the linearised form only,
            from `gather_counted`.
        model: Model of the same log, in which candidates are made.
        baseline: π_b, shape [X, A].
        preference: λ, shape [d].
        question: Settings of the posterior: δ, ζ, priors, draws. In the linearised form, S-OPT starts each budget from the
            policy of the next smaller one, and large logs have no G-OPT candidates.
        policies: Additional candidates by name, each of shape [X, A].
        grid: Candidates to make.
        screen: Whether to stop drawing for candidates that can no longer be chosen (``best_by`` of `judge`). It changes how
            many draws the other candidates get. A candidate that would pass is missed only if the linearised form is wrong
            about its risk by a factor of `judge.SCREEN`.
        progress: Callback after every round of policy iteration, and while candidates are evaluated.

    Examples:
        >>> outcomes = bettersafe.gather_outcomes(log)
        >>> found = bettersafe.b_opt(outcomes, model, baseline, preference=[1.0, 1.0], question=bettersafe.Question(draws=100))
        >>> found.accepted
        True
        >>> print(found.reason)
        G-OPT ε = ... is the best of ... candidates that is no worse than the baseline on any objective with probability 90 %...
    """
    check_type("outcomes", outcomes, Outcomes, CountedOutcomes)
    check_type("model", model, Model)
    check_type("question", question, Question)
    check_type("grid", grid, CandidateGrid)
    base = check_policy(
        baseline, outcomes.n_states, outcomes.n_actions, name="baseline", state_labels=model.state_labels
    )
    weights = check_preference(preference, outcomes.n_objectives)
    question = replace(question, form=resolve_form(question.form, outcomes, draws=question.draws))
    small = question.form == "draws" or outcomes.n_transitions <= MOST_G_OPT
    values = solve_policy(model.mdp, base)
    made = make_candidates(
        model,
        base,
        weights,
        grid=grid if small else replace(grid, with_g_opt=False),
        policies=policies,
        warm_start=question.form == "linearised",
        baseline_values=values,
        progress=progress,
    )
    baseline_v = values.v
    del values  # its q is as large as d policies
    answer = judge(
        [policy for _, policy in made],
        outcomes,
        base,
        question,
        model=model,
        names=[name for name, _ in made],
        best_by=weights if screen else None,
        baseline_v=baseline_v,
        progress=progress,
    )
    answer = _refine_nearest(answer, outcomes, base, model, baseline_v, progress)
    chosen = _best(answer, weights)
    policy = base if chosen is None else answer.candidates[chosen].policy
    return BOpt(
        improvement=_improvement(model, policy, base, weights, baseline_v),
        answer=answer,
        chosen=chosen,
        notes=() if small or not grid.with_g_opt else (NO_G_OPT,),
    )


def _best(answer: Answer, preference: Floats) -> int | None:
    """Index of the passing candidate with the largest preferred gain; None if no gain is positive."""
    passing = [i for i, candidate in enumerate(answer.candidates) if candidate.passed]
    best = max(passing, key=lambda i: float(preference @ answer.candidates[i].gain), default=None)
    if best is not None and float(preference @ answer.candidates[best].gain) <= 0.0:
        return None  # safe, but not better
    return best


def _refine_nearest(
    answer: Answer,
    outcomes: Outcomes | CountedOutcomes,
    baseline: Floats,
    model: Model,
    baseline_v: Floats,
    progress: Progress | None,
) -> Answer:
    """If no candidate passes, complete the draws and priors of the nearest one, which the result reports."""
    while answer.candidates and not any(candidate.passed for candidate in answer.candidates):
        place = answer.nearest  # with all draws, another candidate may become the nearest
        nearest = answer.candidates[place]
        all_drawn = nearest.draws == answer.draws
        if all_drawn and not np.isnan(nearest.p_pessimistic).any():
            break
        closer = judge(
            [nearest.policy],
            outcomes,
            baseline,
            answer.question,
            model=model,
            names=[nearest.name],
            known=[nearest] if all_drawn else None,
            baseline_v=baseline_v,
            progress=progress,
        )
        candidates = (*answer.candidates[:place], *closer.candidates, *answer.candidates[place + 1 :])
        answer = replace(answer, candidates=candidates)
    return answer


def _improvement(model: Model, policy: Floats, baseline: Floats, preference: Floats, baseline_v: Floats) -> Improvement:
    """Improvement as from other methods; B-OPT has no budget, so ``budget_used`` is 0."""
    found = improvement(
        "b-opt",
        model,
        baseline,
        Search(
            policy=baseline,
            baseline_v=baseline_v,
            rounds=0,
            converged=True,
            gap=0.0,
            kept=np.zeros(0, dtype=np.int64),
            engine=resolve_engine("auto"),
        ),
        preference=preference,
        epsilon=np.inf,
    )
    if policy is baseline:
        return found
    return replace(
        found,
        policy=frozen(policy, np.float64),
        policy_return=expected_return(model.mdp, policy),
        distance=np.abs(policy - baseline).sum(axis=1),
    )


def make_candidates(
    model: Model,
    baseline: Floats,
    preference: Floats,
    *,
    grid: CandidateGrid = DEFAULT_GRID,
    policies: Mapping[str, npt.ArrayLike] | None = None,
    warm_start: bool = False,
    baseline_values: Values | None = None,
    progress: Progress | None = None,
) -> list[tuple[str, Floats]]:
    """Names and policies of the candidates that differ from the baseline and from each other.

    Args:
        model: Estimated model.
        baseline: π_b, shape [X, A].
        preference: λ, shape [d].
        grid: Candidates to make.
        policies: Additional candidates by name, each of shape [X, A].
        warm_start: Whether to start each budget from the policy of the next smaller one, which is feasible too, with
            Adv-Linearized last. With equal discounts the returns are the same, in fewer rounds.
        baseline_values: Values of π_b, if already computed; used with ``warm_start``.
        progress: Callback after every round of policy iteration.
    """
    budgets = [*grid.epsilons, np.inf]
    if warm_start:
        tables = dict(_along(model, baseline, preference, sorted(budgets), baseline_values, progress))
    else:
        tables = {
            e: s_opt(model, baseline, preference=preference, epsilon=e, progress=_making(progress, budgets, e)).policy
            for e in grid.epsilons
        }
        tables[np.inf] = adv_linearized(
            model, baseline, preference=preference, progress=_making(progress, budgets, np.inf)
        ).policy
    bold = tables[np.inf]
    found: list[tuple[str, Floats]] = [(f"S-OPT ε = {epsilon:g}", tables[epsilon]) for epsilon in grid.epsilons]
    if grid.with_g_opt and np.all(model.mdp.discount == model.mdp.discount[0]):
        path = g_opt_path(model, baseline, preference=preference, progress=progress)
        for made, margin in zip(path, len(EPSILONS) * MARGINS, strict=True):
            name = f"G-OPT ε = {made.epsilon:g}" + (f", margin {100 * margin:g} %" if margin else "")
            found.append((name, made.policy))
    found += [
        (
            f"Adv-Linearized, {100 * mix:.0f} % baseline" if mix else "Adv-Linearized",
            (1.0 - mix) * bold + mix * baseline,
        )
        for mix in grid.mixes
    ]
    for name, table in (policies or {}).items():
        found.append((name, check_policy(table, *baseline.shape, name=name, state_labels=model.state_labels)))
    different: list[tuple[str, Floats]] = []
    for name, policy in found:
        if all(np.max(np.abs(policy - other)) > 1e-9 for other in (baseline, *(p for _, p in different))):
            different.append((name, policy))
    return different


def _making(progress: Progress | None, budgets: Sequence[float], epsilon: float) -> Progress | None:
    """``progress`` with the name of the candidate in its events."""
    if progress is None:
        return None
    name = "Adv-Linearized" if np.isinf(epsilon) else f"S-OPT ε = {epsilon:g}"
    what = f"Making candidates: {list(budgets).index(epsilon) + 1} of {len(budgets)}, {name}"
    return lambda done: progress(replace(done, what=what))


def _along(
    model: Model,
    baseline: Floats,
    preference: Floats,
    epsilons: Sequence[float],
    values: Values | None,
    progress: Progress | None,
) -> Iterator[tuple[float, Floats]]:
    """S-OPT's policies for increasing budgets, each search started from the previous policy; evaluates the baseline once."""
    if values is None:
        values = solve_policy(model.mdp, baseline)
    equal = bool(np.all(model.mdp.discount == model.mdp.discount[0]))
    start = None
    for epsilon in epsilons:
        problem = Problem(
            mdp=model.mdp,
            baseline=baseline,
            error=model.error,
            preference=preference,
            epsilon=epsilon,
            constrained=True,
        )
        found = iterate(
            problem,
            progress=_making(progress, epsilons, epsilon),
            baseline_values=values,
            start=start,
        )
        start = found.policy if equal else None
        yield epsilon, found.policy
