"""Runs: a proposed policy, the decision on it, and the directory that stores both.

    run.json             schema, decision, settings, versions, data digest, returns in the estimated model
    policy.parquet       state, action, probability (the policy to use), baseline, proposal (if refused), count
    certificate.json     evidence, bounds and verdict, with the file's own sha256
    evaluation.parquet   off-policy estimates on the test data, if any; the certificate has its sha256
    report.html          report for people (`report`); made from the other files, and removed when they change

A run is written under a temporary name and then renamed, so a directory never mixes two runs. A new certificate can change the
decision, and with it the policy; the whole run is then rewritten. Digests detect accidents and edits; they are not signatures.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe._system.files import file_digest, remove_leftovers, versions, whole_file, whole_folder
from bettersafe._system.records import from_json, to_json
from bettersafe.certificate.certificate import Certificate
from bettersafe.certificate.files import certificate_from_json, certificate_json
from bettersafe.errors import (
    BettersafeError,
    ParameterError,
    RunError,
    check_integer,
    check_options,
    check_path,
    check_type,
    check_types,
    listed,
)
from bettersafe.logs.dataset import Objective, label_array, user_sign
from bettersafe.runs.evaluation_file import read_evaluation, write_evaluation
from bettersafe.runs.info import CandidateInfo, DataInfo, RunInfo, info_from_json, info_json
from bettersafe.runs.policy_file import read_saved_policy, write_policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.evaluation.evaluate import EstimateRow
    from bettersafe.methods.result import Improvement
    from bettersafe.model import Model
    from bettersafe.typing import Floats, Ints, Json, Labels


SCHEMA = "run/1"

MARK = "run.json"
"""File that marks a folder as a run directory."""

REPORT = "report.html"
FILES = ("run.json", "policy.parquet", "certificate.json", "evaluation.parquet")
"""Files of a run, without the report."""


class Decision(Enum):
    """Decision on a run; its value is a sentence.

    Examples:
        >>> run.decision is bettersafe.Decision.NOT_TESTED
        True
        >>> run.decision.short
        'Not tested'
    """

    USE_POLICY = "Use the policy: a test, or a proof, shows that it is no worse on any objective."
    PROPOSED = (
        "Proposed: given the log, the policy is believed to be no worse on any objective. It was not tested. Test it on held-out"
        " episodes: bettersafe certify RUN HELD_OUT."
    )
    NOT_TESTED = (
        "Not tested: the policy is a suggestion, made and evaluated on the same data. Test it on held-out episodes:"
        " bettersafe certify RUN HELD_OUT."
    )
    KEEP_BASELINE = "Keep the baseline: for no other policy is the evidence strong enough."

    @property
    def sentence(self) -> str:
        """Decision as a sentence."""
        return self.value

    @property
    def short(self) -> str:
        """Decision in two or three words: the part of the sentence before the colon."""
        return self.value.partition(":")[0]

    @property
    def word(self) -> str:
        """Decision for programs: use-policy, proposed, not-tested or keep-baseline."""
        return self.name.lower().replace("_", "-")

    def to_json(self) -> dict[str, str]:
        """JSON object with ``word`` and ``sentence``."""
        return {"word": self.word, "sentence": self.sentence}


@dataclass(frozen=True, kw_only=True)
class Run:
    """Result of an improvement: the proposed policy, its certificate and metadata.

    Attributes:
        proposal: Proposed policy, shape [X, A]; the baseline if the method proposed no other.
        baseline: π_b, shape [X, A].
        counts: Visits of every pair, shape [X, A].
        state_labels: State labels, shape [X].
        action_labels: Action labels, shape [A].
        objectives: Objectives, length d.
        baseline_return: J_k(π_b) in the estimated model, up to ``info.horizon``, shape [d]; higher is better.
        proposal_return: J_k of the proposal in the estimated model, up to ``info.horizon``, shape [d]; higher is better.
        info: Metadata.
        certificate: Certificate of the proposal, if there is one.
        evaluation: Off-policy estimates (`evaluate.comparison_rows`), one dict per estimator and objective.
        tests: Summaries of the tests that `certify_run` made of this object, oldest first: all that changes in a run. It is not saved,
            and a copy begins without it; what is saved is the certificate.

    Examples:
        >>> run = bettersafe.run_task(task)
        >>> run.policy.shape, run.info.method
        ((6, 3), 's-opt')
        >>> print(run.decision.sentence)
        Not tested: the policy is a suggestion, made and evaluated on the same data. Test it on held-out...
    """

    proposal: Floats
    baseline: Floats
    counts: Ints
    state_labels: Labels
    action_labels: Labels
    objectives: tuple[Objective, ...]
    baseline_return: Floats
    proposal_return: Floats
    info: RunInfo
    certificate: Certificate | None = None
    evaluation: tuple[EstimateRow, ...] = ()
    tests: list[Json] = field(default_factory=list, init=False, compare=False, repr=False)

    @cached_property
    def has_proposal(self) -> bool:
        """Whether the proposal differs from the baseline."""
        return bool(np.any(self.proposal != self.baseline))

    @property
    def decision(self) -> Decision:
        """Decision that follows from the certificate.

        A policy that is only believed, by the posterior, is proposed. Evidence "theory" refuses a proposal only because of a threshold.
        Where a check speaks against the model, a proposal that passes otherwise needs a test.
        """
        certificate = self.certificate
        if not self.has_proposal:
            return Decision.KEEP_BASELINE
        if certificate is None:
            return Decision.NOT_TESTED
        if certificate.accepted:
            return Decision.PROPOSED if certificate.evidence == "posterior" else Decision.USE_POLICY
        if certificate.passes:
            return Decision.NOT_TESTED
        if certificate.evidence == "theory" and all(floor.passed for floor in certificate.floors):
            return Decision.NOT_TESTED
        return Decision.KEEP_BASELINE

    @property
    def policy(self) -> Floats:
        """Policy to use, shape [X, A]: the proposal, or the baseline if the decision is to keep it."""
        return self.baseline if self.decision is Decision.KEEP_BASELINE else self.proposal

    @property
    def policy_return(self) -> Floats:
        """J_k of ``policy`` in the estimated model, shape [d]."""
        return self.baseline_return if self.decision is Decision.KEEP_BASELINE else self.proposal_return


def make_run(
    improvement: Improvement,
    model: Model,
    objectives: tuple[Objective, ...],
    *,
    baseline_source: str,
    data: DataInfo,
    settings: Mapping[str, Any],
    notes: Sequence[str] = (),
    seed: int | None = None,
    status: str | None = None,
    candidates: Sequence[CandidateInfo] = (),
) -> Run:
    """Run from an improvement, with its labels, settings and data.

    Args:
        improvement: Result of a method; its policy is the run's proposal.
        model: Model in which the policy was optimised.
        objectives: Objectives, length d.
        baseline_source: Origin of the baseline, in words.
        data: Log from which the model was estimated.
        settings: Settings of the task, convertible to JSON.
        notes: Notes of the reader on the log.
        seed: Seed of the random draws.
        status: Result in one sentence; default: the improvement's status.
        candidates: Candidates of the method.

    Examples:
        >>> from bettersafe.runs import DataInfo, make_run
        >>> found = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0)
        >>> data = DataInfo(path="log.parquet", sha256="", rows=log.n_rows, episodes=log.n_episodes)
        >>> own = make_run(found, model, log.objectives, baseline_source="given", data=data, settings={})
        >>> own.info.states_changed
        6
    """
    from bettersafe.methods.result import Improvement
    from bettersafe.model import Model

    check_type("improvement", improvement, Improvement)
    check_type("model", model, Model)
    check_types("objectives", objectives, Objective)
    check_type("data", data, DataInfo)
    check_type("settings", settings, Mapping)
    check_type("baseline_source", baseline_source, str)
    check_types("notes", notes, str)
    check_types("candidates", candidates, CandidateInfo)
    check_type("status", status, str, optional=True)
    check_integer("seed", seed, least=0, optional=True)
    counts = np.zeros(improvement.policy.shape, dtype=np.int64)
    counts[model.mdp.pair_state, model.mdp.pair_action] = model.counts
    return Run(
        proposal=improvement.policy,
        baseline=improvement.baseline,
        counts=counts,
        state_labels=model.state_labels,
        action_labels=model.action_labels,
        objectives=objectives,
        baseline_return=improvement.baseline_return,
        proposal_return=improvement.policy_return,
        info=RunInfo(
            method=improvement.method,
            status=improvement.status if status is None else status,
            baseline_source=baseline_source,
            preference=tuple(improvement.preference.tolist()),
            epsilon=float(improvement.epsilon),
            delta=model.delta,
            error_kind=model.error_kind,
            unseen=model.unseen,
            engine=improvement.engine,
            rounds=improvement.rounds,
            converged=improvement.converged,
            gap=float(improvement.gap),
            n_states=model.mdp.n_states,
            n_actions=model.mdp.n_actions,
            n_pairs=int(np.count_nonzero(model.counts)),
            states_changed=int(improvement.changed.size),
            states_kept=tuple(str(model.state_labels[x]) for x in improvement.kept),
            mean_moved=float(improvement.distance.mean() / 2.0),
            largest_moved=float(improvement.distance.max() / 2.0),
            largest_budget_used=float(improvement.budget_used.max()),
            data=data,
            settings=to_json(settings),
            notes=tuple(notes),
            seed=seed,
            candidates=tuple(candidates),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=versions(),
        ),
    )


def run_json(run: Run) -> Json:
    """Document run.json of a run, without the digest of its policy; returns have the sign of the log."""
    columns = {
        "baseline_return": run.baseline_return,
        "policy_return": run.policy_return,
        "proposal_return": run.proposal_return,
    }
    return {
        "schema": SCHEMA,
        "decision": run.decision.to_json(),
        "horizon": run.info.horizon,
        "objectives": [
            {
                **dataclasses.asdict(objective),
                **{name: user_sign(objective, float(values[k])) for name, values in columns.items()},
            }
            for k, objective in enumerate(run.objectives)
        ],
        **info_json(run.info),
        "actions": run.action_labels.tolist(),
    }


def save_run(run: Run, path: str | Path, *, force: bool = False) -> Path:
    """Write a run directory; an existing one is replaced only with ``force``.

    Args:
        run: Run to save.
        path: Directory to create.
        force: Whether to replace an existing run.

    Examples:
        >>> folder = bettersafe.save_run(run, "my-run")
        >>> sorted(file.name for file in folder.iterdir())
        ['certificate.json', 'policy.parquet', 'run.json']
    """
    check_type("run", run, Run)
    check_path("path", path)
    check_options(force=force)
    _check_objectives(run)
    target = Path(path)
    with whole_folder(target, mark=MARK, force=force) as work:
        _write(run, work)
    return target


def certificates_before(run: Run) -> list[Json]:
    """Summaries of all certificates of the run's proposal, oldest first, and of the tests of this object."""
    last = run.certificate
    return [*([] if last is None else [*last.settings.get("earlier", ()), certificate_summary(last)]), *run.tests]


