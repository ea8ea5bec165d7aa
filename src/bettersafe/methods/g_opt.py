"""G-OPT: no objective loses in expected return, instead of in every state; one program over discounted occupancies.

With ρ(x) = Σ_a ρ(x,a), and all quantities in the estimated model,

    max  Σ ρ r_λ
    s.t. ρ(x) − γ Σ_{x̃,ã} p(x|x̃,ã) ρ(x̃,ã) = μ(x)                         the flow, in every state
         Σ_a e(x,a) |ρ(x,a) − π_b(a|x) ρ(x)| ≤ ε ρ(x)                       the budget, in every state
         Σ ρ r_k ≥ J_k(π_b) + margin_k                                      for every objective k
    π(a|x) = ρ(x,a)/ρ(x),  π_b(a|x) where ρ(x) = 0

S-OPT requires Σ_a π Adv_k ≥ 0 in every state, which leaves less room as d grows. Here a gain in one state may offset a loss in
another, and every policy of S-OPT is feasible. The theorem behind S-OPT does not cover G-OPT: its safety must come from a test.

Both forms of the program use deviations z(x,a) = ρ(x,a) − π_b(a|x) ρ(x). Frozen pairs (e = ∞, or not stored, unless ε = ∞)
have z = 0, so they keep the baseline's probabilities, and by the performance-difference lemma

    J_k(π) − J_k(π_b) = Σ_{x,a} z(x,a) Adv_k^{π_b}(x,a)

whatever the values of frozen pairs. It also avoids mixing rewards of size 1000 and size 1: each row has its own unit.

    "lp"           (engine "highs") the program as written, solved by HiGHS: z = p − n with p ≥ 0, 0 ≤ n ≤ π_b ρ(x)
    "multipliers"  (engine "native") column generation. For multipliers ν ≥ 0 of the d rows, the best policy is that of Soft-SPIBB
                   with the preference λ + ν. A small program finds the best mixture of the occupancies so far and the next ν.
                   The mixture is optimal when no policy improves the Lagrangian.

Mixtures keep the budget because it is convex in occupancies: if every ρ_i keeps it and Σ w_i = 1, w ≥ 0, then
Σ_a e |Σ_i w_i z_i(x,a)| ≤ Σ_i w_i Σ_a e |z_i(x,a)| ≤ Σ_i w_i ε ρ_i(x) = ε ρ(x). Flow and returns are linear.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe import _kernel
from bettersafe._system.workers import cores
from bettersafe.errors import (
    ParameterError,
    UnsolvedError,
    as_numbers,
    check_choice,
    check_epsilon,
    check_integer,
    check_number,
    check_options,
    check_type,
    check_types,
    check_vector,
)
from bettersafe.mdp.choices import ENGINES, Engine, Resolved
from bettersafe.mdp.ends import check_ends, undiscounted
from bettersafe.mdp.mdp import MDP, by_state, dense_q, policy_matrix
from bettersafe.mdp.mixtures import Mixture, best_mixture, no_basis
from bettersafe.mdp.policy import check_policy
from bettersafe.mdp.programs import INFEASIBLE, highs, resolve_engine
from bettersafe.mdp.values import (
    ACCEPT,
    AIM,
    MAX_PRODUCTS,
    RESIDUAL_ROUNDING,
    THREADED_NONZEROS,
    Values,
    occupancy,
    solve_policy,
)
from bettersafe.methods.result import Improvement, Search, check_preference, improvement
from bettersafe.methods.s_opt import FIRST_TOL, Problem, cleaned_rows, iterate
from bettersafe.model import Model
from bettersafe.typing import Event, Floats, Ints, Progress, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Default budgets of `g_opt_path`."""

MARGINS = (0.0, 0.05, 0.15)
"""Default margins of `g_opt_path`, as shares of the baseline's returns."""

LP_PAIRS = 20_000
"""Without the compiled kernel, "auto" uses "highs" up to this many pairs, where one large program is faster than many small ones."""

OPTIMAL_TOL = 1e-9
"""Relative tolerance on gains, as a share of the largest so far: column generation stops at this gap; smaller gains count as 0."""

MAX_ITERATIONS = 100
"""Limit on rounds of policy iteration for one policy."""

REPEATED = 1e-12
"""Difference of gains, as a share of the largest, up to which two policies count as the same."""

