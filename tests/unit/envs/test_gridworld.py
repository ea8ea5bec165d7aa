"""Gridworlds: by hand, against a slow twin that walks the grid cell by cell, and against the study's prototype."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from bettersafe.envs import gridworld as module
from bettersafe.envs.gridworld import (
    feasible_gridworld,
    known_rewards,
    make_gridworld,
    pit_gridworld,
    quality_baseline,
    render_image,
    render_text,
)
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.errors import NoSolutionError, ParameterError, PolicyError
from bettersafe.logs.dataset import Objective, write_dataset
from bettersafe.logs.source import read_dataset
from bettersafe.mdp.values import expected_return

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from bettersafe.envs.gridworld import Gridworld

    Floats = npt.NDArray[np.float64]

DOWN, LEFT, RIGHT, UP = range(4)

# G . / P S: states 0 = (0, 1), 1 = (1, 0) a pit, 2 = (1, 1) the start.
SMALL = make_gridworld(
    pits=[[False, True, False]],
    success_prob=[[0.5, 0.6, 0.7, 0.8], [0.51, 0.61, 0.71, 0.81], [0.52, 0.62, 0.72, 0.82]],
    discount=0.9,
)


def slow_twin(size: int, pits: npt.NDArray[np.bool_], success: Floats) -> tuple[Floats, Floats]:
    """p(x'|x,a) [X, A, X] and r_k(x,a) [d, X, A], walked cell by cell."""
    cells = [(row, column) for row in range(size) for column in range(size)][1:]
    transition = np.zeros((len(cells), 4, len(cells)))
    reward = np.zeros((1 + len(pits), len(cells), 4))
    for x, (row, column) in enumerate(cells):
        for a, (to_row, to_column) in enumerate(
            [(row + 1, column), (row, column - 1), (row, column + 1), (row - 1, column)]
        ):
            for succeeded, probability in ((True, success[x, a]), (False, 1.0 - success[x, a])):
                wall = not (0 <= to_row < size and 0 <= to_column < size)
                end = (to_row, to_column) if succeeded and not wall else (row, column)
                reward[0, x, a] += probability * (1000.0 if end == (0, 0) else -1.0)
                if end != (0, 0):
                    transition[x, a, cells.index(end)] += probability
            for k, layer in enumerate(pits):
                reward[1 + k, x, a] = -1.0 if layer[x] else 0.0
    return transition, reward


def values_by_hand(gridworld: Gridworld, policy: Floats, discount: float) -> Floats:
    transition, reward = slow_twin(gridworld.size, gridworld.pits, gridworld.success_prob)
    move, pay = np.einsum("xa,xay->xy", policy, transition), np.einsum("xa,kxa->kx", policy, reward)
    v: Floats = np.linalg.solve(np.eye(len(policy)) - discount * move, pay.T).T
    return v[:, -1]


def test_four_cells_by_hand() -> None:
    mdp = true_mdp(SMALL.world)
    expected = np.zeros((3, 4, 3))
    # From the top-right: down to the start, left to the goal, walls on the other two sides.
    expected[0, DOWN, [0, 2]] = 0.5, 0.5
    expected[0, LEFT, 0] = 0.4
    expected[0, RIGHT, 0] = expected[0, UP, 0] = 1.0
    # From the bottom-left: right to the start, up to the goal.
    expected[1, DOWN, 1] = expected[1, LEFT, 1] = 1.0
    expected[1, RIGHT, [1, 2]] = 0.29, 0.71
    expected[1, UP, 1] = 0.19
    # From the start: left to the pit, up to the top-right.
    expected[2, DOWN, 2] = expected[2, RIGHT, 2] = 1.0
    expected[2, LEFT, [1, 2]] = 0.62, 0.38
    expected[2, UP, [0, 2]] = 0.82, 0.18
    np.testing.assert_allclose(mdp.transition.toarray().reshape(3, 4, 3), expected, atol=1e-15)
    rewards = known_rewards(SMALL)
    goal = np.full((3, 4), -1.0)
    goal[0, LEFT] = 0.6 * 1000 - 0.4
    goal[1, UP] = 0.81 * 1000 - 0.19
    np.testing.assert_allclose(rewards[0], goal, rtol=1e-14)
    np.testing.assert_array_equal(rewards[1], [[0.0] * 4, [-1.0] * 4, [0.0] * 4])
    np.testing.assert_array_equal(mdp.initial, [0.0, 0.0, 1.0])
    assert (SMALL.start, SMALL.goal, SMALL.size) == (2, 3, 2)
    assert [objective.name for objective in SMALL.world.objectives] == ["goal", "pits"]
    assert SMALL.world.outcome.nnz == 6 * 2 + 6  # two outcomes of a move, one before a wall


@pytest.mark.parametrize(("size", "kinds"), [(2, 1), (3, 2), (5, 1), (7, 5)])
def test_the_mdp_is_the_slow_twins(size: int, kinds: int) -> None:
    gridworld = pit_gridworld(np.random.default_rng(size), size=size, n_pit_kinds=kinds, discount=0.95)
    transition, reward = slow_twin(size, gridworld.pits, gridworld.success_prob)
    mdp = true_mdp(gridworld.world)
    np.testing.assert_allclose(mdp.transition.toarray(), transition.reshape(-1, size * size - 1), atol=1e-15)
    np.testing.assert_allclose(known_rewards(gridworld), reward, rtol=1e-13)
    np.testing.assert_array_equal(mdp.discount, np.full(1 + kinds, 0.95))
    policy = np.random.default_rng(0).dirichlet(np.ones(4), size=size * size - 1)
    np.testing.assert_allclose(expected_return(mdp, policy), values_by_hand(gridworld, policy, 0.95), rtol=1e-10)


def test_draws_have_the_distributions_of_the_study() -> None:
    gridworld = pit_gridworld(np.random.default_rng(0), n_pit_kinds=64)
    assert gridworld.pits.shape == (64, 99)
    assert abs(gridworld.pits.mean() - 0.3) < 5 * np.sqrt(0.21 / gridworld.pits.size)
    assert gridworld.pits[:, gridworld.start].any()  # the start may be one
    alpha = gridworld.success_prob
    assert alpha.min() >= 0.5
    assert alpha.max() <= 1.0
    assert abs(alpha.mean() - 0.75) < 5 * np.sqrt(1 / 48 / alpha.size)
    assert gridworld.world.objectives[64].name == "pits_64"
    other = pit_gridworld(np.random.default_rng(0), n_pit_kinds=64)
    np.testing.assert_array_equal(other.pits, gridworld.pits)
    np.testing.assert_array_equal(other.success_prob, alpha)


def test_logs_pay_what_the_study_says() -> None:
    gridworld = pit_gridworld(np.random.default_rng(3), size=4, n_pit_kinds=2)
    uniform = np.full((15, 4), 0.25)
    log = sample_episodes(gridworld.world, uniform, 300, np.random.default_rng(1), horizon=40)
    assert 0 < log.terminated.sum() < 300
    np.testing.assert_array_equal(log.rewards[:, 0], np.where(log.terminated, 1000.0, -1.0))
    np.testing.assert_array_equal(log.rewards[:, 1:], np.where(gridworld.pits.T[log.states], -1.0, 0.0))
    # The last move into the goal came from a cell beside it: (0, 1) going left or (1, 0) going up.
    ends = set(zip(log.states[log.terminated].tolist(), log.actions[log.terminated].tolist(), strict=True))
    assert ends == {(0, LEFT), (3, UP)}


def test_mean_returns_are_the_exact_ones() -> None:
    gridworld = pit_gridworld(np.random.default_rng(5), size=3, pit_prob=0.5)
    policy = np.random.default_rng(6).dirichlet(np.full(4, 5.0), size=8)
    log = sample_episodes(gridworld.world, policy, 10_000, np.random.default_rng(7))
    step = np.arange(log.n_rows) - np.repeat(log.episode_ptr[:-1], np.diff(log.episode_ptr))
    returns = np.add.reduceat(log.rewards * 0.99 ** step[:, None], log.episode_ptr[:-1], axis=0)
    error = returns.std(axis=0, ddof=1) / np.sqrt(len(returns))
    assert np.all(np.abs(returns.mean(axis=0) - values_by_hand(gridworld, policy, 0.99)) < 5 * error)


def test_numbers_survive_writing_and_reading(tmp_path: Path) -> None:
    """Labels are sorted, also past ten rows, so that what is read back has the same states and actions."""
    gridworld = pit_gridworld(np.random.default_rng(0), size=12)
    world = gridworld.world
    assert world.state_labels[0] == "(00, 01)"
    assert list(world.state_labels) == sorted(world.state_labels)
    assert list(world.action_labels) == sorted(world.action_labels)
    assert SMALL.world.state_labels.tolist() == ["(0, 1)", "(1, 0)", "(1, 1)"]
    uniform = np.full((world.n_states, 4), 0.25)
    log = sample_episodes(world, uniform, 60, np.random.default_rng(0), horizon=3000)
    write_dataset(log, tmp_path / "log.parquet")
    back = read_dataset(tmp_path / "log.parquet", objectives=[Objective(name="goal"), Objective(name="pits")])
    np.testing.assert_array_equal(back.state_labels, world.state_labels)
    for name in ("states", "actions", "next_states", "rewards", "terminated"):
        np.testing.assert_array_equal(getattr(back, name), getattr(log, name))


def test_infeasible_ones_are_drawn_again() -> None:
    seed, drawn = 0, 0
    while not drawn:  # about one in thirty-five
        gridworld, optimum, drawn = feasible_gridworld(np.random.default_rng(seed))
        seed += 1
    rng = np.random.default_rng(seed - 1)
    for _ in range(drawn):
        thrown_away = pit_gridworld(rng)
        with pytest.raises(NoSolutionError):
            module.cmdp_optimum(true_mdp(thrown_away.world), [-2.0])
    np.testing.assert_array_equal(pit_gridworld(rng).pits, gridworld.pits)
    assert optimum.returns[1] >= -2.0 - 1e-9


def test_several_kinds_have_the_wider_threshold() -> None:
    gridworld, optimum, _ = feasible_gridworld(np.random.default_rng(2), n_pit_kinds=16)
    assert optimum.returns[1:].min() >= -10.0 - 1e-9
    assert optimum.returns[1:].min() < -3.0
    tight = feasible_gridworld(np.random.default_rng(2), n_pit_kinds=2, size=4, threshold=-0.5)[1]
    assert tight.returns[1:].min() >= -0.5 - 1e-9
    np.testing.assert_allclose(expected_return(true_mdp(gridworld.world), optimum.policy), optimum.returns, rtol=1e-9)


def test_nothing_feasible_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DRAWS", 3)
    with pytest.raises(NoSolutionError, match=r"none of 3 gridworlds .* threshold -2\. Lower"):
        feasible_gridworld(np.random.default_rng(0), pit_prob=1.0)


def test_baselines_of_the_study() -> None:
    """METHODS 4: over CMDPs, ρ = .1/.4/.7/.9 gives J_0 of about 99/519/691/748 and −J_1 of 21/9.0/4.3/2.7.

    The tolerances are four standard errors of the difference of two means of 30 (deviations 43, 95, 77, 72 and 4.7,
    1.9, 0.7, 0.3 between CMDPs). With a uniform policy where π* never goes, ρ = .4 gives 233 and 17.6.
    """
    returns = []
    for seed in range(30):
        gridworld, optimum, _ = feasible_gridworld(np.random.default_rng(seed))
        mdp = true_mdp(gridworld.world)
        returns.append([expected_return(mdp, quality_baseline(optimum.policy, rho)) for rho in (0.1, 0.4, 0.7, 0.9)])
    mean = np.mean(returns, axis=0)
    assert np.all(np.abs(mean[:, 0] - [99, 519, 691, 748]) < [44, 98, 80, 74])
    assert np.all(np.abs(-mean[:, 1] - [21, 9.0, 4.3, 2.7]) < [4.9, 2.0, 0.7, 0.3])


def test_quality_mixes_with_the_uniform_policy() -> None:
    best = np.eye(4)[[0, 3]]
    np.testing.assert_allclose(quality_baseline(best, 0.6), [[0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.7]])
    np.testing.assert_array_equal(quality_baseline(best, 1.0), best)
    with pytest.raises(ParameterError, match="quality must be between 0"):
        quality_baseline(best, 1.1)


def test_settings_are_checked() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ParameterError, match="size must be at least 2"):
        pit_gridworld(rng, size=1)
    with pytest.raises(ParameterError, match="n_pit_kinds must be at least 1"):
        pit_gridworld(rng, n_pit_kinds=0)
    with pytest.raises(ParameterError, match=r"pit_prob must be .* got 1\.5"):
        pit_gridworld(rng, pit_prob=1.5)
    with pytest.raises(ParameterError, match=r"size² − 1 columns.* got 4"):
        make_gridworld(pits=np.zeros((1, 4)), success_prob=np.ones((4, 4)))
    with pytest.raises(ParameterError, match=r"success_prob must be probabilities \[3, 4\]"):
        make_gridworld(pits=np.zeros((1, 3)), success_prob=np.full((3, 4), 1.2))
    with pytest.raises(ParameterError, match="cell must be at least 8"):
        render_image(SMALL, cell=4)
    with pytest.raises(PolicyError, match=r"shape \[3, 4\]"):
        render_text(SMALL, np.ones((4, 4)) / 4)
    for agent in (-1, 4):
        with pytest.raises(ParameterError, match=r"agent must be a state below 3, or 3 for the goal; got"):
            render_text(SMALL, agent=agent)


