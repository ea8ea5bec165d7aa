"""Ways with rare harm: it is rare, and lies where it pays to go."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs.routes import icy_passes, mined_roads, rope_bridges
from bettersafe.envs.tabular import true_mdp
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.mdp.values import expected_return

HAZARDS = {"mines": mined_roads, "passes": icy_passes, "bridges": rope_bridges}


def chance_of(hazard, below):
    """Probability that a step pays less than ``below`` on the harm, shape [X, A]."""
    world = hazard.world
    of_pair = np.repeat(np.arange(world.pair_state.size), np.diff(world.outcome.indptr))
    struck = world.outcome_reward[hazard.harm] < below
    return np.bincount(of_pair[struck], world.outcome.data[struck], of_pair.max() + 1).reshape(hazard.harmful.shape)


@pytest.mark.parametrize(
    ("name", "below", "most"), [("mines", -0.5, 0.12), ("passes", -5.0, 0.06), ("bridges", -0.5, 0.12)]
)
def test_harmful_pairs_do_harm_and_only_they(name, below, most):
    for seed in range(4):
        hazard = HAZARDS[name](seed)
        chance = chance_of(hazard, below)
        assert np.array_equal(chance > 0.0, hazard.harmful)
        assert 0.01 < chance.max() <= most
        assert 0.0 < hazard.harmful.mean() < 0.5


@pytest.mark.parametrize("name", HAZARDS)
def test_who_avoids_all_harm_gains_less(name):
    for seed in range(4):
        hazard = HAZARDS[name](seed)
        truth = true_mdp(hazard.world)
        d = truth.n_objectives
        timid, daring = (np.eye(1, d)[0] + weight * np.eye(d)[hazard.harm] for weight in (1e3, 0.0))
        safe, greedy = (expected_return(truth, optimal_policy(truth, weights)) for weights in (timid, daring))
        assert greedy[0] > safe[0]
        assert greedy[hazard.harm] < safe[hazard.harm] - 0.01


def test_every_town_can_be_reached_by_the_ring_road():
    world = mined_roads(0).world
    ring = np.argmax(world.outcome.toarray().reshape(24, 4, -1)[:, 0, :24], axis=1)
    assert np.array_equal(ring, (np.arange(24) + 1) % 24)


def test_a_lorry_always_arrives():
    world = icy_passes(1).world
    table = world.outcome.toarray().reshape(12, 3, 3, -1)
    assert table[-1, :, :, world.n_states] == pytest.approx(0.9)
    assert np.all(table[:-1, :, :, world.n_states] == 0.0)


def test_goods_gain_only_by_being_carried():
    """Who buys and sells on one island has nothing of it, and one unit is always safe on a bridge."""
    world = rope_bridges(2).world
    truth = true_mdp(world)
    stay = np.full((40, 4), [0.5, 0.5, 0.0, 0.0])
    assert expected_return(truth, stay)[0] <= 0.0
    careful = np.zeros((40, 4))
    careful[:, 2] = 1.0  # over the bridges with one unit, from the first island to the last
    careful[0], careful[36] = (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0)
    gained = expected_return(truth, careful)
    assert gained[0] > 0.0
    assert gained[1:] == pytest.approx(0.0)
