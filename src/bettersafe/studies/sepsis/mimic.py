"""Data of the sepsis study on MIMIC-III: logs and a discretizer from the two tables of the public cohort.

This requires access to MIMIC-III. The public cohort step (Komorowski et al. 2018; Tang et al. 2020) writes
``sepsis_mimiciii.csv``, one row per stay in intensive care, and ``MIMICtable.csv``, one row per imputed block of four hours
with 59 columns. `prepare_mimic` processes them like the published code of the S-OPT paper:

    action     5·iv + vaso. Vasopressor: 0 for none, otherwise the quartile of the non-zero ``max_dose_vaso``. Fluid: 0 for
               none, otherwise ``input_4hourly`` cut at 500, 1000, 2000 mL (published code) or at its quartiles (paper)
    reward     0; in the last row of a stay +100 for survival, −100 for death in hospital
    parts      0.7 / 0.1 / 0.2 of the stays for training, validation, test
    state      the nearest of 750 k-means centres of 48 standardised features, fitted on the training part

The paper's tables are over ten splits, which `prepare_splits` writes, each with its own states. Episodes are stays, labelled by
their ``icustayid``. Missing blocks within a stay are skipped. The 90-day mortality is read only on request. This is not medical
advice.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from bettersafe._system.files import check_free, file_digest, versions, whole_folder
from bettersafe.envs.icu_sepsis import DISCOUNT, N_ACTIONS, RETURN_OF_DEATH, RETURN_OF_SURVIVAL
from bettersafe.errors import DataError, ParameterError, RunError, check_choice
from bettersafe.logs._reader.files import data_digest
from bettersafe.logs.dataset import Dataset, Objective, in_vocabulary, take_episodes, write_dataset
from bettersafe.logs.discretize import (
    assign_states,
    explained_share,
    fit_discretizer,
    load_discretizer,
    save_discretizer,
)
from bettersafe.logs.source import read_dataset
from bettersafe.studies.sepsis.mimic_tables import FEATURES, Blocks, Outcome, read_blocks
from bettersafe.typing import Event, ignore

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from bettersafe.logs.discretize import Discretizer
    from bettersafe.typing import Floats, Ints, Json, Progress

SCHEMA = "mimic/1"
PREPARED = "prepare.json"
SPLIT = "split-"
PARTS = ("train", "valid", "test")
IvBins = Literal["clinical", "quartile"]
CLINICAL_CUTS = (500.0, 1000.0, 2000.0)
EXPECTED = {"stays": 20_954, "rows": 278_576, "survived": 18_066, "died": 2_888}
"""Sizes of the paper's cohort; a different cohort is accepted with a note."""

RANDOM_STATE = 0
"""Seed of k-means; independent of the seed of the split, as published."""


HOURS = 4
"""Hours of a block."""

DAYS_PER_YEAR = 365.25


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A prepared cohort, as returned by `load_mimic`; all parts have the states 0 to k−1 and all 25 actions."""

    train: Dataset
    valid: Dataset
    test: Dataset
    discretizer: Discretizer
    info: Json


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Settings of the preparation of a cohort.

    Attributes:
        k: Number of states.
        iv_bins: "clinical" cuts fluid at 500, 1000 and 2000 mL (published code), "quartile" at its quartiles (paper).
        outcome: The outcome column.
        seed: Seed of the split by stay.
        split: Shares of stays for training, validation and test; the first two parts are rounded down.
        quick: Use mini-batch k-means with a single start.
        n_init: Number of starts of the full k-means.
    """

    k: int = 750
    iv_bins: IvBins = "clinical"
    outcome: Outcome = "died_in_hosp"
    seed: int = 0
    split: tuple[float, float, float] = (0.7, 0.1, 0.2)
    quick: bool = False
    n_init: int = 10

    def __post_init__(self) -> None:
        check_choice("iv_bins", self.iv_bins, get_args(IvBins))
        check_choice("outcome", self.outcome, get_args(Outcome))
        shares = np.asarray(self.split, dtype=np.float64)
        if shares.shape != (3,) or not np.all(shares > 0.0) or not np.isclose(shares.sum(), 1.0):
            raise ParameterError(f"split must be three positive shares that sum to 1; got {shares.tolist()}.")

    @property
    def settings(self) -> Json:
        """The settings as stored in ``prepare.json``."""
        return {
            "k": self.k,
            "iv_bins": self.iv_bins,
            "outcome": self.outcome,
            "seed": self.seed,
            "split": list(map(float, self.split)),
            "quick": self.quick,
            "n_init": 1 if self.quick else self.n_init,
            "random_state": RANDOM_STATE,
        }


