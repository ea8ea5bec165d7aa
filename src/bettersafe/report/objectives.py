"""Baseline against proposal on every objective, by every kind of evidence.

A test or the posterior comes first; estimates of the model that made the policy are then only a sentence below the table. All returns in the
table of an objective are of the same steps. Gains are positive if the proposal is better; text on the page has the user's own sign.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bettersafe.logs.dataset import user_sign
from bettersafe.report.charts import Mark
from bettersafe.text.gains import baseline_text, believed_return, estimate_row, return_text
from bettersafe.text.names import (
    SAME_DATA,
    belief_word,
    certificate_steps,
    floor_word,
    logged_steps,
    run_steps,
    shorten,
    titles,
    with_titles,
)
from bettersafe.text.numbers import chance, change_precision, number, risk
from bettersafe.text.tones import belief_tone, floor_tone, outcome_tone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.certificate.certificate import Certificate
    from bettersafe.logs.dataset import Objective
    from bettersafe.runs.info import CandidateInfo
    from bettersafe.runs.run import Run
    from bettersafe.text.tones import Tone
    from bettersafe.typing import Row


MOST_CARDS = 8
"""Largest number of objectives with a card and a chart each; with more, those that decide have one, and a table has all."""

MOST_COLUMNS = 4
"""Largest number of objectives side by side in a table; more are shown one per row."""

WORTH = {"finite-sample": "holds for any amount of data", "approximate": "approximate", "exact": "exact"}
"""Short description of a test's grade."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One kind of evidence about one objective, as text."""

    evidence: str
    worth: str  # short description of its grade
    baseline: str
    policy: str
    change: str
    bound: str  # lower bound on the gain


@dataclass(frozen=True, kw_only=True)
class ObjectiveView:
    """One objective: heading, chart and table."""

    title: str
    unit: str
    note: str
    aside: tuple[str, ...]  # logged returns, and estimates of the model beside a test or the posterior
    proven: str
    outcome: str  # outcome of the certificate, "not tested" or "unchanged"
    tone: Tone
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]
    zeta: float
    lower_is_better: bool


def objectives(run: Run) -> list[ObjectiveView]:
    """Every objective of a run."""
    return [_objective(run, k) for k in range(len(run.objectives))]


def _objective(run: Run, k: int) -> ObjectiveView:
    objective, certificate = run.objectives[k], run.certificate
    found = [_by_model(run, k)]
    aside: list[str] = []
    outcome, zeta = "not tested" if run.has_proposal else "unchanged", 0.0
    tone: Tone = "plain"
    place = None if certificate is None else _place(certificate, objective.name)
    if certificate is not None and place is not None:
        outcome, tone = certificate.outcome(place), outcome_tone(certificate, place)
        if certificate.evidence != "theory":
            zeta = certificate.findings[place].zeta
            weaker = (
                found if run.has_proposal else []
            )  # estimates of the model are no evidence beside a test or the posterior
            found = [_by_certificate(run, certificate, place, k)]
            before = chosen_before(run)
            if before is not None and certificate.complete:
                found.append(_before_the_test(run, before, k))
            elif before is not None:
                weaker.append(_before_the_test(run, before, k))
            aside += [_in_words(line, run_steps(run)) for line, _ in weaker]
            aside += _logged(run, objective)
    proven, proof = _proven(run, objective.name, _digits(run, k))
    marks = [mark for _, mark in found if mark is not None]
    return ObjectiveView(
        title=shorten(objective.title),
        unit=shorten(objective.unit, 40),
        note=_note(run, k, zeta),
        aside=tuple(aside),
        proven=proven,
        outcome=outcome,
        tone=tone,
        lines=tuple(line for line, _ in found),
        marks=tuple(marks if proof is None else [*marks, proof]),
        zeta=zeta,
        lower_is_better=objective.lower_is_better,
    )


def _digits(run: Run, k: int) -> int:
    """Number of decimals for an objective."""
    return change_precision(float(run.baseline_return[k]), float(run.proposal_return[k]))


