"""The C++ kernel, where it was built: ``compiled`` is the extension module, or None.

The kernel knows arrays and tolerances, nothing of policies or data. Everything it does has a slower twin in
Python (`bettersafe.mdp.programs`, `bettersafe.mdp.values`, `bettersafe.posterior.priors`) or SQL (`bettersafe.logs`), which is used where ``compiled`` is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

compiled: ModuleType | None
try:
    from bettersafe._kernel import _compiled as compiled
except ImportError:  # installed on a machine without a C++ compiler
    compiled = None
