"""The C++ kernel: ``compiled`` is the extension module, or None if it was not built.

Each file is one computation:

    programs      per-state linear programs
    mixtures      best mixture of policies with known gains
    values        values of a policy in an MDP
    responses     best policy for a reward, by policy iteration over per-state programs
    mean_process  values at the posterior mean, and the covariance of gains, from counts
    draws         gains in processes drawn from a posterior
    counting      counts and exact sums of the rows of a log
    estimators    terms of off-policy estimators, from importance ratios, rewards and model values

The kernel works on arrays of numbers. The rows of a log must be sorted by episode, with states and actions as integers; rows that
do not form episodes are rejected. Estimators are formulas. Labels, columns, files, names of objectives, baselines, certificates
and settings are handled in Python.

Every function has a slower equivalent in Python (`bettersafe.mdp.programs`, `bettersafe.mdp.mixtures`, `bettersafe.mdp.values`,
`bettersafe.methods.s_opt`, `bettersafe.posterior`, `bettersafe.evaluation.estimators`) or SQL (`bettersafe.logs`), which is used if
``compiled`` is None.

Arguments are checked on entry (`checks.hpp`, `module.cpp`). An invalid one raises TypeError or ValueError with a message that names it.
Results have equal bits on any number of threads.
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
