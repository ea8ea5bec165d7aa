"""ICU-Sepsis: the embedded data against the package's published figures and, where installed, its own arrays.

Values are weighted by the initial distribution. The oracle is plain policy iteration on dense tables.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bettersafe.envs.icu_sepsis import admissible_pairs, clinician_policy, icu_sepsis, sofa_scores
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.errors import DataError
from bettersafe.mdp.values import expected_return

if TYPE_CHECKING:
    import numpy.typing as npt

    from bettersafe.envs.tabular import World

    Floats = npt.NDArray[np.float64]

X, A, DEATH, SURVIVAL = 713, 25, 713, 714
UNIFORM = np.full((X, A), 1.0 / A)


@pytest.fixture(scope="module")
def world() -> World:
    return icu_sepsis()


@pytest.fixture(scope="module")
def table(world: World) -> Floats:
    """p(outcome | x, a), shape [713, 25, 715]."""
    dense: Floats = world.outcome.toarray().reshape(X, A, X + 2)
    return dense


def values(table: Floats, policy: Floats, reward: Floats, discount: float) -> Floats:
    """v [X] of a policy, for rewards [X, A]."""
    move = np.einsum("xa,xay->xy", policy, table[:, :, :X])
    return np.linalg.solve(np.eye(X) - discount * move, np.sum(policy * reward, axis=1))


def best_policy(table: Floats, reward: Floats, discount: float) -> Floats:
    """Howard's policy iteration: a deterministic policy [X, A] that no single change of action improves."""
    choice = np.zeros(X, dtype=np.int64)
    while True:
        policy = np.eye(A)[choice]
        v = values(table, policy, reward, discount)
        q = reward + discount * (table[:, :, :X].reshape(X * A, X) @ v).reshape(X, A)
        improvable = q.max(axis=1) > q[np.arange(X), choice] + 1e-10  # rounding is no improvement
        if not improvable.any():
            return policy
        choice = np.where(improvable, q.argmax(axis=1), choice)


def points(table: Floats) -> Floats:
    """r(x, a), shape [X, A]: +100 for survival, −100 for death."""
    return 100.0 * (table[:, :, SURVIVAL] - table[:, :, DEATH])


def test_shape_and_labels(world: World) -> None:
    assert (world.n_states, world.n_actions, world.n_terminals, world.n_objectives) == (X, A, 2, 1)
    assert world.objectives[0].name == "survival"
    np.testing.assert_array_equal(world.discount, [0.99])
    np.testing.assert_array_equal(world.terminal_labels, ["death", "survival"])
    np.testing.assert_array_equal(world.state_labels, np.arange(X))
    assert [world.action_labels[a] for a in (0, 3, 5, 24)] == [
        "iv0/vaso0",
        "iv0/vaso3",
        "iv1/vaso0",
        "iv4/vaso4",
    ]


def test_counts_of_the_original_tensor(world: World) -> None:
    assert admissible_pairs().sum() == 2_238
    # The package's tensor also holds 25 sure moves into the sink from each of death, survival and the sink.
    assert world.outcome.nnz + 3 * A == 1_528_600
    assert np.count_nonzero(world.initial) == 712
    assert np.count_nonzero(clinician_policy()) == 9_252
    np.testing.assert_allclose(world.outcome.sum(axis=1), 1.0, rtol=0, atol=1e-14)


def test_inadmissible_rows_are_the_mean_of_the_admissible_ones(table: Floats) -> None:
    admissible = admissible_pairs()
    for x in range(X):
        filled = table[x, ~admissible[x]]
        np.testing.assert_allclose(
            filled, np.broadcast_to(table[x, admissible[x]].mean(axis=0), filled.shape), rtol=0, atol=1e-15
        )


def test_rewards_are_paid_on_ending_only(world: World) -> None:
    reward, column = world.outcome_reward[0], world.outcome.indices
    assert np.all(reward[column == DEATH] == -100.0)
    assert np.all(reward[column == SURVIVAL] == 100.0)
    assert not np.any(reward[column < X])


def test_clinicians_and_chance(world: World, table: Floats) -> None:
    mdp = true_mdp(world)
    for policy, expected in ((clinician_policy(), 51.97830), (UNIFORM, 51.55177)):
        assert world.initial @ values(table, policy, points(table), 0.99) == pytest.approx(expected, abs=5e-6)
        assert expected_return(mdp, policy)[0] == pytest.approx(expected, abs=5e-6)


def test_survival_and_length_of_stay_under_clinicians(world: World, table: Floats) -> None:
    survival = values(table, clinician_policy(), table[:, :, SURVIVAL], 1.0)
    length = values(table, clinician_policy(), np.ones((X, A)), 1.0)
    assert world.initial @ survival == pytest.approx(0.78184, abs=5e-6)
    assert world.initial @ length == pytest.approx(9.2379, abs=5e-5)


