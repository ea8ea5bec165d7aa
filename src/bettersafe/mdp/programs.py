"""Per-state linear programs, solved for all states at once by one of two engines with equal answers.

    maximise    Σ_a π(a) Q(a)
    subject to  Σ_a e(a) |π(a) − π_b(a)| ≤ ε             the budget          (left out when ε = ∞)
                Σ_a (π(a) − π_b(a)) rows_k(a) ≥ 0        one row per objective
                π a distribution, π(a) = π_b(a) where e(a) = ∞               (unless ε = ∞)

with the entries of state x at ptr[x]:ptr[x+1]. Actions without an entry keep their probability: the total of a state's
entries is fixed. π_b is feasible, so in deviations δ = π − π_b = p − n (p ≥ 0, 0 ≤ n ≤ π_b) the origin is a feasible
vertex. Both engines solve for δ: in π, solvers reported feasible programs with ε = 0 as infeasible.
Because Σδ = 0, objective and rows may be shifted per state: both engines centre and scale them to [−1, 1].
A row can gain at most its reach, Σ_a π_b(a) (top − rows(a)), with all probability on its largest entry. If the reach is below
`SMALL_REACH` of the half-range, for example because of a large penalty on an action that is never played, the row is scaled by the
reach instead: otherwise, losing all of it would be within the tolerance. The row then reads Σ_a π(a) (top − rows(a)) ≤ reach; an
entry whose probability it holds below `FORBIDDEN` keeps its baseline, and the gap leaves it out.

Ties go to the policy nearest the baseline (least Σ|δ|), and a constant objective keeps the baseline to the bit.
Every answer has a duality gap: an upper bound on how much better any feasible row is.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bettersafe import _kernel
from bettersafe._system import workers
from bettersafe.errors import ParameterError, check_choice, check_epsilon, check_pointer
from bettersafe.mdp.choices import ENGINES, Engine, Resolved
from bettersafe.typing import Bools, Bytes, Floats, Ints, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator


ACCEPTED_GAP = 5e-9
"""Gap, as a share of the objective's half-range over the state's free actions, up to which a state counts as solved."""

ACCEPTED_LOSS = 1e-7
"""Violation of a scaled row up to which an answer of HiGHS is accepted (the native engine accepts 1e-9)."""

FORBIDDEN = 0.5 * ACCEPTED_GAP
"""Share of a state's free probability: an entry that a row holds below it is not moved, which costs at most the accepted gap."""

SMALL_REACH = 1e-4
"""Reach, as a share of a row's half-range, below which the row is scaled by its reach."""

THREADED_ENTRIES = 4_000
"""Entries below which one core is faster than two."""

HIGHS_BLOCK = 30_000
"""Size of a block program for HiGHS: large enough to amortise its set-up, small enough to be fast."""


@dataclass(frozen=True, kw_only=True)
class Programs:
    """Programs of all states, without their objective.

    Attributes:
        ptr: Entries of state x are ptr[x]:ptr[x+1], shape [X+1].
        baseline: π_b of every entry, shape [F].
        error: e of every entry, shape [F]; ``inf`` freezes it.
        rows: Advantages (or anything that differs from them by a constant per state), shape [d, F]; d may be 0.
        epsilon: ε ≥ 0; ``inf`` drops the budget and frees every entry.
    """

    ptr: Ints
    baseline: Floats
    error: Floats
    rows: Floats
    epsilon: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        for name, dtype in (
            ("ptr", np.int64),
            ("baseline", np.float64),
            ("error", np.float64),
            ("rows", np.float64),
        ):
            object.__setattr__(self, name, frozen(getattr(self, name), dtype))
        n = self.baseline.size
        if self.error.shape != (n,) or self.rows.ndim != 2 or self.rows.shape[1] != n:
            raise ParameterError(
                f"programs with {n} entries need error [{n}] and rows [d, {n}]; got {self.error.shape}, {self.rows.shape}."
            )
        check_pointer("ptr", self.ptr, n)
        if not (self.baseline.min(initial=0.0) >= 0.0 and self.baseline.max(initial=0.0) <= 1.0 + 1e-9):
            raise ParameterError("baseline probabilities must be in [0, 1].")
        if not self.error.min(initial=0.0) >= 0.0 or not np.isfinite(self.rows).all():
            raise ParameterError("errors must be ≥ 0 (inf freezes) and rows finite.")

    @property
    def n_states(self) -> int:
        """X."""
        return int(self.ptr.size - 1)

    @property
    def free(self) -> Bools:
        """Entries that may move, shape [F]."""
        if math.isinf(self.epsilon):
            return np.ones(self.error.shape, dtype=bool)
        return np.isfinite(self.error) if self.epsilon > 0.0 else self.error == 0.0


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """Final bases of an earlier solve of the same programs; the native engine starts from them and overwrites them."""

    basis: npt.NDArray[np.int32]
    at_upper: Bytes


