"""Worlds as Gymnasium environments: Gymnasium's own checker, the sampler they must agree with, and foreign environments."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit
from scipy import stats

from bettersafe.envs.gridworld import make_gridworld, pit_gridworld, render_image, render_text
from bettersafe.envs.gym import GridworldEnv, LinearReward, TabularEnv, rollout
from bettersafe.envs.icu_sepsis import clinician_policy, icu_sepsis
from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.errors import DataError, ParameterError, PolicyError
from bettersafe.logs.dataset import Objective
from places import ROOT

if TYPE_CHECKING:
    from bettersafe.envs.tabular import World

SMALLEST_P = 1e-6  # of χ² tests: a right program fails one seed in a million, and seeds are fixed

# Gymnasium knows no vector rewards; the weighted sum is checked in its place, for which it must be wrapped.
wrapped = pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")

GRID = pit_gridworld(np.random.default_rng(0), size=3, n_pit_kinds=2)
UNIFORM = np.full((8, 4), 0.25)


@wrapped
@pytest.mark.parametrize("world", [garnet(np.random.default_rng(0)), icu_sepsis()], ids=["garnet", "icu-sepsis"])
def test_worlds_pass_gymnasiums_checks(world: World) -> None:
    env = TabularEnv(world, horizon=20)
    check_env(LinearReward(env, preference=np.ones(world.n_objectives)), skip_render_check=True)
    with pytest.warns(UserWarning, match="reward returned by `step") as complaints:
        check_env(env, skip_render_check=True)
    assert len(complaints) == 1  # about the vector, and about nothing else


@wrapped
@pytest.mark.parametrize("mode", [None, "ansi", "rgb_array"])
def test_gridworlds_pass_gymnasiums_checks_and_render(mode: str | None) -> None:
    def make(**settings: Any) -> LinearReward:
        return LinearReward(GridworldEnv(GRID, horizon=50, **settings), preference=[1.0, 1.0, 0.0])

    spec = EnvSpec(id="Pits-v0", entry_point=make, order_enforce=False, disable_env_checker=True)
    check_env(gymnasium.make(spec, render_mode=mode))
    env = GridworldEnv(GRID, render_mode=mode, policy=UNIFORM)
    env.reset(seed=0)
    observed = [env.step(np.int64(3))[0] for _ in range(3)][-1]
    expected = {
        None: None,
        "ansi": render_text(GRID, UNIFORM, agent=int(observed)),
        "rgb_array": render_image(GRID, UNIFORM, agent=int(observed)),
    }[mode]
    assert np.array_equal(env.render(), expected)
    assert env.observation == observed != GRID.start


def test_a_walk_that_cannot_go_wrong() -> None:
    """2 × 2, moves always succeed: up, then left into the goal; the start is a pit."""
    sure = make_gridworld(pits=[[0, 0, 1]], success_prob=np.ones((3, 4)))
    env = GridworldEnv(sure, horizon=2)
    assert env.observation is None
    assert env.reset() == (2, {})
    observed, reward, terminated, truncated, info = env.step(np.int64(3))
    assert (observed, terminated, truncated, info) == (0, False, False, {})
    assert np.array_equal(reward, [-1.0, -1.0])  # type: ignore[arg-type]
    observed, reward, terminated, truncated, info = env.step(np.int64(1))
    # It ends at the horizon: an end all the same.
    assert (observed, terminated, truncated, info) == (sure.goal, True, False, {"end": "goal"})
    assert np.array_equal(reward, [1000.0, 0.0])  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=r"call reset\(\) before step"):
        env.step(np.int64(0))
    env.reset()
    assert [env.step(np.int64(0))[2:4] for _ in range(2)] == [(False, False), (False, True)]
    assert env.reward_space.shape == (2,)
    np.testing.assert_array_equal(env.reward_space.low, [-1.0, -1.0])
    np.testing.assert_array_equal(env.reward_space.high, [1000.0, 0.0])


def test_the_seed_decides() -> None:
    def play(seed: int) -> list[int]:
        env = TabularEnv(garnet(np.random.default_rng(0), end=0.001))
        first, _ = env.reset(seed=seed)
        return [int(first)] + [int(env.step(np.int64(0))[0]) for _ in range(20)]

    assert play(1) == play(1) != play(2)


def test_how_it_ended_is_told() -> None:
    world = icu_sepsis()
    env = TabularEnv(world)
    ends = set()
    for seed in range(20):
        env.reset(seed=seed)
        terminated = False
        while not terminated:
            observed, reward, terminated, _, info = env.step(np.int64(0))
        assert info["end"] == {-100.0: "death", 100.0: "survival"}[float(np.squeeze(reward))]
        assert info["end"] == world.terminal_labels[observed - world.n_states]
        ends.add(info["end"])
    assert ends == {"death", "survival"}


def test_linear_reward_weighs() -> None:
    env = LinearReward(TabularEnv(GRID.world), preference=[1.0, 0.0, 10.0])
    env.reset(seed=0)
    _, reward, _, _, info = env.step(np.int64(0))
    assert reward == pytest.approx(np.dot([1.0, 0.0, 10.0], info["vector_reward"]))
    with pytest.raises(ParameterError, match="preference needs 3 numbers, one per objective"):
        LinearReward(TabularEnv(GRID.world), preference=[1.0, 1.0])


def test_rollouts_are_logs_of_the_world() -> None:
    """Every row of a rollout is one that the world knows, exactly; and labels are the world's."""
    world = GRID.world
    env = TabularEnv(world, horizon=30)
    log = rollout(env, UNIFORM, 200, np.random.default_rng(1), objectives=world.objectives)
    mdp = true_mdp(world)
    pair = log.states * 4 + log.actions
    reached = np.where(log.terminated, world.n_states, log.next_states)
    assert np.all(world.outcome.toarray()[pair, reached] > 0.0)
    np.testing.assert_array_equal(log.rewards[:, 1:], mdp.reward[1:, pair].T)
    np.testing.assert_array_equal(log.rewards[:, 0], np.where(log.terminated, 1000.0, -1.0))
    np.testing.assert_array_equal(log.baseline_prob, np.full(log.n_rows, 0.25))
    np.testing.assert_array_equal(log.states[log.episode_ptr[:-1]], GRID.start)
    np.testing.assert_array_equal(log.state_labels, world.state_labels)
    np.testing.assert_array_equal(log.action_labels, world.action_labels)
    # Moves succeed as often as they should: Σ z² over the pairs that can move is χ².
    tried = np.bincount(pair, minlength=32)
    moved = np.bincount(pair, weights=reached != log.states, minlength=32)
    chance = 1.0 - world.outcome.toarray()[np.arange(32), np.repeat(np.arange(8), 4)]
    free = (chance > 0.0) & (tried > 0)
    z = (moved - tried * chance)[free] / np.sqrt(tried * chance * (1.0 - chance))[free]
    assert stats.chi2.sf(z @ z, z.size) > SMALLEST_P
    np.testing.assert_array_equal(moved[chance == 0.0], 0.0)
    lengths, last = np.diff(log.episode_ptr), log.episode_ptr[1:] - 1
    assert np.all((lengths == 30) | log.terminated[last])
    assert np.any(~log.terminated[last])
    assert np.all(log.next_states[last[~log.terminated[last]]] >= 0)  # cut off: the state behind the cut is known


