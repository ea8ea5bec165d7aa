"""Pieces of the studies' tables, by hand."""

from __future__ import annotations

import math

from bettersafe.studies.tables import by_size, in_order, markdown, with_interval, with_se, words


def test_values_and_their_errors():
    assert with_se(1.25, 0.5, 1) == "1.2 ± 0.5"
    assert with_se(-1.0, math.nan, 2) == "−1.00"
    assert with_se(2.0, 0.1, 1, sign="+") == "+2.0 ± 0.1"
    assert with_se(0.001, 0.2, 1, sign="+") == "0.0 ± 0.2"
    assert with_se(0.001, 0.001, 1, sign="+") == "0"
    rate = {"failure": 0.05, "failure_low": 0.0123, "failure_high": 0.2, "failure_n": 40.0}
    assert with_interval(rate) == "0.050 [0.012, 0.200] (40)"


def test_methods_are_in_the_order_of_legends():
    assert words({"method": "s-opt", "parameter": "0.1"}) == "s-opt 0.1"
    assert words({"method": "b-opt", "parameter": ""}) == "b-opt"
    ordered = in_order(["of our own", "b-opt", "s-opt 0.1", "b-opt"])
    assert sorted(ordered) == ["b-opt", "of our own", "s-opt 0.1"]
    assert ordered == in_order(reversed(ordered))
    assert ordered[-1] == "of our own"


def test_a_table_has_a_column_for_each_size_and_one_for_all():
    records = {("b-opt", 10): {"n": 1}, ("b-opt", None): {"n": 3}}
    (table,) = by_size(records, [10, 50], "method", lambda record: str(record["n"]))
    assert table.splitlines() == [
        "| method | \\|D\\| = 10 | \\|D\\| = 50 | all \\|D\\| |",
        "| :--- | ---: | ---: | ---: |",
        "| B-OPT | 1 | – | 3 |",
    ]
    assert markdown(["a", "b"], [["x", "y"]], words=2).splitlines()[1] == "| :--- | :--- |"
