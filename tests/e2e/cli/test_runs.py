"""Commands on runs, as a user runs them: improve, show, report, evaluate, certify and verify.

Every command and every exit code has a process of its own somewhere here (`run`); all else is called in this one (`call`).
"""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from bettersafe.runs.evaluation_file import read_evaluation
from bettersafe.runs.policy_file import read_policy
from bettersafe.runs.run import Decision, load_run
from commands import COLUMNS, GOALS, SOME_PAIN, call, run, visits, write_log


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

    document = json.loads(call("show", folder, "--json")[0])
    assert document["schema"] == "run/1"
    assert document["data"]["episodes"] == 400
    assert len(document["data"]["sha256"]) == 64
    assert document["objectives"][1]["policy_return"] <= document["objectives"][1]["baseline_return"] + 1e-9  # pain


@pytest.mark.slow
def test_report(log, tmp_path):
    folder = tmp_path / "RUN"
    call("improve", log, "-o", folder, *COLUMNS, *GOALS, "--epsilon", "0.2", "--no-report")
    assert not (folder / "report.html").exists()
    text, _ = call("report", folder)
    assert str(folder / "report.html") in text
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "in größter Not" in page
    assert "Not tested: by the model that made it, which is optimistic" in page
    document = json.loads(call("report", folder, "-o", tmp_path / "page.html", "--json")[0])
    assert document["report"] == str(tmp_path / "page.html")
    assert document["bytes"] == (tmp_path / "page.html").stat().st_size
    later = write_log(tmp_path / "later.csv", visits(n=300, seed=1))
    call("certify", folder, later, "--zeta", "pain=1", "--zeta", "recovery=1", "--no-report")
    assert not (folder / "report.html").exists()  # the old one told of another certificate
    call("certify", folder, later, "--zeta", "pain=1", "--zeta", "recovery=1", "--force")
    assert "Tested, passed" in (folder / "report.html").read_text(encoding="utf-8")
    _, error = call("report", tmp_path / "nothing", code=1)
    assert "run directory" in error
    _, error = call("report", folder, "-o", tmp_path / "no" / "page.html", code=1)
    assert "Choose another place" in error


def test_the_same_input_gives_the_same_bytes(log, tmp_path):
    for name in ("one", "two"):
        run("improve", log, "-o", tmp_path / name, *COLUMNS, *GOALS, *SOME_PAIN)
    assert (tmp_path / "one/policy.parquet").read_bytes() == (tmp_path / "two/policy.parquet").read_bytes()


@pytest.mark.slow
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
        document = json.loads(call("improve", log, "-o", tmp_path / name, *COLUMNS, *GOALS, *options, "--json")[0])
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
    text, _ = call("improve", "--task", task, "-o", tmp_path / "run")
    assert "Recovered (visits)" in text
    assert "rare" in text
    bolder = json.loads(call("improve", "--task", task, "--epsilon", "inf", "-o", tmp_path / "bold", "--json")[0])
    assert bolder["epsilon"] == "inf"
    assert bolder["settings"]["epsilon"] == "inf"
    task.write_text('data = "ward.csv"\nepsilom = 0.5\n', encoding="utf-8")
    _, error = call("describe", "--task", task, code=1)
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
    _, error = call("improve", "--task", tmp_path / "task.toml", "-o", tmp_path / "run", code=1)
    assert error.startswith("Error: ")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["task.toml", "ward.csv"]


def test_options_go_before_the_task_file(log, tmp_path):
    (tmp_path / "task.toml").write_text(TASK.replace('data = "ward.csv"', "") + "weight = 2.0\n", encoding="utf-8")
    document = json.loads(call("improve", log, "--task", tmp_path / "task.toml", "-o", tmp_path / "run", "--json")[0])
    assert document["preference"] == [2.0]


def test_keep_the_baseline_has_its_own_exit_code(log, tmp_path):
    text, _ = run("improve", log, "-o", tmp_path / "zero", *COLUMNS, *GOALS, "--epsilon", 0, code=3)
    assert "The baseline is returned: epsilon is 0." in text
    saved = load_run(tmp_path / "zero")
    assert np.array_equal(saved.policy, saved.baseline)
    call("improve", log, "-o", tmp_path / "none", *COLUMNS, "--objective", "recovery=0", code=3)


