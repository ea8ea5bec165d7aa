"""Figures of the gridworld study: all of them are drawn, say what they are, and are written whole."""

from __future__ import annotations

import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import toys
from bettersafe.errors import ParameterError, RunError
from bettersafe.studies.catalogue import CATALOGUE
from bettersafe.studies.figures import write_figures
from bettersafe.studies.gridworld.figures import draw_gridworld
from bettersafe.studies.gridworld.plan import PLANS, gridworld_study
from bettersafe.studies.styles import STYLES
from bettersafe.studies.sweep import Study, run_sweep
from pictures import assert_nothing_overlaps, texts

NAMES = {
    "gridworld/fixed": {"mean", "grid", "objectives"},
    "gridworld/tuned": {"mean", "grid", "objectives"},
    "gridworld/delta-0.9": {"mean", "grid"},
    "gridworld/lagrangian": {"lagrangian"},
    "gridworld/scaling": {"scaling"},
    "gridworld/conventions": {"conventions"},
    "gridworld/bopt": {"mean", "grid", "objectives"},
    "gridworld/bopt-scaling": {"scaling"},
}


def small_study(study_id, cmdps):
    """With made-up rows, and few enough combinations to be drawn quickly."""
    full = gridworld_study(study_id, cmdps=cmdps)
    jobs = tuple({**job, "preferences": job["preferences"][-2:]} for job in full.jobs if job["quality"] in {0.1, 0.9})
    return replace(full, jobs=jobs, work="toys:gridworld_rows")


def small_rows(study_id, cmdps=3):
    jobs = small_study(study_id, cmdps).jobs
    return pa.Table.from_pylist(
        [{"job": str(n), **job, **row} for n, job in enumerate(jobs) for row in toys.gridworld_rows(job)]
    )


@pytest.mark.parametrize("study_id", PLANS)
def test_every_study_is_drawn(study_id):
    drawn = draw_gridworld(small_rows(study_id), study_id, note="a word in the subtitle")
    assert drawn.keys() == NAMES[study_id]
    for name, figure in drawn.items():
        said = " ".join(texts(figure))
        assert "a word in the subtitle" in said
        assert "worse than the baseline on some objective by more than 1e-6 of its range" in said
        assert ("1 CMDP" if name == "objectives" else "2 CMDPs" if study_id == "gridworld/tuned" else "3 CMDPs") in said
        assert f"δ = {PLANS[study_id].delta:g}" in said
        assert_nothing_overlaps(figure)


def test_lines_are_the_means_in_the_methods_colours():
    rows = small_rows("gridworld/lagrangian")
    figure = draw_gridworld(rows, "gridworld/lagrangian")["lagrangian"]
    _, _, gain, rate = figure.axes
    colour = STYLES["s-opt 0.1"].colour
    for axes, name in ((gain, "improvement"), (rate, "failure")):
        (line,) = (
            one
            for one in axes.get_lines()
            if one.get_color() == colour and len(one.get_xdata()) == 4 and one.get_marker() == "s"
        )
        mine = rows.filter(pc.and_(pc.equal(rows["method"], "s-opt"), pc.equal(rows["parameter"], "0.1")))
        for size, height in zip((10, 50, 500, 2000), line.get_ydata(), strict=True):
            of_it = [r[name] for r in mine.to_pylist() if r["episodes"] == size]
            assert height == pytest.approx(sum(of_it) / len(of_it))  # every CMDP has as many rows
    (allowed,) = (one for one in rate.get_lines() if one.get_linestyle() == ":")
    assert set(allowed.get_ydata()) == {0.1}


def test_a_study_at_another_delta_says_so():
    rows = small_rows("gridworld/bopt")
    rows = rows.set_column(rows.column_names.index("delta"), "delta", pa.array([0.01] * rows.num_rows))
    figure = draw_gridworld(rows, "gridworld/bopt")["mean"]
    assert "B-OPT and G-OPT beside the others, δ = 0.01" in " ".join(texts(figure))
    gain, rate = figure.axes
    assert [label.get_text() for label in gain.get_xticklabels()] == ["10", "50", "200", "500", "2,000"]
    (allowed,) = (one for one in rate.get_lines() if one.get_linestyle() == ":")
    assert set(allowed.get_ydata()) == {0.01}


def test_losses_that_would_flatten_the_others_are_cut_and_said():
    rows = small_rows("gridworld/delta-0.9")
    deep = pc.and_(pc.equal(rows["method"], "linearized"), pc.equal(rows["preference"], "0,1"))
    rows = rows.set_column(
        rows.column_names.index("improvement"), "improvement", pc.if_else(deep, -500.0, rows["improvement"])
    )
    said = texts(draw_gridworld(rows, "gridworld/delta-0.9")["grid"])
    assert said.count("↓ Linearized, down to −500.0") == 2  # of four cells


def test_one_cmdp_has_no_bars_and_matplotlib_is_left_as_it_was():
    import matplotlib

    before = matplotlib.rcParams.copy()
    said = texts(draw_gridworld(small_rows("gridworld/scaling", 1), "gridworld/scaling")["scaling"])
    assert any("No bars" in text for text in said)
    after = matplotlib.rcParams.copy()
    assert all(after[name] == before[name] for name in before if name != "backend")  # to ask for it sets it
    assert "matplotlib.pyplot" not in sys.modules


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
    with pytest.raises(ParameterError, match="no figures are known for the study 'toy'"):
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
