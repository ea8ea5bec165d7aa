"""Cases of a parametrised test of which a few stand for all in `make test`; the others run in `make test-all`."""

from __future__ import annotations

import pytest


def rest_slow(cases, *quick):
    """``cases`` as parameters; those that are not in ``quick`` are marked slow."""
    cases = list(cases)
    assert all(case in cases for case in quick)
    return [pytest.param(case, marks=() if case in quick else pytest.mark.slow) for case in cases]
