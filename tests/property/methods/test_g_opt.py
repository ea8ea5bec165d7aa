"""G-OPT against its program written out over (ρ, p, n), random policies, S-OPT, and its two engines against each other."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from bettersafe import _kernel
from bettersafe.errors import ParameterError
from bettersafe.mdp.mdp import MDP, dense_mdp
from bettersafe.mdp.values import expected_return, occupancy, solve_policy
from bettersafe.methods.g_opt import OPTIMAL_TOL, GOptSearch, _Columns, _Limits, _setting, g_opt, g_opt_path
from bettersafe.methods.s_opt import s_opt, soft_spibb
from bettersafe.model import Model, error_bound_q
from oracles import TOLERANCES, dense_values

ENGINES = {"highs": "lp", "native": "multipliers"}  # and the form that each solves
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
        for engine, form in ENGINES.items():
            result = g_opt(model, baseline, preference=preference, epsilon=epsilon, margin=margin, engine=engine)
            assert (result.method, result.engine, result.converged) == ("g-opt", form, True)
            check_rows(result, tables, margin)
            assert bool(result.reason) == (best is None), (seed, engine, result.status)
            if best is not None:
                reached = float(preference @ result.policy_return)
                assert abs(reached - best) <= 1e-7 * float(preference @ size), (seed, engine, epsilon, reached, best)
                assert result.gap <= 1e-7 * float(preference @ size)


@pytest.mark.parametrize("block", range(4))
def test_against_the_program_written_out(block):
    for seed in range(18 * block, 18 * (block + 1)):
        compare(seed)


@pytest.mark.parametrize("d", [17, 65])
def test_many_objectives(d):
    for seed in range(1, 5):
        compare(seed, d)


@pytest.mark.long
@pytest.mark.parametrize("block", range(40))
def test_against_the_program_written_out_long(block):
    for seed in range(10_000 + 30 * block, 10_000 + 30 * (block + 1)):
        compare(seed)


@pytest.mark.parametrize("seed", range(12))
def test_no_random_policy_is_better(seed):
    model, baseline, preference, tables = random_problem(seed)
    table, reward, discount, initial, error = tables
    rng = np.random.default_rng([seed, 2])
    size = sizes_of(tables)
    epsilon = 0.5
    best = g_opt(model, baseline, preference=preference, epsilon=epsilon)
    top = soft_spibb(model, baseline, preference=preference, epsilon=epsilon).policy
    free, e = np.isfinite(error), np.where(np.isfinite(error), error, 0.0)
    kept = 0
    for trial in range(100):
        other = np.where(free, rng.dirichlet(np.full(baseline.shape[1], 0.3), size=baseline.shape[0]), baseline)
        share = np.where(free, baseline, 0.0).sum(axis=1) / np.maximum(np.where(free, other, 0.0).sum(axis=1), 1e-300)
        other = np.where(free, other * share[:, None], baseline)
        spent = (e * np.abs(other - baseline)).sum(axis=1)
        target = baseline + np.minimum(epsilon / np.maximum(spent, 1e-300), 1.0)[:, None] * (other - baseline)
        if trial % 2:  # somewhere between what is best for the preference, what is best here, and the baseline
            mix = rng.dirichlet(np.ones(4), size=baseline.shape[0])
            target = sum(mix[:, [i]] * policy for i, policy in enumerate((target, top, best.policy, baseline)))
        v, _ = dense_values(table, reward, np.full(reward.shape[0], discount), target)
        if np.all(v @ initial >= best.baseline_return - 1e-12 * size):
            kept += 1
            assert preference @ v @ initial <= preference @ best.policy_return + 1e-9 * float(preference @ size)
    assert kept > 5 or reward.shape[0] > 1


@pytest.mark.parametrize("seed", range(15))
def test_never_below_s_opt_and_monotone_in_budget_and_margin(seed):
    model, baseline, preference, tables = random_problem(seed)
    tol = 1e-8 * float(preference @ sizes_of(tables))
    last = -math.inf
    for epsilon in EPSILONS:
        results = g_opt_path(model, baseline, preference=preference, epsilons=[epsilon], margins=[0.0, 0.02, 0.1])
        values = [float(preference @ result.policy_return) for result in results]
        careful = s_opt(model, baseline, preference=preference, epsilon=epsilon)
        assert values[0] >= float(preference @ careful.policy_return) - tol
        assert values[0] >= last - tol
        last = values[0]
        reached = [value for value, result in zip(values, results, strict=True) if not result.reason]
        assert all(low >= high - tol for low, high in pairwise(reached))
        given_up = [bool(result.reason) for result in results]
        assert given_up == sorted(given_up)  # a margin out of reach puts every larger one out of reach
        for result, share in zip(results, (0.0, 0.02, 0.1), strict=True):
            check_rows(result, tables, share * np.abs(result.baseline_return))
        if epsilon == 0.0:
            assert all(np.array_equal(result.policy, result.baseline) for result in results)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", [0, 3, 7, 9])
def test_the_path_is_what_single_calls_find(seed, engine):
    """In the order asked for, whatever order suits the work."""
    model, baseline, preference, tables = random_problem(seed)
    epsilons, margins = (2.0, 0.1, math.inf), (0.1, 0.0)
    path = g_opt_path(model, baseline, preference=preference, epsilons=epsilons, margins=margins, engine=engine)
    asked = [(epsilon, margin) for epsilon in epsilons for margin in margins]
    assert [result.epsilon for result in path] == [epsilon for epsilon, _ in asked]
    for result, (epsilon, share) in zip(path, asked, strict=True):
        margin = share * np.abs(result.baseline_return)
        one = g_opt(model, baseline, preference=preference, epsilon=epsilon, margin=margin, engine=engine)
        check_rows(result, tables, margin)
        assert one.reason == result.reason
        assert abs(float(preference @ (one.policy_return - result.policy_return))) <= 1e-8 * float(
            preference @ sizes_of(tables)
        )


def random_floors(rng, model, baseline, preference, epsilon, size):
    """Losses that are accepted, and losses and gains at once, shape [d] each."""
    free = soft_spibb(model, baseline, preference=preference, epsilon=epsilon)
    gain = np.abs(free.policy_return - free.baseline_return)
    gain[gain < 1e-6 * size] = 0.0
    mixed = gain * rng.choice([-0.5, -0.1, 0.0, 0.2, 0.6], size.size)
    return [-gain * rng.choice([0.0, 0.3, 2.0], size.size), mixed]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("block", range(3))
def test_floors_may_be_negative(block, engine):
    for seed in range(16 * block, 16 * (block + 1)):
        model, baseline, preference, tables = random_problem(seed)
        table, reward, discount, initial, error = tables
        size, epsilon = sizes_of(tables), EPSILONS[1 + seed % 5]
        floors = random_floors(np.random.default_rng([seed, 3]), model, baseline, preference, epsilon, size)
        path = g_opt_path(model, baseline, preference=preference, epsilons=[epsilon], floors=floors, engine=engine)
        for result, floor in zip(path, floors, strict=True):
            best = slow_g_opt(table, reward, discount, initial, baseline, error, preference, epsilon, floor)
            check_rows(result, tables, floor)
            assert bool(result.reason) == (best is None), (seed, result.status)
            if best is not None:
                reached = float(preference @ result.policy_return)
                assert abs(reached - best) <= 1e-7 * float(preference @ size), (seed, epsilon, reached, best)


def columns_of(model, baseline, preference, epsilon):
    setting = _setting(model, baseline, solve_policy(model.mdp, baseline), every_action=math.isinf(epsilon))
    limits = _Limits(preference=preference, epsilon=epsilon, tol=OPTIMAL_TOL, max_rounds=1000, progress=None)
    return _Columns(setting, limits, [])


@pytest.mark.skipif(_kernel.compiled is None, reason="the kernel is not built")
@pytest.mark.parametrize("seed", range(20))
def test_the_kernel_responds_as_policy_iteration_does(seed, monkeypatch):
    """From the baseline and from other policies; if its evaluations stall, Python's policy iteration takes over."""
    rng = np.random.default_rng([seed, 4])
    model, baseline, preference, tables = random_problem(seed)
    size, epsilon = sizes_of(tables), EPSILONS[seed % len(EPSILONS)]
    native, python = (columns_of(model, baseline, preference, epsilon) for _ in range(2))
    python.engine = "highs"
    stalled = columns_of(model, baseline, preference, epsilon)
    for _ in range(4):
        weights = rng.random(size.size) * rng.choice([0.0, 1.0], size.size, p=[0.2, 0.8]) / size
        found, expected = native.respond(weights), python.respond(weights)
        mdp = native.setting.mdp
        assert found.visits == pytest.approx(occupancy(mdp, found.policy), rel=1e-9, abs=1e-12)
        gain = expected_return(mdp, found.policy) - expected_return(mdp, baseline)
        assert np.all(np.abs(found.gain - gain) <= 1e-9 * size)
        assert abs(float(weights @ (found.gain - expected.gain))) <= 1e-8 * float(weights @ size)
        assert float(weights @ found.gain) >= -1e-9 * float(weights @ size)
        with monkeypatch.context() as patch:
            patch.setattr(importlib.import_module("bettersafe.methods.g_opt"), "MAX_PRODUCTS", 0)
            other = stalled.respond(weights)
        assert abs(float(weights @ (other.gain - expected.gain))) <= 1e-8 * float(weights @ size)
        for columns, column in ((native, found), (python, expected), (stalled, other)):
            columns.add(column)


