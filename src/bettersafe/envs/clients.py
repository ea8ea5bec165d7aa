"""Worlds of clients: chats, exercises, mail order, headaches, a portal, rides; with random constants.

The first objective is what is to be gained; the others are to be protected.
"""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.hazards import with_noise
from bettersafe.envs.people import up_or_down
from bettersafe.envs.tabular import END, world_of
from bettersafe.typing import generator

if TYPE_CHECKING:
    from bettersafe.envs.tabular import Result, World
    from bettersafe.typing import Rng

COUNTS = ((1, 0.45), (2, 0.25), (3, 0.15), (4, 0.1), (5, 0.05))
"""Parcels of an order, and their probabilities."""


def binomial(n: int, p: float) -> list[tuple[int, float]]:
    """Counts 0 … n and their probabilities."""
    return [(k, comb(n, k) * p**k * (1.0 - p) ** (n - k)) for k in range(n + 1)]


def chats(rng: Rng, *, issues: int = 4, moods: int = 4) -> World:
    """Chats with customers: states are issue × impatience × whether the cause is known, actions ask, explain, repair, apologise, hand over.

    A chat ends when the issue is solved, handed over, or the customer leaves. Only then is anything but time paid: "stars", a rating from 1 to 5 whose
    distribution depends on impatience and on how the chat ended, and "bill", −(price of the last action). "minutes" is −(minutes of the action).
    """
    draw = generator(rng)
    solves = np.array([0.04, 0.25, 0.2, 0.02, 0.0]) * draw.uniform(0.5, 1.5, (issues, 5))
    knows, helps = draw.uniform(0.4, 0.7, issues), draw.uniform(2.0, 3.0)
    tires = np.array([0.35, 0.3, 0.45, 0.1, 0.2]) * draw.uniform(0.8, 1.2, size=5)
    calms = np.array([0.05, 0.1, 0.05, 0.5, 0.1])
    leaves = draw.uniform(0.02, 0.04) * np.array([1.0, 2.0, 4.0, 8.0])
    likes = np.array([0.9, 0.25, 0.55])[:, None] - np.array([[0.06], [0.05], [0.09]]) * np.arange(moods)
    price = np.array([0.1, 0.1, 1.0, 0.2, 1.5]) * draw.uniform(0.8, 1.2, size=5)
    minutes = np.array([0.4, 0.8, 1.0, 0.3, 0.5]) * draw.uniform(0.8, 1.2, size=5)

    def step(x: int, a: int) -> list[Result]:
        rest, known = divmod(x, 2)
        issue, mood = divmod(rest, moods)
        time = -float(minutes[a])
        solved, handed = float(solves[issue, a]) * (helps if known else 1.0), 0.9 if a == 4 else 0.0
        gone = (1.0 - solved - handed) * float(leaves[mood])
        results: list[Result] = [
            (p * q, END, (1.0 + stars, -float(price[a]), time))
            for how, p in enumerate((solved, gone, handed))
            for stars, q in binomial(4, float(likes[how, mood]))
        ]
        found = 1.0 if known else float(knows[issue]) if a == 0 else 0.05
        for now, p in up_or_down(mood, moods - 1, float(tires[a]), float(calms[a])):
            for later, q in ((1, found), (0, 1.0 - found)):
                there = (issue * moods + now) * 2 + later
                results.append(((1.0 - solved - handed - gone) * p * q, there, (0.0, 0.0, time)))
        return results

    initial = np.zeros((issues, moods, 2))
    initial[:, :2, 0] = np.outer(draw.dirichlet(np.full(issues, 5.0)), (0.7, 0.3))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=5,
        initial=initial.ravel(),
        objectives=("stars", "bill", "minutes"),
        discount=0.99,
    )


