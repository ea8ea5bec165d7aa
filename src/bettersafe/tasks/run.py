"""From a task to a run: counts, baseline, model, improvement and certificate.

Without a hold-out, a log of any size is counted on disk, and the certificate has the bounds that follow from the counts.
With a hold-out (always with H-OPT, and by default if the states were made from continuous features), the log is read in blocks and
split by episode; the policy is made from one part and tested on the other.
B-OPT uses all of the log for candidates and posterior. The log is read into memory or, if it has more than `LARGE_ROWS` rows or
does not fit, counted on disk; counts have rewards per pair.
The rows from which a policy was made are checked afterwards: is the state enough for the model (`checks`)?
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe._system.files import versions
from bettersafe._system.memory import check_memory
from bettersafe._system.records import to_json
from bettersafe.certificate.hazard import hazard_margins
from bettersafe.certificate.make import certify, certify_h_opt, certify_theory, prove
from bettersafe.certificate.make_posterior import certify_posterior
from bettersafe.errors import ParameterError, check_options, check_type, listed
from bettersafe.evaluation.evaluate import comparison_rows
from bettersafe.logs._reader.files import data_digest
from bettersafe.logs.counts import Counts, count, visit_table, without_pairs
from bettersafe.logs.dataset import Dataset, Objective, reward_ranges
from bettersafe.logs.episodes import split_log, with_blocks
from bettersafe.mdp.ends import check_ends
from bettersafe.methods.b_opt import b_opt
from bettersafe.methods.facts import METHODS
from bettersafe.methods.h_opt import Proposal, h_opt
from bettersafe.model import estimate_model
from bettersafe.posterior.draws import RayCluster, connected
from bettersafe.posterior.judge import NO_DOUBT, sensitivity
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.runs.info import CandidateInfo, DataInfo, PosteriorCandidate
from bettersafe.runs.policy_file import in_vocabulary, read_policy
from bettersafe.runs.run import Run, make_run
from bettersafe.tasks.checks import (
    HELD_OUT_NOTE,
    count_checks,
    of_all_steps,
    row_checks,
    rows_are_checked,
    rows_for_checks,
    with_default_test,
)
from bettersafe.tasks.events import check_events, unused_events
from bettersafe.tasks.inputs import (
    check_by_counts,
    check_ranges,
    task_baseline,
    task_counts,
    task_dataset,
    task_episodes,
    task_model,
    with_derived,
    with_derived_rows,
    without_outcomes,
)
from bettersafe.tasks.outcomes import (
    check_size,
    counted_outcomes,
    fits,
    known_rewards,
    memory_needed,
    reward_notes,
    task_outcomes,
)
from bettersafe.tasks.rules import by_objective, posterior_question, safety_rule, task_thresholds
from bettersafe.tasks.settings import OF_ONE_MODEL
from bettersafe.tasks.task import Task, settings_document
from bettersafe.typing import Event, ignore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bettersafe.certificate.certificate import Certificate, Theory
    from bettersafe.evaluation.evaluate import EstimateRow
    from bettersafe.evaluation.held_out import SafetyRule
    from bettersafe.evaluation.state_evidence import StateCheck
    from bettersafe.methods.b_opt import BOpt
    from bettersafe.methods.h_opt import HOpt
    from bettersafe.methods.result import Improvement
    from bettersafe.model import Model
    from bettersafe.posterior.candidates import Candidate
    from bettersafe.posterior.judge import Answer, Doubt
    from bettersafe.posterior.linearised_counts import CountedOutcomes
    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.runs.policy_file import WholePolicy
    from bettersafe.tasks.inputs import Baseline
    from bettersafe.typing import Floats, Json, Log, Progress


MODELLING = "Estimating the model"


@dataclass(frozen=True, kw_only=True)
class _Problem:
    """Input of every method: a task with counts, baseline and model.

    Attributes:
        task: Task.
        counts: Counts of the training data; after the model is estimated, only objectives and sizes are used.
        given: Baseline.
        model: Model with the task's settings.
        notes: Notes on the log, the baseline and the method.
        checks: Function that checks whether the state is enough, for a proposed policy [X, A] or None.
    """

    task: Task
    counts: Counts
    given: Baseline
    model: Model
    notes: tuple[str, ...]
    checks: Callable[[Floats | None], tuple[StateCheck, ...]]

    @property
    def baseline(self) -> Floats:
        """π_b, shape [X, A]."""
        return self.given.policy

    @property
    def baseline_known(self) -> bool:
        """Whether the baseline is known, not estimated from the data."""
        return self.given.known

    @property
    def preference(self) -> Floats:
        """λ, shape [d]."""
        return np.array([objective.weight for objective in self.counts.objectives])


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Result of a method, with its certificate: fields of a run."""

    improvement: Improvement
    certificate: Certificate | None = None
    status: str | None = None
    candidates: Sequence[CandidateInfo] = ()
    rows: Sequence[EstimateRow] = ()


