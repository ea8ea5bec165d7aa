"""Figures of the gridworld study."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from bettersafe.errors import check_choice
from bettersafe.studies.drawing import (
    Frame,
    also,
    bar,
    bars_note,
    combinations,
    cut_below,
    delta_line,
    delta_text,
    draw_lines,
    figure_of_methods,
    matplotlib_look,
    methods_of,
    rate_limit,
    scaled,
    settled,
    subtitle,
)
from bettersafe.studies.gridworld.plan import PLANS, SIZES, VARIANTS, Plan
from bettersafe.studies.gridworld.summary import changes, tuned
from bettersafe.studies.gridworld.tables import FAILURE_NOTE, REPRODUCTION
from bettersafe.studies.styles import STYLES
from bettersafe.studies.summary import METHOD, summarise
from bettersafe.studies.tables import in_order, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

FAMILY = {"1,0": "goal only", "0,1": "pits only", "1,1": "goal and pits"}
GAIN = "Mean improvement over the baseline\n(discounted return, λ-weighted)"
RATE = "Failure rate\n(share of experiments)"
BEST = ("lagrangian 0.01", "s-opt 0.1", "h-opt published dr", "h-opt sequential dr")
"""Methods in panel (a) of the comparison with the Lagrangian."""


def draw_gridworld(rows: pa.Table, study_id: str, *, note: str = "") -> dict[str, Figure]:
    """All figures of a study by name.

    Args:
        rows: Rows of the study.
        study_id: Id of the study, such as ``gridworld/fixed``.
        note: Text added to the subtitles, such as that the sweep is unfinished.
    """
    check_choice("study_id", study_id, PLANS)
    plan = PLANS[study_id]
    if plan.drawn == "nothing":
        return {}
    own = {"lagrangian": _draw_lagrangian, "scaling": _draw_scaling, "conventions": _draw_conventions}
    with matplotlib_look():
        if plan.drawn in own:
            return settled({plan.drawn: own[plan.drawn](rows, note)})
        return settled(_draw_plan(rows, plan, note))


def _draw_plan(rows: pa.Table, plan: Plan, note: str) -> dict[str, Figure]:
    """Figures of means, of every cell, and, if the plan names methods for it, of true returns on one CMDP."""
    evaluated = rows
    if plan.tuned:
        evaluated = tuned(rows)
        note = " · ".join(filter(None, ("the CMDP tuned on is left out", note)))
    heading = f"{plan.heading}, {delta_text(rows)}"
    figures = {"mean": _draw_means(evaluated, heading, note), "grid": _draw_grid(evaluated, heading, note)}
    if plan.scattered:
        figures["objectives"] = _draw_objectives(evaluated, heading, plan.scattered, note)
    return figures


def _draw_means(rows: pa.Table, heading: str, note: str) -> Figure:
    """Improvement and failure rate against |D|, over all preferences and qualities."""
    records = summarise(rows).to_pylist()
    methods = methods_of(records)
    figure = figure_of_methods(
        Frame(
            title=f"{heading}: improvement over the baseline, and failures",
            subtitle=subtitle(records, f"mean over {combinations(rows)} combinations of λ and ρ", note),
            notes=(
                bars_note(records),
                FAILURE_NOTE,
                "|D|: episodes in the log. λ: preference over (goal, pits). ρ: quality of the baseline.",
            ),
            width=10.0,
            height=4.0,
        ),
        methods,
    )
    gain, rate = figure.subplots(1, 2)
    draw_lines(gain, records, methods, "improvement", sizes=SIZES)
    draw_lines(rate, records, methods, "failure", sizes=SIZES)
    gain.set_ylabel(GAIN)
    rate.set_ylabel(RATE)
    delta_line(rate, rows)
    for axes in (gain, rate):
        axes.set_xlabel("Episodes in the log, |D|")
    return figure


def _draw_grid(rows: pa.Table, heading: str, note: str) -> Figure:
    """Improvement and failure rate against |D| for each preference (rows) and quality (columns)."""
    records = summarise(rows, (*METHOD, "episodes", "preference", "quality")).to_pylist()
    methods = methods_of(records)
    preferences = list(dict.fromkeys(record["preference"] for record in records))
    qualities = sorted({record["quality"] for record in records})
    figure = figure_of_methods(
        Frame(
            title=f"{heading}: improvement and failures for each preference λ and quality ρ of the baseline",
            subtitle=subtitle(records, "upper panels: improvement, lower panels: failure rate", note),
            notes=(bars_note(records), FAILURE_NOTE, "The improvement's scale differs between cells."),
            width=12.5,
            height=4.0 * len(preferences),
        ),
        methods,
    )
    outer = figure.add_gridspec(len(preferences), len(qualities), hspace=0.12)
    top = rate_limit(records, rows)
    for i, preference in enumerate(preferences):
        for j, quality in enumerate(qualities):
            cell = outer[i, j].subgridspec(2, 1, height_ratios=(3, 2), hspace=0.02)
            gain = figure.add_subplot(cell[0])
            rate = figure.add_subplot(cell[1], sharex=gain)
            here = [r for r in records if r["preference"] == preference and r["quality"] == quality]
            draw_lines(gain, here, methods, "improvement", size=4.5, sizes=SIZES)
            draw_lines(rate, here, methods, "failure", size=4.5, sizes=SIZES)
            cut_below(gain, here)
            gain.set_title(f"λ = ({preference.replace(',', ', ')}), {FAMILY.get(preference, '')};  ρ = {quality:g}")
            gain.tick_params(labelbottom=False)
            delta_line(rate, rows, top, label="δ")
            if j == 0:
                gain.set_ylabel("Mean improvement\n(discounted return)")
                rate.set_ylabel("Failure rate")
            if i == len(preferences) - 1:
                rate.set_xlabel("Episodes in the log, |D|")
    return figure


def _draw_objectives(rows: pa.Table, heading: str, methods: Sequence[str], note: str) -> Figure:
    """Both true returns of every policy on one CMDP, scaled to [0, 1] in each cell."""
    from matplotlib.colors import to_rgb
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    number = pc.min(rows["cmdp"]).as_py()
    records = [r for r in rows.filter(pc.equal(rows["cmdp"], number)).to_pylist() if words(r) in methods]
    methods = [method for method in in_order(methods) if any(words(record) == method for record in records)]
    preferences = list(dict.fromkeys(record["preference"] for record in records))
    qualities = sorted({record["quality"] for record in records})
    sizes = sorted({*SIZES, *(record["episodes"] for record in records)})
    shades = {size: 0.25 + 0.75 * n / (len(sizes) - 1) for n, size in enumerate(sizes)}

    def shade(colour: str, size: int) -> tuple[float, float, float]:
        red, green, blue = (1.0 - shades[size] * (1.0 - part) for part in to_rgb(colour))
        return red, green, blue

    extra: list[Any] = [
        Line2D([], [], color="none", marker="s", markersize=8, markerfacecolor=shade("#303030", size),
               markeredgecolor="#707070", label=f"|D| = {size}")
        for size in sizes
    ]  # fmt: skip
    extra.append(Line2D([], [], color="#404040", linewidth=1.0, label="the baseline"))
    extra.append(Patch(color="#DCEDE3", label="safe: no worse than the baseline on either"))
    figure = figure_of_methods(
        Frame(
            title=f"{heading}: both true returns of every policy on one CMDP (number {number})",
            subtitle=f"1 CMDP; one point per method and log; darker: more episodes in the log{also(note)}",
            notes=(
                "Returns are scaled in each cell so that the lowest is 0 and the highest 1. " + FAILURE_NOTE,
                "Marks are of different sizes, so that the larger is seen around the smaller where policies are equal. λ: preference"
                " over (goal, pits). ρ: quality of the baseline.",
            ),
            width=12.5,
            height=2.9 * len(preferences),
        ),
        methods,
        with_lines=False,
        extra=extra,
    )
    panels = figure.subplots(len(preferences), len(qualities), squeeze=False, sharex=True, sharey=True)
    for i, preference in enumerate(preferences):
        for j, quality in enumerate(qualities):
            here = [r for r in records if r["preference"] == preference and r["quality"] == quality]
            axes = panels[i, j]
            axes.set_title(f"λ = ({preference.replace(',', ', ')}), {FAMILY.get(preference, '')};  ρ = {quality:g}")
            axes.set(xlim=(-0.07, 1.07), ylim=(-0.07, 1.2))
            axes.set_yticks([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
            if i == len(preferences) - 1:
                axes.set_xlabel("Cost of pits, scaled\n(less is better)")
            if j == 0:
                axes.set_ylabel("Return of the goal, scaled\n(more is better)")
            if not here:
                continue
            x, x_baseline = scaled([-r["pits"] for r in here], -here[0]["pits_baseline"])
            y, y_baseline = scaled([r["goal"] for r in here], here[0]["goal_baseline"])
            axes.fill_between([-0.07, x_baseline], y_baseline, 1.2, color="#DCEDE3", zorder=0, linewidth=0)
            axes.axvline(x_baseline, color="#404040", linewidth=1.0, zorder=1)
            axes.axhline(y_baseline, color="#404040", linewidth=1.0, zorder=1)
            if x_baseline > 0.1:  # room for the word
                axes.text(-0.05, 1.18, "safe", ha="left", va="top", fontsize=8, color="#2E6B49", style="italic")
            # the size falls with the place in the legend and later marks lie above, so that equal policies are seen as rings
            for n, record in sorted(enumerate(here), key=lambda pair: methods.index(words(pair[1]))):
                style = STYLES[words(record)]
                axes.plot(
                    x[n], y[n], style.marker, markersize=10.5 - 1.6 * methods.index(words(record)), color=shade(style.colour, record["episodes"]),
                    markeredgecolor=style.colour, markeredgewidth=0.8, zorder=3, clip_on=False,
                )  # fmt: skip
    return figure


def _draw_lagrangian(rows: pa.Table, note: str) -> Figure:
    """The Lagrangian compared with S-OPT and H-OPT: the paper's choice of parameters above, all parameters below."""
    records = summarise(rows).to_pylist()
    methods = methods_of(records)
    figure = figure_of_methods(
        Frame(
            title=f"The Lagrangian of Le et al. 2019 beside S-OPT and H-OPT, {delta_text(rows)}",
            subtitle=subtitle(records, f"mean over {combinations(rows)} combinations of λ and ρ", note),
            notes=(
                bars_note(records),
                FAILURE_NOTE,
                "The Lagrangian returns a mixture of policies; its return is the mean of theirs.",
            ),
            width=10.0,
            height=7.2,
        ),
        methods,
    )
    panels = figure.subplots(2, 2, sharey="col")
    some = [method for method in methods if method in BEST]
    for letter, (gain, rate), drawn, what in zip(
        "ab", panels, (some, methods), ("the paper's choice of parameters", "all parameters"), strict=True
    ):
        draw_lines(gain, records, drawn, "improvement", sizes=SIZES)
        draw_lines(rate, records, drawn, "failure", sizes=SIZES)
        gain.set_title(f"({letter}) {what}: improvement", loc="left")
        rate.set_title(f"({letter}) {what}: failures", loc="left")
        gain.set_ylabel(GAIN)
        rate.set_ylabel(RATE)
        delta_line(rate, rows, rate_limit(records, rows))
    for axes in panels[1]:
        axes.set_xlabel("Episodes in the log, |D|")
    return figure


