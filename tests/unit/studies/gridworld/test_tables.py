"""Tables of the gridworld study."""

from __future__ import annotations

import pytest

from bettersafe.errors import ParameterError
from bettersafe.studies.gridworld.plan import QUALITIES, SIZES
from bettersafe.studies.gridworld.tables import gridworld_summary, gridworld_tables
from study_rows import gridworld_row, gridworld_rows, rows_table


# ---- tables
@pytest.mark.parametrize(
    ("study_id", "line"),
    [
        ("gridworld/fixed", ("H-OPT (published code)", "86", "148", "168", "171", "0.050", "0.050", "0.040", "0.035")),
        ("gridworld/fixed", ("S-OPT ε = 1.0", "99", "160", "175", "176", "0.100", "0.190", "0.140", "0.085")),
        ("gridworld/tuned", ("S-OPT ε tuned", "133", "162", "175", "176", "0.070", "0.070", "0.010", "0.010")),
        ("gridworld/delta-0.9", ("S-OPT ε = 0.01", "2", "5.5", "18", "36", "0.005", "0.000", "0.000", "0.000")),
        (
            "gridworld/lagrangian",
            ("Lagrangian η = 0.1", "170", "174", "179", "181", "0.360", "0.345", "0.365", "0.290"),
        ),
    ],
)
def test_tables_have_the_published_values_beside_ours(study_id, line):
    page = gridworld_tables(gridworld_rows(study_id), study_id)
    name, *values = line
    lines = [text.strip("| ").split(" | ") for text in page.splitlines() if text.startswith(f"| {name} |")]
    improvement, median, failure = (text for text in lines if not text[1].startswith("("))
    assert improvement[2::2] + failure[2::2] == values
    assert all("±" in ours for ours in improvement[1::2] + failure[1::2]) or study_id == "gridworld/tuned"
    assert len(median) == 5
    assert "1e-6 of its range" in page


def test_ours_are_the_summary():
    rows = rows_table(
        *(gridworld_row(cmdp, gain, episodes=size) for size in SIZES for cmdp, gain in ((0, 10), (1, 14)))
    )
    page = gridworld_tables(rows, "gridworld/fixed", note="Not all of it.")
    assert "| S-OPT ε = 0.1 | 12.0 ± 2.0 | 16 | 12.0 ± 2.0 | 44 | 12.0 ± 2.0 | 117 | 12.0 ± 2.0 | 159 |" in page
    assert "Not all of it." in page


def test_tables_without_published_values():
    page = gridworld_tables(gridworld_rows("gridworld/scaling"), "gridworld/scaling")
    assert [line for line in page.splitlines() if line.startswith("## ")] == [f"## d = {d}" for d in (2, 5, 17, 65)]
    assert "| published |" not in page
    page = gridworld_tables(gridworld_rows("gridworld/conventions"), "gridworld/conventions")
    assert "### π* completed uniformly" in page
    with pytest.raises(ParameterError, match="gridworld/fixed"):
        gridworld_tables(rows_table(gridworld_row(0, 1)), "gridworld/fxed")


def test_b_opt_stands_against_the_others_with_intervals():
    rows = [
        gridworld_row(
            c, 10 + 4 * c, c == 0 and size == 50, episodes=size, quality=quality, method=method, parameter=parameter
        )
        for c in (0, 1)
        for size in (10, 50)
        for quality in (0.1, 0.9)
        for method, parameter in (("b-opt", ""), ("g-opt", "0.1"))
    ]
    page = gridworld_tables(rows_table(*rows), "gridworld/bopt").partition("## B-OPT against the others")[2]
    assert "δ = 0.1." in page
    parts = page.split("### ")[1:]
    assert [part.splitlines()[0] for part in parts] == ["all ρ", "ρ = 0.1", "ρ = 0.9"]
    assert [part.splitlines()[2] for part in parts] == [f"2 CMDPs, {n} experiments for each |D|." for n in (4, 2, 2)]
    for part in parts:
        failure, improvement = (line.strip("| ").split(" | ") for line in part.splitlines() if "| B-OPT |" in line)
        # of 2 CMDPs: none failed at 10, one at 50, and of all sizes one of them in half of its experiments
        assert failure[1:] == ["0.000 [0.000, 0.842] (2)", "0.500 [0.013, 0.987] (2)", *["–"] * 3, failure[6]]
        assert failure[6].startswith("0.250 [0.000, ")
        assert improvement[1:] == ["12.0 ± 2.0", "12.0 ± 2.0", *["–"] * 3, "12.0 ± 2.0"]