def run_task(task: Task, *, progress: Progress | None = None, cluster: RayCluster | None = None) -> Run:
    """Improve a policy as the task says, with a certificate.

    Args:
        task: Data, objectives and settings.
        progress: Callback for every step, while the log is read, after every round and while the posterior is evaluated.
        cluster: Ray cluster for B-OPT's draws; default: this machine. The results are the same.

    Examples:
        >>> run = bettersafe.run_task(bettersafe.Task(data="log.parquet", objectives=log.objectives, epsilon=1.0, hold_out=0.3))
        >>> print(run.decision.sentence)
        Use the policy: a test, or a proof, shows that it is no worse on any objective.
    """
    check_type("task", task, Task)
    check_type("cluster", cluster, RayCluster, optional=True)
    check_options(progress=progress)
    _check_engine(task)
    source = task.source
    if source.is_counts:
        check_by_counts(task)
        check_memory(*memory_needed(task))
    asked, task = task, with_default_test(task)
    if task.share > 0.0:
        notes = () if task is asked else (HELD_OUT_NOTE,)
        with task_episodes(task, progress=progress) as log:
            return _run_held_out(task, log, notes, progress, cluster)
    if not METHODS[task.resolved_method].posterior:
        return _run_by_counts(task, progress)
    if fits(source, len(task.objectives)):
        return _run_posterior(task, progress, cluster)
    return _run_counted_posterior(task, progress, cluster)


def _check_engine(task: Task) -> None:
    """Raise ParameterError if an engine was chosen for a method that does not use it."""
    facts = METHODS[task.resolved_method]
    if task.engine != "auto" and not facts.one_model:
        raise ParameterError(
            f"engine is a setting of {listed(OF_ONE_MODEL)}; {facts.name} does not use it. Remove engine, or choose another method.",
            setting="engine",
        )


def _counted(task: Task, progress: Progress | None) -> _Problem:
    """Problem from counts, for logs of any size."""
    say, source = progress or ignore, task.source
    say(Event(what="Reading counts" if source.is_counts else "Reading and counting"))
    counts = task_counts(task, progress=progress)
    say(Event(what=MODELLING))
    check_size(task, counts)
    check_ranges(counts.objectives, counts.reward_min, counts.reward_max)
    check_events(task, counts)
    given = task_baseline(task, counts)
    baseline, known = given.policy, given.known
    model = task_model(task, counts, baseline)
    has_rows = rows_are_checked(source)
    kept = counts if has_rows else without_pairs(counts)

    def checks(policy: Floats | None) -> tuple[StateCheck, ...]:
        if not has_rows:
            strict = task.hold_out is None
            return count_checks(source, kept, baseline, model=model, with_policy=policy is not None, strict=strict)
        rows = rows_for_checks(task, kept, progress=progress)
        return row_checks(rows, baseline, known=known, policy=policy)

    notes = (*counts.notes, *given.notes)
    return _Problem(task=task, counts=counts, given=given, model=model, notes=notes, checks=checks)


def _run_by_counts(task: Task, progress: Progress | None) -> Run:
    """Run from counts, with a certificate from the counts alone."""
    say = progress or ignore
    problem = _counted(task, progress)
    problem = dataclasses.replace(problem, counts=without_outcomes(problem.counts))
    counts = problem.counts
    say(Event(what="Improving: values of the baseline"))
    improvement = task_improve(task, problem.model, problem.baseline, counts.objectives, progress)
    if (
        not improvement.changed.size or task.horizon is not None
    ):  # bounds from the counts are of returns without a horizon
        return _run(problem, _Found(improvement=improvement))
    say(Event(what="Computing bounds from the counts"))
    thresholds = task_thresholds(task.threshold, counts.objectives)
    theory = _prove(problem, improvement, delta=task.delta if thresholds is None else task.delta / 2.0)
    zeta = by_objective(task.zeta, counts.objectives, "zeta", otherwise=0.0)
    gain = improvement.policy_return - improvement.baseline_return
    certificate = certify_theory(theory, gain, zeta=zeta, thresholds=thresholds, counts=counts)
    return _run(problem, _Found(improvement=improvement, certificate=certificate))


