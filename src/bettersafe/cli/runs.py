"""Commands about runs: improve, explore, evaluate, certify, verify, report, show."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from bettersafe.tasks.settings import BY_NAME, COLUMNS, OBJECTIVE, OF_EACH_TEST, OF_POSTERIOR, TEST, Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.evaluation.evaluate import EstimateRow
    from bettersafe.runs.run import Run


MUCH_MEMORY = 0.2e9  # bytes; a larger need is announced in advance
KEEP_BASELINE = 3

FOLDS = Setting(
    name="folds",
    kind="whole number",
    default=5,
    metavar="K",
    group=TEST,
    help="Folds for cross-fitting: models of dr, wdr and drl are fitted on K-1 folds and applied to the other",
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
FROM_RUN = {"otherwise": "the run's"}
TEST_OPTIONS = options(
    "delta", "zeta", "threshold", "estimator", "bound", "levels", "coverage", "truncation",
    delta=FROM_RUN, zeta=FROM_RUN, threshold=FROM_RUN, estimator=FROM_RUN, bound=FROM_RUN, levels=FROM_RUN, coverage=FROM_RUN,
    truncation=FROM_RUN,
)  # fmt: skip
POSTERIOR_OPTIONS = options(
    *OF_POSTERIOR, "seed", "engine",
    **{BY_NAME[name].parameter: POSTERIOR if name in OF_EACH_TEST else {**POSTERIOR, **FROM_RUN} for name in OF_POSTERIOR},
    seed={"help": "Seed of the folds or of the draws", "least": 0},
    engine={**POSTERIOR, "choices": {"ray": "a Ray cluster"}, "more": "", "help": "Where to draw", "otherwise": "this machine"},
)  # fmt: skip
IN_BOTH = ("delta", "zeta", "seed")
UNUSED = {
    "a test on held-out episodes, without --posterior": tuple(
        row for row in (*TEST_OPTIONS, FOLDS) if row.name not in IN_BOTH
    ),
    "--posterior": tuple(row for row in POSTERIOR_OPTIONS if row.name not in IN_BOTH),
}
"""Options of `certify` that only one kind of evidence uses, by that kind."""


@takes(
    *options(engine={"choices": {**BY_NAME["engine"].choices, "ray": "b-opt draws on a Ray cluster"}}),
    later=("no_report", "address", "every"),
)
def improve(
    given: Given,
    data: DataArgument = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="RUN", help="Directory to write the run to.")
    ] = None,
    task: TaskOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing run.")] = False,
    no_report: NoReportOption = False,
    address: AddressOption = None,
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Improve on the baseline by your preference, without loss on any objective.

    Example: [bold]bettersafe improve visits.csv -o RUN --objective survival
    --objective pain=0 --lower-is-better pain[/bold]

    Returns the best of many policies that loses on no objective with
    probability 1 - delta, given the log. Exit code 3: keep the baseline.
    """
    from bettersafe._system.files import check_free
    from bettersafe._system.memory import memory_note
    from bettersafe.cli import show
    from bettersafe.runs.run import MARK, save_run
    from bettersafe.tasks.outcomes import memory_needed
    from bettersafe.tasks.run import run_task
    from bettersafe.typing import Event

    engine = given.get("engine")
    cluster = cluster_from(engine, address, others=BY_NAME["engine"].choices)
    if engine == "ray":
        del given["engine"]
    job = task_from(given, data=data, task=task)
    if output is None:
        raise typer.BadParameter("say where to write the run, e.g. -o RUN", param_hint="--output / -o")
    if cluster is not None and not METHODS[job.resolved_method].posterior:
        raise typer.BadParameter(
            f"is only for the draws of b-opt; the method is {job.resolved_method}", param_hint="--engine ray"
        )
    check_free(output, mark=MARK, force=force)
    if job.source.is_counts:
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
        typer.echo(f"Saved to {output}. For more, run: bettersafe show {output}")
        _print_report_path(page)
    _exit_with_decision(run)


