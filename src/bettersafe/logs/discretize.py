"""Discrete states from continuous features: a map that is fitted once, on training rows, and then applied.

Every feature j is transformed, and the state of a row is the nearest of k centres:

    z_j = (x_j − mean_j) / sd_j                 zscore
    z_j = (log(0.1 + x_j) − mean_j) / sd_j      log-zscore, for skewed features: doses, waste products, volumes
    z_j = x_j − ½                               binary
    z_j = x_j                                   none
    state = argmin_i ‖z − c_i‖²                 ties go to the lowest i

Means, standard deviations (n − 1 in the denominator) and centres come from the training rows alone: a map fitted on
the test rows would make estimates on them optimistic.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from bettersafe._system.files import whole_file, whole_folder
from bettersafe.errors import (
    DataError,
    ParameterError,
    WrongTypeError,
    check_choice,
    check_integer,
    check_number,
    check_options,
    check_path,
    check_paths,
    check_type,
    check_types,
    shown,
)
from bettersafe.logs._reader.features import read_features
from bettersafe.logs._reader.files import DISCRETIZED_KEY, DISCRETIZER
from bettersafe.logs._reader.tables import open_table
from bettersafe.logs.dataset import DEFAULT_COLUMNS, Columns
from bettersafe.logs.roles import REQUIRED
from bettersafe.typing import Event, Floats, Ints, Progress, Rng, frozen, generator, ignore

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from bettersafe.logs._reader.files import PathsLike


Features: TypeAlias = "Mapping[str, npt.ArrayLike] | pa.Table | npt.NDArray[Any]"
Wanted: TypeAlias = "Sequence[str | tuple[str, Transform]]"
Transform = Literal["zscore", "log-zscore", "binary", "none"]
TRANSFORMS: tuple[str, ...] = get_args(Transform)
SCHEMA = "discretizer/1"

LOG_SHIFT = 0.1
"""Added before the logarithm, so that it is finite for a dose of 0 (Komorowski et al. 2018)."""

BLOCK_BYTES = 1 << 26
"""Approximate memory of the distances between a block of rows and all centres."""


@dataclass(frozen=True, kw_only=True)
class FeatureRule:
    """Transform of one feature.

    Attributes:
        name: Column of the feature.
        transform: "zscore", "log-zscore", "binary" or "none".
        mean: Mean over the training rows, of the logarithm for "log-zscore"; 0 for "binary" and "none".
        sd: Standard deviation over the training rows, as for ``mean``; 1 for "binary" and "none".
    """

    name: str
    transform: Transform = "zscore"
    mean: float = 0.0
    sd: float = 1.0

    def __post_init__(self) -> None:
        check_type("the name of a feature", self.name, str)
        check_choice(f"the transform of {self.name}", self.transform, TRANSFORMS)
        check_number(f"the mean of {self.name}", self.mean)
        check_number(f"the sd of {self.name}", self.sd)
        if not (math.isfinite(self.mean) and math.isfinite(self.sd) and self.sd > 0.0):
            raise ParameterError(
                f"{self.name} needs a finite mean and a positive standard deviation; got {self.mean!r}, {self.sd!r}."
            )


@dataclass(frozen=True, kw_only=True)
class Discretizer:
    """A fitted map from f features to k states.

    Attributes:
        features: Rule of every feature, in the order of the columns of ``centers``.
        centers: Centres c_i in the transformed space, shape [k, f].
    """

    features: tuple[FeatureRule, ...]
    centers: Floats

    def __post_init__(self) -> None:
        check_types("features", self.features, FeatureRule)
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "centers", frozen(self.centers, np.float64, name="centers"))
        names = self.names
        if not names or len(set(names)) < len(names):
            raise ParameterError(
                f"features must be at least one, with different names; got {', '.join(names) or 'none'}."
            )
        if self.centers.ndim != 2 or self.centers.shape[1] != len(names) or not self.centers.size:
            raise ParameterError(f"centers must have shape [k, {len(names)}]; got {self.centers.shape}.")
        if not np.all(np.isfinite(self.centers)):
            raise ParameterError("centers must be finite.")

    @property
    def n_states(self) -> int:
        """The number k of states."""
        return int(self.centers.shape[0])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, length f."""
        return tuple(rule.name for rule in self.features)


