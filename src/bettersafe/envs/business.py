"""Worlds of business: a sales funnel, donors, an exchange, a street stall, a restaurant, a help desk; with random constants.

The first objective is what is to be gained; the others are to be protected.
"""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.hazards import EXPONENTIAL_POINTS, with_noise
from bettersafe.envs.tabular import END, world_of
from bettersafe.typing import generator

if TYPE_CHECKING:
    from bettersafe.envs.tabular import Result, World
    from bettersafe.typing import Rng

HEAVY_POINTS = (
    (-22.316, 0.004), (-6.795, 0.016), (-3.257, 0.05), (-1.704, 0.1), (-0.836, 0.16), (0.0, 0.34),
    (0.836, 0.16), (1.704, 0.1), (3.257, 0.05), (6.795, 0.016), (22.316, 0.004),
)  # fmt: skip
"""Values and probabilities of a discretised Student t with 2 degrees of freedom: the means between eleven quantiles."""

MOODS = ((0.5, 0.25), (1.0, 0.5), (1.6, 0.25))
"""Factors of an hour that all guests of a restaurant share, and their probabilities."""


def sales_funnel(rng: Rng, *, stages: int = 5, warmths: int = 4, firms: int = 3) -> World:
    """A sales funnel: states are stage × warmth × kind of firm, actions wait, mail, call, demonstration, rebate.

    "sales" is 1 if a contract is signed at the last stage, a few in 100 leads, and 0 in all other steps. A lead who asks to be left alone is −1 on
    "refusals"; most others just fall silent. Both end the episode. "effort" is the cost of the action, in every step.
    """
    draw = generator(rng)
    moves = np.array([0.08, 0.2, 0.35, 0.5, 0.45]) * draw.uniform(0.6, 1.4, (firms, 5))
    warms = np.array([0.05, 0.15, 0.3, 0.4, 0.3]) * draw.uniform(0.6, 1.4, size=5)
    refuses = np.array([0.002, 0.01, 0.03, 0.02, 0.01]) * draw.uniform(0.5, 1.5, size=5)
    effort = np.array([0.0, 0.05, 0.2, 0.8, 0.5]) * draw.uniform(0.7, 1.3, size=5)
    cools, silent = draw.uniform(0.1, 0.25), draw.uniform(0.06, 0.12, size=stages)

    def step(x: int, a: int) -> list[Result]:
        rest, firm = divmod(x, firms)
        stage, warmth = divmod(rest, warmths)
        cost = -float(effort[a])
        refused = float(refuses[a]) * (2.0 - warmth / warmths)
        gone = (1.0 - refused) * float(silent[stage])
        stays = 1.0 - refused - gone
        on = float(moves[firm, a]) * (0.4 + 0.2 * warmth)
        up, down = float(warms[a]) * (1.0 - cools), cools * (1.0 - float(warms[a]))
        results: list[Result] = [(refused, END, (0.0, -1.0, cost)), (gone, END, (0.0, 0.0, cost))]
        for now, p in ((min(warmth + 1, warmths - 1), up), (max(warmth - 1, 0), down), (warmth, 1.0 - up - down)):
            results.append((stays * (1.0 - on) * p, (stage * warmths + now) * firms + firm, (0.0, 0.0, cost)))
            if stage < stages - 1:
                results.append((stays * on * p, ((stage + 1) * warmths + now) * firms + firm, (0.0, 0.0, cost)))
        if stage == stages - 1:
            results.append((stays * on, END, (1.0, 0.0, cost)))
        return results

    initial = np.zeros((stages, warmths, firms))
    initial[0, :2] = np.outer((0.7, 0.3), draw.dirichlet(np.full(firms, 5.0)))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=5,
        initial=initial.ravel(),
        objectives=("sales", "refusals", "effort"),
        discount=0.99,
    )


