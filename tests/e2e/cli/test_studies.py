"""Studies and the demo, as a user runs them."""

from __future__ import annotations

import json

import pytest
from pyarrow import parquet

import synthetic_mimic
from bettersafe.studies.sweep import read_rows
from commands import call, run, run_on_one_core


def test_a_smoke_run_and_its_figures(tmp_path):
    folder = tmp_path / "smoke"
    text, _ = run("study", "run", "gridworld/fixed", "--cmdps", 1, "-o", folder)
    assert "4 experiments" in text
    assert read_rows(folder).num_rows == 4 * 4 * 3 * 12
    again = json.loads(call("study", "run", "gridworld/fixed", "--cmdps", 1, "-o", folder, "--json")[0])
    assert (again["done"], again["skipped"]) == (0, 4)
    written = json.loads(run("study", "figures", folder, "--json")[0])
    names = {path.rsplit("/", 1)[-1] for path in written}
    assert {"mean.png", "mean.svg", "grid.png", "objectives.png", "table.md", "summary.csv"} <= names
    assert "1 CMDP" in (folder / "figures" / "table.md").read_text(encoding="utf-8")
    assert "gridworld/fixed" in call("study", "run", "gridworld/tuned", "--cmdps", 3, "-o", folder, code=1)[1]


def test_what_there_is_and_what_there_is_not(tmp_path):
    listed = run("study", "list")[0]
    assert "gridworld/scaling" in listed
    assert "sepsis/icu-published" in listed
    assert "Did you mean 'gridworld/fixed'" in call("study", "run", "gridworld/fix", code=1, cwd=tmp_path)[1]
    (tmp_path / "file").write_text("x", encoding="utf-8")
    assert "is a file" in call("study", "figures", tmp_path / "file", code=1)[1]
    assert "not the folder of a study" in call("study", "figures", tmp_path, code=1)[1].replace("\n", " ")


def test_an_option_of_another_study_is_refused(tmp_path):
    _, complaint = call("study", "run", "sepsis/icu", "--cmdps", 3, "-o", tmp_path / "study", code=1)
    assert "--cmdps does not belong to the study sepsis/icu" in " ".join(complaint.split())
    assert not (tmp_path / "study").exists()


@pytest.mark.slow
def test_prepared_splits_make_one_table(tmp_path):
    files = synthetic_mimic.write(tmp_path, *synthetic_mimic.cohort(100))
    splits, folder = tmp_path / "splits", tmp_path / "study"
    text, _ = call("sepsis", "prepare", *files, "--k", 4, "--quick", "--splits", 2, "-o", splits)
    assert "split-01" in text
    assert "study run sepsis/mimic --data" in " ".join(text.split())
    one = ("--data", splits / "split-00")
    text, _ = call("study", "run", "sepsis/mimic", *one, "--workers", 1, "-o", folder)
    assert text.startswith("1 experiment in ")
    text, _ = call("study", "run", "sepsis/mimic", "--data", splits, "--workers", 1, "-o", folder)
    assert text.startswith("1 experiment in ")
    assert "(1 was there already)" in text
    assert set(read_rows(folder)["repetition"].to_pylist()) == {0, 1}
    for given, complaint in (
        (("--data", tmp_path), "is not a prepared cohort: it has no prepare.json"),
        ((*one, *one), "is given twice"),
    ):
        _, error = call("study", "run", "sepsis/mimic", *given, "-o", tmp_path / "refused", code=1)
        assert complaint in " ".join(error.split())
        assert "Traceback" not in error
        assert not (tmp_path / "refused").exists()


