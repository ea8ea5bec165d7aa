"""Off-policy evaluation, and tests of a policy on data that it was not made from.

facts         ESTIMATORS and BOUNDS: the tables of estimators and bounds
evaluate      estimates of J(π) from data that another policy made
bounds        lower bounds on means
held_out      the safety test, which compares a policy with the baseline
theory        what the counts alone prove
estimators    the terms of every trajectory
value_models  values that models add to estimates
support       how much of a policy the data must cover
choices       levels and comparisons, by name
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
