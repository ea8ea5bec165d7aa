"""Models of a log for making candidates: the posterior mean, the frequencies of a part of the log, and one-step uncertainty."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.posterior.draws import mean_process
from bettersafe.posterior.events import event_effects, rates_of
from bettersafe.posterior.outcomes import Outcomes
from bettersafe.posterior.rewards import OWN_VISITS
from bettersafe.typing import frozen

if TYPE_CHECKING:
    from bettersafe.mdp.mdp import MDP
    from bettersafe.model import Model
    from bettersafe.posterior.linearised_counts import CountedOutcomes, CountedPosterior
    from bettersafe.posterior.priors import Posterior
    from bettersafe.typing import Bools, Floats, Ints


def mean_model(posterior: Posterior, model: Model) -> Model:
    """The model with the posterior means of transitions and rewards in its pairs."""
    from scipy import sparse

    drawn, mdp = mean_process(posterior), model.mdp
    place, there = _places(posterior.outcomes, mdp)
    keep = sparse.diags_array(np.where(there, 0.0, 1.0))
    take = sparse.csr_array(
        (np.ones(np.count_nonzero(there)), (np.flatnonzero(there), place[there])),
        shape=(mdp.n_pairs, posterior.outcomes.pair_index.size),
    )
    return replace(
        model,
        mdp=replace(
            mdp,
            transition=sparse.csr_array(take @ drawn.transition + keep @ mdp.transition),
            reward=np.where(there, drawn.reward[:, place], mdp.reward),
        ),
    )


def with_events(model: Model, posterior: Posterior | CountedPosterior) -> Model:
    """The model with the declared events at their mean rates."""
    from scipy import sparse

    if not posterior.rates:
        return model
    mdp, events = model.mdp, posterior.outcomes.events
    onward, cost = event_effects(events, [rate.mean for rate in posterior.rates], mdp.pair_index, mdp.n_objectives)
    return replace(
        model,
        mdp=replace(
            mdp,
            transition=sparse.csr_array(sparse.diags_array(onward) @ mdp.transition),
            reward=frozen(onward * mdp.reward + cost, np.float64),
        ),
    )


def _places(outcomes: Outcomes | CountedOutcomes, mdp: MDP) -> tuple[Ints, Bools]:
    """Place of every pair of ``mdp`` among those of ``outcomes``, shape [P], and whether it is there: a state without data has no pairs."""
    place = np.minimum(np.searchsorted(outcomes.pair_index, mdp.pair_index), outcomes.pair_index.size - 1)
    return place, np.asarray(outcomes.pair_index[place] == mdp.pair_index)


def frequency_model(outcomes: Outcomes, model: Model, baseline_v: Floats) -> Model:
    """Model of the frequencies in ``outcomes``, a part of the log of ``model``, with the settings of that model.

    A pair without data in the part may have data in the log. If unseen pairs have the baseline's value, it is v^{π_b} of the log,
    ``baseline_v`` [d, X]; the model has it only if it has unseen pairs itself.
    """
    from scipy import sparse

    o = outcomes
    visits = o.visits
    pairs = np.flatnonzero(visits > 0.0)
    stays = o.outcome_next[o.count_outcome] >= 0
    transition = sparse.csr_array(
        (
            (o.count / visits[o.count_pair])[stays],
            (o.count_pair[stays], o.outcome_next[o.count_outcome][stays]),
        ),
        shape=(visits.size, o.n_states),
    )[pairs]
    transition.sum_duplicates()
    paid = np.array(
        [np.bincount(o.count_pair, o.count * row[o.count_outcome], visits.size) for row in o.outcome_reward]
    )
    reward = paid[:, pairs] / visits[pairs] + sum(each.mean[:, pairs] * each.asked[:, None] for each in o.moments)
    full = np.zeros(model.mdp.n_states * model.mdp.n_actions)
    full[model.mdp.pair_index] = model.counts
    width = np.full(full.size, np.inf)
    width[model.mdp.pair_index] = model.error
    # e(x,a) is proportional to 1/√n
    error = width[o.pair_index[pairs]] * np.sqrt(full[o.pair_index[pairs]] / visits[pairs])
    return replace(
        model,
        mdp=replace(
            model.mdp,
            pair_state=o.pair_state[pairs],
            pair_action=o.pair_action[pairs],
            transition=sparse.csr_array(transition),
            reward=frozen(reward + o.known_reward[:, pairs], np.float64),
            initial=o.initial,
            unseen_value=(
                model.unseen_reward[:, None] + baseline_v if model.unseen == "baseline" else model.mdp.unseen_value
            ),
        ),
        counts=frozen(np.ceil(visits[pairs]), np.int64),
        error=frozen(error, np.float64),
    )


def one_step_sd(outcomes: Outcomes | CountedOutcomes, mdp: MDP, baseline_v: Floats) -> Floats:
    """Standard deviation of r_k(x,a) + γ_k Σ p(x'|x,a) v_k(x') for the pairs of ``mdp``, shape [d, P].

        u² = s² / n + variance of the mean reward + variance by declared events

    s² is the variance of ρ_k + γ_k v_k over the outcomes of a visit. An event with cost c_k adds Var(q) c_k², and Var(q) (c_k − v_k)² if
    it ends the episode.

    s² is shrunk from the pair's own to that of the log, which it approaches in pairs with few visits.

    Args:
        outcomes: Outcomes of the log.
        mdp: Estimated MDP of the same log.
        baseline_v: v^{π_b}, shape [d, X].
    """
    visits, first, second = _moments(outcomes, mdp, baseline_v)
    inside = np.maximum(second - first**2, 0.0) * visits
    pooled = inside.sum(axis=1, keepdims=True) / max(float(visits.sum()), 1.0)
    spread = (OWN_VISITS * pooled + inside) / (OWN_VISITS + visits)
    place, there = _places(outcomes, mdp)
    noise = np.where(there, outcomes.pair_noise[:, place], 0.0) ** 2
    rates = rates_of(outcomes.events, outcomes.pair_index, outcomes.visits)
    for each, rate in zip(outcomes.events, rates, strict=True):
        lost = each.reward[:, None] - (baseline_v[:, mdp.pair_state] if each.event.ends else 0.0)
        noise += (rate.sd * lost * each.applies[mdp.pair_index]) ** 2
    return np.asarray(np.sqrt(spread / np.maximum(visits, 1.0) + noise))


def _moments(outcomes: Outcomes | CountedOutcomes, mdp: MDP, v: Floats) -> tuple[Floats, Floats, Floats]:
    """Visits [P], and mean and mean square of ρ_k + γ_k v_k over the outcomes of a pair, each of shape [d, P]."""
    from scipy import sparse

    gamma = mdp.discount[:, None]
    if isinstance(outcomes, Outcomes):
        o = outcomes
        after = np.where(o.outcome_next >= 0, v[:, np.maximum(o.outcome_next, 0)], 0.0)
        value = (o.outcome_reward + gamma * after)[:, o.count_outcome]
        place, there = _places(o, mdp)
        size = np.maximum(o.visits, 1.0)
        first, second = (
            np.array([np.bincount(o.count_pair, weights=o.count * row, minlength=size.size) / size for row in each])
            for each in (value, value**2)
        )
        return np.where(there, o.visits[place], 0.0), first[:, place], second[:, place]
    transition = sparse.csr_array(mdp.transition)
    return outcomes.visits, gamma * (transition @ v.T).T, gamma**2 * (transition @ (v**2).T).T
