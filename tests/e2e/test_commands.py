"""The commands, run as a user runs them: a process, a file, an exit code."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bettersafe.runs.policy_file import read_policy
from bettersafe.runs.run import load_run
from commands import COLUMNS, GOALS, run, visits, write_log


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write_log(tmp_path_factory.mktemp("log") / "ward log.csv", visits())


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
    document = json.loads(run("describe", log, *COLUMNS, *GOALS, "--json")[0])
    assert document["episodes"] == 400
    assert document["baseline_coverage"] == pytest.approx(1.0)
    assert document["objectives"][1]["return_mean"] > 0.0  # shown as the cost that it is


def test_improve_show_and_read_again(log, tmp_path):
    folder = tmp_path / "a run"
    text, _ = run("improve", log, "-o", folder, *COLUMNS, *GOALS, "--epsilon", 0.5)
    assert "recovery" in text
    assert "better" in text
    assert "worse" not in text.replace("in größter Not", "")
    files = ["certificate.json", "policy.parquet", "report.html", "run.json"]
    assert sorted(p.name for p in folder.iterdir()) == files
    assert "report.html" in text
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]

    shown, _ = run("show", folder)
    assert "in größter Not" in shown
    assert "treat “now”" in shown

    saved = load_run(folder)
    assert saved.has_proposal
    assert np.all(saved.policy_return >= saved.baseline_return - 1e-9)
    stored = json.loads((folder / "run.json").read_text(encoding="utf-8"))["objectives"][1]
    assert stored["baseline_return"] == pytest.approx(-saved.baseline_return[1])  # pain, in the user's sign
    assert saved.policy.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    again = read_policy(folder / "policy.parquet", saved.state_labels, saved.action_labels)
    assert np.array_equal(again, saved.policy)

    document = json.loads(run("show", folder, "--json")[0])
    assert document["schema"] == "run/1"
    assert document["data"]["episodes"] == 400
    assert len(document["data"]["sha256"]) == 64
    assert document["objectives"][1]["policy_return"] <= document["objectives"][1]["baseline_return"] + 1e-9  # pain


def test_report(log, tmp_path):
    folder = tmp_path / "RUN"
    run("improve", log, "-o", folder, *COLUMNS, *GOALS, "--epsilon", "0.2", "--no-report")
    assert not (folder / "report.html").exists()
    text, _ = run("report", folder)
    assert str(folder / "report.html") in text
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "in größter Not" in page
    assert "Not tested: the policy looks better" in page
    document = json.loads(run("report", folder, "-o", tmp_path / "page.html", "--json")[0])
    assert document["report"] == str(tmp_path / "page.html")
    assert document["bytes"] == (tmp_path / "page.html").stat().st_size
    later = write_log(tmp_path / "later.csv", visits(n=300, seed=1))
    run("certify", folder, later, "--zeta", "pain=1", "--zeta", "recovery=1", "--no-report")
    assert not (folder / "report.html").exists()  # the old one told of another certificate
    run("certify", folder, later, "--zeta", "pain=1", "--zeta", "recovery=1", "--force")
    assert "Accepted" in (folder / "report.html").read_text(encoding="utf-8")
    _, error = run("report", tmp_path / "nothing", code=1)
    assert "run directory" in error
    _, error = run("report", folder, "-o", tmp_path / "no" / "page.html", code=1)
    assert "Choose another place" in error


def test_the_same_input_gives_the_same_bytes(log, tmp_path):
    for name in ("one", "two"):
        run("improve", log, "-o", tmp_path / name, *COLUMNS, *GOALS)
    assert (tmp_path / "one/policy.parquet").read_bytes() == (tmp_path / "two/policy.parquet").read_bytes()


def test_engines_and_methods(log, tmp_path):
    returns = {}
    for name, options in {
        "native": ("--method", "s-opt", "--engine", "native"),
        "highs": ("--method", "s-opt", "--engine", "highs"),
        "global": ("--method", "g-opt", "--engine", "native"),
        "program": ("--method", "g-opt", "--engine", "highs"),
        "soft": ("--method", "soft-spibb"),
        "adv": ("--method", "adv-linearized"),
        "lin": ("--method", "linearized"),
        "l1": ("--method", "s-opt", "--error-kind", "l1", "--support", 2),
    }.items():
        document = json.loads(run("improve", log, "-o", tmp_path / name, *COLUMNS, *GOALS, *options, "--json")[0])
        returns[name] = document["objectives"][0]["policy_return"]
    assert returns["native"] == pytest.approx(returns["highs"], abs=1e-6)
    assert returns["global"] == pytest.approx(returns["program"], abs=1e-6)
    assert returns["native"] <= returns["global"] + 1e-9
    assert returns["native"] <= returns["adv"] + 1e-9 <= returns["lin"] + 2e-9
    assert returns["native"] <= returns["soft"] + 1e-9 <= returns["lin"] + 2e-9


def test_task_file(log, tmp_path):
    (tmp_path / "ward.csv").write_bytes(log.read_bytes())
    task = tmp_path / "task.toml"
    task.write_text(
        """
