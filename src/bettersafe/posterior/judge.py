"""Posterior probability that policies are no worse than the baseline, and the policies that pass.

The paper requires (equation 1) a policy with

    P( for all k:  J_k(π) − J_k(π_b) ≥ −ζ_k  |  D )  ≥  1 − δ

In a finite process this probability can be computed: draw M processes from the posterior (`posterior.draws`), evaluate the policy
and the baseline in each, and count. A policy passes if (`posterior.rule`)

    neutral       (failures + 1) / (M + 1) ≤ δ,   where a failure is a draw in which some objective loses more than ζ_k
    pessimistic   (Σ_k failures_k + 1) / (M + 1) ≤ δ,  failures_k under the prior that is pessimistic for k, on k only

(+1 for the Monte-Carlo error). The time for draws is proportional to the log's distinct transitions × M × priors. For a large log
(`MOST_DRAWN`) the probabilities are computed *by linearisation*, without draws: to first order in the rows of p, gains are sums
over independent pairs, and they are taken as jointly normal

    neutral       P(no objective loses more than ζ_k) ≥ 1 − δ        pessimistic   Σ_k P(k loses more than ζ_k) ≤ δ

The probabilities are Bayesian: they depend on the set of priors, which the certificate names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from bettersafe.errors import (
    ParameterError,
    as_numbers,
    check_choice,
    check_integer,
    check_options,
    check_probability,
    check_table,
    check_type,
    check_types,
    check_vector,
)
from bettersafe.mdp.policy import distributions
from bettersafe.mdp.values import occupancy, policy_values
from bettersafe.model import Model
from bettersafe.posterior.candidates import (
    Candidate,
    Spread,
    drawn_candidate,
    linearised_candidates,
    linearised_spread,
    normal_chance,
    with_pessimistic,
)
from bettersafe.posterior.choices import FORMS, Form
from bettersafe.posterior.draws import RayCluster, shared_gains
from bettersafe.posterior.essential import essential
from bettersafe.posterior.events import EventFacts, event_facts
from bettersafe.posterior.habits import informed, informed_priors
from bettersafe.posterior.linearised import linearised_gains
from bettersafe.posterior.linearised_counts import (
    CountedOutcomes,
    CountedPosterior,
    counted_gains,
    counted_pessimistic,
    counted_posterior,
    side_of,
)
from bettersafe.posterior.outcomes import Outcomes
from bettersafe.posterior.priors import Posterior, PriorSet, pessimistic
from bettersafe.posterior.rule import posterior_passes
from bettersafe.typing import Event, check_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bettersafe.typing import Floats, Progress, Unit


DRAWS = 200

MOST_DRAWN = 1e9
"""Distinct transitions × draws × priors beyond which "auto" is the linearised form: about ten minutes of one core."""

SCREEN = 4.0
"""A candidate gets no draws if its linearised probability of failing exceeds δ by this factor plus this many standard errors of the
draws."""

WIDENING = 1.15
"""Factor on the posterior's standard deviations in B-OPT, chosen on the first half of the gauntlet, where the posterior was a little too
certain."""

PURSUED_WIDENING = 1.25
"""Further factor for objectives that are pursued: a candidate is chosen, of all that pass, because its gain on them looks largest."""

ROUNDING = 1e-9
"""Losses below this share of the largest value are rounding errors, for example on an objective that no action changes."""

FIRST_LOOK = 50
"""Draws after which candidates that can no longer pass are dropped."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Settings for the posterior probability of candidates.

    Attributes:
        delta: δ, the accepted probability that some objective loses more than its ζ.
        zeta: Accepted loss per objective, shape [d]; 0 if None.
        draws: M, the number of processes drawn under every prior.
        seed: Seed of the draws.
        form: "draws", "linearised" (no draws; the seed is not used), or "auto": draws unless they would take too long (`MOST_DRAWN`).
        priors: Priors.
        cluster: Ray cluster for the draws; None for this machine. The results are the same. Connect once, with `draws.connected`.

    Examples:
        >>> question = bettersafe.Question(delta=0.05, zeta=[0.0, 0.1], draws=500)
        >>> question.losses(2)
        array([0. , 0.1])
    """

    delta: float = 0.1
    zeta: npt.ArrayLike | None = None
    draws: int = DRAWS
    seed: int = 0
    form: Form = "auto"
    priors: PriorSet = field(default_factory=PriorSet)
    cluster: RayCluster | None = None

    def __post_init__(self) -> None:
        check_probability("delta", self.delta)
        check_choice("form", self.form, FORMS)
        check_integer("draws", self.draws, least=0)
        check_integer("seed", self.seed, least=0)
        check_type("priors", self.priors, PriorSet)
        check_type("cluster", self.cluster, RayCluster, optional=True)
        if self.zeta is not None:
            as_numbers("zeta", self.zeta)

    def losses(self, n_objectives: int) -> Floats:
        """ζ, shape [d]."""
        if self.zeta is None:
            return np.zeros(n_objectives)
        return check_vector("zeta", self.zeta, n_objectives, "objective")


DEFAULT_QUESTION = Question()


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """What the posterior does not know about the gains of policies; the default is nothing.

    Attributes:
        optimism: How much too high the gains of every policy are, because the log that made it also evaluates it, shape [C, d].
        error: Standard error of ``optimism``, shape [C, d]; told, and covered by ``widening``.
        widening: Factors on the posterior's standard deviations, shape [d]; one number for all objectives.
        baseline: Covariance of J(π_b) if the baseline is estimated (`baseline_covariance`), shape [d, d].
    """

    optimism: Floats | None = None
    error: Floats | None = None
    widening: Floats | float = 1.0
    baseline: Floats | None = None

    def __post_init__(self) -> None:
        as_numbers("widening", self.widening)
        check_arrays(self)

    def of(self, place: int) -> Doubt:
        """For one policy."""
        return replace(
            self,
            optimism=None if self.optimism is None else self.optimism[place : place + 1],
            error=None if self.error is None else self.error[place : place + 1],
        )

    def shift(self, n_policies: int, n_objectives: int) -> Floats:
        """Optimism, shape [C, d]."""
        return np.zeros((n_policies, n_objectives)) if self.optimism is None else self.optimism

    def factors(self, n_objectives: int) -> Floats:
        """Factors on the standard deviations, shape [d]."""
        return np.broadcast_to(np.asarray(self.widening, dtype=np.float64), n_objectives)

    def covariance(self, n_policies: int, n_objectives: int) -> Floats:
        """Covariance of what is not known, shape [C, d, d]."""
        found = np.zeros((n_policies, n_objectives, n_objectives))
        return found if self.baseline is None else found + self.baseline


NO_DOUBT = Doubt()


def visits_of(outcomes: Outcomes | CountedOutcomes, baseline: Floats) -> Floats:
    """n(x,a) in the shape [X, A] of the baseline."""
    visits = np.zeros_like(baseline)
    visits.reshape(-1)[outcomes.pair_index] = outcomes.visits
    return visits


def baseline_covariance(model: Model, baseline: Floats, visits: Floats) -> Floats:
    """Covariance of J(π_b), to first order, for a baseline that was estimated from ``visits`` n(x,a) [X, A]; shape [d, d].

        Σ_x ν_k(x) ν_l(x) Σ_a π_b(a|x) Adv_k(x,a) Adv_l(x,a) / (n(x) + 1)        ν_k: discounted visits of π_b

    (rows of π_b ~ Dirichlet(n)), in the estimated model.
    """
    mdp = model.mdp
    v, q = policy_values(mdp, baseline)
    advantage = q - v[:, mdp.pair_state]
    weight = baseline.take(mdp.pair_index) / (visits.sum(axis=1)[mdp.pair_state] + 1.0)
    reached = {
        gamma: occupancy(replace(mdp, discount=np.full_like(mdp.discount, gamma)), baseline)
        for gamma in set(mdp.discount.tolist())
    }
    moved = np.array([reached[gamma] for gamma in mdp.discount.tolist()])[:, mdp.pair_state] * advantage
    return np.asarray((moved * weight) @ moved.T)


def doubt_of_log(
    model: Model,
    baseline: Floats,
    outcomes: Outcomes | CountedOutcomes,
    *,
    estimated: bool,
    preference: Floats | None = None,
) -> Doubt:
    """What the posterior does not know about any policy.

    Args:
        model: Model of the log.
        baseline: π_b, shape [X, A].
        outcomes: Outcomes of the log.
        estimated: Whether the baseline was estimated from the same log.
        preference: λ, shape [d], if the policy is the best of many for it; standard deviations are then wider (`PURSUED_WIDENING`).
    """
    covariance = baseline_covariance(model, baseline, visits_of(outcomes, baseline)) if estimated else None
    widening: Floats | float = WIDENING
    if preference is not None:
        widening = WIDENING * np.where(preference > 0.0, PURSUED_WIDENING, 1.0)
    return Doubt(widening=widening, baseline=covariance)


def rounding_of(baseline_v: Floats) -> Floats:
    """Losses that are rounding errors, from v^{π_b} [d, X]; shape [d]."""
    return np.asarray(ROUNDING * np.max(np.abs(baseline_v), axis=1))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Posterior probabilities of candidates.

    Attributes:
        candidates: Candidates, in the order of the policies.
        question: Settings, with the form resolved to "draws" or "linearised".
        zeta: ζ, shape [d].
        draws: Number of draws M; 0 if linearised.
        priors: Names of the priors, the neutral one first.
        concentration: Posterior mean of the neutral prior's concentration for the next state.
        end_concentration: Posterior mean of the neutral prior's concentration for ends; None if the log has no ends.
        objectives: Names of the objectives, length d.
        hidden: Names of the objectives whose rewards by next state, and whose rare events, counts leave open.
        events: Declared events, as they were used.
    """

    candidates: tuple[Candidate, ...]
    question: Question
    zeta: Floats
    draws: int
    priors: tuple[str, ...]
    concentration: float
    end_concentration: float | None
    objectives: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    events: tuple[EventFacts, ...] = ()

    @property
    def linearised(self) -> bool:
        """Whether the probabilities are from the linearised form, without draws."""
        return self.draws == 0

    @property
    def nearest(self) -> int:
        """Index of the candidate nearest to passing, among those with draws if there are any."""
        drawn = [i for i, candidate in enumerate(self.candidates) if candidate.draws] or range(len(self.candidates))
        return max(drawn, key=lambda i: _margin(self.candidates[i]))

    def left_open(self, candidate: Candidate) -> bool:
        """Whether a candidate neither passed nor failed: not all priors were evaluated, because a better one had passed."""
        asked = candidate.p_pessimistic[~np.isnan(candidate.p_pessimistic)]
        return (
            candidate.draws == self.draws
            and len(asked) < len(candidate.p_pessimistic)
            and posterior_passes(candidate.p_safe, asked, self.draws, self.question.delta)
        )


