"""Lines, bars and notes of figures."""

from __future__ import annotations

import sys

import pyarrow.compute as pc

from bettersafe.studies.gridworld.figures import draw_gridworld
from pictures import texts
from study_rows import small_rows


def test_losses_that_would_flatten_the_others_are_cut_and_said():
    rows = small_rows("gridworld/delta-0.9")
    deep = pc.and_(pc.equal(rows["method"], "linearized"), pc.equal(rows["preference"], "0,1"))
    rows = rows.set_column(
        rows.column_names.index("improvement"), "improvement", pc.if_else(deep, -500.0, rows["improvement"])
    )
    said = texts(draw_gridworld(rows, "gridworld/delta-0.9")["grid"])
    assert said.count("↓ Linearized, down to −500.0") == 2  # of four cells


def test_one_cmdp_has_no_bars_and_matplotlib_is_left_as_it_was():
    import matplotlib

    before = matplotlib.rcParams.copy()
    said = texts(draw_gridworld(small_rows("gridworld/scaling", 1), "gridworld/scaling")["scaling"])
    assert any("No bars" in text for text in said)
    after = matplotlib.rcParams.copy()
    assert all(after[name] == before[name] for name in before if name != "backend")  # to ask for it sets it
    assert "matplotlib.pyplot" not in sys.modules
