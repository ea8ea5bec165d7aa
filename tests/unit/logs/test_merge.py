"""Merging: the counts of parts are those of the whole, and parts that don't fit are refused."""

from __future__ import annotations

import dataclasses
import tempfile
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from bettersafe.errors import DataError, ParameterError
from bettersafe.logs.counts import Counts, count
from bettersafe.logs.counts_file import load_counts, save_counts
from bettersafe.logs.dataset import Columns
from bettersafe.logs.merge import merge_counts
from bettersafe.logs.source import count_files, read_dataset
from logs import BOTH, GAIN, PAIN, Rows, any_log, assert_bits, assert_same_counts, counted, later, small_log, write


def test_merge_refuses_what_differs(tmp_path: Path) -> None:
    text = count_files(write(tmp_path / "a.csv", small_log()), objectives=BOTH)
    rows = [row | {"state": ord(row["state"]), "next_state": row["next_state"] and 98} for row in small_log()]
    numbers = count_files(write(tmp_path / "b.csv", rows), objectives=BOTH)
    with pytest.raises(DataError, match="state labels must be of one type"):
        merge_counts([text, numbers])
    with pytest.raises(DataError, match=r"\(gain, pain\) in counts in memory and \(gain\) in"):
        merge_counts([text, count_files(tmp_path / "a.csv", objectives=[GAIN])])


def test_merge_with_half_a_baseline(tmp_path: Path) -> None:
    plain = count_files(write(tmp_path / "a.csv", small_log()), objectives=BOTH)
    rows = [row | {"baseline_prob": 0.5} for row in small_log()]
    known = count_files(write(tmp_path / "b.csv", rows), objectives=BOTH)
    merged = merge_counts([plain, known])
    assert merged.baseline_prob is None
    assert merged.notes[-1] == "baseline_prob is known in only a part of the data and is not used"
    both = merge_counts([known, known])
    assert both.baseline_prob is not None
    assert both.baseline_prob.tolist() == [0.5, 0.5]


@settings(max_examples=10)
@given(rows=any_log(), data=st.data())
def test_merged_counts_are_the_counts_of_all(rows: Rows, data: st.DataObject) -> None:
    episodes = sorted({row["episode"] for row in rows})
    assume(len(episodes) > 1)
    first = data.draw(st.integers(1, len(episodes) - 1))
    with tempfile.TemporaryDirectory() as directory:

        def counted(name: str, part: Rows) -> Counts:
            return count(read_dataset(write(Path(directory, name), part), objectives=BOTH))

        whole = counted("whole.parquet", rows)
        a = counted("a.parquet", [row for row in rows if row["episode"] < episodes[first]])
        b = counted("b.parquet", [row for row in rows if row["episode"] >= episodes[first]])
        assert_same_counts(merge_counts([a, b]), whole, skip=("notes",))
        assert_same_counts(merge_counts([b, a]), whole, skip=("notes",))


REWARDS = st.one_of(
    st.floats(min_value=-1e100, max_value=1e100, allow_nan=False),
    st.integers(-30, 30).map(lambda n: n / 10),
    st.sampled_from([0.0, -0.0, 1e100, -1e100, 5e-324, 1e-170, 3e-90]),
)


@st.composite
def shards(draw: st.DrawFn) -> list[Rows]:
    """A log with rewards of all sizes, its episodes shared out over up to four shards."""
    n_shards = draw(st.integers(2, 4))
    parts: list[Rows] = [[] for _ in range(n_shards)]
    for episode in range(draw(st.integers(n_shards, 7))):
        home = parts[episode if episode < n_shards else draw(st.integers(0, n_shards - 1))]
        length, end = draw(st.integers(1, 4)), draw(st.sampled_from(["end", "cut", "unknown"]))
        states = [draw(st.sampled_from("abcdé")) for _ in range(length + 1)]
        for step in range(length):
            last = step == length - 1
            hidden = last and end != "cut"
            home.append(
                {"episode": episode, "step": step, "state": states[step], "action": draw(st.sampled_from(["go", "no"]))}
                | {"next_state": None if hidden else states[step + 1], "terminated": last and end == "end"}
                | {"gain": draw(REWARDS), "pain": draw(REWARDS)}
            )
    return parts


