"""Certificates: what was tested, on what evidence, and whether the policy passed.

Four kinds of evidence:

    "held-out"      a policy tested on episodes that it was not made from (`safety.safety_test`)
    "safety-test"   the test with which H-OPT chose its policy
    "posterior"     nothing was held out: the probability, given all the data, that no objective loses (`bopt`)
    "theory"        nothing was held out: what the counts alone prove (`theory.proven_loss`), which is seldom much

A *gain* is J_k(π) − J_k(π_b) with the sign that more is better, also where the objective is a cost: a gain of −0.2 on pain
is 0.2 more pain. With thresholds c_k (constrained RL, a remark of the paper), the policy must besides be worth enough:

    c_k ≤ (lower bound on J_k(π_b)) + (lower bound on J_k(π) − J_k(π_b))

and "no solution found" is the answer otherwise, with the shortfall. δ is then shared, half to each of the two bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from bettersafe.bopt import draw_error, posterior_passes
from bettersafe.bounds import ASSUMPTIONS, is_finite_sample, lower_bound
from bettersafe.episodes import truncated_episodes
from bettersafe.errors import ParameterError, RunError, check_vector
from bettersafe.evaluate import INDEPENDENT, NEEDS_MODEL, evaluate_policy
from bettersafe.posterior import CONCENTRATIONS, END_CONCENTRATIONS, PESSIMISTIC_CONCENTRATION
from bettersafe.safety import UNSUPPORTED_TOL, SafetyRule, SafetyTest, safety_test
from bettersafe.theory import proposition_loss, proven_loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.bopt import BOpt, Candidate
    from bettersafe.counts import Counts
    from bettersafe.data import Dataset
    from bettersafe.episodes import Episodes
    from bettersafe.hcpi import HOpt
    from bettersafe.model import Model

Floats = npt.NDArray[np.float64]
Grade = Literal["exact", "posterior", "finite-sample", "approximate"]
Evidence = Literal["held-out", "safety-test", "posterior", "theory"]

SCHEMA = "certificate/1"

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
    """

    objective: str
    estimate: float
    lower_bound: float
    level: float
    zeta: float

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
    """

    objective: str
    threshold: float
    baseline_bound: float
    guaranteed: float
    level: float

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
        blind: Why the data can't tell, whatever the bounds say; empty if it can.
        floors: Thresholds, if any were asked for.
        theory: What the counts alone prove, where it was computed.
        beliefs: For "posterior": what decides, and then the same under other priors, to see how much hangs on them.
        diagnostics: What doubts the estimates (effective sample size and the like).
        settings: How it was tested.
        data: Digest, rows and episodes of the data the policy was "made_from" and "tested_on".
        versions: Of the packages.
        seed: Of whatever was drawn.
    """

    findings: tuple[Finding, ...]
    evidence: Evidence
    grade: Grade
    assumptions: tuple[str, ...]
    delta: float
    unsupported: float = 0.0
    blind: str = ""
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
            and self.unsupported <= UNSUPPORTED_TOL
            and not self.blind
        )

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
            # NaN is no order: nothing known is the most doubtful
            sure = [-1.0 if math.isnan(chance) else chance for chance in self._chances(k)]
            return (float(finding.passed), min(sure, default=0.0), -math.inf if math.isnan(margin) else margin, k)

        return tuple(sorted(range(len(self.findings)), key=doubt))

    def _chances(self, k: int) -> tuple[float, ...]:
        """P(objective k does not lose), neutral and pessimistic, under the priors that decide; empty without beliefs."""
        return tuple(
            each[k] for belief in self.beliefs[:1] for each in (belief.p_objective, belief.p_pessimistic) if each
        )

    @property
    def verdict(self) -> str:
        """The outcome in one or two sentences."""
        few = len(self.findings) <= MOST_NAMED
        names = "of: " + ", ".join(f.objective for f in self.findings) if few else f"of {len(self.findings)} objectives"
        risk = f"with probability {100 * (1.0 - self.delta):.4g} %" + (
            {"approximate": " (approximately)", "posterior": ", given the data and the priors,"}.get(self.grade, "")
        )
        if self.linearised:
            risk += " by linearisation, without draws,"
        if self.accepted:
            lost = [f"{f.objective} {f.zeta:.4g}" for f in self.findings if f.zeta > 0.0]
            but = f", but for an accepted loss of at most {', '.join(lost)}" if lost else ""
            kept = f" It keeps the thresholds on {', '.join(f.objective for f in self.floors)}." if self.floors else ""
            return f"Accepted: {risk} the policy is not worse than the baseline on any {names}{but}.{kept}"
        no = "No solution found: keep the baseline" if self.evidence == "safety-test" else "Keep the baseline"
        if not self.unsupported <= UNSUPPORTED_TOL:
            return (
                f"{no}: {100 * self.unsupported:.3g} % of the policy's decisions are ones that the baseline never"
                " takes, so its data can't tell what comes of them."
            )
        if self.blind:
            return f"{no}: the data can't tell what comes of this policy, for {self.blind}."
        short = "; ".join(f"{f.objective} by {f.shortfall:.4g}" for f in self.floors if not f.passed)
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
            belief = self.beliefs[0]
            chances = [min(self._chances(k)) for k in range(len(self.findings))]
            k = int(np.argmin(chances))
            return (
                f"Keep the baseline: given the data, the policy is no worse on every objective with probability"
                f" {100 * belief.p_safe:.4g} %; the doubt is about {self.findings[k].objective}"
                f" ({100 * (1.0 - chances[k]):.3g} % chance of a loss"
                f"{' under the prior that is pessimistic for it' if chances[k] < belief.p_objective[k] else ''})."
            )
        missed = [f for f in self.findings if not f.passed]
        if len(missed) > MOST_NAMED:
            missed = [self.findings[k] for k in self.doubt_order[:WORST_NAMED]]
        if missed:
            worst = "; ".join(
                f"on {f.objective} the gain is estimated as {f.estimate:.4g} but may be as low as {f.lower_bound:.4g}"
                + (f" (a loss of {f.zeta:.4g} would be accepted)" if f.zeta > 0.0 else "")
                for f in missed
            )
            more = sum(not f.passed for f in self.findings) - len(missed)
            worst += f"; and likewise on {more} more" if more else ""
            return f"{no}: a loss can't be ruled out {risk}: {worst}."
        return f"No solution found: the policy is no worse than the baseline, but a threshold may be missed: {short}."


