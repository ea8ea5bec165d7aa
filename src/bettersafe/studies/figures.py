"""Figures of the gridworld study, from its rows; nothing is computed here that `summary` doesn't.

Matplotlib is an extra and imported when it is needed. Figures are objects, without pyplot's global state, and the same
rows give the same bytes.
"""

from __future__ import annotations

import io
import math
import os
import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bettersafe.errors import ParameterError, RunError, check_choice
from bettersafe.studies.gridworld import PLANS, VARIANTS
from bettersafe.studies.published import SIZES
from bettersafe.studies.styles import STYLES, plain_name
from bettersafe.studies.summary import METHOD, changes, finished_cmdps, summarise, tuned
from bettersafe.studies.sweep import read_description, read_rows
from bettersafe.studies.tables import FAILURE_NOTE, REPRODUCTION, in_order, study_tables, summary_table, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Record = dict[str, Any]

DPI = 200
FAMILY = {"1,0": "goal only", "0,1": "pits only", "1,1": "goal and pits"}
GAIN = "Mean improvement over the baseline\n(discounted return, λ-weighted)"
RATE = "Failure rate\n(share of experiments)"
LOOK: Any = {  # by Matplotlib's names
    "font.family": "DejaVu Sans",  # comes with Matplotlib: the same on every machine
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "axes.edgecolor": "#707070",
    "xtick.color": "#404040",
    "ytick.color": "#404040",
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "svg.hashsalt": "bettersafe",  # the same rows, the same file
}
SCATTERED = {
    "gridworld/fixed": (
        "linearized", "adv-linearized", "s-opt 0.1", "h-opt published dr", "h-opt sequential dr",
    ),
    "gridworld/tuned": (
        "linearized", "adv-linearized", "s-opt tuned", "h-opt published tuned", "h-opt sequential tuned",
    ),
}  # fmt: skip
BEST = ("lagrangian 0.01", "s-opt 0.1", "h-opt published dr", "h-opt sequential dr")
"""Panel (a) of the comparison with the Lagrangian."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The words around a figure, and room for them in inches."""

    title: str
    subtitle: str
    notes: Sequence[str]
    methods: Sequence[str]
    width: float
    height: float


def draw_study(rows: pa.Table, study_id: str, *, note: str = "") -> dict[str, Figure]:
    """All figures of a study, by name.

    Args:
        rows: Of the study.
        study_id: Which one it is, such as ``gridworld/fixed``.
        note: Words for the subtitles, such as that the sweep is unfinished.
    """
    check_choice("study_id", study_id, tuple(PLANS))
    with _matplotlib():
        figures = _draw(rows, study_id, note)
        for figure in figures.values():
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # found once, for both formats
        return figures


def write_figures(folder: str | Path, out: str | Path | None = None) -> list[Path]:
    """Figures, tables and summary of the study in ``folder``, finished or not.

    Of an unfinished sweep, the CMDPs whose experiments are all done are used, and everything says so.

    Args:
        folder: Where the sweep is.
        out: Where to put them; ``folder/figures`` if left out.

    Returns:
        What was written: every figure as PNG and SVG, `table.md` and `summary.csv`.
    """
    from pyarrow import csv

    document = read_description(folder)
    if document["id"] not in PLANS:
        raise ParameterError(f"no figures are known for the study {document['id']!r}; those known: {', '.join(PLANS)}.")
    rows, total = finished_cmdps(read_rows(folder, partial=True), document["jobs"])
    done = pc.count_distinct(rows["cmdp"]).as_py()
    note = f"unfinished sweep: {done} of {total} CMDPs" if done < total else ""
    place = Path(folder) / "figures" if out is None else Path(out)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{place} can't be written: {error.strerror}. Choose another place.") from None
    written = []
    for name, figure in draw_study(rows, document["id"], note=note).items():
        for kind in ("png", "svg"):
            written.append(_write(place / f"{name}.{kind}", _rendered(figure, kind)))
    sentence = f"This is an {note}." if note else ""
    page = study_tables(rows, document["id"], note=sentence)
    written.append(_write(place / "table.md", page.encode()))
    sink = io.BytesIO()
    csv.write_csv(summary_table(rows, document["id"]), sink)
    written.append(_write(place / "summary.csv", sink.getvalue()))
    return written


# ---- the figures


