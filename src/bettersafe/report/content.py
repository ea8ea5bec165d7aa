"""What the report says, gathered from a run: sentences, numbers and rows, no markup.

Gains are positive where the policy is better; whatever people read is turned back into the user's own sign here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bettersafe.data import user_sign
from bettersafe.description import FEW
from bettersafe.errors import RunError
from bettersafe.report.charts import Mark, Point, change, percent
from bettersafe.report.words import chance, clean, counted, listed, number, precision, risk, shorten
from bettersafe.runs import largest_changes
from bettersafe.safety import UNSUPPORTED_TOL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.certificate import Certificate
    from bettersafe.data import Labels, Objective
    from bettersafe.runs import Run

Floats = npt.NDArray[np.float64]

MOST_STATES = 500
"""States that are listed."""
MOST_GRIDS = 200
"""States whose two choices can be looked at one by one."""
MOST_ACTIONS = 12
"""Actions in the chart of how often each is taken."""
MOST_MOVES = 3
"""Actions named per direction and state."""
MOST_DRAWN = 8
"""Objectives of which every pair is drawn; 8 make 28 pictures."""
BINS = (
    (0, 0, "never"),
    (1, 9, "1 to 9 times"),
    (10, 99, "10 to 99"),
    (100, 999, "100 to 999"),
    (1000, None, "1,000 or more"),
)

SAME_DATA = "Estimated model"
ESTIMATORS = {
    "logged": "as logged (the baseline)",
    "is": "importance sampling (is)",
    "pdis": "per-decision importance sampling (pdis)",
    "wis": "weighted importance sampling (wis)",
    "cwpdis": "weighted per-decision (cwpdis)",
    "dr": "doubly robust (dr)",
    "wdr": "weighted doubly robust (wdr)",
    "model": "the model alone",
}
METHODS = {
    "s-opt": "S-OPT: the best policy within a budget of uncertainty that loses on no objective in any state of the estimated model",
    "b-opt": "B-OPT: the best of many candidates that the posterior trusts",
    "g-opt": "G-OPT: the best policy within a budget that loses on no objective over the whole",
    "h-opt": "H-OPT: a proposal that must pass a test on held-out episodes",
    "soft-spibb": "Soft-SPIBB: the best policy within a budget; single objectives are not protected",
    "adv-linearized": "Adv-Linearized: loses on no objective in any state of the estimated model; no budget",
    "linearized": "Linearized: the best policy of the estimated model; nothing is protected",
}


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
                headline=f"Keep the baseline for now: the threshold on {listed(missed)} may be missed.",
                detail=certificate.verdict,
                evidence=evidence_words(certificate),
                step="Test the policy on episodes that it was not made from.",
                command="bettersafe certify RUN HELD_OUT",
            )
        better = _raised(run)
        on = f" on {listed(better)}" if better else ""
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
            f" {listed([titles[f.objective] for f in certificate.findings])}, with a probability of"
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
    parts = [f"better than the baseline on {listed(better)}"] if better else []
    parts += [f"no worse {'' if parts else 'than the baseline '}on {listed(same)}"] if same else []
    parts += [f"at most {listed(loss)}"] if loss else []
    kept = (
        f", and keeps the threshold on {listed([titles[f.objective] for f in certificate.floors])}"
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
        return f"Keep the baseline: a loss on {listed(missed)} can’t be ruled out."
    floors = [titles[f.objective] for f in certificate.floors if not f.passed]
    return f"Keep the baseline: the threshold on {listed(floors)} may be missed."


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


# Objectives


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
    return "–" if row is None else _with_interval(row)


def _with_interval(row: dict[str, Any]) -> str:
    digits = precision(row["value"])
    edges = (
        ""
        if math.isnan(row["low"])
        else f" [{number(row['low'], decimals=digits)}, {number(row['high'], decimals=digits)}]"
    )
    return number(row["value"], decimals=digits) + edges


# The trade-off


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
                    name=row.name,
                    kind="failed" if row.kind == "failed" else "passed",
                    result={"failed": "did not pass", "passed": "passed", "chosen": "passed, chosen"}[row.kind],
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
    kind: str  # "chosen", "passed" or "failed"
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
            kind = "chosen" if row["chosen"] else "passed" if row["passed"] else "failed"
            found.append(
                _Candidate(name=shorten(row["name"], 80), kind=kind, result=str(row["evidence"]), gain=gain, low=low)
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"the candidates in run.json are not as they were saved: {error}.") from None
    return found


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
    """Pairs of objectives to draw: all of the MOST_DRAWN with the largest weights."""
    weights = np.array([abs(float(w)) for w in run.info["preference"]])
    chosen = sorted(np.argsort(-weights, kind="stable")[:MOST_DRAWN].tolist())
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


# Where the policy differs


def changes(run: Run) -> list[dict[str, Any]]:
    """The states with the largest visits × change, as rows of text and numbers to sort by."""
    return [
        {
            "state": shorten(one.state),
            "visits": one.visits,
            "moved": one.moved,
            "moved_text": percent(one.moved),
            "weight": one.visits * one.moved,
            "weight_text": number(one.visits * one.moved, decimals=1),
            "less": _moves(one.less),
            "more": _moves(one.more),
        }
        for one in largest_changes(run, MOST_STATES)
    ]


def _moves(moves: tuple[tuple[str, float, float], ...], smallest: float = 5e-4) -> dict[str, Any]:
    """The largest moves of one direction; those too small to be seen are only counted."""
    seen = [move for move in moves if abs(move[2] - move[1]) >= smallest][:MOST_MOVES] or list(moves[:1])
    return {
        "named": [(shorten(action, 60), percent(before), percent(after)) for action, before, after in seen],
        "more": len(moves) - len(seen),
    }


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Actions as two choices at once.

    Attributes:
        names: Of the two.
        rows: Values of the first.
        columns: Values of the second.
        place: For each action its (row, column).
    """

    names: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    place: tuple[tuple[int, int], ...]