def certify(
    policy: Floats,
    baseline: Floats,
    held_out: Dataset | Episodes,
    rule: SafetyRule,
    *,
    baseline_known: bool,
    thresholds: npt.ArrayLike | None = None,
    tuning: Dataset | Episodes | None = None,
    model: Model | None = None,
    folds: int | None = None,
    seed: int = 0,
    usual: Floats | None = None,
) -> Certificate:
    """Test ``policy`` [X, A] on episodes that it was not made from.

    Args:
        policy: π.
        baseline: π_b, which made the data.
        held_out: Episodes, in memory or on disk, that neither the policy nor the model or ``tuning`` used.
        rule: How to test.
        baseline_known: False where the baseline was estimated: then no bound is more than approximate.
        thresholds: c_k in the sign that more is better, shape [d]; NaN for none.
        tuning: Other episodes, which finite-sample bounds need.
        model: For dr and wdr, of other data.
        folds: Instead of a model: cross-fitting on ``held_out``.
        seed: Draws the folds.
        usual: As in `safety_test`.
    """
    floors_wanted = _thresholds(thresholds, held_out.n_objectives)
    full_delta = rule.delta
    if floors_wanted.any():
        rule = replace(rule, delta=rule.delta / 2.0)
    test = safety_test(
        policy,
        baseline,
        held_out,
        rule,
        tuning=tuning,
        model=model,
        folds=folds,
        rng=np.random.default_rng(seed),
        usual=usual,
    )
    floors: tuple[Floor, ...] = ()
    if floors_wanted.any():
        level = rule.delta / int(floors_wanted.sum())
        assert thresholds is not None
        own = _baseline_bound(baseline, held_out, rule, level, model=model, folds=folds, seed=seed)
        floors = _floors(_names(held_out), np.asarray(thresholds, float), own, test.bound, level)
    return _from_test(
        test, held_out, rule, full_delta, "held-out", baseline_known, floors=floors, folds=folds, seed=seed
    )


