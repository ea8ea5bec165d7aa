"""Returns up to a step: by hand, against sums of matrix powers, and how steps and discounts correspond."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.errors import ParameterError, WrongTypeError
from bettersafe.mdp.horizon import discounted_steps, geometric_discount, values_to_go
from bettersafe.mdp.mdp import MDP, dense_mdp
from bettersafe.mdp.values import expected_return


def chain(*rewards, discount):
    """States 0 → 1 → … → end, with these rewards."""
    n = len(rewards)
    table = np.zeros((n, 1, n))
    table[np.arange(n - 1), 0, np.arange(1, n)] = 1.0
    return dense_mdp(table, np.array(rewards)[None, :, None], discount=discount, initial=np.eye(n)[0])


def test_a_chain_by_hand():
    """1 + 2γ + 4γ², cut after H steps; the process has ended after three."""
    mdp, policy = chain(1.0, 2.0, 4.0, discount=0.5), np.ones((3, 1))
    found = [float(expected_return(mdp, policy, horizon=h)[0]) for h in (1, 2, 3, 10)]
    assert found == pytest.approx([1.0, 2.0, 3.0, 3.0])
    assert expected_return(mdp, policy) == pytest.approx([3.0])


def test_a_process_that_never_ends_has_returns_up_to_a_step_at_discount_1():
    mdp = dense_mdp([[[1.0]]], [[[2.0]]], discount=1.0, initial=[1.0])
    assert expected_return(mdp, [[1.0]], horizon=7) == pytest.approx([14.0])


@pytest.mark.parametrize("seed", range(5))
def test_against_sums_of_matrix_powers(seed):
    """J_H = Σ_{t<H} γ^t μ P^t r, with different discounts, and a pair that is not stored."""
    rng = np.random.default_rng(seed)
    n, discount, horizon = 6, np.array([0.7, 1.0]), int(rng.integers(1, 12))
    rows, reward = rng.dirichlet(np.ones(n), size=n) * rng.uniform(0.5, 1.0, (n, 1)), rng.normal(size=(2, n))
    initial, stays = rng.dirichlet(np.ones(n)), rng.uniform(0.2, 1.0, n)
    unseen = rng.normal(size=(2, n))
    mdp = MDP(
        n_states=n, n_actions=2, pair_state=np.arange(n), pair_action=np.zeros(n, dtype=np.int64), transition=rows,
        reward=reward, discount=discount, initial=initial, unseen_value=unseen,
    )  # fmt: skip
    policy = np.column_stack([stays, 1.0 - stays])
    moves, paid = stays[:, None] * rows, stays * reward + (1.0 - stays) * unseen
    expected = [
        sum(gamma**t * initial @ np.linalg.matrix_power(moves, t) @ pay for t in range(horizon))
        for gamma, pay in zip(discount, paid, strict=True)
    ]
    assert expected_return(mdp, policy, horizon=horizon) == pytest.approx(np.array(expected))


def test_a_late_reward_is_not_lost_and_a_long_horizon_takes_no_longer():
    """The only reward is in the last of 60 steps; a horizon of a million steps gives the return without one."""
    late = chain(*[0.0] * 59, 5.0, discount=1.0)
    assert expected_return(late, np.ones((60, 1)), horizon=59) == pytest.approx([0.0])
    assert expected_return(late, np.ones((60, 1)), horizon=60) == pytest.approx([5.0])
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(5), size=(5, 2))
    mdp = dense_mdp(table, rng.normal(size=(2, 5, 2)), discount=[0.9, 0.99], initial=np.full(5, 0.2))
    policy = np.full((5, 2), 0.5)
    assert expected_return(mdp, policy, horizon=10**5) == pytest.approx(expected_return(mdp, policy), rel=1e-12)


def test_the_recursion_ends_where_values_have_settled():
    """After its longest way in the chain, or when what is left is below rounding; the value of unseen pairs counts too."""
    late = chain(*[0.0] * 59, 5.0, discount=1.0)
    assert len(list(values_to_go(late, np.ones((60, 1)), 10**9))) == 61
    slow = dense_mdp([[[1.0]]], [[[2.0]]], discount=0.9, initial=[1.0])
    steps = [v for v, _ in values_to_go(slow, np.ones((1, 1)), 10**9)]
    assert len(steps) < 400
    assert float(steps[-1][0, 0]) == pytest.approx(20.0, rel=1e-13)
    mdp = MDP(
        n_states=1, n_actions=2, pair_state=np.zeros(1, dtype=np.int64), pair_action=np.zeros(1, dtype=np.int64),
        transition=[[0.0]], reward=[[1.0]], discount=[0.9], initial=[1.0],
    )  # fmt: skip
    worths = (v for v, _ in values_to_go(slow, np.ones((1, 1)), 10**9))
    *_, (v, worth) = values_to_go(mdp, np.array([[1.0, 0.0]]), 10**9, unseen=worths)  # v settles at once
    assert float(v[0, 0]) == 1.0
    assert float(worth[0, 0]) == pytest.approx(20.0, rel=1e-13)


def test_the_value_of_unseen_pairs_may_depend_on_the_steps_to_go():
    mdp = MDP(
        n_states=1, n_actions=2, pair_state=np.zeros(1, dtype=np.int64), pair_action=np.zeros(1, dtype=np.int64),
        transition=[[1.0]], reward=[[1.0]], discount=[0.5], initial=[1.0],
    )  # fmt: skip
    worths = ([[0.0]], [[8.0]])
    found = list(values_to_go(mdp, np.array([[0.5, 0.5]]), 2, unseen=map(np.array, worths)))
    assert [float(v[0, 0]) for v, _ in found] == pytest.approx([0.5, 0.5 + 4.0 + 0.25 * 0.5])
    assert [worth.tolist() for _, worth in found] == [*worths]


def test_steps_and_discounts():
    """Σ γ^t by hand; γ' = 1 − 1/Σ γ^t is 0 for one step, 1 − 1/H at discount 1, and γ without a limit."""
    gamma = np.array([0.0, 0.5, 1.0])
    assert discounted_steps(gamma, 3) == pytest.approx([1.0, 1.75, 3.0])
    assert discounted_steps(gamma) == pytest.approx([1.0, 2.0, np.inf])
    assert geometric_discount(gamma, 1) == pytest.approx([0.0, 0.0, 0.0])
    assert geometric_discount(gamma, 5) == pytest.approx([0.0, 1.0 - 1.0 / 1.9375, 0.8])
    assert geometric_discount(np.array([0.9]), 10_000) == pytest.approx([0.9])
    close = 1.0 - 1e-12  # no cancellation close to 1
    assert discounted_steps(np.array([close]), 1000) == pytest.approx([1000.0], rel=1e-8)


@pytest.mark.parametrize(
    ("horizon", "error", "message"),
    [
        (0, ParameterError, "horizon must be a number of steps, at least 1; got 0"),
        (2.5, WrongTypeError, "horizon must be a whole number of steps, or None for no limit; got 2.5"),
        (np.zeros(99), WrongTypeError, "or None for no limit; got an ndarray"),
        (True, WrongTypeError, "got True"),
    ],
)
def test_bad_horizons_are_refused(horizon, error, message):
    with pytest.raises(error, match=message):
        expected_return(chain(1.0, discount=0.5), [[1.0]], horizon=horizon)
