"""B-OPT: of many candidates made from all the data, the best one that is no worse than the baseline with probability 1 − δ.

The paper asks (its equation 1) for a policy with

    P( for all k:  J_k(π) − J_k(π_b) ≥ −ζ_k  |  D )  ≥  1 − δ

a *posterior* probability, and approaches it with a budget (S-OPT) or a held-out test (H-OPT). In a finite process it can be
computed: draw M processes from the posterior (`posterior`), evaluate every candidate and the baseline in each, and count. A
candidate passes when

    neutral       (failures + 1) / (M + 1) ≤ δ,   a failure being a draw in which some objective loses more than ζ_k
    pessimistic   (Σ_k failures_k + 1) / (M + 1) ≤ δ,  failures_k under the prior that is pessimistic for k, on k alone

(+1 for the Monte-Carlo error), and of those that pass the one with the best posterior mean of J_λ is returned; else the
baseline. Nothing is split and nothing is tuned, so λ may be changed after looking: the posterior does not depend on it.

Draws take as long as the log has distinct transitions, times M, times priors. For a large one (`MOST_DRAWN`) the same is asked *by
linearisation*, without draws: to first order in the rows of p gains are sums over independent pairs, and taken for jointly normal

    neutral       P(no objective loses more than ζ_k) ≥ 1 − δ        pessimistic   Σ_k P(k loses more than ζ_k) ≤ δ

Candidates: S-OPT along ε, mixtures of Adv-Linearized with the baseline, G-OPT along ε and margins, and any policies that are
handed in. The promise is Bayesian: as good as its set of priors, which the certificate names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from bettersafe.errors import ParameterError, check_choice, check_probability, check_vector
from bettersafe.mdp.mdp import check_policy
from bettersafe.mdp.programs import resolve_engine
from bettersafe.mdp.values import expected_return, policy_values, solve_policy
from bettersafe.methods import g_opt, result, s_opt
from bettersafe.methods.g_opt import g_opt_path
from bettersafe.methods.result import Round
from bettersafe.posterior.draws import shared_gains
from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.linearised_counts import CountedOutcomes, Prior, Side, prior_of, side_of, step_gains
from bettersafe.posterior.outcomes import Outcomes
from bettersafe.posterior.priors import Neutral, Posterior, posterior
from bettersafe.posterior.rule import draw_error, posterior_passes
from bettersafe.typing import Floats, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bettersafe.mdp.values import Values
    from bettersafe.methods.result import Improvement
    from bettersafe.model import Model
    from bettersafe.posterior.draws import RayCluster


Form = Literal["auto", "draws", "linearised"]
FORMS: tuple[Form, ...] = ("auto", "draws", "linearised")
EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
MIXES = (0.0, 0.25, 0.5, 0.75)
DRAWS = 200

MOST_DRAWN = 1e9
"""Distinct transitions × draws × priors beyond which "auto" is the linearised form: about ten minutes of one core."""

MOST_G_OPT = 2e5
"""Distinct transitions beyond which the linearised form has no G-OPT candidates: a path of them takes many minutes."""

SCREEN = 4.0
"""A candidate is looked at closely unless its linearised chance of failing is this many times δ (and at least this much
above it in standard errors of the draws)."""

ROUNDING = 1e-9
"""Losses below this share of the largest value are rounding: an objective that no action changes is not lost on."""

NORMAL_POINTS = 2048
"""Points at which the linearised form asks for P(safe) of several objectives."""

FIRST_LOOK = 50
"""Draws after which a candidate that can't pass any more is left."""


@dataclass(frozen=True, kw_only=True)
class Judging:
    """How far the posterior has come with what it is asked; handed to ``progress``."""

    what: str
    done: int
    total: int
    unit: Literal["candidates", "priors", "draws"]


Progress = Callable[[Round | Judging], None]
"""Hears of every round of a candidate's policy iteration, and then how far the posterior is."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One policy and what the posterior says of it.

    Attributes:
        name: How it was made.
        policy: π, shape [X, A].
        gain: Posterior mean of J_k(π) − J_k(π_b) under the neutral prior, shape [d].
        least: Its δ quantile: what the gain is at least with probability 1 − δ, shape [d].
        interval: Its central interval at level 1 − δ, shape [2, d].
        p_safe: P(no objective loses more than ζ | D) under the neutral prior.
        p_objective: The same of each objective alone, shape [d].
        p_pessimistic: P(objective k does not lose | D) under the prior that is pessimistic for k, shape [d]; NaN where that was not
            asked: it had failed before, or a better one had passed.
        error: Monte-Carlo standard error of ``p_safe``.
        draws: Processes that it was judged in: M, or 0 by linearisation; fewer where it could not pass any more (its numbers are then of those, and a
            little too dark); 0 where the linearised form found it hopeless, and its numbers are of that.
        passed: Whether it was found to pass.
    """

    name: str
    policy: Floats
    gain: Floats
    least: Floats
    interval: Floats
    p_safe: float
    p_objective: Floats
    p_pessimistic: Floats
    error: float
    draws: int
    passed: bool


