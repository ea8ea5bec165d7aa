"""Policies: [X, A] arrays whose rows are distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe.errors import PolicyError, as_numbers
from bettersafe.typing import Floats, frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDING = 1e-9
"""Rows whose sum differs from 1 by at most this are kept to the bit; others, within the tolerance, are normalised."""

ROUNDED = 1e-6
"""Largest error of a probability that was written with six decimals, rounded or cut off; as float32 it is at most 6e-8."""


def sum_tolerance(n: int) -> float:
    """How far the sum of n probabilities may be from 1 if each is rounded: n `ROUNDED`, and the rounding of the sum."""
    return n * ROUNDED + ROUNDING


def check_policy(
    policy: npt.ArrayLike,
    n_states: int,
    n_actions: int,
    *,
    name: str = "policy",
    state_labels: Sequence[object] | npt.NDArray[np.generic] | None = None,
    tol: float | None = None,
) -> Floats:
    """``policy`` as a read-only [X, A] array. Raises PolicyError, naming the first state, if a row is not a distribution.

    A sum may be off by ``tol``, by default as far as rounded probabilities are (`sum_tolerance`); the row is then normalised.
    """
    table = policy_table(policy, n_states, n_actions, name=name)
    tol = sum_tolerance(n_actions) if tol is None else tol

    def state(x: int) -> object:
        return x if state_labels is None else state_labels[x]

    lowest, highest = table.min(initial=0.0), table.max(initial=0.0)
    if not (lowest >= -ROUNDED and highest <= 1.0 + ROUNDED):
        x = int(np.argmin(np.all((table >= -ROUNDED) & (table <= 1.0 + ROUNDED), axis=1)))
        raise PolicyError(f"the {name} has a probability outside [0, 1] in state {state(x)!s}: {table[x].tolist()}.")
    totals = table.sum(axis=1)
    missed = np.abs(totals - 1.0)
    most = missed.max(initial=0.0)
    if not most <= tol:
        bad = np.flatnonzero(missed > tol)
        x = int(bad[0])
        raise PolicyError(
            f"the {name}'s probabilities in state {state(x)!s} sum to {totals[x]:.9g}, not 1"
            + (f" (and {bad.size - 1} more states like it)." if bad.size > 1 else ".")
        )
    if most > ROUNDING or lowest < 0.0:
        table = table.copy()
        rounded = np.flatnonzero((missed > ROUNDING) | (table.min(axis=1, initial=0.0) < 0.0))
        rows = np.clip(table[rounded], 0.0, 1.0)
        table[rounded] = rows / rows.sum(axis=1, keepdims=True)
    return frozen(table, np.float64)


def rounding_note(what: str, totals: Floats) -> tuple[str, ...]:
    """Note that the probabilities of ``what`` were normalised, from their sums by state [X]; none if they all sum to 1."""
    missed = np.abs(totals - 1.0)
    n = int(np.count_nonzero(missed > ROUNDING))
    if not n:
        return ()
    return (
        f"the probabilities {what} are rounded: their sum differs from 1 by up to {missed.max():.1g}, in {n:,} of"
        f" {totals.size:,} states. They were scaled to sum to 1",
    )


def policy_table(policy: npt.ArrayLike, n_states: int, n_actions: int, *, name: str = "policy") -> Floats:
    """``policy`` as an [X, A] array; its rows are not checked."""
    table = as_numbers(f"the {name}", policy)
    if table.shape != (n_states, n_actions):
        raise PolicyError(f"the {name} must have shape [{n_states}, {n_actions}] (states, actions); got {table.shape}.")
    return table


def distributions(policy: npt.ArrayLike, n_states: int, n_actions: int, *, name: str = "policy") -> Floats:
    """``policy`` as an [X, A] array whose rows are distributions, up to rounding; a cheap `check_policy` that changes nothing."""
    table = policy_table(policy, n_states, n_actions, name=name)
    missed = np.abs(table.sum(axis=1) - 1.0)
    if not (missed.max(initial=0.0) <= sum_tolerance(n_actions) and table.min(initial=0.0) >= -ROUNDED):
        check_policy(table, n_states, n_actions, name=name)
    return table


def policy_tables(policies: npt.ArrayLike, n_states: int, n_actions: int) -> Floats:
    """``policies`` as a [C, X, A] array; their rows are not checked."""
    tables = as_numbers("policies", policies)
    if tables.ndim != 3 or tables.shape[1:] != (n_states, n_actions):
        raise PolicyError(
            f"policies must have shape [C, {n_states}, {n_actions}] (policies, states, actions); got {tables.shape}."
        )
    return tables
