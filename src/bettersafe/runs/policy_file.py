"""Policy files: one row per (state, action), with columns ``state``, ``action``, ``probability`` and optional others.

The format is Parquet or CSV. Missing rows have probability 0. States and actions are the user's labels. Probabilities may be
rounded (`sum_tolerance`). A file may have more states than the log. In the policy file of a run, ``probability`` is the policy to
use, so the file can be deployed, or given as a baseline, as it is. If the run refused its proposal, the column ``proposal`` has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bettersafe._system.files import whole_file
from bettersafe._system.memory import check_memory
from bettersafe.errors import PolicyError, check_path, did_you_mean
from bettersafe.logs.dataset import label_array
from bettersafe.mdp.policy import ROUNDED, check_policy, distributions, policy_table, rounding_note, sum_tolerance

if TYPE_CHECKING:
    import pyarrow as pa

    from bettersafe.typing import Floats, Ints, Labels


SCHEMA = "policy/1"

TABLES = 4
"""Tables [X, A] that a run with all states of a baseline file needs: the file's policy, baseline, proposal, visits."""


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
    """Write ``policy`` [X, A], with the probabilities of a baseline and a proposal and the visits of each pair, if given.

    A name that ends in .csv gives CSV, any other Parquet. Rows in which every column is 0 are left out. The file is written
    under a temporary name and then renamed.

    Args:
        path: File to write.
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
    size = (state_labels.size, action_labels.size)
    policy = distributions(policy, *size)
    columns: dict[str, Floats | Ints] = {"probability": policy}
    if baseline is not None:
        columns["baseline"] = distributions(baseline, *size, name="baseline")
    if proposal is not None:
        columns["proposal"] = distributions(proposal, *size, name="proposal")
    if counts is not None:
        policy_table(counts, *size, name="count")
        columns["count"] = np.asarray(counts)
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
    """Read a policy [X, A] for the given vocabulary; rows of other states are ignored.

    Args:
        path: Policy file: Parquet or CSV.
        state_labels: Names of the states, shape [X].
        action_labels: Names of the actions, shape [A].
        column: Column of probabilities.

    Raises:
        PolicyError: If the file does not exist, a column is missing, an action of these states is not in the vocabulary, a pair
            is repeated, a state has no row, or probabilities don't sum to 1.

    Examples:
        >>> from bettersafe.runs import read_policy
        >>> read_policy("run/policy.parquet", log.state_labels, log.action_labels).shape
        (6, 3)
    """
    check_path("path", path)
    state_labels, action_labels = label_array(state_labels), label_array(action_labels)
    file = _PolicyFile.open(path, ("state", "action", column)).only(state_labels)
    return file.policy(column, state_labels, action_labels)[0]


@dataclass(frozen=True, kw_only=True)
class WholePolicy:
    """All states and actions of a policy file and of a log.

    Attributes:
        state_labels: Names of the states, sorted, shape [X].
        action_labels: Names of the actions, sorted, shape [A].
        policy: π, shape [X, A].
        notes: Remarks for people.
    """

    state_labels: Labels
    action_labels: Labels
    policy: Floats
    notes: tuple[str, ...]


def read_whole_policy(path: str | Path, state_labels: Labels, action_labels: Labels) -> WholePolicy:
    """Read every row of a policy file; the vocabulary is that of the file and the given one together.

    Raises:
        PolicyError: As `read_policy`, also for rows of states outside of the given vocabulary.
    """
    file = _PolicyFile.open(path, ("state", "action", "probability"))
    file.only(state_labels)
    states = label_array(np.union1d(state_labels, file.labels("state", state_labels)))
    actions = label_array(np.union1d(action_labels, file.labels("action", action_labels)))
    check_memory(
        TABLES * 8.0 * states.size * actions.size, f"{file.name} with {states.size:,} states × {actions.size:,} actions"
    )
    policy, totals = file.policy("probability", states, actions)
    return WholePolicy(
        state_labels=states,
        action_labels=actions,
        policy=policy,
        notes=rounding_note(f"in {file.name}", totals),
    )


@dataclass(frozen=True, kw_only=True)
class SavedPolicy:
    """Content of the policy file of a run.

    Attributes:
        state_labels: State labels, shape [X].
        policy: Policy to use, shape [X, A].
        baseline: π_b, shape [X, A].
        proposal: Proposed policy, shape [X, A]; equal to ``policy`` if the file has no such column.
        counts: Visits of every pair, shape [X, A].
    """

    state_labels: Labels
    policy: Floats
    baseline: Floats
    proposal: Floats
    counts: Ints


def read_saved_policy(path: Path, action_labels: Labels) -> SavedPolicy:
    """Read a file that `write_policy` wrote with a baseline and counts."""
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
    policy, baseline, *rest = (file.probabilities(column, x, a, states, action_labels)[0] for column in columns)
    return SavedPolicy(
        state_labels=states, policy=policy, baseline=baseline, proposal=rest[0] if own else policy, counts=counts
    )


def policy_actions(path: str | Path, state_labels: Labels, like: Labels) -> Labels:
    """Sorted actions of these states in a policy file, as labels of the type of ``like``.

    They may include actions that were never logged.
    """
    file = _PolicyFile.open(path, ("state", "action")).only(state_labels)
    return label_array(np.unique(file.labels("action", like)))


def counted_states(labels: Labels) -> str:
    """Number of states with the first labels, in words."""
    first = ", ".join(str(label) for label in labels[:3])
    return f"1 state ({first})" if labels.size == 1 else f"{labels.size:,} states (such as {first})"


def in_vocabulary(
    policy: Floats, states: Labels, actions: Labels, to_states: Labels, to_actions: Labels, *, elsewhere: Floats
) -> Floats:
    """``policy`` extended to larger, sorted vocabularies; states that it lacks get the rows of ``elsewhere``."""
    wide = np.zeros(elsewhere.shape)
    x, a = np.searchsorted(to_states, states), np.searchsorted(to_actions, actions)
    wide[np.ix_(x, a)] = policy
    new = np.setdiff1d(np.arange(to_states.size), x)
    wide[new] = elsewhere[new]
    return wide


@dataclass(frozen=True, kw_only=True)
class _PolicyFile:
    """Table of a policy file; CSV cells are read as text, so that labels such as 007 or NA are not changed."""

    name: str
    is_csv: bool
    table: pa.Table
    rows: Ints | None = None  # rows of the file that the table has; None: all

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
            raise PolicyError(f"a policy file must be Parquet or CSV; got {path.name}.")
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
        """File and line of a row, for messages."""
        row = row if self.rows is None else int(self.rows[row])
        return f"{self.name}, line {row + 2}" if self.is_csv else f"{self.name}, row {row + 1}"

    def only(self, state_labels: Labels) -> _PolicyFile:
        """The rows of these states. Raises PolicyError if a state has none."""
        values = self.labels("state", state_labels)
        absent = np.setdiff1d(state_labels, values)
        if absent.size:
            others = np.setdiff1d(values, state_labels)
            raise PolicyError(
                f"{self.name} has no row for state {absent[0]!s}"
                + (f" and {absent.size - 1} more states of the data." if absent.size > 1 else ", which is in the data.")
                + (f" It has {counted_states(others)} that the data does not have." if others.size else "")
                + " Add the missing rows."
            )
        rows = np.flatnonzero(np.isin(values, state_labels))
        return self if rows.size == values.size else replace(self, table=self.table.take(rows), rows=rows)

    def policy(self, column: str, state_labels: Labels, action_labels: Labels) -> tuple[Floats, Floats]:
        """Policy [X, A] of all rows, and the sums [X] of its probabilities before they were normalised."""
        x, a = self.codes("state", state_labels), self.codes("action", action_labels)
        flat, first = np.unique(x * action_labels.size + a, return_index=True)
        if flat.size < x.size:
            row = int(np.setdiff1d(np.arange(x.size), first)[0])
            raise PolicyError(
                f"state {state_labels[x[row]]!s}, action {action_labels[a[row]]!s} is repeated in {self.place(row)}."
                " Remove one of the two rows."
            )
        return self.probabilities(column, x, a, state_labels, action_labels)

    def labels(self, column: str, like: Labels | None = None) -> Labels:
        """Label column, converted to the type of ``like`` if given."""
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
        """Indices of a label column in the sorted vocabulary. Raises PolicyError on the first unknown label."""
        values = self.labels(column, vocabulary)
        place = np.minimum(np.searchsorted(vocabulary, values), vocabulary.size - 1)
        unknown = np.flatnonzero(vocabulary[place] != values)
        if unknown.size:
            row = int(unknown[0])
            raise PolicyError(
                f"{column} {values[row]!s} in column {column!r} of {self.place(row)} is not in the data, which has"
                f" {vocabulary.size} {column}s, such as {vocabulary[0]!s}."
                f"{did_you_mean(str(values[row]), map(str, vocabulary[:1000]))} Correct or drop the row."
            )
        return np.asarray(place, dtype=np.int64)

    def probabilities(self, column: str, x: Ints, a: Ints, states: Labels, actions: Labels) -> tuple[Floats, Floats]:
        """Policy [X, A] from a probability column, and its sums [X] as they are. Raises PolicyError on the first bad cell or state."""
        cells = self.table.column(column).to_numpy(zero_copy_only=False)
        if cells.dtype.kind in "fiu":
            values = np.asarray(cells, dtype=np.float64)
        else:
            values = np.array([_float(cell) for cell in cells])
        bad = np.flatnonzero(~((values >= 0.0) & (values <= 1.0 + ROUNDED)))  # a mixture can round to just above 1
        if bad.size:
            row = int(bad[0])
            raise PolicyError(
                f"probabilities must be numbers in [0, 1]; got {cells[row]!s} in column {column!r} of {self.place(row)}."
                " Correct the cell."
            )
        policy = np.zeros((states.size, actions.size))
        policy[x, a] = values
        totals = policy.sum(axis=1)
        wrong = np.flatnonzero(np.abs(totals - 1.0) > sum_tolerance(actions.size))
        if wrong.size:
            state = int(wrong[0])
            row = int(np.argmax(x == state))
            more = f" (and {wrong.size - 1} more states like it)" if wrong.size > 1 else ""
            raise PolicyError(
                f"the probabilities of a state must sum to 1; those of state {states[state]!s} sum to {totals[state]:.9g}{more},"
                f" beginning in {self.place(row)}. Correct them or add the missing rows."
            )
        return check_policy(policy, *policy.shape, name=f"policy in {self.name}", state_labels=states), totals


def _float(cell: object) -> float:
    """Number in a cell; NaN if it is not a number."""
    try:
        return float(str(cell))
    except ValueError:
        return math.nan
