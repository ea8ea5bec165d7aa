"""Summary of a run: the decision, its reason, the evidence and the next step.

Every headline begins with the word of its evidence, so that all screens agree: "Proposed", "Tested, passed", "Proven", "Not tested" or
"Keep the baseline". It is short, has labels and two digits, and stands once on a screen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.certificate.certificate import WORST_NAMED, steps_words
from bettersafe.certificate.more_data import more_data
from bettersafe.mdp.horizon import geometric_discount
from bettersafe.methods.facts import facts_of
from bettersafe.posterior.rule import probability
from bettersafe.runs.run import Decision
from bettersafe.text.gains import certified_gains, model_gains, short
from bettersafe.text.names import doubt_of, in_words, listed, shorten, titles
from bettersafe.text.numbers import number, risk
from bettersafe.text.tones import run_tone

if TYPE_CHECKING:
    from bettersafe.certificate.certificate import Certificate
    from bettersafe.runs.run import Run
    from bettersafe.text.tones import Tone

TEST_IT = "bettersafe certify RUN HELD_OUT"
NOTHING_FOUND = "no change was found that is both safe and worth making"
REVIEW = "let people who know the work review where the policy differs, and the assumptions"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Summary of a run.

    Attributes:
        decision: The decision.
        word: First word of the headline: what kind of evidence says so.
        tone: Meaning of the headline's colour.
        headline: What is gained and what is protected, or the reason to keep the baseline; claims no more than the evidence.
        detail: The sentence of the certificate, or of the method.
        more: About how many more episodes would decide; empty if the decision is not to keep the baseline, or if unknown.
        evidence: The kind of evidence, in words.
        step: The next step.
        command: Command for the next step; empty if there is none.
    """

    decision: Decision
    word: str
    tone: Tone
    headline: str
    detail: str
    more: str
    evidence: str
    step: str
    command: str = ""


def summarise(run: Run) -> Summary:
    """Summary of a run: decision, reason, evidence and next step."""
    certificate, decision = run.certificate, run.decision
    word = decision.short
    more = ""
    if certificate is not None and decision in (Decision.USE_POLICY, Decision.PROPOSED):
        word, why = certificate.word, _gained(run, certificate)
        detail = _belief(run, certificate) if certificate.beliefs else _reason(certificate)
        step, command = (
            (f"Test it on episodes that it was not made from, and {REVIEW}.", TEST_IT)
            if decision is Decision.PROPOSED
            else (f"Before you use it, {REVIEW}.", "")
        )
    elif certificate is not None and certificate.doubted and decision is Decision.NOT_TESTED:
        because, meaning = doubt_of(certificate.doubted)
        why = f"not without a test on other episodes, because {because}"
        detail = " ".join(in_words(check) for check in certificate.doubted)
        step, command = f"{meaning} Test the policy on episodes that it was not made from.", TEST_IT
    elif decision is Decision.NOT_TESTED:
        why, detail = (
            f"by the model that made it, which is optimistic, {model_gains(run) or 'nothing changes'}",
            run.info.status,
        )
        step, command = "It is a suggestion, not a guarantee. Test it on episodes that it was not made from.", TEST_IT
    elif certificate is None or certificate.passes:
        why, detail = NOTHING_FOUND, run.info.status
        budget = " or budget" if facts_of(run.info.method).budget else ""
        step, command = f"Nothing needs to change. More data, or another preference{budget}, may find more.", ""
    else:
        why, detail = _refused(certificate, titles(run)), _reason(certificate)
        step, command = _after_refusal(run, certificate)
        needed = more_data(certificate)
        more = "" if needed is None else needed.sentence
    return Summary(
        decision=decision,
        word=word,
        tone=run_tone(run),
        headline=f"{word}: {why}{_steps(run)}.",
        detail=shorten(detail, 2000),
        more=shorten(more, 400),
        evidence=evidence_words(certificate, proposed=run.has_proposal),
        step=step,
        command=command,
    )


