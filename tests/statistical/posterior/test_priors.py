"""The posterior: by hand, against closed forms, against itself (rank uniformity), and linearised against drawn."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.errors import ParameterError
from bettersafe.logs.dataset import Dataset, Objective
from bettersafe.mdp.mdp import MDP
from bettersafe.mdp.values import expected_return, policy_values
from bettersafe.model import estimate_model
from bettersafe.posterior.draws import _process, draw_process, drawn_gains, mean_process, returns_in
from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.priors import END_CONCENTRATIONS, PriorSet, posterior


def a_log(rows, n_states=2, n_actions=2, objectives=("a", "b")):
    """A log of one-step episodes (x, a, next, rewards...); next −1 ends."""
    x, a, following = (np.array([row[i] for row in rows]) for i in range(3))
    return Dataset(
        states=x,
        actions=a,
        rewards=np.array([row[3:] for row in rows], dtype=float),
        next_states=following,
        terminated=following < 0,
        episode_ptr=np.arange(len(rows) + 1),
        state_labels=np.arange(n_states),
        action_labels=np.arange(n_actions),
        episode_labels=np.arange(len(rows)),
        objectives=tuple(Objective(name=name, discount=0.5) for name in objectives),
    )


SUPPORT = PriorSet(neutral="support")
LOG = a_log([(0, 0, 1, 0, 5), (0, 0, 1, 0, 5), (0, 1, -1, 7, 5), (0, 1, -1, 3, 5), (1, 0, -1, 0, 1)])


def test_outcomes_by_hand():
    """From state 0: to state 1 (0, 5), to the end (3, 5) and (7, 5); from state 1: to the end (0, 1); from both every end."""
    o = gather_outcomes(LOG)
    assert o.outcome_ptr.tolist() == [0, 4, 7]
    ends = [(-1, 0.0, 1.0), (-1, 3.0, 5.0), (-1, 7.0, 5.0)]
    outcomes = list(zip(o.outcome_next.tolist(), *o.outcome_reward.tolist(), strict=True))
    assert sorted(outcomes[:4]) == [*ends, (1, 0.0, 5.0)]
    assert sorted(outcomes[4:]) == ends
    assert [sorted(np.array(outcomes)[o.kind == i].tolist()) for i in range(3)] == [[list(e)] * 2 for e in ends]
    assert sorted(np.array(outcomes)[o.assumed][:, 1].tolist()) == [0.0, 3.0, 7.0]
    assert o.pair_state.tolist() == [0, 0, 1, 1]  # the untried pair (1, 1) is there
    assert o.entry_ptr.tolist() == [0, 4, 8, 11, 14]
    assert np.add.reduceat(o.entry_count, o.entry_ptr[:-1]).tolist() == [2, 2, 1, 0]
    assert o.initial.tolist() == [0.8, 0.2]
    assert not o.noisy.any()
    # mean of the "support" posterior: α_0 = 1/3 each, so after 2 of 2 to state 1: (2 + 1/3)/3
    mean = mean_process(posterior(o, SUPPORT))
    assert mean.transition.toarray()[0, 1] == pytest.approx((2 + 1 / 3) / 3)
    assert mean.reward[0, 1] == pytest.approx(((1 + 1 / 3) * 7 + (1 + 1 / 3) * 3) / 3)
    assert mean.reward[1].tolist() == pytest.approx([5.0, 5.0, 1.0, 1.0])


def test_known_and_noisy_rewards():
    table = np.array([[1.0, 2.0], [3.0, 4.0]])
    o = gather_outcomes(LOG, known_rewards={1: table})
    assert mean_process(posterior(o, SUPPORT)).reward[1].tolist() == [1.0, 2.0, 3.0, 4.0]
    rng = np.random.default_rng(0)
    values = rng.normal(size=60)
    noisy = a_log([(0, i % 2, -1, v) for i, v in enumerate(values)], objectives=("a",))
    o = gather_outcomes(noisy)
    assert o.noisy.tolist() == [True]
    assert o.outcome_next.tolist() == [-1]  # ends that pay the same are one outcome, here and elsewhere
    assert o.kind.tolist() == [0]
    assert not o.assumed.any()
    even, odd = values[::2], values[1::2]
    within = (np.sum((even - even.mean()) ** 2) + np.sum((odd - odd.mean()) ** 2)) / 58
    between = np.var([even.mean(), odd.mean()], ddof=1)
    v = 1.0 / (30 / within + 1.0 / between)
    centre = (even.mean() + odd.mean()) / 2
    assert o.pair_reward[0, 0] == pytest.approx(v * (even.sum() / within + centre / between))
    assert o.pair_noise[0, 0] == pytest.approx(np.sqrt(v))
    dark = posterior(o, SUPPORT, pessimistic_for=0, baseline_v=np.zeros((1, 2)))
    assert mean_process(dark).reward[0, 0] == pytest.approx(v * (even.sum() / within + values.min() / between))
    fixed = gather_outcomes(a_log([(0, i % 2, -1, 100.0 * (i % 2) + i // 40) for i in range(60)], 1, 3, ("a",)))
    assert not fixed.noisy.any()


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


def test_pessimism_goes_to_the_worst_outcome():
    o = gather_outcomes(LOG)
    v = np.array([[0.0, -100.0], [0.0, 0.0]])
    dark = posterior(o, SUPPORT, pessimistic_for=0, baseline_v=v)  # leading to state 1 is worst for a
    light = posterior(o, SUPPORT)
    assert mean_process(dark).transition.toarray()[1, 1] == pytest.approx((1 / 3 + 1) / 4)
    assert mean_process(light).transition.toarray()[1, 1] == pytest.approx((1 / 3) / 3)
    other = posterior(o, SUPPORT, pessimistic_for=0, baseline_v=np.array([[0.0, 100.0], [0.0, 0.0]]))
    # now the end that pays 3 is worst
    assert mean_process(other).reward[0, 1] == pytest.approx((4 / 3 * 7 + 7 / 3 * 3) / 4)
    for wrong in ({"pessimistic_for": 0}, {"pessimistic_for": 5, "baseline_v": v}):
        with pytest.raises(ParameterError):
            posterior(o, SUPPORT, **wrong)


def test_a_strong_prior_does_not_drown_pessimism():
    """Where all actions are alike the neutral prior is strong; one bad visit still counts for a sixth of the pessimistic one."""
    rows = [(0, a, following, 0.0, 0.0) for a in (0, 1) for following in (0, 1) for _ in range(300)]
    o = gather_outcomes(a_log([*rows, (1, 0, 1, -9.0, 0.0), (1, 1, 1, -9.0, 0.0)], 2, 3))
    middle = posterior(o)
    assert middle.weight @ middle.concentration > 50.0
    v = np.array([[0.0, -9.0], [0.0, 0.0]])
    dark = posterior(o, pessimistic_for=0, baseline_v=v)
    untried = int(np.flatnonzero((o.pair_state == 0) & (o.pair_action == 2))[0])
    assert mean_process(middle).transition.toarray()[untried] == pytest.approx([0.5, 0.5], abs=1e-3)
    expected = (0.5 * 5.0 + 1.0) / 6.0  # 5 but for what 1,200 visits leave open of the others
    assert mean_process(dark).transition.toarray()[untried, 1] == pytest.approx(expected, abs=0.01)
    assert dark.weight.sum() == pytest.approx(1.0)


def test_the_concentration_is_learned():
    """Actions that do the same thing make it large, actions that do different things make it small."""
    rng = np.random.default_rng(0)
    same = a_log([(0, int(rng.integers(4)), -1, int(rng.random() < 0.5)) for _ in range(400)], 1, 4, ("a",))
    differ = a_log([(0, a, -1, int(a % 2)) for a in rng.integers(0, 4, 400)], 1, 4, ("a",))
    large, small = (posterior(gather_outcomes(log)) for log in (same, differ))
    assert large.end_weight @ large.end_concentration > 10 * (small.end_weight @ small.end_concentration)
    assert large.end_concentration.tolist() == list(END_CONCENTRATIONS)
    last = [(1, 0, -1, 0)]
    same = a_log([(0, int(rng.integers(4)), int(rng.integers(2)), 0) for _ in range(400)] + last, 2, 4, ("a",))
    differ = a_log([(0, a, int(a % 2), 0) for a in rng.integers(0, 4, 400)] + last, 2, 4, ("a",))
    large, small = (posterior(gather_outcomes(log)) for log in (same, differ))
    assert large.weight @ large.concentration > 10 * (small.weight @ small.concentration)


def hazard_log(rng, episodes=40, n_states=8, n_actions=3, rate=0.1):
    """Actions lead to different places, and every step ends with the same probability."""
    rows, ptr = [], [0]
    for _ in range(episodes):
        x = int(rng.integers(n_states))
        while True:
            a = int(rng.integers(n_actions))
            following = -1 if rng.random() < rate else (x + a + 1) % n_states
            rows.append((x, a, following, 1.0))
            if following < 0:
                break
            x = following
        ptr.append(len(rows))
    return replace(
        a_log(rows, n_states, n_actions, ("a",)), episode_ptr=np.array(ptr), episode_labels=np.arange(episodes)
    )


def test_ends_are_learned_apart_from_where_to():
    """Where to tells actions apart, ends don't: so a pair that never ended is not taken for one that never does."""
    log = hazard_log(np.random.default_rng(3))
    o = gather_outcomes(log)
    found = posterior(o)
    assert found.weight @ found.concentration < 1.0
    assert found.end_weight @ found.end_concentration > 100.0
    ends = 1.0 - np.asarray(mean_process(found).transition.sum(axis=1))
    never = (o.visits > 5) & (o.visits == o.visits_on)
    assert never.any()
    assert np.all(np.abs(ends - 0.1) < 0.05)
    # by one Dirichlet for both ("support"), they hardly ever do
    assert np.all(1.0 - np.asarray(mean_process(posterior(o, SUPPORT)).transition.sum(axis=1))[never] < 0.05)


