"""From a task to a run: counts, baseline, model, improvement, and what can be promised of it.

Nothing held out: the log is counted where it lies, whatever its size, and the certificate is what the counts prove.
A share held out (always with H-OPT): the log is read in blocks and split by episode; the policy is made from one part and tested
on the other.
B-OPT: all of the log is used for both. It is read into memory or, if it has more than `LARGE_ROWS` rows or does not fit, counted
where it lies; rewards of counts are known by pair.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe._system.files import versions
from bettersafe._system.memory import check_memory
from bettersafe._system.records import to_json
from bettersafe.certificate.make import certify, certify_h_opt, certify_theory, prove
from bettersafe.certificate.make_posterior import certify_posterior
from bettersafe.errors import check_type
from bettersafe.evaluation.evaluate import evaluate_many, evaluation_rows, logged_rows
from bettersafe.logs._reader.files import data_digest
from bettersafe.logs.counts import Counts, count, without_pairs
from bettersafe.logs.counts_file import is_counts
from bettersafe.logs.dataset import Objective, reward_ranges
from bettersafe.logs.episodes import split_log, with_blocks
from bettersafe.methods.b_opt import b_opt
from bettersafe.methods.facts import METHODS
from bettersafe.methods.h_opt import h_opt
from bettersafe.model import estimate_model
from bettersafe.posterior.draws import connected
from bettersafe.posterior.judge import sensitivity
from bettersafe.runs.info import CandidateInfo, DataInfo, PosteriorCandidate
from bettersafe.runs.policy_file import read_policy
from bettersafe.runs.run import Run, make_run
from bettersafe.tasks.inputs import (
    ESTIMATED,
    PAIR_REWARDS,
    by_objective,
    check_by_counts,
    check_ranges,
    check_size,
    counted_outcomes,
    fits,
    memory_needed,
    safety_rule,
    task_baseline,
    task_counts,
    task_dataset,
    task_episodes,
    task_model,
    task_outcomes,
    task_question,
    task_thresholds,
    visit_table,
    with_derived,
    with_derived_rows,
    without_outcomes,
)
from bettersafe.tasks.task import Task, settings_document
from bettersafe.typing import Event, ignore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.certificate.certificate import Certificate, Theory
    from bettersafe.evaluation.held_out import SafetyRule
    from bettersafe.methods.b_opt import BOpt
    from bettersafe.methods.h_opt import HOpt
    from bettersafe.methods.result import Improvement
    from bettersafe.model import Model
    from bettersafe.posterior.candidates import Candidate
    from bettersafe.posterior.draws import RayCluster
    from bettersafe.posterior.judge import Answer
    from bettersafe.posterior.linearised_counts import CountedOutcomes
    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.typing import Floats, Log, Progress


MODELLING = "Making the model"


@dataclass(frozen=True, kw_only=True)
class _Problem:
    """A task with its log counted and its model made: where every method begins.

    Attributes:
        task: The task.
        counts: Counts of the data that the policy is made from; the objectives and sizes suffice, once there is a model.
        baseline: π_b, shape [X, A].
        source: Where the baseline came from, in words.
        model: The model that the task asks for.
    """

    task: Task
    counts: Counts
    baseline: Floats
    source: str
    model: Model

    @property
    def baseline_known(self) -> bool:
        """Whether the baseline is known, not estimated from the data."""
        return self.source != ESTIMATED

    @property
    def preference(self) -> Floats:
        """λ, shape [d]."""
        return np.array([objective.weight for objective in self.counts.objectives])


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What a method found, and what is promised of it: the fields of a run."""

    improvement: Improvement
    certificate: Certificate | None = None
    status: str | None = None
    candidates: Sequence[CandidateInfo] = ()
    rows: Sequence[dict[str, Any]] = ()


def run_task(task: Task, *, progress: Progress | None = None, cluster: RayCluster | None = None) -> Run:
    """From files to an improved policy and what can be promised of it.

    Args:
        task: What is wanted.
        progress: Called at every step, while the log is read, after every round and while the posterior is asked.
        cluster: Ray cluster that makes B-OPT's draws, else this machine; the numbers are the same.

    Examples:
        >>> run = bettersafe.run_task(bettersafe.Task(data="log.parquet", objectives=log.objectives, epsilon=1.0, hold_out=0.3))
        >>> print(run.decision.sentence)
        Use the policy: it passed on every objective.
    """
    check_type("task", task, Task)
    if is_counts(task.data):
        check_by_counts(task)
        check_memory(*memory_needed(task))
    if task.share > 0.0:
        with task_episodes(task, progress=progress) as log:
            return _run_held_out(task, log, progress)
    if not METHODS[task.resolved_method].posterior:
        return _run_by_counts(task, progress)
    if fits(task.data, len(task.objectives)):
        return _run_posterior(task, progress, cluster)
    return _run_counted_posterior(task, progress, cluster)


