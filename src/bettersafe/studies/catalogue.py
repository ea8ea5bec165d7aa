"""Which studies there are: an id, one line about it, and how to make its experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bettersafe.errors import ParameterError, did_you_mean
from bettersafe.studies import gridworld

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bettersafe.studies.sweep import Study


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A study of the catalogue.

    Attributes:
        about: One line.
        full: How many repetitions (CMDPs, cohorts) the full study has.
        unit: What is repeated.
        make: (repetitions or None, seed) -> Study.
    """

    about: str
    full: int
    unit: str
    make: Callable[[int | None, int], Study]


def _gridworld(study_id: str) -> Entry:
    plan = gridworld.PLANS[study_id]
    return Entry(
        about=plan.about,
        full=plan.cmdps,
        unit="CMDPs",
        make=lambda n, seed: gridworld.gridworld_study(study_id, cmdps=n, seed=seed),
    )


CATALOGUE: Mapping[str, Entry] = {study_id: _gridworld(study_id) for study_id in gridworld.PLANS}


def find_study(study_id: str) -> Entry:
    """The entry of that id; an error names the nearest."""
    if study_id not in CATALOGUE:
        raise ParameterError(
            f"there is no study {study_id!r}; there are {', '.join(CATALOGUE)}.{did_you_mean(study_id, CATALOGUE)}"
        )
    return CATALOGUE[study_id]
