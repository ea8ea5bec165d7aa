"""Gymnasium environments with vector rewards for worlds, and logs of any Gymnasium environment.

A reward is an array of d numbers, described by ``reward_space``, as in MO-Gymnasium. Observations are the states
0 … X−1. The last observation of an episode that terminates is X + t, with t the terminal outcome (0 … T−1).

Needs Gymnasium: ``pip install "bettersafe[gym]"``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsFloat

import gymnasium
import numpy as np
import numpy.typing as npt

from bettersafe.envs.gridworld import Gridworld, render_image, render_text
from bettersafe.envs.tabular import World, draw_entries, running_sums
from bettersafe.errors import (
    DataError,
    ParameterError,
    PolicyError,
    as_numbers,
    check_choice,
    check_integer,
    check_type,
    check_types,
    check_vector,
)
from bettersafe.logs.dataset import Dataset, Objective, label_array
from bettersafe.mdp.policy import check_policy
from bettersafe.typing import generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.typing import Floats, Labels, Rng

Info = dict[str, Any]


class TabularEnv(gymnasium.Env[np.int64, np.int64]):
    """Gymnasium environment of a ``World``.

    Attributes:
        world: The environment.
        horizon: Steps after which an episode that has not ended is truncated; None for no limit.
        observation_space: Discrete(X + T).
        action_space: Discrete(A).
        reward_space: Box of shape [d], from the lowest to the highest reward of every objective.

    Examples:
        >>> from bettersafe.envs import TabularEnv
        >>> env = TabularEnv(world, horizon=20)
        >>> state, _ = env.reset(seed=0)
        >>> state, reward, terminated, truncated, _ = env.step(1)
        >>> reward.shape
        (2,)
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium reads it off the class

    def __init__(self, world: World, *, horizon: int | None = None) -> None:
        check_type("world", world, World)
        if horizon is not None:
            check_integer("horizon", horizon, least=1)
        self.world, self.horizon = world, horizon
        self.observation_space = gymnasium.spaces.Discrete(world.n_states + world.n_terminals)
        self.action_space = gymnasium.spaces.Discrete(world.n_actions)
        self.reward_space = gymnasium.spaces.Box(
            world.outcome_reward.min(axis=1), world.outcome_reward.max(axis=1), dtype=np.float64
        )
        self._pair = np.full((world.n_states, world.n_actions), -1, dtype=np.int64)
        self._pair[world.pair_state, world.pair_action] = np.arange(world.pair_state.size)
        self._initial_sums, self._outcome_sums = running_sums(world.initial), running_sums(world.outcome.data)
        self._observation: int | None = None  # None before the first reset
        self._steps = 0

    @property
    def observation(self) -> int | None:
        """The last observation: a state, or X + t after termination; None before the first reset."""
        return self._observation

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[np.int64, Info]:
        """Start an episode. The seed determines all later draws; ``options`` is ignored."""
        super().reset(seed=seed, options=options)
        whole, first = np.array([0, self.world.n_states]), np.zeros(1, dtype=np.int64)
        state = draw_entries(self._initial_sums, whole, first, self.np_random)[0]
        self._observation, self._steps = int(state), 0
        return state, {}

    def step(self, action: np.int64) -> tuple[np.int64, SupportsFloat, bool, bool, Info]:
        """Play ``action``; return the observation, the reward [d], terminated, truncated and info.

        After termination, ``info["end"]`` is the label of the terminal outcome.
        """
        world = self.world
        if self._observation is None or self._observation >= world.n_states:
            raise ParameterError("the episode has ended or none was started; call reset() before step().")
        if not self.action_space.contains(action):
            raise ParameterError(f"action must be a whole number below {world.n_actions}; got {action!r}.")
        pair = self._pair[self._observation, action]
        if pair < 0:
            raise ParameterError(
                f"the world has no outcomes for action {world.action_labels[action]} in state"
                f" {world.state_labels[self._observation]}."
            )
        entry = draw_entries(self._outcome_sums, world.outcome.indptr, np.array([pair]), self.np_random)[0]
        observed = np.int64(world.outcome.indices[entry])
        self._observation, self._steps = int(observed), self._steps + 1
        terminated = bool(observed >= world.n_states)
        truncated = not terminated and self.horizon is not None and self._steps >= self.horizon
        info = {"end": str(world.terminal_labels[observed - world.n_states])} if terminated else {}
        return observed, world.outcome_reward[:, entry].copy(), terminated, truncated, info


class GridworldEnv(TabularEnv):
    """Gymnasium environment of a gridworld; ``render_mode`` is "ansi" (text) or "rgb_array" (image [H, W, 3]).

    Attributes:
        gridworld: The gridworld.
        policy: Policy to draw as arrows, shape [X, A]; None for no arrows.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 - as above

    def __init__(
        self,
        gridworld: Gridworld,
        *,
        horizon: int | None = None,
        render_mode: str | None = None,
        policy: npt.ArrayLike | None = None,
    ) -> None:
        check_type("gridworld", gridworld, Gridworld)
        modes = self.metadata["render_modes"]
        if render_mode is not None:
            check_choice("render_mode", render_mode, modes)
        super().__init__(gridworld.world, horizon=horizon)
        self.gridworld, self.render_mode, self.policy = gridworld, render_mode, policy

    def render(self) -> Any:
        """Draw the grid with the agent, according to ``render_mode``; None if there is none."""
        if self.render_mode == "ansi":
            return render_text(self.gridworld, self.policy, agent=self.observation)
        if self.render_mode == "rgb_array":
            return render_image(self.gridworld, self.policy, agent=self.observation)
        return None


class LinearReward(gymnasium.Wrapper[np.int64, np.int64, np.int64, np.int64], gymnasium.utils.RecordConstructorArgs):
    """Wrapper with the scalar reward Σ_k λ_k r_k; the vector is kept in ``info["vector_reward"]``."""

    def __init__(self, env: gymnasium.Env[np.int64, np.int64], *, preference: npt.ArrayLike) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, preference=preference)
        check_type("env", env, gymnasium.Env)
        super().__init__(env)
        n_objectives = env.get_wrapper_attr("reward_space").shape[0]
        self.preference = check_vector("preference", preference, n_objectives, "objective")

    def step(self, action: np.int64) -> tuple[np.int64, SupportsFloat, bool, bool, Info]:
        """Play ``action`` in the wrapped environment, and return the scalar reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        vector = np.asarray(reward, dtype=np.float64)
        return observation, float(self.preference @ vector), terminated, truncated, {**info, "vector_reward": vector}


