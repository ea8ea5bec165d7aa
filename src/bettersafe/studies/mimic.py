"""The sepsis study's own data: from the two tables of the public MIMIC-III cohort to logs and a fitted map of states.

For people with access to MIMIC-III. The public cohort step (Komorowski et al. 2018; Tang et al. 2020) leaves
``sepsis_mimiciii.csv``, one row per stay in intensive care, and ``MIMICtable.csv``, one row per block of four hours with 59
columns, imputed. `prepare_mimic` does what the published code of the S-OPT paper does with them:

    action     5·iv + vaso. Vasopressor 0 for none, else the quarter of the non-zero ``max_dose_vaso`` that the dose is in;
               fluid 0 for none, else ``input_4hourly`` cut at 500, 1000, 2000 mL (published) or by quarters (the paper)
    reward     0, and in the last row of a stay +100 for who left the hospital alive, −100 for who died in it
    parts      0.7 / 0.1 / 0.2 of the stays for training, validation, test
    state      the nearest of 750 k-means centres of 48 standardised features; all of it fitted on the training part

Stays are the episodes, named by their ``icustayid``. Blocks may be missing within a stay: its rows follow each other as they
are. The 90-day mortality is not read unless it is asked for. Nothing here is medical advice.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from bettersafe.data import Dataset, Objective, in_vocabulary, read_dataset, take_episodes, write_dataset
from bettersafe.discretize import (
    FeatureRule,
    Transform,
    assign_states,
    check_domain,
    explained_share,
    fit_discretizer,
    load_discretizer,
    save_discretizer,
)
from bettersafe.envs.icu_sepsis import DISCOUNT, N_ACTIONS, RETURN_OF_DEATH, RETURN_OF_SURVIVAL
from bettersafe.errors import DataError, ParameterError, RunError, check_choice, did_you_mean
from bettersafe.logs.files import data_digest
from bettersafe.logs.tables import Table, open_table
from bettersafe.runs import file_digest, versions
from bettersafe.saving import whole_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from bettersafe.discretize import Discretizer
    from bettersafe.mdp import Floats, Ints

SCHEMA = "mimic/1"
PREPARED = "prepare.json"
PARTS = ("train", "valid", "test")

IvBins = Literal["clinical", "quartile"]
Outcome = Literal["died_in_hosp", "mortality_90d"]

COHORT_COLUMNS = ("icustayid", "morta_90d", "max_sofa", "max_sirs", "sepsis_time")
TABLE_COLUMNS = (
    "bloc", "icustayid", "charttime", "gender", "age", "elixhauser", "re_admission", "died_in_hosp",
    "died_within_48h_of_out_time", "mortality_90d", "delay_end_of_record_and_discharge_or_death", "Weight_kg", "GCS", "HR",
    "SysBP", "MeanBP", "DiaBP", "RR", "SpO2", "Temp_C", "FiO2_1", "Potassium", "Sodium", "Chloride", "Glucose", "BUN",
    "Creatinine", "Magnesium", "Calcium", "Ionised_Ca", "CO2_mEqL", "SGOT", "SGPT", "Total_bili", "Albumin", "Hb",
    "WBC_count", "Platelets_count", "PTT", "PT", "INR", "Arterial_pH", "paO2", "paCO2", "Arterial_BE", "Arterial_lactate",
    "HCO3", "mechvent", "Shock_Index", "PaO2_FiO2", "median_dose_vaso", "max_dose_vaso", "input_total", "input_4hourly",
    "output_total", "output_4hourly", "cumulated_balance", "SOFA", "SIRS",
)  # fmt: skip
OUTCOMES = ("died_in_hosp", "died_within_48h_of_out_time", "mortality_90d")

BINARY = ("gender", "mechvent", "re_admission")
LOGARITHMIC = (
    "SpO2", "BUN", "Creatinine", "SGOT", "SGPT", "Total_bili", "INR", "output_total", "output_4hourly", "bloc",
)  # fmt: skip
STANDARDISED = (
    "age", "Weight_kg", "GCS", "HR", "SysBP", "MeanBP", "DiaBP", "RR", "Temp_C", "FiO2_1", "Potassium", "Sodium", "Chloride",
    "Glucose", "Magnesium", "Calcium", "Hb", "WBC_count", "Platelets_count", "PTT", "PT", "Arterial_pH", "paO2", "paCO2",
    "Arterial_BE", "HCO3", "Arterial_lactate", "SOFA", "SIRS", "Shock_Index", "PaO2_FiO2", "elixhauser", "Albumin",
    "CO2_mEqL", "Ionised_Ca",
)  # fmt: skip
FEATURES: tuple[tuple[str, Transform], ...] = (
    *((name, "binary") for name in BINARY),
    *((name, "zscore") for name in STANDARDISED),
    *((name, "log-zscore") for name in LOGARITHMIC),
)
"""The 48 features: the 52 that the published code standardises less max_dose_vaso, input_total, input_4hourly and
cumulated_balance, which tell the action or add it up."""

ID_SHIFT = 200_000
"""``icustayid`` of MIMICtable.csv is that of MIMIC-III minus this."""

CLINICAL_CUTS = (500.0, 1000.0, 2000.0)
EXPECTED = {"stays": 20_954, "rows": 278_576, "survived": 18_066, "died": 2_888}
"""The paper's cohort; another is fine, and said."""

