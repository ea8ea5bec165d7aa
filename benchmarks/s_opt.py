"""How long S-OPT takes, beside what one would use instead; prints a Markdown table.

    make bench                      everything (a few minutes: the modelling layer is slow)
    python benchmarks/s_opt.py --quick    without the modelling layer and the largest model

Our own times are the best of several runs, those that take seconds are single; ratios are taken within this one run.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

sys.path.insert(0, str(Path(__file__).parent))
from models import random_model, sepsis_model

from bettersafe import lp
from bettersafe.cmdp import cmdp_optimum
from bettersafe.improve import s_opt
from bettersafe.mdp import dense_q, policy_values

EPSILON = 0.1


def best_of(run, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - start)
    return min(times), result


def seconds(value):
    return f"{value * 1e6:.3g} µs" if value < 1e-3 else f"{value * 1e3:.3g} ms" if value < 1.0 else f"{value:.3g} s"


def cvxpy_policy_iteration(model, baseline, preference):
    """S-OPT as the published code runs it: one cvxpy problem per state and round, until the policy moves by less than
    1e-8 (Frobenius) or ten rounds are done. Values come from our own solver, so that only the programs are compared."""
    import cvxpy as cp

    mdp = model.mdp
    n_states, n_actions = baseline.shape
    error = np.full(baseline.shape, np.inf)
    error[mdp.pair_state, mdp.pair_action] = model.error
    base_v, base_q = policy_values(mdp, baseline)
    advantage = dense_q(mdp, base_q) - base_v[:, :, None]
    policy = baseline
    rounds, moved = 0, np.inf
    while moved >= 1e-8 and rounds < 10:
        rounds += 1
        _, q = policy_values(mdp, policy)
        target = np.einsum("k,kxa->xa", preference, dense_q(mdp, q))
        new = np.empty_like(policy)
        for x in range(n_states):
            row = cp.Variable(n_actions)
            free = np.isfinite(error[x])
            constraints = [
                row >= 0,
                cp.sum(row) == 1,
                error[x, free] @ cp.abs(row[free] - baseline[x, free]) <= EPSILON,
            ]
            constraints += [row @ advantage[k, x] >= 0 for k in range(advantage.shape[0])]
            if not free.all():
                constraints.append(row[~free] == baseline[x, ~free])
            cp.Problem(cp.Maximize(row @ target[x]), constraints).solve()
            new[x] = baseline[x] if row.value is None else row.value
        moved = np.linalg.norm(new - policy)
        policy = new
    return float(preference @ policy_values(mdp, policy)[0] @ mdp.initial), rounds


def block_policy_iteration(model, baseline, preference):
    """S-OPT with one block program over all states per round, given to HiGHS as it is (default tolerances, no tie rule)."""
    mdp = model.mdp
    base_v, base_q = policy_values(mdp, baseline)
    advantage = base_q - base_v[:, mdp.pair_state]
    base = baseline[mdp.pair_state, mdp.pair_action]
    pairs = np.arange(mdp.n_pairs)
    by_state = sparse.csr_array((np.ones(mdp.n_pairs), (mdp.pair_state, pairs)), shape=(mdp.n_states, mdp.n_pairs))

    def rows_of(values):
        return sparse.csr_array((values, (mdp.pair_state, pairs)), shape=by_state.shape)

    budget = rows_of(model.error)
    rows = sparse.vstack(
        [sparse.hstack([budget, budget]), *(sparse.hstack([rows_of(-a), rows_of(a)]) for a in advantage)], format="csc"
    )
    limits = np.concatenate([np.full(mdp.n_states, EPSILON), np.zeros(mdp.n_states * advantage.shape[0])])
    bounds = np.column_stack([np.zeros(2 * mdp.n_pairs), np.concatenate([np.ones(mdp.n_pairs), base])])
    balance = sparse.hstack([by_state, -by_state], format="csc")
    policy = baseline
    rounds, moved = 0, np.inf
    while moved >= 1e-8 and rounds < 10:
        rounds += 1
        _, q = policy_values(mdp, policy)
        cost = preference @ q
        answer = linprog(
            -np.concatenate([cost, -cost]), A_ub=rows, b_ub=limits, A_eq=balance, b_eq=np.zeros(mdp.n_states), bounds=bounds
        )  # fmt: skip
        new = baseline.copy()
        new[mdp.pair_state, mdp.pair_action] = base + answer.x[: mdp.n_pairs] - answer.x[mdp.n_pairs :]
        moved = np.linalg.norm(new - policy)
        policy = new
    return float(preference @ policy_values(mdp, policy)[0] @ mdp.initial), rounds


def against_others(quick):
    model, baseline = random_model(752, visited=10, successors=10, n_objectives=2)
    preference = np.array([1.0, 1.0])
    mdp = model.mdp
    print(f"\n### S-OPT to convergence ({mdp.n_states} states × {mdp.n_actions} actions, d = 2, ε = {EPSILON})\n")
    print(f"{mdp.n_pairs:,} pairs tried, {mdp.transition.nnz:,} transitions.\n")
    ours, result = best_of(lambda: s_opt(model, baseline, preference=preference, epsilon=EPSILON), 15)
    value = float(preference @ result.policy_return)
    rows = [("bettersafe, native engine", ours, result.rounds, value)]
    slower, again = best_of(lambda: s_opt(model, baseline, preference=preference, epsilon=EPSILON, engine="highs"), 1)
    rows.append(("bettersafe, engine highs", slower, again.rounds, float(preference @ again.policy_return)))
    blocks, (reached, rounds) = best_of(lambda: block_policy_iteration(model, baseline, preference), 1)
    rows.append(("one HiGHS block program per round", blocks, rounds, reached))
    if not quick:
        layer, (reached, rounds) = best_of(lambda: cvxpy_policy_iteration(model, baseline, preference), 1)
        rows.append(("one cvxpy problem per state, stopped as published", layer, rounds, reached))
    print("| what | time | rounds | time per round | J_λ | times slower |\n|---|---|---|---|---|---|")
    for name, taken, rounds, reached in rows:
        print(
            f"| {name} | {seconds(taken)} | {rounds} | {seconds(taken / rounds)} | {reached:.6f} | {taken / ours:,.0f} |"
        )
    model, baseline = sepsis_model()
    taken, result = best_of(lambda: s_opt(model, baseline, preference=preference, epsilon=EPSILON), 15)
    size = f"{model.mdp.n_states} × {model.mdp.n_actions}, {model.mdp.transition.nnz:,} transitions"
    print(f"\nThe same on a sepsis cohort of 14,667 patients ({size}): {seconds(taken)}, {result.rounds} rounds.")


def per_state(quick):
    print("\n### One state's program (25 actions, all tried, ε = 1; mean over many states, one core)\n")
    print("| d | cold | warm | HiGHS, in blocks | times slower |\n|---|---|---|---|---|")
    for d, n_states in ((2, 20_000), (17, 2_000), (64, 1_000)):
        programs, objective, moved = random_programs(n_states, 25, d)
        cold, answer = best_of(lambda p=programs, q=objective: lp.solve(p, q, threads=1), 3)
        warm, _ = best_of(lambda p=programs, q=moved, a=answer: lp.solve(p, q, warm=a.warm, threads=1), 1)
        few, few_objective, _ = random_programs(40 if quick else 200, 25, d)
        highs, _ = best_of(lambda p=few, q=few_objective: lp.solve(p, q, engine="highs"), 1)
        highs /= few.n_states
        print(
            f"| {d} | {seconds(cold / n_states)} | {seconds(warm / n_states)} | {seconds(highs)} | {highs / (cold / n_states):,.0f} |"
        )


def random_programs(n_states, n_actions, d, seed=0):
    rng = np.random.default_rng(seed)
    baseline = rng.dirichlet(np.ones(n_actions), size=n_states)
    rows = rng.normal(size=(d, n_states, n_actions))
    rows -= np.einsum("xa,kxa->kx", baseline, rows)[:, :, None]
    programs = lp.Programs(
        ptr=np.arange(n_states + 1) * n_actions,
        baseline=baseline.ravel(),
        error=np.sqrt(20.0 / rng.integers(1, 200, n_states * n_actions)),
        rows=rows.reshape(d, -1),
        epsilon=1.0,
    )
    objective = rng.normal(size=n_states * n_actions)
    return programs, objective, objective + 0.05 * rng.normal(size=objective.size)


def scaling(quick):
    print("\n### Growth with |X| (25 actions, 5 tried per state, 20 successors each, d = 2, ε = 0.1; all cores)\n")
    print("| states | transitions | S-OPT | rounds | per state | peak memory |\n|---|---|---|---|---|---|")
    for n_states in (752, 10_000) if quick else (752, 10_000, 100_000):
        # its own process, so that the peak is its own
        line = subprocess.run(
            [sys.executable, __file__, "--one", str(n_states)], capture_output=True, text=True, check=True
        )
        print(line.stdout.strip())


def one_scale(n_states):
    model, baseline = random_model(n_states, visited=5, successors=20, n_objectives=2)
    taken, result = best_of(lambda: s_opt(model, baseline, preference=[1.0, 1.0], epsilon=0.1), 3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    nonzeros = model.mdp.transition.nnz
    print(
        f"| {n_states:,} | {nonzeros:,} | {seconds(taken)} | {result.rounds} | {seconds(taken / n_states)} | {peak:.2f} GB |"
    )


def optimum(quick):
    print("\n### Optimum of a constrained MDP (25 actions, all available, 20 successors, one threshold)\n")
    print(
        "| states | column generation | HiGHS, interior point | times slower | difference in J_0 |\n|---|---|---|---|---|"
    )
    for n_states in (100,) if quick else (100, 752):
        model, baseline = random_model(n_states, visited=25, successors=20, n_objectives=2)
        floor = float(policy_values(model.mdp, baseline)[0][1] @ model.mdp.initial)
        ours, best = best_of(lambda m=model, f=floor: cmdp_optimum(m.mdp, [f], engine="columns"), 3)
        theirs, same = best_of(lambda m=model, f=floor: cmdp_optimum(m.mdp, [f], engine="lp"), 1)
        difference = abs(best.returns[0] - same.returns[0])
        print(f"| {n_states} | {seconds(ours)} | {seconds(theirs)} | {theirs / ours:,.0f} | {difference:.0e} |")


def start_up():
    print("\n### Starting\n")
    print("| what | time |\n|---|---|")
    for name, command in (
        ("python, doing nothing", [sys.executable, "-c", ""]),
        ("import bettersafe", [sys.executable, "-c", "import bettersafe"]),
        ("import bettersafe and all its names", [sys.executable, "-c", "from bettersafe import *"]),
        ("bettersafe --help", [str(Path(sys.executable).parent / "bettersafe"), "--help"]),
    ):
        taken, _ = best_of(lambda c=command: subprocess.run(c, capture_output=True, check=True), 5)
        print(f"| {name} | {seconds(taken)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", type=int)
    options = parser.parse_args()
    if options.one:
        one_scale(options.one)
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}")
    against_others(options.quick)
    per_state(options.quick)
    scaling(options.quick)
    optimum(options.quick)
    start_up()


if __name__ == "__main__":
    main()
