"""Run directories and policy files.

run              Run: the proposed policy, the decision on it, and the directory that stores both
info             metadata of a run: method, settings, data and candidates
changes          states in which a proposal differs from the baseline
policy_file      policy files
evaluation_file  files of off-policy estimates
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
