"""The command line. Every command reads its options, calls one library function, prints the result and sets the exit code.

Exit codes: 0 done, 1 bad input (one sentence on stderr), 2 wrong usage, 3 keep the baseline.
Results go to stdout, progress and warnings to stderr. Heavy modules are imported when a command runs.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from bettersafe.cli import logs, runs, studies
from bettersafe.cli.options import Command
from bettersafe.errors import BettersafeError, did_you_mean
from bettersafe.tasks.settings import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Commands(TyperGroup):
    """Command group; the error about an unknown option suggests the nearest one."""

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
        # Compared by name, because newer versions of Typer include their own Click.
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


def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"bettersafe {installed('bettersafe')}")
        raise typer.Exit


def main() -> None:
    """Entry point: package errors print one sentence, bugs keep their traceback."""
    code = _run()
    # All files are written and closed. A normal exit destroys Arrow's thread pools, which aborts the process about once in
    # three hundred times ("terminate called without an active exception"); os._exit does not destroy them.
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
            _print_error(f"the output can't be written: {error.strerror}.")
            return 1
        return leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BettersafeError as error:
        _print_error(f"{error}{_option_of(error)}")
    except BrokenPipeError:  # the reader of the output has closed the pipe
        pass
    except OSError as error:  # e.g. a full disk or missing permissions, which the user can fix
        _print_error(f"{error.filename or 'a file'}: {error.strerror or error}.")
    except KeyboardInterrupt:
        return 130
    return 1


def _option_of(error: BettersafeError) -> str:
    """Option of the setting that an error is about; empty if the message already names it."""
    row = BY_NAME.get(getattr(error, "setting", None) or "")
    return "" if row is None or row.flag in str(error) else f" ({row.flag})"


def _print_error(message: str) -> None:
    from bettersafe.cli.show import print_error  # not at the top: it imports Rich

    print_error(message)


for _command in (
    logs.init, logs.describe, logs.count, logs.merge, runs.improve, runs.explore, runs.evaluate, runs.certify, runs.verify, runs.report,
    runs.show, studies.demo, logs.discretize,
):  # fmt: skip
    app.command(cls=Command)(_command)
app.add_typer(studies.study_app, name="study")
app.add_typer(studies.sepsis_app, name="sepsis")
app.callback(invoke_without_command=True)(_root)

if __name__ == "__main__":
    main()
