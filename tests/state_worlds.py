"""Logs whose state is enough, and logs whose state is not, each from a seeded generator."""

from __future__ import annotations

import dataclasses

import numpy as np

from bettersafe.envs.gridworld import pit_gridworld
from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.logs.dataset import Dataset, Objective
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.studies.gauntlet.kinds import KINDS, sample_log


def dataset(rows, *, n_states, n_actions, discount=0.95, names=("gain", "harm")):
    states, actions, rewards, following, ended, ptr = rows
    return Dataset(
        states=states,
        actions=actions,
        rewards=rewards,
        next_states=following,
        terminated=ended,
        episode_ptr=ptr,
        state_labels=np.arange(n_states),
        action_labels=np.arange(n_actions),
        episode_labels=np.arange(ptr.size - 1),
        objectives=tuple(Objective(name=name, discount=discount) for name in names),
    )


def simulate(step, hidden, policy, label, horizon, rng):
    """Rows of episodes that advance together: ``step(hidden, action)`` gives rewards, the next hidden state and the end."""
    running, steps = np.arange(len(hidden)), []
    for t in range(horizon):
        state, probability = label(hidden), policy(hidden)
        action = (rng.random(running.size)[:, None] > np.cumsum(probability, axis=1)[:, :-1]).sum(axis=1)
        reward, reached, ended = step(hidden, action)
        steps.append((running, np.full(running.size, t), state, action, reward, label(reached), ended))
        running, hidden = running[~ended], reached[~ended]
        if not running.size:
            break
    episode, time, state, action, reward, following, ended = (
        np.concatenate([each[i] for each in steps]) for i in range(7)
    )
    order = np.lexsort((time, episode))
    ptr = np.concatenate([[0], np.cumsum(np.bincount(episode))])
    following = np.where(ended, -1, following)
    return state[order], action[order], reward[order], following[order], ended[order], ptr


def garnet_log(rng, episodes=100, *, n_states=30, quality=0.5, end=0.05, horizon=None):
    world = garnet(rng, n_states=n_states, end=end)
    baseline = mixed_policy(rng, optimal_policy(true_mdp(world), preference=[1.0, 1.0]), quality)
    return sample_episodes(world, baseline, episodes, rng, horizon=horizon), baseline


def grid_log(rng, episodes=30, *, horizon=200):
    world = pit_gridworld(rng).world
    baseline = mixed_policy(rng, np.full((world.n_states, world.n_actions), 1.0 / world.n_actions), 0.7)
    return sample_episodes(world, baseline, episodes, rng, horizon=horizon), baseline


def inventory_log(rng, episodes=50, *, horizon=30, capacity=15, demand=4.0, season=False, behaviour=None):
    """Stock and orders with Poisson demand and noisy profit; with a ``season``, demand follows a hidden two-state chain."""
    orders = 6
    table = (behaviour or rng).dirichlet(np.full(orders, 0.7), size=capacity + 1)

    def step(hidden, action):
        stock, high = hidden[:, 0], hidden[:, 1]
        high = np.where(rng.random(high.size) < 0.1, 1 - high, high)
        wanted = rng.poisson(np.where(high, 6.5, 1.5) if season else demand, stock.size)
        have = np.minimum(stock + action, capacity)
        sold = np.minimum(have, wanted)
        profit = 5.0 * sold - 2.0 * action - 0.3 * have + rng.normal(size=sold.size)
        reached = np.column_stack([have - sold, high])
        return np.column_stack([profit, -1.0 * (wanted > have)]), reached, np.zeros(sold.size, dtype=bool)

    start = np.column_stack([rng.integers(0, capacity + 1, episodes), rng.integers(0, 2, episodes)])
    rows = simulate(step, start, lambda h: table[h[:, 0]], lambda h: h[:, 0], horizon, rng)
    return dataset(rows, n_states=capacity + 1, n_actions=orders), table


