"""From a task to a run: counts, baseline, model, improvement, and what can be promised of it.

Nothing held out: the log is counted where it lies, whatever its size, and the certificate is what the counts prove.
A share held out (always with H-OPT): the log is read into memory and split by episode; the policy is made from one part and
tested on the other. B-OPT: the log is read into memory, and all of it is used for both; one of more than `LARGE_ROWS`, or too large for the
memory that is free, is counted where it lies instead, and so are counts from a file used, whose rewards are known by pair.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bettersafe import gopt, improve, lp
from bettersafe.bopt import Judging, b_opt, form_for, posterior_passes, sensitivity
from bettersafe.certificate import (
    Certificate,
    certify,
    certify_h_opt,
    certify_posterior,
    certify_theory,
    prove,
    return_range,
)
from bettersafe.countfile import counted_sizes, is_counts, load_counts, with_objectives
from bettersafe.counts import Counts, count, count_files, declare_actions, with_rare, with_rare_rows, without_pairs
from bettersafe.data import Dataset, Objective, Reading, in_vocabulary, read_dataset, reward_ranges, user_sign
from bettersafe.drawing import connected
from bettersafe.episodes import blocks_of, count_blocks, open_episodes, split_log, with_blocks
from bettersafe.errors import DataError, ParameterError, did_you_mean
from bettersafe.evaluate import evaluate_many, evaluation_rows, logged_rows
from bettersafe.hcpi import h_opt
from bettersafe.logs.files import data_digest, rows_about
from bettersafe.memory import (
    available_bytes,
    check_memory,
    counts_bytes,
    linearised_bytes,
    log_bytes,
    model_bytes,
    outcomes_bytes,
)
from bettersafe.model import check_logged_baseline, estimate_baseline, estimate_model, logged_baseline
from bettersafe.policies import policy_actions, read_policy
from bettersafe.posterior import gather_outcomes, outcomes_of
from bettersafe.runs import Run, make_run, versions
from bettersafe.safety import SafetyRule
from bettersafe.steps import available, gather_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bettersafe.bopt import BOpt, Candidate, Form
    from bettersafe.data import Columns, Labels
    from bettersafe.drawing import Cluster
    from bettersafe.episodes import Episodes
    from bettersafe.hcpi import HOpt
    from bettersafe.memory import Sizes
    from bettersafe.model import Model
    from bettersafe.posterior import Outcomes
    from bettersafe.steps import Steps
    from bettersafe.task import Rare, Task

Floats = npt.NDArray[np.float64]
ESTIMATED = "estimated from the data"
BY_COUNTS: tuple[improve.Method, ...] = ("b-opt", "s-opt", "g-opt", "soft-spibb", "adv-linearized", "linearized")
"""Methods that need counts and no episodes."""

LARGE_ROWS = 10_000_000
"""Rows beyond which B-OPT counts a log where it lies, and does not hold it."""

MODELLING = "Making the model"

PAIR_REWARDS = "rewards are taken from counts: known by decision, not by where a step led"


Progress = Callable[[improve.Round | Reading | Judging | str], None]
"""Hears how far the reading of the log is, then of every round and of what the posterior is asked, and between them in words what is done."""


def _silent(_: improve.Round | Reading | Judging | str) -> None:
    """Nobody wants to know."""


def task_counts(task: Task, *, progress: Callable[[Reading], None] | None = None) -> Counts:
    """Sufficient statistics of the task's data, with its derived objectives and the actions its baseline file names."""
    if is_counts(task.data):
        counts = with_objectives(load_counts(task.data), task.objectives, title=Path(task.data).name)
        if task.baseline == "estimate":
            counts = dataclasses.replace(counts, baseline_prob=None)
    else:
        counts = count_files(task.data, objectives=task.objectives, columns=task_columns(task), progress=progress)
    return _declared(task, with_derived(counts, task.derived))


def task_columns(task: Task) -> Columns:
    """Which column is which; where the baseline is to be estimated, what was logged of it is not read at all."""
    return dataclasses.replace(task.columns, baseline_prob="") if task.baseline == "estimate" else task.columns


