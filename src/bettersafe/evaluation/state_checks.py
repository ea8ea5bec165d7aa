"""Is the logged state enough? Three checks that need nothing but the log, and for the third a policy.

With v̂ and q̂ of the baseline in the model estimated from the log, y_t = r_t + γ v̂(x_{t+1}) and δ_t = y_t − v̂(x_t), both [d]:

    return        logged mean return − J(π_b; model) = mean over episodes of Σ_t γ^t δ_t
    step-before   is the surprise e_t = y_t − q̂(x_t, a_t) associated with earlier steps of the episode: with e_{t−1}, with
                  Σ_{s<t} e_s / √t, with (x_{t−1}, a_{t−1})? And x_{t+1} with (x_{t−1}, a_{t−1})?
    small-step    d/dη at η = 0 of J((1−η) π_b + η π): by the logged episodes (the derivative of PDIS, with q̂ as control variate)
                  Σ_s γ^s [(ρ_s − 1)(G_s − q̂(x_s, a_s)) + g(x_s)], with ρ = π/π_b, G_s the return from step s on and
                  g(x) = Σ_a (π − π_b)(a|x) q̂(x,a); by the model Σ_x ν(x) g(x). Both times 0.1

A cut-off episode is continued by the model (G ends with γ^H v̂(x_H)), so both sides have the same horizon, whatever stopped the log.
The step before shows a hidden cause that comes and goes. One that lasts for the whole episode moves all its surprises a little, each
less than chance does, and shows in their sum; divided by √t, the sum has about the same spread at every step.
All three are sums of γ-weighted residuals. These are martingale differences if the state is enough, and `association` tests them.
The model is fitted to the same rows: residuals are centred, and weights too, which is the influence of that fit. An estimated
baseline is part of the model, and residuals are then centred by state; a known one is not, and they are centred by pair.

Rows at which a truncated episode leads to an unknown state, or to one without decisions, are left out: such a state has no value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.errors import check_log, check_options, check_type, listed
from bettersafe.evaluation.association import (
    Cells,
    Strata,
    Terms,
    associate,
    fixed_terms,
    group_effect,
    group_effect_of_kinds,
    linear_terms,
    p_value,
    shuffle_variance,
)
from bettersafe.evaluation.state_evidence import STEP, Gap, StateCheck
from bettersafe.evaluation.value_models import check_possible
from bettersafe.logs.counts import Counts, count
from bettersafe.logs.dataset import Dataset, take_episodes, user_sign
from bettersafe.logs.episodes import empty_block
from bettersafe.logs.labels import counting_order
from bettersafe.mdp.mdp import by_state
from bettersafe.mdp.policy import check_policy
from bettersafe.mdp.values import expected_return, occupancy, policy_values
from bettersafe.model import Model, estimate_baseline, estimate_model
from bettersafe.typing import frozen

if TYPE_CHECKING:
    import numpy.typing as npt

    from bettersafe.evaluation.state_evidence import Kind
    from bettersafe.logs.dataset import Objective
    from bettersafe.mdp.mdp import MDP
    from bettersafe.typing import Floats, Ints, Log


MOST_NUMBERS = 500_000
"""Rows × objectives that are checked; of a larger log, every second, third, … episode is taken."""

TESTS_OF_STEP = 3
"""Tests of earlier steps per objective: the surprise of the step before, those of all earlier steps, and the pair of the step before."""

OFTEN = 0.01
"""Additional steps per episode, discounted, into states without decisions that speak against a policy."""

MOST_NAMED = 3
"""Largest number of states that a sentence names."""

NO_ROWS = "counts do not have the order of the rows"


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Rows of a log with the values of the baseline in the model that is estimated from them.

    Attributes:
        objectives: Objectives, length d.
        episode: Episode of every row, shape [N], from 0; rows are in the order of their episode and step.
        order: Place of every episode in the order of labels as people count (visit 2 before visit 10), shape [n].
        time: Step t of every row, shape [N].
        state: x, shape [N].
        pair: Index of (x, a) among the pairs of ``mdp``, shape [N].
        next_state: x', shape [N]; -1 if the process ended.
        reward: r, shape [d, N].
        baseline: π_b on tried pairs, shape [X, A].
        known: Whether the baseline is known; if not, it is estimated from the rows.
        mdp: Model of the rows.
        v: v̂, shape [d, X].
        q: q̂, shape [d, P].
    """

    objectives: tuple[Objective, ...]
    episode: Ints
    order: Ints
    time: Ints
    state: Ints
    pair: Ints
    next_state: Ints
    reward: Floats
    baseline: Floats
    known: bool
    mdp: MDP
    v: Floats
    q: Floats

    @property
    def n_episodes(self) -> int:
        """Number of episodes."""
        return int(self.episode[-1]) + 1

    @cached_property
    def starts(self) -> Ints:
        """First row of every episode, shape [n]."""
        return np.flatnonzero(self.time == 0)

    @cached_property
    def states(self) -> Strata:
        """Rows by state."""
        return Strata(of=self.state, n=self.mdp.n_states, episode=self.episode)

    @cached_property
    def pairs(self) -> Strata:
        """Rows by pair."""
        return Strata(of=self.pair, n=self.mdp.n_pairs, episode=self.episode)

    def target(self, k: int, values: Floats | None = None) -> Floats:
        """γ_k v(x') + r_k for v̂_k, or γ_k u(x') for other ``values`` [X]; shape [N]."""
        following = (self.v[k] if values is None else values)[self.next_state]
        ahead = float(self.mdp.discount[k]) * np.where(self.next_state >= 0, following, 0.0)
        return np.asarray(ahead + self.reward[k] if values is None else ahead)

    @property
    def words(self) -> str:
        """Which returns are compared, in words; empty if they are those of whole logged episodes."""
        last = np.append(np.flatnonzero(np.diff(self.episode)), self.episode.size - 1)
        cut = bool(np.any(self.next_state[last] >= 0))
        own = np.array([objective.discount for objective in self.objectives])
        other = np.flatnonzero(own != self.mdp.discount)
        parts = [f"discount {self.mdp.discount[other[0]]:.3g} instead of 1"] if other.size else []
        return ", ".join([*parts, "cut-off episodes continued by the model"] if cut else parts)

    def earlier_sum(self, values: Floats) -> Floats:
        """Sum of ``values`` [N] over the earlier steps of the episode, shape [N]."""
        sums = np.cumsum(values) - values
        return np.asarray(sums - sums[self.starts][self.episode])

    def weight(self, k: int) -> Floats:
        """γ_k^t of every row, shape [N]."""
        return np.asarray(self.mdp.discount[k] ** self.time)

    def returns(self, k: int) -> Floats:
        """Return of every episode, continued by v̂ where it was cut off, shape [n]."""
        total = np.asarray(np.bincount(self.episode, weights=self.weight(k) * self.reward[k]), dtype=np.float64)
        last = np.append(np.flatnonzero(np.diff(self.episode)), self.episode.size - 1)
        cut = last[self.next_state[last] >= 0]
        total[self.episode[cut]] += self.mdp.discount[k] * self.weight(k)[cut] * self.v[k][self.next_state[cut]]
        return total


