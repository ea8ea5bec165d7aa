"""What was solved is not solved again."""

from __future__ import annotations

from bettersafe.explore import cache
from bettersafe.explore import session as explore
from wards import settings_of, ward_task


def test_without_pessimistic_priors_nothing_is_said_of_them(log):
    session = explore.open_session(ward_task(log, pessimism=0.0))
    belief = cache.Cache(session).believe(settings_of(epsilon=3.0))
    assert belief["p_pessimistic"] is None
    assert {row["p_no_worse_pessimistic"] for row in belief["objectives"]} == {None}
    assert "worst" not in belief["verdict"] + belief["evidence"]
    assert belief["level"] == ("likely" if belief["p_safe"] >= 0.9 else "doubtful")


def test_the_baseline_is_called_the_baseline(session):
    solutions = cache.Cache(session)
    for settings in (settings_of(epsilon=0.0), settings_of(relief=0.0, pain=0.0)):
        answer, belief = solutions.answer(settings), solutions.believe(settings)
        assert {row["side"] for row in answer["objectives"]} == {"same"}
        assert answer["changed"] == answer["moved"] == 0
        assert answer["changes"] == []
        assert belief["level"] == "baseline"
        assert "baseline is returned" in belief["verdict"]


def test_what_was_solved_is_not_solved_again(session, monkeypatch):
    solutions, solved = cache.Cache(session), []
    solve = explore.solve
    monkeypatch.setattr(cache, "solve", lambda s, settings: solved.append(settings) or solve(s, settings))
    solutions.answer(settings_of())
    solutions.believe(settings_of(zeta=(0.2, 0.2)))
    assert len(solved) == 1
    for i in range(cache.REMEMBERED + 5):
        solutions.answer(settings_of(epsilon=0.01 + i))
    solutions.answer(settings_of())  # forgotten since
    assert len(solved) == cache.REMEMBERED + 7
