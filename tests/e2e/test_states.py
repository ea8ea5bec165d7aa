"""`discretize` and `sepsis prepare` as a user runs them, and the other commands on what they leave behind."""

from __future__ import annotations

import csv
import json
from functools import partial

import numpy as np
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet

import commands
import synthetic_mimic
from bettersafe.logs.discretize import assign_states, load_discretizer

run = partial(commands.run, OMP_NUM_THREADS="1")


@pytest.fixture(scope="module")
def vitals(tmp_path_factory):
    """200 episodes of 4 rows with two features, an action and two rewards."""
    path = tmp_path_factory.mktemp("vitals") / "vital signs.csv"
    rng = np.random.default_rng(0)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["stay", "block", "heart rate", "lactate", "dose", "recovery", "pain"])
        for stay in range(200):
            for block in range(4):
                rate, dose = rng.normal(80, 10), rng.choice(["none", "some"])
                writer.writerow([stay, block, rate, rng.exponential(1), dose, int(rate < 80), int(dose == "some")])
    return path


WARD = ("--episode", "stay", "--step", "block", "--action", "dose", "--objective", "recovery", "--objective", "pain")
GOALS = ("--objective", "recovery", "--objective", "pain", "--lower-is-better", "pain")


def test_discretize_then_describe_and_apply_to_new_data(vitals, tmp_path):
    text, _ = run("discretize", vitals, *WARD, "--k", 8, "--train-share", 0.75, "--quick", "-o", tmp_path / "out")
    for part in (
        "8 states from 2 features",
        "zscore: heart rate, lactate",
        "copied: recovery, pain",
        "train.parquet",
    ):
        assert part in text
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "discretizer.parquet", "test.parquet", "train.parquet",
    ]  # fmt: skip
    described, _ = run("describe", tmp_path / "out" / "train.parquet", *GOALS, "--json")
    found = json.loads(described)
    assert (found["episodes"], found["rows"], found["states"], found["actions"]) == (150, 600, 8, 2)

    saved = tmp_path / "out" / "discretizer.parquet"
    printed, _ = run("discretize", vitals, *WARD, "--fitted", saved, "-o", tmp_path / "new", "--json")
    document = json.loads(printed)
    assert (document["k"], document["parts"]["log.parquet"]["rows"]) == (8, 800)
    assert (tmp_path / "new" / "discretizer.parquet").read_bytes() == saved.read_bytes()


def test_discretize_options(vitals, tmp_path):
    named = ("--feature", "heart rate", "--feature", "lactate:log", "--k", 5, "-o", tmp_path / "out")
    run("discretize", vitals, *WARD, *named)
    rules = load_discretizer(tmp_path / "out" / "discretizer.parquet").features
    assert [(rule.name, rule.transform) for rule in rules] == [("heart rate", "zscore"), ("lactate", "log-zscore")]
    _, error = run("discretize", vitals, *WARD, *named, code=1)
    assert "replace it with --force" in error
    run("discretize", vitals, *WARD, code=2)


def test_new_patients_get_their_states_as_the_documentation_says(tmp_path):
    files = synthetic_mimic.write(tmp_path, *synthetic_mimic.cohort(60))
    run("sepsis", "prepare", *files, "--k", 6, "--quick", "--splits", 1, "-o", tmp_path / "splits")
    saved = tmp_path / "splits" / "split-00" / "discretizer.parquet"
    (tmp_path / "later").mkdir()
    _, later = synthetic_mimic.write(tmp_path / "later", *synthetic_mimic.cohort(20, seed=9))
    as_said = ("--episode", "icustayid", "--step", "row-order")
    run("discretize", later, "--fitted", saved, *as_said, "-o", tmp_path / "new")
    log = parquet.read_table(tmp_path / "new" / "log.parquet")
    table = arrow_csv.read_csv(later)
    states = assign_states(load_discretizer(saved), table)
    order = np.lexsort((table["bloc"].to_numpy(), table["icustayid"].to_numpy()))
    assert log["state"].to_pylist() == states[order].tolist()


def test_sepsis_prepare_then_improve(tmp_path):
    files = synthetic_mimic.write(tmp_path, *synthetic_mimic.cohort(300))
    out = tmp_path / "out"
    text, _ = run("sepsis", "prepare", *files, "--k", 12, "--starts", 1, "--iv-bins", "quartile", "-o", out)
    for part in ("300 stays", "vasopressor: cut at", "fluid: cut at", "not the paper's cohort"):
        assert part in text
    settings = json.loads((out / "prepare.json").read_text(encoding="utf-8"))["settings"]
    assert (settings["k"], settings["n_init"], settings["iv_bins"], settings["quick"]) == (12, 1, "quartile", False)
    described, _ = run("describe", out / "train.parquet", "--objective", "survival", "--rare-below", 10, "--json")
    found = json.loads(described)
    assert (found["episodes"], found["states"]) == (210, 12)
    run("improve", out / "train.parquet", "--objective", "survival", "--rare-below", 10, "-o", tmp_path / "run")
    _, error = run("sepsis", "prepare", files[0], files[0], "-o", tmp_path / "other", code=1)
    assert "has the columns of the stays, not those of the four-hour blocks" in " ".join(error.split())
    _, error = run("sepsis", "prepare", *files[::-1], "-o", tmp_path / "other", code=1)
    assert "these look swapped" in error
    run("sepsis", "prepare", *files, code=2)
