"""The posterior of the true process given a log, and the probability that a policy is no worse than the baseline in it.

Every pair (x,a) has its own unknown distribution over the outcomes of its state. An outcome is where the step led (a state,
or the end) together with what it paid; so rewards that go with the outcome need no model of their own. Outcomes of a state are
those seen from it under any action, and every kind of end that the log has. A step ends or goes on; if on, it
goes somewhere. With prior α_0 and counts n,

    (on, ends)(x,a) | D      ~ Dirichlet( α_0(x,·) + n(x,a,·) )       the counts of "on" are those of all that goes on
    where to, if on (x,a) | D ~ Dirichlet( α_0(x,·) + n(x,a,·) )       independent of it, and both over pairs

Two neutral priors, and a pessimistic one for every objective k:

    "support"        total mass 1, spread evenly over what was seen of the state; both Dirichlets then are one
    "hierarchical"   for a pair, what the *other* actions of its state saw, at two concentrations, of ends c' and of where to c,
                     integrated over by the likelihood of every pair given the others. No prior counts for more visits than it
                     was learned from. How often a state ends is drawn to how often all do (`_end_mass`)
    pessimistic(k)   the neutral one, its concentrations at most `PESSIMISTIC_CONCENTRATION`, plus pseudo-transitions (one, if not
                     said otherwise) of every pair to the outcome seen of its state that is worst for k, by r_k + γ_k v̂_k^{π_b}

Ends have a concentration of their own because actions that lead to different places may well be equally likely to end. With one
for both, a pair that has not ended yet in ten visits is taken for one that hardly ever does; policies made from the log prefer
such pairs, and everything that is paid per step then looks better than it is, by four standard deviations in some worlds.

A good baseline is itself evidence that what it seldom does is bad; an exchangeable prior ignores that, which is why a policy
has to convince under the pessimistic priors too (`bopt`).

Rewards come in three kinds. *Known*: a table [X, A] that the caller has (a rule on pairs). *Outcome*: a function of where a step led,
and of ends of their kind. *Noisy*: anything else. Means of pairs are spread around the mean m of all pairs with variance τ²,
rewards of a pair around its mean with variance s², both pooled over the log (s² = 0 where a pair always pays the same):

    r_k(x,a) | D ~ N( v (n r̄/s² + m/τ²),  v ),   1/v = n/s² + 1/τ²

and the prior that is pessimistic for k has the least reward there can be (as declared, else as seen) in the place of m; with
another pessimism than one the step from m down to it is as many times as long.

A prior is the same for all pairs of a state, so it is kept per outcome and only what was seen is kept per pair: means and the
linearised form take one pass over the log's distinct steps, and draws (in the C++ kernel) keep no pair's distribution at all,
only what policies make of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.errors import ParameterError, check_choice
from bettersafe.logs.counts import Counts
from bettersafe.posterior.choices import NEUTRAL, Neutral
from bettersafe.posterior.outcomes import Outcomes, outcomes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from bettersafe.typing import Bools, Floats, Ints


CONCENTRATIONS = tuple(float(c) for c in np.geomspace(0.1, 300.0, 15))
"""Grid over which the hierarchical prior's concentration of where to is integrated. It stops where what a state's other actions
did counts for 300 visits: more would say of an action tried often that it is like the others, whatever was seen of it."""

END_CONCENTRATIONS = tuple(float(c) for c in np.geomspace(0.1, 3000.0, 19))
"""The same of ends, which may be as likely everywhere."""

PESSIMISTIC_CONCENTRATION = 5.0
"""Visits that what the other actions did counts for at most in a pessimistic prior. Beside a neutral prior that counts for hundreds
one bad visit would say nothing, and what the log tells wrongly of the others it would tell both."""

VALUE_TOL = 1e-9
"""Backward error of values in a draw and at the mean: far below the spread of draws."""

LEAST_WEIGHT = 1e-6
"""Concentrations less likely than this are left out of the mean and of the linearised form."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """One of the two Dirichlets of pairs at one concentration: α + n = scale · share + own · n + extra.

    Attributes:
        probability: Of this concentration.
        share: By outcome, 0 for outcomes of the other one, shape [K].
        extra: The same of pseudo-transitions, shape [K].
        scale: w, shape [P].
        own: 1 − w: what a pair's own counts count for beside their part in the share; 1 for "support", shape [P].
        going: α + n of going on, shape [P]; 0 in the one of where to.
        total: The sum of α + n over all of a pair, shape [P].
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
    """A posterior over the processes that could have made a log.

    Attributes:
        outcomes: The log.
        neutral: Its neutral prior.
        share: What the prior is taken from, by outcome, shape [K]: for "hierarchical" what all pairs of the state saw, and a little more.
        going: The same of going on, shape [X].
        others: What of it the other pairs of the state saw, of where to, shape [P]; 0 for "support".
        end_others: The same of ends and going on, shape [P].
        extra: Pseudo-transitions of every pair to an outcome, shape [K].
        concentration: The concentrations c of where to, shape [C]; 1 for "support".
        weight: Posterior probability of each, shape [C].
        end_concentration: The concentrations c' of ends, shape [C']; 1 for "support".
        end_weight: Posterior probability of each, shape [C'].
        pair_reward: Means of the rewards that don't go with outcomes, shape [d, P].
        pessimistic_for: Objective that a pseudo-transition is bad for, or None.
        pessimism: Pseudo-transitions.
    """

    outcomes: Outcomes
    neutral: Neutral
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
    pessimism: float = 0.0

    def __repr__(self) -> str:
        """The prior and how strong it was found to be: what one wants to see of it."""
        c, ends = self.weight @ self.concentration, self.end_weight @ self.end_concentration
        dark = (
            ""
            if self.pessimistic_for is None
            else f", pessimistic_for={self.pessimistic_for}, pessimism={self.pessimism:g}"
        )
        return (
            f"Posterior({self.neutral!r}{dark}, concentration={c:.3g}, end_concentration={ends:.3g},"
            f" {self.outcomes.pair_state.size} pairs, {self.outcomes.outcome_next.size} outcomes)"
        )

    def on_block(self, c: float, probability: float = 1.0) -> Block:
        """Where to, at one concentration."""
        o = self.outcomes
        share, extra = np.where(o.ends, 0.0, self.share), np.where(o.ends, 0.0, self.extra)
        scale, own = strengths(c, self.others)
        total = scale * by_state(o, share)[o.pair_state] + own * o.visits_on + by_state(o, extra)[o.pair_state]
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
        """Whether and how it ends, at one concentration."""
        o = self.outcomes
        share, extra = np.where(o.ends, self.share, 0.0), np.where(o.ends, self.extra, 0.0)
        scale, own = strengths(c, self.end_others)
        extra_on = by_state(o, self.extra - extra)
        going = scale * self.going[o.pair_state] + own * o.visits_on + extra_on[o.pair_state]
        ended = own * (o.visits - o.visits_on)
        total = scale * by_state(o, share)[o.pair_state] + ended + going + by_state(o, extra)[o.pair_state]
        return Block(probability=probability, share=share, extra=extra, scale=scale, own=own, going=going, total=total)

    @cached_property
    def end_blocks(self) -> list[Block]:
        """Whether and how it ends, at every concentration worth looking at."""
        return [
            self.end_block(float(self.end_concentration[i]), probability) for i, probability in worth(self.end_weight)
        ]

    @cached_property
    def on_blocks(self) -> list[Block]:
        """Where to, at every concentration worth looking at."""
        return [self.on_block(float(self.concentration[i]), probability) for i, probability in worth(self.weight)]

    @cached_property
    def mean_going(self) -> Floats:
        """Posterior mean of the probability that a pair goes on, shape [P]."""
        return np.asarray(np.sum([b.probability * b.going / b.total for b in self.end_blocks], axis=0))


