"""Inputs of a task: counts, log, episodes, baseline, model and outcomes, with checks before the computation."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

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
from bettersafe.certificate.make import return_range
from bettersafe.errors import DataError, ParameterError, did_you_mean, listed
from bettersafe.evaluation.held_out import SafetyRule
from bettersafe.logs._reader.files import rows_about
from bettersafe.logs.counts import Counts, count, declare_actions, with_rare, with_rare_rows
from bettersafe.logs.counts_file import counted_sizes, is_counts, load_counts, with_objectives
from bettersafe.logs.dataset import Dataset, Objective, in_vocabulary, reward_ranges, user_sign
from bettersafe.logs.episodes import with_blocks
from bettersafe.logs.source import count_files, open_episodes, read_dataset
from bettersafe.mdp.ends import check_ends
from bettersafe.methods.facts import METHODS
from bettersafe.model import check_logged_baseline, estimate_baseline, estimate_model, logged_baseline
from bettersafe.posterior.judge import Question, form_for
from bettersafe.posterior.linearised_counts import available, gather_counted
from bettersafe.posterior.outcomes import gather_outcomes, outcomes_of
from bettersafe.posterior.priors import PriorSet
from bettersafe.runs.policy_file import policy_actions, read_policy
from bettersafe.tasks.settings import BASELINES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bettersafe._system.memory import Sizes
    from bettersafe.evaluation.choices import Levels
    from bettersafe.logs.dataset import Columns
    from bettersafe.model import Model
    from bettersafe.posterior.choices import Form
    from bettersafe.posterior.draws import RayCluster
    from bettersafe.posterior.linearised_counts import CountedOutcomes
    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.tasks.task import Rare, Task
    from bettersafe.typing import Floats, Ints, Labels, Log, Progress


ESTIMATED = "estimated from the data"

LARGE_ROWS = 10_000_000
"""Rows beyond which B-OPT counts a log on disk and does not load it."""

PAIR_REWARDS = "rewards are taken from counts: means per state and action, not per next state"


def task_counts(task: Task, *, progress: Progress | None = None) -> Counts:
    """Counts of the task's data, with derived objectives and the actions of the baseline file."""
    if is_counts(task.data):
        counts = with_objectives(load_counts(task.data), task.objectives, title=Path(task.data).name)
        if task.baseline == "estimate":
            counts = dataclasses.replace(counts, baseline_prob=None)
    else:
        counts = count_files(task.data, objectives=task.objectives, columns=task_columns(task), progress=progress)
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


def task_baseline(task: Task, counts: Counts) -> tuple[Floats, str]:
    """Baseline [X, A] of the task, and its origin in words."""
    if task.baseline == "estimate":
        return estimate_baseline(counts), ESTIMATED
    if task.baseline in ("", "logged"):
        if counts.baseline_prob is None and not task.baseline:
            return estimate_baseline(counts), ESTIMATED
        return logged_baseline(counts), "logged with the data"
    baseline = read_policy(task.baseline, counts.state_labels, counts.action_labels)
    check_logged_baseline(counts, baseline)
    return baseline, f"given in {Path(task.baseline).name}"


def by_objective(
    values: Mapping[str, float], objectives: tuple[Objective, ...], what: str, *, otherwise: float
) -> Floats:
    """Vector [d] of the values given by objective; ``otherwise`` for the other objectives."""
    names = [objective.name for objective in objectives]
    for name in values:
        if name not in names:
            raise ParameterError(
                f"{what} of {name}: there is no such objective; the objectives are {', '.join(names)}.{did_you_mean(name, names)}",
                setting=what,
            )
    return np.array([values.get(name, otherwise) for name in names])


def task_thresholds(threshold: dict[str, float], objectives: tuple[Objective, ...]) -> Floats | None:
    """Thresholds, signed so that more is better, shape [d], NaN for none; None if no objective has one."""
    if not threshold:
        return None
    given = by_objective(threshold, objectives, "threshold", otherwise=np.nan)
    if not all(np.isfinite(value) for value in threshold.values()):
        raise ParameterError(f"thresholds must be finite numbers; got {threshold}.", setting="threshold")
    return np.array([user_sign(o, value) for o, value in zip(objectives, given, strict=True)])