RARELY_VISITED = 1e-4
"""Smallest unit for the visits of a state; the unit is π_b's occupancy if that is larger."""

NEVER_VISITED = 1e-9
"""Visits, in these units, up to which a state counts as never visited: about the accuracy of HiGHS."""

NOTHING = frozen(np.empty(0), np.int64)
UNREACHABLE = "no policy within the budget reaches the margins in the estimated model"


def g_opt(
    model: Model,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    epsilon: float,
    margin: npt.ArrayLike | None = None,
    engine: Engine = "auto",
    tol: float = OPTIMAL_TOL,
    max_rounds: int = 1000,
    progress: Progress | None = None,
) -> Improvement:
    """G-OPT: the best policy for λ within the budget whose return is at least J_k(π_b) + margin_k on every objective k.

    If no policy within the budget reaches the margins, the baseline is returned, with the reason in the status.

    Args:
        model: Estimated model; its discounts must be equal.
        baseline: π_b, shape [X, A].
        preference: λ ≥ 0, shape [d].
        epsilon: Deviation budget ε; 0 returns the baseline, inf allows every action, with data or not.
        margin: Required gain on every objective, ≥ 0, shape [d], in units of return; default: 0.
        engine: "highs" (one large program), "native" (many small ones), or "auto".
        tol: Optimality gap at which "native" stops, as a share of the largest gains so far.
        max_rounds: Limit on the number of policies computed by "native".
        progress: Callback after every policy.

    Examples:
        >>> found = bettersafe.g_opt(model, baseline, preference=[1.0, 0.0], epsilon=1.0)
        >>> bool((found.policy_return >= found.baseline_return - 1e-6).all())  # in the estimated model
        True
    """
    check_options(progress=progress)
    weights, base = _checked(model, baseline, preference, engine, tol, max_rounds)
    check_epsilon(epsilon)
    floors = np.zeros(model.mdp.n_objectives)
    if margin is not None:
        floors = check_vector("margin", margin, model.mdp.n_objectives, "objective")
    if np.any(floors < 0.0):
        raise ParameterError(
            f"margin must not be negative (an accepted loss is a setting of the test: zeta); got {floors.tolist()}."
        )
    setting = _setting(model, base, solve_policy(model.mdp, base), every_action=math.isinf(epsilon))
    limits = _Limits(preference=weights, epsilon=epsilon, tol=tol, max_rounds=max_rounds, progress=progress)
    columns = _Columns(setting, limits, [])
    return _improvements(model, columns, _solve(columns, [floors], engine))[0]


def g_opt_path(
    model: Model,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    epsilons: Sequence[float] = EPSILONS,
    margins: Sequence[float] = MARGINS,
    floors: Sequence[npt.ArrayLike] | None = None,
    engine: Engine = "auto",
    tol: float = OPTIMAL_TOL,
    max_rounds: int = 1000,
    progress: Progress | None = None,
) -> list[Improvement]:
    """`g_opt` for every budget and, for each budget, every margin: candidates for a method that selects among policies.

    Policies found for one budget are reused for larger ones, in which they are feasible too.

    Args:
        model: Estimated model; its discounts must be equal.
        baseline: π_b, shape [X, A].
        preference: λ ≥ 0, shape [d].
        epsilons: Budgets ε.
        margins: Shares c ≥ 0: objective k must gain c |J_k(π_b)|.
        floors: Required gains, each of shape [d], in units of return and possibly negative, in the place of ``margins``.
        engine: "highs" (one large program), "native" (many small ones), or "auto".
        tol: Optimality gap at which "native" stops, as a share of the largest gains so far.
        max_rounds: Limit on the number of policies computed for each.
        progress: Callback after every policy.

    Examples:
        >>> from bettersafe.methods import g_opt_path
        >>> path = g_opt_path(model, baseline, preference=[1.0, 0.0], epsilons=[0.3, 1.0], margins=[0.0])
        >>> [found.epsilon for found in path]
        [0.3, 1.0]
    """
    check_options(progress=progress)
    weights, base = _checked(model, baseline, preference, engine, tol, max_rounds)
    check_types("epsilons", epsilons, numbers.Real)
    for epsilon in epsilons:
        check_epsilon(epsilon)
    shares = as_numbers("margins", margins)
    shares = check_vector("margins", shares, shares.size, "share of the baseline's return")
    if np.any(shares < 0.0):
        raise ParameterError(f"margins must not be negative; got {shares.tolist()}.")
    values = solve_policy(model.mdp, base)
    least = list(np.outer(shares, np.abs(values.v @ model.mdp.initial)))
    if floors is not None:
        check_type("floors", floors, list, tuple, np.ndarray)
        least = [check_vector("floors", floor, model.mdp.n_objectives, "objective") for floor in floors]
    settings: dict[bool, _Setting] = {}
    met: list[_Column] = []
    found: dict[float, list[Improvement]] = {}
    for epsilon in sorted(set(epsilons)):
        every_action = math.isinf(epsilon)
        if every_action not in settings:
            settings[every_action] = _setting(model, base, values, every_action=every_action)
        limits = _Limits(preference=weights, epsilon=epsilon, tol=tol, max_rounds=max_rounds, progress=progress)
        columns = _Columns(settings[every_action], limits, met)
        found[epsilon] = _improvements(model, columns, _solve(columns, least, engine))
        met = columns.in_use()
    return [result for epsilon in epsilons for result in found[epsilon]]


