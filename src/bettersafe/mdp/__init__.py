"""Finite Markov decision processes: the process, values of policies, the per-state program, and the optimum under constraints."""
