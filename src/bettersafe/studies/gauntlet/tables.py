"""Tables of the gauntlet in Markdown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bettersafe.studies.gauntlet.kinds import KINDS
from bettersafe.studies.gauntlet.plan import ABOUT, STUDY
from bettersafe.studies.gauntlet.summary import SIGNIFICANT, averages, summarise_cells
from bettersafe.studies.styles import plain_name
from bettersafe.studies.summary import METHOD
from bettersafe.studies.tables import NONE, in_order, markdown, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from bettersafe.typing import Row

HALVES = {
    "choose": "Kinds to choose rules by",
    "confirm": "Kinds to look at once, at the end",
    "fresh": "Fresh kinds, for rules chosen after the others had been looked at",
    "fourth": "Fourth set of kinds, for rules chosen after the first three had been looked at",
    "fifth": "Fifth set of kinds, for rules chosen after the first four had been looked at",
    "sixth": "Sixth set of kinds, for rules chosen after the first five had been looked at",
    "seventh": "Seventh set of kinds, for rules chosen after all others had been looked at",
}
MOST_ABOVE = 1.5
"""Multiple of δ above which a share of bounds above the truth is marked."""

MOST_Z = 0.5
"""|mean z| above which it is marked."""


def gauntlet_tables(rows: pa.Table, *, note: str = "") -> str:
    """The tables as one Markdown page; ``note`` is a sentence for its head."""
    delta = rows["delta"][0].as_py()
    cells = summarise_cells(rows)
    kinds = summarise_cells(rows, ("half", "unlearnable", "kind", *METHOD))
    n = max(cell["logs"] for cell in cells)
    page = [f"# {STUDY}", ABOUT + ".", *([note] if note else [])]
    page.append(
        f"{n} {'world' if n == 1 else 'worlds'} of each kind and size, each with one log; δ = {delta:g}. Failure: truly worse than the"
        " practice on some objective; in brackets the 95 % interval of Clopper and Pearson; p is the probability of as many failures or"
        f" more at a rate of δ, **bold** below {SIGNIFICANT:g}. Above: B-OPT's lower bounds above the truth, nominally δ, bold above"
        f" {MOST_ABOVE:g} δ. Covered: its intervals that hold the truth, nominally 1 − δ. z: (truth − estimate)/sd, of the objectives pursued"
        f" and of all, bold beyond ±{MOST_Z:g}. Share: of the best possible safe gain, a failure counts as 0. Proposed: logs with a proposal."
    )
    parts = [(title, lambda r, half=half: r["half"] == half and not r["unlearnable"]) for half, title in HALVES.items()]
    for title, inside in [*parts, ("Harm that the log can't show", lambda r: r["unlearnable"])]:
        page += _part(title, list(filter(inside, cells)), list(filter(inside, kinds)), delta)
    means = averages(cells)
    page.append("## Averages over kinds and sizes")
    page.append(
        "Without the kinds whose harm the log can't show. Exceeded: combinations of kind and size that fail more often than δ,"
        f" p < {SIGNIFICANT:g}."
    )
    for half, title in HALVES.items():
        here = {words(r): r for r in means if r["half"] == half}
        if here:
            page.append(_averages(title, here))
    return "\n\n".join(page) + "\n"


def _part(title: str, cells: Sequence[Row], kinds: Sequence[Row], delta: float) -> list[str]:
    """B-OPT by kind and size, and all methods by kind."""
    if not cells:
        return []
    head = ["kind", "\\|D\\|", "failures", "p", "above", "covered", "z pursued", "z", "share", "proposed"]
    body = [
        [
            KINDS[cell["kind"]].title,
            str(cell["episodes"]),
            f"{cell['failed']}/{cell['logs']} [{cell['failure_low']:.2f}, {cell['failure_high']:.2f}]",
            _marked(f"{cell['p']:.2g}", cell["p"] < SIGNIFICANT),
            _percent(cell["above"], bold=cell["above"] > MOST_ABOVE * delta),
            _percent(cell["covered"]),
            _z(cell["z_pursued"]),
            _z(cell["z_mean"]),
            _percent(cell["kept"]),
            _percent(cell["proposed"]),
        ]
        for cell in cells
        if words(cell) == "b-opt"
    ]
    return [
        f"## {title}",
        markdown(head, body),
        f"Failures of all methods, over all sizes; bold if p is below {SIGNIFICANT:g}:",
        _by_method(kinds, lambda r: _marked(f"{r['failed']}/{r['logs']}", r["p"] < SIGNIFICANT)),
        "Share of the best possible safe gain, a failure counts as 0, over all sizes:",
        _by_method(kinds, lambda r: _percent(r["kept"])),
    ]


def _by_method(records: Sequence[Row], cell: Callable[[Row], str]) -> str:
    """A line for each kind, a column for each method."""
    found = {(record["kind"], words(record)): record for record in records}
    methods = in_order(method for _, method in found)
    body = [
        [KINDS[kind].title, *(cell(found[kind, method]) if (kind, method) in found else NONE for method in methods)]
        for kind in dict.fromkeys(kind for kind, _ in found)
    ]
    return markdown(["kind", *map(plain_name, methods)], body)


def _averages(title: str, records: dict[str, Row]) -> str:
    """A line for each method."""
    head = [
        title.lower(),
        "failures",
        "exceeded",
        "share",
        "share, failures as they are",
        "proposed",
        "above",
        "covered",
    ]
    body = [
        [
            plain_name(method),
            _percent(records[method]["failure"]),
            f"{records[method]['exceeded']} of {records[method]['cells']}",
            *(_percent(records[method][name]) for name in ("kept", "share", "proposed", "above", "covered")),
        ]
        for method in in_order(records)
    ]
    return markdown(head, body)


def _marked(text: str, marked: bool) -> str:
    return f"**{text}**" if marked else text


def _percent(value: float, *, bold: bool = False) -> str:
    return NONE if math.isnan(value) else _marked(f"{100 * value:.0f} %".replace("-", "−"), bold)


def _z(value: float) -> str:
    return NONE if math.isnan(value) else _marked(f"{value:+.1f}".replace("-", "−"), abs(value) > MOST_Z)
