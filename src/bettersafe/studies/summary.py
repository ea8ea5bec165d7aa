"""Summaries of the rows of gridworld and random-world studies.

A row is one policy: one CMDP, baseline, log, preference and method. Rows of the same CMDP are correlated, so rows are
averaged within each CMDP first, m_c, and then over the C CMDPs, with the standard error of those means:

    mean = Σ_c m_c / C        se = √( Σ_c (m_c − mean)² / (C − 1) ) / √C

The interval of a failure rate f is Clopper and Pearson's for f·n failures in n, with n the effective number of independent
experiments among N correlated ones (Korn and Graubard 1998). It has the same standard error:

    n = f (1 − f) / se² · ( t_{N−1} / t_{C−1} )²,      C ≤ n ≤ N

The quantiles t account for se being estimated from C means. If n is undefined (f is 0 or 1, or C = 1), n = C, as if each CMDP
had one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bettersafe.errors import ParameterError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bettersafe.typing import Floats, Ints


METHOD = ("method", "parameter")


def summarise(rows: pa.Table, by: Sequence[str] = (*METHOD, "episodes")) -> pa.Table:
    """Means, standard errors clustered by CMDP, and medians for each combination of the columns ``by``.

    Args:
        rows: Rows of a study, or of `tuned` or `changes`; with columns ``cmdp``, ``improvement``, ``failure`` and those in ``by``.
        by: Columns to group by.

    Returns:
        One row per combination, in the order in which they first appear, with the columns ``by`` and

            improvement, improvement_se    mean over CMDPs, and its standard error
            median                         median of the CMDPs' mean improvements
            failure, failure_se            failure rate, and its standard error
            experiments, cmdps             number of rows and of CMDPs

        The standard errors of a single CMDP are NaN.
    """
    missing = [name for name in (*by, "cmdp", "improvement", "failure") if name not in rows.column_names]
    if missing or rows.num_rows == 0:
        what = f"no column {missing[0]!r}" if missing else "no rows"
        raise ParameterError(f"a summary needs the rows of a gridworld study; these have {what}.")
    cmdp = rows["cmdp"].to_numpy()
    values = {name: rows[name].cast(pa.float64()).to_numpy() for name in ("improvement", "failure")}
    groups = _groups(rows, by)
    found: dict[str, list[Any]] = {name: [] for name in SUMMARY_COLUMNS}
    for group in groups:
        means = {name: _cluster_means(value[group], cmdp[group]) for name, value in values.items()}
        for name, mean in means.items():
            found[name].append(float(mean.mean()))
            found[f"{name}_se"].append(_standard_error(mean))
        found["median"].append(float(np.median(means["improvement"])))
        found["experiments"].append(group.size)
        found["cmdps"].append(means["improvement"].size)
    first = rows.select(list(by)).take(pa.array([group[0] for group in groups]))
    return pa.table({name: first[name] for name in by} | {name: pa.array(found[name]) for name in SUMMARY_COLUMNS})


SUMMARY_COLUMNS = (
    "improvement", "improvement_se", "median", "failure", "failure_se", "experiments", "cmdps",
)  # fmt: skip


def with_intervals(summary: pa.Table, *, level: float = 0.95) -> pa.Table:
    """Add confidence intervals of the failure rates to a summary; see the module's docstring.

    Args:
        summary: Result of `summarise`.
        level: Level of the two-sided intervals.

    Returns:
        The summary with columns ``failure_low``, ``failure_high`` and ``failure_n`` (n).
    """
    from scipy import stats

    rate, error, experiments, cmdps = (
        summary[name].to_numpy().astype(np.float64) for name in ("failure", "failure_se", "experiments", "cmdps")
    )
    tail = (1.0 - level) / 2.0
    known = (rate > 0.0) & (rate < 1.0) & (error > 0.0)
    n = cmdps.copy()
    scale = (stats.t.isf(tail, experiments[known] - 1.0) / stats.t.isf(tail, cmdps[known] - 1.0)) ** 2
    n[known] = scale * (rate * (1.0 - rate))[known] / error[known] ** 2
    n = np.clip(n, cmdps, experiments)
    failed = rate * n
    low, high = np.zeros(n.size), np.ones(n.size)
    some, others = rate > 0.0, rate < 1.0  # the interval starts at 0 for a rate of 0 and ends at 1 for a rate of 1
    low[some] = stats.beta.ppf(tail, failed[some], n[some] - failed[some] + 1.0)
    high[others] = stats.beta.isf(tail, failed[others] + 1.0, n[others] - failed[others])
    for name, values in (("failure_low", low), ("failure_high", high), ("failure_n", n)):
        summary = summary.append_column(name, pa.array(values))
    return summary


def finished(rows: pa.Table, jobs: Iterable[Mapping[str, Any]], *, by: str) -> tuple[pa.Table, int, int]:
    """Rows of the complete repetitions, so that all means are over the same combinations.

    Args:
        rows: Rows of a sweep, finished or not.
        jobs: The experiments of the sweep as in its `study.json`: ``job`` (the key) and ``settings``.
        by: Name of the setting that numbers the repetitions: "cmdp" or "repetition".

    Returns:
        The rows, the number of complete repetitions, and the number of repetitions in the sweep.
    """
    wanted: dict[int, set[str]] = {}
    for job in jobs:
        wanted.setdefault(job["settings"][by], set()).add(job["job"])
    done = set(pc.unique(rows["job"]).to_pylist())
    whole = [number for number, keys in wanted.items() if keys <= done]
    if not whole:
        raise RunError("no repetition of this sweep is finished yet; continue the sweep and try again.")
    if len(whole) < len(wanted):
        rows = rows.filter(pc.is_in(rows[by], pa.array(whole, rows[by].type)))
    return rows, len(whole), len(wanted)


def _groups(rows: pa.Table, by: Sequence[str]) -> list[Ints]:
    """Row indices of each combination, in the order of first appearance."""
    code = np.zeros(rows.num_rows, dtype=np.int64)
    for name in by:
        one = rows[name].combine_chunks().dictionary_encode()
        code = code * len(one.dictionary) + one.indices.to_numpy()
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(which, kind="stable").astype(np.int64)
    groups = np.split(order, np.cumsum(np.bincount(which))[:-1])
    return [groups[n] for n in np.argsort(first)]


def _cluster_means(values: Floats, cluster: Ints) -> Floats:
    """Mean of each cluster [C]."""
    _, which, counts = np.unique(cluster, return_inverse=True, return_counts=True)
    return np.bincount(which, weights=values) / counts


def _standard_error(means: Floats) -> float:
    return float(means.std(ddof=1) / np.sqrt(means.size)) if means.size > 1 else float("nan")
