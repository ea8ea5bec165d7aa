"""The trade-off: which pairs of objectives are drawn."""

from __future__ import annotations

from bettersafe.report import trade_off
from toy_runs import many_run


def test_of_many_objectives_those_that_decide_are_drawn():
    run = many_run()
    assert len(trade_off.drawn_pairs(run)) == 28
    assert {0, 3, 5, 11} <= {k for pair in trade_off.drawn_pairs(run) for k in pair}