@dataclass(frozen=True, kw_only=True)
class BOpt:
    """What B-OPT found.

    Attributes:
        improvement: The policy returned, as from any other method; the baseline if nothing passed.
        chosen: Its place among the candidates, or None.
        candidates: All of them, in the order they were made.
        priors: Names of the priors.
        concentration: Posterior mean of the neutral prior's concentration of where a step leads.
        end_concentration: The same of whether it ends; None where the log has no ends.
        pessimism: Pseudo-transitions of the pessimistic priors.
        delta: δ.
        zeta: ζ, shape [d].
        draws: M; 0 by linearisation.
        seed: Of the draws.
        objectives: Names, length d.
        notes: What is worth saying of the candidates.
    """

    improvement: Improvement
    chosen: int | None
    candidates: tuple[Candidate, ...]
    priors: tuple[str, ...]
    concentration: float
    end_concentration: float | None
    pessimism: float
    delta: float
    zeta: Floats
    draws: int
    seed: int
    objectives: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def linearised(self) -> bool:
        """Whether candidates were judged by linearisation, without draws."""
        return self.draws == 0

    @property
    def accepted(self) -> bool:
        """Whether a candidate passed."""
        return self.chosen is not None

    @property
    def deciding(self) -> Candidate:
        """The candidate returned, or, where none passed, the one that is nearest to passing."""
        if self.chosen is not None:
            return self.candidates[self.chosen]
        drawn = [candidate for candidate in self.candidates if candidate.draws] or list(self.candidates)
        return max(drawn, key=lambda c: min(c.p_safe, 1.0 - float(np.nansum(1.0 - c.p_pessimistic))))

    @property
    def reason(self) -> str:
        """The outcome in one sentence."""
        if self.chosen is not None:
            best = self.candidates[self.chosen]
            how = ", by linearisation, without draws" if self.linearised else ""
            return (
                f"{best.name} is the best of {len(self.candidates)} candidates that is no worse than the baseline on any objective"
                f" with probability {100 * (1.0 - self.delta):.4g} % given the data; here {100 * best.p_safe:.4g} %{how}."
            )
        if not self.candidates:
            return "No solution found: no candidate differs from the baseline."
        if any(candidate.passed for candidate in self.candidates):
            return "No solution found: of the candidates that are safe enough none is better on what is preferred."
        nearest = self.deciding
        doubts = np.fmin(nearest.p_objective, nearest.p_pessimistic)
        k = int(np.argmin(doubts))
        return (
            f"No solution found: of {len(self.candidates)} candidates none is safe enough; the safest, {nearest.name}, loses on"
            f" {self.objectives[k]} with probability {100 * (1.0 - float(doubts[k])):.3g} %."
        )


