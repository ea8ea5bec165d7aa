"""One log of a known process: the policies that methods make from it, and their true returns.

Methods are written as words: a name of `bettersafe.methods.METHODS` and its parameter, such as ``s-opt 0.1`` (ε), ``h-opt paper dr``
(rule and estimator; Student t), ``linearized`` and ``b-opt`` (all three kinds of candidates); or what only studies know:
``lagrangian 0.01`` (η), and ``optimum`` (knows the process: the most of the first objective of all policies that are no worse than the
baseline on any other; what could be gained differs from world to world).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe.errors import check_choice
from bettersafe.evaluation.evaluate import Evaluation, evaluate_many
from bettersafe.evaluation.held_out import SafetyRule
from bettersafe.logs.counts import count
from bettersafe.mdp.constrained import cmdp_optimum
from bettersafe.mdp.values import expected_return
from bettersafe.methods.b_opt import b_opt
from bettersafe.methods.facts import METHODS
from bettersafe.methods.h_opt import Trial, try_candidates
from bettersafe.methods.lagrangian import lagrangian, mixture_return
from bettersafe.methods.s_opt import adv_linearized
from bettersafe.posterior.judge import DRAWS, Question
from bettersafe.posterior.outcomes import gather_outcomes, outcomes_of

if TYPE_CHECKING:
    from bettersafe.logs.dataset import Dataset
    from bettersafe.mdp.mdp import MDP
    from bettersafe.methods.b_opt import BOpt
    from bettersafe.model import Model
    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.typing import Floats

Row = dict[str, Any]
SAFETY_SHARE = 0.3
LEAST_FAILURES = 2
"""Draws of B-OPT in which a policy of risk δ fails, on average, at least: with fewer the test is coarse, and passes little."""

TOL = 1e-6
"""Losses below this share of a return's range are rounding, not failures."""


def draws_for(delta: float) -> int:
    """Draws of B-OPT under every prior at this δ."""
    return max(DRAWS, math.ceil(LEAST_FAILURES / delta))


@dataclass(frozen=True, kw_only=True)
class Case:
    """One log: what the methods are given, and the truth that they are not.

    Attributes:
        truth: The true MDP.
        baseline: π_b, shape [X, A].
        before: Its true returns, shape [d].
        model: The model of all the data.
        train_model: The model of the training part, which H-OPT proposes from.
        data: All the data.
        safety: The part that H-OPT tests on.
        delta: δ of H-OPT and B-OPT.
        draws: Draws of B-OPT.
        draws_seed: Their seed; one for every log, or the errors of all draws would be alike.
        max_rounds: Cap on rounds of policy iteration.
        ties: What is played where every policy is as good: "baseline", or "uniform" as a solver's interior point.
        baseline_estimated: Whether ``baseline`` was estimated from the data.
        from_counts: Whether B-OPT is given the counts of the log only.
    """

    truth: MDP
    baseline: Floats
    before: Floats
    model: Model
    train_model: Model
    data: Dataset
    safety: Dataset
    delta: float
    draws: int
    draws_seed: int
    max_rounds: int
    ties: str = "baseline"
    from_counts: bool = False
    baseline_estimated: bool = False

    @cached_property
    def outcomes(self) -> Outcomes:
        """The log as the posterior needs it. What a step pays goes with where it led, so nothing need be known: of the table of
        expected rewards, the goal's would give away the probabilities of reaching it.
        """
        return outcomes_of(count(self.data)) if self.from_counts else gather_outcomes(self.data)

    def returns(self, methods: list[str], preference: Floats) -> dict[str, Floats]:
        """True returns [d] of the policies that the methods make for ``preference``."""
        policies = self.policies(
            [method for method in methods if method.split()[0] not in ("optimum", "lagrangian")], preference
        )
        found: dict[str, Floats] = {}
        for method in methods:
            name, *words = method.split()
            if name == "optimum":
                found[method] = cmdp_optimum(self.truth, self.before[1:]).returns
            elif name == "lagrangian":
                mixture = lagrangian(self.model, self.baseline, preference=preference, eta=float(words[0]))
                found[method] = mixture_return(self.truth, mixture)
            else:
                found[method] = expected_return(self.truth, policies[method])
        return found

    def policies(self, methods: list[str], preference: Floats) -> dict[str, Floats]:
        """The policies [X, A] that the methods make for ``preference``; all but ``optimum`` and ``lagrangian``."""
        estimators = [method.split()[2] for method in methods if method.startswith("h-opt ")]
        trial = self._trial(preference, list(dict.fromkeys(estimators))) if estimators else None
        found: dict[str, Floats] = {}
        for method in methods:
            name, *words = method.split()
            found[method] = (
                self._tested(trial, words, preference)
                if trial is not None and name == "h-opt"
                else self._improved(name, words, preference)
            )
        return found

    def b_opt(self, preference: Floats) -> BOpt:
        """B-OPT's result for ``preference``."""
        question = Question(delta=self.delta, draws=self.draws, seed=self.draws_seed)
        return b_opt(
            self.outcomes,
            self.model,
            self.baseline,
            preference=preference,
            question=question,
            baseline_estimated=self.baseline_estimated,
        )

    def _improved(self, name: str, words: list[str], preference: Floats) -> Floats:
        """The policy of a method that uses all the data."""
        check_choice("method", name, (*METHODS, "lagrangian", "optimum"))
        facts = METHODS[name]
        if facts.posterior:
            return self.b_opt(preference).improvement.policy
        policy = facts.make(
            self.model,
            self.baseline,
            preference=preference,
            epsilon=float(words[0]) if facts.budget else math.inf,
            max_rounds=self.max_rounds if facts.per_state else None,
        ).policy
        return policy if facts.budget else self._settled(policy, self.model)

    def _tested(self, trial: Trial, words: list[str], preference: Floats) -> Floats:
        """H-OPT's policy by a rule and an estimator."""
        selection: Any = words[0]
        rule = SafetyRule(
            delta=self.delta,
            zeta=np.zeros(self.before.size),
            estimator=words[1],
            comparison="published" if selection == "published" else "paired",
            strict=False,  # the baseline plays every action
        )
        return trial.choose(rule, selection, preference)

    def _trial(self, preference: Floats, estimators: list[str]) -> Trial:
        """H-OPT's candidates on the safety part, for all estimators and both comparisons."""
        model = self.train_model
        proposal = adv_linearized(model, self.baseline, preference=preference, max_rounds=self.max_rounds).policy

        def evaluate(policy: Floats) -> dict[str, Evaluation]:
            return evaluate_many(self.safety, policy, self.baseline, estimators=estimators, model=model)

        return try_candidates(
            self._settled(proposal, model),
            self.baseline,
            evaluate,
            estimators=estimators,
            baseline_return=expected_return(model.mdp, self.baseline),
        )

    def _settled(self, policy: Floats, model: Model) -> Floats:
        """The policy as it is, or with what an interior-point method does where every policy is as good: in states that the
        log has nothing of, all actions alike.
        """
        if self.ties == "baseline":
            return policy
        visits = np.bincount(model.mdp.pair_state, weights=model.counts, minlength=policy.shape[0])
        return np.where(visits[:, None] > 0, policy, 1.0 / policy.shape[1])
