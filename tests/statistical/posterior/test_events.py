"""A harm that the log has never shown, declared as it is: B-OPT fails no more often than δ, and a twin that ignores it is caught.

Worlds are those of the gauntlet's kind "unseen": the best paid action is a catastrophe of 5,000 once in 10,000 steps, which ends the
episode, where all other steps cost at most 0.1. No log used here has seen one. The declared rate is the true one, so it is as high as
a true declaration allows.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from bettersafe.envs.hazards import catastrophe
from bettersafe.methods.b_opt import b_opt
from bettersafe.model import estimate_model
from bettersafe.posterior import priors
from bettersafe.posterior.events import DeclaredEvent, rates_of
from bettersafe.posterior.judge import Question
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.studies.gauntlet.instance import Instance, sample_log, true_gain
from bettersafe.studies.gauntlet.practices import of_quality, wary

DELTA = 0.1
RATE, COST = 1e-4, 5000.0
EPISODES = 100
ALARM = 0.02
"""Probability that a method which fails with probability δ is called faulty."""


def a_world(seed):
    """World with its practice, its log, and the catastrophe as people would declare it."""
    rng = np.random.default_rng([seed, 18])
    hazard = catastrophe(rng, ends=True, chance=(RATE, RATE), cost=COST)
    baseline = wary(of_quality(rng, hazard.world, (1.0, 1.0), 0.2), hazard.harmful, 0.3)
    instance = Instance(world=hazard.world, baseline=baseline, preference=np.array([1.0, 0.0]))
    log = sample_log(instance, EPISODES, rng)
    while log.rewards[:, hazard.harm].min() < -1.0:  # a log that has shown it needs no declaration
        log = sample_log(instance, EPISODES, rng)
    actions = np.flatnonzero(hazard.harmful.any(axis=0)).tolist()
    event = DeclaredEvent(name="catastrophe", cost={"harm": -COST}, rate=RATE, actions=actions, ends=True)
    return instance, log, event


def outcomes_by_world(worlds):
    """For each world whether B-OPT proposes a policy, and whether this is worse than the baseline on some objective."""
    proposed, failed = 0, 0
    for seed in range(worlds):
        instance, log, event = a_world(seed)
        found = b_opt(
            gather_outcomes(log, events=[event]),
            estimate_model(log, delta=DELTA, baseline=instance.baseline),
            instance.baseline,
            preference=instance.preference,
            question=Question(delta=DELTA, form="linearised", seed=seed),
        )
        proposed += found.accepted
        failed += found.accepted and bool(
            np.any(true_gain(instance, found.improvement.policy) < -1e-6 * instance.scale)
        )
    return proposed, failed


def most(worlds):
    return int(binom.ppf(1.0 - ALARM, worlds, DELTA))


WORLDS = pytest.mark.parametrize("worlds", [8, pytest.param(24, marks=pytest.mark.slow)])


@WORLDS
def test_failures_are_at_most_delta_where_the_harm_is_declared(worlds):
    proposed, failed = outcomes_by_world(worlds)
    assert failed <= most(worlds)
    assert proposed >= 3  # the declaration does not block everything


@WORLDS
def test_a_twin_that_ignores_the_declared_rate_is_caught(worlds, monkeypatch):
    monkeypatch.setattr(priors, "rates_of", lambda *given: tuple(rate.at(0.0) for rate in rates_of(*given)))
    monkeypatch.setattr(priors, "worst_rates", tuple)
    _, failed = outcomes_by_world(worlds)
    assert failed > most(worlds)
