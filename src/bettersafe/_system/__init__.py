"""Atomic files, memory estimates, JSON records, and workers (this process, a pool, Ray)."""
