"""evaluate, certify, verify and h-opt, run as a user runs them."""

from __future__ import annotations

import json
import math
import shutil

import pyarrow.parquet as pq
import pytest

from bettersafe.runs.evaluation_file import read_evaluation
from bettersafe.runs.run import Decision, load_run
from commands import COLUMNS, GOALS, run, visits, write_log

RANGES = ("--reward-range", "recovery=0..1", "--reward-range", "pain=0..4")


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """A log, a later log of the same ward, and a later log of another ward where treating harms."""
    folder = tmp_path_factory.mktemp("logs")
    harm = visits(600, seed=2)
    for row in harm:
        if row["what was done"] == "treat “now”":
            row["recovery"], row["pain"] = 0, 3.5
    return (
        write_log(folder / "log.csv", visits(400, seed=0)),
        write_log(folder / "later.csv", visits(600, seed=1)),
        write_log(folder / "elsewhere.csv", harm),
    )


@pytest.fixture(scope="module")
def made(logs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "RUN"
    run("improve", logs[0], "-o", folder, *COLUMNS, *GOALS, "--epsilon", 0.5)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "RUN")


def test_evaluate_a_run_and_a_policy_file(made, logs, tmp_path):
    text, _ = run("evaluate", made, logs[1])
    for part in (
        "as logged",
        "cwpdis",
        "wdr",
        "model",
        "recovery",
        "pain, lower is better",
        "Can be used",
    ):
        assert part in text
    document = json.loads(run("evaluate", made, logs[1], "--json", "-o", tmp_path / "e.parquet")[0])
    rows = {(row["estimator"], row["objective"]): row for row in document["rows"]}
    assert len(rows) == 8 * 2
    assert rows["dr", "recovery"]["value"] > rows["logged", "recovery"]["value"]
    assert rows["dr", "pain"]["low"] < rows["dr", "pain"]["value"] < rows["dr", "pain"]["high"]
    assert rows["dr", "pain"]["value"] > 0.0  # as the cost that it is
    assert rows["model", "pain"]["low"] is None
    assert len(read_evaluation(tmp_path / "e.parquet")) == 16
    # the same policy as a file of its own; the baseline is then estimated from the later log alone
    pq.write_table(
        pq.read_table(made / "policy.parquet", columns=["state", "action", "probability"]), tmp_path / "p.parquet"
    )
    other = json.loads(run("evaluate", tmp_path / "p.parquet", logs[1], *COLUMNS, *GOALS, "--json")[0])
    value = next(r["value"] for r in other["rows"] if (r["estimator"], r["objective"]) == ("dr", "recovery"))
    assert value == pytest.approx(rows["dr", "recovery"]["value"], rel=0.05)
    assert "made from" in run("evaluate", made, logs[0])[0]
    assert "has its objectives" in " ".join(run("evaluate", made, logs[1], *GOALS, code=2)[1].split())


def test_certify_accepts_what_is_better_and_refuses_what_is_worse(folder, logs):
    assert load_run(folder).certificate.evidence == "theory"
    text, _ = run("certify", folder, logs[1])
    assert "Accepted" in text
    assert "Approximate" in text
    assert "was estimated" in text
    certificate = load_run(folder).certificate
    assert certificate.accepted
    assert certificate.theory is not None
    assert certificate.data["tested_on"]["episodes"] == 600
    assert {row["estimator"] for row in load_run(folder).evaluation} >= {"is", "dr", "model"}
    # not twice, unless one knows why; and where treating harms, the same policy is refused
    assert "tested already" in run("certify", folder, logs[2], code=1)[1]
    text, _ = run("certify", folder, logs[2], "--force", code=3)
    assert "Keep the baseline" in text
    assert "recovery" in text
    assert not load_run(folder).certificate.accepted
    assert "Keep the baseline" in run("show", folder)[0]
    assert load_run(folder).decision is Decision.KEEP_BASELINE
    run("report", folder)
    run("verify", folder, code=3)
    # nor does the posterior take the place of a test
    message = " ".join(run("certify", folder, logs[0], "--posterior", code=1)[1].split())
    assert "tested on held-out episodes, and did not pass" in message
    run("certify", folder, logs[0], "--posterior", "--force", "--draws", "40")
    assert load_run(folder).decision is Decision.USE_POLICY
    assert "tested already" in run("certify", folder, logs[1], code=1)[1]


