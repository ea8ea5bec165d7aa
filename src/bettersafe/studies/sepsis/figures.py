"""Figures of the sepsis study: doses, estimates against exact values, and S-OPT over ε."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe.evaluation.facts import ESTIMATORS
from bettersafe.methods.facts import METHODS
from bettersafe.studies.drawing import Frame, add_legend, also, framed, matplotlib_look, settled
from bettersafe.studies.sepsis.mimic import CLINICAL_CUTS
from bettersafe.studies.sepsis.plan import EPSILONS, LARGE_DOSE, PREFERENCES, RARE_BELOW
from bettersafe.studies.sepsis.summary import CLINICIAN, by_key, knows_truth, summarise_sepsis, with_chosen
from bettersafe.studies.sepsis.tables import ADVISED, policy_name, preference_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bettersafe.studies.sepsis.summary import Key
    from bettersafe.typing import Row

ESTIMATES = {
    **{name: f"{ESTIMATORS[name].acronym} ({ESTIMATORS[name].words})" for name in ("dr", "wdr")},
    "model": "The model that policies are made in",
}
OBJECTIVES = {"survival": "survival return", "rare": "rare-treatment return"}
MARKERS = {"clinician": "*", "linearized": "X", "adv-linearized": "v", "s-opt": "o", "h-opt": "^"}
NAMES = {
    "clinician": "Clinician",
    "linearized": METHODS["linearized"].title,
    "adv-linearized": METHODS["adv-linearized"].title,
    "s-opt": f"{METHODS['s-opt'].title}, every ε",
    "h-opt": f"{METHODS['h-opt'].title}, every δ",
}
LINES: dict[str, tuple[str, str, Any]] = {
    "true": ("#000000", "o", "-"),
    "dr": ("#D55E00", "s", "--"),
    "wdr": ("#0072B2", "^", "-."),
}
"""Colours of Okabe and Ito's palette, markers and line styles."""

SHOWN = tuple(preference for preference in PREFERENCES if preference != "0,0")
"""Without [0, 0], for which every method except Linearized returns the clinician's policy."""

BINS = 5


def draw_sepsis(rows: pa.Table, study_id: str, *, note: str = "") -> dict[str, Figure]:
    """All figures of a sepsis study by name; one of them needs exact values.

    Args:
        rows: Rows of the study.
        study_id: Id of the study, such as ``sepsis/icu``.
        note: Text added to the subtitles, such as that the sweep is unfinished.
    """
    summary = summarise_sepsis(with_chosen(rows))
    records = by_key(summary)
    seeds = records[CLINICIAN]["seeds"]
    where = f"{study_id}; {'mean over ' if seeds > 1 else ''}{seeds} {'seeds' if seeds > 1 else 'seed'}{also(note)}"
    with matplotlib_look():
        figures = {"doses": _draw_doses(records, where, dose_words(rows))}
        true = knows_truth(summary)
        if true:
            figures["truth"] = _draw_truth(
                _policies(rows), f"{study_id}; {seeds} {'seeds' if seeds > 1 else 'seed'}{also(note)}"
            )
        figures["epsilon"] = _draw_epsilon(records, where, true=true)
        return settled(figures)


def _policies(rows: pa.Table) -> list[Row]:
    """Rows of the paper's methods, with the study's main definition of rare treatments."""
    return [r for r in rows.to_pylist() if r["rare_below"] == RARE_BELOW and r["method"] in MARKERS]


def dose_words(rows: pa.Table) -> str:
    """Definition of doses 1 to 4; route B may cut fluid at fixed volumes."""
    clinical = "iv_bins" in rows.column_names and rows["iv_bins"][0].as_py() == "clinical"
    if not clinical:
        return "1 to 4: quarters of the non-zero doses"
    cuts = ", ".join(f"{cut:g}" for cut in CLINICAL_CUTS)
    return f"1 to 4: fluid cut at {cuts} mL, vasopressor at the quarters of the non-zero doses"


