"""What the command line prints: tables for people, JSON for programs. No computation here.

Tables go to stdout and degrade to plain text in a pipe; progress and errors go to stderr.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bettersafe.certificate.files import certificate_json
from bettersafe.logs.dataset import user_sign
from bettersafe.methods.facts import facts_of
from bettersafe.runs.run import deciding, largest_changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.progress import Task as BarTask

    from bettersafe.certificate.certificate import Certificate
    from bettersafe.logs.counts import Counts
    from bettersafe.logs.dataset import Objective
    from bettersafe.logs.describe import Description
    from bettersafe.logs.discretize import Discretization
    from bettersafe.runs.run import Run
    from bettersafe.studies.catalogue import Entry
    from bettersafe.studies.demo import Demo
    from bettersafe.tasks.draft import Start
    from bettersafe.typing import Event, Progress


def _console() -> Console:
    console = Console()
    if not console.is_terminal:  # a pipe has no width: don't cut columns to fit one
        console = Console(width=200)
    return console


def print_error(message: str) -> None:
    """One sentence on stderr."""
    Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {escape(message)}", highlight=False)


LEAST_GAIN = 1e-9
"""Gains below this are rounding, and not worth a word."""


class _BarOfKnownSize(BarColumn):
    """A bar for work of known size, nothing for other work."""

    def render(self, task: BarTask) -> ProgressBar:
        bar = super().render(task)
        return bar if task.total is not None else ProgressBar(total=1, completed=0, width=0)


class _Clock(TimeElapsedColumn):
    """The time since the start, also when a bar is full: there may be another."""

    def render(self, task: BarTask) -> Text:
        return Text(str(timedelta(seconds=int(task.elapsed or 0.0))), style="progress.elapsed")


def _amount(event: Event) -> str:
    """``1,200,000 of 8,000,000 rows``, ``120 of 800 MB``."""
    total = event.total or 0
    if event.unit != "bytes":
        return f"{event.done:,} of {total:,} {event.unit}"
    return f"{event.done / 1e6:,.0f} of {total / 1e6:,.0f} MB"


@contextmanager
def working(text: str) -> Iterator[Progress]:
    """A spinner on stderr with the current step, a bar if its size is known, and the time; on terminals only.

    ``text`` names the reading of a log, whose events have no words of their own.
    """
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), _BarOfKnownSize(), _Clock())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task(text, total=None)
        last, passes = 0, 1

        def progress(event: Event) -> None:
            nonlocal last, passes
            what = event.what
            if event.unit == "rounds":
                gain = f", largest gain {event.gain:.3g}" if (event.gain or 0.0) > LEAST_GAIN else ""
                what = f"{what or 'Improving'}: round {event.done}{gain}"
            elif event.total is not None:
                if not what:
                    passes += event.done < last  # it is read again
                    last = event.done
                    what = f"{text}, pass {passes}" if passes > 1 else text
                what = f"{what}: {_amount(event)}"
            known = event.unit != "rounds" and event.total is not None
            bar.tasks[line].total = event.total if known else None  # `update` takes None for: as it was
            bar.update(line, description=what, completed=event.done if known else 0)

        yield progress


def time_left(seconds: float) -> str:
    """``12 s left``, ``about 3 min left``."""
    return f"about {seconds / 60:.0f} min left" if seconds > 90 else f"{seconds:.0f} s left"


@contextmanager
def counting(text: str) -> Iterator[Progress]:
    """A bar on stderr with the time that is left, for work of known size; on terminals only."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task(text, total=None, left="")

        began: tuple[int, float] | None = None

        def progress(event: Event) -> None:
            nonlocal began
            began = began or (event.done, time.perf_counter())
            first, start = began
            left = ""
            if event.done > first:
                each = (time.perf_counter() - start) / (event.done - first)
                left = time_left(each * ((event.total or 0) - event.done))
            bar.update(line, completed=event.done, total=event.total, left=left)

        yield progress


def print_counted(counts: Counts, path: Path, *, as_json: bool) -> None:
    """What is in a file of counts that was written."""
    files = 0 if counts.origin is None else len(counts.origin.inputs)
    if as_json:
        sizes = {"files": files, "rows": counts.n_rows, "episodes": counts.n_episodes, "states": counts.n_states}
        sizes |= {"actions": counts.n_actions, "pairs": counts.n_pairs}
        print_json({"counts": str(path), "bytes": path.stat().st_size, **sizes, "notes": list(counts.notes)})
        return
    console = _console()
    for note in counts.notes:
        console.print(f"Note: {escape(note)}.", highlight=False)
    console.print(
        f"{count_of(counts.n_rows, 'row')} in {count_of(counts.n_episodes, 'episode')} of {count_of(files, 'file')}:"
        f" {count_of(counts.n_pairs, 'pair')} of {count_of(counts.n_states, 'state')} and"
        f" {count_of(counts.n_actions, 'action')}. Written to {escape(str(path))}.",
        highlight=False,
    )


