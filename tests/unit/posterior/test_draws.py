"""Draws of the process: their distribution, their independence of who is asked about, and shares of them on a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import toys
from bettersafe import _kernel
from bettersafe.errors import RunError
from bettersafe.mdp.mdp import MDP
from bettersafe.mdp.values import expected_return
from bettersafe.model import estimate_model
from bettersafe.posterior import draws
from bettersafe.posterior.draws import (
    RayCluster,
    connected,
    draw_process,
    drawn_gains,
    mean_process,
    returns_in,
    shared_gains,
)
from bettersafe.posterior.judge import Question, judge
from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.priors import PriorSet, posterior
from bettersafe.typing import Event
from posterior_cases import SUPPORT, needs_kernel, noisy_log, one_step_log, random_case, sampled_world, some_policies


def test_a_draw_does_not_depend_on_who_is_asked_about():
    o, _, _ = random_case(8, tied=False)
    rng = np.random.default_rng(0)
    sure = np.eye(3)[rng.integers(3, size=6)]
    two = np.array([sure, np.eye(3)[rng.integers(3, size=6)]])
    narrow = np.eye(3)[rng.integers(3, size=6)]  # a baseline that leaves most pairs unplayed
    prior = posterior(o)
    both = drawn_gains(prior, two, narrow, draws=12, seed=1)
    assert np.array_equal(both[:, :1], drawn_gains(prior, two[:1], narrow, draws=12, seed=1))
    assert np.array_equal(both[5:9], drawn_gains(prior, two, narrow, draws=4, seed=1, first=5))
    assert both[:, :, 1:] == pytest.approx(drawn_gains(prior, two, narrow, draws=12, seed=1, objectives=[1]), abs=1e-9)
    assert np.array_equal(both, drawn_gains(prior, two, narrow, draws=12, seed=1, threads=3))
    assert not np.allclose(both, drawn_gains(prior, two, narrow, draws=12, seed=1, stream=1))


def test_noisy_rewards_are_drawn_too():
    """With transitions known as good as for sure, all that is uncertain is the rewards."""
    o, _, baseline = random_case(11, tied=False)
    assert o.noisy.all()
    sure = replace(o, count=1e9 * o.count)
    sure = replace(sure, pair_noise=np.where(np.arange(18) % 2, 0.3, 0.0) * np.ones((2, 1)))
    policy = np.eye(3)[[0, 1, 2, 0, 1, 2]]
    gains = drawn_gains(posterior(sure), policy[None], baseline, draws=800, seed=0)[:, 0]
    mean, covariance = linearised_gains(posterior(sure), policy[None], baseline)
    sd = np.sqrt(np.diag(covariance[0]))
    assert np.abs(gains.mean(axis=0) - mean[0]) == pytest.approx(0.0, abs=5 * sd.max() / np.sqrt(800))
    assert gains.std(axis=0) == pytest.approx(sd, rel=0.15)
    assert abs(np.corrcoef(gains.T)[0, 1]) < 0.2  # rewards of objectives are independent


@needs_kernel
@pytest.mark.parametrize("kind", ["tied", "noisy", "unequal"])
def test_the_kernel_draws_from_the_same_distribution_as_numpy(kind, monkeypatch):
    """Two-sample Kolmogorov–Smirnov of gains, one in a million; against half the counts it must fail."""
    o, _, baseline = random_case(
        14, tied=kind != "noisy", discounts=(0.9, 0.6) if kind == "unequal" else None, episodes=40
    )
    o = replace(o, starts=100.0 * o.starts)  # so that what is wrong with counts is not lost in where episodes start
    policy = np.eye(3)[[0, 1, 2, 0, 1, 2]][None]
    prior = posterior(o, pessimistic_for=0, baseline_v=np.zeros((2, 6)))
    kernel = drawn_gains(prior, policy, baseline, draws=1500, seed=0)[:, 0]
    half = replace(o, count=0.03 * o.count, pair_noise=2.0 * o.pair_noise)
    wrong = drawn_gains(replace(prior, outcomes=half), policy, baseline, draws=1500, seed=1)[:, 0]
    monkeypatch.setattr(_kernel, "compiled", None)
    numpy = drawn_gains(prior, policy, baseline, draws=500, seed=0)[:, 0]
    for k in range(2):
        assert stats.ks_2samp(kernel[:, k], numpy[:, k]).pvalue > 1e-6
    assert min(stats.ks_2samp(wrong[:, k], numpy[:, k]).pvalue for k in range(2)) < 1e-6


@needs_kernel
def test_gains_in_the_kernel_are_differences_of_returns():
    """With counts so large that every draw is the mean, gains are those of the mean process."""
    for discounts in (None, (0.99, 0.5)):
        o, _, baseline = random_case(15, discounts=discounts)
        certain = {"effects": (), "pair_noise": np.zeros_like(o.pair_noise)}
        much = replace(o, count=1e14 * o.count, starts=1e14 * o.starts, **certain)
        sure = posterior(much, PriorSet(neutral="support"))
        policies = np.random.default_rng(0).dirichlet(np.ones(3), size=(3, 6))
        j, _ = returns_in(mean_process(sure), sure.outcomes, np.concatenate([baseline[None], policies]))
        gains = drawn_gains(sure, policies, baseline, draws=2, seed=0)
        assert gains == pytest.approx(np.broadcast_to(j[1:] - j[0], gains.shape), abs=2e-5)


@needs_kernel
@pytest.mark.parametrize("shape", [0.02, 0.3, 1.0, 1.7, 40.0])
def test_gamma_variates(shape):
    out = np.empty(20_000)
    _kernel.compiled.draw_gammas(np.full(out.size, shape), 7, out)
    assert stats.kstest(out, stats.gamma(shape).cdf).pvalue > 1e-6
    assert stats.kstest(out, stats.gamma(1.1 * shape).cdf).pvalue < 1e-6
    assert abs(np.corrcoef(out[1:], out[:-1])[0, 1]) < 5 / np.sqrt(out.size)


def test_shares_put_together_are_the_whole(monkeypatch):
    data, baseline = noisy_log(episodes=20)
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


@pytest.mark.slow
def test_on_ray_the_same_bits_and_a_worker_killed_costs_its_share(ray, tmp_path, monkeypatch):
    data, baseline = noisy_log(episodes=60)
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


def test_a_state_from_which_all_end_goes_nowhere():
    log = one_step_log([(0, 0, 1, 0, 0), (0, 1, 1, 0, 0), (1, 0, -1, 0, 0), (1, 1, -1, 1, 0)])
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


def test_values_in_a_draw_are_those_of_an_mdp():
    _, baseline, policy, data = sampled_world()
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
    _, baseline, policy, data = sampled_world()
    prior = posterior(gather_outcomes(data))
    many = drawn_gains(prior, policy[None], baseline, draws=20, seed=3)
    assert np.array_equal(many[:7], drawn_gains(prior, policy[None], baseline, draws=7, seed=3))
    assert not np.array_equal(many, drawn_gains(prior, policy[None], baseline, draws=20, seed=4))
    # a second candidate does not change what is said of the first
    pair = drawn_gains(prior, np.array([policy, baseline]), baseline, draws=20, seed=3)
    assert pair[:, 0] == pytest.approx(many[:, 0], abs=1e-7)
    assert np.abs(pair[:, 1]).max() < 1e-7


def test_where_episodes_start_is_uncertain():
    o = gather_outcomes(
        one_step_log([(x, a, -1, float(x * a)) for x in (0, 1) for a in (0, 1) for _ in range(3)], 2, 2, ("a",))
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


@pytest.mark.parametrize("native", [True, False])
def test_gains_are_continuous_in_the_discount_up_to_1(native, monkeypatch):
    """At discount 1, of a world whose episodes end, draws and linearised gains are those at 1 − 1e-10."""
    if native and _kernel.compiled is None:
        pytest.skip("the kernel is not built")
    if not native:
        monkeypatch.setattr(_kernel, "compiled", None)
    found = []
    for gamma in (1.0, 1.0 - 1e-10):
        o, _, baseline = random_case(3, discounts=(gamma, 0.9))
        policy = 0.5 * baseline + 0.5 * np.roll(baseline, 1, axis=1)
        prior = posterior(o)
        mean, covariance = linearised_gains(prior, policy[None], baseline)
        found.append((drawn_gains(prior, policy[None], baseline, draws=30, seed=1), mean, covariance))
    for one, other in zip(*found, strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-6)
