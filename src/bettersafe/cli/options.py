"""Options of the command line, generated from the tables of settings and parsed into a task.

    @takes(*DESCRIBED, *COLUMNS)
    def describe(given: Given, data: DataArgument = None, …) -> None:

gives the command an option for every row, with its help and its choices for the Tab key. ``given`` maps the Python names of the
options that were given to their values. --help shows the rows of the first screen, --help-all every row.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from bettersafe.errors import BettersafeError, ParameterError, did_you_mean
from bettersafe.tasks.settings import BY_NAME, COLUMNS, GROUPS, LOG, OBJECTIVE, RARE, SETTINGS, with_flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.logs.dataset import Columns, Objective
    from bettersafe.posterior.draws import RayCluster
    from bettersafe.runs.run import Run
    from bettersafe.tasks.settings import Setting
    from bettersafe.tasks.task import Task

Given = dict[str, Any]
"""Options that were given, by their Python names."""

TYPES = {"text": str, "number": float, "whole number": int}
EVERY_OPTION = "every option"  # key in a context's meta: show every option
SHARDS_PANEL = "In shards"

DataArgument = Annotated[
    str | None, typer.Argument(metavar="DATA", help=with_flags(BY_NAME["data"].long_help), show_default=False)
]
CountsArgument = Annotated[
    str | None, typer.Argument(metavar="DATA", help=f"{LOG}; or a counts file.", show_default=False)
]
LogArgument = Annotated[str | None, typer.Argument(metavar="DATA", help=f"{LOG}.")]

TaskOption = Annotated[
    Path | None,
    typer.Option("--task", metavar="FILE.toml", help="Task file; options override it."),
]
NoReportOption = Annotated[bool, typer.Option("--no-report", help="Don't write RUN/report.html.")]
AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Address of the Ray cluster for the draws.",
        rich_help_panel=BY_NAME["engine"].group,
    ),
]
AllOption = Annotated[
    bool,
    typer.Option(
        "--all", help="Show every candidate and objective; by default, of more than 12, only those that decide."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]


OPTIONS = tuple(row for row in (*OBJECTIVE, *RARE, *SETTINGS, *COLUMNS) if row.flag.startswith("--"))
"""All settings that are options."""


def options(*names: str, **changes: Mapping[str, Any]) -> tuple[Setting, ...]:
    """Rows of the tables by name, all of `OPTIONS` if none is named; ``changes`` replaces fields of rows, by parameter name."""
    rows = [BY_NAME[name] for name in names] if names else OPTIONS
    return tuple(
        dataclasses.replace(row, **changes[row.parameter]) if row.parameter in changes else row for row in rows
    )


def takes(
    *rows: Setting, later: tuple[str, ...] = (), short: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for every row; its first argument is a dict of the options that were given.

    Args:
        rows: Rows of the tables of settings.
        later: The command's own parameters that only --help-all shows.
        short: Whether rows without a brief help are shown by --help-all only.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        parameters = sorted([*parameters, *map(_option, rows)], key=_place)
        hidden = frozenset((*later, *(row.parameter for row in rows if short and not row.brief)))
        if hidden:
            parameters.append(_help_all(rows))

        @functools.wraps(command)
        def called(**values: Any) -> None:
            values.pop("help_all", None)
            found = {row.parameter: values.pop(row.parameter) for row in rows}
            command({name: value for name, value in found.items() if value not in (None, [], ())}, **values)

        del called.__wrapped__
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        called.rows, called.hidden = rows, hidden  # type: ignore[attr-defined]
        return called

    return decorate


class Command(TyperCommand):
    """Command with a short --help (see `takes`) and a full --help-all."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters; for the short help, only its own, with their brief texts."""
        parameters = super().get_params(ctx)
        if ctx.meta.get(EVERY_OPTION, True):
            return parameters
        rows, hidden = getattr(self.callback, "rows", ()), getattr(self.callback, "hidden", ())
        brief = {row.parameter: with_flags(row.short_help) for row in rows if row.brief}
        shown: list[Any] = [copy.copy(parameter) for parameter in parameters if parameter.name not in hidden]
        for parameter in shown:
            if parameter.name in brief:
                parameter.help = brief[parameter.name]
        return shown

    def invoke(self, ctx: Any) -> Any:
        """Call the command; an error about a setting that it has no option for names no option."""
        try:
            return super().invoke(ctx)
        except BettersafeError as error:
            row = BY_NAME.get(error.setting or "")
            if row is not None and not any(row.flag in parameter.opts for parameter in self.params):
                error.setting = None
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the short help, or the full help for --help-all."""
        ctx.meta.setdefault(EVERY_OPTION, False)
        super().format_help(ctx, formatter)


def _place(parameter: inspect.Parameter) -> int:
    """Position of a parameter's group in the help."""
    group = parameter.annotation.__metadata__[0].rich_help_panel
    return GROUPS.index(group) if group in GROUPS else len(GROUPS) * (group is not None)


