"""Draws of the posterior shared out over a Ray cluster: the same bits as on one machine.

Draws are numbered, and each has generators of its own (`posterior.drawn_gains`): any of them can be made anywhere, and put back in
its place. A worker that is killed costs its share alone, which is made again.
"""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe.engines import Lost, joined, on_ray
from bettersafe.errors import RunError
from bettersafe.posterior import Posterior, drawn_gains

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

Floats = npt.NDArray[np.float64]

SHARE = 10
"""Draws in a share: few enough that one lost is soon made again."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where draws are made: a Ray cluster at ``address`` (else the one of this machine, else a new one), ``workers`` shares at a time."""

    address: str | None = None
    workers: int | None = None


@dataclass(frozen=True, kw_only=True)
class Share:
    """Some of the draws, with all that is needed to make them; the fields are the arguments of `drawn_gains`."""

    posterior: Posterior
    policies: Floats
    baseline: Floats
    draws: int
    seed: int
    stream: int
    first: int
    objectives: tuple[int, ...] | None


def connected(cluster: Cluster | None) -> AbstractContextManager[None]:
    """The cluster is joined once, for all draws that are made inside."""
    return nullcontext() if cluster is None else joined(cluster.address)


def draw_share(share: Share, *, progress: Callable[[int], None] | None = None) -> Floats:
    """The gains of a share, wherever it is."""
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
    cluster: Cluster | None = None,
    progress: Callable[[int], None] | None = None,
) -> Floats:
    """`drawn_gains`, on a cluster if one is given; the arguments are its."""
    whole = Share(
        posterior=replace(posterior, outcomes=replace(posterior.outcomes)),  # without what was computed from it
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
                    f" {result.reason}. Give the same command again, on machines with more memory or without the cluster."
                )
            found[index] = result
            if progress is not None:
                progress(sum(shares[i].draws for i in found))
    return np.concatenate([found[index] for index in range(len(shares))])
