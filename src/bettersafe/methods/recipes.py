"""Candidates of B-OPT: recipes that make a policy from a log, the same from the whole log as from a part of it.

Candidates are made in the *posterior mean* of the model, not in the model of frequencies: a pair with few visits then has the value
that other pairs suggest, and the best policy of that model is not the one that was luckiest. Rewards may be lowered by z standard
deviations of the pair's one-step value (`one_step_sd`), r_k(x,a) − z u_k(x,a), so that pairs with few visits must be better by far.

    global    G-OPT without a budget: the best J_λ subject to J_k ≥ J_k(π_b) − ζ_k + margin_k, for several z and margins. Margins are
              multiples of the posterior standard deviation of the gain of the policy without a margin
    local     no objective loses in any state (S-OPT's constraints without a budget), for several z
    well-tried  global, but pairs with fewer than n visits keep the baseline's probability (SPIBB's Π_b), for several n
    budget    S-OPT for several budgets ε, in the model of frequencies; only if they are asked for

Pairs without data keep the baseline's probability in all of them. With different discounts there are no global candidates, but
mixtures of the local ones with the baseline.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.errors import ParameterError, as_array, as_numbers, check_options
from bettersafe.mdp.values import solve_policy
from bettersafe.methods.g_opt import GOptSearch
from bettersafe.methods.s_opt import Problem, iterate
from bettersafe.typing import Bools, Floats, frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bettersafe.mdp.values import Values
    from bettersafe.model import Model
    from bettersafe.typing import Progress


@dataclass(frozen=True, kw_only=True)
class CandidateGrid:
    """Candidates to make.

    Attributes:
        cautions: z of the global candidates.
        margins: Margins of the global candidates, in addition to 0, in units of the margin that the risk asks for (`full_margin`).
        local_cautions: z of the local candidates.
        mixes: Shares of the baseline in mixtures with the local candidates, if discounts differ.
        epsilons: Budgets ε of the S-OPT candidates; none by default: on known worlds they gained nothing.
        least_visits: n of the well-tried candidates.
        audited: Whether to measure the optimism of the candidates and take it off (`audit`).
    """

    cautions: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0)
    margins: tuple[float, ...] = (1.0, 1.8)
    local_cautions: tuple[float, ...] = (0.0, 1.0, 3.0)
    mixes: tuple[float, ...] = (0.3, 0.7)
    epsilons: tuple[float, ...] = ()
    least_visits: tuple[int, ...] = (10,)
    audited: bool = True

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self)[:-1]:
            values = as_numbers(field.name, getattr(self, field.name))
            if values.ndim != 1 or not np.all(values >= 0.0):
                raise ParameterError(f"{field.name} must be a list of numbers, 0 or more; got {values.tolist()}.")
            object.__setattr__(self, field.name, tuple(values.tolist()))
        object.__setattr__(self, "least_visits", tuple(as_array("least_visits", self.least_visits, np.int64).tolist()))
        if not all(mix <= 1.0 for mix in self.mixes):
            raise ParameterError(f"mixes must be shares of the baseline, at most 1; got {list(self.mixes)}.")
        check_options(audited=self.audited)


SPARE = 0.5
"""Standard deviations added to the margin that the risk asks for, because a policy with a margin is judged more strictly than by it."""

CANDIDATE_TOL = 1e-6
"""Optimality gap of the global candidates, as a share of the gains."""

DEFAULT_GRID = CandidateGrid()


def make_recipes(
    model: Model,
    baseline: Floats,
    preference: Floats,
    *,
    mean_model: Model,
    sd: Floats,
    gain_sd: Callable[[Floats], Floats],
    delta: float,
    zeta: Floats | None = None,
    grid: CandidateGrid = DEFAULT_GRID,
    progress: Progress | None = None,
) -> list[tuple[str, Floats]]:
    """Names and policies of all recipes of the grid, in a fixed order; a recipe without effect gives the baseline.

    Args:
        model: Estimated model.
        baseline: π_b, shape [X, A].
        preference: λ, shape [d].
        mean_model: Posterior mean of the model.
        sd: u, the standard deviations of one-step values (`one_step_sd`), shape [d, P].
        gain_sd: Posterior standard deviations of a policy's gains, shape [d].
        delta: δ.
        zeta: ζ, the accepted losses, shape [d]; 0 if None.
        grid: Candidates to make.
        progress: Callback after every round of policy iteration.
    """
    equal = bool(np.all(model.mdp.discount == model.mdp.discount[0]))
    loss = np.zeros(model.mdp.n_objectives) if zeta is None else zeta
    tried = model.counts > 0
    found: list[tuple[str, Floats]] = []
    progress = _counting(found, progress)
    if equal:
        search = _search(mean_model, tried, baseline, preference, progress)
    for z in grid.cautions if equal else ():
        search.set_reward(mean_model.mdp.reward - z * sd)
        (policy,) = search.policies([-loss])
        found.append((f"global, z = {z:g}", policy))
        width = full_margin(delta, loss.size) * gain_sd(policy)
        policies = search.policies([margin * width - loss for margin in grid.margins])
        found += [
            (f"global, z = {z:g}, margin {margin:g}", each) for margin, each in zip(grid.margins, policies, strict=True)
        ]
    for z in grid.local_cautions:
        policy = _local(_cautious(mean_model, z * sd, tried), baseline, preference, progress)
        found.append((f"local, z = {z:g}", policy))
        for mix in () if equal else grid.mixes:
            found.append((f"local, z = {z:g}, {100 * mix:.0f} % baseline", (1.0 - mix) * policy + mix * baseline))
    if grid.epsilons:
        values = solve_policy(model.mdp, baseline)
        for epsilon, policy in _along(model, baseline, preference, grid.epsilons, values, progress):
            found.append((f"S-OPT ε = {epsilon:g}", policy))
    for n in grid.least_visits if equal else ():
        well = _search(mean_model, model.counts >= n, baseline, preference, progress)
        found.append((f"well-tried, n = {n}", well.policies([-loss])[0]))
    return found


def _counting(found: list[tuple[str, Floats]], progress: Progress | None) -> Progress | None:
    """``progress`` with the number of the candidate in its events."""
    if progress is None:
        return None
    return lambda event: progress(replace(event, what=f"Making candidates: number {len(found) + 1}"))


def full_margin(delta: float, n_objectives: int) -> float:
    """Posterior standard deviations that each of d gains must lie above −ζ, so that the risks add up to less than δ."""
    from scipy.special import ndtri

    return float(ndtri(1.0 - delta / n_objectives)) + SPARE


def _cautious(model: Model, lower: Floats, free: Bools) -> Model:
    """The model with lower rewards, in which the pairs of ``free`` [P] may change without limit and the others are frozen."""
    return replace(
        model,
        mdp=replace(model.mdp, reward=frozen(model.mdp.reward - lower, np.float64)),
        error=frozen(np.where(free, 0.0, np.inf), np.float64),
    )


def _local(model: Model, baseline: Floats, preference: Floats, progress: Progress | None) -> Floats:
    """Policy with S-OPT's constraints in every state."""
    ((_, policy),) = _along(model, baseline, preference, [1.0], solve_policy(model.mdp, baseline), progress)
    return policy


def _search(model: Model, free: Bools, baseline: Floats, preference: Floats, progress: Progress | None) -> GOptSearch:
    """G-OPT in which the pairs of ``free`` [P] may change without limit and the others are frozen."""
    limited = replace(model, error=frozen(np.where(free, 0.0, np.inf), np.float64))
    return GOptSearch(limited, baseline, preference=preference, epsilon=1.0, tol=CANDIDATE_TOL, progress=progress)


def _along(
    model: Model,
    baseline: Floats,
    preference: Floats,
    epsilons: Sequence[float],
    values: Values,
    progress: Progress | None,
) -> Iterator[tuple[float, Floats]]:
    """S-OPT's policies for increasing budgets, each search started from the previous policy; evaluates the baseline once."""
    equal = bool(np.all(model.mdp.discount == model.mdp.discount[0]))
    start = None
    for epsilon in sorted(epsilons):
        problem = Problem(
            mdp=model.mdp,
            baseline=baseline,
            error=model.error,
            preference=preference,
            epsilon=epsilon,
            constrained=True,
        )
        found = iterate(problem, progress=progress, baseline_values=values, start=start)
        start = found.policy if equal else None  # with different discounts, the result depends on the start
        yield epsilon, found.policy