def b_opt(
    outcomes: Outcomes | CountedOutcomes,
    model: Model,
    baseline: npt.ArrayLike,
    *,
    preference: npt.ArrayLike,
    delta: float = 0.1,
    zeta: npt.ArrayLike | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    neutral: Neutral = "hierarchical",
    pessimism: float = 1.0,
    policies: Mapping[str, npt.ArrayLike] | None = None,
    epsilons: Sequence[float] = EPSILONS,
    mixes: Sequence[float] = MIXES,
    with_g_opt: bool = True,
    screen: bool = True,
    form: Form = "auto",
    cluster: RayCluster | None = None,
    progress: Progress | None = None,
) -> BOpt:
    """Improve by asking the posterior.

    Args:
        outcomes: The log (`gather_outcomes`, or of counts `outcomes_of` or, by linearisation alone, `gather_steps`).
        model: The model of the same log, in which candidates are made.
        baseline: π_b, shape [X, A].
        preference: λ, shape [d].
        delta: δ.
        zeta: Accepted loss per objective, shape [d]; 0 if left out.
        draws: M, processes drawn under every prior.
        seed: Of the draws.
        neutral: The neutral prior.
        pessimism: Pseudo-transitions of the pessimistic priors; 0 leaves them out.
        policies: More candidates by name, each [X, A].
        epsilons: ε of the S-OPT candidates.
        with_g_opt: Whether G-OPT's policies are candidates too (not where discounts differ: it has one occupancy for all objectives).
        mixes: The baseline's shares in mixtures with Adv-Linearized.
        screen: Leave candidates out of the draws that the linearised form finds hopeless, those that have failed too often to pass,
            and of the pessimistic priors those that are not better than one that passes. It changes how closely the others are looked at; a candidate that would pass is left out only if the linearised form
            misjudges its risk by a factor of `SCREEN`.
        form: "draws", "linearised" (no draws; the seed is not used), or "auto": draws, unless they would take too long
            (`MOST_DRAWN`). Linearised, S-OPT's policies are found one from the other, and G-OPT's are left out of large logs.
        cluster: Where to make the draws, if not here; the numbers are the same. Join it once, with `drawing.connected`.
        progress: Called after every round of a candidate's policy iteration, and while candidates are judged.
    """
    base = check_policy(
        baseline, outcomes.n_states, outcomes.n_actions, name="baseline", state_labels=model.state_labels
    )
    weights = result.check_preference(preference, outcomes.n_objectives)
    form = resolve_form(form, outcomes, draws=draws)
    small = form == "draws" or n_transitions(outcomes) <= MOST_G_OPT
    values = solve_policy(model.mdp, base)
    made = make_candidates(
        model,
        base,
        weights,
        epsilons=epsilons,
        mixes=mixes,
        policies=policies,
        with_g_opt=with_g_opt and small,
        one_from_the_other=form == "linearised",
        baseline_values=values,
        progress=progress,
    )
    asked: dict[str, Any] = {
        "model": model, "delta": delta, "zeta": zeta, "draws": draws, "seed": seed, "neutral": neutral, "pessimism": pessimism,
        "form": form, "cluster": cluster, "baseline_v": values.v, "progress": progress,
    }  # fmt: skip
    del values  # its q is as large as d policies
    names, tables = [name for name, _ in made], [policy for _, policy in made]
    judged = judge(tables, outcomes, base, screen=screen, best_by=weights if screen else None, names=names, **asked)
    while judged.candidates and not any(candidate.passed for candidate in judged.candidates):
        # what stands in the way is the answer then, and deserves all draws; another may turn out to be nearer
        nearest = next(i for i, candidate in enumerate(judged.candidates) if candidate is judged.deciding)
        if (
            judged.candidates[nearest].draws == judged.draws
            and not np.isnan(judged.candidates[nearest].p_pessimistic).any()
        ):
            break
        known = [judged.candidates[nearest]] if judged.candidates[nearest].draws == judged.draws else None
        closer = judge([tables[nearest]], outcomes, base, names=[names[nearest]], known=known, **asked).candidates
        judged = replace(judged, candidates=(*judged.candidates[:nearest], *closer, *judged.candidates[nearest + 1 :]))
    passing = [i for i, candidate in enumerate(judged.candidates) if candidate.passed]
    chosen = max(passing, key=lambda i: float(weights @ judged.candidates[i].gain), default=None)
    if chosen is not None and float(weights @ judged.candidates[chosen].gain) <= 0.0:
        chosen = None  # safe, but not better
    policy = base if chosen is None else judged.candidates[chosen].policy
    left_out = "G-OPT's policies are not among the candidates: the log has too many transitions to make them"
    return replace(
        judged,
        chosen=chosen,
        notes=() if small or not with_g_opt else (left_out,),
        improvement=replace(
            judged.improvement,
            method="b-opt",
            policy=frozen(policy, np.float64),
            preference=weights,
            epsilon=np.inf,
            policy_return=judged.improvement.baseline_return if chosen is None else expected_return(model.mdp, policy),
            distance=np.abs(policy - base).sum(axis=1),
        ),
    )


def n_transitions(outcomes: Outcomes | CountedOutcomes) -> int:
    """Distinct transitions of the log, ends among them (`Outcomes`) or not."""
    return outcomes.n_steps if isinstance(outcomes, CountedOutcomes) else int(outcomes.count.size)


def resolve_form(form: Form, outcomes: Outcomes | CountedOutcomes, *, draws: int) -> Form:
    """The form, "auto" resolved by the size of the log."""
    if isinstance(outcomes, CountedOutcomes) and form == "draws":
        raise ParameterError("draws need the log's outcomes: pass outcomes_of(counts), not gather_steps(...).")
    if isinstance(outcomes, CountedOutcomes):
        check_choice("form", form, FORMS)
        return "linearised"
    return form_for(form, n_transitions(outcomes), outcomes.n_objectives, draws=draws)


def form_for(form: Form, transitions: int, n_objectives: int, *, draws: int) -> Form:
    """The same from the numbers alone: transitions × draws × priors against `MOST_DRAWN`."""
    check_choice("form", form, FORMS)
    if form != "auto":
        return form
    return "draws" if transitions * float(draws) * (1 + n_objectives) <= MOST_DRAWN else "linearised"


