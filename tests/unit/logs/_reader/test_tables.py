"""Tables of any columns, from several files."""

from __future__ import annotations

import pytest
from pyarrow import parquet

from bettersafe.errors import DataError
from bettersafe.logs.discretize import (
    discretize_log,
)
from feature_logs import FEATURES, WARD, feature_rows, write_rows

pytestmark = pytest.mark.usefixtures("one_thread")


def test_several_files_are_one_table(tmp_path):
    rows = feature_rows()
    whole = write_rows(tmp_path / "ward.csv", rows)
    write_rows(tmp_path / "part-1.csv", rows[:40])
    write_rows(tmp_path / "part-2.csv", rows[40:])
    for data, out in ((whole, "one"), (str(tmp_path / "part-*.csv"), "two")):
        discretize_log(data, tmp_path / out, k=4, columns=WARD, features=FEATURES)
    one, two = (parquet.read_table(tmp_path / out / "log.parquet") for out in ("one", "two"))
    assert one.equals(two)
    rows[50]["pulse"] = "?"
    write_rows(tmp_path / "part-2.csv", rows[40:])
    with pytest.raises(DataError, match=r"got '\?' in column 'pulse' of part-2.csv, line 12"):
        discretize_log(str(tmp_path / "part-*.csv"), tmp_path / "three", columns=WARD, features=FEATURES)
    rows[50]["pulse"] = 1.0
    rows[50]["lactate"] = -3
    write_rows(tmp_path / "part-2.csv", rows[40:])
    with pytest.raises(DataError, match=r"'lactate' must be above .* got -3 in part-2.csv, line 12"):
        discretize_log(str(tmp_path / "part-*.csv"), tmp_path / "three", columns=WARD, features=FEATURES)
    write_rows(tmp_path / "part-3.csv", [{k: v for k, v in row.items() if k != "remark"} for row in rows[:3]])
    with pytest.raises(DataError, match=r"part-1.csv has 'remark' and part-3.csv does not"):
        discretize_log(str(tmp_path / "part-*.csv"), tmp_path / "three", columns=WARD, features=FEATURES)