def _margin(candidate: Candidate) -> float:
    """Smallest probability in the passing rule; probabilities that were not computed count as 1."""
    return min(candidate.p_safe, 1.0 - float(np.nansum(1.0 - candidate.p_pessimistic)))


def resolve_form(form: Form, outcomes: Outcomes | CountedOutcomes, *, draws: int) -> Form:
    """Form, with "auto" resolved by the size of the log."""
    if not isinstance(outcomes, CountedOutcomes):
        return form_for(form, outcomes.n_transitions, outcomes.n_objectives, draws=draws)
    check_choice("form", form, FORMS)
    if form == "draws":
        raise ParameterError("draws need the log's outcomes: pass outcomes_of(counts), not gather_counted(...).")
    return "linearised"


def form_for(form: Form, transitions: int, n_objectives: int, *, draws: int) -> Form:
    """Form, with "auto" resolved: "draws" if transitions × draws × priors is at most `MOST_DRAWN`."""
    check_choice("form", form, FORMS)
    if form != "auto":
        return form
    return "draws" if transitions * float(draws) * (1 + n_objectives) <= MOST_DRAWN else "linearised"


@dataclass(frozen=True, kw_only=True)
class Known:
    """Results that `judge` need not compute again.

    Attributes:
        candidates: Candidates for the same policies from an earlier answer with the same neutral prior, seed and number of draws;
            only the pessimistic priors are then evaluated.
        baseline_v: v^{π_b} in the model, shape [d, X].
    """

    candidates: Sequence[Candidate] | None = None
    baseline_v: Floats | None = None


