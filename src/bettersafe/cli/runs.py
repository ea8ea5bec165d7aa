"""Commands about runs: improve, explore, evaluate, certify, verify, report, show."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bettersafe.cli.options import (
    AddressOption,
    AllOption,
    DataArgument,
    Given,
    JsonOption,
    LogArgument,
    NoReportOption,
    TaskOption,
    cluster_from,
    columns_over_run,
    options,
    settings_from,
    takes,
    task_from,
)
from bettersafe.errors import BettersafeError, ParameterError
from bettersafe.evaluation.facts import APPROXIMATE
from bettersafe.methods.facts import METHODS
from bettersafe.tasks.settings import BY_NAME, COLUMNS, OBJECTIVE, TEST, Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.runs.run import Run


MUCH_MEMORY = 0.2e9  # bytes that are worth a word before they are taken
KEEP_BASELINE = 3

FOLDS = Setting(
    name="folds",
    kind="whole number",
    default=5,
    metavar="K",
    group=TEST,
    help="Parts for cross-fitting: models of dr and wdr are fitted on K-1 of them and used on the other",
)
INTERVAL = Setting(
    name="interval",
    kind="text",
    default="t",
    metavar="NAME",
    group=TEST,
    help="Interval around an estimate",
    choices=dict.fromkeys(APPROXIMATE, ""),
)
POSTERIOR = {"methods": ("--posterior",)}
AS_IN_THE_RUN = {"otherwise": "the run's"}
TESTED = options(
    "delta", "zeta", "threshold", "estimator", "bound", "levels",
    delta=AS_IN_THE_RUN, zeta=AS_IN_THE_RUN, threshold=AS_IN_THE_RUN, estimator=AS_IN_THE_RUN, bound=AS_IN_THE_RUN, levels=AS_IN_THE_RUN,
)  # fmt: skip
BELIEVED = options(
    "draws", "form", "prior", "pessimism", "seed", "engine",
    draws=POSTERIOR, form=POSTERIOR, prior={**POSTERIOR, **AS_IN_THE_RUN}, pessimism={**POSTERIOR, **AS_IN_THE_RUN},
    seed={"help": "Seed of the folds or of the draws", "least": 0},
    engine={**POSTERIOR, "choices": {"ray": "a Ray cluster"}, "more": "", "help": "Where draws are made", "otherwise": "here"},
)  # fmt: skip


@takes(
    *options(engine={"choices": {**BY_NAME["engine"].choices, "ray": "b-opt makes its draws on a Ray cluster"}}),
    later=("no_report", "address", "every"),
)
def improve(
    given: Given,
    data: DataArgument = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="RUN", help="Directory to write the run to.")
    ] = None,
    task: TaskOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run that is there.")] = False,
    no_report: NoReportOption = False,
    address: AddressOption = None,
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Improve on the baseline along your preference, losing on no objective.

    Example: [bold]bettersafe improve visits.csv -o RUN --objective survival
    --objective pain=0 --lower-is-better pain[/bold]

    Of many policies, takes the best that loses on no objective with probability
    1 - delta, given the log. Exit code 3 means: keep the baseline.
    """
    from bettersafe._system.files import check_free
    from bettersafe._system.memory import memory_note
    from bettersafe.cli import show
    from bettersafe.logs.counts_file import is_counts
    from bettersafe.runs.run import MARK, save_run
    from bettersafe.tasks.inputs import memory_needed
    from bettersafe.tasks.run import run_task
    from bettersafe.typing import Event

    engine = given.get("engine")
    cluster = cluster_from(engine, address)
    if engine == "ray":
        del given["engine"]
    job = task_from(given, data=data, task=task)
    if output is None:
        raise typer.BadParameter("say where to write the run, e.g. -o RUN", param_hint="--output / -o")
    if cluster is not None and not METHODS[job.resolved_method].posterior:
        raise typer.BadParameter(
            f"is for the draws of b-opt; the method is {job.resolved_method}", param_hint="--engine ray"
        )
    check_free(output, mark=MARK, force=force)
    if is_counts(job.data):
        needed, what = memory_needed(job)
        if needed >= MUCH_MEMORY:
            typer.echo(f"{memory_note(needed, what)}.", err=True)
    with show.working("Reading and counting") as progress:
        run = run_task(job, progress=progress, cluster=cluster)
        progress(Event(what="Saving the run"))
        save_run(run, output, force=force)
    page = write_page(output, no_report)
    if as_json:
        show.print_json(show.shown_json(run, output))
    else:
        show.print_run(run, changes=5, every=every)
        typer.echo(f"Saved to {output}. See more of it with: bettersafe show {output}")
        _tell(page)
    _leave(run)


