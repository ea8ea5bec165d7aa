"""Tests on held-out data: what they must not pass, and that their bounds hold."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.errors import ParameterError
from bettersafe.evaluation.held_out import paired_terms, return_range, safety_test
from bettersafe.mdp.values import expected_return
from evaluation_cases import held_out_case, safety_rule


def test_weights_on_a_few_episodes_do_not_pass():
    _, baseline, _, _, held_out, model = held_out_case(episodes=200)
    sharp = np.eye(3)[np.argmin(baseline, axis=1)]
    test = safety_test(
        0.02 * baseline + 0.98 * sharp, baseline, held_out, safety_rule(zeta=np.full(2, 1e9)), model=model
    )
    assert test.few_effective_episodes
    assert not test.passed
    assert "too few episodes" in test.refusal


@pytest.mark.parametrize("bound", ["hoeffding", "bernstein", "anderson", "betting"])
@pytest.mark.parametrize(
    ("low", "high"),
    [
        (-4.0, -1.0),
        (1.0, 2.0),
        pytest.param(-1.0, 1.0, marks=pytest.mark.slow),
        pytest.param(-3.0, 0.0, marks=pytest.mark.slow),
    ],
)
def test_finite_sample_bounds_hold_whatever_the_sign_of_the_rewards(bound, low, high):
    """is and pdis, costs and rewards that exclude 0: a policy whose true loss is beyond ζ passes in at most the number of 100
    worlds that δ = 0.1 allows (once in a million more), and no term is below the stated least value."""
    from dataclasses import replace

    from scipy import stats

    wrong = dict.fromkeys(("is", "pdis"), 0)
    for seed in range(100):
        truth, baseline, _, train, held_out, _ = held_out_case(seed, episodes=60)
        scaled = {"reward_range": ([low] * 2, [high] * 2)}
        discount = np.full(2, 0.8)
        scaled["return_range"] = return_range(np.full(2, low), np.full(2, high), discount)
        parts = [replace(part, rewards=low + (high - low) * part.rewards) for part in (train, held_out)]
        world = replace(truth, reward=low + (high - low) * truth.reward)
        rng = np.random.default_rng(seed)
        policy = 0.3 * baseline + 0.7 * rng.dirichlet(np.full(3, 0.5), size=5)
        gain = expected_return(world, policy) - expected_return(world, baseline)
        zeta = np.maximum(-gain - 1e-3, 0.0)
        if gain[0] > -1e-3:
            continue  # it does not lose
        zeta[1] = 1e9
        for estimator in wrong:
            wrong[estimator] += safety_test(
                policy,
                baseline,
                parts[1],
                safety_rule(estimator=estimator, bound=bound, levels="full", zeta=zeta, **scaled),
                tuning=parts[0],
            ).passed
    allowed = int(stats.binom.ppf(1.0 - 1e-6, 100, 0.1))
    assert max(wrong.values()) <= allowed


def test_return_range_holds_for_every_length():
    low, high, discount = np.array([-1.0, 0.5, -2.0]), np.array([2.0, 1.0, -1.0]), np.array([0.9, 0.5, 0.8])
    least, most = return_range(low, high, discount)
    rng = np.random.default_rng(0)
    for length in (1, 2, 5, 50):
        for rewards in (low, high, *rng.uniform(low, high, (20, 3))):
            total = sum(discount**t * rewards for t in range(length))
            assert np.all((least - 1e-12 <= total) & (total <= most + 1e-12))


def test_return_range_up_to_a_step_is_exact():
    low, high = return_range(np.array([-1.0, 0.5, -2.0]), np.array([2.0, 1.0, -1.0]), np.array([1.0, 0.5, 0.0]), 3)
    assert low == pytest.approx([-3.0, 0.5, -2.0])
    assert high == pytest.approx([6.0, 1.75, -1.0])
    low, high = return_range(np.array([0.0, -1.0]), np.array([0.0, 0.0]), np.ones(2))  # no limit
    assert low == pytest.approx([0.0, -np.inf])
    assert high == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize("estimator", ["is", "pdis"])
@pytest.mark.parametrize(("low", "high"), [(-4.0, -1.0), (1.0, 2.0), (-1.0, 1.0)])
def test_terms_up_to_a_step_have_the_gain_of_these_steps(estimator, low, high):
    """Cut-off episodes, discount 1: shifted terms are never below the least possible one, and their mean is the gain."""
    from dataclasses import replace

    truth, baseline, policy, _, held_out, _ = held_out_case(3, episodes=4000, horizon=4)
    objectives = tuple(replace(o, discount=1.0) for o in held_out.objectives)
    data = replace(held_out, rewards=low + (high - low) * held_out.rewards, objectives=objectives)
    world = replace(truth, reward=low + (high - low) * truth.reward, discount=np.ones(2))
    edges = np.full(2, low), np.full(2, high)
    rule = safety_rule(
        estimator=estimator, bound="betting", horizon=3, reward_range=edges,
        return_range=return_range(*edges, np.ones(2), 3),
    )  # fmt: skip
    gain = expected_return(world, policy, horizon=3) - expected_return(world, baseline, horizon=3)
    terms = paired_terms(policy, baseline, data, rule)
    error = terms.std(axis=0, ddof=1) / np.sqrt(terms.shape[0])
    assert np.all(np.abs(terms.mean(axis=0) - gain) <= 5.0 * error)
    test = safety_test(policy, baseline, data, rule, tuning=data)
    assert np.all(test.bound <= gain)
    assert np.all(np.isfinite(test.bound))
    with pytest.raises(
        ParameterError, match="needs a range of returns, which has no limit at discount 1: set `horizon`"
    ):
        safety_test(policy, baseline, data, replace(rule, horizon=None), tuning=data)
