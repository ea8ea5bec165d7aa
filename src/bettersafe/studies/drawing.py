"""Matplotlib as all figures of the studies use it, and files that are written whole."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bettersafe._system.files import whole_file
from bettersafe.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.figure import Figure

DPI = 200
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

NO_MATPLOTLIB = "figures need Matplotlib, which is not installed. Install it with: pip install 'bettersafe[plots]'."


def has_matplotlib() -> bool:
    """Whether figures can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def matplotlib_look() -> Iterator[None]:
    """Matplotlib with our settings, which are gone afterwards."""
    try:
        from matplotlib import rc_context
    except ImportError:
        raise RunError(NO_MATPLOTLIB) from None
    with rc_context(LOOK):
        yield


def settled(figures: dict[str, Figure]) -> dict[str, Figure]:
    """The figures with their layout found once, for both formats."""
    for figure in figures.values():
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return figures


def rendered(figure: Figure, kind: str) -> bytes:
    """The bytes of a picture, without the date or the version of who made it."""
    sink = io.BytesIO()
    with matplotlib_look():
        figure.savefig(sink, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return sink.getvalue()


def write_whole(target: Path, content: bytes) -> Path:
    """Write under another name, then rename: what has its name is whole."""
    with whole_file(target) as partial:
        partial.write_bytes(content)
    return target
