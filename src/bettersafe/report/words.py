"""Numbers and labels as the report writes them."""

from __future__ import annotations

import math
import re

from bettersafe.certificate.certificate import MOST_NAMED

LONGEST = 160
"""Characters of a label that are shown; some users have labels of thousands."""

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


def clean(text: object) -> str:
    """Text without what can't be shown, or would turn the text around it: control, half and direction characters."""
    return _UNPRINTABLE.sub("\ufffd", str(text))


def shorten(text: object, longest: int = LONGEST) -> str:
    """Clean text, cut with an ellipsis."""
    shown = clean(text)
    return shown if len(shown) <= longest else shown[: longest - 1].rstrip() + "…"


def number(value: float, *, signed: bool = False, trim: bool = False, decimals: int | None = None) -> str:
    """About four significant digits, a real minus sign; ``trim`` drops trailing zeros, ``decimals`` fixes how many."""
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


def precision(*values: float) -> int:
    """Decimals that give the largest of the values four significant digits."""
    size = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    if size == 0.0:
        return 0
    return min(max(3 - math.floor(math.log10(size)), 0), 7)


def listed(names: list[str], *, of: int | None = None) -> str:
    """a, b and c; of more than `MOST_NAMED` objectives only how many, and whether they are all ``of`` them."""
    if of is not None and len(names) > MOST_NAMED:
        return f"all {of} objectives" if len(names) == of else f"{len(names)} of {of} objectives"
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def counted(n: int, what: str) -> str:
    """1 state, 2 states."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def risk(share: float) -> str:
    """A risk that somebody chose, as it was chosen: 10 %, 2.5 %."""
    return number(100.0 * share, trim=True) + " %"


def chance(share: float, draws: int) -> str:
    """A probability counted in ``draws`` worlds: where it held in all of them, one more might have been otherwise.

    With no draws it is an approximate one, and never certainty.
    """
    if math.isnan(share):
        return "–"
    if draws == 0:
        return "over 99.9 %" if share > 0.999 else f"{100.0 * share:.1f} %"
    least = math.floor(1000.0 * draws / (draws + 1)) / 10.0
    return f"over {least:.1f} %" if share >= 1.0 else f"{100.0 * share:.1f} %"


def percent(share: float) -> str:
    """A share as people read it."""
    value = 100.0 * share
    if value == 0.0 or value >= 99.95:
        return f"{value:.0f} %"
    return "< 0.1 %" if value < 0.1 else f"{value:.1f} %"
