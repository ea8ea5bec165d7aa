"""Verification of a saved run: digests, and the repeated test."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe.certificate.files import certificate_json
from bettersafe.errors import RunError, check_path
from bettersafe.logs._reader.files import data_digest
from bettersafe.logs.dataset import Columns
from bettersafe.runs.run import load_run
from bettersafe.tasks.retest import HeldOutTest, certify_run
from bettersafe.tasks.retest_posterior import PosteriorTest, certify_run_posterior
from bettersafe.tasks.rules import saved_posterior

if TYPE_CHECKING:
    from pathlib import Path

    from bettersafe.certificate.certificate import Certificate
    from bettersafe.runs.run import Run

SAME = (
    "evidence", "grade", "delta", "objectives", "thresholds", "unsupported", "refusal", "beliefs", "verdict", "standing",
)  # fmt: skip
"""Fields of a certificate that a repeated test must reproduce."""


def verify_run(folder: str | Path, *, data: str | None = None) -> Certificate | None:
    """Check that a run directory is complete and unaltered, and that its certificate belongs to its files.

    Args:
        folder: Run directory.
        data: Log of the test. If given, its digest is compared and the test is repeated; the numbers must agree.

    Returns:
        The certificate; None if the run has none, and only the policy was checked.

    Raises:
        RunError: If a file is missing or altered, or the repeated test gives another result.

    Examples:
        >>> from bettersafe.runs import save_certificate
        >>> certificate, rows = bettersafe.certify_run(run, "later.parquet")
        >>> tested = save_certificate("run", certificate, rows)
        >>> bettersafe.verify_run("run", data="later.parquet").standing  # the test is made again
        'passed'
    """
    check_path("folder", folder)
    run = load_run(folder)
    certificate = run.certificate
    if certificate is None and data is not None:
        raise RunError(f"{folder} has no certificate; there is no test to repeat. Make one with `certify_run`.")
    if certificate is not None and data is not None:
        _repeat(run, certificate, data)
    return certificate


def _repeat(run: Run, certificate: Certificate, data: str) -> None:
    """Repeat a certificate's test on ``data``. Raises RunError if the result is different."""
    by_posterior = certificate.evidence == "posterior"
    tested = certificate.data.get("tested_on") or (certificate.data.get("made_from", {}) if by_posterior else {})
    if "sha256" not in tested:
        raise RunError(
            "the test was part of `run_task`, on a random part of its log. To repeat it, call `run_task` again with the same seed."
        )
    if data_digest(data) != tested["sha256"]:
        raise RunError(f"{data} is not the log that the policy was tested on: its digest differs.")
    if by_posterior and not run.has_proposal:
        raise RunError(
            "the certificate is about a refused policy, which is not in the run. To repeat it, call `run_task` again with the same"
            " seed."
        )
    old, new = (certificate_json(each) for each in (certificate, _again(run, certificate, data)))
    for key in SAME:
        if not _alike(old[key], new[key]):
            raise RunError(
                f"the repeated test gives another result: {key} is {new[key]}, but the certificate has {old[key]}."
            )
    if set(new["assumptions"]) - set(old["assumptions"]):
        raise RunError("the repeated test has assumptions that the certificate lacks.")


def _again(run: Run, certificate: Certificate, data: str) -> Certificate:
    """Certificate of the repeated test; without the run's certificate, which would count as an earlier test."""
    settings = certificate.settings
    columns = None if settings["columns"] is None else Columns(**settings["columns"])
    untested = dataclasses.replace(run, certificate=None)
    if certificate.evidence == "posterior":
        found = certificate.diagnostics
        question = PosteriorTest(
            delta=certificate.delta,
            zeta=settings["zeta"],
            seed=certificate.seed or 0,
            optimism=(found["optimism"], found["optimism_error"]) if "optimism" in found else None,
            **saved_posterior(settings),
        )
        return certify_run_posterior(untested, data, question, columns=columns)
    test = HeldOutTest(
        delta=certificate.delta,
        zeta=settings["zeta"],
        threshold=settings["threshold"],
        estimator=settings["estimator"],
        bound=settings["bound"],
        levels=settings["levels"],
        coverage=settings.get("coverage", "required"),
        truncation=settings.get("truncation", {}),
        folds=settings["folds"] or 5,
        seed=certificate.seed or 0,
    )
    return certify_run(untested, data, test, columns=columns)[0]


def _alike(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal up to rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.isclose(a, b, rtol=1e-6, atol=1e-9))
    return bool(a == b)
