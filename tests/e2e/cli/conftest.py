"""The log of a ward."""

from __future__ import annotations

import pytest

from commands import visits, write_log


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write_log(tmp_path_factory.mktemp("log") / "ward log.csv", visits())