@takes(
    *options(
        method={
            "choices": {name: facts.sentence for name, facts in METHODS.items() if facts.explorable},
            "otherwise": "s-opt",
        },
        epsilon={"help": "Initial budget of the slider", "methods": ()},
        delta={"help": "Initial risk of the slider"},
        hold_out={"brief": "", "help": "Refused: the explorer uses the whole log", "otherwise": ""},
        horizon={
            "brief": "",
            "help": "Refused: the explorer's posterior has no horizon",
            "more": "",
            "otherwise": "",
            "methods": (),
        },
    )
)
def explore(
    given: Given,
    data: DataArgument = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for saved runs.")] = Path(
        "runs"
    ),
    task: TaskOption = None,
    port: Annotated[
        int,
        typer.Option(
            metavar="P", min=0, max=65535, show_default=False, help="Port on this machine. (default: any free port)"
        ),
    ] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the link only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help='Print {"url": …} as the first line, and nothing else.')
    ] = False,
) -> None:
    """Explore trade-offs on a local page: move the preference and see returns, posterior and changed decisions.

    Example: [bold]bettersafe explore visits.csv --objective survival --objective pain --lower-is-better pain[/bold]

    The page is served to this machine only, until Ctrl-C. "Keep this one" saves a run as [bold]improve[/bold] would.
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
            typer.echo(f"The explorer is at {explorer.url}\nThe link works once, on this machine. Ctrl-C stops it.")
            sys.stdout.flush()
        if not no_browser:
            open_browser(explorer.url)

    serve(explorer, ready=ready)


@takes(
    *options("objective", "lower_is_better", "discount", "baseline"),
    *options("horizon", horizon={"methods": (), "more": "", "otherwise": "the run's, or no limit"}),
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
    """Estimate a policy's returns from a log of another policy: all estimators, intervals and diagnostics.

    Example: [bold]bettersafe evaluate RUN later.csv[/bold], or
    [bold]bettersafe evaluate policy.csv later.csv --objective survival --objective pain --lower-is-better pain[/bold]

    A run has its objectives and columns; for a policy file give them as options. Use a log that the policy was not made from.
    """
    from bettersafe.cli import show
    from bettersafe.evaluation.references import reference_rows
    from bettersafe.logs._reader.files import data_digest
    from bettersafe.runs.evaluation_file import write_evaluation
    from bettersafe.runs.run import Decision, load_run
    from bettersafe.tasks.evidence import evaluate_saved, evidence_for_policy, evidence_for_run, known_log

    same, refused, horizon = False, False, None
    if not policy.exists():
        raise ParameterError(f"there is no {policy}. Name a run directory, or a policy file.")
    with show.working("Reading and evaluating") as progress:
        if policy.is_dir():
            if data is None:
                raise typer.BadParameter("name a file of logged decisions", param_hint="DATA")
            if task or any(row.parameter in given for row in (*OBJECTIVE, BY_NAME["baseline"])):
                raise typer.BadParameter(
                    "a run directory has its objectives and baseline; give them only with a policy file",
                    param_hint="POLICY",
                )
            run = load_run(policy)
            refused = run.has_proposal and run.decision is Decision.KEEP_BASELINE
            opened = evidence_for_run(run, data, columns=columns_over_run(run, given), progress=progress)
            horizon = run.info.horizon
            same = known_log(run, data, data_digest(data)) is not None
        else:
            job = task_from(given, data=data, task=task)
            opened, horizon = evidence_for_policy(policy, job, progress=progress), job.horizon
        with opened as evidence:
            asked = settings_from(given, "delta", "interval", "folds")
            chosen = {"rng": given.get("seed", 0), "horizon": given.get("horizon", horizon)}
            rows = evaluate_saved(evidence, **asked, **chosen)
            asked.pop("folds", None)
            references = reference_rows(evidence.log, evidence.baseline, **{"delta": 0.1, **asked}, **chosen)
    if output is not None:
        write_evaluation(output, rows)
    notes = [*evidence.notes]
    if refused:
        notes.append("the policy is the run's proposal, which was refused: the run's decision is to keep the baseline")
    if same:
        notes.append("this is the log that the policy was made from: every estimate on it is optimistic")
    if as_json:
        show.print_json({"rows": show.json_rows(rows), "references": references, "notes": notes})
    else:
        show.print_evaluation(rows, evidence.log.objectives, notes, every=every)
        show.print_references(references, evidence.log.objectives)
        if output is not None:
            typer.echo(f"Written to {output}.")


@takes(*TEST_OPTIONS, FOLDS, *POSTERIOR_OPTIONS, *COLUMNS, later=("address", "no_report", "every"))
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
            help="Compute the posterior instead of a test; HELD_OUT may then be the log that the policy was made from.",
            rich_help_panel=TEST,
        ),
    ] = False,
    plan: Annotated[
        int | None,
        typer.Option(
            "--plan",
            metavar="N",
            min=2,
            help="Make no test: say what a test on N other episodes could show. HELD_OUT is then the log that the policy was made from.",
            rich_help_panel=TEST,
        ),
    ] = None,
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

    Exit code 0: use the policy; 3: keep the baseline. A run is tested once: testing again until a test passes invalidates the
    risk.
    """
    from bettersafe.cli import show
    from bettersafe.runs.run import load_run, save_certificate
    from bettersafe.tasks.retest import HeldOutTest, certify_run
    from bettersafe.tasks.retest_posterior import PosteriorTest, certify_run_posterior

    if posterior and plan is not None:
        raise typer.BadParameter("is only for a test on held-out episodes, without --posterior", param_hint="--plan")
    _check_used(given, posterior=posterior, address=address)
    saved = load_run(run)
    if plan is not None:
        _plan(given, saved, data, plan, as_json=as_json)
        return
    cluster = cluster_from(given.get("engine"), address)
    columns = columns_over_run(saved, given)
    with show.working("Reading" if posterior else "Reading and testing") as progress:
        if posterior:
            question = PosteriorTest(**settings_from(given, "delta", "zeta", "seed", *OF_POSTERIOR))
            certificate = certify_run_posterior(
                saved, data, question, columns=columns, cluster=cluster, force=force, progress=progress
            )
            rows: Sequence[EstimateRow] = ()
        else:
            test = HeldOutTest(**settings_from(given, *(row.name for row in TEST_OPTIONS), "folds", "seed"))
            certificate, rows = certify_run(saved, data, test, columns=columns, force=force, progress=progress)
        tested = save_certificate(run, certificate, rows)
    _show_outcome(tested, as_json=as_json, every=every, page=write_page(run, no_report))