@dataclass(frozen=True, kw_only=True)
class Solution:
    """Solution of all programs.

    Attributes:
        policy: Probability of every entry, shape [F].
        gap: Upper bound on the suboptimality of every state's objective, shape [X].
        solved: Whether the state was solved to tolerance; if not, it keeps the baseline. Shape [X].
        pivots: Number of simplex pivots (0 for HiGHS).
        warm: Warm start for the next solve.
    """

    policy: Floats
    gap: Floats
    solved: Bools
    pivots: int
    warm: WarmStart | None


def solve(
    programs: Programs,
    objective: Floats,
    *,
    engine: Engine = "auto",
    warm: WarmStart | None = None,
    threads: int | None = None,
) -> Solution:
    """Solve every state's program.

    Args:
        programs: Constraints of every state.
        objective: Q of every entry, shape [F].
        engine: "native" (C++), "highs" (SciPy's HiGHS) or "auto" (native if it was built).
        warm: ``warm`` of an earlier solution of the *same* programs; only the native engine uses it.
        threads: Number of threads; if None, all cores for large problems. The answer does not depend on it.
    """
    objective = np.ascontiguousarray(objective, dtype=np.float64)
    if objective.shape != programs.baseline.shape:
        raise ParameterError(f"objective must have shape {programs.baseline.shape}; got {objective.shape}.")
    if not np.isfinite(objective).all():
        raise ParameterError(
            "the objective is not finite: rewards, weights or discounts are too large or too small for doubles."
        )
    if warm is not None:
        fits = (
            warm.basis.shape == (programs.n_states, programs.rows.shape[0] + 2)
            and warm.at_upper.shape == objective.shape
        )
        if not fits or warm.basis.dtype != np.int32 or warm.at_upper.dtype != np.uint8:
            raise ParameterError("the warm start belongs to other programs; leave it out.")
    if resolve_engine(engine) == "native":
        return _solve_native(programs, objective, warm, threads)
    return _solve_highs(programs, objective)


def resolve_engine(engine: Engine) -> Resolved:
    """Engine to use; warns if "auto" falls back to HiGHS."""
    check_choice("engine", engine, ENGINES)
    if engine == "highs":
        return "highs"
    if _kernel.compiled is not None:
        return "native"
    if engine == "native":
        raise ParameterError(
            "the native kernel is not installed; use engine 'highs', or reinstall bettersafe with a C++ compiler."
        )
    warnings.warn(
        "bettersafe was installed without its native kernel (no C++ compiler was found). The engine 'highs' gives"
        " the same answers, but is slower.",
        RuntimeWarning,
        stacklevel=3,
    )
    return "highs"


def _solve_native(programs: Programs, objective: Floats, warm: WarmStart | None, threads: int | None) -> Solution:
    kernel = _kernel.compiled
    assert kernel is not None
    n_states, n_entries = programs.n_states, objective.size
    if warm is None:
        warm = WarmStart(
            basis=np.full((n_states, programs.rows.shape[0] + 2), -1, dtype=np.int32),
            at_upper=np.zeros(n_entries, dtype=np.uint8),
        )
    policy = np.empty(n_entries)
    gap = np.empty(n_states)
    status = np.empty(n_states, dtype=np.int8)
    n_threads = threads if threads is not None else (workers.cores() if n_entries >= THREADED_ENTRIES else 1)
    pivots = kernel.solve_programs(
        programs.ptr, programs.baseline, objective, programs.error, programs.rows, programs.epsilon,
        warm.basis, warm.at_upper, policy, gap, status, n_threads,
    )  # fmt: skip
    return Solution(policy=policy, gap=gap, solved=status == 0, pivots=int(pivots), warm=warm)


