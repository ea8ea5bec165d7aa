"""Plain policy iteration on one reward, beside QuantEcon's DiscreteDP."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from measuring import alone, attempt, beside, say, shown, timed, times
from models import random_model
from scipy import sparse

from bettersafe import policy_values
from bettersafe.methods import linearized

METHODS = ("policy_iteration", "modified_policy_iteration")
TOL = 1e-8  # of the modified iteration's value
WORDS = """One reward, γ = 0.99, 25 actions, all tried, 5 successors, no constraint: what QuantEcon's `DiscreteDP` is for. It gets the same model in its
sparse form over state-action pairs, the end as one more state; its compilation is not in the times. Its *policy iteration* solves every evaluation
directly, the *modified* one iterates, here to 1e-8. Ours is `linearized`, to rounding, with the returns of the policy and of the baseline."""


def discrete_dp(mdp):
    """The same process for QuantEcon: pairs and rows that sum to 1, so the end is a state of its own that pays nothing."""
    from quantecon.markov import DiscreteDP

    end = mdp.n_states
    to_end = sparse.csr_matrix(1.0 - mdp.transition.sum(axis=1)[:, None])
    stay = sparse.csr_matrix(([1.0], ([0], [end])), shape=(1, end + 1))
    transition = sparse.vstack([sparse.hstack([sparse.csr_matrix(mdp.transition), to_end]), stay], format="csr")
    reward, state, action = np.append(mdp.reward[0], 0.0), np.append(mdp.pair_state, end), np.append(mdp.pair_action, 0)
    return DiscreteDP(reward, transition, float(mdp.discount[0]), state, action)


def return_of(mdp, found):
    """J of the policy that QuantEcon found, by our evaluation."""
    policy = np.zeros((mdp.n_states, mdp.n_actions))
    policy[np.arange(mdp.n_states), found.sigma[: mdp.n_states]] = 1.0
    return float(policy_values(mdp, policy)[0][0] @ mdp.initial)


def solved(made, method):
    return made().solve(method=method, epsilon=TOL, max_iter=100_000)


def measure(quick):
    rows, found = [], {}
    say("compiling QuantEcon")
    small, _ = random_model(10, visited=25, successors=5, n_objectives=1)
    for method in METHODS:
        attempt(lambda how=method: solved(lambda: discrete_dp(small.mdp), how), repeats=1)
    for n_states in (752,) if quick else (752, 3_000, 30_000):
        model, baseline = random_model(n_states, visited=25, successors=5, n_objectives=1)
        say(f"policy iteration, {n_states:,} states")
        ours, result = timed(lambda m=model, b=baseline: linearized(m, b, preference=[1.0]), repeats=7)
        rows.append([f"{n_states:,}", "bettersafe", shown(ours), result.rounds, f"{result.policy_return[0]:.6f}", "1"])
        instead = []
        made = lru_cache(lambda m=model.mdp: discrete_dp(m))  # not part of what is timed
        for method in METHODS:
            name = f"QuantEcon, {method.replace('_', ' ')}"
            if n_states > 3_000 and method == "policy_iteration":  # its direct solves fill in: minutes, and gigabytes
                timing, answer = {"why": "left out: direct solves of this size take minutes"}, None
            else:
                say(f"policy iteration, {n_states:,} states, {name}")
                timing, answer = attempt(lambda how=method, m=made: solved(m, how))
            value, rounds = ("–", "–") if answer is None else (f"{return_of(model.mdp, answer):.6f}", answer.num_iter)
            rows.append([f"{n_states:,}", name, shown(timing), rounds, value, times(timing, ours)])
            instead.append(beside(name, timing))
        if n_states == 752:
            found = {"values": {"seconds": ours["seconds"]}, "repeats": ours["repeats"], "instead": instead}
    return {
        "title": "Plain policy iteration",
        "words": WORDS,
        "tables": [{"columns": ["states", "what", "time", "rounds", "J", "times slower"], "rows": rows}],
        "found": {"policy-iteration": found},
    }


if __name__ == "__main__":
    alone(measure)
