"""Types that every part of the package shares: arrays, random numbers, logs, and progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from bettersafe.errors import ParameterError, check_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bettersafe.logs.dataset import Dataset, Objective

__all__ = ["Event", "Log", "Rng"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64] | npt.NDArray[np.str_]
"""States or actions in the user's own words: integers or text."""

Scalar = TypeVar("Scalar", bound=np.generic)


def frozen(array: npt.ArrayLike, dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """A read-only, contiguous view (or copy, where the type differs) of ``array``."""
    view = np.ascontiguousarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view


Rng = int | np.integer | np.random.Generator
"""What functions that draw take as ``rng``: a seed, or a generator to go on with."""


def generator(rng: Rng) -> np.random.Generator:
    """The generator that ``rng`` stands for: a new one for a seed, itself for a generator."""
    if isinstance(rng, np.random.Generator):
        return rng
    if not isinstance(rng, np.integer):
        check_type("rng", rng, int, np.random.Generator)
    if rng < 0:
        raise ParameterError(f"rng must be a seed of 0 or more, or a Generator; got {rng}.", setting="seed")
    return np.random.default_rng(int(rng))


class Log(Protocol):
    """A log of n episodes, read in blocks of whole episodes: a `Dataset` in memory, or `Episodes` on disk."""

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


Unit = Literal["", "rows", "bytes", "files", "rounds", "candidates", "priors", "draws", "experiments"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Progress of a long operation, passed to its ``progress``.

    Attributes:
        what: The current step, in words; empty if the caller knows it (reading a log, the rounds of a method).
        done: Units that are done; of policy iteration, the number of the round.
        total: All units; None if not known.
        unit: Unit of ``done`` and ``total``; empty if nothing is counted.
        gain: Largest gain of a state in a round of policy iteration, in units of Q_λ.
        scalar_return: J_λ of the policy that the round started from.
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
"""Called while a long operation runs; perhaps from another thread."""


def ignore(_: Event) -> None:
    """Ignore progress."""
