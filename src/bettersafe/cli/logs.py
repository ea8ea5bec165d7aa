"""Commands about logs: init, describe, count, merge, discretize."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from bettersafe.cli.options import (
    SHARDS_PANEL,
    CountsArgument,
    Given,
    JsonOption,
    TaskOption,
    columns_given,
    options,
    takes,
    task_from,
)
from bettersafe.tasks.settings import COLUMNS, LOG, RARE

if TYPE_CHECKING:
    from bettersafe._system.workers import Place


def init(
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help=f"{LOG}."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.toml", help="The task file to write. (default: task.toml)")
    ] = Path("task.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Draft a task file from a log's columns: a guess for each column with its reason, and a list of open questions.

    Example: [bold]bettersafe init visits.csv -o task.toml[/bold] then [bold]bettersafe describe --task task.toml[/bold]

    For a large file only the first rows are read. Check the guesses before you use the file.
    """
    from bettersafe.cli import show
    from bettersafe.tasks.draft import start_json, write_start

    with show.working("Looking at the columns"):
        start = write_start(data, output, force=force)
    if as_json:
        show.print_json(start_json(start, data, output))
    else:
        show.print_start(start, output)


DISCOUNT = {"help": "Discount in [0, 1], of all objectives or of one"}


@takes(
    *options("objective", "lower_is_better", "discount", "label", "unit", discount=DISCOUNT),
    *RARE,
    *options("baseline"),
    *COLUMNS,
)
def describe(
    given: Given,
    data: CountsArgument = None,
    task: TaskOption = None,
    as_json: JsonOption = False,
) -> None:
    """Summarise a log: sizes, how often each decision was tried, returns, whether the state is enough, and anything unusual.

    Example: [bold]bettersafe describe visits.csv --objective survival --objective pain --lower-is-better pain[/bold]
    """
    from bettersafe.certificate.files import check_json
    from bettersafe.cli import show
    from bettersafe.logs.describe import describe as describe_counts
    from bettersafe.tasks.checks import describe_rows
    from bettersafe.tasks.inputs import task_baseline, task_counts

    job = task_from(given, data=data, task=task)
    with show.working("Reading and counting") as progress:
        counts = task_counts(job, progress=progress)
        baseline = task_baseline(job, counts)
        description = describe_counts(baseline.noted(counts), baseline=baseline.policy)
        checks, drift = describe_rows(job, counts, baseline, progress=progress)
        description = replace(description, problems=(*description.problems, *drift))
    if as_json:
        show.print_json(
            {**description.to_json(), "baseline": baseline.source, "checks": [check_json(check) for check in checks]}
        )
    else:
        show.print_description(description, job.data, baseline.source, checks)


