"""The gauntlet: how often each method fails in many kinds of worlds, and how much of the best possible it gains.

One experiment is one world of one kind, one log of one size and one δ. λ is the kind's; every objective is protected. Recorded for
each method is

    proposed   whether the policy differs from the baseline; if not, the practice goes on, and every gain is 0
    failure    for some k, gain_k(π) < −TOL · scale_k, in the true world (`instance`)
    share      λ·gain(π) / the largest λ·gain of all policies that lose on no objective; NaN where that is not known
    kept       the share, where a failure counts as 0

and for the policy that B-OPT proposes, over the d objectives,

    above      lower bounds above the true gain          covered    intervals that hold the true gain
    z_…        (true gain − estimate) / sd: mean over the objectives pursued (λ_k > 0), over all, and the least

An estimated baseline says nothing about states that the log never visits; there a proposed policy is taken to leave the practice as
it is. Kinds of the half "choose" may be used to choose rules; those of the half "confirm" were looked at once, when the first rules stood.
Rules that were chosen later had a third set, "fresh", then a fourth, "fourth", and a fifth, "fifth", and those that are chosen after that have
a sixth, "sixth", and a seventh, "seventh", each to be looked at once. These five run only if they are asked for, so that nobody looks at them by accident.
"""

from __future__ import annotations

from typing import get_args

from bettersafe.errors import ParameterError, check_choice, check_probability, did_you_mean
from bettersafe.studies.case import draws_for
from bettersafe.studies.gauntlet.instance import Half
from bettersafe.studies.gauntlet.kinds import KINDS
from bettersafe.studies.sweep import Study

STUDY = "gauntlet"
ABOUT = "B-OPT and other methods in many kinds of difficult worlds, with exact truth"
WORLDS = 60
HALVES = ("choose", "confirm", "fresh", "fourth", "fifth", "sixth", "seventh", "all")
KNOWN = ("choose", "confirm")
"""Halves that run if neither a half nor kinds are asked for."""

METHODS = (
    "linearized", "adv-linearized", "s-opt 0.1", "s-opt 1.0", "h-opt published dr", "h-opt uncovered dr", "g-opt 1.0", "b-opt",
)  # fmt: skip


def gauntlet_study(
    *,
    worlds: int | None = None,
    delta: float | None = None,
    half: str | None = None,
    kinds: str | None = None,
    seed: int = 0,
) -> Study:
    """The study.

    Args:
        worlds: Worlds, each with one log, of every kind and size; 60 if left out.
        delta: δ; 0.1 if left out.
        half: "choose", "confirm", "fresh", "fourth", "fifth", "sixth", "seventh" or "all"; the first two if left out.
        kinds: Names of kinds, with commas between them, of any half if that is left out; all of the half if left out.
        seed: Draws everything.
    """
    n, allowed = WORLDS if worlds is None else worlds, 0.1 if delta is None else delta
    check_probability("delta", allowed)
    check_choice("half", half or "all", HALVES)
    if n < 1:
        raise ParameterError(f"a study needs at least 1 world; got {n}.")
    halves = (half,) if half in get_args(Half) else get_args(Half) if half or kinds else KNOWN
    wanted = list(KINDS) if kinds is None else [name.strip() for name in kinds.split(",")]
    for name in wanted:
        if name not in KINDS:
            raise ParameterError(
                f"there is no kind {name!r} in `kinds`; there are {', '.join(KINDS)}.{did_you_mean(name, KINDS)}"
            )
    chosen = [KINDS[name] for name in dict.fromkeys(wanted) if KINDS[name].half in halves]
    if not chosen:
        raise ParameterError(f"none of the kinds {', '.join(wanted)} is in the half {half!r}. Leave `half` out.")
    return Study(
        id=STUDY,
        version=1,
        jobs=tuple(
            {
                "log": log,
                "kind": kind.name,
                "episodes": size,
                "delta": allowed,
                "draws": draws_for(allowed),
                "seed": seed,
            }
            for log in range(n)
            for kind in chosen
            for size in kind.sizes
        ),
        work="bettersafe.studies.gauntlet.experiment:experiment",
    )
