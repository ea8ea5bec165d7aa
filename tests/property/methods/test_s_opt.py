"""Whole S-OPT: against slow policy iteration, and what the paper proves of it, on random models."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from bettersafe.errors import PolicyError
from bettersafe.mdp.mdp import MDP, dense_mdp
from bettersafe.mdp.values import policy_values
from bettersafe.methods.s_opt import adv_linearized, linearized, s_opt, soft_spibb
from bettersafe.model import Model, error_bound_q
from oracles import dense_values, slow_s_opt
from quick import rest_slow


def random_model(seed, *, equal_discounts=None):
    """A small estimated model with unseen pairs, ties, extreme scales, up to 4 objectives; and its dense tables."""
    rng = np.random.default_rng(seed)
    n_states, n_actions, d = int(rng.integers(2, 9)), int(rng.integers(2, 6)), int(rng.integers(1, 5))
    counts = rng.integers(0, 40, (n_states, n_actions)) * (rng.random((n_states, n_actions)) < 0.8)
    counts[:, 0] = np.maximum(counts[:, 0], 1)
    table = np.zeros((n_states, n_actions, n_states))
    for x in range(n_states):
        for a in range(n_actions):
            if counts[x, a]:
                outcomes = rng.multinomial(counts[x, a], rng.dirichlet(np.full(n_states + 1, 0.3)))
                table[x, a] = outcomes[:n_states] / counts[x, a]  # the last outcome terminates
    reward = rng.normal(size=(d, n_states, n_actions))
    if rng.random() < 0.3:
        reward = np.round(reward)  # ties
    if rng.random() < 0.3:
        reward *= 10.0 ** rng.uniform(-6, 6, (d, 1, 1))
    reward[:, counts == 0] = 0.0  # unseen: the process ends with reward 0
    equal = rng.random() < 0.5 if equal_discounts is None else equal_discounts
    discount = np.full(d, rng.choice([0.0, 0.5, 0.9, 0.99])) if equal else rng.uniform(0.0, 0.99, d)
    baseline = rng.dirichlet(np.ones(n_actions), size=n_states)
    baseline[rng.random((n_states, n_actions)) < 0.2] = 0.0
    baseline[baseline.sum(axis=1) == 0.0, 0] = 1.0
    baseline /= baseline.sum(axis=1, keepdims=True)
    preference = rng.choice([0.0, 0.5, 1.0], d)
    initial = rng.dirichlet(np.ones(n_states))
    x, a = np.nonzero(counts)
    mdp = MDP(
        n_states=n_states,
        n_actions=n_actions,
        pair_state=x,
        pair_action=a,
        transition=sparse.csr_array(table[x, a]),
        reward=reward[:, x, a],
        discount=discount,
        initial=initial,
    )
    error = error_bound_q(counts[x, a], n_states, n_actions, d, 0.1)
    model = Model(
        mdp=mdp,
        counts=counts[x, a],
        error=error,
        error_kind="q",
        delta=0.1,
        unseen="end",
        state_labels=np.arange(n_states),
        action_labels=np.arange(n_actions),
        objectives=tuple(f"r{k}" for k in range(d)),
    )
    dense_error = np.full((n_states, n_actions), math.inf)
    dense_error[x, a] = error
    return model, baseline, preference, (table, reward, discount, initial, dense_error)


EPSILONS = (0.0, 0.05, 0.5, 2.0, 20.0)


def compare(seed):
    model, baseline, preference, (table, reward, discount, initial, error) = random_model(seed)
    size = max(float(np.max(np.abs(preference @ reward.reshape(reward.shape[0], -1)))), 1e-300)
    scale = size / (1.0 - discount.max())
    epsilon = EPSILONS[seed % len(EPSILONS)]
    for constrained, epsilon_, result in (
        (True, epsilon, s_opt(model, baseline, preference=preference, epsilon=epsilon)),
        (False, epsilon, soft_spibb(model, baseline, preference=preference, epsilon=epsilon)),
        (True, math.inf, adv_linearized(model, baseline, preference=preference)),
        (False, math.inf, linearized(model, baseline, preference=preference)),
    ):
        best, _ = slow_s_opt(
            table, reward, discount, initial, baseline, error, preference, epsilon_, constrained=constrained
        )
        v, _ = dense_values(table, reward, discount, result.policy)
        reached = float(preference @ v @ initial)
        assert abs(reached - float(preference @ result.policy_return)) <= 1e-9 * scale
        assert result.converged
        assert result.kept.size == 0
        assert abs(reached - best) <= 2e-7 * scale, (seed, result.method, reached, best)


@pytest.mark.parametrize("block", rest_slow(range(6), 0, 1))
def test_against_slow_policy_iteration(block):
    for seed in range(25 * block, 25 * (block + 1)):
        compare(seed)


@pytest.mark.long
@pytest.mark.parametrize("block", range(40))
def test_against_slow_policy_iteration_long(block):
    for seed in range(10_000 + 25 * block, 10_000 + 25 * (block + 1)):
        compare(seed)


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32 - 1))
def test_what_the_paper_proves(seed):
    """Proposition B.1 in every state, the budget in every row, ε = 0, and (equal discounts) monotone in ε, in the model."""
    model, baseline, preference, (table, reward, discount, initial, error) = random_model(seed)
    base_v, _ = dense_values(table, reward, discount, baseline)
    horizon = 1.0 / (1.0 - discount)
    sizes = np.max(np.abs(reward), axis=(1, 2)) * horizon + 1e-300
    last = -math.inf
    for epsilon in EPSILONS:
        result = s_opt(model, baseline, preference=preference, epsilon=epsilon)
        v, _ = dense_values(table, reward, discount, result.policy)
        # the evaluation error (1e-13 backward, over 1 − γ) passes once more through the horizon
        assert np.all(v >= base_v - 1e-9 * (sizes * horizon)[:, None])
        spent = np.where(np.isfinite(error), error, 0.0) * np.abs(result.policy - baseline)
        assert np.all(spent.sum(axis=1) <= epsilon + 1e-9 * np.max(error[np.isfinite(error)]))
        assert np.array_equal(result.policy[~np.isfinite(error)], result.baseline[~np.isfinite(error)])
        assert np.allclose(result.policy.sum(axis=1), 1.0, rtol=0, atol=1e-12)
        if epsilon == 0.0 or not preference.any():
            assert np.array_equal(result.policy, result.baseline)
        value = float(preference @ v @ initial)
        if np.all(discount == discount[0]):
            assert value >= last - 1e-9 * float(preference @ sizes) - 1e-300
            last = value


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32 - 1))
def test_soft_spibb_keeps_the_budget_and_the_weighted_return_alone(seed):
    """Of what S-OPT promises the budget stays, and (equal discounts) v_λ falls in no state; J_λ is never below S-OPT's."""
    model, baseline, preference, (table, reward, discount, _, error) = random_model(seed, equal_discounts=True)
    base_v, _ = dense_values(table, reward, discount, baseline)
    size = float(preference @ np.max(np.abs(reward), axis=(1, 2))) / (1.0 - discount[0]) ** 2 + 1e-300
    for epsilon in EPSILONS:
        result = soft_spibb(model, baseline, preference=preference, epsilon=epsilon)
        assert (result.method, result.epsilon) == ("soft-spibb", epsilon)
        v, _ = dense_values(table, reward, discount, result.policy)
        assert np.all(preference @ v >= preference @ base_v - 1e-9 * size)
        spent = np.where(np.isfinite(error), error, 0.0) * np.abs(result.policy - baseline)
        assert np.all(spent.sum(axis=1) <= epsilon + 1e-9 * np.max(error[np.isfinite(error)]))
        assert np.array_equal(result.policy[~np.isfinite(error)], result.baseline[~np.isfinite(error)])
        careful = s_opt(model, baseline, preference=preference, epsilon=epsilon)
        assert preference @ result.policy_return >= preference @ careful.policy_return - 1e-9 * size
    everything = linearized(model, baseline, preference=preference)
    unlimited = soft_spibb(model, baseline, preference=preference, epsilon=math.inf)
    assert np.array_equal(unlimited.policy, everything.policy)


