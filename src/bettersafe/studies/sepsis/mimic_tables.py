"""Reading and checking the two tables of the public MIMIC-III cohort.

``sepsis_mimiciii.csv`` has one row per stay in intensive care, ``MIMICtable.csv`` one row per imputed block of four hours.
Errors name file, line and column. Of the outcome columns, only the requested one is read.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bettersafe.errors import DataError
from bettersafe.logs._reader.tables import Table, open_table
from bettersafe.logs.discretize import FeatureRule, Transform, check_domain

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from bettersafe.typing import Floats, Ints

Outcome = Literal["died_in_hosp", "mortality_90d"]
COHORT_COLUMNS = ("icustayid", "morta_90d", "max_sofa", "max_sirs", "sepsis_time")
TABLE_COLUMNS = (
    "bloc", "icustayid", "charttime", "gender", "age", "elixhauser", "re_admission", "died_in_hosp",
    "died_within_48h_of_out_time", "mortality_90d", "delay_end_of_record_and_discharge_or_death", "Weight_kg", "GCS", "HR",
    "SysBP", "MeanBP", "DiaBP", "RR", "SpO2", "Temp_C", "FiO2_1", "Potassium", "Sodium", "Chloride", "Glucose", "BUN",
    "Creatinine", "Magnesium", "Calcium", "Ionised_Ca", "CO2_mEqL", "SGOT", "SGPT", "Total_bili", "Albumin", "Hb",
    "WBC_count", "Platelets_count", "PTT", "PT", "INR", "Arterial_pH", "paO2", "paCO2", "Arterial_BE", "Arterial_lactate",
    "HCO3", "mechvent", "Shock_Index", "PaO2_FiO2", "median_dose_vaso", "max_dose_vaso", "input_total", "input_4hourly",
    "output_total", "output_4hourly", "cumulated_balance", "SOFA", "SIRS",
)  # fmt: skip
OUTCOMES = ("died_in_hosp", "died_within_48h_of_out_time", "mortality_90d")
BINARY = ("gender", "mechvent", "re_admission")
LOGARITHMIC = (
    "SpO2", "BUN", "Creatinine", "SGOT", "SGPT", "Total_bili", "INR", "output_total", "output_4hourly", "bloc",
)  # fmt: skip
STANDARDISED = (
    "age", "Weight_kg", "GCS", "HR", "SysBP", "MeanBP", "DiaBP", "RR", "Temp_C", "FiO2_1", "Potassium", "Sodium", "Chloride",
    "Glucose", "Magnesium", "Calcium", "Hb", "WBC_count", "Platelets_count", "PTT", "PT", "Arterial_pH", "paO2", "paCO2",
    "Arterial_BE", "HCO3", "Arterial_lactate", "SOFA", "SIRS", "Shock_Index", "PaO2_FiO2", "elixhauser", "Albumin",
    "CO2_mEqL", "Ionised_Ca",
)  # fmt: skip
FEATURES: tuple[tuple[str, Transform], ...] = (
    *((name, "binary") for name in BINARY),
    *((name, "zscore") for name in STANDARDISED),
    *((name, "log-zscore") for name in LOGARITHMIC),
)
"""The 48 features: the 52 that the published code standardises, without max_dose_vaso, input_total, input_4hourly and
cumulated_balance, which reveal the action."""

ID_SHIFT = 200_000
"""``icustayid`` of MIMICtable.csv is that of MIMIC-III minus this."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Unit of a column, with ranges that detect another unit.

    Attributes:
        name: Name of the unit in messages.
        median: Range of the column's median.
        cell: Range of every cell; it contains all values that the public cohort step lets through.
    """

    name: str
    median: tuple[float, float]
    cell: tuple[float, float]


UNITS = {
    # Adults. MIMIC-III sets the birth of patients over 89 to 300 years before their first admission.
    "age": Unit(name="in days, so thousands", median=(3_653.0, 120_000.0), cell=(3_653.0, 120_000.0)),
    "Weight_kg": Unit(name="in kilograms", median=(40.0, 130.0), cell=(0.0, 300.0)),
    "SpO2": Unit(name="in per cent", median=(50.0, 100.0), cell=(10.0, 150.0)),
    "Temp_C": Unit(name="in degrees Celsius", median=(25.0, 45.0), cell=(-math.inf, 70.0)),
    "FiO2_1": Unit(name="a fraction from 0.21 to 1", median=(0.0, 1.0), cell=(0.0, 1.5)),
}
"""Columns whose unit can be checked. The public cohort step removes weights over 300 kg and fractions over 1.5, and treats
temperatures over 70 as degrees Fahrenheit."""

DOSES = {
    # The published quartiles of the non-zero doses are 0.08, 0.2, 0.45. In µg/min they would be 80 times as large.
    "max_dose_vaso": ("µg/kg/min", (0.01, 5.0)),
    # A median in litres would be below 10, and a median above 10,000 mL in four hours is impossible.
    "input_4hourly": ("mL in four hours", (10.0, 10_000.0)),
}
"""Unit of the doses, and the range of the median of the non-zero doses."""

NAMED = 6
"""Maximal number of columns listed in a message."""


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Rows of the selected stays, sorted by stay and block.

    Attributes:
        stay: icustayid of MIMIC-III, shape [N].
        died: The requested outcome, shape [N].
        vaso: Largest vasopressor dose, µg/kg/min, shape [N].
        iv: Fluid in the four hours, mL, shape [N].
        features: In the order of `FEATURES`, shape [N, 48].
        stays_without_rows: Number of stays in the cohort without rows in the table.
        rows_of_other_stays: Number of rows in the table of stays outside the cohort.
    """

    stay: Ints
    died: Any
    vaso: Floats
    iv: Floats
    features: Floats
    stays_without_rows: int
    rows_of_other_stays: int


