"""Counts of a log, by hand, from files and from memory."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bettersafe.errors import DataError, ParameterError
from bettersafe.logs.counts import count, with_rare
from bettersafe.logs.dataset import Objective, take_episodes
from bettersafe.logs.merge import merge_counts
from bettersafe.logs.source import count_files, read_dataset
from logs import BOTH, FORMATS, GAIN, Rows, any_log, assert_same_counts, small_log, write


@pytest.mark.parametrize("name", FORMATS)
def test_small_log_by_hand(tmp_path: Path, name: str) -> None:
    counts = count_files(write(tmp_path / name, small_log()), objectives=BOTH)
    assert counts.state_labels.tolist() == ["a", "b"]
    assert counts.action_labels.tolist() == ["go", "stop"]
    assert list(zip(counts.pair_state, counts.pair_action, counts.pair_count, strict=True)) == [
        (0, 0, 2),
        (1, 1, 1),
    ]
    assert counts.outcome_ptr.tolist() == [0, 1, 1]
    assert counts.outcome_state.tolist() == [1]
    assert counts.outcome_count.tolist() == [2]
    assert counts.terminated_count.tolist() == [0, 1]
    assert counts.reward_sum.tolist() == [[-1.0, 4.0], [-2.5, 0.0]]
    assert counts.reward_square_sum.tolist() == [[5.0, 16.0], [4.25, 0.0]]
    assert counts.reward_min.tolist() == [-2.0, -2.0]
    assert counts.reward_max.tolist() == [4.0, 0.0]
    assert counts.unseen_reward.tolist() == [0.0, 0.0]
    assert counts.initial_count.tolist() == [2, 0]
    assert counts.baseline_prob is None
    # G_0 of the episodes: 1 + 0.5 * 4 = 3 and -2; G_1: -0.5 and -2.
    assert counts.return_sum.tolist() == [1.0, -2.5]
    assert counts.return_square_sum.tolist() == [13.0, 4.25]
    assert counts.return_min.tolist() == [-2.0, -2.0]
    assert counts.return_max.tolist() == [3.0, -0.5]
    numbers = (counts.n_rows, counts.n_episodes, counts.n_truncated, counts.n_dropped)
    assert numbers == (3, 2, 1, 0)
    assert (counts.length_min, counts.length_max) == (1, 2)
    assert (counts.n_states, counts.n_actions, counts.n_pairs, counts.n_objectives) == (2, 2, 2, 2)


def test_row_with_unknown_next_state_is_left_out_of_its_pair(tmp_path: Path) -> None:
    rows = small_log()
    rows[2] |= {"next_state": None, "state": "c", "action": "wait"}
    path = write(tmp_path / "log.csv", rows)
    counts = count_files(path, objectives=BOTH)
    assert counts.state_labels.tolist() == ["a", "b", "c"]
    assert counts.pair_count.tolist() == [1, 1]
    assert counts.n_dropped == 1
    assert counts.initial_count.tolist() == [1, 0, 1]
    assert counts.return_sum.tolist() == [1.0, -2.5]
    assert counts.reward_min.tolist() == [-2.0, -2.0]
    assert_same_counts(count(read_dataset(path, objectives=BOTH)), counts)


def test_log_of_which_every_row_is_left_out(tmp_path: Path) -> None:
    rows = [small_log()[2] | {"next_state": None, "baseline_prob": 0.5}]
    path = write(tmp_path / "log.jsonl", rows)
    counts = count_files(path, objectives=BOTH)
    assert (counts.n_pairs, counts.n_rows, counts.n_states) == (0, 1, 1)
    assert_same_counts(count(read_dataset(path, objectives=BOTH)), counts)


def test_steps_may_start_anywhere(tmp_path: Path) -> None:
    rows = small_log()
    counts = count_files(write(tmp_path / "a.csv", rows), objectives=BOTH)
    for row in rows:
        row["step"] += 1_700_000_000
    assert_same_counts(count_files(write(tmp_path / "b.csv", rows), objectives=BOTH), counts)
    rows[2]["step"] = -7
    assert_same_counts(count_files(write(tmp_path / "c.csv", rows), objectives=BOTH), counts)


def test_sums_do_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows: Rows = [
        {"episode": i, "step": 0, "state": 0, "action": 0, "gain": float(x), "pain": float(y)}
        for i, (x, y) in enumerate(rng.normal(size=(3000, 2)) * 10.0 ** rng.integers(-8, 8, (3000, 1)))
    ]
    one = count_files(write(tmp_path / "a.parquet", rows), objectives=BOTH)
    other = count_files(write(tmp_path / "b.parquet", rows[::-1]), objectives=BOTH)
    for name in ("reward_sum", "reward_square_sum", "return_sum", "return_square_sum"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
    assert_same_counts(count(read_dataset(tmp_path / "a.parquet", objectives=BOTH)), one)


def test_nothing_to_count(tmp_path: Path) -> None:
    dataset = read_dataset(write(tmp_path / "log.csv", small_log()), objectives=BOTH)
    with pytest.raises(DataError, match="nothing to count"):
        count(take_episodes(dataset, []))


def test_counts_refuse_what_does_not_add_up(tmp_path: Path) -> None:
    counts = count_files(write(tmp_path / "log.csv", small_log()), objectives=BOTH)
    with pytest.raises(ParameterError, match="add up"):
        replace(counts, pair_count=[2, 2])
    with pytest.raises(ParameterError, match="sorted by state"):
        replace(counts, pair_state=[1, 0])
    with pytest.raises(ParameterError, match=r"reward_min must have shape \(2,\); got \(3,\)"):
        replace(counts, reward_min=np.zeros(3))


def test_rare_pairs_pay(tmp_path: Path) -> None:
    counts = count_files(write(tmp_path / "log.csv", small_log()), objectives=[GAIN])
    rare = with_rare(counts, below=2, reward=-10.0, discount=0.9, weight=0.0)
    assert rare.objectives[1] == Objective(name="rare", discount=0.9, weight=0.0, reward_range=(-10.0, 0.0))
    assert rare.reward_sum[1].tolist() == [0.0, -10.0]
    assert rare.reward_square_sum[1].tolist() == [0.0, 100.0]
    assert rare.unseen_reward.tolist() == [0.0, -10.0]
    assert (rare.reward_min[1], rare.reward_max[1]) == (-10.0, 0.0)
    assert np.isnan([rare.return_sum[1], rare.return_square_sum[1], rare.return_min[1], rare.return_max[1]]).all()
    assert rare.return_sum[0] == counts.return_sum[0]
    with pytest.raises(DataError, match="'gain' is given twice"):
        with_rare(counts, name="gain")
    with pytest.raises(ParameterError, match="finite"):
        with_rare(counts, reward=float("inf"))
    with pytest.raises(ParameterError, match="Merge first, then derive"):
        merge_counts([rare, rare])


@settings(max_examples=10)
@given(rows=any_log(), name=st.sampled_from(["log.parquet", "log.jsonl"]))
def test_counting_files_is_counting_the_dataset(rows: Rows, name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = write(Path(directory, name), rows)
        counts = count_files(path, objectives=BOTH)
        assert_same_counts(count(read_dataset(path, objectives=BOTH)), counts)
