"""Where files are that tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
FIXTURES = sorted((ROOT / "tests" / "data").glob("inst_*.npz"))
