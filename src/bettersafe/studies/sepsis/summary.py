"""Summaries of the rows of the sepsis study.

A row is one policy on one split of a cohort (a seed). Means and standard deviations are over seeds, as in the paper:

    mean = Σ_s x_s / S        sd = √( Σ_s (x_s − mean)² / (S − 1) )
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bettersafe.errors import ParameterError
from bettersafe.studies.sepsis.plan import CHOSEN, OPE, PUBLISHED, RARE_BELOW

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bettersafe.typing import Row

Key = tuple[str, str, str]
"""Preference, method, parameter."""

CLINICIAN: Key = ("0,0", "clinician", "")
TIE = 1e-6
"""Estimates closer than this count as equal, so that rounding errors do not affect the choice of a parameter."""

VISIBLE = 0.005
"""Smallest loss that is marked in tables with two decimals."""

HARM = 0.01
"""Smallest true loss, on either objective, for which a policy counts as worse than the clinician."""

BANDS = (100.0, 1000.0)
"""Boundaries between small, medium and large effective sample sizes."""

GROUP = ("rare_below", "preference", "method", "parameter")


def with_chosen(rows: pa.Table) -> pa.Table:
    """Add a row of S-OPT with ε chosen on the validation part, for each seed and preference.

    The chosen ε is the largest for which neither DR nor WDR on the *validation* part is worse than the clinician's, on
    either objective. The added row has ``parameter`` "chosen", and its ε in the column ``epsilon`` (NaN in other rows). The
    choice uses neither other seeds nor the test part.
    """
    records = [record | {"epsilon": math.nan} for record in rows.to_pylist()]
    clinician = {r["repetition"]: r for r in records if r["rare_below"] == RARE_BELOW and key(r) == CLINICIAN}
    best: dict[tuple[int, str], Row] = {}
    for record in records:
        if record["method"] != "s-opt" or record["rare_below"] != RARE_BELOW:
            continue
        case = (record["repetition"], record["preference"])
        epsilon = float(record["parameter"])
        better = case not in best or epsilon > best[case]["epsilon"]
        if better and no_worse(record, clinician[record["repetition"]]):
            best[case] = record | {"parameter": CHOSEN, "epsilon": epsilon}
    return pa.Table.from_pylist([*records, *best.values()])


def no_worse(record: Row, clinician: Row, *, part: str = "valid_") -> bool:
    """Whether neither DR nor WDR is worse than the clinician's on either objective; NaN counts as worse.

    Args:
        record: A row of the study.
        clinician: The clinician's row of the same seed.
        part: "valid_" for estimates on the validation part, "" for those on the test part.
    """
    return all(
        record[f"{part}{estimator}_survival"] >= clinician[f"{part}{estimator}_survival"] - TIE
        and record[f"{part}{estimator}_rare"] <= clinician[f"{part}{estimator}_rare"] + TIE
        for estimator in OPE
    )


def key(record: Mapping[str, Any]) -> Key:
    """Key of a policy: preference, method, parameter."""
    return record["preference"], record["method"], record["parameter"]


def summarise_sepsis(rows: pa.Table) -> pa.Table:
    """Means and standard deviations over seeds of every policy, in the order of first appearance.

    Args:
        rows: Rows of the study, or of `with_chosen`.

    Returns:
        A row per combination of `GROUP`, with ``seeds``; the mean of every numeric column and its standard deviation
        (``…_sd``, NaN for a single seed); and ``harmed``, the share of seeds in which the policy is worse than the clinician
        by more than `HARM` on some objective, by exact values; NaN without exact values.
    """
    missing = [name for name in (*GROUP, "repetition", "true_survival") if name not in rows.column_names]
    if missing or rows.num_rows == 0:
        what = f"no column {missing[0]!r}" if missing else "no rows"
        raise ParameterError(f"a summary needs the rows of a sepsis study; these have {what}.")
    numbers = measured(rows)
    records = rows.to_pylist()
    clinician = {(r["rare_below"], r["repetition"]): r for r in records if key(r) == CLINICIAN}
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in GROUP), []).append(record)
    result = []
    for values, group in groups.items():
        line: Row = dict(zip(GROUP, values, strict=True)) | {"seeds": len(group)}
        harmed = [_harmed(r, clinician[r["rare_below"], r["repetition"]]) for r in group]
        line["harmed"] = float(np.mean(harmed))
        for name in numbers:
            column = np.array([record[name] for record in group], dtype=np.float64)
            line[name] = float(column.mean())
            line[f"{name}_sd"] = float(column.std(ddof=1)) if column.size > 1 else math.nan
        result.append(line)
    return pa.Table.from_pylist(result)


def measured(rows: pa.Table) -> list[str]:
    """Names of the result columns: numeric and boolean columns after the policy's name."""
    behind = rows.column_names.index("parameter") + 1
    return [
        field.name
        for field in list(rows.schema)[behind:]
        if pa.types.is_floating(field.type) or pa.types.is_integer(field.type) or pa.types.is_boolean(field.type)
    ]


