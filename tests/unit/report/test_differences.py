"""Where a policy differs: actions as grids, averaged over visits."""

from __future__ import annotations

import numpy as np

from bettersafe.report import differences
from toy_runs import toy_run


def test_grids_are_told_from_labels_or_the_task():
    def grid(labels, shape=None):
        return differences.action_grid(np.array(labels), shape)

    found = grid(["iv0/vaso0", "iv0/vaso1", "iv1/vaso0", "iv1/vaso1"])
    assert (found.names, found.rows, found.columns) == (("iv", "vaso"), ("0", "1"), ("0", "1"))
    assert found.place == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert grid(["iv2 vaso10", "iv2 vaso9", "iv3 vaso9"]).columns == ("9", "10")  # as numbers, not as text
    assert grid(["(0, 1)", "(0, 2)", "(4, 1)", "(4, 2)"]).rows == ("0", "4")
    assert grid(["0-10", "10-20", "20-30", "30-40"]) is None  # ranges
    assert grid(["0.5", "1.5", "0.1", "1.1"]) is None  # numbers
    assert grid(["a0/b0", "a0/b1", "a1/b0", "c1/b1"]) is None
    assert grid(["wait", "treat"]) is None
    assert grid([0, 1, 2, 3, 4, 5]) is None
    found = grid([0, 1, 3, 5], {"fluid": 2, "vasopressor": 3})
    assert found.names == ("fluid", "vasopressor")
    assert found.place == ((0, 0), (0, 1), (1, 0), (1, 2))
    assert grid([0, 6], {"fluid": 2, "vasopressor": 3}) is None
    assert grid([0, 1], {"fluid": 20, "vasopressor": 20}) is not None
    assert grid([0, 1], {"fluid": 10**6, "vasopressor": 10**6}) is None  # too many cells to read, or to store


def test_a_grid_shows_the_average_over_visits():
    run = toy_run(states=("a", "b"), actions=("iv0/vaso0", "iv0/vaso1", "iv1/vaso0", "iv1/vaso1"))
    visits = [7 * (1 + 2 + 3 + 4), 7 * (5 + 6 + 7 + 8)]
    expected = [sum(v * run.proposal[x, a] for x, v in enumerate(visits)) / sum(visits) for a in range(4)]
    np.testing.assert_allclose(differences.action_use(run)[1], expected)
    tables = differences.grid_tables(differences.action_grid(run.action_labels, None), *differences.action_use(run))
    assert tables[1]["cells"][1][1]["text"] == f"{100 * expected[3]:.1f}"
    assert tables[2]["cells"][0][0]["text"] == "−12.5"
    assert tables[2]["cells"][0][0]["level"] == -20
