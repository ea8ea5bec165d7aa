"""Saving an explored policy: the run of `bettersafe improve` with its report, and the commands that reproduce it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from bettersafe._system.files import check_free
from bettersafe.errors import RunError
from bettersafe.explore.requests import read_name
from bettersafe.explore.session import explored_task
from bettersafe.report.page import write_report
from bettersafe.runs.run import MARK, save_run
from bettersafe.tasks.run import run_task
from bettersafe.tasks.settings import BY_NAME, OF_EACH_TEST, option_words, with_places
from bettersafe.tasks.task import command_words
from bettersafe.text.headlines import summarise

if TYPE_CHECKING:
    from pathlib import Path

    from bettersafe.explore.session import Session, Settings
    from bettersafe.tasks.task import Task
    from bettersafe.typing import Json


def keep(session: Session, settings: Settings, name: str, folder: Path) -> Json:
    """Compute the run that `improve` gives for these settings, and save it as ``folder/name``.

    Args:
        session: The session.
        settings: Settings of the run.
        name: Name of the run, checked by `read_name`.
        folder: Folder for saved runs.
    """
    target = folder / read_name(name)
    if (target / MARK).is_file():
        raise RunError(f"{target} already has a run; choose another name.")
    check_free(target, mark=MARK, force=False)
    task = explored_task(session, settings)
    run = run_task(task)
    if run.info.data.sha256 != session.digest:
        raise RunError(
            f"{task.data} has changed since the explorer was started, so the run would not be the one shown. Start the explorer again."
        )
    save_run(run, target)
    page = write_report(target)
    words = command_words(task, base=session.base, task_file=session.task_file, output=str(target))
    summary = summarise(run)
    return {
        "path": str(target),
        "report": str(page),
        "command": None if words is None else shlex.join(["bettersafe", "improve", *words]),
        "decision": run.decision.to_json(),
        "headline": summary.headline,
        "tone": summary.tone,
        "more": summary.more,
        "detail": summary.detail,
        "next": shlex.join(_certify_words(task, target)) if run.has_proposal and not task.threshold else None,
        "name": free_name(folder),
    }


def free_name(folder: Path) -> str:
    """First free name of kept-1, kept-2, …"""
    n = 1
    while (folder / f"kept-{n}").exists():
        n += 1
    return f"kept-{n}"


def _certify_words(task: Task, run: Path) -> list[str]:
    """Command that computes the full posterior of a saved run, with the task's settings."""
    words = ["--posterior"]
    for row in (BY_NAME[name] for name in OF_EACH_TEST):
        words += option_words(row, getattr(task, row.name), row.default)
    return ["bettersafe", "certify", *with_places([str(run), task.data], words)]
