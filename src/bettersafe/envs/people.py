"""Worlds of people: prescriptions, hotel guests, lawsuits, a ward, readers of headlines, members of a club; with random constants.

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

LOGNORMAL_POINTS = ((0.1827, 0.4), (0.5886, 0.3), (1.3354, 0.18), (2.7382, 0.08), (7.2731, 0.04))
"""Values and probabilities of a discretised lognormal, σ = 1.2: the means between five quantiles, 1 overall."""


def up_or_down(here: int, last: int, up: float, down: float) -> tuple[tuple[int, float], ...]:
    """Levels 0 … ``last`` after a step up and a step down, each with a probability of its own and independent, and their probabilities."""
    rises, falls = up * (1.0 - down), down * (1.0 - up)
    return (min(here + 1, last), rises), (max(here - 1, 0), falls), (here, 1.0 - rises - falls)


def prescriptions(rng: Rng, *, pains: int = 5, complaints: int = 3) -> World:
    """Prescriptions against pain: states are kidneys (good, fair, weak) × complaint × pain, actions none, mild, strong, exercise, both drugs.

    "comfort" is −pain/4 in every step, until there is none, which ends the episode. The strong drug alone bleeds patients, and only those with weak
    kidneys, with 2 to 5 % in a step: −1 on "bleeds", and the end. "price" is −(price of the action). Kidneys become weaker with 1 % in a step.
    """
    draw = generator(rng)
    eases = np.array([0.1, 0.25, 0.5, 0.2, 0.35]) * draw.uniform(0.6, 1.4, (complaints, 5))
    worsens, bleeds = draw.uniform(0.1, 0.2, size=complaints), draw.uniform(0.02, 0.05)
    price = np.array([0.0, 0.1, 0.2, 0.4, 0.5]) * draw.uniform(0.8, 1.2, size=5)

    def step(x: int, a: int) -> list[Result]:
        rest, pain = divmod(x, pains)
        kidneys, complaint = divmod(rest, complaints)
        bled = bleeds if a == 2 and kidneys == 2 else 0.0
        hurts, cost = -(pain + 1) / 4.0, -float(price[a])
        results: list[Result] = [(bled, END, (hurts, -1.0, cost))]
        for level, p in up_or_down(pain + 1, pains, float(worsens[complaint]), float(eases[complaint, a])):
            for later, q in ((min(kidneys + 1, 2), 0.01), (kidneys, 0.99)):
                there = (later * complaints + complaint) * pains + level - 1 if level else END
                results.append(((1.0 - bled) * p * q, there, (hurts, 0.0, cost)))
        return results

    initial = np.zeros((3, complaints, pains))
    initial[:, :, 1:] = np.outer((0.45, 0.3, 0.25), draw.dirichlet(np.full(complaints, 5.0)))[:, :, None] / (pains - 1)
    return world_of(
        step,
        n_states=initial.size,
        n_actions=5,
        initial=initial.ravel(),
        objectives=("comfort", "bleeds", "price"),
        discount=0.97,
        end=0.02,
    )


def hotel_guests(rng: Rng, *, nights: int = 6, moods: int = 4) -> World:
    """Guests of a hotel: states are night × annoyance × quiet or full house × private or on business, actions none, dinner, upgrade, insist, gift.

    "takings" is what a guest buys on top of the room. Offers annoy, the more so in a full house, and a gift calms. A guest who leaves complains
    or not: −1 on "complaints", a few in 100, by annoyance and a little by the last action; nothing else is ever paid on it.
    "costs" is −(cost of the action).
    """
    draw = generator(rng)
    buys = np.array([0.05, 0.3, 0.2, 0.45, 0.1]) * draw.uniform(0.6, 1.4, (2, 5))
    amount = np.array([0.3, 0.8, 1.6, 0.9, 0.3]) * draw.uniform(0.8, 1.2, size=5)
    annoys = np.array([0.06, 0.1, 0.12, 0.35, 0.03]) * draw.uniform(0.7, 1.3, size=5)
    calms = np.array([0.2, 0.2, 0.2, 0.1, 0.6])
    complains = draw.uniform(0.006, 0.012) * np.array([1.0, 2.5, 6.0, 14.0])
    last = np.array([1.0, 1.0, 1.1, 1.3, 0.7]) * draw.uniform(0.9, 1.1, size=5)
    cost = np.array([0.0, 0.1, 0.2, 0.1, 0.35]) * draw.uniform(0.8, 1.2, size=5)
    leaves, fills = draw.uniform(0.1, 0.25, size=(2, nights)), draw.uniform(0.15, 0.35)
    leaves[:, -1] = 1.0

    def step(x: int, a: int) -> list[Result]:
        rest, kind = divmod(x, 2)
        rest, full = divmod(rest, 2)
        night, mood = divmod(rest, moods)
        spent = -float(cost[a])
        goes, bad = float(leaves[kind, night]), float(complains[mood] * last[a])
        results: list[Result] = [(goes * bad, END, (0.0, -1.0, spent)), (goes * (1.0 - bad), END, (0.0, 0.0, spent))]
        if night < nights - 1:
            for now, p in up_or_down(mood, moods - 1, float(annoys[a]) * (1.0 + full), float(calms[a])):
                for later, q in ((1 - full, fills), (full, 1.0 - fills)):
                    there = (((night + 1) * moods + now) * 2 + later) * 2 + kind
                    results.append(((1.0 - goes) * p * q, there, (0.0, 0.0, spent)))
        sold = float(buys[kind, a]) * (1.0 - 0.15 * mood)
        paid = float(amount[a])
        return [
            (p * q, there, (got, *others))
            for p, there, (_, *others) in results
            for got, q in ((paid, sold), (0.0, 1.0 - sold))
        ]

    initial = np.zeros((nights, moods, 2, 2))
    initial[0] = np.einsum("m,f,k->mfk", (0.6, 0.25, 0.1, 0.05), (0.6, 0.4), draw.dirichlet((5.0, 5.0)))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=5,
        initial=initial.ravel(),
        objectives=("takings", "complaints", "costs"),
        discount=0.99,
    )


def lawsuits(rng: Rng, *, stages: int = 4, merits: int = 4) -> World:
    """Lawsuits against a firm: states are stage × merit of the claim × soft or tough claimant, actions wait, offer, report, motion, trial.

    "paid" is −(what a settlement or a lost trial costs), lognormal: one in 25 costs seven times the mean. A trial is lost the more often, the
    better the claim, which is −1 on "lost"; one that is won costs nothing. A report lowers the merit, a motion may end the case.
    "fees" is −(fees of the step), most for a trial.
    """
    draw = generator(rng)
    lost = np.linspace(draw.uniform(0.1, 0.3), draw.uniform(0.7, 0.9), merits)
    judged, settled = draw.uniform(4.0, 6.0), draw.uniform(0.7, 1.6) * np.linspace(0.8, 1.6, merits)
    takes = np.array([draw.uniform(0.4, 0.7), draw.uniform(0.15, 0.35)])
    fees = np.array([0.1, 0.2, 0.5, 0.4, 1.5]) * draw.uniform(0.7, 1.3, size=5)
    lowers, dismissed = draw.uniform(0.3, 0.6), draw.uniform(0.1, 0.3) * np.linspace(1.0, 0.2, merits)
    gives_up, presses = draw.uniform(0.02, 0.08), draw.uniform(0.2, 0.4)

    def step(x: int, a: int) -> list[Result]:
        rest, tough = divmod(x, 2)
        stage, merit = divmod(rest, merits)
        fee = -float(fees[a])
        bad: list[Result] = [(float(lost[merit]), END, (0.0, -1.0, fee))]
        tried = [*with_noise(bad, 0, -judged, LOGNORMAL_POINTS), (1.0 - bad[0][0], END, (0.0, 0.0, fee))]
        if a == 4 or (stage == stages - 1 and a in (0, 2)):
            return tried
        over = float(dismissed[merit]) if a == 3 else gives_up / (1 + tough)
        agreed = (1.0 - over) * (float(takes[tough]) if a == 1 else 0.0)
        results: list[Result] = [(over, END, (0.0, 0.0, fee))]
        if agreed:
            results += with_noise([(agreed, END, (0.0, 0.0, fee))], 0, -float(settled[merit]), LOGNORMAL_POINTS)
        going = 1.0 - over - agreed
        if stage == stages - 1:
            return results + [(going * p, there, paid) for p, there, paid in tried]
        later = stage + 1 if a else stage
        for now, p in up_or_down(merit, merits - 1, 0.15, lowers if a == 2 else 0.1):
            for where, q in ((later, 1.0 - presses), (stage + 1, presses)):
                results.append((going * p * q, (where * merits + now) * 2 + tough, (0.0, 0.0, fee)))
        return results

    initial = np.zeros((stages, merits, 2))
    initial[0] = np.outer(draw.dirichlet(np.full(merits, 5.0)), (0.6, 0.4))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=5,
        initial=initial.ravel(),
        objectives=("paid", "lost", "fees"),
        discount=0.98,
    )


def recovery_ward(rng: Rng, *, severities: int = 6, marks: int = 3) -> World:
    """A ward with three ends: states are severity × drug in the blood × young or old, actions observe, first drug, second drug, both, operate.

    An episode ends with a cure, 1 on "cured", a death, −1 on "deaths", or a transfer, −1 on "transfers"; the rate of each depends on severity and
    age, and on the action. Much of a drug makes deaths likelier. "days" is −0.1 in every step.
    """
    draw = generator(rng)
    cures = np.array([0.1, 0.2, 0.25, 0.4, 0.35]) * draw.uniform(0.7, 1.3, (2, 5))
    dies = np.array([0.02, 0.012, 0.015, 0.035, 0.06]) * draw.uniform(0.6, 1.4, (2, 5))
    moves = np.array([0.03, 0.05, 0.03, 0.02, 0.07]) * draw.uniform(0.6, 1.4, (2, 5))
    better = np.array([0.15, 0.3, 0.25, 0.4, 0.5]) * draw.uniform(0.8, 1.2, size=5)
    stays, gets_worse = draw.uniform(0.3, 0.5), draw.uniform(0.15, 0.3)
    stacks = (0.0, 0.5, 0.4, 0.9, 0.1)

    def step(x: int, a: int) -> list[Result]:
        rest, old = divmod(x, 2)
        severity, mark = divmod(rest, marks)
        ill = severity / (severities - 1)
        ends = (
            (float(cures[old, a]) * (1.0 - ill) ** 2, (1.0, 0.0, 0.0)),
            (float(dies[old, a]) * (0.2 + 2.0 * ill) * (1.0 + mark), (0.0, -1.0, 0.0)),
            (float(moves[old, a]) * (0.5 + ill), (0.0, 0.0, -1.0)),
        )
        results: list[Result] = [(p, END, (*paid, -0.1)) for p, paid in ends]
        going = 1.0 - sum(p for p, _ in ends)
        for now, p in up_or_down(severity, severities - 1, gets_worse, float(better[a])):
            for left, q in up_or_down(mark, marks - 1, stacks[a], 1.0 - stays if stacks[a] < 0.2 else 0.1):
                results.append((going * p * q, (now * marks + left) * 2 + old, (0.0, 0.0, 0.0, -0.1)))
        return results

    initial = np.zeros((severities, marks, 2))
    initial[2:5, 0] = np.outer(draw.dirichlet(np.full(3, 5.0)), (0.5, 0.5))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=5,
        initial=initial.ravel(),
        objectives=("cured", "deaths", "transfers", "days"),
        discount=0.99,
    )


def headlines(rng: Rng, *, topics: int = 4, depths: int = 4, n_actions: int = 12) -> World:
    """Readers of news: states are topic × articles read × new or known reader, actions 12 headlines that are nearly equally good.

    "clicks" is 1 or 0. The probability is the state's, 0.2 to 0.5, plus an effect of the headline with a standard deviation of some 0.06, and one of
    both that is a third as large. "minutes" is exponential after a click; "adverts" is what an advertiser pays for a headline, clicked or not.
    Who does not click mostly leaves.
    """
    draw = generator(rng)
    usual = draw.uniform(0.2, 0.5, (topics, depths, 2, 1))
    effect = draw.normal(0.0, 0.06, n_actions) + draw.normal(0.0, 0.02, (topics, depths, 2, n_actions))
    clicks = np.clip(usual + effect, 0.05, 0.95).reshape(-1, n_actions)
    reads = draw.uniform(0.5, 1.5, topics)[:, None] * draw.uniform(0.9, 1.1, n_actions)
    pays = draw.uniform(0.1, 0.2, n_actions)
    leaves, drifts = draw.uniform(0.3, 0.5), draw.dirichlet(np.full(topics, 2.0), size=topics)
    stays_with = draw.uniform(0.5, 0.8)

    def step(x: int, a: int) -> list[Result]:
        rest, known = divmod(x, 2)
        topic, depth = divmod(rest, depths)
        p, advert = float(clicks[x, a]), float(pays[a])
        results: list[Result] = [((1.0 - p) * leaves, END, (0.0, 0.0, advert))]
        for after, share in enumerate(stays_with * np.eye(topics)[topic] + (1.0 - stays_with) * drifts[topic]):
            there = (after * depths + depth) * 2 + known
            results.append(((1.0 - p) * (1.0 - leaves) * float(share), there, (0.0, 0.0, advert)))
            deeper = (after * depths + min(depth + 1, depths - 1)) * 2 + known
            read: list[Result] = [(p * float(share), deeper, (1.0, 0.0, advert))]
            results += with_noise(read, 1, float(reads[topic, a]), EXPONENTIAL_POINTS)
        return results

    initial = np.zeros((topics, depths, 2))
    initial[:, 0] = np.outer(draw.dirichlet(np.full(topics, 3.0)), (0.7, 0.3))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=n_actions,
        initial=initial.ravel(),
        objectives=("clicks", "minutes", "adverts"),
        discount=0.99,
        end=0.02,
    )


def members(rng: Rng, *, uses: int = 5) -> World:
    """Members of a club, month by month: states are use × quarter of the year × full, reduced or lapsing fee, actions none, mail, call, rebate, course.

    "fees" is 1, or 0.6 while it is reduced, until a member leaves, seldom but for those who hardly come. Use falls in summer, and a course or a call makes it
    rise. A rebate reduces the fee for some months; when it ends, the member may leave. "complaints" is −1, mostly after calls; "costs" is −(cost of the action).
    """
    draw = generator(rng)
    season = np.array([0.12, 0.0, -0.1, 0.03]) * draw.uniform(0.7, 1.3)
    rises = np.array([0.12, 0.2, 0.35, 0.18, 0.5]) * draw.uniform(0.8, 1.2, size=5)
    falls, quits = draw.uniform(0.25, 0.35), draw.uniform(0.12, 0.2) * np.array([1.0, 0.4, 0.12, 0.05, 0.03])
    price = np.array([0.0, 0.02, 0.1, 0.02, 0.25]) * draw.uniform(0.8, 1.2, size=5)
    complains = np.array([0.001, 0.003, draw.uniform(0.01, 0.02), 0.002, 0.001])
    lasts, keeps = draw.uniform(0.6, 0.8), np.array([1.0, draw.uniform(0.3, 0.5), draw.uniform(1.5, 2.0)])

    def step(x: int, a: int) -> list[Result]:
        rest, tariff = divmod(x, 3)
        use, quarter = divmod(rest, 4)
        paid, cost = (1.0, 0.6, 1.0)[tariff], -float(price[a])
        gone, bad = float(quits[use] * keeps[tariff]), float(complains[a])
        up = max(float(rises[a] + season[quarter]), 0.02)
        after = ((1, 1.0),) if a == 3 else ((0, 1.0),) if tariff != 1 else ((1, lasts), (2, 1.0 - lasts))
        results: list[Result] = [(gone, END, (paid, 0.0, cost))]
        for now, p in up_or_down(use, uses - 1, up, falls):
            for later, q in (((quarter + 1) % 4, 1.0 / 3.0), (quarter, 2.0 / 3.0)):
                results += [
                    ((1.0 - gone) * p * q * share, (now * 4 + later) * 3 + fee, (paid, 0.0, cost))
                    for fee, share in after
                ]
        return [
            (p * q, there, (got, harm, spent))
            for p, there, (got, _, spent) in results
            for harm, q in ((-1.0, bad), (0.0, 1.0 - bad))
        ]

    initial = np.zeros((uses, 4, 3))
    initial[1:4, :, 0] = np.outer(draw.dirichlet(np.full(3, 5.0)), (0.4, 0.2, 0.15, 0.25))
    return world_of(
        step,
        n_states=initial.size,
        n_actions=5,
        initial=initial.ravel(),
        objectives=("fees", "complaints", "costs"),
        discount=0.98,
    )
