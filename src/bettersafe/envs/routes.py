"""Worlds of ways through places where a step can be the last: mined roads, icy passes, rope bridges.

The first objective is what is to be gained; the others are to be protected. Harm is rare, and lies where it pays to go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.hazards import EXPONENTIAL_POINTS, Hazard
from bettersafe.envs.tabular import END, world_of
from bettersafe.typing import frozen, generator

if TYPE_CHECKING:
    from bettersafe.envs.tabular import Result
    from bettersafe.typing import Rng


def mined_roads(rng: Rng, *, towns: int = 24, rich: int = 3) -> Hazard:
    """A courier among towns on a plane: actions are the ring road to the next town, and the roads to the three nearest.

    An arrival pays what the town pays, in half of the cases, on "parcels"; rich towns pay six times as much. All roads into
    rich towns are mined, few of the others are. A mine goes off with a probability of its road's own, 0.01 to 0.12: −1 on
    "mines", and the episode ends. One drive in ten gets nowhere.
    """
    draw = generator(rng)
    place = draw.random((towns, 2))
    place = place[np.argsort(np.arctan2(*(place - 0.5).T))]  # the ring road goes round the middle
    apart = np.linalg.norm(place[:, None] - place[None], axis=2) + 9.0 * np.eye(towns)
    road = np.column_stack([(np.arange(towns) + 1) % towns, np.argsort(apart, axis=1)[:, :3]])
    worth = draw.uniform(0.1, 0.5, size=towns)
    wealthy = draw.choice(towns, size=rich, replace=False)
    worth[wealthy] *= 6.0
    guarded = np.isin(road, wealthy)
    mined = guarded | (draw.random(road.shape) < 0.05)
    mine = np.where(mined, draw.uniform(0.01, 0.12, road.shape), 0.0)

    def step(x: int, a: int) -> list[Result]:
        y, p = int(road[x, a]), 0.9 * float(mine[x, a])
        there = (0.9 - p) / 2.0
        return [
            (0.1, x, (0.0, 0.0)),
            (there, y, (float(worth[y]), 0.0)),
            (there, y, (0.0, 0.0)),
            (p, END, (0.0, -1.0)),
        ]

    world = world_of(
        step,
        n_states=towns,
        n_actions=4,
        initial=np.full(towns, 1.0 / towns),
        objectives=("parcels", "mines"),
        discount=0.96,
        end=0.03,
    )
    return Hazard(world=world, harmful=frozen(mined, np.bool_), harm=1)


def icy_passes(rng: Rng, *, legs: int = 12) -> Hazard:
    """A lorry over a mountain: states are leg × weather (dry, frost, ice), actions valley road, main road and pass.

    "hours" is −(hours of the road), about 3, 2 and 1. "damage" is −(wear), and in an accident −(30 + an exponential cost of mean 5).
    Accidents are rare on a frosty pass (0.5 to 2 %), less so on an icy one (2 to 6 %), and cost six hours; otherwise only ice on the
    main road has a few. One leg in ten has to be driven twice.
    """
    draw = generator(rng)
    hours = np.array([3.0, 2.0, 1.0]) * draw.uniform(0.7, 1.3, (legs, 3))
    wear = draw.uniform(0.1, 0.5, (legs, 3))
    accident = np.zeros((legs, 3, 3))  # leg, weather, road
    accident[:, 1, 2] = draw.uniform(0.005, 0.02, size=legs)
    accident[:, 2, 2] = draw.uniform(0.02, 0.06, size=legs)
    accident[:, 2, 1] = draw.uniform(0.0, 0.002, size=legs)
    colder, milder = draw.uniform(0.15, 0.3), draw.uniform(0.25, 0.4)

    def step(x: int, a: int) -> list[Result]:
        leg, weather = divmod(x, 3)
        p = float(accident[leg, weather, a])
        time, worn = -float(hours[leg, a]), -float(wear[leg, a])
        outcomes = [(1.0 - p, time, worn)]
        outcomes += [(p * q, time - 6.0, worn - 30.0 - 5.0 * value) for value, q in EXPONENTIAL_POINTS]
        later = {min(weather + 1, 2): colder, max(weather - 1, 0): milder}
        later[weather] = later.get(weather, 0.0) + 1.0 - colder - milder
        return [
            (share * go * q, END if y == legs else y * 3 + sky, (spent, lost))
            for share, spent, lost in outcomes
            for y, go in ((leg + 1, 0.9), (leg, 0.1))
            for sky, q in later.items()
        ]

    initial = np.zeros(3 * legs)
    initial[:3] = (0.5, 0.3, 0.2)
    world = world_of(
        step, n_states=3 * legs, n_actions=3, initial=initial, objectives=("hours", "damage"), discount=0.99
    )
    return Hazard(world=world, harmful=frozen(accident.reshape(-1, 3) > 0.0, np.bool_), harm=1)


def rope_bridges(rng: Rng, *, islands: int = 8, most: int = 4) -> Hazard:
    """A carrier on a chain of islands: states are island × load, actions load up, sell all, rope bridge and ferry to the next island.

    Goods are bought and sold at the island's price, which grows from island to island; "profit" is the difference. A rope bridge holds one unit; with more it breaks with a probability that grows as the
    square of the load, up to 2 to 12 % with a full one: −1 on "lost", and the episode ends. The ferry comes every third
    time, and costs a fee, "fees". From the last island both lead back to the first.
    """
    draw = generator(rng)
    price = np.cumsum(draw.uniform(0.2, 1.2, size=islands))
    fee = draw.uniform(0.3, 1.0, size=islands)
    weak = draw.uniform(0.02, 0.12, size=islands) / (most - 1) ** 2
    loads = most + 1

    def breaks(island: int, load: int) -> float:
        return float(weak[island]) * max(load - 1, 0) ** 2 if island < islands - 1 else 0.0

    def step(x: int, a: int) -> list[Result]:
        island, load = divmod(x, loads)
        over = ((island + 1) % islands) * loads + load
        if a == 0:
            full = load == most
            return [(1.0, x if full else x + 1, (0.0 if full else -float(price[island]), 0.0, 0.0))]
        if a == 1:
            return [(1.0, island * loads, (float(price[island]) * load, 0.0, 0.0))]
        if a == 2:
            p = breaks(island, load)
            return [(1.0 - p, over, (0.0, 0.0, 0.0)), (p, END, (0.0, -1.0, 0.0))]
        return [(0.35, over, (0.0, 0.0, -float(fee[island]))), (0.65, x, (0.0, 0.0, 0.0))]

    n_states = islands * loads
    world = world_of(
        step, n_states=n_states, n_actions=4, initial=0, objectives=("profit", "lost", "fees"), discount=0.97, end=0.02
    )
    harmful = np.zeros((n_states, 4), dtype=np.bool_)
    harmful[:, 2] = [breaks(*divmod(x, loads)) > 0.0 for x in range(n_states)]
    return Hazard(world=world, harmful=frozen(harmful, np.bool_), harm=1)
