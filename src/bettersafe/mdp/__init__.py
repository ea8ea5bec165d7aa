"""Finite Markov decision processes with several rewards, known or estimated.

mdp          MDP: a process over stored (state, action) pairs
values       values, returns and occupancies of a policy
ends         policies that end, which discount 1 requires
horizon      values and returns up to a step
constrained  optimal policy under constraints, by a linear program or column generation
policy       checks of policies
programs     per-state linear programs, with two engines
mixtures     best mixture of policies with known gains, with two engines
choices      names of engines, error functions and rules for untried pairs
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
