"""The posterior of the true process given a log: outcomes, priors, draws, and gains to first order."""
