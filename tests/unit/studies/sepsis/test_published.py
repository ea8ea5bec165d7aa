"""Published values."""

from __future__ import annotations

from bettersafe.studies.sepsis.plan import DELTAS, EPSILONS, PREFERENCES
from bettersafe.studies.sepsis.published import VALUES
from bettersafe.studies.sepsis.summary import CLINICIAN


def test_the_papers_values_are_whole():
    assert len(VALUES) == 1 + len(PREFERENCES) * (2 + 1 + len(EPSILONS) + 2 * len(DELTAS))
    assert VALUES[CLINICIAN][::2] == (64.78, 64.78, 13.58, 13.58)
    assert VALUES["0,1", "s-opt", "0.1"][:4] == (71.35, 0.96, 69.29, 0.92)
    assert VALUES["1,0", "s-opt", "chosen"] == VALUES["1,0", "s-opt", "0.01"]  # as the paper says, ε = 0.01
