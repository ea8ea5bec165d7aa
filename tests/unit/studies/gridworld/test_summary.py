"""Tuning on other CMDPs and paired changes, by hand."""

from __future__ import annotations

import pytest

from bettersafe.errors import ParameterError
from bettersafe.studies.gridworld.summary import changes, tuned
from study_rows import gridworld_row, rows_table


# ---- tuning
def test_tuning_drops_failures_and_keeps_the_best():
    rows = rows_table(
        gridworld_row(0, 5, parameter="0.01"),
        gridworld_row(0, 9, parameter="0.1"),
        gridworld_row(0, 20, failure=True, parameter="1.0"),  # the best, but it failed
        gridworld_row(1, 1, parameter="0.01"),
        gridworld_row(1, 2, failure=True, parameter="0.1"),
        gridworld_row(1, 3, parameter="1.0"),
    )
    (found,) = tuned(rows).to_pylist()
    assert (found["cmdp"], found["parameter"], found["chosen"]) == (1, "tuned", "0.1")
    assert (found["improvement"], found["failure"]) == (2.0, True)


def test_where_all_failed_the_baseline_is_kept():
    rows = rows_table(
        gridworld_row(0, 5, failure=True, parameter="0.01"),
        gridworld_row(0, 9, failure=True, parameter="0.1"),
        gridworld_row(1, 1, failure=True, parameter="0.01"),
        gridworld_row(1, 2, failure=True, parameter="0.1"),
        gridworld_row(2, 3, parameter="0.1"),
    )
    found = tuned(rows).to_pylist()
    assert [r["cmdp"] for r in found] == [1, 2]
    for one in found:
        assert (one["improvement"], one["failure"], one["chosen"]) == (0.0, False, "baseline")
        assert (one["goal"], one["pits"]) == (500.0, -9.0)


def test_each_family_and_combination_is_tuned_by_itself():
    rows = rows_table(
        gridworld_row(0, 5, method="h-opt", parameter="published is"),
        gridworld_row(0, 6, method="h-opt", parameter="published dr"),
        gridworld_row(0, 9, method="h-opt", parameter="sequential is"),
        gridworld_row(0, 8, method="h-opt", parameter="sequential dr"),
        gridworld_row(0, 7, method="linearized", parameter="", failure=True),
        gridworld_row(0, 6, method="h-opt", parameter="published is", quality=0.9),
        gridworld_row(0, 5, method="h-opt", parameter="published dr", quality=0.9),
        *(
            gridworld_row(1, n, method="h-opt", parameter=parameter, quality=quality)
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
        gridworld_row(1, 30, method="linearized", parameter="", failure=True),
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
    rows = rows_table(
        *(gridworld_row(cmdp, 0, parameter=parameter) for cmdp in (0, 1) for parameter in ("0.01", "0.1"))
    )
    assert tuned(rows)["chosen"].to_pylist() == ["0.01"]


@pytest.mark.parametrize("cmdps", [(0,), (1, 2)])
def test_tuning_needs_its_cmdp_and_another(cmdps):
    with pytest.raises(ParameterError, match="tuning needs rows of CMDP 0 and of at least one other"):
        tuned(rows_table(*(gridworld_row(cmdp, 1) for cmdp in cmdps)))


# ---- variants, and sweeps under way
def test_changes_are_paired():
    other = {"variant": "rewards estimated"}
    rows = rows_table(
        gridworld_row(0, 10, failure=True),
        gridworld_row(1, 20),
        gridworld_row(0, 13, **other),
        gridworld_row(1, 18, failure=True, **other),
        gridworld_row(2, 99, **other),  # without a counterpart
    )
    found = changes(rows, reference="as in the reproduction").to_pylist()
    assert [(r["cmdp"], r["improvement"], r["failure"]) for r in found] == [(0, 3.0, -1.0), (1, -2.0, 1.0)]
    with pytest.raises(ParameterError, match="'nothing'"):
        changes(rows, reference="nothing")


def test_one_choice_for_all_sizes_as_in_the_paper():
    """0.1 is best on average among those that failed at no size; with a choice for each size, 0.01 is best at 10 and 1.0 at 50."""
    given = {10: {"0.01": 6, "0.1": 5, "1.0": 4}, 50: {"0.01": 1, "0.1": 8, "1.0": 9}}
    rows = rows_table(
        *(
            gridworld_row(0, gain, parameter=parameter, episodes=size, failure=(parameter, size) == ("1.0", 10))
            for size, gains in given.items()
            for parameter, gain in gains.items()
        ),
        *(
            gridworld_row(1, gain + 100, parameter=parameter, episodes=size)
            for size, gains in given.items()
            for parameter, gain in gains.items()
        ),
    )
    once = {r["episodes"]: (r["parameter"], r["chosen"], r["improvement"]) for r in tuned(rows, once=True).to_pylist()}
    assert once == {10: ("tuned once", "0.1", 105.0), 50: ("tuned once", "0.1", 108.0)}
    each = {r["episodes"]: (r["parameter"], r["chosen"], r["improvement"]) for r in tuned(rows).to_pylist()}
    assert each == {10: ("tuned", "0.01", 106.0), 50: ("tuned", "1.0", 109.0)}


def test_where_every_parameter_failed_somewhere_the_baseline_is_kept_at_all_sizes():
    rows = rows_table(
        *(
            gridworld_row(cmdp, 5, parameter="0.1", episodes=size, failure=size == 10 and cmdp == 0)
            for cmdp in (0, 1)
            for size in (10, 50)
        )
    )
    found = tuned(rows, once=True).to_pylist()
    assert [(r["episodes"], r["chosen"], r["improvement"]) for r in found] == [
        (10, "baseline", 0.0),
        (50, "baseline", 0.0),
    ]
