"""Evidence about a saved policy from a log: the log, and the two policies over its states and actions.

A log that came later may have states and actions that the run does not know. In a state that it does not know the proposal is
taken to do what the baseline does. A known baseline stays what it was; an estimated one is estimated again from the run's
counts and the new log together, so that no decision in the new log is impossible under it.

A log of any size is read in blocks of episodes.
"""

from __future__ import annotations

import dataclasses
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bettersafe._system.files import file_digest
from bettersafe.errors import DataError, ParameterError, check_choice, check_path, check_type
from bettersafe.evaluation.evaluate import evaluate_many, evaluation_rows, logged_rows
from bettersafe.evaluation.facts import ESTIMATORS
from bettersafe.logs._reader.files import expand
from bettersafe.logs.counts import count
from bettersafe.logs.dataset import Columns, in_vocabulary
from bettersafe.logs.episodes import row_visits, with_blocks
from bettersafe.logs.source import open_episodes
from bettersafe.mdp.policy import check_policy
from bettersafe.model import check_logged_baseline, logged_baseline
from bettersafe.runs.policy_file import in_vocabulary as policy_in_vocabulary
from bettersafe.runs.policy_file import read_policy
from bettersafe.runs.run import Run
from bettersafe.tasks.inputs import (
    ESTIMATED,
    check_ranges,
    task_baseline,
    task_episodes,
    visit_table,
    with_derived_rows,
)
from bettersafe.tasks.task import Rare, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bettersafe.logs.counts import Counts
    from bettersafe.logs.dataset import Objective
    from bettersafe.typing import Floats, Log, Progress, Rng


