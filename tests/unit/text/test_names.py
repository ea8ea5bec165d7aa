"""Labels and lists of names."""

from __future__ import annotations

import dataclasses

from bettersafe.certificate.certificate import Belief, Floor, steps_words
from bettersafe.evaluation.state_evidence import StateCheck
from bettersafe.runs.info import DataInfo
from bettersafe.text.headlines import optimised_for
from bettersafe.text.names import (
    belief_word,
    certificate_steps,
    doubt_of,
    floor_word,
    listed,
    logged_steps,
    run_steps,
    shorten,
    status,
)
from toy_runs import toy_certificate, toy_findings, toy_run


def test_names_are_listed_and_cut():
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(["a"]) == "a"
    assert listed(["a"] * 17, of=17) == "all 17 objectives"
    assert listed(["a"] * 16, of=17) == "16 of 17 objectives"
    assert shorten("a long\n\u202ename", 8) == "a long\ufffd…"


def test_steps_of_returns_in_words():
    assert (steps_words(None), steps_words(1), steps_words(1000)) == ("", "first step", "first 1,000 steps")
    assert steps_words(5, complete=False) == "logged steps only"
    data = DataInfo(path="log.csv", sha256="0", rows=9, episodes=3, truncated=1)
    assert run_steps(toy_run()) == ""
    assert run_steps(toy_run(data=data)) == "all steps, also after logging stopped"
    limited = toy_run(data=data, settings={"horizon": 5})
    assert run_steps(limited) == certificate_steps(limited) == "first 5 steps"
    tested = dataclasses.replace(limited, certificate=toy_certificate(diagnostics={"complete": False}))
    assert certificate_steps(tested) == "logged steps only"
    row = {"horizon": None, "complete": False, "longest_episode": 7, "truncated_episodes": 1, "episodes": 3}
    assert logged_steps(row) == "up to 7 steps; 1 of 3 episodes are cut off"
    assert logged_steps({**row, "complete": True}) == "whole episodes"
    # both objectives have discount 0.8: 1 − 1/(1 + 0.8 + 0.64 + 0.512 + 0.4096)
    assert optimised_for(limited).endswith("of the same mean number of steps (discount 0.703)")


def test_beliefs_and_thresholds_have_one_word_each():
    for p, word in ((0.99, "believed"), (0.5, "in doubt")):
        belief = Belief(priors="flat", p_safe=p, p_objective=(p, p), p_pessimistic=(), draws=0)
        assert belief_word(belief, 0.1) == word
    for guaranteed, word in ((1.0, "kept"), (0.9, "may be missed")):
        floor = Floor(objective="a", threshold=1.0, baseline_bound=0.9, guaranteed=guaranteed, level=0.05)
        assert floor_word(floor) == word


def test_a_refused_policy_is_a_proposal():
    assert status(toy_run()) == "The policy changes something."
    refused = toy_run(certificate=toy_certificate(findings=toy_findings(0.2, -0.2)))
    assert status(refused) == "The proposal changes something."


def test_a_log_that_stops_is_not_a_state_that_lacks_something():
    stops, earlier = StateCheck(kind="open-end", reason="it stopped", required=True), StateCheck(kind="step-before")
    assert doubt_of([stops]) == ("the policy more often goes where the log stops", "What follows there is not known.")
    assert doubt_of([stops, earlier])[0] == "the model does not fit the log"
