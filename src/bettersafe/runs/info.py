"""Metadata of a run in run.json: method, settings, data and candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from bettersafe._system.records import from_json, to_json
from bettersafe.errors import RunError
from bettersafe.logs.counts import Input
from bettersafe.mdp.choices import Unseen

if TYPE_CHECKING:
    from bettersafe.typing import Json

Outcome = Literal["chosen", "passed", "open", "failed"]

ESTIMATED = "estimated from the data"
"""Origin of a baseline that was not known."""


@dataclass(frozen=True, kw_only=True)
class DataInfo:
    """Log from which a policy was made.

    Attributes:
        path: Path as the user gave it.
        sha256: Digest of the files in sorted order.
        rows: Number of decisions.
        episodes: Number of episodes.
        truncated: Number of episodes that are cut off before their end.
        inputs: For a counts file: the logs that were counted.
    """

    path: str
    sha256: str
    rows: int
    episodes: int
    truncated: int = 0
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CandidateInfo:
    """Candidate policy of a method; a positive gain means better than the baseline.

    Attributes:
        name: Description of the candidate.
        evidence: Kind of evidence.
        gain: Estimated gain, length d.
        least: Lower bound on the gain, with probability 1 − ``level``, length d.
        level: δ_k.
        passed: Whether the candidate passed.
        chosen: Whether the candidate became the proposal.
    """

    name: str
    evidence: Literal["safety-test", "posterior"]
    gain: tuple[float, ...]
    least: tuple[float, ...]
    level: float
    passed: bool
    chosen: bool

    @property
    def outcome(self) -> Outcome:
        """Outcome of the candidate."""
        return "chosen" if self.chosen else "passed" if self.passed else "failed"


@dataclass(frozen=True, kw_only=True)
class PosteriorCandidate(CandidateInfo):
    """Candidate of B-OPT.

    Attributes:
        p_safe: P(no objective loses more than ζ | data) under the neutral prior.
        error: Monte-Carlo standard error of ``p_safe``.
        p_objective: P(objective k does not lose more than ζ_k | data) under the neutral prior, length d.
        p_pessimistic: P(objective k does not lose more than ζ_k | data) under the prior that is pessimistic for k, length d, NaN
            if not computed; empty without pessimistic priors.
        draws: Processes drawn; 0 with linearisation.
        open: Whether the candidate neither passed nor failed, because a better one passed before its draws were complete.
    """

    p_safe: float
    error: float
    p_objective: tuple[float, ...]
    p_pessimistic: tuple[float, ...]
    draws: int
    open: bool

    @property
    def outcome(self) -> Outcome:
        """Outcome of the candidate."""
        return "open" if self.open and not self.chosen and not self.passed else super().outcome


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """Metadata of a run; sizes and changes are those of the proposal.

    Attributes:
        method: Name of the method on the command line.
        status: Result of the method in one sentence.
        baseline_source: Origin of the baseline, in words.
        preference: λ, length d.
        epsilon: ε; infinite if the method has no budget.
        delta: δ.
        error_kind: Name of the error function.
        unseen: Treatment of (state, action) pairs without data.
        engine: Solver of the per-state programs.
        rounds: Rounds of policy iteration.
        converged: False if the limit on rounds was reached first.
        gap: Largest proven optimality gap.
        n_states: |X| of the model; a baseline file may have more states.
        n_actions: |A| of the model.
        n_pairs: Number of (state, action) pairs with data.
        states_changed: Number of states in which the proposal differs from the baseline.
        states_kept: Labels of the states that could not be solved and keep their previous row.
        mean_moved: Probability moved to other actions, mean over the states.
        largest_moved: Probability moved to other actions, maximum over the states.
        largest_budget_used: Σ_a e |π − π_b|, maximum over the states.
        data: Log from which the proposal was made.
        settings: Settings of the task, as JSON.
        notes: Notes of the reader on the log.
        seed: Seed of the random draws.
        candidates: Candidates of H-OPT or B-OPT.
        created: Time at which the run was made, in UTC.
        versions: Versions of the packages.
    """

    method: str
    status: str
    baseline_source: str
    preference: tuple[float, ...]
    epsilon: float
    delta: float
    error_kind: str
    unseen: Unseen
    engine: str
    rounds: int
    converged: bool
    gap: float
    n_states: int
    n_actions: int
    n_pairs: int
    states_changed: int
    states_kept: tuple[str, ...]
    mean_moved: float
    largest_moved: float
    largest_budget_used: float
    data: DataInfo
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    seed: int | None = None
    candidates: tuple[CandidateInfo, ...] = ()
    created: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def horizon(self) -> int | None:
        """Number of steps of all returns; None for no limit."""
        found: int | None = self.settings.get("horizon")
        return found


def info_json(info: RunInfo) -> Json:
    """Fields of run.json for the metadata of a run."""
    return to_json(info)  # type: ignore[no-any-return]


def info_from_json(document: Mapping[str, Any], place: str) -> RunInfo:
    """Metadata from the fields of `info_json`; ``place`` names the file in messages.

    Raises:
        RunError: If a field is missing or has the wrong type.
    """
    rows = from_json(tuple[Any, ...], document.get("candidates", []), "candidates", place)
    found = tuple(_candidate(row, f"candidates[{i}]", place) for i, row in enumerate(rows))
    info: RunInfo = from_json(RunInfo, {**document, "candidates": []}, "", place)
    d = len(info.preference)
    for i, candidate in enumerate(found):
        if not len(candidate.gain) == len(candidate.least) == d:
            raise RunError(
                f"{place} is not as it was saved: candidates[{i}] has gains of {len(candidate.gain)} objectives; expected {d}."
            )
    return replace(info, candidates=found)


def _candidate(row: Any, name: str, place: str) -> CandidateInfo:
    has_posterior = isinstance(row, dict) and row.get("evidence") == "posterior"
    found: CandidateInfo = from_json(PosteriorCandidate if has_posterior else CandidateInfo, row, name, place)
    return found
