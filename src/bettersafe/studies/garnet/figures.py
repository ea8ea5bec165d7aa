"""Figure of the random-world study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bettersafe.studies.drawing import (
    Frame,
    bars_note,
    delta_line,
    delta_text,
    draw_lines,
    figure_of_methods,
    matplotlib_look,
    methods_of,
    rate_limit,
    settled,
    subtitle,
)
from bettersafe.studies.garnet.plan import FAMILIES, SIZES
from bettersafe.studies.summary import METHOD, summarise

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure


def draw_garnet(rows: pa.Table, *, note: str = "") -> dict[str, Figure]:
    """All figures of the study by name; ``note`` is added to the subtitle."""
    with matplotlib_look():
        return settled({"garnet": _draw_families(rows, note)})


def _draw_families(rows: pa.Table, note: str) -> Figure:
    """Improvement and failure rate against the size of the log, one row per family."""
    records = summarise(rows, (*METHOD, "episodes", "family")).to_pylist()
    methods = methods_of(records)
    figure = figure_of_methods(
        Frame(
            title=f"Random worlds: improvement over the baseline, and failures, {delta_text(rows)}",
            subtitle=subtitle(records, "30 states, 4 actions, λ = (1, 0)", note).replace("CMDP", "world"),
            notes=(
                bars_note(records).replace("CMDP", "world"),
                "Failure: worse than the baseline on some objective. |D|: episodes in the log.",
            ),
            width=10.0,
            height=11.0,
        ),
        methods,
    )
    panels = figure.subplots(len(FAMILIES), 2, sharex=True)
    top = rate_limit(records, rows)
    for (gain, rate), (name, family) in zip(panels, FAMILIES.items(), strict=True):
        here = [record for record in records if record["family"] == name]
        draw_lines(gain, here, methods, "improvement", sizes=SIZES)
        draw_lines(rate, here, methods, "failure", sizes=SIZES)
        gain.set_title(family.title[0].upper() + family.title[1:])
        gain.set_ylabel("Improvement, %")
        rate.set_ylabel("Failure rate")
        delta_line(rate, rows, top)
    for axes in panels[-1]:
        axes.set_xlabel("Episodes in the log, |D|")
    return figure