def task_dataset(task: Task, *, progress: Callable[[Reading], None] | None = None) -> Dataset:
    """The task's data in memory, with the actions that its baseline file names, without derived objectives."""
    dataset = read_dataset(task.data, objectives=task.objectives, columns=task_columns(task), progress=progress)
    if _is_file(task.baseline):
        actions = _declared(task, count(dataset)).action_labels
        dataset = in_vocabulary(dataset, dataset.state_labels, actions)
    return dataset


@contextmanager
def task_episodes(task: Task, *, progress: Callable[[Reading], None] | None = None) -> Iterator[Dataset | Episodes]:
    """The same as `task_dataset`, read in blocks, for logs of any size."""
    with open_episodes(
        task.data, objectives=task.objectives, columns=task_columns(task), progress=progress
    ) as episodes:
        if _is_file(task.baseline):
            actions = _declared(task, count_blocks(episodes.blocks())).action_labels
            yield with_blocks(episodes, lambda block: in_vocabulary(block, block.state_labels, actions))
        else:
            yield episodes


def task_baseline(task: Task, counts: Counts) -> tuple[Floats, str]:
    """The baseline [X, A] that the task asks for, and where it came from, in words."""
    if task.baseline == "estimate":
        return estimate_baseline(counts), ESTIMATED
    if task.baseline in ("", "logged"):
        if counts.baseline_prob is None and not task.baseline:
            return estimate_baseline(counts), ESTIMATED
        return logged_baseline(counts), "logged with the data"
    baseline = read_policy(task.baseline, counts.state_labels, counts.action_labels)
    check_logged_baseline(counts, baseline)
    return baseline, f"given in {Path(task.baseline).name}"


def by_objective(values: dict[str, float], objectives: tuple[Objective, ...], what: str, *, otherwise: float) -> Floats:
    """Numbers given by name as a vector [d]; ``otherwise`` where none was given."""
    names = [objective.name for objective in objectives]
    for name in values:
        if name not in names:
            raise ParameterError(
                f"{what} of {name}: there is no such objective; there are {', '.join(names)}.{did_you_mean(name, names)}"
            )
    return np.array([values.get(name, otherwise) for name in names])


def task_thresholds(threshold: dict[str, float], objectives: tuple[Objective, ...]) -> Floats | None:
    """Thresholds in the sign that more is better, shape [d], NaN for none; None where there are none at all."""
    if not threshold:
        return None
    given = by_objective(threshold, objectives, "threshold", otherwise=np.nan)
    if not all(np.isfinite(value) for value in threshold.values()):
        raise ParameterError(f"thresholds must be finite numbers; got {threshold}.")
    return np.array([user_sign(o, value) for o, value in zip(objectives, given, strict=True)])


def safety_rule(settings: Any, objectives: tuple[Objective, ...]) -> SafetyRule:
    """The test that ``settings`` (a Task, or what `certify` was told) asks for; ranges follow from the objectives'."""
    ranges = reward_ranges(objectives)
    discount = np.array([objective.discount for objective in objectives])
    return SafetyRule(
        delta=settings.delta,
        zeta=by_objective(settings.zeta, objectives, "zeta", otherwise=0.0),
        estimator=settings.estimator,
        bound=settings.bound,
        levels=settings.levels,
        reward_range=ranges,
        return_range=None if ranges is None else return_range(*ranges, discount),
    )


def check_ranges(objectives: tuple[Objective, ...], lowest: Floats, highest: Floats) -> None:
    """Raise where rewards were seen outside the range that was declared for them; edges are [d], higher is better."""
    for objective, low, high in zip(objectives, lowest, highest, strict=True):
        if objective.reward_range is None:
            continue
        seen = sorted((user_sign(objective, low), user_sign(objective, high)))
        if seen[0] < objective.reward_range[0] or seen[1] > objective.reward_range[1]:
            raise DataError(
                f"{objective.name} was said to lie in {objective.reward_range[0]:g} … {objective.reward_range[1]:g}; the data has"
                f" {seen[0]:g} … {seen[1]:g}. Correct the range."
            )


