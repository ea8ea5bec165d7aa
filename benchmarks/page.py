"""The page of a run: what was aimed at, what was measured, how it grows, and how far it is from what the memory allows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from measuring import as_markdown, markdown, ratio, seconds, size

from bettersafe.studies.drawing import NO_MATPLOTLIB, has_matplotlib, matplotlib_look, rendered

PICTURE = "images/scale.svg"
INTRO = """`make bench` measures all of this on the machine at hand and writes this page (`python benchmarks/run.py --help` for less of it);
every ratio is taken within the one run. Each section is a process of its own. Times are by the clock: the median of several
after a warm-up, of one where it takes more than 3 seconds, and of a first one, with no warm-up, where it takes more than 10. What others take is measured in the
same way. What was measured once, elsewhere or by hand is on [another page](measured.md)."""
FLOOR = """Large models do not fit into the cache, so whatever evaluates a policy has to fetch every transition from memory once per pass. That takes
at least *bytes / bandwidth*, with the best bandwidth that the machine showed on as many threads (above). Of a pass these bytes are counted: 8
for the probability and 4 for the successor of each transition, 12 for each pair, 24 for each state. *All of it* is a whole evaluation
(to rounding, one reward), as a multiple of one pass. Of counting it is the decoded columns, read once."""
GROWTH = """Fitted by least squares to logarithms: *time ~ size^slope*, with the standard error of the slope. 1 is linear. The number of rounds
and of passes that a model happens to take is in these times. Dotted lines in the picture are linear."""


UNSURE = 0.1  # standard error of a slope that says nothing about it


@dataclass(frozen=True)
class Limit:
    """At most, or at least, ``value`` of ``measure``."""

    measure: str
    sign: str
    value: float

    def holds(self, found):
        return found <= self.value if self.sign == "≤" else found >= self.value

    def __str__(self):
        return f"{'slope ' * (self.measure == 'slope')}{self.sign} {quantity(self.measure, self.value)}"


@dataclass(frozen=True)
class Aim:
    """A line of the table at the top: which section finds it under ``key``, and what it should come to."""

    key: str
    section: str
    what: str
    limits: tuple[Limit, ...] = ()


AIMS = (
    Aim("s-opt-752", "s_opt", "S-OPT, 752 × 25, d = 2, to convergence", (Limit("seconds", "≤", 0.015), Limit("ratio", "≥", 4000))),
    Aim("s-opt-100000", "scale", "S-OPT, 100,000 states × 25 actions, of a model in memory", (Limit("seconds", "≤", 2.0), Limit("bytes", "≤", 0.5e9))),
    Aim("s-opt-1000000", "scale", "S-OPT, 1,000,000 states × 25 actions, of a model in memory", (Limit("seconds", "≤", 30.0), Limit("bytes", "≤", 4e9))),
    Aim("whole-s-opt-100000-2", "whole", "the same from a file of counts to a saved run and its report, 100,000 states"),
    Aim("whole-s-opt-1000000-2", "whole", "the same, 1,000,000 states"),
    Aim("whole-b-opt-100000-2", "whole", "B-OPT from a file of counts to a saved run and its report, 100,000 states"),
    Aim("programs-17", "programs", "a state's program, d = 17, from the baseline", (Limit("seconds", "≤", 20e-6),)),
    Aim("programs-64", "programs", "a state's program, d = 64, from the baseline", (Limit("seconds", "≤", 80e-6),)),
    Aim("counting", "counting", "counting a log from Parquet", (Limit("rate", "≥", 8e6), Limit("bytes", "≤", 260e6))),
    Aim("evaluate", "evaluate", "six estimators × 2 objectives, 20,954 episodes of 13 steps", (Limit("seconds", "≤", 0.025),)),
    Aim("cmdp", "cmdp", "optimum of a constrained MDP, 752 × 25", (Limit("seconds", "≤", 0.3),)),
    Aim("gridworld", "gridworld", "gridworld study, Figure 1(a), 100 CMDPs: minutes", (Limit("seconds", "≤", 600.0),)),
    Aim("start-help", "start", "`bettersafe --help`", (Limit("seconds", "≤", 0.3),)),
    Aim("start-import", "start", "`import bettersafe`", (Limit("seconds", "≤", 0.5),)),
    Aim("slope: S-OPT, transitions", "scale", "growth of S-OPT with the transitions: close to linear", (Limit("slope", "≤", 1.1),)),
    Aim("slope: counting, rows", "counting", "growth of counting with the rows: close to linear", (Limit("slope", "≤", 1.1),)),
    Aim("slope: six estimators, rows", "evaluate", "growth of the six estimators with the rows: close to linear", (Limit("slope", "≤", 1.1),)),
    Aim("policy-iteration", "policy_iteration", "plain policy iteration, 752 × 25, one reward"),
    Aim("draws", "posterior", "posterior draws × 20 candidates, a sepsis cohort"),
    Aim("linearised", "posterior", "the same 20 candidates, linearised"),
)  # fmt: skip


def quantity(measure, value):
    """A number with its unit."""
    if measure == "bytes":
        return size(value)
    if measure == "rate":
        return f"{value / 1e6:.3g} M rows per CPU s"
    if measure == "ratio":
        return f"{ratio(value)} × quicker"
    if measure == "slope":
        return f"{value:.3g}"
    return {"warm": "warm ", "names": "with all names "}.get(measure, "") + seconds(value)


def at_a_glance(found, missing):
    """One row for each aim; ``missing`` says of every section that did not do its work why.

    A section that did, and did not find it, was told to be quick.
    """
    rows = []
    for aim in AIMS:
        asked = ", ".join(map(str, aim.limits)) or "–"
        if aim.key not in found:
            rows.append(
                [aim.what, asked, f"not measured: {missing.get(aim.section, 'left out by --quick')}", "–", "–", "–"]
            )
            continue
        one = found[aim.key]
        values = one["values"]
        here = ", ".join(quantity(name, value) for name, value in values.items() if name not in {"ratio", "se", "each"})
        notes = [f"± {values['se']:.2g}"] if "se" in values else []
        notes += [f"{one['repeats']} ×"] if "repeats" in one else []
        notes += [one["note"]] if one.get("note") else []
        here += f" ({'; '.join(notes)})" if notes else ""
        instead, slower = [], []
        for other in one.get("instead", ()):
            amount = other.get("why") or quantity(
                "rate" if "rate" in other else "seconds", other.get("rate", other.get("seconds"))
            )
            instead.append(f"{other['name']}: {amount}")
            if "rate" in other:
                slower.append(ratio(values["rate"] / other["rate"]))
            elif "seconds" in other:
                slower.append(ratio(other["seconds"] / values["seconds"]))
            else:
                slower.append("–")
        rows.append(
            [aim.what, asked, here, "<br>".join(instead) or "–", "<br>".join(slower) or "–", verdict(aim, values)]
        )
    return markdown(
        ["what", "aim", "measured here", "what one would use instead", "times slower than here", "met"], rows
    )


def verdict(aim, values):
    """Whether every limit holds; what is lacking is not met, and said."""
    if not aim.limits:
        return "–"
    if values.get("se", 0.0) > UNSURE:
        return f"can't tell: ± {values['se']:.2g}"
    failed = [limit for limit in aim.limits if limit.measure in values and not limit.holds(values[limit.measure])]
    lacking = [limit for limit in aim.limits if limit.measure not in values]
    if failed:
        return "**no**: " + ", ".join(f"{quantity(limit.measure, values[limit.measure])}" for limit in failed)
    return f"not measured: {', '.join(limit.measure for limit in lacking)}" if lacking else "yes"


def fitted(series):
    """Slope of log time over log size and its standard error; NaN where two points say nothing about it."""
    x, y = np.log(series["x"]), np.log(series["seconds"])
    if x.size < 2:
        return math.nan, math.nan
    slope, level = np.polyfit(x, y, 1)
    if x.size < 3:
        return float(slope), math.nan
    residual = y - slope * x - level
    error = math.sqrt(float(residual @ residual) / (x.size - 2) / float(np.sum((x - x.mean()) ** 2)))
    return float(slope), error


def slopes(growth):
    """What the fits add to ``found``."""
    found = {}
    for series in growth:
        slope, error = fitted(series)
        if not math.isnan(error):
            found[f"slope: {series['what']}, {series['by']}"] = {"values": {"slope": slope, "se": error}}
    return found


def slope_table(growth):
    rows = []
    for series in growth:
        slope, error = fitted(series)
        x = series["x"]
        rows.append(
            [
                series["what"],
                series["by"],
                f"{x[0]:,} to {x[-1]:,}",
                len(x),
                f"{slope:.2f}",
                "–" if math.isnan(error) else f"{error:.2f}",
            ]
        )
    return markdown(["what", "with", "from, to", "sizes", "slope", "standard error"], rows)


def floor_table(passes, bandwidth):
    rows = []
    for one in passes:
        rate = bandwidth.get(str(one["threads"]))
        least = one["bytes"] / rate if rate else math.nan
        rows.append(
            [
                one["what"],
                one["threads"],
                size(one["bytes"]),
                seconds(least) if rate else "–",
                f"{seconds(one['seconds'])} ({one['repeats']})",
                ratio(one["seconds"] / least) if rate else "–",
            ]
        )
    return markdown(["what", "threads", "bytes", "least time", "measured", "times the least"], rows)


def picture(growth):
    """All growth on logarithmic axes, a panel for each thing that grows; SVG."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    axes_of = [by for by in ("states", "actions", "objectives", "rows") if any(s["by"] == by for s in growth)]
    colours = {
        "S-OPT": "#0072B2",
        "policy evaluation": "#009E73",
        "B-OPT, linearised": "#D55E00",
        "counting": "#CC79A7",
    }
    colours["six estimators"] = "#56B4E9"
    with matplotlib_look():
        figure = Figure(figsize=(9.0, 6.4 if len(axes_of) > 2 else 3.4), layout="constrained")
        shape = (2, 2) if len(axes_of) > 2 else (1, len(axes_of))
        panels = figure.subplots(*shape, squeeze=False).ravel()
        for panel in panels[len(axes_of) :]:
            panel.set_visible(False)
        for panel, by in zip(panels, axes_of, strict=False):
            for series in (s for s in growth if s["by"] == by):
                slope, error = fitted(series)
                x, y = np.array(series["x"], float), np.array(series["seconds"])
                label = f"{series['what']}: slope {slope:.2f}" + ("" if math.isnan(error) else f" ± {error:.2f}")
                colour = colours.get(series["what"], "#404040")
                panel.plot(x, y, marker="o", markersize=4, color=colour, label=label)
                panel.plot(x, y[0] * x / x[0], linestyle=":", linewidth=1.0, color=colour)
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.xaxis.set_minor_formatter(NullFormatter())
            panel.set_xlabel(by.capitalize())
            panel.set_ylabel("Seconds")
            panel.margins(y=0.12)
            low, high = panel.get_ylim()
            panel.set_ylim(low, high * (high / low) ** 0.28)  # room for the legend
            if by in {"actions", "objectives"}:
                ticks = next(s["x"] for s in growth if s["by"] == by)
                panel.set_xticks(ticks, [str(tick) for tick in ticks])
            panel.legend(loc="upper left", frameon=False, fontsize=8)
    return rendered(figure, "svg")