def exercises(rng: Rng, *, weeks: int = 12, levels: int = 6) -> World:
    """Exercises after an operation, for exactly 12 weeks: states are week × level × sore or not, actions rest, gentle, usual, hard.

    "score" is a function of the next state, at its ceiling in the two best levels, less a small price of the action. "falls" is −1, rare, more often
    at low levels and after hard exercises. "pain" is −(a score from 0 to 5), clipped at both ends.
    """
    draw = generator(rng)
    score = np.minimum(np.linspace(draw.uniform(0.5, 2.0), 12.0, levels), 10.0)
    score[-2:] = 10.0
    minus, price = draw.uniform(0.5, 1.5), np.array([0.0, 0.1, 0.2, 0.3]) * draw.uniform(0.7, 1.3)
    rises = np.array([[0.05, 0.2, 0.35, 0.5], [0.05, 0.15, 0.12, 0.08]]) * draw.uniform(0.8, 1.2, (2, 4))
    falls_back = np.array([[0.2, 0.08, 0.06, 0.06], [0.12, 0.1, 0.2, 0.35]])
    sore_after = np.array([[0.02, 0.1, 0.25, 0.5], [0.25, 0.4, 0.6, 0.85]]) * draw.uniform(0.8, 1.15)
    slips = draw.uniform(0.004, 0.008) * np.outer(np.linspace(2.5, 0.5, levels), (0.4, 0.6, 1.0, 2.0))
    aches = np.array([[0.4, 0.6, 0.9, 1.3], [2.2, 2.8, 3.6, 4.4]]) * draw.uniform(0.8, 1.2)

    def step(x: int, a: int) -> list[Result]:
        rest, sore = divmod(x, 2)
        week, level = divmod(rest, levels)
        results: list[Result] = []
        for now, p in up_or_down(level, levels - 1, float(rises[sore, a]), float(falls_back[sore, a])):
            for later, q in ((1, float(sore_after[sore, a])), (0, 1.0 - float(sore_after[sore, a]))):
                there = ((week + 1) * levels + now) * 2 + later if week < weeks - 1 else END
                got = float(score[now] - minus * later - price[a])
                results += [
                    (p * q * r, there, (got, fell, 0.0))
                    for fell, r in ((-1.0, float(slips[level, a])), (0.0, 1.0 - float(slips[level, a])))
                ]
        noisy = with_noise(results, 2, 1.0)
        ache = float(aches[sore, a])
        return [(p, there, (got, fell, -min(max(ache + noise, 0.0), 5.0))) for p, there, (got, fell, noise) in noisy]

    initial = np.zeros((weeks, levels, 2))
    initial[0] = np.outer(draw.dirichlet(np.linspace(8.0, 1.0, levels)), (0.6, 0.4))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=4,
        initial=initial.ravel(),
        objectives=("score", "falls", "pain"),
        discount=0.99,
    )


def mail_order(rng: Rng, *, recencies: int = 6, frequencies: int = 4) -> World:
    """Customers of a mail order, month by month: states are months since the last order × frequency × quarter, actions none, letter, catalogue, voucher.

    "parcels" is a count with many zeros: 0 in most months, else 1 to 5. "returned" is −(parcels of the month) if they come back, together, more often after a voucher.
    "postage" is −(price of the action). The discount of "parcels" is 0.9, the others' is 0.99.
    """
    draw = generator(rng)
    usual = draw.uniform(0.12, 0.2) * np.outer(np.linspace(1.0, 0.15, recencies), np.linspace(0.5, 1.5, frequencies))
    lifts = np.array([1.0, 1.4, 2.0, 2.4]) * draw.uniform(0.85, 1.15, (frequencies, 4))
    season, back = draw.uniform(0.7, 1.3, size=4), np.array([0.1, 0.1, 0.15, 0.3]) * draw.uniform(0.8, 1.2, size=4)
    price = np.array([0.0, 0.05, 0.2, 0.15]) * draw.uniform(0.8, 1.2, size=4)
    more, less, lost = draw.uniform(0.4, 0.6), draw.uniform(0.05, 0.1), draw.uniform(0.05, 0.1)

    def step(x: int, a: int) -> list[Result]:
        rest, quarter = divmod(x, 4)
        since, often = divmod(rest, frequencies)
        buys = min(float(usual[since, often] * lifts[often, a] * season[quarter]), 0.8)
        gone, cost = lost if since == recencies - 1 else 0.01, -float(price[a])
        results: list[Result] = [((1.0 - buys) * gone, END, (0.0, 0.0, cost))]
        for when, p in (((quarter + 1) % 4, 1.0 / 3.0), (quarter, 2.0 / 3.0)):
            for now, q in up_or_down(often, frequencies - 1, 0.0, less):
                there = (min(since + 1, recencies - 1) * frequencies + now) * 4 + when
                results.append(((1.0 - buys) * (1.0 - gone) * p * q, there, (0.0, 0.0, cost)))
            for now, q in up_or_down(often, frequencies - 1, more, 0.0):
                results += [
                    (buys * p * q * share * r, now * 4 + when, (float(n), -float(bad), cost))
                    for n, share in COUNTS
                    for bad, r in ((n, float(back[a])), (0, 1.0 - float(back[a])))
                ]
        return results

    initial = np.zeros((recencies, frequencies, 4))
    initial[0, :2] = np.outer((0.7, 0.3), np.full(4, 0.25))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=4,
        initial=initial.ravel(),
        objectives=("parcels", "returned", "postage"),
        discount=(0.9, 0.99, 0.99),
        end=0.02,
    )


