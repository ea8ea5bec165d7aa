"""The command line: every command reads its options, calls one library function, prints, and exits with a meaning.

Exit codes: 0 done, 1 bad input (one sentence on stderr), 2 wrong usage, 3 the answer is: keep the baseline.
Results go to stdout, progress and warnings to stderr. Heavy imports wait until a command runs.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from bettersafe.errors import BettersafeError, ParameterError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bettersafe.certificate.certificate import Certificate
    from bettersafe.logs.dataset import Columns, Objective
    from bettersafe.posterior.draws import RayCluster
    from bettersafe.runs.run import Run
    from bettersafe.tasks.task import Task


MUCH_MEMORY = 0.2e9  # bytes that are worth a word before they are taken


KEEP_BASELINE = 3


# What the Tab key offers; the library checks what is given, and a test holds that it takes these.
METHODS = ("auto", "b-opt", "s-opt", "g-opt", "h-opt", "soft-spibb", "adv-linearized", "linearized")


ESTIMATORS = ("is", "pdis", "wis", "cwpdis", "dr", "wdr")


BOUNDS = ("t", "bootstrap", "bca", "hoeffding", "bernstein", "anderson", "betting")


class _Commands(TyperGroup):
    """The commands; an option that is none gets the nearest one that is."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _nearest_option():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _nearest_option():
            return super().invoke(ctx)


@contextmanager
def _nearest_option() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # By name: newer versions of Typer bring a Click of their own.
        if type(error).__name__ == "NoSuchOption":
            typo, command = error.option_name, error.ctx.command  # type: ignore[attr-defined]
            known = [name for option in command.params for name in option.opts if name.startswith("--")]
            error.possibilities = None  # type: ignore[attr-defined]
            error.message = f"there is no option {typo}.{did_you_mean(typo, known)}"  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    name="bettersafe",
    cls=_Commands,
    help="Better on what you prefer, no worse on anything: policies improved from logged decisions with several objectives.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


LOG = "The log: a file or a quoted glob (Parquet, CSV, CSV.gz, JSON lines, Arrow), one row per decision."


LogArgument = Annotated[str | None, typer.Argument(metavar="DATA", help=LOG)]


DataArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="DATA",
        help=f"{LOG} Also what 'bettersafe count' wrote, but for methods and tests that need episodes.",
    ),
]


COLUMNS_PANEL, GOAL_PANEL, DETAILS_PANEL = "Which column is which", "What is wanted", "Details"


TEST_PANEL = "How it is tested"


SHARDS_PANEL = "In shards"


def _column(text: str) -> Any:
    """An option that names a column."""
    return typer.Option(metavar="COL", help=text, rich_help_panel=COLUMNS_PANEL)


def _choice(metavar: str, text: str, choices: tuple[str, ...], panel: str) -> Any:
    """An option; the Tab key offers its ``choices``."""

    def offered(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return typer.Option(metavar=metavar, help=text, rich_help_panel=panel, autocompletion=offered if choices else None)


def _goal(metavar: str, text: str, *choices: str) -> Any:
    """An option that says what is wanted."""
    return _choice(metavar, text, choices, GOAL_PANEL)


def _detail(metavar: str, text: str, *choices: str) -> Any:
    """An option that most people leave alone."""
    return _choice(metavar, text, choices, DETAILS_PANEL)


def _test(metavar: str, text: str, *choices: str) -> Any:
    """An option of the safety test."""
    return _choice(metavar, text, choices, TEST_PANEL)


PriorOption = Annotated[
    str | None,
    _test(
        "NAME",
        "For b-opt and --posterior: hierarchical (a state's actions resemble each other as much as the log says) or support (they do not). (default: hierarchical)",
    ),
]


FormOption = Annotated[
    str | None,
    _test(
        "FORM",
        "For b-opt and --posterior: draws, linearised (to first order, without draws), or auto: draws unless the log has so many transitions that they take very long. (default: auto)",
        "auto",
        "draws",
        "linearised",
    ),
]


PessimismOption = Annotated[
    float | None,
    _test("N", "For b-opt and --posterior: bad visits that pessimistic priors add to every decision. (default: 1)"),
]


EpisodeOption = Annotated[str | None, _column("Column that tells episodes apart. (default: episode)")]


StepOption = Annotated[str | None, _column("Column with the step number, or 'row-order'. (default: step)")]


StateOption = Annotated[str | None, _column("Column with the state. (default: state)")]


ActionOption = Annotated[str | None, _column("Column with the action taken. (default: action)")]


NextStateOption = Annotated[
    str | None, _column("Column with the next state. (default: next_state if there, else the next row's state)")
]


TerminatedOption = Annotated[
    str | None,
    _column("Column that is true where the process ended. (default: terminated if there, else the last row ends)"),
]


TruncatedOption = Annotated[
    str | None, _column("Column that is true where only the logging stopped. (default: truncated if there)")
]


BaselineProbOption = Annotated[
    str | None, _column("Column with the baseline's probability of the action taken. (default: baseline_prob if there)")
]


ObjectiveOption = Annotated[
    list[str] | None,
    _goal(
        "COL[=WEIGHT]",
        "A reward column and its weight in the preference (1 if left out; 0: only protect it). Repeat for each.",
    ),
]


LowerOption = Annotated[list[str] | None, _goal("COL", "An objective that is a cost. Repeat for each.")]


DiscountOption = Annotated[
    list[str] | None, _goal("[COL=]G", "Discount in [0, 1), for all objectives or for one. (default: 0.99)")
]


RangeOption = Annotated[
    list[str] | None,
    _goal(
        "COL=LOW..HIGH",
        "The values that a reward column can have at all, if known. Finite-sample bounds need it of every objective.",
    ),
]


ZetaOption = Annotated[
    list[str] | None, _test("NAME=LOSS", "A loss of return that is accepted on an objective. (default: 0)")
]


ThresholdOption = Annotated[
    list[str] | None,
    _test(
        "NAME=VALUE",
        "What an objective's return must be worth (a cost: at most), else the answer is 'no solution found'.",
    ),
]


EstimatorOption = Annotated[str | None, _test("NAME", "is, pdis, wis, cwpdis, dr or wdr. (default: dr)", *ESTIMATORS)]


BoundOption = Annotated[
    str | None,
    _test(
        "NAME",
        "t, bootstrap or bca (approximate); hoeffding, bernstein, anderson or betting (finite-sample, with is or pdis). (default: t)",
        *BOUNDS,
    ),
]


LevelsOption = Annotated[
    str | None,
    _test(
        "NAME",
        "split: each objective at delta/d; full: each at delta, enough for the verdict. (default: split)",
        "split",
        "full",
    ),
]


FoldsOption = Annotated[int, _test("K", "Models for dr and wdr are fitted on K-1 of K parts, and used on the other.")]


RareOption = Annotated[
    int | None, _goal("N", "Add the objective 'rare': decisions that the data has fewer than N times are penalised.")
]


RareRewardOption = Annotated[float | None, _goal("R", "Its reward. (default: -10)")]


RareWeightOption = Annotated[float | None, _goal("W", "Its weight in the preference. (default: 1)")]


BaselineOption = Annotated[
    str | None,
    _goal(
        "FILE|estimate|logged",
        "The policy that made the data: a policy file (state, action, probability), or 'estimate', or 'logged' (the probability column). (default: logged if the column is there, else estimate)",
    ),
]


TaskOption = Annotated[
    Path | None,
    typer.Option(
        "--task",
        metavar="FILE.toml",
        help="Read all of this from a task file; options given here go before it.",
    ),
]


NoReportOption = Annotated[
    bool, typer.Option("--no-report", help="Don't write RUN/report.html, the page about the run for people.")
]


ErrorKindOption = Annotated[
    str | None, _detail("KIND", "Error function: q (Soft-SPIBB) or l1 (paper, Appendix B.1). (default: q)", "q", "l1")
]


SupportOption = Annotated[int | None, _detail("N", "For l1: the most successors a decision can have, if you know it.")]


UnseenOption = Annotated[
    str | None,
    _detail(
        "RULE",
        "What a decision never tried is worth: end, worst or baseline. S-OPT never uses one. (default: end)",
        "end",
        "worst",
        "baseline",
    ),
]


EngineOption = Annotated[
    str | None, _detail("ENGINE", "auto, native or highs. (default: auto)", "auto", "native", "highs")
]


ImproveEngineOption = Annotated[
    str | None,
    _detail(
        "ENGINE",
        "Of the programs: auto, native or highs; or ray: b-opt makes its draws on a Ray cluster, and the rest here. (default: auto)",
        "auto",
        "native",
        "highs",
        "ray",
    ),
]


AddressOption = Annotated[
    str | None, _detail("ADDRESS", "Of a Ray cluster that makes the draws of b-opt or --posterior.")
]


AllOption = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Show every candidate, and every objective; of more than 12, only those that decide are shown otherwise.",
    ),
]


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]