# no shrinking: it would count for minutes to find a smaller failure
@settings(max_examples=5, phases=(Phase.explicit, Phase.generate))
@given(parts=shards(), data=st.data())
def test_any_split_merges_to_the_counts_of_one_pass(parts: list[Rows], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for part in parts for row in part]
        text = ("state", "action", "next_state")
        types = {"episode": pa.int64(), "step": pa.int64(), "terminated": pa.bool_()} | dict.fromkeys(text, pa.string())
        typed = pa.schema({**types, "gain": pa.float64(), "pain": pa.float64()})

        def on_disk(name: str, some: Rows) -> Path:
            path = Path(folder, name)
            parquet.write_table(pa.Table.from_pylist(some, typed), path)
            return path

        whole = count_files(on_disk("all.parquet", rows), objectives=BOTH, mergeable=True)
        found = []
        for i, part in enumerate(parts):
            shard = count_files(on_disk(f"{i}.parquet", part), objectives=BOTH, mergeable=True)
            save_counts(shard, Path(folder, f"counts-{i}.parquet"))
            found.append(load_counts(Path(folder, f"counts-{i}.parquet")))
            assert_bits(found[-1], shard)
        merged = merge_counts(data.draw(st.permutations(found)))
        assert_bits(merged, whole, skip=("notes", "inputs"))
        assert set(merged.notes) == set(whole.notes)
        # two at a time is the same as all at once
        assert_bits(merge_counts([merge_counts(found[:-1]), found[-1]]), merged, skip=("inputs", "notes"))
        # and all of it is what fractions say, as far as bits are counted at all
        kept = [row for row in rows if row["terminated"] or row["next_state"] is not None]
        for k, (name, sign) in enumerate((("gain", 1), ("pain", -1))):
            for p in range(whole.n_pairs):
                state, action = whole.state_labels[whole.pair_state[p]], whole.action_labels[whole.pair_action[p]]
                own = [sign * row[name] for row in kept if (row["state"], row["action"]) == (state, action)]
                assert whole.rests is not None
                for power, floor, layers in (
                    (1, 600, [whole.reward_sum, *whole.rests.reward_sum]),
                    (2, 288, [whole.reward_square_sum, *whole.rests.reward_square_sum]),
                ):
                    exact = sum((cut(r**power, floor) for r in own), Fraction(0))
                    assert sum((Fraction(float(layer[k, p])) for layer in layers), Fraction(0)) == exact


def cut(value: float, bits: int) -> Fraction:
    """The value without its bits below 2^-bits."""
    scaled = Fraction(value) * 2**bits
    return Fraction(int(scaled), 2**bits)


def test_episodes_split_over_two_shards_are_found(tmp_path: Path) -> None:
    rows = small_log()
    rows[1] |= {"terminated": False, "next_state": "a"}
    rows.append(rows[0] | {"step": 2, "terminated": True, "next_state": None})
    first, second = counted(tmp_path / "a.csv", rows[:3]), counted(tmp_path / "b.csv", rows[3:])
    for pair in ([first, second], [second, first]):
        with pytest.raises(DataError, match=r"an episode of a.csv continues in b.csv"):
            merge_counts(pair)
    assert merge_counts([first, second], force=True).n_episodes == 3
    # the same without a column that says where the process ended
    for row in rows:
        del row["terminated"], row["next_state"]
    parts = [counted(tmp_path / "c.csv", rows[:3]), counted(tmp_path / "d.csv", rows[3:])]
    with pytest.raises(DataError, match=r"an episode of c.csv continues in d.csv"):
        merge_counts(parts)
    # an episode of another label, from the same step, is another episode
    other = counted(tmp_path / "e.csv", [row | {"episode": 9} for row in rows[3:]])
    assert merge_counts([parts[0], other]).n_episodes == 3


def test_an_end_is_no_open_end(tmp_path: Path) -> None:
    """Episode 1 terminated after step 1; rows of the same label from step 2 on are some other episode."""
    first = counted(tmp_path / "a.csv", small_log())
    second = counted(tmp_path / "b.csv", [small_log()[1] | {"step": 2}])
    assert first.origin is not None
    assert first.origin.open_ends.size == 1  # that of episode 2, which was cut off
    assert merge_counts([first, second]).n_episodes == 3


def test_steps_numbered_from_one_are_no_late_starts(tmp_path: Path) -> None:
    counts = counted(tmp_path / "a.csv", [row | {"step": row["step"] + 1} for row in small_log()])
    assert counts.origin is not None
    assert counts.origin.late_starts.size == 0


def test_what_differs_is_named(tmp_path: Path) -> None:
    first = counted(tmp_path / "a.csv", small_log())
    slow = [dataclasses.replace(GAIN, discount=0.25), PAIN]
    path = write(tmp_path / "b.csv", later(small_log()))
    other = count_files(path, objectives=slow, mergeable=True)
    with pytest.raises(
        DataError, match=r"discount of objective gain is 0.5 in the counts of a.csv and 0.25 in .* b.csv"
    ):
        merge_counts([first, other])
    with pytest.raises(DataError, match=r"\(gain, pain\) in the counts of a.csv and \(pain, gain\) in"):
        merge_counts([first, count_files(path, objectives=BOTH[::-1], mergeable=True)])
    renamed = write(
        tmp_path / "c.csv",
        [{"zustand" if k == "state" else k: v for k, v in row.items()} for row in later(small_log())],
    )
    other = count_files(renamed, objectives=BOTH, columns=Columns(state="zustand"), mergeable=True)
    with pytest.raises(
        DataError, match=r"state \(name of the column\) is 'state' in .* 'zustand' in the counts of c.csv"
    ):
        merge_counts([first, other])
    with pytest.raises(ParameterError, match="nothing to merge"):
        merge_counts([])
