"""The sepsis study: small runs of both routes."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import synthetic_mimic
from bettersafe.errors import ParameterError
from bettersafe.studies.catalogue import CATALOGUE
from bettersafe.studies.figures import write_figures
from bettersafe.studies.sepsis import experiment
from bettersafe.studies.sepsis.experiment import icu_experiment
from bettersafe.studies.sepsis.mimic import Preparation, prepare_splits
from bettersafe.studies.sepsis.plan import mimic_study, sepsis_study
from bettersafe.studies.sepsis.summary import CLINICIAN, by_key, key, summarise_sepsis
from bettersafe.studies.sweep import read_rows, run_sweep
from study_rows import cells_of

pytestmark = pytest.mark.usefixtures("one_thread")


# ---- small runs
@pytest.mark.parametrize(
    "options", [{"without": "b-opt"}, pytest.param({}, marks=pytest.mark.slow)], ids=["quick", "all"]
)
def test_route_a_in_small(tmp_path, options):
    run_sweep(sepsis_study("sepsis/icu", seeds=1, patients=600, **options), tmp_path, workers=1)
    written = {path.name for path in write_figures(tmp_path)}
    pictures = {f"{name}.{kind}" for name in ("doses", "truth", "epsilon") for kind in ("png", "svg")}
    assert written == pictures | {"table.md", "summary.csv"}
    page = (tmp_path / "figures" / "table.md").read_text(encoding="utf-8")
    assert "# sepsis/icu\n" in page
    assert "unfinished" not in page
    assert "nan" not in page
    records = by_key(summarise_sepsis(read_rows(tmp_path)))
    clinician, still = records[CLINICIAN], records["1,0", "s-opt", "0"]
    for column in ("true_survival", "true_rare", "dr_survival", "wdr_rare"):
        assert still[column] == pytest.approx(clinician[column], abs=1e-8)
    assert clinician["true_survival"] == pytest.approx(51.98, abs=3.0)  # the simulator's clinicians


@pytest.mark.parametrize("study_id", ["sepsis/icu", "sepsis/icu-published"])
def test_route_a_splits_a_cohort_of_the_papers_size_as_published(monkeypatch, study_id):
    found = {}
    monkeypatch.setattr(
        experiment, "compare", lambda train, valid, test, **_: found.update(parts=(train, valid, test)) or []
    )
    icu_experiment(sepsis_study(study_id, seeds=1).jobs[0])
    assert [part.n_episodes for part in found["parts"]] == [14_667, 2_095, 4_192]
    patients = np.concatenate([part.episode_labels for part in found["parts"]])
    assert np.unique(patients).size == 20_954


def test_an_unfinished_study_of_published_estimates_says_so(tmp_path, monkeypatch):
    said = []
    entry = CATALOGUE["sepsis/icu-published"]
    seeing = replace(entry, draw=lambda rows, note: said.append(note) or {})
    monkeypatch.setitem(CATALOGUE, "sepsis/icu-published", seeing)
    run_sweep(sepsis_study("sepsis/icu-published", seeds=1, patients=300, without="b-opt"), tmp_path, workers=1)
    study = sepsis_study("sepsis/icu-published", seeds=2, patients=300, without="b-opt")
    description = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    description["jobs"].append({"job": study.keys[1], "settings": study.jobs[1]})
    (tmp_path / "study.json").write_text(json.dumps(description), encoding="utf-8")
    write_figures(tmp_path, tmp_path / "elsewhere")
    page = (tmp_path / "elsewhere" / "table.md").read_text(encoding="utf-8")
    assert page.startswith("# sepsis/icu-published")
    assert "This is an unfinished sweep: 1 of 2 seeds." in page
    assert said == ["unfinished sweep: 1 of 2 seeds"]
    rows = read_rows(tmp_path, partial=True).to_pylist()
    assert {record["method"] for record in rows} >= {"h-opt", "g-opt"}
    assert "b-opt" not in {record["method"] for record in rows}
    assert all(-100.0 <= record["dr_survival"] <= 100.0 for record in rows)  # clipped
    assert rows[0]["test_episodes"] < 0.2 * 300  # those with an unseen pair are dropped
    assert not any(record["usable"] for record in rows)  # biased on purpose


@pytest.mark.slow
def test_route_b_in_small(tmp_path):
    stays, blocks = synthetic_mimic.write(tmp_path, *synthetic_mimic.cohort(300, seed=3))
    prepare_splits(stays, blocks, tmp_path / "prepared", Preparation(seed=5, k=12, quick=True), splits=2)
    study = mimic_study([tmp_path / "prepared"])
    assert [(job["repetition"], job["seed"]) for job in study.jobs] == [(0, 5), (1, 6)]
    run_sweep(study, tmp_path / "study", workers=1)
    written = {path.name for path in write_figures(tmp_path / "study")}
    assert written == {"doses.png", "doses.svg", "epsilon.png", "epsilon.svg", "table.md", "summary.csv"}
    page = (tmp_path / "study" / "figures" / "table.md").read_text(encoding="utf-8")
    assert "worse in truth" not in page
    assert "2 seeds; ±" in page
    assert "Paper: also on MIMIC-III" in page
    rows = read_rows(tmp_path / "study")
    values = [r["dr_survival"] for r in rows.to_pylist() if key(r) == CLINICIAN and r["rare_below"] == 10]
    assert len(set(values)) == 2
    assert cells_of(page, "Table 1", ["–", "Clinician (π_b)"])[2] == (
        f"{sum(values) / 2:.2f} ± {abs(values[0] - values[1]) / math.sqrt(2):.2f}"
    )
    records = by_key(summarise_sepsis(rows))
    doses = sum(value for name, value in records[CLINICIAN].items() if name.startswith("dose") and name[-1].isdigit())
    assert doses == pytest.approx(1.0)
    assert mimic_study([tmp_path / "prepared"], seeds=1).jobs == study.jobs[:1]
    with pytest.raises(ParameterError, match="seeds must be from 1 to 2, the number of prepared splits; got 3"):
        mimic_study([tmp_path / "prepared"], seeds=3)
    prepare_splits(stays, blocks, tmp_path / "prepared", Preparation(seed=5, k=11, quick=True), splits=1, force=True)
    anew = mimic_study([tmp_path / "prepared" / "split-00"])
    assert anew.keys[0] not in study.keys  # what was prepared anew is not taken for what was done


# λ, method, parameter: true survival, true rare-treatment return, DR of survival, of an independent prototype on 6 cohorts
PROTOTYPE = {
    CLINICIAN: (51.98, 9.91, 51.2),
    ("1,0", "linearized", ""): (52.2, 79.2, 96.1),
    ("1,0", "adv-linearized", ""): (56.8, 19.4, 80.9),
    ("1,0", "s-opt", "0.01"): (52.07, 9.85, 51.9),
    ("1,0", "s-opt", "0.1"): (52.90, 9.59, 55.6),
    ("1,0", "s-opt", "1"): (57.5, 11.7, 72.5),
    ("1,1", "linearized", ""): (58.4, 19.9, 91.2),
    ("1,1", "s-opt", "2.5"): (59.0, 5.4, 77.0),
    ("0,1", "linearized", ""): (47.7, 0.29, 43.7),
    ("0,1", "s-opt", "1"): (54.9, 1.1, 58.0),
}


@pytest.mark.long
def test_the_full_study_agrees_with_the_prototype():
    study = sepsis_study("sepsis/icu")
    table = pa.Table.from_pylist([job | made for job in study.jobs for made in icu_experiment(job)])
    records = by_key(summarise_sepsis(table))
    for policy, values in PROTOTYPE.items():
        for column, value in zip(("true_survival", "true_rare", "dr_survival"), values, strict=True):
            assert abs(records[policy][column] - value) <= 2 * records[policy][f"{column}_sd"], (policy, column)
    for (preference, method, parameter), record in records.items():
        if method == "linearized" and preference != "0,0":
            assert record["harmed"] == 1.0
        if method == "s-opt" and float(parameter) <= 0.1:
            assert record["harmed"] == 0.0
