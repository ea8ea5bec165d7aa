"""Task files that are begun: written to be read again, and nothing overwritten."""

from __future__ import annotations

import pytest

from bettersafe.errors import RunError
from bettersafe.logs.source import count_files
from bettersafe.tasks.draft import write_start
from bettersafe.tasks.toml import read_task
from logs import rows_of, write


def test_what_it_writes_is_a_task_that_can_be_done(tmp_path):
    log = rows_of(
        **{"Next Cluster": lambda i: None if i % 2 else (i + 1) % 3, "is_terminal": lambda i: bool(i % 2)},
        propensity=lambda i: 0.5, survival=lambda i: i % 4, waiting_time=lambda i: i * 0.5, comment=lambda i: f"note {i}",
    )  # fmt: skip
    write(tmp_path / "visits.csv", log)
    (tmp_path / "sub").mkdir()
    start = write_start(str(tmp_path / "visits.csv"), tmp_path / "sub" / "task.toml")
    assert start.complete
    task = read_task(tmp_path / "sub" / "task.toml")
    assert task.columns.next_state == "Next Cluster"
    assert task.columns.terminated == "is_terminal"
    assert task.columns.baseline_prob == "propensity"
    assert {o.name: (o.weight, o.lower_is_better) for o in task.objectives} == {
        "survival": (1.0, False), "waiting_time": (1.0, True),
    }  # fmt: skip
    assert "comment" in start.unused
    counts = count_files(task.data, objectives=task.objectives, columns=task.columns)
    assert counts.n_rows == 12


def test_nothing_is_overwritten_unasked(tmp_path):
    log = str(write(tmp_path / "log.csv", rows_of(r=lambda i: i)))
    task = tmp_path / "task.toml"
    task.write_text("mine")
    with pytest.raises(RunError, match="`force`"):
        write_start(log, task)
    assert task.read_text() == "mine"
    write_start(log, task, force=True)
    assert read_task(task).columns.episode == "stay_id"


def test_odd_names_stay_what_they_are(tmp_path):
    odd = 'say "so", \\ [now]\n# = \t é \x7f'
    write(tmp_path / "log.parquet", [{**row, odd: i % 5} for i, row in enumerate(rows_of())])
    start = write_start(str(tmp_path / "log.parquet"), tmp_path / "task.toml")
    assert start.complete
    assert [o.name for o in read_task(tmp_path / "task.toml").objectives] == [odd]