def sticky_log(rng, episodes=40, *, n_states=20, n_actions=3, stay=0.85):
    """A state is left seldom, so that its rows come in runs; rewards are noisy."""
    table = rng.dirichlet(np.ones(n_actions), size=n_states)
    moves = rng.dirichlet(np.full(n_states, 0.2), size=(n_states, n_actions))
    mean = rng.normal(size=(n_states, n_actions, 2))

    def step(x, a):
        moved = (rng.random(x.size)[:, None] > np.cumsum(moves[x, a], axis=1)[:, :-1]).sum(axis=1)
        reached = np.where(rng.random(x.size) < stay, x, moved)
        return mean[x, a] + rng.normal(size=(x.size, 2)), reached, rng.random(x.size) < 0.02

    rows = simulate(step, rng.integers(0, n_states, episodes), lambda x: table[x], lambda x: x, 100, rng)
    return dataset(rows, n_states=n_states, n_actions=n_actions), table


def rare_log(rng, episodes=60, *, n_states=12, n_actions=3, rate=0.005):
    """A loss of 100 in about one of 200 steps."""
    table = rng.dirichlet(np.ones(n_actions), size=n_states)
    moves = rng.dirichlet(np.full(n_states, 0.4), size=(n_states, n_actions))
    rates = rng.uniform(0.0, 2.0 * rate, size=(n_states, n_actions))

    def step(x, a):
        reached = (rng.random(x.size)[:, None] > np.cumsum(moves[x, a], axis=1)[:, :-1]).sum(axis=1)
        lost = -100.0 * (rng.random(x.size) < rates[x, a])
        return np.column_stack([rng.random(x.size), lost]), reached, rng.random(x.size) < 0.03

    rows = simulate(step, rng.integers(0, n_states, episodes), lambda x: table[x], lambda x: x, 40, rng)
    return dataset(rows, n_states=n_states, n_actions=n_actions), table


def tutor_log(rng, episodes, *, logged=False):
    """A tutor whose students are of three kinds, which never change; the kind is in the logged state if ``logged``."""
    instance = KINDS["tutor"].make(rng)
    own = dataclasses.replace(instance, aggregate=None, baseline=instance.practice[0]) if logged else instance
    return sample_log(own, episodes, rng), own.baseline


def lasting_log(rng, episodes=300, *, length=20, size=0.2):
    """States are coin flips; the mean of the first reward is ±``size`` for the whole episode, with noise of standard deviation 1."""
    flips = rng.integers(0, 2, size=(episodes, length + 1))
    kind = np.repeat(rng.choice([-size, size], episodes), length)
    rows = (
        flips[:, :-1].ravel(),
        np.zeros(kind.size, dtype=np.int64),
        np.column_stack([kind + rng.normal(size=kind.size), rng.normal(size=kind.size)]),
        flips[:, 1:].ravel(),
        np.zeros(kind.size, dtype=bool),
        np.arange(0, kind.size + 1, length),
    )
    return dataset(rows, n_states=2, n_actions=1, names=("mood", "noise")), np.ones((2, 1))


ENOUGH = {
    "garnet, 5 episodes": lambda rng: garnet_log(rng, 5),
    "garnet, 20": lambda rng: garnet_log(rng, 20),
    "garnet, 100": lambda rng: garnet_log(rng, 100),
    "garnet, near-deterministic, 50": lambda rng: garnet_log(rng, 50, quality=0.95),
    "garnet, cut off, 40": lambda rng: garnet_log(rng, 40, horizon=15),
    "garnet, long, 10": lambda rng: garnet_log(rng, 10, n_states=15, end=0.005),
    "gridworld, 5": lambda rng: grid_log(rng, 5),
    "gridworld, 30": lambda rng: grid_log(rng, 30),
    "inventory, 20": lambda rng: inventory_log(rng, 20),
    "inventory, 200": lambda rng: inventory_log(rng, 200),
    "sticky, 8": lambda rng: sticky_log(rng, 8),
    "sticky, 40": lambda rng: sticky_log(rng, 40),
    "rare loss, 60": lambda rng: rare_log(rng, 60),
    "rare loss, 400": lambda rng: rare_log(rng, 400),
    "tutor, kind of student logged, 200": lambda rng: tutor_log(rng, 200, logged=True),
}
"""Kinds of logs whose state is enough: generator -> log and baseline."""


# ---- the state is not enough


def merged(log, groups):
    """The log with states merged: ``groups`` [X] is the new state of every state."""
    following = np.where(log.next_states >= 0, groups[log.next_states], -1)
    return dataclasses.replace(
        log,
        states=groups[log.states],
        next_states=following,
        state_labels=np.arange(groups.max() + 1),
        baseline_prob=None,
    )


