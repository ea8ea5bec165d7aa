"""Outcomes of a task's log for the posterior, and the memory that a task needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe._system.memory import (
    available_bytes,
    check_memory,
    counts_bytes,
    linearised_bytes,
    log_bytes,
    model_bytes,
    outcomes_bytes,
)
from bettersafe.logs.counts import visit_table
from bettersafe.logs.counts_file import counted_sizes
from bettersafe.methods.facts import METHODS
from bettersafe.posterior.judge import form_for
from bettersafe.posterior.linearised_counts import available, gather_counted
from bettersafe.posterior.outcomes import gather_outcomes, outcomes_of
from bettersafe.tasks.inputs import with_derived_rows

if TYPE_CHECKING:
    from bettersafe._system.memory import Sizes
    from bettersafe.logs.counts import Counts
    from bettersafe.logs.dataset import Dataset, Objective
    from bettersafe.logs.source import Source
    from bettersafe.model import Model
    from bettersafe.posterior.choices import Form
    from bettersafe.posterior.events import DeclaredEvent
    from bettersafe.posterior.linearised_counts import CountedOutcomes
    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.tasks.task import Rare, Task
    from bettersafe.typing import Floats, Ints


LARGE_ROWS = 10_000_000
"""Rows beyond which B-OPT counts a log on disk and does not load it."""

PAIR_REWARDS = "rewards are taken from counts: means per state and action, not per next state"
"""Note on outcomes with rewards that counts leave open."""


def memory_needed(task: Task) -> tuple[float, str]:
    """Memory in bytes for a task on a counts file, from the file's header alone, and a description of the task."""
    sizes = counted_sizes(task.data)
    return counts_bytes(sizes) + task_bytes(task, sizes), f"{task.resolved_method} on {sizes}"


def check_size(task: Task, counts: Counts) -> None:
    """Raises an error if the baseline and the model would not fit into memory."""
    sizes = counts.sizes
    check_memory(task_bytes(task, sizes), f"{task.resolved_method} on {sizes}")


def task_bytes(task: Task, sizes: Sizes) -> float:
    """Memory in bytes for a task, without its counts."""
    needed = model_bytes(sizes)
    if not METHODS[task.resolved_method].posterior:
        return needed
    if form_for(task.form, sizes.n_outcomes, sizes.n_objectives, draws=task.draws) == "linearised" and available():
        return needed + linearised_bytes(sizes)
    return needed + outcomes_bytes(sizes)


def fits(source: Source, n_objectives: int) -> bool:
    """Whether ``source`` is a log that fits into memory; if not, B-OPT uses its counts."""
    rows = source.rows
    return rows <= LARGE_ROWS and log_bytes(int(rows), n_objectives) <= available_bytes()


def counted_outcomes(
    counts: Counts,
    model: Model,
    derived: tuple[Rare, ...],
    *,
    form: Form,
    draws: int,
    events: tuple[DeclaredEvent, ...] = (),
) -> Outcomes | CountedOutcomes:
    """Outcomes for the posterior, in the representation for draws or for linearisation, as ``form`` requires."""
    names = [objective.name for objective in counts.objectives]
    places = {names.index(rare.name): rare for rare in derived}
    if form_for(form, counts.sizes.n_outcomes, counts.n_objectives, draws=draws) == "linearised" and available():
        return gather_counted(counts, model, known=places, events=events)
    known = {}
    for k, rare in places.items():
        known[k] = np.where(visit_table(counts) < rare.below, rare.reward, 0.0)
    return outcomes_of(counts, known_rewards=known, events=events)


def reward_notes(outcomes: Outcomes | CountedOutcomes) -> tuple[str, ...]:
    """What counts leave open about rewards, if anything."""
    return (PAIR_REWARDS,) if outcomes.hidden else ()


def task_outcomes(
    dataset: Dataset,
    visits: Ints,
    derived: tuple[Rare, ...],
    objectives: tuple[Objective, ...],
    *,
    events: tuple[DeclaredEvent, ...] = (),
) -> Outcomes:
    """Outcomes of a log for the posterior; rewards of derived objectives are known, because they depend on the pair alone."""
    rows = with_derived_rows(dataset, visits, derived, objectives)
    return gather_outcomes(rows, known_rewards=known_rewards(visits, derived, objectives), events=events)


def known_rewards(visits: Ints, derived: tuple[Rare, ...], objectives: tuple[Objective, ...]) -> dict[int, Floats]:
    """Rewards [X, A] of the derived objectives, by their index: they depend on the visits [X, A] alone."""
    names = [objective.name for objective in objectives]
    return {names.index(rare.name): np.where(visits < rare.below, rare.reward, 0.0) for rare in derived}
