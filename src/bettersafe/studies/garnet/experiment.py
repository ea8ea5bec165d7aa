"""Experiment of the random-world study: one world, one baseline, logs of several sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.logs.dataset import split
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.mdp.values import expected_return
from bettersafe.model import estimate_model
from bettersafe.studies.case import SAFETY_SHARE, TOL, Case
from bettersafe.studies.garnet.plan import COMPARED, DIFFERENT_ENDS, FAMILIES, PREFERENCE, SIZES

if TYPE_CHECKING:
    from bettersafe.logs.dataset import Dataset
    from bettersafe.model import Model
    from bettersafe.studies.sweep import Settings
    from bettersafe.typing import Row


def experiment(settings: Settings) -> list[Row]:
    """Rows of all sizes and methods for one world and one baseline."""
    seed, cmdp, delta = (settings[key] for key in ("seed", "cmdp", "delta"))
    family = FAMILIES[settings["family"]]
    number = round(10 * family.quality) + 100 * family.ends_differ
    rng = np.random.default_rng([seed, cmdp, number])
    world = garnet(rng, end=rng.beta(*DIFFERENT_ENDS, size=120)) if family.ends_differ else garnet(rng)
    truth = true_mdp(world)
    baseline = mixed_policy(rng, optimal_policy(truth, np.ones(2)), family.quality)
    before = expected_return(truth, baseline)
    preference = np.array(PREFERENCE)
    rows = []
    for size in SIZES:
        own = np.random.default_rng([seed, cmdp, number, size])
        data = sample_episodes(world, baseline, size, own)
        train, safety = split(data, (1.0 - SAFETY_SHARE, SAFETY_SHARE), own)
        case = Case(
            truth=truth,
            baseline=baseline,
            before=before,
            model=_estimate(data, delta),
            train=train,
            train_model=_estimate(train, delta),
            data=data,
            safety=safety,
            delta=delta,
            draws=settings["draws"],
            draws_seed=int(own.integers(2**32)),
            max_rounds=100,
        )
        for method, after in case.returns(list(COMPARED), preference).items():
            name, _, parameter = method.partition(" ")
            gain = (after - before) / before  # returns of these worlds are positive
            rows.append(
                {
                    "episodes": size,
                    "method": name,
                    "parameter": parameter,
                    "improvement": 100.0 * float(preference @ gain),
                    "failure": bool(np.any(gain < -TOL)),
                }
            )
    return rows


def _estimate(data: Dataset, delta: float) -> Model:
    """The model of a log; pairs never tried end, and the error function counts all states, as in the paper's studies."""
    return estimate_model(data, delta=delta, unseen="end", vocabulary="declared")
