"""The map from features to states: every rule by hand, the nearest centre by a slow twin, and what must be refused."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from bettersafe._system.files import whole_folder
from bettersafe.errors import DataError, ParameterError, RunError
from bettersafe.logs import discretize
from bettersafe.logs.dataset import Columns, Objective
from bettersafe.logs.discretize import (
    Discretizer,
    FeatureRule,
    assign_states,
    discretize_log,
    explained_share,
    fit_discretizer,
    load_discretizer,
    save_discretizer,
)
from bettersafe.logs.source import read_dataset
from feature_logs import FEATURES, WARD, feature_rows, write_rows

pytestmark = pytest.mark.usefixtures("one_thread")


def map_of(centers, *transforms):
    rules = tuple(FeatureRule(name=f"x{j}", transform=how) for j, how in enumerate(transforms))
    return Discretizer(features=rules, centers=np.array(centers, dtype=float))


def blobs(n=60, seed=0):
    """Three far clusters in two features."""
    rng = np.random.default_rng(seed)
    where = np.arange(n) % 3
    return where, {"a": 10.0 * where + rng.normal(0, 0.1, n), "b": np.exp(3.0 * where) + rng.normal(0, 0.01, n)}


# ---- rules
def test_statistics_by_hand():
    table = {"age": [1.0, 2.0, 6.0], "dose": [0.9, 9.9, 0.0], "sex": [0, 1, 0], "raw": [5.0, 7.0, 9.0]}
    wanted = ["age", ("dose", "log-zscore"), ("sex", "binary"), ("raw", "none")]
    fitted = fit_discretizer(table, features=wanted, k=3)
    age, dose, sex, raw = fitted.features
    assert (age.mean, age.sd) == (3.0, pytest.approx(math.sqrt(7.0)))  # (4 + 1 + 9) / (3 − 1)
    logs = [0.0, math.log(10.0), math.log(0.1)]
    mean = sum(logs) / 3
    assert dose.mean == pytest.approx(mean)
    assert dose.sd == pytest.approx(math.sqrt(sum((x - mean) ** 2 for x in logs) / 2))
    assert (sex.mean, sex.sd, raw.mean, raw.sd) == (0.0, 1.0, 0.0, 1.0)
    # As many states as rows: the centres are the transformed rows themselves.
    rows = {
        tuple(np.round([(a - 3.0) / math.sqrt(7.0), (d - mean) / dose.sd, s - 0.5, r], 9))
        for a, d, s, r in zip(table["age"], logs, table["sex"], table["raw"], strict=True)
    }
    assert {tuple(center) for center in np.round(fitted.centers, 9)} == rows


def test_three_clusters_are_found_by_either_method():
    where, table = blobs()
    for quick in (False, True):
        states = assign_states(fit_discretizer(table, features=["a", ("b", "log-zscore")], k=3, quick=quick), table)
        assert len(set(zip(where, states, strict=True))) == 3


def test_features_default_to_all_columns_and_arrow_is_a_table():
    _, table = blobs()
    one = fit_discretizer(table, k=3)
    other = fit_discretizer(pa.table(table), k=3)
    assert one.names == other.names == ("a", "b")
    np.testing.assert_array_equal(one.centers, other.centers)
    array = np.stack([table["a"], table["b"]], axis=1)
    np.testing.assert_array_equal(assign_states(one, array), assign_states(other, pa.table(table)))


def test_the_seed_decides():
    rng = np.random.default_rng(0)
    table = {"a": rng.normal(size=300), "b": rng.normal(size=300)}
    first, again, other = (fit_discretizer(table, k=20, rng=s, n_init=1).centers for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


# ---- the nearest centre
@pytest.mark.parametrize("block", [1, 1000, 1 << 26])
def test_nearest_centre_against_a_slow_twin(monkeypatch, block):
    monkeypatch.setattr(discretize, "BLOCK_BYTES", block)
    rng = np.random.default_rng(1)
    rules = (
        FeatureRule(name="u", transform="zscore", mean=2.0, sd=3.0),
        FeatureRule(name="v", transform="log-zscore", mean=0.5, sd=0.7),
        FeatureRule(name="w", transform="binary"),
    )
    centers = rng.normal(size=(7, 3))
    u, v, w = rng.normal(2, 3, 200), rng.exponential(1, 200), rng.integers(0, 2, 200)
    twin = []
    for x, y, z in zip(u, v, w, strict=True):
        point = ((x - 2.0) / 3.0, (math.log(0.1 + y) - 0.5) / 0.7, z - 0.5)
        distances = [sum((p - c) ** 2 for p, c in zip(point, center, strict=True)) for center in centers]
        twin.append(distances.index(min(distances)))
    found = assign_states(Discretizer(features=rules, centers=centers), {"w": w, "v": v, "u": u, "extra": u})
    assert found.dtype == np.int64
    assert found.tolist() == twin


def test_ties_go_to_the_lowest_state_and_no_rows_give_no_states():
    fitted = map_of([[0.0], [2.0]], "none")
    assert assign_states(fitted, {"x0": [1.0, 1.5]}).tolist() == [0, 1]
    assert assign_states(fitted, {"x0": np.array([])}).tolist() == []


def test_variance_kept_by_hand():
    fitted = map_of([[0.0], [10.0]], "none")
    values = np.array([[-1.0], [1.0], [9.0], [11.0]])
    # within: 4 · 1; total about the mean 5: 36 + 16 + 16 + 36
    assert explained_share(fitted, values, np.array([0, 0, 1, 1])) == pytest.approx(1 - 4 / 104)
    assert math.isnan(explained_share(fitted, values[:1], np.array([0])))


# ---- saved maps
def test_saved_map_is_the_same_map(tmp_path):
    _, table = blobs()
    fitted = fit_discretizer(table, features=["a", ("b", "log-zscore")], k=5)
    save_discretizer(fitted, tmp_path / "map.parquet")
    loaded = load_discretizer(tmp_path / "map.parquet")
    assert loaded.features == fitted.features
    np.testing.assert_array_equal(loaded.centers, fitted.centers)
    np.testing.assert_array_equal(assign_states(loaded, table), assign_states(fitted, table))
    assert [path.name for path in tmp_path.iterdir()] == ["map.parquet"]
    assert not loaded.centers.flags.writeable


def test_files_that_are_no_map_are_refused(tmp_path):
    path = tmp_path / "map.parquet"
    with pytest.raises(DataError, match="there is no file"):
        load_discretizer(path)
    path.write_text("hello", encoding="utf-8")
    with pytest.raises(DataError, match="can't be read as a saved map"):
        load_discretizer(path)
    parquet.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(DataError, match="schema 'none'"):
        load_discretizer(path)
    good = {"name": "a", "transform": "none", "mean": 0.0, "sd": 1.0}
    for rule, states, center in (
        (good, [0, 2], [[1.0], [2.0]]),  # a state is missing
        (good, [0, 1], [[1.0, 2.0], [2.0, 3.0]]),  # more coordinates than features
        (good | {"sd": 0.0}, [0, 1], [[1.0], [2.0]]),
        (good | {"transform": "cube"}, [0, 1], [[1.0], [2.0]]),
        (good | {"more": 1}, [0, 1], [[1.0], [2.0]]),
        (good, [0, 1], [[1.0], [math.nan]]),
    ):
        metadata = {"bettersafe.schema": "discretizer/1", "bettersafe.features": json.dumps([rule])}
        parquet.write_table(pa.table({"state": states, "center": center}).replace_schema_metadata(metadata), path)
        with pytest.raises(DataError, match="is not a complete map"):
            load_discretizer(path)


def test_a_map_that_can_not_be_written_says_so(tmp_path):
    with pytest.raises(RunError, match="can't be written"):
        save_discretizer(map_of([[0.0]], "none"), tmp_path / "nowhere" / "map.parquet")


# ---- what is refused
@pytest.mark.parametrize(
    ("transform", "bad", "expected"),
    [
        ("zscore", math.nan, "'x0' must be a finite number; got nan in row 3"),
        ("none", math.inf, "'x0' must be a finite number; got inf in row 3"),
        ("log-zscore", -0.1, "'x0' must be above −0.1 .* got -0.1 in row 3"),
        ("binary", 0.5, "'x0' must be 0 or 1; got 0.5 in row 3"),
    ],
)
def test_bad_cells_are_named_when_fitting_and_when_applying(transform, bad, expected):
    column = [0.0, 1.0, bad, 1.0]
    with pytest.raises(DataError, match=expected):
        fit_discretizer({"x0": column}, features=[("x0", transform)], k=2)
    with pytest.raises(DataError, match=expected):
        assign_states(map_of([[0.0]], transform), {"x0": column})


def test_bad_tables_are_refused():
    fitted = map_of([[0.0, 0.0]], "none", "none")
    with pytest.raises(DataError, match="lacks the feature 'x1'; it has x0"):
        assign_states(fitted, {"x0": [1.0]})
    with pytest.raises(DataError, match=r"2 columns \(x0, x1\); got shape \(4, 3\)"):
        assign_states(fitted, np.zeros((4, 3)))
    with pytest.raises(DataError, match="'x0' must be a column of numbers"):
        assign_states(fitted, {"x0": ["high"], "x1": [1.0]})
    with pytest.raises(DataError, match="'x1' must be a finite number; got nan in row 2"):
        assign_states(fitted, pa.table({"x0": [1, 2], "x1": [1.0, None]}))


def test_bad_settings_are_refused():
    _, table = blobs()
    with pytest.raises(DataError, match="61 states need at least as many training rows; got 60"):
        fit_discretizer(table, k=61)
    with pytest.raises(ParameterError, match="k must be at least 1"):
        fit_discretizer(table, k=0)
    with pytest.raises(ParameterError, match="name the features of an array"):
        fit_discretizer(np.zeros((3, 2)), k=1)
    with pytest.raises(ParameterError, match="the transform of a must be one of"):
        fit_discretizer(table, features=[("a", "cube")], k=1)
    with pytest.raises(ParameterError, match="different names; got a, a"):
        fit_discretizer(table, features=["a", "a"], k=2)
    with pytest.raises(DataError, match="'c' has the same value in every training row"):
        fit_discretizer({"c": [3.0, 3.0]}, k=1)
    with pytest.raises(DataError, match="only 2 of 4 states are different"):
        fit_discretizer({"a": [0.0, 1.0] * 10}, k=4)


def test_without_scikit_learn_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    _, table = blobs()
    with pytest.raises(
        ParameterError, match=r"needs scikit-learn; install it with: pip install 'bettersafe\[sepsis\]'"
    ):
        fit_discretizer(table, k=3)
    assert assign_states(map_of([[0.0, 0.0]], "none", "none"), np.zeros((2, 2))).tolist() == [0, 0]


# ---- folders
def test_a_folder_has_its_name_only_when_whole(tmp_path):
    target = tmp_path / "deep" / "out"

    def half_done():
        with whole_folder(target, mark="done") as work:
            (work / "done").write_text("half", encoding="utf-8")
            raise KeyError

    with pytest.raises(KeyError):
        half_done()
    assert not list((tmp_path / "deep").iterdir())
    for text, force in (("one", False), ("two", True)):
        with whole_folder(target, mark="done", force=force) as work:
            (work / "done").write_text(text, encoding="utf-8")
    assert (target / "done").read_text(encoding="utf-8") == "two"
    assert [path.name for path in target.parent.iterdir()] == ["out"]
    with pytest.raises(RunError, match="replace it with `force`"), whole_folder(target, mark="done"):
        pass
    with pytest.raises(RunError, match="it holds something else"), whole_folder(target, mark="other", force=True):
        pass
    with pytest.raises(RunError, match="can't be written"), whole_folder(target / "done" / "x", mark="done"):
        pass


def test_every_row_gets_its_state_and_the_rest_is_passed_on(tmp_path):
    rows = feature_rows()
    data = write_rows(tmp_path / "ward.csv", rows)
    found = discretize_log(data, tmp_path / "out", k=4, columns=WARD, objectives=["reward"])
    assert found.discretizer.names == ("pulse", "lactate")
    assert found.passed_on == ("terminated", "reward", "remark")
    log = parquet.read_table(tmp_path / "out" / "log.parquet")
    assert log.column_names == ["episode", "step", "state", "action", "terminated", "reward", "remark"]
    key = {(row["stay"], row["block"]): row for row in rows}
    assert [(r["episode"], r["step"]) for r in log.to_pylist()] == sorted(key)
    saved = load_discretizer(tmp_path / "out" / "discretizer.parquet")
    for row in log.to_pylist():
        was = key[row["episode"], row["step"]]
        assert (row["action"], row["reward"], row["remark"]) == (was["dose"], was["reward"], was["remark"])
        assert row["terminated"] is (was["died"] == 1)
        assert row["state"] == assign_states(saved, {name: [was[name]] for name in saved.names})[0]
    part = found.parts["log.parquet"]
    assert (part.rows, part.episodes, part.states) == (90, 30, 4)
    assert part.explained > 0.5
    dataset = read_dataset(tmp_path / "out" / "log.parquet", objectives=[Objective(name="reward")])
    assert (dataset.n_rows, dataset.n_episodes) == (90, 30)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_formats_and_the_order_of_rows_do_not_matter(tmp_path, suffix):
    rows = feature_rows()
    expected = discretize_log(
        write_rows(tmp_path / "ward.csv", rows), tmp_path / "one", k=4, columns=WARD, features=FEATURES, train_share=0.7
    )
    path = tmp_path / f"again.{suffix}"
    if suffix == "csv":
        write_rows(path, rows[::-1])
    elif suffix == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows[::-1]), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[::-1]), encoding="utf-8")
    found = discretize_log(path, tmp_path / "two", k=4, columns=WARD, features=FEATURES, train_share=0.7)
    np.testing.assert_array_equal(found.discretizer.centers, expected.discretizer.centers)
    for name in ("train", "test"):
        one, two = (parquet.read_table(tmp_path / d / f"{name}.parquet").to_pylist() for d in ("one", "two"))
        assert one == two


def test_the_map_comes_from_training_episodes_alone(tmp_path):
    rows = feature_rows(60)
    data = write_rows(tmp_path / "ward.csv", rows)
    settings = {"k": 4, "columns": WARD, "features": FEATURES, "train_share": 0.7, "rng": 3}
    first = discretize_log(data, tmp_path / "one", **settings)
    test = set(parquet.read_table(tmp_path / "one" / "test.parquet")["episode"].to_pylist())
    train = set(parquet.read_table(tmp_path / "one" / "train.parquet")["episode"].to_pylist())
    assert (len(train), len(test), train & test) == (42, 18, set())
    changed = [row | {"pulse": 1e6, "lactate": 0.0} if row["stay"] in test else row for row in rows]
    second = discretize_log(write_rows(tmp_path / "changed.csv", changed), tmp_path / "two", **settings)
    assert second.discretizer.features == first.discretizer.features
    np.testing.assert_array_equal(second.discretizer.centers, first.discretizer.centers)
    files = [(tmp_path / out / "train.parquet").read_bytes() for out in ("one", "two")]
    assert files[0] == files[1]
    # ... and a change of a training row does show.
    stay = min(train)
    changed = [row | {"pulse": 1e6} if row["stay"] == stay else row for row in rows]
    third = discretize_log(write_rows(tmp_path / "changed.csv", changed), tmp_path / "three", **settings)
    assert third.discretizer.features != first.discretizer.features


def test_a_fitted_map_gives_new_data_the_same_states(tmp_path):
    data = write_rows(tmp_path / "ward.csv", feature_rows())
    discretize_log(data, tmp_path / "one", k=4, columns=WARD, features=FEATURES)
    saved = tmp_path / "one" / "discretizer.parquet"
    again = discretize_log(data, tmp_path / "two", columns=WARD, fitted=saved)
    assert again.discretizer.n_states == 4
    for name in ("log.parquet", "discretizer.parquet"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    with pytest.raises(ParameterError, match="leave out `features` and `train_share`"):
        discretize_log(data, tmp_path / "three", columns=WARD, fitted=saved, train_share=0.5)
    poor = write_rows(tmp_path / "poor.csv", [{k: v for k, v in row.items() if k != "pulse"} for row in feature_rows()])
    with pytest.raises(DataError, match=r"poor.csv has no column 'pulse'"):
        discretize_log(poor, tmp_path / "three", columns=WARD, fitted=saved)


def test_a_fitted_map_needs_no_actions(tmp_path):
    data = write_rows(tmp_path / "ward.csv", feature_rows())
    discretize_log(data, tmp_path / "one", k=4, columns=WARD, features=FEATURES)
    saved = tmp_path / "one" / "discretizer.parquet"
    waiting = write_rows(
        tmp_path / "waiting.csv", [{k: v for k, v in row.items() if k != "dose"} for row in feature_rows()]
    )
    unnamed = Columns(episode="stay", step="block")
    found = discretize_log(waiting, tmp_path / "two", columns=unnamed, fitted=saved)
    with_actions = parquet.read_table(tmp_path / "one" / "log.parquet")
    log = parquet.read_table(tmp_path / "two" / "log.parquet")
    assert log.column_names[:3] == ["episode", "step", "state"]
    assert "action" not in log.column_names
    assert set(found.passed_on) == set(log.column_names[3:])
    assert log["state"].to_pylist() == with_actions["state"].to_pylist()
    with pytest.raises(DataError, match=r"has no column 'dose'.*`action`"):  # one that was named must be there
        discretize_log(waiting, tmp_path / "three", columns=WARD, fitted=saved)
    with pytest.raises(DataError, match=r"has no column 'action'.*`action`"):  # and a new map is fitted for a log
        discretize_log(waiting, tmp_path / "three", k=4, columns=unnamed, features=FEATURES)
