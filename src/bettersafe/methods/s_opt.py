"""Improve on a baseline in the estimated model: S-OPT (MO-SPIBB), and its relatives without some of the rows.

Policy iteration over one program per state (`bettersafe.mdp.programs`). With Q_λ = Σ_k λ_k q_k^π,

    π(·|x) ← argmax Σ_a π(a|x) Q_λ(x,a)
             s.t.  Σ_a e(x,a)|π(a|x) − π_b(a|x)| ≤ ε           the budget
                   Σ_a π(a|x) Adv_k^{π_b}(x,a) ≥ 0 for all k    no objective loses, in any state

    s_opt            both rows
    soft_spibb       the first alone: Soft-SPIBB on the weighted reward
    adv_linearized   ε = ∞: the second alone
    linearized       neither: plain policy iteration on the weighted reward

The feasible set stays the same from round to round and is a product over states, so with equal discounts this is
exact policy iteration: J_λ never falls, it ends at the optimum over the set, and a larger ε never lowers J_λ. With
different discounts that argument fails: the best policy met is kept, the search stops when J_λ no longer rises, and the
result, though safe in the model, need not be the best one; then a larger ε can, rarely, end a little lower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe.errors import ParameterError, check_epsilon
from bettersafe.mdp.mdp import MDP, by_state
from bettersafe.mdp.policy import check_policy
from bettersafe.mdp.programs import Programs, WarmStart, resolve_engine, solve
from bettersafe.mdp.values import AIM, Values, solve_weights
from bettersafe.methods.result import Improvement, check_preference, improvement
from bettersafe.typing import Event, Floats, Ints, Progress, frozen

if TYPE_CHECKING:
    from bettersafe.mdp.choices import Engine
    from bettersafe.model import Model


FIRST_TOL = 1e-8
"""Backward error that the second round's evaluation aims at."""


def s_opt(
    model: Model,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    epsilon: float,
    engine: Engine = "auto",
    max_rounds: int = 100,
    progress: Progress | None = None,
) -> Improvement:
    """S-OPT (MO-SPIBB): the best policy for λ that stays within the budget and loses on no objective in any state.

    Args:
        model: The estimated model.
        baseline: π_b, shape [X, A].
        preference: λ ≥ 0, shape [d].
        epsilon: Deviation budget ε; 0 returns the baseline, inf is `adv_linearized`.
        engine: "auto", "native" or "highs".
        max_rounds: Cap on rounds of policy iteration (the published study used 10).
        progress: Called after every round.
    """
    check_epsilon(epsilon)
    return _improve("s-opt", model, baseline, preference, epsilon, True, engine, max_rounds, progress)


def soft_spibb(
    model: Model,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    epsilon: float,
    engine: Engine = "auto",
    max_rounds: int = 100,
    progress: Progress | None = None,
) -> Improvement:
    """Soft-SPIBB on the one reward r_λ: the best policy for λ within the budget, whatever it costs single objectives.

    J_λ never falls, but a large gain on one objective may pay for a loss on another (the paper's Appendix A): that is
    what the advantage rows of `s_opt` are there for.

    Args:
        model: The estimated model.
        baseline: π_b, shape [X, A].
        preference: λ ≥ 0, shape [d].
        epsilon: Deviation budget ε; 0 returns the baseline, inf is `linearized`.
        engine: "auto", "native" or "highs".
        max_rounds: Cap on rounds of policy iteration.
        progress: Called after every round.
    """
    check_epsilon(epsilon)
    return _improve("soft-spibb", model, baseline, preference, epsilon, False, engine, max_rounds, progress)


def adv_linearized(
    model: Model,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    engine: Engine = "auto",
    max_rounds: int = 100,
    progress: Progress | None = None,
) -> Improvement:
    """The best policy for λ that loses on no objective in any state of the estimated model; no budget."""
    return _improve("adv-linearized", model, baseline, preference, math.inf, True, engine, max_rounds, progress)


def linearized(
    model: Model,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    engine: Engine = "auto",
    max_rounds: int = 100,
    progress: Progress | None = None,
) -> Improvement:
    """The best policy for λ in the estimated model, with no care for the single objectives."""
    return _improve("linearized", model, baseline, preference, math.inf, False, engine, max_rounds, progress)