def _counted(task: Task, progress: Progress | None) -> _Problem:
    """The problem from counts, whatever the number of rows."""
    say = progress or ignore
    say(Event(what="Reading counts" if is_counts(task.data) else "Reading and counting"))
    counts = task_counts(task, progress=progress)
    say(Event(what=MODELLING))
    check_size(task, counts)
    check_ranges(counts.objectives, counts.reward_min, counts.reward_max)
    baseline, source = task_baseline(task, counts)
    model = task_model(task, counts, baseline)
    return _Problem(task=task, counts=counts, baseline=baseline, source=source, model=model)


def _run_by_counts(task: Task, progress: Progress | None) -> Run:
    """Make the policy from counts; the certificate is what they prove."""
    say = progress or ignore
    problem = _counted(task, progress)
    problem = dataclasses.replace(problem, counts=without_outcomes(problem.counts))
    counts = problem.counts
    say(Event(what="Improving: the baseline's values"))
    improvement = task_improve(task, problem.model, problem.baseline, counts.objectives, progress)
    if not improvement.changed.size:
        return _run(problem, _Found(improvement=improvement))
    say(Event(what="Proving what the counts prove"))
    thresholds = task_thresholds(task.threshold, counts.objectives)
    theory = _prove(
        problem,
        improvement,
        delta=task.delta if thresholds is None else task.delta / 2.0,
        baseline_v=improvement.baseline_v,
    )
    zeta = by_objective(task.zeta, counts.objectives, "zeta", otherwise=0.0)
    gain = improvement.policy_return - improvement.baseline_return
    certificate = certify_theory(theory, gain, zeta=zeta, thresholds=thresholds, counts=counts)
    return _run(problem, _Found(improvement=improvement, certificate=certificate))


def _prove(problem: _Problem, improvement: Improvement, *, delta: float, baseline_v: Floats | None = None) -> Theory:
    """What the counts prove of the policy; Proposition 3.1 needs S-OPT's protection in every state as well as its budget."""
    return prove(
        problem.model,
        improvement.policy,
        problem.baseline,
        problem.counts,
        epsilon=improvement.epsilon if METHODS[improvement.method].proven else math.inf,
        delta=delta,
        baseline_known=problem.baseline_known,
        reward_range=reward_ranges(problem.counts.objectives),
        rewards_fixed=not problem.task.derived,
        baseline_v=baseline_v,
    )


# ---- a share held out


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """Both parts of the log, the model for dr and wdr, and the rule of the test."""

    train: Log
    held_out: Log
    control: Model
    rule: SafetyRule


def _run_held_out(task: Task, log: Log, progress: Progress | None) -> Run:
    """Make the policy from one part of the episodes and test it on the other."""
    everything = count(log)
    (progress or ignore)(Event(what=MODELLING))
    check_ranges(everything.objectives, everything.reward_min, everything.reward_max)
    check_size(task, everything)
    baseline, source = task_baseline(task, everything)
    halves = split_log(log, (1.0 - task.share, task.share), np.random.default_rng(task.seed))
    counts = with_derived(count(halves[0]), task.derived)
    visits = visit_table(counts)
    train, held_out = (
        with_blocks(part, lambda block: with_derived_rows(block, visits, task.derived, counts.objectives))
        for part in halves
    )
    model = task_model(task, counts, baseline)
    problem = _Problem(task=task, counts=counts, baseline=baseline, source=source, model=model)
    parts = _Parts(
        train=train,
        held_out=held_out,
        # in dr and wdr, what was never tried is taken to be worth what the baseline is: the most neutral guess
        control=estimate_model(counts, unseen="baseline", baseline=baseline),
        rule=safety_rule(task, counts.objectives),
    )
    choose = _chosen_by_test if METHODS[task.resolved_method].episodes else _made_and_tested
    found = choose(problem, parts, progress)
    certificate, rows = found.certificate, found.rows
    if certificate is None:
        return _run(problem, found)
    if found.improvement.changed.size:
        (progress or ignore)(Event(what="Evaluating what was held out"))
        certificate, rows = _with_estimates(problem, parts, found.improvement, certificate)
    tested_on = {"path": task.data, "rows": held_out.n_rows, "episodes": held_out.n_episodes}
    certificate = dataclasses.replace(certificate, data={"tested_on": tested_on})
    return _run(problem, dataclasses.replace(found, certificate=certificate, rows=rows))


