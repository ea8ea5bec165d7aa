"""Charts: round ticks, and everything within the frame."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from bettersafe.report import charts


@pytest.mark.parametrize(("low", "high"), [(-0.2, 5.7), (-4.9, 0.6), (0.0, 1e-9), (-3e6, 8e6)])
def test_ticks_are_round_and_inside(low, high):
    found = charts.ticks(low, high, 4)
    assert 2 <= len(found) <= 6
    assert all(low - 1e-9 * (high - low) <= t <= high + 1e-9 * (high - low) for t in found)
    steps = np.diff(found)
    np.testing.assert_allclose(steps, steps[0])
    digits = f"{steps[0]:.3e}"[:4]
    assert digits in ("1.00", "2.00", "2.50", "5.00")


def test_charts_stay_within_their_frame():
    marks = [
        charts.Mark(label="model", estimate=2.0, low=math.nan, high=math.nan, kind="model"),
        charts.Mark(label="test", estimate=1.0, low=-3.0, high=math.inf, kind="tested"),
        charts.Mark(label="posterior", estimate=1.0, low=0.5, high=1.5, kind="posterior"),
        charts.Mark(label="nothing", estimate=math.nan, low=-math.inf, high=math.nan, kind="tested"),
    ]
    drawing = charts.gain_chart(marks, describe="x", lower_is_better=False, zeta=0.5)
    points = [
        charts.Point(label="p", x=1e-12, y=3.0, kind="policy", x_low=-1.0, y_low=-math.inf),
        charts.Point(label="q", x=math.nan, y=0.0, kind="failed"),
    ]
    other = charts.trade_off_chart(points, names=("a", "b"), costs=(False, True), describe="y")
    for text in (drawing, other):
        assert "nan" not in text
        assert "inf" not in text
        for name, value in re.findall(r' (x|y|x1|x2|y1|y2|cx|cy)="([^"]+)"', text):
            assert -1.0 <= float(value) <= 361.0, (name, value)
    same = charts.gain_chart(marks[:0], describe="x", lower_is_better=False)
    assert "<svg" in same
