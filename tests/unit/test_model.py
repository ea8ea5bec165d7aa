"""Counts -> Model: hand-computed probabilities, error functions, rules for pairs never tried, and baselines."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bettersafe.errors import DataError, ParameterError, PolicyError
from bettersafe.logs.counts import count, with_rare
from bettersafe.logs.dataset import Dataset, Objective
from bettersafe.mdp.mdp import dense_q
from bettersafe.mdp.values import policy_values
from bettersafe.model import (
    check_logged_baseline,
    error_bound_l1,
    error_bound_q,
    estimate_baseline,
    estimate_model,
    logged_baseline,
    model_return,
    return_lower_bound,
)


def small_log(**changes):
    """Two episodes over states a, b and actions left, right:

    a left → b (1, −1), b left → end (2, 0);   a left → a (3, −2), a right → b, cut off there (5, −4).
    """
    fields = {
        "states": [0, 1, 0, 0],
        "actions": [0, 0, 0, 1],
        "rewards": [[1.0, -1.0], [2.0, 0.0], [3.0, -2.0], [5.0, -4.0]],
        "next_states": [1, -1, 0, 1],
        "terminated": [False, True, False, False],
        "episode_ptr": [0, 2, 4],
        "state_labels": np.array(["a", "b"]),
        "action_labels": np.array(["left", "right"]),
        "episode_labels": np.array([0, 1]),
        "objectives": (Objective(name="gain", discount=0.5), Objective(name="cost", discount=0.9)),
    }
    return Dataset(**{**fields, **changes})


def test_estimated_mdp_by_hand():
    model = estimate_model(small_log())
    mdp = model.mdp
    assert list(zip(mdp.pair_state, mdp.pair_action, model.counts, strict=True)) == [
        (0, 0, 2),
        (0, 1, 1),
        (1, 0, 1),
    ]
    assert mdp.transition.toarray() == pytest.approx(np.array([[0.5, 0.5], [0.0, 1.0], [0.0, 0.0]]))
    assert mdp.reward == pytest.approx(np.array([[2.0, 5.0, 2.0], [-1.5, -4.0, 0.0]]))
    assert mdp.discount == pytest.approx([0.5, 0.9])
    assert mdp.initial == pytest.approx([1.0, 0.0])
    assert model.error == pytest.approx(error_bound_q(np.array([2, 1, 1]), 2, 2, 2, 0.1))
    assert model.objectives == ("gain", "cost")


def test_error_functions_against_the_formulas():
    """Soft-SPIBB's bound and the paper's Appendix B.1, evaluated with plain floats."""
    n, n_states, n_actions, d, delta = 7, 5, 3, 2, 0.1
    assert error_bound_q(np.array([n]), n_states, n_actions, d, delta)[0] == pytest.approx(
        math.sqrt(2 / n * math.log(2 * n_states * n_actions * d / delta))
    )
    delta_1 = delta / (1 + d * 2.0**-n_states)
    by_hand = math.sqrt(2 / 1000 * math.log(2 * n_states * n_actions * 2**n_states / delta_1))
    assert error_bound_l1(np.array([1000]), n_states, n_actions, d, delta)[0] == pytest.approx(by_hand)
    assert (
        error_bound_l1(np.array([1]), n_states, n_actions, d, delta)[0] == 2.0
    )  # two distributions differ by at most 2
    known = error_bound_l1(np.array([1000]), 10_000, n_actions, d, delta, support=2)
    assert known[0] == pytest.approx(
        math.sqrt(2 / 1000 * (math.log(2 * 10_000 * n_actions * 4 / delta) + math.log(1 + d / 4)))
    )
    for bound in (error_bound_q, error_bound_l1):
        assert np.isinf(bound(np.array([0]), n_states, n_actions, d, delta)[0])
        assert np.isfinite(bound(np.array([3]), 1_000_000, 25, d, delta)[0])  # 2^|X| does not overflow


@pytest.mark.parametrize(("support", "delta"), [(0, 0.1), (2, 0.0), (2, 1.5)])
def test_error_functions_refuse(support, delta):
    with pytest.raises(ParameterError):
        error_bound_l1(np.array([3]), 5, 3, 2, delta, support=support)


def test_unseen_rules():
    """(b, right) was never tried."""
    log = small_log()
    baseline = np.array([[0.5, 0.5], [0.5, 0.5]])

    def value(rule):
        mdp = estimate_model(log, unseen=rule, baseline=baseline).mdp
        _, q = policy_values(mdp, baseline)
        return dense_q(mdp, q)[:, 1, 1]

    assert value("end") == pytest.approx([0.0, 0.0])
    # rewards of 'gain' are at least 1, so ending with 1 is the least; those of 'cost' can be −4 for ever
    assert value("worst") == pytest.approx([1.0, -40.0])
    # v_b(b) with the baseline on what was tried there, which ends at once: 2 and 0
    assert value("baseline") == pytest.approx([2.0, 0.0])
    with pytest.raises(ParameterError, match="needs the baseline"):
        estimate_model(log, unseen="baseline")
    with pytest.raises(ParameterError, match="Did you mean 'worst'"):
        estimate_model(log, unseen="worse")


def test_return_lower_bound():
    assert return_lower_bound(np.array([-1.0, 2.0, 0.0]), np.array([10.0, 10.0, 2.0])) == pytest.approx(
        [-10.0, 2.0, 0.0]
    )


def test_known_rewards_store_every_pair():
    table = np.arange(8.0).reshape(2, 2, 2)
    model = estimate_model(small_log(), rewards=table, error_objectives=1)
    assert model.mdp.n_pairs == 4
    assert model.counts.tolist() == [2, 1, 1, 0]
    assert np.isinf(model.error[3])
    assert model.error[0] == pytest.approx(error_bound_q(np.array([2]), 2, 2, 1, 0.1)[0])
    assert model.mdp.reward == pytest.approx(table.reshape(2, 4))
    assert model.mdp.transition.toarray()[3] == pytest.approx([0.0, 0.0])
    with pytest.raises(ParameterError, match="shape"):
        estimate_model(small_log(), rewards=np.zeros((2, 2)))
    with pytest.raises(ParameterError, match="known rewards"):
        estimate_model(small_log(), rewards=table, unseen="worst")


def test_derived_objective_reaches_pairs_never_tried():
    counts = with_rare(count(small_log()), below=2, reward=-10.0)
    mdp = estimate_model(counts).mdp
    assert mdp.reward[2] == pytest.approx([0.0, -10.0, -10.0])
    assert mdp.unseen_value[2] == pytest.approx([-10.0, -10.0])


def test_estimated_baseline():
    assert estimate_baseline(count(small_log())) == pytest.approx(np.array([[2 / 3, 1 / 3], [1.0, 0.0]]))


def with_probabilities(*values):
    return count(small_log(baseline_prob=list(values)))


def test_logged_baseline():
    """What is left in b goes to the action never logged there."""
    counts = with_probabilities(0.6, 0.7, 0.6, 0.4)
    baseline = logged_baseline(counts)
    assert baseline == pytest.approx(np.array([[0.6, 0.4], [0.7, 0.3]]))
    check_logged_baseline(counts, baseline)
    with pytest.raises(PolicyError, match=r"state a sum to 1.3 over 2 of 2 actions"):
        logged_baseline(with_probabilities(0.9, 1.0, 0.9, 0.4))
    with pytest.raises(PolicyError, match="`baseline_prob`"):
        logged_baseline(count(small_log()))


def test_a_given_baseline_must_agree_with_the_log():
    counts = with_probabilities(0.6, 0.7, 0.6, 0.4)
    with pytest.raises(PolicyError, match=r"'left' in state 'a' is 0.6, but the given baseline says 0.5 .and 2 more"):
        check_logged_baseline(counts, np.full((2, 2), 0.5))
    silent = replace(counts, baseline_prob=None)
    with pytest.raises(PolicyError, match="never plays action 'right' in state 'a', yet the data has it 1 times"):
        check_logged_baseline(silent, np.array([[1.0, 0.0], [1.0, 0.0]]))


def lone_log(discount=0.5, **changes):
    """One state with "stay" (pays 2, −1) and "end" (pays 0, −3), the log of a policy that ends after three steps."""
    fields = {
        "states": [0, 0, 0],
        "actions": [0, 0, 1],
        "rewards": [[2.0, -1.0], [2.0, -1.0], [0.0, -3.0]],
        "next_states": [0, 0, -1],
        "terminated": [False, False, True],
        "episode_ptr": [0, 3],
        "state_labels": np.array(["x"]),
        "action_labels": np.array(["stay", "end", "unknown"]),
        "episode_labels": np.array([0]),
        "objectives": (Objective(name="gain", discount=discount), Objective(name="cost", discount=1.0)),
    }
    return Dataset(**{**fields, **changes})


def test_returns_up_to_a_step_by_hand():
    """ "stay" for two steps pays 2 + 2γ; the MDP has the discounts of as many steps on average."""
    model = estimate_model(lone_log(), horizon=2)
    assert model.discount == pytest.approx([0.5, 1.0])
    assert model.mdp.discount == pytest.approx([1.0 - 1.0 / 1.5, 0.5])
    stay, end = np.array([[1.0, 0.0, 0.0]]), np.array([[0.0, 1.0, 0.0]])
    assert model_return(model, stay, end) == pytest.approx([3.0, -2.0])
    assert model_return(model, end, end) == pytest.approx([0.0, -3.0])
    without = estimate_model(lone_log())
    assert model_return(without, end, end) == pytest.approx([0.0, -3.0])


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("end", [0.0, 0.0]),
        ("worst", [0.0, -6.0]),  # two steps at −3; no reward of the gain is below 0
        ("baseline", [1.0 + 0.5 * 0.5 * 1.0, -2.0 + 0.5 * -2.0]),  # its mean reward, and again if it stayed
    ],
)
def test_pairs_without_data_up_to_a_step_by_hand(rule, expected):
    base = np.array([[0.5, 0.5, 0.0]])
    model = estimate_model(lone_log(), horizon=2, unseen=rule, baseline=base)
    assert model_return(model, [[0.0, 0.0, 1.0]], base) == pytest.approx(expected)


def test_discount_1_needs_episodes_that_end():
    cut = lone_log(terminated=[False, False, False], next_states=[0, 0, 0])
    with pytest.raises(DataError, match=r"discount 1 \(cost\) needs episodes that end, and 1 of 1 are cut off") as told:
        estimate_model(cut)
    assert told.value.setting == "discount"
    assert estimate_model(cut, horizon=3).horizon == 3


def test_the_worst_return_at_discount_1_is_that_of_the_longest_episode():
    model = estimate_model(lone_log(), unseen="worst")
    assert model.mdp.unseen_value[:, 0] == pytest.approx([0.0, -9.0])
