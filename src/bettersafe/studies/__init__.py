"""Studies: experiments with a known true MDP, run as sweeps that can be interrupted and resumed.

catalogue  CATALOGUE: the available studies
sweep      Study: a set of independent experiments; run_sweep runs them
figures    figures and tables of a study as files
demo       the demonstration: improving on clinicians in a simulator
gridworld  gridworlds with pits
garnet     random worlds
gauntlet   many kinds of difficult worlds
sepsis     ICU-Sepsis and MIMIC-III
rules      H-OPT's rules in studies
case       one log of a known MDP, and the true returns of the methods' policies
summary    means, standard errors and intervals over the rows of a study
tables     parts shared by the tables
drawing    parts shared by the figures
styles     names, colours and markers of methods
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
