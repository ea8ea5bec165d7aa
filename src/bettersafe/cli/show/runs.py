"""Runs and certificates on the terminal, with the wording of `bettersafe.text`."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from rich.markup import escape

from bettersafe.certificate.files import certificate_json
from bettersafe.cli.show.tables import MOST_ROWS, new_console, new_table, objective_name, print_checks, print_notes
from bettersafe.logs.dataset import user_sign
from bettersafe.methods.facts import facts_of
from bettersafe.runs.changes import deciding, largest_changes
from bettersafe.runs.info import PosteriorCandidate
from bettersafe.runs.run import run_json
from bettersafe.text.headlines import optimised_for, summarise
from bettersafe.text.names import (
    GRADES,
    belief_word,
    candidate_outcome,
    certificate_steps,
    floor_word,
    proposed,
    run_steps,
    shorten,
    status,
    with_titles,
)
from bettersafe.text.numbers import chance, change_precision, counted, is_same, number, percent, precision, risk
from bettersafe.text.tones import belief_tone, floor_tone, outcome_tone

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from bettersafe.certificate.certificate import Certificate, Proof
    from bettersafe.runs.info import CandidateInfo, RunInfo
    from bettersafe.runs.run import Run
    from bettersafe.text.headlines import Summary
    from bettersafe.text.tones import Tone
    from bettersafe.typing import Json

COLOURS: dict[Tone, str] = {
    "passed": "green",
    "refused": "red",
    "proposed": "bright_blue",
    "open": "yellow",
    "keep": "yellow",
    "plain": "dim",
}
"""Colour of each tone."""

WIDE = 100
"""Columns of a terminal that has room for intervals beside bounds."""

MODEL = "By the model that made it: optimistic, no evidence"
"""Title of the returns in the estimated model."""


def shown_json(run: Run, path: Path, changes: int = 15) -> Json:
    """JSON of a run: run.json, headline, largest changes and certificate; returns in the user's own sign."""
    return {
        "run": str(path),
        **_summary_json(run),
        **run_json(run),
        "largest_changes": [dataclasses.asdict(change) for change in largest_changes(run, changes)],
        "certificate": None if run.certificate is None else certificate_json(run.certificate),
    }


def outcome_json(run: Run) -> Json:
    """JSON of a certificate, with the decision that follows from it."""
    assert run.certificate is not None
    return {
        "decision": run.decision.to_json(),
        **_summary_json(run),
        **certificate_json(run.certificate),
    }


def _summary_json(run: Run) -> dict[str, str]:
    """Headline of a run, and how many more episodes would decide, for JSON."""
    told = summarise(run)
    return {"headline": told.headline, "more": told.more}


def print_run(run: Run, changes: int, *, every: bool = False) -> None:
    """Print a run: decision, objectives before and after, largest changes; ``every`` objective, or those that decide."""
    console = new_console()
    rows = list(range(len(run.objectives))) if every else deciding(run, MOST_ROWS)
    info, certificate = run.info, run.certificate
    told = _print_headline(console, run)
    if certificate is not None:
        _print_findings(console, run, certificate, rows)
    if certificate is None or certificate.evidence == "theory" or every:
        console.print(_returns(run, rows))
        _and_more(console, rows, len(run.objectives))
    if run.has_proposal and told.detail != info.status:
        console.print(escape(status(run)), style="dim", highlight=False)
    budget = facts_of(info.method).budget
    limit, error = (f" epsilon {info.epsilon:g},", f", error function {info.error_kind}") if budget else ("", "")
    console.print(
        f"{info.method},{limit} delta {info.delta:g}{error}; baseline {info.baseline_source}; {_how_found(info)}.",
        style="dim",
        highlight=False,
    )
    if info.horizon is not None:
        console.print(f"{optimised_for(run)}.", style="dim", highlight=False)
    print_notes(console, info.notes)
    if run.has_proposal:
        console.print(
            f"{info.states_changed:,} of {info.n_states:,} states change; {percent(info.mean_moved)} of a state's decisions move on"
            f" average, {percent(info.largest_moved)} at most.",
            highlight=False,
        )
    if info.states_kept:
        console.print(
            f"States kept because they could not be solved: {escape(', '.join(info.states_kept[:10]))}", style="yellow"
        )
    if every and info.candidates:
        console.print(_candidates(run))
    if changes and run.has_proposal:
        console.print(_changes(run, changes))
    if certificate is not None:
        _print_evidence(console, run, certificate, rows)
    _print_next(console, told)


