"""Baseline against policy on every objective, and the trade-off between them.

Gains are positive where the policy is better; what people read is turned back into the user's own sign here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bettersafe.errors import RunError
from bettersafe.logs.dataset import user_sign
from bettersafe.report.charts import Mark, Point, change
from bettersafe.report.words import chance, clean, number, precision, risk, shorten
from bettersafe.runs.run import deciding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.certificate.certificate import Certificate
    from bettersafe.logs.dataset import Objective
    from bettersafe.runs.run import Run


MOST_CARDS = 8
"""Objectives with a card and a chart of their own; of more, those that decide, and all of them in a table."""

MOST_COLUMNS = 4
"""Objectives that stand side by side in a table; more stand below each other."""

MOST_DRAWN = 8
"""Objectives of which every pair is drawn; 8 make 28 pictures."""

SAME_DATA = "Estimated model"

RESULTS = {
    "failed": "did not pass",
    "open": "not judged to the end: a better one had passed",
    "passed": "passed",
    "chosen": "passed, chosen",
}
"""What became of a candidate, by its kind."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One kind of evidence about one objective, as text."""

    evidence: str
    worth: str  # what such evidence is worth
    baseline: str
    policy: str
    change: str
    certain: str
    result: str = ""  # "passed", "not passed" or nothing


@dataclass(frozen=True, kw_only=True)
class ObjectiveView:
    """One objective: heading, chart and table."""

    title: str
    unit: str
    note: str
    proven: str
    outcome: str  # "passed", "failed" or "open"
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]
    zeta: float
    lower_is_better: bool


def objectives(run: Run) -> list[ObjectiveView]:
    """Baseline against policy on every objective, by every kind of evidence there is."""
    return [_objective(run, k) for k in range(len(run.objectives))]


def _objective(run: Run, k: int) -> ObjectiveView:
    objective = run.objectives[k]
    certificate = run.certificate
    before, after = (user_sign(objective, float(v[k])) for v in (run.baseline_return, run.policy_return))
    digits = precision(before, after)
    cost = objective.lower_is_better

    def moved(gain: float) -> str:
        if not math.isfinite(gain):
            return "–"
        small = abs(gain) < 0.5 * 10.0**-digits
        return "no change" if small else change_text(gain, cost, digits) + (" better" if gain > 0 else " worse")

    gain = float(run.policy_return[k] - run.baseline_return[k])
    lines = [
        Line(
            evidence=SAME_DATA,
            worth="from its own data: optimistic" if run.changed else "the policy is the baseline",
            baseline=number(before, decimals=digits),
            policy=number(after, decimals=digits),
            change=moved(gain),
            certain="nothing" if run.changed else "–",
        )
    ]
    marks = [Mark(label=SAME_DATA, estimate=gain, low=math.nan, high=math.nan, kind="model")] if run.changed else []
    zeta, outcome = 0.0, "open"
    finding = (
        None if certificate is None else next((f for f in certificate.findings if f.objective == objective.name), None)
    )
    if certificate is not None and finding is not None and certificate.evidence != "theory":
        zeta, outcome = finding.zeta, "passed" if finding.passed else "failed"
        belief = certificate.beliefs[0] if certificate.beliefs else None
        edges = _interval(certificate, objective.name)
        kind, name = ("tested", "Held-out test") if belief is None else ("posterior", "Posterior")
        words = {"finite-sample": "holds for any amount of data", "approximate": "approximate", "exact": "exact"}
        text = words.get(certificate.grade, "given data and priors")
        if not run.changed:
            text += "; of the candidate that was nearest to passing"
        logged, own = (_estimate(run, name, objective) for name in ("logged", certificate.settings.get("estimator")))
        certain = _at_least(finding.lower_bound, digits)
        result = "passed" if finding.passed else "not passed"
        if belief is not None:
            p = belief.p_objective[[f.objective for f in certificate.findings].index(objective.name)]
            certain += f"; no worse with probability {chance(p, belief.draws)}"
        lines.append(
            Line(
                evidence=name,
                worth=text,
                baseline=logged,
                policy=own,
                change=moved(finding.estimate) + _between(edges, cost, digits),
                certain=f"{certain} (risk {risk(finding.level)})",
                result=result,
            )
        )
        low, high = (finding.lower_bound, math.inf) if edges is None else edges
        marks.append(Mark(label=name, estimate=finding.estimate, low=low, high=high, kind=kind))
    before_test = chosen_before(run)
    if before_test is not None:
        lines.insert(
            1,
            Line(
                evidence="Posterior",
                worth="given data and priors, before the test",
                baseline="–",
                policy="–",
                change=moved(before_test.gain[k]),
                certain=_at_least(before_test.low[k], digits),
            ),
        )
        gained, bound = before_test.gain[k], before_test.low[k]
        marks.insert(1, Mark(label="Posterior", estimate=gained, low=bound, high=math.inf, kind="posterior"))
    proof = None
    if certificate is not None and certificate.theory is not None:
        proof = next((p for p in certificate.theory.proofs if p.objective == objective.name), None)
    proven = ""
    if proof is not None and certificate is not None and certificate.theory is not None:
        doubt = "" if certificate.theory.rigorous else " (a guide only: not all that the proof asks for is known)"
        least = (
            _at_least(-proof.proven_loss, digits)
            if proof.informative
            else "nothing, the bound is wider than the range of returns"
        )
        proven = f"Proven by the counts alone{doubt}: {least}."
        if proof.informative:
            marks.append(Mark(label="Proof", estimate=math.nan, low=-proof.proven_loss, high=math.nan, kind="model"))
    note = "lower is better" if cost else "higher is better"
    weight = float(run.info["preference"][k]) if k < len(run.info["preference"]) else objective.weight
    note += f", weight {weight:g} in the preference" if weight else ", protected but not pursued (weight 0)"
    note += f", discount {objective.discount:g}"
    if zeta > 0.0:
        note += f", a loss of {number(zeta, trim=True)} is accepted"
    return ObjectiveView(
        title=shorten(objective.title),
        unit=shorten(objective.unit, 40),
        note=note,
        proven=proven,
        outcome=outcome,
        lines=tuple(lines),
        marks=tuple(marks),
        zeta=zeta,
        lower_is_better=cost,
    )


