"""Figures of the gridworld study: lines, colours and notes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bettersafe.studies.gridworld.figures import draw_gridworld
from bettersafe.studies.gridworld.plan import PLANS
from bettersafe.studies.styles import STYLES
from pictures import assert_nothing_overlaps, texts
from quick import rest_slow
from study_rows import small_rows

NAMES = {
    "gridworld/fixed": {"mean", "grid", "objectives"},
    "gridworld/tuned": {"mean", "grid", "objectives"},
    "gridworld/delta-0.9": {"mean", "grid"},
    "gridworld/lagrangian": {"lagrangian"},
    "gridworld/lagrangian-grid": set(),
    "gridworld/scaling": {"scaling"},
    "gridworld/conventions": {"conventions"},
    "gridworld/bopt": {"mean", "grid", "objectives"},
    "gridworld/bopt-scaling": {"scaling"},
}


@pytest.mark.parametrize(
    "study_id",
    rest_slow(PLANS, "gridworld/fixed", "gridworld/lagrangian", "gridworld/scaling", "gridworld/conventions"),
)
def test_every_study_is_drawn(study_id):
    drawn = draw_gridworld(small_rows(study_id), study_id, note="a word in the subtitle")
    assert drawn.keys() == NAMES[study_id]
    for name, figure in drawn.items():
        said = " ".join(texts(figure))
        assert "a word in the subtitle" in said
        assert "worse than the baseline on some objective by more than 1e-6 of its range" in said
        assert ("1 CMDP" if name == "objectives" else "2 CMDPs" if study_id == "gridworld/tuned" else "3 CMDPs") in said
        assert f"δ = {PLANS[study_id].delta:g}" in said
        assert_nothing_overlaps(figure)


def test_lines_are_the_means_in_the_methods_colours():
    rows = small_rows("gridworld/lagrangian")
    figure = draw_gridworld(rows, "gridworld/lagrangian")["lagrangian"]
    _, _, gain, rate = figure.axes
    colour = STYLES["s-opt 0.1"].colour
    for axes, name in ((gain, "improvement"), (rate, "failure")):
        (line,) = (
            one
            for one in axes.get_lines()
            if one.get_color() == colour and len(one.get_xdata()) == 4 and one.get_marker() == "s"
        )
        mine = rows.filter(pc.and_(pc.equal(rows["method"], "s-opt"), pc.equal(rows["parameter"], "0.1")))
        for size, height in zip((10, 50, 500, 2000), line.get_ydata(), strict=True):
            of_it = [r[name] for r in mine.to_pylist() if r["episodes"] == size]
            assert height == pytest.approx(sum(of_it) / len(of_it))  # every CMDP has as many rows
    (allowed,) = (one for one in rate.get_lines() if one.get_linestyle() == ":")
    assert set(allowed.get_ydata()) == {0.1}


def test_a_study_at_another_delta_says_so():
    rows = small_rows("gridworld/bopt")
    rows = rows.set_column(rows.column_names.index("delta"), "delta", pa.array([0.01] * rows.num_rows))
    figure = draw_gridworld(rows, "gridworld/bopt")["mean"]
    assert "B-OPT and G-OPT beside the others, δ = 0.01" in " ".join(texts(figure))
    gain, rate = figure.axes
    assert [label.get_text() for label in gain.get_xticklabels()] == ["10", "50", "200", "500", "2,000"]
    (allowed,) = (one for one in rate.get_lines() if one.get_linestyle() == ":")
    assert set(allowed.get_ydata()) == {0.01}
