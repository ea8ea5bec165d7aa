"""The remark on constrained RL: what the counts guarantee, against a slow version state by state, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.certificate.make import certify_theory, prove
from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.logs.counts import count
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.mdp.values import expected_return
from bettersafe.methods.s_opt import adv_linearized, linearized
from bettersafe.model import estimate_model
from oracles import slow_guarantee

DELTA = 0.1


def counted(data, d):
    """p̂, r̂ and n of a log, row by row."""
    x, a = data.n_states, data.n_actions
    visits, transition, reward = np.zeros((x, a)), np.zeros((x, a, x)), np.zeros((d, x, a))
    for i in range(data.n_rows):
        pair = (data.states[i], data.actions[i])
        visits[pair] += 1
        reward[(slice(None), *pair)] += data.rewards[i]
        if not data.terminated[i]:
            transition[(*pair, data.next_states[i])] += 1
    seen = np.maximum(visits, 1)
    return visits, transition / seen[:, :, None], reward / seen


@pytest.mark.parametrize("seed", range(12))
def test_guarantees_agree_with_a_slow_version(seed):
    rng = np.random.default_rng(seed)
    few = seed % 3 == 0
    world = garnet(rng, n_states=4, n_actions=2, branching=2, end=0.5, discount=0.5 if not few else 0.9)
    truth = true_mdp(world)
    baseline = mixed_policy(rng, optimal_policy(truth, np.ones(2)), 0.3)
    data = sample_episodes(world, baseline, 8 if few else 30_000, rng)
    model = estimate_model(data, unseen="end")
    policy = linearized(model, baseline, preference=[1.0, 0.0]).policy
    if seed % 2:
        policy = adv_linearized(model, baseline, preference=[1.0, 1.0]).policy
    counts = count(data)
    edges = (np.zeros(2), np.ones(2))
    theory = prove(
        model, policy, baseline, counts, epsilon=np.inf, delta=DELTA / 2, baseline_known=True, reward_range=edges
    )
    visits, transition, reward = counted(data, 2)
    mean = counts.return_sum / counts.n_episodes
    gain = np.zeros(2)
    wanted = np.empty(2)
    for k, proof in enumerate(theory.proofs):
        gain[k], own = slow_guarantee(
            transition, reward[k], visits, baseline, policy, discount=float(model.mdp.discount[k]),
            initial=model.mdp.initial, low=0.0, high=1.0, n_rows=data.n_rows, delta=DELTA / 2, d=2,
        )  # fmt: skip
        span = 1.0 / (1.0 - model.mdp.discount[k])
        assert proof.return_range == pytest.approx(span)
        assert proof.gain_at_least == pytest.approx(gain[k], abs=1e-4 * span)
        assert proof.proven_loss == pytest.approx(max(-gain[k], 0.0), abs=1e-4 * span)
        assert proof.baseline_at_least == pytest.approx(own, abs=1e-4 * span)
        wanted[k] = max(mean[k] - span * np.sqrt(np.log(4.0 / DELTA) / (2 * counts.n_episodes)), own) + gain[k]
    for shift, kept in ((-1e-3, True), (1e-3, False)):
        made = certify_theory(theory, gain, zeta=[9.0, 9.0], thresholds=wanted + shift * 2.0, counts=counts)
        assert [floor.guaranteed for floor in made.floors] == pytest.approx(wanted, abs=1e-3)
        assert [floor.passed for floor in made.floors] == [kept, kept]


def test_no_gain_is_written_as_minus_zero():
    rng = np.random.default_rng(5)
    world = garnet(rng, n_states=4, n_actions=2)
    baseline = mixed_policy(rng, optimal_policy(true_mdp(world), np.ones(2)), 0.3)
    data = sample_episodes(world, baseline, 40, rng)
    model, counts = estimate_model(data), count(data)
    still = prove(model, baseline, baseline, counts, epsilon=0.0, delta=DELTA, baseline_known=True)
    made = certify_theory(still, np.zeros(2), zeta=[0.0, 0.0], thresholds=[0.0, np.nan], counts=counts)
    assert not any(np.signbit(finding.lower_bound) for finding in made.findings)
    assert "−0" not in made.verdict.replace("−0.", "")


def test_a_proven_gain_counts_towards_the_threshold():
    """100,000 episodes of a small world: 0.651 is guaranteed, where the baseline's bound alone is 0.451 (the truth is 0.761)."""
    rng = np.random.default_rng(0)
    world = garnet(rng, n_states=4, n_actions=2, branching=2, end=0.5, discount=0.5)
    truth = true_mdp(world)
    baseline = mixed_policy(rng, optimal_policy(truth, np.ones(2)), 0.3)
    data = sample_episodes(world, baseline, 100_000, rng)
    model, counts = estimate_model(data, unseen="end"), count(data)
    policy = adv_linearized(model, baseline, preference=[1.0, 1.0]).policy
    edges = (np.zeros(2), np.ones(2))
    theory = prove(model, policy, baseline, counts, epsilon=np.inf, delta=0.05, baseline_known=True, reward_range=edges)
    floor = certify_theory(theory, np.zeros(2), zeta=[0.0, 0.0], thresholds=[0.6, 0.0], counts=counts).floors[0]
    assert floor.passed
    assert (floor.baseline_bound, floor.guaranteed) == pytest.approx((0.451, 0.651), abs=1e-3)
    assert expected_return(truth, policy)[0] == pytest.approx(0.761, abs=1e-3)
