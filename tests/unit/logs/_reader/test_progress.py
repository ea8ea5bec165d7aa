"""Progress while a log is read, and logs of thousands of files."""

from __future__ import annotations

import io
import os
import re
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet
from rich.console import Console

from bettersafe.cli.show import progress as show
from bettersafe.logs._reader.files import open_files, rows_in, scan
from bettersafe.logs.counts_file import save_counts
from bettersafe.logs.dataset import Objective
from bettersafe.logs.source import count_files, read_dataset
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Task
from bettersafe.typing import Event
from logs import GAIN, PAIN, small_log, write
from patience import until

if TYPE_CHECKING:
    from pathlib import Path

REWARD = [Objective(name="r")]


def table(n_episodes: int, length: int = 10) -> pa.Table:
    last = np.tile(np.arange(length) == length - 1, n_episodes)
    n_rows = last.size
    return pa.table(
        {
            "episode": np.repeat(np.arange(n_episodes), length),
            "step": np.tile(np.arange(length), n_episodes),
            "state": np.tile(np.arange(length), n_episodes),
            "action": np.arange(n_rows) % 3,
            "next_state": pa.array(np.tile(np.arange(1, length + 1), n_episodes), mask=last),
            "terminated": last,
            "r": np.arange(n_rows) / 7,
        }
    )


def heard(path: Any, verb: Any = count_files, **options: Any) -> list[Event]:
    told: list[Event] = []
    verb(path, progress=told.append, **options)
    return told


def test_progress_rises_to_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bettersafe.logs._reader.progress.EVERY", 0.0)
    halves = [table(50_000).slice(at * 250_000, 250_000) for at in range(2)]
    for at, half in enumerate(halves):
        parquet.write_table(half, tmp_path / f"{at}.parquet", row_group_size=20_000)
    told = heard(tmp_path / "*.parquet", objectives=REWARD)
    assert {(one.total, one.unit) for one in told} == {(500_000, "rows")}
    done = [one.done for one in told]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 500_000)
    assert len(set(done)) > 10  # the five passes alone would be six numbers
    assert np.max(np.diff(done)) < 250_000


def test_text_is_measured_in_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", small_log())
    told = heard(path, objectives=[GAIN, PAIN])
    assert {(one.total, one.unit) for one in told} == {(path.stat().st_size, "bytes")}
    assert (told[0].done, told[-1].done) == (0, path.stat().st_size)
    assert heard(path, read_dataset, objectives=[GAIN, PAIN])[0].done == 0
    assert rows_in([path]) is None


@pytest.mark.parametrize(
    ("method", "last"), [("s-opt", "Improving: the baseline's values"), ("b-opt", "Making candidates")]
)
def test_a_task_on_counts_says_what_it_does(tmp_path: Path, method: str, last: str) -> None:
    """Where nothing counts rows, the steps are named; then come rounds and, of b-opt, how far the posterior is."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=4000)
    parquet.write_table(table(400).append_column("s", pa.array(rewards)), tmp_path / "log.parquet")
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


def test_what_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar where it is known how much there is, and none in the step after it."""
    stream = io.StringIO()
    monkeypatch.setattr(show, "Console", lambda **_: Console(file=stream, force_terminal=True, width=100))
    with show.working("Reading") as progress:
        for step in (Event(what="Asking", done=1, total=2, unit="priors"), Event(what="Saving")):
            progress(step)
            until(lambda step=step: re.search(rf"{step.what}.*\d:\d\d:\d\d", stream.getvalue()))  # drawn by a thread
    text = stream.getvalue()
    asking, saving = (re.split(r"\d:\d\d:\d\d", text[text.index(word) :])[0] for word in ("Asking", "Saving"))
    assert asking.startswith("Asking: 1 of 2 priors")
    assert "━" in asking
    assert "━" not in saving


def test_the_clock_goes_on_when_a_bar_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(show, "Console", lambda **_: Console(file=stream, force_terminal=True, width=100))
    with show.working("Reading") as progress:
        for done in (0, 9, 0):
            progress(Event(done=done, total=9, unit="rows"))
        until(lambda: re.search(r"\d:\d\d:(?!00)\d\d", stream.getvalue()))
    assert "Reading, pass 2: 0 of 9 rows" in stream.getvalue()


def test_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of ten were there before; then one took 30 s, so the other seven take 210 s."""
    assert [show.time_left(seconds) for seconds in (0.0, 90.0, 91.0, 600.0)] == [
        "0 s left", "90 s left", "about 2 min left", "about 10 min left",
    ]  # fmt: skip
    stream = io.StringIO()
    monkeypatch.setattr(show, "Console", lambda **_: Console(file=stream, force_terminal=True, width=100))
    with show.counting("Experiments") as progress:
        for done, clock in ((2, 100.0), (3, 130.0)):
            monkeypatch.setattr(show.time, "perf_counter", lambda clock=clock: clock)
            progress(Event(done=done, total=10, unit="experiments"))
            if done == 2:
                assert "left" not in stream.getvalue()
    assert " 3/10" in stream.getvalue()
    assert "about 4 min left" in stream.getvalue()


@pytest.mark.parametrize(("extension", "n_files", "limit"), [("parquet", 2000, 400), ("arrow", 200, 100)])
def test_thousands_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: str, n_files: int, limit: int
) -> None:
    """Neither open files nor the plan grow with their number; DuckDB reads some Parquet files ahead."""
    whole = table(n_files, 2)
    save = parquet.write_table if extension == "parquet" else feather.write_feather
    for i in range(n_files):
        save(whole.slice(2 * i, 2), str(tmp_path / f"{i:04d}.{extension}"))
    most = [0]

    def look(_: Event) -> None:
        most[0] = max(most[0], len(os.listdir("/proc/self/fd")))

    monkeypatch.setattr("bettersafe.logs._reader.progress.EVERY", 0.002)
    counts = count_files(tmp_path / f"*.{extension}", objectives=REWARD, progress=look)
    assert (counts.n_rows, counts.n_episodes) == (2 * n_files, n_files)
    assert 0 < most[0] < limit
    with duckdb.connect() as connection:
        plan = scan(connection, open_files(connection, tmp_path / f"*.{extension}"), ["state", "r"])
    assert plan.count("SELECT") == 1
