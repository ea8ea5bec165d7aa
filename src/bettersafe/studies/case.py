"""One log of a known MDP, and the true returns of the policies that the methods compute from it.

A method is written as text: a key of `bettersafe.methods.METHODS` and its parameter, such as ``s-opt 0.1`` (ε), ``h-opt paper dr``
(rule, a key of `rules.RULES`, and estimator; Student t), ``linearized`` or ``b-opt`` (all three kinds of candidates). Two methods exist only in studies:
``lagrangian 0.01`` (η; more as ``norm=1``, `lagrangian_settings`), and ``optimum``, which uses the true MDP: it maximises the first objective over all policies that are no
worse than the baseline on any other objective. It shows how much can be gained in each world.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe.errors import check_choice
from bettersafe.evaluation.evaluate import Evaluation, evaluate_many
from bettersafe.evaluation.held_out import Covered, SafetyRule, coverage, logged_return
from bettersafe.logs.counts import count
from bettersafe.mdp.constrained import cmdp_optimum
from bettersafe.mdp.values import expected_return
from bettersafe.methods.b_opt import b_opt
from bettersafe.methods.facts import METHODS
from bettersafe.methods.h_opt import Trial, try_candidates, with_support
from bettersafe.methods.lagrangian import lagrangian, mixture_return
from bettersafe.posterior.judge import DRAWS, Question
from bettersafe.posterior.outcomes import gather_outcomes, outcomes_of
from bettersafe.studies.rules import RULES, Rule

if TYPE_CHECKING:
    from bettersafe.logs.dataset import Dataset
    from bettersafe.mdp.mdp import MDP
    from bettersafe.methods.b_opt import BOpt
    from bettersafe.model import Model
    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.typing import Floats

SAFETY_SHARE = 0.3
LEAST_FAILURES = 2
"""Minimal expected number of B-OPT's draws in which a policy of risk δ fails. With fewer, the test is coarse and rarely passes."""

TOL = 1e-6
"""Losses below this share of a return's range count as rounding errors, not as failures."""


def _rule(word: str) -> Rule:
    check_choice("rule of h-opt", word, RULES)
    return RULES[word]


def lagrangian_settings(words: list[str]) -> dict[str, Any]:
    """Arguments of `lagrangian` from the words after its name: η, then NAME=VALUE of norm, tol or max_rounds."""
    found: dict[str, Any] = {"eta": float(words[0])}
    for word in words[1:]:
        name, _, value = word.partition("=")
        check_choice("setting of the Lagrangian", name, ("norm", "tol", "max_rounds"))
        found[name] = int(value) if name == "max_rounds" else float(value)
    return found


def draws_for(delta: float) -> int:
    """Number of B-OPT's draws under every prior for a given δ."""
    return max(DRAWS, math.ceil(LEAST_FAILURES / delta))


