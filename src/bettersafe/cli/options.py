"""Options that commands share, and the task that they say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bettersafe.errors import ParameterError, did_you_mean, listed
from bettersafe.evaluation import APPROXIMATE, BOUNDED, BOUNDS, FINITE_SAMPLE, TESTABLE

if TYPE_CHECKING:
    from bettersafe.logs.dataset import Columns, Objective
    from bettersafe.posterior.draws import RayCluster
    from bettersafe.runs.run import Run
    from bettersafe.tasks.task import Task


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


def goal(metavar: str, text: str, *choices: str) -> Any:
    """An option that says what is wanted."""
    return _choice(metavar, text, choices, GOAL_PANEL)


def detail(metavar: str, text: str, *choices: str) -> Any:
    """An option that most people leave alone."""
    return _choice(metavar, text, choices, DETAILS_PANEL)


def test_option(metavar: str, text: str, *choices: str) -> Any:
    """An option of the safety test."""
    return _choice(metavar, text, choices, TEST_PANEL)


PriorOption = Annotated[
    str | None,
    test_option(
        "NAME",
        "For b-opt and --posterior: hierarchical (a state's actions resemble each other as much as the log says) or support (they do not). (default: hierarchical)",
    ),
]

FormOption = Annotated[
    str | None,
    test_option(
        "FORM",
        "For b-opt and --posterior: draws, linearised (to first order, without draws), or auto: draws unless the log has so many transitions that they take very long. (default: auto)",
        "auto",
        "draws",
        "linearised",
    ),
]

PessimismOption = Annotated[
    float | None,
    test_option(
        "N", "For b-opt and --posterior: bad visits that pessimistic priors add to every decision. (default: 1)"
    ),
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
    goal(
        "COL[=WEIGHT]",
        "A reward column and its weight in the preference (1 if left out; 0: only protect it). Repeat for each.",
    ),
]

LowerOption = Annotated[list[str] | None, goal("COL", "An objective that is a cost. Repeat for each.")]

DiscountOption = Annotated[
    list[str] | None, goal("[COL=]G", "Discount in [0, 1), for all objectives or for one. (default: 0.99)")
]

RangeOption = Annotated[
    list[str] | None,
    goal(
        "COL=LOW..HIGH",
        "The values that a reward column can have at all, if known. Finite-sample bounds need it of every objective.",
    ),
]

ZetaOption = Annotated[
    list[str] | None, test_option("NAME=LOSS", "A loss of return that is accepted on an objective. (default: 0)")
]

ThresholdOption = Annotated[
    list[str] | None,
    test_option(
        "NAME=VALUE",
        "What an objective's return must be worth (a cost: at most), else the answer is 'no solution found'.",
    ),
]

EstimatorOption = Annotated[str | None, test_option("NAME", f"{listed(TESTABLE, last='or')}. (default: dr)", *TESTABLE)]

BoundOption = Annotated[
    str | None,
    test_option(
        "NAME",
        f"{listed(APPROXIMATE, last='or')} (approximate); {listed(FINITE_SAMPLE, last='or')} (finite-sample, with {listed(BOUNDED, last='or')}). (default: t)",
        *BOUNDS,
    ),
]

LevelsOption = Annotated[
    str | None,
    test_option(
        "NAME",
        "split: each objective at delta/d; full: each at delta, enough for the verdict. (default: split)",
        "split",
        "full",
    ),
]

FoldsOption = Annotated[
    int, test_option("K", "Models for dr and wdr are fitted on K-1 of K parts, and used on the other.")
]

RareOption = Annotated[
    int | None, goal("N", "Add the objective 'rare': decisions that the data has fewer than N times are penalised.")
]

RareRewardOption = Annotated[float | None, goal("R", "Its reward. (default: -10)")]
RareWeightOption = Annotated[float | None, goal("W", "Its weight in the preference. (default: 1)")]

BaselineOption = Annotated[
    str | None,
    goal(
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
    str | None, detail("KIND", "Error function: q (Soft-SPIBB) or l1 (paper, Appendix B.1). (default: q)", "q", "l1")
]

SupportOption = Annotated[int | None, detail("N", "For l1: the most successors a decision can have, if you know it.")]

UnseenOption = Annotated[
    str | None,
    detail(
        "RULE",
        "What a decision never tried is worth: end, worst or baseline. S-OPT never uses one. (default: end)",
        "end",
        "worst",
        "baseline",
    ),
]

EngineOption = Annotated[
    str | None, detail("ENGINE", "auto, native or highs. (default: auto)", "auto", "native", "highs")
]

ImproveEngineOption = Annotated[
    str | None,
    detail(
        "ENGINE",
        "Of the programs: auto, native or highs; or ray: b-opt makes its draws on a Ray cluster, and the rest here. (default: auto)",
        "auto",
        "native",
        "highs",
        "ray",
    ),
]

AddressOption = Annotated[
    str | None, detail("ADDRESS", "Of a Ray cluster that makes the draws of b-opt or --posterior.")
]

AllOption = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Show every candidate, and every objective; of more than 12, only those that decide are shown otherwise.",
    ),
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]


def task_from(options: dict[str, Any]) -> Task:
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
            settings[key] = {**(getattr(base, key) if base else {}), **by_name(options[key], f"--{key}")}
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


def cluster_from(engine: str | None, address: str | None) -> RayCluster | None:
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


def columns_over_run(run: Run, options: dict[str, Any]) -> Columns | None:
    """The run's columns with the given options put over them; None where none was given."""
    import dataclasses

    from bettersafe.logs.dataset import Columns

    given = {f.name: options[f.name] for f in dataclasses.fields(Columns) if options[f.name] is not None}
    return dataclasses.replace(Columns(**run.info.get("settings", {}).get("columns", {})), **given) if given else None


def by_name(texts: list[str] | None, option: str) -> dict[str, float]:
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
