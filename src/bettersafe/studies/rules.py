"""H-OPT's rules in studies: one row each, by the word after "h-opt" in a method's text. `RULES`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bettersafe.evaluation.choices import Comparison
    from bettersafe.methods.choices import ProposedBy, Selection


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of H-OPT.

    Attributes:
        title: Name for people.
        selection: Selection among the candidates.
        comparison: What the test compares with.
        strict: Whether the coverage rule refuses policies that the data does not cover.
        proposal: Method of π_t.
    """

    title: str
    selection: Selection
    comparison: Comparison
    strict: bool = False
    proposal: ProposedBy = "adv-linearized"


RULES: dict[str, Rule] = {
    "published": Rule(title="published code", selection="published", comparison="published"),
    "paper": Rule(title="paper", selection="paper", comparison="empirical"),
    "paper-linearized": Rule(
        title="paper, Linearized", selection="paper", comparison="empirical", proposal="linearized"
    ),
    "paired": Rule(title="paired", selection="best", comparison="paired"),
    "uncovered": Rule(title="sequential, coverage ignored", selection="sequential", comparison="paired"),
    "sequential": Rule(title="sequential", selection="sequential", comparison="paired", strict=True),
}
"""All rules: the published code's, the paper's as it is written (with either π_t), the paper's choice with the test per episode,
the valid order without the coverage rule, and what users get."""
