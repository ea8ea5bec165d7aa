"""Studies: many experiments whose truth is known, run as sweeps that can be stopped and continued.

catalogue  CATALOGUE: the studies there are
sweep      Study: independent experiments, and running them
figures    the figures and tables of a study, as files
demo       the demonstration: improve on clinicians in a simulator
gridworld  gridworlds with pits
garnet     random worlds
gauntlet   many kinds of difficult worlds
sepsis     ICU-Sepsis and MIMIC-III
case       one log of a known process, and the true returns of policies made from it
summary    rows to the numbers of tables and figures
tables     pieces that tables share
drawing    pieces that figures share
styles     how methods are called and drawn
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
