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
from bettersafe.runs.run import load_run, save_run
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Rare, Task
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
    assert rounds[0].what == ("Making candidates: number 1" if method == "b-opt" else "")
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