def make_candidates(
    model: Model,
    baseline: Floats,
    preference: Floats,
    *,
    epsilons: Sequence[float] = EPSILONS,
    mixes: Sequence[float] = MIXES,
    policies: Mapping[str, npt.ArrayLike] | None = None,
    with_g_opt: bool = True,
    one_from_the_other: bool = False,
    baseline_values: Values | None = None,
    progress: Progress | None = None,
) -> list[tuple[str, Floats]]:
    """Candidates by name: those that differ from the baseline and from each other; as in `b_opt`.

    With ``one_from_the_other`` every budget's search begins where that of the next smaller one ended (a policy within a budget is
    within a larger one), and Adv-Linearized's after all of them: the same returns in fewer rounds, where discounts are equal.
    ``baseline_values`` are then those of π_b, where they are known already.
    """
    budgets = [*epsilons, np.inf]
    if one_from_the_other:
        tables = dict(_along(model, baseline, preference, sorted(budgets), baseline_values, progress))
    else:
        tables = {
            e: s_opt.s_opt(
                model, baseline, preference=preference, epsilon=e, progress=_making(progress, budgets, e)
            ).policy
            for e in epsilons
        }
        tables[np.inf] = s_opt.adv_linearized(
            model, baseline, preference=preference, progress=_making(progress, budgets, np.inf)
        ).policy
    bold = tables[np.inf]
    found: list[tuple[str, Floats]] = [(f"S-OPT ε = {epsilon:g}", tables[epsilon]) for epsilon in epsilons]
    if with_g_opt and np.all(model.mdp.discount == model.mdp.discount[0]):  # G-OPT has one occupancy for all objectives
        path = g_opt_path(model, baseline, preference=preference, progress=progress)
        for result, margin in zip(path, len(g_opt.EPSILONS) * g_opt.MARGINS, strict=True):
            name = f"G-OPT ε = {result.epsilon:g}" + (f", margin {100 * margin:g} %" if margin else "")
            found.append((name, result.policy))
    found += [
        (
            f"Adv-Linearized, {100 * mix:.0f} % baseline" if mix else "Adv-Linearized",
            (1.0 - mix) * bold + mix * baseline,
        )
        for mix in mixes
    ]
    for name, table in (policies or {}).items():
        found.append((name, check_policy(table, *baseline.shape, name=name, state_labels=model.state_labels)))
    different: list[tuple[str, Floats]] = []
    for name, policy in found:
        if all(np.max(np.abs(policy - other)) > 1e-9 for other in (baseline, *(p for _, p in different))):
            different.append((name, policy))
    return different


def _making(progress: Progress | None, budgets: Sequence[float], epsilon: float) -> result.Progress | None:
    """Tells of rounds with the candidate that they are for."""
    if progress is None:
        return None
    name = "Adv-Linearized" if np.isinf(epsilon) else f"S-OPT ε = {epsilon:g}"
    what = f"Making candidates: {list(budgets).index(epsilon) + 1} of {len(budgets)}, {name}"
    return lambda done: progress(replace(done, what=what))


def _along(
    model: Model,
    baseline: Floats,
    preference: Floats,
    epsilons: Sequence[float],
    values: Values | None,
    progress: Progress | None,
) -> Iterator[tuple[float, Floats]]:
    """S-OPT's policies for growing budgets, each begun from the one before; values of the baseline are found once."""
    if values is None:
        values = solve_policy(model.mdp, baseline)
    equal = bool(np.all(model.mdp.discount == model.mdp.discount[0]))
    start = None
    for epsilon in epsilons:
        problem = s_opt.Problem(
            mdp=model.mdp,
            baseline=baseline,
            error=model.error,
            preference=preference,
            epsilon=epsilon,
            constrained=True,
        )
        found = s_opt.iterate(
            problem,
            progress=_making(progress, epsilons, epsilon),
            baseline_values=values,
            start=start,
        )
        start = found.policy if equal else None
        yield epsilon, found.policy


def judge(
    policies: Sequence[Floats],
    outcomes: Outcomes | CountedOutcomes,
    baseline: Floats,
    *,
    model: Model,
    delta: float,
    zeta: npt.ArrayLike | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    neutral: Neutral = "hierarchical",
    pessimism: float = 1.0,
    scale_concentration: float = 1.0,
    screen: bool = False,
    best_by: Floats | None = None,
    names: Sequence[str] | None = None,
    form: Form = "draws",
    cluster: RayCluster | None = None,
    known: Sequence[Candidate] | None = None,
    baseline_v: Floats | None = None,
    progress: Progress | None = None,
) -> BOpt:
    """What the posterior says of given policies; `BOpt` with nothing chosen. The arguments are those of `b_opt`.

    With ``best_by`` (weights [d] of gains) all that is asked is which policy is the best of those that pass: the pessimistic priors
    are asked about one policy after the other, the best by posterior mean first, until one passes. What ``known`` says of the same
    policies under the same neutral prior, seed and number of draws is taken from there, and only the pessimistic priors are asked.
    ``baseline_v`` is v^{π_b} in the model, shape [d, X], where that is known already.
    """
    check_probability("delta", delta)
    d = outcomes.n_objectives
    loss = np.zeros(d) if zeta is None else check_vector("zeta", zeta, d, "objective")
    v = policy_values(model.mdp, baseline)[0] if baseline_v is None else baseline_v
    slack = loss + ROUNDING * np.max(np.abs(v), axis=1)
    labels = list(names) if names is not None else [f"policy {i}" for i in range(len(policies))]
    asked: dict[str, Any] = {
        "baseline_v": v, "delta": delta, "slack": slack, "labels": labels, "neutral": neutral, "pessimism": pessimism,
        "scale_concentration": scale_concentration, "best_by": best_by, "known": known, "progress": progress,
    }  # fmt: skip
    if resolve_form(form, outcomes, draws=draws) == "linearised":
        draws = 0
        candidates, middle = _judge_linearised(policies, outcomes, baseline, **asked)
    else:
        assert isinstance(outcomes, Outcomes)
        candidates, middle = _judge_drawn(
            policies, outcomes, baseline, model=model, draws=draws, seed=seed, screen=screen, cluster=cluster, **asked
        )
    ends = outcomes.ends if isinstance(outcomes, CountedOutcomes) else bool(np.any(outcomes.ends))
    return BOpt(
        improvement=result.improvement(
            "b-opt",
            model,
            baseline,
            result.Search(
                policy=baseline,
                baseline_v=v,
                rounds=0,
                converged=True,
                gap=0.0,
                kept=np.zeros(0, dtype=np.int64),
                engine=resolve_engine("auto"),
            ),
            preference=np.zeros(d),
            epsilon=np.inf,
        ),
        chosen=None,
        candidates=tuple(candidates),
        priors=(
            neutral,
            *(f"{neutral}, pessimistic for {model.objectives[k]}" for k in range(d if pessimism > 0.0 else 0)),
        ),
        concentration=float(middle.weight @ middle.concentration),
        end_concentration=float(middle.end_weight @ middle.end_concentration) if ends else None,
        pessimism=pessimism,
        delta=delta,
        zeta=loss,
        draws=draws,
        seed=seed,
        objectives=model.objectives,
    )


