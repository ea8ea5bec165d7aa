"""Standard deviation of the one-step value of every pair under the posterior, for candidates that avoid uncertain pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from bettersafe.posterior.outcomes import Outcomes

if TYPE_CHECKING:
    from bettersafe.mdp.mdp import MDP
    from bettersafe.posterior.linearised_counts import CountedOutcomes
    from bettersafe.typing import Floats

OWN_VISITS = 20.0
"""Visits after which the variance seen in a pair weighs as much as that of the whole log."""


def one_step_sd(outcomes: Outcomes | CountedOutcomes, mdp: MDP, baseline_v: Floats) -> Floats:
    """Standard deviation of r_k(x,a) + γ_k Σ p(x'|x,a) v_k(x') for the pairs of ``mdp``, shape [d, P].

        u² = s² / n + variance of the mean reward        s²: variance of ρ_k + γ_k v_k over the outcomes of a visit

    s² is shrunk from the pair's own to that of the log, which it approaches in pairs with few visits.

    Args:
        outcomes: Outcomes of the log.
        mdp: Estimated MDP of the same log.
        baseline_v: v^{π_b}, shape [d, X].
    """
    visits, first, second = _moments(outcomes, mdp, baseline_v)
    inside = np.maximum(second - first**2, 0.0) * visits
    pooled = inside.sum(axis=1, keepdims=True) / max(float(visits.sum()), 1.0)
    spread = (OWN_VISITS * pooled + inside) / (OWN_VISITS + visits)
    place = np.searchsorted(outcomes.pair_index, mdp.pair_index)
    return np.sqrt(spread / np.maximum(visits, 1.0) + outcomes.pair_noise[:, place] ** 2)


def _moments(outcomes: Outcomes | CountedOutcomes, mdp: MDP, v: Floats) -> tuple[Floats, Floats, Floats]:
    """Visits [P], and mean and mean square of ρ_k + γ_k v_k over the outcomes of a pair, each of shape [d, P]."""
    gamma = mdp.discount[:, None]
    if isinstance(outcomes, Outcomes):
        o = outcomes
        after = np.where(o.outcome_next >= 0, v[:, np.maximum(o.outcome_next, 0)], 0.0)
        value = (o.outcome_reward + gamma * after)[:, o.count_outcome]
        place = np.searchsorted(o.pair_index, mdp.pair_index)
        size = np.maximum(o.visits, 1.0)
        first, second = (
            np.array([np.bincount(o.count_pair, weights=o.count * row, minlength=size.size) / size for row in each])
            for each in (value, value**2)
        )
        return o.visits[place], first[:, place], second[:, place]
    transition = sparse.csr_array(mdp.transition)
    return outcomes.visits, gamma * (transition @ v.T).T, gamma**2 * (transition @ (v**2).T).T