def test_states_that_never_ended_can_end():
    log = hazard_log(np.random.default_rng(4), episodes=4)
    o = gather_outcomes(log)
    unended = np.setdiff1d(o.outcome_state, o.outcome_state[~o.assumed & o.ends])
    assert unended.size
    assert np.all(np.bincount(o.outcome_state[o.ends], minlength=8)[np.unique(o.outcome_state)] == 1)
    assert np.all(posterior(o).mean_going < 1.0)
    lasting = replace(log, terminated=np.zeros_like(log.terminated))  # cut off, not ended: nothing is said of ends
    assert not gather_outcomes(lasting).ends.any()
    assert posterior(gather_outcomes(lasting)).mean_going == pytest.approx(1.0)


def test_how_others_ended_can_happen_here():
    """Where one state saw only good ends and the log has bad ones, a bad one is possible, and the less the more was seen."""

    def bad(good):
        rows = [(0, a, -1, 1.0) for a in (0, 1) for _ in range(good)]
        rows += [(x, a, -1, r) for x in range(1, 12) for a in (0, 1) for r in (-1.0, 1.0, 1.0)]
        o = gather_outcomes(a_log(rows, 12, 2, ("a",)))
        return (1.0 - mean_process(posterior(o)).reward[0, 0]) / 2.0

    assert 0.05 < bad(2) < 1.0 / 3.0
    assert 0.0 < bad(50) < bad(10) < bad(2)