NOTHING_KNOWN = Known()


def judge(
    policies: Sequence[npt.ArrayLike] | Floats,
    outcomes: Outcomes | CountedOutcomes,
    baseline: npt.ArrayLike,
    question: Question = DEFAULT_QUESTION,
    *,
    model: Model,
    names: Sequence[str] | None = None,
    best_by: Floats | None = None,
    doubt: Doubt = NO_DOUBT,
    known: Known = NOTHING_KNOWN,
    progress: Progress | None = None,
) -> Answer:
    """Posterior probabilities that policies are no worse than the baseline.

    Args:
        policies: Policies π, each of shape [X, A].
        outcomes: Outcomes of the log: from `gather_outcomes`; for counts from `outcomes_of` or, for the linearised form only, from
            `gather_counted`.
        baseline: π_b, shape [X, A].
        question: Settings.
        model: Model of the same log.
        names: Names of the policies.
        best_by: Weights [d] of gains, if only the best passing policy is needed. Policies that are hopeless by the linearised form
            (`SCREEN`) get no draws, policies that failed too often get no more, and the pessimistic priors are evaluated for one
            policy at a time, largest lower bound first, until one passes.
        doubt: What the posterior does not know: the optimism of policies that were made from the same log, and the uncertainty of
            an estimated baseline.
        known: Results that are already computed.
        progress: Callback for draws, candidates or priors.

    Examples:
        >>> from bettersafe.posterior import judge
        >>> policy = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy
        >>> outcomes = bettersafe.gather_outcomes(log)
        >>> answer = judge([policy], outcomes, baseline, bettersafe.Question(draws=100), model=model)
        >>> bool(answer.candidates[0].p_safe > 0.9)
        True
    """
    check_type("outcomes", outcomes, Outcomes, CountedOutcomes)
    check_type("question", question, Question)
    check_type("model", model, Model)
    check_type("policies", policies, list, tuple, np.ndarray)
    check_type("doubt", doubt, Doubt)
    check_type("known", known, Known)
    if names is not None:
        check_types("names", names, str)
    if best_by is not None:
        best_by = check_vector("best_by", best_by, outcomes.n_objectives, "objective")
    if known.baseline_v is not None:
        check_table("baseline_v", known.baseline_v, (outcomes.n_objectives, outcomes.n_states), "[d, X]")
    check_options(progress=progress)
    if model.horizon is not None:
        raise ParameterError(
            "the posterior is of returns without a limit on steps: estimate the model without a horizon."
        )
    tables = [distributions(policy, outcomes.n_states, outcomes.n_actions) for policy in policies]
    baseline = distributions(baseline, outcomes.n_states, outcomes.n_actions, name="baseline")
    form = resolve_form(question.form, outcomes, draws=question.draws)
    loss = question.losses(outcomes.n_objectives)
    part = essential(outcomes, model, [baseline, *tables])
    v = part.values(policy_values(model.mdp, baseline)[0] if known.baseline_v is None else known.baseline_v)
    case = _Case(
        policies=[part.policy(table) for table in tables],
        names=list(names) if names is not None else [f"policy {i}" for i in range(len(tables))],
        baseline=part.policy(baseline),
        baseline_v=v,
        slack=loss + rounding_of(v),
        question=replace(question, form=form),
        best_by=best_by,
        shift=doubt.shift(len(tables), loss.size),
        widening=doubt.factors(loss.size),
        doubt=doubt.covariance(len(tables), loss.size),
        known=known.candidates,
        progress=progress,
    )
    evaluate = _linearised if form == "linearised" else _drawn
    found, neutral = evaluate(case, part.outcomes)
    candidates = [replace(candidate, policy=table) for candidate, table in zip(found, tables, strict=True)]
    if doubt.optimism is not None and doubt.error is not None:
        candidates = [
            replace(candidate, optimism=doubt.optimism[i], optimism_error=doubt.error[i])
            for i, candidate in enumerate(candidates)
        ]
    return Answer(
        candidates=tuple(candidates),
        question=case.question,
        zeta=loss,
        draws=0 if form == "linearised" else question.draws,
        priors=question.priors.names(model.objectives),
        concentration=float(neutral.weight @ neutral.concentration),
        end_concentration=float(neutral.end_weight @ neutral.end_concentration) if outcomes.has_ends else None,
        objectives=model.objectives,
        hidden=tuple(model.objectives[k] for k in outcomes.hidden),
        events=event_facts(outcomes.events, neutral.rates),
    )


