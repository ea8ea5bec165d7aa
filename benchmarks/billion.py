"""A billion logged rows, counted in parts that are never there together, and merged; not in `make bench`: it takes many minutes.

python benchmarks/billion.py                       five parts of 200 M rows; needs 4 GB in the temporary folder
python benchmarks/billion.py --parts 3 --files 2   less of it
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
from counting import ROWS_PER_FILE, write_log
from measuring import apart, markdown, say, seconds, size
from whole import command

from bettersafe import load_counts

OBJECTIVES = ("--objective", "gain", "--objective", "pain=0", "--lower-is-better", "pain")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, default=5)
    parser.add_argument("--files", type=int, default=100, help="of 2 M rows, in every part")
    options = parser.parse_args()
    rows, counted, total = [], [], 0
    with tempfile.TemporaryDirectory(prefix="bettersafe-bench-") as folder:
        for part in range(options.parts):
            log = Path(folder) / f"log-{part}"
            log.mkdir()
            say(f"writing part {part + 1} of {options.parts}")
            apart(write_log, log, options.files, ROWS_PER_FILE, part)
            bytes_of_log = sum(file.stat().st_size for file in log.iterdir())
            say(f"counting part {part + 1} of {options.parts}")
            counted.append(Path(folder) / f"counts-{part}.parquet")
            one = command("count", f"{log}/*.parquet", "-o", counted[-1], *OBJECTIVES)
            n = options.files * ROWS_PER_FILE
            rate = f"{n / one['cpu'] / 1e6:.3g} M"
            rows.append([f"count part {part + 1}: {n:,} rows, {size(bytes_of_log)} of Parquet", seconds(one["seconds"]), seconds(one["cpu"]), rate, size(one["peak"])])  # fmt: skip
            total += n
            shutil.rmtree(log)
        say("merging")
        one = command("merge", *counted, "-o", Path(folder) / "all.parquet")
        rows.append([f"merge to {total:,} rows", seconds(one["seconds"]), seconds(one["cpu"]), "", size(one["peak"])])
        merged = load_counts(Path(folder) / "all.parquet")
        parts = [load_counts(path) for path in counted]
        if merged.n_rows != total or merged.pair_count.sum() != sum(part.pair_count.sum() for part in parts):
            raise AssertionError(f"{merged.n_rows:,} rows after the merge of {total:,}")
        gains = [part.reward_sum[0].sum() for part in parts]  # whole numbers: their sums are exact
        if merged.reward_sum[0].sum() != np.sum(gains):
            raise AssertionError("rewards were lost in the merge")
        say("improving")
        one = command(
            "improve", Path(folder) / "all.parquet", "-o", Path(folder) / "run", "--method", "s-opt", "--epsilon", "0.1"
        )
        rows.append(
            ["improve (s-opt) from all of them", seconds(one["seconds"]), seconds(one["cpu"]), "", size(one["peak"])]
        )
    print(markdown(["what", "time", "CPU time", "rows per CPU s", "peak memory"], rows))


if __name__ == "__main__":
    main()
