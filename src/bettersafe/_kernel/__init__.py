"""The C++ kernel: ``compiled`` is the extension module, or None if it was not built.

What it computes, one file each:

    programs      the linear programs of all states
    values        values of a policy in an MDP
    mean_process  values at the posterior mean and the covariance of gains, from counts
    draws         gains in processes drawn from a posterior
    counting      counts and exact sums of the rows of a log
    estimators    terms of six off-policy estimators, from importance ratios, rewards and model values

It sees arrays of numbers. Of a log it knows rows that are sorted by episode, with states and actions as whole numbers; it counts them and
refuses what does not follow. Of an estimator it knows the formula. It does not know labels, columns, files, objectives by name, baselines,
certificates or settings: those are Python's.

Everything has a slower twin in Python (`bettersafe.mdp.programs`, `bettersafe.mdp.values`, `bettersafe.posterior`,
`bettersafe.evaluation.estimators`) or SQL (`bettersafe.logs`), which is used if ``compiled`` is None.

Arguments are checked on entry (`checks.hpp`, `module.cpp`). A bad one raises TypeError or ValueError with a sentence that names it.
Results have the same bits on any number of threads.
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
