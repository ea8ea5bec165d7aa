"""The MIMIC-III route on made-up patients: each published step by hand or by a twin, and what must be refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from threadpoolctl import threadpool_limits

import synthetic_mimic
from bettersafe.envs.icu_sepsis import icu_sepsis
from bettersafe.errors import DataError, ParameterError, RunError
from bettersafe.logs.discretize import assign_states
from bettersafe.studies.sepsis.mimic import (
    Preparation,
    action_labels,
    draw_parts,
    find_splits,
    load_mimic,
    prepare_mimic,
    prepare_splits,
)
from bettersafe.studies.sepsis.mimic_tables import FEATURES, TABLE_COLUMNS

SMALL = {"k": 6, "quick": True}
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


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Tiny k-means on busy cores spends its time waiting for its own threads."""
    with threadpool_limits(1):
        yield


def tables(stays=40, seed=0):
    listed, blocks = synthetic_mimic.cohort(stays, seed)
    return {k: v.copy() for k, v in listed.items()}, {k: v.copy() for k, v in blocks.items()}


def prepare(folder, listed, blocks, *, force=False, **settings):
    folder.mkdir(parents=True, exist_ok=True)
    files = synthetic_mimic.write(folder, listed, blocks)
    return prepare_mimic(*files, folder / "out", Preparation(**(SMALL | settings)), force=force)


def logs(folder):
    """All rows of the three parts as (episode, step) -> row, with the part's name."""
    rows = {}
    for part in ("train", "valid", "test"):
        for row in parquet.read_table(folder / "out" / f"{part}.parquet").to_pylist():
            rows[row["episode"], row["step"]] = row | {"part": part}
    return rows


def by_stay(blocks):
    """stay -> its rows in the order of bloc, as dicts."""
    found = {}
    for row in sorted(pa.table(blocks).to_pylist(), key=lambda row: row["bloc"]):
        found.setdefault(row["icustayid"] + 200_000, []).append(row)
    return found


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """2,000 stays, some rows of strangers, one listed stay without rows, rows shuffled: what real files may be like."""
    folder = tmp_path_factory.mktemp("mimic")
    listed, blocks = tables(2000)
    order = np.random.default_rng(5).permutation(blocks["bloc"].size)
    blocks = {name: column[order] for name, column in blocks.items()}
    listed = {name: column[3:] for name, column in listed.items()}  # three stays are not of the cohort
    listed = {name: np.append(column, 290_000 if name == "icustayid" else 1) for name, column in listed.items()}
    document = prepare(folder, listed, blocks, k=40)
    return folder, set(listed["icustayid"].tolist()), blocks, by_stay(blocks), logs(folder), document


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


def test_actions_are_called_as_in_the_embedded_benchmark():
    np.testing.assert_array_equal(action_labels(), icu_sepsis().action_labels)


# ---- the steps, on 2,000 stays


def test_rows_actions_and_rewards(cohort):
    _, listed, _, everybody, found, document = cohort
    stays = {stay: rows for stay, rows in everybody.items() if stay in listed}
    doses = np.array([row["max_dose_vaso"] for rows in stays.values() for row in rows])
    cuts = np.percentile(doses[doses > 0], [25, 50, 75])
    assert document["cuts"] == {"vaso": cuts.tolist(), "iv": [500.0, 1000.0, 2000.0]}
    assert len(found) == sum(len(rows) for rows in stays.values())
    for stay, rows in stays.items():
        for step, row in enumerate(rows):
            vaso, iv = row["max_dose_vaso"], row["input_4hourly"]
            vaso_bin = 0 if vaso == 0 else 1 + (vaso >= cuts[0]) + (vaso >= cuts[1]) + (vaso >= cuts[2])
            iv_bin = 0 if iv == 0 else 1 + (iv >= 500) + (iv >= 1000) + (iv >= 2000)
            log = found[stay, step]
            assert log["action"] == f"iv{iv_bin}/vaso{vaso_bin}"
            last = step == len(rows) - 1
            assert log["terminated"] is last
            assert log["survival"] == (0.0 if not last else -100.0 if row["died_in_hosp"] else 100.0)


