"""The tables of estimators and bounds: complete, light, and what the docs say."""

from __future__ import annotations

import subprocess
import sys

from bettersafe.evaluation.facts import APPROXIMATE, BOUNDED, BOUNDS, ESTIMATORS, FINITE_SAMPLE, KERNEL_ROWS, TESTABLE
from places import ROOT

EVIDENCE = ROOT / "docs" / "evidence.md"


def test_rows_are_complete():
    assert {*ESTIMATORS} - {*TESTABLE} == {"model"}
    assert {*FINITE_SAMPLE} | {*APPROXIMATE} == {*BOUNDS}
    assert {*BOUNDED} < {*TESTABLE}
    rows = [facts.kernel_row for facts in ESTIMATORS.values() if facts.kernel_row is not None]
    assert sorted(rows) == list(range(KERNEL_ROWS))
    for name, estimator in ESTIMATORS.items():
        assert estimator.name == name
        assert estimator.independent or estimator.known_range is None
    for name, bound in BOUNDS.items():
        assert bound.name == name
        assert bound.assumption.endswith(".")


def test_titles_and_acronyms():
    assert (ESTIMATORS["dr"].title, ESTIMATORS["dr"].acronym) == ("doubly robust (dr)", "DR")
    assert ESTIMATORS["model"].title == ESTIMATORS["model"].acronym == "the model alone"


def test_the_docs_say_the_same():
    lines = EVIDENCE.read_text(encoding="utf-8").splitlines()
    cells = {line.split("`")[1]: line.replace("`", "") for line in lines if line.startswith("| `")}
    for name, facts in ESTIMATORS.items():
        _, _, what, needs, independent, _ = (cell.strip() for cell in cells[name].split("|"))
        assert what.startswith(facts.sentence)
        assert (needs == "a model") == facts.needs_model
        assert (independent == "yes") == facts.independent
    for name, bound in BOUNDS.items():
        line = next(line for line in lines if line.startswith("| ") and f"`{name}`" in line)
        assert ("finite-sample" in line) == bound.finite_sample


def test_the_tables_need_no_numpy():
    script = "import sys, bettersafe.evaluation; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "scipy", "pyarrow"} & set(loaded)