class GOptSearch:
    """G-OPT for several rewards and floors, one after another, with one process, baseline, preference and budget.

    Policies in the results for one reward are reused for the next: their occupancies are the same, only their gains differ.

    Args:
        model: Estimated model; its discounts must be equal.
        baseline: π_b, shape [X, A].
        preference: λ ≥ 0, shape [d].
        epsilon: Budget ε.
        engine: As in `g_opt`.
        tol: As in `g_opt`.
        max_rounds: Limit on the number of policies computed for each result.
        progress: Callback after every policy.
    """

    def __init__(
        self,
        model: Model,
        baseline: npt.ArrayLike,
        *,
        preference: npt.ArrayLike,
        epsilon: float,
        engine: Engine = "auto",
        tol: float = OPTIMAL_TOL,
        max_rounds: int = 1000,
        progress: Progress | None = None,
    ) -> None:
        weights, base = _checked(model, baseline, preference, engine, tol, max_rounds)
        check_epsilon(epsilon)
        self._model, self._baseline, self._engine = model, base, engine
        self._limits = _Limits(preference=weights, epsilon=epsilon, tol=tol, max_rounds=max_rounds, progress=progress)
        self._columns: _Columns | None = None
        self._new_reward = False

    def set_reward(self, reward: npt.ArrayLike) -> None:
        """Replace the rewards r_k(x,a) of the stored pairs, shape [d, P]."""
        self._model = replace(self._model, mdp=replace(self._model.mdp, reward=frozen(reward, np.float64)))
        self._new_reward = True

    def policies(self, floors: Sequence[npt.ArrayLike]) -> list[Floats]:
        """Policies [X, A] whose gains are at least the floors, each of shape [d], in units of return and possibly negative.

        If no policy within the budget reaches a floor, its policy is the baseline.
        """
        d = self._model.mdp.n_objectives
        least = [check_vector("floors", floor, d, "objective") for floor in floors]
        if self._columns is None or self._new_reward:
            self._columns, self._new_reward = self._make_columns(self._columns), False
        return [found.policy for found in _solve(self._columns, least, self._engine)]

    def _make_columns(self, before: _Columns | None) -> _Columns:
        setting = _setting(
            self._model,
            self._baseline,
            solve_policy(self._model.mdp, self._baseline),
            every_action=math.isinf(self._limits.epsilon),
            visits=None if before is None else before.setting.visits,
        )
        met = [] if before is None else [setting.column(known.policy, known.visits) for known in before.in_use()]
        return _Columns(setting, self._limits, met)