def test_counts_and_notes(cohort):
    _, _, blocks, _, _, document = cohort
    counts = document["counts"]
    strangers = np.isin(blocks["icustayid"], [1, 5, 9])
    kept = {name: column[~strangers] for name, column in blocks.items()}
    _, first = np.unique(kept["icustayid"], return_index=True)
    died = int(kept["died_in_hosp"][first].sum())
    assert counts == {
        "stays": 1997, "rows": kept["bloc"].size, "survived": 1997 - died, "died": died, "stays_without_rows": 1,
        "rows_of_other_stays": int(strangers.sum()),
    }  # fmt: skip
    assert [note.split(":")[0] for note in document["notes"]] == [
        "this is not the paper's cohort",
        "1 stays of the cohort have no rows in the table",
        f"{counts['rows_of_other_stays']} rows are of stays outside the cohort and were left out",
    ]
    assert sum(document["bins"]["iv"]) == sum(document["bins"]["vaso"]) == counts["rows"]
    assert document["bins"]["vaso"][0] == int((kept["max_dose_vaso"] == 0).sum())


def test_the_split_is_by_stay_and_rounds_as_published(cohort):
    *_, found, document = cohort
    parts = {part: {e for (e, _), row in found.items() if row["part"] == part} for part in ("train", "valid", "test")}
    assert [len(stays) for stays in parts.values()] == [1397, 199, 401]  # ⌊0.7·1997⌋, ⌊0.1·1997⌋, the rest
    assert len(set().union(*parts.values())) == 1997
    for part, stays in parts.items():
        assert document["parts"][part]["stays"] == len(stays)


def test_sizes_of_the_papers_split():
    chosen = draw_parts(20_954, np.array([0.7, 0.1, 0.2]), np.random.default_rng(0))
    assert [int(part.sum()) for part in chosen.values()] == [14_667, 2_095, 4_192]
    assert np.all(sum(part.astype(int) for part in chosen.values()) == 1)


def test_statistics_come_from_the_training_rows(cohort):
    folder, _, _, stays, _, _ = cohort
    prepared = load_mimic(folder / "out")
    train = set(prepared.train.episode_labels.tolist())
    rows = [row for stay, rows in stays.items() if stay in train for row in rows]
    for rule in prepared.discretizer.features:
        column = np.array([row[rule.name] for row in rows], dtype=float)
        if rule.transform == "log-zscore":
            column = np.log(0.1 + column)
        expected = (0.0, 1.0) if rule.transform == "binary" else (column.mean(), np.sqrt(np.var(column, ddof=1)))
        assert (rule.mean, rule.sd) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_states_are_those_of_the_saved_map(cohort):
    folder, _, _, stays, found, _ = cohort
    prepared = load_mimic(folder / "out")
    keys = sorted(found)[::97]
    table = {name: [stays[e][step][name] for e, step in keys] for name, _ in FEATURES}
    assert assign_states(prepared.discretizer, table).tolist() == [found[key]["state"] for key in keys]


def test_loading_gives_all_parts_one_vocabulary(cohort):
    folder, *_, document = cohort
    prepared = load_mimic(folder / "out")
    for name in ("train", "valid", "test"):
        part = getattr(prepared, name)
        assert (part.n_states, part.n_actions, part.n_rows) == (40, 25, document["parts"][name]["rows"])
        np.testing.assert_array_equal(part.action_labels, action_labels())
        assert np.unique(part.states).size == document["parts"][name]["states"]
        assert int((part.rewards == -100).sum()) == document["parts"][name]["died"]
    assert prepared.info == json.loads((folder / "out" / "prepare.json").read_text(encoding="utf-8")) == document
    assert document["schema"] == "mimic/1"
    assert {"numpy", "scikit-learn"} <= set(document["versions"])


# ---- leakage


