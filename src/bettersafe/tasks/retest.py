"""Test of a saved policy on held-out episodes: `bettersafe certify`.

A run may be tested once. Repeating the test until it passes invalidates δ, and so does replacing a failed test by the posterior.
Both are refused unless forced, and the certificate records all earlier tests.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe._system.files import versions
from bettersafe._system.records import to_json
from bettersafe.certificate.certificate import TESTS
from bettersafe.certificate.make import CrossFit, certify
from bettersafe.errors import ParameterError, RunError, check_integer, check_options, check_path, check_type
from bettersafe.evaluation.facts import BOUNDS
from bettersafe.logs._reader.files import data_digest
from bettersafe.logs.counts import count, visit_table
from bettersafe.logs.episodes import n_units, split_log
from bettersafe.model import estimate_model
from bettersafe.runs.run import Run, certificate_summary, certificates_before
from bettersafe.tasks.events import untested_events
from bettersafe.tasks.evidence import (
    evaluate_saved,
    evidence_for_run,
    known_log,
    run_visits,
)
from bettersafe.tasks.inputs import check_ranges
from bettersafe.tasks.rules import safety_rule, task_thresholds
from bettersafe.tasks.run import diagnostics
from bettersafe.tasks.settings import BY_NAME, check_fields
from bettersafe.tasks.task import check_losses

if TYPE_CHECKING:
    from bettersafe.certificate.certificate import Certificate
    from bettersafe.evaluation.choices import Coverage, Levels
    from bettersafe.evaluation.evaluate import EstimateRow
    from bettersafe.logs.dataset import Columns
    from bettersafe.model import Model
    from bettersafe.typing import Json, Log, Progress


TUNING_SHARE = 0.2
"""Share of a held-out log on which finite-sample bounds choose their truncation level."""


@dataclass(frozen=True, kw_only=True)
class HeldOutTest:
    """Settings of a held-out test; those that are None, losses and thresholds that are not given, and the horizon are the run's.

    Attributes:
        delta: δ.
        zeta: Accepted loss by objective.
        threshold: Threshold on the return by objective, in the sign of the log.
        estimator: Off-policy estimator of the test.
        bound: Lower bound of the test.
        levels: Rule that splits δ over the objectives.
        coverage: What happens to a policy that the episodes hardly cover.
        truncation: Truncation of finite-sample bounds by objective, as a share of the range of returns.
        folds: Number of folds for cross-fitting dr and wdr.
        seed: Seed of the split into folds and of the tuning part of finite-sample bounds.
    """

    delta: float | None = None
    zeta: Mapping[str, float] = field(default_factory=dict)
    threshold: Mapping[str, float] = field(default_factory=dict)
    estimator: str | None = None
    bound: str | None = None
    levels: Levels | None = None
    coverage: Coverage | None = None
    truncation: Mapping[str, float] = field(default_factory=dict)
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        rows = ("delta", "zeta", "threshold", "estimator", "bound", "levels", "coverage", "truncation", "seed")
        check_fields(self, (BY_NAME[name] for name in rows), optional=True)
        for name in ("zeta", "threshold", "truncation"):
            check_type(name, getattr(self, name), Mapping)
        check_losses(self.zeta)
        check_integer("folds", self.folds, least=2)


AS_IN_THE_RUN = HeldOutTest()


def check_untested(run: Run, *, posterior: bool) -> None:
    """Raises ParameterError if the run was already tested on held-out episodes."""
    tests = [each for each in certificates_before(run) if each["evidence"] == "held-out"]
    if tests and posterior:
        passed = "passed" if all(each["standing"] == "passed" for each in tests) else "did not pass"
        raise ParameterError(
            f"the run was tested on held-out episodes and {passed}; a certificate from the posterior is weaker evidence and would"
            " replace the test's. To replace it all the same, use `force`; the test stays on record."
        )
    if tests:
        raise ParameterError(
            "the run was tested already. Testing until a test passes invalidates delta. To replace the result all the same, use"
            " `force`."
        )


def certify_run(
    run: Run,
    data: str | os.PathLike[str],
    test: HeldOutTest = AS_IN_THE_RUN,
    *,
    columns: Columns | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> tuple[Certificate, tuple[EstimateRow, ...]]:
    """Test a run's proposal on held-out episodes.

    A second test of the same object is refused, and so is one of a run that has the certificate of a test. Save the certificate with
    its run (`save_certificate`): another object, made by `run_task` again or read by `load_run` before, does not know of the test.

    Args:
        run: Run to test.
        data: Held-out log: a file or a glob.
        test: Settings of the test.
        columns: Names of the columns, if they differ from the run's log.
        force: Whether to test a run that was already tested.
        progress: Callback while the log is read.

    Returns:
        The certificate and the estimates of all estimators (`evaluate_saved`).

    Raises:
        ParameterError: If the run was already tested.
        RunError: If the run has no proposal, or the proposal was made from this log.

    Examples:
        >>> certificate, rows = bettersafe.certify_run(run, "later.parquet")
        >>> print(certificate.verdict)
        Tested, passed: with probability 90 % (approximately) the policy is not worse than the baseline on any of: r0, r1.
    """
    check_type("run", run, Run)
    check_path("data", data)
    check_type("test", test, HeldOutTest)
    check_options(force=force, progress=progress)
    data = os.fspath(data)
    check_proposal(run)
    if not force:
        check_untested(run, posterior=False)
    digest = data_digest(data)
    known = known_log(run, data, digest)
    if known is not None:
        raise RunError(
            f"{known} is {'the' if known == str(data) else 'a'} log that the policy was made from; a test on it proves nothing. Give"
            " held-out episodes."
        )
    settings = filled(test, run.info.settings)
    rule = safety_rule(settings, run.objectives)
    with evidence_for_run(run, data, columns=columns, progress=progress) as evidence:
        held_out = evidence.log
        _check_held_out(run, held_out, data)
        folds = min(test.folds, n_units(held_out))
        tuning: Log | None = None
        model: Model | CrossFit = CrossFit(folds=folds, seed=test.seed)
        if BOUNDS[rule.bound].finite_sample:
            shares = (TUNING_SHARE, 1.0 - TUNING_SHARE)
            tuning, held_out = split_log(held_out, shares, np.random.default_rng(test.seed))
            model = estimate_model(
                count(tuning), unseen="baseline", baseline=evidence.baseline, horizon=settings.horizon
            )
        certificate = certify(
            evidence.policy,
            evidence.baseline,
            held_out,
            rule,
            baseline_known=evidence.baseline_known,
            thresholds=task_thresholds(settings.threshold, run.objectives),
            tuning=tuning,
            model=model,
            training_baseline=evidence.training_baseline,
        )
        tested = dataclasses.replace(evidence, log=held_out)
        rows = evaluate_saved(tested, delta=settings.delta, folds=folds, rng=test.seed, horizon=settings.horizon)
        earlier = certificates_before(run)
        before = sum(each["evidence"] in TESTS for each in earlier)
        result = dataclasses.replace(
            certificate,
            assumptions=(*certificate.assumptions, *_tested_before(before), *untested_events(run)),
            theory=None if run.certificate is None else run.certificate.theory,
            checks=() if run.certificate is None else run.certificate.checks,
            diagnostics=diagnostics(rows, rule.estimator),
            settings={
                **dataclasses.asdict(settings),
                **certificate.settings,
                "columns": None if columns is None else dataclasses.asdict(columns),
                "tested_before": before,
                "earlier": earlier,
                "notes": list(evidence.notes),
            },
            data=data_of_test(run, data, digest, held_out.n_rows, held_out.n_episodes),
            versions=versions(),
            seed=test.seed,
        )
        run.tests.append(certificate_summary(result))
        return result, rows


def check_proposal(run: Run) -> None:
    """Raises RunError if the run has no proposal."""
    if not run.has_proposal:
        raise RunError("the run's policy is the baseline: there is nothing to certify.")


def _check_held_out(run: Run, log: Log, data: str) -> None:
    """Raises RunError if the log has the same decisions as the run's or only one episode; DataError if rewards are out of range."""
    counts = count(log)
    if log.n_rows == run.info.data.rows and np.array_equal(visit_table(counts), run_visits(run, log)):
        raise RunError(
            f"{data} has the same decisions as the log that the policy was made from, in another order or file; a test on it"
            " proves nothing. Give held-out episodes."
        )
    if log.n_episodes < 2:
        raise RunError(f"{data} has one episode; a test needs at least 2, and many more to be conclusive.")
    check_ranges(log.objectives, counts.reward_min, counts.reward_max)