def _checked(
    model: Model, baseline: npt.ArrayLike, preference: npt.ArrayLike, engine: Engine, tol: float, max_rounds: int
) -> tuple[Floats, Floats]:
    """λ and π_b. Raises ParameterError or PolicyError if an argument is not valid."""
    check_type("model", model, Model)
    mdp = model.mdp
    check_choice("engine", engine, ENGINES)
    base = check_policy(baseline, mdp.n_states, mdp.n_actions, name="baseline", state_labels=model.state_labels)
    weights = check_preference(preference, mdp.n_objectives)
    check_number("tol", tol)
    if not 0.0 <= tol < 1.0:
        raise ParameterError(f"tol must be at least 0 and less than 1; got {tol}.")
    check_integer("max_rounds", max_rounds, least=1)
    if np.any(mdp.discount != mdp.discount[0]):
        raise ParameterError(
            f"g-opt needs equal discounts: its program has one occupancy for all objectives; got {mdp.discount.tolist()}."
            " Give all objectives one discount, or use s-opt."
        )
    if undiscounted(mdp) and engine == "highs":
        raise ParameterError(
            'g-opt with discount 1 needs the engine "native": one large program would count loops that never end.',
            setting="engine",
        )
    check_ends(mdp, base, name="the baseline", state_labels=model.state_labels)
    return weights, base


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """Quantities that don't depend on λ, ε and the margins.

    ``mdp`` stores every pair whose probability may change; all pairs if ε = ∞.
    """

    mdp: MDP
    error: Floats  # [P]
    baseline: Floats  # [X, A]
    values: Values  # of π_b
    advantage: Floats  # of π_b, without rounding, [d, P]
    visits: Floats  # ρ(x) of π_b, [X]
    entries: Floats  # π_b of the stored pairs, [P]
    elsewhere: Floats  # π_b of all other pairs, [X]

    def column(self, policy: Floats, visits: Floats) -> _Column:
        """A policy [X, A] with visits [X], and its gains."""
        moved = policy.take(self.mdp.pair_index) - self.entries
        moved *= visits[self.mdp.pair_state]
        return _Column(policy=policy, visits=visits, gain=self.advantage @ moved)


@dataclass(frozen=True, kw_only=True)
class _Limits:
    """Arguments of a search; as in `g_opt`."""

    preference: Floats
    epsilon: float
    tol: float
    max_rounds: int
    progress: Progress | None


@dataclass(frozen=True, kw_only=True)
class _Column:
    """Policy within the budget, with its occupancy and gains."""

    policy: Floats  # [X, A]
    visits: Floats  # ρ(x), [X]
    gain: Floats  # J_k(π) − J_k(π_b), [d]


def _setting(
    model: Model, baseline: Floats, values: Values, *, every_action: bool, visits: Floats | None = None
) -> _Setting:
    """Setting of a model; ``values`` and ``visits`` [X] are those of the baseline."""
    from scipy import sparse

    mdp, error = model.mdp, model.error
    if every_action and mdp.n_pairs < mdp.n_states * mdp.n_actions:
        # a pair without data pays its assumed value and ends the process
        spread = sparse.csr_array(
            (np.ones(mdp.n_pairs), (mdp.pair_index, np.arange(mdp.n_pairs))),
            shape=(mdp.n_states * mdp.n_actions, mdp.n_pairs),
        )
        q = dense_q(mdp, values.q).reshape(mdp.n_objectives, -1)
        mdp = replace(
            mdp,
            pair_state=np.repeat(np.arange(mdp.n_states), mdp.n_actions),
            pair_action=np.tile(np.arange(mdp.n_actions), mdp.n_states),
            transition=sparse.csr_array(spread @ mdp.transition),
            reward=dense_q(mdp, mdp.reward).reshape(mdp.n_objectives, -1),
        )
        values, error = replace(values, q=q), np.zeros(mdp.n_pairs)
    entries = baseline.take(mdp.pair_index)
    return _Setting(
        mdp=mdp,
        error=error,
        baseline=baseline,
        values=values,
        advantage=cleaned_rows(mdp, values.q - values.v[:, mdp.pair_state], values.error),
        visits=np.maximum(occupancy(mdp, baseline), 0.0) if visits is None else visits,
        entries=entries,
        elsewhere=np.clip(baseline.sum(axis=1) - by_state(mdp, entries), 0.0, 1.0),
    )


def _solve(columns: _Columns, margins: list[Floats], engine: Engine) -> list[Search]:
    """One result for each of the margins, each of shape [d]."""
    setting, limits = columns.setting, columns.limits
    quick = _kernel.compiled is not None or setting.mdp.n_pairs > LP_PAIRS or undiscounted(setting.mdp)
    if engine == "native" or (engine == "auto" and quick):
        return list(_by_multipliers(columns, margins))
    return list(_by_lp(setting, limits.preference, limits.epsilon, margins, limits.progress))


