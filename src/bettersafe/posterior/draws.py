"""Processes drawn from the posterior, and gains of policies in them, on this machine or on a Ray cluster.

Draws are numbered, and each has its own random generators (`drawn_gains`), so the results are bit for bit the same wherever
draws are made. If a worker of the cluster dies, only its share of the draws is repeated.
"""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe import _kernel
from bettersafe._system import workers
from bettersafe._system.memory import check_memory
from bettersafe._system.workers import Lost, joined, on_ray
from bettersafe.errors import RunError, check_integer, check_options, check_type
from bettersafe.mdp.values import solve_values
from bettersafe.posterior.events import event_effects
from bettersafe.posterior.linearised import event_gains, mean_mix, mean_values, mean_visits
from bettersafe.posterior.priors import (
    VALUE_TOL,
    Block,
    Posterior,
    asked_objectives,
    asked_tables,
    nonzero,
    only_played,
)
from bettersafe.typing import Event

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    import numpy.typing as npt
    from scipy import sparse

    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.typing import Floats, Ints, Progress


DRAWS_PER_REPORT = 8
"""Draws per core between two progress events; enough that cores rarely wait for each other."""


EVENT_STREAM = 0xE7E47
"""Separates the random numbers of declared events from all others."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Drawn process: transitions (CSR [P, X]) and rewards [d, P] of every pair, and the distribution of the first state [X]."""

    transition: sparse.csr_array
    reward: Floats
    initial: Floats


def draw_process(posterior: Posterior, rng: np.random.Generator) -> Draw:
    """Draw a process from the posterior."""
    o = posterior.outcomes
    c = float(rng.choice(posterior.concentration, p=posterior.weight))
    c_end = float(rng.choice(posterior.end_concentration, p=posterior.end_weight))
    ends = o.ends[o.entry_outcome]
    end_block = posterior.end_block(c_end)
    shape = np.where(ends, _entries(o, end_block), _entries(o, posterior.on_block(c)))
    mass = rng.standard_gamma(shape)
    where = _normalised(o, mass * ~ends, shape * ~ends, 0.0, 0.0)
    on = rng.standard_gamma(end_block.going)
    how = _normalised(o, mass * ends, shape * ends, on, end_block.going)
    onward = 1.0 - np.add.reduceat(how, o.entry_ptr[:-1])
    reward = posterior.pair_reward
    if np.any(o.pair_noise):
        reward = reward + o.pair_noise * rng.standard_normal(reward.shape)
    for effects in o.effects:
        of_state = effects.state_sd * rng.standard_normal(effects.state_sd.shape)
        of_action = effects.action_sd * rng.standard_normal(effects.action_sd.shape)
        group = o.pair_state if effects.group is None else effects.group
        reward = reward + effects.share * (of_state[:, group] + of_action[:, o.pair_action])
    start = rng.standard_gamma(o.starts)
    drawn = _process(o, how + where * np.repeat(onward, np.diff(o.entry_ptr)), reward, start / start.sum())
    return _with_events(o, [rate.drawn(rng.random()) for rate in posterior.rates], drawn)


def _entries(o: Outcomes, block: Block) -> Floats:
    """α + n of every entry, shape [E]; only n for entries of the other Dirichlet."""
    width = np.diff(o.entry_ptr)
    shared = block.share[o.entry_outcome] * np.repeat(block.scale, width) + block.extra[o.entry_outcome]
    return np.maximum(shared + o.entry_count * np.repeat(block.own, width), 0.0)


def _normalised(o: Outcomes, mass: Floats, shape: Floats, more: Floats | float, more_shape: Floats | float) -> Floats:
    """Gamma draws of entries, and of one more per pair, divided by their sum; shapes replace draws if all of a pair underflow."""
    ptr = o.entry_ptr
    total = np.add.reduceat(mass, ptr[:-1]) + more
    none = total <= 0.0
    total = np.where(none, np.add.reduceat(shape, ptr[:-1]) + more_shape, total)
    mass = np.where(np.repeat(none, np.diff(ptr)), shape, mass)
    return np.asarray(mass / np.repeat(np.where(total > 0.0, total, 1.0), np.diff(ptr)))