def headaches(rng: Rng, *, severities: int = 4, uses: int = 3, types: int = 3) -> World:
    """Patients with headaches: states are severity × overuse of drugs × type, actions none, mild, specific, preventive, strong.

    "comfort" is a rating from 1 to 5 in every step, and "worked" is 0 or 1; both go down with severity. "costs" mixes a price with a rare loss:
    −(price of the action), and 20 to 40 more if the patient has to go to hospital, with 0.2 to 3 %, by overuse and action.
    """
    draw = generator(rng)
    eases = np.array([0.1, 0.25, 0.45, 0.2, 0.55]) * draw.uniform(0.5, 1.4, (types, 5))
    worsens = draw.uniform(0.1, 0.2, types)[:, None] * np.array([1.0, 1.0, 1.0, 0.4, 1.0])
    hooks = np.array([0.0, 0.12, 0.15, 0.02, 0.4]) * draw.uniform(0.8, 1.2, size=5)
    frees = np.array([0.5, 0.2, 0.1, 0.35, 0.02])
    likes = np.linspace(draw.uniform(0.75, 0.9), draw.uniform(0.15, 0.3), severities)
    nausea = np.array([0.0, 0.02, 0.05, 0.12, 0.1]) * draw.uniform(0.7, 1.3, size=5)
    price = np.array([0.0, 0.1, 0.5, 0.6, 0.3]) * draw.uniform(0.8, 1.2, size=5)
    bad = draw.uniform(0.003, 0.005) * np.outer((1.0, 1.6, 2.5), (0.6, 0.8, 1.0, 0.7, 2.0))
    loss = draw.uniform(20.0, 40.0)

    def step(x: int, a: int) -> list[Result]:
        rest, kind = divmod(x, types)
        severity, use = divmod(rest, uses)
        content, works = float(likes[severity] - nausea[a]), 0.95 - 0.25 * severity
        admitted, cost = float(bad[use, a]), -float(price[a])
        paid = [
            (p * q * r, (1.0 + stars, cost - harm, worked))
            for stars, p in binomial(4, content)
            for worked, q in ((1.0, works), (0.0, 1.0 - works))
            for harm, r in ((loss, admitted), (0.0, 1.0 - admitted))
        ]
        up = float(worsens[kind, a]) * (1.0 + 0.5 * use)
        return [
            (p * q * share, (now * uses + later) * types + kind, rewards)
            for now, p in up_or_down(severity, severities - 1, up, float(eases[kind, a]))
            for later, q in up_or_down(use, uses - 1, float(hooks[a]), float(frees[a]))
            for share, rewards in paid
        ]

    initial = np.zeros((severities, uses, types))
    initial[:] = np.einsum("s,u,t->sut", (0.1, 0.3, 0.4, 0.2), (0.6, 0.3, 0.1), draw.dirichlet(np.full(types, 6.0)))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=5,
        initial=initial.ravel(),
        objectives=("comfort", "costs", "worked"),
        discount=0.97,
        end=0.06,
    )


