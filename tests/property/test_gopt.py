"""G-OPT against its program written out over (ρ, p, n), random policies, S-OPT, and its two engines against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from bettersafe.errors import ParameterError
from bettersafe.gopt import g_opt, g_opt_path
from bettersafe.improve import linearized, s_opt, soft_spibb
from bettersafe.mdp import MDP, dense_mdp
from bettersafe.model import Model, error_bound_q
from oracles import TOLERANCES, dense_values

ENGINES = ("lp", "multipliers")
EPSILONS = (0.0, 0.05, 0.5, 2.0, 20.0, math.inf)


def make_model(counts, table, reward, unseen_value, discount, initial):
    """The model of dense tables: [X, A], [X, A, X], [d, X, A], [d, X]; pairs without counts are not stored."""
    d, n_states, n_actions = reward.shape
    x, a = np.nonzero(counts)
    mdp = MDP(
        n_states=n_states, n_actions=n_actions, pair_state=x, pair_action=a, transition=sparse.csr_array(table[x, a]),
        reward=reward[:, x, a], discount=np.full(d, discount), initial=initial, unseen_value=unseen_value,
    )  # fmt: skip
    return Model(
        mdp=mdp, counts=counts[x, a], error=error_bound_q(counts[x, a], n_states, n_actions, d, 0.1), error_kind="q",
        delta=0.1, unseen="end", state_labels=np.arange(n_states), action_labels=np.arange(n_actions),
        objectives=tuple(f"r{k}" for k in range(d)),
    )  # fmt: skip


def random_problem(seed, d=None):
    """A small model with pairs never tried, ties, scales 1e-3 … 1e3, rare states, and its dense tables."""
    rng = np.random.default_rng(seed)
    n_states, n_actions = int(rng.integers(2, 9)), int(rng.integers(2, 5))
    d = 1 + seed % 5 if d is None else d
    counts = rng.integers(0, 60, (n_states, n_actions)) * (rng.random((n_states, n_actions)) < 0.85)
    counts[rng.random(n_states) < 0.1] = 0  # a state with no action tried
    table = np.zeros((n_states, n_actions, n_states))
    for x, a in zip(*np.nonzero(counts), strict=True):
        outcomes = rng.multinomial(counts[x, a], rng.dirichlet(np.full(n_states + 1, 0.3)))
        table[x, a] = outcomes[:n_states] / counts[x, a]  # the last outcome terminates
    reward = rng.normal(size=(d, n_states, n_actions))
    if rng.random() < 0.3:
        reward = np.round(reward)  # ties
    if d > 2 and rng.random() < 0.3:
        reward[1] = 0.0  # nothing moves it
        reward[2] = -reward[0]
    scale = 10.0 ** rng.uniform(-3, 3, d) if rng.random() < 0.5 else np.ones(d)
    reward *= scale[:, None, None]
    unseen_value = scale[:, None] * rng.normal(size=(d, n_states)) * rng.choice([0.0, 1.0, 10.0])
    dense_reward = np.where(counts > 0, reward, unseen_value[:, :, None])
    discount = float(rng.choice([0.0, 0.5, 0.9, 0.99]))
    baseline = rng.dirichlet(np.ones(n_actions), size=n_states)
    baseline[rng.random((n_states, n_actions)) < 0.2] = 0.0
    baseline[baseline.sum(axis=1) == 0.0, 0] = 1.0
    baseline /= baseline.sum(axis=1, keepdims=True)
    if rng.random() < 0.2:
        baseline = np.eye(n_actions)[np.argmax(baseline, axis=1)]
    initial = rng.dirichlet(np.ones(n_states)) if rng.random() < 0.5 else np.eye(n_states)[0]
    preference = np.append(1.0, rng.choice([0.0, 0.5, 1.0], d - 1)) / scale
    model = make_model(counts, table, dense_reward, unseen_value, discount, initial)
    error = np.full((n_states, n_actions), math.inf)
    error[counts > 0] = model.error
    return model, baseline, preference, (table, dense_reward, discount, initial, error)


def slow_g_opt(table, reward, discount, initial, baseline, error, preference, epsilon, margin):
    """The largest Σ ρ r_λ, and whether there is one: the program from the formulas, over ρ, p, n, each [X·A].

    Pairs never tried are pairs like any other here, with nowhere to go. Rows are in units of the objectives' size.
    """
    d, n_states, n_actions = reward.shape
    n = n_states * n_actions
    owner = np.kron(np.eye(n_states), np.ones((1, n_actions)))  # [X, X·A]
    share = baseline.reshape(n, 1) * owner.T @ owner  # ρ -> π_b(a|x) ρ(x)
    unit = np.maximum(np.max(np.abs(reward), axis=(1, 2)), 1e-300)
    r = reward.reshape(d, n) / unit[:, None]
    v, _ = dense_values(table, reward, np.full(d, discount), baseline)
    e = error.reshape(n)
    fixed = np.zeros(n, dtype=bool) if math.isinf(epsilon) else ~np.isfinite(e) | ((epsilon == 0.0) & (e > 0.0))
    upper = np.concatenate([np.full(n, np.inf), *2 * [np.where(fixed, 0.0, np.inf)]])
    inequality, limit = [np.hstack([-r, np.zeros((d, 2 * n))])], [-(v @ initial + margin) / unit]
    if math.isfinite(epsilon):
        cost = np.where(fixed, 0.0, e) * owner
        inequality.append(np.hstack([-epsilon * owner, cost, cost]))
        limit.append(np.zeros(n_states))
    weights = preference * unit
    answer = linprog(
        np.append(-weights @ r, np.zeros(2 * n)) / weights.max(),
        A_ub=np.vstack(inequality),
        b_ub=np.concatenate(limit),
        A_eq=np.vstack(
            [
                np.hstack([owner - discount * table.reshape(n, n_states).T, np.zeros((n_states, 2 * n))]),
                np.hstack([np.eye(n) - share, -np.eye(n), np.eye(n)]),
            ]
        ),
        b_eq=np.concatenate([initial, np.zeros(n)]),
        bounds=np.column_stack([np.zeros(3 * n), upper]),
        method="highs-ipm",
        options=TOLERANCES,
    )
    assert answer.status in (0, 2), answer.message
    return -answer.fun * weights.max() if answer.status == 0 else None


def sizes_of(tables):
    """Largest |J_k| there can be, about, shape [d]."""
    _, reward, discount, _, _ = tables
    return np.maximum(np.max(np.abs(reward), axis=(1, 2)) / (1.0 - discount), 1e-300)


def check_rows(result, tables, margin):
    """Returns are those of the policy; budget, frozen pairs, distributions and margins are kept."""
    table, reward, discount, initial, error = tables
    size = sizes_of(tables)
    v, _ = dense_values(table, reward, np.full(reward.shape[0], discount), result.policy)
    assert np.all(np.abs(v @ initial - result.policy_return) <= 1e-9 * size)
    assert np.all(result.policy >= 0.0)
    assert np.allclose(result.policy.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    if math.isfinite(result.epsilon):
        frozen = ~np.isfinite(error)
        assert np.array_equal(result.policy[frozen], result.baseline[frozen])
        spent = np.where(frozen, 0.0, error) * np.abs(result.policy - result.baseline)
        assert np.all(spent.sum(axis=1) <= result.epsilon * (1.0 + 1e-9) + 1e-12)
    if not result.reason:
        assert np.all(result.policy_return >= result.baseline_return + margin - 1e-8 * size)
    else:
        assert np.array_equal(result.policy, result.baseline)


def compare(seed, d=None):
    model, baseline, preference, tables = random_problem(seed, d)
    table, reward, discount, initial, error = tables
    size = sizes_of(tables)
    rng = np.random.default_rng([seed, 1])
    epsilon = EPSILONS[seed % len(EPSILONS)]
    free = soft_spibb(model, baseline, preference=preference, epsilon=epsilon)
    gain = free.policy_return - free.baseline_return
    gain[gain < 1e-6 * size] = 0.0  # a margin of nothing but rounding is no margin
    for margin in (np.zeros(reward.shape[0]), gain * rng.choice([0.0, 0.3, 1.5], reward.shape[0])):
        best = slow_g_opt(table, reward, discount, initial, baseline, error, preference, epsilon, margin)
        for engine in ENGINES:
            result = g_opt(
                model, baseline, preference=preference, epsilon=epsilon, margin=margin, engine=engine
            )
            assert (result.method, result.engine, result.converged) == ("g-opt", engine, True)
            check_rows(result, tables, margin)
            assert bool(result.reason) == (best is None), (seed, engine, result.status)
            if best is not None:
                reached = float(preference @ result.policy_return)
                assert abs(reached - best) <= 1e-7 * float(preference @ size), (seed, engine, epsilon, reached, best)
                assert result.gap <= 1e-7 * float(preference @ size)


@pytest.mark.parametrize("block", range(4))
def test_against_the_program_written_out(block):
    for seed in range(30 * block, 30 * (block + 1)):
        compare(seed)


@pytest.mark.parametrize("d", [17, 65])
def test_many_objectives(d):
    for seed in range(5):
        compare(seed, d)


@pytest.mark.long
@pytest.mark.parametrize("block", range(40))
def test_against_the_program_written_out_long(block):
    for seed in range(10_000 + 30 * block, 10_000 + 30 * (block + 1)):
        compare(seed)
