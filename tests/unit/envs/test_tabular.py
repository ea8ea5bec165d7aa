"""The world and its sampler: against hand-made worlds, exact values and χ² tests at fixed seeds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import sparse, stats

from bettersafe.envs.tabular import END, World, sample_episodes, true_mdp, world_of
from bettersafe.errors import ParameterError, PolicyError
from bettersafe.logs.dataset import Objective

if TYPE_CHECKING:
    import numpy.typing as npt

    from bettersafe.logs.dataset import Dataset

# A right sampler fails each χ² test for one seed in a million; the seeds are fixed, so it never fails here.
SMALLEST_P = 1e-6

Row = list[tuple[int, float, tuple[float, ...]]]  # outcome column, probability, reward per objective


def make_world(
    rows: dict[tuple[int, int], Row],
    *,
    n_states: int,
    n_actions: int = 1,
    n_terminals: int = 1,
    discount: tuple[float, ...] = (0.9,),
    initial: npt.ArrayLike | None = None,
) -> World:
    pairs = sorted(rows)
    entries = [entry for pair in pairs for entry in rows[pair]]
    indptr = np.concatenate([[0], np.cumsum([len(rows[pair]) for pair in pairs])])
    columns, probabilities = [entry[0] for entry in entries], [entry[1] for entry in entries]
    return World(
        n_states=n_states,
        n_actions=n_actions,
        n_terminals=n_terminals,
        pair_state=np.array([x for x, _ in pairs]),
        pair_action=np.array([a for _, a in pairs]),
        outcome=sparse.csr_array((probabilities, columns, indptr), shape=(len(pairs), n_states + n_terminals)),
        outcome_reward=np.array([entry[2] for entry in entries]).T,
        initial=np.eye(n_states)[0] if initial is None else np.asarray(initial),
        objectives=tuple(Objective(name=f"r{k}", discount=gamma) for k, gamma in enumerate(discount)),
        state_labels=np.array([f"x{x}" for x in range(n_states)]),
        action_labels=np.array([f"a{a}" for a in range(n_actions)]),
        terminal_labels=np.array([f"end{t}" for t in range(n_terminals)]),
    )


# Columns 0 and 1 are the states, 2 and 3 two ways to end. From x0, a1 has two roads to x1, paid differently.
TWO_STATES = make_world(
    {
        (0, 0): [(0, 0.5, (1.0, 0.0)), (1, 0.25, (0.0, 0.0)), (3, 0.25, (4.0, -1.0))],
        (0, 1): [(1, 0.4, (2.0, 0.0)), (1, 0.4, (-3.0, 0.0)), (2, 0.2, (0.0, -5.0))],
        (1, 0): [(3, 0.3, (8.0, 0.0)), (0, 0.7, (0.0, -1.0))],
        (1, 1): [(2, 1.0, (0.0, -10.0))],
    },
    n_states=2,
    n_actions=2,
    n_terminals=2,
    discount=(0.9, 0.5),
    initial=[0.75, 0.25],
)
POLICY = np.array([[0.7, 0.3], [0.8, 0.2]])

# x0 → x1 → x2 → end, paying 1, 2, 3.
CHAIN = make_world(
    {(x, 0): [(x + 1, 1.0, (x + 1.0,))] for x in range(3)},
    n_states=3,
)


def discounted_returns(dataset: Dataset, discount: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Σ_t γ_k^t r_k,t of every episode, shape [n, d]."""
    ptr = dataset.episode_ptr
    step = np.arange(ptr[-1]) - np.repeat(ptr[:-1], np.diff(ptr))
    summed: npt.NDArray[np.float64] = np.add.reduceat(
        dataset.rewards * discount[None, :] ** step[:, None], ptr[:-1], axis=0
    )
    return summed


