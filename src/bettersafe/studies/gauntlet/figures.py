"""Figures of the gauntlet, from its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe.studies.drawing import (
    Frame,
    also,
    delta_text,
    figure_of_methods,
    matplotlib_look,
    methods_of,
    settled,
)
from bettersafe.studies.gauntlet.kinds import KINDS
from bettersafe.studies.gauntlet.summary import summarise_cells
from bettersafe.studies.gauntlet.tables import HALVES
from bettersafe.studies.styles import STYLES
from bettersafe.studies.summary import METHOD
from bettersafe.studies.tables import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bettersafe.typing import Row

ROW = 0.52
"""Inches of a kind."""


def draw_gauntlet(rows: pa.Table, *, note: str = "") -> dict[str, Figure]:
    """A figure for each half that there is, by name; ``note`` are words for the subtitle."""
    records = summarise_cells(rows, ("half", "unlearnable", "kind", *METHOD))
    with matplotlib_look():
        return settled(
            {
                f"gauntlet-{half}": _draw_half([r for r in records if r["half"] == half], rows, title, note)
                for half, title in HALVES.items()
                if any(r["half"] == half for r in records)
            }
        )


def _draw_half(records: Sequence[Row], rows: pa.Table, title: str, note: str) -> Figure:
    """Failure rate and share of the best possible, a line for each kind; those that the log can't tell about come last."""
    kinds = list(dict.fromkeys(r["kind"] for r in sorted(records, key=lambda r: bool(r["unlearnable"]))))
    methods = methods_of(records)
    logs = max(record["logs"] for record in records)
    figure = figure_of_methods(
        Frame(
            title=f"{title}: failures, and share of the best possible safe gain, {delta_text(rows)}",
            subtitle=f"up to {logs} logs of each kind, all sizes together{also(note)}",
            notes=(
                "Bars: 95 % intervals of Clopper and Pearson. A failure counts as a share of 0. *: the log can't show the harm.",
                "No share is drawn where the best possible is not known.",
            ),
            width=11.0,
            height=1.0 + ROW * len(kinds),
        ),
        methods,
        with_lines=False,
    )
    rate, share = figure.subplots(1, 2, sharey=True)
    for n, method in enumerate(methods):
        found = [r for r in records if words(r) == method]
        aside = 0.8 * ((n + 0.5) / len(methods) - 0.5)
        y = np.array([kinds.index(r["kind"]) for r in found]) + aside
        bars = np.array([[r["failure"] - r["failure_low"], r["failure_high"] - r["failure"]] for r in found]).T
        _draw_points(rate, method, np.array([r["failure"] for r in found]), y, np.maximum(bars, 0.0))
        _draw_points(share, method, np.array([r["kept"] for r in found]), y, None)
    delta = rows["delta"][0].as_py()
    rate.axvline(delta, color="black", linestyle=":", linewidth=1.3, zorder=2)
    rate.set_xlim(-0.02, 1.02)
    rate.set_xlabel(f"Failure rate; dotted: δ = {delta:g}")
    share.axvline(0.0, color="#707070", linewidth=0.8, zorder=1)
    share.set_xlim(right=1.02)
    share.set_xlabel("Share of the best possible safe gain")
    hidden = {r["kind"] for r in records if r["unlearnable"]}
    rate.set_yticks(range(len(kinds)), [KINDS[kind].title + " *" * (kind in hidden) for kind in kinds])
    rate.set_ylim(len(kinds) - 0.5, -0.5)
    for axes in (rate, share):
        axes.grid(visible=False, axis="y")
        for line in range(1, len(kinds)):
            axes.axhline(line - 0.5, color="#E6E6E6", linewidth=0.7, zorder=0)
    return figure


def _draw_points(axes: Axes, method: str, x: Any, y: Any, bars: Any) -> None:
    """A point per kind, with its bar if there is one."""
    style = STYLES[method]
    axes.errorbar(
        x, y, xerr=bars, linestyle="none", color=style.colour, marker=style.marker, markersize=4.0 * style.scale, elinewidth=0.8,
        markeredgecolor="white", markeredgewidth=0.4,
    )  # fmt: skip