def _improvements(model: Model, columns: _Columns, searches: list[Search]) -> list[Improvement]:
    results: list[Improvement] = []
    for found in searches:
        if results and np.array_equal(found.policy, results[-1].policy):  # the previous policy reaches this margin too
            last = replace(results[-1], rounds=found.rounds, converged=found.converged, gap=found.gap, kept=found.kept)
            results.append(replace(last, reason=found.reason))
            continue
        limits = columns.limits
        results.append(
            improvement(
                "g-opt",
                model,
                columns.setting.baseline,
                found,
                preference=limits.preference,
                epsilon=limits.epsilon,
            )
        )
    return results


def _found(
    setting: _Setting,
    form: str,
    policy: Floats,
    rounds: int,
    *,
    gap: float = 0.0,
    converged: bool = True,
    kept: Ints = NOTHING,
    reason: str = "",
) -> Search:
    """Search result: a feasible policy, or the baseline with a reason."""
    return Search(
        policy=policy,
        baseline_v=setting.values.v,
        rounds=rounds,
        converged=converged,
        gap=gap,
        kept=kept,
        engine=form,
        reason=reason,
    )


def _by_multipliers(columns: _Columns, margins: list[Floats]) -> Iterator[Search]:
    """Column generation, for one margin after another."""
    setting, preference = columns.setting, columns.limits.preference
    for margin in margins:
        unbounded = columns.unbounded()
        hopeless = any(np.all(margin >= other) for other in columns.unreachable)
        share, open_end = columns.reach(margin, hopeless=hopeless)
        if share < 1.0 - OPTIMAL_TOL:
            reason = f"the margins were not reached with {columns.rounds} policies" if open_end else UNREACHABLE
            if not open_end:
                columns.unreachable.append(margin)
            yield columns.found(setting.baseline, converged=not open_end, reason=reason)
            continue
        mixture, gap, converged = columns.climb(margin, share, unbounded)
        small = OPTIMAL_TOL * float(preference @ columns.size)
        idle = not np.any(margin > 0.0) and mixture.objective <= small  # no gain: keep the baseline
        policy = setting.baseline if idle else _mixed(columns.met, mixture.weights, setting.baseline)
        yield columns.found(policy, gap=gap, converged=converged)
        columns.used |= set(np.flatnonzero(mixture.weights > 0.0).tolist())