def mean_process(posterior: Posterior) -> Draw:
    """Posterior mean of the process, averaged over concentrations."""
    o = posterior.outcomes
    width = np.diff(o.entry_ptr)
    ends = o.ends[o.entry_outcome]
    probability = np.zeros(ends.size)
    for block in posterior.end_blocks:
        probability += ends * block.probability * _entries(o, block) / np.repeat(block.total, width)
    for block in posterior.on_blocks:
        going = np.repeat(posterior.mean_going / nonzero(block.total), width)
        probability += ~ends * block.probability * _entries(o, block) * going
    mean = _process(o, probability, posterior.pair_reward, o.initial)
    return _with_events(o, [rate.mean for rate in posterior.rates], mean)


def _with_events(o: Outcomes, rates: list[float], drawn: Draw) -> Draw:
    """The process with declared events at these rates."""
    from scipy import sparse

    if not rates:
        return drawn
    onward, cost = event_effects(o.events, rates, o.pair_index, o.n_objectives)
    return replace(
        drawn,
        transition=sparse.csr_array(sparse.diags_array(onward) @ drawn.transition),
        reward=onward * drawn.reward + cost,
    )


def _process(o: Outcomes, probability: Floats, pair_reward: Floats, initial: Floats) -> Draw:
    from scipy import sparse

    ptr, outcome = o.entry_ptr, o.entry_outcome
    following = o.outcome_next[outcome]
    stays = following >= 0
    transition = sparse.csr_array(
        (probability[stays], following[stays], np.append(0, np.cumsum(stays))[ptr]),
        shape=(o.pair_state.size, o.n_states),
    )
    paid = probability * o.outcome_reward[:, outcome]
    return Draw(transition=transition, reward=pair_reward + np.add.reduceat(paid, ptr[:-1], axis=1), initial=initial)


def returns_in(
    draw: Draw, outcomes: Outcomes, policies: Floats, *, guess: Floats | None = None
) -> tuple[Floats, Floats]:
    """J_k of every policy in a drawn process, shape [C, d], and its values, shape [C, d, X].

    Args:
        draw: Drawn process.
        outcomes: Outcomes of the log.
        policies: Policies, shape [C, X, A].
        guess: Initial values of the solver, shape [C, d, X]; saves time.
    """
    o = outcomes
    weights = policies.reshape(policies.shape[0], -1)[:, o.pair_index]  # [C, P]
    values = np.zeros((policies.shape[0], o.n_objectives, o.n_states))
    for c, weight in enumerate(weights):
        rhs = np.array([np.bincount(o.pair_state, weights=weight * r, minlength=o.n_states) for r in draw.reward])
        for gamma in np.unique(o.discount):
            same = o.discount == gamma
            start = None if guess is None else guess[c, same]
            values[c, same], _ = solve_values(
                o.state_ptr, weight, draw.transition, float(gamma), rhs[same], guess=start, tol=VALUE_TOL
            )
    return values @ draw.initial, values


