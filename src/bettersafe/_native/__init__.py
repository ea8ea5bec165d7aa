"""The C++ kernel, where it was built: ``kernel`` is the extension module, or None.

The kernel knows arrays and tolerances, nothing of policies or data. Everything it does has a slower twin in
Python (`bettersafe.lp`, `bettersafe.linear`, `bettersafe.posterior`) or SQL (`bettersafe.logs`), which is used where ``kernel`` is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

kernel: ModuleType | None
try:
    from bettersafe._native import _kernel as kernel
except ImportError:  # installed on a machine without a C++ compiler
    kernel = None
