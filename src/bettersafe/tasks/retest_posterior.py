"""Certificate of a saved policy from the posterior, which may use the policy's own log: `bettersafe certify --posterior`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bettersafe._system.files import versions
from bettersafe._system.records import to_json
from bettersafe.certificate.certificate import TESTS
from bettersafe.errors import DataError, ParameterError, check_options, check_path, check_type, check_types, listed
from bettersafe.logs._reader.files import data_digest
from bettersafe.logs.counts import declare_actions, without_pairs
from bettersafe.logs.counts_file import read_counts
from bettersafe.logs.dataset import Columns, Dataset
from bettersafe.logs.source import find_source, read_dataset
from bettersafe.mdp.values import policy_values
from bettersafe.model import estimate_model
from bettersafe.posterior.draws import RayCluster, connected
from bettersafe.posterior.events import DeclaredEvent
from bettersafe.posterior.judge import Doubt, Known, doubt_of_log, judge
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.runs.info import ESTIMATED
from bettersafe.runs.run import Run, certificates_before
from bettersafe.tasks.checks import count_checks, row_checks
from bettersafe.tasks.evidence import (
    Evidence,
    derived_of,
    evidence_on,
    read_like,
    run_visits,
    run_within,
)
from bettersafe.tasks.inputs import with_derived
from bettersafe.tasks.outcomes import counted_outcomes, fits, known_rewards, reward_notes
from bettersafe.tasks.retest import (
    check_proposal,
    check_untested,
    data_of_test,
)
from bettersafe.tasks.rules import posterior_question, saved_posterior
from bettersafe.tasks.run import MODELLING, posterior_certificate
from bettersafe.tasks.settings import BY_NAME, OF_POSTERIOR, check_fields
from bettersafe.tasks.task import check_losses
from bettersafe.typing import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from bettersafe.certificate.certificate import Certificate
    from bettersafe.evaluation.state_evidence import StateCheck
    from bettersafe.logs.source import Source
    from bettersafe.model import Model
    from bettersafe.posterior.choices import Form, Neutral
    from bettersafe.posterior.linearised_counts import CountedOutcomes
    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.tasks.rules import PosteriorSettings
    from bettersafe.typing import Floats, Json, Progress


@dataclass(frozen=True, kw_only=True)
class PosteriorTest:
    """Settings of a posterior certificate; those that are None, and losses that are not given, are the run's.

    Attributes:
        delta: δ.
        zeta: Accepted loss by objective.
        draws: Processes drawn under every prior.
        form: "draws", "linearised", or "auto" (by the size of the log).
        seed: Seed of the draws.
        prior: Neutral prior.
        pessimism: Bad visits that the pessimistic priors add to every pair.
        events: Declared events.
        optimism: Optimism to take off and its standard error, by objective each, if they were measured before on the same log.
    """

    delta: float | None = None
    zeta: Mapping[str, float] = field(default_factory=dict)
    draws: int = 200
    form: Form = "auto"
    seed: int = 0
    prior: Neutral | None = None
    pessimism: float | None = None
    events: tuple[DeclaredEvent, ...] | None = None
    optimism: tuple[Mapping[str, float], Mapping[str, float]] | None = None

    def __post_init__(self) -> None:
        rows = (BY_NAME[name] for name in ("delta", "zeta", "seed", *OF_POSTERIOR))
        check_fields(self, [row for row in rows if row.kind != "list of events"], optional=True)
        if self.events is not None:
            check_types("events", self.events, DeclaredEvent)
        check_type("zeta", self.zeta, Mapping)
        check_losses(self.zeta)


AS_IN_THE_RUN = PosteriorTest()


def _filled(test: PosteriorTest, old: Mapping[str, Any]) -> PosteriorSettings:
    """The test with the run's settings ``old`` in place of those that it leaves open."""
    saved = {"delta": old.get("delta", BY_NAME["delta"].default), **saved_posterior(old)}
    left_open = {name: value for name, value in saved.items() if getattr(test, name) is None}
    filled = dataclasses.replace(test, zeta={**old.get("zeta", {}), **test.zeta}, **left_open)
    return cast("PosteriorSettings", filled)


