"""Inputs of a task: counts, log, episodes, baseline and model."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.errors import DataError, listed
from bettersafe.logs.counts import Counts, count, declare_actions, with_rare, with_rare_rows
from bettersafe.logs.counts_file import read_counts
from bettersafe.logs.dataset import Dataset, Objective, in_vocabulary, user_sign
from bettersafe.logs.episodes import with_blocks
from bettersafe.logs.source import open_episodes, read_dataset
from bettersafe.mdp.ends import check_ends
from bettersafe.methods.facts import METHODS
from bettersafe.model import (
    check_logged_baseline,
    estimate_baseline,
    estimate_model,
    noted_logged_baseline,
    unacted_note,
)
from bettersafe.runs.info import ESTIMATED
from bettersafe.runs.policy_file import counted_states, policy_actions, read_whole_policy
from bettersafe.tasks.settings import BASELINES
from bettersafe.typing import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bettersafe.logs.dataset import Columns
    from bettersafe.model import Model
    from bettersafe.runs.policy_file import WholePolicy
    from bettersafe.tasks.task import Rare, Task
    from bettersafe.typing import Floats, Ints, Labels, Log, Progress


def task_counts(task: Task, *, progress: Progress | None = None) -> Counts:
    """Counts of the task's data, with derived objectives and the actions of the baseline file."""
    counts = read_counts(task.source, objectives=task.objectives, columns=task_columns(task), progress=progress)
    if task.baseline == "estimate" and counts.baseline_prob is not None:  # of a counts file
        counts = dataclasses.replace(counts, baseline_prob=None)
    return _declared(task, with_derived(counts, task.derived))


def task_columns(task: Task) -> Columns:
    """Names of the columns; without ``baseline_prob`` if the baseline is to be estimated."""
    return dataclasses.replace(task.columns, baseline_prob="") if task.baseline == "estimate" else task.columns


def task_dataset(task: Task, *, progress: Progress | None = None) -> Dataset:
    """The task's data in memory, with the actions of the baseline file, without derived objectives."""
    dataset = read_dataset(task.data, objectives=task.objectives, columns=task_columns(task), progress=progress)
    if _is_file(task.baseline):
        actions = _declared(task, count(dataset)).action_labels
        dataset = in_vocabulary(dataset, dataset.state_labels, actions)
    return dataset


@contextmanager
def task_episodes(task: Task, *, progress: Progress | None = None) -> Iterator[Log]:
    """Data of `task_dataset`, read in blocks, for logs of any size."""
    with open_episodes(
        task.data, objectives=task.objectives, columns=task_columns(task), progress=progress
    ) as episodes:
        if _is_file(task.baseline):
            actions = _declared(task, count(episodes)).action_labels
            yield with_blocks(episodes, lambda block: in_vocabulary(block, block.state_labels, actions))
        else:
            yield episodes


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """Baseline of a task, over the states and actions of its log.

    Attributes:
        policy: π_b, shape [X, A].
        source: Origin, in words.
        notes: Remarks for people.
        whole: The whole baseline file, if it has states or actions that the log has not; they are not in ``policy``.
    """

    policy: Floats
    source: str
    notes: tuple[str, ...] = ()
    whole: WholePolicy | None = None

    @property
    def known(self) -> bool:
        """Whether the baseline is known, not estimated from the data."""
        return self.source != ESTIMATED

    def noted(self, counts: Counts) -> Counts:
        """The counts with the notes on the baseline."""
        return dataclasses.replace(counts, notes=(*counts.notes, *self.notes))


def task_baseline(task: Task, counts: Counts) -> Baseline:
    """Baseline of the task."""
    if task.baseline == "estimate" or (not task.baseline and counts.baseline_prob is None):
        return Baseline(policy=estimate_baseline(counts), source=ESTIMATED, notes=unacted_note(counts))
    if not _is_file(task.baseline):
        policy, notes = noted_logged_baseline(counts)
        return Baseline(policy=policy, source="logged with the data", notes=notes)
    whole = read_whole_policy(task.baseline, counts.state_labels, counts.action_labels)
    x, a = (
        np.searchsorted(every, own)
        for every, own in ((whole.state_labels, counts.state_labels), (whole.action_labels, counts.action_labels))
    )
    policy = frozen(whole.policy[np.ix_(x, a)], np.float64)
    check_logged_baseline(counts, policy)
    file, notes = Path(task.baseline).name, whole.notes
    more = np.setdiff1d(whole.state_labels, counts.state_labels)
    if more.size:
        notes += (f"{file} has {counted_states(more)} that the log does not have; the policy keeps its rows there",)
    return Baseline(
        policy=policy,
        source=f"given in {file}",
        notes=notes,
        whole=whole if policy.shape != whole.policy.shape else None,
    )


