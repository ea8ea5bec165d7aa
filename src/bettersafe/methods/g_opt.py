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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bettersafe import _kernel
from bettersafe.errors import (
    NoSolutionError,
    ParameterError,
    check_choice,
    check_epsilon,
    check_integer,
    check_type,
    check_vector,
)
from bettersafe.mdp.choices import ENGINES, Engine
from bettersafe.mdp.ends import check_ends, undiscounted
from bettersafe.mdp.mdp import MDP, dense_q, policy_matrix
from bettersafe.mdp.policy import check_policy
from bettersafe.mdp.programs import highs, resolve_engine
from bettersafe.mdp.values import Values, occupancy, solve_policy
from bettersafe.methods.result import Improvement, Search, check_preference, improvement
from bettersafe.methods.s_opt import Problem, cleaned_rows, iterate
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
        max_rounds: Limit on the number of policies computed by "native".
        progress: Callback after every policy.

    Examples:
        >>> found = bettersafe.g_opt(model, baseline, preference=[1.0, 0.0], epsilon=1.0)
        >>> bool((found.policy_return >= found.baseline_return - 1e-6).all())  # in the estimated model
        True
    """
    weights, base = _checked(model, baseline, preference, engine, max_rounds)
    check_epsilon(epsilon)
    floors = np.zeros(model.mdp.n_objectives)
    if margin is not None:
        floors = check_vector("margin", margin, model.mdp.n_objectives, "objective")
    if np.any(floors < 0.0):
        raise ParameterError(
            f"margin must not be negative (an accepted loss is a setting of the test: zeta); got {floors.tolist()}."
        )
    setting = _setting(model, base, solve_policy(model.mdp, base), every_action=math.isinf(epsilon))
    return _solve(setting, model, weights, epsilon, [floors], engine, [], max_rounds, progress)[0]


def g_opt_path(
    model: Model,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    epsilons: Sequence[float] = EPSILONS,
    margins: Sequence[float] = MARGINS,
    floors: Sequence[npt.ArrayLike] | None = None,
    engine: Engine = "auto",
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
        max_rounds: Limit on the number of policies computed for each.
        progress: Callback after every policy.

    Examples:
        >>> from bettersafe.methods import g_opt_path
        >>> path = g_opt_path(model, baseline, preference=[1.0, 0.0], epsilons=[0.3, 1.0], margins=[0.0])
        >>> [found.epsilon for found in path]
        [0.3, 1.0]
    """
    weights, base = _checked(model, baseline, preference, engine, max_rounds)
    for epsilon in epsilons:
        check_epsilon(epsilon)
    shares = check_vector("margins", margins, len(margins), "share of the baseline's return")
    if np.any(shares < 0.0):
        raise ParameterError(f"margins must not be negative; got {shares.tolist()}.")
    values = solve_policy(model.mdp, base)
    least = list(np.outer(shares, np.abs(values.v @ model.mdp.initial)))
    if floors is not None:
        least = [check_vector("floors", floor, model.mdp.n_objectives, "objective") for floor in floors]
    settings: dict[bool, _Setting] = {}
    met: list[_Column] = []
    found: dict[float, list[Improvement]] = {}
    for epsilon in sorted(set(epsilons)):
        every_action = math.isinf(epsilon)
        if every_action not in settings:
            settings[every_action] = _setting(model, base, values, every_action=every_action)
        found[epsilon] = _solve(
            settings[every_action], model, weights, epsilon, least, engine, met, max_rounds, progress
        )
    return [result for epsilon in epsilons for result in found[epsilon]]


def _checked(
    model: Model, baseline: npt.ArrayLike, preference: npt.ArrayLike, engine: Engine, max_rounds: int
) -> tuple[Floats, Floats]:
    """λ and π_b. Raises ParameterError or PolicyError if an argument is not valid."""
    check_type("model", model, Model)
    mdp = model.mdp
    check_choice("engine", engine, ENGINES)
    base = check_policy(baseline, mdp.n_states, mdp.n_actions, name="baseline", state_labels=model.state_labels)
    weights = check_preference(preference, mdp.n_objectives)
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


@dataclass(frozen=True, kw_only=True)
class _Column:
    """Policy within the budget, with its occupancy and gains."""

    policy: Floats  # [X, A]
    visits: Floats  # ρ(x), [X]
    gain: Floats  # J_k(π) − J_k(π_b), [d]


def _setting(model: Model, baseline: Floats, values: Values, *, every_action: bool) -> _Setting:
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
    return _Setting(
        mdp=mdp,
        error=error,
        baseline=baseline,
        values=values,
        advantage=cleaned_rows(mdp, values.q - values.v[:, mdp.pair_state], values.error),
        visits=np.maximum(occupancy(mdp, baseline), 0.0),
    )


