"""Certificates: what was tested, on what evidence, and whether the policy passed.

Four kinds of evidence:

    "held-out"      a policy tested on episodes that it was not made from (`safety.safety_test`)
    "safety-test"   the test with which H-OPT chose its policy
    "posterior"     nothing was held out: the probability, given all the data, that no objective loses (`posterior.judge`)
    "theory"        nothing was held out: what the counts alone prove (`theory.proven_loss`), which is seldom much

A *gain* is J_k(π) − J_k(π_b) with the sign that more is better, also where the objective is a cost: a gain of −0.2 on pain
is 0.2 more pain. With thresholds c_k (constrained RL, a remark of the paper), the policy must besides be worth enough:

    c_k ≤ (lower bound on J_k(π_b)) + (lower bound on J_k(π) − J_k(π_b))

and "no solution found" is the answer otherwise, with the shortfall. δ is then shared, half to each of the two bounds.

This module has the types and the verdict, and imports nothing that computes: whoever reads a run reads its certificate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bettersafe.errors import ParameterError
from bettersafe.evaluation.support import UNSUPPORTED_TOL
from bettersafe.posterior.rule import draw_error, posterior_passes

Grade = Literal["exact", "posterior", "finite-sample", "approximate"]
Evidence = Literal["held-out", "safety-test", "posterior", "theory"]
Outcome = Literal["passed", "not passed", "can't tell", "not tested"]

MOST_NAMED = 8
"""Objectives that a sentence names one by one; of more, only how many, and the worst."""

WORST_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found about one objective; gains are positive where the policy is better.

    Attributes:
        objective: Its name.
        estimate: Estimated gain J_k(π) − J_k(π_b).
        lower_bound: What the gain is at least, with probability 1 − level.
        level: δ_k.
        zeta: Accepted loss.
        label: What people call the objective; its name if empty.
    """

    objective: str
    estimate: float
    lower_bound: float
    level: float
    zeta: float
    label: str = ""

    @property
    def title(self) -> str:
        """The label, or else the name."""
        return self.label or self.objective

    @property
    def passed(self) -> bool:
        """Whether no loss beyond ζ_k can be; NaN does not pass."""
        return self.lower_bound >= -self.zeta


