"""Small logs in every format, for the tests of reading and counting."""

from __future__ import annotations

import csv
import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import feather, parquet

from bettersafe.logs.dataset import Objective

if TYPE_CHECKING:
    from pathlib import Path

    from bettersafe.logs.counts import Counts

FORMATS = ("log.csv", "log.csv.gz", "log.tsv", "log.parquet", "log.jsonl", "log.arrow")
GAIN = Objective(name="gain", discount=0.5)
PAIN = Objective(name="pain", discount=0.9, lower_is_better=True)

Rows = list[dict[str, Any]]


def small_log() -> Rows:
    """Two episodes: one terminates in its second row, one is cut off after one row, on its way to state b."""
    return [
        {"episode": 1, "step": 0, "state": "a", "action": "go", "next_state": "b", "terminated": False}
        | {"gain": 1.0, "pain": 0.5},
        {"episode": 1, "step": 1, "state": "b", "action": "stop", "next_state": None, "terminated": True}
        | {"gain": 4.0, "pain": 0.0},
        {"episode": 2, "step": 0, "state": "a", "action": "go", "next_state": "b", "terminated": False}
        | {"gain": -2.0, "pain": 2.0},
    ]


def write(path: Path, rows: Rows) -> Path:
    """Write rows in the format of the path's extension."""
    columns = list(rows[0])
    name = path.name
    if name.endswith((".csv", ".csv.gz", ".tsv")):
        opener = gzip.open if name.endswith(".gz") else open
        with opener(path, "wt", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, delimiter="\t" if name.endswith(".tsv") else ",")
            writer.writerow(columns)
            writer.writerows([[row[column] for column in columns] for row in rows])
    elif name.endswith((".jsonl", ".json", ".ndjson")):
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    else:
        table = pa.table({column: [row[column] for row in rows] for column in columns})
        if name.endswith(".parquet"):
            parquet.write_table(table, path)
        else:
            feather.write_feather(table, str(path))
    return path


def assert_same(one: object, other: object, *, skip: tuple[str, ...] = (), rtol: float = 0.0) -> None:
    """Fail unless two Datasets or two Counts are equal, floats up to ``rtol`` of the largest of an array."""
    for name, value in vars(one).items():
        if name in skip:
            continue
        found = getattr(other, name)
        if isinstance(value, np.ndarray):
            assert value.shape == found.shape, name
            assert value.dtype.kind == found.dtype.kind, name
            if value.dtype.kind == "f":
                scale = np.max(np.abs(value), initial=0.0)
                np.testing.assert_allclose(found, value, rtol=rtol, atol=rtol * scale, err_msg=name)
            else:
                np.testing.assert_array_equal(found, value, err_msg=name)
        else:
            assert value == found, name


def assert_same_counts(one: Counts, other: Counts, *, skip: tuple[str, ...] = ()) -> None:
    """Fail unless all integers are equal and all sums agree to 1e-12."""
    assert_same(one, other, skip=skip, rtol=1e-12)