def _tested_before(times: int) -> tuple[str, ...]:
    """Additional assumption of a repeated test."""
    if not times:
        return ()
    return (
        f"The policy was tested {times} time{'s' if times > 1 else ''} before; testing until a test passes invalidates δ.",
    )


def data_of_test(run: Run, data: str, digest: str, rows: int, episodes: int) -> Json:
    """Data entries of a certificate: the logs "made_from" and "tested_on"."""
    tested = {"path": data, "sha256": digest, "rows": rows, "episodes": episodes}
    return {"made_from": to_json(run.info.data), "tested_on": tested}


@dataclass(frozen=True, kw_only=True)
class _TestSettings:
    """`HeldOutTest` with the run's settings filled in."""

    delta: float
    zeta: dict[str, float]
    threshold: dict[str, float]
    estimator: str
    bound: str
    levels: Levels
    coverage: Coverage
    truncation: dict[str, float]
    horizon: int | None


def filled(test: HeldOutTest, old: Mapping[str, Any]) -> _TestSettings:
    """Settings of a test, with those of the run where none are given."""
    bound = test.bound or old.get("bound", "t")
    truncates = bound in BOUNDS and BOUNDS[bound].finite_sample
    return _TestSettings(
        delta=old.get("delta", 0.1) if test.delta is None else test.delta,
        zeta={**old.get("zeta", {}), **test.zeta},
        threshold={**old.get("threshold", {}), **test.threshold},
        estimator=test.estimator or old.get("estimator", "dr"),
        bound=bound,
        levels=test.levels or old.get("levels", "split"),
        coverage=test.coverage or old.get("coverage", "required"),
        truncation={**(old.get("truncation", {}) if truncates else {}), **test.truncation},
        horizon=old.get("horizon"),
    )
