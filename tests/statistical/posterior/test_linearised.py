"""Gains by linearisation, against draws."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.posterior.draws import drawn_gains
from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.priors import posterior
from posterior_cases import sampled_world


def test_linearised_agrees_with_draws_where_there_is_much_data():
    for seed in range(4):
        _, baseline, policy, data = sampled_world(seed, 1500)
        prior = posterior(gather_outcomes(data))
        drawn = drawn_gains(prior, policy[None], baseline, draws=600, seed=0)[:, 0]
        mean, covariance = (found[0] for found in linearised_gains(prior, policy[None], baseline))
        sd = drawn.std(axis=0)
        assert np.all(np.abs(mean - drawn.mean(axis=0)) < 0.25 * sd)
        assert np.sqrt(np.diag(covariance)) == pytest.approx(sd, rel=0.15)
        assert covariance[0, 1] / np.prod(np.sqrt(np.diag(covariance))) == pytest.approx(
            np.corrcoef(drawn.T)[0, 1], abs=0.15
        )
