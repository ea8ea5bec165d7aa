"""B-OPT: the best of many candidates that, under the posterior, is no worse than the baseline with probability 1 − δ.

The paper requires P(for all k: J_k(π) − J_k(π_b) ≥ −ζ_k | D) ≥ 1 − δ, a *posterior* probability, and approximates it with a budget
(S-OPT) or a held-out test (H-OPT). B-OPT computes it (`posterior.judge`). It returns the passing candidate with the largest
lower bound on the gain of J_λ, or the baseline if none passes. Nothing is tuned. The posterior does not depend on λ, so λ may be changed after
seeing the result.

Candidates are made in the posterior mean of the model (`recipes`), and policies may be given by the caller. The same recipes on parts
of the log show how much too high the gains of a policy look to the log that made it, and that is taken off (`audit`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe.errors import check_options, check_type
from bettersafe.mdp.policy import check_policy
from bettersafe.mdp.programs import resolve_engine
from bettersafe.mdp.values import expected_return, policy_values, solve_policy
from bettersafe.methods.audit import Audit, audit
from bettersafe.methods.recipes import DEFAULT_GRID, CandidateGrid, make_recipes
from bettersafe.methods.result import Search, check_preference, improvement
from bettersafe.model import Model
from bettersafe.posterior.essential import essential
from bettersafe.posterior.habits import informed
from bettersafe.posterior.judge import (
    DEFAULT_QUESTION,
    NO_DOUBT,
    Doubt,
    Known,
    Question,
    doubt_of_log,
    gains_under,
    judge,
    resolve_form,
    visits_of,
)
from bettersafe.posterior.linearised_counts import CountedOutcomes, counted_posterior
from bettersafe.posterior.models import frequency_model, mean_model, one_step_sd, with_events
from bettersafe.posterior.outcomes import Outcomes
from bettersafe.posterior.rule import probability
from bettersafe.typing import Floats, frozen

if TYPE_CHECKING:
    from bettersafe.methods.result import Improvement
    from bettersafe.posterior.candidates import Candidate
    from bettersafe.posterior.judge import Answer
    from bettersafe.posterior.priors import Posterior
    from bettersafe.typing import Progress


MOST_MEAN = 2e6
"""Entries of the posterior mean, pairs × outcomes of their state, beyond which candidates are made from frequencies, without an audit."""

NO_AUDIT = "the log is too large for an audit: candidates were made from frequencies, and their optimism was not measured or taken off"


@dataclass(frozen=True, kw_only=True)
class BOpt:
    """Result of B-OPT.

    Attributes:
        improvement: Returned policy, as from other methods; the baseline if no candidate passed.
        answer: Candidates in order of creation, with their posterior probabilities.
        chosen: Index of the returned candidate, or None.
        audit: Optimism of the recipes; None if it was not measured.
        doubt: What the posterior does not know about the candidates.
        notes: Notes on the candidates, for people.
    """

    improvement: Improvement
    answer: Answer
    chosen: int | None
    audit: Audit | None = None
    doubt: Doubt = NO_DOUBT
    notes: tuple[str, ...] = ()

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All candidates, in order of creation."""
        return self.answer.candidates

    @property
    def accepted(self) -> bool:
        """Whether a candidate is proposed."""
        return self.chosen is not None

    @property
    def deciding(self) -> Candidate:
        """Returned candidate or, if none passed, the one that is nearest to passing."""
        return self.candidates[self._decides]

    @property
    def deciding_doubt(self) -> Doubt:
        """What the posterior does not know about the deciding candidate."""
        return self.doubt.of(self._decides)

    @property
    def _decides(self) -> int:
        return self.answer.nearest if self.chosen is None else self.chosen

    @property
    def reason(self) -> str:
        """Result in one sentence."""
        answer = self.answer
        if self.chosen is not None:
            best = self.candidates[self.chosen]
            how = ", by linearisation, without draws" if answer.linearised else ""
            counted = "1 candidate" if len(self.candidates) == 1 else f"{len(self.candidates)} candidates"
            return (
                f"{best.name}: the best of {counted} that, given the log, are believed to be no worse"
                f" than the baseline on any objective with probability {1.0 - answer.question.delta:.3g}; here {probability(best.p_safe, best.draws)}{how}."
            )
        if not self.candidates:
            return "No solution found: no candidate differs from the baseline."
        if any(candidate.passed for candidate in self.candidates):
            return "No solution found: no candidate that is safe enough improves the preferred return."
        nearest = self.deciding
        doubts = np.fmin(nearest.p_objective, nearest.p_pessimistic)
        k = int(np.argmin(doubts))
        return (
            f"No solution found: none of {len(self.candidates)} candidates is believed to be safe enough; the safest, {nearest.name}, loses"
            f" on {answer.objectives[k]} with probability {1.0 - float(doubts[k]):.2g}."
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
    baseline_estimated: bool = False,
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
        question: Settings of the posterior: δ, ζ, priors, draws.
        policies: Additional candidates by name, each of shape [X, A].
        grid: Candidates to make, and whether to audit them.
        baseline_estimated: Whether ``baseline`` was estimated from the same log. Its uncertainty is then part of the answer: the policy
            is compared with the practice that made the log, not with its estimate.
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
        global, z = ...: the best of ... candidates that, given the log, are believed to be no worse...
    """
    check_type("outcomes", outcomes, Outcomes, CountedOutcomes)
    for argument, value, kind in (("model", model, Model), ("question", question, Question), ("grid", grid, CandidateGrid)):  # fmt: skip
        check_type(argument, value, kind)
    check_type("policies", policies, Mapping, optional=True)
    check_options(baseline_estimated=baseline_estimated, screen=screen, progress=progress)
    base = check_policy(
        baseline, outcomes.n_states, outcomes.n_actions, name="baseline", state_labels=model.state_labels
    )
    weights = check_preference(preference, outcomes.n_objectives)
    question = replace(question, form=resolve_form(question.form, outcomes, draws=question.draws))
    handed_in = {
        name: check_policy(table, *base.shape, name=name, state_labels=model.state_labels)
        for name, table in (policies or {}).items()
    }
    baseline_v = solve_policy(model.mdp, base).v
    part = essential(outcomes, model, [base, *handed_in.values()])
    own, own_v = part.policy(base), part.values(baseline_v)
    recipes, found_audit = _candidates(
        part.outcomes,
        part.model,
        own,
        weights,
        question,
        grid,
        own_v,
        estimated=baseline_estimated,
        progress=progress,
    )
    made, places = _different(recipes, own)
    given = [(name, part.policy(table)) for name, table in handed_in.items()]
    made += _different(given, own, made)[0]  # a recipe's policy keeps its optimism, whoever gives it
    common = doubt_of_log(part.model, own, part.outcomes, estimated=baseline_estimated, preference=weights)
    doubt = _doubt(found_audit, places, len(made), common)
    answer = judge(
        [policy for _, policy in made],
        part.outcomes,
        own,
        question,
        model=part.model,
        names=[name for name, _ in made],
        best_by=weights if screen else None,
        doubt=doubt,
        known=Known(baseline_v=own_v),
        progress=progress,
    )
    answer = _refine_nearest(answer, part.outcomes, own, part.model, doubt, own_v, progress)
    answer = replace(
        answer,
        candidates=tuple(replace(each, policy=part.whole(each.policy, base)) for each in answer.candidates),
    )
    chosen = _best(answer, weights)
    policy = base if chosen is None else answer.candidates[chosen].policy
    return BOpt(
        improvement=_improvement(model, policy, base, weights, baseline_v),
        answer=answer,
        chosen=chosen,
        audit=found_audit,
        doubt=doubt,
        notes=(NO_AUDIT,) if grid.audited and recipes and found_audit is None else (),
    )


def _candidates(
    outcomes: Outcomes | CountedOutcomes,
    model: Model,
    baseline: Floats,
    preference: Floats,
    question: Question,
    grid: CandidateGrid,
    baseline_v: Floats,
    *,
    estimated: bool,
    progress: Progress | None,
) -> tuple[list[tuple[str, Floats]], Audit | None]:
    """Names and policies of all recipes, and their audit."""
    loss = question.losses(outcomes.n_objectives)
    if not isinstance(outcomes, Outcomes) or outcomes.entry_ptr[-1] > MOST_MEAN:
        given = (
            counted_posterior(outcomes, question.priors)
            if isinstance(outcomes, CountedOutcomes)
            else informed(outcomes, question.priors, baseline)
        )
        width = gains_under(given, baseline, range(loss.size))
        model = with_events(model, given)
        return (
            make_recipes(
                model,
                baseline,
                preference,
                mean_model=model,
                sd=one_step_sd(outcomes, model.mdp, baseline_v),
                gain_sd=lambda policy: np.sqrt(np.maximum(np.diagonal(width([policy], None)[1][0]), 0.0)),
                delta=question.delta,
                zeta=loss,
                grid=grid,
                progress=progress,
            ),
            None,
        )

    def make(given: Posterior, own: Model, base: Floats, tell: Progress | None) -> list[tuple[str, Floats]]:
        own = with_events(own, given)
        mean = mean_model(given, own)
        v = policy_values(mean.mdp, base)[0]
        width = gains_under(given, base, range(loss.size))
        return make_recipes(
            own,
            base,
            preference,
            mean_model=mean,
            sd=one_step_sd(given.outcomes, own.mdp, v),
            gain_sd=lambda policy: np.sqrt(np.maximum(np.diagonal(width([policy], None)[1][0]), 0.0)),
            delta=question.delta,
            zeta=loss,
            grid=grid,
            progress=tell,
        )

    def baseline_of(part: Outcomes) -> Floats:
        return _re_estimated(part, baseline) if estimated else baseline

    def from_part(given: Posterior, base: Floats) -> list[Floats]:
        return [policy for _, policy in make(given, frequency_model(given.outcomes, model, baseline_v), base, None)]

    whole = informed(outcomes, question.priors, baseline)
    recipes = make(whole, model, baseline, progress)
    if not grid.audited or not recipes:
        return recipes, None
    spread = gains_under(whole, baseline, range(loss.size))([policy for _, policy in recipes], None)[1]
    sd = np.sqrt(np.maximum(np.diagonal(spread, axis1=1, axis2=2), 0.0))
    return recipes, audit(whole, baseline_of, from_part, sd=sd, seed=question.seed, progress=progress)


def _re_estimated(outcomes: Outcomes, baseline: Floats) -> Floats:
    """Frequencies of actions in a part of the log; the given rows in states that it does not visit."""
    visits = visits_of(outcomes, baseline)
    there = visits.sum(axis=1) > 0.0
    found = baseline.copy()
    found[there] = visits[there] / visits[there].sum(axis=1, keepdims=True)
    return found


def _different(
    named: list[tuple[str, Floats]], baseline: Floats, before: Sequence[tuple[str, Floats]] = ()
) -> tuple[list[tuple[str, Floats]], list[int]]:
    """Policies, with their names, that differ from the baseline, from those made before and from each other; and their places."""
    made: list[tuple[str, Floats]] = []
    places = []
    for place, (name, policy) in enumerate(named):
        others = (baseline, *(each for _, each in (*before, *made)))
        if all(np.max(np.abs(policy - other)) > 1e-9 for other in others):
            made.append((name, policy))
            places.append(place)
    return made, places


def _doubt(found: Audit | None, places: list[int], n_policies: int, common: Doubt) -> Doubt:
    """What the posterior does not know: what all policies have in ``common``, and optimism; policies that the caller gave have none."""
    if found is None:
        return common
    optimism, error = (np.zeros((n_policies, found.optimism.shape[1])) for _ in range(2))
    optimism[: len(places)], error[: len(places)] = found.optimism[places], found.error[places]
    return replace(common, optimism=optimism, error=error)


def _best(answer: Answer, preference: Floats) -> int | None:
    """Index of the passing candidate with the largest lower bounds, weighted by λ; None if no gain is positive.

    By their means, candidates that are better by far or worse by far would win over those that are surely better.
    """
    passing = [
        i
        for i, candidate in enumerate(answer.candidates)
        if candidate.passed and float(preference @ candidate.gain) > 0.0
    ]
    return max(passing, key=lambda i: float(preference @ answer.candidates[i].least), default=None)


def _refine_nearest(
    answer: Answer,
    outcomes: Outcomes | CountedOutcomes,
    baseline: Floats,
    model: Model,
    doubt: Doubt,
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
            doubt=doubt.of(place),
            known=Known(candidates=[nearest] if all_drawn else None, baseline_v=baseline_v),
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