def optimised_for(run: Run) -> str:
    """Return for which a run with a horizon was optimised; without a full stop."""
    assert run.info.horizon is not None
    discount = np.array([objective.discount for objective in run.objectives])
    shown = dict.fromkeys(number(value, trim=True) for value in geometric_discount(discount, run.info.horizon))
    return (
        f"All returns are of the {steps_words(run.info.horizon)}. The policy was optimised, and the objectives protected, for"
        f" discounted returns of the same mean number of steps (discount {listed(list(shown))})"
    )


def _steps(run: Run) -> str:
    """Steps of the returns, for the end of a headline; empty if they are not limited."""
    complete = run.certificate is None or run.certificate.complete
    words = steps_words(run.info.horizon, complete=complete)
    return f", in the {words}" if words and run.has_proposal else ""


def _reason(certificate: Certificate) -> str:
    """The certificate's sentence without the words that the headline has."""
    text = certificate.verdict.removeprefix(f"{certificate.word}: ").removesuffix(" Keep the baseline.")
    return text[0].upper() + text[1:]


def _gained(run: Run, certificate: Certificate) -> str:
    """What is gained and what is protected, and how sure that is."""
    found = certificate.findings
    if certificate.evidence == "theory":
        return f"{_proven(certificate, titles(run))}, at a risk of {risk(certificate.delta)}"
    # If every objective has all of δ, the bounds hold one at a time: enough for "no worse", not for "better" on several.
    together = certificate.evidence == "posterior" or sum(f.level for f in found) <= certificate.delta * (1.0 + 1e-9)
    gains = certified_gains(run, found, together=together)
    some = any(f.zeta > 0.0 and (f.lower_bound < 0.0 or certificate.beliefs) for f in found)
    loses = "no objective loses" + (" more than its accepted loss" if some else "")
    kept = (
        f", threshold on {listed([titles(run)[f.objective] for f in certificate.floors])} kept"
        if certificate.floors
        else ""
    )
    if certificate.beliefs:
        belief = certificate.beliefs[0]
        return f"{gains}{kept}; {loses} with probability {probability(belief.p_safe, belief.draws)}"
    about = "" if certificate.grade == "finite-sample" else "about "
    return f"{gains}{kept}; {loses}, at a risk of {about}{risk(certificate.delta)}"


def _belief(run: Run, certificate: Certificate) -> str:
    """What kind of probability the headline has, and how much optimism was taken off the gains."""
    belief, known = certificate.beliefs[0], titles(run)
    worst = min(belief.p_pessimistic, default=math.nan)
    each = probability(worst, belief.draws)
    pessimistic = "" if math.isnan(worst) else f"; under pessimistic priors, each objective has {each}"
    pessimistic += "" if math.isnan(worst) or each.startswith("over") else " or more"
    taken = [
        (size / max(abs(f.estimate), 1e-300), f"{short(size)} on {known[f.objective]}")
        for f in certificate.findings
        if (size := certificate.diagnostics.get("optimism", {}).get(f.objective, 0.0)) > 0.0
    ]
    largest = ", ".join(text for _, text in sorted(taken, reverse=True)[:WORST_NAMED])
    off = f" Taken off the gains as optimism of the log that made it: {largest}." if largest else ""
    needed = number(1.0 - certificate.delta, trim=True)
    return f"Believed given the log and the priors, where {needed} is needed{pessimistic}. It was not tested.{off}"


def _proven(certificate: Certificate, known: dict[str, str]) -> str:
    """What the counts alone prove: lower bounds, no estimates."""
    better = [
        f"{known[f.objective]} at least {short(f.lower_bound)} better"
        for f in certificate.findings
        if f.lower_bound > 0.0
    ]
    same = [known[f.objective] for f in certificate.findings if f.lower_bound == 0.0]
    less = [f"{known[f.objective]} at most {short(f.zeta)} worse" for f in certificate.findings if f.lower_bound < 0.0]
    kept = [f"threshold on {known[f.objective]} kept" for f in certificate.floors]
    parts = [*better, *([f"{listed(same, of=len(known))} no worse"] if same else []), *less, *kept]
    return ", ".join(parts)


