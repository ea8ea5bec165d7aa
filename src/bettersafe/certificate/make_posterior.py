"""Certificates from the posterior."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from bettersafe.certificate.certificate import MARKOV, MOST_NAMED, Belief, Certificate, Finding
from bettersafe.certificate.hazard import HazardMargin
from bettersafe.errors import check_options, check_type, check_types
from bettersafe.logs.dataset import Objective
from bettersafe.posterior.candidates import Candidate
from bettersafe.posterior.judge import Answer
from bettersafe.posterior.priors import CONCENTRATIONS, END_CONCENTRATIONS, PESSIMISTIC_CONCENTRATION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.posterior.events import EventFacts
    from bettersafe.typing import Json


LINEARISED = (
    "The posterior of the gains was linearised around its mean and taken as jointly normal, without draws. The approximation is good"
    " if there is much data and the gain is a sum over many states, and poor if the gain depends on a few decisions that were rarely"
    " tried."
)
"""Additional assumption of a certificate without draws."""

NO_OPTIMISM = "A policy looks better to the log that made it. If this log made the policy, its gains are too high: this was not measured."
"""Assumption of a certificate without an audit."""

NOT_PESSIMISTIC = (
    "No pessimistic prior was used. The error rates of B-OPT in the studies were measured with pessimistic priors; without them errors"
    " are more frequent if the baseline is good."
)
"""Additional assumption of a certificate without pessimistic priors."""


def certify_posterior(
    answer: Answer,
    candidate: Candidate,
    *,
    baseline_known: bool,
    others: Sequence[Answer] = (),
    objectives: Sequence[Objective] = (),
    hazards: Sequence[HazardMargin] = (),
) -> Certificate:
    """Certificate of a candidate from its posterior probabilities.

    Args:
        answer: Result of `judge`, or ``answer`` of `b_opt`'s result.
        candidate: One of the candidates in ``answer``.
        baseline_known: Whether the baseline is known, not estimated from the same data.
        others: Results for this policy under other priors (`sensitivity`).
        objectives: Objectives, for their labels.
        hazards: Hazard margins of the objectives (`hazard_margins`).

    Examples:
        >>> from bettersafe.certificate import certify_posterior
        >>> outcomes = bettersafe.gather_outcomes(log)
        >>> found = bettersafe.b_opt(outcomes, model, baseline, preference=[1.0, 1.0], question=bettersafe.Question(draws=100))
        >>> certify_posterior(found.answer, found.deciding, baseline_known=True).standing
        'proposed'
    """
    check_type("answer", answer, Answer)
    check_type("candidate", candidate, Candidate)
    for what, given, kind in (("objectives", objectives, Objective), ("others", others, Answer), ("hazards", hazards, HazardMargin)):  # fmt: skip
        check_types(what, given, kind)
    check_options(baseline_known=baseline_known)
    labels = {objective.name: objective.label or "" for objective in objectives}
    titles = [labels.get(name) or name for name in answer.objectives]

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
            MARKOV,
            "Every outcome of a decision was observed in the same state under some action, or is an end of the episode as observed"
            " elsewhere in the log.",
            *_events(answer),
            *_hazards(answer, hazards, titles),
            *_hidden(answer, titles),
            "Future episodes start like the logged ones.",
            f"The priors: {_priors(answer)}. {_fit(answer)}",
            *([LINEARISED] if answer.linearised else []),
            "The baseline is known."
            if baseline_known
            else "The baseline was estimated from the data; the uncertainty of its return is part of the probabilities, to first order.",
            _taken_off(candidate, titles),
            *([] if len(answer.priors) > 1 else [NOT_PESSIMISTIC]),
            "The posterior does not depend on the preference, so other preferences may be tried on the same log. The probability is"
            " conditional on this data; it is not an error rate over many data sets.",
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
            "events": [asdict(each.event) for each in answer.events],
        },
        diagnostics={
            "interval": {name: candidate.interval[:, k].tolist() for k, name in enumerate(answer.objectives)},
            "concentration": answer.concentration,
            "end_concentration": answer.end_concentration,
            **_optimism(answer, candidate),
            **({"events": {each.event.name: _facts(each) for each in answer.events}} if answer.events else {}),
            **(
                {"hazard": {name: each.to_json() for name, each in zip(answer.objectives, hazards, strict=True)}}
                if hazards
                else {}
            ),
        },
        seed=answer.question.seed,
    )


def _taken_off(candidate: Candidate, titles: Sequence[str]) -> str:
    """What was taken off as optimism, in words; with many objectives the largest."""
    if candidate.optimism is None or candidate.optimism_error is None:
        return NO_OPTIMISM
    found = sorted(
        zip(candidate.optimism.tolist(), candidate.optimism_error.tolist(), titles, strict=True),
        reverse=True,
    )
    parts = ", ".join(f"{size:.2g} ± {error:.1g} on {name}" for size, error, name in found[:MOST_NAMED])
    return (
        "A policy looks better to the log that made it. This optimism was measured by making the same candidates from parts of the log,"
        f" and taken off: {parts}. Parts are divided by transitions, so dependence within episodes is not in it."
    )


def _events(answer: Answer) -> list[str]:
    """Declared events and the rates that were used, in words."""
    return [_event(each, pessimistic=len(answer.priors) > 1) for each in answer.events]


def _event(facts: EventFacts, *, pessimistic: bool) -> str:
    event = facts.event
    does = [
        *(f"{cost:+g} on {name}" for name, cost in event.cost.items()),
        *(["ends the episode"] if event.ends else []),
    ]
    where = [
        f"{what} {', '.join(map(str, labels))}"
        for what, labels in (("action", event.actions), ("state", event.states))
        if labels
    ]
    at_most = (
        "at most" if facts.worst >= event.rate else f"the log leaves no more of the declared {_often(event.rate)} than"
    )
    worst = f", and the worse of none and {_often(facts.worst)} under the pessimistic priors" if pessimistic else ""
    return (
        f"Declared event {event.name} ({', '.join(does)}; {' in '.join(where) or 'every decision'}): {at_most} {_often(facts.worst)} of"
        f" these decisions, the same rate for all of them, and none in the {facts.visits:,.0f} logged ones. Used: {_often(facts.mean)} on"
        f" average{worst}."
    )


def _often(rate: float) -> str:
    """A rate in words."""
    return f"one in {1.0 / rate:,.0f}" if rate < 0.5 else f"{100.0 * rate:.3g} %"


def _facts(facts: EventFacts) -> Json:
    """The rates of an event for JSON."""
    return {"most": facts.event.rate, "visits": facts.visits, "mean": facts.mean, "worst": facts.worst}


def _hazards(answer: Answer, hazards: Sequence[HazardMargin], titles: Sequence[str]) -> list[str]:
    """What an unseen harm would change, for the objective with the smallest margin."""
    known = [(margin.rate, place) for place, margin in enumerate(hazards) if margin.pairs]
    if not known:
        return []
    place = min(known)[1]
    other = " and nobody declared" if answer.events else ""
    return [f"No harm that the log has not shown{other}. {hazards[place].sentence(titles[place])}"]


def _hidden(answer: Answer, titles: Sequence[str]) -> list[str]:
    """What counts can't tell about rewards; with many objectives, how many."""
    if not answer.hidden:
        return []
    many = len(answer.hidden) > MOST_NAMED
    known = dict(zip(answer.objectives, titles, strict=True))
    names = f"{len(answer.hidden)} objectives" if many else ", ".join(known.get(name, name) for name in answer.hidden)
    return [
        f"The data was counts, with sums and squares of rewards by state and action. Of {names} they do not say which next state paid"
        " what, nor how rare a large loss is. Both are treated as noise of the action in its state: a loss that is rare everywhere is"
        " expected only where it was seen."
    ]