def fit_discretizer(
    table: Features,
    *,
    features: Wanted | None = None,
    k: int,
    rng: Rng = 0,
    quick: bool = False,
    n_init: int = 10,
) -> Discretizer:
    """Fit the map on training rows: statistics per feature, then k-means (scikit-learn) on the transformed features.

    Args:
        table: Training rows: name -> column, an Arrow table, or an array [N, f] with ``features`` naming its columns.
        features: Names, or (name, transform); a name alone stands for a z-score. All columns of the table if None.
        k: Number of states.
        rng: Seed or generator of the starts of k-means.
        quick: Whether to use mini-batches and a single start: seconds instead of minutes, with somewhat wider clusters.
        n_init: Starts of the full k-means; the tightest clustering is taken.

    Returns:
        The map. With equal rows, seed and versions it is equal to the bit on one or two threads; with more threads the
        last bits of sums may differ (``OMP_NUM_THREADS=1`` prevents it).

    Examples:
        >>> from bettersafe.logs import fit_discretizer
        >>> vitals = {"pulse": [60.0, 62.0, 118.0, 120.0], "lactate": [1.0, 1.2, 6.0, 7.0]}
        >>> fit_discretizer(vitals, features=["pulse", ("lactate", "log-zscore")], k=2).n_states
        2
    """
    check_options(quick=quick)
    _check_table(table)
    if features is None:
        if isinstance(table, np.ndarray):
            raise ParameterError("name the features of an array: features=['age', ...], one per column.")
        features = list(table.column_names if hasattr(table, "column_names") else table)
    rules = _rules(features)
    values = _matrix(table, [rule.name for rule in rules])
    check_domain(rules, values)
    check_integer("k", k, least=1)
    check_integer("n_init", n_init, least=1)
    if k > values.shape[0]:
        raise DataError(f"{k} states need at least as many training rows; got {values.shape[0]}. Choose a smaller k.")
    fitted = tuple(_fit_rule(rule, values[:, j]) for j, rule in enumerate(rules))
    drawn = generator(rng)
    seed = int(drawn.integers(2**31)) if isinstance(rng, np.random.Generator) or rng >= 2**32 else int(rng)
    centers = _k_means(_transform(fitted, values), k=k, random_state=seed, quick=quick, n_init=n_init)
    return Discretizer(features=fitted, centers=centers)


def assign_states(discretizer: Discretizer, table: Features) -> Ints:
    """State of every row: the nearest centre, shape [N]. Needs no scikit-learn, and works in blocks of rows.

    Args:
        discretizer: Fitted map.
        table: Rows with the map's features among their columns, or an array [N, f] in the map's order.

    Examples:
        >>> from bettersafe.logs import assign_states, fit_discretizer
        >>> fitted = fit_discretizer({"pulse": [60.0, 62.0, 118.0, 120.0]}, k=2)
        >>> low, high = assign_states(fitted, {"pulse": [64.0, 130.0]})
        >>> bool(low != high)
        True
    """
    check_type("discretizer", discretizer, Discretizer)
    _check_table(table)
    values = _matrix(table, discretizer.names)
    check_domain(discretizer.features, values)
    states = np.empty(values.shape[0], dtype=np.int64)
    half = 0.5 * np.einsum("ij,ij->i", discretizer.centers, discretizer.centers)
    for part in _blocks(values.shape[0], discretizer.n_states):
        z = _transform(discretizer.features, values[part])
        # ‖z − c‖² = ‖z‖² − 2 (z·c − ‖c‖²/2), and ‖z‖² is equal for all centres
        states[part] = np.argmin(half - z @ discretizer.centers.T, axis=1)
    return states


