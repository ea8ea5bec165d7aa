"""The posterior of the true process given a log, and the probability that a policy is no worse than the baseline in it.

Every pair (x,a) has its own unknown distribution over the outcomes that were seen from x under any action. An outcome is
where the step led (a state, or the end) together with what it paid; so rewards that go with the outcome need no model of
their own. With prior α_0 and counts n,

    p(·|x,a) | D ~ Dirichlet( α_0(x,·) + n(x,a,·) ),   independent over pairs

Two neutral priors, and a pessimistic one for every objective k:

    "support"        total mass 1, spread evenly over the state's outcomes
    "hierarchical"   mean: the state's outcomes over all actions; concentration c integrated over, by marginal likelihood
    pessimistic(k)   the neutral one plus pseudo-transitions (one, if not said otherwise) of every pair to the outcome of its
                     state that is worst for k, by r_k + γ_k v̂_k^{π_b}

A good baseline is itself evidence that what it seldom does is bad; an exchangeable prior ignores that, which is why a policy
has to convince under the pessimistic priors too (`bopt`).

Rewards come in three kinds. *Known*: a table [X, A] that the caller has (a rule on pairs). *Outcome*: a few distinct values,
told apart as outcomes. *Noisy*: anything else. Means of pairs are spread around the mean m of all pairs with variance τ²,
rewards of a pair around its mean with variance s², both pooled over the log (s² = 0 where a pair always pays the same):

    r_k(x,a) | D ~ N( v (n r̄/s² + m/τ²),  v ),   1/v = n/s² + 1/τ²

and the prior that is pessimistic for k has the least reward seen in the place of m.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bettersafe import linear
from bettersafe.errors import ParameterError, check_choice
from bettersafe.mdp import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bettersafe.data import Dataset

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Neutral = Literal["support", "hierarchical"]
NEUTRAL: tuple[Neutral, ...] = ("support", "hierarchical")

MOST_VALUES = 20
"""A reward with at most this many distinct values goes with the outcome; with more it is noisy."""

CONCENTRATIONS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Grid over which the hierarchical prior's concentration is integrated."""

VALUE_TOL = 1e-9
"""Backward error of the values in a draw: far below the spread of draws."""


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """What a log says about every pair, in the form that the posterior needs.

    Attributes:
        pair_state: State of every pair, sorted by state and then action, shape [P]; all pairs of states that were acted in.
        pair_action: Shape [P].
        state_ptr: Pairs of state x are state_ptr[x]:state_ptr[x+1], shape [X+1].
        outcome_ptr: Outcomes of state x are outcome_ptr[x]:outcome_ptr[x+1], shape [X+1].
        outcome_next: Where an outcome leads, −1 for the end, shape [K].
        outcome_reward: What it pays, shape [d, K]; 0 for rewards that are known or noisy.
        entry_ptr: Entries of pair p, one per outcome of its state, are entry_ptr[p]:entry_ptr[p+1], shape [P+1].
        entry_outcome: Outcome of every entry, shape [E].
        entry_count: n(x,a,o), shape [E].
        pair_reward: Known rewards, and posterior means of noisy ones, shape [d, P].
        pair_noise: Standard deviation of the posterior of a noisy mean, shape [d, P]; 0 otherwise.
        prior_share: What the prior's mean m counts for in a noisy mean, v/τ², shape [d, P].
        prior_mean: m, shape [d].
        least_reward: Least reward seen, shape [d].
        noisy: Which objectives are noisy, shape [d].
        discount: γ, shape [d].
        initial: Shape [X].
        n_actions: |A|.
    """

    pair_state: Ints
    pair_action: Ints
    state_ptr: Ints
    outcome_ptr: Ints
    outcome_next: Ints
    outcome_reward: Floats
    entry_ptr: Ints
    entry_outcome: Ints
    entry_count: Floats
    pair_reward: Floats
    pair_noise: Floats
    prior_share: Floats
    prior_mean: Floats
    least_reward: Floats
    noisy: Bools
    discount: Floats
    initial: Floats
    n_actions: int

    @property
    def n_states(self) -> int:
        """|X|."""
        return int(self.initial.size)

    @property
    def n_objectives(self) -> int:
        """The number d of objectives."""
        return int(self.discount.size)

    @property
    def pair_index(self) -> Ints:
        """Place of every pair in a table [X, A] laid out flat, shape [P]."""
        return self.pair_state * self.n_actions + self.pair_action

    @property
    def entry_pair(self) -> Ints:
        """Pair of every entry, shape [E]."""
        return np.repeat(np.arange(self.pair_state.size), np.diff(self.entry_ptr))


