"""Logs in memory: objectives, names of columns, and the Dataset of transitions.

Every signal is a reward to be maximised: a cost changes sign once, on reading, and back on writing.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bettersafe._system.files import whole_file
from bettersafe.errors import (
    DataError,
    Kind,
    ParameterError,
    WrongTypeError,
    as_array,
    as_kind,
    as_numbers,
    check_discount,
    check_path,
    check_type,
    check_types,
    shown,
)
from bettersafe.typing import Bools, Floats, Ints, Labels, Rng, frozen, generator

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence


OBJECTIVE_KINDS: dict[str, Kind] = {
    "name": "text",
    "discount": "number",
    "weight": "number",
    "lower_is_better": "true or false",
    "label": "text",
    "unit": "text",
    "reward_range": "pair of numbers",
}
"""Kinds of the fields of `Objective`."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """One reward signal.

    Attributes:
        name: Column of the log.
        discount: Discount factor γ_k.
        weight: Preference weight λ_k.
        lower_is_better: Whether the column is a cost.
        label: Name for people; ``name`` if None.
        unit: Unit of the column, for people.
        reward_range: Lowest and highest possible value of the column; None if not known.

    Examples:
        >>> pain = bettersafe.Objective(name="pain", lower_is_better=True, unit="points", reward_range=(0, 10))
        >>> pain.title, pain.discount, pain.weight
        ('pain', 0.99, 1.0)
    """

    name: str
    discount: float = 0.99
    weight: float = 1.0
    lower_is_better: bool = False
    label: str | None = None
    unit: str = ""
    reward_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for field, kind in OBJECTIVE_KINDS.items():
            value = getattr(self, field)
            if value is not None or field not in ("label", "reward_range"):
                what = "the name of an objective" if field == "name" else f"the {field} of {self.name}"
                object.__setattr__(self, field, as_kind(what, value, kind, setting=field))
        check_discount(self.name, self.discount)
        if self.reward_range is not None:
            low, high = self.reward_range
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise ParameterError(f"the range of {self.name} must be two numbers, low and high; got {low}, {high}.")
        if not (math.isfinite(self.weight) and self.weight >= 0.0):
            raise ParameterError(f"the weight of {self.name} must be 0 or more and finite; got {self.weight!r}.")

    @property
    def title(self) -> str:
        """The label, or the name if there is no label."""
        return self.name if self.label is None else self.label


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of the columns of a log.

    ``step="row-order"`` takes the rows of an episode in the order of the file. None stands for the column with the
    field's own name, if the file has one; for ``sampling_unit``, for no column.

    Examples:
        >>> columns = bettersafe.Columns(episode="stay", step="hour", state="condition", action="treatment")
        >>> columns.step
        'hour'
    """

    episode: str = "episode"
    step: str = "step"
    state: str = "state"
    action: str = "action"
    next_state: str | None = None
    terminated: str | None = None
    truncated: str | None = None
    baseline_prob: str | None = None
    sampling_unit: str | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None or field.default is not None:
                object.__setattr__(
                    self, field.name, as_kind(f"the column {field.name}", value, "text", setting=field.name)
                )


