"""Counting in shards: the same bytes as in one piece, whatever dies on the way."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import toys
from bettersafe.errors import DataError, ParameterError, RunError
from bettersafe.logs import sharded
from bettersafe.logs.counts_file import add_files, load_counts, save_counts
from bettersafe.logs.dataset import DEFAULT_COLUMNS
from bettersafe.logs.sharded import count_shard, count_shards, make_shards
from logs import GAIN, PAIN, small_log, write

OBJECTIVES = (GAIN, PAIN)


def write_day(path, day, episodes=60, length=5):
    rng = np.random.default_rng(day)
    n = episodes * length
    state, last = rng.integers(0, 7, (episodes, length)), np.tile(np.arange(length) == length - 1, episodes)
    columns = {
        "episode": 1000 * day + np.repeat(np.arange(episodes), length), "step": np.tile(np.arange(length), episodes),
        "state": state.reshape(-1), "action": rng.integers(0, 3, n),
        "next_state": pa.array(np.roll(state, -1, axis=1).reshape(-1), mask=last), "terminated": last,
        "gain": rng.normal(size=n), "pain": rng.exponential(size=n),
    }  # fmt: skip
    parquet.write_table(pa.table(columns), path)


@pytest.fixture
def days(tmp_path, monkeypatch):
    """Five files, two of one name in different folders, of which two make a shard; and the bytes of the counts of all."""
    monkeypatch.setattr(sharded, "SHARD_BYTES", 1)
    (tmp_path / "logs" / "more").mkdir(parents=True)
    files = [tmp_path / "logs" / f"day-{i}.parquet" for i in range(4)]
    files.append(tmp_path / "logs" / "more" / "day-0.parquet")
    for day, file in enumerate(files):
        write_day(file, day)
    save_counts(add_files(files, objectives=OBJECTIVES), tmp_path / "whole.parquet")
    return files


def saved(counts, folder):
    save_counts(counts, folder / "sum.parquet")
    return (folder / "sum.parquet").read_bytes()


def counted(files, folder, **settings):
    """The bytes of the counts by shards."""
    options = {"engine": "local", "workers": 1, **settings}
    return saved(count_shards(files, parts=folder / "parts", objectives=OBJECTIVES, **options), folder)


def test_shards_add_up_to_the_whole_to_the_last_byte(days, tmp_path, monkeypatch):
    whole = (tmp_path / "whole.parquet").read_bytes()
    heard = []
    assert counted(days, tmp_path, progress=heard.append) == whole
    assert [reading.done for reading in heard] == sorted({reading.done for reading in heard})
    assert len(heard) == 6
    assert heard[-1].done == heard[-1].total == sum(file.stat().st_size for file in days)
    monkeypatch.setattr(sharded, "AT_ONCE", 2)
    monkeypatch.setattr(sharded, "SHARD_BYTES", 2 * days[0].stat().st_size + 1000)
    assert [len(shard.paths) for shard in make_shards(days, objectives=OBJECTIVES, columns=DEFAULT_COLUMNS)] == [
        2,
        2,
        1,
    ]
    shutil.rmtree(tmp_path / "parts")
    assert counted(days, tmp_path) == whole
    save_counts(add_files(days[:2], objectives=OBJECTIVES), tmp_path / "before.parquet")
    shutil.rmtree(tmp_path / "parts")
    later = days[2:4]
    assert counted(later, tmp_path, add=[tmp_path / "before.parquet"]) == saved(
        add_files(later, objectives=OBJECTIVES, add=[tmp_path / "before.parquet"]), tmp_path
    )


def test_what_was_counted_is_kept(days, tmp_path, monkeypatch):
    done = []

    def stopped_after_two(shard):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(shard.key)
        return count_shard(shard)

    monkeypatch.setattr(sharded, "count_shard", stopped_after_two)
    with pytest.raises(KeyboardInterrupt):
        counted(days, tmp_path)
    kept = {file.stem for file in (tmp_path / "parts").iterdir()}
    assert kept == set(done)

    def noted(shard):
        done.append(shard.key)
        return count_shard(shard)

    monkeypatch.setattr(sharded, "count_shard", noted)
    assert counted(days, tmp_path) == (tmp_path / "whole.parquet").read_bytes()
    assert len(done) == len(set(done)) == 5
    # a part that was damaged is counted again, at the next time; so is a file that was written anew
    part = tmp_path / "parts" / f"{done[3]}.parquet"
    content = bytearray(part.read_bytes())
    content[len(content) // 4] ^= 255  # in an array, not in the file's footer
    part.write_bytes(content)
    with pytest.raises(DataError, match=r"were damaged.*Repeat the same command"):
        counted(days, tmp_path)
    assert counted(days, tmp_path) == (tmp_path / "whole.parquet").read_bytes()
    assert len(done) == 6
    os.utime(days[0], ns=(1, 1))
    counted(days, tmp_path)
    assert len(done) == 7


@pytest.mark.slow
def test_on_ray_a_worker_that_is_killed_costs_its_shard_alone(ray, days, tmp_path, monkeypatch):
    monkeypatch.setattr(sharded, "count_shard", toys.count_dying)
    monkeypatch.setenv("PYTHONPATH", str(Path(toys.__file__).parent))  # where workers find the toys
    with pytest.raises(RunError, match=r"1 of 3 shards could not be counted \(day-1.parquet: its Ray worker failed"):
        counted(days[:3], tmp_path, engine="ray", workers=2, address="local")
    assert len(list((tmp_path / "parts").iterdir())) == 2
    again = []

    def noted(shard):
        again.append(shard.paths)
        return count_shard(shard)

    monkeypatch.setattr(sharded, "count_shard", noted)
    assert counted(days[:3], tmp_path) == saved(add_files(days[:3], objectives=OBJECTIVES), tmp_path)
    assert again == [(str(days[1]),)]


def test_errors(days, tmp_path):
    rows = small_log()
    rows[1]["gain"] = "much"
    bad = write(tmp_path / "bad.csv", rows)
    with pytest.raises(DataError, match=r"'much' in column 'gain' of bad.csv, line 3"):
        counted([bad], tmp_path)
    begin, end = small_log()[:1], small_log()[1:]
    for name, part in (("begin", begin), ("end", end)):
        write(tmp_path / f"{name}.csv", part)
    with pytest.raises(DataError, match=r"an episode of begin.csv continues in end.csv"):
        counted([tmp_path / "begin.csv", tmp_path / "end.csv"], tmp_path)
    with pytest.raises(DataError, match="counted already"):
        counted(days[:1], tmp_path, add=[tmp_path / "whole.parquet"])
    with pytest.raises(ParameterError, match="an address is for the engine 'ray'"):
        counted(days, tmp_path, address="auto")
    with pytest.raises(ParameterError, match="engine must be one of local, ray"):
        counted(days, tmp_path, engine="rai")
    assert load_counts(tmp_path / "whole.parquet").n_episodes == 300
