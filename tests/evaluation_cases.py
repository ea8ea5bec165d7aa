"""Worlds, logs and policies for the tests of estimates, tests on held-out data and certificates."""

from __future__ import annotations

import numpy as np

from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import World, sample_episodes, true_mdp
from bettersafe.evaluation.held_out import SafetyRule
from bettersafe.logs.dataset import Objective, split
from bettersafe.methods.s_opt import s_opt
from bettersafe.model import Model, estimate_model


def held_out_case(seed=0, episodes=600, *, horizon=None):
    rng = np.random.default_rng(seed)
    world = garnet(rng, n_states=5, n_actions=3, end=0.4, discount=0.8)
    baseline = rng.dirichlet(np.full(3, 4.0), size=5)
    data = sample_episodes(world, baseline, episodes, rng, horizon=horizon)
    train, held_out = split(data, (0.5, 0.5), rng)
    model = estimate_model(train)
    policy = s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy
    return true_mdp(world), baseline, policy, train, held_out, model


def safety_rule(**more):
    return SafetyRule(**{"delta": 0.1, "zeta": np.zeros(2), **more})


def two_state_world(seed=0):
    """A small random world with two objectives; episodes end with probability 0.2 or more at every step."""
    from scipy import sparse

    rng = np.random.default_rng(seed)
    n_states, n_actions = 4, 3
    table = np.zeros((n_states * n_actions, n_states + 1))
    table[:, :n_states] = rng.dirichlet(np.ones(n_states), size=n_states * n_actions) * rng.uniform(
        0.5, 0.8, (n_states * n_actions, 1)
    )
    table[:, n_states] = 1.0 - table[:, :n_states].sum(axis=1)
    outcome = sparse.csr_array(table)
    return World(
        n_states=n_states, n_actions=n_actions, n_terminals=1,
        pair_state=np.repeat(np.arange(n_states), n_actions), pair_action=np.tile(np.arange(n_actions), n_states),
        outcome=outcome, outcome_reward=rng.normal(size=(2, outcome.nnz)), initial=rng.dirichlet(np.ones(n_states)),
        objectives=(Objective(name="a", discount=0.9), Objective(name="b", discount=0.95)),
        state_labels=np.arange(n_states), action_labels=np.arange(n_actions), terminal_labels=np.array(["end"]),
    )  # fmt: skip


def policies(seed=1):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(3, 5.0), size=4), rng.dirichlet(np.full(3, 5.0), size=4)


def truth_model(world, counts=1):
    mdp = true_mdp(world)
    return Model(
        mdp=mdp, counts=np.full(mdp.n_pairs, counts), error=np.ones(mdp.n_pairs), error_kind="q", delta=0.1, unseen="end",
        state_labels=world.state_labels, action_labels=world.action_labels, objectives=("a", "b"),
    )  # fmt: skip


def two_state_case(seed, *, episodes):
    """A world, its baseline, a target, and a log of it."""
    world, (target, baseline) = two_state_world(seed), policies(seed)
    return world, baseline, target, sample_episodes(world, baseline, episodes, np.random.default_rng(seed))