def explained_share(discretizer: Discretizer, table: Features, states: Ints) -> float:
    """Share of the features' variance explained by the states: 1 − Σ‖z − c_state‖² / Σ‖z − z̄‖²; NaN if all rows are equal."""
    values = _matrix(table, discretizer.names)
    within, total, count = 0.0, np.zeros(len(discretizer.features)), values.shape[0]
    mean = np.zeros(len(discretizer.features))
    for part in _blocks(count, discretizer.n_states):
        mean += _transform(discretizer.features, values[part]).sum(axis=0) / max(count, 1)
    for part in _blocks(count, discretizer.n_states):
        z = _transform(discretizer.features, values[part])
        within += float(np.sum((z - discretizer.centers[states[part]]) ** 2))
        total += np.sum((z - mean) ** 2, axis=0)
    whole = float(total.sum())
    return 1.0 - within / whole if whole > 0.0 else math.nan


def save_discretizer(discretizer: Discretizer, path: str | os.PathLike[str]) -> None:
    """Write a Parquet file that `load_discretizer` reads back to the bit. It appears under its name only when complete.

    Args:
        discretizer: Fitted map.
        path: File to write.

    Examples:
        >>> from bettersafe.logs import fit_discretizer, load_discretizer, save_discretizer
        >>> save_discretizer(fit_discretizer({"pulse": [60.0, 62.0, 118.0, 120.0]}, k=2), "map.parquet")
        >>> load_discretizer("map.parquet").names
        ('pulse',)
    """
    import pyarrow as pa

    check_type("discretizer", discretizer, Discretizer)
    check_path("path", path)
    flat = pa.array(discretizer.centers.ravel())
    table = pa.table(
        {
            "state": pa.array(np.arange(discretizer.n_states)),
            "center": pa.FixedSizeListArray.from_arrays(flat, len(discretizer.features)),
        }
    ).replace_schema_metadata(
        {
            "bettersafe.schema": SCHEMA,
            "bettersafe.features": json.dumps([asdict(rule) for rule in discretizer.features], allow_nan=False),
        }
    )
    _write_parquet(table, Path(path))


def load_discretizer(path: str | os.PathLike[str]) -> Discretizer:
    """Read a saved map. Raises DataError if its schema or shape is wrong.

    Args:
        path: File of `save_discretizer` or `discretize_log`.

    Examples:
        >>> from bettersafe.logs import fit_discretizer, load_discretizer, save_discretizer
        >>> save_discretizer(fit_discretizer({"pulse": [60.0, 62.0, 118.0, 120.0]}, k=2), "map.parquet")
        >>> load_discretizer("map.parquet").n_states
        2
    """
    import pyarrow as pa
    from pyarrow import parquet

    check_path("path", path)
    place = Path(path)
    if not place.is_file():
        raise DataError(f"there is no file {place}. Name a map that `discretize_log` wrote (discretizer.parquet).")
    try:
        table = parquet.read_table(place)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{place} can't be read as a saved map: {error}") from None
    metadata = table.schema.metadata or {}
    schema = metadata.get(b"bettersafe.schema", b"none").decode()
    if schema != SCHEMA:
        raise DataError(f"{place} has schema {schema!r}; a saved map has {SCHEMA!r}. Name another file, or update.")
    try:
        rules = tuple(FeatureRule(**rule) for rule in json.loads(metadata[b"bettersafe.features"]))
        states = table.column("state").to_numpy()
        centers = np.array(table.column("center").to_pylist(), dtype=np.float64)
        if not np.array_equal(states, np.arange(states.size)):
            raise ValueError("its states are not 0, 1, 2, ...")
        return Discretizer(features=rules, centers=centers)
    except (KeyError, TypeError, ValueError, ParameterError) as error:
        raise DataError(f"{place} is not a complete map: {error}. Fit it again.") from None


