"""Rows by pair of state and action, and the probability that the baseline gave it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bettersafe.errors import DataError
from bettersafe.logs.counts import count
from bettersafe.logs.source import count_files, read_dataset
from logs import BOTH, small_log, write

if TYPE_CHECKING:
    from pathlib import Path


def test_baseline_probability_of_a_pair(tmp_path: Path) -> None:
    rows = small_log()
    # the last decimal of six may differ, and a sum of float32 may be just above 1
    for probabilities in ((0.25, 1.0, 0.2500004), (0.25, 1.0, 0.250001), (0.250001, 1.00000012, 0.25)):
        for row, prob in zip(rows, probabilities, strict=True):
            row["baseline_prob"] = prob
        for name in ("log.parquet", "log.csv"):
            path = write(tmp_path / name, rows)
            for counts in (count_files(path, objectives=BOTH), count(read_dataset(path, objectives=BOTH))):
                assert counts.baseline_prob is not None
                assert counts.baseline_prob.tolist() == [0.25, 1.0]
    rows[0]["baseline_prob"] = 0.25
    rows[2]["baseline_prob"] = 0.3
    path = write(tmp_path / "log.parquet", rows)
    message = "state a, action go has 0.25 and 0.3. Correct it, or set `baseline` to estimate"
    with pytest.raises(DataError, match=message):
        count_files(path, objectives=BOTH)
    with pytest.raises(DataError, match=message):
        count(read_dataset(path, objectives=BOTH))
