"""Answers of the explorer are the library's."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bettersafe.explore import answers
from bettersafe.explore import session as explore
from bettersafe.logs.source import count_files
from bettersafe.methods.s_opt import s_opt
from bettersafe.model import estimate_baseline, estimate_model
from bettersafe.tasks.retest_posterior import PosteriorTest, certify_run_posterior
from bettersafe.tasks.run import run_task
from wards import ACTIONS, assert_belief, settings_of, ward_task, write_ward


# Answers
@pytest.mark.parametrize(
    "settings",
    [
        settings_of(),
        settings_of(relief=0.0, epsilon=3.0),
        settings_of(relief=0.3, pain=0.7, delta=0.4),
        settings_of(epsilon=math.inf),
    ],
)
def test_answers_are_the_librarys(session, log, settings):
    counts = count_files(str(log), objectives=session.task.objectives)
    baseline = estimate_baseline(counts)
    model = estimate_model(counts, delta=settings.delta)
    expected = s_opt(model, baseline, preference=settings.preference, epsilon=settings.epsilon)
    found = explore.solve(session, settings)
    np.testing.assert_array_equal(found.policy, expected.policy)
    answer = answers.answer(session, settings, found)
    assert [row["policy"] for row in answer["objectives"]] == [expected.policy_return[0], -expected.policy_return[1]]
    assert [row["baseline"] for row in answer["objectives"]] == [
        expected.baseline_return[0],
        -expected.baseline_return[1],
    ]
    gain = expected.policy_return - expected.baseline_return
    assert [row["gain"] for row in answer["objectives"]] == gain.tolist()
    assert answer["changed"] == len({x for x in range(12) if np.any(expected.policy[x] != baseline[x])}) > 0

    # the table, by a twin that goes through it row by row
    visits = {x: sum(counts.pair_count[counts.pair_state == x]) for x in range(12)}
    moved = {x: sum(abs(expected.policy[x, a] - baseline[x, a]) for a in range(3)) / 2 for x in range(12)}
    assert answer["moved"] == pytest.approx(sum(visits[x] * moved[x] for x in visits) / sum(visits.values()))
    order = sorted((x for x in visits if moved[x] > 0), key=lambda x: -visits[x] * moved[x])
    assert [row["state"] for row in answer["changes"]] == [str(counts.state_labels[x]) for x in order]
    for row, x in zip(answer["changes"], order, strict=True):
        assert row["visits"] == visits[x]
        for action, before, after in row["less"] + row["more"]:
            a = counts.action_labels.tolist().index(action)
            assert (before, after) == (baseline[x, a], expected.policy[x, a])


def test_returns_of_a_cut_off_log_are_said_to_go_on(session):
    settings = settings_of()
    found = explore.solve(session, settings)
    assert "(all steps" not in answers.answer(session, settings, found)["evidence"]
    cut = replace(session, counts=replace(session.counts, n_truncated=3))
    told = answers.answer(cut, settings, found)["evidence"]
    assert told.startswith(
        "“Model” is the return in the model estimated from the log (all steps, also after logging stopped)."
    )


def test_a_search_looks_at_states_and_at_actions_that_change(session):
    found = explore.solve(session, settings_of())
    everything = answers.answer(session, settings_of(), found)
    one = answers.answer(session, settings_of(), found, search="BED 1")
    assert [row["state"] for row in one["changes"]] == [
        row["state"] for row in everything["changes"] if row["state"].startswith("bed 1")
    ]
    assert one["matching"] == len(one["changes"]) < everything["matching"]
    treated = answers.answer(session, settings_of(), found, search="operate")
    moved = [
        row["state"]
        for row in everything["changes"]
        if any(move[0] == "<b>operate</b>" for move in row["less"] + row["more"])
    ]
    assert [row["state"] for row in treated["changes"]] == moved
    assert answers.answer(session, settings_of(), found, search="no such thing")["changes"] == []


@pytest.mark.parametrize("settings", [settings_of(), settings_of(relief=1.0, pain=0.0, epsilon=math.inf, delta=0.3)])
@pytest.mark.parametrize("zeta", [(0.0, 0.0), (0.3, 0.8)])
def test_beliefs_are_the_linearised_posteriors(session, settings, zeta):
    assert_belief(session, replace(settings, zeta=zeta))


def test_beliefs_of_what_was_never_tried(tmp_path):
    session = explore.open_session(ward_task(write_ward(tmp_path / "ward.csv", never=5), unseen="end"))
    settings = settings_of(relief=0.0, epsilon=math.inf)
    # an end that costs nothing is best for pain
    assert np.any(explore.solve(session, settings).policy[session.baseline == 0.0] > 0.0)
    assert_belief(session, settings)


@pytest.mark.parametrize(("prior", "pessimism"), [("support", 1.0), ("hierarchical", 4.0)])
def test_beliefs_are_under_the_priors_of_the_task(log, prior, pessimism):
    session = explore.open_session(ward_task(log, prior=prior, pessimism=pessimism))
    assert_belief(session, settings_of(epsilon=3.0))


def test_more_pessimism_speaks_for_leaving_what_was_rarely_tried(log):
    """Bad visits are added to the baseline's pairs too: what it rarely tried looks worse, and leaving it better.

    The probability under the pessimistic priors is therefore not monotone in the pessimism; the neutral prior does not change.
    """
    found = []
    for pessimism in (1.0, 5.0):
        session = explore.open_session(ward_task(log, pessimism=pessimism))
        policy = session.baseline.copy()
        policy[:, session.counts.action_labels == ACTIONS[2]] = 0.0
        policy /= policy.sum(axis=1, keepdims=True)
        made = replace(explore.solve(session, settings_of()), policy=policy)
        found.append(answers.believe(session, settings_of(), made, explore.spread(session, policy)))
    assert found[1]["p_pessimistic"] > found[0]["p_pessimistic"] + 0.3
    assert found[1]["p_safe"] == found[0]["p_safe"] < 0.2
    assert found[1]["level"] == "doubtful"


@pytest.mark.parametrize("known", [False, True])
def test_beliefs_are_those_of_certify_posterior(log, tmp_path, known):
    """The explorer and `certify --posterior` apply one rule, also to a baseline that is estimated."""
    more = {}
    if known:
        rows = [f"bed {x},{a},{p}\n" for x in range(12) for a, p in zip(ACTIONS, (0.5, 0.4, 0.1), strict=True)]
        (tmp_path / "baseline.csv").write_text("state,action,probability\n" + "".join(rows), encoding="utf-8")
        more = {"baseline": str(tmp_path / "baseline.csv")}
    session = explore.open_session(ward_task(log, method="s-opt", epsilon=3.0, pessimism=2.0, **more))
    settings = replace(explore.first_settings(session), zeta=(0.1, 0.2))
    assert (session.doubt.baseline is None) == known
    found = explore.solve(session, settings)
    belief = answers.believe(session, settings, found, explore.spread(session, found.policy))
    run = run_task(explore.explored_task(session, settings))
    np.testing.assert_array_equal(run.proposal, found.policy)
    certificate = certify_run_posterior(run, str(log), PosteriorTest(form="linearised"))
    expected = certificate.beliefs[0]
    assert belief["p_safe"] == pytest.approx(expected.p_safe, abs=1e-6)
    rows = belief["objectives"]
    assert [row["p_no_worse"] for row in rows] == pytest.approx(expected.p_objective, abs=1e-6)
    assert [row["p_no_worse_pessimistic"] for row in rows] == pytest.approx(expected.p_pessimistic, abs=1e-6)
    assert (belief["level"] == "likely") == expected.passes(certificate.delta)


@pytest.mark.parametrize(
    ("p", "text"),
    [(1.0, "99.9"), (0.99995, "99.9"), (0.9987, "99.8"), (0.979, "97"), (0.9, "90"), (0.0099, "0.9")],
)
def test_probabilities_are_never_said_to_be_higher_than_they_are(p, text):
    assert answers.at_least(p) == f"at least {text} %"


def test_a_bound_that_says_nothing_is_called_that():
    assert answers.at_least(0.0).startswith("can't tell")
    assert [answers.about(p) for p in (1.0, 0.979, 0.004)] == ["over 99.9 %", "about 97 %", "under 1 %"]
