"""Make a realistic hospital log: unsorted rows, labels with spaces and umlauts, missing cells, notes, yes and no.

    python examples/ward_log.py ward.csv          # and another one: python examples/ward_log.py later.csv --seed 1

The data is synthetic. Medication works best for feverish patients. Another operation is expensive and painful, and helps only
after complications. The staff do not always choose the best action, so the log contains alternatives to learn from.
"""

from __future__ import annotations

import argparse
import csv

import numpy as np

ACTIONS = ("observe", "medicate", "re-operate")
STAFF = {  # probability of each action
    "stable": (0.70, 0.20, 0.10),
    "feverish": (0.45, 0.35, 0.20),
    "Übelkeit / nausea": (0.50, 0.40, 0.10),
    'after "complications"': (0.35, 0.35, 0.30),
}
LEADS_TO = {  # probability of home, stable, feverish, nausea, complications
    "stable": ((0.50, 0.30, 0.12, 0.06, 0.02), (0.45, 0.28, 0.10, 0.15, 0.02), (0.20, 0.40, 0.15, 0.10, 0.15)),
    "feverish": ((0.10, 0.20, 0.45, 0.10, 0.15), (0.30, 0.45, 0.15, 0.08, 0.02), (0.10, 0.25, 0.35, 0.10, 0.20)),
    "Übelkeit / nausea": ((0.20, 0.40, 0.10, 0.25, 0.05), (0.15, 0.30, 0.15, 0.35, 0.05), (0.10, 0.30, 0.20, 0.20, 0.20)),
    'after "complications"': ((0.02, 0.13, 0.30, 0.15, 0.40), (0.05, 0.20, 0.30, 0.15, 0.30), (0.15, 0.40, 0.20, 0.10, 0.15)),
}  # fmt: skip
PAIN = {"observe": 2.0, "medicate": 1.0, "re-operate": 6.0}
COST = {"observe": 300, "medicate": 420, "re-operate": 4200}
NOTES = ("", "", "", "family visited", 'said: "much better", slept', "night shift; see chart")


def ward_rows(stays: int, rng: np.random.Generator) -> list[dict[str, object]]:
    """The rows of ``stays`` stays, shuffled."""
    conditions = tuple(STAFF)
    rows: list[dict[str, object]] = []
    for stay in range(stays):
        condition = conditions[rng.choice(4, p=(0.3, 0.4, 0.2, 0.1))]
        for block in range(1, 13):
            done = int(rng.choice(3, p=STAFF[condition]))
            outcome = int(rng.choice(5, p=LEADS_TO[condition][done]))
            home, moved = outcome == 0, block == 12 and outcome > 0  # after six days patients move to another ward
            after = "" if home else conditions[outcome - 1]
            worse = conditions.index(condition)
            rows.append(
                {
                    "stay": f"W3/{stay:04d}", "block": block, "condition": condition, "treatment": ACTIONS[done],
                    "condition afterwards": after if moved or rng.random() > 0.3 else "",  # often missing
                    "went home": "yes" if home else "no", "moved": "yes" if moved else "no",
                    "recovered": int(home),
                    "pain": round(max(0.0, float(rng.normal(PAIN[ACTIONS[done]] + worse, 0.7))), 1),
                    "cost_eur": COST[ACTIONS[done]] + int(rng.integers(0, 60)),
                    "note": NOTES[rng.integers(len(NOTES))],
                }
            )  # fmt: skip
            if home:
                break
            condition = conditions[outcome - 1]
    return [rows[i] for i in rng.permutation(len(rows))]


def write_ward_log(path: str, *, stays: int = 600, seed: int = 0) -> None:
    """Write the log of ``stays`` stays as CSV."""
    rows = ward_rows(stays, np.random.default_rng(seed))
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--stays", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    write_ward_log(given.path, stays=given.stays, seed=given.seed)
