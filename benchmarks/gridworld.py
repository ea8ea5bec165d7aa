"""What an experiment of the gridworld study costs, by part: mean CPU milliseconds over CMDPs; prints a Markdown table."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict

import numpy as np

from bettersafe.data import split
from bettersafe.envs.gridworld import HORIZON, feasible_gridworld, known_rewards, quality_baseline
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.mdp import expected_return
from bettersafe.studies.gridworld import CONVENTIONS, PAPER_METHODS, QUALITIES, SIZES, _Case, _estimate

METHODS = (*PAPER_METHODS, "lagrangian 0.1")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cmdps", type=int, default=5)
    options = parser.parse_args()
    spent = defaultdict(list)

    def timed(part, work):
        start = time.process_time()
        result = work()
        spent[part].append(1e3 * (time.process_time() - start))
        return result

    for cmdp in range(options.cmdps):
        rng = np.random.default_rng(cmdp)
        grid, optimum, _ = timed(("CMDP and its optimum", ""), lambda rng=rng: feasible_gridworld(rng))
        truth, rewards = true_mdp(grid.world), known_rewards(grid)
        for quality in QUALITIES:
            baseline = quality_baseline(optimum.policy, quality)
            for size in SIZES:
                data = timed(
                    ("drawing the log", size),
                    lambda b=baseline, n=size, g=grid, r=rng: sample_episodes(g.world, b, n, r, horizon=HORIZON),
                )
                train, safety = split(data, (0.7, 0.3), rng)
                models = timed(
                    ("counting and both models", size),
                    lambda parts=(data, train), b=baseline, r=rewards: [
                        _estimate(p, 0.1, CONVENTIONS, r, b) for p in parts
                    ],
                )
                case = _Case(
                    truth=truth, baseline=baseline, before=expected_return(truth, baseline), model=models[0],
                    train_model=models[1], safety=safety, delta=0.1, max_rounds=10,
                )  # fmt: skip
                for method in METHODS:
                    timed((method, size), lambda m=method, c=case: c.returns([m], np.array([1.0, 0.0])))
    print(f"### Parts of the gridworld study, mean CPU ms over {options.cmdps} CMDPs × {len(QUALITIES)} baselines\n")
    print("| part | " + " | ".join(f"\\|D\\| = {size}" for size in SIZES) + " |\n|---|" + "---|" * len(SIZES))
    print(
        f"| CMDP and its optimum (once) | {np.mean(spent['CMDP and its optimum', '']):.3g} |" + " |" * (len(SIZES) - 1)
    )
    for part in dict.fromkeys(part for part, size in spent if size):
        print(f"| {part} | " + " | ".join(f"{np.mean(spent[part, size]):.3g}" for size in SIZES) + " |")


if __name__ == "__main__":
    main()