def _solve(
    setting: _Setting,
    model: Model,
    preference: Floats,
    epsilon: float,
    margins: list[Floats],
    engine: Engine,
    met: list[_Column],
    max_rounds: int,
    progress: Progress | None,
) -> list[Improvement]:
    """One improvement for each of the margins, each of shape [d]; useful policies are added to ``met``."""
    quick = _kernel.compiled is not None or setting.mdp.n_pairs > LP_PAIRS or undiscounted(setting.mdp)
    form = "multipliers" if engine == "native" or (engine == "auto" and quick) else "lp"
    searches = list(
        _by_lp(setting, preference, epsilon, margins, progress)
        if form == "lp"
        else _by_multipliers(setting, preference, epsilon, margins, met, max_rounds, progress)
    )
    results: list[Improvement] = []
    for found in searches:
        if results and np.array_equal(found.policy, results[-1].policy):  # the previous policy reaches this margin too
            last = replace(results[-1], rounds=found.rounds, converged=found.converged, gap=found.gap, kept=found.kept)
            results.append(replace(last, reason=found.reason))
            continue
        results.append(improvement("g-opt", model, setting.baseline, found, preference=preference, epsilon=epsilon))
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


def _by_multipliers(
    setting: _Setting,
    preference: Floats,
    epsilon: float,
    margins: list[Floats],
    met: list[_Column],
    max_rounds: int,
    progress: Progress | None,
) -> Iterator[Search]:
    """Column generation; policies in ``met`` must be within the budget, and useful new ones are added."""
    columns = _Columns(setting, preference, epsilon, met, max_rounds, progress)
    unbounded = 0.0  # largest gain of J_λ without constraints on the objectives
    if np.any(preference):
        best = columns.respond(preference)
        unbounded = float(preference @ best.gain)
        columns.report(unbounded, 0.0)
        columns.add(best)
    unreachable: list[Floats] = []
    used = {0}
    for margin in margins:
        hopeless = any(np.all(margin >= other) for other in unreachable)
        share, open_end = columns.reach(margin, hopeless=hopeless)
        if share < 1.0 - OPTIMAL_TOL:
            reason = f"the margins were not reached with {columns.rounds} policies" if open_end else UNREACHABLE
            if not open_end:
                unreachable.append(margin)
            yield columns.found(setting.baseline, converged=not open_end, reason=reason)
            continue
        mixture, gap, converged = columns.climb(margin, share, unbounded)
        gains = columns.gains()
        small = OPTIMAL_TOL * float(preference @ np.max(np.abs(gains), axis=0))
        idle = not np.any(margin > 0.0) and mixture.objective <= small  # no gain: keep the baseline
        policy = setting.baseline if idle else _mixed(met, mixture.weights, setting.baseline)
        yield columns.found(policy, gap=gap, converged=converged)
        used |= set(np.flatnonzero(mixture.weights > 0.0).tolist())
    met[:] = [column for i, column in enumerate(met) if i in used]  # the others are rarely useful later