def run_task(task: Task, *, progress: Progress | None = None, cluster: Cluster | None = None) -> Run:
    """From files to an improved policy and what can be promised of it.

    Args:
        task: What is wanted.
        progress: Called while the log is read, after every round and while the posterior is asked, and told of what lies between.
        cluster: Where B-OPT makes its draws, if not here; the numbers are the same.
    """
    if is_counts(task.data):
        _check_by_counts(task)
        check_memory(*memory_needed(task))
    if task.share > 0.0:
        return _run_held_out(task, progress)
    if task.resolved_method == "b-opt":
        return _run_posterior(task, progress, cluster)
    say = progress or _silent
    say(_reading(task))
    counts = task_counts(task, progress=progress)
    say(MODELLING)
    check_size(task, counts)
    check_ranges(counts.objectives, counts.reward_min, counts.reward_max)
    baseline, source = task_baseline(task, counts)
    model = task_model(task, counts, baseline)
    counts = _without_outcomes(counts)
    say("Improving: the baseline's values")
    result = task_improve(task, model, baseline, counts.objectives, progress)
    thresholds = task_thresholds(task.threshold, counts.objectives)
    certificate = None
    if result.changed.size:
        say("Proving what the counts prove")
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


def memory_needed(task: Task) -> tuple[float, str]:
    """What it takes to do a task on a file of counts, in bytes, and the words for it: from the file's header alone."""
    sizes = counted_sizes(task.data)
    return counts_bytes(sizes) + task_bytes(task, sizes), f"{task.resolved_method} on {sizes}"


def _without_outcomes(counts: Counts) -> Counts:
    """What is asked of counts once there is a model: all but the outcomes, which take more memory than all the rest."""
    none = np.empty(0, dtype=np.int64)
    return dataclasses.replace(
        counts,
        outcome_ptr=np.zeros(counts.n_pairs + 1, dtype=np.int64),
        outcome_state=none,
        outcome_count=none,
        terminated_count=counts.pair_count,  # so that outcomes and ends still add up to the visits
    )


def _check_by_counts(task: Task) -> None:
    """Raise where a task on a file of counts needs episodes."""
    if task.method == "h-opt" or task.share > 0.0:
        what = "h-opt" if task.method == "h-opt" else "hold_out"
        raise DataError(
            f"{what} needs episodes, and {Path(task.data).name} has only counts. Give the log itself, or choose one of"
            f" {', '.join(BY_COUNTS)} with --method."
        )


def task_bytes(task: Task, sizes: Sizes) -> float:
    """Memory that a task takes beyond its counts."""
    needed = model_bytes(sizes)
    if task.resolved_method != "b-opt":
        return needed
    if form_for(task.form, sizes.n_outcomes, sizes.n_objectives, draws=task.draws) == "linearised" and available():
        return needed + linearised_bytes(sizes)
    return needed + outcomes_bytes(sizes)


def _run_held_out(task: Task, progress: Progress | None) -> Run:
    """Make the policy from one part of the episodes and test it on the other; the log is read in blocks."""
    with task_episodes(task, progress=progress) as log:
        return _tested_run(task, log, progress)


def _tested_run(task: Task, log: Dataset | Episodes, progress: Progress | None) -> Run:
    say = progress or _silent
    everything = count_blocks(blocks_of(log))
    say(MODELLING)
    check_ranges(everything.objectives, everything.reward_min, everything.reward_max)
    check_size(task, everything)
    baseline, source = task_baseline(task, everything)
    known = source != ESTIMATED
    parts = split_log(log, (1.0 - task.share, task.share), np.random.default_rng(task.seed))
    counts = with_derived(count_blocks(blocks_of(parts[0])), task.derived)
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
    status: dict[str, Any] = {}
    if task.resolved_method == "h-opt":
        preference = np.array([objective.weight for objective in counts.objectives])
        found = h_opt(
            train,
            held_out,
            baseline,
            preference=preference,
            delta=task.delta,
            zeta=rule.zeta,
            estimator=task.estimator,
            bound=task.bound,
            selection=task.selection,
            levels=task.levels,
            comparison=task.comparison,
            reward_range=rule.reward_range,
            return_range=rule.return_range,
            model=model,
            control=control,
            progress=progress,
        )
        result, status = found.improvement, {"status": found.reason, "candidates": _tested(found)}
        if found.tests:
            certificate = certify_h_opt(found, held_out, baseline_known=known, seed=task.seed)
    else:
        result = task_improve(task, model, baseline, counts.objectives, progress)
        if result.changed.size:
            say("Testing")
            certificate = certify(
                result.policy,
                baseline,
                held_out,
                rule,
                baseline_known=known,
                thresholds=thresholds,
                tuning=train,
                model=control,
                seed=task.seed,
            )
    rows: list[dict[str, Any]] = []
    if certificate is not None and result.changed.size:
        say("Evaluating what was held out")
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
    return _run(task, result, model, counts, source, certificate, rows, status)


