"""Outcomes of a log for the posterior, and the memory that they may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bettersafe.logs.dataset import Objective
from bettersafe.tasks import outcomes
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Task
from logs import saved_log

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_b_opt_counts_a_log_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved_log(tmp_path / "log.parquet", 300, 5, 10, 2)
    task = Task(data=str(path), objectives=(Objective(name="r0"), Objective(name="r1", weight=0.0)))
    whole = run_task(task)
    assert outcomes.PAIR_REWARDS not in whole.info.notes
    monkeypatch.setattr(outcomes, "available_bytes", lambda: 50e6)  # a log read whole takes 100 MB and more
    counted = run_task(task)
    assert outcomes.PAIR_REWARDS in counted.info.notes
    assert counted.info.method == whole.info.method == "b-opt"
