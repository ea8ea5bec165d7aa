"""Progress while a log is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pyarrow import parquet

from bettersafe.logs._reader.files import rows_in
from bettersafe.logs.dataset import Objective
from bettersafe.logs.source import count_files, read_dataset
from logs import GAIN, PAIN, log_table, small_log, write

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from bettersafe.typing import Event

REWARD = [Objective(name="r")]


def heard(path: Any, verb: Any = count_files, **options: Any) -> list[Event]:
    told: list[Event] = []
    verb(path, progress=told.append, **options)
    return told


def test_progress_rises_to_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bettersafe.logs._reader.progress.EVERY", 0.0)
    halves = [log_table(50_000).slice(at * 250_000, 250_000) for at in range(2)]
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
