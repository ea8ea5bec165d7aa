"""Exact values of policies: by hand, against a dense solve, and of large sparse models."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from bettersafe import _kernel
from bettersafe.errors import ParameterError
from bettersafe.mdp import values
from bettersafe.mdp.mdp import MDP, dense_mdp
from bettersafe.mdp.values import expected_return, occupancy, policy_values, solve_policy
from oracles import dense_values


def random_mdp(seed, n_states=30, n_actions=4, d=2, discount=(0.9, 0.99)):
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(n_states, 0.2), size=(n_states, n_actions)) * rng.uniform(
        0.5, 1.0, (n_states, n_actions, 1)
    )
    mdp = dense_mdp(
        table,
        rng.normal(size=(d, n_states, n_actions)),
        discount=discount,
        initial=rng.dirichlet(np.ones(n_states)),
    )
    return mdp, rng.dirichlet(np.ones(n_actions), size=n_states)


def tables(mdp):
    return mdp.transition.toarray().reshape(mdp.n_states, mdp.n_actions, -1), mdp.reward.reshape(
        -1, mdp.n_states, mdp.n_actions
    )


def test_two_states_by_hand():
    """0 → 1 for 1, then 1 ends for 2: v = (1 + 2γ, 2); each objective with its own γ."""
    mdp = dense_mdp([[[0.0, 1.0]], [[0.0, 0.0]]], [[[1.0], [2.0]]] * 2, discount=[0.5, 0.9], initial=[1.0, 0.0])
    v, q = policy_values(mdp, np.ones((2, 1)))
    assert v == pytest.approx(np.array([[2.0, 2.0], [2.8, 2.0]]))
    assert q == pytest.approx(v)
    assert expected_return(mdp, np.ones((2, 1))) == pytest.approx([2.0, 2.8])
    assert occupancy(mdp, np.ones((2, 1)), k=1) == pytest.approx([1.0, 0.9])


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("n", [3, 40, 2500])
def test_a_random_walk_at_discount_1(n, native, monkeypatch):
    """Feller's gambler: from x, one step up or down until 0 or n + 1, the walk takes x (n + 1 − x) steps on average."""
    if native and _kernel.compiled is None:
        pytest.skip("no compiled kernel")
    if not native:
        monkeypatch.setattr(_kernel, "compiled", None)
    x = np.arange(1, n + 1)
    walk = sparse.diags_array([np.full(n - 1, 0.5)] * 2, offsets=[-1, 1]).tocsr()
    mdp = MDP(
        n_states=n, n_actions=1, pair_state=x - 1, pair_action=np.zeros(n, dtype=np.int64), transition=walk,
        reward=[np.ones(n), np.zeros(n)], discount=[1.0, 0.5], initial=np.eye(n)[0],
    )  # fmt: skip
    found = solve_policy(mdp, np.ones((n, 1)))
    steps = x * (n + 1.0 - x)
    assert found.v[0] == pytest.approx(steps, rel=1e-7)
    assert np.max(np.abs(found.v[0] - steps)) <= found.error[0] <= 1e-4 * np.max(steps)
    assert found.v[1] == pytest.approx(np.zeros(n))
    assert float(occupancy(mdp, np.ones((n, 1))).sum()) == pytest.approx(steps[0], rel=1e-7)


@pytest.mark.parametrize("seed", range(8))
def test_values_against_a_dense_solve(seed, monkeypatch):
    mdp, policy = random_mdp(seed)
    v, q = dense_values(*tables(mdp), mdp.discount, policy)
    for kernel in (_kernel.compiled, None):
        monkeypatch.setattr(_kernel, "compiled", kernel)
        ours_v, ours_q = policy_values(mdp, policy)
        assert ours_v == pytest.approx(v, rel=1e-10, abs=1e-10)
        assert ours_q == pytest.approx(q.reshape(2, -1), rel=1e-10, abs=1e-10)


