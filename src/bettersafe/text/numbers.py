"""Numbers, shares and probabilities, rounded to their meaningful digits."""

from __future__ import annotations

import math

from bettersafe.posterior.rule import probability

DIGITS = 3
"""Significant digits of a number; a change has at least two."""

SAME = 1e-9
NOTHING = 1e-15
"""Relative changes, and absolute ones, below which there are only rounding errors."""

DOUBTED = "can't tell, the probabilities of a loss on each objective add up to 100 % or more"


def number(value: float, *, signed: bool = False, trim: bool = False, decimals: int | None = None) -> str:
    """Three significant digits, a real minus sign; ``trim`` drops trailing zeros, ``decimals`` fixes the number of decimals."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size != 0.0 and not 1e-4 <= size < 1e7:
        text = f"{size:.2e}"
        mantissa, exponent = text.split("e")
        text = f"{mantissa}e{int(exponent)}"
    else:
        if decimals is None:
            decimals = precision(value)
        text = f"{size:,.{decimals}f}"
        if trim and "." in text:
            text = text.rstrip("0").rstrip(".")
    if not any(c in "123456789" for c in text):
        return text
    return ("−" if value < 0 else "+" if signed else "") + text


def precision(*values: float, digits: int = DIGITS) -> int:
    """Number of decimals with which the largest value has ``digits`` significant digits."""
    size = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    if size == 0.0:
        return 0
    return min(max(digits - 1 - math.floor(math.log10(size)), 0), 7)


def change_precision(before: float, after: float) -> int:
    """Number of decimals for two numbers side by side, so that their difference has two digits."""
    moved = 0.0 if is_same(before, after) else after - before
    return max(precision(before, after), precision(moved, digits=2))


def with_interval(value: float, low: float, high: float) -> str:
    """Estimate with its interval, so that the width has two digits; no interval if the edges are NaN."""
    if math.isnan(low):
        return number(value)
    digits = max(precision(value), precision(high - low, digits=2))
    return f"{number(value, decimals=digits)} [{number(low, decimals=digits)}, {number(high, decimals=digits)}]"


def is_same(before: float, after: float) -> bool:
    """Whether two returns differ only by rounding."""
    return abs(after - before) <= max(SAME * max(abs(before), abs(after)), NOTHING)


def counted(n: int, what: str) -> str:
    """Count with its noun: 1 state, 2 states."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def risk(share: float) -> str:
    """Risk level in percent, as given: 10 %, 2.5 %."""
    return number(100.0 * share, trim=True) + " %"


def chance(share: float, draws: int) -> str:
    """Probability estimated from ``draws`` draws, with three decimals; "over …" if the event held in all of them.

    With 0 draws it is an approximation and never shown as certainty.
    """
    words = probability(share, draws)
    return words if words.startswith(("over", "–")) else f"{share:.3f}"


def about(p: float) -> str:
    """Estimated probability: rounded down, and never shown as certainty."""
    if p > 0.999:
        return "over 99.9 %"
    return f"about {math.floor(100.0 * p + 1e-9)} %" if p >= 0.01 else "under 1 %"


def at_least(p: float) -> str:
    """Lower bound on a probability: rounded down, and never shown as certainty; a bound of 0 says that the data can't tell."""
    if p <= 0.0:
        return DOUBTED
    parts = 10.0 if p > 0.99 or p < 0.01 else 1.0
    return f"at least {min(math.floor(100.0 * p * parts + 1e-9) / parts, 99.9):g} %"


def percent(share: float) -> str:
    """Share in percent; a solver's rounding errors around 0 are shown as 0."""
    value = 100.0 * share
    if abs(share) <= SAME or value >= 99.95:
        return f"{value:.0f} %"
    return "< 0.1 %" if value < 0.1 else f"{value:.1f} %"
