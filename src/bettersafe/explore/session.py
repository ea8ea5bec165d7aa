"""A session of the explorer: counts, model and priors, and the policy for given settings.

Counts, baseline, model and priors are computed once from the task (`open_session`). Then, for any settings (λ, ε, δ, ζ),

    solve     the policy in the estimated model; depends on λ, ε and δ
    answer    its returns in the estimated model, and where decisions change (`answers`)
    believe   the linearised posterior of its gains (`answers`): fast, for exploration
    keep      the run that `bettersafe improve` gives for the same settings, with the same functions, saved to disk (`keeping`)

A session is read-only; `cache` keeps the latest solutions. This module has no HTTP and no statistics of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import ThreadpoolController

from bettersafe._system.memory import check_memory, outcomes_bytes
from bettersafe.errors import ParameterError
from bettersafe.logs._reader.files import data_digest
from bettersafe.logs.counts import visit_table
from bettersafe.mdp.values import policy_values
from bettersafe.methods.facts import METHODS
from bettersafe.posterior.candidates import linearised_spread
from bettersafe.posterior.habits import informed_priors
from bettersafe.posterior.judge import doubt_of_log, rounding_of
from bettersafe.posterior.outcomes import Outcomes
from bettersafe.posterior.priors import Posterior, only_played
from bettersafe.tasks.checks import row_checks, with_default_test
from bettersafe.tasks.inputs import check_ranges, task_baseline, task_counts, task_dataset, task_model
from bettersafe.tasks.outcomes import check_size, counted_outcomes, fits, reward_notes, task_outcomes
from bettersafe.tasks.rules import by_objective, posterior_priors
from bettersafe.tasks.run import task_improve
from bettersafe.typing import Event, Floats, Progress, ignore

if TYPE_CHECKING:
    from bettersafe.logs.counts import Counts
    from bettersafe.logs.dataset import Objective
    from bettersafe.methods.result import Improvement
    from bettersafe.model import Model
    from bettersafe.posterior.candidates import Spread
    from bettersafe.posterior.judge import Doubt
    from bettersafe.tasks.task import Task

Priors = tuple[Posterior, list[Posterior]]
BLAS = ThreadpoolController()


@dataclass(frozen=True, kw_only=True)
class Session:
    """Counts, baseline, model and priors of an exploration.

    Attributes:
        task: Task of the command line; the page's settings override it.
        base: The task file, if one was given, for the repeated command.
        task_file: Name of the task file.
        counts: Counts of the log.
        baseline: π_b, shape [X, A].
        source: Source of the baseline.
        model: Estimated model at the task's δ.
        priors: Posteriors under the neutral prior and under the pessimistic ones, one per objective (`informed_priors`).
        played_priors: `priors` restricted to the actions that the baseline plays: enough for nearly every policy, with tables
            that are computed only once.
        doubt: What the posterior does not know about any policy, as in B-OPT (`doubt_of_log`).
        rounding: Losses that are rounding errors, shape [d].
        digest: sha256 of the log.
    """

    task: Task
    base: Task | None
    task_file: str | None
    counts: Counts
    baseline: Floats
    source: str
    model: Model
    priors: Priors
    played_priors: Priors
    doubt: Doubt
    rounding: Floats
    digest: str

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Objectives of the log and derived ones, length d."""
        return self.counts.objectives


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the page: λ [d], ε, δ and ζ [d]."""

    preference: tuple[float, ...]
    epsilon: float
    delta: float
    zeta: tuple[float, ...]

    @property
    def policy_key(self) -> tuple[tuple[float, ...], float, float]:
        """Settings that the policy depends on."""
        return self.preference, self.epsilon, self.delta


def open_session(
    task: Task,
    *,
    base: Task | None = None,
    task_file: str | None = None,
    progress: Progress | None = None,
) -> Session:
    """Read and count the log, and compute the model and the priors.

    Args:
        task: Task with an explorable method and no hold-out.
        base: The task file as read, if one was given.
        task_file: Name of the task file.
        progress: Called at every step, and while the log is read.
    """
    say = progress or ignore
    if task.method == "auto":
        task = replace(task, method="s-opt")
    _check_explorable(task)
    say(Event(what="Reading and counting"))
    counts = task_counts(task, progress=progress)
    check_size(task, counts)
    check_ranges(counts.objectives, counts.reward_min, counts.reward_max)
    by_objective(task.zeta, counts.objectives, "zeta", otherwise=0.0)  # refuses names of other objectives
    given = task_baseline(task, counts)
    baseline = given.policy
    say(Event(what="Estimating the model"))
    model = task_model(task, counts, baseline)
    say(Event(what="Making the priors"))
    outcomes, notes = _outcomes(task, counts, model, baseline, given.known, progress)
    baseline_v = policy_values(model.mdp, baseline)[0]
    priors = informed_priors(outcomes, posterior_priors(task), baseline, baseline_v)
    return Session(
        task=task,
        base=base,
        task_file=task_file,
        counts=replace(counts, notes=(*counts.notes, *given.notes, *notes)),
        baseline=baseline,
        source=given.source,
        model=model,
        priors=priors,
        played_priors=(
            only_played(priors[0], baseline > 0.0),
            [only_played(prior, baseline > 0.0) for prior in priors[1]],
        ),
        doubt=doubt_of_log(model, baseline, outcomes, estimated=not given.known),
        rounding=rounding_of(baseline_v),
        digest=data_digest(task.data),
    )


def _check_explorable(task: Task) -> None:
    """Raise ParameterError if the explorer can't honour a setting of the task."""
    offered = [name for name, facts in METHODS.items() if facts.explorable]
    if task.method not in offered:
        raise ParameterError(
            f"the method to explore must be one of {', '.join(offered)}; got {task.method!r}.", setting="method"
        )
    if task.horizon is not None:
        raise ParameterError(
            "horizon can't be used here: the explorer's posterior is of returns without a limit on steps. Use `run_task`.",
            setting="horizon",
        )
    if task.share > 0.0:
        raise ParameterError(
            "hold_out can't be used here: the explorer uses the whole log. Test a saved run with `certify_run`.",
            setting="hold_out",
        )