def test_a_gain_on_one_objective_hides_a_loss_on_another():
    """The scenario of the paper's Appendix A: λ_0 (J_0(π) − J_0(π_b)) ≫ 0 pays for J_1(π) < J_1(π_b).

    One state, two actions that stay (γ = 0.5, so J = 2 Σ_a π r), played half and half: action 1 pays (10, −1), action 0
    nothing. With e = 0.001 and ε = 0.0004 a share of 0.2 may move: J = (14, −1.4) after (10, −1).
    """
    model, baseline = two_actions([[0.0, 10.0], [0.0, -1.0]], [0.5, 0.5])
    scalar = soft_spibb(model, baseline, preference=[1.0, 1.0], epsilon=4e-4)
    assert scalar.policy[0] == pytest.approx([0.3, 0.7])
    assert scalar.baseline_return == pytest.approx([10.0, -1.0])
    assert scalar.policy_return == pytest.approx([14.0, -1.4])  # J_λ rises from 9 to 12.6, J_1 falls
    careful = s_opt(model, baseline, preference=[1.0, 1.0], epsilon=4e-4)
    assert np.array_equal(careful.policy, careful.baseline)


@pytest.mark.parametrize("verb", [s_opt, soft_spibb])
@pytest.mark.parametrize("seed", range(20))
def test_engines_agree(seed, verb):
    model, baseline, preference, tables = random_model(seed, equal_discounts=True)
    size = float(np.max(np.abs(tables[1]))) / (1.0 - tables[2].max())
    native = verb(model, baseline, preference=preference, epsilon=0.5, engine="native")
    highs = verb(model, baseline, preference=preference, epsilon=0.5, engine="highs")
    assert abs(float(preference @ (native.policy_return - highs.policy_return))) <= 1e-6 * size
    assert (native.engine, highs.engine) == ("native", "highs")


