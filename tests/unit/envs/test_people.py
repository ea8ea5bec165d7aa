"""Worlds of people: their rules, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from bettersafe.envs import people
from bettersafe.envs.people import (
    LOGNORMAL_POINTS,
    headlines,
    hotel_guests,
    lawsuits,
    members,
    prescriptions,
    recovery_ward,
    up_or_down,
)
from bettersafe.envs.tabular import true_mdp
from world_checks import check_outcomes, constant, uniform_log


@pytest.mark.parametrize("make", [prescriptions, hotel_guests, lawsuits, recovery_ward, headlines, members])
def test_outcomes_are_probabilities_before_they_are_normalised(make, monkeypatch):
    check_outcomes(people, make, monkeypatch)


def test_points_are_the_means_between_quantiles_of_a_lognormal():
    value, p = np.array(LOGNORMAL_POINTS).T
    assert (p.sum(), p @ value) == pytest.approx((1.0, 1.0), abs=1e-4)
    edges = norm.ppf(np.clip(np.cumsum([0.0, *p]), 0.0, 1.0)) - 1.2  # E[X; X < e^(σz)] = Φ(z − σ) E[X]
    assert value == pytest.approx(np.diff(norm.cdf(edges)) / p, abs=1e-4)


def test_levels_go_up_and_down_independently():
    assert up_or_down(1, 2, 0.5, 0.2) == pytest.approx(np.array([(2, 0.4), (0, 0.1), (1, 0.5)]))
    assert up_or_down(0, 2, 1.0, 0.0)[0] == (1, 1.0)
    assert [level for level, _ in up_or_down(2, 2, 0.3, 0.3)] == [2, 1, 2]


def test_the_strong_drug_alone_bleeds_and_weak_kidneys_alone():
    for seed in range(3):
        bleeds = true_mdp(prescriptions(seed)).reward[1].reshape(3, 3, 5, 5)
        harmful = np.zeros_like(bleeds, dtype=bool)
        harmful[2, ..., 2] = True
        assert np.all(bleeds[~harmful] == 0.0)
        assert np.all((bleeds[harmful] <= -0.02) & (bleeds[harmful] >= -0.05))
    none, mild, strong, *_ = (constant(prescriptions(0), a) for a in range(5))
    assert strong[0] > mild[0] > none[0]
    log = uniform_log(prescriptions(0), 1000)
    assert np.all(log.terminated[log.rewards[:, 1] < 0.0])
    going = log.next_states >= 0
    assert np.all(log.next_states[going] // 15 >= log.states[going] // 15)  # kidneys do not recover


def test_guests_complain_when_they_leave():
    log = uniform_log(hotel_guests(0), 3000)
    complained = log.rewards[:, 1] < 0.0
    assert 0.005 < complained.sum() / 3000 < 0.1
    assert np.all(log.terminated[complained])
    assert np.diff(log.episode_ptr).max() <= 6
    complaints = true_mdp(hotel_guests(0)).reward[1].reshape(6, 4, 2, 2, 5)
    assert np.all(np.diff(complaints, axis=1) < 0.0)  # the more annoyed, the more often
    assert np.all(complaints[..., 3] < complaints[..., 4])  # insisting is worse than a gift
    going = log.next_states >= 0
    assert np.array_equal(log.next_states[going] // 16, log.states[going] // 16 + 1)


def test_trials_end_lawsuits_and_good_claims_are_lost_more_often():
    world = lawsuits(0)
    paid, lost, _ = true_mdp(world).reward.reshape(3, 4, 4, 2, 5)
    assert np.all(np.diff(lost[..., 4], axis=1) < 0.0)
    assert np.all(lost[:3, ..., :4] == 0.0)
    assert np.all(paid[..., 4] < 0.0)
    log = uniform_log(world, 2000)
    assert np.all(log.terminated[log.actions == 4])
    assert np.all(log.terminated[log.rewards[:, 0] < 0.0])
    cost = -log.rewards[log.rewards[:, 1] < 0.0, 0]
    assert cost.max() > 6.0 * cost.mean()


def test_a_ward_has_three_ends():
    world = recovery_ward(0)
    log = uniform_log(world, 2000)
    ends = log.rewards[:, :3]
    assert np.array_equal(log.terminated, np.any(ends != 0.0, axis=1))
    assert np.all(np.abs(ends[log.terminated]).sum(axis=1) == 1.0)
    assert all(0.02 < share < 0.9 for share in np.abs(ends).sum(axis=0) / 2000)
    cured, deaths, _, days = true_mdp(world).reward.reshape(4, 6, 3, 2, 5)
    assert np.all(np.diff(cured, axis=0) < 0.0)
    assert np.all(np.diff(deaths, axis=0) < 0.0)
    assert np.all(np.diff(deaths, axis=1) < 0.0)
    assert np.allclose(days, -0.1)


def test_headlines_are_nearly_equally_good():
    world = headlines(0)
    clicks, minutes, adverts = true_mdp(world).reward.reshape(3, 32, 12)
    assert np.all(clicks.std(axis=1) < 0.12)
    assert np.all(np.ptp(clicks, axis=1) > 0.0)
    assert np.corrcoef(clicks.ravel(), minutes.ravel())[0, 1] > 0.2
    assert np.all(adverts > 0.0)
    log = uniform_log(world, 500)
    assert set(log.rewards[:, 0]) == {0.0, 1.0}
    assert np.array_equal(log.rewards[:, 1] > 0.0, log.rewards[:, 0] > 0.0)


def test_members_who_hardly_come_leave():
    world = members(0)
    leaves = 1.0 - np.asarray(true_mdp(world).transition.sum(axis=1)).reshape(5, 4, 3, 5)
    assert np.all(np.diff(leaves, axis=0) < 0.0)
    assert np.all(leaves[:, :, 1] < leaves[:, :, 0])
    assert np.all(leaves[:, :, 2] > leaves[:, :, 0])
    fees = true_mdp(world).reward[0].reshape(5, 4, 3, 5)
    assert np.allclose(fees, np.array([1.0, 0.6, 1.0])[:, None])
    none, _, call, _, course = (constant(world, a) for a in range(5))
    assert course[0] > none[0]
    assert call[1] < none[1] < 0.0