def read_blocks(cohort_csv: str | os.PathLike[str], table_csv: str | os.PathLike[str], *, outcome: Outcome) -> Blocks:
    """Read and check both tables.

    Args:
        cohort_csv: ``sepsis_mimiciii.csv``: the stays of the cohort.
        table_csv: ``MIMICtable.csv``: four-hour blocks.
        outcome: The outcome column to read; the other outcome columns are ignored.
    """
    _check_order(cohort_csv, table_csv)
    stays = _read_stays(cohort_csv)
    with open_table(table_csv) as table:
        column = _read_columns(table, outcome)
    stay = column["icustayid"].astype(np.int64) + ID_SHIFT
    kept = np.flatnonzero(np.isin(stay, stays))
    if not kept.size:
        raise DataError(
            f"no stay of {Path(cohort_csv).name} has a row in {Path(table_csv).name}; their icustayid must differ by"
            f" {ID_SHIFT}. Give two files of the same cohort."
        )
    order = kept[np.lexsort((column["bloc"][kept], stay[kept]))]
    return Blocks(
        stay=stay[order],
        died=column[outcome][order] == 1.0,
        vaso=column["max_dose_vaso"][order],
        iv=column["input_4hourly"][order],
        features=np.stack([column[name][order] for name, _ in FEATURES], axis=1),
        stays_without_rows=int(stays.size - np.unique(stay[order]).size),
        rows_of_other_stays=int(stay.size - order.size),
    )


def _check_order(cohort_csv: str | os.PathLike[str], table_csv: str | os.PathLike[str]) -> None:
    """Raise if a file has at least half of the columns of the other one."""
    kinds = []
    for path in (cohort_csv, table_csv):
        with open_table(path) as table:
            found = set(table.names)
        shares = [len(found & set(columns)) / len(columns) for columns in (COHORT_COLUMNS, TABLE_COLUMNS)]
        kinds.append(("stays", "blocks")[int(np.argmax(shares))] if max(shares) >= 0.5 else "")
    remedy = "Give the file of stays (sepsis_mimiciii.csv) first and the file of blocks (MIMICtable.csv) second."
    first, second = Path(cohort_csv).name, Path(table_csv).name
    if kinds == ["blocks", "stays"]:
        raise DataError(
            f"the files seem to be swapped: {first} has the columns of the four-hour blocks, {second} those of the stays."
            f" {remedy}"
        )
    if kinds[0] == "blocks":
        raise DataError(f"{first} has the columns of the four-hour blocks, not those of the stays. {remedy}")
    if kinds[1] == "stays":
        raise DataError(f"{second} has the columns of the stays, not those of the four-hour blocks. {remedy}")


def _read_stays(path: str | os.PathLike[str]) -> Ints:
    """The stays of the cohort, sorted."""
    with open_table(path) as table:
        _check_header(table, COHORT_COLUMNS)
        ids = table.numbers(["icustayid"])[:, 0]
        _refuse(table, ids, (ids != np.floor(ids)) | (ids <= ID_SHIFT), "icustayid", f"a whole number above {ID_SHIFT}")
        stays, first = np.unique(ids, return_index=True)
        if stays.size < ids.size:
            again = int(np.setdiff1d(np.arange(ids.size), first)[0])
            raise DataError(
                f"stay {ids[again]:.0f} occurs a second time in {table.place(again)}. Keep one row per stay."
            )
        return stays.astype(np.int64)


def _read_columns(table: Table, outcome: Outcome) -> dict[str, Floats]:
    """Read and check the columns of the table; return them by name, rows in the order of the file."""
    names = [name for name in TABLE_COLUMNS if name not in OUTCOMES or name == outcome]
    _check_header(table, TABLE_COLUMNS)
    values = table.numbers(names)
    if not values.shape[0]:
        raise DataError(f"{table.raw.title} has no rows. Give the table of four-hour blocks.")
    column = {name: values[:, j] for j, name in enumerate(names)}
    stay, bloc, died = column["icustayid"], column["bloc"], column[outcome]
    whole = f"a whole number from 1 to {ID_SHIFT - 1} (that of MIMIC-III minus {ID_SHIFT})"
    _refuse(table, stay, (stay != np.floor(stay)) | (stay < 1) | (stay >= ID_SHIFT), "icustayid", whole)
    _refuse(table, bloc, (bloc != np.floor(bloc)) | (bloc < 1), "bloc", "a whole number from 1")
    _refuse(table, died, (died != 0) & (died != 1), outcome, "0 or 1")
    for name in ("max_dose_vaso", "input_4hourly"):
        _refuse(table, column[name], column[name] < 0, name, "0 or more")
    for name, unit in UNITS.items():
        _check_unit(table, column[name], name, unit)
    for name, (unit_name, where) in DOSES.items():
        _check_dose(table, column[name], name, unit_name, where)
    features = np.stack([column[name] for name, _ in FEATURES], axis=1)
    check_domain([FeatureRule(name=name, transform=how) for name, how in FEATURES], features, table.place)
    _check_stays(table, stay, bloc, died, outcome)
    return column


