"""Posterior of the true process given a log, and the posterior probability that a policy is no worse than the baseline.

choices             names of neutral priors and forms, without NumPy
outcomes            outcomes of a log by pair
priors              PriorSet, and the posterior under each of its priors
draws               processes drawn from the posterior, and gains of policies in them, on this machine or a Ray cluster
linearised          means and covariances of gains to first order, without draws
linearised_counts   linearised gains from counts, for logs of any size
candidates          policies with their posterior probabilities
rule                passing rule
judge               Question -> Answer, and the sensitivity to the priors
"""