def test_values_of_a_large_sparse_model_and_the_direct_fallback(monkeypatch):
    rng = np.random.default_rng(0)
    n = 3000
    columns = rng.integers(0, n, (n, 5))
    transition = sparse.csr_array((np.full(5 * n, 0.2), columns.ravel(), np.arange(0, 5 * n + 1, 5)), shape=(n, n))
    transition.sum_duplicates()
    rhs = rng.normal(size=(1, n))
    ptr, weight = np.arange(n + 1), np.ones(n)
    v, _ = values.solve_values(ptr, weight, transition, 0.99, rhs)
    residual = rhs[0] - (v[0] - 0.99 * (transition @ v[0]))
    assert np.max(np.abs(residual)) <= 1e-12 * np.max(np.abs(v))
    monkeypatch.setattr(_kernel, "compiled", None)  # sparse LU
    assert values.solve_values(ptr, weight, transition, 0.99, rhs)[0] == pytest.approx(v, rel=1e-9, abs=1e-9)
    monkeypatch.undo()
    monkeypatch.setattr(values, "MAX_PRODUCTS", 1)  # the iteration gives up, LU takes over
    assert values.solve_values(ptr, weight, transition, 0.99, rhs)[0] == pytest.approx(v, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("n", [7, 2500, 9000])
def test_threads_do_not_change_a_bit(n):
    rng = np.random.default_rng(n)
    columns = rng.integers(0, n, (n, 6))
    transition = sparse.csr_array((np.full(6 * n, 1 / 6), columns.ravel(), np.arange(0, 6 * n + 1, 6)), shape=(n, n))
    transition.sum_duplicates()
    arguments = (np.arange(n + 1), np.ones(n), transition, 0.95, rng.normal(size=(2, n)))
    one, two, three = (values.solve_values(*arguments, threads=t)[0] for t in (1, 2, 3))
    assert np.array_equal(one, two)
    assert np.array_equal(one, three)


def test_occupancy_gives_the_return():
    """J = Σ_x ν(x) r_π(x), for every objective with its own discount."""
    mdp, policy = random_mdp(3)
    _, reward = tables(mdp)
    for k in range(2):
        visits = occupancy(mdp, policy, k)
        assert visits @ np.sum(policy * reward[k], axis=1) == pytest.approx(expected_return(mdp, policy)[k])


def test_scalar_values():
    mdp, policy = random_mdp(4, discount=(0.9, 0.9))
    weights = np.array([0.3, 2.0])
    v, q = policy_values(mdp, policy)
    scalar = solve_policy(mdp, policy, preference=weights)
    assert scalar.v[0] == pytest.approx(weights @ v)
    assert scalar.q[0] == pytest.approx(weights @ q)
    with pytest.raises(ParameterError, match="different discounts"):
        solve_policy(random_mdp(4)[0], policy, preference=weights)


@pytest.mark.parametrize("gamma", [0.5, 0.99, 0.9999, 0.999999])
def test_the_stated_error_is_an_upper_bound(gamma):
    """Against a solve in extended precision, on chains, loops and random models."""
    rng = np.random.default_rng(1)
    for table in (np.eye(40)[:, None, :], np.eye(40, k=1)[:, None, :], rng.dirichlet(np.full(40, 0.1), size=(40, 1))):
        mdp = dense_mdp(table, rng.normal(size=(1, 40, 1)) * 1e3, discount=gamma, initial=np.full(40, 1 / 40))
        values = solve_policy(mdp, np.ones((40, 1)))
        exact = np.array(values.v[0], dtype=np.longdouble)
        matrix = np.eye(40) - gamma * table[:, 0].astype(np.longdouble)
        for _ in range(20):  # refinement: the double-precision inverse is a contraction for the residual
            exact = exact + np.linalg.solve(
                np.asarray(matrix, float), np.asarray(mdp.reward[0] - matrix @ exact, float)
            )
        assert np.max(np.abs(values.v[0] - exact)) <= values.error[0]


def test_overflow_is_not_called_solved():
    v, _ = values.solve_values(np.array([0, 1]), np.ones(1), sparse.csr_array([[1.0]]), 0.9, np.array([[1e290]]))
    assert v[0, 0] == pytest.approx(1e291)


def large_rows(n, successors, *, reach=None, total=0.98, seed=0):
    """p of one pair per state, to any state or to those within ``reach``: [n, n], more than 2 M nonzeros."""
    rng = np.random.default_rng(seed)
    if reach is None:
        columns = rng.integers(0, n, (n, successors))
    else:
        columns = (np.arange(n)[:, None] + rng.integers(-reach, reach + 1, (n, successors))) % n
    share = rng.random((n, successors))
    share *= total / share.sum(axis=1, keepdims=True)
    rows = sparse.csr_array((share.ravel(), columns.ravel(), np.arange(n + 1) * successors), shape=(n, n))
    rows.sum_duplicates()
    assert rows.nnz > 2_000_000
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(("n", "successors"), [(100_001, 21), (260_000, 8)])  # directions of doubles, of floats
def test_values_of_many_states_all_rewards_at_once(n, successors, monkeypatch):
    """To rounding at every size of reward, the same bits on any number of threads, and never by the direct solver."""
    monkeypatch.setattr(values, "_solve_direct", None)
    rows = large_rows(n, successors)
    rhs = np.random.default_rng(1).normal(size=(5, n)) * np.array([1.0, 1e100, 1e-100, 0.0, 5.0])[:, None]
    rhs[4, 1:] = 0.0
    v, error = values.solve_values(np.arange(n + 1), np.ones(n), rows, 0.99, rhs, threads=2)
    for k, (value, target) in enumerate(zip(v, rhs, strict=True)):
        residual = np.max(np.abs(target - (value - 0.99 * (rows @ value))))
        assert residual <= 2e-14 * (np.max(np.abs(target)) + 2.0 * np.max(np.abs(value))), k
        assert residual <= error[k]
    assert np.all(v[3] == 0.0)
    one, _ = values.solve_values(np.arange(n + 1), np.ones(n), rows, 0.99, rhs, threads=1)
    assert np.array_equal(one, v)
    guess = v[:1] * (1.0 + 1e-9)
    again, _ = values.solve_values(np.arange(n + 1), np.ones(n), rows, 0.99, rhs[:1], guess=guess)
    assert again == pytest.approx(v[:1], rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("n", [500, 9_000])  # threads share right-hand sides; they share blocks of states
@pytest.mark.parametrize("reach", [3, 5_000])  # pairs of a state that lead to the same few states, and that do not
def test_values_of_states_with_several_pairs(n, reach, monkeypatch):
    """P_π is formed, of rows that overlap in one way, of others in another; some pairs are not played, some states have none."""
    monkeypatch.setattr(values, "_solve_direct", None)
    rng = np.random.default_rng(n + reach)
    per_state = rng.integers(0, 18, n)
    ptr = np.append(0, np.cumsum(per_state))
    n_pairs, successors = int(ptr[-1]), 12
    columns = (np.repeat(np.arange(n), per_state)[:, None] + rng.integers(-reach, reach + 1, (n_pairs, successors))) % n
    share = rng.random((n_pairs, successors))
    share *= 0.98 / share.sum(axis=1, keepdims=True)
    rows = sparse.csr_array((share.ravel(), columns.ravel(), np.arange(n_pairs + 1) * successors), shape=(n_pairs, n))
    rows.sum_duplicates()
    weight = rng.random(n_pairs) * (rng.random(n_pairs) < 0.8)
    totals = np.bincount(np.repeat(np.arange(n), per_state), weights=weight, minlength=n)
    weight /= np.repeat(np.where(totals > 0.0, totals, 1.0), per_state)
    rhs = rng.normal(size=(7, n))
    rhs[2] = 0.0
    v, error = values.solve_values(ptr, weight, rows, 0.99, rhs, threads=1)
    residual = np.max(np.abs(rhs - v + 0.99 * (values.policy_matrix(ptr, weight, rows) @ v.T).T), axis=1)
    assert np.all(residual <= 2e-14 * (np.max(np.abs(rhs), axis=1) + 2.0 * np.max(np.abs(v), axis=1)))
    assert np.all(residual <= error)
    assert np.all(v[2] == 0.0)
    for threads in (2, 3):
        assert np.array_equal(values.solve_values(ptr, weight, rows, 0.99, rhs, threads=threads)[0], v)


def test_values_where_states_only_lead_to_near_ones(monkeypatch):
    """Slow for every iteration: hundreds of products, which the direct solver must not have to take over."""
    monkeypatch.setattr(values, "_solve_direct", None)
    n = 260_000
    rows = large_rows(n, 10, reach=100)
    rhs = np.random.default_rng(1).normal(size=(2, n))
    v, _ = values.solve_values(np.arange(n + 1), np.ones(n), rows, 0.99, rhs)
    residual = np.max(np.abs(rhs - (v - 0.99 * (rows @ v.T).T)))
    assert residual <= 2e-14 * (np.max(np.abs(rhs)) + 2.0 * np.max(np.abs(v)))


@pytest.mark.parametrize("m", [1, 2, 3])
def test_values_of_pairs_are_the_same_with_and_without_the_kernel(m, monkeypatch):
    rng = np.random.default_rng(m)
    rows = sparse.random_array((7000, 900), density=0.02, rng=rng, format="csr")
    discount, reward, v = rng.random(m), rng.normal(size=(m, 7000)), rng.normal(size=(m, 900))
    found = [values.pair_values(rows, discount, reward, v, threads=threads) for threads in (None, 1, 3)]
    monkeypatch.setattr(_kernel, "compiled", None)
    slow = values.pair_values(rows, discount, reward, v)
    assert slow == pytest.approx(reward + discount[:, None] * (rows.toarray() @ v.T).T)
    assert all(np.array_equal(each, slow) for each in found)
