"""The linearised posterior of a log of any size, straight from its counts: `posterior`'s numbers without its lists.

`posterior.Outcomes` lists the outcomes of every state, and all its pairs; at a million states that is many times the log. Here the
steps are those of the estimated model itself, one byte is added to each, and what is needed by state or pair is computed on the
way, in the C++ kernel. Rewards are those of pairs (`posterior.outcomes_of`), and every number is the same but for rounding:

    P_π(o|x) = Σ_a c(x,a) n(x,a,o) + A(x) α_0(x,o) + B(x) [o is the worst]       c, A, B follow from π and the prior

so that a product with P_π, or with its transpose, is one pass over the log's distinct steps, and so is the covariance. Pairs that
were never tried have the prior's rows alone, whichever they are: of them only sums of π by state are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bettersafe import _kernel, linear
from bettersafe.data import lowest_rewards
from bettersafe.errors import ParameterError, check_choice
from bettersafe.posterior import (
    CONCENTRATIONS,
    END_CONCENTRATIONS,
    NEUTRAL,
    PESSIMISTIC_CONCENTRATION,
    VALUE_TOL,
    Neutral,
    capped,
    likely,
    pooled_rewards,
    spread_in_pairs,
    strengths,
    worth,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from bettersafe.counts import Counts
    from bettersafe.model import Model

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.uint8]

MAX_PRODUCTS = 20_000
"""Products after which a system is given up; a plain iteration would need fewer at a discount of 0.998."""

ACCEPT = 1e-7
"""Backward error above which an answer is none."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """What a counted log says of every pair that was tried, laid over its model's transitions.

    Attributes:
        state_ptr: Pairs of state x are state_ptr[x]:state_ptr[x+1], shape [X+1].
        pair_state: State of every pair, shape [P].
        pair_index: Its place in a table [X, A] laid out flat, shape [P].
        rows: The model's transitions as the kernel takes them: indptr, indices, data of CSR [P, X].
        visits: n(x,a), all of them, shape [P].
        flag: Of every transition whether it counts and whether it is the first of its outcome in its state, shape [nnz].
        on: How often a pair went on to a state that was acted in, shape [P].
        ended: How often it ended, shape [P].
        distinct: States that a state was seen to lead to, shape [X].
        pair_reward: Known rewards, and posterior means of noisy ones, shape [d, P].
        pair_noise: Standard deviation of the posterior of a noisy mean, shape [d, P].
        prior_share: What the prior's mean counts for in it, shape [d, P].
        prior_mean: The mean of a pair never tried, shape [d].
        prior_noise: Its standard deviation, shape [d]; 0 where the reward is known.
        least_reward: Least reward that was declared possible, else the least seen, shape [d].
        noisy: Which objectives are noisy, shape [d].
        discount: γ, shape [d].
        starts: Episodes that start in a state, shape [X].
        n_actions: |A|.
    """

    state_ptr: Ints
    pair_state: Ints
    pair_index: Ints
    rows: tuple[Any, Any, Floats]
    visits: Floats
    flag: Flags
    on: Floats
    ended: Floats
    distinct: Floats
    pair_reward: Floats
    pair_noise: Floats
    prior_share: Floats
    prior_mean: Floats
    prior_noise: Floats
    least_reward: Floats
    noisy: npt.NDArray[np.bool_]
    discount: Floats
    starts: Floats
    n_actions: int

    @property
    def n_states(self) -> int:
        """|X|."""
        return int(self.starts.size)

    @property
    def n_objectives(self) -> int:
        """The number d of objectives."""
        return int(self.discount.size)

    @property
    def n_steps(self) -> int:
        """Distinct transitions."""
        return int(self.flag.size)

    @property
    def ends(self) -> bool:
        """Whether anything ever ended."""
        return bool(np.any(self.ended))

    @cached_property
    def initial(self) -> Floats:
        """Mean of where episodes start, shape [X]."""
        return np.asarray(self.starts / self.starts.sum())

    @cached_property
    def goes(self) -> Floats:
        """How often a state's pairs went on, shape [X]."""
        return self.by_state(self.on)

    @cached_property
    def ends_in(self) -> Floats:
        """How often they ended, shape [X]."""
        return self.by_state(self.ended)

    @cached_property
    def live(self) -> npt.NDArray[np.bool_]:
        """Whether anything is known of a state, shape [X]."""
        return np.asarray(self.goes + self.ends_in > 0.0)

    @cached_property
    def strength(self) -> Strength:
        """What the hierarchical prior learns from the log."""
        return _learn(self)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What every function of the kernel begins with."""
        return self.state_ptr, *self.rows, self.visits, self.flag

    def by_state(self, value: Floats) -> Floats:
        """Sums over the pairs [P] of every state, shape [X]."""
        return np.bincount(self.pair_state, weights=value, minlength=self.n_states).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Strength:
    """How alike actions and states are: by concentration its probability, and what every state has beside its own ends."""

    weight: Floats
    end_weight: Floats
    more_ends: float
    more_on: float


@dataclass(frozen=True, kw_only=True)
class Prior:
    """A posterior, as `posterior.Posterior` is one, of `Steps`.

    Attributes:
        steps: The log.
        neutral: Its neutral prior.
        counted: What counts count for in the prior's shares: 1, or 0 for "support".
        even: What every outcome has in them beside that, shape [X].
        share_on: All of them of where to, shape [X].
        share_end: That of the end, shape [X].
        going: That of going on, shape [X].
        others: What of it the other pairs saw, of where to, shape [P].
        end_others: The same of ends and going on, shape [P].
        concentration: Of where to, those worth looking at.
        weight: Their probabilities.
        end_concentration: Of ends.
        end_weight: Their probabilities.
        pair_reward: Means of rewards, shape [d, P].
        untried_reward: Those of pairs never tried, shape [d].
        pessimism: Pseudo-transitions of every pair to the worst outcome.
        worst: That outcome: a state, −1 the end, −2 none, shape [X].
    """

    steps: Steps
    neutral: Neutral
    counted: float
    even: Floats
    share_on: Floats
    share_end: Floats
    going: Floats
    others: Floats
    end_others: Floats
    concentration: Floats
    weight: Floats
    end_concentration: Floats
    end_weight: Floats
    pair_reward: Floats
    untried_reward: Floats
    pessimism: float
    worst: Ints


@dataclass(frozen=True, kw_only=True)
class Side:
    """A policy at the mean of a posterior.

    Attributes:
        value: v, shape [n, X].
        visits: ν of the discounts of the same objectives, shape [n, X].
        policy: π of pairs that were tried, shape [P].
        untried: π of all others by state, [X, A], or None where it plays none.
        objectives: Which objectives, length n.
    """

    value: Floats
    visits: Floats
    policy: Floats
    untried: Floats | None
    objectives: tuple[int, ...]


def available() -> bool:
    """Whether the kernel is there: without it, `posterior.linearised_gains` does the same in more memory."""
    return _kernel.compiled is not None


def gather_steps(counts: Counts, model: Model, *, known: Collection[int] = ()) -> Steps:
    """The steps of a log that was counted.

    Args:
        counts: The log.
        model: Estimated from the same counts; its transitions are shared, not copied.
        known: Objectives whose rewards are a known rule on pairs, as derived ones are.
    """
    kernel, mdp = _kernel.compiled, model.mdp
    assert kernel is not None
    if mdp.n_pairs != counts.n_pairs:
        raise ParameterError(
            f"the model has {mdp.n_pairs} pairs and the counts have {counts.n_pairs}: estimate it from these counts."
        )
    d, n_states = counts.n_objectives, counts.n_states
    visits = counts.pair_count.astype(np.float64)
    rows = (mdp.transition.indptr, mdp.transition.indices, mdp.transition.data)
    acted = np.zeros(n_states, dtype=np.uint8)
    acted[mdp.pair_state] = 1
    flag, distinct, on = np.zeros(rows[1].size, dtype=np.uint8), np.zeros(n_states), np.zeros(visits.size)
    kernel.mark_outcomes(mdp.state_ptr, *rows, visits, acted, flag, distinct, on, linear.cores())
    pair_reward, pair_noise, prior_share = (np.zeros((d, visits.size)) for _ in range(3))
    prior_mean, prior_noise = np.zeros(d), np.zeros(d)
    for k in range(d):
        mean = counts.reward_sum[k] / visits
        if k in known:
            pair_reward[k], prior_mean[k] = mean, counts.unseen_reward[k]
            continue
        prior_mean[k], prior_share[k], pair_reward[k], pair_noise[k], prior_noise[k] = pooled_rewards(
            mean, visits, spread_in_pairs(counts, k)
        )
    return Steps(
        state_ptr=mdp.state_ptr,
        pair_state=mdp.pair_state,
        pair_index=mdp.pair_index,
        rows=rows,
        visits=visits,
        flag=flag,
        on=on,
        ended=counts.terminated_count.astype(np.float64),
        distinct=distinct,
        pair_reward=pair_reward,
        pair_noise=pair_noise,
        prior_share=prior_share,
        prior_mean=prior_mean,
        prior_noise=prior_noise,
        least_reward=lowest_rewards(counts.objectives, counts.reward_min),
        noisy=np.array([k not in known for k in range(d)]),
        discount=mdp.discount,
        starts=counts.initial_count.astype(np.float64),
        n_actions=counts.n_actions,
    )


def _rising(alpha: Floats, count: Floats) -> float:
    """Σ log Γ(α + n)/Γ(α)."""
    assert _kernel.compiled is not None
    found: float = _kernel.compiled.log_rising(np.ascontiguousarray(alpha), np.ascontiguousarray(count), linear.cores())
    return found


def _shares(steps: Steps, more_ends: float, more_on: float) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
    """The hierarchical prior's even, share_on, share_end, going [X], others, end_others [P]."""
    known = steps.distinct > 0.0
    even = np.where(known, 1.0 / np.maximum(steps.distinct, 1.0), 0.0)
    share_on = steps.goes + known
    share_end = np.where(steps.live & steps.ends, steps.ends_in + more_ends, 0.0)
    going = np.where(steps.goes > 0.0, steps.goes + more_on, 0.0)
    others = share_on[steps.pair_state] - steps.on
    end_others = (share_end + going)[steps.pair_state] - steps.on - steps.ended
    return even, share_on, share_end, going, others, end_others


