"""Declared events: harm that the log has never shown, with what people know about it.

What a log has never shown can't be learnt from it, so people may declare it: what an event costs, and the most often it happens. At
every decision of the pairs S that it applies to, an event happens with one unknown probability q ≤ h, independently of all else:

    it does not end the episode    r_k(x,a) becomes r_k(x,a) + q c_k
    it ends the episode            the step pays c_k in place of its usual rewards, and there is no next state:
                                   Q_k(x,a) = (1 − q) [r_k(x,a) + γ_k Σ p(x'|x,a) v_k(x')] + q c_k

Several events are independent of each other; the costs of all that happen are paid. An ending event is the same as a policy that
stops with probability q: π(a|x) becomes (1 − q) π(a|x), so every formula of the posterior stays exact.

The log has N visits of S and no event. With a rate that is uniform on [0, h] before the log,

    p(q | D) ∝ (1 − q)^N  on [0, h]        under the neutral prior
    q = 0 or q = min(h, 1 − α^{1/N})       under the prior that is pessimistic for k: whichever is worse for the policy on k

α = `EXCLUDED`: higher rates would have shown in the log with probability 1 − α. The worst case is a single rate and not a quantile of
p(q|D), because "at most h" says nothing about lower rates: if q is h itself, a quantile is too low. It is not h for ever, because then
no log could answer. A policy that avoids the event gets no credit for that under the pessimistic prior (q = 0).

One rate for all of S is part of the declaration. N is then the visits of all of S, also where the policy rarely goes. If the rate may be
higher for some decisions, declare an event of its own for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.errors import ParameterError, check_number, check_type, check_types, did_you_mean, shown
from bettersafe.logs.dataset import user_sign

if TYPE_CHECKING:
    from collections.abc import Callable

    from bettersafe.logs.dataset import Objective
    from bettersafe.typing import Bools, Floats, Ints, Labels

EXCLUDED = 0.01
"""α: rates that would have shown in the log with probability 1 − α are not possible any more."""


@dataclass(frozen=True, kw_only=True)
class DeclaredEvent:
    """Event that the log has never shown.

    Attributes:
        name: Name for people.
        cost: What it costs, by objective, in the sign and unit of the log's column: below 0 for a reward, above 0 for a cost.
        rate: h, the most often that it happens, as a probability per decision that it applies to; above 0 and below 1.
        actions: Labels of the actions that it applies to; all if empty.
        states: Labels of the states that it applies to; all if empty.
        ends: Whether it ends the episode, in place of the step's usual rewards and next state.

    Examples:
        >>> bettersafe.DeclaredEvent(name="overdose", cost={"survival": -100}, rate=0.001, actions=["high"], ends=True).actions
        ('high',)
    """

    name: str
    cost: Mapping[str, float] = field(default_factory=dict)
    rate: float
    actions: Sequence[str | int] = ()
    states: Sequence[str | int] = ()
    ends: bool = False

    def __post_init__(self) -> None:
        check_type("name of an event", self.name, str)
        check_type(f"cost of {self.name}", self.cost, Mapping)
        cost = {}
        for objective, value in self.cost.items():
            check_number(f"cost of {self.name} on {objective}", value)
            if not math.isfinite(value):
                raise ParameterError(
                    f"the cost of {self.name} on {objective} must be finite; got {value}.", setting="events"
                )
            cost[objective] = float(value)
        object.__setattr__(self, "cost", cost)
        check_number(f"rate of {self.name}", self.rate)
        if not 0.0 < self.rate < 1.0:
            raise ParameterError(
                f"the rate of {self.name} must be a probability per decision, above 0 and below 1; got {self.rate}.",
                setting="events",
            )
        if not cost and not self.ends:
            raise ParameterError(
                f"{self.name} costs nothing and does not end the episode. Give its cost by objective, or ends = true.",
                setting="events",
            )
        check_type(f"ends of {self.name}", self.ends, bool)
        for what in ("actions", "states"):
            given = getattr(self, what)
            if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
                raise ParameterError(
                    f"{what} of {self.name} must be a list of labels; got {shown(given)}.", setting="events"
                )
            object.__setattr__(self, what, tuple(str(label) for label in given))


@dataclass(frozen=True, kw_only=True)
class EventPairs:
    """Declared event over the pairs of a log.

    Attributes:
        event: The event.
        reward: c, higher is better, shape [d]; at most 0.
        applies: Whether it applies to a pair, shape [X · A].
    """

    event: DeclaredEvent
    reward: Floats
    applies: Bools

    def within(self, states: Ints, actions: Ints, n_actions: int) -> EventPairs:
        """Over some of the states and actions, by index, of a log with ``n_actions`` actions."""
        kept = self.applies.reshape(-1, n_actions)[np.ix_(states, actions)]
        return replace(self, applies=kept.reshape(-1))


def event_pairs(
    events: Sequence[DeclaredEvent], objectives: Sequence[Objective], state_labels: Labels, action_labels: Labels
) -> tuple[EventPairs, ...]:
    """Declared events over the pairs of a log. Raises ParameterError if the log lacks a label or an objective gains by an event."""
    names = [objective.name for objective in objectives]
    check_types("events", events, DeclaredEvent)
    found = []
    for event in events:
        reward = np.zeros(len(names))
        for name, cost in event.cost.items():
            if name not in names:
                raise ParameterError(
                    f"event {event.name} costs {name}: there is no such objective; the objectives are {', '.join(names)}."
                    f"{did_you_mean(name, names)}",
                    setting="events",
                )
            objective = objectives[names.index(name)]
            reward[names.index(name)] = user_sign(objective, cost)
            if reward[names.index(name)] > 0.0:
                better, sign = ("lower", "above") if objective.lower_is_better else ("higher", "below")
                raise ParameterError(
                    f"event {event.name} would improve {name}: {better} is better, so its cost must be {sign} 0; got {cost:g}.",
                    setting="events",
                )
        rows, columns = (
            _chosen(event.name, what, chosen, labels)
            for what, chosen, labels in (
                ("state", event.states, state_labels),
                ("action", event.actions, action_labels),
            )
        )
        found.append(EventPairs(event=event, reward=reward, applies=np.outer(rows, columns).reshape(-1)))
    return tuple(found)


def _chosen(event: str, what: str, chosen: Sequence[str | int], labels: Labels) -> Bools:
    """Whether an event applies to a label, shape [n]."""
    known = [str(label) for label in labels.tolist()]
    places = {label: i for i, label in enumerate(known)}
    applies = np.full(len(known), not chosen)
    for label in map(str, chosen):
        if label not in places:
            raise ParameterError(
                f"event {event} applies to {what} {label!r}, which the log does not have.{did_you_mean(label, known)}",
                setting="events",
            )
        applies[places[label]] = True
    return applies


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Posterior of the rate q of an event: p(q|D) ∝ (1 − q)^N on [0, h], or one rate.

    Attributes:
        most: h.
        visits: N.
        fixed: The rate, if it is one rate; None for the posterior.
    """

    most: float
    visits: float
    fixed: float | None = None

    @cached_property
    def mean(self) -> float:
        """E[q | D]."""
        return self._moment(1) if self.fixed is None else self.fixed

    @cached_property
    def sd(self) -> float:
        """Standard deviation of q."""
        return math.sqrt(max(self._moment(2) - self.mean**2, 0.0)) if self.fixed is None else 0.0

    def _moment(self, j: int) -> float:
        """E[q^j] = B(h; j+1, N+1) / B(h; 1, N+1), incomplete beta functions."""
        from scipy.special import betainc, betaln

        n = self.visits + 1.0
        ratio = betainc(j + 1.0, n, self.most) / betainc(1.0, n, self.most)
        return float(ratio * math.exp(betaln(j + 1.0, n) - betaln(1.0, n)))

    @property
    def worst(self) -> float:
        """min(h, 1 − α^{1/N}): the largest rate that neither the declaration nor the log excludes."""
        return min(self.most, -math.expm1(math.log(EXCLUDED) / self.visits)) if self.visits > 0.0 else self.most

    def at(self, rate: float) -> Rate:
        """One rate."""
        return replace(self, fixed=rate)

    def drawn(self, uniform: float) -> float:
        """Quantile of q, 1 − (1 − u [1 − (1 − h)^{N+1}])^{1/(N+1)}."""
        if self.fixed is not None:
            return self.fixed
        n = self.visits + 1.0
        return -math.expm1(math.log1p(uniform * math.expm1(n * math.log1p(-self.most))) / n)


