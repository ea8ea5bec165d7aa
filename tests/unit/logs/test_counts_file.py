"""Counts as files: written whole, read back to the last bit, and never counted twice by mistake."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from bettersafe.errors import DataError, ParameterError, RunError
from bettersafe.logs import counts_file, merge
from bettersafe.logs.counts import count, with_rare
from bettersafe.logs.counts_file import (
    add_files,
    check_output,
    counted_objectives,
    load_counts,
    merge_files,
    save_counts,
    with_objectives,
)
from bettersafe.logs.dataset import Objective
from bettersafe.logs.merge import merge_counts
from bettersafe.logs.source import count_files, read_dataset
from logs import BOTH, GAIN, PAIN, Rows, assert_bits, counted, later, small_log, write

if TYPE_CHECKING:
    from pathlib import Path

    from bettersafe.typing import Event


def test_many_files_are_merged_in_rounds_and_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    files = []
    for i in range(9):
        rows: Rows = []
        for episode in range(20 * i, 20 * i + 20):
            states = rng.choice(list("abcdefgh"), 4)
            rows += [
                {"episode": episode, "step": step, "state": states[step], "action": str(rng.choice(["go", "no"]))}
                | {"next_state": states[step + 1] if step < 2 else None, "terminated": step == 2}
                | {"gain": float(rng.normal()), "pain": float(rng.integers(0, 9))}
                for step in range(3)
            ]
        save_counts(counted(tmp_path / f"{i}.parquet", rows), tmp_path / f"counts-{i}.parquet")
        files.append(tmp_path / f"counts-{i}.parquet")
    at_once = merge_counts([load_counts(file) for file in files])
    monkeypatch.setattr(counts_file, "HELD", 40)
    monkeypatch.setattr(merge, "BLOCK", 11)
    rounds: list[int] = []
    merged = counts_file.merge_counts
    monkeypatch.setattr(
        counts_file, "merge_counts", lambda parts, **options: rounds.append(len(parts)) or merged(parts, **options)
    )
    heard: list[Event] = []
    assert_bits(merge_files(files, progress=heard.append), at_once)
    assert len(rounds) > 2
    assert (heard[0].done, heard[-1].done, heard[-1].total) == (0, 9, 9)
    with pytest.raises(DataError, match=r"0.parquet was counted already"):
        merge_files([*files, files[0]])


def test_round_trip_keeps_every_field(tmp_path: Path) -> None:
    rows = small_log()
    for row, prob in zip(rows, (0.5, 1.0, 0.5), strict=True):
        row |= {"baseline_prob": prob, "gain": row["gain"] / 3}
    counts = counted(tmp_path / "log.csv", rows)
    save_counts(counts, tmp_path / "counts.parquet")
    assert_bits(load_counts(tmp_path / "counts.parquet"), counts)
    assert counted_objectives(tmp_path / "counts.parquet") == tuple(BOTH)
    # counts of a dataset in memory know no files
    plain = count(read_dataset(tmp_path / "log.csv", objectives=BOTH))
    save_counts(plain, tmp_path / "plain.parquet")
    assert_bits(load_counts(tmp_path / "plain.parquet"), plain)


def test_counts_of_which_every_row_is_left_out(tmp_path: Path) -> None:
    nothing = counted(tmp_path / "log.jsonl", [small_log()[2] | {"next_state": None}])
    assert nothing.n_pairs == 0
    save_counts(nothing, tmp_path / "counts.parquet")
    assert_bits(load_counts(tmp_path / "counts.parquet"), nothing)
    some = counted(tmp_path / "more.jsonl", later(small_log()))
    assert merge_counts([nothing, some]).pair_count.tolist() == [2, 1]


def test_arrays_longer_than_a_row_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bettersafe.logs.counts_file.ROW", 2)
    rows = [
        dict(row, state=f"{row['state']}{i}", episode=f"{row['episode']}-{i}") for i in range(3) for row in small_log()
    ]
    for row in rows:
        row["next_state"] = None if row["next_state"] is None else row["next_state"] + row["episode"][-1]
    counts = counted(tmp_path / "log.parquet", rows)
    save_counts(counts, tmp_path / "counts.parquet")
    assert parquet.read_metadata(tmp_path / "counts.parquet").num_rows > 2
    assert_bits(load_counts(tmp_path / "counts.parquet"), counts)


def test_the_same_counts_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_counts(counted(tmp_path / "log.csv", small_log()), tmp_path / f"{name}.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_file_is_not_counted_twice(tmp_path: Path) -> None:
    save_counts(counted(tmp_path / "monday.csv", small_log()), tmp_path / "counts.parquet")
    copy = write(tmp_path / "copy.csv", small_log())
    with pytest.raises(DataError, match=r"copy.csv was counted already as monday.csv: .* `force`"):
        add_files(copy, objectives=BOTH, add=[tmp_path / "counts.parquet"])
    with pytest.raises(DataError, match=r"monday.csv was counted already: .* `force`"):
        merge_files([tmp_path / "counts.parquet"] * 2)
    with pytest.raises(DataError, match=r"monday.csv is the same as .*copy.csv"):
        add_files([copy, tmp_path / "monday.csv"], objectives=BOTH)
    twice = add_files(copy, objectives=BOTH, add=[tmp_path / "counts.parquet"], force=True)
    assert (twice.n_rows, twice.pair_count.tolist()) == (6, [4, 2])
    tuesday = write(tmp_path / "tuesday.csv", later(small_log()))
    both = add_files(tuesday, objectives=BOTH, add=[tmp_path / "counts.parquet"])
    assert both.origin is not None
    assert [file.name for file in both.origin.inputs] == ["monday.csv", "tuesday.csv"]
    whole = count_files([tmp_path / "monday.csv", tuesday], objectives=BOTH, mergeable=True)
    assert_bits(both, whole)


def test_objectives_of_a_file_keep_what_was_counted(tmp_path: Path) -> None:
    counts = counted(tmp_path / "a.csv", small_log())
    heavier = with_objectives(counts, [PAIN, dataclasses.replace(GAIN, weight=3.0)], title="c.parquet")
    assert [o.weight for o in heavier.objectives] == [3.0, 1.0]
    assert with_objectives(counts, (), title="c.parquet").objectives == tuple(BOTH)
    with pytest.raises(DataError, match=r"c.parquet was counted with discount 0.5 of gain; got 0.9"):
        with_objectives(counts, [dataclasses.replace(GAIN, discount=0.9), PAIN], title="c.parquet")
    with pytest.raises(DataError, match=r"c.parquet has counts of the objectives \(gain, pain\); got \(gain\)"):
        with_objectives(counts, [GAIN], title="c.parquet")


def test_files_that_are_none_or_damaged(tmp_path: Path) -> None:
    log = write(tmp_path / "log.parquet", small_log())
    saved = tmp_path / "counts.parquet"
    save_counts(count_files(log, objectives=BOTH, mergeable=True), saved)
    with pytest.raises(DataError, match=r"log.parquet is not a counts file"):
        load_counts(log)
    with pytest.raises(DataError, match=r"there is no file"):
        load_counts(tmp_path / "nothing.parquet")
    with pytest.raises(DataError, match=r"counts.parquet is a counts file, which has no episodes"):
        count_files(saved, objectives=BOTH)
    # a bit that flipped in the data of any column is found
    whole = bytearray(saved.read_bytes())
    start = parquet.read_metadata(saved).row_group(0).column(2).data_page_offset
    whole[start + parquet.read_metadata(saved).row_group(0).column(2).total_compressed_size - 2] ^= 4
    (tmp_path / "bad.parquet").write_bytes(whole)
    with pytest.raises(DataError, match=r"bad.parquet can't be read as counts: .* Count the log again"):
        load_counts(tmp_path / "bad.parquet")
    (tmp_path / "cut.parquet").write_bytes(saved.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"cut.parquet is damaged: its end is missing"):
        load_counts(tmp_path / "cut.parquet")
    table = parquet.read_table(saved)
    metadata = {**table.schema.metadata, b"bettersafe.schema": b"counts/9"}
    parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / "new.parquet")
    with pytest.raises(DataError, match=r"was written as 'counts/9'; this version reads 'counts/1'"):
        load_counts(tmp_path / "new.parquet")


def test_indices_that_point_outside_are_refused(tmp_path: Path) -> None:
    saved = tmp_path / "counts.parquet"
    save_counts(counted(tmp_path / "log.csv", small_log()), saved)
    table = parquet.read_table(saved)
    for name, values in (("outcome_state", [7]), ("pair_action", [0, -1]), ("outcome_ptr", [0, 5, 1])):
        at = table.schema.get_field_index(name)
        parquet.write_table(table.set_column(at, table.field(at), pa.array([values], table.field(at).type)), saved)
        with pytest.raises(DataError, match=rf"can't be read as counts: {name}"):
            load_counts(saved)


def test_what_can_not_be_saved(tmp_path: Path) -> None:
    counts = counted(tmp_path / "log.csv", small_log())
    with pytest.raises(ParameterError, match="derived objective can't be saved"):
        save_counts(with_rare(counts), tmp_path / "counts.parquet")
    with pytest.raises(ParameterError, match=r"must end in .parquet; got counts.csv"):
        save_counts(counts, tmp_path / "counts.csv")
    save_counts(counts, tmp_path / "a.parquet")
    check_output(tmp_path / "a.parquet", inputs=[tmp_path / "a.parquet"])
    check_output(tmp_path / "new.parquet", inputs=[])
    with pytest.raises(
        ParameterError, match=r"must end in .parquet; got new.csv"
    ):  # before an hour of counting, not after
        check_output(tmp_path / "new.csv", inputs=[])
    with pytest.raises(RunError, match="there is no directory"):
        check_output(tmp_path / "nowhere" / "new.parquet", inputs=[])
    with pytest.raises(RunError, match=r"a.parquet exists.* add to it: name it with `add`"):
        check_output(tmp_path / "a.parquet", inputs=[tmp_path / "log.csv"])


KILLED = """
import os, signal, sys
from pyarrow import parquet
from bettersafe.logs import counts_file