def _learn(steps: Steps) -> Strength:
    """The likelihoods of `posterior`, of states' ends, of pairs' ends and of where pairs lead."""
    assert _kernel.compiled is not None
    went, ended = steps.goes, steps.ends_in
    total = float((went + ended).sum())
    shares = np.array([ended.sum(), went.sum()]) / max(total, 1.0)
    more_ends, more_on = shares.tolist()
    grid = np.array(END_CONCENTRATIONS)
    if np.max(shares) < 1.0:
        live = steps.live
        counts = [each[each > 0.0] for each in (ended, went)]
        both = np.concatenate(counts)
        alpha = np.repeat(shares, [each.size for each in counts])
        all_of = (went + ended)[live]
        spread = likely(lambda c: _rising(c * alpha, both) - _rising(np.full(all_of.size, c), all_of), grid)
        mass = float(np.exp(spread @ np.log(grid)))
        more_ends, more_on = mass * more_ends, mass * more_on
    even, _, share_end, going, others, end_others = _shares(steps, more_ends, more_on)
    where = np.zeros(len(CONCENTRATIONS))
    _kernel.compiled.successor_likelihood(
        *steps.arrays, even, others, np.array(CONCENTRATIONS), where, linear.cores()
    )  # fmt: skip
    to = dict(zip(CONCENTRATIONS, where.tolist(), strict=True))
    x, on, stop = steps.pair_state, steps.on, steps.ended
    visits = on + stop
    went_on, stopped, tried = on > 0.0, stop > 0.0, visits > 0.0

    def where_to(c: float) -> float:
        scale, _ = strengths(c, others[went_on])
        return to[c] - _rising(scale * others[went_on], on[went_on])

    def whether(c: float) -> float:
        scale, _ = strengths(c, end_others)
        found = _rising((scale * (share_end[x] - stop))[stopped], stop[stopped])
        found += _rising((scale * (going[x] - on))[went_on], on[went_on])
        return found - _rising((scale * end_others)[tried], visits[tried])

    return Strength(
        weight=likely(where_to, np.array(CONCENTRATIONS)),
        end_weight=likely(whether, grid),
        more_ends=more_ends,
        more_on=more_on,
    )


