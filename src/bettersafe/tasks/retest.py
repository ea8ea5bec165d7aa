"""Evidence about a saved policy from a log: `bettersafe evaluate`, `certify` and `verify`.

A log that came later may have states and actions that the run does not know. In a state that it does not know the policy is
taken to do what the baseline does. A known baseline stays what it was; an estimated one is estimated again from the run's
counts and the new log together, so that no decision in the new log is impossible under it.

`evaluate` and `certify` on held-out episodes read a log of any size in blocks of episodes.
"""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bettersafe._system.files import file_digest, versions
from bettersafe.certificate.files import certificate_json
from bettersafe.certificate.make import certify
from bettersafe.errors import DataError, ParameterError, RunError, check_choice
from bettersafe.evaluation.facts import BOUNDS, ESTIMATORS
from bettersafe.evaluation.evaluate import evaluate_many, evaluation_rows, logged_rows
from bettersafe.logs._reader.files import data_digest, expand
from bettersafe.logs.counts import count, declare_actions
from bettersafe.logs.counts_file import is_counts, load_counts, with_objectives
from bettersafe.logs.dataset import Columns, Dataset, in_vocabulary
from bettersafe.logs.episodes import row_visits, split_log, with_blocks
from bettersafe.logs.source import count_files, open_episodes, read_dataset
from bettersafe.mdp.policy import check_policy
from bettersafe.mdp.values import policy_values
from bettersafe.model import check_logged_baseline, estimate_model, logged_baseline
from bettersafe.posterior.draws import connected
from bettersafe.posterior.judge import Question, judge
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.priors import PriorSet
from bettersafe.runs.policy_file import in_vocabulary as policy_in_vocabulary
from bettersafe.runs.policy_file import read_policy
from bettersafe.runs.run import Run, load_certificate, load_run
from bettersafe.tasks.inputs import (
    ESTIMATED,
    PAIR_REWARDS,
    by_objective,
    check_ranges,
    counted_outcomes,
    fits,
    safety_rule,
    task_baseline,
    task_episodes,
    task_thresholds,
    visit_table,
    with_derived,
    with_derived_rows,
)
from bettersafe.tasks.run import MODELLING, diagnostics, posterior_certificate
from bettersafe.tasks.task import Rare
from bettersafe.typing import Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bettersafe.certificate.certificate import Certificate
    from bettersafe.evaluation.choices import Levels
    from bettersafe.logs.counts import Counts
    from bettersafe.logs.dataset import Objective
    from bettersafe.model import Model
    from bettersafe.posterior.choices import Form, Neutral
    from bettersafe.posterior.draws import RayCluster
    from bettersafe.posterior.linearised_counts import CountedOutcomes
    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.tasks.task import Task
    from bettersafe.typing import Floats, Log, Progress


Rows = tuple[dict[str, Any], ...]

TUNING_SHARE = 0.2
"""Share of a held-out log on which finite-sample bounds choose where to cut their terms."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A log and the two policies over its states and actions.

    Attributes:
        log: The log, with derived objectives, in memory or on disk.
        policy: π, shape [X, A].
        baseline: π_b, shape [X, A].
        baseline_known: False where it was estimated.
        usual: What the baseline was taken to be when the policy was made, shape [X, A].
        notes: What is worth saying.
    """

    log: Log
    policy: Floats
    baseline: Floats
    baseline_known: bool
    usual: Floats
    notes: tuple[str, ...]


@contextmanager
def evidence_for_run(
    run: Run, data: str, *, columns: Columns | None = None, progress: Progress | None = None
) -> Iterator[Evidence]:
    """A log read as the run's own was, with the run's policy and baseline over the states and actions of both.

    The log may have any size: it is read in blocks while the context is open.
    """
    objectives, columns = _read_like(run, columns)
    with open_episodes(data, objectives=objectives, columns=columns, progress=progress) as episodes:
        yield _evidence(run, episodes, data)