def _check_unit(table: Table, column: Floats, name: str, unit: Unit) -> None:
    """Raise if the column or one of its cells seems to be in another unit."""
    middle = float(np.median(column))
    if not unit.median[0] <= middle <= unit.median[1]:
        raise DataError(
            f"{name} must be {unit.name}; its median in {table.raw.title} is {middle:g}. Convert the column."
        )
    low, high = unit.cell
    wrong = (column < low) | (column > high)
    if np.any(wrong):
        row = int(np.argmax(wrong))
        bounds = f"at most {high:g}" if math.isinf(low) else f"{low:g} to {high:g}"
        raise DataError(
            f"{name} must be {unit.name} ({bounds}) in every row; got {column[row]:.12g} in column {name!r} of"
            f" {table.place(row)}; number of such rows: {np.count_nonzero(wrong)}. Convert or correct them."
        )


def _check_dose(table: Table, column: Floats, name: str, unit: str, where: tuple[float, float]) -> None:
    """Raise if the median of the non-zero doses suggests another unit, since actions would then be cut at wrong doses."""
    given = column[column > 0.0]
    middle = float(np.median(given)) if given.size else math.nan
    if middle < where[0] or middle > where[1]:
        raise DataError(
            f"{name} must be in {unit}, with a median dose above 0 of {where[0]:g} to {where[1]:g}; in {table.raw.title} it is"
            f" {middle:g}. Convert the column."
        )


def _check_stays(table: Table, stay: Floats, bloc: Floats, died: Floats, outcome: Outcome) -> None:
    """Raise if a block occurs twice or a stay has two outcomes."""
    order = np.lexsort((bloc, stay))
    same = np.diff(stay[order]) == 0
    twice = np.flatnonzero(same & (np.diff(bloc[order]) == 0))
    if twice.size:
        row, again = (int(order[twice[0] + i]) for i in range(2))
        raise DataError(
            f"a stay must have one row per block; stay {stay[row]:.0f}, bloc {bloc[row]:.0f} is in {table.place(row)} and"
            f" again in {table.place(again)}. Remove one of them."
        )
    torn = np.flatnonzero(same & (np.diff(died[order]) != 0))
    if torn.size:
        row, other = (int(order[torn[0] + i]) for i in range(2))
        raise DataError(
            f"{outcome} must be the same in all rows of a stay; for stay {stay[row]:.0f} it is {died[row]:.0f} in"
            f" {table.place(row)} and {died[other]:.0f} in {table.place(other)}. Correct it."
        )


def _check_header(table: Table, expected: tuple[str, ...]) -> None:
    """Raise unless the columns are exactly ``expected``, in this order."""
    found = table.names
    missing = [name for name in expected if name not in found]
    extra = [name for name in found if name not in expected]
    if missing or extra:
        lacks = f"it lacks {_some(missing)}" if missing else ""
        has = f"it also has {_some(extra)}" if extra else ""
        remedy = "Rename, add or remove columns." if missing and extra else "Add it." if missing else "Remove it."
        remedy = remedy.replace("it.", "them.") if len(missing or extra) > 1 else remedy
        raise DataError(
            f"{table.raw.title} must have the {len(expected)} columns of the published cohort; "
            f"{' and '.join(filter(None, (lacks, has)))}.{_renamed(extra, missing)} {remedy}"
        )
    for i, (name, there) in enumerate(zip(expected, found, strict=True)):
        if name != there:
            raise DataError(
                f"the columns of {table.raw.title} must be in the published order; column {i + 1} must be {name!r} and is"
                f" {there!r}. Check that the table is the published one, and reorder its columns."
            )


def _refuse(table: Table, column: Floats, wrong: Any, name: str, expected: str) -> None:
    if np.any(wrong):
        row = int(np.argmax(wrong))
        raise DataError(
            f"{name} must be {expected}; got {column[row]:.12g} in column {name!r} of {table.place(row)}. Correct the cell."
        )


def _some(names: Sequence[str]) -> str:
    """List the first names and the number of further ones."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _renamed(extra: Sequence[str], missing: Sequence[str]) -> str:
    """Suggest which extra column may be which missing one, ignoring case and underscores."""
    plain = {"".join(c for c in name.casefold() if c.isalnum()): name for name in missing}
    found = []
    for name in extra:
        near = difflib.get_close_matches("".join(c for c in name.casefold() if c.isalnum()), plain, n=1, cutoff=0.7)
        if near:
            found.append(f"{name!r} may be {plain.pop(near[0])!r}")
    return f" {_some(found)}." if found else ""
