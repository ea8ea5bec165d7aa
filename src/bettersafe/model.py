"""Model estimation from counts: the estimated MDP, its error function, and the baseline.

    p̂(x'|x,a) = n(x,a,x') / n(x,a)          termination is the missing mass
    r̂_k(x,a)  = mean logged reward of the pair, or a table of known rewards

Pairs never tried have no row; the rule ``unseen`` sets their value:

    "baseline"  the value of the state under the baseline's tried actions (the default)
    "end"       the process ends there with reward 0 (as in the published code; optimistic if rewards are negative)
    "worst"     the lowest return that rewards in the observed range allow

The rule also values what the baseline itself does there. "worst" therefore lowers the baseline's own return, and makes a policy
that only avoids such states look better than it is.

With a horizon H, returns are those of the first H steps (`model_return`). The MDP then has the discounts with which methods
optimise (`bettersafe.mdp.horizon`), and the model those of the objectives.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe.errors import (
    DataError,
    ParameterError,
    PolicyError,
    as_numbers,
    check_choice,
    check_integer,
    check_log,
    check_probability,
    check_type,
)
from bettersafe.logs.counts import Counts, count
from bettersafe.logs.dataset import label_array
from bettersafe.mdp.choices import ERROR_KINDS, UNSEEN_RULES, VOCABULARIES, ErrorKind, Unseen, Vocabulary
from bettersafe.mdp.ends import check_pairs_end
from bettersafe.mdp.horizon import check_horizon, discounted_steps, geometric_discount, values_to_go
from bettersafe.mdp.mdp import MDP, by_state
from bettersafe.mdp.policy import (
    ROUNDED,
    check_policy,
    distributions,
    policy_table,
    rounding_note,
    sum_tolerance,
)
from bettersafe.mdp.values import expected_return, weighted_values
from bettersafe.typing import Bools, Floats, Ints, Labels, Log, check_arrays, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scipy import sparse

    from bettersafe.logs.dataset import Objective


__all__ = ["Model", "estimate_baseline", "estimate_model", "logged_baseline", "model_return"]

BLOCK = 1 << 16
"""Pairs per block, to avoid a copy of all outcomes."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """MDP estimated from data, with its error function.

    Attributes:
        mdp: Estimated MDP over visited pairs.
        counts: Visits n(x,a), shape [P].
        error: e(x,a), shape [P]; ``inf`` freezes the pair.
        error_kind: "q" or "l1" (see `error_bound_q`, `error_bound_l1`).
        delta: δ of the error function.
        unseen: Rule for pairs never tried.
        state_labels: User's names of the states, shape [X].
        action_labels: User's names of the actions, shape [A].
        objectives: Names of the objectives, length d.
        horizon: Number of steps H of a return; None for no limit.
        discount: γ_k of a return, shape [d]; with a horizon, the MDP has the discounts of `geometric_discount`.
        unseen_reward: Reward of a pair never tried, shape [d]; zero except for derived objectives.

    Examples:
        >>> model.mdp.n_pairs, model.objectives
        (18, ('r0', 'r1'))
        >>> bool(model.error.max() < 0.7)  # no pair is known worse than this
        True
    """

    mdp: MDP
    counts: Ints
    error: Floats
    error_kind: str
    delta: float
    unseen: Unseen
    state_labels: Labels
    action_labels: Labels
    objectives: tuple[str, ...]
    horizon: int | None = None
    discount: Floats = None  # type: ignore[assignment]  # __post_init__ fills it in
    unseen_reward: Floats = None  # type: ignore[assignment]  # __post_init__ fills it in

    def __post_init__(self) -> None:
        check_type("mdp", self.mdp, MDP)
        check_horizon(self.horizon)
        paid = np.zeros(self.mdp.n_objectives) if self.unseen_reward is None else self.unseen_reward
        object.__setattr__(self, "unseen_reward", frozen(paid, np.float64, name="unseen_reward"))
        object.__setattr__(self, "discount", self.mdp.discount if self.discount is None else self.discount)
        check_arrays(self)
        if self.error.shape != (self.mdp.n_pairs,) or self.counts.shape != (self.mdp.n_pairs,):
            raise ParameterError(
                f"error and counts must have shape [{self.mdp.n_pairs}], one entry per pair; got {list(self.error.shape)}"
                f" and {list(self.counts.shape)}."
            )
        for name in ("state_labels", "action_labels"):
            object.__setattr__(self, name, label_array(getattr(self, name), name=name))


def error_bound_q(counts: Ints, n_states: int, n_actions: int, n_objectives: int, delta: float) -> Floats:
    """Width e(x,a) of the plausible interval around q^{π_b}, for all pairs and objectives at once.

        e(x,a) = √( 2/n(x,a) · ln( 2|X||A|d / δ ) )        (Soft-SPIBB, Theorem 1, with a union over k)

    Args:
        counts: Visits n(x,a) of every pair, shape [P].
        n_states: |X|.
        n_actions: |A|.
        n_objectives: d; 1 reproduces the published code, which has no union over objectives.
        delta: δ.

    Returns:
        e, shape [P]; ``inf`` for a pair never tried (the program freezes it; do not multiply by it).
    """
    check_probability("delta", delta)
    log_term = np.log(2.0 * n_states * n_actions * n_objectives / delta)
    with np.errstate(divide="ignore"):  # n = 0 gives inf, on purpose
        return np.asarray(np.sqrt(2.0 * log_term / counts))


def error_bound_l1(
    counts: Ints,
    n_states: int,
    n_actions: int,
    n_objectives: int,
    delta: float,
    *,
    support: int | None = None,
) -> Floats:
    """Radius e(x,a) of the L1 ball around p̂(·|x,a) that contains p* for all pairs at once (paper, Appendix B.1).

        e(x,a) = √( 2/n · ln( 2|X||A|2^S / δ' ) ),   δ' = δ / (1 + d·2^{−S}),   capped at 2

    S is |X|, or ``support`` if no pair is known to have more successors (termination counts as one).
    Computed as a sum of logs, because 2^S overflows.
    """
    check_probability("delta", delta)
    size = n_states if support is None else support
    if size < 1:
        raise ParameterError(f"support must be at least 1 successor; got {support}.")
    log_term = (
        np.log(2.0 * n_states * n_actions / delta) + size * np.log(2.0) + np.log1p(n_objectives * np.exp2(-float(size)))
    )
    with np.errstate(divide="ignore"):
        width = np.sqrt(2.0 * log_term / counts)
    return np.asarray(np.where(counts > 0, np.minimum(width, 2.0), np.inf))  # two distributions differ by at most 2


def return_lower_bound(reward_min: Floats, steps: Floats) -> Floats:
    """Lowest return for rewards ≥ reward_min, shape [d]: r_min times the discounted steps [d] if r_min < 0, else r_min."""
    return np.multiply(reward_min, steps, out=np.array(reward_min, dtype=np.float64), where=reward_min < 0.0)


def estimate_model(
    data: Log | Counts,
    *,
    delta: float = 0.1,
    error_kind: ErrorKind = "q",
    support: int | None = None,
    unseen: Unseen | None = None,
    baseline: Floats | None = None,
    rewards: npt.ArrayLike | None = None,
    error_objectives: int | None = None,
    vocabulary: Vocabulary = "seen",
    horizon: int | None = None,
) -> Model:
    """Estimate an MDP and its error function.

    Args:
        data: Log, or its counts.
        delta: δ of the error function.
        error_kind: "q" or "l1".
        support: For "l1", the largest number of successors of a pair; None if not known.
        unseen: Rule for pairs never tried: "baseline", "end" or "worst"; default: "baseline", with known rewards "end".
        baseline: π_b [X, A], for the rule "baseline"; default: `estimate_baseline`.
        rewards: Known rewards [d, X, A], as in the published gridworld study; estimated from the data if None.
        error_objectives: d in the error function; the number of objectives if None (1 reproduces the published code).
        vocabulary: |X| and |A| in the error function: "seen" for the states and actions in the data, so that declaring others
            changes no policy; "declared" for all labels, as in the published code.
        horizon: Number of steps H of a return; None for no limit.

    Raises:
        DataError: An objective has discount 1, there is no horizon, and some episode did not end.

    Examples:
        >>> pessimistic = bettersafe.estimate_model(log, delta=0.05, unseen="worst")
        >>> pessimistic.mdp.n_states, pessimistic.delta
        (6, 0.05)
    """
    from scipy import sparse

    if not isinstance(data, Counts):
        check_log("data", data)
    unseen = ("baseline" if rewards is None else "end") if unseen is None else unseen
    _check_asked(error_kind, unseen, vocabulary, support, error_objectives)
    counts = data if isinstance(data, Counts) else count(data)
    sizes = counts.sizes
    n_states, n_actions, n_objectives = sizes.n_states, sizes.n_actions, sizes.n_objectives
    baseline = None if baseline is None else policy_table(baseline, n_states, n_actions, name="baseline")
    check_horizon(horizon)
    discount = np.array([objective.discount for objective in counts.objectives])
    if horizon is None:
        check_all_ended(counts.objectives, counts.n_truncated, counts.n_episodes)
    outcomes = sparse.csr_array(
        (_shares(counts), counts.outcome_state, counts.outcome_ptr), shape=(sizes.n_pairs, n_states)
    )
    if rewards is None:
        pair_state, pair_action = counts.pair_state, counts.pair_action
        visits, transition = counts.pair_count, outcomes
        reward = counts.reward_sum / visits
        lowest = counts.reward_min
        unseen_value = np.repeat(counts.unseen_reward[:, None], n_states, axis=1)
    else:
        reward = _known_rewards(rewards, counts, unseen)
        pair_state = np.repeat(np.arange(n_states), n_actions)
        pair_action = np.tile(np.arange(n_actions), n_states)
        visits, transition = _of_every_pair(counts, outcomes)
        lowest = reward.min(axis=1)
        unseen_value = np.zeros((n_objectives, n_states))
    if unseen == "worst":
        worst = return_lower_bound(lowest, _most_steps(counts, discount, horizon))
        unseen_value = np.repeat(worst[:, None], n_states, axis=1)
    mdp = MDP(
        n_states=n_states,
        n_actions=n_actions,
        pair_state=pair_state,
        pair_action=pair_action,
        transition=transition,
        reward=reward,
        discount=discount if horizon is None else geometric_discount(discount, horizon),
        initial=counts.initial_count / counts.initial_count.sum(),
        unseen_value=unseen_value,
    )
    if unseen == "baseline" and mdp.n_pairs < n_states * n_actions:
        mdp = _with_baseline_value(mdp, visits, baseline, counts.state_labels)
    size = _seen_sizes(mdp, visits) if vocabulary == "seen" else (n_states, n_actions)
    d_in_error = n_objectives if error_objectives is None else error_objectives
    bound = error_bound_q if error_kind == "q" else partial(error_bound_l1, support=support)
    return Model(
        mdp=mdp,
        counts=frozen(visits, np.int64),
        error=frozen(bound(visits, *size, d_in_error, delta), np.float64),
        error_kind=error_kind,
        delta=delta,
        unseen=unseen,
        state_labels=counts.state_labels,
        action_labels=counts.action_labels,
        objectives=tuple(objective.name for objective in counts.objectives),
        horizon=horizon,
        discount=frozen(discount, np.float64),
        unseen_reward=counts.unseen_reward,
    )


def _check_asked(
    error_kind: str, unseen: str, vocabulary: str, support: int | None, error_objectives: int | None
) -> None:
    """Raise an error unless these are options of `estimate_model`."""
    check_integer("support", support, least=1, optional=True)
    check_integer("error_objectives", error_objectives, least=1, optional=True)
    check_choice("error_kind", error_kind, ERROR_KINDS)
    check_choice("unseen", unseen, UNSEEN_RULES)
    check_choice("vocabulary", vocabulary, VOCABULARIES)


def _most_steps(counts: Counts, discount: Floats, horizon: int | None) -> Floats:
    """Discounted steps of a return, shape [d]; without a limit, at discount 1, those of the longest episode in the log."""
    steps = discounted_steps(discount, horizon)
    return np.where(np.isfinite(steps), steps, counts.length_max)


def _known_rewards(rewards: npt.ArrayLike, counts: Counts, unseen: Unseen) -> Floats:
    """Known rewards of all pairs, shape [d, X·A]. Raises ParameterError for another shape or another rule than "end"."""
    sizes = counts.sizes
    table = as_numbers("rewards", rewards)
    if table.shape != (sizes.n_objectives, sizes.n_states, sizes.n_actions):
        raise ParameterError(
            f"rewards must have shape [{sizes.n_objectives}, {sizes.n_states}, {sizes.n_actions}]; got {table.shape}."
        )
    if unseen != "end":
        raise ParameterError(f'known rewards need unseen="end"; got {unseen!r}.')
    return table.reshape(sizes.n_objectives, -1)


def _of_every_pair(counts: Counts, outcomes: sparse.csr_array) -> tuple[Ints, sparse.csr_array]:
    """Visits and transitions of all pairs, for known rewards; untried pairs terminate and are frozen (n = 0)."""
    from scipy import sparse

    sizes = counts.sizes
    place = counts.pair_state * sizes.n_actions + counts.pair_action  # sorted: only the row pointers change
    visits, ptr = (np.zeros(sizes.n_states * sizes.n_actions + more, dtype=np.int64) for more in (0, 1))
    visits[place] = counts.pair_count
    ptr[place + 1] = np.diff(outcomes.indptr)
    np.cumsum(ptr, out=ptr)
    return visits, sparse.csr_array((outcomes.data, outcomes.indices, ptr), shape=(visits.size, sizes.n_states))


def check_all_ended(objectives: Sequence[Objective], n_truncated: int, n_episodes: int) -> None:
    """Raise DataError if an objective has discount 1 and some episode did not end."""
    whole = [objective.title for objective in objectives if objective.discount == 1.0]
    if whole and n_truncated:
        raise DataError(
            f"discount 1 ({', '.join(whole[:3])}) needs episodes that end, and {n_truncated:,} of {n_episodes:,} are cut off before"
            " the end. Use a discount below 1, or set `horizon` for returns up to a step.",
            setting="discount",
        )


def _shares(counts: Counts) -> Floats:
    """n(x,a,x') / n(x,a) of every outcome, shape [M]; computed in blocks of pairs, to save memory."""
    shares = counts.outcome_count.astype(np.float64)
    for begin in range(0, counts.pair_count.size, BLOCK):
        ptr = counts.outcome_ptr[begin : begin + BLOCK + 1]
        shares[ptr[0] : ptr[-1]] /= np.repeat(counts.pair_count[begin : begin + BLOCK], np.diff(ptr))
    return shares


def _with_baseline_value(mdp: MDP, visits: Ints, baseline: Floats | None, state_labels: Labels) -> MDP:
    """Add v^{π_b}(x) to the value of unseen pairs, with the baseline (default: estimated from the visits [P]) on tried pairs only.

    The value before is the reward of an unseen pair, zero except for derived objectives. It stays alone in a state in which the
    baseline plays no tried action.
    """
    played = visits.astype(np.float64)
    if baseline is not None:
        played = check_policy(baseline, mdp.n_states, mdp.n_actions, name="baseline").take(mdp.pair_index)
    mass = by_state(mdp, played)
    weight = played / np.where(mass > 0.0, mass, 1.0).take(mdp.pair_state)
    check_pairs_end(mdp, weight, name="the baseline, in what was tried,", state_labels=state_labels)
    v = weighted_values(mdp, weight, np.where(mass > 0.0, 0.0, 1.0))
    return replace(mdp, unseen_value=mdp.unseen_value + np.where(mass > 0.0, v, 0.0))


def _seen_sizes(mdp: MDP, visits: Ints) -> tuple[int, int]:
    """Number of states that occur in the data, as a state or as a successor, and of actions; ``visits`` has shape [P]."""
    tried = visits > 0
    states, actions = np.zeros(mdp.n_states, dtype=bool), np.zeros(mdp.n_actions, dtype=bool)
    states[mdp.pair_state[tried]] = True
    states[mdp.transition.indices] = True  # pairs that were not tried have no successors
    actions[mdp.pair_action[tried]] = True
    return int(states.sum()), int(actions.sum())


def _on_tried(mdp: MDP, baseline: Floats) -> tuple[Floats, Bools]:
    """The baseline conditioned on tried pairs, shape [X, A], and whether it plays one, shape [X]; if not, it is not changed."""
    tried = np.zeros((mdp.n_states, mdp.n_actions))
    tried[mdp.pair_state, mdp.pair_action] = baseline[mdp.pair_state, mdp.pair_action]
    mass = tried.sum(axis=1, keepdims=True)
    return np.where(mass > 0.0, tried / np.where(mass > 0.0, mass, 1.0), baseline), mass[:, 0] > 0.0


def model_return(model: Model, policy: npt.ArrayLike, baseline: npt.ArrayLike) -> Floats:
    """J_k(π) in the model, up to its horizon if it has one, shape [d].

    Args:
        model: Estimated model.
        policy: π, shape [X, A].
        baseline: π_b, shape [X, A]; used with a horizon and unseen="baseline".

    Examples:
        >>> from bettersafe.model import model_return
        >>> first = bettersafe.estimate_model(log, horizon=1)
        >>> bool((model_return(first, baseline, baseline) < model_return(model, baseline, baseline)).all())
        True
    """
    check_type("model", model, Model)
    mdp = model.mdp
    table = distributions(policy, mdp.n_states, mdp.n_actions)
    base = distributions(baseline, mdp.n_states, mdp.n_actions, name="baseline")
    if model.horizon is None:
        return expected_return(mdp, table)
    v, _ = deque(steps_to_go(model, table, base), maxlen=1).pop()
    return np.asarray(v @ mdp.initial)


def steps_to_go(model: Model, policy: Floats, baseline: Floats) -> Iterator[tuple[Floats, Floats]]:
    """v_k,h of ``policy`` [X, A], and the value of a pair without data, for h = 1, …, H steps to go, each of shape [d, X].

    The rules for pairs without data are those of the model for h steps: "end" pays once, "worst" pays the lowest reward in each
    of h steps, "baseline" is the baseline's value with h steps to go.
    """
    mdp, horizon, gamma = model.mdp, model.horizon, model.discount
    assert horizon is not None
    own, worths = mdp.unseen_value, None
    if model.unseen == "baseline":
        conditional, known = _on_tried(mdp, baseline)
        paid = model.unseen_reward[:, None]
        worths = (np.where(known, v + paid, own) for v, _ in values_to_go(mdp, conditional, horizon, discount=gamma))
    elif model.unseen == "worst":
        shares = (discounted_steps(gamma, h) / discounted_steps(gamma, horizon) for h in range(1, horizon + 1))
        worths = (np.where(own < 0.0, own * share[:, None], own) for share in shares)
    return values_to_go(mdp, policy, horizon, discount=gamma, unseen=worths)


def estimate_baseline(counts: Counts) -> Floats:
    """π̂_b(a|x) = n(x,a)/n(x), shape [X, A] (Simão et al. 2020); uniform in states without a logged action.

    Args:
        counts: Statistics of the log.

    Examples:
        >>> estimated = bettersafe.estimate_baseline(counts)
        >>> bool(abs(estimated - baseline).max() < 0.05)
        True
    """
    check_type("counts", counts, Counts)
    sizes = counts.sizes
    table = np.zeros((sizes.n_states, sizes.n_actions))
    table[counts.pair_state, counts.pair_action] = counts.pair_count
    total = table.sum(axis=1, keepdims=True)
    table /= np.maximum(total, 1.0)
    table[total[:, 0] == 0.0] = 1.0 / sizes.n_actions
    return check_policy(table, *table.shape, name="estimated baseline", tol=1e-9)


def logged_baseline(counts: Counts) -> Floats:
    """π_b [X, A] from the logged probabilities of the pairs.

    Rounded probabilities are normalised (`bettersafe.mdp.policy.sum_tolerance`). If those of a state leave more than that to
    actions never logged there, these share it equally; their probabilities are not known, and no method changes them within a
    budget. States without a logged action are uniform.

    Args:
        counts: Statistics of a log that has the baseline's probabilities.

    Raises:
        PolicyError: If the probabilities of a state sum to more than 1, or to less although every action was logged there.

    Examples:
        >>> bool(abs(bettersafe.logged_baseline(counts) - baseline).max() < 1e-9)
        True
    """
    return noted_logged_baseline(counts)[0]


def noted_logged_baseline(counts: Counts) -> tuple[Floats, tuple[str, ...]]:
    """`logged_baseline`, with notes on what was rounded or is not known."""
    check_type("counts", counts, Counts)
    if counts.baseline_prob is None:
        raise PolicyError("the data has no column with the baseline's probability; name it with `baseline_prob`.")
    n_states, n_actions = counts.n_states, counts.n_actions
    policy = np.zeros((n_states, n_actions))
    logged = np.zeros((n_states, n_actions), dtype=bool)
    policy[counts.pair_state, counts.pair_action] = counts.baseline_prob
    logged[counts.pair_state, counts.pair_action] = True
    total = policy.sum(axis=1)
    left = 1.0 - total
    n_unlogged = n_actions - logged.sum(axis=1)
    tol = sum_tolerance(n_actions)
    acted = n_unlogged < n_actions
    bad = np.flatnonzero((left < -tol) | ((n_unlogged == 0) & (left > tol)))
    if bad.size:
        x = int(bad[0])
        raise PolicyError(
            f"the logged baseline probabilities of state {counts.state_labels[x]} sum to {total[x]:.9g}"
            f" over {int(logged[x].sum())} of {n_actions} actions{_and_more(bad.size, 'states')}; they must sum to 1 over all actions."
            " Correct the column, give the baseline as a file if it plays actions that the log never has, or set `baseline` to"
            " estimate."
        )
    spread = acted & (left > tol)
    share = np.where(spread | ~acted, left / np.maximum(n_unlogged, 1), 0.0)
    np.copyto(policy, share[:, None], where=~logged)
    notes = rounding_note("logged with the data", np.where(spread, 1.0, total)[acted])
    if spread.any():
        x = int(np.argmax(np.where(spread, left, 0.0)))
        notes += (
            f"in {int(spread.sum()):,} of {n_states:,} states the logged probabilities leave some to actions that were never logged"
            f" there, at most {100.0 * left[x]:.2g} % in state {counts.state_labels[x]!s}: these actions share it equally. Give the"
            " baseline as a file if it is known",
        )
    policy = check_policy(policy, n_states, n_actions, name="logged baseline", state_labels=counts.state_labels)
    return policy, (*notes, *unacted_note(counts))


def unacted_note(counts: Counts) -> tuple[str, ...]:
    """Note on states in which no action was logged, if the log is all that is known of the baseline."""
    n = counts.n_states - np.unique(counts.pair_state).size
    if not n:
        return ()
    return (
        f"in {n:,} of {counts.n_states:,} states no action was logged: the baseline is not known there, and the policy takes all"
        " actions equally often",
    )


def check_logged_baseline(counts: Counts, baseline: Floats) -> None:
    """Raise PolicyError if ``baseline`` differs from the logged probabilities, or gives a logged action probability 0.

    Both may have been rounded, and the baseline normalised.
    """
    given = baseline[counts.pair_state, counts.pair_action]
    if counts.baseline_prob is not None:
        tol = 2.0 * ROUNDED + sum_tolerance(counts.n_actions)
        bad = np.flatnonzero(~(np.abs(counts.baseline_prob - given) <= tol))
        if bad.size:
            p = int(bad[0])
            raise PolicyError(
                f"the logged probability of action {_name(counts.action_labels, counts.pair_action[p])} in state"
                f" {_name(counts.state_labels, counts.pair_state[p])} is {counts.baseline_prob[p]:.6g}, but the given baseline says"
                f" {given[p]:.6g}{_and_more(bad.size)}. Give the baseline that made the data, or set `baseline` to logged."
            )
    impossible = np.flatnonzero(given <= 0.0)
    if impossible.size:
        p = int(impossible[0])
        raise PolicyError(
            f"the baseline never plays action {_name(counts.action_labels, counts.pair_action[p])} in state"
            f" {_name(counts.state_labels, counts.pair_state[p])}, yet the data has it {int(counts.pair_count[p])} times"
            f"{_and_more(impossible.size)}. Correct the baseline, or set `baseline` to estimate."
        )


def _name(labels: Sequence[object] | Labels, index: int) -> str:
    return repr(str(labels[index]))


def _and_more(n: int, what: str = "pairs") -> str:
    return f" (and {n - 1} more {what} like it)" if n > 1 else ""
