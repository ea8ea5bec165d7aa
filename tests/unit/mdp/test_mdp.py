"""MDPs as arrays: what is checked, and what is not stored."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from bettersafe.errors import ParameterError
from bettersafe.mdp.mdp import MDP, dense_mdp, dense_q
from bettersafe.mdp.values import policy_values


def test_a_pair_that_is_not_stored_is_worth_its_unseen_value():
    """Action 1 was never tried; half of the policy goes there: v = ½·4 + ½·10."""
    mdp = MDP(
        n_states=1, n_actions=2, pair_state=[0], pair_action=[0], transition=sparse.csr_array((1, 1)), reward=[[4.0]],
        discount=[0.9], initial=[1.0], unseen_value=[[10.0]],
    )  # fmt: skip
    v, q = policy_values(mdp, np.array([[0.5, 0.5]]))
    assert v[0] == pytest.approx([7.0])
    assert dense_q(mdp, q)[0] == pytest.approx(np.array([[4.0, 10.0]]))


def good():
    return {
        "n_states": 2, "n_actions": 2, "pair_state": [0, 1], "pair_action": [0, 1], "transition": sparse.csr_array(np.eye(2)),
        "reward": [[1.0, 2.0]], "discount": [0.9], "initial": [1.0, 0.0],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pair_state": [0, 1, 1]}, "2 pairs, but pair_state has shape"),
        ({"pair_state": [0, 5]}, "pair_state must be from 0 to 1; got 5"),
        ({"pair_state": [1, 0]}, "sorted by state"),
        ({"transition": sparse.csr_array(np.ones((2, 3)))}, r"\[pairs, states\] = \[2, 2\]"),
        (
            {"transition": sparse.csr_array(np.array([[0.5, 0.6], [0.0, 1.0]]))},
            "state 0, action 0 .* sum to 1.1",
        ),
        ({"transition": sparse.csr_array(np.array([[0.5, 0.5], [-0.5, 1.0]]))}, "state 1, action 1"),
        ({"reward": [[1.0, np.nan]]}, "reward 0 of state 1, action 1 is not finite"),
        ({"discount": [1.1]}, "discount of objective 0 must be in"),
        ({"initial": [0.5, 0.4]}, "initial must be a distribution over 2 states; it sums to 0.9"),
        ({"unseen_value": [[0.0]]}, "unseen_value"),
    ],
)
def test_bad_mdps_are_refused(change, message):
    MDP(**good())
    with pytest.raises(ParameterError, match=message):
        MDP(**{**good(), **change})


def test_dense_shapes_are_checked():
    with pytest.raises(ParameterError, match=r"\[X, A, X\]"):
        dense_mdp(np.zeros((2, 2)), np.zeros((1, 2, 2)), discount=0.9, initial=[1, 0])
    with pytest.raises(ParameterError, match=r"\[d, 2, 1\]"):
        dense_mdp(np.zeros((2, 1, 2)), np.zeros((2, 2)), discount=0.9, initial=[1, 0])


def test_arrays_are_read_only():
    mdp = MDP(**good())
    for array in (mdp.reward, mdp.pair_state, mdp.transition.data, mdp.initial):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