def portal(rng: Rng, *, hubs: int = 3, pages: int = 90) -> World:
    """A portal: states are three front pages, for three kinds of visitors, and 90 other pages, each of them seldom seen; actions five blocks to show.

    Some six of seven visits are to a front page, where a visitor stays for long. "reads" is 0 or 1. "reports" is −1: very rare on front pages,
    and 5 to 15 % for one block on a third of the other pages. "adverts" is what the block earns, whether it is read or not.
    """
    draw = generator(rng)
    reads = np.clip(draw.uniform(0.15, 0.4, (hubs + pages, 1)) + draw.normal(0.0, 0.1, (hubs + pages, 5)), 0.03, 0.9)
    reports = np.full((hubs + pages, 5), 0.002)
    bad = hubs + draw.permutation(pages)[: pages // 3]
    reports[bad, draw.integers(5, size=bad.size)] = draw.uniform(0.05, 0.15, size=bad.size)
    earns, likely = draw.uniform(0.05, 0.2, size=5), draw.dirichlet(np.full(pages, 3.0), size=hubs)
    clicks, returns = draw.uniform(0.1, 0.16, (hubs, 5)), draw.uniform(0.6, 0.8)
    home = draw.dirichlet(np.full(hubs, 2.0), size=pages)

    def step(x: int, a: int) -> list[Result]:
        advert = float(earns[a])
        if x < hubs:
            on = float(clicks[x, a])
            moves = [(x, 1.0 - on), *((hubs + page, on * float(p)) for page, p in enumerate(likely[x]))]
        else:
            moves = [(x, 1.0 - returns), *((hub, returns * float(p)) for hub, p in enumerate(home[x - hubs]))]
        read, bad = float(reads[x, a]), float(reports[x, a])
        return [
            (share * p * q, there, (got, harm, advert))
            for there, share in moves
            for got, p in ((1.0, read), (0.0, 1.0 - read))
            for harm, q in ((-1.0, bad), (0.0, 1.0 - bad))
        ]

    initial = np.zeros(hubs + pages)
    initial[:hubs] = draw.dirichlet(np.full(hubs, 5.0))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=5,
        initial=initial,
        objectives=("reads", "reports", "adverts"),
        discount=0.98,
        end=0.06,
    )


def rides(rng: Rng, *, places: int = 5, hours: int = 3, cars: int = 4) -> World:
    """Rides in two steps: first a car is picked, then a fare is set. States are place × hour, before and after the pick; actions are 4 cars, then 4 fares.

    Nothing but "waiting", −(minutes until the car comes), is paid for the pick. If the rider accepts the fare, "drivers" is the fare less the cost of
    the ride, and "riders" is what the ride is worth, beyond what a rival offers, less the fare: what one gets the other pays, but the right
    car is good for both. Who does not accept asks again or leaves, as often as after a ride.
    """
    draw = generator(rng)
    worth = draw.uniform(2.8, 3.4, (places, hours, 1)) + draw.normal(0.0, 0.3, (places, hours, cars))
    cost = draw.uniform(1.2, 2.0, (places, 1, 1)) * draw.uniform(0.85, 1.15, (places, hours, cars))
    minutes = draw.uniform(0.1, 0.8, (places, hours, cars))
    fares = np.array([1.6, 2.4, 3.2, 4.0]) * draw.uniform(0.9, 1.1)
    tries, leaves = draw.uniform(0.8, 1.2), draw.uniform(0.15, 0.25)
    goes, turns = draw.dirichlet(np.full(places, 1.5), size=places), draw.uniform(0.1, 0.2)
    picks = places * hours

    def step(x: int, a: int) -> list[Result]:
        if x < picks:
            return [(1.0, picks + x * cars + a, (0.0, 0.0, -float(minutes.flat[x * cars + a])))]
        at, car = divmod(x - picks, cars)
        place, hour = divmod(at, hours)
        value, fare = float(worth[place, hour, car]), float(fares[a])
        takes = float(1.0 / (1.0 + np.exp(-(value - fare) / tries)))
        taken: list[Result] = []
        for there, p in enumerate(goes[place]):
            for later, q in (((hour + 1) % hours, turns), (hour, 1.0 - turns)):
                paid = (fare - float(cost[place, hour, car]), value - fare, 0.0)
                taken.append((takes * (1.0 - leaves) * float(p) * q, there * hours + later, paid))
        results = with_noise([*taken, (takes * leaves, END, taken[0][2])], 1, 0.3)
        nothing = (0.0, 0.0, 0.0)
        return [*results, ((1.0 - takes) * leaves, END, nothing), ((1.0 - takes) * (1.0 - leaves), at, nothing)]

    initial = np.zeros(picks * (1 + cars))
    initial[:picks] = draw.dirichlet(np.full(picks, 4.0))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=cars,
        initial=initial,
        objectives=("drivers", "riders", "waiting"),
        discount=0.98,
    )
