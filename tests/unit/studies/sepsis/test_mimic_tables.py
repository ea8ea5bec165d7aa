"""The published MIMIC-III tables: their schema, and cells that are refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import synthetic_mimic
from bettersafe.errors import DataError
from bettersafe.studies.sepsis.mimic import Preparation, prepare_mimic
from bettersafe.studies.sepsis.mimic_tables import FEATURES, TABLE_COLUMNS
from mimic_cases import SMALL, refused, tables

pytestmark = pytest.mark.usefixtures("one_thread")

# The published list of 52, and which of them are left out.
LOGS = {
    "max_dose_vaso", "SpO2", "BUN", "Creatinine", "SGOT", "SGPT", "Total_bili", "INR", "input_total", "input_4hourly",
    "output_total", "output_4hourly", "bloc",
}  # fmt: skip

LEFT_OUT = {"max_dose_vaso", "input_total", "input_4hourly", "cumulated_balance"}

NO_FEATURES = {
    "icustayid", "charttime", "died_in_hosp", "died_within_48h_of_out_time", "mortality_90d",
    "delay_end_of_record_and_discharge_or_death", "median_dose_vaso",
}  # fmt: skip


# ---- the schema and the features
def test_the_schema_and_the_features_are_the_published_ones():
    assert list(TABLE_COLUMNS) == synthetic_mimic.COLUMNS
    assert len(TABLE_COLUMNS) == 59
    rules = dict(FEATURES)
    assert len(FEATURES) == len(rules) == 48
    for name in TABLE_COLUMNS:
        if name in LEFT_OUT | NO_FEATURES:
            assert name not in rules
        elif name in {"gender", "mechvent", "re_admission"}:
            assert rules[name] == "binary"
        else:
            assert rules[name] == ("log-zscore" if name in LOGS else "zscore")


def test_the_made_up_cohort_is_as_it_should_be():
    _, blocks = synthetic_mimic.cohort(2000)
    assert np.mean(blocks["input_4hourly"] == 0) == pytest.approx(0.28, abs=0.02)
    assert np.mean(blocks["max_dose_vaso"] == 0) == pytest.approx(0.85, abs=0.02)
    lengths = np.unique(blocks["icustayid"], return_counts=True)[1]
    assert (lengths == 1).sum() > 20
    assert np.any((np.diff(blocks["icustayid"]) == 0) & (np.diff(blocks["bloc"]) > 1))
    died = blocks["died_in_hosp"] == 1
    assert 0.08 < died.mean() < 0.2
    assert blocks["SOFA"][died].mean() > blocks["SOFA"][~died].mean() + 1
    np.testing.assert_array_equal(synthetic_mimic.cohort(50, 3)[1]["HR"], synthetic_mimic.cohort(50, 3)[1]["HR"])


def cell(name, value, row=4):
    """A change of one cell; row 4 (from 0) is line 6 of the file."""

    def change(blocks):
        column = blocks[name].astype(object)
        column[row] = value
        return blocks | {name: pa.array([str(v) for v in column])}

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (cell("HR", ""), "HR must be a finite number; got an empty cell in column 'HR' of MIMICtable.csv, line 6"),
        (cell("SOFA", "NaN"), "got 'NaN' in column 'SOFA' of MIMICtable.csv, line 6"),
        (cell("HR", "fast"), "got 'fast' in column 'HR' of MIMICtable.csv, line 6"),
        (cell("icustayid", 200_001), "icustayid must be a whole number from 1 to 199999 .* got 200001 .* line 6"),
        (cell("bloc", 1.5), "bloc must be a whole number from 1; got 1.5 .* line 6"),
        (cell("died_in_hosp", 2), "died_in_hosp must be 0 or 1; got 2 .* line 6"),
        (cell("max_dose_vaso", -0.1), "max_dose_vaso must be 0 or more; got -0.1 .* line 6"),
        (cell("input_4hourly", -5), "input_4hourly must be 0 or more; got -5 .* line 6"),
        (cell("gender", 2), "'gender' must be 0 or 1; got 2 in MIMICtable.csv, line 6"),
        (cell("output_total", -7), "'output_total' must be above .* got -7 in MIMICtable.csv, line 6"),
        (lambda b: b | {"age": b["age"] / 365.25}, "age must be in days, so thousands; its median"),
        (lambda b: b | {"Temp_C": 1.8 * b["Temp_C"] + 32}, "Temp_C must be in degrees Celsius"),
        (lambda b: b | {"FiO2_1": 100 * b["FiO2_1"]}, "FiO2_1 must be a fraction from 0.21 to 1; its median"),
        (lambda b: b | {"Weight_kg": b["Weight_kg"] / 0.4536}, "Weight_kg must be in kilograms; its median"),
        (lambda b: b | {"SpO2": b["SpO2"] / 100}, "SpO2 must be in per cent; its median"),
        (
            cell("age", 63.2),
            "age must be in days.* in every row; got 63.2 in column 'age' of MIMICtable.csv, line 6; number of such rows: 1",
        ),
        (cell("age", 560_000), "age must be .* got 560000 in column 'age' of MIMICtable.csv, line 6"),
        (cell("Weight_kg", 82_000), "Weight_kg must be in kilograms .0 to 300.* got 82000 .* line 6"),
        (cell("SpO2", 0.97), "SpO2 must be in per cent .* got 0.97 in column 'SpO2' of MIMICtable.csv, line 6"),
        (cell("Temp_C", 98.6), "Temp_C must be in degrees Celsius .at most 70. .* got 98.6 .* line 6"),
        (
            lambda b: b | {"input_4hourly": b["input_4hourly"] / 1000},
            r"input_4hourly must be in mL in four hours, with a median .*; in MIMICtable.csv it is 0\.\d+",
        ),
        (
            lambda b: b | {"max_dose_vaso": b["max_dose_vaso"] * b["Weight_kg"]},
            r"max_dose_vaso must be in µg/kg/min, with a median dose above 0 of 0.01 to 5; in MIMICtable.csv it is \d\d[.\d]*. Convert",
        ),
        (cell("FiO2_1", 40), "FiO2_1 must be a fraction .* got 40 in column 'FiO2_1' of MIMICtable.csv, line 6"),
        (
            lambda b: b | {"age": np.where(np.arange(b["age"].size) % 7 == 4, b["age"] / 365.25, b["age"])},
            r"age must be in days.* in every row; got .* line 6; number of such rows: \d\d\. Convert",
        ),
        (lambda b: {k: v[:0] for k, v in b.items()}, "MIMICtable.csv has no rows"),
        (lambda b: {k: v for k, v in b.items() if k != "HR"}, "it lacks HR. Add it"),
        (lambda b: b | {"Extra": b["HR"]}, "the 59 columns .* it also has Extra. Remove it"),
        (lambda b: b | {"Extra": b["HR"], "More": b["HR"]}, "it also has Extra, More. Remove them"),
        (
            lambda b: {("Hr" if k == "HR" else k): v for k, v in b.items()},
            "it lacks HR and it also has Hr. 'Hr' may be 'HR'. Rename",
        ),
        (
            lambda b: {("Extra" if k == "SOFA" else k.lower()): v for k, v in b.items()},
            "it lacks Weight_kg, GCS, HR, SysBP, MeanBP, DiaBP and 34 more and it also has weight_kg, gcs, hr, sysbp, meanbp, diabp"
            " and 34 more. 'weight_kg' may be 'Weight_kg', .* 'diabp' may be 'DiaBP' and 33 more. Rename",
        ),
        (
            lambda b: {(k if k in ("icustayid", "age") else f"x{i}"): v for i, (k, v) in enumerate(b.items())},
            "it lacks bloc, charttime, gender, elixhauser, re_admission, died_in_hosp and 51 more and it also has x0, x2, .* and 51",
        ),
        (lambda b: {"icustayid": b["icustayid"], **b}, "column 1 must be 'bloc' and is 'icustayid'"),
    ],
)
def test_bad_tables_are_refused(tmp_path, change, match):
    refused(tmp_path, match, table=change)


def test_files_in_the_wrong_order_are_told_apart(tmp_path):
    listed, blocks = tables(20)
    stays, table = synthetic_mimic.write(tmp_path, listed, blocks)
    for files, match in (
        (
            (table, stays),
            "^the files seem to be swapped: MIMICtable.csv has the columns of the four-hour blocks, sepsis_mimiciii.csv",
        ),
        ((stays, stays), "^sepsis_mimiciii.csv has the columns of the stays, not those of the four-hour blocks. Give"),
        ((table, table), "^MIMICtable.csv has the columns of the four-hour blocks, not those of the stays. Give"),
    ):
        with pytest.raises(DataError, match=match) as caught:
            prepare_mimic(*files, tmp_path / "out", Preparation(**SMALL))
        assert len(str(caught.value)) < 250
    swapped = synthetic_mimic.write(tmp_path, blocks, listed)  # names as they should be, contents not
    with pytest.raises(
        DataError, match=r"^the files seem to be swapped: sepsis_mimiciii.csv has the columns of the four-hour"
    ):
        prepare_mimic(*swapped, tmp_path / "out", Preparation(**SMALL))


def test_rows_that_contradict_each_other_are_refused(tmp_path):
    _, blocks = tables(20)
    i, j = np.flatnonzero(np.diff(blocks["icustayid"]) == 0)[0] + np.arange(2)
    twice = {k: np.append(v, v[i]) for k, v in blocks.items()}
    last = blocks["bloc"].size + 2
    stay = f"stay {blocks['icustayid'][i]}, bloc {blocks['bloc'][i]} is in MIMICtable.csv, line {i + 2}"
    refused(tmp_path, f"{stay} and again in MIMICtable.csv, line {last}", table=lambda b: twice)
    torn = blocks["died_in_hosp"].copy()
    torn[j] = 1 - torn[j]
    refused(tmp_path, "died_in_hosp must be the same in all rows of a stay", table=lambda b: b | {"died_in_hosp": torn})