# ---------------------------------------------------------------------------------------------------------- pictures

ARROWS = np.eye(4)[[LEFT, UP, UP]]


def test_text() -> None:
    assert render_text(SMALL) == "G ·\no S\n"
    assert render_text(SMALL, ARROWS) == "G  ←\n↑o ↑S\n"
    assert render_text(SMALL, agent=0) == "G  @\no  S\n"
    assert render_text(SMALL, ARROWS, agent=1) == "G   ←\n@↑o ↑S\n"
    assert render_text(SMALL, agent=SMALL.goal) == "@G ·\no  S\n"


def test_text_of_several_kinds() -> None:
    two = make_gridworld(pits=[[1, 0, 1], [1, 1, 0]], success_prob=np.ones((3, 4)))
    assert render_text(two) == "G  12\n2  S1\n"
    many = make_gridworld(pits=np.arange(33).reshape(11, 3) >= 3 * np.array([0, 9, 12]), success_prob=np.ones((3, 4)))
    assert render_text(many) == "G   +11\n+2  S\n"


def test_image_shows_goal_start_pits_and_agent() -> None:
    plain = render_image(SMALL, cell=40)
    assert plain.shape == (81, 81, 3)
    assert plain.dtype == np.uint8
    green, orange, paper, ink = (0, 158, 115), (230, 159, 0), (250, 250, 247), (34, 34, 40)
    assert tuple(plain[4, 4]) == green
    assert tuple(plain[20, 20]) == paper  # the star
    assert tuple(plain[60, 20]) == orange  # the pit
    assert tuple(plain[20, 60]) == paper  # a cell of no note
    assert tuple(plain[60, 60]) == paper  # within the start's ring
    assert tuple(plain[60, 60 + round(0.42 * 40)]) == ink
    for agent, (row, column) in enumerate([(20, 60), (60, 20), (60, 60), (20, 20)]):
        picture = render_image(SMALL, agent=agent, cell=40)
        changed = np.argwhere(np.any(picture != plain, axis=2))
        assert np.all(np.abs(changed - (row, column)) <= 0.36 * 40 + 1)
        assert len(changed) > 300


