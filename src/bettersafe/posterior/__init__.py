"""Posterior of the true process given a log, and the posterior probability that a policy is no worse than the baseline.

outcomes           outcomes of a log by pair
rewards            posterior of noisy rewards: effects of states, actions and pairs
rare               rare events: the part of a step's value that they carry
rare_rates         posterior of their rates: factors of states, actions and pairs
recovered          rewards of single steps, recovered from counts
events             declared events: harm that the log has never shown
end_rates          rates of harmful ends after rarely played actions
habits             how actions that the baseline rarely plays differ from its usual ones
essential          the log without declared states and actions that it never shows
models             posterior mean of the model, and standard deviations of one-step values
priors             PriorSet, and the posterior under each of its priors
draws              processes drawn from the posterior, and gains of policies in them, on this machine or a Ray cluster
linearised         means and covariances of gains to first order, without draws
linearised_counts  linearised gains from counts, for logs of any size
candidates         policies with their posterior probabilities
rule               passing rule
judge              Question -> Answer, and the sensitivity to the priors
choices            neutral priors and forms of the posterior, without NumPy
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