def _draw(rows: pa.Table, study_id: str, note: str) -> dict[str, Figure]:
    if study_id == "gridworld/lagrangian":
        return {"lagrangian": _draw_lagrangian(rows, note)}
    if study_id == "gridworld/scaling":
        return {"scaling": _draw_scaling(rows, note)}
    if study_id == "gridworld/conventions":
        return {"conventions": _draw_conventions(rows, note)}
    delta = f"δ = {PLANS[study_id].delta:g}"
    heading = f"Fixed parameters, {delta}"
    judged = rows
    if study_id == "gridworld/tuned":
        judged = tuned(rows)
        heading = f"Parameters tuned on one CMDP, {delta}"
        note = " · ".join(filter(None, ("the CMDP tuned on is left out", note)))
    figures = {"mean": _draw_means(judged, heading, note), "grid": _draw_grid(judged, heading, note)}
    if study_id in SCATTERED:
        figures["objectives"] = _draw_objectives(judged, heading, SCATTERED[study_id], note)
    return figures


def _draw_means(rows: pa.Table, heading: str, note: str) -> Figure:
    """Improvement and failure against |D|, over all preferences and qualities."""
    records = summarise(rows).to_pylist()
    methods = _methods(records)
    figure = _new(
        Frame(
            title=f"{heading}: improvement over the baseline, and failures",
            subtitle=_subtitle(records, f"mean over {_combinations(rows)} combinations of λ and ρ", note),
            notes=(
                _bars(records),
                FAILURE_NOTE,
                "|D|: episodes in the log. λ: preference over (goal, pits). ρ: quality of the baseline.",
            ),
            methods=methods,
            width=10.0,
            height=4.0,
        )
    )
    gain, rate = figure.subplots(1, 2)
    _lines(gain, records, methods, "improvement")
    _lines(rate, records, methods, "failure")
    gain.set_ylabel(GAIN)
    rate.set_ylabel(RATE)
    _delta_line(rate, rows)
    for axes in (gain, rate):
        axes.set_xlabel("Episodes in the log, |D|")
    return figure


def _draw_grid(rows: pa.Table, heading: str, note: str) -> Figure:
    """The same for each preference (down) and quality (across)."""
    records = summarise(rows, (*METHOD, "episodes", "preference", "quality")).to_pylist()
    methods = _methods(records)
    preferences = list(dict.fromkeys(record["preference"] for record in records))
    qualities = sorted({record["quality"] for record in records})
    figure = _new(
        Frame(
            title=f"{heading}: improvement and failures for each preference λ and quality ρ of the baseline",
            subtitle=_subtitle(records, "upper panels: improvement, lower panels: failure rate", note),
            notes=(_bars(records), FAILURE_NOTE, "The improvement's scale differs between cells."),
            methods=methods,
            width=12.5,
            height=4.0 * len(preferences),
        )
    )
    outer = figure.add_gridspec(len(preferences), len(qualities), hspace=0.12)
    top = _rate_limit(records, rows)
    for i, preference in enumerate(preferences):
        for j, quality in enumerate(qualities):
            cell = outer[i, j].subgridspec(2, 1, height_ratios=(3, 2), hspace=0.02)
            gain = figure.add_subplot(cell[0])
            rate = figure.add_subplot(cell[1], sharex=gain)
            here = [r for r in records if r["preference"] == preference and r["quality"] == quality]
            _lines(gain, here, methods, "improvement", size=4.5)
            _lines(rate, here, methods, "failure", size=4.5)
            _cut_below(gain, here)
            gain.set_title(f"λ = ({preference.replace(',', ', ')}), {FAMILY.get(preference, '')};  ρ = {quality:g}")
            gain.tick_params(labelbottom=False)
            _delta_line(rate, rows, top, label="δ")
            if j == 0:
                gain.set_ylabel("Mean improvement\n(discounted return)")
                rate.set_ylabel("Failure rate")
            if i == len(preferences) - 1:
                rate.set_xlabel("Episodes in the log, |D|")
    return figure