class _Columns:
    """Policies of the column generation, and the rounds since the last result."""

    def __init__(
        self,
        setting: _Setting,
        preference: Floats,
        epsilon: float,
        met: list[_Column],
        max_rounds: int,
        progress: Progress | None,
    ) -> None:
        self.setting, self.preference, self.epsilon = setting, preference, epsilon
        self.met, self.max_rounds, self.progress = met, max_rounds, progress
        self.engine = resolve_engine("auto")
        self.kept, self.rounds = NOTHING, 0
        if not met:
            nothing = np.zeros(setting.mdp.n_objectives)
            met.append(_Column(policy=setting.baseline, visits=setting.visits, gain=nothing))

    def respond(self, weights: Floats) -> _Column:
        """Best policy within the budget for these weights."""
        setting, mdp = self.setting, self.setting.mdp
        near = max(self.met, key=lambda column: float(weights @ column.gain))
        problem = Problem(
            mdp=mdp,
            baseline=setting.baseline,
            error=setting.error,
            preference=weights,
            epsilon=self.epsilon,
            constrained=False,
        )
        search = iterate(
            problem,
            engine=self.engine,
            baseline_values=setting.values,
            start=None if near is self.met[0] else near.policy,
        )
        self.kept, self.rounds = search.kept, self.rounds + 1
        visits = np.maximum(occupancy(mdp, search.policy), 0.0)
        moved = (search.policy - setting.baseline).take(mdp.pair_index) * visits[mdp.pair_state]
        return _Column(policy=search.policy, visits=visits, gain=setting.advantage @ moved)

    def gains(self) -> Floats:
        """Gains of all policies in ``met``, shape [n, d]."""
        return np.array([column.gain for column in self.met])

    def add(self, column: _Column) -> bool:
        """Add a policy unless one with the same gains is there already; whether it was added."""
        gains = self.gains()
        scale = np.maximum(np.max(np.abs(gains), axis=0), np.abs(column.gain))
        if np.any(np.all(np.abs(gains - column.gain) <= REPEATED * scale, axis=1)):
            return False
        self.met.append(column)
        return True

    def report(self, gain: float, level: float) -> None:
        """Report the last policy to ``progress``."""
        if self.progress is not None:
            start = float(self.preference @ self.setting.values.v @ self.setting.mdp.initial)
            self.progress(Event(done=self.rounds, unit="rounds", gain=gain, scalar_return=start + level))

    def found(self, policy: Floats, *, gap: float = 0.0, converged: bool, reason: str = "") -> Search:
        """Search result for one margin; resets the count of rounds."""
        rounds, self.rounds = self.rounds, 0
        return _found(
            self.setting, "multipliers", policy, rounds, gap=gap, converged=converged, kept=self.kept, reason=reason
        )

    def reach(self, margin: Floats, *, hopeless: bool) -> tuple[float, bool]:
        """Largest share t of the margins that a mixture reaches, and whether more policies might reach more.

        A policy that reaches t satisfies ν·g(π) ≥ t ν·margin, so the best response to ν bounds t. The search stops if a mixture
        reaches t = 1 or a bound on t is below 1.
        """
        share = 0.0 if np.any(margin > 0.0) else 1.0
        open_end = not hopeless
        while open_end and share < 1.0 - OPTIMAL_TOL:
            gains = self.gains()
            mixture = _mixture(gains, self.preference, margin, reach=True)
            share = mixture.share
            if share >= 1.0 - OPTIMAL_TOL or self.rounds >= self.max_rounds:
                break
            nu = mixture.multipliers
            column = self.respond(nu)
            value = float(nu @ column.gain)
            self.report(value - mixture.level, 0.0)
            noise = OPTIMAL_TOL * float(nu @ np.max(np.abs(gains), axis=0))
            enough = max((1.0 - OPTIMAL_TOL) * float(nu @ margin), mixture.level + noise)
            open_end = value > enough and self.add(column)
        return share, open_end

    def climb(self, margin: Floats, share: float, bound: float) -> tuple[_Mixture, float, bool]:
        """Mixture with the largest J_λ, its optimality gap, and whether the search converged.

        Best responses bound the gain of J_λ from above, mixtures from below; ``bound`` is a first upper bound.
        """
        while True:
            gains = self.gains()
            mixture = _mixture(gains, self.preference, min(share, 1.0) * margin, reach=False)
            weights = self.preference + mixture.multipliers
            tol = OPTIMAL_TOL * float(weights @ np.max(np.abs(gains), axis=0))
            converged = bound - mixture.objective <= tol
            if converged or self.rounds >= self.max_rounds:
                break
            column = self.respond(weights)
            value = float(weights @ column.gain - mixture.multipliers @ margin)
            self.report(value - mixture.objective, mixture.objective)
            bound = min(bound, value)
            if not self.add(column):
                converged = True
                break
        return mixture, max(bound - mixture.objective, 0.0), converged


@dataclass(frozen=True, kw_only=True)
class _Mixture:
    weights: Floats  # weights of the policies, [n]
    multipliers: Floats  # ν, [d]
    level: float  # a policy improves the mixture if its (λ + ν)-gain is larger
    objective: float  # λ-gain
    share: float  # share of the margins that is reached


def _mixture(gains: Floats, preference: Floats, margin: Floats, *, reach: bool) -> _Mixture:
    """Best mixture of policies with these gains [n, d]: for λ subject to the margins, or (reach) for the margins alone.

        max Σ_i w_i λ·g_i   s.t.  Σ_i w_i g_ik ≥ margin_k,     Σ_i w_i = 1,  w ≥ 0
        max t               s.t.  Σ_i w_i g_ik ≥ t margin_k,   Σ_i w_i = 1,  w ≥ 0,  t ≤ 1

    The policies must include the baseline, whose gains are 0. Every objective is scaled by its size.
    """
    n, d = gains.shape
    value = gains @ preference
    multipliers = np.zeros(d)
    needed = np.flatnonzero(np.any(gains < margin, axis=0))  # every mixture satisfies the other rows
    if needed.size == 0:
        top = int(np.argmax(value))
        best = float(value[top])
        return _Mixture(weights=np.eye(n)[top], multipliers=multipliers, level=best, objective=best, share=1.0)
    size = np.maximum(np.max(np.abs(gains[:, needed]), axis=0), margin[needed])
    goal = margin[needed] / size
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
    if answer.status != 0:
        raise NoSolutionError(f"the mixture of policies was not solved: {answer.message}")
    unit = 1.0 if reach else scale
    multipliers[needed] = np.maximum(-answer.ineqlin.marginals, 0.0) * unit / size
    weights = np.maximum(answer.x[:n], 0.0)
    weights /= weights.sum()
    return _Mixture(
        weights=weights,
        multipliers=multipliers,
        level=-float(answer.eqlin.marginals[0]) * unit,
        objective=float(weights @ value),
        share=float(answer.x[n]) if reach else 1.0,
    )


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
        if answer.status == 2 and np.any(margin):
            yield _found(setting, "lp", baseline, 1, reason=UNREACHABLE)
            continue
        if answer.status != 0:
            raise NoSolutionError(f'the program of g-opt was not solved: {answer.message}. Try the engine "native".')
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
