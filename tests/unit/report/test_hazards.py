"""Hazard margins in the report."""

from __future__ import annotations

import dataclasses

from bettersafe.certificate.certificate import Belief
from bettersafe.certificate.hazard import HazardMargin, RaisedPair
from bettersafe.report import report_html
from bettersafe.report.hazards import hazards
from toy_runs import toy_certificate, toy_run

PAIRS = (
    RaisedPair(state="ill", action="treat", extra=1.234, visits=12),
    RaisedPair(state="calm", action="<b>", extra=0.5, visits=30),
)
WIDE = HazardMargin(size=2.0, rate=0.5, excluded=0.01, visits=230, pairs=7, extra=1.9, most=PAIRS[1:])
TIGHT = HazardMargin(size=34.56, rate=0.0025, excluded=0.01, visits=230, pairs=7, extra=1.9, most=PAIRS)


def hazardous(**margins):
    belief = Belief(priors="flat", p_safe=1.0, p_objective=(1.0, 1.0), p_pessimistic=(), draws=200)
    found = toy_certificate(
        evidence="posterior",
        grade="posterior",
        beliefs=(belief,),
        diagnostics={"hazard": {name: margin.to_json() for name, margin in margins.items()}},
    )
    return toy_run(certificate=found)


def test_the_tightest_margin_is_in_words_and_its_pairs_have_names():
    run = hazardous(gain=WIDE, harm=TIGHT)
    told = hazards(run)
    assert told.sentence == TIGHT.sentence("Harm done")
    assert "one in 400 of the decisions" in told.sentence
    assert "in the 230 logged decisions of this kind, one in 100 could have stayed unseen" in told.sentence
    assert told.rows[1] == {
        "title": "Harm done", "size": "35", "rate": "one in 400", "excluded": "one in 100", "pairs": "7", "visits": "230", "covered": "no",
    }  # fmt: skip
    assert told.rows[0]["covered"] == "yes"
    assert [(row["state"], row["action"], row["extra"], row["visits"]) for row in told.pairs] == [
        ("ill", "treat", "+1.2", "12"),
        ("calm", "<b>", "+0.5", "30"),
    ]
    assert told.left == 5
    page = report_html(run)
    assert "What an unseen harm would change" in page
    assert "one in 400" in page
    assert "<bdi>&lt;b&gt;</bdi>" in page


def test_a_report_without_margins_has_no_such_section():
    assert hazards(toy_run()) is None
    nothing = dataclasses.replace(WIDE, pairs=0, most=())
    run = hazardous(gain=nothing, harm=nothing)
    assert hazards(run) is None
    assert "What an unseen harm would change" not in report_html(run)


def test_a_margin_that_nothing_can_overturn():
    safe = dataclasses.replace(WIDE, rate=float("inf"))
    told = hazards(hazardous(gain=safe, harm=dataclasses.replace(TIGHT, rate=0.0)))
    assert [row["rate"] for row in told.rows] == ["never", "any"]
    assert told.sentence.startswith("A loss on Harm done is possible as it is")
    assert safe.sentence("gain").endswith("gain would not get worse.")
