"""From a task to a run: counts, baseline, model, improvement and certificate.

Without a hold-out, a log of any size is counted on disk, and the certificate has the bounds that follow from the counts.
With a hold-out (always with H-OPT), the log is split by episode, the policy is made from one part and tested on the other.
B-OPT reads the log into memory and uses all of it for candidates and posterior. A log of more than `LARGE_ROWS` rows, or one
that does not fit into memory, is counted on disk instead. Counts, also those from a file, have rewards per pair.
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
from bettersafe.methods import METHODS, result
from bettersafe.methods.b_opt import b_opt
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
    from bettersafe.model import Model
    from bettersafe.posterior.candidates import Candidate
    from bettersafe.posterior.draws import RayCluster
    from bettersafe.posterior.judge import Answer
    from bettersafe.posterior.linearised_counts import CountedOutcomes
    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.tasks.task import Task
    from bettersafe.typing import Floats, Log, Progress


MODELLING = "Estimating the model"


def run_task(task: Task, *, progress: Progress | None = None, cluster: RayCluster | None = None) -> Run:
    """Improve a policy as the task says, with a certificate.

    Args:
        task: Data, objectives and settings.
        progress: Callback for every step, while the log is read, after every round and while the posterior is evaluated.
        cluster: Ray cluster for B-OPT's draws; default: this machine. The results are the same.
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
    say(Event(what="Improving: values of the baseline"))
    result = task_improve(task, model, baseline, counts.objectives, progress)
    thresholds = task_thresholds(task.threshold, counts.objectives)
    certificate = None
    if result.changed.size:
        say(Event(what="Computing bounds from the counts"))
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
    """Run with a held-out test: the policy is made from one part of the episodes and tested on the other."""
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
    # dr and wdr value a pair without data like the baseline, which is a neutral choice
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
        result, status, candidates = found.improvement, found.reason, _tested_candidates(found)
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
        say(Event(what="Evaluating on held-out episodes"))
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
    """Run of B-OPT on a log that fits into memory, else on its counts."""
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
    return _posterior_run(task, outcomes, counts, model, baseline, source, progress, cluster)


def _reading(task: Task) -> str:
    """Name of the first step, for progress."""
    return "Reading counts" if is_counts(task.data) else "Reading and counting"


def _run_counted_posterior(task: Task, progress: Progress | None, cluster: RayCluster | None) -> Run:
    """Run of B-OPT on counts, for logs of any size."""
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
    del counts  # frees memory; only the model is used from here on
    return _posterior_run(task, outcomes, header, model, baseline, source, progress, cluster)


def _posterior_run(
    task: Task,
    outcomes: Outcomes | CountedOutcomes,
    counts: Counts,
    model: Model,
    baseline: Floats,
    source: str,
    progress: Progress | None,
    cluster: RayCluster | None,
) -> Run:
    """Run of B-OPT from outcomes; ``counts`` is used only for the objectives, the notes and the size of the log."""
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
        # a candidate that passed but was not returned has no certificate
        if found.candidates and (found.accepted or not found.deciding.passed):
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
        candidates=_posterior_candidates(found),
    )


def _tested_candidates(found: HOpt) -> list[CandidateInfo]:
    """H-OPT's candidates for run.json, in order of their tests."""
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


def _posterior_candidates(found: BOpt) -> list[CandidateInfo]:
    """B-OPT's candidates for run.json, in order of creation."""
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
    """Posterior certificate of a candidate, with a sensitivity analysis over other priors."""
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
    """Diagnostics of the test's estimator, for the certificate."""
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
) -> result.Improvement:
    """Improvement in ``model`` by the task's method; not for methods that select among candidates."""
    preference = np.array([objective.weight for objective in objectives])
    return METHODS[task.resolved_method].make(
        model, baseline, preference=preference, epsilon=task.budget, engine=task.engine, progress=progress
    )


def _proven_budget(result: result.Improvement) -> float:
    """ε for Proposition 3.1; infinite for methods that don't protect every state as S-OPT does, which the proof requires."""
    return result.epsilon if METHODS[result.method].proven else math.inf


def _run(
    task: Task,
    result: result.Improvement,
    model: Model,
    counts: Counts,
    source: str,
    certificate: Certificate | None,
    rows: Sequence[dict[str, Any]] = (),
    *,
    status: str | None = None,
    candidates: Sequence[CandidateInfo] = (),
) -> Run:
    """Run from an improvement, its certificate, and the metadata of task and log."""
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