@takes(
    *options("objective", "lower_is_better", "discount", discount=DISCOUNT),
    *COLUMNS,
    later=("engine", "workers", "address"),
)
def count(
    given: Given,
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA...",
            help="Logs: files or quoted globs, all in one format; a file named twice is counted once.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The .parquet file to write the counts to.")
    ] = None,
    add: Annotated[
        list[Path] | None,
        typer.Option(
            "--add",
            metavar="COUNTS",
            help="Counts of other episodes to add; objectives and columns are theirs unless options give them. Repeat for each.",
        ),
    ] = None,
    task: TaskOption = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Accept logs that were counted before, and episodes that continue in another part."
        ),
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help="Count files in shards: in processes on this machine (local) or on a Ray cluster (ray). If it is killed, the same command continues it. (default: one process, all cores)",
            rich_help_panel=SHARDS_PANEL,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Shards at a time. (default: all cores)", rich_help_panel=SHARDS_PANEL),
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address of the Ray cluster.", rich_help_panel=SHARDS_PANEL)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Count a log once and save the counts: describe and improve then read them instead of the log, in seconds.

    Example: [bold]bettersafe count monday.parquet -o counts.parquet --objective survival[/bold], and a day later
    [bold]bettersafe count tuesday.parquet --add counts.parquet -o counts.parquet[/bold]

    Sums are exact: however a log is split for counting, the result is the same to the last bit.
    """
    from bettersafe.cli import show
    from bettersafe.logs.counts_file import add_files, check_output, save_counts
    from bettersafe.logs.sharded import count_shards, parts_of, remove_parts
    from bettersafe.typing import Event

    job = task_from(given, data=data[0], task=task, add=add or ())
    if output is None:
        raise typer.BadParameter("say where to write the counts, e.g. -o counts.parquet", param_hint="--output / -o")
    check_output(output, inputs=add or [])
    engine = "ray" if engine is None and address is not None else engine
    if workers is not None and engine is None:
        raise typer.BadParameter("needs --engine local or --engine ray", param_hint="--workers")
    with show.working("Reading and counting") as progress:
        if engine is None:
            counts = add_files(
                data,
                objectives=job.objectives,
                columns=job.columns,
                add=add or [],
                force=force,
                progress=progress,
            )
            progress(Event(what="Writing"))
            save_counts(counts, output)
        else:
            parts = parts_of(output)
            counts = count_shards(
                data,
                parts=parts,
                objectives=job.objectives,
                columns=job.columns,
                add=add or [],
                force=force,
                engine=cast("Place", engine),
                workers=workers,
                address=address,
                progress=progress,
            )
            progress(Event(what="Writing"))
            save_counts(counts, output)
            remove_parts(parts)
    show.print_counted(counts, output, as_json=as_json)


def merge(
    counts: Annotated[list[Path], typer.Argument(metavar="COUNTS...", help="Counts files, of different episodes.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The .parquet file to write the sum to.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Merge counts that have a log or an episode in common."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Add the counts of parts of a log, exactly: the result is the same as counting the whole log at once.

    Example: [bold]bettersafe merge counts-0.parquet counts-1.parquet -o counts.parquet[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.logs.counts_file import check_output, merge_files, save_counts
    from bettersafe.typing import Event

    if output is None:
        raise typer.BadParameter("say where to write the counts, e.g. -o counts.parquet", param_hint="--output / -o")
    check_output(output, inputs=counts)
    with show.working("Merging") as progress:
        merged = merge_files(counts, force=force, progress=progress)
        progress(Event(what="Writing"))
        save_counts(merged, output)
    show.print_counted(merged, output, as_json=as_json)


@takes(
    *options(
        "objective",
        "seed",
        "episode",
        "step",
        "action",
        "terminated",
        "truncated",
        "baseline_prob",
        objective={
            "metavar": "COL",
            "brief": "A reward column, never a feature. Repeat it.",
            "help": "A reward column: copied to the log, never a feature. Repeat for each",
            "otherwise": "none",
        },
        seed={
            "help": "Seed of the split and of k-means",
            "brief": "Seed. {default}",
            "least": 0,
            "group": None,
        },
    )
)
def discretize(
    given: Given,
    data: Annotated[
        str,
        typer.Argument(metavar="FEATURES", help="A table: one row per decision, with columns of continuous features."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Directory to write the log and the map to.")
    ] = None,
    k: Annotated[int, typer.Option("--k", metavar="K", min=1, help="Number of states.")] = 750,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COL[:RULE]",
            help="A feature, scaled by zscore, log (z-score of log(0.1 + x)), binary (0 or 1) or none. Repeat for each. (default: every column of numbers without another role, by zscore)",
        ),
    ] = None,
    train_share: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Fit on this share of the episodes; writes train.parquet and test.parquet."),
    ] = None,
    fitted: Annotated[
        Path | None,
        typer.Option(
            metavar="MAP",
            help="Apply a saved map (discretizer.parquet) instead of fitting one; actions are then optional.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Mini-batch k-means: seconds instead of minutes.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Turn continuous features into states by k-means on training episodes, and save the map for new data.

    Example: [bold]bettersafe discretize vitals.csv -o DIR --k 200 --objective survival --train-share 0.7[/bold], and later
    [bold]bettersafe discretize new.csv -o NEW --fitted DIR/discretizer.parquet --objective survival[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.logs.dataset import Columns
    from bettersafe.logs.discretize import discretize_log

    if output is None:
        raise typer.BadParameter("say where to write the log, e.g. -o DIR", param_hint="--output / -o")
    with show.working("Reading") as progress:
        result = discretize_log(
            data,
            output,
            k=k,
            columns=Columns(**columns_given(given)),
            objectives=given.get("objective", ()),
            features=None if feature is None else [_feature(text) for text in feature],
            train_share=train_share,
            fitted=fitted,
            rng=given.get("seed", 0),
            quick=quick,
            force=force,
            progress=progress,
        )
    if as_json:
        show.print_json(show.discretization_json(result, output))
    else:
        show.print_discretization(result, output)


def _feature(text: str) -> Any:
    """Parse COL[:RULE] as (name, transform); a colon without a rule after it belongs to the name."""
    rules = {"zscore": "zscore", "log": "log-zscore", "binary": "binary", "none": "none"}
    name, _, rule = text.rpartition(":")
    return (name, rules[rule]) if name and rule in rules else (text, "zscore")