def drawn_gains(
    posterior: Posterior,
    policies: npt.ArrayLike,
    baseline: npt.ArrayLike,
    *,
    draws: int,
    seed: int = 0,
    stream: int = 0,
    first: int = 0,
    objectives: Sequence[int] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Floats:
    """J_k(π) − J_k(π_b) of every policy in every drawn process, shape [draws, C, d].

    Every pair of every draw m has its own generator, seeded with (seed, stream, m) and the pair. A draw does not depend on the
    number of cores, on other draws or on the other policies.

    Args:
        posterior: Posterior of the process.
        policies: Policies, shape [C, X, A].
        baseline: π_b, shape [X, A].
        draws: Number of draws M.
        seed: Seed of the draws.
        stream: Number of the prior; each prior has its own draws.
        first: Number of the first draw.
        objectives: Indices of the objectives; default: all.
        threads: Number of threads; default: all cores.
        progress: Callback while draws are made.

    Examples:
        >>> from bettersafe.posterior import drawn_gains, posterior
        >>> policy = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0).policy
        >>> gains = drawn_gains(posterior(counts), [policy], baseline, draws=100, seed=0)
        >>> gains.shape
        (100, 1, 2)
    """
    check_options(progress=progress)
    policies, baseline = asked_tables(posterior, policies, baseline)
    for name, number in (("seed", seed), ("stream", stream), ("first", first)):
        check_integer(name, number, least=0)
    check_integer("draws", draws, least=1)
    check_integer("threads", threads, least=1, optional=True)
    indices = asked_objectives(objectives, posterior.outcomes.n_objectives)
    check_memory(8.0 * draws * policies.shape[0] * indices.size, f"{draws:,} draws of {policies.shape[0]} policies")
    asked = indices.tolist()
    everyone = np.concatenate([baseline[None], policies])
    worse, change = event_gains(posterior, policies, baseline, indices)
    gains = np.empty((draws, policies.shape[0], len(asked)))
    kernel = _kernel.compiled
    if kernel is None:
        for m in range(draws):
            draw = draw_process(posterior, np.random.default_rng([seed, stream, first + m]))
            returns, _ = returns_in(draw, posterior.outcomes, everyone)
            gains[m] = (returns[1:] - returns[0])[:, asked] + worse
            if progress is not None:
                progress(Event(done=m + 1, total=draws, unit="draws"))
        return gains
    posterior = only_played(posterior, np.any(everyone > 0.0, axis=0))
    o = posterior.outcomes
    weight = everyone.reshape(everyone.shape[0], -1)[:, o.pair_index]
    mixed = [mean_mix(posterior, row) for row in weight]
    value_weight, weight = weight[0], np.ascontiguousarray(weight * posterior.onward)
    start = int(np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0])
    n_threads = workers.cores() if threads is None else threads
    at_once = draws if progress is None else DRAWS_PER_REPORT * n_threads
    gammas = np.unique(o.discount[asked])
    for nth, gamma in enumerate(gammas):
        places = [i for i, k in enumerate(asked) if o.discount[k] == gamma]
        same = np.array([asked[i] for i in places], dtype=np.int64)
        found = np.empty((draws, policies.shape[0], same.size))
        visits = np.array([mean_visits(o, mix, float(gamma)) for mix in mixed])
        process = (
            o.state_ptr, o.pair_index, same, o.outcome_ptr, o.outcome_next,
            np.ascontiguousarray(o.outcome_reward[same]), o.count_ptr, o.count_outcome, o.count,
            posterior.share, posterior.going, posterior.others, posterior.end_others, posterior.extra, posterior.concentration, _cumulative(posterior.weight),
            posterior.end_concentration, _cumulative(posterior.end_weight),
            np.ascontiguousarray(posterior.reward[same]), np.ascontiguousarray(o.pair_noise[same]),
            weight, o.starts, mean_values(posterior, mixed[0], value_weight, same),
            visits, float(gamma), VALUE_TOL, start,
        )  # fmt: skip
        for done in range(0, draws, at_once):
            kernel.drawn_gains(*process, first + done, n_threads, found[done : done + at_once])
            if progress is not None:
                so_far = (nth * draws + min(done + at_once, draws)) // gammas.size
                progress(Event(done=so_far, total=draws, unit="draws"))
        played = visits[:, o.pair_state] * weight
        found += _effect_noise(o, played[1:] - played[0], same, range(first, first + draws), (seed, stream))
        gains[:, :, places] = found
    return gains + worse + _event_noise(posterior, change, range(first, first + draws), (seed, stream))


def _event_noise(posterior: Posterior, change: Floats, draws: range, seed: tuple[int, int]) -> Floats:
    """Gains from the uncertain rates of declared events, to first order, shape [draws, C, n].

    Args:
        posterior: Posterior of the process.
        change: Changes of gains by one standard deviation of each rate, shape [E, C, n].
        draws: Numbers of the draws.
        seed: Seed and stream.
    """
    found = np.zeros((len(draws), *change.shape[1:]))
    for e, rate in enumerate(posterior.rates):
        if rate.sd > 0.0:
            drawn = [rate.drawn(np.random.default_rng([*seed, m, EVENT_STREAM, e]).random()) for m in draws]
            found += ((np.array(drawn) - rate.mean) / rate.sd)[:, None, None] * change[e]
    return found


