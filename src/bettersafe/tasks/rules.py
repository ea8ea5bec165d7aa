"""Rules of a task's tests: thresholds, the held-out test, and the question to the posterior."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bettersafe.errors import ParameterError, did_you_mean
from bettersafe.evaluation.held_out import SafetyRule, return_range
from bettersafe.logs.dataset import reward_ranges, user_sign
from bettersafe.posterior.events import DeclaredEvent
from bettersafe.posterior.judge import Question
from bettersafe.posterior.priors import PriorSet
from bettersafe.tasks.settings import BY_NAME, OF_POSTERIOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bettersafe.evaluation.choices import Coverage, Levels
    from bettersafe.logs.dataset import Objective
    from bettersafe.posterior.choices import Form, Neutral
    from bettersafe.posterior.draws import RayCluster
    from bettersafe.typing import Floats


def by_objective(
    values: Mapping[str, float], objectives: tuple[Objective, ...], what: str, *, otherwise: float
) -> Floats:
    """Vector [d] of the values given by objective; ``otherwise`` for the other objectives."""
    names = [objective.name for objective in objectives]
    for name in values:
        if name not in names:
            raise ParameterError(
                f"{what} of {name}: there is no such objective; the objectives are {', '.join(names)}.{did_you_mean(name, names)}",
                setting=what,
            )
    return np.array([values.get(name, otherwise) for name in names])


def task_thresholds(threshold: dict[str, float], objectives: tuple[Objective, ...]) -> Floats | None:
    """Thresholds, signed so that more is better, shape [d], NaN for none; None if no objective has one."""
    if not threshold:
        return None
    given = by_objective(threshold, objectives, "threshold", otherwise=np.nan)
    if not all(np.isfinite(value) for value in threshold.values()):
        raise ParameterError(f"thresholds must be finite numbers; got {threshold}.", setting="threshold")
    return np.array([user_sign(o, value) for o, value in zip(objectives, given, strict=True)])


class HeldOutSettings(Protocol):
    """Settings of a held-out test, as in a `Task` and in the settings of `certify_run`."""

    @property
    def delta(self) -> float: ...  # noqa: D102
    @property
    def zeta(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def estimator(self) -> str: ...  # noqa: D102
    @property
    def bound(self) -> str: ...  # noqa: D102
    @property
    def levels(self) -> Levels: ...  # noqa: D102
    @property
    def coverage(self) -> Coverage: ...  # noqa: D102
    @property
    def truncation(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def horizon(self) -> int | None: ...  # noqa: D102


def safety_rule(settings: HeldOutSettings, objectives: tuple[Objective, ...]) -> SafetyRule:
    """Rule of a held-out test, with ranges from the objectives."""
    ranges = reward_ranges(objectives)
    discount = np.array([objective.discount for objective in objectives])
    return SafetyRule(
        delta=settings.delta,
        zeta=by_objective(settings.zeta, objectives, "zeta", otherwise=0.0),
        estimator=settings.estimator,
        bound=settings.bound,
        levels=settings.levels,
        reward_range=ranges,
        return_range=None if ranges is None else return_range(*ranges, discount, settings.horizon),
        horizon=settings.horizon,
        strict=settings.coverage == "required",
        truncation=by_objective(settings.truncation, objectives, "truncation", otherwise=np.nan)
        if settings.truncation
        else None,
    )


class PosteriorSettings(Protocol):
    """Settings of the posterior, as in a `Task` and, filled in from the run, in those of `certify_run_posterior`."""

    @property
    def delta(self) -> float: ...  # noqa: D102
    @property
    def zeta(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def draws(self) -> int: ...  # noqa: D102
    @property
    def form(self) -> Form: ...  # noqa: D102
    @property
    def seed(self) -> int: ...  # noqa: D102
    @property
    def prior(self) -> Neutral: ...  # noqa: D102
    @property
    def pessimism(self) -> float: ...  # noqa: D102
    @property
    def events(self) -> tuple[DeclaredEvent, ...]: ...  # noqa: D102


def posterior_priors(settings: PosteriorSettings) -> PriorSet:
    """Priors of the settings."""
    return PriorSet(neutral=settings.prior, pessimism=settings.pessimism)


def posterior_question(
    settings: PosteriorSettings, objectives: tuple[Objective, ...], cluster: RayCluster | None = None
) -> Question:
    """Question to the posterior."""
    return Question(
        delta=settings.delta,
        zeta=by_objective(settings.zeta, objectives, "zeta", otherwise=0.0),
        draws=settings.draws,
        seed=settings.seed,
        form=settings.form,
        priors=posterior_priors(settings),
        cluster=cluster,
    )


def saved_posterior(document: Mapping[str, Any]) -> dict[str, Any]:
    """Settings `OF_POSTERIOR` in the settings of a run or certificate, as fields of a task; the table's defaults if they are missing."""
    found = {name: document.get(name, BY_NAME[name].default) for name in OF_POSTERIOR}
    return {
        name: tuple(DeclaredEvent(**event) for event in value) if BY_NAME[name].kind == "list of events" else value
        for name, value in found.items()
    }
