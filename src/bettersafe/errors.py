"""Errors for users, and the checks that raise them.

Every message says what was expected, what was found, where, and what to do. The command line prints the message without a
traceback. Any other exception is a bug, and keeps its traceback.
"""

from __future__ import annotations

import difflib
import errno
import math
import numbers
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # the command line imports this module first: without NumPy its --help is fast
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
    "UnsolvedError",
    "WrongTypeError",
]


Kind = Literal[
    "text", "number", "whole number", "true or false", "pair of numbers", "list of texts", "list of labels", "list of events",
    "table of numbers", "table of whole numbers",
]  # fmt: skip
"""Kinds of values of settings."""

MOST_WHOLE = 2**63
"""Whole numbers are below it, so that they fit into 64 bits."""


class BettersafeError(Exception):
    """Base class of errors that the user can fix; each subclass also derives from a built-in exception.

    Messages name settings, arguments and functions in backticks; the command line replaces them by its options and commands.

    Attributes:
        setting: Name of the setting that caused the error, as in `Task`; None if no setting did.

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
    """Invalid logged data."""


class PolicyError(BettersafeError, ValueError):
    """Invalid policy, or a policy that does not fit the data."""


class ParameterError(BettersafeError, ValueError):
    """Setting or argument outside its range."""


class WrongTypeError(BettersafeError, TypeError):
    """Argument of a wrong type, such as a Dataset instead of Counts."""


class NoSolutionError(BettersafeError, RuntimeError):
    """The problem has no solution, e.g. no policy satisfies the thresholds."""


class UnsolvedError(BettersafeError, RuntimeError):
    """The solver did not reach its tolerance. Whether the problem has a solution is not known."""


class RunError(BettersafeError, RuntimeError):
    """File or run directory that can't be read or written."""


class MemoryLimitError(BettersafeError, MemoryError):
    """Step that needs more memory than is available."""


def check_probability(name: str, value: float) -> None:
    """Raise ParameterError unless 0 < value ≤ 1 (published studies use δ = 1 to disable the union bound's log)."""
    check_number(name, value)
    if not 0.0 < value <= 1.0:
        raise ParameterError(f"{name} must be a probability in (0, 1]; got {value!r}.", setting=name)


def check_risk(delta: float) -> None:
    """Raise ParameterError unless 0 < δ < 1, as a bound or an interval needs it."""
    check_number("delta", delta)
    if not 0.0 < delta < 1.0:
        raise ParameterError(f"delta must be between 0 and 1; got {delta!r}.", setting="delta")


def check_discount(name: str, value: float) -> None:
    """Raise ParameterError unless 0 ≤ value ≤ 1; whether every episode ends, as 1 requires, is checked where values are computed."""
    check_number(f"the discount of {name}", value)
    if not 0.0 <= value <= 1.0:
        raise ParameterError(f"the discount of {name} must be in [0, 1]; got {value!r}. Try 0.99.", setting="discount")


def check_epsilon(value: float) -> None:
    """Raise ParameterError unless ε ≥ 0; infinity means no budget."""
    check_number("epsilon", value)
    if math.isnan(value) or value < 0.0:
        raise ParameterError(f"epsilon must be 0 or more (inf for no limit); got {value!r}.", setting="epsilon")


def check_number(name: str, value: object) -> None:
    """Raise WrongTypeError unless ``value`` is a real number, and ParameterError if it is too large for a float."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise WrongTypeError(f"{name} must be a number; got {shown(value)}.")
    try:
        float(value)
    except OverflowError:
        raise ParameterError(f"{name} is too large; got {shown(value)}.") from None


def check_integer(name: str, value: object, *, least: int, optional: bool = False) -> None:
    """Raise WrongTypeError unless ``value`` is an integer, and ParameterError if it is below ``least`` or has more than 64 bits."""
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise WrongTypeError(f"{name} must be an integer; got {shown(value)}.")
    if int(value) < least:
        raise ParameterError(f"{name} must be at least {least}; got {shown(int(value))}.")
    if int(value) >= MOST_WHOLE:
        raise ParameterError(f"{name} must be less than 2^63; got {shown(int(value))}.")


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Raise ParameterError, with the nearest choice, unless ``value`` is one of ``choices``."""
    check_type(name, value, str)
    if value not in choices:
        raise ParameterError(
            f"{name} must be one of {', '.join(choices)}; got {shown(value)}.{did_you_mean(value, choices)}",
            setting=name,
        )


