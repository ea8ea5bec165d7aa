"""From a task to a run: counts, baseline, model, improvement, and what can be promised of it.

Nothing held out: the log is counted where it lies, whatever its size, and the certificate is what the counts prove.
A share held out (always with H-OPT): the log is read into memory and split by episode; the policy is made from one part and
tested on the other. B-OPT: the log is read into memory, and all of it is used for both; one of more than `LARGE_ROWS`, or too large for the
memory that is free, is counted where it lies instead, and so are counts from a file used, whose rewards are known by pair.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe._system.files import versions
from bettersafe._system.memory import check_memory
from bettersafe._system.records import to_json
from bettersafe.certificate.make import certify, certify_h_opt, certify_posterior, certify_theory, prove
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
from bettersafe.tasks.task import settings_document
from bettersafe.typing import Event, ignore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.certificate.certificate import Certificate
    from bettersafe.methods.b_opt import BOpt
    from bettersafe.methods.h_opt import HOpt
    from bettersafe.methods.result import Improvement
    from bettersafe.model import Model
    from bettersafe.posterior.candidates import Candidate
    from bettersafe.posterior.draws import RayCluster
    from bettersafe.posterior.judge import Answer
    from bettersafe.posterior.linearised_counts import CountedOutcomes
    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.tasks.task import Task
    from bettersafe.typing import Floats, Log, Progress


MODELLING = "Making the model"


def run_task(task: Task, *, progress: Progress | None = None, cluster: RayCluster | None = None) -> Run:
    """From files to an improved policy and what can be promised of it.

    Args:
        task: What is wanted.
        progress: Called at every step, while the log is read, after every round and while the posterior is asked.
        cluster: Where B-OPT makes its draws, if not here; the numbers are the same.
    """
    if is_counts(task.data):
        check_by_counts(task)
        check_memory(*memory_needed(task))
    if task.share > 0.0:
        return _run_held_out(task, progress)
    if METHODS[task.resolved_method].posterior:
        return _run_posterior(task, progress, cluster)
    say = progress or ignore
    say(Event(what=_reading(task)))
    counts = task_counts(task, progress=progress)
    say(Event(what=MODELLING))
    check_size(task, counts)
    check_ranges(counts.objectives, counts.reward_min, counts.reward_max)
    baseline, source = task_baseline(task, counts)
    model = task_model(task, counts, baseline)
    counts = without_outcomes(counts)
    say(Event(what="Improving: the baseline's values"))
    result = task_improve(task, model, baseline, counts.objectives, progress)
    thresholds = task_thresholds(task.threshold, counts.objectives)
    certificate = None
    if result.changed.size:
        say(Event(what="Proving what the counts prove"))
        theory = prove(
            model,
            result.policy,
            baseline,
            counts,
            epsilon=_proven_budget(result),
            delta=task.delta if thresholds is None else task.delta / 2.0,
            baseline_known=source != ESTIMATED,
            reward_range=reward_ranges(counts.objectives),
            rewards_fixed=not task.derived,
            baseline_v=result.baseline_v,
        )
        zeta = by_objective(task.zeta, counts.objectives, "zeta", otherwise=0.0)
        gain = result.policy_return - result.baseline_return
        certificate = certify_theory(theory, gain, zeta=zeta, thresholds=thresholds, counts=counts)
    return _run(task, result, model, counts, source, certificate)


def _run_held_out(task: Task, progress: Progress | None) -> Run:
    """Make the policy from one part of the episodes and test it on the other; the log is read in blocks."""
    with task_episodes(task, progress=progress) as log:
        return _tested_run(task, log, progress)


def _tested_run(task: Task, log: Log, progress: Progress | None) -> Run:
    say = progress or ignore
    everything = count(log)
    say(Event(what=MODELLING))
    check_ranges(everything.objectives, everything.reward_min, everything.reward_max)
    check_size(task, everything)
    baseline, source = task_baseline(task, everything)
    known = source != ESTIMATED
    parts = split_log(log, (1.0 - task.share, task.share), np.random.default_rng(task.seed))
    counts = with_derived(count(parts[0]), task.derived)
    visits = visit_table(counts)
    train, held_out = (
        with_blocks(part, lambda block: with_derived_rows(block, visits, task.derived, counts.objectives))
        for part in parts
    )
    model = task_model(task, counts, baseline)
    # in dr and wdr, what was never tried is taken to be worth what the baseline is: the most neutral guess
    control = estimate_model(counts, unseen="baseline", baseline=baseline)
    rule = safety_rule(task, counts.objectives)
    thresholds = task_thresholds(task.threshold, counts.objectives)
    certificate: Certificate | None = None
    status: str | None = None
    candidates: list[CandidateInfo] = []
    if METHODS[task.resolved_method].episodes:
        preference = np.array([objective.weight for objective in counts.objectives])
        found = h_opt(
            train,
            held_out,
            baseline,
            preference=preference,
            rule=dataclasses.replace(rule, comparison=task.comparison),
            selection=task.selection,
            model=model,
            control=control,
            progress=progress,
        )
        result, status, candidates = found.improvement, found.reason, _tested(found)
        if found.tests:
            certificate = certify_h_opt(found, held_out, baseline_known=known, seed=task.seed)
    else:
        result = task_improve(task, model, baseline, counts.objectives, progress)
        if result.changed.size:
            say(Event(what="Testing"))
            certificate = certify(
                result.policy,
                baseline,
                held_out,
                rule,
                baseline_known=known,
                thresholds=thresholds,
                tuning=train,
                model=control,
            )
    rows: list[dict[str, Any]] = []
    if certificate is not None and result.changed.size:
        say(Event(what="Evaluating what was held out"))
        evaluations = evaluate_many(held_out, result.policy, baseline, model=control)
        rows = [
            *logged_rows(held_out, baseline, delta=task.delta),
            *evaluation_rows(evaluations, counts.objectives, delta=task.delta),
        ]
        theory = prove(
            model,
            result.policy,
            baseline,
            counts,
            epsilon=_proven_budget(result),
            delta=task.delta,
            baseline_known=known,
            reward_range=rule.reward_range,  # type: ignore[arg-type]
            rewards_fixed=not task.derived,
        )
        certificate = dataclasses.replace(
            certificate,
            theory=theory,
            diagnostics=diagnostics(rows, task.estimator),
        )
    if certificate is not None:
        tested_on = {"path": task.data, "rows": held_out.n_rows, "episodes": held_out.n_episodes}
        certificate = dataclasses.replace(certificate, data={"tested_on": tested_on})
    return _run(task, result, model, counts, source, certificate, rows, status=status, candidates=candidates)


def _run_posterior(task: Task, progress: Progress | None, cluster: RayCluster | None) -> Run:
    """Make candidates from all the data, and ask the posterior which of them to trust."""
    if not fits(task.data, len(task.objectives)):
        return _run_counted_posterior(task, progress, cluster)
    say = progress or ignore
    dataset = task_dataset(task, progress=progress)
    say(Event(what=MODELLING))
    check_ranges(dataset.objectives, dataset.rewards.min(axis=0), dataset.rewards.max(axis=0))
    counts = with_derived(count(dataset), task.derived)
    check_size(task, counts)
    baseline, source = task_baseline(task, counts)
    model = task_model(task, counts, baseline)
    outcomes = task_outcomes(dataset, visit_table(counts), task.derived, counts.objectives)
    return _believed_run(task, outcomes, counts, model, baseline, source, progress, cluster)


def _reading(task: Task) -> str:
    """What is done until the counts are there, in words."""
    return "Reading counts" if is_counts(task.data) else "Reading and counting"


def _run_counted_posterior(task: Task, progress: Progress | None, cluster: RayCluster | None) -> Run:
    """The same from counts, whatever the number of rows."""
    say = progress or ignore
    say(Event(what=_reading(task)))
    counts = task_counts(task, progress=progress)
    say(Event(what=MODELLING))
    check_size(task, counts)
    check_ranges(counts.objectives, counts.reward_min, counts.reward_max)
    baseline, source = task_baseline(task, counts)
    model = task_model(task, counts, baseline)
    outcomes = counted_outcomes(counts, model, task.derived, form=task.form, draws=task.draws)
    header = dataclasses.replace(without_pairs(counts), notes=(*counts.notes, PAIR_REWARDS))
    del counts  # the model has what is still needed of it
    return _believed_run(task, outcomes, header, model, baseline, source, progress, cluster)


def _believed_run(
    task: Task,
    outcomes: Outcomes | CountedOutcomes,
    counts: Counts,
    model: Model,
    baseline: Floats,
    source: str,
    progress: Progress | None,
    cluster: RayCluster | None,
) -> Run:
    """Ask the posterior, and put together what it says; of ``counts`` only the objectives and the log's size matter."""
    handed_in = {name: read_policy(name, model.state_labels, model.action_labels) for name in task.candidates}
    preference = np.array([objective.weight for objective in counts.objectives])
    certificate = None
    (progress or ignore)(Event(what="Making candidates"))
    with connected(cluster):
        found = b_opt(
            outcomes,
            model,
            baseline,
            preference=preference,
            question=task_question(task, counts.objectives, cluster),
            policies=handed_in,
            progress=progress,
        )
        if found.candidates and (found.accepted or not found.deciding.passed):  # never of a policy that is not returned
            certificate = posterior_certificate(
                found.answer,
                found.deciding,
                outcomes,
                baseline,
                model=model,
                baseline_known=source != ESTIMATED,
                baseline_v=found.improvement.baseline_v,
                objectives=counts.objectives,
                progress=progress,
            )
    task = dataclasses.replace(task, form=found.answer.question.form)
    counts = dataclasses.replace(counts, notes=(*counts.notes, *found.notes))
    return _run(
        task,
        found.improvement,
        model,
        counts,
        source,
        certificate,
        status=found.reason,
        candidates=_believed(found),
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


def _proven_budget(result: Improvement) -> float:
    """ε as Proposition 3.1 may use it: the proof needs S-OPT's protection in every state as well."""
    return result.epsilon if METHODS[result.method].proven else math.inf


def _run(
    task: Task,
    result: Improvement,
    model: Model,
    counts: Counts,
    source: str,
    certificate: Certificate | None,
    rows: Sequence[dict[str, Any]] = (),
    *,
    status: str | None = None,
    candidates: Sequence[CandidateInfo] = (),
) -> Run:
    """Put a run together: what was found, what is promised of it, and where it came from."""
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
        result,
        model,
        counts.objectives,
        baseline_source=source,
        data=data,
        settings=settings,
        notes=counts.notes,
        seed=task.seed,
        status=status,
        candidates=candidates,
    )
    return dataclasses.replace(run, certificate=certificate, evaluation=tuple(rows))