def _optimism(answer: Answer, candidate: Candidate) -> Json:
    """Optimism that was found and taken off, and its standard error, by objective."""
    if candidate.optimism is None or candidate.optimism_error is None:
        return {}
    return {
        "optimism": dict(zip(answer.objectives, candidate.optimism.tolist(), strict=True)),
        "optimism_error": dict(zip(answer.objectives, candidate.optimism_error.tolist(), strict=True)),
    }


def _priors(answer: Answer) -> str:
    """Description of the priors; with many objectives the pessimistic ones are summarised."""
    first, *pessimistic = answer.priors
    if len(pessimistic) > MOST_NAMED:
        return f"{first}; {first}, pessimistic for each of {len(pessimistic)} objectives in turn"
    return "; ".join(answer.priors)


def _fit(answer: Answer) -> str:
    """Strength of the neutral prior, in words."""
    if answer.question.priors.neutral != "hierarchical":
        return "The neutral prior weighs as much as one visit of every action."

    def visits(strength: float, most: float) -> str:
        words = f"{float(f'{strength:.3g}'):,.10g}"
        return f"{words} (the largest allowed)" if strength > 0.99 * most else f"about {words}"

    ends = answer.end_concentration
    more = "" if ends is None else f" and {visits(ends, END_CONCENTRATIONS[-1])} visits for the end of an episode"
    return (
        "Its strength was estimated from the log: the outcomes of a state's other actions weigh as much as"
        f" {visits(answer.concentration, CONCENTRATIONS[-1])} visits for the next state{more}; in pessimistic priors at most"
        f" {PESSIMISTIC_CONCENTRATION:g}."
    )