def _draw_doses(records: Mapping[Key, Row], where: str, doses_are: str) -> Figure:
    """The 5 × 5 doses of the clinician and three policies, as shares of the decisions in the training part."""
    from matplotlib.colors import PowerNorm

    figure = _new_figure(
        Frame(
            title="Which doses are given: the clinician, and policies made from the same data",
            subtitle=where,
            notes=(
                "Share of decisions, in per cent, if the policy acted in the patient states of the training part as often as they"
                " occur there; < 1 %: no number.",
                f"Dose 0: none; {doses_are}; vasopressor doses from {LARGE_DOSE} on (right of the line) are large."
                " Colour: on a square-root scale.",
            ),
            width=12.0,
            height=3.1,
        )
    )
    panels = figure.subplots(1, len(ADVISED), sharey=True)
    doses = {policy: _doses(records[policy]) for policy in ADVISED}
    norm = PowerNorm(0.5, vmin=0.0, vmax=max(float(dose.max()) for dose in doses.values()))
    for axes, policy in zip(panels, ADVISED, strict=True):
        image = axes.imshow(doses[policy], cmap="cividis_r", norm=norm, origin="lower")
        for iv, vaso in np.ndindex(BINS, BINS):
            share = doses[policy][iv, vaso]
            if share >= 1.0:
                dark = norm(share) > 0.55
                axes.text(vaso, iv, f"{share:.0f}", ha="center", va="center", color="white" if dark else "black")
        axes.axvline(LARGE_DOSE - 0.5, color="black", linewidth=1.0, linestyle=":")
        name = "Clinician" if policy == CLINICIAN else f"{policy_name(policy)}\nλ = {preference_name(policy)}"
        axes.set_title(name)
        axes.set_xlabel("Vasopressor dose")
        axes.set_xticks(range(BINS))
        axes.set_yticks(range(BINS))
        axes.grid(visible=False)
    panels[0].set_ylabel("Intravenous fluid dose")
    figure.colorbar(image, ax=panels, label="Share of decisions (%)", shrink=0.85, pad=0.015)
    return figure


def _doses(record: Row) -> Any:
    """Percentages by fluid (rows) and vasopressor (columns), shape [5, 5]."""
    return np.array([[100.0 * record.get(f"dose iv{iv}/vaso{v}", 0.0) for v in range(BINS)] for iv in range(BINS)])


