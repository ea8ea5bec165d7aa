"""The Lagrangian baseline by hand: multipliers that vanish and come back, ties, pairs never tried, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from bettersafe.errors import ParameterError, PolicyError
from bettersafe.mdp.mdp import MDP, dense_mdp
from bettersafe.mdp.values import expected_return
from bettersafe.methods.lagrangian import lagrangian, mixture_return
from bettersafe.model import Model


def as_model(mdp):
    return Model(
        mdp=mdp, counts=np.ones(mdp.n_pairs, dtype=np.int64), error=np.ones(mdp.n_pairs), error_kind="q", delta=0.1,
        unseen="end", state_labels=np.arange(mdp.n_states), action_labels=np.arange(mdp.n_actions),
        objectives=tuple(f"r{k}" for k in range(mdp.n_objectives)),
    )  # fmt: skip


def one_decision(rewards):
    """One state; every action ends the process and pays rewards[k][a]."""
    reward = np.asarray(rewards, dtype=float)[:, None, :]
    return dense_mdp(np.zeros((1, reward.shape[2], 1)), reward, discount=0.9, initial=[1.0])


@pytest.mark.parametrize("size", [1.0, 1e6, 1e100])
def test_a_multiplier_that_vanished_comes_back(size):
    """Actions (1, −1) and (0, 1), played half and half: J(π_b) = (½, 0), which is the best for λ = (1, 0) too.

    Round 1: ν = (10, 10, 10)/3, weights (13, 10)/3: the second is best (10/3 against 1), g = (½, −1).
    Round 2, with η·size large: ν = (10, 0, 0): the first is best, g = (−½, 1), and the exponents are (0, 0, 0) again.
    So the rounds alternate. A multiplier that was rounded to 0 for good would play the first action ever after.
    """
    model = as_model(one_decision(np.array([[1.0, 0.0], [-1.0, 1.0]]) * size))
    rounds = []
    mixture = lagrangian(
        model, [[0.5, 0.5]], preference=[1.0, 0.0], eta=max(1000.0 / size, 1.0), tol=0.0, max_rounds=100,
        progress=rounds.append,
    )  # fmt: skip
    assert mixture.policies.tolist() == [[[0.0, 1.0]], [[1.0, 0.0]]]
    assert mixture.weights.tolist() == [0.5, 0.5]
    assert mixture.baseline_return / size == pytest.approx([0.5, 0.0])
    assert mixture.policy_return / size == pytest.approx([0.5, 0.0])
    assert mixture.multipliers == pytest.approx([(10 / 3 + 10) / 2, 10 / 6])
    # L_max = −½; ν̂ = (20, 5)/3: best is the first with (1 + 20/3) − 5/3 = 6, less ν̂·J(π_b) = 10/3
    assert mixture.gap / size == pytest.approx(-0.5 + 6.0 - 10.0 / 3.0)
    assert not mixture.converged
    assert [r.done for r in rounds] == list(range(1, 101))
    assert rounds[-1].gap == mixture.gap


def test_the_first_gap_by_hand():
    """The same actions after one round: J(π̂) = (0, 1), L_max = 0 + 10·½, L_min = −10/3 + 10/3·½ = −5/3."""
    model = as_model(one_decision([[1.0, 0.0], [-1.0, 1.0]]))
    mixture = lagrangian(model, [[0.5, 0.5]], preference=[1.0, 0.0], max_rounds=1)
    assert mixture.gap == pytest.approx(5.0 + 5.0 / 3.0)
    assert "loses on objective 0 by 0.5 there" in mixture.status
    assert "after 1 round, larger than requested" in mixture.status
    enough = lagrangian(model, [[0.5, 0.5]], preference=[1.0, 0.0], tol=6.7)
    assert (enough.rounds, enough.converged) == (1, True)
    assert lagrangian(model, [[0.5, 0.5]], preference=[1.0, 0.0], tol=6.6).rounds > 1


def test_the_gap_counts_policies_that_were_never_played():
    """A third action (0.9, −0.3) is best for neither round's ν (8.7/3 < 10/3; 9.9 < 11), but for ν̂: 19.2/3 > 6."""
    model = as_model(one_decision([[1.0, 0.0, 0.9], [-1.0, 1.0, -0.3]]))
    exact = -0.5 + 19.2 / 3.0 - 10.0 / 3.0
    rounds = []
    for tol, max_rounds in ((0.0, 2), (2.3, 3)):  # without it the gap would be 2.17: no reason to stop in round 2
        lagrangian(
            model, [[0.5, 0.5, 0.0]], preference=[1.0, 0.0], eta=1000.0, tol=tol, max_rounds=max_rounds,
            progress=rounds.append,
        )  # fmt: skip
    assert [r.done for r in rounds] == [1, 2, 1, 2, 3]
    assert (rounds[1].gap, rounds[3].gap) == pytest.approx((exact, exact))


def test_equal_policies_are_merged_though_other_actions_were_as_good():
    """Actions (3/2, −2), (0, 2), (1, 0), the last never played by π_b; B = 3, so ν_1 = (1, 1) exactly.

    Round 1, weights (2, 1): the second and the third are equally good, and π_b plays the second. Round 2: ν = (3, 0), the
    first. Round 3: ν = (0, 3), the second alone.
    """
    model = as_model(one_decision([[1.5, 0.0, 1.0], [-2.0, 2.0, 0.0]]))
    mixture = lagrangian(model, [[0.25, 0.75, 0.0]], preference=[1.0, 0.0], eta=1000.0, norm=3.0, max_rounds=3)
    assert mixture.policies.tolist() == [[[0.0, 1.0, 0.0]], [[1.0, 0.0, 0.0]]]
    assert mixture.weights == pytest.approx([2 / 3, 1 / 3])


