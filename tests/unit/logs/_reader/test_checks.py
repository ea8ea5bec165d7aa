"""One sentence about what is wrong with cells, labels or the order of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

from bettersafe.logs.dataset import Columns
from logs import KINDS, Rows, changed, complaint, small_log, small_log_columns, where, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("column", ["episode", "state", "action"])
def test_null_label(tmp_path: Path, name: str, column: str) -> None:
    message = complaint(write(tmp_path / name, changed(1, **{column: None})))
    assert message.startswith(f"every row needs {'a' if column == 'state' else 'an'} {column}; got ")
    assert f"in column {column!r} of {where(name, 1)}. Fill it in" in message


@pytest.mark.parametrize("name", [*KINDS, "log.arrow"])
def test_null_reward(tmp_path: Path, name: str) -> None:
    nothing = "an empty cell" if "sv" in name else "null"
    assert complaint(write(tmp_path / name, changed(2, pain=None))) == (
        f"rewards must be finite numbers; got {nothing} in column 'pain' of {where(name, 2)}."
        " Correct the cell or drop its episode."
    )


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("value", "shown"), [("nan", "nan"), ("inf", "inf infinity"), ("1e200", "1e200 1e+200")])
def test_reward_that_is_no_finite_number(tmp_path: Path, name: str, value: str, shown: str) -> None:
    message = complaint(write(tmp_path / name, changed(0, gain=float(value))))
    quoted = message.split("got ")[1].split(" in ")[0].strip("'").lower()
    assert quoted in shown
    assert f"in column 'gain' of {where(name, 0)}." in message


def test_reward_that_is_text(tmp_path: Path) -> None:
    message = "rewards must be finite numbers; got 'n/a' in column 'pain' of {}. Correct the cell or drop its episode."
    for name in ("log.csv", "log.jsonl"):
        assert complaint(write(tmp_path / name, changed(1, pain="n/a"))) == message.format(where(name, 1))
    rows = [row | {"pain": str(row["pain"])} for row in small_log()]
    rows[1]["pain"] = "n/a"
    assert complaint(write(tmp_path / "log.parquet", rows)) == message.format("log.parquet, row 2")


@pytest.mark.parametrize("name", KINDS)
def test_step_that_is_no_integer(tmp_path: Path, name: str) -> None:
    message = complaint(write(tmp_path / name, [row | {"step": row["step"] + 0.5} for row in small_log()]))
    assert message == (
        f"steps must be integers; got '0.5' in column 'step' of {where(name, 0)}."
        " Number the rows of each episode 0, 1, 2, ... (times: by their order); or, if the rows are in chronological order,"
        " set `step` to row-order."
    )


@pytest.mark.parametrize("value", ["soon", 10**19])
def test_step_that_is_out_of_the_question(tmp_path: Path, value: object) -> None:
    message = complaint(write(tmp_path / "log.csv", changed(1, step=value)))
    assert message.startswith(f"steps must be integers; got '{value}' in column 'step' of log.csv, line 3.")


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
@pytest.mark.parametrize("value", ["maybe", None])
def test_flag_that_is_none(tmp_path: Path, name: str, value: str | None) -> None:
    message = complaint(write(tmp_path / name, changed(2, terminated=value)))
    assert message.startswith("terminated must be true or false; got ")
    assert f"in column 'terminated' of {where(name, 2)}." in message


def test_terminated_and_truncated(tmp_path: Path) -> None:
    rows = [row | {"truncated": i != 0} for i, row in enumerate(small_log())]
    assert complaint(write(tmp_path / "log.jsonl", rows)) == (
        "a row can't be both terminated (column 'terminated') and truncated; got 'true' in column"
        " 'truncated' of log.jsonl, line 2. Set truncated to false where the process itself ended."
    )


@pytest.mark.parametrize(
    ("value", "start"),
    [
        (0, "a logged action can't have had probability 0"),
        (1.5, "baseline_prob must be"),
        (1.00001, "baseline_prob must be"),
        (-0.000001, "baseline_prob must be"),
    ],
)
def test_impossible_baseline_probability(tmp_path: Path, value: float, start: str) -> None:
    rows = [row | {"baseline_prob": 0.5} for row in small_log()]
    rows[1]["baseline_prob"] = value
    for name in KINDS:
        message = complaint(write(tmp_path / name, rows))
        assert message.startswith(start)
        assert f"in column 'baseline_prob' of {where(name, 1)}." in message


@pytest.mark.parametrize("value", [None, float("nan")])
def test_missing_baseline_probability(tmp_path: Path, value: float | None) -> None:
    rows = [row | {"p": 0.5} for row in small_log()]
    rows[2]["p"] = value
    message = complaint(write(tmp_path / "log.jsonl", rows), Columns(baseline_prob="p"))
    assert message.startswith("baseline_prob must be a probability in (0, 1]; got ")
    assert "in column 'p' of log.jsonl, line 3." in message


# What can be wrong: labels.
@pytest.mark.parametrize("name", KINDS)
def test_real_numbers_are_no_labels(tmp_path: Path, name: str) -> None:
    rows = [row | {"action": 1 + 0.25 * i} for i, row in enumerate(small_log())]
    assert complaint(write(tmp_path / name, rows)) == (
        f"action labels must be integers or text; got '1.25' in column 'action' of {where(name, 1)}."
        " Discretise the column into bins and write the bin's number or name."
    )


def test_mixed_types_in_json(tmp_path: Path) -> None:
    assert complaint(write(tmp_path / "log.jsonl", changed(1, action=3))) == (
        "mixed types: action labels must be all numbers or all text; got 'go', text, in column 'action' of"
        " log.jsonl, line 1 and a number elsewhere (column 'action'). Write them with one type."
    )


def test_state_and_next_state_of_two_types(tmp_path: Path) -> None:
    rows = [row | {"state": {"a": 0, "b": 1}[row["state"]]} for row in small_log()]
    for name in ("log.parquet", "log.jsonl", "log.arrow"):
        message = complaint(write(tmp_path / name, rows))
        assert message.startswith("mixed types: state labels must be all numbers or all text; got 'b', text, in")
        assert f"column 'next_state' of {where(name, 0)} and a number elsewhere (column 'state')." in message


def test_a_column_of_two_types_in_two_files(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", small_log())
    write(tmp_path / "b.parquet", [row | {"episode": 9, "action": 1} for row in small_log()[2:]])
    assert complaint(f"{tmp_path}/*.parquet") == (
        "mixed types: column 'action' holds text in a.parquet but numbers in b.parquet. Write it with one type."
    )


def test_labels_that_are_lists_or_too_long(tmp_path: Path) -> None:
    for name in ("log.jsonl", "log.parquet"):
        rows = [row | {"action": [1, 2]} for row in small_log()]
        message = complaint(write(tmp_path / name, rows))
        assert message.startswith("action labels must be single values; got '[1")
        assert f"in column 'action' of {where(name, 0)}." in message
    table = pa.table(small_log_columns() | {"action": pa.array([1, 2, 2**64 - 1], pa.uint64())})
    parquet.write_table(table, tmp_path / "log.parquet")
    message = complaint(tmp_path / "log.parquet")
    assert message.startswith("integer action labels must fit in 64 bits; got '18446744073709551615' in column")


# What can be wrong: how rows follow each other.
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("bare", [False, True])
def test_duplicate_step(tmp_path: Path, name: str, bare: bool) -> None:
    rows = changed(2, episode=1, step=0)
    if bare:
        rows = [{k: v for k, v in row.items() if k not in {"next_state", "terminated"}} for row in rows]
    assert complaint(write(tmp_path / name, rows)) == (
        f"steps must be unique within an episode; step 0 of episode 1 is in {where(name, 0)} and again in"
        f" column 'step' of {where(name, 2)}. Remove one of the rows, or give different episodes different"
        " labels in column 'episode'."
    )


def test_duplicate_step_in_two_files(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write(tmp_path / name, small_log())
    message = complaint(f"{tmp_path}/*.csv")
    assert "step 0 of episode 1 is in a.csv, line 2 and again in column 'step' of b.csv, line 2." in message


@pytest.mark.parametrize("name", [*KINDS, "log.arrow"])
@pytest.mark.parametrize("bare", [False, True])
def test_gap_in_steps(tmp_path: Path, name: str, bare: bool) -> None:
    rows = changed(1, step=3)
    if bare:
        rows = [{k: v for k, v in row.items() if k not in {"next_state", "terminated"}} for row in rows]
    assert complaint(write(tmp_path / name, rows)) == (
        f"steps must be consecutive within an episode; episode 1 goes from 0 to 3 in column 'step' of"
        f" {where(name, 1)}. Add the missing rows, renumber the steps, or, if the rows are in chronological order,"
        " set `step` to row-order."
    )


def test_duplicate_and_gap_that_cancel_in_the_count(tmp_path: Path) -> None:
    rows = [{"episode": 1, "step": step, "state": 0, "action": 0, "gain": 0, "pain": 0} for step in (0, 1, 1, 3)]
    assert "step 1 of episode 1" in complaint(write(tmp_path / "log.csv", rows))
    for row in rows:
        row |= {"next_state": 0, "terminated": False}
    assert "step 1 of episode 1" in complaint(write(tmp_path / "log.csv", rows))


@pytest.mark.parametrize("name", KINDS)
def test_contradicting_next_state(tmp_path: Path, name: str) -> None:
    message = (
        f"next_state must be the state of the next row; got 'a' in column 'next_state' of {where(name, 0)},"
        f" but episode 1 goes on in state 'b' in {where(name, 1)}. Correct one of them."
    )
    rows = changed(0, next_state="a")
    assert complaint(write(tmp_path / name, rows)) == message
    unknown = [dict(row) for row in rows]
    unknown[2]["next_state"] = None  # the rows then have to be completed from each other
    assert complaint(write(tmp_path / name, unknown)) == message
    assert complaint(write(tmp_path / name, rows), Columns(step="row-order")) == message


def test_swapped_next_states_do_not_cancel(tmp_path: Path) -> None:
    rows: Rows = [
        {
            "episode": 1,
            "step": t,
            "state": t,
            "action": 0,
            "next_state": x,
            "terminated": t == 3,
            "gain": 0,
            "pain": 0,
        }
        for t, x in enumerate((2, 1, 3, None))
    ]
    message = complaint(write(tmp_path / "log.parquet", rows))
    assert "got 2 in column 'next_state' of log.parquet, row 1, but episode 1 goes on in state 1" in message


@pytest.mark.parametrize("role", ["terminated", "truncated"])
def test_row_after_the_end(tmp_path: Path, role: str) -> None:
    rows = [{k: v for k, v in row.items() if k != "terminated"} | {role: i == 0} for i, row in enumerate(small_log())]
    for name in KINDS:
        message = (
            f"a {role} row must be the last of its episode; column {role!r} of {where(name, 0)} ends"
            f" episode 1, but {where(name, 1)} goes on with it."
            " Correct the flag, or give the later rows another episode label."
        )
        assert complaint(write(tmp_path / name, rows)) == message
        assert complaint(write(tmp_path / name, rows), Columns(step="row-order")) == message
