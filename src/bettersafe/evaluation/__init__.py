"""Off-policy evaluation: estimators, bounds, the held-out test, and what the counts alone prove."""
