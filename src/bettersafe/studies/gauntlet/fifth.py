"""Kinds for rules that are chosen after the other four sets have been looked at, written before any method ran on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.benchmarks import windy_gridworld
from bettersafe.envs.business import donors, exchange, help_desk, restaurant, sales_funnel, street_stall
from bettersafe.envs.country import apiary, brewery, pasture, sea_lanes, water_mill
from bettersafe.envs.gridworld import quality_baseline
from bettersafe.studies.gauntlet.instance import Instance, Kind
from bettersafe.studies.gauntlet.practices import best, habits, nearly_deterministic, plain

if TYPE_CHECKING:
    from collections.abc import Callable


FIRST = np.array([1.0, 0.0])
"""λ: the first of two objectives is pursued, the second protected."""

FIRST_OF_THREE = np.array([1.0, 0.0, 0.0])
"""λ: the first of three objectives is pursued, the others protected."""

SCRIPT = (
    (0.25, 0.45, 0.20, 0.05, 0.05),
    (0.15, 0.30, 0.35, 0.15, 0.05),
    (0.15, 0.20, 0.30, 0.25, 0.10),
    (0.15, 0.15, 0.35, 0.20, 0.15),
    (0.10, 0.15, 0.35, 0.15, 0.25),
)
"""How often staff wait, mail, call, demonstrate or offer a rebate, by stage of the funnel."""


def _script(rng: np.random.Generator) -> Instance:
    """Staff follow a script by stage, whatever the firm and its warmth are."""
    world = sales_funnel(rng)
    table = habits(rng, np.array(SCRIPT), 30.0)
    return Instance(world=world, baseline=np.repeat(table, 12, axis=0), preference=FIRST_OF_THREE)


def _by_ties(rng: np.random.Generator) -> Instance:
    """The charity visits some, those with close ties more often, and mails most of the others."""
    world = donors(rng)
    tie = np.arange(world.n_states) % 3
    visit = rng.uniform(0.06, 0.12) * (1.0 + tie)
    others = rng.dirichlet((2.0, 5.0, 2.0, 2.0), size=3)[tie] * (1.0 - visit)[:, None]
    baseline = np.column_stack([others[:, :3], visit, others[:, 3]])
    return Instance(world=world, baseline=baseline, preference=FIRST)


def _follows_the_trend(rng: np.random.Generator) -> Instance:
    """The trader mostly moves one step towards what the trend says, often stays, and at times goes anywhere."""
    world = exchange(rng)
    position, trend = np.divmod(np.arange(world.n_states) // 2, 3)
    wanted = np.clip(position + np.sign(2 * trend - position), 0, 4)
    moves, stays = rng.uniform(0.3, 0.5), rng.uniform(0.2, 0.4)
    table = moves * np.eye(5)[wanted] + stays * np.eye(5)[position] + (1.0 - moves - stays) / 5.0
    return Instance(world=world, baseline=table, preference=FIRST_OF_THREE)


def _orders(rng: np.random.Generator) -> Instance:
    """The owner buys when the shelf looks empty, sells cheaply when it is full, and forgets to look at the weather."""
    world = street_stall(rng)
    stock = np.arange(world.n_states) // 9
    usual = np.array([(0.2, 0.4, 0.3, 0.1), (0.5, 0.3, 0.1, 0.1), (0.6, 0.1, 0.05, 0.25)])
    table = habits(rng, usual, 15.0)[np.digitize(stock, (2, 5))]
    return Instance(world=world, baseline=table, preference=FIRST_OF_THREE)


def _rules_of_the_desk(rng: np.random.Generator) -> Instance:
    """Each kind of ticket has its usual action, a long queue gets templates, a tired desk takes a break; 30 % are random; estimated."""
    world = help_desk(rng)
    rest, kind = np.divmod(np.arange(world.n_states), 3)
    queue, tired = np.divmod(rest, 3)
    choice = rng.integers(1, 4, size=3)[kind]
    choice = np.where(queue >= 5, 0, np.where((tired == 2) & (queue <= 2), 4, choice))
    baseline = nearly_deterministic(rng, np.eye(5)[choice], 0.3)
    return Instance(world=world, baseline=baseline, preference=FIRST_OF_THREE, baseline_known=False)


def _lanes(rng: np.random.Generator) -> Instance:
    """Captains mostly sail ahead, by habits of the row, and rather north than south near the shoals."""
    world = sea_lanes(rng)
    row, column = np.divmod(np.arange(world.n_states) // 2, 9)
    near = (row >= 2) & (column <= 5)
    usual = np.where(near[:, None], (0.4, 0.3, 0.2, 0.1), (0.5, 0.2, 0.2, 0.1))
    return Instance(world=world, baseline=habits(rng, usual, 10.0), preference=FIRST)


def _calendar(rng: np.random.Generator) -> Instance:
    """The beekeeper has a calendar: feeds in winter, harvests in summer, treats in autumn; and departs from it at times."""
    world = apiary(rng)
    usual = np.array([1, 1, 0, 0, 0, 3, 3, 3, 2, 2, 1, 0])
    strays = rng.uniform(0.3, 0.5)
    table = (1.0 - strays) * np.eye(4)[usual] + strays * rng.dirichlet(np.full(4, 3.0), size=12)
    return Instance(world=world, baseline=np.repeat(table, 10, axis=0), preference=FIRST_OF_THREE)


def _recipe(rng: np.random.Generator) -> Instance:
    """Temperatures spread about a recipe that starts warm or cool and changes evenly as the sugar is used up."""
    world = brewery(rng)
    sugar = np.arange(world.n_states) // 4
    first, last = rng.uniform(3.0, 14.0, size=2)
    middle = (last + (first - last) * sugar / 7.0)[:, None]
    table = np.exp(-0.5 * ((np.arange(18) - middle) / rng.uniform(2.0, 4.0)) ** 2) + 1e-3
    baseline = table / table.sum(axis=1, keepdims=True)
    return Instance(world=world, baseline=baseline, preference=FIRST_OF_THREE)


def _at_random(rng: np.random.Generator) -> Instance:
    """The miller does nearly anything nearly as often."""
    world = water_mill(rng)
    baseline = rng.dirichlet(np.full(4, 20.0), size=world.n_states)
    return Instance(world=world, baseline=baseline, preference=FIRST_OF_THREE, from_counts=True)


def _by_weather(rng: np.random.Generator) -> Instance:
    """The farmer has habits by weather, and does not look at the grass."""
    world = pasture(rng)
    table = rng.dirichlet(np.full(4, 2.0), size=3)
    return Instance(world=world, baseline=np.tile(table, (world.n_states // 3, 1)), preference=FIRST_OF_THREE)


def _wanders(rng: np.random.Generator) -> Instance:
    """Half of the best for both objectives, half uniform."""
    world = windy_gridworld(rng)
    return Instance(world=world, baseline=quality_baseline(best(world, (1.0, 2.0)), 0.5), preference=FIRST)


def _kind(
    name: str, title: str, family: str, sizes: tuple[int, ...], make: Callable[[np.random.Generator], Instance]
) -> Kind:
    return Kind(name=name, title=title, half="fifth", family=family, sizes=sizes, make=make)


FIFTH = (
    _kind("sea-lanes", "rare large losses in one region (sea lanes)", "hazard", (100, 500), _lanes),
    _kind("funnel", "a yes/no success at the end, a few in 100 (a sales funnel)", "rewards", (200, 1500), _script),
    _kind("donors", "rare large gains that a change can forgo (donors)", "rewards", (100, 600), _by_ties),
    _kind("exchange", "heavy tails of both signs (an exchange)", "rewards", (100, 600), _follows_the_trend),
    _kind("stall", "ten episodes, a noisy rent that nothing changes, different discounts", "visits", (10, 40), _orders),
    _kind("brewery", "18 temperatures with smooth effects (a brewery)", "visits", (30, 200), _recipe),
    _kind("apiary", "few episodes of some 200 steps, seasons (an apiary)", "visits", (4, 12), _calendar),
    _kind("help-desk", "rules of a help desk, estimated", "baseline", (50, 300), _rules_of_the_desk),
    _kind("mill", "a nearly random practice with much data, counts only (a mill)", "baseline", (300, 2000), _at_random),
    _kind("restaurant", "objectives that go up and down together (a restaurant)", "model", (40, 250), plain(restaurant, (1.0, 1.0, 1.0), 0.3)),
    _kind("pasture", "chance decides nearly all, actions little (a pasture)", "model", (50, 300), _by_weather),
    _kind("windy", "windy gridworld with slippery cells", "benchmark", (30, 150), _wanders),
)  # fmt: skip
