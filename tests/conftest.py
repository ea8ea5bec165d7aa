"""What holds for all tests: how Hypothesis draws its examples, threads, and patience with Ray."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

# "same": the same examples every time, on every machine. "new": new examples, and on a failure the line that repeats it;
# what they find is kept as an @example. No example fails for being slow: the machine may be busy.
settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("new", settings.get_profile("same"), derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("BETTERSAFE_EXAMPLES", "same"))


@pytest.fixture(scope="module")
def one_thread():
    """One thread for numerical libraries: tiny k-means on busy cores spends its time waiting for its own threads."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def ray(monkeypatch):
    """Ray, patiently: it gives its own processes 30 s to start, which is too little on a busy machine."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'bettersafe[cluster]'")
    init = ray.init

    def patient_init(*arguments, **options):
        for _ in range(20):
            try:
                return init(*arguments, **options)
            except Exception as error:
                if "timed out during startup" not in str(error):
                    raise
                ray.shutdown()
        return init(*arguments, **options)

    monkeypatch.setattr(ray, "init", patient_init)
    return ray
