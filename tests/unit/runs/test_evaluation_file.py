"""Estimates as files."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from bettersafe.errors import RunError
from bettersafe.runs.evaluation_file import read_evaluation, write_evaluation

ROWS = (
    {"estimator": "dr", "objective": "größe", "value": 0.1, "low": None},
    {"estimator": "is", "objective": "größe", "value": -2.5, "low": -3.0},
)


def test_there_and_back(tmp_path):
    write_evaluation(tmp_path / "e.parquet", ROWS)
    assert read_evaluation(tmp_path / "e.parquet") == ROWS
    write_evaluation(tmp_path / "e.csv", ROWS)
    assert csv.read_csv(tmp_path / "e.csv")["value"].to_pylist() == [0.1, -2.5]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.csv", "e.parquet"]


def test_what_is_no_such_file_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"must end in .parquet or .csv; got e.txt"):
        write_evaluation(tmp_path / "e.txt", ROWS)
    (tmp_path / "e.parquet").write_text("no")
    with pytest.raises(RunError, match="can't be read"):
        read_evaluation(tmp_path / "e.parquet")
    parquet.write_table(pa.table({"value": [1.0]}), tmp_path / "e.parquet")
    with pytest.raises(RunError, match="has schema 'none'; this version of bettersafe reads 'evaluation/2'"):
        read_evaluation(tmp_path / "e.parquet")
