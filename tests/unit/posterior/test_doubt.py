"""What the posterior does not know: shifts and widenings by formula in both forms, and estimated baselines against simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from bettersafe.mdp.values import expected_return
from bettersafe.posterior.habits import informed
from bettersafe.posterior.judge import Doubt, Question, baseline_covariance, judge
from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.priors import PriorSet
from posterior_cases import random_case, s_opt_policies

DOUBT = Doubt(
    optimism=np.array([[0.05, 0.02]]), error=np.array([[0.03, 0.0]]), widening=1.4, baseline=0.001 * np.eye(2)
)


def test_linearised_probabilities_follow_the_formula():
    o, model, baseline = random_case(1, tied=False)
    (policy,) = s_opt_policies(model, baseline, (0.3,))
    mean, covariance = linearised_gains(informed(o, PriorSet(), baseline), policy[None], baseline)
    found = judge([policy], o, baseline, Question(form="linearised"), model=model, doubt=DOUBT).candidates[0]
    sd = np.sqrt(1.4**2 * np.diagonal(covariance[0]) + DOUBT.error[0] ** 2 + 0.001)
    gain = mean[0] - DOUBT.optimism[0]
    assert found.gain == pytest.approx(gain)
    assert found.p_objective == pytest.approx(norm.cdf(gain / sd), abs=1e-6)
    assert found.least == pytest.approx(gain - norm.ppf(0.9) * sd)
    assert found.interval == pytest.approx(np.array([gain - norm.ppf(0.95) * sd, gain + norm.ppf(0.95) * sd]))
    assert found.optimism == pytest.approx(DOUBT.optimism[0])
    plain = judge([policy], o, baseline, Question(form="linearised"), model=model).candidates[0]
    assert np.all(found.p_pessimistic < plain.p_pessimistic)
    assert plain.optimism is None


def test_draws_follow_the_formula():
    """Draws with doubt have the moments of draws without it, shifted and widened."""
    o, model, baseline = random_case(1, tied=False)
    (policy,) = s_opt_policies(model, baseline, (0.3,))
    question = Question(form="draws", draws=3000)
    plain, found = (
        judge([policy], o, baseline, question, model=model, doubt=doubt).candidates[0] for doubt in (Doubt(), DOUBT)
    )
    sd = np.ptp(plain.interval, axis=0) / (2.0 * norm.ppf(0.95))
    expected = np.sqrt(1.4**2 * sd**2 + DOUBT.error[0] ** 2 + 0.001)
    assert found.gain == pytest.approx(plain.gain - DOUBT.optimism[0], abs=0.1 * expected.max())
    assert np.ptp(found.interval, axis=0) / (2.0 * norm.ppf(0.95)) == pytest.approx(expected, rel=0.08)
    quick = judge([policy], o, baseline, Question(form="linearised"), model=model, doubt=DOUBT).candidates[0]
    assert found.p_objective == pytest.approx(quick.p_objective, abs=0.06)


@pytest.mark.parametrize("form", ["draws", "linearised"])
def test_an_objective_that_never_changes_is_safe(form):
    o, model, baseline = random_case(3, n_objectives=1)
    policy = 0.5 * baseline + 0.5 * np.roll(baseline, 1, axis=1)
    flat = {
        "outcome_reward": np.zeros_like(o.outcome_reward),
        "pair_reward": np.zeros_like(o.pair_reward),
        "effects": (),
        "moments": (),
    }
    still = replace(o, **flat, pair_noise=np.zeros_like(o.pair_noise), noisy=np.zeros(1, dtype=bool))
    found = judge([policy], still, baseline, Question(form=form, draws=60), model=model, doubt=Doubt(widening=1.15))
    assert found.candidates[0].p_safe == 1.0
    assert found.candidates[0].p_pessimistic.tolist() == [1.0]
    assert found.candidates[0].passed


def test_the_covariance_of_an_estimated_baseline_is_that_of_estimating_it_again():
    """Against returns of baselines estimated from simulated decisions, as many in each state as the log has."""
    _, model, baseline = random_case(6, episodes=400)
    visits = np.zeros_like(baseline)
    visits.reshape(-1)[model.mdp.pair_index] = model.counts
    n = visits.sum(axis=1).astype(int)
    rng = np.random.default_rng(0)
    returns = []
    for _ in range(2000):
        again = np.array([rng.multinomial(size, row) / size for size, row in zip(n, baseline, strict=True)])
        returns.append(expected_return(model.mdp, again))
    real = np.cov(np.transpose(returns))
    found = baseline_covariance(model, baseline, visits)
    assert found == pytest.approx(real, abs=0.12 * np.max(np.abs(real)))