def certificate_summary(certificate: Certificate) -> Json:
    """What later certificates of a proposal say of this one."""
    asked = {
        name: certificate.settings[name] for name in ("bound", "prior", "pessimism") if name in certificate.settings
    }
    log = dict(certificate.data.get("tested_on") or certificate.data.get("made_from") or {}).get("path", "")
    return {
        "evidence": certificate.evidence,
        "standing": certificate.standing,
        "delta": certificate.delta,
        "log": log,
        **asked,
    }


def save_certificate(
    path: str | Path,
    certificate: Certificate,
    evaluation: Sequence[EstimateRow] = (),
    *,
    force: bool = False,
) -> Run:
    """Rewrite a run directory with a new certificate, and the decision and policy that follow from it.

    The report is removed, because it shows the previous certificate. Files that are not part of a run stay.

    Args:
        path: Run directory.
        certificate: New certificate of the run's proposal.
        evaluation: Off-policy estimates of the new test; they replace the previous ones.
        force: Whether to replace a held-out test that the new certificate does not have on record.

    Returns:
        The run as saved.

    Raises:
        ParameterError: If the certificate is of other objectives, or the run was tested since it was loaded.

    Examples:
        >>> from bettersafe.runs import save_certificate
        >>> certificate, rows = bettersafe.certify_run(run, "later.parquet")
        >>> print(save_certificate("run", certificate, rows).decision.sentence)
        Use the policy: a test, or a proof, shows that it is no worse on any objective.
    """
    check_path("path", path)
    check_type("certificate", certificate, Certificate)
    check_options(force=force)
    folder = Path(path).resolve()  # replaces the target of a link, not the link
    here = _working_directory()
    check_types("evaluation", evaluation, Mapping)
    before = load_run(folder)
    if not force:
        _check_on_record(before, certificate)
    run = dataclasses.replace(before, certificate=certificate, evaluation=tuple(row.copy() for row in evaluation))
    _check_objectives(run)
    with whole_folder(folder, mark=MARK, force=True, own=(*FILES, REPORT)) as work:
        _write(run, work)
    if here is not None and here.is_relative_to(folder):  # the working directory was replaced by a new folder
        os.chdir(here)
    return run


