"""Figures of the gauntlet."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from bettersafe.studies.gauntlet.figures import draw_gauntlet
from gauntlet_rows import row, table


def test_a_figure_for_each_half():
    rows = table(
        row(0),
        row(0, method="s-opt", parameter="0.1", failure=True, kept=0.0),
        row(0, kind="unseen", unlearnable=True, failure=True),
        row(0, kind="cold-store", kept=float("nan")),
        row(0, kind="taxi", half="confirm"),
    )
    figures = draw_gauntlet(rows, note="unfinished")
    assert list(figures) == ["gauntlet-choose", "gauntlet-confirm"]
    rate, share = figures["gauntlet-choose"].axes
    assert [label.get_text() for label in rate.get_yticklabels()] == [
        "Garnets, weak baseline", "aggregated states (a cold store)", "a catastrophe that the log has hardly ever seen *",
    ]  # fmt: skip
    assert "δ = 0.1" in rate.get_xlabel()
    drawn = np.concatenate([line.get_xdata() for line in share.get_lines()])
    assert np.any(drawn == 0.5)
    assert list(draw_gauntlet(table(row(0, kind="taxi", half="confirm")))) == ["gauntlet-confirm"]
    assert list(draw_gauntlet(table(row(0, kind="mines", half="fresh")))) == ["gauntlet-fresh"]
    assert list(draw_gauntlet(table(row(0, kind="ferry", half="fourth")))) == ["gauntlet-fourth"]
    assert list(draw_gauntlet(table(row(0, kind="windy", half="fifth")))) == ["gauntlet-fifth"]
    assert list(draw_gauntlet(table(row(0, kind="hotel", half="sixth")))) == ["gauntlet-sixth"]
    assert list(draw_gauntlet(table(row(0, kind="lake", half="seventh")))) == ["gauntlet-seventh"]
