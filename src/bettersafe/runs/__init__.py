"""Runs: what an improvement leaves on disk, and policy files.

run              Run: what was proposed, the decision, and the directory that keeps both
info             how a run was made, from what, and which candidates there were
changes          where a proposal differs from the baseline
policy_file      policies as files
evaluation_file  off-policy estimates as files
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
