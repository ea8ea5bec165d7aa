"""`bettersafe count`, killed in the middle: what is there is whole, what was on the way goes, and the command can be repeated."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from bettersafe._system.files import LOCK, SCRATCH
from bettersafe.logs.counts_file import add_files, save_counts
from bettersafe.logs.dataset import Objective
from commands import BETTERSAFE, run
from patience import until

GOAL = ("--objective", "gain")


def write_log(path, first, episodes, length=5):
    """Many states, so that there is something to write."""
    rng = np.random.default_rng(first)
    n = episodes * length
    csv.write_csv(
        pa.table({
            "episode": first + np.repeat(np.arange(episodes), length), "step": np.tile(np.arange(length), episodes),
            "state": rng.integers(0, 40_000, n), "action": rng.integers(0, 5, n), "gain": rng.normal(size=n),
        }),
        path,
    )  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Two logs, the counts of the first, and a temporary directory of one's own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    write_log(tmp_path / "monday.csv", 0, 2_000)
    write_log(tmp_path / "tuesday.csv", 10**6, 40_000)
    run("count", "monday.csv", "-o", "counts.parquet", *GOAL, cwd=tmp_path)
    return tmp_path


def stopped_in(place, pattern, command, delay):
    """The command, stopped while there is a file of this pattern; None if it was gone before it could be stopped."""
    process = subprocess.Popen(
        command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    until(lambda: process.poll() is not None or any(place.glob(pattern)))
    time.sleep(delay)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGSTOP)
        if any(place.glob(pattern)):
            return process
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return None


@pytest.mark.slow
def test_killed_at_any_moment(place):
    counts = place / "counts.parquet"
    before = counts.read_bytes()
    command = [BETTERSAFE, "count", "tuesday.csv", "--add", "counts.parquet", "-o", "counts.parquet"]
    rng = random.Random(0)
    for moment, pattern in (
        ("start", "*"),
        ("reading", f"tmp/{SCRATCH}*/{LOCK}"),
        ("writing", ".counts.parquet.*.partial"),
    ):

        def caught(moment=moment, pattern=pattern):
            counts.write_bytes(before)  # one that was not caught has added Tuesday
            return stopped_in(place, pattern, command, 0.0 if moment == "writing" else rng.uniform(0.0, 0.3))

        process = until(caught)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert counts.read_bytes() == before
        left = list((place / "tmp").glob(f"{SCRATCH}*"))
        assert len(left) <= 1  # its own, at most: each removes what those before it left
        assert moment != "reading" or left
    run(*command[1:], cwd=place)
    assert not list((place / "tmp").iterdir())
    whole = add_files([place / "monday.csv", place / "tuesday.csv"], objectives=[Objective(name="gain")])
    save_counts(whole, place / "whole.parquet")
    assert whole.n_episodes == 42_000
    assert counts.read_bytes() == (place / "whole.parquet").read_bytes()