def print_studies(catalogue: Mapping[str, Entry]) -> None:
    """The list of studies."""
    console = _console()
    table = _table()
    for column in ("id", "about", "full size"):
        table.add_column(column)
    for study_id, entry in catalogue.items():
        table.add_row(study_id, escape(entry.about), f"{entry.full} {entry.unit}")
    console.print(table)


def print_start(start: Start, output: Path) -> None:
    """What was guessed of a log's columns, what is left to decide, and the next command."""
    console = _console()
    table = _table(f"Guessed from {'all' if start.whole else 'the first'} {count_of(start.rows, 'row')}")
    for column in ("column", "taken as", "because of"):
        table.add_column(column)
    for guess in start.roles:
        others = f"; or {', '.join(guess.others)}?" if guess.others else ""
        table.add_row(escape(guess.column), guess.role, escape(guess.reason + others))
    for objective in start.objectives:
        use = "objective" if objective.used else "[dim]nothing[/]"
        direction = ", lower is better" if objective.lower_is_better else ""
        table.add_row(escape(objective.column), use + direction, escape(objective.reason or "a column of numbers"))
    for name, why in start.unused.items():
        table.add_row(escape(name), "[dim]nothing[/]", escape(why))
    console.print(table)
    for role, why in start.open.items():
        console.print(f"[yellow]To decide:[/] {role}: {escape(why)}.", highlight=False)
    if not any(objective.used for objective in start.objectives):
        console.print(
            "[yellow]To decide:[/] objectives: no column of numbers is left that could be one.", highlight=False
        )
    file = shlex.quote(str(output))
    console.print(
        f"Written to {escape(str(output))}. Read it, {'correct what is wrong' if start.complete else 'fill in what is missing'},"
        f" and go on with: bettersafe describe --task {escape(file)}",
        highlight=False,
        soft_wrap=True,
    )


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def _table(title: str | None = None) -> Table:
    return Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)