def _teller(progress: Progress | None, **what: Any) -> Callable[[int], None]:
    """Tells ``progress`` how much is done, each amount once; the rest is that of `Judging`."""
    last = -1

    def tell(done: int) -> None:
        nonlocal last
        if progress is not None and done > last:
            last = done
            progress(Judging(done=done, **what))

    tell(0)
    return tell


def _after(before: int, tell: Callable[[int], None]) -> Callable[[int], None]:
    """Tells of work that comes after other work."""
    return lambda done: tell(before + done)


def _under_pessimism(candidate: Candidate, p_pessimistic: Floats, draws: int, delta: float) -> Candidate:
    """A candidate of which the neutral prior was asked, with what the pessimistic ones say."""
    return replace(
        candidate,
        p_pessimistic=p_pessimistic,
        passed=candidate.draws == draws and posterior_passes(candidate.p_safe, p_pessimistic, draws, delta),
    )


def _judge_drawn(
    policies: Sequence[Floats],
    outcomes: Outcomes,
    baseline: Floats,
    *,
    model: Model,
    baseline_v: Floats,
    delta: float,
    slack: Floats,
    labels: Sequence[str],
    draws: int,
    seed: int,
    neutral: Neutral,
    pessimism: float,
    scale_concentration: float,
    screen: bool,
    best_by: Floats | None,
    cluster: RayCluster | None,
    known: Sequence[Candidate] | None,
    progress: Progress | None,
) -> tuple[list[Candidate], Posterior]:
    """`judge` by draws; the candidates, and the posterior under the neutral prior."""
    if draws < 1 or delta * (draws + 1) < 1.0:
        raise ParameterError(
            f"{draws} draws can't show a risk of {delta:g}: at least {int(np.ceil(1.0 / delta - 1.0))} are needed."
        )
    d = outcomes.n_objectives
    middle, darker = all_priors(
        outcomes,
        baseline,
        model=model,
        neutral=neutral,
        pessimism=pessimism,
        scale_concentration=scale_concentration,
        baseline_v=baseline_v,
    )
    tables = np.array(policies).reshape(len(policies), *baseline.shape)
    allowed = delta * (draws + 1) - 1.0 + 1e-9
    candidates: dict[int, Candidate] = {}
    going = list(range(len(policies)))
    if known is not None:
        candidates = {i: replace(candidate, name=labels[i]) for i, candidate in enumerate(known)}
    else:
        if screen:
            rough = linearised_candidates(
                labels, policies, linearised_spread(tables, baseline, middle, darker), slack, delta
            )
            limit = delta * SCREEN + SCREEN * np.sqrt(delta * (1.0 - delta) / draws)
            # what is not looked at closely does not pass: that is what draws are for
            candidates = {
                i: replace(candidate, passed=False)
                for i, candidate in enumerate(rough)
                if not (1.0 - candidate.p_safe <= limit and float(np.sum(1.0 - candidate.p_pessimistic)) <= limit)
            }
        going = [i for i in going if i not in candidates]
        gains: dict[int, Floats] = {i: np.zeros((0, d)) for i in going}
        tell = _teller(progress, what="Judging candidates", total=draws, unit="draws")
        for first, n in _looks(draws, screen):
            if going:
                drawn = shared_gains(
                    middle,
                    tables[going],
                    baseline,
                    draws=n,
                    seed=seed,
                    first=first,
                    cluster=cluster,
                    progress=_after(first, tell),
                )
                for place, i in enumerate(going):
                    gains[i] = np.concatenate([gains[i], drawn[:, place]])
            if screen:
                going = [i for i in going if np.count_nonzero(np.any(gains[i] < -slack, axis=1)) <= allowed]
        tell(draws)
        for i, drawn in gains.items():
            candidates[i] = _drawn_candidate(labels[i], policies[i], drawn, slack, delta)
    dark = {i: np.full(d, np.nan) if darker else np.ones(d) for i in candidates if candidates[i].draws}
    ranked = [going]
    if best_by is not None:
        ranked = [[i] for i in sorted(going, key=lambda i: -float(best_by @ candidates[i].gain))]
    for group in ranked if darker else []:
        going = group
        tell = _teller(progress, what="Asking the pessimistic priors", total=draws * d, unit="draws")
        for k, prior in enumerate(darker):
            if going:
                drawn = shared_gains(
                    prior,
                    tables[going],
                    baseline,
                    draws=draws,
                    seed=seed,
                    stream=k + 1,
                    objectives=[k],
                    cluster=cluster,
                    progress=_after(draws * k, tell),
                )
                for place, i in enumerate(going):
                    dark[i][k] = np.mean(drawn[:, place, 0] >= -slack[k])
            if screen:
                going = [i for i in going if draws * np.nansum(1.0 - dark[i]) <= allowed]
        tell(draws * d)
        if any(draws * np.sum(1.0 - dark[i]) <= allowed for i in going):
            break
    for i, p_pessimistic in dark.items():
        candidates[i] = _under_pessimism(candidates[i], p_pessimistic, draws, delta)
    return [candidates[i] for i in range(len(policies))], middle


