"""The part of a log's vocabulary that matters: its states, and the actions that were tried or that a policy plays.

A log may declare states and actions that it never shows. They must change nothing, so the posterior is computed without them: random
numbers and rounding then are those of the log without the declaration, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.posterior.outcomes import Outcomes
from bettersafe.typing import Floats, Ints, frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.model import Model
    from bettersafe.posterior.linearised_counts import CountedOutcomes


@dataclass(frozen=True, kw_only=True)
class Essential:
    """A log's outcomes and model without declared states and actions that are never seen or played.

    Attributes:
        outcomes: Outcomes of the log.
        model: Model of the log.
        states: Kept states, shape [X']; None if all are kept.
        actions: Kept actions, shape [A']; None if all are kept.
    """

    outcomes: Outcomes | CountedOutcomes
    model: Model
    states: Ints | None = None
    actions: Ints | None = None

    def policy(self, table: Floats) -> Floats:
        """A policy [X, A] over what is kept; rows without kept actions, which are of states without decisions, are uniform."""
        if self.states is None or self.actions is None:
            return table
        kept = table[np.ix_(self.states, self.actions)]
        total = kept.sum(axis=1, keepdims=True)
        # rows of states with decisions stay as they are, to the last bit
        short = total < 1.0 - 1e-6
        spread = np.where(total > 0.0, kept / np.where(total > 0.0, total, 1.0), 1.0 / self.actions.size)
        return frozen(np.where(short, spread, kept), np.float64)

    def values(self, v: Floats) -> Floats:
        """Values [d, X] of the kept states."""
        return v if self.states is None else v[:, self.states]

    def whole(self, policy: Floats, baseline: Floats) -> Floats:
        """A policy over what is kept as one over everything, shape [X, A]; elsewhere it is the baseline."""
        if self.states is None or self.actions is None:
            return policy
        acted = np.zeros(baseline.shape[0], dtype=np.bool_)
        acted[self.states[np.unique(self.outcomes.pair_state)]] = True
        table = baseline.copy()
        inside = acted[self.states]
        table[np.ix_(self.states[inside], self.actions)] = policy[inside]
        return table


def essential(outcomes: Outcomes | CountedOutcomes, model: Model, policies: Sequence[Floats]) -> Essential:
    """Leave out declared states and actions that are in no decision, no transition and no policy.

    Args:
        outcomes: Outcomes of the log. `CountedOutcomes` are kept whole: they use no random numbers.
        model: Model of the same log.
        policies: Policies to be evaluated, and the baseline, each of shape [X, A].
    """
    from scipy import sparse

    if not isinstance(outcomes, Outcomes):
        return Essential(outcomes=outcomes, model=model)
    mdp = model.mdp
    acted = np.zeros(mdp.n_states, dtype=np.bool_)
    acted[outcomes.pair_state] = True
    counted = np.flatnonzero(model.counts > 0)
    acted[mdp.pair_state[counted]] = True
    reached = acted | (mdp.initial > 0.0)
    reached[np.unique(sparse.csr_array(mdp.transition)[counted].indices)] = True
    used = np.zeros(mdp.n_actions, dtype=np.bool_)
    used[mdp.pair_action[counted]] = True
    used[outcomes.pair_action[outcomes.visits > 0.0]] = True
    for policy in policies:
        used |= np.any(policy[acted] > 0.0, axis=0)
    if np.all(reached) and np.all(used):
        return Essential(outcomes=outcomes, model=model)
    states, actions = np.flatnonzero(reached), np.flatnonzero(used)
    return Essential(
        outcomes=outcomes.within(states, actions),
        model=_model_within(model, states, actions),
        states=frozen(states, np.int64),
        actions=frozen(actions, np.int64),
    )


def _model_within(model: Model, states: Ints, actions: Ints) -> Model:
    """The model with some of its states and actions."""
    from scipy import sparse

    mdp = model.mdp
    keep = np.flatnonzero(np.isin(mdp.pair_state, states) & np.isin(mdp.pair_action, actions))
    return replace(
        model,
        mdp=replace(
            mdp,
            n_states=states.size,
            n_actions=actions.size,
            pair_state=np.searchsorted(states, mdp.pair_state[keep]),
            pair_action=np.searchsorted(actions, mdp.pair_action[keep]),
            transition=sparse.csr_array(mdp.transition)[keep][:, states],
            reward=mdp.reward[:, keep],
            initial=mdp.initial[states],
            unseen_value=mdp.unseen_value[:, states],
        ),
        counts=frozen(model.counts[keep], np.int64),
        error=frozen(model.error[keep], np.float64),
        state_labels=model.state_labels[states],
        action_labels=model.action_labels[actions],
    )
