"""What a user can do wrong, and the checks that say so.

Every message says what was expected, what came, where, and what to do. These errors are for people: the
command line prints their sentence alone. Anything else that is raised is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
import math
import numbers
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line imports this module first: without NumPy its --help is quick
    from collections.abc import Collection, Iterable

    import numpy as np
    import numpy.typing as npt

__all__ = [
    "BettersafeError",
    "DataError",
    "MemoryLimitError",
    "NoSolutionError",
    "ParameterError",
    "PolicyError",
    "RunError",
    "WrongTypeError",
]


class BettersafeError(Exception):
    """Any error that its user can mend; each is also an error of Python's own kinds.

    Messages name settings, arguments and functions in backticks; the command line writes its options and commands in their place.

    Attributes:
        setting: Name of the setting that the message is about, as in `Task`; None where it is about none.

    Examples:
        >>> try:
        ...     bettersafe.Task(data="log.parquet", objectives=log.objectives, delta=2.0)
        ... except bettersafe.BettersafeError as error:
        ...     print(error)
        delta must be a probability in (0, 1]; got 2.0.
    """

    def __init__(self, message: str, *, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting


class DataError(BettersafeError, ValueError):
    """The logged data is not what it should be."""


class PolicyError(BettersafeError, ValueError):
    """A policy is not one, or does not fit the data."""


class ParameterError(BettersafeError, ValueError):
    """A setting or an argument is outside what it may be."""


class WrongTypeError(BettersafeError, TypeError):
    """An argument is the wrong kind of thing, such as a Dataset where counts are wanted."""


class NoSolutionError(BettersafeError, RuntimeError):
    """What was asked has no solution: an answer, for those who asked for a policy."""


class RunError(BettersafeError, RuntimeError):
    """A run directory can't be read or written."""


class MemoryLimitError(BettersafeError, MemoryError):
    """What was asked needs more memory than there is."""


def check_probability(name: str, value: float) -> None:
    """Raise unless 0 < value ≤ 1 (δ = 1 is how published studies switch the union bound's log off)."""
    _check_number(name, value)
    if not 0.0 < value <= 1.0:
        raise ParameterError(f"{name} must be a probability in (0, 1]; got {value!r}.", setting=name)


def check_discount(name: str, value: float) -> None:
    """Raise unless 0 ≤ value < 1."""
    _check_number(f"the discount of {name}", value)
    if not 0.0 <= value < 1.0:
        raise ParameterError(f"the discount of {name} must be in [0, 1); got {value!r}. Try 0.99.", setting="discount")


def check_epsilon(value: float) -> None:
    """Raise unless ε ≥ 0; infinity is allowed and means no budget."""
    _check_number("epsilon", value)
    if math.isnan(value) or value < 0.0:
        raise ParameterError(f"epsilon must be 0 or more (inf for no limit); got {value!r}.", setting="epsilon")


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, numbers.Real):
        raise WrongTypeError(f"{name} must be a number; got {_shown(value)}.")


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Raise unless ``value`` is one of ``choices``, suggesting the nearest."""
    check_type(name, value, str)
    if value not in choices:
        raise ParameterError(
            f"{name} must be one of {', '.join(choices)}; got {value!r}.{did_you_mean(value, choices)}",
            setting=name,
        )


MADE_BY = {
    "BOpt": "b_opt",
    "Certificate": "certify",
    "Columns": "Columns(state=...)",
    "CountedOutcomes": "gather_counted(counts, model)",
    "Counts": "count(log) or count_files(path)",
    "Dataset": "read_dataset(path)",
    "Discretizer": "fit_discretizer or load_discretizer(path)",
    "Facts": "METHODS[name]",
    "Gridworld": "pit_gridworld or make_gridworld",
    "HOpt": "h_opt",
    "Improvement": "s_opt or g_opt",
    "MDP": "model.mdp, true_mdp(world) or dense_mdp",
    "Mixture": "lagrangian",
    "Model": "estimate_model(log)",
    "Objective": "Objective(name=...)",
    "Outcomes": "gather_outcomes(dataset) or outcomes_of(counts)",
    "Posterior": "posterior(outcomes)",
    "PriorSet": "PriorSet()",
    "Question": "Question(delta=...)",
    "Run": "run_task(task) or load_run(path)",
    "SafetyRule": "SafetyRule(delta=...)",
    "Study": "make_study(name)",
    "Task": "Task(data=...) or read_task(path)",
    "World": "garnet or icu_sepsis",
}
"""What gives a value of a type, for messages; by the type's name."""


def check_type(name: str, value: object, *kinds: type) -> None:
    """Raise unless ``value`` is of one of ``kinds``: a Dataset where counts are wanted, an MDP for a Model, a path, None.

    Args:
        name: Name of the argument.
        value: What was given.
        kinds: Types that it may have.
    """
    if not isinstance(value, kinds):
        made_by = [MADE_BY[kind.__name__] for kind in kinds if kind.__name__ in MADE_BY]
        hint = f" Get it from {' or '.join(made_by)}." if made_by else ""
        wanted = " or ".join(_with_article(kind.__name__) for kind in kinds)
        raise WrongTypeError(f"{name} must be {wanted}; got {_shown(value)}.{hint}")


def check_types(name: str, values: object, *kinds: type) -> None:
    """Raise unless ``values`` is a list or tuple whose entries are all of one of ``kinds``."""
    if not isinstance(values, list | tuple):
        raise WrongTypeError(f"{name} must be a list; got {_shown(values)}.")
    for i, value in enumerate(values):
        check_type(f"{name}[{i}]", value, *kinds)


def check_log(name: str, value: object) -> None:
    """Raise unless ``value`` is a log: a Dataset, Episodes, or another that is read in blocks."""
    if isinstance(value, type) or not callable(getattr(value, "blocks", None)):
        raise WrongTypeError(
            f"{name} must be a log: a Dataset or Episodes; got {_shown(value)}. Get it from read_dataset(path) or open_episodes(path)."
        )


def check_path(name: str, value: object) -> None:
    """Raise unless ``value`` is the name of a file or folder: text or a Path."""
    if not isinstance(value, str | os.PathLike):
        raise WrongTypeError(f"{name} must be a path; got {_shown(value)}.")


def check_paths(name: str, value: object) -> None:
    """Raise unless ``value`` is a path, or a list of them."""
    for one in value if isinstance(value, list | tuple) else [value]:
        check_path(name, one)


def as_numbers(name: str, value: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """``value`` as an array of float64; raise where it is not made of numbers."""
    import numpy as np

    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise WrongTypeError(f"{name} must be an array of numbers; got {_shown(value)}.") from None


def _with_article(noun: str) -> str:
    if noun in ("Counts", "Episodes", "Outcomes", "CountedOutcomes", "Columns"):
        return noun
    return f"{'an' if noun[0] in 'aeiouAEIOU' or noun in ('MDP', 'ndarray') else 'a'} {noun}"


def _shown(value: object) -> str:
    """A value of the wrong type in a sentence: its type, and the value itself if that is short."""
    if value is None or isinstance(value, bool | int | float | str):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return _with_article(type(value).__name__)


def check_vector(name: str, value: npt.ArrayLike, length: int, what: str) -> npt.NDArray[np.float64]:
    """``value`` as a finite float64 vector of ``length``; raise otherwise, saying what its entries stand for."""
    import numpy as np

    vector = as_numbers(name, value)
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
