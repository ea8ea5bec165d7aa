"""The gridworld study: policies improved from logs of gridworlds with pits."""