def test_test_rows_do_not_touch_the_map_and_the_seed_draws_the_split(tmp_path):
    listed, blocks = tables(60)
    prepare(tmp_path / "one", listed, blocks)
    test = [e - 200_000 for (e, _), row in logs(tmp_path / "one").items() if row["part"] == "test"]
    moved = np.isin(blocks["icustayid"], test)
    for name in ("HR", "Creatinine", "SOFA"):
        blocks[name] = np.where(moved, 10.0 * blocks[name] + 1, blocks[name])
    blocks["died_in_hosp"] = np.where(moved, 1 - blocks["died_in_hosp"], blocks["died_in_hosp"])
    prepare(tmp_path / "two", listed, blocks)
    for name in ("discretizer.parquet", "train.parquet", "valid.parquet"):
        assert (tmp_path / "one/out" / name).read_bytes() == (tmp_path / "two/out" / name).read_bytes()
    assert (tmp_path / "one/out/test.parquet").read_bytes() != (tmp_path / "two/out/test.parquet").read_bytes()
    prepare(tmp_path / "three", listed, blocks, seed=1)
    assert {k: row["part"] for k, row in logs(tmp_path / "two").items()} != {
        k: row["part"] for k, row in logs(tmp_path / "three").items()
    }


def test_other_outcomes_are_not_read_unless_asked_for(tmp_path):
    listed, blocks = tables(60)
    honest = prepare(tmp_path / "one", listed, blocks)
    poisoned = blocks | {
        name: np.array(["garbage", ""] * blocks["bloc"].size)[: blocks["bloc"].size]
        for name in ("mortality_90d", "died_within_48h_of_out_time")
    }
    strange = listed | {"morta_90d": np.array(["?"] * 60)}
    found = prepare(tmp_path / "two", strange, poisoned)
    for name in ("train", "valid", "test", "discretizer"):
        assert (tmp_path / f"one/out/{name}.parquet").read_bytes() == (
            tmp_path / f"two/out/{name}.parquet"
        ).read_bytes()
    assert found | {"created": 0, "inputs": 0} == honest | {"created": 0, "inputs": 0}
    with pytest.raises(DataError, match="mortality_90d must be a finite number; got 'garbage'"):
        prepare(tmp_path / "three", strange, poisoned, outcome="mortality_90d")
    late = prepare(
        tmp_path / "four", listed, blocks | {"died_in_hosp": poisoned["mortality_90d"]}, outcome="mortality_90d"
    )
    _, first = np.unique(blocks["icustayid"], return_index=True)
    assert late["counts"]["died"] == int(blocks["mortality_90d"][first].sum()) > honest["counts"]["died"]


# ---- small rules


def test_doses_at_the_cuts(tmp_path):
    listed, blocks = tables(40)
    n = blocks["bloc"].size
    blocks["input_4hourly"] = np.resize([0.0, 0.01, 499.99, 500.0, 999.0, 1000.0, 1999.9, 2000.0], n)
    blocks["max_dose_vaso"] = np.where(np.arange(n) < 5, np.arange(5).sum(), 0.0)
    blocks["max_dose_vaso"][:5] = [1.0, 2.0, 3.0, 4.0, 5.0]  # quartiles of these: 2, 3, 4
    document = prepare(tmp_path, listed, blocks)
    assert document["cuts"]["vaso"] == [2.0, 3.0, 4.0]
    assert document["bins"]["vaso"] == [n - 5, 1, 1, 1, 2]  # 1 | 2 | 3 | 4, 5: a dose at a cut is in the upper bin
    counts = np.bincount(np.resize([0, 1, 1, 2, 2, 3, 3, 4], n), minlength=5).tolist()
    assert document["bins"]["iv"] == counts
    quarters = prepare(tmp_path / "q", listed, blocks, iv_bins="quartile")
    dose = blocks["input_4hourly"]
    assert quarters["cuts"]["iv"] == np.percentile(dose[dose > 0], [25, 50, 75]).tolist()
    assert not any("no row is in bin" in note for note in document["notes"])
    scarce = blocks | {"input_4hourly": np.minimum(dose, 999.0)}
    notes = prepare(tmp_path / "scarce", listed, scarce)["notes"]
    assert "no row is in bin 3, 4 of input_4hourly (0: none, 1 to 4: by its cuts)" in notes
    with pytest.raises(DataError, match="max_dose_vaso is 0 in every row"):
        prepare(tmp_path / "none", listed, blocks | {"max_dose_vaso": np.zeros(n)})


