"""Evidence on a saved policy: a log, with the policy and the baseline over its states and actions.

A new log may have states and actions that the run does not have. In a new state, the proposal follows the baseline. A known
baseline is kept; an estimated baseline is estimated again from the run's counts and the new log together, so that every logged
decision has a positive probability.

Logs of any size are read in blocks of episodes.
"""

from __future__ import annotations

import dataclasses
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe._system.files import file_digest
from bettersafe.errors import (
    DataError,
    ParameterError,
    check_choice,
    check_integer,
    check_options,
    check_path,
    check_risk,
    check_type,
    check_types,
)
from bettersafe.evaluation.evaluate import comparison_rows
from bettersafe.evaluation.facts import ESTIMATORS
from bettersafe.logs._reader.files import expand
from bettersafe.logs.counts import count, visit_table
from bettersafe.logs.dataset import Columns, in_vocabulary
from bettersafe.logs.episodes import n_units, row_visits, with_blocks
from bettersafe.logs.source import open_episodes
from bettersafe.mdp.policy import check_policy
from bettersafe.model import check_logged_baseline, logged_baseline
from bettersafe.runs.info import ESTIMATED
from bettersafe.runs.policy_file import in_vocabulary as policy_in_vocabulary
from bettersafe.runs.policy_file import read_policy
from bettersafe.runs.run import Run
from bettersafe.tasks.inputs import (
    check_ranges,
    task_baseline,
    task_episodes,
    with_derived_rows,
)
from bettersafe.tasks.task import Rare, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bettersafe.evaluation.evaluate import EstimateRow
    from bettersafe.logs.counts import Counts
    from bettersafe.logs.dataset import Objective
    from bettersafe.typing import Bools, Floats, Ints, Labels, Log, Progress, Rng


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Log with a policy and a baseline over its states and actions.

    Attributes:
        log: Log with derived objectives, in memory or on disk.
        policy: π, shape [X, A].
        baseline: π_b, shape [X, A].
        baseline_known: False if the baseline was estimated.
        training_baseline: Baseline with which the policy was made, shape [X, A].
        notes: Notes on the log.
    """

    log: Log
    policy: Floats
    baseline: Floats
    baseline_known: bool
    training_baseline: Floats
    notes: tuple[str, ...]


@contextmanager
def evidence_for_run(
    run: Run, data: str | os.PathLike[str], *, columns: Columns | None = None, progress: Progress | None = None
) -> Iterator[Evidence]:
    """Evidence on a run from a log of any size, read with the run's settings.

    Policy and baseline are over the states and actions of the run and the log. The log is read in blocks while the context is
    open.

    Args:
        run: Run.
        data: Log: a file or a glob.
        columns: Names of the columns, if they differ from the run's log.
        progress: Callback while the log is read.

    Examples:
        >>> from bettersafe.tasks import evidence_for_run
        >>> with evidence_for_run(run, "later.parquet") as evidence:
        ...     print(evidence.log.n_episodes, evidence.baseline_known)
        1000 True
    """
    check_type("run", run, Run)
    check_path("data", data)
    check_options(progress=progress)
    objectives, columns = read_like(run, columns)
    with open_episodes(data, objectives=objectives, columns=columns, progress=progress) as episodes:
        yield evidence_on(run, episodes, os.fspath(data))


def derived_of(run: Run) -> tuple[Rare, ...]:
    """Derived objectives of a run."""
    return tuple(Rare(**rare) for rare in run.info.settings.get("derived", ()))


def read_like(run: Run, columns: Columns | None) -> tuple[list[Objective], Columns]:
    """Objectives and columns to read for a run; ``columns`` overrides the run's columns."""
    settings = run.info.settings
    names = {rare.name for rare in derived_of(run)}
    columns = Columns(**settings.get("columns", {})) if columns is None else columns
    if settings.get("baseline") == "estimate":
        columns = dataclasses.replace(columns, baseline_prob="")
    return [o for o in run.objectives if o.name not in names], columns


