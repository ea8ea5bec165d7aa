"""Small worlds of operations: stock, queues, machines, storage, a shop, a clinic; with random constants.

The first objective is what is to be gained; the others are to be protected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.gridworld import MOVES
from bettersafe.envs.hazards import with_noise
from bettersafe.envs.tabular import END, world_of
from bettersafe.typing import generator

if TYPE_CHECKING:
    from bettersafe.envs.tabular import Result, World
    from bettersafe.typing import Floats, Rng


def inventory(rng: Rng, *, capacity: int = 19) -> World:
    """Order up to a level, then demand comes: states are stock 0 … capacity, actions the level to fill up to.

    "profit" is sales less orders and holding; "lost" is −1 for every unit of demand that is not met. Demand is Poisson.
    """
    draw = generator(rng)
    mean, price, unit, holding = draw.uniform(5.0, 10.0), draw.uniform(2.0, 3.0), 1.0, draw.uniform(0.05, 0.2)
    fixed = draw.uniform(0.0, 2.0)
    demand = _poisson(mean, 2 * capacity)

    def step(x: int, a: int) -> list[Result]:
        stock = max(x, a)
        results: list[Result] = []
        for wanted, p in enumerate(demand):
            sold = min(wanted, stock)
            cost = unit * (stock - x) + fixed * (stock > x) + holding * (stock - sold)
            results.append((float(p), stock - sold, (price * sold - cost, float(sold - wanted))))
        return results

    return world_of(
        step,
        n_states=capacity + 1,
        n_actions=capacity + 1,
        initial=capacity // 2,
        objectives=("profit", "lost"),
        discount=0.95,
        end=0.05,
    )


def warehouse(rng: Rng, *, levels: int = 10, seasons: int = 3, n_actions: int = 5) -> World:
    """A warehouse with seasons: states are stock × season, actions the units ordered, rewards noisy.

    "revenue" is sales less orders, with normal noise of sd 4 to 10; "waste" is −(share of a stock that is too large), noisy
    as well.
    """
    draw = generator(rng)
    mean, noise = draw.uniform(0.5, 4.0, size=seasons), draw.uniform(4.0, 10.0)
    price, spoil = draw.uniform(5.0, 9.0), draw.uniform(0.3, 0.8)
    demands = [_poisson(float(m), levels) for m in mean]

    def step(x: int, a: int) -> list[Result]:
        stock, season = divmod(x, seasons)
        full = min(stock + a, levels - 1)
        merged: dict[int, Floats] = {}
        for wanted, p in enumerate(demands[season]):
            sold = min(wanted, full)
            paid = np.array([price * sold - 3.0 * a, -spoil * max(full - sold - 4, 0)])
            left = merged.setdefault(full - sold, np.zeros(3))
            left += np.append(p, p * paid)
        results: list[Result] = []
        for left_over, (p, revenue, waste) in merged.items():
            for following, q in ((season, 0.8), ((season + 1) % seasons, 0.2)):
                results.append((p * q, left_over * seasons + following, (revenue / p, waste / p)))
        return with_noise(results, 0, noise)

    n_states = levels * seasons
    return world_of(
        step,
        n_states=n_states,
        n_actions=n_actions,
        initial=np.full(n_states, 1.0 / n_states),
        objectives=("revenue", "waste"),
        discount=0.95,
        end=0.05,
    )


def admission_queue(rng: Rng, *, length: int = 12) -> World:
    """A queue with admission control: states are customers waiting × class of the arrival (none, plain, valued).

    Actions: refuse or admit, each with a slow or a fast server. "revenue" comes from admitted customers, "waiting" is
    −(customers waiting)/length, "energy" the cost of the fast server.
    """
    draw = generator(rng)
    arrival = draw.dirichlet([3.0, 3.0, 2.0])
    slow, fast = draw.uniform(0.2, 0.4), draw.uniform(0.5, 0.8)
    fee, extra = np.array([0.0, draw.uniform(0.5, 1.0), draw.uniform(1.0, 3.0)]), draw.uniform(0.2, 0.5)
    lost = draw.uniform(0.0, 0.3)

    def step(x: int, a: int) -> list[Result]:
        waiting, kind = divmod(x, 3)
        admitted = bool(a % 2) and kind > 0 and waiting < length
        now = waiting + admitted
        served = fast if a >= 2 else slow
        paid = (
            float(fee[kind]) * admitted - lost * (kind > 0 and not admitted),
            -now / length,
            -extra * (a >= 2),
        )
        return [
            (p * float(q), left * 3 + following, paid)
            for left, p in ((max(now - 1, 0), served), (now, 1.0 - served))
            for following, q in enumerate(arrival)
        ]

    return world_of(
        step,
        n_states=3 * (length + 1),
        n_actions=4,
        initial=1,
        objectives=("revenue", "waiting", "energy"),
        discount=0.95,
        end=0.03,
    )


def machine(rng: Rng, *, conditions: int = 12) -> World:
    """Machine replacement: states are conditions, from new to worn, and broken; actions run, service, replace.

    "output" falls with wear and stops while the machine is broken; "breakdowns" is −1 for each, rare while it is new.
    """
    draw = generator(rng)
    wear = draw.uniform(0.15, 0.4)
    fails = 0.002 + draw.uniform(0.05, 0.2) * (np.arange(conditions) / (conditions - 1)) ** 3
    output = 1.0 - draw.uniform(0.2, 0.6) * np.arange(conditions) / (conditions - 1)
    service, price, repair = draw.uniform(0.2, 0.5), draw.uniform(1.0, 2.5), draw.uniform(2.0, 4.0)
    broken = conditions

    def step(x: int, a: int) -> list[Result]:
        if x == broken:  # a replacement is sure, a repair takes a while
            if a == 2:
                return [(1.0, 0, (-price - repair / 2.0, 0.0))]
            return [(0.4, conditions // 2, (-repair / 4.0, 0.0)), (0.6, broken, (-repair / 4.0, 0.0))]
        if a == 2:
            return [(1.0, 0, (-price, 0.0))]
        if a == 1:
            return [
                (0.7, max(x - 2, 0), (float(output[x]) - service, 0.0)),
                (0.3, x, (float(output[x]) - service, 0.0)),
            ]
        p = float(fails[x])
        return [
            (p, broken, (0.0, -1.0)),
            ((1.0 - p) * wear, min(x + 1, conditions - 1), (float(output[x]), 0.0)),
            ((1.0 - p) * (1.0 - wear), x, (float(output[x]), 0.0)),
        ]

    return world_of(
        step,
        n_states=conditions + 1,
        n_actions=3,
        initial=0,
        objectives=("output", "breakdowns"),
        discount=0.97,
        end=0.02,
    )


def battery(rng: Rng, *, levels: int = 8, prices: int = 4) -> World:
    """A battery in a market, which never ends: states are charge × price, actions sell, hold, buy.

    "income" is the price of what is sold less that of what is bought; "wear" is −1 for every unit moved, more when the
    battery is nearly full or empty.
    """
    draw = generator(rng)
    price = np.sort(draw.uniform(0.5, 3.0, size=prices))
    stay = draw.uniform(0.3, 0.6)
    strain = 0.2 + draw.uniform(0.3, 1.0) * (2.0 * np.abs(np.arange(levels) / (levels - 1) - 0.5)) ** 2

    def step(x: int, a: int) -> list[Result]:
        charge, level = divmod(x, prices)
        now = min(max(charge + a - 1, 0), levels - 1)
        moved = now - charge
        paid = (-moved * float(price[level]), -abs(moved) * float(strain[now]))
        return [(stay if y == level else (1.0 - stay) / (prices - 1), now * prices + y, paid) for y in range(prices)]

    n_states = levels * prices
    return world_of(
        step,
        n_states=n_states,
        n_actions=3,
        initial=np.full(n_states, 1.0 / n_states),
        objectives=("income", "wear"),
        discount=0.9,
    )


def web_shop(rng: Rng, *, pages: int = 6, segments: int = 3, n_actions: int = 6) -> World:
    """A web shop with a rare complaint: states are page × segment of the visitor, actions what is offered.

    A visitor moves on to the next page, stays, or leaves; on the last page they may buy, for a price with a wide spread.
    "sales" is what they pay; "complaints" is −1 in 1 of 200 steps on average, up to 1 in 50 for pushy offers.
    """
    draw = generator(rng)
    on = draw.uniform(0.3, 0.7, (pages, segments, n_actions))
    leave = draw.uniform(0.02, 0.2, (pages, segments, n_actions))
    complaint = draw.gamma(1.0, 0.005, n_actions)[None, None, :] * draw.uniform(0.5, 1.5, (pages, segments, n_actions))
    complaint = np.minimum(complaint, 0.02)
    price = draw.uniform(10.0, 30.0, segments)

    def step(x: int, a: int) -> list[Result]:
        page, segment = divmod(x, segments)
        ahead, gone = float(on[page, segment, a]), float(leave[page, segment, a])
        gone = min(gone, 1.0 - ahead)
        bad = float(complaint[page, segment, a])
        stays = 1.0 - ahead - gone
        moves: list[tuple[float, int, float]] = [(gone, END, 0.0), (stays, x, 0.0)]
        if page == pages - 1:
            moves += [(ahead * q, END, f * float(price[segment])) for q, f in ((0.5, 0.4), (0.35, 1.0), (0.15, 3.0))]
        else:
            moves.append((ahead, (page + 1) * segments + segment, 0.0))
        return [(p * q, y, (paid, c)) for p, y, paid in moves for q, c in ((bad, -1.0), (1.0 - bad, 0.0))]

    initial = np.zeros(pages * segments)
    initial[:segments] = 1.0 / segments
    return world_of(
        step,
        n_states=pages * segments,
        n_actions=n_actions,
        initial=initial,
        objectives=("sales", "complaints"),
        discount=0.97,
    )


def clinic(rng: Rng, *, severities: int = 8, phases: int = 3, n_actions: int = 4) -> World:
    """Patients: states are severity × phase of the illness, actions doses.

    A dose helps against some severities and phases more than against others. "recovery" is 1 when severity falls below 0,
    which ends the stay; "harm" is a side effect that grows with the dose, and 5 for a death, at the highest severity.
    """
    draw = generator(rng)
    help_ = np.sort(draw.uniform(0.1, 0.5, (phases, n_actions)), axis=1) * draw.uniform(0.6, 1.2, (severities, 1, 1))
    worse = draw.uniform(0.1, 0.3, phases)
    side = np.linspace(0.0, 1.0, n_actions) ** 2 * draw.uniform(0.3, 0.8)
    best = draw.integers(n_actions, size=(severities, phases))

    def step(x: int, a: int) -> list[Result]:
        severity, phase = divmod(x, phases)
        fit = 1.0 - 0.25 * abs(a - int(best[severity, phase]))
        down = min(float(help_[severity, phase, a]) * fit, 0.7)
        up = float(worse[phase]) * (1.0 - down)
        cost = -float(side[a])
        later = min(phase + 1, phases - 1)
        results: list[Result] = []
        for change, p in ((-1, down), (1, up), (0, 1.0 - down - up)):
            now = severity + change
            if now < 0:
                results.append((p, END, (1.0, cost)))
            elif now >= severities:
                results.append((p, END, (0.0, cost - 5.0)))
            else:
                results += [(p * q, now * phases + y, (0.0, cost)) for y, q in ((phase, 0.8), (later, 0.2))]
        return results

    initial = np.zeros(severities * phases)
    initial[2 * phases : 6 * phases : phases] = 0.25
    return world_of(
        step,
        n_states=severities * phases,
        n_actions=n_actions,
        initial=initial,
        objectives=("recovery", "harm"),
        discount=0.98,
        end=0.01,
    )


def field(rng: Rng, *, moistures: int = 8, stages: int = 5) -> World:
    """Irrigation: states are growth × soil moisture, actions how much water; the harvest comes at the end and is noisy.

    "harvest" is noisy at every step; "water" is −1 to −3; rain comes with a probability that differs between instances.
    """
    draw = generator(rng)
    rain, dry = draw.uniform(0.1, 0.4), draw.uniform(0.3, 0.6)
    likes = draw.integers(2, moistures - 1, size=stages)
    noise, worth = draw.uniform(0.5, 1.5), draw.uniform(0.5, 1.5, size=stages)

    def step(x: int, a: int) -> list[Result]:
        stage, wet = divmod(x, moistures)
        now = min(wet + a, moistures - 1)
        grown = float(worth[stage]) * max(1.0 - abs(now - int(likes[stage])) / 3.0, 0.0)
        results: list[Result] = []
        for rained, p in ((2, rain), (0, 1.0 - rain)):
            for lost, q in ((2, dry), (1, 1.0 - dry)):
                later = min(max(now + rained - lost, 0), moistures - 1)
                for following, share in ((stage, 0.75), (stage + 1, 0.25)):
                    there = END if following == stages else following * moistures + later
                    results.append((p * q * share, there, (grown, -float(a))))
        return with_noise(results, 0, noise)

    n_states = stages * moistures
    initial = np.zeros(n_states)
    initial[:moistures] = 1.0 / moistures
    return world_of(
        step, n_states=n_states, n_actions=4, initial=initial, objectives=("harvest", "water"), discount=0.97
    )


def cold_store(rng: Rng, *, temperatures: int = 12, wears: int = 4) -> World:
    """A cold store: states are temperature × wear of the compressor, actions off, low, high.

    Cooling hard wears the compressor, and a worn one hardly cools. "saving" is −energy; "quality" is −1 for every step that
    is too warm, and more the warmer.
    """
    draw = generator(rng)
    warms, wear, mends = draw.uniform(0.3, 0.6), draw.uniform(0.1, 0.25), draw.uniform(0.01, 0.04)
    power = np.array([0.0, 0.4, 0.9])
    limit = int(draw.integers(5, 8))

    def step(x: int, a: int) -> list[Result]:
        warm, worn = divmod(x, wears)
        cools = float(power[a]) * (1.0 - 0.8 * worn / (wears - 1))
        paid = (-float(power[a]) * (1.0 + 0.5 * worn), -0.3 * max(warm - limit, 0))
        up = wear * (a == 2) + 0.02 * (a == 1)
        results: list[Result] = []
        for change, p in (
            (-1, cools * (1.0 - warms)),
            (1, warms * (1.0 - cools)),
            (0, 1.0 - cools - warms + 2.0 * cools * warms),
        ):
            there = min(max(warm + change, 0), temperatures - 1)
            for step_up, q in ((1, up), (-1, mends), (0, 1.0 - up - mends)):
                now = min(max(worn + step_up, 0), wears - 1)
                results.append((p * q, there * wears + now, paid))
        return results

    n_states = temperatures * wears
    initial = np.zeros(n_states)
    initial[4 * wears : 8 * wears : wears] = 0.25
    return world_of(
        step, n_states=n_states, n_actions=3, initial=initial, objectives=("saving", "quality"), discount=0.95, end=0.03
    )


def two_lines(rng: Rng, *, longest: int = 6) -> World:
    """Two lines at two counters of different speed: states are both lengths, actions which line the next customer joins, or none.

    "served" is 1 for a customer served at the first counter and more at the second; "crowding" grows with the square of
    each line's length.
    """
    draw = generator(rng)
    speed, worth = np.array([draw.uniform(0.5, 0.8), draw.uniform(0.15, 0.35)]), draw.uniform(1.3, 2.5)
    comes, side = draw.uniform(0.5, 0.9), longest + 1

    def step(x: int, a: int) -> list[Result]:
        lines = divmod(x, side)
        results: list[Result] = []
        for arrived, p in ((1, comes), (0, 1.0 - comes)):
            first = min(lines[0] + arrived * (a == 0), longest)
            second = min(lines[1] + arrived * (a == 1), longest)
            crowd = -(first**2 + second**2) / (2.0 * longest**2)
            for done_1, q_1 in ((1, speed[0]), (0, 1.0 - speed[0])):
                for done_2, q_2 in ((1, speed[1]), (0, 1.0 - speed[1])):
                    one, two = done_1 * (first > 0), done_2 * (second > 0)
                    there = (first - one) * side + second - two
                    results.append((p * float(q_1 * q_2), there, (one + worth * two, crowd)))
        return results

    return world_of(
        step, n_states=side * side, n_actions=3, initial=0, objectives=("served", "crowding"), discount=0.95, end=0.03
    )


def patrol(rng: Rng, *, size: int = 4) -> World:
    """A technician on a map of size² areas: actions are the four moves and work; each area's service is an objective.

    "cost" is what a move or work costs in this area; "area k" is 1 for a piece of work that is done there, which takes one
    to four steps on average. Moves fail in one of ten cases. Every area is to be served no less than before.
    """
    draw, n = generator(rng), size * size
    cost = draw.uniform(0.1, 1.0, (n, 5))
    done = draw.uniform(0.25, 0.9, n)

    def step(x: int, a: int) -> list[Result]:
        paid = np.zeros(1 + n)
        paid[0] = -cost[x, a]
        if a == 4:
            served = paid.copy()
            served[1 + x] = 1.0
            return [(float(done[x]), x, served.tolist()), (1.0 - float(done[x]), x, paid.tolist())]
        row, column = divmod(x, size)
        row, column = (row + MOVES[a][0]) % size, (column + MOVES[a][1]) % size
        return [(0.9, row * size + column, paid.tolist()), (0.1, x, paid.tolist())]

    return world_of(
        step,
        n_states=n,
        n_actions=5,
        initial=np.full(n, 1.0 / n),
        objectives=("cost", *(f"area {k}" for k in range(n))),
        discount=0.95,
        end=0.03,
    )


def _poisson(mean: float, most: int) -> Floats:
    """Poisson probabilities of 0 … most, normalised."""
    from scipy.special import gammaln

    n = np.arange(most + 1)
    p = np.exp(n * np.log(mean) - mean - gammaln(n + 1.0))
    return np.asarray(p / p.sum())