def as_kind(name: str, value: object, kind: Kind, *, setting: str | None = None) -> Any:
    """``value`` as a plain Python value of a kind of settings; NumPy's scalars and arrays are converted.

    Args:
        name: Name of the value, for messages.
        value: Value to check.
        kind: Kind of value.
        setting: Name of the setting, if it is one.

    Raises:
        WrongTypeError: If the value is of another kind.
        ParameterError: If a number is too large.
    """
    plain = value.tolist() if hasattr(value, "dtype") and hasattr(value, "tolist") else value

    def inner(part: str, each: object, kind: Kind) -> Any:
        return as_kind(part, each, kind, setting=setting)

    if kind == "text" and isinstance(plain, str):
        return str(plain)
    yes_or_no = isinstance(plain, bool)  # Python's are also integers
    if kind == "true or false" and yes_or_no:
        return plain
    if kind == "number" and isinstance(plain, numbers.Real) and not yes_or_no:
        try:
            return float(plain)
        except OverflowError:
            raise ParameterError(f"{name} is too large; got {shown(plain)}.", setting=setting) from None
    if kind == "whole number" and isinstance(plain, numbers.Integral) and not yes_or_no:
        if abs(int(plain)) >= MOST_WHOLE:
            raise ParameterError(f"{name} must be less than 2^63; got {shown(plain)}.", setting=setting)
        return int(plain)
    if kind == "pair of numbers" and isinstance(plain, list | tuple) and len(plain) == 2:
        return tuple(inner(name, each, "number") for each in plain)
    if kind == "list of texts" and isinstance(plain, list | tuple):
        return tuple(inner(f"{name}[{i}]", each, "text") for i, each in enumerate(plain))
    if kind == "list of labels" and isinstance(plain, list | tuple):
        return tuple(
            each if isinstance(each, int) else inner(f"{name}[{i}]", each, "text") for i, each in enumerate(plain)
        )
    if kind in ("table of numbers", "table of whole numbers") and isinstance(plain, Mapping):
        entry: Kind = "number" if kind == "table of numbers" else "whole number"
        return {
            inner(f"a name in {name}", key, "text"): inner(f"{key} in {name}", each, entry)
            for key, each in plain.items()
        }
    article = "" if kind in ("text", "true or false") else "a "
    raise WrongTypeError(f"{name} must be {article}{kind}; got {shown(value)}.", setting=setting)


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
"""Name of a type -> functions that return it, for messages."""


def check_type(name: str, value: object, *kinds: type, optional: bool = False) -> None:
    """Raise WrongTypeError unless ``value`` is an instance of one of ``kinds``.

    Args:
        name: Name of the argument.
        value: Value of the argument.
        kinds: Accepted types.
        optional: Whether None is accepted too.
    """
    if not (isinstance(value, kinds) or (optional and value is None)):
        made_by = [MADE_BY[kind.__name__] for kind in kinds if kind.__name__ in MADE_BY]
        hint = f" Get it from {' or '.join(made_by)}." if made_by else ""
        wanted = " or ".join(_with_article(kind.__name__) for kind in kinds)
        raise WrongTypeError(f"{name} must be {wanted}; got {shown(value)}.{hint}")


def check_types(name: str, values: object, *kinds: type) -> None:
    """Raise WrongTypeError unless ``values`` is a list or tuple of ``kinds``."""
    if not isinstance(values, list | tuple):
        raise WrongTypeError(f"{name} must be a list; got {shown(values)}.")
    for i, value in enumerate(values):
        check_type(f"{name}[{i}]", value, *kinds)


def check_options(*, progress: object = None, **flags: object) -> None:
    """Raise WrongTypeError unless ``progress`` is None or a function, and each of ``flags`` is True or False."""
    if progress is not None and not callable(progress):
        raise WrongTypeError(f"progress must be a function; got {shown(progress)}.")
    for name, value in flags.items():
        as_kind(name, value, "true or false")


def check_log(name: str, value: object) -> None:
    """Raise WrongTypeError unless ``value`` is a log: a Dataset, Episodes, or another object with ``blocks``."""
    if isinstance(value, type) or not callable(getattr(value, "blocks", None)):
        raise WrongTypeError(
            f"{name} must be a log: a Dataset or Episodes; got {shown(value)}. Get it from read_dataset(path) or open_episodes(path)."
        )


def check_path(name: str, value: object) -> None:
    """Raise WrongTypeError unless ``value`` is a path: text or a Path; ParameterError if no file can have this path."""
    if not isinstance(value, str | os.PathLike):
        raise WrongTypeError(f"{name} must be a path; got {shown(value)}.")
    text = os.fspath(value)
    if not text:
        raise ParameterError(f"{name} must be a path; got an empty text.")
    try:
        os.lstat(text)
    except ValueError:
        raise ParameterError(f"{name} must be a path; got text with a null character.") from None
    except OSError as error:  # a file that does not exist is reported where it is opened
        if error.errno == errno.ENAMETOOLONG:
            raise ParameterError(f"{name} is too long for a path; got {shown(text)}.") from None


def check_paths(name: str, value: object) -> None:
    """Raise WrongTypeError unless ``value`` is a path or a list of paths."""
    for one in value if isinstance(value, list | tuple) else [value]:
        check_path(name, one)


