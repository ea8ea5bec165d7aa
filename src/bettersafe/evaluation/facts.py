"""Tables of off-policy estimators and of lower bounds: `ESTIMATORS` and `BOUNDS`.

Command line, report and the modules of this folder read these tables; there is no other list of estimators or bounds. They
don't import NumPy, because ``bettersafe --help`` reads them too. The formulas are in `estimators` and `bounds`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class EstimatorFacts:
    """Properties of an off-policy estimator.

    Attributes:
        name: Name in settings, such as "dr".
        words: Full name.
        sentence: Description for help, to follow the name; no capital, no full stop.
        kernel_row: Row of the estimator in the terms of the kernel and of its NumPy twin; None if it is not made of weights along
            trajectories.
        independent: Whether the estimate is a mean of independent terms, one per trajectory.
        needs_model: Whether it needs v̂ and q̂ of a model fitted on other data.
        marginal: Whether it weights states and actions by how often the policy visits them (`marginal`); its models are fitted on
            the evaluated log itself.
        known_range: Range that gives the smallest value of its terms, for finite-sample bounds; None if there is none.
    """

    name: str
    words: str
    sentence: str
    kernel_row: int | None
    independent: bool = False
    needs_model: bool = False
    marginal: bool = False
    known_range: Literal["reward_range", "return_range"] | None = None

    @property
    def title(self) -> str:
        """Name for people: the full name, and the name in settings if it is an acronym."""
        return f"{self.words} ({self.name})" if self.on_trajectories else self.words

    @property
    def acronym(self) -> str:
        """Name for the heads of tables and figures, such as "DR"; the full name if there is none."""
        return self.name.upper() if self.on_trajectories else self.words

    @property
    def on_trajectories(self) -> bool:
        """Whether the estimate has a term for every trajectory, so that a test can use it."""
        return self.kernel_row is not None or self.marginal

    @property
    def has_folds(self) -> bool:
        """Whether it may be cross-fitted on the evaluated log."""
        return self.needs_model or self.name == "drl"

    @property
    def fills_in(self) -> bool:
        """Whether the steps after the end of the logging are part of the estimate."""
        return self.needs_model or self.marginal

    @property
    def normalised(self) -> bool:
        """Whether the weights are divided by their sum over trajectories."""
        return self.kernel_row is not None and not self.independent


@dataclass(frozen=True, kw_only=True)
class BoundFacts:
    """Properties of a lower bound on a mean.

    Attributes:
        name: Name in settings, such as "t".
        finite_sample: Whether the bound holds for any number of terms, given its assumption; if not, it is approximate.
        assumption: Assumption in one sentence; finite-sample bounds also assume a cap chosen without these terms.
    """

    name: str
    finite_sample: bool
    assumption: str


ESTIMATORS: dict[str, EstimatorFacts] = {
    facts.name: facts
    for facts in (
        EstimatorFacts(
            name="is",
            words="importance sampling",
            sentence="reweights whole episodes",
            kernel_row=0,
            independent=True,
            known_range="return_range",
        ),
        EstimatorFacts(
            name="pdis",
            words="per-decision importance sampling",
            sentence="reweights each reward by the decisions before it",
            kernel_row=1,
            independent=True,
            known_range="reward_range",
        ),
        EstimatorFacts(
            name="wis",
            words="weighted importance sampling",
            sentence="is, divided by the sum of weights",
            kernel_row=2,
        ),
        EstimatorFacts(
            name="cwpdis",
            words="weighted per-decision",
            sentence="pdis, divided at every step by the sum of weights",
            kernel_row=3,
        ),
        EstimatorFacts(
            name="dr",
            words="doubly robust",
            sentence="a model's value, corrected by reweighted residuals",
            kernel_row=4,
            independent=True,
            needs_model=True,
        ),
        EstimatorFacts(
            name="wdr",
            words="weighted doubly robust",
            sentence="dr, with weights that sum to 1 at every step",
            kernel_row=5,
            needs_model=True,
        ),
        EstimatorFacts(
            name="mis",
            words="marginalised importance sampling",
            sentence="reweights states and actions by the visits of the policy, in the log's own model",
            kernel_row=None,
            marginal=True,
        ),
        EstimatorFacts(
            name="drl",
            words="double reinforcement learning",
            sentence="mis, with the model of each part of the log from the other parts",
            kernel_row=None,
            marginal=True,
        ),
        EstimatorFacts(
            name="model",
            words="the model alone",
            sentence="a model's value alone",
            kernel_row=None,
            needs_model=True,
        ),
    )
}
"""All estimators by name."""

BOUNDS: dict[str, BoundFacts] = {
    facts.name: facts
    for facts in (
        BoundFacts(
            name="t",
            finite_sample=False,
            assumption="The mean of the terms is normally distributed; approximately true for many terms without strong skewness.",
        ),
        BoundFacts(
            name="skew",
            finite_sample=False,
            assumption="The mean of the terms is distributed like a sum of many small terms and a few large losses, of sizes that have"
            " been seen.",
        ),
        BoundFacts(
            name="bootstrap",
            finite_sample=False,
            assumption="Resampled terms behave like new ones; approximately true for many terms without strong skewness.",
        ),
        BoundFacts(
            name="bca",
            finite_sample=False,
            assumption="Resampled terms behave like new ones; bias and skewness are corrected to second order.",
        ),
        BoundFacts(
            name="hoeffding",
            finite_sample=True,
            assumption="Terms are independent and never below the stated smallest value.",
        ),
        BoundFacts(
            name="bernstein",
            finite_sample=True,
            assumption="Terms are independent and never below the stated smallest value.",
        ),
        BoundFacts(
            name="anderson",
            finite_sample=True,
            assumption="Terms are independent, identically distributed and never below the stated smallest value.",
        ),
        BoundFacts(
            name="betting",
            finite_sample=True,
            assumption="Terms are independent and never below the stated smallest value.",
        ),
    )
}
"""All bounds by name."""

TESTABLE = tuple(name for name, facts in ESTIMATORS.items() if facts.on_trajectories)
"""Estimators that a test can use: all with terms per trajectory."""

KERNEL_ROWS = sum(facts.kernel_row is not None for facts in ESTIMATORS.values())
"""Number of estimators made of weights along trajectories, which the kernel computes together."""

BOUNDED = tuple(name for name, facts in ESTIMATORS.items() if facts.known_range is not None)
"""Estimators that work with finite-sample bounds."""

FINITE_SAMPLE = tuple(name for name, facts in BOUNDS.items() if facts.finite_sample)
APPROXIMATE = tuple(name for name, facts in BOUNDS.items() if not facts.finite_sample)
