"""Certificate types and the verdict that follows from them.

There are four kinds of evidence, and three words for them: a policy is *tested*, *proposed* (believed) or *proven*.

    "held-out"      tested on episodes that were not used to make the policy (`held_out.safety_test`)
    "safety-test"   tested by the test with which H-OPT selected its policy
    "posterior"     believed: the posterior probability that no objective loses (`posterior.judge`), without a held-out test
    "theory"        proven: the loss that the counts alone rule out (`theory.proven_loss`), often a weak bound

A *gain* is J_k(π) − J_k(π_b), signed so that more is better, also for costs: a gain of −0.2 on pain is 0.2 more pain.
With thresholds c_k (constrained RL, a remark of the paper), the policy must also satisfy

    c_k ≤ (lower bound on J_k(π_b)) + (lower bound on J_k(π) − J_k(π_b)).

The second bound is above 0 where a gain is shown, by a test or by the counts (`theory`).

Otherwise the verdict is "no solution found", with the shortfall. Each of the two bounds then gets half of δ.

This module imports no solver and no method, so that reading a run is cheap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bettersafe.errors import ParameterError
from bettersafe.evaluation.state_evidence import StateCheck
from bettersafe.evaluation.support import UNSUPPORTED_TOL
from bettersafe.posterior.rule import draw_error, posterior_passes, probability

Grade = Literal["exact", "posterior", "finite-sample", "approximate"]
Evidence = Literal["held-out", "safety-test", "posterior", "theory"]
Standing = Literal["passed", "refused", "proposed", "in doubt", "proven", "not proven", "not tested"]
Outcome = Literal["passed", "not passed", "believed", "in doubt", "proven", "can't tell", "not tested"]

POSITIVE: dict[Evidence, tuple[Standing, Outcome]] = {
    "held-out": ("passed", "passed"),
    "safety-test": ("passed", "passed"),
    "posterior": ("proposed", "believed"),
    "theory": ("proven", "proven"),
}
"""Words of each kind of evidence for a policy, and for an objective, that no loss is left to fear of."""

NEGATIVE: dict[Evidence, tuple[Standing, Outcome]] = {
    "held-out": ("refused", "not passed"),
    "safety-test": ("refused", "not passed"),
    "posterior": ("in doubt", "in doubt"),
    "theory": ("not proven", "not tested"),
}
"""Words of each kind of evidence for a policy, and for an objective, on which a loss is possible."""

TESTS: tuple[Evidence, ...] = ("held-out", "safety-test")
"""Kinds of evidence that are tests on episodes that the policy was not made from."""

MARKOV = "The logged state is all that matters for what happens next (Markov), and the process does not change."
"""Assumption of every certificate, and of the estimated model."""

MOST_NAMED = 8
"""Largest number of objectives that a sentence lists by name; if there are more, it gives their number and the worst."""

WORST_NAMED = 3
"""Objectives listed by name if there are more than `MOST_NAMED`."""


def steps_words(horizon: int | None, *, complete: bool = True) -> str:
    """Steps of a return: "first 100 steps" or, if episodes are cut off before, "logged steps only"; empty for no limit."""
    if not complete:
        return "logged steps only"
    return "" if horizon is None else "first step" if horizon == 1 else f"first {horizon:,} steps"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Estimate and lower bound of the gain on one objective; a positive gain means that the policy is better.

    Attributes:
        objective: Name of the objective.
        estimate: Estimated gain J_k(π) − J_k(π_b).
        lower_bound: Lower bound on the gain, with probability 1 − level.
        level: δ_k.
        zeta: Accepted loss ζ_k.
        label: Label of the objective for people; empty to use the name.
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
        """Whether the bound rules out a loss of more than ζ_k; NaN does not pass."""
        return self.lower_bound >= -self.zeta


@dataclass(frozen=True, kw_only=True)
class Floor:
    """Threshold on the return of one objective; all numbers are signed so that more is better.

    Attributes:
        objective: Name of the objective.
        threshold: c_k, the smallest acceptable return.
        baseline_bound: Lower bound on the baseline's return, with probability 1 − level.
        guaranteed: Lower bound on the policy's return: ``baseline_bound`` plus the lower bound on the gain.
        level: δ of ``baseline_bound``.
        label: Label of the objective for people; empty to use the name.
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
        """Distance from ``guaranteed`` up to the threshold; 0 if the threshold is met, NaN if ``guaranteed`` is NaN."""
        return max(self.threshold - self.guaranteed, 0.0) if not math.isnan(self.guaranteed) else math.nan

    @property
    def passed(self) -> bool:
        """Whether the threshold is met; NaN does not pass."""
        return self.guaranteed >= self.threshold


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Bounds on the loss on one objective that follow from the counts alone (`theory`).

    Attributes:
        objective: Name of the objective.
        proposition_loss: Upper bound on the loss in any state by Proposition 3.1; infinite without a budget.
        proven_loss: Upper bound on the loss computed for this policy after optimisation (a-posteriori bound).
        return_range: Width of the range of returns; a loss bound is informative only if it is smaller.
        share_safe: Share of states in which the a-posteriori bound rules out any loss.
        proven_gain: Lower bound on the gain by the same proof, −``proven_loss`` or above 0; None in certificates of earlier versions.
        baseline_at_least: Lower bound on the baseline's return by the same proof; None in certificates of earlier versions.
    """

    objective: str
    proposition_loss: float
    proven_loss: float
    return_range: float
    share_safe: float
    proven_gain: float | None = None
    baseline_at_least: float | None = None

    @property
    def gain_at_least(self) -> float:
        """Lower bound on the gain: ``proven_gain``, or −``proven_loss`` in certificates of earlier versions; never −0."""
        return 0.0 - self.proven_loss if self.proven_gain is None else self.proven_gain

    @property
    def proposition_informative(self) -> bool:
        """Whether the bound of Proposition 3.1 is smaller than the range of returns."""
        return self.proposition_loss < self.return_range

    @property
    def informative(self) -> bool:
        """Whether the a-posteriori bound is smaller than the range of returns."""
        return self.proven_loss < self.return_range


@dataclass(frozen=True, kw_only=True)
class Theory:
    """Bounds that follow from the counts alone, with their assumptions.

    Attributes:
        proofs: Bounds, one per objective.
        delta: δ.
        baseline_known: False if the baseline was estimated from the same data. The bounds are then computed as if it were
            known, and prove nothing.
        range_known: Whether the range of rewards was declared; if not, the observed range is used.
        rewards_fixed: False if an objective was derived from the same counts, so that its rewards are random too.
    """

    proofs: tuple[Proof, ...]
    delta: float
    baseline_known: bool
    range_known: bool
    rewards_fixed: bool = True

    @property
    def rigorous(self) -> bool:
        """Whether the baseline, the reward range and the rewards are all known, as the proof requires."""
        return self.baseline_known and self.range_known and self.rewards_fixed

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions in sentences."""
        derived = (
            ()
            if self.rewards_fixed
            else ("Rare decisions were identified from the same counts, which the proof does not cover.",)
        )
        return (
            *derived,
            MARKOV,
            "The baseline is known."
            if self.baseline_known
            else "The baseline was estimated from the same data, which the proof does not cover: the bounds are a guide only.",
            "Rewards lie in the declared ranges." if self.range_known else "Rewards always lie in the observed range.",
        )


