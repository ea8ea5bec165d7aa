"""Hazard margins: how often a harm that the log has not shown would have to occur to overturn the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bettersafe.certificate.hazard import hazards_of, one_in
from bettersafe.runs.changes import deciding
from bettersafe.text.gains import short
from bettersafe.text.names import shorten, titles

if TYPE_CHECKING:
    from bettersafe.certificate.hazard import HazardMargin
    from bettersafe.runs.run import Run

MOST_OBJECTIVES = 12
"""Number of objectives in the table; with more, those that decide."""


@dataclass(frozen=True, kw_only=True)
class Hazards:
    """Hazard margins of a run, as text.

    Attributes:
        sentence: Margin of the objective with the smallest one, in words.
        rows: Margin of every objective.
        pairs: Pairs with the most additional decisions, for the objective with the smallest margin.
        left: Number of its other pairs.
    """

    sentence: str
    rows: list[dict[str, str]]
    pairs: list[dict[str, str]]
    left: int


def hazards(run: Run) -> Hazards | None:
    """Hazard margins of the run's certificate; None if it has none."""
    found = {} if run.certificate is None else hazards_of(run.certificate)
    margins = {name: margin for name, margin in found.items() if margin.pairs}
    if not margins:
        return None
    known = titles(run)
    tightest = min(margins, key=lambda name: margins[name].rate)
    shown = {run.objectives[k].name for k in deciding(run, MOST_OBJECTIVES)} | {tightest}
    return Hazards(
        sentence=margins[tightest].sentence(known[tightest]),
        rows=[_row(known[name], margin) for name, margin in margins.items() if name in shown],
        pairs=[
            {
                "state": shorten(pair.state),
                "action": shorten(pair.action, 60),
                "extra": short(pair.extra, signed=True),
                "visits": f"{pair.visits:,}",
            }
            for pair in margins[tightest].most
        ],
        left=margins[tightest].pairs - len(margins[tightest].most),
    )


def _row(title: str, margin: HazardMargin) -> dict[str, str]:
    """Margin of one objective, as text."""
    rate = (
        "never"
        if margin.rate > 1.0 or math.isinf(margin.rate)
        else "any"
        if margin.rate <= 0.0
        else one_in(margin.rate)
    )
    return {
        "title": title,
        "size": short(margin.size),
        "rate": rate,
        "excluded": one_in(margin.excluded),
        "pairs": f"{margin.pairs:,}",
        "visits": f"{margin.visits:,}",
        "covered": "yes" if margin.covered else "no",
    }