def test_each_objective_is_discounted_by_its_own_rate():
    """One state that stays with probability 1: v_k = r_k / (1 − γ_k), by hand."""
    mdp = MDP(
        n_states=1,
        n_actions=2,
        pair_state=[0, 0],
        pair_action=[0, 1],
        transition=sparse.csr_array(np.ones((2, 1))),
        reward=np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]),
        discount=np.array([0.0, 0.5, 0.9]),
        initial=np.array([1.0]),
    )
    v, q = policy_values(mdp, np.array([[1.0, 0.0]]))
    assert v[:, 0] == pytest.approx([1.0, 2.0, 10.0])
    assert q[:, 1] == pytest.approx([2.0, 3.0, 11.0])


def collinear_model(seed, gamma):
    """Objectives that are multiples of each other, with both signs: only changes that leave them equal are allowed."""
    rng = np.random.default_rng(seed)
    n_states, n_actions = 12, 6
    table = rng.dirichlet(np.full(n_states, 0.3), size=(n_states, n_actions))
    r, s = rng.normal(size=(2, n_states, n_actions))
    reward = np.stack([r, -3.0 * r, 0.7 * r, s])
    mdp = dense_mdp(table, reward, discount=gamma, initial=np.full(n_states, 1 / n_states))
    model = Model(
        mdp=mdp, counts=np.ones(mdp.n_pairs, dtype=np.int64), error=np.full(mdp.n_pairs, 0.1), error_kind="q", delta=0.1,
        unseen="end", state_labels=np.arange(n_states), action_labels=np.arange(n_actions), objectives=("a", "b", "c", "d"),
    )  # fmt: skip
    return model, rng.dirichlet(np.ones(n_actions), size=n_states), (table, reward)


@pytest.mark.parametrize("gamma", [0.9, 0.99, 0.999])
def test_collinear_objectives(gamma):
    for seed in range(8):
        model, baseline, (table, reward) = collinear_model(seed, gamma)
        result = s_opt(model, baseline, preference=[0.0, 0.0, 0.0, 1.0], epsilon=1.0)
        assert result.converged
        assert result.kept.size == 0
        best, _ = slow_s_opt(
            table,
            reward,
            np.full(4, gamma),
            model.mdp.initial,
            baseline,
            np.full(baseline.shape, 0.1),
            np.eye(4)[3],
            1.0,
        )
        size = np.max(np.abs(reward)) / (1.0 - gamma)
        assert result.policy_return[3] >= best - 1e-4 * size
        assert np.all(result.policy_return >= result.baseline_return - 1e-7 * size)


