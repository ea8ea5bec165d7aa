"""Experiment of the gridworld study: one CMDP, one baseline, logs of several sizes and the methods' policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe.envs.gridworld import HORIZON, feasible_gridworld, known_rewards, quality_baseline
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.logs.dataset import split
from bettersafe.mdp.values import expected_return
from bettersafe.model import estimate_model
from bettersafe.posterior.judge import DRAWS
from bettersafe.studies.case import SAFETY_SHARE, TOL, Case
from bettersafe.studies.gridworld.plan import CONVENTIONS, SIZES, VARIANTS

if TYPE_CHECKING:
    from bettersafe.logs.dataset import Dataset
    from bettersafe.mdp.constrained import CMDPOptimum
    from bettersafe.model import Model
    from bettersafe.studies.sweep import Settings
    from bettersafe.typing import Floats, Row

GOAL_RANGE = 1100.0
"""Range of the goal objective's return: from −1/(1−γ) = −100 to +1000."""


def experiment(settings: Settings) -> list[Row]:
    """Rows of all sizes, preferences and methods for one CMDP and one baseline."""
    conventions = {**CONVENTIONS, **VARIANTS[settings["variant"]]}
    seed, cmdp, kinds, quality = (settings[key] for key in ("seed", "cmdp", "kinds", "quality"))
    gridworld, optimum, redraws = feasible_gridworld(np.random.default_rng([seed, cmdp, kinds]), n_pit_kinds=kinds)
    truth = true_mdp(gridworld.world)
    baseline = quality_baseline(_completed(optimum, conventions["completion"]), quality)
    rewards = known_rewards(gridworld).copy()
    if conventions["goal_paid"] == "next step":
        # As in the published matrices: −1 on arrival, then +1000 in the goal, discounted once more.
        arrival = (rewards[0] + 1.0) / 1001.0  # probability of reaching the goal
        rewards = np.concatenate([(-1.0 + arrival * 1000.0 * truth.discount[0])[None], rewards[1:]])
    before = expected_return(truth, baseline)
    rows = []
    for size in settings.get("sizes", SIZES):
        # The seed depends only on CMDP, baseline and size: all methods, preferences and conventions use the same log.
        rng = np.random.default_rng([seed, cmdp, kinds, round(10 * quality), size])
        data = sample_episodes(gridworld.world, baseline, size, rng, horizon=HORIZON)
        train, safety = split(data, (1.0 - SAFETY_SHARE, SAFETY_SHARE), rng)
        case = Case(
            truth=truth,
            baseline=baseline,
            before=before,
            model=_estimate(data, settings["delta"], conventions, rewards, baseline),
            train_model=_estimate(train, settings["delta"], conventions, rewards, baseline),
            data=data,
            train=train,
            safety=safety,
            delta=settings["delta"],
            draws=settings.get("draws", DRAWS),
            draws_seed=int(rng.integers(2**32)),
            max_rounds=conventions["max_rounds"],
            ties=conventions["ties"],
        )
        for text in settings["preferences"]:
            preference = np.zeros(truth.n_objectives)
            given = [float(weight) for weight in text.split(",")]
            preference[: len(given)] = given
            for method, after in case.returns(settings["methods"], preference).items():
                rows.append(
                    {
                        "episodes": size,
                        "preference": text,
                        **_result(method, preference, before, after),
                        "redraws": redraws,
                    }
                )
    return rows


def _completed(optimum: CMDPOptimum, completion: str) -> Floats:
    """π* [X, A]; with "uniform", states that π* never visits get the uniform policy."""
    if completion == "lagrangian":
        return optimum.policy
    n_actions = optimum.policy.shape[1]
    visits = optimum.occupancy.reshape(-1, n_actions).sum(axis=1)  # every pair of a gridworld is stored
    return np.where(visits[:, None] > 1e-12, optimum.policy, 1.0 / n_actions)


def _estimate(data: Dataset, delta: float, conventions: dict[str, Any], rewards: Floats, baseline: Floats) -> Model:
    return estimate_model(
        data,
        delta=delta,
        unseen=conventions["unseen"],
        baseline=baseline,
        rewards=rewards if conventions["rewards"] == "known" else None,
        error_objectives=conventions["error_objectives"] or None,
        vocabulary=conventions["vocabulary"],
    )


def _result(method: str, preference: Floats, before: Floats, after: Floats) -> Row:
    """Results of one policy; ``pits`` is the kind of pit with the lowest gain."""
    name, _, parameter = method.partition(" ")
    gain = after - before
    tolerance = TOL * np.append(GOAL_RANGE, np.full(gain.size - 1, 100.0))
    worst = 1 + int(np.argmin(gain[1:]))
    return {
        "method": name,
        "parameter": parameter,
        "improvement": float(preference @ gain),
        "failure": bool(np.any(gain < -tolerance)),
        "goal": float(after[0]),
        "goal_baseline": float(before[0]),
        "pits": float(after[worst]),
        "pits_baseline": float(before[worst]),
    }