@pytest.mark.parametrize("name", ["gridworld", "garnet", "icu-sepsis"])
def test_rollouts_and_the_sampler_agree(name: str) -> None:
    """First states, actions, lengths and ends of both have one distribution (χ² of two samples)."""
    world = {
        "gridworld": GRID.world,
        "garnet": garnet(np.random.default_rng(1), n_states=6, n_actions=3),
        "icu-sepsis": icu_sepsis(),
    }[name]
    rng = np.random.default_rng(2)
    policy = clinician_policy() if name == "icu-sepsis" else rng.dirichlet(np.ones(world.n_actions), world.n_states)
    env = TabularEnv(world, horizon=25)
    one = rollout(env, policy, 600, rng, objectives=world.objectives)
    two = sample_episodes(world, policy, 6000, rng, horizon=25)
    assert one.state_labels.dtype == two.state_labels.dtype
    for column in (
        lambda log: log.states[log.episode_ptr[:-1]],
        lambda log: log.states,
        lambda log: log.actions,
        lambda log: np.diff(log.episode_ptr),
        lambda log: np.add.reduceat(log.rewards[:, 0], log.episode_ptr[:-1]),
        lambda log: log.terminated[log.episode_ptr[1:] - 1],
    ):
        values = [np.asarray(column(log), dtype=np.float64) for log in (one, two)]
        # Rows of an episode depend on each other: one row per episode, the first or a random one, is compared.
        values = [
            v if v.size == log.n_episodes else v[pick(log, rng)] for v, log in zip(values, (one, two), strict=True)
        ]
        edges = np.unique(np.quantile(np.concatenate(values), np.linspace(0, 1, 9)[1:-1]))
        counts = np.array(
            [np.bincount(np.searchsorted(edges, v, side="right"), minlength=edges.size + 1) for v in values]
        )
        counts = counts[:, counts.sum(axis=0) > 0]
        if counts.shape[1] > 1:
            assert stats.chi2_contingency(counts).pvalue > SMALLEST_P


def pick(log: Any, rng: np.random.Generator) -> Any:
    """A random row of every episode."""
    return log.episode_ptr[:-1] + rng.integers(np.diff(log.episode_ptr))


