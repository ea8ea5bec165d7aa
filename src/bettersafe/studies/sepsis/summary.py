"""From the rows of the sepsis study to the numbers of its tables and figures.

A row is one policy on one split of a cohort (a seed). Over seeds there are means and standard deviations, as in the paper:

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

Record = dict[str, Any]
Key = tuple[str, str, str]
"""Preference, method, parameter."""

CLINICIAN: Key = ("0,0", "clinician", "")
TIE = 1e-6
"""Estimates nearer than this are equal: rounding errors choose no parameter."""

VISIBLE = 0.005
"""What two decimals can show: a smaller loss is not marked as one."""

HARM = 0.01
"""A true loss, on either objective, from which a policy counts as worse than the clinician in truth."""

BANDS = (100.0, 1000.0)
"""Effective sample sizes between few, some and many patients."""

GROUP = ("rare_below", "preference", "method", "parameter")


def with_chosen(rows: pa.Table) -> pa.Table:
    """The rows, and for each seed and preference one more of S-OPT with ε as a user would choose it.

    Of a seed's ε, the largest for which neither DR nor WDR on the *validation* part is worse than the clinician's, on
    either objective. The row says ``parameter`` "chosen" and, in the column ``epsilon``, which one (else NaN). No seed
    sees another's data, nor its own test part.
    """
    records = [record | {"epsilon": math.nan} for record in rows.to_pylist()]
    clinician = {r["repetition"]: r for r in records if r["rare_below"] == RARE_BELOW and key(r) == CLINICIAN}
    best: dict[tuple[int, str], Record] = {}
    for record in records:
        if record["method"] != "s-opt" or record["rare_below"] != RARE_BELOW:
            continue
        case = (record["repetition"], record["preference"])
        epsilon = float(record["parameter"])
        better = case not in best or epsilon > best[case]["epsilon"]
        if better and no_worse(record, clinician[record["repetition"]]):
            best[case] = record | {"parameter": CHOSEN, "epsilon": epsilon}
    return pa.Table.from_pylist([*records, *best.values()])


def no_worse(record: Record, clinician: Record, *, part: str = "valid_") -> bool:
    """Whether neither DR nor WDR is worse than the clinician's on either objective; NaN is worse.

    Args:
        record: A row of the study.
        clinician: The clinician's of the same seed.
        part: "valid_" for estimates on the validation part, "" for those on the test part.
    """
    return all(
        record[f"{part}{estimator}_survival"] >= clinician[f"{part}{estimator}_survival"] - TIE
        and record[f"{part}{estimator}_rare"] <= clinician[f"{part}{estimator}_rare"] + TIE
        for estimator in OPE
    )


def key(record: Mapping[str, Any]) -> Key:
    """What a policy is: preference, method, parameter."""
    return record["preference"], record["method"], record["parameter"]


def summarise_sepsis(rows: pa.Table) -> pa.Table:
    """Means and standard deviations over seeds of every policy, in the order in which policies first appear.

    Args:
        rows: Of the study, or of `with_chosen`.

    Returns:
        A row per combination of `GROUP`, with ``seeds``, for every column of numbers its mean and (named ``…_sd``) its
        standard deviation, NaN of a single seed, and ``harmed``: the share of seeds in which the policy is truly worse
        than the clinician by more than `HARM` on some objective; NaN where nobody knows the truth.
    """
    missing = [name for name in (*GROUP, "repetition", "true_survival") if name not in rows.column_names]
    if missing or rows.num_rows == 0:
        what = f"no column {missing[0]!r}" if missing else "no rows"
        raise ParameterError(f"a summary needs the rows of a sepsis study; these have {what}.")
    numbers = measured(rows)
    records = rows.to_pylist()
    clinician = {(r["rare_below"], r["repetition"]): r for r in records if key(r) == CLINICIAN}
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in GROUP), []).append(record)
    result = []
    for values, group in groups.items():
        line: Record = dict(zip(GROUP, values, strict=True)) | {"seeds": len(group)}
        harmed = [_harmed(r, clinician[r["rare_below"], r["repetition"]]) for r in group]
        line["harmed"] = float(np.mean(harmed))
        for name in numbers:
            column = np.array([record[name] for record in group], dtype=np.float64)
            line[name] = float(column.mean())
            line[f"{name}_sd"] = float(column.std(ddof=1)) if column.size > 1 else math.nan
        result.append(line)
    return pa.Table.from_pylist(result)


def measured(rows: pa.Table) -> list[str]:
    """The columns with a result: numbers and truth values behind the policy's name."""
    behind = rows.column_names.index("parameter") + 1
    return [
        field.name
        for field in list(rows.schema)[behind:]
        if pa.types.is_floating(field.type) or pa.types.is_integer(field.type) or pa.types.is_boolean(field.type)
    ]