def check_states(
    log: Log, *, baseline: npt.ArrayLike | None = None, policy: npt.ArrayLike | None = None
) -> tuple[StateCheck, ...]:
    """Check whether the logged state is enough for the model: two checks of the log, and one of a policy.

    Args:
        log: A Dataset, or Episodes on disk.
        baseline: π_b, shape [X, A], if it is known; estimated from the log if None.
        policy: π, shape [X, A], for the small step towards it.

    Returns:
        The checks "return" and "step-before" and, with a policy, "small-step" and, where the log stopped in states without
        decisions, "open-end". If the state is enough, any of them speaks against
        the model in about 1 of 100 logs or fewer.

    Examples:
        >>> policy = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy
        >>> for check in bettersafe.check_states(log, baseline=baseline, policy=policy):
        ...     print(check.kind, check.against)
        return False
        step-before False
        small-step False
    """
    check_log("log", log)
    steps = prepare_steps(log, baseline=baseline)
    kinds: tuple[Kind, ...] = ("return", "step-before") if policy is None else ("return", "step-before", "small-step")
    if steps is None:
        return tuple(StateCheck(kind=kind, reason="no row has a known next state") for kind in kinds)
    checks = (check_return(steps), check_step_before(steps))
    if policy is None:
        return checks
    return (*checks, check_small_step(steps, policy), *check_open_ends(log, steps, policy))


