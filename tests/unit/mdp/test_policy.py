"""Policies as tables: what is checked, and rounding."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.errors import PolicyError
from bettersafe.mdp.policy import check_policy, rounding_note, sum_tolerance


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


@pytest.mark.parametrize("n_actions", [2, 10, 100, 1000])
@pytest.mark.parametrize("cut_off", [False, True])
def test_probabilities_with_six_decimals_are_accepted(n_actions, cut_off):
    """Rounded or cut off, whatever the number of actions; what is further off than that is not."""
    exact = np.random.default_rng(0).dirichlet(np.ones(n_actions), size=50)
    six = (np.floor if cut_off else np.round)(exact * 1e6) / 1e6
    policy = check_policy(six, 50, n_actions)
    assert policy.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    assert np.abs(policy - exact).max() <= sum_tolerance(n_actions)
    assert check_policy(exact.astype(np.float32), 50, n_actions) == pytest.approx(exact, abs=1e-7)
    wrong = exact.copy()
    wrong[7] *= 1.0 + 2.0 * sum_tolerance(n_actions)
    with pytest.raises(PolicyError, match=r"state 7 sum to 1\.0"):
        check_policy(wrong, 50, n_actions)


def test_rows_that_sum_to_one_keep_their_bits_beside_rounded_ones():
    table = np.array([[0.1, 0.2, 0.7], [0.333333, 0.333333, 0.333333]])
    policy = check_policy(table, 2, 3)
    assert np.array_equal(policy[0], table[0])
    assert policy[1] == pytest.approx(1 / 3, abs=1e-15)


def test_the_note_on_rounding():
    assert rounding_note("in b.csv", np.array([1.0, 1.0 + 1e-12])) == ()
    assert rounding_note("in b.csv", np.array([1.0, 0.999997, 1.000001])) == (
        "the probabilities in b.csv are rounded: their sum differs from 1 by up to 3e-06, in 2 of 3 states. They were scaled to"
        " sum to 1",
    )
