"""Random worlds that are difficult to learn from: rare harm, rare or noisy rewards, rare costs, harm that comes late.

Where nothing else is said, a pair leads to three random states, with probabilities from Dirichlet(1), and "profit" is
what is to be gained; the other objectives are to be protected.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, factorial
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.tabular import END, world_of
from bettersafe.typing import frozen, generator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bettersafe.envs.tabular import Result, World
    from bettersafe.typing import Bools, Floats, Ints, Rng

NORMAL_POINTS = ((-1.857, 0.0665), (-0.9, 0.2415), (0.0, 0.384), (0.9, 0.2415), (1.857, 0.0665))
"""Values and probabilities of a discretised standard normal: mean 0, variance 0.85."""

STUDENT_POINTS = (
    (-8.912, 0.005), (-3.869, 0.025), (-2.008, 0.09), (-0.961, 0.18), (0.0, 0.4),
    (0.961, 0.18), (2.008, 0.09), (3.869, 0.025), (8.912, 0.005),
)  # fmt: skip
"""Values and probabilities of a discretised Student t with 3 degrees of freedom: the means between nine quantiles."""

EXPONENTIAL_POINTS = ((0.2338, 0.4), (0.8855, 0.35), (1.9839, 0.2), (3.9957, 0.05))
"""Values and probabilities of a discretised exponential distribution: the means between four quantiles, 1 overall."""


@dataclass(frozen=True, kw_only=True)
class Hazard:
    """A world, and the pairs that carry its harm.

    Attributes:
        world: The world.
        harmful: Whether a pair can do the harm, shape [X, A].
        harm: The objective that it shows in.
    """

    world: World
    harmful: Bools
    harm: int


def with_noise(
    results: Sequence[Result], k: int, scale: float, points: Sequence[tuple[float, float]] = NORMAL_POINTS
) -> list[Result]:
    """The outcomes with noise on objective k: ``scale`` times a value of ``points``, which are values and probabilities."""
    return [
        (p * share, there, (*paid[:k], paid[k] + scale * value, *paid[k + 1 :]))
        for p, there, paid in results
        for value, share in points
    ]


def poisson(mean: float, most: int) -> list[float]:
    """Poisson probabilities of 0 … most; the last has the rest."""
    found = [exp(-mean) * mean**n / factorial(n) for n in range(most)]
    return [*found, 1.0 - sum(found)]


def successors(rng: np.random.Generator, n_states: int, n_actions: int, branching: int = 3) -> tuple[Ints, Floats]:
    """Random successors of every pair and their probabilities, each [X, A, branching]."""
    order = rng.random((n_states, n_actions, n_states)).argsort(axis=2)[:, :, :branching]
    return order, rng.dirichlet(np.ones(branching), size=(n_states, n_actions))


def catastrophe(
    rng: Rng,
    *,
    ends: bool,
    chance: tuple[float, float] = (0.005, 0.02),
    cost: float = 10.0,
    n_states: int = 20,
    n_actions: int = 4,
) -> Hazard:
    """One action pays better everywhere, and each step with it is a catastrophe with a small probability.

    A catastrophe costs ``cost`` of "harm". It ends the episode; or it leads to a pit, the last state, where every step costs
    1 of "harm" and one step in ten leads out. All other steps cost up to 0.1 of "harm".
    """
    draw = generator(rng)
    there, share = successors(draw, n_states, n_actions)
    profit, wear = draw.random((n_states, n_actions)), draw.uniform(-0.1, 0.0, (n_states, n_actions))
    risky, p = int(draw.integers(n_actions)), draw.uniform(*chance)
    profit[:, risky] += 0.4
    pit = n_states

    def step(x: int, a: int) -> list[Result]:
        if x == pit:
            return [(0.9, pit, (0.0, -1.0)), (0.1, int(there[0, a, 0]), (0.0, -1.0))]
        usual = (float(profit[x, a]), float(wear[x, a]))
        struck = p if a == risky else 0.0
        results: list[Result] = [
            ((1.0 - struck) * float(q), int(y), usual) for y, q in zip(there[x, a], share[x, a], strict=True)
        ]
        return [*results, (struck, END if ends else pit, (usual[0], -cost))]

    total = n_states + (not ends)
    initial = np.append(draw.dirichlet(np.ones(n_states)), np.zeros(total - n_states))
    world = world_of(
        step,
        n_states=total,
        n_actions=n_actions,
        initial=initial,
        objectives=("profit", "harm"),
        discount=0.95,
        end=0.05,
    )
    harmful = np.zeros((total, n_actions), dtype=np.bool_)
    harmful[:n_states, risky] = True
    return Hazard(world=world, harmful=frozen(harmful, np.bool_), harm=1)


def deadly_actions(rng: Rng, *, n_states: int = 25, n_actions: int = 5, share_deadly: float = 0.15) -> Hazard:
    """Some pairs end the episode at once with probability 0.2 to 0.6, costing 1 of "deaths"; all others hardly ever."""
    draw = generator(rng)
    there, share = successors(draw, n_states, n_actions)
    profit = draw.random((n_states, n_actions))
    harmful = draw.random((n_states, n_actions)) < share_deadly
    death = np.where(harmful, draw.uniform(0.2, 0.6, harmful.shape), draw.uniform(0.0, 0.004, harmful.shape))
    profit[harmful] += 0.5

    def step(x: int, a: int) -> list[Result]:
        dies = float(death[x, a])
        return [
            *(
                ((1.0 - dies) * float(q), int(y), (float(profit[x, a]), 0.0))
                for y, q in zip(there[x, a], share[x, a], strict=True)
            ),
            (dies, END, (float(profit[x, a]), -1.0)),
        ]

    world = world_of(
        step,
        n_states=n_states,
        n_actions=n_actions,
        initial=draw.dirichlet(np.ones(n_states)),
        objectives=("profit", "deaths"),
        discount=0.95,
        end=0.03,
    )
    return Hazard(world=world, harmful=frozen(harmful, np.bool_), harm=1)


def one_way_door(rng: Rng, *, rooms: int = 24, n_actions: int = 4, backwater: int = 4) -> Hazard:
    """Some pairs lead, once in a while, through a door into a backwater that has no way back.

    Nothing bad is seen at the door itself. In the backwater "profit" goes on as before, and "upkeep" costs three times as
    much until the episode ends. Rooms lie on a ring; actions go one or two rooms on, stay, or take a short cut.
    """
    draw = generator(rng)
    total = rooms + backwater
    profit, upkeep = draw.random((total, n_actions)), draw.uniform(0.1, 0.5, (total, n_actions))
    upkeep[rooms:] = draw.uniform(0.8, 1.2, (backwater, n_actions))
    door = np.zeros((total, n_actions))
    door[:rooms] = np.where(draw.random((rooms, n_actions)) < 0.25, draw.uniform(0.02, 0.1, (rooms, n_actions)), 0.0)
    profit[door > 0.0] += 0.4
    reach = draw.integers(3, rooms - 3, size=rooms)

    def step(x: int, a: int) -> list[Result]:
        paid = (float(profit[x, a]), -float(upkeep[x, a]))
        if x >= rooms:
            return [(1.0 / backwater, rooms + i, paid) for i in range(backwater)]
        on = (x + (1, 2, 0, int(reach[x]))[a]) % rooms
        through = float(door[x, a])
        return [
            (0.8 * (1.0 - through), on, paid),
            (0.2 * (1.0 - through), (on + 1) % rooms, paid),
            (through, rooms + (x + a) % backwater, paid),
        ]

    initial = np.append(np.full(rooms, 1.0 / rooms), np.zeros(backwater))
    world = world_of(
        step,
        n_states=total,
        n_actions=n_actions,
        initial=initial,
        objectives=("profit", "upkeep"),
        discount=0.95,
        end=0.05,
    )
    return Hazard(world=world, harmful=frozen(door > 0.0, np.bool_), harm=1)


def late_harm(rng: Rng, *, tasks: int = 6, levels: int = 8) -> Hazard:
    """Exposure adds up, and does its harm only later: states are task × exposure.

    Actions are rest (exposure falls), careful, normal, fast (exposure rises by 0 to 2, more often the faster). Above a
    random threshold a step is an injury with a probability that grows with exposure: −1 on "injuries", and the episode
    ends. "output" grows with the speed.
    """
    draw = generator(rng)
    threshold, slope = int(draw.integers(4, 6)), draw.uniform(0.03, 0.08)
    speed = np.array([0.0, 0.6, 1.0, 1.3])
    value = draw.uniform(0.5, 1.5, size=tasks)
    rises = np.array([0.0, 0.1, 0.3, 0.6]) * draw.uniform(0.7, 1.3)

    def step(x: int, a: int) -> list[Result]:
        task, exposure = divmod(x, levels)
        injured = slope * max(exposure - threshold + 1, 0)
        paid = float(speed[a] * value[task])
        results: list[Result] = [(injured, END, (paid, -1.0))]
        down = 0.7 if a == 0 else 0.1
        up = min(float(rises[a]), 0.9 - down)
        for change, p in ((-1, down), (1, 0.7 * up), (2, 0.3 * up), (0, 1.0 - down - up)):
            now = min(max(exposure + change, 0), levels - 1)
            results += [
                ((1.0 - injured) * p * q, y * levels + now, (paid, 0.0))
                for y, q in ((task, 0.5), ((task + 1) % tasks, 0.5))
            ]
        return results

    n_states = tasks * levels
    initial = np.zeros(n_states)
    initial[::levels] = 1.0 / tasks
    world = world_of(
        step,
        n_states=n_states,
        n_actions=4,
        initial=initial,
        objectives=("output", "injuries"),
        discount=0.97,
        end=0.03,
    )
    harmful = np.zeros((n_states, 4), dtype=np.bool_)
    harmful[np.arange(n_states) % levels >= threshold] = True
    return Hazard(world=world, harmful=frozen(harmful, np.bool_), harm=1)


def rare_rewards(rng: Rng, *, n_states: int = 15, n_actions: int = 4) -> World:
    """Steps pay 20 to 60 of "profit" once in 30 to 100 times, else 0; actions differ in how often. "wear" is a small cost."""
    draw = generator(rng)
    size, rate = draw.uniform(20.0, 60.0), draw.uniform(0.01, 0.033, (n_states, n_actions))
    wear = draw.uniform(-0.5, 0.0, (n_states, n_actions))
    return _random_world(
        draw,
        n_states,
        n_actions,
        ("profit", "wear"),
        lambda x, a: [(rate[x, a], (size, wear[x, a])), (1.0 - rate[x, a], (0.0, wear[x, a]))],
        end=0.1,
    )


def rare_cost(rng: Rng, *, n_states: int = 15, n_actions: int = 4, rate: tuple[float, float] = (0.03, 0.12)) -> World:
    """A step costs 1 of "cost" with a probability within ``rate``, which the pair decides, as it does "profit"."""
    draw = generator(rng)
    chance, profit = draw.uniform(*rate, (n_states, n_actions)), draw.random((n_states, n_actions))
    return _random_world(
        draw,
        n_states,
        n_actions,
        ("profit", "cost"),
        lambda x, a: [(chance[x, a], (profit[x, a], -1.0)), (1.0 - chance[x, a], (profit[x, a], 0.0))],
        end=0.1,
    )


def heavy_tails(rng: Rng, *, sites: int = 12, n_actions: int = 4) -> World:
    """Lognormal claims, discretised to 12 values: "profit" is a premium less the claim of a site; "delay" is protected.

    Sites lie on a line; actions are stay, left, right, far right. σ of a claim's logarithm is 1 to 1.6, so that the largest
    values, one in 200, are 15 to 60 times the median.
    """
    draw = generator(rng)
    edges = np.array([0.1, 0.3, 0.5, 0.65, 0.8, 0.87, 0.92, 0.95, 0.975, 0.985, 0.995, 1.0])
    mass = np.diff(np.concatenate([[0.0], edges]))
    from scipy.special import ndtri

    middle = ndtri(edges - mass / 2.0)
    sigma, median = draw.uniform(1.0, 1.6), draw.uniform(0.3, 1.0, (sites, n_actions))
    claim = np.exp(sigma * middle)
    delay = draw.uniform(0.0, 1.0, (sites, n_actions))
    premium = draw.uniform(1.0, 2.0, size=sites)

    def step(x: int, a: int) -> list[Result]:
        to = min(max(x + (0, -1, 1, 3)[a], 0), sites - 1)
        back = max(to - 1, 0)
        return [
            (float(m) * q, y, (float(premium[x] - median[x, a] * c), -float(delay[x, a])))
            for m, c in zip(mass, claim, strict=True)
            for y, q in ((to, 0.75), (back, 0.25))
        ]

    return world_of(
        step,
        n_states=sites,
        n_actions=n_actions,
        initial=np.full(sites, 1.0 / sites),
        objectives=("profit", "delay"),
        discount=0.95,
        end=0.08,
    )


def layered(
    rng: Rng,
    *,
    layers: int = 6,
    width: int = 6,
    n_actions: int = 4,
    discount: float | Sequence[float] = 0.97,
    opposed: bool = False,
    n_objectives: int = 2,
) -> World:
    """A journey through layers of states, from the first layer to beyond the last, with a chance to fall back a layer.

    "r0" is to be gained. With ``opposed``, "r1" is −"r0" less a small cost of the pair: what can be gained safely is no
    more than what is saved of these costs.
    """
    draw, n_states = generator(rng), layers * width
    reward = draw.normal(0.5, 0.5, (n_objectives, n_states, n_actions))
    if opposed:
        reward[1] = -reward[0] - draw.uniform(0.0, 0.05, (n_states, n_actions))
    aim = draw.integers(width, size=(n_states, n_actions))
    hit = draw.uniform(0.5, 0.9, (n_states, n_actions))
    back = draw.uniform(0.0, 0.2, (n_states, n_actions))

    def step(x: int, a: int) -> list[Result]:
        layer, paid = x // width, [float(r) for r in reward[:, x, a]]
        p, fall, first = float(hit[x, a]), float(back[x, a]), (layer + 1) * width
        if layer == layers - 1:
            return [(1.0 - fall, END, paid), (fall, x, paid)]
        ahead: list[Result] = [
            ((1.0 - fall) * p, first + int(aim[x, a]), paid),
            ((1.0 - fall) * (1.0 - p), first + (int(aim[x, a]) + 1) % width, paid),
        ]
        return [*ahead, (fall, max(x - width, x % width), paid)]

    initial = np.append(np.full(width, 1.0 / width), np.zeros(n_states - width))
    return world_of(
        step,
        n_states=n_states,
        n_actions=n_actions,
        initial=initial,
        objectives=tuple(f"r{k}" for k in range(n_objectives)),
        discount=discount,
    )


def arms(rng: Rng, *, contexts: int = 10, n_actions: int = 8) -> World:
    """One decision, then the end: a contextual bandit. "clicks" are yes or no, 5 to 30 %; "refunds" 1 to 6 %."""
    draw = generator(rng)
    click, refund = draw.uniform(0.05, 0.3, (contexts, n_actions)), draw.uniform(0.01, 0.06, (contexts, n_actions))

    def step(x: int, a: int) -> list[Result]:
        p, q = float(click[x, a]), float(refund[x, a])
        return [(p * q, END, (1.0, -1.0)), (p * (1 - q), END, (1.0, 0.0)), (1 - p, END, (0.0, 0.0))]

    return world_of(
        step,
        n_states=contexts,
        n_actions=n_actions,
        initial=draw.dirichlet(np.full(contexts, 3.0)),
        objectives=("clicks", "refunds"),
        discount=0.9,
    )


def _random_world(
    rng: np.random.Generator,
    n_states: int,
    n_actions: int,
    objectives: Sequence[str],
    pay: Callable[[int, int], list[tuple[float, tuple[float, ...]]]],
    *,
    end: float,
) -> World:
    """Random successors, and rewards that do not depend on them."""
    there, share = successors(rng, n_states, n_actions)

    def step(x: int, a: int) -> list[Result]:
        return [
            (float(p * q), int(y), tuple(map(float, paid)))
            for p, paid in pay(x, a)
            for y, q in zip(there[x, a], share[x, a], strict=True)
        ]

    return world_of(
        step,
        n_states=n_states,
        n_actions=n_actions,
        initial=rng.dirichlet(np.ones(n_states)),
        objectives=objectives,
        discount=0.95,
        end=end,
    )
