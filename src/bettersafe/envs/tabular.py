"""Finite environments with known outcome probabilities, and logs drawn from them.

    r_k(x,a) = Σ_o p(o|x,a) ρ_k(x,a,o)      p(x'|x,a) = Σ p(o|x,a) over the outcomes o that lead to x'

An outcome o is a next state or terminal. An MDP has only expected rewards and the probability of termination. A World
also has the reward of every outcome and several kinds of termination, so that its logs contain realistic rewards.

Sampling uses one array, G(i) = Σ_{j<i} p_j over the outcomes of all rows. A draw from row [b, e) is the i with
G(i) ≤ G(b) + u (G(e) − G(b)) < G(i+1), u uniform; rows need not sum to exactly 1. Probabilities are accurate to the
spacing of floats near the end of G (4e-12 for 20,000 rows).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from bettersafe.errors import (
    ParameterError,
    PolicyError,
    check_indices,
    check_integer,
    check_pointer,
    check_type,
    check_types,
)
from bettersafe.logs.dataset import Dataset, Objective, label_array
from bettersafe.mdp.mdp import MDP
from bettersafe.mdp.policy import check_policy
from bettersafe.typing import check_arrays, frozen, generator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bettersafe.typing import Floats, Ints, Labels, Rng

    Result = tuple[float, int, Sequence[float]]

SUM_TOL = 1e-9  # tolerance for sums of probabilities, as in MDP


@dataclass(frozen=True, kw_only=True)
class World:
    """Finite environment with the outcomes of every pair, distinguished by next state, termination and reward.

    Attributes:
        n_states: |X|.
        n_actions: |A|.
        n_terminals: Number T of terminal outcomes; at least 0.
        pair_state: State of every pair, shape [P]; pairs are sorted by state, then action.
        pair_action: Action of every pair, shape [P].
        outcome: Probability of every outcome, CSR [P, X + T]. Rows sum to 1; columns from X on are terminal. A row may
            contain a column twice, with different rewards.
        outcome_reward: Reward of every outcome, shape [d, nnz], aligned with ``outcome.data``.
        initial: μ(x), shape [X].
        objectives: Names and discounts of the d rewards.
        state_labels: Labels of the states, shape [X].
        action_labels: Labels of the actions, shape [A].
        terminal_labels: Labels of the terminal outcomes, shape [T].

    Examples:
        >>> world.n_states, world.n_actions, [objective.name for objective in world.objectives]
        (6, 3, ['r0', 'r1'])
    """

    n_states: int
    n_actions: int
    n_terminals: int
    pair_state: Ints
    pair_action: Ints
    outcome: sparse.csr_array
    outcome_reward: Floats
    initial: Floats
    objectives: tuple[Objective, ...]
    state_labels: Labels
    action_labels: Labels
    terminal_labels: Labels

    def __post_init__(self) -> None:
        for name in ("n_states", "n_actions", "n_terminals"):
            check_integer(name, getattr(self, name), least=0)
        check_types("objectives", self.objectives, Objective)
        check_type("outcome", self.outcome, sparse.csr_array)
        check_pointer("outcome.indptr", self.outcome.indptr, self.outcome.indices.size)
        check_indices("outcome.indices", self.outcome.indices, self.outcome.shape[1])
        check_arrays(self)
        # outcome_reward is aligned with outcome.data. Many SciPy methods sort or sum the entries in place; read-only
        # arrays turn that into an error.
        probability = np.asarray(self.outcome.data, dtype=np.float64).view()
        indices, indptr = self.outcome.indices.view(), self.outcome.indptr.view()
        outcome = sparse.csr_array((probability, indices, indptr), shape=self.outcome.shape)
        for part in (outcome.data, outcome.indices, outcome.indptr):
            part.flags.writeable = False
        pair_state, pair_action, reward, initial = self.pair_state, self.pair_action, self.outcome_reward, self.initial
        labels = {
            name: label_array(getattr(self, name), name=name)
            for name in ("state_labels", "action_labels", "terminal_labels")
        }
        shapes = {
            "outcome": (outcome.shape, (pair_state.size, self.n_states + self.n_terminals)),
            "outcome_reward": (reward.shape, (len(self.objectives), outcome.nnz)),
            "pair_state": (pair_state.shape, (pair_state.size,)),
            "pair_action": (pair_action.shape, (pair_state.size,)),
            "initial": (initial.shape, (self.n_states,)),
            "state_labels": (labels["state_labels"].shape, (self.n_states,)),
            "action_labels": (labels["action_labels"].shape, (self.n_actions,)),
            "terminal_labels": (labels["terminal_labels"].shape, (self.n_terminals,)),
        }
        for name, (got, expected) in shapes.items():
            if got != expected:
                raise ParameterError(f"{name} must have shape {list(expected)}; got {list(got)}.")
        pairs = pair_state * self.n_actions + pair_action
        outside = (pair_state < 0) | (pair_state >= self.n_states)
        outside |= (pair_action < 0) | (pair_action >= self.n_actions)
        if np.any(outside) or np.any(np.diff(pairs) <= 0):
            raise ParameterError(
                f"pairs must lie in {self.n_states} states × {self.n_actions} actions,"
                " sorted by state, then action, each once."
            )
        totals: Floats = outcome.sum(axis=1)
        valid = np.abs(totals - 1.0) <= SUM_TOL
        valid[np.repeat(np.arange(pair_state.size), np.diff(outcome.indptr))[~(probability >= 0.0)]] = False
        bad = np.flatnonzero(~valid)
        if bad.size:
            p = int(bad[0])
            raise ParameterError(
                f"outcomes of state {self.state_labels[pair_state[p]]},"
                f" action {self.action_labels[pair_action[p]]} must have probabilities ≥ 0 that sum to 1;"
                f" they sum to {totals[p]:.9g}."
            )
        if not (np.all(initial >= 0.0) and abs(initial.sum() - 1.0) <= SUM_TOL):
            raise ParameterError(f"initial must be a distribution; it sums to {initial.sum():.9g}.")
        fields = {
            "pair_state": frozen(pair_state, np.int64),
            "pair_action": frozen(pair_action, np.int64),
            "outcome": outcome,
            "outcome_reward": frozen(reward, np.float64),
            "initial": frozen(initial, np.float64),
            **labels,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def n_objectives(self) -> int:
        """The number d of objectives."""
        return len(self.objectives)

    @property
    def discount(self) -> Floats:
        """γ_k, shape [d]."""
        return np.array([objective.discount for objective in self.objectives])


END = -1
"""The next state of an outcome that ends the episode, for `world_of`."""


def world_of(
    step: Callable[[int, int], Iterable[Result]],
    *,
    n_states: int,
    n_actions: int,
    initial: npt.ArrayLike,
    objectives: Sequence[str],
    discount: float | Sequence[float] = 0.95,
    end: float = 0.0,
) -> World:
    """The world with the outcomes that a function lists; every action is possible in every state, and there is one way to end.

    Args:
        step: (x, a) -> outcomes: probability, next state (`END` to end) and rewards [d]. Probabilities are normalised.
        n_states: |X|.
        n_actions: |A|.
        initial: μ, shape [X], or the state in which every episode starts.
        objectives: Names of the d rewards.
        discount: γ_k, one for each objective or one for all.
        end: Probability that a step ends the episode whatever it leads to; what it pays stays the same.
    """
    probability: list[float] = []
    column: list[int] = []
    reward: list[Sequence[float]] = []
    ptr = [0]
    for x in range(n_states):
        for a in range(n_actions):
            found = [result for result in step(x, a) if result[0] > 0.0]
            total = sum(p for p, _, _ in found)
            for p, following, paid in found:
                going = 0.0 if following == END else 1.0 - end
                for share, where in ((going, following), (1.0 - going, n_states)):
                    if share > 0.0:
                        probability.append(p / total * share)
                        column.append(where)
                        reward.append(paid)
            ptr.append(len(probability))
    n_pairs = n_states * n_actions
    gammas = np.broadcast_to(np.asarray(discount, dtype=np.float64), (len(objectives),))
    start = np.eye(1, n_states, initial)[0] if isinstance(initial, int) else np.asarray(initial, dtype=np.float64)
    return World(
        n_states=n_states,
        n_actions=n_actions,
        n_terminals=1,
        pair_state=np.repeat(np.arange(n_states), n_actions),
        pair_action=np.tile(np.arange(n_actions), n_states),
        outcome=sparse.csr_array((probability, column, ptr), shape=(n_pairs, n_states + 1)),
        outcome_reward=np.array(reward, dtype=np.float64).reshape(len(probability), len(objectives)).T,
        initial=start,
        objectives=tuple(
            Objective(name=name, discount=float(gamma)) for name, gamma in zip(objectives, gammas, strict=True)
        ),
        state_labels=np.arange(n_states),
        action_labels=np.arange(n_actions),
        terminal_labels=np.array(["end"]),
    )


def true_mdp(world: World) -> MDP:
    """The MDP of ``world``: expected rewards [d, P] and transition probabilities CSR [P, X].

    Args:
        world: The environment.

    Examples:
        >>> from bettersafe.envs import true_mdp
        >>> truth, estimate = (bettersafe.expected_return(mdp, baseline) for mdp in (true_mdp(world), model.mdp))
        >>> bool(abs(truth - estimate).max() < 0.1)
        True
    """
    check_type("world", world, World)
    paid = world.outcome_reward * world.outcome.data
    return MDP(
        n_states=world.n_states,
        n_actions=world.n_actions,
        pair_state=world.pair_state,
        pair_action=world.pair_action,
        transition=sparse.csr_array(world.outcome[:, : world.n_states], copy=True),  # MDP sums it in place
        reward=np.add.reduceat(paid, world.outcome.indptr[:-1], axis=1),  # no row is empty: each sums to 1
        discount=world.discount,
        initial=world.initial,
    )


def sample_episodes(
    world: World,
    policy: npt.ArrayLike,
    n_episodes: int,
    rng: Rng,
    *,
    horizon: int | None = None,
) -> Dataset:
    """Log ``n_episodes`` episodes of ``policy``. The same generator state gives the same data.

    Args:
        world: The environment.
        policy: π(a|x), shape [X, A]; recorded as ``baseline_prob``.
        n_episodes: Number of episodes; at least 1.
        rng: Seed or generator.
        horizon: Steps after which an episode is truncated. None lets every episode run until it terminates; this is an
            error if an episode could run forever.

    Returns:
        Log with the episodes labelled 0, 1, ….

    Examples:
        >>> from bettersafe.envs import sample_episodes
        >>> sample_episodes(world, baseline, 50, rng=3).n_episodes
        50
    """
    check_type("world", world, World)
    policy = check_policy(policy, world.n_states, world.n_actions, state_labels=world.state_labels)
    check_integer("n_episodes", n_episodes, least=1)
    if horizon is not None:
        check_integer("horizon", horizon, least=1)
    pair_prob = policy[world.pair_state, world.pair_action]
    _check_covered(world, pair_prob)
    if horizon is None:
        _check_ends(world, pair_prob)

    columns = world.outcome.indices.astype(np.int64)
    choices = np.searchsorted(world.pair_state, np.arange(world.n_states + 1))
    choice_sums, outcome_sums, initial_sums = (running_sums(p) for p in (pair_prob, world.outcome.data, world.initial))
    draw, episode = generator(rng), np.arange(n_episodes)
    state = draw_entries(initial_sums, np.array([0, world.n_states]), np.zeros(n_episodes, dtype=np.int64), draw)
    lengths = np.zeros(n_episodes, dtype=np.int64)
    steps: list[tuple[Ints, Ints, Ints]] = []  # per step: running episodes, their pairs, the outcomes drawn
    while episode.size and len(steps) != horizon:
        pair = draw_entries(choice_sums, choices, state, draw)
        drawn = draw_entries(outcome_sums, world.outcome.indptr, pair, draw)
        steps.append((episode, pair, drawn))
        lengths[episode] += 1
        reached = columns[drawn]
        running = reached < world.n_states
        episode, state = episode[running], reached[running]

    # Step t of episode i belongs in row ptr[i] + t: no sorting.
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    pairs, outcomes = np.empty(ptr[-1], dtype=np.int64), np.empty(ptr[-1], dtype=np.int64)
    for t, (episode, pair, drawn) in enumerate(steps):
        pairs[ptr[episode] + t] = pair
        outcomes[ptr[episode] + t] = drawn
    reached = columns[outcomes]
    terminated = reached >= world.n_states
    return Dataset(
        states=world.pair_state[pairs],
        actions=world.pair_action[pairs],
        rewards=world.outcome_reward[:, outcomes].T,
        next_states=np.where(terminated, -1, reached),
        terminated=terminated,
        episode_ptr=ptr,
        baseline_prob=pair_prob[pairs],
        state_labels=world.state_labels,
        action_labels=world.action_labels,
        objectives=world.objectives,
        episode_labels=np.arange(n_episodes),
    )


def running_sums(probability: Floats) -> Floats:
    """Cumulative sums G of the entries of all rows, starting with 0, shape [nnz + 1]."""
    return np.concatenate([[0.0], np.cumsum(probability)])


def draw_entries(sums: Floats, ptr: npt.NDArray[np.integer], rows: Ints, rng: np.random.Generator) -> Ints:
    """Draw an entry of ptr[row]:ptr[row+1] for every row, from the probabilities with cumulative sums ``sums``."""
    begin, end = sums[ptr[rows]], sums[ptr[rows + 1]]
    target = begin + rng.random(rows.size) * (end - begin)
    # Rounding must not move a target into the next row. Side "right" never selects an entry of probability 0.
    target = np.minimum(target, np.nextafter(end, begin))
    after: Ints = np.searchsorted(sums, target, side="right")
    return after - 1


def _check_covered(world: World, pair_prob: Floats) -> None:
    """Raise if the policy plays a pair for which the world has no outcomes."""
    covered = np.bincount(world.pair_state, weights=pair_prob, minlength=world.n_states)
    bad = np.flatnonzero(covered < 1.0 - SUM_TOL)
    if bad.size:
        x = int(bad[0])
        raise PolicyError(
            f"in state {world.state_labels[x]} the policy gives probability {1.0 - covered[x]:.6g} to actions"
            " for which the world has no outcomes."
        )


def _check_ends(world: World, pair_prob: Floats) -> None:
    """Raise if an episode can reach a state from which it never terminates under the policy."""
    n = world.n_states
    chosen = sparse.csr_array((pair_prob, (world.pair_state, np.arange(pair_prob.size))), shape=(n, pair_prob.size))
    move = sparse.coo_array(chosen @ world.outcome)
    rows, columns = move.coords
    possible = move.data > 0.0
    # Node n stands for all terminal outcomes, node n + 1 for the start.
    first = np.flatnonzero(world.initial > 0.0)
    tail = np.concatenate([rows[possible], np.full(first.size, n + 1)])
    head = np.concatenate([np.minimum(columns[possible], n), first])
    graph = sparse.csr_array((np.ones(tail.size), (tail, head)), shape=(n + 2, n + 2))
    reached = csgraph.breadth_first_order(graph, n + 1, return_predecessors=False)
    ending = csgraph.breadth_first_order(graph.T, n, return_predecessors=False)
    stuck = np.setdiff1d(reached, ending)
    if stuck.size:
        raise ParameterError(
            f"an episode can reach state {world.state_labels[stuck[0]]} and never terminate under this policy;"
            " give a horizon."
        )
