"""Certificates: the test of a policy, its evidence and its verdict.

certificate     types and verdict; imports no method
make            certificates from a held-out test, from H-OPT, or from the counts alone
make_posterior  certificates from the posterior
hazard          how often an unseen harm would overturn a verdict
more_data       about how many more episodes would decide
files           certificates as JSON documents
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
