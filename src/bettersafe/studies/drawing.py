"""Parts shared by the figures of all studies: style, titles and notes, lines with error bars, the δ line.

Matplotlib is an optional dependency and imported only when needed. Figures are objects, without pyplot's global state, and
the same rows give the same file.
"""

from __future__ import annotations

import io
import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe.errors import RunError
from bettersafe.studies.styles import STYLES, plain_name
from bettersafe.studies.tables import in_order, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bettersafe.typing import Row

DPI = 200
LOOK: Any = {
    "font.family": "DejaVu Sans",  # comes with Matplotlib, so it is the same on every machine
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
    "svg.hashsalt": "bettersafe",  # reproducible ids in SVG files
}

NO_MATPLOTLIB = "figures need Matplotlib, which is not installed. Install it with: pip install 'bettersafe[plots]'."


def has_matplotlib() -> bool:
    """Whether Matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def matplotlib_look() -> Iterator[None]:
    """Apply the Matplotlib settings within a context."""
    try:
        from matplotlib import rc_context
    except ImportError:
        raise RunError(NO_MATPLOTLIB) from None
    with rc_context(LOOK):
        yield


def settled(figures: dict[str, Figure]) -> dict[str, Figure]:
    """Compute the layout of each figure once, for both file formats."""
    for figure in figures.values():
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return figures


def rendered(figure: Figure, kind: str) -> bytes:
    """The bytes of an image file, without date and software version."""
    sink = io.BytesIO()
    with matplotlib_look():
        figure.savefig(sink, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return sink.getvalue()


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Title, subtitle and notes of a figure, and the size of its panels in inches."""

    title: str
    subtitle: str
    notes: Sequence[str]
    width: float
    height: float


def framed(frame: Frame, *, head: float, foot: float) -> Figure:
    """Figure with title, subtitle and notes; ``head`` and ``foot`` are the inches above and below the panels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height = frame.height + head + foot
    figure = Figure(figsize=(frame.width, height), layout="constrained")
    FigureCanvasAgg(figure)
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0.01, foot / height, 0.98, 1.0 - (head + foot) / height), w_pad=0.06, h_pad=0.06)
    left = 0.15 / frame.width
    figure.text(left, 1.0 - 0.1 / height, frame.title, fontsize=12, fontweight="bold", va="top")
    figure.text(left, 1.0 - 0.37 / height, frame.subtitle, fontsize=9, color="#505050", va="top")
    figure.text(left, 0.08 / height, "\n".join(frame.notes), fontsize=8, color="#505050", va="bottom", linespacing=1.4)
    return figure


def add_legend(figure: Figure, handles: Sequence[Any], *, columns: int, at: float, **look: Any) -> None:
    """Add a legend below the panels, its upper edge ``at`` inches above the figure's lower edge; ``look`` goes to Matplotlib."""
    legend = figure.legend(
        handles=list(handles), loc="upper center", bbox_to_anchor=(0.5, at / figure.get_figheight()), ncols=columns,
        frameon=False, fontsize=9, columnspacing=2.0, borderpad=0.0, borderaxespad=0.0, **look,
    )  # fmt: skip
    legend.set_in_layout(False)


def figure_of_methods(
    frame: Frame, methods: Sequence[str], *, with_lines: bool = True, extra: Sequence[Any] = ()
) -> Figure:
    """Figure with a legend of methods, and below it a legend of ``extra`` handles."""
    from matplotlib.lines import Line2D

    families = _by_family(methods)
    rows = max(map(len, families))
    handles = []
    for family in families:  # one column of the legend per family
        for method in family:
            style = STYLES[method]
            handles.append(
                Line2D([], [], color=style.colour, marker=style.marker, markersize=6 * style.scale, linewidth=1.5,
                       linestyle=style.line if with_lines else "none", label=plain_name(method))
            )  # fmt: skip
        handles += [Line2D([], [], color="none", label=" ")] * (rows - len(family))
    row, note = 0.19, 0.158  # heights in inches of a row of the legend and a line of the notes
    foot = 0.12 + row * rows + (row + 0.05) * bool(extra) + 0.14 + note * len(frame.notes) + 0.05
    figure = framed(frame, head=0.62, foot=foot)
    length = 2.8 if with_lines else 1.2
    add_legend(figure, handles, columns=len(families), at=foot - 0.12, handlelength=length)
    if extra:
        add_legend(figure, extra, columns=len(extra), at=foot - 0.17 - row * rows, handlelength=length)
    return figure


