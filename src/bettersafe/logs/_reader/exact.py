"""Exact sums of doubles, whose bits do not depend on the order or the grouping of the terms.

A sum is kept as *layers*, doubles that add up to it without error: the first is the sum rounded to a double, the next its
rounding error, and so on. The layers depend on the sum alone. To add, every term is cut on one absolute grid into digits of 24 bits,

    x = Σ_j digit_j(x) · 2^(24 j),        |digit_j| < 2^24

and digits are added as integers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bettersafe.typing import Floats, Ints


WIDTH = 24
"""Bits of a digit: 2^29 digits and a carry add up within the 53 bits of a double, and 2^38 within an int64."""

BLOCK = 1 << 18
"""Runs summed at a time: digits take several times the memory of the terms."""


def sum_runs(terms: Floats, starts: Ints) -> Floats:
    """Exact sums of runs of terms, as layers.

    Args:
        terms: Finite numbers in the order of their runs, shape [N].
        starts: Start of each run, rising from 0, with no empty run, shape [S].

    Returns:
        Layers, shape [m, S], with the smallest possible m ≥ 1.
    """
    if starts.size <= BLOCK:
        return _sum_runs(terms, starts)
    ends = np.append(starts, terms.size)
    cuts = [*range(0, starts.size, BLOCK), starts.size]
    blocks = [_sum_runs(terms[ends[a] : ends[b]], starts[a:b] - starts[a]) for a, b in pairwise(cuts)]
    layers = np.zeros((max(len(block) for block in blocks), starts.size))
    for block, a, b in zip(blocks, cuts, cuts[1:], strict=False):
        layers[: len(block), a:b] = block
    return layers


def _sum_runs(terms: Floats, starts: Ints) -> Floats:
    """`sum_runs` for one block of runs."""
    if not starts.size:
        return np.zeros((1, 0))
    top = int(np.frexp(np.max(np.abs(terms), initial=0.0))[1]) // WIDTH
    rest, digits = np.array(terms, dtype=np.float64), []
    for place in range(top, -2000, -1):
        digit = np.trunc(np.ldexp(rest, -WIDTH * place))
        rest -= np.ldexp(digit, WIDTH * place)  # exact: the rest are the low bits of a double
        digits.append((place, np.add.reduceat(digit.astype(np.int64), starts)))
        if not np.any(rest):
            break
    return _layers(_carried(digits))


def sum_parts(parts: Floats) -> Floats:
    """Exact sums over the first axis of ``parts`` [J, S], as layers [m, S]."""
    n_parts, size = parts.shape
    return sum_runs(np.ascontiguousarray(parts.T).reshape(-1), np.arange(size) * n_parts)


def _carried(digits: list[tuple[int, Ints]]) -> list[tuple[int, Ints]]:
    """Normalise digits to [-2^23, 2^23), where they are unique. Highest first."""
    half, carry = 1 << (WIDTH - 1), np.zeros_like(digits[0][1])
    found = []
    for place, digit in reversed(digits):
        total = digit + carry
        carry = (total + half) >> WIDTH
        found.append((place, total - (carry << WIDTH)))
    place = digits[0][0]
    while np.any(carry):
        place += 1
        total = carry
        carry = (total + half) >> WIDTH
        found.append((place, total - (carry << WIDTH)))
    return found[::-1]


def _layers(digits: list[tuple[int, Ints]]) -> Floats:
    """Layers from digits, highest first: each layer is the remaining sum rounded to a double."""
    left = [np.ldexp(digit.astype(np.float64), WIDTH * place) for place, digit in digits]
    layers = []
    while True:
        total, errors = left[-1], []
        for term in reversed(left[:-1]):
            total, error = _two_sum(term, total)
            errors.append(error)
        layers.append(total)
        left = errors[::-1]
        if not any(np.any(error) for error in left):
            return np.stack(layers)


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """fl(a + b) and its rounding error (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)
