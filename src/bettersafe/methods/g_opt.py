"""G-OPT: no objective loses from the start on, instead of in every state; one program over discounted occupancies.

With ρ(x) = Σ_a ρ(x,a), and everything in the estimated model,

    max  Σ ρ r_λ
    s.t. ρ(x) − γ Σ_{x̃,ã} p(x|x̃,ã) ρ(x̃,ã) = μ(x)                         the flow, in every state
         Σ_a e(x,a) |ρ(x,a) − π_b(a|x) ρ(x)| ≤ ε ρ(x)                       the budget, in every state
         Σ ρ r_k ≥ J_k(π_b) + margin_k                                      for every objective k
    π(a|x) = ρ(x,a)/ρ(x),  π_b(a|x) where ρ(x) = 0

S-OPT asks Σ_a π Adv_k ≥ 0 in every state, which leaves ever less room as d grows; here a loss in one state may be made up
in another, and every policy of S-OPT is feasible. It lies outside the theorem behind S-OPT: its safety must come from a test.

Both forms of the program work in deviations z(x,a) = ρ(x,a) − π_b(a|x) ρ(x). Pairs that are frozen (e = ∞, or not stored, unless ε = ∞)
have z = 0, so what π_b plays of them stays as it is, and by the performance-difference lemma

    J_k(π) − J_k(π_b) = Σ_{x,a} z(x,a) Adv_k^{π_b}(x,a)

whatever those pairs are worth. This also keeps rewards of 1000 and of 1 apart: each row has its own unit.

    "lp"           (engine "highs") the program as it stands, by HiGHS: z = p − n with p ≥ 0, 0 ≤ n ≤ π_b ρ(x)
    "multipliers"  (engine "native") column generation. For multipliers ν ≥ 0 of the d rows the best policy is that of Soft-SPIBB with the
                   preference λ + ν; a small program picks the best mixture of the occupancies met and gives the next ν. When
                   no policy improves the Lagrangian, the mixture is optimal.

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
from bettersafe.errors import NoSolutionError, ParameterError, check_choice, check_epsilon, check_type, check_vector
from bettersafe.mdp.choices import ENGINES, Engine
from bettersafe.mdp.mdp import MDP, dense_q
from bettersafe.mdp.policy import check_policy
from bettersafe.mdp.programs import highs, resolve_engine
from bettersafe.mdp.values import Values, occupancy, policy_matrix, solve_policy
from bettersafe.methods.result import Improvement, Search, check_preference, improvement
from bettersafe.methods.s_opt import Problem, cleaned_rows, iterate
from bettersafe.model import Model
from bettersafe.typing import Event, Floats, Ints, Progress, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)

MARGINS = (0.0, 0.05, 0.15)
"""Budgets of the path, and margins as shares of the baseline's returns."""

LP_PAIRS = 20_000
"""Where the kernel was not built, "auto" takes "highs" up to this many pairs: one large program beats many small ones."""

OPTIMAL_TOL = 1e-9
"""Shares of the largest gains met: column generation ends at this gap, and a gain below it is none."""

REPEATED = 1e-12
"""Difference of gains, as a share of the largest, up to which a policy is one that was met before."""

RARELY_VISITED = 1e-4
"""Unit of visits of states where π_b is less often; elsewhere its own visits are the unit."""

NEVER_VISITED = 1e-9
"""Visits, in those units, up to which a state counts as never visited: HiGHS works to about this."""

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
    """G-OPT: the best policy for λ that stays within the budget and whose return reaches J_k(π_b) + margin_k on every k.

    Where no policy within the budget reaches the margins, the baseline is returned, and the status says so.

    Args:
        model: The estimated model; its discounts must be equal.
        baseline: π_b, shape [X, A].
        preference: λ ≥ 0, shape [d].
        epsilon: Deviation budget ε; 0 returns the baseline, inf frees every action, tried or not.
        margin: What every objective must gain, ≥ 0, shape [d], in units of return; 0 if left out.
        engine: "highs" (one large program), "native" (many small ones), or "auto".
        max_rounds: Cap on the policies that "native" looks at.
        progress: Called after every one of them.

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
            f"margin must not be negative (a loss that is accepted is a matter of the test: zeta); got {floors.tolist()}."
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
    engine: Engine = "auto",
    max_rounds: int = 1000,
    progress: Progress | None = None,
) -> list[Improvement]:
    """`g_opt` for every budget and, within each, every margin: candidates for a method that chooses among policies.

    What was learned for one is used for the next: a policy within a budget is within every larger one.

    Args:
        model: The estimated model; its discounts must be equal.
        baseline: π_b, shape [X, A].
        preference: λ ≥ 0, shape [d].
        epsilons: Budgets ε.
        margins: Shares c ≥ 0: objective k must gain c |J_k(π_b)|.
        engine: "highs" (one large program), "native" (many small ones), or "auto".
        max_rounds: Cap on the policies looked at for each.
        progress: Called after every one of them.

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
    floors = np.outer(shares, np.abs(values.v @ model.mdp.initial))
    settings: dict[bool, _Setting] = {}
    met: list[_Column] = []
    found: dict[float, list[Improvement]] = {}
    for epsilon in sorted(set(epsilons)):
        every_action = math.isinf(epsilon)
        if every_action not in settings:
            settings[every_action] = _setting(model, base, values, every_action=every_action)
        found[epsilon] = _solve(
            settings[every_action], model, weights, epsilon, list(floors), engine, met, max_rounds, progress
        )
    return [result for epsilon in epsilons for result in found[epsilon]]