def _run_posterior(task: Task, progress: Progress | None, cluster: Cluster | None) -> Run:
    """Make candidates from all the data, and ask the posterior which of them to trust."""
    if not fits(task.data, len(task.objectives)):
        return _run_counted_posterior(task, progress, cluster)
    say = progress or _silent
    dataset = task_dataset(task, progress=progress)
    say(MODELLING)
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


def fits(data: str, n_objectives: int) -> bool:
    """Whether ``data`` is a log, and small enough to be read whole; if not, B-OPT makes do with its counts."""
    if is_counts(data):
        return False
    rows = rows_about(data)
    return rows <= LARGE_ROWS and log_bytes(int(rows), n_objectives) <= available_bytes()


def _run_counted_posterior(task: Task, progress: Progress | None, cluster: Cluster | None) -> Run:
    """The same from counts, whatever the number of rows."""
    say = progress or _silent
    say(_reading(task))
    counts = task_counts(task, progress=progress)
    say(MODELLING)
    check_size(task, counts)
    check_ranges(counts.objectives, counts.reward_min, counts.reward_max)
    baseline, source = task_baseline(task, counts)
    model = task_model(task, counts, baseline)
    outcomes = counted_outcomes(counts, model, task.derived, form=task.form, draws=task.draws)
    header = dataclasses.replace(without_pairs(counts), notes=(*counts.notes, PAIR_REWARDS))
    del counts  # the model has what is still needed of it
    return _believed_run(task, outcomes, header, model, baseline, source, progress, cluster)


def counted_outcomes(
    counts: Counts, model: Model, derived: tuple[Rare, ...], *, form: Form, draws: int
) -> Outcomes | Steps:
    """Counts in the form that the posterior needs for draws or, where it is the linearised form that will be asked, for that."""
    names = [objective.name for objective in counts.objectives]
    places = {names.index(rare.name): rare for rare in derived}
    if form_for(form, counts.sizes.n_outcomes, counts.n_objectives, draws=draws) == "linearised" and available():
        return gather_steps(counts, model, known=places)
    known = {}
    for k, rare in places.items():
        known[k] = np.where(visit_table(counts) < rare.below, rare.reward, 0.0)
    return outcomes_of(counts, known_rewards=known)


def _believed_run(
    task: Task,
    outcomes: Outcomes | Steps,
    counts: Counts,
    model: Model,
    baseline: Floats,
    source: str,
    progress: Progress | None,
    cluster: Cluster | None,
) -> Run:
    """Ask the posterior, and put together what it says; of ``counts`` only the objectives and the log's size matter."""
    known = source != ESTIMATED
    zeta = by_objective(task.zeta, counts.objectives, "zeta", otherwise=0.0)
    asked: dict[str, Any] = {
        "delta": task.delta, "zeta": zeta, "draws": task.draws, "seed": task.seed, "neutral": task.prior, "pessimism": task.pessimism,
        "form": task.form, "cluster": cluster,
    }  # fmt: skip
    handed_in = {name: read_policy(name, model.state_labels, model.action_labels) for name in task.candidates}
    preference = np.array([objective.weight for objective in counts.objectives])
    certificate = None
    (progress or _silent)("Making candidates")
    with connected(cluster):
        found = b_opt(outcomes, model, baseline, preference=preference, policies=handed_in, progress=progress, **asked)
        asked["form"] = "linearised" if found.linearised else "draws"
        if found.candidates and (found.accepted or not found.deciding.passed):  # never of a policy that is not returned
            certificate = posterior_certificate(
                found, found.deciding, outcomes, baseline, model, known, asked, progress=progress
            )
    status = {"status": found.reason, "candidates": _believed(found)}
    task = dataclasses.replace(task, form=asked["form"])
    counts = dataclasses.replace(counts, notes=(*counts.notes, *found.notes))
    return _run(task, found.improvement, model, counts, source, certificate, status=status)


