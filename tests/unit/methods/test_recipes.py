"""Recipes of candidates: constraints hold in the mean model, ζ is used, caution is caution."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.mdp.values import expected_return, policy_values
from bettersafe.methods.recipes import CandidateGrid, full_margin, make_recipes
from bettersafe.posterior.habits import informed
from bettersafe.posterior.models import mean_model, one_step_sd
from bettersafe.posterior.priors import PriorSet
from posterior_cases import random_case

PREFERENCE = np.array([1.0, 0.0])


def recipes(case, **more):
    """Recipes by name, and the mean model."""
    o, model, baseline = case
    mean = mean_model(informed(o, PriorSet(), baseline), model)
    sd = one_step_sd(o, model.mdp, policy_values(mean.mdp, baseline)[0])
    settings = {"mean_model": mean, "sd": sd, "gain_sd": lambda policy: np.array([0.05, 0.05]), "delta": 0.1}
    return dict(make_recipes(model, baseline, PREFERENCE, **{**settings, **more})), mean.mdp


def test_constraints_hold_in_the_mean_model():
    case = random_case(2, tied=False)
    made, mdp = recipes(case)
    baseline = case[2]
    gain = {name: expected_return(mdp, policy) - expected_return(mdp, baseline) for name, policy in made.items()}
    assert np.all(gain["global, z = 0"] >= -1e-4)
    assert np.all(gain["well-tried, n = 10"] >= -1e-4)
    width = full_margin(0.1, 2) * 0.05
    margin = gain["global, z = 0, margin 1"]
    assert np.all(margin >= width - 1e-4) or np.array_equal(made["global, z = 0, margin 1"], baseline)
    before, after = (policy_values(mdp, each)[0] for each in (baseline, made["local, z = 0"]))
    assert np.all(after >= before - 1e-6)  # in every state
    assert gain["global, z = 0"][0] >= max(each[0] for each in gain.values() if each[1] >= 0.0) - 1e-4
    rows = np.array(list(made.values()))
    assert rows.sum(axis=2) == pytest.approx(np.ones(rows.shape[:2]))


def test_an_accepted_loss_finds_a_better_policy():
    more = []
    for seed in range(5):
        case = random_case(seed, tied=False, quality=0.9)
        strict, mdp = recipes(case)
        lenient, _ = recipes(case, zeta=np.array([0.0, 0.3]))
        one, other = (expected_return(mdp, each["global, z = 0"]) for each in (strict, lenient))
        more.append(other[0] - one[0])
        assert other[1] >= expected_return(mdp, case[2])[1] - 0.3 - 1e-4
    assert min(more) > -1e-4
    assert max(more) > 1e-3


def test_different_discounts_have_local_candidates_and_mixtures():
    case = random_case(2, discounts=(0.95, 0.6))
    made, _ = recipes(case, grid=CandidateGrid(local_cautions=(0.0,), mixes=(0.3,), epsilons=(1.0,)))
    assert list(made) == ["local, z = 0", "local, z = 0, 30 % baseline", "S-OPT ε = 1"]
    assert made["local, z = 0, 30 % baseline"] == pytest.approx(0.7 * made["local, z = 0"] + 0.3 * case[2])


def test_the_margin_of_the_risk():
    assert full_margin(0.1, 1) == pytest.approx(1.2816 + 0.5, abs=1e-3)
    assert full_margin(0.1, 2) == pytest.approx(1.6449 + 0.5, abs=1e-3)