def change_text(gain: float, cost: bool, digits: int) -> str:
    """A gain as a signed change in the user's own sign."""
    return number(-gain if cost else gain, signed=True, decimals=digits)


def _at_least(bound: float, digits: int) -> str:
    if math.isnan(bound) or bound == -math.inf:
        return "nothing"
    text = number(abs(bound), decimals=digits)
    if not any(c in "123456789" for c in text):
        return "no worse"
    return f"at least {text} better" if bound > 0.0 else f"at most {text} worse"


def _between(edges: tuple[float, float] | None, cost: bool, digits: int) -> str:
    if edges is None:
        return ""
    low, high = sorted((-e if cost else e) for e in edges)
    return f" [{number(low, signed=True, decimals=digits)}, {number(high, signed=True, decimals=digits)}]"


def _interval(certificate: Certificate, name: str) -> tuple[float, float] | None:
    """The posterior's central interval of a gain."""
    interval = certificate.diagnostics.get("interval", {})
    if certificate.evidence != "posterior" or name not in interval:
        return None
    low, high = interval[name]
    return float(low), float(high)


def _estimate(run: Run, estimator: str | None, objective: Objective) -> str:
    row = next((r for r in run.evaluation if r["estimator"] == estimator and r["objective"] == objective.name), None)
    return "–" if row is None else with_interval(row)


def with_interval(row: dict[str, Any]) -> str:
    """An estimate (`evaluate.evaluation_rows`) with its interval."""
    digits = precision(row["value"])
    edges = (
        ""
        if math.isnan(row["low"])
        else f" [{number(row['low'], decimals=digits)}, {number(row['high'], decimals=digits)}]"
    )
    return number(row["value"], decimals=digits) + edges


def floors(run: Run) -> list[dict[str, Any]]:
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
                "passed": floor.passed,
            }
        )
    return rows


def beliefs(run: Run) -> list[dict[str, Any]]:
    """What the posterior says under every set of priors."""
    if run.certificate is None:
        return []
    return [
        {
            "priors": named(belief.priors.split(";")[0] if place else f"As used: {belief.priors}", run),
            "p_safe": chance(belief.p_safe, belief.draws),
            "cells": [
                chance(p, belief.draws)
                + (f" (pessimistic {chance(belief.p_pessimistic[k], belief.draws)})" if belief.p_pessimistic else "")
                for k, p in enumerate(belief.p_objective)
            ],
            "least": [_least(run, chances, belief.draws) for chances in (belief.p_objective, belief.p_pessimistic)],
            "passes": belief.passes(run.certificate.delta),
        }
        for place, belief in enumerate(run.certificate.beliefs)
    ]


def _least(run: Run, chances: Sequence[float], draws: int) -> str:
    """The objective that is least sure, and how sure; nothing where these priors were not asked."""
    if not chances or run.certificate is None:
        return "–"
    k = min(range(len(chances)), key=lambda place: chances[place])
    if chances[k] >= 1.0:
        return f"{chance(chances[k], draws)} of each"
    titles = {objective.name: objective.title for objective in run.objectives}
    return f"{chance(chances[k], draws)} {shorten(titles[run.certificate.findings[k].objective], 60)}"


