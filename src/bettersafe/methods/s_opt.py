"""Policy improvement in the estimated model: S-OPT (MO-SPIBB), and variants without some of its constraints.

Policy iteration over one program per state (`bettersafe.mdp.programs`). With Q_λ = Σ_k λ_k q_k^π,

    π(·|x) ← argmax Σ_a π(a|x) Q_λ(x,a)
             s.t.  Σ_a e(x,a)|π(a|x) − π_b(a|x)| ≤ ε           the budget
                   Σ_a π(a|x) Adv_k^{π_b}(x,a) ≥ 0 for all k    no objective loses, in any state

    s_opt            both constraints
    soft_spibb       the budget only: Soft-SPIBB on the weighted reward
    adv_linearized   the advantages only (ε = ∞)
    linearized       neither: plain policy iteration on the weighted reward

The feasible set is fixed and a product over states, so with equal discounts this is exact policy iteration: J_λ never
decreases, the result is optimal over the set, and a larger ε never lowers J_λ. With different discounts that argument fails:
the search keeps the best policy and stops when J_λ no longer increases. The result is safe in the model, but it may not be
optimal, and in rare cases a larger ε gives a slightly lower J_λ.

With discount 1 every policy of the search must end (`mdp.ends`). Where the next policy would never end, states keep their
current row. J_λ still never decreases; the model has no best policy then, because a loop that never ends would gain without limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe.errors import check_epsilon, check_integer, check_options, check_type
from bettersafe.mdp.ends import check_ends, endless_states, undiscounted
from bettersafe.mdp.mdp import MDP, by_state
from bettersafe.mdp.policy import check_policy
from bettersafe.mdp.programs import Programs, WarmStart, resolve_engine, solve
from bettersafe.mdp.values import AIM, Values, solve_weights
from bettersafe.methods.result import Improvement, Search, check_preference, improvement
from bettersafe.model import Model
from bettersafe.typing import Event, Floats, Ints, Progress, frozen

if TYPE_CHECKING:
    from bettersafe.mdp.choices import Engine


FIRST_TOL = 1e-8
"""Target backward error of the evaluation in the second round."""


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
    """S-OPT (MO-SPIBB): the best policy for λ within the budget that loses on no objective in any state.

    Args:
        model: Estimated model.
        baseline: π_b, shape [X, A].
        preference: λ ≥ 0, shape [d].
        epsilon: Deviation budget ε; 0 returns the baseline, inf is `adv_linearized`.
        engine: "auto", "native" or "highs".
        max_rounds: Limit on rounds of policy iteration (the published study used 10).
        progress: Callback after every round.

    Examples:
        >>> found = bettersafe.s_opt(model, baseline, preference=[1.0, 0.0], epsilon=1.0)
        >>> bool((found.policy_return >= found.baseline_return - 1e-9).all())  # in the estimated model
        True
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
    """Soft-SPIBB on the weighted reward r_λ: the best policy for λ within the budget, without constraints on objectives.

    J_λ never decreases, but a gain on one objective may offset a loss on another (the paper's Appendix A). The advantage
    constraints of `s_opt` prevent this.

    Args:
        model: Estimated model.
        baseline: π_b, shape [X, A].
        preference: λ ≥ 0, shape [d].
        epsilon: Deviation budget ε; 0 returns the baseline, inf is `linearized`.
        engine: "auto", "native" or "highs".
        max_rounds: Limit on rounds of policy iteration.
        progress: Callback after every round.

    Examples:
        >>> from bettersafe.methods import soft_spibb
        >>> found = soft_spibb(model, baseline, preference=[1.0, 0.0], epsilon=1.0)
        >>> bool(found.policy_return[0] > found.baseline_return[0])
        True
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
    """The best policy for λ that loses on no objective in any state of the estimated model; no budget.

    Args:
        model: Estimated model.
        baseline: π_b, shape [X, A].
        preference: λ ≥ 0, shape [d].
        engine: "auto", "native" or "highs".
        max_rounds: Cap on rounds of policy iteration.
        progress: Callback after every round.

    Examples:
        >>> from bettersafe.methods import adv_linearized
        >>> found = adv_linearized(model, baseline, preference=[1.0, 0.0])
        >>> bool((found.policy_return >= found.baseline_return - 1e-9).all())
        True
    """
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
    """The best policy for λ in the estimated model, without constraints on objectives.

    Args:
        model: Estimated model.
        baseline: π_b, shape [X, A].
        preference: λ ≥ 0, shape [d].
        engine: "auto", "native" or "highs".
        max_rounds: Cap on rounds of policy iteration.
        progress: Callback after every round.

    Examples:
        >>> from bettersafe.methods import linearized
        >>> found = linearized(model, baseline, preference=[1.0, 0.0])
        >>> bool(found.policy_return[0] > found.baseline_return[0])
        True
    """
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
    check_type("model", model, Model)
    check_options(progress=progress)
    mdp = model.mdp
    base = check_policy(baseline, mdp.n_states, mdp.n_actions, name="baseline", state_labels=model.state_labels)
    weights = check_preference(preference, mdp.n_objectives)
    check_ends(mdp, base, name="the baseline", state_labels=model.state_labels)
    check_integer("max_rounds", max_rounds, least=1)
    problem = Problem(
        mdp=mdp, baseline=base, error=model.error, preference=weights, epsilon=epsilon, constrained=constrained
    )
    search = iterate(problem, engine=engine, max_rounds=max_rounds, progress=progress)
    return improvement(method, model, base, search, preference=weights, epsilon=epsilon)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Optimisation of J_λ over a feasible set that is a product over states.

    Attributes:
        mdp: Estimated MDP.
        baseline: π_b, shape [X, A].
        error: e of every pair, shape [P].
        preference: λ, shape [d].
        epsilon: ε; inf allows every action, with data or not.
        constrained: Whether the advantage constraints apply.
    """

    mdp: MDP
    baseline: Floats
    error: Floats
    preference: Floats
    epsilon: float
    constrained: bool


