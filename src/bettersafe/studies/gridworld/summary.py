"""Summaries of the gridworld study alone: tuned parameters and effects of conventions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bettersafe.errors import ParameterError
from bettersafe.methods.facts import METHODS
from bettersafe.studies.summary import METHOD

CELL = ("variant", "kinds", "preference", "quality", "episodes")
"""Settings of a policy besides the CMDP and the method."""


def tuned(rows: pa.Table, *, on: int = 0, once: bool = False) -> pa.Table:
    """Rows with parameters tuned on one CMDP, as in the paper, and evaluated on the others.

    The parameter is chosen for each preference, quality and size of the log, and each family (S-OPT over ε; H-OPT over
    estimators, for each rule): the one with the largest improvement on CMDP ``on`` among those that did not fail there, the
    first in case of ties. If all failed there, the baseline is kept: improvement 0, no failure. The rows of CMDP ``on`` are
    left out, because they chose the parameter. Tuning uses the true MDP of one CMDP, which a user with a log does not have.

    Args:
        rows: Rows of a study with several parameters per method.
        on: The CMDP to tune on.
        once: Whether to choose one parameter for all sizes of the log, as the paper does: the one with the largest mean improvement
            among those that failed at no size. ``parameter`` then ends in "tuned once".

    Returns:
        Rows of the other CMDPs, with ``parameter`` ending in "tuned" and a column ``chosen`` with the parameter ("baseline"
        if all failed). Methods without parameters are unchanged. Settings for which CMDP ``on`` has no rows are left out.

    Raises:
        ParameterError: If there are no rows of CMDP ``on``, or none of another CMDP.
    """
    numbers = set(pc.unique(rows["cmdp"]).to_pylist()) if "cmdp" in rows.column_names else set()
    if on not in numbers or len(numbers) < 2:
        there = ", ".join(map(str, sorted(numbers)[:5])) or "none"
        raise ParameterError(f"tuning needs rows of CMDP {on} and of at least one other; got rows of: {there}.")
    column = {name: rows[name].to_pylist() for name in ("cmdp", *CELL, *METHOD, "improvement", "failure")}
    shared = [name for name in CELL if not (once and name == "episodes")]
    cells = list(zip(*(column[name] for name in shared), strict=True))
    families = [_family(*words) for words in zip(*(column[name] for name in METHOD), strict=True)]

    tried: dict[tuple[Any, ...], dict[str, list[tuple[float, bool]]]] = {}
    for n, number in enumerate(column["cmdp"]):
        if number == on:
            by_parameter = tried.setdefault((cells[n], families[n]), {})
            by_parameter.setdefault(column["parameter"][n], []).append((column["improvement"][n], column["failure"][n]))
    best = {case: _best(found) for case, found in tried.items()}

    kept: list[int] = []
    chosen: list[str] = []
    seen: set[tuple[Any, ...]] = set()
    for n, number in enumerate(column["cmdp"]):
        case = (cells[n], families[n])
        if number == on or case not in best:
            continue
        untuned = _untuned(column["method"][n])
        choice = column["parameter"][n] if untuned else best[case]
        stands_in = (
            choice == "baseline" and (number, case, column["episodes"][n]) not in seen
        )  # any row of the family has the baseline's returns
        seen.add((number, case, column["episodes"][n]))
        if stands_in or column["parameter"][n] == choice:
            kept.append(n)
            chosen.append(choice)
    result = rows.take(pa.array(kept, pa.int64()))
    baseline = pa.array([choice == "baseline" for choice in chosen])
    replaced = {
        "parameter": pa.array([f"{families[n][1]}{_once(families[n], once=once)}" for n in kept], pa.string()),
        "improvement": pc.if_else(baseline, 0.0, result["improvement"]),
        "failure": pc.and_(result["failure"], pc.invert(baseline)),
        **{name: pc.if_else(baseline, result[f"{name}_baseline"], result[name]) for name in ("goal", "pits")},
    }
    for name, values in replaced.items():
        result = result.set_column(result.column_names.index(name), name, values)
    return result.append_column("chosen", pa.array(chosen, pa.string()))


def changes(rows: pa.Table, *, reference: str) -> pa.Table:
    """Differences between each variant and the variant ``reference``, policy by policy.

    Returns:
        The rows of the other variants. ``improvement`` and ``failure`` (−1, 0 or 1) are differences from the row of the
        reference with the same CMDP, quality, size, preference and method. Rows without such a row are left out.
    """
    same = [*(name for name in CELL if name != "variant"), *METHOD, "cmdp"]
    keys = list(zip(*(rows[name].to_pylist() for name in same), strict=True))
    variants = rows["variant"].to_pylist()
    if reference not in variants:
        raise ParameterError(f"no rows of the variant {reference!r} to compare with.")
    there = {key: n for n, (key, variant) in enumerate(zip(keys, variants, strict=True)) if variant == reference}
    kept = [n for n, key in enumerate(keys) if variants[n] != reference and key in there]
    counterpart = pa.array([there[keys[n]] for n in kept], pa.int64())
    result = rows.take(pa.array(kept, pa.int64()))
    for name in ("improvement", "failure"):
        value = rows[name].cast(pa.float64())
        difference = pc.subtract(result[name].cast(pa.float64()), value.take(counterpart))
        result = result.set_column(result.column_names.index(name), name, difference)
    return result


def _best(found: dict[str, list[tuple[float, bool]]]) -> str:
    """Parameter with the largest mean improvement among those that never failed, the first in case of ties; else "baseline"."""
    means = {
        parameter: float(np.mean([gain for gain, _ in each]))
        for parameter, each in found.items()
        if not any(failed for _, failed in each)
    }
    return max(means, key=means.__getitem__, default="baseline")


def _once(family: tuple[str, str], *, once: bool) -> str:
    return " once" if once and family[1].endswith("tuned") else ""


def _family(method: str, parameter: str) -> tuple[str, str]:
    """Method and parameter after tuning; H-OPT's rule is not tuned."""
    if _untuned(method):
        return method, parameter
    rule, _, estimator = parameter.partition(" ")
    return method, f"{rule} tuned" if estimator else "tuned"


def _untuned(method: str) -> bool:
    """Whether a method has no parameter."""
    return METHODS[method].one_model and not METHODS[method].budget
