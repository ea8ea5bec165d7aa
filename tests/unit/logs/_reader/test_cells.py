"""How cells of every type are read as labels, flags and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb

from bettersafe.logs._reader import cells
from logs import read, small_log, write

if TYPE_CHECKING:
    from pathlib import Path


def test_label_types(tmp_path: Path) -> None:
    def states(name: str, *labels: Any) -> list[Any]:
        rows = [{"episode": i, "step": 0, "state": x, "action": 1, "gain": 0, "pain": 0} for i, x in enumerate(labels)]
        return read(write(tmp_path / name, rows)).state_labels.tolist()

    assert states("a.csv", 10, 9) == [9, 10]
    assert states("b.csv", "10", "09") == ["09", "10"]
    assert states("c.csv", "1e3", "12345678901234567890") == ["12345678901234567890", "1e3"]
    assert states("d.csv", True, False) == ["False", "True"]
    assert states("a.parquet", "10", "9") == ["10", "9"]
    assert states("b.parquet", 10.0, 9.0) == [9, 10]
    assert states("c.parquet", True, False) == ["false", "true"]
    assert states("a.jsonl", 10, 9.0) == [9, 10]
    assert states("b.jsonl", "10", "9") == ["10", "9"]
    assert states("c.jsonl", True, False) == ["false", "true"]


def test_float_next_state_with_nan_is_an_integer_with_gaps(tmp_path: Path) -> None:
    rows = small_log()
    for row in rows:
        row["state"] = {"a": 1, "b": 2}[row["state"]]
        row["next_state"] = {None: float("nan"), "b": 2.0}[row["next_state"]]
    for name in ("log.parquet", "log.arrow", "log.jsonl"):
        dataset = read(write(tmp_path / name, rows))
        assert dataset.state_labels.tolist() == [1, 2]
        assert dataset.next_states.tolist() == [1, -1, 1]


def test_mixed_labels_in_csv_are_text_with_a_note(tmp_path: Path) -> None:
    rows = small_log()
    rows[0]["state"] = rows[2]["state"] = "12"
    dataset = read(write(tmp_path / "log.csv", rows))
    assert dataset.state_labels.tolist() == ["12", "b"]
    (note,) = dataset.notes
    assert note.startswith(
        "state labels mix numbers and text, '12' in log.csv, line 2 and 'b' in log.csv, line 3: all are read"
    )


def test_flags_in_many_spellings(tmp_path: Path) -> None:
    for no, yes in [("0", "1"), ("f", "T"), ("no", "YES"), (" False", "true "), ("0.0", "1.0")]:
        rows = [row | {"terminated": yes if row["terminated"] else no} for row in small_log()]
        assert read(write(tmp_path / "log.csv", rows)).terminated.tolist() == [False, True, False]
    rows = [row | {"terminated": int(row["terminated"])} for row in small_log()]
    assert read(write(tmp_path / "log.parquet", rows)).terminated.tolist() == [False, True, False]


def test_families_that_a_type_can_have_are_all_that_are_found() -> None:
    """What is not asked of a column because of its type is not there: every shape against all cells that it can hold."""
    cases: dict[str, tuple[str, list[str]]] = {
        "int": ("BIGINT", ["1", "NULL"]),
        "huge": ("UBIGINT", ["1", "18446744073709551615", "NULL"]),
        "float": ("DOUBLE", ["1.0", "1.5", "'nan'", "'inf'", "1e300", "NULL"]),
        "bool": ("BOOLEAN", ["true", "NULL"]),
        "text": ("VARCHAR", ["'a'", "'1'", "NULL"]),
        "cell": (
            "VARCHAR",
            ["'a'", "'1'", "'1.0'", "'1.5'", "'007'", "'1e300'", "'99999999999999999999'", "'nan'", "NULL"],
        ),
        "json": ("JSON", ["'1'", "'1.5'", "'\"a\"'", "'true'", "'[1]'", "'null'", "'18446744073709551615'", "NULL"]),
        "nested": ("INTEGER[]", ["[1]", "NULL"]),
        "null": ("INTEGER", ["NULL"]),
    }
    for form, (kind, values) in cases.items():
        shape: Any = form
        rows = " UNION ALL ".join(f"SELECT CAST({value} AS {kind}) AS c" for value in values)
        found = duckdb.sql(
            f"SELECT {cells.family('c', shape)} AS family, {cells.missing('c', shape)} AS missing FROM ({rows})"
        ).fetchall()
        assert {family for family, _ in found if family} <= set(cells.families(shape)), form
        assert all((family is None) == missing for family, missing in found), form
