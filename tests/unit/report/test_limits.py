"""What the data does not cover."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bettersafe.report import limits
from toy_runs import toy_run


def test_coverage_counts_decisions_by_times_tried():
    run = dataclasses.replace(toy_run(), counts=np.array([[0, 5], [10, 2000]]))
    bars = {label: (baseline, policy) for label, baseline, policy in limits.coverage_bars(run)}
    visits = np.array([5, 2010]) / 2015
    assert bars["never"] == pytest.approx((0.5 * visits[0], 0.25 * visits[0]))
    assert bars["1 to 9 times"] == pytest.approx((0.5 * visits[0], 0.75 * visits[0]))
    assert bars["10 to 99"] == pytest.approx((0.5 * visits[1], 0.25 * visits[1]))
    assert bars["1,000 or more"] == pytest.approx((0.5 * visits[1], 0.75 * visits[1]))
    assert [row["action"] for row in limits.rarely_tried(run)] == ["treat"]
