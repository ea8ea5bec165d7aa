"""Selection rules and proposals of H-OPT; without NumPy, for the command line."""

from __future__ import annotations

from typing import Literal

Selection = Literal["sequential", "best", "paper", "published"]
SELECTIONS: dict[str, str] = {
    "sequential": "valid: nearest to the baseline first, up to the first failure",
    "best": "of all that pass, the best on the test episodes; no correction for many tests",
    "paper": "of all that pass, the best on the training episodes; no correction",
    "published": "of all that pass, the one with the best lower bound; no correction",
}

ProposedBy = Literal["adv-linearized", "linearized"]
PROPOSALS: dict[str, str] = {
    "adv-linearized": "no loss in any state of the training model",
    "linearized": "nothing is protected; only the test is",
}