def page(sections, machine):
    """The whole page as Markdown, and its picture (None where there is nothing to draw).

    Args:
        sections: {name: {"result" or "why", "seconds", "cpu"}} of every section that there is.
        machine: Lines about the machine and the run.
    """
    results = {name: one["result"] for name, one in sections.items() if "result" in one}
    missing = {name: one["why"] for name, one in sections.items() if "why" in one}
    growth = [series for result in results.values() for series in result.get("growth", ())]
    passes = [one for result in results.values() for one in result.get("passes", ())]
    bandwidth = next((result["bandwidth"] for result in results.values() if "bandwidth" in result), {})
    found = {key: one for result in results.values() for key, one in result.get("found", {}).items() if one}
    parts = ["# Benchmarks", INTRO, "## At a glance", at_a_glance(found | slopes(growth), missing)]
    drawn = None
    if growth:
        drawn = picture(growth) if has_matplotlib() else None
        shown = NO_MATPLOTLIB if drawn is None else f"![Time over size on logarithmic axes]({PICTURE})"
        parts += ["## How it grows", GROWTH, shown, slope_table(growth)]
    for result in results.values():
        parts += [f"## {result['title']}", as_markdown(result)]
    if passes:
        parts += ["## Distance to the memory's floor", FLOOR, floor_table(passes, bandwidth)]
    rows = [
        [
            f"`benchmarks/{name}.py`",
            seconds(one["seconds"]) if "seconds" in one else "–",
            seconds(one["cpu"]) if "cpu" in one else "–",
            one.get("why", "done"),
        ]
        for name, one in sections.items()
    ]
    parts += ["## The machine and the run", "\n".join(f"- {line}" for line in machine)]
    parts += [markdown(["section", "time", "CPU time", "outcome"], rows)]
    return "\n\n".join(parts) + "\n", drawn
