"""Worlds that are difficult to learn from: the difficulty is there."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs.hazards import (
    EXPONENTIAL_POINTS,
    NORMAL_POINTS,
    STUDENT_POINTS,
    arms,
    catastrophe,
    deadly_actions,
    heavy_tails,
    late_harm,
    layered,
    one_way_door,
    poisson,
    rare_cost,
    rare_rewards,
    with_noise,
)
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.mdp.values import expected_return

HAZARDS = {
    "catastrophe": lambda rng: catastrophe(rng, ends=True),
    "pit": lambda rng: catastrophe(rng, ends=False),
    "deadly": deadly_actions,
    "door": one_way_door,
    "late": late_harm,
}


@pytest.mark.parametrize("name", HAZARDS)
def test_harmful_pairs_do_harm(name):
    """Of two policies that are alike elsewhere, the one that plays harmful pairs loses more on the harm."""
    for seed in range(4):
        hazard = HAZARDS[name](seed)
        truth, uniform = true_mdp(hazard.world), np.full(hazard.harmful.shape, 1.0 / hazard.harmful.shape[1])
        table = np.where(hazard.harmful, 20.0 * uniform, uniform)
        if name == "late":  # harm depends on the exposure, which the fast actions raise
            table = uniform * np.array([0.1, 0.1, 1.0, 10.0])
        daring = expected_return(truth, table / table.sum(axis=1, keepdims=True))
        assert daring[hazard.harm] < expected_return(truth, uniform)[hazard.harm] - 0.01
        assert hazard.harmful.any()
        assert not hazard.harmful.all()


def test_a_catastrophe_is_rare_and_large():
    hazard = catastrophe(3, ends=True)
    world = hazard.world
    struck = world.outcome_reward[1] == -10.0
    of_pair = np.repeat(np.arange(world.pair_state.size), np.diff(world.outcome.indptr))
    chance = np.bincount(of_pair[struck], world.outcome.data[struck], world.pair_state.size).reshape(
        hazard.harmful.shape
    )
    assert np.array_equal(chance > 0.0, hazard.harmful)
    assert 0.005 <= chance.max() <= 0.02
    assert np.all(world.outcome.indices[struck] == world.n_states)


def test_a_pit_is_left_slowly():
    world = catastrophe(3, ends=False).world
    table = world.outcome.toarray().reshape(world.n_states, 4, -1)
    assert table[-1, :, world.n_states - 1] == pytest.approx(0.9 * 0.95)


def test_nobody_leaves_the_backwater():
    world = one_way_door(0).world
    table = world.outcome.toarray().reshape(world.n_states, 4, -1)
    assert np.all(table[24:, :, :24] == 0.0)


def test_noise_has_mean_zero():
    value, share = np.array(NORMAL_POINTS).T
    assert share.sum() == pytest.approx(1.0)
    assert share @ value == pytest.approx(0.0, abs=1e-12)
    assert share @ value**2 == pytest.approx(0.85, abs=0.01)
    noisy = with_noise([(0.5, 3, (1.0, 2.0))], 1, 2.0)
    assert sum(p for p, _, _ in noisy) == pytest.approx(0.5)
    assert sum(p * paid[1] for p, _, paid in noisy) == pytest.approx(1.0)
    assert {paid[0] for _, _, paid in noisy} == {1.0}


def test_other_noise_is_skewed_or_has_heavy_tails():
    value, share = np.array(EXPONENTIAL_POINTS).T
    assert share.sum() == pytest.approx(1.0)
    assert share @ value == pytest.approx(1.0, abs=1e-4)
    assert share @ (value - 1.0) ** 3 > 1.0
    value, share = np.array(STUDENT_POINTS).T
    assert share.sum() == pytest.approx(1.0)
    assert share @ value == pytest.approx(0.0, abs=1e-12)
    assert share @ value**4 > 5.0 * (share @ value**2) ** 2
    noisy = with_noise([(1.0, 3, (1.0, 2.0))], 0, -6.0, EXPONENTIAL_POINTS)
    assert sum(p * paid[0] for p, _, paid in noisy) == pytest.approx(-5.0, abs=1e-3)


def test_rare_rewards_and_costs_are_rare():
    for world, k, low, high in ((rare_rewards(1), 0, 0.01, 0.033), (rare_cost(1), 1, 0.03, 0.12)):
        uniform = np.full((world.n_states, 4), 0.25)
        log = sample_episodes(world, uniform, 3000, 0)
        seen = log.rewards[:, k] != 0.0
        assert low < seen.mean() < high
        assert np.unique(log.rewards[seen, k]).size == 1


def test_claims_have_a_heavy_tail():
    log = sample_episodes(heavy_tails(0), np.full((12, 4), 0.25), 3000, 0)
    profit = log.rewards[:, 0]
    assert np.median(profit) - profit.min() > 10.0 * (np.quantile(profit, 0.95) - np.median(profit))


def test_layers_are_passed_one_by_one():
    world = layered(0, layers=4, width=3)
    table = world.outcome.toarray().reshape(12, 4, 13)
    for x in range(12):
        reached = {int(y) for y in np.flatnonzero(table[x].sum(axis=0))}
        assert {y // 3 for y in reached} <= {max(x // 3 - 1, 0), x // 3, x // 3 + 1}
    opposed = true_mdp(layered(0, opposed=True))
    total = opposed.reward.sum(axis=0)
    assert np.all((total <= 0.0) & (total >= -0.05))


def test_arms_are_pulled_once():
    log = sample_episodes(arms(0), np.full((10, 8), 0.125), 500, 0)
    assert log.n_rows == 500
    assert np.all(log.terminated)


def test_poisson_probabilities_sum_to_1():
    found = poisson(1.5, 4)
    assert sum(found) == pytest.approx(1.0)
    assert found[:2] == pytest.approx([np.exp(-1.5), 1.5 * np.exp(-1.5)])
