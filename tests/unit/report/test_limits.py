"""What the data does not cover."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bettersafe.report import limits
from toy_runs import toy_certificate, toy_check, toy_run


def test_coverage_counts_decisions_by_times_tried():
    run = dataclasses.replace(toy_run(), counts=np.array([[0, 5], [10, 2000]]))
    bars = {label: (baseline, policy) for label, baseline, policy in limits.coverage_bars(run)}
    visits = np.array([5, 2010]) / 2015
    assert bars["never"] == pytest.approx((0.5 * visits[0], 0.25 * visits[0]))
    assert bars["1 to 9 times"] == pytest.approx((0.5 * visits[0], 0.75 * visits[0]))
    assert bars["10 to 99"] == pytest.approx((0.5 * visits[1], 0.25 * visits[1]))
    assert bars["1,000 or more"] == pytest.approx((0.5 * visits[1], 0.75 * visits[1]))
    assert [row["action"] for row in limits.rarely_tried(run)] == ["treat"]


def test_checks_of_the_state_are_sentences():
    run = toy_run(certificate=toy_certificate(checks=(toy_check(), toy_check(p_value=0.4))))
    (text, against), (_, fine) = limits.checks(run)
    assert against
    assert text.startswith("The model's return of the baseline contradicts the logged one (Harm done 2 in the")
    assert text.endswith(".")
    assert not fine
    assert limits.checks(toy_run()) == []


def test_a_model_that_does_not_fit_is_a_limit():
    doubted = toy_certificate(evidence="theory", checks=(toy_check(),))
    told = limits.limits(toy_run(certificate=doubted), limits.coverage_bars(toy_run()))
    assert "The model does not fit the log. The state may lack what matters." in told