_TWO_NUMBERS = re.compile(r"[\s(\[]*([^\W\d_]*)[\s=_]*(\d{1,4})[\s/_,;:|×+&-]+([^\W\d_]*)[\s=_]*(\d{1,4})[\s)\]]*")


def action_grid(labels: Labels, shape: dict[str, Any] | None) -> Grid | None:
    """The two choices that actions stand for: by the task's shape (0, 1, 2, …) or by labels such as iv2/vaso3; else None."""
    if isinstance(shape, dict) and len(shape) == 2 and labels.dtype.kind == "i":
        (one, rows), (other, columns) = shape.items()
        if int(labels.min()) >= 0 and int(labels.max()) < rows * columns:
            place = tuple((int(a) // columns, int(a) % columns) for a in labels)
            return Grid(
                names=(shorten(one, 24), shorten(other, 24)),
                rows=tuple(str(i) for i in range(rows)),
                columns=tuple(str(j) for j in range(columns)),
                place=place,
            )
    found = [_TWO_NUMBERS.fullmatch(str(label)) for label in labels]
    parts = [match.groups() for match in found if match is not None]
    if len(parts) < labels.size or len({(one, other) for one, _, other, _ in parts}) != 1:
        return None
    rows_found = sorted({int(one) for _, one, _, _ in parts})
    columns_found = sorted({int(other) for _, _, _, other in parts})
    cells = len(rows_found) * len(columns_found)
    # fewer than half the cells is no grid (such as the ranges 0-10, 10-20, 20-30); more than 400 can't be read
    if min(len(rows_found), len(columns_found)) < 2 or labels.size < 0.5 * cells or cells > 400:
        return None
    return Grid(
        names=(parts[0][0] or "first", parts[0][2] or "second"),
        rows=tuple(str(i) for i in rows_found),
        columns=tuple(str(j) for j in columns_found),
        place=tuple((rows_found.index(int(one)), columns_found.index(int(other))) for _, one, _, other in parts),
    )


def action_use(run: Run) -> tuple[Floats, Floats]:
    """How often each action is taken, states weighted by their visits: baseline and policy, each [A]."""
    visits = run.counts.sum(axis=1)
    weight = visits / max(int(visits.sum()), 1)
    return np.asarray(weight @ run.baseline), np.asarray(weight @ run.policy)


def grid_tables(grid: Grid, baseline: Floats, policy: Floats) -> list[dict[str, Any]]:
    """Baseline, policy and their difference over the grid; ``level`` says how deep a cell is coloured, −20 … 20."""
    largest = max(float(baseline.max()), float(policy.max())) or 1.0
    difference = policy - baseline
    widest = float(np.abs(difference).max()) or 1.0
    tables = []
    for key, title, values, scale in (
        ("b", "Baseline, % of decisions", baseline, largest),
        ("p", "Policy, % of decisions", policy, largest),
        ("d", "Difference, percentage points", difference, widest),
    ):
        cells: list[list[dict[str, Any] | None]] = [[None] * len(grid.columns) for _ in grid.rows]
        for a, (i, j) in enumerate(grid.place):
            share = 100.0 * float(values[a])
            text = number(share, signed=True, decimals=2 if widest < 0.01 else 1) if key == "d" else f"{share:.1f}"
            cells[i][j] = {"action": a, "text": text, "level": round(20.0 * float(values[a]) / scale)}
        tables.append({"key": key, "title": title, "cells": cells})
    return tables


def grid_states(run: Run, shown: int = MOST_GRIDS) -> list[dict[str, Any]]:
    """Rows of the states that change most, for looking at one by one: probabilities in thousandths."""
    moved = np.abs(run.policy - run.baseline).sum(axis=1) / 2.0
    visits = run.counts.sum(axis=1)
    order = [x for x in np.argsort(-moved * visits, kind="stable")[:shown] if moved[x] > 0.0]
    return [
        {
            "state": shorten(run.state_labels[x], 60),
            "visits": int(visits[x]),
            "b": np.round(run.baseline[x], 4).tolist(),
            "p": np.round(run.policy[x], 4).tolist(),
        }
        for x in order
    ]


def action_bars(run: Run) -> list[tuple[str, float, float]]:
    """The actions whose use changes most, as (label, baseline, policy), in the order of their labels."""
    baseline, policy = action_use(run)
    order = np.sort(np.argsort(-np.abs(policy - baseline), kind="stable")[:MOST_ACTIONS])
    return [(shorten(run.action_labels[a], 60), float(baseline[a]), float(policy[a])) for a in order]


# What the data can't tell


def coverage_bars(run: Run) -> list[tuple[str, float, float]]:
    """Share of decisions, of baseline and policy, by how often the decision was tried in that state of the data."""
    visits = run.counts.sum(axis=1)
    weight = (visits / max(int(visits.sum()), 1))[:, None]
    rows = []
    for low, high, label in BINS:
        among = (run.counts >= low) & (True if high is None else run.counts <= high)
        rows.append(
            (label, *(float((weight * np.where(among, table, 0.0)).sum()) for table in (run.baseline, run.policy)))
        )
    return rows  # type: ignore[return-value]


def limits(run: Run) -> list[str]:
    """What the data can't tell, in sentences."""
    tried = run.counts > 0
    pairs, possible = int(tried.sum()), run.counts.size
    few = int(np.sum(tried & (run.counts < FEW)))
    per_state = tried.sum(axis=1)
    single, never = int(np.sum(per_state == 1)), int(np.sum(per_state == 0))
    bars = coverage_bars(run)
    thin = [sum(bar[column] for bar in bars[:2]) for column in (1, 2)]  # type: ignore[misc]
    texts = [
        f"{pairs:,} of {possible:,} combinations of state and action were ever tried ({percent(pairs / max(possible, 1))}); {few:,} of"
        f" them fewer than {FEW} times. Of what was never tried the data says nothing.",
        f"{percent(thin[1])} of the policy’s decisions are ones that the data has fewer than {FEW} times in that state; of the"
        f" baseline’s {percent(thin[0])}."
        if run.changed
        else f"{percent(thin[0])} of the baseline’s decisions are ones that the data has fewer than {FEW} times in that state.",
    ]
    if single:
        texts.append(f"In {counted(single, 'state')} only one action was ever tried: there nothing can be compared.")
    if never:
        texts.append(
            f"{counted(never, 'state')} {'was' if never == 1 else 'were'} reached without any decision being logged there."
        )
    if run.info["states_kept"]:
        texts.append(
            f"{counted(len(run.info['states_kept']), 'state')} could not be solved, and keep what the baseline does."
        )
    certificate = run.certificate
    if certificate is None:
        texts.append("Nothing was tested: this run has no certificate.")
        return texts
    if certificate.unsupported > 0.0:
        texts.append(
            f"{percent(certificate.unsupported)} of the policy’s decisions are ones that the baseline never takes."
        )
    if certificate.blind:
        texts.append(f"The test can’t tell, for {clean(certificate.blind)}.")
    trust = certificate.diagnostics.get("trust")
    if trust:
        estimator = ESTIMATORS.get(str(certificate.settings.get("estimator")), "the estimate")
        texts.append(f"The estimate that was tested, {estimator}: {clean(trust)}")
    if certificate.theory is not None and not any(proof.informative for proof in certificate.theory.proofs):
        texts.append(
            "The counts alone prove nothing: the loss that they leave possible is wider than the range of returns."
        )
    return texts


def thin_raises(run: Run, most: int = 10) -> list[dict[str, Any]]:
    """Decisions that the policy takes more often though they were tried fewer than 10 times, the weightiest first."""
    rise = np.where(run.counts < FEW, run.policy - run.baseline, 0.0)
    weight = rise * run.counts.sum(axis=1)[:, None]
    rows = []
    flat_weight = weight.ravel()
    top = np.argpartition(-flat_weight, min(most, flat_weight.size) - 1)[:most]
    for flat in top[np.argsort(-flat_weight[top], kind="stable")]:
        x, a = divmod(int(flat), run.policy.shape[1])
        if rise[x, a] < 5e-4 or weight[x, a] <= 0.0:
            break
        rows.append(
            {
                "state": shorten(run.state_labels[x]),
                "action": shorten(run.action_labels[a], 60),
                "count": int(run.counts[x, a]),
                "before": percent(float(run.baseline[x, a])),
                "after": percent(float(run.policy[x, a])),
            }
        )
    return rows


def estimators(run: Run) -> list[dict[str, Any]]:
    """Off-policy estimates, one row per estimator, with what doubts them."""
    rows = []
    for name in dict.fromkeys(row["estimator"] for row in run.evaluation):
        own = {row["objective"]: row for row in run.evaluation if row["estimator"] == name}
        first = next(iter(own.values()))
        weighted = name not in ("logged", "model")
        rows.append(
            {
                "name": ESTIMATORS.get(name, shorten(name)),
                "cells": [_with_interval(own[o.name]) if o.name in own else "–" for o in run.objectives],
                "ess": f"{first['effective_sample_size']:,.0f} of {first['episodes']:,}" if weighted else "–",
                "weight": number(first["mean_weight"], decimals=2) if weighted else "–",
                "unseen": percent(first["unsupported_share"]) if name != "logged" else "–",
                "usable": bool(first["usable"]),
                "trust": clean(first["trust"]),
                "decided": run.certificate is not None and name == run.certificate.settings.get("estimator"),
            }
        )
    return rows


def beliefs(run: Run) -> list[dict[str, Any]]:
    """What the posterior says under every set of priors."""
    if run.certificate is None:
        return []
    return [
        {
            "priors": _named(belief.priors.split(";")[0] if place else f"As used: {belief.priors}", run),
            "p_safe": chance(belief.p_safe, belief.draws),
            "cells": [
                chance(p, belief.draws)
                + (f" (pessimistic {chance(belief.p_pessimistic[k], belief.draws)})" if belief.p_pessimistic else "")
                for k, p in enumerate(belief.p_objective)
            ],
            "passes": belief.passes(run.certificate.delta),
        }
        for place, belief in enumerate(run.certificate.beliefs)
    ]


def _named(priors: str, run: Run) -> str:
    """Priors with the objectives' titles instead of their numbers."""
    titles = [shorten(o.title, 60) for o in run.objectives]
    return re.sub(r"objective (\d+)", lambda m: titles[int(m[1])] if int(m[1]) < len(titles) else m[0], clean(priors))


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


# What it rests on, and how it was made


def assumptions(run: Run) -> list[str]:
    """In words; those of any estimate where there is no certificate."""
    if run.certificate is not None:
        return [_named(text, run) for text in run.certificate.assumptions]
    known = run.info["baseline_source"] != "estimated from the data"
    return [
        "The logged state is all that matters for what happens next (Markov), and the process does not change.",
        "The baseline is known."
        if known
        else "The baseline was estimated from the data; errors of that estimate are not accounted for.",
        "The estimated model is taken as if it were the world: what is shown is what the data suggests.",
    ]


def missing(run: Run) -> list[str]:
    """What a run from an earlier version, or of another kind, does not have."""
    texts = []
    if run.info["method"] in ("h-opt", "b-opt") and "candidates" not in run.info:
        texts.append("The candidates that were looked at are not shown: this run was saved before they were kept.")
    if "episodes" not in run.info.get("data", {}):
        texts.append("How many episodes the policy was made from was not saved with this run.")
    return texts


def settings(run: Run) -> list[tuple[str, str]]:
    """How the run was made: (what, value)."""
    info = run.info
    data = info.get("data", {})
    rows = [
        ("Method", METHODS.get(info["method"], str(info["method"]))),
        ("Budget ε", number(float(info["epsilon"]), trim=True) if info["method"] not in ("b-opt", "h-opt") else "none"),
        ("Risk δ", f"{info['delta']:g}"),
        ("Error function", str(info["error_kind"])),
        ("Decisions never tried are worth", str(info["unseen"])),
        ("Baseline", str(info["baseline_source"])),
        ("States, actions", f"{info['n_states']:,}, {run.action_labels.size:,}"),
        ("Data", str(data.get("path", "not saved"))),
    ]
    if "rows" in data:
        rows.append(("Made from", f"{data['rows']:,} decisions in {data.get('episodes', 0):,} episodes"))
    certificate = run.certificate
    if certificate is not None:
        tested = certificate.data.get("tested_on", {})
        if tested:
            rows.append(
                (
                    "Tested on",
                    f"{tested.get('path', '')}: {tested.get('rows', 0):,} decisions in {tested.get('episodes', 0):,} episodes",
                )
            )
        for key, name in (
            ("estimator", "Estimator of the test"),
            ("bound", "Bound of the test"),
            ("levels", "Risk per objective"),
            ("selection", "Rule of H-OPT"),
            ("draws", "Draws"),
        ):
            value = certificate.settings.get(key)
            wanted = (
                {"estimator", "bound", "levels"}
                if certificate.evidence == "held-out"
                else {"estimator", "bound", "levels", "selection"}
            )
            if certificate.evidence == "posterior":
                wanted = {"draws"}
            if certificate.evidence != "theory" and key in wanted and value is not None:
                rows.append((name, str(value)))
        if certificate.seed is not None:
            rows.append(("Seed", str(certificate.seed)))
    rows += [
        (
            "Solved",
            f"{counted(int(info['rounds']), 'round')} by {info['engine']}, optimality gap {float(info['gap']):.1e}",
        ),
        ("Created", str(info.get("created", "not saved"))),
        ("Versions", ", ".join(f"{name} {value}" for name, value in dict(info.get("versions", {})).items())),
    ]
    return [(name, shorten(value, 400)) for name, value in rows]


def notes(run: Run) -> list[str]:
    """Notes of the reader and of the test."""
    tested = [] if run.certificate is None else list(run.certificate.settings.get("notes", []) or [])
    return [shorten(note, 400) for note in dict.fromkeys([*info_notes(run), *tested])]


def info_notes(run: Run) -> list[str]:
    """Notes that were saved with the run."""
    return [str(note) for note in run.info.get("notes", [])]


def _titles(run: Run) -> dict[str, str]:
    return {objective.name: shorten(objective.title, 60) for objective in run.objectives}


def _raised(run: Run) -> list[str]:
    """Titles of the objectives that the estimated model raises."""
    gain = run.policy_return - run.baseline_return
    size = np.maximum(1.0, np.abs(run.baseline_return))
    return [shorten(o.title, 60) for o, g, s in zip(run.objectives, gain, size, strict=True) if g > 1e-6 * s]