def _refused(certificate: Certificate, known: dict[str, str]) -> str:
    """Reason to keep the baseline."""
    by = "refused by the test, " if certificate.by_test else ""
    if not certificate.tells:
        return f"the {'test' if certificate.by_test else 'data'} can’t tell how the proposal would do"
    floors = [known[f.objective] for f in certificate.floors if not f.passed]
    missed = f"{by}the threshold on {listed(floors, of=len(known))} may be missed" if floors else ""
    if certificate.evidence == "theory":
        return missed or NOTHING_FOUND
    if certificate.beliefs and not certificate.beliefs[0].passes(certificate.delta):
        worst = certificate.findings[certificate.most_doubtful]
        likely = min(math.ceil(100.0 * certificate.loss_risk - 1e-9) / 100.0, 0.99)
        most = (
            f" on {known[worst.objective]}"
            if len(certificate.findings) == 1
            else f", most of all on {known[worst.objective]}"
        )
        belief = certificate.beliefs[0]
        by_all = (
            ", under pessimistic priors" if sum(1.0 - p for p in belief.p_pessimistic) > 1.0 - belief.p_safe else ""
        )
        return f"given the log, a loss is too likely (probability {likely:g}{by_all}){most}"
    losses = [known[f.objective] for f in certificate.findings if not f.passed]
    return f"{by}a loss on {listed(losses, of=len(known))} can’t be ruled out" if losses else missed


def _after_refusal(run: Run, certificate: Certificate) -> tuple[str, str]:
    """Next step after a refusal, and its command."""
    if certificate.evidence == "theory":
        return "Test the proposal on episodes that it was not made from.", TEST_IT
    again = " Testing again until a test passes would invalidate the guarantee." if certificate.by_test else ""
    budget = ", a smaller budget" if facts_of(run.info.method).budget else ""
    return f"Nothing needs to change. More data{budget} or an accepted loss may change the answer.{again}", ""


def evidence_words(certificate: Certificate | None, *, proposed: bool = True) -> str:
    """The kind of evidence, explained for readers who do not know it."""
    if certificate is None and not proposed:
        return "There was nothing to test: the policy of this run is the baseline itself."
    if certificate is None:
        return "Estimated from the data that the policy was made from. Such estimates are optimistic, and guarantee nothing."
    allowed = risk(certificate.delta)
    if certificate.evidence == "theory":
        strict = "" if certificate.grade == "finite-sample" else ", if the baseline and the range of rewards were known"
        return (
            "Nothing was held out: the estimates are from the data that the policy was made from. Bounds from the number of times"
            f" each decision was tried are shown too{strict}; they are seldom tight."
        )
    if certificate.evidence == "posterior":
        taken = (
            "how much too good it looks to the log that made it was measured and taken off"
            if "optimism" in certificate.diagnostics
            else "how much too good it looks to the log that made it was not measured"
        )
        how = (
            "to first order around the posterior mean and with normal gains, because draws would take too long or were not requested"
            if certificate.linearised
            else "by drawing many worlds that fit the log and counting how often the policy does worse"
        )
        form = "by linearisation, without draws" if certificate.linearised else "from draws"
        return (
            f"A belief, not a test: a posterior probability {form}. All of the log made the policy and evaluates it, {how}; {taken}."
            f" Allowed probability of a loss: {allowed}. It is as good as the priors named below."
        )
    where = "A test on episodes that the policy was not made from."
    if certificate.evidence == "safety-test":
        where = "A test on held-out episodes, which were also used to choose the policy."
    sure = {
        "finite-sample": f"Its bounds hold for any amount of data, if the assumptions below do; the risk of a wrong answer is at most {allowed}.",
        "approximate": f"Its bounds are approximate: nearly right for large data. The risk of a wrong answer is about {allowed}, and may be a little higher.",
        "exact": "It is exact: the model is known.",
        "posterior": "",
    }[certificate.grade]
    return f"{where} {sure}"
