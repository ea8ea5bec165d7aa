"""Output of the command line: tables for people, JSON for programs. No computation here.

tables      console, tables, errors, JSON
progress    spinners and bars
runs        runs and certificates
plan        what a test could show
evaluation  off-policy estimates
logs        descriptions, counts, guesses, discretised logs
studies     studies, the demonstration, prepared cohorts

Names are imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