@pytest.mark.slow
def test_given_baselines(log, tmp_path):
    goals = (*COLUMNS, *GOALS, "--epsilon", "0.5")
    states, actions = ("at ease", "in größter Not"), ("treat “now”", "wait & see")

    def baseline(name, rows):
        return write_log(
            tmp_path / name, [dict(zip(("state", "action", "probability"), row, strict=True)) for row in rows]
        )

    good = [(s, a, p) for s in states for a, p in zip(actions, (0.4, 0.6), strict=True)]
    text, _ = call("improve", log, "-o", tmp_path / "given", *goals, "--baseline", baseline("good.csv", good))
    assert "given in good.csv" in text
    extra = [(s, a, p) for s in states for a, p in ((actions[0], 0.4), (actions[1], 0.5), ("operate", 0.1))]
    call("improve", log, "-o", tmp_path / "more", *goals, "--baseline", baseline("more.csv", extra))
    assert load_run(tmp_path / "more").action_labels.tolist() == ["operate", "treat “now”", "wait & see"]

    third = [("at home", a, f"{p:.6f}") for a, p in ((actions[0], 1 / 3), (actions[1], 2 / 3 - 2e-6))]
    full = baseline("full.csv", [*good, *third])
    for command in (("describe", log, *COLUMNS, *GOALS), ("improve", log, "-o", tmp_path / "full", *goals)):
        text, _ = call(*command, "--baseline", full)
        text = " ".join(text.split())
        assert (
            "probabilities in full.csv are rounded: their sum differs from 1 by up to 2e-06, in 1 of 3 states" in text
        )
        assert "full.csv has 1 state (at home) that the log does not have; the policy keeps its rows there" in text
    given, found = (load_run(tmp_path / name) for name in ("given", "full"))
    assert found.state_labels.tolist() == ["at ease", "at home", "in größter Not"]
    assert np.array_equal(found.policy[[0, 2]], given.policy)
    assert found.policy[1] == pytest.approx([1 / 3, 2 / 3], abs=2e-6)
    page = (tmp_path / "full" / "report.html").read_text(encoding="utf-8")
    assert "full.csv has 1 state (at home)" in page

    for rows, message in (
        ([*good, ("in Not", actions[0], 0.1)], "those of state in Not sum to 0.1, beginning in bad.csv, line 6"),
        ([*good[:2], ("in Not", actions[0], 1)], "It has 1 state (in Not) that the data does not have"),
        (
            [(s, a, 0.4) for s, a, _ in good],
            "those of state at ease sum to 0.8 (and 1 more states like it), beginning in bad.csv, line 2",
        ),
        (good[:2], "no row for state in größter Not"),
        ([*good, good[0]], "is repeated in bad.csv, line 6"),
        ([(s, a, p * 3 - 0.7) for s, a, p in good], "must be numbers in [0, 1]"),
        ([(s, a, float(a == actions[0])) for s, a, _ in good], "never plays action"),
    ):
        _, error = call("improve", log, "-o", tmp_path / "bad", *goals, "--baseline", baseline("bad.csv", rows), code=1)
        assert message in error.replace("\n", " ")
        assert not (tmp_path / "bad").exists()
    _, error = call("describe", log, *COLUMNS, *GOALS, "--baseline", tmp_path / "gone.csv", code=1)
    assert "there is no policy file" in error


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--objective", "recovry"), 1, "Did you mean 'recovery'?"),
        (("--objective", "recovery", "--discount", "1.1"), 1, "must be in [0, 1]"),
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
    _, error = call("improve", log, "-o", tmp_path / "run", *COLUMNS, *options, code=code)
    assert message in error.replace("\n", " ")
    assert not (tmp_path / "run").exists()


def test_usage():
    assert "DATA" in run("improve", code=2)[1]
    assert "no such" in call("improv", code=2)[1].lower()
    for command in ("describe", "improve", "show", "demo"):
        text, _ = call(command, "--help")
        assert "Example" in text
    assert run("--version")[0].startswith("bettersafe 0.")


