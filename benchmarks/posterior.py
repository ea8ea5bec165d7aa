"""How long the posterior takes: drawn with the kernel, drawn with NumPy and SciPy, and linearised; prints a Markdown table.

    python benchmarks/posterior.py            a sepsis cohort (713 states, 25 actions), and 100,000 states linearised
    python benchmarks/posterior.py --quick    the cohort alone

What one would use instead of the kernel is the same in NumPy and SciPy (a sparse solve per policy and draw); it is timed over a few
draws, and its time for all of them taken to be in proportion.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace

import numpy as np

from bettersafe.bopt import all_priors, make_candidates
from bettersafe.counts import count
from bettersafe.data import Dataset, Objective
from bettersafe.envs.icu_sepsis import clinician_policy, icu_sepsis
from bettersafe.envs.tabular import sample_episodes
from bettersafe.model import estimate_baseline, estimate_model
from bettersafe.posterior import draw_process, drawn_gains, gather_outcomes, linearised_gains, posterior, returns_in

DRAWS, CANDIDATES, FEW = 200, 20, 5


def timed(run):
    """(result, seconds, CPU seconds)."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def row(what, wall, cpu, note=""):
    print(f"| {what} | {wall:.3g} | {cpu:.3g} | {note} |", flush=True)


def sepsis():
    """200 draws of 20 candidates, as B-OPT asks them."""
    data = sample_episodes(icu_sepsis(), clinician_policy(), 14_667, np.random.default_rng(0))
    data = replace(data, baseline_prob=None)
    counts = count(data)
    model, baseline = estimate_model(counts), estimate_baseline(counts)
    made = make_candidates(model, baseline, np.ones(1), mixes=np.linspace(0.0, 0.9, CANDIDATES).tolist())[:CANDIDATES]
    policies = np.array([policy for _, policy in made])
    outcomes, wall, cpu = timed(lambda: gather_outcomes(data))
    row(f"gathering {data.n_rows:,} rows", wall, cpu)
    (middle, _), wall, cpu = timed(lambda: all_priors(outcomes, baseline, model=model))
    row("learning the priors", wall, cpu)
    _, wall, cpu = timed(lambda: drawn_gains(middle, policies, baseline, draws=DRAWS, seed=0))
    row(f"{DRAWS} draws × {len(made)} candidates, kernel", wall, cpu)

    def slowly():
        everyone = np.concatenate([baseline[None], policies])
        for m in range(FEW):
            returns_in(draw_process(middle, np.random.default_rng([0, m])), outcomes, everyone)

    _, slow, slow_cpu = timed(slowly)
    slow, slow_cpu = slow * DRAWS / FEW, slow_cpu * DRAWS / FEW
    row("the same, NumPy and SciPy", slow, slow_cpu, f"{slow / wall:.1f} times as long")
    _, wall, cpu = timed(lambda: linearised_gains(middle, policies, baseline))
    row(f"the same {len(made)} candidates, linearised", wall, cpu)


def large(n_states, visited=5, visits=6):
    """A log of ``visited`` actions per state, ``visits`` each; a quarter of the actions moved to another one."""
    rng = np.random.default_rng(0)
    actions = np.sort(rng.random((n_states, 25)).argsort(axis=1)[:, :visited], axis=1)
    x = np.repeat(np.arange(n_states), visited * visits)
    a = np.repeat(actions.ravel(), visits)
    ended = rng.random(x.size) < 0.02
    following = np.where(ended, -1, (x + rng.integers(1, 20, x.size)) % n_states)
    data = Dataset(
        states=x,
        actions=a,
        next_states=following,
        rewards=np.column_stack([np.sin(following), np.cos(following)]),
        terminated=ended,
        baseline_prob=None,
        episode_ptr=np.arange(x.size + 1),
        state_labels=np.arange(n_states),
        action_labels=np.arange(25),
        episode_labels=np.arange(x.size),
        objectives=tuple(Objective(name=name, discount=0.99) for name in ("a", "b")),
    )
    baseline = np.zeros((n_states, 25))
    np.put_along_axis(baseline, actions, 1.0 / visited, axis=1)
    policy = baseline.copy()
    moved = np.arange(0, n_states, 4)
    policy[moved] = 0.0
    policy[moved, actions[moved, 0]] = 1.0
    outcomes, wall, cpu = timed(lambda: gather_outcomes(data))
    row(f"{n_states:,} states: gathering {data.n_rows:,} rows", wall, cpu)
    middle, wall, cpu = timed(lambda: posterior(outcomes))
    row(f"{n_states:,} states: learning the prior", wall, cpu)
    _, wall, cpu = timed(lambda: linearised_gains(middle, policy[None], baseline))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row(f"{n_states:,} states: one candidate, linearised, 2 objectives", wall, cpu, f"{peak:.2g} GB at most")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the cohort alone")
    options = parser.parse_args()
    print("| what | seconds | CPU seconds | |\n|---|---|---|---|")
    sepsis()
    if not options.quick:
        large(100_000)


if __name__ == "__main__":
    main()