def by_key(summary: pa.Table, *, rare_below: int = RARE_BELOW) -> dict[Key, Record]:
    """The summary's rows by policy."""
    here = summary.filter(pc.equal(summary["rare_below"], rare_below))
    return {key(record): record for record in here.to_pylist()}


def worse(record: Record, clinician: Record, column: str) -> bool:
    """Whether a mean is visibly worse than the clinician's: less survival, or more rare treatments."""
    loss = record[column] - clinician[column] if column.endswith("_rare") else clinician[column] - record[column]
    return bool(loss >= VISIBLE)


def knows_truth(summary: pa.Table) -> bool:
    """Whether exact values are there: on route A."""
    return not any(math.isnan(value) for value in summary["true_survival"].to_pylist())


def errors_by_ess(rows: pa.Table, bands: Sequence[float] = BANDS) -> list[Record]:
    """How far estimates are from the truth where few, some and many patients carry them.

        error = estimate − exact        gain = (estimate − the clinician's estimate) − (exact − the clinician's exact)

    Args:
        rows: Of the study, on route A; the clinician's policy, by whatever method it is returned, is left out.
        bands: Edges between the bands of ESS.

    Returns:
        For each band that has policies: ``low``, ``high``, ``policies``, and for every estimate on both objectives (rare
        treatments as a cost): ``dr_survival`` and so on, the median error; with ``_size`` behind it the median of its
        absolute value, with ``_from`` and ``_to`` its 10 % and 90 % quantiles, with ``_gain`` and ``_gain_size`` the
        medians of the gain's error and of its absolute value.
    """
    policies, clinician = _changed(rows)
    edges = [0.0, *bands, math.inf]
    result = []
    for low, high in itertools.pairwise(edges):
        here = [record for record in policies if low <= record["ess"] < high]
        if here:
            line: Record = {"low": low, "high": high, "policies": len(here)}
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
    """Policies that DR and WDR on the test part call no worse than the clinician, and how many of these truly are worse.

    The clinician's own, by whatever method it is returned, is left out; worse is by more than `HARM` on some objective.
    """
    records, clinician = _changed(rows)
    fine = [record for record in records if no_worse(record, clinician[record["repetition"]], part="")]
    return len(fine), sum(_harmed(record, clinician[record["repetition"]]) == 1.0 for record in fine)


def _changed(rows: pa.Table) -> tuple[list[Record], dict[int, Record]]:
    """Policies of the paper's methods that are not the clinician's (for λ = [0, 0], or fallen back to), and the clinician's by
    repetition.
    """
    records = [record for record in rows.to_pylist() if record["rare_below"] == RARE_BELOW]
    clinician = {record["repetition"]: record for record in records if key(record) == CLINICIAN}
    values = [f"{what}_{objective}" for what in (*OPE, "model", "true") for objective in ("survival", "rare")]

    def same(record: Record) -> bool:
        own = clinician[record["repetition"]]
        return all(math.isclose(record[name], own[name], rel_tol=1e-9, abs_tol=1e-9) for name in values)

    there = [r for r in records if r["preference"] != CLINICIAN[0] and r["method"] in PUBLISHED]
    return [r for r in there if not same(r)], clinician


def _harmed(record: Record, clinician: Record) -> float:
    loss = max(
        clinician["true_survival"] - record["true_survival"],
        record["true_rare"] - clinician["true_rare"],
    )
    return math.nan if math.isnan(record["true_survival"]) else float(loss > HARM)
