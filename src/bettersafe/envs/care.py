"""Worlds of care: doses whose toxicity comes late, transfers between wards, an epidemic, a tutor; with random constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.tabular import END, world_of
from bettersafe.typing import generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.envs.tabular import Result, World
    from bettersafe.typing import Floats, Rng

WARD, CLOSE, INTENSIVE = range(3)


def late_toxicity(rng: Rng, *, discount: Sequence[float] = (0.9, 0.97, 0.99)) -> World:
    """Doses against a tumour: states are size 1 … 6 × toxicity 0 … 3 × the dose before, actions none, low and high.

    A dose works at once, and raises toxicity only a step later. "response" is 1 for every step down in size and −1 for every step
    up; the tumour's end ends the episode. "comfort" is −toxicity/3. "hospital" is −1 for an emergency, rare but at the highest toxicity;
    it ends the episode.
    """
    draw = generator(rng)
    shrinks = np.array([0.05, draw.uniform(0.2, 0.35), draw.uniform(0.4, 0.6)])
    grows = np.array([draw.uniform(0.2, 0.3), 0.1, 0.05])
    rises = np.array([0.0, draw.uniform(0.1, 0.25), draw.uniform(0.35, 0.6)])
    falls = draw.uniform(0.2, 0.35)
    emergency = np.array([0.0005, 0.002, 0.01, draw.uniform(0.05, 0.12)])
    resists = draw.uniform(0.7, 1.2, size=6)

    def step(x: int, a: int) -> list[Result]:
        rest, before = divmod(x, 3)
        size, toxic = divmod(rest, 4)
        p = float(emergency[toxic])
        comfort = -toxic / 3.0
        down, up = float(shrinks[a] * resists[size]), float(grows[a])
        later = {min(toxic + 1, 3): float(rises[before])}
        milder = max(toxic - 1, 0)
        later[milder] = later.get(milder, 0.0) + falls * (1.0 - float(rises[before]))
        later[toxic] = later.get(toxic, 0.0) + (1.0 - falls) * (1.0 - float(rises[before]))
        results: list[Result] = [(p, END, (0.0, comfort, -1.0))]
        for change, q in ((-1, down), (1, up), (0, 1.0 - down - up)):
            now = min(size + change, 5)
            for level, share in later.items():
                there = END if now < 0 else (now * 4 + level) * 3 + a
                results.append(((1.0 - p) * q * share, there, (float(size - now), comfort, 0.0)))
        return results

    initial = np.zeros(72)
    initial[[24, 36, 48]] = 1.0 / 3.0
    return world_of(
        step,
        n_states=72,
        n_actions=3,
        initial=initial,
        objectives=("response", "comfort", "hospital"),
        discount=discount,
        end=0.02,
    )


def transfers(rng: Rng, *, severities: int = 7) -> World:
    """Transfers of a patient: states are severity × place (ward, close care, intensive care) × beds (free, few, none).

    Actions: stay, move up, move down, discharge; nobody moves up while there are no beds. "cost" is −(thousands a day of the place),
    "deaths" −1, and "returns" −1 for a discharge that ends in a return: both are rare for mild severities. Better care makes severity
    fall more often, and a death less likely.
    """
    draw = generator(rng)
    price = np.array([0.5, 1.5, 4.0]) * draw.uniform(0.8, 1.2, size=3)
    better = np.array([0.2, 0.32, 0.42]) * draw.uniform(0.85, 1.15, size=3)
    worse = np.array([0.2, 0.12, 0.08]) * draw.uniform(0.85, 1.15, size=3)
    grade = np.arange(severities) / (severities - 1)
    dies = draw.uniform(0.03, 0.06) * grade**3
    saved = np.array([1.0, 0.6, 0.3])
    returns, at_home = 0.01 + 0.5 * grade, draw.uniform(0.3, 0.6) * grade**1.5
    fills = draw.uniform(0.1, 0.25)

    def step(x: int, a: int) -> list[Result]:
        rest, beds = divmod(x, 3)
        severity, place = divmod(rest, 3)
        if a == 3:
            died, back = float(at_home[severity]), float(returns[severity])
            gone = 1.0 - died
            return [
                (died, END, (0.0, -1.0, 0.0)),
                (gone * back, END, (0.0, 0.0, -1.0)),
                (gone - gone * back, END, (0.0,) * 3),
            ]
        now = min(place + 1, INTENSIVE) if a == 1 and beds < 2 else max(place - 1, WARD) if a == 2 else place
        cost, p = -float(price[now]), float(dies[severity] * saved[now])
        results: list[Result] = [(p, END, (cost, -1.0, 0.0))]
        down, up = float(better[now]), float(worse[now])
        for change, q in ((-1, down), (1, up), (0, 1.0 - down - up)):
            state = min(max(severity + change, 0), severities - 1)
            for later, share in ((min(beds + 1, 2), fills), (max(beds - 1, 0), fills), (beds, 1.0 - 2.0 * fills)):
                results.append(((1.0 - p) * q * share, (state * 3 + now) * 3 + later, (cost, 0.0, 0.0)))
        return results

    initial = np.zeros((severities, 3, 3))
    initial[2:6, WARD, :], initial[5:, CLOSE, :] = 1.0, 1.0
    return world_of(
        step,
        n_states=initial.size,
        n_actions=4,
        initial=initial.ravel() / initial.sum(),
        objectives=("cost", "deaths", "returns"),
        discount=0.98,
    )


def epidemic(rng: Rng, *, people: int = 11) -> World:
    """Control of an epidemic (SIR) among few people: states are susceptible × infected, actions four measures, from none to strict.

    Each susceptible person is infected with probability 1 − exp(−β_a I/N), each infected one recovers with a fixed one. "health" is
    −(share of people infected), "economy" −(cost of the measure). The episode ends with the last infection.
    """
    draw = generator(rng)
    contact = draw.uniform(0.8, 1.3) * np.array(
        [1.0, draw.uniform(0.6, 0.9), draw.uniform(0.35, 0.6), draw.uniform(0.1, 0.3)]
    )
    cost = np.array([0.0, draw.uniform(0.1, 0.3), draw.uniform(0.4, 0.8), draw.uniform(1.0, 2.0)])
    recovers = draw.uniform(0.3, 0.5)
    states = [(s, i) for i in range(1, people + 1) for s in range(people - i + 1)]
    index = {state: x for x, state in enumerate(states)}

    def step(x: int, a: int) -> list[Result]:
        healthy, ill = states[x]
        new = _binomial(healthy, 1.0 - float(np.exp(-contact[a] * ill / people)))
        well = _binomial(ill, recovers)
        return [
            (float(p * q), index.get((healthy - n, ill + n - m), END), (-ill / people, -float(cost[a])))
            for n, p in enumerate(new)
            for m, q in enumerate(well)
        ]

    initial = np.zeros(len(states))
    for ill in (2, 3, 4):
        initial[index[people - ill, ill]] = 1.0 / 3.0
    return world_of(
        step, n_states=len(states), n_actions=4, initial=initial, objectives=("health", "economy"), discount=0.98
    )


def tutor(rng: Rng, *, levels: int = 8) -> World:
    """A tutor: states are kind of student (steady, quick, frail; it never changes) × mastery × fatigue 0 … 2.

    Actions: a break, an easy, a middling and a hard exercise. "learning" is 1 for every level gained; the last level ends the course.
    "dropouts" is −1 and ends it too: rare, but for tired students, and frail ones above all. What suits one kind does not suit the others.
    """
    draw = generator(rng)
    gains = np.array([[0.0, 0.2, 0.3, 0.3], [0.0, 0.2, 0.4, 0.6], [0.0, 0.25, 0.2, 0.1]]) * draw.uniform(
        0.8, 1.2, (3, 4)
    )
    tires = np.array([[0.0, 0.1, 0.2, 0.35], [0.0, 0.05, 0.1, 0.15], [0.0, 0.2, 0.5, 0.8]]) * draw.uniform(
        0.8, 1.2, (3, 4)
    )
    leaves = np.array([0.001, 0.01, 0.05]) * np.array([[1.0], [0.5], [draw.uniform(2.0, 4.0)]])

    def step(x: int, a: int) -> list[Result]:
        rest, tired = divmod(x, 3)
        kind, mastery = divmod(rest, levels)
        p, up, more = float(leaves[kind, tired]), float(gains[kind, a]), min(float(tires[kind, a]), 1.0)
        results: list[Result] = [(p, END, (0.0, -1.0))]
        for gained, q in ((1, up), (0, 1.0 - up)):
            fatigue = (
                ((max(tired - 1, 0), 0.8), (tired, 0.2)) if a == 0 else ((min(tired + 1, 2), more), (tired, 1.0 - more))
            )
            for now, share in fatigue:
                there = END if mastery + gained == levels else (kind * levels + mastery + gained) * 3 + now
                results.append(((1.0 - p) * q * share, there, (float(gained), 0.0)))
        return results

    initial = np.zeros((3, levels, 3))
    initial[:, :3, 0] = draw.dirichlet(np.full(3, 5.0))[:, None] / 3.0
    return world_of(
        step,
        n_states=initial.size,
        n_actions=4,
        initial=initial.ravel(),
        objectives=("learning", "dropouts"),
        discount=0.97,
        end=0.01,
    )


def _binomial(n: int, p: float) -> Floats:
    """Binomial probabilities of 0 … n."""
    from scipy.special import comb

    k = np.arange(n + 1)
    return np.asarray(comb(n, k) * p**k * (1.0 - p) ** (n - k))