def _tested(found: HOpt) -> list[dict[str, Any]]:
    """H-OPT's candidates for run.json, in the order of their tests."""
    return [
        {
            "name": f"{100 * (1.0 - test.mix):.0f} % of the proposal",
            "evidence": "safety-test",
            "gain": _numbers(test.estimate),
            "least": _numbers(test.bound),
            "level": test.level,
            "passed": test.passed,
            "chosen": found.accepted and test is found.deciding,
        }
        for test in found.tests
    ]


def _believed(found: BOpt) -> list[dict[str, Any]]:
    """B-OPT's candidates for run.json, in the order they were made."""
    return [
        {
            "name": candidate.name,
            "evidence": "posterior",
            "gain": _numbers(candidate.gain),
            "least": _numbers(candidate.least),
            "level": found.delta,
            "p_safe": candidate.p_safe,
            "error": candidate.error,
            "p_objective": _numbers(candidate.p_objective),
            "p_pessimistic": _numbers(candidate.p_pessimistic) if len(found.priors) > 1 else [],
            "draws": candidate.draws,
            "passed": candidate.passed,
            "open": _left_open(candidate, found),
            "chosen": place == found.chosen,
        }
        for place, candidate in enumerate(found.candidates)
    ]


def _left_open(candidate: Candidate, found: BOpt) -> bool:
    """Whether it was left before the last of its draws because a better one had passed, so that it neither passed nor failed."""
    asked = candidate.p_pessimistic[~np.isnan(candidate.p_pessimistic)]
    return (
        candidate.draws == found.draws
        and len(asked) < len(candidate.p_pessimistic)
        and posterior_passes(candidate.p_safe, asked, found.draws, found.delta)
    )


def _numbers(values: Floats) -> list[float | str]:
    """A vector for JSON, which has no infinity or NaN: they are written as words."""
    return [value if math.isfinite(value) else str(value) for value in values.tolist()]


def posterior_certificate(
    found: BOpt,
    candidate: Candidate,
    outcomes: Outcomes | Steps,
    baseline: Floats,
    model: Model,
    known: bool,
    asked: dict[str, Any],
    progress: Progress | None = None,
) -> Certificate:
    """The certificate of a candidate, with what other priors say of it."""
    others = sensitivity(
        candidate.policy,
        outcomes,
        baseline,
        model=model,
        known=candidate if candidate.draws == found.draws else None,
        baseline_v=found.improvement.baseline_v,
        progress=progress,
        **asked,
    )
    return certify_posterior(found, candidate, baseline_known=known, others=others)


def task_outcomes(
    dataset: Dataset, visits: npt.NDArray[np.int64], derived: tuple[Rare, ...], objectives: tuple[Objective, ...]
) -> Outcomes:
    """The log in the form that the posterior needs; derived objectives are rules on pairs, so known."""
    rows = with_derived_rows(dataset, visits, derived, objectives)
    names = [objective.name for objective in rows.objectives]
    known = {names.index(rare.name): np.where(visits < rare.below, rare.reward, 0.0) for rare in derived}
    return gather_outcomes(rows, known_rewards=known)


def diagnostics(rows: list[dict[str, Any]], estimator: str) -> dict[str, Any]:
    """What doubts the estimates of the test's estimator, for the certificate."""
    row = next(row for row in rows if row["estimator"] == estimator)
    names = (
        "episodes", "effective_sample_size", "mean_weight", "largest_weight", "largest_weight_share", "unsupported_share",
        "unsupported_episodes", "truncated_episodes", "usable", "trust",
    )  # fmt: skip
    return {name: row[name] for name in names}