@dataclass(frozen=True, kw_only=True)
class _Case:
    """Checked arguments of `judge`; ``slack`` [d] is ζ plus a tolerance for rounding, ``shift`` [C, d] the optimism, ``widening`` [d]
    the factors on standard deviations, ``doubt`` [C, d, d] the covariance of what the posterior does not know.
    """

    policies: list[Floats]
    names: list[str]
    baseline: Floats
    baseline_v: Floats
    slack: Floats
    question: Question
    best_by: Floats | None
    shift: Floats
    widening: Floats
    doubt: Floats
    known: Sequence[Candidate] | None
    progress: Progress | None

    def corrected(self, i: int, gains: Floats, objectives: Sequence[int] | None = None) -> Floats:
        """Gains [m, n] of policy i in the first m draws: without their optimism, wider, and with noise for what is not known."""
        asked = list(range(self.slack.size)) if objectives is None else list(objectives)
        covariance = self.doubt[i][np.ix_(asked, asked)]
        centre = gains.mean(axis=0)
        found = centre + self.widening[asked] * (gains - centre) - self.shift[i, asked]
        if np.any(covariance):
            size, axes = np.linalg.eigh(covariance)
            noise = np.random.default_rng([self.question.seed, *asked]).standard_normal(gains.shape)
            found = found + noise @ (axes * np.sqrt(np.maximum(size, 0.0))).T
        return np.asarray(found)

    @cached_property
    def tables(self) -> Floats:
        """Policies as one array, shape [C, X, A]."""
        return np.array(self.policies).reshape(len(self.policies), *self.baseline.shape)

    def known_candidates(self) -> list[Candidate]:
        """Candidates of an earlier answer, with their current names."""
        return [replace(candidate, name=self.names[i]) for i, candidate in enumerate(self.known or ())]

    def by_gain(self, places: Sequence[int], candidates: Sequence[Candidate]) -> list[int]:
        """Indices of candidates, largest lower bound on the preferred gain first."""
        assert self.best_by is not None
        best_by = self.best_by
        return sorted(places, key=lambda i: -float(best_by @ candidates[i].least))