def gather_outcomes(dataset: Dataset, *, known_rewards: Mapping[int, Floats] | None = None) -> Outcomes:
    """Outcomes of a log.

    Args:
        dataset: The log. Last rows of episodes that were cut off with an unknown next state are left out.
        known_rewards: By objective, its reward as a table [X, A], where it is a known rule on pairs.
    """
    known = dict(known_rewards or {})
    d, n_states, n_actions = dataset.n_objectives, dataset.n_states, dataset.n_actions
    rows = np.flatnonzero(dataset.terminated | (dataset.next_states >= 0))
    x, a, following = dataset.states[rows], dataset.actions[rows], dataset.next_states[rows]
    reward = dataset.rewards[rows]
    codes, tied = [], []
    for k in range(d):
        values, code = np.unique(reward[:, k], return_inverse=True)
        is_tied = k not in known and values.size <= MOST_VALUES
        tied.append(is_tied)
        codes.append(code if is_tied else np.zeros(rows.size, dtype=np.int64))
    noisy = np.array([not tied[k] and k not in known for k in range(d)])

    # outcomes of a state: distinct (where to, what it pays)
    key = np.column_stack([x, following, *codes])
    distinct, outcome_of_row = np.unique(key, axis=0, return_inverse=True)
    outcome_of_row = outcome_of_row.ravel()
    outcome_state, outcome_next = distinct[:, 0], distinct[:, 1]
    outcome_reward = np.zeros((d, distinct.shape[0]))
    for k in np.flatnonzero(tied).tolist():
        outcome_reward[k] = np.unique(reward[:, k])[distinct[:, 2 + k]]
    outcome_ptr = np.searchsorted(outcome_state, np.arange(n_states + 1))

    # every action of a state that was acted in is a pair, tried or not
    acted = np.flatnonzero(np.diff(outcome_ptr) > 0)
    pair_state = np.repeat(acted, n_actions)
    pair_action = np.tile(np.arange(n_actions), acted.size)
    place = np.full(n_states, -1)
    place[acted] = np.arange(acted.size)
    width = np.diff(outcome_ptr)[pair_state]
    entry_ptr = np.concatenate([[0], np.cumsum(width)])
    entry_outcome = np.arange(entry_ptr[-1]) - np.repeat(entry_ptr[:-1] - outcome_ptr[pair_state], width)
    pair_of_row = place[x] * n_actions + a
    entry_of_row = entry_ptr[pair_of_row] + outcome_of_row - outcome_ptr[x]
    entry_count = np.bincount(entry_of_row, minlength=entry_outcome.size).astype(np.float64)

    n_pairs = pair_state.size
    visits = np.bincount(pair_of_row, minlength=n_pairs).astype(np.float64)
    pair_reward, pair_noise, prior_share = (np.zeros((d, n_pairs)) for _ in range(3))
    prior_mean = np.zeros(d)
    for k, table in known.items():
        pair_reward[k] = np.asarray(table, dtype=np.float64)[pair_state, pair_action]
    for k in np.flatnonzero(noisy).tolist():
        total = np.bincount(pair_of_row, weights=reward[:, k], minlength=n_pairs)
        mean = total / np.maximum(visits, 1.0)
        tried = visits > 0
        freedom = max(rows.size - int(np.count_nonzero(tried)), 1)
        within = float(np.sum((reward[:, k] - mean[pair_of_row]) ** 2)) / freedom
        between = max(float(mean[tried].var(ddof=1)) if np.count_nonzero(tried) > 1 else 0.0, 1e-12)
        prior_mean[k] = mean[tried].mean()
        prior_share[k] = within / (within + visits * between)  # v/τ²; a pair never tried has the prior alone
        prior_share[k, ~tried] = 1.0
        pair_reward[k] = (1.0 - prior_share[k]) * mean + prior_share[k] * prior_mean[k]
        pair_noise[k] = np.sqrt(prior_share[k] * between)
    starts = dataset.states[dataset.episode_ptr[:-1]]
    return Outcomes(
        pair_state=frozen(pair_state, np.int64),
        pair_action=frozen(pair_action, np.int64),
        state_ptr=np.searchsorted(pair_state, np.arange(n_states + 1)).astype(np.int64),
        outcome_ptr=outcome_ptr.astype(np.int64),
        outcome_next=outcome_next.astype(np.int64),
        outcome_reward=outcome_reward,
        entry_ptr=entry_ptr.astype(np.int64),
        entry_outcome=entry_outcome.astype(np.int64),
        entry_count=entry_count,
        pair_reward=pair_reward,
        pair_noise=pair_noise,
        prior_share=prior_share,
        prior_mean=prior_mean,
        least_reward=reward.min(axis=0),
        noisy=noisy,
        discount=np.array([objective.discount for objective in dataset.objectives]),
        initial=np.bincount(starts, minlength=n_states) / dataset.n_episodes,
        n_actions=n_actions,
    )


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """A posterior over the processes that could have made a log.

    Attributes:
        outcomes: The log.
        neutral: Its neutral prior.
        prior: α_0 of every entry, shape [C, E]: one row per concentration of a hierarchical prior, else one.
        concentration: The concentrations, shape [C]; 1 for "support".
        weight: Posterior probability of each, shape [C].
        pessimistic_for: Objective that a pseudo-transition is bad for, or None.
        pessimism: Pseudo-transitions.
    """

    outcomes: Outcomes
    neutral: Neutral
    prior: Floats
    concentration: Floats
    weight: Floats
    pessimistic_for: int | None = None
    pessimism: float = 0.0

    @property
    def name(self) -> str:
        """In words."""
        if self.pessimistic_for is None:
            return self.neutral
        return f"{self.neutral}, pessimistic for objective {self.pessimistic_for}"