data = "ward.csv"
epsilon = 0.5
[columns]
episode = "stay"
step = "block"
state = "zustand"
action = "what was done"
[objectives.recovery]
label = "Recovered"
unit = "visits"
[objectives.pain]
lower_is_better = true
weight = 0.0
[derived]
rare = { below = 5, reward = -1 }
""",
        encoding="utf-8",
    )
    text, _ = run("improve", "--task", task, "-o", tmp_path / "run")
    assert "Recovered (visits)" in text
    assert "rare" in text
    bolder = json.loads(run("improve", "--task", task, "--epsilon", "inf", "-o", tmp_path / "bold", "--json")[0])
    assert bolder["epsilon"] == "inf"
    assert bolder["settings"]["epsilon"] == "inf"
    task.write_text('data = "ward.csv"\nepsilom = 0.5\n', encoding="utf-8")
    _, error = run("describe", "--task", task, code=1)
    assert "has no setting 'epsilom'" in error
    assert "Did you mean 'epsilon'?" in error


TASK = """
data = "ward.csv"
[columns]
episode = "stay"
step = "block"
state = "zustand"
action = "what was done"
[objectives.recovery]
"""


@pytest.mark.parametrize(
    "text",
    [
        'data = 5', 'data = ["ward.csv"]', 'data = "ward.csv"\nbaseline = 3', 'data = "ward.csv"\nmethod = 5',
        'data = "ward.csv"\nsupport = "two"', 'data = "ward.csv"\nsupport = 2.5', 'data = "ward.csv"\nsupport = true',
        'data = "ward.csv"\nepsilon = "auto"', 'data = "ward.csv"\nobjectives = ["recovery"]', 'data = "ward.csv"\nobjectives = "x"',
        'data = "ward.csv"\n[[objectives]]\nname = "x"', 'data = "ward.csv"\nderived = []', 'data = "ward.csv"\n[columns]\nstate = 5',
        TASK + 'weight = "high"', TASK + "weight = true", TASK + 'discount = "0.9"', TASK + "label = 5", TASK + "label = [1]",
        TASK + 'lower_is_better = "false"', TASK + "lower_is_better = 1", TASK + '[derived]\nrare = { below = "x" }',
        TASK + "[derived]\nrare = { below = 2.5 }", TASK + "[derived]\nrare = { below = 0 }", TASK + "[derived]\nrare = 3",
        TASK + '[derived]\nrare = { reward = "x" }', "data = ", 'episode = "x"', 'data = "ward.csv"\nsupport = 2',
    ],
)  # fmt: skip
def test_wrong_task_files_get_one_sentence(text, log, tmp_path):
    (tmp_path / "ward.csv").write_bytes(log.read_bytes())
    (tmp_path / "task.toml").write_text(text, encoding="utf-8")
    _, error = run("improve", "--task", tmp_path / "task.toml", "-o", tmp_path / "run", code=1)
    assert error.startswith("Error: ")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["task.toml", "ward.csv"]


def test_options_go_before_the_task_file(log, tmp_path):
    (tmp_path / "task.toml").write_text(TASK.replace('data = "ward.csv"', "") + "weight = 2.0\n", encoding="utf-8")
    document = json.loads(run("improve", log, "--task", tmp_path / "task.toml", "-o", tmp_path / "run", "--json")[0])
    assert document["preference"] == [2.0]


def test_keep_the_baseline_has_its_own_exit_code(log, tmp_path):
    text, _ = run("improve", log, "-o", tmp_path / "zero", *COLUMNS, *GOALS, "--epsilon", 0, code=3)
    assert "The baseline is returned: epsilon is 0." in text
    saved = load_run(tmp_path / "zero")
    assert np.array_equal(saved.policy, saved.baseline)
    run("improve", log, "-o", tmp_path / "none", *COLUMNS, "--objective", "recovery=0", code=3)


def test_given_baselines(log, tmp_path):
    states, actions = ("at ease", "in größter Not"), ("treat “now”", "wait & see")

    def baseline(name, rows):
        return write_log(
            tmp_path / name, [dict(zip(("state", "action", "probability"), row, strict=True)) for row in rows]
        )

    good = [(s, a, p) for s in states for a, p in zip(actions, (0.4, 0.6), strict=True)]
    text, _ = run("improve", log, "-o", tmp_path / "given", *COLUMNS, *GOALS, "--baseline", baseline("good.csv", good))
    assert "given in good.csv" in text
    extra = [(s, a, p) for s in states for a, p in ((actions[0], 0.4), (actions[1], 0.5), ("operate", 0.1))]
    run("improve", log, "-o", tmp_path / "more", *COLUMNS, *GOALS, "--baseline", baseline("more.csv", extra))
    assert load_run(tmp_path / "more").action_labels.tolist() == ["operate", "treat “now”", "wait & see"]

    for rows, message in (
        ([*good, ("in Not", actions[0], 0.1)], "state in Not in column 'state' of bad.csv, line 6 is not in the data"),
        (
            [(s, a, 0.4) for s, a, _ in good],
            "those of state at ease sum to 0.8 (and 1 more states like it), beginning in bad.csv, line 2",
        ),
        (good[:2], "no row for state in größter Not"),
        ([*good, good[0]], "is repeated in bad.csv, line 6"),
        ([(s, a, p * 3 - 0.7) for s, a, p in good], "must be numbers in [0, 1]"),
        ([(s, a, float(a == actions[0])) for s, a, _ in good], "never plays action"),
    ):
        _, error = run(
            "improve", log, "-o", tmp_path / "bad", *COLUMNS, *GOALS, "--baseline", baseline("bad.csv", rows), code=1
        )
        assert message in error.replace("\n", " ")
        assert not (tmp_path / "bad").exists()
    _, error = run("describe", log, *COLUMNS, *GOALS, "--baseline", tmp_path / "gone.csv", code=1)
    assert "there is no policy file" in error


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
    _, error = run("improve", path, "-o", tmp_path / "run", *COLUMNS, *GOALS, code=1)
    assert error.startswith("Error: ")
    assert message in error
    assert "bad.csv" in error
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--objective", "recovry"), 1, "Did you mean 'recovery'?"),
        (("--objective", "recovery", "--discount", "1.0"), 1, "must be in [0, 1)"),
        (("--objective", "recovery", "--discount", "x"), 2, "not a number"),
        (("--objective", "recovery", "--lower-is-better", "pane"), 1, "there is no such objective"),
        (("--objective", "recovery=-1"), 1, "weight of recovery"),
        (("--objective", "recovery", "--epsilon", "-1"), 1, "epsilon must be 0 or more"),
        (("--objective", "recovery", "--delta", "0"), 1, "delta must be a probability"),
        (("--objective", "recovery", "--method", "s_opt"), 1, "Did you mean 's-opt'?"),
        (("--objective", "recovery", "--rare-reward", "-5"), 2, "--rare-below"),
        ((), 1, "--objective"),
    ],
)
def test_wrong_options(log, tmp_path, options, code, message):
    _, error = run("improve", log, "-o", tmp_path / "run", *COLUMNS, *options, code=code)
    assert message in error.replace("\n", " ")
    assert not (tmp_path / "run").exists()


def test_usage():
    assert "DATA" in run("improve", code=2)[1]
    assert "no such" in run("improv", code=2)[1].lower()
    for command in ("describe", "improve", "show", "demo"):
        text, _ = run(command, "--help")
        assert "Example" in text
    assert run("--version")[0].startswith("bettersafe 0.")


def test_a_run_is_not_overwritten_or_trusted_blindly(log, tmp_path):
    folder = tmp_path / "run"
    run("improve", log, "-o", folder, *COLUMNS, *GOALS)
    _, error = run("improve", log, "-o", folder, *COLUMNS, *GOALS, code=1)
    assert "already has a run.json" in error
    run("improve", log, "-o", folder, *COLUMNS, *GOALS, "--force")
    other = tmp_path / "notes"
    other.mkdir()
    (other / "mine.txt").write_text("keep me")
    _, error = run("improve", log, "-o", other, *COLUMNS, *GOALS, "--force", code=1)
    assert "has no run.json" in error
    assert (other / "mine.txt").read_text() == "keep me"
    assert "has no run.json" in run("show", other, code=1)[1]

    policy = folder / "policy.parquet"
    content = bytearray(policy.read_bytes())
    content[len(content) // 2] ^= 1
    policy.write_bytes(bytes(content))
    assert "is not the file that this run was saved with" in run("show", folder, code=1)[1].replace("\n", " ")
    document = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**document, "schema": "run/99"}))
    assert "schema 'run/99'" in run("show", folder, code=1)[1].replace("\n", " ")


def test_places_that_cannot_be_written(log, tmp_path):
    (tmp_path / "file").write_text("")
    _, error = run("improve", log, "-o", tmp_path / "file" / "run", *COLUMNS, *GOALS, code=1)
    assert error.startswith("Error: ")
    _, error = run("demo", "--patients", 100, "-o", tmp_path / "file", code=1)
    assert error.startswith("Error: ")
    empty = tmp_path / "empty"
    empty.mkdir()
    run("improve", log, "-o", empty, *COLUMNS, "--objective", "recovry", code=1)
    assert empty.is_dir()  # not ours to remove
    run("improve", log, "-o", empty, *COLUMNS, *GOALS)
    assert (empty / "run.json").is_file()


def test_labels_of_policy_files_stay_what_they_are(tmp_path):
    """Leading zeros, NA, semicolons: as in the log, so in the baseline."""
    rows = [
        {"episode": e, "step": t, "state": s, "action": a, "r": (e + t) % 3}
        for e in range(30)
        for t, (s, a) in enumerate((("007", "NA"), ("NA", "null"), ("007", "null")))
    ]
    path = write_log(tmp_path / "log.csv", rows)
    lines = ["state;action;probability", *(f"{s};{a};0.5" for s in ("007", "NA") for a in ("NA", "null"))]
    (tmp_path / "base.csv").write_text("\n".join(lines), encoding="utf-8")
    run(
        "improve", path, "--objective", "r", "--baseline", tmp_path / "base.csv", "-o", tmp_path / "run", "--epsilon", 1
    )
    saved = load_run(tmp_path / "run")
    assert saved.state_labels.tolist() == ["007", "NA"]
    (tmp_path / "base.csv").write_text("\n".join([*lines[:-1], "NA;null;half"]), encoding="utf-8")
    _, error = run("describe", path, "--objective", "r", "--baseline", tmp_path / "base.csv", code=1)
    assert "got half in column 'probability' of base.csv, line 5" in error.replace("\n", " ")


def test_one_column_has_one_role(log):
    _, error = run("describe", log, *COLUMNS[:-1], "zustand", *GOALS, code=1)
    assert "can't be both --state and --action" in error


def test_inconsistent_logged_probabilities_and_their_remedy(tmp_path):
    rows = [
        {"episode": e, "step": 0, "state": "s", "action": "ab"[e % 2], "r": e % 2, "baseline_prob": 0.5 if e else 0.4}
        for e in range(20)
    ]
    path = write_log(tmp_path / "log.csv", rows)
    _, error = run("describe", path, "--objective", "r", code=1)
    assert "--baseline estimate" in error
    run("describe", path, "--objective", "r", "--baseline", "estimate")


def test_runs_that_are_not_complete(log, tmp_path):
    folder = tmp_path / "run"
    run("improve", log, "-o", folder, *COLUMNS, *GOALS)
    document = json.loads((folder / "run.json").read_text())
    for broken in ({"schema": "run/1"}, {k: v for k, v in document.items() if k != "status"}, [1]):
        (folder / "run.json").write_text(json.dumps(broken))
        assert run("show", folder, code=1)[1].startswith("Error: ")


def test_demo(tmp_path):
    text, _ = run("demo", "--patients", 3000, "-o", tmp_path / "sepsis")
    assert "3,000 patients" in text
    assert "bettersafe" in text
    assert "Largest changes" in run("show", tmp_path / "sepsis/run")[0]
    described, _ = run("describe", tmp_path / "sepsis/cohort.parquet", "--objective", "survival")
    assert "3,000 episodes" in described
    assert "exists" in run("demo", "--patients", 3000, "-o", tmp_path / "sepsis", code=1)[1]
    document = json.loads(run("demo", "--patients", 3000, "--seed", 1, "--json")[0])
    assert set(document["policies"]) == {"the clinicians", "plain RL", "bettersafe"}