def prior_of(
    steps: Steps,
    neutral: Neutral = "hierarchical",
    *,
    pessimistic_for: int | None = None,
    pessimism: float = 1.0,
    baseline_v: Floats | None = None,
    scale_concentration: float = 1.0,
) -> Prior:
    """The posterior under a prior; the arguments are those of `posterior.posterior`."""
    check_choice("prior", neutral, NEUTRAL)
    if neutral == "support":
        seen = steps.distinct + (steps.ends_in > 0.0)
        even = 1.0 / np.maximum(seen, 1.0)
        share_on = going = steps.distinct * even
        share_end = np.where(steps.ends_in > 0.0, even, 0.0)
        others = end_others = np.zeros(steps.visits.size)
        concentration = weight = end_concentration = end_weight = np.ones(1)
    else:
        learnt = steps.strength
        even, share_on, share_end, going, others, end_others = _shares(steps, learnt.more_ends, learnt.more_on)
        concentration, weight = np.array(CONCENTRATIONS) * scale_concentration, learnt.weight
        end_concentration, end_weight = np.array(END_CONCENTRATIONS) * scale_concentration, learnt.end_weight
    pair_reward, untried = steps.pair_reward, steps.prior_mean
    worst = np.full(steps.n_states, -2, dtype=np.int64)
    if pessimistic_for is None:
        pessimism = 0.0
    else:
        k = pessimistic_for
        if baseline_v is None:
            raise ParameterError("a pessimistic prior needs the baseline's values, to know which outcome is worst.")
        assert _kernel.compiled is not None
        _kernel.compiled.worst_outcomes(
            *steps.arrays, (steps.ends_in > 0.0).astype(np.uint8), steps.discount[k] * baseline_v[k], worst, linear.cores()
        )  # fmt: skip
        concentration, weight = capped(concentration, weight, PESSIMISTIC_CONCENTRATION)
        end_concentration, end_weight = capped(end_concentration, end_weight, PESSIMISTIC_CONCENTRATION)
        if steps.noisy[k] and pessimism > 0.0:
            pair_reward, untried = pair_reward.copy(), untried.copy()
            shift = pessimism * (steps.least_reward[k] - steps.prior_mean[k])
            pair_reward[k] += steps.prior_share[k] * shift
            untried[k] += shift
    kept, kept_ends = worth(weight), worth(end_weight)
    return Prior(
        steps=steps,
        neutral=neutral,
        counted=float(neutral != "support"),
        even=even,
        share_on=share_on,
        share_end=share_end,
        going=going,
        others=others,
        end_others=end_others,
        concentration=concentration[[i for i, _ in kept]],
        weight=np.array([probability for _, probability in kept]),
        end_concentration=end_concentration[[i for i, _ in kept_ends]],
        end_weight=np.array([probability for _, probability in kept_ends]),
        pair_reward=pair_reward,
        untried_reward=untried,
        pessimism=pessimism,
        worst=worst,
    )


