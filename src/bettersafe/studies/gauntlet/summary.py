"""From the rows of the gauntlet to the numbers of its tables and figures.

Logs of one kind and size are of different worlds, so failures are binomial: intervals are those of Clopper and Pearson, and

    p = P( Bin(n, δ) ≥ failures )

is small if a method fails more often than δ. Averages are over kinds and sizes, each counted alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bettersafe.studies.gauntlet.kinds import KINDS
from bettersafe.studies.summary import METHOD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.typing import Row

SIGNIFICANT = 0.02
"""p below which failures are said to be more frequent than δ."""

CELL = ("half", "unlearnable", "kind", "episodes", *METHOD)


def summarise_cells(rows: pa.Table, by: Sequence[str] = CELL, *, level: float = 0.95) -> list[Row]:
    """A record for each combination of the columns ``by``, in the order of the kinds.

    Args:
        rows: Of the study.
        by: Columns to group by.
        level: Of the two-sided intervals.

    Returns:
        Records with the columns ``by`` and

            logs, failed, failure, failure_low, failure_high, p    as told at the top
            proposed                             share of logs with a proposal
            share, kept                          mean share of the best possible; failures as they are, and as 0
            above, covered                       share of B-OPT's bounds above the truth, and of its intervals that hold it
            z_pursued, z_mean, z_worst           means over logs with a proposal
    """
    from scipy import stats

    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows.to_pylist():
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    tail = (1.0 - level) / 2.0
    found = []
    for key, group in groups.items():
        n, failed = len(group), sum(row["failure"] for row in group)
        claims = [row for row in group if not np.isnan(row["above"])]
        asked = sum(row["objectives"] for row in claims)
        found.append(
            {
                **dict(zip(by, key, strict=True)),
                "logs": n,
                "failed": failed,
                "failure": failed / n,
                "failure_low": float(stats.beta.ppf(tail, failed, n - failed + 1)) if failed else 0.0,
                "failure_high": float(stats.beta.isf(tail, failed + 1, n - failed)) if failed < n else 1.0,
                "p": float(stats.binom.sf(failed - 1, n, group[0]["delta"])),
                "proposed": sum(row["proposed"] for row in group) / n,
                **{name: _mean(group, name) for name in ("share", "kept")},
                **{
                    name: sum(row[name] for row in claims) / asked if asked else float("nan")
                    for name in ("above", "covered")
                },
                **{name: _mean(claims, name) for name in ("z_pursued", "z_mean", "z_worst")},
            }
        )
    place = {name: n for n, name in enumerate(KINDS)}
    return sorted(found, key=lambda record: place.get(record.get("kind", ""), len(place)))


def averages(cells: Sequence[Row]) -> list[Row]:
    """A record for each half and method: means over the cells of kinds that a log can tell about, each counted alike.

    Args:
        cells: Of `summarise_cells`.

    Returns:
        Records with ``half``, ``method``, ``parameter``, ``cells``, ``exceeded`` (cells that fail significantly more often than δ)
        and the means of the shares.
    """
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for cell in cells:
        if not cell["unlearnable"]:
            groups.setdefault((cell["half"], cell["method"], cell["parameter"]), []).append(cell)
    return [
        {
            "half": half,
            "method": method,
            "parameter": parameter,
            "cells": len(group),
            "exceeded": sum(cell["p"] < SIGNIFICANT for cell in group),
            **{
                name: _mean(group, name)
                for name in ("failure", "share", "kept", "proposed", "above", "covered", "z_mean")
            },
        }
        for (half, method, parameter), group in groups.items()
    ]


def gauntlet_summary(rows: pa.Table) -> pa.Table:
    """The summary for spreadsheets."""
    return pa.Table.from_pylist(summarise_cells(rows))


def _mean(group: Sequence[Row], name: str) -> float:
    """Mean of the values that are known; NaN if none is."""
    values = np.array([row[name] for row in group], dtype=np.float64)
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size else float("nan")