def evidence_on(run: Run, own: Log, data: str) -> Evidence:
    """Evidence on a run from the log ``own``, which was read from ``data``."""
    derived = derived_of(run)
    for what, theirs, ours in (
        ("states", own.state_labels, run.state_labels),
        ("actions", own.action_labels, run.action_labels),
    ):
        if theirs.dtype.kind != ours.dtype.kind:
            kinds = {"U": "text", "i": "whole numbers"}
            raise DataError(
                f"{what} are {kinds[ours.dtype.kind]} in the run and {kinds[theirs.dtype.kind]} in {data}. Use the same type in both."
            )
    run = run_within(run, own.state_labels, own.action_labels)
    states = np.union1d(run.state_labels, own.state_labels)
    actions = np.union1d(run.action_labels, own.action_labels)
    log = with_blocks(own, lambda block: in_vocabulary(block, states, actions))
    counts = count(log)
    new = visit_table(counts)
    old = run_visits(run, log)
    known = run.info.baseline_source != ESTIMATED
    seen = old + new
    total = seen.sum(axis=1, keepdims=True)
    estimated = np.where(total > 0, seen / np.maximum(total, 1), 1.0 / actions.size)
    given = run.info.baseline_source.startswith("given")
    if known:
        baseline = policy_in_vocabulary(
            run.baseline, run.state_labels, run.action_labels, states, actions, elsewhere=estimated
        )
        if counts.baseline_prob is not None:
            baseline = _with_logged(baseline, counts, old > 0, trust_run=given)
    else:
        baseline = estimated
    policy = policy_in_vocabulary(
        run.proposal, run.state_labels, run.action_labels, states, actions, elsewhere=baseline
    )
    new_state = ~np.isin(states, run.state_labels)
    if not given:  # the run's row is arbitrary in a state without decisions
        new_state |= old.sum(axis=1) == 0
        fill = logged_baseline(counts) if known and counts.baseline_prob is not None else estimated
        baseline[new_state] = fill[new_state]
        policy[new_state] = fill[new_state]
    unknown = int(row_visits(log)[new_state].sum()) if new_state.any() else 0
    notes = list(own.notes)
    if unknown:
        notes.append(
            f"{unknown:,} of {log.n_rows:,} decisions are in states that the run does not have; there the policy follows the"
            " baseline"
        )
    return Evidence(
        log=with_blocks(log, lambda block: with_derived_rows(block, old, derived, run.objectives)),
        policy=policy,
        baseline=baseline,
        baseline_known=known,
        training_baseline=policy_in_vocabulary(
            run.baseline, run.state_labels, run.action_labels, states, actions, elsewhere=baseline
        ),
        notes=tuple(notes),
    )


def _with_logged(baseline: Floats, counts: Counts, tried: Bools, *, trust_run: bool) -> Floats:
    """The run's known baseline [X, A], completed by a new log's probabilities of pairs without data in the run.

    The log must agree with the run on pairs in ``tried``, or on all pairs if ``trust_run``. A state's remaining probability is
    spread evenly over the actions that neither of them covers.
    """
    assert counts.baseline_prob is not None
    known = tried | trust_run
    mine = known[counts.pair_state, counts.pair_action]
    check_logged_baseline(
        dataclasses.replace(
            counts, baseline_prob=np.where(mine, counts.baseline_prob, baseline[counts.pair_state, counts.pair_action])
        ),
        baseline,
    )
    if trust_run:
        return baseline
    fresh = np.zeros(baseline.shape, dtype=bool)
    fresh[counts.pair_state[~mine], counts.pair_action[~mine]] = True
    table = baseline.copy()
    table[counts.pair_state[~mine], counts.pair_action[~mine]] = counts.baseline_prob[~mine]
    said = known | fresh
    rows = np.any(fresh, axis=1)
    left = np.maximum(1.0 - np.where(said, table, 0.0).sum(axis=1), 0.0)
    share = left / np.maximum((~said).sum(axis=1), 1)
    table[rows] = np.where(said, table, share[:, None])[rows]
    return check_policy(
        table, *table.shape, name="baseline of the run and the log", state_labels=counts.state_labels
    ).copy()


@contextmanager
def evidence_for_policy(policy: str | Path, task: Task, *, progress: Progress | None = None) -> Iterator[Evidence]:
    """Evidence on a policy file from the log and the baseline of ``task``.

    The log may have any size. It is read in blocks while the context is open.

    Args:
        policy: Policy file.
        task: Task with the log and its columns.
        progress: Callback while the log is read.

    Examples:
        >>> from bettersafe.tasks import evidence_for_policy
        >>> with evidence_for_policy("run/policy.parquet", task) as evidence:
        ...     print(evidence.policy.shape)
        (6, 3)
    """
    check_path("policy", policy)
    check_type("task", task, Task)
    check_options(progress=progress)
    if task.derived:
        raise ParameterError(
            f"the derived objective {task.derived[0].name} depends on the data from which the policy was made: evaluate a run"
            " directory instead."
        )
    with task_episodes(task, progress=progress) as log:
        counts = count(log)
        check_ranges(counts.objectives, counts.reward_min, counts.reward_max)
        given = task_baseline(task, counts)
        yield Evidence(
            log=log,
            policy=read_policy(policy, log.state_labels, log.action_labels),
            baseline=given.policy,
            baseline_known=given.known,
            training_baseline=given.policy,
            notes=(*log.notes, *given.notes),
        )


