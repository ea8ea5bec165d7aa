"""What a user can do wrong, and the checks that say so.

Every message says what was expected, what came, where, and what to do. These errors are for people: the
command line prints their sentence alone. Anything else that is raised is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line imports this module first: without NumPy its --help is quick
    from collections.abc import Collection, Iterable

    import numpy as np
    import numpy.typing as npt


class BettersafeError(Exception):
    """Any error that its user can mend."""


class DataError(BettersafeError):
    """The logged data is not what it should be."""


class PolicyError(BettersafeError):
    """A policy is not one, or does not fit the data."""


class ParameterError(BettersafeError):
    """A setting is outside what it may be.

    Attributes:
        setting: Name of the setting that the message is about, as in `Task`; None where it is about none.
    """

    def __init__(self, message: str, *, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting


class NoSolutionError(BettersafeError):
    """What was asked has no solution: an answer, for those who asked for a policy."""


class RunError(BettersafeError):
    """A run directory can't be read or written."""


class MemoryLimitError(BettersafeError):
    """What was asked needs more memory than there is."""


def check_probability(name: str, value: float) -> None:
    """Raise unless 0 < value ≤ 1 (δ = 1 is how published studies switch the union bound's log off)."""
    if not 0.0 < value <= 1.0:
        raise ParameterError(f"{name} must be a probability in (0, 1]; got {value!r}.", setting=name)


def check_discount(name: str, value: float) -> None:
    """Raise unless 0 ≤ value < 1."""
    if not 0.0 <= value < 1.0:
        raise ParameterError(f"the discount of {name} must be in [0, 1); got {value!r}. Try 0.99.", setting="discount")


def check_epsilon(value: float) -> None:
    """Raise unless ε ≥ 0; infinity is allowed and means no budget."""
    if math.isnan(value) or value < 0.0:
        raise ParameterError(f"epsilon must be 0 or more (inf for no limit); got {value!r}.", setting="epsilon")


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Raise unless ``value`` is one of ``choices``, suggesting the nearest."""
    if value not in choices:
        raise ParameterError(
            f"{name} must be one of {', '.join(choices)}; got {value!r}.{did_you_mean(value, choices)}",
            setting=name,
        )


def check_vector(name: str, value: npt.ArrayLike, length: int, what: str) -> npt.NDArray[np.float64]:
    """``value`` as a finite float64 vector of ``length``; raise otherwise, saying what its entries stand for."""
    import numpy as np

    vector = np.asarray(value, dtype=np.float64)
    if vector.shape != (length,):
        raise ParameterError(f"{name} needs {length} numbers, one per {what}; got shape {vector.shape}.")
    if not np.all(np.isfinite(vector)):
        raise ParameterError(f"{name} must be finite; got {vector.tolist()}.")
    return vector


def check_pointer(name: str, pointer: npt.NDArray[np.int64], size: int) -> None:
    """Raise unless ``pointer`` rises from 0 to ``size``."""
    import numpy as np

    rises = pointer.ndim == 1 and pointer.size > 0 and not np.any(pointer[1:] < pointer[:-1])
    if not rises or pointer[0] != 0 or pointer[-1] != size:
        raise ParameterError(f"{name} must rise from 0 to {size}.")


def check_indices(name: str, indices: npt.NDArray[np.int64], size: int, *, least: int = 0) -> None:
    """Raise unless all ``indices`` are at least ``least`` and below ``size``."""
    if not indices.size:
        return
    low, high = int(indices.min()), int(indices.max())
    if low < least or high >= size:
        raise ParameterError(f"{name} must be from {least} to {size - 1}; got {low if low < least else high}.")


def listed(names: Iterable[str], *, last: str = "and") -> str:
    """Names in a sentence: ``a, b and c``."""
    *first, end = names
    return f"{', '.join(first)} {last} {end}" if first else end


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` when something like ``word``, or one that has it as a part, is among ``words``, else nothing."""
    plain = {candidate.casefold(): candidate for candidate in words}
    near = difflib.get_close_matches(word.casefold(), list(plain), n=1, cutoff=0.6)
    if not near and len(word) >= 3:  # 'pain' for 'reward_pain'; two letters are a part of too much
        near = [candidate for candidate in plain if word.casefold() in candidate][:1]
    return f" Did you mean {plain[near[0]]!r}?" if near else ""
