"""The gridworld study of Figure 1(a): what a CMDP of it takes, what a hundred would, and where the time goes."""

from __future__ import annotations

import time
from collections import defaultdict

import numpy as np
from measuring import alone, attempt, beside, cores, imported, say, seconds, shown
from s_opt import cvxpy_policy_iteration

from bettersafe import estimate_model, expected_return, split
from bettersafe.envs.gridworld import HORIZON, feasible_gridworld, known_rewards, quality_baseline
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.studies.case import Case
from bettersafe.studies.gridworld.experiment import experiment
from bettersafe.studies.gridworld.plan import PAPER_METHODS, QUALITIES, SIZES, gridworld_study

STUDY, CMDPS = "gridworld/fixed", 100
METHODS = (*PAPER_METHODS, "lagrangian 0.1")
WORDS = """`bettersafe study run gridworld/fixed`: 100 gridworlds, each with 4 baselines, 4 sizes of log, 3 preferences and 10 methods. A few of the
gridworlds are run on one core, the rest is extrapolated: 100 times their mean CPU time, shared by the cores. *Instead* is one search as the paper's code
does it, a cvxpy problem per state and round, timed once on the largest log, times the searches of the figure (100 × 4 × 4 × 3
× 8 methods of the paper, H-OPT taken for one search each), likewise shared by the cores."""


def estimated(data, baseline, rewards):
    """The study's model of a log: known rewards, its error function for one objective."""
    return estimate_model(
        data, delta=0.1, unseen="end", baseline=baseline, rewards=rewards, error_objectives=1, vocabulary="declared"
    )


def parts(n_cmdps):
    """Mean CPU seconds by part and size of the log, of ``n_cmdps`` gridworlds; and the last case, for others to solve."""
    spent = defaultdict(list)

    def clocked(part, work):
        start = time.process_time()
        result = work()
        spent[part].append(time.process_time() - start)
        return result

    for cmdp in range(n_cmdps):
        rng = np.random.default_rng(cmdp)
        grid, optimum, _ = clocked(("CMDP and its optimum, once", SIZES[0]), lambda r=rng: feasible_gridworld(r))
        truth, rewards = true_mdp(grid.world), known_rewards(grid)
        for quality in QUALITIES:
            baseline = quality_baseline(optimum.policy, quality)
            for n in SIZES:
                data = clocked(
                    ("drawing the log", n),
                    lambda b=baseline, n=n, g=grid, r=rng: sample_episodes(g.world, b, n, r, horizon=HORIZON),
                )
                train, safety = split(data, (0.7, 0.3), rng)
                models = clocked(
                    ("counting and both models", n),
                    lambda logs=(data, train), b=baseline, r=rewards: [estimated(log, b, r) for log in logs],
                )
                case = Case(
                    truth=truth, baseline=baseline, before=expected_return(truth, baseline), model=models[0],
                    train_model=models[1], data=data, train=train, safety=safety, delta=0.1, draws=100, draws_seed=0, max_rounds=10,
                )  # fmt: skip
                for method in METHODS:
                    clocked((method, n), lambda m=method, c=case: c.returns([m], np.array([1.0, 0.0])))
    return {key: float(np.mean(values)) for key, values in spent.items()}, case


def measure(quick):
    n_cmdps = 1 if quick else 3
    say(f"gridworld study, {n_cmdps} CMDPs")
    jobs = gridworld_study(STUDY, cmdps=n_cmdps).jobs
    start = time.process_time()
    for job in jobs:
        experiment(job)
    each = (time.process_time() - start) / n_cmdps
    say("gridworld study, its parts")
    spent, case = parts(n_cmdps)
    layer = {"why": "left out by --quick"}
    searches = CMDPS * len(QUALITIES) * len(SIZES) * 3 * len(PAPER_METHODS)
    if not quick:
        say("gridworld study, cvxpy")
        imported("cvxpy")
        layer, _ = attempt(lambda: cvxpy_policy_iteration(case.model, case.baseline, np.array([1.0, 0.0])), repeats=1)
    named = list(dict.fromkeys(part for part, _ in spent))
    return {
        "title": "The gridworld study",
        "words": WORDS,
        "tables": [
            {
                "columns": ["what", "one", "how many", f"all, on {cores()} cores (extrapolated)"],
                "rows": [
                    [f"CMDP, mean CPU time of {n_cmdps}", seconds(each), CMDPS, seconds(CMDPS * each / cores())],
                    [
                        "search by cvxpy",
                        shown(layer),
                        f"{searches:,}",
                        "–" if "why" in layer else seconds(layer["seconds"] * searches / cores()),
                    ],
                ],
            },
            {
                "title": f"Parts, mean CPU time over {n_cmdps} CMDPs × {len(QUALITIES)} baselines",
                "columns": ["part", *(f"|D| = {n}" for n in SIZES)],
                "rows": [
                    [part, *(seconds(spent[part, n]) if (part, n) in spent else "" for n in SIZES)] for part in named
                ],
            },
        ],
        "found": {
            "gridworld": {
                "values": {"seconds": CMDPS * each / cores(), "each": each},
                "repeats": n_cmdps,
                "note": f"extrapolated from {n_cmdps}; one CMDP {seconds(each)} of CPU",
                "instead": [beside("one cvxpy problem per state, extrapolated", layer, cores() / searches)],
            }
        },
    }


if __name__ == "__main__":
    alone(measure)
