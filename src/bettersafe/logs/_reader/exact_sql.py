"""Exact sums in SQL: terms are cut into digits whose sums are integers below 2^53, which doubles add without error.

The bits must not depend on threads, which add rows in a varying order, or on how rows are divided into shards. Bits of a
term below `FLOOR` (of a square: `SQUARE_FLOOR`) are always dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bettersafe.logs._reader.exact import WIDTH

FLOOR = -600
"""Exponent of the lowest bit of a reward or return that is counted."""

SQUARE_FLOOR = -288
"""Exponent of the lowest bit of a square that is counted; all bits of squares up to 1e200 fit in a double's range."""

EXACT = 53  # bits of a double
LEAST_WEIGHT = -64  # exponent; smaller γ^t count as zero, beside the weight 1 of the first reward


@dataclass(frozen=True, kw_only=True)
class Bits:
    """Range of the bits of numbers: all numbers are below 2^top, and multiples of 2^low."""

    top: int
    low: int


def bits_of_rewards(largest: float, least: float, *, coarse: bool) -> Bits:
    """Bits of rewards.

    Args:
        largest: Largest absolute value.
        least: Smallest absolute value except zeros; 0 if there are only zeros.
        coarse: Whether all rewards are multiples of 2^-10.
    """
    low = -COARSE_BITS if coarse else math.frexp(least)[1] - EXACT if least else 0
    return Bits(top=math.frexp(largest)[1], low=low)


COARSE_BITS = 10
"""Many rewards are integers or simple binary fractions: for multiples of 2^-10, one plain sum is exact."""


def bits_of_squares(largest: float, least: float, *, coarse: bool) -> Bits:
    """Bits of squared rewards, each rounded to a double; arguments as in `bits_of_rewards`."""
    low = -2 * COARSE_BITS if coarse else 2 * math.frexp(least)[1] - EXACT - 1 if least else 0
    return Bits(top=2 * math.frexp(largest)[1], low=low)


def sum_in_parts(expression: str, bits: Bits, n_terms: int, *, floor: int = FLOOR) -> list[tuple[str, int]]:
    """SQL aggregates and exponents: the sum of ``expression`` is Σ aggregate · 2^exponent, without error.

    Args:
        expression: SQL of a term.
        bits: Range of its bits.
        n_terms: Maximum number of terms.
        floor: Exponent; bits below 2^floor are dropped.
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
    """SQL aggregate over the rows of an episode, G = Σ γ^t r, whose bits depend on these rows alone; and the range of its bits.

    Args:
        reward: SQL of r.
        time: SQL of t, from 0.
        discount: γ.
        bits: Range of the bits of r.
        least: Smallest |r| except zeros; 0 if there are only zeros.
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
    for digit in reversed(digits):  # from the lowest, so that zero digits change nothing
        total = f"({digit} + {total})" if total else digit
    return total, Bits(top=bits.top + longest.bit_length(), low=WIDTH * lowest)


def _digit(expression: str, at: int, above: int | None) -> str:
    """SQL: the bits of a term from 2^at up to 2^above, as an integer with the term's sign."""
    digit = f"trunc(({expression}) * {_power(-at)})"
    return digit if above is None else f"{digit} - trunc(({expression}) * {_power(-above)}) * {_power(above - at)}"


def _power(exponent: int) -> str:
    return f"{math.ldexp(1.0, exponent)!r}::DOUBLE"
