"""Shared types: arrays, random generators, logs, and progress."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from bettersafe.errors import ParameterError, as_array, check_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import DataclassInstance

    from bettersafe.logs.dataset import Dataset, Objective

__all__ = ["Event", "Log", "Rng"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64] | npt.NDArray[np.str_]
"""User's names of states or actions: integers or text."""

Json = dict[str, Any]
"""JSON object, read or to be written."""

Row = dict[str, Any]
"""Row of a table of results, by column."""

Scalar = TypeVar("Scalar", bound=np.generic)


def frozen(array: npt.ArrayLike, dtype: type[Scalar], *, name: str = "an array") -> npt.NDArray[Scalar]:
    """Read-only, contiguous view of ``array``; a copy if its type or layout differs. Raises WrongTypeError, with ``name``."""
    view = np.ascontiguousarray(array if dtype is np.str_ else as_array(name, array, dtype), dtype=dtype).view()
    view.flags.writeable = False
    return view


ARRAYS: dict[str, type[np.generic]] = {"Floats": np.float64, "Ints": np.int64, "Bools": np.bool_, "Bytes": np.uint8}
"""Types of arrays by the annotation of a field."""


def check_arrays(holder: DataclassInstance) -> None:
    """Make arrays of the fields of a dataclass that are annotated as arrays. Raises WrongTypeError, with the field's name."""
    for field in dataclasses.fields(holder):
        kind, _, optional = str(field.type).partition(" | ")
        value = getattr(holder, field.name)
        if kind in ARRAYS and not (optional and value is None):
            object.__setattr__(holder, field.name, as_array(field.name, value, ARRAYS[kind]))


Rng = int | np.integer | np.random.Generator
"""Seed or generator, accepted as ``rng`` by functions that draw random numbers."""


def generator(rng: Rng) -> np.random.Generator:
    """``rng`` as a generator: a new one for a seed, ``rng`` itself if it is a generator."""
    if isinstance(rng, np.random.Generator):
        return rng
    if not isinstance(rng, np.integer):
        check_type("rng", rng, int, np.random.Generator)
    if rng < 0:
        raise ParameterError(f"rng must be a seed of 0 or more, or a Generator; got {rng}.", setting="seed")
    return np.random.default_rng(int(rng))


class Log(Protocol):
    """Log of n episodes, read in blocks of whole episodes: a `Dataset` in memory, or `Episodes` on disk."""

    def blocks(self) -> Iterable[Dataset]:
        """The log from its first episode, as Datasets that share one vocabulary; a log in memory is one block."""
        ...

    @property
    def n_rows(self) -> int:
        """The number N of rows."""
        ...

    @property
    def n_episodes(self) -> int:
        """The number n of episodes."""
        ...

    @property
    def n_truncated(self) -> int:
        """Number of episodes that did not terminate."""
        ...

    @property
    def n_states(self) -> int:
        """|X|."""
        ...

    @property
    def n_actions(self) -> int:
        """|A|."""
        ...

    @property
    def n_objectives(self) -> int:
        """The number d of objectives."""
        ...

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The reward signals, in the order of the columns of ``rewards``."""
        ...

    @property
    def units(self) -> Ints | None:
        """Sampling unit of every episode, shape [n]; None if every episode is one."""
        ...

    @property
    def state_labels(self) -> Labels:
        """The user's names of the states, shape [X]."""
        ...

    @property
    def action_labels(self) -> Labels:
        """The user's names of the actions, shape [A]."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks of the reader, for people."""
        ...


Unit = Literal["", "rows", "bytes", "files", "rounds", "candidates", "parts", "priors", "draws", "experiments"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Progress of a long operation, passed to its ``progress``.

    Attributes:
        what: Current step, in words; empty if the caller knows it (reading a log, rounds of a method).
        done: Units done; for policy iteration, the number of the round.
        total: Total number of units; None if not known.
        unit: Unit of ``done`` and ``total``; empty if nothing is counted.
        gain: Largest gain of any state in a round of policy iteration, in units of Q_λ.
        scalar_return: J_λ of the policy at the start of the round.
        gap: Duality gap after a round of the Lagrangian game: a lower bound on it, exact if at most the tolerance.
    """

    what: str = ""
    done: int = 0
    total: int | None = None
    unit: Unit = ""
    gain: float | None = None
    scalar_return: float | None = None
    gap: float | None = None


Progress = Callable[[Event], None]
"""Callback of a long operation; may be called from another thread."""


def ignore(_: Event) -> None:
    """Ignore progress."""
