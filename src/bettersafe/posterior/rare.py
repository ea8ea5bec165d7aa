"""Rare outcomes: the part of a step's value that extreme events carry, pooled over states and actions like a noisy reward.

A state that has never shown a catastrophe can't reach it in a model of its own outcomes, and a policy made from the log goes where
nothing was seen. What an action did in *other* states is the better guide. So the value of a logged step for objective k,

    y = r_k + γ_k v_k(x')        surprise u = y − mean of y in state x        v_k(x): mean logged return from x on

is split. Steps with the most extreme surprises of the log, a share of `EXTREME` on either side, lose their excess R over that limit.
The rest of the reward follows its model as before (`priors`, `rewards`). The mean excess of a pair is a noisy reward of its own: it has
effects of the state, the action and the pair, and how much these differ is learnt from the log (`rewards`), here with one variance for
all pairs, because a variance by pair would give the pairs that have not shown the event the larger weight. A hazard that an action has
everywhere is then expected everywhere, and a hazard of single states is uncertain where few visits could not have shown it.

The split changes no mean of a pair, whatever v is; it changes what is pooled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bettersafe.logs.dataset import Dataset
    from bettersafe.typing import Floats, Ints

EXTREME = 0.025
"""Share of the rows of a log, on either side, whose surprise is cut off at a limit."""


def rare_excess(dataset: Dataset, rows: Ints) -> Floats:
    """Excess R of the chosen rows for every objective, shape [N, d]; 0 if no surprise is beyond the limits."""
    x, following = dataset.states[rows], dataset.next_states[rows]
    visits = np.maximum(np.bincount(x, minlength=dataset.n_states), 1.0)
    found = np.zeros((rows.size, dataset.n_objectives))
    for k, objective in enumerate(dataset.objectives):
        v = _logged_values(dataset, k, objective.discount)
        value = dataset.rewards[rows, k] + objective.discount * np.where(following >= 0, v[np.maximum(following, 0)], 0.0)
        surprise = value - (np.bincount(x, weights=value, minlength=visits.size) / visits)[x]
        low, high = np.quantile(surprise, [EXTREME, 1.0 - EXTREME])
        excess = np.minimum(surprise - min(low, 0.0), 0.0) + np.maximum(surprise - max(high, 0.0), 0.0)
        if float(np.max(np.abs(excess))) > 1e-9 * float(np.max(np.abs(value))):
            found[:, k] = excess
    return found


def _logged_values(dataset: Dataset, k: int, discount: float) -> Floats:
    """Mean logged return of objective k from a state on, shape [X]; 0 for states without decisions."""
    begin, end = dataset.episode_ptr[:-1], dataset.episode_ptr[1:]
    total = dataset.rewards[:, k].astype(np.float64).copy()
    for back in range(2, int(np.max(end - begin)) + 1):
        row = end[end - begin >= back] - back
        total[row] += discount * total[row + 1]
    visits = np.bincount(dataset.states, minlength=dataset.n_states)
    return np.asarray(np.bincount(dataset.states, weights=total, minlength=dataset.n_states) / np.maximum(visits, 1.0))
