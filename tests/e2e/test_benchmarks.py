"""The benchmark command: a page is written, whatever becomes of its sections; what is met is computed from what was measured."""

from __future__ import annotations

import importlib.util
import io
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from patience import TIMEOUT
from places import ROOT

FOLDER = ROOT / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    """A module of benchmarks/ by name, as the command sees it."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)

    def by_name(name):
        spec = importlib.util.spec_from_file_location(f"bench_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look themselves up there
        spec.loader.exec_module(module)
        return module

    yield by_name
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and Path(sys.modules[name].__file__).parent == FOLDER:
            del sys.modules[name]


def section(folder, name, body):
    path = folder / f"{name}.py"
    path.write_text(body, encoding="utf-8")
    return path


WELL = """
import argparse, json, sys
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true")
parser.add_argument("--json", type=Path)
options = parser.parse_args()
print("· halfway", file=sys.stderr, flush=True)
options.json.write_text(json.dumps({"title": "Well", "tables": [{"columns": ["quick"], "rows": [[options.quick]]}]}))
"""


def test_the_command_writes_a_page(tmp_path):
    page = tmp_path / "new" / "page.md"
    command = [sys.executable, str(FOLDER / "run.py"), "--quick", "--only", "start", "-o", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Benchmarks\n")
    for heading in ("## At a glance", "## Starting", "## The machine and the run"):
        assert heading in text
    (line,) = [line for line in text.splitlines() if line.startswith("| `bettersafe --help` |")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1] == "≤ 300 ms"
    assert cells[-1] == "yes" or cells[-1].startswith("**no**")
    assert "not measured: left out by --only" in text  # what was not run is not met
    assert not (page.parent / "images").exists()  # nothing grew


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_every_file_imports(load, name):
    load(name)  # a name that the package no longer has fails here, not after minutes of measuring


@pytest.mark.slow
def test_every_section_measures(load):
    run = load("run")
    outcomes = {name: run.run_section(FOLDER / f"{name}.py", True) for name in run.SECTIONS}
    assert {name: outcome["why"] for name, outcome in outcomes.items() if "why" in outcome} == {}
    tables = [table for outcome in outcomes.values() for table in outcome["result"].get("tables", [])]
    assert [cell for table in tables for row in table["rows"] for cell in row if "failed: " in str(cell)] == []


def test_a_section_that_raises_does_not_end_the_page(tmp_path, load):
    run = load("run")
    bad = section(tmp_path, "s_opt", "raise ValueError('no such luck')")
    silent = section(tmp_path, "cmdp", "raise SystemExit(0)")  # ends well and leaves nothing
    good = section(tmp_path, "start", WELL)
    console = run.Console(file=io.StringIO())
    outcomes = run.run_all([bad, silent, good], True, console)
    text, picture = run.page(outcomes, ["a machine"])
    assert picture is None
    (line,) = [line for line in text.splitlines() if line.startswith("| S-OPT, 752")]
    assert "not measured: failed: ValueError: no such luck" in line
    assert "| failed: ended with 0 |" in text
    assert "## Well\n\n| quick |\n| --- |\n| True |" in text


def test_a_section_that_hangs_is_ended(tmp_path, load, monkeypatch):
    run = load("run")
    monkeypatch.setattr(run, "PATIENCE", 0.5)
    outcome = run.run_section(section(tmp_path, "slow", "import time\ntime.sleep(3600)"), False)
    assert outcome["why"] == "failed: not done after 500 ms"


def test_steps_are_shown(tmp_path, load):
    steps = []
    load("run").run_section(section(tmp_path, "well", WELL), True, steps.append)
    assert steps == ["halfway"]


@pytest.mark.parametrize(
    ("values", "met"),
    [
        ({"seconds": 0.015, "ratio": 4000.0}, "yes"),
        ({"seconds": 0.016, "ratio": 4000.0}, "**no**: 16 ms"),
        ({"seconds": 0.010, "ratio": 3999.0}, "**no**: 3,999 × quicker"),
        ({"seconds": 0.010}, "not measured: ratio"),
    ],
)
def test_met_is_computed(load, values, met):
    page = load("page")
    assert page.verdict(page.AIMS[0], values) == met


def test_every_aim_belongs_to_a_section(load):
    page, run = load("page"), load("run")
    assert {aim.section for aim in page.AIMS} <= set(run.SECTIONS)
    assert all((FOLDER / f"{name}.py").exists() for name in run.SECTIONS)


def test_slopes_and_their_errors(load):
    page = load("page")
    x = np.array([1.0, 10.0, 100.0, 1000.0])
    slope, error = page.fitted({"x": x, "seconds": 3.0 * x**1.25})
    assert slope == pytest.approx(1.25)
    assert error == pytest.approx(0.0, abs=1e-9)
    # log10 y = 0, 1, 2, 4: slope Σ(x−x̄)y/Σ(x−x̄)² = 6.5/5; residuals 0.2, −0.1, −0.4, 0.3; error √(0.3/2/5)
    slope, error = page.fitted({"x": x, "seconds": 10.0 ** np.array([0.0, 1.0, 2.0, 4.0])})
    assert slope == pytest.approx(1.3)
    assert error == pytest.approx(math.sqrt(0.03))
    assert math.isnan(page.fitted({"x": x[:2], "seconds": x[:2]})[1])


def test_the_floor_is_bytes_over_bandwidth(load):
    table = load("page").floor_table(
        [{"what": "a pass", "threads": 2, "bytes": 2e9, "seconds": 0.75, "repeats": 5}], {"1": 1e9, "2": 8e9}
    )
    assert table.splitlines()[-1] == "| a pass | 2 | 2 GB | 250 ms | 750 ms (5) | 3 |"


def test_a_timing_is_a_median_after_a_warm_up(load):
    calls = []
    timing, result = load("measuring").timed(lambda: calls.append(1) or len(calls), repeats=4)
    assert timing["repeats"] == 4
    assert result == len(calls) == 5


def test_what_is_lacking_is_said(load):
    measuring = load("measuring")

    def lacks():
        import no_such_library  # noqa: F401

    timing, result = measuring.attempt(lacks)
    assert timing == {"why": "no_such_library is not installed"}
    assert result is None
    assert measuring.shown(timing) == "no_such_library is not installed"
