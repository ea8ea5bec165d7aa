"""What the command line prints: tables for people, JSON for programs. No computation here.

tables      what all screens are made of
progress    spinners and bars
runs        runs and certificates
evaluation  off-policy estimates
logs        descriptions, counts, guesses, states made of features
studies     studies, the demonstration, prepared cohorts

Names are imported when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