COOLING, OUTSIDE, LEAK, LIMIT = 2.2, 22.0, 0.08, 8.0


def store_step(temperature, action, rng):
    """Rewards (energy used, degrees above 8, both negative) and the next temperature of a cold store."""
    reached = temperature + LEAK * (OUTSIDE - temperature) - COOLING * action + 0.25 * rng.normal(size=temperature.size)
    return np.column_stack([-1.0 * action, -np.maximum(reached - LIMIT, 0.0)]), reached


def thermostat(temperature):
    """Behaviour: cooling is the more likely the warmer it is."""
    cool = 0.05 + 0.9 / (1.0 + np.exp(-0.7 * (temperature - 6.0)))
    return np.column_stack([1.0 - cool, cool])


def store_log(rng, episodes=100, *, bins=5, horizon=48, discount=0.97):
    """A cold store with its temperature cut into few bins; the thermostat sees the temperature itself."""
    edges = np.linspace(2.0, 12.0, bins - 1)

    def step(hidden, action):
        reward, reached = store_step(hidden, action, rng)
        return reward, reached, np.zeros(hidden.size, dtype=bool)

    def label(hidden):
        return np.searchsorted(edges, hidden)

    rows = simulate(step, rng.normal(6.0, 2.0, episodes), thermostat, label, horizon, rng)
    return dataset(rows, n_states=bins, n_actions=2, discount=discount, names=("energy", "spoilage"))


def merged_garnet(rng, episodes):
    log, _ = garnet_log(rng, episodes, n_states=60)
    return merged(log, rng.integers(0, 12, 60))


def merged_grid(rng, episodes):
    """Cells of a gridworld merged two by two."""
    log, _ = grid_log(rng, episodes)
    cell = np.arange(log.n_states)
    return merged(log, (cell // 20) * 5 + cell % 10 // 2)


NOT_ENOUGH = {
    "cold store, 5 bins, 30 episodes": lambda rng: store_log(rng, 30),
    "cold store, 5 bins, 100": lambda rng: store_log(rng, 100),
    "cold store, 12 bins, 200": lambda rng: store_log(rng, 200, bins=12),
    "inventory, hidden season, 50": lambda rng: inventory_log(rng, 50, season=True)[0],
    "garnet, 60 states as 12, 200": lambda rng: merged_garnet(rng, 200),
    "gridworld, cells merged, 50": lambda rng: merged_grid(rng, 50),
    "tutor, kind of student hidden, 3000": lambda rng: tutor_log(rng, 3000)[0],
}
"""Kinds of logs whose state is not enough: generator -> log."""


def store_features(rng, episodes=300, *, horizon=48):
    """Columns of a cold store's log with its temperature as a feature, for `discretize_log`; costs are positive."""
    temperature, steps = rng.normal(6.0, 2.0, episodes), []
    for t in range(horizon):
        cool = rng.random(episodes) < thermostat(temperature)[:, 1]
        reward, reached = store_step(temperature, cool, rng)
        cut = np.full(episodes, t == horizon - 1)
        steps.append((np.arange(episodes), np.full(episodes, t), temperature, cool, -reward[:, 0], -reward[:, 1], cut))
        temperature = reached
    episode, step, temperature, cool, energy, spoilage, cut = (
        np.concatenate([each[i] for each in steps]) for i in range(7)
    )
    return {
        "episode": episode,
        "step": step,
        "temperature": temperature,
        "action": np.where(cool, "cool", "idle"),
        "energy": energy,
        "spoilage": spoilage,
        "truncated": cut,
    }


def store_returns(policy, rng, *, episodes=2000, horizon=300, discount=0.97):
    """True discounted energy and spoilage of a cold store under a policy: temperature -> probabilities of idle and cool."""
    temperature, total = rng.normal(6.0, 2.0, episodes), np.zeros(2)
    for t in range(horizon):
        cool = rng.random(episodes) < policy(temperature)[:, 1]
        reward, temperature = store_step(temperature, cool, rng)
        total -= discount**t * reward.mean(axis=0)
    return total
