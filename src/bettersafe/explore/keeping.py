"""Keeping what was explored: the run of `bettersafe improve`, saved with its page, and the commands that make it again."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from bettersafe._system.files import check_free
from bettersafe.errors import RunError
from bettersafe.explore.requests import read_name
from bettersafe.explore.session import explored_task
from bettersafe.report.page import write_report
from bettersafe.runs.run import MARK, save_run
from bettersafe.tasks.run import run_task
from bettersafe.tasks.settings import BY_NAME, option_words
from bettersafe.tasks.task import command_words
from bettersafe.text.headlines import summarise

if TYPE_CHECKING:
    from pathlib import Path

    from bettersafe.explore.session import Session, Settings
    from bettersafe.tasks.task import Task

ASKED_ANEW = ("draws", "form", "seed")
"""Settings of the posterior that `certify` does not take from the run."""


def keep(session: Session, settings: Settings, name: str, folder: Path) -> dict[str, Any]:
    """Make the run that `improve` makes of these settings, and save it as ``folder/name``.

    Args:
        session: The session.
        settings: What to keep.
        name: Checked by `read_name`.
        folder: Where runs go.
    """
    target = folder / read_name(name)
    if (target / MARK).is_file():
        raise RunError(f"{target} already has a run; choose another name.")
    check_free(target, mark=MARK, force=False)
    task = explored_task(session, settings)
    run = run_task(task)
    if run.info.data.sha256 != session.digest:
        raise RunError(
            f"{task.data} has changed since the explorer was started, so what was shown is not what would be kept. Start it again."
        )
    save_run(run, target)
    page = write_report(target)
    words = command_words(task, base=session.base, task_file=session.task_file)
    summary = summarise(run)
    return {
        "path": str(target),
        "report": str(page),
        "command": None if words is None else shlex.join(["bettersafe", "improve", *words, "-o", str(target)]),
        "decision": run.decision.to_json(),
        "headline": summary.headline,
        "detail": summary.detail,
        "next": shlex.join(_certify_words(task, target)) if run.has_proposal else None,
        "name": free_name(folder),
    }


def free_name(folder: Path) -> str:
    """The first of kept-1, kept-2, … that is not taken."""
    n = 1
    while (folder / f"kept-{n}").exists():
        n += 1
    return f"kept-{n}"


def _certify_words(task: Task, run: Path) -> list[str]:
    """The command that asks the whole posterior about a kept run, as the task says."""
    words = ["bettersafe", "certify", str(run), task.data, "--posterior"]
    for row in (BY_NAME[name] for name in ASKED_ANEW):
        words += option_words(row, getattr(task, row.name), row.default)
    return words
