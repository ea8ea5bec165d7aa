"""Worlds of a city: a ferry, a tram line, a market cart, a car park, a desk for patients, debts to collect; with random constants.

The first objective is what is to be gained, with the tram line the first two; the others are to be protected.
"""

from __future__ import annotations

from math import comb, exp
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.hazards import EXPONENTIAL_POINTS, poisson, with_noise
from bettersafe.envs.tabular import END, world_of
from bettersafe.typing import generator

if TYPE_CHECKING:
    from bettersafe.envs.tabular import Result, World
    from bettersafe.typing import Rng


def ferry(rng: Rng, *, longest: int = 5, seats: int = 4) -> World:
    """A ferry between two banks: states are people on this bank × on the other × wind, actions wait, cross, cross fast.

    "carried" counts people who cross, "waiting" is −(people on both banks)/10, "fuel" −(fuel), more in the wind and for a fast crossing.
    People come to both banks, fewer in a shorter time. After a crossing the banks change places.
    """
    draw = generator(rng)
    comes = draw.uniform(0.5, 1.3, size=2)
    time = (0.5, 1.0, draw.uniform(0.5, 0.7))
    fuel = (0.0, draw.uniform(0.3, 0.6), draw.uniform(0.9, 1.5))
    windy, blows, calms = draw.uniform(1.3, 2.0), draw.uniform(0.1, 0.2), draw.uniform(0.2, 0.4)
    side = longest + 1

    def step(x: int, a: int) -> list[Result]:
        rest, wind = divmod(x, 2)
        here, there = divmod(rest, side)
        aboard = min(here, seats) if a else 0
        near, far = (there, here - aboard) if a else (here, there)
        paid = (float(aboard), -(here + there) / 10.0, -fuel[a] * (windy if wind else 1.0))
        turns = calms if wind else blows
        return [
            (p * q * share, (min(near + n, longest) * side + min(far + m, longest)) * 2 + sky, paid)
            for n, p in enumerate(poisson(float(comes[0]) * time[a], 3))
            for m, q in enumerate(poisson(float(comes[1]) * time[a], 3))
            for sky, share in ((wind, 1.0 - turns), (1 - wind, turns))
        ]

    n_states = 2 * side * side
    return world_of(
        step,
        n_states=n_states,
        n_actions=3,
        initial=np.full(n_states, 1.0 / n_states),
        objectives=("carried", "waiting", "fuel"),
        discount=0.97,
        end=0.03,
    )


def tram_line(rng: Rng, *, behind: int = 4, fullest: int = 4) -> World:
    """A tram on its line: states are delay × load × period (quiet, busy, peak), actions run, wait for a connection, skip a stop, hurry.

    Five objectives: "riders" who board, "connections" that are met, "delay", "crowding" (a full tram), and "wear", the cost of hurry.
    """
    draw = generator(rng)
    boards = np.sort(draw.uniform(0.4, 2.2, size=3))
    off, late = draw.dirichlet([2.0, 3.0, 2.0], size=3), draw.uniform(0.1, 0.4, size=3)
    meets, wears = draw.uniform(0.3, 0.8, size=3), draw.uniform(0.5, 1.5)
    more = (1.0, draw.uniform(1.1, 1.4), draw.uniform(0.2, 0.5), 0.9)
    met = (0.4, 1.0, 0.0, 0.3)
    catches = (0.1, 0.0, draw.uniform(0.5, 0.8), draw.uniform(0.4, 0.7))
    turns = draw.uniform(0.1, 0.2)
    delays, loads = behind + 1, fullest + 1

    def step(x: int, a: int) -> list[Result]:
        rest, period = divmod(x, 3)
        delay, load = divmod(rest, loads)
        slower = 0.8 if a == 1 else float(late[period])
        up, down = slower * (1.0 - catches[a]), catches[a] * (1.0 - slower)
        connects = float(meets[period]) * met[a] * (1.0 - delay / delays)
        results: dict[tuple[int, tuple[float, ...]], float] = {}
        for change, p in ((1, up), (-1, down), (0, 1.0 - up - down)):
            now = min(max(delay + change, 0), behind)
            for left, q in enumerate(off[period]):
                stays = max(load - left, 0)
                for came, share in enumerate(poisson(float(boards[period]) * more[a], 4)):
                    on = min(came, fullest - stays)
                    for yes, chance in ((1.0, connects), (0.0, 1.0 - connects)):
                        paid = (float(on), yes, -now / behind, -float(stays + on == fullest), -wears * (a == 3))
                        for later, moves in ((period, 1.0 - turns), ((period + 1) % 3, turns)):
                            key = ((now * loads + stays + on) * 3 + later, paid)
                            results[key] = results.get(key, 0.0) + p * float(q) * share * chance * moves
        return [(p, there, paid) for (there, paid), p in results.items()]

    n_states = delays * loads * 3
    initial = np.zeros((delays, loads, 3))
    initial[0, 0] = 1.0 / 3.0
    return world_of(
        step,
        n_states=n_states,
        n_actions=4,
        initial=initial.ravel(),
        objectives=("riders", "connections", "delay", "crowding", "wear"),
        discount=0.97,
        end=0.04,
    )


