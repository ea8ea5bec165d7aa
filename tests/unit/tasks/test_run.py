"""Tasks: what is told on the way, what is saved, and the policies that come of it."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from bettersafe.errors import BettersafeError, ParameterError
from bettersafe.logs.counts_file import save_counts
from bettersafe.logs.dataset import Objective
from bettersafe.logs.source import count_files
from bettersafe.report.page import report_html
from bettersafe.runs.policy_file import write_policy
from bettersafe.runs.run import load_run, save_run
from bettersafe.tasks.evidence import evidence_for_policy, evidence_for_run
from bettersafe.tasks.retest import certify_run
from bettersafe.tasks.retest_posterior import PosteriorTest, certify_run_posterior
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Rare, Task
from bettersafe.tasks.verify import verify_run
from logs import log_table
from toy_runs import RANGED

if TYPE_CHECKING:
    from pathlib import Path

    from bettersafe.typing import Event


@pytest.mark.parametrize(
    ("method", "last"), [("s-opt", "Improving: values of the baseline"), ("b-opt", "Making candidates")]
)
def test_a_task_on_counts_says_what_it_does(tmp_path: Path, method: str, last: str) -> None:
    """Where nothing counts rows, the steps are named; then come rounds and, of b-opt, how far the posterior is."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=4000)
    parquet.write_table(log_table(400).append_column("s", pa.array(rewards)), tmp_path / "log.parquet")
    objectives = (Objective(name="r", weight=0.0), Objective(name="s"))
    save_counts(count_files(tmp_path / "log.parquet", objectives=objectives), tmp_path / "counts.parquet")
    task = Task(data=str(tmp_path / "counts.parquet"), objectives=objectives, method=method, form="linearised")
    told: list[Event] = []
    run_task(task, progress=told.append)
    words = [one.what for one in told if not one.unit]
    assert words[:3] == ["Reading counts", "Estimating the model", last]
    rounds = [one for one in told if one.unit == "rounds"]
    assert rounds[0].what == ("Making candidates: 1 of 7, S-OPT ε = 0.03" if method == "b-opt" else "")
    assert any(one.unit in ("candidates", "priors") for one in told) == (method == "b-opt")


def test_types_of_run_json_are_checked(saved, tmp_path):
    import shutil

    folder = shutil.copytree(saved, tmp_path / "R")
    (folder / "certificate.json").unlink()
    file = folder / "run.json"
    original = json.loads(file.read_text(encoding="utf-8"))
    rows = original["objectives"]
    for changes in (
        {"preference": 3}, {"notes": "x"}, {"rounds": "many"}, {"gap": None}, {"states_kept": 1}, {"mean_moved": "x"},
        {"actions": 5}, {"objectives": [{**rows[0], "name": 7}, rows[1]]},
        {"objectives": [{**rows[0], "unit": 7}, rows[1]]}, {"objectives": [{**rows[0], "reward_range": 7}, rows[1]]},
        {"objectives": [{**rows[0], "proposal_return": "x"}, rows[1]]}, {"objectives": "x"},
    ):  # fmt: skip
        file.write_text(json.dumps({**original, **changes}), encoding="utf-8")
        with pytest.raises(BettersafeError):
            load_run(folder)


def test_candidates_are_saved_with_all_that_was_asked_of_them(files, tmp_path):
    run = run_task(Task(data=str(files / "log.parquet"), objectives=RANGED, draws=60))
    taken = next(row for row in run.info.candidates if row.chosen)
    belief = run.certificate.beliefs[0]
    assert taken.p_safe == belief.p_safe
    assert taken.p_pessimistic == belief.p_pessimistic
    assert taken.p_objective == belief.p_objective
    assert taken.error == belief.error > 0.0  # none of 60 failed, which is not never
    assert taken.draws == 60
    save_run(run, tmp_path / "RUN")
    assert repr(load_run(tmp_path / "RUN").info) == repr(run.info)  # where NaN is NaN


