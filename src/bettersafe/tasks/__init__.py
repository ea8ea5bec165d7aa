"""Tasks: what is asked for, in TOML or Python, and carrying it out.

task              Task: where the data is, what is wanted, and how careful to be
settings          the table of settings
toml              task files
run               from a task to a run
evidence          a log for a saved policy, and off-policy estimates from it
retest            a saved policy, tested on a log that it was not made from; the one-test rule
retest_posterior  a saved policy, judged by the posterior
verify            a saved run, checked again
inputs            what a task names, read
draft             a first task file from the columns of a log
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
