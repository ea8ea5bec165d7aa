"""Labels, lists of names, and the wording of evidence, grades and candidates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bettersafe.certificate.certificate import MOST_NAMED, NEGATIVE, POSITIVE, steps_words
from bettersafe.runs.run import Decision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.certificate.certificate import Belief, Floor
    from bettersafe.evaluation.evaluate import EstimateRow
    from bettersafe.evaluation.state_evidence import StateCheck
    from bettersafe.runs.info import CandidateInfo
    from bettersafe.runs.run import Run

LONGEST = 160
"""Characters of a label that are shown; some logs have labels of thousands of characters."""

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")

GRADES = {
    "exact": "exact: in a known model",
    "posterior": "posterior: as good as the priors named below",
    "finite-sample": "finite-sample: holds for any amount of data, if the assumptions do",
    "approximate": "approximate: nearly right for large data, and may fail more often than the risk says",
}
"""Grades of a certificate."""

TESTED_CANDIDATES = {"chosen": "passed, chosen", "passed": "passed", "failed": "not passed"}
"""Outcomes of a candidate by a test."""

BELIEVED_CANDIDATES = {
    "chosen": "proposed",
    "passed": POSITIVE["posterior"][1],
    "open": "not completed: a better one was found",
    "failed": NEGATIVE["posterior"][1],
}
"""Outcomes of a candidate by the posterior."""

SAME_DATA = "Estimated model"
"""Label of estimates from the data that the policy was made from, which are not evidence."""


ALL_STEPS = "all steps, also after logging stopped"
"""Steps of estimates without a horizon, from a log with episodes that are cut off."""


def clean(text: object) -> str:
    """Text without characters that can't be shown or that reverse the text around them: control, surrogate and direction characters."""
    return _UNPRINTABLE.sub("\ufffd", str(text))


def shorten(text: object, longest: int = LONGEST) -> str:
    """Clean text, cut with an ellipsis."""
    shown = clean(text)
    return shown if len(shown) <= longest else shown[: longest - 1].rstrip() + "…"


def listed(names: Sequence[str], *, of: int | None = None) -> str:
    """Names as "a, b and c"; for more than `MOST_NAMED` objectives only their number, or "all" if there are ``of`` of them."""
    if of is not None and len(names) > MOST_NAMED:
        return f"all {of} objectives" if len(names) == of else f"{len(names)} of {of} objectives"
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def titles(run: Run, longest: int = 60) -> dict[str, str]:
    """Titles of the objectives, by name."""
    return {objective.name: shorten(objective.title, longest) for objective in run.objectives}


def candidate_outcome(candidate: CandidateInfo) -> str:
    """Outcome of a candidate, in the words of its evidence."""
    return (BELIEVED_CANDIDATES if candidate.evidence == "posterior" else TESTED_CANDIDATES)[candidate.outcome]


def belief_word(belief: Belief, delta: float) -> str:
    """Outcome of a posterior probability, for risk ``delta``: "believed" or "in doubt"."""
    return BELIEVED_CANDIDATES["passed" if belief.passes(delta) else "failed"]


def floor_word(floor: Floor) -> str:
    """Outcome of a threshold."""
    return "kept" if floor.passed else "may be missed"


def proposed(run: Run) -> str:
    """Word for the proposal: "policy", or "proposal" if it was refused."""
    return "proposal" if run.has_proposal and run.decision is Decision.KEEP_BASELINE else "policy"


def status(run: Run) -> str:
    """Result of the method in one sentence; a policy that was refused is called a proposal."""
    return run.info.status.replace("The policy changes", f"The {proposed(run)} changes", 1)


def in_words(check: StateCheck) -> str:
    """Result of a check of the state, as a sentence."""
    text = shorten(check.sentence, 1000)
    return f"{text[0].upper()}{text[1:]}."


def doubt_of(checks: Sequence[StateCheck]) -> tuple[str, str]:
    """Why checks that speak against the model do so, without a full stop, and what that may mean, as a sentence."""
    if all(check.kind == "open-end" for check in checks):
        return "the policy more often goes where the log stops", "What follows there is not known."
    return "the model does not fit the log", "The state may lack what matters."


def run_steps(run: Run) -> str:
    """Steps of the returns in the estimated model; empty if they are of whole episodes."""
    words = steps_words(run.info.horizon)
    return words or (ALL_STEPS if run.info.data.truncated else "")


def certificate_steps(run: Run) -> str:
    """Steps of the returns of the certificate; empty if they are of whole episodes."""
    certificate = run.certificate
    if certificate is None or certificate.complete:
        return run_steps(run)
    return steps_words(certificate.horizon, complete=False)


def logged_steps(row: EstimateRow) -> str:
    """Steps of the logged returns in a row of estimates."""
    cut = f"up to {row['longest_episode']:,} steps; {row['truncated_episodes']:,} of {row['episodes']:,} episodes are cut off"
    return (steps_words(row["horizon"]) or "whole episodes") if row["complete"] else cut


def with_titles(priors: str, run: Run) -> str:
    """Priors as named in certificates, with the objectives' titles."""
    known = titles(run)
    names = "|".join(re.escape(clean(name)) for name in sorted(known, key=len, reverse=True))
    return re.sub(rf"(?<=pessimistic for )({names})(?=[;.]|$)", lambda m: known.get(m[0], m[0]), clean(priors))
