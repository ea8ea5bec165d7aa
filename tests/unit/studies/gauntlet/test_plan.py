"""Which experiments the gauntlet has."""

from __future__ import annotations

import pytest

from bettersafe.errors import ParameterError
from bettersafe.studies.catalogue import make_study
from bettersafe.studies.gauntlet.kinds import KINDS
from bettersafe.studies.gauntlet.plan import gauntlet_study


def test_every_kind_and_size_has_its_logs():
    study = gauntlet_study(worlds=2, half="choose", seed=3)
    assert len(study.jobs) == 2 * sum(len(kind.sizes) for kind in KINDS.values() if kind.half == "choose")
    assert {job["seed"] for job in study.jobs} == {3}
    assert {KINDS[job["kind"]].half for job in study.jobs} == {"choose"}
    both = gauntlet_study(worlds=2, kinds="wet-chicken, taxi")
    assert {(job["kind"], job["episodes"]) for job in both.jobs} == {
        ("wet-chicken", 20), ("wet-chicken", 100), ("taxi", 100), ("taxi", 500)
    }  # fmt: skip
    assert {job["kind"] for job in gauntlet_study(worlds=1, kinds="wet-chicken,taxi", half="confirm").jobs} == {"taxi"}


def test_later_kinds_run_only_if_they_are_asked_for():
    def halves(**options):
        return {KINDS[job["kind"]].half for job in gauntlet_study(worlds=1, **options).jobs}

    assert halves() == {"choose", "confirm"}
    assert halves(half="fresh") == {"fresh"}
    assert halves(half="fourth") == {"fourth"}
    assert halves(half="fifth") == {"fifth"}
    assert halves(half="sixth") == {"sixth"}
    assert halves(half="seventh") == {"seventh"}
    assert halves(kinds="mines,taxi") == {"fresh", "confirm"}
    assert halves(kinds="ferry,mill,hotel,lake") == {"fourth", "fifth", "sixth", "seventh"}
    assert halves(half="all") == {"choose", "confirm", "fresh", "fourth", "fifth", "sixth", "seventh"}


def test_a_smaller_delta_has_more_draws():
    assert {job["draws"] for job in gauntlet_study(worlds=1, delta=0.002, kinds="pit").jobs} == {1000}


def test_experiments_are_the_same_whichever_others_are_asked_for():
    assert set(gauntlet_study(worlds=1, kinds="pit").keys) < set(gauntlet_study(worlds=2).keys)


def test_wrong_options():
    with pytest.raises(ParameterError, match="at least 1 world"):
        gauntlet_study(worlds=0)
    with pytest.raises(ParameterError, match="delta"):
        gauntlet_study(delta=1.5)
    with pytest.raises(
        ParameterError, match="half must be one of choose, confirm, fresh, fourth, fifth, sixth, seventh, all"
    ):
        make_study("gauntlet", half="first")
    with pytest.raises(ParameterError, match="Did you mean 'wet-chicken'"):
        make_study("gauntlet", kinds="wet-chiken")
    with pytest.raises(ParameterError, match="none of the kinds taxi is in the half 'choose'"):
        make_study("gauntlet", kinds="taxi", half="choose")
