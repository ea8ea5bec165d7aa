"""Returns up to a step: J_k = E Σ_{t<H} γ_k^t r_k,t, with a horizon of H steps.

    v_k,h = r_{π,k} + γ_k P_π v_k,h−1,   v_k,0 = 0        values with h steps to go, for a policy that is the same in every step
    J_k = Σ_x μ(x) v_k,H(x)
    Σ_{t<H} γ^t = (1 − γ^H) / (1 − γ)                     discounted steps; H at discount 1

A discounted return is a return up to a random step: with γ' = 1 − 1/Σ_{t<H} γ^t, the process stops after each step with probability
1 − γ', after as many (discounted) steps on average as with the horizon. Methods optimise with γ' (`geometric_discount`), because
the best policy for a fixed horizon depends on the steps to go. For H = 1 and without a limit the two are equal.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from bettersafe.errors import MOST_WHOLE, ParameterError, WrongTypeError, shown
from bettersafe.mdp.mdp import MDP, by_state, pair_weights, policy_matrix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bettersafe.typing import Floats

T = TypeVar("T")

SETTLED = 1e-14
"""Share of a value that all remaining steps together can change, below which the recursion stops."""


def check_horizon(horizon: object) -> None:
    """Raise an error unless ``horizon`` is None or a number of steps, at least 1."""
    if horizon is None:
        return
    if isinstance(horizon, bool) or not isinstance(horizon, int | np.integer):
        raise WrongTypeError(f"horizon must be a whole number of steps, or None for no limit; got {shown(horizon)}.")
    if not 1 <= horizon < MOST_WHOLE:
        raise ParameterError(
            f"horizon must be a number of steps, at least 1; got {shown(int(horizon))}.", setting="horizon"
        )


def discounted_steps(discount: Floats, horizon: int | None = None) -> Floats:
    """Σ_{t<H} γ_k^t, shape [d]; without a horizon 1/(1 − γ_k), which is infinite at discount 1."""
    gamma = np.asarray(discount, dtype=np.float64)
    with np.errstate(divide="ignore"):  # ln 0 = −inf and 1/0 = inf are intended
        if horizon is None:
            return np.asarray(1.0 / (1.0 - gamma))
        gone = -np.expm1(horizon * np.log(gamma))  # 1 − γ^H
    return np.asarray(np.where(gamma < 1.0, gone / np.where(gamma < 1.0, 1.0 - gamma, 1.0), float(horizon)))


def geometric_discount(discount: Floats, horizon: int) -> Floats:
    """γ'_k = 1 − 1/Σ_{t<H} γ_k^t, shape [d]: the discount without a horizon that has the same discounted steps."""
    return np.asarray(1.0 - 1.0 / discounted_steps(discount, horizon))


def values_to_go(
    mdp: MDP,
    policy: Floats,
    horizon: int,
    *,
    discount: Floats | None = None,
    unseen: Iterable[Floats] | None = None,
) -> Iterator[tuple[Floats, Floats]]:
    """v_k,h of ``policy`` [X, A], and the value of a pair that is not stored, for h = 1, …, H steps to go, each of shape [d, X].

    It ends before H if more steps change nothing: then the last values are also those of all longer horizons up to H (`lasting`).

    Args:
        mdp: The MDP.
        policy: π(a|x), the same in every step.
        horizon: H.
        discount: γ_k, shape [d]; the MDP's if None.
        unseen: Value of a pair that is not stored, with 1, …, H steps to go, each of shape [d, X]; it may end early too, and its
            change must not grow from step to step. The MDP's ``unseen_value`` if None.
    """
    gamma = (mdp.discount if discount is None else discount)[:, None]
    weight, unseen_mass = pair_weights(mdp, policy)
    matrix = policy_matrix(mdp.state_ptr, weight, mdp.transition)
    paid = np.array([by_state(mdp, weight * r) for r in mdp.reward])
    v = np.zeros((mdp.n_objectives, mdp.n_states))
    otherwise = mdp.unseen_value if unseen is None else np.zeros_like(v)
    for left, worth in zip(
        range(horizon, 0, -1), repeat(otherwise) if unseen is None else lasting(unseen), strict=False
    ):
        before, v = v, paid + unseen_mass * worth + gamma * (matrix @ v.T).T
        change, size = _largest(v - before), _largest(v)
        if unseen is not None:
            change, size, otherwise = (
                np.maximum(change, _largest(worth - otherwise)),
                np.maximum(size, _largest(worth)),
                worth,
            )
        yield v, worth
        # the change does not grow from step to step, as rows of P_π, with the mass of unseen pairs, sum to at most 1
        if np.all(discounted_steps(gamma[:, 0], left) * change <= SETTLED * size):
            return


def _largest(values: Floats) -> Floats:
    """Largest absolute value by objective, shape [d]."""
    return np.asarray(np.max(np.abs(values), axis=1, initial=0.0))


def lasting(values: Iterable[T]) -> Iterator[T]:
    """The values, and then the last one again and again."""
    for value in values:
        yield value
    yield from repeat(value)


def horizon_values(mdp: MDP, policy: Floats, horizon: int) -> Floats:
    """v_k,H of ``policy`` [X, A], shape [d, X]."""
    return deque(values_to_go(mdp, policy, horizon), maxlen=1).pop()[0]
