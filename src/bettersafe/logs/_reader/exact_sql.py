"""Exact sums by SQL: terms are cut into digits whose sums are whole numbers below 2^53, which doubles add without error.

Threads add rows in an order that changes from run to run, and shards share rows out in ways that nobody chose; neither may
change a bit. What a term has below `FLOOR` (a square: `SQUARE_FLOOR`) is left out, everywhere alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bettersafe.logs._reader.exact import WIDTH

FLOOR = -600
"""Exponent of the lowest bit of a reward or return that is counted."""

SQUARE_FLOOR = -288
"""The same of a square; from 1e200, the largest one of a reward, all bits down to here fit in a double's range."""

EXACT = 53  # bits of a double
LEAST_WEIGHT = -64  # γ^t below 2 to this counts as zero, beside the 1 that every return begins with


@dataclass(frozen=True, kw_only=True)
class Bits:
    """Where the bits of numbers lie: all are below 2^top, and multiples of 2^low."""

    top: int
    low: int


def bits_of_rewards(largest: float, least: float, *, coarse: bool) -> Bits:
    """Of numbers of size at most ``largest`` and, but for zeros, at least ``least``.

    Args:
        largest: Of all sizes.
        least: Of all but zeros; 0 if there are only zeros.
        coarse: All are multiples of 2^-10.
    """
    low = -COARSE_BITS if coarse else math.frexp(least)[1] - EXACT if least else 0
    return Bits(top=math.frexp(largest)[1], low=low)


COARSE_BITS = 10
"""Many rewards are whole numbers, halves, tenths of a thousand: a quick sum is exact for those with few bits."""


def bits_of_squares(largest: float, least: float, *, coarse: bool) -> Bits:
    """The same of their squares, each rounded to a double."""
    low = -2 * COARSE_BITS if coarse else 2 * math.frexp(least)[1] - EXACT - 1 if least else 0
    return Bits(top=2 * math.frexp(largest)[1], low=low)


def sum_in_parts(expression: str, bits: Bits, n_terms: int, *, floor: int = FLOOR) -> list[tuple[str, int]]:
    """SQL aggregates and exponents: the sum of ``expression`` is Σ aggregate · 2^exponent, without error.

    Args:
        expression: SQL of a term.
        bits: Where its bits lie.
        n_terms: How many terms there are at most.
        floor: Bits below 2^floor are left out.
    """
    low, room = max(bits.low, floor), n_terms.bit_length()
    top = max(bits.top, low)
    if bits.low >= floor and top - low + room <= EXACT:
        return [(f"sum({expression})", 0)]
    width = min(30, EXACT - room)
    parts, above = [], None
    at = top
    while at > low or above is None:
        at = max(at - width, low)
        parts.append((f"sum({_digit(expression, at, above)})", at))
        above = at
    return parts


def discounted_sum(
    reward: str, time: str, discount: float, *, bits: Bits, least: float, longest: int
) -> tuple[str, Bits]:
    """SQL aggregate over the rows of an episode: G = Σ γ^t r, which depends on those rows alone; and where its bits lie.

    Args:
        reward: SQL of r.
        time: SQL of t, from 0.
        discount: γ.
        bits: Where the bits of r lie.
        least: Its least size but for zeros; 0 if there are only zeros.
        longest: Rows of the longest episode.
    """
    weight = f"pow({discount!r}::DOUBLE, {time})"
    smallest = math.floor(math.log2(discount) * (longest - 1)) - 1 if discount > 0 else 0
    if smallest < LEAST_WEIGHT:
        smallest = LEAST_WEIGHT
        weight = f"(CASE WHEN {weight} < {math.ldexp(1.0, LEAST_WEIGHT)!r}::DOUBLE THEN 0 ELSE {weight} END)"
    low = max(smallest + math.frexp(least)[1] - EXACT - 1 if least else 0, FLOOR)
    highest, lowest = bits.top // WIDTH, low // WIDTH
    term, total, above = f"{weight} * {reward}", "", None
    places = range(max(highest, lowest), lowest - 1, -1)
    digits = []
    for place in places:
        digits.append(f"sum({_digit(term, WIDTH * place, above)}) * {_power(WIDTH * place)}")
        above = WIDTH * place
    for digit in reversed(digits):  # from the lowest: digits that are zero change nothing
        total = f"({digit} + {total})" if total else digit
    return total, Bits(top=bits.top + longest.bit_length(), low=WIDTH * lowest)


def _digit(expression: str, at: int, above: int | None) -> str:
    """SQL: the bits of a term from 2^at up to 2^above, as a whole number with the term's sign."""
    digit = f"trunc(({expression}) * {_power(-at)})"
    return digit if above is None else f"{digit} - trunc(({expression}) * {_power(-above)}) * {_power(above - at)}"


def _power(exponent: int) -> str:
    return f"{math.ldexp(1.0, exponent)!r}::DOUBLE"