def assert_returns(model, result):
    """policy_return is what the policy is worth, to rounding of each objective's own values."""
    mdp = model.mdp
    v, _ = policy_values(mdp, result.policy)
    error = np.abs(result.policy_return - v @ mdp.initial)
    assert np.all(error <= 1e-12 * np.max(np.abs(v), axis=1) / (1.0 - mdp.discount))


def test_returns_are_those_of_the_policy():
    """However different the sizes and weights of objectives are."""
    changed = 0
    for seed in range(300):
        model, baseline, *_ = random_model(seed)
        preference = np.random.default_rng(seed).choice([0.0, 1e-3, 1.0, 50.0], model.mdp.n_objectives)
        improve = [lambda **more: s_opt(**more, epsilon=0.5), adv_linearized, linearized][seed % 3]
        result = improve(model=model, baseline=baseline, preference=preference)
        assert_returns(model, result)
        changed += result.changed.size > 0
    assert changed > 100


@pytest.mark.parametrize("small", [1e-3, 1e-6, 1e-11])
def test_returns_where_a_large_reward_is_never_met(small):
    """The first objective is small but for a penalty that nobody risks: it must not be what the second leaves of r_λ."""
    rng = np.random.default_rng(0)
    reward = rng.normal(size=(2, 30, 4)) * np.array([small, 1.0])[:, None, None]
    reward[0, :, 3] = -1e6
    mdp = dense_mdp(rng.dirichlet(np.full(30, 0.3), size=(30, 4)), reward, discount=0.999, initial=np.full(30, 1 / 30))
    model = Model(
        mdp=mdp, counts=np.ones(mdp.n_pairs, dtype=np.int64), error=np.full(mdp.n_pairs, 0.1), error_kind="q", delta=0.1,
        unseen="end", state_labels=np.arange(30), action_labels=np.arange(4), objectives=("a", "b"),
    )  # fmt: skip
    baseline = np.tile([0.4, 0.3, 0.3, 0.0], (30, 1))
    for preference in ([1.0, 1.0], [1.0, 1e-6], [1e-3, 1.0], [1.0, 0.0], [0.0, 1.0]):
        assert_returns(model, s_opt(model, baseline, preference=preference, epsilon=0.5))


def two_actions(rewards, discounts, baseline=(0.5, 0.5)):
    reward = np.asarray(rewards, dtype=float)[:, None, :]
    mdp = dense_mdp(np.ones((1, 2, 1)), reward, discount=discounts, initial=[1.0])
    model = Model(
        mdp=mdp, counts=np.ones(2, dtype=np.int64), error=np.full(2, 1e-3), error_kind="q", delta=0.1, unseen="end",
        state_labels=np.arange(1), action_labels=np.arange(2), objectives=tuple(f"r{k}" for k in range(len(rewards))),
    )  # fmt: skip
    return model, np.array([baseline])


@pytest.mark.parametrize("gamma", [0.99, 0.999, 0.9999])
def test_small_gains_are_not_lost_with_different_discounts(gamma):
    model, baseline = two_actions([[1.0, 1.001], [1.0, 1.001]], [gamma, gamma * 0.999])
    result = s_opt(model, baseline, preference=[1.0, 1.0], epsilon=10.0)
    assert result.policy[0] == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize(("gamma", "loss"), [(0.99, 1e-9), (0.999, 1e-7), (0.9999, 1e-5)])
def test_small_losses_are_not_rounded_away(gamma, loss):
    """Action 1 gains on the first objective and loses a little on the second: it must not be taken."""
    model, baseline = two_actions([[0.0, 1.0], [1.0, 1.0 - loss]], [gamma, gamma], baseline=(1.0, 0.0))
    result = s_opt(model, baseline, preference=[1.0, 0.0], epsilon=10.0)
    assert np.array_equal(result.policy, result.baseline)


def test_results_are_read_only():
    model, baseline, preference, _ = random_model(1)
    result = s_opt(model, baseline, preference=preference, epsilon=0.5)
    for array in (result.policy, result.baseline, result.policy_return, result.distance, result.kept):
        assert not array.flags.writeable


