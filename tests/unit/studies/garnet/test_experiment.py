"""The study in random worlds: its experiments, tables and figure."""

from __future__ import annotations

import pytest

from bettersafe.studies.catalogue import make_study
from bettersafe.studies.figures import write_figures
from bettersafe.studies.garnet.experiment import experiment
from bettersafe.studies.garnet.plan import COMPARED, FAMILIES, SIZES, garnet_study
from bettersafe.studies.sweep import read_rows, run_sweep


@pytest.mark.parametrize("sizes", [SIZES[:1], pytest.param(SIZES, marks=pytest.mark.slow)], ids=["small", "full"])
def test_experiments_and_tables(sizes, tmp_path, monkeypatch):
    monkeypatch.setattr("bettersafe.studies.garnet.experiment.SIZES", sizes)
    folder = tmp_path / "study"
    run_sweep(make_study("garnet/bopt", worlds=1), folder, workers=1)
    rows = read_rows(folder)
    assert rows.num_rows == len(FAMILIES) * len(sizes) * len(COMPARED)
    assert set(rows["family"].to_pylist()) == set(FAMILIES)
    names = {path.name for path in write_figures(folder)}
    assert names == {"garnet.png", "garnet.svg", "table.md", "summary.csv"}
    page = (folder / "figures" / "table.md").read_text(encoding="utf-8")
    assert "B-OPT" in page
    assert "1 world of each family, δ = 0.1" in page
    assert page.count("| B-OPT |") == 8  # failures and improvements, for four families


@pytest.mark.slow
def test_a_world_is_the_same_whichever_others_are_asked_for():
    one, two = garnet_study(worlds=1, delta=0.2), garnet_study(worlds=2, delta=0.2)
    assert set(one.keys) < set(two.keys)
    job = {**one.jobs[0], "draws": 20}
    assert experiment(job) == experiment(job)
    assert experiment(job) != experiment({**job, "cmdp": 5})