def count_of(n: int, what: str) -> str:
    """``1 stay``, ``2 stays``."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def _format(value: float) -> str:
    return f"{0.0 if abs(value) < 5e-13 else value:.5g}"


def _objective_name(objective: Objective) -> str:
    return escape(objective.title) + (f" ({escape(objective.unit)})" if objective.unit else "")


MOST_ROWS = 12
"""Objectives that a table has one by one; of more, those that decide, and --all shows the rest."""


def _and_more(console: Console, shown: Sequence[int], d: int) -> None:
    if len(shown) < d:
        console.print(
            f"Shown are the {len(shown)} of {d} objectives that are pursued or least sure; --all shows every one.",
            style="dim",
            highlight=False,
        )


def print_run(run: Run, changes: int, *, every: bool = False) -> None:
    """A run: what it found, the objectives before and after, and the largest changes; ``every`` objective, or those that decide."""
    console = _console()
    rows = list(range(len(run.objectives))) if every else deciding(run, MOST_ROWS)
    info = run.info
    console.print()
    console.print(f"[bold]{escape(info['status'])}[/]", highlight=False)
    table = _table("In the estimated model")
    table.add_column("objective")
    table.add_column("weight", justify="right")
    table.add_column("baseline", justify="right")
    table.add_column("policy", justify="right")
    table.add_column("change", justify="right")
    table.add_column("")
    for k in rows:
        objective, weight = run.objectives[k], info["preference"][k]
        before, after = run.baseline_return[k], run.policy_return[k]
        gain = after - before
        small = abs(gain) <= 1e-9 * max(1.0, abs(before))
        word = "[dim]same[/]" if small else ("[green]better[/]" if gain > 0 else "[bold red]worse[/]")
        arrow = "lower is better" if objective.lower_is_better else ""
        change = user_sign(objective, after) - user_sign(objective, before)
        table.add_row(
            _objective_name(objective) + (f" [dim]{arrow}[/]" if arrow else ""),
            _format(weight),
            _format(user_sign(objective, before)),
            _format(user_sign(objective, after)),
            f"{0.0 if small else change:+.5g}",
            word,
        )
    console.print(table)
    _and_more(console, rows, len(run.objectives))
    budget = f" epsilon {info['epsilon']}," if facts_of(info["method"]).budget else ""
    console.print(
        f"{info['method']},{budget} delta {info['delta']}, error function {info['error_kind']}; baseline"
        f" {info['baseline_source']}; {_how_found(info)}.",
        style="dim",
        highlight=False,
    )
    for note in info.get("notes", []):
        console.print(f"Note: {escape(note)}", style="dim", highlight=False)
    if run.changed:
        console.print(
            f"{info['states_changed']:,} of {info['n_states']:,} states change; {100 * info['mean_moved']:.3g} % of a state's decisions"
            f" move on average, {100 * info['largest_moved']:.3g} % at most.",
            highlight=False,
        )
    if info["states_kept"]:
        console.print(
            f"States kept because they could not be solved: {escape(', '.join(info['states_kept'][:10]))}",
            style="yellow",
        )
    if every and info.get("candidates"):
        console.print(_candidates(run))
    shown = largest_changes(run, changes)
    if shown:
        table = _table("Largest changes (visits × probability moved)")
        table.add_column("state")
        table.add_column("visits", justify="right")
        table.add_column("moved", justify="right")
        table.add_column("less of")
        table.add_column("more of")
        for state in shown:
            table.add_row(
                escape(state.state),
                str(state.visits),
                f"{100 * state.moved:.3g} %",
                _moves(state.less),
                _moves(state.more),
            )
        console.print(table)
    if run.certificate is not None and run.certificate.evidence != "theory":
        print_certificate(run.certificate, run.objectives, shown=rows)
        return
    console.print(
        "These are estimates from the same data that the policy was made from: a suggestion, not yet a promise.",
        style="dim",
        highlight=False,
    )
    if run.certificate is not None and run.certificate.floors:
        print_certificate(run.certificate, run.objectives, shown=rows)
    elif run.certificate is not None:
        _print_theory(console, run.certificate, run.objectives, rows)


def _how_found(info: Mapping[str, Any]) -> str:
    """By how much work a policy was found: rounds and their gap, or of B-OPT, which has none of its own, what was judged and how."""
    if facts_of(info["method"]).posterior and "candidates" in info:
        settings = info.get("settings", {})
        how = (
            "by linearisation, without draws"
            if settings.get("form") == "linearised"
            else f"in {count_of(int(settings['draws']), 'draw')} of every prior"
            if "draws" in settings
            else "by the posterior"
        )
        return f"{count_of(len(info['candidates']), 'candidate')} judged {how}"
    return f"{count_of(info['rounds'], 'round')}, optimality gap {float(info['gap']):.1e}, engine {info['engine']}"


def _candidates(run: Run) -> Table:
    """The candidates of H-OPT or B-OPT: what each gains, how safe it is held to be, and what came of it."""
    rows = run.info["candidates"]
    asked = any("p_safe" in row for row in rows)
    table = _table("Candidates")
    table.add_column("candidate")
    table.add_column("weighted gain", justify="right")
    if asked:
        table.add_column("no worse on any", justify="right")
        table.add_column("chance of a loss, if pessimistic", justify="right")
    table.add_column("")
    for row in rows:
        gain = sum(weight * float(value) for weight, value in zip(run.info["preference"], row["gain"], strict=True))
        result = (
            "[bold green]taken[/]" if row["chosen"] else "passed" if row["passed"] else "[dim]a better one had passed[/]"
            if row.get("open") else "[red]did not pass[/]"
        )  # fmt: skip
        cells = [escape(row["name"]), f"{gain:+.4g}"]
        if asked:
            losses = [1.0 - float(chance) for chance in row["p_pessimistic"]]
            known = [loss for loss in losses if not math.isnan(loss)]  # NaN: not asked
            more = "" if len(known) == len(losses) else "at least "
            error = f" ± {100 * row['error']:.2g}" if row["draws"] else ""
            cells += [f"{100 * row['p_safe']:.4g}{error} %", f"{more}{100 * sum(known):.3g} %" if known else "–"]
        table.add_row(*cells, result)
    return table


GRADES = {
    "exact": "exact: in a known model",
    "posterior": "posterior: as good as the priors named below",
    "finite-sample": "finite-sample: holds for any amount of data, if the assumptions do",
    "approximate": "approximate: nearly right for much data, and may fail more often than the risk says",
}


def print_certificate(
    certificate: Certificate, objectives: tuple[Objective, ...], *, shown: Sequence[int] | None = None
) -> None:
    """The verdict, what it is about, and what it rests on; of the objectives ``shown``, or of all."""
    console = _console()
    titles = {objective.name: _objective_name(objective) for objective in objectives}
    console.print()
    colour = "green" if certificate.accepted else "yellow"
    console.print(f"[bold {colour}]{escape(certificate.verdict)}[/]", highlight=False)
    names = None if shown is None else {objectives[k].name for k in shown}
    places = [k for k, f in enumerate(certificate.findings) if names is None or f.objective in names]
    console.print(_findings(certificate, places, titles))
    _and_more(console, places, len(certificate.findings))
    if certificate.beliefs:
        console.print(_beliefs(certificate, titles))
    if certificate.floors:
        table = _table("Thresholds")
        for column in ("objective", "wanted", "guaranteed", "shortfall"):
            table.add_column(column, justify="left" if column == "objective" else "right")
        table.add_column("")
        for floor in certificate.floors:
            objective = next(o for o in objectives if o.name == floor.objective)
            bound = "at most" if objective.lower_is_better else "at least"
            table.add_row(
                titles[floor.objective],
                f"{bound} {_format(user_sign(objective, floor.threshold))}",
                _format(user_sign(objective, floor.guaranteed)),
                _format(floor.shortfall),
                "[green]kept[/]" if floor.passed else "[bold red]may be missed[/]",
            )
        console.print(table)
    settings = certificate.settings
    if certificate.evidence in ("held-out", "safety-test"):
        tested = certificate.data.get("tested_on", {})
        console.print(
            f"Tested on {count_of(int(tested.get('episodes', 0)), 'episode')} that the policy was not made from; estimator"
            f" {settings.get('estimator')}, bound {settings.get('bound')}. {GRADES[certificate.grade].capitalize()}.",
            highlight=False,
        )
        if "trust" in certificate.diagnostics:
            console.print(escape(certificate.diagnostics["trust"]), highlight=False)
    console.print("[bold]It rests on[/]")
    for text in certificate.assumptions:
        console.print(f"  • {escape(text)}", highlight=False)
    for note in settings.get("notes", []):
        console.print(f"Note: {escape(note)}", style="dim", highlight=False)
    _print_theory(console, certificate, objectives, shown)


def _findings(certificate: Certificate, places: Sequence[int], titles: Mapping[str, str]) -> Table:
    """The gains; the posterior's with their intervals and chances in the place of what is the same for all of them."""
    belief = certificate.beliefs[0] if certificate.beliefs else None
    columns = ["objective", "estimate", "at least", "risk", "accepted loss"]
    if belief is not None:
        columns = ["objective", "estimate", f"{100 * (1.0 - certificate.delta):.4g} % interval"]
        columns += [f"at least ({100 * (1.0 - certificate.findings[0].level):.4g} %)", "no worse"]
        columns += ["if pessimistic"] if belief.p_pessimistic else []
        columns += ["accepted loss"] if any(finding.zeta for finding in certificate.findings) else []
    table = _table("Gain over the baseline (positive is better, for costs too)")
    for column in columns:
        table.add_column(column, justify="left" if column == "objective" else "right")
    table.add_column("")
    for k in places:
        finding = certificate.findings[k]
        least = "nothing" if finding.lower_bound == -math.inf else f"{finding.lower_bound:+.5g}"
        cells = [titles.get(finding.objective, escape(finding.objective)), f"{finding.estimate:+.5g}"]
        if belief is None:
            cells += [least, f"{finding.level:.3g}", _format(finding.zeta)]
        else:
            interval = certificate.diagnostics.get("interval", {}).get(finding.objective)
            cells += ["" if interval is None else f"{interval[0]:+.4g} to {interval[1]:+.4g}", least]
            cells += [f"{100 * p[k]:.4g} %" for p in (belief.p_objective, belief.p_pessimistic) if p]
            cells += [_format(finding.zeta)] if "accepted loss" in columns else []
        table.add_row(*cells, "[green]passed[/]" if finding.passed else "[bold red]not passed[/]")
    return table