def test_true_mdp_takes_expectations_and_merges_roads_to_the_same_state() -> None:
    mdp = true_mdp(TWO_STATES)
    np.testing.assert_allclose(mdp.transition.toarray(), [[0.5, 0.25], [0.0, 0.8], [0.7, 0.0], [0.0, 0.0]])
    # 0.5·1 + 0.25·4, 0.4·2 − 0.4·3, 0.3·8, 0; 0.25·(−1), 0.2·(−5), 0.7·(−1), −10.
    np.testing.assert_allclose(mdp.reward, [[1.5, -0.4, 2.4, 0.0], [-0.25, -1.0, -0.7, -10.0]])
    np.testing.assert_array_equal(mdp.discount, [0.9, 0.5])
    assert TWO_STATES.outcome.nnz == 9  # the world itself still tells the two roads apart
    assert TWO_STATES.n_objectives == 2


def test_frequencies_are_those_of_the_world() -> None:
    dataset = sample_episodes(TWO_STATES, POLICY, 20_000, np.random.default_rng(7))
    first = dataset.states[dataset.episode_ptr[:-1]]
    assert stats.chisquare(np.bincount(first), 20_000 * TWO_STATES.initial).pvalue > SMALLEST_P
    for x in range(2):
        played = np.bincount(dataset.actions[dataset.states == x], minlength=2)
        assert stats.chisquare(played, played.sum() * POLICY[x]).pvalue > SMALLEST_P
    ptr = TWO_STATES.outcome.indptr
    for p in range(4):
        x, a = TWO_STATES.pair_state[p], TWO_STATES.pair_action[p]
        rows = (dataset.states == x) & (dataset.actions == a)
        seen = [
            np.sum(
                rows
                & (dataset.next_states == (column if column < 2 else -1))
                & np.all(dataset.rewards == TWO_STATES.outcome_reward[:, i], axis=1)
            )
            for i, column in enumerate(TWO_STATES.outcome.indices[ptr[p] : ptr[p + 1]], start=ptr[p])
        ]
        assert sum(seen) == rows.sum()  # nothing happens that the world does not know
        if len(seen) > 1:
            expected = rows.sum() * TWO_STATES.outcome.data[ptr[p] : ptr[p + 1]]
            assert stats.chisquare(seen, expected).pvalue > SMALLEST_P


def test_mean_return_is_the_exact_value() -> None:
    mdp = true_mdp(TWO_STATES)
    weight = POLICY.reshape(4, 1)
    move = (weight * mdp.transition.toarray()).reshape(2, 2, 2).sum(axis=1)
    pay = (weight.T * mdp.reward).reshape(2, 2, 2).sum(axis=2)
    exact = [
        TWO_STATES.initial @ np.linalg.solve(np.eye(2) - gamma * move, pay[k]) for k, gamma in enumerate((0.9, 0.5))
    ]
    dataset = sample_episodes(TWO_STATES, POLICY, 20_000, np.random.default_rng(11))
    returns = discounted_returns(dataset, TWO_STATES.discount)
    standard_error = returns.std(axis=0, ddof=1) / np.sqrt(20_000)
    assert np.all(np.abs(returns.mean(axis=0) - exact) < 5 * standard_error)


def test_rows_are_whole_episodes_in_order() -> None:
    dataset = sample_episodes(TWO_STATES, POLICY, 500, np.random.default_rng(3))
    last = dataset.episode_ptr[1:] - 1
    assert dataset.baseline_prob is not None
    assert dataset.terminated.sum() == 500
    assert np.all(dataset.terminated[last])
    np.testing.assert_array_equal(dataset.next_states == -1, dataset.terminated)
    inner = np.flatnonzero(~dataset.terminated)
    np.testing.assert_array_equal(dataset.next_states[inner], dataset.states[inner + 1])
    np.testing.assert_array_equal(dataset.baseline_prob, POLICY[dataset.states, dataset.actions])
    np.testing.assert_array_equal(dataset.state_labels, ["x0", "x1"])
    np.testing.assert_array_equal(dataset.episode_labels, np.arange(500))