def posterior(
    outcomes: Outcomes,
    neutral: Neutral = "hierarchical",
    *,
    pessimistic_for: int | None = None,
    pessimism: float = 1.0,
    baseline_v: Floats | None = None,
    scale_concentration: float = 1.0,
) -> Posterior:
    """The posterior under a prior.

    Args:
        outcomes: The log.
        neutral: "support" or "hierarchical".
        pessimistic_for: Objective k to be pessimistic about, or None.
        pessimism: Pseudo-transitions to the outcome that is worst for k.
        baseline_v: v̂^{π_b} [d, X], which says what is worst; needed with ``pessimistic_for``.
        scale_concentration: Multiplies the hierarchical prior's concentrations, to see how much hangs on them.
    """
    check_choice("prior", neutral, NEUTRAL)
    o = outcomes
    width = np.diff(o.entry_ptr)
    if neutral == "support":
        prior = (1.0 / np.repeat(width, width))[None, :]
        concentration, weight = np.ones(1), np.ones(1)
    else:
        mean = _state_shares(o)
        concentration = np.array(CONCENTRATIONS)
        weight = _concentration_weights(o, mean, concentration)
        concentration = concentration * scale_concentration
        prior = concentration[:, None] * mean
    if pessimistic_for is None:
        return Posterior(outcomes=o, neutral=neutral, prior=prior, concentration=concentration, weight=weight)
    k = pessimistic_for
    if not 0 <= k < o.n_objectives:
        raise ParameterError(f"there is no objective {k} to be pessimistic about; there are {o.n_objectives}.")
    if baseline_v is None:
        raise ParameterError("a pessimistic prior needs the baseline's values, to know which outcome is worst.")
    worst = _worst_outcomes(o, k, baseline_v)
    extra = (o.entry_outcome == worst[o.pair_state[o.entry_pair]]) * pessimism
    return Posterior(
        outcomes=o,
        neutral=neutral,
        prior=prior + extra,
        concentration=concentration,
        weight=weight,
        pessimistic_for=k,
        pessimism=pessimism,
    )


