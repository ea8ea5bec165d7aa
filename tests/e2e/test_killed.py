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


def test_killed_at_any_moment(place):
    before = (place / "counts.parquet").read_bytes()
    command = [BETTERSAFE, "count", "tuesday.csv", "--add", "counts.parquet", "-o", "counts.parquet"]
    rng = random.Random(0)
    met = set()
    for moment in ("start", "reading", "writing"):
        process = subprocess.Popen(
            command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + 60.0
        while moment != "start" and process.poll() is None and time.monotonic() < deadline:
            pattern = f"tmp/{SCRATCH}*/{LOCK}" if moment == "reading" else ".counts.parquet.*.partial"
            if any(place.glob(pattern)):
                met.add(moment)
                break
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.3) if moment != "writing" else 0.0)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it had ended before: there is too little to do"
        assert (place / "counts.parquet").read_bytes() == before
        left = list((place / "tmp").glob(f"{SCRATCH}*"))
        assert len(left) == (moment == "reading")  # its own, at most: each removes what those before it left
    assert met == {"reading", "writing"}
    run(*command[1:], cwd=place)
    assert not list((place / "tmp").iterdir())
    whole = add_files([place / "monday.csv", place / "tuesday.csv"], objectives=[Objective(name="gain")])
    save_counts(whole, place / "whole.parquet")
    assert whole.n_episodes == 42_000
    assert (place / "counts.parquet").read_bytes() == (place / "whole.parquet").read_bytes()