Rows = tuple[dict[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A log and the two policies over its states and actions.

    Attributes:
        log: The log, with derived objectives, in memory or on disk.
        policy: π, shape [X, A].
        baseline: π_b, shape [X, A].
        baseline_known: False where it was estimated.
        training_baseline: What the baseline was taken to be when the policy was made, shape [X, A].
        notes: What is worth saying.
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
    """A log read as the run's own was, with the run's policy and baseline over the states and actions of both.

    The log may have any size: it is read in blocks while the context is open.

    Args:
        run: The run.
        data: The log: a file or a glob.
        columns: Which column is which, if not as in the run's log.
        progress: Called while the log is read.

    Examples:
        >>> from bettersafe.tasks import evidence_for_run
        >>> with evidence_for_run(run, "later.parquet") as evidence:
        ...     print(evidence.log.n_episodes, evidence.baseline_known)
        1000 True
    """
    check_type("run", run, Run)
    check_path("data", data)
    objectives, columns = read_like(run, columns)
    with open_episodes(data, objectives=objectives, columns=columns, progress=progress) as episodes:
        yield evidence_on(run, episodes, os.fspath(data))


def read_like(run: Run, columns: Columns | None) -> tuple[list[Objective], Columns]:
    """The objectives and columns to read for a run; ``columns`` go before the run's own."""
    settings = run.info.settings
    names = {rare["name"] for rare in settings.get("derived", ())}
    columns = Columns(**settings.get("columns", {})) if columns is None else columns
    if settings.get("baseline") == "estimate":
        columns = dataclasses.replace(columns, baseline_prob="")
    return [o for o in run.objectives if o.name not in names], columns


def evidence_on(run: Run, own: Log, data: str) -> Evidence:
    """Evidence about a run on the log ``own``, which was read from ``data``."""
    derived = tuple(Rare(**rare) for rare in run.info.settings.get("derived", ()))
    for what, theirs, ours in (
        ("states", own.state_labels, run.state_labels),
        ("actions", own.action_labels, run.action_labels),
    ):
        if theirs.dtype.kind != ours.dtype.kind:
            kinds = {"U": "text", "i": "whole numbers"}
            raise DataError(
                f"{what} are {kinds[ours.dtype.kind]} in the run and {kinds[theirs.dtype.kind]} in {data}. Write both alike."
            )
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
    strange = ~np.isin(states, run.state_labels)
    if not given:  # in a state never acted in, the run's row was a guess
        strange |= old.sum(axis=1) == 0
        fill = logged_baseline(counts) if known and counts.baseline_prob is not None else estimated
        baseline[strange] = fill[strange]
        policy[strange] = fill[strange]
    unknown = int(row_visits(log)[strange].sum()) if strange.any() else 0
    notes = list(own.notes)
    if unknown:
        notes.append(
            f"{unknown:,} of {log.n_rows:,} decisions are in states that the run does not know; there the policy"
            " is taken to do what the baseline does"
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


def _with_logged(baseline: Floats, counts: Counts, tried: npt.NDArray[np.bool_], *, trust_run: bool) -> Floats:
    """The run's known baseline [X, A] with what a new log says of pairs that the run never saw tried.

    Where the run knows (``tried``, or everywhere if ``trust_run``), the log must agree. What is then left of a state's
    probability goes evenly to the actions of which neither says anything.
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
    """A log read as ``task`` says, with a policy from a file and the baseline that the task names.

    The log may have any size: it is read in blocks while the context is open.

    Args:
        policy: A policy file.
        task: Where the log is, and how to read it.
        progress: Called while the log is read.

    Examples:
        >>> from bettersafe.tasks import evidence_for_policy
        >>> with evidence_for_policy("run/policy.parquet", task) as evidence:
        ...     print(evidence.policy.shape)
        (6, 3)
    """
    check_path("policy", policy)
    check_type("task", task, Task)
    if task.derived:
        raise ParameterError(
            f"what is rare ({task.derived[0].name}) is a matter of the data that the policy was made from: evaluate a run directory for that."
        )
    with task_episodes(task, progress=progress) as log:
        counts = count(log)
        check_ranges(counts.objectives, counts.reward_min, counts.reward_max)
        baseline, source = task_baseline(task, counts)
        yield Evidence(
            log=log,
            policy=read_policy(policy, log.state_labels, log.action_labels),
            baseline=baseline,
            baseline_known=source != ESTIMATED,
            training_baseline=baseline,
            notes=log.notes,
        )


def evaluate_saved(
    evidence: Evidence,
    *,
    estimators: Sequence[str] = tuple(ESTIMATORS),
    delta: float = 0.1,
    interval: str = "t",
    folds: int = 5,
    rng: Rng = 0,
) -> Rows:
    """All estimators side by side, with intervals at level 1 − δ and diagnostics, in the user's own sign.

    Models for dr, wdr and model are cross-fitted with ``folds``; two lines "logged" say what the baseline earned.

    Args:
        evidence: From `evidence_for_run` or `evidence_for_policy`.
        estimators: Which ones.
        delta: Intervals are at level 1 − δ.
        interval: "t", "bootstrap" or "bca".
        folds: Of the cross-fitting.
        rng: Seed or generator that draws the folds.

    Examples:
        >>> from bettersafe.tasks import evaluate_saved, evidence_for_run
        >>> with evidence_for_run(run, "later.parquet") as evidence:
        ...     rows = evaluate_saved(evidence, estimators=["dr"])
        >>> sorted({row["estimator"] for row in rows})
        ['dr', 'logged']
    """
    check_type("evidence", evidence, Evidence)
    data = evidence.log
    for estimator in estimators:
        check_choice("estimator", estimator, ESTIMATORS)
    if not 0.0 < delta < 1.0:
        raise ParameterError(f"delta must be between 0 and 1; got {delta!r}.")
    folds = min(folds, data.n_episodes)
    if folds < 2:  # of one episode nothing can be cross-fitted
        estimators = tuple(estimator for estimator in estimators if not ESTIMATORS[estimator].needs_model)
    logged = logged_rows(data, evidence.baseline, delta=delta, interval=interval)
    needed = folds if any(ESTIMATORS[estimator].needs_model for estimator in estimators) else None
    results = evaluate_many(
        data,
        evidence.policy,
        evidence.baseline,
        estimators=estimators,
        folds=needed,
        rng=rng,
    )
    rows = evaluation_rows(results, data.objectives, delta=delta, interval=interval)
    return (*logged, *rows)


def known_log(run: Run, data: str, digest: str) -> str | None:
    """What of ``data``, whose digest is ``digest``, the policy was made from: all, the first such file, or None.

    Of a policy that was made from counts, the logs that had been counted are known.
    """
    made_from = run.info.data
    if digest == made_from.sha256:
        return data
    counted = {file.sha256 for file in made_from.inputs}
    return next((str(path) for path in (expand(data) if counted else ()) if file_digest(path) in counted), None)


def run_visits(run: Run, log: Log) -> npt.NDArray[np.int64]:
    """The run's n(x,a) over the log's states and actions, shape [X, A]."""
    table = np.zeros((log.n_states, log.n_actions), dtype=np.int64)
    x, a = (
        np.searchsorted(whole, own)
        for whole, own in ((log.state_labels, run.state_labels), (log.action_labels, run.action_labels))
    )
    table[np.ix_(x, a)] = run.counts
    return table
