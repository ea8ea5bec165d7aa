"""Summary of a run: the decision, its reason, the evidence and the next step.

Every headline begins with the decision, so that all screens agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.certificate.certificate import MOST_NAMED, steps_words
from bettersafe.mdp.horizon import geometric_discount
from bettersafe.runs.run import Decision
from bettersafe.text.names import in_words, listed, shorten, titles
from bettersafe.text.numbers import chance, number, risk

if TYPE_CHECKING:
    from bettersafe.certificate.certificate import Certificate
    from bettersafe.runs.run import Run

TEST_IT = "bettersafe certify RUN HELD_OUT"
NOTHING_FOUND = "no change was found that is both safe and worth making"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Summary of a run.

    Attributes:
        decision: The decision.
        headline: The decision and its reason in one sentence, which claims no more than was tested.
        detail: The sentence of the certificate, or of the method.
        evidence: The kind of evidence, in words.
        step: The next step.
        command: Command for the next step; empty if there is none.
    """

    decision: Decision
    headline: str
    detail: str
    evidence: str
    step: str
    command: str = ""


def summarise(run: Run) -> Summary:
    """Summary of a run: decision, reason, evidence and next step."""
    certificate, decision = run.certificate, run.decision
    if decision is Decision.USE_POLICY and certificate is not None:
        why, detail = _accepted(certificate, titles(run)), certificate.verdict
        step, command = (
            "Before you use it, let people who know the work review where the policy differs, and the assumptions.",
            "",
        )
    elif certificate is not None and certificate.doubted and decision is Decision.NOT_TESTED:
        why = "not without a test on other episodes, because the model does not fit the log"
        detail = " ".join(in_words(check) for check in certificate.doubted)
        step, command = (
            "The state may lack what matters. Test the policy on episodes that it was not made from.",
            TEST_IT,
        )
    elif decision is Decision.NOT_TESTED:
        raised = _raised(run)
        on = f" on {listed(raised, of=len(run.objectives))}" if raised else ""
        why, detail = f"the policy looks better{on}, by the data that it was made from", run.info.status
        step, command = "It is a suggestion, not a guarantee. Test it on episodes that it was not made from.", TEST_IT
    elif certificate is None or certificate.passes:
        why, detail = NOTHING_FOUND, run.info.status
        step, command = "Nothing needs to change. More data, or another preference or budget, may find more.", ""
    else:
        why, detail = _refused(certificate, titles(run)), certificate.verdict
        step, command = _after_refusal(certificate)
    return Summary(
        decision=decision,
        headline=f"{decision.short}: {why}{_steps(run)}.",
        detail=shorten(detail, 2000),
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


def _accepted(certificate: Certificate, known: dict[str, str]) -> str:
    """Reason to use the policy."""
    if certificate.evidence == "posterior":
        belief = certificate.beliefs[0]
        return (
            "given the data, it is no worse than the baseline on"
            f" {listed([known[f.objective] for f in certificate.findings], of=len(known))}, with a probability of"
            f" {chance(belief.p_safe, belief.draws)}"
        )
    # If every objective has all of δ, the bounds hold one at a time: enough for "no worse", not for "better" on several.
    together = sum(f.level for f in certificate.findings) <= certificate.delta * (1.0 + 1e-9)
    gains = [f for f in certificate.findings if f.lower_bound >= 0.0]
    better = [known[f.objective] for f in gains if together and f.lower_bound > 0.0]
    same = [known[f.objective] for f in gains if not (together and f.lower_bound > 0.0)]
    loss = [
        f"{number(f.zeta, trim=True)} worse on {known[f.objective]}"
        for f in certificate.findings
        if -f.zeta <= f.lower_bound < 0.0
    ]
    parts = [f"better than the baseline on {listed(better, of=len(known))}"] if better else []
    parts += [f"no worse {'' if parts else 'than the baseline '}on {listed(same, of=len(known))}"] if same else []
    if len(loss) > MOST_NAMED:
        loss = [f"worse by the accepted loss on {len(loss)} objectives"]
    parts += [f"at most {listed(loss)}"] if loss else []
    kept = (
        f", and keeps the threshold on {listed([known[f.objective] for f in certificate.floors], of=len(known))}"
        if certificate.floors
        else ""
    )
    proof = "by the counts of the data alone, it" if certificate.evidence == "theory" else "it"
    return f"{proof} is {listed(parts)}{kept}"


def _refused(certificate: Certificate, known: dict[str, str]) -> str:
    """Reason to keep the baseline."""
    if not certificate.tells:
        return "the data can’t tell how the proposal would do"
    floors = [known[f.objective] for f in certificate.floors if not f.passed]
    missed = f"the threshold on {listed(floors, of=len(known))} may be missed" if floors else ""
    if certificate.evidence == "theory":
        return missed or NOTHING_FOUND
    if certificate.beliefs and not certificate.beliefs[0].passes(certificate.delta):
        worst = certificate.findings[certificate.most_doubtful]
        return f"given the data, a loss on {known[worst.objective]} is too likely"
    losses = [known[f.objective] for f in certificate.findings if not f.passed]
    return f"a loss on {listed(losses, of=len(known))} can’t be ruled out" if losses else missed


def _after_refusal(certificate: Certificate) -> tuple[str, str]:
    """Next step after a refusal, and its command."""
    if certificate.evidence == "theory":
        return "Test the proposal on episodes that it was not made from.", TEST_IT
    again = ""
    if certificate.evidence != "posterior":
        again = " Testing again until a test passes would invalidate the guarantee."
    return f"Nothing needs to change. More data, a smaller budget or an accepted loss may change the answer.{again}", ""


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
    if certificate.linearised:
        return (
            "A posterior probability by linearisation, without draws: all the data was used to make the policy and to evaluate it, to"
            " first order around the posterior mean and with normal gains, because draws would take too long or were not requested."
            f" Allowed probability of a loss: {allowed}. It is as good as this approximation, and as the priors named below."
        )
    if certificate.evidence == "posterior":
        return (
            "A posterior probability: all the data was used to make the policy and to evaluate it, by drawing many worlds that fit"
            f" the data and counting how often the policy does worse. Allowed probability of a loss: {allowed}. It is as good as the"
            " priors named below."
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


def _raised(run: Run) -> list[str]:
    """Titles of the objectives that the estimated model raises."""
    gain = run.proposal_return - run.baseline_return
    size = np.maximum(1.0, np.abs(run.baseline_return))
    return [shorten(o.title, 60) for o, g, s in zip(run.objectives, gain, size, strict=True) if g > 1e-6 * s]