def certify_h_opt(
    result: HOpt, safety: Dataset | Episodes, *, baseline_known: bool, seed: int | None = None
) -> Certificate:
    """The certificate of what H-OPT returned: the test that decided. Without any test there is nothing to certify."""
    test = result.deciding
    if test is None:
        raise ParameterError("H-OPT proposed nothing, so nothing was tested; there is nothing to certify.")
    certificate = _from_test(test, safety, result.rule, result.rule.delta, "safety-test", baseline_known, seed=seed)
    if result.selection == "sequential":
        more = "Candidates were tested in an order fixed beforehand, up to the first failure: δ holds for all of them together."
    else:
        more = (
            f"The best of {len(result.tests)} candidates that passed was chosen (rule {result.selection!r}) with no correction for"
            " having looked so often: the true risk may exceed δ."
        )
    return replace(
        certificate,
        grade=certificate.grade if result.selection == "sequential" else "approximate",
        assumptions=(*certificate.assumptions, more),
        settings={**certificate.settings, "selection": result.selection, "mix": result.mix},
    )


def certify_theory(
    theory: Theory, gain: Floats, *, zeta: npt.ArrayLike, thresholds: npt.ArrayLike | None = None, counts: Counts
) -> Certificate:
    """The certificate of a policy about which there is nothing but what the counts prove.

    Args:
        theory: See `prove`; with thresholds it is to have half of δ, the other half goes to the baseline's returns.
        gain: J_k(π) − J_k(π_b) in the estimated model, shape [d].
        zeta: Accepted loss, shape [d].
        thresholds: c_k in the sign that more is better, shape [d]; NaN for none.
        counts: What the policy was made from.
    """
    d = len(theory.proofs)
    loss = check_vector("zeta", zeta, d, "objective")
    names = tuple(proof.objective for proof in theory.proofs)
    bound = np.array([-proof.proven_loss for proof in theory.proofs])
    wanted = _thresholds(thresholds, d)
    floors: tuple[Floor, ...] = ()
    if wanted.any():
        # Hoeffding on the mean logged return; the proof and this bound share δ. Of episodes that were cut off the logged
        # return says too little, and of derived objectives nothing
        level = theory.delta / int(wanted.sum())
        width = np.array([proof.return_range for proof in theory.proofs])
        error = width * math.sqrt(math.log(1.0 / level) / (2.0 * counts.n_episodes))
        mean = counts.return_sum / counts.n_episodes if counts.n_truncated == 0 else np.full(d, np.nan)
        floors = _floors(names, np.asarray(thresholds, float), mean - error, bound, level)
    return Certificate(
        findings=tuple(
            Finding(objective=name, estimate=float(g), lower_bound=float(b), level=theory.delta, zeta=float(z))
            for name, g, b, z in zip(names, gain, bound, loss, strict=True)
        ),
        evidence="theory",
        grade="finite-sample" if theory.rigorous else "approximate",
        assumptions=theory.assumptions,
        delta=theory.delta * (2.0 if floors else 1.0),
        floors=floors,
        theory=theory,
        settings={"bound": "counts"},
    )


LINEARISED = (
    "By linearisation, without draws: gains are taken for linear in what is not known, around its mean, and for jointly normal. That is"
    " close where the data says much and a policy's gain is a sum over many states, and not where it hangs on a few decisions that were"
    " seldom tried."
)
"""What a certificate without draws rests on besides."""

NOT_PESSIMISTIC = (
    "No pessimistic prior was asked. How seldom B-OPT went wrong in the studies was measured with them; without them it is wrong more"
    " often where the baseline is good."
)


def certify_posterior(
    result: BOpt, candidate: Candidate, *, baseline_known: bool, others: Sequence[BOpt] = ()
) -> Certificate:
    """The certificate of a candidate that the posterior was asked about.

    Args:
        result: From `bopt.b_opt` or `bopt.judge`.
        candidate: One of its candidates.
        baseline_known: Whether the baseline is known, not estimated from the same data.
        others: The same question under other priors (`bopt.sensitivity`), each about this one policy.
    """

    def belief(found: BOpt, of: Candidate) -> Belief:
        return Belief(
            priors=_priors(found),
            p_safe=of.p_safe,
            p_objective=tuple(of.p_objective.tolist()),
            p_pessimistic=tuple(of.p_pessimistic.tolist()) if len(found.priors) > 1 else (),
            draws=of.draws,
        )

    return Certificate(
        findings=tuple(
            Finding(
                objective=name,
                estimate=float(candidate.gain[k]),
                lower_bound=float(candidate.least[k]),
                level=result.delta,
                zeta=float(result.zeta[k]),
            )
            for k, name in enumerate(result.objectives)
        ),
        evidence="posterior",
        grade="posterior",
        assumptions=(
            "The logged state is all that matters for what happens next (Markov), and the process does not change.",
            "What can happen after a decision is among what was seen to happen in that state under some decision, or an end as"
            " they are elsewhere in the log.",
            "Episodes start as those of the log do.",
            f"The priors: {_priors(result)}. {_fit(result)}",
            *([LINEARISED] if result.linearised else []),
            "The baseline is known."
            if baseline_known
            else "The baseline was estimated from the data; errors of that estimate are not accounted for.",
            *([] if len(result.priors) > 1 else [NOT_PESSIMISTIC]),
            "What is believed of a policy does not depend on the preference, so another may be tried on the same log. What is"
            " promised is about belief given this data, not about how often such choices go wrong over many data sets.",
        ),
        delta=result.delta,
        beliefs=(belief(result, candidate), *(belief(other, other.candidates[0]) for other in others)),
        settings={
            "bound": "posterior",
            "draws": result.draws,
            "form": "linearised" if result.linearised else "draws",
            "candidate": candidate.name,
            "prior": result.priors[0],
            "pessimism": result.pessimism,
        },
        diagnostics={
            "interval": {name: candidate.interval[:, k].tolist() for k, name in enumerate(result.objectives)},
            "concentration": result.concentration,
            "end_concentration": result.end_concentration,
        },
        seed=result.seed,
    )