@pytest.mark.slow
def test_a_run_is_not_overwritten_or_trusted_blindly(log, tmp_path):
    folder = tmp_path / "run"
    call("improve", log, "-o", folder, *COLUMNS, *GOALS, *SOME_PAIN)
    _, error = call("improve", log, "-o", folder, *COLUMNS, *GOALS, code=1)
    assert "already has a run.json" in error
    call("improve", log, "-o", folder, *COLUMNS, *GOALS, *SOME_PAIN, "--force")
    other = tmp_path / "notes"
    other.mkdir()
    (other / "mine.txt").write_text("keep me")
    _, error = call("improve", log, "-o", other, *COLUMNS, *GOALS, "--force", code=1)
    assert "has no run.json" in error
    assert (other / "mine.txt").read_text() == "keep me"
    assert "has no run.json" in call("show", other, code=1)[1]

    policy = folder / "policy.parquet"
    content = bytearray(policy.read_bytes())
    content[len(content) // 2] ^= 1
    policy.write_bytes(bytes(content))
    assert "is not the file that this run was saved with" in call("show", folder, code=1)[1].replace("\n", " ")
    document = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**document, "schema": "run/99"}))
    assert "schema 'run/99'" in call("show", folder, code=1)[1].replace("\n", " ")


@pytest.mark.slow
def test_places_that_cannot_be_written(log, tmp_path):
    (tmp_path / "file").write_text("")
    _, error = call("improve", log, "-o", tmp_path / "file" / "run", *COLUMNS, *GOALS, code=1)
    assert error.startswith("Error: ")
    _, error = call("demo", "--patients", 100, "-o", tmp_path / "file", code=1)
    assert error.startswith("Error: ")
    empty = tmp_path / "empty"
    empty.mkdir()
    call("improve", log, "-o", empty, *COLUMNS, "--objective", "recovry", code=1)
    assert empty.is_dir()  # not ours to remove
    call("improve", log, "-o", empty, *COLUMNS, *GOALS, *SOME_PAIN)
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
    call(
        "improve", path, "--objective", "r", "--baseline", tmp_path / "base.csv", "-o", tmp_path / "run", "--epsilon", 1
    )
    saved = load_run(tmp_path / "run")
    assert saved.state_labels.tolist() == ["007", "NA"]
    (tmp_path / "base.csv").write_text("\n".join([*lines[:-1], "NA;null;half"]), encoding="utf-8")
    _, error = call("describe", path, "--objective", "r", "--baseline", tmp_path / "base.csv", code=1)
    assert "got half in column 'probability' of base.csv, line 5" in error.replace("\n", " ")


def test_runs_that_are_not_complete(log, tmp_path):
    folder = tmp_path / "run"
    call("improve", log, "-o", folder, *COLUMNS, *GOALS, *SOME_PAIN)
    document = json.loads((folder / "run.json").read_text())
    for broken in ({"schema": "run/1"}, {k: v for k, v in document.items() if k != "status"}, [1]):
        (folder / "run.json").write_text(json.dumps(broken))
        assert call("show", folder, code=1)[1].startswith("Error: ")


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
    call("improve", logs[0], "-o", folder, *COLUMNS, *GOALS, "--epsilon", 0.5)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "RUN")


@pytest.mark.slow
def test_evaluate_a_run_and_a_policy_file(made, logs, tmp_path):
    text, _ = call("evaluate", made, logs[1])
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
    document = json.loads(call("evaluate", made, logs[1], "--json", "-o", tmp_path / "e.parquet")[0])
    rows = {(row["estimator"], row["objective"]): row for row in document["rows"]}
    assert len(rows) == 10 * 2
    assert rows["dr", "recovery"]["value"] > rows["logged", "recovery"]["value"]
    assert rows["dr", "pain"]["low"] < rows["dr", "pain"]["value"] < rows["dr", "pain"]["high"]
    assert rows["dr", "pain"]["value"] > 0.0  # as the cost that it is
    assert rows["model", "pain"]["low"] is None
    assert len(read_evaluation(tmp_path / "e.parquet")) == 20
    # the same policy as a file of its own; the baseline is then estimated from the later log alone
    pq.write_table(
        pq.read_table(made / "policy.parquet", columns=["state", "action", "probability"]), tmp_path / "p.parquet"
    )
    other = json.loads(call("evaluate", tmp_path / "p.parquet", logs[1], *COLUMNS, *GOALS, "--json")[0])
    value = next(r["value"] for r in other["rows"] if (r["estimator"], r["objective"]) == ("dr", "recovery"))
    assert value == pytest.approx(rows["dr", "recovery"]["value"], rel=0.05)
    assert "made from" in call("evaluate", made, logs[0])[0]
    assert "has its objectives" in " ".join(call("evaluate", made, logs[1], *GOALS, code=2)[1].split())


