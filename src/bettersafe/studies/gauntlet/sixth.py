"""Kinds for rules that are chosen after the first five sets have been looked at, written before any method ran on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.benchmarks import car_rental
from bettersafe.envs.firms import baking_line, crews, faults, insurer, pumps
from bettersafe.envs.people import headlines, hotel_guests, lawsuits, members, prescriptions, recovery_ward
from bettersafe.studies.gauntlet.instance import Instance, Kind
from bettersafe.studies.gauntlet.practices import graded, habits, nearly_deterministic, plain, runner_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from bettersafe.typing import Floats


def _pursued(n_objectives: int) -> Floats:
    """λ: the first objective is pursued, the others protected."""
    return np.asarray(np.eye(1, n_objectives)[0])


def _by_complaint(rng: np.random.Generator) -> Instance:
    """Doctors have habits by complaint and pain, and do not look at the kidneys."""
    world = prescriptions(rng)
    pain = np.arange(15) % 5
    usual = np.array([(0.5, 0.3, 0.05, 0.1, 0.05), (0.15, 0.35, 0.25, 0.15, 0.1), (0.05, 0.15, 0.45, 0.1, 0.25)])
    table = habits(rng, usual[np.digitize(pain, (1, 3))], 12.0)
    return Instance(world=world, baseline=np.tile(table, (3, 1)), preference=_pursued(3))


def _aims_at_a_share(rng: np.random.Generator) -> Instance:
    """The underwriter aims at a share, whatever the quarter is, and somewhat more in a hard market."""
    world = insurer(rng)
    share, hard = np.arange(world.n_states) // 8, np.arange(world.n_states) % 2
    aim = rng.integers(2, 5) + hard * rng.integers(0, 2)
    usual = np.array([(0.3, 0.2, 0.05, 0.05, 0.4), (0.1, 0.5, 0.25, 0.05, 0.1), (0.05, 0.15, 0.45, 0.3, 0.05)])
    baseline = habits(rng, usual[np.sign(aim - share) + 1], 10.0)
    return Instance(world=world, baseline=baseline, preference=_pursued(3))


def _house_style(rng: np.random.Generator) -> Instance:
    """The staff offers what the house wants to be offered, a gift rather to an annoyed guest, and does not look who the guest is."""
    world = hotel_guests(rng)
    mood = np.arange(world.n_states // 4) % 4
    usual = np.array([(0.3, 0.25, 0.15, 0.25, 0.05), (0.35, 0.2, 0.15, 0.15, 0.15)])
    table = habits(rng, usual[(mood >= 2).astype(int)], 12.0)
    return Instance(world=world, baseline=np.repeat(table, 4, axis=0), preference=_pursued(3))


def _counsel(rng: np.random.Generator) -> Instance:
    """Counsel waits too often, and goes to trial with good and bad claims alike."""
    world = lawsuits(rng)
    stage = np.arange(world.n_states // 2) // 4
    usual = np.array([(0.35, 0.2, 0.2, 0.15, 0.1), (0.25, 0.25, 0.15, 0.1, 0.25)])
    table = habits(rng, usual[(stage >= 2).astype(int)], 12.0)
    return Instance(world=world, baseline=np.repeat(table, 2, axis=0), preference=_pursued(3))


def _ward_rounds(rng: np.random.Generator) -> Instance:
    """The ward treats by severity alone."""
    world = recovery_ward(rng)
    usual = np.linspace((0.4, 0.25, 0.25, 0.05, 0.05), (0.1, 0.2, 0.2, 0.3, 0.2), 6)
    return Instance(world=world, baseline=np.repeat(habits(rng, usual, 12.0), 6, axis=0), preference=_pursued(4))


def _editors(rng: np.random.Generator) -> Instance:
    """Editors mostly take the second best of the headlines."""
    world = headlines(rng)
    return Instance(world=world, baseline=runner_up(rng, world, (1.0, 0.0, 0.0), 0.4), preference=_pursued(3))


def _club(rng: np.random.Generator) -> Instance:
    """The club writes to those who seldom come, calls or courts them at times; only the first 24 months are in the log."""
    world = members(rng)
    use = np.arange(world.n_states) // 12
    usual = np.array([(0.3, 0.3, 0.15, 0.15, 0.1), (0.45, 0.25, 0.1, 0.1, 0.1), (0.65, 0.2, 0.03, 0.05, 0.07)])
    baseline = habits(rng, usual[np.digitize(use, (1, 3))], 12.0)
    return Instance(world=world, baseline=baseline, preference=_pursued(3), horizon=24)


def _thresholds(rng: np.random.Generator) -> Instance:
    """Pumps start at a high level and stop at a low one, whatever the hour is; 12 % are random; estimated."""
    world = pumps(rng)
    level, inflow, runs = (
        np.arange(world.n_states) // 24,
        np.arange(world.n_states) // 8 % 3,
        np.arange(world.n_states) % 2,
    )
    choice = np.where(runs == 1, (level >= 1).astype(int), (level >= 3).astype(int))
    choice = np.where((level >= 4) & (inflow > 0), 2, np.where((level == 5) & (inflow == 2), 3, choice))
    baseline = nearly_deterministic(rng, np.eye(4)[choice], 0.12)
    return Instance(world=world, baseline=baseline, preference=_pursued(3), baseline_known=False)


def _foreman(rng: np.random.Generator) -> Instance:
    """Near-optimal: a choice is the rarer, the more it loses."""
    world = crews(rng)
    return Instance(world=world, baseline=graded(world, (3.0, 1.0, 1.0, 1.0, 1.0, 1.0), 0.2), preference=_pursued(6))


def _first_aid(rng: np.random.Generator) -> Instance:
    """Repairers try cheap actions first, by habits of the kind of fault and the attempt; counts only."""
    world = faults(rng)
    usual = np.array([(0.4, 0.25, 0.2, 0.05, 0.1), (0.1, 0.15, 0.25, 0.25, 0.25)])
    table = habits(rng, np.tile(usual, (18, 1)), 8.0)
    return Instance(world=world, baseline=np.repeat(table, 3, axis=0), preference=_pursued(3), from_counts=True)


def _kind(
    name: str, title: str, family: str, sizes: tuple[int, ...], make: Callable[[np.random.Generator], Instance]
) -> Kind:
    return Kind(name=name, title=title, half="sixth", family=family, sizes=sizes, make=make)


SIXTH = (
    _kind("prescriptions", "rare harm of one action in some states (prescriptions)", "hazard", (150, 1000), _by_complaint),
    _kind("insurer", "rare storms by the state alone, different discounts (an insurer)", "hazard", (60, 300), _aims_at_a_share),
    _kind("hotel", "a rare complaint at the end (hotel guests)", "rewards", (300, 2500), _house_style),
    _kind("lawsuits", "lognormal costs (lawsuits)", "rewards", (80, 500), _counsel),
    _kind("headlines", "12 nearly equal actions (headlines)", "visits", (400, 3000), _editors),
    _kind("faults", "some states 75 times as often as others, counts only (faults)", "visits", (100, 800), _first_aid),
    _kind("baking", "few episodes, much to be gained, objectives that go together (a baking line)", "visits", (12, 50), plain(baking_line, (1.0, 1.0, 1.0, 1.0), 0.1)),
    _kind("pumps", "thresholds of pumps, nearly always kept to, estimated", "baseline", (30, 150), _thresholds),
    _kind("crews", "six objectives, much data, little to be gained (crews)", "baseline", (300, 2500), _foreman),
    _kind("members", "24 months of members who mostly stay on (a club)", "model", (100, 800), _club),
    _kind("ward", "cure, death or transfer, at rates that differ by action (a ward)", "model", (150, 900), _ward_rounds),
    _kind("car-rental", "Jack's car rental, Poisson counts", "benchmark", (20, 120), plain(car_rental, (1.0, 0.3, 0.5), 0.3)),
)  # fmt: skip
