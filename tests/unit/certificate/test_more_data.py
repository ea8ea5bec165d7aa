"""How many more episodes would decide: by simulated normals, whose truth is known."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from bettersafe.certificate import more_data as module
from bettersafe.certificate.certificate import Belief
from bettersafe.certificate.files import certificate_json
from bettersafe.certificate.more_data import MOST_TIMES, more_data
from toy_runs import toy_certificate, toy_findings

NORMAL = NormalDist()
DELTA, EPISODES = 0.1, 400


def found(gains, sd, *, evidence="posterior", zeta=0.0, shift=None, delta=DELTA, episodes=EPISODES):
    """Certificate of estimated gains [2] with standard deviations ``sd`` [2]; pessimistic priors lower them by ``shift`` [2]."""
    level = delta if evidence == "posterior" else delta / 2.0
    z = NORMAL.inv_cdf(1.0 - level)
    findings = tuple(
        type(one)(**{**vars(one), "estimate": g, "lower_bound": g - z * s})
        for one, g, s in zip(toy_findings(0.0, 0.0, level=level, zeta=zeta), gains, sd, strict=True)
    )
    more = {}
    if evidence == "posterior":
        each = tuple(NORMAL.cdf((g + zeta) / s) for g, s in zip(gains, sd, strict=True))
        worst = (
            ()
            if shift is None
            else tuple(NORMAL.cdf((g + zeta - b) / s) for g, s, b in zip(gains, sd, shift, strict=True))
        )
        p_safe = float(np.prod(each))
        more = {
            "grade": "posterior",
            "beliefs": (Belief(priors="flat", p_safe=p_safe, p_objective=each, p_pessimistic=worst, draws=0),),
        }
    return toy_certificate(
        findings=findings, evidence=evidence, delta=delta, data={"tested_on": {"episodes": episodes}}, **more
    )


@pytest.mark.parametrize("evidence", ["posterior", "held-out"])
def test_with_one_objective_it_is_the_textbook_formula(evidence):
    """t = (z sd / gain)², and the other objective is sure."""
    certificate = found((1.0, 100.0), (1.5, 1.5), evidence=evidence)
    level = DELTA if evidence == "posterior" else DELTA / 2.0
    expected = (NORMAL.inv_cdf(1.0 - level) * 1.5) ** 2
    needed = more_data(certificate)
    assert needed.factor == pytest.approx(expected, rel=1e-6)
    assert needed.episodes == pytest.approx((expected - 1.0) * EPISODES, rel=0.05)
    assert needed.objective == "gain"
    assert needed.held_out is (evidence == "held-out")
    row = certificate_json(certificate)["more_data"]
    assert (row["episodes"], row["sentence"]) == (needed.episodes, needed.sentence)


def share_decided(evidence, *, close, n=4000):
    """Share of refused policies that pass with the episodes asked for.

    The truth is drawn from the posterior of a flat prior, N(estimate, sd²), and the new episodes from the truth. If one objective is
    ``close`` and the other is sure, the estimate after the new episodes is as likely above the boundary as below it: one half passes.
    """
    rng = np.random.default_rng(0)
    sd, passed, asked = np.ones(2), 0, 0
    for _ in range(n):
        estimate = np.where(np.arange(2) < close, rng.uniform(0.4, 1.2, size=2), 50.0)
        needed = more_data(found(estimate, sd, evidence=evidence))
        if needed.factor > MOST_TIMES:
            continue
        times = needed.factor
        fresh = rng.normal(rng.normal(estimate, sd), sd / np.sqrt(times - 1.0))  # of (t − 1) n new episodes
        later = (estimate + (times - 1.0) * fresh) / times
        passed += found(later, sd / np.sqrt(times), evidence=evidence).passes
        asked += 1
    assert asked > 0.8 * n
    return passed / asked


@pytest.mark.parametrize("evidence", ["posterior", "held-out"])
def test_with_so_many_episodes_half_of_the_policies_pass(evidence, monkeypatch):
    assert share_decided(evidence, close=1) == pytest.approx(0.5, abs=0.04)  # 5 standard errors
    assert 0.25 < share_decided(evidence, close=2) < 0.54  # two objectives must pass; each does so in at least one half
    # planted fault: a standard deviation that falls as 1/n instead of 1/√n asks for too few episodes
    name = "_posterior_factor" if evidence == "posterior" else "_times"
    right = getattr(module, name)

    def wrong(*given):
        answer = right(*given)
        return (answer[0], math.sqrt(answer[1])) if isinstance(answer, tuple) else math.sqrt(answer)

    monkeypatch.setattr(module, name, wrong)
    assert abs(share_decided(evidence, close=1) - 0.5) > 0.08


def test_the_mean_number_is_about_right():
    """The estimate is of 400 episodes of sd 20 each: on average (in logs) the number is the one for the true gain."""
    rng = np.random.default_rng(1)
    truth, sd = 0.6, 1.0 / 4.0
    needed = (NORMAL.inv_cdf(1.0 - DELTA / 2.0) * sd / truth) ** 2
    times = [
        module._times(gain, NORMAL.inv_cdf(1.0 - DELTA / 2.0) * sd) for gain in rng.normal(truth, sd / 4.0, size=2000)
    ]
    assert np.exp(np.mean(np.log(times))) == pytest.approx(needed, rel=0.05)


def test_pessimistic_priors_ask_for_more_and_fade():
    plain, shifted = (more_data(found((1.0, 5.0), (1.0, 1.0), shift=shift)) for shift in ((0.0, 0.0), (0.6, 0.0)))
    assert shifted.factor > plain.factor
    # at t times as many episodes the shift is 0.6/t: (1 − 0.6/t) √t = z
    t = shifted.factor
    assert (1.0 - 0.6 / t) * math.sqrt(t) == pytest.approx(NORMAL.inv_cdf(1.0 - DELTA), rel=1e-3)
    # even where the pessimistic mean is a loss, more episodes can decide
    assert more_data(found((1.0, 5.0), (1.0, 1.0), shift=(2.0, 0.0))).factor < MOST_TIMES


@pytest.mark.parametrize("evidence", ["posterior", "held-out"])
def test_an_estimated_loss_is_not_decided_by_more_of_the_same(evidence):
    needed = more_data(found((1.0, -0.2), (1.0, 1.0), evidence=evidence))
    assert math.isinf(needed.factor)
    assert needed.episodes is None
    assert needed.sentence.endswith("are not expected to change this: by the estimate, the policy loses on Harm done.")
    assert not math.isinf(more_data(found((1.0, -0.2), (1.0, 1.0), evidence=evidence, zeta=0.5)).factor)


@pytest.mark.parametrize("evidence", ["posterior", "held-out"])
def test_it_is_capped_and_rounded(evidence):
    far = more_data(found((0.01, 1.0), (1.0, 1.0), evidence=evidence))
    assert far.episodes is None
    assert "more than 20 times as many" in far.sentence
    near = more_data(found((1.0, 100.0), (0.8, 1.0), evidence=evidence))
    assert near.episodes == float(f"{near.episodes:.1e}")  # two digits
    assert "about" in near.sentence
    assert "times as many" in more_data(found((1.0, 100.0), (1.5, 1.0), evidence=evidence, episodes=0)).sentence


def test_another_reason_has_no_number():
    assert more_data(toy_certificate()) is None
    assert more_data(toy_certificate(findings=toy_findings(0.2, -0.1), unsupported=0.1)) is None
    assert more_data(toy_certificate(findings=toy_findings(0.2, -0.1), evidence="theory")) is None
    assert more_data(toy_certificate(findings=toy_findings(0.2, -math.inf))) is None
    assert more_data(found((0.1, 1.0), (1.0, 1.0), delta=0.6)) is None
