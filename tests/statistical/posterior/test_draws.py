"""Draws of the process: their moments, their ranks and the coverage of their intervals, over many worlds."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.mdp.values import expected_return
from bettersafe.posterior.draws import _process, draw_process, drawn_gains, returns_in
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.priors import posterior
from posterior_cases import LOG, SUPPORT, one_step_log


def test_draws_have_the_moments_of_a_dirichlet():
    o = gather_outcomes(LOG)
    prior = posterior(o, SUPPORT)
    rng = np.random.default_rng(1)
    n = 4000
    drawn = np.array([draw_process(prior, rng).transition.toarray()[0, 1] for _ in range(n)])
    alpha, total = 2 + 1 / 3, 3.0
    mean, variance = alpha / total, alpha * (total - alpha) / (total**2 * (total + 1))
    assert drawn.mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / n))
    assert drawn.var() == pytest.approx(variance, rel=0.15)


def mass(c, others):
    """Mass of a prior of concentration c whose mean is known from so many visits."""
    return 1.0 / (1.0 / (c + 1.0) + c / (c + 1.0) / (others + 1.0)) - 1.0


def test_the_two_dirichlets_have_their_moments():
    """P(on) and where to of one pair, drawn by the kernel through returns of one step."""
    rows = [(0, 0, -1, 1, 0)] * 3 + [(0, 0, 1, 2, 0)] * 4 + [(0, 0, 2, 4, 0)] * 2 + [(0, 1, -1, 0, 0)]
    rows += [(1, 0, -1, 0, 0), (2, 0, -1, 0, 0)]
    log = one_step_log(rows, 3, 2)
    o = replace(gather_outcomes(log), discount=np.array([0.0, 0.0]), starts=np.array([1.0, 0.0, 0.0]))
    found = posterior(o)
    found = replace(
        found,
        concentration=np.array([3.0]),
        weight=np.ones(1),
        end_concentration=np.array([30.0]),
        end_weight=np.ones(1),
    )
    policy, baseline = np.array([[[1.0, 0.0]] * 3]), np.array([[0.0, 1.0]] * 3)
    n = 20_000
    gains = drawn_gains(found, policy, baseline, draws=n, seed=0)[:, 0, 0]
    rng = np.random.default_rng(0)
    own = slice(0, o.outcome_ptr[1])
    on = ~o.ends[own]
    reward = o.outcome_reward[0, own]
    expected = []
    for action, sign in ((0, 1.0), (1, -1.0)):
        mine = o.entry_count[o.entry_ptr[action] : o.entry_ptr[action + 1]]
        theirs = found.share[own] - mine
        others = np.append(theirs[~on], found.going[0] - mine[on].sum())
        ends = rng.dirichlet(mass(30, others.sum()) * others / others.sum() + np.append(mine[~on], mine[on].sum()), n)
        where = rng.dirichlet(mass(3, theirs[on].sum()) * theirs[on] / theirs[on].sum() + mine[on], n)
        expected.append(sign * (ends[:, :-1] @ reward[~on] + ends[:, -1] * (where @ reward[on])))
    assert stats.ks_2samp(gains, sum(expected)).pvalue > 1e-6


def full_support(n_states=3, n_actions=2):
    """Outcomes in which every pair may lead anywhere or end; no counts yet."""
    rows = [
        (x, a, y, float(y == 0), float(a))
        for x in range(n_states)
        for a in range(n_actions)
        for y in range(-1, n_states)
    ]
    o = gather_outcomes(one_step_log(rows, n_states, n_actions))
    return with_counts(replace(o, starts=np.eye(n_states)[0]), np.zeros(o.entry_outcome.size))


def with_counts(o, table):
    """Other counts, one per entry."""
    seen = np.flatnonzero(table)
    return replace(
        o,
        count_ptr=np.searchsorted(seen, o.entry_ptr),
        count_outcome=o.entry_outcome[seen],
        count=table[seen],
    )


@pytest.mark.parametrize("kind", ["one Dirichlet", "pessimistic", "ends apart"])
def test_ranks_are_uniform_when_worlds_come_from_the_prior(kind):
    """Simulation-based calibration: the rank of the true gain among 19 draws, over 500 worlds, is uniform (χ², one in a
    million); with every count taken for four it is not."""
    empty = full_support()
    ptr, ends = empty.entry_ptr, empty.ends[empty.entry_outcome]
    rng = np.random.default_rng(5)
    baseline, policy = rng.dirichlet(np.ones(2), 3), rng.dirichlet(np.ones(2), 3)
    dark = kind == "pessimistic"
    more = {"pessimistic_for": 0, "baseline_v": np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]])} if dark else {}
    prior = posterior(empty, SUPPORT, **more)
    if kind == "ends apart":
        prior = replace(prior, concentration=np.array([2.0]), end_concentration=np.array([9.0]))
    c, c_end = float(prior.concentration[0]), float(prior.end_concentration[0])
    shape = np.where(empty.ends, c_end, c) * prior.share + prior.extra
    on_extra = np.bincount(empty.outcome_state, weights=prior.extra * ~empty.ends, minlength=3)
    going = c_end * prior.going + on_extra
    ranks = {"right": [], "four times": []}
    for world in range(500):
        own = np.random.default_rng([9, world])
        p = np.zeros(ends.size)
        for i, pair in enumerate(itertools.pairwise(ptr)):
            row, end = shape[empty.entry_outcome[slice(*pair)]], ends[slice(*pair)]
            p_end = own.dirichlet(np.append(np.where(end, row, 0.0), going[empty.pair_state[i]]))
            p[slice(*pair)] = p_end[:-1] + p_end[-1] * own.dirichlet(np.where(end, 0.0, row))
        counts = np.concatenate([own.multinomial(6, p[a:b]) for a, b in itertools.pairwise(ptr)]).astype(float)
        j, _ = returns_in(_process(empty, p, empty.pair_reward, empty.initial), empty, np.array([baseline, policy]))
        true_gain = (j[1] - j[0])[0]
        for name, factor in (("right", 1.0), ("four times", 4.0)):
            known = replace(prior, outcomes=with_counts(empty, factor * counts))
            gains = drawn_gains(known, policy[None], baseline, draws=19, seed=world)[:, 0, 0]
            ranks[name].append(int(np.sum(gains < true_gain)))

    def p_value(values):
        return stats.chisquare(np.bincount(np.array(values) // 2, minlength=10)).pvalue

    assert p_value(ranks["right"]) > 1e-6
    assert p_value(ranks["four times"]) < 1e-6


def test_intervals_cover_worlds_that_the_prior_did_not_make():
    """Central 90 % intervals of the gain, 200 random worlds: covered at least as often as a binomial allows at 80 %."""
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng([seed, 7])
        world = garnet(rng, n_states=6, n_actions=3, branching=3)
        truth = true_mdp(world)
        baseline = mixed_policy(rng, np.full((6, 3), 1 / 3), 0.3)
        data = sample_episodes(world, baseline, 60, rng)
        policy = 0.5 * baseline + 0.5 * rng.dirichlet(np.ones(3), size=6)
        gains = drawn_gains(posterior(gather_outcomes(data)), policy[None], baseline, draws=60, seed=0)[:, 0, 0]
        low, high = np.quantile(gains, [0.05, 0.95])
        true_gain = (expected_return(truth, policy) - expected_return(truth, baseline))[0]
        covered += low <= true_gain <= high
    assert covered >= stats.binom.ppf(1e-6, 200, 0.8)
