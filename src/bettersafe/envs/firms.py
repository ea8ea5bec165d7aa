"""Worlds of firms: an insurer, pumps, a baking line, crews, faults of machines; with random constants.

The first objective is what is to be gained; the others are to be protected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.hazards import EXPONENTIAL_POINTS, with_noise
from bettersafe.envs.people import up_or_down
from bettersafe.envs.tabular import world_of
from bettersafe.typing import generator

if TYPE_CHECKING:
    from bettersafe.envs.tabular import Result, World
    from bettersafe.typing import Rng


def insurer(rng: Rng, *, shares: int = 7) -> World:
    """An insurer of houses at the coast: states are share at the coast × quarter × soft or hard market, actions run off, hold, write, write much, reinsure.

    "premiums" is paid on the share, more in a hard market, with normal noise. A storm costs 10 to 25 on "storms", with 1.5 to 4 % in each of the last
    two quarters, if the share is in its upper half: by the state alone, whatever the action is. "expenses" is −(cost of the action).
    The supervisor's discount, that of "storms", is 0.99, the others' 0.95.
    """
    draw = generator(rng)
    rate = 0.3 * draw.uniform(0.8, 1.2) * np.array([1.0, draw.uniform(1.3, 1.8)])
    chance, loss = draw.uniform(0.015, 0.04), draw.uniform(10.0, 25.0)
    grows, shrinks = np.array([0.02, 0.1, 0.4, 0.75, 0.05]), np.array([0.7, 0.15, 0.1, 0.05, 0.85])
    cost = np.array([0.02, 0.0, 0.1, 0.3, 0.35]) * draw.uniform(0.8, 1.2, size=5)
    turns, noise = draw.uniform(0.08, 0.2, size=2), draw.uniform(0.2, 0.5)

    def step(x: int, a: int) -> list[Result]:
        rest, hard = divmod(x, 2)
        share, quarter = divmod(rest, 4)
        earned, spent = float(rate[hard]) * share, -float(cost[a])
        storm = chance if quarter >= 2 and share > shares // 2 else 0.0
        turn = float(turns[hard])
        results: list[Result] = [
            (p * q * struck, (now * 4 + (quarter + 1) % 4) * 2 + market, (earned, -harm, spent))
            for now, p in up_or_down(share, shares - 1, float(grows[a]), float(shrinks[a]))
            for market, q in ((1 - hard, turn), (hard, 1.0 - turn))
            for harm, struck in ((loss, storm), (0.0, 1.0 - storm))
        ]
        return with_noise(results, 0, noise) if share else results

    initial = np.zeros((shares, 4, 2))
    initial[1:5, 0] = np.outer(np.full(4, 0.25), (0.6, 0.4))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=5,
        initial=initial.ravel(),
        objectives=("premiums", "storms", "expenses"),
        discount=(0.95, 0.99, 0.95),
        end=0.03,
    )


def pumps(rng: Rng, *, levels: int = 6) -> World:
    """Pumps of a basin: states are water × inflow (dry, wet, storm) × part of the day × whether they run, actions 0 to 3 pumps.

    "energy" is −(pumps × price), which is high in two parts of the day. "overflows" is −1 if the basin runs over, rare but in a storm;
    "starts" is −1 if pumps start that did not run.
    """
    draw = generator(rng)
    price = 0.3 * draw.uniform(0.8, 1.2, size=4) * np.array([0.5, 1.0, 1.6, 1.2])
    comes = np.array([draw.uniform(0.1, 0.25), draw.uniform(0.4, 0.6), draw.uniform(0.8, 0.95)])
    twice, works = np.array([0.02, 0.15, draw.uniform(0.4, 0.7)]), draw.uniform(0.6, 0.85)
    sky = np.vstack(
        [draw.dirichlet((20.0, 3.0, 0.5)), draw.dirichlet((5.0, 12.0, 2.0)), draw.dirichlet((1.0, 4.0, 6.0))]
    )

    def step(x: int, a: int) -> list[Result]:
        rest, runs = divmod(x, 2)
        rest, part = divmod(rest, 4)
        level, inflow = divmod(rest, 3)
        energy, starts = -float(a * price[part]), -float(a > 0 and not runs)
        one, two = float(comes[inflow]), float(twice[inflow])
        results: list[Result] = []
        for came, p in ((0, 1.0 - one), (1, one * (1.0 - two)), (2, one * two)):
            for gone, q in ((a, works), (max(a - 1, 0), 1.0 - works)):
                now = max(level - gone, 0) + came
                for later, r in enumerate(sky[inflow]):
                    there = ((min(now, levels - 1) * 3 + later) * 4 + (part + 1) % 4) * 2 + int(a > 0)
                    results.append((p * q * float(r), there, (energy, -float(now >= levels), starts)))
        return results

    initial = np.zeros((levels, 3, 4, 2))
    initial[1:4, 0, 0, 0] = 1.0 / 3.0
    return world_of(
        step,
        n_states=initial.size,
        n_actions=4,
        initial=initial.ravel(),
        objectives=("energy", "overflows", "starts"),
        discount=0.99,
        end=0.02,
    )


def baking_line(rng: Rng, *, heats: int = 6, doughs: int = 4, wears: int = 3) -> World:
    """A baking line: states are heat of the oven × how far the dough has risen × wear, actions cool, wait, heat, clean.

    "loaves", 0 to 3, "scrap", −(loaves that are spoilt), "customers", 0 to 1, and "energy", −(what a bad oven wastes), all depend on how far the
    oven is from the heat that suits the dough, and on wear: what is good for one of them is good for all. Actions do what they say.
    """
    draw = generator(rng)
    suits = np.clip(np.linspace(draw.uniform(0.5, 2.5), draw.uniform(2.5, 4.5), doughs), 0.0, heats - 1.0)
    narrow, worn = draw.uniform(0.25, 0.45), draw.uniform(0.25, 0.4)
    follows, rises, sinks = draw.uniform(0.9, 0.98), draw.uniform(0.2, 0.4), draw.uniform(0.2, 0.4)
    wears_out, waste = draw.uniform(0.1, 0.2), draw.uniform(0.3, 0.6)

    def step(x: int, a: int) -> list[Result]:
        rest, wear = divmod(x, wears)
        heat, dough = divmod(rest, doughs)
        good = float(np.exp(-narrow * (heat - suits[dough]) ** 2)) * (1.0 - worn * wear) * (0.5 if a == 3 else 1.0)
        results: list[Result] = []
        by = (-1, 0, 1, 0)[a]
        tired = ((0, 0.9), (wear, 0.1)) if a == 3 else up_or_down(wear, wears - 1, wears_out, 0.0)
        for now, p in ((min(max(heat + by, 0), heats - 1), follows), (heat, 1.0 - follows)):
            for risen, q in up_or_down(dough, doughs - 1, rises, sinks):
                for later, r in tired:
                    there = (now * doughs + risen) * wears + later
                    results += [
                        (p * q * r * share, there, (made, -spoilt, good, -waste * (1.0 - good)))
                        for made, spoilt, share in (
                            (3.0, 0.0, good**2),
                            (2.0, 0.5, 2.0 * good * (1.0 - good)),
                            (0.0, 2.0, (1.0 - good) ** 2),
                        )
                    ]
        return results

    initial = np.zeros((heats, doughs, wears))
    initial[:3, :2, 0] = 1.0 / 6.0
    return world_of(
        step,
        n_states=initial.size,
        n_actions=4,
        initial=initial.ravel(),
        objectives=("loaves", "scrap", "customers", "energy"),
        discount=0.97,
        end=0.04,
    )


def crews(rng: Rng, *, kinds: int = 4, loads: int = 3) -> World:
    """Jobs for three crews: states are kind of job × load of each crew, actions first, second, third crew, postpone.

    "done" is 1 if the crew manages the job: each has its strengths, and a loaded crew fails more often. "overtime" of a crew is −(its load) if it gets
    a job: what one crew is spared, another has to do. "travel" is −(way to the job), "late" −1 for a job that is postponed and comes back later.
    """
    draw = generator(rng)
    manages = draw.uniform(0.5, 0.95, (kinds, 3))
    way = draw.uniform(0.1, 1.0, (kinds, 3))
    comes = draw.dirichlet(np.full(kinds, 4.0))
    harder, rests, tires = draw.uniform(0.1, 0.25), draw.uniform(0.3, 0.5, size=3), draw.uniform(0.6, 0.9, size=3)

    def step(x: int, a: int) -> list[Result]:
        kind, rest = divmod(x, loads**3)
        crew_loads = [rest // loads**i % loads for i in range(3)]
        paid = [0.0] * 6
        if a < 3:
            paid[1 + a], paid[4] = -float(crew_loads[a]), -float(way[kind, a])
        else:
            paid[5] = -1.0
        p = float(manages[kind, a]) * (1.0 - harder * crew_loads[a]) if a < 3 else 0.0
        moves = [
            up_or_down(load, loads - 1, *((float(tires[i]), 0.0) if i == a else (0.0, float(rests[i]))))
            for i, load in enumerate(crew_loads)
        ]
        return [
            (share * q0 * q1 * q2 * float(r), ((after * loads + l2) * loads + l1) * loads + l0, (done, *paid[1:]))
            for done, share in ((1.0, p), (0.0, 1.0 - p))
            for l0, q0 in moves[0]
            for l1, q1 in moves[1]
            for l2, q2 in moves[2]
            for after, r in enumerate(comes)
        ]

    initial = np.zeros((kinds, loads**3))
    initial[:, 0] = comes
    return world_of(
        step,
        n_states=initial.size,
        n_actions=4,
        initial=initial.ravel(),
        objectives=("done", "overtime 1", "overtime 2", "overtime 3", "travel", "late"),
        discount=0.97,
        end=0.04,
    )


def faults(rng: Rng, *, kinds: int = 18) -> World:
    """Faults of machines: states are kind of fault × first or later attempt × plant quiet, usual, busy; actions restart, clean, adjust, replace, call.

    The commonest kind comes some 75 times as often as the rarest, by rank^−1.5. "fixed" is 1 if the action helps: then the next fault comes, else another
    attempt. "hours" is −(hours of the action), exponential. "output" is −(what a busy plant loses while machines stand), in every step: it depends on
    the plant alone, which no action changes.
    """
    draw = generator(rng)
    often = draw.permutation(np.arange(1.0, kinds + 1.0) ** -1.5)
    often /= often.sum()
    helps = np.clip(draw.beta(1.2, 2.0, (kinds, 5)) * np.array([0.7, 0.8, 1.0, 1.3, 1.2]), 0.03, 0.95)
    hours = np.array([0.2, 0.5, 0.7, 1.2, 1.5]) * draw.uniform(0.7, 1.3, size=5)
    again, lost = draw.uniform(0.5, 0.8), np.array([0.2, 0.5, 1.0]) * draw.uniform(0.7, 1.3)
    plant = np.vstack(
        [draw.dirichlet((8.0, 3.0, 1.0)), draw.dirichlet((2.0, 8.0, 2.0)), draw.dirichlet((1.0, 3.0, 8.0))]
    )

    def step(x: int, a: int) -> list[Result]:
        rest, busy = divmod(x, 3)
        kind, later = divmod(rest, 2)
        p, out = float(helps[kind, a]) * (again if later else 1.0), -float(lost[busy])
        results: list[Result] = []
        for now, q in enumerate(plant[busy]):
            results.append(((1.0 - p) * float(q), (kind * 2 + 1) * 3 + now, (0.0, 0.0, out)))
            results += [(p * float(q * r), after * 6 + now, (1.0, 0.0, out)) for after, r in enumerate(often)]
        return with_noise(results, 1, -float(hours[a]), EXPONENTIAL_POINTS)

    initial = np.zeros((kinds, 2, 3))
    initial[:, 0] = often[:, None] / 3.0
    return world_of(
        step,
        n_states=initial.size,
        n_actions=5,
        initial=initial.ravel(),
        objectives=("fixed", "hours", "output"),
        discount=0.96,
        end=0.04,
    )
