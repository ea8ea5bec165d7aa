"""Memory estimates for large steps, checked before a step starts: an error with a number is better than a killed process.

The coefficients are measured peaks, beyond the memory in use before the step, on Linux, rounded up; a test checks them to a
factor of 2. ``BETTERSAFE_MEMORY_LIMIT`` (such as 8GB, for the whole process; "none" turns the check off) overrides the free
memory of the system.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bettersafe.errors import MemoryLimitError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator


VARIABLE = "BETTERSAFE_MEMORY_LIMIT"
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}

LIBRARIES = 100e6
"""Memory of libraries that a large step loads, in bytes."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes that determine the memory of counts and models: |X|, |A|, P, M (outcomes of all pairs), d."""

    n_states: int
    n_actions: int
    n_pairs: int
    n_outcomes: int
    n_objectives: int

    def __str__(self) -> str:
        return (
            f"{self.n_states:,} states × {self.n_actions:,} actions with {self.n_pairs:,} pairs, {self.n_outcomes:,} successors and"
            f" {self.n_objectives} objectives"
        )


def log_bytes(n_rows: int, n_objectives: int) -> float:
    """Memory of reading a whole log: columns in DuckDB, sorted, and as arrays."""
    return LIBRARIES + n_rows * (110.0 + 36.0 * n_objectives)


def evaluation_bytes(n_episodes: int, n_objectives: int) -> float:
    """Memory of off-policy evaluation: terms of six estimators, and their intervals."""
    return LIBRARIES / 2 + n_episodes * (40.0 + 90.0 * n_objectives)


def crossfit_bytes(n_groups: int, n_states: int, n_actions: int, n_objectives: int, folds: int) -> float:
    """Memory of cross-fitting: a model without each fold, from groups by fold, state, action and successor."""
    table = n_states * n_actions
    value_model = 4.0 * table + 16.0 * n_objectives * (min(n_groups, table) + n_states)
    return 260.0 * n_groups + 40.0 * table + folds * value_model


def step_values_bytes(steps: int, n_states: int, n_objectives: int) -> float:
    """Memory of a model's values by step, and of those of pairs without data."""
    return 16.0 * steps * n_states * n_objectives


def tally_bytes(n_groups: int, n_pairs: int, n_objectives: int) -> float:
    """Memory of aggregating groups by state, action and successor into counts: the result, and blocks of groups."""
    return LIBRARIES / 4 + 16.0 * n_groups + (80.0 + 20.0 * n_objectives) * n_pairs


def counts_bytes(sizes: Sizes) -> float:
    """Memory of reading a counts file."""
    return (
        LIBRARIES / 2
        + 16.0 * sizes.n_outcomes
        + (40.0 + 32.0 * sizes.n_objectives) * sizes.n_pairs
        + 40.0 * sizes.n_states
    )


def model_bytes(sizes: Sizes) -> float:
    """Memory of estimating a model from counts, improving a baseline in it, and writing the run.

    The peak is either the estimation of the model, or the improvement, after the outcomes of the counts are freed.
    """
    d = sizes.n_objectives
    table = sizes.n_states * sizes.n_actions
    making = 12.0 * sizes.n_outcomes + 60.0 * sizes.n_pairs + 8.0 * table
    improving = -4.0 * sizes.n_outcomes + (200.0 + 40.0 * d) * sizes.n_pairs + 24.0 * table
    return LIBRARIES + max(making, improving)


def linearised_bytes(sizes: Sizes) -> float:
    """Memory of B-OPT by linearisation, beyond the model: candidates, a byte per outcome, and arrays by pair and state."""
    d = sizes.n_objectives
    table = sizes.n_states * sizes.n_actions
    return (
        1.0 * sizes.n_outcomes + (100.0 + 60.0 * d) * sizes.n_pairs + (200.0 + 60.0 * d) * sizes.n_states + 60.0 * table
    )


def outcomes_bytes(sizes: Sizes) -> float:
    """Memory of B-OPT by draws, from counts, beyond the model: outcomes by state, all pairs, and candidates."""
    d = sizes.n_objectives
    table = sizes.n_states * sizes.n_actions
    return (170.0 + 8.0 * d) * sizes.n_outcomes + (250.0 + 24.0 * d) * table


def check_memory(needed: float, what: str) -> None:
    """Raise MemoryLimitError if a step needs more memory than is available.

    Args:
        needed: Bytes beyond those in use.
        what: Description of the step, as the subject of a sentence.
    """
    there = available_bytes()
    if needed > there:
        raise MemoryLimitError(
            f"{memory_note(needed, what)} besides the {_shown(_in_use())} in use, and {_shown(there)} are free. Use a larger"
            f" machine or less data, or try anyway with {VARIABLE}=none."
        )


def memory_note(needed: float, what: str) -> str:
    """Memory of a step in words: "s-opt on … needs about 2.1 GB of memory"."""
    return f"{what} needs about {_shown(needed)} of memory"


def available_bytes() -> float:
    """Bytes that this process may still allocate: by `VARIABLE`, else by the system and its control groups."""
    limit = memory_limit()
    if limit is not None:
        return max(limit - _in_use(), 0.0)
    return min((free for free in (_free_in_system(), *_free_in_groups()) if free is not None), default=math.inf)


def memory_limit() -> float | None:
    """Value of `VARIABLE` in bytes; infinity for "none", None if not set."""
    text = os.environ.get(VARIABLE, "").strip().lower()
    if not text:
        return None
    if text == "none":
        return math.inf
    size = size_in_bytes(text)
    if size is None:
        raise ParameterError(f"{VARIABLE} must be a size such as 8GB, or none; got {os.environ[VARIABLE]!r}.")
    return size


def size_in_bytes(text: str) -> float | None:
    """Bytes of a size such as 8GB; None if ``text`` is not a size."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]i?)?b?", text.strip().lower())
    return None if found is None else float(found[1]) * UNITS[found[2] or ""]


def _in_use() -> float:
    """Resident bytes of this process."""
    try:
        return float(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0.0


def _free_in_system(meminfo: Path = Path("/proc/meminfo")) -> float | None:
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", meminfo.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else float(found[1]) * 1024


def _free_in_groups(
    own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> Iterator[float | None]:
    """Bytes left in each control group of this process, version 2 or 1; cached files count as free."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base, names = (
            (root, ("memory.max", "memory.current", "inactive_file"))
            if not controllers
            else (root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))
        )
        folder = base / place.strip("/")
        for group in (folder, *folder.parents):
            yield _left(group, *names)
            if group == base:
                break


def _left(group: Path, limit: str, usage: str, cached: str) -> float | None:
    try:
        most = int((group / limit).read_text(encoding="ascii"))  # "max" is not a number and means no limit
        used = int((group / usage).read_text(encoding="ascii"))
        found = re.search(rf"^{cached} (\d+)", (group / "memory.stat").read_text(encoding="ascii"), re.MULTILINE)
    except (OSError, ValueError):
        return None
    return float(max(most - used + (int(found[1]) if found else 0), 0))


def _shown(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
