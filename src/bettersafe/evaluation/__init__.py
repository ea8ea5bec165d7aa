"""Off-policy evaluation, and tests on held-out data.

facts           ESTIMATORS and BOUNDS: tables of estimators and bounds
evaluate        off-policy estimates of J(π)
bounds          lower bounds on means
held_out        safety test of a policy against the baseline
forecast        what a test on more episodes could show
references      simple policies to compare with
theory          bounds on the loss from the counts alone
state_checks    is the logged state enough? Three checks of log and model
state_evidence  results of these checks, without NumPy
drift           differences between the first and the last half of a log
association     tests of association within states or pairs, for both
estimators      terms of the estimators per trajectory
marginal        terms of the marginalised estimators per trajectory
value_models    model values for estimators that need them
support         tolerances on decisions without support
choices         levels and comparisons of the test, without NumPy
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
