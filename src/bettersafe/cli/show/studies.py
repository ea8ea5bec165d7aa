"""Studies, the demonstration and prepared cohorts, on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from bettersafe.cli.show.logs import print_parts, share_kept
from bettersafe.cli.show.tables import new_console, new_table, print_notes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from bettersafe.studies.catalogue import Entry
    from bettersafe.studies.demo import Demo
    from bettersafe.typing import Json


def print_studies(catalogue: Mapping[str, Entry]) -> None:
    """Print the list of studies."""
    console = new_console()
    table = new_table()
    for column in ("id", "about", "full size"):
        table.add_column(column)
    for study_id, entry in catalogue.items():
        table.add_row(study_id, escape(entry.about), f"{entry.full} {entry.unit}")
    console.print(table)


def print_demo(result: Demo, output: Path | None) -> None:
    """Print the three policies side by side: estimates from the log, and true returns of the simulator."""
    console = new_console()
    rows = result.rows
    console.print()
    console.print(
        f"[bold]{result.dataset.n_episodes:,} patients with sepsis, {result.dataset.n_rows:,} treatment decisions[/], simulated with the"
        " clinicians' policy of the ICU-Sepsis benchmark.\nTwo objectives: survival, and few treatments that are rarely given in the"
        " patient's state.",
        highlight=False,
    )
    table = new_table()
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
        f"Plain RL estimates {result.greedy.policy_return[0] - result.safe.baseline_return[0]:+.1f} on survival; the true change is"
        f" {result.true_greedy[0] - true_before[0]:+.1f}, with {result.true_greedy[1] / true_before[1]:.1f} times the rare"
        f" treatments.\nbettersafe estimates {asked[0]:+.1f}, gets {got[0]:+.2f}, and {verdict}. It changes {result.safe.changed.size}"
        f" of {result.model.mdp.n_states} states.",
        highlight=False,
    )
    console.print(
        "Survival is 100 for a patient who lives and −100 for one who dies, discounted; rare treatments cost 10 each. The truth is"
        " that of a simulator; this is not medical advice.",
        style="dim",
        highlight=False,
    )
    if output is not None:
        console.print(
            f"Written: {output}/cohort.parquet, {output}/run, and the same number of new patients in {output}/later.parquet. Try:\n"
            f"  bettersafe show {output}/run\n"
            f"  bettersafe report {output}/run --open\n"
            f"  bettersafe evaluate {output}/run {output}/later.parquet\n"
            f"  bettersafe certify {output}/run {output}/later.parquet",
            highlight=False,
        )


def print_prepared(document: Json, output: Path) -> None:
    """Print a prepared cohort: sizes, cuts and notes."""
    console = new_console()
    _print_cohort(console, document)
    rows = [
        (f"{name}.parquet", part["rows"], part["stays"], part["states"], part["explained"])
        for name, part in document["parts"].items()
    ]
    print_parts(console, rows, "stays", output)
    print_notes(console, document["notes"])


def print_splits(documents: Sequence[Json], output: Path) -> None:
    """Print prepared splits of one cohort: the cohort, and one line per split."""
    from bettersafe.studies.sepsis.mimic import split_name

    console = new_console()
    _print_cohort(console, documents[0])
    table = new_table()
    table.add_column("split")
    for column in ("seed", "stays: train", "valid", "test", "variance kept: train", "test"):
        table.add_column(column, justify="right")
    for i, document in enumerate(documents):
        parts = document["parts"]
        sizes = [f"{part['stays']:,}" for part in parts.values()]
        kept = [share_kept(parts[part]["explained"]) for part in ("train", "test")]
        table.add_row(split_name(i), str(document["settings"]["seed"]), *sizes, *kept)
    console.print(table)
    console.print(
        f"Saved to {escape(str(output))}. To run the study: bettersafe study run sepsis/mimic --data {escape(str(output))}",
        style="dim",
        highlight=False,
    )
    print_notes(console, documents[0]["notes"])


def _print_cohort(console: Console, document: Json) -> None:
    counts = document["counts"]
    console.print()
    console.print(
        f"[bold]{counts['stays']:,} stays, {counts['rows']:,} blocks of four hours[/]; {counts['survived']:,} survived,"
        f" {counts['died']:,} died ({escape(document['settings']['outcome'])}).",
        highlight=False,
    )
    groups = document.get("statistics", {})  # not written by earlier versions
    for group, found in groups.items():
        if found["stays"]:
            console.print(
                f"{group}: {found['stays']:,} stays, {found['female']:.1f} % female, mean age {found['age']:.1f} years,"
                f" {found['hours']:.1f} hours on average",
                highlight=False,
            )
    units = {"vaso": ("vasopressor", "µg/kg/min"), "iv": ("fluid", "mL in 4 h")}
    for name, (title, unit) in units.items():
        cuts = ", ".join(f"{cut:.4g}" for cut in document["cuts"][name])
        bins = ", ".join(f"{count:,}" for count in document["bins"][name])
        console.print(f"{title}: cut at {cuts} {unit}; rows with none and in bins 1 to 4: {bins}", highlight=False)