def prepare_mimic(
    cohort_csv: str | os.PathLike[str],
    table_csv: str | os.PathLike[str],
    out: str | os.PathLike[str],
    how: Preparation | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> Json:
    """Check the two tables of the cohort, and write logs with discrete states and the discretizer.

    Args:
        cohort_csv: ``sepsis_mimiciii.csv``: the stays of the cohort.
        table_csv: ``MIMICtable.csv``: four-hour blocks, 59 columns.
        out: Output folder, with ``train.parquet``, ``valid.parquet``, ``test.parquet``, ``discretizer.parquet`` and
            ``prepare.json``.
        how: The settings; default as published.
        force: Replace an existing result.
        progress: Called at every step.

    Returns:
        Content of ``prepare.json``.
    """
    settings = (how or Preparation()).settings
    say = progress or ignore
    with whole_folder(out, mark=PREPARED, force=force) as folder:
        say(Event(what="Reading the stays and their blocks"))
        cohort = _Cohort.read(cohort_csv, table_csv, settings)
        return _write_split(cohort, _digests(cohort_csv, table_csv), settings, folder, say)


def prepare_splits(
    cohort_csv: str | os.PathLike[str],
    table_csv: str | os.PathLike[str],
    out: str | os.PathLike[str],
    how: Preparation | None = None,
    *,
    splits: int = 10,
    force: bool = False,
    progress: Progress | None = None,
) -> list[Json]:
    """Prepare several splits of one cohort, each with its own discretizer, as ``out/split-00``, ``out/split-01``, …

    Existing splits of the same files with the same settings are kept, so an interrupted call can be repeated.

    Args:
        cohort_csv: ``sepsis_mimiciii.csv``.
        table_csv: ``MIMICtable.csv``.
        out: Output folder of the splits.
        how: The settings; default as published. The seed is that of the first split; it increases by 1 for each further split.
        splits: Number of splits; the paper has ten.
        force: Replace existing splits.
        progress: Called at every step.

    Returns:
        Content of each ``prepare.json``, in the order of the splits.
    """
    if splits < 1:
        raise ParameterError(f"splits must be 1 or more; got {splits}.")
    place = Path(out)
    if (place / PREPARED).exists():
        raise RunError(f"{place} is a single prepared split; choose another folder for {splits} splits.")
    first = how or Preparation()
    settings = [replace(first, seed=first.seed + i).settings for i in range(splits)]
    say = progress or ignore
    inputs = _digests(cohort_csv, table_csv)
    found: dict[int, Json] = {}
    for i, wanted in enumerate(settings):
        folder = place / split_name(i)
        if not force and (folder / PREPARED).is_file():
            there = read_prepared(folder)
            other = _differences(there, wanted, inputs)
            if not other:
                found[i] = there
                continue
            raise RunError(
                f"{folder} was prepared differently: {'; '.join(other)}. Give the same settings and files, choose another name,"
                " or replace it with `force`."
            )
        check_free(folder, mark=PREPARED, force=force)
    if len(found) < splits:
        say(Event(what="Reading the stays and their blocks"))
        cohort = _Cohort.read(cohort_csv, table_csv, settings[0])
    for i in sorted(set(range(splits)) - set(found)):
        with whole_folder(place / split_name(i), mark=PREPARED, force=force) as work:
            found[i] = _write_split(
                cohort,
                inputs,
                settings[i],
                work,
                lambda event, i=i: say(replace(event, what=f"Split {i + 1} of {splits}: {event.what}")),  # type: ignore[misc]
            )
    return [found[i] for i in range(splits)]


def split_name(i: int) -> str:
    """Folder name of the i-th split."""
    return f"{SPLIT}{i:02d}"


def find_splits(folders: Sequence[str | os.PathLike[str]]) -> list[tuple[Path, Json]]:
    """Find the prepared splits in ``folders``, each with its ``prepare.json``; raise unless they are splits of one cohort.

    Args:
        folders: Folders written by `prepare_mimic` or `prepare_splits`. Seeds must differ; input files and all other settings
            must be the same.
    """
    places: list[Path] = []
    for folder in map(Path, folders):
        inside = sorted(folder.glob(f"{SPLIT}*"), key=lambda path: (len(path.name), path.name))
        places += inside if inside and not (folder / PREPARED).exists() else [folder]
    found: list[tuple[Path, Json]] = []
    for place in places:
        if any(place.resolve() == other.resolve() for other, _ in found):
            raise ParameterError(f"{place} is given twice. Give each prepared split once.")
        found.append((place, read_prepared(place)))
    first, own = found[0]
    seeds: dict[int, Path] = {}
    for place, info in found:
        for name, there, here in _comparable(own, info):
            if there != here:
                raise ParameterError(
                    f"splits must have the same cohort and settings; {name} is {here} in {place} and {there} in {first}."
                    " Prepare them together, with `prepare_splits`."
                )
        drawn = info["settings"]["seed"]
        if drawn in seeds:
            raise ParameterError(
                f"{place} and {seeds[drawn]} have the same seed {drawn}. Prepare one with another `seed`."
            )
        seeds[drawn] = place
    return found


def read_prepared(folder: str | os.PathLike[str]) -> Json:
    """Read ``prepare.json`` of a prepared split, and check that no file has changed."""
    place = Path(folder)
    file = place / PREPARED
    if not file.is_file():
        lacks = f"it has no {PREPARED}" if place.is_dir() else "there is no such folder"
        raise RunError(f"{place} is not a prepared cohort: {lacks}. Make one with `prepare_mimic`.")
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
        schema = info.get("schema")
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(f"{file} can't be read: {error}. Prepare the cohort again.") from None
    if schema != SCHEMA:
        raise RunError(
            f"{file} has schema {schema!r}; this version of bettersafe reads {SCHEMA!r}. Prepare the cohort again."
        )
    try:
        digests = {f"{name}.parquet": info["parts"][name]["sha256"] for name in PARTS}
        digests["discretizer.parquet"] = info["discretizer_sha256"]
        complete = "seed" in info["settings"] and all("sha256" in info["inputs"][name] for name in ("cohort", "table"))
    except (KeyError, TypeError):
        complete = False
    if not complete:
        raise RunError(f"{file} is not complete. Prepare the cohort again.")
    for name, digest in digests.items():
        if not (place / name).is_file() or file_digest(place / name) != digest:
            raise RunError(f"{place / name} does not match {PREPARED}. Prepare the cohort again.")
    return info  # type: ignore[no-any-return]


def load_mimic(folder: str | os.PathLike[str]) -> Prepared:
    """Read a prepared split, and check that no file has changed."""
    place = Path(folder)
    info = read_prepared(place)
    discretizer = load_discretizer(place / "discretizer.parquet")
    states = np.arange(discretizer.n_states)
    parts = {
        name: in_vocabulary(read_dataset(place / f"{name}.parquet", objectives=[_objective()]), states, action_labels())
        for name in PARTS
    }
    return Prepared(**parts, discretizer=discretizer, info=info)


def action_labels() -> Any:
    """Labels of the 25 treatments as in ICU-Sepsis, "iv0/vaso0" to "iv4/vaso4", shape [25]."""
    return np.array([f"iv{a // 5}/vaso{a % 5}" for a in range(N_ACTIONS)])


# Preparing


@dataclass(frozen=True, kw_only=True)
class _Cohort:
    """The cohort before splitting.

    Attributes:
        blocks: N rows, sorted by stay and block.
        episodes: The stays, shape [n].
        ptr: First row of each stay, and N, shape [n + 1].
        bins: Dose bins of "vaso" and "iv" in every row, shape [N].
        cuts: Boundaries between the bins.
    """

    blocks: Blocks
    episodes: Ints
    ptr: Ints
    bins: dict[str, Ints]
    cuts: dict[str, list[float]]

    @classmethod
    def read(cls, cohort_csv: str | os.PathLike[str], table_csv: str | os.PathLike[str], settings: Json) -> _Cohort:
        blocks = read_blocks(cohort_csv, table_csv, outcome=settings["outcome"])
        vaso, vaso_cuts = _dose_bins(blocks.vaso, None, "max_dose_vaso")
        fixed = CLINICAL_CUTS if settings["iv_bins"] == "clinical" else None
        iv, iv_cuts = _dose_bins(blocks.iv, fixed, "input_4hourly")
        episodes, starts = np.unique(blocks.stay, return_index=True)
        return cls(
            blocks=blocks,
            episodes=episodes,
            ptr=np.append(starts, blocks.stay.size),
            bins={"vaso": vaso, "iv": iv},
            cuts={"vaso": vaso_cuts, "iv": iv_cuts},
        )

    def counts(self) -> dict[str, int]:
        deaths = int(np.count_nonzero(self.blocks.died[self.ptr[1:] - 1]))
        return {
            "stays": int(self.episodes.size),
            "rows": int(self.blocks.stay.size),
            "survived": int(self.episodes.size) - deaths,
            "died": deaths,
            "stays_without_rows": self.blocks.stays_without_rows,
            "rows_of_other_stays": self.blocks.rows_of_other_stays,
        }

    def statistics(self) -> dict[str, dict[str, float | None]]:
        """The paper's cohort statistics of survivors and non-survivors: stays, % female, mean age in years, mean hours.

        Columns are those of the published tables: gender 1 is female, age is in days, and a stay has four hours per block.
        """
        names = [name for name, _ in FEATURES]
        first = self.ptr[:-1]
        female, age = (self.blocks.features[first, names.index(name)] for name in ("gender", "age"))
        hours = HOURS * np.diff(self.ptr)
        died = self.blocks.died[self.ptr[1:] - 1]
        return {
            group: {
                "stays": int(np.count_nonzero(rows)),
                "female": _mean(100.0 * female[rows]),
                "age": _mean(age[rows] / DAYS_PER_YEAR),
                "hours": _mean(hours[rows]),
            }
            for group, rows in (("survivors", ~died), ("non-survivors", died))
        }


def _digests(cohort_csv: str | os.PathLike[str], table_csv: str | os.PathLike[str]) -> dict[str, dict[str, str]]:
    """Names and SHA-256 of the two files."""
    return {
        key: {"name": Path(path).name, "sha256": data_digest(path)}
        for key, path in (("cohort", cohort_csv), ("table", table_csv))
    }


def _differences(there: Json, settings: Json, inputs: dict[str, dict[str, str]]) -> list[str]:
    """Differences between a prepared split and the current settings and files; file names are ignored."""
    old = there["settings"]
    other = [f"{name} was {old.get(name)}, is {value}" for name, value in settings.items() if old.get(name) != value]
    changed = [key for key, file in inputs.items() if there["inputs"][key]["sha256"] != file["sha256"]]
    return [*other, *(f"the {key} file has other contents" for key in changed)]


def _comparable(one: Json, other: Json) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, value in ``one``, value in ``other``) for everything that the splits of a study must share."""
    for name in one["settings"]:
        if name != "seed":
            yield name, one["settings"][name], other["settings"].get(name)
    for name in one["inputs"]:
        yield f"the {name} file's sha256", one["inputs"][name]["sha256"][:12], other["inputs"][name]["sha256"][:12]


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if values.size else None


def _write_split(
    cohort: _Cohort,
    inputs: dict[str, dict[str, str]],
    settings: Json,
    folder: Path,
    say: Progress,
) -> Json:
    """Draw the parts, fit the states on the training part, and write all files; return the content of ``prepare.json``."""
    k, ptr, features, died = settings["k"], cohort.ptr, cohort.blocks.features, cohort.blocks.died
    chosen = draw_parts(cohort.episodes.size, np.array(settings["split"]), np.random.default_rng(settings["seed"]))
    rows = {name: np.repeat(part, np.diff(ptr)) for name, part in chosen.items()}
    training = features[rows["train"]]
    starts = "" if settings["quick"] else f", {settings['n_init']} starts"
    say(Event(what=f"Finding {k:,} states in {training.shape[0]:,} rows{starts}"))
    discretizer = fit_discretizer(
        training,
        features=FEATURES,
        k=k,
        rng=RANDOM_STATE,
        quick=settings["quick"],
        n_init=settings["n_init"],
    )
    say(Event(what="Writing"))
    states = assign_states(discretizer, features)
    whole = _dataset(states, 5 * cohort.bins["iv"] + cohort.bins["vaso"], died, cohort.episodes, ptr, k)
    parts = {}
    for name, part in chosen.items():
        write_dataset(take_episodes(whole, np.flatnonzero(part)), folder / f"{name}.parquet")
        last = ptr[1:][part] - 1
        explained = explained_share(discretizer, features[rows[name]], states[rows[name]])
        parts[name] = {
            "stays": int(last.size),
            "rows": int(np.count_nonzero(rows[name])),
            "died": int(np.count_nonzero(died[last])),
            "states": int(np.unique(states[rows[name]]).size),
            "explained": explained if math.isfinite(explained) else None,
            "sha256": file_digest(folder / f"{name}.parquet"),
        }
    save_discretizer(discretizer, folder / "discretizer.parquet")
    counts = cohort.counts()
    filled = {name: np.bincount(bins, minlength=5).tolist() for name, bins in cohort.bins.items()}
    document = {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {**versions(), "scikit-learn": version("scikit-learn")},
        "settings": settings,
        "inputs": inputs,
        "cuts": cohort.cuts,
        "bins": filled,
        "counts": counts,
        "statistics": cohort.statistics(),
        "parts": parts,
        "discretizer_sha256": file_digest(folder / "discretizer.parquet"),
        "notes": _notes(counts, filled, settings["outcome"]),
    }
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / PREPARED).write_text(text + "\n", encoding="utf-8")
    return document


# Steps of the published code


def _dose_bins(dose: Floats, cuts: tuple[float, ...] | None, name: str) -> tuple[Ints, list[float]]:
    """Bin of every dose (0 for no dose, otherwise 1 + the number of cuts at or below it), and the cuts.

    By default the cuts are the quartiles of the non-zero doses: (0, q1), [q1, q2), [q2, q3), [q3, ∞).
    """
    given = dose > 0.0
    if cuts is None:
        if not np.any(given):
            raise DataError(f"{name} is 0 in every row, so its non-zero doses have no quartiles. Check the column.")
        cuts = tuple(np.quantile(dose[given], (0.25, 0.5, 0.75)).tolist())
    return np.where(given, 1 + np.searchsorted(cuts, dose, side="right"), 0).astype(np.int64), list(cuts)


def draw_parts(n: int, shares: Floats, rng: np.random.Generator) -> Json:
    """Draw the part of each of n stays, bool [n] per part. The first parts are rounded down, the last has the rest.

    The paper's 20,954 stays split into 14,667 for training, 2,095 for validation and 4,192 for test.
    """
    sizes = np.floor(shares[:-1] * n + 1e-9).astype(np.int64)  # in floats, 0.29 · 100 is slightly less than 29
    parts = np.split(rng.permutation(n), np.cumsum(sizes))
    for name, part in zip(PARTS, parts, strict=True):
        if not part.size:
            raise DataError(f"{n} stays are too few: the {name} part would be empty. Use more, or split differently.")
    return {name: np.isin(np.arange(n), part) for name, part in zip(PARTS, parts, strict=True)}


def _dataset(states: Ints, actions: Ints, died: Any, episodes: Ints, ptr: Ints, k: int) -> Dataset:
    """All stays as one log; the reward in the last row of a stay is its outcome."""
    last = np.zeros(states.size, dtype=np.bool_)
    last[ptr[1:] - 1] = True
    reward = np.where(last, np.where(died, RETURN_OF_DEATH, RETURN_OF_SURVIVAL), 0.0)
    return Dataset(
        states=states,
        actions=actions,
        rewards=reward[:, None],
        next_states=np.where(last, -1, np.append(states[1:], -1)),
        terminated=last,
        episode_ptr=ptr,
        state_labels=np.arange(k),
        action_labels=action_labels(),
        episode_labels=episodes,
        objectives=(_objective(),),
    )


def _objective() -> Objective:
    return Objective(name="survival", discount=DISCOUNT, label="survival (±100)", unit="points")


def _notes(counts: dict[str, int], bins: dict[str, list[int]], outcome: Outcome) -> list[str]:
    """Notes on the cohort for the user."""
    notes = []
    other = [
        f"{name} {counts[name]:,} instead of {number:,}" for name, number in EXPECTED.items() if counts[name] != number
    ]
    if other and outcome == "died_in_hosp":
        notes.append(f"this is not the paper's cohort: {', '.join(other)}")
    if counts["stays_without_rows"]:
        notes.append(f"{counts['stays_without_rows']:,} stays of the cohort have no rows in the table")
    if counts["rows_of_other_stays"]:
        notes.append(f"{counts['rows_of_other_stays']:,} rows belong to stays outside the cohort and were left out")
    for name, title in (("vaso", "max_dose_vaso"), ("iv", "input_4hourly")):
        empty = [str(i) for i, rows in enumerate(bins[name]) if not rows]
        if empty:
            notes.append(f"no row is in bin {', '.join(empty)} of {title} (0: no dose, 1 to 4: increasing doses)")
    if outcome == "mortality_90d":
        notes.append("the outcome is death within 90 days; the paper counts deaths in hospital")
    return notes
