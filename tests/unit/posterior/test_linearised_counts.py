"""B-OPT of large logs: from counts, by linearisation, and its draws on a cluster."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import toys
from bettersafe import _kernel
from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.errors import ParameterError, RunError
from bettersafe.logs.counts import Counts, count, with_rare, with_rare_rows
from bettersafe.logs.dataset import Objective
from bettersafe.mdp.values import policy_values
from bettersafe.methods.b_opt import CandidateGrid, b_opt, make_candidates
from bettersafe.model import estimate_baseline, estimate_model
from bettersafe.posterior import draws, linearised, linearised_counts
from bettersafe.posterior.draws import RayCluster, connected, drawn_gains, shared_gains
from bettersafe.posterior.judge import Question, form_for, judge
from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.linearised_counts import counted_gains, counted_posterior, gather_counted, side_of
from bettersafe.posterior.outcomes import gather_outcomes, outcomes_of
from bettersafe.posterior.priors import PriorSet, posterior
from bettersafe.posterior.rule import posterior_passes
from bettersafe.typing import Event

NO_G_OPT = CandidateGrid(with_g_opt=False)

needs_kernel = pytest.mark.skipif(_kernel.compiled is None, reason="the kernel is not built")


def a_log(seed=0, *, d=2, episodes=30, n_states=12, n_actions=4, discounts=None, quality=0.5, noise=1.0):
    """A log with noisy rewards, and its baseline; some pairs are never tried, and some episodes are cut off."""
    rng = np.random.default_rng([seed, d, 5])
    world = garnet(rng, n_states=n_states, n_actions=n_actions, branching=3, n_objectives=d)
    if discounts is not None:
        objectives = tuple(replace(o, discount=g) for o, g in zip(world.objectives, discounts, strict=True))
        world = replace(world, objectives=objectives)
    best = np.eye(n_actions)[true_mdp(world).reward[0].reshape(n_states, n_actions).argmax(axis=1)]
    baseline = mixed_policy(rng, best, quality)
    data = sample_episodes(world, baseline, episodes, rng)
    return replace(data, rewards=data.rewards + noise * rng.normal(size=data.rewards.shape)), baseline


def some_policies(rng, n_states=12, n_actions=4):
    """Two that play everything a little, and one that plays one action, tried or not."""
    mild = [rng.dirichlet(np.full(n_actions, 0.5), size=n_states) for _ in range(2)]
    return [*mild, np.eye(n_actions)[rng.integers(n_actions, size=n_states)]]


@pytest.mark.parametrize("episodes", [3, 40])
def test_counts_tell_the_posterior_what_a_log_with_noisy_rewards_does(episodes):
    data, _ = a_log(episodes=episodes)
    from_rows, from_counts = gather_outcomes(data), outcomes_of(count(data))
    assert np.all(from_rows.noisy)
    for field in fields(from_rows):
        rows, counted = getattr(from_rows, field.name), getattr(from_counts, field.name)
        assert np.shape(rows) == np.shape(counted), field.name
        assert np.allclose(rows, counted, rtol=1e-9, atol=1e-12), field.name


def test_known_rewards_and_rewards_that_never_vary():
    data, _ = a_log(noise=0.0, episodes=10)
    by_pair = np.random.default_rng(0).normal(size=(12, 4))
    data = replace(data, rewards=np.column_stack([by_pair[data.states, data.actions], data.rewards[:, 1]]))
    counts = count(data)
    found = outcomes_of(counts)
    tried = found.visits > 0
    assert np.allclose(found.pair_reward[0, tried], by_pair[found.pair_state, found.pair_action][tried])
    assert np.all(found.pair_noise[0, tried] == 0.0)
    assert np.all(found.pair_noise[0, ~tried] > 0.1)
    rare = with_rare(counts, below=3, reward=-10.0)
    visits = np.zeros((12, 4), dtype=np.int64)
    visits[counts.pair_state, counts.pair_action] = counts.pair_count
    table = {2: np.where(visits < 3, -10.0, 0.0)}
    rows = with_rare_rows(data, visits, rare.objectives[2], below=3, reward=-10.0)
    assert np.allclose(
        outcomes_of(rare, known_rewards=table).pair_reward[2], gather_outcomes(rows, known_rewards=table).pair_reward[2]
    )
    assert not outcomes_of(rare, known_rewards=table).noisy[2]


@needs_kernel
@pytest.mark.parametrize("neutral", ["hierarchical", "support"])
@pytest.mark.parametrize(
    ("d", "discounts", "episodes"), [(1, None, 4), (2, None, 40), (3, (0.9, 0.95, 0.9), 8), (6, None, 8)]
)
def test_steps_say_what_lists_of_outcomes_say(neutral, d, discounts, episodes):
    data, baseline = a_log(d=d, discounts=discounts, episodes=episodes)
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
    data, baseline = a_log(episodes=3, n_states=30)
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
    data, baseline = a_log(episodes=100, n_states=40)
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


@needs_kernel
def test_many_states_have_the_numbers_of_lists_on_any_number_of_cores(monkeypatch):
    for module in (linearised_counts, linearised):  # gains are small beside values here: both ways must solve closely
        monkeypatch.setattr(module, "VALUE_TOL", 1e-12)
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


def test_the_rule_without_draws():
    assert posterior_passes(0.9, [0.95, 0.95], 0, 0.1)
    assert not posterior_passes(0.899, [1.0, 1.0], 0, 0.1)
    assert not posterior_passes(1.0, [0.94, 0.95], 0, 0.1)
    assert not posterior_passes(1.0, [float("nan")], 0, 0.1)


def test_the_form_follows_from_the_size():
    assert form_for("auto", 1_000_000, 2, draws=200) == "draws"
    assert form_for("auto", 10_000_000, 2, draws=200) == "linearised"
    assert form_for("auto", 1_000_000, 40, draws=200) == "linearised"
    assert form_for("draws", 10**9, 2, draws=200) == "draws"
    assert form_for("linearised", 10, 2, draws=200) == "linearised"
    with pytest.raises(ParameterError, match="form must be"):
        form_for("quick", 10, 2, draws=200)


def test_both_forms_agree_where_the_log_says_enough():
    """The same policies pass but for those at the edge, and probabilities are near."""
    differ = []
    for seed in range(6):
        data, baseline = a_log(seed, episodes=150, noise=0.1)
        outcomes, model = gather_outcomes(data), estimate_model(data)
        rng = np.random.default_rng(seed)
        greedy = np.eye(4)[rng.integers(4, size=12)]
        policies = [(1.0 - mix) * baseline + mix * greedy for mix in (0.1, 0.5)]
        policies += [table for _, table in make_candidates(model, baseline, np.ones(2), grid=NO_G_OPT)]
        drawn = judge(policies, outcomes, baseline, Question(draws=400), model=model)
        quick = judge(policies, outcomes, baseline, Question(form="linearised"), model=model)
        assert quick.linearised
        assert not drawn.linearised
        for one, other in zip(quick.candidates, drawn.candidates, strict=True):
            differ.append(abs(one.p_safe - other.p_safe))
            edge = min(abs(p - 0.9) for p in (other.p_safe, 1.0 - np.sum(1.0 - other.p_pessimistic)))
            assert one.passed == other.passed or edge < 0.05
    assert np.mean(differ) < 0.03
    assert max(differ) < 0.15


@needs_kernel
def test_linearised_from_counts_to_a_choice(monkeypatch):
    data, baseline = a_log(episodes=200, noise=0.1, quality=0.0)
    counts = count(data)
    model = estimate_model(counts)
    steps = gather_counted(counts, model)
    found = b_opt(steps, model, baseline, preference=[1.0, 1.0])
    listed = b_opt(outcomes_of(counts), model, baseline, preference=[1.0, 1.0], question=Question(form="linearised"))
    assert found.answer.linearised
    assert found.accepted
    assert found.chosen == listed.chosen
    assert "by linearisation, without draws" in found.reason
    assert [c.name for c in found.candidates] == [c.name for c in listed.candidates]
    for one, other in zip(found.candidates, listed.candidates, strict=True):
        assert one.p_safe == pytest.approx(other.p_safe, abs=1e-4)
    best = found.candidates[found.chosen]
    assert not np.any(np.isnan(best.p_pessimistic))
    better = [c for c in found.candidates if c.gain.sum() > best.gain.sum()]
    assert not any(c.passed for c in better)
    # a policy that fails is looked at closely all the same, for its certificate
    poor = 0.5 * baseline + 0.5 * np.eye(4)[np.argmin(baseline, axis=1)]
    none = b_opt(
        steps,
        model,
        best.policy,
        preference=[1.0, 1.0],
        grid=CandidateGrid(epsilons=(), mixes=(), with_g_opt=False),
        policies={"poor": poor},
    )
    assert [c.name for c in none.candidates][-1] == "poor"
    with pytest.raises(ParameterError, match=r"pass outcomes_of\(counts\)"):
        b_opt(steps, model, baseline, preference=[1.0, 1.0], question=Question(form="draws"))
    monkeypatch.setattr(sys.modules["bettersafe.methods.b_opt"], "MOST_G_OPT", 10)
    large = b_opt(steps, model, baseline, preference=[1.0, 1.0])
    assert not any("G-OPT" in c.name for c in large.candidates)
    assert "G-OPT's policies are not among the candidates" in large.notes[0]


def test_budgets_found_one_from_the_other_have_the_same_returns():
    data, baseline = a_log(episodes=200)
    model = estimate_model(data)
    names = {}
    for warm in (False, True):
        made = make_candidates(model, baseline, np.array([1.0, 0.5]), grid=NO_G_OPT, one_from_the_other=warm)
        names[warm] = {name: policy_values(model.mdp, table)[0] @ model.mdp.initial for name, table in made}
    assert names[True].keys() == names[False].keys()
    for name, returns in names[True].items():
        if "baseline" not in name:  # mixtures depend on which of several best policies was found
            assert np.array([1.0, 0.5]) @ returns == pytest.approx(np.array([1.0, 0.5]) @ names[False][name], rel=1e-9)


def test_shares_put_together_are_the_whole(monkeypatch):
    data, baseline = a_log(episodes=20)
    prior, policies = posterior(gather_outcomes(data)), np.array(some_policies(np.random.default_rng(0)))
    lost = draws.Lost("it was not lucky")

    def backwards(task, shares, *, workers, address):
        assert [share.draws for share in shares] == [10, 10, 3]
        yield from ((i, task(shares[i])) for i in (2, 1, 0))

    monkeypatch.setattr(draws, "on_ray", backwards)
    asked = {"draws": 23, "seed": 2, "stream": 1, "first": 4, "objectives": [1]}
    heard = {"shared": [], "here": []}
    shared = shared_gains(prior, policies, baseline, **asked, cluster=RayCluster(), progress=heard["shared"].append)
    assert np.array_equal(shared, drawn_gains(prior, policies, baseline, **asked))
    assert [event.done for event in heard["shared"]] == [3, 13, 23]
    here = drawn_gains(prior, policies, baseline, **asked, threads=1, progress=heard["here"].append)
    assert np.array_equal(shared, here)
    assert heard["here"][-1] == Event(done=23, total=23, unit="draws")
    monkeypatch.setattr(draws, "on_ray", lambda task, shares, *, workers, address: iter_closing([(0, lost)]))
    with pytest.raises(RunError, match="draws 4 to 13 could not be made: it was not lucky"):
        shared_gains(prior, policies, baseline, **asked, cluster=RayCluster())


def iter_closing(results):
    """Results as an engine gives them, by a generator that can be closed."""
    yield from results


def test_on_ray_the_same_bits_and_a_worker_killed_costs_its_share(ray, tmp_path, monkeypatch):
    data, baseline = a_log(episodes=60)
    outcomes, model = gather_outcomes(data), estimate_model(data)
    policies = np.array(some_policies(np.random.default_rng(0)))
    prior = posterior(outcomes)
    alone = drawn_gains(prior, policies, baseline, draws=25, seed=3, first=7)
    cluster = RayCluster(address="local", workers=2)
    monkeypatch.setenv("PYTHONPATH", str(Path(toys.__file__).parent))  # where workers find the toys
    monkeypatch.setenv("BETTERSAFE_TOY_MARKS", str(tmp_path))
    with connected(cluster):
        monkeypatch.setattr(draws, "draw_share", toys.draw_dying_once)
        shared = shared_gains(prior, policies, baseline, draws=25, seed=3, first=7, cluster=cluster)
        assert np.array_equal(shared, alone)
        tries = {path.name: len(path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()}
        assert tries == {"7": 1, "17": 2, "27": 1}  # the second share was begun twice
        monkeypatch.setattr(draws, "draw_share", toys.draw_dying)
        with pytest.raises(RunError, match=r"draws 17 to 26 could not be made: its Ray worker failed"):
            shared_gains(prior, policies, baseline, draws=25, seed=3, first=7, cluster=cluster)
        monkeypatch.undo()
        here, there = (
            judge(policies, outcomes, baseline, Question(draws=20, seed=1, cluster=where), model=model)
            for where in (None, cluster)
        )
    for one, other in zip(here.candidates, there.candidates, strict=True):
        assert np.array_equal(one.gain, other.gain)
        assert np.array_equal(one.p_pessimistic, other.p_pessimistic)