def _drawn_candidate(name: str, policy: Floats, gains: Floats, slack: Floats, delta: float) -> Candidate:
    """What draws [m, d] of gains under the neutral prior say of a policy."""
    ok = gains >= -slack
    p_safe = float(np.mean(np.all(ok, axis=1)))
    return Candidate(
        name=name,
        policy=policy,
        gain=gains.mean(axis=0),
        least=np.quantile(gains, delta, axis=0, method="lower"),
        interval=np.quantile(gains, [delta / 2.0, 1.0 - delta / 2.0], axis=0),
        p_safe=p_safe,
        p_objective=np.mean(ok, axis=0),
        p_pessimistic=np.full(slack.size, np.nan),
        error=draw_error(p_safe, ok.shape[0]),
        draws=ok.shape[0],
        passed=False,
    )


def _judge_linearised(
    policies: Sequence[Floats],
    outcomes: Outcomes | CountedOutcomes,
    baseline: Floats,
    *,
    baseline_v: Floats,
    delta: float,
    slack: Floats,
    labels: Sequence[str],
    neutral: Neutral,
    pessimism: float,
    scale_concentration: float,
    best_by: Floats | None,
    known: Sequence[Candidate] | None,
    progress: Progress | None,
) -> tuple[list[Candidate], Posterior | Prior]:
    """`judge` without draws: the neutral prior is asked about all policies, the pessimistic ones about those that pass it.

    With ``best_by`` about one after the other, the best first, until one passes; without, about all policies.
    """
    from scipy.special import ndtr

    d, n = outcomes.n_objectives, len(policies)

    def prior_for(k: int | None) -> Posterior | Prior:
        return _linear_prior(
            outcomes,
            k,
            neutral=neutral,
            pessimism=pessimism,
            baseline_v=baseline_v,
            scale_concentration=scale_concentration,
        )

    middle = prior_for(None)
    if known is not None:
        candidates = [replace(candidate, name=labels[i]) for i, candidate in enumerate(known)]
    else:
        tell = _teller(progress, what="Judging", total=n, unit="candidates")
        base = _base_side(middle, baseline, range(d))
        mean, covariance = _linear_gains(middle, policies, baseline, base, range(d), tell)
        del base
        found = Spread(gain=mean, covariance=covariance, dark_gain=np.full((n, d), np.nan), dark_sd=np.ones((n, d)))
        candidates = linearised_candidates(labels, policies, found, slack, delta)
    if pessimism <= 0.0:
        return [_under_pessimism(candidate, np.ones(d), 0, delta) for candidate in candidates], middle
    going = list(range(n))
    if best_by is not None:
        going = [i for i in going if posterior_passes(candidates[i].p_safe, (), 0, delta)]
        going.sort(key=lambda i: -float(best_by @ candidates[i].gain))
    darker: dict[int, tuple[Posterior | Prior, Side | None]] = {}  # priors, and what the baseline is worth under them
    for i in going:
        p_pessimistic = np.empty(d)
        tell = _teller(progress, what="Asking the pessimistic priors", total=d, unit="priors")
        for k in range(d):
            if k not in darker:
                prior = prior_for(k)
                darker[k] = prior, _base_side(prior, baseline, [k])
            prior, side = darker[k]
            one_mean, one_covariance = _linear_gains(prior, [policies[i]], baseline, side, [k])
            sd = np.sqrt(max(float(one_covariance[0, 0, 0]), 1e-300))
            p_pessimistic[k] = ndtr((one_mean[0, 0] + slack[k]) / sd)
            tell(k + 1)
        candidates[i] = _under_pessimism(candidates[i], p_pessimistic, 0, delta)
        if best_by is not None and candidates[i].passed:
            break
    return candidates, middle


def _linear_prior(
    outcomes: Outcomes | CountedOutcomes,
    k: int | None,
    *,
    neutral: Neutral,
    pessimism: float,
    baseline_v: Floats,
    scale_concentration: float,
) -> Posterior | Prior:
    """The posterior under the neutral prior (k is None) or under the one that is pessimistic for k."""
    make: Callable[..., Posterior | Prior] = prior_of if isinstance(outcomes, CountedOutcomes) else posterior
    return make(
        outcomes,
        neutral,
        pessimistic_for=k,
        pessimism=pessimism,
        baseline_v=baseline_v,
        scale_concentration=scale_concentration,
    )


