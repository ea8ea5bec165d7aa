"""Numbers of the gridworld study's tables: small cases by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy import special, stats

import toys
from bettersafe.errors import ParameterError, RunError
from bettersafe.studies.gridworld.plan import PLANS, QUALITIES, SIZES, gridworld_study
from bettersafe.studies.gridworld.published import PUBLISHED
from bettersafe.studies.gridworld.summary import changes, tuned
from bettersafe.studies.gridworld.tables import gridworld_summary, gridworld_tables
from bettersafe.studies.styles import STYLES, plain_name
from bettersafe.studies.summary import finished, summarise, with_intervals


def row(cmdp, improvement, failure=False, **more):
    return {
        "job": f"job {cmdp}",
        "cmdp": cmdp,
        "quality": 0.4,
        "kinds": 1,
        "variant": "as in the reproduction",
        "delta": 0.1,
        "episodes": 10,
        "preference": "1,0",
        "method": "s-opt",
        "parameter": "0.1",
        "improvement": float(improvement),
        "failure": failure,
        "goal": 500.0 + improvement,
        "goal_baseline": 500.0,
        "pits": -7.0,
        "pits_baseline": -9.0,
    } | more


def table(*rows):
    return pa.Table.from_pylist(list(rows))


def study_rows(study_id, cmdps=2):
    jobs = gridworld_study(study_id, cmdps=cmdps).jobs
    return table(*({"job": str(n), **job, **one} for n, job in enumerate(jobs) for one in toys.gridworld_rows(job)))


# ---- means and errors


def test_standard_error_is_clustered_by_cmdp():
    # CMDP means 2, 6 and 10 of 2, 1 and 3 rows: mean 6, sd 4, se 4/√3. Unclustered, the rows' mean would be 40/6.
    rows = table(row(0, 1), row(0, 3), row(1, 6), row(2, 8), row(2, 10), row(2, 12))
    (found,) = summarise(rows).to_pylist()
    assert found["improvement"] == pytest.approx(6.0)
    assert found["improvement_se"] == pytest.approx(4.0 / math.sqrt(3.0))
    assert found["median"] == pytest.approx(6.0)
    assert (found["experiments"], found["cmdps"]) == (6, 3)
    assert {name: found[name] for name in ("method", "parameter", "episodes")} == {
        "method": "s-opt", "parameter": "0.1", "episodes": 10,
    }  # fmt: skip


def test_failures_are_clustered_too():
    # shares 1/2 and 0: mean 1/4, sd √(2/16) = √2/4, se 1/4
    rows = table(row(0, 1, True), row(0, 1), row(1, 1), row(1, 1))
    (found,) = summarise(rows).to_pylist()
    assert found["failure"] == pytest.approx(0.25)
    assert found["failure_se"] == pytest.approx(0.25)


def test_median_is_of_the_cmdps():
    (found,) = summarise(table(row(0, 0), row(0, 2), row(1, 4), row(2, 1000))).to_pylist()
    assert found["median"] == pytest.approx(4.0)


def test_one_cmdp_has_no_standard_error():
    (found,) = summarise(table(row(0, 1), row(0, 3, True))).to_pylist()
    assert math.isnan(found["improvement_se"])
    assert math.isnan(found["failure_se"])


def test_groups_are_kept_apart_and_in_order():
    rows = table(
        row(0, 1, episodes=500), row(0, 2, episodes=10), row(1, 3, episodes=500), row(0, 9, method="linearized")
    )
    found = [(r["method"], r["episodes"], r["improvement"]) for r in summarise(rows).to_pylist()]
    assert found == [("s-opt", 500, 2.0), ("s-opt", 10, 2.0), ("linearized", 10, 9.0)]


@pytest.mark.parametrize(
    ("rows", "what"), [(table(row(0, 1)).slice(0, 0), "no rows"), (table({"cmdp": 1}), "no column 'method'")]
)
def test_what_is_not_of_a_study_is_refused(rows, what):
    with pytest.raises(ParameterError, match=what):
        summarise(rows)


# ---- intervals for rates of failure


def rates(*failures, of):
    """Rows of CMDPs in which so many experiments failed, of so many."""
    return table(*(row(c, 1, n < failed) for c, failed in enumerate(failures) for n in range(of)))


def interval(rows):
    (found,) = with_intervals(summarise(rows)).to_pylist()
    return found["failure_low"], found["failure_high"], found["failure_n"]


@pytest.mark.parametrize(
    ("failures", "of", "k", "n"),
    [
        ((1, 0) * 10, 2, 10, 40),  # spread more evenly than by chance: as many as there are experiments
        ((2, 0, 0, 0) * 3, 2, 3, 12),  # all or nothing: as many as there are CMDPs
        ((0,) * 30, 12, 0, 30),  # nothing failed: nobody knows how alike they are
        ((3,) * 5, 3, 5, 5),
        ((1,), 4, None, 1),  # one CMDP
    ],
)
def test_intervals_are_those_of_clopper_and_pearson(failures, of, k, n):
    low, high, worth = interval(rates(*failures, of=of))
    assert worth == n
    if k is not None:
        exact = stats.binomtest(k, n).proportion_ci(0.95, method="exact")
        assert (low, high) == pytest.approx((exact.low, exact.high))


def test_alike_experiments_count_for_fewer_than_they_are():
    # rates 1/2, 1/4, 0 … of 8 CMDPs: mean 3/32, Σ(m − f)² = 5/16 − 8 (3/32)² = 31/128, se² = 31/128/7/8
    f, squared_error = 3 / 32, 31 / 128 / 7 / 8
    n = f * (1 - f) / squared_error * (2.03951 / 2.36462) ** 2  # t tables: 31 and 7 degrees of freedom
    low, high, worth = interval(rates(2, 1, 0, 0, 0, 0, 0, 0, of=4))
    assert 8 < worth < 32
    assert worth == pytest.approx(n, rel=1e-4)
    assert special.betainc(f * worth, worth - f * worth + 1, low) == pytest.approx(0.025)
    assert special.betaincc(f * worth + 1, worth - f * worth, high) == pytest.approx(0.025)


# ---- tuning


def test_tuning_drops_failures_and_keeps_the_best():
    rows = table(
        row(0, 5, parameter="0.01"),
        row(0, 9, parameter="0.1"),
        row(0, 20, failure=True, parameter="1.0"),  # the best, but it failed
        row(1, 1, parameter="0.01"),
        row(1, 2, failure=True, parameter="0.1"),
        row(1, 3, parameter="1.0"),
    )
    (found,) = tuned(rows).to_pylist()
    assert (found["cmdp"], found["parameter"], found["chosen"]) == (1, "tuned", "0.1")
    assert (found["improvement"], found["failure"]) == (2.0, True)


def test_where_all_failed_the_baseline_is_kept():
    rows = table(
        row(0, 5, failure=True, parameter="0.01"),
        row(0, 9, failure=True, parameter="0.1"),
        row(1, 1, failure=True, parameter="0.01"),
        row(1, 2, failure=True, parameter="0.1"),
        row(2, 3, parameter="0.1"),
    )
    found = tuned(rows).to_pylist()
    assert [r["cmdp"] for r in found] == [1, 2]
    for one in found:
        assert (one["improvement"], one["failure"], one["chosen"]) == (0.0, False, "baseline")
        assert (one["goal"], one["pits"]) == (500.0, -9.0)


def test_each_family_and_combination_is_tuned_by_itself():
    rows = table(
        row(0, 5, method="h-opt", parameter="published is"),
        row(0, 6, method="h-opt", parameter="published dr"),
        row(0, 9, method="h-opt", parameter="sequential is"),
        row(0, 8, method="h-opt", parameter="sequential dr"),
        row(0, 7, method="linearized", parameter="", failure=True),
        row(0, 6, method="h-opt", parameter="published is", quality=0.9),
        row(0, 5, method="h-opt", parameter="published dr", quality=0.9),
        *(
            row(1, n, method="h-opt", parameter=parameter, quality=quality)
            for n, (parameter, quality) in enumerate(
                [
                    ("published is", 0.4),
                    ("published dr", 0.4),
                    ("sequential is", 0.4),
                    ("sequential dr", 0.4),
                    ("published is", 0.9),
                    ("published dr", 0.9),
                ]
            )
        ),
        row(1, 30, method="linearized", parameter="", failure=True),
    )
    found = {
        (r["method"], r["parameter"], r["quality"]): (r["improvement"], r["chosen"]) for r in tuned(rows).to_pylist()
    }
    assert found == {
        ("h-opt", "published tuned", 0.4): (1.0, "published dr"),
        ("h-opt", "sequential tuned", 0.4): (2.0, "sequential is"),
        ("h-opt", "published tuned", 0.9): (4.0, "published is"),
        ("linearized", "", 0.4): (30.0, ""),
    }


def test_the_first_of_equals_is_chosen():
    rows = table(*(row(cmdp, 0, parameter=parameter) for cmdp in (0, 1) for parameter in ("0.01", "0.1")))
    assert tuned(rows)["chosen"].to_pylist() == ["0.01"]


@pytest.mark.parametrize("cmdps", [(0,), (1, 2)])
def test_tuning_needs_its_cmdp_and_another(cmdps):
    with pytest.raises(ParameterError, match="tuning needs rows of CMDP 0 and of at least one other"):
        tuned(table(*(row(cmdp, 1) for cmdp in cmdps)))


# ---- variants, and sweeps under way


def test_changes_are_paired():
    other = {"variant": "rewards estimated"}
    rows = table(
        row(0, 10, failure=True),
        row(1, 20),
        row(0, 13, **other),
        row(1, 18, failure=True, **other),
        row(2, 99, **other),  # without a counterpart
    )
    found = changes(rows, reference="as in the reproduction").to_pylist()
    assert [(r["cmdp"], r["improvement"], r["failure"]) for r in found] == [(0, 3.0, -1.0), (1, -2.0, 1.0)]
    with pytest.raises(ParameterError, match="'nothing'"):
        changes(rows, reference="nothing")


def test_unfinished_cmdps_are_left_out():
    jobs = [{"job": name, "settings": {"cmdp": cmdp}} for name, cmdp in (("a", 0), ("b", 0), ("c", 1), ("d", 1))]
    rows = table(row(0, 1, job="a"), row(0, 1, job="b"), row(1, 1, job="c"))
    found, done, total = finished(rows, jobs, by="cmdp")
    assert (found["job"].to_pylist(), done, total) == (["a", "b"], 1, 2)
    with pytest.raises(RunError, match="no repetition of this sweep is finished yet"):
        finished(rows.slice(0, 1), jobs, by="cmdp")
    everything = table(*rows.to_pylist(), row(1, 1, job="d"))
    assert finished(everything, jobs, by="cmdp") == (everything, 2, 2)


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
    page = gridworld_tables(study_rows(study_id), study_id)
    name, *values = line
    lines = [text.strip("| ").split(" | ") for text in page.splitlines() if text.startswith(f"| {name} |")]
    improvement, median, failure = (text for text in lines if not text[1].startswith("("))
    assert improvement[2::2] + failure[2::2] == values
    assert all("±" in ours for ours in improvement[1::2] + failure[1::2]) or study_id == "gridworld/tuned"
    assert len(median) == 5
    assert "1e-6 of its range" in page


def test_ours_are_the_summary():
    rows = table(*(row(cmdp, gain, episodes=size) for size in SIZES for cmdp, gain in ((0, 10), (1, 14))))
    page = gridworld_tables(rows, "gridworld/fixed", note="Not all of it.")
    assert "| S-OPT ε = 0.1 | 12.0 ± 2.0 | 16 | 12.0 ± 2.0 | 44 | 12.0 ± 2.0 | 117 | 12.0 ± 2.0 | 159 |" in page
    assert "Not all of it." in page


def test_tables_without_published_values():
    page = gridworld_tables(study_rows("gridworld/scaling"), "gridworld/scaling")
    assert [line for line in page.splitlines() if line.startswith("## ")] == [f"## d = {d}" for d in (2, 5, 17, 65)]
    assert "| published |" not in page
    page = gridworld_tables(study_rows("gridworld/conventions"), "gridworld/conventions")
    assert "### π* completed uniformly" in page
    with pytest.raises(ParameterError, match="gridworld/fixed"):
        gridworld_tables(table(row(0, 1)), "gridworld/fxed")


def test_b_opt_stands_against_the_others_with_intervals():
    rows = [
        row(c, 10 + 4 * c, c == 0 and size == 50, episodes=size, quality=quality, method=method, parameter=parameter)
        for c in (0, 1)
        for size in (10, 50)
        for quality in (0.1, 0.9)
        for method, parameter in (("b-opt", ""), ("g-opt", "0.1"))
    ]
    page = gridworld_tables(table(*rows), "gridworld/bopt").partition("## B-OPT against the others")[2]
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
    rows = table(
        row(0, 10), row(1, 14), row(0, 5, kinds=16), row(1, 7, kinds=16), row(0, -1, kinds=64), row(1, -1, kinds=64),
        *(row(c, gain, kinds=kinds, method="b-opt", parameter="") for kinds in (1, 16) for c, gain in ((0, -1), (1, 5))),
    )  # fmt: skip
    page = gridworld_tables(rows, "gridworld/bopt-scaling").partition("## Improvement relative to d = 2")[2]
    assert "above −2, those with more all of them above −10" in page  # another reason for a change
    assert page.count("| method | d = 2 | d = 17 | d = 65 |") == 2  # |D| = 10 and all
    # 6/12 with error √(1² + (2/2)²)/12, and −1/12 with √(0² + (2/12)²)/12; B-OPT's 2 ± 3 is no measure for anything
    assert page.count("| S-OPT ε = 0.1 | 12.0 ± 2.0 | 0.50 ± 0.12 | −0.08 ± 0.01 |") == 2
    assert page.count("| B-OPT | 2.0 ± 3.0 | – | – |") == 2
    assert "% of the best possible" not in page


def test_improvement_is_also_a_share_of_what_could_be_gained_there():
    gains = {("b-opt", 1): 18, ("b-opt", 64): 9, ("optimum", 1): 20, ("optimum", 64): 12, ("adv-linearized", 1): 5}
    rows = table(*(row(c, g, kinds=k, method=m, parameter="") for (m, k), g in gains.items() for c in (0, 1)))
    page = gridworld_tables(rows, "gridworld/bopt-scaling").partition("## Improvement relative to d = 2")[2]
    assert page.count("| Best possible | 20.0 ± 0.0 | 0.60 ± 0.00 |") == 2  # |D| = 10 and all
    assert page.count("| B-OPT | 90.0 | 75.0 |") == 2
    assert page.count("| Adv-Linearized | 25.0 | – |") == 2


def test_a_change_of_nothing_is_said_shortly():
    rows = table(*(row(c, 10 * c, variant=v) for c in (0, 1) for v in ("as in the reproduction", "up to 100 rounds")))
    assert "| S-OPT ε = 0.1 | 0 / 0 | – | – | – |" in gridworld_tables(rows, "gridworld/conventions")


def test_summary_for_spreadsheets_has_all_and_each():
    rows = study_rows("gridworld/tuned", 3)
    found = gridworld_summary(rows, "gridworld/tuned").to_pylist()
    assert {r["quality"] for r in found} == {"all", *(f"{quality:g}" for quality in QUALITIES)}
    parameters = {r["parameter"] for r in found if r["method"] == "s-opt"}
    assert {"tuned", "0.0001", "5"} <= parameters
    assert {r["cmdps"] for r in found} == {2}  # the third was tuned on
    one = next(r for r in found if r["method"] == "linearized" and r["quality"] == "all" and r["episodes"] == 10)
    of_it = [r for r in rows.to_pylist() if r["method"] == "linearized" and r["episodes"] == 10 and r["cmdp"] > 0]
    assert one["improvement"] == pytest.approx(sum(r["improvement"] for r in of_it) / len(of_it))
    assert one["experiments"] == len(of_it) == 24


# ---- published values and names


def test_published_values_are_of_methods_that_the_studies_have():
    for study_id, methods in PUBLISHED.items():
        there = {*PLANS[study_id].methods, "s-opt tuned", "h-opt published tuned"}
        assert methods.keys() <= there
        for points in methods.values():
            assert len(points) == len(SIZES)
            assert all(0.0 <= failure <= 1.0 < improvement for improvement, failure in points)


def test_methods_have_plain_names_and_looks_of_their_own():
    names = {
        "linearized": "Linearized",
        "adv-linearized": "Adv-Linearized",
        "s-opt 0.1": "S-OPT ε = 0.1",
        "s-opt tuned": "S-OPT ε tuned",
        "soft-spibb 1.0": "Soft-SPIBB ε = 1.0",
        "h-opt published dr": "H-OPT (published code)",
        "h-opt paper dr": "H-OPT (paper's rule)",
        "h-opt sequential dr": "H-OPT (valid rule)",
        "h-opt sequential cwpdis": "H-OPT (valid rule, CWPDIS)",
        "h-opt published tuned": "H-OPT (published code, tuned)",
        "lagrangian 0.01": "Lagrangian η = 0.01",
        "g-opt 1.0": "G-OPT ε = 1.0",
        "b-opt": "B-OPT",
    }
    assert {words: plain_name(words) for words in names} == names
    for plan in PLANS.values():
        drawn = [STYLES[method] for method in plan.methods if method in STYLES]
        assert len({style.marker for style in drawn}) == len({style.colour for style in drawn}) == len(drawn)
        assert plan is PLANS["gridworld/tuned"] or len(drawn) == len(plan.methods)
    with pytest.raises(AttributeError):
        replace(STYLES["linearized"]).colour = "red"


SIGHT = {
    "normal": np.eye(3),
    # what is left of linear RGB (Machado, Oliveira and Fernandes 2009, severity 1)
    "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deuteranopia": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "tritanopia": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}


def seen(colour, sight):
    """CIELAB of a colour as it is seen."""
    part = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255.0
    linear = np.clip(
        np.array(sight) @ np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4), 0.0, 1.0
    )
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    f = xyz / np.array([0.9505, 1.0, 1.089])
    f = np.where(f > 0.008856, np.cbrt(f), 7.787 * f + 16.0 / 116.0)
    return np.array([116.0 * f[1] - 16.0, 500.0 * (f[0] - f[1]), 200.0 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
def test_b_opt_and_g_opt_are_told_apart_by_everybody(sight):
    for plan in PLANS.values():
        if plan.has_b_opt:
            looks = {method: seen(STYLES[method].colour, SIGHT[sight]) for method in plan.methods}
            for ours in ("b-opt", "g-opt 0.1", "g-opt 1.0"):
                nearest = min(np.linalg.norm(looks[ours] - look) for method, look in looks.items() if method != ours)
                assert nearest > 15.0  # 2.3 is just noticeable