def _outcomes(
    task: Task, counts: Counts, model: Model, baseline: Floats, known: bool, progress: Progress | None
) -> tuple[Outcomes, tuple[str, ...]]:
    """Outcomes of the log, or of its counts if the data is a counts file or too large; and notes about them."""
    if fits(task.source, len(task.objectives)):
        dataset = task_dataset(task, progress=progress)
        checks = row_checks(dataset, baseline, known=known)
        notes = tuple(check.sentence for check in checks if check.against)
        outcomes = task_outcomes(dataset, visit_table(counts), task.derived, counts.objectives, events=task.events)
        return outcomes, notes
    check_memory(outcomes_bytes(counts.sizes), f"the explorer on {counts.sizes}")
    found = counted_outcomes(counts, model, task.derived, form="draws", draws=task.draws, events=task.events)
    assert isinstance(found, Outcomes)  # of the form "draws"
    return found, reward_notes(found)


def first_settings(session: Session) -> Settings:
    """Initial settings: those of the task."""
    return Settings(
        preference=tuple(objective.weight for objective in session.objectives),
        epsilon=session.task.budget,
        delta=session.task.delta,
        zeta=tuple(by_objective(session.task.zeta, session.objectives, "zeta", otherwise=0.0).tolist()),
    )


def explored_task(session: Session, settings: Settings) -> Task:
    """Task of `improve` for these settings."""
    task, weights = session.task, settings.preference
    if with_default_test(task) is not task:  # the page shows the whole log: nothing is held out by default
        task = replace(task, hold_out=0.0)
    n = len(task.objectives)
    zeta = {
        objective.name: loss
        for objective, loss in zip(session.objectives, settings.zeta, strict=True)
        if loss != 0.0 or objective.name in task.zeta
    }
    return replace(
        task,
        objectives=tuple(replace(o, weight=w) for o, w in zip(task.objectives, weights[:n], strict=True)),
        derived=tuple(replace(rare, weight=w) for rare, w in zip(task.derived, weights[n:], strict=True)),
        epsilon=settings.epsilon,
        delta=settings.delta,
        zeta=zeta,
    )


def solve(session: Session, settings: Settings) -> Improvement:
    """The policy that `improve` gives for these settings."""
    task = explored_task(session, settings)
    model = session.model
    if task.delta != model.delta:
        model = task_model(task, session.counts, session.baseline)
    objectives = tuple(
        replace(objective, weight=weight)
        for objective, weight in zip(session.objectives, settings.preference, strict=True)
    )
    return task_improve(task, model, session.baseline, objectives)


def spread(session: Session, policy: Floats) -> Spread:
    """Means and spreads of the policy's gains under the neutral and the pessimistic priors, as wide as in B-OPT."""
    inside = not np.any(policy[session.baseline <= 0.0])
    with BLAS.limit(limits=1, user_api="blas"):  # such small products are faster on one core
        found = linearised_spread(
            policy[None], session.baseline, *(session.played_priors if inside else session.priors)
        )
    doubt, d = session.doubt, len(session.objectives)
    return found.corrected(doubt.shift(1, d), doubt.covariance(1, d), doubt.factors(d))
