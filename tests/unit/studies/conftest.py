"""Smaller studies."""

from __future__ import annotations

import pytest

from bettersafe.studies import drawing
from bettersafe.studies.gridworld import experiment as module


@pytest.fixture(scope="module")
def small():
    """Two sizes of log are enough here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SIZES", (10, 50))
        yield


@pytest.fixture(autouse=True)
def _small_pictures(monkeypatch):
    """Drawn and written sooner."""
    monkeypatch.setattr(drawing, "DPI", 40)