def _by_model(run: Run, k: int) -> tuple[Line, Mark | None]:
    """Estimates of the estimated model."""
    objective, digits = run.objectives[k], _digits(run, k)
    before, after = (user_sign(objective, float(v[k])) for v in (run.baseline_return, run.proposal_return))
    gain = float(run.proposal_return[k] - run.baseline_return[k])
    line = Line(
        evidence=SAME_DATA,
        worth="from its own data: optimistic" if run.has_proposal else "the policy is the baseline",
        baseline=number(before, decimals=digits),
        policy=number(after, decimals=digits),
        change=_moved(gain, objective, digits),
        bound="none" if run.has_proposal else "–",
    )
    mark = Mark(label=SAME_DATA, estimate=gain, low=math.nan, high=math.nan, kind="model")
    return line, mark if run.has_proposal else None


def _before_the_test(run: Run, before: CandidateInfo, k: int) -> tuple[Line, Mark]:
    """Result of the posterior before the test."""
    gain, least, digits = before.gain[k], before.least[k], _digits(run, k)
    line = Line(
        evidence="Posterior",
        worth="given data and priors, before the test",
        baseline="–",
        policy="–",
        change=_moved(gain, run.objectives[k], digits),
        bound=at_least(least, digits),
    )
    return line, Mark(label="Posterior", estimate=gain, low=least, high=math.inf, kind="posterior")


def _by_certificate(run: Run, certificate: Certificate, place: int, k: int) -> tuple[Line, Mark]:
    """Result of the test or the posterior."""
    objective, finding, digits = run.objectives[k], certificate.findings[place], _digits(run, k)
    belief = certificate.beliefs[0] if certificate.beliefs else None
    returns = believed_return(run, k, finding.estimate)
    edges = posterior_interval(certificate, objective.name)
    kind, name = ("tested", "Held-out test") if belief is None else ("posterior", "Posterior")
    worth = WORTH.get(certificate.grade, "given data and priors")
    if not run.has_proposal:
        worth += "; for the candidate nearest to being proposed" if belief else "; for the candidate nearest to passing"
    bound = at_least(finding.lower_bound, digits)
    if belief is not None:
        bound += f"; no worse with probability {chance(belief.p_objective[place], belief.draws)}"
    row = estimate_row(run, certificate.settings.get("estimator"), objective.name)
    shown = ["–", "–"]
    if row is None and certificate.complete:
        shown = [number(each, decimals=digits) for each in returns]
    elif row is not None:
        shown = [baseline_text(row), return_text(row)]
    line = Line(
        evidence=name,
        worth=worth,
        baseline=shown[0],
        policy=shown[1],
        change=_moved(finding.estimate, objective, digits) + between(edges, objective.lower_is_better, digits),
        bound=f"{bound} (risk {risk(finding.level)})" if certificate.tells else "none: the data can’t tell",
    )
    low, high = (finding.lower_bound, math.inf) if edges is None else edges
    return line, Mark(label=name, estimate=finding.estimate, low=low, high=high, kind=kind)


def _proven(run: Run, name: str, digits: int) -> tuple[str, Mark | None]:
    """Bound from the counts alone, as a sentence and, if informative, as a mark."""
    theory = None if run.certificate is None else run.certificate.theory
    proof = None if theory is None else next((p for p in theory.proofs if p.objective == name), None)
    if theory is None or proof is None:
        return "", None
    doubt = "" if theory.rigorous else " (a guide only: not everything that the proof needs is known)"
    if not proof.informative:
        return f"Proven by the counts alone{doubt}: nothing, the bound is wider than the range of returns.", None
    mark = Mark(label="Proof", estimate=math.nan, low=proof.gain_at_least, high=math.nan, kind="model")
    return f"Proven by the counts alone{doubt}: {at_least(proof.gain_at_least, digits)}.", mark


def _note(run: Run, k: int, zeta: float) -> str:
    """Direction, weight, discount, steps and accepted loss."""
    objective, weight = run.objectives[k], run.info.preference[k]
    note = "lower is better" if objective.lower_is_better else "higher is better"
    note += f", weight {weight:g} in the preference" if weight else ", protected but not pursued (weight 0)"
    note += f", discount {objective.discount:g}"
    steps = certificate_steps(run)
    note += f", {steps}" if steps else ""
    return note + (f", accepted loss {number(zeta, trim=True)}" if zeta > 0.0 else "")


def _moved(gain: float, objective: Objective, digits: int) -> str:
    """A gain as a signed change in the user's own sign, with "better" or "worse"."""
    if not math.isfinite(gain):
        return "–"
    if abs(gain) < 0.5 * 10.0**-digits:
        return "no change"
    shown = number(-gain if objective.lower_is_better else gain, signed=True, decimals=digits)
    return shown + (" better" if gain > 0 else " worse")


