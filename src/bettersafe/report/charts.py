"""Charts as SVG text: pure functions of numbers and labels, sized for a phone.

Colours and fonts are classes of the page's style sheet, so that one chart serves light, dark and print. Text from users' files
is escaped in `_tag`, the only function that writes markup.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from bettersafe.text.names import shorten
from bettersafe.text.numbers import number, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH = 360.0
"""Width of every chart in its own units: that of a phone, so that text has its normal size there and is larger elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One line of a gain chart; gains are positive if the policy is better.

    Attributes:
        label: Kind of evidence.
        estimate: Estimate of the gain.
        low: Lower bound; NaN for none.
        high: Upper bound; inf for a one-sided bound, NaN for no interval.
        kind: "model", "tested" or "posterior".
    """

    label: str
    estimate: float
    low: float
    high: float
    kind: str


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of a trade-off chart: gains on two objectives, with lower and upper bounds (NaN for none)."""

    label: str
    x: float
    y: float
    kind: str  # "policy", "passed", "open" or "failed"
    x_low: float = math.nan
    x_high: float = math.nan
    y_low: float = math.nan
    y_high: float = math.nan


def gain_chart(marks: Sequence[Mark], *, describe: str, lower_is_better: bool, zeta: float = 0.0) -> Markup:
    """Estimates and intervals of one objective's gain, one line each, beside the baseline at 0 and the accepted loss."""
    left, right, top, row = 112.0, 14.0, 20.0, 26.0
    height = top + row * len(marks) + 34.0
    values = [0.0, -zeta]
    for mark in marks:
        values += [v for v in (mark.estimate, mark.low, mark.high) if math.isfinite(v)]
    low, high = _padded(values)
    x = _scale(low, high, left, WIDTH - right)
    bottom = top + row * len(marks)
    parts = [
        _tag("rect", x=x(0.0), y=top, width=WIDTH - right - x(0.0), height=bottom - top, class_="safe"),
        *_ticks_below(low, high, x, bottom, lower_is_better),
        _line(x(0.0), top - 4, x(0.0), bottom, "zero"),
        _text(x(0.0), top - 8, "baseline", "middle", "note"),
    ]
    if zeta > 0.0:
        parts.append(_line(x(-zeta), top, x(-zeta), bottom, "loss"))
    for i, mark in enumerate(marks):
        y = top + row * (i + 0.5)
        parts.append(_text(0.0, y + 3.5, shorten(mark.label, 20), "start", "label"))
        if math.isfinite(mark.low):
            if math.isfinite(mark.high):
                parts.append(_line(x(mark.low), y, x(mark.high), y, f"bar {mark.kind}"))
                parts.append(_line(x(mark.high), y - 5, x(mark.high), y + 5, f"edge {mark.kind}"))
            else:
                parts.append(_line(x(mark.low), y, x(mark.estimate), y, f"bar {mark.kind}"))
                if mark.high == math.inf:
                    parts.append(_line(x(mark.estimate), y, WIDTH - right, y, f"open {mark.kind}"))
            parts.append(_line(x(mark.low), y - 5, x(mark.low), y + 5, f"edge {mark.kind}"))
        if math.isfinite(mark.estimate):
            parts.append(_tag("circle", cx=x(mark.estimate), cy=y, r=4.5, class_=f"dot {mark.kind}"))
    parts += [
        _text(left, height - 4, "← worse", "start", "note"),
        _text(WIDTH - right, height - 4, "better →", "end", "note"),
    ]
    return _drawing(parts, height, describe)


def trade_off_chart(
    points: Sequence[Point], *, names: tuple[str, str], costs: tuple[bool, bool], describe: str, caption: str = "policy"
) -> Markup:
    """Gains on two objectives against each other; the quadrant without losses is shaded.

    ``caption`` labels the point of kind "policy".
    """
    left, right, top, height = 52.0, 14.0, 24.0, 340.0
    bottom = height - 58.0
    points = [point for point in points if math.isfinite(point.x) and math.isfinite(point.y)]
    xs = [0.0, *(v for p in points for v in (p.x, p.x_low, p.x_high) if math.isfinite(v))]
    ys = [0.0, *(v for p in points for v in (p.y, p.y_low, p.y_high) if math.isfinite(v))]
    (x_min, x_max), (y_min, y_max) = _padded(xs), _padded(ys)
    x, y = _scale(x_min, x_max, left, WIDTH - right), _scale(y_min, y_max, bottom, top)
    parts = [
        _tag("rect", x=x(0.0), y=top, width=WIDTH - right - x(0.0), height=y(0.0) - top, class_="safe"),
        *_ticks_below(x_min, x_max, x, bottom, costs[0]),
        *_ticks_left(y_min, y_max, y, left, WIDTH - right, costs[1]),
        _line(x(0.0), top, x(0.0), bottom, "zero"),
        _line(left, y(0.0), WIDTH - right, y(0.0), "zero"),
        _text((left + WIDTH - right) / 2, height - 24, f"Change in {shorten(names[0], 32)}", "middle", "label"),
        _text(WIDTH - right, height - 8, "better →", "end", "note"),
        _text(2, 10, f"↑ better: change in {shorten(names[1], 32)}", "start", "label"),
    ]
    if WIDTH - right - x(0.0) > 110.0 and y(0.0) - top > 30.0:
        parts.append(_text(WIDTH - right - 5, y(0.0) - 6, "no worse on either", "end", "note"))
    order = {"failed": 0, "open": 1, "passed": 2, "policy": 3}
    for point in sorted(points, key=lambda point: order[point.kind]):
        px, py = x(point.x), y(point.y)
        shapes = []
        if math.isfinite(point.x_low):
            end = x(point.x_high) if math.isfinite(point.x_high) else px
            shapes.append(_line(x(point.x_low), py, end, py, f"bar {point.kind}"))
        if math.isfinite(point.y_low):
            end = y(point.y_high) if math.isfinite(point.y_high) else py
            shapes.append(_line(px, y(point.y_low), px, end, f"bar {point.kind}"))
        shapes.append(_shape(px, py, point.kind))
        shapes.append(_tag("title", point.label))
        parts.append(_tag("g", *shapes))
    parts.append(_tag("circle", cx=x(0.0), cy=y(0.0), r=5, class_="dot base"))
    parts.append(_caption("baseline", x(0.0), y(0.0), left, WIDTH - right, below=True))
    policy = next((point for point in points if point.kind == "policy"), None)
    if policy is not None:
        parts.append(_caption(caption, x(policy.x), y(policy.y), left, WIDTH - right, below=False))
    return _drawing(parts, height, describe)


