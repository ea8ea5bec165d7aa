"""One thread for numerical libraries."""

from __future__ import annotations

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Tiny k-means on busy cores spends its time waiting for its own threads."""
    with threadpool_limits(1):
        yield