def test_image_gives_every_kind_its_place() -> None:
    """Two kinds side by side, four in a square, sixty-four in eight rows."""
    for kinds, columns in ((2, 2), (4, 2), (64, 8)):
        rows = kinds // columns
        for k in range(kinds):
            pits = np.zeros((kinds, 3), dtype=np.bool_)
            pits[k, 0] = True  # the top-right cell, whose pixels are 64 to 128 from the left
            picture = render_image(make_gridworld(pits=pits, success_prob=np.ones((3, 4))), cell=64)
            centre = (k // columns + 0.5) * 64 / rows, 64 + (k % columns + 0.5) * 64 / columns
            pit = np.argwhere(np.all(picture == np.array(module.PIT_COLOURS[k % 6]), axis=2))
            assert np.all(np.abs(pit.mean(axis=0) - centre) < 4)
            assert len(pit) > 0.6 * 64 * 64 / kinds


def test_arrows_are_as_long_as_actions_are_likely_and_alike_in_all_directions() -> None:
    cell, middle_state = 48, 3
    plain = make_gridworld(pits=np.zeros((1, 8)), success_prob=np.ones((8, 4)))

    def middle(row: npt.ArrayLike) -> npt.NDArray[np.uint8]:
        policy = np.full((8, 4), 0.25)
        policy[middle_state] = row
        return render_image(plain, policy, cell=cell)[cell : 2 * cell + 1, cell : 2 * cell + 1]

    up = middle(np.eye(4)[UP])
    for a, turns in ((LEFT, 1), (DOWN, 2), (RIGHT, 3)):
        np.testing.assert_array_equal(middle(np.eye(4)[a]), np.rot90(up, turns))
    dark = up[:, :, 0] < 100
    rows, columns = np.nonzero(dark)
    assert rows.max() < cell / 2  # it points up
    assert abs(columns.mean() - cell / 2) < 0.1
    reach = [
        cell / 2 - np.nonzero(middle([0.0, 1.0 - share, 0.0, share])[:, :, 0] < 100)[0].min()
        for share in (0.3, 0.6, 0.9)
    ]
    assert reach[0] < reach[1] < reach[2]
    assert reach[2] - reach[1] == pytest.approx(reach[1] - reach[0], abs=2.0)
