"""What a test on more episodes could show, before any episode is spent on it.

The log that a policy was made from tells nothing new about the policy's gain, but how much the terms of a test vary. With standard
deviation s_k of the paired terms of one episode (of one sampling unit) and n episodes, the lower bound on the gain is about

    gain_k − z_{1−δ_k} s_k / √n

so the smallest gain that passes with probability 1/2 is z_{1−δ_k} s_k / √n − ζ_k, and with a gain g the episodes needed are
(z_{1−δ_k} s_k / (g_k + ζ_k))². A step of size 1 − α towards the policy, (1−α) π + α π_b, has about (1 − α) times its gain, and
weights that vary far less. Gains in the log that made the policy are optimistic, so numbers of episodes are the least that can be hoped for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from bettersafe.errors import check_integer, check_log, check_type
from bettersafe.evaluation.bounds import by_unit
from bettersafe.evaluation.evaluate import evaluate_policy, fold_seed
from bettersafe.evaluation.facts import ESTIMATORS
from bettersafe.evaluation.held_out import SafetyRule
from bettersafe.logs.episodes import n_units
from bettersafe.mdp.policy import check_policy

if TYPE_CHECKING:
    import numpy.typing as npt

    from bettersafe.typing import Floats, Log, Rng

STEPS = (1.0, 0.5, 0.2, 0.1)
"""Steps towards the policy for which a test is forecast, the largest first."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a test of one step towards a policy could show.

    Attributes:
        step: Share of the policy in the mixture with the baseline.
        gain: Gain in the log that the policy was made from, J_k(π) − J_k(π_b), which is optimistic, shape [d].
        detectable: Smallest gain that passes with probability 1/2, shape [d]; negative if a loss within ζ passes.
        effective: Effective episodes of the test.
        trusted: Whether a test would not refuse the weights as those of too few episodes.
        needed: Episodes with which the gain would pass; infinite if it is a loss beyond ζ.
    """

    step: float
    gain: Floats
    detectable: Floats
    effective: float
    trusted: bool
    needed: float

    @property
    def could_pass(self) -> bool:
        """Whether a test would pass if the gain were as in this log."""
        return self.trusted and bool(np.all(self.gain >= self.detectable))


def forecast(
    policy: npt.ArrayLike,
    baseline: npt.ArrayLike,
    data: Log,
    rule: SafetyRule,
    *,
    episodes: int | None = None,
    folds: int = 5,
    rng: Rng = 0,
) -> tuple[Forecast, ...]:
    """Forecasts of a test of steps towards ``policy``, the largest step first. No test is made, so none is spent.

    Args:
        policy: π, shape [X, A].
        baseline: π_b, shape [X, A].
        data: The log that the policy was made from. The episodes of the test must not be used to plan it.
        rule: Settings of the test.
        episodes: Episodes of the test; as many as in ``data`` if None.
        folds: Folds for cross-fitting the models.
        rng: Seed or generator of the folds.

    Examples:
        >>> from bettersafe.evaluation.forecast import forecast
        >>> policy = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy
        >>> rule = bettersafe.SafetyRule(delta=0.1, zeta=[0.0, 0.0], estimator="drl")
        >>> [found.step for found in forecast(policy, baseline, log, rule, episodes=500)]
        [1.0, 0.5, 0.2, 0.1]
    """
    check_log("data", data)
    check_type("rule", rule, SafetyRule)
    check_integer("episodes", episodes, least=2, optional=True)
    whole = check_policy(policy, data.n_states, data.n_actions, name="policy", state_labels=data.state_labels)
    base = check_policy(baseline, data.n_states, data.n_actions, name="baseline", state_labels=data.state_labels)
    share = (data.n_episodes if episodes is None else episodes) / data.n_episodes
    units = n_units(data)
    n, normal, seed = share * units, float(stats.norm.ppf(1.0 - rule.level)), fold_seed(rng)
    used = min(folds, units) if ESTIMATORS[rule.estimator].has_folds else None

    def terms(target: Floats) -> Floats:
        return evaluate_policy(
            data, target, base, estimator=rule.estimator, folds=used, rng=seed, horizon=rule.horizon
        ).per_trajectory

    own = terms(base)
    found = []
    for step in STEPS:
        mixed = step * whole + (1.0 - step) * base
        evaluation = evaluate_policy(
            data, mixed, base, estimator=rule.estimator, folds=used, rng=seed, horizon=rule.horizon
        )
        paired = by_unit(evaluation.per_trajectory - own, data.units)
        gain, spread = paired.mean(axis=0), paired.std(axis=0, ddof=1)
        weights = evaluation
        if not ESTIMATORS[rule.estimator].marginal:
            weights = evaluate_policy(data, mixed, base, estimator="is", horizon=rule.horizon)
        room = gain + rule.zeta
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.where(room > 0.0, (normal * spread / room) ** 2, math.inf)
        effective = share * weights.ess
        found.append(
            Forecast(
                step=step,
                gain=gain,
                detectable=normal * spread / math.sqrt(n) - rule.zeta,
                effective=effective,
                trusted=effective >= max(0.02 * share * data.n_episodes, 20.0),
                needed=float(np.max(np.where(spread > 0.0, needed, 0.0))) / units * data.n_episodes,
            )
        )
    return tuple(found)


def largest_step(found: tuple[Forecast, ...]) -> Forecast | None:
    """Forecast of the largest step that could pass, or None."""
    return next((each for each in found if each.could_pass), None)