def _chosen_by_test(problem: _Problem, parts: _Parts, progress: Progress | None) -> _Found:
    """H-OPT: candidates are tested, and one that passes is chosen."""
    task = problem.task
    found = h_opt(
        parts.train,
        parts.held_out,
        problem.baseline,
        preference=problem.preference,
        rule=dataclasses.replace(parts.rule, comparison=task.comparison),
        selection=task.selection,
        model=problem.model,
        control=parts.control,
        progress=progress,
    )
    certificate = None
    if found.tests:
        certificate = certify_h_opt(found, parts.held_out, baseline_known=problem.baseline_known, seed=task.seed)
    return _Found(
        improvement=found.improvement, certificate=certificate, status=found.reason, candidates=_tested(found)
    )


def _made_and_tested(problem: _Problem, parts: _Parts, progress: Progress | None) -> _Found:
    """Other methods: one policy is made, and tested if it differs from the baseline."""
    task, objectives = problem.task, problem.counts.objectives
    improvement = task_improve(task, problem.model, problem.baseline, objectives, progress)
    if not improvement.changed.size:
        return _Found(improvement=improvement)
    (progress or ignore)(Event(what="Testing"))
    certificate = certify(
        improvement.policy,
        problem.baseline,
        parts.held_out,
        parts.rule,
        baseline_known=problem.baseline_known,
        thresholds=task_thresholds(task.threshold, objectives),
        tuning=parts.train,
        model=parts.control,
    )
    return _Found(improvement=improvement, certificate=certificate)


def _with_estimates(
    problem: _Problem, parts: _Parts, improvement: Improvement, certificate: Certificate
) -> tuple[Certificate, Sequence[dict[str, Any]]]:
    """The certificate with what the counts prove and with diagnostics, and the rows of all estimators on what was held out."""
    task, baseline = problem.task, problem.baseline
    evaluations = evaluate_many(parts.held_out, improvement.policy, baseline, model=parts.control)
    rows = [
        *logged_rows(parts.held_out, baseline, delta=task.delta),
        *evaluation_rows(evaluations, problem.counts.objectives, delta=task.delta),
    ]
    theory = _prove(problem, improvement, delta=task.delta)
    return dataclasses.replace(certificate, theory=theory, diagnostics=diagnostics(rows, task.estimator)), rows


# ---- B-OPT


def _run_posterior(task: Task, progress: Progress | None, cluster: RayCluster | None) -> Run:
    """B-OPT on a log that is held in memory."""
    dataset = task_dataset(task, progress=progress)
    (progress or ignore)(Event(what=MODELLING))
    check_ranges(dataset.objectives, dataset.rewards.min(axis=0), dataset.rewards.max(axis=0))
    counts = with_derived(count(dataset), task.derived)
    check_size(task, counts)
    baseline, source = task_baseline(task, counts)
    model = task_model(task, counts, baseline)
    outcomes = task_outcomes(dataset, visit_table(counts), task.derived, counts.objectives)
    problem = _Problem(task=task, counts=counts, baseline=baseline, source=source, model=model)
    return _believed_run(problem, outcomes, progress, cluster)


def _run_counted_posterior(task: Task, progress: Progress | None, cluster: RayCluster | None) -> Run:
    """B-OPT on counts, whatever the number of rows."""
    problem = _counted(task, progress)
    counts = problem.counts
    outcomes = counted_outcomes(counts, problem.model, task.derived, form=task.form, draws=task.draws)
    header = dataclasses.replace(without_pairs(counts), notes=(*counts.notes, PAIR_REWARDS))
    problem = dataclasses.replace(problem, counts=header)
    del counts  # the model has what is still needed of it
    return _believed_run(problem, outcomes, progress, cluster)


def _believed_run(
    problem: _Problem,
    outcomes: Outcomes | CountedOutcomes,
    progress: Progress | None,
    cluster: RayCluster | None,
) -> Run:
    """Make candidates, ask the posterior about them, and choose."""
    task, model, objectives = problem.task, problem.model, problem.counts.objectives
    handed_in = {name: read_policy(name, model.state_labels, model.action_labels) for name in task.candidates}
    certificate = None
    (progress or ignore)(Event(what="Making candidates"))
    with connected(cluster):
        found = b_opt(
            outcomes,
            model,
            problem.baseline,
            preference=problem.preference,
            question=task_question(task, objectives, cluster),
            policies=handed_in,
            progress=progress,
        )
        if found.candidates and (found.accepted or not found.deciding.passed):  # never of a policy that is not returned
            certificate = posterior_certificate(
                found.answer,
                found.deciding,
                outcomes,
                problem.baseline,
                model=model,
                baseline_known=problem.baseline_known,
                baseline_v=found.improvement.baseline_v,
                objectives=objectives,
                progress=progress,
            )
    problem = dataclasses.replace(
        problem,
        task=dataclasses.replace(task, form=found.answer.question.form),
        counts=dataclasses.replace(problem.counts, notes=(*problem.counts.notes, *found.notes)),
    )
    return _run(
        problem,
        _Found(
            improvement=found.improvement,
            certificate=certificate,
            status=found.reason,
            candidates=_believed(found),
        ),
    )