def _prove(problem: _Problem, improvement: Improvement, *, delta: float) -> Theory:
    """Bounds from the counts; Proposition 3.1 requires S-OPT's protection in every state, not only its budget."""
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
        baseline_v=improvement.baseline_v,
    )


# ---- with a hold-out


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """Both parts of the log, the model for dr and wdr, and the rule of the test."""

    train: Log
    held_out: Log
    control: Model
    rule: SafetyRule


def _run_held_out(
    task: Task, log: Log, notes: Sequence[str], progress: Progress | None, cluster: RayCluster | None
) -> Run:
    """Run with a held-out test: the policy is made from one part of the episodes and tested on the other."""
    everything = count(log)
    (progress or ignore)(Event(what=MODELLING))
    check_ranges(everything.objectives, everything.reward_min, everything.reward_max)
    check_size(task, everything)
    check_events(task, with_derived(everything, task.derived))
    given = task_baseline(task, everything)
    halves = split_log(log, (1.0 - task.share, task.share), np.random.default_rng(task.seed))
    counts = with_derived(count(halves[0]), task.derived)
    visits = visit_table(counts)
    train, held_out = (
        with_blocks(part, lambda block: with_derived_rows(block, visits, task.derived, counts.objectives))
        for part in halves
    )
    model = task_model(task, counts, given.policy)
    problem = _Problem(
        task=task,
        counts=counts,
        given=given,
        model=model,
        notes=(*everything.notes, *notes, *given.notes),
        checks=lambda policy: row_checks(train, given.policy, known=given.known, policy=policy),
    )
    parts = _Parts(
        train=train,
        held_out=held_out,
        # dr and wdr value a pair without data like the baseline, which is a neutral choice
        control=estimate_model(counts, unseen="baseline", baseline=given.policy, horizon=task.horizon),
        rule=safety_rule(task, counts.objectives),
    )
    facts = METHODS[task.resolved_method]
    if facts.posterior:
        problem, found = _chosen_and_tested(problem, parts, progress, cluster)
    else:
        found = (_chosen_by_test if facts.episodes else _made_and_tested)(problem, parts, progress)
    certificate, rows = found.certificate, found.rows
    if certificate is None or certificate.evidence == "posterior":
        return _run(problem, found)
    if found.improvement.changed.size:
        (progress or ignore)(Event(what="Evaluating on held-out episodes"))
        certificate, rows = _with_estimates(problem, parts, found.improvement, certificate)
    tested_on = {"path": task.data, "rows": held_out.n_rows, "episodes": held_out.n_episodes}
    certificate = dataclasses.replace(certificate, data={"tested_on": tested_on})
    return _run(problem, dataclasses.replace(found, certificate=certificate, rows=rows))


def _chosen_by_test(problem: _Problem, parts: _Parts, progress: Progress | None) -> _Found:
    """H-OPT: candidates are tested, and a passing one is selected."""
    task = problem.task
    found = h_opt(
        parts.train,
        parts.held_out,
        problem.baseline,
        preference=problem.preference,
        rule=dataclasses.replace(parts.rule, comparison=task.comparison),
        selection=task.selection,
        proposal=Proposal(method=task.proposal),
        model=problem.model,
        control=parts.control,
        progress=progress,
    )
    certificate = None
    if found.tests:
        certificate = certify_h_opt(found, parts.held_out, baseline_known=problem.baseline_known, seed=task.seed)
    return _Found(
        improvement=found.improvement,
        certificate=certificate,
        status=found.reason,
        candidates=_tested_candidates(found),
    )


def _made_and_tested(problem: _Problem, parts: _Parts, progress: Progress | None) -> _Found:
    """Other methods: one policy is made, and tested if it differs from the baseline."""
    improvement = task_improve(problem.task, problem.model, problem.baseline, problem.counts.objectives, progress)
    if not improvement.changed.size:
        return _Found(improvement=improvement)
    return _Found(improvement=improvement, certificate=_test(problem, parts, improvement, progress))


