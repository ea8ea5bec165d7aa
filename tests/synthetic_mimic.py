"""A made-up cohort with the schema of the published MIMIC-III tables: no patient is in it.

A latent severity walks through each stay; it raises SOFA, heart rate, lactate and the doses, lowers GCS and blood pressure,
and decides who dies. About 28 % of the blocks have no fluid and 85 % no vasopressor. Some stays have one block, and some
blocks are missing. Imports nothing of the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import csv

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = [
    "bloc", "icustayid", "charttime", "gender", "age", "elixhauser", "re_admission", "died_in_hosp",
    "died_within_48h_of_out_time", "mortality_90d", "delay_end_of_record_and_discharge_or_death", "Weight_kg",
    "GCS", "HR", "SysBP", "MeanBP", "DiaBP", "RR", "SpO2", "Temp_C", "FiO2_1", "Potassium", "Sodium", "Chloride",
    "Glucose", "BUN", "Creatinine", "Magnesium", "Calcium", "Ionised_Ca", "CO2_mEqL", "SGOT", "SGPT", "Total_bili",
    "Albumin", "Hb", "WBC_count", "Platelets_count", "PTT", "PT", "INR", "Arterial_pH", "paO2", "paCO2",
    "Arterial_BE", "Arterial_lactate", "HCO3", "mechvent", "Shock_Index", "PaO2_FiO2", "median_dose_vaso",
    "max_dose_vaso", "input_total", "input_4hourly", "output_total", "output_4hourly", "cumulated_balance", "SOFA",
    "SIRS",
]  # fmt: skip

# name: (mean, sd, effect of one unit of severity), clipped at a hundredth of the mean
VITALS = {
    "HR": (86, 14, 5), "SysBP": (122, 16, -5), "DiaBP": (58, 10, -2), "RR": (19, 4, 1.5), "Temp_C": (36.9, 0.6, 0.1),
    "Potassium": (4.1, 0.5, 0.05), "Sodium": (139, 4, 0), "Chloride": (105, 5, 0), "Glucose": (135, 35, 6),
    "Magnesium": (2.0, 0.3, 0), "Calcium": (8.3, 0.6, -0.1), "Ionised_Ca": (1.13, 0.08, -0.01), "CO2_mEqL": (25, 4, -1),
    "Albumin": (3.0, 0.5, -0.1), "Hb": (10.3, 1.5, -0.1), "WBC_count": (12, 5, 1), "Platelets_count": (210, 90, -15),
    "PTT": (36, 10, 3), "PT": (15, 3, 1), "Arterial_pH": (7.39, 0.05, -0.015), "paO2": (115, 35, -5),
    "paCO2": (41, 7, 0.5), "HCO3": (24, 4, -0.7), "Weight_kg": (82, 18, 0),
}  # fmt: skip
SKEWED = {
    "BUN": (25, 0.5, 0.2), "Creatinine": (1.2, 0.5, 0.2), "SGOT": (45, 0.9, 0.2), "SGPT": (35, 0.9, 0.2),
    "Total_bili": (0.8, 0.8, 0.15), "INR": (1.3, 0.25, 0.08), "Arterial_lactate": (1.6, 0.4, 0.25),
}  # fmt: skip


def cohort(stays: int = 2000, seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The two tables, name -> column: stays and blocks (13.3 rows per stay on average)."""
    rng = np.random.default_rng(seed)
    length = 1 + np.minimum(rng.geometric(1 / 13.0, stays), 19)
    length[rng.random(stays) < 0.03] = 1
    length = np.where((length > 1) & (rng.random(stays) < 0.28), 20, length)
    first = np.concatenate([[0], np.cumsum(length)[:-1]])
    stay, n = np.repeat(np.arange(stays), length), int(length.sum())
    position = np.arange(n) - first[stay]

    # The walk: a sum of steps within the stay, starting at the patient's own level.
    steps = np.cumsum(rng.normal(-0.02, 0.25, n))
    severity = rng.normal(0, 1, stays)[stay] + steps - steps[first][stay]
    final = severity[first + length - 1]
    died = rng.random(stays) < 1 / (1 + np.exp(2.7 - 1.3 * final))

    skipped = np.cumsum((rng.random(n) < 0.02) & (position > 0))
    bloc = 1 + position + skipped - skipped[first][stay]
    column: dict[str, np.ndarray] = {
        "bloc": bloc,
        "icustayid": 1 + 4 * np.arange(stays)[stay],
        "charttime": 4_000_000_000 + 14_400 * bloc,
        "gender": (rng.random(stays) < 0.44).astype(int)[stay],
        "age": np.round(rng.uniform(18, 90, stays) * 365.25, 3)[stay],
        "elixhauser": rng.integers(0, 10, stays)[stay],
        "re_admission": (rng.random(stays) < 0.3).astype(int)[stay],
        "died_in_hosp": died.astype(int)[stay],
        "died_within_48h_of_out_time": (died & (rng.random(stays) < 0.5)).astype(int)[stay],
        "mortality_90d": (died | (rng.random(stays) < 0.1)).astype(int)[stay],
        "delay_end_of_record_and_discharge_or_death": np.round(rng.exponential(100, stays), 2)[stay],
    }
    for name, (mean, sd, effect) in VITALS.items():
        column[name] = np.maximum(mean + effect * severity + rng.normal(0, sd, n), mean / 100)
    for name, (middle, sd, effect) in SKEWED.items():
        column[name] = middle * np.exp(effect * severity + rng.normal(0, sd, n))
    column["Arterial_BE"] = rng.normal(0, 3, n) - severity
    column["GCS"] = np.clip(np.rint(13.5 - 1.5 * severity + rng.normal(0, 1.5, n)), 3, 15).astype(int)
    column["SOFA"] = np.clip(np.rint(6 + 2 * severity + rng.normal(0, 1.2, n)), 0, 24).astype(int)
    column["SIRS"] = np.clip(np.rint(1.6 + 0.4 * severity + rng.normal(0, 0.8, n)), 0, 4).astype(int)
    column["SpO2"] = np.clip(97.5 - 0.5 * severity - rng.exponential(1.5, n), 50, 100)
    column["FiO2_1"] = np.clip(0.42 + 0.06 * severity + rng.normal(0, 0.08, n), 0.21, 1.0)
    column["mechvent"] = (severity + rng.normal(0, 0.7, n) > 0.5).astype(int)
    column["MeanBP"] = (column["SysBP"] + 2 * column["DiaBP"]) / 3
    column["Shock_Index"] = column["HR"] / column["SysBP"]
    column["PaO2_FiO2"] = column["paO2"] / column["FiO2_1"]

    on_vaso = severity + rng.normal(0, 0.5, n) > np.quantile(severity, 0.87)
    vaso = np.where(on_vaso, 0.2 * np.exp(0.3 * severity - 0.3 + rng.normal(0, 0.8, n)), 0.0)
    column["max_dose_vaso"] = np.round(vaso, 4)
    column["median_dose_vaso"] = np.round(0.8 * vaso, 4)
    fluid = np.where(rng.random(n) < 0.28, 0.0, 1 + 180 * np.exp(0.35 * severity + rng.normal(0, 1.2, n)))
    urine = rng.gamma(1.5, 250, n) * (rng.random(n) > 0.1)
    column["input_4hourly"], column["output_4hourly"] = np.round(fluid, 2), np.round(urine, 1)
    for name in ("input", "output"):
        total = np.cumsum(column[f"{name}_4hourly"])
        column[f"{name}_total"] = total - (total - column[f"{name}_4hourly"])[first][stay]
    column["cumulated_balance"] = column["input_total"] - column["output_total"]
    digits = {name: np.round(values, 4) if values.dtype.kind == "f" else values for name, values in column.items()}
    blocks = {name: digits[name] for name in COLUMNS}
    listed = {
        "icustayid": 200_001 + 4 * np.arange(stays),
        "morta_90d": blocks["mortality_90d"][first],
        "max_sofa": np.maximum.reduceat(blocks["SOFA"], first),
        "max_sirs": np.maximum.reduceat(blocks["SIRS"], first),
        "sepsis_time": blocks["charttime"][first],
    }
    return listed, blocks


def write(folder: Path, listed: dict[str, np.ndarray], blocks: dict[str, np.ndarray]) -> tuple[Path, Path]:
    """Write the two files; returns their paths."""
    paths = folder / "sepsis_mimiciii.csv", folder / "MIMICtable.csv"
    for path, table in zip(paths, (listed, blocks), strict=True):
        csv.write_csv(pa.table(table), path, csv.WriteOptions(quoting_style="none"))
    return paths