def _check_on_record(run: Run, certificate: Certificate) -> None:
    """Raise ParameterError if a new certificate would replace a held-out test that it does not mention."""
    known = list(certificate.settings.get("earlier", ()))
    for test in certificates_before(run):
        if test["evidence"] != "held-out":
            continue
        if test not in known:
            raise ParameterError(
                "the saved run was tested on held-out episodes already, and the new certificate does not mention that test. Testing"
                " until a test passes invalidates delta. Test the run as `load_run` reads it. To replace the result all the same, use"
                " `force`."
            )
        known.remove(test)


def _check_objectives(run: Run) -> None:
    """Raise ParameterError if the certificate is of other objectives than the run's."""
    if run.certificate is None:
        return
    found, expected = [f.objective for f in run.certificate.findings], [o.name for o in run.objectives]
    if found != expected:
        raise ParameterError(
            f"the certificate is of {listed(found)}, but the run's objectives are {listed(expected)}. Give the run's own certificate."
        )


def _working_directory() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return None


def _write(run: Run, folder: Path) -> None:
    """Write the files of a run into an empty folder."""
    policy = folder / "policy.parquet"
    refused = run.decision is Decision.KEEP_BASELINE and run.has_proposal
    write_policy(
        policy,
        run.policy,
        run.state_labels,
        run.action_labels,
        baseline=run.baseline,
        proposal=run.proposal if refused else None,
        counts=run.counts,
    )
    _write_json(folder / MARK, {**run_json(run), "policy_sha256": file_digest(policy)})
    if run.certificate is None:
        return
    evaluation = folder / "evaluation.parquet"
    if run.evaluation:
        write_evaluation(evaluation, run.evaluation)
    document = {
        **certificate_json(run.certificate),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "run_sha256": file_digest(folder / MARK),
        "policy_sha256": file_digest(policy),
        "evaluation_sha256": file_digest(evaluation) if run.evaluation else None,
    }
    _write_json(folder / "certificate.json", {**document, "sha256": _document_digest(document)})


