"""Kinds of worlds of the gauntlet: their worlds, logs and truths are right. No method is run on them here."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from bettersafe.mdp.constrained import cmdp_optimum, optimal_policy
from bettersafe.mdp.values import expected_return, occupancy
from bettersafe.studies.gauntlet.experiment import _harm_unseen
from bettersafe.studies.gauntlet.instance import Half
from bettersafe.studies.gauntlet.kinds import KINDS, best_safe, best_safe_gain, sample_log, true_gain
from quick import rest_slow

SEEDS = range(3)
ONE_SEED = rest_slow(SEEDS, 0)
MANY_SEEDS = [4, pytest.param(8, marks=pytest.mark.slow)]
RARE = {"unseen"}  # kinds whose harm few logs show: the mean of a log says little of it
HARMS = (
    "catastrophe", "pit", "hazards", "unseen", "door", "late-harm", "machine",
    "mines", "passes", "bridges", "reservoir", "bus", "transfers", "skippers", "epidemic", "tandem",
    "debts", "pipeline", "cart", "car-park", "triage", "greenhouse", "ferry", "building", "tram",
    "prescriptions", "hotel", "faults", "pumps", "crews", "members",
    "lake", "fields", "rides", "fruit-tree",
)  # fmt: skip
FRESH = [name for name, kind in KINDS.items() if kind.half == "fresh"]
FOURTH = [name for name, kind in KINDS.items() if kind.half == "fourth"]
FIFTH = [name for name, kind in KINDS.items() if kind.half == "fifth"]
SIXTH = [name for name, kind in KINDS.items() if kind.half == "sixth"]
SEVENTH = [name for name, kind in KINDS.items() if kind.half == "seventh"]


def made(name, seed):
    return KINDS[name].make(np.random.default_rng([seed, 77]))


def test_all_halves_have_every_family():
    halves = {half: [kind for kind in KINDS.values() if kind.half == half] for half in get_args(Half)}
    assert (len(KINDS), len(FRESH), len(FOURTH), len(FIFTH), len(SIXTH), len(SEVENTH)) == (111, 18, 12, 12, 12, 10)
    assert abs(len(halves["choose"]) - len(halves["confirm"])) <= 2
    for kinds in halves.values():
        assert {kind.family for kind in kinds} == {"hazard", "rewards", "visits", "baseline", "benchmark", "model"}
    assert all(kind.name == name and 2 <= len(kind.sizes) <= 3 for name, kind in KINDS.items())
    assert {name for name in KINDS if made(name, 0).unlearnable} == {"unseen", "hidden-severity"}


@pytest.mark.parametrize("name", KINDS)
def test_worlds_differ_by_seed_alone(name):
    one, same, other = made(name, 0), made(name, 0), made(name, 1)
    assert np.array_equal(one.world.outcome.data, same.world.outcome.data)
    assert np.array_equal(one.baseline, same.baseline)
    assert not np.array_equal(one.truth.reward, other.truth.reward) or not np.array_equal(
        one.truth.transition.toarray(), other.truth.transition.toarray()
    )


@pytest.mark.parametrize("seed", ONE_SEED)
@pytest.mark.parametrize("name", KINDS)
def test_the_baseline_is_a_policy_and_logs_agree_with_its_returns(name, seed):
    instance = made(name, seed)
    assert instance.baseline.sum(axis=1) == pytest.approx(1.0)
    assert instance.preference.shape == instance.before.shape
    n = 1000
    log = sample_log(instance, n, np.random.default_rng(seed))
    step = np.arange(log.n_rows) - np.repeat(log.episode_ptr[:-1], np.diff(log.episode_ptr))
    paid = log.rewards * instance.world.discount ** step[:, None]
    returns = np.add.reduceat(paid, log.episode_ptr[:-1], axis=0)
    expected = returns_up_to(instance, instance.horizon)
    error = returns.std(axis=0) / np.sqrt(n) + 1e-9 * (1.0 + np.abs(expected))
    checked = slice(0, 1) if name in RARE else slice(None)
    assert np.all(np.abs(returns.mean(axis=0) - expected)[checked] <= 5.0 * error[checked])


def returns_up_to(instance, horizon):
    """True returns of the practice up to a step: J, less what comes after the horizon."""
    if horizon is None:
        return instance.before
    truth, total = instance.truth, []
    for policy in instance.practice:
        weight = policy[truth.pair_state, truth.pair_action]
        state = truth.initial.copy()
        for _ in range(horizon):
            state = truth.transition.T @ (weight * state[truth.pair_state])
        later = expected_return(replace(truth, initial=state / state.sum()), policy) * state.sum()
        total.append(expected_return(truth, policy) - truth.discount**horizon * later)
    return np.mean(total, axis=0)


@pytest.mark.parametrize("seed", ONE_SEED)
@pytest.mark.parametrize("name", KINDS)
def test_the_best_safe_gain_is_reached(name, seed):
    instance = made(name, seed)
    most = best_safe_gain(instance)
    if most is None:
        assert instance.aggregate is not None or np.ptp(instance.world.discount) > 0.0
        return
    gain = true_gain(instance, best_safe(instance).policy)
    assert np.all(gain >= -1e-6 * instance.scale - 1e-12)
    assert instance.preference @ gain == pytest.approx(most, rel=1e-5, abs=1e-7)
    assert most > 1e-3 * abs(instance.preference @ instance.scale) or name in {"settled", "opposed"}
    assert most >= 0.0


@pytest.mark.parametrize("name", HARMS)
def test_who_pursues_the_preference_alone_does_harm(name):
    harmed = []
    for seed in SEEDS:
        instance = made(name, seed)
        greedy = optimal_policy(instance.truth, instance.preference)
        gain = true_gain(instance, greedy)
        assert instance.preference @ gain > 0.0
        harmed.append(np.any(gain < -0.01 * np.abs(instance.before)))
    assert np.mean(harmed) > 0.5


@pytest.mark.parametrize("seeds", MANY_SEEDS)
@pytest.mark.parametrize("name", FRESH)
def test_fresh_worlds_are_small_and_their_logs_show_the_harm(name, seeds):
    kind, hidden, lengths = KINDS[name], 0, []
    for seed in range(seeds):
        instance = made(name, seed)
        log = sample_log(instance, max(kind.sizes), np.random.default_rng(seed))
        hidden += _harm_unseen(instance, log)
        lengths.append(log.n_rows / log.n_episodes)
        assert instance.world.n_states <= 150
        assert instance.world.n_actions <= 25
    assert hidden <= 1
    assert 1.0 < np.mean(lengths) <= 60.0


@pytest.mark.parametrize("seeds", MANY_SEEDS)
@pytest.mark.parametrize("name", FOURTH)
def test_worlds_of_the_fourth_set_are_small_and_partly_covered(name, seeds):
    kind, hidden, lengths, covered = KINDS[name], 0, [], []
    for seed in range(seeds):
        instance = made(name, seed)
        pairs = instance.world.n_states * instance.world.n_actions
        few, many = (sample_log(instance, size, np.random.default_rng(seed)) for size in kind.sizes)
        covered.append(np.unique(few.states * instance.world.n_actions + few.actions).size / pairs)
        hidden += _harm_unseen(instance, many)
        lengths.append(many.n_rows / many.n_episodes)
        returns = np.add.reduceat(many.rewards, many.episode_ptr[:-1], axis=0)
        assert np.all(returns.std(axis=0) > 0.0)
        assert pairs <= 3000
    assert hidden <= 1
    assert 1.0 < np.mean(lengths) <= 60.0
    assert 0.1 < np.mean(covered) < 1.0


def test_about_three_debts_in_100_have_a_complaint():
    rate = [
        -sample_log(made("debts", seed), 3000, np.random.default_rng(seed)).rewards[:, 1].sum() for seed in range(8)
    ]
    assert 0.02 < np.mean(rate) / 3000 < 0.04
    assert max(rate) / 3000 < 0.07


def test_few_products_of_the_pipeline_make_most_of_the_income():
    for seed in SEEDS:
        log = sample_log(made("pipeline", seed), 3000, np.random.default_rng(seed))
        returns = np.add.reduceat(log.rewards[:, 0], log.episode_ptr[:-1])
        large = returns > 10.0
        assert 0.0 < large.mean() < 0.1
        assert returns[large].sum() > 0.3 * returns.sum()


def test_most_that_can_follow_at_the_triage_desk_is_never_seen():
    instance = made("triage", 0)
    log = sample_log(instance, max(KINDS["triage"].sizes), np.random.default_rng(0))
    follows = log.next_states >= 0
    pair = (log.states * 4 + log.actions)[follows]
    seen = np.zeros(instance.truth.transition.shape)
    seen[pair, log.next_states[follows]] = 1.0
    possible = np.diff(instance.truth.transition.indptr)[np.unique(pair)]
    assert np.mean(seen.sum(axis=1)[np.unique(pair)] / possible) < 0.2


def test_the_ferry_is_near_its_optimum_and_the_greenhouse_tries_all_alike():
    for seed in SEEDS:
        instance = made("ferry", seed)
        weights = np.ones(3)
        most = expected_return(instance.truth, optimal_policy(instance.truth, weights)) @ weights
        uniform = expected_return(instance.truth, np.full((72, 3), 1.0 / 3.0)) @ weights
        assert most - instance.before @ weights < 0.25 * (most - uniform)
    assert np.all(made("greenhouse", 0).baseline == 0.25)


def test_no_shift_at_the_kiln_is_the_practice():
    instance = made("shifts", 0)
    assert (len(instance.practice), instance.baseline_known) == (4, False)
    assert len({tuple(np.argmax(shift, axis=1)) for shift in instance.practice}) == 4
    assert all(np.any(shift == 0.0) for shift in instance.practice)


@pytest.mark.parametrize("name", FIFTH)
def test_worlds_of_the_fifth_set_are_small_and_partly_covered(name):
    lengths = check_small_and_partly_covered(name)
    assert 5.0 < np.mean(lengths) <= (260.0 if name == "apiary" else 60.0)


@pytest.mark.parametrize("name", SIXTH)
def test_worlds_of_the_sixth_set_are_small_and_partly_covered(name):
    lengths = check_small_and_partly_covered(name)
    assert 2.5 < np.mean(lengths) <= 60.0
    for seed in SEEDS:
        truth = made(name, seed).truth
        assert np.all(occupancy(truth, made(name, seed).baseline) > 0.0)  # every state is reached


@pytest.mark.parametrize("name", SEVENTH)
def test_worlds_of_the_seventh_set_are_small_and_partly_covered(name):
    lengths = check_small_and_partly_covered(name, tried=name != "headaches")
    assert 2.5 < np.mean(lengths) <= 60.0
    for seed in SEEDS:
        instance = made(name, seed)
        assert np.all(occupancy(instance.truth, instance.baseline) > 0.0)  # every state is reached


def check_small_and_partly_covered(name, *, tried=True):
    """Lengths of episodes of worlds whose smaller logs cover some pairs, and whose larger logs show the harm."""
    kind, hidden, lengths, covered = KINDS[name], 0, [], []
    for seed in range(2):
        instance = made(name, seed)
        n_states, n_actions = instance.world.n_states, instance.world.n_actions
        few, many = (sample_log(instance, size, np.random.default_rng(seed)) for size in kind.sizes)
        covered.append(np.unique(few.states * n_actions + few.actions).size / (n_states * n_actions))
        hidden += _harm_unseen(instance, many)
        lengths.append(many.n_rows / many.n_episodes)
        returns = np.add.reduceat(many.rewards, many.episode_ptr[:-1], axis=0)
        assert np.all(returns.std(axis=0) > 0.0)
        assert 10 <= n_states <= 150
        assert 2 <= n_actions <= 20
        assert np.all(instance.baseline > 0.0) == tried  # every action in every state
    assert hidden <= 1
    assert 0.1 < np.mean(covered) < 1.0
    return lengths


def test_a_few_leads_in_100_sign():
    rate = [sample_log(made("funnel", seed), 2000, np.random.default_rng(seed)).rewards[:, 0].sum() for seed in SEEDS]
    assert 0.02 < np.mean(rate) / 2000 < 0.12
    assert min(rate) > 0


def test_few_donors_leave_a_legacy_and_it_matters():
    for seed in SEEDS:
        log = sample_log(made("donors", seed), 3000, np.random.default_rng(seed))
        gifts = log.rewards[:, 0]
        legacies = gifts > 50.0
        assert 0.0 < legacies.sum() / 3000 < 0.05
        assert gifts[legacies].sum() > 0.1 * gifts.sum()


def test_the_rent_of_the_stall_is_safe_whatever_is_done():
    instance = made("stall", 0)
    for a in range(4):
        assert abs(true_gain(instance, np.eye(4)[np.full(63, a)])[2]) < 1e-9
    assert best_safe_gain(instance) is None  # discounts differ


def test_the_miller_does_nearly_anything_and_the_desk_has_rules():
    mill, desk = made("mill", 0), made("help-desk", 0)
    assert (mill.from_counts, desk.baseline_known) == (True, False)
    assert np.median(mill.baseline.max(axis=1)) < 0.4
    assert np.all(desk.baseline.max(axis=1) > 0.7)


def test_few_guests_complain_and_bleeds_are_rare():
    for name, most in (("hotel", 0.06), ("prescriptions", 0.15)):
        rate = [-sample_log(made(name, seed), 2000, np.random.default_rng(seed)).rewards[:, 1].sum() for seed in SEEDS]
        assert min(rate) > 0.0
        assert max(rate) / 2000 < most


def test_most_members_outlast_the_log_and_little_is_left_for_the_crews():
    log = sample_log(made("members", 0), 500, np.random.default_rng(0))
    assert np.diff(log.episode_ptr).max() == 24
    assert 0.2 < 1.0 - log.terminated.sum() / 500 < 0.8
    for seed in SEEDS:
        instance = made("crews", seed)
        assert best_safe_gain(instance) < 0.1 * instance.before[0]


def test_some_faults_fill_the_log_and_pumps_keep_to_thresholds():
    instance = made("faults", 0)
    visits = np.bincount(sample_log(instance, 800, np.random.default_rng(0)).states // 6, minlength=18)
    assert visits.max() > 20 * visits.min()
    assert (instance.from_counts, made("pumps", 0).baseline_known) == (True, False)
    assert np.all(made("pumps", 0).baseline.max(axis=1) > 0.85)


def test_who_pursues_premiums_alone_takes_storms_and_a_careful_insurer_gains():
    """Discounts differ, so that no program gives the best; policies for one discount, with a margin, bound it."""
    for seed in SEEDS:
        instance = made("insurer", seed)
        assert best_safe_gain(instance) is None
        same = replace(instance.truth, discount=np.full(3, 0.98))
        greedy = true_gain(instance, optimal_policy(same, [1.0, 0.0, 0.0]))
        assert greedy[0] > 0.0
        assert greedy[1] < 0.5 * instance.before[1]
        careful = cmdp_optimum(same, 0.8 * expected_return(same, instance.baseline)[1:])
        gain = true_gain(instance, careful.policy)
        assert np.all(gain > 0.0)
        assert gain[0] > 0.1 * instance.before[0]


def test_larger_logs_of_the_seventh_set_can_show_what_is_to_be_gained():
    """The best safe gain is several standard errors of the return of the larger log."""
    for name in ("chats", "portal", "exercises", "fields", "rides", "fruit-tree"):
        for seed in SEEDS:
            instance, size = made(name, seed), max(KINDS[name].sizes)
            log = sample_log(instance, size, np.random.default_rng(seed))
            step = np.arange(log.n_rows) - np.repeat(log.episode_ptr[:-1], np.diff(log.episode_ptr))
            paid = log.rewards[:, 0] * instance.world.discount[0] ** step
            error = np.add.reduceat(paid, log.episode_ptr[:-1]).std() / np.sqrt(size)
            assert best_safe_gain(instance) > 4.0 * error


def test_doctors_never_try_what_the_guideline_forbids_and_gain_without_it():
    for seed in SEEDS:
        instance = made("headaches", seed)
        forbidden = instance.baseline == 0.0
        assert np.all(np.sum(~forbidden, axis=1) >= 2)
        assert 0.2 < forbidden.mean() < 0.35
        truth = instance.truth
        keeps = truth.reward - 1e3 * forbidden[truth.pair_state, truth.pair_action]
        program = replace(truth, reward=np.vstack([keeps[:1], truth.reward]), discount=np.full(4, truth.discount[0]), unseen_value=np.zeros((4, truth.n_states)))  # fmt: skip
        kept = cmdp_optimum(program, instance.before - 1e-9 * instance.scale).policy
        assert np.all(kept[forbidden] < 1e-9)
        assert true_gain(instance, kept)[0] > 0.04 * instance.before[0]


def test_an_objective_of_the_mail_order_has_another_discount():
    """No program gives the best; a policy for one discount bounds it."""
    for seed in SEEDS:
        instance = made("mail-order", seed)
        assert best_safe_gain(instance) is None
        same = replace(instance.truth, discount=np.full(3, 0.95))
        greedy = true_gain(instance, optimal_policy(same, instance.preference))
        assert greedy[0] > 0.5 * instance.before[0]
        assert greedy[1] < instance.before[1]
        before = expected_return(same, instance.baseline)
        found = [true_gain(instance, cmdp_optimum(same, share * before[1:]).policy) for share in (0.95, 0.9, 0.85, 0.8)]
        assert any(np.all(gain > 0.0) for gain in found)


def test_late_toxicity_harms_those_who_look_at_the_response():
    """Discounts differ, so that no program gives the best; policies for one discount bound it."""
    harmed = gained = 0
    for seed in range(6):
        instance = made("toxicity", seed)
        same = replace(instance.truth, discount=np.full(3, 0.95))
        harmed += true_gain(instance, optimal_policy(same, [1.0, 0.5, 0.0]))[2] < 0.0
        careful = [true_gain(instance, optimal_policy(same, [1.0, 0.5, weight])) for weight in (5.0, 10.0, 15.0, 20.0)]
        gained += any(np.all(gain > 0.0) for gain in careful)
    assert harmed >= 3
    assert gained >= 4


def test_what_helps_one_kind_of_student_harms_another():
    """A rule over logged states gains on both objectives; a hard exercise always makes more of them drop out."""
    tired = np.arange(24) % 3
    for seed in range(6):
        instance = made("tutor", seed)
        assert np.all(true_gain(instance, np.eye(4)[np.array([2, 0, 0])[tired]]) > 0.0)
        assert true_gain(instance, np.eye(4)[np.full(24, 3)])[1] < 0.0
        kinds = instance.truth.reward[0].reshape(3, 24, 4)[:, :21]
        assert len({int(np.argmax(paid.mean(axis=0))) for paid in kinds}) >= 2


def test_no_log_of_the_unseen_catastrophe_is_likely_to_show_it():
    kind, seen = KINDS["unseen"], 0
    for seed in range(20):
        log = sample_log(made("unseen", seed), max(kind.sizes), np.random.default_rng(seed))
        seen += log.rewards[:, 1].min() < -1.0
    assert seen <= 3


def test_the_hidden_severity_misleads():
    """The exact model of the logged states, as infinitely many episodes would show it, believes in a gain that is none."""
    misled = 0
    for seed in range(6):
        instance = made("hidden-severity", seed)
        believed = naive_returns(instance)
        gain = np.array([true_gain(instance, np.eye(4)[list(choice)]) for choice in CHOICES])
        naive = np.array([believed(np.eye(4)[list(choice)]) - believed(instance.baseline) for choice in CHOICES])
        chosen = np.argmax(np.where(np.all(naive >= 0.0, axis=1), naive[:, 0], -np.inf))
        misled += np.any(gain[chosen] < -1e-6)
    assert misled >= 3


CHOICES = list(np.ndindex(4, 4, 4, 4))


def naive_returns(instance):
    """Returns of policies in the Markov model over logged states that the practice's long-run frequencies give."""
    truth, groups = instance.truth, instance.aggregate
    (staff,) = instance.practice
    weight = staff[truth.pair_state, truth.pair_action]
    move = np.zeros((truth.n_states, truth.n_states))
    np.add.at(move, truth.pair_state, weight[:, None] * truth.transition.toarray())
    visits = np.linalg.solve(np.eye(truth.n_states) - move.T, truth.initial)[truth.pair_state] * weight
    n, pair = groups.max() + 1, groups[truth.pair_state] * truth.n_actions + truth.pair_action
    total = np.bincount(pair, visits, n * truth.n_actions)
    to_group = truth.transition.toarray() @ np.eye(n)[groups]
    p = np.array([np.bincount(pair, visits * column, total.size) / total for column in to_group.T]).T
    r = np.array([np.bincount(pair, visits * row, total.size) / total for row in truth.reward])
    start = np.bincount(groups, truth.initial)

    def returns(policy):
        flat = policy.ravel()
        matrix = (flat[:, None] * p).reshape(n, -1, n).sum(axis=1)
        paid = (flat * r).reshape(2, n, -1).sum(axis=2)
        return np.array(
            [start @ np.linalg.solve(np.eye(n) - g * matrix, row) for g, row in zip(truth.discount, paid, strict=True)]
        )

    return returns