def evaluate_saved(
    evidence: Evidence,
    *,
    estimators: Sequence[str] = tuple(ESTIMATORS),
    delta: float = 0.1,
    interval: str = "t",
    folds: int = 5,
    rng: Rng = 0,
    horizon: int | None = None,
) -> tuple[EstimateRow, ...]:
    """Off-policy estimates with intervals and diagnostics, one row per estimator and objective, in the sign of the log.

    Models for dr, wdr and model are cross-fitted with ``folds``. The rows "logged" have the returns of the logged episodes. Every
    row has the baseline's return by the same estimator and of the same steps.

    Args:
        evidence: Result of `evidence_for_run` or `evidence_for_policy`.
        estimators: Names of the estimators.
        delta: δ; the level of the intervals is 1 − δ.
        interval: "t", "bootstrap" or "bca".
        folds: Number of folds for cross-fitting.
        rng: Seed or generator for the split into folds.
        horizon: Number of steps H of the returns; None for no limit.

    Examples:
        >>> from bettersafe.tasks import evaluate_saved, evidence_for_run
        >>> with evidence_for_run(run, "later.parquet") as evidence:
        ...     rows = evaluate_saved(evidence, estimators=["dr"])
        >>> sorted({row["estimator"] for row in rows})
        ['dr', 'logged']
    """
    check_type("evidence", evidence, Evidence)
    data = evidence.log
    check_types("estimators", estimators, str)
    for estimator in estimators:
        check_choice("estimator", estimator, ESTIMATORS)
    check_risk(delta)
    check_integer("folds", folds, least=1)
    folds = min(folds, n_units(data))
    if folds < 2:  # cross-fitting needs at least two episodes
        estimators = tuple(estimator for estimator in estimators if not ESTIMATORS[estimator].fills_in)
    needed = folds if any(ESTIMATORS[estimator].has_folds for estimator in estimators) else None
    rows = comparison_rows(
        data,
        evidence.policy,
        evidence.baseline,
        estimators=estimators,
        folds=needed,
        rng=rng,
        delta=delta,
        interval=interval,
        horizon=horizon,
    )
    return tuple(rows)


def known_log(run: Run, data: str, digest: str) -> str | None:
    """The part of ``data`` (with digest ``digest``) from which the policy was made: all, the first such file, or None.

    For a policy made from counts, the counted logs are compared.
    """
    made_from = run.info.data
    if digest == made_from.sha256:
        return data
    counted = {file.sha256 for file in made_from.inputs}
    return next((str(path) for path in (expand(data) if counted else ()) if file_digest(path) in counted), None)


def run_within(run: Run, state_labels: Labels, action_labels: Labels) -> Run:
    """The run without the states that neither its data nor ``state_labels`` has, and without actions that are played only there.

    A baseline file may give such states.
    """
    rows = np.any(run.counts > 0, axis=1) | np.isin(run.state_labels, state_labels)
    columns = np.isin(run.action_labels, action_labels)
    for table in (run.counts, run.baseline, run.proposal):
        columns |= np.any(table[rows] > 0, axis=0)
    if rows.all() and columns.all():
        return run
    part = np.ix_(rows, columns)
    return dataclasses.replace(
        run,
        proposal=run.proposal[part],
        baseline=run.baseline[part],
        counts=run.counts[part],
        state_labels=run.state_labels[rows],
        action_labels=run.action_labels[columns],
    )


def run_visits(run: Run, log: Log) -> Ints:
    """n(x,a) of the run over the log's states and actions, which include the run's that have data, shape [X, A]."""
    table = np.zeros((log.n_states, log.n_actions), dtype=np.int64)
    x, a = np.nonzero(run.counts)
    table[
        np.searchsorted(log.state_labels, run.state_labels)[x], np.searchsorted(log.action_labels, run.action_labels)[a]
    ] = run.counts[x, a]
    return table