def iterate(
    problem: Problem,
    *,
    engine: Engine = "auto",
    max_rounds: int = 100,
    progress: Progress | None = None,
    baseline_values: Values | None = None,
    start: Floats | None = None,
) -> Search:
    """Policy iteration with one program per state, for all methods of this module.

    Args:
        problem: Feasible set and λ.
        engine: Engine of the programs.
        max_rounds: Limit on rounds.
        progress: Callback after every round.
        baseline_values: Values of π_b, if already computed.
        start: Initial policy, feasible, shape [X, A]; default: π_b. With equal discounts it saves rounds and does not change the
            return. With discount 1, π_b and ``start`` must end.
    """
    engine_name = resolve_engine(engine)
    mdp, preference = problem.mdp, problem.preference
    entries = _entries(problem, start)
    base = entries.baseline_values() if baseline_values is None else baseline_values
    programs = Programs(
        ptr=entries.ptr,
        baseline=entries.baseline,
        error=entries.error,
        rows=cleaned_rows(mdp, entries.advantages(base), base.error)
        if problem.constrained
        else np.empty((0, entries.index.size)),
        epsilon=problem.epsilon,
    )
    # With equal discounts one reward is evaluated, r_λ; otherwise d rewards, weighted afterwards.
    equal_discounts = bool(np.all(mdp.discount == mdp.discount[0]))
    mix = np.ones(1) if equal_discounts else preference
    baseline_v = base.v
    values = _scalar_values(mdp, base, preference) if equal_discounts else base
    del base  # frees q, which is as large as the advantage rows
    current = best = entries.baseline if start is None else start.take(entries.index)
    best_return = -math.inf
    tol = AIM
    warm: WarmStart | None = None
    converged = False
    must_end, endless = undiscounted(mdp), np.empty(0, dtype=np.int64)
    for rounds in range(1, max_rounds + 1):
        if rounds > 1 or start is not None:
            values = entries.values(current, preference if equal_discounts else None, values.v, tol)
        objective = mix @ entries.advantages(values)
        error_of_objective = float(mix @ values.error)
        grid = _quantise(objective, error_of_objective)
        solution = solve(programs, objective, engine=engine_name, warm=warm)
        warm = solution.warm
        answer = solution.policy
        if not solution.solved.all():  # unsolved states keep their current row, which is feasible
            answer = np.where(solution.solved[entries.state], answer, current)
        if must_end:
            endless = endless_states(mdp, entries.at_pairs(answer))
            answer = np.where(np.isin(entries.state, endless), current, answer)
        gain = float(np.max(entries.by_state((answer - current) * objective), initial=0.0))
        scalar_return = float(mix @ values.v @ mdp.initial)
        if progress is not None:
            progress(Event(done=rounds, unit="rounds", gain=gain, scalar_return=scalar_return))
        if not equal_discounts and scalar_return <= best_return + error_of_objective:
            converged = True  # J_λ no longer increases: keep the best policy
            break
        settled = gain <= grid
        if settled and tol > AIM:
            tol = AIM  # evaluate the same policy again, more accurately
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
            # the policy still changes much in the second round, so a rough evaluation is enough
            tol = FIRST_TOL if rounds == 1 else AIM
    return Search(
        policy=entries.table(best),
        baseline_v=baseline_v,
        rounds=rounds,
        converged=converged,
        gap=float(np.max(solution.gap[solution.solved], initial=0.0)),
        kept=np.flatnonzero(~solution.solved),
        endless=endless,
        reason=f"in {endless.size} states a change that gains would never end" if endless.size else "",
        engine=engine_name,
        scalar_v=values.v[0] if equal_discounts else None,
        scalar_known=equal_discounts and converged and stayed,
    )