@dataclass(frozen=True, kw_only=True)
class Case:
    """One log with the inputs of the methods, and the true MDP, which the methods do not see.

    Attributes:
        truth: The true MDP.
        baseline: π_b, shape [X, A].
        before: True returns of the baseline, shape [d].
        model: Model estimated from all the data.
        train_model: Model estimated from the training part; H-OPT's proposal comes from it.
        data: The whole log.
        train: The part from which H-OPT proposes.
        safety: The part on which H-OPT tests.
        delta: δ of H-OPT and B-OPT.
        draws: Number of B-OPT's draws.
        draws_seed: Their seed. Each log has its own, so that Monte Carlo errors of different logs are independent.
        max_rounds: Maximal number of rounds of policy iteration.
        ties: Policy in states without data: "baseline", or "uniform" like the interior point of a solver.
        baseline_estimated: Whether ``baseline`` was estimated from the data.
        from_counts: Whether B-OPT uses only the counts of the log.
    """

    truth: MDP
    baseline: Floats
    before: Floats
    model: Model
    train_model: Model
    data: Dataset
    train: Dataset
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
        """Outcomes of the log, for the posterior. Rewards are tied to outcomes, so no known rewards are passed; the table of
        expected rewards would reveal the true probability of reaching the goal.
        """
        return outcomes_of(count(self.data)) if self.from_counts else gather_outcomes(self.data)

    def returns(self, methods: list[str], preference: Floats) -> dict[str, Floats]:
        """True returns [d] of each method's policy for ``preference``."""
        policies = self.policies(
            [method for method in methods if method.split()[0] not in ("optimum", "lagrangian")], preference
        )
        found: dict[str, Floats] = {}
        for method in methods:
            name, *words = method.split()
            if name == "optimum":
                found[method] = cmdp_optimum(self.truth, self.before[1:]).returns
            elif name == "lagrangian":
                mixture = lagrangian(self.model, self.baseline, preference=preference, **lagrangian_settings(words))
                found[method] = mixture_return(self.truth, mixture)
            else:
                found[method] = expected_return(self.truth, policies[method])
        return found

    def policies(self, methods: list[str], preference: Floats) -> dict[str, Floats]:
        """The policies [X, A] that the methods make for ``preference``; all but ``optimum`` and ``lagrangian``."""
        tested: dict[tuple[str, bool], list[str]] = {}
        on_train = any(
            method.startswith("h-opt ") and _rule(method.split()[1]).selection == "paper" for method in methods
        )
        for method in methods:
            name, *words = method.split()
            if name == "h-opt":
                rule = _rule(words[0])
                tested.setdefault((rule.proposal, rule.strict), []).append(words[1])
        trials = {
            (proposal, strict): self._trial(
                preference, list(dict.fromkeys(estimators)), proposal, strict=strict, on_train=on_train and not strict
            )
            for (proposal, strict), estimators in tested.items()
        }
        found: dict[str, Floats] = {}
        for method in methods:
            name, *words = method.split()
            if name == "h-opt":
                rule = _rule(words[0])
                found[method] = self._tested(trials[rule.proposal, rule.strict], rule, words[1], preference)
            else:
                found[method] = self._improved(name, words, preference)
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
        """Policy of a method that uses all the data."""
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

    def _tested(self, trial: Trial, rule: Rule, estimator: str, preference: Floats) -> Floats:
        """H-OPT's policy for a rule and an estimator."""
        test = SafetyRule(
            delta=self.delta,
            zeta=np.zeros(self.before.size),
            estimator=estimator,
            comparison=rule.comparison,
            strict=rule.strict,
        )
        return trial.choose(test, rule.selection, preference)

    def _trial(
        self, preference: Floats, estimators: list[str], proposal: str, *, strict: bool, on_train: bool
    ) -> Trial:
        """H-OPT's candidates, evaluated with all estimators; with ``strict`` those, and the coverage, that `h_opt` has by default."""
        model = self.train_model
        found = METHODS[proposal].make(model, self.baseline, preference=preference, max_rounds=self.max_rounds)

        def evaluate(policy: Floats, data: Dataset) -> dict[str, Evaluation]:
            return evaluate_many(data, policy, self.baseline, estimators=estimators, model=model)

        def covered(policy: Floats) -> Covered:
            rule = SafetyRule(delta=self.delta, zeta=np.zeros(self.before.size))
            return coverage(policy, self.baseline, self.safety, rule, model=model)

        return try_candidates(
            with_support(found, model).policy if strict else self._settled(found.policy, model),
            self.baseline,
            lambda policy: evaluate(policy, self.safety),
            estimators=estimators,
            fixed={
                "published": expected_return(model.mdp, self.baseline),
                "empirical": logged_return(self.safety),
            },
            train=(lambda policy: evaluate(policy, self.train)) if on_train or strict else None,
            covered=covered if strict else None,
        )

    def _settled(self, policy: Floats, model: Model) -> Floats:
        """The policy, made uniform in states without data if ``ties`` is "uniform" (an interior-point solver does this)."""
        if self.ties == "baseline":
            return policy
        visits = np.bincount(model.mdp.pair_state, weights=model.counts, minlength=policy.shape[0])
        return np.where(visits[:, None] > 0, policy, 1.0 / policy.shape[1])
