"""Which experiments the gridworld studies have."""

from __future__ import annotations

import pytest

from bettersafe.errors import ParameterError
from bettersafe.studies.catalogue import make_study
from bettersafe.studies.gridworld.plan import PLANS, gridworld_study


def test_every_study_takes_a_delta():
    for study_id, plan in PLANS.items():
        jobs = make_study(study_id, cmdps=2, delta=0.01).jobs
        assert {one["delta"] for one in jobs} == {0.01}
        assert {one["delta"] for one in make_study(study_id, cmdps=2).jobs} == {plan.delta}
        if plan.has_b_opt:
            assert {(one["draws"], tuple(one["sizes"])) for one in jobs} == {(200, plan.sizes)}
    with pytest.raises(ParameterError, match="delta must be a probability"):
        make_study("gridworld/bopt", delta=0.0)


def test_experiments_are_known_by_the_keys_that_they_had():
    # a sweep that was begun earlier goes on; version 2 has H-OPT's rules
    keys = {
        study_id: gridworld_study(study_id, cmdps=2).keys[0] for study_id in ("gridworld/fixed", "gridworld/scaling")
    }
    assert keys == {"gridworld/fixed": "93f582fcd00f77e9", "gridworld/scaling": "353e674c53908f6e"}
