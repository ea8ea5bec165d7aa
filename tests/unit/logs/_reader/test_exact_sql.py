"""Exact sums by SQL, against fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from bettersafe.logs._reader.exact_sql import (
    FLOOR,
    SQUARE_FLOOR,
    bits_of_rewards,
    bits_of_squares,
    discounted_sum,
    sum_in_parts,
)


def asked(aggregates, **columns):
    """Aggregates over these columns."""
    table = pa.table(columns)
    with duckdb.connect() as connection:
        connection.register("rows", table)
        return connection.sql(f"SELECT {', '.join(aggregates)} FROM rows").fetchall()[0]


def total(parts, values):
    found = asked([aggregate for aggregate, _ in parts], r=values)
    return sum(Fraction(value) * Fraction(2) ** at for value, (_, at) in zip(found, parts, strict=True))


@pytest.mark.parametrize("spread", [0, 3, 90])
def test_sums_of_rewards_and_squares_are_exact(spread):
    rng = np.random.default_rng(spread)
    values = rng.normal(size=500) * 10.0 ** rng.integers(-spread, spread + 1, 500)
    least, largest = float(np.abs(values).min()), float(np.abs(values).max())
    parts = sum_in_parts("r", bits_of_rewards(largest, least, coarse=False), 500)
    assert total(parts, values) == sum(map(Fraction, values.tolist()))
    parts = sum_in_parts("r * r", bits_of_squares(largest, least, coarse=False), 500, floor=SQUARE_FLOOR)
    unit = Fraction(2) ** SQUARE_FLOOR
    assert total(parts, values) == sum(unit * int(Fraction(square) / unit) for square in (values * values).tolist())


def test_simple_fractions_take_one_plain_sum():
    values = np.arange(-50, 50) / 4
    parts = sum_in_parts("r", bits_of_rewards(12.5, 0.25, coarse=True), 100)
    assert parts == [("sum(r)", 0)]
    assert total(parts, values) == sum(map(Fraction, values.tolist()))


def test_bits_below_the_floor_are_dropped():
    values = np.array([1.0, 2.0**-1000])
    parts = sum_in_parts("r", bits_of_rewards(1.0, 2.0**-1000, coarse=False), 2)
    assert min(at for _, at in parts) == FLOOR
    assert total(parts, values) == 1


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.97, 1.0])
def test_discounted_sums_do_not_depend_on_the_order_of_rows(discount):
    rng = np.random.default_rng(1)
    n = 400
    rewards = rng.normal(size=n) * 10.0 ** rng.integers(-9, 9, n)
    bits = bits_of_rewards(float(np.abs(rewards).max()), float(np.abs(rewards).min()), coarse=False)
    aggregate, _ = discounted_sum("r", "t", discount, bits=bits, least=float(np.abs(rewards).min()), longest=n)
    found = set()
    for _ in range(3):
        order = rng.permutation(n)
        found.add(asked([aggregate], r=rewards[order], t=np.arange(n)[order])[0])
    assert len(found) == 1
    expected = math.fsum(discount**t * r for t, r in enumerate(rewards.tolist()))
    assert found.pop() == pytest.approx(expected, rel=1e-12)
