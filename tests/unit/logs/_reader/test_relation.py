"""Logs as tables of rows: the same from every format, whatever columns are left out."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bettersafe.errors import ParameterError
from bettersafe.logs._reader.relation import open_source
from bettersafe.logs.dataset import Columns, Objective
from bettersafe.logs.source import count_files, read_dataset
from logs import BOTH, FORMATS, KINDS, Rows, assert_same, changed, complaint, read, small_log, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_dataset(tmp_path: Path, name: str) -> None:
    dataset = read(write(tmp_path / name, small_log()))
    assert dataset.states.tolist() == [0, 1, 0]
    assert dataset.actions.tolist() == [0, 1, 0]
    assert dataset.next_states.tolist() == [1, -1, 1]
    assert dataset.terminated.tolist() == [False, True, False]
    assert dataset.rewards.tolist() == [[1.0, -0.5], [4.0, 0.0], [-2.0, -2.0]]
    assert not np.signbit(dataset.rewards[1, 1])  # a cost of 0 is 0, not -0
    assert dataset.episode_ptr.tolist() == [0, 2, 3]
    assert dataset.episode_labels.tolist() == [1, 2]
    assert dataset.state_labels.tolist() == ["a", "b"]
    assert dataset.action_labels.tolist() == ["go", "stop"]
    assert dataset.notes == ()


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


def long_log() -> Rows:
    """Forty episodes of different lengths, integers for labels, steps from 5, one real in each objective."""
    rng = random.Random(3)
    rows: Rows = []
    for episode in range(40):
        states = [rng.randrange(6) for _ in range(rng.randrange(1, 9))]
        for t, state in enumerate(states):
            last = t == len(states) - 1
            ended = last and episode % 3 != 0
            rows.append(
                {"episode": f"e{episode}", "step": t + 5, "state": state, "action": rng.randrange(3)}
                | {"next_state": None if ended else (rng.randrange(6) if last else states[t + 1])}
                | {"terminated": ended, "gain": rng.random(), "pain": rng.random()}
            )
    return rows


@pytest.mark.parametrize("name", FORMATS)
def test_row_order_does_not_matter(tmp_path: Path, name: str) -> None:
    rows = long_log()
    straight = read(write(tmp_path / name, rows))
    random.Random(1).shuffle(rows)
    assert_same(read(write(tmp_path / f"shuffled_{name}", rows)), straight)
    assert straight.state_labels.dtype == np.int64


def test_row_order_as_step(tmp_path: Path) -> None:
    rows = long_log()
    with_steps = read(write(tmp_path / "log.csv", rows))
    for row in rows:
        del row["step"]
    rows.sort(key=lambda row: int(row["episode"][1:]) % 2)  # the order within each episode stays
    for name in FORMATS:
        assert_same(read(write(tmp_path / f"x{name}", rows), Columns(step="row-order")), with_steps)


@pytest.mark.parametrize("extension", ["csv", "parquet", "jsonl", "arrow"])
def test_several_files_are_one_log(tmp_path: Path, extension: str) -> None:
    rows = long_log()
    whole = read(write(tmp_path / f"whole.{extension}", rows))
    cut = len(rows) // 2  # in the middle of an episode
    write(tmp_path / f"part1.{extension}", rows[:cut])
    other = [dict(reversed(row.items())) for row in rows[cut:]]  # columns in another order
    write(tmp_path / f"part2.{extension}", other)
    assert_same(read(str(tmp_path / f"part*.{extension}")), whole)
    assert_same(read([tmp_path / f"part2.{extension}", tmp_path / f"part1.{extension}"]), whole)


@pytest.mark.parametrize("name", FORMATS)
def test_odd_labels_and_columns(tmp_path: Path, name: str) -> None:
    odd = ["ß é 漢", "it's", 'say "hi"', "007", " a,b;c\t", "true", "NULL"]
    rows: Rows = [
        {'an "odd" column': label, "step no": i, "zu'stand": label, "État": odd[-1 - i], "a;b, c": 1.5}
        for i, label in enumerate(odd)
    ]
    for row in rows:
        row['an "odd" column'] = "one"
    columns = Columns(episode='an "odd" column', step="step no", state="zu'stand", action="État")
    dataset = read_dataset(write(tmp_path / name, rows), objectives=[Objective(name="a;b, c")], columns=columns)
    assert dataset.state_labels.tolist() == sorted(odd)
    assert [str(dataset.state_labels[x]) for x in dataset.states] == odd
    assert dataset.rewards[:, 0].tolist() == [1.5] * 7


def test_baseline_column_is_found_and_noted(tmp_path: Path) -> None:
    rows = [row | {"baseline_prob": 0.25} for row in small_log()]
    dataset = read(write(tmp_path / "log.parquet", rows))
    assert dataset.baseline_prob is not None
    assert dataset.baseline_prob.tolist() == [0.25] * 3
    assert dataset.notes == ("column 'baseline_prob' gives the baseline's probability of each logged action",)


def test_source_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    rows = [{k: v for k, v in row.items() if k != "next_state"} for row in long_log()]
    with open_source(write(tmp_path / "log.csv", rows), objectives=BOTH, memory_limit="100MB") as source:
        assert source.ask("SELECT count(*) FROM log") == [(len(rows),)]
        assert any(scratch.iterdir())
    assert not any(scratch.iterdir())


def test_memory_limit_must_be_a_size(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="such as '2GB'; got 'much'"):
        count_files(write(tmp_path / "log.csv", small_log()), objectives=BOTH, memory_limit="much")


# What can be wrong: which columns.
@pytest.mark.parametrize("name", KINDS)
def test_missing_column(tmp_path: Path, name: str) -> None:
    rows = [{("states" if k == "state" else k): v for k, v in row.items()} for row in small_log()]
    message = complaint(write(tmp_path / name, rows))
    assert message.startswith(f"{name} has no column 'state'; it has ")
    assert message.endswith(" Did you mean 'states'? Name it with --state or in the task file.")


def test_missing_columns_name_their_option(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", small_log())
    there = "it has episode, step, state, action, next_state, terminated, gain, pain."
    assert complaint(path, objectives=[Objective(name="cost")]) == (
        f"log.csv has no column 'cost'; {there} Name it with --objective or in the task file."
    )
    assert complaint(path, Columns(next_state="x2")) == (
        f"log.csv has no column 'x2'; {there} Name it with --next-state or in the task file."
    )
    assert complaint(path, Columns(step="time")) == (
        f"log.csv has no column 'time'; {there}"
        " Name it with --step or in the task file; or, if the rows are in chronological order, use --step row-order."
    )


def test_column_missing_from_one_of_several_files(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", small_log())
    write(tmp_path / "b.parquet", [{k: v for k, v in small_log()[2].items() if k != "terminated"}])
    assert complaint(f"{tmp_path}/*.parquet").startswith("b.parquet has no column 'terminated';")


@pytest.mark.parametrize("name", KINDS)
def test_no_objective(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [row | {"ward": "north"} for row in small_log()])
    assert complaint(path, objectives=[]) == (
        "at least one objective is needed; got none. Name it with --objective;"
        f" numeric columns of {name} that could be one: gain, pain."
    )


def test_no_objective_and_none_in_sight(tmp_path: Path) -> None:
    rows = [{"episode": 1, "step": 0, "state": 1, "action": 2}]
    message = complaint(write(tmp_path / "log.csv", rows), objectives=[])
    assert message.endswith("log.csv has no numeric column that could be one.")
