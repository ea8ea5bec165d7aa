"""Kinds for rules that are chosen after the other three sets have been looked at, written before any method ran on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.benchmarks import mountain_car
from bettersafe.envs.city import car_park, debts, ferry, market_cart, tram_line, triage_desk
from bettersafe.envs.works import crop_rotation, greenhouse, kiln, long_building, pipeline
from bettersafe.studies.gauntlet.instance import Instance, Kind, mixture_policy
from bettersafe.studies.gauntlet.practices import graded, nearly_deterministic, plain

if TYPE_CHECKING:
    from collections.abc import Callable

LADDER = (
    (0.55, 0.30, 0.05, 0.00, 0.10),
    (0.20, 0.55, 0.15, 0.02, 0.08),
    (0.10, 0.40, 0.35, 0.07, 0.08),
    (0.10, 0.20, 0.45, 0.15, 0.10),
    (0.15, 0.15, 0.40, 0.15, 0.15),
    (0.30, 0.10, 0.25, 0.10, 0.25),
)
"""How often the office waits, writes, calls, visits or offers a rebate, by months overdue."""


def _stages(rng: np.random.Generator) -> Instance:
    """The office drops by the promise, licenses late, and makes small trials more often than large ones."""
    world = pipeline(rng)
    stage, grade = np.divmod(np.arange(world.n_states), 4)
    drop, sell = 0.15 * (grade < 2) + 0.05, 0.05 + 0.07 * stage
    small = (1.0 - drop - sell) * rng.uniform(0.5, 0.9)
    baseline = np.column_stack([drop, small, 1.0 - drop - sell - small, sell])
    return Instance(world=world, baseline=baseline, preference=np.array([1.0, 0.0]))


def _usual_round(rng: np.random.Generator) -> Instance:
    """The cart stays a while, then goes to a place that it likes, on all days alike."""
    world = market_cart(rng)
    stays, likes = rng.uniform(0.3, 0.6, size=8), rng.dirichlet(np.full(3, 1.0), size=8)
    table = np.column_stack([stays, (1.0 - stays)[:, None] * likes])
    return Instance(world=world, baseline=np.tile(table, (12, 1)), preference=np.array([1.0, 0.0]))


def _by_case(rng: np.random.Generator) -> Instance:
    """The desk has habits by case, whatever the seniors' load is."""
    world = triage_desk(rng)
    habits = rng.dirichlet(np.array([1.0, 2.0, 2.0, 1.0]), size=60)
    return Instance(world=world, baseline=np.repeat(habits, 3, axis=0), preference=np.array([1.0, 0.0, 0.0]))


def _uniform(rng: np.random.Generator) -> Instance:
    """All actions are tried alike."""
    world = greenhouse(rng)
    baseline = np.full((world.n_states, world.n_actions), 1.0 / world.n_actions)
    return Instance(world=world, baseline=baseline, preference=np.array([1.0, 0.0, 0.0]))


def _graded(rng: np.random.Generator) -> Instance:
    """Near-optimal: an action is the rarer, the more it loses."""
    world = ferry(rng)
    baseline = graded(world, (1.0, 1.0, 1.0), 0.25)
    return Instance(world=world, baseline=baseline, preference=np.array([1.0, 0.0, 0.0]))


def _shifts(rng: np.random.Generator) -> Instance:
    """Four shifts, of which nobody knows which one fired: each steers to a heat of its own by phase, and holds more or less often."""
    world = kiln(rng)
    phase, heat = np.divmod(np.arange(world.n_states) // 3, 8)
    usual = np.array([2, 3, 4, 5, 3])
    shifts = []
    for holds in rng.uniform(0.1, 0.4, size=4):
        wanted = np.clip(usual + rng.integers(-2, 3, size=5), 0, 7)[phase]
        table = (1.0 - holds) * np.eye(3)[np.sign(wanted - heat) + 1]
        table[:, 1] += holds
        shifts.append(table)
    return Instance(
        world=world,
        baseline=mixture_policy(world, shifts),
        preference=np.array([1.0, 0.0, 0.0]),
        baseline_known=False,
        behaviours=tuple(shifts),
    )


def _builders(rng: np.random.Generator) -> Instance:
    """Builders mostly work, and hurry or check at times, the more often they check the more is built."""
    world = long_building(rng)
    done = np.arange(world.n_states) // 5 / 29.0
    hurry, check = rng.uniform(0.1, 0.3), rng.uniform(0.1, 0.3) * (0.5 + done)
    table = np.column_stack([np.full(world.n_states, hurry), 1.0 - hurry - check, check])
    return Instance(world=world, baseline=table, preference=np.array([1.0, 0.0]))


def _swing(rng: np.random.Generator) -> Instance:
    """Who drives pushes the way that the car moves, but for 40 % of random actions."""
    world = mountain_car(rng)
    velocity = np.arange(world.n_states) % 11 - 5
    choice = np.where(velocity >= 0, 2, 0)
    baseline = nearly_deterministic(rng, np.eye(3)[choice], 0.4)
    return Instance(world=world, baseline=baseline, preference=np.array([1.0, 0.0]))


def _ladder(rng: np.random.Generator) -> Instance:
    """The office goes up a ladder of measures by the month, whoever the debtor is."""
    world = debts(rng)
    table = np.repeat(np.array(LADDER), 4, axis=0)
    return Instance(world=world, baseline=table, preference=np.array([1.0, 0.0, 0.0]))


def _kind(
    name: str, title: str, family: str, sizes: tuple[int, ...], make: Callable[[np.random.Generator], Instance]
) -> Kind:
    return Kind(name=name, title=title, half="fourth", family=family, sizes=sizes, make=make)


FOURTH = (
    _kind("debts", "a rare complaint, 3 in 100 episodes (debts to collect)", "hazard", (200, 1500), _ladder),
    _kind("pipeline", "rare large successes of products", "rewards", (100, 500), _stages),
    _kind("rotation", "noise of each pair's own size (crops in rotation)", "rewards", (50, 300), plain(crop_rotation, (1.0, 1.0), 0.2, preference=(1.0, 0.0))),
    _kind("cart", "moves that never fail, noisy rewards (a market cart)", "rewards", (50, 300), _usual_round),
    _kind("car-park", "tariffs of a car park, counts only", "rewards", (50, 300), plain(car_park, (1.0, 0.5, 1.0), 0.3, preference=(1.0, 0.0, 0.0), from_counts=True)),
    _kind("triage", "60 possible next cases, most of them never seen", "visits", (30, 200), _by_case),
    _kind("greenhouse", "all actions tried alike, few episodes (a greenhouse)", "visits", (20, 100), _uniform),
    _kind("ferry", "near-optimal, rarer actions lose more (a ferry)", "baseline", (30, 150), _graded),
    _kind("shifts", "four unknown shifts at a kiln", "baseline", (40, 200), _shifts),
    _kind("building", "a long chain with late effects, discount 0.999", "model", (30, 150), _builders),
    _kind("tram", "five objectives, two of them pursued (a tram line)", "model", (40, 200), plain(tram_line, (1.0, 1.0, 1.0, 1.0, 1.0), 0.3, preference=(1.0, 1.0, 0.0, 0.0, 0.0))),
    _kind("mountain-car", "mountain car, on a grid", "benchmark", (30, 150), _swing),
)  # fmt: skip
