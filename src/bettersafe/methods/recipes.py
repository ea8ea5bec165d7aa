"""Candidates of B-OPT: recipes that make a policy from a log, the same from the whole log as from a part of it.

    S-OPT           for several budgets ε
    Adv-Linearized  and its mixtures with the baseline
    G-OPT           for several budgets ε, with J_k ≥ J_k(π_b) − ζ_k
    cautious        in a model whose rewards are lowered by z standard deviations of the pair's one-step value (`one_step_sd`):
                    r_k(x,a) − z u_k(x,a). Pairs with few visits must be better by far to be chosen. With the constraints of S-OPT in
                    every state, and with those of G-OPT, for several z
    well-tried      pairs with fewer than n visits keep the baseline's probability (SPIBB's Π_b), for several n
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.methods.g_opt import g_opt_path
from bettersafe.methods.s_opt import Problem, iterate
from bettersafe.mdp.values import solve_policy
from bettersafe.typing import Floats, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bettersafe.mdp.values import Values
    from bettersafe.model import Model
    from bettersafe.typing import Progress


@dataclass(frozen=True, kw_only=True)
class CandidateGrid:
    """Candidates to make.

    Attributes:
        epsilons: Budgets ε of the S-OPT candidates.
        mixes: Shares of the baseline in mixtures with Adv-Linearized.
        g_epsilons: Budgets ε of the G-OPT candidates.
        cautions: z of the cautious candidates.
        least_visits: n of the well-tried candidates.
        with_g_opt: Whether to include G-OPT's policies; ignored if discounts differ, which G-OPT does not support.
    """

    epsilons: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)
    mixes: tuple[float, ...] = (0.0, 0.5)
    g_epsilons: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)
    cautions: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    least_visits: tuple[int, ...] = (5, 20)
    with_g_opt: bool = True


DEFAULT_GRID = CandidateGrid()


def make_recipes(
    model: Model,
    baseline: Floats,
    preference: Floats,
    *,
    sd: Floats,
    zeta: Floats | None = None,
    grid: CandidateGrid = DEFAULT_GRID,
    baseline_values: Values | None = None,
    progress: Progress | None = None,
) -> list[tuple[str, Floats]]:
    """Names and policies of all recipes of the grid, in a fixed order; a recipe without effect gives the baseline.

    Args:
        model: Estimated model.
        baseline: π_b, shape [X, A].
        preference: λ, shape [d].
        sd: u, the standard deviations of one-step values (`one_step_sd`), shape [d, P].
        zeta: ζ, the accepted losses, shape [d]; 0 if None.
        grid: Candidates to make.
        baseline_values: Values of π_b in the model, if already computed.
        progress: Callback after every round of policy iteration.
    """
    values = solve_policy(model.mdp, baseline) if baseline_values is None else baseline_values
    with_g = grid.with_g_opt and bool(np.all(model.mdp.discount == model.mdp.discount[0]))
    loss = np.zeros(model.mdp.n_objectives) if zeta is None else zeta
    found: list[tuple[str, Floats]] = []
    budgets = sorted({*grid.epsilons, *([np.inf] if grid.mixes else [])})
    tables = dict(_along(model, baseline, preference, budgets, values, progress))
    found += [(f"S-OPT ε = {epsilon:g}", tables[epsilon]) for epsilon in grid.epsilons]
    for mix in grid.mixes:
        name = f"Adv-Linearized, {100 * mix:.0f} % baseline" if mix else "Adv-Linearized"
        found.append((name, (1.0 - mix) * tables[np.inf] + mix * baseline))
    if with_g and grid.g_epsilons:
        path = _global(model, baseline, preference, grid.g_epsilons, loss, progress)
        found += [(f"G-OPT ε = {epsilon:g}", policy) for epsilon, policy in zip(grid.g_epsilons, path, strict=True)]
    for z in grid.cautions:
        lower = frozen(model.mdp.reward - z * sd, np.float64)
        cautious = _freed(replace(model, mdp=replace(model.mdp, reward=lower)), model.counts > 0)
        found.append((f"cautious S-OPT z = {z:g}", _local(cautious, baseline, preference, progress)))
        if with_g:
            found.append((f"cautious G-OPT z = {z:g}", _global(cautious, baseline, preference, (1.0,), loss, progress)[0]))
    for n in grid.least_visits:
        tried = _freed(model, model.counts >= n)
        found.append((f"well-tried n = {n}", _local(tried, baseline, preference, progress)))
    return found


def _freed(model: Model, free: Floats) -> Model:
    """The model with an error function that lets the pairs of ``free`` [P] change without limit, and freezes the others."""
    return replace(model, error=frozen(np.where(free, 0.0, np.inf), np.float64))


def _local(model: Model, baseline: Floats, preference: Floats, progress: Progress | None) -> Floats:
    """Policy with S-OPT's constraints in every state."""
    ((_, policy),) = _along(model, baseline, preference, [1.0], solve_policy(model.mdp, baseline), progress)
    return policy


def _global(
    model: Model,
    baseline: Floats,
    preference: Floats,
    epsilons: tuple[float, ...],
    zeta: Floats,
    progress: Progress | None,
) -> list[Floats]:
    """G-OPT's policies that lose at most ζ on any objective."""
    path = g_opt_path(model, baseline, preference=preference, epsilons=epsilons, margins=(0.0,), zeta=zeta, progress=progress)
    return [made.policy for made in path]


def _along(
    model: Model,
    baseline: Floats,
    preference: Floats,
    epsilons: list[float],
    values: Values,
    progress: Progress | None,
) -> Iterator[tuple[float, Floats]]:
    """S-OPT's policies for increasing budgets, each search started from the previous policy; evaluates the baseline once."""
    equal = bool(np.all(model.mdp.discount == model.mdp.discount[0]))
    start = None
    for epsilon in epsilons:
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
