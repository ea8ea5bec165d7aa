"""One world of the gauntlet with its practice: logs drawn from it, true gains of policies, and the most that is safe.

    gain_k(π) = J_k(π) − J_k(practice)        in the true world, without end or horizon but the world's own

The practice is what made the log: the baseline, or the mixture of several behaviour policies, one per episode. A mixture
over episodes is no policy, but the state-wise policy

    π_b(a|x) = Σ_i ρ_i(x,a) / Σ_i ρ_i(x),     ρ_i the discounted visits under behaviour i

has the same discounted visits, and so the same returns: this is the baseline, and the reference is Σ_i J(π_i)/n exactly.
If states are aggregated, a policy over logged states is lifted: π(a|x) = π(a|group of x).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.errors import ParameterError
from bettersafe.logs.dataset import Dataset, take_episodes
from bettersafe.mdp.constrained import cmdp_optimum
from bettersafe.mdp.policy import check_policy
from bettersafe.mdp.values import expected_return, occupancy
from bettersafe.typing import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bettersafe.envs.tabular import World
    from bettersafe.mdp.constrained import CMDPOptimum
    from bettersafe.mdp.mdp import MDP
    from bettersafe.typing import Floats, Ints

Half = Literal["choose", "confirm", "fresh", "fourth", "fifth", "sixth", "seventh"]

SLACK = 1e-9
"""Share of a return's scale by which thresholds of the best safe policy are lowered: the baseline itself lies on them."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A world with its practice.

    Attributes:
        world: The true world.
        baseline: π_b over the logged states, shape [X, A]; what methods are given if ``baseline_known``.
        preference: λ, shape [d].
        baseline_known: Whether methods are given the baseline; if not, they estimate it from the log.
        from_counts: Whether methods see the log's counts only.
        aggregate: Logged state of every true state; None if true states are logged.
        behaviours: Policies over true states, one of which, drawn at random, makes each episode; None if the baseline makes all.
        horizon: Steps after which an episode is cut off; None for no limit.
        unlearnable: Whether the log can't show the harm.
    """

    world: World
    baseline: Floats
    preference: Floats
    baseline_known: bool = True
    from_counts: bool = False
    aggregate: Ints | None = None
    behaviours: tuple[Floats, ...] | None = None
    horizon: int | None = None
    unlearnable: bool = False

    def __post_init__(self) -> None:
        n_states = self.world.n_states
        if self.aggregate is not None:
            groups = frozen(self.aggregate, np.int64)
            if groups.shape != (n_states,) or not np.array_equal(np.unique(groups), np.arange(groups.max() + 1)):
                raise ParameterError(f"aggregate must give each of {n_states} states a group 0, 1, …, none empty.")
            object.__setattr__(self, "aggregate", groups)
            n_states = int(groups.max()) + 1
        object.__setattr__(
            self, "baseline", check_policy(self.baseline, n_states, self.world.n_actions, name="baseline")
        )
        object.__setattr__(self, "preference", frozen(self.preference, np.float64))

    @cached_property
    def truth(self) -> MDP:
        """The true MDP."""
        return true_mdp(self.world)

    @cached_property
    def practice(self) -> tuple[Floats, ...]:
        """Policies over true states that make the log, equally often."""
        return (lifted(self, self.baseline),) if self.behaviours is None else self.behaviours

    @cached_property
    def before(self) -> Floats:
        """True returns of the practice, shape [d]."""
        return np.asarray(np.mean([expected_return(self.truth, policy) for policy in self.practice], axis=0))

    @cached_property
    def scale(self) -> Floats:
        """Largest |r_k(x,a)| × discounted steps of an episode of the practice, shape [d]: losses far below it are rounding."""
        steps = [
            float(np.mean([occupancy(self.truth, policy, k).sum() for policy in self.practice]))
            for k in range(self.world.n_objectives)
        ]
        return np.asarray(np.abs(self.truth.reward).max(axis=1) * np.array(steps))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of worlds.

    Attributes:
        name: Short, for commands and rows.
        title: For people.
        half: "choose": rules may be chosen by it; the others: each to be looked at once, when the rules of its time stand.
        family: Broad family: hazard, rewards, visits, baseline, benchmark or model.
        sizes: Numbers of episodes in a log.
        make: Generator -> a random instance.
    """

    name: str
    title: str
    half: Half
    family: str
    sizes: tuple[int, ...]
    make: Callable[[np.random.Generator], Instance]