@dataclass(frozen=True, kw_only=True)
class _Entries:
    """Variables of the programs: all stored pairs, and with ε = ∞ some that are not stored (`free_entries`).

    Attributes:
        problem: Optimisation problem.
        index: Flat indices in [X, A], sorted, shape [F].
        state: States of the entries, shape [F].
        ptr: Entries of state x are ptr[x]:ptr[x+1], shape [X+1].
        error: e of every entry, shape [F].
        pair: Entry of every stored pair, shape [P]; None if the entries are the stored pairs.
        baseline: π_b at the entries, shape [F].
    """

    problem: Problem
    index: Ints
    state: Ints
    ptr: Ints
    error: Floats
    pair: Ints | None
    baseline: Floats

    @cached_property
    def _elsewhere(self) -> Floats:
        """Baseline probability of pairs that are not stored, shape [X]; it is fixed unless they have entries."""
        stored = by_state(self.problem.mdp, self.at_pairs(self.baseline))
        return np.asarray(np.clip(self.problem.baseline.sum(axis=1) - stored, 0.0, 1.0))

    def at_pairs(self, entries: Floats) -> Floats:
        """Probabilities of the stored pairs, shape [P]."""
        return entries if self.pair is None else entries[self.pair]

    def baseline_values(self) -> Values:
        """Values of π_b."""
        return solve_weights(self.problem.mdp, self.at_pairs(self.baseline), self._elsewhere)

    def values(self, entries: Floats, preference: Floats | None, guess: Floats, tol: float) -> Values:
        """Values of the policy with probabilities ``entries`` [F]: for r_λ if a preference is given, else for all rewards."""
        mdp, weight, mass = self.problem.mdp, self.at_pairs(entries), self._elsewhere
        if self.pair is not None:
            mass = np.clip(self.by_state(entries) - by_state(mdp, weight), 0.0, 1.0)
        return solve_weights(mdp, weight, mass, preference=preference, guess=guess, tol=tol)

    def advantages(self, values: Values) -> Floats:
        """Q − v at the entries, shape [m, F]."""
        table = np.empty((values.q.shape[0], self.index.size))
        for k, row in enumerate(table):  # row by row, to keep temporaries small
            if self.pair is None:
                np.subtract(values.q[k], values.v[k].take(self.state), out=row)
            else:
                (values.unseen_value[k] - values.v[k]).take(self.state, out=row)
                row[self.pair] = values.q[k] - values.v[k].take(self.problem.mdp.pair_state)
        return table

    def by_state(self, values: Floats) -> Floats:
        """Sums over the entries of every state, shape [X]."""
        return np.asarray(np.bincount(self.state, weights=values, minlength=self.problem.mdp.n_states), np.float64)

    def table(self, entries: Floats) -> Floats:
        """Policy [X, A] with probabilities ``entries`` [F], and the baseline's elsewhere."""
        policy = self.problem.baseline.copy()
        policy.put(self.index, entries)
        return frozen(policy, np.float64)


