"""The verdict: what one sees first, in one sentence that claims what was tested and no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.certificate.certificate import MOST_NAMED
from bettersafe.evaluation.support import UNSUPPORTED_TOL
from bettersafe.report.words import chance, listed, number, percent, risk, shorten

if TYPE_CHECKING:
    from bettersafe.certificate.certificate import Certificate
    from bettersafe.runs.run import Run


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one sees first.

    Attributes:
        kind: "accepted", "open" or "keep".
        badge: The same in two or three words.
        headline: One sentence.
        detail: The exact sentence of the certificate, or of the run.
        evidence: What kind of evidence it rests on, in words.
        step: What to do next.
        command: How, if it is a command.
    """

    kind: str
    badge: str
    headline: str
    detail: str
    evidence: str
    step: str
    command: str = ""


def verdict(run: Run) -> Verdict:
    """The outcome in one sentence, and what it is worth."""
    certificate = run.certificate
    titles = _titles(run)
    detail = shorten(run.info["status"], 2000)
    if certificate is None or (certificate.evidence == "theory" and not certificate.accepted):
        missed = [] if certificate is None else [titles[f.objective] for f in certificate.floors if not f.passed]
        if not run.changed:
            return Verdict(
                kind="keep",
                badge="Keep the baseline",
                headline="Keep doing what is done now: no change was found that is both safe and worth making.",
                detail=detail,
                evidence="There was nothing to test: the policy of this run is the baseline itself.",
                step="Nothing needs to change. More data, or another preference or budget, may find more.",
            )
        if missed and certificate is not None:
            return Verdict(
                kind="keep",
                badge="Keep the baseline",
                headline=f"Keep the baseline for now: the threshold on {listed(missed, of=len(titles))} may be missed.",
                detail=certificate.verdict,
                evidence=evidence_words(certificate),
                step="Test the policy on episodes that it was not made from.",
                command="bettersafe certify RUN HELD_OUT",
            )
        better = _raised(run)
        on = f" on {listed(better, of=len(titles))}" if better else ""
        return Verdict(
            kind="open",
            badge="Not yet tested",
            headline=f"The new policy looks better{on}, but it has not been tested yet.",
            detail=detail if certificate is None else f"{detail} {certificate.verdict}",
            evidence=evidence_words(certificate),
            step="A suggestion, not a promise. Test it on episodes that it was not made from.",
            command="bettersafe certify RUN HELD_OUT",
        )
    if certificate.accepted:
        return Verdict(
            kind="accepted",
            badge="Accepted",
            headline=_accepted_headline(certificate, titles),
            detail=certificate.verdict,
            evidence=evidence_words(certificate),
            step="Before it is used, let people who know the work read where the policy differs, and what this rests on.",
        )
    again = "" if certificate.evidence == "posterior" else " Testing again until a test passes would break the promise."
    return Verdict(
        kind="keep",
        badge="Keep the baseline",
        headline=_rejected_headline(certificate, titles),
        detail=certificate.verdict,
        evidence=evidence_words(certificate),
        step=f"Nothing needs to change. More data, a smaller budget or an accepted loss may lead further.{again}",
    )


def _accepted_headline(certificate: Certificate, titles: dict[str, str]) -> str:
    if certificate.evidence == "posterior":
        belief = certificate.beliefs[0]
        return (
            "Given the data, the new policy is no worse than the baseline on"
            f" {listed([titles[f.objective] for f in certificate.findings], of=len(titles))}, with a probability of"
            f" {chance(belief.p_safe, belief.draws)}."
        )
    # where every objective has all of δ, the bounds hold one by one: enough for "no worse", not for "better" on several
    together = sum(f.level for f in certificate.findings) <= certificate.delta * (1.0 + 1e-9)
    gains = [f for f in certificate.findings if f.lower_bound >= 0.0]
    better = [titles[f.objective] for f in gains if together and f.lower_bound > 0.0]
    same = [titles[f.objective] for f in gains if not (together and f.lower_bound > 0.0)]
    loss = [
        f"{number(f.zeta, trim=True)} worse on {titles[f.objective]}"
        for f in certificate.findings
        if -f.zeta <= f.lower_bound < 0.0
    ]
    parts = [f"better than the baseline on {listed(better, of=len(titles))}"] if better else []
    parts += [f"no worse {'' if parts else 'than the baseline '}on {listed(same, of=len(titles))}"] if same else []
    if len(loss) > MOST_NAMED:
        loss = [f"as much worse as is accepted on {len(loss)} objectives"]
    parts += [f"at most {listed(loss)}"] if loss else []
    kept = (
        f", and keeps the threshold on {listed([titles[f.objective] for f in certificate.floors], of=len(titles))}"
        if certificate.floors
        else ""
    )
    proof = "By the counts of the data alone, the" if certificate.evidence == "theory" else "The"
    return f"{proof} new policy is {listed(parts)}{kept}."


