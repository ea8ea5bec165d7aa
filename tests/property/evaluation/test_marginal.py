"""Terms of marginalised estimators against sums over rows and steps."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes
from bettersafe.evaluation.evaluate import evaluate_many, evaluate_policy
from bettersafe.evaluation.marginal import following, marginal_terms
from bettersafe.logs.counts import count
from bettersafe.model import estimate_model, model_return
from oracles import slow_marginal_terms


def a_case(seed, *, cut, horizon=None):
    rng = np.random.default_rng(seed)
    world = garnet(rng, n_states=4, n_actions=2, branching=2, end=0.2, discount=0.8)
    policy, baseline = (rng.dirichlet(np.full(2, 3.0), size=4) for _ in range(2))
    data = sample_episodes(world, baseline, 60, rng, horizon=cut)
    model = estimate_model(
        sample_episodes(world, baseline, 200, rng), unseen="baseline", baseline=baseline, horizon=horizon
    )
    assert model.mdp.n_pairs == 8
    return policy, baseline, data, model


def dense(model):
    mdp = model.mdp
    return mdp.transition.toarray().reshape(4, 2, 4), mdp.reward.reshape(2, 4, 2)


def as_lists(data):
    """Episodes as lists of rows (x, a, rewards, x'), with None after an end."""
    return [
        [
            (data.states[t], data.actions[t], data.rewards[t], None if data.terminated[t] else data.next_states[t])
            for t in range(*data.episode_ptr[i : i + 2])
        ]
        for i in range(data.n_episodes)
    ]


@pytest.mark.parametrize("own_model", [False, True])
@pytest.mark.parametrize(("cut", "horizon"), [(None, None), (3, None), (None, 5), (3, 5), (8, 4)])
def test_against_sums_over_rows_and_steps(cut, horizon, own_model):
    for seed in range(3):
        policy, baseline, data, model = a_case(seed, cut=cut, horizon=horizon)
        if seed == 2:  # the next state after the last row of a truncated episode is not known
            last = data.episode_ptr[1:] - 1
            following_states = data.next_states.copy()
            following_states[last[~data.terminated[last]]] = -1
            object.__setattr__(data, "next_states", following_states)
        found = marginal_terms(
            data,
            policy,
            baseline,
            (following(model, policy, baseline),),
            np.zeros(60, dtype=np.int64),
            own_model=own_model,
        )
        transition, reward = dense(model)
        expected = slow_marginal_terms(
            transition, reward, model.discount, model.mdp.initial, policy, baseline, as_lists(data),
            steps=horizon, own_model=own_model,
        )  # fmt: skip
        assert np.allclose(found.terms, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("horizon", [None, 6])
def test_mis_is_the_return_in_the_model_of_the_log(horizon):
    policy, baseline, data, _ = a_case(5, cut=None)
    own = estimate_model(count(data), unseen="baseline", baseline=baseline, horizon=horizon)
    found = evaluate_policy(data, policy, baseline, estimator="mis", horizon=horizon)
    assert np.allclose(found.value, model_return(own, policy, baseline), rtol=1e-12)


def test_drl_is_the_same_alone_with_folds_and_beside_a_model():
    policy, baseline, data, model = a_case(6, cut=4)
    alone = evaluate_policy(data, policy, baseline, estimator="drl", rng=3)
    for settings in ({"folds": 5}, {"model": model}):
        beside = evaluate_many(data, policy, baseline, rng=3, **settings)["drl"]
        assert np.array_equal(beside.per_trajectory, alone.per_trajectory)


def test_equal_policies_differ_by_nothing():
    _, baseline, data, _ = a_case(7, cut=4)
    for estimator in ("mis", "drl"):
        found = evaluate_policy(data, baseline, baseline, estimator=estimator)
        assert 0.0 < found.ess <= 60.0
        assert found.complete
        assert found.unsupported_mass == 0.0


def test_decisions_without_rows_are_missing():
    policy, baseline, data, _ = a_case(8, cut=4)
    baseline = np.where(np.arange(2) == 1, 1e-9, 1.0 - 1e-9) * np.ones((4, 1))
    keep = data.actions == 0
    only = [i for i in range(60) if np.all(keep[slice(*data.episode_ptr[i : i + 2])])]
    from bettersafe.logs.dataset import take_episodes

    found = evaluate_policy(take_episodes(data, np.array(only)), policy, baseline, estimator="drl")
    assert found.unsupported_mass > 0.1
    assert "never seen" in found.trust
