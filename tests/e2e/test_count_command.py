"""Counts as files, as a user makes and uses them."""

from __future__ import annotations

import json

import pytest

from commands import COLUMNS, GOALS, run, visits, write_log


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


def test_days_add_up_to_the_week(days):
    out, _ = run("count", "tuesday.csv", "--add", "monday.parquet", "-o", "both.parquet", "--json", cwd=days)
    counted = json.loads(out)
    assert (counted["files"], counted["episodes"]) == (2, 400)
    run("count", "tuesday.csv", "-o", "tuesday.parquet", *COLUMNS, *GOALS, cwd=days)
    run("merge", "monday.parquet", "tuesday.parquet", "-o", "merged.parquet", cwd=days)
    assert (days / "merged.parquet").read_bytes() == (days / "both.parquet").read_bytes()
    from_counts = json.loads(run("describe", "both.parquet", "--json", cwd=days)[0])
    from_log = json.loads(run("describe", "week.csv", *COLUMNS, *GOALS, "--json", cwd=days)[0])
    assert from_counts == from_log

    out, _ = run("improve", "both.parquet", "-o", "by-counts", "--method", "s-opt", "--json", cwd=days)
    out_of_log, _ = run(
        "improve", "week.csv", "-o", "by-log", "--method", "s-opt", *COLUMNS, *GOALS, "--json", cwd=days
    )
    for key in ("objectives", "rounds", "states_changed", "n_pairs"):
        assert json.loads(out)[key] == json.loads(out_of_log)[key], key
    assert (days / "by-counts/policy.parquet").read_bytes() == (days / "by-log/policy.parquet").read_bytes()
    # what was counted is no evidence
    _, error = run("certify", "by-counts", "tuesday.csv", code=1, cwd=days)
    assert "tuesday.csv is the log that the policy was made from" in error
    _, error = run("certify", "by-counts", "*day.csv", code=1, cwd=days)
    assert "monday.csv is a log that the policy was made from" in error


def test_the_posterior_from_counts_without_draws(days):
    """From counts to a saved run that can be shown, reported on and repeated."""
    run("count", "week.csv", "-o", "week.parquet", *COLUMNS, *GOALS, cwd=days)
    out, _ = run("improve", "week.parquet", "-o", "quick", "--form", "linearised", "--json", cwd=days)
    found = json.loads(out)
    assert found["method"] == "b-opt"
    assert "by linearisation, without draws" in found["status"]
    assert found["settings"]["form"] == "linearised"
    assert any("means per state and action" in note for note in found["notes"])
    certificate = json.loads((days / "quick/certificate.json").read_text(encoding="utf-8"))
    assert certificate["accepted"]
    assert [belief["draws"] for belief in certificate["beliefs"]] == [0] * 5
    assert any(text.startswith("By linearisation, without draws") for text in certificate["assumptions"])
    assert "by linearisation" in run("show", "quick", cwd=days)[0]
    assert "by linearisation, without draws" in (days / "quick/report.html").read_text(encoding="utf-8")
    run("verify", "quick", "--data", "week.parquet", cwd=days)
    _, error = run("certify", "quick", "monday.parquet", "--engine", "ray", code=2, cwd=days)
    assert "--posterior" in error


def test_what_counts_can_not_do_and_what_must_not_be(days):
    for options in (("--method", "h-opt"), ("--hold-out", "0.3")):
        _, error = run("improve", "monday.parquet", "-o", "RUN", *options, code=1, cwd=days)
        assert f"{options[-1] if '-opt' in options[-1] else 'hold_out'} needs episodes" in error
        assert "Give the log, or use" in error
    before = (days / "monday.parquet").read_bytes()
    _, error = run("count", "monday.csv", "--add", "monday.parquet", "-o", "monday.parquet", code=1, cwd=days)
    assert "monday.csv was counted already" in error
    _, error = run("count", "tuesday.csv", "-o", "monday.parquet", *COLUMNS, *GOALS, code=1, cwd=days)
    assert "monday.parquet exists" in error
    assert (days / "monday.parquet").read_bytes() == before
    assert not [path for path in days.iterdir() if path.name.endswith(".partial")]