def _reporter(progress: Progress | None, what: str, total: int, unit: Unit) -> Callable[[int], None]:
    """Function that reports progress, without repeated events."""
    last = -1

    def report(done: int) -> None:
        nonlocal last
        if progress is not None and done > last:
            last = done
            progress(Event(what=what, done=done, total=total, unit=unit))

    report(0)
    return report


def _after(before: int, report: Callable[[int], None]) -> Progress:
    """Progress callback for work that follows ``before`` units of other work."""
    return lambda event: report(before + event.done)


# ---- by draws


def _drawn(case: _Case, outcomes: Outcomes | CountedOutcomes) -> tuple[list[Candidate], Posterior]:
    """Candidates from draws, and the posterior under the neutral prior."""
    assert isinstance(outcomes, Outcomes)
    question = case.question
    if question.draws < 1 or question.delta * (question.draws + 1) < 1.0:
        raise ParameterError(
            f"{question.draws} draws are too few for delta = {question.delta:g}; at least"
            f" {int(np.ceil(1.0 / question.delta - 1.0))} are needed."
        )
    neutral, others = informed_priors(outcomes, question.priors, case.baseline, case.baseline_v)
    if case.known is None:
        candidates, active = _drawn_neutral(case, neutral, others)
    else:
        candidates, active = case.known_candidates(), list(range(len(case.policies)))
    return _drawn_pessimistic(case, candidates, active, others), neutral