def donors(rng: Rng, *, ages: int = 4, pauses: int = 4, ties: int = 3) -> World:
    """Donors of a charity: states are age × seasons since the last gift × ties, actions rest, mail, call, visit, invite.

    "gifts" are mostly small, exponential with a mean of about 1. A visit to an old donor with close ties leads to a legacy of 60 to 140, once in
    70 to 200 visits; nothing else does. "costs" is −(cost of the action), most for a visit. Calls and visits bring closer ties, rest loosens them.
    """
    draw = generator(rng)
    gives = np.array([0.05, 0.2, 0.3, 0.3, 0.25]) * draw.uniform(0.6, 1.3, (ages, 5))
    amount = np.array([0.8, 0.8, 1.0, 1.2, 1.1]) * draw.uniform(0.7, 1.3, size=5)
    cost = np.array([0.0, 0.05, 0.15, 0.6, 0.3]) * draw.uniform(0.8, 1.2, size=5)
    closer = np.array([0.02, 0.05, 0.15, 0.35, 0.3])
    looser = np.array([0.2, 0.1, 0.07, 0.03, 0.05]) * draw.uniform(0.7, 1.3, size=5)
    legacy, worth, older = draw.uniform(0.005, 0.014), draw.uniform(60.0, 140.0), draw.uniform(0.02, 0.05)

    def step(x: int, a: int) -> list[Result]:
        rest, tie = divmod(x, ties)
        age, pause = divmod(rest, pauses)
        up, down = float(closer[a]), float(looser[a])
        bonds = ((min(tie + 1, ties - 1), up), (max(tie - 1, 0), down), (tie, 1.0 - up - down))
        years = ((min(age + 1, ages - 1), older), (age, 1.0 - older))
        left = legacy if a == 3 and age >= ages - 2 and tie == ties - 1 else 0.0
        p = float(gives[age, a]) * (1.0 + 0.3 * tie) * (1.0 - pause / (2.0 * pauses))
        results: list[Result] = [(left, END, (worth, -float(cost[a])))]
        for bond, q in bonds:
            for later, share in years:
                whole = (1.0 - left) * q * share
                gave: list[Result] = [(whole * p, (later * pauses) * ties + bond, (0.0, -float(cost[a])))]
                results += with_noise(gave, 0, float(amount[a]), EXPONENTIAL_POINTS)
                there = (later * pauses + min(pause + 1, pauses - 1)) * ties + bond
                results.append((whole * (1.0 - p), there, (0.0, -float(cost[a]))))
        return results

    initial = np.zeros((ages, pauses, ties))
    initial[:, 0] = draw.dirichlet(np.full(ages, 4.0))[:, None] / ties
    return world_of(
        step,
        n_states=initial.size,
        n_actions=5,
        initial=initial.ravel(),
        objectives=("gifts", "costs"),
        discount=0.98,
        end=0.06,
    )


def exchange(rng: Rng, *, widest: int = 2) -> World:
    """A trader: states are position −2 … 2 × trend (down, flat, up) × calm or wild, actions the next position.

    "profit" is position × (drift + noise), the noise a Student t with 2 degrees of freedom, so that single steps of either sign outweigh a hundred others.
    "fees" grow with the change of position. "calls" is −1 for a loss so large that the bank asks for money.
    """
    draw = generator(rng)
    drift = np.array([-draw.uniform(0.1, 0.4), draw.uniform(-0.05, 0.1), draw.uniform(0.1, 0.4)])
    swing, fee = np.array([draw.uniform(0.4, 0.7), draw.uniform(1.0, 1.6)]), draw.uniform(0.02, 0.1)
    turns = np.vstack(
        [draw.dirichlet((8.0, 2.0, 1.0)), draw.dirichlet((2.0, 6.0, 2.0)), draw.dirichlet((1.0, 2.0, 8.0))]
    )
    wilder, calmer = draw.uniform(0.03, 0.1), draw.uniform(0.1, 0.25)
    alarm = draw.uniform(5.0, 7.0)
    positions = 2 * widest + 1

    def step(x: int, a: int) -> list[Result]:
        rest, wild = divmod(x, 2)
        position, trend = divmod(rest, 3)
        held, cost = a - widest, -fee * abs(a - position) ** 1.5
        changes = calmer if wild else wilder
        results: list[Result] = []
        for noise, p in HEAVY_POINTS if held else ((0.0, 1.0),):
            made = held * (float(drift[trend]) + float(swing[wild]) * noise)
            paid = (made, cost, -float(made < -alarm))
            for later, q in enumerate(turns[trend]):
                for now, share in ((wild, 1.0 - changes), (1 - wild, changes)):
                    results.append((p * float(q) * share, (a * 3 + later) * 2 + now, paid))
        return results

    initial = np.zeros((positions, 3, 2))
    initial[widest, :, 0] = 1.0 / 3.0
    return world_of(
        step,
        n_states=initial.size,
        n_actions=positions,
        initial=initial.ravel(),
        objectives=("profit", "fees", "calls"),
        discount=0.98,
        end=0.04,
    )