def _entries(problem: Problem, start: Floats | None) -> _Entries:
    mdp, baseline = problem.mdp, problem.baseline
    index, state, ptr, error, pair = mdp.pair_index, mdp.pair_state, mdp.state_ptr, problem.error, None
    if math.isinf(problem.epsilon) and mdp.n_pairs < mdp.n_states * mdp.n_actions:
        index = free_entries(mdp, baseline, start)
        state = index // mdp.n_actions
        ptr = np.searchsorted(state, np.arange(mdp.n_states + 1))
        error = np.zeros(index.size)
        pair = np.searchsorted(index, mdp.pair_index)
    return _Entries(
        problem=problem, index=index, state=state, ptr=ptr, error=error, pair=pair, baseline=baseline.take(index)
    )


def _scalar_values(mdp: MDP, values: Values, preference: Floats) -> Values:
    """Values of r_λ from those of all rewards."""
    return Values(
        v=(preference @ values.v)[None, :],
        q=(preference @ values.q)[None, :],
        unseen_value=(preference @ mdp.unseen_value)[None, :],
        error=np.array([preference @ values.error]),
    )


def free_entries(mdp: MDP, baseline: Floats, start: Floats | None = None) -> Ints:
    """Sorted flat indices in [X, A] of the actions that a program without a budget needs, shape [F].

    Within a state, all pairs that are not stored have the same value. Of those that neither the baseline nor ``start`` plays,
    only the first is included: ties go to the first action, so the others would never be played.
    """
    wanted = baseline > 0.0
    if start is not None:
        wanted |= start > 0.0
    wanted.put(mdp.pair_index, True)
    first = np.argmin(wanted, axis=1)  # 0 if all actions are included already
    wanted[np.arange(mdp.n_states), first] = True
    return np.flatnonzero(wanted)


def cleaned_rows(mdp: MDP, rows: Floats, error: Floats) -> Floats:
    """Remove rounding noise from the baseline's advantages [d, F], in place; ``error`` [d] is the error of the values."""
    for k, (original, factor) in enumerate(_multiples(mdp)):
        if original == k:
            _quantise(rows[k], float(error[k]))
        else:  # a multiple of another objective must stay an exact one, or rounding makes the feasible set empty
            rows[k] = factor * rows[original]
    return rows


def _multiples(mdp: MDP) -> list[tuple[int, float]]:
    """For every objective k, the first objective of which it is a multiple, and the factor; (k, 1) if there is none."""
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

    Differences below the evaluation error are meaningless, but a program would act on them. On the grid, equal values are
    exactly equal. A power of two keeps every multiple exact.
    """
    if size <= 0.0:
        return 0.0
    grid = 2.0 ** math.ceil(math.log2(2.0 * size))
    np.round(values / grid, out=values)
    values *= grid
    return grid
