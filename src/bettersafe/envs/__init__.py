"""Environments whose truth is known: what is learned from their logs can be checked exactly."""
