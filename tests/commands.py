"""Commands run as a user runs them, and the log of a ward for them."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from bettersafe.cli import main
from patience import TIMEOUT

BETTERSAFE = str(Path(sys.executable).parent / "bettersafe")


PLAIN = {"NO_COLOR": "1", "COLUMNS": "200"}


def run(*arguments, code=0, cwd=None, **more):
    """Run a command with ``more`` in its environment, check its exit code; returns (stdout, stderr)."""
    environment = {**os.environ, **PLAIN, "PYTHONFAULTHANDLER": "1", **more}
    done = subprocess.run(
        [BETTERSAFE, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
        timeout=TIMEOUT,
    )
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def call(*arguments, code=0, cwd=None):
    """What `run` does, without a process of its own, whose imports take longer than most commands."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with (
        mock.patch.object(sys, "argv", [BETTERSAFE, *map(str, arguments)]),
        mock.patch.dict(os.environ, PLAIN),
        contextlib.chdir(cwd or "."),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.resetwarnings()  # as in a new process: they are told, not raised
        warnings.simplefilter("ignore", DeprecationWarning)
        found = main._run()
    said, complaint = (stream.buffer.getvalue().decode() for stream in (out, err))
    assert found == code, (found, said, complaint)
    return said, complaint


def write_log(path, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def visits(n=400, seed=0):
    """A ward with odd labels: treating early is better for recovery, and no worse for pain; rows shuffled."""
    rng = np.random.default_rng(seed)
    rows = []
    for stay in range(n):
        state, step = "at ease", 0
        while True:
            action = rng.choice(["wait & see", "treat “now”"], p=[0.6, 0.4])
            well = rng.random() < (0.7 if action == "treat “now”" else 0.3)
            end = rng.random() < 0.4 or step > 8
            rows.append(
                {
                    "stay": f"S-{stay:04d}", "block": step + 1, "zustand": state, "what was done": action,
                    "recovery": int(well), "pain": round(float(rng.normal(2 - well, 0.1)), 3),
                }
            )  # fmt: skip
            if end:
                break
            state, step = ("at ease" if well else "in größter Not"), step + 1
    rng.shuffle(rows)
    return rows


COLUMNS = ("--episode", "stay", "--step", "block", "--state", "zustand", "--action", "what was done")
GOALS = ("--objective", "recovery", "--objective", "pain=0", "--lower-is-better", "pain")


run_on_one_core = partial(run, OMP_NUM_THREADS="1")
SOME_PAIN = ("--zeta", "pain=1")
"""An accepted loss: with an estimated baseline, small logs can't show that pain is no worse."""