def street_stall(rng: Rng, *, shelf: int = 6) -> World:
    """A stall in the street: states are stock × weather (rain, fair, sun) × part of the day, actions none, buy 2, buy 4, sell cheaply.

    "sales" are what is sold, less what is bought; "waste" is −(units that spoil), and counts for longer: its discount is 0.99, the others' 0.95.
    "rent" is paid in every step, with normal noise of its own size: no action changes it, nor how long an episode is.
    """
    draw = generator(rng)
    price, buys, cheap = draw.uniform(1.5, 2.5), draw.uniform(0.6, 1.0), draw.uniform(0.5, 0.7)
    asks = np.sort(draw.uniform(0.3, 2.0, size=3))[:, None] * draw.uniform(0.6, 1.4, size=3)
    spoils, more = draw.uniform(0.05, 0.2), draw.uniform(1.4, 2.0)
    rent, noise, sky = draw.uniform(0.5, 1.0), draw.uniform(0.5, 1.5), draw.dirichlet((3.0, 4.0, 3.0), size=3)

    def step(x: int, a: int) -> list[Result]:
        rest, part = divmod(x, 3)
        stock, weather = divmod(rest, 3)
        bought = min((0, 2, 4, 0)[a], shelf - stock)
        each = price * (cheap if a == 3 else 1.0)
        p = 1.0 - float(np.exp(-asks[weather, part] * (more if a == 3 else 1.0) / 3.0))  # of three who may ask
        results: list[Result] = []
        for wanted in range(4):
            sold = min(wanted, stock)
            share = comb(3, wanted) * p**wanted * (1.0 - p) ** (3 - wanted)
            left = stock - sold
            lost = 1.0 - (1.0 - spoils) ** left
            for gone, q in ((1, lost), (0, 1.0 - lost)):
                for later, r in enumerate(sky[weather]):
                    there = ((left - gone + bought) * 3 + later) * 3 + (part + 1) % 3
                    paid = (sold * each - bought * buys, -float(gone), -rent)
                    results.append((share * q * float(r), there, paid))
        return with_noise([result for result in results if result[0] > 0.0], 2, noise)

    initial = np.zeros((shelf + 1, 3, 3))
    initial[shelf // 2, :, 0] = 1.0 / 3.0
    return world_of(
        step,
        n_states=initial.size,
        n_actions=4,
        initial=initial.ravel(),
        objectives=("sales", "waste", "rent"),
        discount=(0.95, 0.99, 0.95),
        end=0.05,
    )


def restaurant(rng: Rng, *, tables: int = 5, hours: int = 8) -> World:
    """A restaurant: states are hour × tables taken × a quiet or busy day, actions usual, turn some away, short menu, long menu.

    All guests of an hour share a mood, which multiplies what they spend: "takings", "tips", a share of the takings that the action changes a little,
    and "ratings", lower if the house is full. So the three go up and down together. The evening ends after the last hour.
    """
    draw = generator(rng)
    comes = draw.uniform(0.15, 0.6, size=hours)[:, None] * np.array([1.0, draw.uniform(1.3, 1.7)])
    lets = (1.0, draw.uniform(0.4, 0.7), draw.uniform(1.0, 1.1), draw.uniform(0.8, 1.0))
    bill = np.array([1.0, 1.0, draw.uniform(0.7, 0.9), draw.uniform(1.1, 1.5)]) * draw.uniform(0.8, 1.2)
    share = draw.uniform(0.08, 0.14, size=4)
    leaves = np.array([0.4, 0.4, draw.uniform(0.5, 0.7), draw.uniform(0.2, 0.35)])
    crowded = draw.uniform(0.3, 0.8)

    def step(x: int, a: int) -> list[Result]:
        rest, busy = divmod(x, 2)
        hour, taken = divmod(rest, tables + 1)
        p, out = min(float(comes[hour, busy]) * lets[a], 0.95), float(leaves[a])
        results: list[Result] = []
        for gone in range(taken + 1):
            q = comb(taken, gone) * out**gone * (1.0 - out) ** (taken - gone)
            for came in range(4):
                share_in = comb(3, came) * p**came * (1.0 - p) ** (3 - came)
                now = min(taken - gone + came, tables)
                there = END if hour == hours - 1 else ((hour + 1) * (tables + 1) + now) * 2 + busy
                for mood, r in MOODS:
                    spent = taken * float(bill[a]) * mood
                    rated = mood * taken / tables - crowded * float(taken == tables)
                    for more in (0.9, 1.1):
                        paid = (spent, spent * float(share[a]) * more, rated)
                        results.append((q * share_in * r / 2.0, there, paid))
        return results

    initial = np.zeros((hours, tables + 1, 2))
    initial[0, :2] = np.outer((0.5, 0.5), (0.6, 0.4))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=4,
        initial=initial.ravel(),
        objectives=("takings", "tips", "ratings"),
        discount=0.99,
    )


