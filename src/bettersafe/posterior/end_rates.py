"""Rates of harmful ends after actions that the baseline rarely plays, learnt from all states together.

Ends that do harm are rare, and most rarely played pairs are harmless while some are deadly. A pair that was tried twice has not shown
which, and normal effects (`habits`) miss such a mixture. With d ends of one kind in n visits of a pair, and e the rate of that kind after
the other actions of its state,

    d ~ Binomial(n, θ)     θ ~ Beta(c m, c (1 − m))     m = e + a

The excess a ≥ 0 and the concentration c are shared by the pairs of a group, and have a posterior on a grid for every group. A small c
means that pairs of the group differ: a few have a high rate. The excess is not negative: to expect fewer ends than elsewhere would not be
cautious.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.typing import Floats, Ints

EXCESSES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6)
CONCENTRATIONS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
"""Grids of a and c."""

NO_EXCESS = 0.5
"""Prior probability of a = 0; the other excesses share the rest."""

HIGHEST = 0.95
"""Largest m."""

RATE_STEPS = 4
"""Rates e are rounded to this many values per factor of 10, so that pairs with the same visits and ends share their computation."""


def excess_ends(o: Outcomes, group: Ints, kind: int) -> tuple[Floats, Floats]:
    """What the excess adds to the rate of one kind of end, and the variance of the rate, each of shape [P].

    Args:
        o: Outcomes of the log.
        group: Group of every pair, shape [P].
        kind: Kind of end.
    """
    of_kind = o.kind[o.count_outcome] == kind
    ends = np.bincount(o.count_pair, o.count * of_kind, o.visits.size)
    in_state, all_in_state = (np.bincount(o.pair_state, each, o.n_states)[o.pair_state] for each in (ends, o.visits))
    overall = ends.sum() / max(o.visits.sum(), 1.0)
    rate = (in_state - ends + overall) / (all_in_state - o.visits + 1.0)
    rounded = np.rint(RATE_STEPS * np.log10(np.clip(rate, 1e-6, HIGHEST)))
    cases, case = np.unique(np.array([o.visits, ends, rounded]), axis=1, return_inverse=True)
    logs, mean, square = _on_grid(cases[0], cases[1], 10.0 ** (cases[2] / RATE_STEPS))
    prior = np.where(np.arange(len(EXCESSES)) == 0, NO_EXCESS, (1.0 - NO_EXCESS) / (len(EXCESSES) - 1))
    added, variance = np.zeros(o.visits.size), np.zeros(o.visits.size)
    for g in np.unique(group).tolist():
        mine = case.reshape(-1)[group == g]
        which, times = np.unique(mine, return_counts=True)
        evidence = logs[:, :, which] @ times + np.log(prior)[:, None]
        weight = np.exp(evidence - evidence.max())
        weight /= weight.sum()
        first, second, without = (
            np.einsum("ac,acp->p", share, each[:, :, mine])
            for share, each in (
                (weight, mean),
                (weight, square),
                (weight, np.broadcast_to(mean[:1], mean.shape)),
            )
        )
        added[group == g], variance[group == g] = first - without, np.maximum(second - first**2, 0.0)
    return np.maximum(added, 0.0), variance


def _on_grid(visits: Floats, ends: Floats, rate: Floats) -> tuple[Floats, Floats, Floats]:
    """Log-likelihood, mean and mean square of θ for every a, c and case, each of shape [a, c, cases]."""
    from scipy.special import betaln

    a, c = np.array(EXCESSES)[:, None, None], np.array(CONCENTRATIONS)[None, :, None]
    m = np.minimum(rate + a, HIGHEST)
    alpha, beta = c * m + ends, c * (1.0 - m) + visits - ends
    logs = betaln(alpha, beta) - betaln(c * m, c * (1.0 - m))
    mean = alpha / (alpha + beta)
    return logs, mean, mean * (alpha + 1.0) / (alpha + beta + 1.0)


def harm_of_ends(o: Outcomes, rates: list[tuple[Floats, Floats]], value: Floats) -> tuple[Floats, Floats]:
    """Change of the mean value of pairs by the excess of ends that are worse than to go on, and its variance, each of shape [P].

    Args:
        o: Outcomes of the log.
        rates: `excess_ends` of every kind.
        value: Value of every outcome relative to going on from its state, shape [K].
    """
    change, variance = np.zeros(o.visits.size), np.zeros(o.visits.size)
    worse = np.minimum(value, 0.0)
    for kind, (added, spread) in enumerate(rates):
        of_kind = np.flatnonzero(o.kind == kind)
        loss = np.zeros(o.n_states)
        loss[o.outcome_state[of_kind]] = worse[of_kind]
        change += added * loss[o.pair_state]
        variance += spread * loss[o.pair_state] ** 2
    return change, variance
