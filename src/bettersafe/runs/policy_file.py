"""Policy files: one row per (state, action), columns ``state, action, probability`` and whatever else is kept beside.

Parquet or CSV. Rows that are left out have probability 0. States and actions are written and read in the user's labels. In a
run's policy file ``probability`` is what to use, so that the file can be put to use or given as a baseline as it is; where
something else was proposed, that is the column ``proposal``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bettersafe._system.files import whole_file
from bettersafe.errors import PolicyError, check_path, did_you_mean
from bettersafe.logs.dataset import label_array
from bettersafe.mdp.policy import ROUNDING, check_policy, policy_table

if TYPE_CHECKING:
    import pyarrow as pa

    from bettersafe.typing import Floats, Ints, Labels


SCHEMA = "policy/1"

SUM_TOL = 1e-6
"""How far the probabilities of a state may be from 1 in a file (they are often written with few digits)."""


def write_policy(
    path: str | Path,
    policy: Floats,
    state_labels: Labels,
    action_labels: Labels,
    *,
    baseline: Floats | None = None,
    proposal: Floats | None = None,
    counts: Ints | None = None,
) -> None:
    """Write ``policy`` [X, A], with the probabilities of the baseline and of a proposal, and the visits of each pair, if given.

    A name that ends in .csv gives CSV. Rows in which every column is 0 are left out. Written under a temporary name, then
    renamed.

    Args:
        path: Where to.
        policy: π, shape [X, A].
        state_labels: Names of the states, shape [X].
        action_labels: Names of the actions, shape [A].
        baseline: π_b, shape [X, A].
        proposal: Another policy, shape [X, A].
        counts: Visits, shape [X, A].

    Examples:
        >>> from bettersafe.runs import write_policy
        >>> write_policy("baseline.csv", baseline, log.state_labels, log.action_labels)
        >>> from bettersafe.runs import read_policy
        >>> bool((read_policy("baseline.csv", log.state_labels, log.action_labels) == baseline).all())
        True
    """
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    check_path("path", path)
    state_labels, action_labels = label_array(state_labels), label_array(action_labels)
    policy = policy_table(policy, state_labels.size, action_labels.size)
    columns: dict[str, Floats | Ints] = {"probability": policy}
    if baseline is not None:
        columns["baseline"] = baseline
    if proposal is not None:
        columns["proposal"] = proposal
    if counts is not None:
        columns["count"] = counts
    written = policy != 0
    for values in columns.values():
        written |= values != 0
    rows = np.flatnonzero(written)
    table = pa.table(
        {
            "state": pa.array(state_labels[rows // action_labels.size]),
            "action": pa.array(action_labels[rows % action_labels.size]),
            **{name: pa.array(values.take(rows)) for name, values in columns.items()},
        }
    )
    target = Path(path)
    with whole_file(target) as partial:
        if target.suffix.lower() == ".csv":
            pa_csv.write_csv(table, partial)
        else:
            pq.write_table(table.replace_schema_metadata({"bettersafe.schema": SCHEMA}), partial)


def read_policy(
    path: str | Path, state_labels: Labels, action_labels: Labels, *, column: str = "probability"
) -> Floats:
    """Read a policy [X, A] for the given vocabulary.

    Args:
        path: A policy file: Parquet or CSV.
        state_labels: Names of the states, shape [X].
        action_labels: Names of the actions, shape [A].
        column: The column of probabilities.

    Raises:
        PolicyError: The file is not there, lacks a column, names a state or action that is not in the vocabulary or
            a pair twice, has no row for a state, or its probabilities don't sum to 1.

    Examples:
        >>> from bettersafe.runs import read_policy
        >>> read_policy("run/policy.parquet", log.state_labels, log.action_labels).shape
        (6, 3)
    """
    check_path("path", path)
    state_labels, action_labels = label_array(state_labels), label_array(action_labels)
    file = _PolicyFile.open(path, ("state", "action", column))
    x, a = file.codes("state", state_labels), file.codes("action", action_labels)
    flat, first = np.unique(x * action_labels.size + a, return_index=True)
    if flat.size < x.size:
        row = int(np.setdiff1d(np.arange(x.size), first)[0])
        raise PolicyError(
            f"state {state_labels[x[row]]!s}, action {action_labels[a[row]]!s} stands a second time in {file.place(row)}."
            " Remove one of the two."
        )
    absent = np.setdiff1d(np.arange(state_labels.size), x)
    if absent.size:
        raise PolicyError(
            f"{file.name} has no row for state {state_labels[absent[0]]!s}"
            + (f" and {absent.size - 1} more states of the data." if absent.size > 1 else ", which is in the data.")
            + " Add what the policy does there."
        )
    return file.probabilities(column, x, a, state_labels, action_labels)


@dataclass(frozen=True, kw_only=True)
class SavedPolicy:
    """What the policy file of a run has.

    Attributes:
        state_labels: Shape [X].
        policy: What to use, shape [X, A].
        baseline: π_b, shape [X, A].
        proposal: What was proposed, shape [X, A]; the policy where the file has no such column.
        counts: Visits of every pair, shape [X, A].
    """

    state_labels: Labels
    policy: Floats
    baseline: Floats
    proposal: Floats
    counts: Ints


def read_saved_policy(path: Path, action_labels: Labels) -> SavedPolicy:
    """Read what `write_policy` wrote with a baseline and counts."""
    file = _PolicyFile.open(path, ("state", "action", "probability", "baseline", "count"))
    schema = (file.table.schema.metadata or {}).get(b"bettersafe.schema", b"none").decode()
    if schema != SCHEMA:
        raise PolicyError(f"{path.name} has schema {schema!r}; this version of bettersafe reads {SCHEMA!r}.")
    states = label_array(np.unique(file.labels("state")))
    x, a = file.codes("state", states), file.codes("action", action_labels)
    counts = np.zeros((states.size, action_labels.size), dtype=np.int64)
    counts[x, a] = file.table.column("count").to_numpy()
    own = "proposal" in file.table.column_names
    columns = ("probability", "baseline", "proposal") if own else ("probability", "baseline")
    policy, baseline, *rest = (file.probabilities(column, x, a, states, action_labels) for column in columns)
    return SavedPolicy(
        state_labels=states, policy=policy, baseline=baseline, proposal=rest[0] if own else policy, counts=counts
    )


def policy_actions(path: str | Path, like: Labels) -> Labels:
    """The actions that a policy file names, as labels of the same type as ``like``.

    An action may be possible without ever having been logged.
    """
    return label_array(np.unique(_PolicyFile.open(path, ("action",)).labels("action", like)))


def in_vocabulary(
    policy: Floats, states: Labels, actions: Labels, to_states: Labels, to_actions: Labels, *, elsewhere: Floats
) -> Floats:
    """``policy`` over sorted labels that hold its own; in states that it does not know, the rows of ``elsewhere``."""
    wide = np.zeros(elsewhere.shape)
    x, a = np.searchsorted(to_states, states), np.searchsorted(to_actions, actions)
    wide[np.ix_(x, a)] = policy
    new = np.setdiff1d(np.arange(to_states.size), x)
    wide[new] = elsewhere[new]
    return wide


@dataclass(frozen=True, kw_only=True)
class _PolicyFile:
    """A policy file as a table; of CSV all cells are text, so that labels such as 007 or NA stay what they are."""

    name: str
    is_csv: bool
    table: pa.Table

    @classmethod
    def open(cls, path: str | Path, needed: tuple[str, ...]) -> _PolicyFile:
        import pyarrow as pa
        import pyarrow.csv as pa_csv
        import pyarrow.parquet as pq

        path = Path(path)
        if not path.is_file():
            raise PolicyError(f"there is no policy file {path}.")
        suffixes = "".join(path.suffixes).lower()
        is_csv = suffixes.endswith((".csv", ".csv.gz"))
        if not is_csv and not suffixes.endswith(".parquet"):
            raise PolicyError(f"a policy file is Parquet or CSV; got {path.name}.")
        try:
            if is_csv:
                with pa.input_stream(str(path), compression="gzip" if suffixes.endswith(".gz") else None) as stream:
                    content = stream.read()
                header = content.split(b"\n", 1)[0].removeprefix(b"\xef\xbb\xbf").decode("utf-8").strip()
                delimiter = ";" if ";" in header and "," not in header else ","
                names = [cell.strip().strip('"') for cell in header.split(delimiter)]
                table = pa_csv.read_csv(
                    pa.BufferReader(content),
                    read_options=pa_csv.ReadOptions(use_threads=False),
                    parse_options=pa_csv.ParseOptions(delimiter=delimiter),
                    convert_options=pa_csv.ConvertOptions(
                        column_types=dict.fromkeys(names, pa.string()), null_values=[], strings_can_be_null=False
                    ),
                )
            else:
                table = pq.read_table(path)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise PolicyError(f"{path.name} can't be read as a policy file: {error}") from None
        for column in needed:
            if column not in table.column_names:
                raise PolicyError(
                    f"{path.name} has no column {column!r}; a policy file needs state, action, probability."
                    f" It has {', '.join(table.column_names) or 'none'}.{did_you_mean(column, table.column_names)}"
                )
        return cls(name=path.name, is_csv=is_csv, table=table)

    def place(self, row: int) -> str:
        """Where a row stands, for messages."""
        return f"{self.name}, line {row + 2}" if self.is_csv else f"{self.name}, row {row + 1}"

    def labels(self, column: str, like: Labels | None = None) -> Labels:
        """A label column; of the same type as ``like`` if given, else of its own."""
        values = self.table.column(column).to_numpy(zero_copy_only=False)
        if like is None or like.dtype.kind == "U":
            return label_array(values if values.dtype.kind in "iu" and like is None else values.astype(np.str_))
        if values.dtype.kind in "iu":
            return label_array(values.astype(np.int64))
        if self.is_csv:
            text = values.astype(np.str_)
            whole = np.char.isdigit(np.char.lstrip(text, "-"))
            if np.all(whole):
                return label_array(text.astype(np.int64))
            row = int(np.argmin(whole))
        else:
            row = 0
        raise PolicyError(
            f"{column}s of the data are whole numbers; got {values[row]!r} in column {column!r} of {self.place(row)}."
        )

    def codes(self, column: str, vocabulary: Labels) -> Ints:
        """Positions of a label column in the sorted vocabulary; an error names the first label that is not in it."""
        values = self.labels(column, vocabulary)
        place = np.minimum(np.searchsorted(vocabulary, values), vocabulary.size - 1)
        unknown = np.flatnonzero(vocabulary[place] != values)
        if unknown.size:
            row = int(unknown[0])
            raise PolicyError(
                f"{column} {values[row]!s} in column {column!r} of {self.place(row)} is not in the data; it knows"
                f" {vocabulary.size} {column}s, such as {vocabulary[0]!s}."
                f"{did_you_mean(str(values[row]), map(str, vocabulary[:1000]))} Correct or drop the row."
            )
        return np.asarray(place, dtype=np.int64)

    def probabilities(self, column: str, x: Ints, a: Ints, states: Labels, actions: Labels) -> Floats:
        """A probability column as a policy [X, A]; an error names the first bad cell, or state."""
        cells = self.table.column(column).to_numpy(zero_copy_only=False)
        if cells.dtype.kind in "fiu":
            values = np.asarray(cells, dtype=np.float64)
        else:
            values = np.array([_float(cell) for cell in cells])
        bad = np.flatnonzero(~((values >= 0.0) & (values <= 1.0 + ROUNDING)))  # mixtures can end a last bit above 1
        if bad.size:
            row = int(bad[0])
            raise PolicyError(
                f"probabilities must be numbers in [0, 1]; got {cells[row]!s} in column {column!r} of {self.place(row)}."
                " Correct the cell."
            )
        policy = np.zeros((states.size, actions.size))
        policy[x, a] = values
        totals = policy.sum(axis=1)
        wrong = np.flatnonzero(np.abs(totals - 1.0) > SUM_TOL)
        if wrong.size:
            state = int(wrong[0])
            row = int(np.argmax(x == state))
            more = f" (and {wrong.size - 1} more states like it)" if wrong.size > 1 else ""
            raise PolicyError(
                f"the probabilities of a state must sum to 1; those of state {states[state]!s} sum to {totals[state]:.6g}{more},"
                f" beginning in {self.place(row)}. Correct them or add the rows that are missing."
            )
        return check_policy(policy, *policy.shape, name=f"policy in {self.name}", state_labels=states)


def _float(cell: object) -> float:
    """A cell as a number; NaN if it is none."""
    try:
        return float(str(cell))
    except ValueError:
        return math.nan