def check_counts(
    counts: Counts,
    *,
    baseline: npt.ArrayLike | None = None,
    model: Model | None = None,
    with_policy: bool = False,
) -> tuple[StateCheck, ...]:
    """The checks that counts allow: the model's return of the baseline, if every episode has the same horizon.

    The standard error is that of the logged mean return, which is larger than that of the difference: the check has less power than
    with the rows of the log. Counts do not have the order of the rows, so the other checks say that they were not made.

    Args:
        counts: Statistics of the log.
        baseline: π_b, shape [X, A]; estimated from the counts if None.
        model: Model of the counts, if it is already estimated; the counts then need no pairs.
        with_policy: Whether to include the check of a small step towards a policy, which says that it was not made.

    Examples:
        >>> from bettersafe.evaluation import check_counts
        >>> [check.reason for check in check_counts(counts)]
        ['', 'counts do not have the order of the rows']
    """
    check_type("counts", counts, Counts)
    check_options(with_policy=with_policy)
    if model is not None:
        check_type("model", model, Model)
    rest = [StateCheck(kind="step-before", reason=NO_ROWS)]
    if with_policy:
        rest.append(StateCheck(kind="small-step", reason=NO_ROWS))
    return (_return_by_counts(counts, baseline, model), *rest)


def prepare_steps(log: Log, *, baseline: npt.ArrayLike | None = None) -> Steps | None:
    """Rows of a log for the checks, with the values of the baseline; None if no row can be used.

    Args:
        log: A Dataset, or Episodes on disk.
        baseline: π_b, shape [X, A], if it is known; estimated from the rows if None.
    """
    given = None
    if baseline is not None:
        given = check_policy(baseline, log.n_states, log.n_actions, name="baseline", state_labels=log.state_labels)
    data = _discounted(_without_open_ends(_sample(log)))
    if not data.n_rows:
        return None
    counts = count(data)
    if given is not None:
        check_possible(data, given)
    mdp = estimate_model(counts).mdp
    policy = _on_pairs(mdp, estimate_baseline(counts) if given is None else given)
    v, q = policy_values(mdp, policy)
    pair = np.zeros((mdp.n_states, mdp.n_actions), dtype=np.int64)
    pair[mdp.pair_state, mdp.pair_action] = np.arange(mdp.n_pairs)
    lengths = np.diff(data.episode_ptr)
    return Steps(
        objectives=log.objectives,
        episode=np.repeat(np.arange(lengths.size), lengths),
        order=counting_order(data.episode_labels),
        time=np.arange(data.n_rows) - np.repeat(data.episode_ptr[:-1], lengths),
        state=data.states,
        pair=pair[data.states, data.actions],
        next_state=data.next_states,
        reward=np.ascontiguousarray(data.rewards.T),
        baseline=policy,
        known=given is not None,
        mdp=mdp,
        v=v,
        q=q,
    )


def _discounted(data: Dataset) -> Dataset:
    """The log with discounts below 1 if episodes are cut off: values without a discount need episodes that end."""
    ends = data.n_rows > 0 and bool(np.all(data.terminated[data.episode_ptr[1:] - 1]))
    if ends or all(objective.discount < 1.0 for objective in data.objectives) or not data.n_rows:
        return data
    most = 1.0 - 1.0 / (1.0 + float(np.max(np.diff(data.episode_ptr))))
    return replace(
        data,
        objectives=tuple(replace(each, discount=min(each.discount, most)) for each in data.objectives),
    )


def check_return(steps: Steps) -> StateCheck:
    """The model's return of the baseline against the logged mean return, per objective."""
    d, n = len(steps.objectives), steps.n_episodes
    gaps = []
    for k in range(d):
        found = associate(
            _residual_terms(steps, steps.weight(k), steps.target(k), steps.q[k], steps.v[k]), steps.episode
        )
        returns = steps.returns(k)
        model = float(np.mean(steps.v[k][steps.state[steps.starts]]))
        gaps.append(_gap(steps, k, model, float(returns.mean()), found.error / n, found.z, d))
    return StateCheck(kind="return", gaps=tuple(gaps), returns=steps.words)