def test_the_strength_of_the_prior_of_ends_is_that_of_the_worlds():
    """Kinds of ends that only one action of a state saw do not make actions look less alike than they are (here c' = 50)."""
    rng = np.random.default_rng(0)
    rows = []
    for x in range(120):
        rates = rng.dirichlet(20.0 * np.array([0.88, 0.02, 0.1]))
        for a in range(5):
            n = rng.multinomial(rng.integers(10, 60), rng.dirichlet(50.0 * rates))
            rows += [(x, a, x, 0.0)] * n[0] + [(x, a, -1, -1.0)] * n[1] + [(x, a, -1, 1.0)] * n[2]
    found = posterior(gather_outcomes(a_log(rows, 120, 5, ("a",))))
    assert (
        30.0 < float(np.exp(found.end_weight @ np.log(found.end_concentration))) < 85.0
    )  # a step of the grid is a factor of 1.8


def test_a_state_from_which_all_end_goes_nowhere():
    log = a_log([(0, 0, 1, 0, 0), (0, 1, 1, 0, 0), (1, 0, -1, 0, 0), (1, 1, -1, 1, 0)])
    found = posterior(gather_outcomes(log))
    assert found.going[1] == 0.0
    assert mean_process(found).transition.toarray()[2:].sum() == 0.0
    assert draw_process(found, np.random.default_rng(0)).transition.toarray()[2:].sum() == 0.0
    one = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    gains = drawn_gains(found, one, np.full((2, 2), 0.5), draws=50, seed=0)
    mean, covariance = linearised_gains(found, one, np.full((2, 2), 0.5))
    assert np.all(np.isfinite(gains))
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(covariance))