@pytest.mark.parametrize("verb", [adv_linearized, linearized])
@pytest.mark.parametrize("seed", range(12))
def test_one_untried_action_stands_for_all_of_a_state(verb, seed):
    """With no budget, no action at all, tried or not, would gain anything at the policy that is found (HiGHS, all actions)."""
    rng = np.random.default_rng(seed)
    n_states, n_actions, d = 6, 9, 2
    tried = rng.random((n_states, n_actions)) < 0.4
    tried[:, 0] |= ~tried.any(axis=1)
    x, a = np.nonzero(tried)
    baseline = rng.dirichlet(np.ones(n_actions), size=n_states) * (tried | (rng.random(tried.shape) < 0.3))
    baseline /= baseline.sum(axis=1, keepdims=True)
    p = rng.dirichlet(np.ones(n_states), size=x.size) * 0.9
    reward, unseen = rng.normal(size=(d, x.size)), rng.normal(size=(d, n_states))
    mdp = MDP(
        n_states=n_states, n_actions=n_actions, pair_state=x, pair_action=a, transition=sparse.csr_array(p), reward=reward,
        discount=np.full(d, 0.9), initial=np.full(n_states, 1 / n_states), unseen_value=unseen,
    )  # fmt: skip
    model = Model(
        mdp=mdp, counts=np.ones(x.size, dtype=np.int64), error=np.ones(x.size), error_kind="q", delta=0.1, unseen="end",
        state_labels=np.arange(n_states), action_labels=np.arange(n_actions), objectives=("a", "b"),
    )  # fmt: skip
    result = verb(model, baseline, preference=[1.0, 0.5])

    def values(policy):
        table = np.zeros((n_states, n_actions, n_states))
        table[x, a] = p
        rewards = np.repeat(unseen[:, :, None], n_actions, axis=2)
        rewards[:, x, a] = reward
        system = np.eye(n_states) - 0.9 * np.einsum("xa,xay->xy", policy, table)
        v = np.linalg.solve(system, np.einsum("xa,kxa->xk", policy, rewards)).T
        return v, rewards + 0.9 * np.einsum("xay,ky->kxa", table, v)

    base_v, base_q = values(baseline)
    v, q = values(result.policy)
    assert result.policy_return == pytest.approx(v.mean(axis=1))
    for state in range(n_states):
        advantage = base_q[:, state] - base_v[:, state, None]
        kept = None if verb is linearized else -advantage
        target = np.array([1.0, 0.5]) @ q[:, state]
        best = linprog(
            -target, A_ub=kept, b_ub=None if kept is None else np.zeros(d), A_eq=np.ones((1, n_actions)), b_eq=[1.0]
        )
        assert target @ result.policy[state] == pytest.approx(-best.fun, abs=1e-6)
        if kept is not None:
            assert np.all(advantage @ result.policy[state] >= -1e-9)


def wait_or_go(waiting, *, counts=9):
    """States a and b, discount 1: "wait" stays and pays ``waiting``, "go" pays 1, from a to b and from b to the end."""
    table = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 0.0]]])
    mdp = dense_mdp(table, [[[waiting, 1.0], [waiting, 1.0]]], discount=1.0, initial=[1.0, 0.0])
    return Model(
        mdp=mdp, counts=np.full(4, counts), error=np.full(4, 0.1), error_kind="q", delta=0.1, unseen="end",
        state_labels=np.array(["a", "b"]), action_labels=np.array(["wait", "go"]), objectives=("r",),
    )  # fmt: skip


@pytest.mark.parametrize("method", [linearized, adv_linearized])
def test_a_loop_that_never_ends_is_refused_at_discount_1(method):
    """If waiting pays, waiting for ever has no finite return; if it costs, going at once is best: 2 instead of 2 − 2·cost."""
    half = np.full((2, 2), 0.5)
    loop = method(wait_or_go(0.1), half, preference=[1.0])
    assert np.array_equal(loop.policy, half)
    assert loop.endless.tolist() == [0, 1]
    assert "in 2 states a change that gains would never end" in loop.status
    best = method(wait_or_go(-0.1), half, preference=[1.0])
    assert best.policy == pytest.approx(np.array([[0.0, 1.0], [0.0, 1.0]]))
    assert best.baseline_return == pytest.approx([2.0 - 0.2])
    assert best.policy_return == pytest.approx([2.0])
    assert best.endless.size == 0
    with pytest.raises(PolicyError, match="the baseline never reaches an end from state 'a'"):
        method(wait_or_go(0.1), [[0.0, 1.0], [1.0, 0.0]], preference=[1.0])


