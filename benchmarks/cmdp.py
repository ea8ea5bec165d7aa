"""The optimum of a constrained MDP, beside HiGHS on the program over occupancies."""

from __future__ import annotations

import numpy as np
from measuring import alone, attempt, beside, say, shown, timed, times
from models import random_model
from scipy import sparse
from scipy.optimize import linprog

from bettersafe import policy_values
from bettersafe.mdp import cmdp_optimum

PATIENCE = 120.0  # seconds for HiGHS
WORDS = """25 actions, all available, 20 successors, one threshold (the baseline's return of the second objective). Ours is column generation over
policies; HiGHS gets the program over occupancies as it is, by its interior point and by its simplex."""


def by_highs(mdp, floor, method):
    """max ρ·r_0 s.t. Σ_a ρ(x,a) − γ Σ ρ p(x|·) = μ(x), ρ·r_1 ≥ floor, ρ ≥ 0; the best J_0."""
    leaving = sparse.csr_array(
        (np.ones(mdp.n_pairs), (mdp.pair_state, np.arange(mdp.n_pairs))), shape=(mdp.n_states, mdp.n_pairs)
    )
    balance = sparse.csc_array(leaving - mdp.discount[0] * mdp.transition.T)
    answer = linprog(
        -mdp.reward[0], A_ub=-mdp.reward[1:], b_ub=[-floor], A_eq=balance, b_eq=mdp.initial, method=method,
        options={"time_limit": PATIENCE},
    )  # fmt: skip
    if answer.status != 0:
        raise RuntimeError(f"not solved within {PATIENCE:.0f} s: {answer.message.strip()}")
    return -float(answer.fun)


def measure(quick):
    rows, found = [], {}
    for n_states in (100,) if quick else (100, 752):
        model, baseline = random_model(n_states, visited=25, successors=20, n_objectives=2)
        mdp = model.mdp
        floor = float(policy_values(mdp, baseline)[0][1] @ mdp.initial)
        say(f"constrained optimum, {n_states} states")
        ours, best = timed(lambda m=mdp, f=floor: cmdp_optimum(m, [f]), repeats=7)
        rows.append([n_states, "bettersafe", shown(ours), "1", f"{best.returns[0]:.6f}"])
        instead = []
        for name, method in (("HiGHS, interior point", "highs-ipm"), ("HiGHS, simplex", "highs-ds")):
            say(f"constrained optimum, {n_states} states, {name}")
            timing, value = attempt(lambda m=mdp, f=floor, how=method: by_highs(m, f, how))
            reached = "–" if value is None else f"{value:.6f}"
            rows.append([n_states, name, shown(timing), times(timing, ours), reached])
            instead.append(beside(name, timing))
        if n_states == 752:
            found = {"cmdp": {"values": {"seconds": ours["seconds"]}, "repeats": ours["repeats"], "instead": instead}}
    return {
        "title": "The optimum of a constrained MDP",
        "words": WORDS,
        "tables": [{"columns": ["states", "what", "time", "times slower", "J_0"], "rows": rows}],
        "found": found,
    }


if __name__ == "__main__":
    alone(measure)