def sample_log(instance: Instance, size: int, rng: np.random.Generator) -> Dataset:
    """A log of ``size`` episodes of the practice, with logged states; it has π_b(a|x) only if the baseline is known."""
    which = rng.integers(len(instance.practice), size=size)
    parts = [
        sample_episodes(instance.world, policy, int(n), rng, horizon=instance.horizon)
        for policy, n in zip(instance.practice, np.bincount(which, minlength=len(instance.practice)), strict=True)
        if n
    ]
    log = parts[0] if len(parts) == 1 else take_episodes(_joined(parts), rng.permutation(size))
    if instance.aggregate is not None:
        groups, following = instance.aggregate, log.next_states
        log = replace(
            log,
            states=groups[log.states],
            next_states=np.where(following >= 0, groups[np.maximum(following, 0)], -1),
            state_labels=np.arange(groups.max() + 1),
        )
    return log if instance.baseline_known else replace(log, baseline_prob=None)


def lifted(instance: Instance, policy: Floats) -> Floats:
    """A policy over logged states as one over true states, shape [X, A]."""
    return policy if instance.aggregate is None else policy[instance.aggregate]


def true_gain(instance: Instance, policy: Floats) -> Floats:
    """J(π) − J(practice), shape [d], exact; ``policy`` is over logged states."""
    return expected_return(instance.truth, lifted(instance, policy)) - instance.before


def best_safe(instance: Instance) -> CMDPOptimum | None:
    """The policy with the largest λ·gain of all that lose on no objective; its ``returns`` are [λ·J, J_0, …, J_{d−1}].

    None if discounts differ or states are aggregated, where the program does not apply.
    """
    truth = instance.truth
    if instance.aggregate is not None or np.any(truth.discount != truth.discount[0]):
        return None
    program = replace(
        truth,
        reward=np.vstack([instance.preference @ truth.reward, truth.reward]),
        discount=np.full(1 + truth.n_objectives, truth.discount[0]),
        unseen_value=np.zeros((1 + truth.n_objectives, truth.n_states)),
    )
    return cmdp_optimum(program, instance.before - SLACK * instance.scale)


def best_safe_gain(instance: Instance) -> float | None:
    """The largest λ·gain of all policies that lose on no objective, at least 0; None as in `best_safe`."""
    best = best_safe(instance)
    return None if best is None else max(float(best.returns[0] - instance.preference @ instance.before), 0.0)


def mixture_policy(world: World, behaviours: Sequence[Floats], aggregate: Ints | None = None) -> Floats:
    """The state-wise policy of a mixture of behaviours, as told at the top, over logged states; uniform where none of them goes."""
    truth = true_mdp(world)
    visits = sum(occupancy(truth, policy)[:, None] * policy for policy in behaviours)
    groups = np.arange(world.n_states) if aggregate is None else aggregate
    table = np.zeros((int(groups.max()) + 1, world.n_actions))
    np.add.at(table, groups, visits)
    total = table.sum(axis=1, keepdims=True)
    return np.where(total > 0.0, table / np.where(total > 0.0, total, 1.0), 1.0 / world.n_actions)


def _joined(parts: Sequence[Dataset]) -> Dataset:
    """The episodes of logs of one world, one log after another."""
    rows = np.cumsum([0, *(part.n_rows for part in parts)])
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("states", "actions", "rewards", "next_states", "terminated", "baseline_prob")
    }
    starts = [part.episode_ptr[:-1] + row for part, row in zip(parts, rows[:-1], strict=True)]
    return replace(
        parts[0],
        **columns,
        episode_ptr=np.append(np.concatenate(starts), rows[-1]),
        episode_labels=np.arange(sum(part.n_episodes for part in parts)),
    )
