"""The rule by which candidates pass, by hand."""

from __future__ import annotations

import math

from bettersafe.posterior.rule import allowed_risk, posterior_passes, probability


def test_the_rule_by_hand():
    """(failures + 1)/(M + 1) ≤ δ: of 199 draws at δ = 0.1, 19 may fail, and 19 in all of the pessimistic ones."""
    assert posterior_passes(180 / 199, [1.0, 1.0], 199, 0.1)
    assert not posterior_passes(179 / 199, [1.0, 1.0], 199, 0.1)
    assert posterior_passes(1.0, [189 / 199, 190 / 199], 199, 0.1)  # 10 + 9
    assert not posterior_passes(1.0, [189 / 199, 189 / 199], 199, 0.1)  # 10 + 10, each alone would do
    assert posterior_passes(180 / 199, [], 199, 0.1)
    assert not posterior_passes(float("nan"), [1.0], 199, 0.1)
    assert not posterior_passes(1.0, [1.0, float("nan")], 199, 0.1)
    assert posterior_passes(1.0, [1.0], 9, 0.1)
    assert not posterior_passes(1.0, [1.0], 8, 0.1)


def test_the_rule_without_draws():
    assert posterior_passes(0.9, [0.95, 0.95], 0, 0.1)
    assert not posterior_passes(0.899, [1.0, 1.0], 0, 0.1)
    assert not posterior_passes(1.0, [0.94, 0.95], 0, 0.1)
    assert not posterior_passes(1.0, [float("nan")], 0, 0.1)


def test_the_allowed_risk():
    assert allowed_risk(0, 0.1) == 0.1
    assert math.isclose(allowed_risk(199, 0.1), 19 / 199)


def test_no_probability_is_certain():
    assert [probability(p) for p in (0.9349, 0.5, 0.9949, 1.0)] == ["0.93", "0.5", "0.994", "over 0.999"]
    assert [probability(p, 200) for p in (1.0, 0.995, 0.93)] == ["over 0.995", "0.995", "0.93"]
    assert probability(math.nan) == "–"