def _chosen_and_tested(
    problem: _Problem, parts: _Parts, progress: Progress | None, cluster: RayCluster | None
) -> tuple[_Problem, _Found]:
    """B-OPT: the posterior of one part selects a candidate, and the other part tests it."""
    task, counts, train = problem.task, problem.counts, parts.train
    if isinstance(train, Dataset):
        known = known_rewards(visit_table(counts), task.derived, counts.objectives)
        outcomes: Outcomes | CountedOutcomes = gather_outcomes(train, known_rewards=known, events=task.events)
    else:
        outcomes = counted_outcomes(
            counts, problem.model, task.derived, form=task.form, draws=task.draws, events=task.events
        )
        problem = dataclasses.replace(problem, notes=(*problem.notes, *reward_notes(outcomes)))
    problem, found = _posterior_found(problem, outcomes, progress, cluster, tested=True)
    if found.improvement.changed.size:
        certificate = _test(problem, parts, found.improvement, progress)
        found = dataclasses.replace(found, certificate=certificate)
    return problem, found


def _test(problem: _Problem, parts: _Parts, improvement: Improvement, progress: Progress | None) -> Certificate:
    """Certificate of a policy from the held-out episodes."""
    task, objectives = problem.task, problem.counts.objectives
    (progress or ignore)(Event(what="Testing"))
    return certify(
        improvement.policy,
        problem.baseline,
        parts.held_out,
        parts.rule,
        baseline_known=problem.baseline_known,
        thresholds=task_thresholds(task.threshold, objectives),
        tuning=parts.train,
        model=parts.control,
    )


def _with_estimates(
    problem: _Problem, parts: _Parts, improvement: Improvement, certificate: Certificate
) -> tuple[Certificate, Sequence[EstimateRow]]:
    """The certificate with bounds from the counts and diagnostics, and the rows of all estimators on the held-out episodes."""
    task = problem.task
    rows = comparison_rows(
        parts.held_out,
        improvement.policy,
        problem.baseline,
        model=parts.control,
        delta=task.delta,
        horizon=task.horizon,
    )
    theory = None if task.horizon is not None else _prove(problem, improvement, delta=task.delta)
    return dataclasses.replace(certificate, theory=theory, diagnostics=diagnostics(rows, task.estimator)), rows


# ---- B-OPT


def _run_posterior(task: Task, progress: Progress | None, cluster: RayCluster | None) -> Run:
    """B-OPT on a log in memory."""
    dataset = task_dataset(task, progress=progress)
    (progress or ignore)(Event(what=MODELLING))
    check_ranges(dataset.objectives, dataset.rewards.min(axis=0), dataset.rewards.max(axis=0))
    counts = with_derived(count(dataset), task.derived)
    check_size(task, counts)
    given = task_baseline(task, counts)
    model = task_model(task, counts, given.policy)
    visits = visit_table(counts)
    outcomes = task_outcomes(dataset, visits, task.derived, counts.objectives, events=task.events)

    def checks(policy: Floats | None) -> tuple[StateCheck, ...]:
        rows = with_derived_rows(dataset, visits, task.derived, counts.objectives)
        return row_checks(rows, given.policy, known=given.known, policy=policy)

    notes = (*counts.notes, *given.notes)
    problem = _Problem(task=task, counts=counts, given=given, model=model, notes=notes, checks=checks)
    return _run(*_posterior_found(problem, outcomes, progress, cluster))


def _run_counted_posterior(task: Task, progress: Progress | None, cluster: RayCluster | None) -> Run:
    """B-OPT on counts, for logs of any size."""
    problem = _counted(task, progress)
    counts = problem.counts
    outcomes = counted_outcomes(
        counts, problem.model, task.derived, form=task.form, draws=task.draws, events=task.events
    )
    notes = (*problem.notes, *reward_notes(outcomes))
    problem = dataclasses.replace(problem, counts=without_pairs(counts), notes=notes)
    del counts  # frees memory; only the model is used from here on
    return _run(*_posterior_found(problem, outcomes, progress, cluster))


