"""The run directory: what `improve` leaves behind, in formats that are safe to open and to keep.

    run.json             schema number, settings, versions, data digest, returns in the estimated model
    policy.parquet       state, action, probability, baseline, count; its sha256 is in run.json and in the certificate
    certificate.json     what is promised, on what evidence; its own sha256 is in it
    evaluation.parquet   off-policy estimates on the data that it was tested on, if any; its sha256 is in the certificate
    report.html          all of it for people (`report`); made from the rest, and removed when that changes

A run is written under a temporary name and renamed, so that a directory of that name is always whole. Digests tell an
accident or an edit from what was saved; they are no signature.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bettersafe._system.files import file_digest, versions, whole_file, whole_folder
from bettersafe.certificate.files import certificate_from_json, certificate_json
from bettersafe.errors import BettersafeError, RunError
from bettersafe.logs.dataset import Objective, label_array, user_sign
from bettersafe.runs.policy_file import read_saved_policy, write_policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.certificate.certificate import Certificate
    from bettersafe.methods.result import Improvement
    from bettersafe.model import Model
    from bettersafe.typing import Floats, Labels


SCHEMA = "run/1"

MARK = "run.json"
"""The file that tells a run directory."""

REPORT = "report.html"
EVALUATION_SCHEMA = "evaluation/1"
OBJECTIVE_FIELDS = ("name", "label", "unit", "discount", "weight", "lower_is_better", "reward_range")
RETURN_FIELDS = ("baseline_return", "policy_return")

INFO_FIELDS = (
    "status", "method", "preference", "epsilon", "delta", "error_kind", "unseen", "engine", "rounds", "gap", "n_states",
    "states_changed", "states_kept", "mean_moved", "largest_moved", "baseline_source",
)  # fmt: skip
"""What `show` prints, so what a run must have."""

INFO_TYPES: dict[str, Any] = {
    "status": str, "method": str, "preference": list, "epsilon": int | float | str, "delta": int | float,
    "error_kind": str, "engine": str, "rounds": int, "gap": int | float | str, "n_states": int, "states_changed": int,
    "states_kept": list, "mean_moved": int | float, "largest_moved": int | float, "baseline_source": str, "notes": list,
    "settings": dict, "data": dict, "candidates": list,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Run:
    """A saved run, as `show` and later commands read it.

    Attributes:
        policy: π, shape [X, A].
        baseline: π_b, shape [X, A].
        counts: Visits of every pair, shape [X, A].
        state_labels: Shape [X].
        action_labels: Shape [A].
        objectives: Length d.
        baseline_return: J_k(π_b) in the estimated model, shape [d]; higher is better.
        policy_return: J_k(π) in the estimated model, shape [d].
        info: Everything else in run.json.
        certificate: What is promised, if anything was looked into.
        evaluation: Off-policy estimates (`evaluate.evaluation_rows`), one dict per estimator and objective.
    """

    policy: Floats
    baseline: Floats
    counts: npt.NDArray[np.int64]
    state_labels: Labels
    action_labels: Labels
    objectives: tuple[Objective, ...]
    baseline_return: Floats
    policy_return: Floats
    info: dict[str, Any] = field(default_factory=dict)
    certificate: Certificate | None = None
    evaluation: tuple[dict[str, Any], ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the policy differs from the baseline at all."""
        return bool(np.any(self.policy != self.baseline))


@dataclass(frozen=True, kw_only=True)
class Change:
    """One state where the policy differs from the baseline."""

    state: str
    visits: int
    moved: float  # probability that goes to other actions, Σ|π − π_b|/2
    less: tuple[tuple[str, float, float], ...]  # (action, baseline, policy), largest fall first
    more: tuple[tuple[str, float, float], ...]  # largest rise first


MOST_PURSUED = 4
"""So few objectives with a weight are shown even where nothing about them is in doubt."""


def deciding(run: Run, most: int) -> list[int]:
    """At most so many objectives to show first, in their own order: the few that are pursued, and those that most decide.

    By the certificate, the least sure first; without one, by the gain in the estimated model relative to the baseline.
    """
    d = len(run.objectives)
    if d <= most:
        return list(range(d))
    if run.certificate is not None:
        places = {objective.name: k for k, objective in enumerate(run.objectives)}
        order = [places[run.certificate.findings[k].objective] for k in run.certificate.doubt_order]
    else:
        gain = (run.policy_return - run.baseline_return) / np.maximum(np.abs(run.baseline_return), 1e-12)
        order = np.argsort(gain, kind="stable").tolist()
    pursued = [k for k in range(d) if run.info["preference"][k] != 0.0]
    first = pursued if len(pursued) <= MOST_PURSUED else []
    return sorted(list(dict.fromkeys([*first, *order]))[:most])