@takes(
    *options(
        method={
            "choices": {name: facts.sentence for name, facts in METHODS.items() if facts.explorable},
            "otherwise": "s-opt",
        },
        epsilon={"help": "Budget that the slider starts at", "methods": ()},
        delta={"help": "Risk that the slider starts at"},
        hold_out={"brief": "", "help": "Refused here: the explorer works with all of the log", "otherwise": ""},
    )
)
def explore(
    given: Given,
    data: DataArgument = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder that runs are kept in.")] = Path(
        "runs"
    ),
    task: TaskOption = None,
    port: Annotated[
        int,
        typer.Option(
            metavar="P", min=0, max=65535, show_default=False, help="Port on this machine. (default: any that is free)"
        ),
    ] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the link, and open nothing.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help='Print {"url": …} as the first line, and nothing else.')
    ] = False,
) -> None:
    """Look for a good trade-off on a page: move the preference and see what it costs, what is believed, and what changes.

    Example: [bold]bettersafe explore visits.csv --objective survival --objective pain --lower-is-better pain[/bold]

    The page is served to this machine alone, until Ctrl-C. "Keep this one" saves a run as [bold]improve[/bold] would.
    """
    import json

    from bettersafe.cli import show
    from bettersafe.explore.server import Explorer, open_browser, serve
    from bettersafe.explore.session import open_session
    from bettersafe.tasks.toml import read_task

    job = task_from(given, data=data, task=task)
    with show.working("Reading and counting") as progress:
        session = open_session(
            job,
            base=None if task is None else read_task(task, data=data),
            task_file=None if task is None else str(task),
            progress=progress,
        )
        explorer = Explorer(session, output, port=port)

    def ready() -> None:
        if as_json:
            print(json.dumps({"url": explorer.url}), flush=True)
        else:
            typer.echo(f"The explorer is at {explorer.url}\nThe link works once, on this machine. Ctrl-C ends it.")
            sys.stdout.flush()
        if not no_browser:
            open_browser(explorer.url)

    serve(explorer, ready=ready)


@takes(
    *options("objective", "lower_is_better", "discount", "baseline"),
    *options("delta", delta={"help": "Risk of an interval: its level is 1 - delta"}),
    INTERVAL,
    FOLDS,
    *options("seed", seed={"help": "Seed of the folds", "least": 0}),
    *COLUMNS,
    later=("every",),
)
def evaluate(
    given: Given,
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="A run directory, or a policy file.")],
    data: LogArgument = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Also write the table (.parquet or .csv).")
    ] = None,
    task: TaskOption = None,
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """What a policy would earn, judged from a log that another one made: all estimators, intervals, and what doubts them.

    Example: [bold]bettersafe evaluate RUN later.csv[/bold], or
    [bold]bettersafe evaluate policy.csv later.csv --objective survival --objective pain --lower-is-better pain[/bold]

    A run knows its objectives and columns; a policy file needs them said. Use a log that the policy was not made from.
    """
    from bettersafe.cli import show
    from bettersafe.logs._reader.files import data_digest
    from bettersafe.runs.evaluation_file import write_evaluation
    from bettersafe.runs.run import load_run
    from bettersafe.tasks.evidence import evaluate_saved, evidence_for_policy, evidence_for_run, known_log

    same = False
    if not policy.exists():
        raise ParameterError(f"there is no {policy}. Name a run directory, or a policy file.")
    with show.working("Reading and evaluating") as progress:
        if policy.is_dir():
            if data is None:
                raise typer.BadParameter("name a file of logged decisions", param_hint="DATA")
            if task or any(row.parameter in given for row in (*OBJECTIVE, BY_NAME["baseline"])):
                raise typer.BadParameter(
                    "a run directory knows its objectives and baseline; give them with a policy file",
                    param_hint="POLICY",
                )
            run = load_run(policy)
            opened = evidence_for_run(run, data, columns=columns_over_run(run, given), progress=progress)
            same = known_log(run, data, data_digest(data)) is not None
        else:
            opened = evidence_for_policy(policy, task_from(given, data=data, task=task), progress=progress)
        with opened as evidence:
            rows = evaluate_saved(evidence, **settings_from(given, "delta", "interval", "folds", "seed"))
    if output is not None:
        write_evaluation(output, rows)
    notes = [*evidence.notes]
    if same:
        notes.append("this is the log that the policy was made from: every estimate on it is optimistic")
    if as_json:
        show.print_json({"rows": show.json_rows(rows), "notes": notes})
    else:
        show.print_evaluation(rows, evidence.log.objectives, notes, every=every)
        if output is not None:
            typer.echo(f"Written to {output}.")


