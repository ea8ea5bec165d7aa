"""Random worlds (Garnets): random successors and rewards for every pair, and a probability of termination per step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from bettersafe._system.memory import check_memory
from bettersafe.envs.tabular import World
from bettersafe.errors import ParameterError, PolicyError, as_numbers, check_integer, check_number
from bettersafe.logs.dataset import Objective
from bettersafe.typing import generator

if TYPE_CHECKING:
    import numpy.typing as npt

    from bettersafe.typing import Floats, Rng


def garnet(
    rng: Rng,
    *,
    n_states: int = 30,
    n_actions: int = 4,
    branching: int = 4,
    n_objectives: int = 2,
    discount: float = 0.95,
    end: float | Floats = 0.05,
) -> World:
    """A random world.

    Args:
        rng: Seed or generator.
        n_states: |X|.
        n_actions: |A|.
        branching: Successors of every pair, with Dirichlet(1) probabilities.
        n_objectives: d. The rewards of a pair are uniform in [0, 1] and do not depend on the outcome.
        discount: γ of every objective.
        end: Probability that a step ends the episode: one number, or one per pair, shape [|X| |A|].

    Examples:
        >>> from bettersafe.envs import garnet
        >>> garnet(7, n_states=10, n_objectives=3).n_objectives
        3
    """
    sizes = {"n_states": n_states, "n_actions": n_actions, "branching": branching, "n_objectives": n_objectives}
    for name, size in sizes.items():
        check_integer(name, size, least=1)
    if branching > n_states:
        raise ParameterError(f"branching must be at most n_states, {n_states}; got {branching}.")
    draw, n_pairs = generator(rng), n_states * n_actions
    end = as_numbers("end", end)
    if end.shape not in ((), (n_pairs,)) or not np.all((end >= 0.0) & (end <= 1.0)):
        raise ParameterError(f"end must be a probability, or {n_pairs}, one per pair.")
    check_memory(16.0 * n_pairs * n_states + 8.0 * n_pairs * n_objectives * (branching + 1), "drawing the world")
    columns = np.sort(draw.random((n_pairs, n_states)).argsort(axis=1)[:, :branching], axis=1)
    ends = np.broadcast_to(end, n_pairs)[:, None]
    probability = draw.dirichlet(np.ones(branching), size=n_pairs) * (1.0 - ends)
    data = np.hstack([probability, ends])
    indices = np.hstack([columns, np.full((n_pairs, 1), n_states)])
    outcome = sparse.csr_array(
        (data.ravel(), indices.ravel(), np.arange(0, data.size + 1, branching + 1)), shape=(n_pairs, n_states + 1)
    )
    return World(
        n_states=n_states,
        n_actions=n_actions,
        n_terminals=1,
        pair_state=np.repeat(np.arange(n_states), n_actions),
        pair_action=np.tile(np.arange(n_actions), n_states),
        outcome=outcome,
        outcome_reward=np.repeat(draw.random((n_objectives, n_pairs)), branching + 1, axis=1),
        initial=draw.dirichlet(np.ones(n_states)),
        objectives=tuple(Objective(name=f"r{k}", discount=discount) for k in range(n_objectives)),
        state_labels=np.arange(n_states),
        action_labels=np.arange(n_actions),
        terminal_labels=np.array(["end"]),
    )


def mixed_policy(rng: Rng, best: npt.ArrayLike, quality: float) -> Floats:
    """Baseline of quality ρ: ρ π* + (1−ρ) times a random policy, shape [X, A].

    Args:
        rng: Seed or generator.
        best: π*, shape [X, A].
        quality: ρ, from 0 (random) to 1 (π*).

    Examples:
        >>> from bettersafe.envs import mixed_policy, true_mdp
        >>> from bettersafe.mdp import optimal_policy
        >>> fair = mixed_policy(0, optimal_policy(true_mdp(world), preference=[1.0, 1.0]), quality=0.5)
        >>> bool((fair.sum(axis=1).round(9) == 1.0).all())
        True
    """
    table = as_numbers("the best policy", best)
    if table.ndim != 2:
        raise PolicyError(f"the best policy must have shape [X, A] (states, actions); got {table.shape}.")
    check_number("quality", quality)
    noise = generator(rng).dirichlet(np.ones(table.shape[1]), size=table.shape[0])
    return np.asarray(quality * table + (1.0 - quality) * noise)
