"""Tasks: what is told on the way, what is saved, and the policies that come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from bettersafe.logs.counts_file import save_counts
from bettersafe.logs.dataset import Objective
from bettersafe.logs.source import count_files
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Task
from logs import log_table

if TYPE_CHECKING:
    from pathlib import Path

    from bettersafe.typing import Event


@pytest.mark.parametrize(
    ("method", "last"), [("s-opt", "Improving: the baseline's values"), ("b-opt", "Making candidates")]
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
    assert words[:3] == ["Reading counts", "Making the model", last]
    rounds = [one for one in told if one.unit == "rounds"]
    assert rounds[0].what == ("Making candidates: 1 of 7, S-OPT ε = 0.03" if method == "b-opt" else "")
    assert any(one.unit in ("candidates", "priors") for one in told) == (method == "b-opt")