def test_a_sure_world_gives_the_samplers_log_exactly() -> None:
    sure = make_gridworld(pits=[[0, 1, 0]], success_prob=np.ones((3, 4)))
    policy = np.eye(4)[[1, 3, 1]]  # left into the pit, up into the goal
    one = rollout(
        TimeLimit(GridworldEnv(sure), 9), policy, 3, np.random.default_rng(0), objectives=sure.world.objectives
    )
    two = sample_episodes(sure.world, policy, 3, np.random.default_rng(0))
    for name in ("states", "actions", "rewards", "next_states", "terminated", "episode_ptr", "baseline_prob"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert one.states.tolist() == [2, 1] * 3


class Stairs(gymnasium.Env[int, int]):
    """Steps 5, 6, 7 (the top, an end); action −1 stays, 0 climbs; the reward is a plain number."""

    observation_space = gymnasium.spaces.Discrete(3, start=5)
    action_space = gymnasium.spaces.Discrete(2, start=-1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.height = 5
        return self.height, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.height += int(action) + 1
        return self.height, float(self.height), self.height == 7, False, {}


def test_foreign_environments_with_other_numbers_and_one_reward() -> None:
    objectives = [Objective(name="height")]
    rng = np.random.default_rng(0)
    climb = rollout(Stairs(), np.array([[0.0, 1.0]] * 2), 2, rng, objectives=objectives)
    assert climb.states.tolist() == [0, 1, 0, 1]
    assert climb.next_states.tolist() == [1, -1, 1, -1]
    assert climb.rewards.tolist() == [[6.0], [7.0]] * 2
    assert climb.state_labels.tolist() == [5, 6]  # the top is only ever an end
    assert climb.action_labels.tolist() == [-1, 0]
    stay = np.array([[1.0, 0.0]] * 3)
    for env, horizon in ((Stairs(), 4), (TimeLimit(Stairs(), 4), None), (TimeLimit(Stairs(), 4), 9)):
        waited = rollout(env, stay, 2, rng, objectives=objectives, horizon=horizon)
        assert waited.episode_ptr.tolist() == [0, 4, 8]
        assert not waited.terminated.any()
        assert waited.next_states.tolist() == [0] * 8
        assert waited.n_states == 3


def test_wrong_use_is_said() -> None:
    rng = np.random.default_rng(0)
    objectives = [Objective(name="height")]
    with pytest.raises(PolicyError, match="observation 6 occurred within an episode"):
        rollout(Stairs(), [[0.0, 1.0]], 1, rng, objectives=objectives)
    with pytest.raises(PolicyError, match="the policy has 4 rows; the environment has 3 observations"):
        rollout(Stairs(), np.full((4, 2), 0.5), 1, rng, objectives=objectives)
    with pytest.raises(PolicyError, match=r"shape \[3, 2\]"):
        rollout(Stairs(), [0.5, 0.5], 1, rng, objectives=objectives)
    with pytest.raises(DataError, match=r"return 2 rewards \(up, down\); it returned \[5\.0\]"):
        rollout(Stairs(), [[1.0, 0.0]], 1, rng, objectives=[Objective(name="up"), Objective(name="down")])
    with pytest.raises(ParameterError, match="n_episodes must be at least 1"):
        rollout(Stairs(), [[1.0, 0.0]], 0, rng, objectives=objectives)
    with pytest.raises(ParameterError, match="horizon must be at least 1"):
        rollout(Stairs(), [[1.0, 0.0]], 1, rng, objectives=objectives, horizon=0)
    with pytest.raises(ParameterError, match="observations must be Discrete"):
        rollout(gymnasium.make("CartPole-v1"), [[1.0, 0.0]], 1, rng, objectives=objectives)
    with pytest.raises(ParameterError, match="horizon must be at least 1"):
        TabularEnv(GRID.world, horizon=0)
    with pytest.raises(ParameterError, match="render_mode must be one of ansi, rgb_array"):
        GridworldEnv(GRID, render_mode="human")
    env = TabularEnv(GRID.world)
    with pytest.raises(ParameterError, match=r"call reset\(\)"):
        env.step(np.int64(0))
    env.reset(seed=0)
    with pytest.raises(ParameterError, match="whole number below 4; got 4"):
        env.step(4)  # type: ignore[arg-type]
    five = replace(GRID.world, n_actions=5, action_labels=np.array([*GRID.world.action_labels, "wait"]))
    env = TabularEnv(five)
    env.reset(seed=0)
    with pytest.raises(ParameterError, match=r"no outcomes for action wait in state \(2, 2\)"):
        env.step(np.int64(4))


def test_gymnasium_is_imported_only_on_request() -> None:
    code = "import sys, bettersafe, bettersafe.envs.gridworld; sys.exit('gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_code_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "environments.md", "exec"), names)
    assert "G" in capsys.readouterr().out