class _Columns:
    """Policies of the column generation, and the rounds since the last result.

    ``met`` are policies to begin with, within the budget, the first of them the baseline.
    """

    def __init__(self, setting: _Setting, limits: _Limits, met: list[_Column]) -> None:
        self.setting, self.limits = setting, limits
        self.kept, self.rounds = NOTHING, 0
        self.unreachable: list[Floats] = []  # margins
        self.used = {0}  # policies with a weight in a result
        d = setting.mdp.n_objectives
        self.met: list[_Column] = []
        self.size = np.zeros(d)  # largest |gain| of every objective
        self._table = np.empty((16, d))  # gains, with room for more
        self._basis = no_basis(d)
        self._unbounded: float | None = None
        baseline = _Column(policy=setting.baseline, visits=setting.visits, gain=np.zeros(d))
        for column in (baseline, *met[1:]):
            self._append(column)

    @cached_property
    def engine(self) -> Resolved:
        """Engine of the mixtures and responses."""
        return resolve_engine("auto")

    def in_use(self) -> list[_Column]:
        """The policies with a weight in a result; the others are rarely useful later."""
        return [column for i, column in enumerate(self.met) if i in self.used]

    def unbounded(self) -> float:
        """Largest gain of J_λ without constraints on the objectives."""
        if self._unbounded is None:
            preference, self._unbounded = self.limits.preference, 0.0
            if np.any(preference):
                best = self.respond(preference)
                self._unbounded = float(preference @ best.gain)
                self.report(self._unbounded, 0.0)
                self.add(best)
        return self._unbounded

    def respond(self, weights: Floats) -> _Column:
        """Best policy within the budget for these weights."""
        self.rounds += 1
        place = int(np.argmax(self.gains() @ weights))
        near = self.met[place]
        setting, mdp = self.setting, self.setting.mdp
        # at discount 1 a best response may never end, which only `iterate` checks
        quick = self.engine == "native" and not undiscounted(mdp)
        found = self._kernel_response(weights, near) if quick else None
        if found is not None:
            return found
        problem = Problem(
            mdp=mdp,
            baseline=setting.baseline,
            error=setting.error,
            preference=weights,
            epsilon=self.limits.epsilon,
            constrained=False,
        )
        search = iterate(
            problem,
            engine=self.engine,
            baseline_values=setting.values,
            start=None if place == 0 else near.policy,
        )
        self.kept = search.kept
        return setting.column(search.policy, np.maximum(occupancy(mdp, search.policy), 0.0))

    def _kernel_response(self, weights: Floats, near: _Column) -> _Column | None:
        """`respond` by the kernel, from the policy ``near``; None if its evaluations stall."""
        kernel, setting, mdp = _kernel.compiled, self.setting, self.setting.mdp
        assert kernel is not None
        entries, visits = near.policy.take(mdp.pair_index), near.visits.copy()
        kept = np.empty(mdp.n_states, dtype=np.uint8)
        rounds = kernel.best_response(
            mdp.state_ptr, mdp.transition.indptr, mdp.transition.indices, mdp.transition.data, float(mdp.discount[0]), mdp.initial,
            setting.entries, setting.error, self.limits.epsilon, weights @ mdp.reward, setting.elsewhere * (weights @ mdp.unseen_value),
            entries, weights @ setting.values.v, visits, kept, FIRST_TOL, AIM, ACCEPT, RESIDUAL_ROUNDING, MAX_PRODUCTS, MAX_ITERATIONS,
            cores() if mdp.transition.nnz > THREADED_NONZEROS else 1,
        )  # fmt: skip
        if rounds == 0:
            return None
        self.kept = np.flatnonzero(kept)
        policy = setting.baseline.copy()
        policy.put(mdp.pair_index, entries)
        return setting.column(policy, np.maximum(visits, 0.0, out=visits))

    def gains(self) -> Floats:
        """Gains of all policies in ``met``, shape [n, d]."""
        return self._table[: len(self.met)]

    def add(self, column: _Column) -> bool:
        """Add a policy unless one with the same gains is there already; whether it was added."""
        scale = np.maximum(self.size, np.abs(column.gain))
        if np.any(np.all(np.abs(self.gains() - column.gain) <= REPEATED * scale, axis=1)):
            return False
        self._append(column)
        return True

    def _append(self, column: _Column) -> None:
        n = len(self.met)
        if n == self._table.shape[0]:
            self._table = np.concatenate([self._table, np.empty_like(self._table)])
        self._table[n] = column.gain
        self.size = np.maximum(self.size, np.abs(column.gain))
        self.met.append(column)

    def report(self, gain: float, level: float) -> None:
        """Report the last policy to ``progress``."""
        if self.limits.progress is not None:
            start = float(self.limits.preference @ self.setting.values.v @ self.setting.mdp.initial)
            self.limits.progress(Event(done=self.rounds, unit="rounds", gain=gain, scalar_return=start + level))

    def found(self, policy: Floats, *, gap: float = 0.0, converged: bool, reason: str = "") -> Search:
        """Search result for one margin; resets the count of rounds."""
        rounds, self.rounds = self.rounds, 0
        return _found(
            self.setting, "multipliers", policy, rounds, gap=gap, converged=converged, kept=self.kept, reason=reason
        )

    def mixture(self, floors: Floats, *, reach: bool) -> Mixture:
        """Best mixture of the policies so far."""
        gains = self.gains()
        value = gains @ self.limits.preference
        return best_mixture(gains, value, floors, reach=reach, basis=self._basis, engine=self.engine)

    def reach(self, margin: Floats, *, hopeless: bool) -> tuple[float, bool]:
        """Largest share t of the margins that a mixture reaches, and whether more policies might reach more.

        A policy that reaches t satisfies ν·g(π) ≥ t ν·margin, so the best response to ν bounds t. The search stops if a mixture
        reaches t = 1 or a bound on t is below 1.
        """
        share = 0.0 if np.any(margin > 0.0) else 1.0
        open_end = not hopeless
        while open_end and share < 1.0 - OPTIMAL_TOL:
            mixture = self.mixture(margin, reach=True)
            share = mixture.share
            if share >= 1.0 - OPTIMAL_TOL or self.rounds >= self.limits.max_rounds:
                break
            nu = mixture.multipliers
            noise = OPTIMAL_TOL * float(nu @ self.size)
            column = self.respond(nu)
            value = float(nu @ column.gain)
            self.report(value - mixture.level, 0.0)
            enough = max((1.0 - OPTIMAL_TOL) * float(nu @ margin), mixture.level + noise)
            open_end = value > enough and self.add(column)
        return share, open_end

    def climb(self, margin: Floats, share: float, bound: float) -> tuple[Mixture, float, bool]:
        """Mixture with the largest J_λ, its optimality gap, and whether the search converged.

        Best responses bound the gain of J_λ from above, mixtures from below; ``bound`` is a first upper bound.
        """
        while True:
            mixture = self.mixture(min(share, 1.0) * margin, reach=False)
            weights = self.limits.preference + mixture.multipliers
            converged = bound - mixture.objective <= self.limits.tol * float(weights @ self.size)
            if converged or self.rounds >= self.limits.max_rounds:
                break
            column = self.respond(weights)
            value = float(weights @ column.gain - mixture.multipliers @ margin)
            self.report(value - mixture.objective, mixture.objective)
            bound = min(bound, value)
            if not self.add(column):
                converged = True
                break
        return mixture, max(bound - mixture.objective, 0.0), converged