def _draw_objectives(rows: pa.Table, heading: str, methods: Sequence[str], note: str) -> Figure:
    """Both true returns of every policy on one CMDP, each cell scaled to its own lowest and highest."""
    from matplotlib.colors import to_rgb
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    number = pc.min(rows["cmdp"]).as_py()
    records = [r for r in rows.filter(pc.equal(rows["cmdp"], number)).to_pylist() if words(r) in methods]
    methods = [method for method in in_order(methods) if any(words(record) == method for record in records)]
    preferences = list(dict.fromkeys(record["preference"] for record in records))
    qualities = sorted({record["quality"] for record in records})
    shades = {size: 0.25 + 0.75 * n / (len(SIZES) - 1) for n, size in enumerate(SIZES)}

    def shade(colour: str, size: int) -> tuple[float, float, float]:
        red, green, blue = (1.0 - shades[size] * (1.0 - part) for part in to_rgb(colour))
        return red, green, blue

    extra: list[Any] = [
        Line2D([], [], color="none", marker="s", markersize=8, markerfacecolor=shade("#303030", size),
               markeredgecolor="#707070", label=f"|D| = {size}")
        for size in SIZES
    ]  # fmt: skip
    extra.append(Line2D([], [], color="#404040", linewidth=1.0, label="the baseline"))
    extra.append(Patch(color="#DCEDE3", label="safe: no worse than the baseline on either"))
    figure = _new(
        Frame(
            title=f"{heading}: both true returns of every policy on one CMDP (number {number})",
            subtitle=f"1 CMDP; one point per method and log; darker: more episodes in the log{_also(note)}",
            notes=(
                "Returns are scaled in each cell so that the lowest is 0 and the highest 1. " + FAILURE_NOTE,
                "λ: preference over (goal, pits). ρ: quality of the baseline.",
            ),
            methods=methods,
            width=12.5,
            height=2.9 * len(preferences),
        ),
        lines=False,
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
            x, x_baseline = _scaled([-r["pits"] for r in here], -here[0]["pits_baseline"])
            y, y_baseline = _scaled([r["goal"] for r in here], here[0]["goal_baseline"])
            axes.fill_between([-0.07, x_baseline], y_baseline, 1.2, color="#DCEDE3", zorder=0, linewidth=0)
            axes.axvline(x_baseline, color="#404040", linewidth=1.0, zorder=1)
            axes.axhline(y_baseline, color="#404040", linewidth=1.0, zorder=1)
            if x_baseline > 0.1:  # room for the word
                axes.text(-0.05, 1.18, "safe", ha="left", va="top", fontsize=8, color="#2E6B49", style="italic")
            for n, record in enumerate(here):
                style = STYLES[words(record)]
                axes.plot(
                    x[n], y[n], style.marker, markersize=7, color=shade(style.colour, record["episodes"]),
                    markeredgecolor=style.colour, markeredgewidth=0.8, zorder=3, clip_on=False,
                )  # fmt: skip
    return figure


def _draw_lagrangian(rows: pa.Table, note: str) -> Figure:
    """The Lagrangian beside S-OPT and H-OPT: its best parameter above, all of them below."""
    records = summarise(rows).to_pylist()
    methods = _methods(records)
    figure = _new(
        Frame(
            title=f"The Lagrangian of Le et al. 2019 beside S-OPT and H-OPT, {_delta(rows)}",
            subtitle=_subtitle(records, f"mean over {_combinations(rows)} combinations of λ and ρ", note),
            notes=(
                _bars(records),
                FAILURE_NOTE,
                "The Lagrangian returns a mixture of policies; its return is the mean of theirs.",
            ),
            methods=methods,
            width=10.0,
            height=7.2,
        )
    )
    panels = figure.subplots(2, 2, sharey="col")
    some = [method for method in methods if method in BEST]
    for letter, (gain, rate), drawn, what in zip(
        "ab", panels, (some, methods), ("the best η", "all parameters"), strict=True
    ):
        _lines(gain, records, drawn, "improvement")
        _lines(rate, records, drawn, "failure")
        gain.set_title(f"({letter}) {what}: improvement", loc="left")
        rate.set_title(f"({letter}) {what}: failures", loc="left")
        gain.set_ylabel(GAIN)
        rate.set_ylabel(RATE)
        _delta_line(rate, rows, _rate_limit(records, rows))
    for axes in panels[1]:
        axes.set_xlabel("Episodes in the log, |D|")
    return figure


def _draw_scaling(rows: pa.Table, note: str) -> Figure:
    """Improvement above failure, a column for each number of objectives."""
    records = summarise(rows, (*METHOD, "episodes", "kinds")).to_pylist()
    methods = _methods(records)
    kinds = sorted({record["kinds"] for record in records})
    figure = _new(
        Frame(
            title=f"Scaling with the number of objectives d, {_delta(rows)}",
            subtitle=_subtitle(records, "mean over 4 qualities of the baseline; λ prefers the goal alone", note),
            notes=(
                _bars(records),
                FAILURE_NOTE,
                "d = 1 goal + (d − 1) kinds of pits; a policy fails when it is worse on any of the d.",
            ),
            methods=methods,
            width=12.5,
            height=6.0,
        )
    )
    panels = figure.subplots(2, len(kinds), squeeze=False, sharey="row")
    top = _rate_limit(records, rows)
    for j, kind in enumerate(kinds):
        here = [record for record in records if record["kinds"] == kind]
        _lines(panels[0, j], here, methods, "improvement")
        _lines(panels[1, j], here, methods, "failure")
        panels[0, j].set_title(f"d = {1 + kind}")
        panels[1, j].set_xlabel("Episodes in the log, |D|")
        _delta_line(panels[1, j], rows, top, label="δ")
    panels[0, 0].set_ylabel(GAIN)
    panels[1, 0].set_ylabel(RATE)
    return figure


def _draw_conventions(rows: pa.Table, note: str) -> Figure:
    """What each convention changes, as dots: a row for each, a column for each size."""
    records = summarise(changes(rows, reference=REPRODUCTION), ("variant", *METHOD, "episodes")).to_pylist()
    methods = _methods(records)
    variants = [name for name in VARIANTS if any(record["variant"] == name for record in records)]
    figure = _new(
        Frame(
            title=f"What each convention changes, one at a time, {_delta(rows)}",
            subtitle=_subtitle(
                records, "differences from the reproduction on the same CMDP, λ, ρ and seed of the log", note
            ),
            notes=(
                _bars(records),
                FAILURE_NOTE,
                "Right of 0: the convention on the left gives more than the reproduction does.",
            ),
            methods=methods,
            width=12.5,
            height=9.6,
        ),
        lines=False,
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
                        record[name], variants.index(record["variant"]) + dodge, xerr=_bar(record[f"{name}_se"]),
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


# ---- parts of a figure


def _new(frame: Frame, *, lines: bool = True, extra: Sequence[Any] = ()) -> Figure:
    """A figure with its words; panels go in the room between them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    families = _by_family(frame.methods)
    rows = max(map(len, families))
    handles = []
    for family in families:  # a column of the legend each
        for method in family:
            style = STYLES[method]
            handles.append(
                Line2D([], [], color=style.colour, marker=style.marker, markersize=6, linewidth=1.5,
                       linestyle=style.line if lines else "none", label=plain_name(method))
            )  # fmt: skip
        handles += [Line2D([], [], color="none", label=" ")] * (rows - len(family))
    head, row, note = 0.62, 0.19, 0.158  # inches: the title, a row of the legend, a line of the notes
    foot = 0.12 + row * (rows + bool(extra)) + 0.14 + note * len(frame.notes) + 0.05
    height = frame.height + head + foot
    figure = Figure(figsize=(frame.width, height), layout="constrained")
    FigureCanvasAgg(figure)
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0.01, foot / height, 0.98, 1.0 - (head + foot) / height), w_pad=0.06, h_pad=0.06)
    left = 0.15 / frame.width
    figure.text(left, 1.0 - 0.1 / height, frame.title, fontsize=12, fontweight="bold", va="top")
    figure.text(left, 1.0 - 0.37 / height, frame.subtitle, fontsize=9, color="#505050", va="top")
    figure.text(left, 0.08 / height, "\n".join(frame.notes), fontsize=8, color="#505050", va="bottom", linespacing=1.4)
    for group, columns, at in (
        (handles, len(families), foot - 0.12),
        (list(extra), len(extra), foot - 0.12 - row * rows),
    ):
        if group:
            legend = figure.legend(
                handles=group, loc="upper center", bbox_to_anchor=(0.5, at / height), ncols=columns, frameon=False,
                fontsize=9, columnspacing=2.0, handlelength=2.8 if lines else 1.2, borderpad=0.0, borderaxespad=0.0,
            )  # fmt: skip
            legend.set_in_layout(False)
    return figure


def _lines(axes: Axes, records: Sequence[Record], methods: Sequence[str], name: str, *, size: float = 5.5) -> None:
    """A line per method against |D|, each moved a little aside so that bars can be told apart."""
    for n, method in enumerate(methods):
        found = sorted((r for r in records if words(r) == method), key=lambda r: r["episodes"])
        if not found:
            continue
        style = STYLES[method]
        aside = 1.0 + 0.16 * ((n + 0.5) / len(methods) - 0.5)
        axes.errorbar(
            [aside * r["episodes"] for r in found], [r[name] for r in found],
            yerr=np.concatenate([_bar(r[f"{name}_se"]) for r in found], axis=1),
            color=style.colour, marker=style.marker, linestyle=style.line, markersize=size, linewidth=1.4,
            elinewidth=1.0, capsize=2.0, markeredgecolor="white", markeredgewidth=0.5,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(SIZES[0] / 1.35, SIZES[-1] * 1.35)
    axes.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
    axes.minorticks_off()
    if name == "improvement":
        axes.axhline(0.0, color="#707070", linewidth=0.8, zorder=1)


def _cut_below(axes: Axes, records: Sequence[Record]) -> None:
    """End the scale where one method's losses would flatten all others, and say how far they go."""
    low, high = axes.get_ylim()
    deepest = min(records, key=lambda record: record["improvement"], default=None)
    if deepest is not None and low < -0.4 * high:
        axes.set_ylim(-0.4 * high, high)
        if deepest["improvement"] < -0.4 * high:
            axes.annotate(
                f"↓ {plain_name(words(deepest))}, down to −{-deepest['improvement']:.1f}",
                (0.98, 0.02), xycoords="axes fraction", ha="right", va="bottom", fontsize=7.5, color="#505050",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0},
            )  # fmt: skip


def _delta_line(axes: Axes, rows: pa.Table, top: float | None = None, *, label: str | None = None) -> None:
    """The failures that were allowed; labelled with the value of δ unless told otherwise."""
    delta = rows["delta"][0].as_py()
    limit = top if top is not None else axes.get_ylim()[1]
    axes.set_ylim(-0.03 * limit, max(limit, 1.25 * delta if delta < 0.8 else 1.05))
    axes.axhline(delta, color="black", linestyle=":", linewidth=1.3, zorder=2)
    axes.annotate(
        f"δ = {delta:g}" if label is None else label, (1.0, delta), xycoords=("axes fraction", "data"), xytext=(2, 0),
        textcoords="offset points", ha="left", va="center", fontsize=8,
    )  # fmt: skip


def _rate_limit(records: Sequence[Record], rows: pa.Table) -> float:
    """One scale for all failure panels of a figure."""
    highest: float = max(record["failure"] + _known(record["failure_se"]) for record in records)
    delta: float = rows["delta"][0].as_py()
    return max(1.06 * highest, 1.4 * min(delta, 0.75))


def _subtitle(records: Sequence[Record], what: str, note: str) -> str:
    cmdps = max(record["cmdps"] for record in records)
    return f"{cmdps} {'CMDP' if cmdps == 1 else 'CMDPs'}; {what}{_also(note)}"


def _also(note: str) -> str:
    return f" · {note}" if note else ""


def _bars(records: Sequence[Record]) -> str:
    if max(record["cmdps"] for record in records) == 1:
        return "No bars: one CMDP says nothing of the error of its mean."
    return "Bars: ± 1 standard error, clustered by CMDP."


def _methods(records: Sequence[Record]) -> list[str]:
    return [method for method in in_order(map(words, records)) if method in STYLES]


def _by_family(methods: Sequence[str]) -> list[list[str]]:
    """Methods of one kind together; those without a parameter are one kind."""
    families: dict[str, list[str]] = {}
    for method in methods:
        name, _, parameter = method.partition(" ")
        families.setdefault(name if parameter else "", []).append(method)
    return list(families.values())


def _combinations(rows: pa.Table) -> int:
    return int(rows.select(["preference", "quality"]).group_by(["preference", "quality"]).aggregate([]).num_rows)


def _delta(rows: pa.Table) -> str:
    return f"δ = {rows['delta'][0].as_py():g}"


def _scaled(values: Sequence[float], baseline: float) -> tuple[list[float], float]:
    """Values and the baseline's with the lowest of all at 0 and the highest at 1."""
    low, high = min(*values, baseline), max(*values, baseline)
    span = high - low or 1.0
    return [(value - low) / span for value in values], (baseline - low) / span


def _known(error: float) -> float:
    return 0.0 if math.isnan(error) else error


def _bar(error: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Both arms of an error bar [2, 1]; none where the error is not known."""
    return np.full((2, 1), _known(error))


# ---- Matplotlib and files


@contextmanager
def _matplotlib() -> Iterator[None]:
    """Matplotlib with our settings, which are gone afterwards."""
    try:
        from matplotlib import rc_context
    except ImportError:
        raise RunError(
            "figures need Matplotlib, which is not installed. Install it with: pip install 'bettersafe[plots]'."
        ) from None
    with rc_context(LOOK):
        yield


def _rendered(figure: Figure, kind: str) -> bytes:
    """The bytes of a picture, without the date or the version of who made it."""
    sink = io.BytesIO()
    with _matplotlib():
        figure.savefig(sink, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return sink.getvalue()


def _write(target: Path, content: bytes) -> Path:
    """Write under another name, then rename: what has its name is whole."""
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, target)
    except OSError as error:
        raise RunError(f"can't write {target}: {error.strerror}. Choose another place.") from None
    finally:
        partial.unlink(missing_ok=True)
    return target
