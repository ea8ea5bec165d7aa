"""Which studies there are: an id, one line about it, and how to make its experiments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bettersafe.errors import ParameterError, did_you_mean
from bettersafe.studies import garnet, gridworld, sepsis

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
        options: The options that it takes beside the seed, the number of repetitions first.
        needs: Those of them that must be given, and what each is.
        make: (seed, **options) -> Study.
    """

    about: str
    full: int
    unit: str
    options: tuple[str, ...]
    make: Callable[..., Study]
    needs: Mapping[str, str] = field(default_factory=dict)


def _gridworld(study_id: str) -> Entry:
    plan = gridworld.PLANS[study_id]
    return Entry(
        about=plan.about,
        full=plan.cmdps,
        unit="CMDPs",
        options=("cmdps", "delta") if plan.has_b_opt else ("cmdps",),
        make=lambda seed, **options: gridworld.gridworld_study(study_id, seed=seed, **options),
    )


def _icu(study_id: str) -> Entry:
    return Entry(
        about=sepsis.ABOUT[study_id],
        full=sepsis.SEEDS,
        unit="seeds",
        options=("seeds", "patients", *sepsis.CHOICES, "without"),
        make=lambda seed, **options: sepsis.sepsis_study(study_id, seed=seed, **options),
    )


CATALOGUE: Mapping[str, Entry] = {
    **{study_id: _gridworld(study_id) for study_id in gridworld.PLANS},
    garnet.STUDY: Entry(
        about=garnet.ABOUT,
        full=garnet.WORLDS,
        unit="worlds",
        options=("worlds", "delta"),
        make=lambda seed, **options: garnet.garnet_study(seed=seed, **options),
    ),
    **{study_id: _icu(study_id) for study_id in sepsis.SETTINGS},
    "sepsis/mimic": Entry(
        about=sepsis.ABOUT["sepsis/mimic"],
        full=sepsis.SEEDS,
        unit="splits",
        options=("seeds", "data", "preset", "unseen", "without"),
        needs={"data": "a folder that 'bettersafe sepsis prepare' wrote"},
        make=lambda seed, data, **options: sepsis.mimic_study(data, seed=seed, **options),
    ),
}


def find_study(study_id: str) -> Entry:
    """The entry of that id; an error names the nearest."""
    if study_id not in CATALOGUE:
        raise ParameterError(
            f"there is no study {study_id!r}; there are {', '.join(CATALOGUE)}.{did_you_mean(study_id, CATALOGUE)}"
        )
    return CATALOGUE[study_id]


def make_study(study_id: str, *, seed: int = 0, **options: Any) -> Study:
    """The experiments of the study of that id.

    Args:
        study_id: Of `CATALOGUE`.
        seed: Draws everything.
        options: Those that the entry takes; None is as if left out.

    Raises:
        ParameterError: When there is no such study, or an option is not one of its options, or one is missing.
    """
    entry = find_study(study_id)
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in entry.options:
            raise ParameterError(
                f"--{name} does not belong to the study {study_id}, which takes"
                f" {', '.join(f'--{option}' for option in entry.options)}. Leave it out."
            )
    for name in entry.needs:
        if name not in given:
            raise ParameterError(f"the study {study_id} needs --{name}, {entry.needs[name]}.")
    return entry.make(seed, **given)