def _effect_noise(o: Outcomes, moved: Floats, objectives: Ints, draws: range, seed: tuple[int, int]) -> Floats:
    """Gains from the uncertain effects of states and actions on noisy rewards, shape [draws, C, n].

    The effects are shared by pairs, so the kernel, which draws pair by pair, leaves them out. They change gains by
    Σ Δ b (σ_x + α_a), here with the change Δ [C, P] of visits at the posterior mean.
    """
    found = np.zeros((len(draws), moved.shape[0], objectives.size))
    for i, k in enumerate(objectives.tolist()):
        if not any(np.any(effects.share[k]) for effects in o.effects):
            continue
        loading = np.array(
            [
                np.concatenate([effects.loading(k, o.pair_state, o.pair_action, row) for effects in o.effects])
                for row in moved
            ]
        )
        for place, m in enumerate(draws):
            drawn = np.random.default_rng([*seed, m, k]).standard_normal(loading.shape[1])
            found[place, :, i] = np.sum(loading * drawn, axis=1)  # not @, whose bits depend on the number of policies
    return found


def _cumulative(weight: Floats) -> Floats:
    total = np.cumsum(weight)
    total[-1] = 1.0
    return total


SHARE = 10
"""Draws in a share; few, so that a lost share is quickly repeated."""


@dataclass(frozen=True, kw_only=True)
class RayCluster:
    """Ray cluster for draws.

    Attributes:
        address: Address of the cluster; None for the cluster on this machine, which is started if needed.
        workers: Number of shares of draws at a time; None for the number of cores of the cluster.
    """

    address: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        check_type("address", self.address, str, optional=True)
        check_integer("workers", self.workers, least=1, optional=True)


@dataclass(frozen=True, kw_only=True)
class Share:
    """Part of the draws: arguments of `drawn_gains`."""

    posterior: Posterior
    policies: Floats
    baseline: Floats
    draws: int
    seed: int
    stream: int
    first: int
    objectives: tuple[int, ...] | None


def connected(cluster: RayCluster | None) -> AbstractContextManager[None]:
    """Context with a connection to the cluster, for all draws made in it."""
    return nullcontext() if cluster is None else joined(cluster.address)


def draw_share(share: Share, *, progress: Progress | None = None) -> Floats:
    """Gains of a share, computed on this machine."""
    return drawn_gains(
        share.posterior,
        share.policies,
        share.baseline,
        draws=share.draws,
        seed=share.seed,
        stream=share.stream,
        first=share.first,
        objectives=share.objectives,
        progress=progress,
    )


def shared_gains(
    posterior: Posterior,
    policies: Floats,
    baseline: Floats,
    *,
    draws: int,
    seed: int,
    stream: int = 0,
    first: int = 0,
    objectives: Sequence[int] | None = None,
    cluster: RayCluster | None = None,
    progress: Progress | None = None,
) -> Floats:
    """`drawn_gains`, on a cluster if one is given; for the other arguments see `drawn_gains`."""
    whole = Share(
        posterior=replace(posterior, outcomes=replace(posterior.outcomes)),  # without cached properties
        policies=policies,
        baseline=baseline,
        draws=draws,
        seed=seed,
        stream=stream,
        first=first,
        objectives=None if objectives is None else tuple(objectives),
    )
    if cluster is None:
        return draw_share(whole, progress=progress)
    shares = [replace(whole, first=first + start, draws=min(SHARE, draws - start)) for start in range(0, draws, SHARE)]
    found: dict[int, Floats] = {}
    with closing(on_ray(draw_share, shares, workers=cluster.workers, address=cluster.address)) as results:
        for index, result in results:
            if isinstance(result, Lost):
                raise RunError(
                    f"draws {shares[index].first} to {shares[index].first + shares[index].draws - 1} could not be made:"
                    f" {result.reason}. Repeat the command on machines with more memory or without the cluster."
                )
            found[index] = result
            if progress is not None:
                progress(Event(done=sum(shares[i].draws for i in found), total=draws, unit="draws"))
    return np.concatenate([found[index] for index in range(len(shares))])
