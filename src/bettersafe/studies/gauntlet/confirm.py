"""Kinds that no rule was chosen by: other constructions, to be looked at once, at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.benchmarks import cliff_walking, deep_sea_treasure, frozen_lake, river_swim, small_taxi
from bettersafe.envs.gridworld import quality_baseline
from bettersafe.envs.hazards import arms, heavy_tails, late_harm, layered, one_way_door
from bettersafe.envs.operations import admission_queue, battery, clinic, field, machine, patrol, two_lines, web_shop
from bettersafe.envs.tabular import true_mdp
from bettersafe.mdp.constrained import cmdp_optimum
from bettersafe.mdp.values import expected_return
from bettersafe.studies.gauntlet.instance import Instance, Kind, mixture_policy
from bettersafe.studies.gauntlet.practices import best, nearly_deterministic, of_quality, plain, wary

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST = np.array([1.0, 0.0])
"""λ: the first of two objectives is pursued, the second protected."""


def _door(rng: np.random.Generator) -> Instance:
    hazard = one_way_door(rng)
    baseline = wary(of_quality(rng, hazard.world, (1.0, 1.0), 0.3), hazard.harmful, 0.3)
    return Instance(world=hazard.world, baseline=baseline, preference=FIRST)


def _late(rng: np.random.Generator) -> Instance:
    world = late_harm(rng).world
    return Instance(world=world, baseline=of_quality(rng, world, (1.0, 20.0), 0.5), preference=FIRST)


def _lake(rng: np.random.Generator) -> Instance:
    world = frozen_lake(rng, size=5, hole_prob=0.15)
    return Instance(world=world, baseline=quality_baseline(best(world, (1.0, 0.5)), 0.7), preference=FIRST)


def _cliff(rng: np.random.Generator) -> Instance:
    world = cliff_walking(rng)
    return Instance(world=world, baseline=quality_baseline(best(world, (1.0, 20.0)), 0.7), preference=FIRST)


def _taxi(rng: np.random.Generator) -> Instance:
    world = small_taxi(rng)
    return Instance(world=world, baseline=quality_baseline(best(world, (1.0, 1.0)), 0.4), preference=FIRST)


def _clinic_practices(rng: np.random.Generator) -> Instance:
    """Three doctors, of whom nobody knows who treated whom."""
    world = clinic(rng)
    doctors = tuple(of_quality(rng, world, (1.0, float(weight)), 0.6) for weight in (0.05, 0.3, 1.0))
    return Instance(
        world=world,
        baseline=mixture_policy(world, doctors),
        preference=FIRST,
        baseline_known=False,
        behaviours=doctors,
    )


def _protocol(rng: np.random.Generator) -> Instance:
    """A clinic with a protocol that staff nearly always follow; the baseline is estimated."""
    world = clinic(rng, severities=10, phases=2, n_actions=3)
    baseline = nearly_deterministic(rng, best(world, (1.0, float(rng.uniform(0.1, 0.5)))), 0.15)
    return Instance(world=world, baseline=baseline, preference=FIRST, baseline_known=False)


def _hidden_severity(rng: np.random.Generator) -> Instance:
    """Severity is logged in two groups; staff see all of it and treat by it, so that doses look better or worse than they are."""
    world = clinic(rng, phases=2)
    severity, phase = np.divmod(np.arange(world.n_states), 2)
    groups = (severity >= 4) * 2 + phase
    dose = np.clip(np.rint(severity / 7.0 * 3.0).astype(int), 0, 3)
    staff = nearly_deterministic(rng, np.eye(4)[dose], 0.3)
    return Instance(
        world=world,
        baseline=mixture_policy(world, (staff,), groups),
        preference=FIRST,
        baseline_known=False,
        aggregate=groups,
        behaviours=(staff,),
        unlearnable=True,
    )


def _sum_of_lines(rng: np.random.Generator) -> Instance:
    """Of two lines only the number of customers in both is logged."""
    world = two_lines(rng)
    first, second = np.divmod(np.arange(world.n_states), 7)
    groups = first + second
    baseline = rng.dirichlet(np.array([4.0, 2.0, 2.0]), size=int(groups.max()) + 1)
    return Instance(world=world, baseline=baseline, preference=FIRST, aggregate=groups)


def _field(rng: np.random.Generator) -> Instance:
    world = field(rng)
    baseline = of_quality(rng, world, (1.0, 0.2), 0.3)
    return Instance(world=world, baseline=baseline, preference=FIRST, from_counts=True)


def _settled(rng: np.random.Generator) -> Instance:
    """The practice is the constrained optimum, but for 5 % of random actions: hardly anything is left to be gained."""
    world = admission_queue(rng)
    truth = true_mdp(world)
    middling = expected_return(truth, of_quality(rng, world, (1.0, 1.0, 1.0), 0.8))
    optimum = cmdp_optimum(truth, middling[1:])
    return Instance(
        world=world, baseline=nearly_deterministic(rng, optimum.policy, 0.05), preference=np.array([1.0, 0.0, 0.0])
    )


def _discounts(rng: np.random.Generator) -> Instance:
    world = layered(rng, layers=8, width=5, discount=(0.99, 0.8))
    same = replace(world, objectives=tuple(replace(objective, discount=0.95) for objective in world.objectives))
    return Instance(world=world, baseline=of_quality(rng, same, (1.0, 1.0), 0.3), preference=FIRST)


def _kind(
    name: str, title: str, family: str, sizes: tuple[int, ...], make: Callable[[np.random.Generator], Instance]
) -> Kind:
    return Kind(name=name, title=title, half="confirm", family=family, sizes=sizes, make=make)


CONFIRM = (
    _kind("door", "rarely through a door into a backwater without a way back", "hazard", (30, 150), _door),
    _kind("late-harm", "exposure adds up and does harm later", "hazard", (30, 150), _late),
    _kind("machine", "machine replacement, rare breakdowns", "hazard", (30, 150), plain(machine, (1.0, 3.0), 0.5)),
    _kind("hidden-severity", "staff treat by a severity that is not logged", "hazard", (50, 200), _hidden_severity),
    _kind("claims", "heavy-tailed rewards (claims)", "rewards", (50, 300), plain(heavy_tails, (1.0, 1.0), 0.4)),
    _kind("shop", "a web shop with a rare complaint, 1 in 200", "rewards", (200, 2000), plain(web_shop, (1.0, 100.0), 0.3)),
    _kind("field", "irrigation with noisy harvests, counts only", "rewards", (50, 300), _field),
    _kind("arms", "one step, then the end (a bandit)", "rewards", (200, 2000), plain(arms, (1.0, 1.0), 0.3)),
    _kind("thin", "300 states, seen thinly", "visits", (50, 200), plain(lambda rng: layered(rng, layers=15, width=20), (1.0, 1.0), 0.3)),
    _kind("five", "five episodes", "visits", (5, 10), plain(lambda rng: layered(rng, layers=8, width=3, n_actions=3), (1.0, 1.0), 0.2)),
    _kind("doctors", "three doctors, none of them known", "baseline", (50, 200), _clinic_practices),
    _kind("protocol", "a protocol that is nearly always followed, estimated", "baseline", (50, 200), _protocol),
    _kind("settled", "a practice with hardly anything left to be gained", "baseline", (20, 100), _settled),
    _kind("opposed", "objectives that oppose each other", "baseline", (20, 100), plain(lambda rng: layered(rng, opposed=True), (1.0, 1.0), 0.0)),
    _kind("discounts", "different discounts", "model", (30, 150), _discounts),
    _kind("cut-off", "episodes cut off by a horizon (a battery)", "model", (20, 100), plain(battery, (1.0, 1.0), 0.4, horizon=30)),
    _kind("two-lines", "aggregated states (two lines, their sum logged)", "model", (30, 150), _sum_of_lines),
    _kind("patrol", "17 objectives (a technician who serves 16 areas)", "model", (30, 150), plain(patrol, (1.0, *(1.0,) * 16), 0.0)),
    _kind("frozen-lake", "FrozenLake", "benchmark", (50, 300), _lake),
    _kind("cliff", "CliffWalking", "benchmark", (20, 100), _cliff),
    _kind("taxi", "Taxi, small", "benchmark", (100, 500), _taxi),
    _kind("treasure", "deep sea treasure", "benchmark", (30, 150), plain(deep_sea_treasure, (1.0, 2.0), 0.3)),
    _kind("queue", "a queue with admission control", "benchmark", (20, 100), plain(admission_queue, (1.0, 1.0, 1.0), 0.4)),
    _kind("river-swim", "RiverSwim", "benchmark", (20, 100), plain(river_swim, (1.0, 0.5), 0.3)),
)  # fmt: skip