def check_domain(
    rules: Sequence[FeatureRule], values: Floats, place: Callable[[int], str] = lambda row: f"row {row + 1}"
) -> None:
    """Raise DataError at the first cell outside the domain of its rule: not finite, no logarithm, not binary.

    Args:
        rules: Rule of every column.
        values: Features, shape [N, f].
        place: Row number (from 0) -> its name in messages.
    """
    for j, rule in enumerate(rules):
        column = values[:, j]
        wrong = {"a finite number": ~np.isfinite(column)}
        if rule.transform == "log-zscore":
            wrong[f"above −{LOG_SHIFT:g} to have log({LOG_SHIFT:g} + x)"] = column <= -LOG_SHIFT
        if rule.transform == "binary":
            wrong["0 or 1"] = (column != 0.0) & (column != 1.0)
        for expected, rows in wrong.items():
            if np.any(rows):
                row = int(np.argmax(rows))
                raise DataError(
                    f"feature {rule.name!r} must be {expected}; got {column[row]:g} in {place(row)}."
                    " Correct it or leave out its episode."
                )


@dataclass(frozen=True, kw_only=True)
class LogPart:
    """Contents of one of the written logs.

    Attributes:
        rows: Number of decisions.
        episodes: Number of episodes.
        states: Number of different states.
        explained: Share of the features' variance explained by the states.
    """

    rows: int
    episodes: int
    states: int
    explained: float


@dataclass(frozen=True, kw_only=True)
class Discretization:
    """Result of `discretize_log`.

    Attributes:
        discretizer: Map, fitted or given.
        parts: File name -> contents.
        passed_on: Other columns of the logs, besides episode, step, state and action.
    """

    discretizer: Discretizer
    parts: dict[str, LogPart]
    passed_on: tuple[str, ...]


