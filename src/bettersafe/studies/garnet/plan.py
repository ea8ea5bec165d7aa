"""Random worlds (Garnets): failure rates of the methods in unstructured worlds, with weak and near-optimal baselines.

Worlds have 30 states, 4 actions, and 4 random successors and a random reward for every pair. A step ends the episode with
probability 0.05; in the families where ends differ, the probability of each pair is drawn from Beta(0.5, 9.5). The preference
is λ = (1, 0): the first objective is optimised, the second only protected. A baseline of quality ρ is ρ π* + (1 − ρ) times a
random policy. For every policy the study records

    improvement   100 (J_0(π) − J_0(π_b)) / J_0(π_b), in the true MDP
    failure       for some k, J_k(π) < J_k(π_b) − TOL · J_k(π_b)
"""

from __future__ import annotations

from dataclasses import dataclass

from bettersafe.errors import ParameterError, check_probability
from bettersafe.studies.case import draws_for
from bettersafe.studies.sweep import Study

STUDY = "garnet/bopt"
ABOUT = "B-OPT and G-OPT compared with the paper's methods in random worlds, with weak and near-optimal baselines"
WORLDS = 250
DIFFERENT_ENDS = (0.5, 9.5)
SIZES = (20, 100, 400)
PREFERENCE = (1.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class Family:
    """Family of worlds, with baselines of one quality.

    Attributes:
        title: Title for tables and figures.
        quality: ρ.
        ends_differ: Whether the probability of termination differs between pairs.
    """

    title: str
    quality: float
    ends_differ: bool


FAMILIES = {
    "weak": Family(title="a weak (random) baseline", quality=0.0, ends_differ=False),
    "good": Family(title="a near-optimal baseline", quality=0.9, ends_differ=False),
    "weak, ends differ": Family(title="a weak baseline, ends differ", quality=0.0, ends_differ=True),
    "good, ends differ": Family(title="a near-optimal baseline, ends differ", quality=0.9, ends_differ=True),
}
COMPARED = (
    "adv-linearized", "s-opt 0.1", "s-opt 1.0", "h-opt published dr", "h-opt uncovered dr", "g-opt 0.1", "g-opt 1.0", "b-opt",
)  # fmt: skip


def garnet_study(*, worlds: int | None = None, delta: float | None = None, seed: int = 0) -> Study:
    """Study of ``worlds`` random worlds per family (default 250) at risk ``delta`` (default 0.1)."""
    n, allowed = WORLDS if worlds is None else worlds, 0.1 if delta is None else delta
    check_probability("delta", allowed)
    if n < 1:
        raise ParameterError(f"a study needs at least 1 world; got {n}.")
    return Study(
        id=STUDY,
        version=2,
        jobs=tuple(
            {"cmdp": world, "family": family, "delta": allowed, "draws": draws_for(allowed), "seed": seed}
            for world in range(n)
            for family in FAMILIES
        ),
        work="bettersafe.studies.garnet.experiment:experiment",
    )
