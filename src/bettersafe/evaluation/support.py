"""How much of a policy the data must cover before a test says anything about it."""

UNSUPPORTED_TOL = 1e-9
"""Share of a policy's decisions that may lie where the baseline never goes, for rounding."""

UNSEEN_TOL = 0.01
"""Share of a policy's decisions that may be raised where nothing was seen, with an approximate bound."""
