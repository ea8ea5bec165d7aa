"""Is a run as it was saved, and does its test, made again, give the same?"""

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

if TYPE_CHECKING:
    from pathlib import Path

    from bettersafe.certificate.certificate import Certificate
    from bettersafe.runs.run import Run

SAME = (
    "evidence", "grade", "delta", "objectives", "thresholds", "unsupported", "refusal", "beliefs", "verdict", "accepted",
)  # fmt: skip
"""What a test made again must give again."""


def verify_run(folder: str | Path, *, data: str | None = None) -> Certificate:
    """Check that a run directory is whole and that its certificate is about the files beside it.

    Args:
        folder: The run directory.
        data: The log that it was tested on: then its digest is compared, the test is made again, and the numbers must agree.

    Raises:
        RunError: Something is missing, was altered, or does not agree; the message says what.

    Examples:
        >>> from bettersafe.runs import save_certificate
        >>> certificate, rows = bettersafe.certify_run(run, "later.parquet")
        >>> tested = save_certificate("run", certificate, rows)
        >>> bettersafe.verify_run("run", data="later.parquet").accepted  # the test is made again
        True
    """
    check_path("folder", folder)
    run = load_run(folder)
    certificate = run.certificate
    if certificate is None:
        raise RunError(f"{folder} has no certificate: nothing was promised. Make one with `certify_run`.")
    if data is not None:
        _repeat(run, certificate, data)
    return certificate


def _repeat(run: Run, certificate: Certificate, data: str) -> None:
    """Make a certificate's test again on ``data``, and raise unless it gives the same."""
    by_posterior = certificate.evidence == "posterior"
    tested = certificate.data.get("tested_on") or (certificate.data.get("made_from", {}) if by_posterior else {})
    if "sha256" not in tested:
        raise RunError(
            "the test was made within `run_task`, on a part of its log held out by chance; run that again with the same seed to"
            " repeat it."
        )
    if data_digest(data) != tested["sha256"]:
        raise RunError(f"{data} is not the log that the policy was tested on: its digest differs.")
    if by_posterior and not run.has_proposal:
        raise RunError(
            "the certificate is about a policy that was not trusted and is not in the run; run `run_task` again with the same seed"
            " to repeat it."
        )
    old, new = (certificate_json(each) for each in (certificate, _again(run, certificate, data)))
    for key in SAME:
        if not _alike(old[key], new[key]):
            raise RunError(
                f"the test made again gives another result: {key} is {new[key]}, where the certificate says {old[key]}."
            )
    if set(new["assumptions"]) - set(old["assumptions"]):
        raise RunError("the test made again rests on assumptions that the certificate does not name.")


def _again(run: Run, certificate: Certificate, data: str) -> Certificate:
    """Ask what a certificate answers once more; the run is taken as untested, or it would count itself as a test before."""
    settings = certificate.settings
    columns = None if settings["columns"] is None else Columns(**settings["columns"])
    untested = dataclasses.replace(run, certificate=None)
    if certificate.evidence == "posterior":
        question = PosteriorTest(
            delta=certificate.delta,
            zeta=settings["zeta"],
            draws=settings["draws"],
            form=settings["form"],
            prior=settings["prior"],
            pessimism=settings["pessimism"],
            seed=certificate.seed or 0,
        )
        return certify_run_posterior(untested, data, question, columns=columns)
    test = HeldOutTest(
        delta=certificate.delta,
        zeta=settings["zeta"],
        threshold=settings["threshold"],
        estimator=settings["estimator"],
        bound=settings["bound"],
        levels=settings["levels"],
        folds=settings["folds"] or 5,
        seed=certificate.seed or 0,
    )
    return certify_run(untested, data, test, columns=columns)[0]


def _alike(a: Any, b: Any) -> bool:
    """Whether two JSON values are the same but for rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.isclose(a, b, rtol=1e-6, atol=1e-9))
    return bool(a == b)
