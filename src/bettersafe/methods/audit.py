"""Audit of optimism: how much too high the gains of policies look to the log that made them.

The log is divided at random into halves (`thin_outcomes`). Every recipe (`recipes`) makes a policy from each half. Its *optimism* is

    (posterior mean of its gain by the half that made it) − (posterior mean by the other half),

averaged over both directions and several divisions: 0 for a policy that was not made from the log, and larger the more chance decided.
The same for quarters of the log shows how optimism falls with more data: O ∝ 1/n if a recipe has settled, 1/√n if chance decides.
From the whole log it is taken to be r O(n/2), r = O(n/2)/O(n/4) within [1/2, 1], one r for all recipes and objectives. It is never
less than 0. A recipe that returns the baseline on some part has not been tried by it: its optimism is at least the median of the others,
in standard deviations of the gain.

The standard error over the divisions is reported. It does not go into the standard deviation of the gain, which is widened anyway
(`judge.WIDENING`): with two divisions it is itself mostly chance, and the choice among candidates would prefer those whose divisions
happen to agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.posterior.habits import informed
from bettersafe.posterior.linearised import mean_returns
from bettersafe.posterior.outcomes import thin_outcomes
from bettersafe.typing import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.posterior.priors import Posterior
    from bettersafe.typing import Bools, Floats, Progress

SPLITS = 2
"""Divisions of the log into halves, and of its halves into quarters."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Optimism of the policies of every recipe.

    Attributes:
        optimism: What to take off the gains, shape [C, d].
        error: Standard error of ``optimism``, shape [C, d].
        ratio: r.
        splits: Divisions of the log.
    """

    optimism: Floats
    error: Floats
    ratio: float
    splits: int


def audit(
    whole: Posterior,
    baseline_of: Callable[[Outcomes], Floats],
    make: Callable[[Posterior, Floats], list[Floats]],
    *,
    sd: Floats,
    splits: int = SPLITS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Audit:
    """Optimism of the policies that ``make`` returns.

    Args:
        whole: Posterior of the log under the neutral prior (`informed`); parts share the strengths that were learnt from it.
        baseline_of: Baseline [X, A] of a part of the log.
        make: Policies, C of them in a fixed order, from the posterior of a part of the log and its baseline.
        sd: Posterior standard deviations of the gains of the policies made from the whole log, shape [C, d].
        splits: Divisions of the log.
        seed: Seed of the divisions.
        progress: Callback after every part.
    """
    rng = np.random.default_rng([seed, 0x0D17])
    halves, quarters = [], []
    for i in range(splits):
        pair = thin_outcomes(whole.outcomes, rng)
        halves.append(_optimism(whole, pair, baseline_of, make))
        if progress is not None:
            progress(Event(what="Auditing on parts of the log", done=2 * i + 1, total=2 * splits, unit="parts"))
        smaller = thin_outcomes(pair[0], rng)[0], thin_outcomes(pair[1], rng)[0]
        quarters.append(_optimism(whole, smaller, baseline_of, make))
        if progress is not None:
            progress(Event(what="Auditing on parts of the log", done=2 * i + 2, total=2 * splits, unit="parts"))
    half, quarter = np.array([found for found, _ in halves]), np.array([found for found, _ in quarters])
    tried = np.all([active for _, active in halves], axis=0)
    found = np.maximum(half.mean(axis=0), 0.0)
    error = half.std(axis=0, ddof=1) / np.sqrt(splits) if splits > 1 else np.abs(half[0])
    below = float(np.maximum(quarter.mean(axis=0), 0.0).sum())
    ratio = float(np.clip(found.sum() / below, 0.5, 1.0)) if below > 0.0 else 1.0
    for k in range(sd.shape[1]):
        known = tried & (sd[:, k] > 0.0)
        units = half.mean(axis=0)[known, k] / sd[known, k] if np.any(known) else np.zeros(1)
        found[~tried, k] = np.maximum(found[~tried, k], max(float(np.median(units)), 0.0) * sd[~tried, k])
        error[~tried, k] = np.maximum(error[~tried, k], float(np.std(units)) * sd[~tried, k])
    return Audit(optimism=ratio * found, error=ratio * error, ratio=ratio, splits=splits)


def _optimism(
    whole: Posterior,
    parts: tuple[Outcomes, Outcomes],
    baseline_of: Callable[[Outcomes], Floats],
    make: Callable[[Posterior, Floats], list[Floats]],
) -> tuple[Floats, Bools]:
    """Gain by the part that made a policy minus gain by the other part, averaged over both directions, shape [C, d].

    Also whether a recipe made a policy other than the baseline from both parts, shape [C].
    """
    baselines = [baseline_of(part) for part in parts]
    posteriors = [
        informed(part, whole.priors, baseline, whole.habits) for part, baseline in zip(parts, baselines, strict=True)
    ]
    total: Floats | float = 0.0
    tried: Bools | bool = True
    for own, other, baseline in zip(posteriors, posteriors[::-1], baselines, strict=True):
        policies = make(own, baseline)
        total = total + _gains(own, baseline, policies) - _gains(other, baseline, policies)
        tried = tried & np.array([float(np.max(np.abs(policy - baseline))) > 1e-9 for policy in policies])
    return np.asarray(total) / 2.0, np.asarray(tried)


def _gains(given: Posterior, baseline: Floats, policies: list[Floats]) -> Floats:
    """Gains at the posterior mean, shape [C, d]."""
    return np.array([mean_returns(given, policy) for policy in policies]) - mean_returns(given, baseline)