def test_gaps_are_closed_and_stays_of_one_row_are_episodes(tmp_path):
    listed, blocks = tables(40)
    alone = blocks["icustayid"] == blocks["icustayid"][0]
    keep = ~alone | (np.cumsum(alone) == 1)
    blocks = {name: column[keep] for name, column in blocks.items()}
    lengths = {stay: len(rows) for stay, rows in by_stay(blocks).items()}
    blocks["bloc"] = 3 * blocks["bloc"]
    prepare(tmp_path, listed, blocks)
    found = logs(tmp_path)
    for stay, length in lengths.items():
        assert sorted(step for e, step in found if e == stay) == list(range(length))
    assert min(lengths.values()) == 1


# ---- what is refused


def refused(tmp_path, match, *, table=None, listed=None, error=DataError, **settings):
    own_listed, blocks = tables(20)
    with pytest.raises(error, match=match):
        prepare(tmp_path, own_listed | (listed or {}), blocks if table is None else table(blocks), **settings)
    assert not (tmp_path / "out").exists()


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
            "age must be in days.* in every row; got 63.2 in column 'age' of MIMICtable.csv, line 6; rows like it: 1",
        ),
        (cell("age", 560_000), "age must be .* got 560000 in column 'age' of MIMICtable.csv, line 6"),
        (cell("Weight_kg", 82_000), "Weight_kg must be in kilograms .0 to 300.* got 82000 .* line 6"),
        (cell("SpO2", 0.97), "SpO2 must be in per cent .* got 0.97 in column 'SpO2' of MIMICtable.csv, line 6"),
        (cell("Temp_C", 98.6), "Temp_C must be in degrees Celsius .at most 70. .* got 98.6 .* line 6"),
        (
            lambda b: b | {"input_4hourly": b["input_4hourly"] / 1000},
            r"input_4hourly must be in mL in four hours; the median of its doses above 0 in MIMICtable.csv is 0\.\d+, expected",
        ),
        (
            lambda b: b | {"max_dose_vaso": b["max_dose_vaso"] * b["Weight_kg"]},
            r"max_dose_vaso must be in µg/kg/min; the median .* is \d\d[.\d]*, expected was 0.01 to 5. Convert",
        ),
        (cell("FiO2_1", 40), "FiO2_1 must be a fraction .* got 40 in column 'FiO2_1' of MIMICtable.csv, line 6"),
        (
            lambda b: b | {"age": np.where(np.arange(b["age"].size) % 7 == 4, b["age"] / 365.25, b["age"])},
            r"age must be in days.* in every row; got .* line 6; rows like it: \d\d\. Convert",
        ),
        (lambda b: {k: v[:0] for k, v in b.items()}, "MIMICtable.csv has no rows"),
        (lambda b: {k: v for k, v in b.items() if k != "HR"}, "it lacks HR. Add it"),
        (lambda b: b | {"Extra": b["HR"]}, "the 59 columns .* it has Extra besides. Remove it"),
        (lambda b: b | {"Extra": b["HR"], "More": b["HR"]}, "it has Extra, More besides. Remove them"),
        (
            lambda b: {("Hr" if k == "HR" else k): v for k, v in b.items()},
            "it lacks HR and it has Hr besides. 'Hr' may be 'HR'. Rename",
        ),
        (
            lambda b: {("Extra" if k == "SOFA" else k.lower()): v for k, v in b.items()},
            "it lacks Weight_kg, GCS, HR, SysBP, MeanBP, DiaBP and 34 more and it has weight_kg, gcs, hr, sysbp, meanbp, diabp"
            " and 34 more besides. 'weight_kg' may be 'Weight_kg', .* 'diabp' may be 'DiaBP' and 33 more. Rename",
        ),
        (
            lambda b: {(k if k in ("icustayid", "age") else f"x{i}"): v for i, (k, v) in enumerate(b.items())},
            "it lacks bloc, charttime, gender, elixhauser, re_admission, died_in_hosp and 51 more and it has x0, x2, .* and 51",
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
            "^these look swapped: MIMICtable.csv has the columns of the four-hour blocks, sepsis_mimiciii.csv",
        ),
        ((stays, stays), "^sepsis_mimiciii.csv has the columns of the stays, not those of the four-hour blocks. Name"),
        ((table, table), "^MIMICtable.csv has the columns of the four-hour blocks, not those of the stays. Name"),
    ):
        with pytest.raises(DataError, match=match) as caught:
            prepare_mimic(*files, tmp_path / "out", Preparation(**SMALL))
        assert len(str(caught.value)) < 250
    swapped = synthetic_mimic.write(tmp_path, blocks, listed)  # names as they should be, contents not
    with pytest.raises(DataError, match=r"^these look swapped: sepsis_mimiciii.csv has the columns of the four-hour"):
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


