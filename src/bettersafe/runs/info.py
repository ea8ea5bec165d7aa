"""What run.json says of a run besides its numbers by state: how it was made, from what, and which candidates there were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bettersafe._system.records import from_json, to_json
from bettersafe.errors import RunError
from bettersafe.logs.counts import Input

Outcome = Literal["chosen", "passed", "open", "failed"]


@dataclass(frozen=True, kw_only=True)
class DataInfo:
    """The log that a policy was made from.

    Attributes:
        path: As it was named.
        sha256: Of its files in sorted order.
        rows: Decisions.
        episodes: Episodes.
        inputs: For a file of counts: the logs that had been counted.
    """

    path: str
    sha256: str
    rows: int
    episodes: int
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CandidateInfo:
    """A policy that a method looked at on its way; gains are positive where it is better than the baseline.

    Attributes:
        name: In words.
        evidence: What it was judged by.
        gain: Estimated gain, length d.
        least: What the gain is at least, with probability 1 − ``level``, length d.
        level: δ_k.
        passed: Whether it passed.
        chosen: Whether it became the proposal.
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
        """What became of it."""
        return "chosen" if self.chosen else "passed" if self.passed else "failed"


@dataclass(frozen=True, kw_only=True)
class PosteriorCandidate(CandidateInfo):
    """A candidate of B-OPT.

    Attributes:
        p_safe: P(no objective loses more than ζ | data) under the neutral prior.
        error: Monte-Carlo standard error of ``p_safe``.
        p_objective: The same probability of each objective alone, length d.
        p_pessimistic: P(objective k does not lose | data) under the prior that is pessimistic for k, length d, NaN where it was
            not asked; empty without such priors.
        draws: Processes drawn; 0 by linearisation.
        open: Whether it neither passed nor failed, because a better one had passed before its last draw.
    """

    p_safe: float
    error: float
    p_objective: tuple[float, ...]
    p_pessimistic: tuple[float, ...]
    draws: int
    open: bool

    @property
    def outcome(self) -> Outcome:
        """What became of it."""
        return "open" if self.open and not self.chosen and not self.passed else super().outcome


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """How a run was made; sizes and moves are those of the proposal.

    Attributes:
        method: As it is called on the command line.
        status: What the method found, in one sentence.
        baseline_source: Where the baseline came from, in words.
        preference: λ, length d.
        epsilon: ε; infinite where the method has no budget.
        delta: δ.
        error_kind: The error function.
        unseen: What a pair that was never tried is worth.
        engine: What solved the programs.
        rounds: Rounds of policy iteration.
        converged: False where the cap on rounds came first.
        gap: Largest proven optimality gap.
        n_states: |X|.
        n_actions: |A|.
        n_pairs: Pairs that were tried.
        states_changed: States where the proposal differs from the baseline.
        states_kept: Labels of the states that could not be solved and keep what they had.
        mean_moved: Probability that goes to other actions, on average over the states.
        largest_moved: The same of the state where it is most.
        largest_budget_used: Σ_a e |π − π_b| of the state where it is most.
        data: What the proposal was made from.
        settings: The task, as JSON.
        notes: What the reader thought worth saying.
        seed: Of whatever was drawn.
        candidates: The policies that H-OPT or B-OPT looked at.
        created: When the run was made, in UTC.
        versions: Of the packages.
    """

    method: str
    status: str
    baseline_source: str
    preference: tuple[float, ...]
    epsilon: float
    delta: float
    error_kind: str
    unseen: str
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


def info_json(info: RunInfo) -> dict[str, Any]:
    """A run's info as fields of run.json."""
    return to_json(info)  # type: ignore[no-any-return]


def info_from_json(document: Mapping[str, Any], place: str) -> RunInfo:
    """Read what `info_json` wrote; ``place`` names the file in messages.

    Raises:
        RunError: A field is missing or has another type; the message names it.
    """
    rows = from_json(tuple[Any, ...], document.get("candidates", []), "candidates", place)
    found = tuple(_candidate(row, f"candidates[{i}]", place) for i, row in enumerate(rows))
    info: RunInfo = from_json(RunInfo, {**document, "candidates": []}, "", place)
    d = len(info.preference)
    for i, candidate in enumerate(found):
        if not len(candidate.gain) == len(candidate.least) == d:
            raise RunError(
                f"{place} is not as it was saved: candidates[{i}] has gains of {len(candidate.gain)} objectives; there are {d}."
            )
    return replace(info, candidates=found)


def _candidate(row: Any, name: str, place: str) -> CandidateInfo:
    believed = isinstance(row, dict) and row.get("evidence") == "posterior"
    found: CandidateInfo = from_json(PosteriorCandidate if believed else CandidateInfo, row, name, place)
    return found
