"""The posterior from counts, by linearisation: the numbers of lists of outcomes, on any number of cores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bettersafe.logs.counts import Counts, count, with_rare
from bettersafe.logs.dataset import Objective
from bettersafe.mdp.values import policy_values
from bettersafe.model import estimate_baseline, estimate_model
from bettersafe.posterior import linearised, linearised_counts, recovered
from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.linearised_counts import counted_gains, counted_posterior, gather_counted, side_of
from bettersafe.posterior.outcomes import outcomes_of
from bettersafe.posterior.priors import PriorSet, posterior
from bettersafe.studies.gauntlet.choose import CHOOSE
from bettersafe.studies.gauntlet.instance import sample_log
from posterior_cases import needs_kernel, noisy_log, some_policies


@needs_kernel
@pytest.mark.parametrize("neutral", ["hierarchical", "support"])
@pytest.mark.parametrize(
    ("d", "discounts", "episodes"),
    [(1, None, 4), (2, None, 40), (2, (1.0, 1.0), 40), (3, (0.9, 0.95, 0.9), 8), (6, None, 8)],
)
def test_steps_say_what_lists_of_outcomes_say(neutral, d, discounts, episodes):
    data, baseline = noisy_log(d=d, discounts=discounts, episodes=episodes)
    counts = count(data)
    model = estimate_model(counts)
    listed, steps = outcomes_of(counts), gather_counted(counts, model)
    policies = some_policies(np.random.default_rng(d))
    v, _ = policy_values(model.mdp, baseline)
    for k in (None, *range(d)):
        priors = PriorSet(neutral=neutral, concentration_scale=1.5)
        slow = posterior(listed, priors, pessimistic_for=k, baseline_v=v)
        fast = counted_posterior(steps, priors, pessimistic_for=k, baseline_v=v)
        objectives = list(range(d)) if k is None else [k]
        means, covariances = linearised_gains(slow, np.array(policies), baseline, objectives=objectives)
        again = counted_gains(fast, policies, side_of(fast, baseline, objectives))
        assert np.allclose(again[0], means, rtol=0.0, atol=1e-6 * np.max(np.abs(means)))
        assert np.allclose(again[1], covariances, rtol=0.0, atol=1e-6 * np.max(np.abs(covariances)))


@needs_kernel
def test_steps_know_derived_rewards_and_states_where_nobody_acted():
    data, baseline = noisy_log(episodes=3, n_states=30)
    nobody = np.setdiff1d(np.arange(30), data.states)[0]  # an episode is cut off on its way there
    last = data.episode_ptr[1:] - 1
    terminated, following = data.terminated.copy(), data.next_states.copy()
    terminated[last[0]], following[last[0]] = False, nobody
    data = replace(data, terminated=terminated, next_states=following)
    counts = with_rare(count(data), below=2, reward=-3.0)
    model = estimate_model(counts)
    visits = np.zeros((30, 4), dtype=np.int64)
    visits[counts.pair_state, counts.pair_action] = counts.pair_count
    assert np.any(visits.sum(axis=1)[counts.outcome_state] == 0)
    slow = posterior(outcomes_of(counts, known_rewards={2: np.where(visits < 2, -3.0, 0.0)}))
    fast = counted_posterior(gather_counted(counts, model, known=[2]))
    policies = some_policies(np.random.default_rng(1), n_states=30)
    means, covariances = linearised_gains(slow, np.array(policies), baseline)
    again = counted_gains(fast, policies, side_of(fast, baseline, range(3)))
    assert np.allclose(again[0], means, rtol=0.0, atol=1e-6 * np.max(np.abs(means)))
    assert np.allclose(again[1], covariances, rtol=0.0, atol=1e-6 * np.max(np.abs(covariances)))


@needs_kernel
def test_bits_do_not_depend_on_cores(monkeypatch):
    data, baseline = noisy_log(episodes=100, n_states=40)
    counts = count(data)
    model = estimate_model(counts)
    policies = some_policies(np.random.default_rng(0), n_states=40)

    def gains():
        prior = counted_posterior(gather_counted(counts, model))
        return counted_gains(prior, policies, side_of(prior, baseline, range(2)))

    several = gains()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for one, many in zip(gains(), several, strict=True):
        assert np.array_equal(one, many)


def many_states(*, n_states=61_000, tried=2, successors=10, d=2):
    """Counts of more states than the kernel has directions of doubles for, in rows that it reads eight at a time."""
    rng = np.random.default_rng(3)
    n_pairs = n_states * tried
    state = np.repeat(np.arange(n_states), tried)
    steps = rng.permuted(np.tile(np.arange(30), (n_pairs, 1)), axis=1)[:, :successors]
    following = np.sort(steps + rng.integers(0, n_states // 30, (n_pairs, 1)) * 30, axis=1)
    times = rng.integers(1, 5, following.shape)
    ended = rng.integers(0, 3, n_pairs)
    visits = times.sum(axis=1) + ended
    mean = rng.normal(size=(d, n_pairs))
    return Counts(
        state_labels=np.arange(n_states),
        action_labels=np.arange(tried + 1),
        objectives=tuple(Objective(name=f"r{k}", discount=0.99) for k in range(d)),
        pair_state=state,
        pair_action=np.tile(np.arange(tried), n_states),
        pair_count=visits,
        outcome_ptr=np.arange(0, following.size + 1, successors),
        outcome_state=following.ravel(),
        outcome_count=times.ravel(),
        terminated_count=ended,
        reward_sum=mean * visits,
        reward_square_sum=(mean**2 + 1.0) * visits,
        reward_min=np.full(d, -6.0),
        reward_max=np.full(d, 6.0),
        unseen_reward=np.zeros(d),
        initial_count=np.ones(n_states, dtype=np.int64),
        n_rows=int(visits.sum()),
        n_episodes=n_states,
        n_truncated=0,
        n_dropped=0,
        length_min=1,
        length_max=500,
        return_sum=np.zeros(d),
        return_square_sum=np.ones(d),
        return_min=np.full(d, -50.0),
        return_max=np.full(d, 50.0),
    )


@pytest.mark.slow
@needs_kernel
def test_many_states_have_the_numbers_of_lists_on_any_number_of_cores(monkeypatch):
    for module in (linearised_counts, linearised):  # gains are small beside values here: both ways must solve closely
        monkeypatch.setattr(module, "VALUE_TOL", 1e-12)
    monkeypatch.setattr(
        recovered, "excess_of", lambda x, *steps, tied, random: np.zeros((2, x.size))
    )  # lists know rare events
    counts = many_states()
    baseline = estimate_baseline(counts)
    model = estimate_model(counts, baseline=baseline)
    policy = np.random.default_rng(0).dirichlet(np.ones(3), size=counts.n_states)
    v, _ = policy_values(model.mdp, baseline)
    listed = outcomes_of(counts)
    found = {}
    for cores in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", cores)
        steps = gather_counted(counts, model)
        for k, objectives in ((None, [0, 1]), (1, [1])):
            prior = counted_posterior(steps, pessimistic_for=k, baseline_v=v)
            found[cores, k] = counted_gains(prior, [policy], side_of(prior, baseline, objectives))
    for k, objectives in ((None, [0, 1]), (1, [1])):
        assert all(np.array_equal(*pair) for pair in zip(found["1", k], found["2", k], strict=True))
        slow = posterior(listed, pessimistic_for=k, baseline_v=v)
        for quick, known in zip(
            found["1", k], linearised_gains(slow, policy[None], baseline, objectives=objectives), strict=True
        ):
            assert np.allclose(quick, known, rtol=0.0, atol=1e-6 * np.max(np.abs(known)))


@needs_kernel
@pytest.mark.parametrize(("seed", "episodes"), [(0, 2), (2, 10)])
@pytest.mark.parametrize("neutral", ["hierarchical", "support"])
def test_nearly_deterministic_worlds_are_solved(seed, episodes, neutral, monkeypatch):
    """Few paths through a gridworld: residuals become orthogonal to the first one, where the solver must start anew."""
    rng = np.random.default_rng(seed)
    gridworld = next(kind for kind in CHOOSE if kind.name == "gridworld").make(rng)
    for n in (2, 3, 5, 10):
        data = sample_log(gridworld, n, rng)
        if n == episodes:
            break
    # of rewards without noise, and of rare events, `outcomes_of` knows more
    noise = np.random.default_rng(seed).normal(size=data.rewards.shape)
    monkeypatch.setattr(recovered, "excess_of", lambda x, *steps, tied, random: np.zeros((2, x.size)))
    counts = count(replace(data, rewards=data.rewards + noise))
    priors = PriorSet(neutral=neutral)
    fast = counted_posterior(gather_counted(counts, estimate_model(counts)), priors)
    policy = np.eye(gridworld.baseline.shape[1])[gridworld.baseline.argmax(axis=1)]
    mean, covariance = counted_gains(fast, [policy], side_of(fast, gridworld.baseline, range(2)))
    known = linearised_gains(posterior(outcomes_of(counts), priors), policy[None], gridworld.baseline)
    assert mean == pytest.approx(known[0], abs=1e-6 * max(np.max(np.abs(known[0])), 1.0))
    assert covariance == pytest.approx(known[1], abs=1e-5 * max(np.max(np.abs(known[1])), 1.0))
