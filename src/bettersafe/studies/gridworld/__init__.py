"""The gridworld study: policy improvement from logs of gridworlds with pits."""