@app.command()
def init(
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help=LOG),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.toml", help="The task file to write. (default: task.toml)")
    ] = Path("task.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace the file that is there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Begin a task file from a log's columns: a guess for each, with its reason, and what is left to decide.

    Example: [bold]bettersafe init visits.csv -o task.toml[/bold] then [bold]bettersafe describe --task task.toml[/bold]

    Only the first rows of a large file are looked at. Read what it wrote: a guess is no more than that.
    """
    from bettersafe.cli import show
    from bettersafe.tasks.draft import start_json, write_start

    with show.working("Looking at the columns"):
        start = write_start(data, output, force=force)
    if as_json:
        show.print_json(start_json(start, data, output))
    else:
        show.print_start(start, output)


@app.command()
def describe(
    data: DataArgument = None,
    objective: ObjectiveOption = None,
    lower_is_better: LowerOption = None,
    discount: DiscountOption = None,
    rare_below: RareOption = None,
    rare_reward: RareRewardOption = None,
    rare_weight: RareWeightOption = None,
    baseline: BaselineOption = None,
    episode: EpisodeOption = None,
    step: StepOption = None,
    state: StateOption = None,
    action: ActionOption = None,
    next_state: NextStateOption = None,
    terminated: TerminatedOption = None,
    truncated: TruncatedOption = None,
    baseline_prob: BaselineProbOption = None,
    task: TaskOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look at a log before anything else: sizes, how often each decision was tried, returns, and what is odd.

    Example: [bold]bettersafe describe visits.csv --objective survival --objective pain --lower-is-better pain[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.logs.describe import describe as describe_counts
    from bettersafe.tasks.inputs import task_baseline, task_counts

    job = _task(locals())
    with show.working("Reading and counting") as progress:
        counts = task_counts(job, progress=progress)
        policy, source = task_baseline(job, counts)
        description = describe_counts(counts, baseline=policy)
    if as_json:
        show.print_json({**description.to_json(), "baseline": source})
    else:
        show.print_description(description, job.data, source)


@app.command()
def count(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA...",
            help="Logs: files or quoted globs, all of one format; a file that is named twice is counted once.",
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
            help="Counts of other episodes to add; they also say objectives and columns, where no option does. Repeat for each.",
        ),
    ] = None,
    objective: ObjectiveOption = None,
    lower_is_better: LowerOption = None,
    discount: DiscountOption = None,
    episode: EpisodeOption = None,
    step: StepOption = None,
    state: StateOption = None,
    action: ActionOption = None,
    next_state: NextStateOption = None,
    terminated: TerminatedOption = None,
    truncated: TruncatedOption = None,
    baseline_prob: BaselineProbOption = None,
    task: TaskOption = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Count again what was counted before, and episodes that go on in another part."),
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help="Count files in shards: on processes of this machine (local) or a Ray cluster (ray). Killed, it goes on when the same command is given again. (default: in one process, on all cores)",
            rich_help_panel=SHARDS_PANEL,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Shards at a time. (default: all cores)", rich_help_panel=SHARDS_PANEL),
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Of a Ray cluster.", rich_help_panel=SHARDS_PANEL)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Count a log once and keep the counts: describe and improve read them in the place of the log, in no time.

    Example: [bold]bettersafe count monday.parquet -o counts.parquet --objective survival[/bold], and a day later
    [bold]bettersafe count tuesday.parquet --add counts.parquet -o counts.parquet[/bold]

    Counts add up exactly: in whatever parts a log was counted, the result is the same to the last bit.
    """
    from bettersafe.cli import show
    from bettersafe.logs.counts_file import add_files, check_output, save_counts
    from bettersafe.logs.sharded import count_shards, parts_of, remove_parts

    job = _task({**locals(), "data": data[0], "engine": None})  # a task's engine is another thing
    if output is None:
        raise typer.BadParameter("say where to write the counts, e.g. -o counts.parquet", param_hint="--output / -o")
    check_output(output, inputs=add or [])
    engine = "ray" if engine is None and address is not None else engine
    if workers is not None and engine is None:
        raise typer.BadParameter("needs --engine local or --engine ray", param_hint="--workers")
    what: dict[str, Any] = {"objectives": job.objectives, "columns": job.columns, "add": add or [], "force": force}
    with show.working("Reading and counting") as progress:
        if engine is None:
            counts = add_files(data, progress=progress, **what)
            progress("Writing")
            save_counts(counts, output)
        else:
            where: dict[str, Any] = {"engine": engine, "workers": workers, "address": address}
            parts = parts_of(output)
            counts = count_shards(data, parts=parts, progress=progress, **where, **what)
            progress("Writing")
            save_counts(counts, output)
            remove_parts(parts)
    show.print_counted(counts, output, as_json=as_json)


@app.command()
def merge(
    counts: Annotated[list[Path], typer.Argument(metavar="COUNTS...", help="Files of counts, of different episodes.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The .parquet file to write the sum to.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Merge counts that have a log or an episode in common."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Add up counts of parts of a log, exactly: as if one count had read all of it.

    Example: [bold]bettersafe merge counts-0.parquet counts-1.parquet -o counts.parquet[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.logs.counts_file import check_output, merge_files, save_counts

    if output is None:
        raise typer.BadParameter("say where to write the counts, e.g. -o counts.parquet", param_hint="--output / -o")
    check_output(output, inputs=counts)
    with show.working("Merging") as progress:
        merged = merge_files(counts, force=force, progress=progress)
        progress("Writing")
        save_counts(merged, output)
    show.print_counted(merged, output, as_json=as_json)


@app.command()
def improve(
    data: DataArgument = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="RUN", help="Directory to write the run to.")
    ] = None,
    objective: ObjectiveOption = None,
    lower_is_better: LowerOption = None,
    discount: DiscountOption = None,
    rare_below: RareOption = None,
    rare_reward: RareRewardOption = None,
    rare_weight: RareWeightOption = None,
    baseline: BaselineOption = None,
    method: Annotated[
        str | None,
        _goal(
            "METHOD",
            "b-opt (the best of many candidates that the posterior trusts), s-opt (budget, and protection of every objective in every state), g-opt (budget, and protection of every objective over the whole), h-opt (a proposal that must pass a test on held-out episodes), soft-spibb (budget only), adv-linearized (protection only), linearized (neither), or auto: b-opt, unless --epsilon, --threshold or --hold-out is given, which are s-opt's. (default: auto)",
            *METHODS,
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        _goal(
            "E",
            "How far s-opt, g-opt and soft-spibb may leave the baseline, weighted by uncertainty; 0 not at all, inf no limit. (default: 0.1)",
        ),
    ] = None,
    delta: Annotated[
        float | None, _goal("D", "Risk: in the error function, and of accepting a worse policy. (default: 0.1)")
    ] = None,
    reward_range: RangeOption = None,
    hold_out: Annotated[
        float | None,
        _test("SHARE", "Share of episodes to keep apart and test the policy on. (default: 0.3 for h-opt, else 0)"),
    ] = None,
    zeta: ZetaOption = None,
    threshold: ThresholdOption = None,
    estimator: EstimatorOption = None,
    bound: BoundOption = None,
    selection: Annotated[
        str | None,
        _test(
            "RULE",
            "For h-opt: sequential (valid), or paper, or published (both fail more often than delta). (default: sequential)",
            "sequential",
            "paper",
            "published",
        ),
    ] = None,
    levels: LevelsOption = None,
    comparison: Annotated[
        str | None,
        _test(
            "NAME",
            "For h-opt: paired, or published (a fixed number, as if it were known). (default: paired)",
            "paired",
            "published",
        ),
    ] = None,
    draws: Annotated[int | None, _test("M", "For b-opt: processes drawn under every prior. (default: 200)")] = None,
    form: FormOption = None,
    prior: PriorOption = None,
    pessimism: PessimismOption = None,
    candidate: Annotated[
        list[str] | None,
        _goal("FILE", "For b-opt: a policy file of your own to have among the candidates; may be repeated."),
    ] = None,
    seed: Annotated[int | None, _test("S", "Draws what is held out, and b-opt's processes. (default: 0)")] = None,
    error_kind: ErrorKindOption = None,
    support: SupportOption = None,
    unseen: UnseenOption = None,
    engine: ImproveEngineOption = None,
    address: AddressOption = None,
    episode: EpisodeOption = None,
    step: StepOption = None,
    state: StateOption = None,
    action: ActionOption = None,
    next_state: NextStateOption = None,
    terminated: TerminatedOption = None,
    truncated: TruncatedOption = None,
    baseline_prob: BaselineProbOption = None,
    task: TaskOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run that is there.")] = False,
    no_report: NoReportOption = False,
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Improve on the baseline along your preference, losing on no objective.

    Example: [bold]bettersafe improve visits.csv -o RUN --objective survival --objective pain=0 --lower-is-better pain[/bold]

    Weight 0 protects an objective without pursuing it. Many policies are made from the log, and of those that lose on no
    objective with probability 1 - delta, given the log, the best is taken. With [bold]--hold-out 0.3[/bold] (or h-opt) the policy is
    tested on episodes that it was not made from instead. Exit code 3 means: keep the baseline.
    """
    from bettersafe._system.files import check_free
    from bettersafe._system.memory import memory_note
    from bettersafe.cli import show
    from bettersafe.logs.counts_file import is_counts
    from bettersafe.runs.run import MARK, save_run
    from bettersafe.tasks.inputs import memory_needed
    from bettersafe.tasks.run import run_task

    cluster = _cluster(engine, address)
    job = _task({**locals(), "engine": None if engine == "ray" else engine})
    if output is None:
        raise typer.BadParameter("say where to write the run, e.g. -o RUN", param_hint="--output / -o")
    if cluster is not None and job.resolved_method != "b-opt":
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
        progress("Saving the run")
        save_run(run, output, force=force)
    page = _report(output, no_report)
    if as_json:
        show.print_json(show.run_json(run, output))
    else:
        show.print_run(run, changes=5, every=every)
        typer.echo(f"Saved to {output}. See more of it with: bettersafe show {output}")
        _tell(page)
    tested = run.certificate is not None and run.certificate.evidence != "theory"
    missed = run.certificate is not None and any(not floor.passed for floor in run.certificate.floors)
    if not run.changed or missed or (tested and not run.certificate.accepted):  # type: ignore[union-attr]
        raise typer.Exit(KEEP_BASELINE)


@app.command()
def explore(
    data: DataArgument = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder that runs are kept in.")] = Path(
        "runs"
    ),
    objective: ObjectiveOption = None,
    lower_is_better: LowerOption = None,
    discount: DiscountOption = None,
    rare_below: RareOption = None,
    rare_reward: RareRewardOption = None,
    rare_weight: RareWeightOption = None,
    baseline: BaselineOption = None,
    method: Annotated[
        str | None,
        _goal(
            "METHOD",
            "s-opt (protects every objective in every state) or soft-spibb (budget only). (default: s-opt)",
            "s-opt",
            "soft-spibb",
        ),
    ] = None,
    epsilon: Annotated[float | None, _goal("E", "Where the budget's slider starts. (default: 0.1)")] = None,
    delta: Annotated[float | None, _goal("D", "Where the risk's slider starts. (default: 0.1)")] = None,
    reward_range: RangeOption = None,
    zeta: ZetaOption = None,
    threshold: ThresholdOption = None,
    error_kind: ErrorKindOption = None,
    support: SupportOption = None,
    unseen: UnseenOption = None,
    engine: EngineOption = None,
    episode: EpisodeOption = None,
    step: StepOption = None,
    state: StateOption = None,
    action: ActionOption = None,
    next_state: NextStateOption = None,
    terminated: TerminatedOption = None,
    truncated: TruncatedOption = None,
    baseline_prob: BaselineProbOption = None,
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

    job = _task(locals())
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


@app.command()
def evaluate(
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="A run directory, or a policy file.")],
    data: LogArgument = None,
    objective: ObjectiveOption = None,
    lower_is_better: LowerOption = None,
    discount: DiscountOption = None,
    baseline: BaselineOption = None,
    delta: Annotated[float, _goal("D", "Intervals are at level 1 - delta.")] = 0.1,
    interval: Annotated[str, _detail("NAME", "t, bootstrap or bca.")] = "t",
    folds: FoldsOption = 5,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Draws the folds.", rich_help_panel=DETAILS_PANEL)] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Also write the table (.parquet or .csv).")
    ] = None,
    episode: EpisodeOption = None,
    step: StepOption = None,
    state: StateOption = None,
    action: ActionOption = None,
    next_state: NextStateOption = None,
    terminated: TerminatedOption = None,
    truncated: TruncatedOption = None,
    baseline_prob: BaselineProbOption = None,
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
    from bettersafe.runs.run import load_run, write_evaluation
    from bettersafe.tasks.retest import evaluate_saved, evidence_for_policy, evidence_for_run, known_log

    options = locals()
    same = False
    if not policy.exists():
        raise ParameterError(f"there is no {policy}. Name a run directory, or a policy file.")
    with show.working("Reading and evaluating") as progress:
        if policy.is_dir():
            if data is None:
                raise typer.BadParameter("name a file of logged decisions", param_hint="DATA")
            if objective or lower_is_better or discount or baseline or task:
                raise typer.BadParameter(
                    "a run directory knows its objectives and baseline; give them with a policy file",
                    param_hint="POLICY",
                )
            run = load_run(policy)
            opened = evidence_for_run(run, data, columns=_columns_over_run(run, options), progress=progress)
            same = known_log(run, data, data_digest(data)) is not None
        else:
            opened = evidence_for_policy(policy, _task(options), progress=progress)
        with opened as evidence:
            rows = evaluate_saved(evidence, delta=delta, interval=interval, folds=folds, seed=seed)  # type: ignore[arg-type]
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


@app.command()
def certify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    data: Annotated[
        str, typer.Argument(metavar="HELD_OUT", help="A log of episodes that the policy was not made from.")
    ],
    delta: Annotated[float | None, _test("D", "Allowed risk. (default: the run's)")] = None,
    zeta: ZetaOption = None,
    threshold: ThresholdOption = None,
    estimator: EstimatorOption = None,
    bound: BoundOption = None,
    levels: LevelsOption = None,
    folds: FoldsOption = 5,
    posterior: Annotated[
        bool,
        typer.Option(
            "--posterior",
            help="Ask the posterior instead of testing: HELD_OUT may then be the log that the policy was made from.",
            rich_help_panel=TEST_PANEL,
        ),
    ] = False,
    draws: Annotated[int, _test("M", "For --posterior: processes drawn under every prior.")] = 200,
    form: FormOption = None,
    prior: PriorOption = None,
    pessimism: PessimismOption = None,
    engine: Annotated[
        str | None, _detail("ENGINE", "For --posterior: ray makes the draws on a Ray cluster.", "ray")
    ] = None,
    address: AddressOption = None,
    seed: Annotated[
        int,
        typer.Option(metavar="S", min=0, help="Draws the folds or the processes.", rich_help_panel=TEST_PANEL),
    ] = 0,
    episode: EpisodeOption = None,
    step: StepOption = None,
    state: StateOption = None,
    action: ActionOption = None,
    next_state: NextStateOption = None,
    terminated: TerminatedOption = None,
    truncated: TruncatedOption = None,
    baseline_prob: BaselineProbOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the result of an earlier test, which stays on record.")
    ] = False,
    no_report: NoReportOption = False,
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Test a run's policy on held-out episodes, and write its certificate: is it no worse on any objective?

    Example: [bold]bettersafe certify RUN held-out.csv --zeta pain=0.1[/bold]

    Exit code 0: accepted; 3: keep the baseline. A test may be made once: testing again until one passes breaks the risk
    that was promised.
    """
    from bettersafe.cli import show
    from bettersafe.runs.run import load_run, save_certificate
    from bettersafe.tasks.retest import TESTS, certificates_before, certify_run, certify_run_posterior

    options = locals()
    saved = load_run(run)
    cluster = _cluster(engine, address)
    if cluster is not None and not posterior:
        raise typer.BadParameter("is for the draws of --posterior", param_hint="--engine ray")
    tested = [each for each in certificates_before(saved) if each["evidence"] == TESTS[0]]
    if posterior and tested and not force:
        passed = "passed" if all(each["accepted"] for each in tested) else "did not pass"
        raise ParameterError(
            f"{run} was tested on held-out episodes, and {passed}: that says more than the posterior, whose answer would stand in its"
            " place. --force asks it all the same; the test stays on record."
        )
    if posterior:
        with show.working("Reading") as progress:
            believed = certify_run_posterior(
                saved,
                data,
                delta=delta,
                zeta=_by_name(zeta, "--zeta"),
                draws=draws,
                form=form or "auto",  # type: ignore[arg-type]
                seed=seed,
                prior=prior,  # type: ignore[arg-type]
                pessimism=pessimism,
                columns=_columns_over_run(saved, options),
                cluster=cluster,
                progress=progress,
            )
            save_certificate(run, believed, ())
        _show_certificate(believed, saved, as_json=as_json, every=every, page=_report(run, no_report))
        return
    if tested and not force:
        raise ParameterError(
            f"{run} was tested already. Testing again until a test passes breaks the promise; --force replaces the result"
            " if you know why."
        )
    with show.working("Reading and testing") as progress:
        certificate, rows = certify_run(
            saved,
            data,
            delta=delta,
            zeta=_by_name(zeta, "--zeta"),
            threshold=_by_name(threshold, "--threshold"),
            estimator=estimator,  # type: ignore[arg-type]
            bound=bound,  # type: ignore[arg-type]
            levels=levels,  # type: ignore[arg-type]
            folds=folds,
            seed=seed,
            columns=_columns_over_run(saved, options),
            progress=progress,
        )
        save_certificate(run, certificate, rows)
    _show_certificate(certificate, saved, as_json=as_json, every=every, page=_report(run, no_report))


@app.command()
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

    Exit code 0: whole and accepted; 3: whole, and the answer is to keep the baseline; 1: something was altered.
    """
    from bettersafe.cli import show
    from bettersafe.runs.run import load_run
    from bettersafe.tasks.retest import verify_run

    with show.working("Checking"):
        certificate = verify_run(run, data=data)
    if not as_json:
        again = "" if data is None else " The test was made again, with the same result."
        typer.echo(f"{run} is as it was saved, and the certificate is about its policy.{again}")
    _show_certificate(certificate, load_run(run), as_json=as_json, every=every)


def _show_certificate(
    certificate: Certificate, run: Run, *, as_json: bool, every: bool, page: Path | None = None
) -> None:
    """Print a certificate, name the page about it, and leave with its meaning."""
    from bettersafe.certificate.files import certificate_json
    from bettersafe.cli import show
    from bettersafe.runs.run import deciding

    if as_json:
        show.print_json(certificate_json(certificate))
    else:
        shown = None if every else deciding(replace(run, certificate=certificate), show.MOST_ROWS)
        show.print_certificate(certificate, run.objectives, shown=shown)
        _tell(page)
    if not certificate.accepted:
        raise typer.Exit(KEEP_BASELINE)


def _report(run: Path, left_out: bool) -> Path | None:
    """Write a run's page; None where it is not wanted."""
    from bettersafe.cli import show
    from bettersafe.report import write_report

    if left_out:
        return None
    with show.working("Writing the report"):
        return write_report(run)


def _tell(page: Path | None) -> None:
    if page is not None:
        typer.echo(f"The report for people: {page}")


@app.command()
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
    from bettersafe.report import write_report

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


@app.command()
def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    changes: Annotated[int, typer.Option(metavar="N", min=0, help="How many of the largest changes to show.")] = 15,
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print a saved run: the objectives before and after, and where the policy differs most.

    Example: [bold]bettersafe show RUN --changes 30[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.runs.run import load_run

    saved = load_run(run)
    if as_json:
        show.print_json(show.run_json(saved, run, changes))
    else:
        show.print_run(saved, changes, every=every)


@app.command()
def demo(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Also write the cohort (cohort.parquet), the run (run/) and new patients (later.parquet) here, to try the other commands on.",
        ),
    ] = None,
    patients: Annotated[int, typer.Option(metavar="N", min=100, help="Size of the cohort.")] = 20_954,
    epsilon: Annotated[float, typer.Option(metavar="E", help="Budget of S-OPT.")] = 0.1,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Seed of the cohort.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Improve on clinicians in a simulator of sepsis care, and see what the simulator says the result is worth.

    Example: [bold]bettersafe demo -o sepsis[/bold] then [bold]bettersafe show sepsis/run[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.studies.demo import check_demo_free, demo_json, run_demo, write_demo

    if output is not None:
        check_demo_free(output, force=force)
    with show.working("Drawing a cohort and improving on it"):
        result = run_demo(patients=patients, epsilon=epsilon, seed=seed)
        if output is not None:
            write_demo(result, output, force=force)
            _report(output / "run", left_out=False)
    if as_json:
        show.print_json(demo_json(result))
    else:
        show.print_demo(result, output)


studies = typer.Typer(
    help="The paper's studies, run again: [bold]study list[/bold], [bold]study run ID[/bold], [bold]study figures DIR[/bold].\n\n"
    "Example: [bold]bettersafe study run gridworld/fixed[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


app.add_typer(studies, name="study")


@studies.command("list")
def study_list(as_json: JsonOption = False) -> None:
    """Which studies there are.

    Example: [bold]bettersafe study list[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.studies.catalogue import CATALOGUE

    if as_json:
        entries = [{"id": key, "about": e.about, "full": e.full, "unit": e.unit} for key, e in CATALOGUE.items()]
        show.print_json(entries)
    else:
        show.print_studies(CATALOGUE)


@studies.command("run")
def study_run(
    study_id: Annotated[str, typer.Argument(metavar="ID", help="A study of 'bettersafe study list'.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Where it is kept. (default: study-ID in this folder)"),
    ] = None,
    cmdps: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Gridworlds: how many random CMDPs; 3 is a smoke run. (default: all)"),
    ] = None,
    worlds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Garnets: how many random worlds. (default: 250)")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            metavar="D", help="gridworld/bopt, gridworld/bopt-scaling, garnet/bopt: allowed risk. (default: 0.1)"
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Sepsis: how many cohorts or splits. (default: 10)")
    ] = None,
    patients: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Sepsis: patients in a cohort. (default: 20954)")
    ] = None,
    cohort: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="Sepsis: a fresh cohort for each seed, or one fixed, split anew."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="Sepsis: the clinicians' policy is estimated, or known (the simulator's)."),
    ] = None,
    unseen: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="Sepsis: what was never tried leads to death, end or the baseline's value."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Sepsis: estimates as ours, or as in the published code.")
    ] = None,
    without: Annotated[
        str | None,
        typer.Option(metavar="METHOD", help="Sepsis: leave out b-opt, which takes most of the time."),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="sepsis/mimic: what 'bettersafe sepsis prepare' wrote, one split or a folder of them; may be repeated.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Draws the CMDPs or cohorts, and the logs.")] = 0,
    engine: Annotated[str, typer.Option(metavar="ENGINE", help="local (this machine's cores) or ray.")] = "local",
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Experiments at a time. (default: all cores)")
    ] = None,
    address: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Of a Ray cluster.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a study. Killed, it goes on where it was when the same command is given again.

    Example: [bold]bettersafe study run gridworld/fixed --cmdps 3 -o smoke[/bold] then
    [bold]bettersafe study figures smoke[/bold]; [bold]bettersafe study run sepsis/icu --seeds 2[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.studies.catalogue import make_study
    from bettersafe.studies.sweep import run_sweep

    study = make_study(
        study_id, seed=seed, cmdps=cmdps, worlds=worlds, delta=delta, seeds=seeds, patients=patients, cohort=cohort,
        baseline=baseline, unseen=unseen, preset=preset, without=without, data=data or None,
    )  # fmt: skip
    folder = output or Path("study-" + study_id.replace("/", "-"))
    with show.counting(f"{study_id}: experiments") as progress:
        result = run_sweep(study, folder, engine=engine, workers=workers, address=address, progress=progress)  # type: ignore[arg-type]
    if as_json:
        show.print_json(
            {
                "study": study_id,
                "folder": str(folder),
                "rows": str(result.rows),
                "done": result.done,
                "skipped": result.skipped,
                "seconds": round(result.seconds, 3),
            }
        )
    else:
        were = "was" if result.skipped == 1 else "were"
        had = f" ({result.skipped} {were} there already)" if result.skipped else ""
        typer.echo(
            f"{show.count_of(result.done, 'experiment')} in {result.seconds:.1f} s{had}. Rows are in {result.rows}; figures and tables with:"
            f" bettersafe study figures {folder}"
        )


@studies.command("figures")
def study_figures(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a study.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where to. (default: DIR/figures)")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a study's figures (PNG and SVG) and write its tables, with the published values beside ours.

    Example: [bold]bettersafe study figures study-gridworld-fixed[/bold]. What is there of an unfinished study is drawn, and
    says so. Without the extra 'plots' (Matplotlib) only the tables are written.
    """
    from bettersafe.cli import show
    from bettersafe.studies.figures import write_figures

    with show.working("Drawing"):
        written = write_figures(folder, output)
    if as_json:
        show.print_json([str(path) for path in written])
    else:
        for path in written:
            typer.echo(str(path))


@app.command()
def discretize(
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
            help="A feature, made comparable by zscore, log (z-score of log(0.1 + x)), binary (0 or 1) or none. Repeat for each. (default: every column of numbers without another role, by zscore)",
        ),
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(metavar="COL", help="A reward column: passed on, and never a feature. Repeat for each."),
    ] = None,
    train_share: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Fit on this share of the episodes; writes train.parquet and test.parquet."),
    ] = None,
    fitted: Annotated[
        Path | None,
        typer.Option(
            metavar="MAP",
            help="Apply a saved map (discretizer.parquet) instead of fitting one. Then no actions are needed.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Mini-batch k-means: seconds instead of minutes.")] = False,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Draws the split and the starts of k-means.")] = 0,
    episode: EpisodeOption = None,
    step: StepOption = None,
    action: ActionOption = None,
    terminated: TerminatedOption = None,
    truncated: TruncatedOption = None,
    baseline_prob: BaselineProbOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Turn continuous features into states, by k-means on training episodes, and keep the map for new data.

    Example: [bold]bettersafe discretize vitals.csv -o DIR --k 200 --objective survival --train-share 0.7[/bold], and later
    [bold]bettersafe discretize new.csv -o NEW --fitted DIR/discretizer.parquet --objective survival[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.logs.dataset import Columns
    from bettersafe.logs.discretize import discretize_log

    if output is None:
        raise typer.BadParameter("say where to write the log, e.g. -o DIR", param_hint="--output / -o")
    named = {
        "episode": episode, "step": step, "action": action, "terminated": terminated, "truncated": truncated,
        "baseline_prob": baseline_prob,
    }  # fmt: skip
    with show.working("Reading") as progress:
        result = discretize_log(
            data,
            output,
            k=k,
            columns=Columns(**{role: name for role, name in named.items() if name is not None}),
            objectives=objective or (),
            features=None if feature is None else [_feature(text) for text in feature],
            train_share=train_share,
            fitted=fitted,
            seed=seed,
            quick=quick,
            force=force,
            progress=progress,
        )
    if as_json:
        show.print_json(show.discretization_json(result, output))
    else:
        show.print_discretization(result, output)


def _feature(text: str) -> Any:
    """COL[:RULE] as (name, transform); what follows a colon that is no rule belongs to the name."""
    rules = {"zscore": "zscore", "log": "log-zscore", "binary": "binary", "none": "none"}
    name, _, rule = text.rpartition(":")
    return (name, rules[rule]) if name and rule in rules else (text, "zscore")


sepsis_app = typer.Typer(
    help="The sepsis study on MIMIC-III, for people with access to it.\n\n"
    "Example: [bold]bettersafe sepsis prepare sepsis_mimiciii.csv MIMICtable.csv -o DIR[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


app.add_typer(sepsis_app, name="sepsis")


@sepsis_app.command("prepare")
def sepsis_prepare(
    cohort: Annotated[Path, typer.Argument(metavar="COHORT", help="sepsis_mimiciii.csv: one row per stay.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="MIMICtable.csv: one row per four hours, 59 columns.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Directory to write the logs and the map to.")
    ] = None,
    k: Annotated[int, typer.Option("--k", metavar="K", min=1, help="Number of states.")] = 750,
    iv_bins: Annotated[
        str,
        typer.Option(
            metavar="RULE",
            help="Fluid is cut at 500, 1000, 2000 mL (clinical, the published code) or by quarters (quartile, the paper).",
        ),
    ] = "clinical",
    outcome: Annotated[
        str, typer.Option(metavar="COL", help="Who died: died_in_hosp (the paper) or mortality_90d.")
    ] = "died_in_hosp",
    quick: Annotated[bool, typer.Option("--quick", help="Mini-batch k-means: seconds instead of minutes.")] = False,
    starts: Annotated[int, typer.Option(metavar="N", min=1, help="Starts of the full k-means.")] = 10,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Draws the split by stay.")] = 0,
    splits: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Write N splits, DIR/split-00 and so on, with seeds from S; 10 for the paper's tables. Stopped, it goes on.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the two tables of the published MIMIC-III cohort, and write them as logs with states.

    Example: [bold]bettersafe sepsis prepare sepsis_mimiciii.csv MIMICtable.csv --splits 10 -o DIR[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.studies.mimic import prepare_mimic, prepare_splits

    if output is None:
        raise typer.BadParameter("say where to write the logs, e.g. -o DIR", param_hint="--output / -o")
    options: dict[str, Any] = {
        "k": k, "iv_bins": iv_bins, "outcome": outcome, "seed": seed, "quick": quick, "n_init": starts, "force": force,
    }  # fmt: skip
    with show.working("Reading") as progress:
        if splits is None:
            document = prepare_mimic(cohort, table, output, progress=progress, **options)
        else:
            documents = prepare_splits(cohort, table, output, splits=splits, progress=progress, **options)
    if as_json:
        show.print_json(document if splits is None else documents)
    elif splits is None:
        show.print_prepared(document, output)
    else:
        show.print_splits(documents, output)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"bettersafe {installed('bettersafe')}")
        raise typer.Exit


def main() -> None:
    """Entry point: our own errors print one sentence, bugs keep their traceback."""
    code = _run()
    # Everything is written and closed. Arrow's thread pools, destroyed by a normal exit, abort the process about once in
    # three hundred times ("terminate called without an active exception"); so leave without destroying them.
    sys.stderr.flush()
    os._exit(code)


def _run() -> int:
    """Run the command line; returns the exit code."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            try:
                app()
            finally:
                for message in dict.fromkeys(str(warning.message) for warning in caught):
                    typer.echo(f"Note: {message}", err=True)
    except SystemExit as leave:
        try:
            sys.stdout.flush()
        except OSError as error:
            _complain(f"the output can't be written: {error.strerror}.")
            return 1
        return leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BettersafeError as error:
        _complain(str(error))
    except BrokenPipeError:  # the reader of our output has gone
        pass
    except OSError as error:  # a disk that is full, a folder that is not ours: theirs to mend
        _complain(f"{error.filename or 'a file'}: {error.strerror or error}.")
    except KeyboardInterrupt:
        return 130
    return 1


def _complain(message: str) -> None:
    from bettersafe.cli.show import print_error

    print_error(message)


def _task(options: dict[str, Any]) -> Task:
    """The task file with the given options put over it."""
    import dataclasses

    from bettersafe.logs.dataset import Columns
    from bettersafe.tasks.task import Rare, Task
    from bettersafe.tasks.toml import read_task

    base = read_task(options["task"], data=options["data"]) if options["task"] is not None else None
    if options["data"] is None and base is None:
        raise typer.BadParameter("name a file of logged decisions, or a task file with --task", param_hint="DATA")
    known = None if base else _counted(options.get("add") or [options["data"]])
    columns = base.columns if base else known.columns if known else Columns()
    given = {f.name: options[f.name] for f in dataclasses.fields(Columns) if options[f.name] is not None}
    settings: dict[str, Any] = {"columns": dataclasses.replace(columns, **given)}
    if options["data"] is not None:
        settings["data"] = options["data"]
    objectives = _objectives(options, base.objectives if base else known.objectives if known else ())
    settings["objectives"] = objectives
    if options.get("rare_below") is not None:
        extra = {"reward": options["rare_reward"], "weight": options["rare_weight"]}
        old = (
            base.derived[0] if base and base.derived else Rare(discount=objectives[0].discount if objectives else 0.99)
        )
        given = {key: value for key, value in extra.items() if value is not None}
        settings["derived"] = (dataclasses.replace(old, below=options["rare_below"], **given),)
    elif options.get("rare_reward") is not None or options.get("rare_weight") is not None:
        raise typer.BadParameter("needs --rare-below N", param_hint="--rare-reward / --rare-weight")
    for key in ("zeta", "threshold"):
        if options.get(key):
            settings[key] = {**(getattr(base, key) if base else {}), **_by_name(options[key], f"--{key}")}
    plain = (
        "baseline", "method", "epsilon", "delta", "error_kind", "support", "unseen", "engine", "hold_out", "estimator",
        "bound", "selection", "levels", "comparison", "draws", "form", "prior", "pessimism", "seed",
    )  # fmt: skip
    for key in plain:
        if options.get(key) is not None:
            settings[key] = options[key]
    if options.get("candidate"):
        settings["candidates"] = tuple(options["candidate"])
    return dataclasses.replace(base, **settings) if base else Task(**settings)


def _cluster(engine: str | None, address: str | None) -> RayCluster | None:
    """Where draws are to be made, if not here."""
    from bettersafe.posterior.draws import RayCluster

    if address is not None and engine not in (None, "ray"):
        raise typer.BadParameter(f"is for --engine ray; got {engine}", param_hint="--address")
    return RayCluster(address=address) if engine == "ray" or address is not None else None


def _counted(paths: list[Any]) -> Task | None:
    """What a file of counts, the first of ``paths``, says of its objectives and columns; None where it is none."""
    from bettersafe.logs.counts_file import counted_columns, counted_objectives, is_counts
    from bettersafe.tasks.task import Task

    if not is_counts(paths[0]):
        return None
    return Task(data=str(paths[0]), objectives=counted_objectives(paths[0]), columns=counted_columns(paths[0]))


def _objectives(options: dict[str, Any], known: tuple[Objective, ...]) -> tuple[Objective, ...]:
    import dataclasses

    from bettersafe.logs.dataset import Objective

    if options["objective"]:
        objectives = {}
        for text in options["objective"]:
            name, weight = _name_and_number(text, "--objective")
            old = next((o for o in known if o.name == name), Objective(name=name))
            objectives[name] = old if weight is None else dataclasses.replace(old, weight=weight)
    else:
        objectives = {o.name: o for o in known}

    def named(name: str, option: str) -> Objective:
        if name not in objectives:
            raise ParameterError(
                f"{option} {name}: there is no such objective; there are {', '.join(objectives) or 'none'}."
                f"{did_you_mean(name, objectives)}"
            )
        return objectives[name]

    for name in options["lower_is_better"] or []:
        objectives[name] = dataclasses.replace(named(name, "--lower-is-better"), lower_is_better=True)
    for text in options["discount"] or []:
        name, sign, number = text.rpartition("=")
        value = _float(number, "--discount")
        for target in [name] if sign else list(objectives):
            objectives[target] = dataclasses.replace(named(target, "--discount"), discount=value)
    for text in options.get("reward_range") or []:
        name, _, edges = text.rpartition("=")
        low, dots, high = edges.partition("..")
        if not (name and dots):
            raise typer.BadParameter(f"{text!r} must be COL=LOW..HIGH, such as pain=0..10", param_hint="--reward-range")
        pair = (_float(low, "--reward-range"), _float(high, "--reward-range"))
        objectives[name] = dataclasses.replace(named(name, "--reward-range"), reward_range=pair)
    return tuple(objectives.values())


def _columns_over_run(run: Run, options: dict[str, Any]) -> Columns | None:
    """The run's columns with the given options put over them; None where none was given."""
    import dataclasses

    from bettersafe.logs.dataset import Columns

    given = {f.name: options[f.name] for f in dataclasses.fields(Columns) if options[f.name] is not None}
    return dataclasses.replace(Columns(**run.info.get("settings", {}).get("columns", {})), **given) if given else None


def _by_name(texts: list[str] | None, option: str) -> dict[str, float]:
    """NAME=VALUE options as a dict."""
    values = {}
    for text in texts or []:
        name, value = _name_and_number(text, option)
        if value is None:
            raise typer.BadParameter(f"{text!r} needs a value: NAME=VALUE", param_hint=option)
        if not math.isfinite(value):
            raise typer.BadParameter(f"{text!r} must have a finite value", param_hint=option)
        values[name] = value
    return values


def _name_and_number(text: str, option: str) -> tuple[str, float | None]:
    name, sign, number = text.rpartition("=")
    return (name, _float(number, option)) if sign else (text, None)


def _float(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number", param_hint=option) from None


if __name__ == "__main__":
    main()
