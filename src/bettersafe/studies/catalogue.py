"""The catalogue of studies: id, description, experiments, figures and tables of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bettersafe.errors import ParameterError, as_kind, check_type, did_you_mean
from bettersafe.studies.garnet import plan as garnet
from bettersafe.studies.garnet.figures import draw_garnet
from bettersafe.studies.garnet.tables import garnet_summary, garnet_tables
from bettersafe.studies.gauntlet import plan as gauntlet
from bettersafe.studies.gauntlet.figures import draw_gauntlet
from bettersafe.studies.gauntlet.summary import gauntlet_summary
from bettersafe.studies.gauntlet.tables import gauntlet_tables
from bettersafe.studies.gridworld import plan as gridworld
from bettersafe.studies.gridworld.figures import draw_gridworld
from bettersafe.studies.gridworld.tables import gridworld_summary, gridworld_tables
from bettersafe.studies.sepsis import plan as sepsis
from bettersafe.studies.sepsis.figures import draw_sepsis
from bettersafe.studies.sepsis.tables import sepsis_summary, sepsis_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from matplotlib.figure import Figure

    from bettersafe.studies.sweep import Study


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A study of the catalogue.

    Attributes:
        about: One-line description.
        full: Number of repetitions (CMDPs, cohorts) in the full study.
        unit: Name of a repetition, in the plural.
        repeated: Name of the setting that numbers the repetitions.
        options: Names of its options besides the seed; the first is the number of repetitions.
        make: (seed, **options) -> Study.
        draw: (rows, note) -> figures by name; the note is added to the subtitles.
        tables: (rows, note) -> tables as a Markdown page; the note is a sentence at its top.
        summary: rows -> summary table for summary.csv.
        needs: Required options, each with its description.
    """

    about: str
    full: int
    unit: str
    repeated: str
    options: tuple[str, ...]
    make: Callable[..., Study]
    draw: Callable[[pa.Table, str], dict[str, Figure]]
    tables: Callable[[pa.Table, str], str]
    summary: Callable[[pa.Table], pa.Table]
    needs: Mapping[str, str] = field(default_factory=dict)


def _gridworld(study_id: str) -> Entry:
    plan = gridworld.PLANS[study_id]
    return Entry(
        about=plan.about,
        full=plan.cmdps,
        unit="CMDPs",
        repeated="cmdp",
        options=("cmdps", "delta"),
        make=lambda seed, **options: gridworld.gridworld_study(study_id, seed=seed, **options),
        draw=lambda rows, note: draw_gridworld(rows, study_id, note=note),
        tables=lambda rows, note: gridworld_tables(rows, study_id, note=note),
        summary=lambda rows: gridworld_summary(rows, study_id),
    )


def _sepsis(study_id: str, unit: str, options: tuple[str, ...], make: Callable[..., Study], **more: Any) -> Entry:
    return Entry(
        about=sepsis.ABOUT[study_id],
        full=sepsis.SEEDS,
        unit=unit,
        repeated="repetition",
        options=options,
        make=make,
        draw=lambda rows, note: draw_sepsis(rows, study_id, note=note),
        tables=lambda rows, note: sepsis_tables(rows, study_id, note=note),
        summary=sepsis_summary,
        **more,
    )


def _icu(study_id: str) -> Entry:
    return _sepsis(
        study_id,
        "seeds",
        ("seeds", "patients", *sepsis.CHOICES, "without"),
        lambda seed, **options: sepsis.sepsis_study(study_id, seed=seed, **options),
    )


CATALOGUE: Mapping[str, Entry] = {
    **{study_id: _gridworld(study_id) for study_id in gridworld.PLANS},
    garnet.STUDY: Entry(
        about=garnet.ABOUT,
        full=garnet.WORLDS,
        unit="worlds",
        repeated="cmdp",
        options=("worlds", "delta"),
        make=lambda seed, **options: garnet.garnet_study(seed=seed, **options),
        draw=lambda rows, note: draw_garnet(rows, note=note),
        tables=lambda rows, note: garnet_tables(rows, note=note),
        summary=garnet_summary,
    ),
    gauntlet.STUDY: Entry(
        about=gauntlet.ABOUT,
        full=gauntlet.WORLDS,
        unit="worlds",
        repeated="log",
        options=("worlds", "delta", "half", "kinds"),
        make=lambda seed, **options: gauntlet.gauntlet_study(seed=seed, **options),
        draw=lambda rows, note: draw_gauntlet(rows, note=note),
        tables=lambda rows, note: gauntlet_tables(rows, note=note),
        summary=gauntlet_summary,
    ),
    **{study_id: _icu(study_id) for study_id in sepsis.SETTINGS},
    "sepsis/mimic": _sepsis(
        "sepsis/mimic",
        "splits",
        ("seeds", "data", "preset", "unseen", "without"),
        lambda seed, data, **options: sepsis.mimic_study(data, seed=seed, **options),
        needs={"data": "a folder that `prepare_mimic` wrote"},
    ),
}


def find_study(study_id: str) -> Entry:
    """The catalogue entry of a study. The error for an unknown id suggests the closest one.

    Args:
        study_id: A key of `CATALOGUE`.

    Examples:
        >>> from bettersafe.studies import find_study
        >>> find_study("gridworld/fixed").unit
        'CMDPs'
    """
    check_type("study_id", study_id, str)
    if study_id not in CATALOGUE:
        raise ParameterError(
            f"there is no study {study_id!r}; there are {', '.join(CATALOGUE)}.{did_you_mean(study_id, CATALOGUE)}"
        )
    return CATALOGUE[study_id]


def make_study(study_id: str, *, seed: int = 0, **options: Any) -> Study:
    """Make a study of the catalogue.

    Args:
        study_id: A key of `CATALOGUE`.
        seed: Seed of all random draws.
        options: Options of the entry; None means the default.

    Raises:
        ParameterError: If the study or an option does not exist, or a required option is missing.

    Examples:
        >>> from bettersafe.studies import make_study
        >>> len(make_study("garnet/bopt", worlds=2).jobs)
        8
    """
    entry = find_study(study_id)
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in entry.options:
            raise ParameterError(
                f"`{name}` does not belong to the study {study_id}, which takes"
                f" {', '.join(f'`{option}`' for option in entry.options)}. Leave it out."
            )
    for name in entry.needs:
        if name not in given:
            raise ParameterError(f"the study {study_id} needs `{name}`, {entry.needs[name]}.")
    for name in {"cmdps", "worlds", "seeds", "patients"} & given.keys():
        given[name] = as_kind(name, given[name], "whole number", setting=name)
    for name in {"half", "kinds"} & given.keys():
        given[name] = as_kind(name, given[name], "text", setting=name)
    return entry.make(seed, **given)
