"""Models of the value for doubly robust estimates: each is used only on episodes that it did not see."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.errors import ParameterError
from bettersafe.evaluation.evaluate import evaluate_many, evaluate_policy
from bettersafe.logs.dataset import take_episodes
from bettersafe.mdp.values import expected_return
from bettersafe.model import estimate_model
from evaluation_cases import two_state_case


def test_cross_fitting_uses_each_model_only_on_the_fold_that_it_did_not_see():
    """By hand: fold i's terms from a model of the others, put together; dr is then as if evaluated fold by fold."""
    _world, baseline, target, data = two_state_case(3, episodes=60)
    folds = 4
    together = evaluate_policy(data, target, baseline, estimator="dr", folds=folds, rng=np.random.default_rng(5))
    parts = np.array_split(np.random.default_rng(5).permutation(data.n_episodes), folds)
    expected = np.empty_like(together.per_trajectory)
    for part in parts:
        fold = np.sort(part)
        others = np.setdiff1d(np.arange(data.n_episodes), fold)
        model = estimate_model(take_episodes(data, others), unseen="baseline", baseline=baseline)
        one = evaluate_policy(take_episodes(data, fold), target, baseline, estimator="dr", model=model)
        expected[fold] = one.per_trajectory
    assert together.per_trajectory == pytest.approx(expected)
    again = evaluate_many(data, target, baseline, folds=folds, rng=np.random.default_rng(5))
    assert np.array_equal(again["dr"].per_trajectory, together.per_trajectory)
    # wdr of the baseline itself: weights are 1, so it is dr
    same = evaluate_many(data, baseline, baseline, folds=folds)
    assert same["wdr"].value == pytest.approx(same["dr"].value)
    for settings, message in (
        ({"folds": 1}, "at least 2"),
        ({"folds": 61}, "at most the number of episodes, 60"),
        ({"folds": 3, "model": model}, "not both"),
    ):
        with pytest.raises(ParameterError, match=message):
            evaluate_policy(data, target, baseline, estimator="dr", **settings)


def test_cross_fitted_dr_is_unbiased():
    world, baseline, target, _ = two_state_case(4, episodes=2)
    truth = expected_return(true_mdp(world), target)
    rng = np.random.default_rng(0)
    values = np.array(
        [
            evaluate_policy(
                sample_episodes(world, baseline, 40, rng), target, baseline, estimator="dr", folds=4, rng=rng
            ).value
            for _ in range(300)
        ]
    )
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    assert np.all(np.abs(values.mean(axis=0) - truth) < 5.0 * error)  # 5 standard errors: once in a million