def test_bad_cohorts_and_settings_are_refused(tmp_path):
    ids = tables(20)[0]["icustayid"]
    refused(
        tmp_path, "icustayid must be a whole number above 200000; got 1 .* line 2", listed={"icustayid": ids - 200_000}
    )
    refused(
        tmp_path, "stay 200001 stands a second time in .*, line 3", listed={"icustayid": np.append(ids[0], ids[:-1])}
    )
    refused(tmp_path, "no stay of sepsis_mimiciii.csv has a row", listed={"icustayid": ids + 50_000})
    refused(tmp_path, "it has more besides", listed={"more": ids})
    refused(tmp_path, "iv_bins must be one of clinical, quartile", error=ParameterError, iv_bins="thirds")
    refused(tmp_path, "outcome must be one of", error=ParameterError, outcome="SOFA")
    refused(tmp_path, "three positive shares that sum to 1", error=ParameterError, split=(0.5, 0.5))
    refused(tmp_path, "the valid part would be empty", split=(0.9, 0.01, 0.09))
    refused(tmp_path, "states need at least as many training rows", k=10_000)


def test_what_was_prepared_is_checked_on_loading(tmp_path):
    listed, blocks = tables(40)
    with pytest.raises(RunError, match="is not a prepared cohort"):
        load_mimic(tmp_path)
    prepare(tmp_path, listed, blocks)
    with pytest.raises(RunError, match="replace it with --force"):
        prepare(tmp_path, listed, blocks)
    prepare(tmp_path, listed, blocks, force=True)
    out = tmp_path / "out"
    (out / "valid.parquet").write_bytes((out / "test.parquet").read_bytes())
    with pytest.raises(RunError, match=r"valid.parquet is not the file that prepare.json is about"):
        load_mimic(out)
    for text, match in (("{", "can't be read"), ("[]", "can't be read"), ('{"schema": "mimic/9"}', "schema 'mimic/9'")):
        (out / "prepare.json").write_text(text, encoding="utf-8")
        with pytest.raises(RunError, match=match):
            load_mimic(out)
    (out / "prepare.json").write_text('{"schema": "mimic/1", "parts": {}}', encoding="utf-8")
    with pytest.raises(RunError, match=r"prepare.json is not complete"):
        load_mimic(out)


# ---- several splits


@pytest.fixture
def pair(tmp_path):
    """The two files, and two splits of them."""
    files = synthetic_mimic.write(tmp_path, *tables(40))
    documents = prepare_splits(*files, tmp_path / "two", Preparation(seed=3, **SMALL), splits=2)
    return files, tmp_path / "two", documents


def stays_of(folder, part="train"):
    return set(parquet.read_table(folder / f"{part}.parquet")["episode"].to_pylist())


def test_splits_are_what_single_preparations_with_their_seeds_give(tmp_path, pair):
    files, two, documents = pair
    assert [document["settings"]["seed"] for document in documents] == [3, 4]
    assert sorted(path.name for path in two.iterdir()) == ["split-00", "split-01"]
    assert stays_of(two / "split-00") != stays_of(two / "split-01")
    prepare_mimic(*files, tmp_path / "alone", Preparation(seed=4, **SMALL))
    for name in ("train", "valid", "test", "discretizer"):
        assert (tmp_path / f"alone/{name}.parquet").read_bytes() == (two / f"split-01/{name}.parquet").read_bytes()
    for place, info in find_splits([two]):
        assert info == load_mimic(place).info == json.loads((place / "prepare.json").read_text(encoding="utf-8"))