def _checked(
    model: Model, baseline: npt.ArrayLike, preference: npt.ArrayLike, engine: Engine, max_rounds: int
) -> tuple[Floats, Floats]:
    """λ and π_b, or an error that says what is wrong with the arguments."""
    check_type("model", model, Model)
    mdp = model.mdp
    check_choice("engine", engine, ENGINES)
    base = check_policy(baseline, mdp.n_states, mdp.n_actions, name="baseline", state_labels=model.state_labels)
    weights = check_preference(preference, mdp.n_objectives)
    if max_rounds < 1:
        raise ParameterError(f"max_rounds must be at least 1; got {max_rounds}.")
    if np.any(mdp.discount != mdp.discount[0]):
        raise ParameterError(
            f"g-opt needs equal discounts: its program has one occupancy for all objectives; got {mdp.discount.tolist()}."
            " Give all objectives one discount, or use s-opt."
        )
    return weights, base


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """What does not depend on λ, ε and the margins.

    ``mdp`` stores every pair that may move; where ε = ∞ that is every pair there is.
    """

    mdp: MDP
    error: Floats  # [P]
    baseline: Floats  # [X, A]
    values: Values  # of π_b
    advantage: Floats  # of π_b, without rounding, [d, P]
    visits: Floats  # ρ(x) of π_b, [X]


@dataclass(frozen=True, kw_only=True)
class _Column:
    """A policy within the budget, how often it is where, and what it gains."""

    policy: Floats  # [X, A]
    visits: Floats  # ρ(x), [X]
    gain: Floats  # J_k(π) − J_k(π_b), [d]


def _setting(model: Model, baseline: Floats, values: Values, *, every_action: bool) -> _Setting:
    mdp, error = model.mdp, model.error
    if every_action and mdp.n_pairs < mdp.n_states * mdp.n_actions:
        # a pair that was never tried pays what it is said to be worth, and ends the process
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
    """One improvement for each of the margins, each [d]; policies found on the way are added to those ``met``."""
    quick = _kernel.compiled is not None or setting.mdp.n_pairs > LP_PAIRS
    form = "multipliers" if engine == "native" or (engine == "auto" and quick) else "lp"
    searches = list(
        _by_lp(setting, preference, epsilon, margins, progress)
        if form == "lp"
        else _by_multipliers(setting, preference, epsilon, margins, met, max_rounds, progress)
    )
    results: list[Improvement] = []
    for found in searches:
        if results and np.array_equal(found.policy, results[-1].policy):  # a margin that is reached anyway
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
    """A policy that keeps every row, or the baseline and the reason why."""
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
    """Column generation; the policies ``met`` must be within the budget, and those of use in the end are added to them."""
    columns = _Columns(setting, preference, epsilon, met, max_rounds, progress)
    unbounded = 0.0  # the best J_λ gains where no objective need be cared for
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
        idle = not np.any(margin) and mixture.objective <= small  # no deviation without a reason
        policy = setting.baseline if idle else _mixed(met, mixture.weights, setting.baseline)
        yield columns.found(policy, gap=gap, converged=converged)
        used |= set(np.flatnonzero(mixture.weights > 0.0).tolist())
    met[:] = [column for i, column in enumerate(met) if i in used]  # few of the others would be of use elsewhere