def test_certify_options(folder, logs):
    known = run("certify", folder, logs[1], "--threshold", "recovery=100", "--json", code=3)[0]
    document = json.loads(known)
    assert document["verdict"].startswith("No solution found")
    assert document["thresholds"][0]["shortfall"] > 90
    for options, code, message in (
        (("--zeta", "recovry=1"), 1, "Did you mean 'recovery'"),
        (("--zeta", "recovery"), 2, "NAME=VALUE"),
        (("--bound", "betting"), 1, "no useful least value"),
        (("--bound", "betting", "--estimator", "is"), 1, "--reward-range"),
        (("--bound", "hoeffding", "--estimator", "wis"), 1, "independent"),
        (("--estimator", "magic"), 1, "estimator must be one of"),
        (("--folds", "1"), 1, "folds must be at least 2"),
    ):
        assert message in " ".join(run("certify", folder, logs[1], "--force", *options, code=code)[1].split())
    assert "made from" in run("certify", folder, logs[0], "--force", code=1)[1]


def test_one_byte_changed_anywhere_is_found(folder, logs):
    run("certify", folder, logs[1])
    text, _ = run("verify", folder, "--data", logs[1])
    assert "was repeated" in text
    assert "not the log" in run("verify", folder, "--data", logs[2], code=1)[1]
    for name in ("policy.parquet", "certificate.json", "evaluation.parquet", "run.json"):
        file = folder / name
        content = file.read_bytes()
        changed = bytearray(content)
        if name == "run.json":  # whose settings are free text: what must not change is what it says of the policy
            changed = bytearray(content.replace(b'"policy_sha256": "', b'"policy_sha256": "0', 1))
        else:
            changed[len(changed) // 2] ^= 1
        file.write_bytes(bytes(changed))
        assert str(folder) in run("verify", folder, code=1)[1].replace("\n", "")
        file.write_bytes(content)
    run("verify", folder)


def test_every_byte_of_the_policy_counts(folder):
    """A flip at any of many places, footer included."""
    from bettersafe.errors import RunError
    from bettersafe.tasks.verify import verify_run

    file = folder / "policy.parquet"
    original = file.read_bytes()
    for place in range(0, len(original), max(1, len(original) // 200)):
        changed = bytearray(original)
        changed[place] ^= 1
        file.write_bytes(bytes(changed))
        with pytest.raises(RunError):
            verify_run(folder)
    file.write_bytes(original)
    verify_run(folder)


def test_runs_without_a_certificate(folder, logs, tmp_path):
    (folder / "certificate.json").unlink()
    assert "no certificate" in run("verify", folder, code=1)[1]
    same = tmp_path / "same"
    run("improve", logs[0], "-o", same, *COLUMNS, *GOALS, "--epsilon", 0, code=3)
    assert load_run(same).certificate is None
    assert "nothing to certify" in run("certify", same, logs[1], code=1)[1]


def test_h_opt_and_hold_out(logs, tmp_path):
    text, _ = run(
        "improve",
        logs[1],
        "-o",
        tmp_path / "h",
        *COLUMNS,
        *GOALS,
        "--method",
        "h-opt",
        "--seed",
        3,
        "--zeta",
        "pain=0.3",
    )
    assert "passed the safety test" in text
    assert "Accepted" in text
    saved = load_run(tmp_path / "h")
    assert saved.certificate.evidence == "safety-test"
    assert saved.certificate.seed == 3
    assert saved.certificate.data["tested_on"]["episodes"] == 180
    run("verify", tmp_path / "h")
    again = tmp_path / "again"
    run("improve", logs[1], "-o", again, *COLUMNS, *GOALS, "--method", "h-opt", "--seed", 3, "--zeta", "pain=0.3")
    assert (again / "policy.parquet").read_bytes() == (tmp_path / "h" / "policy.parquet").read_bytes()

    few = write_log(tmp_path / "few.csv", visits(12, seed=5))
    text, _ = run("improve", few, "-o", tmp_path / "n", *COLUMNS, *GOALS, "--method", "h-opt", code=3)
    assert "No solution found" in text
    assert not load_run(tmp_path / "n").has_proposal
    assert not load_run(tmp_path / "n").certificate.accepted

    options = ("--hold-out", 0.4, "--epsilon", 0.5, *RANGES, "--zeta", "recovery=0.5", "--zeta", "pain=2")
    text, _ = run(
        "improve", logs[1], "-o", tmp_path / "s", *COLUMNS, *GOALS, *options, "--discount", 0.5, "--bound", "betting",
        "--estimator", "pdis",
    )  # fmt: skip
    certificate = load_run(tmp_path / "s").certificate
    assert certificate.settings["bound"] == "betting"
    assert certificate.grade == "approximate"  # the baseline was estimated
    assert all(math.isfinite(f.lower_bound) for f in certificate.findings)
    for wrong, message in (
        (("--hold-out", 1.5), "share of the episodes"),
        (("--method", "h-opt", "--hold-out", 0), "must be more than 0"),
        (("--method", "h-opt", "--threshold", "pain=1"), "certify RUN HELD_OUT"),
        (("--reward-range", "pain=0..1"), "Correct the range"),
    ):
        assert message in " ".join(
            run("improve", logs[0], "-o", tmp_path / "x", *COLUMNS, *GOALS, *wrong, code=1)[1].split()
        )


def test_logged_probabilities_make_a_finite_sample_promise(tmp_path):
    """A known baseline, short episodes with bounded rewards, and betting: the grade is finite-sample."""

    def log(name, n, seed):
        rows = visits(n, seed)
        for row in rows:
            row["baseline_prob"] = 0.6 if row["what was done"] == "wait & see" else 0.4
        return write_log(tmp_path / name, rows)

    first, later = log("a.csv", 300, 0), log("b.csv", 4000, 1)
    goals = ("--objective", "recovery", "--discount", 0.3, "--reward-range", "recovery=0..1")
    run("improve", first, "-o", tmp_path / "r", *COLUMNS, *goals, "--epsilon", 1)
    document = json.loads(
        run(
            "certify",
            tmp_path / "r",
            later,
            "--bound",
            "betting",
            "--estimator",
            "is",
            "--zeta",
            "recovery=0.05",
            "--json",
        )[0]
    )
    assert document["grade"] == "finite-sample"
    assert document["accepted"]
    run("verify", tmp_path / "r", "--data", later)


def test_states_that_the_run_does_not_know(folder, tmp_path):
    rows = visits(300, seed=7)
    for row in rows[::5]:
        row["zustand"] = "brand new"
    for row in rows[::7]:
        row["what was done"] = "something else"
    later = write_log(tmp_path / "new.csv", rows)
    text, _ = run("evaluate", folder, later)
    assert "states that the run does not know" in text
    done = json.loads(run("certify", folder, later, "--zeta", "recovery=50", "--zeta", "pain=50", "--json")[0])
    assert "does not know" in done["settings"]["notes"][-1]
    numbers = write_log(tmp_path / "numbers.csv", [{**row, "zustand": 3} for row in visits(20)])
    assert "text in the run and whole numbers" in " ".join(run("evaluate", folder, numbers, code=1)[1].split())


def test_the_demo_can_be_certified(tmp_path):
    run("demo", "-o", tmp_path / "d", "--patients", 3000)
    run("evaluate", tmp_path / "d" / "run", tmp_path / "d" / "later.parquet")
    document = json.loads(
        run("certify", tmp_path / "d" / "run", tmp_path / "d" / "later.parquet", "--zeta", "survival=20", "--json")[0]
    )
    assert {f["objective"] for f in document["objectives"]} == {"survival", "rare_treatment"}
