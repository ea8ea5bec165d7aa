"""Worlds of the country: sea lanes, an apiary, a brewery, a water mill, a pasture; with random constants.

The first objective is what is to be gained; the others are to be protected.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.hazards import EXPONENTIAL_POINTS, with_noise
from bettersafe.envs.tabular import END, world_of
from bettersafe.typing import generator

if TYPE_CHECKING:
    from bettersafe.envs.tabular import Result, World
    from bettersafe.typing import Rng

SHOALS = (slice(3, 6), slice(2, 6))
"""Rows and columns of the sea where ships are lost."""


def sea_lanes(rng: Rng, *, rows: int = 6, columns: int = 9) -> World:
    """A ship from west to east: states are row × column × calm or rough sea, actions ahead, ahead and north, ahead and south, wait.

    "freight" is paid at the east coast, more in the south, less the days at sea. South of the middle lie shoals: only there, and whatever the
    action is, a ship is lost with 0.6 to 1.5 % in a step, twice as often in a rough sea: −20 to −40 on "losses", and the end.
    """
    draw = generator(rng)
    pays = np.sort(draw.uniform(3.0, 9.0, size=rows)) + draw.uniform(-0.5, 0.5, size=rows)
    sinks, loss = draw.uniform(0.006, 0.015), draw.uniform(20.0, 40.0)
    day, drifts = draw.uniform(0.1, 0.3), draw.uniform(0.05, 0.2)
    rises, calms = draw.uniform(0.1, 0.2), draw.uniform(0.3, 0.5)
    shoals = np.zeros((rows, columns), dtype=bool)
    shoals[SHOALS] = True

    def step(x: int, a: int) -> list[Result]:
        cell, rough = divmod(x, 2)
        row, column = divmod(cell, columns)
        lost = sinks * (1 + rough) if shoals[row, column] else 0.0
        slips = drifts * (1 + rough)
        ahead = column + (a < 3)
        wanted = row + (0, -1, 1, 0)[a]
        turns = calms if rough else rises
        results: list[Result] = [(lost, END, (-day, -loss))]
        for where, p in ((wanted, 1.0 - slips), (wanted - 1, slips / 2.0), (wanted + 1, slips / 2.0)):
            now = min(max(where, 0), rows - 1)
            if ahead == columns:
                results.append(((1.0 - lost) * p, END, (float(pays[now]) - day, 0.0)))
            else:
                results += [
                    ((1.0 - lost) * p * q, (now * columns + ahead) * 2 + sea, (-day, 0.0))
                    for sea, q in ((rough, 1.0 - turns), (1 - rough, turns))
                ]
        return results

    initial = np.zeros((rows, columns, 2))
    initial[:, 0, 0] = draw.dirichlet(np.full(rows, 3.0))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=4,
        initial=initial.ravel(),
        objectives=("freight", "losses"),
        discount=0.99,
    )


def apiary(rng: Rng, *, strengths: int = 5) -> World:
    """Bees through the months of some 16 years: states are month × strength of the colony × few or many mites, actions leave, feed, treat, harvest.

    Months follow each other without fail. "honey" is strength × what blooms in the month, with exponential noise, if it is harvested; "deaths" is −1 for
    a colony that dies, mostly in winter and with mites, and a weak one takes its place. "costs" are those of sugar, treatment and work.
    """
    draw = generator(rng)
    month = np.arange(12)
    warm = np.clip(np.cos(2.0 * np.pi * (month - 6) / 12.0) + draw.uniform(-0.1, 0.1), -1.0, 1.0)
    bloom = np.maximum(warm, 0.0) * draw.uniform(0.7, 1.3, size=12)
    breeds, shrinks = draw.uniform(0.3, 0.5), draw.uniform(0.15, 0.3)
    fed, robbed = draw.uniform(0.1, 0.25), draw.uniform(0.1, 0.3)
    infests, cures, dies = draw.uniform(0.08, 0.2), draw.uniform(0.6, 0.9), draw.uniform(0.04, 0.1)
    cost = (0.0, draw.uniform(0.1, 0.2), draw.uniform(0.15, 0.4), 0.05)

    def step(x: int, a: int) -> list[Result]:
        rest, mites = divmod(x, 2)
        now, strength = divmod(rest, strengths)
        later, heat = (now + 1) % 12, float(warm[now])
        dead = dies * (1.0 + 1.5 * mites) * (1.0 - strength / strengths) * (1.0 if heat < 0.0 else 0.2)
        up = breeds * max(heat, 0.0) * (0.6 if mites else 1.0) + (fed if a == 1 else 0.0)
        down = shrinks * max(-heat, 0.0) * (0.5 if a == 1 else 1.0) + 0.1 * mites + (robbed if a == 3 else 0.0)
        many = (1.0 - cures if a == 2 else 1.0) if mites else (0.02 if a == 2 else infests)
        results: list[Result] = [(dead, later * strengths * 2, (0.0, -1.0, -cost[a]))]
        for by, p in ((1, up * (1.0 - down)), (-1, down * (1.0 - up)), (0, up * down + (1.0 - up) * (1.0 - down))):
            size = min(max(strength + by, 0), strengths - 1)
            for pest, q in ((1, many), (0, 1.0 - many)):
                results.append(
                    ((1.0 - dead) * p * q, (later * strengths + size) * 2 + pest, (0.0, 0.0, -cost[a])),
                )
        taken = float(bloom[now]) * strength if a == 3 else 0.0
        return with_noise(results, 0, taken, EXPONENTIAL_POINTS) if taken else results

    initial = np.zeros((12, strengths, 2))
    initial[3, 1:3, 0] = 0.5
    return world_of(
        step,
        n_states=initial.size,
        n_actions=4,
        initial=initial.ravel(),
        objectives=("honey", "deaths", "costs"),
        discount=0.99,
        end=0.005,
    )


def brewery(rng: Rng, *, sugars: int = 8, healths: int = 4, notches: int = 18) -> World:
    """Beer that ferments: states are sugar left × health of the yeast, actions 18 temperatures.

    "flavour" is paid for each step of sugar, by a curve of the temperature whose peak moves with the sugar, and has normal noise; "energy" grows with the
    square of the distance from the cellar's temperature; "spoiled" is −1 and the end, rare but for weak yeast in the heat. Neighbouring
    temperatures do nearly the same.
    """
    draw = generator(rng)
    heat = np.linspace(0.0, 1.0, notches)
    peak = np.linspace(draw.uniform(0.35, 0.75), draw.uniform(0.25, 0.65), sugars)
    wide, noise, cellar = draw.uniform(0.2, 0.4), draw.uniform(0.3, 0.8), draw.uniform(0.1, 0.4)
    slow, fast = draw.uniform(0.15, 0.3), draw.uniform(0.6, 0.9)
    harm, mends, spoils = draw.uniform(0.2, 0.5), draw.uniform(0.2, 0.4), draw.uniform(0.02, 0.05)
    price = draw.uniform(0.5, 1.5)

    def step(x: int, a: int) -> list[Result]:
        sugar, health = divmod(x, healths)
        warm = float(heat[a])
        weak = 1.0 - health / (healths - 1)
        works = (slow + (fast - slow) * warm) * (1.0 - 0.5 * weak)
        bad = spoils * (0.1 + weak) * warm**2
        down, up = harm * warm**2, mends * (1.0 - warm)
        moves = ((max(health - 1, 0), down * (1.0 - up)), (min(health + 1, healths - 1), up * (1.0 - down)))
        kept = 1.0 - moves[0][1] - moves[1][1]
        cost = -price * (warm - cellar) ** 2
        good = exp(-0.5 * ((warm - float(peak[sugar])) / wide) ** 2)
        results: list[Result] = [(bad, END, (0.0, cost, -1.0))]
        for now, p in (*moves, (health, kept)):
            there = END if sugar == 0 else (sugar - 1) * healths + now
            brewed: list[Result] = [((1.0 - bad) * works * p, there, (good, cost, 0.0))]
            results += with_noise(brewed, 0, noise)
            results.append(((1.0 - bad) * (1.0 - works) * p, sugar * healths + now, (0.0, cost, 0.0)))
        return results

    initial = np.zeros((sugars, healths))
    initial[-1] = draw.dirichlet(np.arange(1.0, healths + 1.0))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=notches,
        initial=initial.ravel(),
        objectives=("flavour", "energy", "spoiled"),
        discount=0.98,
    )


def water_mill(rng: Rng, *, levels: int = 7, sacks: int = 4) -> World:
    """A water mill: states are water in the pond × sacks of grain × season (dry, mild, wet, cold), actions hold, grind, grind fast, open the sluice.

    "flour" is what is ground, with normal noise; "floods" is −1 if the pond overflows; "wear" grows with the speed, and is more if the pond is low.
    Seasons follow each other in a circle.
    """
    draw = generator(rng)
    rain = draw.uniform(0.2, 0.5) + np.array([0.0, 0.25, 0.45, 0.2]) * draw.uniform(0.7, 1.1)
    needs, ground = (0, 1, 2, 2), (0.0, draw.uniform(0.8, 1.2), draw.uniform(1.4, 2.0), 0.0)
    wear = (0.02, draw.uniform(0.1, 0.2), draw.uniform(0.3, 0.6), 0.05)
    comes, passes, noise = draw.uniform(0.5, 0.8), draw.uniform(0.1, 0.25), draw.uniform(0.2, 0.5)

    def step(x: int, a: int) -> list[Result]:
        rest, season = divmod(x, 4)
        water, grain = divmod(rest, sacks)
        runs = a in (1, 2) and water >= needs[a] and grain > 0
        flour = ground[a] * (0.6 + 0.4 * water / levels) if runs else 0.0
        worn = -wear[a] * (1.5 if runs and water <= needs[a] else 1.0)
        left = max(water - needs[a], 0)
        used = grain - (1 if runs else 0)
        p = float(rain[season])
        results: list[Result] = []
        for wet, share in ((0, (1.0 - p) ** 2), (1, 2.0 * p * (1.0 - p)), (2, p**2)):
            for more, q in ((1, comes), (0, 1.0 - comes)):
                for later, r in (((season + 1) % 4, passes), (season, 1.0 - passes)):
                    level = min(left + wet, levels - 1)
                    there = (level * sacks + min(used + more, sacks - 1)) * 4 + later
                    results.append((share * q * r, there, (flour, -float(left + wet >= levels), worn)))
        return with_noise(results, 0, noise) if runs else results

    initial = np.zeros((levels, sacks, 4))
    initial[levels // 2, 1] = 0.25
    return world_of(
        step,
        n_states=initial.size,
        n_actions=4,
        initial=initial.ravel(),
        objectives=("flour", "floods", "wear"),
        discount=0.97,
        end=0.05,
    )


def pasture(rng: Rng, *, grasses: int = 5, herds: int = 3) -> World:
    """A pasture: states are grass × health of the herd × weather (dry, fair, wet), actions near field, far field, rest the field, buy hay.

    Chance decides nearly all: 90 % of what follows is the same whatever the action is, and noise on "milk" is some ten times as large as what actions
    change. "costs" of the actions differ little; "erosion" is −1 at times, more often on short grass, and a little more by the action.
    """
    draw = generator(rng)
    effect = draw.normal(0.0, 0.06, (herds, 3, 4))
    grows = draw.dirichlet(np.full(grasses, 1.0), size=(grasses, 3))
    fares = draw.dirichlet(np.full(herds, 1.0), size=(herds, grasses))
    grazed, kept = (draw.dirichlet(np.full(n, 1.0), size=(n, 4)) for n in (grasses, herds))
    sky, cost = draw.dirichlet(np.full(3, 3.0), size=3), draw.uniform(0.2, 0.3, size=4)
    noise, erodes, tread = draw.uniform(0.5, 1.0), draw.uniform(0.05, 0.15), draw.uniform(0.8, 1.2, size=4)

    def step(x: int, a: int) -> list[Result]:
        rest, weather = divmod(x, 3)
        grass, herd = divmod(rest, herds)
        milk = 0.5 + 0.15 * herd + 0.05 * grass + float(effect[herd, weather, a])
        p = erodes * float(tread[a]) * (1.0 - grass / (grasses + 1.0))
        sward = 0.9 * grows[grass, weather] + 0.1 * grazed[grass, a]
        health = 0.9 * fares[herd, grass] + 0.1 * kept[herd, a]
        chance = np.einsum("g,h,w->ghw", sward, health, sky[weather]).ravel()
        paid = [
            (share * q, (milk + noise * value, -float(cost[a]), -harm))
            for harm, share in ((1.0, p), (0.0, 1.0 - p))
            for value, q in ((-1.0, 0.5), (1.0, 0.5))
        ]
        return [(float(q) * share, there, rewards) for there, q in enumerate(chance) for share, rewards in paid]

    n_states = grasses * herds * 3
    return world_of(
        step,
        n_states=n_states,
        n_actions=4,
        initial=np.full(n_states, 1.0 / n_states),
        objectives=("milk", "costs", "erosion"),
        discount=0.95,
        end=0.05,
    )
