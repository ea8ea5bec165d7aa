"""Worlds of works: a pipeline of products, crops in rotation, a greenhouse, a kiln, a long building; with random constants.

The first objective is what is to be gained; the others are to be protected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.hazards import EXPONENTIAL_POINTS, with_noise
from bettersafe.envs.tabular import END, world_of
from bettersafe.typing import generator

if TYPE_CHECKING:
    from bettersafe.envs.tabular import Result, World
    from bettersafe.typing import Rng


def pipeline(rng: Rng, *, stages: int = 5, grades: int = 4) -> World:
    """A pipeline of products: states are stage × promise, actions drop, small trial, large trial, sell the licence.

    A trial costs money on "spending", moves the promise, and may lead to the next stage. From the last stage a product comes out, and few of
    them are a success, 1 to 8 % by promise, which pays an exponential amount of mean 60 to 120 on "income"; all others pay about 1.
    A licence pays a sure small amount. Then, as after a drop, a new product starts.
    """
    draw = generator(rng)
    price = draw.uniform(0.1, 0.4, size=stages)
    advances = np.array([draw.uniform(0.3, 0.5), draw.uniform(0.55, 0.8)])
    success = np.sort(draw.uniform(0.01, 0.08, size=grades))
    worth, plain = draw.uniform(60.0, 120.0), draw.uniform(0.5, 1.5)
    licence = np.outer(draw.uniform(0.1, 0.3) * np.arange(1, stages + 1), 1.0 + np.arange(grades)) / grades
    new = draw.dirichlet(np.full(grades, 2.0))
    rises, falls = draw.uniform(0.1, 0.3), draw.uniform(0.2, 0.4)

    def started(p: float, income: float, cost: float) -> list[Result]:
        return [(p * float(q), grade, (income, cost)) for grade, q in enumerate(new)]

    def step(x: int, a: int) -> list[Result]:
        stage, grade = divmod(x, grades)
        if a in (0, 3):
            return started(1.0, float(licence[stage, grade]) if a == 3 else 0.0, 0.0)
        cost, on = -float(price[stage]) * (1.0 if a == 1 else 2.5), float(advances[a - 1])
        moves = ((min(grade + 1, grades - 1), rises), (max(grade - 1, 0), falls), (grade, 1.0 - rises - falls))
        results: list[Result] = [((1.0 - on) * q, stage * grades + now, (0.0, cost)) for now, q in moves]
        if stage < stages - 1:
            return results + [(on * q, (stage + 1) * grades + now, (0.0, cost)) for now, q in moves]
        p = float(success[grade])
        results += started(on * (1.0 - p), plain, cost)
        return results + with_noise(started(on * p, 0.0, cost), 0, worth, EXPONENTIAL_POINTS)

    initial = np.zeros(stages * grades)
    initial[:grades] = new
    return world_of(
        step,
        n_states=stages * grades,
        n_actions=4,
        initial=initial,
        objectives=("income", "spending"),
        discount=0.98,
        end=0.03,
    )


def crop_rotation(rng: Rng, *, soils: int = 4, crops: int = 5) -> World:
    """Crops in rotation: states are soil × the crop before × outlook (dry, fair, wet), actions the next crop.

    The "yield" has normal noise whose standard deviation is the soil's, outlook's and crop's own, 0.1 to 3 and unrelated to its mean. It is lower
    after the same crop. "nitrate" is −(what is washed out), with exponential noise of another scale for each soil and crop.
    """
    draw = generator(rng)
    mean = draw.uniform(0.5, 2.0, (soils, crops)) * draw.uniform(0.6, 1.4, (3, 1, crops))  # outlook, soil, crop
    noise = np.exp(draw.uniform(np.log(0.1), np.log(3.0), mean.shape))
    nitrate, varies = draw.uniform(0.1, 0.8, (soils, crops)), draw.uniform(0.05, 0.6, (soils, crops))
    again, outlook = draw.uniform(0.5, 0.8), draw.dirichlet(np.full(3, 4.0), size=3)

    def step(x: int, a: int) -> list[Result]:
        rest, sky = divmod(x, 3)
        soil, before = divmod(rest, crops)
        grown = float(mean[sky, soil, a]) * (again if a == before else 1.0)
        results: list[Result] = [
            (float(p), (soil * crops + a) * 3 + later, (grown, -float(nitrate[soil, a])))
            for later, p in enumerate(outlook[sky])
        ]
        washed = with_noise(results, 1, -float(varies[soil, a]), EXPONENTIAL_POINTS)
        return with_noise(washed, 0, float(noise[sky, soil, a]))

    n_states = soils * crops * 3
    return world_of(
        step,
        n_states=n_states,
        n_actions=crops,
        initial=np.full(n_states, 1.0 / n_states),
        objectives=("yield", "nitrate"),
        discount=0.97,
        end=0.08,
    )


def greenhouse(rng: Rng, *, pests: int = 7, hunters: int = 4) -> World:
    """A greenhouse with pests and those who eat them: states are pests × hunters × a new or old crop, actions none, spray, release, trim.

    "harvest" is 1 with a probability that falls with the pests, and is lower for an old crop. A spray kills both, and costs 1 on "residue";
    released hunters have a price on "cost", and so has trimming, which makes the crop new. Hunters grow while there is something to eat.
    """
    draw = generator(rng)
    breeds, eats = draw.uniform(0.35, 0.6), draw.uniform(0.15, 0.3)
    sprayed, hit = draw.uniform(0.6, 0.9), draw.uniform(0.4, 0.8)
    price, ages = np.array([0.0, 0.1, draw.uniform(0.3, 0.6), draw.uniform(0.2, 0.5)]), draw.uniform(0.15, 0.3)
    health, older = draw.uniform(0.6, 0.9), draw.uniform(0.5, 0.8)

    def step(x: int, a: int) -> list[Result]:
        rest, old = divmod(x, 2)
        pest, hunter = divmod(rest, hunters)
        up, eaten = (breeds if pest else 0.2), min(eats * hunter, 0.8)
        change = [(1, up * (1.0 - eaten)), (-1, eaten * (1.0 - up)), (0, up * eaten + (1.0 - up) * (1.0 - eaten))]
        if a == 1:
            change = [(-2, sprayed), *((by, (1.0 - sprayed) * p) for by, p in change)]
        fewer = hit if a == 1 else 0.1 if pest else 0.4
        more = 0.9 if a == 2 else 0.1 * min(pest, 3)
        grows = (
            (1, more * (1.0 - fewer)),
            (-1, fewer * (1.0 - more)),
            (0, more * fewer + (1.0 - more) * (1.0 - fewer)),
        )
        picked = health * (1.0 - pest / pests) * (older if old else 1.0)
        aged = ((0, 1.0),) if a == 3 else ((1, 1.0),) if old else ((1, ages), (0, 1.0 - ages))
        return [
            (
                p * q * share * got,
                (min(max(pest + by, 0), pests - 1) * hunters + min(max(hunter + to, 0), hunters - 1)) * 2 + crop,
                (paid, -float(a == 1), -float(price[a])),
            )
            for by, p in change
            for to, q in grows
            for crop, share in aged
            for paid, got in ((1.0, picked), (0.0, 1.0 - picked))
        ]

    initial = np.zeros((pests, hunters, 2))
    initial[1:4, 0, 0] = 1.0 / 3.0
    return world_of(
        step,
        n_states=initial.size,
        n_actions=4,
        initial=initial.ravel(),
        objectives=("harvest", "residue", "cost"),
        discount=0.96,
        end=0.04,
    )


def kiln(rng: Rng, *, heats: int = 8, phases: int = 5, faults: int = 3) -> World:
    """A kiln: states are phase × heat × faults of the load, actions cool, hold, heat.

    Every phase has a heat that suits it; two or more away from it a fault is likely. The end of the last phase pays 10 less 3 for each
    fault, with normal noise, on "quality". "fuel" is −(a price × heat). A load can crack when a hot kiln is heated on: −1 on "cracks".
    """
    draw = generator(rng)
    suits = np.clip(np.cumsum(np.array([2, *draw.integers(0, 3, size=phases - 1)])) - 1, 1, heats - 2)
    suits[-1] = draw.integers(1, 4)  # the load is cooled at the end
    spoils, follows = draw.uniform(0.15, 0.35), draw.uniform(0.7, 0.9)
    price, goes_on = draw.uniform(0.05, 0.15), draw.uniform(0.35, 0.5)
    cracks = draw.uniform(0.03, 0.1)

    def step(x: int, a: int) -> list[Result]:
        rest, faulty = divmod(x, faults)
        phase, heat = divmod(rest, heats)
        away = abs(heat - int(suits[phase]))
        bad = spoils * max(away - 1, 0) if away < 4 else min(3.0 * spoils, 0.9)
        crack = cracks if a == 2 and heat >= heats // 2 else 0.0
        results: list[Result] = []
        for moved, p in ((a - 1, follows), (0, 0.6 * (1.0 - follows)), (-1, 0.4 * (1.0 - follows))):
            now = min(max(heat + moved, 0), heats - 1)
            for cracked, q in ((1, crack), (0, 1.0 - crack)):
                for spoilt, share in ((1, bad), (0, 1.0 - bad)):
                    found = min(faulty + spoilt + cracked, faults - 1)
                    fuel, harm = -price * heat, -float(cracked)
                    here = (phase * heats + now) * faults + found
                    results.append((p * q * share * (1.0 - goes_on), here, (0.0, fuel, harm)))
                    on: Result = (p * q * share * goes_on, here + heats * faults, (0.0, fuel, harm))
                    if phase == phases - 1:
                        results += with_noise([(on[0], END, (10.0 - 3.0 * found, fuel, harm))], 0, 1.0)
                    else:
                        results.append(on)
        return results

    return world_of(
        step,
        n_states=phases * heats * faults,
        n_actions=3,
        initial=faults,
        objectives=("quality", "fuel", "cracks"),
        discount=0.99,
    )


def long_building(rng: Rng, *, sections: int = 30, flaws: int = 5) -> World:
    """A building of 30 sections, one after another: states are section × flaws, actions hurry, work, work and check.

    "hours" is −(hours of the section), exponential. Flaws do nothing until the last third, where each makes it likelier that five sections have
    to be built again; and at the end they decide whether the building fails its inspection, −1 on "failed". The discount is 0.999.
    """
    draw = generator(rng)
    hours = np.array([1.0, draw.uniform(1.3, 1.8), draw.uniform(2.0, 3.0)]) * draw.uniform(0.7, 1.3, (sections, 1))
    adds = np.array([draw.uniform(0.12, 0.25), draw.uniform(0.04, 0.08), 0.01])
    finds, again = draw.uniform(0.3, 0.6), draw.uniform(0.01, 0.04)
    fails = np.minimum(draw.uniform(0.05, 0.15) * np.arange(flaws), 0.9) + 0.01

    def step(x: int, a: int) -> list[Result]:
        section, flawed = divmod(x, flaws)
        up = float(adds[a])
        down = finds * (1.0 - up) if a == 2 and flawed else 0.0
        back = again * flawed if section >= 2 * sections // 3 else 0.0
        results: list[Result] = []
        for change, p in ((1, up), (-1, down), (0, 1.0 - up - down)):
            now = min(flawed + change, flaws - 1)
            if section < sections - 1:
                results.append((p * (1.0 - back), (section + 1) * flaws + now, (0.0, 0.0)))
            else:
                failed = float(fails[now])
                results.append((p * (1.0 - back) * failed, END, (0.0, -1.0)))
                results.append((p * (1.0 - back) * (1.0 - failed), END, (0.0, 0.0)))
            results.append((p * back, (section - 5) * flaws + max(now - 1, 0), (0.0, 0.0)))
        return with_noise(results, 0, -float(hours[section, a]), EXPONENTIAL_POINTS)

    return world_of(
        step,
        n_states=sections * flaws,
        n_actions=3,
        initial=0,
        objectives=("hours", "failed"),
        discount=0.999,
    )