NUMERICAL_TROUBLE = 4
"""SciPy's status of a program that was neither solved nor found infeasible or unbounded, within the iteration limit."""


INFEASIBLE = 2
"""SciPy's status of a program without a feasible point."""


def highs(
    cost: Floats,
    *,
    rows: Any,
    limits: Floats | None,
    balance: Any,
    target: Floats,
    upper: Floats | None = None,
    method: str = "highs-ds",
    tol: float = 1e-10,
    presolve: bool = True,
    retry: bool = False,
) -> Any:
    """Minimise cost·x subject to rows x ≤ limits, balance x = target, 0 ≤ x ≤ upper, by SciPy's HiGHS to ``tol``.

    On very degenerate programs, rounding errors sometimes make HiGHS fail. With ``retry`` it then runs again with presolve toggled,
    and at last with a looser tolerance.
    """
    from scipy.optimize import linprog

    solver: Any = linprog  # its stubs list fewer matrix types than it accepts
    bounds = np.column_stack([np.zeros(cost.size), np.full(cost.size, np.inf) if upper is None else upper])
    ways = [(presolve, tol), (not presolve, tol), (presolve, 100.0 * tol), (not presolve, 100.0 * tol)]
    for simplified, within in ways if retry else ways[:1]:
        options = {"primal_feasibility_tolerance": within, "dual_feasibility_tolerance": within, "presolve": simplified}
        answer = solver(
            cost, A_ub=rows, b_ub=limits, A_eq=balance, b_eq=target, bounds=bounds, method=method, options=options
        )
        if answer.status != NUMERICAL_TROUBLE:
            break
    return answer


def _solve_highs(programs: Programs, objective: Floats) -> Solution:
    policy = programs.baseline.copy()
    gap = np.zeros(programs.n_states)
    solved = np.ones(programs.n_states, dtype=bool)
    for block in _blocks(programs, objective):
        answers = _highs_block(block)
        if answers is None:  # one hard state must not fail the whole block: solve one by one
            answers = [(_highs_block([state]) or [None])[0] for state in block]
        for state, answer in zip(block, answers, strict=True):
            x = state.index
            if answer is None:
                solved[x], gap[x] = False, math.inf
                continue
            delta, relative_gap = answer
            gap[x] = relative_gap * state.scale
            if relative_gap > 1e-7:  # about the accuracy of HiGHS
                solved[x] = False
            elif float(state.cost @ delta) > 1e-12:
                moved = np.where(np.abs(delta) > 1e-12, np.maximum(state.base + delta, 0.0), state.base)
                moved[(moved < 1e-9) & (state.base > 1e-9)] = 0.0  # HiGHS stops about this far from the bounds
                largest = int(np.argmax(np.where(moved != state.base, moved, -1.0)))
                moved[largest] += state.base.sum() - moved.sum()
                if np.all(state.rows @ (moved - state.base) >= -ACCEPTED_LOSS):
                    policy[state.entries] = moved
                else:
                    solved[x], gap[x] = False, math.inf
    return Solution(policy=policy, gap=gap, solved=solved, pivots=0, warm=None)


@dataclass(frozen=True, kw_only=True)
class _ScaledState:
    index: int
    entries: Ints  # positions of the free entries, [n]
    base: Floats  # [n]
    cost: Floats  # centred, half-range 1, [n]
    scale: float  # half-range of the objective
    rows: Floats  # centred, half-range 1, or scaled by the reach, [m, n]
    error: Floats | None  # scaled to at most 1, or None if the budget can't bind
    limit: float


