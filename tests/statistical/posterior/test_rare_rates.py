"""In a dangerous region every decision is struck now and then. A policy that leaves those that were struck must not seem to gain.

In every simulated log, the policy moves in each dangerous state from the decision played most to the one whose posterior mean is best.
All are alike in truth, so it gains nothing. A lower bound at level 1 − δ, δ = 0.1, may lie above that in 10 % of the logs; with 100 logs, 3 standard
errors more are allowed. Twin: if it is not the log that must show that pairs differ, a gain is claimed more often.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from bettersafe.posterior import rare_rates
from bettersafe.posterior.rewards import Moments

DELTA, LOGS = 0.1, 100
ALLOWED = DELTA + 3.0 * np.sqrt(DELTA * (1.0 - DELTA) / LOGS)
STATES, ACTIONS, DANGEROUS = 30, 3, 10


def claims():
    """Share of logs in which the lower bound of a policy without gain lies above 0."""
    rng = np.random.default_rng(4)
    state, action = np.repeat(np.arange(STATES), ACTIONS), np.tile(np.arange(ACTIONS), STATES)
    above = []
    for _ in range(LOGS):
        visits = 1.0 + rng.poisson(np.tile([30.0, 10.0, 5.0], STATES))
        rate = np.where(state < DANGEROUS, 0.03, 0.0)
        strikes = rng.binomial(visits.astype(int), rate).astype(float)
        mean = -20.0 * strikes / visits
        moments = Moments(
            mean=mean[None], spread=(400.0 * strikes - visits * mean**2)[None], asked=np.array([strikes.sum() > 0.0]), rare=True
        )  # fmt: skip
        found = rare_rates.rare_rewards(state, action, visits, moments, n_states=STATES, n_actions=ACTIONS)
        table = found.mean[0].reshape(STATES, ACTIONS)[:DANGEROUS]
        moved = np.zeros((STATES, ACTIONS))
        moved[:DANGEROUS, 0] -= 1.0
        moved[np.arange(DANGEROUS), table.argmax(axis=1)] += 1.0
        moved = moved.ravel()
        shared = np.concatenate([each.loading(0, state, action, moved) for each in found.effects])
        sd = np.sqrt(np.sum((found.noise[0] * moved) ** 2) + np.sum(shared**2))
        above.append(found.mean[0] @ moved - ndtri(1.0 - DELTA) * sd > 1e-12)
    return float(np.mean(above))


def test_who_leaves_struck_decisions_of_a_dangerous_region_seems_to_gain_nothing():
    assert claims() <= ALLOWED


def test_if_pairs_are_taken_to_differ_he_does(monkeypatch):
    monkeypatch.setattr(rare_rates, "PAIR_WEIGHTS", (6.0, 3.0, 2.0, 1.0, 1.0, 1.0))
    assert claims() > ALLOWED
