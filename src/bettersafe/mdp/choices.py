"""Engines of the per-state programs, error functions and rules for untried pairs, by name; without NumPy, for the command line."""

from __future__ import annotations

from typing import Literal

Engine = Literal["auto", "native", "highs"]
ENGINES: dict[str, str] = {
    "auto": "native if it is installed, else highs",
    "native": "the C++ kernel",
    "highs": "HiGHS through SciPy, slower",
}

ErrorKind = Literal["q", "l1"]
ERROR_KINDS: dict[str, str] = {
    "q": "of Soft-SPIBB, on the value of a decision",
    "l1": "of the paper's Appendix B.1, on its transitions",
}

Unseen = Literal["end", "worst", "baseline"]
UNSEEN_RULES: dict[str, str] = {
    "end": "the episode ends there, with no further reward",
    "worst": "the lowest return that the logged rewards allow",
    "baseline": "what the baseline is worth in that state",
}