def test_derived_objectives_and_thresholds(files):
    task = Task(
        data=str(files / "log.parquet"),
        objectives=RANGED,
        derived=(Rare(below=300, reward=-1.0, discount=0.8),),
        epsilon=0.5,
    )
    run = run_task(task)
    assert run.certificate.grade == "approximate"
    assert "same counts" in " ".join(run.certificate.assumptions)
    held = run_task(dataclasses.replace(task, hold_out=0.4))
    assert [f.objective for f in held.certificate.findings] == ["gain", "harm", "rare"]
    asked = run_task(dataclasses.replace(task, threshold={"gain": 0.0}))
    assert asked.certificate.verdict.startswith("No solution found")
    with pytest.raises(ParameterError, match="no such objective"):
        run_task(dataclasses.replace(task, zeta={"gian": 1.0}))
    auto = run_task(dataclasses.replace(task, method="auto", epsilon=None, draws=40))
    assert auto.certificate.evidence == "posterior"
    assert auto.info.method == "b-opt"


@pytest.fixture
def baselines(files, tmp_path):
    """The baseline of the log as a file, and a whole one: with two states that the log never visits, and an action only there."""
    made = run_task(Task(data=str(files / "log.parquet"), objectives=RANGED, epsilon=0.0))
    part, whole = tmp_path / "part.csv", tmp_path / "whole.csv"
    write_policy(part, made.baseline, made.state_labels, made.action_labels)
    more = "-3,0,0.25\n-3,2,0.75\n77,9,1\n"
    whole.write_text(part.read_text(encoding="utf-8") + more, encoding="utf-8")
    return part, whole


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 0.0}, {"epsilon": 0.5}, {"method": "adv-linearized"}, {"method": "linearized"}, {"method": "g-opt"},
        {"method": "b-opt", "draws": 60}, {"method": "b-opt", "form": "linearised"}, {"method": "h-opt"},
        {"epsilon": 0.5, "hold_out": 0.3}, {"epsilon": 0.5, "unseen": "worst"},
    ],
    ids=lambda settings: " ".join(map(str, settings.values())),
)  # fmt: skip
def test_a_whole_baseline_file_gives_the_policy_of_its_visited_part(files, baselines, tmp_path, settings):
    """To the bit; and the states that the log never visits keep the rows that were given."""
    task = Task(data=str(files / "log.parquet"), objectives=RANGED, **settings)
    part, whole = (run_task(dataclasses.replace(task, baseline=str(path))) for path in baselines)
    assert whole.state_labels.tolist() == [-3, 0, 1, 2, 3, 4, 77]
    assert whole.action_labels.tolist() == [0, 1, 2, 9]
    for name in ("policy", "proposal", "baseline", "counts"):
        table = getattr(whole, name)
        assert np.array_equal(table[1:6, :3], getattr(part, name)), name
        if name != "counts":
            assert table[0].tolist() == [0.25, 0.0, 0.75, 0.0]
            assert table[6].tolist() == [0.0, 0.0, 0.0, 1.0]
            assert not np.any(table[1:6, 3])
    assert whole.decision is part.decision
    assert whole.proposal_return.tolist() == part.proposal_return.tolist()
    assert (whole.certificate is None) == (part.certificate is None)
    if whole.certificate is not None:
        assert whole.certificate.findings == part.certificate.findings
    assert whole.info.n_states == part.info.n_states == 5
    assert whole.info.mean_moved == part.info.mean_moved
    note = "whole.csv has 2 states (such as -3, 77) that the log does not have; the policy keeps its rows there"
    assert note in whole.info.notes
    assert not any("that the log does not have" in text for text in part.info.notes)
    save_run(whole, tmp_path / "RUN")
    again = load_run(tmp_path / "RUN")
    assert np.array_equal(again.policy, whole.policy)
    assert again.state_labels.tolist() == whole.state_labels.tolist()
    page = report_html(again)
    assert note in page
    assert "reached, but no decision was logged" not in page


