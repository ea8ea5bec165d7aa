"""Numbers of the gauntlet's tables."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bettersafe.studies.gauntlet.summary import averages, gauntlet_summary, summarise_cells
from gauntlet_rows import row, table


def test_failures_with_interval_and_p():
    rows = table(*(row(log, failure=log < 4) for log in range(10)))
    (cell,) = summarise_cells(rows)
    assert (cell["logs"], cell["failed"], cell["failure"]) == (10, 4, 0.4)
    assert (cell["failure_low"], cell["failure_high"]) == pytest.approx((0.1216, 0.7376), abs=1e-4)  # Clopper, Pearson
    assert cell["p"] == pytest.approx(0.0127952)  # P(Bin(10, 0.1) ≥ 4)
    none, every = (summarise_cells(table(row(0, failure=failed)))[0] for failed in (False, True))
    assert (none["failure_low"], none["failure_high"], none["p"]) == pytest.approx((0.0, 0.975, 1.0))
    assert (every["failure_low"], every["failure_high"], every["p"]) == pytest.approx((0.025, 1.0, 0.1))


def test_bounds_are_counted_over_objectives_of_proposals():
    rows = table(
        row(0, above=1.0, covered=2.0, z_mean=-1.0),
        row(1, above=0.0, covered=1.0, z_mean=0.5),
        row(2, proposed=False, above=float("nan"), covered=float("nan"), z_mean=float("nan"), share=0.0, kept=0.0),
    )
    (cell,) = summarise_cells(rows)
    assert (cell["above"], cell["covered"]) == (0.25, 0.75)
    assert cell["z_mean"] == -0.25
    assert cell["proposed"] == pytest.approx(2 / 3)
    assert cell["kept"] == pytest.approx(0.5 * 2 / 3)


def test_shares_that_are_not_known_are_left_out():
    nan = float("nan")
    (cell,) = summarise_cells(table(row(0, share=nan, kept=nan), row(1, share=0.7, kept=0.7)))
    assert cell["kept"] == 0.7


def test_averages_count_kinds_alike_and_leave_out_what_can_not_be_learned():
    rows = table(
        *(row(log, failure=True, kept=0.0) for log in range(3)),
        row(0, kind="taxi", half="confirm", kept=0.9),
        row(0, kind="wet-chicken", kept=1.0),
        row(0, kind="unseen", unlearnable=True, failure=True, kept=0.0),
    )
    means = {(r["half"], r["method"]): r for r in averages(summarise_cells(rows))}
    assert means["choose", "b-opt"]["kept"] == 0.5
    assert means["choose", "b-opt"]["failure"] == 0.5
    assert (means["choose", "b-opt"]["exceeded"], means["choose", "b-opt"]["cells"]) == (1, 2)
    assert means["confirm", "b-opt"]["kept"] == 0.9


def test_the_summary_is_a_table_in_the_order_of_the_kinds():
    rows = table(row(0, kind="taxi", half="confirm"), row(0, kind="wet-chicken"), row(0, kind="pit"))
    summary = gauntlet_summary(rows)
    assert isinstance(summary, pa.Table)
    assert summary["kind"].to_pylist() == ["pit", "wet-chicken", "taxi"]
