"""Best mixture of policies with known gains: a small dense linear program, solved by one of two engines with equal optima.

    max Σ_i w_i value_i   s.t.  Σ_i w_i gain_ik ≥ floor_k,     Σ_i w_i = 1,  w ≥ 0
    max t                 s.t.  Σ_i w_i gain_ik ≥ t floor_k,   Σ_i w_i = 1,  w ≥ 0,  t ≤ 1        (reach)

Column generation solves it once for every new policy. The C++ kernel starts from the last basis and needs microseconds; SciPy's HiGHS
takes milliseconds, most of them to set the program up. HiGHS is used without the kernel, and if the kernel finds no optimum.
Every row is scaled by its size, and rows that every policy satisfies are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe import _kernel
from bettersafe.errors import NoSolutionError, UnsolvedError
from bettersafe.mdp.programs import INFEASIBLE, highs

if TYPE_CHECKING:
    from bettersafe.mdp.choices import Engine, Resolved
    from bettersafe.typing import Floats, Ints

NO_VARIABLE = np.iinfo(np.int64).min


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Optimal mixture.

    Attributes:
        weights: w, shape [n].
        multipliers: ν ≥ 0 of the floors, shape [d].
        level: A policy improves the mixture if its value + ν·gain (reach: its ν·gain) is larger.
        objective: Σ_i w_i value_i.
        share: t; 1 unless ``reach``.
        engine: Engine that found it.
    """

    weights: Floats
    multipliers: Floats
    level: float
    objective: float
    share: float
    engine: Resolved


def no_basis(n_rows: int) -> Ints:
    """Basis for the first call with d = ``n_rows`` floors."""
    return np.full(n_rows + 1, NO_VARIABLE, dtype=np.int64)


def best_mixture(
    gains: Floats, value: Floats, floors: Floats, *, reach: bool, basis: Ints | None = None, engine: Engine = "auto"
) -> Mixture:
    """Best mixture of n policies, or (reach) the one that reaches the largest share of the floors.

    Args:
        gains: Gains of the policies, shape [n, d]; those of the first are 0.
        value: Objective, shape [n].
        floors: Least gains, shape [d]; not all of them may be within reach unless ``reach``.
        reach: Which of the two programs to solve.
        basis: Basis of the last call, shape [d+1], to start from; it is overwritten. Policies may have been added since.
        engine: "native", "highs" or "auto".

    Raises:
        NoSolutionError: No mixture reaches the floors.
        UnsolvedError: The solver did not reach its tolerance.
    """
    kernel = _kernel.compiled
    if kernel is None or engine == "highs":
        return _by_highs(gains, value, floors, reach=reach)
    weights, multipliers = np.empty(gains.shape[0]), np.empty(gains.shape[1])
    gains, value, floors = (np.ascontiguousarray(array, dtype=np.float64) for array in (gains, value, floors))
    start = no_basis(floors.size) if basis is None else basis
    solved, level, share = kernel.solve_mixture(gains, value, floors, reach, start, weights, multipliers)
    if not solved:
        return _by_highs(gains, value, floors, reach=reach)
    return Mixture(
        weights=weights,
        multipliers=multipliers,
        level=level,
        objective=float(weights @ value),
        share=share,
        engine="native",
    )


def _by_highs(gains: Floats, value: Floats, floors: Floats, *, reach: bool) -> Mixture:
    n, d = gains.shape
    multipliers = np.zeros(d)
    needed = np.flatnonzero(np.any(gains < floors, axis=0))
    if needed.size == 0:
        top = int(np.argmax(value))
        best = float(value[top])
        return Mixture(
            weights=np.eye(n)[top], multipliers=multipliers, level=best, objective=best, share=1.0, engine="highs"
        )
    size = np.maximum(np.max(np.abs(gains[:, needed]), axis=0), floors[needed])
    goal = floors[needed] / size
    scale = float(np.max(np.abs(value))) or 1.0
    rows = -(gains[:, needed] / size).T
    answer = highs(
        np.append(np.zeros(n), -1.0) if reach else -value / scale,
        rows=np.column_stack([rows, goal]) if reach else rows,
        limits=np.zeros(needed.size) if reach else -goal,
        balance=np.append(np.ones(n), 0.0)[None, :] if reach else np.ones((1, n)),
        target=np.ones(1),
        upper=np.ones(n + reach),
        presolve=False,  # it takes half of the time and does not help small dense programs
        retry=True,
    )
    if answer.status == INFEASIBLE:
        raise NoSolutionError("no mixture of the policies reaches the floors.")
    if answer.status != 0:
        raise UnsolvedError(f"the mixture of policies was not solved: {answer.message}")
    unit = 1.0 if reach else scale
    multipliers[needed] = np.maximum(-answer.ineqlin.marginals, 0.0) * unit / size
    weights = np.maximum(answer.x[:n], 0.0)
    weights /= weights.sum()
    return Mixture(
        weights=weights,
        multipliers=multipliers,
        level=float(np.max(gains @ multipliers + (0.0 if reach else value))),
        objective=float(weights @ value),
        share=float(answer.x[n]) if reach else 1.0,
        engine="highs",
    )