RANDOM_STATE = 0
"""Of k-means, whatever the seed of the split, as published."""

UNITS = {
    "age": (3_653.0, math.inf, "days, so thousands"),
    "Temp_C": (25.0, 45.0, "degrees Celsius"),
    "FiO2_1": (0.0, 1.0, "a fraction from 0.21 to 1"),
}
"""Where the median of a column must be if it is in the unit that the published code expects."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A prepared cohort, as `load_mimic` reads it: all parts have the states 0 to k−1 and all 25 actions."""

    train: Dataset
    valid: Dataset
    test: Dataset
    discretizer: Discretizer
    info: dict[str, Any]


def prepare_mimic(
    cohort_csv: str | os.PathLike[str],
    table_csv: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    k: int = 750,
    iv_bins: IvBins = "clinical",
    outcome: Outcome = "died_in_hosp",
    seed: int = 0,
    split: Sequence[float] = (0.7, 0.1, 0.2),
    quick: bool = False,
    n_init: int = 10,
    force: bool = False,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Check the two tables of the cohort and write them as logs with states, and the map that made the states.

    Args:
        cohort_csv: ``sepsis_mimiciii.csv``: the stays to keep.
        table_csv: ``MIMICtable.csv``: their four-hour blocks, 59 columns.
        out: Folder to write: ``train.parquet``, ``valid.parquet``, ``test.parquet``, ``discretizer.parquet``,
            ``prepare.json``.
        k: Number of states.
        iv_bins: "clinical" cuts fluid at 500, 1000 and 2000 mL (the published code), "quartile" by quarters (the paper).
        outcome: The column that says who died.
        seed: Draws the split by stay.
        split: Shares of stays for training, validation and test; the first two are rounded down.
        quick: Mini-batch k-means with a single start.
        n_init: Starts of the full k-means.
        force: Replace an earlier result.
        progress: Is told what is being done.

    Returns:
        What is in ``prepare.json``.
    """
    check_choice("iv_bins", iv_bins, get_args(IvBins))
    check_choice("outcome", outcome, get_args(Outcome))
    shares = np.asarray(split, dtype=np.float64)
    if shares.shape != (3,) or not np.all(shares > 0.0) or not np.isclose(shares.sum(), 1.0):
        raise ParameterError(f"split must be three positive shares that sum to 1; got {shares.tolist()}.")
    say = progress or (lambda text: None)
    with whole_folder(out, mark=PREPARED, force=force) as folder:
        say("Reading the stays and their blocks")
        stays = _read_cohort(cohort_csv)
        blocks = _read_blocks(table_csv, outcome)
        kept = np.flatnonzero(np.isin(blocks.stay, stays))
        if not kept.size:
            raise DataError(
                f"no stay of {Path(cohort_csv).name} has a row in {Path(table_csv).name}; their icustayid must differ by"
                f" {ID_SHIFT}. Name files of one cohort."
            )
        order = kept[np.lexsort((blocks.bloc[kept], blocks.stay[kept]))]
        stay, features, died = blocks.stay[order], blocks.features[order], blocks.died[order]
        vaso, vaso_cuts = _dose_bins(blocks.vaso[order], None, "max_dose_vaso")
        iv, iv_cuts = _dose_bins(blocks.iv[order], CLINICAL_CUTS if iv_bins == "clinical" else None, "input_4hourly")

        episodes, starts = np.unique(stay, return_index=True)
        chosen = draw_parts(episodes.size, shares, np.random.default_rng(seed))
        ptr = np.append(starts, stay.size)
        rows = {name: np.repeat(part, np.diff(ptr)) for name, part in chosen.items()}
        training = features[rows["train"]]
        say(f"Finding {k:,} states in {training.shape[0]:,} rows" + ("" if quick else f", {n_init} starts"))
        discretizer = fit_discretizer(
            training, features=FEATURES, k=k, random_state=RANDOM_STATE, quick=quick, n_init=n_init
        )
        say("Writing")
        states = assign_states(discretizer, features)
        whole = _dataset(states, 5 * iv + vaso, died, episodes, ptr, k)
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
        deaths = int(np.count_nonzero(died[ptr[1:] - 1]))
        counts = {
            "stays": int(episodes.size),
            "rows": int(stay.size),
            "survived": int(episodes.size) - deaths,
            "died": deaths,
            "stays_without_rows": int(stays.size - episodes.size),
            "rows_of_other_stays": int(blocks.stay.size - stay.size),
        }
        document = {
            "schema": SCHEMA,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {**versions(), "scikit-learn": version("scikit-learn")},
            "settings": {
                "k": k,
                "iv_bins": iv_bins,
                "outcome": outcome,
                "seed": seed,
                "split": shares.tolist(),
                "quick": quick,
                "n_init": 1 if quick else n_init,
                "random_state": RANDOM_STATE,
            },
            "inputs": {
                key: {"name": Path(path).name, "sha256": data_digest(path)}
                for key, path in (("cohort", cohort_csv), ("table", table_csv))
            },
            "cuts": {"vaso": vaso_cuts, "iv": iv_cuts},
            "bins": {name: np.bincount(bins, minlength=5).tolist() for name, bins in (("vaso", vaso), ("iv", iv))},
            "counts": counts,
            "parts": parts,
            "discretizer_sha256": file_digest(folder / "discretizer.parquet"),
            "notes": _notes(counts, outcome),
        }
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        (folder / PREPARED).write_text(text + "\n", encoding="utf-8")
    return document


def load_mimic(folder: str | os.PathLike[str]) -> Prepared:
    """Read what `prepare_mimic` wrote, checking that no file has changed since."""
    place = Path(folder)
    file = place / PREPARED
    if not file.is_file():
        raise RunError(
            f"{place} is not a prepared cohort: it has no {PREPARED}. Make one with `bettersafe sepsis prepare`."
        )
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
        schema = info.get("schema")
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(f"{file} can't be read: {error}") from None
    if schema != SCHEMA:
        raise RunError(f"{file} has schema {schema!r}; this version of bettersafe reads {SCHEMA!r}.")
    digests = {f"{name}.parquet": info["parts"][name]["sha256"] for name in PARTS}
    for name, digest in {**digests, "discretizer.parquet": info["discretizer_sha256"]}.items():
        if not (place / name).is_file() or file_digest(place / name) != digest:
            raise RunError(f"{place / name} is not the file that {PREPARED} is about. Prepare the cohort again.")
    discretizer = load_discretizer(place / "discretizer.parquet")
    states = np.arange(discretizer.n_states)
    parts = {
        name: in_vocabulary(read_dataset(place / f"{name}.parquet", objectives=[_objective()]), states, action_labels())
        for name in PARTS
    }
    return Prepared(**parts, discretizer=discretizer, info=info)


def action_labels() -> Any:
    """The 25 treatments as the embedded ICU-Sepsis names them, "iv0/vaso0" to "iv4/vaso4", shape [25]."""
    return np.array([f"iv{a // 5}/vaso{a % 5}" for a in range(N_ACTIONS)])


# Reading


@dataclass(frozen=True, kw_only=True)
class _Blocks:
    """The rows of the table, as they stand in it."""

    stay: Ints  # icustayid of MIMIC-III
    bloc: Ints
    died: Any  # bool [N]
    vaso: Floats
    iv: Floats
    features: Floats  # [N, 48]


def _read_cohort(path: str | os.PathLike[str]) -> Ints:
    """The stays to keep, sorted."""
    with open_table(path) as table:
        _check_header(table, COHORT_COLUMNS)
        ids = table.numbers(["icustayid"])[:, 0]
        _refuse(table, ids, (ids != np.floor(ids)) | (ids <= ID_SHIFT), "icustayid", f"a whole number above {ID_SHIFT}")
        stays, first = np.unique(ids, return_index=True)
        if stays.size < ids.size:
            again = int(np.setdiff1d(np.arange(ids.size), first)[0])
            raise DataError(
                f"stay {ids[again]:.0f} stands a second time in {table.place(again)}. Keep one row per stay."
            )
        return stays.astype(np.int64)


def _read_blocks(path: str | os.PathLike[str], outcome: Outcome) -> _Blocks:
    """The rows of the table, checked; of the columns that say who died only ``outcome`` is looked at."""
    names = [name for name in TABLE_COLUMNS if name not in OUTCOMES or name == outcome]
    with open_table(path) as table:
        _check_header(table, TABLE_COLUMNS)
        values = table.numbers(names)
        if not values.shape[0]:
            raise DataError(f"{table.raw.title} has no rows. Name the table of four-hour blocks.")
        column = {name: values[:, j] for j, name in enumerate(names)}
        stay, bloc, died = column["icustayid"], column["bloc"], column[outcome]
        whole = f"a whole number from 1 to {ID_SHIFT - 1} (that of MIMIC-III minus {ID_SHIFT})"
        _refuse(table, stay, (stay != np.floor(stay)) | (stay < 1) | (stay >= ID_SHIFT), "icustayid", whole)
        _refuse(table, bloc, (bloc != np.floor(bloc)) | (bloc < 1), "bloc", "a whole number from 1")
        _refuse(table, died, (died != 0) & (died != 1), outcome, "0 or 1")
        for name in ("max_dose_vaso", "input_4hourly"):
            _refuse(table, column[name], column[name] < 0, name, "0 or more")
        for name, (low, high, unit) in UNITS.items():
            middle = float(np.median(column[name]))
            if not low <= middle <= high:
                raise DataError(
                    f"{name} must be in {unit}; its median in {table.raw.title} is {middle:g}. Convert the column."
                )
        features = np.stack([column[name] for name, _ in FEATURES], axis=1)
        check_domain([FeatureRule(name=name, transform=how) for name, how in FEATURES], features, table.place)
        order = np.lexsort((bloc, stay))
        same = np.diff(stay[order]) == 0
        twice = np.flatnonzero(same & (np.diff(bloc[order]) == 0))
        if twice.size:
            row, again = (int(order[twice[0] + i]) for i in range(2))
            raise DataError(
                f"a stay must have one row per block; stay {stay[row]:.0f}, bloc {bloc[row]:.0f} is in {table.place(row)} and"
                f" again in {table.place(again)}. Remove one of them."
            )
        torn = np.flatnonzero(same & (np.diff(died[order]) != 0))
        if torn.size:
            row, other = (int(order[torn[0] + i]) for i in range(2))
            raise DataError(
                f"{outcome} must be the same in all rows of a stay; that of stay {stay[row]:.0f} is {died[row]:.0f} in"
                f" {table.place(row)} and {died[other]:.0f} in {table.place(other)}. Correct it."
            )
    return _Blocks(
        stay=stay.astype(np.int64) + ID_SHIFT,
        bloc=bloc.astype(np.int64),
        died=died == 1.0,
        vaso=column["max_dose_vaso"],
        iv=column["input_4hourly"],
        features=features,
    )


def _check_header(table: Table, expected: tuple[str, ...]) -> None:
    """Raise unless the columns are exactly those, in that order; the message names what is wrong."""
    found = table.names
    missing = [name for name in expected if name not in found]
    extra = [name for name in found if name not in expected]
    if missing or extra:
        lacks = f"it lacks {', '.join(missing)}" if missing else ""
        has = f"it has {', '.join(extra)} besides" if extra else ""
        near = did_you_mean(extra[0], missing) if extra else ""
        raise DataError(
            f"{table.raw.title} must have the {len(expected)} columns of the published cohort; "
            f"{' and '.join(filter(None, (lacks, has)))}.{near} Rename or remove them."
        )
    for i, (name, there) in enumerate(zip(expected, found, strict=True)):
        if name != there:
            raise DataError(
                f"the columns of {table.raw.title} must be in the published order; column {i + 1} must be {name!r} and is"
                f" {there!r}. Put them in order, since a table in another order may mean something else by its names."
            )


def _refuse(table: Table, column: Floats, wrong: Any, name: str, expected: str) -> None:
    if np.any(wrong):
        row = int(np.argmax(wrong))
        raise DataError(
            f"{name} must be {expected}; got {column[row]:.12g} in column {name!r} of {table.place(row)}. Correct the cell."
        )


# Steps of the published code


def _dose_bins(dose: Floats, cuts: tuple[float, ...] | None, name: str) -> tuple[Ints, list[float]]:
    """Bin of every dose, 0 for none and else 1 + the number of cuts that it reaches, and the cuts.

    Without ``cuts`` they are the quartiles of the non-zero doses: (0, q1), [q1, q2), [q2, q3), [q3, ∞).
    """
    given = dose > 0.0
    if cuts is None:
        if not np.any(given):
            raise DataError(f"{name} is 0 in every row, so there are no quartiles to cut at. Check the column.")
        cuts = tuple(np.quantile(dose[given], (0.25, 0.5, 0.75)).tolist())
    return np.where(given, 1 + np.searchsorted(cuts, dose, side="right"), 0).astype(np.int64), list(cuts)


def draw_parts(n: int, shares: Floats, rng: np.random.Generator) -> dict[str, Any]:
    """Which of n stays are in each part, bool [n]; the first parts are rounded down, the last takes the rest.

    Of the paper's 20,954 stays 14,667 train, 2,095 validate and 4,192 test.
    """
    sizes = np.floor(shares[:-1] * n + 1e-9).astype(np.int64)  # 0.29 · 100 is a hair less than 29
    parts = np.split(rng.permutation(n), np.cumsum(sizes))
    for name, part in zip(PARTS, parts, strict=True):
        if not part.size:
            raise DataError(f"{n} stays are too few: the {name} part would be empty. Use more, or split differently.")
    return {name: np.isin(np.arange(n), part) for name, part in zip(PARTS, parts, strict=True)}


def _dataset(states: Ints, actions: Ints, died: Any, episodes: Ints, ptr: Ints, k: int) -> Dataset:
    """All stays as one log, with the outcome in the last row of each."""
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


def _notes(counts: dict[str, int], outcome: Outcome) -> list[str]:
    """What a careful reader should know."""
    notes = []
    other = [
        f"{name} {counts[name]:,} instead of {number:,}" for name, number in EXPECTED.items() if counts[name] != number
    ]
    if other and outcome == "died_in_hosp":
        notes.append(f"this is not the paper's cohort: {', '.join(other)}")
    if counts["stays_without_rows"]:
        notes.append(f"{counts['stays_without_rows']:,} stays of the cohort have no rows in the table")
    if counts["rows_of_other_stays"]:
        notes.append(f"{counts['rows_of_other_stays']:,} rows are of stays outside the cohort and were left out")
    if outcome == "mortality_90d":
        notes.append("death within 90 days is the outcome, where the paper counts deaths in hospital")
    return notes