def _read_like(run: Run, columns: Columns | None) -> tuple[list[Objective], Columns]:
    """The objectives and columns to read for a run; ``columns`` go before the run's own."""
    settings = run.info.get("settings", {})
    names = {rare["name"] for rare in settings.get("derived", ())}
    columns = Columns(**settings.get("columns", {})) if columns is None else columns
    if settings.get("baseline") == "estimate":
        columns = dataclasses.replace(columns, baseline_prob="")
    return [o for o in run.objectives if o.name not in names], columns


def _evidence(run: Run, own: Log, data: str) -> Evidence:
    """Evidence on the log ``own``, which was read from ``data``."""
    derived = tuple(Rare(**rare) for rare in run.info.get("settings", {}).get("derived", ()))
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
    old = _run_visits(run, log)
    known = run.info["baseline_source"] != ESTIMATED
    seen = old + new
    total = seen.sum(axis=1, keepdims=True)
    estimated = np.where(total > 0, seen / np.maximum(total, 1), 1.0 / actions.size)
    given = run.info["baseline_source"].startswith("given")
    if known:
        baseline = policy_in_vocabulary(
            run.baseline, run.state_labels, run.action_labels, states, actions, elsewhere=estimated
        )
        if counts.baseline_prob is not None:
            baseline = _with_logged(baseline, counts, old > 0, trust_run=given)
    else:
        baseline = estimated
    policy = policy_in_vocabulary(run.policy, run.state_labels, run.action_labels, states, actions, elsewhere=baseline)
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
        usual=policy_in_vocabulary(
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
    """
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
            usual=baseline,
            notes=log.notes,
        )


def evaluate_saved(
    evidence: Evidence,
    *,
    estimators: Sequence[str] = tuple(ESTIMATORS),
    delta: float = 0.1,
    interval: str = "t",
    folds: int = 5,
    seed: int = 0,
) -> Rows:
    """All estimators side by side, with intervals at level 1 − δ and diagnostics, in the user's own sign.

    Models for dr, wdr and model are cross-fitted with ``folds``; two lines "logged" say what the baseline earned.

    Args:
        evidence: From `evidence_for_run` or `evidence_for_policy`.
        estimators: Which ones.
        delta: Intervals are at level 1 − δ.
        interval: "t", "bootstrap" or "bca".
        folds: Of the cross-fitting.
        seed: Draws the folds.
    """
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
        rng=np.random.default_rng(seed),
    )
    rows = evaluation_rows(results, data.objectives, delta=delta, interval=interval)
    return (*logged, *rows)


def known_log(run: Run, data: str, digest: str) -> str | None:
    """What of ``data``, whose digest is ``digest``, the policy was made from: all, the first such file, or None.

    Of a policy that was made from counts, the logs that had been counted are known.
    """
    made_from = run.info.get("data", {})
    if digest == made_from.get("sha256"):
        return data
    counted = {file["sha256"] for file in made_from.get("inputs", ())}
    return next((str(path) for path in (expand(data) if counted else ()) if file_digest(path) in counted), None)


def certify_run(
    run: Run,
    data: str,
    *,
    delta: float | None = None,
    zeta: dict[str, float] | None = None,
    threshold: dict[str, float] | None = None,
    estimator: str | None = None,
    bound: str | None = None,
    levels: Levels | None = None,
    folds: int = 5,
    seed: int = 0,
    columns: Columns | None = None,
    progress: Progress | None = None,
) -> tuple[Certificate, Rows]:
    """Test a run's policy on a log that it was not made from; what is left out is as in the run's own settings.

    Args:
        run: The run.
        data: The log: a file or a glob.
        delta: δ.
        zeta: Accepted loss by objective.
        threshold: What returns must be worth by objective, in their own sign.
        estimator: Off-policy estimator of the test.
        bound: Lower bound of the test.
        levels: How δ is given to the objectives.
        folds: Of the cross-fitting for dr and wdr.
        seed: Draws the folds and the part that finite-sample bounds are tuned on.
        columns: Which column is which, if not as in the run's log.
        progress: Called while the log is read.

    Returns:
        The certificate, and all estimators' rows (`evaluate_saved`).
    """
    if not run.changed:
        raise RunError("the run's policy is the baseline itself: there is nothing to certify.")
    digest = data_digest(data)
    made_from = dict(run.info.get("data", {}))
    known = known_log(run, data, digest)
    if known is not None:
        raise RunError(
            f"{known} is {'the' if known == str(data) else 'a'} log that the policy was made from; a test on it promises nothing. Give"
            " episodes that were held out."
        )
    old = run.info.get("settings", {})
    settings = _TestSettings(
        delta=old.get("delta", 0.1) if delta is None else delta,
        zeta={**old.get("zeta", {}), **(zeta or {})},
        threshold={**old.get("threshold", {}), **(threshold or {})},
        estimator=estimator or old.get("estimator", "dr"),
        bound=bound or old.get("bound", "t"),
        levels=levels or old.get("levels", "split"),
    )
    rule = safety_rule(settings, run.objectives)
    with evidence_for_run(run, data, columns=columns, progress=progress) as evidence:
        held_out = evidence.log
        counts = count(held_out)
        if held_out.n_rows == made_from.get("rows") and np.array_equal(visit_table(counts), _run_visits(run, held_out)):
            raise RunError(
                f"{data} has the same decisions as the log that the policy was made from, in another order or file; a test on it"
                " promises nothing. Give episodes that were held out."
            )
        if held_out.n_episodes < 2:
            raise RunError(f"{data} has one episode; a test needs at least 2, and many more to find anything.")
        folds = min(folds, held_out.n_episodes)
        check_ranges(held_out.objectives, counts.reward_min, counts.reward_max)
        tuning: Log | None = None
        model: Model | None = None
        use_folds: int | None = folds
        if BOUNDS[rule.bound].finite_sample:
            tuning, held_out = split_log(held_out, (TUNING_SHARE, 1.0 - TUNING_SHARE), np.random.default_rng(seed))
            model = estimate_model(count(tuning), unseen="baseline", baseline=evidence.baseline)
            use_folds = None
        certificate = certify(
            evidence.policy,
            evidence.baseline,
            held_out,
            rule,
            baseline_known=evidence.baseline_known,
            thresholds=task_thresholds(settings.threshold, run.objectives),
            tuning=tuning,
            model=model,
            folds=use_folds,
            seed=seed,
            usual=evidence.usual,
        )
        rows = evaluate_saved(dataclasses.replace(evidence, log=held_out), delta=settings.delta, folds=folds, seed=seed)
        earlier = certificates_before(run)
        before = sum(each["evidence"] in TESTS for each in earlier)
        again = (
            (
                f"The policy was tested {before} time{'s' if before > 1 else ''} before; to test until a test passes breaks the risk.",
            )
            if before
            else ()
        )
        return (
            dataclasses.replace(
                certificate,
                assumptions=(*certificate.assumptions, *again),
                theory=None if run.certificate is None else run.certificate.theory,
                diagnostics=diagnostics(list(rows), rule.estimator),
                settings={
                    **dataclasses.asdict(settings),
                    **certificate.settings,
                    "columns": None if columns is None else dataclasses.asdict(columns),
                    "tested_before": before,
                    "earlier": earlier,
                    "notes": list(evidence.notes),
                },
                data={
                    "made_from": made_from,
                    "tested_on": {
                        "path": data,
                        "sha256": digest,
                        "rows": held_out.n_rows,
                        "episodes": held_out.n_episodes,
                    },
                },
                versions=versions(),
                seed=seed,
            ),
            rows,
        )


TESTS = ("held-out", "safety-test")
"""Evidence of episodes that were held out: to ask for it again until it says yes breaks the risk."""


def _passed(tests: list[dict[str, Any]]) -> str:
    passed = [test["accepted"] for test in tests]
    return "passed" if all(passed) else "did not pass" if not any(passed) else "did not always pass"


def certificates_before(run: Run) -> list[dict[str, Any]]:
    """What was asked about the run's policy before, and with what result, the first certificate first."""
    last = run.certificate
    if last is None:
        return []
    asked = {name: last.settings[name] for name in ("bound", "prior", "pessimism") if name in last.settings}
    log = dict(last.data.get("tested_on") or last.data.get("made_from") or {}).get("path", "")
    this = {"evidence": last.evidence, "accepted": last.accepted, "delta": last.delta, "log": log, **asked}
    known = list(last.settings.get("earlier", ()))
    if not known and last.settings.get("tested_before"):  # written before they were listed: it is only known how many
        known = [{"evidence": "held-out", "accepted": False}] * int(last.settings["tested_before"])
    return [*known, this]


@dataclass(frozen=True, kw_only=True)
class _TestSettings:
    """What `certify_run` was told, the run's own settings filled in."""

    delta: float
    zeta: dict[str, float]
    threshold: dict[str, float]
    estimator: str
    bound: str
    levels: Levels


def certify_run_posterior(
    run: Run,
    data: str,
    *,
    delta: float | None = None,
    zeta: dict[str, float] | None = None,
    draws: int = 200,
    form: Form = "auto",
    seed: int = 0,
    prior: Neutral | None = None,
    pessimism: float | None = None,
    columns: Columns | None = None,
    cluster: RayCluster | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """Ask the posterior of a log, which may be the one that the policy was made from, whether the policy is safe.

    Args:
        run: The run.
        data: The log: a file or a glob; or a file of counts, of the run's states and actions alone.
        delta: δ; the run's if left out.
        zeta: Accepted loss by objective.
        draws: Processes drawn under every prior.
        form: "draws", "linearised", or "auto" by the size of the log.
        seed: Of the draws.
        prior: Neutral prior; the run's if left out.
        pessimism: Bad visits that the pessimistic priors add to every pair; as in the run if left out.
        columns: Which column is which, if not as in the run's log.
        cluster: Where to make the draws, if not here; the numbers are the same.
        progress: Called while the log is read and while the posterior is asked.
    """
    if not run.changed:
        raise RunError("the run's policy is the baseline itself: there is nothing to certify.")
    old = run.info.get("settings", {})
    derived = tuple(Rare(**rare) for rare in old.get("derived", ()))
    if not fits(data, len(run.objectives)):
        found = _counted(run, data, columns, derived, form=form, draws=draws, progress=progress)
    else:
        found = _gathered(run, data, columns, derived, progress=progress)
    outcomes, model, evidence = found.outcomes, found.model, found.evidence
    losses = {**old.get("zeta", {}), **(zeta or {})}
    question = Question(
        delta=old.get("delta", 0.1) if delta is None else delta,
        zeta=by_objective(losses, run.objectives, "zeta", otherwise=0.0),
        draws=draws,
        seed=seed,
        form=form,
        priors=PriorSet(
            neutral=old.get("prior", "hierarchical") if prior is None else prior,
            pessimism=old.get("pessimism", 1.0) if pessimism is None else pessimism,
        ),
        cluster=cluster,
    )
    baseline_v = policy_values(model.mdp, evidence.baseline)[0]
    with connected(cluster):
        answer = judge(
            [evidence.policy],
            outcomes,
            evidence.baseline,
            question,
            model=model,
            names=["the run's policy"],
            baseline_v=baseline_v,
            progress=progress,
        )
        certificate = posterior_certificate(
            answer,
            answer.candidates[0],
            outcomes,
            evidence.baseline,
            model=model,
            baseline_known=evidence.baseline_known,
            baseline_v=baseline_v,
            progress=progress,
        )
    earlier = certificates_before(run)
    tests = [each for each in earlier if each["evidence"] in TESTS]
    told = (
        [
            f"On episodes held out the policy was tested {len(tests)} time{'s' if len(tests) > 1 else ''} before, and"
            f" {_passed(tests)}; the posterior knows nothing of that."
        ]
        if tests
        else []
    )
    return dataclasses.replace(
        certificate,
        assumptions=(*certificate.assumptions, *told),
        theory=None if run.certificate is None else run.certificate.theory,
        settings={
            **certificate.settings,
            "earlier": earlier,
            "tested_before": len(tests),
            "zeta": losses,
            "columns": None if columns is None else dataclasses.asdict(columns),
            "notes": list(evidence.notes),
        },
        data={
            "made_from": dict(run.info.get("data", {})),
            "tested_on": {
                "path": data,
                "sha256": data_digest(data),
                "rows": found.rows,
                "episodes": found.episodes,
            },
        },
        versions=versions(),
    )


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What the posterior is asked about, and of how large a log."""

    outcomes: Outcomes | CountedOutcomes
    model: Model
    evidence: Evidence | _CountedEvidence
    rows: int
    episodes: int


@dataclass(frozen=True, kw_only=True)
class _CountedEvidence:
    """`Evidence` of counts, which have no log."""

    policy: Floats
    baseline: Floats
    baseline_known: bool
    notes: tuple[str, ...]


def _gathered(
    run: Run, data: str, columns: Columns | None, derived: tuple[Rare, ...], *, progress: Progress | None
) -> _Asked:
    """A log read whole."""
    objectives, reading = _read_like(run, columns)
    evidence = _evidence(run, read_dataset(data, objectives=objectives, columns=reading, progress=progress), data)
    dataset = evidence.log
    assert isinstance(dataset, Dataset)
    names = [objective.name for objective in dataset.objectives]
    visits = _run_visits(run, dataset)
    known = {names.index(rare.name): np.where(visits < rare.below, rare.reward, 0.0) for rare in derived}
    return _Asked(
        outcomes=gather_outcomes(dataset, known_rewards=known),
        model=estimate_model(dataset, baseline=evidence.baseline),
        evidence=evidence,
        rows=dataset.n_rows,
        episodes=dataset.n_episodes,
    )


def _counted(
    run: Run,
    data: str,
    columns: Columns | None,
    derived: tuple[Rare, ...],
    *,
    form: Form,
    draws: int,
    progress: Progress | None,
) -> _Asked:
    """Counts, of a file of them or of a log that is too large to be held."""
    objectives, reading = _read_like(run, columns)
    if is_counts(data):
        counts = with_objectives(load_counts(data), objectives, title=data)
    else:
        counts = count_files(data, objectives=objectives, columns=reading, progress=progress)
    if progress is not None:
        progress(Event(what=MODELLING))
    counts = with_derived(counts, derived)
    given = run.info["baseline_source"].startswith("given")
    if given:
        counts = declare_actions(counts, run.action_labels)
    same = [
        np.array_equal(*pair)
        for pair in ((counts.state_labels, run.state_labels), (counts.action_labels, run.action_labels))
    ]
    if not all(same):
        raise DataError(
            f"{data} has other {'states' if not same[0] else 'actions'} than the run: where a log is counted, the posterior can be asked"
            " about the run's own alone. Give the log that the policy was made from, or count both together."
        )
    model = estimate_model(counts, baseline=run.baseline)
    return _Asked(
        outcomes=counted_outcomes(counts, model, derived, form=form, draws=draws),
        model=model,
        evidence=_CountedEvidence(
            policy=run.policy,
            baseline=run.baseline,
            baseline_known=run.info["baseline_source"] != ESTIMATED,
            notes=(*counts.notes, PAIR_REWARDS),
        ),
        rows=counts.n_rows,
        episodes=counts.n_episodes,
    )


def _run_visits(run: Run, log: Log) -> npt.NDArray[np.int64]:
    """The run's n(x,a) over the log's states and actions, shape [X, A]."""
    table = np.zeros((log.n_states, log.n_actions), dtype=np.int64)
    x, a = (
        np.searchsorted(whole, own)
        for whole, own in ((log.state_labels, run.state_labels), (log.action_labels, run.action_labels))
    )
    table[np.ix_(x, a)] = run.counts
    return table


def verify_run(folder: str | Path, *, data: str | None = None) -> Certificate:
    """Check that a run directory is whole and that its certificate is about the files beside it.

    Args:
        folder: The run directory.
        data: The log that it was tested on: then its digest is compared, the test is made again, and the numbers must agree.

    Raises:
        RunError: Something is missing, was altered, or does not agree; the message says what.
    """
    run = load_run(folder)
    certificate = load_certificate(folder)
    if certificate is None:
        raise RunError(
            f"{folder} has no certificate: nothing was promised. Make one with: bettersafe certify RUN HELD_OUT."
        )
    if data is not None:
        _repeat(run, certificate, data)
    return certificate


def _repeat(run: Run, certificate: Certificate, data: str) -> None:
    """Make a certificate's test again on ``data``, and raise unless it gives the same."""
    by_posterior = certificate.evidence == "posterior"
    tested = certificate.data.get("tested_on") or (certificate.data.get("made_from", {}) if by_posterior else {})
    if "sha256" not in tested:
        raise RunError(
            "the test was made within `improve`, on a part of its log held out by chance; run that again with the same seed to"
            " repeat it."
        )
    if data_digest(data) != tested["sha256"]:
        raise RunError(f"{data} is not the log that the policy was tested on: its digest differs.")
    settings = certificate.settings
    if by_posterior and not run.changed:
        raise RunError(
            "the certificate is about a policy that was not trusted and is not in the run; run `improve` again with the same seed"
            " to repeat it."
        )
    if by_posterior:
        again = certify_run_posterior(
            dataclasses.replace(run, certificate=None),  # or it would count itself as asked before
            data,
            delta=certificate.delta,
            zeta=settings["zeta"],
            draws=settings["draws"],
            form=settings.get("form", "draws"),
            prior=settings.get("prior"),
            pessimism=settings.get("pessimism"),
            seed=certificate.seed or 0,
            columns=None if settings["columns"] is None else Columns(**settings["columns"]),
        )
    else:
        again = _certify_again(run, data, certificate)
    same = (
        "evidence",
        "grade",
        "delta",
        "objectives",
        "thresholds",
        "unsupported",
        "blind",
        "beliefs",
        "verdict",
        "accepted",
    )
    old, new = (certificate_json(each) for each in (certificate, again))
    for key in same:
        if not _alike(old[key], new[key]):
            raise RunError(
                f"the test made again gives another result: {key} is {new[key]}, where the certificate says {old[key]}."
            )
    if set(new["assumptions"]) - set(old["assumptions"]):
        raise RunError("the test made again rests on assumptions that the certificate does not name.")


def _alike(a: Any, b: Any) -> bool:
    """Whether two JSON values are the same but for rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.isclose(a, b, rtol=1e-6, atol=1e-9))
    return bool(a == b)


def _certify_again(run: Run, data: str, certificate: Certificate) -> Certificate:
    settings = certificate.settings
    again, _ = certify_run(
        dataclasses.replace(run, certificate=None),  # or it would count itself as a test made before
        data,
        delta=certificate.delta,
        zeta=settings["zeta"],
        threshold=settings["threshold"],
        estimator=settings["estimator"],
        bound=settings["bound"],
        levels=settings["levels"],
        folds=settings["folds"] or 5,
        seed=certificate.seed or 0,
        columns=None if settings["columns"] is None else Columns(**settings["columns"]),
    )
    return again