@dataclass(frozen=True, kw_only=True)
class Floor:
    """Whether a threshold on one objective's return is kept; all numbers in the sign that more is better.

    Attributes:
        objective: Its name.
        threshold: c_k, what the return must be at least.
        baseline_bound: What the baseline's return is at least, with probability 1 − level.
        guaranteed: What the policy's return is at least: the same plus the lower bound on its gain.
        level: δ of the baseline's bound.
        label: What people call the objective; its name if empty.
    """

    objective: str
    threshold: float
    baseline_bound: float
    guaranteed: float
    level: float
    label: str = ""

    @property
    def title(self) -> str:
        """The label, or else the name."""
        return self.label or self.objective

    @property
    def shortfall(self) -> float:
        """How much is missing to the threshold; 0 where it is kept, NaN where nothing is known."""
        return max(self.threshold - self.guaranteed, 0.0) if not math.isnan(self.guaranteed) else math.nan

    @property
    def passed(self) -> bool:
        """Whether the threshold is kept; NaN does not pass."""
        return self.guaranteed >= self.threshold


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What the counts alone prove about one objective (`theory`).

    Attributes:
        objective: Its name.
        proposition_loss: Loss that Proposition 3.1 leaves possible, in any state; infinite without a budget.
        proven_loss: Loss that the bound after the fact leaves possible.
        return_range: Width of the range of returns, which both must be compared with.
        share_safe: Share of states where the bound after the fact proves that nothing is lost.
    """

    objective: str
    proposition_loss: float
    proven_loss: float
    return_range: float
    share_safe: float

    @property
    def proposition_informative(self) -> bool:
        """Whether Proposition 3.1 says more than the range of returns does."""
        return self.proposition_loss < self.return_range

    @property
    def informative(self) -> bool:
        """The same of the bound after the fact."""
        return self.proven_loss < self.return_range


@dataclass(frozen=True, kw_only=True)
class Theory:
    """What the counts alone prove, and on what assumptions.

    Attributes:
        proofs: One per objective.
        delta: δ.
        baseline_known: False where the baseline was estimated from the same data: then nothing is proven, and the figures
            are what would be if it were known.
        range_known: Whether rewards were declared to lie in a range; else the observed one is taken.
        rewards_fixed: False where an objective was derived from the same counts: then its values are random too.
    """

    proofs: tuple[Proof, ...]
    delta: float
    baseline_known: bool
    range_known: bool
    rewards_fixed: bool = True

    @property
    def rigorous(self) -> bool:
        """Whether all that the proof asks for is known and not assumed."""
        return self.baseline_known and self.range_known and self.rewards_fixed

    @property
    def assumptions(self) -> tuple[str, ...]:
        """In words."""
        derived = (
            ()
            if self.rewards_fixed
            else ("What is rare was told from the same counts, which the proof does not allow for.",)
        )
        return (
            *derived,
            "The logged state is all that matters for what happens next (Markov), and the process does not change.",
            "The baseline is known."
            if self.baseline_known
            else "The baseline was estimated from the same data, which the proof does not allow for: read it as a guide.",
            "Rewards lie in the declared ranges."
            if self.range_known
            else "Rewards never leave the range that was observed.",
        )


@dataclass(frozen=True, kw_only=True)
class Belief:
    """What the posterior says of a policy under one set of priors.

    Attributes:
        priors: The set, in words.
        p_safe: P(no objective loses more than ζ | data) under the neutral prior.
        p_objective: The same of each objective alone, length d.
        p_pessimistic: P(objective k does not lose | data) under the prior that is pessimistic for k, length d; empty where no
            such prior was asked.
        draws: Processes drawn under every prior; 0 by linearisation.
    """

    priors: str
    p_safe: float
    p_objective: tuple[float, ...]
    p_pessimistic: tuple[float, ...]
    draws: int

    def passes(self, delta: float) -> bool:
        """Whether the chance of a loss, with the Monte-Carlo error added, is at most δ; NaN does not pass."""
        return posterior_passes(self.p_safe, self.p_pessimistic, self.draws, delta)

    @property
    def error(self) -> float:
        """Monte-Carlo standard error of ``p_safe``; 0 by linearisation, whose error is another."""
        return draw_error(self.p_safe, self.draws) if self.draws else 0.0


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What was tested, on what evidence, and whether the policy passed.

    Attributes:
        findings: One per objective.
        evidence: What kind of evidence.
        grade: "finite-sample": holds for every size of data, given the assumptions; "approximate": nearly, for much data;
            "posterior": as good as the priors named; "exact": in a known model.
        assumptions: What it rests on, in words.
        delta: δ, the risk that was allowed.
        unsupported: Share of the policy's decisions that the baseline never takes; above 0 nothing can be promised.
        refusal: Why the data can't tell, whatever the bounds say; empty if it can.
        floors: Thresholds, if any were asked for.
        theory: What the counts alone prove, where it was computed.
        beliefs: For "posterior": what decides, and then the same under other priors, to see how much hangs on them.
        diagnostics: What doubts the estimates (effective sample size and the like).
        settings: How it was tested.
        data: Digest, rows and episodes of the data the policy was "made_from" and "tested_on".
        versions: Of the packages.
        seed: Of whatever was drawn.

    Examples:
        >>> certificate, _ = bettersafe.certify_run(run, "later.parquet")
        >>> certificate.accepted, certificate.grade
        (True, 'approximate')
        >>> [finding.objective for finding in certificate.findings]
        ['r0', 'r1']
    """

    findings: tuple[Finding, ...]
    evidence: Evidence
    grade: Grade
    assumptions: tuple[str, ...]
    delta: float
    unsupported: float = 0.0
    refusal: str = ""
    floors: tuple[Floor, ...] = ()
    theory: Theory | None = None
    beliefs: tuple[Belief, ...] = ()
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.findings:  # all(()) is True: a certificate about nothing must not exist
            raise ParameterError("a certificate needs at least one objective; got none.")
        if not self.assumptions:
            raise ParameterError("a certificate must say what it rests on; got no assumption.")
        if (self.evidence == "posterior") != bool(self.beliefs):
            raise ParameterError("a certificate has beliefs if, and only if, its evidence is the posterior.")

    @property
    def accepted(self) -> bool:
        """True when every objective passed, every threshold is kept and the data can tell; NaN does not pass."""
        return (
            all(finding.passed for finding in self.findings)
            and all(belief.passes(self.delta) for belief in self.beliefs[:1])
            and all(floor.passed for floor in self.floors)
            and self.tells
        )

    @property
    def tells(self) -> bool:
        """Whether the data can tell what comes of the policy; if not, its bounds mean nothing."""
        return self.unsupported <= UNSUPPORTED_TOL and not self.refusal

    def outcome(self, k: int) -> Outcome:
        """What was found about the objective of ``findings[k]``: the one answer that every screen gives."""
        if not self.tells:
            return "can't tell"
        if not self.findings[k].passed:
            return "not tested" if self.evidence == "theory" else "not passed"
        if self.beliefs and not self.beliefs[0].passes(self.delta):  # more than one may be to blame, and one surely is
            return "not passed" if k == self.most_doubtful or self._sure(k) < 1.0 - self.delta else "passed"
        return "passed"

    @property
    def most_doubtful(self) -> int:
        """Place in ``findings`` of the objective of which the posterior is least sure."""
        return min(range(len(self.findings)), key=lambda k: (self._sure(k), k))

    @property
    def linearised(self) -> bool:
        """Whether it is the posterior's by linearisation, without draws."""
        return bool(self.beliefs) and self.beliefs[0].draws == 0

    @property
    def doubt_order(self) -> tuple[int, ...]:
        """Places in ``findings``, the least sure first: those that did not pass, then by chance of a loss, then by margin.

        The margin is (bound + ζ) / (estimate − bound): how often the width of the bound fits between it and an accepted loss.
        """

        def doubt(k: int) -> tuple[float, float, float, int]:
            finding = self.findings[k]
            width = finding.estimate - finding.lower_bound
            margin = (finding.lower_bound + finding.zeta) / width if width > 0.0 else math.inf
            return (float(finding.passed), self._sure(k), -math.inf if math.isnan(margin) else margin, k)

        return tuple(sorted(range(len(self.findings)), key=doubt))

    def _sure(self, k: int) -> float:
        """The least P(objective k does not lose), neutral or pessimistic, under the priors that decide; 0 without beliefs."""
        chances = (
            each[k] for belief in self.beliefs[:1] for each in (belief.p_objective, belief.p_pessimistic) if each
        )
        # NaN is no order: nothing known is the most doubtful
        return min((-1.0 if math.isnan(chance) else chance for chance in chances), default=0.0)

    @property
    def verdict(self) -> str:
        """The outcome in one or two sentences."""
        if self.accepted:
            return self._acceptance
        no = "No solution found: keep the baseline" if self.evidence == "safety-test" else "Keep the baseline"
        if not self.unsupported <= UNSUPPORTED_TOL:
            return (
                f"{no}: {100 * self.unsupported:.3g} % of the policy's decisions are ones that the baseline never"
                " takes, so its data can't tell what comes of them."
            )
        if self.refusal:
            return f"{no}: the data can't tell what comes of this policy, for {self.refusal}."
        short = "; ".join(f"{f.title} by {_number(f.shortfall)}" for f in self.floors if not f.passed)
        if self.evidence == "theory":
            if short:
                return (
                    f"No solution found: nothing was held out, and by the counts alone the thresholds may be missed: {short}."
                    " Test the policy with: bettersafe certify RUN HELD_OUT."
                )
            return (
                "Not certified: nothing was held out to test the policy on, and the counts alone don't prove it safe."
                " Test it with: bettersafe certify RUN HELD_OUT."
            )
        if self.beliefs and not self.beliefs[0].passes(self.delta):
            return self._doubt
        if not all(finding.passed for finding in self.findings):
            return f"{no}: a loss can't be ruled out {self._risk}: {self._losses}."
        return f"No solution found: the policy is no worse than the baseline, but a threshold may be missed: {short}."

    @property
    def _risk(self) -> str:
        words = {"approximate": " (approximately)", "posterior": ", given the data and the priors,"}
        how = " by linearisation, without draws," if self.linearised else ""
        return f"with probability {100 * (1.0 - self.delta):.4g} %{words.get(self.grade, '')}{how}"

    @property
    def _acceptance(self) -> str:
        few = len(self.findings) <= MOST_NAMED
        names = "of: " + ", ".join(f.title for f in self.findings) if few else f"of {len(self.findings)} objectives"
        lost = [f"{f.title} {_number(f.zeta)}" for f in self.findings if f.zeta > 0.0]
        but = f", but for an accepted loss of at most {', '.join(lost)}" if lost else ""
        kept = f" It keeps the thresholds on {', '.join(f.title for f in self.floors)}." if self.floors else ""
        return f"Accepted: {self._risk} the policy is not worse than the baseline on any {names}{but}.{kept}"

    @property
    def _doubt(self) -> str:
        """What the posterior doubts."""
        belief, k = self.beliefs[0], self.most_doubtful
        dark = " under the prior that is pessimistic for it" if self._sure(k) < belief.p_objective[k] else ""
        return (
            "Keep the baseline: given the data, the policy is no worse on every objective with probability"
            f" {100 * belief.p_safe:.3g} %; the doubt is about {self.findings[k].title}"
            f" ({100 * min(1.0 - self._sure(k), 1.0):.3g} % chance of a loss{dark})."
        )

    @property
    def _losses(self) -> str:
        """The losses that can't be ruled out, the worst of them where there are many."""
        missed = [f for f in self.findings if not f.passed]
        shown = missed if len(missed) <= MOST_NAMED else [self.findings[k] for k in self.doubt_order[:WORST_NAMED]]
        worst = "; ".join(
            f"on {f.title} the gain is estimated as {_number(f.estimate)} but may be as low as {_number(f.lower_bound)}"
            + (f" (a loss of {_number(f.zeta)} would be accepted)" if f.zeta > 0.0 else "")
            for f in shown
        )
        return worst + (f"; and likewise on {len(missed) - len(shown)} more" if len(missed) > len(shown) else "")


def _number(value: float) -> str:
    """Three significant digits, and a real minus sign."""
    return f"{value:.3g}".replace("-", "−")
