"""Whole commands on large models: from a file of counts to a saved policy, certificate and report, with what memory was said and taken."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measuring import alone, apart, say, seconds, size

from bettersafe import Objective, save_counts
from bettersafe.logs.counts import Counts
from bettersafe.logs.counts_file import counted_objectives
from bettersafe.tasks.outcomes import memory_needed
from bettersafe.tasks.task import Task

BETTERSAFE = str(Path(sys.executable).parent / "bettersafe")
N_ACTIONS, TRIED, SUCCESSORS = 25, 5, 20
METHODS = {
    "s-opt": ("--method", "s-opt", "--epsilon", "0.1"),
    "adv-linearized": ("--method", "adv-linearized"),
    "b-opt": (),
}
SIZES = (
    (100_000, 2, ("s-opt", "adv-linearized", "b-opt")),
    (100_000, 4, ("s-opt", "adv-linearized", "b-opt")),
    (1_000_000, 2, ("s-opt", "adv-linearized")),  # b-opt takes 878 CPU seconds here: docs/scale.md
    (1_000_000, 4, ("s-opt", "adv-linearized")),
)
QUICK_SIZES = ((20_000, 2, ("s-opt", "adv-linearized", "b-opt")),)
WORDS = """`bettersafe improve counts.parquet -o RUN`, one process from the call to its end: reading the counts, the model, improvement, what can be
proven or believed of it, and the policy, certificate and report on disk. Made-up models with 25 actions, 5 of them tried in every state, 20
successors each. *Said* is the memory that the command says it will need before it begins, beyond the some 100 MB that Python and its
libraries have by then; *peak* is the most that it held. B-OPT of models of this size is by linearisation."""


def made_up_counts(n_states, n_objectives):
    rng = np.random.default_rng(0)
    n_pairs = n_states * TRIED
    action = np.sort(rng.random((n_states, N_ACTIONS)).argsort(axis=1)[:, :TRIED], axis=1).ravel()
    # different successors of a pair: one of each of as many parts of the states
    width = n_states // SUCCESSORS
    following = rng.integers(0, width, (n_pairs, SUCCESSORS)) + np.arange(SUCCESSORS) * width
    led = rng.integers(1, 5, (n_pairs, SUCCESSORS))
    ended = rng.integers(0, 3, n_pairs)
    visits = led.sum(axis=1) + ended
    mean = rng.normal(size=(n_objectives, n_pairs))
    ones = np.ones(n_objectives)
    return Counts(
        state_labels=np.arange(n_states),
        action_labels=np.arange(N_ACTIONS),
        objectives=tuple(Objective(name=f"r{k}", discount=0.99, weight=float(k == 0)) for k in range(n_objectives)),
        pair_state=np.repeat(np.arange(n_states), TRIED),
        pair_action=action,
        pair_count=visits,
        outcome_ptr=np.arange(0, n_pairs * SUCCESSORS + 1, SUCCESSORS),
        outcome_state=following.ravel(),
        outcome_count=led.ravel(),
        terminated_count=ended,
        reward_sum=mean * visits,
        reward_square_sum=(mean**2 + 1.0) * visits,
        reward_min=-9.0 * ones,
        reward_max=9.0 * ones,
        unseen_reward=0.0 * ones,
        initial_count=np.ones(n_states, dtype=np.int64),
        n_rows=int(visits.sum()),
        n_episodes=n_states,
        n_truncated=0,
        n_dropped=0,
        length_min=1,
        length_max=900,
        return_sum=0.0 * ones,
        return_square_sum=ones,
        return_min=-90.0 * ones,
        return_max=90.0 * ones,
    )


def write_counts(path, n_states, n_objectives):
    save_counts(made_up_counts(n_states, n_objectives), path)


def command(*words):
    """Seconds, CPU seconds and peak memory of a process, from its start to its end."""
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    process = subprocess.Popen(
        [BETTERSAFE, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=usual
    )
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"bettersafe {words[0]} ended with {process.returncode}: {said.strip()[-500:]}")
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"seconds": time.perf_counter() - start, "cpu": used.ru_utime + used.ru_stime, "peak": peak}


def measure(quick):
    rows, found = [], {}
    with tempfile.TemporaryDirectory(prefix="bettersafe-bench-") as folder:
        for n_states, d, methods in QUICK_SIZES if quick else SIZES:
            say(f"counts of {n_states:,} states, {d} objectives")
            path = Path(folder) / f"counts-{n_states}-{d}.parquet"
            apart(write_counts, path, n_states, d)
            for method in methods:
                say(f"{method} on {n_states:,} states, {d} objectives")
                needed, _ = memory_needed(Task(data=str(path), objectives=counted_objectives(path), method=method))
                one = command("improve", path, *METHODS[method], "-o", Path(folder) / f"{method}-{n_states}-{d}")
                shape = f"{n_states:,}", f"{n_states * TRIED * SUCCESSORS:,}", d, method
                rows.append([*shape, *map(seconds, (one["seconds"], one["cpu"])), size(needed), size(one["peak"])])
                found[f"whole-{method}-{n_states}-{d}"] = {
                    "values": {"seconds": one["seconds"], "bytes": one["peak"]},
                    "repeats": 1,
                    "instead": [],
                }
            path.unlink()
    return {
        "title": "Whole commands",
        "words": WORDS,
        "tables": [
            {"columns": ["states", "transitions", "d", "method", "time", "CPU time", "said", "peak"], "rows": rows}
        ],
        "found": found,
    }


if __name__ == "__main__":
    alone(measure)