def test_certify_accepts_what_is_better_and_refuses_what_is_worse(folder, logs):
    assert load_run(folder).certificate.evidence == "theory"
    text, _ = run("certify", folder, logs[1])
    assert "Tested, passed: " in text
    assert "Approximate" in text
    assert "was estimated" in text
    certificate = load_run(folder).certificate
    assert certificate.accepted
    assert certificate.theory is not None
    assert certificate.data["tested_on"]["episodes"] == 600
    assert {row["estimator"] for row in load_run(folder).evaluation} >= {"is", "dr", "model"}
    # not twice, unless one knows why; and where treating harms, the same policy is refused
    assert "tested already" in run("certify", folder, logs[2], code=1)[1]
    text, _ = call("certify", folder, logs[2], "--force", code=3)
    assert "Keep the baseline" in text
    assert "recovery" in text
    assert not load_run(folder).certificate.accepted
    assert "Keep the baseline" in call("show", folder)[0]
    assert load_run(folder).decision is Decision.KEEP_BASELINE
    assert "the run's proposal, which was refused" in " ".join(run("evaluate", folder, logs[1])[0].split())
    run("report", folder)
    run("verify", folder, code=3)
    # nor does the posterior take the place of a test
    message = " ".join(call("certify", folder, logs[0], "--posterior", code=1)[1].split())
    assert "tested on held-out episodes and did not pass" in message
    call("certify", folder, logs[0], "--posterior", "--force", "--draws", "40", *SOME_PAIN)
    assert load_run(folder).decision is Decision.PROPOSED
    assert "tested already" in call("certify", folder, logs[1], code=1)[1]


@pytest.mark.slow
def test_certify_plans_a_test_without_making_it(folder, logs):
    before = (folder / "certificate.json").read_bytes()
    text, _ = run("certify", folder, logs[0], "--plan", "200", "--estimator", "drl")
    assert "A test on 200 other episodes could show (no test was made):" in text
    document = json.loads(call("certify", folder, logs[0], "--plan", "200", "--json")[0])
    assert [each["step"] for each in document["steps"]] == [1.0, 0.5, 0.2, 0.1]
    assert document["episodes"] == 200
    assert (folder / "certificate.json").read_bytes() == before
    assert "can't be used in it" in call("certify", folder, logs[1], "--plan", "200", code=1)[1].replace("\n", " ")
    assert "--posterior" in call("certify", folder, logs[0], "--plan", "200", "--posterior", code=2)[1]


def test_certify_options(folder, logs):
    known = call("certify", folder, logs[1], "--threshold", "recovery=100", "--json", code=3)[0]
    document = json.loads(known)
    assert document["verdict"].startswith("Tested, refused: ")
    assert document["thresholds"][0]["shortfall"] > 90
    for options, code, message in (
        (("--zeta", "recovry=1"), 1, "Did you mean 'recovery'"),
        (("--zeta", "recovery"), 2, "NAME=VALUE"),
        (("--bound", "betting"), 1, "no useful one"),
        (("--bound", "betting", "--estimator", "is"), 1, "--reward-range"),
        (("--bound", "hoeffding", "--estimator", "wis"), 1, "independent"),
        (("--estimator", "magic"), 1, "estimator must be one of"),
        (("--folds", "1"), 1, "folds must be at least 2"),
    ):
        assert message in " ".join(call("certify", folder, logs[1], "--force", *options, code=code)[1].split())
    assert "made from" in call("certify", folder, logs[0], "--force", code=1)[1]