def discretize_log(
    data: PathsLike,
    output: str | os.PathLike[str],
    *,
    k: int = 750,
    columns: Columns = DEFAULT_COLUMNS,
    objectives: Sequence[str] = (),
    features: Wanted | None = None,
    train_share: float | None = None,
    fitted: str | os.PathLike[str] | None = None,
    rng: Rng = 0,
    quick: bool = False,
    n_init: int = 10,
    force: bool = False,
    progress: Progress | None = None,
) -> Discretization:
    """Turn a table of continuous features into logs with a column ``state``, and save the map beside them.

    Args:
        data: File, glob, or list of them, with one row per decision.
        output: Folder to write: ``log.parquet``, or ``train.parquet`` and ``test.parquet``; ``discretizer.parquet``.
        k: Number of states; with ``fitted``, that of the map.
        columns: Names of the columns of episode, step, action and, if any, terminated, truncated, baseline_prob.
        objectives: Reward columns: copied to the logs, and never features.
        features: Names, or (name, transform); if None, every numeric column without another role. Then
            ``objectives`` must be given, or the rewards would become part of the state.
        train_share: Share of episodes, drawn at random, that the map is fitted on; the others are the test log.
        fitted: Saved map to apply instead of fitting one. The table then needs no actions, e.g. for new patients who
            await a decision.
        rng: Seed or generator of the split and of the starts of k-means.
        quick: See `fit_discretizer`.
        n_init: See `fit_discretizer`.
        force: Whether to replace an earlier result.
        progress: Called at every step.

    Returns:
        The map and the contents of the logs. Columns with a role get its default name; all others but features keep theirs.

    Examples:
        >>> import pyarrow as pa
        >>> from pyarrow import parquet
        >>> draw = np.random.default_rng(0)
        >>> vitals = {"pulse": draw.normal(80, 10, 200), "lactate": draw.exponential(2, 200)}
        >>> stays = {"episode": np.arange(200) // 4, "step": np.arange(200) % 4, "action": draw.integers(0, 2, 200)}
        >>> parquet.write_table(pa.table({**stays, **vitals, "comfort": draw.random(200)}), "vitals.parquet")
        >>> made = bettersafe.discretize_log("vitals.parquet", "states", k=5, objectives=["comfort"])
        >>> made.discretizer.names, made.parts["log.parquet"].states
        (('pulse', 'lactate'), 5)
    """
    check_paths("data", data)
    check_path("output", output)
    check_type("columns", columns, Columns)
    check_types("objectives", objectives, str)
    check_options(quick=quick, force=force, progress=progress)
    if fitted is not None:
        check_path("fitted", fitted)
    say = progress or ignore
    given = None if fitted is None else load_discretizer(fitted)
    if given is not None and (features is not None or train_share is not None):
        raise ParameterError(
            "a fitted map has its own features and is not fitted again; leave out `features` and `train_share`."
        )
    if train_share is not None:
        check_number("train_share", train_share)
        if not 0.0 < train_share < 1.0:
            raise ParameterError(f"the training share must be between 0 and 1; got {train_share!r}.")
    with whole_folder(output, mark=DISCRETIZER, force=force) as folder:
        say(Event(what="Reading"))
        rules = given.features if given is not None else None if features is None else _rules(features)
        with open_table(data) as table:
            names = None if rules is None else [rule.name for rule in rules]
            read = read_features(
                table, columns=columns, objectives=objectives, features=names, action_optional=given is not None
            )
            rules = _rules(read.features) if rules is None else rules
            check_domain(rules, read.values, table.place)
        log, values, episode = read.log.take(read.order), read.values[read.order], read.episode[read.order]
        n_episodes = int(episode[-1]) + 1
        parts = {"log": np.ones(episode.size, dtype=np.bool_)}
        if train_share is not None:
            n_train = math.floor(train_share * n_episodes + 1e-9)
            if not 0 < n_train < n_episodes:
                raise DataError(
                    f"a share of {train_share:g} of {n_episodes} episodes leaves a part empty. Choose another."
                )
            train = np.isin(episode, generator(rng).permutation(n_episodes)[:n_train])
            parts = {"train": train, "test": ~train}
        if given is None:
            rows = values[next(iter(parts.values()))]
            say(Event(what=f"Finding {k:,} states in {rows.shape[0]:,} rows"))
            wanted = [(rule.name, rule.transform) for rule in rules]
            given = fit_discretizer(rows, features=wanted, k=k, rng=rng, quick=quick, n_init=n_init)
        say(Event(what="Writing"))
        states = assign_states(given, values)
        log = log.add_column(2, "state", [states])
        held = {}
        for name, chosen in parts.items():
            part = log.filter(chosen).replace_schema_metadata({DISCRETIZED_KEY: str(given.n_states)})
            _write_parquet(part, folder / f"{name}.parquet")
            held[f"{name}.parquet"] = LogPart(
                rows=int(np.count_nonzero(chosen)),
                episodes=int(np.unique(episode[chosen]).size),
                states=int(np.unique(states[chosen]).size),
                explained=explained_share(given, values[chosen], states[chosen]),
            )
        save_discretizer(given, folder / DISCRETIZER)
    passed_on = tuple(name for name in log.column_names if name not in REQUIRED)
    return Discretization(discretizer=given, parts=held, passed_on=passed_on)


def _check_table(table: object) -> None:
    """Raise unless ``table`` has columns by name, or is an array."""
    by_name = hasattr(table, "column_names") or (hasattr(table, "keys") and hasattr(table, "__getitem__"))
    if not by_name and not isinstance(table, np.ndarray):
        raise WrongTypeError(
            f"table must be columns by name, an Arrow table or an array; got {type(table).__name__}. Read a file before."
        )