def visit_table(counts: Counts) -> npt.NDArray[np.int64]:
    """n(x,a) as a table, shape [X, A]."""
    table = np.zeros((counts.n_states, counts.n_actions), dtype=np.int64)
    table[counts.pair_state, counts.pair_action] = counts.pair_count
    return table


def with_derived_rows(
    dataset: Dataset, visits: npt.NDArray[np.int64], derived: tuple[Rare, ...], objectives: tuple[Objective, ...]
) -> Dataset:
    """The log with the derived objectives' rewards, by the visits [X, A] of the data that the policy was made from."""
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
    return baseline not in ("", "logged", "estimate")


def _declared(task: Task, counts: Counts) -> Counts:
    """The counts with the actions that the baseline's file names, with a note on those never logged."""
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
    """Raise before a baseline and a model are made that there is no memory for."""
    sizes = counts.sizes
    check_memory(task_bytes(task, sizes), f"{task.resolved_method} on {sizes}")


def task_model(task: Task, counts: Counts, baseline: Floats) -> Model:
    """The model that the task asks for."""
    return estimate_model(
        counts,
        delta=task.delta,
        error_kind=task.error_kind,
        support=task.support,
        unseen=task.unseen,
        baseline=baseline,
    )


def task_improve(
    task: Task,
    model: Model,
    baseline: Floats,
    objectives: tuple[Objective, ...],
    progress: Progress | None = None,
) -> improve.Improvement:
    """What the task's method makes of a model; not for b-opt and h-opt, which need more than one."""
    preference = np.array([objective.weight for objective in objectives])
    if task.resolved_method in ("s-opt", "soft-spibb"):
        within_budget = improve.s_opt if task.resolved_method == "s-opt" else improve.soft_spibb
        return within_budget(
            model, baseline, preference=preference, epsilon=task.budget, engine=task.engine, progress=progress
        )
    if task.resolved_method == "g-opt":
        # who wants HiGHS alone gets the one large program, who wants the kernel the many small ones
        how: dict[lp.Engine, gopt.Engine] = {"auto": "auto", "native": "multipliers", "highs": "lp"}
        return gopt.g_opt(
            model, baseline, preference=preference, epsilon=task.budget, engine=how[task.engine], progress=progress
        )
    verb = improve.adv_linearized if task.resolved_method == "adv-linearized" else improve.linearized
    return verb(model, baseline, preference=preference, engine=task.engine, progress=progress)


def _proven_budget(result: improve.Improvement) -> float:
    """ε as Proposition 3.1 may use it: the proof needs S-OPT's protection in every state as well."""
    return result.epsilon if result.method == "s-opt" else math.inf


def _run(
    task: Task,
    result: improve.Improvement,
    model: Model,
    counts: Counts,
    source: str,
    certificate: Certificate | None,
    rows: list[dict[str, Any]] | None = None,
    status: dict[str, Any] | None = None,
) -> Run:
    settings = {**dataclasses.asdict(task), "method": task.resolved_method}
    if task.resolved_method == "b-opt":
        del settings["epsilon"]  # it has none
    else:
        settings["epsilon"] = task.budget if np.isfinite(task.budget) else "inf"
    data: dict[str, Any] = {
        "path": task.data,
        "sha256": data_digest(task.data),
        "rows": counts.n_rows,
        "episodes": counts.n_episodes,
    }
    if counts.origin is not None:
        data["inputs"] = [dataclasses.asdict(file) for file in counts.origin.inputs]
    if certificate is not None:
        certificate = dataclasses.replace(
            certificate,
            settings={**settings, **certificate.settings},
            data={"made_from": data, **certificate.data},
            versions=versions(),
            seed=task.seed,
        )
    run = make_run(
        result,
        model,
        counts.objectives,
        baseline_source=source,
        data=data,
        notes=list(counts.notes),
        seed=task.seed,
        settings=settings,
        **(status or {}),
    )
    return dataclasses.replace(run, certificate=certificate, evaluation=tuple(rows or ()))
