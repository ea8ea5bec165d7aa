"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from bettersafe.text import numbers


def test_numbers_as_people_read_them():
    assert [numbers.number(v) for v in (0.0, 1.0, -52.1049, 12345.6, 0.01234)] == [
        "0",
        "1.00",
        "−52.1",
        "12,346",
        "0.0123",
    ]
    assert numbers.number(math.nan) == "–"
    assert numbers.number(-math.inf) == "−∞"
    assert numbers.number(2.5e-9) == "2.50e-9"
    assert numbers.number(0.0004, signed=True, decimals=2) == "0.00"  # no sign on what is shown as nothing
    assert numbers.number(2.0, trim=True, signed=True) == "+2"
    assert [numbers.percent(v) for v in (0.0, 1e-17, 0.0004, 0.1234, 0.9999, 1.0)] == [
        "0 %",
        "0 %",
        "< 0.1 %",
        "12.3 %",
        "100 %",
        "100 %",
    ]


def test_a_change_can_be_seen_whatever_it_is_a_change_of():
    digits = numbers.change_precision(1234.5, 1236.7)
    assert [numbers.number(v, decimals=digits) for v in (1234.5, 1236.7, 2.2)] == ["1,234.5", "1,236.7", "2.2"]
    assert numbers.change_precision(52.104, 57.129) == 1
    assert numbers.change_precision(0.76555, 2.3551) == 2
    assert numbers.change_precision(1.0, 1.0 + 1e-12) == 2  # rounding is no change
    assert numbers.with_interval(53.04, 52.13, 53.94) == "53.0 [52.1, 53.9]"
    assert numbers.with_interval(1234.0, 1233.21, 1234.79) == "1,234.0 [1,233.2, 1,234.8]"
    assert numbers.with_interval(0.5, math.nan, math.nan) == "0.500"


@pytest.mark.parametrize(
    ("share", "draws", "said"),
    [
        (1.0, 199, "over 0.995"),
        (0.9749, 200, "0.975"),
        (0.9999, 10_000, "over 0.999"),
        (1.0, 0, "over 0.999"),
        (0.5, 0, "0.500"),
        (math.nan, 5, "–"),
    ],
)
def test_no_chance_is_certain(share, draws, said):
    assert numbers.chance(share, draws) == said
