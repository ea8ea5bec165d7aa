"""The Lagrangian baseline against the constrained optimum by HiGHS, a slow twin by enumeration, and its own theory."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import softmax

from bettersafe.mdp.mdp import MDP, dense_mdp
from bettersafe.methods.lagrangian import lagrangian, mixture_return
from bettersafe.methods.s_opt import linearized
from bettersafe.model import Model
from oracles import TOLERANCES, dense_values

GAMMA = 0.8


def random_model(seed, d, *, n_states=None, n_actions=None, size=1.0):
    """A small model with pairs never tried (they end with reward 0), a baseline, λ, and the dense tables."""
    rng = np.random.default_rng(seed)
    n_states = n_states or int(rng.integers(2, 9))
    n_actions = n_actions or int(rng.integers(2, 5))
    seen = rng.random((n_states, n_actions)) < 0.8
    seen[:, 0] = True
    table = rng.dirichlet(np.full(n_states + 1, 0.3), size=(n_states, n_actions))[:, :, :n_states] * seen[:, :, None]
    reward = rng.normal(size=(d, n_states, n_actions)) * seen * size
    initial = rng.dirichlet(np.ones(n_states))
    x, a = np.nonzero(seen)
    mdp = MDP(
        n_states=n_states, n_actions=n_actions, pair_state=x, pair_action=a, transition=sparse.csr_array(table[x, a]),
        reward=reward[:, x, a], discount=np.full(d, GAMMA), initial=initial,
    )  # fmt: skip
    model = Model(
        mdp=mdp, counts=np.ones(x.size, dtype=np.int64), error=np.ones(x.size), error_kind="q", delta=0.1, unseen="end",
        state_labels=np.arange(n_states), action_labels=np.arange(n_actions), objectives=tuple(map(str, range(d))),
    )  # fmt: skip
    baseline = rng.dirichlet(np.ones(n_actions), size=n_states)
    preference = rng.choice([0.0, 0.5, 1.0], d)
    preference[rng.integers(d)] = 1.0
    return model, baseline, preference, (table, reward, initial)


def returns_of(tables, policy):
    table, reward, initial = tables
    return dense_values(table, reward, np.full(reward.shape[0], GAMMA), policy)[0] @ initial


def constrained_optimum(tables, preference, floor):
    """max J_λ s.t. J_k ≥ floor_k, over occupancies ρ(x,a), by HiGHS: its value and Σ of its multipliers."""
    table, reward, initial = tables
    n_states, n_actions, _ = table.shape
    flow = np.repeat(np.eye(n_states), n_actions, axis=1) - GAMMA * table.reshape(-1, n_states).T
    size = np.max(np.abs(reward))
    pay = reward.reshape(reward.shape[0], -1) / size
    answer = linprog(
        -(preference @ pay), A_ub=-pay, b_ub=-floor / size, A_eq=flow, b_eq=initial, method="highs-ds", options=TOLERANCES
    )  # fmt: skip
    assert answer.status == 0, answer.message
    return -answer.fun * size, float(np.sum(-answer.ineqlin.marginals))


def check_against_the_optimum(mixture, tables, preference, norm, eta):
    """What must hold of any run: weak duality, the regret bound of exponentiated gradient, the bookkeeping."""
    floor = returns_of(tables, mixture.baseline)
    met = np.array([returns_of(tables, policy) for policy in mixture.policies])
    size = np.max(np.abs(tables[1])) / (1.0 - GAMMA)
    assert mixture.baseline_return == pytest.approx(floor, abs=1e-10 * size)
    assert mixture.policy_return == pytest.approx(mixture.weights @ met, abs=1e-10 * size)
    assert mixture.weights.sum() == pytest.approx(1.0)
    times = mixture.weights * mixture.rounds
    assert times == pytest.approx(np.round(times))
    assert np.unique(mixture.policies.reshape(met.shape[0], -1), axis=0).shape[0] == met.shape[0]  # merged
    best, _ = constrained_optimum(tables, preference, floor)
    violation = max(0.0, float(np.max(floor - mixture.policy_return)))
    missing = best - float(preference @ mixture.policy_return)
    assert missing + norm * violation <= mixture.gap + 1e-8 * norm * size
    gradients = np.append(floor - met, np.zeros((met.shape[0], 1)), axis=1)
    spread = np.max(np.ptp(gradients, axis=1))
    regret = math.log(floor.size + 1) / (eta * mixture.rounds) + eta * spread**2 / 8.0
    assert mixture.gap <= norm * regret + 1e-8 * norm * size


@settings(max_examples=120)
@given(
    seed=st.integers(0, 2**32 - 1), d=st.integers(1, 4), eta=st.sampled_from([0.01, 0.1, 1.0, 10.0]),
    norm=st.sampled_from([0.5, 10.0, 100.0]), rounds=st.sampled_from([1, 7, 50]), size=st.sampled_from([1e-3, 1.0, 1e6]),
    careless=st.booleans(),
)  # fmt: skip
def test_the_gap_bounds_what_is_missing_and_is_bounded_by_the_regret(seed, d, eta, norm, rounds, size, careless):
    model, baseline, preference, tables = random_model(seed, d, size=size)
    preference = np.zeros(d) if careless else preference
    mixture = lagrangian(model, baseline, preference=preference, eta=eta, norm=norm, tol=0.0, max_rounds=rounds)
    check_against_the_optimum(mixture, tables, preference, norm, eta)
    assert np.all(np.isfinite(mixture.multipliers))
    assert np.all(mixture.multipliers >= 0.0)
    assert mixture.multipliers.sum() <= norm * (1.0 + 1e-12)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_small_steps_and_many_rounds_reach_the_constrained_optimum(seed, d):
    norm, eta, tol = 5.0, 0.1, 0.05
    model, baseline, preference, tables = random_model(seed, d)
    floor = returns_of(tables, baseline)
    best, multipliers = constrained_optimum(tables, preference, floor)
    assert multipliers < 0.7 * norm  # the game is the program's where the multipliers fit
    mixture = lagrangian(model, baseline, preference=preference, eta=eta, norm=norm, tol=tol, max_rounds=4000)
    assert mixture.converged, mixture.gap
    check_against_the_optimum(mixture, tables, preference, norm, eta)
    violation = max(0.0, float(np.max(floor - mixture.policy_return)))
    assert violation <= tol / (norm - multipliers) + 1e-9
    assert best - tol - 1e-9 <= preference @ mixture.policy_return <= best + multipliers * violation + 1e-9


def slow_game(tables, baseline, preference, eta, norm, rounds):
    """Algorithm 2 with every deterministic policy enumerated; J(π̂), ν̂, and the gap of each round."""
    n_states, n_actions = baseline.shape
    every = np.array(
        [returns_of(tables, np.eye(n_actions)[list(p)]) for p in itertools.product(range(n_actions), repeat=n_states)]
    )
    floor = returns_of(tables, baseline)
    total = np.zeros(floor.size + 1)
    played, multipliers, gaps = [], [], []
    for _ in range(rounds):
        nu = norm * softmax(total)
        answer = every[np.argmax(every @ (preference + nu[:-1]))]
        played.append(answer)
        multipliers.append(nu[:-1])
        mean, nu_mean = np.mean(played, axis=0), np.mean(multipliers, axis=0)
        costs = np.append(floor - mean, 0.0)
        l_max = -preference @ mean + norm * costs.max()
        l_min = np.min(-every @ preference + (floor - every) @ nu_mean)
        gaps.append(l_max - l_min)
        total += eta * np.append(floor - answer, 0.0)
    return mean, nu_mean, gaps


@pytest.mark.parametrize("eta", [0.3, 1000.0])
@pytest.mark.parametrize("seed", range(16))
def test_round_by_round_against_enumeration(seed, eta):
    d = 1 + seed % 4
    model, baseline, preference, tables = random_model(100 + seed, d, n_states=3 + seed % 2, n_actions=3)
    seen = []
    mixture = lagrangian(
        model, baseline, preference=preference, eta=eta, norm=3.0, tol=0.0, max_rounds=60, progress=seen.append
    )
    mean, multipliers, gaps = slow_game(tables, baseline, preference, eta, 3.0, mixture.rounds)
    assert mixture.policy_return == pytest.approx(mean, abs=1e-9)
    assert mixture.multipliers == pytest.approx(multipliers, abs=1e-9)
    assert mixture.gap == pytest.approx(gaps[-1], abs=1e-9)
    assert all(round_.gap <= gap + 1e-9 for round_, gap in zip(seen, gaps, strict=True))  # at least what was said
    # it stops in the first round whose gap is small enough, and not before
    tol = float(np.median(gaps)) + 1e-9
    stopped = lagrangian(model, baseline, preference=preference, eta=eta, norm=3.0, tol=tol, max_rounds=60)
    assert stopped.rounds == 1 + next(t for t, gap in enumerate(gaps) if gap <= tol)
    assert stopped.converged


@pytest.mark.parametrize("seed", range(10))
def test_units_do_not_matter(seed):
    """Rewards times 2^20 with η / 2^20 is the same game to the bit, with the gap in the other unit."""
    model, baseline, preference, _ = random_model(seed, 3)
    large, _, _, _ = random_model(seed, 3, size=2.0**20)
    one = lagrangian(model, baseline, preference=preference, eta=0.25, max_rounds=80)
    two = lagrangian(large, baseline, preference=preference, eta=0.25 / 2**20, tol=0.01 * 2**20, max_rounds=80)
    assert np.array_equal(one.policies, two.policies)
    assert np.array_equal(one.weights, two.weights)
    assert two.gap / 2**20 == pytest.approx(one.gap, rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_one_objective_is_plain_policy_iteration(seed):
    model, baseline, _, tables = random_model(seed, 1)
    mixture = lagrangian(model, baseline, preference=[1.0])
    assert mixture.weights.tolist() == [1.0]
    assert mixture.policy_return == pytest.approx(linearized(model, baseline, preference=[1.0]).policy_return)
    best = linearized(model, baseline, preference=[1.0]).policy
    v, _ = dense_values(tables[0], tables[1], [GAMMA], best)
    w, _ = dense_values(tables[0], tables[1], [GAMMA], mixture.policies[0])
    assert w == pytest.approx(v, abs=1e-9)  # in every state, also where the process never starts


@pytest.mark.parametrize("seed", range(10))
def test_return_in_another_mdp(seed):
    model, baseline, preference, _ = random_model(seed, 3, n_states=6, n_actions=3)
    mixture = lagrangian(model, baseline, preference=preference, max_rounds=40, tol=0.0)
    rng = np.random.default_rng(seed)
    table, reward = rng.dirichlet(np.ones(6), size=(6, 3)), rng.normal(size=(3, 6, 3))
    initial = rng.dirichlet(np.ones(6))
    truth = dense_mdp(table, reward, discount=GAMMA, initial=initial)
    mean = sum(
        w * returns_of((table, reward, initial), p) for w, p in zip(mixture.weights, mixture.policies, strict=True)
    )
    assert mixture_return(truth, mixture) == pytest.approx(mean, abs=1e-9)