@pytest.mark.skipif(_kernel.compiled is None, reason="the kernel is not built")
def test_responses_have_equal_bits_on_any_number_of_threads(monkeypatch):
    rng = np.random.default_rng(6)
    n_states, n_actions, width = 3000, 4, 5
    n_pairs = n_states * n_actions
    columns = np.sort(rng.integers(0, n_states // width, (n_pairs, width)) + n_states // width * np.arange(width))
    rows = (0.2 * np.ones(n_pairs * width), columns.reshape(-1), np.arange(n_pairs + 1) * width)
    counts = rng.integers(1, 60, n_pairs)
    mdp = MDP(
        n_states=n_states, n_actions=n_actions, pair_state=np.repeat(np.arange(n_states), n_actions),
        pair_action=np.tile(np.arange(n_actions), n_states), transition=sparse.csr_array(rows, shape=(n_pairs, n_states)),
        reward=rng.normal(size=(2, n_pairs)), discount=[0.95, 0.95], initial=np.full(n_states, 1.0 / n_states),
    )  # fmt: skip
    model = Model(
        mdp=mdp, counts=counts, error=error_bound_q(counts, n_states, n_actions, 2, 0.1), error_kind="q", delta=0.1,
        unseen="end", state_labels=np.arange(n_states), action_labels=np.arange(n_actions), objectives=("a", "b"),
    )  # fmt: skip
    baseline = rng.dirichlet(np.ones(n_actions), size=n_states)
    found = []
    for n_threads in (1, 3):
        monkeypatch.setattr(importlib.import_module("bettersafe.methods.g_opt"), "cores", lambda n=n_threads: n)
        found.append(columns_of(model, baseline, np.ones(2), 1.0).respond(np.array([1.0, 0.5])))
    for name in ("policy", "visits", "gain"):
        assert np.array_equal(getattr(found[0], name), getattr(found[1], name)), name


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", [0, 1, 3, 4, 7, 9, 13])
def test_a_search_with_several_rewards_is_as_good_as_separate_ones(seed, engine):
    model, baseline, preference, tables = random_problem(seed)
    size, epsilon = sizes_of(tables), EPSILONS[1 + seed % 5]
    rng = np.random.default_rng([seed, 5])
    search = GOptSearch(model, baseline, preference=preference, epsilon=epsilon, engine=engine)
    for step in range(3):
        own = model
        if step:
            own = replace(
                model, mdp=replace(model.mdp, reward=model.mdp.reward * rng.uniform(0.5, 1.5, model.mdp.reward.shape))
            )
            search.set_reward(own.mdp.reward)
        floors = random_floors(rng, own, baseline, preference, epsilon, size)
        path = g_opt_path(own, baseline, preference=preference, epsilons=[epsilon], floors=floors, engine=engine)
        policies = [*search.policies(floors[:1]), *search.policies(floors[1:])]
        for policy, one, floor in zip(policies, path, floors, strict=True):
            assert np.array_equal(policy, baseline) or not one.reason
            returns = expected_return(own.mdp, policy)
            assert abs(float(preference @ (returns - one.policy_return))) <= 1e-8 * float(preference @ size)
            if not one.reason:
                assert np.all(returns >= one.baseline_return + floor - 1e-8 * size)


def test_a_loose_tolerance_takes_fewer_policies():
    model, baseline, preference, tables = random_problem(1, d=65)
    size = sizes_of(tables)
    known = {"preference": preference, "epsilon": 2.0, "engine": "native"}
    exact = g_opt(model, baseline, **known)
    loose = g_opt(model, baseline, **known, tol=0.05)
    assert loose.rounds < exact.rounds
    assert loose.converged
    check_rows(loose, tables, np.zeros(65))
    missing = float(preference @ (exact.policy_return - loose.policy_return))
    assert -1e-9 * float(preference @ size) <= missing <= loose.gap + 1e-9 * float(preference @ size)
    with pytest.raises(ParameterError, match="tol must be at least 0 and less than 1"):
        g_opt(model, baseline, **known, tol=1.0)


def test_the_baseline_may_play_what_was_never_tried():
    """State 0 leads to state 1, where the baseline plays an action never tried (worth 7 there) half of the time.

    γ = 0.5. The tried action of state 1 pays 2 and ends, so v(1) = ½·2 + ½·7 = 4.5, and that share stays frozen. In state 0
    action 0 (π_b = 1) pays 1 and ends, action 1 leads to state 1, worth 2.25: all of it is moved there, gaining 1.25.
    """
    table = np.zeros((2, 2, 2))
    table[0, 1, 1] = 1.0
    reward = np.array([[[1.0, 0.0], [2.0, 7.0]]])
    counts = np.array([[10**6, 10**6], [10**6, 0]])
    model = make_model(counts, table, reward, np.array([[0.0, 7.0]]), 0.5, np.array([1.0, 0.0]))
    baseline = np.array([[1.0, 0.0], [0.5, 0.5]])
    for engine in ENGINES:
        result = g_opt(model, baseline, preference=[1.0], epsilon=1.0, engine=engine)
        assert result.policy == pytest.approx(np.array([[0.0, 1.0], [0.5, 0.5]]))
        assert (result.baseline_return[0], result.policy_return[0]) == pytest.approx((1.0, 2.25))
        assert expected_return(model.mdp, result.policy) == pytest.approx(result.policy_return)
        free = g_opt(model, baseline, preference=[1.0], epsilon=math.inf, engine=engine)
        assert free.policy == pytest.approx(np.array([[0.0, 1.0], [0.0, 1.0]]))  # no budget: 0.5 · 7
        assert free.policy_return == pytest.approx([3.5])


def two_states(unit=(1.0, 1.0)):
    """Start in either state; one decision, then the end. Action 1 pays (10, −1) in state 0 and (0, 1) in state 1, action 0,
    which is the baseline, nothing. With e = 1 and ε = 1 half of each may move.
    """
    reward = np.array([[[0.0, 10.0], [0.0, 0.0]], [[0.0, -1.0], [0.0, 1.0]]]) * np.reshape(unit, (2, 1, 1))
    mdp = dense_mdp(np.zeros((2, 2, 2)), reward, discount=0.9, initial=[0.5, 0.5])
    model = Model(
        mdp=mdp, counts=np.ones(4, dtype=np.int64), error=np.ones(4), error_kind="q", delta=0.1, unseen="end",
        state_labels=np.arange(2), action_labels=np.arange(2), objectives=("a", "b"),
    )  # fmt: skip
    return model, np.array([[1.0, 0.0], [1.0, 0.0]])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("unit", [(1.0, 1.0), (1e3, 1e-3)])
def test_a_loss_here_is_made_up_there(engine, unit):
    """By hand: what state 1 gains on b (¼) pays for state 0's loss; S-OPT can't move in state 0 at all."""
    model, baseline = two_states(unit)
    assert s_opt(model, baseline, preference=[1.0, 0.0], epsilon=1.0).changed.size == 0
    for margin, moved in ((0.0, 0.5), (0.125, 0.25)):
        result = g_opt(
            model, baseline, preference=[1.0, 0.0], epsilon=1.0, margin=[0.0, margin * unit[1]], engine=engine
        )
        assert result.policy == pytest.approx(np.array([[1.0 - moved, moved], [0.5, 0.5]]), abs=1e-8)
        assert result.policy_return / unit == pytest.approx([5.0 * moved, margin], abs=1e-8)
        assert "raises the preferred return" in result.status
    result = g_opt(model, baseline, preference=[1.0, 0.0], epsilon=1.0, margin=[0.0, 0.26 * unit[1]], engine=engine)
    assert np.array_equal(result.policy, baseline)
    assert result.status == (
        "The baseline is returned: no policy within the budget reaches the margins in the estimated model."
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_without_a_preference_only_margins_move_it(engine):
    model, baseline = two_states()
    still = g_opt(model, baseline, preference=[0.0, 0.0], epsilon=1.0, engine=engine)
    assert np.array_equal(still.policy, baseline)
    assert "preference is zero" in still.status
    moved = g_opt(model, baseline, preference=[0.0, 0.0], epsilon=1.0, margin=[0.0, 0.2], engine=engine)
    assert moved.policy_return[1] >= 0.2 - 1e-9


def test_progress_and_the_cap_on_rounds():
    model, baseline, preference, tables = random_problem(3)  # takes several policies
    rounds = []
    full = g_opt(model, baseline, preference=preference, epsilon=2.0, engine="native", progress=rounds.append)
    assert full.rounds > 2
    assert [r.done for r in rounds] == list(range(1, full.rounds + 1))
    cut = g_opt(model, baseline, preference=preference, epsilon=2.0, engine="native", max_rounds=2)
    assert (cut.rounds, cut.converged) == (2, False)
    check_rows(cut, tables, 0.0)
    assert cut.gap >= float(preference @ (full.policy_return - cut.policy_return)) - 1e-9
    assert preference @ cut.policy_return <= preference @ full.policy_return + 1e-9
    model, baseline = two_states()
    early = g_opt(model, baseline, preference=[1.0, 0.0], epsilon=1.0, margin=[0.0, 0.2], engine="native", max_rounds=1)
    assert "were not reached with 1 policies" in early.status
    assert not early.converged


def test_bad_input():
    model, baseline = two_states()
    known = {"preference": [1.0, 0.0], "epsilon": 1.0}
    with pytest.raises(ParameterError, match="engine must be one of"):
        g_opt(model, baseline, **known, engine="simplex")
    with pytest.raises(ParameterError, match="margin must not be negative"):
        g_opt(model, baseline, **known, margin=[0.0, -1.0])
    with pytest.raises(ParameterError, match="margin needs 2 numbers"):
        g_opt(model, baseline, **known, margin=[0.0])
    with pytest.raises(ParameterError, match="max_rounds must be at least 1"):
        g_opt(model, baseline, **known, max_rounds=0)
    with pytest.raises(ParameterError, match="epsilon must be 0 or more"):
        g_opt_path(model, baseline, preference=[1.0, 0.0], epsilons=[1.0, -1.0])
    with pytest.raises(ParameterError, match="margins must not be negative"):
        g_opt_path(model, baseline, preference=[1.0, 0.0], margins=[-0.1])
    mdp = dense_mdp(np.zeros((1, 2, 1)), np.zeros((2, 1, 2)), discount=[0.9, 0.5], initial=[1.0])
    with pytest.raises(ParameterError, match="needs equal discounts"):
        g_opt(replace(model, mdp=mdp, counts=model.counts[:2], error=model.error[:2]), baseline[:1], **known)


def test_auto_takes_the_kernel_where_there_is_one(monkeypatch):
    model, baseline = two_states()
    assert g_opt(model, baseline, preference=[1.0, 0.0], epsilon=1.0).engine == "multipliers"
    monkeypatch.setattr("bettersafe._kernel.compiled", None)
    assert g_opt(model, baseline, preference=[1.0, 0.0], epsilon=1.0).engine == "lp"


def test_discount_1():
    """Two states, "work" (1 reward, 1 cost) or "rest" (0, 0), each to the next state or the end: half of the work is kept; one
    large program is refused."""
    table = np.zeros((2, 2, 2))
    table[0, :, 1] = 1.0
    reward = np.array([[[1.0, 0.0]] * 2, [[0.0, 0.3], [0.0, 0.0]]])
    model = make_model(np.full((2, 2), 50), table, reward, np.zeros((2, 2)), 1.0, np.array([1.0, 0.0]))
    half = np.full((2, 2), 0.5)
    found = g_opt(model, half, preference=[1.0, 0.0], epsilon=math.inf)
    # resting in the first state alone earns the second reward: it keeps its half, the second state works
    assert found.policy == pytest.approx(np.array([[0.5, 0.5], [1.0, 0.0]]))
    assert found.policy_return == pytest.approx([1.5, 0.15])
    with pytest.raises(ParameterError, match='g-opt with discount 1 needs the engine "native"'):
        g_opt(model, half, preference=[1.0, 0.0], epsilon=1.0, engine="highs")
    loop = np.zeros((1, 2, 1))
    loop[0, 0, 0] = 1.0
    endless = make_model(np.full((1, 2), 50), loop, np.ones((1, 1, 2)), np.zeros((1, 1)), 1.0, np.ones(1))
    stays = g_opt(endless, [[0.5, 0.5]], preference=[1.0], epsilon=math.inf)
    assert stays.policy == pytest.approx(np.array([[0.5, 0.5]]))  # to stay for ever has no finite return
