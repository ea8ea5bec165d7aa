"""The trade-off: the proposal and the candidates relative to the baseline, as dots over two objectives and as a table."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bettersafe.report.charts import Point, change
from bettersafe.report.objectives import at_least, between, posterior_interval
from bettersafe.runs.changes import deciding
from bettersafe.text.names import SAME_DATA, candidate_outcome, proposed, shorten
from bettersafe.text.numbers import precision, risk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.certificate.certificate import Certificate
    from bettersafe.runs.run import Run
    from bettersafe.typing import Row

MOST_DRAWN = 8
"""Number of objectives of which every pair is drawn; 8 give 28 charts."""


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A policy in the space of gains: its name, kind and gains [d], with their lower and upper bounds."""

    name: str
    kind: str
    result: str
    gain: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def dots(run: Run) -> list[Dot]:
    """Dots of the proposal and the candidates."""
    certificate, word = run.certificate, proposed(run).capitalize()
    none = (math.nan,) * len(run.objectives)
    tested = certificate is not None and certificate.evidence != "theory"
    same_steps = certificate is None or certificate.complete  # gains of other steps are not comparable
    found = []
    for row in run.info.candidates:
        if not same_steps and certificate is not None and row.evidence != certificate.evidence:
            continue
        chosen = row.outcome == "chosen"
        if chosen and tested and certificate is not None and row.evidence == certificate.evidence:
            continue  # added below, with its result
        found.append(
            Dot(
                name=f"{word} ({row.evidence}, before the test)" if chosen else shorten(row.name, 80),
                kind="passed" if chosen else row.outcome,
                result=candidate_outcome(row),
                gain=row.gain,
                low=row.least,
                high=none,
            )
        )
    gain = tuple((run.proposal_return - run.baseline_return).tolist())
    by_model = Dot(
        name=f"{word} ({SAME_DATA.lower()}: optimistic)", kind="model", result="", gain=gain, low=none, high=none
    )
    if certificate is not None and tested:
        if run.has_proposal or not run.info.candidates:
            found.append(_tested(run, certificate, word))
        return [*found, by_model] if run.has_proposal and same_steps else found
    proven = certificate is not None and certificate.accepted
    result = "proven" if proven else "not tested"
    return [*found, replace(by_model, kind="policy", result=result)] if run.has_proposal else found


def _tested(run: Run, certificate: Certificate, word: str) -> Dot:
    """Dot of the proposal by a test or the posterior."""
    findings = {f.objective: f for f in certificate.findings}
    own = [findings[o.name] for o in run.objectives]
    edges = [posterior_interval(certificate, o.name) for o in run.objectives]
    by = "posterior" if certificate.evidence == "posterior" else "held-out test"
    return Dot(
        name=f"{word} ({by})" if run.has_proposal else "Candidate that was tested",
        kind="policy" if run.has_proposal else "failed",
        result=certificate.standing,
        gain=tuple(f.estimate for f in own),
        low=tuple(f.lower_bound if e is None else e[0] for f, e in zip(own, edges, strict=True)),
        high=tuple(math.nan if e is None else e[1] for e in edges),
    )


def trade_off_points(found: Sequence[Dot], i: int, j: int) -> list[Point]:
    """Dots over objectives i and j, without the model's estimate of a tested policy, which is far out and would hide the rest."""
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
    """Explanation of the bars at the policy; empty if there are none."""
    if not run.has_proposal or run.certificate is None or run.certificate.evidence == "theory":
        return ""
    where = f"The bars at the {proposed(run)}"
    if run.certificate.evidence == "posterior":
        return f"{where} are intervals of posterior probability {risk(1.0 - run.certificate.delta)}."
    return f"{where} end at the lower bounds on its gains."


def drawn_pairs(run: Run) -> list[tuple[int, int]]:
    """Pairs of objectives to draw: all pairs of the MOST_DRAWN most decisive ones."""
    chosen = deciding(run, MOST_DRAWN)
    return [(i, j) for place, i in enumerate(chosen) for j in chosen[place + 1 :]]


def dot_rows(run: Run, found: Sequence[Dot]) -> list[Row]:
    """The dots as a table: the change on every objective in the user's own sign."""
    rows = [{"name": "Baseline", "cells": ["0"] * len(run.objectives), "result": ""}]
    for dot in found:
        cells = []
        for k, objective in enumerate(run.objectives):
            text = change(dot.gain[k], objective.lower_is_better) if math.isfinite(dot.gain[k]) else "–"
            if math.isfinite(dot.low[k]) and not math.isfinite(dot.high[k]):
                text += f" ({at_least(dot.low[k], precision(dot.gain[k]))})"
            elif math.isfinite(dot.low[k]):
                text += between((dot.low[k], dot.high[k]), objective.lower_is_better, precision(dot.gain[k]))
            cells.append(text)
        rows.append({"name": dot.name, "cells": cells, "result": dot.result})
    return rows
