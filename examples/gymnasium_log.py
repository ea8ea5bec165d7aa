"""Log a policy in a Gymnasium environment with discrete observations and actions, improve it, and test the result.

    python examples/gymnasium_log.py

FrozenLake gives a reward of 1 for reaching the goal. A wrapper adds the number of steps as a second objective, which the new
policy must not increase.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from bettersafe import Objective, count, estimate_model, s_opt
from bettersafe.envs.gym import rollout

OBJECTIVES = (Objective(name="goal"), Objective(name="steps", weight=0.0))


class CountSteps(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Replace the reward by the vector (reward, −1)."""

    def step(self, action: Any) -> Any:
        """Play an action."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, np.array([float(reward), -1.0]), terminated, truncated, info


def main(*, episodes: int = 1000, seed: int = 0) -> tuple[float, float]:
    """Return the share of episodes that reach the goal, under the baseline and under the improved policy."""
    rng = np.random.default_rng(seed)
    env = CountSteps(gymnasium.make("FrozenLake-v1", map_name="4x4", is_slippery=True))
    # The baseline moves down and right more often than up and left; actions are (left, down, right, up).
    baseline = np.tile([0.15, 0.35, 0.35, 0.15], (16, 1))
    log = rollout(env, baseline, episodes, rng, objectives=OBJECTIVES)
    model = estimate_model(count(log))
    result = s_opt(model, baseline, preference=[1.0, 0.0], epsilon=2.0)
    print(result.status)

    reached = []
    for name, policy in (("baseline", baseline), ("improved", result.policy)):
        tried = rollout(env, policy, episodes, rng, objectives=OBJECTIVES)
        reached.append(float(tried.rewards[:, 0].sum()) / episodes)
        print(f"  {name}: reaches the goal in {100 * reached[-1]:.1f} % of new episodes")
    return reached[0], reached[1]


if __name__ == "__main__":
    main()
