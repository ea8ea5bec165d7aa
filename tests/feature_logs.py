"""A ward's table of features, for the tests of states made from it."""

from __future__ import annotations

import csv
import itertools

import numpy as np

from bettersafe.logs.dataset import Columns


# ---- a table becomes logs
def feature_rows(n=30, seed=0):
    """Episodes of 3 rows, shuffled: two features, a reward, an action, a remark; CSV cells as a user writes them."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "stay": f"0{stay:02d}", "block": t + 1, "pulse": round(60 + 40 * ((stay + t) % 2) + rng.normal(), 3),
            "lactate": round(float(rng.exponential(1.0)), 3), "dose": int(rng.integers(0, 3)), "reward": 0.5 * t,
            "died": int(t == 2), "remark": "-" if t else "admitted",
        }
        for stay, t in itertools.product(range(n), range(3))
    ]  # fmt: skip
    rng.shuffle(rows)
    return rows


def write_rows(path, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


WARD = Columns(episode="stay", step="block", action="dose", terminated="died")

FEATURES = ["pulse", ("lactate", "log-zscore")]
