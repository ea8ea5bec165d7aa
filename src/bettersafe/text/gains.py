"""Gains in people's speech: "Revenue +11 %", "Stock-outs −74 %", in labels, with two digits, and with the sign of the column.

The gains are those of the certificate: of a test, or of the posterior after optimism was taken off.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bettersafe.logs.dataset import user_sign
from bettersafe.text.names import listed, shorten
from bettersafe.text.numbers import NOTHING, number, precision, with_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.certificate.certificate import Finding
    from bettersafe.evaluation.evaluate import EstimateRow
    from bettersafe.runs.run import Run

MOST_FIGURES = 4
"""Largest number of objectives with a figure, or with a name, in a headline."""

MOST_PERCENT = 10.0
"""Largest change, in baselines, that is given in percent."""

ERRORS = 3.0
"""A return that is more than this many standard errors from 0 is clearly away from 0."""


def short(value: float, *, signed: bool = False) -> str:
    """Two significant digits: 1,200, 0.31, 7.2."""
    if not math.isfinite(value) or value == 0.0:
        return number(value)
    rounded = float(f"{value:.1e}")
    return number(rounded, signed=signed, decimals=precision(rounded, digits=2), trim=True)


def figure(run: Run, k: int, gain: float) -> str:
    """Title and change of objective k, in percent of the baseline if that makes sense, else in its unit."""
    objective = run.objectives[k]
    title, moved = shorten(objective.title, 40), user_sign(objective, gain)
    before, low = _baseline(run, k)
    if low > 0.0 and -before <= moved <= MOST_PERCENT * before:
        share = 100.0 * moved / before
        return f"{title} unchanged" if abs(share) < 0.05 else f"{title} {short(share, signed=True)} %"
    unit = "percentage points" if objective.unit == "%" else shorten(objective.unit, 20)
    return f"{title} {short(moved, signed=True)}" + (f" {unit}" if unit else "")


def believed_return(run: Run, k: int, gain: float) -> tuple[float, float]:
    """Returns of baseline and policy, in the sign of the column: the baseline's in the estimated model, and that plus ``gain``."""
    before = user_sign(run.objectives[k], float(run.baseline_return[k]))
    return before, before + user_sign(run.objectives[k], gain)


def _baseline(run: Run, k: int) -> tuple[float, float]:
    """The baseline's return of the same steps as the certificate's gains, and the end of its range towards 0; NaN if unknown.

    Of a test: by its estimator, with its interval. Else in the estimated model, with the standard error of the check against the log.
    """
    objective, certificate = run.objectives[k], run.certificate
    if objective.reward_range is not None and objective.reward_range[0] < 0.0 < objective.reward_range[1]:
        return math.nan, math.nan  # a return of gains and losses has no natural zero
    if certificate is not None and certificate.by_test:
        row = estimate_row(run, certificate.settings.get("estimator"), objective.name)
        if row is not None:
            return row["baseline_value"], row["baseline_low"]
        if not certificate.complete:
            return math.nan, math.nan
    before = user_sign(objective, float(run.baseline_return[k]))
    errors = [
        gap.error
        for check in (() if certificate is None else certificate.checks)
        if check.kind == "return"
        for gap in check.gaps
        if gap.objective == objective.name and math.isfinite(gap.error)
    ]
    return before, before - ERRORS * max(errors, default=0.0)


def estimate_row(run: Run, estimator: str | None, name: str) -> EstimateRow | None:
    """Off-policy estimate of an objective; None if there is none."""
    return next((r for r in run.evaluation if r["estimator"] == estimator and r["objective"] == name), None)


def return_text(row: EstimateRow) -> str:
    """Estimated return with its interval."""
    return with_interval(row["value"], row["low"], row["high"])


def baseline_text(row: EstimateRow) -> str:
    """The baseline's return by the same estimator, with its interval."""
    return with_interval(row["baseline_value"], row["baseline_low"], row["baseline_high"])


def model_gains(run: Run) -> str:
    """Changes in the estimated model, in words; empty if nothing changes."""
    gain = run.proposal_return - run.baseline_return
    moved = [k for k in range(len(run.objectives)) if abs(gain[k]) > max(1e-6 * abs(run.baseline_return[k]), NOTHING)]
    return _few([figure(run, k, float(gain[k])) for k in moved], "changed")


def certified_gains(run: Run, findings: Sequence[Finding], *, together: bool = True) -> str:
    """What is gained and what is protected: figures of what is pursued (largest weight first) or surely better, then what is no worse.

    Args:
        run: The run.
        findings: Findings of its certificate.
        together: Whether the lower bounds hold together; if not, none is enough for "surely better".
    """
    places = {objective.name: k for k, objective in enumerate(run.objectives)}
    figures, same, less = [], [], []
    for finding in sorted(findings, key=lambda f: -run.info.preference[places[f.objective]]):
        k = places[finding.objective]
        title = shorten(run.objectives[k].title, 40)
        if run.info.preference[k] > 0.0 or (together and finding.lower_bound > 0.0):
            figures.append(figure(run, k, finding.estimate))
        elif -finding.zeta <= finding.lower_bound < 0.0:
            less.append(f"{title} at most {short(finding.zeta)} worse")
        else:
            same.append(title)
    parts = [_few(figures, "better")] if figures else []
    parts += [f"{listed(same) if len(same) <= MOST_FIGURES else f'{len(same)} objectives'} no worse"] if same else []
    parts += [_few(less, "at most the accepted loss worse")] if less else []
    return ", ".join(parts)


def _few(texts: list[str], what: str) -> str:
    """The first texts, and the number of the others."""
    more = len(texts) - MOST_FIGURES
    return ", ".join(texts[:MOST_FIGURES] + ([f"{more} more {what}"] if more > 0 else []))