def strengths(c: float, others: Floats) -> tuple[Floats, Floats]:
    """The weight w, and what a pair's own counts count for beside it, shape [P]; (c, 1) where nothing is taken from others.

    The others' distribution m is itself known from ``others`` visits alone. With p ~ Dirichlet(c m) and m ~ Dirichlet of that mass, p has
    the variance of a Dirichlet of mass c̃, 1/(c̃+1) = 1/(c+1) + c/(c+1) · 1/(others+1), which is under both; w = c̃/others.
    """
    alone = others <= 0.0
    strength = 1.0 / (1.0 / (c + 1.0) + c / ((c + 1.0) * (others + 1.0))) - 1.0
    scale = np.where(alone, c, strength / np.where(alone, 1.0, others))
    return scale, np.where(alone, 1.0, 1.0 - scale)


def worth(weight: Floats) -> list[tuple[int, float]]:
    """Places and probabilities of the concentrations that are likely enough to look at."""
    kept = np.flatnonzero(weight >= LEAST_WEIGHT)
    return [(i, float(weight[i] / weight[kept].sum())) for i in kept.tolist()]


def posterior(
    outcomes: Outcomes | Counts,
    neutral: Neutral = "hierarchical",
    *,
    pessimistic_for: int | None = None,
    pessimism: float = 1.0,
    baseline_v: Floats | None = None,
    scale_concentration: float = 1.0,
) -> Posterior:
    """The posterior under a prior.

    Args:
        outcomes: The log (`gather_outcomes`), or counts of it (`outcomes_of`).
        neutral: "support" or "hierarchical".
        pessimistic_for: Objective k to be pessimistic about, or None.
        pessimism: Pseudo-transitions to the outcome that is worst for k.
        baseline_v: v̂^{π_b} [d, X], which says what is worst; needed with ``pessimistic_for``.
        scale_concentration: Multiplies the hierarchical prior's concentrations, to see how much hangs on them.
    """
    check_choice("prior", neutral, NEUTRAL)
    o = outcomes_of(outcomes) if isinstance(outcomes, Counts) else outcomes
    if not isinstance(o, Outcomes):
        raise ParameterError(
            f"the posterior is made from what was seen: outcomes (gather_outcomes of a dataset) or counts; got {type(o).__name__}."
        )
    nobody = np.zeros(o.pair_state.size)
    if neutral == "support":
        share = ~o.assumed / by_state(o, np.where(o.assumed, 0.0, 1.0))[o.outcome_state]
        going = by_state(o, share * ~o.ends)
        others = end_others = nobody
        concentration = weight = end_concentration = end_weight = np.ones(1)
    else:
        concentration, end_concentration = np.array(CONCENTRATIONS), np.array(END_CONCENTRATIONS)
        on = np.where(o.ends, 0.0, 1.0)
        more_ends, more_on = _end_mass(o)
        base = np.where(o.ends, np.append(more_ends, 0.0)[o.kind], on / nonzero(by_state(o, on))[o.outcome_state])
        share = o.seen + base  # one visit more of where to, spread evenly
        goes = by_state(o, o.seen * on)
        going = np.where(goes > 0.0, goes + more_on, 0.0)
        others = by_state(o, share * on)[o.pair_state] - o.visits_on
        end_others = (by_state(o, share * o.ends) + going)[o.pair_state] - o.visits
        weight = likely(lambda c: _where_to_likelihood(o, share, others, c), concentration)
        end_weight = likely(lambda c: _end_likelihood(o, share, going, end_others, c), end_concentration)
        concentration = concentration * scale_concentration
        end_concentration = end_concentration * scale_concentration
    found = Posterior(
        outcomes=o,
        neutral=neutral,
        share=share,
        going=going,
        others=others,
        end_others=end_others,
        extra=np.zeros_like(share),
        concentration=concentration,
        weight=weight,
        end_concentration=end_concentration,
        end_weight=end_weight,
        pair_reward=o.pair_reward,
    )
    if pessimistic_for is None:
        return found
    k = pessimistic_for
    if not 0 <= k < o.n_objectives:
        raise ParameterError(f"there is no objective {k} to be pessimistic about; there are {o.n_objectives}.")
    if baseline_v is None:
        raise ParameterError("a pessimistic prior needs the baseline's values, to know which outcome is worst.")
    pair_reward = o.pair_reward.copy()
    if o.noisy[k] and pessimism > 0.0:
        pair_reward[k] += pessimism * o.prior_share[k] * (o.least_reward[k] - o.prior_mean[k])
    extra = np.zeros_like(share)
    extra[_worst_outcomes(o, k, baseline_v)] = pessimism
    concentration, weight = capped(concentration, weight, PESSIMISTIC_CONCENTRATION)
    end_concentration, end_weight = capped(end_concentration, end_weight, PESSIMISTIC_CONCENTRATION)
    return replace(
        found,
        extra=extra,
        concentration=concentration,
        weight=weight,
        end_concentration=end_concentration,
        end_weight=end_weight,
        pair_reward=pair_reward,
        pessimistic_for=k,
        pessimism=pessimism,
    )