def _improve(
    method: str,
    model: Model,
    baseline: npt.ArrayLike,
    preference: npt.ArrayLike,
    epsilon: float,
    constrained: bool,
    engine: Engine,
    max_rounds: int,
    progress: Progress | None,
) -> Improvement:
    mdp = model.mdp
    base = check_policy(baseline, mdp.n_states, mdp.n_actions, name="baseline", state_labels=model.state_labels)
    weights = check_preference(preference, mdp.n_objectives)
    if max_rounds < 1:
        raise ParameterError(f"max_rounds must be at least 1; got {max_rounds}.")
    search = iterate(
        mdp,
        base,
        model.error,
        weights,
        epsilon,
        constrained=constrained,
        engine=engine,
        max_rounds=max_rounds,
        progress=progress,
    )
    return improvement(
        method,
        model,
        search.policy,
        base,
        preference=weights,
        epsilon=epsilon,
        baseline_v=search.baseline_v,
        rounds=search.rounds,
        converged=search.converged,
        gap=search.gap,
        kept=search.kept,
        engine=search.engine,
        scalar_v=search.scalar_v,
        scalar_known=search.scalar_known,
    )


@dataclass(frozen=True, kw_only=True)
class Search:
    """Where policy iteration ended."""

    policy: Floats
    baseline_v: Floats
    rounds: int
    converged: bool
    gap: float
    kept: Ints
    engine: str
    scalar_v: Floats | None  # v_λ of the last policy that was looked at, shape [X]; None where discounts differ
    scalar_known: bool  # that policy is the one where it ended


def iterate(
    mdp: MDP,
    baseline: Floats,
    error: Floats,
    preference: Floats,
    epsilon: float,
    *,
    constrained: bool,
    engine: Engine = "auto",
    max_rounds: int = 100,
    progress: Progress | None = None,
    baseline_values: Values | None = None,
    start: Floats | None = None,
) -> Search:
    """Policy iteration with one program per state; the shared engine of this module's verbs.

    Args:
        mdp: The (estimated) MDP.
        baseline: π_b, shape [X, A].
        error: e of every pair, shape [P].
        preference: λ, shape [d].
        epsilon: ε; inf frees every action, tried or not.
        constrained: Whether to keep the advantage rows.
        engine: Engine of the programs.
        max_rounds: Cap on rounds.
        progress: Called after every round.
        baseline_values: Values of π_b, where they are known already.
        start: A policy [X, A] of the feasible set to begin from; π_b if left out. With equal discounts it saves rounds
            and never changes the return.
    """
    engine_name = resolve_engine(engine)
    entry_state, entry_index, ptr, entry_error, pair_entry = mdp.pair_state, mdp.pair_index, mdp.state_ptr, error, None
    if math.isinf(epsilon) and mdp.n_pairs < mdp.n_states * mdp.n_actions:
        entry_index = free_entries(mdp, baseline, start)
        entry_state = entry_index // mdp.n_actions
        ptr = np.searchsorted(entry_state, np.arange(mdp.n_states + 1))
        entry_error = np.zeros(entry_index.size)
        pair_entry = np.searchsorted(entry_index, mdp.pair_index)

    def advantages(values: Values) -> Floats:
        """Q − v at the entries, shape [m, F]."""
        table = np.empty((values.q.shape[0], entry_index.size))
        for k, row in enumerate(table):  # one at a time: temporaries of one
            if pair_entry is None:
                np.subtract(values.q[k], values.v[k].take(entry_state), out=row)
            else:
                (values.unseen_value[k] - values.v[k]).take(entry_state, out=row)
                row[pair_entry] = values.q[k] - values.v[k].take(mdp.pair_state)
        return table

    def evaluate(entries: Floats, guess: Floats, tol: float) -> Values:
        """Values of the policy that plays ``entries`` [F], of r_λ where that is one reward."""
        weight = entries if pair_entry is None else entries[pair_entry]
        mass = elsewhere if pair_entry is None else np.clip(by_entry_state(entries) - by_state(mdp, weight), 0.0, 1.0)
        scalar = preference if equal_discounts else None
        return solve_weights(mdp, weight, mass, preference=scalar, guess=guess, tol=tol)

    def by_entry_state(values: Floats) -> Floats:
        return np.asarray(np.bincount(entry_state, weights=values, minlength=mdp.n_states), dtype=np.float64)

    base_entries = baseline.take(entry_index)
    base_weight = base_entries if pair_entry is None else base_entries[pair_entry]
    # what the baseline plays of pairs that are not stored: it stays there unless they have entries
    elsewhere = np.clip(baseline.sum(axis=1) - by_state(mdp, base_weight), 0.0, 1.0)
    base = solve_weights(mdp, base_weight, elsewhere) if baseline_values is None else baseline_values
    programs = Programs(
        ptr=ptr,
        baseline=base_entries,
        error=entry_error,
        rows=cleaned_rows(mdp, advantages(base), base.error) if constrained else np.empty((0, entry_index.size)),
        epsilon=epsilon,
    )

    # With equal discounts there is one reward to evaluate, r_λ; otherwise d of them, mixed afterwards.
    equal_discounts = bool(np.all(mdp.discount == mdp.discount[0]))
    mix = np.ones(1) if equal_discounts else preference
    values, baseline_v = base, base.v
    if equal_discounts:
        values = Values(
            v=(preference @ base.v)[None, :],
            q=(preference @ base.q)[None, :],
            unseen_value=(preference @ mdp.unseen_value)[None, :],
            error=np.array([preference @ base.error]),
        )
    del base  # its q is as large as the rows
    current = best = base_entries if start is None else start.take(entry_index)
    best_return = -math.inf
    tol = AIM
    warm: WarmStart | None = None
    converged = False
    for rounds in range(1, max_rounds + 1):
        if rounds > 1 or start is not None:
            values = evaluate(current, values.v, tol)
        objective = mix @ advantages(values)
        error_of_objective = float(mix @ values.error)
        grid = _quantise(objective, error_of_objective)
        solution = solve(programs, objective, engine=engine_name, warm=warm)
        warm = solution.warm
        answer = solution.policy
        if not solution.solved.all():  # what could not be solved keeps the row it has, which is feasible
            answer = np.where(solution.solved[entry_state], answer, current)
        gain = float(np.max(by_entry_state((answer - current) * objective), initial=0.0))
        scalar_return = float(mix @ values.v @ mdp.initial)
        if progress is not None:
            progress(Event(done=rounds, unit="rounds", gain=gain, scalar_return=scalar_return))
        if not equal_discounts and scalar_return <= best_return + error_of_objective:
            converged = True  # it no longer rises: the best one met is kept
            break
        settled = gain <= grid
        if settled and tol > AIM:
            tol = AIM  # the same policy once more, looked at closely
            continue
        best, best_return = current, scalar_return
        stayed = np.array_equal(answer, current)
        current = answer
        if settled:
            converged = True
            best = current
            break
        if equal_discounts:
            best = current
            # the second round, when the policy still moves a lot, need not be looked at closely
            tol = FIRST_TOL if rounds == 1 else AIM
    policy = baseline.copy()
    policy.put(entry_index, best)
    return Search(
        policy=frozen(policy, np.float64),
        baseline_v=baseline_v,
        rounds=rounds,
        converged=converged,
        gap=float(np.max(solution.gap[solution.solved], initial=0.0)),
        kept=np.flatnonzero(~solution.solved),
        engine=engine_name,
        scalar_v=values.v[0] if equal_discounts else None,
        scalar_known=equal_discounts and converged and stayed,
    )