def _matrix(table: Features, names: Sequence[str]) -> Floats:
    """The named columns as float64 [N, f]; missing cells become NaN, for `check_domain` to find."""
    if not names:
        raise DataError("the table has no features; name at least one column of numbers.")
    if isinstance(table, np.ndarray):
        if table.ndim != 2 or table.shape[1] != len(names):
            raise DataError(f"rows must have {len(names)} columns ({', '.join(names)}); got shape {table.shape}.")
        return np.ascontiguousarray(table, dtype=np.float64)
    there = list(table.column_names if hasattr(table, "column_names") else table)
    missing = [name for name in names if name not in there]
    if missing:
        raise DataError(
            f"the table lacks the feature {missing[0]!r}; it has {', '.join(map(str, there))}. Add the column."
        )
    columns = []
    for name in names:
        cell_ = table[name]
        column = cell_.to_numpy() if hasattr(cell_, "to_numpy") else np.asarray(cell_)
        try:
            columns.append(np.asarray(column, dtype=np.float64).reshape(len(column)))
        except (TypeError, ValueError, OverflowError):
            raise DataError(f"feature {name!r} must be a column of numbers; got {column.dtype} cells.") from None
    return np.stack(columns, axis=1)


def _rules(features: Wanted) -> tuple[FeatureRule, ...]:
    """Rules before fitting."""
    names: list[Any] = list(features) if isinstance(features, Iterable) and not isinstance(features, str) else [None]
    if not all(isinstance(each, str) or (isinstance(each, list | tuple) and len(each) == 2) for each in names):
        raise WrongTypeError(f"features must be a list of names, or of pairs (name, transform); got {shown(features)}.")
    return tuple(
        FeatureRule(name=wanted) if isinstance(wanted, str) else FeatureRule(name=wanted[0], transform=wanted[1])
        for wanted in names
    )


def _fit_rule(rule: FeatureRule, column: Floats) -> FeatureRule:
    if rule.transform in {"binary", "none"}:
        return rule
    x = np.log(LOG_SHIFT + column) if rule.transform == "log-zscore" else column
    if x.size < 2 or np.all(x == x[0]):
        raise DataError(
            f"feature {rule.name!r} has the same value in every training row, so it can't tell states apart. Leave it out."
        )
    return FeatureRule(name=rule.name, transform=rule.transform, mean=float(x.mean()), sd=float(x.std(ddof=1)))


def _transform(rules: Sequence[FeatureRule], values: Floats) -> Floats:
    z = np.array(values, dtype=np.float64)
    for j, rule in enumerate(rules):
        if rule.transform == "binary":
            z[:, j] -= 0.5
        elif rule.transform != "none":
            x = np.log(LOG_SHIFT + z[:, j]) if rule.transform == "log-zscore" else z[:, j]
            z[:, j] = (x - rule.mean) / rule.sd
    return z


def _blocks(rows: int, k: int) -> Iterator[slice]:
    size = max(1, BLOCK_BYTES // (8 * k))
    return (slice(start, start + size) for start in range(0, rows, size))


def _k_means(z: Floats, *, k: int, random_state: int, quick: bool, n_init: int) -> Floats:
    try:
        from sklearn.cluster import KMeans, MiniBatchKMeans
        from sklearn.exceptions import ConvergenceWarning
    except ImportError:
        raise ParameterError(
            "finding states needs scikit-learn; install it with: pip install 'bettersafe[sepsis]'."
        ) from None
    if quick:
        method = MiniBatchKMeans(n_clusters=k, n_init=1, random_state=random_state, batch_size=max(1024, 4 * k))
    else:
        method = KMeans(n_clusters=k, n_init=n_init, random_state=random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # too few different rows: reported below
        centers: Floats = np.asarray(method.fit(z).cluster_centers_, dtype=np.float64)
    different = np.unique(centers, axis=0).shape[0]
    if different < k:
        raise DataError(f"only {different} of {k} states are different: many rows are equal. Choose a smaller k.")
    return centers


def _write_parquet(table: pa.Table, target: Path) -> None:
    from pyarrow import parquet

    with whole_file(target) as partial:
        parquet.write_table(table, partial)