def capped(concentration: Floats, weight: Floats, most: float) -> tuple[Floats, Floats]:
    """Concentrations over ``most`` taken for that, and the probabilities of what is left."""
    kept, place = np.unique(np.minimum(concentration, most), return_inverse=True)
    return np.asarray(kept), np.bincount(place, weights=weight).astype(np.float64)


def _end_mass(o: Outcomes) -> tuple[Floats, float]:
    """Ends of every kind, and steps that go on, that every state has beside its own: C ḡ of kinds, C (1 − Σ ḡ).

    ḡ is the share of a kind of end in the whole log, and C how alike the states are in that: its posterior mean on a logarithmic
    scale, by the likelihood of all states' ends. A state that has not ended in some way in the log can all the same, as seldom as
    the other states make likely.
    """
    total = by_state(o, o.seen)
    table = np.zeros(
        (o.n_states, int(np.max(o.kind, initial=-1)) + 2)
    )  # ends of every kind, and in the last what went on
    np.add.at(table, (o.outcome_state, o.kind), o.seen)
    share = table.sum(axis=0) / max(float(total.sum()), 1.0)
    if np.max(share) == 1.0:
        return share[:-1], float(share[-1])
    state, column = np.nonzero(table)
    grid = np.array(END_CONCENTRATIONS)
    acted = total[total > 0.0]
    spread = likely(
        lambda c: _dirichlet_multinomial(c * share[column], table[state, column], np.full(acted.size, c), acted), grid
    )
    mass = float(np.exp(spread @ np.log(grid)))
    return mass * share[:-1], mass * float(share[-1])