def _mixed(met: list[_Column], weights: Floats, baseline: Floats) -> Floats:
    """Policy with the occupancy of the mixture: in every state the mean of the rows, weighted by w_i ρ_i(x)."""
    total = np.zeros(baseline.shape[0])
    deviation = np.zeros(baseline.shape)
    for column, weight in zip(met, weights, strict=True):
        if weight > 0.0:
            total += weight * column.visits
            deviation += (weight * column.visits)[:, None] * (column.policy - baseline)
    visited = total > 0.0
    return np.maximum(baseline + deviation / np.where(visited, total, 1.0)[:, None], 0.0)


def _by_lp(
    setting: _Setting, preference: Floats, epsilon: float, margins: list[Floats], progress: Progress | None
) -> Iterator[Search]:
    """The program over (ρ(x), p, n), solved by HiGHS.

    Visits of a state are in units of the baseline's visits, so that rarely visited states are solved as accurately as others.
    """
    from scipy import sparse

    mdp, baseline = setting.mdp, setting.baseline
    gamma, n_states = float(mdp.discount[0]), mdp.n_states
    weight = baseline.take(mdp.pair_index)
    free = np.isfinite(setting.error) if epsilon > 0.0 else setting.error == 0.0
    pairs = np.flatnonzero(free | math.isinf(epsilon))
    state, error, base = mdp.pair_state[pairs], setting.error[pairs], weight[pairs]
    lower = np.flatnonzero(base > 0.0)  # pairs whose probability can decrease
    unit = np.maximum(setting.visits, RARELY_VISITED)
    change = sparse.hstack([sparse.eye_array(pairs.size), -sparse.eye_array(pairs.size, format="csc")[:, lower]])
    change = sparse.csr_array(change * np.append(unit[state], unit[state[lower]]))  # z from (p, n)
    at = sparse.csr_array((np.ones(pairs.size), (state, np.arange(pairs.size))), shape=(n_states, pairs.size))
    advantage = setting.advantage[:, pairs]
    gain = np.asarray((change.T @ advantage.T).T)  # gain of every objective per unit of (p, n), [d, variables]
    size = np.max(np.abs(gain), axis=1, initial=0.0)
    bound_by = np.flatnonzero(size > 0.0)
    cost = preference @ gain
    scale = float(np.max(np.abs(cost), initial=0.0)) or 1.0

    stay = policy_matrix(mdp.state_ptr, weight, mdp.transition)
    own, none = sparse.diags_array(unit), sparse.csr_array((n_states, n_states))
    per_unit = sparse.diags_array(1.0 / unit)
    flow = per_unit @ sparse.hstack([own - gamma * (stay.T @ own), -gamma * (mdp.transition[pairs].T @ change)])
    balance = per_unit @ sparse.hstack([none, at @ change])
    rows = [
        sparse.hstack(
            [
                sparse.csr_array((-base[lower], (np.arange(lower.size), state[lower])), shape=(lower.size, n_states)),
                sparse.csr_array((lower.size, pairs.size)),
                sparse.eye_array(lower.size),
            ]
        ),
        sparse.hstack([sparse.csr_array((bound_by.size, n_states)), -gain[bound_by] / size[bound_by, None]]),
    ]
    largest = np.zeros(n_states)
    np.maximum.at(largest, state, error)
    limited = np.flatnonzero(2.0 * largest > epsilon)  # states in which the budget can bind: Σ_a |z| ≤ 2 ρ(x)
    if epsilon > 0.0 and limited.size:
        spent = sparse.diags_array(1.0 / unit) @ at @ sparse.diags_array(error) @ abs(change)
        budget = sparse.hstack([sparse.diags_array(np.full(n_states, -epsilon)), spent], format="csr")
        rows.insert(0, sparse.diags_array(1.0 / largest[limited]) @ budget[limited])
    inequalities, equalities = (sparse.csc_array(sparse.vstack(part)) for part in (rows, [flow, balance]))
    target = np.append(mdp.initial / unit, np.zeros(n_states))
    for margin in margins:
        if not np.any(size) or np.any(margin[size == 0.0] > 0.0):  # no objective, or not one with a margin, can change
            yield _found(setting, "lp", baseline, 0, reason=UNREACHABLE if np.any(margin) else "")
            continue
        limits = np.zeros(inequalities.shape[0])
        limits[limits.size - bound_by.size :] = -margin[bound_by] / size[bound_by]
        for method in ("highs-ds", "highs-ipm"):
            answer = highs(
                np.append(np.zeros(n_states), -cost / scale),
                rows=inequalities,
                limits=limits,
                balance=equalities,
                target=target,
                method=method,
                tol=1e-9,
            )
            if answer.status == 0:
                break  # presolve can be wrong about infeasibility, so both methods must agree on it
        if answer.status == INFEASIBLE and np.any(margin):
            yield _found(setting, "lp", baseline, 1, reason=UNREACHABLE)
            continue
        if answer.status != 0:
            raise UnsolvedError(f'the program of g-opt was not solved: {answer.message}. Try the engine "native".')
        value = -float(answer.fun) * scale
        if progress is not None:
            start = float(preference @ setting.values.v @ mdp.initial)
            progress(Event(done=1, unit="rounds", gain=value, scalar_return=start))
        dual = answer.ineqlin.marginals @ limits + answer.eqlin.marginals @ target
        policy = baseline
        small = OPTIMAL_TOL * float(preference @ size)
        if np.any(margin > 0.0) or value > small:
            visits = unit * np.where(answer.x[:n_states] > NEVER_VISITED, answer.x[:n_states], 0.0)
            z = change @ np.maximum(answer.x[n_states:], 0.0)
            policy = _projected(setting, pairs, z / np.where(visits > 0.0, visits, math.inf)[state], epsilon)
        yield _found(setting, "lp", policy, 1, gap=abs(float(answer.fun - dual)) * scale)


def _projected(setting: _Setting, pairs: Ints, deviation: Floats, epsilon: float) -> Floats:
    """π_b + the deviations of ``pairs``, projected towards π_b to remove HiGHS's constraint violations."""
    mdp, error = setting.mdp, setting.error[pairs]
    state, n_states = mdp.pair_state[pairs], mdp.n_states
    base = setting.baseline.take(mdp.pair_index[pairs])
    up, down = np.maximum(deviation, 0.0), np.minimum(np.maximum(-deviation, 0.0), base)
    more, less = (np.bincount(state, weights=side, minlength=n_states) for side in (up, down))
    both = np.minimum(more, less)
    up *= (both / np.where(more > 0.0, more, 1.0))[state]
    down *= (both / np.where(less > 0.0, less, 1.0))[state]
    if 0.0 < epsilon < math.inf:
        spent = np.bincount(state, weights=error * (up + down), minlength=n_states)
        shrink = np.minimum(epsilon / np.where(spent > 0.0, spent, epsilon), 1.0)[state]
        up, down = up * shrink, down * shrink
    policy = setting.baseline.copy()
    policy.put(mdp.pair_index[pairs], np.maximum(base + (up - down), 0.0))
    return policy
