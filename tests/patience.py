"""How long tests wait for other processes: no test fails because the machine is busy."""

from __future__ import annotations

import time

TIMEOUT = 600.0
"""Seconds after which a process, a server or a page counts as hung. Nothing that works takes nearly as long."""


def until(what):
    """Wait until ``what()`` is true; returns it."""
    end = time.monotonic() + TIMEOUT
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
