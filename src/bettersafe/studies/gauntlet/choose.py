"""Kinds by which rules may be chosen: those in which methods are known to fail, and those of the earlier studies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.benchmarks import resource_gathering, wet_chicken
from bettersafe.envs.gridworld import HORIZON, feasible_gridworld, quality_baseline
from bettersafe.envs.hazards import catastrophe, deadly_actions, rare_cost, rare_rewards
from bettersafe.envs.operations import cold_store, inventory, warehouse
from bettersafe.envs.random_mdp import garnet
from bettersafe.studies.gauntlet.instance import Instance, Kind
from bettersafe.studies.gauntlet.practices import best, nearly_deterministic, of_quality, runner_up, wary

if TYPE_CHECKING:
    from collections.abc import Callable

    from bettersafe.envs.tabular import World
    from bettersafe.typing import Floats

FIRST = np.array([1.0, 0.0])
"""λ: the first of two objectives is pursued, the second protected."""


def _catastrophe(rng: np.random.Generator, *, ends: bool) -> Instance:
    hazard = catastrophe(rng, ends=ends)
    baseline = wary(of_quality(rng, hazard.world, (1.0, 1.0), 0.2), hazard.harmful, 0.5)
    return Instance(world=hazard.world, baseline=baseline, preference=FIRST)


def _unseen(rng: np.random.Generator) -> Instance:
    """A catastrophe of 1 in 10,000 steps that costs 5,000: hardly any log has seen one, and it outweighs all else."""
    hazard = catastrophe(rng, ends=True, chance=(0.0001, 0.0001), cost=5000.0)
    baseline = wary(of_quality(rng, hazard.world, (1.0, 1.0), 0.2), hazard.harmful, 0.3)
    return Instance(world=hazard.world, baseline=baseline, preference=FIRST, unlearnable=True)


def _hazards(rng: np.random.Generator) -> Instance:
    hazard = resource_gathering(rng)
    baseline = wary(quality_baseline(best(hazard.world, (3.0, 1.0, 1.0)), 0.4), hazard.harmful, 0.25)
    return Instance(world=hazard.world, baseline=baseline, preference=np.array([0.0, 1.0, 1.0]))


def _deadly(rng: np.random.Generator) -> Instance:
    hazard = deadly_actions(rng)
    baseline = wary(of_quality(rng, hazard.world, (1.0, 5.0), 0.3), hazard.harmful, 0.1)
    return Instance(world=hazard.world, baseline=baseline, preference=FIRST)


def _rare_rewards(rng: np.random.Generator, *, practice: str) -> Instance:
    world = rare_rewards(rng)
    if practice == "runner-up":
        baseline = runner_up(rng, world, (1.0, 1.0), 0.7)
    else:
        baseline = of_quality(rng, world, (1.0, 1.0), {"good": 0.8, "weak": 0.0}[practice])
    return Instance(world=world, baseline=baseline, preference=FIRST)


def _rare_cost(rng: np.random.Generator) -> Instance:
    world = rare_cost(rng)
    return Instance(world=world, baseline=of_quality(rng, world, (0.5, 1.0), 0.3), preference=FIRST)


def _inventory(rng: np.random.Generator) -> Instance:
    world = inventory(rng)
    return Instance(world=world, baseline=of_quality(rng, world, (1.0, 0.5), 0.3), preference=FIRST)


def _warehouse(rng: np.random.Generator, *, from_counts: bool) -> Instance:
    world = warehouse(rng)
    baseline = of_quality(rng, world, (1.0, 2.0), 0.4)
    return Instance(world=world, baseline=baseline, preference=FIRST, from_counts=from_counts)


def _cold_store(rng: np.random.Generator) -> Instance:
    """Two temperatures are one logged state, and the wear of the compressor is not logged; quality is pursued, energy protected."""
    world = cold_store(rng)
    groups = np.arange(world.n_states) // 4 // 2
    shared = rng.dirichlet(np.full(3, 2.0), size=int(groups.max()) + 1)
    return Instance(world=world, baseline=shared, preference=np.array([0.0, 1.0]), aggregate=groups)


def _in_garnet(make: Callable[[np.random.Generator, World], Floats]) -> Callable[[np.random.Generator], Instance]:
    def instance(rng: np.random.Generator) -> Instance:
        world = garnet(rng)
        return Instance(world=world, baseline=make(rng, world), preference=FIRST)

    return instance


def _ends_differ(rng: np.random.Generator) -> Instance:
    world = garnet(rng, end=rng.beta(0.5, 9.5, size=120))
    return Instance(world=world, baseline=of_quality(rng, world, (1.0, 1.0), 0.9), preference=FIRST)


def _estimated(rng: np.random.Generator) -> Instance:
    world = garnet(rng, n_states=20)
    baseline = of_quality(rng, world, (1.0, 1.0), 0.6)
    return Instance(world=world, baseline=baseline, preference=FIRST, baseline_known=False)


def _never_varies(rng: np.random.Generator) -> Instance:
    """The third objective pays the same in every step, 0 or −1, and no action changes how long an episode is."""
    world = garnet(rng, n_objectives=3)
    reward = world.outcome_reward.copy()
    reward[2] = -float(rng.integers(2))
    world = replace(world, outcome_reward=reward)
    baseline = of_quality(rng, world, (1.0, 1.0, 0.0), 0.3)
    return Instance(world=world, baseline=baseline, preference=np.array([1.0, 0.0, 0.0]))


def _ten_objectives(rng: np.random.Generator) -> Instance:
    world = garnet(rng, n_objectives=10)
    baseline = of_quality(rng, world, np.ones(10).tolist(), 0.0)
    return Instance(world=world, baseline=baseline, preference=np.eye(1, 10)[0])


def _gridworld(rng: np.random.Generator) -> Instance:
    drawn, optimum, _ = feasible_gridworld(rng)
    baseline = quality_baseline(optimum.policy, float(rng.choice([0.1, 0.4, 0.7, 0.9])))
    return Instance(world=drawn.world, baseline=baseline, preference=FIRST, horizon=HORIZON)


def _wet_chicken(rng: np.random.Generator) -> Instance:
    world = wet_chicken(rng)
    return Instance(world=world, baseline=of_quality(rng, world, (1.0, 2.0), 0.4), preference=FIRST)


def _kind(
    name: str, title: str, family: str, sizes: tuple[int, ...], make: Callable[[np.random.Generator], Instance]
) -> Kind:
    return Kind(name=name, title=title, half="choose", family=family, sizes=sizes, make=make)


CHOOSE = (
    _kind("catastrophe", "a well-paid action with a rare catastrophe, which ends the episode", "hazard", (10, 50, 200), lambda rng: _catastrophe(rng, ends=True)),
    _kind("pit", "a well-paid action that rarely leads into a pit", "hazard", (10, 50, 200), lambda rng: _catastrophe(rng, ends=False)),
    _kind("hazards", "sparse hazards that guard what is to be gained (resource gathering)", "hazard", (100, 400), _hazards),
    _kind("deadly", "rare deadly actions", "hazard", (20, 100), _deadly),
    _kind("unseen", "a catastrophe that the log has hardly ever seen", "hazard", (20, 100), _unseen),
    _kind("rewards-good", "rare large rewards, good baseline", "rewards", (100, 400), lambda rng: _rare_rewards(rng, practice="good")),
    _kind("rewards-weak", "rare large rewards, weak baseline", "rewards", (100, 400), lambda rng: _rare_rewards(rng, practice="weak")),
    _kind("rewards-second", "rare large rewards, runner-up baseline", "rewards", (100, 400), lambda rng: _rare_rewards(rng, practice="runner-up")),
    _kind("warehouse", "a warehouse with noisy rewards", "rewards", (100, 900), lambda rng: _warehouse(rng, from_counts=False)),
    _kind("warehouse-counts", "the same warehouse, counts only", "rewards", (100, 900), lambda rng: _warehouse(rng, from_counts=True)),
    _kind("cost-7", "a yes/no cost, 7 in 100", "rewards", (100, 1000), _rare_cost),
    _kind("inventory", "many actions and few visits (inventory, 20 actions)", "visits", (20, 100), _inventory),
    _kind("second", "the runner-up action is nearly as good", "visits", (20, 100), _in_garnet(lambda rng, world: runner_up(rng, world, (1.0, 1.0), 0.7))),
    _kind("garnet-weak", "Garnets, weak baseline", "visits", (20, 100, 400), _in_garnet(lambda rng, world: of_quality(rng, world, (1.0, 1.0), 0.0))),
    _kind("garnet-good", "Garnets, near-optimal baseline", "baseline", (20, 100, 400), _in_garnet(lambda rng, world: of_quality(rng, world, (1.0, 1.0), 0.9))),
    _kind("garnet-ends", "Garnets, near-optimal baseline, ends differ", "baseline", (20, 100), _ends_differ),
    _kind("estimated", "the baseline is estimated from the log", "baseline", (20, 100), _estimated),
    _kind("narrow", "a near-deterministic baseline", "baseline", (20, 100), _in_garnet(lambda rng, world: nearly_deterministic(rng, best(world, (0.3, 1.0)), 0.05))),
    _kind("cold-store", "aggregated states (a cold store)", "model", (100, 1000), _cold_store),
    _kind("constant", "an objective that never varies", "model", (20, 100), _never_varies),
    _kind("ten", "ten objectives", "model", (100, 400), _ten_objectives),
    _kind("gridworld", "the paper's gridworlds", "benchmark", (10, 50), _gridworld),
    _kind("wet-chicken", "wet chicken", "benchmark", (20, 100), _wet_chicken),
)  # fmt: skip
