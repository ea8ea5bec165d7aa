"""Rows of studies that nobody ran, for the tests of their tables and figures."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

import toys
from bettersafe.studies.gridworld.plan import gridworld_study
from bettersafe.studies.sepsis.plan import DELTAS, EPSILONS, PREFERENCES
from bettersafe.studies.sepsis.summary import CLINICIAN


def gridworld_row(cmdp, improvement, failure=False, **more):
    return {
        "job": f"job {cmdp}",
        "cmdp": cmdp,
        "quality": 0.4,
        "kinds": 1,
        "variant": "as in the reproduction",
        "delta": 0.1,
        "episodes": 10,
        "preference": "1,0",
        "method": "s-opt",
        "parameter": "0.1",
        "improvement": float(improvement),
        "failure": failure,
        "goal": 500.0 + improvement,
        "goal_baseline": 500.0,
        "pits": -7.0,
        "pits_baseline": -9.0,
    } | more


def rows_table(*rows):
    return pa.Table.from_pylist(list(rows))


def gridworld_rows(study_id, cmdps=2):
    jobs = gridworld_study(study_id, cmdps=cmdps).jobs
    return rows_table(
        *({"job": str(n), **job, **one} for n, job in enumerate(jobs) for one in toys.gridworld_rows(job))
    )


def small_study(study_id, cmdps):
    """With made-up rows, and few enough combinations to be drawn quickly."""
    full = gridworld_study(study_id, cmdps=cmdps)
    jobs = tuple({**job, "preferences": job["preferences"][-2:]} for job in full.jobs if job["quality"] in {0.1, 0.9})
    return replace(full, jobs=jobs, work="toys:gridworld_rows")


def small_rows(study_id, cmdps=3):
    jobs = small_study(study_id, cmdps).jobs
    return pa.Table.from_pylist(
        [{"job": str(n), **job, **row} for n, job in enumerate(jobs) for row in toys.gridworld_rows(job)]
    )


def gridworld_job(study_id, **changes):
    return {**gridworld_study(study_id, cmdps=1).jobs[1], **changes}


def sepsis_row(policy, *, seed=0, below=10, survival=50.0, rare=10.0, ess=100.0, **other):
    """A sepsis_row all of whose estimates say the same, unless told otherwise."""
    preference, method, parameter = policy
    made = {"repetition": seed, "rare_below": below, "preference": preference, "method": method, "parameter": parameter}
    for what in ("dr", "wdr", "valid_dr", "valid_wdr", "model", "true"):
        made |= {f"{what}_survival": survival, f"{what}_rare": rare}
    made |= {
        "ess": ess, "test_episodes": 200, "usable": True, "states": 9, "states_without_vaso": 8, "given_vaso": 4,
        "given_large_vaso": 2, "advised_times_seen": 12.5, "advised_share_seen": 0.25,
    }  # fmt: skip
    made |= {f"dose iv{a}/vaso{b}": 0.04 for a in range(5) for b in range(5)}
    return made | other


def sepsis_rows(seeds=2, **clinician):
    """A whole study in small: every policy that the tables name, the same numbers in all but a few."""
    rows = []
    for seed in range(seeds):
        rows.append(sepsis_row(CLINICIAN, seed=seed, **clinician))
        for preference in PREFERENCES:
            better = {"survival": 52.0 + seed, "rare": 9.0, "seed": seed}
            rows.append(
                sepsis_row(
                    (preference, "linearized", ""), seed=seed, survival=90.0, rare=30.0, ess=3.0, true_survival=40.0
                )
            )
            rows.append(sepsis_row((preference, "adv-linearized", ""), **better))
            rows += [sepsis_row((preference, "s-opt", f"{epsilon:g}"), **better) for epsilon in EPSILONS]
            rows += [sepsis_row((preference, "h-opt", f"{e} {d:g}"), **better) for e in ("dr", "wdr") for d in DELTAS]
            rows += [
                sepsis_row((preference, *ours), **better)
                for ours in (("g-opt", "0.1"), ("g-opt", "1"), ("b-opt", "0.1"))
            ]
        rows.append(sepsis_row(CLINICIAN, seed=seed, below=100))
        rows.append(sepsis_row(("1,0", "linearized, rare removed", ""), seed=seed, below=100, survival=11.0))
        rows.append(sepsis_row(("1,1", "adv-linearized", ""), seed=seed, below=100))
        rows.append(sepsis_row(("1,1", "s-opt", "1"), seed=seed, below=100))
    return pa.Table.from_pylist(rows)


def cells_of(page, section, policy, table=0):
    """The cells_of of a policy's line, in the n-th table under a heading."""
    part = page.split(f"## {section}")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    found = [line for line in lines if line[:2] == policy]
    return found[table]