@dataclass(frozen=True, kw_only=True)
class Belief:
    """Posterior probabilities of a policy under one set of priors.

    Attributes:
        priors: Description of the set of priors.
        p_safe: P(no objective loses more than ζ | data) under the neutral prior.
        p_objective: P(objective k does not lose more than ζ_k | data) under the neutral prior, length d.
        p_pessimistic: P(objective k does not lose more than ζ_k | data) under the prior that is pessimistic for k, length d;
            empty without pessimistic priors.
        draws: Processes drawn under every prior; 0 with linearisation.
    """

    priors: str
    p_safe: float
    p_objective: tuple[float, ...]
    p_pessimistic: tuple[float, ...]
    draws: int

    def passes(self, delta: float) -> bool:
        """Whether the probability of a loss, plus its Monte-Carlo error, is at most δ; NaN does not pass."""
        return posterior_passes(self.p_safe, self.p_pessimistic, self.draws, delta)

    @property
    def error(self) -> float:
        """Monte-Carlo standard error of ``p_safe``; 0 with linearisation, which has no Monte-Carlo error."""
        return draw_error(self.p_safe, self.draws) if self.draws else 0.0


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Test of a policy: estimates and bounds per objective, evidence, assumptions and verdict.

    Attributes:
        findings: Estimates and bounds, one per objective.
        evidence: Kind of evidence.
        grade: "finite-sample": valid for any amount of data, given the assumptions; "approximate": valid asymptotically;
            "posterior": conditional on the priors; "exact": computed in a known model.
        assumptions: Assumptions in sentences.
        delta: δ, the allowed probability of a wrong verdict.
        unsupported: Share of the policy's decisions that the baseline never takes; the policy is refused if it is above 0.
        refusal: Reason why the data can't support a verdict, whatever the bounds are; empty if it can.
        floors: Thresholds, if any were set.
        theory: Bounds from the counts alone, if they were computed.
        beliefs: Only for "posterior": the posterior under the priors that decide, then under other priors (sensitivity).
        checks: Checks whether the logged state is enough for the model, of the log that the policy was made from.
        diagnostics: Diagnostics of the estimates, such as the effective sample size.
        settings: Settings of the test.
        data: Digest, rows and episodes of the data that the policy was "made_from" and "tested_on".
        versions: Versions of the packages.
        seed: Seed of the random draws.

    Examples:
        >>> certificate, _ = bettersafe.certify_run(run, "later.parquet")
        >>> certificate.standing, certificate.grade
        ('passed', 'approximate')
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
    checks: tuple[StateCheck, ...] = ()
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.findings:  # all(()) is True: without findings a certificate would pass
            raise ParameterError("a certificate needs at least one objective; got none.")
        if not self.assumptions:
            raise ParameterError("a certificate needs at least one assumption; got none.")
        if (self.evidence == "posterior") != bool(self.beliefs):
            raise ParameterError("a certificate has beliefs if and only if its evidence is the posterior.")

    @property
    def accepted(self) -> bool:
        """True if the policy `passes`, and no check speaks against the model on which the evidence rests.

        For people, `standing` has the word: a policy is tested and passed, proposed, or proven.
        """
        return self.passes and not self.doubted

    @property
    def standing(self) -> Standing:
        """What the evidence says, in the word of its kind: a test is "passed" or "refused", a belief "proposed" or "in doubt", a
        theorem "proven" or "not proven"; "not tested" if only a check of the state speaks against the policy.
        """
        if self.accepted:
            return POSITIVE[self.evidence][0]
        return "not tested" if self.passes else NEGATIVE[self.evidence][0]

    @property
    def word(self) -> str:
        """`standing` as the first word of a sentence about the policy.

        A bound from the counts is "proven under assumptions" if not everything that the proof needs is known.
        """
        if self.standing == "proven" and self.grade == "approximate":
            return "Proven under assumptions"
        words = {"passed": "Tested, passed", "refused": "Tested, refused"}
        return words.get(self.standing, self.standing.capitalize())

    @property
    def by_test(self) -> bool:
        """Whether the evidence is a test on episodes that the policy was not made from."""
        return self.evidence in TESTS

    @property
    def passes(self) -> bool:
        """True if every objective passes, every threshold is met and the data covers the policy; NaN does not pass."""
        return (
            all(finding.passed for finding in self.findings)
            and all(belief.passes(self.delta) for belief in self.beliefs[:1])
            and all(floor.passed for floor in self.floors)
            and self.tells
        )

    @property
    def doubted(self) -> tuple[StateCheck, ...]:
        """Checks that speak against the model, if the evidence rests on it; a test on other episodes does not."""
        if self.by_test:
            return ()
        return tuple(check for check in self.checks if check.against)

    @property
    def horizon(self) -> int | None:
        """Number of steps of the returns; None for no limit."""
        found: int | None = self.settings.get("horizon")
        return found

    @property
    def complete(self) -> bool:
        """Whether the gains are of all steps up to the horizon; if not, of the logged steps of episodes that are cut off."""
        return bool(self.diagnostics.get("complete", True))

    @property
    def tells(self) -> bool:
        """Whether the data covers the policy; if not, its bounds are meaningless."""
        return self.unsupported <= UNSUPPORTED_TOL and not self.refusal

    def outcome(self, k: int) -> Outcome:
        """Outcome for ``findings[k]``, as terminal, report and explorer show it."""
        if not self.tells:
            return "can't tell"
        yes, no = POSITIVE[self.evidence][1], NEGATIVE[self.evidence][1]
        if not self.findings[k].passed:
            return no
        if self.beliefs and not self.beliefs[0].passes(self.delta):  # at least one objective must then fail
            return no if k == self.most_doubtful or self._sure(k) < 1.0 - self.delta else yes
        return "not tested" if self.doubted else yes

    @property
    def most_doubtful(self) -> int:
        """Index in ``findings`` of the objective with the largest posterior probability of a loss."""
        return min(range(len(self.findings)), key=lambda k: (self._sure(k), k))

    @property
    def linearised(self) -> bool:
        """Whether the posterior was computed by linearisation, without draws."""
        return bool(self.beliefs) and self.beliefs[0].draws == 0

    @property
    def doubt_order(self) -> tuple[int, ...]:
        """Indices into ``findings``, most doubtful first: by not passed, then probability of a loss, then margin.

        The margin is (bound + ζ) / (estimate − bound): the distance of the bound from −ζ in units of the bound's width.
        """

        def doubt(k: int) -> tuple[float, float, float, int]:
            finding = self.findings[k]
            width = finding.estimate - finding.lower_bound
            margin = (finding.lower_bound + finding.zeta) / width if width > 0.0 else math.inf
            return (float(finding.passed), self._sure(k), -math.inf if math.isnan(margin) else margin, k)

        return tuple(sorted(range(len(self.findings)), key=doubt))

    def _sure(self, k: int) -> float:
        """Smallest P(objective k does not lose), neutral or pessimistic, under the priors that decide; 0 without beliefs."""
        chances = (
            each[k] for belief in self.beliefs[:1] for each in (belief.p_objective, belief.p_pessimistic) if each
        )
        # NaN has no order; an unknown probability counts as the most doubtful
        return min((-1.0 if math.isnan(chance) else chance for chance in chances), default=0.0)

    @property
    def loss_risk(self) -> float:
        """Posterior probability of a loss under the priors that decide: neutral, or the sum over the pessimistic priors; at most 1."""
        belief = self.beliefs[0]
        return min(max(1.0 - belief.p_safe, sum(1.0 - p for p in belief.p_pessimistic)), 1.0)

    @property
    def verdict(self) -> str:
        """Verdict in one or two sentences."""
        if self.accepted:
            return self._positive
        if self.passes:
            found = "; ".join(check.sentence for check in self.doubted)
            return f"Not without a test on other episodes: {found}. Test it with: bettersafe certify RUN HELD_OUT."
        short = "; ".join(f"{f.title} by {_number(f.shortfall)}" for f in self.floors if not f.passed)
        if self.evidence == "theory":
            if short:
                return (
                    "Not proven: there was no held-out test, and the counts alone don't show that the thresholds are met;"
                    f" shortfall: {short}. Test the policy with: bettersafe certify RUN HELD_OUT."
                )
            return (
                "Not tested, not proven: there was no held-out test, and the counts alone don't prove the policy safe."
                " Test it with: bettersafe certify RUN HELD_OUT."
            )
        return f"{self.word}: {self._refused(short)}. Keep the baseline."

    def _refused(self, short: str) -> str:
        """Reason of a refusal; ``short`` lists the thresholds that may be missed."""
        if not self.unsupported <= UNSUPPORTED_TOL:
            return (
                f"the baseline never takes {100 * self.unsupported:.3g} % of the policy's decisions, so the data"
                " can't show their effect"
            )
        if self.refusal:
            return f"the data can't show the effect of this policy: {self.refusal}"
        if self.beliefs and not self.beliefs[0].passes(self.delta):
            return self._doubt
        if not all(finding.passed for finding in self.findings):
            return f"a loss can't be ruled out {self._risk}{self._steps}: {self._losses}"
        return f"the policy is not worse than the baseline, but may miss a threshold: {short}"

    @property
    def _risk(self) -> str:
        words = {"approximate": " (approximately)", "posterior": ", given the data and the priors,"}
        return f"with probability {100 * (1.0 - self.delta):.4g} %{words.get(self.grade, '')}"

    @property
    def _positive(self) -> str:
        """Verdict on a policy that was tested, is proposed or is proven."""
        few = len(self.findings) <= MOST_NAMED
        names = "of: " + ", ".join(f.title for f in self.findings) if few else f"of {len(self.findings)} objectives"
        lost = [f"{f.title} {_number(f.zeta)}" for f in self.findings if f.zeta > 0.0]
        but = f", except for an accepted loss of at most {', '.join(lost)}" if lost else ""
        kept = f" It meets the thresholds on {', '.join(f.title for f in self.floors)}." if self.floors else ""
        claim = f"the policy is not worse than the baseline on any {names}{but}{self._steps}"
        if self.beliefs:
            belief = self.beliefs[0]
            how = ", computed by linearisation, without draws" if self.linearised else ""
            return (
                f"Proposed, not tested: given the log and the priors, {claim}, with probability"
                f" {probability(belief.p_safe, belief.draws)}{how}; {_number(1.0 - self.delta)} is needed.{kept}"
            )
        return f"{self.word}: {self._risk} {claim}.{kept}"

    @property
    def _steps(self) -> str:
        words = steps_words(self.horizon, complete=self.complete)
        return f", in the {words}" if words else ""

    @property
    def _doubt(self) -> str:
        """Reason of a refusal if the posterior probability of a loss is too large."""
        belief, k = self.beliefs[0], self.most_doubtful
        prior = " under the pessimistic prior" if self._sure(k) < belief.p_objective[k] else ""
        return (
            "given the log, the policy is not worse on any objective with probability"
            f" {probability(belief.p_safe, belief.draws)}; the most doubtful objective is {self.findings[k].title}"
            f" (probability of a loss {min(1.0 - self._sure(k), 1.0):.2g}{prior})"
        )

    @property
    def _losses(self) -> str:
        """Losses that can't be ruled out; only the worst if there are many."""
        missed = [f for f in self.findings if not f.passed]
        shown = missed if len(missed) <= MOST_NAMED else [self.findings[k] for k in self.doubt_order[:WORST_NAMED]]
        worst = "; ".join(
            f"on {f.title} the gain is estimated as {_number(f.estimate)} but may be as low as {_number(f.lower_bound)}"
            + (f" (a loss of {_number(f.zeta)} would be accepted)" if f.zeta > 0.0 else "")
            for f in shown
        )
        return worst + (f"; and on {len(missed) - len(shown)} more objectives" if len(missed) > len(shown) else "")


def _number(value: float) -> str:
    """Number with three significant digits and a typographic minus sign; never −0."""
    return f"{value + 0.0:.3g}".replace("-", "−")
