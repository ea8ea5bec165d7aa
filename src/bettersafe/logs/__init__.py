"""Logged decisions in memory, in blocks of episodes, or as counts: reading, counting, merging, describing, discretising."""
