"""Array types, read-only arrays, and other small things that every part of the package uses."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int64] | npt.NDArray[np.str_]
"""States or actions in the user's own words: integers or text."""

Scalar = TypeVar("Scalar", bound=np.generic)


def frozen(array: npt.ArrayLike, dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """A read-only, contiguous view (or copy, where the type differs) of ``array``."""
    view = np.ascontiguousarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view