def _priors(result: BOpt) -> str:
    """The priors in words; one that is pessimistic for each of many objectives is not spelled out."""
    first, *darker = result.priors
    if len(darker) > MOST_NAMED:
        return f"{first}; {first}, pessimistic for each of {len(darker)} objectives in turn"
    return "; ".join(result.priors)


def _fit(result: BOpt) -> str:
    """How strong the neutral prior is, in words."""
    if result.priors[0] != "hierarchical":
        return "The neutral one counts for one visit of every action."

    def visits(strength: float, most: float) -> str:
        return f"{strength:.3g} (the most that is allowed)" if strength > 0.99 * most else f"about {strength:.3g}"

    ends = result.end_concentration
    more = "" if ends is None else f", and for {visits(ends, END_CONCENTRATIONS[-1])} in whether it ends"
    return (
        "Learned from the log: what a state's other actions did counts for"
        f" {visits(result.concentration, CONCENTRATIONS[-1])} visits in where a step leads{more}; in pessimistic priors for at most"
        f" {PESSIMISTIC_CONCENTRATION:g}."
    )


def prove(
    model: Model,
    policy: Floats,
    baseline: Floats,
    counts: Counts,
    *,
    epsilon: float,
    delta: float,
    baseline_known: bool,
    reward_range: tuple[Floats, Floats] | None = None,
    rewards_fixed: bool = True,
    baseline_v: Floats | None = None,
) -> Theory:
    """What the counts alone prove of ``policy`` [X, A]: Proposition 3.1 and the bound after the fact.

    Args:
        model: The model of ``counts``.
        policy: π.
        baseline: π_b.
        counts: For the rows and the observed range of rewards.
        epsilon: ε that the policy was made with; inf where there was no budget.
        delta: δ.
        baseline_known: Whether the baseline is known, not estimated from the same data.
        reward_range: Rewards lie in [low, high], each [d]; the observed range if left out.
        rewards_fixed: False where an objective was derived from the same counts.
        baseline_v: v^{π_b} in the model, shape [d, X], where that is known already.
    """
    low, high = (counts.reward_min, counts.reward_max) if reward_range is None else reward_range
    loss = proven_loss(
        model,
        policy,
        baseline,
        delta=delta,
        reward_low=low,
        reward_high=high,
        n_rows=counts.n_rows,
        baseline_v=baseline_v,
    )
    proposition = proposition_loss(model, epsilon, np.maximum(np.abs(low), np.abs(high)))
    return Theory(
        proofs=tuple(
            Proof(
                objective=name,
                proposition_loss=float(proposition[k]),
                proven_loss=float(loss.loss_at_most[k]),
                return_range=float(loss.span[k]),
                share_safe=float(loss.share_safe[k]),
            )
            for k, name in enumerate(model.objectives)
        ),
        delta=delta,
        baseline_known=baseline_known,
        range_known=reward_range is not None,
        rewards_fixed=rewards_fixed,
    )