def _beliefs(certificate: Certificate, titles: Mapping[str, str]) -> Table:
    """What other priors would say: of all objectives together, and of the one that is least sure."""
    how = ", by linearisation" if certificate.linearised else ""
    table = _table(f"Probability that it is no worse, given the data{how}")
    for column in ("priors", "all objectives", "least sure", "if pessimistic, least sure"):
        table.add_column(column, justify="right" if column == "all objectives" else "left")
    table.add_column("")

    def least(chances: Sequence[float]) -> str:
        if not chances:
            return ""
        k = min(range(len(chances)), key=lambda place: chances[place])
        if chances[k] >= 1.0:
            return "100 % of each"
        name = certificate.findings[k].objective
        return f"{100 * chances[k]:.4g} % {titles.get(name, escape(name))}"

    for place, belief in enumerate(certificate.beliefs):
        table.add_row(
            belief.priors.split(";")[0] if place else "as used",
            f"{100 * belief.p_safe:.4g} ± {100 * belief.error:.2g} %"
            if belief.draws
            else f"{100 * belief.p_safe:.4g} %",
            least(belief.p_objective),
            least(belief.p_pessimistic),
            "[green]passes[/]" if belief.passes(certificate.delta) else "[bold red]does not pass[/]",
        )
    return table


def _print_theory(
    console: Console, certificate: Certificate, objectives: tuple[Objective, ...], shown: Sequence[int] | None
) -> None:
    """What the counts alone prove, beside the range of returns."""
    theory = certificate.theory
    if theory is None:
        return
    titles = {objective.name: _objective_name(objective) for objective in objectives}
    condition = "" if theory.baseline_known else ", if the baseline were known and not estimated"
    table = _table(f"What the counts alone prove, at risk {theory.delta:.3g}{condition}")
    for column in (
        "objective", "range of returns", "loss at most: Proposition 3.1", "after the fact", "states proven safe",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column == "objective" else "right")
    names = None if shown is None else {objectives[k].name for k in shown}
    proofs = [proof for proof in theory.proofs if names is None or proof.objective in names]
    for proof in proofs:
        table.add_row(
            titles.get(proof.objective, escape(proof.objective)),
            _format(proof.return_range),
            _format(proof.proposition_loss) + ("" if proof.proposition_informative else " uninformative"),
            _format(proof.proven_loss) + ("" if proof.informative else " uninformative"),
            f"{100 * proof.share_safe:.3g} %",
        )
    console.print(table)


