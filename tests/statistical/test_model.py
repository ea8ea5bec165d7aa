"""The value of decisions without data, on a deterministic world where every step costs: deep sea treasure."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from bettersafe.envs.tabular import World, sample_episodes, true_mdp
from bettersafe.logs.dataset import Objective
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.mdp.values import expected_return
from bettersafe.methods.s_opt import adv_linearized, s_opt
from bettersafe.model import estimate_model

DEPTH = (1, 2, 3, 4, 4, 4, 7, 7, 9, 10)
TREASURE = (1.0, 2.0, 3.0, 5.0, 8.0, 16.0, 24.0, 50.0, 74.0, 124.0)
"""Depth and treasure of every column (Vamplew et al. 2011); actions are up, down, left, right, and a step costs 1."""


def deep_sea_treasure():
    cells = [(row, column) for column in range(10) for row in range(DEPTH[column])]
    index = {cell: i for i, cell in enumerate(cells)}
    following, rewards = [], []
    for row, column in cells:
        for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            to = (row + down, column + right)
            if not (0 <= to[1] < 10 and 0 <= to[0] <= DEPTH[to[1]]):
                to = (row, column)
            ends = to[0] == DEPTH[to[1]]
            following.append(len(cells) + to[1] if ends else index[to])
            rewards.append((TREASURE[to[1]] if ends else 0.0, -1.0))
    n = len(cells)
    return World(
        n_states=n,
        n_actions=4,
        n_terminals=10,
        pair_state=np.repeat(np.arange(n), 4),
        pair_action=np.tile(np.arange(4), n),
        outcome=sparse.csr_array((np.ones(4 * n), (np.arange(4 * n), following)), shape=(4 * n, n + 10)),
        outcome_reward=np.array(rewards).T,
        initial=np.eye(n)[index[0, 0]],
        objectives=(Objective(name="treasure"), Objective(name="time")),
        state_labels=np.arange(n),
        action_labels=np.array(["up", "down", "left", "right"]),
        terminal_labels=np.arange(10),
    )


def test_the_default_is_worse_than_the_baseline_least_often():
    """Forty-eight logs, two preferences: a policy is worse if it loses treasure or time in truth. With "end", a decision without data saves
    the time to go on; with "worst", policies are rewarded for avoiding what the baseline does."""
    world = deep_sea_treasure()
    truth = true_mdp(world)
    best = optimal_policy(truth, np.ones(2))
    worse = {(rule, method): 0 for rule in ("baseline", "end", "worst") for method in ("s-opt", "adv-linearized")}
    for seed in range(48):
        quality = (0.2, 0.5, 0.8)[seed % 3]
        baseline = quality * best + (1.0 - quality) / 4.0
        data = sample_episodes(world, baseline, 50, np.random.default_rng([seed, 79]), horizon=60)
        before = expected_return(truth, baseline)
        for rule, method in worse:
            model = estimate_model(data, unseen=rule, baseline=baseline)
            for preference in ([1.0, 0.0], [0.0, 1.0]):
                found = (
                    s_opt(model, baseline, preference=preference, epsilon=0.1)
                    if method == "s-opt"
                    else adv_linearized(model, baseline, preference=preference)
                )
                after = expected_return(truth, found.policy)
                worse[rule, method] += bool(np.any(after < before - 1e-4))
    assert estimate_model(data, baseline=baseline).unseen == "baseline"
    for method in ("s-opt", "adv-linearized"):
        assert 3 * worse["baseline", method] <= 2 * min(worse["end", method], worse["worst", method]), worse  # of 96
