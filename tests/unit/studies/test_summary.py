"""Means and errors over CMDPs, and intervals of rates: small cases by hand."""

from __future__ import annotations

import math

import pytest
from scipy import special, stats

from bettersafe.errors import ParameterError, RunError
from bettersafe.studies.summary import finished, summarise, with_intervals
from study_rows import gridworld_row, rows_table


# ---- means and errors
def test_standard_error_is_clustered_by_cmdp():
    # CMDP means 2, 6 and 10 of 2, 1 and 3 rows: mean 6, sd 4, se 4/√3. Unclustered, the rows' mean would be 40/6.
    rows = rows_table(
        gridworld_row(0, 1),
        gridworld_row(0, 3),
        gridworld_row(1, 6),
        gridworld_row(2, 8),
        gridworld_row(2, 10),
        gridworld_row(2, 12),
    )
    (found,) = summarise(rows).to_pylist()
    assert found["improvement"] == pytest.approx(6.0)
    assert found["improvement_se"] == pytest.approx(4.0 / math.sqrt(3.0))
    assert found["median"] == pytest.approx(6.0)
    assert (found["experiments"], found["cmdps"]) == (6, 3)
    assert {name: found[name] for name in ("method", "parameter", "episodes")} == {
        "method": "s-opt", "parameter": "0.1", "episodes": 10,
    }  # fmt: skip


def test_failures_are_clustered_too():
    # shares 1/2 and 0: mean 1/4, sd √(2/16) = √2/4, se 1/4
    rows = rows_table(gridworld_row(0, 1, True), gridworld_row(0, 1), gridworld_row(1, 1), gridworld_row(1, 1))
    (found,) = summarise(rows).to_pylist()
    assert found["failure"] == pytest.approx(0.25)
    assert found["failure_se"] == pytest.approx(0.25)


def test_median_is_of_the_cmdps():
    (found,) = summarise(
        rows_table(gridworld_row(0, 0), gridworld_row(0, 2), gridworld_row(1, 4), gridworld_row(2, 1000))
    ).to_pylist()
    assert found["median"] == pytest.approx(4.0)


def test_one_cmdp_has_no_standard_error():
    (found,) = summarise(rows_table(gridworld_row(0, 1), gridworld_row(0, 3, True))).to_pylist()
    assert math.isnan(found["improvement_se"])
    assert math.isnan(found["failure_se"])


def test_groups_are_kept_apart_and_in_order():
    rows = rows_table(
        gridworld_row(0, 1, episodes=500),
        gridworld_row(0, 2, episodes=10),
        gridworld_row(1, 3, episodes=500),
        gridworld_row(0, 9, method="linearized"),
    )
    found = [(r["method"], r["episodes"], r["improvement"]) for r in summarise(rows).to_pylist()]
    assert found == [("s-opt", 500, 2.0), ("s-opt", 10, 2.0), ("linearized", 10, 9.0)]


@pytest.mark.parametrize(
    ("rows", "what"),
    [(rows_table(gridworld_row(0, 1)).slice(0, 0), "no rows"), (rows_table({"cmdp": 1}), "no column 'method'")],
)
def test_what_is_not_of_a_study_is_refused(rows, what):
    with pytest.raises(ParameterError, match=what):
        summarise(rows)


# ---- intervals for rates of failure
def rates(*failures, of):
    """Rows of CMDPs in which so many experiments failed, of so many."""
    return rows_table(*(gridworld_row(c, 1, n < failed) for c, failed in enumerate(failures) for n in range(of)))


def interval(rows):
    (found,) = with_intervals(summarise(rows)).to_pylist()
    return found["failure_low"], found["failure_high"], found["failure_n"]


@pytest.mark.parametrize(
    ("failures", "of", "k", "n"),
    [
        ((1, 0) * 10, 2, 10, 40),  # spread more evenly than by chance: as many as there are experiments
        ((2, 0, 0, 0) * 3, 2, 3, 12),  # all or nothing: as many as there are CMDPs
        ((0,) * 30, 12, 0, 30),  # nothing failed: nobody knows how alike they are
        ((3,) * 5, 3, 5, 5),
        ((1,), 4, None, 1),  # one CMDP
    ],
)
def test_intervals_are_those_of_clopper_and_pearson(failures, of, k, n):
    low, high, worth = interval(rates(*failures, of=of))
    assert worth == n
    if k is not None:
        exact = stats.binomtest(k, n).proportion_ci(0.95, method="exact")
        assert (low, high) == pytest.approx((exact.low, exact.high))


def test_alike_experiments_count_for_fewer_than_they_are():
    # rates 1/2, 1/4, 0 … of 8 CMDPs: mean 3/32, Σ(m − f)² = 5/16 − 8 (3/32)² = 31/128, se² = 31/128/7/8
    f, squared_error = 3 / 32, 31 / 128 / 7 / 8
    n = f * (1 - f) / squared_error * (2.03951 / 2.36462) ** 2  # t tables: 31 and 7 degrees of freedom
    low, high, worth = interval(rates(2, 1, 0, 0, 0, 0, 0, 0, of=4))
    assert 8 < worth < 32
    assert worth == pytest.approx(n, rel=1e-4)
    assert special.betainc(f * worth, worth - f * worth + 1, low) == pytest.approx(0.025)
    assert special.betaincc(f * worth + 1, worth - f * worth, high) == pytest.approx(0.025)


def test_unfinished_cmdps_are_left_out():
    jobs = [{"job": name, "settings": {"cmdp": cmdp}} for name, cmdp in (("a", 0), ("b", 0), ("c", 1), ("d", 1))]
    rows = rows_table(gridworld_row(0, 1, job="a"), gridworld_row(0, 1, job="b"), gridworld_row(1, 1, job="c"))
    found, done, total = finished(rows, jobs, by="cmdp")
    assert (found["job"].to_pylist(), done, total) == (["a", "b"], 1, 2)
    with pytest.raises(RunError, match="no repetition of this sweep is finished yet"):
        finished(rows.slice(0, 1), jobs, by="cmdp")
    everything = rows_table(*rows.to_pylist(), gridworld_row(1, 1, job="d"))
    assert finished(everything, jobs, by="cmdp") == (everything, 2, 2)