def _plan(given: Given, saved: Run, data: str, episodes: int, *, as_json: bool) -> None:
    """Say what a test on more episodes could show."""
    from bettersafe.cli import show
    from bettersafe.tasks.plan import plan_document, plan_run
    from bettersafe.tasks.retest import HeldOutTest

    test = HeldOutTest(**settings_from(given, *(row.name for row in TEST_OPTIONS), "folds", "seed"))
    with show.working("Reading and planning") as progress:
        found = plan_run(
            saved, data, test, episodes=episodes, columns=columns_over_run(saved, given), progress=progress
        )
    if as_json:
        show.print_json(plan_document(found, saved.objectives, episodes))
    else:
        show.print_plan(found, saved.objectives, episodes)


def _check_used(given: Given, *, posterior: bool, address: str | None) -> None:
    """Raise BadParameter for an option that the chosen kind of evidence does not use."""
    kind = list(UNUSED)[0 if posterior else 1]
    for row in UNUSED[kind]:
        if row.parameter in given:
            raise typer.BadParameter(f"is only for {kind}", param_hint=row.flag)
    if address is not None and not posterior:
        raise typer.BadParameter(f"is only for {kind}", param_hint="--address")


def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="HELD_OUT", help="The log that it was tested on; the test is then repeated."),
    ] = None,
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check that a run is unchanged and that its certificate belongs to its policy.

    Example: [bold]bettersafe verify RUN --data held-out.csv[/bold]

    Exit code 0: unchanged; 3: unchanged, keep the baseline; 1: a file was altered.
    """
    from bettersafe.cli import show
    from bettersafe.runs.run import load_run
    from bettersafe.tasks.verify import verify_run

    with show.working("Checking"):
        certificate = verify_run(run, data=data)
    if not as_json and certificate is None:
        typer.echo(f"{run}: the policy is unchanged. There is no certificate, which would also check run.json.")
    elif not as_json:
        again = "" if data is None else " The test was repeated, with the same result."
        typer.echo(f"{run} is unchanged, and the certificate belongs to its policy.{again}")
    _show_outcome(load_run(run), as_json=as_json, every=every)


def _show_outcome(run: Run, *, as_json: bool, every: bool, page: Path | None = None) -> None:
    """Print a run's decision, certificate and report path, and exit with the decision's code."""
    from bettersafe.cli import show

    if as_json:
        show.print_json(show.outcome_json(run))
    else:
        show.print_outcome(run, every=every)
        _print_report_path(page)
    _exit_with_decision(run)


def _exit_with_decision(run: Run) -> None:
    """Exit with code 3 if the decision is to keep the baseline."""
    from bettersafe.runs.run import Decision

    if run.decision is Decision.KEEP_BASELINE:
        raise typer.Exit(KEEP_BASELINE)


def write_page(run: Path, left_out: bool) -> Path | None:
    """Write a run's report and return its path; None if it is left out."""
    from bettersafe.cli import show
    from bettersafe.report.page import write_report

    if left_out:
        return None
    with show.working("Writing the report"):
        return write_report(run)


def _print_report_path(page: Path | None) -> None:
    if page is not None:
        typer.echo(f"Report: {page}")


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Output file. (default: RUN/report.html)")
    ] = None,
    show_it: Annotated[bool, typer.Option("--open", help="Open it in the system's browser.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a report: one HTML page about a run, for readers who do not know the tool. It needs no network.

    Example: [bold]bettersafe report RUN --open[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.report.page import write_report

    with show.working("Writing the report"):
        page = write_report(run, output=output)
    if as_json:
        show.print_json({"run": str(run), "report": str(page), "bytes": page.stat().st_size})
    else:
        _print_report_path(page)
    if show_it:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            raise BettersafeError(f"no browser was found; open {page} yourself.")


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    changes: Annotated[int, typer.Option(metavar="N", min=0, help="Number of changes to show, largest first.")] = 15,
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
