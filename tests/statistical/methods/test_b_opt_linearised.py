"""How often B-OPT by linearisation, without draws, returns a policy that is worse than the baseline: at most δ of the worlds.

The worlds are those of test_bopt_rates.py; a first-order form is least exact in small ones. Seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.logs.counts import count
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.mdp.values import expected_return
from bettersafe.methods.b_opt import CandidateGrid, b_opt
from bettersafe.methods.s_opt import adv_linearized
from bettersafe.model import estimate_model
from bettersafe.posterior.judge import Question
from bettersafe.posterior.outcomes import outcomes_of

DELTA = 0.1
PREFERENCE = np.array([1.0, 0.0])


def gains_in(seed, quality, episodes):
    """True gains [d] from the log's counts, and of the twin that tests nothing, as shares of the baseline's returns."""
    rng = np.random.default_rng([seed, round(10 * quality), episodes])
    world = garnet(rng)
    truth = true_mdp(world)
    baseline = mixed_policy(rng, optimal_policy(truth, np.ones(2)), quality)
    data = sample_episodes(world, baseline, episodes, rng)
    model, before = estimate_model(data), expected_return(truth, baseline)
    chosen = b_opt(
        outcomes_of(count(data)),
        model,
        baseline,
        preference=PREFERENCE,
        question=Question(delta=DELTA, form="linearised"),
        grid=CandidateGrid(with_g_opt=False),
    )
    untested = adv_linearized(model, baseline, preference=PREFERENCE)
    return [
        (expected_return(truth, policy) - before) / before for policy in (chosen.improvement.policy, untested.policy)
    ]


@pytest.mark.parametrize(("quality", "improves"), [(0.0, 0.15), (0.9, 0.005)])
def test_failures_stay_under_delta_without_draws(quality, improves):
    """A method that fails in a quarter of the worlds would be found out with probability 0.95."""
    gains = np.array([gains_in(seed, quality, (20, 100)[seed % 2]) for seed in range(30)])  # [worlds, 2, d]
    failures = np.sum(np.any(gains < -1e-9, axis=2), axis=0)
    assert failures[0] <= DELTA * len(gains)
    assert gains[:, 0, 0].mean() > improves
    if quality == 0.9:  # where the baseline is good, to test nothing is to fail
        assert failures[1] > 0.7 * len(gains)
