"""What this machine's memory can move, by arrays that are larger than its caches."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from measuring import alone, cores, say, timed
from threadpoolctl import threadpool_limits

MEGABYTES = 256  # of one array


def in_parts(run, threads, pool, a, b):
    """``run`` on equal parts of two arrays, one to a thread."""
    cuts = np.linspace(0, a.size, threads + 1).astype(int)
    parts = [slice(first, last) for first, last in itertools.pairwise(cuts)]
    return list(pool.map(lambda part: run(a[part], b[part]), parts))


def triad(a, b):
    """a ← a + b: two reads and a write per element, with no line of cache fetched only to be overwritten."""
    np.add(a, b, out=a)


def measure(quick):
    n = MEGABYTES * 2**20 // 8
    a, b = np.ones(n), np.full(n, 1e-9)
    rows, best = [], {}
    for threads in range(1, cores() + 1):
        say(f"memory bandwidth, {threads} threads")
        with ThreadPoolExecutor(threads) as pool, threadpool_limits(1):
            for name, run, moved in (("a ← a + b (triad)", triad, 24), ("Σ a·b (reading only)", np.dot, 16)):
                timing, _ = timed(lambda r=run, t=threads, p=pool: in_parts(r, t, p, a, b), repeats=5 if quick else 15)
                rate = moved * n / timing["seconds"]
                best[threads] = max(best.get(threads, 0.0), rate)
                rows.append([name, threads, f"{rate / 1e9:.3g} GB/s", timing["repeats"]])
    return {
        "title": "Memory bandwidth",
        "words": f"Two arrays of {MEGABYTES} MB each; the larger figure of a number of threads is taken for the floor.",
        "tables": [{"columns": ["what", "threads", "bandwidth", "repeats"], "rows": rows}],
        "bandwidth": {str(threads): rate for threads, rate in best.items()},
    }


if __name__ == "__main__":
    alone(measure)
