"""Policies as tables: what is checked, and rounding."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.errors import PolicyError
from bettersafe.mdp.policy import check_policy


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([[1.0, 0.0]], r"shape \[2, 2\]"),
        ([[1.0, 0.0], [0.5, 0.4]], "state sick sum to 0.9"),
        ([[1.0, 0.0], [1.5, -0.5]], r"outside \[0, 1\] in state sick"),
        ([[1.0, 0.0], [np.nan, 1.0]], "state sick"),
        ([[0.2, 0.2], [0.3, 0.3]], "1 more states like it"),
    ],
)
def test_bad_policies_name_the_state(policy, message):
    with pytest.raises(PolicyError, match=message):
        check_policy(policy, 2, 2, state_labels=["well", "sick"])


def test_rounding_in_policies():
    exact = np.array([[0.1, 0.2, 0.7], [1 / 3, 1 / 3, 1 / 3]])
    assert np.array_equal(check_policy(exact, 2, 3), exact)  # bits kept
    loose = check_policy([[0.3333, 0.3333, 0.3334], [0.5, 0.5, 1e-7]], 2, 3)
    assert loose.sum(axis=1) == pytest.approx(1.0, abs=1e-15)
