"""A log as a table of rows: what is completed, and one sentence about columns that are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bettersafe.logs._reader.relation import open_source
from bettersafe.logs.dataset import Columns, Objective
from logs import BOTH, FORMATS, KINDS, changed, complaint, long_log, read, small_log, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", FORMATS)
def test_next_state_and_end_are_taken_from_the_rows(tmp_path: Path, name: str) -> None:
    rows = [{k: v for k, v in row.items() if k not in {"next_state", "terminated"}} for row in small_log()]
    dataset = read(write(tmp_path / name, rows))
    assert dataset.next_states.tolist() == [1, -1, -1]
    assert dataset.terminated.tolist() == [False, True, True]
    assert dataset.notes == ("no 'terminated' column: the last row of every episode is taken as its end",)


def test_truncated_column_alone_says_which_ends_are_no_ends(tmp_path: Path) -> None:
    rows = [{k: v for k, v in row.items() if k not in {"next_state", "terminated"}} for row in small_log()]
    for row, cut in zip(rows, ("no", "no", "Yes"), strict=True):
        row["truncated"] = cut
    dataset = read(write(tmp_path / "log.csv", rows))
    assert dataset.terminated.tolist() == [False, True, False]
    assert dataset.next_states.tolist() == [1, -1, -1]
    assert dataset.notes == (
        "no 'terminated' column: the last row of every episode is taken as its end"
        " unless column 'truncated' says otherwise",
        "1 episode is cut off with no next_state: its last row is left out of the model",
    )


def test_missing_next_state_in_the_middle_is_taken_from_the_next_row(tmp_path: Path) -> None:
    dataset = read(write(tmp_path / "log.parquet", changed(0, next_state=None)))
    assert dataset.next_states.tolist() == [1, -1, 1]


def test_next_state_of_a_terminated_row_is_no_state(tmp_path: Path) -> None:
    dataset = read(write(tmp_path / "log.csv", changed(1, next_state="the end")))
    assert dataset.state_labels.tolist() == ["a", "b"]
    assert dataset.next_states.tolist() == [1, -1, 1]


def test_source_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    rows = [{k: v for k, v in row.items() if k != "next_state"} for row in long_log()]
    with open_source(write(tmp_path / "log.csv", rows), objectives=BOTH, memory_limit="100MB") as source:
        assert source.ask("SELECT count(*) FROM log") == [(len(rows),)]
        assert any(scratch.iterdir())
    assert not any(scratch.iterdir())


# What can be wrong: which columns.
@pytest.mark.parametrize("name", KINDS)
def test_missing_column(tmp_path: Path, name: str) -> None:
    rows = [{("states" if k == "state" else k): v for k, v in row.items()} for row in small_log()]
    message = complaint(write(tmp_path / name, rows))
    assert message.startswith(f"{name} has no column 'state'; it has ")
    assert message.endswith(" Did you mean 'states'? Name it with `state` or in the task file.")


def test_missing_columns_name_their_option(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", small_log())
    there = "it has episode, step, state, action, next_state, terminated, gain, pain."
    assert complaint(path, objectives=[Objective(name="cost")]) == (
        f"log.csv has no column 'cost'; {there} Name it with `objectives` or in the task file."
    )
    assert complaint(path, Columns(next_state="x2")) == (
        f"log.csv has no column 'x2'; {there} Name it with `next_state` or in the task file."
    )
    assert complaint(path, Columns(step="time")) == (
        f"log.csv has no column 'time'; {there}"
        " Name it with `step` or in the task file; or, if the rows are in chronological order, set `step` to row-order."
    )


def test_column_missing_from_one_of_several_files(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", small_log())
    write(tmp_path / "b.parquet", [{k: v for k, v in small_log()[2].items() if k != "terminated"}])
    assert complaint(f"{tmp_path}/*.parquet").startswith("b.parquet has no column 'terminated';")


@pytest.mark.parametrize("name", KINDS)
def test_no_objective(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [row | {"ward": "north"} for row in small_log()])
    assert complaint(path, objectives=[]) == (
        "at least one objective is needed; got none. Name it with `objectives`;"
        f" numeric columns of {name} that could be one: gain, pain."
    )


def test_no_objective_and_none_in_sight(tmp_path: Path) -> None:
    rows = [{"episode": 1, "step": 0, "state": 1, "action": 2}]
    message = complaint(write(tmp_path / "log.csv", rows), objectives=[])
    assert message.endswith("log.csv has no numeric column that could be one.")
