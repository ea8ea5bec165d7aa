"""Logs of decisions: in memory, in blocks of episodes, as counts; reading, counting, merging, describing, discretising."""
