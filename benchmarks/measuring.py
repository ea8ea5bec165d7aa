"""How the sections measure: medians after a warm-up, peak memory of a process of its own, and a section run alone.

A section is a file with ``measure(quick) -> dict``: plain numbers and text, which ``run.py`` makes a page of. Its keys, all
optional but the title:

    title     of the section
    words     what is compared, in a paragraph
    tables    [{"title", "columns", "rows", "note"}]
    found     {key of an aim: {"values": {measure: number}, "repeats": n, "note": text, "instead": [...]}}
    growth    [{"what", "by", "x", "seconds"}], for the fitted slopes
    passes    [{"what", "bytes", "seconds", "threads", "products"}], for the distance to the memory's floor
    bandwidth {"threads": bytes per second}
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path

LONG = 10.0  # seconds: what takes longer is timed once, with no warm-up
ENOUGH = 3.0  # seconds to spend on the repeats of one thing; what takes longer is timed once, after a warm-up


def say(step):
    """What is being measured, for whoever is watching; `run.py` shows it."""
    print(f"· {step}", file=sys.stderr, flush=True)


def timed(run, *, repeats=15):
    """(timing, result): the median of up to ``repeats`` runs, fewer where they take long, after one that warms up."""

    def once():
        wall, cpu = time.perf_counter(), time.process_time()
        result = run()
        return time.perf_counter() - wall, time.process_time() - cpu, result

    *first, result = once()
    found = [first]
    if first[0] < LONG:
        found = []
        while len(found) < repeats and sum(wall for wall, _ in found) < ENOUGH:
            *one, result = once()
            found.append(one)
    wall, cpu = (statistics.median(column) for column in zip(*found, strict=True))
    return {"seconds": wall, "cpu": cpu, "repeats": len(found)}, result


def imported(name):
    """Import a library before it is timed; `attempt` says so where it is lacking."""
    with suppress(ImportError):
        import_module(name)


def attempt(run, **options):
    """`timed`, or ({"why": ...}, None) where the library is lacking or fails: the rest of the section goes on."""
    try:
        return timed(run, **options)
    except ImportError as error:
        return {"why": f"{error.name or error} is not installed"}, None
    except Exception as error:
        return {"why": f"failed: {type(error).__name__}: {error}"}, None


def apart(function, *arguments):
    """``function(*arguments)`` in a new process, so that its peak memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def forget_peak():
    """Let the peak begin anew: what made the input is not what is measured. Where this can't be done the peak is larger."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def peak_bytes():
    """The most memory this process held since `forget_peak`. Not ru_maxrss where it can be helped: a child inherits that."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def seconds(value):
    """A time for people, in three digits."""
    if value >= 7200.0:
        return f"{value / 3600.0:.3g} h"
    if value >= 120.0:
        return f"{value / 60.0:.3g} min"
    return f"{value * 1e6:.3g} µs" if value < 1e-3 else f"{value * 1e3:.3g} ms" if value < 1.0 else f"{value:.3g} s"


def size(value):
    return f"{value / 1e9:.3g} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"


def shown(timing, per=1):
    """A timing as a cell: the time and how often it was taken, or why there is none."""
    return timing["why"] if "why" in timing else f"{seconds(timing['seconds'] / per)} ({timing['repeats']})"


def ratio(value):
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.2g}"


def times(theirs, ours, per=1):
    """How many times slower, as a cell."""
    return "–" if "why" in theirs or "why" in ours else ratio(theirs["seconds"] / per / ours["seconds"])


def beside(name, timing, per=1):
    """A timing of what one would use instead, for ``found``."""
    return {"name": name, **({"why": timing["why"]} if "why" in timing else {"seconds": timing["seconds"] / per})}


def markdown(columns, rows):
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def as_markdown(result):
    """The tables of a section, with their words."""
    parts = [result["words"]] if result.get("words") else []
    for table in result.get("tables", ()):
        parts += [f"### {table['title']}"] if table.get("title") else []
        parts += [markdown(table["columns"], table["rows"]), *([table["note"]] if table.get("note") else [])]
    return "\n\n".join(parts)


def alone(measure):
    """The command line of a section: print its tables, or leave what was measured in a file for `run.py`."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--quick", action="store_true", help="less of it, in seconds")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write what was measured there instead of printing it"
    )
    options = parser.parse_args()
    result = measure(options.quick)
    if options.json:
        options.json.write_text(json.dumps(result), encoding="utf-8")
    else:
        print(f"## {result['title']}\n\n{as_markdown(result)}")
