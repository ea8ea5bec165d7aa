"""What data is, and reading a log into memory: the same from every format, from one file or several."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bettersafe.errors import ParameterError
from bettersafe.logs.counts_file import save_counts
from bettersafe.logs.dataset import Columns, Objective
from bettersafe.logs.source import count_files, find_source, read_dataset
from logs import BOTH, FORMATS, Rows, assert_same, long_log, read, small_log, write

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


def test_memory_limit_must_be_a_size(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="such as '2GB'; got 'much'"):
        count_files(write(tmp_path / "log.csv", small_log()), objectives=BOTH, memory_limit="much")


def test_what_data_is(tmp_path: Path) -> None:
    log = write(tmp_path / "log.parquet", small_log())
    save_counts(count_files(log, objectives=BOTH), tmp_path / "counts.parquet")
    assert not find_source(log).is_counts
    assert find_source(log).rows == 3.0
    assert find_source(str(tmp_path / "l*.parquet")).rows == 3.0
    assert find_source(tmp_path / "counts.parquet").is_counts
    assert find_source(tmp_path / "counts.parquet").rows == math.inf
    assert not find_source(tmp_path / "nothing.parquet").is_counts