def test_best_and_worst_policy(world: World, table: Floats) -> None:
    best = best_policy(table, points(table), 0.99)
    assert world.initial @ values(table, best, points(table), 0.99) == pytest.approx(68.00372, abs=5e-6)
    assert expected_return(true_mdp(world), best)[0] == pytest.approx(68.00372, abs=5e-6)
    worst = best_policy(table, -points(table), 0.99)
    assert world.initial @ values(table, worst, points(table), 0.99) == pytest.approx(24.868, abs=5e-4)
    # Discounting makes it hurry: fewer patients survive than under the policy of the next test.
    assert world.initial @ values(table, best, table[:, :, SURVIVAL], 1.0) == pytest.approx(0.87321, abs=5e-6)


def test_most_patients_that_any_policy_saves(world: World, table: Floats) -> None:
    # 0.87514 is the undiscounted optimum, over all policies, and not the survival of the discounted best one.
    # The package's readme gives 0.88, and 10.99 steps.
    best = best_policy(table, table[:, :, SURVIVAL], 1.0)
    assert world.initial @ values(table, best, table[:, :, SURVIVAL], 1.0) == pytest.approx(0.87514, abs=5e-6)
    assert world.initial @ values(table, best, np.ones((X, A)), 1.0) == pytest.approx(10.99, abs=5e-3)


def test_clinicians_often_leave_the_admissible_pairs(world: World, table: Floats) -> None:
    outside = np.where(admissible_pairs(), 0.0, 1.0)
    visits = world.initial @ values(table, clinician_policy(), outside, 1.0)
    stays = world.initial @ values(table, clinician_policy(), np.ones((X, A)), 1.0)
    assert visits / stays == pytest.approx(0.121, abs=5e-4)


def test_a_cohort_survives_as_often_as_it_should(world: World) -> None:
    n = 20_954  # patients of the study
    dataset = sample_episodes(world, clinician_policy(), n, np.random.default_rng(2024))
    last = dataset.rewards[dataset.episode_ptr[1:] - 1, 0]
    assert dataset.terminated.sum() == n
    assert np.all(np.abs(last) == 100.0)
    five_errors = 5 * np.sqrt(0.78184 * (1 - 0.78184) / n)
    assert np.mean(last > 0) == pytest.approx(0.78184, abs=five_errors)
    lengths = np.diff(dataset.episode_ptr)
    assert lengths.mean() == pytest.approx(9.2379, abs=5 * lengths.std() / np.sqrt(n))
    returns = last * 0.99 ** (lengths - 1)
    assert returns.mean() == pytest.approx(51.97830, abs=5 * returns.std() / np.sqrt(n))


def test_policy_and_scores_are_plausible_and_read_only() -> None:
    policy, sofa = clinician_policy(), sofa_scores()
    assert policy.shape == (X, A)
    np.testing.assert_allclose(policy.sum(axis=1), 1.0, rtol=0, atol=1e-15)
    assert sofa.shape == (X,)
    assert sofa.min() >= 0.0  # SOFA runs from 0 to 24
    assert sofa.max() <= 24.0
    for array in (policy, sofa, admissible_pairs()):
        assert not array.flags.writeable


def test_an_archive_of_another_schema_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["bettersafe.envs.icu_sepsis"], "SCHEMA", 2)
    with pytest.raises(DataError, match="must have schema 2; it has 1"):
        icu_sepsis()


def original() -> dict[str, npt.NDArray[Any]]:
    """The arrays of the installed package, which is found but not imported; skips where there is none."""
    spec = importlib.util.find_spec("icu_sepsis")
    if spec is None or spec.origin is None:
        pytest.skip("the package icu-sepsis is not installed")
    path = Path(spec.origin).parent / "envs" / "assets" / "dynamics.npz"
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in ("tx_mat", "d_0", "expert_policy", "sofa_scores")}


def test_the_embedded_copy_reproduces_the_package(world: World, table: Floats) -> None:
    arrays = original()
    np.testing.assert_array_equal(world.initial, arrays["d_0"][:X])
    np.testing.assert_array_equal(clinician_policy(), arrays["expert_policy"][:X])
    np.testing.assert_array_equal(sofa_scores(), arrays["sofa_scores"][:X])
    tensor = arrays["tx_mat"][:X, :, : X + 2]
    admissible = admissible_pairs()
    np.testing.assert_array_equal(table[admissible], tensor[admissible])
    np.testing.assert_array_equal(table > 0.0, tensor > 0.0)
    np.testing.assert_allclose(table, tensor, rtol=0, atol=1e-15)
    # What was left out: nobody starts ended, patients never enter the sink, and endings lead only there.
    assert not arrays["d_0"][X:].any()
    assert not arrays["tx_mat"][:X, :, X + 2].any()
    assert np.all(arrays["tx_mat"][X:, :, X + 2] == 1.0)