def _draw_scaling(rows: pa.Table, note: str) -> Figure:
    """Improvement (above) and failure rate (below), one column per number of objectives."""
    records = summarise(rows, (*METHOD, "episodes", "kinds")).to_pylist()
    methods = methods_of(records)
    kinds = sorted({record["kinds"] for record in records})
    figure = figure_of_methods(
        Frame(
            title=f"Scaling with the number of objectives d, {delta_text(rows)}",
            subtitle=subtitle(
                records, f"mean over {combinations(rows)} qualities of the baseline; λ prefers the goal alone", note
            ),
            notes=(
                bars_note(records),
                FAILURE_NOTE,
                "d = 1 goal + (d − 1) kinds of pits; a policy fails when it is worse on any of the d.",
            ),
            width=12.5,
            height=6.0,
        ),
        methods,
    )
    panels = figure.subplots(2, len(kinds), squeeze=False, sharey="row")
    top = rate_limit(records, rows)
    for j, kind in enumerate(kinds):
        here = [record for record in records if record["kinds"] == kind]
        draw_lines(panels[0, j], here, methods, "improvement", sizes=SIZES)
        draw_lines(panels[1, j], here, methods, "failure", sizes=SIZES)
        panels[0, j].set_title(f"d = {1 + kind}")
        panels[1, j].set_xlabel("Episodes in the log, |D|")
        delta_line(panels[1, j], rows, top, label="δ")
    panels[0, 0].set_ylabel(GAIN)
    panels[1, 0].set_ylabel(RATE)
    return figure