class HeldOutSettings(Protocol):
    """Settings of a held-out test, as in a `Task` and in the settings of `certify_run`."""

    @property
    def delta(self) -> float: ...  # noqa: D102
    @property
    def zeta(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def estimator(self) -> str: ...  # noqa: D102
    @property
    def bound(self) -> str: ...  # noqa: D102
    @property
    def levels(self) -> Levels: ...  # noqa: D102
    @property
    def horizon(self) -> int | None: ...  # noqa: D102


def safety_rule(settings: HeldOutSettings, objectives: tuple[Objective, ...]) -> SafetyRule:
    """Rule of a held-out test, with ranges from the objectives."""
    ranges = reward_ranges(objectives)
    discount = np.array([objective.discount for objective in objectives])
    return SafetyRule(
        delta=settings.delta,
        zeta=by_objective(settings.zeta, objectives, "zeta", otherwise=0.0),
        estimator=settings.estimator,
        bound=settings.bound,
        levels=settings.levels,
        reward_range=ranges,
        return_range=None if ranges is None else return_range(*ranges, discount, settings.horizon),
        horizon=settings.horizon,
    )


def task_priors(task: Task) -> PriorSet:
    """Priors of the task."""
    return PriorSet(neutral=task.prior, pessimism=task.pessimism)


def task_question(task: Task, objectives: tuple[Objective, ...], cluster: RayCluster | None = None) -> Question:
    """Settings of the posterior in the task."""
    return Question(
        delta=task.delta,
        zeta=by_objective(task.zeta, objectives, "zeta", otherwise=0.0),
        draws=task.draws,
        seed=task.seed,
        form=task.form,
        priors=task_priors(task),
        cluster=cluster,
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


def memory_needed(task: Task) -> tuple[float, str]:
    """Memory in bytes for a task on a counts file, from the file's header alone, and a description of the task."""
    sizes = counted_sizes(task.data)
    return counts_bytes(sizes) + task_bytes(task, sizes), f"{task.resolved_method} on {sizes}"


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


def task_bytes(task: Task, sizes: Sizes) -> float:
    """Memory in bytes for a task, without its counts."""
    needed = model_bytes(sizes)
    if not METHODS[task.resolved_method].posterior:
        return needed
    if form_for(task.form, sizes.n_outcomes, sizes.n_objectives, draws=task.draws) == "linearised" and available():
        return needed + linearised_bytes(sizes)
    return needed + outcomes_bytes(sizes)


def fits(data: str, n_objectives: int) -> bool:
    """Whether ``data`` is a log that fits into memory; if not, B-OPT uses its counts."""
    if is_counts(data):
        return False
    rows = rows_about(data)
    return rows <= LARGE_ROWS and log_bytes(int(rows), n_objectives) <= available_bytes()


def counted_outcomes(
    counts: Counts, model: Model, derived: tuple[Rare, ...], *, form: Form, draws: int
) -> Outcomes | CountedOutcomes:
    """Outcomes for the posterior, in the representation for draws or for linearisation, as ``form`` requires."""
    names = [objective.name for objective in counts.objectives]
    places = {names.index(rare.name): rare for rare in derived}
    if form_for(form, counts.sizes.n_outcomes, counts.n_objectives, draws=draws) == "linearised" and available():
        return gather_counted(counts, model, known=places)
    known = {}
    for k, rare in places.items():
        known[k] = np.where(visit_table(counts) < rare.below, rare.reward, 0.0)
    return outcomes_of(counts, known_rewards=known)


def task_outcomes(
    dataset: Dataset, visits: Ints, derived: tuple[Rare, ...], objectives: tuple[Objective, ...]
) -> Outcomes:
    """Outcomes of a log for the posterior; rewards of derived objectives are known, because they depend on the pair alone."""
    rows = with_derived_rows(dataset, visits, derived, objectives)
    names = [objective.name for objective in rows.objectives]
    known = {names.index(rare.name): np.where(visits < rare.below, rare.reward, 0.0) for rare in derived}
    return gather_outcomes(rows, known_rewards=known)


def visit_table(counts: Counts) -> Ints:
    """n(x,a), shape [X, A]."""
    table = np.zeros((counts.n_states, counts.n_actions), dtype=np.int64)
    table[counts.pair_state, counts.pair_action] = counts.pair_count
    return table


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
    named: Labels = policy_actions(task.baseline, counts.action_labels)
    new = np.setdiff1d(named.astype(str), counts.action_labels.astype(str))
    counts = declare_actions(counts, named)
    if new.size:
        note = f"{Path(task.baseline).name} has actions that were never logged: {', '.join(new[:5])}"
        counts = dataclasses.replace(counts, notes=(*counts.notes, note))
    return counts


def check_size(task: Task, counts: Counts) -> None:
    """Raises an error if the baseline and the model would not fit into memory."""
    sizes = counts.sizes
    check_memory(task_bytes(task, sizes), f"{task.resolved_method} on {sizes}")


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