DEFAULT_COLUMNS = Columns()


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """N logged transitions of n episodes, with states and actions as indices into their labels.

    Attributes:
        states: x, shape [N].
        actions: a, shape [N].
        rewards: r_k, higher is better, shape [N, d].
        next_states: x', shape [N]; -1 if the row terminated, or if it is the last of a truncated episode and its
            next state is unknown.
        terminated: Whether the process ended with this row, shape [N].
        episode_ptr: Rows of episode i are episode_ptr[i]:episode_ptr[i+1], in step order, shape [n+1].
        baseline_prob: π_b(a|x) as logged, shape [N], or None.
        state_labels: User's names of the states, shape [X], integers or text.
        action_labels: User's names of the actions, shape [A].
        episode_labels: User's names of the episodes, shape [n].
        objectives: Reward signals, in the order of the columns of ``rewards``.
        notes: Remarks of the reader, for people.
        units: Number of every episode's sampling unit (a patient, a ward, a shop), from 0, shape [n]; None if every episode is
            one. Splits, folds and bounds are by unit.

    Examples:
        One episode of two rows, from a state "ill" to its end:

        >>> small = bettersafe.Dataset(
        ...     states=[0, 0],
        ...     actions=[0, 1],
        ...     rewards=[[0.0], [1.0]],
        ...     next_states=[0, -1],
        ...     terminated=[False, True],
        ...     episode_ptr=[0, 2],
        ...     state_labels=["ill"],
        ...     action_labels=["wait", "treat"],
        ...     episode_labels=[1],
        ...     objectives=[bettersafe.Objective(name="recovery")],
        ... )
        >>> small.n_rows, small.n_episodes, small.n_states
        (2, 1, 1)
    """

    states: Ints
    actions: Ints
    rewards: Floats
    next_states: Ints
    terminated: Bools
    episode_ptr: Ints
    baseline_prob: Floats | None = None
    state_labels: Labels
    action_labels: Labels
    episode_labels: Labels
    objectives: tuple[Objective, ...]
    notes: tuple[str, ...] = ()
    units: Ints | None = None

    def __post_init__(self) -> None:
        fields: dict[str, npt.NDArray[np.generic]] = {
            "states": frozen(self.states, np.int64, name="states"),
            "actions": frozen(self.actions, np.int64, name="actions"),
            "rewards": frozen(self.rewards, np.float64, name="rewards"),
            "next_states": frozen(self.next_states, np.int64, name="next_states"),
            "terminated": frozen(self.terminated, np.bool_, name="terminated"),
            "episode_ptr": frozen(self.episode_ptr, np.int64, name="episode_ptr"),
            "state_labels": label_array(self.state_labels, name="state_labels"),
            "action_labels": label_array(self.action_labels, name="action_labels"),
            "episode_labels": label_array(self.episode_labels, name="episode_labels"),
        }
        if self.baseline_prob is not None:
            fields["baseline_prob"] = frozen(self.baseline_prob, np.float64, name="baseline_prob")
        if self.units is not None:
            fields["units"] = frozen(self.units, np.int64, name="units")
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        check_objectives(self.objectives)
        object.__setattr__(self, "objectives", tuple(self.objectives))
        self._check_shapes()
        if self.n_rows:
            self._check_rows()

    def _check_shapes(self) -> None:
        n_rows, ptr = self.states.size, self.episode_ptr
        if self.states.ndim != 1:
            raise DataError(f"states must be one number per row; got shape {self.states.shape}.")
        for name in ("actions", "next_states", "terminated", "baseline_prob"):
            column = getattr(self, name)
            if column is not None and column.shape != (n_rows,):
                raise DataError(f"{name} must have {n_rows} entries, one per row; got shape {column.shape}.")
        expected = (n_rows, len(self.objectives))
        if self.rewards.shape != expected:
            names = ", ".join(objective.name for objective in self.objectives)
            raise DataError(
                f"rewards must have shape {expected}, one column per objective ({names}); got {self.rewards.shape}."
            )
        if ptr.ndim != 1 or not ptr.size or ptr[0] != 0 or ptr[-1] != n_rows or np.any(np.diff(ptr) <= 0):
            raise DataError(f"episode_ptr must rise from 0 to {n_rows}, the number of rows, with no empty episode.")
        if self.episode_labels.shape != (ptr.size - 1,):
            raise DataError(f"{ptr.size - 1} episodes need as many labels; got {self.episode_labels.shape}.")
        if self.units is not None and self.units.shape != (ptr.size - 1,):
            raise DataError(f"units must have {ptr.size - 1} entries, one per episode; got shape {self.units.shape}.")
        for name in ("state_labels", "action_labels"):
            labels = getattr(self, name)
            if labels.ndim != 1 or not _each_once(labels):
                raise DataError(f"{name} must be a list in which each label occurs once.")

    def _check_rows(self) -> None:
        for name, column, size in (
            ("states", self.states, self.n_states),
            ("actions", self.actions, self.n_actions),
        ):
            if column.min() < 0 or column.max() >= size:
                raise DataError(f"{name} must be indices below {size}, the number of their labels.")
        last = np.zeros(self.n_rows, dtype=np.bool_)
        last[self.episode_ptr[1:] - 1] = True
        inner = np.flatnonzero(~last)
        finite = np.isfinite(self.rewards)
        wrong = {
            "rewards must be finite": np.zeros(0, dtype=np.bool_) if finite.all() else ~finite.all(axis=1),
            "a terminated row must be the last of its episode": self.terminated & ~last,
            "the next state of a terminated row must be -1": self.terminated & (self.next_states != -1),
            f"next_states must be -1 or below {self.n_states}": (self.next_states < -1)
            | (self.next_states >= self.n_states),
        }
        chain = np.zeros(self.n_rows, dtype=np.bool_)
        chain[inner] = self.next_states[inner] != self.states[inner + 1]
        wrong["the next state must be the state of the next row"] = chain
        if self.baseline_prob is not None:
            wrong["baseline_prob must be in (0, 1]"] = ~((self.baseline_prob > 0) & (self.baseline_prob <= 1))
        for expected, rows in wrong.items():
            if np.any(rows):
                row = int(np.flatnonzero(rows)[0])
                episode = int(np.searchsorted(self.episode_ptr, row, side="right")) - 1
                raise DataError(
                    f"{expected}; it is not in row {row - self.episode_ptr[episode]} (from 0) of episode"
                    f" {self.episode_labels[episode]!s}."
                )

    def blocks(self) -> tuple[Dataset]:
        """The log as one block: itself."""
        return (self,)

    @property
    def n_rows(self) -> int:
        """The number N of rows."""
        return int(self.states.size)

    @property
    def n_episodes(self) -> int:
        """The number n of episodes."""
        return int(self.episode_ptr.size - 1)

    @property
    def n_truncated(self) -> int:
        """Number of episodes that did not terminate."""
        return int(np.count_nonzero(~self.terminated[self.episode_ptr[1:] - 1]))

    @property
    def n_states(self) -> int:
        """|X|."""
        return int(self.state_labels.size)

    @property
    def n_actions(self) -> int:
        """|A|."""
        return int(self.action_labels.size)

    @property
    def n_objectives(self) -> int:
        """The number d of objectives."""
        return len(self.objectives)


