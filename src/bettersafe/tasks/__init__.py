"""Tasks: settings from TOML, Python or the command line, and the functions that run and test them.

task              Task: data, objectives and settings
settings          table of settings
toml              task files
run               from a task to a run
evidence          log and policies for the test of a saved policy, and off-policy estimates
retest            test of a saved policy on held-out episodes; the one-test rule
plan              what a test of a saved policy could show, before it is made
retest_posterior  certificate of a saved policy from the posterior
verify            verification of a saved run
checks            checks of a log: is the state enough, does it drift?
inputs            inputs of a task: counts, log, baseline, model
outcomes          outcomes of a log for the posterior, and the memory that a task needs
rules             rules of a task's tests: thresholds, held-out test, posterior
events            declared events: whether they fit the log, and what does not use them
draft             draft of a task file from the columns of a log
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
