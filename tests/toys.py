"""Toy experiments for the tests of sweeps and shards: a module of its own, which worker processes import by name."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from bettersafe.logs.sharded import count_shard
from bettersafe.posterior.draws import draw_share
from patience import TIMEOUT


def draws(settings):
    """Rows that depend on the settings alone, after a few milliseconds."""
    rng = random.Random(settings["seed"])
    time.sleep(rng.uniform(0.0, settings.get("sleep", 0.0)))
    return [{"n": n, "value": rng.gauss(0.0, settings["scale"]), "note": f"{n}é"} for n in range(rng.randrange(4))]


def numerics(settings):
    """Threads that numerical libraries would use, and results whose last bits depend on how many made them."""
    import numpy as np
    from scipy import linalg  # loads a BLAS of its own, after the sweep has limited those that were there
    from threadpoolctl import threadpool_info

    from bettersafe._system.workers import cores

    a = np.random.default_rng(settings["seed"]).normal(size=(400, 400))
    return [
        {
            "threads": max(library["num_threads"] for library in threadpool_info()),
            "cores": cores(),
            "product": float((a @ a).sum()),
            "solution": float(linalg.solve(a, a[0]).sum()),
        }
    ]


def fragile(settings):
    """Fails, or takes its process with it, as the settings say."""
    match settings["how"]:
        case "error":
            raise ValueError(f"first line\nno luck with {settings['seed']}")
        case "odd error":
            raise OddError(1, 2)
        case "exit":
            raise SystemExit("leaving")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die once":
            marker = Path(settings["marker"])
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        case "count":  # one letter per attempt, whoever makes it
            with Path(settings["marker"]).open("a", encoding="utf-8") as file:
                file.write("x")
            time.sleep(0.05)
    return [{"fine": settings["seed"]}]


class OddError(Exception):
    """An exception that can't be rebuilt on the other side of a pipe."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def wrong(settings):
    """Rows that are not what rows should be."""
    return {
        "number": 3,
        "clash": [{"seed": 1}],
        "nested": [{"a": [[1]]}],
        "mixed": [{"a": 1}, {"a": "one"}],
        "object": [{"a": object()}],
        "huge": [{"a": 2**70}],
    }[settings["how"]]


def kinds(settings):
    """Columns whose kind differs from experiment to experiment, and that are not always there."""
    import numpy as np

    return {
        0: [],
        1: [{"a": 1, "b": None, "c": [], "d": np.float64("nan")}],
        2: [{"a": 0.5, "b": "text", "c": [1, 2]}, {"a": np.int64(2), "e": np.bool_(True)}],
        3: [{"b": 7}],
    }[settings["seed"]]


def slow(settings):
    """Longer than any test waits, marked when begun."""
    Path(settings["marker"]).touch()
    time.sleep(2 * TIMEOUT)
    return []


def gridworld_rows(settings):
    """Rows as the gridworld study's, of policies that nobody made."""
    rng = random.Random(f"{settings['cmdp']} {settings['quality']} {settings['kinds']} {settings['variant']}")
    rows = []
    for episodes in settings.get("sizes", (10, 50, 500, 2000)):
        for preference in settings["preferences"]:
            for method in settings["methods"]:
                name, _, parameter = method.partition(" ")
                gain = rng.gauss(5.0, 10.0)
                rows.append(
                    {
                        "episodes": episodes,
                        "preference": preference,
                        "method": name,
                        "parameter": parameter,
                        "improvement": gain,
                        "failure": gain < 0.0,
                        "goal": 500.0 + gain,
                        "goal_baseline": 500.0,
                        "pits": -9.0 + rng.gauss(0.0, 1.0),
                        "pits_baseline": -9.0,
                        "redraws": 0,
                    }
                )
    return rows


def count_dying(shard):
    """Count a shard of a log; the worker of day 0 is killed at the first attempt, that of day 1 every time."""
    first = Path(shard.paths[0])
    mark = first.with_suffix(".tried")
    if first.name == "day-1.parquet" or (first.name == "day-0.parquet" and not mark.exists()):
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return count_shard(shard)


def draw_dying(share):
    """As `draw_share`, but the share of the 17th draw takes its process with it."""
    if share.first == 17:
        os.kill(os.getpid(), signal.SIGKILL)
    return draw_share(share)


def draw_dying_once(share):
    """The same, the first time that it is tried; leaves one letter per attempt, whoever makes it."""
    marker = Path(os.environ["BETTERSAFE_TOY_MARKS"]) / str(share.first)
    tried = marker.exists()
    with marker.open("a", encoding="utf-8") as file:
        file.write("x")
    if share.first == 17 and not tried:
        os.kill(os.getpid(), signal.SIGKILL)
    return draw_share(share)