def load_certificate(folder: str | Path) -> Certificate | None:
    """Certificate of a run directory, checked against the digests of the run's files; None if there is none.

    Raises:
        RunError: If the certificate was altered or belongs to other files.

    Examples:
        >>> from bettersafe.runs import load_certificate
        >>> load_certificate("run").evidence
        'theory'
    """
    check_path("folder", folder)
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
            raise RunError(f"{file} has no digest of {name}.")
        there = file_digest(beside) if beside.is_file() else None
        if there != digest:
            raise RunError(f"{beside} is not the file that {file.name} was made for: its digest is different.")
    return certificate


def load_run(path: str | Path) -> Run:
    """Read a run directory.

    Args:
        path: Directory that `save_run` wrote.

    Raises:
        RunError: If a file is missing or altered, or the decision does not follow from the files.

    Examples:
        >>> saved = bettersafe.load_run("run")
        >>> bool((saved.policy == run.policy).all())
        True
    """
    check_path("path", path)
    folder = Path(path)
    if not folder.exists():  # restores a folder whose replacement was interrupted by a killed process
        remove_leftovers(folder.parent, folder.name)
    file = folder / MARK
    if not file.is_file():
        what = (
            "is not a run directory: it has no run.json"
            if folder.exists()
            else "is not a run directory: it does not exist"
        )
        raise RunError(f"{folder} {what}. Give a directory that `save_run` wrote.")
    document = _read_json(file)
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise RunError(f"{file} has schema {schema!r}; this version of bettersafe reads {SCHEMA!r}.")
    head: _Head = from_json(_Head, document, "", str(file))
    info = info_from_json(document, str(file))
    try:
        actions = label_array(np.array(head.actions))
    except (TypeError, ValueError, BettersafeError) as error:
        raise RunError(f"{file} is not as it was saved: actions: {error}.") from None
    policy_file = folder / "policy.parquet"
    if not policy_file.is_file() or file_digest(policy_file) != head.policy_sha256:
        raise RunError(f"{policy_file} is not the file that this run was saved with.")
    saved = read_saved_policy(policy_file, actions)
    objectives = tuple(_objective(row, file) for row in head.objectives)
    returns = [
        np.array([user_sign(o, getattr(row, name)) for o, row in zip(objectives, head.objectives, strict=True)])
        for name in ("baseline_return", "proposal_return")
    ]
    evaluation = folder / "evaluation.parquet"
    run = Run(
        proposal=saved.proposal,
        baseline=saved.baseline,
        counts=saved.counts,
        state_labels=saved.state_labels,
        action_labels=actions,
        objectives=objectives,
        baseline_return=returns[0],
        proposal_return=returns[1],
        info=info,
        certificate=load_certificate(folder),
        evaluation=read_evaluation(evaluation) if evaluation.is_file() else (),
    )
    try:
        _check_objectives(run)
    except ParameterError as error:
        raise RunError(f"{folder / 'certificate.json'} does not belong to {file}: {error}") from None
    if head.decision.word != run.decision.word or not np.array_equal(saved.policy, run.policy):
        raise RunError(
            f"{file} has the decision {head.decision.word}, but {run.decision.word} follows from the other files. A file is missing"
            " or was altered: make the run again."
        )
    return run


@dataclass(frozen=True, kw_only=True)
class _Row:
    """Objective in run.json; returns have the sign of the log."""

    name: str
    discount: float
    weight: float
    lower_is_better: bool
    label: str | None
    unit: str
    reward_range: tuple[float, float] | None
    baseline_return: float
    proposal_return: float


@dataclass(frozen=True, kw_only=True)
class _Word:
    word: str


@dataclass(frozen=True, kw_only=True)
class _Head:
    """Fields of run.json besides the metadata."""

    decision: _Word
    objectives: tuple[_Row, ...]
    actions: tuple[Any, ...]
    policy_sha256: str


def _objective(row: _Row, file: Path) -> Objective:
    try:
        return Objective(**{field.name: getattr(row, field.name) for field in dataclasses.fields(Objective)})
    except BettersafeError as error:
        raise RunError(f"{file} is not as it was saved: {error}") from None


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise RunError(f"{file} can't be read: {error}") from None


def _write_json(file: Path, document: Json) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    with whole_file(file) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def _document_digest(document: Json) -> str:
    """Hexadecimal sha256 of a JSON document in canonical form."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
