"""The command line: every command reads its options, calls one library function, prints, and exits with a meaning.

Exit codes: 0 done, 1 bad input (one sentence on stderr), 2 wrong usage, 3 the answer is: keep the baseline.
Results go to stdout, progress and warnings to stderr. Heavy imports wait until a command runs.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bettersafe.errors import BettersafeError, ParameterError, did_you_mean

if TYPE_CHECKING:
    from bettersafe.data import Objective
    from bettersafe.task import Task

KEEP_BASELINE = 3

app = typer.Typer(
    name="bettersafe",
    help="Better on what you prefer, no worse on anything: policies improved from logged decisions with several objectives.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

DataArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="DATA",
        help="The log: a file or a quoted glob (Parquet, CSV, CSV.gz, JSON lines, Arrow), one row per decision.",
    ),
]
COLUMNS_PANEL, GOAL_PANEL, DETAILS_PANEL = "Which column is which", "What is wanted", "Details"


def _column(text: str) -> Any:
    """An option that names a column."""
    return typer.Option(metavar="COL", help=text, rich_help_panel=COLUMNS_PANEL)


def _goal(metavar: str, text: str) -> Any:
    """An option that says what is wanted."""
    return typer.Option(metavar=metavar, help=text, rich_help_panel=GOAL_PANEL)


def _detail(metavar: str, text: str) -> Any:
    """An option that most people leave alone."""
    return typer.Option(metavar=metavar, help=text, rich_help_panel=DETAILS_PANEL)


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
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]


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
    from bettersafe import printing
    from bettersafe.description import describe as describe_counts
    from bettersafe.task import task_baseline, task_counts

    job = _task(locals())
    with printing.working("Reading and counting"):
        counts = task_counts(job)
        policy, source = task_baseline(job, counts)
        description = describe_counts(counts, baseline=policy)
    if as_json:
        printing.print_json({**description.to_json(), "baseline": source})
    else:
        printing.print_description(description, job.data, source)


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
            "s-opt (budget and protection per objective), soft-spibb (budget only), adv-linearized (protection only) or linearized"
            " (neither). (default: s-opt)",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        _goal(
            "E",
            "How far s-opt and soft-spibb may leave the baseline, weighted by uncertainty; 0 not at all, inf no limit. (default: 0.1)",
        ),
    ] = None,
    delta: Annotated[float | None, _goal("D", "Risk in the error function. (default: 0.1)")] = None,
    error_kind: Annotated[
        str | None, _detail("KIND", "Error function: q (Soft-SPIBB) or l1 (paper, Appendix B.1). (default: q)")
    ] = None,
    support: Annotated[
        int | None, _detail("N", "For l1: the most successors a decision can have, if you know it.")
    ] = None,
    unseen: Annotated[
        str | None,
        _detail(
            "RULE", "What a decision never tried is worth: end, worst or baseline. S-OPT never uses one. (default: end)"
        ),
    ] = None,
    engine: Annotated[str | None, _detail("ENGINE", "auto, native or highs. (default: auto)")] = None,
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
    as_json: JsonOption = False,
) -> None:
    """Improve on the baseline along your preference, losing on no objective in the estimated model.

    Example: [bold]bettersafe improve visits.csv -o RUN --objective survival --objective pain=0 --lower-is-better pain[/bold]

    Weight 0 protects an objective without pursuing it. Exit code 3 means: keep the baseline.
    """
    from bettersafe import printing
    from bettersafe.runs import check_free, save_run
    from bettersafe.task import run_task

    job = _task(locals())
    if output is None:
        raise typer.BadParameter("say where to write the run, e.g. -o RUN", param_hint="--output / -o")
    check_free(output, force=force)
    with printing.working("Reading and counting") as progress:
        run = run_task(job, progress=progress)
    save_run(run, output, force=force)
    if as_json:
        printing.print_json(printing.run_json(run, output))
    else:
        printing.print_run(run, changes=5)
        typer.echo(f"Saved to {output}. See more of it with: bettersafe show {output}")
    if not run.changed:
        raise typer.Exit(KEEP_BASELINE)


@app.command()
def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    changes: Annotated[int, typer.Option(metavar="N", min=0, help="How many of the largest changes to show.")] = 15,
    as_json: JsonOption = False,
) -> None:
    """Print a saved run: the objectives before and after, and where the policy differs most.

    Example: [bold]bettersafe show RUN --changes 30[/bold]
    """
    from bettersafe import printing
    from bettersafe.runs import load_run

    saved = load_run(run)
    if as_json:
        printing.print_json(printing.run_json(saved, run, changes))
    else:
        printing.print_run(saved, changes)


@app.command()
def demo(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Also write the cohort (cohort.parquet) and the run (run/) here, to try the other commands on.",
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
    from bettersafe import printing
    from bettersafe.demo import check_demo_free, demo_json, run_demo, write_demo

    if output is not None:
        check_demo_free(output, force=force)
    with printing.working("Drawing a cohort and improving on it"):
        result = run_demo(patients=patients, epsilon=epsilon, seed=seed)
        if output is not None:
            write_demo(result, output, force=force)
    if as_json:
        printing.print_json(demo_json(result))
    else:
        printing.print_demo(result, output)


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
    from bettersafe.printing import print_error

    print_error(message)


# Options -> Task


def _task(options: dict[str, Any]) -> Task:
    """The task file with the given options put over it."""
    import dataclasses

    from bettersafe.data import Columns
    from bettersafe.task import Rare, Task, read_task

    base = read_task(options["task"], data=options["data"]) if options["task"] is not None else None
    if options["data"] is None and base is None:
        raise typer.BadParameter("name a file of logged decisions, or a task file with --task", param_hint="DATA")
    columns = base.columns if base else Columns()
    given = {f.name: options[f.name] for f in dataclasses.fields(Columns) if options[f.name] is not None}
    settings: dict[str, Any] = {"columns": dataclasses.replace(columns, **given)}
    if options["data"] is not None:
        settings["data"] = options["data"]
    objectives = _objectives(options, base.objectives if base else ())
    settings["objectives"] = objectives
    if options["rare_below"] is not None:
        extra = {"reward": options["rare_reward"], "weight": options["rare_weight"]}
        old = (
            base.derived[0] if base and base.derived else Rare(discount=objectives[0].discount if objectives else 0.99)
        )
        given = {key: value for key, value in extra.items() if value is not None}
        settings["derived"] = (dataclasses.replace(old, below=options["rare_below"], **given),)
    elif options["rare_reward"] is not None or options["rare_weight"] is not None:
        raise typer.BadParameter("needs --rare-below N", param_hint="--rare-reward / --rare-weight")
    for key in ("baseline", "method", "epsilon", "delta", "error_kind", "support", "unseen", "engine"):
        if options.get(key) is not None:
            settings[key] = options[key]
    return dataclasses.replace(base, **settings) if base else Task(**settings)


def _objectives(options: dict[str, Any], known: tuple[Objective, ...]) -> tuple[Objective, ...]:
    import dataclasses

    from bettersafe.data import Objective

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
    return tuple(objectives.values())


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