def at_least(bound: float, digits: int) -> str:
    """A lower bound on a gain, in words."""
    if math.isnan(bound) or bound == -math.inf:
        return "nothing"
    text = number(abs(bound), decimals=digits)
    if not any(c in "123456789" for c in text):
        return "no worse"
    return f"at least {text} better" if bound > 0.0 else f"at most {text} worse"


def between(edges: tuple[float, float] | None, cost: bool, digits: int) -> str:
    """Interval of a gain in the user's own sign; empty if there is none."""
    if edges is None:
        return ""
    low, high = sorted((-e if cost else e) for e in edges)
    return f" [{number(low, signed=True, decimals=digits)}, {number(high, signed=True, decimals=digits)}]"


def posterior_interval(certificate: Certificate, name: str) -> tuple[float, float] | None:
    """The posterior's central interval of a gain."""
    interval = certificate.diagnostics.get("interval", {})
    if certificate.evidence != "posterior" or name not in interval:
        return None
    low, high = interval[name]
    return float(low), float(high)


def chosen_before(run: Run) -> CandidateInfo | None:
    """Posterior result of a proposal that was tested afterwards; None if there is none."""
    if run.certificate is None or run.certificate.evidence != "held-out" or not run.has_proposal:
        return None
    return next((c for c in run.info.candidates if c.outcome == "chosen" and c.evidence == "posterior"), None)


def _place(certificate: Certificate, name: str) -> int | None:
    return next((k for k, finding in enumerate(certificate.findings) if finding.objective == name), None)


def _logged(run: Run, objective: Objective) -> list[str]:
    """Logged return of the baseline in the test episodes, as a sentence."""
    row = estimate_row(run, "logged", objective.name)
    if row is None:
        return []
    return [f"Logged in the test episodes, under the baseline: {return_text(row)} ({logged_steps(row)})."]


def _in_words(line: Line, steps: str) -> str:
    """A line that is not in the table, as a sentence."""
    returns = f"{line.baseline} → {line.policy}, " if line.policy != "–" else ""
    what = ", ".join(each for each in (steps, line.worth) if each)
    return f"{line.evidence} ({what}): {returns}{line.change}."


def floors(run: Run) -> list[Row]:
    """Thresholds, in the user's own sign."""
    if run.certificate is None:
        return []
    by_name = {o.name: o for o in run.objectives}
    rows = []
    for floor in run.certificate.floors:
        objective = by_name[floor.objective]
        bound = "at most" if objective.lower_is_better else "at least"
        rows.append(
            {
                "title": shorten(objective.title),
                "wanted": f"{bound} {number(user_sign(objective, floor.threshold), trim=True)}",
                "guaranteed": "nothing"
                if not math.isfinite(floor.guaranteed)
                else f"{bound} {number(user_sign(objective, floor.guaranteed))}",
                "word": floor_word(floor),
                "tone": floor_tone(run.certificate, floor),
            }
        )
    return rows


def beliefs(run: Run) -> list[Row]:
    """Posterior probabilities under every set of priors."""
    if run.certificate is None:
        return []
    return [
        {
            "priors": with_titles(belief.priors.split(";")[0] if place else f"As used: {belief.priors}", run),
            "p_safe": chance(belief.p_safe, belief.draws),
            "cells": [
                chance(p, belief.draws)
                + (f" (pessimistic {chance(belief.p_pessimistic[k], belief.draws)})" if belief.p_pessimistic else "")
                for k, p in enumerate(belief.p_objective)
            ],
            "least": [_least(run, chances, belief.draws) for chances in (belief.p_objective, belief.p_pessimistic)],
            "word": belief_word(belief, run.certificate.delta),
            "tone": belief_tone(belief, run.certificate.delta),
        }
        for place, belief in enumerate(run.certificate.beliefs)
    ]


def _least(run: Run, chances: Sequence[float], draws: int) -> str:
    """The least certain objective and its probability; "–" if these priors were not used."""
    if not chances or run.certificate is None:
        return "–"
    k = min(range(len(chances)), key=lambda place: chances[place])
    if chances[k] >= 1.0:
        return f"{chance(chances[k], draws)} of each"
    return f"{chance(chances[k], draws)} {titles(run)[run.certificate.findings[k].objective]}"