def rollout(
    env: gymnasium.Env[Any, Any],
    policy: npt.ArrayLike,
    n_episodes: int,
    rng: Rng,
    *,
    objectives: Sequence[Objective],
    horizon: int | None = None,
) -> Dataset:
    """Log ``n_episodes`` episodes of ``policy`` in an environment with Discrete observations and actions.

    The labels of a ``TabularEnv`` (wrapped or not) are those of its world, if the policy has one row per state. The
    labels of any other environment are its own numbers.

    Args:
        env: The environment; its rewards, vectors [d] or single numbers (d = 1), are to be maximised.
        policy: π(a|x), shape [X, A]; recorded as ``baseline_prob``. It may have fewer rows than the environment has
            observations, if the last observations occur only at the end of an episode.
        n_episodes: Number of episodes; at least 1.
        rng: Seed or generator; draws the actions and the seed of the environment.
        objectives: Names and discounts of the d rewards.
        horizon: Steps after which an episode is truncated. Required if the environment does not end episodes itself.

    Examples:
        >>> from bettersafe.envs import TabularEnv, rollout
        >>> rollout(TabularEnv(world), baseline, 5, rng=0, objectives=world.objectives).n_episodes
        5
    """
    check_type("env", env, gymnasium.Env)
    check_types("objectives", objectives, Objective)
    first_state, n_observations = _discrete("observations", env.observation_space)
    first_action, n_actions = _discrete("actions", env.action_space)
    policy = as_numbers("the policy", policy)
    n_states = policy.shape[0] if policy.ndim == 2 else n_observations
    if n_states > n_observations:
        raise PolicyError(f"the policy has {n_states} rows; the environment has {n_observations} observations.")
    table = check_policy(policy, n_states, n_actions)
    check_integer("n_episodes", n_episodes, least=1)
    if horizon is not None:
        check_integer("horizon", horizon, least=1)
    sums, rows = running_sums(table.ravel()), np.arange(n_states + 1) * n_actions

    states: list[int] = []
    actions: list[int] = []
    next_states: list[int] = []
    rewards: list[Floats] = []
    ended: list[bool] = []
    ptr = [0]
    draw = generator(rng)
    seed: int | None = int(draw.integers(2**31))
    for _ in range(n_episodes):
        observation, _ = env.reset(seed=seed)
        seed = None  # later episodes continue the environment's own random stream
        state, stopped = int(observation) - first_state, False
        while not stopped:
            if not 0 <= state < n_states:
                raise PolicyError(
                    f"observation {state + first_state} occurred within an episode; the policy has no row for it."
                )
            action = int(draw_entries(sums, rows, np.array([state]), draw)[0]) - state * n_actions
            observation, reward, terminated, truncated, _ = env.step(np.int64(action + first_action))
            vector = np.atleast_1d(np.asarray(reward, dtype=np.float64))
            if vector.shape != (len(objectives),):
                names = ", ".join(objective.name for objective in objectives)
                raise DataError(
                    f"the environment must return {len(objectives)} rewards ({names}); it returned {vector.tolist()}."
                    " Give one objective per reward."
                )
            states.append(state)
            actions.append(action)
            rewards.append(vector)
            state = int(observation) - first_state
            ended.append(bool(terminated))
            next_states.append(-1 if terminated else state)
            stopped = bool(terminated or truncated) or len(states) - ptr[-1] == horizon
        ptr.append(len(states))
    played = (np.array(states), np.array(actions))
    state_labels: Labels = label_array(first_state + np.arange(n_states))
    action_labels: Labels = label_array(first_action + np.arange(n_actions))
    inner = env.unwrapped
    if isinstance(inner, TabularEnv) and n_states == inner.world.n_states:
        state_labels, action_labels = inner.world.state_labels, inner.world.action_labels
    return Dataset(
        states=played[0],
        actions=played[1],
        rewards=np.array(rewards),
        next_states=np.array(next_states),
        terminated=np.array(ended),
        episode_ptr=np.array(ptr),
        baseline_prob=table[played],
        state_labels=state_labels,
        action_labels=action_labels,
        objectives=tuple(objectives),
        episode_labels=np.arange(n_episodes),
    )


def _discrete(what: str, space: gymnasium.Space[Any]) -> tuple[int, int]:
    """First number and size of a Discrete space."""
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise ParameterError(
            f"{what} must be Discrete, one whole number each; got {space}. Number them in a gymnasium wrapper."
        )
    return int(space.start), int(space.n)