def _from_test(
    test: SafetyTest,
    data: Dataset | Episodes,
    rule: SafetyRule,
    delta: float,
    evidence: Evidence,
    baseline_known: bool,
    *,
    floors: tuple[Floor, ...] = (),
    folds: int | None = None,
    seed: int | None = None,
) -> Certificate:
    finite = is_finite_sample(rule.bound) and baseline_known and not truncated_episodes(data)
    return Certificate(
        findings=tuple(
            Finding(objective=name, estimate=float(e), lower_bound=float(b), level=test.level, zeta=float(z))
            for name, e, b, z in zip(_names(data), test.estimate, test.bound, test.zeta, strict=True)
        ),
        evidence=evidence,
        grade="finite-sample" if finite else "approximate",
        assumptions=_assumptions(data, rule, baseline_known),
        delta=delta,
        unsupported=test.unsupported,
        blind=test.blind,
        floors=floors,
        settings={
            "estimator": rule.estimator,
            "bound": rule.bound,
            "comparison": rule.comparison,
            "levels": rule.levels,
            "folds": folds if rule.estimator in NEEDS_MODEL else None,
        },
        seed=seed,
    )


def _assumptions(data: Dataset | Episodes, rule: SafetyRule, baseline_known: bool) -> tuple[str, ...]:
    texts = [
        "The episodes tested on were not used to make the policy, are independent of each other, and come from the process in"
        " which the policy will act.",
        "The baseline's probabilities are those with which the logged actions were taken."
        if baseline_known
        else "The baseline was estimated from the data; errors of that estimate are not accounted for, and the logged state must"
        " hold all that the decisions depended on.",
        *ASSUMPTIONS[rule.bound],
    ]
    if rule.estimator not in INDEPENDENT:
        texts.append(f"The terms of {rule.estimator!r} are linearised: good for much data.")
    if is_finite_sample(rule.bound):
        texts.append("Rewards never leave the declared ranges.")
    if rule.comparison == "published":
        texts.append("The baseline's return is taken from the trained model as if it were known; it is not.")
    cut = truncated_episodes(data)
    if cut:
        after = "is filled in by the model" if rule.estimator in NEEDS_MODEL else "is left out"
        texts.append(f"{cut} of {data.n_episodes} episodes were cut off; what would have come after {after}.")
    return tuple(texts)


def _names(data: Dataset | Episodes) -> tuple[str, ...]:
    return tuple(objective.name for objective in data.objectives)


def _thresholds(thresholds: npt.ArrayLike | None, d: int) -> npt.NDArray[np.bool_]:
    """Which objectives have a threshold, shape [d]."""
    if thresholds is None:
        return np.zeros(d, dtype=bool)
    values = np.asarray(thresholds, dtype=np.float64)
    if values.shape != (d,) or np.any(np.isinf(values)):
        raise ParameterError(
            f"thresholds need {d} finite numbers, one per objective (NaN for none); got {values.tolist()}."
        )
    return ~np.isnan(values)


def _floors(
    names: tuple[str, ...], thresholds: Floats, baseline_bound: Floats, gain_bound: Floats, level: float
) -> tuple[Floor, ...]:
    return tuple(
        Floor(
            objective=names[k],
            threshold=float(thresholds[k]),
            baseline_bound=float(baseline_bound[k]),
            guaranteed=float(baseline_bound[k] + gain_bound[k]),
            level=level,
        )
        for k in np.flatnonzero(~np.isnan(thresholds))
    )


def _baseline_bound(
    baseline: Floats,
    data: Dataset | Episodes,
    rule: SafetyRule,
    level: float,
    *,
    model: Model | None,
    folds: int | None,
    seed: int,
) -> Floats:
    """A lower bound on J_k(π_b) from the log, shape [d]; NaN where episodes were cut off and no model fills in the rest."""
    discount = np.array([objective.discount for objective in data.objectives])
    needs = rule.estimator in NEEDS_MODEL
    if not needs and truncated_episodes(data):
        return np.full(discount.size, np.nan)
    returns = evaluate_policy(
        data,
        baseline,
        baseline,
        estimator=rule.estimator,
        model=model if needs else None,
        folds=folds if needs else None,
        rng=np.random.default_rng(seed),
    ).per_trajectory
    if not is_finite_sample(rule.bound):
        return lower_bound(returns, level, method=rule.bound)
    if rule.return_range is not None:
        low, high = (np.asarray(edge, dtype=np.float64) for edge in rule.return_range)
    else:
        assert rule.reward_range is not None
        edges = [np.asarray(edge, dtype=np.float64) for edge in rule.reward_range]
        low, high = return_range(edges[0], edges[1], discount)
    return lower_bound(returns, level, method=rule.bound, low=low, cap=high)


