"""Commands on logs, as a user runs them: init, describe, count, merge and discretize."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet
from typer.testing import CliRunner

import synthetic_mimic
from bettersafe.cli.main import app
from bettersafe.logs.discretize import assign_states, load_discretizer
from bettersafe.tasks.toml import read_task
from commands import COLUMNS, GOALS, SOME_PAIN, call, run, run_on_one_core, visits, write_log


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """Two logs of different stays, both together, and the counts of the first."""
    folder = tmp_path_factory.mktemp("days")
    rows = visits()
    stays = sorted({row["stay"] for row in rows})
    first = set(stays[:150])
    write_log(folder / "monday.csv", [row for row in rows if row["stay"] in first])
    write_log(folder / "tuesday.csv", [row for row in rows if row["stay"] not in first])
    write_log(folder / "week.csv", rows)
    run("count", "monday.csv", "-o", "monday.parquet", *COLUMNS, *GOALS, cwd=folder)
    return folder


@pytest.mark.slow
def test_days_add_up_to_the_week(days):
    out, _ = call("count", "tuesday.csv", "--add", "monday.parquet", "-o", "both.parquet", "--json", cwd=days)
    counted = json.loads(out)
    assert (counted["files"], counted["episodes"]) == (2, 400)
    call("count", "tuesday.csv", "-o", "tuesday.parquet", *COLUMNS, *GOALS, cwd=days)
    run("merge", "monday.parquet", "tuesday.parquet", "-o", "merged.parquet", cwd=days)
    assert (days / "merged.parquet").read_bytes() == (days / "both.parquet").read_bytes()
    from_counts = json.loads(call("describe", "both.parquet", "--json", cwd=days)[0])
    from_log = json.loads(call("describe", "week.csv", *COLUMNS, *GOALS, "--json", cwd=days)[0])
    reasons = [[bool(check["reason"]) for check in each.pop("checks")] for each in (from_counts, from_log)]
    assert reasons == [[False, True], [False, False]]  # counts do not have the order of the rows
    assert from_counts == from_log

    out, _ = call("improve", "both.parquet", "-o", "by-counts", "--method", "s-opt", "--json", cwd=days)
    out_of_log, _ = call(
        "improve", "week.csv", "-o", "by-log", "--method", "s-opt", *COLUMNS, *GOALS, "--json", cwd=days
    )
    for key in ("objectives", "rounds", "states_changed", "n_pairs"):
        assert json.loads(out)[key] == json.loads(out_of_log)[key], key
    assert (days / "by-counts/policy.parquet").read_bytes() == (days / "by-log/policy.parquet").read_bytes()
    # what was counted is no evidence
    _, error = call("certify", "by-counts", "tuesday.csv", code=1, cwd=days)
    assert "tuesday.csv is the log that the policy was made from" in error
    _, error = call("certify", "by-counts", "*day.csv", code=1, cwd=days)
    assert "monday.csv is a log that the policy was made from" in error


@pytest.mark.slow
def test_the_posterior_from_counts_without_draws(days):
    """From counts to a saved run that can be shown, reported on and repeated."""
    call("count", "week.csv", "-o", "week.parquet", *COLUMNS, *GOALS, cwd=days)
    out, _ = call(
        "improve",
        "week.parquet",
        "-o",
        "quick",
        "--form",
        "linearised",
        *SOME_PAIN,
        "--zeta",
        "recovery=1",
        "--json",
        cwd=days,
    )
    found = json.loads(out)
    assert found["method"] == "b-opt"
    assert "by linearisation, without draws" in found["status"]
    assert found["settings"]["form"] == "linearised"
    assert any("means per state and action" in note for note in found["notes"])
    certificate = json.loads((days / "quick/certificate.json").read_text(encoding="utf-8"))
    assert certificate["standing"] == "proposed"
    assert [belief["draws"] for belief in certificate["beliefs"]] == [0] * 5
    assert any("linearised around its mean" in text for text in certificate["assumptions"])
    assert "by linearisation" in call("show", "quick", cwd=days)[0]
    assert "by linearisation, without draws" in (days / "quick/report.html").read_text(encoding="utf-8")
    call("verify", "quick", "--data", "week.parquet", cwd=days)
    _, error = call("certify", "quick", "monday.parquet", "--engine", "ray", code=2, cwd=days)
    assert "--posterior" in error


def test_what_counts_can_not_do_and_what_must_not_be(days):
    for options in (("--method", "h-opt"), ("--hold-out", "0.3")):
        _, error = call("improve", "monday.parquet", "-o", "RUN", *options, code=1, cwd=days)
        assert f"{options[-1] if '-opt' in options[-1] else 'hold_out'} needs episodes" in error
        assert "Give the log, or use" in error
    before = (days / "monday.parquet").read_bytes()
    _, error = call("count", "monday.csv", "--add", "monday.parquet", "-o", "monday.parquet", code=1, cwd=days)
    assert "monday.csv was counted already" in error
    _, error = call("count", "tuesday.csv", "-o", "monday.parquet", *COLUMNS, *GOALS, code=1, cwd=days)
    assert "monday.parquet exists" in error
    assert (days / "monday.parquet").read_bytes() == before
    assert not [path for path in days.iterdir() if path.name.endswith(".partial")]


def test_describe(log):
    text, _ = run("describe", log, *COLUMNS, *GOALS)
    for part in (
        "400 episodes",
        "states",
        "2",
        "pairs tried",
        "4 of 4",
        "recovery",
        "pain lower is better",
        "estimated from the data",
    ):
        assert part in text
    document = json.loads(call("describe", log, *COLUMNS, *GOALS, "--json")[0])
    assert document["episodes"] == 400
    assert document["baseline_coverage"] == pytest.approx(1.0)
    assert document["objectives"][1]["return_mean"] > 0.0  # shown as the cost that it is
    assert "Is the state enough?" in text
    assert [(check["kind"], check["against"]) for check in document["checks"]] == [
        ("return", False),
        ("step-before", False),
    ]
    assert all(check["sentence"][1:] in " ".join(text.split()) for check in document["checks"])


def test_describe_warns_of_labels_that_are_nearly_the_same(tmp_path):
    rows = [{**r, "zustand": r["zustand"].upper() if i % 2 else r["zustand"]} for i, r in enumerate(visits(60))]
    text, _ = call("describe", write_log(tmp_path / "log.csv", rows), *COLUMNS, *GOALS)
    assert "states are only" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: [{**r, "recovery": "n/a" if i == 15 else r["recovery"]} for i, r in enumerate(rows)], "line 17"),
        (lambda rows: [{k: v for k, v in r.items() if k != "zustand"} for r in rows], "--state"),
        (lambda rows: [*rows, rows[3]], "steps must be unique within an episode"),
        (lambda rows: [r for i, r in enumerate(rows) if r["block"] != 2 or i % 3], "step"),
        (lambda rows: [{**r, "pain": "inf"} for r in rows], "finite"),
    ],
    ids=["text", "missing column", "duplicate", "gap", "infinite"],
)
def test_bad_logs_get_one_sentence_and_leave_nothing(change, message, tmp_path):
    path = write_log(tmp_path / "bad.csv", change(visits(60)))
    _, error = call("improve", path, "-o", tmp_path / "run", *COLUMNS, *GOALS, code=1)
    assert error.startswith("Error: ")
    assert message in error
    assert "bad.csv" in error
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]


def test_one_column_has_one_role(log):
    _, error = call("describe", log, *COLUMNS[:-1], "zustand", *GOALS, code=1)
    assert "can't be both --state and --action" in error


def test_inconsistent_logged_probabilities_and_their_remedy(tmp_path):
    rows = [
        {"episode": e, "step": 0, "state": "s", "action": "ab"[e % 2], "r": e % 2, "baseline_prob": 0.5 if e else 0.4}
        for e in range(20)
    ]
    path = write_log(tmp_path / "log.csv", rows)
    _, error = call("describe", path, "--objective", "r", code=1)
    assert "set --baseline to estimate" in error
    call("describe", path, "--objective", "r", "--baseline", "estimate")


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

VITAL_GOALS = ("--objective", "recovery", "--objective", "pain", "--lower-is-better", "pain")


@pytest.mark.slow
def test_discretize_then_describe_and_apply_to_new_data(vitals, tmp_path):
    text, _ = run_on_one_core(
        "discretize", vitals, *WARD, "--k", 8, "--train-share", 0.75, "--quick", "-o", tmp_path / "out"
    )
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
    described, _ = run_on_one_core("describe", tmp_path / "out" / "train.parquet", *VITAL_GOALS, "--json")
    found = json.loads(described)
    assert (found["episodes"], found["rows"], found["states"], found["actions"]) == (150, 600, 8, 2)

    saved = tmp_path / "out" / "discretizer.parquet"
    printed, _ = run_on_one_core("discretize", vitals, *WARD, "--fitted", saved, "-o", tmp_path / "new", "--json")
    document = json.loads(printed)
    assert (document["k"], document["parts"]["log.parquet"]["rows"]) == (8, 800)
    assert (tmp_path / "new" / "discretizer.parquet").read_bytes() == saved.read_bytes()


@pytest.mark.slow
def test_discretize_options(vitals, tmp_path):
    named = ("--feature", "heart rate", "--feature", "lactate:log", "--k", 5, "-o", tmp_path / "out")
    run_on_one_core("discretize", vitals, *WARD, *named)
    rules = load_discretizer(tmp_path / "out" / "discretizer.parquet").features
    assert [(rule.name, rule.transform) for rule in rules] == [("heart rate", "zscore"), ("lactate", "log-zscore")]
    _, error = run_on_one_core("discretize", vitals, *WARD, *named, code=1)
    assert "replace it with --force" in error
    run_on_one_core("discretize", vitals, *WARD, code=2)


@pytest.mark.slow
def test_new_patients_get_their_states_as_the_documentation_says(tmp_path):
    files = synthetic_mimic.write(tmp_path, *synthetic_mimic.cohort(60))
    run_on_one_core("sepsis", "prepare", *files, "--k", 6, "--quick", "--splits", 1, "-o", tmp_path / "splits")
    saved = tmp_path / "splits" / "split-00" / "discretizer.parquet"
    (tmp_path / "later").mkdir()
    _, later = synthetic_mimic.write(tmp_path / "later", *synthetic_mimic.cohort(20, seed=9))
    as_said = ("--episode", "icustayid", "--step", "row-order")
    run_on_one_core("discretize", later, "--fitted", saved, *as_said, "-o", tmp_path / "new")
    log = parquet.read_table(tmp_path / "new" / "log.parquet")
    table = arrow_csv.read_csv(later)
    states = assign_states(load_discretizer(saved), table)
    order = np.lexsort((table["bloc"].to_numpy(), table["icustayid"].to_numpy()))
    assert log["state"].to_pylist() == states[order].tolist()


def test_init(tmp_path, monkeypatch):
    rows = [
        {{"zustand": "state", "what was done": "action"}.get(name, name): value for name, value in row.items()}
        for row in visits(60)
    ]
    write_log(tmp_path / "ward log.csv", rows)
    monkeypatch.chdir(tmp_path)
    text = CliRunner().invoke(app, ["init", "ward log.csv", "-o", "my task.toml"]).stdout
    assert "bettersafe describe --task 'my task.toml'" in text
    assert 'lower is better   its name says "pain"' in text
    assert [o.name for o in read_task("my task.toml").objectives] == ["recovery", "pain"]
    done = CliRunner().invoke(
        app, ["improve", "--task", "my task.toml", "--epsilon", "0.5", "--no-report", "-o", "RUN"]
    )
    assert done.exit_code == 0
    assert "--force" in run("init", "ward log.csv", "-o", "my task.toml", code=1)[1]
    assert "there is no file" in str(CliRunner().invoke(app, ["init", "gone.csv"]).exception)
    assert CliRunner().invoke(app, ["init"]).exit_code == 2
