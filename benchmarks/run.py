"""Measure everything on this machine, beside what one would use instead, and write one page of it.

make bench                                         all of it, into docs/benchmarks.md: under 20 minutes on an idle machine
python benchmarks/run.py --quick -o page.md        less of it, under 2 minutes: no million of states, no cvxpy
python benchmarks/run.py --only s_opt cmdp         some sections; printed where no file is named
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from measuring import cores, seconds, size
from page import PICTURE, page
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

HERE = Path(__file__).parent
SECTIONS = (
    "bandwidth", "s_opt", "programs", "scale", "counting", "evaluate", "cmdp", "policy_iteration", "gridworld", "posterior", "whole", "start",
)  # fmt: skip
LIBRARIES = ["numpy", "scipy", "duckdb", "pyarrow", "pandas", "cvxpy", "quantecon", "numba"]
PATIENCE = 900.0  # seconds for one section
BUSY = 0.05  # share of the machine that others may use before it is not idle


def run_section(path, quick, show=lambda step: None):
    """What a section measured ("result") or why it did not ("why"), with its time and CPU time; never an exception of its own."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="bettersafe-bench-") as folder:
        target = Path(folder) / "result.json"
        overdue = threading.Event()
        last = deque(maxlen=40)
        with subprocess.Popen(
            [sys.executable, str(path), *(["--quick"] if quick else []), "--json", str(target)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True,
        ) as process:  # fmt: skip
            late = threading.Timer(PATIENCE, lambda: (overdue.set(), end(process)))
            late.start()
            try:
                for line in process.stderr:
                    if line.startswith("· "):
                        show(line[2:].strip())
                    elif line.strip():
                        last.append(line.strip())
            except BaseException:
                end(process)
                raise
            finally:
                late.cancel()
        taken, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        outcome = {"seconds": taken, "cpu": used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime}
        if overdue.is_set():
            return outcome | {"why": f"failed: not done after {seconds(PATIENCE)}"}
        if process.returncode != 0 or not target.exists():
            return outcome | {"why": f"failed: {last[-1] if last else f'ended with {process.returncode}'}"}
        return outcome | {"result": json.loads(target.read_text(encoding="utf-8"))}


def end(process):
    """Kill a section and what it started."""
    with suppress(ProcessLookupError):  # it has just ended by itself
        os.killpg(process.pid, signal.SIGKILL)


def run_all(paths, quick, console):
    """{name: outcome} of the sections, one after the other, with a bar."""
    outcomes = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(paths))
        for path in paths:
            progress.update(task, description=path.stem)
            outcome = run_section(path, quick, lambda step: progress.update(task, description=step))
            outcomes[path.stem] = outcome
            progress.print(f"{path.stem}: {outcome.get('why', 'done')}, {seconds(outcome['seconds'])}")
            progress.advance(task)
    return outcomes


def processor_seconds():
    """(busy, stolen by other guests of the host) CPU seconds of the whole machine since it started; None where unknown."""
    try:
        words = Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=9)[1:9]
    except OSError:
        return None
    user, nice, system, _, _, interrupt, soft, stolen = (float(word) / os.sysconf("SC_CLK_TCK") for word in words)
    return user + nice + system + interrupt + soft, stolen


def processor_name():
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def commit():
    def git(*words):
        return subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            ", changed since" if git("status", "--porcelain", "-uno") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine_lines(quick, at_commit, load, before, taken):
    """What was measured on, and whether others were at work there."""
    versions = []
    for name in LIBRARIES:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"no {name}")
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    lines = [
        f"{processor_name()}, {cores()} cores, {size(total)} of memory, {platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}, bettersafe {version('bettersafe')}, {', '.join(versions)}",
        f"{datetime.now(UTC):%d %B %Y}, commit {at_commit}; {seconds(taken)} in all"
        + (" (`--quick`)" if quick else ""),
    ]
    idle = load[0] <= BUSY * 10 * cores()
    words = f"load average at the start {', '.join(f'{one:.2f}' for one in load)}"
    after = processor_seconds()
    if before and after:
        own = resource.getrusage(resource.RUSAGE_CHILDREN)
        mine = resource.getrusage(resource.RUSAGE_SELF)
        ours = own.ru_utime + own.ru_stime + mine.ru_utime + mine.ru_stime
        others = max(after[0] - before[0] - ours, 0.0) / (taken * cores())
        stolen = (after[1] - before[1]) / (taken * cores())
        idle = idle and others <= BUSY and stolen <= BUSY
        words += f"; during the run others used {others:.0%} of the cores, and {stolen:.0%} was stolen by other guests of the host"
    lines.append(f"{'The machine was idle' if idle else '**The machine was not idle**'}: {words}")
    return lines


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of everything, in under 2 minutes")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="NAME", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE.md", help=f"the page; its picture goes to {PICTURE} beside it"
    )
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a section does not outlive the command
    console = Console(stderr=True)
    at_commit, load, before, start = commit(), os.getloadavg(), processor_seconds(), time.perf_counter()
    names = [name for name in SECTIONS if name in (options.only or SECTIONS)]
    outcomes = run_all([HERE / f"{name}.py" for name in names], options.quick, console)
    sections = {name: outcomes.get(name, {"why": "left out by --only"}) for name in SECTIONS}
    lines = machine_lines(options.quick, at_commit, load, before, time.perf_counter() - start)
    text, drawn = page(sections, lines)
    if options.output is None:
        print(text)
        return 0
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    if drawn is not None:
        target = options.output.parent / PICTURE
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(drawn)
    console.print(f"{options.output} is written.")
    return 1 if any("why" in outcome for outcome in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
