"""Worlds of trade: prices, advertisements, lotteries, a reservoir, heating, a fleet, a fishery; with random constants.

The first objective is what is to be gained; the others are to be protected, or gained as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.hazards import EXPONENTIAL_POINTS, STUDENT_POINTS, successors, with_noise
from bettersafe.envs.tabular import END, world_of
from bettersafe.typing import generator

if TYPE_CHECKING:
    from bettersafe.envs.tabular import Result, World
    from bettersafe.typing import Rng


def seat_prices(rng: Rng, *, seats: int = 8, days: int = 8, prices: int = 20) -> World:
    """Prices of seats that are worth nothing after the last day: states are days gone × seats left, actions 20 prices.

    Up to three people ask each day, and buy with a probability that falls with the price. "revenue" is what they pay; "sold" counts
    seats. Neighbouring prices are nearly as good as each other. The last seat ends the episode.
    """
    draw = generator(rng)
    price = np.linspace(20.0, 115.0, prices)
    first, last = np.sort(draw.uniform(40.0, 90.0, size=2))
    worth = np.linspace(first, last, days)
    spread, asks = draw.uniform(8.0, 20.0), draw.uniform(0.4, 0.8, size=days)
    buys = asks[:, None] / (1.0 + np.exp((price[None, :] - worth[:, None]) / spread))

    def step(x: int, a: int) -> list[Result]:
        day, left = x // seats, x % seats + 1
        p = float(buys[day, a])
        results: list[Result] = []
        for wanted, ways in enumerate((1, 3, 3, 1)):
            sold = min(wanted, left)
            over = day == days - 1 or sold == left
            there = END if over else (day + 1) * seats + left - sold - 1
            results.append((ways * p**wanted * (1.0 - p) ** (3 - wanted), there, (sold * float(price[a]), float(sold))))
        return results

    return world_of(
        step,
        n_states=days * seats,
        n_actions=prices,
        initial=seats - 1,
        objectives=("revenue", "sold"),
        discount=0.99,
    )


def ad_slots(rng: Rng, *, segments: int = 6, n_ads: int = 15) -> World:
    """Advertisements on a page: states are segment × fatigue 0 … 2, actions which of 15 to show.

    A click, 1 to 10 %, pays the bid on "clicks"; one click in ten is an order, 5 on "orders". A visitor blocks all advertisements, 0.1 to
    1.5 % by the advertisement, more often where bids are high: −1 on "blocks", which ends the visit.
    """
    draw = generator(rng)
    bid = np.sort(draw.uniform(0.5, 3.0, size=n_ads))
    click = draw.uniform(0.01, 0.1, (segments, n_ads))
    block = np.clip(0.001 + 0.004 * bid * draw.uniform(0.0, 1.3, size=n_ads), 0.001, 0.015)
    order, leave = draw.uniform(0.05, 0.15, size=n_ads), draw.uniform(0.1, 0.2, size=segments)

    def step(x: int, a: int) -> list[Result]:
        segment, tired = divmod(x, 3)
        clicks, gone = float(click[segment, a]) * (1.0 - 0.3 * tired), float(leave[segment])
        blocks, buys = float(block[a]) * (1.0 + 0.5 * tired), float(order[a])
        results: list[Result] = [(blocks, END, (0.0, 0.0, -1.0))]
        for share, paid in (
            (1.0 - clicks, (0.0, 0.0, 0.0)),
            (clicks * (1.0 - buys), (float(bid[a]), 0.0, 0.0)),
            (clicks * buys, (float(bid[a]), 5.0, 0.0)),
        ):
            p = share * (1.0 - blocks)
            results.append((p * gone, END, paid))
            results += [
                (p * (1.0 - gone) * q, segment * 3 + y, paid) for y, q in ((min(tired + 1, 2), 0.4), (tired, 0.6))
            ]
        return results

    initial = np.zeros(3 * segments)
    initial[::3] = draw.dirichlet(np.full(segments, 3.0))
    return world_of(
        step,
        n_states=3 * segments,
        n_actions=n_ads,
        initial=initial,
        objectives=("clicks", "orders", "blocks"),
        discount=0.97,
    )


def lotteries(rng: Rng, *, sites: int = 10) -> World:
    """Prospecting: actions are a sure wage and lotteries with prizes of 8, 40 and 150, won about once in 10, 50 and 200 steps.

    Their means lie close together, and which is best differs between sites. "profit" is the wage or the prize; "effort" is a cost
    of the pair, which is protected. Pairs lead to three random sites.
    """
    draw = generator(rng)
    there, share = successors(draw, sites, 4)
    prize, mean = np.array([0.0, 8.0, 40.0, 150.0]), draw.uniform(0.5, 1.3, (sites, 4))
    effort = draw.uniform(0.1, 1.0, (sites, 4))

    def step(x: int, a: int) -> list[Result]:
        cost = -float(effort[x, a])
        won = float(mean[x, a] / prize[a]) if a else 0.0
        pays = float(prize[a]) if a else 0.0
        lost = 0.0 if a else float(mean[x, a])
        return [
            (p * float(q), int(y), (paid, cost))
            for p, paid in ((won, pays), (1.0 - won, lost))
            for y, q in zip(there[x, a], share[x, a], strict=True)
        ]

    return world_of(
        step,
        n_states=sites,
        n_actions=4,
        initial=np.full(sites, 1.0 / sites),
        objectives=("profit", "effort"),
        discount=0.95,
        end=0.07,
    )


def reservoir(rng: Rng, *, levels: int = 10, seasons: int = 4, n_actions: int = 6) -> World:
    """A reservoir with a power station: states are level × season, actions units of water to release.

    "income" is the season's price × release, with Student noise (3 degrees of freedom) whose scale is a multiple of the release, so
    that large releases are noisy and small ones are not. "river" is −(units below what the river needs), "floods" −1 when water spills.
    """
    draw = generator(rng)
    price, noise = draw.uniform(0.5, 2.0, size=seasons), draw.uniform(0.5, 2.0)
    inflow = draw.dirichlet(np.ones(4), size=seasons)
    need = int(draw.integers(1, 3))

    def step(x: int, a: int) -> list[Result]:
        level, season = divmod(x, seasons)
        out = min(a, level)
        results: list[Result] = []
        for water, p in enumerate(inflow[season]):
            full = level - out + water
            paid = (float(price[season]) * out, float(min(out - need, 0)), -float(full >= levels))
            for following, q in ((season, 0.75), ((season + 1) % seasons, 0.25)):
                results.append((float(p) * q, min(full, levels - 1) * seasons + following, paid))
        return with_noise(results, 0, noise * out, STUDENT_POINTS) if out else results

    n_states = levels * seasons
    return world_of(
        step,
        n_states=n_states,
        n_actions=n_actions,
        initial=np.full(n_states, 1.0 / n_states),
        objectives=("income", "river", "floods"),
        discount=0.96,
        end=0.03,
    )


def heating(rng: Rng, *, warmths: int = 8) -> World:
    """Heating of a house: states are temperature × tariff (night, day, peak) × cold or mild weather, actions off, low, high.

    "bill" is −(tariff × energy), "comfort" −(degrees away from what people like)/4. The house cools faster when it is cold outside.
    """
    draw = generator(rng)
    tariff = np.sort(draw.uniform(0.2, 2.0, size=3))
    likes, power = int(draw.integers(4, 6)), np.array([0.0, 0.4, 0.85])
    cools = (draw.uniform(0.5, 0.7), draw.uniform(0.2, 0.4))
    stays, turns = draw.uniform(0.6, 0.9), draw.uniform(0.05, 0.2)

    def step(x: int, a: int) -> list[Result]:
        rest, weather = divmod(x, 2)
        warm, rate = divmod(rest, 3)
        up, down = float(power[a]), float(cools[weather])
        paid = (-float(tariff[rate]) * float(power[a]), -abs(warm - likes) / 4.0)
        results: list[Result] = []
        for change, p in ((1, up * (1.0 - down)), (-1, down * (1.0 - up)), (0, up * down + (1.0 - up) * (1.0 - down))):
            now = min(max(warm + change, 0), warmths - 1)
            for later, q in ((rate, stays), ((rate + 1) % 3, 1.0 - stays)):
                for sky, share in ((weather, 1.0 - turns), (1 - weather, turns)):
                    results.append((p * q * share, (now * 3 + later) * 2 + sky, paid))
        return results

    n_states = warmths * 6
    return world_of(
        step,
        n_states=n_states,
        n_actions=3,
        initial=np.full(n_states, 1.0 / n_states),
        objectives=("bill", "comfort"),
        discount=0.97,
        end=0.02,
    )


def bus_engine(rng: Rng, *, mileages: int = 18) -> World:
    """Replacement of bus engines, after Rust (1987): states are mileage × route (city, hills), actions run, service, overhaul, replace.

    "money" is −(running cost, which grows with mileage, and the action's price); a breakdown costs an exponential amount more, of mean
    6, and −1 on "stranded". Breakdowns grow with mileage, faster in the hills; a service halves them for the step, an overhaul takes
    off half of the mileage, a new engine all of it.
    """
    draw = generator(rng)
    age = np.arange(mileages) / (mileages - 1)
    running = draw.uniform(0.2, 0.5) + draw.uniform(0.5, 1.0) * age
    breaks = 0.01 + draw.uniform(0.1, 0.25) * age[:, None] ** 2 * np.array([1.0, draw.uniform(1.5, 2.5)])
    price = np.array([0.0, draw.uniform(0.1, 0.4), draw.uniform(1.5, 3.0), draw.uniform(4.0, 8.0)])
    miles = draw.dirichlet([2.0, 3.0, 2.0], size=2)

    def step(x: int, a: int) -> list[Result]:
        mileage, route = divmod(x, 2)
        start = mileage // 2 if a == 2 else 0 if a == 3 else mileage
        p = float(breaks[start, route]) * (0.5 if a == 1 else 1.0)
        cost = -float(running[start] + price[a])
        results: list[Result] = []
        for driven, q in enumerate(miles[route]):
            for later, share in ((route, 0.8), (1 - route, 0.2)):
                there = min(start + driven, mileages - 1) * 2 + later
                results.append((float(q) * share * (1.0 - p), there, (cost, 0.0)))
                results += with_noise([(float(q) * share * p, there, (cost, -1.0))], 0, -6.0, EXPONENTIAL_POINTS)
        return results

    n_states = 2 * mileages
    initial = np.zeros(n_states)
    initial[:mileages] = 1.0 / mileages
    return world_of(
        step,
        n_states=n_states,
        n_actions=4,
        initial=initial,
        objectives=("money", "stranded"),
        discount=0.98,
        end=0.025,
    )


def fishery(rng: Rng, *, stocks: int = 16) -> World:
    """A fishery that never ends: states are stock × price (low, middling, high), actions the effort, 0 … 4.

    Each unit of effort catches one unit if the stock is large, and less often if it is small. "profit" is price × catch − effort. The stock
    grows most at middling sizes, and hardly at all when it is low; "depleted" is −1 for every step that ends below half of the capacity.
    """
    draw = generator(rng)
    price, effort = np.sort(draw.uniform(0.6, 2.5, size=3)), draw.uniform(0.1, 0.3)
    share = np.arange(stocks) / (stocks - 1)
    grows = draw.uniform(2.0, 3.5) * share * (1.0 - 0.8 * share)
    stays = draw.uniform(0.5, 0.8)

    def step(x: int, a: int) -> list[Result]:
        stock, level = divmod(x, 3)
        p = float(0.3 + 0.7 * share[stock]) if stock else 0.0
        more = float(grows[stock])
        low, up = int(more), more - int(more)
        results: list[Result] = []
        for caught, q in _catches(a, p):
            taken = min(caught, stock)
            for growth, g in ((low, 1.0 - up), (low + 1, up)):
                now = min(max(stock - taken + growth, 0), stocks - 1)
                paid = (float(price[level]) * taken - effort * a, -float(now < stocks / 2.0))
                for later in range(3):
                    moves = stays if later == level else (1.0 - stays) / 2.0
                    results.append((q * g * moves, now * 3 + later, paid))
        return results

    n_states = 3 * stocks
    initial = np.zeros(n_states)
    initial[n_states // 2 :] = 2.0 / n_states
    return world_of(
        step, n_states=n_states, n_actions=5, initial=initial, objectives=("profit", "depleted"), discount=0.95
    )


def _catches(effort: int, p: float) -> list[tuple[int, float]]:
    """Binomial catches of ``effort`` units, each with probability p."""
    from math import comb

    return [(n, comb(effort, n) * p**n * (1.0 - p) ** (effort - n)) for n in range(effort + 1)]