MOST_COLUMNS = 4
"""Objectives that stand side by side in a table of estimators; more stand below each other."""


def print_evaluation(
    rows: Sequence[dict[str, Any]], objectives: tuple[Objective, ...], notes: Sequence[str], *, every: bool = False
) -> None:
    """All estimators side by side, in the user's own sign, and in words which of them to trust.

    With more than `MOST_COLUMNS` objectives: one row each, of the estimators that can be used, and of more than `MOST_ROWS`
    those where the policy looks worst against what was logged, or ``every`` one.
    """
    console = _console()
    console.print()
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(row["estimator"], []).append(row)
    title = f"Expected return, with {100 * rows[0]['level']:.3g} % intervals ({rows[0]['interval']})"
    heads = [_objective_name(o) + (", lower is better" if o.lower_is_better else "") for o in objectives]
    table = _table(title)
    if len(objectives) <= MOST_COLUMNS:
        table.add_column("estimator", no_wrap=True)
        for head in heads:
            table.add_column(head, justify="right")
        for name, own in by_name.items():
            table.add_row("as logged" if name == "logged" else name, *(_estimate(row) for row in own))
    else:
        usable = [name for name, own in by_name.items() if name != "logged" and own[0]["usable"]]
        shown = usable or [name for name in by_name if name == "dr"]
        table.add_column("objective")
        for name in ("as logged", *shown):
            table.add_column(name, justify="right")
        places = list(range(len(objectives)))
        if not every and shown and len(places) > MOST_ROWS:
            places = sorted(sorted(places, key=lambda k: _looks(objectives[k], by_name, shown[0], k))[:MOST_ROWS])
        for k in places:
            table.add_row(heads[k], *(_estimate(by_name[name][k]) for name in ("logged", *shown)))
    console.print(table)
    if len(objectives) > MOST_COLUMNS:
        left = (
            ""
            if len(places) == len(objectives)
            else f"Shown are the {len(places)} of {len(objectives)} objectives that"
        )
        left += " look worst against what was logged; --all shows every one. " if left else ""
        console.print(f"{left}All estimators: --json, or -o FILE.", style="dim", highlight=False)
    doubts = _table("What doubts it")
    doubts.add_column("estimator", no_wrap=True)
    for column in ("effective episodes", "mean weight", "largest", "never seen", "episodes with unseen", "usable"):
        doubts.add_column(column, justify="right")
    for name, own in by_name.items():
        if name == "logged":
            continue
        first, weighted = own[0], name != "model"
        doubts.add_row(
            name,
            f"{first['effective_sample_size']:,.0f} of {first['episodes']:,}" if weighted else "",
            f"{first['mean_weight']:.3g}" if weighted else "",
            f"{first['largest_weight']:.3g}" if weighted else "",
            f"{100 * first['unsupported_share']:.3g} %",
            f"{first['unsupported_episodes']:,}",
            "[green]yes[/]" if first["usable"] else "[yellow]no[/]",
        )
    console.print(doubts)
    by_text: dict[str, list[str]] = {}
    for row in rows:
        if row["estimator"] != "logged" and row["estimator"] not in by_text.setdefault(row["trust"], []):
            by_text[row["trust"]].append(row["estimator"])
    for text, whose in by_text.items():
        console.print(f"  • {', '.join(whose)}: {escape(text)}", highlight=False)
    for note in notes:
        console.print(f"Note: {escape(note)}", style="dim", highlight=False)