def _draw_truth(rows: Sequence[Row], where: str) -> Figure:
    """Estimates against exact values for all policies of the paper's methods: a column per estimator, a row per objective."""
    from matplotlib.colors import LogNorm
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color="none", marker=marker, markersize=11 if method == "clinician" else 7,
               markerfacecolor="#B0B0B0", markeredgecolor="black", label=NAMES[method])
        for method, marker in MARKERS.items()
    ]  # fmt: skip
    handles.append(Line2D([], [], color="black", linewidth=1.0, label="estimate = truth"))
    figure = _new_figure(
        Frame(
            title="How far each estimate is from the truth",
            subtitle=f"every policy of the paper's methods, of every λ and seed; {where}",
            notes=(
                "Across: the exact value in the simulator. Up: the estimate; points on an upper or lower edge lie beyond it. In the"
                " shaded half the estimate is too good:",
                "survival above its true value, rare treatments below theirs (logarithmic scale from 1 on). Colour: effective sample"
                f" size (ESS), how many of the {rows[0]['test_episodes']} test patients carry DR and WDR.",
            ),
            width=12.0,
            height=7.4,
        ),
        handles,
    )
    panels = figure.subplots(2, len(ESTIMATES), sharex="row", sharey="row")
    ess = [record["ess"] for record in rows]
    norm = LogNorm(vmin=max(1.0, min(ess)), vmax=max(*ess, 2.0))
    points: Any = None
    for line, (objective, name) in zip(panels, OBJECTIVES.items(), strict=True):
        true = [record[f"true_{objective}"] for record in rows]
        inside = [record[f"model_{objective}"] for record in rows]  # DR and WDR can be arbitrarily far off
        if objective == "survival":
            across, up = _limits(true), _limits([*true, *inside])
        else:
            across = up = (-0.3, 1.4 * max(*true, *inside, 1.0))
        edge = up[1] if objective == "survival" else up[0]
        ends = np.linspace(*across, 200)  # the line is curved on a symlog scale
        for axes, (estimator, title) in zip(line, ESTIMATES.items(), strict=True):
            axes.fill_between(ends, ends, edge, color="#FBE6D4", linewidth=0, zorder=0)
            axes.plot(ends, ends, color="black", linewidth=1.0, zorder=1)
            points = _scatter(axes, rows, objective, estimator, norm, up)
            if objective == "rare":
                axes.set_xscale("symlog", linthresh=1.0)
                axes.set_yscale("symlog", linthresh=1.0)
                ticks = [0, 1, 3, 10, 30, 100]
                axes.set_xticks(ticks, map(str, ticks))
                axes.set_yticks(ticks, map(str, ticks))
                axes.minorticks_off()
            axes.set_xlim(across)
            axes.set_ylim(up)
            axes.set_title(title)
            axes.set_xlabel(f"True {name}")
        line[0].set_ylabel(f"Estimated {name}")
    figure.colorbar(points, ax=panels, label="Effective sample size (patients)", shrink=0.7, pad=0.015)
    return figure


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Axis limits with a margin."""
    room = 0.05 * (max(values) - min(values)) or 1.0
    return min(values) - room, max(values) + room


def _scatter(
    axes: Axes, rows: Sequence[Row], objective: str, estimator: str, norm: Any, up: tuple[float, float]
) -> Any:
    points = None
    for method in reversed(MARKERS):  # Adv-Linearized is drawn over S-OPT with a large ε, the clinician last
        found = [record for record in rows if record["method"] == method]
        points = axes.scatter(
            [record[f"true_{objective}"] for record in found],
            np.clip([record[f"{estimator}_{objective}"] for record in found], *up),
            c=[max(record["ess"], norm.vmin) for record in found],
            marker=MARKERS[method], s=110 if method == "clinician" else 28, cmap="viridis", norm=norm,
            edgecolors="black", linewidths=0.4, zorder=4 if method == "clinician" else 3, clip_on=False,
        )  # fmt: skip
    return points


def _draw_epsilon(records: Mapping[Key, Row], where: str, *, true: bool) -> Figure:
    """S-OPT against ε: DR, WDR and, if known, exact values; one column per preference.

    The scales are those of the means: at large ε the bars of DR and WDR can be ten times as long as all differences, and are cut.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    labels = {"true": "exact value"} | {name: f"{ESTIMATORS[name].acronym} on the test part" for name in ("dr", "wdr")}
    handles: list[Any] = [
        Line2D([], [], color=LINES[what][0], marker=LINES[what][1], linestyle=LINES[what][2], label=label)
        for what, label in labels.items()
        if true or what != "true"
    ]
    own = "true" if true else "dr"
    handles.append(
        Line2D([], [], color="#707070", linewidth=1.0, label=f"clinician, {'exact' if true else labels[own]}")
    )
    handles.append(Patch(color="#FBE6D4", label="worse than the clinician"))
    seeds = records[CLINICIAN]["seeds"]
    figure = _new_figure(
        Frame(
            title=f"S-OPT: what is promised{' and what is true' if true else ''}, as the budget ε grows",
            subtitle=where,
            notes=(
                "ε: how far the policy may leave the clinician where there are few data; ∞ is Adv-Linearized.",
                "Bars: ± 1 standard deviation over seeds; those that end at an edge go on beyond it."
                if seeds > 1
                else "One seed: no bars.",
            ),
            width=12.0,
            height=6.2,
        ),
        handles,
    )
    panels = figure.subplots(2, len(SHOWN), sharex=True, sharey="row")
    names = [*(f"{epsilon:g}" for epsilon in EPSILONS), "∞"]
    for line, (objective, name) in zip(panels, OBJECTIVES.items(), strict=True):
        for axes, preference in zip(line, SHOWN, strict=True):
            found = [records[preference, "s-opt", f"{epsilon:g}"] for epsilon in EPSILONS]
            found.append(records[preference, "adv-linearized", ""])
            for n, (what, (colour, marker, dashes)) in enumerate(LINES.items()):
                if what == "true" and not true:
                    continue
                bars = [record[f"{what}_{objective}_sd"] for record in found]
                axes.errorbar(
                    np.arange(len(found)) + 0.12 * (n - 1), [record[f"{what}_{objective}"] for record in found],
                    yerr=None if math.isnan(bars[0]) else bars, color=colour, marker=marker, linestyle=dashes,
                    markersize=5, linewidth=1.4, elinewidth=1.0, capsize=2.0, markeredgecolor="white",
                    markeredgewidth=0.5,
                )  # fmt: skip
            axes.axhline(records[CLINICIAN][f"{own}_{objective}"], color="#707070", linewidth=1.0, zorder=1)
            axes.set_xticks(range(len(names)), names)
            axes.set_title(f"λ = [{preference.replace(',', ', ')}]: {name}")
        drawn = [what for what in LINES if true or what != "true"]
        means = [records[each][f"{what}_{objective}"] for each in _along_epsilon() for what in drawn]
        low, high = _limits([*means, records[CLINICIAN][f"{own}_{objective}"]])
        for axes in line:
            edge = low if objective == "survival" else high
            axes.axhspan(records[CLINICIAN][f"{own}_{objective}"], edge, color="#FBE6D4", zorder=0, linewidth=0)
        line[0].set_ylim(low, high)
        line[0].set_ylabel(f"{name.capitalize()}\n({'more' if objective == 'survival' else 'less'} is better)")
    for axes in panels[1]:
        axes.set_xlabel("Budget ε")
    return figure


def _along_epsilon() -> list[Key]:
    """The policies of the figure over ε."""
    keys: list[Key] = []
    for preference in SHOWN:
        keys += [(preference, "s-opt", f"{epsilon:g}") for epsilon in EPSILONS]
        keys.append((preference, "adv-linearized", ""))
    return keys


def _new_figure(frame: Frame, handles: Sequence[Any] = ()) -> Figure:
    """Figure with title, notes and a legend in one row."""
    foot = 0.14 + 0.3 * bool(handles) + 0.165 * len(frame.notes) + 0.1
    figure = framed(frame, head=0.66, foot=foot)
    if handles:
        add_legend(figure, handles, columns=len(handles), at=foot - 0.08)
    return figure
