"""The posterior of the true process given a log, and the probability that a policy is no worse than the baseline in it.

outcomes           a log by pair and outcome
priors             PriorSet, and the posterior under one of its priors
draws              processes drawn from the posterior, and the gains of policies in them, here or on a Ray cluster
linearised         means and covariances of gains to first order, without draws
linearised_counts  the same for a log of any size, from its counts
candidates         policies with their posterior probabilities
rule               when a candidate passes
judge              Question -> Answer, and the sensitivity to the priors
choices            neutral priors and forms of the posterior, by name
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
