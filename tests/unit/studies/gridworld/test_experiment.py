"""The gridworld study's experiments: the same H-OPT as the library's, the same rows from the same settings."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.studies.gridworld.experiment import experiment
from bettersafe.studies.gridworld.plan import PLANS, VARIANTS
from study_rows import gridworld_job


def test_rows_say_what_happened(small):
    rows = experiment(gridworld_job("gridworld/fixed"))
    assert len(rows) == 2 * 3 * len(PLANS["gridworld/fixed"].methods)
    assert rows == experiment(gridworld_job("gridworld/fixed"))
    for row in rows:
        gains = (row["goal"] - row["goal_baseline"], row["pits"] - row["pits_baseline"])
        weights = [float(w) for w in row["preference"].split(",")]
        assert row["improvement"] == pytest.approx(weights[0] * gains[0] + weights[1] * gains[1])
        assert row["failure"] == (gains[0] < -1.1e-3 or gains[1] < -1e-4)
    assert {row["failure"] for row in rows} == {True, False}
    other = experiment(gridworld_job("gridworld/fixed", seed=1))
    assert [row["improvement"] for row in other] != [row["improvement"] for row in rows]


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_every_convention_changes_something_and_only_what_it_says(small, variant):
    methods = ["linearized", "adv-linearized", "s-opt 1.0", "h-opt paper dr"]
    base, changed = (
        experiment(gridworld_job("gridworld/conventions", variant=name, methods=methods))
        for name in ("as in the reproduction", variant)
    )
    same = [r["improvement"] for r in base] == [r["improvement"] for r in changed]
    if variant != "up to 100 rounds":  # policy iteration may have settled before
        assert same is (variant == "as in the reproduction")
    if variant != "π* completed uniformly":
        assert [r["goal_baseline"] for r in base] == [r["goal_baseline"] for r in changed]


def test_many_objectives_and_the_lagrangian(small):
    rows = experiment(gridworld_job("gridworld/scaling", kinds=4, methods=["s-opt 1.0", "h-opt sequential dr"]))
    assert {row["preference"] for row in rows} == {"1,0"}
    assert all(np.isfinite(row["pits"]) for row in rows)
    rows = experiment(gridworld_job("gridworld/lagrangian", methods=["lagrangian 0.01"], preferences=["1,1"]))
    assert [row["parameter"] for row in rows] == ["0.01", "0.01"]