def _option(row: Setting) -> inspect.Parameter:
    """Option of a row, as a parameter for Typer."""

    def offered(incomplete: str) -> list[str]:
        return [choice for choice in row.choices if choice.startswith(incomplete)]

    option = typer.Option(
        row.flag,
        metavar=row.metavar,
        help=with_flags(row.long_help),
        rich_help_panel=row.group,
        min=row.least,
        show_default=False,
        autocompletion=offered if row.choices else None,
    )
    kind: Any = list[str] if row.repeats else TYPES[row.kind]
    return inspect.Parameter(
        row.parameter,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _help_all(rows: Iterable[Setting]) -> inspect.Parameter:
    def show(ctx: typer.Context, asked: bool) -> None:
        if asked:
            ctx.meta[EVERY_OPTION] = True
            typer.echo(ctx.get_help())
            raise typer.Exit

    columns = [row.flag for row in rows if row in COLUMNS][:2]
    what = f"; columns: {', '.join(columns)}, …" if columns else "."
    option = typer.Option("--help-all", is_eager=True, callback=show, help=f"All options{what}")
    return inspect.Parameter(
        "help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option]
    )


# From options to a task


def task_from(given: Given, *, data: str | None, task: Path | None, add: Sequence[Path] = ()) -> Task:
    """Task from a task file, overridden by the given options.

    Args:
        given: Options, as `takes` passes them to a command.
        data: The log.
        task: The task file.
        add: Counts files; without a task file, objectives and columns come from the first one unless options give them.
    """
    from bettersafe.tasks.task import task_without_options
    from bettersafe.tasks.toml import read_task

    base = read_task(task, data=data) if task is not None else None
    if data is None and base is None:
        raise typer.BadParameter("name a file of logged decisions, or a task file with --task", param_hint="DATA")
    known = base or task_without_options(str((*add, data)[0]))
    objectives = _objectives(given, known.objectives)
    settings: Given = {
        "columns": dataclasses.replace(known.columns, **columns_given(given)),
        "objectives": objectives,
        "derived": _derived(given, known, objectives),
    }
    if data is not None:
        settings["data"] = data
    for row in SETTINGS:
        if row.parameter in given:
            value = _value(row, given[row.parameter])
            settings[row.name] = {**getattr(known, row.name), **value} if row.by_objective else value
    return dataclasses.replace(known, **settings)


def settings_from(given: Given, *names: str) -> Given:
    """The settings ``names`` that were given, as keyword arguments of a library function."""
    keys = {name: BY_NAME[name].parameter if name in BY_NAME else name for name in names}
    return {name: _value(BY_NAME.get(name), given[key]) for name, key in keys.items() if key in given}


def _value(row: Setting | None, value: Any) -> Any:
    """Value of a task setting from its option; ``row`` is None for an option that is not a setting."""
    if row is not None and row.by_objective:
        return _by_name(value, row.flag)
    if row is not None and row.kind == "table of whole numbers":
        return {name: _whole(number, row.flag) for name, number in _by_name(value, row.flag).items()}
    if row is not None and row.kind == "list of events":
        from bettersafe.tasks.toml import read_event

        return tuple(map(read_event, value))
    return tuple(value) if isinstance(value, list) else value


def cluster_from(engine: str | None, address: str | None, *, others: Iterable[str] = ()) -> RayCluster | None:
    """Ray cluster for the draws; None for this machine. ``others`` are values of --engine with another meaning."""
    from bettersafe.posterior.draws import RayCluster

    known = (*others, "ray")
    if engine is not None and engine not in known:
        raise typer.BadParameter(f"must be {' or '.join(known)}; got {engine}", param_hint="--engine")
    if address is not None and engine not in (None, "ray"):
        raise typer.BadParameter(f"is only for --engine ray; got {engine}", param_hint="--address")
    return RayCluster(address=address) if engine == "ray" or address is not None else None


def columns_over_run(run: Run, given: Given) -> Columns | None:
    """The run's columns, overridden by the given options; None if no column option was given."""
    from bettersafe.logs.dataset import Columns

    named = columns_given(given)
    return dataclasses.replace(Columns(**run.info.settings.get("columns", {})), **named) if named else None


def _by_name(texts: Iterable[str], flag: str) -> dict[str, float]:
    """Parse NAME=VALUE options into a dict."""
    values = {}
    for text in texts:
        name, value = _name_and_number(text, flag)
        if value is None:
            raise typer.BadParameter(f"{text!r} needs a value: NAME=VALUE", param_hint=flag)
        if not math.isfinite(value):
            raise typer.BadParameter(f"{text!r} must have a finite value", param_hint=flag)
        values[name] = value
    return values


def columns_given(given: Given) -> dict[str, str]:
    """Column names from options, by role."""
    return _named(given, COLUMNS)


def _named(given: Given, rows: Iterable[Setting]) -> Given:
    """Values given for these rows, by field name."""
    return {row.name: given[row.parameter] for row in rows if row.parameter in given}


def _derived(given: Given, known: Task, objectives: tuple[Objective, ...]) -> tuple[Any, ...]:
    """Derived objectives: those of the task file, with the objective 'rare' as options describe it."""
    from bettersafe.tasks.task import Rare, with_rare

    named = _named(given, RARE)
    if "below" not in named:
        if named:
            flags = " / ".join(row.flag for row in RARE[1:])
            raise typer.BadParameter(f"needs {RARE[0].flag} N", param_hint=flags)
        return known.derived
    new = Rare(discount=objectives[0].discount if objectives else Rare.discount)
    old = next((each for each in known.derived if each.name == Rare.name), new)
    return with_rare(known.derived, dataclasses.replace(old, **named))


def _objectives(given: Given, known: tuple[Objective, ...]) -> tuple[Objective, ...]:
    """Objectives, overridden by the given options."""
    from bettersafe.logs.dataset import Objective

    weight, *others = OBJECTIVE
    objectives = {objective.name: objective for objective in known}
    if weight.parameter in given:
        listed = {}
        for text in given[weight.parameter]:
            name, value = _name_and_number(text, weight.flag)
            old = objectives.get(name, Objective(name=name))
            listed[name] = old if value is None else dataclasses.replace(old, weight=value)
        objectives = listed
    for row in others:
        for text in given.get(row.parameter, ()):
            names, value = _of_objective(row, text, list(objectives))
            for name in names:
                if name not in objectives:
                    raise ParameterError(
                        f"{row.flag} {name}: there is no such objective; there are {', '.join(objectives) or 'none'}."
                        f"{did_you_mean(name, objectives)}"
                    )
                objectives[name] = dataclasses.replace(objectives[name], **{row.name: value})
    return tuple(objectives.values())


def _of_objective(row: Setting, text: str, known: list[str]) -> tuple[list[str], Any]:
    """Names of the objectives that an option applies to, and the value of their setting."""
    if row.kind == "true or false":
        return [text], True
    if row.kind == "text":
        name = max((name for name in known if text.startswith(f"{name}=")), key=len, default=text.partition("=")[0])
        if "=" not in text:
            raise typer.BadParameter(f"{text!r} must be {row.metavar}", param_hint=row.flag)
        return [name], text[len(name) + 1 :]
    name, sign, value = text.rpartition("=")
    if row.kind == "number":
        return [name] if sign else known, _float(value, row.flag)
    low, dots, high = value.partition("..")
    if not (name and dots):
        raise typer.BadParameter(f"{text!r} must be {row.metavar}, such as pain=0..10", param_hint=row.flag)
    return [name], (_float(low, row.flag), _float(high, row.flag))


def _name_and_number(text: str, flag: str) -> tuple[str, float | None]:
    name, sign, number = text.rpartition("=")
    return (name, _float(number, flag)) if sign else (text, None)


def _float(text: str, flag: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number", param_hint=flag) from None


def _whole(number: float, flag: str) -> int:
    if not number.is_integer():
        raise typer.BadParameter(f"{number} is not a whole number", param_hint=flag)
    return int(number)
