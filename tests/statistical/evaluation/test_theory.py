"""The bound after the fact: hand cases, and that it is broken no more often than δ says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.evaluation.theory import proposition_loss, proven_loss
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.mdp.mdp import dense_mdp
from bettersafe.mdp.values import expected_return, policy_values
from bettersafe.methods.s_opt import linearized, s_opt
from bettersafe.model import Model, estimate_model

RANGE = {"reward_low": np.zeros(2), "reward_high": np.ones(2)}


def one_state(counts):
    """Two actions that end the process, rewards 0 and 1."""
    mdp = dense_mdp(np.zeros((1, 2, 1)), np.array([[[0.0, 1.0]]]), discount=0.5, initial=[1.0])
    return Model(
        mdp=mdp, counts=np.array(counts), error=np.ones(2), error_kind="q", delta=0.1, unseen="end",
        state_labels=np.arange(1), action_labels=np.arange(2), objectives=("r",),
    )  # fmt: skip


def test_by_hand():
    """u = (w + γ s) √(ln(2·1·2·1·N/δ)/2n), s = 1/(1−γ) = 2; g = Adv·π − u·|π − π_b|."""
    baseline, policy = np.array([[0.5, 0.5]]), np.array([[0.0, 1.0]])
    counts, rows, delta = [50_000, 50_000], 100_000, 0.1
    width = (1.0 + 0.5 * 2.0) * np.sqrt(np.log(4.0 * rows / delta) / (2 * 50_000))
    result = proven_loss(
        one_state(counts), policy, baseline, delta=delta, reward_low=np.zeros(1), reward_high=np.ones(1), n_rows=rows
    )
    assert result.guard[0, 0] == pytest.approx(0.5 - width)
    assert result.loss_at_most[0] == 0.0
    assert result.gain_at_least[0] == pytest.approx(0.5 - width)  # the episode starts in the only state: μ·g
    assert result.baseline_at_least[0] == pytest.approx(0.5 - width)
    assert result.share_safe[0] == 1.0
    assert result.informative[0]
    few = proven_loss(
        one_state([1, 1]), policy, baseline, delta=delta, reward_low=np.zeros(1), reward_high=np.ones(1), n_rows=2
    )
    assert few.guard[0, 0] == pytest.approx(0.5 - 2.0)  # u is capped at the span of returns
    assert few.loss_at_most[0] == pytest.approx(1.5 / 0.5)
    assert few.gain_at_least[0] == pytest.approx(-1.5 / 0.5)
    assert not few.informative[0]


def test_proposition():
    model = one_state([1, 1])
    assert proposition_loss(model, 0.1, np.array([3.0])) == pytest.approx(0.1 * 3.0 / 0.25)


def test_unchanged_policies_lose_nothing():
    rng = np.random.default_rng(0)
    world = garnet(rng, n_states=6, n_actions=3)
    baseline = mixed_policy(rng, optimal_policy(true_mdp(world), np.ones(2)), 0.5)
    model = estimate_model(sample_episodes(world, baseline, 50, rng))
    result = proven_loss(model, baseline, baseline, delta=0.1, n_rows=100, **RANGE)
    assert np.all(result.loss_at_most == 0.0)
    assert not np.any(np.signbit(result.gain_at_least))
    assert np.all(result.share_safe == 1.0)


def test_it_holds_as_often_as_promised_and_a_planted_fault_is_caught():
    """Over 300 worlds: the difference is never below the bound more often than δ allows (one in a million otherwise);
    without the error term u it is."""
    delta, worlds = 0.1, 300
    broken = planted = 0
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        world = garnet(rng, n_states=5, n_actions=3, branching=3, end=0.3, discount=0.8)
        truth = true_mdp(world)
        baseline = mixed_policy(rng, optimal_policy(truth, np.ones(2)), 0.7)
        data = sample_episodes(world, baseline, 60, rng)
        model = estimate_model(data)
        for policy in (
            linearized(model, baseline, preference=[1.0, 0.0]).policy,
            s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy,
        ):
            difference = expected_return(truth, policy) - expected_return(truth, baseline)
            result = proven_loss(model, policy, baseline, delta=delta, n_rows=data.n_rows, **RANGE)
            own = expected_return(truth, baseline)
            broken += bool(
                np.any(difference < result.gain_at_least - 1e-9) or np.any(own < result.baseline_at_least - 1e-9)
            )
            v, q = policy_values(model.mdp, baseline)
            table = np.zeros((2, *policy.shape))
            table[:, model.mdp.pair_state, model.mdp.pair_action] = q
            naive = np.sum(policy * (table - v[:, :, None]), axis=2)
            planted += bool(np.any(difference < np.minimum(naive.min(axis=1), 0.0) / 0.2 - 1e-9))
    allowed = int(stats.binom.ppf(1.0 - 1e-6, 2 * worlds, delta))
    assert broken <= allowed
    assert planted > allowed