def free_entries(mdp: MDP, baseline: Floats, start: Floats | None = None) -> Ints:
    """Positions in [X, A] of the actions that a program with no budget needs: sorted, shape [F].

    Pairs that are not stored are all worth the same in a state, so of those that neither the baseline nor ``start`` plays the
    first stands for the others: ties go to the first, so none of these would be played.
    """
    wanted = baseline > 0.0
    if start is not None:
        wanted |= start > 0.0
    wanted.put(mdp.pair_index, True)
    first = np.argmin(wanted, axis=1)  # an action that is wanted already, where all are
    wanted[np.arange(mdp.n_states), first] = True
    return np.flatnonzero(wanted)


def cleaned_rows(mdp: MDP, rows: Floats, error: Floats) -> Floats:
    """Advantages [d, F] of the baseline, in place, without what is only rounding; ``error`` is that of their values, [d]."""
    for k, (original, factor) in enumerate(_multiples(mdp)):
        if original == k:
            _quantise(rows[k], float(error[k]))
        else:  # the same signal in another unit or sign must stay so to the bit, or rounding shuts the feasible set
            rows[k] = factor * rows[original]
    return rows


def _multiples(mdp: MDP) -> list[tuple[int, float]]:
    """For every objective the first one that it is a multiple of, and the factor; (k, 1) where there is none before it."""
    signals = np.hstack([mdp.reward, mdp.unseen_value])
    found: list[tuple[int, float]] = []
    for k, signal in enumerate(signals):
        match = (k, 1.0)
        peak = int(np.argmax(np.abs(signal)))
        for j in {original for original, _ in found}:
            if mdp.discount[j] != mdp.discount[k] or signals[j, peak] == 0.0:
                continue
            factor = float(signal[peak] / signals[j, peak])
            if np.max(np.abs(signal - factor * signals[j])) <= 1e-13 * abs(float(signal[peak])):
                match = (j, factor)
                break
        found.append(match)
    return found


def _quantise(values: Floats, size: float) -> float:
    """Round ``values`` in place to a grid a little coarser than their error ``size``; returns the grid.

    Differences below the error of evaluation mean nothing, but a program would take them for constraints and
    reasons. On the grid equal values are equal. A power of two keeps every multiple exact.
    """
    if size <= 0.0:
        return 0.0
    grid = 2.0 ** math.ceil(math.log2(2.0 * size))
    np.round(values / grid, out=values)
    values *= grid
    return grid
