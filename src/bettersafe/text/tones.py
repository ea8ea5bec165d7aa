"""Colours by meaning: every screen maps a tone to its own colour.

"passed" is green and "refused" is red. They are about a test or a proof, and one verdict never has both: where a test refuses a policy,
the objectives that passed are plain. What is only believed is "proposed", blue, and what is open is amber.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from bettersafe.runs.run import Decision

if TYPE_CHECKING:
    from bettersafe.certificate.certificate import Belief, Certificate, Floor, Outcome
    from bettersafe.runs.run import Run

Tone = Literal["passed", "refused", "proposed", "open", "keep", "plain"]

DECISIONS: dict[Decision, Tone] = {
    Decision.USE_POLICY: "passed",
    Decision.PROPOSED: "proposed",
    Decision.NOT_TESTED: "open",
    Decision.KEEP_BASELINE: "keep",
}
OUTCOMES: dict[Outcome, Tone] = {
    "passed": "passed",
    "not passed": "refused",
    "believed": "proposed",
    "in doubt": "open",
    "proven": "passed",
    "can't tell": "open",
    "not tested": "plain",
}


def run_tone(run: Run) -> Tone:
    """Tone of a run's headline; a baseline that is kept because a test ruled the policy out is "refused"."""
    found, kept = run.certificate, run.decision is Decision.KEEP_BASELINE
    if kept and found is not None and found.standing == "refused" and found.tells:
        return "refused"
    return DECISIONS[run.decision]


def outcome_tone(certificate: Certificate, k: int) -> Tone:
    """Tone of the outcome of ``findings[k]``."""
    return _within(certificate, OUTCOMES[certificate.outcome(k)])


def floor_tone(certificate: Certificate, floor: Floor) -> Tone:
    """Tone of a threshold."""
    return _within(certificate, "passed" if floor.passed else "refused" if certificate.by_test else "open")


def belief_tone(belief: Belief, delta: float) -> Tone:
    """Tone of a posterior probability."""
    return "proposed" if belief.passes(delta) else "open"


def _within(certificate: Certificate, tone: Tone) -> Tone:
    """Tone of a part of a verdict: only a policy that passed as a whole has parts in green."""
    return "plain" if tone == "passed" and not certificate.accepted else tone