def as_array(name: str, value: npt.ArrayLike, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """``value`` as an array of float64, int64 or bool. Raises WrongTypeError if an entry is not a number or not exact.

    Text, dates and complex numbers are no numbers, None is no NaN, and 0.5 is no integer.
    """
    import numpy as np

    if type(value) is np.ndarray and value.dtype == dtype:  # the usual case, and often called
        return value
    try:
        array = np.asarray(value)
        kind = array.dtype.kind
        if kind in "biuf" or (kind == "O" and all(hasattr(each, "__float__") for each in array.flat)):
            with np.errstate(invalid="ignore"):  # NaN as an integer
                converted = array.astype(dtype, copy=False)
            if dtype is np.float64 or np.can_cast(array.dtype, dtype) or np.array_equal(converted, array):
                return converted
    except (TypeError, ValueError, OverflowError):
        pass
    what = {np.int64: "integers", np.bool_: "booleans"}.get(dtype, "numbers")
    raise WrongTypeError(f"{name} must be an array of {what}; got {shown(value)}.")


def as_numbers(name: str, value: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """``value`` as a float64 array. Raises WrongTypeError if it is not numeric."""
    import numpy as np

    return as_array(name, value, np.float64)


def _with_article(noun: str) -> str:
    if noun in ("Counts", "Episodes", "Outcomes", "CountedOutcomes", "Columns"):
        return noun
    return f"{'an' if noun[0] in 'aeiouAEIOU' or noun in ('MDP', 'ndarray') else 'a'} {noun}"


def shown(value: object) -> str:
    """Description of a value of a wrong type, for messages: a short value itself, else its type."""
    if value is None or isinstance(value, bool | int | float | str):
        if isinstance(value, int) and abs(value) >= 10**40:  # Python does not print very long ones
            return f"an integer of {value.bit_length()} bits"
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return _with_article(type(value).__name__)


def check_vector(name: str, value: npt.ArrayLike, length: int, what: str) -> npt.NDArray[np.float64]:
    """``value`` as a finite float64 vector of ``length``. Raises ParameterError otherwise; ``what`` describes an entry."""
    import numpy as np

    vector = as_numbers(name, value)
    if vector.shape != (length,):
        raise ParameterError(f"{name} needs {length} numbers, one per {what}; got shape {vector.shape}.")
    if not np.all(np.isfinite(vector)):
        raise ParameterError(f"{name} must be finite; got {vector.tolist()}.")
    return vector


def per_objective(name: str, value: npt.ArrayLike, d: int) -> npt.NDArray[np.float64]:
    """One number, or one per objective, as an array [d]. Raises ParameterError otherwise, and for NaN."""
    import numpy as np

    given = as_numbers(name, value)
    if given.shape not in ((), (d,)) or np.any(np.isnan(given)):
        raise ParameterError(f"{name} must be one number, or {d}, one per objective; got {shown(value)}.")
    return np.broadcast_to(given, (d,))


def check_range(name: str, value: object, d: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """A range (low, high), each one number or one per objective, as two arrays [d]. Raises an error if it is none."""
    import numpy as np

    if not isinstance(value, list | tuple | np.ndarray) or len(value) != 2:
        raise WrongTypeError(f"{name} must be a pair, low and high; got {shown(value)}.")
    low, high = (per_objective(f"{edge} of {name}", each, d) for edge, each in zip(("low", "high"), value, strict=True))
    if np.any(low > high):
        raise ParameterError(f"{name} must be a pair with low ≤ high; got {low.tolist()} and {high.tolist()}.")
    return low, high


def check_table(name: str, value: npt.ArrayLike, shape: tuple[int, ...], axes: str) -> npt.NDArray[np.float64]:
    """``value`` as a finite float64 array of ``shape``. Raises ParameterError otherwise; ``axes`` names the axes, as "[d, X]"."""
    import numpy as np

    table = as_numbers(name, value)
    if table.shape != shape:
        raise ParameterError(f"{name} must have shape {axes} = {list(shape)}; got {list(table.shape)}.")
    if not np.all(np.isfinite(table)):
        raise ParameterError(f"{name} must be finite.")
    return table


def check_pointer(name: str, pointer: npt.NDArray[np.signedinteger[Any]], size: int) -> None:
    """Raise ParameterError unless ``pointer`` rises from 0 to ``size``."""
    import numpy as np

    rises = pointer.ndim == 1 and pointer.size > 0 and not np.any(pointer[1:] < pointer[:-1])
    if not rises or pointer[0] != 0 or pointer[-1] != size:
        raise ParameterError(f"{name} must rise from 0 to {size}.")


def check_indices(name: str, indices: npt.NDArray[np.signedinteger[Any]], size: int, *, least: int = 0) -> None:
    """Raise ParameterError unless all ``indices`` are in [least, size)."""
    if not indices.size:
        return
    low, high = int(indices.min()), int(indices.max())
    if low < least or high >= size:
        raise ParameterError(f"{name} must be from {least} to {size - 1}; got {low if low < least else high}.")


def listed(names: Iterable[str], *, last: str = "and") -> str:
    """Names joined for a sentence: ``a, b and c``."""
    *first, end = names
    return f"{', '.join(first)} {last} {end}" if first else end


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` if ``words`` has a word similar to ``word`` or one that contains it, else empty."""
    plain = {candidate.casefold(): candidate for candidate in words}
    near = difflib.get_close_matches(word.casefold(), list(plain), n=1, cutoff=0.6)
    if not near and len(word) >= 3:  # 'pain' for 'reward_pain'; shorter words match too much
        near = [candidate for candidate in plain if word.casefold() in candidate][:1]
    return f" Did you mean {plain[near[0]]!r}?" if near else ""
