"""Kinds for rules that are chosen after the first six sets have been looked at, written before any method ran on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.clients import chats, exercises, headaches, mail_order, portal, rides
from bettersafe.envs.land import fields, fruit_tree, lake, wells
from bettersafe.studies.gauntlet.instance import Instance, Kind
from bettersafe.studies.gauntlet.practices import habits, nearly_deterministic, plain

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_OF_THREE = np.array([1.0, 0.0, 0.0])


def _script(rng: np.random.Generator) -> Instance:
    """Staff ask until they know the cause, repair when they know it, apologise to the impatient, and do not look at the issue."""
    world = chats(rng)
    usual = np.array([(0.35, 0.25, 0.2, 0.1, 0.1), (0.1, 0.3, 0.4, 0.1, 0.1), (0.2, 0.25, 0.2, 0.2, 0.15), (0.1, 0.25, 0.3, 0.2, 0.15)])  # fmt: skip
    known, mood = np.arange(8) % 2, np.arange(8) // 2
    table = habits(rng, usual[2 * (mood >= 2) + known], 12.0)
    return Instance(world=world, baseline=np.tile(table, (4, 1)), preference=FIRST_OF_THREE)


def _plan_by_week(rng: np.random.Generator) -> Instance:
    """Exercises become harder by the week, sore or not; 40 % are random; estimated."""
    world = exercises(rng)
    week = np.arange(world.n_states) // 12
    choice = np.digitize(week, np.sort(rng.choice(np.arange(1, 11), size=3, replace=False)))
    baseline = nearly_deterministic(rng, np.eye(4)[choice], 0.4)
    return Instance(world=world, baseline=baseline, preference=FIRST_OF_THREE, baseline_known=False)


def _segments(rng: np.random.Generator) -> Instance:
    """Who ordered lately or often gets catalogues, who did not gets vouchers, whatever the quarter is."""
    world = mail_order(rng)
    since, often = np.divmod(np.arange(24), 4)
    usual = np.array([(0.35, 0.25, 0.3, 0.1), (0.35, 0.25, 0.2, 0.2), (0.35, 0.2, 0.15, 0.3)])
    table = habits(rng, usual[np.clip((since + 1) // 2 - (often >= 2), 0, 2)], 15.0)
    return Instance(world=world, baseline=np.repeat(table, 4, axis=0), preference=FIRST_OF_THREE)


def _guideline(rng: np.random.Generator) -> Instance:
    """The guideline forbids some actions in some states, where they are never tried; among the others doctors have habits."""
    world = headaches(rng)
    severity, use, kind = np.unravel_index(np.arange(world.n_states), (4, 3, 3))
    allowed = np.ones((world.n_states, 5))
    allowed[severity == 3, 0] = 0.0
    allowed[kind == 0, 2] = 0.0
    allowed[(severity == 0) & (use == 0), 3] = 0.0
    allowed[(severity < 2) | (use == 2), 4] = 0.0
    table = habits(rng, np.tile((0.25, 0.25, 0.2, 0.1, 0.2), (world.n_states, 1)), 12.0) * allowed
    return Instance(world=world, baseline=table / table.sum(axis=1, keepdims=True), preference=FIRST_OF_THREE)


def _layouts(rng: np.random.Generator) -> Instance:
    """Every page has habits of its own; counts only."""
    world = portal(rng)
    baseline = habits(rng, np.full((world.n_states, 5), 0.2), 6.0)
    return Instance(world=world, baseline=baseline, preference=FIRST_OF_THREE, from_counts=True)


def _dispatch(rng: np.random.Generator) -> Instance:
    """Cars are picked by the place, fares are set by the hour."""
    world = rides(rng)
    picks = np.repeat(habits(rng, np.full((5, 4), 0.25), 8.0), 3, axis=0)
    fares = habits(rng, np.array([(0.3, 0.4, 0.2, 0.1), (0.2, 0.3, 0.3, 0.2), (0.1, 0.3, 0.4, 0.2)]), 12.0)
    table = np.vstack([picks, np.tile(np.repeat(fares, 4, axis=0), (5, 1))])
    return Instance(world=world, baseline=table, preference=FIRST_OF_THREE)


def _drillers(rng: np.random.Generator) -> Instance:
    """Drillers drill fast, case or vent too seldom, and do not look at the rock."""
    world = wells(rng)
    pressure = np.arange(24) % 4
    usual = np.array([(0.1, 0.3, 0.45, 0.1, 0.05), (0.1, 0.3, 0.3, 0.15, 0.15)])
    table = habits(rng, usual[(pressure >= 2).astype(int)], 12.0)
    return Instance(world=world, baseline=np.repeat(table, 3, axis=0), preference=FIRST_OF_THREE)


def _by_soil(rng: np.random.Generator) -> Instance:
    """Poor soils get more, whatever the quarter is and has been given."""
    world = fields(rng)
    usual = np.array([(0.2, 0.35, 0.45), (0.25, 0.4, 0.35), (0.4, 0.35, 0.25), (0.5, 0.3, 0.2)])
    return Instance(world=world, baseline=np.repeat(habits(rng, usual, 12.0), 36, axis=0), preference=FIRST_OF_THREE)


def _by_price(rng: np.random.Generator) -> Instance:
    """Farmers give a little more when prices are high, and do not look at the lake."""
    world = lake(rng)
    usual = np.array([(0.3, 0.3, 0.25, 0.15), (0.25, 0.3, 0.25, 0.2), (0.2, 0.3, 0.3, 0.2)])
    table = np.repeat(habits(rng, usual, 15.0), 2, axis=0)
    return Instance(world=world, baseline=np.tile(table, (8, 1)), preference=FIRST_OF_THREE)


def _kind(
    name: str, title: str, family: str, sizes: tuple[int, ...], make: Callable[[np.random.Generator], Instance]
) -> Kind:
    return Kind(name=name, title=title, half="seventh", family=family, sizes=sizes, make=make)


SEVENTH = (
    _kind("wells", "rare large gains and losses of one objective (wells)", "hazard", (100, 600), _drillers),
    _kind("lake", "rarely into a bad condition that costs every step and never ends (a lake)", "hazard", (30, 200), _by_price),
    _kind("chats", "a rating at the end, a price paid with the last step (chats)", "rewards", (150, 1000), _script),
    _kind("mail-order", "counts with many zeros, discounts 0.9 and 0.99 (mail order)", "rewards", (80, 500), _segments),
    _kind("portal", "3 states with most visits, 90 with few, counts only (a portal)", "visits", (80, 600), _layouts),
    _kind("headaches", "actions never tried in some states, ratings in every step (headaches)", "baseline", (100, 700), _guideline),
    _kind("exercises", "exactly 12 steps, a score with a ceiling, estimated (exercises)", "baseline", (40, 250), _plan_by_week),
    _kind("fields", "consequences two steps later (fields)", "model", (30, 200), _by_soil),
    _kind("rides", "first pick, then pay; what one gets the other pays (rides)", "model", (150, 1000), _dispatch),
    _kind("fruit-tree", "the fruit tree, six nutrients after exactly six steps", "benchmark", (100, 700), plain(fruit_tree, (1.0,) * 6, 0.3)),
)  # fmt: skip