@pytest.mark.long  # 25 s of CPU time; 300 stays go the same way in tests/unit/test_sepsis_study.py
def test_a_made_up_cohort_from_its_two_tables_to_the_papers(tmp_path):
    files = synthetic_mimic.write(tmp_path, *synthetic_mimic.cohort(2000))
    call("sepsis", "prepare", *files, "--k", 25, "--quick", "-o", tmp_path / "split")
    folder = tmp_path / "study"
    call("study", "run", "sepsis/mimic", "--data", tmp_path / "split", "--workers", 1, "-o", folder)
    call("study", "figures", folder)
    rows = [row for row in read_rows(folder).to_pylist() if row["rare_below"] == 10]
    assert {row["outcome"] for row in rows} == {"died_in_hosp"}
    clinician = next(row for row in rows if row["method"] == "clinician")
    last = [row["survival"] for row in parquet.read_table(tmp_path / "split" / "test.parquet").to_pylist()]
    died = sum(reward == -100.0 for reward in last)
    assert clinician["test_episodes"] == 400
    # discounted by at most 0.99^19 of the undiscounted mean
    assert 0.8 * (100 - 200 * died / 400) < clinician["dr_survival"] < 100 - 200 * died / 400
    assert clinician["ess"] > 200
    still = next(row for row in rows if (row["preference"], row["method"], row["parameter"]) == ("1,0", "s-opt", "0"))
    assert abs(still["dr_survival"] - clinician["dr_survival"]) < 1e-6
    wild = next(row for row in rows if (row["preference"], row["method"]) == ("1,0", "linearized"))
    assert wild["model_survival"] > clinician["model_survival"]
    assert wild["ess"] < clinician["ess"] / 4
    page = (folder / "figures" / "table.md").read_text(encoding="utf-8")
    assert "Paper: on MIMIC-III too" in page
    assert "B-OPT δ = 0.1" in page
    assert "nan" not in page


def test_demo(tmp_path):
    text, _ = run("demo", "--patients", 3000, "-o", tmp_path / "sepsis")
    assert "3,000 patients" in text
    assert "bettersafe" in text
    assert "Largest changes" in call("show", tmp_path / "sepsis/run")[0]
    described, _ = call("describe", tmp_path / "sepsis/cohort.parquet", "--objective", "survival")
    assert "3,000 episodes" in described
    assert "exists" in call("demo", "--patients", 3000, "-o", tmp_path / "sepsis", code=1)[1]
    document = json.loads(call("demo", "--patients", 3000, "--seed", 1, "--json")[0])
    assert set(document["policies"]) == {"the clinicians", "plain RL", "bettersafe"}


@pytest.mark.slow
def test_sepsis_prepare_then_improve(tmp_path):
    files = synthetic_mimic.write(tmp_path, *synthetic_mimic.cohort(300))
    out = tmp_path / "out"
    text, _ = run_on_one_core("sepsis", "prepare", *files, "--k", 12, "--starts", 1, "--iv-bins", "quartile", "-o", out)
    for part in ("300 stays", "vasopressor: cut at", "fluid: cut at", "not the paper's cohort"):
        assert part in text
    settings = json.loads((out / "prepare.json").read_text(encoding="utf-8"))["settings"]
    assert (settings["k"], settings["n_init"], settings["iv_bins"], settings["quick"]) == (12, 1, "quartile", False)
    described, _ = run_on_one_core(
        "describe", out / "train.parquet", "--objective", "survival", "--rare-below", 10, "--json"
    )
    found = json.loads(described)
    assert (found["episodes"], found["states"]) == (210, 12)
    run_on_one_core(
        "improve", out / "train.parquet", "--objective", "survival", "--rare-below", 10, "-o", tmp_path / "run", code=3
    )  # 210 stays of noise: nothing can be trusted
    _, error = run_on_one_core("sepsis", "prepare", files[0], files[0], "-o", tmp_path / "other", code=1)
    assert "has the columns of the stays, not those of the four-hour blocks" in " ".join(error.split())
    _, error = run_on_one_core("sepsis", "prepare", *files[::-1], "-o", tmp_path / "other", code=1)
    assert "seem to be swapped" in error
    run_on_one_core("sepsis", "prepare", *files, code=2)
