"""Policy files: one row per (state, action), columns ``state, action, probability`` and whatever else is kept beside.

Parquet or CSV. Rows that are left out have probability 0. States and actions are written and read in the user's labels.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe.data import Labels, label_array
from bettersafe.errors import PolicyError, did_you_mean
from bettersafe.mdp import check_policy

if TYPE_CHECKING:
    import pyarrow as pa

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SCHEMA = "policy/1"


def write_policy(
    path: Path,
    policy: Floats,
    state_labels: Labels,
    action_labels: Labels,
    *,
    baseline: Floats | None = None,
    counts: Ints | None = None,
) -> None:
    """Write ``policy`` [X, A] to Parquet, with the baseline's probability and the visits of each pair if given.

    The caller writes under a temporary name and renames; rows in which every column is 0 are left out.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Floats | Ints] = {"probability": policy}
    if baseline is not None:
        columns["baseline"] = baseline
    if counts is not None:
        columns["count"] = counts
    states, actions = np.nonzero(np.any([table != 0 for table in columns.values()], axis=0))
    table = pa.table(
        {
            "state": pa.array(state_labels[states]),
            "action": pa.array(action_labels[actions]),
            **{name: pa.array(values[states, actions]) for name, values in columns.items()},
        }
    )
    pq.write_table(table.replace_schema_metadata({"bettersafe.schema": SCHEMA}), path)


def read_policy(
    path: str | Path, state_labels: Labels, action_labels: Labels, *, column: str = "probability"
) -> Floats:
    """Read a policy [X, A] for the given vocabulary.

    Raises:
        PolicyError: The file is not there, lacks a column, names a state or action that is not in the vocabulary or
            a pair twice, has no row for a state, or its probabilities don't sum to 1.
    """
    name = Path(path).name
    table = _read_table(Path(path))
    _check_columns(table, ("state", "action", column), name)
    x = _codes(table, "state", state_labels, name)
    a = _codes(table, "action", action_labels, name)
    flat, first, times = np.unique(x * action_labels.size + a, return_index=True, return_counts=True)
    if flat.size < x.size:
        row = int(first[np.argmax(times > 1)])
        raise PolicyError(
            f"state {state_labels[x[row]]!s}, action {action_labels[a[row]]!s} stands {times.max()} times in {name};"
            " each pair may have one row."
        )
    absent = np.setdiff1d(np.arange(state_labels.size), x)
    if absent.size:
        raise PolicyError(
            f"{name} has no row for state {state_labels[absent[0]]!s}"
            + (f" and {absent.size - 1} more states of the data." if absent.size > 1 else ", which is in the data.")
        )
    return _probabilities(table, column, x, a, state_labels, action_labels, name)


def read_saved_policy(path: Path, action_labels: Labels) -> tuple[Labels, Floats, Floats, Ints]:
    """What `write_policy` wrote with a baseline and counts: state labels [X], policy, baseline, counts [X, A]."""
    table = _read_table(path)
    _check_columns(table, ("state", "action", "probability", "baseline", "count"), path.name)
    schema = (table.schema.metadata or {}).get(b"bettersafe.schema", b"none").decode()
    if schema != SCHEMA:
        raise PolicyError(f"{path.name} has schema {schema!r}; this version of bettersafe reads {SCHEMA!r}.")
    states = label_array(np.unique(_labels(table, "state")))
    x = _codes(table, "state", states, path.name)
    a = _codes(table, "action", action_labels, path.name)
    counts = np.zeros((states.size, action_labels.size), dtype=np.int64)
    counts[x, a] = table.column("count").to_numpy()
    policy, baseline = (
        _probabilities(table, column, x, a, states, action_labels, path.name) for column in ("probability", "baseline")
    )
    return states, policy, baseline, counts


def policy_actions(path: str | Path) -> Labels:
    """The action labels that a policy file names; an action may be possible without ever having been logged."""
    table = _read_table(Path(path))
    _check_columns(table, ("action",), Path(path).name)
    return label_array(np.unique(_labels(table, "action")))


def _read_table(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    if not path.is_file():
        raise PolicyError(f"there is no policy file {path}.")
    suffixes = "".join(path.suffixes).lower()
    try:
        if suffixes.endswith((".csv", ".csv.gz")):
            return pa_csv.read_csv(path)
        if suffixes.endswith(".parquet"):
            return pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise PolicyError(f"{path.name} can't be read: {error}") from None
    raise PolicyError(f"a policy file is Parquet or CSV; got {path.name}.")


def _check_columns(table: pa.Table, needed: tuple[str, ...], name: str) -> None:
    for column in needed:
        if column not in table.column_names:
            raise PolicyError(
                f"{name} has no column {column!r}; a policy file needs state, action, probability."
                f" It has {', '.join(table.column_names) or 'none'}.{did_you_mean(column, table.column_names)}"
            )


def _labels(table: pa.Table, column: str) -> Labels:
    """A label column as whole numbers or text."""
    values = table.column(column).to_numpy(zero_copy_only=False)
    labels: Labels = values.astype(np.int64) if values.dtype.kind in "iu" else values.astype(np.str_)
    return labels


def _codes(table: pa.Table, column: str, labels: Labels, name: str) -> Ints:
    """Positions of a label column in the sorted vocabulary; an error names the first label that is not in it."""
    values = _labels(table, column)
    if labels.dtype.kind in "iu" and values.dtype.kind not in "iu":
        raise PolicyError(
            f"{column}s of the data are whole numbers, but column {column!r} of {name} holds {values[0]!s}."
        )
    if labels.dtype.kind == "U":
        values = values.astype(np.str_)
    place = np.minimum(np.searchsorted(labels, values), labels.size - 1)
    unknown = np.flatnonzero(labels[place] != values)
    if unknown.size:
        row = int(unknown[0])
        raise PolicyError(
            f"{column} {values[row]!s} in {name}, row {row + 1}, is not in the data; it knows {labels.size} {column}s,"
            f" such as {labels[0]!s}.{did_you_mean(str(values[row]), map(str, labels[:1000]))} Correct or drop the row."
        )
    return np.asarray(place, dtype=np.int64)


def _probabilities(
    table: pa.Table, column: str, x: Ints, a: Ints, states: Labels, actions: Labels, name: str
) -> Floats:
    try:
        values = np.asarray(table.column(column).cast("double").to_numpy(), dtype=np.float64)
    except ValueError as error:
        raise PolicyError(f"column {column!r} of {name} must hold numbers: {error}") from None
    bad = np.flatnonzero(~((values >= 0.0) & (values <= 1.0)))
    if bad.size:
        row = int(bad[0])
        raise PolicyError(
            f"probabilities must be in [0, 1]; got {values[row]} in column {column!r} of {name}, row {row + 1}."
        )
    policy = np.zeros((states.size, actions.size))
    policy[x, a] = values
    return check_policy(policy, *policy.shape, name=f"policy in {name}", state_labels=states)