def largest_changes(run: Run, n: int = 10) -> list[Change]:
    """The states where the policy moves most probability, weighted by how often the data visits them."""
    moved = np.abs(run.policy - run.baseline).sum(axis=1) / 2.0
    visits = run.counts.sum(axis=1)
    order = np.argsort(-moved * visits, kind="stable")[:n]
    changes = []
    for x in order:
        if moved[x] <= 0.0:
            break
        delta = run.policy[x] - run.baseline[x]

        def named(actions: npt.NDArray[np.int64], x: int = x) -> tuple[tuple[str, float, float], ...]:
            return tuple(
                (str(run.action_labels[a]), float(run.baseline[x, a]), float(run.policy[x, a])) for a in actions
            )

        rank = np.argsort(delta, kind="stable")
        changes.append(
            Change(
                state=str(run.state_labels[x]),
                visits=int(visits[x]),
                moved=float(moved[x]),
                less=named(rank[delta[rank] < 0.0]),
                more=named(rank[::-1][delta[rank[::-1]] > 0.0]),
            )
        )
    return changes


def make_run(improvement: Improvement, model: Model, objectives: tuple[Objective, ...], **info: Any) -> Run:
    """Put an improvement together with the labels and settings that a reader needs."""
    counts = np.zeros(improvement.policy.shape, dtype=np.int64)
    counts[model.mdp.pair_state, model.mdp.pair_action] = model.counts
    return Run(
        policy=improvement.policy,
        baseline=improvement.baseline,
        counts=counts,
        state_labels=model.state_labels,
        action_labels=model.action_labels,
        objectives=objectives,
        baseline_return=improvement.baseline_return,
        policy_return=improvement.policy_return,
        info={
            "status": improvement.status,
            "method": improvement.method,
            "preference": improvement.preference.tolist(),
            "epsilon": _number(improvement.epsilon),
            "delta": model.delta,
            "error_kind": model.error_kind,
            "unseen": model.unseen,
            "engine": improvement.engine,
            "rounds": improvement.rounds,
            "converged": improvement.converged,
            "gap": _number(improvement.gap),
            "n_states": model.mdp.n_states,
            "n_actions": model.mdp.n_actions,
            "n_pairs": int(np.count_nonzero(model.counts)),
            "states_changed": int(improvement.changed.size),
            "states_kept": [str(model.state_labels[x]) for x in improvement.kept],
            "mean_moved": float(improvement.distance.mean() / 2.0),
            "largest_moved": float(improvement.distance.max() / 2.0),
            "largest_budget_used": float(improvement.budget_used.max()),
            **info,
        },
    )


def save_run(run: Run, path: str | Path, *, force: bool = False) -> Path:
    """Write a run directory; refuses to replace one unless ``force``."""
    target = Path(path)
    with whole_folder(target, mark=MARK, force=force) as work:
        write_policy(
            work / "policy.parquet",
            run.policy,
            run.state_labels,
            run.action_labels,
            baseline=run.baseline,
            counts=run.counts,
        )
        document = {
            "schema": SCHEMA,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": versions(),
            "objectives": [
                {
                    **{name: getattr(objective, name) for name in OBJECTIVE_FIELDS},
                    "baseline_return": user_sign(objective, before),
                    "policy_return": user_sign(objective, after),
                }
                for objective, before, after in zip(run.objectives, run.baseline_return, run.policy_return, strict=True)
            ],
            **run.info,
            "actions": run.action_labels.tolist(),
            "policy_sha256": file_digest(work / "policy.parquet"),
        }
        _write_json(work / "run.json", document)
        if run.certificate is not None:
            save_certificate(work, run.certificate, run.evaluation)
    return target


def save_certificate(folder: Path, certificate: Certificate, evaluation: tuple[dict[str, Any], ...]) -> None:
    """Put a certificate and the estimates beside it into a run directory, replacing those that are there."""
    (folder / REPORT).unlink(missing_ok=True)  # it would go on telling of the certificate before
    target = folder / "evaluation.parquet"
    if evaluation:
        write_evaluation(target, evaluation)
    else:
        target.unlink(missing_ok=True)
    document = {
        **certificate_json(certificate),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "run_sha256": file_digest(folder / "run.json"),
        "policy_sha256": file_digest(folder / "policy.parquet"),
        "evaluation_sha256": file_digest(target) if evaluation else None,
    }
    _write_json(folder / "certificate.json", {**document, "sha256": _document_digest(document)})