def _state_shares(o: Outcomes) -> Floats:
    """Share of every entry's outcome among all that was seen of its state, shape [E]."""
    seen = np.bincount(o.entry_outcome, weights=o.entry_count, minlength=o.outcome_next.size)
    state = np.repeat(np.arange(o.n_states), np.diff(o.outcome_ptr))
    total = np.bincount(state, weights=seen, minlength=o.n_states)
    return np.asarray((seen / total[state])[o.entry_outcome])


def _concentration_weights(o: Outcomes, mean: Floats, concentration: Floats) -> Floats:
    """Posterior of the concentration on its grid, from a flat prior, shape [C].

    Π_p  Γ(c)/Γ(c+n_p) Π_o Γ(c m_o + n_po)/Γ(c m_o)          (Dirichlet–multinomial)
    """
    from scipy.special import gammaln

    seen = np.flatnonzero(o.entry_count > 0)
    visits = np.add.reduceat(o.entry_count, o.entry_ptr[:-1])
    visits = visits[visits > 0]
    log_likelihood = np.array(
        [
            np.sum(gammaln(c) - gammaln(c + visits))
            + np.sum(gammaln(c * mean[seen] + o.entry_count[seen]) - gammaln(c * mean[seen]))
            for c in concentration
        ]
    )
    weight = np.exp(log_likelihood - log_likelihood.max())
    return np.asarray(weight / weight.sum())


def _worst_outcomes(o: Outcomes, k: int, baseline_v: Floats) -> Ints:
    """For every state the outcome with the least r_k + γ_k v̂_k, shape [X]; −1 where nothing was seen."""
    after = np.where(o.outcome_next >= 0, baseline_v[k][np.maximum(o.outcome_next, 0)], 0.0)
    value = o.outcome_reward[k] + o.discount[k] * after
    state = np.repeat(np.arange(o.n_states), np.diff(o.outcome_ptr))
    order = np.lexsort((value, state))
    worst = np.full(o.n_states, -1)
    first = np.unique(state[order], return_index=True)
    worst[first[0]] = order[first[1]]
    return worst


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One process: transitions CSR [P, X] and rewards [d, P] of every pair."""

    transition: sparse.csr_array
    reward: Floats


def draw_process(posterior: Posterior, rng: np.random.Generator) -> Draw:
    """Draw a process from the posterior."""
    o = posterior.outcomes
    chosen = int(rng.choice(posterior.weight.size, p=posterior.weight))
    mass = rng.standard_gamma(posterior.prior[chosen] + o.entry_count)
    total = np.add.reduceat(mass, o.entry_ptr[:-1])
    empty = total <= 0.0  # gammas of tiny shapes may all underflow: then the likeliest entry has it all
    if np.any(empty):
        mass, total = _mended(mass, total, empty, posterior.prior[chosen], o)
    probability = mass / np.repeat(total, np.diff(o.entry_ptr))
    mean, noise = _reward_mean(posterior)
    if np.any(o.noisy):
        mean = mean + noise * rng.standard_normal(mean.shape)
    return _process(o, probability, mean)


def mean_process(posterior: Posterior) -> Draw:
    """The mean of the posterior (averaged over concentrations)."""
    o = posterior.outcomes
    shape = posterior.prior + o.entry_count  # [C, E]
    total = np.add.reduceat(shape, o.entry_ptr[:-1], axis=1)
    probability = posterior.weight @ (shape / np.repeat(total, np.diff(o.entry_ptr), axis=1))
    return _process(o, probability, _reward_mean(posterior)[0])


def _reward_mean(posterior: Posterior) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the rewards that don't go with outcomes, each [d, P]."""
    o, k = posterior.outcomes, posterior.pessimistic_for
    mean = o.pair_reward
    if k is not None and o.noisy[k] and posterior.pessimism > 0.0:
        mean = mean.copy()
        mean[k] += o.prior_share[k] * (o.least_reward[k] - o.prior_mean[k])
    return mean, o.pair_noise