def test_ties_are_played_as_the_baseline_plays_them():
    """State 0: actions 0 and 1 are best, 2 is not; state 1: nothing matters; state 2: the baseline plays no best one."""
    reward = np.array([[[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 2.0]]])
    mdp = dense_mdp(np.zeros((3, 3, 3)), reward, discount=0.9, initial=[1.0, 0.0, 0.0])
    baseline = np.array([[0.6, 0.2, 0.2], [0.1, 0.2, 0.7], [1.0, 0.0, 0.0]])
    mixture = lagrangian(as_model(mdp), baseline, preference=[1.0])
    assert mixture.policies[0] == pytest.approx(np.array([[0.75, 0.25, 0.0], [0.1, 0.2, 0.7], [0.0, 0.5, 0.5]]))
    assert np.array_equal(mixture.policies[0, 1], baseline[1])
    assert mixture.weights.tolist() == [1.0]
    assert "loses on no objective" in mixture.status


def test_nothing_to_gain_returns_the_baseline_alone():
    mdp = one_decision([[0.0, 0.0, 0.0]] * 2)
    mixture = lagrangian(as_model(mdp), [[0.2, 0.3, 0.5]], preference=[1.0, 1.0])
    assert mixture.policies.tolist() == [[[0.2, 0.3, 0.5]]]
    assert mixture.converged


@pytest.mark.parametrize(("worth", "row"), [(5.0, [0.0, 1.0]), (-5.0, [1.0, 0.0]), (1.0, [0.7, 0.3])])
def test_actions_never_tried_are_free_and_worth_what_the_model_says(worth, row):
    mdp = MDP(
        n_states=1, n_actions=2, pair_state=[0], pair_action=[0], transition=sparse.csr_array((1, 1)), reward=[[1.0]],
        discount=[0.9], initial=[1.0], unseen_value=[[worth]],
    )  # fmt: skip
    mixture = lagrangian(as_model(mdp), [[0.7, 0.3]], preference=[1.0])
    assert mixture.policies[0, 0].tolist() == row
    assert mixture.policy_return == pytest.approx([max(worth, 1.0)])


def test_the_return_of_a_mixture_is_not_that_of_the_mean_policy():
    """Two decisions in a row, the second with the first remembered; in truth 1 is paid (γ later) for the same one twice.

    In the model action k pays in objective k, λ is for the first, the baseline is even: so the mixture is of "always 0"
    and "always 1", each of which is worth ½; the policy that plays both evenly gets half of it.
    """
    table = np.zeros((3, 2, 3))  # states: start, after 0, after 1
    table[0, 0, 1] = table[0, 1, 2] = 1.0
    reward = np.stack([np.tile([1.0, 0.0], (3, 1)), np.tile([0.0, 1.0], (3, 1))])
    model = as_model(dense_mdp(table, reward, discount=0.5, initial=[1.0, 0.0, 0.0]))
    mixture = lagrangian(model, np.full((3, 2), 0.5), preference=[2.0, 0.0], eta=1.0, max_rounds=300)
    assert sorted(mixture.policies.tolist()) == [[[0.0, 1.0]] * 3, [[1.0, 0.0]] * 3]
    assert np.all(mixture.weights > 0.1)
    pay = np.zeros((1, 3, 2))
    pay[0, 1, 0] = pay[0, 2, 1] = 1.0
    truth = dense_mdp(table, pay, discount=0.5, initial=[1.0, 0.0, 0.0])
    assert mixture_return(truth, mixture) == pytest.approx([0.5])
    assert expected_return(truth, np.tensordot(mixture.weights, mixture.policies, axes=1))[0] < 0.45
    with pytest.raises(PolicyError, match="3 states × 2 actions, the MDP has 1 × 2"):
        mixture_return(one_decision([[1.0, 0.0]]), mixture)


def test_results_are_read_only():
    mixture = lagrangian(as_model(one_decision([[1.0, 0.0]])), [[0.5, 0.5]], preference=[1.0])
    for array in (mixture.policies, mixture.weights, mixture.policy_return, mixture.baseline, mixture.multipliers):
        assert not array.flags.writeable


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eta": 0.0}, "eta must be a finite number above 0; got 0.0"),
        ({"norm": float("nan")}, "norm must be a finite number above 0"),
        ({"tol": -1.0}, "tol must be 0 or more"),
        ({"tol": float("nan")}, "tol must be 0 or more"),
        ({"max_rounds": 0}, "max_rounds must be at least 1"),
        ({"preference": [1.0]}, "preference needs 2 numbers"),
        ({"preference": [1.0, -1.0]}, "preference must not be negative"),
    ],
)
def test_bad_input(settings, message):
    model = as_model(one_decision([[1.0, 0.0], [0.0, 1.0]]))
    with pytest.raises(ParameterError, match=message):
        lagrangian(model, [[0.5, 0.5]], **{"preference": [1.0, 0.0], **settings})


def test_different_discounts_and_discount_1_are_refused():
    mdp = dense_mdp(np.zeros((1, 2, 1)), np.zeros((2, 1, 2)), discount=[0.9, 0.5], initial=[1.0])
    with pytest.raises(ParameterError, match=r"needs equal discounts.*\[0.9, 0.5\]"):
        lagrangian(as_model(mdp), [[0.5, 0.5]], preference=[1.0, 0.0])
    endless = dense_mdp(np.zeros((1, 2, 1)), np.zeros((2, 1, 2)), discount=1.0, initial=[1.0])
    with pytest.raises(ParameterError, match="the Lagrangian method needs discounts below 1"):
        lagrangian(as_model(endless), [[0.5, 0.5]], preference=[1.0, 0.0])
