"""Rates of harmful ends: what pairs of a group share, against numerical integration and simple worlds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from bettersafe.posterior.draws import mean_process
from bettersafe.posterior.end_rates import _on_grid, excess_ends
from bettersafe.posterior.habits import EDGES, informed
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.priors import PriorSet
from posterior_cases import one_step_log

N_STATES, N_ACTIONS = 60, 4


def test_moments_on_the_grid_by_integration():
    logs, mean, square = _on_grid(np.array([6.0]), np.array([2.0]), np.array([0.05]))
    prior = stats.beta(3.0 * 0.15, 3.0 * 0.85)  # a = 0.1, c = 3
    likelihood = [
        integrate.quad(lambda t, j=j: t**j * t**2 * (1 - t) ** 4 * prior.pdf(t), 0, 1, limit=200)[0] for j in range(3)
    ]
    assert np.exp(logs[4, 2, 0]) == pytest.approx(likelihood[0], rel=1e-4)
    assert mean[4, 2, 0] == pytest.approx(likelihood[1] / likelihood[0], rel=1e-4)
    assert square[4, 2, 0] == pytest.approx(likelihood[2] / likelihood[0], rel=1e-4)


def log_with_deadly(rng, deadly):
    """One-step log: kind 1 of end pays −1. Rarely played actions (π_b = 0.02) end so with 0.4 if ``deadly``, all others with 0.005."""
    baseline = np.full((N_STATES, N_ACTIONS), 0.02)
    baseline[:, :2] = 0.48
    true = np.where((baseline < 0.1) & deadly, 0.4, 0.005)
    rows = []
    for x in range(N_STATES):
        for a in rng.choice(N_ACTIONS, size=80, p=baseline[x]):
            rows.append((x, int(a), -1, -float(rng.random() < true[x, a])))
    return one_step_log(rows, N_STATES, N_ACTIONS, ("deaths",)), true, baseline


@pytest.mark.parametrize("deadly", [True, False])
def test_excess_of_rarely_played_pairs(deadly):
    found, others = [], []
    for seed in range(5):
        data, _, baseline = log_with_deadly(np.random.default_rng(seed), deadly)
        o = gather_outcomes(data)
        group = np.searchsorted(EDGES, baseline.reshape(-1)[o.pair_index], side="right")
        kind = int(o.kind[np.argmin(o.outcome_reward[0])])
        added, variance = excess_ends(o, group, kind)
        unshown = (group == group.min()) & (o.visits <= 1)
        found.append(
            added[
                unshown & (np.bincount(o.count_pair, o.count * (o.kind[o.count_outcome] == kind), o.visits.size) == 0)
            ].mean()
        )
        others.append(added[group == group.max()].max())
        assert np.all(added >= 0.0)
        assert np.all(variance >= 0.0)
    if deadly:
        assert 0.1 < np.mean(found) < 0.4  # not yet shown, but the group is dangerous
    else:
        assert np.mean(found) < 0.02
    assert max(others) < 0.01  # pairs with many visits know themselves


def test_deadly_group_is_expected_in_the_posterior():
    errors = []
    for seed in range(4):
        data, true, baseline = log_with_deadly(np.random.default_rng(seed), True)
        o = gather_outcomes(data)
        given = informed(o, PriorSet(), baseline)
        rare = (baseline.reshape(-1)[o.pair_index] < 0.1) & (o.visits <= 1)
        errors.append(np.mean((mean_process(given).reward[0] + true.reshape(-1)[o.pair_index])[rare]))
    assert np.mean(errors) < 0.25  # without the group's rate the error is nearly 0.4