def by_key(summary: pa.Table, *, rare_below: int = RARE_BELOW) -> dict[Key, Row]:
    """Rows of the summary by policy."""
    here = summary.filter(pc.equal(summary["rare_below"], rare_below))
    return {key(record): record for record in here.to_pylist()}


def worse(record: Row, clinician: Row, column: str) -> bool:
    """Whether a mean is worse than the clinician's by at least `VISIBLE`: less survival, or more rare treatments."""
    loss = record[column] - clinician[column] if column.endswith("_rare") else clinician[column] - record[column]
    return bool(loss >= VISIBLE)


def knows_truth(summary: pa.Table) -> bool:
    """Whether the summary has exact values (route A)."""
    return not any(math.isnan(value) for value in summary["true_survival"].to_pylist())


def errors_by_ess(rows: pa.Table, bands: Sequence[float] = BANDS) -> list[Row]:
    """Errors of the estimates for small, medium and large effective sample sizes (ESS).

        error = estimate − exact        gain = (estimate − the clinician's estimate) − (exact − the clinician's exact)

    Args:
        rows: Rows of a route A study. Policies equal to the clinician's are left out, whichever method returned them.
        bands: Boundaries between the bands of ESS.

    Returns:
        For each non-empty band: ``low``, ``high``, ``policies``, and for every estimate and objective (rare treatments as a
        cost), such as ``dr_survival``, the median error; with suffix ``_size`` the median absolute error, with ``_from`` and
        ``_to`` the 10 % and 90 % quantiles of the error, with ``_gain`` and ``_gain_size`` the median error of the gain and
        its median absolute error.
    """
    policies, clinician = _changed(rows)
    edges = [0.0, *bands, math.inf]
    result = []
    for low, high in itertools.pairwise(edges):
        here = [record for record in policies if low <= record["ess"] < high]
        if here:
            line: Row = {"low": low, "high": high, "policies": len(here)}
            for what, objective in itertools.product((*OPE, "model"), ("survival", "rare")):
                name, exact = f"{what}_{objective}", f"true_{objective}"
                own = [clinician[record["repetition"]] for record in here]
                error = np.array([record[name] - record[exact] for record in here])
                gain = error - [record[name] - record[exact] for record in own]
                line[name], line[f"{name}_size"] = float(np.median(error)), float(np.median(np.abs(error)))
                line[f"{name}_from"], line[f"{name}_to"] = np.quantile(error, (0.1, 0.9)).tolist()
                line[f"{name}_gain"], line[f"{name}_gain_size"] = float(np.median(gain)), float(np.median(np.abs(gain)))
            result.append(line)
    return result


def false_comfort(rows: pa.Table) -> tuple[int, int]:
    """Number of policies no worse than the clinician by DR and WDR on the test part, and how many of them are truly worse.

    Policies equal to the clinician's are left out; worse means by more than `HARM` on some objective.
    """
    records, clinician = _changed(rows)
    fine = [record for record in records if no_worse(record, clinician[record["repetition"]], part="")]
    return len(fine), sum(_harmed(record, clinician[record["repetition"]]) == 1.0 for record in fine)


def _changed(rows: pa.Table) -> tuple[list[Row], dict[int, Row]]:
    """Policies of the paper's methods that differ from the clinician's, without λ = [0, 0]; and the clinician's by repetition."""
    records = [record for record in rows.to_pylist() if record["rare_below"] == RARE_BELOW]
    clinician = {record["repetition"]: record for record in records if key(record) == CLINICIAN}
    values = [f"{what}_{objective}" for what in (*OPE, "model", "true") for objective in ("survival", "rare")]

    def same(record: Row) -> bool:
        own = clinician[record["repetition"]]
        return all(math.isclose(record[name], own[name], rel_tol=1e-9, abs_tol=1e-9) for name in values)

    there = [r for r in records if r["preference"] != CLINICIAN[0] and r["method"] in PUBLISHED]
    return [r for r in there if not same(r)], clinician


def _harmed(record: Row, clinician: Row) -> float:
    loss = max(
        clinician["true_survival"] - record["true_survival"],
        record["true_rare"] - clinician["true_rare"],
    )
    return math.nan if math.isnan(record["true_survival"]) else float(loss > HARM)
