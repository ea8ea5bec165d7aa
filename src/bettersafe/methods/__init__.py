"""Methods that improve a policy.

Every method returns an `Improvement`, alone or with the candidates that it chose from.

facts       METHODS: the table of methods
result      Improvement: what a method returns
s_opt       S-OPT, Soft-SPIBB, Adv-Linearized and Linearized: policy iteration with a small program per state
g_opt       G-OPT: no loss in expected return, within a budget
h_opt       H-OPT: candidates tested on held-out episodes
b_opt       B-OPT: candidates tested under the posterior
lagrangian  the Lagrangian game, which returns a mixture of policies
choices     how H-OPT chooses, by name
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