def _rejected_headline(certificate: Certificate, titles: dict[str, str]) -> str:
    if not certificate.unsupported <= UNSUPPORTED_TOL or certificate.blind:
        return "Keep the baseline: the data can’t tell what would come of the new policy."
    if certificate.beliefs and not certificate.beliefs[0].passes(certificate.delta):
        belief = certificate.beliefs[0]
        chances = [
            min(pair) for pair in zip(belief.p_objective, belief.p_pessimistic or belief.p_objective, strict=True)
        ]
        worst = certificate.findings[int(np.argmin(chances))]
        return f"Keep the baseline: given the data, a loss on {titles[worst.objective]} is too likely."
    missed = [titles[f.objective] for f in certificate.findings if not f.passed]
    if missed:
        return f"Keep the baseline: a loss on {listed(missed, of=len(titles))} can’t be ruled out."
    floors = [titles[f.objective] for f in certificate.floors if not f.passed]
    return f"Keep the baseline: the threshold on {listed(floors, of=len(titles))} may be missed."


def evidence_words(certificate: Certificate | None) -> str:
    """What kind of evidence there is, for people who never heard of it."""
    if certificate is None:
        return (
            "Estimated from the data that the policy was made from. Such estimates are optimistic, and promise nothing."
        )
    allowed = risk(certificate.delta)
    if certificate.evidence == "theory":
        strict = "" if certificate.grade == "finite-sample" else ", if the baseline and the range of rewards were known"
        return (
            "Nothing was held out: the estimates are from the data that the policy was made from. What can be proven from the"
            f" number of times each decision was tried is shown too{strict}; it is seldom much."
        )
    if certificate.linearised:
        return (
            "A posterior probability by linearisation, without draws: all the data was used to make the policy and to judge it, to"
            " first order around what the data says on average and with gains taken for normal, because drawing worlds would take"
            f" too long or was not asked for. Allowed chance of a loss: {allowed}. It is as good as that, and as the priors named"
            " below."
        )
    if certificate.evidence == "posterior":
        return (
            "A posterior probability: all the data was used to make the policy and to judge it, by drawing many worlds that fit"
            f" the data and counting how often the policy does worse. Allowed chance of a loss: {allowed}. It is as good as the"
            " priors named below."
        )
    where = "A test on episodes that the policy was not made from."
    if certificate.evidence == "safety-test":
        where = "A test on held-out episodes, with which the policy was also chosen."
    sure = {
        "finite-sample": f"Its bounds hold for any amount of data, if the assumptions below do; the risk of a wrong answer is at most {allowed}.",
        "approximate": f"Its bounds are approximate: nearly right for much data. The risk of a wrong answer is about {allowed}, and may be a little more.",
        "exact": "It is exact: the model is known.",
        "posterior": "",
    }[certificate.grade]
    return f"{where} {sure}"


def facts(run: Run) -> list[tuple[str, str]]:
    """The few numbers beside the verdict: (number, what it is)."""
    moved = np.abs(run.policy - run.baseline).sum(axis=1) / 2.0
    visits = run.counts.sum(axis=1)
    share = float(moved @ visits / max(int(visits.sum()), 1))
    data = run.info.get("data", {})
    found = [
        (percent(share), "of decisions would be different"),
        (f"{run.info['states_changed']:,} of {run.info['n_states']:,}", "states with a change"),
        (f"{int(visits.sum()):,}", "decisions that the policy was made from"),
    ]
    tested = {} if run.certificate is None else run.certificate.data.get("tested_on", {})
    if "episodes" in tested and run.certificate is not None:
        posterior = run.certificate.evidence == "posterior"
        found.append((f"{int(tested['episodes']):,}", "episodes asked" if posterior else "episodes tested on"))
    elif "episodes" in data:
        found.append((f"{int(data['episodes']):,}", "episodes"))
    return found


def _titles(run: Run) -> dict[str, str]:
    return {objective.name: shorten(objective.title, 60) for objective in run.objectives}


def _raised(run: Run) -> list[str]:
    """Titles of the objectives that the estimated model raises."""
    gain = run.policy_return - run.baseline_return
    size = np.maximum(1.0, np.abs(run.baseline_return))
    return [shorten(o.title, 60) for o, g, s in zip(run.objectives, gain, size, strict=True) if g > 1e-6 * s]