def print_outcome(run: Run, *, every: bool = False) -> None:
    """Print the decision about a run, and its certificate."""
    console = new_console()
    rows = list(range(len(run.objectives))) if every else deciding(run, MOST_ROWS)
    told = _print_headline(console, run)
    if run.certificate is not None:
        _print_findings(console, run, run.certificate, rows)
        _print_evidence(console, run, run.certificate, rows)
    _print_next(console, told)


def _print_headline(console: Console, run: Run) -> Summary:
    """Print the headline, the sentence behind it, and how many more episodes would decide."""
    told = summarise(run)
    console.print()
    console.print(f"[bold {COLOURS[told.tone]}]{escape(told.headline)}[/]", highlight=False)
    for text in (told.detail, told.more):
        if text:
            console.print(escape(text), highlight=False)
    return told


def _print_next(console: Console, told: Summary) -> None:
    """Print the next step, with its command."""
    command = f" {told.command}" if told.command else ""
    console.print(f"[bold]Next:[/] {escape(told.step + command)}", highlight=False)


def _and_more(console: Console, shown: Sequence[int], d: int) -> None:
    if len(shown) < d:
        console.print(
            f"Shown are the {len(shown)} of {d} objectives that are pursued or least certain; --all shows every one.",
            style="dim",
            highlight=False,
        )


def _names(run: Run) -> dict[str, str]:
    return {objective.name: objective_name(objective) for objective in run.objectives}


def _toned(text: str, tone: Tone) -> str:
    """Text in the colour of its tone."""
    return f"[{COLOURS[tone]}]{text}[/]"


def _titled(title: str, steps: str) -> str:
    """Title of a table, with the steps of its returns."""
    return f"{title}, {steps}" if steps else title


def _returns(run: Run, rows: Sequence[int]) -> Table:
    """Baseline and proposal in the estimated model."""
    table = new_table(_titled(MODEL if run.has_proposal else "In the estimated model", run_steps(run)))
    table.add_column("objective")
    for column in ("weight", "baseline", proposed(run), "change"):
        table.add_column(column, justify="right")
    table.add_column("")
    for k in rows:
        objective = run.objectives[k]
        before, after = float(run.baseline_return[k]), float(run.proposal_return[k])
        same, digits = is_same(before, after), change_precision(before, after)
        word = "[dim]same[/]" if same else ("better" if after > before else "worse")
        table.add_row(
            objective_name(objective) + (" [dim]lower is better[/]" if objective.lower_is_better else ""),
            number(run.info.preference[k], trim=True),
            number(user_sign(objective, before), decimals=digits),
            number(user_sign(objective, after), decimals=digits),
            "0" if same else number(user_sign(objective, after - before), signed=True, decimals=digits),
            word,
        )
    return table


def _how_found(info: RunInfo) -> str:
    """Rounds and optimality gap; for B-OPT, which has no rounds of its own, the number of candidates and the form of the posterior."""
    if facts_of(info.method).posterior:
        how = f"with {counted(int(info.settings.get('draws', 0)), 'draw')} per prior"
        if info.settings.get("form") == "linearised":
            how = "by linearisation, without draws"
        return f"{counted(len(info.candidates), 'candidate')} evaluated {how}"
    return f"{counted(info.rounds, 'round')}, optimality gap {info.gap:.1e}, engine {info.engine}"


def _candidates(run: Run) -> Table:
    """Candidates of H-OPT or B-OPT: gain, probabilities and outcome."""
    asked = any(isinstance(row, PosteriorCandidate) for row in run.info.candidates)
    table = new_table(_titled("Candidates", run_steps(run) if asked else certificate_steps(run)))
    table.add_column("candidate")
    table.add_column("weighted gain", justify="right")
    if asked:
        table.add_column("no worse on any", justify="right")
        table.add_column("probability of a loss, if pessimistic", justify="right")
    table.add_column("")
    for row in run.info.candidates:
        gain = sum(weight * value for weight, value in zip(run.info.preference, row.gain, strict=True))
        cells = [escape(row.name), number(gain, signed=True), *(_believed(row) if asked else ())]
        table.add_row(*cells, ("[bold]{}[/]" if row.chosen else "{}").format(candidate_outcome(row)))
    return table


