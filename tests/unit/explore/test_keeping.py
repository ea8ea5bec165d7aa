"""What is kept is the run of `improve`."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bettersafe.cli import main
from bettersafe.errors import RunError
from bettersafe.explore import keeping
from bettersafe.explore import session as explore
from bettersafe.runs.run import load_run
from bettersafe.tasks.task import Rare
from bettersafe.tasks.toml import read_task
from wards import documents, settings_of, ward_task, write_ward

TASK_FILE = """
data = "ward.csv"
epsilon = 0.2
[objectives.relief]
discount = 0.9
label = "Relief of symptoms"
range = [0, 1]
[objectives.pain]
discount = 0.9
lower_is_better = true
zeta = 0.25
[derived]
rare = { below = 20, reward = -1, discount = 0.9 }
"""


def test_what_is_kept_is_the_run_of_improve(session, tmp_path):
    settings = settings_of(relief=0.7, pain=0.1, epsilon=0.35, delta=0.2, zeta=(0.0, 0.4))
    kept = keeping.keep(session, settings, "mine", tmp_path / "runs")
    assert kept["path"] == str(tmp_path / "runs" / "mine")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["mine"]
    assert kept["name"] == "kept-1"
    assert "<html" in Path(kept["report"]).read_text(encoding="utf-8")
    assert Path(kept["report"]) == tmp_path / "runs" / "mine" / "report.html"
    found = load_run(kept["path"])
    np.testing.assert_array_equal(found.policy, explore.solve(session, settings).policy)
    words = shlex.split(kept["command"])
    assert words[:2] == ["bettersafe", "improve"]
    words[words.index("-o") + 1] = str(tmp_path / "again")
    result = CliRunner().invoke(main.app, words[1:])
    assert result.exit_code == 0, result.output
    assert documents(tmp_path / "again") == documents(tmp_path / "runs" / "mine")
    with pytest.raises(RunError, match="already has"):
        keeping.keep(session, settings, "mine", tmp_path / "runs")


def test_what_is_kept_of_a_task_file_is_the_run_of_improve(log, tmp_path):
    (tmp_path / "ward.csv").write_bytes(log.read_bytes())
    file = tmp_path / "task.toml"
    file.write_text(TASK_FILE)
    base = read_task(file)
    session = explore.open_session(replace(base, unseen="worst"), base=base, task_file=str(file))
    settings = explore.Settings(preference=(0.5, 0.25, 2.0), epsilon=math.inf, delta=0.1, zeta=(0.0, 0.0, 1.0))
    kept = keeping.keep(session, settings, "mine", tmp_path)
    words = shlex.split(kept["command"])
    words[words.index("-o") + 1] = str(tmp_path / "again")
    result = CliRunner().invoke(main.app, words[1:])
    assert result.exit_code == 0, result.output
    assert documents(tmp_path / "again") == documents(tmp_path / "mine")
    assert load_run(tmp_path / "mine").objectives[0].label == "Relief of symptoms"


def test_what_no_command_can_say_has_none(log, tmp_path):
    task = ward_task(log, derived=(Rare(below=20), Rare(name="rarer", below=5)))
    session = explore.open_session(task)
    start = explore.first_settings(session)
    assert len(start.preference) == 4
    assert keeping.keep(session, start, "mine", tmp_path)["command"] is None


def test_a_task_with_thresholds_is_not_sent_to_the_posterior(log, tmp_path):
    """The posterior does not test thresholds."""
    for threshold, said in (({}, True), ({"pain": 1e6}, False)):
        session = explore.open_session(ward_task(log, threshold=threshold))
        kept = keeping.keep(session, explore.first_settings(session), f"mine-{len(threshold)}", tmp_path)
        assert load_run(kept["path"]).has_proposal
        assert (kept["next"] is not None) is said


def test_a_log_that_changed_is_not_kept(tmp_path):
    log = write_ward(tmp_path / "ward.csv", n=60)
    session = explore.open_session(ward_task(log))
    write_ward(log, n=61)
    with pytest.raises(RunError, match="has changed since"):
        keeping.keep(session, settings_of(), "mine", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