def check_step_before(steps: Steps) -> StateCheck:
    """Whether earlier steps help to predict the next state and the reward, within the same state and action.

    Per objective there are three tests: whether the surprise y − q̂ of the step before is associated with that of this step, whether
    the sum of the surprises of all t earlier steps, divided by √t, is, and whether means differ by the previous pair. One more test is
    about the next state alone, by the previous pair. The effect is the largest root mean square of the three, in units of return.
    """
    d = len(steps.objectives)
    rows = np.flatnonzero(steps.time > 0)
    if not rows.size:
        return StateCheck(kind="step-before", reason="every episode has only one step")
    strata = Strata(of=steps.pair[rows], n=steps.mdp.n_pairs, episode=steps.episode[rows])
    cells = Cells(strata.of * strata.n + steps.pair[rows - 1], strata)
    tests = TESTS_OF_STEP * d + 1
    following = group_effect_of_kinds(steps.next_state[rows] + 1, cells).association
    gaps = []
    for k in range(d):
        target = steps.target(k)[rows]
        grouped = group_effect(target, cells)
        statistics, sizes = [grouped.association.z], [grouped.size]
        for feature in _past_surprises(steps, k, rows):
            found = associate(
                linear_terms(feature, target, strata),
                strata.episode,
                least=shuffle_variance(feature, target, strata),
            )
            statistics.append(found.z)
            sizes.append(_slope_size(found.total, feature, strata))
        z = max(statistics, key=abs)
        gaps.append(_gap(steps, k, 0.0, max(sizes), math.nan, z, tests, signed=False))
    return StateCheck(kind="step-before", gaps=tuple(gaps), p_next_state=p_value(following.z, tests))


def _past_surprises(steps: Steps, k: int, rows: Ints) -> tuple[Floats, Floats]:
    """Surprise y − q̂ of the step before ``rows``, and the sum of those of all t earlier steps, divided by √t."""
    surprise = steps.target(k) - steps.q[k][steps.pair]
    return surprise[rows - 1], steps.earlier_sum(surprise)[rows] / np.sqrt(steps.time[rows])


def check_small_step(steps: Steps, policy: npt.ArrayLike) -> StateCheck:
    """Gain of a step of 10 % towards ``policy`` [X, A]: by the model, and by the logged episodes with importance weights.

    The derivative is taken at the baseline, where weights are harmless, and multiplied by 0.1. On pairs that were never tried the
    policy is not compared.
    """
    mdp, n, d = steps.mdp, steps.n_episodes, len(steps.objectives)
    wanted = check_policy(policy, mdp.n_states, mdp.n_actions)
    share = steps.baseline[mdp.pair_state, mdp.pair_action]
    change = _on_pairs(mdp, wanted)[mdp.pair_state, mdp.pair_action] - share
    ratio = np.divide(change, share, out=np.zeros_like(change), where=share > 0.0)[steps.pair]  # ρ − 1
    if not np.any(change):
        return StateCheck(
            kind="small-step", reason="the policy does not differ from the baseline where the log has data"
        )
    running = steps.earlier_sum(ratio)
    gaps = []
    for k in range(d):
        target, weight = steps.target(k), steps.weight(k)
        step_gain = by_state(mdp, change * steps.q[k])
        gain_v, gain_q = _values_of(steps, step_gain, k)
        terms = (
            linear_terms(weight * ratio, target, steps.pairs)
            + _residual_terms(steps, weight * running, target, steps.q[k], steps.v[k])
            + _residual_terms(
                steps, weight, steps.target(k, gain_v), gain_q - step_gain[mdp.pair_state], gain_v - step_gain
            )
        )
        found = associate(terms, steps.episode)
        model = STEP * float(np.mean(gain_v[steps.state[steps.starts]]))
        seen = model + STEP * float(terms.rows.sum()) / n
        gaps.append(_gap(steps, k, model, seen, STEP * found.error / n, found.z, d, scale=STEP))
    return StateCheck(kind="small-step", gaps=tuple(gaps), returns=steps.words)


