"""The HTML page of the report, rendered from page.html.j2, style.css and script.js.

The headline and all wording shared with other screens come from `bettersafe.text`. The page opens from disk, makes no network
requests (its Content-Security-Policy forbids them) and shows all of its content without JavaScript. Templates escape
everything, because labels come from users' files.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bettersafe._system.files import file_digest, whole_file
from bettersafe.errors import check_path, check_type
from bettersafe.report import charts, differences, hazards, limits, objectives, trade_off
from bettersafe.runs.changes import deciding
from bettersafe.runs.run import FILES, REPORT, Run, load_run
from bettersafe.text.headlines import summarise
from bettersafe.text.names import certificate_steps, listed, proposed, shorten
from bettersafe.text.numbers import percent, risk

if TYPE_CHECKING:
    from bettersafe.text.tones import Tone

SIGNS: dict[Tone, str] = {"passed": "✓", "refused": "✕", "proposed": "→", "open": "?", "keep": "=", "plain": ""}
"""Symbol of each tone; its name is the CSS class."""


def write_report(path: str | Path, *, output: str | Path | None = None) -> Path:
    """Write the report of a saved run; returns where.

    Args:
        path: The run directory.
        output: Output file; report.html in the run directory by default.

    Examples:
        >>> bettersafe.write_report("run").name
        'report.html'
    """
    check_path("path", path)
    if output is not None:
        check_path("output", output)
    folder = Path(path)
    run = load_run(folder)
    digests = {name: file_digest(folder / name) for name in FILES if (folder / name).is_file()}
    html = report_html(run, name=folder.resolve().name, digests=digests)
    target = folder / REPORT if output is None else Path(output)
    with whole_file(target) as partial:
        partial.write_text(html, encoding="utf-8")
    return target


def report_html(run: Run, *, name: str = "", digests: Mapping[str, str] | None = None) -> str:
    """The report as text.

    Args:
        run: The run.
        name: Name of the run on the page.
        digests: sha256 of the files of the run, by name.

    Examples:
        >>> from bettersafe.report import report_html
        >>> report_html(run, name="my run").startswith("<!doctype html>")
        True
    """
    check_type("run", run, Run)
    check_type("name", name, str)
    check_type("digests", digests, Mapping, optional=True)
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    style, script, page = (_own(file) for file in ("style.css", "script.js", "page.html.j2"))
    return environment.from_string(page).render(
        **_sections(run),
        name=shorten(name, 80),
        digests=dict(digests or {}),
        data_digests=_data_digests(run),
        written=datetime.now(UTC).isoformat(timespec="seconds"),
        style=_trusted(style),
        script=_trusted(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _sections(run: Run) -> dict[str, object]:
    """Template variables that come from the run."""
    found = trade_off.dots(run)
    steps = certificate_steps(run)
    titles = [shorten(o.title) for o in run.objectives]
    grid = differences.action_grid(run.action_labels, run.info.settings.get("action_shape"))
    use = differences.action_use(run)
    coverage = limits.coverage_bars(run)
    bars = differences.action_bars(run)
    views = objectives.objectives(run)
    shown = deciding(run, objectives.MOST_CARDS)
    states = differences.grid_states(run) if grid and run.has_proposal else []
    told = summarise(run)
    return {
        "summary": told,
        "signs": SIGNS,
        "proposed": proposed(run),
        "facts": differences.facts(run),
        "titles": titles,
        "objectives": [
            {
                "view": view,
                "chart": charts.gain_chart(
                    view.marks, describe=_describe_gain(view), lower_is_better=view.lower_is_better, zeta=view.zeta
                ),
            }
            for view in (views[k] for k in shown)
        ],
        "hollow": any(mark.kind == "model" for view in views for mark in view.marks),
        "all_objectives": views if len(shown) < len(views) else [],
        "tested_since": objectives.chosen_before(run) is not None and sum(dot.kind == "passed" for dot in found) == 1,
        "tall": len(views) > objectives.MOST_COLUMNS,
        "floors": objectives.floors(run),
        "beliefs": objectives.beliefs(run),
        "pickers": [(k, titles[k]) for k in sorted({k for pair in trade_off.drawn_pairs(run) for k in pair})],
        "trade_offs": [_trade_off(run, found, i, j) for i, j in trade_off.drawn_pairs(run)],
        "dot_rows": trade_off.dot_rows(run, found),
        "steps_words": steps,
        "change_title": f"Change against the baseline, {steps}" if steps else "Change against the baseline",
        "dot_kinds": {dot.kind for dot in found},
        "by_posterior": any(row.evidence == "posterior" for row in run.info.candidates),
        "bars_words": trade_off.bars_words(run),
        "most_drawn": trade_off.MOST_DRAWN,
        "changed": run.has_proposal,
        "changes": differences.changes(run),
        "states_changed": run.info.states_changed,
        "n_states": run.info.n_states,
        "most_states": differences.MOST_STATES,
        "grid": grid,
        "grid_tables": differences.grid_tables(grid, *use, name=proposed(run)) if grid else [],
        "grid_states": states,
        "grid_json": _json(states),
        "action_bars": bars,
        "actions_left_out": max(run.action_labels.size - len(bars), 0),
        "action_chart": charts.bars_chart(
            bars, describe=f"How often each action is taken, baseline and {proposed(run)}; the table has the numbers."
        ),
        "coverage_bars": coverage,
        "coverage_chart": charts.bars_chart(
            coverage,
            describe=f"Share of decisions by how often they were tried in the data, baseline and {proposed(run)}; the table has the numbers.",
        ),
        "percent": percent,
        "limits": limits.limits(run, coverage),
        "hazards": hazards.hazards(run),
        "rarely_tried": limits.rarely_tried(run),
        "estimators": limits.estimators(run),
        "estimates": limits.estimates(run),
        "interval_level": risk(run.evaluation[0]["level"]) if run.evaluation else "",
        "assumptions": limits.assumptions(run),
        "checks": limits.checks(run),
        "theory_assumptions": _theory_assumptions(run),
        "settings": limits.settings(run),
        "notes": limits.notes(run),
    }


def _trade_off(run: Run, found: list[trade_off.Dot], i: int, j: int) -> dict[str, object]:
    names = (shorten(run.objectives[i].title, 60), shorten(run.objectives[j].title, 60))
    costs = (run.objectives[i].lower_is_better, run.objectives[j].lower_is_better)
    points = trade_off.trade_off_points(found, i, j)
    shown = listed([point.label for point in points]) if 0 < len(points) <= 4 else f"{len(points)} policies"
    describe = f"Change in {names[0]} (right is better) against change in {names[1]} (up is better), with the baseline at the origin: {shown}."
    chart = charts.trade_off_chart(points, names=names, costs=costs, describe=describe, caption=proposed(run))
    return {"i": i, "j": j, "names": names, "chart": chart}


def _describe_gain(view: objectives.ObjectiveView) -> str:
    return f"Change in {view.title} against the baseline: " + "; ".join(
        f"{mark.label.lower()} {line.change}, lower bound: {line.bound}"
        for mark, line in zip(view.marks, view.lines, strict=False)
    )


def _theory_assumptions(run: Run) -> list[str]:
    """Assumptions of the bounds from the counts, unless they are the certificate's own list."""
    certificate = run.certificate
    if certificate is None or certificate.theory is None or certificate.evidence == "theory":
        return []
    return list(certificate.theory.assumptions)


def _data_digests(run: Run) -> dict[str, str]:
    """Saved sha256 digests of the logs."""
    found = {"log that the policy was made from": run.info.data.sha256}
    if run.certificate is not None:
        used = "tested" if run.certificate.by_test else "evaluated"
        found[f"log that it was {used} on"] = run.certificate.data.get("tested_on", {}).get("sha256")
    return {what: shorten(digest, 64) for what, digest in found.items() if digest}


def _own(file: str) -> str:
    return resources.files("bettersafe.report").joinpath(file).read_text(encoding="utf-8")


def _trusted(text: str) -> Any:
    """Mark the package's own style or script as safe, so that it is not escaped."""
    from markupsafe import Markup

    return Markup(text)


def _json(value: Any) -> Any:
    """JSON for a script element, without <, > or &, so that its text cannot close the element or open another."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return _trusted(text)


def _hash(text: str) -> str:
    """Hash of an inline style or script for the Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