def _believed(row: CandidateInfo) -> tuple[str, str]:
    """Posterior probabilities of a candidate; "at least" if its evaluation stopped early."""
    if not isinstance(row, PosteriorCandidate):
        return "", ""
    losses = [1.0 - p for p in row.p_pessimistic if not math.isnan(p)]
    more = "" if len(losses) == len(row.p_pessimistic) else "at least "
    return chance(row.p_safe, row.draws), f"{more}{percent(sum(losses))}" if losses else "–"


def _changes(run: Run, n: int) -> Table:
    table = new_table("Largest changes (visits × probability moved)")
    table.add_column("state")
    for column in ("visits", "moved"):
        table.add_column(column, justify="right")
    table.add_column("less of")
    table.add_column("more of")
    for change in largest_changes(run, n):
        table.add_row(
            escape(change.state), f"{change.visits:,}", percent(change.moved), _moves(change.less), _moves(change.more)
        )
    return table


def _moves(moves: tuple[tuple[str, float, float], ...], most: int = 2, smallest: float = 5e-4) -> str:
    """Largest moves in one direction; moves too small to print are only counted."""
    seen = [move for move in moves if abs(move[2] - move[1]) >= smallest][:most] or list(moves[:1])
    shown = [f"{escape(action)} {percent(before)} → {percent(after)}" for action, before, after in seen]
    return ", ".join(shown) + (f" and {len(moves) - len(seen)} more" if len(moves) > len(seen) else "")


def _print_findings(console: Console, run: Run, certificate: Certificate, shown: Sequence[int]) -> None:
    """Print the gains on the objectives ``shown`` by a test or the posterior, and the thresholds."""
    if certificate.evidence != "theory":
        names = {run.objectives[k].name for k in shown}
        places = [k for k, f in enumerate(certificate.findings) if f.objective in names]
        console.print(_findings(run, certificate, places, wide=console.width >= WIDE))
        _and_more(console, places, len(certificate.findings))
    if certificate.floors:
        console.print(_floors(run, certificate))


def _print_evidence(console: Console, run: Run, certificate: Certificate, shown: Sequence[int]) -> None:
    """Print the posterior probabilities, bounds from the counts, assumptions and checks of a certificate."""
    if certificate.beliefs:
        console.print(_beliefs(run, certificate))
    settings = certificate.settings
    if certificate.by_test:
        tested = certificate.data.get("tested_on", {})
        console.print(
            f"Tested on {counted(int(tested.get('episodes', 0)), 'episode')} that the {proposed(run)} was not made from; estimator"
            f" {settings.get('estimator')}, bound {settings.get('bound')}. {GRADES[certificate.grade].capitalize()}.",
            highlight=False,
        )
        if "trust" in certificate.diagnostics:
            console.print(escape(certificate.diagnostics["trust"]), highlight=False)
    if certificate.passes or certificate.evidence != "theory":
        console.print("[bold]Assumptions[/]")
        for text in certificate.assumptions:
            console.print(f"  • {escape(with_titles(text, run))}", highlight=False)
        print_notes(console, settings.get("notes", []))
    _print_theory(console, run, certificate, shown)
    print_checks(console, certificate.checks)


def _findings(run: Run, certificate: Certificate, places: Sequence[int], *, wide: bool) -> Table:
    """Gains per objective; for the posterior with probabilities and, if ``wide``, intervals instead of the common risk and loss."""
    belief = certificate.beliefs[0] if certificate.beliefs else None
    columns = ["objective", "estimate", "at least", "risk", "accepted loss"]
    if belief is not None:
        columns = ["objective", "estimate", *([f"{risk(1.0 - certificate.delta)} interval"] if wide else [])]
        columns += [f"at least ({risk(1.0 - certificate.findings[0].level)})".replace(" %", "\u00a0%"), "no worse"]
        columns += ["if pessimistic"] if belief.p_pessimistic else []
        columns += ["accepted loss"] if any(finding.zeta for finding in certificate.findings) else []
    table = new_table(_titled("Gain over the baseline (positive is better, for costs too)", certificate_steps(run)))
    for column in columns:
        table.add_column(column, justify="left" if column == "objective" else "right")
    table.add_column("")
    names = _names(run)
    for k in places:
        finding = certificate.findings[k]
        edges = [float(edge) for edge in certificate.diagnostics.get("interval", {}).get(finding.objective, ())]
        digits = precision(finding.estimate, finding.lower_bound, *edges)
        least = "nothing"
        if finding.lower_bound != -math.inf:
            least = number(finding.lower_bound, signed=True, decimals=digits)
        estimate = number(finding.estimate, signed=True, decimals=digits)
        cells = [names.get(finding.objective, escape(finding.title)), estimate]
        if belief is None:
            cells += [least, risk(finding.level), number(finding.zeta, trim=True)]
        else:
            interval = " to ".join(number(edge, signed=True, decimals=digits) for edge in edges)
            cells += [interval, least] if wide else [least]
            cells += [chance(p[k], belief.draws) for p in (belief.p_objective, belief.p_pessimistic) if p]
            cells += [number(finding.zeta, trim=True)] if "accepted loss" in columns else []
        table.add_row(*cells, _toned(certificate.outcome(k), outcome_tone(certificate, k)))
    return table


