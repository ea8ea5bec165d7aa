"""Selection rules of H-OPT; without NumPy, for the command line."""

from __future__ import annotations

from typing import Literal

Selection = Literal["sequential", "paper", "published"]
SELECTIONS: dict[str, str] = {
    "sequential": "valid",
    "paper": "fails more often than delta",
    "published": "fails more often than delta",
}
