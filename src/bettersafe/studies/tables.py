"""Parts shared by the tables of several studies: Markdown, values with errors, the order of methods."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bettersafe.studies.styles import STYLES, plain_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bettersafe.typing import Row

SE_NOTE = "± is one standard error, clustered by CMDP"
NONE = "–"


def words(record: Row) -> str:
    """Method of a record as text: ``s-opt 0.1``."""
    return f"{record['method']} {record['parameter']}".strip()


def in_order(methods: Iterable[str]) -> list[str]:
    """Sort methods in the order of legends; methods without a style come last, in their original order."""
    known = list(STYLES)
    return sorted(dict.fromkeys(methods), key=lambda name: known.index(name) if name in STYLES else len(known))


def by_size(
    records: dict[tuple[str, int | None], Row], sizes: Sequence[int], what: str, cell: Callable[[Row], str]
) -> list[str]:
    """Table with a row per method, a column per size, and a column for all sizes."""
    columns: list[int | None] = [*sizes, None]
    body = [
        [plain_name(method), *(cell(records[method, size]) if (method, size) in records else NONE for size in columns)]
        for method in in_order(name for name, _ in records)
    ]
    return [markdown([what, *(f"\\|D\\| = {size}" for size in sizes), "all \\|D\\|"], body)]


def with_interval(record: Row) -> str:
    """Failure rate with its interval and the effective number of experiments."""
    return f"{record['failure']:.3f} [{record['failure_low']:.3f}, {record['failure_high']:.3f}] ({record['failure_n']:.0f})"


def with_se(value: float, error: float, digits: int, *, sign: str = "") -> str:
    """Value ± standard error; ``sign="+"`` shows the sign of positive values."""
    if sign and round(value, digits) == 0:  # a change of zero has no sign
        if round(error, digits) == 0:
            return "0"
        value, sign = 0.0, ""
    text = f"{value:{sign}.{digits}f}".replace("-", "−")
    return text if math.isnan(error) else f"{text} ± {error:.{digits}f}"


def markdown(head: Sequence[str], body: Sequence[Sequence[str]], *, words: int = 1) -> str:
    """Markdown table; the first ``words`` columns are text, the others numbers."""
    rule = [":---"] * words + ["---:"] * (len(head) - words)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))
