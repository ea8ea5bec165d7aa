"""Files of figures and tables: the same each time, and one sentence about what can't be drawn."""

from __future__ import annotations

import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from bettersafe.errors import ParameterError, RunError
from bettersafe.studies.catalogue import CATALOGUE
from bettersafe.studies.figures import write_figures
from bettersafe.studies.gridworld.figures import draw_gridworld
from bettersafe.studies.sweep import Study, run_sweep
from study_rows import small_rows, small_study


@pytest.mark.slow
def test_files_are_written_and_the_same_each_time(tmp_path):
    run_sweep(small_study("gridworld/lagrangian", 2), tmp_path / "study", workers=1)
    written = write_figures(tmp_path / "study")
    assert [path.name for path in written] == ["lagrangian.png", "lagrangian.svg", "table.md", "summary.csv"]
    assert all(path.parent == tmp_path / "study" / "figures" for path in written)
    assert {path.name for path in written} == {path.name for path in written[0].parent.iterdir()}
    again = write_figures(tmp_path / "study", tmp_path / "elsewhere")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]
    png, svg, page, csv = (path.read_bytes() for path in written)
    assert png.startswith(b"\x89PNG")
    assert svg.startswith(b"<?xml")
    assert b"<dc:date>" not in svg
    assert "| Lagrangian η = 0.01 |" in page.decode()
    assert csv.startswith(b'"variant","kinds","preference","quality","method","parameter","episodes","improvement"')


def test_an_unfinished_sweep_is_drawn_and_says_so(tmp_path, monkeypatch):
    study = small_study("gridworld/scaling", 3)
    run_sweep(study, tmp_path, workers=1)
    last = study.keys[-1]  # of the third CMDP
    (tmp_path / "parts" / f"{last}.parquet").unlink()
    seen = {}
    seeing = replace(CATALOGUE[study.id], draw=lambda rows, note: seen.update(rows=rows, note=note) or {})
    monkeypatch.setitem(CATALOGUE, study.id, seeing)
    page, _ = write_figures(tmp_path)
    assert seen["note"] == "unfinished sweep: 2 of 3 CMDPs"
    assert set(seen["rows"]["cmdp"].to_pylist()) == {0, 1}
    assert "This is an unfinished sweep: 2 of 3 CMDPs." in page.read_text(encoding="utf-8")


def test_what_can_not_be_drawn_is_said(tmp_path):
    with pytest.raises(RunError, match=r"has no study\.json"):
        write_figures(tmp_path)
    run_sweep(Study(id="toy", version=1, jobs=({"seed": 1, "scale": 1.0},), work="toys:draws"), tmp_path, workers=1)
    with pytest.raises(ParameterError, match="the study 'toy' is not in the catalogue"):
        write_figures(tmp_path)
    with pytest.raises(ParameterError, match="gridworld/fixed"):
        draw_gridworld(pa.table({}), "fixed")


def test_places_that_can_not_be_written_are_named(tmp_path):
    run_sweep(small_study("gridworld/lagrangian", 1), tmp_path / "study", workers=1)
    (tmp_path / "file").write_text("here")
    with pytest.raises(RunError, match="can't be written"):
        write_figures(tmp_path / "study", tmp_path / "file")
    (tmp_path / "out" / "lagrangian.png").mkdir(parents=True)
    with pytest.raises(RunError, match="can't be written"):
        write_figures(tmp_path / "study", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["lagrangian.png"]  # nothing half-written


def test_without_matplotlib_tables_are_written_and_the_remedy_is_named(tmp_path, monkeypatch):
    run_sweep(small_study("gridworld/lagrangian", 1), tmp_path, workers=1)
    whole = {path.name: path.read_bytes() for path in write_figures(tmp_path, tmp_path / "whole")}
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.warns(UserWarning, match=r"only tables are written: figures need Matplotlib.*'bettersafe\[plots\]'"):
        written = write_figures(tmp_path, tmp_path / "tables")
    assert {path.name: path.read_bytes() for path in written} == {n: whole[n] for n in ("table.md", "summary.csv")}
    with pytest.raises(RunError, match=r"pip install 'bettersafe\[plots\]'"):
        draw_gridworld(small_rows("gridworld/fixed"), "gridworld/fixed")
