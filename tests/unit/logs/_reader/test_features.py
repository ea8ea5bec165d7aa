"""Tables of features read as logs: in the order of steps, and what can be no log is refused."""

from __future__ import annotations

import pytest
from pyarrow import parquet

from bettersafe.errors import DataError, ParameterError
from bettersafe.logs.dataset import Columns
from bettersafe.logs.discretize import (
    discretize_log,
)
from feature_logs import FEATURES, WARD, feature_rows, write_rows

pytestmark = pytest.mark.usefixtures("one_thread")


def test_rows_as_they_come(tmp_path):
    rows = sorted(feature_rows(), key=lambda row: row["block"])
    data = write_rows(tmp_path / "ward.csv", [{k: v for k, v in row.items() if k != "block"} for row in rows])
    columns = Columns(episode="stay", step="row-order", action="dose", terminated="died")
    discretize_log(data, tmp_path / "out", k=4, columns=columns, features=FEATURES)
    log = parquet.read_table(tmp_path / "out" / "log.parquet")
    expected = sorted((row["stay"], row["block"] - 1, row["reward"]) for row in rows)
    assert [(r["episode"], r["step"], r["reward"]) for r in log.to_pylist()] == expected


def test_tables_that_can_not_be_a_log_are_refused(tmp_path):
    def attempt(match, rows=None, error=DataError, **settings):
        data = write_rows(tmp_path / "bad.csv", rows or feature_rows())
        with pytest.raises(error, match=match):
            discretize_log(data, tmp_path / "out", **({"k": 4, "columns": WARD, "features": FEATURES} | settings))
        assert not (tmp_path / "out").exists()

    def with_cell(row, **cells):
        rows = feature_rows()
        rows[row] |= cells
        return rows

    attempt("must be a finite number; got an empty cell in column 'pulse' of bad.csv, line 9", with_cell(7, pulse=""))
    attempt("steps must be integers; got 'x' in column 'block' of bad.csv, line 9", with_cell(7, block="x"))
    attempt("every row needs an action; .* column 'dose' of bad.csv, line 9", with_cell(7, dose=""))
    attempt("terminated must be true or false; got 'so'", with_cell(7, died="so"))
    attempt("rewards must be finite numbers; got 'inf'", with_cell(7, reward="inf"), objectives=["reward"])
    attempt("steps must be consecutive within an episode; episode .* in column 'block'", with_cell(7, block=9))
    attempt("has no column 'nothing'", features=["nothing"])
    attempt(
        "has no column 'dosis'.*Did you mean 'dose'.*`action`",
        columns=Columns(episode="stay", step="block", action="dosis"),
    )
    attempt("has no column 'profit'.*`objectives`", objectives=["profit"])
    attempt("remark must be a finite number; got .* in column 'remark' of bad.csv, line 2", features=["remark"])
    attempt("clashes with the log's own", [row | {"next_state": 1} for row in feature_rows()])
    attempt("has no column of numbers left", features=[])
    attempt("name the reward columns", error=ParameterError, features=None)
    attempt("'dose' can't be a feature", error=ParameterError, features=["dose"])
    attempt("'pulse' is given twice", error=ParameterError, features=["pulse", "pulse"])
    attempt("'dose' is named for two roles", error=ParameterError, objectives=["dose"])
    attempt("must be between 0 and 1", error=ParameterError, train_share=1.0)
    attempt("leaves a part empty", train_share=0.01)
    path = tmp_path / "empty.csv"
    path.write_text("stay,block,dose,died,pulse,lactate\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no rows"):
        discretize_log(path, tmp_path / "out", columns=WARD, features=FEATURES)