def _estimate(row: dict[str, Any]) -> str:
    edges = "" if math.isnan(row["low"]) else f"  [{row['low']:.4g}, {row['high']:.4g}]"
    return escape(_format(row["value"]) + edges)


def _looks(objective: Objective, by_name: Mapping[str, Sequence[dict[str, Any]]], estimator: str, k: int) -> float:
    """How much better an objective looks by an estimator than what was logged, relative to that."""
    own, logged = (by_name[name][k]["value"] for name in (estimator, "logged"))
    return float(user_sign(objective, own - logged) / max(abs(logged), 1e-12))


def json_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows for JSON, which has no NaN or infinity: null."""
    return [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
        for row in rows
    ]


def _moves(moves: tuple[tuple[str, float, float], ...], most: int = 2, smallest: float = 5e-4) -> str:
    """The largest moves of one direction; those too small to be seen in print are only counted."""
    seen = [move for move in moves if abs(move[2] - move[1]) >= smallest][:most] or list(moves[:1])
    shown = [f"{escape(action)} {_percent(before)}→{_percent(after)} %" for action, before, after in seen]
    return ", ".join(shown) + (f" and {len(moves) - len(seen)} more" if len(moves) > len(seen) else "")


def _percent(share: float) -> str:
    """In percent; what would print as 0.0 is 0, for rounding of solvers leaves 1e-17 where nothing is."""
    return f"{100 * share:.3g}" if share >= 5e-4 else "0" if share < 1e-9 else "<0.1"


def run_json(run: Run, path: Path, changes: int = 15) -> dict[str, Any]:
    """A run for programs; returns in the user's own sign."""
    return {
        "run": str(path),
        "changed": run.changed,
        **run.info,
        "objectives": [
            {
                **dataclasses.asdict(objective),
                "baseline_return": user_sign(objective, float(before)),
                "policy_return": user_sign(objective, float(after)),
            }
            for objective, before, after in zip(run.objectives, run.baseline_return, run.policy_return, strict=True)
        ],
        "largest_changes": [dataclasses.asdict(change) for change in largest_changes(run, changes)],
        "certificate": None if run.certificate is None else certificate_json(run.certificate),
    }