def rates_of(events: Sequence[EventPairs], pair_index: Ints, visits: Floats) -> tuple[Rate, ...]:
    """Posteriors of the rates, from the visits [P] of pairs with flat indices ``pair_index`` [P]."""
    return tuple(Rate(most=each.event.rate, visits=float(visits[each.applies[pair_index]].sum())) for each in events)


def worst_rates(rates: Sequence[Rate]) -> tuple[Rate, ...]:
    """Rates of a pessimistic prior."""
    return tuple(rate.at(rate.worst) for rate in rates)


def event_effects(
    events: Sequence[EventPairs], rates: Sequence[float], pair_index: Ints, n_objectives: int
) -> tuple[Floats, Floats]:
    """Probability that no event ends the episode [P], and expected cost Σ q c of all events [d, P], for the given rates."""
    onward, cost = np.ones(pair_index.size), np.zeros((n_objectives, pair_index.size))
    for each, rate in zip(events, rates, strict=True):
        there = rate * each.applies[pair_index]
        cost += each.reward[:, None] * there
        if each.event.ends:
            onward *= 1.0 - there
    return onward, cost


def rate_effects(
    rates: Sequence[Rate], gains_at: Callable[[tuple[Rate, ...]], Floats], mean: Floats
) -> tuple[Floats, Floats]:
    """What the rates of events do to gains beyond their means.

    Args:
        rates: Posteriors of the rates.
        gains_at: Mean gains [C, n] for other rates.
        mean: Mean gains at the means of ``rates``, shape [C, n].

    Returns:
        What the worst case takes off for fixed rates, at most 0, shape [C, n]: gains are nearly linear in q, so the worse of the fixed
        rate and 0. And the changes of gains by one standard deviation of each rate, shape [E, C, n].
    """
    shift, change = np.zeros_like(mean), np.zeros((len(rates), *mean.shape))
    for e, rate in enumerate(rates):
        other = rate.at(rate.mean + rate.sd if rate.fixed is None else 0.0)
        moved = gains_at((*rates[:e], other, *rates[e + 1 :])) - mean
        if rate.fixed is None:
            change[e] = moved
        else:
            shift += np.minimum(moved, 0.0)
    return shift, change


@dataclass(frozen=True, kw_only=True)
class EventFacts:
    """A declared event as it was used, for certificates.

    Attributes:
        event: The event.
        visits: N, logged decisions that it applies to.
        mean: Mean rate under the neutral prior.
        worst: Rate of the pessimistic priors.
    """

    event: DeclaredEvent
    visits: float
    mean: float
    worst: float


def event_facts(events: Sequence[EventPairs], rates: Sequence[Rate]) -> tuple[EventFacts, ...]:
    """Events with the rates of the neutral prior."""
    return tuple(
        EventFacts(event=each.event, visits=rate.visits, mean=rate.mean, worst=rate.worst)
        for each, rate in zip(events, rates, strict=True)
    )