def _beliefs(run: Run, certificate: Certificate) -> Table:
    """Posterior probabilities under other priors: all objectives together, and the least certain one."""
    how = ", by linearisation" if certificate.linearised else ""
    table = new_table(f"Probability that it is no worse, given the data{how}")
    for column in ("priors", "all objectives", "least certain", "if pessimistic, least certain"):
        table.add_column(column, justify="right" if column == "all objectives" else "left")
    table.add_column("")
    names = _names(run)

    def least(chances: Sequence[float], draws: int) -> str:
        if not chances:
            return ""
        k = min(range(len(chances)), key=lambda place: chances[place])
        if chances[k] >= 1.0:
            return f"{chance(chances[k], draws)} of each"
        name = certificate.findings[k].objective
        return f"{chance(chances[k], draws)} {names.get(name, escape(name))}"

    for place, belief in enumerate(certificate.beliefs):
        table.add_row(
            escape(shorten(belief.priors.split(";")[0])) if place else "as used",
            chance(belief.p_safe, belief.draws),
            least(belief.p_objective, belief.draws),
            least(belief.p_pessimistic, belief.draws),
            _toned(belief_word(belief, certificate.delta), belief_tone(belief, certificate.delta)),
        )
    return table


def _floors(run: Run, certificate: Certificate) -> Table:
    """Table of thresholds, in the user's own sign."""
    table = new_table(_titled("Thresholds", certificate_steps(run)))
    for column in ("objective", "threshold", "guaranteed", "shortfall"):
        table.add_column(column, justify="left" if column == "objective" else "right")
    table.add_column("")
    objectives = {objective.name: objective for objective in run.objectives}
    for floor in certificate.floors:
        objective = objectives[floor.objective]
        bound = "at most" if objective.lower_is_better else "at least"
        table.add_row(
            objective_name(objective),
            f"{bound} {number(user_sign(objective, floor.threshold), trim=True)}",
            number(user_sign(objective, floor.guaranteed)),
            number(floor.shortfall, trim=True),
            _toned(floor_word(floor), floor_tone(certificate, floor)),
        )
    return table


def _loss_after_the_fact(proof: Proof) -> str:
    """Proven loss, or the proven gain if there is one."""
    if proof.gain_at_least > 0.0:
        return f"none: a gain of at least {number(proof.gain_at_least)}"
    return number(proof.proven_loss) + ("" if proof.informative else " uninformative")


def _print_theory(console: Console, run: Run, certificate: Certificate, shown: Sequence[int]) -> None:
    """Print the bounds from the counts alone, beside the range of returns."""
    theory = certificate.theory
    if theory is None:
        return
    condition = "" if theory.baseline_known else ", if the baseline were known and not estimated"
    table = new_table(_titled(f"Bounds from the counts alone, at risk {risk(theory.delta)}{condition}", run_steps(run)))
    for column in (
        "objective", "range of returns", "loss at most: Proposition 3.1", "after the fact", "states proven safe",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column == "objective" else "right")
    names, wanted = _names(run), {run.objectives[k].name for k in shown}
    for proof in (proof for proof in theory.proofs if proof.objective in wanted):
        table.add_row(
            names[proof.objective],
            number(proof.return_range),
            number(proof.proposition_loss) + ("" if proof.proposition_informative else " uninformative"),
            _loss_after_the_fact(proof),
            percent(proof.share_safe),
        )
    console.print(table)
