"""Checks of a task's log: is the state enough, and does the log drift? From its rows, or from counts where these suffice."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from bettersafe.evaluation.drift import check_drift
from bettersafe.evaluation.state_checks import check_counts, check_states
from bettersafe.logs._reader.files import DISCRETIZED_NOTE
from bettersafe.logs.counts import visit_table
from bettersafe.logs.dataset import in_vocabulary
from bettersafe.model import estimate_model
from bettersafe.tasks.inputs import task_dataset, with_derived_rows
from bettersafe.tasks.settings import TEST_SHARE
from bettersafe.typing import Event, ignore

if TYPE_CHECKING:
    import numpy.typing as npt

    from bettersafe.evaluation.state_evidence import StateCheck
    from bettersafe.logs.counts import Counts
    from bettersafe.logs.dataset import Dataset
    from bettersafe.logs.source import Source
    from bettersafe.model import Model
    from bettersafe.tasks.inputs import Baseline
    from bettersafe.tasks.task import Task
    from bettersafe.typing import Floats, Log, Progress

MOST_ROWS = 1_000_000
"""Rows up to which a log that is only counted is read once more for the checks."""

HELD_OUT_NOTE = (
    f"states were made from continuous features: {TEST_SHARE:.0%} of the episodes are held out for a test (set"
    " hold_out to 0 to switch this off)"
)


def rows_are_checked(source: Source) -> bool:
    """Whether the rows of the data are read for the checks: not those of counts files and of large logs."""
    return source.rows <= MOST_ROWS


def rows_for_checks(task: Task, counts: Counts, *, progress: Progress | None = None) -> Dataset:
    """Rows of the task's log, with derived objectives and the vocabulary of ``counts``."""
    (progress or ignore)(Event(what="Checking the state"))
    dataset = in_vocabulary(task_dataset(task, progress=progress), counts.state_labels, counts.action_labels)
    return with_derived_rows(dataset, visit_table(counts), task.derived, counts.objectives)


def row_checks(
    log: Log, baseline: Floats, *, known: bool, policy: npt.ArrayLike | None = None
) -> tuple[StateCheck, ...]:
    """Checks of a log's rows; ``known`` is False if the baseline was estimated."""
    return check_states(log, baseline=baseline if known else None, policy=policy)


def of_all_steps(checks: tuple[StateCheck, ...], horizon: int | None) -> tuple[StateCheck, ...]:
    """Checks that say of which steps their returns are, if those of the run are of the first ``horizon`` steps."""
    if horizon is None:
        return checks
    return tuple(
        dataclasses.replace(check, returns=", ".join(["all steps", check.returns] if check.returns else ["all steps"]))
        for check in checks
    )


def count_checks(
    source: Source, counts: Counts, baseline: Floats, *, model: Model, with_policy: bool, strict: bool = True
) -> tuple[StateCheck, ...]:
    """Checks of counts; if ``strict``, unmade checks speak against the model for states that were made from features."""
    found = check_counts(counts, baseline=baseline, model=model, with_policy=with_policy)
    if not source.is_counts:
        why = f"the log has more than {MOST_ROWS:,} rows and was only counted"
        found = tuple(dataclasses.replace(check, reason=why) if check.reason else check for check in found)
    if strict and DISCRETIZED_NOTE in counts.notes:
        found = tuple(dataclasses.replace(check, required=check.kind == "step-before") for check in found)
    return found


def describe_rows(
    task: Task, counts: Counts, baseline: Baseline, *, progress: Progress | None = None
) -> tuple[tuple[StateCheck, ...], tuple[str, ...]]:
    """Checks of the state without a policy, and sentences about drift, for `describe`."""
    source = task.source
    if not rows_are_checked(source):
        model = estimate_model(counts)
        return count_checks(source, counts, baseline.policy, model=model, with_policy=False, strict=False), ()
    rows = rows_for_checks(task, counts, progress=progress)
    drift = check_drift(rows)
    return row_checks(rows, baseline.policy, known=baseline.known), () if drift is None else drift.sentences


def with_default_test(task: Task) -> Task:
    """The task with its method and a hold-out, if its states were made from features and nothing is said about a hold-out."""
    if task.hold_out is not None or task.share > 0.0 or not task.source.is_discretized:
        return task
    return dataclasses.replace(task, method=task.resolved_method, hold_out=TEST_SHARE)
