"""Print the table of docs/evidence.md, "Is the state enough?": how often each check finds what a state lacks. About two minutes.

100 logs of every kind and size, baseline estimated. The small step is towards the greedy policy of the same log, with equal weights.
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np

from bettersafe.evaluation.state_checks import check_return, check_small_step, check_step_before, prepare_steps

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests"))

from state_worlds import inventory_log, merged_garnet, merged_grid, store_log, tutor_log

LOGS = 100

ROWS = {
    "the temperature of a cold store, cut into 5 bins; the hour": ((30, 100, 400), store_log),
    "the same, 12 bins": ((100, 400), lambda rng, n: store_log(rng, n, bins=12)),
    "the season of the demand of an inventory": ((50, 200), lambda rng, n: inventory_log(rng, n, season=True)[0]),
    "60 states of a random world, merged into 12": ((100, 400), merged_garnet),
    "cells of a gridworld, merged two by two": ((50, 200), merged_grid),
    "the kind of student of a tutor, which lasts for the episode": (
        (100, 300, 1000, 3000),
        lambda rng, n: tutor_log(rng, n)[0],
    ),
}


def against(log):
    """Whether each of the three checks speaks against the model of a log, and whether any does."""
    steps = prepare_steps(log)
    q = np.full(steps.baseline.shape, -np.inf)
    q[steps.mdp.pair_state, steps.mdp.pair_action] = steps.q.sum(axis=0)
    checks = (
        check_return(steps),
        check_step_before(steps),
        check_small_step(steps, np.eye(q.shape[1])[q.argmax(axis=1)]),
    )
    found = [check.against for check in checks]
    return [*found, any(found)]


def main():
    """Print the rows of the table."""
    print("| what the state lacks | episodes | found by `return` | `step-before` | `small-step` | any |")
    print("|---|---|---|---|---|---|")
    total, n = 0, 0
    for title, (sizes, make) in ROWS.items():
        shares = []
        for size in sizes:
            found = [against(make(np.random.default_rng([i, size, len(title)]), size)) for i in range(LOGS)]
            shares.append(np.mean(found, axis=0))
            total, n = total + sum(each[-1] for each in found), n + LOGS
        cells = [" / ".join(f"{100 * share[i]:.0f}" for share in shares) for i in range(4)]
        print(f"| {title} | {' / '.join(f'{s:,}' for s in sizes)} |", " | ".join(f"{cell} %" for cell in cells), "|")
    print(f"\n{total} of {n} logs were found.")


if __name__ == "__main__":
    main()