def return_range(reward_low: Floats, reward_high: Floats, discount: Floats) -> tuple[Floats, Floats]:
    """Lowest and highest discounted return of an episode of any length ≥ 1 whose rewards lie in [low, high], each [d]."""
    low = np.where(reward_low < 0.0, reward_low / (1.0 - discount), reward_low)
    high = np.where(reward_high > 0.0, reward_high / (1.0 - discount), reward_high)
    return np.asarray(low), np.asarray(high)


# The file: numbers that JSON lacks are written as words; what is derived is written for readers, and recomputed on reading.


def certificate_json(certificate: Certificate) -> dict[str, Any]:
    """The certificate as a JSON document (schema certificate/1)."""
    theory = certificate.theory
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "accepted": certificate.accepted,
        "verdict": certificate.verdict,
        "evidence": certificate.evidence,
        "grade": certificate.grade,
        "delta": certificate.delta,
        "objectives": [{**vars(finding), "passed": finding.passed} for finding in certificate.findings],
        "thresholds": [
            {**vars(floor), "shortfall": floor.shortfall, "passed": floor.passed} for floor in certificate.floors
        ],
        "unsupported": certificate.unsupported,
        "blind": certificate.blind,
        "assumptions": list(certificate.assumptions),
        "theory": None
        if theory is None
        else {
            "delta": theory.delta,
            "baseline_known": theory.baseline_known,
            "range_known": theory.range_known,
            "rewards_fixed": theory.rewards_fixed,
            "assumptions": list(theory.assumptions),
            "objectives": [
                {
                    **vars(proof),
                    "proposition": "informative" if proof.proposition_informative else "uninformative",
                    "proof": "informative" if proof.informative else "uninformative",
                }
                for proof in theory.proofs
            ],
        },
        "beliefs": [
            {**vars(belief), "error": belief.error, "passes": belief.passes(certificate.delta)}
            for belief in certificate.beliefs
        ],
        "diagnostics": dict(certificate.diagnostics),
        "settings": dict(certificate.settings),
        "data": dict(certificate.data),
        "versions": dict(certificate.versions),
        "seed": certificate.seed,
    }
    return _words(document)  # type: ignore[no-any-return]


def certificate_from_json(document: Any, place: str) -> Certificate:
    """Read what `certificate_json` wrote; ``place`` names the file in messages.

    Raises:
        RunError: Another schema, a field missing, or a verdict that does not follow from the numbers.
    """
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise RunError(f"{place} has schema {schema!r}; this version of bettersafe reads {SCHEMA!r}.")
    try:
        theory = document["theory"]
        certificate = Certificate(
            findings=tuple(_record(Finding, row) for row in document["objectives"]),
            evidence=document["evidence"],
            grade=document["grade"],
            assumptions=tuple(document["assumptions"]),
            delta=float(document["delta"]),
            unsupported=float(document["unsupported"]),
            blind=str(document["blind"]),
            floors=tuple(_record(Floor, row) for row in document["thresholds"]),
            theory=None
            if theory is None
            else Theory(
                proofs=tuple(_record(Proof, row) for row in theory["objectives"]),
                delta=float(theory["delta"]),
                baseline_known=bool(theory["baseline_known"]),
                range_known=bool(theory["range_known"]),
                rewards_fixed=bool(theory["rewards_fixed"]),
            ),
            beliefs=tuple(
                Belief(
                    priors=row["priors"],
                    p_safe=float(row["p_safe"]),
                    p_objective=tuple(float(p) for p in row["p_objective"]),
                    p_pessimistic=tuple(float(p) for p in row["p_pessimistic"]),
                    draws=int(row["draws"]),
                )
                for row in document.get("beliefs", [])
            ),
            diagnostics=document["diagnostics"],
            settings=document["settings"],
            data=document["data"],
            versions=document["versions"],
            seed=document["seed"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{place} is not complete: {error}.") from None
    if document.get("accepted") is not certificate.accepted:
        raise RunError(f"{place} says accepted: {document.get('accepted')}, which does not follow from its numbers.")
    return certificate


def _record(kind: type[Any], row: Mapping[str, Any]) -> Any:
    """One Finding, Floor or Proof; every field but the objective's name is a number."""
    return kind(**{name: row[name] if name == "objective" else float(row[name]) for name in kind.__dataclass_fields__})


def _words(value: Any) -> Any:
    """``value`` with infinities and NaN as words, which JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _words(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_words(item) for item in value]
    return value
