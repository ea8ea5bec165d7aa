"""Finite Markov decision processes: models, policy evaluation, per-state linear programs, constrained optima."""
