"""Certificates of policies that the posterior was asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bettersafe.certificate.certificate import MOST_NAMED, Belief, Certificate, Finding
from bettersafe.errors import check_type, check_types
from bettersafe.logs.dataset import Objective
from bettersafe.posterior.candidates import Candidate
from bettersafe.posterior.judge import Answer
from bettersafe.posterior.priors import CONCENTRATIONS, END_CONCENTRATIONS, PESSIMISTIC_CONCENTRATION

if TYPE_CHECKING:
    from collections.abc import Sequence


LINEARISED = (
    "By linearisation, without draws: gains are taken for linear in what is not known, around its mean, and for jointly normal. That is"
    " close where the data says much and a policy's gain is a sum over many states, and not where it hangs on a few decisions that were"
    " seldom tried."
)
"""What a certificate without draws rests on besides."""

NOT_PESSIMISTIC = (
    "No pessimistic prior was asked. How seldom B-OPT went wrong in the studies was measured with them; without them it is wrong more"
    " often where the baseline is good."
)


def certify_posterior(
    answer: Answer,
    candidate: Candidate,
    *,
    baseline_known: bool,
    others: Sequence[Answer] = (),
    objectives: Sequence[Objective] = (),
) -> Certificate:
    """The certificate of a candidate that the posterior was asked about.

    Args:
        answer: From `judge`, or the answer of `b_opt`.
        candidate: One of its candidates.
        baseline_known: Whether the baseline is known, not estimated from the same data.
        others: Answers about this policy under other priors (`sensitivity`).
        objectives: For what people call them.

    Examples:
        >>> from bettersafe.certificate import certify_posterior
        >>> outcomes = bettersafe.gather_outcomes(log)
        >>> found = bettersafe.b_opt(outcomes, model, baseline, preference=[1.0, 1.0], question=bettersafe.Question(draws=100))
        >>> certify_posterior(found.answer, found.deciding, baseline_known=True).accepted
        True
    """
    check_type("answer", answer, Answer)
    check_type("candidate", candidate, Candidate)
    check_types("objectives", objectives, Objective)
    labels = {objective.name: objective.label or "" for objective in objectives}

    def belief(found: Answer, of: Candidate) -> Belief:
        return Belief(
            priors=_priors(found),
            p_safe=of.p_safe,
            p_objective=tuple(of.p_objective.tolist()),
            p_pessimistic=tuple(of.p_pessimistic.tolist()) if len(found.priors) > 1 else (),
            draws=of.draws,
        )

    return Certificate(
        findings=tuple(
            Finding(
                objective=name,
                estimate=float(candidate.gain[k]),
                lower_bound=float(candidate.least[k]),
                level=answer.question.delta,
                zeta=float(answer.zeta[k]),
                label=labels.get(name, ""),
            )
            for k, name in enumerate(answer.objectives)
        ),
        evidence="posterior",
        grade="posterior",
        assumptions=(
            "The logged state is all that matters for what happens next (Markov), and the process does not change.",
            "What can happen after a decision is among what was seen to happen in that state under some decision, or an end as"
            " they are elsewhere in the log.",
            "Episodes start as those of the log do.",
            f"The priors: {_priors(answer)}. {_fit(answer)}",
            *([LINEARISED] if answer.linearised else []),
            "The baseline is known."
            if baseline_known
            else "The baseline was estimated from the data; errors of that estimate are not accounted for.",
            *([] if len(answer.priors) > 1 else [NOT_PESSIMISTIC]),
            "What is believed of a policy does not depend on the preference, so another may be tried on the same log. What is"
            " promised is about belief given this data, not about how often such choices go wrong over many data sets.",
        ),
        delta=answer.question.delta,
        beliefs=(belief(answer, candidate), *(belief(other, other.candidates[0]) for other in others)),
        settings={
            "bound": "posterior",
            "draws": answer.draws,
            "form": answer.question.form,
            "candidate": candidate.name,
            "prior": answer.question.priors.neutral,
            "pessimism": answer.question.priors.pessimism,
        },
        diagnostics={
            "interval": {name: candidate.interval[:, k].tolist() for k, name in enumerate(answer.objectives)},
            "concentration": answer.concentration,
            "end_concentration": answer.end_concentration,
        },
        seed=answer.question.seed,
    )


def _priors(answer: Answer) -> str:
    """The priors in words; one that is pessimistic for each of many objectives is not spelled out."""
    first, *pessimistic = answer.priors
    if len(pessimistic) > MOST_NAMED:
        return f"{first}; {first}, pessimistic for each of {len(pessimistic)} objectives in turn"
    return "; ".join(answer.priors)


def _fit(answer: Answer) -> str:
    """How strong the neutral prior is, in words."""
    if answer.question.priors.neutral != "hierarchical":
        return "The neutral one counts for one visit of every action."

    def visits(strength: float, most: float) -> str:
        return f"{strength:.3g} (the most that is allowed)" if strength > 0.99 * most else f"about {strength:.3g}"

    ends = answer.end_concentration
    more = "" if ends is None else f", and for {visits(ends, END_CONCENTRATIONS[-1])} in whether it ends"
    return (
        "Learned from the log: what a state's other actions did counts for"
        f" {visits(answer.concentration, CONCENTRATIONS[-1])} visits in where a step leads{more}; in pessimistic priors for at most"
        f" {PESSIMISTIC_CONCENTRATION:g}."
    )