def _tested(found: HOpt) -> list[CandidateInfo]:
    """H-OPT's candidates for run.json, in the order of their tests."""
    return [
        CandidateInfo(
            name=f"{100 * (1.0 - test.mix):.0f} % of the proposal",
            evidence="safety-test",
            gain=tuple(test.estimate.tolist()),
            least=tuple(test.bound.tolist()),
            level=test.level,
            passed=test.passed,
            chosen=found.accepted and test is found.deciding,
        )
        for test in found.tests
    ]


def _believed(found: BOpt) -> list[CandidateInfo]:
    """B-OPT's candidates for run.json, in the order they were made."""
    answer = found.answer
    return [
        PosteriorCandidate(
            name=candidate.name,
            evidence="posterior",
            gain=tuple(candidate.gain.tolist()),
            least=tuple(candidate.least.tolist()),
            level=answer.question.delta,
            p_safe=candidate.p_safe,
            error=candidate.error,
            p_objective=tuple(candidate.p_objective.tolist()),
            p_pessimistic=tuple(candidate.p_pessimistic.tolist()) if len(answer.priors) > 1 else (),
            draws=candidate.draws,
            passed=candidate.passed,
            open=answer.left_open(candidate),
            chosen=place == found.chosen,
        )
        for place, candidate in enumerate(found.candidates)
    ]


def posterior_certificate(
    answer: Answer,
    candidate: Candidate,
    outcomes: Outcomes | CountedOutcomes,
    baseline: Floats,
    *,
    model: Model,
    baseline_known: bool,
    baseline_v: Floats,
    objectives: Sequence[Objective],
    progress: Progress | None = None,
) -> Certificate:
    """The certificate of a candidate, with its probabilities under other priors."""
    others = sensitivity(
        candidate.policy,
        outcomes,
        baseline,
        answer.question,
        model=model,
        known=candidate if candidate.draws == answer.draws else None,
        baseline_v=baseline_v,
        progress=progress,
    )
    return certify_posterior(answer, candidate, baseline_known=baseline_known, others=others, objectives=objectives)


def diagnostics(rows: list[dict[str, Any]], estimator: str) -> dict[str, Any]:
    """What doubts the estimates of the test's estimator, for the certificate."""
    row = next(row for row in rows if row["estimator"] == estimator)
    names = (
        "episodes", "effective_sample_size", "mean_weight", "largest_weight", "largest_weight_share", "unsupported_share",
        "unsupported_episodes", "truncated_episodes", "usable", "trust",
    )  # fmt: skip
    return {name: row[name] for name in names}


def task_improve(
    task: Task,
    model: Model,
    baseline: Floats,
    objectives: tuple[Objective, ...],
    progress: Progress | None = None,
) -> Improvement:
    """The policy of the task's method in ``model``; not for methods that choose among candidates."""
    preference = np.array([objective.weight for objective in objectives])
    return METHODS[task.resolved_method].make(
        model, baseline, preference=preference, epsilon=task.budget, engine=task.engine, progress=progress
    )


def _run(problem: _Problem, found: _Found) -> Run:
    """Put a run together: what was found, what is promised of it, and where it came from."""
    task, counts, certificate = problem.task, problem.counts, found.certificate
    settings = settings_document(task)
    data = DataInfo(
        path=task.data,
        sha256=data_digest(task.data),
        rows=counts.n_rows,
        episodes=counts.n_episodes,
        inputs=() if counts.origin is None else counts.origin.inputs,
    )
    if certificate is not None:
        certificate = dataclasses.replace(
            certificate,
            settings={**settings, **certificate.settings},
            data={"made_from": to_json(data), **certificate.data},
            versions=versions(),
            seed=task.seed,
        )
    run = make_run(
        found.improvement,
        problem.model,
        counts.objectives,
        baseline_source=problem.source,
        data=data,
        settings=settings,
        notes=counts.notes,
        seed=task.seed,
        status=found.status,
        candidates=found.candidates,
    )
    return dataclasses.replace(run, certificate=certificate, evaluation=tuple(found.rows))
