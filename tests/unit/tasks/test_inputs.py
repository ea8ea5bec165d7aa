"""Inputs of a task, and that reading a log needs no method."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from logs import saved_log

if TYPE_CHECKING:
    from pathlib import Path

LIGHT = """
import sys
from bettersafe.logs.dataset import Objective
from bettersafe.logs.describe import describe
from bettersafe.tasks.inputs import task_baseline, task_counts
from bettersafe.tasks.task import Task
task = Task(data=sys.argv[1], objectives=(Objective(name="r0"),))
counts = task_counts(task)
print(describe(counts, baseline=task_baseline(task, counts).policy).rows)
print(*sorted(sys.modules))
"""


def test_describing_a_log_loads_no_method_and_no_scipy(tmp_path: Path) -> None:
    path = saved_log(tmp_path / "log.parquet", 300, 5, 10, 2)
    done = subprocess.run([sys.executable, "-c", LIGHT, str(path)], capture_output=True, text=True, check=True)
    rows, modules = done.stdout.splitlines()
    assert int(rows) > 0
    loaded = set(modules.split())
    assert "scipy" not in loaded
    heavy = ("bettersafe.posterior.", "bettersafe.certificate.", "bettersafe.methods.", "bettersafe.evaluation.")
    light = {"choices", "facts", "rule", "events"}
    found = [name for name in loaded if name.startswith(heavy) and name.rpartition(".")[2] not in light]
    assert not found