def _posterior_found(
    problem: _Problem,
    outcomes: Outcomes | CountedOutcomes,
    progress: Progress | None,
    cluster: RayCluster | None,
    *,
    tested: bool = False,
) -> tuple[_Problem, _Found]:
    """Make candidates, evaluate their posterior, and select one; if it will be ``tested``, without a posterior certificate."""
    task, model, objectives = problem.task, problem.model, problem.counts.objectives
    handed_in = {name: read_policy(name, model.state_labels, model.action_labels) for name in task.candidates}
    for name, policy in handed_in.items():
        check_ends(model.mdp, policy, name=name, state_labels=model.state_labels)
    certificate = None
    (progress or ignore)(Event(what="Making candidates"))
    with connected(cluster):
        found = b_opt(
            outcomes,
            model,
            problem.baseline,
            preference=problem.preference,
            question=posterior_question(task, objectives, cluster),
            policies=handed_in,
            baseline_estimated=not problem.baseline_known,
            progress=progress,
        )
        # a candidate that passed but was not returned has no certificate
        if found.candidates and ((found.accepted and not tested) or not found.deciding.passed):
            certificate = posterior_certificate(
                found.answer,
                found.deciding,
                outcomes,
                problem.baseline,
                model=model,
                doubt=found.deciding_doubt,
                baseline_known=problem.baseline_known,
                baseline_v=found.improvement.baseline_v,
                objectives=objectives,
                progress=progress,
            )
    problem = dataclasses.replace(
        problem,
        task=dataclasses.replace(task, form=found.answer.question.form),
        notes=(*problem.notes, *found.notes),
    )
    return problem, _Found(
        improvement=found.improvement,
        certificate=certificate,
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
    doubt: Doubt = NO_DOUBT,
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
        doubt=doubt,
        known=candidate if candidate.draws == answer.draws else None,
        baseline_v=baseline_v,
        progress=progress,
    )
    hazards = hazard_margins(
        model,
        candidate.policy,
        baseline,
        baseline_v=baseline_v,
        worst_reward=outcomes.least_reward,
        least=candidate.least,
        zeta=answer.zeta,
        delta=answer.question.delta,
    )
    return certify_posterior(
        answer, candidate, baseline_known=baseline_known, others=others, objectives=objectives, hazards=hazards
    )


def diagnostics(rows: Sequence[EstimateRow], estimator: str) -> Json:
    """Diagnostics of the test's estimator, for the certificate."""
    row: Json = dict(next(row for row in rows if row["estimator"] == estimator))
    names = (
        "episodes", "effective_sample_size", "mean_weight", "largest_weight", "largest_weight_share", "unsupported_share",
        "unsupported_episodes", "truncated_episodes", "complete", "usable", "trust",
    )  # fmt: skip
    return {name: row[name] for name in names}


def task_improve(
    task: Task,
    model: Model,
    baseline: Floats,
    objectives: tuple[Objective, ...],
    progress: Progress | None = None,
) -> Improvement:
    """Improvement in ``model`` by the task's method; not for methods that select among candidates."""
    preference = np.array([objective.weight for objective in objectives])
    return METHODS[task.resolved_method].make(
        model, baseline, preference=preference, epsilon=task.budget, engine=task.engine, progress=progress
    )


def _run(problem: _Problem, found: _Found) -> Run:
    """Run from an improvement, its certificate, and the metadata of task and log."""
    task, counts, certificate = problem.task, problem.counts, found.certificate
    unused = unused_events(task, certificate)
    settings = settings_document(task)
    data = DataInfo(
        path=task.data,
        sha256=data_digest(task.data),
        rows=counts.n_rows,
        episodes=counts.n_episodes,
        truncated=counts.n_truncated,
        inputs=() if counts.origin is None else counts.origin.inputs,
    )
    if certificate is not None:
        certificate = dataclasses.replace(
            certificate,
            assumptions=(*certificate.assumptions, *unused),
            settings={**settings, **certificate.settings},
            data={"made_from": to_json(data), **certificate.data},
            versions=versions(),
            seed=task.seed,
            checks=of_all_steps(
                problem.checks(found.improvement.policy if found.improvement.changed.size else None), task.horizon
            ),
        )
    run = make_run(
        found.improvement,
        problem.model,
        counts.objectives,
        baseline_source=problem.given.source,
        data=data,
        settings=settings,
        notes=(*problem.notes, *unused),
        seed=task.seed,
        status=found.status,
        candidates=found.candidates,
    )
    run = dataclasses.replace(run, certificate=certificate, evaluation=tuple(found.rows))
    return run if problem.given.whole is None else _with_whole_baseline(run, problem.given.whole)


def _with_whole_baseline(run: Run, whole: WholePolicy) -> Run:
    """The run with all states and actions of the baseline file; where the log has none, proposal and baseline are as in the file."""
    states, actions = whole.state_labels, whole.action_labels
    counts = np.zeros(whole.policy.shape, dtype=np.int64)
    counts[np.ix_(np.searchsorted(states, run.state_labels), np.searchsorted(actions, run.action_labels))] = run.counts
    return dataclasses.replace(
        run,
        proposal=in_vocabulary(
            run.proposal, run.state_labels, run.action_labels, states, actions, elsewhere=whole.policy
        ),
        baseline=whole.policy,
        counts=counts,
        state_labels=states,
        action_labels=actions,
    )
