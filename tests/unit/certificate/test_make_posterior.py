"""Certificates from the posterior: the numbers are the candidate's, and what was assumed is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bettersafe.certificate.make_posterior import LINEARISED, NOT_PESSIMISTIC, certify_posterior
from bettersafe.logs.dataset import Objective
from bettersafe.posterior.judge import Question, judge, sensitivity
from bettersafe.posterior.priors import PriorSet
from posterior_cases import random_case, s_opt_policies


@pytest.fixture(scope="module")
def asked():
    """A policy, and `judge` and `sensitivity` with what else they take."""
    outcomes, model, baseline = random_case(quality=0.1)
    (policy,) = s_opt_policies(model, baseline, (1.0,), (1.0, 0.5))
    name = "S-OPT"

    def answer(question):
        return judge([policy], outcomes, baseline, question, model=model, names=[name])

    def others(question):
        return sensitivity(policy, outcomes, baseline, question, model=model)

    return answer, others


def test_the_numbers_are_the_candidates(asked):
    answer = asked[0](Question(draws=60, delta=0.2, seed=5))
    candidate = answer.candidates[0]
    objectives = [Objective(name="r0"), Objective(name="r1", label="Second")]
    made = certify_posterior(answer, candidate, baseline_known=True, objectives=objectives)
    for k, finding in enumerate(made.findings):
        assert (finding.objective, finding.label) == (f"r{k}", ("", "Second")[k])
        assert (finding.estimate, finding.lower_bound) == (candidate.gain[k], candidate.least[k])
        assert (finding.level, finding.zeta) == (0.2, 0.0)
    (belief,) = made.beliefs
    assert (belief.p_safe, belief.draws) == (candidate.p_safe, candidate.draws)
    assert belief.p_objective == tuple(candidate.p_objective)
    assert belief.p_pessimistic == tuple(candidate.p_pessimistic)
    assert (made.evidence, made.grade, made.delta, made.seed) == ("posterior", "posterior", 0.2, 5)
    assert made.settings["candidate"] == candidate.name
    np.testing.assert_array_equal(made.diagnostics["interval"]["r1"], candidate.interval[:, 1])
    assert "The baseline is known." in made.assumptions


def test_what_was_assumed_is_said(asked):
    answer = asked[0](Question(form="linearised", priors=PriorSet(neutral="support", pessimism=0.0)))
    made = certify_posterior(answer, answer.candidates[0], baseline_known=False)
    said = " ".join(made.assumptions)
    assert LINEARISED in said
    assert NOT_PESSIMISTIC in said
    assert "weighs as much as one visit of every action" in said
    assert "The baseline was estimated from the data" in said
    assert made.beliefs[0].p_pessimistic == ()


def test_other_priors_stand_beside(asked):
    question = Question(draws=60)
    answer, others = (ask(question) for ask in asked)
    made = certify_posterior(answer, answer.candidates[0], baseline_known=True, others=others)
    assert len(made.beliefs) == 1 + len(others)
    assert len({belief.priors for belief in made.beliefs}) > 1
    assert [belief.p_safe for belief in made.beliefs[1:]] == [other.candidates[0].p_safe for other in others]


def test_what_counts_leave_open_is_said(asked):
    answer = asked[0](Question(form="linearised"))
    said = " ".join(certify_posterior(answer, answer.candidates[0], baseline_known=True).assumptions)
    assert "counts" not in said
    hidden = replace(answer, hidden=("profit", "harm"))
    said = " ".join(certify_posterior(hidden, hidden.candidates[0], baseline_known=True).assumptions)
    assert "Of profit, harm they do not say which next state paid what, nor how rare a large loss is." in said
    many = replace(answer, hidden=tuple(f"r{i}" for i in range(9)))
    said = " ".join(certify_posterior(many, many.candidates[0], baseline_known=True).assumptions)
    assert "Of 9 objectives they do not say" in said