class _Columns:
    """The policies met by column generation, and the work done since the last answer."""

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
        """The best policy within the budget for these weights."""
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
        """Of all policies met, shape [n, d]."""
        return np.array([column.gain for column in self.met])

    def add(self, column: _Column) -> bool:
        """Whether it is new; nothing is to be won from a policy that was met before."""
        gains = self.gains()
        scale = np.maximum(np.max(np.abs(gains), axis=0), np.abs(column.gain))
        if np.any(np.all(np.abs(gains - column.gain) <= REPEATED * scale, axis=1)):
            return False
        self.met.append(column)
        return True

    def report(self, gain: float, level: float) -> None:
        """Tell ``progress`` of the last policy."""
        if self.progress is not None:
            start = float(self.preference @ self.setting.values.v @ self.setting.mdp.initial)
            self.progress(Event(done=self.rounds, unit="rounds", gain=gain, scalar_return=start + level))

    def found(self, policy: Floats, *, gap: float = 0.0, converged: bool, reason: str = "") -> Search:
        """The answer for one margin; rounds are counted anew for the next."""
        rounds, self.rounds = self.rounds, 0
        return _found(
            self.setting, "multipliers", policy, rounds, gap=gap, converged=converged, kept=self.kept, reason=reason
        )

    def reach(self, margin: Floats, *, hopeless: bool) -> tuple[float, bool]:
        """The largest share t of the margins that can be reached, and whether more might be with more policies.

        ν·g(π) ≥ t ν·margin for what reaches it, so the best response to ν bounds it. All is well when some mixture reaches 1, and
        all is lost when some bound is below.
        """
        share = 0.0 if np.any(margin) else 1.0
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
        """The mixture with the best J_λ, how much more there may be at most, and whether the search had settled.

        Every response bounds J_λ from above, every mixture from below; ``bound`` is a first bound on its gain.
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
    weights: Floats  # of the policies met, [n]
    multipliers: Floats  # ν, [d]
    level: float  # a policy helps when its (λ + ν)-gain is above
    objective: float  # λ-gain
    share: float  # of the margins that is reached


def _mixture(gains: Floats, preference: Floats, margin: Floats, *, reach: bool) -> _Mixture:
    """The best mixture of policies with these gains [n, d]: for λ within the margins, or (reach) for the margins alone.

        max Σ_i w_i λ·g_i   s.t.  Σ_i w_i g_ik ≥ margin_k,     Σ_i w_i = 1,  w ≥ 0
        max t               s.t.  Σ_i w_i g_ik ≥ t margin_k,   t ≤ 1, the same otherwise

    The baseline, which gains nothing, must be among the policies. Every objective is in units of its own size.
    """
    n, d = gains.shape
    value = gains @ preference
    multipliers = np.zeros(d)
    needed = np.flatnonzero(np.any(gains < margin, axis=0))  # the other rows hold for every mixture
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
        presolve=False,  # small and dense: there is nothing to be found, and it takes half of the time
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
    """The policy whose occupancy is the mixture's: in every state a mean of rows, weighted by w_i ρ_i(x)."""
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
    """The program over (ρ(x), p, n), by HiGHS.

    Visits of a state are in units of the baseline's, so that a state that is seldom visited is solved as well as others.
    """
    mdp, baseline = setting.mdp, setting.baseline
    gamma, n_states = float(mdp.discount[0]), mdp.n_states
    weight = baseline.take(mdp.pair_index)
    free = np.isfinite(setting.error) if epsilon > 0.0 else setting.error == 0.0
    pairs = np.flatnonzero(free | math.isinf(epsilon))
    state, error, base = mdp.pair_state[pairs], setting.error[pairs], weight[pairs]
    lower = np.flatnonzero(base > 0.0)  # pairs that can be played less
    unit = np.maximum(setting.visits, RARELY_VISITED)
    change = sparse.hstack([sparse.eye_array(pairs.size), -sparse.eye_array(pairs.size, format="csc")[:, lower]])
    change = sparse.csr_array(change * np.append(unit[state], unit[state[lower]]))  # z from (p, n)
    at = sparse.csr_array((np.ones(pairs.size), (state, np.arange(pairs.size))), shape=(n_states, pairs.size))
    advantage = setting.advantage[:, pairs]
    gain = np.asarray((change.T @ advantage.T).T)  # of every objective by (p, n), [d, variables]
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
    limited = np.flatnonzero(2.0 * largest > epsilon)  # where the budget can bind: Σ_a |z| ≤ 2 ρ(x)
    if epsilon > 0.0 and limited.size:
        spent = sparse.diags_array(1.0 / unit) @ at @ sparse.diags_array(error) @ abs(change)
        budget = sparse.hstack([sparse.diags_array(np.full(n_states, -epsilon)), spent], format="csr")
        rows.insert(0, sparse.diags_array(1.0 / largest[limited]) @ budget[limited])
    inequalities, equalities = (sparse.csc_array(sparse.vstack(part)) for part in (rows, [flow, balance]))
    target = np.append(mdp.initial / unit, np.zeros(n_states))
    for margin in margins:
        if not np.any(size) or np.any(margin[size == 0.0] > 0.0):  # nothing can move, or not what should
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
                break  # that there is no solution is believed when both say so: presolve can be wrong about it
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
        if np.any(margin) or value > small:
            visits = unit * np.where(answer.x[:n_states] > NEVER_VISITED, answer.x[:n_states], 0.0)
            z = change @ np.maximum(answer.x[n_states:], 0.0)
            policy = _projected(setting, pairs, z / np.where(visits > 0.0, visits, math.inf)[state], epsilon)
        yield _found(setting, "lp", policy, 1, gap=abs(float(answer.fun - dual)) * scale)


def _projected(setting: _Setting, pairs: Ints, deviation: Floats, epsilon: float) -> Floats:
    """π_b + the deviations of ``pairs``, after what HiGHS leaves of its tolerances is taken off: always towards π_b."""
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
