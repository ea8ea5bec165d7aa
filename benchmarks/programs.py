"""One state's program: from the baseline, from the basis of a similar one, and by HiGHS and cvxpy."""

from __future__ import annotations

import numpy as np
from measuring import alone, attempt, beside, imported, say, shown, timed, times

from bettersafe.mdp.programs import Programs, WarmStart, solve

N_ACTIONS = 25
WORDS = """25 actions, all tried, ε = 1; the mean over many states, on one core. *Cold* starts from the baseline, as in the first round of
policy iteration; *warm* from the basis of a slightly different objective, as in all others. HiGHS has the states in blocks (engine
highs: ties settled, tolerances tight); cvxpy one after the other, at its defaults."""


def cvxpy_programs(programs, objective):
    """The same programs, one cvxpy problem each."""
    import cvxpy as cp

    for x in range(programs.n_states):
        own = slice(programs.ptr[x], programs.ptr[x + 1])
        base, row = programs.baseline[own], cp.Variable(N_ACTIONS)
        constraints = [row >= 0, cp.sum(row) == 1, programs.error[own] @ cp.abs(row - base) <= programs.epsilon]
        constraints += [(row - base) @ advantage >= 0 for advantage in programs.rows[:, own]]
        cp.Problem(cp.Maximize(row @ objective[own]), constraints).solve()


def random_programs(n_states, d, seed=0):
    rng = np.random.default_rng(seed)
    baseline = rng.dirichlet(np.ones(N_ACTIONS), size=n_states)
    rows = rng.normal(size=(d, n_states, N_ACTIONS))
    rows -= np.einsum("xa,kxa->kx", baseline, rows)[:, :, None]
    programs = Programs(
        ptr=np.arange(n_states + 1) * N_ACTIONS,
        baseline=baseline.ravel(),
        error=np.sqrt(20.0 / rng.integers(1, 200, n_states * N_ACTIONS)),
        rows=rows.reshape(d, -1),
        epsilon=1.0,
    )
    objective = rng.normal(size=n_states * N_ACTIONS)
    return programs, objective, objective + 0.05 * rng.normal(size=objective.size)


def measure(quick):
    rows, found = [], {}
    for d, n_states in ((2, 20_000), (17, 2_000), (64, 752)):
        say(f"programs of {d} objectives")
        programs, objective, moved = random_programs(n_states, d)
        cold, answer = timed(lambda p=programs, q=objective: solve(p, q, threads=1))
        warm, _ = timed(lambda p=programs, q=moved, a=answer: solve(p, q, warm=copied(a.warm), threads=1))
        few, few_objective, _ = random_programs(40 if quick else 200, d)
        highs, _ = attempt(lambda p=few, q=few_objective: solve(p, q, engine="highs"))
        layer = {"why": "left out by --quick"}
        if not quick:
            say(f"programs of {d} objectives, cvxpy")
            imported("cvxpy")
            layer, _ = attempt(lambda p=few, q=few_objective: cvxpy_programs(p, q))
        for timing in (cold, warm):
            timing["seconds"] /= n_states
        rows.append(
            [
                d,
                f"{n_states:,}",
                shown(cold),
                shown(warm),
                shown(highs, few.n_states),
                times(highs, cold, few.n_states),
                shown(layer, few.n_states),
                times(layer, cold, few.n_states),
            ]
        )
        found[f"programs-{d}"] = {
            "values": {"seconds": cold["seconds"], "warm": warm["seconds"]},
            "repeats": cold["repeats"],
            "instead": [
                beside("one cvxpy problem per state", layer, few.n_states),
                beside("HiGHS, in blocks", highs, few.n_states),
            ],
        }
    return {
        "title": "One state's program",
        "words": WORDS,
        "tables": [
            {
                "columns": ["d", "states", "cold", "warm", "HiGHS", "times slower", "cvxpy", "times slower"],
                "rows": rows,
            }
        ],
        "found": found,
    }


def copied(warm):
    """A warm start is written to; every repeat begins from the same one."""
    return WarmStart(**{name: value.copy() for name, value in vars(warm).items()})


if __name__ == "__main__":
    alone(measure)
