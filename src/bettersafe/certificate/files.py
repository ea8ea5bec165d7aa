"""Certificates as JSON documents."""

from __future__ import annotations

from typing import Any, get_type_hints

from bettersafe._system.records import from_json, to_json
from bettersafe.certificate.certificate import Belief, Certificate, Finding, Floor, Proof, Theory
from bettersafe.certificate.more_data import more_data
from bettersafe.errors import BettersafeError, RunError
from bettersafe.evaluation.state_evidence import StateCheck
from bettersafe.typing import Json

SCHEMA = "certificate/1"

AS_THEY_ARE = (
    "evidence", "grade", "delta", "assumptions", "unsupported", "refusal", "diagnostics", "settings", "data", "versions", "seed",
)  # fmt: skip
"""Fields of a certificate with the same name in JSON."""


def certificate_json(certificate: Certificate) -> Json:
    """JSON document of a certificate (schema certificate/1)."""
    more = more_data(certificate)
    document = {
        "schema": SCHEMA,
        "standing": certificate.standing,
        "verdict": certificate.verdict,
        **{name: getattr(certificate, name) for name in AS_THEY_ARE},
        "objectives": [
            {**vars(finding), "outcome": certificate.outcome(k)} for k, finding in enumerate(certificate.findings)
        ],
        "thresholds": [
            {**vars(floor), "shortfall": floor.shortfall, "passed": floor.passed} for floor in certificate.floors
        ],
        "theory": None if certificate.theory is None else _theory_json(certificate.theory),
        "beliefs": [
            {**vars(belief), "error": belief.error, "enough": belief.passes(certificate.delta)}
            for belief in certificate.beliefs
        ],
        "checks": [check_json(check) for check in certificate.checks],
        "more_data": None if more is None else {**vars(more), "sentence": more.sentence},
    }
    return to_json(document)  # type: ignore[no-any-return]


def check_json(check: StateCheck) -> Json:
    """JSON object of a check of the state."""
    found = {**vars(check), "p_value": check.p_value, "against": check.against, "sentence": check.sentence}
    return to_json(found)  # type: ignore[no-any-return]


def _theory_json(theory: Theory) -> Json:
    return {
        "delta": theory.delta,
        "baseline_known": theory.baseline_known,
        "range_known": theory.range_known,
        "rewards_fixed": theory.rewards_fixed,
        "assumptions": theory.assumptions,
        "objectives": [
            {
                **vars(proof),
                "proposition": "informative" if proof.proposition_informative else "uninformative",
                "proof": "informative" if proof.informative else "uninformative",
            }
            for proof in theory.proofs
        ],
    }


def certificate_from_json(document: Any, place: str) -> Certificate:
    """Certificate from the document of `certificate_json`; ``place`` names the file in messages.

    Raises:
        RunError: If the schema is unknown, a field is missing or has the wrong type, or the verdict does not follow from the
            numbers.
    """
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise RunError(f"{place} has schema {schema!r}; this version of bettersafe reads {SCHEMA!r}.")

    def read(kind: Any, name: str, source: Any = document, within: str = "") -> Any:
        if name not in source:
            raise RunError(f"{place} is not complete: the field {within}{name} is missing.")
        return from_json(kind, source[name], f"{within}{name}", place)

    kinds = get_type_hints(Certificate)
    theory = None
    if read(Json | None, "theory") is not None:
        part = document["theory"]
        theory = Theory(
            proofs=read(tuple[Proof, ...], "objectives", part, "theory."),
            delta=read(float, "delta", part, "theory."),
            **{name: read(bool, name, part, "theory.") for name in ("baseline_known", "range_known", "rewards_fixed")},
        )
    try:
        certificate = Certificate(
            findings=read(tuple[Finding, ...], "objectives"),
            floors=read(tuple[Floor, ...], "thresholds"),
            theory=theory,
            beliefs=read(tuple[Belief, ...], "beliefs"),
            checks=read(tuple[StateCheck, ...], "checks") if "checks" in document else (),
            **{name: read(kinds[name], name) for name in AS_THEY_ARE},
        )
    except RunError:
        raise
    except BettersafeError as error:
        raise RunError(f"{place} is not as it was saved: {error}") from None
    if document.get("standing") != certificate.standing:
        raise RunError(f"{place} says {document.get('standing')!r}, which does not follow from its numbers.")
    return certificate