def help_desk(rng: Rng, *, longest: int = 6, kinds: int = 3) -> World:
    """A help desk: states are tickets waiting × fatigue 0 … 2 × kind of the next ticket, actions template, answer, call back, escalate, break.

    "solved" counts tickets that are solved, "reopened" is −1 for one that comes back, and "waiting" −(tickets waiting)/10. Answers and calls tire,
    and a tired desk solves less. A call takes long, so that more tickets come meanwhile.
    """
    draw = generator(rng)
    solves = np.clip(np.array([0.4, 0.65, 0.8, 0.85, 0.0]) * draw.uniform(0.5, 1.2, (kinds, 5)), 0.0, 0.95)
    back = np.array([0.4, 0.15, 0.08, 0.2, 0.0]) * draw.uniform(0.5, 1.5, (kinds, 5))
    tires = (0.1, draw.uniform(0.25, 0.45), draw.uniform(0.4, 0.6), 0.15, 0.0)
    time = (0.7, 1.0, draw.uniform(1.3, 1.6), draw.uniform(0.8, 1.2), 0.8)
    comes, next_kind, slower = draw.uniform(0.25, 0.4), draw.dirichlet(np.full(kinds, 4.0)), draw.uniform(0.1, 0.2)

    def step(x: int, a: int) -> list[Result]:
        rest, kind = divmod(x, kinds)
        queue, tired = divmod(rest, 3)
        works = queue > 0 and a < 4
        p = float(solves[kind, a]) * (1.0 - slower * tired) if works else 0.0
        again = (1.0 - p) * float(back[kind, a]) if works else 0.0
        rests = 0.8 if a == 4 else 0.1
        fatigue = ((max(tired - 1, 0), rests), (min(tired + 1, 2), tires[a]), (tired, 1.0 - rests - tires[a]))
        results: list[Result] = []
        for left, paid, share in (
            (queue - works, (1.0, 0.0), p),
            (queue, (0.0, -1.0), again),
            (queue - works, (0.0, 0.0), 1.0 - p - again),
        ):
            for came in range(3):
                arrive = comb(2, came) * (comes * time[a]) ** came * (1.0 - comes * time[a]) ** (2 - came)
                for now, q in fatigue:
                    for following, r in enumerate(next_kind):
                        there = (min(left + came, longest) * 3 + now) * kinds + following
                        results.append((share * arrive * q * float(r), there, (*paid, -queue / 10.0)))
        return results

    initial = np.zeros((longest + 1, 3, kinds))
    initial[2, 0] = next_kind
    return world_of(
        step,
        n_states=initial.size,
        n_actions=5,
        initial=initial.ravel(),
        objectives=("solved", "reopened", "waiting"),
        discount=0.97,
        end=0.04,
    )
