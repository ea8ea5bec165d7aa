"""Models to measure on: a real-looking one (a sepsis cohort) and random sparse ones of any size."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from bettersafe.envs.icu_sepsis import clinician_policy, icu_sepsis
from bettersafe.envs.tabular import sample_episodes
from bettersafe.logs.counts import count, with_rare
from bettersafe.mdp.mdp import MDP
from bettersafe.model import Model, error_bound_q, estimate_baseline, estimate_model


def sepsis_model(seed: int = 0) -> tuple[Model, np.ndarray]:
    """A training cohort of the paper's size (14,667 patients) with survival and rare treatments."""
    dataset = sample_episodes(icu_sepsis(), clinician_policy(), 14_667, np.random.default_rng(seed))
    counts = with_rare(count(dataset), below=10, reward=-10.0)
    return estimate_model(counts, delta=1.0), estimate_baseline(counts)


def random_model(
    n_states: int, n_actions: int = 25, *, visited: int, successors: int, n_objectives: int, seed: int = 0
) -> tuple[Model, np.ndarray]:
    """``visited`` tried actions per state, ``successors`` next states each, 2 % of every row terminating."""
    rng = np.random.default_rng(seed)
    n_pairs = n_states * visited
    pair_state = np.repeat(np.arange(n_states), visited)
    pair_action = np.sort(rng.random((n_states, n_actions)).argsort(axis=1)[:, :visited], axis=1).ravel()
    columns = rng.integers(0, n_states, (n_pairs, successors), dtype=np.int32)
    probability = rng.random((n_pairs, successors))
    probability *= 0.98 / probability.sum(axis=1, keepdims=True)
    transition = sparse.csr_array(
        (probability.ravel(), columns.ravel(), np.arange(0, n_pairs * successors + 1, successors)),
        shape=(n_pairs, n_states),
    )
    counts = rng.integers(1, 100, n_pairs)
    baseline = np.zeros((n_states, n_actions))
    baseline[pair_state, pair_action] = counts
    baseline /= baseline.sum(axis=1, keepdims=True)
    mdp = MDP(
        n_states=n_states,
        n_actions=n_actions,
        pair_state=pair_state,
        pair_action=pair_action,
        transition=transition,
        reward=rng.normal(size=(n_objectives, n_pairs)),
        discount=np.full(n_objectives, 0.99),
        initial=np.full(n_states, 1.0 / n_states),
    )
    model = Model(
        mdp=mdp,
        counts=counts,
        error=error_bound_q(counts, n_states, n_actions, n_objectives, 0.1),
        error_kind="q",
        delta=0.1,
        unseen="end",
        state_labels=np.arange(n_states),
        action_labels=np.arange(n_actions),
        objectives=tuple(f"r{k}" for k in range(n_objectives)),
    )
    return model, baseline