def check_ranges(objectives: tuple[Objective, ...], lowest: Floats, highest: Floats) -> None:
    """Raises DataError if observed rewards are outside their declared range; edges have shape [d], higher is better."""
    for objective, low, high in zip(objectives, lowest, highest, strict=True):
        if objective.reward_range is None:
            continue
        seen = sorted((user_sign(objective, low), user_sign(objective, high)))
        if seen[0] < objective.reward_range[0] or seen[1] > objective.reward_range[1]:
            raise DataError(
                f"{objective.name} was declared to lie in {objective.reward_range[0]:g} … {objective.reward_range[1]:g}; the data has"
                f" {seen[0]:g} … {seen[1]:g}. Correct the range."
            )


def without_outcomes(counts: Counts) -> Counts:
    """Counts without the outcomes, which take most of the memory and are not used after the model is estimated."""
    none = np.empty(0, dtype=np.int64)
    return dataclasses.replace(
        counts,
        outcome_ptr=np.zeros(counts.n_pairs + 1, dtype=np.int64),
        outcome_state=none,
        outcome_count=none,
        terminated_count=counts.pair_count,  # outcomes and ends must add up to the visits
    )


def check_by_counts(task: Task) -> None:
    """Raises DataError if the task needs episodes; for tasks on a counts file."""
    counts_suffice = METHODS[task.resolved_method].counts
    if task.share > 0.0 or not counts_suffice:
        what = "hold_out" if counts_suffice else task.resolved_method
        raise DataError(
            f"{what} needs episodes, and {Path(task.data).name} has only counts. Give the log, or use another method:"
            f" {listed((name for name, facts in METHODS.items() if facts.counts), last='or')}."
        )


def with_derived_rows(
    dataset: Dataset, visits: Ints, derived: tuple[Rare, ...], objectives: tuple[Objective, ...]
) -> Dataset:
    """The log with rewards of the derived objectives, from the visits [X, A] in the training data."""
    for rare in derived:
        objective = next(objective for objective in objectives if objective.name == rare.name)
        dataset = with_rare_rows(dataset, visits, objective, below=rare.below, reward=rare.reward)
    return dataset


def with_derived(counts: Counts, derived: tuple[Rare, ...]) -> Counts:
    """The counts with the derived objectives."""
    for rare in derived:
        counts = with_rare(
            counts,
            name=rare.name,
            below=rare.below,
            reward=rare.reward,
            discount=rare.discount,
            weight=rare.weight,
        )
    return counts


def _is_file(baseline: str) -> bool:
    return baseline not in ("", *BASELINES)


def _declared(task: Task, counts: Counts) -> Counts:
    """The counts with the actions of the baseline file, and a note on those never logged."""
    if not _is_file(task.baseline):
        return counts
    named: Labels = policy_actions(task.baseline, counts.state_labels, counts.action_labels)
    new = np.setdiff1d(named.astype(str), counts.action_labels.astype(str))
    counts = declare_actions(counts, named)
    if new.size:
        note = f"{Path(task.baseline).name} has actions that were never logged: {', '.join(new[:5])}"
        counts = dataclasses.replace(counts, notes=(*counts.notes, note))
    return counts


def task_model(task: Task, counts: Counts, baseline: Floats) -> Model:
    """Model of the counts, with the task's settings. Raises PolicyError if discount 1 is not possible for the baseline."""
    model = estimate_model(
        counts,
        delta=task.delta,
        error_kind=task.error_kind,
        support=task.support,
        unseen=task.unseen,
        baseline=baseline,
        horizon=task.horizon,
    )
    check_ends(model.mdp, baseline, name="the baseline", state_labels=model.state_labels)
    return model
