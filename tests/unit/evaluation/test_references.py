"""Simple policies to compare with."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.evaluation.references import reference_policies, reference_rows
from bettersafe.logs.dataset import take_episodes
from bettersafe.mdp.values import expected_return
from evaluation_cases import held_out_case


def test_policies_stay_where_the_baseline_is():
    found = reference_policies(np.array([[0.2, 0.8, 0.0], [0.4, 0.3, 0.3]]))
    assert np.allclose(found["uniform"], [[0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    assert np.array_equal(found["most frequent action"], [[0, 1, 0], [1, 0, 0]])


def test_rows_are_close_to_the_truth():
    truth, baseline, _, _, held_out, _ = held_out_case(episodes=4000)
    rows = reference_rows(held_out, baseline, delta=0.01)
    for i, policy in enumerate(reference_policies(baseline).values()):
        for row, value in zip(rows[2 * i : 2 * i + 2], expected_return(truth, policy), strict=True):
            assert row["low"] <= value <= row["high"]
            assert row["usable"]
            assert row["level"] == pytest.approx(0.99)
    assert [row["policy"] for row in rows] == ["uniform"] * 2 + ["most frequent action"] * 2
    assert reference_rows(take_episodes(held_out, [0]), baseline, delta=0.1) == []