def named(priors: str, run: Run) -> str:
    """Priors as certificates name them, with the objectives' titles."""
    titles = {objective.name: objective.title for objective in run.objectives}
    return re.sub(r"(?<=pessimistic for )[^;]+", lambda m: titles.get(m[0], m[0]), clean(priors))


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A policy in the space of gains: its name, kind and gains [d], with what they are at least and at most."""

    name: str
    kind: str
    result: str
    gain: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def dots(run: Run) -> list[Dot]:
    """Everything that the run knows to put beside the baseline."""
    none = (math.nan,) * len(run.objectives)
    found = []
    tested = run.certificate is not None and run.certificate.evidence != "theory"
    rows = candidates(run)
    for row in rows:
        if row.kind != "chosen" or not tested or run.certificate is None or row.result != run.certificate.evidence:
            found.append(
                Dot(
                    name=f"Policy ({row.result}, before the test)" if row.kind == "chosen" else row.name,
                    kind="passed" if row.kind == "chosen" else row.kind,
                    result=RESULTS[row.kind],
                    gain=row.gain,
                    low=row.low,
                    high=none,
                )
            )
    gain = tuple((run.policy_return - run.baseline_return).tolist())
    if run.certificate is not None and tested:
        findings = {f.objective: f for f in run.certificate.findings}
        own = [findings[o.name] for o in run.objectives]
        edges = [_interval(run.certificate, o.name) for o in run.objectives]
        accepted = run.certificate.accepted
        if run.changed or not rows:
            name = "posterior" if run.certificate.evidence == "posterior" else "held-out test"
            found.append(
                Dot(
                    name=f"Policy ({name})" if run.changed else "Candidate that was tested",
                    kind="policy" if run.changed else "failed",
                    result="passed" if accepted else "did not pass",
                    gain=tuple(f.estimate for f in own),
                    low=tuple(f.lower_bound if e is None else e[0] for f, e in zip(own, edges, strict=True)),
                    high=tuple(math.nan if e is None else e[1] for e in edges),
                )
            )
        if run.changed:
            found.append(
                Dot(name=f"Policy ({SAME_DATA.lower()})", kind="model", result="", gain=gain, low=none, high=none)
            )
    elif run.changed:
        found.append(
            Dot(
                name=f"Policy ({SAME_DATA.lower()})", kind="policy", result="not tested", gain=gain, low=none, high=none
            )
        )
    return found


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    name: str
    kind: str  # "chosen", "passed", "open" or "failed"
    result: str  # the kind of evidence
    gain: tuple[float, ...]
    low: tuple[float, ...]


def candidates(run: Run) -> list[_Candidate]:
    """The candidates that run.json names; none in runs of other methods, or from before they were kept."""
    found = []
    for row in run.info.get("candidates", []):
        try:
            gain, low = (tuple(float(v) for v in row[key]) for key in ("gain", "least"))
            if not len(gain) == len(low) == len(run.objectives):
                raise ValueError(f"{len(gain)} gains of {len(run.objectives)} objectives")
            kind = "chosen" if row["chosen"] else "passed" if row["passed"] else "open" if row.get("open") else "failed"
            found.append(
                _Candidate(name=shorten(row["name"], 80), kind=kind, result=str(row["evidence"]), gain=gain, low=low)
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"the candidates in run.json are not as they were saved: {error}.") from None
    return found


def chosen_before(run: Run) -> _Candidate | None:
    """What the posterior said of the policy, where a test has had the last word since; None where there is no such thing."""
    if run.certificate is None or run.certificate.evidence != "held-out" or not run.changed:
        return None
    return next((row for row in candidates(run) if row.kind == "chosen" and row.result == "posterior"), None)


def trade_off_points(found: Sequence[Dot], i: int, j: int) -> list[Point]:
    """The dots over objectives i and j, but for what the model says of a tested policy: it is far out, and hides the rest."""
    return [
        Point(
            label=dot.name + (f": {dot.result}" if dot.result else ""),
            kind=dot.kind,
            x=dot.gain[i],
            y=dot.gain[j],
            **(
                {"x_low": dot.low[i], "x_high": dot.high[i], "y_low": dot.low[j], "y_high": dot.high[j]}
                if dot.kind == "policy"
                else {}
            ),
        )
        for dot in found
        if dot.kind != "model"
    ]


def bars_words(run: Run) -> str:
    """What the bars at the policy are; nothing where there are none."""
    if not run.changed or run.certificate is None or run.certificate.evidence == "theory":
        return ""
    if run.certificate.evidence == "posterior":
        return (
            f"The bars at the policy are its intervals, of posterior probability {risk(1.0 - run.certificate.delta)}."
        )
    return "The bars at the policy reach to what its gain is at least."


def drawn_pairs(run: Run) -> list[tuple[int, int]]:
    """Pairs of objectives to draw: all of the MOST_DRAWN that most decide."""
    chosen = deciding(run, MOST_DRAWN)
    return [(i, j) for place, i in enumerate(chosen) for j in chosen[place + 1 :]]


def dot_rows(run: Run, found: Sequence[Dot]) -> list[dict[str, Any]]:
    """The dots as a table: the change on every objective in the user's own sign."""
    rows = [{"name": "Baseline", "cells": ["0"] * len(run.objectives), "result": ""}]
    for dot in found:
        cells = []
        for k, objective in enumerate(run.objectives):
            text = change(dot.gain[k], objective.lower_is_better) if math.isfinite(dot.gain[k]) else "–"
            if math.isfinite(dot.low[k]) and not math.isfinite(dot.high[k]):
                text += f" ({_at_least(dot.low[k], precision(dot.gain[k]))})"
            elif math.isfinite(dot.low[k]):
                text += _between((dot.low[k], dot.high[k]), objective.lower_is_better, precision(dot.gain[k]))
            cells.append(text)
        rows.append({"name": dot.name, "cells": cells, "result": dot.result})
    return rows
