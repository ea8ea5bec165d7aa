from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyarrow import parquet

from bettersafe.errors import DataError, ParameterError, RunError
from bettersafe.logs.dataset import Dataset, Objective, split, take_episodes, write_dataset
from bettersafe.logs.source import read_dataset
from logs import GAIN, PAIN, assert_same, small_log, write

if TYPE_CHECKING:
    from pathlib import Path


def make(lengths: list[int]) -> Dataset:
    """Episodes of these lengths; row i is in state i mod 3 and takes action i mod 2."""
    n = sum(lengths)
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    states = np.arange(n) % 3
    next_states = np.append(states[1:], 0)
    next_states[ptr[1:] - 1] = -1
    terminated = np.zeros(n, dtype=bool)
    terminated[ptr[1:] - 1] = True
    return Dataset(
        states=states,
        actions=np.arange(n) % 2,
        rewards=np.arange(2.0 * n).reshape(n, 2),
        next_states=next_states,
        terminated=terminated,
        episode_ptr=ptr,
        state_labels=np.array(["x", "y", "z"]),
        action_labels=np.array([10, 20]),
        episode_labels=np.arange(len(lengths)),
        objectives=(GAIN, PAIN),
    )


def test_objective_title_is_its_label_or_name() -> None:
    assert Objective(name="los").title == "los"
    assert Objective(name="los", label="length of stay").title == "length of stay"


@pytest.mark.parametrize("setting", [{"discount": 1.01}, {"weight": -1.0}, {"weight": float("nan")}])
def test_objective_refuses_bad_settings(setting: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match="los"):
        Objective(name="los", **setting)


def test_sizes_and_read_only() -> None:
    dataset = make([2, 3])
    sizes = (dataset.n_rows, dataset.n_episodes, dataset.n_states, dataset.n_actions, dataset.n_objectives)
    assert sizes == (5, 2, 3, 2, 2)
    with pytest.raises(ValueError, match="read-only"):
        dataset.rewards[0, 0] = 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": [0]}, "actions must have 5 entries"),
        ({"rewards": np.zeros((5, 3))}, r"one column per objective \(gain, pain\)"),
        ({"rewards": np.full((5, 2), np.nan)}, "rewards must be finite; it is not in row 0"),
        ({"episode_ptr": [0, 0, 5]}, "episode_ptr must rise"),
        ({"episode_labels": [1]}, "2 episodes need as many labels"),
        ({"state_labels": ["x", "x", "z"]}, "each label occurs once"),
        ({"states": [0, 1, 2, 0, 7]}, "states must be indices below 3"),
        ({"terminated": [True, True, False, False, True]}, "last of its episode; it is not in row 0"),
        (
            {"next_states": [1, 2, 0, 1, -1]},
            r"terminated row must be -1; it is not in row 1 \(from 0\) of episode 0",
        ),
        ({"next_states": [1, -1, 1, 1, -1]}, "state of the next row; it is not in row 0 .* of episode 1"),
        ({"baseline_prob": np.zeros(5)}, "baseline_prob must be in"),
        ({"objectives": (GAIN, GAIN)}, "'gain' is given twice"),
        ({"objectives": ()}, "at least one objective"),
        ({"states": np.zeros((5, 1))}, "states must be one number per row"),
    ],
)
def test_dataset_refuses_what_does_not_fit(change: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        replace(make([2, 3]), **change)


def test_take_episodes_in_the_order_asked() -> None:
    dataset = make([2, 1, 3])
    taken = take_episodes(dataset, [2, 0, 2])
    assert taken.episode_ptr.tolist() == [0, 3, 5, 8]
    assert taken.episode_labels.tolist() == [2, 0, 2]
    assert taken.states.tolist() == [0, 1, 2, 0, 1, 0, 1, 2]
    assert taken.n_states == 3
    with pytest.raises(ParameterError, match="below 3"):
        take_episodes(dataset, [3])


def test_split_is_a_partition_by_episode() -> None:
    dataset = make([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    train, safety = split(dataset, (0.7, 0.3), np.random.default_rng(1))
    assert (train.n_episodes, safety.n_episodes) == (7, 3)
    assert sorted([*train.episode_labels, *safety.episode_labels]) == list(range(10))
    assert train.n_rows + safety.n_rows == dataset.n_rows
    again, _ = split(dataset, (0.7, 0.3), np.random.default_rng(1))
    assert again.episode_labels.tolist() == train.episode_labels.tolist()


@pytest.mark.parametrize("fractions", [(0.5, 0.6), (1.0, 0.0), ()])
def test_split_refuses_bad_fractions(fractions: tuple[float, ...]) -> None:
    with pytest.raises(ParameterError, match="sum to 1"):
        split(make([1, 1]), fractions, np.random.default_rng(0))


def test_split_refuses_an_empty_part() -> None:
    with pytest.raises(DataError, match=r"0\.1 of 2 episodes leaves none"):
        split(make([1, 1]), (0.9, 0.1), np.random.default_rng(0))


def test_written_dataset_reads_back_exactly(tmp_path: Path) -> None:
    rows = small_log()
    rows[2]["next_state"] = None  # cut off, with nothing known about what came next
    for i, row in enumerate(rows):
        row["baseline_prob"] = 0.1 + 0.2 * i
    dataset = read_dataset(write(tmp_path / "log.jsonl", rows), objectives=[GAIN, PAIN])
    assert dataset.next_states.tolist() == [1, -1, -1]
    path = tmp_path / "copy.parquet"
    write_dataset(dataset, path)
    assert_same(read_dataset(path, objectives=[GAIN, PAIN]), dataset)
    assert [entry.name for entry in tmp_path.iterdir() if "partial" in entry.name] == []
    table = parquet.read_table(path)
    assert table["pain"].to_pylist() == [0.5, 0.0, 2.0]
    assert table["next_state"].to_pylist() == ["b", None, None]
    assert table.schema.metadata[b"bettersafe.schema"] == b"dataset/1"
    stored = json.loads(table.schema.metadata[b"bettersafe.objectives"])
    assert [Objective(**fields) for fields in stored] == [GAIN, PAIN]


def test_unknown_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    write_dataset(make([2]), path)
    table = parquet.read_table(path).replace_schema_metadata({"bettersafe.schema": "dataset/9"})
    parquet.write_table(table, path)
    with pytest.raises(DataError, match=r"log\.parquet was written as 'dataset/9'"):
        read_dataset(path, objectives=[GAIN])


def test_write_refuses_what_would_not_read_back(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="different labels"):
        write_dataset(take_episodes(make([1, 1]), [0, 0]), tmp_path / "a.parquet")
    clash = replace(make([1]), objectives=(Objective(name="state"), PAIN))
    with pytest.raises(DataError, match="can't be called 'state'"):
        write_dataset(clash, tmp_path / "a.parquet")
    with pytest.raises(RunError, match="can't be written"):
        write_dataset(make([1]), tmp_path / "nowhere" / "a.parquet")


def test_importing_data_is_light() -> None:
    code = "import sys, bettersafe.logs.dataset, bettersafe.logs.counts; sys.exit('duckdb' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