def _centred(values: Floats) -> tuple[Floats, float]:
    low, high = float(values.min()), float(values.max())
    half = 0.5 * high - 0.5 * low
    return ((values - (0.5 * low + 0.5 * high)) / half if half > 0.0 else np.zeros_like(values)), half


def _reach(base: Floats, row: Floats) -> tuple[Floats, float]:
    """Half of what every entry [n] lacks to the largest of a row (all of it may overflow), and half of the row's reach."""
    missing = 0.5 * row.max() - 0.5 * row
    return missing, float(base @ missing)


def _scaled_row(base: Floats, row: Floats) -> Floats:
    """A row as the program needs it, shape [n]; zero if it is constant."""
    centred, half = _centred(row)
    missing, reach = _reach(base, row)
    scale = reach / base.sum()
    return -missing / scale if 1e-300 < scale < 0.5 * SMALL_REACH * half else centred


def _allowed(base: Floats, rows: Floats) -> Ints:
    """Indices of the entries that no row of ``rows`` [d, n] forbids; fewer entries lower the reach of a row."""
    allowed = np.arange(base.size)
    for _ in range(base.size):
        before = allowed.size
        for row in rows:
            if allowed.size < 2:
                return allowed
            own = base[allowed]
            missing, reach = _reach(own, row[allowed])
            allowed = allowed[~((missing > 0.0) & (reach <= FORBIDDEN * own.sum() * missing))]
        if allowed.size == before:
            break
    return allowed


def _centred_rows(base: Floats, rows: Floats, starts: Ints, sizes: Ints) -> tuple[Floats, Bools, Bools]:
    """Rows [d, F] of non-empty states, centred and with half-range 1, all states at once.

    Also, [d, S], which rows are not constant in a state, and, [S], the states in which each of these can surely gain more than
    `SMALL_REACH`. Most can: they forbid no entry and need no other scale.
    """
    low, high = np.minimum.reduceat(rows, starts, axis=1), np.maximum.reduceat(rows, starts, axis=1)
    half = 0.5 * high - 0.5 * low
    varies = half > 0.0
    reach = np.add.reduceat(base * (0.5 * np.repeat(high, sizes, axis=1) - 0.5 * rows), starts, axis=1)
    far = (reach > SMALL_REACH * np.add.reduceat(base, starts) * half) | ~varies
    centred = rows - np.repeat(0.5 * low + 0.5 * high, sizes, axis=1)
    centred /= np.repeat(np.where(varies, half, 1.0), sizes, axis=1)
    return centred, varies, np.logical_and.reduce(far)


