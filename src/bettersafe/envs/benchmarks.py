"""Public tabular benchmarks as worlds with several objectives, each with a random map or random constants.

FrozenLake, CliffWalking and Taxi follow Gymnasium; deep sea treasure and resource gathering MO-Gymnasium; wet chicken
Scholl et al. (2022), RiverSwim Strehl and Littman (2008), blackjack, the mountain car, the windy gridworld and Jack's car rental Sutton and Barto (2018). Penalties of the originals
are objectives of their own, so that they can be protected. Moves of grids are down, left, right, up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csgraph, csr_array

from bettersafe.envs.gridworld import MOVES
from bettersafe.envs.hazards import Hazard, poisson
from bettersafe.envs.tabular import END, world_of
from bettersafe.typing import frozen, generator

if TYPE_CHECKING:
    from bettersafe.envs.tabular import Result, World
    from bettersafe.typing import Bools, Floats, Rng

Cell = tuple[int, int]


def frozen_lake(rng: Rng, *, size: int = 6, hole_prob: float = 0.2, slip: float = 1.0 / 3.0) -> World:
    """FrozenLake: cross a frozen lake without falling into a hole.

    A move goes to either side with probability ``slip`` each. The goal pays 1 on "goal", a hole −1 on "holes"; both end
    the episode. Maps are drawn until the goal, in the last corner, can be reached from the first.
    """
    draw, n = generator(rng), size * size
    holes = np.zeros(n, dtype=np.bool_)
    while True:
        holes = draw.random(n) < hole_prob
        holes[[0, n - 1]] = False
        if _connected(~holes.reshape(size, size), 0, n - 1):
            break

    def step(x: int, a: int) -> list[Result]:
        results: list[Result] = []
        row, column = divmod(x, size)
        for move, p in ((MOVES[a], 1.0 - 2.0 * slip), *((MOVES[b], slip) for b in _sides(a))):
            there = _moved((row, column), move, (size, size))
            y = there[0] * size + there[1]
            if y == n - 1 or holes[y]:
                results.append((p, END, (float(y == n - 1), -float(holes[y]))))
            else:
                results.append((p, y, (0.0, 0.0)))
        return results

    return world_of(step, n_states=n, n_actions=4, initial=0, objectives=("goal", "holes"), discount=0.97, end=0.01)


def cliff_walking(rng: Rng, *, rows: int = 4, columns: int = 8) -> World:
    """CliffWalking: from the lower left corner to the lower right one, with a cliff in between.

    A step pays −1 on "time"; a fall −1 on "falls" and leads back to the start. The wind, of random strength, blows one
    cell towards the cliff.
    """
    draw = generator(rng)
    wind = draw.uniform(0.05, 0.2)
    start, goal = (rows - 1, 0), (rows - 1, columns - 1)

    def step(x: int, a: int) -> list[Result]:
        results: list[Result] = []
        here = divmod(x, columns)
        for blown, p in ((False, 1.0 - wind), (True, wind)):
            there = _moved(here, MOVES[a], (rows, columns))
            if blown:
                there = _moved(there, (1, 0), (rows, columns))
            if there == goal:
                results.append((p, END, (-1.0, 0.0)))
            elif there[0] == rows - 1 and 0 < there[1] < columns - 1:
                results.append((p, start[0] * columns + start[1], (-1.0, -1.0)))
            else:
                results.append((p, there[0] * columns + there[1], (-1.0, 0.0)))
        return results

    return world_of(
        step,
        n_states=rows * columns,
        n_actions=4,
        initial=start[0] * columns + start[1],
        objectives=("time", "falls"),
        discount=0.97,
    )


def small_taxi(rng: Rng, *, size: int = 3, stands: int = 3) -> World:
    """Taxi on a small map: fetch a passenger at one of the stands, bring them to another.

    States are cell × passenger (at a stand, or in the taxi) × destination; actions are the four moves, pick up and drop
    off. A step pays −1 on "fare", the right drop-off 20, which ends the episode; a pick-up or drop-off in the wrong place
    pays −1 on "complaints". A move fails with a random probability.
    """
    draw = generator(rng)
    cells, inside = size * size, stands
    stand = np.sort(draw.choice(cells, size=stands, replace=False))
    fails = draw.uniform(0.05, 0.25)

    def index(cell: int, passenger: int, destination: int) -> int:
        return (cell * (stands + 1) + passenger) * stands + destination

    def step(x: int, a: int) -> list[Result]:
        rest, destination = divmod(x, stands)
        cell, passenger = divmod(rest, stands + 1)
        if a < 4:
            row, column = _moved(divmod(cell, size), MOVES[a], (size, size))
            moved = index(row * size + column, passenger, destination)
            return [(1.0 - fails, moved, (-1.0, 0.0)), (fails, x, (-1.0, 0.0))]
        if a == 4 and passenger < inside and cell == stand[passenger]:
            return [(1.0, index(cell, inside, destination), (-1.0, 0.0))]
        if a == 5 and passenger == inside and cell == stand[destination]:
            return [(1.0, END, (20.0, 0.0))]
        return [(1.0, x, (-1.0, -1.0))]

    initial = np.zeros(cells * (stands + 1) * stands)
    for cell in range(cells):
        for passenger in range(stands):
            for destination in range(stands):
                initial[index(cell, passenger, destination)] = float(passenger != destination)
    return world_of(
        step,
        n_states=initial.size,
        n_actions=6,
        initial=initial / initial.sum(),
        objectives=("fare", "complaints"),
        discount=0.95,
        end=0.01,
    )


def deep_sea_treasure(rng: Rng, *, columns: int = 8, depth: int = 8) -> World:
    """Deep sea treasure: a submarine starts in the upper left corner; treasures lie on the sea floor, larger ones farther.

    Each treasure ends the episode and pays its worth on "treasure"; each step pays −1 on "time". The floor falls from left
    to right by random steps, and worth grows with depth. A current, of random strength, carries the submarine to the
    right.
    """
    draw = generator(rng)
    floor = np.sort(draw.integers(1, depth, size=columns))
    worth = np.cumsum(draw.gamma(2.0, 2.0, size=columns))
    current = draw.uniform(0.0, 0.15)

    def settle(here: Cell, move: Cell) -> Result:
        row, column = _moved(here, move, (depth, columns))
        if row > floor[column]:  # into the rock
            row, column = here
        if row == floor[column]:
            return 1.0, END, (float(worth[column]), -1.0)
        return 1.0, row * columns + column, (0.0, -1.0)

    def step(x: int, a: int) -> list[Result]:
        here = divmod(x, columns)
        results = []
        for p, move in ((1.0 - current, MOVES[a]), (current, (0, 1))):
            _, there, paid = settle(here, move)
            results.append((p, there, paid))
        return results

    return world_of(
        step,
        n_states=depth * columns,
        n_actions=4,
        initial=0,
        objectives=("treasure", "time"),
        discount=0.97,
        end=0.01,
    )


def resource_gathering(rng: Rng, *, size: int = 5) -> Hazard:
    """Resource gathering: fetch gold and a gem and bring them home, past guards.

    States are cell × what is carried (nothing, gold, gem, both). All cells next to a resource are guarded. Entering one is
    deadly with a probability of its own, 0.01 to 0.15: −1 on "survival", and the episode ends. Coming home with something
    pays 1 on "gold" or "gem" or both, and ends it.
    """
    draw, n = generator(rng), size * size
    home = n - 1 - size // 2
    far = [cell for cell in range(n) if abs(cell // size - home // size) + abs(cell % size - home % size) >= size - 1]
    gold, gem = (int(cell) for cell in draw.choice(far, size=2, replace=False))
    guarded = [c for c in range(n) if c not in (gold, gem, home) and min(_apart(c, r, size) for r in (gold, gem)) == 1]
    deadly = np.zeros(n)
    deadly[guarded] = draw.uniform(0.01, 0.15, size=len(guarded))

    def step(x: int, a: int) -> list[Result]:
        cell, carried = divmod(x, 4)
        row, column = _moved(divmod(cell, size), MOVES[a], (size, size))
        there = row * size + column
        if there == home and carried:
            return [(1.0, END, (0.0, float(carried & 1), float(carried >> 1)))]
        now = carried | (1 if there == gold else 0) | (2 if there == gem else 0)
        return [
            (1.0 - deadly[there], there * 4 + now, (0.0, 0.0, 0.0)),
            (float(deadly[there]), END, (-1.0, 0.0, 0.0)),
        ]

    world = world_of(
        step,
        n_states=4 * n,
        n_actions=4,
        initial=home * 4,
        objectives=("survival", "gold", "gem"),
        discount=0.97,
        end=0.02,
    )
    harmful = np.array(
        [[any(paid[0] < 0.0 and p > 0.0 for p, _, paid in step(x, a)) for a in range(4)] for x in range(4 * n)]
    )
    return Hazard(world=world, harmful=frozen(harmful, np.bool_), harm=0)


def wet_chicken(rng: Rng, *, size: int = 5) -> World:
    """Wet chicken: paddle close to a waterfall, where it pays most, without going over.

    The river is ``size`` × ``size`` cells, y across and x down to the fall. The current 3y/size of velocity and the
    turbulence 3.5 − velocity (Scholl et al. 2022) are scaled by random factors. Actions: drift, hold, paddle back, left,
    right. A step pays x' on "income"; going over the fall leads back to the origin and pays −1 on "falls".
    """
    draw = generator(rng)
    speed, rough = draw.uniform(0.7, 1.1), draw.uniform(0.7, 1.1)
    noise = (np.arange(60) + 0.5) / 30.0 - 1.0  # equally likely values of U(−1, 1)

    def step(x: int, a: int) -> list[Result]:
        down, across = divmod(x, size)
        velocity = 3.0 * speed * across / size
        turbulence = rough * (3.5 - 3.0 * across / size)
        push = (0.0, -1.0, -2.0, 0.0, 0.0)[a]
        aside = (0, 0, 0, -1, 1)[a]
        to = min(max(across + aside, 0), size - 1)
        reached = np.rint(down + push + velocity + 0.5 * turbulence * noise).astype(int)
        results: dict[tuple[int, float, float], float] = {}
        for y in reached:
            over = y >= size
            there = 0 if over else max(int(y), 0)
            key = (0 if over else there * size + to, float(there), -float(over))
            results[key] = results.get(key, 0.0) + 1.0
        return [(p, state, (income, fall)) for (state, income, fall), p in results.items()]

    return world_of(
        step, n_states=size * size, n_actions=5, initial=0, objectives=("income", "falls"), discount=0.95, end=0.03
    )


def river_swim(rng: Rng, *, length: int = 8) -> World:
    """RiverSwim: drift down the river for a small reward, or swim up against the current for a large one.

    "reward" is 0.02 at the lower end and 1 at the upper end; every stroke against the current costs a random amount of
    "effort", which is protected; actions are drift, swim, and swim hard (faster, and twice to four times the effort).
    """
    draw = generator(rng)
    effort = draw.uniform(0.05, 0.3, size=length)
    hard = draw.uniform(2.0, 4.0)
    up, back = draw.uniform(0.35, 0.5), draw.uniform(0.05, 0.15)

    def step(x: int, a: int) -> list[Result]:
        if a == 0:
            return [(1.0, max(x - 1, 0), (0.02 if x == 0 else 0.0, 0.0))]
        ahead = up if a == 1 else min(1.6 * up, 0.8)
        pays = 1.0 if x == length - 1 else 0.0
        cost = -effort[x] * (1.0 if a == 1 else hard)
        return [
            (ahead, min(x + 1, length - 1), (pays, cost)),
            (back, max(x - 1, 0), (0.0, cost)),
            (1.0 - ahead - back, x, (0.0, cost)),
        ]

    return world_of(
        step, n_states=length, n_actions=3, initial=1, objectives=("reward", "effort"), discount=0.97, end=0.02
    )


def blackjack(rng: Rng) -> World:
    """Blackjack with aces that count 1 and a random deck: states are the hand, 8 … 20, × the dealer's card, actions stick, hit, double.

    Cards come back after each draw. Who holds less than 8 draws on, who holds 21 sticks; the dealer draws up to 17. "winnings" are ±1,
    ±2 after a double, for which there is one more card; "busts" is −1 for a hand above 21.
    """
    draw = generator(rng)
    card = draw.dirichlet(np.append(np.full(9, 8.0), 32.0))  # of 1 … 10
    values = range(1, 11)
    dealt = _dealer(card)

    def settle(hand: int, shown: int, stake: float) -> list[Result]:
        if hand > 21:
            return [(1.0, END, (-stake, -1.0))]
        return [
            (float(p), END, (stake * float(np.sign(hand - final) if final <= 21 else 1), 0.0))
            for final, p in enumerate(dealt[shown])
            if p > 0.0
        ]

    def step(x: int, a: int) -> list[Result]:
        hand, shown = x // 10 + 8, x % 10
        if a == 0:
            return settle(hand, shown, 1.0)
        results: list[Result] = []
        for value, p in zip(values, card, strict=True):
            now = hand + value
            if a == 1 and now <= 20:
                results.append((float(p), (now - 8) * 10 + shown, (0.0, 0.0)))
            else:
                results += [(float(p) * q, END, paid) for q, _, paid in settle(now, shown, float(a))]
        return results

    hands = np.append([0.0, 0.0], np.convolve(card, card))  # two cards
    for hand in range(8):
        hands[hand + 1 : hand + 11] += hands[hand] * card
    return world_of(
        step,
        n_states=130,
        n_actions=3,
        initial=np.outer(hands[8:21] / hands[8:21].sum(), card).ravel(),
        objectives=("winnings", "busts"),
        discount=0.99,
    )


def mountain_car(rng: Rng, *, places: int = 19, speeds: int = 11, repeat: int = 6) -> World:
    """Mountain car: swing out of a valley with an engine that is too weak; actions push left, coast, push right.

    States are a grid of positions × velocities. A step is ``repeat`` steps of the original, from a grid point; the four grid points
    about where it leads have probabilities of bilinear interpolation. "time" is −1 for every step, "fuel" −1 for every push.
    Gravity and engine have random factors. The episode ends on the right hill.
    """
    draw = generator(rng)
    engine, gravity = 0.001 * draw.uniform(1.0, 1.5), 0.0025 * draw.uniform(0.9, 1.1)
    place, speed = np.linspace(-1.2, 0.5, places), np.linspace(-0.07, 0.07, speeds)

    def step(x: int, a: int) -> list[Result]:
        s, v = float(place[x // speeds]), float(speed[x % speeds])
        paid = (-1.0, -float(a != 1))
        for _ in range(repeat):
            v = min(max(v + engine * (a - 1) - gravity * float(np.cos(3.0 * s)), -0.07), 0.07)
            s += v
            if s >= 0.5:
                return [(1.0, END, paid)]
            if s <= -1.2:
                s, v = -1.2, max(v, 0.0)
        at, to = (s + 1.2) / 1.7 * (places - 1), (v + 0.07) / 0.14 * (speeds - 1)
        low, slow = min(int(at), places - 2), min(int(to), speeds - 2)
        return [
            (p * q, (low + i) * speeds + slow + j, paid)
            for i, p in enumerate((1.0 - at + low, at - low))
            for j, q in enumerate((1.0 - to + slow, to - slow))
        ]

    initial = np.zeros((places, speeds))
    initial[(place >= -0.65) & (place <= -0.35), speeds // 2] = 1.0
    return world_of(
        step,
        n_states=places * speeds,
        n_actions=3,
        initial=initial.ravel() / initial.sum(),
        objectives=("time", "fuel"),
        discount=0.98,
        end=0.01,
    )


def windy_gridworld(rng: Rng, *, rows: int = 7, columns: int = 10) -> World:
    """Windy gridworld: from the left to a goal on the right, with a wind that blows upwards in the columns between.

    Moves never fail but for one cell in six, which is slippery: there a move goes in any direction, and every other one is a fall,
    −1 on "falls". "goal" is 10 at the goal, less 0.2 for every step. The goal ends the episode.
    """
    draw = generator(rng)
    goal, start = (rows // 2, columns - 3), rows // 2 * columns
    wind = np.zeros(columns, dtype=np.int64)
    wind[3:-1] = draw.integers(0, 3, size=columns - 4)
    slippery = np.zeros(rows * columns, dtype=np.bool_)
    slippery[draw.choice(np.delete(np.arange(rows * columns), start), size=rows * columns // 6, replace=False)] = True

    def settle(x: int, move: Cell, p: float, falls: float) -> Result:
        row, column = _moved(divmod(x, columns), move, (rows, columns))
        there = (max(row - int(wind[x % columns]), 0), column)
        over = there == goal
        return (p, END if over else there[0] * columns + column, (10.0 * over - 0.2, -falls))

    def step(x: int, a: int) -> list[Result]:
        if not slippery[x]:
            return [settle(x, MOVES[a], 1.0, 0.0)]
        return [settle(x, move, p, falls) for move in MOVES for p, falls in ((0.125, 1.0), (0.125, 0.0))]

    return world_of(
        step,
        n_states=rows * columns,
        n_actions=4,
        initial=start,
        objectives=("goal", "falls"),
        discount=0.98,
        end=0.01,
    )


def car_rental(rng: Rng, *, most: int = 6) -> World:
    """Jack's car rental: states are cars at the first place × at the second, actions move 2 or 1 cars to the first, none, or 1 or 2 to the second.

    A step is a day. "rented" counts cars that are rented, a Poisson number at each place as far as there are cars; "moved" is −(cars moved
    overnight), and "refused" −(places, of the two, where a customer got no car). A Poisson number of cars comes back to each place.
    """
    draw = generator(rng)
    asks, returns = draw.uniform(0.8, 2.5, size=2), draw.uniform(0.6, 2.2, size=2)
    customers, back = [poisson(float(mean), 5) for mean in asks], [poisson(float(mean), 3) for mean in returns]
    side = most + 1

    def day(cars: int, place: int) -> dict[tuple[int, int, int], float]:
        """Probabilities of cars in the evening, cars rented and whether a customer is refused at one place."""
        found: dict[tuple[int, int, int], float] = {}
        for wanted, p in enumerate(customers[place]):
            for came, q in enumerate(back[place]):
                rented = min(wanted, cars)
                key = (min(cars - rented + came, most), rented, int(wanted > rented))
                found[key] = found.get(key, 0.0) + p * q
        return found

    days = [[day(cars, place) for cars in range(side)] for place in range(2)]

    def step(x: int, a: int) -> list[Result]:
        first, second = divmod(x, side)
        moved = min(max(a - 2, -second), first)
        joint: dict[tuple[int, int, int], float] = {}
        for (here, out, lost), p in days[0][min(first - moved, most)].items():
            for (there, gone, missed), q in days[1][min(second + moved, most)].items():
                key = (here * side + there, out + gone, lost + missed)
                joint[key] = joint.get(key, 0.0) + p * q
        return [(p, y, (float(out), -float(abs(moved)), -float(lost))) for (y, out, lost), p in joint.items()]

    initial = np.zeros((side, side))
    initial[most // 2, most // 2] = 1.0
    return world_of(
        step,
        n_states=initial.size,
        n_actions=5,
        initial=initial.ravel(),
        objectives=("rented", "moved", "refused"),
        discount=0.95,
        end=0.05,
    )


def _dealer(card: Floats) -> Floats:
    """Probabilities of the dealer's final hand 0 … 26, for each card shown, shape [10, 27]."""
    final = np.zeros((10, 27))
    for shown in range(10):
        hand = np.zeros(27)
        hand[shown + 1] = 1.0
        for total in range(1, 17):
            hand[total + 1 : total + 11] += hand[total] * card
            hand[total] = 0.0
        final[shown] = hand
    return final


def _moved(here: Cell, move: Cell, shape: Cell) -> Cell:
    """The cell after a move; walls keep one in place."""
    row, column = here[0] + move[0], here[1] + move[1]
    return (row, column) if 0 <= row < shape[0] and 0 <= column < shape[1] else here


def _sides(a: int) -> tuple[int, int]:
    """The two moves at a right angle to move a."""
    return (1, 2) if a in (0, 3) else (0, 3)


def _apart(a: int, b: int, size: int) -> int:
    """Steps between two cells of a square grid."""
    return abs(a // size - b // size) + abs(a % size - b % size)


def _connected(free: Bools, start: int, goal: int) -> bool:
    """Whether the goal can be reached from the start over free cells of a grid."""
    rows, columns = free.shape
    tail, head = [], []
    for x in np.flatnonzero(free):
        for move in MOVES:
            row, column = _moved(divmod(int(x), columns), move, (rows, columns))
            if free[row, column]:
                tail.append(x)
                head.append(row * columns + column)
    graph = csr_array((np.ones(len(tail)), (tail, head)), shape=(free.size, free.size))
    return bool(np.isin(goal, csgraph.breadth_first_order(graph, start, return_predecessors=False)))