def check_open_ends(log: Log, steps: Steps, policy: npt.ArrayLike) -> tuple[StateCheck, ...]:
    """Whether ``policy`` [X, A] more often goes where the log stopped in a state without decisions; nothing if it never stopped so.

    What follows there is in no estimate: the model leaves these steps out, as if they were like the others. The rate of a pair is its
    share of such steps, and rates are weighted by the discounted visits of π and of π_b in the model: how often it happens per episode.
    """
    data, mdp = _sample(log), steps.mdp
    acted = np.zeros(data.n_states + 1, dtype=np.bool_)  # the last is an unknown state
    acted[data.states] = True
    stopped = ~data.terminated & ~acted[data.next_states]
    if not stopped.any():
        return ()
    pair = data.states * data.n_actions + data.actions
    visits, times = (np.bincount(each, minlength=data.n_states * data.n_actions) for each in (pair, pair[stopped]))
    rate = (times / np.maximum(visits, 1)).reshape(data.n_states, data.n_actions)
    slowest = int(np.argmax(mdp.discount))
    wanted = _on_pairs(mdp, check_policy(policy, mdp.n_states, mdp.n_actions))
    before, after = (
        float(occupancy(mdp, table, slowest) @ np.sum(table * rate, axis=1)) for table in (steps.baseline, wanted)
    )
    places = [str(data.state_labels[x]) for x in np.unique(data.next_states[stopped]) if x >= 0]
    named = f" ({listed(places[:MOST_NAMED])}{', …' if len(places) > MOST_NAMED else ''})" if places else ""
    more = after > before + OFTEN
    change = f"{100.0 * (after / before - 1.0):.0f} % more often" if before > 0.0 else "although the baseline does not"
    goes = f"the policy goes there {change}" if more else "the policy does not go there more often"
    reason = (
        f"the log stopped {np.count_nonzero(stopped):,} times in a state without logged decisions{named}, and what follows there is in"
        f" no figure; {goes}"
    )
    return (StateCheck(kind="open-end", reason=reason, required=more),)


def _residual_terms(steps: Steps, feature: Floats, target: Floats, q: Floats, v: Floats) -> Terms:
    """Terms of Σ f (y − v(x)), where q [P] and v [X] are the means of y by pair and by state under the baseline."""
    if not steps.known:
        return linear_terms(feature, target, steps.states)
    advantage = (q - v[steps.mdp.pair_state])[steps.pair]
    return linear_terms(feature, target, steps.pairs) + fixed_terms(feature * advantage)


def _values_of(steps: Steps, reward: Floats, k: int) -> tuple[Floats, Floats]:
    """Values u [X] and [P] of a reward by state under the baseline, with the discount of objective k."""
    mdp = steps.mdp
    own = replace(
        mdp,
        reward=reward[mdp.pair_state][None, :],
        discount=mdp.discount[k : k + 1],
        unseen_value=np.zeros((1, mdp.n_states)),
    )
    v, q = policy_values(own, steps.baseline)
    return v[0], q[0]


def _slope_size(total: float, feature: Floats, strata: Strata) -> float:
    """Root mean square of the fitted values of a regression of the target on the feature, within strata."""
    spread = float(np.sum(strata.centred(feature) ** 2))
    return abs(total) / math.sqrt(spread * feature.size) if spread > 0.0 else 0.0


def _gap(
    steps: Steps,
    k: int,
    model: float,
    log: float,
    error: float,
    z: float,
    tests: int,
    *,
    signed: bool = True,
    scale: float = 1.0,
) -> Gap:
    """Gap of objective k; values that are better if larger get the sign of their column."""
    objective, returns = steps.objectives[k], steps.returns(k)
    return Gap(
        objective=objective.name,
        model=user_sign(objective, model) if signed else model,
        log=user_sign(objective, log) if signed else log,
        error=error,
        statistic=z,
        p_value=p_value(z, tests),
        scale=scale * float(returns.std(ddof=1)) if returns.size > 1 else 0.0,
        label=objective.label or "",
    )