def test_splits_that_are_there_are_kept_and_others_not_overwritten(pair):
    files, two, documents = pair
    more = prepare_splits(*files, two, Preparation(seed=3, **SMALL), splits=3)
    assert more[:2] == documents
    assert more[2]["settings"]["seed"] == 5
    before = (two / "split-00/prepare.json").stat().st_mtime_ns
    with pytest.raises(RunError, match=r"split-00 was prepared otherwise: k was 6, is 5\. Give the same .* --force"):
        prepare_splits(*files, two, Preparation(seed=3, **(SMALL | {"k": 5})), splits=3)
    with pytest.raises(RunError, match=r"otherwise: seed was 3, is 4; the table file has other contents\."):
        prepare_splits(files[0], files[0], two, Preparation(seed=4, **SMALL), splits=1)
    assert (two / "split-00/prepare.json").stat().st_mtime_ns == before
    forced = prepare_splits(*files, two, Preparation(seed=3, **(SMALL | {"k": 5})), splits=1, force=True)
    assert forced[0]["settings"]["k"] == 5
    with pytest.raises(RunError, match="split-00 is a single prepared split"):
        prepare_splits(*files, two / "split-00", Preparation(**SMALL))
    with pytest.raises(ParameterError, match="splits must be 1 or more"):
        prepare_splits(*files, two, Preparation(**SMALL), splits=0)


def test_folders_of_splits_are_opened_in_order(tmp_path, pair):
    _, two, _ = pair
    found = [place.name for place, _ in find_splits([two / "split-01", two / "split-00"])]
    assert found == ["split-01", "split-00"]
    (two / "split-00").rename(tmp_path / "third")
    assert [info["settings"]["seed"] for _, info in find_splits([two, tmp_path / "third"])] == [4, 3]
    (tmp_path / "third").rename(two / "split-00")
    (two / "split-01").rename(two / "split-100")
    (two / "split-00").rename(two / "split-11")
    assert [place.name for place, _ in find_splits([two])] == ["split-11", "split-100"]


def test_splits_that_are_not_of_one_study_are_refused(tmp_path, pair):
    _, two, _ = pair
    with pytest.raises(ParameterError, match=r"split-01 is there twice"):
        find_splits([two, two / ".." / "two" / "split-01"])
    shutil.copytree(two / "split-00", tmp_path / "again")
    with pytest.raises(ParameterError, match=r"again and .*split-00 are the same split, that of seed 3"):
        find_splits([two, tmp_path / "again"])
    file = shutil.copytree(two / "split-01", tmp_path / "other") / "prepare.json"
    info = json.loads(file.read_text(encoding="utf-8"))
    info["settings"]["seed"] = 7
    for field, value, match in (
        ("k", 5, "k is 5 in .*other and 6 in .*split-00"),
        ("iv_bins", "quartile", "iv_bins is quartile in .*other and clinical in"),
        ("outcome", "mortality_90d", "outcome is mortality_90d in"),
        ("split", [0.6, 0.2, 0.2], r"split is \[0.6, 0.2, 0.2\] in"),
        ("quick", False, "quick is False in"),
        ("n_init", 3, "n_init is 3 in"),
    ):
        changed = info | {"settings": info["settings"] | {field: value}}
        file.write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(ParameterError, match=match):
            find_splits([two, tmp_path / "other"])
    for field in ("cohort", "table"):
        changed = info | {"inputs": info["inputs"] | {field: {"name": "x.csv", "sha256": "ab" * 32}}}
        file.write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(ParameterError, match=f"the {field} file's sha256 is abababababab in .*other and .* in"):
            find_splits([two, tmp_path / "other"])
    file.write_text(json.dumps(info), encoding="utf-8")
    assert len(find_splits([two, tmp_path / "other"])) == 3
    (tmp_path / "empty").mkdir()
    for folder, match in (
        ("nowhere", "nowhere is not a prepared cohort: there is no such folder. Make one with"),
        ("empty", "empty is not a prepared cohort: it has no prepare.json. Make one with"),
    ):
        with pytest.raises(RunError, match=match):
            find_splits([two, tmp_path / folder])