def mass(c, others):
    """Mass of a prior of concentration c whose mean is known from so many visits."""
    return 1.0 / (1.0 / (c + 1.0) + c / (c + 1.0) / (others + 1.0)) - 1.0


def test_the_two_dirichlets_have_their_moments():
    """P(on) and where to of one pair, drawn by the kernel through returns of one step."""
    rows = [(0, 0, -1, 1, 0)] * 3 + [(0, 0, 1, 2, 0)] * 4 + [(0, 0, 2, 4, 0)] * 2 + [(0, 1, -1, 0, 0)]
    rows += [(1, 0, -1, 0, 0), (2, 0, -1, 0, 0)]
    log = a_log(rows, 3, 2)
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
    o = gather_outcomes(a_log(rows, n_states, n_actions))
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


def a_case(seed=0, episodes=300):
    rng = np.random.default_rng(seed)
    world = garnet(rng, n_states=8, n_actions=3, branching=3)
    truth = true_mdp(world)
    baseline = rng.dirichlet(np.full(3, 3.0), size=8)
    data = sample_episodes(world, baseline, episodes, rng)
    policy = 0.5 * baseline + 0.5 * rng.dirichlet(np.ones(3), size=8)
    return truth, baseline, policy, data


def test_linearised_agrees_with_draws_where_there_is_much_data():
    for seed in range(4):
        _, baseline, policy, data = a_case(seed, 1500)
        prior = posterior(gather_outcomes(data))
        drawn = drawn_gains(prior, policy[None], baseline, draws=600, seed=0)[:, 0]
        mean, covariance = (found[0] for found in linearised_gains(prior, policy[None], baseline))
        sd = drawn.std(axis=0)
        assert np.all(np.abs(mean - drawn.mean(axis=0)) < 0.25 * sd)
        assert np.sqrt(np.diag(covariance)) == pytest.approx(sd, rel=0.15)
        assert covariance[0, 1] / np.prod(np.sqrt(np.diag(covariance))) == pytest.approx(
            np.corrcoef(drawn.T)[0, 1], abs=0.15
        )


def test_values_in_a_draw_are_those_of_an_mdp():
    _, baseline, policy, data = a_case()
    o = gather_outcomes(data)
    draw = draw_process(posterior(o), np.random.default_rng(0))
    mdp = MDP(
        n_states=8, n_actions=3, pair_state=o.pair_state, pair_action=o.pair_action, transition=draw.transition,
        reward=draw.reward, discount=o.discount, initial=draw.initial,
    )  # fmt: skip
    j, _ = returns_in(draw, o, np.array([baseline, policy]))
    assert j[0] == pytest.approx(expected_return(mdp, baseline), rel=1e-7)
    assert j[1] == pytest.approx(expected_return(mdp, policy), rel=1e-7)


