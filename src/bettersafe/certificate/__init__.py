"""Certificates: the test of a policy, its evidence and its verdict.

certificate  types and verdict; imports no method
make         certificates from a held-out test, from H-OPT, from the posterior, or from the counts alone
files        certificates as JSON documents
"""
