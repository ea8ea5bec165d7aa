"""Published values."""

from __future__ import annotations

from bettersafe.studies.gridworld.plan import PLANS, SIZES
from bettersafe.studies.gridworld.published import PUBLISHED


# ---- published values and names
def test_published_values_are_of_methods_that_the_studies_have():
    for study_id, methods in PUBLISHED.items():
        there = {
            *PLANS[study_id].methods,
            "s-opt tuned",
            "h-opt published tuned",
            "s-opt tuned once",
            "h-opt published tuned once",
        }
        assert methods.keys() <= there
        for points in methods.values():
            assert len(points) == len(SIZES)
            assert all(0.0 <= failure <= 1.0 < improvement for improvement, failure in points)