def load_certificate(folder: str | Path) -> Certificate | None:
    """The certificate of a run directory, checked against the files beside it; None where there is none.

    Raises:
        RunError: The certificate was altered, or it is about other files than those beside it.
    """
    folder = Path(folder)
    file = folder / "certificate.json"
    if not file.is_file():
        return None
    document = _read_json(file)
    if not isinstance(document, dict) or document.pop("sha256", None) != _document_digest(document):
        raise RunError(f"{file} is not as it was saved: its digest does not agree with its content.")
    certificate = certificate_from_json(document, str(file))
    for name in ("run.json", "policy.parquet", "evaluation.parquet"):
        beside, digest = folder / name, document.get(f"{Path(name).stem}_sha256")
        if digest is None and name != "evaluation.parquet":
            raise RunError(f"{file} does not say which {name} it is about.")
        there = file_digest(beside) if beside.is_file() else None
        if there != digest:
            raise RunError(f"{beside} is not the file that {file.name} is about.")
    return certificate


def write_evaluation(path: str | Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write estimates (`evaluate.evaluation_rows`) as Parquet, or CSV if the name ends so; under a temporary name first."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    target = Path(path)
    if target.suffix.lower() not in (".parquet", ".csv"):
        raise RunError(f"estimates are written as .parquet or .csv; got {target.name}.")
    table = pa.Table.from_pylist(list(rows))
    with whole_file(target) as partial:
        if target.suffix.lower() == ".csv":
            pa_csv.write_csv(table, partial)
        else:
            pq.write_table(table.replace_schema_metadata({"bettersafe.schema": EVALUATION_SCHEMA}), partial)


def read_evaluation(path: str | Path) -> tuple[dict[str, Any], ...]:
    """Read what `write_evaluation` wrote as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"{path} can't be read: {error}") from None
    schema = (table.schema.metadata or {}).get(b"bettersafe.schema", b"none").decode()
    if schema != EVALUATION_SCHEMA:
        raise RunError(f"{path} has schema {schema!r}; this version of bettersafe reads {EVALUATION_SCHEMA!r}.")
    return tuple(table.to_pylist())


def load_run(path: str | Path) -> Run:
    """Read a run directory, checking its schema and that the policy is the one it was written with."""
    folder = Path(path)
    file = folder / "run.json"
    if not file.is_file():
        what = (
            "is not a run directory: it has no run.json"
            if folder.exists()
            else "is no run directory: it does not exist"
        )
        raise RunError(f"{folder} {what}. Name what `bettersafe improve -o` wrote.")
    document = _read_json(file)
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise RunError(f"{file} has schema {schema!r}; this version of bettersafe reads {SCHEMA!r}.")
    policy_file = folder / "policy.parquet"
    try:
        digest, names, rows = document["policy_sha256"], document.pop("actions"), document.pop("objectives")
        objectives = tuple(Objective(**{name: row[name] for name in OBJECTIVE_FIELDS}) for row in rows)
        returns = [[user_sign(o, row[key]) for o, row in zip(objectives, rows, strict=True)] for key in RETURN_FIELDS]
        missing = [key for key in INFO_FIELDS if key not in document]
        actions = label_array(np.array(names))
    except KeyError as error:
        raise RunError(f"{file} is not complete: it lacks {error}.") from None
    except (TypeError, ValueError, AttributeError, BettersafeError) as error:
        raise RunError(f"{file} is not as it was saved: {error}.") from None
    if missing:
        raise RunError(f"{file} is not complete: it lacks {', '.join(missing)}.")
    wrong = [key for key, kind in INFO_TYPES.items() if key in document and not isinstance(document[key], kind)]
    if wrong or not all(isinstance(text, str) for o in objectives for text in (o.name, o.title, o.unit)):
        raise RunError(f"{file} is not as it was saved: {', '.join(wrong) or 'a name'} has another type.")
    if not policy_file.is_file() or file_digest(policy_file) != digest:
        raise RunError(f"{policy_file} is not the file that this run was saved with.")
    states, policy, baseline, counts = read_saved_policy(policy_file, actions)
    return Run(
        policy=policy,
        baseline=baseline,
        counts=counts,
        state_labels=states,
        action_labels=actions,
        objectives=objectives,
        baseline_return=np.array(returns[0]),
        policy_return=np.array(returns[1]),
        info=document,
        certificate=load_certificate(folder),
        evaluation=read_evaluation(folder / "evaluation.parquet") if (folder / "evaluation.parquet").is_file() else (),
    )


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise RunError(f"{file} can't be read: {error}") from None


def _write_json(file: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    with whole_file(file) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def _document_digest(document: dict[str, Any]) -> str:
    """sha256 of a JSON document in its canonical form, hex."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _number(value: float) -> float | str:
    """JSON has no infinity: it is written as the word."""
    return value if math.isfinite(value) else "inf"
