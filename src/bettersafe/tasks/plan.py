"""Plan of a held-out test, from the log that the policy was made from: `bettersafe certify --plan`. It makes no test."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bettersafe.errors import RunError, check_integer, check_path, check_type
from bettersafe.evaluation.facts import BOUNDS
from bettersafe.evaluation.forecast import Forecast, forecast, largest_step
from bettersafe.logs._reader.files import data_digest
from bettersafe.logs.dataset import user_sign
from bettersafe.runs.run import Run
from bettersafe.tasks.evidence import evidence_for_run, known_log
from bettersafe.tasks.retest import AS_IN_THE_RUN, HeldOutTest, check_proposal, filled
from bettersafe.tasks.rules import safety_rule

if TYPE_CHECKING:
    from bettersafe.logs.dataset import Columns, Objective
    from bettersafe.typing import Json, Progress


def plan_run(
    run: Run,
    data: str | os.PathLike[str],
    test: HeldOutTest = AS_IN_THE_RUN,
    *,
    episodes: int,
    columns: Columns | None = None,
    progress: Progress | None = None,
) -> tuple[Forecast, ...]:
    """Forecasts of `certify_run` on ``episodes`` other episodes, for steps towards the run's proposal, the largest first.

    Args:
        run: Run.
        data: The log that the policy was made from.
        test: Settings of the test.
        episodes: Number of episodes of the test.
        columns: Names of the columns, if they differ from the run's log.
        progress: Callback while the log is read.

    Raises:
        RunError: If the run has no proposal, or was made from another log.
    """
    check_type("run", run, Run)
    check_path("data", data)
    check_type("test", test, HeldOutTest)
    check_integer("episodes", episodes, least=2)
    check_proposal(run)
    name = os.fspath(data)
    if known_log(run, name, data_digest(name)) is None:
        raise RunError(
            f"the policy was not made from {name}. A plan comes from the log of the policy: episodes that were used to plan a test"
            " can't be used in it."
        )
    settings = filled(test, run.info.settings)
    rule = safety_rule(settings, run.objectives)
    if BOUNDS[rule.bound].finite_sample:
        raise RunError(f"a plan is for an approximate bound; the run has {rule.bound!r}. Set `bound` to 't'.")
    with evidence_for_run(run, name, columns=columns, progress=progress) as evidence:
        return forecast(
            evidence.policy,
            evidence.baseline,
            evidence.log,
            rule,
            episodes=episodes,
            folds=test.folds,
            rng=test.seed,
        )


def plan_document(found: tuple[Forecast, ...], objectives: tuple[Objective, ...], episodes: int) -> Json:
    """The plan as JSON, in the sign of the log."""
    best = largest_step(found)
    return {
        "episodes": episodes,
        "largest_step": None if best is None else best.step,
        "steps": [
            {
                "step": each.step,
                "effective_episodes": each.effective,
                "could_pass": each.could_pass,
                "episodes_needed": each.needed,
                "objectives": {
                    objective.name: {
                        "gain": user_sign(objective, each.gain[k]),
                        "detectable": user_sign(objective, each.detectable[k]),
                    }
                    for k, objective in enumerate(objectives)
                },
            }
            for each in found
        ],
    }
