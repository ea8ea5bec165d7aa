"""Levels, comparisons and coverage of the held-out test; without NumPy, for the command line."""

from __future__ import annotations

from typing import Literal

Levels = Literal["split", "full"]
LEVELS: dict[str, str] = {
    "split": "each objective at delta/d",
    "full": "each at delta, which is enough for the verdict",
}

Comparison = Literal["paired", "empirical", "published"]
COMPARISONS: dict[str, str] = {
    "paired": "with the baseline's estimate, episode by episode",
    "empirical": "with the mean return of the episodes as if it were exact, as in the paper",
    "published": "with the model's return as if it were exact, as in the published code",
}

Coverage = Literal["required", "ignored"]
COVERAGES: dict[str, str] = {
    "required": "refused",
    "ignored": "tested by the bounds alone, as in the paper",
}
