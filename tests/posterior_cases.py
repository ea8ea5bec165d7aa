"""Logs and random worlds for the tests of the posterior and of B-OPT."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from bettersafe import _kernel
from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.logs.dataset import Dataset, Objective
from bettersafe.methods.s_opt import s_opt
from bettersafe.model import estimate_model
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.priors import PriorSet


def random_case(seed=0, *, n_objectives=2, episodes=150, tied=True, discounts=None, quality=0.5, n_states=6):
    """Outcomes, model and baseline of a random world; rewards tied to outcomes are rounded to a few values, others noisy."""
    rng = np.random.default_rng([seed, 11])
    world = garnet(rng, n_states=n_states, n_actions=3, branching=2, n_objectives=n_objectives)
    if tied:
        world = replace(world, outcome_reward=np.round(4.0 * world.outcome_reward) / 4.0)
    if discounts is not None:
        world = replace(
            world,
            objectives=tuple(replace(o, discount=g) for o, g in zip(world.objectives, discounts, strict=True)),
        )
    best = np.eye(3)[true_mdp(world).reward[0].reshape(n_states, 3).argmax(axis=1)]
    baseline = mixed_policy(rng, best, quality)
    data = sample_episodes(world, baseline, episodes, rng)
    if not tied:
        data = replace(data, rewards=data.rewards + 0.1 * rng.normal(size=data.rewards.shape))
    return gather_outcomes(data), estimate_model(data), baseline


def same_candidate(one, other):
    """Whether all numbers of two candidates are the same, to the bit."""
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name), equal_nan=field.name == "p_pessimistic")
        for field in fields(one)
        if field.name != "name"
    )


def s_opt_policies(model, baseline, epsilons, preference=(1.0, 1.0)):
    """S-OPT's policies for some budgets."""
    return [s_opt(model, baseline, preference=preference, epsilon=epsilon).policy for epsilon in epsilons]


needs_kernel = pytest.mark.skipif(_kernel.compiled is None, reason="the kernel is not built")


def noisy_log(seed=0, *, d=2, episodes=30, n_states=12, n_actions=4, discounts=None, quality=0.5, noise=1.0):
    """A log with noisy rewards, and its baseline; some pairs are never tried, and some episodes are cut off."""
    rng = np.random.default_rng([seed, d, 5])
    world = garnet(rng, n_states=n_states, n_actions=n_actions, branching=3, n_objectives=d)
    if discounts is not None:
        objectives = tuple(replace(o, discount=g) for o, g in zip(world.objectives, discounts, strict=True))
        world = replace(world, objectives=objectives)
    best = np.eye(n_actions)[true_mdp(world).reward[0].reshape(n_states, n_actions).argmax(axis=1)]
    baseline = mixed_policy(rng, best, quality)
    data = sample_episodes(world, baseline, episodes, rng)
    return replace(data, rewards=data.rewards + noise * rng.normal(size=data.rewards.shape)), baseline


def some_policies(rng, n_states=12, n_actions=4):
    """Two that play everything a little, and one that plays one action, tried or not."""
    mild = [rng.dirichlet(np.full(n_actions, 0.5), size=n_states) for _ in range(2)]
    return [*mild, np.eye(n_actions)[rng.integers(n_actions, size=n_states)]]


def one_step_log(rows, n_states=2, n_actions=2, objectives=("a", "b")):
    """A log of one-step episodes (x, a, next, rewards...); next −1 ends."""
    x, a, following = (np.array([row[i] for row in rows]) for i in range(3))
    return Dataset(
        states=x,
        actions=a,
        rewards=np.array([row[3:] for row in rows], dtype=float),
        next_states=following,
        terminated=following < 0,
        episode_ptr=np.arange(len(rows) + 1),
        state_labels=np.arange(n_states),
        action_labels=np.arange(n_actions),
        episode_labels=np.arange(len(rows)),
        objectives=tuple(Objective(name=name, discount=0.5) for name in objectives),
    )


SUPPORT = PriorSet(neutral="support")

LOG = one_step_log([(0, 0, 1, 0, 5), (0, 0, 1, 0, 5), (0, 1, -1, 7, 5), (0, 1, -1, 3, 5), (1, 0, -1, 0, 1)])


def hazard_log(rng, episodes=40, n_states=8, n_actions=3, rate=0.1):
    """Actions lead to different places, and every step ends with the same probability."""
    rows, ptr = [], [0]
    for _ in range(episodes):
        x = int(rng.integers(n_states))
        while True:
            a = int(rng.integers(n_actions))
            following = -1 if rng.random() < rate else (x + a + 1) % n_states
            rows.append((x, a, following, 1.0))
            if following < 0:
                break
            x = following
        ptr.append(len(rows))
    return replace(
        one_step_log(rows, n_states, n_actions, ("a",)), episode_ptr=np.array(ptr), episode_labels=np.arange(episodes)
    )


def sampled_world(seed=0, episodes=300):
    rng = np.random.default_rng(seed)
    world = garnet(rng, n_states=8, n_actions=3, branching=3)
    truth = true_mdp(world)
    baseline = rng.dirichlet(np.full(3, 3.0), size=8)
    data = sample_episodes(world, baseline, episodes, rng)
    policy = 0.5 * baseline + 0.5 * rng.dirichlet(np.ones(3), size=8)
    return truth, baseline, policy, data
