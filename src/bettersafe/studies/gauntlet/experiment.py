"""An experiment of the gauntlet: one world, one log, all methods."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe.evaluation.state_checks import check_states
from bettersafe.logs.counts import count
from bettersafe.logs.dataset import split
from bettersafe.methods.facts import METHODS as FACTS
from bettersafe.model import estimate_baseline, estimate_model
from bettersafe.studies.case import SAFETY_SHARE, TOL, Case
from bettersafe.studies.gauntlet.instance import best_safe_gain, sample_log, true_gain
from bettersafe.studies.gauntlet.kinds import KINDS
from bettersafe.studies.gauntlet.plan import METHODS

if TYPE_CHECKING:
    from bettersafe.logs.dataset import Dataset
    from bettersafe.methods.b_opt import BOpt
    from bettersafe.studies.gauntlet.instance import Instance
    from bettersafe.typing import Floats, Row

CHANGED = 1e-9
"""Largest difference of probabilities that is no proposal."""

UNSEEN = 0.5
"""A harm that is worse than all logged rewards by this share of their range has not been seen."""

MAX_ROUNDS = 100


def experiment(settings: dict[str, Any]) -> list[Row]:
    """All methods on one log of one world."""
    kind = KINDS[settings["kind"]]
    place = [settings["seed"], settings["log"], zlib.crc32(kind.name.encode())]
    instance = kind.make(np.random.default_rng(place))  # the same world for all sizes
    rows = instance_rows(
        instance,
        settings["episodes"],
        np.random.default_rng([*place, settings["episodes"]]),
        delta=settings["delta"],
        draws=settings["draws"],
    )
    known = {"half": kind.half, "objectives": instance.before.size}
    return [{**known, **row} for row in rows]


def instance_rows(instance: Instance, size: int, rng: np.random.Generator, *, delta: float, draws: int) -> list[Row]:
    """A row for each method that applies to the instance, from one log of ``size`` episodes."""
    data = sample_log(instance, size, rng)
    train, safety = split(data, (1.0 - SAFETY_SHARE, SAFETY_SHARE), rng)
    baseline = instance.baseline if instance.baseline_known else estimate_baseline(count(data))
    case = Case(
        truth=instance.truth,
        baseline=baseline,
        before=instance.before,
        model=estimate_model(data, delta=delta, baseline=baseline),
        train=train,
        train_model=estimate_model(train, delta=delta, baseline=baseline),
        data=data,
        safety=safety,
        delta=delta,
        draws=draws,
        draws_seed=int(rng.integers(2**32)),
        max_rounds=MAX_ROUNDS,
        from_counts=instance.from_counts,
        baseline_estimated=not instance.baseline_known,
    )
    methods = [method for method in METHODS if applies(method, instance)]
    found = case.b_opt(instance.preference)
    policies = case.policies([method for method in methods if method != "b-opt"], instance.preference)
    policies["b-opt"] = found.improvement.policy
    visited = np.bincount(data.states, minlength=data.n_states) > 0
    best = best_safe_gain(instance)
    hidden = instance.unlearnable or _harm_unseen(instance, data)
    doubted = found.accepted and _doubted(instance, data, baseline, policies["b-opt"])
    rows = []
    for method in methods:
        policy, proposed = policies[method], bool(np.max(np.abs(policies[method] - baseline)) > CHANGED)
        if not instance.baseline_known:
            policy = np.where(visited[:, None], policy, instance.baseline)
        kept_back = method == "b-opt" and doubted
        proposed = proposed and not kept_back
        gain = true_gain(instance, policy) if proposed else np.zeros(instance.before.size)
        name, _, parameter = method.partition(" ")
        claims = calibration(found, gain, instance, delta) if method == "b-opt" and proposed else NO_CLAIMS
        rows.append(
            {
                "unlearnable": hidden,
                "method": name,
                "parameter": parameter,
                **_outcome(instance, gain, best),
                "proposed": proposed,
                "doubted": kept_back,
                **claims,
            }
        )
    return rows


def _harm_unseen(instance: Instance, data: Dataset) -> bool:
    """Whether some objective's worst reward in the log is not half as bad, within the log's range, as the world's worst."""
    world = instance.world
    possible = world.outcome_reward[:, world.outcome.data > 0.0].min(axis=1)
    low, high = data.rewards.min(axis=0), data.rewards.max(axis=0)
    return bool(np.any(possible < low - UNSEEN * (high - low) - 1e-9))


def _doubted(instance: Instance, data: Dataset, baseline: Floats, policy: Floats) -> bool:
    """Whether a check speaks against the model, so that `improve` proposes nothing without a test; not from counts."""
    if instance.from_counts:
        return False
    known = baseline if instance.baseline_known else None
    return any(check.against for check in check_states(data, baseline=known, policy=policy))


def applies(method: str, instance: Instance) -> bool:
    """Whether a method can be used: H-OPT needs episodes, G-OPT equal discounts."""
    facts = FACTS[method.split(maxsplit=1)[0]]
    if instance.from_counts and not facts.counts:
        return False
    equal = bool(np.all(instance.world.discount == instance.world.discount[0]))
    return equal or facts.name != "g-opt"


def _outcome(instance: Instance, gain: Floats, best: float | None) -> Row:
    """Failure, and shares of the best possible."""
    failure = bool(np.any(gain < -TOL * instance.scale))
    worth = float(instance.preference @ gain)
    known = best is not None and best > TOL * float(instance.preference @ instance.scale)
    share = worth / best if best is not None and known else float("nan")
    return {"failure": failure, "share": share, "kept": 0.0 if failure and known else share}


NO_CLAIMS: Row = dict.fromkeys(("above", "covered", "z_pursued", "z_mean", "z_worst", "p_safe"), float("nan"))


def calibration(found: BOpt, gain: Floats, instance: Instance, delta: float) -> Row:
    """What B-OPT says of the policy that it proposes, against the true gain [d]: counts of objectives, and z as told in `plan`."""
    from scipy.special import ndtri

    if found.chosen is None:
        return NO_CLAIMS
    chosen = found.candidates[found.chosen]
    tol = TOL * instance.scale
    low, high = chosen.interval
    sd = (high - low) / (2.0 * ndtri(1.0 - delta / 2.0))
    known = sd > tol
    z = (gain - chosen.gain)[known] / sd[known]
    pursued = z[instance.preference[known] > 0.0]
    return {
        "above": float(np.count_nonzero(chosen.least > gain + tol)),
        "covered": float(np.count_nonzero((low <= gain + tol) & (gain - tol <= high))),
        "z_pursued": _mean(pursued),
        "z_mean": _mean(z),
        "z_worst": float(z.min()) if z.size else float("nan"),
        "p_safe": float(chosen.p_safe),
    }


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else float("nan")