def user_sign(objective: Objective, value: float) -> float:
    """A return in the user's own sign: a reward as it is, a cost negated. The function is its own inverse."""
    return float(0.0 - value if objective.lower_is_better else value)


def reward_ranges(objectives: Sequence[Objective]) -> tuple[Floats, Floats] | None:
    """Lowest and highest rewards, higher is better, each [d]; None if the range of an objective is not known."""
    edges = []
    for objective in objectives:
        if objective.reward_range is None:
            return None
        low, high = objective.reward_range
        edges.append((-high, -low) if objective.lower_is_better else (low, high))
    lows, highs = np.array(edges).T
    return lows, highs


def lowest_rewards(objectives: Sequence[Objective], seen: Floats) -> Floats:
    """Lowest possible reward, higher is better, shape [d]: the smaller of the declared one, if any, and ``seen`` [d]."""
    ranges = [reward_ranges([objective]) for objective in objectives]
    return np.array([low if edges is None else min(low, edges[0][0]) for edges, low in zip(ranges, seen, strict=True)])


def in_vocabulary(dataset: Dataset, state_labels: Labels, action_labels: Labels) -> Dataset:
    """The log with states and actions as indices into other sorted labels, which must include its own."""
    if np.array_equal(state_labels, dataset.state_labels) and np.array_equal(action_labels, dataset.action_labels):
        return dataset
    state, action = (
        np.searchsorted(whole, own)
        for whole, own in ((state_labels, dataset.state_labels), (action_labels, dataset.action_labels))
    )
    following = dataset.next_states
    return replace(
        dataset,
        states=state[dataset.states],
        actions=action[dataset.actions],
        next_states=np.where(following >= 0, state[np.maximum(following, 0)], -1),
        state_labels=state_labels,
        action_labels=action_labels,
    )


def _each_once(labels: Labels) -> bool:
    """Whether no label occurs twice. Checks for sorted labels first: it is fast, and runs for every block of a log."""
    rising = bool(np.all(np.greater(labels[1:], labels[:-1])))
    return rising or np.unique(labels).size == labels.size


