"""Hazard margins, by planting the harm in the model and evaluating the policies again."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from bettersafe.certificate.files import certificate_from_json, certificate_json
from bettersafe.certificate.hazard import MOST_PAIRS, RAISED, hazard_margins, hazards_of
from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes
from bettersafe.mdp.values import expected_return, occupancy, policy_values
from bettersafe.methods.s_opt import s_opt
from bettersafe.model import estimate_model
from toy_runs import toy_certificate


@pytest.fixture
def case():
    rng = np.random.default_rng(3)
    world = garnet(rng, n_states=8, n_actions=3)
    baseline = mixed_policy(rng, np.eye(3)[np.zeros(8, dtype=int)], 0.3)
    model = estimate_model(sample_episodes(world, baseline, 300, rng))
    policy = s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy
    return model, policy, baseline


def margins(case, least, delta=0.1):
    model, policy, baseline = case
    v = policy_values(model.mdp, baseline)[0]
    return hazard_margins(
        model,
        policy,
        baseline,
        baseline_v=v,
        worst_reward=model.mdp.reward.min(axis=1),
        least=np.array(least),
        zeta=np.zeros(2),
        delta=delta,
    )


def test_the_size_is_that_of_the_worst_reward(case):
    model, policy, baseline = case
    v = policy_values(model.mdp, baseline)[0]
    one, far = (
        hazard_margins(
            model,
            policy,
            baseline,
            baseline_v=v,
            worst_reward=model.mdp.reward.min(axis=1) - lower,
            least=np.array([0.2, 0.05]),
            zeta=np.zeros(2),
            delta=0.1,
        )
        for lower in (0.0, 50.0)
    )
    for near, wide in zip(one, far, strict=True):
        assert wide.size == pytest.approx(near.size + 50.0)
        assert wide.rate == pytest.approx(near.rate * near.size / wide.size)


def test_harm_at_the_margin_costs_what_the_bound_allows(case):
    model, policy, baseline = case
    mdp = model.mdp
    least = [0.2, 0.05]
    for k, margin in enumerate(margins(case, least)):
        used = [occupancy(mdp, table)[mdp.pair_state] * table.take(mdp.pair_index) for table in (policy, baseline)]
        raised = used[0] - used[1] > RAISED * used[1].sum()
        # the harm is paid per *extra* decision, as a reward, so values of states don't change
        harm = np.where(raised, margin.rate * margin.size, 0.0)
        assert (used[0] - used[1]) @ harm == pytest.approx(least[k])
        assert margin.visits == model.counts[raised].sum()
        assert margin.pairs == np.count_nonzero(raised)
        assert margin.extra == pytest.approx((used[0] - used[1])[raised].sum())
        most = np.argsort(-np.where(raised, used[0] - used[1], 0.0), kind="stable")[: min(MOST_PAIRS, margin.pairs)]
        assert [(pair.state, pair.action, pair.visits) for pair in margin.most] == [
            (str(model.state_labels[mdp.pair_state[i]]), str(model.action_labels[mdp.pair_action[i]]), model.counts[i])
            for i in most
        ]
        assert [pair.extra for pair in margin.most] == pytest.approx((used[0] - used[1])[most])


def test_more_visits_exclude_rarer_harm(case):
    model, policy, baseline = case
    few = margins(case, [0.2, 0.2])
    many = margins((replace(model, counts=model.counts * 10), policy, baseline), [0.2, 0.2])
    for one, other in zip(few, many, strict=True):
        assert one.rate == other.rate
        assert other.excluded < one.excluded
        assert (1.0 - one.excluded) ** one.visits == pytest.approx(0.1)


def test_without_room_or_change_there_is_nothing_to_overturn(case):
    model, _, baseline = case
    assert [margin.rate for margin in margins(case, [-0.1, 0.0])] == [0.0, 0.0]
    assert not margins(case, [-0.1, 0.0])[0].covered
    unchanged = margins((model, baseline, baseline), [0.0, 0.0])
    assert all(np.isinf(margin.rate) and margin.pairs == 0 for margin in unchanged)
    assert np.all(expected_return(model.mdp, baseline) > 0.0)


def test_margins_come_back_from_a_certificate(case):
    given = dict(zip(("gain", "harm"), margins(case, [0.2, 0.05]), strict=True))
    given["harm"] = replace(given["harm"], rate=float("inf"))
    made = toy_certificate(diagnostics={"hazard": {name: margin.to_json() for name, margin in given.items()}})
    document = json.loads(json.dumps(certificate_json(made), allow_nan=False))
    assert hazards_of(certificate_from_json(document, "c.json")) == given
    assert hazards_of(toy_certificate()) == {}