def _base_side(prior: Posterior | Prior, baseline: Floats, objectives: Sequence[int]) -> Side | None:
    """The baseline's side where the prior is of `Steps`; of others it is found with the gains."""
    return side_of(prior, baseline, objectives) if isinstance(prior, Prior) else None


def _linear_gains(
    prior: Posterior | Prior,
    policies: Sequence[Floats],
    baseline: Floats,
    base: Side | None,
    objectives: Sequence[int],
    progress: Callable[[int], None] | None = None,
) -> tuple[Floats, Floats]:
    """Means [C, n] and covariances [C, n, n] of gains; ``base`` is of `_base_side`, ``progress`` hears of how many policies."""
    if isinstance(prior, Prior):
        assert base is not None
        return step_gains(prior, policies, base, progress=progress)
    tables = np.array(policies).reshape(len(policies), *baseline.shape)
    return linearised_gains(prior, tables, baseline, objectives=objectives, progress=progress)


def all_priors(
    outcomes: Outcomes,
    baseline: Floats,
    *,
    model: Model,
    neutral: Neutral = "hierarchical",
    pessimism: float = 1.0,
    scale_concentration: float = 1.0,
    baseline_v: Floats | None = None,
) -> tuple[Posterior, list[Posterior]]:
    """The posterior under the neutral prior, and under one that is pessimistic for each objective; as in `b_opt`.

    ``baseline_v`` is v^{π_b} in the model, shape [d, X], where that is known already.
    """
    middle = posterior(outcomes, neutral, scale_concentration=scale_concentration)
    if pessimism <= 0.0:
        return middle, []
    v = policy_values(model.mdp, baseline)[0] if baseline_v is None else baseline_v
    return middle, [
        posterior(
            outcomes,
            neutral,
            pessimistic_for=k,
            pessimism=pessimism,
            baseline_v=v,
            scale_concentration=scale_concentration,
        )
        for k in range(outcomes.n_objectives)
    ]


SENSITIVITY: tuple[tuple[str, float | None, float], ...] = (
    ("without pessimism", 0.0, 1.0),
    ("one bad visit of every pair", 1.0, 1.0),
    ("two bad visits of every pair", 2.0, 1.0),
    ("half the concentration", None, 0.5),
    ("twice the concentration", None, 2.0),
)
"""Other sets of priors to ask: name, pessimistic pseudo-transitions (None: as used), factor on the concentration."""


def sensitivity(
    policy: Floats,
    outcomes: Outcomes | CountedOutcomes,
    baseline: Floats,
    *,
    model: Model,
    delta: float,
    zeta: npt.ArrayLike | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    neutral: Neutral = "hierarchical",
    pessimism: float = 1.0,
    form: Form = "draws",
    cluster: RayCluster | None = None,
    known: Candidate | None = None,
    baseline_v: Floats | None = None,
    progress: Progress | None = None,
) -> list[BOpt]:
    """What the posterior says of one policy under each of `SENSITIVITY`, to see how much hangs on the priors.

    ``known`` is what `judge` says of the policy under the priors as used, and ``baseline_v`` as there: what the neutral prior says
    is asked again only where its concentration differs.
    """
    rows = [
        (name, pessimism if more is None else more, factor)
        for name, more, factor in SENSITIVITY
        if more != pessimism and not (neutral == "support" and factor != 1.0)
    ]  # not what was used, nor another concentration where there is none
    linearised = resolve_form(form, outcomes, draws=draws) == "linearised"
    v = policy_values(model.mdp, baseline)[0] if baseline_v is None else baseline_v
    anew = [factor != 1.0 or (known is None and i == 0) for i, (_, _, factor) in enumerate(rows)]
    total = (1 if linearised else draws) * (sum(anew) + outcomes.n_objectives * sum(more > 0.0 for _, more, _ in rows))
    before = 0

    def tell(part: Round | Judging) -> None:
        nonlocal before
        assert isinstance(part, Judging)
        if progress is not None:
            unit: Literal["priors", "draws"] = "priors" if linearised else "draws"
            progress(Judging(what="Asking other priors", done=before + part.done, total=total, unit=unit))
        if part.done == part.total:
            before += part.total

    found = []
    for (name, more, factor), ask in zip(rows, anew, strict=True):
        result = judge(
            [policy],
            outcomes,
            baseline,
            model=model,
            delta=delta,
            zeta=zeta,
            draws=draws,
            seed=seed,
            neutral=neutral,
            pessimism=more,
            scale_concentration=factor,
            form=form,
            cluster=cluster,
            known=None if ask or known is None else [known],
            baseline_v=v,
            progress=tell,
        )
        if factor == 1.0:
            known = result.candidates[0]
        found.append(replace(result, priors=(name, *result.priors[1:])))
    return found