def label_array(values: npt.ArrayLike, *, name: str = "labels") -> Labels:
    """Labels as a read-only array, int64 for integers, else text. Raises WrongTypeError, with ``name``, for lists in lists."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise WrongTypeError(f"{name} must be a list of labels; got a list of lists of different lengths.") from None
    if array.ndim == 0:
        raise WrongTypeError(f"{name} must be a list of labels; got {shown(values)}.")
    dtype = np.int64 if array.dtype.kind in "iu" else np.str_
    return frozen(array, dtype, name=name)  # type: ignore[return-value]


def check_objectives(objectives: Sequence[Objective]) -> None:
    """Raise DataError unless there is at least one objective and their names differ."""
    check_types("objectives", objectives, Objective)
    names = [objective.name for objective in objectives]
    if not names:
        raise DataError("a log needs at least one objective; got none. Name one with `objectives`.")
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"objective {name!r} is given twice. Give it once.")


def take_episodes(dataset: Dataset, indices: npt.ArrayLike) -> Dataset:
    """The episodes ``indices``, in this order, with the whole vocabulary and without notes.

    Args:
        dataset: Dataset to split.
        indices: Indices of the episodes, from 0.

    Examples:
        >>> from bettersafe.logs import take_episodes
        >>> take_episodes(log, [7, 3]).episode_labels
        array([7, 3])
    """
    check_type("dataset", dataset, Dataset)
    chosen = as_array("indices", indices, np.int64)
    if chosen.ndim != 1 or (chosen.size and (chosen.min() < 0 or chosen.max() >= dataset.n_episodes)):
        raise ParameterError(f"indices of episodes must be a list of numbers below {dataset.n_episodes}.")
    starts, lengths = dataset.episode_ptr[chosen], np.diff(dataset.episode_ptr)[chosen]
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.arange(ptr[-1]) + np.repeat(starts - ptr[:-1], lengths)
    prob = dataset.baseline_prob
    return replace(
        dataset,
        states=dataset.states[rows],
        actions=dataset.actions[rows],
        rewards=dataset.rewards[rows],
        next_states=dataset.next_states[rows],
        terminated=dataset.terminated[rows],
        baseline_prob=None if prob is None else prob[rows],
        episode_ptr=ptr,
        episode_labels=dataset.episode_labels[chosen],
        units=None if dataset.units is None else dataset.units[chosen],
        notes=(),
    )


def split(dataset: Dataset, fractions: Sequence[float], rng: Rng = 0) -> tuple[Dataset, ...]:
    """Split a dataset by episode, or by sampling unit if it has them, at random.

    Args:
        dataset: Dataset to split.
        fractions: Share of episodes (units) of each part; positive, summing to 1. Cumulative shares are rounded.
        rng: Seed or generator of the permutation.

    Returns:
        One Dataset per fraction, each with the whole vocabulary and its episodes in their original order.

    Examples:
        >>> train, test = bettersafe.split(log, [0.75, 0.25], rng=0)
        >>> train.n_episodes, test.n_episodes
        (750, 250)
    """
    check_type("dataset", dataset, Dataset)
    parts = random_parts(dataset.n_episodes, fractions, rng, units=dataset.units)
    return tuple(take_episodes(dataset, part) for part in parts)


def random_parts(
    n_episodes: int, fractions: Sequence[float], rng: Rng, *, units: Ints | None = None
) -> tuple[Ints, ...]:
    """Indices of the episodes of every part, sorted; as in `split`."""
    if units is not None:
        of_episode = np.unique(units, return_inverse=True)[1]
        chosen = random_parts(int(of_episode.max()) + 1, fractions, rng)
        return tuple(np.flatnonzero(np.isin(of_episode, part)) for part in chosen)
    shares = as_numbers("fractions", fractions)
    if shares.ndim != 1 or not shares.size or not np.all(shares > 0) or not np.isclose(shares.sum(), 1.0):
        raise ParameterError(f"fractions must be positive and sum to 1; got {shares.tolist()}.")
    cuts = np.rint(np.cumsum(shares) * n_episodes).astype(np.int64)
    parts = np.split(generator(rng).permutation(n_episodes), cuts[:-1])
    for share, part in zip(shares, parts, strict=True):
        if not part.size:
            raise DataError(
                f"a share of {share:g} of {n_episodes} episodes leaves none. Log more, or split differently."
            )
    return tuple(np.sort(part) for part in parts)


def write_dataset(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Write a Parquet file that ``read_dataset`` reads back, one row per transition.

    Labels and signs are the user's. Labels that no row uses are not written. The file appears under its name
    only when it is complete.

    Args:
        dataset: The log.
        path: File to write.

    Examples:
        >>> bettersafe.write_dataset(log, "copy.parquet")
        >>> bettersafe.read_dataset("copy.parquet", objectives=log.objectives).n_rows == log.n_rows
        True
    """
    import pyarrow as pa
    from pyarrow import parquet

    from bettersafe.logs._reader.files import SCHEMA, SCHEMA_KEY

    check_type("dataset", dataset, Dataset)
    check_path("path", path)
    if np.unique(dataset.episode_labels).size != dataset.n_episodes:
        raise DataError("episodes must have different labels to be written; some occur twice.")
    lengths = np.diff(dataset.episode_ptr)
    states = pa.array(dataset.state_labels)
    known = pa.array(dataset.next_states, mask=dataset.next_states < 0)
    columns = {
        "episode": pa.array(dataset.episode_labels).take(pa.array(np.repeat(np.arange(lengths.size), lengths))),
        "step": pa.array(np.arange(dataset.n_rows) - np.repeat(dataset.episode_ptr[:-1], lengths)),
        "state": states.take(pa.array(dataset.states)),
        "action": pa.array(dataset.action_labels).take(pa.array(dataset.actions)),
        "next_state": states.take(known),
        "terminated": pa.array(dataset.terminated),
    }
    if dataset.baseline_prob is not None:
        columns["baseline_prob"] = pa.array(dataset.baseline_prob)
    for k, objective in enumerate(dataset.objectives):
        if objective.name in {*columns, *(field.name for field in dataclasses.fields(Columns))}:
            raise DataError(
                f"an objective can't be called {objective.name!r}: another column has this name. Rename it."
            )
        reward = dataset.rewards[:, k]
        # 0 - r, not -r: a cost of 0 should not come back as -0.
        columns[objective.name] = pa.array(0.0 - reward if objective.lower_is_better else reward)
    stored = json.dumps([dataclasses.asdict(objective) for objective in dataset.objectives])
    table = pa.table(columns).replace_schema_metadata({SCHEMA_KEY: SCHEMA, "bettersafe.objectives": stored})
    with whole_file(path) as partial:
        parquet.write_table(table, partial)
