"""Runs: what an improvement leaves on disk, and policy files."""