def draw_lines(
    axes: Axes,
    records: Sequence[Row],
    methods: Sequence[str],
    name: str,
    *,
    sizes: Sequence[int],
    size: float = 5.5,
) -> None:
    """Draw a line per method against |D|, with ticks at ``sizes`` and at the data; lines are shifted so that bars do not overlap."""
    for n, method in enumerate(methods):
        found = sorted((r for r in records if words(r) == method), key=lambda r: r["episodes"])
        if not found:
            continue
        style = STYLES[method]
        aside = 1.0 + 0.16 * ((n + 0.5) / len(methods) - 0.5)
        axes.errorbar(
            [aside * r["episodes"] for r in found], [r[name] for r in found],
            yerr=np.concatenate([bar(r[f"{name}_se"]) for r in found], axis=1),
            color=style.colour, marker=style.marker, linestyle=style.line, markersize=size * style.scale, linewidth=1.4,
            elinewidth=1.0, capsize=2.0, markeredgecolor="white", markeredgewidth=0.5,
        )  # fmt: skip
    ticks = sorted({*sizes, *(record["episodes"] for record in records)})
    axes.set_xscale("log")
    axes.set_xlim(ticks[0] / 1.35, ticks[-1] * 1.35)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    if name == "improvement":
        axes.axhline(0.0, color="#707070", linewidth=0.8, zorder=1)


def cut_below(axes: Axes, records: Sequence[Row]) -> None:
    """Cut the scale if one method's losses would flatten all other lines, and annotate its lowest value."""
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


def delta_line(axes: Axes, rows: pa.Table, top: float | None = None, *, label: str | None = None) -> None:
    """Draw the allowed failure rate δ; the default label is its value."""
    delta = rows["delta"][0].as_py()
    limit = top if top is not None else axes.get_ylim()[1]
    axes.set_ylim(-0.03 * limit, max(limit, 1.25 * delta if delta < 0.8 else 1.05))
    axes.axhline(delta, color="black", linestyle=":", linewidth=1.3, zorder=2)
    axes.annotate(
        f"δ = {delta:g}" if label is None else label, (1.0, delta), xycoords=("axes fraction", "data"), xytext=(2, 0),
        textcoords="offset points", ha="left", va="center", fontsize=8,
    )  # fmt: skip


def rate_limit(records: Sequence[Row], rows: pa.Table) -> float:
    """Upper limit shared by all failure panels of a figure."""
    highest: float = max(record["failure"] + _known(record["failure_se"]) for record in records)
    delta: float = rows["delta"][0].as_py()
    return max(1.06 * highest, 1.4 * min(delta, 0.75))


def subtitle(records: Sequence[Row], what: str, note: str) -> str:
    """Subtitle with the number of CMDPs, the content, and a note."""
    cmdps = max(record["cmdps"] for record in records)
    return f"{cmdps} {'CMDP' if cmdps == 1 else 'CMDPs'}; {what}{also(note)}"


def also(note: str) -> str:
    """Format a note for the end of a subtitle; empty without a note."""
    return f" · {note}" if note else ""


def bars_note(records: Sequence[Row]) -> str:
    """Note that explains the error bars."""
    if max(record["cmdps"] for record in records) == 1:
        return "No bars: a standard error needs at least two CMDPs."
    return "Bars: ± 1 standard error, clustered by CMDP."


def methods_of(records: Sequence[Row]) -> list[str]:
    """Methods of the records that have a style, in the order of legends."""
    return [method for method in in_order(map(words, records)) if method in STYLES]


def _by_family(methods: Sequence[str]) -> list[list[str]]:
    """Group methods by name; methods without a parameter form one group."""
    families: dict[str, list[str]] = {}
    for method in methods:
        name, _, parameter = method.partition(" ")
        families.setdefault(name if parameter else "", []).append(method)
    return list(families.values())


def combinations(rows: pa.Table) -> int:
    """Number of combinations of preference and quality."""
    return int(rows.select(["preference", "quality"]).group_by(["preference", "quality"]).aggregate([]).num_rows)


def delta_text(rows: pa.Table) -> str:
    """δ as text for a title."""
    return f"δ = {rows['delta'][0].as_py():g}"


def scaled(values: Sequence[float], baseline: float) -> tuple[list[float], float]:
    """Scale the values and the baseline's value to [0, 1]."""
    low, high = min(*values, baseline), max(*values, baseline)
    span = high - low or 1.0
    return [(value - low) / span for value in values], (baseline - low) / span


def _known(error: float) -> float:
    return 0.0 if math.isnan(error) else error


def bar(error: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Both arms of an error bar, shape [2, 1]; of length 0 if the error is NaN."""
    return np.full((2, 1), _known(error))