@takes(*TESTED, FOLDS, *BELIEVED, *COLUMNS, later=("address", "no_report", "every"))
def certify(
    given: Given,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    data: Annotated[
        str, typer.Argument(metavar="HELD_OUT", help="A log of episodes that the policy was not made from.")
    ],
    posterior: Annotated[
        bool,
        typer.Option(
            "--posterior",
            help="Ask the posterior instead of testing: HELD_OUT may then be the log that the policy was made from.",
            rich_help_panel=TEST,
        ),
    ] = False,
    address: AddressOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the result of an earlier test, which stays on record.")
    ] = False,
    no_report: NoReportOption = False,
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Test a run's policy on held-out episodes, and write its certificate: is it no worse on any objective?

    Example: [bold]bettersafe certify RUN held-out.csv --zeta pain=0.1[/bold]

    Exit code 0: use the policy; 3: keep the baseline. A test may be made once: testing again until one passes breaks the risk
    that was promised.
    """
    from bettersafe.cli import show
    from bettersafe.runs.run import load_run, save_certificate
    from bettersafe.tasks.retest import HeldOutTest, certify_run
    from bettersafe.tasks.retest_posterior import PosteriorTest, certify_run_posterior

    saved = load_run(run)
    cluster = cluster_from(given.get("engine"), address)
    if cluster is not None and not posterior:
        raise typer.BadParameter("is for the draws of --posterior", param_hint="--engine ray")
    columns = columns_over_run(saved, given)
    with show.working("Reading" if posterior else "Reading and testing") as progress:
        if posterior:
            question = PosteriorTest(
                **settings_from(given, "delta", "zeta", "draws", "form", "seed", "prior", "pessimism")
            )
            certificate = certify_run_posterior(
                saved, data, question, columns=columns, cluster=cluster, force=force, progress=progress
            )
            rows: Sequence[dict[str, Any]] = ()
        else:
            test = HeldOutTest(**settings_from(given, *(row.name for row in TESTED), "folds", "seed"))
            certificate, rows = certify_run(saved, data, test, columns=columns, force=force, progress=progress)
        tested = save_certificate(run, certificate, rows)
    _show_outcome(tested, as_json=as_json, every=every, page=write_page(run, no_report))


def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="HELD_OUT", help="The log that it was tested on: then the test is made again."),
    ] = None,
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check that a run is as it was saved, and that its certificate is about the policy beside it.

    Example: [bold]bettersafe verify RUN --data held-out.csv[/bold]

    Exit code 0: whole; 3: whole, and the answer is to keep the baseline; 1: something was altered.
    """
    from bettersafe.cli import show
    from bettersafe.runs.run import load_run
    from bettersafe.tasks.verify import verify_run

    with show.working("Checking"):
        verify_run(run, data=data)
    if not as_json:
        again = "" if data is None else " The test was made again, with the same result."
        typer.echo(f"{run} is as it was saved, and the certificate is about its policy.{again}")
    _show_outcome(load_run(run), as_json=as_json, every=every)


def _show_outcome(run: Run, *, as_json: bool, every: bool, page: Path | None = None) -> None:
    """Print a run's decision and certificate, name the page about it, and leave with its meaning."""
    from bettersafe.cli import show

    if as_json:
        show.print_json(show.outcome_json(run))
    else:
        show.print_outcome(run, every=every)
        _tell(page)
    _leave(run)


def _leave(run: Run) -> None:
    """Exit with the meaning of a run's decision."""
    from bettersafe.runs.run import Decision

    if run.decision is Decision.KEEP_BASELINE:
        raise typer.Exit(KEEP_BASELINE)


def write_page(run: Path, left_out: bool) -> Path | None:
    """Write a run's page; None where it is not wanted."""
    from bettersafe.cli import show
    from bettersafe.report.page import write_report

    if left_out:
        return None
    with show.working("Writing the report"):
        return write_report(run)


def _tell(page: Path | None) -> None:
    if page is not None:
        typer.echo(f"The report for people: {page}")


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to. (default: RUN/report.html)")
    ] = None,
    show_it: Annotated[bool, typer.Option("--open", help="Open it in the system's browser.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write one page about a run, for people who never saw the tool: it opens from disk and needs no network.

    Example: [bold]bettersafe report RUN --open[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.report.page import write_report

    with show.working("Writing the report"):
        page = write_report(run, output=output)
    if as_json:
        show.print_json({"run": str(run), "report": str(page), "bytes": page.stat().st_size})
    else:
        _tell(page)
    if show_it:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            raise BettersafeError(f"no browser was found to open it with; the page is {page}.")


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    changes: Annotated[int, typer.Option(metavar="N", min=0, help="How many of the largest changes to show.")] = 15,
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print a saved run: the decision, the objectives before and after, and where the proposal differs most.

    Example: [bold]bettersafe show RUN --changes 30[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.runs.run import load_run

    saved = load_run(run)
    if as_json:
        show.print_json(show.shown_json(saved, run, changes))
    else:
        show.print_run(saved, changes, every=every)
