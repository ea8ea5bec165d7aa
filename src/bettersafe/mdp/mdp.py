"""Finite MDPs with d reward signals, stored by (state, action) pair.

    v_k = r_{π,k} + γ_k P_π v_k            policy_values, exact up to rounding
    q_k(x,a) = r_k(x,a) + γ_k Σ_x' p(x'|x,a) v_k(x')
    J_k = Σ_x μ(x) v_k(x)                  expected_return; up to a step: `bettersafe.mdp.horizon`
    ν^T = μ^T + γ ν^T P_π                  occupancy (discounted, unnormalised)

Rows of p may sum to less than one: the rest is the probability of termination, with value 0 afterwards. A pair that is
not stored was never tried; its value is ``unseen_value``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bettersafe.errors import ParameterError, as_numbers, check_discount, check_indices, check_integer
from bettersafe.typing import Floats, Ints, frozen

if TYPE_CHECKING:
    from scipy import sparse


@dataclass(frozen=True, kw_only=True)
class MDP:
    """Finite MDP over P stored pairs, sorted by state and then action.

    Attributes:
        n_states: |X|.
        n_actions: |A|.
        pair_state: State of every pair, shape [P].
        pair_action: Action of every pair, shape [P].
        state_ptr: Pairs of state x are state_ptr[x]:state_ptr[x+1], shape [X+1]; follows from pair_state.
        transition: p(x'|x,a), CSR [P, X]; a row sums to at most 1, the rest terminates.
        reward: r_k(x,a), shape [d, P].
        discount: γ_k, shape [d]; values at discount 1 exist for policies that end.
        initial: μ(x), shape [X].
        unseen_value: Value of a pair that is not stored, shape [d, X]; zero if left out.

    Examples:
        >>> model.mdp.n_states, model.mdp.n_actions, model.mdp.n_objectives
        (6, 3, 2)
    """

    n_states: int
    n_actions: int
    pair_state: Ints
    pair_action: Ints
    transition: sparse.csr_array
    reward: Floats
    discount: Floats
    initial: Floats
    unseen_value: Floats = None  # type: ignore[assignment]  # __post_init__ fills it in
    state_ptr: Ints = None  # type: ignore[assignment]  # always follows from pair_state

    def __post_init__(self) -> None:
        for name in ("n_states", "n_actions"):
            check_integer(name, getattr(self, name), least=0)
        n_states, n_actions = self.n_states, self.n_actions
        reward = np.atleast_2d(as_numbers("reward", self.reward))
        if reward.ndim != 2:
            raise ParameterError(f"reward must have shape [objectives, pairs]; got {reward.shape}.")
        n_objectives, n_pairs = reward.shape
        gammas = as_numbers("discount", self.discount)
        if gammas.shape not in ((), (1,), (n_objectives,)):
            raise ParameterError(
                f"discount must be one number, or {n_objectives}, one per objective; got shape {gammas.shape}."
            )
        discount = np.broadcast_to(gammas, (n_objectives,))
        for k, gamma in enumerate(discount):
            check_discount(f"objective {k}", float(gamma))
        pair_state = frozen(self.pair_state, np.int64, name="pair_state")
        pair_action = frozen(self.pair_action, np.int64, name="pair_action")
        if pair_state.shape != (n_pairs,) or pair_action.shape != (n_pairs,):
            raise ParameterError(
                f"reward has {n_pairs} pairs, but pair_state has shape {pair_state.shape} and pair_action {pair_action.shape}."
            )
        check_indices("pair_state", pair_state, n_states)
        check_indices("pair_action", pair_action, n_actions)
        if np.any(np.diff(pair_state * n_actions + pair_action) <= 0):
            raise ParameterError("pairs must be sorted by state, then action, each once.")
        transition = _checked_csr(self.transition)
        if transition.shape != (n_pairs, n_states):
            raise ParameterError(
                f"transition must be [pairs, states] = [{n_pairs}, {n_states}]; got {transition.shape}."
            )
        totals = transition.sum(axis=1)
        bad = np.flatnonzero(~(totals <= 1.0 + 1e-9))
        if transition.nnz and (bad.size or not transition.data.min() >= 0.0):
            row = (
                int(bad[0])
                if bad.size
                else int(np.searchsorted(transition.indptr, transition.data.argmin(), "right") - 1)
            )
            raise ParameterError(
                f"probabilities of state {pair_state[row]}, action {pair_action[row]} must be ≥ 0 and sum to at most 1;"
                f" they sum to {totals[row]:.9g}."
            )
        if not np.all(np.isfinite(reward)):
            k, p = np.argwhere(~np.isfinite(reward))[0]
            raise ParameterError(f"reward {k} of state {pair_state[p]}, action {pair_action[p]} is not finite.")
        initial = as_numbers("initial", self.initial)
        if initial.shape != (n_states,) or not np.all(initial >= 0.0) or not np.isclose(initial.sum(), 1.0, atol=1e-9):
            raise ParameterError(
                f"initial must be a distribution over {n_states} states; it sums to {initial.sum():.9g}."
            )
        unseen = (
            np.zeros((n_objectives, n_states))
            if self.unseen_value is None
            else as_numbers("unseen_value", self.unseen_value)
        )
        if unseen.shape != (n_objectives, n_states) or not np.all(np.isfinite(unseen)):
            raise ParameterError(
                f"unseen_value must be finite and [{n_objectives}, {n_states}]; got shape {unseen.shape}."
            )
        fields = {
            "pair_state": pair_state,
            "pair_action": pair_action,
            "state_ptr": frozen(np.searchsorted(pair_state, np.arange(n_states + 1)), np.int64),
            "transition": _kernel_ready(transition),
            "reward": frozen(reward, np.float64),
            "discount": frozen(discount, np.float64),
            "initial": frozen(initial, np.float64),
            "unseen_value": frozen(unseen, np.float64),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def n_objectives(self) -> int:
        """The number d of objectives."""
        return int(self.reward.shape[0])

    @property
    def n_pairs(self) -> int:
        """The number P of stored pairs."""
        return int(self.pair_state.size)

    @cached_property
    def pair_index(self) -> Ints:
        """Index of every pair in a flattened [X, A] table, shape [P]."""
        return frozen(self.pair_state * self.n_actions + self.pair_action, np.int64)


def _checked_csr(given: Any) -> sparse.csr_array:
    """``given`` as CSR. SciPy does not check index arrays before it reads, so they are checked first."""
    from scipy import sparse

    form = getattr(given, "format", None) if sparse.issparse(given) else None
    if form == "coo":
        for axis, size in (("row", given.shape[0]), ("col", given.shape[1])):
            check_indices(f"transition.{axis}", getattr(given, axis), size)
    elif form in ("csr", "csc", "bsr"):
        try:
            given.check_format(full_check=True)
        except ValueError as error:
            raise ParameterError(f"transition is not a valid sparse matrix: {error}.") from error
    if form is None:
        given = as_numbers("transition", given)
        if given.ndim != 2:
            raise ParameterError(f"transition must be [pairs, states]; got shape {given.shape}.")
    return sparse.csr_array(given)


def _kernel_ready(matrix: sparse.csr_array) -> sparse.csr_array:
    """Sorted, summed, read-only CSR with one integer type for both index arrays, as the kernel and SciPy require."""
    matrix.sum_duplicates()
    index: type[np.signedinteger[Any]] = np.int32 if max(matrix.nnz, *matrix.shape) < 2**31 else np.int64
    matrix.indptr = frozen(matrix.indptr.astype(index, copy=False), index)
    matrix.indices = frozen(matrix.indices.astype(index, copy=False), index)
    matrix.data = frozen(matrix.data, np.float64)
    return matrix


def dense_mdp(
    transition: npt.ArrayLike,
    reward: npt.ArrayLike,
    *,
    discount: npt.ArrayLike,
    initial: npt.ArrayLike,
) -> MDP:
    """MDP with every pair stored, from dense tables.

    Args:
        transition: p(x'|x,a), shape [X, A, X].
        reward: r_k(x,a), shape [d, X, A].
        discount: γ_k, shape [d], or one number for all.
        initial: μ, shape [X].

    Examples:
        Two states, two actions: stay, or go to the other state, where a step pays 1.

        >>> from bettersafe.mdp import dense_mdp
        >>> stay_or_go = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
        >>> mdp = dense_mdp(stay_or_go, [[[0.0, 0.0], [1.0, 1.0]]], discount=0.9, initial=[1.0, 0.0])
        >>> bettersafe.expected_return(mdp, [[0.0, 1.0], [1.0, 0.0]]).round(3)
        array([9.])
    """
    from scipy import sparse

    table = as_numbers("transition", transition)
    if table.ndim != 3 or table.shape[0] != table.shape[2]:
        raise ParameterError(f"transition must have shape [X, A, X]; got {table.shape}.")
    n_states, n_actions, _ = table.shape
    rewards = as_numbers("reward", reward)
    if rewards.ndim != 3 or rewards.shape[1:] != (n_states, n_actions):
        raise ParameterError(f"reward must have shape [d, {n_states}, {n_actions}]; got {rewards.shape}.")
    return MDP(
        n_states=n_states,
        n_actions=n_actions,
        pair_state=np.repeat(np.arange(n_states), n_actions),
        pair_action=np.tile(np.arange(n_actions), n_states),
        transition=sparse.csr_array(table.reshape(n_states * n_actions, n_states)),
        reward=rewards.reshape(rewards.shape[0], -1),
        discount=as_numbers("discount", discount),
        initial=as_numbers("initial", initial),
    )


def dense_q(mdp: MDP, q: Floats, *, unseen_value: Floats | None = None) -> Floats:
    """Q [m, P] as a table [m, X, A]; pairs that are not stored get ``unseen_value`` [m, X], by default the MDP's."""
    value = mdp.unseen_value if unseen_value is None else unseen_value
    table = np.repeat(value[:, :, None], mdp.n_actions, axis=2)
    table[:, mdp.pair_state, mdp.pair_action] = q
    return table


def by_state(mdp: MDP, pair_values: Floats) -> Floats:
    """Sum of pair values over the pairs of every state, shape [X]."""
    return np.asarray(np.bincount(mdp.pair_state, weights=pair_values, minlength=mdp.n_states), dtype=np.float64)


def pair_weights(mdp: MDP, policy: Floats) -> tuple[Floats, Floats]:
    """π(a|x) of every stored pair, shape [P], and the probability of π on other pairs, shape [X]."""
    weight = policy.take(mdp.pair_index)
    return weight, np.clip(policy.sum(axis=1) - by_state(mdp, weight), 0.0, 1.0)


def policy_matrix(ptr: Ints, weight: Floats, transition: sparse.csr_array) -> sparse.csr_array:
    """P_π [X, X]: row x is Σ over the pairs of x of weight · p(·|pair)."""
    from scipy import sparse

    n_pairs = weight.size
    mix = sparse.csr_array((weight, np.arange(n_pairs), ptr), shape=(ptr.size - 1, n_pairs))
    return sparse.csr_array(mix @ transition)
