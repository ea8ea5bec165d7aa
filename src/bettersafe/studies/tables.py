"""Pieces that the tables of several studies share: Markdown, values with their errors, methods in order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bettersafe.studies.styles import STYLES, plain_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Record = dict[str, Any]

SE_NOTE = "± is one standard error, clustered by CMDP"
NONE = "–"


def words(record: Record) -> str:
    """A method as the study writes it: ``s-opt 0.1``."""
    return f"{record['method']} {record['parameter']}".strip()


def in_order(methods: Iterable[str]) -> list[str]:
    """Methods in the order of legends; those without a style come last, as they came."""
    known = list(STYLES)
    return sorted(dict.fromkeys(methods), key=lambda name: known.index(name) if name in STYLES else len(known))


def by_size(
    records: dict[tuple[str, int | None], Record], sizes: Sequence[int], what: str, cell: Callable[[Record], str]
) -> list[str]:
    """A line for each method, a column for each size and one for all of them."""
    columns: list[int | None] = [*sizes, None]
    body = [
        [plain_name(method), *(cell(records[method, size]) if (method, size) in records else NONE for size in columns)]
        for method in in_order(name for name, _ in records)
    ]
    return [markdown([what, *(f"\\|D\\| = {size}" for size in sizes), "all \\|D\\|"], body)]


def with_interval(record: Record) -> str:
    """A rate of failure, its interval and the number that it is of."""
    return f"{record['failure']:.3f} [{record['failure_low']:.3f}, {record['failure_high']:.3f}] ({record['failure_n']:.0f})"


def with_se(value: float, error: float, digits: int, *, sign: str = "") -> str:
    """A value ± its standard error; with the plus sign too if asked."""
    if sign and round(value, digits) == 0:  # of a change, with its sign: none has none
        if round(error, digits) == 0:
            return "0"
        value, sign = 0.0, ""
    text = f"{value:{sign}.{digits}f}".replace("-", "−")
    return text if math.isnan(error) else f"{text} ± {error:.{digits}f}"


def markdown(head: Sequence[str], body: Sequence[Sequence[str]], *, words: int = 1) -> str:
    """A table; its first columns, so many as there are ``words``, are text, the others numbers."""
    rule = [":---"] * words + ["---:"] * (len(head) - words)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))