def _return_by_counts(counts: Counts, baseline: npt.ArrayLike | None, model: Model | None) -> StateCheck:
    """The check "return" from counts."""
    n, d = counts.n_episodes, counts.n_objectives
    if counts.n_truncated:
        return StateCheck(
            kind="return",
            reason="episodes were cut off, and counts do not tell where; give the log, or count only complete episodes",
        )
    if n < 2:
        return StateCheck(kind="return", reason="there is only one episode")
    policy = (
        estimate_baseline(counts) if baseline is None else check_policy(baseline, counts.n_states, counts.n_actions)
    )
    mdp = (estimate_model(counts) if model is None else model).mdp
    by_model = expected_return(mdp, _on_pairs(mdp, policy))
    gaps = []
    for k, objective in enumerate(counts.objectives):
        mean = float(counts.return_sum[k]) / n
        if math.isnan(mean):  # derived from the counts: its returns are not logged
            continue
        variance = max(float(counts.return_square_sum[k]) / n - mean**2, 0.0) * n / (n - 1)
        error, difference = math.sqrt(variance / n), mean - float(by_model[k])
        varies = error > 1e-9 * max(abs(mean), abs(float(by_model[k])))
        z = difference / error if varies else 0.0
        gaps.append(
            Gap(
                objective=objective.name,
                model=user_sign(objective, float(by_model[k])),
                log=user_sign(objective, mean),
                error=error,
                statistic=z,
                p_value=p_value(z, d),
                scale=math.sqrt(variance),
                label=objective.label or "",
            )
        )
    return StateCheck(kind="return", gaps=tuple(gaps))


def _on_pairs(mdp: MDP, policy: Floats) -> Floats:
    """The policy [X, A] conditional on the pairs of the model; as given where it plays none of them."""
    kept = np.zeros(policy.shape)
    kept[mdp.pair_state, mdp.pair_action] = policy[mdp.pair_state, mdp.pair_action]
    mass = kept.sum(axis=1, keepdims=True)
    return frozen(np.where(mass > 0.0, kept / np.where(mass > 0.0, mass, 1.0), policy), np.float64)


def _sample(log: Log) -> Dataset:
    """The log in memory; of a log with more than `MOST_NUMBERS` numbers, every s-th episode."""
    stride = math.ceil(log.n_rows * log.n_objectives / MOST_NUMBERS)
    if stride <= 1 and isinstance(log, Dataset):
        return log
    parts, first = [], 0
    for block in log.blocks():
        parts.append(take_episodes(block, np.arange(-first % stride, block.n_episodes, stride)))
        first += block.n_episodes
    parts = [part for part in parts if part.n_rows]
    if not parts:
        return empty_block(log)
    ends = np.cumsum([0, *(part.n_rows for part in parts)])
    n_episodes = sum(part.n_episodes for part in parts)
    return replace(
        parts[0],
        states=np.concatenate([part.states for part in parts]),
        actions=np.concatenate([part.actions for part in parts]),
        rewards=np.concatenate([part.rewards for part in parts]),
        next_states=np.concatenate([part.next_states for part in parts]),
        terminated=np.concatenate([part.terminated for part in parts]),
        baseline_prob=None,
        episode_ptr=np.concatenate(
            [[0], *(part.episode_ptr[1:] + end for part, end in zip(parts, ends, strict=False))]
        ),
        episode_labels=np.arange(n_episodes),
    )


def _without_open_ends(data: Dataset) -> Dataset:
    """The log without rows at which a truncated episode leads to an unknown state, or to one without decisions."""
    rows = np.ones(data.n_rows, dtype=np.bool_)
    starts, ends = data.episode_ptr[:-1], data.episode_ptr[1:].copy()  # ``ends``: behind the last row that is kept
    visits = np.bincount(data.states, minlength=data.n_states)
    while data.n_rows:  # a row that is left out may have been the only decision of its state
        running = np.flatnonzero((ends > starts) & ~data.terminated[np.maximum(ends - 1, 0)])
        following = data.next_states[ends[running] - 1]
        running = running[(following < 0) | (visits[following] == 0)]
        if not running.size:
            break
        ends[running] -= 1
        rows[ends[running]] = False
        visits -= np.bincount(data.states[ends[running]], minlength=data.n_states)
    if rows.all():
        return data
    lengths = (ends - starts)[ends > starts]
    return replace(
        data,
        states=data.states[rows],
        actions=data.actions[rows],
        rewards=data.rewards[rows],
        next_states=data.next_states[rows],
        terminated=data.terminated[rows],
        baseline_prob=None,
        episode_ptr=np.concatenate([[0], np.cumsum(lengths)]),
        episode_labels=np.arange(lengths.size),
    )