def print_description(description: Description, data: str, baseline_source: str) -> None:
    """What a careful person would want to see first."""
    console = _console()
    d = description
    console.print()
    console.print(f"[bold]{escape(data)}[/]", highlight=False)
    table = _table()
    table.show_header = False
    table.add_column(style="dim")
    table.add_column()
    cut = f", {d.truncated:,} cut off before the process ended" if d.truncated else ""
    table.add_row(
        "rows",
        f"{d.rows:,} in {d.episodes:,} episodes of {d.length_min:,} to {d.length_max:,} steps (mean {d.length_mean:.1f}){cut}",
    )
    never = f", {d.states_never_left:,} of them never acted in" if d.states_never_left else ""
    table.add_row("states", f"{d.states:,}{never}")
    table.add_row("actions", f"{d.actions:,}")
    table.add_row("pairs tried", f"{d.pairs:,} of {d.pairs_possible:,} ({100 * d.pairs / d.pairs_possible:.3g} %)")
    names = {0: "least", 50: "median", 100: "most"}
    times = ", ".join(f"{names.get(percent, f'{percent} %')} {value:,.4g}" for percent, value in d.count_quantiles)
    table.add_row("times tried", times)
    table.add_row(
        "tried fewer than 10 times",
        f"{d.few:,} pairs ({100 * d.few_share_of_pairs:.3g} % of those tried, {100 * d.few_share_of_rows:.3g} % of the rows)",
    )
    coverage = "" if d.baseline_coverage is None else f"; {100 * d.baseline_coverage:.4g} % of what it plays was tried"
    table.add_row("baseline", f"{baseline_source}{coverage}")
    console.print(table)
    table = _table("Objectives, as discounted returns per episode")
    for column in ("objective", "discount", "reward", "mean return", "sd", "lowest", "highest"):
        table.add_column(column, justify="left" if column == "objective" else "right")
    for o in d.objectives:
        name = (
            escape(o.title)
            + (f" ({escape(o.unit)})" if o.unit else "")
            + (" [dim]lower is better[/]" if o.lower_is_better else "")
        )
        returns = (o.return_mean, o.return_sd, o.return_min, o.return_max)
        table.add_row(
            name,
            f"{o.discount:g}",
            f"{o.reward_min:.4g} … {o.reward_max:.4g}",
            *("–" if math.isnan(x) else f"{x:.4g}" for x in returns),
        )
    console.print(table)
    if d.problems:
        console.print("[bold]Worth knowing[/]")
        for problem in d.problems:
            console.print(f"  • {escape(problem)}", highlight=False)
    else:
        console.print("Nothing odd was found.", style="dim")


def print_demo(result: Demo, output: Path | None) -> None:
    """The three policies side by side: what the log suggests, and the simulator's truth."""
    console = _console()
    rows = result.rows
    console.print()
    console.print(
        f"[bold]{result.dataset.n_episodes:,} patients with sepsis, {result.dataset.n_rows:,} treatment decisions[/], drawn from the"
        " ICU-Sepsis benchmark as its clinicians act.\nTwo wishes: patients survive, and nobody gets a treatment that is hardly ever"
        " given in their state.",
        highlight=False,
    )
    table = _table()
    table.add_column("policy")
    for column in (
        "survival: the log suggests",
        "the truth",
        "rare treatments: the log suggests",
        "the truth",
    ):
        table.add_column(column, justify="right")
    true_before = rows[0][2]
    for name, estimated, true in rows:
        cells = [name]
        for k in range(2):
            sign = 1.0 if k == 0 else -1.0
            worse = true[k] < true_before[k] - 1e-9
            text = f"{sign * true[k]:.2f}"
            cells += [f"{sign * estimated[k]:.2f}", f"[bold red]{text} worse[/]" if worse else text]
        table.add_row(*cells)
    console.print(table)
    asked, got = result.safe.policy_return - result.safe.baseline_return, result.true_safe - true_before
    losses = [name for name, change in zip(("survival", "rare treatments"), got, strict=True) if change < 0.0]
    verdict = f"is worse on {' and '.join(losses)}" if losses else "is worse on neither"
    console.print(
        f"Plain RL promises itself {result.greedy.policy_return[0] - result.safe.baseline_return[0]:+.1f} on survival; the simulator's"
        f" truth is {result.true_greedy[0] - true_before[0]:+.1f}, with {result.true_greedy[1] / true_before[1]:.1f} times the rare"
        f" treatments.\nbettersafe asks for {asked[0]:+.1f}, gets {got[0]:+.2f}, and {verdict}. It changes {result.safe.changed.size}"
        f" of {result.model.mdp.n_states} states.",
        highlight=False,
    )
    console.print(
        "Survival is 100 for a patient who lives and −100 for one who dies, discounted; rare treatments cost 10 each. A simulator's"
        " truth, not medical advice.",
        style="dim",
        highlight=False,
    )
    if output is not None:
        console.print(
            f"Written: {output}/cohort.parquet, {output}/run, and as many new patients in {output}/later.parquet. Try:\n"
            f"  bettersafe show {output}/run\n"
            f"  bettersafe report {output}/run --open\n"
            f"  bettersafe evaluate {output}/run {output}/later.parquet\n"
            f"  bettersafe certify {output}/run {output}/later.parquet",
            highlight=False,
        )