def by_state(o: Outcomes, value: Floats) -> Floats:
    """Sums over the outcomes [K] of every state, shape [X]."""
    return np.bincount(o.outcome_state, weights=value, minlength=o.n_states).astype(np.float64)


def likely(log_likelihood: Callable[[float], float], grid: Floats) -> Floats:
    """Posterior on a grid, shape [C], from a prior ∝ 1/√(1 + c) on its logarithmic scale: little data must not look like much."""
    logs = np.array([log_likelihood(float(c)) for c in grid]) - 0.5 * np.log1p(grid)
    weight = np.exp(logs - logs.max())
    return np.asarray(weight / weight.sum())


def _where_to_likelihood(o: Outcomes, share: Floats, others: Floats, c: float) -> float:
    """Σ_p log P(n_p | what the others saw) over what goes on, Dirichlet–multinomial of mass w · others."""
    on = ~o.ends[o.count_outcome]
    pair, count = o.count_pair[on], o.count[on]
    scale, _ = strengths(c, others)
    alpha = scale[pair] * (share[o.count_outcome][on] - count)
    tried = o.visits_on > 0
    return _dirichlet_multinomial(alpha, count, (scale * others)[tried], o.visits_on[tried])


def _end_likelihood(o: Outcomes, share: Floats, going: Floats, others: Floats, c: float) -> float:
    """The same of ends, going on being one more outcome."""
    ended = o.ends[o.count_outcome]
    pair, count = o.count_pair[ended], o.count[ended]
    scale, _ = strengths(c, others)
    alpha = scale[pair] * (share[o.count_outcome][ended] - count)
    went = o.visits_on > 0
    alpha_on = (scale * (going[o.pair_state] - o.visits_on))[went]
    tried = o.visits > 0
    return _dirichlet_multinomial(
        np.concatenate([alpha, alpha_on]),
        np.concatenate([count, o.visits_on[went]]),
        (scale * others)[tried],
        o.visits[tried],
    )


def _dirichlet_multinomial(alpha: Floats, count: Floats, mass: Floats, visits: Floats) -> float:
    """Σ_p log [ Γ(A)/Γ(A+n_p) Π_o Γ(α_o + n_po)/Γ(α_o) ]; α that are 0 but for rounding are taken for tiny."""
    from scipy.special import gammaln

    alpha = np.maximum(alpha, 1e-9)
    return float(np.sum(gammaln(mass) - gammaln(mass + visits)) + np.sum(gammaln(alpha + count) - gammaln(alpha)))


def _worst_outcomes(o: Outcomes, k: int, baseline_v: Floats) -> Ints:
    """Of every state that was acted in, the outcome seen from it with the least r_k + γ_k v̂_k."""
    after = np.where(o.outcome_next >= 0, baseline_v[k][np.maximum(o.outcome_next, 0)], 0.0)
    order = np.lexsort((o.outcome_reward[k] + o.discount[k] * after, o.assumed, o.outcome_state))
    return np.asarray(order[np.unique(o.outcome_state, return_index=True)[1]])


def only_played(posterior: Posterior, played: Bools) -> Posterior:
    """The posterior of the pairs that some policy plays ([X, A]): others matter to no value, and need not be drawn."""
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
            pair_noise=o.pair_noise[:, keep],
            prior_share=o.prior_share[:, keep],
        ),
    )


def nonzero(total: Floats) -> Floats:
    """Totals to divide by: 1 for those of nothing (pairs of states from which everything ends)."""
    return np.where(total > 0.0, total, 1.0)