def _looks(draws: int, screen: bool) -> list[tuple[int, int]]:
    """First draw and number of draws of every look at the candidates that are still in; each up to four times as many as before."""
    ends = [draws]
    while screen and ends[0] > FIRST_LOOK:
        ends.insert(0, max(FIRST_LOOK, ends[0] // 4))
    return [(first, end - first) for first, end in zip([0, *ends], ends, strict=False)]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """What the linearised form says of C policies, whatever loss is accepted; of shape [C, d] but for the covariance.

    Attributes:
        gain: Mean of J_k(π) − J_k(π_b) under the neutral prior.
        covariance: Its covariance, shape [C, d, d].
        dark_gain: Its mean under the prior that is pessimistic for k; +inf where none was asked.
        dark_sd: The standard deviation of that.
    """

    gain: Floats
    covariance: Floats
    dark_gain: Floats
    dark_sd: Floats

    @property
    def sd(self) -> Floats:
        """Standard deviation of gains under the neutral prior, shape [C, d]."""
        return np.asarray(np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=1, axis2=2), 1e-300)))


def linearised_spread(policies: Floats, baseline: Floats, middle: Posterior, darker: Sequence[Posterior]) -> Spread:
    """Means and spreads of gains to first order, with no draws; ``policies`` is [C, X, A], priors are of `all_priors`."""
    mean, covariance = linearised_gains(middle, policies, baseline)
    dark_mean, dark_sd = np.full(mean.shape, np.inf), np.ones(mean.shape)
    for k, prior in enumerate(darker):
        one_mean, one_covariance = linearised_gains(prior, policies, baseline, objectives=[k])
        dark_mean[:, k], dark_sd[:, k] = one_mean[:, 0], np.sqrt(np.maximum(one_covariance[:, 0, 0], 1e-300))
    return Spread(gain=mean, covariance=covariance, dark_gain=dark_mean, dark_sd=dark_sd)


def normal_p_safe(gain: Floats, covariance: Floats, zeta: Floats) -> float:
    """P(g ≥ −ζ in every objective) of g ~ N(gain [d], covariance [d, d]), to about 0.001.

    One objective after the other, the least probable first, each drawn given that those before it were kept, and the
    probabilities multiplied (Genz 1992), over the points of Richtmyer's sequence, {i √p_k} with p_k the k-th prime, folded:
    always the same points, and no import that takes a second.
    """
    from scipy.special import ndtr, ndtri

    sd = np.sqrt(np.maximum(np.diagonal(covariance), 1e-300))
    height = (gain + zeta) / sd
    order = np.argsort(height, kind="stable")
    height = height[order]
    correlation = np.clip(covariance / np.outer(sd, sd), -1.0, 1.0)[np.ix_(order, order)]
    np.fill_diagonal(correlation, 1.0)
    # where objectives move together the matrix has no full rank, or less by rounding; a little of each alone mends that
    short = 1e-9 - min(float(np.linalg.eigvalsh(correlation)[0]), 0.0)
    root = np.linalg.cholesky((correlation + short * np.eye(order.size)) / (1.0 + short))
    steps = np.sqrt(np.array(_primes(order.size), dtype=np.float64))
    uniform = np.abs(2.0 * (np.arange(1.0, NORMAL_POINTS + 1.0)[:, None] * steps % 1.0) - 1.0)
    chance, drawn = np.ones(NORMAL_POINTS), np.zeros((NORMAL_POINTS, order.size))
    for k in range(order.size):
        kept = ndtr((height[k] + drawn[:, :k] @ root[k, :k]) / root[k, k])
        chance *= kept
        drawn[:, k] = -ndtri(np.clip(uniform[:, k] * kept, 1e-300, 1.0 - 1e-16))
    return float(np.clip(chance.mean(), 0.0, 1.0))


def _primes(n: int) -> list[int]:
    """The first n."""
    found: list[int] = []
    number = 2
    while len(found) < n:
        if all(number % prime for prime in found):
            found.append(number)
        number += 1
    return found


def linearised_candidates(
    names: Sequence[str], policies: Sequence[Floats], spread: Spread, zeta: Floats, delta: float
) -> list[Candidate]:
    """Candidates judged by the linearised form alone, gains taken for jointly normal (`normal_p_safe`)."""
    from scipy.special import ndtr, ndtri

    each = ndtr((spread.gain + zeta) / spread.sd)
    dark = ndtr((spread.dark_gain + zeta) / spread.dark_sd)
    half = ndtri(1.0 - delta / 2.0) * spread.sd
    p_safe = [normal_p_safe(*each, zeta) for each in zip(spread.gain, spread.covariance, strict=True)]
    return [
        Candidate(
            name=name,
            policy=policies[i],
            gain=spread.gain[i],
            least=spread.gain[i] - ndtri(1.0 - delta) * spread.sd[i],
            interval=np.array([spread.gain[i] - half[i], spread.gain[i] + half[i]]),
            p_safe=p_safe[i],
            p_objective=each[i],
            p_pessimistic=dark[i],
            error=0.0,
            draws=0,
            passed=posterior_passes(p_safe[i], dark[i], 0, delta),
        )
        for i, name in enumerate(names)
    ]
