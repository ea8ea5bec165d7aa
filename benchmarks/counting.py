"""Counting a log from Parquet, beside DuckDB's plain GROUP BY and pandas."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from measuring import alone, apart, attempt, cores, forget_peak, imported, peak_bytes, say, shown, size
from pyarrow import parquet

from bettersafe import Objective, count_files

STATES, TRIED, SUCCESSORS, STEPS = 750, 5, 12, 20
ROWS_PER_FILE = 2_000_000
FILES = (1, 4, 16, 100)  # 2, 8, 32 and 200 million rows
QUICK_FILES = (1, 2, 4)
QUICK_ROWS_PER_FILE = 250_000
PANDAS_ROWS = 32_000_000  # more than this does not fit into some machines
BYTES_PER_ROW_ON_DISK = 20  # rather too many
WORDS = """Logs of episodes of 20 steps in Parquet files (750 states, 25 actions, 3,750 pairs, 45,000 different transitions, two
objectives, one of them with decimals), on all cores, each in a process of its own. *bettersafe* is `count_files`: every cell and chain
of states checked, exact sums, returns by episode. *DuckDB* is one GROUP BY of state, action, next state and end, with the number of rows, sums and
sums of squares, and *pandas* the same on a frame read from the files: neither checks anything, nor follows episodes. Rates are rows per CPU
second, all threads together; in brackets how often it was timed."""


def write_log(folder, n_files, rows_per_file, part=0):
    """Files of whole episodes; next_state is the state of the next row, and -1 where the episode has ended.

    Another ``part`` has other episodes of the same process.
    """
    rng = np.random.default_rng(0)
    tried = np.sort(rng.random((STATES, 25)).argsort(axis=1)[:, :TRIED], axis=1)
    successors = rng.integers(0, STATES, (STATES, TRIED, SUCCESSORS))
    n = rows_per_file // STEPS
    rng = np.random.default_rng([0, part]) if part else rng
    for i in range(part * n_files, (part + 1) * n_files):
        state = np.empty((n, STEPS + 1), dtype=np.int32)
        action = np.empty((n, STEPS), dtype=np.int32)
        state[:, 0] = rng.integers(0, STATES, n)
        for t in range(STEPS):
            which = rng.integers(0, TRIED, n)
            action[:, t] = tried[state[:, t], which]
            state[:, t + 1] = successors[state[:, t], which, rng.integers(0, SUCCESSORS, n)]
        ended = np.zeros((n, STEPS), dtype=bool)
        ended[:, -1] = True
        table = {
            "episode": np.repeat(np.arange(i * n, (i + 1) * n), STEPS),
            "step": np.tile(np.arange(STEPS, dtype=np.int32), n),
            "state": state[:, :-1].ravel(),
            "action": action.ravel(),
            "next_state": state[:, 1:].ravel(),
            "terminated": ended.ravel(),
            "gain": rng.integers(0, 2, n * STEPS).astype(np.float64),
            "pain": np.round(rng.exponential(2.0, n * STEPS), 1),
        }
        parquet.write_table(pa.table(table), Path(folder) / f"log-{i:03d}.parquet")


def row_bytes(folder, files):
    """Bytes of a decoded row, with a byte for a truth value."""
    schema = parquet.read_schema(Path(folder) / files[0])
    return sum(max(field.type.bit_width // 8, 1) for field in schema)


def ours(paths):
    counts = count_files(paths, objectives=[Objective(name="gain"), Objective(name="pain", lower_is_better=True)])
    return counts.n_rows, counts.outcome_state.size + int(np.count_nonzero(counts.terminated_count))


def by_duckdb(paths):
    import duckdb

    with duckdb.connect() as connection:
        groups = connection.execute(
            "SELECT state, action, next_state, terminated, count(*), sum(gain), sum(pain), sum(gain * gain), sum(pain * pain)"
            " FROM read_parquet(?) GROUP BY ALL",
            [paths],
        ).fetchnumpy()
    return int(sum(groups["count_star()"])), len(groups["state"])


def by_pandas(paths):
    import pandas as pd

    frame = pd.read_parquet(paths, columns=["state", "action", "next_state", "terminated", "gain", "pain"])
    frame["gain2"], frame["pain2"] = frame["gain"] ** 2, frame["pain"] ** 2
    groups = frame.groupby(["state", "action", "next_state", "terminated"])[["gain", "pain", "gain2", "pain2"]]
    sums, number = groups.sum(), groups.size()
    return int(number.sum()), len(sums)


def one(run, library, paths, repeats):
    """Its timing, what it found and its peak, or why there is none; ``library`` is imported before."""
    imported(library)
    forget_peak()
    timing, found = attempt(lambda: run(paths), repeats=repeats)
    return timing | {"found": found, "peak": peak_bytes()}


def rate(timing, rows):
    return timing["why"] if "why" in timing else f"{rows / timing['cpu'] / 1e6:.3g} M ({timing['repeats']})"


def measure(quick):
    repeats = 1 if quick else 3
    per_file = QUICK_ROWS_PER_FILE if quick else ROWS_PER_FILE
    sizes = QUICK_FILES if quick else FILES
    with tempfile.TemporaryDirectory(prefix="bettersafe-bench-") as folder:
        room = shutil.disk_usage(folder).free // (BYTES_PER_ROW_ON_DISK * per_file)
        left_out = [n for n in sizes if n > room]
        sizes = [n for n in sizes if n <= room]
        say(f"writing {sizes[-1] * per_file:,} rows")
        apart(write_log, folder, sizes[-1], per_file)
        names = sorted(path.name for path in Path(folder).iterdir())
        width = row_bytes(folder, names)
        rows, seconds_of, found, passes = [], [], {}, []
        for n in sizes:
            paths, n_rows = [str(Path(folder) / name) for name in names[:n]], n * per_file
            say(f"counting {n_rows:,} rows")
            mine = apart(one, ours, "bettersafe.logs._reader.count_sql", paths, repeats)
            say(f"counting {n_rows:,} rows, DuckDB")
            duck = apart(one, by_duckdb, "duckdb", paths, repeats)
            frame = {"why": "left out: memory", "peak": None, "found": None}
            if n_rows <= PANDAS_ROWS:
                say(f"counting {n_rows:,} rows, pandas")
                frame = apart(one, by_pandas, "pandas", paths, repeats)
            if "why" in mine:
                raise RuntimeError(mine["why"])
            for name, other in (("DuckDB", duck), ("pandas", frame)):
                if other["found"] is not None and other["found"][0] != mine["found"][0]:
                    raise AssertionError(f"{name} counted {other['found'][0]:,} rows; bettersafe {mine['found'][0]:,}")
            peaks = ["–" if "why" in other else size(other["peak"]) for other in (mine, duck, frame)]
            rows.append(
                [
                    f"{n_rows:,}",
                    shown(mine),
                    rate(mine, n_rows),
                    peaks[0],
                    rate(duck, n_rows),
                    peaks[1],
                    rate(frame, n_rows),
                    peaks[2],
                ]
            )
            seconds_of.append(mine["seconds"])
            passes = [
                {
                    "what": f"{name}, {n_rows:,} rows of {width} bytes",
                    "bytes": width * n_rows,
                    "seconds": other["seconds"],
                }
                | {"threads": cores(), "repeats": other["repeats"]}
                for name, other in (("counting", mine), ("DuckDB's GROUP BY", duck))
                if "why" not in other
            ]
            found = {
                "values": {"rate": n_rows / mine["cpu"], "bytes": mine["peak"]},
                "repeats": mine["repeats"],
                "note": f"{n_rows:,} rows",
                "instead": [
                    {"name": f"{name} ({size(other['peak'])})", "rate": n_rows / other["cpu"]}
                    for name, other in (("DuckDB's GROUP BY, nothing checked", duck), ("pandas", frame))
                    if "why" not in other
                ],
            }
    return {
        "title": "Counting",
        "words": WORDS,
        "tables": [
            {
                "columns": ["rows", "bettersafe", "rate", "peak", "DuckDB", "peak", "pandas", "peak"],
                "rows": rows,
                "note": f"Left out for want of room in the temporary folder: {left_out} files." if left_out else "",
            }
        ],
        "found": {"counting": found},
        "growth": [{"what": "counting", "by": "rows", "x": [n * per_file for n in sizes], "seconds": seconds_of}],
        "passes": passes,
    }


if __name__ == "__main__":
    alone(measure)
