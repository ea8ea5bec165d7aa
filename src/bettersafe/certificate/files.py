"""Certificates as JSON documents."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bettersafe.certificate.certificate import Belief, Certificate, Finding, Floor, Proof, Theory
from bettersafe.errors import RunError

SCHEMA = "certificate/1"


def certificate_json(certificate: Certificate) -> dict[str, Any]:
    """The certificate as a JSON document (schema certificate/1)."""
    theory = certificate.theory
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "accepted": certificate.accepted,
        "verdict": certificate.verdict,
        "evidence": certificate.evidence,
        "grade": certificate.grade,
        "delta": certificate.delta,
        "objectives": [{**vars(finding), "passed": finding.passed} for finding in certificate.findings],
        "thresholds": [
            {**vars(floor), "shortfall": floor.shortfall, "passed": floor.passed} for floor in certificate.floors
        ],
        "unsupported": certificate.unsupported,
        "blind": certificate.blind,
        "assumptions": list(certificate.assumptions),
        "theory": None
        if theory is None
        else {
            "delta": theory.delta,
            "baseline_known": theory.baseline_known,
            "range_known": theory.range_known,
            "rewards_fixed": theory.rewards_fixed,
            "assumptions": list(theory.assumptions),
            "objectives": [
                {
                    **vars(proof),
                    "proposition": "informative" if proof.proposition_informative else "uninformative",
                    "proof": "informative" if proof.informative else "uninformative",
                }
                for proof in theory.proofs
            ],
        },
        "beliefs": [
            {**vars(belief), "error": belief.error, "passes": belief.passes(certificate.delta)}
            for belief in certificate.beliefs
        ],
        "diagnostics": dict(certificate.diagnostics),
        "settings": dict(certificate.settings),
        "data": dict(certificate.data),
        "versions": dict(certificate.versions),
        "seed": certificate.seed,
    }
    return _words(document)  # type: ignore[no-any-return]


def certificate_from_json(document: Any, place: str) -> Certificate:
    """Read what `certificate_json` wrote; ``place`` names the file in messages.

    Raises:
        RunError: Another schema, a field missing, or a verdict that does not follow from the numbers.
    """
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise RunError(f"{place} has schema {schema!r}; this version of bettersafe reads {SCHEMA!r}.")
    try:
        theory = document["theory"]
        certificate = Certificate(
            findings=tuple(_record(Finding, row) for row in document["objectives"]),
            evidence=document["evidence"],
            grade=document["grade"],
            assumptions=tuple(document["assumptions"]),
            delta=float(document["delta"]),
            unsupported=float(document["unsupported"]),
            blind=str(document["blind"]),
            floors=tuple(_record(Floor, row) for row in document["thresholds"]),
            theory=None
            if theory is None
            else Theory(
                proofs=tuple(_record(Proof, row) for row in theory["objectives"]),
                delta=float(theory["delta"]),
                baseline_known=bool(theory["baseline_known"]),
                range_known=bool(theory["range_known"]),
                rewards_fixed=bool(theory["rewards_fixed"]),
            ),
            beliefs=tuple(
                Belief(
                    priors=row["priors"],
                    p_safe=float(row["p_safe"]),
                    p_objective=tuple(float(p) for p in row["p_objective"]),
                    p_pessimistic=tuple(float(p) for p in row["p_pessimistic"]),
                    draws=int(row["draws"]),
                )
                for row in document.get("beliefs", [])
            ),
            diagnostics=document["diagnostics"],
            settings=document["settings"],
            data=document["data"],
            versions=document["versions"],
            seed=document["seed"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{place} is not complete: {error}.") from None
    if document.get("accepted") is not certificate.accepted:
        raise RunError(f"{place} says accepted: {document.get('accepted')}, which does not follow from its numbers.")
    return certificate


def _record(kind: type[Any], row: Mapping[str, Any]) -> Any:
    """One Finding, Floor or Proof; every field but the objective's name is a number."""
    return kind(**{name: row[name] if name == "objective" else float(row[name]) for name in kind.__dataclass_fields__})


def _words(value: Any) -> Any:
    """``value`` with infinities and NaN as words, which JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _words(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_words(item) for item in value]
    return value
