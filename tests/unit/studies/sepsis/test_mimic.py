"""The MIMIC-III route on made-up patients: each published step by hand or by a twin, and what must be refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

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
from bettersafe.studies.sepsis.mimic_tables import FEATURES
from mimic_cases import SMALL, prepare, refused, tables

pytestmark = pytest.mark.usefixtures("one_thread")


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
        f"{counts['rows_of_other_stays']} rows belong to stays outside the cohort and were left out",
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
    assert "no row is in bin 3, 4 of input_4hourly (0: no dose, 1 to 4: increasing doses)" in notes
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


def test_bad_cohorts_and_settings_are_refused(tmp_path):
    ids = tables(20)[0]["icustayid"]
    refused(
        tmp_path, "icustayid must be a whole number above 200000; got 1 .* line 2", listed={"icustayid": ids - 200_000}
    )
    refused(
        tmp_path, "stay 200001 occurs a second time in .*, line 3", listed={"icustayid": np.append(ids[0], ids[:-1])}
    )
    refused(tmp_path, "no stay of sepsis_mimiciii.csv has a row", listed={"icustayid": ids + 50_000})
    refused(tmp_path, "it also has more", listed={"more": ids})
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
    with pytest.raises(RunError, match="replace it with `force`"):
        prepare(tmp_path, listed, blocks)
    prepare(tmp_path, listed, blocks, force=True)
    out = tmp_path / "out"
    (out / "valid.parquet").write_bytes((out / "test.parquet").read_bytes())
    with pytest.raises(RunError, match=r"valid.parquet does not match prepare.json"):
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
    with pytest.raises(RunError, match=r"split-00 was prepared differently: k was 6, is 5\. Give the same .* `force`"):
        prepare_splits(*files, two, Preparation(seed=3, **(SMALL | {"k": 5})), splits=3)
    with pytest.raises(RunError, match=r"differently: seed was 3, is 4; the table file has other contents\."):
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
    with pytest.raises(ParameterError, match=r"split-01 is given twice"):
        find_splits([two, two / ".." / "two" / "split-01"])
    shutil.copytree(two / "split-00", tmp_path / "again")
    with pytest.raises(ParameterError, match=r"again and .*split-00 have the same seed 3"):
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


def test_cohort_statistics_by_hand(tmp_path):
    """The paper's table of the cohort: stays, % female, mean age in years and mean hours, of those who survived and who died."""
    listed, blocks = tables(40)
    found = prepare(tmp_path, listed, blocks, outcome="mortality_90d")["statistics"]
    stays = {}
    for i, stay in enumerate(blocks["icustayid"]):
        stays.setdefault(int(stay), []).append(i)
    kept = {int(stay) - 200_000 for stay in listed["icustayid"]} | {int(stay) for stay in listed["icustayid"]}
    for group, died in (("survivors", 0), ("non-survivors", 1)):
        own = [rows for stay, rows in stays.items() if stay in kept and blocks["mortality_90d"][rows[0]] == died]
        assert found[group]["stays"] == len(own)
        assert found[group]["female"] == pytest.approx(100 * np.mean([blocks["gender"][rows[0]] for rows in own]))
        assert found[group]["age"] == pytest.approx(np.mean([blocks["age"][rows[0]] / 365.25 for rows in own]))
        assert found[group]["hours"] == pytest.approx(np.mean([4 * len(rows) for rows in own]))
