"""Kinds for rules that are chosen after both halves have been looked at: other constructions, written before any method ran on them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.benchmarks import blackjack
from bettersafe.envs.care import epidemic, late_toxicity, transfers, tutor
from bettersafe.envs.routes import icy_passes, mined_roads, rope_bridges
from bettersafe.envs.services import grants, shop_floor, tandem_queues
from bettersafe.envs.trade import (
    ad_slots,
    bus_engine,
    fishery,
    heating,
    lotteries,
    reservoir,
    seat_prices,
)
from bettersafe.studies.gauntlet.instance import Instance, Kind, mixture_policy
from bettersafe.studies.gauntlet.practices import nearly_deterministic, of_quality, plain, runner_up, wary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bettersafe.envs.hazards import Hazard


def _wary(
    hazard: Callable[[np.random.Generator], Hazard], weights: Sequence[float], quality: float, *, share: float
) -> Callable[[np.random.Generator], Instance]:
    """Makes worlds whose practice is ρ of the best policy for ``weights``, but with ``share`` of its harmful pairs."""

    def make(rng: np.random.Generator) -> Instance:
        drawn = hazard(rng)
        baseline = wary(of_quality(rng, drawn.world, weights, quality), drawn.harmful, share)
        return Instance(world=drawn.world, baseline=baseline, preference=np.eye(1, len(weights))[0])

    return make


def _toxicity(rng: np.random.Generator) -> Instance:
    """Discounts differ: the response counts soon, the harm late."""
    world = late_toxicity(rng)
    same = replace(world, objectives=tuple(replace(objective, discount=0.95) for objective in world.objectives))
    return Instance(
        world=world, baseline=of_quality(rng, same, (1.0, 0.5, 20.0), 0.6), preference=np.array([1.0, 0.5, 0.0])
    )


def _lotteries(rng: np.random.Generator) -> Instance:
    """The practice is good, plays the second-best action, or is weak, each in a third of the worlds."""
    world, practice = lotteries(rng), rng.integers(3)
    weights = (1.0, 1.0)
    if practice == 0:
        baseline = of_quality(rng, world, weights, 0.8)
    else:
        baseline = runner_up(rng, world, weights, 0.7) if practice == 1 else of_quality(rng, world, weights, 0.0)
    return Instance(world=world, baseline=baseline, preference=np.array([1.0, 0.0]))


def _habitual_prices(rng: np.random.Generator) -> Instance:
    """Prices spread about a habit, which is the same on all days and differs a little with the seats that are left."""
    world = seat_prices(rng)
    habit, wide = rng.uniform(4.0, 13.0), rng.uniform(2.0, 4.0)
    middle = habit + rng.normal(0.0, 1.0, size=(world.n_states, 1))
    table = np.exp(-0.5 * ((np.arange(world.n_actions) - middle) / wide) ** 2) + 1e-3
    return Instance(world=world, baseline=table / table.sum(axis=1, keepdims=True), preference=np.array([1.0, 0.0]))


def _transfers(rng: np.random.Generator) -> Instance:
    """Staff follow thresholds of severity, nearly always; the baseline is estimated."""
    world = transfers(rng)
    severity, place = np.divmod(np.arange(world.n_states) // 3, 3)
    up, down = np.array([rng.integers(3, 5), 6, 7]), np.array([-1, rng.integers(1, 3), rng.integers(2, 5)])
    choice = np.where(severity >= up[place], 1, np.where(severity <= down[place], 2, 0))
    choice[(severity == 0) & (place == 0)] = 3
    baseline = nearly_deterministic(rng, np.eye(4)[choice], 0.15)
    return Instance(world=world, baseline=baseline, preference=np.array([1.0, 0.0, 0.0]), baseline_known=False)


def _skippers(rng: np.random.Generator) -> Instance:
    """Three skippers, of whom nobody knows who went out: one fishes hard, one little, one by the stock. Logs end after 25 steps."""
    world = fishery(rng)
    stock = np.arange(world.n_states) // 3
    hard, little = np.full(world.n_states, 2), np.full(world.n_states, 0)
    skippers = tuple(
        nearly_deterministic(rng, np.eye(5)[choice], 0.35) for choice in (hard, little, np.minimum(stock // 5, 4))
    )
    return Instance(
        world=world,
        baseline=mixture_policy(world, skippers),
        preference=np.array([1.0, 0.0]),
        baseline_known=False,
        behaviours=skippers,
        horizon=25,
    )


def _tutor(rng: np.random.Generator) -> Instance:
    """The kind of student, which decides what suits them, is not logged, and the tutor does not know it."""
    world = tutor(rng)
    groups = np.arange(world.n_states) % (world.n_states // 3)
    shared = rng.dirichlet(np.array([1.0, 3.0, 3.0, 2.0]), size=int(groups.max()) + 1)
    return Instance(world=world, baseline=shared, preference=np.array([1.0, 0.0]), aggregate=groups)


def _dealers_rule(rng: np.random.Generator) -> Instance:
    """Who plays draws up to 17 as the dealer does, but for a quarter of random actions."""
    world = blackjack(rng)
    hits = np.arange(world.n_states) // 10 + 8 < 17
    baseline = nearly_deterministic(rng, np.eye(3)[hits.astype(int)], 0.25)
    return Instance(world=world, baseline=baseline, preference=np.array([1.0, 0.0]))


def _kind(
    name: str, title: str, family: str, sizes: tuple[int, ...], make: Callable[[np.random.Generator], Instance]
) -> Kind:
    return Kind(name=name, title=title, half="fresh", family=family, sizes=sizes, make=make)


FRESH = (
    _kind("mines", "mined roads to the towns that pay best", "hazard", (50, 300), _wary(mined_roads, (1.0, 5.0), 0.3, share=0.25)),
    _kind("passes", "icy passes: short cuts with rare accidents", "hazard", (100, 500), _wary(icy_passes, (1.0, 0.3), 0.4, share=0.5)),
    _kind("bridges", "rope bridges that break under large loads", "hazard", (50, 300), _wary(rope_bridges, (1.0, 5.0, 1.0), 0.5, share=0.5)),
    _kind("toxicity", "doses whose toxicity comes late, different discounts", "hazard", (40, 200), _toxicity),
    _kind("lottery", "a wage, or lotteries with prizes up to 150", "rewards", (100, 500), _lotteries),
    _kind("reservoir", "noise that grows with the action, Student t (a reservoir)", "rewards", (40, 200), plain(reservoir, (1.0, 1.0, 2.0), 0.4, preference=(1.0, 0.0, 0.0))),
    _kind("bus", "bus engines with skewed costs of breakdowns, counts only", "rewards", (100, 400), plain(bus_engine, (1.0, 3.0), 0.4, preference=(1.0, 0.0), from_counts=True)),
    _kind("ads", "15 advertisements, clicks, orders and rare blocks", "rewards", (300, 3000), plain(ad_slots, (1.0, 1.0, 10.0), 0.3, preference=(1.0, 1.0, 0.0))),
    _kind("prices", "20 prices of seats, neighbours nearly as good", "visits", (50, 300), _habitual_prices),
    _kind("heating", "five long episodes (heating), both objectives pursued", "visits", (5, 15), plain(heating, (1.0, 1.0), 0.3, preference=(1.0, 1.0))),
    _kind("transfers", "transfers by thresholds, estimated, rare deaths", "baseline", (100, 500), _transfers),
    _kind("skippers", "three unknown skippers of a fishery, cut off", "baseline", (30, 150), _skippers),
    _kind("shop-floor", "eight objectives (jobs on a shop floor)", "model", (30, 150), plain(shop_floor, (1.0,) * 8, 0.2, preference=(1.0, *(0.0,) * 7))),
    _kind("grants", "30 objectives (grants for 29 groups)", "model", (50, 200), plain(grants, (1.0,) * 30, 0.0, preference=(1.0, *(0.0,) * 29))),
    _kind("tutor", "aggregated states (kinds of students not logged)", "model", (100, 1000), _tutor),
    _kind("blackjack", "blackjack, by the dealer's rule", "benchmark", (300, 3000), _dealers_rule),
    _kind("epidemic", "control of an epidemic, the second objective pursued", "benchmark", (100, 400), plain(epidemic, (1.0, 1.0), 0.4, preference=(0.0, 1.0))),
    _kind("tandem", "queues in tandem, discount 0.995, an objective that never varies", "benchmark", (20, 100), plain(tandem_queues, (1.0, 1.0, 1.0, 0.0), 0.4, preference=(1.0, 0.0, 0.0, 0.0))),
)  # fmt: skip
