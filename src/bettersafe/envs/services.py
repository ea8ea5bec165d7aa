"""Worlds of services with many to satisfy: queues in tandem, a shop floor with eight objectives, grants with thirty."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.hazards import successors
from bettersafe.envs.tabular import world_of
from bettersafe.typing import generator

if TYPE_CHECKING:
    from bettersafe.envs.tabular import Result, World
    from bettersafe.typing import Rng


def tandem_queues(rng: Rng, *, longest: int = 7) -> World:
    """Two queues one after the other, and customers who give up: states are both lengths, actions where the spare worker helps.

    Actions: nowhere, the first, the second, half at each. "served" is 1 for a customer who is through both. In a queue of more than two
    somebody gives up with a probability that grows with its length: −1 on "given up". "wages" is the cost of the spare worker. "accidents"
    never happen. The discount is 0.995.
    """
    draw = generator(rng)
    comes, speed = draw.uniform(0.5, 0.8), draw.uniform(0.3, 0.45, size=2)
    spare, wage = draw.uniform(0.2, 0.35), draw.uniform(0.2, 0.5)
    leaves = draw.uniform(0.02, 0.06)
    helps = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    side = longest + 1

    def step(x: int, a: int) -> list[Result]:
        lengths = divmod(x, side)
        rates = speed + spare * helps[a]
        quits = [leaves * max(n - 2, 0) for n in lengths]
        results: list[Result] = []
        for came, one, two, first, second in product((0, 1), repeat=5):
            p = (
                (comes if came else 1.0 - comes)
                * (float(rates[0]) if one else 1.0 - float(rates[0]))
                * (float(rates[1]) if two else 1.0 - float(rates[1]))
                * (quits[0] if first else 1.0 - quits[0])
                * (quits[1] if second else 1.0 - quits[1])
            )
            on, out = one * (lengths[0] > 0), two * (lengths[1] > 0)
            now = min(max(lengths[0] - on - first, 0) + came, longest)
            then = min(max(lengths[1] - out - second, 0) + on, longest)
            results.append((p, now * side + then, (float(out), -float(first + second), -wage * float(a > 0), 0.0)))
        return results

    return world_of(
        step,
        n_states=side * side,
        n_actions=4,
        initial=0,
        objectives=("served", "given up", "wages", "accidents"),
        discount=0.995,
        end=0.02,
    )


def shop_floor(rng: Rng, *, longest: int = 3) -> World:
    """Jobs of three classes that wait for one machine: states are the three lengths, actions which class is next, slow or fast.

    Eight objectives: "value" of the jobs done, "energy", and for each class "delay" (−its length) and "lost" (−1 for a job that finds
    no place).
    """
    draw = generator(rng)
    comes, value = draw.uniform(0.1, 0.3, size=3), draw.uniform(0.5, 3.0, size=3)
    slow, fast = draw.uniform(0.4, 0.7, size=3), draw.uniform(0.7, 0.95, size=3)
    power = draw.uniform(0.3, 0.8)
    side = longest + 1

    def step(x: int, a: int) -> list[Result]:
        lengths = [x // side**2, x // side % side, x % side]
        chosen, quick = a % 3, a >= 3
        rate = float((fast if quick else slow)[chosen]) if lengths[chosen] else 0.0
        results: list[Result] = []
        for done, q in ((1, rate), (0, 1.0 - rate)):
            left = [n - done * (k == chosen) for k, n in enumerate(lengths)]
            for came in product((0, 1), repeat=3):
                p = q * float(np.prod(np.where(came, comes, 1.0 - comes)))
                lost = [float(n + c > longest) for n, c in zip(left, came, strict=True)]
                now = [min(n + c, longest) for n, c in zip(left, came, strict=True)]
                paid = [
                    float(value[chosen]) * done,
                    -power * quick,
                    *(-n / longest for n in now),
                    *(-one for one in lost),
                ]
                results.append((p, (now[0] * side + now[1]) * side + now[2], paid))
        return results

    return world_of(
        step,
        n_states=side**3,
        n_actions=6,
        initial=0,
        objectives=("value", "energy", *(f"{what} {k}" for what in ("delay", "lost") for k in range(3))),
        discount=0.95,
        end=0.03,
    )


def grants(rng: Rng, *, n_states: int = 20, n_actions: int = 5, groups: int = 29) -> World:
    """An office that funds programmes: each of 29 groups has what it gets as an objective of its own, beside the "benefit" of all.

    A programme has a benefit in each state; a group gets this benefit, more or less of it by a difference of the pair and group,
    and only in the half of the states that concern it. Pairs lead to three random states.
    """
    draw = generator(rng)
    there, share = successors(draw, n_states, n_actions)
    benefit = draw.uniform(0.0, 1.0, (n_states, n_actions))
    concerns = draw.random((groups, n_states, 1)) < 0.5
    gets = concerns * np.maximum(benefit + draw.normal(0.0, 0.15, (groups, n_states, n_actions)), 0.0)
    paid = np.concatenate([benefit[None], gets])

    def step(x: int, a: int) -> list[Result]:
        rewards = [float(r) for r in paid[:, x, a]]
        return [(float(q), int(y), rewards) for y, q in zip(there[x, a], share[x, a], strict=True)]

    return world_of(
        step,
        n_states=n_states,
        n_actions=n_actions,
        initial=np.full(n_states, 1.0 / n_states),
        objectives=("benefit", *(f"group {k}" for k in range(groups))),
        discount=0.95,
        end=0.05,
    )