def _blocks(programs: Programs, objective: Floats) -> Iterator[list[_ScaledState]]:
    free = np.flatnonzero(programs.free)
    starts = np.searchsorted(free, programs.ptr)
    states = np.flatnonzero(np.diff(starts))
    if not states.size:
        return
    begins, ends = starts[states], starts[states + 1]
    centred, varies, far = _centred_rows(programs.baseline[free], programs.rows[:, free], begins, ends - begins)
    block: list[_ScaledState] = []
    size = 0
    for i, (x, begin, end) in enumerate(zip(states.tolist(), begins.tolist(), ends.tolist(), strict=True)):
        entries = free[begin:end]
        base = programs.baseline[entries]
        if far[i]:
            rows = centred[varies[:, i], begin:end]
        else:
            entries = entries[_allowed(base, programs.rows[:, entries])]
            base = programs.baseline[entries]
        if entries.size < 2 or not base.sum() > 0.0:
            continue
        if not far[i]:
            rows = np.array([_scaled_row(base, row) for row in programs.rows[:, entries]])
            rows = rows[rows.any(axis=1)]
        cost, scale = _centred(objective[entries])
        if scale == 0.0:
            continue
        error: Floats | None = programs.error[entries]
        limit = math.inf
        largest = float(error.max()) if math.isfinite(programs.epsilon) and error is not None else 0.0
        if 2.0 * largest * base.sum() > programs.epsilon > 0.0 and error is not None:
            error, limit = error / largest, programs.epsilon / largest
        else:
            error = None
        block.append(
            _ScaledState(
                index=x,
                entries=entries,
                base=base,
                cost=cost,
                scale=scale,
                rows=rows,
                error=error,
                limit=limit,
            )
        )
        size += entries.size * (1 + len(rows))
        if size >= HIGHS_BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _highs_block(states: list[_ScaledState]) -> list[tuple[Floats, float] | None] | None:
    """δ and relative gap of every state of the block; None if HiGHS does not report an optimum."""

    def solve_block(cost: Floats, floors: Floats | None) -> Any:
        rows, limits = [], []
        for i, state in enumerate(states):
            parts = [np.hstack([-state.rows, state.rows])]
            bounds = [np.zeros(state.rows.shape[0])]
            if state.error is not None:
                parts.append(np.concatenate([state.error, state.error])[None, :])
                bounds.append(np.array([state.limit]))
            if floors is not None:
                parts.append(np.concatenate([-state.cost, state.cost])[None, :])
                bounds.append(np.array([-floors[i]]))
            rows.append(np.vstack(parts))
            limits.append(np.concatenate(bounds))
        signs = [np.repeat([[1.0, -1.0]], s.base.size, axis=1) for s in states]
        return highs(
            -cost,
            rows=_block_diagonal(rows),
            limits=np.concatenate(limits),
            balance=_block_diagonal(signs),
            target=np.zeros(len(states)),
            upper=np.concatenate([np.concatenate([np.full(s.base.size, s.base.sum()), s.base]) for s in states]),
        )

    starts = np.cumsum([0, *(2 * s.base.size for s in states)])

    def deviations(x: Floats) -> list[Floats]:
        parts = [x[a:b] for a, b in pairwise(starts)]
        return [part[: part.size // 2] - part[part.size // 2 :] for part in parts]

    best = solve_block(np.concatenate([np.concatenate([s.cost, -s.cost]) for s in states]), None)
    if best.status != 0:
        return None
    deltas = deviations(best.x)
    values = np.array([state.cost @ delta for state, delta in zip(states, deltas, strict=True)])
    # Second pass: the policy nearest the baseline among those optimal to 1e-10.
    nearest = solve_block(-np.ones(int(starts[-1])), values - 1e-10)
    if nearest.status == 0:
        deltas = deviations(nearest.x)
    answers: list[tuple[Floats, float] | None] = []
    row = 0
    for i, (state, delta) in enumerate(zip(states, deltas, strict=True)):
        m = state.rows.shape[0]
        duals = np.maximum(-best.ineqlin.marginals[row : row + m + (state.error is not None)], 0.0)
        row += m + (state.error is not None)
        answers.append((delta, _duality_gap(state, delta, -float(best.eqlin.marginals[i]), duals)))
    return answers


def _block_diagonal(blocks: list[Floats]) -> Any:
    """Block-diagonal sparse matrix of dense blocks (SciPy's function is ten times slower on hundreds of small blocks)."""
    from scipy import sparse

    heights, widths = np.array([block.shape for block in blocks]).T
    top, left = np.cumsum(heights) - heights, np.cumsum(widths) - widths
    row = np.concatenate([np.repeat(t + np.arange(h), w) for t, h, w in zip(top, heights, widths, strict=True)])
    column = np.concatenate([np.tile(x + np.arange(w), h) for x, h, w in zip(left, heights, widths, strict=True)])
    values = np.concatenate([block.ravel() for block in blocks])
    return sparse.csc_array((values, (row, column)), shape=(heights.sum(), widths.sum()))


def _duality_gap(state: _ScaledState, delta: Floats, balance: float, duals: Floats) -> float:
    """Gap by weak duality, in units of the objective's half-range; ``duals`` ≥ 0 of the rows, and last of the budget."""
    m = state.rows.shape[0]
    reduced = state.cost - balance + duals[:m] @ state.rows
    both = -duals[m] * state.error if state.error is not None else np.zeros_like(reduced)
    bound = duals[m] * state.limit if state.error is not None else 0.0
    bound += state.base.sum() * max(float(np.max(both + reduced)), 0.0)
    bound += float(state.base @ np.maximum(both - reduced, 0.0))
    return float(max(bound - state.cost @ delta, 0.0))