def certify_run_posterior(
    run: Run,
    data: str | os.PathLike[str],
    test: PosteriorTest = AS_IN_THE_RUN,
    *,
    columns: Columns | None = None,
    cluster: RayCluster | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Certificate:
    """Posterior probability that a run's proposal is safe, given a log; the log may be the run's own.

    Args:
        run: Run to certify.
        data: Log: a file or a glob; or a counts file with the run's states and actions.
        test: Settings of the posterior.
        columns: Names of the columns, if they differ from the run's log.
        cluster: Ray cluster for the draws; default: this machine. The results are the same.
        force: Whether to certify a run that was already tested on held-out episodes.
        progress: Callback while the log is read and the posterior is evaluated.

    Raises:
        ParameterError: If the run was already tested on held-out episodes, which is stronger evidence, or has thresholds.
        RunError: If the run has no proposal.

    Examples:
        >>> from bettersafe.tasks import PosteriorTest, certify_run_posterior
        >>> certificate = certify_run_posterior(run, "log.parquet", PosteriorTest(draws=100))
        >>> certificate.standing, certificate.grade
        ('proposed', 'posterior')
    """
    check_type("run", run, Run)
    check_path("data", data)
    check_type("test", test, PosteriorTest)
    check_type("cluster", cluster, RayCluster, optional=True)
    check_options(force=force, progress=progress)
    data = os.fspath(data)
    check_proposal(run)
    _check_askable(run)
    if not force:
        check_untested(run, posterior=True)
    settings = _filled(test, run.info.settings)
    source = find_source(data)
    read = _gathered if fits(source, len(run.objectives)) else _counted
    found = read(run, source, columns, settings, progress=progress)
    outcomes, model, evidence = found.outcomes, found.model, found.evidence
    baseline_v = policy_values(model.mdp, evidence.baseline)[0]
    doubt = _doubt(run, test, evidence, model, outcomes)
    with connected(cluster):
        answer = judge(
            [evidence.policy],
            outcomes,
            evidence.baseline,
            posterior_question(settings, run.objectives, cluster),
            model=model,
            names=["the run's policy"],
            doubt=doubt,
            known=Known(baseline_v=baseline_v),
            progress=progress,
        )
        certificate = posterior_certificate(
            answer,
            answer.candidates[0],
            outcomes,
            evidence.baseline,
            model=model,
            doubt=doubt,
            baseline_known=evidence.baseline_known,
            baseline_v=baseline_v,
            objectives=run.objectives,
            progress=progress,
        )
    earlier = certificates_before(run)
    tests = [each for each in earlier if each["evidence"] in TESTS]
    return dataclasses.replace(
        certificate,
        assumptions=(*certificate.assumptions, *_unknown_tests(tests)),
        theory=None if run.certificate is None else run.certificate.theory,
        checks=found.checks(),
        settings={
            **to_json({name: getattr(settings, name) for name in ("zeta", *OF_POSTERIOR)}),
            **certificate.settings,
            "earlier": earlier,
            "tested_before": len(tests),
            "columns": None if columns is None else dataclasses.asdict(columns),
            "notes": list(evidence.notes),
        },
        data=data_of_test(run, data, data_digest(data), found.rows, found.episodes),
        versions=versions(),
    )


def _check_askable(run: Run) -> None:
    """Raise ParameterError if the run has settings that the posterior can't honour."""
    if run.info.horizon is not None:
        raise ParameterError(
            f"the run's returns are of {run.info.horizon:,} steps (horizon), and the posterior is of returns without a limit on steps."
            " Test the run on held-out episodes.",
            setting="horizon",
        )
    if run.info.settings.get("threshold"):
        raise ParameterError(
            f"the run has thresholds (of {listed(run.info.settings['threshold'])}), which the posterior does not test. Test the run on"
            " held-out episodes.",
            setting="threshold",
        )


def _doubt(
    run: Run,
    test: PosteriorTest,
    evidence: Evidence | _CountedEvidence,
    model: Model,
    outcomes: Outcomes | CountedOutcomes,
) -> Doubt:
    """What the posterior does not know: the optimism that an earlier certificate took off, the choice, and an estimated baseline."""
    names = [objective.name for objective in run.objectives]
    optimism, error = (
        (None, None)
        if test.optimism is None
        else (np.array([[each[name] for name in names]]) for each in test.optimism)
    )
    found = doubt_of_log(
        model,
        evidence.baseline,
        outcomes,
        estimated=not evidence.baseline_known,
        preference=np.array(run.info.preference) if run.info.method == "b-opt" else None,
    )
    return dataclasses.replace(found, optimism=optimism, error=error)


def _unknown_tests(tests: list[Json]) -> tuple[str, ...]:
    """Additional assumption if held-out tests came before; the posterior ignores them."""
    if not tests:
        return ()
    return (
        f"On held-out episodes the policy was tested {len(tests)} time{'s' if len(tests) > 1 else ''} before, and {_passed(tests)};"
        " the posterior does not take that into account.",
    )


def _passed(tests: list[Json]) -> str:
    """Outcome of earlier tests, in words."""
    passed = [test["standing"] == "passed" for test in tests]
    return "passed" if all(passed) else "did not pass" if not any(passed) else "did not always pass"


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """Data and policies for the posterior, and the size of the log."""

    outcomes: Outcomes | CountedOutcomes
    model: Model
    evidence: Evidence | _CountedEvidence
    checks: Callable[[], tuple[StateCheck, ...]]
    rows: int
    episodes: int


@dataclass(frozen=True, kw_only=True)
class _CountedEvidence:
    """`Evidence` from counts, without a log."""

    policy: Floats
    baseline: Floats
    baseline_known: bool
    notes: tuple[str, ...]


def _gathered(
    run: Run,
    source: Source,
    columns: Columns | None,
    settings: PosteriorSettings,
    *,
    progress: Progress | None,
) -> _Asked:
    """Data and policies from a log that fits into memory."""
    objectives, reading = read_like(run, columns)
    log = read_dataset(source.path, objectives=objectives, columns=reading, progress=progress)
    evidence = evidence_on(run, log, source.path)
    dataset = evidence.log
    assert isinstance(dataset, Dataset)
    known = known_rewards(run_visits(run, dataset), derived_of(run), dataset.objectives)
    return _Asked(
        outcomes=gather_outcomes(dataset, known_rewards=known, events=settings.events),
        model=estimate_model(dataset, unseen=run.info.unseen, baseline=evidence.baseline),
        evidence=evidence,
        checks=lambda: row_checks(dataset, evidence.baseline, known=evidence.baseline_known, policy=evidence.policy),
        rows=dataset.n_rows,
        episodes=dataset.n_episodes,
    )


def _counted(
    run: Run,
    source: Source,
    columns: Columns | None,
    settings: PosteriorSettings,
    *,
    progress: Progress | None,
) -> _Asked:
    """Data and policies from a counts file, or from a log too large for memory."""
    objectives, reading = read_like(run, columns)
    counts = read_counts(source, objectives=objectives, columns=reading, progress=progress)
    if progress is not None:
        progress(Event(what=MODELLING))
    derived = derived_of(run)
    counts = with_derived(counts, derived)
    run = run_within(run, counts.state_labels, counts.action_labels)
    if run.info.baseline_source.startswith("given"):
        counts = declare_actions(counts, run.action_labels)
    same = [
        np.array_equal(*pair)
        for pair in ((counts.state_labels, run.state_labels), (counts.action_labels, run.action_labels))
    ]
    if not all(same):
        raise DataError(
            f"{source.path} has other {'states' if not same[0] else 'actions'} than the run. With counts, both must have the same states and"
            " actions. Give the log from which the policy was made, or count both together."
        )
    model = estimate_model(counts, unseen=run.info.unseen, baseline=run.baseline)
    kept = without_pairs(counts)
    outcomes = counted_outcomes(
        counts, model, derived, form=settings.form, draws=settings.draws, events=settings.events
    )
    return _Asked(
        outcomes=outcomes,
        model=model,
        evidence=_CountedEvidence(
            policy=run.proposal,
            baseline=run.baseline,
            baseline_known=run.info.baseline_source != ESTIMATED,
            notes=(*counts.notes, *reward_notes(outcomes)),
        ),
        checks=lambda: count_checks(source, kept, run.baseline, model=model, with_policy=True),
        rows=counts.n_rows,
        episodes=counts.n_episodes,
    )
