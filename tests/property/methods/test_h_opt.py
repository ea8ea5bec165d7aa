"""The paper's H-OPT against a slow version of it, word by word; and the truncated bound against Theorem 1 as written."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.evaluation.bounds import lower_bound
from bettersafe.evaluation.held_out import SafetyRule
from bettersafe.logs.dataset import split
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.mdp.values import policy_values
from bettersafe.methods.facts import METHODS
from bettersafe.methods.h_opt import Proposal, h_opt
from bettersafe.model import estimate_model
from oracles import slow_bernstein, slow_h_opt

DELTA, DISCOUNT = 0.4, 0.9
EDGES = (0.0, 10.0)
CASES = [(kind, "t") for kind in ("is", "pdis", "dr")] + [("is", 0.5), ("is", 0.2)]


def episodes(data):
    """Steps (x, a, rewards, next x, ended) of every episode."""
    rows = list(
        zip(
            data.states.tolist(), data.actions.tolist(), data.rewards.tolist(), data.next_states.tolist(),
            data.terminated.tolist(), strict=True,
        )
    )  # fmt: skip
    return [rows[a:b] for a, b in zip(data.episode_ptr[:-1], data.episode_ptr[1:], strict=True)]


@pytest.mark.parametrize(("kind", "bound"), CASES)
@pytest.mark.parametrize("seed", range(6))
def test_the_papers_rule(seed, kind, bound):
    rng = np.random.default_rng(seed)
    world = garnet(rng, n_states=4, n_actions=2, branching=2, end=0.4, discount=DISCOUNT)
    baseline = mixed_policy(rng, optimal_policy(true_mdp(world), np.ones(2)), 0.1)
    data = sample_episodes(world, baseline, 240 if bound != "t" else 200, rng, horizon=None if seed % 2 else 6)
    train, safety = split(data, (0.5, 0.5), rng)
    model = estimate_model(train, unseen="end")
    preference = [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)][seed % 3]
    name = "linearized" if seed % 2 else "adv-linearized"
    target = METHODS[name].make(model, baseline, preference=preference).policy

    def values(policy):
        v, q = policy_values(model.mdp, policy)
        table = np.zeros((2, *policy.shape))
        table[:, model.mdp.pair_state, model.mdp.pair_action] = q
        return v, table

    many = (
        {} if bound == "t" else {"return_range": tuple(np.full(2, edge) for edge in EDGES), "truncation": [bound] * 2}
    )
    rule = SafetyRule(
        delta=DELTA, zeta=np.zeros(2), estimator=kind, bound="t" if bound == "t" else "bernstein", comparison="empirical",
        strict=False, **many,
    )  # fmt: skip
    found = h_opt(
        train, safety, baseline, preference=preference, rule=rule, selection="paper", proposal=Proposal(method=name),
        model=model,
    )  # fmt: skip
    chosen, bounds = slow_h_opt(
        episodes(train), episodes(safety), target, baseline, preference, discount=DISCOUNT, delta=DELTA, kind=kind,
        bound=bound, quantile=stats.t.ppf(1.0 - DELTA / 2, safety.n_episodes - 1), values=values if kind == "dr" else None,
        edges=EDGES,
    )  # fmt: skip
    for test in found.tests:
        assert test.bound == pytest.approx(bounds[test.mix], abs=1e-8)
    assert found.mix == chosen
    assert np.allclose(found.improvement.policy, (1.0 - chosen) * target + chosen * baseline)


def test_the_rule_accepts_somewhere():
    """Without an acceptance the comparison above would say little: three of these logs end with a candidate."""
    accepted = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        world = garnet(rng, n_states=4, n_actions=2, branching=2, end=0.4, discount=DISCOUNT)
        baseline = mixed_policy(rng, optimal_policy(true_mdp(world), np.ones(2)), 0.1)
        train, safety = split(sample_episodes(world, baseline, 200, rng), (0.5, 0.5), rng)
        rule = SafetyRule(delta=DELTA, zeta=np.zeros(2), comparison="empirical", strict=False)
        accepted += h_opt(train, safety, baseline, preference=[1.0, 1.0], rule=rule, selection="paper").accepted
    assert accepted >= 3


@pytest.mark.parametrize("seed", range(5))
def test_one_threshold_for_all_is_theorem_1(seed):
    rng = np.random.default_rng(seed)
    values = rng.exponential(0.3, size=(40, 1))
    c = float(rng.uniform(0.2, 1.0))
    ours = lower_bound(values, 0.1, method="bernstein", low=0.0, cap=c)[0]
    assert ours == pytest.approx(max(slow_bernstein(values[:, 0].tolist(), [c] * 40, 0.1), 0.0), abs=1e-12)
