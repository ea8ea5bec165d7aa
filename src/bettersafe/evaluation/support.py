"""Tolerances on the share of a policy that the data does not cover."""

UNSUPPORTED_TOL = 1e-9
"""Largest share of a policy's decisions that the baseline never takes; for rounding errors."""

UNSEEN_TOL = 0.01
"""Largest share of a policy's decisions that are raised without data, with an approximate bound."""