def test_a_deterministic_world_gives_its_only_episode() -> None:
    dataset = sample_episodes(CHAIN, np.ones((3, 1)), 2, np.random.default_rng(0))
    np.testing.assert_array_equal(dataset.states, [0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(dataset.next_states, [1, 2, -1, 1, 2, -1])
    np.testing.assert_array_equal(dataset.terminated, [False, False, True] * 2)
    np.testing.assert_array_equal(dataset.rewards, [[1.0], [2.0], [3.0]] * 2)
    np.testing.assert_array_equal(dataset.episode_ptr, [0, 3, 6])


@pytest.mark.parametrize(("horizon", "n_terminated"), [(2, 0), (3, 5), (4, 5)])
def test_the_horizon_truncates_and_never_terminates(horizon: int, n_terminated: int) -> None:
    dataset = sample_episodes(CHAIN, np.ones((3, 1)), 5, np.random.default_rng(0), horizon=horizon)
    assert dataset.terminated.sum() == n_terminated
    np.testing.assert_array_equal(np.diff(dataset.episode_ptr), min(horizon, 3))
    if horizon == 2:
        np.testing.assert_array_equal(dataset.next_states, [1, 2] * 5)  # the state behind the cut is still told


def test_one_state_that_always_ends() -> None:
    world = make_world({(0, 0): [(1, 1.0, (5.0,))]}, n_states=1)
    dataset = sample_episodes(world, [[1.0]], 4, np.random.default_rng(0))
    np.testing.assert_array_equal(dataset.episode_ptr, np.arange(5))
    np.testing.assert_array_equal(dataset.rewards, np.full((4, 1), 5.0))


def test_lengths_in_one_state_are_geometric() -> None:
    world = make_world({(0, 0): [(0, 0.75, (1.0,)), (1, 0.25, (0.0,))]}, n_states=1)
    dataset = sample_episodes(world, [[1.0]], 10_000, np.random.default_rng(5))
    lengths = np.minimum(np.diff(dataset.episode_ptr), 20)  # lengths from 20 on are one cell
    expected = 10_000 * np.append(0.25 * 0.75 ** np.arange(19), 0.75**19)
    assert stats.chisquare(np.bincount(lengths, minlength=21)[1:], expected).pvalue > SMALLEST_P


def test_a_world_without_an_end_runs_to_the_horizon() -> None:
    world = make_world({(0, 0): [(0, 1.0, (1.0,))]}, n_states=1, n_terminals=0)
    dataset = sample_episodes(world, [[1.0]], 3, np.random.default_rng(0), horizon=4)
    assert dataset.states.size == 12
    assert not dataset.terminated.any()
    np.testing.assert_array_equal(true_mdp(world).transition.toarray(), [[1.0]])


def test_the_seed_decides() -> None:
    one, two, other = (sample_episodes(TWO_STATES, POLICY, 100, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.states, two.states)
    np.testing.assert_array_equal(one.actions, two.actions)
    np.testing.assert_array_equal(one.rewards, two.rewards)
    assert not np.array_equal(one.episode_ptr, other.episode_ptr)


@pytest.mark.parametrize("u", [0.0, 1.0 - 2.0**-53])
def test_extreme_uniforms_stay_in_their_row_and_on_its_support(u: float) -> None:
    # The third row's running sums end at 3, where 1 − 2^-53 of a row rounds up to the row's end; both ends of
    # the row carry an outcome of probability 0.
    impossible = (9.0,)
    world = make_world(
        {
            (x, 0): [(0, 0.0, impossible), (x + 1, 0.5, (1.0,)), (3, 0.5, (1.0,)), (2, 0.0, impossible)]
            for x in range(3)
        },
        n_states=3,
        initial=[0.0, 0.0, 1.0],
    )

    class Constant(np.random.Generator):
        def random(self, size: int) -> npt.NDArray[np.float64]:  # type: ignore[override]
            return np.full(size, u)

    dataset = sample_episodes(world, np.ones((3, 1)), 2, Constant(np.random.PCG64()))
    np.testing.assert_array_equal(dataset.states, [2, 2])
    np.testing.assert_array_equal(dataset.rewards, [[1.0], [1.0]])


def test_an_episode_that_could_run_forever_needs_a_horizon() -> None:
    rows: dict[tuple[int, int], Row] = {
        (0, 0): [(2, 1.0, (0.0,))],
        (0, 1): [(1, 1.0, (0.0,))],
        (1, 0): [(1, 1.0, (0.0,))],
        (1, 1): [(2, 1.0, (0.0,))],
    }
    world = make_world(rows, n_states=2, n_actions=2)
    rng = np.random.default_rng(0)
    with pytest.raises(ParameterError, match=r"state x1 and never terminate .* give a horizon"):
        sample_episodes(world, [[0.5, 0.5], [1.0, 0.0]], 3, rng)
    # x1 is as bad here, but never reached.
    assert sample_episodes(world, [[1.0, 0.0], [1.0, 0.0]], 3, rng).states.size == 3


def test_a_policy_must_stay_within_the_stored_pairs() -> None:
    world = make_world({(0, 0): [(1, 1.0, (0.0,))]}, n_states=1, n_actions=2)
    rng = np.random.default_rng(0)
    assert sample_episodes(world, [[1.0, 0.0]], 1, rng).states.size == 1
    with pytest.raises(PolicyError, match=r"in state x0 the policy gives probability 0\.25"):
        sample_episodes(world, [[0.75, 0.25]], 1, rng)
    with pytest.raises(PolicyError, match=r"state x0 sum to 0\.5"):
        sample_episodes(world, [[0.5, 0.0]], 1, rng)


def test_settings_are_checked() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ParameterError, match="n_episodes must be at least 1; got 0"):
        sample_episodes(CHAIN, np.ones((3, 1)), 0, rng)
    with pytest.raises(ParameterError, match="horizon must be at least 1"):
        sample_episodes(CHAIN, np.ones((3, 1)), 1, rng, horizon=0)


def test_a_world_is_checked_and_read_only() -> None:
    with pytest.raises(ParameterError, match=r"state x1, action a0 .* they sum to 0\.5"):
        make_world({(0, 0): [(2, 1.0, (0.0,))], (1, 0): [(2, 0.5, (0.0,))]}, n_states=2)
    with pytest.raises(ParameterError, match=r"state x0, action a0 .* ≥ 0"):
        make_world({(0, 0): [(1, 1.5, (0.0,)), (0, -0.5, (0.0,))]}, n_states=1)
    with pytest.raises(ParameterError, match=r"initial must have shape \[3\]; got \[2\]"):
        replace(CHAIN, initial=np.array([0.5, 0.5]))
    with pytest.raises(ParameterError, match=r"initial must be a distribution; it sums to 0\.9"):
        replace(CHAIN, initial=np.array([0.5, 0.4, 0.0]))
    with pytest.raises(ParameterError, match="sorted by state, then action"):
        replace(CHAIN, pair_state=np.array([0, 2, 1]))
    with pytest.raises(ParameterError, match="3 states × 1 actions"):
        replace(CHAIN, pair_action=np.array([0, 0, 1]))
    with pytest.raises(ValueError, match="read-only"):
        CHAIN.initial[0] = 2.0
    given = sparse.csr_array(np.eye(3, 4, 1))
    outcome = replace(CHAIN, outcome=given).outcome
    assert not any(part.flags.writeable for part in (outcome.data, outcome.indices, outcome.indptr))
    assert all(part.flags.writeable for part in (given.data, given.indices, given.indptr))


def test_a_world_from_a_function():
    def step(x, a):
        if a == 0:
            return [(1.0, 1 - x, (1.0, 0.0))]
        return [
            (3.0, END, (5.0, -1.0)),
            (1.0, x, (0.0, 0.0)),
            (0.0, 1, (9.0, 9.0)),
        ]  # normalised; impossible ones left out

    world = world_of(step, n_states=2, n_actions=2, initial=1, objectives=("a", "b"), discount=(0.9, 0.5), end=0.2)
    assert world.outcome.toarray() == pytest.approx(
        np.array([[0.0, 0.8, 0.2], [0.2, 0.0, 0.8], [0.8, 0.0, 0.2], [0.0, 0.2, 0.8]])
    )
    assert true_mdp(world).reward == pytest.approx(np.array([[1.0, 3.75, 1.0, 3.75], [0.0, -0.75, 0.0, -0.75]]))
    assert world.initial.tolist() == [0.0, 1.0]
    assert world.discount.tolist() == [0.9, 0.5]
    spread = world_of(step, n_states=2, n_actions=2, initial=[0.25, 0.75], objectives=("a", "b"))
    assert spread.initial.tolist() == [0.25, 0.75]
    assert spread.discount.tolist() == [0.95, 0.95]