def _failures_allowed(question: Question) -> float:
    """Largest number of failures with which a candidate passes."""
    return question.delta * (question.draws + 1) - 1.0 + 1e-9


def _drawn_neutral(case: _Case, neutral: Posterior, others: Sequence[Posterior]) -> tuple[list[Candidate], list[int]]:
    """Candidates from draws under the neutral prior, and the indices of those that can still pass."""
    question, tables = case.question, case.tables
    candidates: dict[int, Candidate] = {}
    if case.best_by is not None:
        candidates = _hopeless(case, tables, neutral, others)
    active = [i for i in range(len(case.policies)) if i not in candidates]
    gains: dict[int, Floats] = {i: np.zeros((0, case.slack.size)) for i in active}
    report = _reporter(case.progress, "Evaluating candidates", question.draws, "draws")
    for first, n in _looks(question.draws, several=case.best_by is not None):
        if active:
            drawn = shared_gains(
                neutral,
                tables[active],
                case.baseline,
                draws=n,
                seed=question.seed,
                first=first,
                cluster=question.cluster,
                progress=_after(first, report),
            )
            for place, i in enumerate(active):
                gains[i] = np.concatenate([gains[i], drawn[:, place]])
        if case.best_by is not None:
            allowed = _failures_allowed(question)
            failed = {i: np.any(case.corrected(i, gains[i]) < -case.slack, axis=1) for i in active}
            active = [i for i in active if np.count_nonzero(failed[i]) <= allowed]
    report(question.draws)
    for i, drawn in gains.items():
        corrected = case.corrected(i, drawn)
        candidates[i] = drawn_candidate(case.names[i], case.policies[i], corrected, case.slack, question.delta)
    return [candidates[i] for i in range(len(case.policies))], active


def _hopeless(case: _Case, tables: Floats, neutral: Posterior, others: Sequence[Posterior]) -> dict[int, Candidate]:
    """Candidates ruled out by the linearised form, by index; they don't pass."""
    delta = case.question.delta
    spread = linearised_spread(tables, case.baseline, neutral, others).corrected(case.shift, case.doubt, case.widening)
    limit = delta * SCREEN + SCREEN * np.sqrt(delta * (1.0 - delta) / case.question.draws)
    return {
        i: replace(candidate, passed=False)
        for i, candidate in enumerate(linearised_candidates(case.names, case.policies, spread, case.slack, delta))
        if not (1.0 - candidate.p_safe <= limit and float(np.sum(1.0 - candidate.p_pessimistic)) <= limit)
    }