def market_cart(rng: Rng, *, places: int = 8, hours: int = 12) -> World:
    """A cart that sells at places of a city: states are hour × place, actions stay, or go to one of three places; moves never fail.

    "sales" have a mean of the hour and place and normal noise, as large as the mean; "minutes" on the way have a mean of the
    way and exponential delays. The day ends after the last hour.
    """
    draw = generator(rng)
    way = np.array([draw.choice(np.delete(np.arange(places), x), size=3, replace=False) for x in range(places)])
    minutes = draw.uniform(0.2, 1.0, (places, 3))
    mean = draw.uniform(0.5, 1.5, size=places) * draw.gamma(3.0, 1.0 / 3.0, (hours, places))
    noise = draw.uniform(0.5, 1.5, size=places)

    def step(x: int, a: int) -> list[Result]:
        hour, place = divmod(x, places)
        there = place if a == 0 else int(way[place, a - 1])
        spent = 0.0 if a == 0 else -float(minutes[place, a - 1])
        following = END if hour == hours - 1 else (hour + 1) * places + there
        sold = with_noise([(1.0, following, (float(mean[hour, there]), 0.0))], 0, float(noise[there]))
        return with_noise(sold, 1, spent, EXPONENTIAL_POINTS) if a else sold

    initial = np.zeros(hours * places)
    initial[:places] = 1.0 / places
    return world_of(
        step,
        n_states=hours * places,
        n_actions=4,
        initial=initial,
        objectives=("sales", "minutes"),
        discount=0.99,
    )