@pytest.mark.slow
def test_one_byte_changed_anywhere_is_found(folder, logs):
    call("certify", folder, logs[1])
    text, _ = call("verify", folder, "--data", logs[1])
    assert "was repeated" in text
    assert "not the log" in call("verify", folder, "--data", logs[2], code=1)[1]
    for name in ("policy.parquet", "certificate.json", "evaluation.parquet", "run.json"):
        file = folder / name
        content = file.read_bytes()
        changed = bytearray(content)
        if name == "run.json":  # whose settings are free text: what must not change is what it says of the policy
            changed = bytearray(content.replace(b'"policy_sha256": "', b'"policy_sha256": "0', 1))
        else:
            changed[len(changed) // 2] ^= 1
        file.write_bytes(bytes(changed))
        assert str(folder) in call("verify", folder, code=1)[1].replace("\n", "")
        file.write_bytes(content)
    call("verify", folder)


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
    assert "the policy is unchanged. There is no certificate" in " ".join(call("verify", folder)[0].split())
    assert "there is no test to repeat" in call("verify", folder, "--data", logs[1], code=1)[1].replace("\n", " ")
    same = tmp_path / "same"
    call("improve", logs[0], "-o", same, *COLUMNS, *GOALS, "--epsilon", 0, code=3)
    assert load_run(same).certificate is None
    assert "nothing to certify" in call("certify", same, logs[1], code=1)[1]
    call("verify", same, code=3)


def test_h_opt_and_hold_out(logs, tmp_path):
    text, _ = call(
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
    assert "Tested, passed: " in text
    saved = load_run(tmp_path / "h")
    assert saved.certificate.evidence == "safety-test"
    assert saved.certificate.seed == 3
    assert saved.certificate.data["tested_on"]["episodes"] == 180
    call("verify", tmp_path / "h")
    again = tmp_path / "again"
    run("improve", logs[1], "-o", again, *COLUMNS, *GOALS, "--method", "h-opt", "--seed", 3, "--zeta", "pain=0.3")
    assert (again / "policy.parquet").read_bytes() == (tmp_path / "h" / "policy.parquet").read_bytes()

    few = write_log(tmp_path / "few.csv", visits(12, seed=5))
    text, _ = call("improve", few, "-o", tmp_path / "n", *COLUMNS, *GOALS, "--method", "h-opt", code=3)
    assert "refused by the test" in text
    assert not load_run(tmp_path / "n").has_proposal
    assert not load_run(tmp_path / "n").certificate.accepted

    options = ("--hold-out", 0.4, "--epsilon", 0.5, *RANGES, "--zeta", "recovery=0.5", "--zeta", "pain=2")
    text, _ = call(
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
        (("--method", "h-opt", "--threshold", "pain=1"), "bettersafe certify"),
        (("--reward-range", "pain=0..1"), "Correct the range"),
    ):
        assert message in " ".join(
            call("improve", logs[0], "-o", tmp_path / "x", *COLUMNS, *GOALS, *wrong, code=1)[1].split()
        )


@pytest.mark.slow
def test_logged_probabilities_make_a_finite_sample_promise(tmp_path):
    """A known baseline, short episodes with bounded rewards, and betting: the grade is finite-sample."""

    def log(name, n, seed):
        rows = visits(n, seed)
        for row in rows:
            row["baseline_prob"] = 0.6 if row["what was done"] == "wait & see" else 0.4
        return write_log(tmp_path / name, rows)

    first, later = log("a.csv", 300, 0), log("b.csv", 4000, 1)
    goals = ("--objective", "recovery", "--discount", 0.3, "--reward-range", "recovery=0..1")
    call("improve", first, "-o", tmp_path / "r", *COLUMNS, *goals, "--epsilon", 1)
    document = json.loads(
        call(
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
    assert document["standing"] == "passed"
    call("verify", tmp_path / "r", "--data", later)


@pytest.mark.slow
def test_states_that_the_run_does_not_know(folder, tmp_path):
    rows = visits(300, seed=7)
    for row in rows[::5]:
        row["zustand"] = "brand new"
    for row in rows[::7]:
        row["what was done"] = "something else"
    later = write_log(tmp_path / "new.csv", rows)
    text, _ = call("evaluate", folder, later)
    assert "states that the run does not have" in text
    done = json.loads(call("certify", folder, later, "--zeta", "recovery=50", "--zeta", "pain=50", "--json")[0])
    assert "does not have" in done["settings"]["notes"][-1]
    numbers = write_log(tmp_path / "numbers.csv", [{**row, "zustand": 3} for row in visits(20)])
    assert "text in the run and whole numbers" in " ".join(call("evaluate", folder, numbers, code=1)[1].split())


@pytest.mark.slow
def test_the_demo_can_be_certified(tmp_path):
    call("demo", "-o", tmp_path / "d", "--patients", 3000)
    call("evaluate", tmp_path / "d" / "run", tmp_path / "d" / "later.parquet")
    document = json.loads(
        call("certify", tmp_path / "d" / "run", tmp_path / "d" / "later.parquet", "--zeta", "survival=20", "--json")[0]
    )
    assert {f["objective"] for f in document["objectives"]} == {"survival", "rare_treatment"}


def write_machine(path, *, seed, steps=12):
    """A machine that never stops: 300 logs of ``steps`` steps each, then logging stops."""
    rng = np.random.default_rng(seed)
    lines = ["episode,step,state,action,next_state,revenue,cost,terminated,truncated"]
    for episode in range(300):
        state = "good"
        for step in range(steps):
            action = "run" if rng.random() < (0.8 if state == "good" else 0.5) else "service"
            pays = {"good": 3.0, "worn": 1.0}[state] if action == "run" else 0.5
            follows = ("worn" if state == "worn" or rng.random() < 0.3 else "good") if action == "run" else "good"
            cost = 0.2 if action == "run" else 1.0
            lines.append(
                f"{episode},{step},{state},{action},{follows},{pays},{cost},no,{'yes' if step == steps - 1 else 'no'}"
            )
            state = follows
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_log_that_is_cut_off_has_one_horizon_per_table(tmp_path):
    log, later = (write_machine(tmp_path / f"{name}.csv", seed=seed) for seed, name in enumerate(("log", "later")))
    goals = ("--objective", "revenue", "--objective", "cost=0", "--lower-is-better", "cost", "--epsilon", "0.3")
    text = " ".join(call("describe", log, *goals[:-2])[0].split())
    assert "returns of the logged episodes, up to where logging stopped in 300 of 300" in text

    text, _ = call("improve", log, "-o", tmp_path / "ALL", *goals, "--no-report")
    assert "optimistic, no evidence, all steps, also after logging stopped" in " ".join(text.split())
    assert "not estimated, all steps, also after logging stopped" in " ".join(text.split())  # bounds from the counts
    found = call("evaluate", tmp_path / "ALL", later)[0]
    text = " ".join(found.split())
    assert "Expected return, all steps, also after logging stopped, with 90 % intervals (t)" in text
    assert "Expected return, logged steps only, up to 12 steps; 300 of 300 episodes are cut off, with" in text
    first, second = found.index("baseline, by dr"), found.index("as logged")
    assert first < found.index(" wdr ") < second < found.index(" pdis ")

    text, _ = call("improve", log, "-o", tmp_path / "RUN", *goals, "--horizon", 5, "--discount", 1)
    assert "optimistic, no evidence, first 5 steps" in " ".join(text.split())
    assert "of the first 5 steps by" in text
    assert "(discount 0.8)" in text
    text = " ".join(call("certify", tmp_path / "RUN", later)[0].split())
    assert "no objective loses, at a risk of about 10 %, in the first 5 steps." in text
    assert "Gain over the baseline (positive is better, for costs too), first 5 steps" in text
    document = json.loads(call("show", tmp_path / "RUN", "--json")[0])
    assert document["horizon"] == document["settings"]["horizon"] == document["certificate"]["settings"]["horizon"] == 5
    page = (tmp_path / "RUN" / "report.html").read_text(encoding="utf-8")
    assert "discount 1, first 5 steps" in page
    assert "all steps, also after" not in page

    rows = json.loads(call("evaluate", tmp_path / "RUN", later, "--json")[0])["rows"]
    assert {(row["horizon"], row["complete"]) for row in rows} == {(5, True)}
    logged = {row["objective"]: row for row in rows if row["estimator"] == "logged"}
    model = {row["name"]: row["baseline_return"] for row in document["objectives"]}
    for name, row in logged.items():
        assert model[name] == pytest.approx(row["value"], abs=10.0 * row["standard_error"])
    rows = json.loads(call("evaluate", tmp_path / "RUN", later, "--json", "--horizon", 2)[0])["rows"]
    assert {row["horizon"] for row in rows} == {2}

    for words, message in (
        (
            ("improve", log, "-o", tmp_path / "X", *goals[:-2], "--horizon", 5, "--method", "b-opt"),
            "can't be used with b-opt",
        ),
        (("improve", log, "-o", tmp_path / "X", *goals, "--discount", 1), "300 of 300 are cut off before the end"),
        (("explore", log, *goals, "--horizon", 5), "horizon can't be used here"),
        (("certify", tmp_path / "RUN", log, "--posterior", "--force"), "the run's returns are of 5 steps"),
    ):
        assert message in " ".join(call(*words, code=1)[1].split())
