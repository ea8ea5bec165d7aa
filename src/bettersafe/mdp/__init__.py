"""Finite Markov decision processes with several rewards, where they are known or estimated.

mdp          MDP: a process over the pairs of state and action that are known
values       values, returns and occupancies of a policy
constrained  the best policy under constraints, by a linear program or column generation
policy       checks that a policy is one
programs     the small program of every state, in two engines
choices      engines, error functions and rules for untried pairs, by name
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