def bars_chart(rows: Sequence[tuple[str, float, float]], *, describe: str) -> Markup:
    """Two bars per row, baseline above policy; values are shares in [0, 1]."""
    left, right, row = 112.0, 52.0, 36.0
    height = row * len(rows) + 4.0
    most = max((max(one, other) for _, one, other in rows), default=0.0) or 1.0
    x = _scale(0.0, most, left, WIDTH - right)
    parts = []
    for i, (label, baseline, policy) in enumerate(rows):
        y = row * i + 4.0
        parts.append(_text(0.0, y + 17.0, shorten(label, 16), "start", "label"))
        for offset, value, kind in ((0.0, baseline, "base"), (14.0, policy, "policy")):
            parts.append(_tag("rect", x=left, y=y + offset, width=max(x(value) - left, 0.8), height=11, class_=kind))
            parts.append(_text(max(x(value), left) + 5, y + offset + 9.5, percent(value), "start", "value"))
    return _drawing(parts, height, describe)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """About ``most`` round numbers in [low, high], including 0 if it is in the range."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * power >= raw * (1.0 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    width = high - low
    if width <= 1e-12 * max(abs(low), abs(high), 1e-300):
        width = max(abs(high), 1.0)
    return low - 0.12 * width, high + 0.14 * width


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (end - start) * (value - low) / (high - low)


def _ticks_below(low: float, high: float, x: Callable[[float], float], y: float, cost: bool) -> list[Markup]:
    parts = [_line(x(low), y, x(high), y, "axis")]
    for value in ticks(low, high, 4):
        parts.append(_line(x(value), y, x(value), y + 4, "axis"))
        parts.append(_text(x(value), y + 15, change(value, cost), "middle", "tick"))
    return parts


def _ticks_left(
    low: float, high: float, y: Callable[[float], float], left: float, right: float, cost: bool
) -> list[Markup]:
    parts = [_line(left, y(low), left, y(high), "axis")]
    for value in ticks(low, high, 5):
        parts.append(_line(left, y(value), right, y(value), "grid"))
        parts.append(_text(left - 5, y(value) + 3.5, change(value, cost), "end", "tick"))
    return parts


def change(gain: float, cost: bool) -> str:
    """A gain as a signed change in the user's own sign: a gain on a cost is a fall."""
    value = -gain if cost else gain
    return "0" if abs(gain) < 1e-15 else number(value, signed=True, trim=True)


def _shape(x: float, y: float, kind: str) -> Markup:
    if kind == "policy":
        d = f"M{x:.1f} {y - 7:.1f}L{x + 7:.1f} {y:.1f}L{x:.1f} {y + 7:.1f}L{x - 7:.1f} {y:.1f}Z"
        return _tag("path", d=d, class_="dot policy")
    if kind in ("passed", "open"):
        return _tag("circle", cx=x, cy=y, r=4, class_=f"dot {kind}")
    return _tag(
        "path",
        d=f"M{x - 3.5:.1f} {y - 3.5:.1f}l7 7m0 -7l-7 7",
        class_="cross",
    )


def _caption(text: str, x: float, y: float, left: float, right: float, *, below: bool) -> Markup:
    """A name beside a point, on the side with room."""
    near_right = x > right - 60
    near_left = x < left + 60
    anchor = "end" if near_right else "start" if near_left or not below else "end"
    return _text(x + (-9 if anchor == "end" else 9), y + (15 if below else -9), text, anchor, "name")


def _drawing(parts: Sequence[Markup], height: float, describe: str) -> Markup:
    return _tag("svg", *parts, viewBox=f"0 0 {WIDTH:.0f} {height:.0f}", role="img", aria_label=describe, class_="chart")


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return _tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def _text(x: float, y: float, text: str, anchor: str, kind: str) -> Markup:
    return _tag("text", text, x=x, y=y, text_anchor=anchor, class_=kind)


def _tag(name: str, *content: str, **attributes: str | float) -> Markup:
    """One element; everything except Markup is escaped. ``class_`` and ``aria_label`` become class and aria-label."""
    head = Markup("<") + Markup(name)
    for key, value in attributes.items():
        text = f"{value:.1f}" if isinstance(value, float) else str(value)
        head += Markup(' {}="{}"').format(Markup(key.rstrip("_").replace("_", "-")), text)
    if not content:
        return head + Markup("/>")
    return head + Markup(">") + Markup("").join(content) + Markup("</{}>").format(Markup(name))
