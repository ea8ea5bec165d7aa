"""Print the table of docs/evidence.md, "Power of the tests": what share of safe improvements passes, and how often a worse one does.

One proposal (Adv-Linearized from 70 % of the episodes, mixed with the baseline as H-OPT does) is tested on the other 30 % in each
world, by several estimators. Worlds of the first half (seeds below `WORLDS`) were looked at while the rules were made; those of the
second half, which has a kind of its own, once. Usage: ``python scripts/make_power_table.py [first|second] [worlds] [kind ...]``.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections import Counter

import numpy as np

from bettersafe.envs.benchmarks import river_swim
from bettersafe.envs.gridworld import HORIZON, feasible_gridworld, quality_baseline
from bettersafe.envs.operations import admission_queue
from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.evaluation import held_out as held_out_tests
from bettersafe.evaluation.bounds import MANY_LOSSES
from bettersafe.evaluation.held_out import SafetyRule
from bettersafe.logs.dataset import split
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.mdp.values import expected_return
from bettersafe.methods.h_opt import h_opt, inside
from bettersafe.methods.s_opt import adv_linearized
from bettersafe.model import estimate_model

DELTA = 0.1
WORLDS = 125
"""Worlds of each kind and half."""

QUALITIES = (0.0, 0.3, 0.6, 0.9)
"""Qualities of the baselines, in turn."""

TESTS = ("dr, t alone", "dr", "mis", "drl")
"""Estimators, with the bound t; "t alone" is without the bound for rare losses, as the test was before there was one."""


def of_quality(rng, world, quality):
    """Baseline between a random policy and the best for equal weights."""
    truth = true_mdp(world)
    return mixed_policy(rng, optimal_policy(truth, np.ones(truth.n_objectives)), quality)


def random_world(rng, quality):
    """A random world with ends: 1,000 episodes of 10 steps on average."""
    world = garnet(rng, n_states=20, n_actions=3, end=0.1)
    return world, of_quality(rng, world, quality), 1000, None, None


def shift(rng, quality):
    """24 hourly decisions: 30 states, 4 actions, 3,000 episodes, of which 900 are tested on; returns of 24 steps."""
    world = garnet(rng, n_states=30, n_actions=4, end=0.0, discount=0.99)
    return world, of_quality(rng, world, quality), 3000, 24, 24


def cut_off(rng, quality):
    """A random world without ends; episodes are cut off after 20 steps, and returns are not."""
    world = garnet(rng, n_states=20, n_actions=3, end=0.0)
    return world, of_quality(rng, world, quality), 300, 20, None


def gridworld(rng, quality):
    """Gridworlds of the study, 600 episodes."""
    drawn, optimum, _ = feasible_gridworld(rng)
    return drawn.world, quality_baseline(optimum.policy, quality or 0.1), 600, HORIZON, None


def queue(rng, quality):
    """A queue with admission control, cut off after 100 steps, three objectives."""
    world = admission_queue(rng)
    return world, of_quality(rng, world, quality), 600, 100, None


def swim(rng, quality):
    """RiverSwim, 1,000 episodes."""
    world = river_swim(rng)
    return world, of_quality(rng, world, quality), 1000, 100, None


KINDS = {
    "first": {"Garnets": random_world, "24 steps": shift, "Garnets, cut off": cut_off, "gridworlds": gridworld},
    "second": {
        "Garnets": random_world,
        "24 steps": shift,
        "Garnets, cut off": cut_off,
        "gridworlds": gridworld,
        "queue, cut off": queue,
        "RiverSwim": swim,
    },
}


def try_world(kind, make, half, seed):
    """For every test: is the full proposal safe, does it pass, does H-OPT return a policy, and is that worse?"""
    rng = np.random.default_rng([half == "second", seed, zlib.crc32(kind.encode())])
    world, baseline, episodes, cut, horizon = make(rng, QUALITIES[seed % len(QUALITIES)])
    truth = true_mdp(world)
    data = sample_episodes(world, baseline, episodes, rng, horizon=cut)
    train, held_out = split(data, (0.7, 0.3), rng)
    model = estimate_model(train, unseen="baseline", baseline=baseline, horizon=horizon)
    preference = np.eye(world.n_objectives)[seed % world.n_objectives] + (seed % 3 == 0)
    before = expected_return(truth, baseline, horizon=horizon)
    found = Counter()

    def worse(policy):
        gain = expected_return(truth, policy, horizon=horizon) - before
        return bool(np.any(gain < -1e-6 * np.abs(before).max()))

    proposal = adv_linearized(model, baseline, preference=preference).policy
    seen = np.zeros(baseline.shape, dtype=bool)
    seen[model.mdp.pair_state, model.mdp.pair_action] = True
    proposal = inside(proposal, baseline, seen)
    if np.array_equal(proposal, baseline):
        return found
    found["worlds"] += 1
    found["safe"] += not worse(proposal)
    for test in TESTS:
        held_out_tests.MANY_LOSSES = 0.0 if "alone" in test else MANY_LOSSES
        rule = SafetyRule(delta=DELTA, zeta=np.zeros(world.n_objectives), estimator=test.split(",")[0], horizon=horizon)
        for name, mixes in (("whole", (0.0,)), ("h-opt", tuple(np.arange(10) / 10.0))):
            result = h_opt(train, held_out, baseline, preference=preference, rule=rule, model=model, mixes=mixes)
            if result.accepted:
                lost = worse(result.improvement.policy)
                found[test, name, "worse" if lost else "safe"] += 1
                found[test, name, "share"] += 0.0 if lost else 1.0 - result.mix
    return found


def main():
    """Print a row for every kind and test."""
    half = sys.argv[1] if len(sys.argv) > 1 else "first"
    worlds = int(sys.argv[2]) if len(sys.argv) > 2 else WORLDS
    chosen = sys.argv[3:] or list(KINDS[half])
    print(
        "| worlds | estimator | safe proposals that passed | worse ones | `h-opt`: passed, safe | mean share | worse |"
    )
    print("|---|---|---|---|---|---|---|")
    total = Counter()
    for kind in chosen:
        make = KINDS[half][kind]
        start = time.process_time()
        found = sum((try_world(kind, make, half, seed) for seed in range(worlds)), Counter())
        total += found
        show(kind, found)
        print(f"{kind}: {time.process_time() - start:.0f} s", file=sys.stderr, flush=True)
    show("all", total)


def show(kind, found):
    """Print the rows of a kind."""
    worlds, safe = found["worlds"], found["safe"]
    for test in TESTS:
        whole, mixed = (
            {what: found[test, name, what] for what in ("safe", "worse", "share")} for name in ("whole", "h-opt")
        )
        cells = (
            f"{whole['safe']} of {safe}", f"{whole['worse']} of {worlds - safe}", f"{mixed['safe']} of {worlds}",
            f"{mixed['share'] / max(mixed['safe'], 1):.2f}", f"{mixed['worse']} of {worlds}",
        )  # fmt: skip
        print(f"| {kind} | {test} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