def _process(o: Outcomes, probability: Floats, pair_reward: Floats) -> Draw:
    following = o.outcome_next[o.entry_outcome]
    stays = following >= 0
    transition = sparse.csr_array(
        (probability[stays], following[stays], np.append(0, np.cumsum(stays))[o.entry_ptr]),
        shape=(o.pair_state.size, o.n_states),
    )
    paid = probability * o.outcome_reward[:, o.entry_outcome]
    return Draw(transition=transition, reward=pair_reward + np.add.reduceat(paid, o.entry_ptr[:-1], axis=1))


def _mended(mass: Floats, total: Floats, empty: Bools, prior: Floats, o: Outcomes) -> tuple[Floats, Floats]:
    mass, total = mass.copy(), total.copy()
    for pair in np.flatnonzero(empty):
        entries = slice(o.entry_ptr[pair], o.entry_ptr[pair + 1])
        mass[entries] = prior[entries]
        total[pair] = prior[entries].sum()
    return mass, total


def returns_in(
    draw: Draw, outcomes: Outcomes, policies: Floats, *, guess: Floats | None = None
) -> tuple[Floats, Floats]:
    """J_k of every policy in a drawn process, shape [C, d], and the values [C, d, X] that they come from.

    Args:
        draw: The process.
        outcomes: What it is over.
        policies: Shape [C, X, A].
        guess: Values to start from, shape [C, d, X]; saves time.
    """
    o = outcomes
    weights = policies.reshape(policies.shape[0], -1)[:, o.pair_index]  # [C, P]
    values = np.zeros((policies.shape[0], o.n_objectives, o.n_states))
    for c, weight in enumerate(weights):
        rhs = np.array([np.bincount(o.pair_state, weights=weight * r, minlength=o.n_states) for r in draw.reward])
        for gamma in np.unique(o.discount):
            same = o.discount == gamma
            start = None if guess is None else guess[c, same]
            values[c, same], _ = linear.solve_values(
                o.state_ptr, weight, draw.transition, float(gamma), rhs[same], guess=start, tol=VALUE_TOL
            )
    return values @ o.initial, values


def drawn_gains(
    posterior: Posterior, policies: Floats, baseline: Floats, *, draws: int, seed: int, stream: int = 0
) -> Floats:
    """J_k(π) − J_k(π_b) of every policy in every drawn process, shape [draws, C, d].

    Draw m is made by a generator of its own, seeded with (seed, stream, m): the same on any number of cores.

    Args:
        posterior: What to draw from.
        policies: Shape [C, X, A].
        baseline: π_b, shape [X, A].
        draws: M.
        seed: Seed.
        stream: Tells priors apart.
    """
    everyone = np.concatenate([baseline[None], policies])
    posterior = only_played(posterior, np.any(everyone > 0.0, axis=0))
    gains = np.empty((draws, policies.shape[0], posterior.outcomes.n_objectives))
    guess: Floats | None = returns_in(mean_process(posterior), posterior.outcomes, everyone)[1]
    for m in range(draws):
        draw = draw_process(posterior, np.random.default_rng([seed, stream, m]))
        returns, _ = returns_in(draw, posterior.outcomes, everyone, guess=guess)
        gains[m] = returns[1:] - returns[0]
    return gains


