"""Practices: baselines of different kinds, made from what is true of a world."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.random_mdp import mixed_policy
from bettersafe.envs.tabular import true_mdp
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.mdp.values import policy_values
from bettersafe.studies.gauntlet.instance import Instance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bettersafe.envs.tabular import World
    from bettersafe.typing import Bools, Floats


def best(world: World, weights: Sequence[float]) -> Floats:
    """Optimal policy for Σ_k weights_k r_k, shape [X, A]."""
    return optimal_policy(true_mdp(world), np.asarray(weights))


def of_quality(rng: np.random.Generator, world: World, weights: Sequence[float], quality: float) -> Floats:
    """ρ of the optimal policy for ``weights``, 1 − ρ of a random one."""
    return mixed_policy(rng, best(world, weights), quality)


def runner_up(rng: np.random.Generator, world: World, weights: Sequence[float], quality: float) -> Floats:
    """ρ of the second-best action of every state by q*, 1 − ρ of a random policy; every action must be possible."""
    truth = true_mdp(world)
    _, q = policy_values(truth, best(world, weights))
    value = (np.asarray(weights) @ q).reshape(world.n_states, world.n_actions)
    second = np.argsort(value, axis=1, kind="stable")[:, -2]
    return mixed_policy(rng, np.eye(world.n_actions)[second], quality)


def nearly_deterministic(rng: np.random.Generator, choice: Floats, slip: float) -> Floats:
    """1 − slip of ``choice`` [X, A], the rest random."""
    return mixed_policy(rng, choice, 1.0 - slip)


def habits(rng: np.random.Generator, usual: Floats, firm: float) -> Floats:
    """A random policy about ``usual`` [X, A]; the larger ``firm``, the closer."""
    return np.array([rng.dirichlet(firm * row + 0.2) for row in usual])


def graded(world: World, weights: Sequence[float], spread: float) -> Floats:
    """exp(−loss of the action by q* / τ), normalised, τ = ``spread`` × the mean loss of the worst actions: small losses are made often."""
    _, q = policy_values(true_mdp(world), best(world, weights))
    value = (np.asarray(weights) @ q).reshape(world.n_states, world.n_actions)
    loss = value.max(axis=1, keepdims=True) - value
    table = np.exp(-loss / (spread * loss.max(axis=1).mean()))
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def wary(policy: Floats, harmful: Bools, share: float) -> Floats:
    """``policy`` with its probability of harmful pairs reduced to ``share`` of it."""
    table = np.where(harmful, share * policy, policy)
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def plain(
    world: Callable[[np.random.Generator], World],
    weights: Sequence[float],
    quality: float,
    *,
    preference: Sequence[float] | None = None,
    from_counts: bool = False,
    horizon: int | None = None,
) -> Callable[[np.random.Generator], Instance]:
    """Makes worlds whose practice is ρ of the best policy for ``weights``; without ``preference``, the first objective is pursued."""
    pursued = np.eye(1, len(weights))[0] if preference is None else np.array(preference)

    def make(rng: np.random.Generator) -> Instance:
        drawn = world(rng)
        baseline = of_quality(rng, drawn, weights, quality)
        return Instance(world=drawn, baseline=baseline, preference=pursued, from_counts=from_counts, horizon=horizon)

    return make