def discretization_json(result: Discretization, output: Path) -> dict[str, Any]:
    """A discretised log for programs."""
    return {
        "output": str(output),
        "k": result.discretizer.n_states,
        "features": [dataclasses.asdict(rule) for rule in result.discretizer.features],
        "passed_on": list(result.passed_on),
        "parts": {
            name: {
                "rows": part.rows,
                "episodes": part.episodes,
                "states": part.states,
                "explained": part.explained if math.isfinite(part.explained) else None,
            }
            for name, part in result.parts.items()
        },
    }


def print_discretization(result: Discretization, output: Path) -> None:
    """What was written, from which features, and what is lost."""
    console = _console()
    console.print()
    rules = result.discretizer.features
    by_rule: dict[str, list[str]] = {}
    for rule in rules:
        by_rule.setdefault(rule.transform, []).append(rule.name)
    console.print(
        f"[bold]{result.discretizer.n_states:,} states from {count_of(len(rules), 'feature')}[/]", highlight=False
    )
    for transform, names in by_rule.items():
        console.print(f"  {transform}: {escape(', '.join(names))}", highlight=False)
    if result.passed_on:
        console.print(f"  passed on: {escape(', '.join(result.passed_on))}", highlight=False)
    rows = [(name, part.rows, part.episodes, part.states, part.explained) for name, part in result.parts.items()]
    _print_parts(console, rows, "episodes", output)


def print_prepared(document: dict[str, Any], output: Path) -> None:
    """A prepared cohort: sizes, cuts, and what is odd."""
    console = _console()
    _print_cohort(console, document)
    rows = [
        (f"{name}.parquet", part["rows"], part["stays"], part["states"], part["explained"])
        for name, part in document["parts"].items()
    ]
    _print_parts(console, rows, "stays", output)
    _print_notes(console, document["notes"])


def print_splits(documents: Sequence[dict[str, Any]], output: Path) -> None:
    """Prepared splits of one cohort: what they share, and a line for each."""
    from bettersafe.studies.mimic import split_name

    console = _console()
    _print_cohort(console, documents[0])
    table = _table()
    table.add_column("split")
    for column in ("seed", "stays: train", "valid", "test", "variance kept: train", "test"):
        table.add_column(column, justify="right")
    for i, document in enumerate(documents):
        parts = document["parts"]
        sizes = [f"{part['stays']:,}" for part in parts.values()]
        kept = [_share(parts[part]["explained"]) for part in ("train", "test")]
        table.add_row(split_name(i), str(document["settings"]["seed"]), *sizes, *kept)
    console.print(table)
    console.print(
        f"Saved to {escape(str(output))}. The study: bettersafe study run sepsis/mimic --data {escape(str(output))}",
        style="dim",
        highlight=False,
    )
    _print_notes(console, documents[0]["notes"])


def _print_cohort(console: Console, document: dict[str, Any]) -> None:
    counts = document["counts"]
    console.print()
    console.print(
        f"[bold]{counts['stays']:,} stays, {counts['rows']:,} blocks of four hours[/]; {counts['survived']:,} survived,"
        f" {counts['died']:,} died ({escape(document['settings']['outcome'])}).",
        highlight=False,
    )
    units = {"vaso": ("vasopressor", "µg/kg/min"), "iv": ("fluid", "mL in 4 h")}
    for name, (title, unit) in units.items():
        cuts = ", ".join(f"{cut:.4g}" for cut in document["cuts"][name])
        bins = ", ".join(f"{count:,}" for count in document["bins"][name])
        console.print(f"{title}: cut at {cuts} {unit}; rows with none and in bins 1 to 4: {bins}", highlight=False)


def _print_notes(console: Console, notes: Sequence[str]) -> None:
    for note in notes:
        console.print(f"Note: {escape(note)}", style="dim", highlight=False)


def _share(explained: float | None) -> str:
    return "–" if explained is None or math.isnan(explained) else f"{100 * explained:.3g} %"


def _print_parts(
    console: Console, rows: Sequence[tuple[str, int, int, int, float | None]], episodes: str, output: Path
) -> None:
    table = _table()
    table.add_column("log")
    for column in ("rows", episodes, "states", "variance kept"):
        table.add_column(column, justify="right")
    for name, n_rows, n_episodes, states, explained in rows:
        table.add_row(name, f"{n_rows:,}", f"{n_episodes:,}", f"{states:,}", _share(explained))
    console.print(table)
    console.print(
        f"Saved to {escape(str(output))}, with the map in discretizer.parquet. A cluster is not a Markov state: what the log"
        " promises rests on the assumption that it nearly is.",
        style="dim",
        highlight=False,
    )
