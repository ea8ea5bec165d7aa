"""Models for candidates: the posterior mean against many draws, and frequencies against the estimated model."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.mdp.values import policy_values
from bettersafe.posterior.draws import draw_process
from bettersafe.posterior.habits import informed
from bettersafe.posterior.models import frequency_model, mean_model, one_step_sd
from bettersafe.posterior.priors import PriorSet
from posterior_cases import random_case


@pytest.mark.parametrize("tied", [True, False])
def test_the_mean_model_is_the_mean_of_many_draws(tied):
    o, model, baseline = random_case(2, episodes=15, tied=tied)
    given = informed(o, PriorSet(), baseline)
    mean = mean_model(given, model).mdp
    rng = np.random.default_rng(0)
    draws = [draw_process(given, rng) for _ in range(1500)]
    place = np.searchsorted(o.pair_index, mean.pair_index)
    transition = np.mean([draw.transition.toarray()[place] for draw in draws], axis=0)
    reward = np.array([draw.reward[:, place] for draw in draws])
    assert mean.transition.toarray() == pytest.approx(transition, abs=0.04)
    error = reward.std(axis=0) / np.sqrt(len(draws))
    assert np.all(np.abs(reward.mean(axis=0) - mean.reward) <= 4.5 * error + 1e-9)


@pytest.mark.parametrize("tied", [True, False])
def test_frequencies_of_the_whole_log_are_the_estimated_model(tied):
    o, model, baseline = random_case(4, episodes=30, tied=tied)
    v = policy_values(model.mdp, baseline)[0]
    found = frequency_model(o, model, v)
    assert found.mdp.unseen_value == pytest.approx(v)  # a part of the log may lack pairs that the log has
    assert np.array_equal(found.mdp.pair_index, model.mdp.pair_index)
    assert found.mdp.transition.toarray() == pytest.approx(model.mdp.transition.toarray())
    assert found.mdp.reward == pytest.approx(model.mdp.reward)
    assert found.mdp.initial == pytest.approx(model.mdp.initial)
    assert np.array_equal(found.counts, model.counts)
    assert found.error == pytest.approx(model.error)


def test_one_step_uncertainty_falls_with_visits():
    few, model, _ = random_case(5, episodes=10)
    v = np.random.default_rng(0).normal(size=(2, 6))
    sd = one_step_sd(few, model.mdp, v)
    assert sd.shape == (2, model.mdp.n_pairs)
    many, larger, _ = random_case(5, episodes=1000)
    assert one_step_sd(many, larger.mdp, v).mean() < 0.3 * sd.mean()