def only_played(posterior: Posterior, played: Bools) -> Posterior:
    """The posterior of the pairs that some policy plays ([X, A]): others matter to no value, and need not be drawn."""
    o = posterior.outcomes
    keep = played.reshape(-1)[o.pair_index]
    if np.all(keep):
        return posterior
    width = np.diff(o.entry_ptr)
    entries = np.repeat(keep, width)
    pair_state = o.pair_state[keep]
    return replace(
        posterior,
        prior=posterior.prior[:, entries],
        outcomes=replace(
            o,
            pair_state=pair_state,
            pair_action=o.pair_action[keep],
            state_ptr=np.searchsorted(pair_state, np.arange(o.n_states + 1)).astype(np.int64),
            entry_ptr=np.concatenate([[0], np.cumsum(width[keep])]),
            entry_outcome=o.entry_outcome[entries],
            entry_count=o.entry_count[entries],
            pair_reward=o.pair_reward[:, keep],
            pair_noise=o.pair_noise[:, keep],
            prior_share=o.prior_share[:, keep],
        ),
    )


def linearised_gains(posterior: Posterior, policy: Floats, baseline: Floats) -> tuple[Floats, Floats]:
    """Mean [d] and covariance [d, d] of J(π) − J(π_b), to first order around the posterior mean: one pass, no draws.

        J_k(π) − J_k(π_b) ≈ Σ_{pairs, o} p(o) D_k(o),   D_k(o) = ν^π π (ρ_k(o) + γ V_k^π(o)) − ν^b π_b (ρ_k(o) + γ V_k^b(o))

    and the covariance of Dirichlet rows, (Σ p D_k D_l − Σ p D_k Σ p D_l) / (α + 1), with concentrations averaged over.
    """
    o = posterior.outcomes
    mean = mean_process(posterior)
    pair_of = o.entry_pair
    sides = []
    returns = []
    for table in (policy, baseline):
        j, values = returns_in(mean, o, table[None])
        weight = table.reshape(-1)[o.pair_index]
        per_objective = np.empty((o.n_objectives, o.entry_outcome.size))
        noise_weight = np.empty((o.n_objectives, o.pair_state.size))
        visits: dict[float, Floats] = {}
        for k, gamma in enumerate(o.discount):
            if gamma not in visits:
                visits[gamma] = linear.solve_occupancy(o.state_ptr, weight, mean.transition, float(gamma), o.initial)
            played = visits[gamma][o.pair_state] * weight
            following = o.outcome_next[o.entry_outcome]
            after = np.where(following >= 0, values[0, k][np.maximum(following, 0)], 0.0)
            per_objective[k] = played[pair_of] * (o.outcome_reward[k][o.entry_outcome] + gamma * after)
            noise_weight[k] = played
        sides.append((per_objective, noise_weight))
        returns.append(j[0])
    coefficient = sides[0][0] - sides[1][0]  # [d, E]
    d = o.n_objectives
    covariance = np.zeros((d, d))
    for row, weight_c in zip(posterior.prior, posterior.weight, strict=True):
        if weight_c < 1e-6:
            continue
        shape = row + o.entry_count
        total = np.add.reduceat(shape, o.entry_ptr[:-1])
        p = shape / total[pair_of]
        first = np.add.reduceat(p * coefficient, o.entry_ptr[:-1], axis=1)  # [d, P]
        scaled = np.sqrt(p / (total[pair_of] + 1.0)) * coefficient
        covariance += weight_c * (scaled @ scaled.T - (first / (total + 1.0)) @ first.T)
    noise = _reward_mean(posterior)[1] * (sides[0][1] - sides[1][1])
    covariance += np.diag(np.sum(noise**2, axis=1))
    return returns[0] - returns[1], covariance
