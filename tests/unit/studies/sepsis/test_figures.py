"""Figures of the sepsis study."""

from __future__ import annotations

import numpy as np

from bettersafe.studies.sepsis.figures import draw_sepsis
from pictures import assert_nothing_overlaps, texts
from study_rows import sepsis_rows


def test_figures_say_what_they_are_and_nothing_overlaps():
    drawn = draw_sepsis(sepsis_rows(), "sepsis/icu", note="a word in the subtitle")
    assert drawn.keys() == {"doses", "truth", "epsilon"}
    for figure in drawn.values():
        said = " ".join(texts(figure))
        assert "a word in the subtitle" in said
        assert "2 seeds" in said
        assert_nothing_overlaps(figure)
    clinician = drawn["doses"].axes[0]
    assert np.allclose(clinician.images[0].get_array(), 4.0)  # per cent
    assert [text.get_text() for text in clinician.texts] == ["4"] * 25
    estimates = drawn["truth"].axes[0]
    drawn_points = np.concatenate([points.get_offsets() for points in estimates.collections[1:]])
    assert [40.0, 90.0] in drawn_points.tolist()  # Linearized: true, estimated
