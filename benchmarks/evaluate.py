"""How long off-policy evaluation takes: six estimators at once, the kernel against padded NumPy; prints a Markdown table."""

from __future__ import annotations

import argparse
import time

import numpy as np

from bettersafe import _native
from bettersafe.terms import trajectory_terms


def trajectories(n, mean_length, d, seed=0, *, fixed=False):
    rng = np.random.default_rng(seed)
    lengths = np.full(n, mean_length) if fixed else rng.geometric(1.0 / mean_length, n)
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    rows = int(ptr[-1])
    log_ratio = 0.1 * rng.normal(size=rows)
    reward, v, q = (rng.normal(size=(rows, d)) for _ in range(3))
    return ptr, log_ratio, reward, np.full(d, 0.99), v, q, np.zeros((n, d))


def timed(arguments, repeats):
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        trajectory_terms(*arguments)
        best = min(best, time.perf_counter() - start)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    print("### Six estimators × 2 objectives\n")
    print("| episodes | rows | kernel | rows per second | padded NumPy | times slower |\n|---|---|---|---|---|---|")
    kernel = _native.kernel
    cases = [(20_954, 13, False)] if options.quick else [(20_954, 13, False), (500_000, 100, True)]
    for n, length, fixed in cases:
        arguments = trajectories(n, length, 2, fixed=fixed)
        rows = int(arguments[0][-1])
        ours = timed(arguments, 5)
        _native.kernel = None
        theirs = timed(arguments, 1)
        _native.kernel = kernel
        print(
            f"| {n:,} | {rows:,} | {ours * 1e3:.3g} ms | {rows / ours / 1e6:.3g} M | {theirs:.3g} s | {theirs / ours:,.0f} |"
        )


if __name__ == "__main__":
    main()
