"""What the posterior learns of the priors' strengths, over many worlds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import stats

from bettersafe.posterior.draws import drawn_gains
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.priors import END_CONCENTRATIONS, posterior
from posterior_cases import one_step_log


def test_the_concentration_is_learned():
    """Actions that do the same thing make it large, actions that do different things make it small."""
    rng = np.random.default_rng(0)
    same = one_step_log([(0, int(rng.integers(4)), -1, int(rng.random() < 0.5)) for _ in range(400)], 1, 4, ("a",))
    differ = one_step_log([(0, a, -1, int(a % 2)) for a in rng.integers(0, 4, 400)], 1, 4, ("a",))
    large, small = (posterior(gather_outcomes(log)) for log in (same, differ))
    assert large.end_weight @ large.end_concentration > 10 * (small.end_weight @ small.end_concentration)
    assert large.end_concentration.tolist() == list(END_CONCENTRATIONS)
    last = [(1, 0, -1, 0)]
    same = one_step_log([(0, int(rng.integers(4)), int(rng.integers(2)), 0) for _ in range(400)] + last, 2, 4, ("a",))
    differ = one_step_log([(0, a, int(a % 2), 0) for a in rng.integers(0, 4, 400)] + last, 2, 4, ("a",))
    large, small = (posterior(gather_outcomes(log)) for log in (same, differ))
    assert large.weight @ large.concentration > 10 * (small.weight @ small.concentration)


def test_the_strength_of_the_prior_of_ends_is_that_of_the_worlds():
    """Kinds of ends that only one action of a state saw do not make actions look less alike than they are (here c' = 50)."""
    rng = np.random.default_rng(0)
    rows = []
    for x in range(120):
        rates = rng.dirichlet(20.0 * np.array([0.88, 0.02, 0.1]))
        for a in range(5):
            n = rng.multinomial(rng.integers(10, 60), rng.dirichlet(50.0 * rates))
            rows += [(x, a, x, 0.0)] * n[0] + [(x, a, -1, -1.0)] * n[1] + [(x, a, -1, 1.0)] * n[2]
    found = posterior(gather_outcomes(one_step_log(rows, 120, 5, ("a",))))
    assert (
        30.0 < float(np.exp(found.end_weight @ np.log(found.end_concentration))) < 85.0
    )  # a step of the grid is a factor of 1.8


def worlds_of_few_visits(seed, n_states=6, successors=4, c=3.0):
    """Two actions tried 15 and 5 times; p(·|x,a) ~ Dirichlet(c m_x), m_x flat; the outcomes and the true gain of the second action."""
    rng = np.random.default_rng([seed, 11])
    paid = rng.permutation(successors).astype(float)
    m = rng.dirichlet(np.ones(successors), n_states)
    p = np.array([[rng.dirichlet(c * m[x] + 1e-9) for _ in range(2)] for x in range(n_states)])
    rows = [
        (x, a, n_states + int(y), paid[y])
        for x in range(n_states)
        for a, n in ((0, 15), (1, 5))
        for y in rng.choice(successors, n, p=p[x, a])
    ]
    rows += [(n_states + y, 0, -1, 0.0) for y in range(successors)]
    starts = np.append(np.full(n_states, 1e6), np.zeros(successors))
    o = replace(gather_outcomes(one_step_log(rows, n_states + successors, 2, ("a",))), starts=starts)
    value = p @ paid
    return o, float(np.mean(value[:, 1] - value.mean(axis=1)))


def test_the_learned_prior_does_not_count_its_data_twice():
    """90 % intervals where the prior's strength has to be learned from few visits cover at least as often as 150 worlds allow at
    0.85; with each pair's own visits in its prior they covered half of them."""
    covered, learned = 0, []
    for seed in range(150):
        o, true_gain = worlds_of_few_visits(seed)
        found = posterior(o)
        policy, baseline = np.tile([0.0, 1.0], (10, 1)), np.full((10, 2), 0.5)
        gains = drawn_gains(found, policy[None], baseline, draws=99, seed=seed)[:, 0, 0]
        covered += 5 <= np.sum(gains < true_gain) < 95
        learned.append(float(found.weight @ found.concentration))
    assert covered >= stats.binom.ppf(1e-3, 150, 0.85)
    assert np.median(learned) < 15.0