def test_improvement_with_many_objectives_is_a_share_of_that_with_few():
    rows = rows_table(
        gridworld_row(0, 10), gridworld_row(1, 14), gridworld_row(0, 5, kinds=16), gridworld_row(1, 7, kinds=16), gridworld_row(0, -1, kinds=64), gridworld_row(1, -1, kinds=64),
        *(gridworld_row(c, gain, kinds=kinds, method="b-opt", parameter="") for kinds in (1, 16) for c, gain in ((0, -1), (1, 5))),
    )  # fmt: skip
    page = gridworld_tables(rows, "gridworld/bopt-scaling").partition("## Improvement relative to d = 2")[2]
    assert "must stay above −2, with larger d all of them above −10" in page  # another reason for a change
    assert page.count("| method | d = 2 | d = 17 | d = 65 |") == 2  # |D| = 10 and all
    # 6/12 with error √(1² + (2/2)²)/12, and −1/12 with √(0² + (2/12)²)/12; B-OPT's 2 ± 3 is no measure for anything
    assert page.count("| S-OPT ε = 0.1 | 12.0 ± 2.0 | 0.50 ± 0.12 | −0.08 ± 0.01 |") == 2
    assert page.count("| B-OPT | 2.0 ± 3.0 | – | – |") == 2
    assert "% of the best possible" not in page


def test_improvement_is_also_a_share_of_what_could_be_gained_there():
    gains = {("b-opt", 1): 18, ("b-opt", 64): 9, ("optimum", 1): 20, ("optimum", 64): 12, ("adv-linearized", 1): 5}
    rows = rows_table(
        *(gridworld_row(c, g, kinds=k, method=m, parameter="") for (m, k), g in gains.items() for c in (0, 1))
    )
    page = gridworld_tables(rows, "gridworld/bopt-scaling").partition("## Improvement relative to d = 2")[2]
    assert page.count("| Best possible | 20.0 ± 0.0 | 0.60 ± 0.00 |") == 2  # |D| = 10 and all
    assert page.count("| B-OPT | 90.0 | 75.0 |") == 2
    assert page.count("| Adv-Linearized | 25.0 | – |") == 2


def test_a_change_of_nothing_is_said_shortly():
    rows = rows_table(
        *(gridworld_row(c, 10 * c, variant=v) for c in (0, 1) for v in ("as in the reproduction", "up to 100 rounds"))
    )
    assert "| S-OPT ε = 0.1 | 0 / 0 | – | – | – |" in gridworld_tables(rows, "gridworld/conventions")


def test_summary_for_spreadsheets_has_all_and_each():
    rows = gridworld_rows("gridworld/tuned", 3)
    found = gridworld_summary(rows, "gridworld/tuned").to_pylist()
    assert {r["quality"] for r in found} == {"all", *(f"{quality:g}" for quality in QUALITIES)}
    parameters = {r["parameter"] for r in found if r["method"] == "s-opt"}
    assert {"tuned", "0.0001", "5"} <= parameters
    assert {r["cmdps"] for r in found} == {2}  # the third was tuned on
    one = next(r for r in found if r["method"] == "linearized" and r["quality"] == "all" and r["episodes"] == 10)
    of_it = [r for r in rows.to_pylist() if r["method"] == "linearized" and r["episodes"] == 10 and r["cmdp"] > 0]
    assert one["improvement"] == pytest.approx(sum(r["improvement"] for r in of_it) / len(of_it))
    assert one["experiments"] == len(of_it) == 24
