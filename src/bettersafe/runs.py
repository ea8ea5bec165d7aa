"""The run directory: what `improve` leaves behind, in formats that are safe to open and to keep.

    run.json         schema number, settings, versions, data digest, returns in the estimated model
    policy.parquet   state, action, probability, baseline, count; its sha256 is in run.json

A run is written under a temporary name and renamed, so that a directory of that name is always whole.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bettersafe.data import Labels, Objective, label_array
from bettersafe.errors import RunError
from bettersafe.policies import read_saved_policy, write_policy

if TYPE_CHECKING:
    from bettersafe.improve import Improvement
    from bettersafe.model import Model

Floats = npt.NDArray[np.float64]

SCHEMA = "run/1"
OBJECTIVE_FIELDS = ("name", "label", "unit", "discount", "weight", "lower_is_better")
RETURN_FIELDS = ("baseline_return", "policy_return")
INFO_FIELDS = (
    "status", "method", "preference", "epsilon", "delta", "error_kind", "unseen", "engine", "rounds", "gap", "n_states",
    "states_changed", "states_kept", "mean_moved", "largest_moved", "baseline_source",
)  # fmt: skip
"""What `show` prints, so what a run must have."""


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
    check_free(target, force=force)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise RunError(f"{target} can't be written: {error.strerror}. Choose another place.") from None
    try:
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
                    "name": objective.name,
                    "label": objective.label,
                    "unit": objective.unit,
                    "discount": objective.discount,
                    "weight": objective.weight,
                    "lower_is_better": objective.lower_is_better,
                    "baseline_return": user_sign(objective, before),
                    "policy_return": user_sign(objective, after),
                }
                for objective, before, after in zip(run.objectives, run.baseline_return, run.policy_return, strict=True)
            ],
            **run.info,
            "actions": run.action_labels.tolist(),
            "policy_sha256": file_digest(work / "policy.parquet"),
        }
        (work / "run.json").write_text(
            json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
        )
        work.chmod(0o755)  # mkdtemp makes it private
        if (target / "run.json").exists():
            aside = target.with_name(f".{target.name}.old-{os.getpid()}")
            target.rename(aside)
            work.rename(target)
            shutil.rmtree(aside)
        else:
            work.rename(target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return target


def user_sign(objective: Objective, value: float) -> float:
    """A return in the user's own sign: what is lower-is-better is shown as the cost that it is. Its own inverse."""
    return float(-value if objective.lower_is_better else value)


def check_free(target: Path, *, force: bool) -> None:
    """Raise unless a run may be written to ``target``: a new name, an empty folder, or (with ``force``) another run."""
    if not target.exists():
        return
    if not (target / "run.json").is_file():
        if target.is_dir() and not any(target.iterdir()):
            return
        raise RunError(f"{target} exists and is not a run directory; choose another name.")
    if not force:
        raise RunError(f"{target} already holds a run; choose another name, or replace it with --force.")


def load_run(path: str | Path) -> Run:
    """Read a run directory, checking its schema and that the policy is the one it was written with."""
    folder = Path(path)
    file = folder / "run.json"
    if not file.is_file():
        raise RunError(f"{folder} is not a run directory: it has no run.json.")
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise RunError(f"{file} can't be read: {error}") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise RunError(f"{file} has schema {schema!r}; this version of bettersafe reads {SCHEMA!r}.")
    policy_file = folder / "policy.parquet"
    try:
        digest, names, rows = document["policy_sha256"], document.pop("actions"), document.pop("objectives")
        objectives = tuple(Objective(**{name: row[name] for name in OBJECTIVE_FIELDS}) for row in rows)
        returns = [[user_sign(o, row[key]) for o, row in zip(objectives, rows, strict=True)] for key in RETURN_FIELDS]
        missing = [key for key in INFO_FIELDS if key not in document]
    except (KeyError, TypeError) as error:
        raise RunError(f"{file} is not complete: it lacks {error}.") from None
    if missing:
        raise RunError(f"{file} is not complete: it lacks {', '.join(missing)}.")
    if not policy_file.is_file() or file_digest(policy_file) != digest:
        raise RunError(f"{policy_file} is not the file that this run was saved with.")
    actions = label_array(np.array(names))
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
    )


def file_digest(path: Path) -> str:
    """sha256 of a file, hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("bettersafe", "numpy", "scipy", "duckdb", "pyarrow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def _number(value: float) -> float | str:
    """JSON has no infinity: it is written as the word."""
    return value if math.isfinite(value) else "inf"