def test_seeds_and_numbers_of_draws():
    _, baseline, policy, data = a_case()
    prior = posterior(gather_outcomes(data))
    many = drawn_gains(prior, policy[None], baseline, draws=20, seed=3)
    assert np.array_equal(many[:7], drawn_gains(prior, policy[None], baseline, draws=7, seed=3))
    assert not np.array_equal(many, drawn_gains(prior, policy[None], baseline, draws=20, seed=4))
    # a second candidate does not change what is said of the first
    pair = drawn_gains(prior, np.array([policy, baseline]), baseline, draws=20, seed=3)
    assert pair[:, 0] == pytest.approx(many[:, 0], abs=1e-7)
    assert np.abs(pair[:, 1]).max() < 1e-7


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


def test_model_and_posterior_mean_agree_in_the_limit():
    truth, baseline, _, data = a_case(1, 3000)
    v, _ = policy_values(estimate_model(data).mdp, baseline)
    j, values = returns_in(mean_process(posterior(gather_outcomes(data))), gather_outcomes(data), baseline[None])
    assert values[0] == pytest.approx(v, rel=0.02)
    assert j[0] == pytest.approx(expected_return(truth, baseline), rel=0.1)


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
    o = replace(gather_outcomes(a_log(rows, n_states + successors, 2, ("a",))), starts=starts)
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


def test_no_prior_is_stronger_than_what_it_was_learned_from():
    o = gather_outcomes(hazard_log(np.random.default_rng(3)))
    found = posterior(o)
    for c in (0.3, 30.0, 1e6):
        block = found.end_block(c)
        assert np.all(block.scale * found.end_others <= np.minimum(c, found.end_others) + 1e-9)
    never = a_log([(0, 0, -1, 1.0)] * 5 + [(0, 1, -1, 3.0)] * 5, 1, 3, ("a",))  # action 2 was never tried
    policy = np.array([[[0.0, 0.0, 1.0]]])
    gains = drawn_gains(posterior(gather_outcomes(never)), policy, np.array([[0.5, 0.5, 0.0]]), draws=400, seed=0)
    assert gains.std() > 0.3  # between 1 and 3 anything may be


def test_rewards_go_with_an_outcome_only_where_they_are_a_function_of_it():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 12, size=(300, 2)).astype(float)
    bandit = a_log([(0, i % 2, -1, *pair) for i, pair in enumerate(values)], 1, 2)
    o = gather_outcomes(bandit)
    assert o.noisy.all()  # 144 kinds of ends would make an outcome of nearly every row
    assert o.outcome_next.tolist() == [-1]
    few = gather_outcomes(a_log([(0, i % 2, -1, float(i % 3), 0.0) for i in range(30)], 1, 2))
    assert not few.noisy.any()
    assert few.seen.size - few.assumed.sum() == 3


def test_a_step_cut_off_where_nobody_acted_says_nothing():
    rows = [(0, 0, 1, 1.0)] * 5 + [(0, 1, -1, 1.0)] * 5  # state 1 was never acted in, and nothing ended there
    o = gather_outcomes(a_log(rows, 2, 2, ("a",)))
    assert o.visits.tolist() == [0.0, 5.0]
    assert o.ends.all()


def test_where_episodes_start_is_uncertain():
    o = gather_outcomes(
        a_log([(x, a, -1, float(x * a)) for x in (0, 1) for a in (0, 1) for _ in range(3)], 2, 2, ("a",))
    )
    sure = replace(o, count=1e9 * o.count)
    policy, baseline = np.array([[[0.0, 1.0]] * 2]), np.array([[1.0, 0.0]] * 2)
    gains = drawn_gains(posterior(sure, SUPPORT), policy, baseline, draws=4000, seed=0)[
        :, 0, 0
    ]  # the share that starts in 1
    share = stats.beta(6, 6)
    assert stats.kstest(gains, share.cdf).pvalue > 1e-6
    _, covariance = linearised_gains(posterior(sure, SUPPORT), policy, baseline)
    assert covariance[0, 0, 0] == pytest.approx(share.var(), rel=1e-3)
