"""Policies as tables: what is checked, and rounding."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.certificate.make import prove
from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes
from bettersafe.errors import PolicyError, WrongTypeError
from bettersafe.logs.counts import count
from bettersafe.mdp.policy import check_policy, rounding_note, sum_tolerance
from bettersafe.mdp.values import expected_return, occupancy, policy_values
from bettersafe.model import estimate_model, model_return
from bettersafe.posterior.judge import Question, judge
from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.priors import posterior
from bettersafe.runs.policy_file import write_policy


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([[1.0, 0.0]], r"shape \[2, 2\]"),
        ([[1.0, 0.0], [0.5, 0.4]], "state sick sum to 0.9"),
        ([[1.0, 0.0], [1.5, -0.5]], r"outside \[0, 1\] in state sick"),
        ([[1.0, 0.0], [np.nan, 1.0]], "state sick"),
        ([[0.2, 0.2], [0.3, 0.3]], "1 more states like it"),
    ],
)
def test_bad_policies_name_the_state(policy, message):
    with pytest.raises(PolicyError, match=message):
        check_policy(policy, 2, 2, state_labels=["well", "sick"])


def test_rounding_in_policies():
    exact = np.array([[0.1, 0.2, 0.7], [1 / 3, 1 / 3, 1 / 3]])
    assert np.array_equal(check_policy(exact, 2, 3), exact)  # bits kept
    loose = check_policy([[0.3333, 0.3333, 0.3334], [0.5, 0.5, 1e-7]], 2, 3)
    assert loose.sum(axis=1) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("n_actions", [2, 10, 100, 1000])
@pytest.mark.parametrize("cut_off", [False, True])
def test_probabilities_with_six_decimals_are_accepted(n_actions, cut_off):
    """Rounded or cut off, whatever the number of actions; what is further off than that is not."""
    exact = np.random.default_rng(0).dirichlet(np.ones(n_actions), size=50)
    six = (np.floor if cut_off else np.round)(exact * 1e6) / 1e6
    policy = check_policy(six, 50, n_actions)
    assert policy.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    assert np.abs(policy - exact).max() <= sum_tolerance(n_actions)
    assert check_policy(exact.astype(np.float32), 50, n_actions) == pytest.approx(exact, abs=1e-7)
    wrong = exact.copy()
    wrong[7] *= 1.0 + 2.0 * sum_tolerance(n_actions)
    with pytest.raises(PolicyError, match=r"state 7 sum to 1\.0"):
        check_policy(wrong, 50, n_actions)


def test_rows_that_sum_to_one_keep_their_bits_beside_rounded_ones():
    table = np.array([[0.1, 0.2, 0.7], [0.333333, 0.333333, 0.333333]])
    policy = check_policy(table, 2, 3)
    assert np.array_equal(policy[0], table[0])
    assert policy[1] == pytest.approx(1 / 3, abs=1e-15)


def test_the_note_on_rounding():
    assert rounding_note("in b.csv", np.array([1.0, 1.0 + 1e-12])) == ()
    assert rounding_note("in b.csv", np.array([1.0, 0.999997, 1.000001])) == (
        "the probabilities in b.csv are rounded: their sum differs from 1 by up to 3e-06, in 2 of 3 states. They were scaled to"
        " sum to 1",
    )


@pytest.fixture(scope="module")
def small():
    """A log, its model and outcomes, and a policy that is a distribution in every state."""
    world = garnet(0, n_states=5, n_actions=2, end=0.4)
    log = sample_episodes(world, np.full((5, 2), 0.5), 60, 1)
    return log, estimate_model(log), gather_outcomes(log)


ASKED = {
    "expected_return": lambda p, b, log, model, outcomes: expected_return(model.mdp, p),
    "policy_values": lambda p, b, log, model, outcomes: policy_values(model.mdp, p),
    "occupancy": lambda p, b, log, model, outcomes: occupancy(model.mdp, p),
    "model_return": lambda p, b, log, model, outcomes: model_return(model, p, b),
    "prove": lambda p, b, log, model, outcomes: prove(
        model, p, b, count(log), epsilon=1.0, delta=0.1, baseline_known=True
    ),
    "linearised_gains": lambda p, b, log, model, outcomes: linearised_gains(posterior(outcomes), np.array([p]), b),
    "judge": lambda p, b, log, model, outcomes: judge([p], outcomes, b, Question(draws=20), model=model),
    "write_policy": lambda p, b, log, model, outcomes: write_policy("p.csv", p, log.state_labels, log.action_labels),
    "its baseline": lambda p, b, log, model, outcomes: write_policy(
        "p.csv", b, log.state_labels, log.action_labels, baseline=p
    ),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_what_takes_a_policy_refuses_rows_that_are_no_distributions(asked, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    policy = np.full((5, 2), 0.5)
    asked(policy, policy, *small)
    for factor, message in (
        (0.0, "sum to 0"),
        (2.0, "sum to 2"),
        (-1.0, r"outside \[0, 1\]"),
        (np.nan, r"outside \[0, 1\]"),
    ):
        with pytest.raises(PolicyError, match=message):
            asked(factor * policy, policy, *small)
    with pytest.raises(WrongTypeError, match="must be an array of numbers"):
        asked("x", policy, *small)
