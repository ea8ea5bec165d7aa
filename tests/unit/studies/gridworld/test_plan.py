"""Which experiments the gridworld studies have."""

from __future__ import annotations

import pytest

from bettersafe.errors import ParameterError
from bettersafe.studies.catalogue import make_study
from bettersafe.studies.gridworld.plan import PLANS, gridworld_study


def test_only_studies_of_b_opt_take_a_delta():
    for study_id, plan in PLANS.items():
        asked = {"cmdps": 2, "delta": 0.01}
        if not study_id.startswith("gridworld/bopt"):
            with pytest.raises(ParameterError, match=r"`delta` does not belong .* takes `cmdps`\. Leave it out"):
                make_study(study_id, **asked)
            continue
        jobs = make_study(study_id, **asked).jobs
        assert {(one["delta"], one["draws"], tuple(one["sizes"])) for one in jobs} == {(0.01, 200, plan.sizes)}
        assert {(one["delta"], one["draws"]) for one in make_study(study_id, cmdps=2).jobs} == {(0.1, 200)}
    with pytest.raises(ParameterError, match="delta must be a probability"):
        make_study("gridworld/bopt", delta=0.0)


def test_experiments_of_the_papers_studies_are_known_by_the_keys_that_they_had():
    # a sweep that was begun before there was B-OPT goes on
    keys = {
        study_id: gridworld_study(study_id, cmdps=2).keys[0] for study_id in ("gridworld/fixed", "gridworld/scaling")
    }
    assert keys == {"gridworld/fixed": "3ac594c00a40f3ff", "gridworld/scaling": "a632c5f7ed3000fd"}
