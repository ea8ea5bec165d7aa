"""Run directories and policy files."""