def side_of(prior: Prior, policy: Floats, objectives: Sequence[int], *, guess: Side | None = None) -> Side:
    """A policy's values and visits at the posterior mean.

    Args:
        prior: Whose mean.
        policy: π, shape [X, A].
        objectives: Which objectives.
        guess: Another policy's, to start from.
    """
    steps = prior.steps
    asked = list(objectives)
    tried = policy.reshape(-1)[steps.pair_index]
    rest = np.where(steps.live, 1.0 - steps.by_state(tried), 0.0)
    untried = None
    if np.max(rest) > 1e-12:
        untried = np.where(steps.live[:, None], policy, 0.0)
        untried.reshape(-1)[steps.pair_index] = 0.0
        rest = untried.sum(axis=1)
    else:
        rest = np.zeros(steps.n_states)
    weight, even, extra = _mixed(prior, tried, rest)
    rhs = np.array(
        [steps.by_state(tried * prior.pair_reward[k]) + rest * prior.untried_reward[k] for k in asked]
    ).reshape(len(asked), -1)
    value = np.zeros_like(rhs) if guess is None else guess.value.copy()
    visits = np.zeros_like(rhs) if guess is None else guess.visits.copy()
    for gamma in np.unique(steps.discount[asked]):
        same = np.flatnonzero(steps.discount[asked] == gamma)
        system = (prior, weight, even, extra, float(gamma))
        value[same] = _solved(*system, rhs[same], value[same], transposed=False)
        visits[same] = _solved(*system, steps.initial[None], visits[same[:1]], transposed=True)
    return Side(value=value, visits=visits, policy=tried, untried=untried, objectives=tuple(asked))