counts = counts_file.load_counts(sys.argv[1])
counts_file.ROW = 1
write = parquet.ParquetWriter.write_table
rows = []

def write_and_die(self, table, *rest):
    write(self, table, *rest)
    rows.append(table)
    if len(rows) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

parquet.ParquetWriter.write_table = write_and_die
counts_file.save_counts(counts, sys.argv[2])
"""


def test_killed_while_writing_leaves_what_was_there(tmp_path: Path) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    save_counts(counted(tmp_path / "log.csv", small_log()), old)
    before = old.read_bytes()
    for target in (old, new):
        done = subprocess.run([sys.executable, "-c", KILLED, old, target], check=False, env=os.environ)
        assert done.returncode == -signal.SIGKILL
    assert old.read_bytes() == before
    assert not new.exists()
    left = {path.name for path in tmp_path.iterdir()} - {"old.parquet", "log.csv"}
    assert len(left) == 2
    assert all(name.startswith(".") and name.endswith(".partial") for name in left)


def test_objective_fields_survive_the_header(tmp_path: Path) -> None:
    rich = [Objective(name="gain", weight=0.0, label="Gewinn", unit="€", reward_range=(-5.0, 5.0)), PAIN]
    counts = count_files(write(tmp_path / "log.csv", small_log()), objectives=rich, mergeable=True)
    save_counts(counts, tmp_path / "counts.parquet")
    assert load_counts(tmp_path / "counts.parquet").objectives == tuple(rich)
