"""What only the gridworld study asks of its rows: tuned parameters, and what a convention changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bettersafe.errors import ParameterError
from bettersafe.methods.facts import METHODS
from bettersafe.studies.summary import METHOD

CELL = ("variant", "kinds", "preference", "quality", "episodes")
"""What a policy is made for, apart from the CMDP."""


def tuned(rows: pa.Table, *, on: int = 0) -> pa.Table:
    """Policies with parameters tuned on one CMDP, as the paper does, judged on the others.

    For each preference, quality and size of the log, and each family (S-OPT over ε; H-OPT over estimators, for each rule):
    of the parameters that didn't fail on CMDP ``on``, the one with the best improvement there, the first of equals. Where
    all of them failed there, the baseline is kept: improvement 0, no failure. That CMDP's own rows are left out, since it
    would be judged by the numbers that chose. Tuning looks at the truth of one CMDP, which a user with a log can't.

    Args:
        rows: Of a study whose methods have several parameters each.
        on: The CMDP to tune on.

    Returns:
        Rows of the other CMDPs, with ``parameter`` ending in the word "tuned" and a column ``chosen`` with the parameter
        ("baseline" where all failed). Methods without parameters are there as they were. What CMDP ``on`` has no rows for
        is left out.

    Raises:
        ParameterError: When there are no rows of CMDP ``on``, or of no other.
    """
    numbers = set(pc.unique(rows["cmdp"]).to_pylist()) if "cmdp" in rows.column_names else set()
    if on not in numbers or len(numbers) < 2:
        there = ", ".join(map(str, sorted(numbers)[:5])) or "none"
        raise ParameterError(f"tuning needs rows of CMDP {on} and of at least one other; those here: {there}.")
    column = {name: rows[name].to_pylist() for name in ("cmdp", *CELL, *METHOD, "improvement", "failure")}
    cells = list(zip(*(column[name] for name in CELL), strict=True))
    families = [_family(*words) for words in zip(*(column[name] for name in METHOD), strict=True)]

    best: dict[tuple[Any, ...], tuple[float, str]] = {}
    for n, number in enumerate(column["cmdp"]):
        if number == on:
            case = (cells[n], families[n])
            best.setdefault(case, (-np.inf, "baseline"))
            if not column["failure"][n] and column["improvement"][n] > best[case][0]:
                best[case] = (column["improvement"][n], column["parameter"][n])

    kept: list[int] = []
    chosen: list[str] = []
    seen: set[tuple[Any, ...]] = set()
    for n, number in enumerate(column["cmdp"]):
        case = (cells[n], families[n])
        if number == on or case not in best:
            continue
        untuned = _untuned(column["method"][n])
        choice = column["parameter"][n] if untuned else best[case][1]
        stands_in = choice == "baseline" and (number, case) not in seen  # any row of the family knows the baseline
        seen.add((number, case))
        if stands_in or column["parameter"][n] == choice:
            kept.append(n)
            chosen.append(choice)
    result = rows.take(pa.array(kept, pa.int64()))
    baseline = pa.array([choice == "baseline" for choice in chosen])
    replaced = {
        "parameter": pa.array([families[n][1] for n in kept], pa.string()),
        "improvement": pc.if_else(baseline, 0.0, result["improvement"]),
        "failure": pc.and_(result["failure"], pc.invert(baseline)),
        **{name: pc.if_else(baseline, result[f"{name}_baseline"], result[name]) for name in ("goal", "pits")},
    }
    for name, values in replaced.items():
        result = result.set_column(result.column_names.index(name), name, values)
    return result.append_column("chosen", pa.array(chosen, pa.string()))


def changes(rows: pa.Table, *, reference: str) -> pa.Table:
    """How the results of each variant differ from those of the variant ``reference``, policy by policy.

    Returns:
        The rows of the other variants, ``improvement`` and ``failure`` (now −1, 0 or 1) less those of the reference on the
        same CMDP with the same quality, size, preference and method. Rows without a counterpart are left out.
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


def _family(method: str, parameter: str) -> tuple[str, str]:
    """Method and parameter after tuning; the rule of H-OPT is not tuned."""
    if _untuned(method):
        return method, parameter
    rule, _, estimator = parameter.partition(" ")
    return method, f"{rule} tuned" if estimator else "tuned"


def _untuned(method: str) -> bool:
    """Whether a method has no parameter."""
    return METHODS[method].one_model and not METHODS[method].budget