def test_what_follows_a_run_with_a_whole_baseline(files, baselines, tmp_path):
    """Verification, a test on a log that visits a state for the first time, estimates, and the run's policy as a candidate."""
    log, whole = str(files / "log.parquet"), str(baselines[1])
    task = Task(data=log, objectives=RANGED, baseline=whole, draws=60)
    save_run(run_task(task), tmp_path / "RUN")
    verify_run(tmp_path / "RUN", data=log)
    run = load_run(tmp_path / "RUN")
    assert run.has_proposal
    counts = tmp_path / "counts.parquet"
    save_counts(count_files(log, objectives=RANGED), counts)
    for data in (log, str(counts)):
        assert certify_run_posterior(run, data, PosteriorTest(draws=60), force=True).accepted

    later = parquet.read_table(files / "later.parquet")
    state = later["state"].to_numpy().copy()
    last = np.flatnonzero(later["terminated"].to_numpy())[0]
    state[last] = 77  # one episode ends there, with an action that was logged
    visited = later.set_column(later.column_names.index("state"), "state", pa.array(state)).drop_columns(
        ["next_state", "baseline_prob"]
    )
    parquet.write_table(visited, tmp_path / "visited.parquet")
    with pytest.raises(BettersafeError, match="the baseline never plays"):  # the file gives action 9 in state 77
        certify_run(run, str(tmp_path / "visited.parquet"), force=True)
    action = later["action"].to_numpy().copy()
    action[last] = 9
    visited = visited.set_column(visited.column_names.index("action"), "action", pa.array(action))
    parquet.write_table(visited, tmp_path / "visited.parquet")
    with evidence_for_run(run, tmp_path / "visited.parquet") as evidence:
        assert evidence.log.state_labels.tolist() == [0, 1, 2, 3, 4, 77]  # neither log visits -3
        assert evidence.baseline.tolist() == run.baseline[1:].tolist()
        assert evidence.policy.tolist() == run.proposal[1:].tolist()
    certify_run(run, str(tmp_path / "visited.parquet"), force=True)

    with evidence_for_policy(
        tmp_path / "RUN" / "policy.parquet", task
    ) as evidence:  # its rows of other states are not needed
        assert evidence.policy.tolist() == run.policy[1:6, :3].tolist()
    again = run_task(dataclasses.replace(task, candidates=(str(tmp_path / "RUN" / "policy.parquet"),)))
    assert np.array_equal(again.policy, run.policy)


def test_rounded_probabilities_are_noted_in_the_run(files, tmp_path):
    """Six decimals or float32, in the log or in a file: the policy is almost the same, and a note says what was done."""
    log = parquet.read_table(files / "log.parquet")
    place = log.column_names.index("baseline_prob")
    exact = log["baseline_prob"].to_numpy()
    task = Task(data=str(files / "log.parquet"), objectives=RANGED, epsilon=0.5)
    plain = run_task(task)
    assert not any("rounded" in note for note in plain.info.notes)
    for name, values in (("six", np.round(exact, 6)), ("single", exact.astype(np.float32))):
        parquet.write_table(log.set_column(place, "baseline_prob", pa.array(values)), tmp_path / f"{name}.parquet")
        rounded = run_task(dataclasses.replace(task, data=str(tmp_path / f"{name}.parquet")))
        [note] = [note for note in rounded.info.notes if "rounded" in note]
        assert note.startswith("the probabilities logged with the data are rounded: their sum differs from 1 by up to")
        assert note in report_html(rounded)
        assert rounded.baseline == pytest.approx(plain.baseline, abs=3e-6)
        assert rounded.policy == pytest.approx(plain.policy, abs=1e-4)
        # and a file that is rounded in the other way agrees with this log
        write_policy(tmp_path / "b.csv", np.round(plain.baseline, 6), plain.state_labels, plain.action_labels)
        given = run_task(
            dataclasses.replace(task, data=str(tmp_path / f"{name}.parquet"), baseline=str(tmp_path / "b.csv"))
        )
        assert any(note.startswith("the probabilities in b.csv are rounded") for note in given.info.notes)


def test_logged_probabilities_that_are_wrong_stay_errors(files, tmp_path):
    log = parquet.read_table(files / "log.parquet")
    place = log.column_names.index("baseline_prob")
    for factor, message in (
        (0.999, r"state 0 sum to 0\.999"),
        (-1.0, "probability in .0, 1."),
        (0.0, "can't have had probability 0"),
    ):
        values = factor * log["baseline_prob"].to_numpy()
        parquet.write_table(log.set_column(place, "baseline_prob", pa.array(values)), tmp_path / "bad.parquet")
        with pytest.raises(BettersafeError, match=message):
            run_task(Task(data=str(tmp_path / "bad.parquet"), objectives=RANGED, epsilon=0.5))