def _mixed(prior: Prior, tried: Floats, rest: Floats) -> tuple[Floats, Floats, Floats]:
    """P_π at the mean: weights of pairs' rows [P], what every outcome of a state has [X], and its worst one more [X].

    ``tried`` is π of pairs [P], ``rest`` the sum of π over pairs never tried [X].
    """
    steps, x = prior.steps, prior.steps.pair_state
    extra_on = np.where(prior.worst >= 0, prior.pessimism, 0.0)
    extra_end = np.where(prior.worst == -1, prior.pessimism, 0.0)

    def parts(
        pi: Floats, place: Ints | slice, on: Floats | float, ended: Floats | float, others: Floats, end_others: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Of pairs with these counts: what their own counts have, the shares, and the worst one."""
        goes = np.zeros_like(pi)
        for c, probability in zip(prior.end_concentration, prior.end_weight, strict=True):
            scale, own = strengths(float(c), end_others) if prior.counted else (float(c), 1.0)
            going = scale * prior.going[place] + own * on + extra_on[place]
            total = scale * prior.share_end[place] + own * ended + extra_end[place] + going
            goes += probability * going / np.where(total > 0.0, total, 1.0)
        onward = pi * goes
        mine, shared, more = np.zeros_like(pi), np.zeros_like(pi), np.zeros_like(pi)
        for c, probability in zip(prior.concentration, prior.weight, strict=True):
            scale, own = strengths(float(c), others) if prior.counted else (float(c), 1.0)
            total = scale * prior.share_on[place] + own * on + extra_on[place]
            part = probability * onward / np.where(total > 0.0, total, 1.0)
            mine += part * own
            shared += part * scale
            more += part
        return mine, shared, more

    mine, shared, more = parts(tried, x, steps.on, steps.ended, prior.others, prior.end_others)
    of_state, of_worst = steps.by_state(shared), steps.by_state(more)
    if np.any(rest):
        every = slice(None)
        _, shared, more = parts(rest, every, 0.0, 0.0, prior.share_on, prior.share_end + prior.going)
        of_state, of_worst = of_state + shared, of_worst + more
    weight = (mine + prior.counted * of_state[x]) * steps.visits
    return weight, of_state * prior.even, of_worst * extra_on


def _solved(
    prior: Prior,
    weight: Floats,
    even: Floats,
    extra: Floats,
    gamma: float,
    rhs: Floats,
    guess: Floats,
    *,
    transposed: bool,
) -> Floats:
    """(I − γP)⁻¹ rhs, or with Pᵀ, shape [n, X]."""
    assert _kernel.compiled is not None
    found = np.ascontiguousarray(guess)
    error = _kernel.compiled.solve_mean(
        *prior.steps.arrays, weight, even, extra, prior.worst, gamma, transposed, np.ascontiguousarray(rhs), found,
        VALUE_TOL, MAX_PRODUCTS, linear.cores(),
    )  # fmt: skip
    if not error <= ACCEPT:
        raise ArithmeticError(
            f"the values of a policy at the posterior mean were not found: backward error {error:.2g}."
        )
    return found


def step_gains(
    prior: Prior, policies: Sequence[Floats], base: Side, *, progress: Callable[[int], None] | None = None
) -> tuple[Floats, Floats]:
    """Means [C, n] and covariances [C, n, n] of J(π) − J(π_b) to first order, as `posterior.linearised_gains`.

    Args:
        prior: Around whose mean.
        policies: C tables [X, A].
        base: The baseline's side, which says which objectives.
        progress: Hears how many policies are done.
    """
    n = len(base.objectives)
    mean, covariance = np.zeros((len(policies), n)), np.zeros((len(policies), n, n))
    for c, policy in enumerate(policies):
        side = side_of(prior, policy, base.objectives, guess=base)
        mean[c], covariance[c] = _gain(prior, side, base)
        if progress is not None:
            progress(c + 1)
    return mean, covariance


def _gain(prior: Prior, side: Side, base: Side) -> tuple[Floats, Floats]:
    """Mean [n] and covariance [n, n] of one policy's gains."""
    kernel, steps = _kernel.compiled, prior.steps
    assert kernel is not None
    asked = list(side.objectives)
    gained = side.value - base.value
    mean = gained @ steps.initial
    moved = side.policy - base.policy
    untried = np.zeros((steps.n_states, 3))
    if side.untried is not None or base.untried is not None:
        nothing = np.zeros((1, 1))
        pi = nothing if side.untried is None else side.untried
        tau = pi - (nothing if base.untried is None else base.untried)
        for i, each in enumerate((pi * pi, pi * tau, tau * tau)):
            untried[:, i] = each.sum(axis=1)
    found = np.empty((len(asked), len(asked)))
    both, visits = (
        np.ascontiguousarray(np.stack([mine.T, theirs.T], axis=2))  # [X, n, 2]
        for mine, theirs in ((side.value, base.value), (side.visits, base.visits))
    )
    kernel.gains_covariance(
        *steps.arrays, steps.discount[asked], both, visits, side.policy, moved, untried, steps.on, steps.ended,
        prior.share_on, prior.even, prior.counted, prior.share_end, prior.going, prior.others, prior.end_others,
        prior.neutral != "support", prior.pessimism, prior.worst, prior.concentration, prior.weight,
        prior.end_concentration, prior.end_weight, found, linear.cores(),
    )  # fmt: skip
    centred = gained - mean[:, None]  # and of where episodes start, a Dirichlet of their number
    found += (centred * steps.initial) @ centred.T / (steps.starts.sum() + 1.0)
    for i, k in enumerate(asked):
        if not steps.noisy[k]:
            continue
        more = side.visits[i] - base.visits[i]  # ν π − ν_b π_b = (ν − ν_b) π + ν_b (π − π_b)
        played = more[steps.pair_state] * side.policy + base.visits[i][steps.pair_state] * moved
        rest = (
            more**2 * untried[:, 0] + 2.0 * more * base.visits[i] * untried[:, 1] + base.visits[i] ** 2 * untried[:, 2]
        )
        found[i, i] += np.sum((steps.pair_noise[k] * played) ** 2) + steps.prior_noise[k] ** 2 * rest.sum()
    return mean, found
