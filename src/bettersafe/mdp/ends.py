"""Policies that end: with discount 1 a return is finite only if every state reaches an end.

A policy is *proper* if from every state the process ends with probability 1. In a finite process this is a property of the graph
of the policy: from every state some path of positive probability leads to an end. If a policy is not proper, following a proper one
in the states without such a path makes it proper (`ending`): paths from the other states avoid these states, and from these states
the proper policy leads to an end or to one of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe.errors import ParameterError, PolicyError
from bettersafe.mdp.mdp import policy_matrix

if TYPE_CHECKING:
    from bettersafe.mdp.mdp import MDP
    from bettersafe.typing import Floats, Ints, Labels

NEVER = 1e-6
"""Probability up to which a step counts as never taken: an end that takes a million steps is not one that a log can show."""


def undiscounted(mdp: MDP) -> bool:
    """Whether an objective has discount 1."""
    return bool((mdp.discount == 1.0).any())


def check_discounted(mdp: MDP, what: str) -> None:
    """Raise ParameterError if an objective has discount 1, for methods whose policies might never end."""
    if undiscounted(mdp):
        raise ParameterError(f"{what} needs discounts below 1; got {mdp.discount.tolist()}.", setting="discount")


def endless_states(mdp: MDP, weight: Floats) -> Ints:
    """States from which a policy never reaches an end, sorted; ``weight`` [P] is π(a|x) of the stored pairs.

    A pair that is not stored counts as an end.
    """
    from scipy import sparse
    from scipy.sparse import csgraph

    n = mdp.n_states
    matrix = policy_matrix(mdp.state_ptr, weight, mdp.transition)
    ends = np.flatnonzero(1.0 - matrix.sum(axis=1) > NEVER)
    taken = matrix.data > NEVER
    before = np.repeat(np.arange(n), np.diff(matrix.indptr))[taken]
    # edges point backwards, from the end (node n) to the states before it
    rows, columns = np.append(matrix.indices[taken], np.full(ends.size, n)), np.append(before, ends)
    backward = sparse.csr_array(
        (np.ones(rows.size, dtype=np.float64), (rows.astype(np.int64), columns)), shape=(n + 1, n + 1)
    )
    reached = np.zeros(n + 1, dtype=bool)
    reached[csgraph.breadth_first_order(backward, n, return_predecessors=False)] = True
    return np.flatnonzero(~reached[:n])


def ending(mdp: MDP, policy: Floats, proper: Floats) -> Floats:
    """``policy`` [X, A], with the rows of ``proper`` [X, A] in states from which it never reaches an end."""
    states = endless_states(mdp, policy.take(mdp.pair_index))
    if not states.size:
        return policy
    changed = policy.copy()
    changed[states] = proper[states]
    return changed


def check_ends(mdp: MDP, policy: Floats, *, name: str, state_labels: Labels) -> None:
    """Raise PolicyError, with the name of a state, if an objective has discount 1 and ``policy`` [X, A] does not end."""
    check_pairs_end(mdp, policy.take(mdp.pair_index), name=name, state_labels=state_labels)


def check_pairs_end(mdp: MDP, weight: Floats, *, name: str, state_labels: Labels) -> None:
    """`check_ends` for a policy given by pair, ``weight`` [P]."""
    if not undiscounted(mdp):
        return
    states = endless_states(mdp, weight)
    if states.size:
        more = f" (and {states.size - 1} more states like it)" if states.size > 1 else ""
        raise PolicyError(
            f"with discount 1 every episode must end, but {name} never reaches an end from state"
            f" {str(state_labels[states[0]])!r}{more} in the estimated model. Use a discount below 1, or set `horizon`.",
            setting="discount",
        )