def _looks(draws: int, *, several: bool) -> list[tuple[int, int]]:
    """First draw and number of draws of every batch; the total grows up to four times with each batch."""
    ends = [draws]
    while several and ends[0] > FIRST_LOOK:
        ends.insert(0, max(FIRST_LOOK, ends[0] // 4))
    return [(first, end - first) for first, end in zip([0, *ends], ends, strict=False)]


def _drawn_pessimistic(
    case: _Case, candidates: list[Candidate], active: list[int], others: Sequence[Posterior]
) -> list[Candidate]:
    """Candidates with probabilities from draws under the pessimistic priors ``others``, one per objective."""
    question, d = case.question, case.slack.size
    draws, allowed, tables = question.draws, _failures_allowed(question), case.tables
    found = {
        i: np.full(d, np.nan) if others else np.ones(d) for i, candidate in enumerate(candidates) if candidate.draws
    }
    groups = [active] if case.best_by is None else [[i] for i in case.by_gain(active, candidates)]
    for group in groups if others else []:
        active = group
        report = _reporter(case.progress, "Evaluating pessimistic priors", draws * d, "draws")
        for k, prior in enumerate(others):
            if active:
                drawn = shared_gains(
                    prior,
                    tables[active],
                    case.baseline,
                    draws=draws,
                    seed=question.seed,
                    stream=k + 1,
                    objectives=[k],
                    cluster=question.cluster,
                    progress=_after(draws * k, report),
                )
                for place, i in enumerate(active):
                    gains = case.corrected(i, drawn[:, place], [k])
                    found[i][k] = np.mean(gains[:, 0] >= -case.slack[k])
            if case.best_by is not None:
                active = [i for i in active if draws * np.nansum(1.0 - found[i]) <= allowed]
        report(draws * d)
        if any(draws * np.sum(1.0 - found[i]) <= allowed for i in active):
            break
    return [
        with_pessimistic(candidate, found[i], draws, question.delta) if i in found else candidate
        for i, candidate in enumerate(candidates)
    ]


# ---- by linearisation

AnyPosterior = Posterior | CountedPosterior
Gains: TypeAlias = "Callable[[Sequence[Floats], Progress | None], tuple[Floats, Floats]]"
"""Means [C, n] and covariances [C, n, n] of the gains of policies."""


def _linearised(case: _Case, outcomes: Outcomes | CountedOutcomes) -> tuple[list[Candidate], AnyPosterior]:
    """Candidates by linearisation, and the posterior under the neutral prior.

    The pessimistic priors are evaluated for all policies or, with ``best_by``, for those that pass under the neutral prior.
    """
    question, d, n = case.question, case.slack.size, len(case.policies)
    priors, delta = question.priors, question.delta
    neutral: AnyPosterior = (
        counted_posterior(outcomes, priors)
        if isinstance(outcomes, CountedOutcomes)
        else informed(outcomes, priors, case.baseline)
    )
    candidates = case.known_candidates() if case.known is not None else _linearised_neutral(case, neutral)
    if priors.pessimism <= 0.0:
        return [with_pessimistic(candidate, np.ones(d), 0, delta) for candidate in candidates], neutral
    active = list(range(n))
    if case.best_by is not None:
        passing = [i for i in active if posterior_passes(candidates[i].p_safe, (), 0, delta)]
        active = case.by_gain(passing, candidates)
    gains: dict[int, Gains] = {}
    for i in active:
        p_pessimistic = np.empty(d)
        report = _reporter(case.progress, "Evaluating pessimistic priors", d, "priors")
        for k in range(d):
            if k not in gains:
                gains[k] = gains_under(_pessimistic(neutral, k, case.baseline_v), case.baseline, [k])
            mean, covariance = gains[k]([case.policies[i]], None)
            sd = np.sqrt(float(case.widening[k]) ** 2 * float(covariance[0, 0, 0]) + float(case.doubt[i, k, k]))
            p_pessimistic[k] = normal_chance(mean[0, 0] - case.shift[i, k] + case.slack[k], sd)
            report(k + 1)
        candidates[i] = with_pessimistic(candidates[i], p_pessimistic, 0, delta)
        if case.best_by is not None and candidates[i].passed:
            break
    return candidates, neutral


def _linearised_neutral(case: _Case, neutral: AnyPosterior) -> list[Candidate]:
    """Candidates by linearisation under the neutral prior only."""
    n, d = len(case.policies), case.slack.size
    report = _reporter(case.progress, "Evaluating", n, "candidates")
    mean, covariance = gains_under(neutral, case.baseline, range(d))(case.policies, _after(0, report))
    nothing = np.full((n, d), np.nan)
    spread = Spread(gain=mean, covariance=covariance, pessimistic_gain=nothing, pessimistic_sd=np.ones((n, d)))
    spread = spread.corrected(case.shift, case.doubt, case.widening)
    return linearised_candidates(case.names, case.policies, spread, case.slack, case.question.delta)


def _pessimistic(neutral: AnyPosterior, k: int, baseline_v: Floats) -> AnyPosterior:
    """The posterior under the prior that is pessimistic for k."""
    if isinstance(neutral, CountedPosterior):
        return counted_pessimistic(neutral, k, baseline_v)
    return pessimistic(neutral, k, baseline_v)


def gains_under(given: AnyPosterior, baseline: Floats, objectives: Sequence[int]) -> Gains:
    """Linearised gains under a posterior, as a function of policies; with counts, the baseline is evaluated once."""
    if isinstance(given, CountedPosterior):
        base = side_of(given, baseline, objectives)
        return lambda policies, progress: counted_gains(given, policies, base, progress=progress)
    return lambda policies, progress: linearised_gains(
        given,
        np.array(policies).reshape(len(policies), *baseline.shape),
        baseline,
        objectives=objectives,
        progress=progress,
    )


# ---- sensitivity

SENSITIVITY: tuple[tuple[str, float | None, float], ...] = (
    ("without pessimism", 0.0, 1.0),
    ("one bad visit of every pair", 1.0, 1.0),
    ("two bad visits of every pair", 2.0, 1.0),
    ("half the concentration", None, 0.5),
    ("twice the concentration", None, 2.0),
)
"""Other sets of priors: name, pessimism (None: unchanged), factor on the concentrations."""


def other_priors(priors: PriorSet) -> list[tuple[str, PriorSet]]:
    """Sets of `SENSITIVITY` with their names, without those that are equal to ``priors``."""
    return [
        (
            name,
            replace(
                priors,
                pessimism=priors.pessimism if more is None else more,
                concentration_scale=priors.concentration_scale * factor,
            ),
        )
        for name, more, factor in SENSITIVITY
        if more != priors.pessimism and not (priors.neutral == "support" and factor != 1.0)
    ]


def sensitivity(
    policy: Floats,
    outcomes: Outcomes | CountedOutcomes,
    baseline: Floats,
    question: Question = DEFAULT_QUESTION,
    *,
    model: Model,
    doubt: Doubt = NO_DOUBT,
    known: Candidate | None = None,
    baseline_v: Floats | None = None,
    progress: Progress | None = None,
) -> list[Answer]:
    """Sensitivity analysis: posterior probabilities of one policy under other priors (`SENSITIVITY`).

    Args:
        policy: π, shape [X, A].
        outcomes: Outcomes of the log, as in `judge`.
        baseline: π_b, shape [X, A].
        question: Settings of the original evaluation.
        model: Model of the same log.
        doubt: What the posterior does not know, for one policy, as in `judge`.
        known: Candidate of the policy in the answer to ``question``; the neutral prior is then evaluated again only if its
            concentrations differ.
        baseline_v: v^{π_b} in the model, shape [d, X], if already computed.
        progress: Callback for draws or priors.

    Examples:
        >>> from bettersafe.posterior import sensitivity
        >>> policy = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy
        >>> outcomes = bettersafe.gather_outcomes(log)
        >>> answers = sensitivity(policy, outcomes, baseline, bettersafe.Question(draws=50), model=model)
        >>> all(answer.candidates[0].p_safe > 0.8 for answer in answers)
        True
    """
    check_type("outcomes", outcomes, Outcomes, CountedOutcomes)
    check_type("question", question, Question)
    check_type("model", model, Model)
    check_type("doubt", doubt, Doubt)
    check_type("known", known, Candidate, optional=True)
    if baseline_v is not None:
        baseline_v = check_table("baseline_v", baseline_v, (outcomes.n_objectives, outcomes.n_states), "[d, X]")
    check_options(progress=progress)
    rows = other_priors(question.priors)
    linearised = resolve_form(question.form, outcomes, draws=question.draws) == "linearised"
    v = policy_values(model.mdp, baseline)[0] if baseline_v is None else baseline_v
    same = [priors.concentration_scale == question.priors.concentration_scale for _, priors in rows]
    anew = [not alike or (known is None and i == 0) for i, alike in enumerate(same)]  # ask the neutral prior
    asked = sum(anew) + outcomes.n_objectives * sum(priors.pessimism > 0.0 for _, priors in rows)
    total = (1 if linearised else question.draws) * asked
    before = 0

    def report(part: Event) -> None:
        nonlocal before
        if progress is not None:
            unit: Unit = "priors" if linearised else "draws"
            progress(Event(what="Evaluating other priors", done=before + part.done, total=total, unit=unit))
        if part.done == part.total:
            before += part.done

    found = []
    for (name, priors), alike, ask in zip(rows, same, anew, strict=True):
        answer = judge(
            [policy],
            outcomes,
            baseline,
            replace(question, priors=priors),
            model=model,
            doubt=doubt,
            known=Known(candidates=None if ask or known is None else [known], baseline_v=v),
            progress=report,
        )
        if alike:
            known = answer.candidates[0]
        found.append(replace(answer, priors=(name, *answer.priors[1:])))
    return found
