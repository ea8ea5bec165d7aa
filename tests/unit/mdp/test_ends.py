"""Policies that end: by hand, and against spectral radii of random processes."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.errors import ParameterError, PolicyError
from bettersafe.mdp.constrained import cmdp_optimum, optimal_policy
from bettersafe.mdp.ends import check_ends, ending, endless_states
from bettersafe.mdp.mdp import MDP, dense_mdp
from bettersafe.mdp.values import policy_values


def wait_or_go(discount=1.0):
    """States a and b; "wait" stays and pays 1, "go" leads from a to b, and from b to the end."""
    table = [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 0.0]]]
    return dense_mdp(table, [[[1.0, 0.0], [1.0, 0.0]]], discount=discount, initial=[1.0, 0.0])


WAIT, GO = np.array([1.0, 0.0]), np.array([0.0, 1.0])


def test_states_that_never_end_by_hand():
    mdp = wait_or_go()

    def found(*rows):
        return endless_states(mdp, np.array(rows).take(mdp.pair_index)).tolist()

    assert found(GO, GO) == []
    assert found(WAIT, GO) == [0]
    assert found(GO, WAIT) == [0, 1]
    assert found(GO, [0.5, 0.5]) == []
    assert found([1.0 - 1e-9, 1e-9], GO) == [0]  # it would take a billion steps


def test_a_pair_without_data_and_a_state_without_pairs_end():
    mdp = MDP(
        n_states=2, n_actions=2, pair_state=np.zeros(1, dtype=np.int64), pair_action=np.zeros(1, dtype=np.int64),
        transition=[[0.5, 0.5]], reward=[[1.0]], discount=[1.0], initial=[1.0, 0.0],
    )  # fmt: skip
    assert endless_states(mdp, np.array([1.0])).size == 0
    v, _ = policy_values(mdp, [[1.0, 0.0], [1.0, 0.0]])
    assert v == pytest.approx(np.array([[2.0, 0.0]]))


@pytest.mark.parametrize("block", range(4))
def test_against_spectral_radii(block):
    """A policy ends if and only if the spectral radius of P_π is below 1; rows of one that ends make any policy end."""
    mended = 0
    for seed in range(50 * block, 50 * (block + 1)):
        rng = np.random.default_rng(seed)
        n, a = int(rng.integers(2, 7)), 2
        table = rng.dirichlet(np.full(n, 0.3), size=(n, a)) * (rng.random((n, a, n)) < 0.6)
        full = table.sum(axis=2, keepdims=True)
        keeps = rng.random((n, a, 1)) < 0.8  # the other pairs may end
        table = np.where(full > 0.0, table / np.where(full > 0.0, full, 1.0), 0.0) * np.where(keeps, 1.0, 0.7)
        mdp = dense_mdp(table, np.zeros((1, n, a)), discount=1.0, initial=np.full(n, 1.0 / n))
        one, other = (np.eye(a)[rng.integers(0, a, n)] for _ in range(2))

        def radius(policy, table=table):
            return float(np.max(np.abs(np.linalg.eigvals(np.einsum("xa,xay->xy", policy, table)))))

        for policy in (one, other):
            states = endless_states(mdp, policy.take(mdp.pair_index))
            assert (states.size == 0) == (radius(policy) < 1.0 - 1e-9)
        proper = other if radius(other) < 1.0 - 1e-9 else np.full((n, a), 0.5)
        if radius(proper) < 1.0 - 1e-9:
            both = ending(mdp, one, proper)
            assert radius(both) < 1.0 - 1e-12
            assert (both is one) == (radius(one) < 1.0 - 1e-9)
            mended += both is not one
    assert mended > 3


def test_a_policy_that_does_not_end_is_refused_by_name():
    labels = np.array(["calm", "ill"])
    waits = np.array([GO, WAIT])
    with pytest.raises(PolicyError, match=r"the baseline never reaches an end from state 'calm' \(and 1 more states"):
        check_ends(wait_or_go(), waits, name="the baseline", state_labels=labels)
    check_ends(wait_or_go(), np.array([GO, GO]), name="the baseline", state_labels=labels)
    check_ends(wait_or_go(0.9), waits, name="the baseline", state_labels=labels)
    with pytest.raises(PolicyError, match="with discount 1 the policy must end: it never reaches an end from state 0"):
        policy_values(wait_or_go(), waits)
    with pytest.raises(ParameterError, match=r"the constrained optimum needs discounts below 1; got \[1.0\]"):
        cmdp_optimum(wait_or_go(), [])
    with pytest.raises(ParameterError, match="needs discounts below 1"):
        optimal_policy(wait_or_go(), [1.0])
