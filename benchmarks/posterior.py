"""The posterior of B-OPT: draws by the kernel, the same in NumPy and SciPy, and its linearised form, which grows further."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from measuring import alone, apart, attempt, beside, forget_peak, peak_bytes, say, shown, size, timed, times

from bettersafe import Dataset, Objective, count, estimate_baseline, estimate_model, gather_outcomes
from bettersafe.envs.icu_sepsis import clinician_policy, icu_sepsis
from bettersafe.envs.tabular import sample_episodes
from bettersafe.mdp.values import policy_values
from bettersafe.methods.s_opt import adv_linearized
from bettersafe.posterior.draws import draw_process, drawn_gains, returns_in
from bettersafe.posterior.habits import informed_priors
from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.priors import DEFAULT_PRIORS, posterior

DRAWS, CANDIDATES, FEW = 200, 20, 5
QUICK_DRAWS, QUICK_FEW = 40, 2
STATES = (1_000, 10_000, 100_000)
QUICK_STATES = (1_000, 3_000, 9_000)
WORDS = """A sepsis cohort of 14,667 patients (713 states, 25 actions): draws of the process, 20 candidates and the baseline evaluated in each. *NumPy and
SciPy* is the same with a sparse solve per policy and draw, timed over a few draws and taken to be in proportion. *Linearised* asks for
the gains' mean and covariance by the delta method, with no draws. Growth: a made-up log with 5 of 25 actions tried in every state, 6 visits
each, one candidate that differs from the baseline in every fourth state, 2 objectives. In brackets: how often it was timed."""


def cohort(rows, draws, few):
    """So many draws of 20 candidates, as B-OPT asks them; adds to ``rows``. NumPy and SciPy make ``few``."""
    data = sample_episodes(icu_sepsis(), clinician_policy(), 14_667, np.random.default_rng(0))
    data = replace(data, baseline_prob=None)
    counts = count(data)
    model, baseline = estimate_model(counts), estimate_baseline(counts)
    bold = adv_linearized(model, baseline, preference=np.ones(1)).policy
    policies = np.array([(1.0 - mix) * bold + mix * baseline for mix in np.linspace(0.0, 0.9, CANDIDATES)])
    say("posterior, gathering")
    timing, outcomes = timed(lambda: gather_outcomes(data), repeats=3)
    rows.append([f"gathering {data.n_rows:,} rows", shown(timing), ""])
    say("posterior, priors")

    def learn():
        return informed_priors(outcomes, DEFAULT_PRIORS, baseline, policy_values(model.mdp, baseline)[0])

    timing, (neutral, _) = timed(learn, repeats=3)
    rows.append(["learning the priors", shown(timing), ""])
    say("posterior, draws")
    drawing, _ = timed(lambda: drawn_gains(neutral, policies, baseline, draws=draws, seed=0), repeats=3)
    rows.append([f"{draws} draws × {CANDIDATES} candidates, kernel", shown(drawing), "1"])

    def slowly():
        everyone = np.concatenate([baseline[None], policies])
        for m in range(few):
            returns_in(draw_process(neutral, np.random.default_rng([0, m])), outcomes, everyone)

    say("posterior, draws in NumPy and SciPy")
    slow, _ = attempt(slowly, repeats=3)
    rows.append(["the same, NumPy and SciPy", shown(slow, few / draws), times(slow, drawing, few / draws)])
    say("posterior, linearised")
    line, _ = timed(lambda: linearised_gains(neutral, policies, baseline), repeats=3)
    rows.append([f"the same {CANDIDATES} candidates, linearised", shown(line), times(line, drawing)])
    return drawing, slow, line


def one(n_states, visited=5, visits=6):
    """Gathering, prior and linearised gains of one candidate in a log of ``visited`` actions per state, ``visits`` each."""
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
    forget_peak()
    gathering, outcomes = timed(lambda: gather_outcomes(data), repeats=3)
    learning, neutral = timed(lambda: posterior(outcomes), repeats=3)
    linearising, _ = timed(lambda: linearised_gains(neutral, policy[None], baseline), repeats=3)
    return {
        "states": n_states,
        "rows": data.n_rows,
        "timings": [gathering, learning, linearising],
        "peak": peak_bytes(),
    }


def measure(quick):
    rows = []
    draws, few = (QUICK_DRAWS, QUICK_FEW) if quick else (DRAWS, FEW)
    drawing, slow, line = cohort(rows, draws, few)
    grown = []
    for n in QUICK_STATES if quick else STATES:
        say(f"posterior, {n:,} states")
        grown.append(apart(one, n))
    return {
        "title": "The posterior",
        "words": WORDS,
        "tables": [
            {"title": "A sepsis cohort", "columns": ["what", "time", "times slower"], "rows": rows},
            {
                "title": "Growth with the states",
                "columns": ["states", "rows", "gathering", "learning the prior", "linearised gains", "peak memory"],
                "rows": [
                    [f"{g['states']:,}", f"{g['rows']:,}", *(shown(t) for t in g["timings"]), size(g["peak"])]
                    for g in grown
                ],
            },
        ],
        "found": {
            "draws": {
                "values": {"seconds": drawing["seconds"]},
                "repeats": drawing["repeats"],
                "instead": [beside(f"NumPy and SciPy, in proportion to {few} draws", slow, few / draws)],
                "note": f"{draws} draws",
            },
            "linearised": {
                "values": {"seconds": line["seconds"]},
                "repeats": line["repeats"],
                "instead": [beside(f"{draws} draws by the kernel", drawing)],
            },
        },
        "growth": [
            {"what": "B-OPT, linearised", "by": "states", "x": [g["states"] for g in grown]}
            | {"seconds": [sum(t["seconds"] for t in g["timings"]) for g in grown]}
        ],
    }


if __name__ == "__main__":
    alone(measure)
