"""Levels and comparisons of the held-out test; without NumPy, for the command line."""

from __future__ import annotations

from typing import Literal

Levels = Literal["split", "full"]
LEVELS: dict[str, str] = {
    "split": "each objective at delta/d",
    "full": "each at delta, which is enough for the verdict",
}

Comparison = Literal["paired", "published"]
COMPARISONS: dict[str, str] = {
    "paired": "with the baseline's return in the same episodes",
    "published": "with a fixed number, as if that return were known",
}
