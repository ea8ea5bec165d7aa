"""Methods for policy improvement.

Every method returns an `Improvement`, alone or with its candidates.

facts       METHODS: table of methods
result      Improvement: result of a method
s_opt       S-OPT, Soft-SPIBB, Adv-Linearized and Linearized: policy iteration with a small program per state
g_opt       G-OPT: no loss in expected return, within a budget
h_opt       H-OPT: candidates tested on held-out episodes
b_opt       B-OPT: candidates tested under the posterior
recipes     candidates of B-OPT
audit       optimism of candidates, measured on parts of the log
lagrangian  Lagrangian game, which returns a mixture of policies
choices     selection rules of H-OPT, without NumPy
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
