"""Many objectives: G-OPT and B-OPT protect expected returns, S-OPT protects every state.

    python examples/many_objectives.py

A gridworld with eight kinds of pits has nine objectives. S-OPT requires that no objective loses in any state of the model, which
leaves little room for improvement. G-OPT requires it only of the expected returns. B-OPT returns the best candidate that is safe
with high posterior probability. The true MDP is known, so the script prints true gains.
"""

from __future__ import annotations

import numpy as np

from bettersafe import count, estimate_model, expected_return, g_opt, s_opt
from bettersafe.envs.gridworld import HORIZON, feasible_gridworld, quality_baseline
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.methods.b_opt import b_opt
from bettersafe.posterior.judge import Question
from bettersafe.posterior.outcomes import gather_outcomes


def main(*, kinds: int = 8, episodes: int = 300, size: int = 6, seed: int = 3) -> dict[str, tuple[float, float]]:
    """Draw a world and a log, and improve with three methods; return (true weighted gain, largest true loss) by method."""
    rng = np.random.default_rng(seed)
    gridworld, optimum, _ = feasible_gridworld(rng, size=size, n_pit_kinds=kinds)
    baseline = quality_baseline(optimum.policy, 0.6)
    log = sample_episodes(gridworld.world, baseline, episodes, rng, horizon=HORIZON)
    model = estimate_model(count(log))
    preference = np.ones(kinds + 1)

    bayesian = b_opt(gather_outcomes(log), model, baseline, preference=preference, question=Question(seed=seed))
    policies = {
        "s-opt": s_opt(model, baseline, preference=preference, epsilon=1.0).policy,
        "g-opt": g_opt(model, baseline, preference=preference, epsilon=1.0).policy,
        "b-opt": bayesian.improvement.policy,
    }
    truth = true_mdp(gridworld.world)
    before = expected_return(truth, baseline)
    found = {}
    print(f"{kinds + 1} objectives, {episodes} episodes. True gains and losses:")
    for name, policy in policies.items():
        gain = expected_return(truth, policy) - before
        found[name] = (float(preference @ gain), float(max(0.0, -gain.min())))
        print(f"  {name}: gain {found[name][0]:+.1f}, largest loss on an objective {found[name][1]:.3f}")
    print(bayesian.reason)
    return found


if __name__ == "__main__":
    main()