def test_a_budget_is_kept_at_discount_1():
    """ε = 0.04 at e = 0.1 moves 0.2 from waiting to going: J = 2 − 2·0.1·(0.3/0.7)."""
    found = s_opt(wait_or_go(-0.1), np.full((2, 2), 0.5), preference=[1.0], epsilon=0.04)
    assert found.policy[:, 1] == pytest.approx([0.7, 0.7])
    assert found.policy_return == pytest.approx([2.0 - 0.2 * 0.3 / 0.7])


@pytest.mark.parametrize("block", range(4))
def test_policies_end_and_gain_at_discount_1(block):
    """Random models with loops: every policy ends, gains, loses in no state if protected, and is optimal if no loop was refused."""
    optimal = 0
    for seed in range(20 * block, 20 * (block + 1)):
        model, baseline, preference, (table, reward, _, initial, _) = random_model(seed, equal_discounts=True)
        baseline = 0.5 * baseline + 0.5 / baseline.shape[1]
        ones = np.ones(model.mdp.n_objectives)
        model = replace(model, mdp=replace(model.mdp, discount=ones), discount=ones)
        matrix = np.einsum("xa,xay->xy", baseline, table)
        if np.max(np.abs(np.linalg.eigvals(matrix))) > 1.0 - 1e-3:
            continue
        before, _ = dense_values(table, reward, ones, baseline)
        size = 1.0 + np.max(np.abs(before), axis=1)
        free = linearized(model, baseline, preference=preference)
        for constrained, result in (
            (True, s_opt(model, baseline, preference=preference, epsilon=0.5)),
            (True, adv_linearized(model, baseline, preference=preference)),
            (False, free),
        ):
            moves = np.einsum("xa,xay->xy", result.policy, table)
            assert np.max(np.abs(np.linalg.eigvals(moves))) < 1.0
            after, _ = dense_values(table, reward, ones, result.policy)
            slack = 1e-6 * (size + np.max(np.abs(after), axis=1))
            assert preference @ (after - before) @ initial >= -preference @ slack
            if constrained:
                assert np.all(after >= before - slack[:, None])
            if result is free and not free.endless.size:  # no action is better than the policy, in any state
                v, q = (
                    preference @ each.reshape(each.shape[0], -1)
                    for each in dense_values(table, reward, ones, free.policy)
                )
                assert np.all(q.reshape(baseline.shape).max(axis=1) <= v + float(preference @ slack) + 1e-9)
                optimal += 1
    assert optimal > 5


@pytest.mark.parametrize("engine", ["native", "highs"])
@pytest.mark.parametrize("small", [1e-3, 1e-11])
def test_an_objective_of_small_rewards_is_protected_beside_a_large_penalty(engine, small):
    """Rewards of 1e-11, and a penalty of 1e6 on an action that the baseline never plays: such policies once lost 26 %."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        n_states, n_actions = 8, 4
        reward = rng.random((2, n_states, n_actions))
        reward[1] *= small
        reward[1, rng.random(n_states) < 0.7, -1] = -1e6
        mdp = dense_mdp(
            0.9 * rng.dirichlet(np.ones(n_states), size=(n_states, n_actions)),
            reward, discount=0.95, initial=np.full(n_states, 1 / n_states),
        )  # fmt: skip
        counts = rng.integers(5, 50, n_states * n_actions)
        model = Model(
            mdp=mdp, counts=counts, error=1.0 / np.sqrt(counts), error_kind="q", delta=0.1, unseen="end",
            state_labels=np.arange(n_states), action_labels=np.arange(n_actions), objectives=("a", "b"),
        )  # fmt: skip
        baseline = np.hstack([rng.dirichlet(np.ones(n_actions - 1), size=n_states), np.zeros((n_states, 1))])
        for epsilon in (0.1, 1.0, math.inf):
            found = s_opt(model, baseline, preference=[1.0, 0.0], epsilon=epsilon, engine=engine)
            gain = (found.policy_return - found.baseline_return) / found.baseline_return
            assert gain[0] > 0.01  # and yet something is gained
            assert gain[1] >= -1e-6, (seed, epsilon, gain)
