"""A ward, opened in the explorer."""

from __future__ import annotations

import pytest

from bettersafe.explore import session as explore
from wards import ward_task, write_ward


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write_ward(tmp_path_factory.mktemp("ward") / "ward.csv")


@pytest.fixture(scope="module")
def session(log):
    return explore.open_session(ward_task(log))
