"""Names of engines, error functions and rules for untried pairs. Imports no NumPy, for a fast command line."""

from __future__ import annotations

from typing import Literal

Resolved = Literal["native", "highs"]
"""Engines, without the choice between them."""

Engine = Literal["auto", Resolved]
ENGINES: dict[str, str] = {
    "auto": "native if it is installed, else highs",
    "native": "the C++ kernel",
    "highs": "HiGHS through SciPy, slower",
}

ErrorKind = Literal["q", "l1"]
ERROR_KINDS: dict[str, str] = {
    "q": "Soft-SPIBB, for the value of a decision",
    "l1": "Appendix B.1 of the paper, for its transitions",
}

Unseen = Literal["baseline", "end", "worst"]
UNSEEN_RULES: dict[str, str] = {
    "baseline": "what the baseline is worth in that state",
    "end": "the episode ends there, with no further reward",
    "worst": "the lowest return that the logged rewards allow",
}

Vocabulary = Literal["seen", "declared"]
VOCABULARIES: dict[str, str] = {
    "seen": "the states and actions in the data",
    "declared": "all states and actions with a label",
}
