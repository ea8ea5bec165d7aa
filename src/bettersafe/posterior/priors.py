"""Priors of the true process, and its posterior given a log.

Every pair (x,a) has its own unknown distribution over the outcomes of its state. An outcome is the next state, or the end,
together with its reward; rewards that are a function of the outcome therefore need no model. The outcomes of a state are those
observed in it under any action, and every kind of end in the log. A step ends the episode or continues; if it continues, there
is a next state. With prior α_0 and counts n,

    (on, ends)(x,a) | D       ~ Dirichlet( α_0(x,·) + n(x,a,·) )       the count of "on" is that of all steps that continue
    next state, if on (x,a) | D ~ Dirichlet( α_0(x,·) + n(x,a,·) )       independent of the first, and both independent over pairs

There are two neutral priors, and a pessimistic one for every objective k:

    "support"        total mass 1, spread evenly over the observed outcomes of the state; the two Dirichlets are then one
    "hierarchical"   for a pair, the outcomes of the *other* actions of its state, with two concentrations, c' for ends and c for
                     the next state, integrated with the likelihood of every pair given the others. A prior never weighs more
                     than the visits it was estimated from. The rate of ends of a state is shrunk to that of all states
                     (`pooled_ends`)
    pessimistic(k)   the neutral prior, with concentrations of at most `PESSIMISTIC_CONCENTRATION`, plus pseudo-transitions (one by
                     default) of every pair to the observed outcome of its state that is worst for k, by r_k + γ_k v̂_k^{π_b},
                     as many to the place that is worst for k in the whole log, by γ_k v̂_k^{π_b}, and bad visits of rewards

Ends have a separate concentration because actions with different next states may well be equally likely to end. With one
concentration for both, a pair without an end in ten visits would be estimated to end almost never. Policies made from the log
prefer such pairs, so all rewards per step would be overestimated, by four standard deviations in some worlds.

A good baseline is itself evidence that its rare actions are bad. How much worse they are is learnt from the log (`habits`), and a
policy must pass under the pessimistic priors too (`posterior.judge`).

There are three kinds of rewards. *Known*: a table [X, A] given by the caller. *Outcome*: a function of the next state or the kind
of end. *Noisy*: all others, with effects of the state, the action and the pair (`rewards`). Rare steps that are far worse or better are pooled over states and
actions (`rare`). The prior that is pessimistic for k adds bad visits of noisy and outcome rewards: m of the smallest possible reward
(declared, else observed), where m is the pessimism times the mean position of the logged rewards between the largest (0) and the
smallest (1), so that a cost which occurs in 7 of 100 steps gets 0.07 bad visits. Declared events, which the log has never shown, are in
`events`.

A prior is the same for all pairs of a state, so it is stored per outcome, and only observations are stored per pair. Means and the
linearised form take one pass over the log's distinct transitions. Draws (in the C++ kernel) store no pair's distribution, only
the sums that policies need. `posterior.linearised_counts` uses the same formulas and stores the posterior by pair and state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.errors import (
    ParameterError,
    as_array,
    as_kind,
    check_choice,
    check_indices,
    check_integer,
    check_table,
    check_type,
)
from bettersafe.logs.counts import Counts
from bettersafe.mdp.policy import distributions, policy_tables
from bettersafe.posterior.choices import NEUTRAL, Neutral
from bettersafe.posterior.events import Rate, event_effects, rates_of, worst_rates
from bettersafe.posterior.outcomes import Outcomes, outcomes_of
from bettersafe.typing import check_arrays

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from bettersafe.posterior.rewards import Strengths
    from bettersafe.typing import Bools, Floats, Ints


CONCENTRATIONS = tuple(float(c) for c in np.geomspace(0.1, 300.0, 15))
"""Grid of the hierarchical prior's concentration for the next state, in visits. With more than 300, the prior would outweigh the data
of actions with many visits."""

END_CONCENTRATIONS = tuple(float(c) for c in np.geomspace(0.1, 3000.0, 19))
"""Grid of the concentration for ends; larger, because ends may be equally likely under all actions."""

PESSIMISTIC_CONCENTRATION = 5.0
"""Largest concentration of a pessimistic prior, in visits. Beside a neutral prior with the weight of hundreds of visits, one bad
visit would have no effect, and if the log were wrong about the other actions, both priors would be wrong."""

VALUE_TOL = 1e-9
"""Backward error of values in a draw and at the mean; far below the spread of draws."""

LEAST_WEIGHT = 1e-6
"""Concentrations with a smaller probability are ignored in means and in the linearised form."""


@dataclass(frozen=True, kw_only=True)
class PriorSet:
    """Priors under which a policy must pass: a neutral one, and a pessimistic one for every objective.

    Attributes:
        neutral: Neutral prior, "hierarchical" or "support".
        pessimism: Pseudo-transitions of every pair to its worst outcome in the pessimistic priors; 0 leaves these priors out. The
            baseline's pairs have them too, so more of them speak for a policy that leaves what was rarely tried.
        concentration_scale: Factor on the concentrations of the hierarchical prior, for a sensitivity analysis.

    Examples:
        >>> from bettersafe.posterior import PriorSet
        >>> PriorSet().names(["r0", "r1"])
        ('hierarchical', 'hierarchical, pessimistic for r0', 'hierarchical, pessimistic for r1')
    """

    neutral: Neutral = "hierarchical"
    pessimism: float = 1.0
    concentration_scale: float = 1.0

    def __post_init__(self) -> None:
        check_choice("prior", self.neutral, NEUTRAL)
        for name in ("pessimism", "concentration_scale"):
            object.__setattr__(self, name, as_kind(name, getattr(self, name), "number"))
        if not 0.0 <= self.pessimism < math.inf:
            raise ParameterError(
                f"pessimism must be a number of visits, 0 or more; got {self.pessimism}.", setting="pessimism"
            )
        if not 0.0 < self.concentration_scale < math.inf:
            raise ParameterError(f"concentration_scale must be a number above 0; got {self.concentration_scale}.")

    @property
    def most_pessimistic(self) -> float:
        """Largest concentration of a pessimistic prior; scaled too, or halving and doubling would both end at the same limit."""
        return PESSIMISTIC_CONCENTRATION * self.concentration_scale

    def names(self, objectives: Sequence[str]) -> tuple[str, ...]:
        """Names of the priors, the neutral one first."""
        pessimistic = objectives if self.pessimism > 0.0 else ()
        return (self.neutral, *(f"{self.neutral}, pessimistic for {name}" for name in pessimistic))


DEFAULT_PRIORS = PriorSet()


@dataclass(frozen=True, kw_only=True)
class Block:
    """One of the two Dirichlets of pairs, for one concentration: α + n = scale · share + own · n + extra.

    Attributes:
        probability: Posterior probability of this concentration.
        share: Share of an outcome in the prior, 0 for outcomes of the other Dirichlet, shape [K].
        extra: Pseudo-transitions to an outcome, 0 for outcomes of the other Dirichlet, shape [K].
        scale: w, shape [P].
        own: 1 − w, the factor on a pair's own counts, which ``share`` already includes; 1 for "support", shape [P].
        going: α + n of "on", shape [P]; 0 in the Dirichlet of the next state.
        total: Sum of α + n over the outcomes of a pair, shape [P].
    """

    probability: float
    share: Floats
    extra: Floats
    scale: Floats
    own: Floats
    going: Floats
    total: Floats


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """Posterior over processes given a log, under one prior.

    Attributes:
        outcomes: Outcomes of the log.
        priors: Set of priors that contains this prior.
        share: Share of an outcome in the prior, shape [K]; for "hierarchical" its visits under all actions, plus a smoothing term.
        going: Share of "on" in the prior, shape [X].
        others: Visits of the state's other pairs after which the episode continued, shape [P]; 0 for "support".
        end_others: All visits of the state's other pairs, shape [P]; 0 for "support".
        extra: Pseudo-transitions of every pair to an outcome, shape [K].
        concentration: Concentrations c for the next state, shape [C]; 1 for "support".
        weight: Posterior probabilities of ``concentration``, shape [C].
        end_concentration: Concentrations c' for ends, shape [C']; 1 for "support".
        end_weight: Posterior probabilities of ``end_concentration``, shape [C'].
        pair_reward: Means of rewards that are not a function of the outcome, shape [d, P].
        pessimistic_for: Index of the objective for which the prior is pessimistic; None for the neutral prior.
        habits: Strengths that `with_habits` learnt, by part of the value and objective.
        rates: Rates of the declared events.
    """

    outcomes: Outcomes
    priors: PriorSet
    share: Floats
    going: Floats
    others: Floats
    end_others: Floats
    extra: Floats
    concentration: Floats
    weight: Floats
    end_concentration: Floats
    end_weight: Floats
    pair_reward: Floats
    pessimistic_for: int | None = None
    habits: Mapping[tuple[bool, int], Strengths] = field(default_factory=dict)
    rates: tuple[Rate, ...] = ()

    def __post_init__(self) -> None:
        check_type("outcomes", self.outcomes, Outcomes)
        check_type("priors", self.priors, PriorSet)
        check_arrays(self)

    def __repr__(self) -> str:
        """Text with the prior and its mean concentrations, without arrays."""
        c, ends = self.weight @ self.concentration, self.end_weight @ self.end_concentration
        pessimistic = (
            ""
            if self.pessimistic_for is None
            else f", pessimistic_for={self.pessimistic_for}, pessimism={self.priors.pessimism:g}"
        )
        return (
            f"Posterior({self.priors.neutral!r}{pessimistic}, concentration={c:.3g}, end_concentration={ends:.3g},"
            f" {self.outcomes.pair_state.size} pairs, {self.outcomes.outcome_next.size} outcomes)"
        )

    def on_block(self, c: float, probability: float = 1.0) -> Block:
        """Dirichlet of the next state, for one concentration."""
        o = self.outcomes
        share, extra = np.where(o.ends, 0.0, self.share), np.where(o.ends, 0.0, self.extra)
        x = o.pair_state
        scale, own, total = on_mass(c, self.others, by_state(o, share)[x], o.visits_on, by_state(o, extra)[x])
        return Block(
            probability=probability,
            share=share,
            extra=extra,
            scale=scale,
            own=own,
            going=np.zeros_like(total),
            total=total,
        )

    def end_block(self, c: float, probability: float = 1.0) -> Block:
        """Dirichlet of ends and "on", for one concentration."""
        o = self.outcomes
        share, extra = np.where(o.ends, self.share, 0.0), np.where(o.ends, self.extra, 0.0)
        x = o.pair_state
        extra_on = by_state(o, self.extra - extra)[x]
        scale, own, going = on_mass(c, self.end_others, self.going[x], o.visits_on, extra_on)
        total = scale * by_state(o, share)[x] + own * (o.visits - o.visits_on) + going + by_state(o, extra)[x]
        return Block(probability=probability, share=share, extra=extra, scale=scale, own=own, going=going, total=total)

    @cached_property
    def end_blocks(self) -> list[Block]:
        """Dirichlets of ends and "on", for every concentration with enough probability."""
        return [
            self.end_block(float(self.end_concentration[i]), probability) for i, probability in worth(self.end_weight)
        ]

    @cached_property
    def on_blocks(self) -> list[Block]:
        """Dirichlets of the next state, for every concentration with enough probability."""
        return [self.on_block(float(self.concentration[i]), probability) for i, probability in worth(self.weight)]

    @cached_property
    def _events(self) -> tuple[Floats, Floats]:
        """`event_effects` at the mean rates."""
        o = self.outcomes
        return event_effects(o.events, [rate.mean for rate in self.rates], o.pair_index, o.n_objectives)

    @property
    def onward(self) -> Floats:
        """Probability that no declared event ends the episode, shape [P]: the factor on π(a|x) in means and draws."""
        return self._events[0]

    @cached_property
    def reward(self) -> Floats:
        """Means of rewards that are not a function of the outcome, with declared events, per unit of onward · π; shape [d, P]."""
        onward, cost = self._events
        return self.pair_reward + cost / onward

    @cached_property
    def mean_going(self) -> Floats:
        """Posterior mean of the probability that the episode continues after a pair, shape [P]."""
        return np.asarray(np.sum([b.probability * b.going / b.total for b in self.end_blocks], axis=0))


# ---- the prior of a pair, by its visits and those of the state's other pairs


def strengths(c: float, others: Floats) -> tuple[Floats, Floats]:
    """Weight w of the shares and factor 1 − w on a pair's own counts, shape [P]; (c, 1) for pairs without other visits.

    The distribution m of the other pairs is estimated from ``others`` visits. With p ~ Dirichlet(c m) and m ~ Dirichlet of that
    mass, p has the variance of a Dirichlet of mass c̃, 1/(c̃+1) = 1/(c+1) + c/(c+1) · 1/(others+1), which is smaller than both;
    w = c̃/others.
    """
    alone = others <= 0.0
    strength = 1.0 / (1.0 / (c + 1.0) + c / ((c + 1.0) * (others + 1.0))) - 1.0
    scale = np.where(alone, c, strength / np.where(alone, 1.0, others))
    return scale, np.where(alone, 1.0, 1.0 - scale)


def on_mass(
    c: float, others: Floats, share: Floats, seen: Floats | float, extra: Floats
) -> tuple[Floats, Floats, Floats]:
    """w, 1 − w and α + n of "on", each of shape [P], in either Dirichlet: prior share, visits of the pair, pseudo-transitions."""
    scale, own = strengths(c, others)
    return scale, own, scale * share + own * seen + extra


def visits_of_others(
    state: Ints, share_on: Floats, share_end: Floats, going: Floats, on: Floats, visits: Floats
) -> tuple[Floats, Floats]:
    """Visits of the other pairs in every pair's state [P], with "on" and in total: shares [X] minus the pair's own counts [P]."""
    return share_on[state] - on, (share_end + going)[state] - visits


def share_of_going(goes: Floats, more: float) -> Floats:
    """Share of "on" in the hierarchical prior, shape [X], from the visits with "on" [X]; 0 if there are none."""
    return np.where(goes > 0.0, goes + more, 0.0)


# ---- strength of the hierarchical prior, estimated from the log

Rising = Callable[["Floats", "Floats"], float]
"""Σ log Γ(α + n)/Γ(α) over arrays α and n."""


def log_rising(alpha: Floats, count: Floats) -> float:
    """Σ log Γ(α + n)/Γ(α), with a lower limit on α against rounding errors around 0."""
    from scipy.special import gammaln

    alpha = np.maximum(alpha, 1e-9)
    return float(np.sum(gammaln(alpha + count) - gammaln(alpha)))


def log_evidence(
    c: float,
    others: Floats,
    visits: Floats,
    seen: Sequence[tuple[Ints | Bools, Floats, Floats]],
    rising: Rising = log_rising,
) -> float:
    """Σ_p log P(n_p | visits of the others): Dirichlet–multinomial with α = w · (share − n) and mass w · others.

    Args:
        c: Concentration.
        others: Visits of the other pairs, shape [P].
        visits: Visits of the pair, shape [P].
        seen: Groups of observations: pairs, share − n, and n, arrays of one shape.
        rising: Function for the sum of log-gamma ratios.
    """
    scale, _ = strengths(c, others)
    tried = visits > 0.0
    found = sum(rising(scale[pair] * rest, count) for pair, rest, count in seen)
    return found - rising((scale * others)[tried], visits[tried])


def pooled_ends(share: Floats, kind: Ints, count: Floats, acted: Floats, rising: Rising = log_rising) -> Floats:
    """Pseudo-counts C ḡ that every state gets for each kind of end and, last, for "on".

    ḡ is the share of a kind in the whole log. C measures the similarity of the states: its posterior mean on a logarithmic
    scale, from the likelihood of all states' ends. A kind of end that was not observed in a state gets a small probability,
    estimated from the other states.

    Args:
        share: ḡ, shape [kinds + 1].
        kind: Kind of every count.
        count: Number of ends of that kind in a state, or of steps with "on".
        acted: Visits of every state with decisions.
        rising: Function for the sum of log-gamma ratios.
    """
    if np.max(share) == 1.0:
        return share
    grid = np.array(END_CONCENTRATIONS)
    alpha = share[kind]
    spread = likely(lambda c: rising(c * alpha, count) - rising(np.full(acted.size, c), acted), grid)
    return float(np.exp(spread @ np.log(grid))) * share


def likely(log_likelihood: Callable[[float], float], grid: Floats) -> Floats:
    """Posterior on a grid, shape [C], with a prior ∝ 1/√(1 + c) on the logarithmic scale, which favours weak priors."""
    logs = np.array([log_likelihood(float(c)) for c in grid]) - 0.5 * np.log1p(grid)
    weight = np.exp(logs - logs.max())
    return np.asarray(weight / weight.sum())


def capped(concentration: Floats, weight: Floats, most: float) -> tuple[Floats, Floats]:
    """Concentrations, at most ``most``, and their probabilities."""
    kept, place = np.unique(np.minimum(concentration, most), return_inverse=True)
    return np.asarray(kept), np.bincount(place, weights=weight).astype(np.float64)


def worth(weight: Floats) -> list[tuple[int, float]]:
    """Indices and probabilities of the concentrations with a probability of at least `LEAST_WEIGHT`."""
    kept = np.flatnonzero(weight >= LEAST_WEIGHT)
    return [(i, float(weight[i] / weight[kept].sum())) for i in kept.tolist()]


# ---- posterior from listed outcomes


def posterior(
    outcomes: Outcomes | Counts,
    priors: PriorSet = DEFAULT_PRIORS,
    *,
    pessimistic_for: int | None = None,
    baseline_v: Floats | None = None,
) -> Posterior:
    """Posterior under one prior of a set.

    Args:
        outcomes: Outcomes of the log (`gather_outcomes`), or its counts.
        priors: Set of priors.
        pessimistic_for: Index k of the objective for which the prior is pessimistic; None for the neutral prior.
        baseline_v: v̂^{π_b} [d, X], to find the worst outcomes; needed with ``pessimistic_for``.

    Examples:
        >>> from bettersafe.posterior import PriorSet, posterior
        >>> neutral = posterior(counts, PriorSet(pessimism=2.0))
        >>> bool(neutral.weight.sum().round(9) == 1.0)  # over concentrations of the prior
        True
    """
    check_type("outcomes", outcomes, Outcomes, Counts)
    check_type("priors", priors, PriorSet)
    check_integer("pessimistic_for", pessimistic_for, least=0, optional=True)
    if baseline_v is not None:
        baseline_v = check_table("baseline_v", baseline_v, (outcomes.n_objectives, outcomes.n_states), "[d, X]")
    o = outcomes_of(outcomes) if isinstance(outcomes, Counts) else outcomes
    neutral = _supported(o, priors) if priors.neutral == "support" else _hierarchical(o, priors)
    neutral = replace(neutral, rates=rates_of(o.events, o.pair_index, o.visits))
    return neutral if pessimistic_for is None else pessimistic(neutral, pessimistic_for, baseline_v)


def _supported(o: Outcomes, priors: PriorSet) -> Posterior:
    """Posterior under the neutral prior "support"."""
    share = ~o.assumed / by_state(o, np.where(o.assumed, 0.0, 1.0))[o.outcome_state]
    nobody, one = np.zeros(o.pair_state.size), np.ones(1)
    return Posterior(
        outcomes=o,
        priors=priors,
        share=share,
        going=by_state(o, share * ~o.ends),
        others=nobody,
        end_others=nobody,
        extra=np.zeros_like(share),
        concentration=one,
        weight=one,
        end_concentration=one,
        end_weight=one,
        pair_reward=o.pair_reward,
    )


def _hierarchical(o: Outcomes, priors: PriorSet) -> Posterior:
    """Posterior under the neutral prior "hierarchical"."""
    on = np.where(o.ends, 0.0, 1.0)
    more = _end_mass(o)
    base = np.where(o.ends, np.append(more[:-1], 0.0)[o.kind], on / nonzero(by_state(o, on))[o.outcome_state])
    share = o.seen + base  # one more visit, spread evenly over the next states
    going = share_of_going(by_state(o, o.seen * on), float(more[-1]))
    going = np.where(by_state(o, o.seen) > 0.0, going, 1.0)  # a part of a log may have no visit of a state
    others, end_others = visits_of_others(
        o.pair_state, by_state(o, share * on), by_state(o, share * o.ends), going, o.visits_on, o.visits
    )
    ended = o.ends[o.count_outcome]
    rest = share[o.count_outcome] - o.count
    went = np.flatnonzero(o.visits_on > 0)
    where_to = [(o.count_pair[~ended], rest[~ended], o.count[~ended])]
    whether = [
        (
            np.concatenate([o.count_pair[ended], went]),
            np.concatenate([rest[ended], (going[o.pair_state] - o.visits_on)[went]]),
            np.concatenate([o.count[ended], o.visits_on[went]]),
        )
    ]
    grid, end_grid = np.array(CONCENTRATIONS), np.array(END_CONCENTRATIONS)
    return Posterior(
        outcomes=o,
        priors=priors,
        share=share,
        going=going,
        others=others,
        end_others=end_others,
        extra=np.zeros_like(share),
        concentration=grid * priors.concentration_scale,
        weight=likely(lambda c: log_evidence(c, others, o.visits_on, where_to), grid),
        end_concentration=end_grid * priors.concentration_scale,
        end_weight=likely(lambda c: log_evidence(c, end_others, o.visits, whether), end_grid),
        pair_reward=o.pair_reward,
    )


def pessimistic(neutral: Posterior, k: int, baseline_v: Floats | None) -> Posterior:
    """Posterior under the prior of the same set that is pessimistic for objective k; ``baseline_v`` has shape [d, X]."""
    o = neutral.outcomes
    v = check_pessimistic(k, o.n_objectives, baseline_v)
    extra = np.zeros_like(neutral.share)
    extra[_worst_outcomes(o, k, v)] = neutral.priors.pessimism
    most = neutral.priors.most_pessimistic
    concentration, weight = capped(neutral.concentration, neutral.weight, most)
    end_concentration, end_weight = capped(neutral.end_concentration, neutral.end_weight, most)
    pair_reward = neutral.pair_reward.copy()
    if not np.any(o.known_reward[k]):
        usual = pair_reward[k] if o.noisy[k] else float(o.seen @ o.outcome_reward[k]) / max(float(o.seen.sum()), 1.0)
        bad = neutral.priors.pessimism * o.bad_share[k]
        pair_reward[k] += pessimistic_step(bad, o.visits, o.least_reward[k] - usual, most)
    after = o.discount[k] * np.where(o.outcome_next >= 0, v[k][np.maximum(o.outcome_next, 0)], 0.0)
    level = by_state(o, o.seen * after) / nonzero(by_state(o, o.seen))
    if np.any(o.seen > 0.0):
        worse = float(np.min(after[o.seen > 0.0])) - level[o.pair_state]
        pair_reward[k] += pessimistic_step(neutral.priors.pessimism, o.visits, worse, most)
    return replace(
        neutral,
        extra=extra,
        concentration=concentration,
        weight=weight,
        end_concentration=end_concentration,
        end_weight=end_weight,
        pair_reward=pair_reward,
        pessimistic_for=k,
        rates=worst_rates(neutral.rates),
    )


def check_pessimistic(k: int, n_objectives: int, baseline_v: Floats | None) -> Floats:
    """``baseline_v``. Raises ParameterError if it is None or there is no objective k."""
    if not 0 <= k < n_objectives:
        raise ParameterError(f"there is no objective {k} for a pessimistic prior; there are {n_objectives}.")
    if baseline_v is None:
        raise ParameterError("a pessimistic prior needs baseline_v, to find the worst outcome of every state.")
    return baseline_v


def pessimistic_step(bad: float, visits: Floats | float, worse: Floats | float, prior: float) -> Floats | float:
    """Change of a value by ``bad`` additional visits that are ``worse``, beside the pair's visits and a prior that weighs ``prior``."""
    return bad / (visits + prior + bad) * worse


def _end_mass(o: Outcomes) -> Floats:
    """`pooled_ends` of the log: by kind of end, and last for "on"."""
    total = by_state(o, o.seen)
    table = np.zeros((o.n_states, int(np.max(o.kind, initial=-1)) + 2))
    np.add.at(table, (o.outcome_state, o.kind), o.seen)
    share = table.sum(axis=0) / max(float(total.sum()), 1.0)
    state, column = np.nonzero(table)
    return pooled_ends(share, column, table[state, column], total[total > 0.0])


def by_state(o: Outcomes, value: Floats) -> Floats:
    """Sums over the outcomes [K] of every state, shape [X]."""
    return np.bincount(o.outcome_state, weights=value, minlength=o.n_states).astype(np.float64)


def _worst_outcomes(o: Outcomes, k: int, baseline_v: Floats) -> Ints:
    """For every state with decisions, its observed outcome with the smallest r_k + γ_k v̂_k."""
    after = np.where(o.outcome_next >= 0, baseline_v[k][np.maximum(o.outcome_next, 0)], 0.0)
    order = np.lexsort((o.outcome_reward[k] + o.discount[k] * after, o.assumed, o.outcome_state))
    return np.asarray(order[np.unique(o.outcome_state, return_index=True)[1]])


def asked_objectives(objectives: Sequence[int] | None, d: int) -> Ints:
    """Indices of objectives as an array; all d if None. Raises ParameterError if there is no such objective, or no index."""
    asked = np.arange(d) if objectives is None else as_array("objectives", objectives, np.int64)
    check_indices("objectives", asked, d)
    if asked.ndim != 1 or not asked.size:
        raise ParameterError(f"objectives must be a list of indices, at least one; got shape {list(asked.shape)}.")
    return asked


def asked_tables(posterior: Posterior, policies: npt.ArrayLike, baseline: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Policies [C, X, A] and π_b [X, A] as arrays, if they fit the posterior."""
    check_type("posterior", posterior, Posterior)
    size = (posterior.outcomes.n_states, posterior.outcomes.n_actions)
    tables = policy_tables(policies, *size)
    for i, table in enumerate(tables):
        distributions(table, *size, name=f"policy {i}")
    return tables, distributions(baseline, *size, name="baseline")


def only_played(posterior: Posterior, played: Bools) -> Posterior:
    """The posterior restricted to pairs with ``played`` [X, A]; values don't depend on the others, so they need no draws."""
    o = posterior.outcomes
    keep = played.reshape(-1)[o.pair_index]
    if np.all(keep):
        return posterior
    seen = keep[o.count_pair]
    pair_state = o.pair_state[keep]
    return replace(
        posterior,
        pair_reward=posterior.pair_reward[:, keep],
        others=posterior.others[keep],
        end_others=posterior.end_others[keep],
        outcomes=replace(
            o,
            pair_state=pair_state,
            pair_action=o.pair_action[keep],
            state_ptr=np.searchsorted(pair_state, np.arange(o.n_states + 1)).astype(np.int64),
            count_ptr=np.concatenate([[0], np.cumsum(np.diff(o.count_ptr)[keep])]),
            count_outcome=o.count_outcome[seen],
            count=o.count[seen],
            pair_reward=o.pair_reward[:, keep],
            rare_reward=o.rare_reward[:, keep],
            pair_noise=o.pair_noise[:, keep],
            effects=tuple(effects.only(keep) for effects in o.effects),
            known_reward=o.known_reward[:, keep],
        ),
    )


def nonzero(total: Floats) -> Floats:
    """Totals as divisors, with 1 instead of 0 (for pairs of states in which every step ends the episode)."""
    return np.where(total > 0.0, total, 1.0)