def car_park(rng: Rng, *, spaces: int = 10, hours: int = 10) -> World:
    """A car park with four tariffs: states are hour × cars inside, actions the tariff.

    Fewer come if it is dear. "takings" is tariff × cars that come in, "visits" counts them, and "turned away" is −(cars that find it full).
    The day ends after the last hour.
    """
    draw = generator(rng)
    tariff = np.cumsum(draw.uniform(0.4, 1.0, size=4))
    demand, minds = draw.uniform(1.0, 4.0, size=hours), draw.uniform(0.2, 0.6)
    leaves = draw.uniform(0.1, 0.4, size=hours)

    def step(x: int, a: int) -> list[Result]:
        hour, inside = divmod(x, spaces + 1)
        comes = poisson(float(demand[hour]) * exp(-minds * float(tariff[a])), 6)
        p = float(leaves[hour])
        results: list[Result] = []
        for gone in range(inside + 1):
            left = comb(inside, gone) * p**gone * (1.0 - p) ** (inside - gone)
            for came, share in enumerate(comes):
                parked = min(came, spaces - inside + gone)
                there = END if hour == hours - 1 else (hour + 1) * (spaces + 1) + inside - gone + parked
                results.append((left * share, there, (float(tariff[a]) * parked, float(parked), -float(came - parked))))
        return results

    initial = np.zeros(hours * (spaces + 1))
    initial[: spaces // 2] = 2.0 / spaces
    return world_of(
        step,
        n_states=initial.size,
        n_actions=4,
        initial=initial,
        objectives=("takings", "visits", "turned away"),
        discount=0.99,
    )


def triage_desk(rng: Rng, *, cases: int = 60, loads: int = 3) -> World:
    """A desk that sends patients on: states are 60 cases × load of the seniors, actions self-help, a nurse, a junior, a senior doctor.

    Any of the 60 cases can be next, some more often than others, so that most of what can follow a pair is never seen. "helped" is 1 if the
    case is; if it is not, it comes back with a probability of the case's own, −1 on "returns". "wages" are the action's. A senior with a
    high load helps less.
    """
    draw = generator(rng)
    weight = draw.uniform(0.0, 1.0, size=cases)
    helps = np.clip(
        np.array([0.75, 0.8, 0.85, 0.95]) - weight[:, None] * np.array([0.6, 0.4, 0.25, 0.1]), 0.05, 0.95
    ) * draw.uniform(0.8, 1.0, (cases, 4))
    back, wage = draw.uniform(0.05, 0.4, size=cases), np.cumsum(draw.uniform(0.1, 0.6, size=4)) - 0.1
    tired = draw.uniform(0.1, 0.2)
    usual, by_load = draw.dirichlet(np.full(cases, 0.7)), draw.dirichlet(np.full(cases, 0.7), size=loads)
    following = 0.7 * usual + 0.3 * by_load

    def step(x: int, a: int) -> list[Result]:
        case, load = divmod(x, loads)
        p = float(helps[case, a]) - (tired * load if a == 3 else 0.0)
        again, cost = float(back[case]), -float(wage[a])
        now = min(load + 1, loads - 1) if a == 3 else max(load - 1, 0)
        paid = (
            (p, (1.0, 0.0, cost)),
            ((1.0 - p) * again, (0.0, -1.0, cost)),
            ((1.0 - p) * (1.0 - again), (0.0, 0.0, cost)),
        )
        return [
            (share * float(q), y * loads + now, rewards)
            for y, q in enumerate(following[load])
            for share, rewards in paid
        ]

    initial = np.zeros((cases, loads))
    initial[:, 0] = usual
    return world_of(
        step,
        n_states=cases * loads,
        n_actions=4,
        initial=initial.ravel(),
        objectives=("helped", "returns", "wages"),
        discount=0.95,
        end=0.1,
    )


def debts(rng: Rng, *, months: int = 6, debtors: int = 4) -> World:
    """Debts to collect: states are months overdue × kind of debtor, actions wait, write, call, visit, offer a rebate.

    A payment pays an exponential amount on "recovered" and mostly settles the debt. A complaint is rare, −1 on "complaints", and ends it; calls
    make it more likely, and visits much more, above all with one kind of debtor. "effort" is the cost of the action. After the last
    month the debt is written off.
    """
    draw = generator(rng)
    pays = np.array([0.05, 0.1, 0.17, 0.25, 0.25]) * draw.uniform(0.5, 1.5, (debtors, 5))
    amount = draw.uniform(2.0, 6.0, size=debtors)[:, None] * np.array([1.0, 1.0, 1.0, 1.0, draw.uniform(0.4, 0.7)])
    touchy = draw.uniform(0.5, 1.0, size=debtors)
    touchy[draw.integers(debtors)] *= 3.0
    complains = touchy[:, None] * np.array([0.001, 0.002, draw.uniform(0.004, 0.01), draw.uniform(0.015, 0.04), 0.002])
    effort, settles = np.array([0.0, 0.05, 0.2, 0.6, 0.1]), draw.uniform(0.5, 0.8)

    def step(x: int, a: int) -> list[Result]:
        month, kind = divmod(x, debtors)
        p, cost = float(complains[kind, a]), -float(effort[a])
        paid = float(pays[kind, a]) * (1.0 - month / (2.0 * months))
        later = END if month == months - 1 else x + debtors
        results: list[Result] = [(p, END, (0.0, -1.0, cost)), ((1.0 - p) * (1.0 - paid), later, (0.0, 0.0, cost))]
        for there, share in ((END, settles), (later, 1.0 - settles)):
            came: list[Result] = [((1.0 - p) * paid * share, there, (0.0, 0.0, cost))]
            results += with_noise(came, 0, float(amount[kind, a]), EXPONENTIAL_POINTS)
        return results

    initial = np.zeros(months * debtors)
    initial[:debtors] = draw.dirichlet(np.full(debtors, 5.0))
    return world_of(
        step,
        n_states=months * debtors,
        n_actions=5,
        initial=initial,
        objectives=("recovered", "complaints", "effort"),
        discount=0.98,
    )