def _draw_conventions(rows: pa.Table, note: str) -> Figure:
    """Effect of each convention as dots, one row per convention and one column per size."""
    records = summarise(changes(rows, reference=REPRODUCTION), ("variant", *METHOD, "episodes")).to_pylist()
    methods = methods_of(records)
    variants = [name for name in VARIANTS if any(record["variant"] == name for record in records)]
    figure = figure_of_methods(
        Frame(
            title=f"What each convention changes, one at a time, {delta_text(rows)}",
            subtitle=subtitle(
                records, "differences from the reproduction on the same CMDP, λ, ρ and seed of the log", note
            ),
            notes=(
                bars_note(records),
                FAILURE_NOTE,
                "Right of 0: the convention on the left gives more than the reproduction does.",
            ),
            width=12.5,
            height=9.6,
        ),
        methods,
        with_lines=False,
    )
    panels = figure.subplots(2, len(SIZES), sharey=True, sharex="row")
    names = {
        "improvement": "Change of the mean improvement\n(discounted return; log beyond ±10)",
        "failure": "Change of the failure rate\n(share of experiments)",
    }
    for (name, label), line in zip(names.items(), panels, strict=True):
        for axes, size in zip(line, SIZES, strict=True):
            axes.axvline(0.0, color="#404040", linewidth=1.0, zorder=1)
            for record in records:
                if record["episodes"] == size:
                    style = STYLES[words(record)]
                    dodge = 0.8 * ((methods.index(words(record)) + 0.5) / len(methods) - 0.5)
                    axes.errorbar(
                        record[name], variants.index(record["variant"]) + dodge, xerr=bar(record[f"{name}_se"]),
                        marker=style.marker, color=style.colour, markersize=4.5, linewidth=1.0, zorder=3,
                    )  # fmt: skip
            if name == "improvement":
                axes.set_xscale("symlog", linthresh=10.0)
                axes.minorticks_off()
                axes.set_xticks([-100, -10, 0, 10, 100], ["−100", "−10", "0", "10", "100"])
            axes.set_yticks(range(len(variants)), variants)
            axes.set_ylim(len(variants) - 0.5, -0.5)
            axes.grid(visible=False, axis="y")
            for border in range(1, len(variants)):
                axes.axhline(border - 0.5, color="#E0E0E0", linewidth=0.7, zorder=0)
            axes.set_xlabel(label)
            axes.set_title(f"|D| = {size}")
    return figure
