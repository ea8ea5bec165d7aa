"""Does a test show what its forecast says?"""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.evaluation.forecast import forecast, largest_step
from bettersafe.evaluation.held_out import SafetyRule, safety_test
from bettersafe.mdp.constrained import optimal_policy

SEED = 5


def a_case(episodes):
    rng = np.random.default_rng(SEED)
    world = garnet(rng, n_states=8, n_actions=3, end=0.1)
    baseline = rng.dirichlet(np.full(3, 3.0), size=8)
    best = 0.5 * optimal_policy(true_mdp(world), np.ones(2)) + 0.5 * baseline
    return world, baseline, best, sample_episodes(world, baseline, episodes, rng)


@pytest.mark.parametrize(
    ("estimator", "place"), [("dr", 2), ("drl", 0)]
)  # weights of trajectories vary too much at a whole step
def test_widths_of_tests_are_those_forecast(estimator, place):
    world, baseline, best, log = a_case(600)
    rule = SafetyRule(delta=0.1, zeta=np.array([0.0, 0.3]), estimator=estimator)
    found = forecast(best, baseline, log, rule, episodes=300)
    widths, effective = [], []
    for seed in range(12):
        later = sample_episodes(world, baseline, 300, np.random.default_rng([SEED, seed]))
        mixed = found[place].step * best + (1.0 - found[place].step) * baseline
        test = safety_test(mixed, baseline, later, rule, folds=5)
        widths.append(test.estimate - test.bound)
        effective.append(not test.refusal)
    assert np.allclose(np.median(widths, axis=0), found[place].detectable + rule.zeta, rtol=0.35)
    assert np.mean(effective) == pytest.approx(float(found[place].trusted), abs=0.3)
    assert [each.step for each in found] == [1.0, 0.5, 0.2, 0.1]
    assert np.all(found[3].detectable + rule.zeta < 0.3 * (found[0].detectable + rule.zeta))


def test_the_largest_step_and_the_episodes_needed():
    _, baseline, best, log = a_case(600)
    rule = SafetyRule(delta=0.1, zeta=np.zeros(2), estimator="drl")
    few, many = (forecast(best, baseline, log, rule, episodes=n) for n in (60, 60_000))
    assert many[0].could_pass
    assert largest_step(many) is many[0]
    assert few[0].needed == pytest.approx(many[0].needed)  # it does not depend on the episodes planned
    again = forecast(best, baseline, log, rule, episodes=int(many[0].needed) + 1)
    short = forecast(best, baseline, log, rule, episodes=max(2, int(0.8 * many[0].needed)))
    assert np.all(again[0].gain >= again[0].detectable)
    assert not np.all(short[0].gain >= short[0].detectable)
    assert largest_step(()) is None
